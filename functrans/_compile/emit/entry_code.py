"""The function that CPython calls for a compiled program, in LLVM's language.

What a program needs is read from its plan, so the function is compiled once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from functrans._compile.emit.module import ARRAY_DATA, HEADER, LIST_ITEMS
from functrans._compile.lowering.numbers import Code
from functrans._core.array import Array

# Where CPython and NumPy keep things, in bytes from the start of an object; tried out in entry.py.
OFFSETS = {"type": HEADER - 8, "value": HEADER, "tuple": tuple.__basicsize__, "items": LIST_ITEMS,
           "data": ARRAY_DATA, "ndim": HEADER + 8, "dims": HEADER + 16, "dtype": HEADER + 40,
           "flags": HEADER + 48}
# Bits of an array's flags: C-contiguous and aligned; writeable.
IN_ORDER, WRITEABLE = 0x0001 | 0x0100, 0x0400
# Most arguments and most results of a program with an entry; most arrays that it works on.
MOST, SLOTS = 64, 256
# What an argument may be: an array; float64[], also as NumPy's scalar; a Python float or int.
ARRAY, SCALAR, FLOAT, INT = range(4)
OBJECTS = {"ndarray": np.ndarray, "Array": Array, "float": float, "int": int,
           "float64": np.float64, "NotImplemented": NotImplemented}
# The words of a plan, and of what it points to. The last of the arrays that are made may be
# scratch, which is no result.
PLAN = (*OBJECTS, "PyArray_NewFromDescr", "run", "arguments", "argument", "slots", "slot",
        "results", "arrays", "made", "lets", "class", "flags")
ARGUMENT = ("kind", "dtype", "ndim", "dims")
MADE = ("slot", "dtype", "ndim", "dims", "bytes", "source")
# Where each word is, in bytes from the start of its record, or of an object.
PLACES = {f"{record}.{word}": 8 * i
          for record, words in (("plan", PLAN), ("argument", ARGUMENT), ("made", MADE))
          for i, word in enumerate(words)}
PLACES |= {f"object.{name}": offset for name, offset in OFFSETS.items()}
# What it calls of CPython and C.
DECLARED = """\
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyTuple_New(i64)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare i32 @memcmp(ptr, ptr, i64)
"""


class _Writer(Code):
    """Lines of the function."""

    def word(self, base: str, place: str, t: str = "i64") -> str:
        """What is at a place of a record or object."""
        return self.op(f"load {t}, ptr {self.shifted(base, PLACES[place])}")

    def pointer(self, base: str, place: str) -> str:
        return self.word(base, place, "ptr")

    def at(self, base: str, i: str, words: tuple = ("",)) -> str:
        """The address of entry i of a table of records."""
        return self.op(f"getelementptr [{len(words)} x ptr], ptr {base}, i64 {i}")

    def store(self, t: str, x: str, where: str) -> None:
        self.line(f"store {t} {x}, ptr {where}")

    def jump_unless(self, how: str, t: str, x: str, y: str, label: str) -> None:
        """Go on only where the comparison holds, else to a label."""
        stay = self.fresh("stay")[1:]
        self.line(f"br i1 {self.compare(how, t, x, y)}, label %{stay}, label %{label}")
        self.label(stay)

    @contextmanager
    def each(self, count: str) -> Iterator[str]:
        """A loop of so many iterations, perhaps none; yields its counter."""
        done = self.fresh("done")[1:]
        with self.loop("0", None) as i:
            self.jump_unless("ne", "i64", i, count, done)
            yield i
        self.label(done)


def text() -> str:
    """The function of the plan, the arguments and their number."""
    w = _Writer()
    made, first, last, status, answer = (
        w.op(f"alloca {t}") for t in (f"[{MOST + 1} x ptr]", "i64", "i64", "i32", "ptr"))
    items, slots = (w.op(f"alloca [{n} x ptr]") for n in (SLOTS, LIST_ITEMS // 8 + 1))
    # which of the arrays that were made are dropped at the end: all, until the call has succeeded
    w.store("i64", "0", first)
    w.store("i64", "0", last)
    w.store("ptr", "null", answer)  # which means that an exception is set
    w.store("ptr", items, w.shifted(slots, LIST_ITEMS))
    plan = w.pointer(w.pointer("%self", "object.tuple"), "object.data")
    w.copy(items, w.pointer(plan, "plan.slot"), w.word(plan, "plan.slots"))
    _take_arguments(w, plan, items)
    _make_arrays(w, plan, items, made, last)
    _run(w, plan, slots, status)
    _finish_results(w, plan, items, made)
    _answer(w, plan, made, first, answer)
    start, end = (w.op(f"load i64, ptr {x}") for x in (first, last))
    with w.each(w.op(f"sub i64 {end}, {start}")) as n:
        dropped = w.op(f"load ptr, ptr {w.at(made, w.op(f'add i64 {start}, {n}'))}")
        w.line(f"call void @Py_DecRef(ptr {dropped})")
    w.line(f"ret ptr {w.op(f'load ptr, ptr {answer}')}")
    function = w.function("ptr @entry", "ptr %self, ptr %args, i64 %nargs", "nounwind")
    return "\n".join([DECLARED, *w.functions.values(), function])


def _take_arguments(w: _Writer, plan: str, items: str) -> None:
    """The arguments into their slots; numbers by something that stands in for an array."""
    # the address of its data is where an array has it
    cells, integers = (w.op(f"alloca [{MOST} x i64]") for _ in range(2))
    overflow, count = w.op("alloca i32"), w.word(plan, "plan.arguments")
    w.jump_unless("eq", "i64", "%nargs", count, "other")
    with w.each(count) as i:
        wanted = w.at(w.pointer(plan, "plan.argument"), i, ARGUMENT)
        x = w.op(f"load ptr, ptr {w.at('%args', i)}")
        kind, slot, cell = w.pointer(x, "object.type"), w.at(items, i), w.at(cells, i)
        w.store("ptr", x, slot)
        w.store("ptr", w.shifted(x, OFFSETS["value"]), cell)
        w.line(f"switch i64 {w.word(wanted, 'argument.kind')}, label %other [ "
               f"i64 {ARRAY}, label %array i64 {SCALAR}, label %scalar "
               f"i64 {FLOAT}, label %float i64 {INT}, label %int ]")
        w.label("scalar")
        w.jump_unless("eq", "ptr", kind, w.pointer(plan, "plan.float64"), "array")
        w.line("br label %number")
        w.label("float")
        w.jump_unless("eq", "ptr", kind, w.pointer(plan, "plan.float"), "other")
        w.line("br label %number")
        w.label("int")
        w.jump_unless("eq", "ptr", kind, w.pointer(plan, "plan.int"), "other")
        integer = w.at(integers, i)
        value = w.op(f"call i64 @PyLong_AsLongLongAndOverflow(ptr {x}, ptr {overflow})")
        w.store("i64", value, integer)
        w.store("ptr", integer, cell)
        w.jump_unless("eq", "i32", w.op(f"load i32, ptr {overflow}"), "0", "other")
        w.line("br label %number")
        w.label("number")
        stand_in = w.op(f"getelementptr i8, ptr {cell}, i64 {-OFFSETS['data']}")
        w.store("ptr", stand_in, slot)
        w.line("br label %taken")
        w.label("array")
        _require_array(w, plan, wanted, x, kind)
        w.line("br label %taken")
        w.label("taken")


def _require_array(w: _Writer, plan: str, wanted: str, x: str, kind: str) -> None:
    """Go on only with an array in order, of the dtype and shape of an argument."""
    ours, theirs = (w.compare("eq", "ptr", kind, w.pointer(plan, f"plan.{name}"))
                    for name in ("Array", "ndarray"))
    w.jump_unless("eq", "i1", w.op(f"or i1 {ours}, {theirs}"), "true", "other")
    w.jump_unless("eq", "ptr", w.pointer(x, "object.dtype"), w.pointer(wanted, "argument.dtype"),
                  "other")
    flags = w.op(f"and i32 {w.word(x, 'object.flags', 'i32')}, {IN_ORDER}")
    w.jump_unless("eq", "i32", flags, str(IN_ORDER), "other")
    ndim = w.op(f"zext i32 {w.word(x, 'object.ndim', 'i32')} to i64")
    w.jump_unless("eq", "i64", ndim, w.word(wanted, "argument.ndim"), "other")
    size = w.op(f"shl i64 {ndim}, 3")
    dims = w.pointer(x, "object.dims"), w.pointer(wanted, "argument.dims")
    differ = w.op(f"call i32 @memcmp(ptr {dims[0]}, ptr {dims[1]}, i64 {size})")
    w.jump_unless("eq", "i32", differ, "0", "other")


def _make_arrays(w: _Writer, plan: str, items: str, made: str, last: str) -> None:
    """The arrays of a call, each into its slot."""
    with w.each(w.word(plan, "plan.arrays")) as j:
        new = w.at(w.pointer(plan, "plan.made"), j, MADE)
        kind, dtype = w.pointer(plan, "plan.class"), w.pointer(new, "made.dtype")
        ndim = w.op(f"trunc i64 {w.word(new, 'made.ndim')} to i32")
        w.line(f"call void @Py_IncRef(ptr {dtype})")  # the array takes over this reference
        create, dims = w.pointer(plan, "plan.PyArray_NewFromDescr"), w.pointer(new, "made.dims")
        y = w.op(f"call ptr {create}(ptr {kind}, ptr {dtype}, i32 {ndim}, ptr {dims}, ptr null, "
                 "ptr null, i32 0, ptr null)")
        w.jump_unless("ne", "ptr", y, "null", "leave")
        w.store("ptr", y, w.at(made, j))
        w.store("ptr", y, w.at(items, w.word(new, "made.slot")))
        w.store("i64", w.op(f"add i64 {j}, 1"), last)


def _run(w: _Writer, plan: str, slots: str, status: str) -> None:
    """The program; other threads run meanwhile if it lets them."""
    code = w.pointer(plan, "plan.run")
    w.jump_unless("eq", "i64", w.word(plan, "plan.lets"), "0", "long")
    w.store("i32", w.op(f"call i32 {code}(ptr {slots})"), status)
    w.line("br label %run")
    w.label("long")
    state = w.op("call ptr @PyEval_SaveThread()")
    w.store("i32", w.op(f"call i32 {code}(ptr {slots})"), status)
    w.line(f"call void @PyEval_RestoreThread(ptr {state})")
    w.line("br label %run")
    w.label("run")
    y = w.op(f"load i32, ptr {status}")
    w.jump_unless("ge", "i32", y, "0", "leave")
    w.jump_unless("eq", "i32", y, "0", "other")


def _finish_results(w: _Writer, plan: str, items: str, made: str) -> None:
    """The flags of the results, and copies of what others may hold."""
    mask = w.op(f"trunc i64 {w.word(plan, 'plan.flags')} to i32")
    with w.each(w.word(plan, "plan.results")) as k:
        y = w.op(f"load ptr, ptr {w.at(made, k)}")
        kept = w.op(f"and i32 {w.word(y, 'object.flags', 'i32')}, {mask}")
        w.store("i32", kept, w.shifted(y, OFFSETS["flags"]))
        result = w.at(w.pointer(plan, "plan.made"), k, MADE)
        size = w.word(result, "made.bytes")
        with w.where(w.compare("ne", "i64", size, "0")):
            source = w.op(f"load ptr, ptr {w.at(items, w.word(result, 'made.source'))}")
            w.copy(w.pointer(y, "object.data"), w.pointer(source, "object.data"), size)


def _answer(w: _Writer, plan: str, made: str, first: str, answer: str) -> None:
    """The result or a tuple of them; NotImplemented where the call is left to the caller."""
    results = w.word(plan, "plan.results")
    w.jump_unless("eq", "i64", results, "1", "several")
    w.store("ptr", w.op(f"load ptr, ptr {made}"), answer)
    w.line("br label %succeeded")
    w.label("several")
    y = w.op(f"call ptr @PyTuple_New(i64 {results})")
    w.jump_unless("ne", "ptr", y, "null", "leave")
    w.copy(w.shifted(y, OFFSETS["tuple"]), made, w.op(f"shl i64 {results}, 3"))
    w.store("ptr", y, answer)
    w.line("br label %succeeded")
    w.label("succeeded")
    w.store("i64", results, first)
    w.line("br label %leave")
    w.label("other")
    y = w.pointer(plan, "plan.NotImplemented")
    w.line(f"call void @Py_IncRef(ptr {y})")
    w.store("ptr", y, answer)
    w.line("br label %leave")
    w.label("leave")
