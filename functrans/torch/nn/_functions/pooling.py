"""Pooling: means, norms and extremes of windows, whose places may be drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.extend import AnyArray
from functrans.torch._functions.reductions import Extreme
from functrans.torch._functions.scattering import write
from functrans.torch._functions.table import NN, op, plain
from functrans.torch._graph.nodes import named
from functrans.torch._tensors.random import source
from functrans.torch._tensors.tensor import Tensor, from_array
from functrans.torch.nn._functions.convolutions import each, pad, windows

# ---- Pooling: means, norms and extremes of windows


def _shape(who: str, x: Any, n: int) -> AnyArray:
    if x.ndim not in (n + 1, n + 2):
        raise RuntimeError(f"{who}: Expected {n + 1}D or {n + 2}D input, but got {x.ndim}D")
    return x if x.ndim == n + 2 else x[None]


def _geometry(n: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any = None) -> tuple:
    """The sizes of windows, their steps, which are the sizes by default, the padding, and the
    spreads of entries; an error where windows may hold nothing but padding."""
    sizes, pads = each(kernel_size, n), each(padding, n)
    spreads = each(1 if dilation is None else dilation, n)
    steps = each(stride, n) if stride is not None and stride != () else sizes
    for what, values in (("kernel_size", sizes), ("stride", steps), ("dilation", spreads)):
        if min(values) < 1:
            raise RuntimeError(f"{what} must be greater than zero, but got {min(values)}")
    if any(2 * p > k for p, k in zip(pads, sizes, strict=True)):
        spread = "" if dilation is None else f" and dilation={spreads[0]}"
        raise RuntimeError("pad should be at most half of effective kernel size, but got "
                           f"pad={pads[0]}, kernel_size={sizes[0]}{spread}")
    return sizes, steps, pads, spreads


def _counts(lengths: Any, sizes: Any, steps: Any, pads: Any, spreads: Any, ceil: bool) -> list:
    """How many windows there are; with ``ceil`` also those that begin before the end."""
    counts = []
    for length, k, t, p, d in zip(lengths, sizes, steps, pads, spreads, strict=True):
        free = length + 2 * p - d * (k - 1) - 1
        count = (-(-free // t) if ceil else free // t) + 1
        if ceil and (count - 1) * t >= length + p:
            count -= 1
        if count < 1:
            raise RuntimeError(f"Output size is too small: there is no window of {k} in a length "
                               f"of {length}")
        counts.append(count)
    return counts


def _cover(x: Any, sizes: Any, steps: Any, pads: Any, spreads: Any, counts: Any,
           value: Any) -> AnyArray:
    """``x`` padded so far that all windows have their entries."""
    ends = []
    for length, k, t, p, d, c in zip(x.shape[2:], sizes, steps, pads, spreads, counts, strict=True):
        ends.append((p, max((c - 1) * t + d * (k - 1) + 1 - length - p, 0)))
    x = pad(x, ends, value)
    keep = [(c - 1) * t + d * (k - 1) + 1 for k, t, d, c in zip(sizes, steps, spreads, counts,
                                                               strict=True)]
    return x[(..., *[slice(k) for k in keep])]


def _average(n: int) -> Callable:
    def pool(input, kernel_size, stride=None, padding=0, ceil_mode=False,
             count_include_pad=True, divisor_override=None):
        x = _shape(f"avg_pool{n}d", input, n)
        sizes, steps, pads, ones = _geometry(n, kernel_size, stride, padding)
        if divisor_override == 0:
            raise RuntimeError("divisor must be not zero")
        counts = _counts(x.shape[2:], sizes, steps, pads, ones, ceil_mode)
        w = windows(_cover(x, sizes, steps, pads, ones, counts, 0), sizes, steps, ones)
        y = np.sum(w, axis=tuple(range(-n, 0)))
        if x.dtype.kind in "iu":
            each_of = divisor_override or _divisors(x, sizes, steps, pads, counts,
                                                    count_include_pad)
            y = (y // each_of).astype(x.dtype)
        elif divisor_override is not None:
            y = y / divisor_override
        else:
            y = y / _divisors(x, sizes, steps, pads, counts, count_include_pad)
        return y if input.ndim == n + 2 else y[0]

    return op(pool, f"avg_pool{n}d", "The mean of each window.", method=False,
              title=f"AvgPool{n}DBackward0")


def _divisors(x: Any, sizes: Any, steps: Any, pads: Any, counts: Any, padding: bool) -> np.ndarray:
    """How many entries each window has, with those of the padding or without."""
    total = np.ones((), x.dtype)
    for length, k, t, p, c in zip(x.shape[2:], sizes, steps, pads, counts, strict=True):
        start = np.arange(c) * t - p
        end = np.minimum(start + k, length + p)
        if not padding:
            start, end = np.maximum(start, 0), np.minimum(end, length)
        total = total[..., None] * (end - start).astype(x.dtype)
    return total


def _greatest(n: int) -> Callable:
    def pool(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
        x = _shape(f"max_pool{n}d", input, n)
        sizes, steps, pads, spreads = _geometry(n, kernel_size, stride, padding, dilation)
        counts = _counts(x.shape[2:], sizes, steps, pads, spreads, ceil_mode)
        low = -np.inf if x.dtype.kind in "fV" else np.iinfo(x.dtype).min
        places = np.arange(math.prod(x.shape[2:])).reshape(x.shape[2:])
        options = sizes, steps, pads, spreads, counts
        w = windows(_cover(plain(x), *options, low), sizes, steps, spreads)
        where = windows(_cover(places[None, None], *options, -1), sizes, steps, spreads)
        flat = np.broadcast_to(w, w.shape).reshape((*w.shape[:-n], -1))
        unknown = flat != flat
        best = np.where(unknown.any(-1), np.argmax(unknown, -1), np.argmax(flat, -1))
        where = np.broadcast_to(where, w.shape).reshape(flat.shape)
        index = np.take_along_axis(where, best[..., None], -1)[..., 0]
        return _at(x, index, input.ndim == n + 2)

    name = f"max_pool{n}d"
    both = op(pool, f"{name}_with_indices", "The greatest of each window, and its place.",
              space=NN, title=f"MaxPool{n}DWithIndicesBackward0")

    def chosen(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False,
               return_indices=False):
        result = both(input, kernel_size, stride, padding, dilation, ceil_mode)
        return tuple(result) if return_indices else result[0]

    return named(chosen, name, "The greatest entry of each window, with its place where asked.")


def _at(x: Any, index: np.ndarray, batched: bool) -> Extreme:
    """The entries at flat places of the last dimensions, and the places."""
    flat = x.reshape((*x.shape[:2], -1))
    y = np.take_along_axis(flat, index.reshape((*index.shape[:2], -1)), -1)
    y = y.reshape(index.shape)
    return Extreme(y, index) if batched else Extreme(y[0], index[0])


def _unpool(n: int) -> Callable:
    def unpool(input, indices, kernel_size, stride=None, padding=0, output_size=None):
        (sizes, steps, *_), pads = _geometry(n, kernel_size, stride, 0), each(padding, n)
        lengths = [(s - 1) * t - 2 * p + k for s, t, p, k in zip(
            input.shape[-n:], steps, pads, sizes, strict=True)]
        if output_size is not None:
            lengths = list(output_size)[-n:]
        lead = input.shape[:-n]
        flat = np.zeros((*lead, math.prod(lengths)), input.dtype)
        index = plain(indices).reshape((*lead, -1))
        if index.size and (index.min() < 0 or index.max() >= flat.shape[-1]):
            raise RuntimeError("Found an invalid max index: "
                               f"{index.max()} (output volumes are of size {lengths})")
        grid = np.ogrid[tuple([slice(k) for k in lead])]
        key = (*[g[..., None] for g in grid], index)
        y = write(flat, key, input.reshape((*lead, -1)))
        return y.reshape((*lead, *lengths))

    return op(unpool, f"max_unpool{n}d", "Zeros, with entries put back at their places.",
              method=False, title=f"MaxUnpool{n}DBackward0")


def _norm(n: int) -> Callable:
    def pool(input, norm_type, kernel_size, stride=None, ceil_mode=False):
        sizes = each(kernel_size, n)
        p = float(norm_type)
        mean = NN[f"avg_pool{n}d"].body(input**p, kernel_size, stride, 0, ceil_mode)
        scaled = np.sign(plain(mean)) * np.maximum(np.absolute(mean), 0) * math.prod(sizes)
        return scaled ** (1 / p)

    return op(pool, f"lp_pool{n}d", "The p-norm of each window.", method=False,
              title="PowBackward0")


# ---- as many windows as are asked for


def _bounds(length: int, count: int) -> list[tuple[int, int]]:
    return [(i * length // count, -(-(i + 1) * length // count)) for i in range(count)]


def _targets(x: Any, output_size: Any, n: int) -> list[int]:
    many = list(output_size) if isinstance(output_size, list | tuple) else [output_size] * n
    return [x.shape[-n + i] if k is None else int(k) for i, k in enumerate(many)]


def _adaptive_average(n: int) -> Callable:
    def pool(input, output_size):
        x = _shape(f"adaptive_avg_pool{n}d", input, n)
        for i, k in enumerate(_targets(x, output_size, n)):
            axis = 2 + i
            lead = (slice(None),) * axis
            parts = [np.mean(x[(*lead, slice(a, b))], axis=axis)
                     for a, b in _bounds(x.shape[axis], k)]
            x = np.stack(parts, axis) if parts else x[(*lead, slice(0))]
        return x if input.ndim == n + 2 else x[0]

    return op(pool, f"adaptive_avg_pool{n}d", "Means of windows, so many of them.", method=False,
              title=f"AdaptiveAvgPool{n}DBackward0")


def _adaptive_greatest(n: int) -> Callable:
    def pool(input, output_size):
        x = _shape(f"adaptive_max_pool{n}d", input, n)
        targets = _targets(x, output_size, n)
        values, lengths = plain(x), x.shape[2:]
        index = np.zeros((*x.shape[:2], *targets), np.int64)
        ends = [_bounds(s, k) for s, k in zip(lengths, targets, strict=True)]
        for at in np.ndindex(*targets):
            cut = [ends[i][j] for i, j in enumerate(at)]
            part = values[(..., *[slice(a, b) for a, b in cut])]
            best = np.argmax(part.reshape((*part.shape[:2], -1)), -1)
            inside = np.unravel_index(best, part.shape[2:])
            index[(..., *at)] = np.ravel_multi_index(
                [j + a for j, (a, _) in zip(inside, cut, strict=True)], lengths)
        return _at(x, index, input.ndim == n + 2)

    name = f"adaptive_max_pool{n}d"
    both = op(pool, f"{name}_with_indices", "The greatest of windows, so many of them.", space=NN,
              title=f"AdaptiveMaxPool{n}DBackward0")

    def chosen(input, output_size, return_indices=False):
        result = both(input, output_size)
        return tuple(result) if return_indices else result[0]

    return named(chosen, name, "The greatest entries of windows, so many of them.")


for _n in (1, 2, 3):
    NN[f"avg_pool{_n}d"] = _average(_n)
    NN[f"max_pool{_n}d"] = _greatest(_n)
    NN[f"max_unpool{_n}d"] = _unpool(_n)
    NN[f"lp_pool{_n}d"] = _norm(_n)
    NN[f"adaptive_avg_pool{_n}d"] = _adaptive_average(_n)
    NN[f"adaptive_max_pool{_n}d"] = _adaptive_greatest(_n)


# ---- Pooling over windows whose places are drawn: ``fractional_max_pool2d`` and ``3d``


def _starts(samples: np.ndarray, length: int, count: int, size: int) -> np.ndarray:
    """Where the windows begin, in a new last dimension: steps by a fraction, rounded down.

    Graham, Fractional max-pooling, 2014.
    """
    at = np.arange(count)
    step = (length - size) / max(count - 1, 1)
    u = samples[..., None]
    places = ((at + u) * step).astype(int) - (u * step).astype(int)
    return np.where(at == count - 1, length - size, places)


@op(method=False, title="FractionalMaxPoolBackward0")
def _greatest_of_windows(x, starts, sizes):
    """The greatest entry of each window of a batch of images, and its place in the image."""
    n, c, *lengths = x.shape
    counts = [s.shape[-1] for s in starts]
    index: Any = 0
    for axis, (start, size, length) in enumerate(zip(starts, sizes, lengths, strict=True)):
        place = start[..., None] + np.arange(size)  # (n, c, count, size)
        shape = [n, c, *[1] * (2 * len(sizes))]
        shape[2 + axis], shape[2 + len(sizes) + axis] = counts[axis], size
        index = index * length + place.reshape(shape)
    index = index.reshape((n, c, int(np.prod(counts)), -1))
    flat = x.reshape((n, c, -1))
    values = np.take_along_axis(plain(flat), index.reshape((n, c, -1)), 2).reshape(index.shape)
    best = np.where(np.isnan(values), np.inf, values).argmax(-1)[..., None]
    chosen = np.take_along_axis(index, best, -1)[..., 0]
    y = np.take_along_axis(flat, chosen, 2)
    return Extreme(y.reshape((n, c, *counts)), chosen.reshape((n, c, *counts)))


def _enter(n: int) -> None:
    name = f"fractional_max_pool{n}d"

    def with_indices(input: Tensor, kernel_size: Any, output_size: Any = None,
                     output_ratio: Any = None, return_indices: bool = False,
                     _random_samples: Tensor | None = None) -> Any:
        if input.ndim not in (n + 1, n + 2):
            raise RuntimeError(f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got: "
                               f"{list(input.shape)}")
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
        x = input if input.ndim == n + 2 else input.unsqueeze(0)
        lengths, sizes = x.shape[2:], each(kernel_size, n)
        if output_size is None:
            ratios = output_ratio if isinstance(output_ratio, tuple | list) else [output_ratio] * n
            counts = tuple([int(s * r) for s, r in zip(lengths, ratios, strict=True)])
        else:
            counts = each(output_size, n)
        for length, count, size in zip(lengths, counts, sizes, strict=True):
            if count + size - 1 > length:
                raise RuntimeError(f"{name}(): pool size {size} too large relative to input size "
                                   f"{length} for an output of size {count}")
        samples = (source().random((*x.shape[:2], n)) if _random_samples is None
                   else _random_samples._array)
        # samples are of width, height in two dimensions, of depth, height, width in three
        order = (1, 0) if n == 2 else (0, 1, 2)
        starts = [_starts(samples[..., k], *of)
                  for k, of in zip(order, zip(lengths, counts, sizes, strict=True), strict=True)]
        y, index = _greatest_of_windows(x, starts, sizes)
        index = from_array(index._array)
        return Extreme(y, index) if input.ndim == n + 2 else Extreme(y[0], index[0])

    def pool(input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None,
             return_indices: bool = False, _random_samples: Tensor | None = None) -> Any:
        both = with_indices(input, kernel_size, output_size, output_ratio, True, _random_samples)
        return tuple(both) if return_indices else both[0]

    for f, called in ((with_indices, f"{name}_with_indices"), (pool, name)):
        NN[called] = named(f, called, "The greatest entries of windows at places that are drawn.")


_enter(2)
_enter(3)
