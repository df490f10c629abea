"""The way from Python into native code: a C function that checks, makes results, and runs.

A call costs more than a small program. CPython calls the function below like one written in C
(METH_FASTCALL): it reads the arguments in place, allocates the results with NumPy's C function, and
runs. It is compiled once; a plan, which is its ``__self__``, says what it does for a program, or
for the tree of programs of a function that decides by values.

It takes arrays of exactly the shapes and dtypes of the program, contiguous and aligned, and Python
floats and ints where the program has them. For anything else, or if the code reports a failure, it
returns NotImplemented, and the caller takes the general way.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._compile.emit.entry_code import (
    ARRAY,
    FLOAT,
    INT,
    MOST,
    OBJECTS,
    OFFSETS,
    PLAN,
    SCALAR,
    WRITEABLE,
    text,
)
from functrans._compile.run.frame import Argument, Coded
from functrans._compile.run.guards import Guards
from functrans._compile.run.machine import local
from functrans._compile.run.plan import Plan, Step
from functrans._core.array import Array
from functrans._kernels.routines import address_of, pointer_of

METH_FASTCALL = 0x0080
# Places in NumPy's table of C functions; fixed by its ABI.
ARRAY_TYPE, NEW_FROM_DESCRIPTOR = 2, 94
ALL = 0xFFFFFFFF  # of an array's flags


@functools.cache
def _function() -> tuple[Any, int]:
    """The compiled function: what must live as long as it is called, and its address."""
    loaded = local().compile_own(text(), ["entry"], "calls of compiled functions")
    return loaded.code, address_of(loaded.functions["entry"])


def entry_of(code: Coded, locked: bool, guards: Guards | None = None) -> Callable | None:
    """The entry of a program, None where it cannot have one.

    Results are read-only Arrays where ``locked``, else ndarrays.
    """
    arguments, clock = code.frame.arguments, np.zeros(2, np.int64)
    leaf = Step(code, range(len(arguments)), (), None, clock[1:])
    return tree_entry(arguments, leaf, clock, locked, guards)


def tree_entry(
    arguments: Sequence[Argument], root: Step, clock: np.ndarray, locked: bool = True,
    guards: Guards | None = None,
) -> Callable | None:
    """The entry of a tree as far as its code is native, None where that leads to no leaf.

    ``clock`` counts the calls that were answered. It declines while ``guards`` do not hold.
    """
    kinds = [_kind(x) for x in arguments]
    if None in kinds or len(kinds) > MOST or not supported():
        return None
    plan = Plan([(kind or 0, x) for kind, x in zip(kinds, arguments, strict=True)])
    start = plan.tree(root)
    if start is None:
        return None
    kind, flags = (Array, ALL & ~WRITEABLE) if locked else (np.ndarray, ALL)
    rows = None if guards is None else guards.rows
    of_guards = ((0, 0, 0) if rows is None or guards is None else
                 (len(rows), plan.numbers(rows), plan.numbers(guards.flag)))
    words = (*map(id, OBJECTS.values()), numpy_functions()[NEW_FROM_DESCRIPTOR], len(kinds),
             plan.arguments, id(kind), flags, plan.numbers(clock), 0, start, *of_guards)
    assert len(words) == len(PLAN), words
    engine, address = _function()
    method = Method(b"compiled", address, METH_FASTCALL, None)
    owned = np.array(words, np.uintp), plan, method, engine
    return new_function()(ctypes.addressof(method), owned, None)


def _kind(x: Argument) -> int | None:
    if x.weak:
        return {"d": FLOAT, "l": INT, "q": INT}.get(x.dtype.char)
    return SCALAR if x.shape == () and x.dtype == np.float64 else ARRAY


# ---- this Python and NumPy


class Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p),
                ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


@functools.cache
def new_function() -> Callable:
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
    return kind(("PyCFunction_NewEx", ctypes.pythonapi))


def numpy_functions() -> Any:
    """NumPy's table of C functions."""
    capsule = np._core._multiarray_umath._ARRAY_API  # type: ignore[attr-defined]  # not in stubs
    return ctypes.cast(pointer_of(capsule, None), ctypes.POINTER(ctypes.c_void_p))


@functools.cache
def supported() -> bool:
    """Whether objects are laid out as the function expects, tried on a few."""
    x = np.ones((2, 3), np.float32)
    pair = (x, None)
    read = [
        (ctypes.c_void_p, pair, "type", id(tuple)), (ctypes.c_void_p, pair, "tuple", id(x)),
        (ctypes.c_double, 1.5, "value", 1.5), (ctypes.c_double, np.float64(1.5), "value", 1.5),
        (ctypes.c_void_p, x, "data", x.ctypes.data), (ctypes.c_int, x, "ndim", 2),
        (ctypes.c_void_p, x, "dtype", id(x.dtype)), (ctypes.c_int, x, "flags", x.flags.num),
    ]
    if any(kind.from_address(id(o) + OFFSETS[at]).value != e for kind, o, at, e in read):
        return False
    dims = ctypes.c_void_p.from_address(id(x) + OFFSETS["dims"]).value or 0
    shape = tuple((ctypes.c_int64 * 2).from_address(dims))
    return shape == x.shape and numpy_functions()[ARRAY_TYPE] == id(np.ndarray)
