"""Distances of two vectors after ``scipy.spatial.distance``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.spatial import distance as sd

from functrans._core.bind import AnyArray, Tracer
from functrans.numpy.structure import as_floats, as_operand
from functrans.scipy.public import counterpart, published
from functrans.scipy.spatial import metrics


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
