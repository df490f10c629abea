"""``scipy.spatial.distance``'s names on plain arrays and traced values.

>>> import functrans as ft, numpy as np
>>> from functrans.scipy.spatial import distance
>>> ft.grad(distance.euclidean)(np.array([3.0, 4.0]), np.zeros(2))
Array([0.6, 0.8])
"""

from __future__ import annotations

from scipy.spatial import distance as _theirs

from functrans.scipy.public import namespace as _namespace
from functrans.scipy.spatial import pairs as _pairs

__all__, __getattr__, __dir__ = _namespace(_theirs, globals(), _pairs)
