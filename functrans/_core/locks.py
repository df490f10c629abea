"""Locks that outlive a fork, and values that are made once without one.

A forked child has one thread: what another thread had locked stays locked there, and what it had
half made stays so. Therefore every lock of the package is a ``Lock``, which the child finds free
unless its own thread holds it; and a fork waits until nobody is in the compiler. That is where
state lies about which no lock of ours tells: LLVM's, and that of modules half imported.

A signal handler runs in the middle of what it interrupts, so locks can be taken again by the thread
that has them. The compiler is not entered again: code that interrupts it is interpreted.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# Seconds that a fork waits for the compiler. The child of one that waits no longer interprets.
PATIENCE = 60.0


class Lock:
    """A reentrant lock that a forked child finds free, unless the thread that forked has it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def acquire(self, timeout: float = -1) -> bool:
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def free(self) -> None:
        """In a child: as new if a thread that is no more has it."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


class lazy(Generic[T]):
    """``functools.cached_property``, which in Python 3.11 has a lock, without it."""

    def __init__(self, make: Callable[[Any], T]):
        self.make, self.__doc__ = make, make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, x: Any, owner: type) -> T:
        if x is None:
            return self  # type: ignore[return-value]  # asked of the class
        return x.__dict__.setdefault(self.name, self.make(x))


# ---- the compiler

compiling = Lock()  # held by who calls LLVM; no user's function is called meanwhile


class once(lazy[T]):
    """``lazy`` under the compiler's lock: threads that ask at once wait for the one that makes it.

    A signal handler may still make the value first; then that one stays.
    """

    def __get__(self, x: Any, owner: type) -> T:
        if x is None:
            return self  # type: ignore[return-value]  # asked of the class
        with compiling:
            return x.__dict__[self.name] if self.name in x.__dict__ else super().__get__(x, owner)


class Interrupted(RuntimeError):
    """The compiler was asked for by code that interrupts it, such as a signal handler."""


_entered = False


@contextmanager
def compiler() -> Iterator[None]:
    """The compiler, for one thread and not while that thread is in it: else ``Interrupted``."""
    global _entered
    with compiling:
        if _entered:
            raise Interrupted("a compilation was interrupted by code that is to be compiled")
        try:
            _entered = True
            yield
        finally:
            _entered = False


# ---- forks


def _llvm_lock() -> Any:
    """The lock under which llvmlite calls LLVM, to free memory too, when it has been loaded."""
    ffi = sys.modules.get("llvmlite.binding.ffi")
    return getattr(getattr(ffi, "lib", None), "_lock", None)


_held: list[Any] = []  # llvmlite's lock, while a process forks


def _before() -> None:
    if compiling.acquire(timeout=PATIENCE):
        lock = _llvm_lock()
        if lock is not None:
            lock.__enter__()
        _held.append(lock)


def _release() -> bool:
    """Whether the compiler was waited for."""
    try:
        compiling.release()
    except RuntimeError:  # another thread has it
        return False
    lock = _held.pop()
    if lock is not None:
        lock.__exit__(None, None, None)
    return True


def _in_child() -> None:
    _release()
    for lock in _locks:
        lock.free()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_release, after_in_child=_in_child)
