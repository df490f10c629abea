"""Derivative matrices: many tangents or cotangents at once, as one batch."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, ParamSpec

import numpy as np

from functrans import tree
from functrans._core.aval import Aval, aval_of
from functrans._transforms.arguments import (
    Argnums,
    Leaves,
    Selected,
    hand_out,
    hand_out_tree,
    open_argument,
    select,
)
from functrans._transforms.forward.api import push
from functrans._transforms.reverse.api import Recording, record
from functrans._transforms.reverse.grad import require_callable
from functrans._transforms.vmap import BatchTrace
from functrans.errors import ArgumentError, name_of

P = ParamSpec("P")

# Memory that one batch of basis vectors and their images may take with chunk_size="auto".
CHUNK_BYTES = 2**28


def jacobian(
    f: Callable[P, Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    mode: str = "auto",
    chunk_size: int | str | None = "auto",
    progress: bool = False,
) -> Callable[P, Any]:
    r"""The matrix of first derivatives, :math:`J_{ij} = \partial f_i / \partial x_j`.

    The shape is ``out.shape + in.shape``; of containers, a container of containers ``J[out][in]``.
    ``mode``: "forward" takes one pass for all inputs, "reverse" one for all outputs, "auto" records
    the function once and takes the fewer. ``chunk_size`` bounds how many run at once ("auto": by
    memory, None: all); ``progress`` shows a bar. Complex: of a real function of complex numbers the
    rows are gradients as in ``grad``; of a complex one of complex numbers, the holomorphic
    derivative.

    >>> import functrans as ft, numpy as np
    >>> ft.jacobian(lambda x: x**2)(np.array([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]])
    """
    require_callable("jacobian", f)
    if mode not in ("auto", "forward", "reverse"):
        raise ArgumentError(
            f'jacobian: mode must be "auto", "forward" or "reverse", but is {mode!r}'
        )
    _check_chunk(chunk_size)

    @functools.wraps(f, updated=())
    def matrix(*args: P.args, **kwargs: P.kwargs) -> Any:
        chosen = select("jacobian", f, argnums, args, kwargs)
        if mode == "forward":
            parts = _by_pushing(f, chosen, argnums, has_aux, chunk_size, progress)
        else:
            parts = _by_tape(f, chosen, has_aux, mode, chunk_size, progress)
        rows = [
            [
                next_in.only(blocks)
                for next_in, blocks in zip(parts.opened, _split(parts, row), strict=True)
            ]
            for row in parts.blocks
        ]
        J = tree.unflatten(parts.structure, [r[0] if chosen.single else tuple(r) for r in rows])
        return (J, hand_out_tree(parts.aux)) if has_aux else J

    return matrix


class Parts(NamedTuple):
    """Jacobian blocks, a row an output leaf, a column an active input leaf."""

    blocks: list[list]
    opened: list[Leaves]
    structure: tree.Structure
    aux: Any


def _split(parts: Parts, row: list) -> list[list]:
    """A row's blocks by argument."""
    given = iter(row)
    return [[hand_out(next(given)) for _ in a.active] for a in parts.opened]


def _by_pushing(
    f: Callable, chosen: Selected, argnums: Argnums, has_aux: bool, chunk_size: Any, progress: bool
) -> Parts:
    """Forward: the function runs on dual numbers whose tangents are batches of basis vectors."""
    names = [argnums] if isinstance(argnums, int | str) else argnums
    opened = [
        open_argument("jacobian", f, n, x) for n, x in zip(names, chosen.values, strict=True)
    ]
    avals = [aval_of(v) for a in opened for v in a.primals]
    run = None
    columns: list[list] = []
    for size, basis in _basis(avals, chunk_size, 0, progress):
        trace = BatchTrace(f"jacobian({name_of(f)})", size)
        try:
            ts = [trace.input(b) for b in basis]
            run = push("jacobian", f, opened, chosen.values, ts, has_aux, chosen.call)
            columns.append([trace.batched(t) for t in run.tangents])
        finally:
            trace.closed = True
    assert run is not None
    return Parts(_columns_to_blocks(columns, avals), opened, run.structure, run.aux)


def _by_tape(
    f: Callable, chosen: Selected, has_aux: bool, mode: str, chunk_size: Any, progress: bool
) -> Parts:
    """Record once, then push or pull a batch of basis vectors through the tape."""
    run = record("jacobian", f, chosen.values, has_aux, chosen.call, needed=True)
    ins = [aval_of(x) for x in run.inputs]
    outs = [aval_of(v) for v in run.values]
    # a tape on which values were told apart knows their slopes on the way back alone
    forward = mode == "auto" and not run.trace.split and _prefers_forward(ins, outs)
    blocks = (
        _pushed(run, ins, chunk_size, progress)
        if forward
        else _pulled(run, outs, ins, chunk_size, progress)
    )
    return Parts(blocks, [a for a in run.opened if a is not None], run.structure, run.aux)


def _prefers_forward(ins: list[Aval], outs: list[Aval]) -> bool:
    complex_in, complex_out = (any(a.dtype.kind == "c" for a in s) for s in (ins, outs))
    if complex_in != complex_out:
        return complex_out  # pulling back from a complex output sees only the real part
    return sum(a.size for a in ins) <= sum(a.size for a in outs)


def _pushed(run: Recording, ins: list[Aval], chunk_size: Any, progress: bool) -> list[list]:
    columns = []
    width = sum(aval_of(v).size for v in run.values)
    for size, basis in _basis(ins, chunk_size, width, progress):
        trace = BatchTrace(run.trace.fun, size)
        try:
            ts = run.push([trace.input(b) for b in basis])
            columns.append([trace.batched(t) for t in ts])
        finally:
            trace.closed = True
    return _columns_to_blocks(columns, ins)


def _pulled(
    run: Recording, outs: list[Aval], ins: list[Aval], chunk_size: Any, progress: bool
) -> list[list]:
    if len(outs) == 1 and outs[0].size == 1:
        cts = run.pull([np.ones(outs[0].shape, outs[0].dtype)])
        return [[_shaped(_row(c, outs[0], a), outs[0], a) for c, a in zip(cts, ins, strict=True)]]
    chunks = []
    for size, basis in _basis(outs, chunk_size, sum(a.size for a in ins), progress):
        trace = BatchTrace(run.trace.fun, size)
        try:
            chunks.append([trace.batched(c) for c in run.pull([trace.input(b) for b in basis])])
        finally:
            trace.closed = True
    joined = (
        [_join(column) for column in zip(*chunks, strict=True)]
        if chunks
        else [np.zeros((0, *a.shape), a.dtype) for a in ins]
    )
    ends = list(itertools.accumulate([a.size for a in outs]))
    return [
        [_shaped(_row(J[e - o.size : e], o, a), o, a) for J, a in zip(joined, ins, strict=True)]
        for o, e in zip(outs, ends, strict=True)
    ]


def _shaped(J, out: Aval, into: Aval):
    shape = out.shape + into.shape
    return J if aval_of(J).shape == shape else J.reshape(shape)


def _row(ct, out: Aval, into: Aval):
    """A cotangent as a row of the matrix: of a real function of complex numbers, its conjugate."""
    return np.conjugate(ct) if into.dtype.kind == "c" and out.dtype.kind != "c" else ct


def _columns_to_blocks(chunks: list[list], ins: list[Aval]) -> list[list]:
    """Pushed batches, batch axis 0, as blocks with the input axes last."""
    ends = list(itertools.accumulate([a.size for a in ins]))
    blocks = []
    for column in zip(*chunks, strict=True):
        J = _join(column)
        J = J.transpose((*range(1, J.ndim), 0))
        blocks.append(
            [
                J[..., e - a.size : e].reshape(J.shape[:-1] + a.shape)
                for a, e in zip(ins, ends, strict=True)
            ]
        )
    return blocks


def _join(parts: Sequence) -> Any:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _basis(
    avals: list[Aval], chunk_size: Any, width: int, progress: bool
) -> Iterator[tuple[int, list]]:
    """Batches of unit vectors of the space of ``avals``, a part for each of them."""
    total = sum(a.size for a in avals)
    chunk = _chunk(chunk_size, total, width, progress)
    steps: Any = range(0, total, chunk)
    if progress:
        from tqdm import tqdm  # lazy: slow to import

        steps = tqdm(steps, desc="jacobian", unit="batch")
    for start in steps:
        stop = min(start + chunk, total)
        yield stop - start, _units(avals, start, stop)
    if not total:
        yield 0, [np.zeros((0, *a.shape), a.dtype) for a in avals]


def _units(avals, start, stop):
    parts, offset = [], 0
    for a in avals:
        e = np.zeros((stop - start, a.size), a.dtype)
        first, last = max(start, offset), min(stop, offset + a.size)
        rows = np.arange(first, last)
        e[rows - start, rows - offset] = 1
        parts.append(e.reshape(stop - start, *a.shape))
        offset += a.size
    return parts


def _chunk(chunk_size, total, width, progress) -> int:
    if chunk_size is None:
        return max(1, total)
    if isinstance(chunk_size, int):
        return chunk_size
    fits = CHUNK_BYTES // (8 * 8 * max(1, total + width))
    return max(1, min(total, fits, -(-total // 20) if progress else total))


def _check_chunk(chunk_size):
    if chunk_size in ("auto", None) or (isinstance(chunk_size, int) and chunk_size > 0):
        return
    raise ArgumentError(f'chunk_size must be "auto", None or a positive int, but is {chunk_size!r}')


def jacfwd(
    f: Callable[P, Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | str | None = "auto",
    progress: bool = False,
) -> Callable[P, Any]:
    """``jacobian`` with ``mode="forward"``: best for few inputs; keeps no tape.

    >>> import functrans as ft, numpy as np
    >>> ft.jacfwd(lambda t: np.stack([np.cos(t), np.sin(t)]))(0.0)
    Array([-0.,  1.])
    """
    return jacobian(
        f, argnums, has_aux=has_aux, mode="forward", chunk_size=chunk_size, progress=progress
    )


def jacrev(
    f: Callable[P, Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | str | None = "auto",
    progress: bool = False,
) -> Callable[P, Any]:
    """``jacobian`` with ``mode="reverse"``: best for few outputs.

    >>> import functrans as ft, numpy as np
    >>> ft.jacrev(lambda x: np.sum(x**2))(np.array([1.0, 2.0]))
    Array([2., 4.])
    """
    return jacobian(
        f, argnums, has_aux=has_aux, mode="reverse", chunk_size=chunk_size, progress=progress
    )


def hessian(
    f: Callable[P, Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | str | None = "auto",
    progress: bool = False,
) -> Callable[P, Any]:
    r"""The matrix of second derivatives, :math:`H_{ij} = \partial^2 f/\partial x_i\partial x_j`.

    Forward over reverse: the gradient's own run, on dual numbers carrying a batch of basis vectors.
    Of a function with several outputs, their Hessians stacked, ``out.shape + in.shape + in.shape``.

    >>> import functrans as ft, numpy as np
    >>> ft.hessian(lambda x: x[0] ** 2 * x[1])(np.array([1.0, 2.0]))
    Array([[4., 2.],
           [2., 0.]])
    """
    first = jacrev(f, argnums, has_aux=has_aux, chunk_size=chunk_size)
    return jacfwd(first, argnums, has_aux=has_aux, chunk_size=chunk_size, progress=progress)
