"""``scipy.optimize``'s names: solutions have derivatives, and solvers get them.

SciPy's solver runs on numbers. Its solution is differentiated by the implicit function theorem, in
all that the function closes over or takes as ``args``, to any order in every mode.

>>> import functrans as ft, numpy as np
>>> from functrans.scipy import optimize
>>> ft.grad(lambda a: optimize.brentq(lambda x: x**3 - a, 0.0, 3.0))(8.0)
Array(0.08333333)

On plain arrays too, SciPy is given the gradient, Jacobian or Hessian that a method takes.

>>> optimize.minimize(lambda x: np.sum((x - 1) ** 4), np.zeros(2), method="trust-exact").nhev > 0
True
"""

from __future__ import annotations

from scipy import optimize as _theirs

from functrans.scipy.optimize import minima as _minima
from functrans.scipy.optimize import squares as _squares
from functrans.scipy.public import namespace as _namespace

__all__, __getattr__, __dir__ = _namespace(
    _theirs, globals(), _minima, _squares
)
