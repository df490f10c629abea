"""Errors of kernels that cannot be differentiated: which line, why, and what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError

from functrans.errors import PACKAGE, UnsupportedError, user_line


def explained(kernel: Dispatcher, compiled: Callable, args: Sequence) -> Any:
    """``compiled(*args)``; where it cannot be compiled, an error about the kernel's line."""
    try:
        return compiled(*args)
    except NumbaError as error:
        text = str(error)
    raise UnsupportedError(
        f"{user_line()}: the kernel `{kernel.__name__}` cannot be differentiated: "
        f"{_reason(text)} ({_line(kernel, text)})"
    )


def _line(kernel: Dispatcher, text: str) -> str:
    """The innermost line of the user's in one of numba's messages."""
    for path, line in re.findall(r'File "([^"]+)", line (\d+)', text):
        path = os.path.abspath(path)
        if not path.startswith(PACKAGE) and f"{os.sep}numba{os.sep}" not in path:
            return f"{path}:{line}"
    code = kernel.py_func.__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def _reason(text: str) -> str:
    if "readonly array" in text or "read-only" in text:
        return (
            "it writes into an argument, which is a copy while it is traced. Name that argument, "
            "functrans.numba.differentiable(kernel, outs=...), and what is written is returned"
        )
    called = re.search(r"No implementation of function Function\((.*?)\) found for signature:\s*"
                       r"(>>> .*?)\n", text, re.DOTALL)
    if called:
        return f"{_name(called[1])} has no derivative in kernels for {called[2][4:].strip()}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((s for s in lines if not s.startswith("Failed in ")), "it does not compile")


def _name(described: str) -> str:
    found = re.match(r"<(?:built-in function|ufunc|function|class) '?([\w.]+)", described)
    return f"`{found[1] if found else described}`"


__all__ = ["explained"]
