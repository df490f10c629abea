"""The state of this library's own sources: part of each key on disk."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path

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
