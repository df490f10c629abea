"""Memory of large arrays, kept for the next ones when they are dropped, by the C library.

The GNU C library gives pages back to the system as soon as a large block is dropped, and the next
array of that size has each of its pages cleared by the system again: at 10,000 to 1,000,000 entries
that takes as long as the arithmetic. So it is told to keep up to ``WAITING`` bytes, and to take
blocks of all sizes from what it keeps. Where an array is larger than that, blocks of more than
``BLOCK`` bytes, the most that can be set, go back to the system from then on. Other C libraries,
and one whose user has set this in the environment, stay as they are.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys

from functrans.config import config

# The parameters of mallopt: bytes that wait, from which a block may be mapped by itself, how many.
TRIM, LARGE, MAPS = -1, -3, -4
WAITING, BLOCK, MOST = 1 << 28, 1 << 25, 1 << 16
USUAL = 1 << 17  # of both by default
# Variables by which users set the same.
VARIABLES = "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"


class _State:
    """What the C library was told here: to keep memory, to map large blocks by themselves."""

    keeps = maps = False


def keep(nbytes: int = 0) -> None:
    """Have memory that is dropped kept; or given back, where ``config.keep_memory`` is off.

    ``nbytes`` are those of an array that was made.
    """
    wanted, maps = config.keep_memory, _State.maps or nbytes > WAITING
    if (wanted is _State.keeps and maps is _State.maps) or (library := _library()) is None:
        return
    _State.keeps, _State.maps = wanted, maps
    library.mallopt(TRIM, WAITING if wanted else USUAL)
    library.mallopt(LARGE, BLOCK if wanted else USUAL)
    library.mallopt(MAPS, 0 if wanted and not maps else MOST)
    if not wanted:
        library.malloc_trim(0)


def clear() -> None:
    """Give back what waits."""
    if _State.keeps and (library := _library()) is not None:
        library.malloc_trim(0)


@functools.cache
def _library() -> ctypes.CDLL | None:
    """The C library, None where it is not to be told."""
    if not sys.platform.startswith("linux") or any(map(os.environ.get, VARIABLES)):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None
