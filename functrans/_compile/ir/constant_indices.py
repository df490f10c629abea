"""Indexing by constant arrays: NumPy works out once, before compiling, where the entries lie.

Negative indices, masks and the order of the axes are therefore NumPy's own, loops check nothing,
and an index out of bounds is left to NumPy, which raises when the program runs.
"""

from __future__ import annotations

import math

import numpy as np

from functrans._compile.ir.program import Const, Eqn
from functrans._compile.schedule import views
from functrans._compile.schedule.views import Shape, View
from functrans._ops.indexing import index_of

# Entries of the largest array whose places are worked out.
LISTED = 1 << 22


def gathered(v: View, eqn: Eqn) -> View | None:
    """The view that indexing ``v`` by constant arrays makes, without axes of length 1."""
    places = _places(v.shape, v.strides, v.offset, eqn)
    if places is None or not v.whole or places.shape != eqn.outputs[0].aval.shape:
        return None
    index, strides = _split(places)
    shape = tuple([n for n in places.shape if n != 1])
    return View(v.root, shape, 0, strides, views.full(shape), index)


def scattered(shape: Shape, eqn: Eqn) -> tuple[View, Shape] | None:
    """Where in the output entries of this shape are added: an index and strides."""
    out = eqn.outputs[0].aval.shape
    places = _places(out, views.c_strides(out), 0, eqn)
    return None if places is None or places.shape != shape else _split(places)


def _places(shape: Shape, strides: Shape, offset: int, eqn: Eqn) -> np.ndarray | None:
    """Places of the entries that constant index arrays select, None where they are not known."""
    size, indices = math.prod(shape), eqn.inputs[1:]
    if not 1 < size <= LISTED or not all(isinstance(a, Const) for a in indices):
        return None
    places = np.full(shape, offset, np.int64)
    for axis, (n, s) in enumerate(zip(shape, strides, strict=True)):
        places += (s * np.arange(n)).reshape([n if i == axis else 1 for i in range(len(shape))])
    values = tuple([a.value for a in indices if isinstance(a, Const)])
    try:
        taken = places[index_of(eqn.params["pattern"], values)]
    except IndexError:
        return None
    return taken if 0 < taken.size <= LISTED else None


def _split(places: np.ndarray) -> tuple[View, Shape]:
    """Places as a table, and strides along axes where they follow each other evenly."""
    shape = places.shape
    strides = []
    for axis, n in enumerate(shape):
        steps = np.diff(places, axis=axis)
        even = n > 1 and bool((steps == steps.flat[0]).all())
        strides.append(int(steps.flat[0]) if even else 0)
        if even:
            places = places.take([0], axis)
    table = Const(np.ascontiguousarray(places))
    index = views.broadcast(views.identity(table, places.shape), shape)
    return views.squeezed(index), tuple([s for s, n in zip(strides, shape, strict=True) if n != 1])
