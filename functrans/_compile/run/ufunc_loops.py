"""NumPy's own loops over large arrays, on all threads and without the interpreter.

A ufunc keeps the C functions that go through its operands, one for each combination of types. They
are called for a chunk at a time here, so that values are NumPy's to the last bit. Where one leaves
a floating-point exception behind of which NumPy would warn, the caller leaves the whole to NumPy.
"""

from __future__ import annotations

import ctypes
import functools
import math
import platform
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from functrans._compile.emit.module import ARRAY_DATA, LIST_ITEMS
from functrans._compile.lowering.numbers import fill
from functrans._compile.run.entry import is_supported
from functrans._compile.run.machine import kept_native
from functrans._compile.run.workers import of_own, workers

# Entries of a chunk.
CHUNK = 1 << 14
# Bits by which the C library tells of exceptions, and what NumPy calls them.
EXCEPTIONS = {
    "x86_64": {1: "invalid", 4: "divide", 8: "over", 16: "under"},
    "aarch64": {1: "invalid", 2: "divide", 4: "over", 8: "under"},
}

MOST = 3  # operands, the result included
LIST_COUNT = 2  # the word of a list that says how many items there are

TEXT = """\
declare i32 @feclearexcept(i32)
declare i32 @fetestexcept(i32)
declare i64 @llvm.umin.i64(i64, i64)

define internal ptr @at(ptr %x, i64 %offset) alwaysinline {
  %at = getelementptr i8, ptr %x, i64 %offset
  %y = load ptr, ptr %at
  ret ptr %y
}

define internal i64 @get(ptr %numbers, i64 %i) alwaysinline {
  %at = getelementptr i64, ptr %numbers, i64 %i
  %x = load i64, ptr %at
  ret i64 %x
}

; A list of operands, the result, and an array of: loop, data, entries, entries of a row, rows, rows
; of a chunk, and for each operand the bytes to its next row and to its next entry.
define i32 @chunks(ptr %list, i64 %lo, i64 %hi) {
  %pointers = alloca [<most> x i64]
  %length = alloca i64
  %items = call ptr @at(ptr %list, i64 <items>)
  %count = call i64 @get(ptr %list, i64 <count>)
  %operands = sub i64 %count, 1
  %last.place = mul i64 %operands, 8
  %last = call ptr @at(ptr %items, i64 %last.place)
  %numbers = call ptr @at(ptr %last, i64 <data>)
  %loop = call ptr @at(ptr %numbers, i64 0)
  %data = call ptr @at(ptr %numbers, i64 8)
  %size = call i64 @get(ptr %numbers, i64 2)
  %width = call i64 @get(ptr %numbers, i64 3)
  %rows = call i64 @get(ptr %numbers, i64 4)
  %chunk = call i64 @get(ptr %numbers, i64 5)
  %strides = getelementptr i64, ptr %numbers, i64 6
  %steps = getelementptr i64, ptr %strides, i64 <most>
  %first = mul i64 %lo, %chunk
  %end = mul i64 %hi, %chunk
  %stop = call i64 @llvm.umin.i64(i64 %end, i64 %rows)
  %cleared = call i32 @feclearexcept(i32 <mask>)
  br label %row
row:
  %r = phi i64 [%first, %0], [%r.next, %ready]
  %before = mul i64 %r, %width
  %left = sub i64 %size, %before
  %n = call i64 @llvm.umin.i64(i64 %left, i64 %width)
  store i64 %n, ptr %length
  br label %operand
operand:
  %k = phi i64 [0, %row], [%k.next, %operand]
  %place = mul i64 %k, 8
  %array = call ptr @at(ptr %items, i64 %place)
  %start = call ptr @at(ptr %array, i64 <data>)
  %stride = call i64 @get(ptr %strides, i64 %k)
  %offset = mul i64 %r, %stride
  %address = getelementptr i8, ptr %start, i64 %offset
  %pointer = getelementptr i64, ptr %pointers, i64 %k
  store ptr %address, ptr %pointer
  %k.next = add i64 %k, 1
  %more.operands = icmp ult i64 %k.next, %operands
  br i1 %more.operands, label %operand, label %ready
ready:
  call void %loop(ptr %pointers, ptr %length, ptr %steps, ptr %data)
  %r.next = add i64 %r, 1
  %more.rows = icmp ult i64 %r.next, %stop
  br i1 %more.rows, label %row, label %leave
leave:
  %raised = call i32 @fetestexcept(i32 <mask>)
  ret i32 %raised
}
"""


class UFunc(ctypes.Structure):
    """The beginning of PyUFuncObject, which is part of NumPy's ABI."""

    _fields_ = (("head", ctypes.c_char * object.__basicsize__), ("nin", ctypes.c_int),
                ("nout", ctypes.c_int), ("nargs", ctypes.c_int), ("identity", ctypes.c_int),
                ("functions", ctypes.POINTER(ctypes.c_void_p)),
                ("data", ctypes.POINTER(ctypes.c_void_p)), ("ntypes", ctypes.c_int),
                ("reserved", ctypes.c_int), ("name", ctypes.c_char_p), ("types", ctypes.c_void_p))


class Loop(NamedTuple):
    """Where the C function for a type is, and what it is called with."""

    function: int
    data: int


@functools.cache
def _loop(ufunc: np.ufunc, char: str) -> Loop | None:
    """The loop of operands and a result of that type, None where there is none."""
    if ufunc.nout != 1 or ufunc.nargs > MOST or ufunc.signature is not None:
        return None
    found = UFunc.from_address(id(ufunc))
    known = found.nin, found.nout, found.nargs, found.ntypes, (found.name or b"").decode()
    if known != (ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.ntypes, ufunc.__name__.split(".")[-1]):
        return None
    number = np.dtype(char).num
    types = ctypes.string_at(found.types, found.ntypes * found.nargs)
    for i in range(found.ntypes):
        if types[i * found.nargs : (i + 1) * found.nargs] == bytes([number] * found.nargs):
            function, data = found.functions[i], found.data[i] if found.data else None
            return function and Loop(function, data or 0)
    return None


@kept_native
def _native() -> Callable[[list, int, float], int] | None:
    """What runs the chunks of a list; None where there is none."""
    machine = platform.machine()
    if machine not in EXCEPTIONS or not is_supported():
        return None
    words = {"most": MOST, "mask": sum(EXCEPTIONS[machine]), "items": LIST_ITEMS,
             "count": LIST_COUNT, "data": ARRAY_DATA}
    return of_own(lambda _: fill(TEXT, words), "chunks", "NumPy's loops on threads")


def run(
    ufunc: np.ufunc, xs: Sequence, out: np.ndarray | None, work: float
) -> np.ndarray | None:
    """The ufunc of ``xs``, in ``out`` if that is given, which takes ``work`` nanoseconds on one
    thread.

    None where threads do not pay now, where there is no such loop of operands that are in order and
    whole, single rows, single numbers or one for each row; and where NumPy would warn.
    """
    warned = _warn()
    if warned and out is not None:  # who may be an operand, which is then no longer what it was
        return None
    team, native = workers(), _native()
    if team is None or native is None or not team.ready(work):
        return None
    kinds, arrays, shape, dtype = [], [], (), None
    for x in xs:
        if type(x) is np.ndarray and x.ndim:
            if dtype is None:
                dtype = x.dtype
            if x.dtype is not dtype or not (x.flags.c_contiguous and x.flags.aligned):
                return None
            if x.size >= math.prod(shape):
                shape = x.shape
            kinds.append(x.shape)
        elif not (type(x) is float or type(x) is int or isinstance(x, np.generic | np.ndarray)):
            return None
        else:
            kinds.append(())
    if dtype is None or dtype.char not in "fdFD" or not dtype.isnative:
        return None
    for x, kind in zip(xs, kinds, strict=True):
        if kind or (isinstance(x, np.ndarray) and x.dtype is dtype):
            arrays.append(x)
        elif isinstance(x, np.generic | np.ndarray) and x.dtype is not dtype:
            return None
        else:
            arrays.append(np.array(x, dtype))
    found = _numbers(ufunc, dtype, shape, tuple(kinds))
    if found is None:
        return None
    y = np.empty(shape, dtype) if out is None else out
    if y.dtype is not dtype or y.shape != shape or not y.flags.carray:
        return None
    raised = native([*arrays, y, found[0]], found[1], work)
    return None if raised & warned else y


def _warn() -> int:
    """The bits of exceptions that are not ignored."""
    state, names = np.geterr(), EXCEPTIONS.get(platform.machine(), {})
    return sum([bit for bit, name in names.items() if state[name] != "ignore"])


@functools.lru_cache(256)
def _numbers(
    ufunc: np.ufunc, dtype: np.dtype, shape: tuple[int, ...], kinds: tuple[tuple[int, ...], ...]
) -> tuple[np.ndarray, int] | None:
    """What the native function is told of operands with these shapes, and how many chunks."""
    loop = _loop(ufunc, dtype.char)
    if loop is None:
        return None
    size, step = math.prod(shape), dtype.itemsize
    width = CHUNK if all([kind in ((), shape) for kind in kinds]) else shape[-1]
    bytes_of = {(1,) * k + shape[-1:]: (0, step) for k in range(len(shape))}  # one row
    bytes_of |= {(): (0, 0), (*shape[:-1], 1): (step, 0), shape: (width * step, step)}
    if not all([kind in bytes_of for kind in kinds]):
        return None
    rows, chunk = -(-size // width), max(1, CHUNK // width)
    ends = [bytes_of[kind] for kind in [*kinds, shape]]
    words = [*loop, size, width, rows, chunk]
    for column in zip(*ends, strict=True):
        words += [*column, *(0,) * (MOST - len(ends))]
    return np.array(words), -(-rows // chunk)
