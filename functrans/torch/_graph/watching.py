"""Who is told what a thread does with tensors: the profiler, and anomaly mode.

As a rule ``modes.state.watch`` is None, and all there is of this module in an operation is that it
looks. Observers are ``functrans.extend.Observer``s; the operations of tensors reach them as ``Op``s
without a label, whose ``prim`` is the node they made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any

from functrans.extend import Observer, Observers, Op
from functrans.torch._graph.graph import AccumulateGrad, Node, Value, caller
from functrans.torch._graph.modes import state
from functrans.torch._tensors.tensor import Tensor


class Watch(Observers):
    """The observers of one thread."""

    def __init__(self, observers: tuple):
        super().__init__(observers)
        self._thread = threading.get_ident()
        self._passing = False  # the operation that is called now has already been told of
        self._creating = 0  # walks that record the derivative

    def enters(self) -> bool:
        """Whether an operation that has just been called is still to be told of."""
        if self._passing:
            self._passing = False
            return False
        return True

    def enters_row(self) -> bool:
        """The same for a row: told of where a derivative is recorded, else part of its caller."""
        return self._creating > 0 and self.enters()

    def run(self, name: str, f: Callable, args: tuple, kwargs: Any = None,
            given: tuple | None = None) -> Any:
        """``f(*args, **kwargs)``, or ``f(*given)``, told of."""
        if self.quick is not None:
            return self._timed(name, f, given or args, kwargs or {})
        op = Op(name, args, kwargs or {}, "")
        nodes = [x._node if type(x) is Tensor else None for x in args]
        tokens = [o.begin(op) for o in self.observers]
        out = None
        self._passing = True
        try:
            out = f(*(given or args), **(kwargs or {}))
            node = _node_of(out)
            if node is None and args and type(args[0]) is Tensor:
                node = args[0]._node  # written to
            if node is not None and node not in nodes:
                op.prim, op.sequence = node, -node.seq
                _place(node)
            return out
        finally:
            self._passing = False
            _place_change(args)
            for o, token in zip(self.observers, tokens, strict=True):
                o.end(token, out)

    def _timed(self, name: str, f: Callable, args: tuple, kwargs: dict) -> Any:
        """The same where only times are written down."""
        first = args[0] if args else None
        before = first._node if type(first) is Tensor else None
        self._passing, node = True, None
        start = perf_counter_ns()
        try:
            out = f(*args, **kwargs)
            node = out._node if type(out) is Tensor else _node_of(out)
            return out
        finally:
            end = perf_counter_ns()
            self._passing = False
            if node is None and type(first) is Tensor:
                node = first._node  # written to
            number = None
            if node is not None and node is not before:
                number = -node.seq
                _place(node)
            if name[-1] == "_" or name == "setitem":
                _place_change(args)
            self.quick.append((name, start, end, self._thread, "forward", number))

    def pull(self, node: Node, ct: Any, create: bool) -> Sequence:
        """``node.pull(ct, create)``, told of."""
        name = type(node).__name__
        if type(node) is AccumulateGrad:
            name = "torch::autograd::AccumulateGrad"
        if self.quick is not None and not create:
            start = perf_counter_ns()
            try:
                return node.pull(ct, create)
            finally:
                end = perf_counter_ns()
                self.quick.append((name, start, end, self._thread, "backward", -node.seq))
        op = Op(name, (), {}, "", -node.seq, prim=node, backward=name)
        tokens = [o.back(op, ct) for o in self.observers]
        self._creating += create
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
            self._creating -= create


def _node_of(out: Any) -> Node | None:
    if type(out) is Tensor:
        return out._node
    if type(out) is Value:
        return out.node
    if isinstance(out, tuple | list) and out:
        return _node_of(out[0])
    return None


_OURS = Watch.run.__code__, Watch._timed.__code__


def _place(node: Any) -> None:
    """Operations note the line that called them; here that was not the user's."""
    where = getattr(node, "where", None)
    if where is not None and where[0] in _OURS:
        node.where = caller()


def _place_change(args: tuple) -> None:
    storage = args[0]._storage if args and type(args[0]) is Tensor else None
    if storage is not None and storage.changed and storage.changed[1]:
        by, where = storage.changed
        if where[0] in _OURS:
            storage.changed = by, caller()


@contextmanager
def watched(observer: Observer) -> Iterator[None]:
    """Tell ``observer`` what this thread does in this block, besides those told already."""
    before = state.watch
    state.watch = Watch((*(before.observers if before else ()), observer))
    try:
        yield
    finally:
        state.watch = before
