"""``np.pad``: each mode is an index, an interpolation or a statistic along one axis at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans._core.bind import bind
from functrans._ops import indexing
from functrans._ops.structure import along
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.joining import concatenate
from functrans.numpy.quantiles import median
from functrans.numpy.reductions import max, mean, min
from functrans.numpy.structure import (
    as_operand,
    broadcast_to,
    is_traced,
    numpy_like,
    reshape,
    take_axis,
)

STATISTICS = {"maximum": max, "mean": mean, "median": median, "minimum": min}
# mode -> its options and their defaults
OPTIONS: dict[str, dict[str, Any]] = {
    "constant": {"constant_values": 0},
    "empty": {},
    "linear_ramp": {"end_values": 0},
    "edge": {},
    "wrap": {},
    "reflect": {"reflect_type": "even"},
    "symmetric": {"reflect_type": "even"},
    **{name: {"stat_length": None} for name in STATISTICS},
}


@numpy_like(np.pad)
def pad(array, pad_width, mode="constant", **kwargs):
    """``array`` with ``pad_width`` entries added at both ends of each axis, in any NumPy mode.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(lambda x: np.sum(np.pad(x, 1, "reflect")))(np.ones(3))
    Array([1., 3., 1.])
    """
    x = as_operand(array)
    widths = _widths(pad_width, x.ndim)
    option = _option(mode, kwargs)
    if not x.ndim:
        return x
    if mode == "constant":
        return _constant(x, widths, option)
    for axis, (before, after) in enumerate(widths):
        if before or after:
            x = _one_axis(x, axis, before, after, mode, option)
    return x


def _widths(pad_width: Any, ndim: int) -> list[list[int]]:
    """Widths before and after each axis, checked with NumPy's errors."""
    if isinstance(pad_width, dict):
        pad_width = [pad_width.get(i, pad_width.get(i - ndim, 0)) for i in range(ndim)]
        pad_width = [(w, w) if np.ndim(w) == 0 else w for w in pad_width]
    pad_width = np.asarray(pad_width)
    if pad_width.dtype.kind not in "iu":
        raise TypeError("`pad_width` must be of integral type.")
    widths = np.broadcast_to(pad_width, (ndim, 2)).tolist()
    if any(w < 0 for pair in widths for w in pair):
        raise ValueError("index can't contain negative values")
    return widths


def _option(mode: Any, kwargs: dict[str, Any]) -> Any:
    """The value of the one option that ``mode`` takes."""
    if callable(mode):
        raise UnsupportedError(
            f"{user_line()}: np.pad(mode=<function>) lets the function write into a traced array; "
            "use one of NumPy's modes, or np.concatenate."
        )
    if mode not in OPTIONS:
        raise ValueError(f"mode '{mode}' is not supported")
    options = OPTIONS[mode]
    if unknown := set(kwargs) - set(options):
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': {unknown}")
    return next(iter({**options, **kwargs}.values()), None)


def _pairs(value, ndim):
    """``value`` for both ends of each axis, as an array of shape (ndim, 2)."""
    return broadcast_to(as_operand(value), (ndim, 2))


def _constant(x, widths, value):
    inside = tuple([(a, a + n, None) for (a, _), n in zip(widths, x.shape, strict=True)])
    if not is_traced(value):
        frame = np.pad(np.zeros(x.shape, x.dtype), widths, constant_values=value)
        if not np.any(value):
            return bind(indexing.put_add, x, pattern=inside, shape=frame.shape)
        return bind(indexing.scatter_set, frame, x, pattern=inside)
    value = _pairs(value, x.ndim).astype(x.dtype)
    for axis, (before, after) in enumerate(widths):
        ends = [_filled(value[axis, end], x, axis, n) for end, n in enumerate((before, after))]
        x = concatenate((ends[0], x, ends[1]), axis)
    return x


def _filled(v, x, axis, n):
    """``v`` broadcast to the shape of ``x``, but with length ``n`` along ``axis``."""
    return broadcast_to(v, (*x.shape[:axis], n, *x.shape[axis + 1 :]))


def _one_axis(x, axis, before, after, mode, option):
    n = x.shape[axis]
    if n == 0 and mode != "empty":
        raise ValueError(
            f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'"
        )
    if mode == "empty":
        zero = np.zeros((), x.dtype)
        ends = [_filled(zero, x, axis, before), _filled(zero, x, axis, after)]
    elif mode in STATISTICS:
        ends = _statistics(x, axis, (before, after), STATISTICS[mode], option)
    elif mode == "linear_ramp":
        ends = _ramps(x, axis, (before, after), option)
    else:
        y = take_axis(x, np.pad(np.arange(n), (before, after), mode), axis)
        return _odd(y, x, axis, (before, after), mode) if option == "odd" else y
    return concatenate((ends[0], x, ends[1]), axis)


def _statistics(x, axis, widths, statistic, lengths):
    n, ends = x.shape[axis], []
    lengths = [None, None] if lengths is None else np.broadcast_to(lengths, (x.ndim, 2))[axis]
    for end, (width, length) in enumerate(zip(widths, lengths, strict=True)):
        length = n if length is None or length > n else int(length)
        if length < 1 and width and statistic in (max, min):
            raise ValueError("stat_length of 0 yields no value for padding")
        part = slice(n - length, n) if end else slice(length)
        y = statistic(x[along(axis, part)], axis, keepdims=True)
        y = y if x.dtype.kind not in "iu" else np.round(y)
        ends.append(_filled(y.astype(x.dtype), x, axis, width))
    return ends


def _ramps(x, axis, widths, end_values):
    values, ends = _pairs(end_values, x.ndim), []
    for end, width in enumerate(widths):
        last, edge = values[axis, end], x[along(axis, slice(-1, None) if end else slice(1))]
        steps = np.arange(width)[:: -1 if end else 1]
        steps = steps.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        ramp = steps * ((edge - last) / (width or 1)) + last
        ends.append((np.floor(ramp) if x.dtype.kind in "iu" else ramp).astype(x.dtype))
    return ends


def _odd(y, x, axis, widths, mode):
    """The odd extension of ``x``, from the even one ``y``: a sum of ``y`` and the edges of ``x``.

    Its weights come from NumPy, which extends two arrays that are 1 at one edge and 0 elsewhere.
    """
    n = x.shape[axis]
    if n == 1:
        return y
    first, last = (
        np.pad((np.arange(n) == edge).astype(x.dtype), widths, mode, reflect_type="odd")
        for edge in (0, n - 1)
    )
    source = np.pad(np.arange(n), widths, mode)
    rest = np.where((source > 0) & (source < n - 1), 1 - first - last, 0)
    shape = [-1 if i == axis else 1 for i in range(x.ndim)]
    edges = x[along(axis, slice(1))], x[along(axis, slice(-1, None))]
    first, last, rest = (reshape(w.astype(x.dtype), shape) for w in (first, last, rest))
    return rest * y + first * edges[0] + last * edges[1]
