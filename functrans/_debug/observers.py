"""What is seen of a running function: NaN traced back, lost digits, printed and tapped values."""

from __future__ import annotations

import functools
import linecache
import math
import traceback
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from functrans._core.array import Aval, aval_of, inexact_dtype
from functrans._core.bind import Tracer, cast, layers
from functrans._core.primitive import Primitive
from functrans._ops.declare import Elementwise, General
from functrans._transforms.arguments import describe, hand_out_tree, is_number
from functrans._transforms.forward.jet import JetTracer
from functrans._transforms.forward.jvp import JVPTracer
from functrans._transforms.rounding.bounds import U
from functrans._transforms.rounding.certify import Step
from functrans._transforms.vmap import BatchTracer
from functrans._transforms.watching.watched import Observer, Op, value_of
from functrans.errors import AnomalyError, ArgumentError, UnsupportedError, user_frames, user_line

# ---- NaN in derivatives, traced back to the op, the line and the operand that it came from


def user_stack() -> traceback.StackSummary:
    """The user's frames, the outermost first."""
    frames = [(frame, frame.f_lineno) for frame in user_frames()]
    return traceback.StackSummary.extract(iter(frames[::-1]), lookup_lines=False)


def line_of(stack: Sequence[traceback.FrameSummary]) -> str:
    """``file:line`` of the innermost frame."""
    return f"{stack[-1].filename}:{stack[-1].lineno}" if stack else "an unknown line"


def is_nan(x: Any) -> bool:
    """Whether there is a NaN among the numbers of ``x``."""
    v = value_of(x)
    if v is None:
        return False
    v = np.asarray(v)
    return v.dtype.kind in "fcV" and bool(np.isnan(v).any())


def at_nan(c: Any) -> tuple[int, ...]:
    """The index of the first NaN."""
    return tuple(int(i) for i in np.argwhere(np.isnan(np.asarray(value_of(c))))[0])


def entry(index: tuple) -> str:
    """``index`` as it is written in Python."""
    return f"[{', '.join(map(str, index))}]"


def number_at(x: Any, index: tuple) -> str | None:
    """The number of ``x`` that is broadcast to entry ``index``; None if that is not clear."""
    v = value_of(x)
    if v is None or isinstance(x, tuple):
        return None
    v = np.asarray(v)
    if v.ndim > len(index):
        return None
    index = index[len(index) - v.ndim :]
    if any(i >= n > 1 for i, n in zip(index, v.shape, strict=True)):
        return None
    return f"{v[tuple([0 if n == 1 else i for i, n in zip(index, v.shape, strict=True)])]:.6g}"


def _changes(x: Any) -> list[tuple[int, Any]]:
    """The tangent of a value, by 0; the coefficients of a series, by their order."""
    if type(x) is JVPTracer:
        return [(0, x.tangent)]
    return list(enumerate(x.series.known))[1:] if type(x) is JetTracer else []


def _is_beside(x: Any, y: Any) -> bool:
    """Whether two values are of the same transform."""
    return isinstance(x, Tracer) and x.owner is y.owner


class Anomaly(Observer):
    """Raises where a derivative first becomes NaN."""

    word = "operand"

    def __init__(self, check_nan: bool = True):
        self.check_nan = self.refuses_nan = check_nan
        self.stacks: dict[int, traceback.StackSummary] = {}
        self.first = ""  # where a value first became NaN

    def end(self, token: Op, out: Any) -> None:
        if token.sequence is not None:
            self.stacks[token.sequence] = user_stack()
        if self.check_nan:
            self._note_value(token, out)
            self._check_tangent(token, out)

    def _note_value(self, op: Op, out: Any) -> None:
        outs = out if isinstance(out, tuple | list) else (out,)
        if not self.first and any(map(is_nan, outs)) and not any(map(is_nan, op.args)):
            self.first = f"`{op.name}` at {line_of(user_stack())}"

    def _check_tangent(self, op: Op, out: Any) -> None:
        """Raise if a tangent of the result is NaN and no tangent of the operands is; so too of
        coefficients of series."""
        outs = out if isinstance(out, tuple | list) else (out,)
        for y in outs:
            for k, t in _changes(y):
                if is_nan(t) and not any([is_nan(s) for x in op.args if _is_beside(x, y)
                                          for _, s in _changes(x)]):
                    what = f"coefficient {k} of its result" if k else "tangent of its result"
                    self._raise(op, what, at_nan(t), user_stack(), None)

    def pushed(self, op: Op, ts: Sequence, before: Sequence) -> None:
        for t in ts if self.check_nan else ():
            if is_nan(t) and not any(map(is_nan, before)):
                stack = self.stacks.get(op.sequence or -1, [])
                self._raise(op, "tangent of its result", at_nan(t), stack, None)

    def passed(self, token: Op, parts: Sequence) -> None:
        if not self.check_nan:
            return
        for slot, c in parts:
            if is_nan(c):
                k = token.slots.index(slot) if slot in token.slots else 0
                stack = self.stacks.get(token.sequence or -1, [])
                self._raise(token, f"cotangent of operand {k}", at_nan(c), stack, self._arrived)

    def back(self, op: Op, ct: Any) -> Op:
        self._arrived = ct
        return op

    def _raise(self, op: Op, what: str, index: tuple, stack: Sequence, ct: Any) -> None:
        lines = "".join(traceback.format_list(list(stack)))
        raise AnomalyError(
            f"{op.label}: the derivative of `{op.name}` is NaN, in the {what}{self.at(index)}; "
            f"{self.cause(op.args, ct, index)}. It ran at {line_of(stack)}:\n{lines}".rstrip()
        )

    @staticmethod
    def at(index: tuple) -> str:
        return f", entry {entry(index)}" if index else ""

    def cause(self, args: Sequence, ct: Any, index: tuple) -> str:
        """The numbers that met there, and where a value was NaN before."""
        causes = []
        for k, x in enumerate(args):
            number = number_at(x, index) if isinstance(x, Tracer | np.ndarray | float) else None
            if number is not None:
                causes.append(f"{self.word} {k} is {number}")
        arrived = None if ct is None else number_at(ct, index)
        if arrived is not None:
            causes.append(f"the cotangent that arrived {arrived}")
        if self.first:
            causes.append(f"a value first became NaN in {self.first}")
        return ", ".join(causes) or "its values are not known"


# ---- Which lines of a function lose digits: errors of operands and results, op by op


class Loss(NamedTuple):
    """An op on a line: relative errors of what it reads and computes, in its worst entry."""

    line: str
    op: str
    entry: tuple[int, ...]
    before: float
    after: float

    @property
    def digits(self) -> float:
        """Decimal digits that the result has less than the operands."""
        return math.log10(self.after / self.before)

    @property
    def source(self) -> str:
        """The text of the line, if there is a file."""
        name, _, number = self.line.rpartition(":")
        return linecache.getline(name, int(number)).strip() if number.isdigit() else ""


class Conditioning:
    """What ``conditioning`` returns: the ``losses``, the largest first, and ``error``, the bound on
    the relative error of the value; printed, a short table."""

    def __init__(self, name: str, losses: Sequence[Loss], error: float):
        self.name = name
        self.losses = sorted(losses, key=lambda loss: -loss.digits)
        self.error = error

    def __repr__(self) -> str:
        left = f"{max(0.0, -math.log10(self.error)):.1f}" if self.error else "all"
        lines = [f"conditioning of {self.name}: {left} digits of the value are right"]
        for loss in self.losses[:10]:
            place = f", entry {list(loss.entry)}" if loss.entry else ""
            lines.append(
                f"  {loss.digits:4.1f} digits lost by `{loss.op}` at {loss.line}{place}: relative "
                f"error {loss.before:.1e} -> {loss.after:.1e}"
            )
            if loss.source:
                lines.append(f"       {loss.source}")
        if len(self.losses) > 10:
            lines.append(f"  and {len(self.losses) - 10} more in .losses")
        return "\n".join(lines)


class Losses:
    """Told of each step of a run, keeps the worst of each op on each line."""

    def __init__(self) -> None:
        self.worst: dict[tuple[str, Primitive], Loss] = {}

    def __call__(self, step: Step) -> None:
        if step.y.dtype.kind != "f" or not step.y.size:
            return
        if any(map(np.iscomplexobj, step.xs)):  # whose parts are small beside each other
            return
        after = relative(step.passed_on + step.rounding, step.y)
        before = self._before(step)
        ratio = np.where(after > before, after / before, 1.0)
        entry = np.unravel_index(np.argmax(ratio), step.y.shape)
        worst = Loss(step.line, step.prim.name, tuple(map(int, entry)),
                     float(before[entry]), float(after[entry]))
        known = self.worst.get((step.line, step.prim))
        # the half a digit that roundings of one op may cost is no loss
        if worst.after > 4 * worst.before and (known is None or worst.digits > known.digits):
            self.worst[step.line, step.prim] = worst

    def _before(self, step: Step) -> np.ndarray:
        """The largest relative error of the operands, at least one rounding, for each entry."""
        if isinstance(step.prim, Elementwise):
            parts = [relative(e, x) for x, e in zip(step.xs, step.es, strict=True)]
        else:
            parts = [np.max(relative(e, x), initial=0.0)
                     for x, e in zip(step.xs, step.es, strict=True)]
        before = np.full(step.y.shape, 2 * U)
        for part in parts:
            before = np.maximum(before, part)
        return np.where(np.isfinite(before), before, 1.0)


def relative(e: Any, x: Any) -> np.ndarray:
    """``e`` relative to ``x``, at most 1: then no digit is known."""
    with np.errstate(all="ignore"):
        r = np.asarray(e / np.abs(x))
    return np.minimum(np.where(np.asarray(e) == 0, 0.0, np.where(np.isnan(r), 1.0, r)), 1.0)


# ---- Values printed while a function runs, compiled or not: an op that gives its operand back

_print = print


def print(text: str, x: Any) -> Any:
    """``x`` itself, printed whenever a run computes it: ``text.format(x)``.

    Python's own ``print`` shows what is traced, and under ``jit`` only while a path is staged. This
    one shows numbers at each call, under ``vmap`` for each entry of the batch. It is part of the
    computation: use what it returns, since what nobody uses is not computed. Derivatives pass
    through it unseen. ``jit`` prints nothing while it compiles; only a call that adds a path to
    those compiled may print again what came before it. ``export`` refuses it.

    Returns ``x``. Raises ArgumentError where ``x`` is no number or array.

    >>> import functrans as ft, numpy as np
    >>> def f(x):
    ...     h = ft.debug.print("h = {}", x * 2)
    ...     return np.sum(h**2)
    >>> ft.grad(f)(np.array([1.0, 2.0]))
    h = [2. 4.]
    Array([ 8., 16.])
    """
    if not isinstance(text, str) or not is_number(x):
        raise ArgumentError(
            f"{user_line()}: debug.print takes a text and a number or array, as in "
            f"debug.print('x = {{}}', x), but got {describe(text)} and {describe(x)}"
        )
    if isinstance(x, Tracer):
        return _row(text)(x)
    _print(text.format(x))
    return x


@functools.lru_cache(1024)
def _row(text: str) -> General:
    def shown(x: Any) -> Any:
        _print(text.format(np.asarray(x)))
        return x

    def abstract(x: Aval) -> Aval:
        return x

    return General(
        "print", shown, jvp=lambda ts, y, xs: ts[0],
        vjp=lambda ct, y, xs, wanted: [cast(ct, xs[0].dtype)], batch=None, saves="",
        abstract=abstract, doc="A value that is printed.", example=lambda x: x,
        prints=True,
    )


# ---- The gradients of intermediate values, by names that the function gives them

# What is done with a tapped value in this context; nothing where no one asks.
_listening: ContextVar[Callable[[str, Any], Any] | None] = ContextVar("taps", default=None)


def tap(name: str, x: Any) -> Any:
    """``x`` itself, under a name that ``adjoints`` knows it by.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(lambda x: np.sum(ft.debug.tap("square", x * x)))(np.ones(2))
    Array([2., 2.])
    """
    listener = _listening.get()
    return x if listener is None else listener(name, x)


def taps_of(run: Callable[[], Any]) -> dict[str, list]:
    """Zeros of the shapes of all that a run taps, one for each time."""
    zeros: dict[str, list] = {}

    def note(name: str, x: Any) -> Any:
        _require(name, x)
        aval = aval_of(x)
        # -0.0 added changes no number, 0.0 the sign of -0.0
        zeros.setdefault(name, []).append(np.full(aval.shape, -0.0, aval.dtype))
        return x

    _listen(note, run)
    return zeros


def with_added(changes: dict[str, list], run: Callable[[], Any]) -> Any:
    """What a run gives with a change added to each tapped value."""
    left = {name: iter(xs) for name, xs in changes.items()}
    return _listen(lambda name, x: x + next(left[name]), run)


def _listen(listener: Callable[[str, Any], Any], run: Callable[[], Any]) -> Any:
    token = _listening.set(listener)
    try:
        return run()
    finally:
        _listening.reset(token)


def _require(name: str, x: Any) -> None:
    if not is_number(x) or not inexact_dtype(aval_of(x).dtype):
        raise ArgumentError(
            f"{user_line()}: tap({name!r}, x) needs a floating-point number or array, but x is "
            f"{describe(x)}"
        )
    if any([isinstance(v, BatchTracer) for v in layers(x)]):
        raise UnsupportedError(
            f"{user_line()}: tap({name!r}, x) under vmap stands for many values. Tap outside of "
            "it, what it is given or returns."
        )


def by_name(slopes: dict[str, list]) -> dict[str, Any]:
    """One gradient for a name, a list of them where it was tapped several times."""
    return {name: hand_out_tree(gs[0] if len(gs) == 1 else gs) for name, gs in slopes.items()}
