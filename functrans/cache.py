"""The cache on disk of compiled code: what ``jit`` has compiled once, other processes load.

It is on by default and looks after itself: a file that is damaged or cannot be read or written
costs time, no more. The environment says where it is, how large it may be, and whether it is:

- ``FUNCTRANS_CACHE_DIR``: the directory, if not ``functrans`` in the platform's cache directory.
  Code is loaded from it and run: it is not used if it is writable by anyone else.
- ``FUNCTRANS_CACHE_SIZE``: MB, 256 if not given; what was used least recently is deleted first.
- ``FUNCTRANS_CACHE=0``: no cache. For a time: ``with functrans.cache.off(): ...``.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from functrans._compile.run import store
from functrans._compile.run.store import Entry, clear, directory, entries, off


def size() -> int:
    """Bytes that the cache holds."""
    return sum(f.size for f in store.files())


def move(path: str | os.PathLike) -> Path:
    """Move the cache to another directory, for this process and those that it starts.

    Processes started otherwise find it where ``FUNCTRANS_CACHE_DIR`` says. Files that cannot be
    moved are left: they will be compiled anew.
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
