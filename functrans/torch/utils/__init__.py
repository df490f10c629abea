"""``torch.utils``: ``checkpoint``, ``data`` and ``hooks``."""

from functrans.torch.utils import checkpoint, data, hooks

__all__ = ["checkpoint", "data", "hooks"]
