"""A function staged for its sparse derivatives: one array in, one out, all else held constant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans import tree
from functrans._compile.ir.passes import optimise
from functrans._compile.ir.program import Program, aval_of_atom
from functrans._core.array import in_native_order, plain
from functrans._core.aval import PYTHON_SCALARS, Aval, aval_of
from functrans._core.bind import Tracer
from functrans._transforms.arguments import describe, is_number, require_callable
from functrans._transforms.sparse.interactions import Interactions
from functrans._transforms.sparse.pattern import Walk
from functrans._transforms.sparse.sets import UNKNOWN, Csr, identity, sparse
from functrans._transforms.staging.draws import Draws
from functrans._transforms.staging.environment import Environment
from functrans._transforms.staging.reads import Reads, checks, unchanged_since
from functrans._transforms.staging.staging import stage
from functrans.errors import ArgumentError, NotDifferentiable, UnsupportedError, name_of


class Staged(NamedTuple):
    """``program`` takes the numbers among the arguments, of which number ``at`` is differentiated.
    """

    program: Program
    at: int
    kinds: tuple
    values: list
    reads: Reads | None

    @property
    def source(self) -> Aval:
        return self.program.inputs[self.at].aval

    @property
    def target(self) -> Aval:
        return aval_of_atom(self.program.outputs[0])


def staged(who: str, f: Callable, argnum: int, args: tuple) -> Staged:
    """The program of ``f`` for arguments like these."""
    leaves, structure = tree.flatten(args)
    at = _place(who, f, argnum, args)
    leaves[at] = _differentiated(who, f, argnum, leaves[at])
    numbers = numbers_in(who, leaves)
    places = [i for i, x in enumerate(leaves) if is_number(x)]
    function = require_callable(who, f)

    def flat(*values: Any) -> Any:
        full = list(leaves)
        for i, v in zip(places, values, strict=True):
            full[i] = v
        return function(*tree.unflatten(structure, full))

    name = f"{who}({name_of(f)})"
    fixed = [x for x in leaves if not is_number(x)]
    environment = Environment(f, *fixed)
    before, draws = checks(environment), Draws(environment.generators)
    program, outputs = stage(flat, numbers, name)
    draws.refuse(name, "each call")
    after = checks(Environment(f, *fixed))
    if outputs is not tree.LEAF:
        raise ArgumentError(
            f"{who}: `{name_of(f)}` returned a container with {outputs.size} values, where the "
            "rows of one matrix come from one array. Join them, for example with np.concatenate."
        )
    unchanged = list(unchanged_since(before, after).values())
    made = Staged(optimise(program), places.index(at), kinds_of(args), numbers,
                  Reads(unchanged) if unchanged else None)
    _require_real(who, f"the value of `{name_of(f)}`", made.target)
    return made


def _place(who: str, f: Callable, argnum: int, args: tuple) -> int:
    """Which leaf of the arguments is differentiated."""
    if not -len(args) <= argnum < len(args):
        raise ArgumentError(
            f"{who}: argnums is {argnum}, but `{name_of(f)}` was called with {len(args)} arguments"
        )
    argnum %= len(args)
    _, structure = tree.flatten(args[argnum])
    if structure is not tree.LEAF:
        raise ArgumentError(
            f"{who}: argument {argnum} of `{name_of(f)}` is {describe(args[argnum])}, a container, "
            "where the columns of one matrix come from one array. Pass one array and take it "
            "apart in the function."
        )
    return len(tree.leaves(args[:argnum]))


def _differentiated(who: str, f: Callable, argnum: int, x: Any) -> Any:
    what = f"argument {argnum} of `{name_of(f)}`"
    if isinstance(x, Tracer):
        raise UnsupportedError(
            f"{who}: {what} is traced. The result is an array of SciPy's, which no transform can "
            "trace: call it outside of them; jacobian and hessian can be nested."
        )
    if type(x) in PYTHON_SCALARS or not is_number(x):
        raise ArgumentError(
            f"{who}: {what} is {describe(x)}, but must be an array of floating-point numbers"
        )
    _require_real(who, what, aval_of(x))
    return x


def _require_real(who: str, what: str, aval: Aval) -> None:
    if aval.dtype.kind == "c":
        raise NotDifferentiable(
            f"{who}: {what} is {aval!r}; sparse derivatives are of real numbers. Use jacobian, or "
            "take real and imaginary parts as functions of real and imaginary parts."
        )
    if aval.dtype.char not in "fd":
        raise NotDifferentiable(
            f"{who}: {what} is {aval!r}, but must be float32 or float64, as SciPy's sparse arrays "
            "are. Convert it, for example with x.astype(float)."
        )


def numbers_in(who: str, leaves: Sequence[Any]) -> list:
    """The numbers among the arguments, as they go into the program."""
    if any(isinstance(x, Tracer) for x in leaves):
        raise UnsupportedError(
            f"{who}: an argument is traced. The result is an array of SciPy's, which no transform "
            "can trace: call it outside of them; jacobian and hessian can be nested."
        )
    return [in_native_order(plain(x)) for x in leaves if is_number(x)]


def kinds_of(args: tuple) -> tuple:
    """What a program depends on: structure, shapes and dtypes, and what is not a number."""
    leaves, structure = tree.flatten(args)
    return structure, tuple([_kind(x) for x in leaves])


def _kind(x: Any) -> Any:
    if not is_number(x):
        return Fixed(x)
    return (x.shape, x.dtype) if isinstance(x, np.ndarray | np.generic) else type(x)


class Fixed:
    """A leaf that is no number: equal to itself, and to an equal text, truth value or name."""

    __slots__ = ("x",)

    def __init__(self, x: Any):
        self.x = x

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fixed) or type(self.x) is not type(other.x):
            return False
        return self.x is other.x or (isinstance(self.x, str | bytes | bool) and self.x == other.x)

    def __hash__(self) -> int:
        return hash(type(self.x))


# ---- patterns


def jacobian_pattern(s: Staged, local: bool = False) -> Csr:
    """Where the Jacobian may have entries: for all values, or for those at hand."""
    source = s.source
    values: list[Any] = s.values if local else [UNKNOWN] * len(s.values)
    sets = [identity(source.shape, 0, source.size) if i == s.at else None
            for i in range(len(values))]
    (y,), _ = Walk(local=local).run(s.program, sets, values)
    if y is None:
        return sparse.csr_array((s.target.size, source.size), dtype=bool)
    return y.matrix()


def hessian_pattern(s: Staged) -> Csr:
    """Where the Hessian may have entries."""
    source = s.source
    pairs = Interactions(source.size)
    sets = [identity(source.shape, 0, source.size) if i == s.at else None
            for i in range(len(s.values))]
    Walk(pairs).run(s.program, sets, [UNKNOWN] * len(s.values))
    return pairs.matrix()


__all__ = ["Staged", "hessian_pattern", "jacobian_pattern", "kinds_of", "numbers_in", "staged"]
