"""The observers of a thread's tensors: the profiler, and anomaly mode.

``observed`` calls ``Watch.run`` for each operation of a watched thread, and the walk calls
``Watch.pull`` for each node. Observers are ``functrans.extend.Observer``s; operations of tensors
reach them as ``Op``s without a label, whose ``prim`` is the node they made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import perf_counter_ns
from typing import Any

from functrans.extend import Observer, Observers, Op
from functrans.torch._graph.graph import Value
from functrans.torch._graph.modes import state
from functrans.torch._graph.nodes import Node, caller
from functrans.torch._graph.observed import set_watch
from functrans.torch._tensors.tensor import Tensor

# Operations that torch's profiler knows by another name.
_ATEN = {
    "square": "pow", "power": "pow", "multiply": "mul", "subtract": "sub", "divide": "div",
    "negative": "neg", "getitem": "slice", "setitem": "copy_", "sum_dim": "sum",
    "broadcast_to": "expand", "concatenate": "cat", "absolute": "abs",
}


class Watch(Observers):
    """The observers of one thread."""

    def __init__(self, observers: tuple[Observer, ...]):
        super().__init__(observers)
        self._thread = threading.get_ident()
        self._recording_walks = 0

    @property
    def records_derivative(self) -> bool:
        """Whether a backward is under way that records its own derivative."""
        return self._recording_walks > 0

    def run(self, name: str, f: Callable, args: tuple, kwargs: dict | None = None,
            actual: tuple | None = None, custom: bool = False) -> Any:
        """``f(*args, **kwargs)``, which observers are told of; ``f(*actual)`` if that is there.

        ``custom``: a function of the user's, which goes by its own name.
        """
        call = partial(f, *args, **(kwargs or {})) if actual is None else partial(f, *actual)
        storage = args[0]._storage if args and type(args[0]) is Tensor else None
        before = None if storage is None else storage.changed
        try:
            name = name if custom else f"aten::{_ATEN.get(name, name)}"
            if self.quick is not None:
                return self._time(name, call, args)
            return self._tell(Op(name, args, kwargs or {}, ""), call)
        finally:
            if storage is not None and storage.changed and storage.changed is not before:
                storage.changed = storage.changed[0], caller()

    def _tell(self, op: Op, call: Callable) -> Any:
        nodes = [x._node if type(x) is Tensor else None for x in op.args]
        tokens = [o.begin(op) for o in self.observers]
        out = None
        try:
            out = call()
            node = _node_of(out)
            if node is None and op.args and type(op.args[0]) is Tensor:
                node = op.args[0]._node  # written to
            if node is not None and node not in nodes:
                op.prim, op.sequence = node, -node.seq
                _place(node)
            return out
        finally:
            for o, token in zip(self.observers, tokens, strict=True):
                o.end(token, out)

    def _time(self, name: str, call: Callable, args: tuple) -> Any:
        """The same for an observer that only writes down times."""
        first = args[0] if args else None
        before = first._node if type(first) is Tensor else None
        node = None
        start = perf_counter_ns()
        try:
            out = call()
            node = out._node if type(out) is Tensor else _node_of(out)
            return out
        finally:
            end = perf_counter_ns()
            if node is None and type(first) is Tensor:
                node = first._node  # written to
            number = None
            if node is not None and node is not before:
                number = -node.seq
                _place(node)
            self.quick.append((name, start, end, self._thread, "forward", number))

    def pull(self, node: Node, ct: Any, create: bool) -> Sequence:
        """``node.pull(ct, create)``, told of."""
        name = node.name()
        if self.quick is not None and not create:
            start = perf_counter_ns()
            try:
                return node.pull(ct, create)
            finally:
                end = perf_counter_ns()
                self.quick.append((name, start, end, self._thread, "backward", -node.seq))
        op = Op(name, (), {}, "", -node.seq, prim=node, backward=name)
        tokens = [o.back(op, ct) for o in self.observers]
        self._recording_walks += create
        try:
            parts = node.pull(ct, create)
            for o, token in zip(self.observers, tokens, strict=True):
                o.passed(token, list(enumerate(parts)))
            return parts
        except BaseException as failure:
            for o, token in zip(self.observers, tokens, strict=True):
                o.failed(token, failure)
            raise
        finally:
            self._recording_walks -= create


def _node_of(out: Any) -> Node | None:
    if type(out) is Tensor:
        return out._node
    if type(out) is Value:
        return out.node
    if isinstance(out, tuple | list) and out:
        return _node_of(out[0])
    return None


def _place(node: Any) -> None:
    """Nodes note the line that called their operation, which here is one of this module."""
    if getattr(node, "where", None) is not None:
        node.where = caller()


@contextmanager
def watched(observer: Observer) -> Iterator[None]:
    """Tell ``observer`` what this thread does in this block, besides those told already."""
    before = state.watch
    set_watch(Watch((*(before.observers if before else ()), observer)))
    try:
        yield
    finally:
        set_watch(before)
