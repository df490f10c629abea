"""``autograd.numpy``: NumPy's names, of plain and of traced values.

>>> import functrans.autograd.numpy as np
>>> from functrans.autograd import grad
>>> grad(lambda x: np.sum(np.stack({"a": x, "b": 2 * x}.values())))(np.ones(2))
array([3., 3.])
"""

from __future__ import annotations

import numpy as _np

from functrans.autograd.numpy import (
    fft,
    linalg,
    numpy_boxes,
    numpy_vjps,
    numpy_vspaces,
    numpy_wrapper,
    random,
)
from functrans.autograd.numpy._functions import numpys as _numpys

_KEPT = {"fft", "linalg", "random", "builtins", "Any", "Callable", "Iterable", "annotations"}
globals().update({name: value for name, value in vars(numpy_wrapper).items()
                  if not name.startswith("_") and name not in _KEPT})
__version__ = _np.__version__
__all__ = sorted(name for name in globals() if not name.startswith("_") and name != "annotations")
assert fft and linalg and numpy_boxes and numpy_vjps and numpy_vspaces and random
__getattr__ = _numpys(__name__)
