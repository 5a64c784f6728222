"""midtrace: what a reasoning language model knows before it has finished thinking."""

__version__ = "0.1.0"
