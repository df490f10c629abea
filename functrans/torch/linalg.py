"""``torch.linalg``: functions of matrices.

>>> from functrans import torch
>>> det(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
tensor(3.)
"""

from __future__ import annotations

from functrans.torch._functions import algebra, systems
from functrans.torch._functions.failures import LinAlgError
from functrans.torch._functions.table import LINALG, publish
from functrans.torch._names import absent

matmul = algebra.matmul
assert systems  # for what it enters
__all__ = ["LinAlgError", "matmul", *LINALG]
globals().update({_name: publish(_name, _f) for _name, _f in LINALG.items()})

__getattr__ = absent(__name__)
