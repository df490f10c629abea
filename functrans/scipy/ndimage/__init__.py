"""``scipy.ndimage``'s names on plain arrays and traced values.

>>> import functrans as ft, numpy as np
>>> from functrans.scipy import ndimage
>>> ft.grad(lambda x: ndimage.uniform_filter1d(x, 3)[0])(np.ones(3)).round(3)
array([0.667, 0.333, 0.   ])
"""

from __future__ import annotations

from scipy import ndimage as _theirs

from functrans.scipy.ndimage import filtering as _filtering
from functrans.scipy.ndimage import points as _points
from functrans.scipy.public import namespace as _namespace

__all__, __getattr__, __dir__ = _namespace(
    _theirs, globals(), _filtering, _points
)
