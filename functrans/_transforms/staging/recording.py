"""One path through a function: its program, and what Python decided on the way by traced values.

Where Python needs a number (``if``, ``while``, ``range``, ``int``), the trace gives what the
actual arguments give there, notes it, and goes on. Decisions that are known already are not made
again: a call whose path leaves those that are known is staged from its beginning, and takes them
as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from functrans._compile.ir.program import Program, Var, atoms, evaluate
from functrans._core.array import plain
from functrans._core.bind import PrimalTracer, Tracer, writer
from functrans._core.primitive import Primitive, ZeroPolicy
from functrans._transforms.arguments import describe, is_number
from functrans._transforms.drawing import Draw, Drawn, key_of
from functrans._transforms.staging.generators import state_of
from functrans._transforms.staging.signature import typed
from functrans._transforms.staging.staging import (
    StagedTracer,
    StagingTrace,
    example_of,
    used_of,
    write,
)
from functrans.errors import ConcretizationError, UnsupportedError, user_line

# Decisions on one path, at most.
MOST_DECISIONS = 1000


class Outcome(NamedTuple):
    """What a decision gave: a number of Python's, or the exception that it raised."""

    key: Any
    value: Any

    def result(self) -> Any:
        if isinstance(self.value, Exception):
            raise type(self.value)(*self.value.args)
        return self.value


def outcome_of(convert: Callable[[Any], Any], x: Any) -> Outcome:
    """What ``convert`` makes of ``x``, which may be traced."""
    try:
        value = convert(x)
    except (ValueError, OverflowError) as error:  # of int(nan), int(inf)
        return Outcome(type(error), error.with_traceback(None))
    return Outcome(value if type(value) is bool else typed(value), value)


class Decision(NamedTuple):
    """``convert`` of a variable, after so many equations; ``outcome`` None: it is not known yet."""

    after: int
    variable: Var
    convert: Callable[[Any], Any]
    outcome: Outcome | None
    line: str

    def __str__(self) -> str:
        value = self.outcome and self.outcome.value
        how = f"raised {value!r}" if isinstance(value, Exception) else f"is {value!r}"
        return f"for {self.convert.__name__}() {how} at {self.line}"


class Undecided(BaseException):
    """A number is not known while the function is staged: the path ends there for now."""


class Uncompiled(BaseException):
    """A function that only its Python can run; ``error`` says why, and what to do."""

    def __init__(self, error: ConcretizationError):
        self.error = error
        super().__init__(str(error))


class Endless(Uncompiled):
    """A path makes too many decisions, most of them in ``line``."""

    def __init__(self, trace: PathTrace):
        lines = Counter([d.line for d in trace.decisions])
        self.line = lines.most_common(1)[0][0]
        self.how = f"and so more than {MOST_DECISIONS} times in one call"
        super().__init__(ConcretizationError(self.line))


class Recording(NamedTuple):
    """A path. ``program`` ends with its last decision if that has no outcome."""

    program: Program
    structure: Any
    lifted: list[tuple[Any, Var]]
    decisions: list[Decision]
    draws: PathDraws


class PathDraws(NamedTuple):
    """The draws on a path in order: how many decisions came before each, what stands for it; and
    the states of the generators afterwards, by id.
    """

    draws: list[Draw]
    after: list[int]
    variables: list[Var]
    states: dict[int, object]

    def used(self, program: Program) -> list[tuple[Draw, Var]]:
        """The draws that a program takes as inputs, each with its variable."""
        used = {a for a in atoms(program) if isinstance(a, Var)}
        return [(d, v) for d, v in zip(self.draws, self.variables, strict=True) if v in used]

    def keys(self) -> dict[int, Any]:
        """The places of the draws, by their ids."""
        return {id(d): key_of(i) for i, d in enumerate(self.draws)}

    def before(self, decisions: int) -> list[tuple[int, Draw]]:
        """The draws, with their numbers, that so many decisions came before."""
        return [(i, d) for i, (d, n) in enumerate(zip(self.draws, self.after, strict=True))
                if n == decisions]


class PathTrace(StagingTrace):
    """Writes the program of one path; ``known`` are the first outcomes on it, ``drawn`` the random
    numbers that the call has drawn.
    """

    __slots__ = ("decisions", "drawn", "draws", "known", "operands", "outcomes", "stopped",
                 "values")

    def __init__(
        self, fun: str, operands: Sequence, known: Sequence[Outcome], products: ZeroPolicy,
        drawn: Drawn,
    ):
        super().__init__(fun, lifted={}, products=products)
        self.known, self.drawn, self.draws = known, drawn, PathDraws([], [], [], {})
        self.operands: dict[Var, Any] = dict(enumerate(operands))  # type: ignore[arg-type]
        self.decisions: list[Decision] = []
        self.outcomes: dict[tuple, Outcome] = {}
        self.values: dict[Any, Any] = {}
        # why the path ends here, whatever the function's own ``finally`` makes of it
        self.stopped: Undecided | Uncompiled | None = None

    def arguments(self, args: Sequence[Any]) -> list[StagedTracer]:
        inputs = super().arguments(args)
        actual = [self.operands[i] for i in range(len(args))]  # type: ignore[index]
        self.operands = dict(zip([t.variable for t in inputs], actual, strict=True))
        return inputs

    def operand(self, x: Tracer) -> StagedTracer:
        t = super().operand(x)
        self.operands[t.variable] = x
        return t

    def draw(self, d: Draw, outside: Callable[[Draw], Any]) -> StagedTracer:
        draws, after, variables, states = self.draws
        g = d.generator
        if id(g) in states and states[id(g)] != state_of(g):
            raise UnsupportedError(
                f"{user_line()}: the state of a generator was set or moved in {self.fun}, between "
                "its draws. Do that outside."
            )
        kept = d.kept()
        y = self.drawn.take(len(draws), kept, outside)
        if not is_number(y):
            raise UnsupportedError(
                f"{user_line()}: `{d.name}` of a generator gave {describe(y)} in {self.fun}, and "
                "no numbers. Draw it outside, and pass it as an argument."
            )
        t = self.input(example_of(y))
        self.operands[t.variable] = y
        draws.append(kept)
        after.append(len(self.decisions))
        variables.append(t.variable)
        states[id(g)] = state_of(g)
        return t

    def rehearse(self, kept: bool) -> Callable[[], None]:
        count, forget = len(self.draws.draws), None if kept else self.drawn.rehearse()

        def undo() -> None:
            for written in (self.draws.draws, self.draws.after, self.draws.variables):
                del written[count:]
            if forget is not None:
                forget()

        return undo

    def concretize(self, x: StagedTracer, convert: Callable[[Any], Any], use: str) -> Any:
        if self.closed is True:
            return super().concretize(x, convert, use)
        if self.stopped is not None:
            raise self.stopped
        v = x.variable
        if x.size != 1:
            convert(np.ones(x.shape, x.dtype))  # raises what NumPy does
        if (v, convert) not in self.outcomes:
            if len(self.decisions) >= MOST_DECISIONS:
                self._stop(Endless(self))
            self._concretize(v, convert)
        return self.outcomes[v, convert].result()

    def _concretize(self, v: Var, convert: Callable[[Any], Any]) -> None:
        n, outcome = len(self.decisions), None
        known, x = (True, None) if n < len(self.known) else self.value(v)
        if known:
            outcome = self.known[n] if n < len(self.known) else outcome_of(convert, x)
        self.decisions.append(Decision(len(self.eqns), v, convert, outcome, user_line()))
        if outcome is None:
            self._stop(Undecided())
        self.outcomes[v, convert] = outcome

    def lacks(self, error: ConcretizationError) -> NoReturn:
        self._stop(Uncompiled(error))

    def _stop(self, why: Undecided | Uncompiled) -> NoReturn:
        self.stopped = why
        raise why

    def value(self, v: Var) -> tuple[bool, Any]:
        """Whether it is known what a variable is for the actual arguments, and what it is."""
        inputs, wanted = self._need(v)
        for a in inputs:
            if a not in self.values:
                known, x = exact(self.operands[a])
                if not known:
                    return False, None
                self.values[a] = x
        eqns = tuple([self.eqns[i] for i in sorted(wanted)])
        if eqns:
            results = tuple([y for eqn in eqns for y in eqn.outputs])
            program = Program(tuple(inputs), eqns, results)
            with np.errstate(all="ignore"):
                ys = evaluate(program, [self.values[a] for a in inputs], _silently)
            self.values.update(zip(results, ys, strict=True))
        return True, self.values[v]

    def _need(self, v: Var) -> tuple[dict[Var, None], set[int]]:
        """The variables to begin with, and the equations to run, for ``v``."""
        inputs: dict[Var, None] = {}
        wanted: set[int] = set()
        todo: list[Any] = [v]
        while todo:
            a = todo.pop()
            if not isinstance(a, Var):
                continue
            i = self.defined_by(a)
            if i is None or a in self.values:
                inputs[a] = None
            elif i not in wanted:
                wanted.add(i)
                todo += self.eqns[i].inputs
        return inputs, wanted


def _silently(prim: Primitive, xs: Sequence, params: dict) -> Any:
    """What an equation gives, printing nothing: the run that follows does."""
    return xs[0] if prim.facts.prints else prim(*xs, **params)


def exact(x: Any) -> tuple[bool, Any]:
    """Whether the plain value of ``x`` is known, and what it is."""
    while isinstance(x, PrimalTracer):
        x = x.primal
    if isinstance(x, StagedTracer):
        return x.owner.value(x.variable) if isinstance(x.owner, PathTrace) else (False, None)
    if isinstance(x, Tracer):
        return False, None
    return True, plain(x)


def record(
    f: Callable, operands: Sequence, examples: Sequence, name: str, known: Sequence[Outcome],
    products: ZeroPolicy = ZeroPolicy.BY_ROW, drawn: Drawn | None = None,
) -> Recording:
    """The path of ``f`` on ``operands``, of whose kinds ``examples`` are, after known decisions.

    ``drawn`` is what this call has drawn so far. Raises Uncompiled where Python decides without
    end, or needs numbers that are not known.
    """
    trace = PathTrace(name, operands, known, products, drawn or Drawn())
    before = writer.get()
    program: Any = None
    structure: Any = None
    try:
        writer.set(trace)
        program, structure = write(trace, f, examples)
    except (Exception, Undecided, Uncompiled):
        if trace.stopped is None:
            raise
    finally:
        writer.set(before)
    if isinstance(trace.stopped, Uncompiled):
        raise trace.stopped
    if trace.stopped is not None:
        last, inputs = trace.decisions[-1], tuple(list(trace.operands)[: len(operands)])
        program = Program(inputs, tuple(trace.eqns[: last.after]), (last.variable,))
    assert trace.lifted is not None
    decided = [d.variable for d in trace.decisions]
    tested = Program(program.inputs, program.eqns, (*program.outputs, *decided))
    lifted = [*used_of(trace.lifted, tested), *trace.draws.used(tested)]
    return Recording(program, structure, lifted, trace.decisions, trace.draws)
