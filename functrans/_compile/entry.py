"""The way from Python into native code: a C function that checks, makes results, and runs.

For a small program the call costs more than the program. So a program without host steps gets a
function in its own module that CPython calls as it calls those written in C (METH_FASTCALL): it
reads the arguments where they lie, makes the results with NumPy's C function, and runs.

It takes arrays of exactly the shapes and dtypes of the program, contiguous and aligned, and Python
floats and ints where the program has such. Given anything else, or where the code reports that
something went wrong, it returns NotImplemented, and the caller goes the general way.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from functrans._compile.emit import ARRAY_DATA, LIST_ITEMS
from functrans._compile.kernels import Kernel, Schedule
from functrans._compile.lowerings import Code
from functrans._compile.program import Const, Var, aval_of_atom
from functrans._compile.views import Shape
from functrans._core.array import Array

# Where CPython and NumPy keep things, in bytes from the start of an object; see ``supported``.
TYPE, VALUE, TUPLE_ITEMS = 8, 16, 24
NDIM, DIMENSIONS, DESCRIPTOR, FLAGS = 24, 32, 56, 64
# Bits of an array's flags: C-contiguous and aligned; writeable.
IN_ORDER, WRITEABLE = 0x0001 | 0x0100, 0x0400
METH_FASTCALL = 0x0080
# In NumPy's table of C functions; fixed by its ABI.
ARRAY_TYPE, NEW_FROM_DESCRIPTOR = 2, 94
# Arguments and results up to which a program gets an entry.
MOST = 64
# Operations from which on other threads may run meanwhile: letting them costs 50 ns.
LONG = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """An output: made with this shape and dtype; filled by the code, or copied afterwards.

    ``source``: what it is copied from, a slot or an array that the program holds.
    """

    slot: int
    shape: Shape
    dtype: np.dtype
    source: int | np.ndarray | None = None


class Entry:
    """The entry of a program: its text, and the function once the text is compiled.

    ``slots``: how many arrays the code is given; ``held`` those of them that the program holds;
    ``scratch`` slot and bytes of memory that is given back after the call.
    """

    def __init__(self, s: Schedule, slots: int, held: dict[int, np.ndarray],
                 results: Sequence[Result], scratch: tuple[int, int] | None):
        self.inputs, self.slots, self.held = s.program.inputs, slots, held
        self.results, self.scratch = results, scratch
        self.lets_others_run = _work(s) >= LONG
        self.objects: list[Any] = []  # what the table has behind the fixed addresses
        self.code = Code()

    def function(self, compiled: Any, code: Any) -> Callable:
        """What was compiled as Python calls it; keeps ``code`` alive, which it is part of."""
        table = np.array([*_addresses().values(), *map(id, self.objects)], np.uintp)
        method = _Method(b"compiled", _address(compiled), METH_FASTCALL, None)
        # what the function may refer to lives as long as it: it is its ``__self__``
        return _new_function()(ctypes.addressof(method), (table, self.objects, method, code), None)

    # ---- text

    def text(self) -> str:
        """LLVM: ``entry(self, args, nargs)``, which calls ``run0``."""
        code = self.code
        table = self.field("%self", TUPLE_ITEMS, "ptr")
        code.line(f"%table = load ptr, ptr {self.at(table, ARRAY_DATA)}")
        code.line(f"%items = alloca [{max(self.slots, 1)} x ptr]")
        code.line(f"%list = alloca [{LIST_ITEMS + 8} x i8], align 8")
        code.line(f"store ptr %items, ptr {self.at('%list', LIST_ITEMS)}")
        # what holds the data of Python numbers and scratch memory, where arrays hold theirs
        code.line(f"%cells = alloca [{len(self.inputs) + 1} x ptr]")
        code.line(f"%integers = alloca [{len(self.inputs) + 1} x i64]")
        code.line("%overflow = alloca i32")
        code.line(f"%made = alloca [{max(len(self.results), 1)} x ptr]")
        code.line(f"store [{len(self.results)} x ptr] zeroinitializer, ptr %made")
        self.require(code.op(f"icmp eq i64 %nargs, {len(self.inputs)}"))
        for i, v in enumerate(self.inputs):
            self.argument(i, v)
        for slot, x in self.held.items():
            self.put(slot, self.object(x))
        for i, y in enumerate(self.results):
            self.make(i, y)
        self.run()
        self.leave()
        shapes = "".join([
            f"@shape{i} = internal constant [{len(y.shape)} x i64] "
            f"[{', '.join(f'i64 {n}' for n in y.shape)}]\n"
            for i, y in enumerate(self.results) if y.shape
        ])
        body = "\n".join(code.lines)
        head = "define ptr @entry(ptr %self, ptr %args, i64 %nargs) nounwind {"
        return f"\n{shapes}\n{head}\nentry:\n{body}\n}}\n"

    def at(self, x: str, offset: int) -> str:
        return self.code.op(f"getelementptr i8, ptr {x}, i64 {offset}")

    def field(self, x: str, offset: int, t: str) -> str:
        return self.code.op(f"load {t}, ptr {self.at(x, offset)}")

    def known(self, name: str) -> str:
        """A fixed address: a type of Python's, a function of its."""
        return self.field("%table", 8 * list(_addresses()).index(name), "ptr")

    def object(self, x: Any) -> str:
        """The address of an object of the program's own."""
        self.objects.append(x)
        return self.field("%table", 8 * (len(_addresses()) + len(self.objects) - 1), "ptr")

    def call(self, name: str, returned: str, *given: str) -> str:
        f = self.known(name)
        text = f"call {returned} {f}({', '.join(given)})"
        if returned != "void":
            return self.code.op(text)
        self.code.line(text)
        return ""

    def put(self, slot: int, x: str) -> None:
        self.code.line(f"store ptr {x}, ptr {self.at('%items', 8 * slot)}")

    def label(self, stem: str) -> str:
        return self.code.fresh(stem)[1:]

    def require(self, test: str, otherwise: str = "other") -> None:
        after = self.label("so")
        self.code.line(f"br i1 {test}, label %{after}, label %{otherwise}")
        self.code.label(after)

    # ---- arguments

    def argument(self, i: int, v: Var) -> None:
        x = self.field("%args", 8 * i, "ptr")
        kind = self.field(x, TYPE, "ptr")
        if v.weak:
            self.require(self.is_same(kind, "float" if v.aval.dtype.kind == "f" else "int"))
            self.number(i, v, x)
        elif v.aval == ((), np.float64):
            self.scalar_or_array(i, v, x, kind)
        else:
            self.array(v, x, kind)
            self.put(i, x)

    def is_same(self, x: str, name: str) -> str:
        return self.code.op(f"icmp eq ptr {x}, {self.known(name)}")

    def array(self, v: Var, x: str, kind: str) -> None:
        """Go on if ``x`` is an array in order, of the variable's dtype and shape."""
        code, shape = self.code, v.aval.shape
        own, ours = self.is_same(kind, "ndarray"), self.is_same(kind, "Array")
        self.require(code.op(f"or i1 {own}, {ours}"))
        descriptor = self.field(x, DESCRIPTOR, "ptr")
        same = code.op(f"icmp eq ptr {descriptor}, {self.object(v.aval.dtype)}")
        flags = code.op(f"and i32 {self.field(x, FLAGS, 'i32')}, {IN_ORDER}")
        flat = code.op(f"icmp eq i32 {flags}, {IN_ORDER}")
        ndim = code.op(f"icmp eq i32 {self.field(x, NDIM, 'i32')}, {len(shape)}")
        self.require(code.op(f"and i1 {ndim}, {code.op(f'and i1 {same}, {flat}')}"))
        if shape:
            dims = self.field(x, DIMENSIONS, "ptr")
            fits = [code.op(f"icmp eq i64 {self.field(dims, 8 * d, 'i64')}, {n}")
                    for d, n in enumerate(shape)]
            self.require(functools.reduce(lambda a, b: code.op(f"and i1 {a}, {b}"), fits))

    def number(self, i: int, v: Var, x: str) -> None:
        """Take the value of a Python number."""
        value = self.at(x, VALUE)
        if v.aval.dtype.kind == "i":
            value = self.at("%integers", 8 * i)
            n = self.call("PyLong_AsLongLongAndOverflow", "i64", f"ptr {x}", "ptr %overflow")
            self.require(self.code.op(f"icmp eq i32 {self.field('%overflow', 0, 'i32')}, 0"))
            self.code.line(f"store i64 {n}, ptr {value}")
        self.put_data(i, i, value)

    def put_data(self, slot: int, cell: int, data: str) -> None:
        """Into a slot what looks like an array with its data at this address."""
        self.code.line(f"store ptr {data}, ptr {self.at('%cells', 8 * cell)}")
        self.put(slot, self.at("%cells", 8 * cell - ARRAY_DATA))

    def scalar_or_array(self, i: int, v: Var, x: str, kind: str) -> None:
        code, scalar, array = self.code, self.label("scalar"), self.label("array")
        after = self.label("after")
        code.line(f"br i1 {self.is_same(kind, 'float64')}, label %{scalar}, label %{array}")
        code.label(scalar)
        self.put_data(i, i, self.at(x, VALUE))
        code.line(f"br label %{after}")
        code.label(array)
        self.array(v, x, kind)
        self.put(i, x)
        code.line(f"br label %{after}")
        code.label(after)

    # ---- results

    def make(self, i: int, y: Result) -> None:
        dtype = self.object(y.dtype)
        self.call("Py_IncRef", "void", f"ptr {dtype}")  # the array takes this reference
        shape = f"@shape{i}" if y.shape else "null"
        made = self.call("PyArray_NewFromDescr", "ptr", f"ptr {self.known('Array')}",
                         f"ptr {dtype}", f"i32 {len(y.shape)}", f"ptr {shape}", "ptr null",
                         "ptr null", "i32 0", "ptr null")
        self.code.line(f"store ptr {made}, ptr {self.at('%made', 8 * i)}")
        self.require(self.code.op(f"icmp ne ptr {made}, null"), "failed")
        if y.source is None:
            self.put(y.slot, made)

    def run(self) -> None:
        code = self.code
        memory = ""
        if self.scratch is not None:
            slot, size = self.scratch
            memory = self.call("PyMem_RawMalloc", "ptr", f"i64 {size}")
            self.require(code.op(f"icmp ne ptr {memory}, null"), "full")
            self.put_data(slot, len(self.inputs), memory)
        state = self.call("PyEval_SaveThread", "ptr") if self.lets_others_run else ""
        status = code.op("call i32 @run0(ptr %list) noinline nounwind")
        if state:
            self.call("PyEval_RestoreThread", "void", f"ptr {state}")
        if memory:
            self.call("PyMem_RawFree", "void", f"ptr {memory}")
        self.require(code.op(f"icmp eq i32 {status}, 0"), "wrong")

    def leave(self) -> None:
        """Hand out the results; or, behind the labels, give everything back."""
        code = self.code
        made = [self.field("%made", 8 * i, "ptr") for i in range(len(self.results))]
        for x, y in zip(made, self.results, strict=True):
            if y.source is not None:
                self.copy(x, y)
            flags = self.at(x, FLAGS)
            kept = code.op(f"and i32 {code.op(f'load i32, ptr {flags}')}, {~WRITEABLE}")
            code.line(f"store i32 {kept}, ptr {flags}")
        code.line(f"ret ptr {made[0] if len(made) == 1 else self.tuple(made)}")
        code.label("full")
        self.call("PyErr_NoMemory", "ptr")
        code.line("br label %failed")
        code.label("failed")  # with an exception set
        self.drop()
        code.line("ret ptr null")
        code.label("wrong")
        self.drop()
        code.line("br label %other")
        code.label("other")
        nothing = self.known("NotImplemented")
        self.call("Py_IncRef", "void", f"ptr {nothing}")
        code.line(f"ret ptr {nothing}")

    def copy(self, x: str, y: Result) -> None:
        size = math.prod(y.shape) * y.dtype.itemsize
        source = (self.field("%items", 8 * y.source, "ptr") if isinstance(y.source, int)
                  else self.object(y.source))
        data = [self.field(z, ARRAY_DATA, "ptr") for z in (x, source)]
        self.call("memmove", "ptr", f"ptr {data[0]}", f"ptr {data[1]}", f"i64 {size}")

    def tuple(self, made: list[str]) -> str:
        """The results as a tuple, which takes them over."""
        y = self.call("PyTuple_New", "ptr", f"i64 {len(made)}")
        self.require(self.code.op(f"icmp ne ptr {y}, null"), "failed")
        for i, x in enumerate(made):
            self.code.line(f"store ptr {x}, ptr {self.at(y, TUPLE_ITEMS + 8 * i)}")
        return y

    def drop(self) -> None:
        for i in range(len(self.results)):
            x = self.field("%made", 8 * i, "ptr")
            self.call("Py_DecRef", "void", f"ptr {x}")  # null for what was not made yet


def entry_of(s: Schedule, places: dict[Any, Any], consts: Sequence[np.ndarray], size: int,
             scratch: tuple[int, int] | None) -> Entry | None:
    """The entry for a schedule of kernels, None where there can be none."""
    inputs = s.program.inputs
    few = 0 < len(s.outputs) <= MOST and len(inputs) <= MOST
    if not few or not supported() or any(v.weak and v.aval.dtype.char not in "dl" for v in inputs):
        return None
    results = []
    for i, a in enumerate(s.outputs):
        outer = aval_of_atom(s.program.outputs[i])
        if not isinstance(a, Var):
            value = np.require(a.value if isinstance(a, Const) else a, outer.dtype, ["C", "A"])
            results.append(Result(-1, outer.shape, outer.dtype, value))
            continue
        if math.prod(s.shapes.get(a, a.aval.shape)) != math.prod(outer.shape):
            return None
        slot = places[a].slot
        again = a in inputs or any(a is b for b in s.outputs[:i])
        results.append(Result(slot, outer.shape, a.aval.dtype, slot if again else None))
    held = {len(inputs) + i: x for i, x in enumerate(consts)}
    return Entry(s, size, held, results, scratch)


def _work(s: Schedule) -> float:
    """About how many operations a run takes; infinitely many where a step does not say."""
    return sum(
        math.prod(k.space) * (len(k.ops) + len(k.loads) + len(k.stores) + len(k.reductions))
        if type(k) is Kernel else math.inf
        for k in s.steps
    )


# ---- this Python and NumPy


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p),
                ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


@functools.cache
def _new_function() -> Callable:
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    return kind(("PyCFunction_NewEx", ctypes.pythonapi))


@functools.cache
def _addresses() -> dict[str, int]:
    """The fixed addresses that entries know by position."""
    api = _numpy_functions()
    objects = {"ndarray": np.ndarray, "Array": Array, "float": float, "int": int,
               "float64": np.float64, "NotImplemented": NotImplemented}
    python = ("Py_IncRef", "Py_DecRef", "PyEval_SaveThread", "PyEval_RestoreThread",
              "PyMem_RawMalloc", "PyMem_RawFree", "PyErr_NoMemory", "PyTuple_New",
              "PyLong_AsLongLongAndOverflow")
    found = {name: id(x) for name, x in objects.items()}
    found |= {name: _address(getattr(ctypes.pythonapi, name)) for name in python}
    return found | {"memmove": _address(ctypes.memmove),
                    "PyArray_NewFromDescr": api[NEW_FROM_DESCRIPTOR] or 0}


def _address(f: Any) -> int:
    return ctypes.cast(f, ctypes.c_void_p).value or 0


def _numpy_functions() -> Any:
    """NumPy's table of C functions."""
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    capsule = np._core._multiarray_umath._ARRAY_API  # type: ignore[attr-defined]  # not in stubs
    at = pointer(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, None)
    return ctypes.cast(at, ctypes.POINTER(ctypes.c_void_p))


@functools.cache
def supported() -> bool:
    """Whether objects lie in memory as entries expect, tried out on some."""
    x = np.ones((2, 3), np.float32)
    pair = (x, None)
    read = [
        (ctypes.c_void_p, pair, TYPE, id(tuple)), (ctypes.c_void_p, pair, TUPLE_ITEMS, id(x)),
        (ctypes.c_double, 1.5, VALUE, 1.5), (ctypes.c_double, np.float64(1.5), VALUE, 1.5),
        (ctypes.c_void_p, x, ARRAY_DATA, x.ctypes.data), (ctypes.c_int, x, NDIM, 2),
        (ctypes.c_void_p, x, DESCRIPTOR, id(x.dtype)), (ctypes.c_int, x, FLAGS, x.flags.num),
    ]
    if any(kind.from_address(id(o) + offset).value != e for kind, o, offset, e in read):
        return False
    shape = (ctypes.c_int64 * 2).from_address(
        ctypes.c_void_p.from_address(id(x) + DIMENSIONS).value or 0
    )
    return tuple(shape) == x.shape and _numpy_functions()[ARRAY_TYPE] == id(np.ndarray)


__all__ = ["Entry", "entry_of", "supported"]
