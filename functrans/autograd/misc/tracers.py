"""Functions recorded once, and their graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from functrans.autograd._names import missing
from functrans.autograd.tracer import Node, trace
from functrans.autograd.util import subvals, toposort
from functrans.autograd.wrap_util import wraps


class ConstGraphNode(Node):
    """An op that can be run again: ``partial_fun(values of the parents)``."""

    __slots__ = ("parents", "partial_fun")

    def __init__(self, value, fun, args, kwargs, parent_argnums, parents):
        fixed = subvals(args, [(i, None) for i in parent_argnums])
        self.parents = parents
        self.partial_fun = lambda values: fun(
            *subvals(fixed, zip(parent_argnums, values, strict=True)), **kwargs)

    def initialize_root(self, *args: Any, **kwargs: Any) -> None:
        self.parents = ()


def const_graph(fun: Callable, *args: Any, **kwargs: Any) -> Callable:
    """``fun`` with some arguments fixed, whose ops are recorded in the first call and run again in
    later ones: decisions by values, and constants, stay those of the first."""
    order: list[ConstGraphNode] = []

    def first(given: tuple) -> Any:
        value, end = trace(ConstGraphNode.new_root(), lambda xs: fun(*args, *xs, **kwargs), given)
        if end is None:
            raise ValueError("const_graph: the output is independent of the input")
        order.extend(reversed(list(toposort(end))))
        return value

    @wraps(fun)
    def recorded_fun(*given: Any) -> Any:
        if not order:
            return first(given)
        values = {order[0]: given}
        for node in order[1:]:
            values[node] = node.partial_fun([values[p] for p in node.parents])
        return values[order[-1]]

    return recorded_fun


class FullGraphNode(Node):
    """An op with all that went in: ``recipe`` is function, arguments, keywords and parents."""

    __slots__ = ("recipe", "value")

    def __init__(self, value, fun, args, kwargs, parent_argnums, parents):
        self.value = value
        self.recipe = (fun, args, kwargs, list(zip(parent_argnums, parents, strict=True)))

    def initialize_root(self, *args: Any, **kwargs: Any) -> None:
        self.value, self.recipe = None, (lambda x: x, (), {}, [])


def full_graph(fun: Callable, *args: Any, **kwargs: Any) -> Any:
    """The node of ``fun(*args)``, from which the graph is found by ``recipe``."""
    return trace(FullGraphNode.new_root(), lambda xs: fun(*xs, **kwargs), args)[1]


__all__ = ["ConstGraphNode", "FullGraphNode", "const_graph", "full_graph"]
__getattr__ = missing(__name__)
