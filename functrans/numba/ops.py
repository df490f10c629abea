r"""A kernel as an op, and its derivatives of any order as ops again.

Of a kernel :math:`f`, :math:`D_k` is its derivative along k directions, a function of 2^k
components of each argument, and :math:`R_k(c, v) = \nabla_c \langle v, D_k(c) \rangle` is a
reverse run of that. They are closed under differentiation:

.. math::
    D_k'(c)\,\dot c = D_{k+1}(c, \dot c), \qquad
    R_k'(c, v)\,(\dot c, \dot v) = R_k(c, \dot v) + \nabla_c \langle v, D_{k+1}(c, \dot c) \rangle,

where the last is the first half of :math:`R_{k+1}`; transposed, :math:`R_k` is :math:`D_{k+1}` in v
and the same half in c.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.core import types
from numba.core.compiler import Flags, compile_extra
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.registry import cpu_target

from functrans._core.array import Aval, aval_of
from functrans._core.bind import AnyArray, Tracer, cast
from functrans._core.unswapped import unswapped
from functrans._ops.declare import General
from functrans.errors import ShapeError, UnsupportedError
from functrans.numba.convert import Copies
from functrans.numba.runs import Args, Jacobian, Runs, Tapes, leaves_of
from functrans.numba.source import explained, line_of_call
from functrans.numba.updates import TypesOfPlain

AUTO, FORWARD, REVERSE = "auto", "forward", "reverse"


class Mode(NamedTuple):
    """``chunk``: how many entries arguments may have for forward runs to be taken."""

    name: str
    chunk: int


class KernelOp:
    """A kernel for arguments of one kind, as a row.

    ``checked``: for programs, whose examples need not be real: indices are compared with bounds,
    and what a kernel returns must have the shapes that it had.
    """

    def __init__(self, copies: Copies, args: Args, avals: Sequence[Aval], mode: Mode,
                 checked: bool = False):
        self.kernel, self.args, self.mode, self.checked = copies.kernel, args, mode, checked
        self.name = f"numba({self.kernel.__name__})"
        self.plain, conversion = copies.of(None, (), checked)
        fixed = [conversion.of(x) if isinstance(x, Dispatcher) else x for x in args.fixed]
        self.plain_args = args._replace(fixed=tuple(fixed))
        self.runs = Runs(copies, args, checked)
        self.result = self._result_type(avals)
        kinds = _leaves(self, self.result) + [avals[i].dtype for i in args.outs]
        self.is_complex = any([k.kind == "c" for k in kinds])
        self.moving = [i for i, k in enumerate(kinds) if _is_float(k)]
        self.dtypes = [kinds[i] for i in self.moving]
        self.outputs = len(kinds)
        self.shapes: dict[tuple, list[Aval]] = {}
        self.levels: dict[tuple, Level] = {}
        self.row = General(
            self.name, self.run, jvp=self.jvp, vjp=self.vjp, batch=None, saves="xy",
            abstract=self.abstract, outputs=self.outputs, doc="A kernel compiled by numba.",
        )

    def _result_type(self, avals: Sequence[Aval]) -> types.Type:
        kinds: list[Any] = [None if j in self.args.places else numba.typeof(x)
                            for j, x in enumerate(self.plain_args.fixed)]
        for i, (j, a) in enumerate(zip(self.args.places, avals, strict=True)):
            kinds[j] = argument_type(a, self.args.scalars[i], i not in self.args.outs)
        return result_type(self.kernel, self.plain, kinds)

    # ---- values

    def run(self, *xs: Any) -> np.ndarray | tuple[np.ndarray, ...]:
        arrays = [np.asarray(x) for x in xs]
        operands = [self.args.plain(i, x) for i, x in enumerate(arrays)]
        result = leaves_of(explained(self.kernel, self.plain, self.plain_args.filled(operands)))
        if any(y is None for y in result) or len(result) + len(self.args.outs) != self.outputs:
            raise UnsupportedError(
                f"{line_of_call()}: the kernel `{self.kernel.__name__}` returned None, where it "
                "returns a number or an array in other cases"
            )
        ys = [np.asarray(y) for y in result] + [operands[i] for i in self.args.outs]
        if self.checked:
            self._require_same(arrays, ys)
        return tuple(ys) if self.outputs > 1 else ys[0]

    def returned(self, ys: Sequence) -> Any:
        """The outputs as the kernel returns them."""
        n = self.outputs - len(self.args.outs)
        result, written = structured(ys[:n], self.result), tuple(ys[n:])
        if not written:
            return result
        if isinstance(self.result, types.NoneType):
            return written[0] if len(written) == 1 else written
        return (result, *written)

    def _require_same(self, xs: Sequence, ys: Sequence) -> None:
        found = [aval_of(y) for y in ys]
        known = self.shapes.setdefault(tuple(map(aval_of, xs)), found)
        if known != found:
            raise ShapeError(
                f"{self.name} returned {found!r} where it returned {known!r} when it was staged. "
                "In a compiled function the shapes of results must not depend on values."
            )

    def abstract(self, *avals: Aval) -> Aval | tuple[Aval, ...]:
        ys = self.out_avals(avals)
        return tuple(ys) if self.outputs > 1 else ys[0]

    def out_avals(self, avals: Sequence) -> list[Aval]:
        """The types of the outputs, as far as they can be told without a run."""
        avals = [aval_of(a) for a in avals]
        key = tuple(avals)
        if key not in self.shapes:
            if any(isinstance(k, types.Array) for k in flat_types(self.result)):
                raise UnsupportedError(
                    f"{self.name} returns an array, whose shape only a run can tell. Let it write "
                    "into an argument, and name that: functrans.numba.differentiable(kernel, outs=)"
                )
            dtypes = _leaves(self, self.result)
            self.shapes[key] = [*(Aval((), d) for d in dtypes),
                                *(avals[i] for i in self.args.outs)]
        return self.shapes[key]

    # ---- derivatives

    def forward(self, xs: Sequence, active: Sequence[int]) -> bool:
        """Whether a gradient is taken by runs forward."""
        size = sum([prod(xs[i].shape) for i in active])
        return size > 0 and (
            self.mode.name == FORWARD or (self.mode.name == AUTO and size <= self.mode.chunk))

    def level(self, depth: int, active: Sequence[int]) -> Level:
        key = depth, tuple(active)
        if key not in self.levels:
            self.levels[key] = Level(self, depth, tuple(active))
        return self.levels[key]

    def jvp(self, ts: Sequence, y: Any, xs: Sequence) -> Any:
        active = [i for i, t in enumerate(ts) if t is not None]
        full: list[Any] = [None] * self.outputs
        if active and self.moving:
            pushed = self.level(1, active).push(*xs, *[ts[i] for i in active])
            for i, t in zip(self.moving, pushed, strict=True):
                full[i] = t
        return tuple(full) if self.outputs > 1 else full[0]

    def vjp(self, ct: Any, y: Any, xs: Sequence, wanted: Sequence[bool]) -> list:
        ys, cts = (y, ct) if self.outputs > 1 else ((y,), (ct,))
        active = [i for i, w in enumerate(wanted) if w and aval_of(xs[i]).dtype.kind == "f"]
        full: list[Any] = [None] * len(xs)
        if active and any(cts[i] is not None for i in self.moving):
            filled = [_or_zeros(cts[i], ys[i]) for i in self.moving]
            pulled = self.level(0, active).pull(*xs, *filled)
            for i, c in zip(active, pulled, strict=True):
                full[i] = c
        return full


class Level:
    """The rows :math:`D_k` (``push``) and :math:`R_k` (``pull``) of the operands ``active``.

    Operands: the kernel's, then components 1 to 2^k - 1 of the active ones, then for ``pull``
    cotangents of the outputs. Outputs: those of the kernel that move; cotangents of all components.
    """

    def __init__(self, op: KernelOp, depth: int, active: tuple[int, ...]):
        self.op, self.depth, self.active = op, depth, active
        self.inputs = len(op.args.places)
        self.components = 2**depth
        of = "" if depth < 2 else f"{depth} times "
        self.push_row = General(
            f"{of}jvp of {op.name}", self.run_push, jvp=self.push_jvp, vjp=self.push_vjp,
            batch=self.push_batch, saves="x", outputs=len(op.moving), abstract=self.push_abstract,
        )
        self.pull_row = General(
            f"vjp of {'jvp of ' * depth}{op.name}", self.run_pull, jvp=self.pull_jvp,
            vjp=self.pull_vjp, batch=self.pull_batch, saves="x",
            outputs=self.components * len(active), abstract=self.pull_abstract,
        )

    def push(self, *operands: Any) -> Sequence:
        return _all(self.push_row, operands)

    def pull(self, *operands: Any) -> Sequence:
        return _all(self.pull_row, operands)

    def split(self, operands: Sequence) -> tuple[list, list[list], list]:
        """The kernel's operands, components 1 and on by active operand, and what follows them."""
        n, width = self.inputs, len(self.active)
        end = n + (self.components - 1) * width
        columns = [list(operands[n + k : end : width]) for k in range(width)]
        return list(operands[:n]), columns, list(operands[end:])

    def above(self, xs: Sequence, columns: Sequence[list], changes: Sequence[list]) -> tuple:
        """The level above and its operands, for changes of each component of each operand.

        An operand with a change of its value, which is not active here, is active there.
        """
        active = [i for i in range(self.inputs)
                  if i in self.active or any(c is not None for c in changes[i])]
        parts = []
        for i in active:
            mine = columns[self.active.index(i)] if i in self.active else []
            own = [_or_zeros(c, xs[i]) for c in [*mine, *[None] * (self.components - 1)]]
            moved = [_or_zeros(c, xs[i]) for c in [*changes[i], *[None] * self.components]]
            parts.append(own[: self.components - 1] + moved[: self.components])
        flat = [part[j] for j in range(2 * self.components - 1) for part in parts]
        return self.op.level(self.depth + 1, active), [*xs, *flat]

    def changes(self, xs: Sequence, columns: Sequence[list]) -> list[list]:
        """Changes by operand: that of its value, then those of its components."""
        found = [[x] for x in xs]
        for i, column in zip(self.active, columns, strict=True):
            found[i] = [xs[i], *column]
        return found

    # ---- forward

    def run_push(self, *operands: Any) -> np.ndarray | tuple[np.ndarray, ...]:
        xs, columns, _ = self.split([np.asarray(x) for x in operands])
        ys = self.op.runs.tangents(xs, self.active, columns, self.depth, self.op.moving)
        return self._outs(ys)

    def _outs(self, ys: Sequence) -> np.ndarray | tuple[np.ndarray, ...]:
        """Values of the outputs that move, in their dtypes."""
        found = [np.asarray(y, d) for y, d in zip(ys, self.op.dtypes, strict=True)]
        return tuple(found) if len(found) > 1 else found[0]

    def push_abstract(self, *avals: Any) -> Aval | tuple[Aval, ...]:
        ys = self.op.out_avals(avals[: self.inputs])
        found = [ys[i] for i in self.op.moving]
        return tuple(found) if len(found) > 1 else found[0]

    def push_jvp(self, ts: Sequence, y: Any, xs: Sequence) -> Any:
        values, columns, _ = self.split(xs)
        dvalues, dcolumns, _ = self.split(ts)
        if self.depth == 1 and all(t is None for t in dvalues):
            ts = [_or_zeros(c[0], values[i])
                  for i, c in zip(self.active, dcolumns, strict=True)]
            return self.push_row(*values, *ts)
        level, operands = self.above(values, columns, self.changes(dvalues, dcolumns))
        return level.push_row(*operands)

    def push_vjp(self, ct: Any, y: Any, xs: Sequence, wanted: Sequence[bool]) -> list:
        cts = list(ct) if len(self.op.moving) > 1 else [ct]
        values, n = xs[: self.inputs], self.inputs
        cts = self._fill(values, cts)
        full: list[Any] = [None] * len(xs)
        if self.depth == 1 and not any(wanted[:n]):
            full[n:] = self.op.level(0, self.active).pull(*values, *cts)
            return full
        self._curve(full, self, xs, cts, wanted)
        return full

    def _spread(self, values: Sequence, columns: Sequence[list], active: Sequence[int]) -> list:
        """Components for a wider set of active operands: zeros of those that are new."""
        return [
            columns[self.active.index(i)][j] if i in self.active else _or_zeros(None, values[i])
            for j in range(self.components - 1) for i in active
        ]

    def _fill(self, values: Sequence, cts: Sequence) -> list:
        """Cotangents of the outputs, zeros where there is none."""
        if all(c is not None for c in cts):
            return list(cts)
        ys = self.op.out_avals(values)
        return [_or_zeros(c, ys[i]) for c, i in zip(cts, self.op.moving, strict=True)]

    def push_batch(self, size: int, xs: Sequence, batched: Sequence[bool]) -> Any:
        n = self.inputs
        if self.depth > 1 or any(batched[:n]) or not size or _any_traced(xs):
            return self.push_row.loop(size, xs, batched)
        ts = [np.moveaxis(x, 0, -1) if b else np.repeat(np.asarray(x)[..., None], size, -1)
              for x, b in zip(xs[n:], batched[n:], strict=True)]
        values = [np.asarray(x) for x in xs[:n]]
        ys = self.op.runs.chunk(values, self.active, ts, self.op.moving)
        return self._outs([np.moveaxis(y, -1, 0) for y in ys])

    # ---- backward

    def run_pull(self, *operands: Any) -> np.ndarray | tuple[np.ndarray, ...]:
        xs, columns, cts = self.split([np.asarray(x) for x in operands])
        return self._cotangents(xs, self.linearized(xs, columns).pull(cts))

    def linearized(self, xs: Sequence, columns: Sequence[list]) -> Jacobian | Tapes:
        """A run after which cotangents can be pulled back, any number of times."""
        if self.depth == 0 and self.op.forward(xs, self.active):
            return Jacobian.of(self.op.runs, xs, self.active, self.op.moving)
        components = [[xs[i], *c] for i, c in zip(self.active, columns, strict=True)]
        return Tapes(self.op.runs, xs, self.active, components, self.depth, self.op.moving)

    def _cotangents(self, xs: Sequence,
                    by_operand: Sequence[np.ndarray]) -> np.ndarray | tuple[np.ndarray, ...]:
        """Cotangents, ordered by operand and then component, as the row has them."""
        width = len(self.active)
        found = [np.asarray(by_operand[k * self.components + j], xs[i].dtype)
                 for j in range(self.components) for k, i in zip(range(width), self.active,
                                                                 strict=True)]
        return tuple(found) if len(found) > 1 else found[0]

    def pull_abstract(self, *avals: Any) -> Aval | tuple[Aval, ...]:
        found = [aval_of(avals[i]) for _ in range(self.components) for i in self.active]
        return tuple(found) if len(found) > 1 else found[0]

    def pull_jvp(self, ts: Sequence, y: Any, xs: Sequence) -> Any:
        values, columns, cts = self.split(xs)
        dvalues, dcolumns, dcts = self.split(ts)
        total: list[Any] = [None] * (self.components * len(self.active))
        if any(t is not None for t in dcts):
            rest = xs[: len(xs) - len(cts)]
            total = list(self.pull(*rest, *map(_or_zeros, dcts, cts)))
        changes = self.changes(dvalues, dcolumns)
        if any(t is not None for change in changes for t in change):
            level, operands = self.above(values, columns, changes)
            curved = level.pull(*operands, *cts)
            wide = len(level.active)
            for k in range(len(total)):
                component, i = divmod(k, len(self.active))
                c = curved[component * wide + level.active.index(self.active[i])]
                total[k] = c if total[k] is None else total[k] + c
        return tuple(total) if len(total) > 1 else total[0]

    def pull_vjp(self, ct: Any, y: Any, xs: Sequence, wanted: Sequence[bool]) -> list:
        """``ct``: one for each cotangent that the row gives, read as changes of the components."""
        ws = list(ct) if self.components * len(self.active) > 1 else [ct]
        values, columns, cts = self.split(xs)
        moves = [[None]] * self.inputs
        for k, i in enumerate(self.active):
            moves[i] = ws[k :: len(self.active)]
        level, operands = self.above(values, columns, moves)
        full: list[Any] = [None] * len(xs)
        end = len(xs) - len(cts)
        if any(wanted[end:]):
            full[end:] = level.push(*operands)
        if any(wanted[:end]):
            self._curve(full, level, operands, cts, wanted)
        return full

    def _curve(
        self, full: list, level: Level, operands: Sequence, cts: Sequence, wanted: Sequence[bool]
    ) -> None:
        """Put in ``full`` the components of this level of what ``level`` pulls back."""
        n = self.inputs
        extra = [i for i in range(n) if wanted[i] and _is_float(aval_of(operands[i]).dtype)]
        active = tuple(sorted({*level.active, *extra}))
        values, columns, _ = level.split(operands)
        wide = self.op.level(level.depth, active)
        pulled = wide.pull(*values, *level._spread(values, columns, active), *cts)
        for k in range(self.components * len(active)):
            component, i = divmod(k, len(active))
            if component == 0:
                full[active[i]] = pulled[k] if wanted[active[i]] else None
            elif active[i] in self.active:
                at = n + (component - 1) * len(self.active) + self.active.index(active[i])
                full[at] = pulled[k]

    def pull_batch(self, size: int, xs: Sequence, batched: Sequence[bool]) -> Any:
        end = len(xs) - len(self.op.moving)
        if any(batched[:end]) or not size or _any_traced(xs):
            return self.pull_row.loop(size, xs, batched)
        values, columns, cts = self.split([np.asarray(x) for x in xs])
        run = self.linearized(values, columns)
        rows = [
            self._cotangents(values, run.pull([
                c[k] if b else c for c, b in zip(cts, batched[end:], strict=True)
            ]))
            for k in range(size)
        ]
        if self.pull_row.outputs == 1:
            return np.stack(rows)
        return tuple(map(np.stack, zip(*rows, strict=True)))


# ---- what all need


def _all(row: General, operands: Sequence) -> Sequence:
    ys = row(*operands)
    return ys if row.outputs > 1 else (ys,)


def _or_zeros(x: Any, like: Any) -> AnyArray:
    a = aval_of(like)
    return np.zeros(a.shape, a.dtype) if x is None else cast(x, a.dtype)


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f"


def _any_traced(xs: Sequence) -> bool:
    return any(isinstance(x, Tracer) for x in xs)


def argument_type(a: Aval, scalar: bool, readonly: bool) -> types.Type:
    """The type of an argument as a kernel gets it."""
    number = numba.from_dtype(a.dtype)
    return number if scalar else types.Array(number, a.ndim, "C", readonly=readonly)


def result_type(kernel: Dispatcher, plain: Dispatcher, kinds: Sequence) -> types.Type:
    """What a kernel returns, as numba infers it of its copy for plain numbers.

    That is compiled when it is first run, which a gradient does not do.
    """
    _, folded = plain.fold_argument_types(tuple(kinds), {})
    if tuple(folded) in plain.overloads:
        return plain.overloads[tuple(folded)].signature.return_type
    flags = Flags()
    cpu_target.options.parse_as_flags(flags, plain.targetoptions)
    contexts = cpu_target.typing_context, cpu_target.target_context
    infer = functools.partial(compile_extra, *contexts, plain.py_func, flags=flags, locals={},
                              pipeline_class=TypesOfPlain)
    with global_compiler_lock, unswapped():
        return explained(kernel, infer, (tuple(folded), None))


def flat_types(kind: types.Type) -> list:
    """The types of the numbers and arrays in a result."""
    if isinstance(kind, types.NoneType):
        return []
    kinds: Any = kind if isinstance(kind, types.BaseTuple) else [kind]
    return [k.type if isinstance(k, types.Optional) else k for k in kinds]


def structured(ys: Sequence, kind: types.Type) -> Any:
    """Numbers and arrays as the result of this type."""
    if isinstance(kind, types.BaseNamedTuple):
        return kind.instance_class(*ys)  # type: ignore[attr-defined]  # it has
    if isinstance(kind, types.BaseTuple):
        return tuple(ys)
    return ys[0] if len(ys) else None


def _leaves(op: KernelOp, kind: types.Type) -> list[np.dtype]:
    """Their dtypes."""
    found = []
    for k in flat_types(kind):
        number = k.dtype if isinstance(k, types.Array) else k
        if not isinstance(number, types.Number | types.Boolean):
            raise UnsupportedError(
                f"{op.name} returns {kind}. A kernel that is differentiated returns numbers, "
                "arrays of numbers, or a tuple of these."
            )
        found.append(np.dtype(str(numba.types.unliteral(number)).replace("boolean", "bool")))
    return found
