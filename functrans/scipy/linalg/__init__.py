"""``scipy.linalg``'s names on plain arrays and traced values.

>>> import functrans as ft, numpy as np
>>> from functrans.scipy import linalg
>>> ft.grad(lambda a: np.trace(linalg.expm(a)))(np.zeros((2, 2)))
Array([[1., 0.],
       [0., 1.]])
"""

from __future__ import annotations

from scipy import linalg as _theirs

from functrans.scipy.linalg import factors as _factors
from functrans.scipy.linalg import systems as _systems
from functrans.scipy.public import namespace as _namespace

__all__, __getattr__, __dir__ = _namespace(
    _theirs, globals(), _systems, _factors
)
