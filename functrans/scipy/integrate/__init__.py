"""``scipy.integrate``'s names on plain arrays and traced values.

>>> import functrans as ft, numpy as np
>>> from functrans.scipy import integrate
>>> grow = lambda k: integrate.odeint(lambda y, t: k * y, 1.0, np.array([0.0, 1.0]))[-1, 0]
>>> bool(np.isclose(ft.grad(grow)(0.5), np.exp(0.5)))
True
"""

from __future__ import annotations

from scipy import integrate as _theirs

from functrans.scipy.integrate import boundary as _boundary
from functrans.scipy.integrate import odes as _odes
from functrans.scipy.integrate import quadrature as _quadrature
from functrans.scipy.public import namespace as _namespace

__all__, __getattr__, __dir__ = _namespace(_theirs, globals(), _odes, _quadrature, _boundary)
