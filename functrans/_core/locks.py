"""Locks that outlive a fork, and values that are made once without one.

A forked child has one thread: locks that other threads held stay locked there, and what they had
half finished stays so. Therefore every lock of the package is a ``Lock``, which the child finds
free unless its own thread holds it, and a fork waits until nobody is in the compiler: LLVM, and
modules that are being imported, have state that no lock of ours protects.

A signal handler runs in the middle of what it interrupts, so the thread that holds a lock can take
it again. The compiler is not entered twice: code that interrupts it is interpreted.
"""

from __future__ import annotations

import os
import sys
import weakref
from _thread import RLock
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# Seconds that a fork waits for the compiler. After that the child interprets programs.
PATIENCE = 60.0


class Lock(RLock):  # type: ignore[misc]  # final for stubs alone
    """A reentrant lock that a forked child finds free, unless the thread that forked has it.

    A signal handler may raise between any two of Python's instructions, but never between those of
    C that take or release the lock of a ``with`` block. For the same reason variables of a context
    are set within the ``try`` whose ``finally`` sets them back.
    """

    def __init__(self) -> None:
        _locks.add(self)

    def free(self) -> None:
        """In a child: free, if a thread that no longer exists holds it."""
        if self.acquire(blocking=False):
            self.release()
        else:
            self._at_fork_reinit()  # type: ignore[attr-defined]  # as threading does


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


class lazy(Generic[T]):
    """``functools.cached_property`` without the lock that it has in Python 3.11."""

    def __init__(self, make: Callable[[Any], T]):
        self.make, self.__doc__ = make, make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, x: Any, owner: type) -> T:
        if x is None:
            return self  # type: ignore[return-value]  # accessed on the class
        return x.__dict__.setdefault(self.name, self.make(x))


# ---- the compiler

compiling = Lock()  # held while LLVM is called; no function of the user's runs meanwhile


class once(lazy[T]):
    """``lazy`` under the compiler's lock: other threads wait for the one that makes the value.

    A signal handler may still make it first; then its value stays.
    """

    def __get__(self, x: Any, owner: type) -> T:
        if x is None:
            return self  # type: ignore[return-value]  # accessed on the class
        with compiling:
            return x.__dict__[self.name] if self.name in x.__dict__ else super().__get__(x, owner)


class Interrupted(RuntimeError):
    """Code that interrupts the compiler, such as a signal handler, needs it."""


_entered = False


@contextmanager
def compiler() -> Iterator[None]:
    """The compiler, for one thread at a time; ``Interrupted`` if that thread is in it already."""
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
    """The lock under which llvmlite calls LLVM, even to free memory; None before it is loaded."""
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
    """Release what ``_before`` took; False if it gave up waiting."""
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
