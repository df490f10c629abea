"""NumPy's warnings, at the user's line.

NumPy warns at the line of Python that calls it, which under a transform is ours. So it logs
meanwhile what it would warn of, and each entry of the log is dealt with as the caller's
``np.errstate`` says.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from functrans.errors import warn

# Where NumPy has its state; without it, NumPy warns as it does.
_state: ContextVar[Any] | None = getattr(np._core.umath, "_extobj_contextvar", None)  # type: ignore[attr-defined]  # not in stubs
_KINDS = {"divide by zero": "divide", "overflow": "over", "invalid value": "invalid"}
_FLAGS = {"divide by zero": 1, "overflow": 2, "invalid value": 8}  # as NumPy has them
# States for which others are kept.
MANY = 16


class _Log:
    """What NumPy tells of errors in floating-point arithmetic: ``np.errstate(call=...)``.

    Underflow, and what the function itself wants to be called for, are the caller's object's, of
    the state ``outside``.
    """

    def __init__(self, outside: Any):
        self.outside = outside

    def outer(self, f: Callable) -> Any:
        """What ``f`` returns outside."""
        assert _state is not None
        token = _state.set(self.outside)
        try:
            return f()
        finally:
            _state.reset(token)

    def write(self, line: str) -> None:
        text = line.removeprefix("Warning: ").rstrip()
        what = text.partition(" encountered")[0]
        how = self.outer(np.geterr)[_KINDS[what]] if what in _KINDS else "log"
        if how == "warn":
            warn(text)
        elif how == "raise":
            raise FloatingPointError(text)
        elif how == "print":
            print(line, end="")
        elif how == "log":
            self.outer(np.geterrcall).write(line)
        elif how == "call":
            self(what, _FLAGS[what])

    def __call__(self, what: str, flag: int) -> None:
        self.outer(np.geterrcall)(what, flag)


class _Logged(NamedTuple):
    """A state of NumPy's in which errors are logged."""

    state: Any
    log: _Log

    def changes(self) -> dict[str, Any]:
        """What the present state has been changed in."""
        logged = self.log.outer(np.geterr) | dict.fromkeys(_KINDS.values(), "log")
        changed: dict[str, Any] = {k: v for k, v in np.geterr().items() if v != logged[k]}
        call = np.geterrcall()
        return changed if call is self.log else {**changed, "call": call}


def _change(changed: dict[str, Any]) -> None:
    if "call" in changed:
        np.seterrcall(changed.pop("call"))
    np.seterr(**changed)


# That of each state of the user's, by which it is told, and of each of these itself.
_logged: dict[Any, _Logged] = {}


def _logging(outside: Any) -> _Logged:
    if len(_logged) >= MANY:
        _logged.clear()
    log = _Log(outside)
    with np.errstate(divide="log", over="log", invalid="log", call=log):
        state = _state and _state.get()
    logged = _logged[outside] = _logged[state] = _Logged(state, log)
    return logged


def at_users_lines(f: Callable, args: tuple, kwargs: dict) -> Any:
    """``f`` called, with NumPy's warnings at the user's lines.

    What it has changed of NumPy's state for good stays changed.
    """
    if _state is None:
        return f(*args, **kwargs)
    outside = _state.get()
    logged = _logged.get(outside) or _logging(outside)
    state = logged.state
    if state is outside:  # of a transform around this one
        return f(*args, **kwargs)
    token, changed = _state.set(state), {}
    try:
        return f(*args, **kwargs)
    finally:
        if _state.get() is not state:
            changed = logged.changes()
        _state.reset(token)
        if changed:
            _change(changed)
