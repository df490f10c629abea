"""Indexing by constant arrays: where the entries lie is worked out once, before compiling.

Loops check nothing, therefore, and an index out of bounds is left to NumPy, which raises when the
program runs. Only the index arrays are listed: other axes have strides.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from functrans._compile.ir.program import Const, Eqn
from functrans._compile.schedule import views
from functrans._compile.schedule.gather import axes_of
from functrans._compile.schedule.views import Shape, View
from functrans._ops.indexing import ARRAY, WHOLE

# The most places that are worked out.
LISTED = 1 << 22

# Tables of places, by the index arrays and what they are multiplied by: those of columns are equal.
Tables = dict[Any, tuple[View, Shape]]


def gathered(v: View, eqn: Eqn, tables: Tables) -> View | None:
    """The view that indexing ``v`` by constant arrays makes, without axes of length 1."""
    shape = eqn.outputs[0].aval.shape
    if not v.whole or 0 in shape:
        return None
    v, offset = replace(v, offset=0), v.offset
    key = *map(id, eqn.inputs[1:]), v.shape, v.strides, str(eqn.params["pattern"])
    if key not in tables:
        places = _places(v, eqn)
        if places is None:
            return None
        tables[key] = _split(*places, shape)
    index, strides = tables[key]
    shape = tuple([n for n in shape if n != 1])
    return View(v.root, shape, offset, strides, views.full(shape), index)


def scattered(shape: Shape, eqn: Eqn) -> tuple[View, Shape] | None:
    """Where in the output entries of this shape are added: an index and strides."""
    out = eqn.outputs[0]
    places = None if 0 in shape else _places(views.identity(out, out.aval.shape), eqn)
    return None if places is None else _split(*places, shape)


def _places(v: View, eqn: Eqn) -> tuple[np.ndarray, Shape] | None:
    """The places that constant index arrays select, and strides along the axes that they leave.

    The places have length 1 along these axes. None where they are not known.
    """
    pattern, indices = eqn.params["pattern"], eqn.inputs[1:]
    # places may be more than an index of few bits can say
    arrays = [a.value.astype(np.int64) for a in indices
              if isinstance(a, Const) and a.value.dtype.kind == "i"]
    if len(arrays) < len(indices) or math.prod(v.shape) < 2:
        return None
    part = views.indexed(v, tuple([WHOLE if e is ARRAY else e for e in pattern]))
    axes = axes_of(pattern, len(v.shape), arrays)
    places = np.array(part.offset, np.int64)
    for i, axis in zip(arrays, axes.indexed, strict=True):
        n = part.shape[axis]
        if i.size and not -n <= i.min() <= i.max() < n:
            return None
        places = places + part.strides[axis] * np.where(i < 0, i + n, i)
    if places.size > LISTED:
        return None
    left = [s for axis, s in enumerate(part.strides) if axis not in axes.indexed]
    before, behind = left[: axes.start], left[axes.start :]
    shape = (1,) * len(before) + places.shape + (1,) * len(behind)
    return places.reshape(shape), (*before, *(0,) * places.ndim, *behind)


def _split(places: np.ndarray, strides: Shape, shape: Shape) -> tuple[View, Shape]:
    """Places as a table, and strides also along axes where they follow each other evenly."""
    steps = list(strides)
    for axis, n in enumerate(places.shape):
        if n > 1:
            apart = np.diff(places, axis=axis)
            if (apart == apart.flat[0]).all():
                steps[axis] = int(apart.flat[0])
                places = places.take([0], axis)
    table = Const(np.ascontiguousarray(places))
    index = views.broadcast(views.identity(table, places.shape), shape)
    return views.squeezed(index), tuple([s for s, n in zip(steps, shape, strict=True) if n != 1])
