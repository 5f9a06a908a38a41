"""Let deep-learning jobs share GPUs without hurting each other."""

__version__ = "0.1.0"
