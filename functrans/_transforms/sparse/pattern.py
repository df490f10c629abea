"""Sparsity patterns, read off a program equation by equation.

A value becomes the set of inputs that each of its entries depends on. With ``Interactions``, the
walk also notes which pairs of inputs meet in a row that is not linear: they are the places where
second derivatives can be (Walther 2008, ACM Trans. Math. Softw. 34). A value that depends on no
input is known, and where a slope is known to be zero there is no dependence; ``local`` patterns
are of programs whose values are all known.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._compile.ir.program import Atom, Const, Program, Structured, Var
from functrans._compile.ir.structured import Branch, Loop, Ruled
from functrans._core.aval import Aval
from functrans._ops.declare import Action, Bilinear, Elementwise, Linear, strong_multiply
from functrans._transforms.sparse import steps
from functrans._transforms.sparse.interactions import Interactions
from functrans._transforms.sparse.ruled import ruled
from functrans._transforms.sparse.rules import RULES, Operands, everything
from functrans._transforms.sparse.sets import UNKNOWN, Sets, identity, union
from functrans._transforms.staging.staging import stage
from functrans.errors import FunctransError, OutOfMemoryError, SolverError

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
            return steps.loop(self, xs, prim)
        if isinstance(prim, Branch):
            return steps.branch(self, xs, prim)
        if not self.zeros and isinstance(prim, Bilinear):
            xs = Operands(xs.eqn, [UNKNOWN] * len(xs.values), xs.sets)
        rule = RULES.get(prim)
        made: Sequence[Sets | None] | None = None
        if isinstance(prim, Ruled) and self.depth < DEEPEST:
            walk = functools.partial(
                Walk, depth=self.depth + 1, zeros=self.zeros, most=self.most
            )
            made = ruled(walk, xs, prim, self.interactions)
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
