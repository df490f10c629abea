"""Rows that read and write by index, and memory that changes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from functrans._core.array import PYTHON_SCALARS, Aval, dtype_of, ndim_of, shape_of
from functrans._core.bind import AnyArray, Tracer, bind, cast, is_staged
from functrans._kernels import large
from functrans._ops.declare import TABLE, Linear, linear, primitive
from functrans._ops.structure import batched_to

# ---- Rows that read and write by index
#
# ``pattern`` is the static part of an index, a tuple with an entry an axis: an int, a slice as the
# tuple (start, stop, step), None, Ellipsis, or ARRAY where the next index array goes. The index
# arrays, of integers, are operands, so that they may differ between the entries of a batch.

ARRAY = "array"
WHOLE = (None, None, None)
INTP = np.dtype(np.intp)


@lru_cache(maxsize=4096)
def _basic(pattern: tuple) -> Any:
    """The index that a pattern without arrays stands for."""
    key = tuple([slice(*e) if type(e) is tuple else e for e in pattern])
    return key[0] if len(key) == 1 else key


def index_of(pattern: tuple, indices: tuple) -> Any:
    """The index, as NumPy takes it, that a pattern and its arrays stand for."""
    if not indices:
        return _basic(pattern)
    if len(indices) == len(pattern):
        return indices
    arrays = iter(indices)
    key = [slice(*e) if type(e) is tuple else next(arrays) if e is ARRAY else e for e in pattern]
    return tuple(key)


# ---- where the axes of the index arrays come to lie


@lru_cache(maxsize=1024)
def first_array_axis(pattern: tuple, ndim: int) -> int:
    """The axis of the result where the axes of the index arrays start.

    NumPy's rule: in place of the indexed axes where those are adjacent (ints count), else first.
    """
    places = [i for i, e in enumerate(pattern) if e is ARRAY or type(e) is int]
    if places[-1] - places[0] + 1 != len(places):
        return 0
    consumed = sum(e is not None and e is not Ellipsis for e in pattern)
    axis = 0
    for e in pattern[: places[0]]:
        axis += ndim - consumed if e is Ellipsis else 1
    return axis


def _move(x, count, source, target):
    """``x`` with ``count`` axes from ``source`` on moved to start at ``target``."""
    if source == target or not count:
        return x
    return np.moveaxis(x, [source + i for i in range(count)], [target + i for i in range(count)])


class BatchedIndex:
    """One index of a batched array that does what ``pattern`` does in every entry of the batch."""

    __slots__ = ("array_axis", "count", "indices", "pattern", "per_entry", "source")

    def __init__(self, size: int, indices: tuple, batched: tuple, pattern: tuple, ndim: int):
        self.count = max([ndim_of(i) - b for i, b in zip(indices, batched, strict=True)], default=0)
        self.array_axis = self.source = 0
        self.per_entry = any(batched)
        if indices:
            self.array_axis = first_array_axis(pattern, ndim)
        if not self.per_entry:
            self.pattern, self.indices = (WHOLE, *pattern), indices
            if indices:
                self.source = first_array_axis(self.pattern, ndim + 1)
            return
        each = np.arange(size).reshape((size,) + (1,) * self.count)
        self.pattern = (ARRAY, *pattern)
        self.indices = (each, *align(indices, batched, self.count))

    def from_numpy(self, y):
        """The result of NumPy's index, with the batch axis first and the others as in one entry."""
        if not self.indices:
            return y
        if self.per_entry:
            return _move(y, self.count, 1, 1 + self.array_axis)
        if self.source:
            return y  # in place, behind the batch axis
        return np.moveaxis(y, self.count, 0)

    def to_numpy(self, v):
        """The other way round."""
        if not self.indices:
            return v
        if self.per_entry:
            return _move(v, self.count, 1 + self.array_axis, 1)
        return v if self.source else np.moveaxis(v, 0, self.count)


def align(indices: tuple, batched: tuple, count: int) -> list:
    """Index arrays with axes of length 1 between the batch axis and their own, ``count`` in all."""
    out = []
    for i, b in zip(indices, batched, strict=True):
        missing = count + 1 - ndim_of(i)
        out.append(i.reshape((i.shape[0],) + (1,) * missing + i.shape[1:]) if b and missing else i)
    return out


# ---- reading

# Entries of short rows from which NumPy's passes over them take as long as to put them in order,
# and entries of a short row.
MANY, SHORT = 1 << 10, 16


def _in_order(x: Any, y: Any) -> AnyArray:
    """A part of ``x``, in memory of its own if it has short rows: NumPy takes 5 ns for each row at
    every pass, be it of three entries, and one copy takes as long as half a pass."""
    short = type(x) is np.ndarray and x.flags.c_contiguous and y.ndim > 1 and y.shape[-1] <= SHORT
    return y.copy() if short else y


def _getitem(x, *indices, pattern):
    if type(x) in PYTHON_SCALARS:
        x = np.asarray(x)
    if not indices:
        y = x[_basic(pattern)]
        return y if y.size < MANY or y.flags.c_contiguous else _in_order(x, y)
    if len(indices) == 1 and type(x) is np.ndarray and _whole_rows(pattern):
        index = indices[0]
        if type(index) is np.ndarray and index.dtype == INTP and x.flags.c_contiguous:
            return large.take_rows(x, index)
    return x[index_of(pattern, indices)]


def _batch_getitem(size, xs, batched, pattern):
    x, *indices = xs
    if not indices:
        return bind(getitem, x, pattern=(WHOLE, *pattern))
    if batched[0]:
        plan = BatchedIndex(size, tuple(indices), tuple(batched[1:]), pattern, x.ndim - 1)
        return plan.from_numpy(bind(getitem, x, *plan.indices, pattern=plan.pattern))
    count = max(ndim_of(i) - b for i, b in zip(indices, batched[1:], strict=True))
    y = bind(getitem, x, *align(tuple(indices), tuple(batched[1:]), count), pattern=pattern)
    return np.moveaxis(y, first_array_axis(pattern, ndim_of(x)), 0)


def result_shape(shape: tuple[int, ...], indices: tuple, pattern: tuple) -> tuple[int, ...]:
    """The shape of what the index reads from an array of ``shape``, without reading it."""
    stand_in = np.broadcast_to(np.empty((), bool), shape)
    if any(shape_of(i) for i in indices):
        # only the shapes of the arrays are known: a zero is a valid index of every nonempty axis
        stand_in = np.broadcast_to(np.empty((), bool), _readable(shape, pattern))
    zeros = [np.broadcast_to(np.intp(0), shape_of(i)) for i in indices]
    return stand_in[index_of(pattern, tuple(zeros))].shape


def _readable(shape: tuple[int, ...], pattern: tuple) -> list[int]:
    """``shape`` with something on each axis that an index array reads."""
    rest = len(shape) - sum(e is not None and e is not Ellipsis for e in pattern)
    out, axis = list(shape), 0
    for e in pattern:
        if e is ARRAY:
            out[axis] = max(out[axis], 1)
        axis += rest if e is Ellipsis else e is not None
    return out


def accumulate(buffer: np.ndarray, ct: Any, fixed: Any, params: dict) -> None:
    """Add the transpose of ``ct`` into ``buffer``, the plain cotangent of x, in place.

    A loop over the entries of x then costs as much as one pass, not one pass an entry.
    """
    if fixed:
        _add_at(buffer, tuple(fixed), params["pattern"], ct)
    else:
        _add_to_view(buffer, params["pattern"], ct)


def _add_to_view(y, pattern, v):
    key = _basic(pattern)
    view = y[key]
    if type(view) is np.ndarray:
        view += v  # not y[key] += v, which assigns the view to itself afterwards
    else:
        y[key] = view + v


def _add_at(y, indices, pattern, v):
    if not indices:
        _add_to_view(y, pattern, v)
    elif len(indices) == 1:
        if not (_whole_rows(pattern) and large.add_rows(indices[0], v, y)):
            np.add.at(y, index_of(pattern, indices), v)
    else:
        single = len(pattern) == len(indices) and indices[0].size >= NUMBERED
        places = _places(y, indices) if single else None
        if places is None:
            np.add.at(y, index_of(pattern, indices), v)
        else:
            np.add.at(y.reshape(-1), places, v)


# Entries from which it pays to number those of the whole: NumPy adds along one axis faster.
NUMBERED = 256


def _places(y, indices):
    """Where single entries of ``y`` are in its memory; None where they are rows."""
    if len(indices) != y.ndim or not y.flags.c_contiguous:
        return None
    try:
        return np.ravel_multi_index(indices, y.shape)
    except (TypeError, ValueError):  # negative ones, or masks
        return None


def _whole_rows(pattern):
    return pattern[0] is ARRAY and all([e == WHOLE for e in pattern[1:]])


getitem = linear(
    "getitem", _getitem,
    lambda ct, x, *indices, pattern: bind(put_add, ct, *indices, pattern=pattern, shape=x.shape),
    batch=_batch_getitem, drops=True,
    abstract=lambda x, *indices, pattern: Aval(result_shape(x.shape, indices, pattern), x.dtype),
    accumulate=accumulate, indexing="reads", rounds="never",
)


# ---- writing


def _put_add(v, *indices, pattern, shape):
    y = np.zeros(shape, np.asarray(v).dtype)
    if indices:
        _add_at(y, indices, pattern, v)
    else:
        y[_basic(pattern)] = v
    return y


def _batch_put_add(size, xs, batched, pattern, shape):
    v, *indices = xs
    if not indices:
        return bind(put_add, v, pattern=(WHOLE, *pattern), shape=(size, *shape))
    plan = BatchedIndex(size, tuple(indices), tuple(batched[1:]), pattern, len(shape))
    v = plan.to_numpy(batched_to(v, batched[0], size))
    return bind(put_add, v, *plan.indices, pattern=plan.pattern, shape=(size, *shape))


# row: the transpose of getitem; entries that are read twice receive both cotangents
put_add = linear(
    "put_add", _put_add,
    lambda ct, v, *indices, pattern, shape: bind(getitem, ct, *indices, pattern=pattern),
    batch=_batch_put_add, fills=True, indexing="adds",
    abstract=lambda v, *indices, pattern, shape: Aval(shape, v.dtype),
)


def _scatter_set(x, v, *indices, pattern):
    y = np.array(x, None if dtype_of(x) is dtype_of(v) else np.result_type(x, v))
    y[index_of(pattern, indices)] = v
    return y


def _scatter_add(x, v, *indices, pattern):
    y = np.array(x, None if dtype_of(x) is dtype_of(v) else np.result_type(x, v))
    _add_at(y, indices, pattern, v)
    return y


def _scatter(x, v, *indices, pattern):
    return Aval(x.shape, np.result_type(x.dtype, v.dtype))


def _batch_scatter(row):
    def batch(size, xs, batched, pattern):
        x, v, *indices = xs
        ndim = ndim_of(x) - batched[0]
        plan = BatchedIndex(size, tuple(indices), tuple(batched[2:]), pattern, ndim)
        x = batched_to(x, batched[0], size)
        v = plan.to_numpy(batched_to(v, batched[1], size))
        return bind(TABLE[row], x, v, *plan.indices, pattern=plan.pattern)

    return batch


def _transpose_set(ct, x, v, *indices, wanted, pattern, read=None, write=None):
    """The cotangents of ``x``, which was written over, and of ``v``, which was written.

    ``read`` and ``write(ct, zero)``: instead of ``getitem`` and ``scatter_set``, for a cotangent
    that changes in place, so it is read first.
    """
    ct_x = ct_v = None
    if wanted[1]:
        ct_v = cast(bind(read or getitem, ct, *indices, pattern=pattern), dtype_of(v))
        if any(map(shape_of, indices)):  # else nothing is written twice
            last = bind(last_write, *indices, pattern=pattern, shape=ct.shape)
            ct_v = np.where(last, ct_v, 0)
    if wanted[0]:
        zero = np.zeros(shape_of(v), ct.dtype)
        moved = write(ct, zero) if write else bind(
            scatter_set, ct, zero, *indices, pattern=pattern)
        ct_x = cast(moved, x.dtype)
    return ct_x, ct_v


# row: a copy of x with v, of the shape that the index reads, written at the index
scatter_set = linear(
    "scatter_set", _scatter_set, _transpose_set, batch=_batch_scatter("scatter_set"),
    abstract=_scatter, operands=2, drops=True, fills=True, indexing="sets", rounds="never",
)


def _transpose_add(ct, x, v, *indices, wanted, pattern):
    return (
        cast(ct, x.dtype) if wanted[0] else None,
        cast(bind(getitem, ct, *indices, pattern=pattern), v.dtype) if wanted[1] else None,
    )


# row: a copy of x with v added at the index, repeatedly where the index repeats
scatter_add = linear(
    "scatter_add", _scatter_add, _transpose_add, batch=_batch_scatter("scatter_add"),
    abstract=_scatter, operands=2, indexing="adds",
)


def _last_write(*indices, pattern, shape):
    written = np.zeros(shape, np.intp)
    key = index_of(pattern, indices)
    order = np.arange(written[key].size).reshape(written[key].shape)
    written[key] = order
    return written[key] == order


# row: which entries written at the index survive, later ones having overwritten earlier ones
last_write = primitive(
    "last_write", _last_write,
    abstract=lambda *indices, pattern, shape: Aval(
        result_shape(shape, indices, pattern), np.dtype(bool)
    ),
    rounds="never",
)


# ---- Rows that read and write memory which changes: for values that nothing else refers to
#
# They are ``getitem`` and ``scatter_set`` but for one copy: what ``fetch`` reads is a copy, so that
# it may be kept, and ``store`` makes none. No program and no table has them: where a program is
# written, and where a value may be seen elsewhere, the other two serve.


def _fetch(x, *indices, pattern):
    y = getitem.impl(x, *indices, pattern=pattern)
    return y.copy() if isinstance(y, np.ndarray) and y.base is not None else y


def _batch_fetch(size, xs, batched, pattern):
    x, *indices = xs
    if not batched[0]:  # read by arrays, so not as a view
        return getitem.batch(size, xs, batched, {"pattern": pattern})
    index = BatchedIndex(size, tuple(indices), tuple(batched[1:]), pattern, ndim_of(x) - 1)
    return index.from_numpy(bind(fetch, x, *index.indices, pattern=index.pattern))


fetch = Linear(
    "fetch", _fetch, getitem.transpose, _batch_fetch, 1, accumulate=accumulate, drops=True,
    abstract=getitem.abstract,
)


def _store(x, v, *indices, pattern):
    x[index_of(pattern, indices)] = v
    return x


def _batch_store(size, xs, batched, pattern):
    x, v, *indices = xs
    if not batched[0]:
        return scatter_set.batch(size, xs, batched, {"pattern": pattern})
    index = BatchedIndex(size, tuple(indices), tuple(batched[2:]), pattern, ndim_of(x) - 1)
    v = index.to_numpy(batched_to(v, batched[1], size))
    return bind(store, x, v, *index.indices, pattern=index.pattern)


store = Linear(
    "store", _store, scatter_set.transpose, _batch_store, 2, drops=True, fills=True,
    abstract=scatter_set.abstract,
)


def written(x, v, indices, params, alone):
    """``x`` with ``v`` at an index: in place where it is ``alone``, so that nothing else refers to
    it, and no operand depends on the inputs of a program, which would write at each call.
    """
    row = store if alone else scatter_set
    if isinstance(v, Tracer):
        top = None if isinstance(x, Tracer) and x.owner is not v.owner else v.owner
    else:
        top = x.owner if isinstance(x, Tracer) else None
    if top is None or top.closed or indices:
        return bind(row, x, v, *indices, **params)
    return top.process(row, (x, v), params)  # as ``bind`` would


def scatter_vjp(ct, x, v, indices, params, wanted, alone):
    """The cotangents of ``x``, which was written over, and of ``v``, which was written.

    ``alone``: nothing else refers to ``ct``, which becomes the first.
    """
    pattern = params["pattern"]
    if type(ct) is np.ndarray and not indices:
        return _unstore_plain(ct, x, v, pattern, wanted, alone)
    in_place = alone and not any(map(is_staged, indices))
    return scatter_set.transpose(
        ct, x, v, *indices, wanted=wanted, pattern=pattern, read=fetch if alone else getitem,
        write=lambda ct, zero: written(ct, zero, indices, params, in_place))


def _unstore_plain(ct, x, v, pattern, wanted, alone):
    """The same of plain numbers, at an index that writes nothing twice."""
    key, ct_x, ct_v = index_of(pattern, ()), None, None
    if wanted[1]:
        ct_v = ct[key]
        if alone and type(ct_v) is np.ndarray:
            ct_v = ct_v.copy()
        if ct_v.dtype is not v.dtype:
            ct_v = cast(ct_v, v.dtype)
    if wanted[0]:
        ct_x = ct if alone else ct.copy()
        ct_x[key] = 0
        if ct_x.dtype is not x.dtype:
            ct_x = cast(ct_x, x.dtype)
    return ct_x, ct_v
