"""``torch.utils``: ``checkpoint``, ``data`` and ``hooks``."""

from functrans.torch._names import absent
from functrans.torch.utils import checkpoint, data, hooks

__all__ = ["checkpoint", "data", "hooks"]

__getattr__ = absent(__name__)
