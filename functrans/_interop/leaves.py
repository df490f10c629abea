"""A function of containers as one of the arrays in them, and its derivatives as such functions.

Other libraries differentiate functions of flat lists of arrays. The derivative of one is again such
a function, so that theirs is differentiated in turn, to any order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans import tree
from functrans._compile.ir.program import aval_of_atom
from functrans._core.array import Aval, aval_of, is_inexact, plain
from functrans._core.plain import placed
from functrans._transforms.forward.api import jvp
from functrans._transforms.mutation import follow
from functrans._transforms.reach import make_program
from functrans._transforms.reverse.api import vjp
from functrans._transforms.staging.jit import jit
from functrans._transforms.staging.signature import typed
from functrans.errors import ConcretizationError


class LeafFunction:
    """A function of arrays, to a tuple of arrays, and its derivatives.

    ``compiled``: the derivatives are compiled, as the function is. ``count``, of the operands, is
    known when it has been called.
    """

    def __init__(self, f: Callable[..., tuple], compiled: bool):
        self.f, self.compiled = f, compiled
        self.count = 0
        self._here = threading.local()
        self.derivatives: dict[tuple, LeafFunction] = {}

    def __call__(self, *arrays: Any) -> tuple:
        self.count = len(arrays)
        leaves, self._here.result = tree.flatten(self.f(*arrays))
        return tuple(leaves)

    @property
    def result(self) -> tree.Structure:
        """Of the last call in this thread; they nest by shapes, and threads share the function."""
        return self._here.result

    def types(self, arrays: Sequence) -> list[Aval]:
        """Shapes and dtypes of the results for arrays of these types."""
        examples = [np.ones(x.shape, x.dtype) for x in arrays]
        try:
            return list(map(aval_of_atom, make_program(self)(*examples).outputs))
        except ConcretizationError:  # it decides by values
            return list(map(aval_of, self(*examples)))

    def pulled_back(self, moving: tuple[int, ...], conjugate: bool = False) -> LeafFunction:
        """The function of operands, then cotangents of inexact results: gradients of ``moving``.

        Complex numbers are conjugated on both sides for a library whose convention that is.
        """

        def gradients(*operands: Any) -> tuple:
            xs, cts = operands[: self.count], operands[self.count :]
            pull = vjp(self._of(xs, moving), *[xs[i] for i in moving])[1]
            if not conjugate:
                return pull(tuple(cts))
            return tuple(map(np.conjugate, pull(tuple(map(np.conjugate, cts)))))

        return self._derivative(("back", moving), gradients)

    def pushed(self, moving: tuple[int, ...]) -> LeafFunction:
        """The function of operands, then tangents of ``moving``: those of the inexact results."""

        def tangents(*operands: Any) -> tuple:
            xs, ts = operands[: self.count], operands[self.count :]
            return jvp(self._of(xs, moving), tuple([xs[i] for i in moving]), tuple(ts))[1]

        return self._derivative(("forward", moving), tangents)

    def _of(self, xs: Sequence, moving: tuple[int, ...]) -> Callable[..., tuple]:
        """The inexact results as a function of the operands ``moving``."""

        def f(*changed: Any) -> tuple:
            return tuple([y for y in self(*placed(changed, moving, xs)) if is_inexact(y)])

        return f

    def _derivative(self, key: tuple, f: Callable[..., tuple]) -> LeafFunction:
        if key not in self.derivatives:
            made = LeafFunction(jit(f) if self.compiled else f, self.compiled)
            self.derivatives[key] = made
        return self.derivatives[key]


class Leaves:
    """The functions of arrays that calls of ``f`` have needed, by how their arguments nest."""

    def __init__(self, f: Callable):
        self.f = follow(f)
        self.known: dict[Any, LeafFunction] = {}

    def split(
        self, args: tuple, kwargs: dict, is_array: Callable[[Any], bool]
    ) -> tuple[LeafFunction, list]:
        """A call as a function of the arrays among its arguments, and those arrays."""
        leaves, structure = tree.flatten((args, kwargs))
        kept = {i: x for i, x in enumerate(leaves) if not is_array(x)}
        arrays = [x for i, x in enumerate(leaves) if i not in kept]
        try:
            key = structure, typed(tuple(kept.items()))
            if key not in self.known:
                self.known[key] = self._made(structure, kept)
            return self.known[key], arrays
        except TypeError:  # a leaf that is not hashable
            return self._made(structure, kept), arrays

    def _made(self, structure: tree.Structure, kept: dict[int, Any]) -> LeafFunction:
        def f(*arrays: Any) -> Any:
            rest = iter(arrays)
            full = [kept[i] if i in kept else next(rest) for i in range(structure.size)]
            args, kwargs = tree.unflatten(structure, full)
            return self.f(*args, **kwargs)

        return LeafFunction(f, hasattr(self.f, "lower"))


def writable(x: Any) -> np.ndarray:
    """A copy, which nobody else writes to or reads.

    The array may be an argument, one that the function holds, or another result: other libraries
    do not see where memory is shared, and write into it.
    """
    return np.array(plain(x), order="C")
