"""``autograd.numpy.random``: ``numpy.random``, whose draws are constants."""

from __future__ import annotations

import numpy as _np

from functrans.autograd._names import missing as _missing

globals().update({n: getattr(_np.random, n) for n in _np.random.__all__})
__getattr__ = _missing(__name__)
