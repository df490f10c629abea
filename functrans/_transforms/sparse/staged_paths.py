"""A function staged for its sparse derivatives, one straight program for each way through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans import tree
from functrans._compile.ir.passes import optimise
from functrans._compile.ir.program import Program, Var, aval_of_atom, check, evaluate
from functrans._core.array import Aval, aval_of, in_native_order, plain
from functrans._core.bind import Tracer
from functrans._core.plain import placed
from functrans._transforms.arguments import Argnums, describe, is_number, require_callable, select
from functrans._transforms.sparse.index_arguments import Held, hold, index_inputs
from functrans._transforms.sparse.pattern import Walk
from functrans._transforms.sparse.sets import UNKNOWN, Csr, Interactions, Sets, identity, sparse
from functrans._transforms.staging.environment import Environment
from functrans._transforms.staging.generators import Draws
from functrans._transforms.staging.reads import Reads, checks, unchanged_since
from functrans._transforms.staging.recording import (
    Decision,
    Endless,
    Outcome,
    Recording,
    Uncompiled,
    outcome_of,
    record,
)
from functrans._transforms.staging.staging import stage
from functrans.errors import (
    ArgumentError,
    ConcretizationError,
    FunctransError,
    NotDifferentiable,
    ShapeError,
    UnsupportedError,
    name_of,
)

# ---- The ways through a function that decides by values, each a straight program

# Ways that are looked at, at most.
MOST = 64


class Guard(NamedTuple):
    """What a way has decided by values: equations up to each decision, in order."""

    inputs: tuple[Var, ...]
    steps: list[tuple[Program, Decision]]

    def left(self, values: Sequence) -> Decision | None:
        """The first decision that other values make otherwise.

        By NumPy, as it was made, and no further than that: later equations are of another way.
        """
        known: dict[Any, Any] = dict(zip(self.inputs, values, strict=True))
        with np.errstate(all="ignore"):
            for program, d in self.steps:
                ys = evaluate(program, [known[v] for v in program.inputs])
                known.update(zip(program.outputs, ys, strict=True))
                assert d.outcome is not None, d
                if outcome_of(d.convert, known[d.variable]).key != d.outcome.key:
                    return d
        return None


class Way(NamedTuple):
    """A straight program, and for which values it is that of the function: None for all."""

    program: Program
    guard: Guard | None


def the_way(f: Callable, values: Sequence, name: str) -> Way:
    """The way that is gone for these values."""
    way = _record(f, values, name, [])
    return Way(check(way.program), _guard(way) if way.decisions else None)


def _guard(way: Recording) -> Guard:
    eqns = way.program.eqns
    maker = {v: i for i, eqn in enumerate(eqns) for v in eqn.outputs}
    done: set[int] = set()
    steps = []
    for d in way.decisions:
        wanted: set[int] = set()
        todo: list[Any] = [d.variable]
        while todo:
            i = maker.get(todo.pop(), -1)
            if i >= 0 and i not in done:
                done.add(i)
                wanted.add(i)
                todo += [a for a in eqns[i].inputs if isinstance(a, Var)]
        piece = tuple([eqns[i] for i in sorted(wanted)])
        results = dict.fromkeys([v for eqn in piece for v in eqn.outputs])
        read = dict.fromkeys([a for eqn in piece for a in eqn.inputs if isinstance(a, Var)])
        inputs = tuple([v for v in read if v not in results])
        steps.append((check(Program(inputs, piece, tuple(results))), d))
    return Guard(way.program.inputs, steps)


def every_way(f: Callable, values: Sequence, name: str) -> list[Way]:
    """All ways that truth values decide between. Numbers that Python asks for have too many."""
    found: list[Way] = []
    todo: list[list[Outcome]] = [[]]
    while todo:
        known = todo.pop()
        try:
            way = _record(f, values, name, known)
        except FunctransError:
            raise
        except Exception:
            if not known:
                raise
            continue  # what raises there has no derivative
        if any([d.convert is not bool for d in way.decisions]):
            stage(f, values, name)  # says where Python asks for a number
        outcomes = [d.outcome for d in way.decisions if d.outcome is not None]
        for n in range(len(known), len(outcomes)):
            other = not outcomes[n].value
            todo.append([*outcomes[:n], Outcome(other, other)])
        found.append(Way(check(way.program), None))
        if len(found) + len(todo) > MOST:
            raise _too_many(name, f"more than {MOST} ways", way.decisions[-1].line)
    return found


def _record(f: Callable, values: Sequence, name: str, known: Sequence[Outcome]) -> Recording:
    try:
        way = record(f, values, values, name, known)
    except Endless as end:
        raise _too_many(name, "a way that does not end", end.line) from None
    except Uncompiled as why:
        raise why.error from None
    if way.draws.draws:
        raise UnsupportedError(
            f"{name}: the function draws random numbers, so that it has no one pattern. Draw them "
            "outside, and pass them as an argument."
        )
    if way.lifted:
        raise UnsupportedError(f"{name}: the function reads a traced value; pass it as an argument")
    return way


def _too_many(name: str, what: str, line: str) -> UnsupportedError:
    return UnsupportedError(
        f"{line}: deciding by a value in Python gives {name} {what}. Use np.where, ft.cond or "
        "ft.while_loop, all of whose branches are one program; sparsity can be asked for the "
        "pattern at these values, local=True."
    )


# ---- A function staged for its sparse derivatives: arrays in, arrays out, all else held constant
#
# Columns are the entries of all arrays that are differentiated, rows those of all that come out, in
# the order in which ``tree.ravel`` joins them.


class Staged(NamedTuple):
    """``program`` takes the numbers among the arguments; those at ``places`` are differentiated.

    It is that of the function where ``guard`` says so, and the indices ``held`` are the same.
    """

    program: Program
    places: list[int]
    kinds: tuple
    values: list
    reads: Reads | None
    guard: Guard | None
    held: Held | None = None

    @property
    def sources(self) -> list[Aval]:
        return [self.program.inputs[i].aval for i in self.places]

    @property
    def targets(self) -> list[Aval]:
        return list(map(aval_of_atom, self.program.outputs))

    @property
    def shape(self) -> tuple[int, int]:
        """Of the Jacobian."""
        return sum([a.size for a in self.targets]), sum([a.size for a in self.sources])

    @property
    def dtype(self) -> np.dtype:
        """Of the Jacobian."""
        return np.result_type(*[a.dtype for a in self.targets])

    @property
    def is_complex(self) -> bool:
        return any([a.dtype.kind == "c" for a in self.sources])

    def with_indices(self) -> Staged:
        """The program for indices as those among the arguments, where its pattern goes by them."""
        inputs = index_inputs(self.program, self.places)
        if not inputs:
            return self
        program = hold(self.program, inputs, self.values)
        return self._replace(program=program, held=Held.of(inputs, self.values))

    def leaves(self, values: Sequence) -> str | None:
        """How the function goes on for other values, as a text; None where it is this one."""
        if self.held is not None and self.held.differ(values):
            return ("for an argument of indices, by whose values the pattern goes, and they are "
                    "others here")
        decision = None if self.guard is None else self.guard.left(values)
        return decision and f"on the path {decision}, and takes another one here"


def staged(who: str, f: Callable, argnums: Argnums, args: tuple) -> Staged:
    """The program of ``f`` for arguments like these, on the way that it goes for their values."""
    (s,) = _stage(who, f, argnums, args, _here)
    return s


def _here(*call: Any) -> list[Way]:
    return [the_way(*call)]


def staged_ways(f: Callable, argnums: Argnums, args: tuple, local: bool) -> list[Staged]:
    """Each way that ``f`` may go for arguments like these; ``local``: that for their values."""
    found = _stage("sparsity", f, argnums, args, _here if local else every_way)
    found = found if local else [s.with_indices() for s in found]
    shapes = {s.shape for s in found}
    if len(shapes) > 1:
        raise ShapeError(
            f"sparsity: `{name_of(f)}` returns arrays of other sizes by the values that it is "
            f"given: the matrix is {' or '.join(map(str, sorted(shapes)))}. local=True gives the "
            "pattern at these values."
        )
    return found


def _stage(who: str, f: Callable, argnums: Argnums, args: tuple,
            write: Callable[[Callable, list, str], list[Way]]) -> list[Staged]:
    leaves, structure = tree.flatten(args)
    function = require_callable(who, f)
    chosen = _choose(who, f, argnums, args, leaves, structure)
    numbers = numbers_in(who, leaves)
    places = [i for i, x in enumerate(leaves) if is_number(x)]

    def flat(*values: Any) -> Any:
        return function(*tree.unflatten(structure, placed(values, places, leaves)))

    name = f"{who}({name_of(f)})"
    fixed = [x for x in leaves if not is_number(x)]
    environment = Environment(f, *fixed)
    before, draws = checks(environment), Draws(environment.generators, environment.libraries)
    ways = write(flat, numbers, name)
    after = Environment(f, *fixed)
    draws.refuse(name, "the same for each call", after.generators)
    unchanged = list(unchanged_since(before, checks(after)).values())
    reads = Reads(unchanged) if unchanged else None
    at, kinds = list(map(places.index, chosen)), kinds_of(args)
    found = [
        Staged(optimise(way.program), at, kinds, numbers, reads, way.guard) for way in ways
    ]
    for s, way in zip(found, ways, strict=True):
        _require_floats(who, f, s)
        _require_derivatives(who, f, s, way)
    return found


def _require_floats(who: str, f: Callable, s: Staged) -> None:
    if not s.targets:
        raise ArgumentError(f"{who}: `{name_of(f)}` returned no array")
    for a in s.targets:
        _require_kind(who, f"the value of `{name_of(f)}`", a)
    _require_one_field(who, f, s)


def _require_derivatives(who: str, f: Callable, s: Staged, way: Way) -> None:
    """Raise where Python has taken a number out of what is differentiated."""
    for d in [d for _, d in way.guard.steps if d.convert in (float, complex)] if way.guard else ():
        number = Program(way.program.inputs, way.program.eqns, (d.variable,))
        if jacobian_pattern([s._replace(program=number)]).nnz:
            raise ConcretizationError(
                f"{d.line}: {d.convert.__name__}() of a value that {who} differentiates "
                f"`{name_of(f)}` in; the result would have no derivative. Use NumPy's function "
                "(np.sin for math.sin), or stop_gradient for a constant."
            )


def require_scalar(who: str, f: Callable, s: Staged) -> None:
    """Raise where the value is no single number, and has no Hessian."""
    if len(s.targets) != 1 or s.targets[0].size != 1:
        found = repr(s.targets[0]) if len(s.targets) == 1 else f"{len(s.targets)} arrays"
        raise ShapeError(
            f"{who}: a Hessian needs a scalar output, but `{name_of(f)}` returned {found}. Reduce "
            "the result, for example with .sum(); sparse_jacobian takes several outputs."
        )


class _Place:
    """Stands for a leaf of the arguments, where argnums chooses among them."""

    __slots__ = ("at",)

    def __init__(self, at: int):
        self.at = at


def _choose(who: str, f: Callable, argnums: Argnums, args: tuple, leaves: list,
            structure: tree.Structure) -> list[int]:
    """The leaves of the arguments that are differentiated, in the order of their columns."""
    marks = tree.unflatten(structure, list(map(_Place, range(len(leaves)))))
    by: Any = argnums
    if callable(argnums):
        by = lambda path, mark: argnums(path, leaves[mark.at])  # noqa: E731  # as the user's
    parts = select(who, f, by, marks, {}).values
    wanted = [mark.at for mark in tree.leaves(parts)]
    label = f"`{argnums}`" if isinstance(argnums, str) else argnums
    what = f"argument {label} of `{name_of(f)}`"
    if any([isinstance(leaves[i], Tracer) for i in wanted]):
        raise _trace(who, what)
    numbers = [i for i in wanted if is_number(leaves[i])]
    chosen = [i for i in numbers if aval_of(leaves[i]).dtype.kind in "fcV"]
    if not chosen:
        found = describe(leaves[wanted[0]]) if len(wanted) == 1 else "a container without any"
        raise NotDifferentiable(f"{who}: {what} is {found}, but must have floating-point numbers")
    for i in chosen:
        _require_kind(who, what, aval_of(leaves[i]))
    return chosen


def _require_kind(who: str, what: str, aval: Aval) -> None:
    if aval.dtype.char not in "fdFD":
        raise NotDifferentiable(
            f"{who}: {what} is {aval!r}, but must be float32 or float64, as SciPy's sparse arrays "
            "are, or complex numbers of these. Convert it, for example with x.astype(float)."
        )


def _require_one_field(who: str, f: Callable, s: Staged) -> None:
    """Raise where some numbers are complex and some are not."""
    kinds = {a.dtype.kind for a in (*s.sources, *s.targets)}
    if len(kinds) > 1:
        ins, outs = [", ".join([str(a.dtype) for a in avals]) for avals in (s.sources, s.targets)]
        raise NotDifferentiable(
            f"{who}: `{name_of(f)}` maps {ins} to {outs}; sparse derivatives are of real functions "
            "of real numbers, or of holomorphic functions, all of whose numbers are complex. Use "
            "jacobian, or take real and imaginary parts as functions of real and imaginary parts."
        )


def _trace(who: str, what: str) -> UnsupportedError:
    return UnsupportedError(
        f"{who}: {what} is traced. The result is an array of SciPy's, which no transform can "
        "trace: call it outside of them; jacobian and hessian can be nested."
    )


def require_plain(who: str, name: str, args: tuple) -> None:
    """Raise where a transform traces an argument."""
    for i, x in enumerate(args):
        if any([isinstance(v, Tracer) for v in tree.leaves(x)]):
            raise _trace(who, f"argument {i} of `{name}`")


def numbers_in(who: str, leaves: Sequence[Any]) -> list:
    """The numbers among the arguments, as they go into the program."""
    if any([isinstance(x, Tracer) for x in leaves]):
        raise _trace(who, "an argument")
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


def jacobian_pattern(ways: Sequence[Staged], local: bool = False) -> Csr:
    """Where the Jacobian may have entries: for all values, or for those at hand."""
    return _unite([_jacobian_pattern(s, local) for s in ways])


def _jacobian_pattern(s: Staged, local: bool) -> Csr:
    values: list[Any] = s.values if local else [UNKNOWN] * len(s.values)
    outs, _ = Walk(local=local).run(s.program, _inputs(s), values)
    n = s.shape[1]
    parts = [sparse.csr_array((a.size, n), dtype=bool) if y is None else y.matrix()
             for y, a in zip(outs, s.targets, strict=True)]
    return parts[0] if len(parts) == 1 else sparse.vstack(parts, format="csr")


def hessian_pattern(ways: Sequence[Staged]) -> Csr:
    """Where the Hessian may have entries."""
    return _unite([_hessian_pattern(s) for s in ways])


def _hessian_pattern(s: Staged) -> Csr:
    pairs = Interactions(s.shape[1])
    Walk(pairs).run(s.program, _inputs(s), [UNKNOWN] * len(s.values))
    return pairs.matrix()


def _unite(patterns: list[Csr]) -> Csr:
    total = patterns[0]
    for p in patterns[1:]:
        total = total + p
    total.sum_duplicates()
    return total


def _inputs(s: Staged) -> list[Sets | None]:
    """The sets of the program's inputs."""
    sets: list[Sets | None] = [None] * len(s.values)
    first = 0
    for i, a in zip(s.places, s.sources, strict=True):
        sets[i] = identity(a.shape, first, s.shape[1])
        first += a.size
    return sets
