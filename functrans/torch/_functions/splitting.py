"""Tensors in parts: functions that return several views of one."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans.torch._functions.shapes import dimension
from functrans.torch._functions.table import method
from functrans.torch._graph.views import getitem, several
from functrans.torch._tensors.tensor import Tensor

_WHOLE = None, None, None


@method
def unbind(input: Tensor, dim: int = 0) -> tuple:
    """The entries along ``dim``, each a view."""
    shape = input._array.shape
    if not shape:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    dim = dimension(dim, len(shape))
    patterns = [(*[_WHOLE] * dim, i, Ellipsis) for i in range(shape[dim])]
    return several("UnbindBackward0", getitem, (input,),
                   {"patterns": patterns, "join": np.stack, "axis": dim})


@method
def split(input: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple:
    """Views of so many entries each along ``dim``, or of the lengths in a list."""
    n = input._array.shape[dim]
    lengths = split_size_or_sections
    title = "SplitBackward0" if isinstance(lengths, int) else "SplitWithSizesBackward0"
    if isinstance(lengths, int):
        if lengths < 0 or (not lengths and n):
            raise RuntimeError(
                f"split_size can only be 0 if dimension size is 0, but got dimension size of {n}, "
                f"and split: {lengths}"
            )
        patterns = _even_parts(n, lengths, dimension(dim, input._array.ndim))
    elif sum(lengths) != n:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {n} (input tensor's size at "
            f"dimension {dim}), but got split_sizes={list(lengths)}"
        )
    else:
        patterns = _parts(lengths, dimension(dim, input._array.ndim))
    return several(title, getitem, (input,),
                   {"patterns": patterns, "join": np.concatenate, "axis": dim})


def _parts(lengths: Sequence[int], axis: int) -> tuple[tuple, ...]:
    """The patterns that read parts of these lengths along ``axis``."""
    before, stops = [_WHOLE] * axis, itertools.accumulate(lengths)
    return tuple([(*before, (s - k, s, None), Ellipsis)
                  for s, k in zip(stops, lengths, strict=True)])


@functools.lru_cache(1024)
def _even_parts(n: int, length: int, axis: int) -> tuple[tuple, ...]:
    """``_parts`` of one length, the last of what is left of ``n``."""
    return _parts([min(length, n - i) for i in range(0, n, length)] or [0], axis)


@method
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple:
    """At most ``chunks`` views of nearly equal length along ``dim``."""
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    return split(input, -(-input._array.shape[dim] // chunks) or 1, dim)
