"""Exported functions for C: a header, and a library that the system's compiler links.

Compiled code takes a list of arrays as CPython lays it out, and reads from it only where numbers
are. So a function of C lays out such a list on its stack, with the pointers that it gets.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from functrans._compile.emit.module import ARRAY_DATA, LIST_ITEMS
from functrans._compile.run.frame import Frame
from functrans._compile.run.machine import CALLED, local
from functrans._core.locks import compiler
from functrans._core.version import VERSION
from functrans._export import plain_loops
from functrans.errors import ArgumentError, UnsupportedError

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
    called = plain_loops.called(s.text)
    brought = plain_loops.missing(called)
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
        (where / "loops.c").write_text(plain_loops.source(called))
        libraries = ["-lmvec"] * (b"_ZGV" in code) + ["-lm"]
        command = [cc, *named[1:], "-O3", "-shared", "-fPIC", "-fvisibility=hidden",
                   "-o", str(path.absolute()), "wrapper.c", "loops.c", "code.o", *libraries,
                   "-Wl,-z,defs"]
        made = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    if made.returncode:
        raise ArgumentError(f"shared_library: {cc} failed for {path}: {made.stderr.strip()}")
