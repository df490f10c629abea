"""NaN in derivatives, traced back to the op, the line and the operand that it came from."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._core.bind import Tracer
from functrans._transforms.forward.jet import JetTracer
from functrans._transforms.forward.jvp import JVPTracer
from functrans._transforms.watching.watched import Observer, Op, value_of
from functrans.errors import AnomalyError, user_frames


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
