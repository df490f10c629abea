"""A compiled function that stands alone: machine code, its frame, how its containers nest.

A file has the format of the cache on disk: lines of text, then object code. What is read from it
is data and machine code; no code of Python's is looked up or run.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from functrans import tree
from functrans._compile.run import store
from functrans._compile.run.frame import Frame, Host
from functrans._compile.run.framed import Framed
from functrans._compile.run.machine import NativeUnavailable, local
from functrans._compile.run.native import NativeProgram
from functrans._core.aval import PYTHON_SCALARS, dtype_of, shape_of
from functrans._core.bind import Tracer
from functrans._core.locks import compiler
from functrans._core.products import Products
from functrans._core.version import VERSION
from functrans._export.c_library import Source, build, header
from functrans._transforms.arguments import describe, hand_out_all, is_number
from functrans._transforms.staging.jit import Jitted
from functrans._transforms.staging.paths import Tree
from functrans.errors import ArgumentError, ShapeError, UnsupportedError, name_of

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
        return _unpickled, (self._bytes(),)

    # ---- files

    def save(self, path: str | os.PathLike) -> None:
        """Write the function to a file, for ``functrans.load``."""
        Path(path).write_bytes(self._bytes())

    def _bytes(self) -> bytes:
        code = self._code
        notes = [
            ("name", code.name), ("functrans", VERSION), *_machine(),
            ("arguments", _written(code.arguments)), ("result", _written(code.result)),
            ("frame", code.frame.text(ANY)),
        ]
        return store.packed(MAGIC, store.key_of(code.name), code.object, notes)

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


def exported(f: Callable, jitted: Jitted, examples: tuple) -> Exported:
    """``f`` compiled for arguments like ``examples``."""
    name = name_of(f)
    given = jitted.signature.of(examples, {})
    entry, operands = jitted._entry(given, Products.BY_ROW)
    if isinstance(entry, Tree):
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


def loaded(path: str | os.PathLike) -> Exported:
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
    return _opened(f"load: {os.fspath(path)!r}", *contents[1:])


def _unpickled(data: bytes) -> Exported:
    contents = store.opened(data, MAGIC)
    if contents is None:
        raise ArgumentError("an exported function was pickled by another version of functrans")
    return _opened("an exported function", *contents[1:])


def _opened(who: str, notes: dict[str, str], code: bytes) -> Exported:
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


def _written(structure: tree.Structure) -> str:
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
