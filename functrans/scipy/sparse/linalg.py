"""``scipy.sparse.linalg``'s names on plain and traced systems.

>>> import functrans as ft, numpy as np, scipy.sparse
>>> from functrans.scipy.sparse import linalg
>>> A = scipy.sparse.csc_array([[2.0, 1.0], [0.0, 4.0]])
>>> ft.grad(lambda b: linalg.spsolve(A, b)[0])(np.ones(2))
Array([ 0.5  , -0.125])
"""

from __future__ import annotations

from scipy.sparse import linalg as _theirs

from functrans.scipy.public import namespace as _namespace
from functrans.scipy.sparse import systems as _systems

__all__, __getattr__, __dir__ = _namespace(_theirs, globals(), _systems)
