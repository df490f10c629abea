"""Loops and branches while a program is written: their functions are staged, each once.

What the functions close over becomes an operand, so that every transform sees it.

"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from functrans import tree
from functrans._compile.ir.passes import optimise
from functrans._compile.ir.program import Atom, Const, Eqn, Program, Var, aval_of_atom, is_weak
from functrans._compile.ir.structured import INT, Branch, Loop
from functrans._core.array import PYTHON_SCALARS, Aval, dtype_of, plain
from functrans._core.bind import AnyArray, Tracer, is_staged
from functrans._core.plain import placed
from functrans._ops import elementwise as ops
from functrans._ops.structure import astype
from functrans._transforms.arguments import is_value
from functrans._transforms.control.branches import BranchCall
from functrans._transforms.control.loops import LoopCall
from functrans._transforms.staging.environment import Environment
from functrans._transforms.staging.staging import (
    StagedFunction,
    StagedTracer,
    example_of,
    innermost,
    stage_part,
    with_consts,
    writing,
)
from functrans.errors import ArgumentError, ConcretizationError, ShapeError, name_of


def any_staged(*trees: Any) -> bool:
    return any(is_staged(x) for t in trees for x in tree.leaves(t))


def reaches_staged(*functions: Callable) -> bool:
    """Whether functions close over such values, as far as that can be seen."""
    return writing() and any(map(is_staged, Environment(*functions).tracers))


def weak(x: Any) -> bool:
    """Whether ``x`` is a Python scalar, traced or not."""
    x = innermost(x)
    return x.variable.weak if isinstance(x, StagedTracer) else type(x) in PYTHON_SCALARS


def strong(x: Any, dtype: np.dtype) -> np.ndarray | Tracer:
    """``x`` in ``dtype``, no Python scalar."""
    if not isinstance(x, Tracer):
        return np.asarray(plain(x), dtype)
    return x if not weak(x) and x.dtype == dtype else astype(x, dtype=dtype)


# ---- loops


# While a body is staged: the loops inside, in their order, and those that it had the last time.
_loops: ContextVar[tuple[list[LoopBody], list[LoopBody]]] = ContextVar("loops", default=([], []))


class LoopBody:
    """The body of a loop on flat values, staged for a state whose types stay as they are.

    Where the state has to be widened it is staged again. The loops inside then begin with what
    their states were widened to, so that it takes them one staging, not two each.
    """

    def __init__(self, name: str, f: Callable, state: Sequence, entries: Sequence):
        self.state = [plain(x) for x in state]
        self.loops: list[LoopBody] = []
        self.kinds = self._kinds()
        self._follow(*_loops.get())
        while True:
            self._stage(name, f, entries)
            if not self._widen():
                break

    def _stage(self, name: str, f: Callable, entries: Sequence) -> None:
        inside: list[LoopBody] = []
        before = _loops.get()
        try:
            _loops.set((inside, self.loops))
            self.part = stage_part(self._type(f), [*map(example_of, self.state), *entries], name)
        finally:
            _loops.set(before)
        self.loops = inside

    def _kinds(self) -> list[tuple[np.dtype, bool]]:
        return [(dtype_of(x), weak(x)) for x in self.state]

    def _follow(self, loops: list[LoopBody], before: list[LoopBody]) -> None:
        """Begin where the loop in my place ended the last time."""
        if len(before) > len(loops) and before[len(loops)].kinds == self.kinds:
            last = before[len(loops)]
            self.loops = last.loops
            pairs = zip(self.state, self.kinds, last._kinds(), strict=True)
            self.state = [x if k == kind else _widened(x, *kind) for x, k, kind in pairs]
        loops.append(self)

    def _type(self, f: Callable) -> Callable:
        """``f`` whose next state is not weak where the first is not."""

        def step(*values: Any) -> tuple[list, list]:
            n = len(self.state)
            new, collected = f(values[:n], values[n:])
            carried = [
                y if weak(x) or not weak(y) else strong(y, dtype_of(x))
                for x, y in zip(self.state, new, strict=True)
            ]
            return carried, [y if not weak(y) else strong(y, dtype_of(y)) for y in collected]

        return step

    def _widen(self) -> bool:
        """Give Python scalars in the state the types that a step gives them; whether any changed.
        """
        changed = False
        for i, (x, a) in enumerate(zip(self.state, self.part.program.outputs, strict=False)):
            dtype = aval_of_atom(a).dtype
            if not weak(x) or (is_weak(a) and dtype == dtype_of(x)):
                continue
            changed = True
            self.state[i] = _widened(x, dtype, not isinstance(x, Tracer) and is_weak(a))
        return changed


def _widened(x: Any, dtype: np.dtype, python: bool) -> AnyArray:
    return dtype.type(x).item() if python else strong(x, dtype)


def scan(
    f: Callable, state: Sequence, columns: Sequence, length: int, reverse: bool, name: str
) -> tuple[list, list] | None:
    """State and collected arrays, flat; None: to be unrolled."""
    if not all(map(is_value, state)):
        return None
    try:
        return _scan(f, state, columns, length, name, reverse=reverse)
    except ConcretizationError:
        return None  # Python's own control flow on values that only a run of each step knows


def counted_scan(
    f: Callable, state: Sequence, columns: Sequence, length: int, count: Any, name: str
) -> tuple[list, list]:
    """The same for the first ``count`` of at most ``length`` steps; what others would collect is
    zero.
    """
    return _scan(f, state, columns, length, name, count=count)


def _scan(
    f: Callable, state: Sequence, columns: Sequence, length: int, name: str, *,
    reverse: bool = False, count: Any = None,
) -> tuple[list, list]:
    body = LoopBody(name, f, state, list(map(_entry, columns)))
    consts, (program,) = with_consts([body.part])
    n, counts = len(state), [] if count is None else [count]
    row = Loop(name, optimise(program), len(consts), n, length, LoopCall, reverse=reverse,
               counted=bool(counts))
    outs = LoopCall(row)(*counts, *consts, *body.state, *map(plain, columns))
    return list(outs[:n]), list(outs[n:])


def _entry(x: Any) -> AnyArray:
    """An example of the entries of ``x`` along axis 0."""
    x = example_of(plain(x))
    return x[0] if len(x) else np.ones(x.shape[1:], x.dtype)


def while_loop(
    test: Callable, f: Callable, state: Sequence, most: int | None, name: str
) -> list | None:
    """The state, flat, after the steps for which ``test`` holds, ``most`` of them at most.

    None: nothing depends on a value of the program, so that Python can run it.
    """
    step = LoopBody(name, f, state, [])
    n = len(state)
    ends = stage_part(lambda *xs: test(xs), [*map(example_of, step.state)], name)
    consts, (body, ended) = with_consts([step.part, ends])
    if not any_staged(consts, state):
        return None
    row = Loop(name, optimise(body), len(consts), n, most, LoopCall, test=optimise(ended))
    return list(LoopCall(row)(*consts, *step.state)[:n])


def once(name: str, f: Callable, operands: Sequence) -> tuple:
    """The flat outputs of ``f``, for which reverse mode stores nothing and runs it again.

    It is a loop of one step, so that the backward runs it only when its cotangents are there.
    """
    part = stage_part(f, list(map(example_of, operands)), name)
    consts, (body,) = with_consts([part])
    inputs = [*consts, *operands]
    # Python scalars stay what they are as parts of the state, which is not stacked
    scalars = [i for i, a in enumerate(body.outputs) if is_weak(a)]
    order = sorted(range(len(body.outputs)), key=lambda i: i not in scalars)
    state = [Var(aval_of_atom(body.outputs[i]), weak=True) for i in scalars]
    program = Program((*body.inputs, *state), body.eqns, tuple([body.outputs[i] for i in order]))
    row = Loop(name, optimise(program), len(inputs), len(state), 1, LoopCall, again=True)
    outs = LoopCall(row)(*inputs, *[v.aval.dtype.type(0).item() for v in state])
    ys = [*outs[: len(state)], *[y[0] for y in outs[len(state) :]]]
    return tuple(y for _, y in sorted(zip(order, ys, strict=True), key=lambda pair: pair[0]))


# ---- branches


def branch(
    index: Any, functions: Sequence[Callable], operands: tuple, name: str
) -> tuple[list, Any]:
    """The flat outputs of the function that ``index`` chooses, and how they nest.

    Traced values among the operands are inputs of the branches: ops on them are part of these.

    Raises ShapeError or ArgumentError where the functions return different kinds of values.
    """
    leaves, shape = tree.flatten(operands)
    places = [i for i, x in enumerate(leaves) if isinstance(x, Tracer)]

    def flat(f: Callable, *values: Any) -> Any:
        return f(*tree.unflatten(shape, placed(values, places, leaves)))

    inputs = [leaves[i] for i in places]
    parts = [stage_part(functools.partial(flat, f), [*map(example_of, inputs)], name)
             for f in functions]
    first = parts[0]
    for f, part in zip(functions, parts, strict=True):
        _require_alike(name, functions[0], first, f, part)
    columns = zip(*[part.program.outputs for part in parts], strict=True)
    kinds = list(map(_common, columns))
    if not kinds:
        return [], first.structure  # nobody could see what the branches compute
    consts, bodies = with_consts([_in_kinds(part, kinds) for part in parts])
    row = Branch(name, list(map(optimise, bodies)), BranchCall)
    return list(BranchCall(row)(_as_int(index), *consts, *inputs)), first.structure


class _Kind(NamedTuple):
    dtype: np.dtype
    weak: bool


def _common(outputs: Sequence[Atom]) -> _Kind:
    """What outputs of several branches are promoted to, as by ``np.where``."""
    dtypes = [aval_of_atom(a).dtype for a in outputs]
    if all(map(is_weak, outputs)):
        return _Kind(np.result_type(*dtypes), True)
    numbers = [d.type(0).item() if is_weak(a) else d for a, d in zip(outputs, dtypes, strict=True)]
    return _Kind(np.result_type(*numbers), False)


def _in_kinds(part: StagedFunction, kinds: Sequence[_Kind]) -> StagedFunction:
    """The part with outputs of the given kinds."""
    p = part.program
    eqns = list(p.eqns)
    outputs = [_cast(a, k, eqns) for a, k in zip(p.outputs, kinds, strict=True)]
    return part._replace(program=Program(p.inputs, tuple(eqns), tuple(outputs)))


def _cast(a: Atom, kind: _Kind, eqns: list[Eqn]) -> Atom:
    aval = aval_of_atom(a)
    if aval.dtype == kind.dtype and is_weak(a) == kind.weak:
        return a
    if not isinstance(a, Var):
        value = np.array(a.value if isinstance(a, Const) else a, kind.dtype)
        value.setflags(write=False)
        return value.item() if kind.weak else Const(value)
    cast = Var(Aval(aval.shape, kind.dtype), kind.weak)
    if not kind.weak:
        eqns.append(Eqn(astype, (a,), {"dtype": kind.dtype}, (cast,)))
    elif kind.dtype.kind == "c":
        # by operators, of whose results Python scalars are weak; each is exact, and keeps a zero's
        # sign
        eqns.append(Eqn(ops.subtract, (a, 0j), {}, (cast,)))
    else:
        eqns.append(Eqn(ops.multiply, (a, kind.dtype.type(1).item()), {}, (cast,)))
    return cast


def _as_int(index: Any) -> Any:
    return astype(index, dtype=INT) if dtype_of(index) != INT or weak(index) else index


def _require_alike(
    name: str, f: Callable, first: StagedFunction, g: Callable, other: StagedFunction
) -> None:
    if first.structure != other.structure:
        raise ArgumentError(
            f"{name}: `{name_of(f)}` returned the structure {first.structure!r} and "
            f"`{name_of(g)}` {other.structure!r}. They must agree under jit."
        )
    for a, b in zip(first.program.outputs, other.program.outputs, strict=True):
        x, y = aval_of_atom(a), aval_of_atom(b)
        mixed = is_weak(a) or is_weak(b)
        if x.shape != y.shape or (x.dtype != y.dtype and not mixed):
            raise ShapeError(
                f"{name}: `{name_of(f)}` returned {x!r} and `{name_of(g)}` {y!r}. Shapes and "
                "dtypes must agree under jit."
            )
