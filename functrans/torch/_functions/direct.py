"""Calls that are one row of tensors in single or double precision, without a trace.

A function's ``by_row(*args)``, which ``op`` asks first, is the row, operands and parameters, or
the result of a few such calls, or None where the call is more than that. NumPy's name, its
arguments and a trace would take longer than the row on some hundred numbers. Where NumPy refuses
the operands, the general way says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from functrans.extend import TABLE, Linear, Primitive, Tracer
from functrans.torch._functions.outputs import in_batch
from functrans.torch._graph.graph import RowNode
from functrans.torch._graph.modes import state, unusual
from functrans.torch._graph.quiet import quietly
from functrans.torch._tensors.tensor import Tensor, from_array, recorded_edge

FLOATS = np.dtype(np.float32), np.dtype(np.float64)


class RowCall(NamedTuple):
    """A row with its operands, tensors and what has no gradient, and its parameters."""

    row: Primitive
    operands: Sequence
    params: dict


ByRow = Callable[..., RowCall | Tensor | None]


def are_plain(*xs: Any) -> bool:
    """Whether these are tensors of one type, in single or double precision."""
    dtype = None
    for x in xs:
        if not isinstance(x, Tensor):
            return False
        array = x._array
        if type(array) is not ndarray:
            return False
        if dtype is None:
            dtype = array.dtype
        elif array.dtype is not dtype:
            return False
    return dtype in FLOATS


def axis_of(dim: Any, ndim: int) -> int | None:
    """``dim`` counted from the first, None where it is no int or there is no such dimension."""
    return dim % ndim if type(dim) is int and -ndim <= dim < ndim else None


def record_row(kind: type[RowNode], title: str, call: RowCall) -> Tensor | None:
    """The output of a row, or its first, on new memory, with its node, of ``kind``; None where an
    open batch captures an operand."""
    row, operands, params = call
    primals, edges, storages = [], [], []
    recording = state.grad
    for x in operands:
        edge = storage = None
        if isinstance(x, Tensor):
            storage = x._storage
            if recording:
                edge = recorded_edge(x)
            x = x._array
        primals.append(x)
        edges.append(edge)
        storages.append(storage)
    impl = row.impl
    y = impl(*primals, **params) if type(row) is Linear else quietly(impl, *primals, **params)
    out = from_array(y if row.outputs == 1 else y[0])
    if any(edges):
        if unusual and isinstance(out._array, Tracer) and in_batch(*operands):
            return None
        kept = out._array if row.outputs == 1 else y
        out._node = kind(title, row, edges, primals, kept, params, storages, out._storage)
    return out


# ---- joining


def cat_row(tensors, dim=0):
    axis = axis_of(dim, tensors[0]._array.ndim) if _are_plain(tensors) else None
    return None if axis is None else RowCall(TABLE["concatenate"], tensors, {"axis": axis})


def _are_plain(tensors: Any) -> bool:
    return type(tensors) in (list, tuple) and len(tensors) > 0 and are_plain(*tensors)


def stack_row(tensors, dim=0):
    if not _are_plain(tensors):
        return None
    axis = axis_of(dim, tensors[0]._array.ndim + 1)
    return None if axis is None else RowCall(TABLE["stack"], tensors, {"axis": axis})
