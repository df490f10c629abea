"""Our functions as operations in PyTensor's graphs, as PyMC's models are made of."""

from __future__ import annotations

import functools
import importlib
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans import tree
from functrans._core.array import Aval, aval_of, is_inexact, plain
from functrans._interop.leaves import LeafFunction, Leaves
from functrans.errors import ArgumentError, name_of


def function(f: Callable, examples: tuple) -> Callable:
    """``f`` as a function of variables; see ``functrans.interop.pytensor_function``."""
    g, arrays = Leaves(f).split(examples, {}, lambda x: True)
    op = _make(name_of(f), g, list(map(aval_of, arrays)))

    @functools.wraps(f, updated=())
    def of_variables(*args: Any) -> Any:
        leaves = tree.leaves(args)
        if len(leaves) != len(arrays):
            raise ArgumentError(
                f"pytensor_function: `{name_of(f)}` was made for {len(arrays)} arrays as in its "
                f"examples, but was called with {len(leaves)}"
            )
        return tree.unflatten(g.result, op(*leaves, return_list=True))

    of_variables.__name__ = name_of(f)
    return of_variables


class Rules:
    """A function of arrays of such types as an operation; its derivative is one, too."""

    def __init__(self, name: str, g: LeafFunction, types: Sequence[Aval]):
        self.name, self.g, self.types = name, g, list(types)
        self.results = g.types(types)

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple:
        return _make, (self.name, self.g, self.types)

    def make_node(self, *variables: Any) -> Any:
        tensor = importlib.import_module("pytensor.tensor")
        graph = importlib.import_module("pytensor.graph.basic")
        inputs = list(map(tensor.as_tensor_variable, variables))
        for i, (x, a) in enumerate(zip(inputs, self.types, strict=True)):
            if x.ndim != len(a.shape):
                raise ArgumentError(
                    f"pytensor_function: array {i} of `{self.name}` has {x.ndim} axes, but "
                    f"{len(a.shape)} in the example"
                )
        inputs = [x.astype(str(a.dtype)) for x, a in zip(inputs, self.types, strict=True)]
        outputs = [tensor.tensor(dtype=str(a.dtype), shape=(None,) * len(a.shape))
                   for a in self.results]
        return graph.Apply(self, inputs, outputs)

    def perform(self, node: Any, inputs: Sequence, outputs: Sequence) -> None:
        for slot, y, a in zip(outputs, self.g(*inputs), self.results, strict=True):
            slot[0] = np.array(plain(y), a.dtype)

    def pullback(self, inputs: Sequence, outputs: Sequence, cotangents: Sequence) -> list:
        gradient = importlib.import_module("pytensor.gradient")
        moving = tuple([i for i, a in enumerate(self.types) if is_inexact(a)])
        kept = [i for i, a in enumerate(self.results) if is_inexact(a)]
        cts = [cotangents[i] for i in kept]
        cts = [y.zeros_like() if isinstance(c.type, gradient.DisconnectedType) else c
               for c, y in zip(cts, [outputs[i] for i in kept], strict=True)]
        back = _make(
            f"gradient of {self.name}", self.g.pulled_back(moving),
            [*self.types, *[self.results[i] for i in kept]],
        )
        gs = iter(back(*inputs, *cts, return_list=True))
        return [next(gs) if i in moving else gradient.DisconnectedType()()
                for i in range(len(inputs))]

    L_op = pullback

    def connection_pattern(self, node: Any) -> list[list[bool]]:
        return [[is_inexact(a) and is_inexact(y) for y in self.results] for a in self.types]


def _make(name: str, g: LeafFunction, types: Sequence[Aval]) -> Any:
    return _operation()(name, g, types)


@functools.cache
def _operation() -> type:
    """The rules as a class of PyTensor's."""
    bases = (Rules, importlib.import_module("pytensor.graph.op").Op)
    return types.new_class("FunctransOp", bases)
