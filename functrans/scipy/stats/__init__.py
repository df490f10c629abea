"""``scipy.stats``' distributions and summaries of samples on plain arrays and traced values.

>>> import functrans as ft, numpy as np
>>> from functrans.scipy import stats
>>> ft.grad(lambda m: stats.norm.logpdf(np.array([1.0, 2.0]), m).sum())(0.0)
Array(3.)

Distributions are differentiated in the variable and in every parameter, location and scale
included; frozen ones too.

>>> ft.grad(lambda a: stats.gamma(a, scale=2.0).cdf(3.0))(1.5)
Array(-0.34397176)
"""

from __future__ import annotations

from scipy import stats as _theirs

from functrans.scipy import special as _special
from functrans.scipy.public import namespace as _namespace
from functrans.scipy.stats import half_line as _half_line
from functrans.scipy.stats import line as _line
from functrans.scipy.stats import multivariate as _multivariate
from functrans.scipy.stats import samples as _samples

assert _special  # imported for the rows that it declares

__all__, __getattr__, __dir__ = _namespace(
    _theirs, globals(), _line, _half_line, _multivariate, _samples
)
