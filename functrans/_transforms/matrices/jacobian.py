"""Derivative matrices: many tangents or cotangents at once, as one batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, ParamSpec, overload

import numpy as np

from functrans import tree
from functrans._core.aval import Aval, aval_of, finfo, integer
from functrans._core.bind import Tracer
from functrans._transforms.arguments import (
    Argnums,
    Leaves,
    Selected,
    hand_out_all,
    hand_out_tree,
    labels,
    open_argument,
    plain_argnums,
    select,
)
from functrans._transforms.derived import deriving
from functrans._transforms.forward.api import run_jvp
from functrans._transforms.matrices.directions import Batches, Directions, directions
from functrans._transforms.reverse.api import record
from functrans._transforms.reverse.grad import require_callable, require_holomorphic
from functrans.errors import ArgumentError, NotDifferentiable, name_of

P = ParamSpec("P")


@overload
def jacobian(
    f: Callable[P, Any], argnums: Argnums = ..., *, has_aux: bool = ..., holomorphic: bool = ...,
    mode: str = ...,
    chunk_size: int | str | None = ..., progress: bool = ...,
) -> Callable[P, Any]: ...


@overload
def jacobian(
    f: None = None, argnums: Argnums = ..., *, has_aux: bool = ..., holomorphic: bool = ...,
    mode: str = ...,
    chunk_size: int | str | None = ..., progress: bool = ...,
) -> Callable[[Callable[P, Any]], Callable[P, Any]]: ...


@deriving
def jacobian(
    f: Any = None,
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    mode: str = "auto",
    chunk_size: int | str | None = "auto",
    progress: bool = False,
) -> Any:  # as the overloads say
    """The matrix of first derivatives, ``J[i, j] = df_i/dx_j``.

    The shape is ``out.shape + in.shape``; of containers, a container of containers ``J[out][in]``.
    ``mode``: "forward" takes one pass for all inputs, "reverse" one for all outputs, "auto" records
    the function once and takes the fewer. ``chunk_size`` bounds how many run at once ("auto": by
    the memory of what the function computes, None: all); ``progress`` shows a bar.

    Complex: of complex functions of real numbers, the complex derivatives; of real functions of
    complex numbers the rows are gradients as in ``grad``; of complex functions of complex numbers,
    the holomorphic derivative, and NotDifferentiable where there is none. ``holomorphic=True``
    promises that there is one, which saves half the work.

    Raises OutOfMemoryError where the matrix would not fit into memory.

    >>> import functrans as ft, numpy as np
    >>> ft.jacobian(lambda x: x**2)(np.array([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]])
    """
    function = require_callable("jacobian", f)
    if mode not in ("auto", "forward", "reverse"):
        raise ArgumentError(
            f'jacobian: mode must be "auto", "forward" or "reverse", but is {mode!r}'
        )
    matrix = _matrix(
        "jacobian", function, argnums, has_aux, holomorphic, mode, chunk_size, progress
    )
    return matrix


def _matrix(
    who: str,
    f: Callable[P, Any],
    argnums: Argnums,
    has_aux: bool,
    holomorphic: bool,
    mode: str,
    chunk_size: Any,
    progress: bool,
) -> Callable[P, Any]:
    argnums = plain_argnums(who, argnums)
    chunk = _chunk(who, chunk_size)
    job = _Job(who, f, argnums, has_aux, holomorphic, mode, chunk, progress, {})

    @functools.wraps(f, updated=())
    def matrix(*args: P.args, **kwargs: P.kwargs) -> Any:
        return job(args, kwargs)

    return matrix


def _chunk(who: str, chunk_size: Any) -> int | str | None:
    if chunk_size is None or (isinstance(chunk_size, str) and chunk_size == "auto"):
        return chunk_size
    size = integer(chunk_size)
    if size is None or size < 1:
        raise ArgumentError(
            f'{who}: chunk_size must be "auto", None or a positive int, but is {chunk_size!r}'
        )
    return size


class JacobianBlocks(NamedTuple):
    """Jacobian blocks, a row an output leaf, a column an active input leaf."""

    blocks: list[list]
    opened: list[Leaves]
    structure: tree.Structure
    aux: Any


class _Job(NamedTuple):
    """A function, and how its matrix is to be computed."""

    who: str
    f: Callable
    argnums: Argnums
    has_aux: bool
    holomorphic: bool
    mode: str
    chunk_size: int | str | None
    progress: bool
    sizes: dict[tuple, int]  # of batches, by the kind of the arguments

    def __call__(self, args: tuple, kwargs: dict) -> Any:
        chosen = select(self.who, self.f, self.argnums, args, kwargs)
        parts = (self._by_forward if self.mode == "forward" else self._by_tape)(chosen)
        rows = [
            [
                leaves.only(blocks)
                for leaves, blocks in zip(parts.opened, _by_argument(parts, row), strict=True)
            ]
            for row in parts.blocks
        ]
        J = tree.unflatten(parts.structure, [r[0] if chosen.single else tuple(r) for r in rows])
        return (J, hand_out_tree(parts.aux)) if self.has_aux else J

    def _by_forward(self, chosen: Selected) -> JacobianBlocks:
        """Forward: the function runs on dual numbers whose tangents are batches of directions."""
        argnums = self.argnums
        names = labels(argnums)
        opened = [
            open_argument(self.who, self.f, n, x)
            for n, x in zip(names, chosen.values, strict=True)
        ]
        values = [v for a in opened for v in a.primals]
        ins = [aval_of(v) for v in values]
        run: Any = None

        def image(ts: Sequence) -> list:
            nonlocal run
            run = run_jvp(self.who, self.f, opened, chosen.values, ts, self.has_aux, chosen.call)
            if self.holomorphic:
                self._require_holomorphic(ins, [aval_of(v) for v in run.values])
            return run.tangents

        ways = directions(tuple(ins), 1j, self.holomorphic)
        columns = self._batches().run(ways, 0, values, image)
        assert run is not None
        blocks = self._forward_blocks(ways, columns, [aval_of(v) for v in run.values])
        return JacobianBlocks(blocks, opened, run.structure, run.aux)

    def _by_tape(self, chosen: Selected) -> JacobianBlocks:
        """Record once, then push or pull batches of directions through the tape."""
        run = record(self.who, self.f, chosen.values, self.has_aux, chosen.call, needed=True)
        ins = [aval_of(x) for x in run.inputs]
        outs = [aval_of(v) for v in run.values]
        if self.holomorphic:
            self._require_holomorphic(ins, outs)
        opened = [a for a in run.opened if a is not None]
        if len(outs) == 1 == outs[0].size and (self.holomorphic or not _is_complex(outs[0])):
            cts = run.pull([np.ones(outs[0].shape, outs[0].dtype)])
            blocks = [[self._row(ct, outs[0], a) for ct, a in zip(cts, ins, strict=True)]]
            return JacobianBlocks(blocks, opened, run.structure, run.aux)
        along = directions(tuple(ins), 1j, self.holomorphic)
        back = directions(tuple(outs), -1j, self.holomorphic)
        # a tape that has split coinciding values has their derivatives in reverse mode only
        if self.mode == "auto" and not run.trace.split and along.total <= back.total:
            width = sum(a.size for a in outs)
            columns = self._batches().run(along, width, run.inputs, run.push)
            blocks = self._forward_blocks(along, columns, outs)
        else:
            width = sum(a.size for a in ins)
            columns = self._batches().run(back, width, run.inputs, run.pull)
            blocks = self._reverse_blocks(back, columns, ins)
        return JacobianBlocks(blocks, opened, run.structure, run.aux)

    def _row(self, ct: Any, out: Aval, into: Aval) -> Any:
        """The block of one number: a gradient where it is real."""
        return _shaped(
            np.conjugate(ct) if _is_complex(into) and not _is_complex(out) else ct, out, into
        )

    def _batches(self) -> Batches:
        instead = INSTEAD.get(self.who, INSTEAD["jacobian"])
        return Batches(
            self.who, self.f, self.chunk_size, self.progress, instead, self.sizes
        )

    def _forward_blocks(self, along: Directions, columns: list, outs: list[Aval]) -> list[list]:
        """Images of tangents as blocks, with the input axes last."""
        blocks = []
        for images, out in zip(columns, outs, strict=True):
            row = []
            for pair, into in zip(along.split(images), along.avals, strict=True):
                J = pair[0]
                if len(pair) > 1:
                    J = self._analytic(J, pair[1], 1j) if _is_complex(out) else J + 1j * pair[1]
                J = J.transpose((*range(1, J.ndim), 0))
                row.append(_shaped(J, out, into))
            blocks.append(row)
        return blocks

    def _reverse_blocks(self, back: Directions, columns: list, ins: list[Aval]) -> list[list]:
        """Images of cotangents as blocks. A real function of complex numbers has gradients."""
        blocks: list[list] = [[] for _ in back.avals]
        for images, into in zip(columns, ins, strict=True):
            for row, pair, out in zip(blocks, back.split(images), back.avals, strict=True):
                J = pair[0]
                if len(pair) > 1:
                    J = self._analytic(J, pair[1], -1j) if _is_complex(into) else J + 1j * pair[1]
                elif _is_complex(into) and not _is_complex(out):
                    J = np.conjugate(J)
                row.append(_shaped(J, out, into))
        return blocks

    def _analytic(self, J: Any, turned: Any, factor: complex) -> Any:
        """``J`` where ``turned`` is ``factor`` times it, as for a holomorphic function; else an
        error, or NaN where values are not known."""
        gap, size = np.abs(turned - factor * J), np.abs(J)
        rows = size.max(axis=tuple(range(1, size.ndim)), keepdims=True, initial=0.0)
        columns = size.max(axis=0, keepdims=True, initial=0.0)
        bound = np.minimum(rows, columns) * float(np.sqrt(finfo(size.dtype).eps))
        differs = gap > bound
        known = differs.concrete() if isinstance(differs, Tracer) else differs
        if known is None:
            return np.where(differs, np.nan, J)
        if np.any(known):
            raise NotDifferentiable(
                f"{self.who}: {'the gradient of ' if self.who == 'hessian' else ''}"
                f"`{name_of(self.f)}` maps complex numbers to complex ones and is not holomorphic: "
                "its derivatives along 1 and along i do not belong together, so no complex matrix "
                "holds them. Differentiate real and imaginary part as functions of real and "
                "imaginary part; holomorphic=True only leaves out this test."
            )
        return J

    def _require_holomorphic(self, ins: list[Aval], outs: list[Aval]) -> None:
        require_holomorphic(self.who, self.f, ins, outs)


def _by_argument(parts: JacobianBlocks, row: list) -> list[list]:
    """A row's blocks by argument."""
    blocks = iter(hand_out_all(row))
    return [[next(blocks) for _ in a.active] for a in parts.opened]


def _is_complex(a: Aval) -> bool:
    return a.dtype.kind == "c"


def _shaped(J: Any, out: Aval, into: Aval) -> Any:
    shape = out.shape + into.shape
    return J if aval_of(J).shape == shape else J.reshape(shape)


INSTEAD = {
    "hessian": "hvp and vhp give products with it that need no matrix.",
    "jacobian": "jvp, linearize and vjp give products with it that need no matrix; argnums takes "
    "some of the arguments.",
}


@overload
def jacfwd(
    f: Callable[P, Any], argnums: Argnums = ..., *, has_aux: bool = ..., holomorphic: bool = ...,
    chunk_size: int | str | None = ..., progress: bool = ...,
) -> Callable[P, Any]: ...


@overload
def jacfwd(
    f: None = None, argnums: Argnums = ..., *, has_aux: bool = ..., holomorphic: bool = ...,
    chunk_size: int | str | None = ..., progress: bool = ...,
) -> Callable[[Callable[P, Any]], Callable[P, Any]]: ...


@deriving
def jacfwd(
    f: Any = None,
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    chunk_size: int | str | None = "auto",
    progress: bool = False,
) -> Any:  # as the overloads say
    """``jacobian`` with ``mode="forward"``: best for few inputs; keeps no tape.

    >>> import functrans as ft, numpy as np
    >>> ft.jacfwd(lambda t: np.stack([np.cos(t), np.sin(t)]))(0.0)
    Array([-0.,  1.])
    """
    function = require_callable("jacfwd", f)
    matrix = _matrix(
        "jacfwd", function, argnums, has_aux, holomorphic, "forward", chunk_size, progress
    )
    return matrix


@overload
def jacrev(
    f: Callable[P, Any], argnums: Argnums = ..., *, has_aux: bool = ..., holomorphic: bool = ...,
    chunk_size: int | str | None = ..., progress: bool = ...,
) -> Callable[P, Any]: ...


@overload
def jacrev(
    f: None = None, argnums: Argnums = ..., *, has_aux: bool = ..., holomorphic: bool = ...,
    chunk_size: int | str | None = ..., progress: bool = ...,
) -> Callable[[Callable[P, Any]], Callable[P, Any]]: ...


@deriving
def jacrev(
    f: Any = None,
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    chunk_size: int | str | None = "auto",
    progress: bool = False,
) -> Any:  # as the overloads say
    """``jacobian`` with ``mode="reverse"``: best for few outputs.

    >>> import functrans as ft, numpy as np
    >>> ft.jacrev(lambda x: np.sum(x**2))(np.array([1.0, 2.0]))
    Array([2., 4.])
    """
    function = require_callable("jacrev", f)
    matrix = _matrix(
        "jacrev", function, argnums, has_aux, holomorphic, "reverse", chunk_size, progress
    )
    return matrix


@overload
def hessian(
    f: Callable[P, Any], argnums: Argnums = ..., *, has_aux: bool = ..., holomorphic: bool = ...,
    chunk_size: int | str | None = ..., progress: bool = ...,
) -> Callable[P, Any]: ...


@overload
def hessian(
    f: None = None, argnums: Argnums = ..., *, has_aux: bool = ..., holomorphic: bool = ...,
    chunk_size: int | str | None = ..., progress: bool = ...,
) -> Callable[[Callable[P, Any]], Callable[P, Any]]: ...


@deriving
def hessian(
    f: Any = None,
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    chunk_size: int | str | None = "auto",
    progress: bool = False,
) -> Any:  # as the overloads say
    """The matrix of second derivatives, ``H[i, j] = d^2 f / dx_i dx_j``.

    Forward over reverse: the gradient's own run, on dual numbers carrying a batch of basis vectors.
    Of a function with several outputs, their Hessians stacked, ``out.shape + in.shape + in.shape``.

    >>> import functrans as ft, numpy as np
    >>> ft.hessian(lambda x: x[0] ** 2 * x[1])(np.array([1.0, 2.0]))
    Array([[4., 2.],
           [2., 0.]])
    """
    function = require_callable("hessian", f)
    first = _matrix(
        "hessian", function, argnums, has_aux, holomorphic, "reverse", chunk_size, False
    )
    second = _matrix(
        "hessian", first, argnums, has_aux, holomorphic, "forward", chunk_size, progress
    )
    return second
