"""``torch.version``: the torch whose names and behaviour are followed."""

__version__ = "2.15.0+functrans"
cuda = hip = None
debug = False

__all__ = ["__version__", "cuda", "debug", "hip"]
