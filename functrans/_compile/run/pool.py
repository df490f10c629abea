"""Memory of large arrays, kept when they are dropped: NumPy's allocator of a context (NEP 49).

The C library gives the pages of a large block back to the system as soon as it is dropped, and the
next array of that size has each of its pages cleared by the system again: at 10,000 to 1,000,000
entries that takes as long as the arithmetic. So blocks that are dropped wait here for arrays of
their size, in classes an eighth of a power of two wide, until more than ``LIMIT`` bytes wait: then
all of them go back. Small blocks and the first of each size come from NumPy's own allocator.

No call waits for another: where a thread finds the pool in use, it takes NumPy's allocator.
"""

from __future__ import annotations

import ctypes
import functools
from contextvars import Context, ContextVar
from typing import Any

from functrans._compile.lowering.numbers import filled
from functrans._compile.run.entry import numpy_functions, supported
from functrans._compile.run.machine import kept_native, local
from functrans._core.locks import compiler
from functrans._kernels.routines import address_of, pointer_of
from functrans.config import config

# Bytes of blocks that are kept, and of all blocks that wait.
SMALLEST, LARGEST, LIMIT = 1 << 14, 1 << 27, 1 << 28
CLASSES = 8 * (LARGEST.bit_length() - SMALLEST.bit_length() + 2)

# Places in NumPy's table of C functions.
SET_HANDLER, DEFAULT_HANDLER = 304, 306
NAME = b"mem_handler"
FUNCTIONS = "malloc", "calloc", "realloc", "free"


class Allocator(ctypes.Structure):
    """PyDataMemAllocator."""

    _fields_ = (("state", ctypes.c_void_p), *[(name, ctypes.c_void_p) for name in FUNCTIONS])


class Handler(ctypes.Structure):
    """PyDataMem_Handler."""

    _fields_ = (("name", ctypes.c_char * 127), ("version", ctypes.c_uint8),
                ("allocator", Allocator))


class State(ctypes.Structure):
    """What the functions are called with; ``inner`` is NumPy's own allocator."""

    _fields_ = (("lock", ctypes.c_int64), ("waiting", ctypes.c_int64), ("limit", ctypes.c_int64),
                ("inner", Allocator), ("usable", ctypes.c_void_p),
                ("heads", ctypes.c_void_p * CLASSES))


TEXT = """\
declare i64 @llvm.ctlz.i64(i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare {i64, i1} @llvm.umul.with.overflow.i64(i64, i64)

define internal ptr @at(ptr %x, i64 %offset) alwaysinline {
  %at = getelementptr i8, ptr %x, i64 %offset
  %y = load ptr, ptr %at
  ret ptr %y
}

; The width of the classes of blocks of a size, as a shift.
define internal i64 @shift(i64 %size) alwaysinline {
  %zeros = call i64 @llvm.ctlz.i64(i64 %size, i1 true)
  %shift = sub i64 60, %zeros
  ret i64 %shift
}

; Where the first block of the class is noted that holds blocks of this size.
define internal ptr @head(ptr %state, i64 %size) alwaysinline {
  %shift = call i64 @shift(i64 %size)
  %eighth = lshr i64 %size, %shift
  %octave = sub i64 %shift, <octave>
  %octaves = shl i64 %octave, 3
  %part = and i64 %eighth, 7
  %class = or i64 %octaves, %part
  %offset = shl i64 %class, 3
  %heads = getelementptr i8, ptr %state, i64 <heads>
  %head = getelementptr i8, ptr %heads, i64 %offset
  ret ptr %head
}

define internal i1 @kept(i64 %size) alwaysinline {
  %above = sub i64 %size, <smallest>
  %kept = icmp ule i64 %above, <span>
  ret i1 %kept
}

define internal i1 @take(ptr %state) alwaysinline {
  %pair = cmpxchg ptr %state, i64 0, i64 1 acquire monotonic
  %taken = extractvalue {i64, i1} %pair, 1
  ret i1 %taken
}

; Blocks that wait: their first word is the next of their class, their second their size.
define internal ptr @pop(ptr %state, i64 %size) {
  %taken = call i1 @take(ptr %state)
  br i1 %taken, label %look, label %none
look:
  %head = call ptr @head(ptr %state, i64 %size)
  %block = load ptr, ptr %head
  %empty = icmp eq ptr %block, null
  br i1 %empty, label %leave, label %unlink
unlink:
  %next = load ptr, ptr %block
  store ptr %next, ptr %head
  %at = getelementptr i8, ptr %block, i64 8
  %bytes = load i64, ptr %at
  %waiting = getelementptr i8, ptr %state, i64 <waiting>
  %before = load i64, ptr %waiting
  %after = sub i64 %before, %bytes
  store i64 %after, ptr %waiting
  br label %leave
leave:
  store atomic i64 0, ptr %state release, align 8
  ret ptr %block
none:
  ret ptr null
}

; All that wait go back; the caller has the lock.
define internal void @empty(ptr %state) {
  %ctx = call ptr @at(ptr %state, i64 <inner>)
  %free = call ptr @at(ptr %state, i64 <inner.free>)
  %heads = getelementptr i8, ptr %state, i64 <heads>
  br label %classes
classes:
  %i = phi i64 [0, %0], [%j, %done]
  %head = getelementptr ptr, ptr %heads, i64 %i
  br label %blocks
blocks:
  %block = load ptr, ptr %head
  %end = icmp eq ptr %block, null
  br i1 %end, label %done, label %drop
drop:
  %next = load ptr, ptr %block
  store ptr %next, ptr %head
  %at = getelementptr i8, ptr %block, i64 8
  %bytes = load i64, ptr %at
  call void %free(ptr %ctx, ptr %block, i64 %bytes)
  br label %blocks
done:
  %j = add i64 %i, 1
  %more = icmp ult i64 %j, <classes>
  br i1 %more, label %classes, label %leave
leave:
  %waiting = getelementptr i8, ptr %state, i64 <waiting>
  store i64 0, ptr %waiting
  ret void
}

define i32 @trim(ptr %state) {
  %taken = call i1 @take(ptr %state)
  br i1 %taken, label %do, label %leave
do:
  call void @empty(ptr %state)
  store atomic i64 0, ptr %state release, align 8
  ret i32 1
leave:
  ret i32 0
}

define internal i64 @rounded(i64 %size) alwaysinline {
  %shift = call i64 @shift(i64 %size)
  %width = shl i64 1, %shift
  %rest = sub i64 %width, 1
  %sum = add i64 %size, %rest
  %mask = xor i64 %rest, -1
  %rounded = and i64 %sum, %mask
  ret i64 %rounded
}

define internal ptr @fresh(ptr %state, i64 %size) {
  %ctx = call ptr @at(ptr %state, i64 <inner>)
  %malloc = call ptr @at(ptr %state, i64 <inner.malloc>)
  %block = call ptr %malloc(ptr %ctx, i64 %size)
  %failed = icmp eq ptr %block, null
  br i1 %failed, label %again, label %leave
again:
  %trimmed = call i32 @trim(ptr %state)
  %second = call ptr %malloc(ptr %ctx, i64 %size)
  ret ptr %second
leave:
  ret ptr %block
}

define ptr @malloc_(ptr %state, i64 %size) {
  %kept = call i1 @kept(i64 %size)
  br i1 %kept, label %large, label %other
large:
  %rounded = call i64 @rounded(i64 %size)
  %block = call ptr @pop(ptr %state, i64 %rounded)
  %none = icmp eq ptr %block, null
  br i1 %none, label %new, label %leave
new:
  %fresh = call ptr @fresh(ptr %state, i64 %rounded)
  ret ptr %fresh
leave:
  ret ptr %block
other:
  %any = call ptr @fresh(ptr %state, i64 %size)
  ret ptr %any
}

define ptr @calloc_(ptr %state, i64 %n, i64 %each) {
  %product = call {i64, i1} @llvm.umul.with.overflow.i64(i64 %n, i64 %each)
  %size = extractvalue {i64, i1} %product, 0
  %over = extractvalue {i64, i1} %product, 1
  %fits = xor i1 %over, true
  %kept = call i1 @kept(i64 %size)
  %try = and i1 %kept, %fits
  br i1 %try, label %large, label %other
large:
  %rounded = call i64 @rounded(i64 %size)
  %block = call ptr @pop(ptr %state, i64 %rounded)
  %none = icmp eq ptr %block, null
  br i1 %none, label %new, label %clear
clear:
  call void @llvm.memset.p0.i64(ptr %block, i8 0, i64 %size, i1 false)
  ret ptr %block
new:
  br label %other
other:
  %m = phi i64 [%n, %0], [1, %new]
  %width = phi i64 [%each, %0], [%rounded, %new]
  %ctx = call ptr @at(ptr %state, i64 <inner>)
  %calloc = call ptr @at(ptr %state, i64 <inner.calloc>)
  %fresh = call ptr %calloc(ptr %ctx, i64 %m, i64 %width)
  ret ptr %fresh
}

define ptr @realloc_(ptr %state, ptr %block, i64 %size) {
  %ctx = call ptr @at(ptr %state, i64 <inner>)
  %realloc = call ptr @at(ptr %state, i64 <inner.realloc>)
  %moved = call ptr %realloc(ptr %ctx, ptr %block, i64 %size)
  ret ptr %moved
}

define void @free_(ptr %state, ptr %block, i64 %size) {
  %kept = call i1 @kept(i64 %size)
  %null = icmp eq ptr %block, null
  %real = xor i1 %null, true
  %large = and i1 %kept, %real
  br i1 %large, label %measure, label %drop
measure:
  %usable = call ptr @at(ptr %state, i64 <usable>)
  %bytes = call i64 %usable(ptr %block)
  %fits = call i1 @kept(i64 %bytes)
  br i1 %fits, label %try, label %drop
try:
  %taken = call i1 @take(ptr %state)
  br i1 %taken, label %weigh, label %drop
weigh:
  %waiting = getelementptr i8, ptr %state, i64 <waiting>
  %before = load i64, ptr %waiting
  %sum = add i64 %before, %bytes
  %at = getelementptr i8, ptr %state, i64 <limit>
  %limit = load i64, ptr %at
  %full = icmp ugt i64 %sum, %limit
  br i1 %full, label %spill, label %push
spill:
  call void @empty(ptr %state)
  br label %push
push:
  %others = load i64, ptr %waiting
  %after = add i64 %others, %bytes
  store i64 %after, ptr %waiting
  %head = call ptr @head(ptr %state, i64 %bytes)
  %next = load ptr, ptr %head
  store ptr %next, ptr %block
  %second = getelementptr i8, ptr %block, i64 8
  store i64 %bytes, ptr %second
  store ptr %block, ptr %head
  store atomic i64 0, ptr %state release, align 8
  ret void
drop:
  %ctx = call ptr @at(ptr %state, i64 <inner>)
  %free = call ptr @at(ptr %state, i64 <inner.free>)
  call void %free(ptr %ctx, ptr %block, i64 %size)
  ret void
}
"""


def enter() -> None:
    """Have NumPy use the pool in this context; or stop it, where ``keep_memory`` is off."""
    if not config.keep_memory:
        if (loaded := _loaded()) is not None:
            loaded.leave()
    elif (kept := pool()) is not None:
        kept.enter()


def clear() -> None:
    """Give back what waits."""
    if (loaded := _loaded()) is not None:
        loaded.clear()


class Pool:
    """The allocator, as NumPy knows it, which lives as long as the process: arrays point to it."""

    def __init__(self, variable: ContextVar, default: Any, handler: Any, state: State, trim: Any):
        self.variable, self.default, self.handler = variable, default, handler
        self.state, self.trim = state, trim

    def enter(self) -> None:
        """Have NumPy take large blocks of this context from here, if it has no other allocator."""
        if self.variable.get() is self.default:
            self.variable.set(self.handler)

    def leave(self) -> None:
        """Have NumPy use its own allocator again, for what is made from now on."""
        if self.variable.get() is self.handler:
            self.variable.set(self.default)

    @property
    def waiting(self) -> int:
        """Bytes of the blocks that wait."""
        return self.state.waiting

    def clear(self) -> None:
        """Give back all blocks that wait."""
        self.trim(ctypes.addressof(self.state))


@kept_native
def pool() -> Pool | None:
    """The pool of this process; None where it cannot be had."""
    usable = getattr(ctypes.CDLL(None), "malloc_usable_size", None)
    table = numpy_functions()
    default = _object_at(table[DEFAULT_HANDLER])
    if usable is None or default is None or not supported():
        return None
    known = Handler.from_address(pointer_of(default, NAME))
    if known.version != 1:
        return None
    names = [f"{name}_" for name in FUNCTIONS]
    with compiler():
        loaded = local().compile_own(_text(), [*names, "trim"], "memory of large arrays")
    state = State(limit=LIMIT, inner=known.allocator, usable=address_of(usable))
    addresses = [address_of(loaded.functions[name]) for name in names]
    mine = Handler(b"functrans", 1, Allocator(ctypes.addressof(state), *addresses))
    capsule = _new_capsule()(ctypes.addressof(mine), NAME, None)
    trim = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(address_of(loaded.functions["trim"]))
    for needed in (loaded.code, state, mine, capsule):  # arrays are dropped after modules are
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(needed))
    variable = _variable_of(capsule, table[SET_HANDLER])
    return Pool(variable, default, capsule, state, trim)


def _loaded() -> Pool | None:
    return pool() if pool.is_known() else None  # type: ignore[attr-defined]  # so decorated


def _text() -> str:
    words = {
        "octave": SMALLEST.bit_length() - 4, "smallest": SMALLEST, "span": LARGEST - SMALLEST,
        "classes": CLASSES, "heads": State.heads.offset, "waiting": State.waiting.offset,
        "limit": State.limit.offset, "usable": State.usable.offset, "inner": State.inner.offset,
    }
    words |= {f"inner.{name}": State.inner.offset + getattr(Allocator, name).offset
              for name in FUNCTIONS}
    return filled(TEXT, words)


def _variable_of(capsule: Any, address: int) -> ContextVar:
    """The context variable in which NumPy keeps its allocator."""
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)
    context = Context()
    context.run(kind(address), capsule)
    return next(iter(context))


def _object_at(address: int) -> Any:
    """The object whose address is noted there."""
    noted = ctypes.c_void_p.from_address(address).value
    return ctypes.cast(noted, ctypes.py_object).value if noted else None


@functools.cache
def _new_capsule() -> Any:
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return kind(("PyCapsule_New", ctypes.pythonapi))
