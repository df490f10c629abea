"""``scipy.interpolate``'s names on plain arrays and traced values.

>>> import functrans as ft, numpy as np
>>> from functrans.scipy import interpolate
>>> x = np.array([0.0, 1.0, 2.0, 3.0])
>>> ft.grad(interpolate.CubicSpline(x, x**3))(2.0)
Array(12.)
"""

from __future__ import annotations

from scipy import interpolate as _theirs

from functrans.scipy.interpolate import bsplines as _bsplines
from functrans.scipy.interpolate import grids as _grids
from functrans.scipy.interpolate import piecewise as _piecewise
from functrans.scipy.interpolate import univariate as _univariate
from functrans.scipy.public import namespace as _namespace

__all__, __getattr__, __dir__ = _namespace(
    _theirs, globals(), _piecewise, _bsplines, _univariate, _grids
)
