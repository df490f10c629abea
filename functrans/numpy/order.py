"""Sorting, searching and sets under NumPy's names.

Entries that are sorted, selected or joined keep their derivatives; permutations, masks and counts
have none. Of equal entries a set keeps the first.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from functrans._core.bind import bind
from functrans._ops import elementwise as ops
from functrans._ops import ranks as rows
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.indexing import concrete, take, take_along_axis
from functrans.numpy.options import axes_of
from functrans.numpy.structure import as_operand, numpy_like, on_axis, one_axis, ravel

# ---- sorting


def _plain_order(order: Any) -> None:
    if order is not None:
        raise ValueError("Cannot specify order when the array has no fields.")


@numpy_like(None)  # NumPy's own does not take descending
def argsort(a, axis=-1, kind=None, order=None, *, stable=None, descending=False):
    """The indices that would sort ``a`` along ``axis``, the largest first with ``descending``."""
    _plain_order(order)
    a, axis = on_axis(a, axis)
    stable = bool(stable) or kind in ("stable", "mergesort")
    if not descending:
        return bind(rows.argsort, a, axis=axis, stable=stable)
    # flipped before and after, so that a stable sort keeps the order of equal entries
    order = bind(rows.argsort, np.flip(a, axis), axis=axis, stable=stable)
    return a.shape[axis] - 1 - np.flip(order, axis)


@numpy_like(None)
def sort(a, axis=-1, kind=None, order=None, *, stable=None, descending=False):
    """``a`` sorted along ``axis``; the derivative follows each entry to its place.

    >>> import functrans.numpy as np
    >>> np.sort(np.asarray([1.0, 3.0, 2.0]), descending=True)
    Array([3., 2., 1.])
    """
    a, axis = on_axis(a, axis)
    order = argsort(a, axis, kind, order, stable=stable, descending=descending)
    return take_along_axis(a, order, axis)


@numpy_like(np.sort_complex)
def sort_complex(a):
    """``a`` sorted along its last axis by real, then imaginary part, as complex numbers."""
    y = sort(a)
    if y.dtype.kind == "c":
        return y
    return y.astype(np.sort_complex(np.zeros(1, y.dtype)).dtype)


@numpy_like(np.argpartition)
def argpartition(a, kth, axis=-1, kind="introselect", order=None):
    """The indices that would partition ``a`` along ``axis`` at ``kth``."""
    _plain_order(order)
    a, axis = on_axis(a, axis)
    n = a.shape[axis]
    ranks = tuple([operator.index(k) for k in np.atleast_1d(kth)])
    for k in ranks:
        if not -n <= k < n and a.size:
            raise ValueError(f"kth(={k}) out of bounds ({n})")
    return bind(rows.argpartition, a, kth=ranks, axis=axis)


@numpy_like(np.partition)
def partition(a, kth, axis=-1, kind="introselect", order=None):
    """``a`` with its ``kth`` smallest entry in place along ``axis``, smaller ones before it."""
    a, axis = on_axis(a, axis)
    return take_along_axis(a, argpartition(a, kth, axis, kind, order), axis)


@numpy_like(np.lexsort)
def lexsort(keys, axis=-1):
    """The indices that sort by the last of the ``keys``, then by the one before, and so on."""
    vectors = [as_operand(k) for k in keys]
    if not vectors:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    shape = np.broadcast_shapes(*[k.shape for k in vectors])
    if any(k.shape != shape for k in vectors):
        raise ValueError("all keys need to be the same shape")
    if not shape:
        return np.zeros((), np.intp)
    return bind(rows.lexsort, *vectors, axis=one_axis(axis, len(shape)))


@numpy_like(np.searchsorted)
def searchsorted(a, v, side="left", sorter=None):
    """Where the values ``v`` would be inserted into the sorted ``a``."""
    a = as_operand(a)
    if sorter is not None:
        a = take(a, sorter)
    if a.ndim != 1:
        raise ValueError("object too deep for desired array" if a.ndim else "object of too small "
                         "depth for desired array")
    if side not in ("left", "right"):
        raise ValueError(f"search side must be one of 'left' or 'right' (got {side!r})")
    return bind(rows.searchsorted, a, as_operand(v), side=side)


# ---- distinct entries


@numpy_like(np.unique)
def unique(ar, return_index=False, return_inverse=False, return_counts=False, axis=None, *,
           equal_nan=True, sorted=True):
    """The distinct entries of ``ar`` in order, each with the derivative of its first appearance."""
    ar = as_operand(ar)
    shape = ar.shape
    if axis is None:
        ar = ravel(ar)
    _, first, *others = np.unique(
        concrete(ar, "np.unique"), True, return_inverse, return_counts, axis, equal_nan=equal_nan
    )
    values = take(ar, first, 0 if axis is None else axis)
    rest = [first, *others] if return_index else others
    if return_inverse and axis is None:
        i = 1 if return_index else 0
        rest[i] = rest[i].reshape(shape)
    return (values, *rest) if rest else values


# The named tuples that NumPy's functions return.
_All, _Counts, _Inverse = [
    type(f(np.empty(0))) for f in (np.unique_all, np.unique_counts, np.unique_inverse)
]


@numpy_like(np.unique_values)
def unique_values(x, /):
    """The distinct entries of ``x`` in order; every NaN is distinct."""
    return unique(x, equal_nan=False)


@numpy_like(np.unique_counts)
def unique_counts(x, /):
    """The distinct entries of ``x`` in order, and how often each occurs."""
    return _Counts(*unique(x, return_counts=True, equal_nan=False))


@numpy_like(np.unique_inverse)
def unique_inverse(x, /):
    """The distinct entries of ``x`` in order, and which of them each entry of ``x`` is."""
    return _Inverse(*unique(x, return_inverse=True, equal_nan=False))


@numpy_like(np.unique_all)
def unique_all(x, /):
    """The distinct entries of ``x``, where each is first, which one each entry is, and counts."""
    return _All(*unique(x, True, True, True, equal_nan=False))


# ---- sets


@numpy_like(np.isin)
def isin(element, test_elements, assume_unique=False, invert=False, *, kind=None):
    """Whether each entry of ``element`` is among ``test_elements``."""
    x, among = as_operand(element), ravel(as_operand(test_elements))
    if not among.shape[0]:
        return np.full(x.shape, invert)
    among = sort(among)
    place = ops.minimum(searchsorted(among, x), among.shape[0] - 1)
    return (ops.not_equal if invert else ops.equal)(x, take(among, place))


def _distinct(ar, assume_unique):
    """``ar``, flat and without repetitions."""
    ar = ravel(as_operand(ar))
    return ar if assume_unique else unique(ar)


@numpy_like(np.union1d)
def union1d(ar1, ar2):
    """The distinct entries of both arrays in order."""
    return unique(np.concatenate([as_operand(ar1), as_operand(ar2)], axis=None))


@numpy_like(np.intersect1d)
def intersect1d(ar1, ar2, assume_unique=False, return_indices=False):
    """The distinct entries of ``ar1`` that are also in ``ar2``, in order."""
    ar1, ar2 = ravel(as_operand(ar1)), ravel(as_operand(ar2))
    _, i, j = np.intersect1d(
        concrete(ar1, "np.intersect1d"), concrete(ar2, "np.intersect1d"), assume_unique, True
    )
    values = take(ar1, i).astype(np.result_type(ar1.dtype, ar2.dtype))
    return (values, i, j) if return_indices else values


@numpy_like(np.setdiff1d)
def setdiff1d(ar1, ar2, assume_unique=False):
    """The distinct entries of ``ar1`` that are not in ``ar2``."""
    ar1 = _distinct(ar1, assume_unique)
    absent = concrete(isin(ar1, ar2, invert=True), "np.setdiff1d")
    return take(ar1, np.flatnonzero(absent))


@numpy_like(np.setxor1d)
def setxor1d(ar1, ar2, assume_unique=False):
    """The entries that are in only one of the arrays, in order."""
    both = sort(np.concatenate([_distinct(ar, assume_unique) for ar in (ar1, ar2)]))
    values = concrete(both, "np.setxor1d")
    step = np.concatenate([[True], values[1:] != values[:-1], [True]])
    return take(both, np.flatnonzero(step[1:] & step[:-1])) if both.shape[0] else both


@numpy_like(np.trim_zeros)
def trim_zeros(filt, trim="fb", axis=None):
    """``filt`` without the zeros at its ends."""
    x = as_operand(filt)
    trim = trim.lower()
    if trim not in {"fb", "bf", "f", "b"}:
        raise ValueError(f"unexpected character(s) in `trim`: {trim!r}")
    axes = axes_of(axis, x.ndim)
    kept = concrete(x != 0, "np.trim_zeros")
    whole = slice(None)
    return x[tuple([_trimmed(kept, i, trim) if i in axes else whole for i in range(x.ndim)])]


def _trimmed(kept: np.ndarray, i: int, trim: str) -> slice:
    """The slice of axis ``i`` without the zeros at its ends."""
    others = tuple([j for j in range(kept.ndim) if j != i])
    nonzero = np.flatnonzero(kept.any(axis=others))
    if not nonzero.size:
        return slice(0, 0)
    start = int(nonzero[0]) if "f" in trim else None
    return slice(start, int(nonzero[-1]) + 1 if "b" in trim else None)


def _in_place(name):
    def method(self, *args, **kwargs):
        raise UnsupportedError(
            f"{user_line()}: x.{name}() would change a traced array in place; use np.{name}(x)."
        )

    return method


METHODS = {
    "argsort": argsort,
    "argpartition": argpartition,
    "searchsorted": searchsorted,
    "sort": _in_place("sort"),
    "partition": _in_place("partition"),
}
