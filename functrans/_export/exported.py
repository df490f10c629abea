"""A compiled function that stands alone: in a file, or as a library for C with a header."""

from __future__ import annotations

import ast
import ctypes
import math
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from functrans import tree
from functrans._compile.emit.module import ARRAY_DATA, LIST_ITEMS
from functrans._compile.run import store
from functrans._compile.run.frame import Frame, Host
from functrans._compile.run.machine import CALLED, NativeUnavailable, local
from functrans._compile.run.native import Framed, NativeProgram
from functrans._core.array import PYTHON_SCALARS, dtype_of, shape_of
from functrans._core.bind import Tracer
from functrans._core.locks import compiler
from functrans._core.primitive import ZeroPolicy
from functrans._core.version import VERSION
from functrans._export import plain_c
from functrans._transforms.arguments import describe, hand_out_all, is_number
from functrans._transforms.staging.jit import Jitted
from functrans._transforms.staging.paths import TraceTree
from functrans.errors import ArgumentError, ShapeError, UnsupportedError, name_of

# ---- Exported functions for C: a header, and a library that the system's compiler links
#
# Compiled code takes a list of arrays as CPython lays it out, and reads from it only where numbers
# are. So a function of C lays out such a list on its stack, with the pointers that it gets.

# What NumPy's numbers are in C, by kind and size; complex ones are pairs.
_TYPES = {
    "f4": "float", "f8": "double", "c8": "float", "c16": "double", "b1": "uint8_t",
    **{f"i{n}": f"int{8 * n}_t" for n in (1, 2, 4, 8)},
    **{f"u{n}": f"uint{8 * n}_t" for n in (1, 2, 4, 8)},
}
WRONG_SIZE, NO_MEMORY = -1, -2
# What a function cannot be called in C or C++, beside what the C library has.
_KEYWORDS = """
    NULL alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl
    concept const const_cast consteval constexpr constinit continue decltype default delete do
    double dynamic_cast else enum explicit export extern false float for friend goto if inline int
    long main mutable namespace new noexcept not not_eq nullptr offsetof operator or or_eq private
    protected public register reinterpret_cast requires restrict return short signed sizeof static
    static_assert static_cast struct switch template this thread_local throw true try typedef
    typeid typename typeof union unsigned using virtual void volatile while xor xor_eq
"""


class Source(NamedTuple):
    """What a library is made of: ``text`` is an LLVM module."""

    name: str
    frame: Frame
    text: str
    options: dict[str, bool]

    @property
    def identifier(self) -> str:
        """The name of the function in C."""
        name = re.sub(r"\W", "_", self.name, flags=re.ASCII)
        return name if name[:1].isalpha() and not _is_taken(name) else f"f_{name}"


def _is_taken(name: str) -> bool:
    """Whether C has the name: the library's own calls of ``exp`` would go to a function ``exp``."""
    if name in _KEYWORDS.split() or re.fullmatch(r"\w+_t|(run|constant)\d+", name):
        return True
    try:
        return hasattr(ctypes.CDLL(None), name)
    except (OSError, TypeError):  # no such list on this system
        return hasattr(math, name)


def _declaration(s: Source) -> str:
    arguments = [
        f"const {_type(x.dtype)} *x{i}, size_t x{i}_size" for i, x in enumerate(s.frame.arguments)
    ]
    results = [
        f"{_type(y.dtype)} *y{i}, size_t y{i}_size" for i, y in enumerate(s.frame.results)
    ]
    return f"int {s.identifier}({', '.join([*arguments, *results]) or 'void'})"


def _type(dtype: np.dtype) -> str:
    name = _TYPES.get(f"{dtype.kind}{dtype.itemsize}")
    if name is None or dtype.char == "g":
        raise UnsupportedError(f"a library of C cannot take {dtype}; use float32 or float64")
    return name


def header(s: Source) -> str:
    """The header of the library."""
    lines = []
    for letter, places in (("x", s.frame.arguments), ("y", s.frame.results)):
        for i, x in enumerate(places):
            pairs = ", real and imaginary parts in turn" if x.dtype.kind == "c" else ""
            shape = " x ".join(map(str, x.shape)) or "1 number"
            lines.append(
                f" * {letter}{i}: {x.dtype}, {shape}, {letter}{i}_size = {_size(x)}{pairs}"
            )
    guard = f"FUNCTRANS_{s.identifier.upper()}_H"
    body = "\n".join(lines)
    name = s.name.replace("*/", "* /")
    return f"""\
/* {name}, exported by functrans {VERSION}.
 *
{body}
 *
 * Arrays are contiguous, the last axis fastest, and results do not overlap arguments. Sizes are
 * numbers of entries. Returns 0; {WRONG_SIZE} if a size is wrong, {NO_MEMORY} without memory;
 * a positive number where there is no result, as for a singular matrix. Threads may share it.
 */
#ifndef {guard}
#define {guard}
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {{
#endif
{_declaration(s)};
#ifdef __cplusplus
}}
#endif
#endif
"""


def _size(x: object) -> int:
    """The length in C's numbers."""
    number = math.prod(x.shape)  # type: ignore[attr-defined]  # of Argument and Result
    return number * (2 if x.dtype.kind == "c" else 1)  # type: ignore[attr-defined]


def wrapper(s: Source) -> str:
    """The function in C, which lays out the list and calls the compiled code."""
    frame = s.frame
    first = len(frame.arguments)
    constants = [_constant(k, x) for k, x in enumerate(frame.constants)]
    checks = [f"  if (x{i}_size != {_size(x)}) return {WRONG_SIZE};"
              for i, x in enumerate(frame.arguments)]
    checks += [f"  if (y{i}_size != {_size(y)}) return {WRONG_SIZE};"
               for i, y in enumerate(frame.results)]
    places = [f"  arrays[{i}].data = (void *)x{i};" for i in range(first)]
    places += [f"  arrays[{first + k}].data = (void *)constant{k};" for k in range(len(constants))]
    direct: dict[int, int] = {}
    for i, y in enumerate(frame.results):
        if not y.copied and y.slot not in direct:
            direct[y.slot] = i
            places.append(f"  arrays[{y.slot}].data = y{i};")
    made = [b for run in frame.segments for b in run.makes if b.slot not in direct]
    sizes = {b.slot: math.prod(b.shape) * b.dtype.itemsize for b in made}
    places += [f"  if (!(arrays[{slot}].data = memory{slot} = malloc({size or 1}))) goto end;"
               for slot, size in sizes.items()]
    calls = [f"  {run.name}(&list, 0, {run.chunks});" if run.chunks > 1
             else f"  if ((status = {run.name}(&list))) goto end;" for run in frame.segments]
    copies = [
        f"  memcpy(y{i}, arrays[{y.slot}].data, {math.prod(y.shape) * y.dtype.itemsize});"
        for i, y in enumerate(frame.results) if direct.get(y.slot) != i
    ]
    declared = [f"extern void {run.name}(void *, int64_t, int64_t);" if run.chunks > 1
                else f"extern int {run.name}(void *);" for run in frame.segments]
    body = [
        *checks, f"  struct array arrays[{max(frame.slots, 1)}];",
        f"  void *items[{max(frame.slots, 1)}];", "  struct list list;",
        f"  int status = {NO_MEMORY};", *[f"  void *memory{slot} = NULL;" for slot in sizes],
        f"  for (int i = 0; i < {frame.slots}; i++) items[i] = &arrays[i];",
        "  list.items = items;", *places, "  status = 0;", *calls, *copies, "  goto end;", "end:",
        *[f"  free(memory{slot});" for slot in sizes], "  return status;",
    ]
    return "\n".join([
        '#include "header.h"', "#include <stdlib.h>", "#include <string.h>",
        f"struct array {{ char head[{ARRAY_DATA}]; void *data; }};",
        f"struct list {{ char head[{LIST_ITEMS}]; void **items; }};",
        *declared, *constants, *_without_python(s),
        f'__attribute__((visibility("default"))) {_declaration(s)} {{', *body, "}", "",
    ])


def _constant(k: int, x: np.ndarray) -> str:
    entries = ",".join(map(str, np.ascontiguousarray(x).reshape(-1).view(np.uint8).tolist()))
    aligned = f"static const unsigned char constant{k}[] __attribute__((aligned(64)))"
    return f"{aligned} = {{{entries or 0}}};"


def _without_python(s: Source) -> list[str]:
    """What long loops call to look for Python's signals: nothing."""
    called = {name.decode() for name in CALLED.findall(s.text.encode())}
    return [f"int64_t {name}(int64_t x) {{ return 0; }}" for name in sorted(called)]


def build(s: Source, path: Path) -> None:
    """Compile and link the library."""
    called = plain_c.call(s.text)
    brought = plain_c.missing(called)
    if brought:
        raise UnsupportedError(
            f"shared_library: {s.name} calls {' and '.join(brought)}, which Python's libraries "
            "bring along. Save it with .save(path) instead."
        )
    named = os.environ.get("CC", "").split() or ["cc"]
    cc = shutil.which(named[0])
    if cc is None:
        raise UnsupportedError(
            f"shared_library: there is no C compiler `{named[0]}`; install one, or name it in the "
            "environment variable CC"
        )
    with compiler():
        code = local().translate(s.text, s.options, library=True)
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        (where / "header.h").write_text(header(s))
        (where / "wrapper.c").write_text(wrapper(s))
        (where / "code.o").write_bytes(code)
        (where / "loops.c").write_text(plain_c.source(called))
        libraries = ["-lmvec"] * (b"_ZGV" in code) + ["-lm"]
        command = [cc, *named[1:], "-O3", "-shared", "-fPIC", "-fvisibility=hidden",
                   "-o", str(path.absolute()), "wrapper.c", "loops.c", "code.o", *libraries,
                   "-Wl,-z,defs"]
        made = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    if made.returncode:
        raise ArgumentError(f"shared_library: {cc} failed for {path}: {made.stderr.strip()}")


# ---- A compiled function that stands alone: machine code, its frame, how its containers nest
#
# A file has the format of the cache on disk: lines of text, then object code. What is read from it
# is data and machine code; no code of Python's is looked up or run.

MAGIC = b"functrans export 2"
ANY = float("inf")


class Code(NamedTuple):
    """What is kept: the text of the LLVM module is None where it was loaded from a file."""

    name: str
    frame: Frame
    object: bytes
    text: str | None
    options: dict[str, bool]
    arguments: tree.Structure
    result: tree.Structure


class Exported:
    """A function compiled for arguments of certain shapes and dtypes, without its Python.

    Called with positional arguments of the structure, shapes and dtypes of the examples.
    """

    def __init__(self, code: Code):
        self._code = code
        names = [x.name for x in code.frame.segments]
        engine, functions = None, {}
        if names:
            with compiler():
                engine, functions = local().load(code.object, names)
        self._call = Framed(code.frame, functions, engine)

    def __call__(self, *args: Any) -> Any:
        leaves, structure = tree.flatten(args)
        if structure != self._code.arguments:
            raise ArgumentError(
                f"{self!r} takes arguments that nest as {self._code.arguments!r}, but got "
                f"{describe(args)}"
            )
        for i, (x, made) in enumerate(zip(leaves, self._code.frame.arguments, strict=True)):
            if isinstance(x, Tracer):
                raise UnsupportedError(
                    f"{self!r} got {x!r}: it is machine code, which no transform looks into. "
                    "Transform the function and export what that returns, as "
                    "ft.export(ft.grad(f), x); inside of transforms call the function itself."
                )
            if not is_number(x):
                raise ArgumentError(f"{self!r} takes numbers and arrays, but got {describe(x)}")
            if shape_of(x) != made.shape:
                raise ShapeError(
                    f"{self!r}: value {i} of {describe(args)} has shape {shape_of(x)}, but the "
                    f"program was made for {made.shape}"
                )
            if not _can_take(made.dtype, x):
                raise ArgumentError(
                    f"{self!r}: value {i} of {describe(args)} is {_type_of(x)}, but the program "
                    f"was made for {made.dtype}. Convert it, or export with such an example."
                )
        ys = self._call(leaves)
        return tree.unflatten(self._code.result, hand_out_all(list(ys)))

    def __repr__(self) -> str:
        takes = ", ".join([f"{x.dtype}{list(x.shape)}" for x in self._code.frame.arguments])
        return f"<{self._code.name}({takes}), exported>"

    def __reduce__(self) -> tuple:
        return _unpickle, (self._bytes(),)

    # ---- files

    def save(self, path: str | os.PathLike) -> None:
        """Write the function to a file, for ``functrans.load``."""
        Path(path).write_bytes(self._bytes())

    def _bytes(self) -> bytes:
        code = self._code
        notes = [
            ("name", code.name), ("functrans", VERSION), *_machine(),
            ("arguments", _write(code.arguments)), ("result", _write(code.result)),
            ("frame", code.frame.text(ANY)),
        ]
        return store.pack(MAGIC, store.key_of(code.name), code.object, notes)

    # ---- C

    def c_source_header(self) -> str:
        """A header of C: the function, of pointers and sizes."""
        return header(self._source())

    def shared_library(self, path: str | os.PathLike) -> None:
        """Write a shared library with the function of ``c_source_header``, which needs no Python.

        It is linked by the system's C compiler, ``cc`` or what the variable CC names.
        """
        build(self._source(), Path(path))

    def _source(self) -> Source:
        code = self._code
        if code.text is None:
            raise UnsupportedError(
                f"{self!r} was loaded from a file, which holds code for Python alone. Make "
                "libraries of what export returns."
            )
        return Source(code.name, code.frame, code.text, code.options)


_KINDS = {int: "iufc", float: "fc", complex: "c"}


def _can_take(dtype: np.dtype, x: Any) -> bool:
    """Whether a value is what a program was made for: an array of the dtype in any byte order, a
    Python number of which nothing is cut off."""
    if type(x) in PYTHON_SCALARS:
        return dtype.kind in _KINDS[type(x)]
    return dtype_of(x).newbyteorder("=") == dtype


def _type_of(x: Any) -> str:
    return type(x).__name__ if type(x) in PYTHON_SCALARS else str(dtype_of(x))


# ---- making one


def export(f: Callable, jitted: Jitted, examples: tuple) -> Exported:
    """``f`` compiled for arguments like ``examples``."""
    name = name_of(f)
    given = jitted.signature.of(examples, {})
    entry, operands = jitted._entry(given, ZeroPolicy.BY_ROW)
    if isinstance(entry, TraceTree):
        raise UnsupportedError(
            f"export: `{name}` decides by values, in Python, so that it is not one program. Use "
            "ft.cond or np.where."
        )
    if entry is None or (entry.closes_over and not entry.draws):
        raise UnsupportedError(
            f"export: `{name}` closes over a value that a transform traces; export it outside of "
            "the transform"
        )
    if entry.draws:
        raise UnsupportedError(
            f"export: `{name}` draws random numbers of a generator, which stays here. Pass the "
            "numbers as an argument, or draw from a key, by functrans.random.normal(key)."
        )
    if entry.check_integers is not None:
        raise UnsupportedError(
            f"export: `{name}` computes with Python's integers, which are checked at each call. "
            "Pass np.int64 or floats."
        )
    if given.fixed:
        raise ArgumentError(
            f"export: `{name}` takes numbers and arrays, but got {describe(given.fixed)}"
        )
    program = entry.executable.program
    try:
        with compiler():
            native = NativeProgram(program, entry.rounding)
        native(operands)  # which verifies it
    except NativeUnavailable as e:
        raise UnsupportedError(f"export: `{name}` has no native code: {e}") from None
    frame = native.frame
    host = next((x for x in frame.runs if isinstance(x, Host)), None)
    if host is not None or native.verified is None:
        runs = [e for e in program.eqns if host is not None and e.prim.impl is host.impl]
        step = ", ".join([f"`{e.prim.name}` at {e.line}" for e in runs[:1]]) or "a loop of it"
        raise UnsupportedError(
            f"export: `{name}` has a step that NumPy runs ({step}); jit(f).lower(...) shows them"
        )
    with compiler():
        code = local().translate(native.llvm, native.options) if native.llvm else b""
    arguments = tree.flatten(examples)[1]
    return Exported(
        Code(name, frame, code, native.llvm, native.options, arguments, entry.structure)
    )


# ---- reading one


def load(path: str | os.PathLike) -> Exported:
    """The function that a file was written for."""
    try:
        contents = store.read(Path(path), MAGIC)
    except OSError as e:
        raise ArgumentError(f"load: {os.fspath(path)!r} cannot be read: {e.strerror}") from None
    if contents is None:
        raise ArgumentError(
            f"load: {os.fspath(path)!r} is not a file that this version of functrans has exported, "
            "or has been changed, or others may write to it: it holds code that would be run"
        )
    return _open(f"load: {os.fspath(path)!r}", *contents[1:])


def _unpickle(data: bytes) -> Exported:
    contents = store.opened(data, MAGIC)
    if contents is None:
        raise ArgumentError("an exported function was pickled by another version of functrans")
    return _open("an exported function", *contents[1:])


def _open(who: str, notes: dict[str, str], code: bytes) -> Exported:
    for name, here in _machine():
        if notes.get(name) != here:
            raise ArgumentError(
                f"{who} is for the {name} {notes.get(name)}, but this is {here}. Export it here."
            )
    frame = Frame.read(notes["frame"])
    structures = [_read(notes[name]) for name in ("arguments", "result")]
    try:
        return Exported(Code(notes["name"], frame, code, None, {}, *structures))
    except NativeUnavailable as e:
        raise UnsupportedError(f"{who} cannot be loaded: {e}") from None


def _machine() -> list[tuple[str, str]]:
    """What object code depends on."""
    machine = local()
    return [("platform", machine.llvm.get_process_triple()), ("processor", machine.cpu),
            ("instructions", " ".join(machine.features.split(",")))]


# ---- containers, as far as they are Python's own


def _write(structure: tree.Structure) -> str:
    """An example, whose structure is as ``tree`` has it, as Python's text."""
    # in files, spaces that follow each other are one
    text = " ".join(repr(tree.unflatten(structure, [0.0] * structure.size)).split())
    try:
        same = _read(text) == structure
    except (SyntaxError, ValueError):
        same = False
    if not same:
        raise UnsupportedError(
            f"export: {structure!r} cannot be written to a file, which knows tuples, lists and "
            "dicts with keys that are texts or integers; a class would have to be imported"
        )
    return text


def _read(text: str) -> tree.Structure:
    return tree.flatten(ast.literal_eval(text))[1]
