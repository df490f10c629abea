"""Traces that report what they do: what the profiler, anomaly mode and the doctor are built on.

While a ``Watch`` is set in a context, every trace that starts there is of a subclass made here; a
trace that is not watched runs the code it always runs. Observers are told of

    begin(op), end(token, out)          an op on traced values; op is an ``Op``
    back(op, ct), passed(token, parts)  its entry on a tape, as the backward passes it: the
                                        cotangent that arrives and those that leave, a pair
                                        (slot, cotangent) each
    failed(token, failure)              instead of ``passed``
    pushed(op, ts, before)              its entry, as a walk forward passes it: the tangents of its
                                        results, and those of its operands
    decided(x, use)                     Python has taken the number in a traced value
    enter(name), leave(token)           a transform, or a walk backward

``begin``, ``back`` and ``enter`` return a token, which the other one of the pair gets back.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident
from time import perf_counter_ns
from typing import Any, TypeVar

import numpy as np

from functrans._core.bind import AnyArray, Outputs, Trace, Tracer, watching
from functrans._core.primitive import Primitive
from functrans._transforms.reverse.vjp import VJPTrace
from functrans._transforms.reverse.walk import advance, walk

T = TypeVar("T")


@dataclass(slots=True)
class Op:
    """One op: its name, what it was called on, and the number of its entry on a tape."""

    name: str
    args: tuple
    params: dict
    label: str  # of the transform
    sequence: int | None = None
    slots: tuple = ()  # on the tape, of its operands
    prim: Any = None
    backward: str = ""  # what its entry is called, if not after it
    entries: tuple = ()  # on the tape
    entry: Any = None  # the one that is passed


class Observer:
    """Is told what traces do; each method is optional."""

    # whether a NaN in a derivative is an error
    refuses_nan = False
    # where it only wants times: the list to which (name, start, end, thread, kind, number) is added
    quick: Any = None

    def begin(self, op: Op) -> Any:
        return op

    def end(self, token: Any, out: Any) -> None:
        pass

    def back(self, op: Op, ct: Any) -> Any:
        return op

    def passed(self, token: Any, parts: Sequence) -> None:
        pass

    def failed(self, token: Any, failure: BaseException) -> None:
        pass

    def pushed(self, op: Op, ts: Sequence, before: Sequence) -> None:
        pass

    def on_concretize(self, x: Any, use: str) -> None:
        pass

    def enter(self, name: str) -> Any:
        return None

    def leave(self, token: Any) -> None:
        pass


# Numbers of entries, in the order in which they were recorded, by all watches; from here on, since
# other recorders of events count from 0.
sequence = itertools.count(1 << 32)


class Observers:
    """Observers that are told together. ``quick`` is the list of a lone one that wants times."""

    def __init__(self, observers: tuple):
        self.observers: tuple[Observer, ...] = observers
        self.quick: Any = observers[0].quick if len(observers) == 1 else None

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Tell of a transform, or a walk backward, which this block is."""
        tokens = [o.enter(name) for o in self.observers]
        try:
            yield
        finally:
            for o, token in zip(self.observers, tokens, strict=True):
                o.leave(token)


class Watch(Observers):
    """Observers of the traces that start in a context."""

    def trace(self, cls: type[T]) -> T:
        """A new trace of the watched subclass of ``cls``, not yet initialised."""
        trace = object.__new__(watched_class(cls))
        trace.watch = self
        return trace


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Tell ``observer`` of the traces that start in this block, besides those told already."""
    before = watching.get()
    outer = () if before is None else before.observers
    token = watching.set(Watch((*outer, observer)))
    try:
        yield
    finally:
        watching.reset(token)


@functools.cache
def watched_class(cls: type) -> type:
    """The subclass of ``cls`` whose traces report."""
    mixin = WatchedTape if issubclass(cls, VJPTrace) else Watched
    slots = ("_tokens", "ops", "watch") if mixin is WatchedTape else ("_tokens", "watch")
    return type(f"Watched{cls.__name__}", (mixin, cls), {"__slots__": slots})


class Watched:
    """Reports the ops of any trace."""

    __slots__ = ()

    watch: Watch
    _tokens: list
    fun: str

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._tokens = [o.enter(self.fun) for o in self.watch.observers]

    @property
    def closed(self) -> bool:
        return _closed.__get__(self)

    @closed.setter
    def closed(self, value: bool) -> None:
        if value:
            for o, token in zip(self.watch.observers, getattr(self, "_tokens", ()), strict=False):
                o.leave(token)
            self._tokens = []
        _closed.__set__(self, value)

    def binary(self, prim: Primitive, x1: Any, x2: Any) -> AnyArray:
        if self.watch.quick is not None:
            return self._time(super().binary, prim, prim, x1, x2)  # type: ignore[misc]  # Trace's
        return self._run(super().binary, prim, (x1, x2), {}, (prim, x1, x2))  # type: ignore[misc]  # Trace's

    def unary(self, prim: Primitive, x: Any) -> AnyArray:
        if self.watch.quick is not None:
            return self._time(super().unary, prim, prim, x)  # type: ignore[misc]  # Trace's
        return self._run(super().unary, prim, (x,), {}, (prim, x))  # type: ignore[misc]  # Trace's

    def process(self, prim: Primitive, args: tuple, params: dict) -> Outputs:
        if self.watch.quick is not None:
            return self._time(super().process, prim, prim, args, params)  # type: ignore[misc]  # Trace's
        return self._run(super().process, prim, args, params, (prim, args, params))  # type: ignore[misc]  # Trace's

    def process_fused(self, rule: Any, x: Any, params: dict) -> Any:
        return None  # each op is reported

    def call(self, call: Any, args: tuple) -> tuple:
        if self.watch.quick is not None:
            return self._time(super().call, call, call, args)  # type: ignore[misc]  # Trace's
        return self._run(super().call, call, args, {}, (call, args))  # type: ignore[misc]  # Trace's

    def on_concretize(self, x: Tracer, use: str) -> None:
        for o in self.watch.observers:
            o.on_concretize(x, use)

    def _time(self, run: Callable, prim: Any, *operands: Any) -> Any:
        """``_run`` where only times are written down."""
        quick, first = self.watch.quick, self._start()
        before, number, name = len(quick), None, prim.name
        start = perf_counter_ns()
        try:
            out = run(*operands)
            number = self._numbered(name, first)
            return out
        finally:
            end = perf_counter_ns()
            if len(quick) == before or not done_inside(quick, before, name):
                quick.append((name, start, end, get_ident(), "forward", number))

    def _run(self, run: Callable, prim: Any, args: tuple, params: dict, operands: tuple) -> Any:
        op = Op(prim.name, args, params, self.fun, prim=prim)
        observers = self.watch.observers
        tokens = [o.begin(op) for o in observers]
        out, start = None, self._start()
        try:
            out = run(*operands)
            self._entered(op, start)
            return out
        finally:
            for o, token in zip(observers, tokens, strict=True):
                o.end(token, out)

    def _start(self) -> int:
        return 0

    def _numbered(self, name: str, start: int) -> int | None:
        """The number of the tape entry that an op has added."""

    def _entered(self, op: Op, start: int) -> None:
        """Note which entries of a tape, from ``start`` on, an op has added."""


def done_inside(records: list, before: int, name: str) -> bool:
    """Whether an older trace was handed the op and has written it down: it counts once."""
    return any([r[0] == name for r in records[before:]])


_closed = Trace.__dict__["closed"]


class WatchedTape(Watched):
    """Reports the walk backward as well."""

    __slots__ = ()

    ops: dict[int, Any]  # entry -> Op, or what is written down of it where only times are
    tape: list

    def __init__(self, *args: Any, **kwargs: Any):
        self.ops = {}
        super().__init__(*args, **kwargs)

    def _start(self) -> int:
        return len(self.tape)

    def _entered(self, op: Op, start: int) -> None:
        new = [k for k in range(start, len(self.tape)) if k not in self.ops]
        if not new:
            return  # none was made, or by an op inside this one
        op.sequence = next(sequence)
        op.slots = tuple(self.operands(op.args)[1])  # type: ignore[attr-defined]  # VJPTrace's
        op.entries = tuple([self.tape[k] for k in new])
        self.ops.update(dict.fromkeys(new, op))

    def _numbered(self, name: str, start: int) -> int | None:
        if len(self.tape) == start or start in self.ops:
            return None
        number = next(sequence)
        self.ops[start] = name, number
        return number

    def walk(self, seeds: dict, wanted: Sequence[int], consume: bool, staged: bool) -> list:
        quick = self.watch.quick
        cts = list(map(seeds.get, range(len(self.tape))))
        with self.watch.scope(f"backward of {self.fun}"):
            if quick is not None:
                self._walk_timed(cts, consume, quick)
                return [cts[k] for k in wanted]
            for k in range(len(self.tape) - 1, -1, -1):
                node = self.tape[k]
                if node is not None and k < len(cts):
                    self._pass(cts, k, node, consume)
        return [cts[k] for k in wanted]

    def advance(self, ts: list, start: int = 0) -> None:
        if self.watch.quick is not None:
            return super().advance(ts, start)  # type: ignore[misc]  # VJPTrace's
        for k in range(start, len(self.tape)):
            node = self.tape[k]
            advance(self.tape, ts, k, k + 1)
            if node is None:
                continue
            op = self.ops.get(k) or Op(type(node).__name__, (), {}, self.fun)
            before = [ts[p] for p in _parents(node)]
            op.entry = node
            for o in self.watch.observers:
                o.pushed(op, ts[k : k + _outputs(op, node)], before)

    def _walk_timed(self, cts: list, consume: bool, quick: list) -> None:
        tape, ops, thread = self.tape, self.ops, get_ident()
        for k in range(len(tape) - 1, -1, -1):
            node = tape[k]
            if node is None or (type(node) is tuple and cts[k] is None):
                if consume:
                    tape[k] = None
                continue
            start = perf_counter_ns()
            walk(self.tape, cts, consume, k, k + 1)
            end = perf_counter_ns()
            name, number = ops.get(k) or (type(node).__name__, None)
            quick.append((f"{name} backward", start, end, thread, "backward", number))

    def _pass(self, cts: list, k: int, node: Any, consume: bool) -> None:
        """One entry: what it adds to its operands' cotangents is kept apart from what is there."""
        op = self.ops.get(k) or Op(type(node).__name__, (), {}, self.fun)
        if type(node) is tuple and cts[k] is None:
            if consume:
                self.tape[k] = None
            return
        slots = _parents(node)
        observers, op.entry = self.watch.observers, node
        n = _outputs(op, node)
        tokens = [o.back(op, cts[k] if n == 1 else tuple(cts[k : k + n])) for o in observers]
        before = {p: cts[p] for p in slots}
        for p in before:
            cts[p] = None
        try:
            walk(self.tape, cts, consume, k, k + 1)
        except BaseException as failure:
            for o, token in zip(observers, tokens, strict=True):
                o.failed(token, failure)
            raise
        parts = [(p, cts[p]) for p in before]
        for p, old in before.items():
            if old is not None:
                cts[p] = old if cts[p] is None else old + cts[p]
        for o, token in zip(observers, tokens, strict=True):
            o.passed(token, parts)


def _parents(node: Any) -> list[int]:
    """The slots of an entry's operands."""
    if type(node) is tuple:
        return [edge[0] for edge in node]
    return [p for p in getattr(node, "parents", ()) if p is not None]


def _outputs(op: Op, node: Any) -> int:
    return 1 if type(node) is tuple else getattr(op.prim, "outputs", 1)


def refuses_nan() -> bool:
    """Whether a NaN in a derivative is an error in this context."""
    watch = watching.get()
    return watch is not None and any([o.refuses_nan for o in watch.observers])


def shapes_of(args: Sequence) -> list:
    """The shape of each operand, [] for those that have none."""
    return [list(getattr(x, "shape", ())) for x in args]


def value_of(x: Any) -> Any:
    """The plain value inside a traced one, of a batch all of it; None where there is none."""
    while isinstance(x, Tracer):
        x = getattr(x, "primal", getattr(x, "value", x.inner))
    return x if isinstance(x, np.ndarray | np.generic | float | int | complex) else None
