"""``torch.utils``: ``checkpoint``."""

from functrans.torch.utils import checkpoint

__all__ = ["checkpoint"]
