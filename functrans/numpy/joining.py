"""Joining and splitting under NumPy's names: by functions, and by indexing ``np.r_``."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np

from functrans._core.array import PYTHON_SCALARS, Array, plain
from functrans._core.bind import AnyArray, Tracer, bind, is_weak, weakly
from functrans._core.writing import hand, writing
from functrans._ops import structure as rows
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.standard import require_cast
from functrans.numpy.structure import (
    as_operand,
    broadcast_to,
    is_traced,
    moveaxis,
    numpy_like,
    on_axis,
    one_axis,
    raise_ndim,
    ravel,
    reshape,
    take_axis,
)
from functrans.numpy.writable import named

# ---- Joining and splitting under NumPy's names


# ---- joining


def _operands(arrays: Any) -> list:
    if isinstance(arrays, Tracer):
        return list(arrays)
    return [as_operand(a) for a in arrays]


@numpy_like(np.concatenate)
def concatenate(arrays, /, axis=0, out=None, *, dtype=None, casting="same_kind"):
    """Arrays joined along an axis that they have; flat with ``axis=None``."""
    arrays = _operands(arrays)
    if axis is None:
        arrays, axis = [ravel(a) for a in arrays], 0
    ndim = arrays[0].ndim
    if ndim == 0:
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    axis = one_axis(axis, ndim)
    for i, a in enumerate(arrays):
        if a.ndim != ndim:
            raise ValueError(
                "all the input array dimensions except for the concatenation axis must match "
                f"exactly, but the array at index 0 has {ndim} dimension(s) and the array at index "
                f"{i} has {a.ndim} dimension(s)"
            )
    return _join(rows.concatenate, arrays, axis, dtype, casting)


def _join(row: Any, arrays: list, axis: int, dtype: Any, casting: Any) -> AnyArray:
    """Arrays in the type asked for, each cast as the rule allows, and joined."""
    if dtype is not None or casting != "same_kind":
        joined = np.result_type(*[a.dtype for a in arrays]) if dtype is None else np.dtype(dtype)
        for a in arrays:
            require_cast(a, joined, casting)
        arrays = [a if a.dtype == joined else a.astype(joined) for a in arrays]
    one = len(arrays) == 1 and row is rows.concatenate
    return arrays[0] if one else bind(row, *arrays, axis=axis)


concat = concatenate


@numpy_like(np.stack)
def stack(arrays, axis=0, out=None, *, dtype=None, casting="same_kind"):
    """Arrays of one shape joined along a new axis."""
    arrays = _operands(arrays)
    shape = arrays[0].shape
    if any(a.shape != shape for a in arrays):
        raise ValueError("all input arrays must have the same shape")
    return _join(rows.stack, arrays, one_axis(axis, len(shape) + 1), dtype, casting)


@numpy_like(np.vstack)
def vstack(tup, *, dtype=None, casting="same_kind"):
    """Arrays joined along axis 0, vectors as rows."""
    return concatenate([raise_ndim(a, 2) for a in _operands(tup)], 0, dtype=dtype, casting=casting)


@numpy_like(np.hstack)
def hstack(tup, *, dtype=None, casting="same_kind"):
    """Arrays joined along axis 1, vectors along axis 0."""
    arrays = [raise_ndim(a, 1) for a in _operands(tup)]
    axis = 0 if arrays[0].ndim == 1 else 1
    return concatenate(arrays, axis, dtype=dtype, casting=casting)


@numpy_like(np.dstack)
def dstack(tup):
    """Arrays joined along axis 2."""
    return concatenate([raise_ndim(a, 3) for a in _operands(tup)], 2)


@numpy_like(np.column_stack)
def column_stack(tup):
    """Arrays joined along axis 1, vectors as columns."""
    return concatenate(
        [reshape(a, (-1, 1)) if a.ndim < 2 else a for a in _operands(tup)], 1
    )


@numpy_like(np.block)
def block(arrays):
    """An array assembled from nested lists of blocks; the innermost lists join the last axis."""
    depth = _depth(arrays)
    _require_depth(arrays, depth, "arrays")
    ndim = max(depth, *[a.ndim for a in _flatten(arrays)])
    return _join_blocks(arrays, ndim, depth)


def _depth(x):
    return 1 + max(map(_depth, x)) if isinstance(x, list) else 0


def _require_depth(x, depth, name):
    """Raise ValueError where the lists are not nested equally deep."""
    if isinstance(x, list):
        for i, v in enumerate(x):
            _require_depth(v, depth - 1, f"{name}[{i}]")
    elif depth:
        raise ValueError(f"List depths are mismatched: {name} should lie {depth} deeper.")


def _flatten(x):
    if not isinstance(x, list):
        return [as_operand(x)]
    return list(itertools.chain.from_iterable(map(_flatten, x)))


def _join_blocks(x, ndim, depth):
    if not isinstance(x, list):
        x = as_operand(x)
        return reshape(x, (1,) * (ndim - x.ndim) + x.shape)
    return concatenate([_join_blocks(v, ndim, depth - 1) for v in x], -depth)


@numpy_like(np.append)
def append(arr, values, axis=None):
    """``arr`` followed by ``values``; both flat by default."""
    return concatenate((arr, values), axis)


@numpy_like(np.insert)
def insert(arr, obj, values, axis=None):
    """``arr`` with ``values`` before the indices ``obj`` along ``axis``."""
    arr, axis = on_axis(arr, axis)
    values = as_operand(values).astype(arr.dtype)
    n = arr.shape[axis]
    at = np.arange(n)[obj] if isinstance(obj, slice) else np.asarray(plain(obj))
    if at.dtype == bool:
        at = np.flatnonzero(at)
    if at.size == 1:  # all values are inserted there
        values = reshape(values, (1,) * (arr.ndim - values.ndim) + values.shape)
        values = moveaxis(values, 0, axis) if at.ndim == 0 else values
        at = np.full(values.shape[axis], at.reshape(()))
    # where each entry comes from: NumPy inserts into the numbers 0, 1, ... in the same way
    source = np.insert(np.arange(n), at.astype(np.intp), np.arange(at.size) + n)
    values = broadcast_to(values, (*arr.shape[:axis], at.size, *arr.shape[axis + 1 :]))
    return take_axis(concatenate((arr, values), axis), source, axis)


@numpy_like(np.delete)
def delete(arr, obj, axis=None):
    """``arr`` without the entries ``obj`` along ``axis``."""
    arr, axis = on_axis(arr, axis)
    obj = np.asarray(obj) if isinstance(obj, Tracer) else obj
    return take_axis(arr, np.delete(np.arange(arr.shape[axis]), obj), axis)


# ---- splitting


@numpy_like(np.array_split)
def array_split(ary, indices_or_sections, axis=0):
    """``ary`` split along ``axis`` at indices, or into a number of parts of nearly equal size."""
    ary = as_operand(ary)
    axis = one_axis(axis, ary.ndim)
    n = ary.shape[axis]
    if np.ndim(indices_or_sections):
        cuts = [0, *map(operator.index, indices_or_sections), n]
    else:
        count = operator.index(indices_or_sections)
        if count <= 0:
            raise ValueError("number sections must be larger than 0.")
        length, longer = divmod(n, count)
        cuts = [i * length + min(i, longer) for i in range(count + 1)]
    return [ary[rows.along(axis, slice(a, b))] for a, b in itertools.pairwise(cuts)]


@numpy_like(np.split)
def split(ary, indices_or_sections, axis=0):
    """``ary`` split along ``axis`` at indices, or into a number of equal parts."""
    ary = as_operand(ary)
    n = ary.shape[one_axis(axis, ary.ndim)]
    if np.ndim(indices_or_sections) == 0 and n % indices_or_sections:
        raise ValueError("array split does not result in an equal division")
    return array_split(ary, indices_or_sections, axis)


def _split_along(name, axis, ndim):
    @numpy_like(getattr(np, name), doc=f"np.split along axis {axis}.")
    def named(ary, indices_or_sections):
        ary = as_operand(ary)
        if ary.ndim < ndim:
            raise ValueError(f"{name} only works on arrays of {ndim} or more dimensions")
        return split(ary, indices_or_sections, 0 if ary.ndim == 1 else axis)

    return named


hsplit, vsplit, dsplit = (
    _split_along("hsplit", 1, 1), _split_along("vsplit", 0, 2), _split_along("dsplit", 2, 3)
)


@numpy_like(np.unstack)
def unstack(x, /, *, axis=0):
    """The slices of ``x`` along ``axis``, as a tuple."""
    x = as_operand(x)
    axis = one_axis(axis, x.ndim)
    return tuple([x[rows.along(axis, i)] for i in range(x.shape[axis])])


# ---- ``np.r_`` and ``np.c_``, arrays joined by indexing, and ``np.mgrid`` and ``np.ogrid``


class Concatenator:
    """NumPy's ``r_`` or ``c_``, which is taken where nothing is traced.

    >>> import functrans as ft, functrans.numpy as np
    >>> ft.jacobian(lambda x: np.r_[x, 1.0, 2 * x])(3.0)
    Array([1., 0., 2.])
    """

    def __init__(self, theirs: Any):
        self.theirs = theirs
        self.__doc__ = theirs.__doc__

    def __getitem__(self, key: Any) -> Any:
        if not _has_traced(key):
            y = self.theirs[key]
            return named(y) if writing.get() else y.view(Array)
        y = concatenated(self.theirs, key)
        return named(y) if writing.get() else y

    def __len__(self) -> int:
        return 0

    @staticmethod
    def of(theirs: Any) -> Concatenator:
        """Ours for an object of NumPy's class, such as ``np.r_``."""
        return Concatenator(theirs)


def _has_traced(key: Any) -> bool:
    entries = key if isinstance(key, tuple) else (key,)
    return any([
        is_traced((e.start, e.stop, e.step)) if isinstance(e, slice) else is_traced(e)
        for e in entries
    ])


def concatenated(theirs: Any, key: Any) -> AnyArray:
    """``theirs[key]`` with traced values in the key; ``theirs`` has NumPy's options."""
    entries = list(key) if isinstance(key, tuple) else [key]
    axis, ndmin, place = theirs.axis, theirs.ndmin, theirs.trans1d
    if isinstance(entries[0], str):
        axis, ndmin, place = _directive(entries.pop(0), axis, ndmin, place)
    arrays = [_raise(e, ndmin, place) for e in entries]
    seen = [weakly(e) if is_weak(e) else a.dtype for a, e in zip(arrays, entries, strict=True)]
    return np.concatenate([a.astype(np.result_type(*seen)) for a in arrays], axis)


def _directive(text: str, axis: int, ndmin: int, place: int) -> tuple[int, int, int]:
    """``"axis,ndmin,trans1d"``, of which the last may be left out."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise UnsupportedError(
            f"{user_line()}: np.r_[{text!r}, ...] of traced values would make a matrix, which "
            "traced values cannot be. Join them with np.c_, np.stack or np.concatenate."
        ) from None
    return tuple((numbers + [axis, ndmin, place][len(numbers):])[:3])  # type: ignore[return-value]


def _raise(x: Any, ndmin: int, place: int) -> Any:
    """An entry with at least ``ndmin`` axes; its own begin at ``place`` where they are fewer."""
    number = False
    if isinstance(x, slice):
        x = _range(x)
    else:
        number = type(x) in PYTHON_SCALARS or isinstance(x, np.generic)
        x = as_operand(x)
    have = x.ndim
    missing = ndmin - have
    if missing <= 0:
        return x
    x = reshape(x, (1,) * missing + x.shape)
    if place == -1 or number:
        return x
    first = place + missing + 1 if place < 0 else place
    return moveaxis(x, tuple(range(missing, ndmin)), tuple(range(first, first + have)))


def _range(s: slice) -> Any:
    if isinstance(s.step, complex):
        return np.linspace(s.start or 0, s.stop, int(abs(s.step)))
    start, stop, step = map(_whole, (0 if s.start is None else s.start, s.stop, s.step))
    if is_traced((start, stop, step)):
        raise UnsupportedError(
            f"{user_line()}: np.r_[start:stop:step] of traced values has a length that depends on "
            "them. Write start:stop:5j for five numbers, or start + step * np.arange(n)."
        )
    return np.arange(start, stop, 1 if step is None else step)


def _whole(x: Any) -> Any:
    """An integer that is traced as one of Python's, which chooses the path."""
    return operator.index(x) if isinstance(x, Tracer) and x.dtype.kind in "iu" else x


class Grid:
    """NumPy's ``mgrid`` or ``ogrid``, whose arrays can be written to as those of a constructor."""

    def __init__(self, theirs: Any):
        self.theirs = theirs
        self.__doc__ = theirs.__doc__

    def __getitem__(self, key: Any) -> Any:
        return hand(self.theirs[key])


r_ = Concatenator(np.r_)
c_ = Concatenator(np.c_)
mgrid = Grid(np.mgrid)
ogrid = Grid(np.ogrid)

ALSO = ("c_", "mgrid", "ogrid", "r_")
