"""Which matrices of a program are their own transposes, as far as the program shows it."""

from __future__ import annotations

import numpy as np

from functrans._compile.ir.program import Atom, Const, Eqn, Program, Var, aval_of_atom
from functrans._ops import elementwise as ops
from functrans._ops.declare import Elementwise
from functrans._ops.indexing import WHOLE, getitem
from functrans._ops.reductions import sum as sum_
from functrans._ops.structure import reshape, transpose


def symmetric(program: Program) -> set[Var]:
    """The arrays that stay as they are when their first two axes change places.

    They come entry by entry of others that do, of what has neither axis, and of values that change
    places with each other: ``exp(-(x[:, None] - x) ** 2)``, ``A + A.T``. With a third axis, which
    may be summed over, they are tables of vectors: ``sum((x[:, None] - x) ** 2, -1)``.
    """
    return _Symmetric(program).found


class _Symmetric:
    def __init__(self, program: Program):
        self.found: set[Var] = set()
        self.opposite: set[Var] = set()  # whose sign changes with the places
        self.made: dict[Var, Eqn] = {}  # by transposes, and by what only inserts axes
        for eqn in program.eqns:
            out = eqn.outputs[0]
            if eqn.prim is transpose or _only_inserts_axes(eqn):
                self.made[out] = eqn
            if len(out.aval.shape) > 1 and out.aval.shape[0] == out.aval.shape[1]:
                self._enter(eqn, out)

    def _enter(self, eqn: Eqn, out: Var) -> None:
        prim, xs, shape = eqn.prim, eqn.inputs, out.aval.shape
        if isinstance(prim, Elementwise):
            signs = [x for x in xs if x in self.opposite] if self.opposite else []
            swapped = len(xs) == 2 and self._are_swapped(xs[0], xs[1], shape)
            others = all(self._is_symmetric(x, shape) for x in xs if x not in signs)
            scales = prim in (ops.multiply, ops.negative) or (
                prim is ops.divide and xs[1] not in signs)
            if (swapped and prim is ops.subtract) or (scales and others and len(signs) == 1):
                self.opposite.add(out)
            elif (swapped and prim.facts.commutes) or (others and (not signs or (
                prim in (ops.square, ops.absolute) or (prim is ops.multiply and len(signs) == 2)
            ))):
                self.found.add(out)
        elif xs[0] in self.found and (
            (prim is transpose and set(eqn.params["axes"][:2]) == {0, 1})
            or (prim is sum_ and min(eqn.params["axis"], default=2) > 1)
        ):
            self.found.add(out)

    def _is_symmetric(self, a: Atom, shape: tuple[int, ...]) -> bool:
        aval = aval_of_atom(a)
        if aval.size == 1 or aval.ndim < len(shape) - 1:
            return True  # it has neither axis
        if isinstance(a, Const):
            return a.value.ndim == 2 == len(shape) and np.array_equal(a.value, a.value.T)
        return a in self.found and aval.shape == shape

    def _are_swapped(self, x: Atom, y: Atom, shape: tuple[int, ...]) -> bool:
        """Whether one is the other with the first two axes in each other's place."""
        if not isinstance(x, Var) or not isinstance(y, Var):
            return False
        return self._is_turned(x, y, shape) or self._is_turned(y, x, shape)

    def _is_turned(self, x: Var, y: Var, shape: tuple[int, ...]) -> bool:
        made = self.made.get(x)
        if made is not None and made.prim is transpose:
            return made.inputs[0] is y and made.params["axes"] == (1, 0, *range(2, len(shape)))
        n, *rest = shape[1:]
        along = y.aval.shape in ((n, *rest), (1, n, *rest))
        return along and x.aval.shape == (n, 1, *rest) and self._entries(x) is self._entries(y)

    def _entries(self, x: Var) -> Atom:
        """What a value is but for axes of length 1."""
        made = self.made.get(x)
        return x if made is None or made.prim is transpose else made.inputs[0]


def _only_inserts_axes(eqn: Eqn) -> bool:
    if eqn.prim is reshape:
        x, y = eqn.inputs[0], eqn.outputs[0]
        lengths = [[n for n in aval_of_atom(a).shape if n != 1] for a in (x, y)]
        return lengths[0] == lengths[1]
    return eqn.prim is getitem and all(p is None or p == WHOLE for p in eqn.params["pattern"])
