"""``torch.utils``: ``checkpoint`` and ``hooks``."""

from functrans.torch.utils import checkpoint, hooks

__all__ = ["checkpoint", "hooks"]
