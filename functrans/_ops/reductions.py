"""Rows that reduce or accumulate along axes: sums, products, extremes and their running forms.

``axis`` is always normalised: a tuple of non-negative ints for reductions, an int for running ones.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from functrans._core.array import Aval, dtype_of, finfo, floating_of
from functrans._core.bind import PLAIN, STRONG, AnyArray, cast, is_finite, may_have_nan
from functrans._core.plain import reduce
from functrans._kernels import large, sizes
from functrans._ops.declare import (
    POSITIVE,
    TABLE,
    change_of_step,
    elementwise,
    linear,
    primitive,
    strong_multiply,
)
from functrans._ops.elementwise import (
    add,
    logical_and,
    logical_or,
    maximum,
    minimum,
    multiply,
    ratio,
)
from functrans._ops.growth import unless_infinite
from functrans._ops.structure import all_batched, along, concatenate, repeat


@functools.lru_cache(1024)
def reduced_shape(shape: tuple[int, ...], axis: tuple[int, ...]) -> tuple[int, ...]:
    """``shape`` without the axes in ``axis``."""
    return tuple([n for i, n in enumerate(shape) if i not in axis])


@functools.lru_cache(1024)
def kept_shape(shape: tuple[int, ...], axis: tuple[int, ...]) -> tuple[int, ...]:
    """``shape`` with length 1 at the axes in ``axis``."""
    return tuple([1 if i in axis else n for i, n in enumerate(shape)])


def shift_axis(axis):
    return tuple([i + 1 for i in axis])


# ---- sum

# Up to here writing an array costs less than the strided view that avoids it.
SMALL = 4096
# Columns up to which they are written one by one, and entries from which: NumPy takes 4 ns a row.
FEW, MANY = 4, 1024


def expand(v: Any, shape: tuple[int, ...], axis: tuple[int, ...]) -> AnyArray:
    """``v``, reduced over ``axis``, repeated along it to ``shape``: the transpose of ``sum``."""
    if type(v) not in PLAIN:
        return np.broadcast_to(v.reshape(kept_shape(shape, axis)), shape)
    size, columns = math.prod(shape), False
    if len(axis) < len(shape):
        v = v.reshape(kept_shape(shape, axis))
        columns = axis[-1:] == (len(shape) - 1,) and shape[-1] <= FEW
    if size > SMALL and not (columns and size < sizes.LARGE):
        return repeat(v, shape)
    y = np.empty(shape, dtype_of(v))
    if columns and size >= MANY:
        for j in range(shape[-1]):
            y[..., j] = v[..., 0]
    else:
        y[...] = v
    return y


def _sum(x, axis):
    return added(x, axis) if type(x) is np.ndarray and x.ndim > 1 else np.add.reduce(x, axis)


def added(x: np.ndarray, axis: tuple[int, ...]) -> np.ndarray:
    """``np.add.reduce(x, axis)``, to the last bit."""
    if len(axis) == x.ndim:  # one row, which both leave to NumPy
        return np.add.reduce(x, axis)
    y = large.row_sums(x) if axis == (x.ndim - 1,) else None
    return reduce(x, axis) if y is None else y


sum = linear(
    "sum", _sum, lambda ct, x, axis: cast(expand(ct, x.shape, axis), x.dtype),
    abstract=lambda x, axis: Aval(
        reduced_shape(x.shape, axis), np.add.reduce(np.empty(0, x.dtype)).dtype),
    batch=lambda size, xs, batched, axis: sum(xs[0], axis=shift_axis(axis)),
    reduces=add, neutral=lambda dtype: 0,
)


# ---- extremes


def _equal_share(x, y, axis):
    x, y = np.asarray(x), np.asarray(y)
    y = y.reshape(kept_shape(x.shape, axis))
    tie, count = tied(axis, x, y)
    dtype = floating_of(x.dtype)
    wide = _wide(dtype)
    return np.divide(tie, count.astype(wide), dtype=wide).astype(dtype, copy=False)


# row: how the slope of an extreme y of x is shared: equally among the entries that attain it
equal_share = primitive(
    "equal_share", _equal_share,
    batch=lambda size, xs, batched, axis: equal_share(
        *all_batched(size, xs, batched), axis=shift_axis(axis)),
    abstract=lambda x, y, axis: Aval(x.shape, floating_of(x.dtype)), rounds="never",
)


def tied(axis: tuple[int, ...], x: Any, y: Any) -> tuple[Any, Any]:
    """Which entries of x equal their y, NaN a NaN, and how many do along ``axis``."""
    tie = x == y
    if may_have_nan(y):
        tie |= (x != x) & (y != y)
    return tie, np.add.reduce(tie, axis, np.intp, keepdims=True)


def share_out(axis: tuple[int, ...], x: np.ndarray, y: Any, ct: Any) -> AnyArray:
    """``ct``, one number for each y, in equal shares to the entries of x that equal it."""
    tie, count = tied(axis, x, y)
    share = ct / count.astype(_wide(ct.dtype))
    out = np.zeros(x.shape, ct.dtype)
    np.copyto(out, share, "same_kind", where=tie)
    return out


@functools.cache
def _wide(dtype: np.dtype) -> np.dtype:
    """A real type that counts entries; narrower ones do not count that far."""
    real = np.dtype(dtype.char.lower()) if dtype.kind == "c" else dtype
    return np.result_type(real, np.float32)


def weigh(g: Any, share: Any) -> AnyArray:
    """``g * share``, where a share of zero stays zero against an infinite ``g``."""
    return g * share if is_finite(g) else strong_multiply(g, share)


def _least(dtype):
    return -np.inf if dtype.kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min


def _greatest(dtype):
    return np.inf if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max


def _extreme(name, ufunc, join, neutral):
    def jvp(ts, y, xs, axis):
        return cast(weigh(ts[0], equal_share(xs[0], y, axis=axis)).sum(axis=axis), y.dtype)

    def vjp(ct, y, xs, wanted, axis):
        if type(xs[0]) is np.ndarray and type(y) in STRONG and type(ct) in STRONG:
            return [large.by_rows(share_out, axis, xs[0], y, ct)]
        share = equal_share(xs[0], y, axis=axis)
        return [cast(weigh(ct.reshape(kept_shape(share.shape, axis)), share), dtype_of(xs[0]))]

    row = primitive(
        name, lambda x, axis: ufunc.reduce(x, axis), jvp=jvp, vjp=vjp,
        batch=lambda size, xs, batched, axis: row(xs[0], axis=shift_axis(axis)),
        abstract=lambda x, axis: Aval(reduced_shape(x.shape, axis), x.dtype),
        kinks="a tie: shared equally", native_from="NATIVE",
        at_kink=lambda x, axis: _share(_equal_share(x, ufunc.reduce(x, axis), axis)),
        reduces=join, neutral=neutral, rounds="never",
    )
    return row


def _share(share):
    return (share > 0) & (share < 1)


max = _extreme("max", np.maximum, maximum, _least)
min = _extreme("min", np.minimum, minimum, _greatest)

# ---- constant reductions


def _constant(name, impl, dtype, join, neutral):
    """A reduction over a tuple of axes without a derivative."""
    row = primitive(
        name, impl, batch=lambda size, xs, batched, axis: row(xs[0], axis=shift_axis(axis)),
        abstract=lambda x, axis: Aval(reduced_shape(x.shape, axis), np.dtype(dtype)),
        reduces=join, neutral=lambda dtype: neutral, rounds="never",
    )
    return row


def _constant_index(name, impl):
    """A reduction over one axis, an int, to a position on it."""
    row = primitive(
        name, impl, batch=lambda size, xs, batched, axis: row(xs[0], axis=axis + 1),
        abstract=lambda x, axis: Aval(reduced_shape(x.shape, (axis,)), np.dtype(np.intp)),
        rounds="never",
    )
    return row


any = _constant("any", lambda x, axis: np.logical_or.reduce(x, axis), bool, logical_or, False)
all = _constant("all", lambda x, axis: np.logical_and.reduce(x, axis), bool, logical_and, True)
count_nonzero = _constant(
    "count_nonzero", lambda x, axis: np.add.reduce(x != 0, axis), np.intp, add, 0
)
argmax = _constant_index("argmax", lambda x, axis: np.argmax(x, axis))
argmin = _constant_index("argmin", lambda x, axis: np.argmin(x, axis))

# ---- running sums and linear recurrences along one axis


def _accumulate(ufunc, x, axis, reverse):
    if not reverse:
        return ufunc.accumulate(x, axis)
    return np.flip(ufunc.accumulate(np.flip(x, axis), axis), axis)


def _running_abstract(ufunc):
    def abstract(x, axis, reverse):
        return Aval(x.shape, ufunc.accumulate(np.empty(0, x.dtype)).dtype)

    return abstract


cumsum = linear(
    "cumsum", lambda x, axis, reverse: _accumulate(np.add, x, axis, reverse),
    lambda ct, x, axis, reverse: cast(cumsum(ct, axis=axis, reverse=not reverse), x.dtype),
    batch=lambda size, xs, batched, axis, reverse: cumsum(xs[0], axis=axis + 1, reverse=reverse),
    abstract=_running_abstract(np.add), native_from="NATIVE", scans=add,
)


def _shift(x, axis, by):
    y = np.zeros_like(x)
    lead = (slice(None),) * axis
    late, early = (*lead, slice(1, None)), (*lead, slice(None, -1))
    if by > 0:
        y[late] = x[early]
    else:
        y[early] = x[late]
    return y


# row: entry k - by at place k for by = 1 or -1, zero where there is none; recurrences look back so
shift = linear(
    "shift", _shift, lambda ct, x, axis, by: shift(ct, axis=axis, by=-by),
    batch=lambda size, xs, batched, axis, by: shift(xs[0], axis=axis + 1, by=by),
    drops=True, fills=True,
    abstract=lambda x, axis, by: x, rounds="never",
)


def _back(reverse):
    return -1 if reverse else 1


def _recurrence(a, b, axis, reverse):
    native = large.recurrence(a, b, axis, reverse)
    if native is not None:
        return native
    y = np.empty(b.shape, np.result_type(a, b))
    if y.ndim == 1 and y.dtype.char in "dD":
        # Python's numbers are several times faster than NumPy's scalars
        values, s = [], 0.0
        for p, q in zip(a.tolist()[:: _back(reverse)], b.tolist()[:: _back(reverse)], strict=True):
            s = p * s + q if s and p else q  # strong zero: nothing times NaN is nothing
            values.append(s)
        y[:: _back(reverse)] = values
        return y
    a, b, out = (np.moveaxis(v, axis, 0) for v in (a, b, y))
    order = range(len(out) - 1, -1, -1) if reverse else range(len(out))
    finite = is_finite(a) and is_finite(b)
    for times in (np.multiply, strong_multiply) if finite else (strong_multiply,):
        s = None
        for k in order:
            s = b[k] if s is None else times(a[k], s) + b[k]
            out[k] = s
        if is_finite(y):  # else a number has become infinite on the way: once more, with care
            break
    return y


def _recurrence_jvp(ts, y, xs, axis, reverse):
    ta, tb = ts
    moved = None if ta is None else ta * shift(y, axis=axis, by=_back(reverse))
    if tb is not None:
        moved = tb if moved is None else moved + tb
    return recurrence(xs[0], moved, axis=axis, reverse=reverse)


def _recurrence_vjp(ct, y, xs, wanted, axis, reverse):
    c = _recurrence_transpose(ct, xs[0], axis, reverse)
    ca = c * shift(y, axis=axis, by=_back(reverse)) if wanted[0] else None
    return [ca, c if wanted[1] else None]


def _recurrence_transpose(ct, a, axis, reverse):
    ahead = shift(a, axis=axis, by=-_back(reverse))
    return recurrence(ahead, ct, axis=axis, reverse=not reverse)


# row: y_k = a_k y_(k-1) + b_k along an axis, the tangent of every running product and extreme;
# it is its own tangent and, run backward, its own transpose
recurrence = primitive(
    "recurrence", _recurrence, jvp=_recurrence_jvp, vjp=_recurrence_vjp,
    batch=lambda size, xs, batched, axis, reverse: recurrence(
        *all_batched(size, xs, batched), axis=axis + 1, reverse=reverse),
    abstract=lambda a, b, axis, reverse: Aval(b.shape, np.result_type(a.dtype, b.dtype)),
)

# ---- products, exact whatever the number of zeros among the factors


def _before(y, axis, reverse):
    """The running product without the current factor, from the one with it."""
    one = np.zeros(y.shape, y.dtype)
    one[(slice(None),) * axis + (slice(-1, None) if reverse else slice(0, 1),)] = 1
    return shift(y, axis=axis, by=_back(reverse)) + one


def _strong_product(g, slope):
    """``g * slope``, where zeros in ``g`` remain zero whatever the slope."""
    moved = g * slope
    return moved if is_finite(moved) else strong_multiply(g, slope)


def _cumprod_vjp(ct, y, xs, wanted, axis, reverse):
    c = _recurrence_transpose(ct, xs[0], axis, reverse)
    return [cast(_strong_product(c, _before(y, axis, reverse)), xs[0].dtype)]


# row: y_k = x_k y_(k-1); dividing by x_k, as a composition would, fails at zero
cumprod = primitive(
    "cumprod", lambda x, axis, reverse: _accumulate(np.multiply, x, axis, reverse),
    jvp=lambda ts, y, xs, axis, reverse: recurrence(
        xs[0], _strong_product(ts[0], _before(y, axis, reverse)), axis=axis, reverse=reverse
    ),
    vjp=_cumprod_vjp,
    batch=lambda size, xs, batched, axis, reverse: cumprod(xs[0], axis=axis + 1, reverse=reverse),
    abstract=_running_abstract(np.multiply), native_from="NATIVE", scans=multiply,
)


def others(x: Any, y: Any, axis: int) -> AnyArray:
    """The product of all entries along ``axis`` but the one itself; ``y`` is the product of all."""
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray | np.generic):
        y = np.expand_dims(y, axis)
        size = np.abs(y)
        if np.all((size > float(finfo(y.dtype).tiny)) & (size < np.inf)):
            return y / x  # no factor is 0, and no digit was lost to underflow
    left = _before(cumprod(x, axis=axis, reverse=False), axis, False)
    return left * _before(cumprod(x, axis=axis, reverse=True), axis, True)


def _prod_vjp(ct, y, xs, wanted, axis):
    ct = ct.reshape(kept_shape(xs[0].shape, (axis,)))
    return [cast(_strong_product(ct, others(xs[0], y, axis)), xs[0].dtype)]


# row: product along one axis
prod = primitive(
    "prod", lambda x, axis: np.multiply.reduce(x, axis),
    jvp=lambda ts, y, xs, axis: _strong_product(ts[0], others(xs[0], y, axis)).sum(axis=axis),
    vjp=_prod_vjp,
    batch=lambda size, xs, batched, axis: prod(xs[0], axis=axis + 1),
    abstract=lambda x, axis: Aval(
        reduced_shape(x.shape, (axis,)), np.multiply.reduce(np.empty(0, x.dtype)).dtype
    ),
    reduces=multiply, neutral=lambda dtype: 1,
)

# ---- running extremes


def _running_share(x, axis, largest):
    """1/n at the n-th entry to attain the extreme so far, else 0."""
    y = np.moveaxis((np.maximum if largest else np.minimum).accumulate(x, axis), axis, 0)
    x = np.moveaxis(x, axis, 0)
    nan = y != y
    best = (x == y) | nan
    best[1:] &= ~nan[:-1]  # after the first NaN nothing changes any more
    fresh = np.ones(x.shape, bool)
    fresh[1:] = (y[1:] != y[:-1]) & ~nan[:-1]
    if not (best & ~fresh).any():  # no ties, as usual
        return np.moveaxis(best, 0, axis).astype(floating_of(x.dtype))
    count = np.cumsum(best, axis=0)
    count -= np.maximum.accumulate(np.where(fresh, count - 1, 0), axis=0)
    share = np.zeros(x.shape, floating_of(x.dtype))
    share[best] = 1 / count[best]
    return np.moveaxis(share, 0, axis)


# row: the weight of the latest entry in a running extreme; the one before has the rest
running_share = primitive(
    "running_share", _running_share,
    batch=lambda size, xs, batched, axis, largest: running_share(
        xs[0], axis=axis + 1, largest=largest
    ),
    abstract=lambda x, axis, largest: Aval(x.shape, floating_of(x.dtype)), rounds="never",
)


def _running_extreme(name, ufunc, join, largest):
    def jvp(ts, y, xs, axis):
        share = running_share(xs[0], axis=axis, largest=largest)
        return recurrence(1 - share, weigh(ts[0], share), axis=axis, reverse=False)

    def vjp(ct, y, xs, wanted, axis):
        share = running_share(xs[0], axis=axis, largest=largest)
        return [weigh(_recurrence_transpose(ct, 1 - share, axis, False), share)]

    row = primitive(
        name, lambda x, axis: ufunc.accumulate(x, axis), jvp=jvp, vjp=vjp, saves="x",
        native_from="NATIVE",
        batch=lambda size, xs, batched, axis: row(xs[0], axis=axis + 1),
        abstract=lambda x, axis: x, kinks="a tie: shared equally",
        at_kink=lambda x, axis: _share(_running_share(x, axis, largest)), scans=join,
        rounds="never",
    )
    return row


cummax = _running_extreme("cummax", np.maximum, maximum, True)
cummin = _running_extreme("cummin", np.minimum, minimum, False)

# ---- running results of any ufunc of two operands
#
# Each entry is y_k = f(y_(k-1), x_k), so the tangents are a recurrence whose factors are the slopes
# of f in its first operand.


def _running_result(x, axis, by):
    return large.ufunc_of(TABLE[by].impl).accumulate(x, axis)


def _steps(x, y, axis):
    """Of each step but the first the result, the result before it and the entry."""
    late = along(axis, slice(1, None))
    return y[late], y[along(axis, slice(-1))], x[late]


def _passed_on(x, y, axis, by):
    """The slope of each step but the first in the result before it."""
    return change_of_step(TABLE[by].actions[0], True, y.dtype.type(1), _steps(x, y, axis))


def _of_entries(x, y, axis, by, change, pushes):
    """The change of each entry, of which all but the first go through a step."""
    late = change[along(axis, slice(1, None))]
    moved = change_of_step(TABLE[by].actions[1], pushes, late, _steps(x, y, axis))
    return concatenate(change[along(axis, slice(1))], moved, axis=axis)


def _running_jvp(ts, y, xs, axis, by):
    none = np.zeros_like(y[along(axis, slice(1))])
    slopes = concatenate(none, _passed_on(xs[0], y, axis, by), axis=axis)
    moved = _of_entries(xs[0], y, axis, by, ts[0], True)
    return recurrence(slopes, moved, axis=axis, reverse=False)


def _running_vjp(ct, y, xs, wanted, axis, by):
    none = np.zeros_like(y[along(axis, slice(1))])
    ahead = concatenate(_passed_on(xs[0], y, axis, by), none, axis=axis)
    ct = recurrence(ahead, ct, axis=axis, reverse=True)
    return [_of_entries(xs[0], y, axis, by, ct, False)]


def _running_kink(x, axis, by):
    y, *operands = _steps(x, _running_result(x, axis, by), axis)
    at_kink = TABLE[by].at_kink
    return np.zeros(y.shape, bool) if at_kink is None else at_kink(*operands)


# row: as one entry of a tape and one equation; a composition has as many as the axis has entries.
# ``by`` names the elementwise row
accumulate = primitive(
    "accumulate", _running_result, jvp=_running_jvp, vjp=_running_vjp, native_from="NATIVE",
    batch=lambda size, xs, batched, axis, by: accumulate(xs[0], axis=axis + 1, by=by),
    abstract=lambda x, axis, by: x, kinks="those of the ufunc", at_kink=_running_kink,
)

# ---- the rest

# row: sqrt whose slope at 0 is 0 in every order: the spread of a constant sample has no direction
root = elementwise(
    "root", np.sqrt, lambda g, y: ratio(g, unless_infinite(2 * y)), domain=POSITIVE, kinks="0: 0",
    at_kink=lambda x: x == 0,
)
