"""``scipy.special``'s names on plain arrays and traced values.

>>> import functrans as ft, numpy as np
>>> from functrans.scipy import special
>>> ft.grad(lambda x: special.logsumexp(x))(np.array([0.0, 0.0]))
Array([0.5, 0.5])

Ufuncs are SciPy's own: they take traced values as they are.

>>> import scipy.special
>>> ft.grad(scipy.special.gammaln)(1.0)
Array(-0.57721566)
"""

from __future__ import annotations

from scipy import special as _theirs

from functrans.scipy.public import namespace as _namespace
from functrans.scipy.special import functions as _functions

assert _functions  # imported for the meanings that it gives

__all__, __getattr__, __dir__ = _namespace(_theirs, globals(), _functions)
