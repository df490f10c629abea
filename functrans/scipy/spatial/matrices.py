"""Functions of ``scipy.spatial`` itself: distances by a p-norm."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import spatial

from functrans.numpy.structure import as_floats
from functrans.scipy.public import counterpart
from functrans.scipy.spatial import metrics

sp: Any = spatial  # its types say less than its functions take


@counterpart(sp.minkowski_distance_p)
def minkowski_distance_p(x, y, p=2.0):
    """The p-th power of the p-norm of differences, along the last axis."""
    d = np.abs(as_floats(x) - as_floats(y))
    if p == np.inf:
        return np.max(d, axis=-1)
    return np.sum(d if p == 1 else d**p, axis=-1)


@counterpart(sp.minkowski_distance)
def minkowski_distance(x, y, p=2.0):
    """The p-norm of differences, along the last axis; 0 has the slope 0."""
    return metrics.minkowski(as_floats(x), as_floats(y), p)


@counterpart(sp.distance_matrix)
def distance_matrix(x, y, p=2.0, threshold=1000000):
    """The p-norms of the differences of each row of ``x`` and each row of ``y``."""
    x, y = as_floats(x), as_floats(y)
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"x contains {x.shape[1]}-dimensional vectors but y contains "
                         f"{y.shape[1]}-dimensional vectors")
    return minkowski_distance(x[:, None], y[None], p)
