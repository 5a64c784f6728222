"""The embedded model: its language, its training corpus, its training. Nothing here is needed to run a study."""
