"""The function that CPython calls for a compiled program, in LLVM's language.

What a program needs is read from its plan, so the function is compiled once for all of them. A plan
is a tree: a node is straight code and says what is decided behind it, an edge what was decided; a
leaf returns. A program without decisions is a leaf.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product

import numpy as np

from functrans._compile.emit.module import ARRAY_DATA, HEADER, LIST_ITEMS
from functrans._compile.lowering.numbers import Code, is_float, stored_type
from functrans._core.array import Array

# Where CPython and NumPy keep things, in bytes from the start of an object; tried out in entry.py.
OFFSETS = {"type": HEADER - 8, "value": HEADER, "tuple": tuple.__basicsize__, "items": LIST_ITEMS,
           "data": ARRAY_DATA, "ndim": HEADER + 8, "dims": HEADER + 16, "dtype": HEADER + 40,
           "flags": HEADER + 48}
# Bits of an array's flags: C-contiguous and aligned; writeable.
IN_ORDER, WRITEABLE = 0x0001 | 0x0100, 0x0400
# Most arguments and most results of a program with an entry; most large arrays that the pieces on
# one path hand on.
MOST, LARGE = 512, 64
# What an argument may be: an array; float64[], also as NumPy's scalar; a Python float or int.
ARRAY, SCALAR, FLOAT, INT = range(4)
OBJECTS = {"ndarray": np.ndarray, "Array": Array, "float": float, "int": int,
           "float64": np.float64, "bytes": np.dtype(np.uint8), "NotImplemented": NotImplemented}
# A number for each way to decide: the kind of number there is, and what Python makes of it.
HOW = {way: i for i, way in enumerate(product("?bhilqfd", (bool, int, float)), 1)}
# The words of a plan, and of what it points to. Native code finds an argument through ``data`` of
# its record; ``integer`` is where that of a Python int is.
PLAN = (*OBJECTS, "PyArray_NewFromDescr", "arguments", "argument", "class", "flags", "clock",
        "busy", "root", "guards", "guard", "stale")
ARGUMENT = ("kind", "dtype", "ndim", "dims", "data", "integer")
# ``slots``: what the code takes for a list; ``large``: bytes of an array for what it fills, 0 if
# that has its place in the plan; ``how``: 0 of a leaf; ``test``: where the address of a number is.
NODE = ("run", "lets", "slots", "large", "fills", "fill", "how", "test", "children", "child",
        "results", "made", "label", "used")
FILL = ("cell", "offset")
GUARD = ("address", "first", "second")
CHILD = ("key", "node")
MADE = ("slot", "dtype", "ndim", "dims", "bytes", "source")
# Where each word is, in bytes from the start of its record, or of an object.
PLACES = {f"{record}.{word}": 8 * i
          for record, words in (("plan", PLAN), ("argument", ARGUMENT), ("node", NODE),
                                ("fill", FILL), ("child", CHILD), ("made", MADE),
                                ("guard", GUARD))
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

    def room(self, t: str) -> str:
        """Memory on the stack, also for what stands in a loop."""
        name = self.fresh("room")
        self.lines.insert(0, f"  {name} = alloca {t}")
        return name

    def store(self, t: str, x: str, where: str) -> None:
        self.line(f"store {t} {x}, ptr {where}")

    def jump_unless(self, how: str, t: str, x: str, y: str, label: str) -> None:
        """Go on only where the comparison holds, else to a label."""
        stay = self.fresh("stay")[1:]
        self.line(f"br i1 {self.compare(how, t, x, y)}, label %{stay}, label %{label}")
        self.label(stay)

    def switch(self, x: str, labels: list[str]) -> None:
        """Jump to the label with a number."""
        cases = " ".join([f"i64 {i}, label %{label}" for i, label in enumerate(labels)])
        self.line(f"switch i64 {x}, label %other [ {cases} ]")

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
    made, held = (w.room(f"[{n} x ptr]") for n in (MOST, LARGE))
    first, last, large, node, answer = map(w.room, ("i64", "i64", "i64", "ptr", "ptr"))
    # which of the arrays that were made are dropped at the end: all, until the call has succeeded
    for count in (first, last, large):
        w.store("i64", "0", count)
    w.store("ptr", "null", answer)  # which means that an exception is set
    plan = w.pointer(w.pointer("%self", "object.tuple"), "object.data")
    busy = w.shifted(plan, PLACES["plan.busy"])
    w.jump_unless("eq", "i64", w.op(f"load i64, ptr {busy}"), "0", "busy")
    w.store("i64", "1", busy)
    _compare(w, plan)
    _take_arguments(w, plan)
    w.store("ptr", w.pointer(plan, "plan.root"), node)
    w.line("br label %next")
    w.label("next")
    at = w.op(f"load ptr, ptr {node}")
    slots = w.pointer(at, "node.slots")
    _make_room(w, plan, at, held, large)
    _make_arrays(w, plan, at, slots, made, last)
    _run(w, at, slots)
    w.jump_unless("ne", "i64", w.word(at, "node.how"), "0", "leaf")
    _decide(w, at, node)
    w.label("leaf")
    _finish_results(w, plan, at, slots, made)
    _answer(w, plan, at, made, first, answer)
    for table, start, end in ((made, first, last), (held, None, large)):
        lo, hi = ("0" if x is None else w.op(f"load i64, ptr {x}") for x in (start, end))
        with w.each(w.op(f"sub i64 {hi}, {lo}")) as n:
            dropped = w.op(f"load ptr, ptr {w.at(table, w.op(f'add i64 {lo}, {n}'))}")
            w.line(f"call void @Py_DecRef(ptr {dropped})")
    w.store("i64", "0", busy)
    w.line(f"ret ptr {w.op(f'load ptr, ptr {answer}')}")
    w.label("stale")
    w.store("i64", "1", w.pointer(plan, "plan.stale"))
    w.store("i64", "0", busy)
    w.line("br label %busy")
    # another thread, or a signal handler, while the code of a call runs
    w.label("busy")
    y = w.pointer(plan, "plan.NotImplemented")
    w.line(f"call void @Py_IncRef(ptr {y})")
    w.line(f"ret ptr {y}")
    # tables are short: loops over them are not to be vectorised
    function = w.function("ptr @entry", "ptr %self, ptr %args, i64 %nargs",
                          "nounwind noimplicitfloat")
    return "\n".join([DECLARED, *w.functions.values(), function])


def _compare(w: _Writer, plan: str) -> None:
    """Go on only where the words in memory are as they were that ``guards.py`` has found."""
    table = w.pointer(plan, "plan.guard")
    with w.each(w.word(plan, "plan.guards")) as i:
        guard = w.at(table, i, GUARD)
        at = w.pointer(guard, "guard.address")
        differ = [w.op(f"xor i64 {w.op(f'load i64, ptr {x}')}, {w.word(guard, f'guard.{word}')}")
                  for x, word in ((at, "first"), (w.shifted(at, 8), "second"))]
        w.jump_unless("eq", "i64", w.op(f"or i64 {differ[0]}, {differ[1]}"), "0", "stale")


def _take_arguments(w: _Writer, plan: str) -> None:
    """Where the numbers of each argument are, noted in its record."""
    overflow, count = w.room("i32"), w.word(plan, "plan.arguments")
    w.jump_unless("eq", "i64", "%nargs", count, "other")
    with w.each(count) as i:
        wanted = w.at(w.pointer(plan, "plan.argument"), i, ARGUMENT)
        cell, integer = (w.shifted(wanted, PLACES[f"argument.{x}"]) for x in ("data", "integer"))
        x = w.op(f"load ptr, ptr {w.at('%args', i)}")
        kind = w.pointer(x, "object.type")
        w.store("ptr", w.shifted(x, OFFSETS["value"]), cell)
        w.line(f"switch i64 {w.word(wanted, 'argument.kind')}, label %other [ "
               f"i64 {ARRAY}, label %array i64 {SCALAR}, label %scalar "
               f"i64 {FLOAT}, label %float i64 {INT}, label %int ]")
        w.label("scalar")
        w.jump_unless("eq", "ptr", kind, w.pointer(plan, "plan.float64"), "array")
        w.line("br label %taken")
        w.label("float")
        w.jump_unless("eq", "ptr", kind, w.pointer(plan, "plan.float"), "other")
        w.line("br label %taken")
        w.label("int")
        w.jump_unless("eq", "ptr", kind, w.pointer(plan, "plan.int"), "other")
        value = w.op(f"call i64 @PyLong_AsLongLongAndOverflow(ptr {x}, ptr {overflow})")
        w.store("i64", value, integer)
        w.store("ptr", integer, cell)
        w.jump_unless("eq", "i32", w.op(f"load i32, ptr {overflow}"), "0", "other")
        w.line("br label %taken")
        w.label("array")
        _require_array(w, plan, wanted, x, kind)
        w.store("ptr", w.pointer(x, "object.data"), cell)
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


def _make_room(w: _Writer, plan: str, node: str, held: str, large: str) -> None:
    """An array for what the code of a node fills beside results, if that is large."""
    with w.where(w.compare("ne", "i64", w.word(node, "node.large"), "0")):
        n = w.op(f"load i64, ptr {large}")
        w.jump_unless("lt", "i64", n, str(LARGE), "other")
        y = _new_array(w, plan, "ndarray", w.pointer(plan, "plan.bytes"), "1",
                       w.shifted(node, PLACES["node.large"]))
        w.store("ptr", y, w.at(held, n))
        w.store("i64", w.op(f"add i64 {n}, 1"), large)
        data = w.pointer(y, "object.data")
        with w.each(w.word(node, "node.fills")) as i:
            fill = w.at(w.pointer(node, "node.fill"), i, FILL)
            w.store("ptr", w.shifted(data, w.word(fill, "fill.offset")),
                    w.pointer(fill, "fill.cell"))


def _slot(w: _Writer, slots: str, i: str) -> str:
    """The address of a slot."""
    return w.at(w.op(f"load ptr, ptr {w.shifted(slots, LIST_ITEMS)}"), i)


def _make_arrays(w: _Writer, plan: str, node: str, slots: str, made: str, last: str) -> None:
    """The results of a leaf, each into its slot."""
    with w.each(w.word(node, "node.results")) as j:
        new = w.at(w.pointer(node, "node.made"), j, MADE)
        ndim = w.op(f"trunc i64 {w.word(new, 'made.ndim')} to i32")
        y = _new_array(w, plan, "class", w.pointer(new, "made.dtype"), ndim,
                       w.pointer(new, "made.dims"))
        w.store("ptr", y, w.at(made, j))
        w.store("ptr", y, _slot(w, slots, w.word(new, "made.slot")))
        w.store("i64", w.op(f"add i64 {j}, 1"), last)


def _new_array(w: _Writer, plan: str, kind: str, dtype: str, ndim: str, dims: str) -> str:
    w.line(f"call void @Py_IncRef(ptr {dtype})")  # the array takes over this reference
    create, kind = w.pointer(plan, "plan.PyArray_NewFromDescr"), w.pointer(plan, f"plan.{kind}")
    y = w.op(f"call ptr {create}(ptr {kind}, ptr {dtype}, i32 {ndim}, ptr {dims}, ptr null, "
             "ptr null, i32 0, ptr null)")
    w.jump_unless("ne", "ptr", y, "null", "leave")
    return y


def _run(w: _Writer, node: str, slots: str) -> None:
    """The code, if there is any; other threads run meanwhile if it lets them."""
    status = w.room("i32")
    code = w.pointer(node, "node.run")
    w.jump_unless("ne", "ptr", code, "null", "ran")
    w.jump_unless("eq", "i64", w.word(node, "node.lets"), "0", "long")
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
    w.line("br label %ran")
    w.label("ran")


def _decide(w: _Writer, node: str, following: str) -> None:
    """Go to the child for what Python would make of a number, to "other" if there is none."""
    key = w.room("i64")
    data = w.op(f"load ptr, ptr {w.pointer(node, 'node.test')}")
    w.switch(w.word(node, "node.how"), ["other", *[f"how{i}" for i in range(1, len(HOW) + 1)]])
    for (char, kind), i in HOW.items():
        w.label(f"how{i}")
        t = stored_type(np.dtype(char))
        x, wide = w.op(f"load {t}, ptr {data}"), "double" if is_float(t) else "i64"
        if t != wide:
            cast = "fpext" if is_float(t) else "zext" if char == "?" else "sext"
            x = w.op(f"{cast} {t} {x} to {wide}")
        w.store("i64", _key(w, kind, wide, x), key)
        w.line("br label %find")
    w.label("find")
    wanted = w.op(f"load i64, ptr {key}")
    with w.each(w.word(node, "node.children")) as i:
        child = w.at(w.pointer(node, "node.child"), i, CHILD)
        w.store("ptr", w.pointer(child, "child.node"), following)
        w.jump_unless("ne", "i64", w.word(child, "child.key"), wanted, "next")
    w.line("br label %other")


def _key(w: _Writer, kind: type, t: str, x: str) -> str:
    """The key of a bool, int or float made of a number; Python raises what this leaves to it."""
    if kind is bool:
        some = w.compare("ne", t, x, "0.0" if is_float(t) else "0")  # NaN is true
        return w.op(f"zext i1 {some} to i64")
    if kind is int and is_float(t):
        w.jump_unless("lt", t, w.call("fabs", t, x), w.number(t, 2.0**63), "other")
        return w.op(f"fptosi {t} {x} to i64")
    if kind is float:
        x = x if is_float(t) else w.op(f"sitofp i64 {x} to double")
        w.jump_unless("eq", "double", x, x, "other")
        return w.op(f"bitcast double {x} to i64")
    return x


def _finish_results(w: _Writer, plan: str, leaf: str, slots: str, made: str) -> None:
    """The flags of the results, and copies of what others may hold."""
    mask = w.op(f"trunc i64 {w.word(plan, 'plan.flags')} to i32")
    with w.each(w.word(leaf, "node.results")) as k:
        y = w.op(f"load ptr, ptr {w.at(made, k)}")
        kept = w.op(f"and i32 {w.word(y, 'object.flags', 'i32')}, {mask}")
        w.store("i32", kept, w.shifted(y, OFFSETS["flags"]))
        result = w.at(w.pointer(leaf, "node.made"), k, MADE)
        size = w.word(result, "made.bytes")
        with w.where(w.compare("ne", "i64", size, "0")):
            source = w.op(f"load ptr, ptr {_slot(w, slots, w.word(result, 'made.source'))}")
            w.copy(w.pointer(y, "object.data"), w.pointer(source, "object.data"), size)


def _answer(w: _Writer, plan: str, leaf: str, made: str, first: str, answer: str) -> None:
    """The result, or a tuple of them and perhaps of a label; NotImplemented where the call is left
    to the caller."""
    results, label = w.word(leaf, "node.results"), w.pointer(leaf, "node.label")
    labelled = w.op(f"zext i1 {w.compare('ne', 'ptr', label, 'null')} to i64")
    n = w.op(f"add i64 {results}, {labelled}")
    w.jump_unless("eq", "i64", n, "1", "several")
    w.store("ptr", w.op(f"load ptr, ptr {made}"), answer)
    w.line("br label %succeeded")
    w.label("several")
    y = w.op(f"call ptr @PyTuple_New(i64 {n})")
    w.jump_unless("ne", "ptr", y, "null", "leave")
    entries = w.shifted(y, OFFSETS["tuple"])
    w.copy(entries, made, w.op(f"shl i64 {results}, 3"))
    with w.where(w.compare("ne", "ptr", label, "null")):
        w.line(f"call void @Py_IncRef(ptr {label})")
        w.store("ptr", label, w.at(entries, results))
    w.store("ptr", y, answer)
    w.line("br label %succeeded")
    w.label("succeeded")
    w.store("i64", results, first)
    clock = w.pointer(plan, "plan.clock")
    time = w.op(f"add i64 {w.op(f'load i64, ptr {clock}')}, 1")
    w.store("i64", time, clock)
    w.store("i64", time, w.pointer(leaf, "node.used"))
    w.line("br label %leave")
    w.label("other")
    y = w.pointer(plan, "plan.NotImplemented")
    w.line(f"call void @Py_IncRef(ptr {y})")
    w.store("ptr", y, answer)
    w.line("br label %leave")
    w.label("leave")
