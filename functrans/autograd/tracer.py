"""Functions followed op by op: a node of the caller's kind for each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from functrans import tree
from functrans._core.bind import PrimalTracer, Trace, Tracer, bind, is_finite
from functrans._core.primitive import Primitive
from functrans.autograd._names import missing
from functrans.autograd._primitives import (
    PrimitiveCall,
    notrace_primitive,
    primitive,
    register_notrace,
)
from functrans.autograd._runs import INDEPENDENT, getval, open_leaves
from functrans.autograd.util import subvals, toposort
from functrans.autograd.wrap_util import wraps


class _OfTracers(type):
    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Tracer)


class Box(metaclass=_OfTracers):
    """The class of traced values, for ``isinstance``; ``x._value`` is what is inside."""

    @classmethod
    def register(cls, value_type: type) -> None:
        """Not here: containers of a user's own are taught to ``functrans.tree.register``."""
        raise NotImplementedError(
            f"Box.register({value_type.__name__}): functrans.tree.register teaches derivatives a "
            "container"
        )


def isbox(x: Any) -> bool:
    """Whether a value is traced."""
    return isinstance(x, Tracer)


class Node:
    """What a trace keeps of an op; a subclass says what.

    ``__init__`` gets the value, the function, its arguments and keywords, and of the arguments that
    are followed the positions and the nodes. ``initialize_root`` makes the node of the input.
    """

    __slots__ = ()

    def __init__(self, value: Any, fun: Callable, args: tuple, kwargs: dict,
                 parent_argnums: tuple[int, ...], parents: tuple[Any, ...]):
        raise NotImplementedError(f"{type(self).__name__} has no __init__")

    def initialize_root(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no initialize_root")

    @classmethod
    def new_root(cls, *args: Any, **kwargs: Any) -> Any:
        """The node of an input."""
        root = cls.__new__(cls)
        root.initialize_root(*args, **kwargs)
        return root


class _NodeTracer(PrimalTracer):
    __slots__ = ("node",)

    def __init__(self, trace: Trace, primal: Any, node: Any):
        self.owner, self.primal, self.node = trace, primal, node

    def is_finite(self) -> bool:
        return is_finite(self.primal)


class _NodeTrace(Trace):
    """Each op becomes a node of one kind."""

    __slots__ = ("kind",)

    def __init__(self, kind: type):
        super().__init__("trace")
        self.kind = kind

    def owns(self, x: Any) -> bool:
        return type(x) is _NodeTracer and x.owner is self

    def lower(self, x: Any) -> Any:
        return x.primal if self.owns(x) else x

    def node(self, value: Any, fun: Callable, args: Sequence, kwargs: dict) -> Any:
        """The node of a call, some of whose arguments, or leaves of them, are mine."""
        mine = [[v for v in tree.leaves(x) if self.owns(v)] for x in args]
        argnums = tuple([i for i, found in enumerate(mine) if found])
        plain = tuple([tree.map(self.lower, x) if found else x
                       for x, found in zip(args, mine, strict=True)])
        parents = tuple([mine[i][0].node for i in argnums])
        return self.kind(value, fun, plain, kwargs, argnums, parents)

    def process(self, prim: Primitive, args: tuple, params: dict) -> Any:
        self.require_open(prim)
        value = bind(prim, *map(self.lower, args), **params)
        node = self.node(value, _as_function(prim), args, params)
        return self.follow(value, node) if prim.outputs > 1 else _NodeTracer(self, value, node)

    def call(self, call: Any, args: tuple) -> tuple:
        if not isinstance(call, PrimitiveCall):
            return super().call(call, args)
        _, value, _ = call._apply([self.lower(x) for x in args])
        node = self.node(value, call.f, call.arguments(args), call.kwargs)
        return tuple(tree.leaves(self.follow(value, node)))

    def follow(self, value: Any, node: Any) -> Any:
        """``value``, a container or not, followed from its node on."""
        leaves, nesting = tree.flatten(value)
        if nesting is tree.LEAF:
            return _NodeTracer(self, value, node)
        return tree.unflatten(nesting, [
            _NodeTracer(self, v, self.kind(v, _take(i), (value,), {}, (0,), (node,)))
            for i, v in enumerate(leaves)
        ])


def _as_function(prim: Primitive) -> Callable:
    def op(*args: Any, **params: Any) -> Any:
        return bind(prim, *args, **params)

    op.__name__ = prim.name
    return op


def _take(i: int) -> Callable:
    def take(container: Any) -> Any:
        return tree.leaves(container)[i]

    return take


def trace(start_node: Any, fun: Callable, x: Any) -> tuple[Any, Any]:
    """Run ``fun`` on ``x``, whose node is ``start_node``, with a node of its class for each op.

    Returns the value and its node, None if the value does not depend on ``x``.
    """
    open_leaves(x)  # autograd's error for what cannot be followed
    run = _NodeTrace(type(start_node))
    try:
        end = fun(run.follow(x, start_node))
        if run.owns(end):
            return end.primal, end.node
        leaves = tree.leaves(end)
        if any(map(run.owns, leaves)):
            value = tree.map(run.lower, end)
            return value, run.node(value, lambda *parts: parts, leaves, {})
    finally:
        run.closed = True
    warnings.warn(INDEPENDENT, stacklevel=2)
    return end, None


def new_box(value: Any, trace: Any, node: Any) -> Any:
    """``value`` as followed by a trace of ``trace``, from ``node`` on."""
    if not isinstance(trace, _NodeTrace):
        raise NotImplementedError("new_box: traces are made by tracer.trace(start_node, fun, x)")
    return trace.follow(value, node)


__all__ = [
    "Box", "Node", "getval", "isbox", "new_box", "notrace_primitive", "primitive",
    "register_notrace", "subvals", "toposort", "trace", "wraps",
]
__getattr__ = missing(__name__)
