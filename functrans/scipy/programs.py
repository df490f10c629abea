"""Solvers in programs: under ``jit`` and ``vmap`` one of SciPy's is a step of its own.

A solver's number of iterations, pieces or active constraints depends on values, so that it is no
list of equations. In a program it is one op instead, which runs the solver on the values that the
program computes, once for each entry of a batch. The functions it is given are staged and compiled,
and what they close over is an operand. The op's derivatives are ops of the same kind: they run the
derivative that the solver has on numbers. So there is no rule for a single solver here.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from scipy.optimize import OptimizeResult

from functrans import tree
from functrans._compile.ir.program import Program, evaluate
from functrans._core.array import Aval, aval_of, plain
from functrans._core.bind import Tracer, writer
from functrans._core.writing import hand, is_ours, writing
from functrans._transforms.arguments import is_number
from functrans._transforms.forward.api import jvp
from functrans._transforms.reverse.api import vjp
from functrans._transforms.rules.differences import differences
from functrans._transforms.rules.external import OpaqueOp
from functrans._transforms.rules.foreign import differentiate
from functrans._transforms.staging.jit import jit
from functrans._transforms.staging.staging import StagedTracer, example_of, innermost, stage_part
from functrans._transforms.vmap import BatchTracer, vmap
from functrans.errors import SolverError, UnsupportedError, name_of, user_line
from functrans.scipy.implicit import Numberless, concrete
from functrans.scipy.kept import Marks, flatten, visit_with
from functrans.scipy.public import is_traced

F = TypeVar("F", bound=Callable)
# Arguments that are called for their effect, or that choose the code.
KEPT = ("callback", "method")
# What a function may be given that varies; flags, counts and texts among ``args`` choose its code.
VALUES = (np.ndarray, np.generic, float, complex, Tracer)


def in_programs(solver: F) -> F:
    """Decorator: ``solver``, and where a value it needs has no number, a step that runs it."""

    @functools.wraps(solver)
    def either(*args: Any, **kwargs: Any) -> Any:
        try:
            y = solver(*args, **kwargs)
        except Numberless:
            y = Step(solver, args, kwargs)()
        own = writing.get() is None or is_ours(sys._getframe(1))
        return y if own else handed_parts(y)

    return either  # type: ignore[return-value]  # it has the signature of ``solver``


def written_into(f: F) -> F:
    """Decorator: ``f``, whose results can be written into by a function that writes into arrays."""

    @functools.wraps(f)
    def either(*args: Any, **kwargs: Any) -> Any:
        y = f(*args, **kwargs)
        own = writing.get() is None or is_ours(sys._getframe(1))
        return y if own else handed_parts(y)

    return either  # type: ignore[return-value]  # it has the signature of ``f``


class Step:
    """A call of a solver as an op of the traced values among its arguments and in closures."""

    def __init__(self, solver: Callable, args: tuple, kwargs: dict):
        self.solver = solver
        bound = inspect.signature(solver).bind(*args, **kwargs)
        self.leaves, self.close = flatten((bound.args, bound.kwargs))
        self.traced = [i for i, x in enumerate(self.leaves) if isinstance(x, Tracer)]
        self.captured: list[Tracer] = []
        kept = [bound.arguments.get(name) for name in KEPT]
        self.functions = {i: Staged(f, self.captured) for i, f in enumerate(self.leaves)
                          if callable(f) and not any(f is k for k in kept)}

    def __call__(self) -> Any:
        operands = [self.leaves[i] for i in self.traced]
        outs, close = flatten(self.run(list(map(_example, operands)), None))
        operands += self.captured
        self._forget()
        places = [i for i, y in enumerate(outs) if is_number(y) or isinstance(y, bool)]
        op = self._op(places, list(map(_example, operands)), outs)
        *ys, _ = op.row(*operands)
        found = dict(zip(places, ys, strict=True))
        result = close(iter([found.get(i, _unknown(op.name) if callable(y) else None)
                             for i, y in enumerate(outs)]))
        self._assume_success(result, op, any([x.is_differentiated() for x in operands]))
        return result

    def _assume_success(self, result: Any, op: SolverOp, derived: bool) -> None:
        """Have Python take it for granted where the step raises otherwise: a derivative does, and
        so does a solve inside of another, where Python asks for it and cannot decide.
        """
        def require(why: str = NESTED) -> None:
            op.required = why

        for sol, key in _flags(result):
            flag = sol[key]
            # a line search that finds nothing less may have ended at a minimum
            if derived and self.solver.__name__ != "minimize":
                require(NO_DERIVATIVE)
                sol[key] = True
            elif isinstance(flag, StagedTracer):
                trace: Any = flag.owner  # a StagingTrace
                trace.assumed[flag.variable] = require

    def _op(self, places: Sequence[int], examples: Sequence, outs: Sequence) -> SolverOp:
        """The results at some ``places``, given that those of ``examples`` are ``outs``, and the
        mark of what was found.
        """
        name, results = self.solver.__name__, [np.asarray(outs[i]) for i in places]
        n, marks = len(self.traced), Marks()

        def base(*xs: Any) -> list:
            result = self.run(xs[:n], xs[n:])
            if op.required:
                _require_flags(f"{name} {op.required}", result)
            found = flatten(result)[0]
            if len(found) != len(outs):
                raise _resize(name, f"{len(found)} parts", f"{len(outs)}")
            return [found[i] for i in places]

        def values(xs: Sequence, options: dict) -> list:
            found: dict[str, Any] = {}
            ys = visit_with(found, lambda: base(*xs))
            ys = [_like(x, y, name) for x, y in zip(ys, results, strict=True)]
            return [*ys, np.array(marks.keep(found))]

        def derived(*operands: Any) -> list:
            *xs, mark = operands
            found = marks.at(int(mark))
            ys = visit_with(found, lambda: base(*xs))
            marks.keep(found, int(mark))
            return ys

        op = SolverOp(name, values, differences(values), len(places) + 1)
        op.operands = len(examples)
        differentiate(op, derived, OURS)
        op.remember(examples, [*results, np.array(0)])
        return op

    def run(self, xs: Sequence, captured: Sequence | None) -> Any:
        """What the solver returns for values of what is traced; None: for an example of them."""
        full = list(self.leaves)
        for i, x in zip(self.traced, xs, strict=True):
            full[i] = x
        for i, f in self.functions.items():
            full[i] = f.at(captured)
        args, kwargs = self.close(iter(full))
        return self.solver(*args, **kwargs)

    def _forget(self) -> None:
        """Let go of traced values: the op outlives their traces."""
        for i in (*self.traced, *self.functions):
            self.leaves[i] = None
        for f in self.functions.values():
            del f.f, f.captured
        del self.captured


class SolverOp(OpaqueOp):
    """A solver, whose last output is the mark under which its derivatives find what it found."""

    operands = 0
    saves = "xy"
    required = ""  # if that the solver succeeds, what is said where it does not

    def point(self, xs: Sequence, ys: Sequence) -> Sequence:
        return *xs, ys[-1]

    def out_avals(self, avals: Sequence[Aval], options: dict, xs: Sequence | None) -> list[Aval]:
        n = self.operands  # behind them, in a derivative, is the mark
        return super().out_avals(avals[:n], options, xs and xs[:n])


def _flags(result: Any) -> Iterator[tuple[Any, str]]:
    """Where a solver says whether it has succeeded."""
    for part in result if isinstance(result, tuple) else (result,):
        if isinstance(part, OptimizeResult):
            yield from [(part, key) for key in ("success", "converged") if key in part]


def _require_flags(what: str, result: Any) -> None:
    for sol, key in _flags(result):
        if not sol[key]:
            why = sol.get("message") or sol.get("flag")
            raise SolverError(f"{user_line()}: {what}: {why}")


NO_DERIVATIVE = "has no derivative, for the solver failed"
NESTED = "failed, and the program that it is part of was written for its success"


def _unknown(who: str) -> Callable:
    """A function in the place of one that a solver returns, as an interpolant."""
    def unknown(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError(
            f"{user_line()}: a function that {who} returns is not known in a program (jit or vmap "
            f"traces what it depends on). Take the arrays of the result, or call {who} outside."
        )

    return unknown


def _like(x: Any, y: np.ndarray, who: str) -> np.ndarray:
    """A result, as the program knows it from the example ``y``."""
    x = np.asarray(plain(x))
    if x.shape != y.shape or not np.can_cast(x.dtype, y.dtype, "same_kind"):
        raise _resize(who, repr(aval_of(x)), repr(aval_of(y)))
    return x.astype(y.dtype, copy=False)


def _resize(who: str, have: str, want: str) -> UnsupportedError:
    return UnsupportedError(
        f"{who} returned {have} in a program that was written for {want}: the size of its result "
        "depends on values. Leave out the option that asks for it, or call it outside of jit and "
        "vmap."
    )


class Staged:
    """A function as a program for each type of its arguments, compiled, as a solver calls it.

    They are written while the example is solved, and what they close over joins ``captured``.
    """

    def __init__(self, f: Callable, captured: list[Tracer]):
        self.f, self.captured = f, captured
        self.name, self.programs = name_of(f), {}
        self.derivatives: dict[tuple, Callable] = {}
        try:
            self.signature: Any = inspect.signature(f)
        except (TypeError, ValueError):  # of some functions in C
            self.signature = None

    def at(self, captured: Sequence | None) -> Called:
        """The function, given the values that it closes over, or None for examples of them."""
        return Called(self, captured)

    def derivative(self, way: Callable, arity: int, args: tuple) -> Callable:
        """``way`` of the function, of ``arity`` arrays before ``args``, compiled for all runs."""
        flags = tuple([None if isinstance(x, VALUES) else (type(x), x) for x in args])
        key = way, arity, flags
        if key not in self.derivatives:

            def derive(captured: list, xs: list, values: list) -> Any:
                rest = iter(values)
                given = [next(rest) if flag is None else flag[1] for flag in flags]
                return way(self.at(captured), *xs, *given)

            self.derivatives[key] = jit(derive)
        return self.derivatives[key]

    def write(self, args: tuple, kwargs: dict) -> Callable:
        leaves, structure = tree.flatten((args, kwargs))
        values = [np.asarray(_example(x)) for x in leaves if isinstance(x, VALUES)]

        def flat(*xs: Any) -> Any:
            rest = iter(xs)
            full = [next(rest) if isinstance(x, VALUES) else x for x in leaves]
            args, kwargs = tree.unflatten(structure, full)
            return self.f(*args, **kwargs)

        before = writer.get()
        try:
            writer.set(None)  # a derivative that is being compiled does not take its ops
            part = stage_part(flat, values, self.name)
        finally:
            writer.set(before)
        first, p = len(self.captured), part.program
        lifted = [x for x, _ in part.lifted]
        self.captured += lifted
        return _compile(
            Program((*[v for _, v in part.lifted], *p.inputs), p.eqns, p.outputs), part.structure,
            slice(first, first + len(lifted)), list(map(_example, lifted)),
        )


class Called:
    """A staged function with the values that it closes over, as a solver calls it."""

    def __init__(self, staged: Staged, captured: Sequence | None):
        self.staged, self.captured, self.programs = staged, captured, staged.programs
        self.traced = captured is not None and is_traced(list(captured))
        self.__name__ = staged.name
        if staged.signature is not None:
            self.__signature__ = staged.signature  # SciPy counts the parameters

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = tuple([np.float64(x) if type(x) is float else x for x in args])
        # as SciPy calls it, mostly
        flat = not kwargs and all([isinstance(x, VALUES) for x in args])
        leaves, structure = (args, None) if flat else tree.flatten((args, kwargs))
        values = list(leaves) if flat else [x for x in leaves if isinstance(x, VALUES)]
        key = structure, *[aval_of(x) if isinstance(x, VALUES) else x for x in leaves]
        run = self.programs.get(key)
        if run is None:
            if self.captured is not None:
                raise UnsupportedError(
                    f"{self.__name__} is called with {list(key[1:])} in a program that was written "
                    "when it was not. Give it one type of arguments."
                )
            run = self.programs[key] = self.staged.write(args, kwargs)
        return run(self.captured, values)

    def of_numbers(self) -> Called:
        """The same without derivatives in what it closes over."""
        return Called(self.staged, concrete(list(self.captured or ()))) if self.traced else self

    def derivative(self, way: Callable, arity: int, args: tuple) -> Callable | None:
        """``way`` of it, of ``arity`` arrays before the plain ``args``; None for examples."""
        if self.captured is None:
            return None
        native = self.staged.derivative(way, arity, args)
        values = [x for x in args if isinstance(x, VALUES)]
        captured = list(self.captured)
        return lambda *xs: native(captured, list(xs[:arity]), values)


def _compile(program: Program, structure: tree.Structure, place: slice, examples: list
              ) -> Callable[[Sequence | None, Sequence], Any]:
    """The program as a function of all that is captured, of which ``place`` is its own."""
    one = structure.kind is None
    native = jit(lambda *xs: evaluate(program, xs)[0] if one else tuple(evaluate(program, xs)))

    def run(captured: Sequence | None, xs: Sequence) -> Any:
        operands = *(examples if captured is None else captured[place]), *xs
        if any([isinstance(x, Tracer) for x in operands]):
            return tree.unflatten(structure, evaluate(program, operands))
        return native(*operands) if one else tree.unflatten(structure, native(*operands))

    return run


def _example(x: Any) -> Any:
    """A plain value like ``x``: of a batch its first entry."""
    inner = innermost(x)
    if isinstance(inner, BatchTracer):
        values = _example(inner.value)
        return values[0] if len(values) else np.ones(inner.shape, inner.dtype)
    return example_of(inner)


def handed_parts(y: Any) -> Any:
    """A result, in SciPy's containers too, as a function that writes into arrays gets it."""
    leaves, close = flatten(y)
    return close(iter(map(hand, leaves)))


# ---- derivatives on numbers, as those of a library


def _push(g: Callable, xs: Sequence, ts: Sequence) -> list:
    ys, tangents = jvp(lambda *v: tuple(g(*v)), tuple(xs), tuple(ts))
    return [np.zeros(np.shape(y)) if t is None else t for t, y in zip(tangents, ys, strict=True)]


def _push_rows(g: Callable, xs: Sequence, ts: Sequence) -> list:
    return list(vmap(lambda *ts: tuple(_push(g, xs, ts)))(*ts))


def _pulled_back(g: Callable, xs: Sequence, cts: Sequence) -> list:
    return _conjugate_of(vjp(lambda *v: tuple(g(*v)), *xs)[1])(*cts)


def _pull_rows(g: Callable, xs: Sequence, cts: Sequence) -> list:
    return vmap(_conjugate_of(vjp(lambda *v: tuple(g(*v)), *xs)[1]))(*cts)


def _conjugate_of(pull: Callable) -> Callable:
    return lambda *cts: list(map(np.conjugate, pull(tuple(map(np.conjugate, cts)))))


OURS = SimpleNamespace(
    arrays=list, numbers=lambda ys: [np.asarray(plain(y)) for y in ys],
    push=_push, pulled_back=_pulled_back, push_rows=_push_rows, pull_rows=_pull_rows,
)
