"""Rematerialisation: part of the tape is cut out, and recorded again when it is walked."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, ParamSpec, TypeVar

import numpy as np

from functrans import tree
from functrans._core.array import inexact_dtype
from functrans._core.bind import Tracer, is_staged, known_value, newest_trace
from functrans._core.locks import Lock
from functrans._core.plain import space
from functrans._core.writing import apart
from functrans._ops.calls import Call, reopened
from functrans._transforms.arguments import require_callable
from functrans._transforms.control import flow
from functrans._transforms.derived import deriving
from functrans._transforms.forward.jvp import JVPTracer
from functrans._transforms.reverse.nodes import ReverseTrace
from functrans._transforms.reverse.tracer import Captures, VJPTracer
from functrans._transforms.reverse.walk import walk
from functrans._transforms.rules.calls import outside, under
from functrans._transforms.rules.custom import FlatCall
from functrans.errors import CaptureError, LeakedTracerError, UnsupportedError, name_of

P = ParamSpec("P")
R = TypeVar("R")


@deriving
def checkpoint(f: Callable[P, R], *, policy: None = None) -> Callable[P, R]:
    """``f``, of which reverse mode stores only the arguments and runs it again in the backward.

    The derivative is the same; memory falls from all that ``f`` computes to its arguments, time
    grows by one more run of ``f``. Checkpoints nest: a chain of n steps in sqrt(n)
    checkpointed groups keeps O(sqrt(n)) of them. ``f`` may take containers and keywords
    and close over traced values. It must return the same values when it is run again, and hand out
    no traced value but by returning it.

    There are no policies, which say what else is kept: leave ``policy`` out, and checkpoint the
    part of ``f`` that is to be run again.

    Raises CaptureError in the backward pass where ``f`` then returns other values.

    >>> import functrans as ft, numpy as np
    >>> from functrans import checkpoint
    >>> ft.grad(checkpoint(lambda x: np.tanh(np.sin(x))))(0.0)
    Array(1.)
    """
    f = require_callable("checkpoint", f)
    if policy is not None:
        raise UnsupportedError("checkpoint has no policy: it keeps the arguments of what it is "
                               "given. Checkpoint the part whose values are not to be kept.")
    name = f"checkpoint({name_of(f)})"
    call: Callable = f

    @functools.wraps(f, updated=())
    def recomputed(*args: P.args, **kwargs: P.kwargs) -> R:
        return run_again(name, call, args, kwargs)

    recomputed.hands_on = True  # type: ignore[attr-defined]  # results of the user's own
    return recomputed


def run_again(
    name: str, call: Callable, args: tuple, kwargs: dict | None = None,
    hold: Callable[[Any], Any] | None = None,
) -> Any:
    """``call(*args, **kwargs)``, checkpointed; ``hold`` says where its arguments are kept."""
    kwargs = kwargs or {}
    run = FlatCall(name, lambda xs, options: call(*xs, **options), (args, kwargs))
    if newest_trace(run.operands) is None:
        return call(*args, **kwargs)
    if any(map(is_staged, run.operands)):
        outs = flow.once(name, run.flat, run.operands)
    else:
        operands = run.released()
        outs = Recomputed(name, run.fun, hold)(*operands)
    assert run.out is not None
    return tree.unflatten(run.out, outs)


class Recomputed(Call):
    """A call that a tape records as one entry, whatever it does inside.

    ``hold`` gives the array to keep for one that is an argument: the same numbers elsewhere.
    """

    __slots__ = ("hold",)

    def __init__(
        self, name: str, fun: Callable[..., tuple], hold: Callable[[Any], Any] | None = None
    ):
        super().__init__(name, fun)
        self.hold = hold

    def jvp(self, trace, primals, tangents):
        """The dual run of ``fun``, which older tapes recompute too."""
        moving = [t is not None for t in tangents]
        moved: list[bool] = []

        def dual(*flat: Any) -> tuple:
            leaves = iter(flat[len(moving) :])
            with reopened(trace):
                ys = self.fun(
                    *[
                        trace.input(x, next(leaves)) if m else x
                        for x, m in zip(flat, moving, strict=False)
                    ]
                )
            mine = [type(y) is JVPTracer and y.owner is trace for y in ys]
            outside(self.name, trace, [y for y, m in zip(ys, mine, strict=True) if not m])
            moved[:] = mine
            return (*map(trace.lower, ys), *[y.tangent for y, m in zip(ys, mine, strict=True) if m])

        dual_call = Recomputed(self.name, dual, self.hold)
        outs = dual_call(*primals, *[t for t in tangents if t is not None])
        return outs[: len(moved)], space(outs[len(moved) :], moved)

    def batch(self, trace, xs, batched):
        return Recomputed(self.name, under(self.name, trace, self.fun, batched), self.hold)(*xs)

    def taylor(self, trace, args):
        return self.fun(*args)

    def record(self, trace, args):
        start, captures, splits = len(trace.tape), trace.captures, trace.splits
        trace.captures = Captures(self.name, digests := [])  # for what is cut out
        trace.splits = False  # what leaves it continues without: see ``CheckpointNode.recorded``
        try:
            with apart():
                ys = self.fun(*args)
        finally:
            trace.captures, trace.splits = captures, splits
        if any(isinstance(y, Tracer) and y.owner.level > trace.level for y in ys):
            return ys  # closes over a newer transform's value: recorded as if it were not a call
        trace.tape[start:] = [CUT] * (len(trace.tape) - start)
        trace.growing = trace.growing or Lock()
        kept = [x if isinstance(x, Tracer) else trace.capture(x) for x in args]
        slot = trace.enter(CheckpointNode(self, trace, kept, ys, digests), len(ys))
        return tuple(
            VJPTracer(trace, y.primal, slot + i) if type(y) is VJPTracer and y.owner is trace else y
            for i, y in enumerate(ys)
        )


class Cut:
    """The tape entry of a value that was computed under a checkpoint and not kept.

    Nothing outside may depend on it; in a forward walk it stands for its own tangent.
    """

    __slots__ = ()

    parents = ()
    repeats = False

    def pull_into(self, cts: list, k: int, strong: bool) -> None:
        if cts[k] is not None:
            self.refuse()

    def push_into(self, ts: list, k: int) -> None:
        ts[k] = self

    def refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise LeakedTracerError(
            "a value computed under checkpoint was used outside of the checkpointed function "
            "without being returned by it; return it"
        )

    __array_ufunc__ = __array_function__ = __mul__ = __rmul__ = __neg__ = __truediv__ = refuse
    __add__ = __radd__ = astype = sum = refuse


CUT = Cut()


class CheckpointNode:
    """The tape entry of a checkpointed call, which can record again what was cut out."""

    __slots__ = ("args", "call", "digests", "sample", "size", "trace")

    repeats = False

    def __init__(
        self, call: Recomputed, trace: ReverseTrace, args: Sequence, ys: Sequence, digests: list
    ):
        self.call = call
        # weak, and slots for tracers: a tape that holds its own trace is freed late
        self.trace = weakref.ref(trace)
        primals, slots = trace.operands(args)
        if call.hold is not None:
            primals = list(map(call.hold, primals))
        self.args = list(zip(primals, slots, strict=True))
        self.size = len(ys)
        self.sample = [sample(y) for y in ys]
        self.digests = digests

    @property
    def parents(self) -> list:
        return [slot for _, slot in self.args]

    def pull_into(self, cts: list, k: int, strong: bool) -> None:
        own = cts[k : k + self.size]
        if all(c is None for c in own):
            return
        cts[k : k + self.size] = [None] * self.size
        with self.recorded(cts, k, backward=True) as (trace, start, ys):
            while ys:  # checkpoints inside this one are pulled while its frame waits
                y, ct = ys.pop(), own.pop()
                if ct is not None:
                    before = cts[y.slot]
                    cts[y.slot] = ct if before is None else before + ct
                del y, ct
            walk(trace.tape, cts, consume=True, start=start)

    def push_into(self, ts: list, k: int) -> None:
        with self.recorded(ts, k) as (trace, start, ys):
            trace.advance(ts, start)
            tangents = [ts[y.slot] if type(y) is VJPTracer and y.owner is trace else None
                        for y in ys]
        ts[k : k + self.size] = tangents

    @contextmanager
    def recorded(
        self, column: list, k: int, backward: bool = False
    ) -> Iterator[tuple[ReverseTrace, int, list]]:
        """The part that was cut out, at the end of the tape and of ``column``, while it is needed.

        ``backward``: values that coincide are told apart in it, for the way back through it alone.
        """
        trace = self.trace()
        assert trace is not None, self.call.name
        assert trace.growing is not None, self.call.name
        with trace.growing, reopened(trace):
            length, start = len(column), len(trace.tape)
            captures, splits, later = trace.captures, trace.splits, trace.later
            trace.captures, trace.splits = Captures(self.call.name, digests := []), backward
            trace.later = (*later, range(k + self.size, start))
            try:
                ys = self._again(trace)
                self._require_same(ys, digests)
                self._require_earlier(trace, start)
                trace.check_captures()
                if trace.hidden:
                    trace.hand_out(ys)
                column.extend([None] * (len(trace.tape) - length))
                yield trace, start, ys
            finally:
                trace.captures, trace.splits, trace.later = captures, splits, later
                del trace.tape[start:]
                del column[length:]
                column[start:] = [None] * (length - start)

    def _again(self, trace: ReverseTrace) -> list:
        xs = [x if slot is None else VJPTracer(trace, x, slot) for x, slot in self.args]
        try:
            return list(self.call.fun(*xs))
        except BaseException as error:
            error.add_note(f"while {self.call.name} was run again for the backward pass")
            raise

    def _require_same(self, ys, digests):
        if (
            len(ys) != self.size or digests != self.digests
            or not all(map(same, self.sample, map(sample, ys)))
        ):
            raise CaptureError(
                f"{self.call.name} met or returned other values when it was run again for the "
                "backward pass. It must not depend on random numbers, or on arrays that change in "
                "between."
            )

    def _require_earlier(self, trace: ReverseTrace, start: int) -> None:
        """Raise if it now reads a value that was computed later, where no walk comes again."""
        for node in trace.tape[start:]:
            if node is None or node is CUT:
                continue
            parents = [edge[0] for edge in node] if type(node) is tuple else node.parents
            if any([p is not None and p in later for p in parents for later in trace.later]):
                raise CaptureError(
                    f"{self.call.name} read a value from around it, and when it was run again for "
                    "the backward pass another one, computed after its first run, was in its "
                    "place. Pass what is written to or assigned again as an argument."
                )


def sample(y: Any) -> Any:
    """A few numbers of an output, to recognise it by; None if it has no plain value."""
    x = known_value(y)
    if x is None:
        return None
    x = np.asarray(x)  # an output may be a Python number
    flat = x.reshape(-1) if x.ndim < 2 or x.flags.c_contiguous else x[0].reshape(-1)
    return x.shape, x.dtype, flat[:: max(1, flat.size // 16)].copy()


def same(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    if a[:2] != b[:2]:
        return False
    if not inexact_dtype(a[1]):
        return np.array_equal(a[2], b[2])
    near = 1e-4 if a[1].itemsize > 4 else 1e-2
    scale = np.max(np.abs(a[2]), initial=0.0)
    return np.allclose(a[2], b[2], rtol=near, atol=near * float(scale), equal_nan=True)
