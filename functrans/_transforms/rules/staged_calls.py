"""A call of a function with a derivative rule while a program is written: one equation.

It holds the program of the function and its rule. Differentiating transforms use the rule; batching
makes another such equation; what is run is the program alone. A rule is staged when it is first
used, which may be after the function around it has been staged.

"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from functrans import tree
from functrans._compile.ir.passes import optimise
from functrans._compile.ir.program import Program, Var, aval_of_atom, check, evaluate
from functrans._compile.ir.structured import Ruled
from functrans._core.array import PYTHON_SCALARS, Aval, aval_of, inexact_dtype
from functrans._core.bind import Tracer, cast
from functrans._core.locks import Lock
from functrans._core.primitive import ZeroPolicy, products
from functrans._transforms.reverse.tracer import VJPTracer
from functrans._transforms.reverse.vjp import VJPTrace
from functrans._transforms.staging import restage
from functrans._transforms.staging.environment import Environment
from functrans._transforms.staging.staging import example_of, stage_part
from functrans.errors import ShapeError, UnsupportedError


class RuleCall(restage.RowCall):
    """The equation as one op. What it closes over is differentiated as the function does it."""

    __slots__ = ()

    def __init__(self, row: Ruled):
        super().__init__(row, lambda *xs: tuple(evaluate(row.program, xs)))

    def jvp(self, trace: Any, primals: Sequence, tangents: Sequence) -> tuple[Sequence, Sequence]:
        row, n = self.row, self.row.consts
        consts = [
            x if t is None else trace.input(x, t)
            for x, t in zip(primals[:n], tangents[:n], strict=True)
        ]
        if all(t is None for t in tangents[n:]):
            return self._closing_over(trace, consts, primals[n:]), [None] * row.outputs
        call = row.rule.bound(row, consts, primals[:n])
        return call.jvp(trace, primals[n:], tangents[n:])

    def record(self, trace: VJPTrace, args: Sequence) -> tuple:
        n = self.row.consts
        consts, xs = args[:n], args[n:]
        if not any(type(x) is VJPTracer and x.owner is trace for x in xs):
            return self._closing_over(trace, consts, xs)
        fixed = [trace.lower(c) for c in consts]
        return self.row.rule.bound(self.row, consts, fixed).record(trace, xs)

    def batch(self, trace: Any, xs: Sequence, batched: Sequence[bool]) -> Sequence:
        row, mask, size = self.row, tuple(batched), trace.batch_size

        def whole() -> Ruled:
            program, _ = restage.vmap(row.program, mask, size, row.name)
            return Ruled(row.name, program, row.consts, row.rule.vmap(mask, size), RuleCall)

        return RuleCall(self.derive(("vmap", mask, size), whole))(*xs)

    def taylor(self, trace: Any, args: Sequence) -> tuple:
        n = self.row.consts
        consts, xs = args[:n], args[n:]
        if not any(isinstance(x, Tracer) and x.owner is trace for x in xs):
            return self._closing_over(trace, consts, xs)
        if any(isinstance(c, Tracer) and c.owner is trace for c in consts):
            raise UnsupportedError(
                f"{self.row.name} closes over a value that {trace.fun} expands, and no rule says "
                "how it depends on it. Pass that value as an argument."
            )
        return self.row.rule.bound(self.row, consts, consts).taylor(trace, xs)

    def _closing_over(self, trace: Any, consts: Sequence, xs: Sequence) -> tuple:
        """The outputs where only what the function closes over is differentiated: the rule says
        nothing of that, so they have no derivative with respect to the arguments."""
        return self.fun(*consts, *[_without_derivative(self.row.name, trace.fun, x) for x in xs])


class LazilyStaged:
    """A flat function that is staged when it is first called, and whose program runs from then on.

    ``consts`` are the traced values that it may close over; a call gives others in their place.
    The function returns a container of numbers and what else there is to know, which is kept.
    """

    def __init__(self, name: str, f: Callable[..., tuple[Any, Any]], consts: Sequence = ()):
        self.name, self.f, self.consts = name, f, consts
        self.lock = Lock()
        self.program: Program | None = None
        self.reads: list[int] = []
        self.structure: Any = None
        self.rest: Any = None

    def __call__(self, consts: Sequence, *args: Any) -> Any:
        leaves, structure = tree.flatten(args)
        with self.lock:
            if self.program is None:
                self._stage(structure, leaves)
        assert self.program is not None
        outs = evaluate(self.program, [*[consts[i] for i in self.reads], *leaves])
        return tree.unflatten(self.structure, outs)

    def _stage(self, structure: tree.Structure, leaves: Sequence) -> None:
        def flat(*xs: Any) -> Any:
            values, self.rest = self.f(*tree.unflatten(structure, xs))
            return values

        # it serves whoever asks the rule: nobody looks at what its own derivatives hand out
        how = ZeroPolicy.BY_ROW if products() is ZeroPolicy.BY_ROW else ZeroPolicy.STRONG
        part = stage_part(flat, list(map(example_of, leaves)), self.name, older=True, how=how)
        places = {id(x): i for i, x in enumerate(self.consts)}
        for x, _ in part.lifted:
            if id(x) not in places:
                raise UnsupportedError(
                    f"{self.name} closes over a value traced by {x.owner.fun}, which the function "
                    "itself does not use. Pass that value as an argument, or return it from fwd "
                    "among the residuals."
                )
        self.reads = [places[id(x)] for x, _ in part.lifted]
        first = [v for _, v in part.lifted]
        p = part.program
        self.structure = part.structure
        self.program = optimise(check(Program((*first, *p.inputs), p.eqns, p.outputs)))
        del self.f, self.consts  # they hold values of traces that have ended


def enter(call: Any, trace: Any, args: Sequence) -> tuple:
    """The outputs of a call with a rule, one equation of the program that ``trace`` writes.

    Of ``call`` it takes ``fun``, the ``functions`` that are its rule, and ``equation_rule``, which
    is given the values that these close over.
    """
    part = stage_part(call.fun, list(map(example_of, args)), call.name)
    consts = {id(x): (x, v) for x, v in part.lifted}
    for x in Environment(*call.functions).tracers:
        while x.owner.level > trace.level and isinstance(x.inner, Tracer):
            x = x.inner  # a batch around it is the rule's own affair
        if id(x) not in consts and x.owner.closed is not True and x.owner.level <= trace.level:
            example = example_of(x)
            consts[id(x)] = x, Var(aval_of(example), type(example) in PYTHON_SCALARS)
    if not part.program.outputs:
        return ()
    values = [x for x, _ in consts.values()]
    p = part.program
    program = Program((*[v for _, v in consts.values()], *p.inputs), p.eqns, p.outputs)
    row = Ruled(call.name, program, len(values), call.equation_rule(values), RuleCall)
    return RuleCall(row)(*values, *args)


class _Refused:
    """The rule of what has no derivative, and says why."""

    def __init__(self, text: str):
        self.text = text

    def bound(self, *_: Any) -> NoReturn:
        raise UnsupportedError(self.text)

    def vmap(self, *_: Any) -> _Refused:
        return self


def _without_derivative(name: str, inside: str, x: Any) -> Any:
    """``x``, of which no derivative can be taken."""
    if not isinstance(x, Tracer) or not inexact_dtype(x.dtype):
        return x
    text = (
        f"{name} closes over a value traced by {inside}, a transform inside of the one that traces "
        "its arguments. Pass that value as an argument."
    )
    example = example_of(x)
    v = Var(aval_of(example), type(example) in PYTHON_SCALARS)
    return RuleCall(Ruled(name, Program((v,), (), (v,)), 0, _Refused(text), RuleCall))(x)[0]


def fit(row: Ruled, ys: Sequence) -> list:
    """Outputs that a rule returned, in the dtypes of the function's own."""
    wanted = [aval_of_atom(a) for a in row.program.outputs]
    for y, want in zip(ys, wanted, strict=True):
        have = aval_of(y)
        if have.shape != want.shape or _kind(have) != _kind(want):
            raise ShapeError(
                f"{row.name}: the rule returned {have!r} as an output that the function itself "
                f"returned as {want!r}. Both must compute the same."
            )
    return [cast(y, want.dtype) for y, want in zip(ys, wanted, strict=True)]


def _kind(a: Aval) -> str:
    return "float" if inexact_dtype(a.dtype) and a.dtype.kind != "c" else a.dtype.kind
