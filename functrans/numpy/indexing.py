"""Reading by index: ``x[...]`` and NumPy's functions that select entries."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.array import is_labelled, plain
from functrans._core.bind import ARRAYS, PLAIN, AnyArray, Tracer, bind
from functrans._core.primitive import Primitive
from functrans._ops import elementwise as ops
from functrans._ops import indexing as rows
from functrans._ops.indexing import ARRAY
from functrans._transforms.staging.distances import distance
from functrans.errors import ConcretizationError, UnsupportedError, user_line
from functrans.numpy.fused import even_power, length
from functrans.numpy.structure import (
    as_operand,
    as_places,
    common_dtype,
    is_traced,
    is_traced_slice,
    numpy_like,
    on_axis,
    one_axis,
)

_INTS = frozenset({int, type(None)})
_BASIC = frozenset({int, type(None), type(Ellipsis)})
# The pattern of an index array alone.
_GATHER = (ARRAY,)


def basic_entry(e: Any) -> Any:
    """One entry of a basic index in hashable form; ``basic_entry`` itself if it is not basic, or is
    a slice between traced places."""
    kind = type(e)
    if kind in _BASIC:
        return e
    if kind is slice:
        start, stop, step = e.start, e.stop, e.step
        if type(start) in _INTS and type(stop) in _INTS and type(step) in _INTS:
            return start, stop, step
        return basic_entry if is_traced_slice(e) else _slice_of_indices(start, stop, step)
    if isinstance(e, np.integer):
        return int(e)
    return basic_entry


def _slice_of_indices(*parts):
    return tuple([None if p is None else operator.index(p) for p in parts])


def getitem(x: Any, key: Any) -> AnyArray:
    """``x[key]``."""
    kind = type(key)
    pattern = None
    if kind is int:
        pattern = (key,)
    elif kind is np.ndarray and key.dtype.kind in "iu":
        return _gather(x, (key,))
    elif kind is tuple:
        if key and ARRAYS.issuperset(map(type, key)) and all([e.dtype.kind in "iu" for e in key]):
            return _gather(x, key)
        entries = tuple([basic_entry(e) for e in key])
        pattern = None if basic_entry in entries else entries
    elif (entry := basic_entry(key)) is not basic_entry:
        pattern = (entry,)
    if pattern is not None:
        return read_at(x, {"pattern": pattern})
    key = key if type(key) is tuple else (key,)
    if is_flag(key):
        flag = concrete(key[0], "a boolean as an index")
        return getitem(x, None) if flag else np.zeros((0, *x.shape), x.dtype)
    if any(map(is_traced_slice, key)):
        return getitem(*_after_windows(x, key))
    pattern, indices = split_key(key, x.shape)
    return bind(rows.getitem, x, *indices, pattern=pattern)


def _gather(x: Any, indices: tuple) -> AnyArray:
    """The entries of ``x`` at plain arrays of indices."""
    pattern = _GATHER * len(indices)
    if isinstance(x, Tracer) and not x.owner.closed:
        return x.owner.process(rows.getitem, (x, *indices), {"pattern": pattern})
    return bind(rows.getitem, x, *indices, pattern=pattern)


def read_at(x: Any, params: dict, indices: tuple = (), row: Primitive = rows.getitem
            ) -> AnyArray:
    """The entries of ``x`` at an index that ``split_key`` has made, by ``getitem`` or ``fetch``."""
    if indices or not isinstance(x, Tracer):
        return bind(row, x, *indices, **params)
    top = x.owner
    y = bind(row, x, **params) if top.closed else top.process(row, (x,), params)
    return y if x.sqrt_operand is None else length(y, _part_of_square, (x,), (params["pattern"],))


def is_flag(key: Any) -> bool:
    """Whether an index is one boolean: all of the array in a new axis, or nothing."""
    e = key[0] if type(key) is tuple and len(key) == 1 else key
    array = isinstance(e, Tracer | np.ndarray | np.generic)
    return type(e) is bool or (array and e.shape == () and e.dtype.kind == "b")


def _after_windows(x: Any, key: tuple) -> tuple[Any, tuple]:
    """``x`` with the slices between traced places taken, and the rest of the index."""
    rest = list(key)
    for i, e in enumerate(key):
        if not is_traced_slice(e):
            continue
        axis = sum(map(_consumes, key[:i]))
        if any([v is Ellipsis for v in key[:i]]):
            axis = len(x.shape) - sum(map(_consumes, key[i:]))
        places = None if axis >= len(x.shape) else _window(e, x.shape[axis])
        if places is None:
            rest[i] = slice(*_slice_of_indices(e.start, e.stop, e.step))
        else:
            x, rest[i] = take(x, places, axis), slice(None)
    return x, tuple(rest)


def _window(e: slice, n: int) -> AnyArray | None:
    """The places of a slice of an axis of ``n`` entries if it has a length of its own; else None.

    Where it reaches beyond the axis NumPy shortens it: that is for Python, if Python can decide by
    its place. Where it cannot, as in a batch or a loop, the places are outside of the axis.
    """
    length = distance(e.start, e.stop)
    if length is None or length < 0 or e.step not in (None, 1):
        return None
    inside = (e.start >= 0) & (e.start <= n - length)
    try:
        if not inside:
            return None
        start = e.start
    except ConcretizationError:
        start = np.where(inside, e.start, n)
    return start + np.arange(length)


def item(x: np.ndarray, key: Any) -> AnyArray:
    """``x[key]`` of a plain array, by a key that may be traced."""
    for e in key if type(key) is tuple else (key,):
        parts = [e.start, e.stop, e.step] if type(e) is slice else e
        if is_traced(parts):
            return getitem(x, key)
    return np.ndarray.__getitem__(x, key)


def _part_of_square(x, pattern):
    return bind(rows.getitem, even_power(x, 2), pattern=pattern)


def split_key(key: Any, shape: tuple[int, ...]) -> tuple[tuple, tuple]:
    """The static pattern of an index and its index arrays; masks become their nonzero entries."""
    key = key if type(key) is tuple else (key,)
    pattern: list[Any] = []
    indices: list[Any] = []
    for e in key:
        kind = type(e)
        if kind is np.ndarray and e.dtype.kind in "iu":
            pattern.append(ARRAY)
            indices.append(e)
            continue
        entry = basic_entry(e)
        if entry is basic_entry and is_traced_slice(e):
            places = _window(e, shape[_position(pattern, key, shape)]) if _alone(key) else None
            if places is not None:
                pattern.append(ARRAY)
                indices.append(places)
                continue
            entry = _slice_of_indices(e.start, e.stop, e.step)
        if entry is not basic_entry:
            pattern.append(entry)
            continue
        arrays = _index_arrays(e, shape, _position(pattern, key, shape))
        pattern += [ARRAY] * len(arrays)
        indices += arrays
    return tuple(pattern), tuple(indices)


def _alone(key: tuple) -> bool:
    """Whether one entry is a slice between traced places, and all others are plain slices."""
    others = [e for e in key if not is_traced_slice(e)]
    return len(others) == len(key) - 1 and all([type(e) is slice or e is Ellipsis for e in others])


def _position(pattern, key, shape):
    """The axis that the next entry of the index applies to."""
    axis = sum(e is not None and e is not Ellipsis for e in pattern)
    if any(e is Ellipsis for e in pattern):
        consumed = sum(_consumes(e) for e in key)
        axis += len(shape) - consumed
    return axis


def _consumes(e):
    if e is None or e is Ellipsis:
        return 0
    if isinstance(e, Tracer | np.ndarray | list) and np.result_type(_list(e)).kind == "b":
        return np.ndim(e)
    return 1


def _list(e):
    return e if isinstance(e, Tracer | np.ndarray) else np.asarray(e)


def _index_arrays(e: Any, shape: tuple[int, ...], axis: int) -> list:
    """One entry of an advanced index as index arrays."""
    if isinstance(e, list | tuple) or is_labelled(e):
        e = as_operand(np.asarray(e) if is_labelled(e) else e)
        if e.size == 0:
            e = e.astype(np.intp)
    e = plain(e)
    if isinstance(e, bool | np.bool_):
        e = np.asarray(e)
    if not isinstance(e, Tracer | np.ndarray):
        if hasattr(e, "__index__"):
            return [np.asarray(operator.index(e))]
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or "
            "boolean arrays are valid indices"
        )
    kind = e.dtype.kind
    if kind in "iu":
        return [e]
    if kind != "b":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    return _mask_indices(e, shape, axis)


def _mask_indices(mask: Any, shape: tuple[int, ...], axis: int) -> list[np.ndarray]:
    values = concrete(mask, "a boolean mask as an index")
    if values.ndim == 0:
        raise UnsupportedError(
            f"{user_line()}: a single True or False beside other indices is not supported; use "
            "x[None] or np.where."
        )
    for i, n in enumerate(values.shape):
        if axis + i >= len(shape):
            raise IndexError(
                f"too many indices for array: array is {len(shape)}-dimensional, but "
                f"{axis + values.ndim} were indexed"
            )
        if shape[axis + i] != n:
            raise IndexError(
                f"boolean index did not match indexed array along axis {axis + i}; size of axis is "
                f"{shape[axis + i]} but size of corresponding boolean axis is {n}"
            )
    return list(np.nonzero(values))


def concrete(x: Any, use: str) -> np.ndarray:
    """The plain ndarray inside ``x``; ConcretizationError where its values are not known."""
    x = as_operand(x)
    if not isinstance(x, Tracer):
        return x
    value = x.concrete_value()
    if value is None:
        value = decided_entries(x)
    if value is None:
        raise ConcretizationError(
            f"{user_line()}: {use}: the shape of the result would depend on the values of {x!r}, "
            "which are not known: under vmap each entry of the batch has its own, under jit they "
            "are given later. Use np.where(mask, x, 0) instead, which keeps the shape, or give "
            "ft.vmap the function under ft.jit, where masks of up to 1,024 entries choose paths."
        )
    return np.asarray(value)


# Entries up to which Python decides by masks and by integers under jit, and the bits of a decision.
MASK, FEW, WORD = 1024, 16, 62


def decided_entries(x: Any) -> np.ndarray | None:
    """The entries that jit goes on with, as for the condition of an ``if``; None where it may not.

    Their differences from the least, in as few bits as the greatest takes, are decided by words.
    """
    kind = x.dtype.kind
    if kind not in "biu" or x.size > (MASK if kind == "b" else FEW):
        return None
    flat = x.reshape(-1)
    try:
        low, high = (0, 1) if kind == "b" or not x.size else (int(flat.min()), int(flat.max()))
        bits = (high - low).bit_length()
        if bits > WORD or high > np.iinfo(np.int64).max:
            return None
        many = WORD // bits if bits else x.size
        flat = flat.astype(np.int64) - low
        words = [flat[i : i + many] for i in range(0, x.size, many)] if bits else []
        numbers = [int((w * (1 << bits * np.arange(w.size))).sum()) for w in words]
    except ConcretizationError:
        return None
    places = [(n, i) for n, w in zip(numbers, words, strict=True) for i in range(w.size)]
    entries = [low + (n >> bits * i & (1 << bits) - 1) for n, i in places] or [low] * x.size
    return np.array(entries, x.dtype).reshape(x.shape)


# ---- gathering


@numpy_like(np.take)
def take(a, indices, axis=None, out=None, mode="raise"):
    """The entries of ``a`` at integer ``indices`` along ``axis``; of the flat array by default."""
    listed = isinstance(indices, list | tuple)
    indices = as_places(indices)
    a, axis = on_axis(a, axis)
    n = a.shape[axis]
    if listed:  # as NumPy does
        indices = indices.astype(np.intp)
    if indices.dtype.kind not in "iu":
        raise TypeError(
            f"Cannot cast array data from {indices.dtype!r} to dtype('int64') according to the "
            "rule 'safe'"
        )
    if mode == "clip":
        indices = ops.clip(indices, 0, n - 1)
    elif mode == "wrap":
        indices = indices % n
    pattern = (rows.WHOLE,) * axis + (ARRAY,)
    return bind(rows.getitem, a, indices, pattern=pattern)


@numpy_like(np.take_along_axis)
def take_along_axis(arr, indices, axis=-1):
    """Entries of ``arr`` picked along ``axis`` by an index array of matching shape."""
    arr, indices = as_operand(arr), as_operand(indices)
    if axis is None:
        arr, axis = np.ravel(arr), 0
    if arr.ndim != indices.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    axis = one_axis(axis, arr.ndim)
    grid: list[Any] = [
        np.arange(n).reshape((-1,) + (1,) * (arr.ndim - i - 1)) for i, n in enumerate(arr.shape)
    ]
    grid[axis] = indices
    return bind(rows.getitem, arr, *grid, pattern=(ARRAY,) * arr.ndim)


@numpy_like(np.where)
def where(condition, x=None, y=None, /):
    """``x`` where ``condition`` holds, else ``y``; with one argument, its nonzero entries."""
    if x is None and y is None:
        return np.nonzero(concrete(condition, "np.where(condition)"))
    if x is None or y is None:
        raise ValueError("either both or neither of x and y should be given")
    return bind(ops.where, *[v if type(v) in PLAIN else as_operand(v) for v in (condition, x, y)])


@numpy_like(np.select)
def select(condlist, choicelist, default=0):
    """Entries of the first choice whose condition holds; ``default`` where none does."""
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if not condlist:
        raise ValueError("select with an empty condition list is not possible")
    y = default
    for condition, choice in zip(condlist[::-1], choicelist[::-1], strict=True):
        y = where(condition, choice, y)
    return as_operand(y).astype(common_dtype(*choicelist, default))


@numpy_like(np.choose)
def choose(a, choices, out=None, mode="raise"):
    """For each entry of ``a``, the corresponding entry of ``choices[a]``."""
    a, n = as_places(a), len(choices)
    if mode == "clip":
        a = ops.clip(a, 0, n - 1)
    elif mode == "wrap":
        a = a % n
    else:
        a = _within(a, n)
    y = as_operand(choices[-1]).astype(common_dtype(*choices))
    for i in range(n - 2, -1, -1):
        y = where(a == i, choices[i], y)
    return y if n > 1 else np.broadcast_to(y, np.broadcast_shapes(y.shape, a.shape))


def _within(a: Any, n: int) -> AnyArray:
    """``a`` if all its entries are in ``range(n)``; else NumPy's error."""
    values = a.whole() if isinstance(a, Tracer) else a
    if values is None:  # the compiled program will check its indices
        return take(np.arange(n), where(ops.less(a, 0), n, a), 0)
    if np.any((values < 0) | (values >= n)):
        raise ValueError("invalid entry in choice array")
    return a


@numpy_like(np.compress)
def compress(condition, a, axis=None, out=None):
    """The slices of ``a`` along ``axis`` for which ``condition`` holds."""
    return take(a, np.flatnonzero(concrete(condition, "np.compress")), axis)


@numpy_like(np.extract)
def extract(condition, arr):
    """The entries of ``arr`` where ``condition`` holds, flat."""
    return take(arr, np.flatnonzero(concrete(condition, "np.extract")))


# ---- where entries are not zero


def _of_concrete(name: str) -> Callable:
    function = getattr(np, name)

    @numpy_like(function, doc=f"np.{name} of concrete values: its result has no derivative.")
    def named(a):
        return function(concrete(a, f"np.{name}"))

    return named


nonzero, argwhere, flatnonzero = map(_of_concrete, ("nonzero", "argwhere", "flatnonzero"))


MEMBERS: dict[type, dict[str, Any]] = {Tracer: {"concrete_entries": decided_entries}}
METHODS = {
    "__getitem__": getitem,
    "take": take,
    "compress": lambda self, condition, axis=None: compress(condition, self, axis),
    "choose": choose,
    "nonzero": nonzero,
}
