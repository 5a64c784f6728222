"""Runs of other tools: their formats (:mod:`~midtrace.external.formats`) and how they enter a study (:mod:`~midtrace.external.importing`)."""
