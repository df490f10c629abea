"""``autograd.numpy.fft``: ``numpy.fft``'s names, of plain and of traced values."""

from __future__ import annotations

import numpy as _np

from functrans.autograd._names import missing as _missing
from functrans.autograd.numpy._functions import names_of as _names_of
from functrans.numpy import fft as _ours

globals().update(_names_of(_np.fft, _ours))
__getattr__ = _missing(__name__)
