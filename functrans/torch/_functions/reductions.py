"""Sums, products, extremes and spreads along dimensions."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.extend import ANY, AnyArray, Aval, Linear, Primitive, bind
from functrans.torch._functions.failures import not_a_tensor
from functrans.torch._functions.outputs import RowCall, are_plain, axis_of, renaming
from functrans.torch._functions.shim_rows import enter_in_place
from functrans.torch._functions.table import (
    FUNCTIONS,
    METHODS,
    TAKING_OUT,
    function,
    op,
    ordered,
    plain,
    row,
)
from functrans.torch._functions.totals import total
from functrans.torch._graph.nodes import named, title_for
from functrans.torch._tensors.memory import scalar_name
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


def _type(function, x, **options):
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
    return _type(np.sum, _summable(x, dtype), axis=axes(dim, x), keepdims=keepdim)


@op(title="SumBackward0", method=False)
def sum_all(x, *, dtype=None):
    """Sum of all entries."""
    return _type(np.sum, _summable(x, dtype))


def _is_wide(x: Any, who: str) -> bool:
    if not isinstance(x, Tensor):
        raise not_a_tensor(who, "input", 1, x)
    return x._array.dtype.char in _WIDE


def _whole_or_along(name: str, whole: Callable, quick: Callable, along: Callable) -> None:
    """Enter ``along``, which is ``whole`` without dimensions, and ``quick`` in wide types."""

    def f(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None,
          axis: Any = None) -> Tensor:
        dim = axis if dim is None else dim
        if dim is None and not keepdim:
            plain = dtype is None and _is_wide(input, name)
            return quick(input) if plain else whole(input, dtype=dtype)
        return along(input, dim, keepdim, dtype=dtype)

    doc = f"{name.capitalize()} along ``dim``; of all entries by default."
    METHODS[name] = named(f, name, doc)


_whole_or_along("sum", sum_all, total("sum", mean=False), sum_dim)


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


_whole_or_along("mean", mean_all, total("mean", mean=True), mean_dim)


def _spread(name: str, spread: Callable, doc: str) -> None:
    """A measure of spread along dimensions, and the same together with the mean."""

    def body(x, dim=None, unbiased=None, keepdim=False, *, correction=None):
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if correction is None:
            correction = 1 if unbiased is None or unbiased else 0
        return _in_type(spread, _of_floats(x, None, name), axis=axes(dim, x), ddof=correction,
                        keepdims=keepdim)

    def with_mean(x, dim=None, unbiased=None, keepdim=False, *, correction=None):
        y = body(x, dim, unbiased, keepdim, correction=correction)
        dim = None if isinstance(dim, bool) else dim
        return y, np.mean(x, axis=axes(dim, x), keepdims=keepdim)

    op(body, name, doc)
    op(with_mean, f"{name}_mean", f"``{name}`` and mean along ``dim``.", space=FUNCTIONS,
       title=title_for(name))


_spread("var", np.var, "Variance along ``dim``, divided by n - 1, or by n where not ``unbiased``.")
_spread("std", np.std, "Square root of ``var``; where that is 0, so is its derivative.")


@op
def prod(x, dim=None, keepdim=False, *, dtype=None):
    """Product along ``dim``; its derivatives are exact with zeros among the entries."""
    return _type(np.prod, _summable(x, dtype), axis=axes(dim, x), keepdims=keepdim)


@op
def nansum(x, dim=None, keepdim=False):
    """Sum of the entries that are not NaN."""
    return np.nansum(_summable(x, None), axis=axes(dim, x), keepdims=keepdim)


@op
def nanmean(x, dim=None, keepdim=False):
    """Mean of the entries that are not NaN."""
    return np.nanmean(_of_floats(x, None, "nanmean"), axis=axes(dim, x), keepdims=keepdim)


def _running(name: str, function: Callable, doc: str) -> None:
    def body(x, dim, *, dtype=None):
        y = _type(function, _summable(x, dtype), axis=axes(dim, x))
        return y if x.ndim else y.reshape(())

    op(body, name, doc)
    enter_in_place(name)


_running("cumsum", np.cumsum, "Running sums along ``dim``.")
_running("cumprod", np.cumprod, "Running products along ``dim``.")


def count_dims(dim: Any, ndim: int) -> tuple:
    """The dimensions ``dim`` counted from the first."""
    dims = (dim,) if isinstance(dim, int) else dim
    if ndim == 0:
        count_dims(dims, 1)  # dimensions 0 and -1 may be named
        return ()
    return np.lib.array_utils.normalize_axis_tuple(tuple(dims), ndim)


def kept_out(x, dims):
    return tuple([n for i, n in enumerate(x.shape) if i not in dims])


def keep(y, x, dims):
    return y.reshape(tuple([1 if i in dims else n for i, n in enumerate(x.shape)]))


@op(title="LinalgVectorNormBackward0")
def norm(x, p: Any = "fro", dim=None, keepdim=False, *, dtype=None):
    """The ``p``-norm of the entries along ``dim``; at 0 its derivative is 0."""
    x = _of_floats(x, dtype, "norm")
    if p == "nuc":
        return np.linalg.norm(x, "nuc", axis=axes(dim, x), keepdims=keepdim)
    return size(x, 2 if p == "fro" or p is None else p, dim, keepdim)


def size(x: Any, p: float, dim: Any, keepdim: bool = False) -> AnyArray:
    """The ``p``-norm of floats along ``dim``."""
    if p == 0:  # a count, with slope 0
        return np.sum(np.sign(np.absolute(x)), axis=axes(dim, x), keepdims=keepdim)
    return np.linalg.vector_norm(x, axis=axes(dim, x), keepdims=keepdim, ord=p)


# ---- extremes


def _require_entries(who, x, dim):
    """Raise if there is nothing to choose from."""
    if not x.size and dim in (None, ()):
        raise IndexError(f"{who}(): Expected reduction dim to be specified for input.numel() == 0. "
                         "Specify the reduction dim with the 'dim' argument.")
    for d in () if x.size or dim is None else dim if isinstance(dim, tuple | list) else (dim,):
        if not x.shape[d]:
            raise IndexError(f"{who}(): Expected reduction dim {d} to have non-zero size.")


def pick(x, indices, dim, keepdim):
    """The entries at ``indices``, one along ``dim``, which alone receive the gradient."""
    if x.ndim == 0:
        return Extreme(x.reshape(()), as_memory(indices))
    y = np.take_along_axis(x, np.expand_dims(indices, dim), dim)
    if keepdim:
        return Extreme(y, np.expand_dims(indices, dim))
    return Extreme(np.squeeze(y, dim), indices)


def _extreme(name: str, what: str, best: Callable, place: Callable, of_two: str) -> None:
    """The extreme entry, where it is, and both; the former also of two tensors."""

    def checked(x, dim, who):
        _require_entries(who, x, dim)
        ordered(who, x)
        return x

    def amount(x, dim=None, keepdim=False):
        return best(checked(x, dim, f"a{name}"), axis=axes(dim, x), keepdims=keepdim)

    def where(x, dim=None, keepdim=False):
        if x.dtype.kind == "b":
            raise RuntimeError(f"arg{name}(): does not support bool input")
        return place(plain(checked(x, dim, f"arg{name}")), dim, keepdims=keepdim)

    def both(x, dim, keepdim=False):
        values = plain(checked(x, dim, name))
        count_dims(dim, x.ndim)
        return pick(x, place(values, dim if x.ndim else None), dim, keepdim)

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

    op(amount, f"a{name}", f"{what} entry along ``dim``; a tie shares its derivative.")
    op(where, f"arg{name}", f"Where the {what.lower()} entry is.")
    whole = op(amount, f"a{name}", title=f"{name.capitalize()}Backward1", method=False)
    along = op(both, f"{name}_dim", f"{what} entry along ``dim`` and where it is.",
               title=title_for(name), method=False)
    METHODS[name] = renaming(named(
        f, name, f"The {name}imum of all entries; along ``dim`` with indices; of two tensors."))


_extreme("max", "Greatest", np.max, np.argmax, "maximum")
_extreme("min", "Least", np.min, np.argmin, "minimum")


@op(method=False, title="MedianBackward0")
def median_dim(x, dim, keepdim=False):
    """The lower median along ``dim`` and where it is."""
    if not x.ndim:
        return sort.body(x, dim)
    ordered("median", x)
    values = plain(x)
    middle = np.take(np.argsort(values, dim, stable=True), (x.shape[dim] - 1) // 2, dim)
    if values.dtype.kind == "f":
        unknown = np.isnan(values)
        middle = np.where(unknown.any(dim), np.argmax(unknown, dim), middle)
    return pick(x, middle, dim, keepdim)


@op(method=False, title="MedianBackward0")
def median_all(x):
    """The lower median of all entries; a tie shares its derivative."""
    ordered("median", x)
    values = plain(x).reshape(-1)
    if not values.size:
        if values.dtype.kind not in "fV":
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


def _quantify(name: str, function: Callable, doc: str) -> None:
    """A boolean; of uint8, which once stood for booleans, an uint8."""

    def body(x, dim=None, keepdim=False):
        values = plain(x)
        axis = () if dim == () and x.ndim else axes(dim, x)
        return as_memory(function(values, axis=axis, keepdims=keepdim)).astype(
            np.uint8 if values.dtype == np.uint8 else bool)

    op(body, name, doc)


_quantify("all", np.all, "Whether no entry along ``dim`` is zero.")
_quantify("any", np.any, "Whether some entry along ``dim`` is not zero.")


@op
def count_nonzero(x, dim=None):
    """How many entries along ``dim`` are not zero."""
    return as_memory(np.count_nonzero(plain(x), axis=axes(dim, x))).astype(np.int64)


@op(title="SortBackward0")
def sort(x, dim=-1, descending=False, stable=False):
    """x sorted along ``dim``, and the indices that sort it."""
    ordered("sort", x)
    if not x.ndim:
        count_dims(dim, 0)
        return Extreme(x.reshape(()), np.zeros((), np.int64))
    values = plain(x)
    if descending:  # stable backward: equal entries keep their order
        order = np.flip(x.shape[dim] - 1 - np.argsort(np.flip(values, dim), dim, stable=True), dim)
    else:
        order = np.argsort(values, dim, stable=True)
    return Extreme(np.take_along_axis(x, order, dim), order)


@op
def argsort(x, dim=-1, descending=False, stable=False):
    """The indices that sort x along ``dim``."""
    return sort.body(plain(x), dim, descending).indices


@op(title="TopkBackward0")
def topk(x, k, dim=-1, largest=True, sorted=True):
    """The ``k`` greatest entries along ``dim`` and where they are."""
    if not x.ndim:
        return sort.body(x, dim)
    if not 0 <= k <= x.shape[dim]:
        raise RuntimeError(f"selected index k out of range: topk of {k} among {x.shape[dim]}")
    order = sort.body(plain(x), dim, largest).indices
    order = np.take(order, np.arange(k), dim)
    return Extreme(np.take_along_axis(x, order, dim), order)


@function
def numel(input: Tensor) -> int:
    """The number of elements."""
    return math.prod(input._array.shape)


METHODS["median"] = median
TAKING_OUT.update(["sum", "mean", "max", "min", "median"])
