"""Kernels as source: their text, their names, and errors that say which line and why."""

from __future__ import annotations

import dis
import os
import random
import re
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numba
import numpy as np
from numba.core import ir
from numba.core import types as numba_types
from numba.core.compiler_machinery import FunctionPass
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError
from numba.core.ir_utils import mk_unique_var

from functrans._transforms.staging.names import codes_inside
from functrans.errors import PACKAGE, UnsupportedError, user_frames

# ---- What names in a kernel stood for when numba compiled it, which it does not look up again

# Kernels that are being compiled, the innermost last; numba compiles one at a time.
compiling: list[Dispatcher] = []


def names_of(kernel: Dispatcher) -> dict[str, Any]:
    """Globals and closed-over variables as the newest version for floats has them.

    Of versions that were read from disk numba keeps none, and names stand for what they do now.
    """
    for kinds, compiled in reversed(kernel.overloads.items()):
        if any(map(_has_floats, kinds)) and compiled.type_annotation is not None:
            return dict(_read_in(compiled.type_annotation))
    return {}


def snapshot(x: Any) -> Any:
    """``x``; of an array that may change what is in it now, which is what numba compiles."""
    if type(x) is not np.ndarray or not x.flags.writeable:
        return x
    x = x.copy()
    x.setflags(write=False)
    return x


def versions(kernel: Dispatcher) -> int:
    """How many versions of a kernel there are: it grows when names were read anew."""
    return len(kernel.overloads)


def _has_floats(kind: Any) -> bool:
    parts: Any = kind if isinstance(kind, numba_types.BaseTuple) else ()
    if any(map(_has_floats, parts)):
        return True
    kind = getattr(kind, "dtype", kind)
    return isinstance(kind, numba_types.Float | numba_types.Complex)


def _read_in(text: Any) -> Iterator[tuple[str, Any]]:
    for block in getattr(text, "blocks", {}).values():
        for s in block.body:
            if isinstance(s, ir.Assign) and isinstance(s.value, ir.Global | ir.FreeVar):
                yield s.value.name, s.value.value


# ---- A kernel's text as numba has it before types are inferred: how passes read and change it


class Pass(FunctionPass):
    """What passes of ours have in common: numba's cannot be made as it is."""

    def __init__(self) -> None:
        super().__init__()


def is_expr(e: Any, *ops: str) -> bool:
    """Whether it is one of these operations."""
    return isinstance(e, ir.Expr) and e.op in ops


def called(block: Any, loc: Any, f: Any, *operands: Any) -> Iterator[Any]:
    """The statements that call ``f``; what they return is the variable of the result."""

    def variable() -> ir.Var:
        return ir.Var(block.scope, mk_unique_var("$functrans"), loc)

    function, result, args = variable(), variable(), list[Any]()
    yield ir.Assign(ir.Global("functrans_call", f, loc), function, loc)
    for x in operands:
        args.append(x if isinstance(x, ir.Var) else variable())
        if not isinstance(x, ir.Var):
            yield ir.Assign(ir.Const(x, loc), args[-1], loc)
    yield ir.Assign(ir.Expr.call(function, args, (), loc), result, loc)
    return result


def passed_through(block: Any, s: Any, f: Any) -> Iterator[Any]:
    """The statements after an assignment that make its target what ``f`` makes of the value."""
    target = s.target
    s.target = ir.Var(block.scope, mk_unique_var("$functrans"), s.loc)
    result = yield from called(block, s.loc, f, s.target)
    yield ir.Assign(result, target, s.loc)


# ---- Errors of kernels that cannot be differentiated: which line, why, and what to do

NUMBA = os.path.dirname(numba.__file__) + os.sep
COMPILER = os.path.join(NUMBA, "core") + os.sep
# What its compiler raises where it takes numbers that carry derivatives for what they are not.
INTERNAL = AssertionError, RecursionError, NotImplementedError, TypeError, ValueError, LookupError


def explained(kernel: Dispatcher, compiled: Callable, args: Sequence) -> Any:
    """``compiled(*args)``; where it cannot be compiled, an error about the kernel's line."""
    try:
        return compiled(*args)
    except NumbaError as error:
        text = str(error)
    except INTERNAL as error:
        if not _is_of_compiling(error):
            raise  # the kernel's own
        text = str(error) or type(error).__name__
    raise UnsupportedError(
        f"{line_of_call()}: the kernel `{kernel.__name__}` cannot be differentiated: "
        f"{_reason(text)} ({_line(kernel, text)})"
    )


def _is_of_compiling(error: BaseException) -> bool:
    """Whether numba was at work, which does not raise its own errors only.

    What NumPy's functions in a kernel raise has lines of numba's too, but not its compiler's.
    """
    return any(f.f_code.co_filename.startswith(COMPILER)
               for f, _ in traceback.walk_tb(error.__traceback__))


def line_of_call() -> str:
    """``file:line`` of the user's code that called a kernel."""
    for frame in user_frames():
        path = frame.f_code.co_filename
        if not path.startswith(NUMBA):
            return f"{path}:{frame.f_lineno}"
    return "<unknown line>"


def require_pure(f: Callable) -> None:
    """Raise where a kernel leaves compiled code, or draws random numbers."""
    for code in _codes(f.__code__):
        line, last = code.co_firstlineno, None
        for instruction in dis.get_instructions(code):
            line = (instruction.positions and instruction.positions.lineno) or line
            name = instruction.argval
            named = f.__globals__.get(name) if isinstance(name, str) else None
            if reason := _impurity(named, name, last):
                raise UnsupportedError(
                    f"{line_of_call()}: the kernel `{f.__name__}` cannot be differentiated: "
                    f"{reason} ({code.co_filename}:{line})"
                )
            last = named


def _impurity(x: Any, name: Any, module: Any) -> str:
    """What is wrong with an object that a kernel names, or an attribute of a module."""
    if isinstance(module, types.ModuleType):
        x = getattr(module, name, None) if isinstance(name, str) else None
    if x is numba.objmode:
        return "it runs Python's code in objmode, where derivatives are lost"
    generator = isinstance(getattr(x, "__self__", None), random.Random | np.random.RandomState)
    if x is np.random or x is random or generator:
        return (
            "it draws random numbers, others in the run for its derivative; draw them before and "
            "pass them as arguments"
        )
    return ""


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for c in codes_inside(code):
        yield from _codes(c)


def _line(kernel: Dispatcher, text: str) -> str:
    """The innermost line of the user's in one of numba's messages."""
    for path, line in re.findall(r'File "([^"]+)", line (\d+)', text):
        path = os.path.abspath(path)
        if not path.startswith((PACKAGE, NUMBA)):
            return f"{path}:{line}"
    code = kernel.py_func.__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def _reason(text: str) -> str:
    if re.search(r"[Cc]annot modify read-?only|is read-?only", text):
        return (
            "it writes into an argument, which is a copy while it is traced. Name that argument, "
            "functrans.numba.differentiable(kernel, outs=...), and what is written is returned"
        )
    if "cannot be represented as a NumPy dtype" in text:
        return "a function of NumPy's is called in a form that has no derivative in kernels"
    called = re.search(r"No implementation of function Function\((.*?)\) found for signature:\s*"
                       r"(>>> .*?)\n", text, re.DOTALL)
    if called and called[1].endswith("setitem>"):
        return (
            "it stores a number that carries a derivative in an array of plain ones. Make that "
            "array in the kernel, by np.zeros or np.empty of floats"
        )
    if called:
        return f"{_name(called[1])} has no derivative in kernels for {called[2][4:].strip()}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((s for s in lines if not s.startswith("Failed in ")), "it does not compile")


def _name(described: str) -> str:
    found = re.match(r"<(?:built-in function|ufunc|function|class) '?([\w.]+)", described)
    return f"`{found[1] if found else described}`"
