"""Arrays kept in files, of which the system keeps in memory what it has room for."""

from __future__ import annotations

import errno
import mmap
import os
import weakref
from typing import Any

import numpy as np

from functrans._core.locks import Lock
from functrans.errors import OutOfMemoryError

# Smaller arrays stay where they are: a file takes whole pages, and a descriptor.
LEAST = 2 * mmap.PAGESIZE


class Files:
    """Arrays in temporary files, of ``max_bytes`` in all at most.

    A file has no name (on Windows, one that the system removes with it) and belongs to the array
    that is mapped to it: it is gone with that, also where the process is killed.
    """

    __slots__ = ("__weakref__", "_lock", "folder", "max_bytes", "used")

    def __init__(self, folder: str | os.PathLike | None, max_bytes: int | None):
        self.folder, self.max_bytes = folder, max_bytes
        self.used = 0
        self._lock = Lock()

    def hold(self, x: Any) -> Any:
        """The numbers of ``x`` in a file, read-only; ``x`` itself if it is small, traced or there.
        """
        if type(x) is not np.ndarray or x.nbytes < LEAST or x.dtype.hasobject or _in_file(x):
            return x
        self._take(x.nbytes)
        try:
            mapped = self._mapped(x)
        except BaseException:
            self._give_back(x.nbytes)
            raise
        weakref.finalize(mapped, self._give_back, x.nbytes).atexit = False
        return np.frombuffer(mapped, x.dtype).reshape(x.shape)

    def _mapped(self, x: np.ndarray) -> mmap.mmap:
        import tempfile  # lazy: slow to import

        try:
            # written, not mapped for writing: what is mapped and not read takes no memory
            with tempfile.TemporaryFile(prefix="functrans-", dir=self.folder) as file:
                file.write(np.ascontiguousarray(x).data)
                file.flush()
                return mmap.mmap(file.fileno(), x.nbytes, access=mmap.ACCESS_READ)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise OutOfMemoryError(
                f"Revolve: no room for a state of {x.nbytes:,} bytes in "
                f"{self.folder or tempfile.gettempdir()}. Pass a folder with more, or a smaller "
                "on_disk."
            ) from error

    def _take(self, nbytes: int) -> None:
        with self._lock:
            if self.max_bytes is not None and self.used + nbytes > self.max_bytes:
                raise OutOfMemoryError(
                    f"Revolve: states in files would take {self.used + nbytes:,} bytes, but "
                    f"max_bytes is {self.max_bytes:,}. Raise it, or keep fewer with on_disk."
                )
            self.used += nbytes

    def _give_back(self, nbytes: int) -> None:
        with self._lock:
            self.used -= nbytes


def _in_file(x: np.ndarray) -> bool:
    base: Any = x
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)
