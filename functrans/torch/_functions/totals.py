"""The sum and the mean of all entries, by the shortest way from tensor to tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from functrans.extend import TABLE, Aval, bind
from functrans.torch._functions.failures import not_a_tensor
from functrans.torch._graph.dual import FORWARD, Forward
from functrans.torch._graph.modes import state
from functrans.torch._graph.nodes import Edge, OpNode, sequence, title_for
from functrans.torch._graph.observed import observed_unary
from functrans.torch._tensors.tensor import Tensor, from_array, recorded_edge

_broadcast_to = TABLE["broadcast_to"]


class TotalNode(OpNode):
    """The sum of all entries times ``scale``, the last op of every loss."""

    __slots__ = ("aval", "scale")

    def __init__(self, title: str, edge: Edge, array: np.ndarray, scale: float):
        self.seq = next(sequence)
        self.edges = (edge,)
        self.extras = None
        self.outputs = 1
        self.plain = True
        self.title = title
        self.aval = array.shape, array.dtype
        self.scale = scale

    def pull(self, ct: Any, create: bool) -> tuple:
        if type(ct) is ndarray or isinstance(ct, np.generic):
            spread = np.empty(*self.aval)
            spread.fill(ct.item() * self.scale)
            return (spread,)
        if self.scale != 1:
            ct = ct * self.scale
        return (bind(_broadcast_to, ct, shape=self.aval[0]),)


FORWARD[TotalNode] = Forward(
    lambda node, outs: (Aval(*node.aval),),
    lambda node, ts, outs, create: (np.sum(ts[0]) * outs[0].dtype.type(node.scale),))


def total(name: str, mean: bool) -> Callable:
    """The sum or the mean of all entries, as a function of a tensor."""
    title = title_for(name)

    def f(input: Tensor) -> Tensor:
        try:
            array = input._array
        except AttributeError:
            raise not_a_tensor(name, "input", 1, input) from None
        y = np.add.reduce(array, None)
        scale = 1 / (array.size or math.nan) if mean else 1
        out = from_array(y * y.dtype.type(scale) if mean else y)
        edge = recorded_edge(input) if state.grad else None
        if edge is not None:
            out._node = TotalNode(title, edge, array, scale)
        return out

    return observed_unary(f, name)
