"""Sums, products, extremes and spreads along dimensions."""

from __future__ import annotations

import math
from collections import namedtuple
from typing import Any

import numpy as np

from functrans.extend import ANY, Aval, Linear, Primitive, bind
from functrans.torch._functions.direct import RowCall, are_plain, axis_of
from functrans.torch._functions.failures import not_a_tensor
from functrans.torch._functions.inplace import in_place
from functrans.torch._functions.keywords import renaming
from functrans.torch._functions.table import (
    FUNCTIONS,
    METHODS,
    TAKING_OUT,
    function,
    op,
    ordered,
    row,
)
from functrans.torch._functions.totals import total
from functrans.torch._graph.titles import named
from functrans.torch._tensors.kinds import scalar_name
from functrans.torch._tensors.tensor import Tensor, as_memory

_moving_as, _sum = row("moving_as"), row("sum")
# characters of the types whose sums need no wider one: single and double, real and complex
_WIDE = "fdFD"


def axes(dim: Any, x: Any) -> Any:
    """``dim`` of ``x`` as NumPy takes it: None for all, an int, a tuple."""
    if not x.ndim and dim is not None:
        count_dims(dim, 0)
        return None
    if dim is None or isinstance(dim, int):
        return dim
    return tuple(dim) or None


def after_batch(axis):
    return tuple([i + 1 for i in axis])


Extreme = namedtuple("Extreme", "values indices")


def _summable(x, dtype):
    if dtype is not None:
        return x.astype(dtype)
    return x.astype(np.int64) if x.dtype.kind in "biu" else x


def _typed(function, x, **options):
    """``function`` of ``x`` in the type of ``x``; NumPy's of integers are of 64 bits."""
    y = function(x, **options)
    return y if y.dtype == x.dtype else y.astype(x.dtype)


# row: a sum whose dimensions stay, of length 1
_sum_kept = Linear(
    "sum_kept", lambda x, axis: np.add.reduce(x, axis, keepdims=True),
    lambda ct, x, axis: np.broadcast_to(ct, x.shape),
    lambda size, xs, batched, axis: bind(_sum_kept, xs[0], axis=after_batch(axis)), 1,
    abstract=lambda x, axis: Aval(
        tuple([1 if i in axis else n for i, n in enumerate(x.shape)]), x.dtype),
    domain=ANY,
)


def row_along(row: Primitive, x: Any, dim: Any) -> RowCall | None:
    """The call of ``row`` along one dimension of a plain tensor."""
    axis = axis_of(dim, x._array.ndim) if are_plain(x) else None
    return None if axis is None else RowCall(row, (x,), {"axis": (axis,)})


def _sum_row(x, dim=None, keepdim=False, *, dtype=None):
    return row_along(_sum_kept if keepdim else _sum, x, dim) if dtype is None else None


@op(title="SumBackward1", method=False, by_row=_sum_row)
def sum_dim(x, dim=None, keepdim=False, *, dtype=None):
    """Sum along ``dim``."""
    return _typed(np.sum, _summable(x, dtype), axis=axes(dim, x), keepdims=keepdim)


_sum_all, _mean_all = total("sum", mean=False), total("mean", mean=True)


@op(title="SumBackward0", method=False)
def sum_all(x, *, dtype=None):
    """Sum of all entries."""
    return _typed(np.sum, _summable(x, dtype))


def _is_wide(x: Any, who: str) -> bool:
    if not isinstance(x, Tensor):
        raise not_a_tensor(who, "input", 1, x)
    return x._array.dtype.char in _WIDE


def sum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None,
        axis: Any = None) -> Tensor:
    """Sum along ``dim``; of all entries by default."""
    dim = axis if dim is None else dim
    if dim is None and not keepdim:
        plain = dtype is None and _is_wide(input, "sum")
        return _sum_all(input) if plain else sum_all(input, dtype=dtype)
    return sum_dim(input, dim, keepdim, dtype=dtype)


_INFERRED = ("{2}(): could not infer output dtype. {0} dtype must be either a floating point or "
             "complex dtype. Got: {1}. Use x.float() first, or dtype=.")
_OF_SPREAD = "std and var only support floating point and complex dtypes, and {2} got {1}"
_NOT_FLOATS = {
    "mean": _INFERRED, "var": _OF_SPREAD, "std": _OF_SPREAD,
    "nanmean": "nanmean(): expected input to have floating point or complex dtype but got {1}",
    "norm": "linalg.vector_norm: Expected a floating point or complex tensor as input. Got {1}",
}


def _of_floats(x, dtype, who):
    if dtype is not None:
        x = x.astype(dtype)
    if x.dtype.kind in "biu":
        raise RuntimeError(_NOT_FLOATS[who].format("Input" if dtype is None else "Optional",
                                                   scalar_name(x), who))
    return x


def _mean_row(x, dim=None, keepdim=False, *, dtype=None):
    axis = axis_of(dim, x._array.ndim) if dtype is None and are_plain(x) else None
    n = 0 if axis is None else x._array.shape[axis]
    return sum_dim(x, dim, keepdim) / n if n else None


@op(title="MeanBackward1", method=False, by_row=_mean_row)
def mean_dim(x, dim=None, keepdim=False, *, dtype=None):
    """Mean along ``dim``."""
    return _in_type(np.mean, _of_floats(x, dtype, "mean"), axis=axes(dim, x), keepdims=keepdim)


def _in_type(function, x, **options):
    """``function`` of ``x`` in the type of ``x``; half precision is computed in single."""
    half = x.dtype.itemsize == 2
    y = function(x.astype(np.float32) if half else x, **options)
    return y.astype(x.dtype) if half else y


@op(title="MeanBackward0", method=False)
def mean_all(x, *, dtype=None):
    """Mean of all entries."""
    return _in_type(np.mean, _of_floats(x, dtype, "mean"))


def mean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None,
         axis: Any = None) -> Tensor:
    """Mean along ``dim``; of all entries by default."""
    dim = axis if dim is None else dim
    if dim is None and not keepdim:
        plain = dtype is None and _is_wide(input, "mean") and input._array.size
        return _mean_all(input) if plain else mean_all(input, dtype=dtype)
    return mean_dim(input, dim, keepdim, dtype=dtype)


def _spread(function, x, dim, unbiased, keepdim, correction):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    return _in_type(function, _of_floats(x, None, function.__name__), axis=axes(dim, x),
                    ddof=correction, keepdims=keepdim)


@op
def var(x, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """Variance along ``dim``, divided by n - 1, or by n where not ``unbiased``."""
    return _spread(np.var, x, dim, unbiased, keepdim, correction)


@op
def std(x, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """Square root of ``var``; where that is 0, so is its derivative."""
    return _spread(np.std, x, dim, unbiased, keepdim, correction)


@op(space=FUNCTIONS, title="VarBackward0")
def var_mean(x, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """Variance and mean along ``dim``."""
    dim, unbiased = (None, dim) if isinstance(dim, bool) else (dim, unbiased)
    return (var.body(x, dim, unbiased, keepdim, correction=correction),
            np.mean(x, axis=axes(dim, x), keepdims=keepdim))


@op(space=FUNCTIONS, title="StdBackward0")
def std_mean(x, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """Standard deviation and mean along ``dim``."""
    dim, unbiased = (None, dim) if isinstance(dim, bool) else (dim, unbiased)
    return (std.body(x, dim, unbiased, keepdim, correction=correction),
            np.mean(x, axis=axes(dim, x), keepdims=keepdim))


@op
def prod(x, dim=None, keepdim=False, *, dtype=None):
    """Product along ``dim``; its derivatives are exact with zeros among the entries."""
    return _typed(np.prod, _summable(x, dtype), axis=axes(dim, x), keepdims=keepdim)


@op
def nansum(x, dim=None, keepdim=False):
    """Sum of the entries that are not NaN."""
    return np.nansum(_summable(x, None), axis=axes(dim, x), keepdims=keepdim)


@op
def nanmean(x, dim=None, keepdim=False):
    """Mean of the entries that are not NaN."""
    return np.nanmean(_of_floats(x, None, "nanmean"), axis=axes(dim, x), keepdims=keepdim)


@op
def cumsum(x, dim, *, dtype=None):
    """Running sums along ``dim``."""
    return _running(np.cumsum, _summable(x, dtype), dim)


@op
def cumprod(x, dim, *, dtype=None):
    """Running products along ``dim``."""
    return _running(np.cumprod, _summable(x, dtype), dim)


def _running(function, x, dim):
    y = _typed(function, x, axis=axes(dim, x))
    return y if x.ndim else y.reshape(())


for _f in (cumsum, cumprod):
    METHODS[f"{_f.__name__}_"] = in_place(_f, f"{_f.__name__}_")


def count_dims(dim: Any, ndim: int) -> tuple:
    """The dimensions ``dim`` counted from the first."""
    dims = (dim,) if isinstance(dim, int) else dim
    if ndim == 0:
        count_dims(dims, 1)  # dimensions 0 and -1 may be named
        return ()
    return np.lib.array_utils.normalize_axis_tuple(tuple(dims), ndim)


def kept_out(x, dims):
    return tuple([n for i, n in enumerate(x.shape) if i not in dims])


def kept(y, x, dims):
    return y.reshape(tuple([1 if i in dims else n for i, n in enumerate(x.shape)]))


@op(title="LinalgVectorNormBackward0")
def norm(x, p: Any = "fro", dim=None, keepdim=False, *, dtype=None):
    """The ``p``-norm of the entries along ``dim``; at 0 its derivative is 0."""
    x = _of_floats(x, dtype, "norm")
    if p == "nuc":
        return np.linalg.norm(x, "nuc", axis=axes(dim, x), keepdims=keepdim)
    p = 2 if p == "fro" or p is None else p
    if p == 0:  # a count, with slope 0
        return np.sum(np.sign(np.absolute(x)), axis=axes(dim, x), keepdims=keepdim)
    return np.linalg.vector_norm(x, axis=axes(dim, x), keepdims=keepdim, ord=p)


# ---- extremes


def _ordered(x, who):
    ordered(who, x)
    return x


@op
def amax(x, dim=None, keepdim=False):
    """Greatest entry along ``dim``; a tie shares its derivative."""
    _require_entries("amax", x, dim)
    return np.max(_ordered(x, "amax"), axis=axes(dim, x), keepdims=keepdim)


@op
def amin(x, dim=None, keepdim=False):
    """Least entry along ``dim``; a tie shares its derivative."""
    _require_entries("amin", x, dim)
    return np.min(_ordered(x, "amin"), axis=axes(dim, x), keepdims=keepdim)


def _require_entries(who, x, dim):
    """Raise if there is nothing to choose from."""
    if not x.size and dim in (None, ()):
        raise IndexError(f"{who}(): Expected reduction dim to be specified for input.numel() == 0. "
                         "Specify the reduction dim with the 'dim' argument.")
    for d in () if x.size or dim is None else dim if isinstance(dim, tuple | list) else (dim,):
        if not x.shape[d]:
            raise IndexError(f"{who}(): Expected reduction dim {d} to have non-zero size.")


def picked(x, indices, dim, keepdim):
    """The entries at ``indices``, one along ``dim``, which alone receive the gradient."""
    if x.ndim == 0:
        return Extreme(x.reshape(()), as_memory(indices))
    y = np.take_along_axis(x, np.expand_dims(indices, dim), dim)
    if keepdim:
        return Extreme(y, np.expand_dims(indices, dim))
    return Extreme(np.squeeze(y, dim), indices)


def plain_value(x):
    return as_memory(x.primal if hasattr(x, "primal") else x)


def _dim_of(x, dim):
    count_dims(dim, x.ndim)
    return dim if x.ndim else None


@op(method=False, title="MaxBackward0")
def max_dim(x, dim, keepdim=False):
    """Greatest entry along ``dim`` and where it is."""
    _require_entries("max", x, dim)
    values = plain_value(_ordered(x, "max"))
    return picked(x, np.argmax(values, _dim_of(x, dim)), dim, keepdim)


@op(method=False, title="MinBackward0")
def min_dim(x, dim, keepdim=False):
    """Least entry along ``dim`` and where it is."""
    _require_entries("min", x, dim)
    values = plain_value(_ordered(x, "min"))
    return picked(x, np.argmin(values, _dim_of(x, dim)), dim, keepdim)


def _extreme(name, whole, along, of_two):
    whole = op(whole.body, title=f"{name.capitalize()}Backward1", method=False)

    def f(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            if isinstance(input, Tensor) and not input._array.size:
                raise RuntimeError(
                    f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
                    "Specify the reduction dim with the 'dim' argument.")
            return whole(input)
        if isinstance(dim, Tensor):
            return METHODS[of_two](input, dim)
        return along(input, dim, keepdim)

    return named(
        f, name, f"The {name}imum of all entries; along ``dim`` with indices; of two tensors.")


METHODS["max"] = renaming(_extreme("max", amax, max_dim, "maximum"))
METHODS["min"] = renaming(_extreme("min", amin, min_dim, "minimum"))


@op(method=False, title="MedianBackward0")
def median_dim(x, dim, keepdim=False):
    """The lower median along ``dim`` and where it is."""
    if not x.ndim:
        return sort.body(x, dim)
    values = plain_value(_ordered(x, "median"))
    middle = np.take(np.argsort(values, dim, stable=True), (x.shape[dim] - 1) // 2, dim)
    if values.dtype.kind == "f":
        unknown = np.isnan(values)
        middle = np.where(unknown.any(dim), np.argmax(unknown, dim), middle)
    return picked(x, middle, dim, keepdim)


@op(method=False, title="MedianBackward0")
def median_all(x):
    """The lower median of all entries; a tie shares its derivative."""
    values = plain_value(_ordered(x, "median")).reshape(-1)
    if not values.size:
        if values.dtype.kind != "f":
            raise RuntimeError("median: there is no entry")
        return np.sum(x) + np.nan
    unknown = values != values
    middle = values[unknown][0] if unknown.any() else np.sort(values)[(values.size - 1) // 2]
    if isinstance(x, np.ndarray):
        return np.asarray(middle)
    tie = unknown if unknown.any() else values == middle
    return _moving_as(middle, np.mean(x.reshape(-1)[tie]))


def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of all entries, or along ``dim`` with its indices."""
    return median_all(input) if dim is None else median_dim(input, dim, keepdim)


@op
def argmax(x, dim=None, keepdim=False):
    """Where the greatest entry is."""
    return np.argmax(_found(x, dim, "argmax"), dim, keepdims=keepdim)


@op
def argmin(x, dim=None, keepdim=False):
    """Where the least entry is."""
    return np.argmin(_found(x, dim, "argmin"), dim, keepdims=keepdim)


def _found(x, dim, who):
    """The entries among which one is looked for."""
    _require_entries(who, x, dim)
    return plain_value(_ordered(x, who))


@op
def all(x, dim=None, keepdim=False):
    """Whether no entry along ``dim`` is zero."""
    return _quantified(np.all, x, dim, keepdim)


@op
def any(x, dim=None, keepdim=False):
    """Whether some entry along ``dim`` is not zero."""
    return _quantified(np.any, x, dim, keepdim)


def _quantified(function, x, dim, keepdim):
    """A boolean; of uint8, which once stood for booleans, an uint8."""
    values = plain_value(x)
    axis = () if dim == () and x.ndim else axes(dim, x)
    return as_memory(function(values, axis=axis, keepdims=keepdim)).astype(
        np.uint8 if values.dtype == np.uint8 else bool)


@op
def count_nonzero(x, dim=None):
    """How many entries along ``dim`` are not zero."""
    return as_memory(np.count_nonzero(plain_value(x), axis=axes(dim, x))).astype(np.int64)


@op(title="SortBackward0")
def sort(x, dim=-1, descending=False, stable=False):
    """x sorted along ``dim``, and the indices that sort it."""
    if not x.ndim:
        count_dims(dim, 0)
        return Extreme(_ordered(x, "sort").reshape(()), np.zeros((), np.int64))
    values = plain_value(_ordered(x, "sort"))
    if descending:  # stable backward: equal entries keep their order
        order = np.flip(x.shape[dim] - 1 - np.argsort(np.flip(values, dim), dim, stable=True), dim)
    else:
        order = np.argsort(values, dim, stable=True)
    return Extreme(np.take_along_axis(x, order, dim), order)


@op
def argsort(x, dim=-1, descending=False, stable=False):
    """The indices that sort x along ``dim``."""
    return sort.body(plain_value(x), dim, descending).indices


@op(title="TopkBackward0")
def topk(x, k, dim=-1, largest=True, sorted=True):
    """The ``k`` greatest entries along ``dim`` and where they are."""
    if not x.ndim:
        return sort.body(x, dim)
    if not 0 <= k <= x.shape[dim]:
        raise RuntimeError(f"selected index k out of range: topk of {k} among {x.shape[dim]}")
    order = sort.body(plain_value(x), dim, largest).indices
    order = np.take(order, np.arange(k), dim)
    return Extreme(np.take_along_axis(x, order, dim), order)


@function
def numel(input: Tensor) -> int:
    """The number of elements."""
    return math.prod(input._array.shape)


for _f in (sum, mean, median):
    METHODS[_f.__name__] = _f
TAKING_OUT.update(["sum", "mean", "max", "min", "median"])
