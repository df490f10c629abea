"""Pooling over windows whose places are drawn: ``fractional_max_pool2d`` and ``3d``."""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans.torch._functions.reductions import Extreme
from functrans.torch._functions.table import NN, op, plain
from functrans.torch._graph.titles import named
from functrans.torch._tensors.random import source
from functrans.torch._tensors.tensor import Tensor, from_array
from functrans.torch.nn._functions.convolutions import each


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
def _greatest(x, starts, sizes):
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
        y, index = _greatest(x, starts, sizes)
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
