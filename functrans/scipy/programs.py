"""Solvers in programs: under ``jit`` and ``vmap`` one of SciPy's is a step of its own.

A solver's number of iterations, pieces or active constraints depends on values, so that it is no
list of equations. In a program it is one op instead, which runs the solver on the values that the
program computes, once for each entry of a batch. The functions it is given are staged and compiled,
and what they close over is an operand. The op's derivatives are ops of the same kind: they run the
derivative that the solver has on numbers. So there is no rule for a single solver here.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, NonlinearConstraint, OptimizeResult

from functrans import tree
from functrans._compile.ir.program import Program, evaluate
from functrans._core.array import aval_of, plain
from functrans._core.bind import Tracer, writer
from functrans._core.writing import hand, is_ours, writing
from functrans._transforms.arguments import is_number
from functrans._transforms.forward.api import jvp
from functrans._transforms.reverse.api import vjp
from functrans._transforms.rules.differences import differences
from functrans._transforms.rules.external import OpaqueOp
from functrans._transforms.rules.foreign import differentiate
from functrans._transforms.staging.jit import jit
from functrans._transforms.staging.staging import example_of, innermost, stage_part
from functrans._transforms.vmap import BatchTracer
from functrans.errors import UnsupportedError, name_of, user_line
from functrans.scipy.implicit import Numberless

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
        ys = self._op(places, list(map(_example, operands)), outs).row(*operands)
        found = dict(zip(places, ys if len(places) > 1 else [ys], strict=True))
        name = self.solver.__name__
        return close(iter([found.get(i, _unknown(name) if callable(y) else None)
                           for i, y in enumerate(outs)]))

    def _op(self, places: Sequence[int], examples: Sequence, outs: Sequence) -> OpaqueOp:
        """The results at some ``places``, given that those of ``examples`` are ``outs``."""
        name, results = self.solver.__name__, [np.asarray(outs[i]) for i in places]
        n = len(self.traced)

        def base(*xs: Any) -> list:
            found = flatten(self.run(xs[:n], xs[n:]))[0]
            if len(found) != len(outs):
                raise _resize(name, f"{len(found)} parts", f"{len(outs)}")
            return [found[i] for i in places]

        def values(xs: Sequence, options: dict) -> list:
            return [_like(x, y, name) for x, y in zip(base(*xs), results, strict=True)]

        op = OpaqueOp(name, values, differences(values), len(places))
        differentiate(op, base, OURS)
        op.remember(examples, results)
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
        try:
            self.signature: Any = inspect.signature(f)
        except (TypeError, ValueError):  # of some functions in C
            self.signature = None

    def at(self, captured: Sequence | None) -> Callable:
        """The function, given the values that it closes over, or None for examples of them."""
        name, programs = self.name, self.programs
        written = self._written if captured is None else None

        def called(*args: Any, **kwargs: Any) -> Any:
            args = tuple([np.float64(x) if type(x) is float else x for x in args])
            # as SciPy calls it, mostly
            flat = not kwargs and all([isinstance(x, VALUES) for x in args])
            leaves, structure = (args, None) if flat else tree.flatten((args, kwargs))
            values = list(leaves) if flat else [x for x in leaves if isinstance(x, VALUES)]
            key = structure, *[aval_of(x) if isinstance(x, VALUES) else x for x in leaves]
            if key not in programs:
                if written is None:
                    raise UnsupportedError(
                        f"{name} is called with {list(key[1:])} in a program that was written when "
                        "it was not. Give it one type of arguments."
                    )
                programs[key] = written(args, kwargs)
            return programs[key](captured, values)

        called.__name__ = name
        if self.signature is not None:
            called.__signature__ = self.signature  # type: ignore[attr-defined]  # SciPy counts
        return called

    def _written(self, args: tuple, kwargs: dict) -> Callable:
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


# ---- SciPy's containers


def flatten(x: Any) -> tuple[list, Callable[[Iterator], Any]]:
    """The leaves of a container, SciPy's too, and the function that puts others in their place."""
    opened = _open(x)
    if opened is None:
        return [x], next
    children, close = opened
    parts = list(map(flatten, children))
    return ([leaf for leaves, _ in parts for leaf in leaves],
            lambda leaves: close([build(leaves) for _, build in parts]))


def _open(x: Any) -> tuple[Sequence, Callable[[list], Any]] | None:
    if isinstance(x, OptimizeResult):
        return list(x.values()), lambda children: _with(x, zip(x, children, strict=True))
    if isinstance(x, Bounds | LinearConstraint | NonlinearConstraint):
        return list(vars(x).values()), lambda children: _with(
            x, zip(vars(x), children, strict=True))
    opened = tree.opened(x)
    return opened and (list(opened[0]), functools.partial(tree.with_children, x))


def _with(x: Any, entries: Iterable) -> Any:
    y = copy.copy(x)
    (y if isinstance(y, dict) else vars(y)).update(entries)
    return y


def handed_parts(y: Any) -> Any:
    """A result, in SciPy's containers too, as a function that writes into arrays gets it."""
    leaves, close = flatten(y)
    return close(iter(map(hand, leaves)))


# ---- derivatives on numbers, as those of a library


def _push(g: Callable, xs: Sequence, ts: Sequence) -> list:
    ys, tangents = jvp(lambda *v: tuple(g(*v)), tuple(xs), tuple(ts))
    return [np.zeros(np.shape(y)) if t is None else t for t, y in zip(tangents, ys, strict=True)]


def _pulled_back(g: Callable, xs: Sequence, cts: Sequence) -> list:
    pull = vjp(lambda *v: tuple(g(*v)), *xs)[1]
    return list(map(np.conjugate, pull(tuple(map(np.conjugate, cts)))))


OURS = SimpleNamespace(
    arrays=list, numbers=lambda ys: [np.asarray(plain(y)) for y in ys],
    pushed=_push, pulled_back=_pulled_back,
)
