"""Derivatives of functions of tensors by number and by the engine, for ``gradcheck`` to compare.

A derivative is taken along the real axis of an entry and, where the input is complex, along its
imaginary axis. With them the Wirtinger derivatives are ``(d/da -+ i d/db) / 2``; what the engine
returns for an output gradient ``v`` is ``Re(conj(v) d/da) + i Re(conj(v) d/db)``, so that comparing
it for ``v = 1`` and ``v = 1j`` compares both of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from functrans.torch._graph.engine import grad
from functrans.torch._graph.graph import Edge, Node
from functrans.torch._graph.walk import cotangent_rows_at, run
from functrans.torch._tensors.sparse import SparseTensor
from functrans.torch._tensors.tensor import Tensor, edge_of, from_array

REAL, IMAGINARY = 1.0, 1.0j


def axes_of(t: Tensor) -> tuple:
    """The directions in which an entry of ``t`` moves."""
    return (REAL, IMAGINARY) if t.is_complex() else (REAL,)


def leaf_of(x: Any) -> Tensor:
    """The tensor whose entries are moved: of a sparse one its values."""
    return x._values() if isinstance(x, SparseTensor) else x


@contextmanager
def movable(t: Tensor) -> Iterator[np.ndarray]:
    """The entries of ``t``, to be changed for a while; its own memory is not touched."""
    kept = t._array
    t._array = np.array(kept, order="C")
    try:
        yield t._array.reshape(-1)
    finally:
        t._array = kept


def outputs_of(out: Any) -> tuple:
    """What a function returned, as a tuple."""
    return tuple(out) if isinstance(out, tuple | list) else (out,)


def numerical_jacobian(f: Callable[[], Sequence[Tensor]], t: Tensor, eps: float) -> list:
    """For each output of ``f``, an array a direction: how it moves with each entry of ``t``."""
    avals = [(y.numel(), y._array.dtype) for y in f()]
    with movable(t) as flat:
        jacobians = []
        for way in axes_of(t):
            columns = [np.zeros((flat.size, n), d) for n, d in avals]
            for k in range(flat.size):
                for column, slope in zip(columns, _central(f, flat, k, way, eps), strict=True):
                    column[k] = slope
            jacobians.append(columns)
    return [list(ways) for ways in zip(*jacobians, strict=True)]


def _central(f, flat, k, way, eps):
    x = flat[k]
    flat[k] = x + way * eps
    high = [y._array.reshape(-1).copy() for y in f()]
    flat[k] = x - way * eps
    low = [y._array.reshape(-1).copy() for y in f()]
    flat[k] = x
    return [(h - m) / (2 * eps) for h, m in zip(high, low, strict=True)]


def numerical_slope(f: Callable[[], Sequence[Tensor]], t: Tensor, u: np.ndarray,
                    eps: float) -> list:
    """How each output of ``f`` moves when all of ``t`` moves along ``u``."""
    with movable(t) as flat:
        start, step = flat.copy(), eps * u.reshape(-1)
        flat[:] = start + step
        high = [y._array.copy() for y in f()]
        flat[:] = start - step
        low = [y._array.copy() for y in f()]
    return [(h - m) / (2 * eps) for h, m in zip(high, low, strict=True)]


def vjp(y: Tensor, leaves: Sequence[Tensor], v: np.ndarray) -> tuple:
    """The gradients of ``y``, weighed by ``v``, in the leaves; None where there is no path."""
    return grad((y,), leaves, (from_array(np.array(v, y._array.dtype)),), retain_graph=True,
                allow_unused=True)


def analytical_jacobian(y: Tensor, leaves: Sequence[Tensor], seed: complex) -> tuple[list, list]:
    """The gradients of each entry of ``y`` in each leaf, as rows, and those of one entry."""
    rows = [np.zeros((y.numel(), t.numel()), t._array.dtype) for t in leaves]
    v = np.zeros(y._array.shape, y._array.dtype)
    grads: Sequence = [None] * len(leaves)
    for k in range(y.numel()):
        v.reshape(-1)[k] = seed
        grads = vjp(y, leaves, v)
        v.reshape(-1)[k] = 0
        for row, g, t in zip(rows, grads, leaves, strict=True):
            if g is not None and g.shape == t.shape:
                row[k] = g._array.reshape(-1)
    return rows, list(grads)


def seeds_of(y: Tensor) -> tuple:
    """The output gradients that are checked."""
    return (REAL, IMAGINARY) if y.is_complex() else (REAL,)


def expected_rows(ways: Sequence[np.ndarray], seed: complex) -> np.ndarray:
    """What ``analytical_jacobian`` should find, from the numerical derivatives."""
    parts = [np.real(np.conj(seed) * way).T for way in ways]
    return parts[0] if len(parts) == 1 else parts[0] + 1j * parts[1]


def batched(y: Tensor, leaves: Sequence[Tensor], seeds: np.ndarray) -> tuple[list, list]:
    """Cotangents of the leaves for several seeds: one after the other, and all at once.

    Where a custom function is on the way, whose backward gets one gradient, rows are not at once.
    """
    start, *places = _places([y, *leaves])
    each, together = [cotangent_rows_at([(start, seeds)], places, True, False, at_once)
                      for at_once in (False, True)]
    used = [i for i, c in enumerate(each) if c is not None]
    return [np.asarray(each[i]) for i in used], [np.asarray(together[i]) for i in used]


class _Undefined(Node):
    """Hands its operands an undefined gradient."""

    def pull(self, ct: Any, create: bool) -> list:
        return [None] * len(self.edges)


def from_undefined(outputs: Sequence[Tensor], leaves: Sequence[Tensor]) -> list:
    """The cotangents of the leaves where those of the outputs are undefined."""
    node = _Undefined(_places(outputs))
    return run([((node, 0), np.ones(()))], _places(leaves), True, False)


def _places(tensors: Sequence[Tensor]) -> list[Edge]:
    edges = [edge_of(t) for t in tensors]
    assert None not in edges, tensors
    return edges  # type: ignore[return-value]  # asserted


def jvp(y: Tensor, t: Tensor, u: np.ndarray) -> np.ndarray:
    """How ``y`` moves along ``u`` of ``t``: the derivative of the backward in its own seed."""
    v = from_array(np.zeros(y._array.shape, y._array.dtype)).requires_grad_()
    (g,) = grad((y,), (t,), (v,), retain_graph=True, create_graph=True, allow_unused=True)
    if g is None or not g.requires_grad:
        return np.zeros(y._array.shape, y._array.dtype)
    (tangent,) = grad((g,), (v,), (from_array(np.array(u, t._array.dtype)),), allow_unused=True)
    return np.zeros(y._array.shape, y._array.dtype) if tangent is None else tangent._array
