"""NumPy's warnings, at the user's line.

NumPy warns at the line of Python that calls it, which under a transform is ours. So it logs
meanwhile what it would warn of, and each entry of the log is dealt with as the caller's
``np.errstate`` says.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any

import numpy as np

from functrans.errors import warn

# The context of the outermost call whose warnings are logged, where ``np.errstate`` is the user's.
_outside: ContextVar[Context | None] = ContextVar("outside", default=None)
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


@np.errstate(divide="log", over="log", invalid="log", call=_Log())
def _logged(f: Callable, args: tuple, kwargs: dict) -> Any:
    return f(*args, **kwargs)


def at_users_lines(f: Callable, args: tuple, kwargs: dict) -> Any:
    """``f`` called, with NumPy's warnings at the user's lines."""
    if _outside.get() is not None:
        return f(*args, **kwargs)
    token = _outside.set(copy_context())
    try:
        return _logged(f, args, kwargs)
    finally:
        _outside.reset(token)
