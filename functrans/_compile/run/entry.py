"""The way from Python into native code: a C function that checks, makes results, and runs.

A call costs more than a small program. CPython calls the function below like one written in C
(METH_FASTCALL): it reads the arguments in place, allocates the results with NumPy's C function, and
runs. It is compiled once; a plan, which is its ``__self__``, says what it does for a program.

It takes arrays of exactly the shapes and dtypes of the program, contiguous and aligned, and Python
floats and ints where the program has them. For anything else, or if the code reports a failure, it
returns NotImplemented, and the caller takes the general way.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

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
    SLOTS,
    WRITEABLE,
    text,
)
from functrans._compile.lowering.routines import address_of, pointer_of
from functrans._compile.run.machine import local
from functrans._core.array import Array

if TYPE_CHECKING:
    from functrans._compile.run.frame import Argument, Buffer, Frame, Result

METH_FASTCALL = 0x0080
# Places in NumPy's table of C functions; fixed by its ABI.
ARRAY_TYPE, NEW_FROM_DESCRIPTOR = 2, 94
# Operations from which other threads may run meanwhile: releasing the lock costs 50 ns.
LONG = 20_000
ALL = 0xFFFFFFFF  # of an array's flags


@functools.cache
def _function() -> tuple[Any, int]:
    """The compiled function: what must live as long as it is called, and its address."""
    code, function = local().compile_own(text(), "entry", "calls of compiled functions")
    return code, address_of(function)


# ---- one program


def entry_of(frame: Frame, functions: dict[str, Any], code: Any, locked: bool) -> Callable | None:
    """The entry of the one function in a frame, None where it cannot have one.

    ``code`` is kept alive. Results are read-only Arrays where ``locked``, else ndarrays.
    """
    kinds = [_kind(x) for x in frame.arguments]
    if len(frame.segments) != 1 or frame.segments[0].chunks > 1 or len(frame.runs) > 1:
        return None
    copies = sum(y.copied for y in frame.results)
    few = 0 < len(frame.results) <= MOST and len(kinds) <= MOST and frame.slots + copies <= SLOTS
    if not few or None in kinds or not supported():
        return None
    (segment,) = frame.segments
    plan = _Plan()
    arguments = [(kind, *plan.kind(x)) for kind, x in zip(kinds, frame.arguments, strict=True)]
    slots = [0] * (frame.slots + copies)
    slots[len(arguments) : len(arguments) + len(frame.constants)] = map(plan.keep, frame.constants)
    made, free = [], frame.slots
    for y in frame.results:
        source = (math.prod(y.shape) * y.dtype.itemsize, y.slot) if y.copied else (0, 0)
        made.append((free if y.copied else y.slot, *plan.kind(y), *source))
        free += y.copied
    own = {y.slot for y in frame.results}
    scratch = [(x.slot, *plan.kind(x), 0, 0) for x in segment.makes if x.slot not in own]
    assert len(scratch) <= 1, scratch
    kind, flags = (Array, ALL & ~WRITEABLE) if locked else (np.ndarray, ALL)
    return plan.function(
        *map(id, OBJECTS.values()), numpy_functions()[NEW_FROM_DESCRIPTOR],
        address_of(functions[segment.name]), len(arguments), plan.array(arguments), 8 * len(slots),
        plan.array(slots), len(made), len(made) + len(scratch), plan.array(made + scratch),
        frame.work >= LONG, id(kind), flags, code=code,
    )


class _Plan:
    """The numbers that make a plan, and what lives as long as it."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def keep(self, x: Any) -> int:
        """Where an object is."""
        self.kept.append(x)
        return id(x)

    def kind(self, x: Buffer | Result | Argument) -> tuple[int, int, int]:
        """Dtype, number of axes, and where the lengths of the axes are."""
        return self.keep(x.dtype), len(x.shape), self.array(x.shape)

    def array(self, words: Sequence) -> int:
        """Where these numbers are."""
        x = np.array(words, np.uintp)
        self.kept.append(x)
        return x.ctypes.data

    def function(self, *words: int, code: Any) -> Callable:
        assert len(words) == len(PLAN), words
        engine, address = _function()
        method = Method(b"compiled", address, METH_FASTCALL, None)
        owned = np.array(words, np.uintp), self.kept, method, code, engine
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
