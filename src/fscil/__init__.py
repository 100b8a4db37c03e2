"""Few-shot class-incremental learning: train once, then teach new classes from a handful of images each."""

__version__ = "0.1.0"
