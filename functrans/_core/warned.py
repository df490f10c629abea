"""NumPy's warnings, at the user's line, and what is told of compiling."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any

import numpy as np

from functrans.config import settings
from functrans.errors import warn

# ---- What is told of compiling where ``config(log="compile")`` asks for it


def tell(text: str, always: bool = False) -> None:
    """Log a line as a warning, which Python shows unless it is told otherwise; ``always``: also
    where ``config(log=...)`` asks for nothing."""
    if always or settings().log is not None:
        import logging  # lazy: few ask for it

        logging.getLogger("functrans").warning("%s", text)


# ---- NumPy's warnings, at the user's line
#
# NumPy warns at the line of Python that calls it, which under a transform is ours. So it logs
# meanwhile what it would warn of, and each entry of the log is dealt with as the caller's
# ``np.errstate`` says.

# The context of the outermost call whose warnings are logged, where ``np.errstate`` is the user's.
_outside: ContextVar[Context | None] = ContextVar("outside", default=None)


class _State:
    """NumPy's state by its public functions, for a version that keeps it elsewhere."""

    name = "state"

    def get(self) -> tuple:
        return np.geterr(), np.geterrcall()

    def set(self, state: tuple) -> None:
        np.seterr(**state[0])
        np.seterrcall(state[1])


# Where NumPy has its state.
STATE: Any = getattr(np._core.umath, "_extobj_contextvar", _State())  # type: ignore[attr-defined]  # not in stubs


# States that an ErrorState keeps: a program has one or two.
MOST = 8


class ErrorState:
    """What ``np.errstate(**how)`` makes of a state, kept: it takes a fifth of the time, 0.2 us."""

    __slots__ = ("how", "made")

    def __init__(self, **how: Any):
        self.how = how
        self.made: dict[int, tuple[Any, Any]] = {}  # by identity: both states

    def within(self, outer: Any) -> Any:
        """The state for a block, where ``outer`` is that around it."""
        known, inner = self.made.get(id(outer), (None, None))
        if known is not outer:
            with np.errstate(**self.how):
                inner = STATE.get()
            if len(self.made) >= MOST:
                self.made.clear()
            self.made[id(outer)] = outer, inner
        return inner


IGNORING = ErrorState(all="ignore")


class ignoring:
    """``with np.errstate(all="ignore")``, in a fifth of its time."""

    __slots__ = ("token",)

    def __enter__(self) -> None:
        self.token = STATE.set(IGNORING.within(STATE.get()))

    def __exit__(self, *error: Any) -> None:
        STATE.reset(self.token)


_KINDS = {"divide by zero": "divide", "overflow": "over", "invalid value": "invalid"}
_FLAGS = {"divide by zero": 1, "overflow": 2, "invalid value": 8}  # as NumPy has them


def _outer(f: Callable) -> Any:
    """What ``f`` returns outside: in a copy, as other threads may share the context."""
    context = _outside.get()
    assert context is not None, f
    return context.copy().run(f)


class _Log:
    """What NumPy tells of errors in floating-point arithmetic: ``np.errstate(call=...)``.

    Underflow, and what the function itself wants to be called for, are the caller's object's.
    """

    def write(self, line: str) -> None:
        text = line.removeprefix("Warning: ").rstrip()
        what = text.partition(" encountered")[0]
        how = _outer(np.geterr)[_KINDS[what]] if what in _KINDS else "log"
        if how == "warn":
            warn(text)
        elif how == "raise":
            raise FloatingPointError(text)
        elif how == "print":
            print(line, end="")
        elif how == "log":
            _outer(np.geterrcall).write(line)
        elif how == "call":
            self(what, _FLAGS[what])

    def __call__(self, what: str, flag: int) -> None:
        _outer(np.geterrcall)(what, flag)


_LOG = _Log()


class _Warned:
    """What NumPy tells of where it would have warned: outside of transforms, in its usual state."""

    def write(self, line: str) -> None:
        warn(line.removeprefix("Warning: ").rstrip())


# NumPy's state as it begins, and one in which it tells what it would warn of.
USUAL = object() if STATE.name == "state" else Context().run(STATE.get)
with np.errstate(divide="log", over="log", invalid="log", call=_Warned()):
    WARNED = STATE.get()
LOGGING = ErrorState(divide="log", over="log", invalid="log", call=_LOG)


def _changes() -> dict[str, Any]:
    """What the function has changed of NumPy's state for good."""
    logged = _outer(np.geterr) | dict.fromkeys(_KINDS.values(), "log")
    changed: dict[str, Any] = {k: v for k, v in np.geterr().items() if v != logged[k]}
    return changed if np.geterrcall() is _LOG else {**changed, "call": np.geterrcall()}


def _change(*, call: Any = _LOG, **how: Any) -> None:
    np.seterr(**how)
    if call is not _LOG:
        np.seterrcall(call)


def _log(f: Callable, args: tuple, kwargs: dict) -> Any:
    """``f`` called; what it has changed of NumPy's state for good is changed behind it too."""
    before, changed = STATE.get(), None
    state = LOGGING.within(before)
    try:
        STATE.set(state)
        try:
            return f(*args, **kwargs)
        finally:
            if STATE.get() is not state:
                changed = _changes()
    finally:
        STATE.set(before)
        if changed:
            _change(**changed)


def at_users_lines(f: Callable, args: tuple, kwargs: dict) -> Any:
    """``f`` called, with NumPy's warnings at the user's lines."""
    if _outside.get() is not None:
        return f(*args, **kwargs)
    try:
        _outside.set(copy_context())
        return _log(f, args, kwargs)
    finally:
        _outside.set(None)


def geterr() -> dict[str, str]:
    """``numpy.geterr``, in a transform too, where NumPy itself logs what it would warn of."""
    now = dict[str, Any](np.geterr())
    if np.geterrcall() is _LOG:
        outer = _outer(np.geterr)
        now |= {k: outer[k] for k in _KINDS.values() if now[k] == "log"}
    return now


def geterrcall() -> Any:
    """``numpy.geterrcall``, in a transform too."""
    call = np.geterrcall()
    return _outer(np.geterrcall) if call is _LOG else call
