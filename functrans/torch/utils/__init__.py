"""``torch.utils``: ``checkpoint``, ``data``, ``dlpack`` and ``hooks``."""

from functrans.torch._names import absent
from functrans.torch.utils import _pytree, checkpoint, data, dlpack, hooks

__all__ = ["_pytree", "checkpoint", "data", "dlpack", "hooks"]

__getattr__ = absent(__name__)
