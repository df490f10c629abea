"""Distances of two vectors and of all pairs after ``scipy.spatial.distance``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.spatial import distance as sd

from functrans._core.bind import AnyArray, Tracer, known_value
from functrans.errors import NotDifferentiable, UnsupportedError, user_line
from functrans.numpy.structure import as_floats, as_operand
from functrans.scipy.public import counterpart, published
from functrans.scipy.spatial import metrics

# ---- Distances of two vectors after ``scipy.spatial.distance``


def _vector(x: Any) -> AnyArray:
    x = as_floats(x)
    if x.ndim != 1:
        raise ValueError("Input vector should be 1-D.")
    return x


def _weights(w: Any) -> AnyArray | None:
    if w is None:
        return None
    w = _vector(w)
    if not isinstance(w, Tracer) and np.any(w < 0):
        raise ValueError("Input weights should be all non-negative")
    return w


def _of_vectors(name: str) -> Callable:
    """The metric of two vectors and weights."""
    metric: Any = metrics.METRICS[name]

    def distance(u, v, w=None):
        return metric(_vector(u), _vector(v), w=_weights(w))

    return published(sd, name, distance, f" {metric.__doc__ or ''}")


braycurtis = _of_vectors("braycurtis")
canberra = _of_vectors("canberra")
chebyshev = _of_vectors("chebyshev")
cityblock = _of_vectors("cityblock")
cosine = _of_vectors("cosine")
sqeuclidean = _of_vectors("sqeuclidean")


@counterpart(sd.correlation)
def correlation(u, v, w=None, centered=True):
    """1 minus the correlation of two vectors."""
    return metrics.correlation(_vector(u), _vector(v), _weights(w), centered)


@counterpart(sd.minkowski)
def minkowski(u, v, p=2, w=None):
    """The p-norm of the difference of two vectors, or of rows: from SciPy 1.18 on its own too."""
    return metrics.minkowski(as_floats(u), as_floats(v), p, _weights(w))


@counterpart(sd.euclidean)
def euclidean(u, v, w=None):
    """The length of the difference of two vectors, or of rows."""
    return minkowski(u, v, 2, w)


@counterpart(sd.mahalanobis)
def mahalanobis(u, v, VI):
    """The length of the difference by a matrix, the inverse of a covariance."""
    return metrics.mahalanobis(_vector(u), _vector(v), np.atleast_2d(as_operand(VI)))


@counterpart(sd.seuclidean)
def seuclidean(u, v, V):
    """The length of the difference, each coordinate over its standard deviation."""
    u, v, V = _vector(u), _vector(v), _vector(V)
    if not u.shape == v.shape == V.shape:
        raise TypeError("V must be a 1-D array of the same dimension as u and v.")
    return metrics.seuclidean(u, v, V)


@counterpart(sd.jensenshannon)
def jensenshannon(p, q, base=None, *, axis=0, keepdims=False):
    """The square root of the divergence of Jensen and Shannon; 0 has the slope 0.

    >>> import functrans as ft
    >>> p = np.array([0.2, 0.8])
    >>> ft.grad(jensenshannon)(p, p)
    Array([0., 0.])
    """
    return metrics.jensenshannon(as_operand(p), as_operand(q), base, axis, keepdims)


# ---- Distances of all pairs after ``scipy.spatial.distance``
#
# They are compositions on arrays of all differences: memory as for these, and native under ``jit``.

NAMES = {alias: name for name, others in metrics.ALIASES.items()
         for alias in (name, *others.split())}


def _metric(who: str, metric: Any) -> Callable | None:
    """The metric of a name; None of a function of one's own."""
    if callable(metric):
        name = getattr(metric, "__name__", "")
        theirs = metric is getattr(sd, name, None) or getattr(metric, "__wrapped__", None)
        return metrics.METRICS.get(name) if theirs else None
    if not isinstance(metric, str):
        raise TypeError("2nd argument metric must be a string identifier or a function.")
    name = metric.lower()
    if name in NAMES:
        return metrics.METRICS[NAMES[name]]
    try:
        getattr(sd, who)(np.eye(2), *[np.eye(2)] * (who == "cdist"), name)
    except ValueError as error:
        if "Unknown" in str(error):
            raise ValueError(str(error)) from None
    raise NotDifferentiable(
        f"{user_line()}: {who} got metric={metric!r}, which counts coordinates that differ and has "
        f"no derivative. Those that have one: {', '.join(sorted(metrics.METRICS))}."
    )


def _points(x: Any, error: str) -> AnyArray:
    x = as_operand(x)
    if x.ndim != 2:
        raise ValueError(error)
    return x.astype(float)


def _defaults(metric: Callable, points: list, count: int, options: dict) -> dict:
    """The variances and the inverse covariance of all points, where none are passed."""
    if metric is metrics.seuclidean and options.get("V") is None:
        return options | {"V": np.var(np.concatenate(points), axis=0, ddof=1)}
    if metric is metrics.mahalanobis and options.get("VI") is None:
        every = np.concatenate(points)
        n = every.shape[1]
        if count <= n:
            raise ValueError(f"The number of observations ({count}) is too small; the covariance "
                             "matrix is singular. For observations with %d dimensions, at least %d "
                             "observations are required." % (n, n + 1))
        return options | {"VI": np.linalg.inv(np.atleast_2d(np.cov(every.T))).T}
    if metric is metrics.minkowski:
        return {"p": 2, **options}
    return options


def _refuse_out(who: str, out: Any) -> None:
    if out is not None:
        raise UnsupportedError(f"{user_line()}: {who} got out= beside a traced value; use what it "
                               "returns.")


@counterpart(sd.cdist)
def cdist(XA, XB, metric: Any = "euclidean", *, out=None, **kwargs):
    """The distances of each row of ``XA`` to each row of ``XB``.

    >>> import functrans as ft
    >>> X = np.array([[0.0, 0.0], [3.0, 4.0]])
    >>> ft.grad(lambda X: cdist(X, X)[0, 1])(X)
    Array([[-0.6, -0.8],
           [ 0.6,  0.8]])
    """
    _refuse_out("cdist", out)
    a, b = [_points(x, f"{name} must be a 2-dimensional array.")
            for x, name in ((XA, "XA"), (XB, "XB"))]
    if a.shape[1] != b.shape[1]:
        raise ValueError("XA and XB must have the same number of columns (i.e. feature dimension.)")
    f = _metric("cdist", metric)
    if f is None:
        return np.stack([np.stack([as_operand(metric(u, v, **kwargs)) for v in b]) for u in a])
    options = _defaults(f, [a, b], len(a) + len(b), kwargs)
    return f(a[:, None], b[None], **options)


@counterpart(sd.pdist)
def pdist(X, metric: Any = "euclidean", *, out=None, **kwargs):
    """The distances of each pair of rows, row by row of the upper triangle."""
    _refuse_out("pdist", out)
    x = _points(X, "A 2-dimensional array must be passed.")
    f = _metric("pdist", metric)
    i, j = np.triu_indices(len(x), 1)
    if f is None:
        pairs = zip(i.tolist(), j.tolist(), strict=True)
        return np.stack([as_operand(metric(x[m], x[n], **kwargs)) for m, n in pairs])
    return f(x[i], x[j], **_defaults(f, [x], len(x), kwargs))


@counterpart(sd.squareform)
def squareform(X, force="no", checks=True):
    """The matrix of the distances of pairs, or these, the upper triangle, of a matrix."""
    x = as_operand(X)
    force = force.lower()
    if (force == "tomatrix" and x.ndim != 1) or (force == "tovector" and x.ndim != 2):
        kind = "vector" if force == "tomatrix" else "matrix"
        raise ValueError(f"Forcing '{force}' but input X is not a distance {kind}.")
    if x.ndim == 1:
        n = int(np.ceil(np.sqrt(x.shape[0] * 2))) if x.shape[0] else 1
        if n * (n - 1) != x.shape[0] * 2:
            raise ValueError("Incompatible vector size. It must be a binomial coefficient n choose "
                             "2 for some integer n >= 2.")
        place = np.zeros((n, n), int)
        place[np.triu_indices(n, 1)] = np.arange(1, x.shape[0] + 1)
        return np.concatenate([np.zeros(1, x.dtype), x])[place + place.T]
    if x.ndim != 2:
        raise ValueError("The first argument must be one or two dimensional array. A "
                         f"{x.ndim}-dimensional array is not permitted")
    if x.shape[0] != x.shape[1]:
        raise ValueError("The matrix argument must be square.")
    plain = known_value(x)
    if checks and plain is not None:
        sd.is_valid_dm(plain, throw=True, name="X")
    return x[np.triu_indices(x.shape[0], 1)]
