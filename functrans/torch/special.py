"""``torch.special``: functions beyond the elementary ones, SciPy's.

>>> from functrans import torch
>>> erf(torch.tensor([0.0, 1.0]))
tensor([0.0000, 0.8427])
"""

from __future__ import annotations

from functrans.torch._functions import special
from functrans.torch._functions.table import SPECIAL
from functrans.torch._names import absent

assert special  # for what it enters
__all__ = list(SPECIAL)
globals().update(SPECIAL)

__getattr__ = absent(__name__)
