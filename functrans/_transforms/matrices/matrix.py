"""A derivative matrix: its mode, its batches of tangents or cotangents, and its blocks."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec

import numpy as np

from functrans import tree
from functrans._core.array import Aval, aval_of, dtype_of, finfo, real_dtype, shape_of
from functrans._core.bind import AnyArray, cast, known_value
from functrans._ops.elementwise import from_parts
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
from functrans._transforms.forward.api import run_jvp
from functrans._transforms.matrices import waist
from functrans._transforms.matrices.batches import Batches, SharedBatches
from functrans._transforms.matrices.budget import NAMES, Plan, bytes_of
from functrans._transforms.matrices.directions import Directions, Placing, Span, directions
from functrans._transforms.matrices.waist import Waist
from functrans._transforms.options import require_count
from functrans._transforms.reach import OTHERS, Reach, RefusingDraws, of_one_draw
from functrans._transforms.reverse.api import Recording, record
from functrans._transforms.reverse.grad import require_holomorphic
from functrans._transforms.sharding.executors import require_executor
from functrans.errors import ArgumentError, NotDifferentiable, name_of

if TYPE_CHECKING:
    from concurrent.futures import Executor

P = ParamSpec("P")


class Options(NamedTuple):
    """How a matrix is to be computed."""

    holomorphic: bool
    chunk_size: int | str | None
    memory: int | None
    out: Any
    progress: bool
    executor: Executor | None
    alone: Callable  # makes the same function without an executor


def options_of(
    who: str, holomorphic: bool, chunk_size: Any, memory: Any, out: Any, progress: bool,
    executor: Any, alone: Callable,
) -> Options:
    chunk, budget = _chunk(who, chunk_size), bytes_of(who, memory)
    if budget is not None and chunk != "auto":
        raise ArgumentError(
            f"{who}: chunk_size={chunk_size!r} says how many directions run at once, so memory= "
            "has nothing to choose. Give one of the two."
        )
    workers = require_executor(who, executor)
    if workers is not None and not isinstance(chunk, int):
        raise ArgumentError(
            f"{who}: executor needs a chunk_size, the number of directions that are one piece of "
            f"work, but it is {chunk!r}"
        )
    return Options(holomorphic, chunk, budget, out, progress, workers, alone)


def matrix_function(
    who: str, f: Callable[P, Any], argnums: Argnums, has_aux: bool, mode: str, options: Options
) -> Callable[P, Any]:
    job = _Job(who, f, plain_argnums(who, argnums), has_aux, mode, options, {})

    @functools.wraps(f, updated=())
    def matrix(*args: P.args, **kwargs: P.kwargs) -> Any:
        return job(args, kwargs)

    def explain(*args: P.args, **kwargs: P.kwargs) -> Plan:
        return job.plan(args, kwargs)

    def memory(*args: P.args, **kwargs: P.kwargs) -> int:
        return job.plan(args, kwargs).peak

    matrix.explain, matrix.memory = explain, memory  # type: ignore[attr-defined]  # what it returns
    matrix.job = job  # type: ignore[attr-defined]  # for workers
    return matrix


def _chunk(who: str, chunk_size: Any) -> int | str | None:
    if chunk_size is None or (isinstance(chunk_size, str) and chunk_size == "auto"):
        return chunk_size
    return require_count(who, "chunk_size", chunk_size, 1, '"auto", None or ')


class JacobianBlocks(NamedTuple):
    """Jacobian blocks, a row an output leaf, a column an active input leaf."""

    blocks: list[list]
    opened: list[Leaves]
    structure: tree.Structure
    aux: Any


class Route(NamedTuple):
    """A mode, ready to run: what each batch of ``ways`` has as images, and what they are.

    ``known`` is asked once a batch has run.
    """

    mode: str
    reason: str
    ways: Directions
    width: int  # entries of an image, 0 where they are not known
    values: Sequence
    image: Callable[[Sequence], list]
    tape: Sequence | None  # kept from batch to batch; None: values as large as one direction
    known: Callable[[], Known]


class Known(NamedTuple):
    """What a run of the function has shown."""

    ins: list[Aval]
    outs: list[Aval]
    opened: list[Leaves]
    structure: tree.Structure
    aux: Any


class _Job(NamedTuple):
    """A function, and how its matrix is to be computed."""

    who: str
    f: Callable
    argnums: Argnums
    has_aux: bool
    mode: str
    options: Options
    sizes: dict[tuple, int]  # of batches, by the kind of the arguments

    def __call__(self, args: tuple, kwargs: dict) -> Any:
        chosen = select(self.who, self.f, self.argnums, args, kwargs)
        if self.options.out is not None:
            J, aux = self.options.out, self._placed(chosen, (args, kwargs))
        else:
            parts = self._blocks(chosen, (args, kwargs))
            if not parts.blocks and tree.unflatten(parts.structure, []) is None:
                raise NotDifferentiable(
                    f"{self.who}: `{name_of(self.f)}` returned None. Is a `return` missing?"
                )
            rows = [
                [
                    leaves.only(blocks)
                    for leaves, blocks in zip(parts.opened, _by_argument(parts, row), strict=True)
                ]
                for row in parts.blocks
            ]
            J, aux = _nest(parts.structure, rows, chosen.single), parts.aux
        return (J, hand_out_tree(aux)) if self.has_aux else J

    def plan(self, args: tuple, kwargs: dict) -> Plan:
        """What a call would do."""
        chosen = select(self.who, self.f, self.argnums, args, kwargs)
        run = self._record(chosen)
        if self.mode == "auto" and run is not None and (planned := self._mixed_plan(run)):
            return planned
        route = self._route(chosen, run)
        given = self.options.out is not None
        batches = self.batches(route.tape)
        expected = batches.plan(
            route.ways, route.width, route.values, route.image, given
        )
        mode, reason = route.mode, route.reason
        if expected.compressed:
            mode, reason = "compressed", (
                f"{route.ways.total} {NAMES[route.mode]} have {expected.total} colors: those of "
                "one color share no entry of the result, which is mostly 0"
            )
        if expected.compiled:
            reason += "; code is compiled for one direction, since Python would take long for all"
        return Plan(
            self.who, name_of(self.f), mode, reason, expected.total, expected.chunk,
            expected.result, expected.held, expected.each, given, expected.fixed,
        )

    def _blocks(self, chosen: Selected, call: tuple) -> JacobianBlocks:
        run = self._record(chosen)
        if run is not None and (gradient := self._gradient(run) or self._mix(run)) is not None:
            return gradient
        route = self._route(chosen, run)
        across = route.mode == "forward"
        columns = self.batches(route.tape, call).run(
            route.ways, route.width, route.values, route.image, across
        )
        known = route.known()
        if route.mode == "forward":
            blocks = self._forward_blocks(route.ways, columns, known.outs)
        else:
            blocks = self._reverse_blocks(route.ways, columns, known.ins)
        return JacobianBlocks(blocks, known.opened, known.structure, known.aux)

    def _placed(self, chosen: Selected, call: tuple) -> Any:
        """Fill the caller's arrays; what the function returned beside."""
        route = self._route(chosen, self._record(chosen))
        placing: Placing | None = None

        def take(start: int, size: int, images: list) -> None:
            nonlocal placing
            known = route.known()
            placing = placing or self._placing(known, chosen)
            if route.mode == "forward":
                placing.columns(route.ways, start, size, images)
            else:
                placing.rows(route.ways, start, size, images, known.ins)

        batches = self.batches(route.tape, call)
        batches.each(route.ways, route.width, route.values, route.image, take)
        return route.known().aux

    def _placing(self, known: Known, chosen: Selected) -> Placing:
        rows = []
        for out in known.outs:
            zero = np.zeros((), out.dtype)
            blocks = iter([np.broadcast_to(zero, out.shape + into.shape) for into in known.ins])
            rows.append([a.only([next(blocks) for _ in a.active]) for a in known.opened])
        expected = _nest(known.structure, rows, chosen.single)
        read = tree.leaves(chosen.values)
        return Placing(self.who, self.f, self.options.out, expected, read)

    def _route(self, chosen: Selected, run: Recording | None) -> Route:
        return self.forward(chosen) if run is None else self._on_tape(run)

    def forward(self, chosen: Selected) -> Route:
        """Forward: the function runs on dual numbers whose tangents are batches of directions."""
        opened = [
            open_argument(self.who, self.f, n, x)
            for n, x in zip(labels(self.argnums), chosen.values, strict=True)
        ]
        values = [v for a in opened for v in a.primals]
        ins = [aval_of(v) for v in values]
        run: Any = None

        def image(ts: Sequence) -> list:
            nonlocal run
            run = run_jvp(self.who, self.f, opened, chosen.values, ts, self.has_aux, chosen.call)
            if self.options.holomorphic:
                self._require_holomorphic(ins, [aval_of(v) for v in run.values])
            return run.tangents

        def known() -> Known:
            return Known(ins, [aval_of(v) for v in run.values], opened, run.structure, run.aux)

        ways = directions(tuple(ins), 1j, self.options.holomorphic)
        reason = GRADIENT if self.who == "hessian" else ASKED
        if self.mode == "auto":
            reason = NO_REVERSE
        image = of_one_draw(self.f, self._label, image)
        return Route("forward", reason, ways, 0, values, image, None, known)

    def _record(self, chosen: Selected) -> Recording | None:
        """A run on a tape; None where forward mode needs none, or is all that there is."""
        if self.mode == "forward":
            return None
        try:
            return record(self.who, self.f, chosen.values, self.has_aux, chosen.call, needed=True)
        except NotDifferentiable as error:
            if self.mode != "auto" or not error.has_forward:
                raise
            return None

    def _on_tape(self, run: Recording) -> Route:
        """Push or pull batches of directions through a tape."""
        ins, outs = [aval_of(x) for x in run.inputs], [aval_of(v) for v in run.values]
        if self.options.holomorphic:
            self._require_holomorphic(ins, outs)
        opened = [a for a in run.opened if a is not None]
        run.trace.strong = True  # unit vectors are zeros from the start
        along = directions(tuple(ins), 1j, self.options.holomorphic)
        back = directions(tuple(outs), -1j, self.options.holomorphic)
        reason = f"there are {along.total} directions of inputs and {back.total} of outputs"
        forward = self.mode == "auto" and along.total <= back.total
        if self.mode != "auto":
            reason = ASKED
        elif forward and run.trace.split:
            # a tape that has split coinciding values has their derivatives in reverse mode only
            forward, reason = False, "singular values or eigenvalues coincide"
        ways, others, image = (along, outs, run.push) if forward else (back, ins, run.pull)
        known = Known(ins, outs, opened, run.structure, run.aux)
        return Route(
            "forward" if forward else "reverse", reason, ways, sum([a.size for a in others]),
            run.inputs, image, run.trace.tape, lambda: known,
        )

    def _gradient(self, run: Recording) -> JacobianBlocks | None:
        """The blocks of one number, by one walk; None where there is more than that."""
        outs = [aval_of(v) for v in run.values]
        if len(outs) != 1 or outs[0].size != 1 or self.options.memory is not None:
            return None
        if _is_complex(outs[0]) and not self.options.holomorphic:
            return None
        ins = [aval_of(x) for x in run.inputs]
        if self.options.holomorphic:
            self._require_holomorphic(ins, outs)
        cts = run.pull([np.ones(outs[0].shape, outs[0].dtype)])
        blocks = [[self._row(ct, outs[0], a) for ct, a in zip(cts, ins, strict=True)]]
        opened = [a for a in run.opened if a is not None]
        return JacobianBlocks(blocks, opened, run.structure, run.aux)

    def _waist(self, run: Recording) -> Waist | None:
        o = self.options
        if self.mode != "auto" or o.holomorphic or o.out is not None or o.memory or o.executor:
            return None
        sizes = [sum([math.prod(shape_of(v)) for v in vs]) for vs in (run.inputs, run.values)]
        return waist.find(run, *sizes)

    def _mix(self, run: Recording) -> JacobianBlocks | None:
        """The blocks as products through a waist; None where there is none that pays."""
        if (narrow := self._waist(run)) is None:
            return None
        products = narrow.blocks(run, lambda: self.batches(run.trace.tape))
        if products is None:
            return None
        blocks = [
            [_shape(J, aval_of(out), aval_of(into))
             for J, into in zip(row, run.inputs, strict=True)]
            for row, out in zip(products, run.values, strict=True)
        ]
        opened = [a for a in run.opened if a is not None]
        return JacobianBlocks(blocks, opened, run.structure, run.aux)

    def _mixed_plan(self, run: Recording) -> Plan | None:
        if (narrow := self._waist(run)) is None:
            return None
        batches, (n, m) = self.batches(run.trace.tape), [
            sum([v.size for v in vs]) for vs in (run.inputs, run.values)
        ]
        pulled = batches.plan(narrow.ways, n, run.inputs, narrow.pull(run))
        pushed = batches.plan(narrow.ways, m, run.inputs, narrow.push(run))
        k = narrow.ways.total
        reason = (f"all that {n} inputs do to {m} outputs goes through {k} numbers, to which "
                  "cotangents are pulled and from which tangents are pushed")
        whole = n * m * aval_of(run.values[0]).dtype.itemsize
        return Plan(
            self.who, name_of(self.f), "mixed", reason, 2 * k, max(pulled.chunk, pushed.chunk),
            whole + pulled.result + pushed.result, pulled.held, max(pulled.each, pushed.each),
            False,
        )

    def _row(self, ct: Any, out: Aval, into: Aval) -> AnyArray:
        """The block of one number: a gradient where it is real."""
        return _shape(
            np.conjugate(ct) if _is_complex(into) and not _is_complex(out) else ct, out, into
        )

    def batches(self, tape: Sequence | None, call: tuple | None = None) -> Batches:
        o, instead = self.options, INSTEAD.get(self.who, INSTEAD["jacobian"])
        batches = Batches(
            self.who, self.f, o.chunk_size, o.progress, instead, self.sizes, o.memory, tape
        )
        if o.executor is None or call is None:
            return batches
        return SharedBatches(batches, o.executor, functools.partial(_images, o.alone), call)

    def images(self, args: tuple, kwargs: dict, start: int, stop: int) -> list:
        """The images of some directions, by a run of the function for them alone."""
        with RefusingDraws(Reach(self.f).finish(), self._label, OTHERS):
            chosen = select(self.who, self.f, self.argnums, args, kwargs)
            route = self._route(chosen, self._record(chosen))
            ways = Span(route.ways, start, stop)
            return self.batches(route.tape).run(ways, route.width, route.values, route.image)

    @property
    def _label(self) -> str:
        return f"{self.who}({name_of(self.f)})"

    def _forward_blocks(self, along: Directions, columns: list, outs: list[Aval]) -> list[list]:
        """Images of tangents as blocks, with the input axes last."""
        blocks = []
        for images, out in zip(columns, outs, strict=True):
            row = []
            for pair, into in zip(along.split(images), along.avals, strict=True):
                J = pair[0]
                if len(pair) > 1:
                    J, turned = pair
                    analytic = _is_complex(out)
                    J = self._analytic(J, turned, 1j) if analytic else from_parts(J, turned)
                J = J.transpose((*range(1, J.ndim), 0))
                row.append(_shape(J, out, into))
            blocks.append(row)
        return blocks

    def _reverse_blocks(self, back: Directions, columns: list, ins: list[Aval]) -> list[list]:
        """Images of cotangents as blocks. A real function of complex numbers has gradients."""
        blocks: list[list] = [[] for _ in back.avals]
        for images, into in zip(columns, ins, strict=True):
            for row, pair, out in zip(blocks, back.split(images), back.avals, strict=True):
                J = pair[0]
                if len(pair) > 1:
                    J, turned = pair
                    analytic = _is_complex(into)
                    J = self._analytic(J, turned, -1j) if analytic else from_parts(J, turned)
                elif _is_complex(into) and not _is_complex(out):
                    J = np.conjugate(J)
                row.append(_shape(J, out, into))
        return blocks

    def _analytic(self, J: Any, turned: Any, factor: complex) -> AnyArray:
        """``J`` where ``turned`` is ``factor`` times it, as for a holomorphic function; else an
        error, or NaN where values are not known."""
        gap, size = np.abs(turned - factor * J), np.abs(J)
        rows = size.max(axis=tuple(range(1, size.ndim)), keepdims=True, initial=0.0)
        columns = size.max(axis=0, keepdims=True, initial=0.0)
        bound = np.minimum(rows, columns) * float(np.sqrt(finfo(size.dtype).eps))
        differs = gap > bound
        known = known_value(differs)
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


def _images(alone: Callable, args: tuple, kwargs: dict, start: int, stop: int) -> list:
    """What a worker does with the original function, which may be sent by value."""
    return alone().func.job.images(args, kwargs, start, stop)


def _nest(structure: tree.Structure, rows: list[list], single: bool) -> Any:
    """The container of containers, from a list of an output leaf's blocks by argument."""
    return tree.unflatten(structure, [r[0] if single else tuple(r) for r in rows])


def _by_argument(parts: JacobianBlocks, row: list) -> list[list]:
    """A row's blocks by argument."""
    blocks = iter(hand_out_all(row))
    return [[next(blocks) for _ in a.active] for a in parts.opened]


def _is_complex(a: Aval) -> bool:
    return a.dtype.kind == "c"


def _shape(J: Any, out: Aval, into: Aval) -> AnyArray:
    """A block in its shape, and, as a gradient, in the precision of the argument: tangents have
    that of the result, so that it would depend on the mode."""
    shape = out.shape + into.shape
    J = J if aval_of(J).shape == shape else J.reshape(shape)
    have, dtype = dtype_of(J), into.dtype
    if have is dtype:
        return J
    dtype = np.result_type(dtype, np.complex64) if have.kind == "c" else real_dtype(dtype)
    return cast(J, dtype)


ASKED = "that is the mode asked for"
NO_REVERSE = "reverse mode does not go through a loop of any number of steps"
GRADIENT = "a tangent through the gradient is a column, and saves a second recording"
INSTEAD = {
    "hessian": "hvp and linear_operator give products with it that need no matrix, and "
    "sparse_hessian leaves out its zeros.",
    "jacobian": "jvp, vjp and linear_operator give products with it that need no matrix, and "
    "sparse_jacobian leaves out its zeros; argnums takes some of the arguments.",
}
