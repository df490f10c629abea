"""``numpy.fft``'s names on Arrays and traced values."""

from __future__ import annotations

from numpy import fft as _theirs

from functrans.numpy import fourier as _fourier
from functrans.numpy.public import publish as _publish

__all__ = _publish(_fourier, globals(), _theirs)
