"""Sums over entries that an index array groups."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from functrans import numpy as fnp
from functrans._core.array import shape_of
from functrans._core.bind import AnyArray, known_value
from functrans._transforms.arguments import describe, is_number
from functrans.errors import ArgumentError, ShapeError, user_line
from functrans.numpy.public import public


@public
def segment_sum(data: Any, segment_ids: Any, num_segments: int | None = None) -> AnyArray:
    """Sums of the rows of ``data`` that have the same id: ``y[k] = sum(x[j] where i[j] == k)``.

    ``data`` has shape ``(n, ...)``, ``segment_ids`` are n integers in any order. They are indices
    of the result: one that is out of bounds raises IndexError, a negative one counts from the end.
    ``num_segments`` is the length of the result; without it, the largest id plus 1, which under
    ``jit`` and ``vmap`` over the ids is not known.

    Returns an array of shape ``(num_segments, ...)``; a segment without rows is 0.

    Raises ShapeError where there is not one id for each row, ArgumentError where ids are no
    integers, or their largest is not known.

    >>> import functrans as ft, numpy as np
    >>> ft.segment_sum(np.array([1.0, 2.0, 4.0]), np.array([1, 0, 1]))
    Array([2., 5.])
    >>> ft.grad(lambda x: ft.segment_sum(x, np.array([1, 0, 1]), 3)[1])(np.ones(3))
    Array([1., 0., 1.])
    """
    who = f"{user_line()}: segment_sum"
    data = data if is_number(data) else np.asarray(data)
    ids = segment_ids if is_number(segment_ids) else np.asarray(segment_ids)
    if ids.dtype.kind not in "iu":
        raise ArgumentError(f"{who}: segment_ids are integers, but got {describe(ids)}")
    if shape_of(ids) != shape_of(data)[:1] or not shape_of(data):
        raise ShapeError(f"{who}: data of shape {shape_of(data)} needs an id for each row, but "
                         f"segment_ids has shape {shape_of(ids)}")
    if num_segments is None:
        known = known_value(ids)
        if known is None:
            raise ArgumentError(f"{who} cannot tell how many segments there are, since the ids are "
                                "traced; pass num_segments")
        num_segments = int(np.max(known, initial=-1)) + 1
    zeros = fnp.zeros((operator.index(num_segments), *shape_of(data)[1:]), data.dtype)
    return zeros.at[ids].add(data)
