"""The cache on disk of compiled code: once ``jit`` has compiled a program, other processes load it.

It is on by default and needs no care: a file that is damaged, or cannot be read or written, only
costs time. Environment variables set its place and size, and can turn it off:

- ``FUNCTRANS_CACHE_DIR``: the directory, by default ``functrans`` in the platform's cache
  directory. Code in it is run, so a directory that others can write to is not used.
- ``FUNCTRANS_CACHE_SIZE``: in MB, by default 256; the least recently used files are deleted first.
- ``FUNCTRANS_CACHE=0``: no cache. For one block: ``with functrans.cache.off(): ...``. A path in its
  place is refused when something is to be compiled.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from functrans._compile.run import store
from functrans._compile.run.store import Entry, directory, entries, off
from functrans._kernels import memory


def size() -> int:
    """The size of the cache in bytes."""
    return sum(f.size for f in store.files())


def clear() -> int:
    """Delete every file of the cache, and no other file; returns how many.

    Memory kept for large arrays (``config(keep_memory=...)``) is given back, too.
    """
    memory.clear()
    return store.clear()


def move(path: str | os.PathLike) -> Path:
    """Move the cache to another directory, for this process and those that it starts.

    Other processes find it only if their ``FUNCTRANS_CACHE_DIR`` names it. Files that cannot be
    moved stay behind; their programs will be compiled again.
    """
    import shutil  # lazy: slow to import

    where = Path(path).expanduser().absolute()
    where.mkdir(mode=0o700, parents=True, exist_ok=True)
    for f in store.files():
        with suppress(OSError):
            shutil.move(f.path, where / f.path.name)
    os.environ["FUNCTRANS_CACHE_DIR"] = str(where)
    return where


__all__ = ["Entry", "clear", "directory", "entries", "move", "off", "size"]
