"""The metrics, along the last axis of arrays that broadcast, and distances by a p-norm."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import spatial

from functrans._core.bind import AnyArray, Tracer
from functrans._ops.declare import where
from functrans._ops.elementwise import ratio
from functrans.errors import NotDifferentiable, user_line
from functrans.numpy.structure import as_floats, as_operand
from functrans.scipy import special
from functrans.scipy.public import counterpart

# ---- The metrics, along the last axis of arrays that broadcast against each other
#
# Where two points coincide a distance that has a kink there has the derivative 0, as a norm at 0.


def _weight(x: Any, w: Any) -> AnyArray:
    return x if w is None else x * w


def _root(square: Any) -> AnyArray:
    """The square root, of which the slope at 0 counts as 0."""
    apart = np.logical_not(square <= 0)  # NaN stays
    return where(apart, np.sqrt(where(apart, square, 1.0)), 0.0)


def euclidean(u: Any, v: Any, w: Any = None) -> AnyArray:
    if isinstance(w, Tracer):
        return _root(sqeuclidean(u, v, w))
    d = u - v
    return np.linalg.norm(d if w is None else np.sqrt(w) * d, axis=-1)


def sqeuclidean(u: Any, v: Any, w: Any = None) -> AnyArray:
    d = u - v
    return np.sum(_weight(d * d, w), axis=-1)


def cityblock(u: Any, v: Any, w: Any = None) -> AnyArray:
    return np.sum(_weight(np.abs(u - v), w), axis=-1)


def chebyshev(u: Any, v: Any, w: Any = None) -> AnyArray:
    """The largest difference, of the coordinates with a weight."""
    d = np.abs(u - v)
    if w is not None:  # SciPy's weights choose the coordinates that count
        d = d * where(as_operand(w) > 0, 1.0, 0.0)
    return np.max(d, axis=-1)


def minkowski(u: Any, v: Any, p: Any = 2, w: Any = None) -> AnyArray:
    if isinstance(p, Tracer):
        raise NotDifferentiable(
            f"{user_line()}: minkowski got a traced p, which is a constant here. Write "
            "np.sum(np.abs(u - v)**p, axis=-1) ** (1 / p) of points that differ."
        )
    if p <= 0:
        raise ValueError("p must be greater than 0")
    d = u - v
    if np.isinf(p):
        return chebyshev(u, v, w)
    if isinstance(w, Tracer):  # a weight of 0 has a slope
        total = np.sum(w * np.abs(d) ** p, axis=-1)
        return where(total > 0, where(total > 0, total, 1.0) ** (1 / p), 0.0)
    return np.linalg.norm(d if w is None else w ** (1 / p) * d, p, axis=-1)


def cosine(u: Any, v: Any, w: Any = None) -> AnyArray:
    def dot(a: Any, b: Any) -> AnyArray:
        return np.sum(_weight(a * b, w), axis=-1)

    return 1.0 - dot(u, v) / np.sqrt(dot(u, u) * dot(v, v))


def correlation(u: Any, v: Any, w: Any = None, centered: bool = True) -> AnyArray:
    if centered:
        share = None if w is None else w / np.sum(w)
        u, v = [
            x - (np.mean(x, axis=-1, keepdims=True) if share is None
                 else np.sum(x * share, axis=-1, keepdims=True)) for x in (u, v)
        ]
    return cosine(u, v, w)


def canberra(u: Any, v: Any, w: Any = None) -> AnyArray:
    """Of two coordinates that are 0 the part is 0, and so is its slope."""
    return np.sum(_weight(ratio(np.abs(u - v), np.abs(u) + np.abs(v)), w), axis=-1)


def braycurtis(u: Any, v: Any, w: Any = None) -> AnyArray:
    away, together = [np.sum(_weight(np.abs(x), w), axis=-1) for x in (u - v, u + v)]
    return away / together


def mahalanobis(u: Any, v: Any, VI: Any) -> AnyArray:
    d = u - v
    return _root(np.sum((d @ as_operand(VI)) * d, axis=-1))


def seuclidean(u: Any, v: Any, V: Any) -> AnyArray:
    return np.linalg.norm((u - v) / np.sqrt(V), axis=-1)


def jensenshannon(p: Any, q: Any, base: Any = None, axis: int = -1,
                  keepdims: bool = False) -> AnyArray:
    p, q = [x / np.sum(x, axis=axis, keepdims=True) for x in (p, q)]
    m = (p + q) / 2.0
    both = special.rel_entr(p, m) + special.rel_entr(q, m)
    total = np.sum(both, axis=axis, keepdims=keepdims) / 2.0
    return _root(total if base is None else total / np.log(base))


METRICS = {f.__name__: f for f in (
    braycurtis, canberra, chebyshev, cityblock, correlation, cosine, euclidean, jensenshannon,
    mahalanobis, minkowski, seuclidean, sqeuclidean,
)}
# SciPy's other names of them.
ALIASES = {
    "braycurtis": "", "canberra": "", "chebyshev": "chebychev cheby cheb ch",
    "cityblock": "cblock cb c", "correlation": "co", "cosine": "cos",
    "euclidean": "euclid eu e", "jensenshannon": "js", "mahalanobis": "mahal mah",
    "minkowski": "mi m pnorm", "seuclidean": "se s", "sqeuclidean": "sqe sqeuclid",
}


# ---- Functions of ``scipy.spatial`` itself: distances by a p-norm

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
    return minkowski(as_floats(x), as_floats(y), p)


@counterpart(sp.distance_matrix)
def distance_matrix(x, y, p=2.0, threshold=1000000):
    """The p-norms of the differences of each row of ``x`` and each row of ``y``."""
    x, y = as_floats(x), as_floats(y)
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"x contains {x.shape[1]}-dimensional vectors but y contains "
                         f"{y.shape[1]}-dimensional vectors")
    return minkowski_distance(x[:, None], y[None], p)
