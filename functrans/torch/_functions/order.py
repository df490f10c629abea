"""Ranks, quantiles, modes, running extremes, bins and sets."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.torch._functions.indexing import without_derivative
from functrans.torch._functions.reductions import Extreme, axes, count_dims, pick, sort
from functrans.torch._functions.table import (
    FUNCTIONS,
    METHODS,
    NUMBERS,
    function,
    op,
    ordered,
    plain,
    promote,
)
from functrans.torch._graph.graph import Value
from functrans.torch._tensors.memory import scalar_name
from functrans.torch._tensors.tensor import Tensor, from_array

Ends = namedtuple("Ends", "min max")
Histogram = namedtuple("Histogram", "hist bin_edges")


@op
def kthvalue(input, k, dim=-1, keepdim=False):
    """The ``k``-th smallest entry along ``dim``, counted from 1, and where it is."""
    ordered("kthvalue", input)
    if not input.ndim:
        return sort.body(input, dim)
    if not 1 <= k <= input.shape[dim]:
        raise RuntimeError("kthvalue(): selected number k out of range for dimension "
                           f"{dim % input.ndim}: k is {k}, the size {input.shape[dim]}")
    order = np.argsort(plain(input), dim, stable=True)
    return pick(input, np.take(order, k - 1, dim), dim, keepdim)


@op
def mode(input, dim=-1, keepdim=False):
    """The most frequent entry along ``dim``, the least of several, and where it was last."""
    ordered("mode", input)
    count_dims(dim, input.ndim)
    if not input.ndim:
        return sort.body(input, dim)
    x = np.moveaxis(plain(input), dim, -1)
    if not x.shape[-1]:
        raise IndexError("mode(): Expected reduction dim to have non-zero size.")
    frequency = (x[..., :, None] == x[..., None, :]).sum(-1)
    candidate = np.where(frequency == frequency.max(-1, keepdims=True), x, x.max(-1, keepdims=True))
    least = candidate.min(-1, keepdims=True)
    where = x.shape[-1] - 1 - np.argmax(np.flip(x == least, -1), -1)
    return pick(input, where, dim, keepdim)


def _running(name: str, better: Callable, what: str) -> None:
    def body(input, dim):
        ordered(name, input)
        count_dims(dim, input.ndim)
        if not input.ndim:
            return Extreme(input.reshape(()), np.zeros((), np.int64))
        values = np.moveaxis(plain(input), dim, 0)
        where = np.zeros(values.shape, np.int64)
        for i in range(1, len(values)):
            best = np.take_along_axis(values, where[i - 1 : i], 0)[0]
            wins = better(values[i], best) | (values[i] != values[i])
            where[i] = np.where(wins, i, where[i - 1])
        where = np.moveaxis(where, 0, dim)
        return Extreme(np.take_along_axis(input, where, dim), where)

    op(body, name,
       f"The {what} entry so far along ``dim``, and where it is: the last of equal ones.")


_running("cummax", np.greater_equal, "greatest")
_running("cummin", np.less_equal, "least")


@op
def aminmax(input, *, dim=None, keepdim=False):
    """The least and the greatest entry along ``dim``."""
    ordered("aminmax", input)
    axis = axes(dim, input)
    return Ends(np.min(input, axis=axis, keepdims=keepdim),
                np.max(input, axis=axis, keepdims=keepdim))


@op
def msort(input):
    """The entries sorted along the first dimension."""
    return sort.body(input, 0).values if input.ndim else input + 0


_METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile(who: str, function: Callable, doc: str) -> None:
    def body(input, q, dim=None, keepdim=False, *, interpolation: Any = "linear"):
        x = input * 1  # torch does not save the operand
        if x.dtype.kind != "f":
            raise RuntimeError(f"{who}() input tensor must be either float or double dtype")
        if interpolation not in _METHODS:
            raise RuntimeError(f"{who}() interpolation must be one of linear, lower, higher, "
                               f"midpoint or nearest, but got {interpolation}")
        if isinstance(q, float | int):
            q = x.dtype.type(q)
        elif q.dtype != x.dtype:
            raise RuntimeError(f"{who}() q tensor must be same dtype as the input tensor, but it "
                               f"is {q.dtype.name} and not {x.dtype.name}")
        if np.any((plain(q) < 0) | (plain(q) > 1)):
            one = f" must be in the range [0, 1] but got {q:g}" if np.ndim(q) == 0 else (
                " values must be in the range [0, 1]")
            raise RuntimeError(f"{who}() q{one}")
        if dim is None:
            y = function(x.reshape(-1), q, axis=0, method=interpolation)
            return y.reshape((*q.shape, *[1] * x.ndim)) if keepdim else y
        return function(x if x.ndim else x.reshape(1), q, axis=dim,
                        keepdims=keepdim and x.ndim > 0, method=interpolation)

    op(body, who, doc)


_quantile("quantile", np.quantile,
          "The ``q``-th quantiles along ``dim``, those of several q along a first dimension.")
_quantile("nanquantile", np.nanquantile, "The quantiles of the entries that are not NaN.")


@op(method=False, title="NanmedianBackward0")
def _nanmedian_dim(x, dim, keepdim=False):
    """The lower median of the entries that are not NaN along ``dim``, and where it is."""
    count_dims(dim, x.ndim)
    if not x.ndim:
        return sort.body(x, dim)
    values = plain(x)
    count = np.count_nonzero(values == values, axis=dim, keepdims=True)
    place = np.maximum(count - 1, 0) // 2
    order = np.argsort(values, dim, stable=True)
    where = np.take_along_axis(order, place, dim)
    return pick(x, np.squeeze(where, dim), dim, keepdim)


@op(method=False, title="NanmedianBackward0")
def _nanmedian(x):
    """The lower median of the entries that are not NaN; a tie shares its derivative."""
    values = plain(x).reshape(-1)
    known = values[values == values]
    if not known.size:
        return np.mean(x) + np.nan
    middle = np.sort(known)[(known.size - 1) // 2]
    if isinstance(x, np.ndarray):
        return np.asarray(middle)
    return np.mean(x.reshape(-1)[values == middle])


def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of the entries that are not NaN, along ``dim`` with its indices."""
    return _nanmedian(input) if dim is None else _nanmedian_dim(input, dim, keepdim)


METHODS["nanmedian"] = nanmedian

# ---- covariance


def _observations(who: str, x: Any) -> Any:
    if x.ndim > 2:
        raise RuntimeError(f"{who}(): expected input to have two or fewer dimensions but got an "
                           f"input with {x.ndim} dimensions")
    return x.reshape((1, -1)) if x.ndim < 2 else x


def _require_weights(name: str, w: np.ndarray, n: int) -> None:
    """Raise unless ``w`` is a weight for each of ``n`` observations."""
    kinds, what = ("iu", "integral") if name == "fweights" else ("f", "floating point")
    if w.ndim > 1:
        raise RuntimeError(f"cov(): expected {name} to have one or fewer dimensions but got "
                           f"{name} with {w.ndim} dimensions")
    if w.dtype.kind not in kinds:
        raise RuntimeError(f"cov(): expected {name} to have {what} dtype but got {name} with "
                           f"{w.dtype.name} dtype")
    if w.size != n:
        raise RuntimeError(f"cov(): expected {name} to have the same numel as there are "
                           f"observations in the input but got {w.size} != {n}")
    if (w < 0).any():
        raise RuntimeError(f"cov(): {name} cannot be negative")


@op
def cov(input, *, correction=1, fweights=None, aweights=None):
    """The covariances of the rows, whose columns are observations, weighted."""
    x = _observations("cov", input)
    if x.dtype.kind in "biu":
        x = x.astype(np.float32)
    weights: Any = None
    for name, w in (("fweights", fweights), ("aweights", aweights)):
        if w is not None:
            _require_weights(name, plain(w), x.shape[1])
            w = w.astype(x.real.dtype)
            weights = w if weights is None else weights * w
    n = x.shape[1] if weights is None else np.sum(weights)
    mean = np.sum(x if weights is None else x * weights, axis=1, keepdims=True) / n
    centred = x - mean
    scaled = centred if weights is None else centred * weights
    if correction and aweights is not None and weights is not None:
        total = np.sum(weights)
        n = total - correction * np.sum(weights * aweights.astype(weights.dtype)) / total
    else:
        n = n - correction
    y = np.matmul(scaled, np.conjugate(np.swapaxes(centred, 0, 1)))
    y = y / (max(n, 0) if weights is None else np.maximum(n, 0))
    return y.reshape(()) if y.shape == (1, 1) else y


@op
def corrcoef(input):
    """The correlations of the rows, whose columns are observations."""
    c = cov.body(input)
    if not c.ndim:
        return c / c
    size: Any = np.sqrt(np.real(np.diagonal(c)))
    y = c / size[:, None] / size[None, :]
    y = y.astype(input.dtype) if input.dtype.kind == "f" else y
    return y if y.dtype.kind == "c" else np.clip(y, -1, 1)


# ---- bins and sets


@op(space=FUNCTIONS)
def searchsorted(sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None):
    """Where entries belong in sorted rows, on the left of equal ones, or on the ``right``."""
    a, v = plain(sorted_sequence), np.asarray(plain(input))
    if sorter is not None:
        a = np.take_along_axis(a, plain(sorter), -1)
    where = "right" if right or side == "right" else "left"
    dtype = np.int32 if out_int32 else np.int64
    if a.ndim == 1:
        return np.searchsorted(a, v, where).astype(dtype)
    if a.shape[:-1] != v.shape[:-1]:
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 "
            "dimensions of boundaries tensor and input value tensor must match, but we got "
            f"boundaries tensor {list(a.shape)} and input value tensor {list(v.shape)}")
    out = np.empty(v.shape, dtype)
    for i in np.ndindex(*a.shape[:-1]):
        out[i] = np.searchsorted(a[i], v[i], where)
    return out


@op(space=FUNCTIONS)
def bucketize(input, boundaries, *, out_int32=False, right=False):
    """Into which interval between ``boundaries`` each entry falls."""
    return searchsorted.body(boundaries, input, out_int32=out_int32, right=right)


@op
def bincount(input, weights=None, minlength=0):
    """How often each integer occurs, or the sum of its weights."""
    x = plain(input)
    if x.ndim != 1 or x.dtype.kind not in "biu" or (x.size and x.min() < 0):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is None:
        return np.bincount(x, None, minlength)
    w = plain(weights)
    y = np.bincount(x, w, minlength)
    return y.astype(w.dtype) if w.dtype == np.float32 else y


@op
def histc(input, bins=100, min=0, max=0):
    """How many entries fall in each of ``bins`` intervals of one length."""
    if bins <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
    x = plain(input).reshape(-1)
    low, high = (x.min(), x.max()) if min == max == 0 and x.size else (min, max)
    if low == high:
        low, high = low - 1, high + 1
    x = x[(x >= low) & (x <= high)]
    place = np.minimum(((x - low) / (high - low) * bins).astype(np.int64), bins - 1)
    return np.bincount(place, None, bins).astype(plain(input).dtype)


@op(space=FUNCTIONS)
def isin(elements, test_elements, *, assume_unique=False, invert=False):
    """Which entries are among others."""
    for x in (elements, test_elements):
        if type(x) in (bool, complex) or (type(x) not in NUMBERS and x.dtype.kind in "bc"):
            raise RuntimeError("Unsupported input type encountered for isin(): "
                               f"{scalar_name(np.asarray(x))}")
    return np.isin(*promote(plain(elements), plain(test_elements)), invert=invert)


@op
def unique_consecutive(x, return_inverse=False, return_counts=False, dim=None):
    """The entries without repetitions of the one before."""
    a = plain(x)
    rows = a.reshape(-1) if dim is None else np.moveaxis(a, dim, 0)
    n = len(rows)
    new = np.ones(n, bool)
    if n > 1:
        new[1:] = (rows[1:] != rows[:-1]).reshape(n - 1, -1).any(1)
    first = np.flatnonzero(new)
    kept = rows[first] if dim is None else np.moveaxis(rows[first], 0, dim)
    results = [kept]
    if return_inverse:
        inverse = np.cumsum(new) - 1
        results.append(inverse.reshape(a.shape) if dim is None else inverse)
    if return_counts:
        results.append(np.diff(np.append(first, n)))
    found = tuple(results) if len(results) > 1 else results[0]
    return without_derivative(found, x) if type(x) is Value and x.edge is not None else found


@function
def unravel_index(indices: Tensor, shape: Any) -> tuple:
    """The index for each dimension of places in a flattened tensor of ``shape``."""
    shape = (int(shape),) if isinstance(shape, int) else tuple(shape)
    return tuple([from_array(np.asarray(i, np.int64))
                  for i in np.unravel_index(indices._array, shape)])


@op
def nonzero_static(x, *, size, fill_value=-1):
    """The first ``size`` indices of entries that are not zero, filled up."""
    found = np.argwhere(plain(x))[:size]
    y = np.full((size, x.ndim), fill_value, np.int64)
    y[: len(found)] = found
    return y


@op
def histogram(input, bins=100, *, range=None, weight=None, density: Any = False):
    """How many entries fall between edges, or their weights, and the edges."""
    x = plain(input)
    edges = bins if isinstance(bins, int) else plain(bins)
    w: Any = None if weight is None else plain(weight).reshape(-1)
    hist, edges = np.histogram(x.reshape(-1), edges, range, density, w)
    return Histogram(hist.astype(x.dtype), np.asarray(edges).astype(x.dtype))


@function
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of ``r`` entries of a vector, in order, as rows."""
    n = input.numel()
    grid = np.stack(np.meshgrid(*[np.arange(n)] * r, indexing="ij")).reshape(r, -1) if r else None
    if grid is None:
        return input[:0]
    up = grid[:-1] <= grid[1:] if with_replacement else grid[:-1] < grid[1:]
    return input[grid[:, up.all(0)].T]


@function
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All choices of an entry of each vector, in order, as rows."""
    if len(tensors) == 1:
        return tensors[0]
    grids = FUNCTIONS["meshgrid"](*tensors, indexing="ij")
    return FUNCTIONS["stack"]([g.reshape(-1) for g in grids], 1)


