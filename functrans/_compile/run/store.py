"""Object code on disk: a file for each compiled module, named by a hash of all it depends on."""

from __future__ import annotations

import functools
import importlib
import os
import stat
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.ir.program import Atom, Const, Program, Structured, Var
from functrans._core.locks import Lock
from functrans.errors import ArgumentError, warn

# ---- The state of this library's own sources: part of each key on disk

# The parts of the package that decide what a program's machine code is.
PARTS = ("_core", "_kernels", "_ops", "_compile")


@functools.cache
def stamp() -> str:
    """A text that differs between any two states of the sources."""
    package = Path(__file__).parents[2]
    return "".join([stamp_of(package / part) for part in PARTS])


def stamp_of(folder: Path) -> str:
    """Names, sizes and times of the sources below a folder."""
    return str(sorted(_sources(folder, "")))


def _sources(folder: Path | str, prefix: str) -> Iterator[tuple[str, int, int]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:  # in an archive, which has a version of its own
        return
    for entry in entries:
        if entry.name.endswith(".py"):
            status = entry.stat()
            yield prefix + entry.name, status.st_size, status.st_mtime_ns
        elif entry.is_dir() and entry.name != "__pycache__":
            yield from _sources(entry.path, f"{prefix}{entry.name}/")


# ---- Object code on disk: a file for each compiled module, named by a hash of all it depends on
#
# A file is text lines, an empty line, and the object code:
#
#     functrans object 2
#     <sha256 of everything behind this line>
#     <key: 64 hexadecimal digits>
#     program: (float64[100]) -> (float64[100]), 12 equations, model.py:7
#     functrans: 0.1.0
#
# The disk never causes an error: what cannot be read is compiled, what cannot be written is not
# kept. Writers write under a name of their own and then rename, so readers only see whole files.
#
# Code from here is run, so anything that someone else could have written is refused: files and
# directories that other users own or may write to, and whatever is not a regular file.

MAGIC = b"functrans object 2"
# The bound in MB unless FUNCTRANS_CACHE_SIZE sets one.
SIZE = 256.0
# Bytes of the largest file that is kept or read.
LARGEST = 1 << 28
# Seconds after which a file that a writer left unfinished is swept up.
ABANDONED = 3600.0

_on: ContextVar[bool] = ContextVar("cache", default=True)


class Entry(NamedTuple):
    """A file of the cache: where it is, what is in it, its bytes, when it was last used."""

    path: Path
    program: str
    functrans: str
    size: int
    used: float


# ---- settings


def directory() -> Path:
    """Where compiled kernels are kept: ``FUNCTRANS_CACHE_DIR``, or the platform's cache."""
    if named := os.environ.get("FUNCTRANS_CACHE_DIR"):
        return Path(named).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "functrans"


def is_enabled() -> bool:
    """Whether code is read from disk and kept there."""
    asked = os.environ.get("FUNCTRANS_CACHE", "1")
    if asked not in ("0", "1", ""):
        raise ArgumentError(
            f"the environment variable FUNCTRANS_CACHE is {asked!r}; it is 0 for no cache on disk, "
            "or 1. Name the directory of the cache in FUNCTRANS_CACHE_DIR."
        )
    return _on.get() and asked != "0"


@contextmanager
def off() -> Iterator[None]:
    """Nothing is read from the cache or kept in it during a ``with`` block."""
    token = _on.set(False)
    try:
        yield
    finally:
        _on.reset(token)


def limit() -> float:
    """Bytes that the cache may hold: ``FUNCTRANS_CACHE_SIZE`` in MB."""
    named = os.environ.get("FUNCTRANS_CACHE_SIZE", "")
    try:
        megabytes = float(named) if named else SIZE
    except ValueError:
        text = f"FUNCTRANS_CACHE_SIZE is {named!r}, not a number of MB; {SIZE:g} is taken"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        megabytes = SIZE
    return megabytes * 1e6


# ---- one file


def key_of(*parts: str) -> str:
    """The name of something that depends on these texts alone."""
    datas = [part.encode() for part in parts]
    # with lengths, so that no two lists of texts give the same bytes
    return _sha256(b"".join([MAGIC, *[b"%d:%b" % (len(data), data) for data in datas]])).decode()


def _sha256(data: bytes) -> bytes:
    return _hash().sha256(data).hexdigest().encode()


@functools.cache
def _hash() -> ModuleType:
    """A module with sha256: not hashlib where there is a smaller one, as it loads OpenSSL, 3 ms."""
    for name in ("_sha2", "_sha256"):  # Python 3.12 and later; before
        with suppress(ImportError):
            return importlib.import_module(name)
    return importlib.import_module("hashlib")


def get(key: str) -> bytes | None:
    """The object code kept under a key, None where there is none; marked as just used."""
    entry = find(key)
    return None if entry is None else entry[1]


def find(key: str) -> tuple[dict[str, str], bytes] | None:
    """The notes and the object code kept under a key."""
    if not is_enabled():
        return None
    try:
        where = directory()
        path = where / f"{key}.object"
        safe = _is_trusted(os.stat(where))
        contents = read(path) if safe else None
    except (OSError, RuntimeError):  # RuntimeError: there is no home directory
        return None
    if not safe:
        warn(f"{where}, where compiled code is kept, belongs to another user or can be written to "
             "by others, who could have it run code of theirs; it is not used. Take the right to "
             "write from group and others (chmod go-w), or name another directory in "
             "FUNCTRANS_CACHE_DIR.")
        return None
    if contents is None or contents[0] != key:
        warn(f"{path} is not what functrans wrote there; the code is compiled anew")
        return None
    with suppress(OSError):
        os.utime(path)
    return contents[1:]


def put(key: str, code: bytes, notes: Sequence[tuple[str, str]]) -> None:
    """Keep object code under a key; ``notes``, at least one, are lines for human readers."""
    if not is_enabled():
        return
    data = pack(MAGIC, key, code, notes)
    try:
        where = directory()
        if len(data) <= min(limit(), LARGEST):
            where.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_trusted(os.stat(where)):
                _write(where, key, data)
                _bind(where, key, len(data))
    except (OSError, RuntimeError):
        return


def pack(magic: bytes, key: str, code: bytes, notes: Sequence[tuple[str, str]]) -> bytes:
    """The bytes of a file."""
    lines = "".join(f"{name}: {' '.join(text.split())}\n" for name, text in notes)
    behind = f"{key}\n{lines}\n".encode(errors="backslashreplace") + code
    return b"\n".join([magic, _sha256(behind), behind])


def _is_trusted(status: os.stat_result) -> bool:
    """Whether nobody but us and the administrator can have written a file or directory."""
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid in (0, os.getuid()) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _write(where: Path, key: str, data: bytes) -> None:
    unfinished = where / f"{key}.{os.urandom(8).hex()}.tmp"
    try:
        with open(unfinished, "xb", opener=_for_us_alone) as f:
            f.write(data)
        os.replace(unfinished, where / f"{key}.object")
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise


def _for_us_alone(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _without_waiting(path: str, flags: int) -> int:
    """Open without following a link or waiting for a writer to a pipe."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def read(path: Path, magic: bytes = MAGIC) -> tuple[str, dict[str, str], bytes] | None:
    """Key, notes and code of a file; None when it is damaged or can be someone else's."""
    if path.is_symlink():
        return None
    with open(path, "rb", opener=_without_waiting) as f:
        status = os.fstat(f.fileno())
        if not stat.S_ISREG(status.st_mode) or not _is_trusted(status):
            return None
        return opened(f.read(), magic) if status.st_size <= LARGEST else None


def opened(data: bytes, magic: bytes) -> tuple[str, dict[str, str], bytes] | None:
    """Key, notes and code of a file's bytes; None when one of them is not as it was written."""
    first, _, rest = data.partition(b"\n")
    checksum, _, behind = rest.partition(b"\n")
    if first != magic or _sha256(behind) != checksum:
        return None
    head, _, code = behind.partition(b"\n\n")
    key, *lines = head.decode(errors="replace").splitlines() or [""]
    pairs = [line.partition(": ") for line in lines]
    return key, {name: text for name, _, text in pairs}, code


# ---- the directory


class _File(NamedTuple):
    used: float
    size: int
    path: Path


def files() -> list[_File]:
    """What is kept, finished or not, the least recently used first."""
    try:
        return sorted(_scan(directory()))
    except (OSError, RuntimeError):
        return []


def _scan(where: Path) -> Iterator[_File]:
    with os.scandir(where) as items:
        for x in items:
            if _is_ours(x.name):
                with suppress(FileNotFoundError):  # another process was faster
                    status = x.stat(follow_symlinks=False)
                    yield _File(status.st_mtime, status.st_size, Path(x.path))


def _is_ours(name: str) -> bool:
    """Whether a file is a finished or unfinished one of ours: no other is ever deleted."""
    key, *rest = name.split(".")
    kind = rest == ["object"] or (len(rest) == 2 and rest[1] == "tmp")
    return kind and len(key) == 64 and set(key) <= set("0123456789abcdef")


def entries() -> list[Entry]:
    """What is kept and whole, the least recently used first."""
    kept = []
    for f in files():
        with suppress(OSError):
            opened = read(f.path)
            if opened is not None and f.path.name == f"{opened[0]}.object":
                notes = opened[1]
                kept.append(Entry(f.path, notes.get("program", ""), notes.get("functrans", ""),
                                   f.size, f.used))
    return kept


def clear() -> int:
    """Delete every file of the cache, and no other file; returns how many."""
    count = 0
    for f in files():
        with suppress(OSError):
            f.path.unlink()
            count += 1
    _totals.clear()
    return count


# Bytes in each directory as this process knows them, so that it is not listed at each write.
_totals: dict[Path, int] = {}
_lock = Lock()


def _bind(where: Path, newest: str, size: int) -> None:
    """Delete the least recently used files once the directory holds too much."""
    with _lock:
        known = _totals.get(where)
        if known is not None and known + size <= limit():
            _totals[where] = known + size
            return
        kept = sorted(_scan(where))
        total = sum(f.size for f in kept)
        # below the bound, so that not every later write has to look
        most = limit() if total <= limit() else 0.9 * limit()
        for f in kept:
            unfinished = f.path.suffix == ".tmp"
            wanted = f.used > time.time() - ABANDONED if unfinished else total <= most
            if not wanted and f.path.stem != newest:
                with suppress(OSError):
                    f.path.unlink()
                    total -= f.size
        _totals[where] = total


# ---- A program's key: the name under which its machine code is kept on disk
#
# Two programs share a key only if they are equal up to the names of variables and the source lines
# that they come from. A program with parts that cannot be compared (an op declared outside, a
# parameter of unknown type, a large array) has none.

# Most bytes of constants in a program with a key.
MOST_BYTES = 1 << 16
_SIMPLE = frozenset({type(None), bool, int, float, complex, str, type(Ellipsis), slice})
_DTYPES = frozenset("?bhilqBHILQefdgFDG")


class _Opaque(Exception):
    """Something that a key cannot tell from others."""


def program_key(program: Program, *more: str) -> str | None:
    """The key of a program and of these texts, None where it has none."""
    try:
        return key_of("\n".join(_lines(program)), stamp(), *more)
    except _Opaque:
        return None


def _lines(program: Program) -> list[str]:
    """The program as text without loss: a line an equation, variables by number."""
    numbers: dict[Var, int] = {}
    lines: list[str] = []
    left = MOST_BYTES

    def define(vs: Sequence[Var]) -> str:
        for v in vs:
            numbers[v] = len(numbers)
        return repr([(v.aval.shape, _dtype(v.aval.dtype), v.weak) for v in vs])

    def atom(a: Atom) -> str:
        nonlocal left
        if type(a) is Var:
            return f"%{numbers[a]}"
        if type(a) is not Const:
            return f"{type(a).__name__} {a!r}"
        x = a.value
        left -= x.nbytes
        if left < 0:
            raise _Opaque
        # the order in which NumPy adds depends on the layout
        return f"{_dtype(x.dtype)} {x.shape} {x.strides} {x.tobytes().hex()}"

    lines.append(define(program.inputs))
    for eqn in program.eqns:
        inputs = ", ".join([atom(a) for a in eqn.inputs])
        if isinstance(eqn.prim, Structured):
            kind = type(eqn.prim).__name__, eqn.prim.numbers()
            lines.append(f"{kind} {inputs} {define(eqn.outputs)}")
            for inner in eqn.prim.programs.values():
                lines += ["(", *_lines(inner), ")"]
            continue
        if not eqn.prim.ours:
            raise _Opaque
        params = [(k, _plain(v)) for k, v in eqn.params.items()] if eqn.params else ""
        lines.append(f"{eqn.prim.name} {inputs} {params} {define(eqn.outputs)}")
    lines.append(", ".join([atom(a) for a in program.outputs]))
    return lines


def _plain(x: Any) -> str:
    """A parameter as text that no other parameter has."""
    kind = type(x)
    if kind is tuple or kind is list:
        return f"{kind.__name__}({', '.join([_plain(v) for v in x])})"
    if kind is Program:
        return "{" + "\n".join(_lines(x)) + "}"
    if isinstance(x, np.dtype):
        return f"dtype {_dtype(x)}"
    if kind in _SIMPLE:
        return repr(x)
    raise _Opaque


def _dtype(dtype: np.dtype) -> str:
    """The character of a dtype of NumPy's own in native order."""
    if dtype.char in _DTYPES and dtype.isnative:
        return dtype.char
    raise _Opaque
