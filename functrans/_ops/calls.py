"""Python functions as one op: how traces see a function with rules of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from functrans._core.bind import Trace, newest_trace
from functrans._ops.declare import ANY, constant

# row: the identity to every transform but the differentiating ones, for which it is a constant
stop = constant("stop", lambda x: x, domain=ANY, rounds="never")


class Call:
    """A function of flat operands to a tuple of flat outputs, with its own way through transforms.

    Not in the table: one exists for each run of a decorated function. Dispatched as a primitive,
    by the newest trace among the operands, to that trace's ``call``. What the function closes over
    is not an operand; the methods say how a derivative through it is kept.
    """

    __slots__ = ("fun", "name")

    differentiable = True

    def __init__(self, name: str, fun: Callable[..., tuple]):
        self.name = name
        self.fun = fun

    def __call__(self, *operands: Any) -> tuple:
        trace = newest_trace(operands)
        return self.plain(*operands) if trace is None else trace.call(self, operands)

    def plain(self, *operands: Any) -> tuple:
        """The outputs where no operand is traced."""
        return self.fun(*operands)

    def staged(self, trace: Any, args: tuple) -> tuple:
        """The outputs while a program is written: by default the function is inlined."""
        return self.fun(*args)

    def jvp(self, trace: Any, primals: Sequence, tangents: Sequence) -> tuple[Sequence, Sequence]:
        """Outputs and their tangents, None where absent; both may still be traced by ``trace``."""
        raise NotImplementedError

    def record(self, trace: Any, args: Sequence) -> tuple:
        """The outputs, recorded on the tape of ``trace``."""
        raise NotImplementedError

    def batch(self, trace: Any, xs: Sequence, batched: Sequence[bool]) -> Sequence:
        """The outputs, each with a new axis 0, given that operands with ``batched`` have one.

        One that does not vary may be given as ``Unbatched``.
        """
        raise NotImplementedError

    def taylor(self, trace: Any, args: Sequence) -> tuple:
        """The outputs as power series of ``trace``."""
        raise NotImplementedError


@contextmanager
def reopened(trace: Trace) -> Iterator[None]:
    """Let ``trace`` take ops although it may have ended: a function is run again under it."""
    closed, trace.closed = trace.closed, False
    try:
        yield
    finally:
        trace.closed = closed
