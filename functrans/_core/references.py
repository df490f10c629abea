"""What a reference count proves.

With the interpreter lock, one number counts the references to an object. Free-threaded Python has
two: those of the thread that made the object, and those of all others. ``sys.getrefcount`` reads
one after the other, and may miss a reference that passes between two other threads meanwhile. Of
what the calling thread has made, the first number stands still while it reads, and the sum is that
of one moment.
"""

from __future__ import annotations

import ctypes
import sysconfig
import threading

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def is_exact(x: object) -> bool:
    """Whether ``getrefcount(x)`` misses no reference."""
    return not FREE_THREADED or _maker(x) == _here.thread


class _Here(threading.local):
    """This thread, as the objects that it makes name it."""

    def __init__(self) -> None:
        self.thread = _maker(object())


def _maker(x: object) -> int:
    """The first word of an object, by which free-threaded CPython knows who made it."""
    return ctypes.c_size_t.from_address(id(x)).value


_here = _Here()
