"""Differences, integrals, distances, and running sums of exponentials."""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans.extend import AnyArray
from functrans.torch._functions.failures import broadcast_shape
from functrans.torch._functions.inplace import enter_in_place
from functrans.torch._functions.reductions import axes, count_dims, norm
from functrans.torch._functions.table import FUNCTIONS, NUMBERS, floating, op, plain, promoted
from functrans.torch._tensors.kinds import scalar_name


@op
def diff(input, n=1, dim=-1, prepend=None, append=None):
    """Differences of neighbours along ``dim``, taken ``n`` times."""
    if not input.ndim:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    ends = [x for x in (prepend, input, append) if x is not None] if n else [input]
    boolean = input.dtype.kind == "b"
    x = np.concatenate(ends, dim) if len(ends) > 1 else input if boolean else input + 0
    for _ in range(min(n, x.shape[dim])):
        x = np.diff(x, axis=dim)
    return x


def _steps(x: Any, dx: Any, y: Any, dim: int) -> AnyArray | float:
    """The distances between samples, along ``dim`` of ``y``."""
    if x is None:
        return dx
    x = floating(x)
    if x.ndim == 1:
        if x.shape[0] != y.shape[dim]:
            raise RuntimeError("There must be one `x` value for each sample point")
        return np.diff(x).reshape([-1 if i == dim else 1 for i in range(y.ndim)])
    lead = y.ndim - x.ndim
    return np.diff(x.reshape([1] * lead + list(x.shape)), axis=dim)


def _areas(y: Any, x: Any, dx: Any, dim: int) -> tuple[Any, int]:
    dim = dim % y.ndim
    y = floating(y)
    steps = _steps(x, dx, y, dim)
    low = (slice(None),) * dim
    return (y[(*low, slice(1, None))] + y[(*low, slice(None, -1))]) / 2 * steps, dim


@op(space=FUNCTIONS, names="trapz")
def trapezoid(y, x=None, *, dx=1.0, dim=-1):
    """The integral along ``dim`` by the trapezoidal rule."""
    areas, dim = _areas(y, x, dx, dim)
    return np.sum(areas, axis=dim)


@op(space=FUNCTIONS)
def cumulative_trapezoid(y, x=None, *, dx=1.0, dim=-1):
    """The integrals up to each sample along ``dim`` by the trapezoidal rule."""
    areas, dim = _areas(y, x, dx, dim)
    return np.cumsum(areas, axis=dim)


@op(space=FUNCTIONS)
def gradient(input, *, spacing=1, dim=None, edge_order=1):
    """Slopes along each of ``dim`` by differences of second order inside."""
    if input.dtype.kind == "u":
        raise RuntimeError("torch.gradient does not support uint8 input.")
    dims = range(input.ndim) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    spacing = 1 if spacing is None else spacing
    spacings = list(spacing) if isinstance(spacing, list | tuple) else [spacing] * len(dims)
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    places = [d % max(input.ndim, 1) for d in dims]
    if len(set(places)) < len(places):
        again = next(d for d in places if places.count(d) > 1)
        raise RuntimeError(f"dim {again} appears multiple times in the list of dims")
    if len(spacings) != len(dims):
        raise RuntimeError(
            "torch.gradient expected spacing to be unspecified, a scalar or it's spacing and dim "
            f"arguments to have the same length, but got {len(spacings)} and {len(dims)}")
    if any(input.shape[d] < edge_order + 1 for d in dims):
        raise RuntimeError("torch.gradient expected each dimension size to be at least "
                           "edge_order+1")
    x = floating(input)
    return [_slope(x, d % x.ndim, s, edge_order) for d, s in zip(dims, spacings, strict=True)]


def _slope(x: Any, dim: int, spacing: Any, edge_order: int) -> AnyArray:
    """Differences of second order between three samples, and at both ends."""
    def part(a, b):
        return x[(slice(None),) * dim + (slice(a, b),)]

    n = x.shape[dim]
    if type(spacing) in NUMBERS or not spacing.ndim:
        h: Any = np.full(n - 1, spacing, x.dtype)
    else:
        h = np.diff(plain(spacing).astype(x.dtype))
    h = h.reshape([-1 if i == dim else 1 for i in range(x.ndim)])

    def gap(a, b):
        return h[(slice(None),) * dim + (slice(a, b),)]

    if n == 2:
        edge = (part(1, None) - part(None, -1)) / h
        return np.concatenate([edge, edge], dim)
    d1, d2 = gap(None, -1), gap(1, None)
    if (d1 == d2).all():
        inner = (part(2, None) - part(None, -2)) / (d1 + d2)
    else:
        weights = -d2 / (d1 * (d1 + d2)), (d2 - d1) / (d1 * d2), d1 / (d2 * (d1 + d2))
        inner = (weights[0] * part(None, -2) + weights[1] * part(1, -1)
                 + weights[2] * part(2, None))
    if edge_order == 1:
        first = (part(1, 2) - part(0, 1)) / gap(0, 1)
        last = (part(-1, None) - part(-2, -1)) / gap(-1, None)
    else:
        first = _one_sided(part(0, 1), part(1, 2), part(2, 3), gap(0, 1), gap(1, 2))
        last = -_one_sided(part(-1, None), part(-2, -1), part(-3, -2), gap(-1, None),
                           gap(-2, -1 if n > 2 else None))
    return np.concatenate([first, inner, last], dim)


def _one_sided(x0: Any, x1: Any, x2: Any, h1: Any, h2: Any) -> AnyArray:
    """The slope at x0 of the parabola through three samples."""
    total = h1 + h2
    return -(h1 + total) / (h1 * total) * x0 + total / (h1 * h2) * x1 - h1 / (h2 * total) * x2


# ---- distances


@op
def dist(input, other, p=2):
    """The ``p``-norm of the difference."""
    return norm.body(np.subtract(*promoted(input, other)).reshape(-1), p)


def _norm(x: Any, p: float) -> AnyArray:
    return np.linalg.vector_norm(x, axis=-1, ord=p)


@op(space=FUNCTIONS)
def cdist(x1, x2, p=2.0, compute_mode=None):
    """The ``p``-norms of all differences between rows of two matrices; at 0 the slope is 0."""
    for which, x in enumerate((x1, x2), 1):
        if x.dtype.kind not in "fV":
            raise RuntimeError(f"cdist only supports floating-point dtypes, X{which} got: "
                               f"{scalar_name(x)}")
    if x1.ndim < 2 or x2.ndim < 2:
        raise RuntimeError("cdist only supports at least 2D tensors, X1 got: "
                           f"{x1.ndim}D and X2 got: {x2.ndim}D")
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError("X1 and X2 must have the same number of columns. "
                           f"X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    return _norm(x1[..., :, None, :] - x2[..., None, :, :], p)


@op(space=FUNCTIONS)
def pdist(input, p=2.0):
    """The ``p``-norms of the differences between each two rows."""
    if input.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    i, j = np.triu_indices(input.shape[0], 1)
    return _norm(input[i] - input[j], p)


@op
def renorm(input, p, dim, maxnorm):
    """Each slice along ``dim`` scaled down to a ``p``-norm of at most ``maxnorm``."""
    if input.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.ndim} "
                           "dimensions")
    turned = np.moveaxis(input, dim, 0)
    size = _norm(turned.reshape((turned.shape[0], -1)), p)
    scale = np.where(size > maxnorm, maxnorm / (size + 1e-7), 1).astype(input.real.dtype)
    return np.moveaxis(turned * scale.reshape((-1, *[1] * (input.ndim - 1))), 0, dim)


enter_in_place("renorm")

# ---- running sums of exponentials


@op
def logcumsumexp(input, dim):
    """The logarithms of the running sums of exponentials along ``dim``, without overflow."""
    count_dims(dim, input.ndim)
    if not input.ndim:
        return input + 0
    x = np.moveaxis(floating(input), dim, -1)
    n = x.shape[-1]
    if not n:
        return input + 0
    if x.dtype.kind == "c":
        top = np.maximum.accumulate(np.real(plain(x)), -1)
        parts = [np.log(np.sum(np.exp(x[..., : k + 1] - top[..., k : k + 1]), axis=-1))
                 for k in range(n)]
        return np.moveaxis(np.stack(parts, -1) + top, -1, dim)
    step = 1
    while step < n:  # doubling: after each turn an entry covers twice as many
        later = np.logaddexp(x[..., step:], x[..., :-step])
        x = np.concatenate([x[..., :step], later], -1)
        step *= 2
    return np.moveaxis(x, -1, dim)


@op(space=FUNCTIONS)
def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """x1 . x2 / (|x1| |x2|) along ``dim``, the lengths at least ``eps``."""
    x1, x2 = promoted(x1, x2)
    dtype = x1.dtype
    shape = broadcast_shape("cosine_similarity", x1.shape, x2.shape)
    x1, x2 = np.broadcast_to(x1, shape), np.broadcast_to(x2, shape)
    sizes = [np.maximum(np.linalg.vector_norm(x, axis=axes(dim, x), keepdims=True), eps)
             for x in (x1, x2)]
    x1, x2 = x1 / sizes[0], x2 / sizes[1]
    return np.sum(x1 * x2, axis=axes(dim, x1)).astype(dtype)

