"""``scipy.spatial.transform``'s names: rotations that are differentiated.

>>> import functrans as ft, numpy as np
>>> from functrans.scipy.spatial.transform import Rotation
>>> turned = lambda v: Rotation.from_rotvec(v).apply(np.array([1.0, 0.0, 0.0]))
>>> ft.jacobian(turned)(np.zeros(3))
Array([[ 0.,  0.,  0.],
       [ 0.,  0.,  1.],
       [ 0., -1.,  0.]])
"""

from __future__ import annotations

from scipy.spatial import transform as _theirs

from functrans.scipy.public import namespace as _namespace
from functrans.scipy.spatial import rotations as _rotations

__all__, __getattr__, __dir__ = _namespace(_theirs, globals(), _rotations)
