"""Functions that write into arrays, as far as the floors below NumPy's names know of them.

While such a function runs under a transform, its arrays are names for values
(``numpy/writable.py``): its arguments, what constructors make, and what is computed from them.
``with_names`` runs it so. Names never leave the function: what takes a value from it takes
``current(x)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, NamedTuple

from functrans._core.bind import Tracer
from functrans.errors import PACKAGE, UnsupportedError, name_of, user_line

# The run of a function that writes into arrays, under a transform, that this context is in.
writing: ContextVar[Run | None] = ContextVar("writing", default=None)

# What blocks of ``functrans.patch`` have put in the place of something, by its id: that.
stood_for: dict[int, Any] = {}


class Run:
    """One run of a function with names for its arrays; no other run may write into them.

    ``apart``: how many blocks of that name it is in.
    """

    __slots__ = ("apart", "fun")

    def __init__(self, fun: str):
        self.fun = fun
        self.apart = 0


def require_own(run: Run | None) -> None:
    """Raise where an array of another run is written to, which has its own trace."""
    now = writing.get()
    if run is not now:
        where = f"`{run.fun}`" if run else "no function"
        inside = "after that"
        if now:
            inside = f"in `{now.fun}`, which runs under a transform of its own"
        raise UnsupportedError(
            f"{user_line()}: an array made in {where} was written to {inside}. Return what is to "
            "be written, or pass the array as an argument and return it."
        )


def current(x: Any) -> Any:
    """The value that a name stands for now; anything else as it is."""
    return x.current() if isinstance(x, Tracer) else x


def with_names(f: Callable, args: tuple, kwargs: dict) -> Any:
    """``f`` called with names for the arrays among its arguments."""
    before = writing.get()
    try:
        writing.set(Run(name_of(f)))
        return f(*map(_name, args), **{k: _name(v) for k, v in kwargs.items()})
    finally:
        writing.set(before)


@contextmanager
def apart() -> Iterator[None]:
    """A block in which names do not keep what is read of them, since it is forgotten at the end.

    A checkpointed function is such a block.
    """
    run = writing.get()
    if run is None:
        yield
        return
    run.apart += 1
    try:
        yield
    finally:
        run.apart -= 1


def handed_to(frame: FrameType | None, y: Any, fixed: bool = True) -> Any:
    """What a transform returns to a function with names: results that stay as they are, or, unless
    ``fixed``, arrays that may be written to. Our own code gets the values.
    """
    return y if frame is None or is_ours(frame) else hand(y, fixed)


def is_ours(frame: FrameType) -> bool:
    """Whether a frame is of our own code."""
    return frame.f_code.co_filename.startswith(PACKAGE)


def hand(y: Any, fixed: bool = False) -> Any:
    """``y`` as a function with names gets it, if one runs."""
    return y if writing.get() is None else _result(y, fixed)


def _name(x: Any) -> Any:
    raise NotImplementedError  # replaced by functrans.numpy, the floor where names of arrays live


def _result(y: Any, fixed: bool) -> Any:
    raise NotImplementedError  # likewise


class Part(NamedTuple):
    """Where the array that a name stands for lies: ``whole`` is the name of all of its memory.

    For each axis of that, ``places`` are the first place, the step and the axis of the part, None
    where the place is one.
    """

    memory: Any
    whole: Any
    places: list[tuple[int, int, int | None]]


def part_of(x: Any) -> Part | None:
    """The part of an array that ``x`` is a name of; None if it is none, NotImplemented if it is no
    part that indices along axes make.
    """
    return _part(x) if isinstance(x, Tracer) else None


def _part(x: Any) -> Part | None:
    raise NotImplementedError  # replaced, as ``_name`` is


def install(named: Callable, result: Callable, part: Callable) -> None:
    """Called once by ``functrans.numpy``: how arguments and results become names, in containers
    or not, and where what they stand for lies.
    """
    global _name, _result, _part
    _name, _result, _part = named, result, part
