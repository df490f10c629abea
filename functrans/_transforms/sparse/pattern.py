"""Sparsity patterns, read off a program equation by equation."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._compile.ir.passes import optimise
from functrans._compile.ir.program import (
    Atom,
    Const,
    Eqn,
    Program,
    Structured,
    Var,
    aval_of_atom,
    is_weak,
)
from functrans._compile.ir.structured import Branch, Loop, Ruled
from functrans._core.array import Aval
from functrans._core.plain import space
from functrans._core.primitive import ZeroPolicy
from functrans._ops.declare import Action, Bilinear, Elementwise, Linear, strong_multiply
from functrans._transforms.sparse.row_patterns import RULES, Operands, Walking, everything
from functrans._transforms.sparse.sets import (
    UNKNOWN,
    Csr,
    Interactions,
    Sets,
    combine,
    identity,
    of_matrix,
    sparse,
    union,
)
from functrans._transforms.staging import restage
from functrans._transforms.staging.staging import stage
from functrans.errors import FunctransError, OutOfMemoryError, SolverError

# ---- Patterns of functions with derivative rules: those of the program of the rule
#
# The program of the tangents is linear in them: which of them an entry takes is the pattern of the
# function, and which primals meet them is that of its second derivatives.

Start = Callable[..., Walking]


def apply_rule(start: Start, xs: Operands, prim: Ruled,
          interactions: Interactions | None) -> list[Sets | None] | None:
    """The sets of the outputs; None where the rule has no program of tangents."""
    mask = tuple(s is not None for s in xs.sets)
    try:
        made, moves = restage.jvp(_alone(xs.eqn, prim), mask, prim.name, ZeroPolicy.BY_ROW)
    except FunctransError:
        return None
    outputs = made.outputs[len(moves) :]
    program = optimise(Program(made.inputs, made.eqns, outputs))
    operands = [s for s in xs.sets if s is not None]
    size = sum(s.size for s in operands)
    below: Csr = sparse.vstack([s.matrix() for s in operands], format="csr")
    values = [UNKNOWN] * len(made.inputs)
    tangents = _number(operands, 0, size)
    found, _ = start().run(program, [*[None] * len(mask), *tangents], values)
    if interactions is not None and interactions.concern(operands):
        pairs = Interactions(2 * size, wanted=size)  # with a tangent
        both = space(_number(operands, size, 2 * size), mask)
        start(pairs).run(program, [*both, *_number(operands, 0, 2 * size)], values)
        interactions.products(below, pairs.matrix()[size:, :size] @ below)
    return [None if y is None else of_matrix(y.matrix() @ below, y.shape)
            for y in space(found, moves)]


def _alone(eqn: Eqn, prim: Ruled) -> Program:
    """The equation as a program of its own."""
    inputs = tuple([Var(aval_of_atom(a), is_weak(a)) for a in eqn.inputs])
    outputs = tuple([Var(v.aval, v.weak) for v in eqn.outputs])
    return Program(inputs, (Eqn(prim, inputs, eqn.params, outputs),), outputs)


def _number(operands: Sequence[Sets], first: int, inputs: int) -> list[Sets]:
    """The entries of the operands as inputs of their own."""
    starts = first + np.cumsum([0, *[s.size for s in operands]])
    return [identity(s.shape, k, inputs) for s, k in zip(operands, starts.tolist(), strict=False)]


# ---- Patterns of loops and branches: the programs that they hold, walked like any other

# Equations of all steps up to which a loop is walked step by step; passes of the others.
UNROLLED, PASSES = 50_000, 8


def branch(walk: Walking, xs: Operands, prim: Branch) -> list[Sets | None]:
    """The union over the branches, or the one that is known to be taken."""
    taken = prim.branches
    if xs.known(0):
        taken = (taken[min(max(int(xs.values[0]), 0), len(taken) - 1)],)
    runs = [walk.run(p, xs.sets[1:], xs.values[1:])[0] for p in taken]
    return [union(parts) for parts in zip(*runs, strict=True)]


def loop(walk: Walking, xs: Operands, prim: Loop) -> Sequence[Sets | None]:
    """Step by step where their number is known, else what no further step changes."""
    steps = _count_steps(xs, prim)
    if steps is None or steps * len(prim.body.eqns) > UNROLLED:
        return _until_stable(walk, xs, prim)
    _, consts, state, arrays = prim.parts(xs.sets)
    _, known_consts, known, known_arrays = prim.parts(xs.values)
    columns: list[list[Sets | None]] = []
    shapes = [a.shape for a in prim.output_types()]
    for k in range(steps):
        at = steps - 1 - k if prim.reverse else k
        entries = [s and s.moved(lambda x, at=at: x[at]) for s in arrays]
        values = [v if v is UNKNOWN else v[at] for v in known_arrays]
        outs, made = walk.run(
            prim.body, [*consts, *state, *entries], [*known_consts, *known, *values]
        )
        state, known = outs[: prim.carries], made[: prim.carries]
        columns.append(outs[prim.carries :])
    length = shapes[prim.carries][0] if len(shapes) > prim.carries else steps
    if prim.reverse:
        columns.reverse()
    stacked = [
        _stack(parts, shape, length)
        for parts, shape in zip(zip(*columns, strict=True), shapes[prim.carries :], strict=True)
    ] if columns else [None] * (len(shapes) - prim.carries)
    return [*state, *stacked]


def _count_steps(xs: Operands, prim: Loop) -> int | None:
    """How many steps there are, None where a value decides."""
    if prim.test is not None:
        return None
    if not prim.counted:
        return prim.length
    return int(xs.values[0]) if xs.known(0) else None


def _stack(parts: Sequence[Sets | None], shape: tuple[int, ...], length: int) -> Sets | None:
    """The entries of all steps, and empty sets for those that were not run."""
    whole = [*parts, *[None] * (length - len(parts))]
    return combine(whole, [shape[1:]] * length, lambda *rows: np.stack(rows))


def _until_stable(walk: Walking, xs: Operands, prim: Loop) -> Sequence[Sets | None]:
    """The state as the union over all steps, each of which may see any entry of the arrays."""
    _, consts, state, arrays = prim.parts(xs.sets)
    any_entry = [s and s.united_along([0]) for s in arrays]
    known: list[Any] = [*prim.parts(xs.values)[1], *[UNKNOWN] * (prim.carries + len(arrays))]
    for _ in range(PASSES):
        outs, _ = walk.run(prim.body, [*consts, *state, *any_entry], known)
        new = [union([a, b]) for a, b in zip(state, outs[: prim.carries], strict=True)]
        if all(_equal(a, b) for a, b in zip(state, new, strict=True)):
            break
        state = [s and of_matrix(s.matrix(), s.shape) for s in new]
    else:
        return everything(xs, walk.interactions)
    columns = [
        s and s.reshaped((1, *s.shape)).broadcast_to(a.shape)
        for s, a in zip(outs[prim.carries :], prim.output_types()[prim.carries :], strict=False)
    ]
    return [*state, *columns, *([None] if prim.test is not None else [])]


def _equal(a: Sets | None, b: Sets | None) -> bool:
    if a is None or b is None:
        return a is b
    differs: Any = a.matrix() != b.matrix()
    return differs.nnz == 0


# ---- Sparsity patterns, read off a program equation by equation
#
# A value becomes the set of inputs that each of its entries depends on. With ``Interactions``, the
# walk also notes which pairs of inputs meet in a row that is not linear: they are the places where
# second derivatives can be (Walther 2008, ACM Trans. Math. Softw. 34). A value that depends on no
# input is known, and where a slope is known to be zero there is no dependence; ``local`` patterns
# are of programs whose values are all known.

# Rules within rules that are looked into: a rule may call its own function.
DEEPEST = 3


class Walk:
    """One pass over a program. ``sets`` of variables are None where they depend on no input.

    ``zeros``: a factor known to be zero ends a dependence. Where it may meet a NaN, it does not.
    OutOfMemoryError where a table of sets has more than ``most`` entries.
    """

    def __init__(
        self, interactions: Interactions | None = None, local: bool = False, depth: int = 0,
        zeros: bool = True, most: int = sys.maxsize,
    ):
        self.interactions = interactions
        self.local, self.depth, self.zeros, self.most = local, depth, zeros, most

    def run(self, program: Program, sets: Sequence[Sets | None],
            values: Sequence[Any]) -> tuple[list[Sets | None], list[Any]]:
        """Sets and values of the outputs, from those of the inputs."""
        known: dict[Var, Any] = dict(zip(program.inputs, values, strict=True))
        depends: dict[Var, Sets | None] = dict(zip(program.inputs, sets, strict=True))

        def value(a: Atom) -> Any:
            return known[a] if isinstance(a, Var) else a.value if isinstance(a, Const) else a

        def sets_of(a: Atom) -> Sets | None:
            return depends[a] if isinstance(a, Var) else None

        for eqn in program.eqns:
            xs = Operands(eqn, list(map(value, eqn.inputs)), list(map(sets_of, eqn.inputs)))
            made = self.process(xs)
            self.require_few(made)
            depends.update(zip(eqn.outputs, made, strict=True))
            known.update(zip(eqn.outputs, self.evaluated(xs), strict=True))
        return list(map(sets_of, program.outputs)), list(map(value, program.outputs))

    def require_few(self, made: Sequence[Sets | None]) -> None:
        tables = [t.table for s in made if s is not None for t in s.terms]
        if any([table is not None and table.nnz > self.most for table in tables]):
            raise OutOfMemoryError(f"a pattern has more than {self.most:,} entries")

    def evaluated(self, xs: Operands) -> list[Any]:
        """The values of an equation's outputs, where its operands are known."""
        eqn = xs.eqn
        if any(v is UNKNOWN for v in xs.values):
            return [UNKNOWN] * len(eqn.outputs)
        with np.errstate(all="ignore"):
            try:
                prim = eqn.prim
                run = prim.run if isinstance(prim, Structured) else prim.impl
                y = run(*xs.values, **eqn.params)
            except (np.linalg.LinAlgError, IndexError, SolverError):
                return [UNKNOWN] * len(eqn.outputs)  # raised where the program itself is run
        ys = y if eqn.prim.outputs > 1 else (y,)
        return [v.item() if out.weak and isinstance(v, np.generic | np.ndarray) else v
                for v, out in zip(ys, eqn.outputs, strict=True)]

    def process(self, xs: Operands) -> Sequence[Sets | None]:
        """The sets of an equation's outputs."""
        prim = xs.eqn.prim
        if all(s is None for s in xs.sets) or not prim.differentiable:
            return [None] * len(xs.eqn.outputs)
        if isinstance(prim, Elementwise):
            return [self.elementwise(xs, prim)]
        if isinstance(prim, Loop):
            return loop(self, xs, prim)
        if isinstance(prim, Branch):
            return branch(self, xs, prim)
        if not self.zeros and isinstance(prim, Bilinear):
            xs = Operands(xs.eqn, [UNKNOWN] * len(xs.values), xs.sets)
        rule = RULES.get(prim)
        made: Sequence[Sets | None] | None = None
        if isinstance(prim, Ruled) and self.depth < DEEPEST:
            walk = functools.partial(
                Walk, depth=self.depth + 1, zeros=self.zeros, most=self.most
            )
            made = apply_rule(walk, xs, prim, self.interactions)
        elif rule is not None:
            made = rule(xs, self.interactions)
        if made is not None:
            return made
        return everything(xs, None if isinstance(prim, Linear) else self.interactions)

    def elementwise(self, xs: Operands, prim: Elementwise) -> Sets | None:
        """Each entry of the output depends on the same one of the operands."""
        shape = xs.eqn.outputs[0].aval.shape
        moved = [s and s.broadcast_to(shape) for s in xs.sets]
        y = self.evaluated(xs)[0] if self.local else UNKNOWN
        parts = []
        for i, action in enumerate(prim.actions):
            s = moved[i]
            if s is None or action is None:
                continue
            factor = slope(action, prim.operands, y, xs.values, xs.avals)
            strong = prim is strong_multiply or action.pull is action.act
            if factor is not UNKNOWN and (self.zeros or strong):
                kept = np.asarray(factor != 0)  # NaN is kept
                if not kept.all():
                    s = s.only(kept)
            parts.append(s)
            if self.interactions is not None:
                for j in dependences(action, prim):
                    self.interactions.entrywise(s, moved[j])
        return union(parts)


def slope(action: Action, names: tuple[str, ...], y: Any, values: list, avals: list[Aval]) -> Any:
    """The slope at known operands, UNKNOWN where it needs one that is not known."""
    known = dict(zip(names, values, strict=True)) | {"y": y}
    saved = [known[name] for name in action.needs]
    if any(v is UNKNOWN for v in saved):
        return UNKNOWN
    with np.errstate(all="ignore"):
        return action.act(1.0, *[np.asarray(v) for v in saved])


@functools.lru_cache(maxsize=1024)
def dependences(action: Action, prim: Elementwise) -> tuple[int, ...]:
    """The operands that the slope of an action depends on with a derivative.

    The slope of ``abs`` is a sign, which has none; that of a product is the other factor.
    """
    if not action.needs:
        return ()
    reached: set[int] = set()
    for name in _needs(action):
        if name == "y":
            reached.update(i for i, a in enumerate(prim.actions) if a is not None)
        else:
            reached.add(prim.operands.index(name))
    return tuple(sorted(reached))


def _needs(action: Action) -> list[str]:
    """The names of what the slope depends on, read off the action's own program."""
    count = len(action.needs)
    inputs = [identity((), i, count) for i in range(count)]
    try:
        program, _ = stage(lambda *saved: action.act(1.0, *saved), [np.float64(1.0)] * count,
                           "the slope")
        (sets,), _ = Walk().run(program, inputs, [UNKNOWN] * count)
    except (FunctransError, TypeError):  # it has no derivative in some operand
        return list(action.needs)
    return [] if sets is None else [action.needs[i] for i in sets.matrix().indices]
