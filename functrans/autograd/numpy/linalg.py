"""``autograd.numpy.linalg``: ``numpy.linalg``'s names, of plain and of traced values.

>>> import functrans.autograd.numpy as np
>>> from functrans.autograd import grad
>>> grad(lambda a: np.sum(np.linalg.cholesky(a)))(np.array([[4.0, 2.0], [2.0, 5.0]])).round(4)
array([[0.1875, 0.125 ],
       [0.125 , 0.25  ]])
"""

from __future__ import annotations

from typing import Any

import numpy as _np

from functrans._core.bind import Tracer as _Tracer
from functrans._transforms.rules.custom import stop_gradient as _stop_gradient
from functrans.autograd._names import missing as _missing
from functrans.autograd.numpy._functions import names_of as _names_of
from functrans.autograd.numpy._functions import own as _own
from functrans.numpy import linalg as _ours

globals().update(_names_of(_np.linalg, _ours))
_dot = _np.matmul  # which programs of autograd's users take
_cholesky = _own(_np.linalg.cholesky, _ours.cholesky)


def T(x: Any) -> Any:
    """``x`` with its last two axes swapped."""
    return _np.swapaxes(x, -1, -2)


def cholesky(a: Any, /, **options: Any) -> Any:
    """``numpy.linalg.cholesky``, whose gradient is symmetric, as in autograd."""
    if isinstance(a, _Tracer):
        half = (a + _np.conj(T(a))) / 2
        a = half + _stop_gradient(a - half)  # of the values of a, half of whose slopes are mirrored
    return _cholesky(a, **options)


__getattr__ = _missing(__name__)
