"""``scipy.sparse``'s names on plain and traced entries.

A constant array of SciPy's takes part in products with traced values as it is, ``A @ x`` and
``x @ A``. One with traced entries is made by the constructors here.

>>> import functrans as ft, numpy as np
>>> from functrans.scipy import sparse
>>> ft.grad(lambda d: (sparse.diags_array(d) @ np.ones(2)).sum())(np.array([1.0, 2.0]))
Array([1., 1.])
"""

from __future__ import annotations

from scipy import sparse as _theirs

from functrans.scipy.public import namespace as _namespace
from functrans.scipy.sparse import arrays as _arrays
from functrans.scipy.sparse import linalg as linalg

__all__, __getattr__, __dir__ = _namespace(_theirs, globals(), _arrays)
