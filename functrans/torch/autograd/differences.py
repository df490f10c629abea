"""Derivatives of functions of tensors by number and by the engine, for ``gradcheck`` to compare.

A derivative is taken along the real axis of an entry and, where the input is complex, along its
imaginary axis. With them the Wirtinger derivatives are ``(d/da -+ i d/db) / 2``; what the engine
returns for an output gradient ``v`` is ``Re(conj(v) d/da) + i Re(conj(v) d/db)``, so that comparing
it for ``v = 1`` and ``v = 1j`` compares both of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from functrans.torch._graph.custom import UndefinedGradBackward
from functrans.torch._graph.engine import as_tuple, grad
from functrans.torch._graph.nodes import Edge
from functrans.torch._graph.walk import cotangent_rows_at, run
from functrans.torch._tensors.sparse import SparseTensor
from functrans.torch._tensors.tensor import Tensor, edge_of, from_array
from functrans.torch.autograd.forward_ad import dual_level, make_dual, unpack_dual

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
    avals = [(y._array.shape, y._array.dtype) for y in f()]
    with movable(t) as flat:
        jacobians = []
        for way in axes_of(t):
            columns = [np.zeros((flat.size, prod(s)), d) for s, d in avals]
            for k in range(flat.size):
                slopes = _central(f, flat, k, way * eps, eps, avals)
                for column, slope in zip(columns, slopes, strict=True):
                    column[k] = slope
            jacobians.append(columns)
    return [list(ways) for ways in zip(*jacobians, strict=True)]


def _central(f, flat, at, step, eps, avals):
    """The slopes of the outputs, where the entries ``at`` move by ``step``, ``eps`` times one."""
    x, entry = flat[at].copy(), at if type(at) is int else 0
    flat[at] = x + step
    high = _move(f, avals, entry, eps)
    flat[at] = x - step
    low = _move(f, avals, entry, eps)
    flat[at] = x
    return [(h - m) / (2 * eps) for h, m in zip(high, low, strict=True)]


def _move(f: Callable[[], Sequence[Tensor]], avals: Sequence, k: int, eps: float) -> list:
    """The outputs at a moved point, which must be of the same shapes and types."""
    ys = f()
    for y, (shape, dtype) in zip(ys, avals, strict=True):
        pairs = ("shape", y._array.shape, shape), ("dtype", y._array.dtype, dtype)
        for what, have, want in pairs:
            if have != want:
                raise AssertionError(
                    f"Expected `func` to return outputs with the same {what} when inputs are "
                    f"perturbed on entry {k} by {eps}, but got: {what}s {want} and {have}."
                )
    return [y._array.reshape(-1).copy() for y in ys]


def numerical_slope(f: Callable[[], Sequence[Tensor]], t: Tensor, u: np.ndarray,
                    eps: float) -> list:
    """How each output of ``f`` moves when all of ``t`` moves along ``u``."""
    avals = [(y._array.shape, y._array.dtype) for y in f()]
    with movable(t) as flat:
        slopes = _central(f, flat, slice(None), eps * u.reshape(-1), eps, avals)
    return [slope.reshape(shape) for slope, (shape, _) in zip(slopes, avals, strict=True)]


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
    return (IMAGINARY, REAL) if y.is_complex() else (REAL,)


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


def from_undefined(outputs: Sequence[Tensor], leaves: Sequence[Tensor]) -> list:
    """The cotangents of the leaves where those of the outputs are undefined."""
    node = UndefinedGradBackward(_places(outputs))
    return run([((node, 0), np.ones(()))], _places(leaves), True, False)


def _places(tensors: Sequence[Tensor]) -> list[Edge]:
    edges = [edge_of(t) for t in tensors]
    assert None not in edges, tensors
    return edges  # type: ignore[return-value]  # asserted


def forward_slopes(f: Callable, inputs: tuple, at: int, u: np.ndarray) -> list[np.ndarray]:
    """How the outputs of ``f`` move along ``u`` of input ``at``, in forward mode."""

    def with_tangent(i: int, x: Any) -> Any:
        leaf = leaf_of(x)
        if not isinstance(leaf, Tensor) or not leaf.requires_grad:
            return x
        tangent = np.zeros_like(leaf._array) if i != at else np.array(u, leaf._array.dtype)
        dual: Any = make_dual(leaf, from_array(tangent))
        if isinstance(x, SparseTensor):
            return SparseTensor(x._places, dual, x._size, x._coalesced)
        return dual

    with dual_level():
        ys = outputs_of(f(*[with_tangent(i, x) for i, x in enumerate(inputs)]))
        pairs = [unpack_dual(y) for y in ys if y.is_floating_point() or y.is_complex()]
    return [np.zeros_like(y._array) if t is None else t._array for y, t in pairs]


def overlaps(a: np.ndarray) -> bool:
    """Whether several indices are the same number in memory."""
    if a.size < 2 or a.flags.c_contiguous or a.flags.f_contiguous:
        return False
    at = sum([np.arange(n).reshape((-1,) + (1,) * (a.ndim - 1 - k)) * s
              for k, (n, s) in enumerate(zip(a.shape, a.strides, strict=True))])
    return np.unique(at).size < a.size


# ---- older names


def get_numerical_jacobian(fn: Callable, inputs: Any, target: Any = None, eps: float = 1e-3,
                           grad_out: float = 1.0) -> tuple[Tensor, ...]:
    """Deprecated: the Jacobians of the first output of ``fn(inputs)``, a row for each entry of an
    input, in the tensors ``target`` or in all inputs that require gradients."""
    _private("get_numerical_jacobian", grad_out)
    targets = as_tuple(inputs if target is None else target)
    leaves = [t for t in targets if isinstance(t, Tensor) and t.requires_grad]
    return tuple([
        from_array(numerical_jacobian(lambda: outputs_of(fn(inputs)), t, eps)[0][0])
        for t in leaves
    ])


def get_analytical_jacobian(inputs: Any, output: Tensor, nondet_tol: float = 0.0,
                            grad_out: float = 1.0) -> tuple[tuple[Tensor, ...], bool, bool, bool]:
    """Deprecated: the Jacobians of ``output`` by the engine, and whether they are the same when
    computed again, of the right sizes, and of the right types."""
    _private("get_analytical_jacobian", grad_out)
    leaves = [t for t in as_tuple(inputs) if isinstance(t, Tensor) and t.requires_grad]
    rows, last = analytical_jacobian(output, leaves, 1.0)
    again, _ = analytical_jacobian(output, leaves, 1.0)
    same = all(np.allclose(a, b, rtol=0.0, atol=nondet_tol)
               for a, b in zip(rows, again, strict=True))
    sizes = all(g is None or g.shape == t.shape for g, t in zip(last, leaves, strict=True))
    types = all(g is None or g.dtype == t.dtype for g, t in zip(last, leaves, strict=True))
    return tuple([from_array(row.T.copy()) for row in rows]), same, sizes, types


def _private(name: str, grad_out: float) -> None:
    warnings.warn(
        f"{name} was part of PyTorch's private API and not meant to be exposed; use gradcheck, or "
        "autograd.functional.jacobian", FutureWarning, stacklevel=3)
    if grad_out != 1.0:
        raise ValueError(f"Expected grad_out to be 1.0. {name} supports no other value.")
