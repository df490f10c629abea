"""Arrays that a tape reads when it is walked, and that others may have changed by then.

Copied when they are used, so that the derivative is that of the run. Those too large to have twice
are summed up instead, entry for entry, and a change raises.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._compile.run.checksum import LARGE, checksum, content
from functrans._core.array import changeable, frozen_copy, unrepeated
from functrans._core.aval import Aval, aval_of
from functrans._core.bind import layers
from functrans._kernels.large import keep_memory
from functrans.errors import CaptureError, user_line

# Entries up to which to look for a copy of the same array costs more than another one.
SMALL = 256
# Bytes that are summed up in the time that an entry of a tape is asked for the arrays it holds.
ENTRY = 1 << 17
# Bytes up to which two more copies are compared faster than entries.
SHORT = 1 << 14
# Bytes up to which a copy takes less time than two checksums, be it on fresh pages.
COPIED = 1 << 18


class Captures:
    """The arrays that one tape refers to.

    ``digests``, where it is a list, grows by a number for the content of each: a function that is
    run again has used the same ones if its numbers are the same.
    """

    __slots__ = ("copies", "digests", "fun", "watched")

    def __init__(self, fun: str, digests: list[int] | None = None):
        self.fun = fun
        self.digests = digests
        # the array, its copy and, where it is used again, the content of that
        self.copies: dict[int, tuple[weakref.ref, np.ndarray, int | bytes | None]] = {}
        self.watched: dict[int, tuple[np.ndarray, tuple, str, bool]] = {}

    def keep(self, x: np.ndarray, argument: bool = False) -> np.ndarray:
        """``x`` as the tape may refer to it: a copy, or itself, watched from here on.

        ``argument``: whether the tape refers to it is not known yet.
        """
        if id(x) in self.copies and (copy := self._earlier_copy(x)) is not None:
            self._note(x)
            return copy
        if x.size > SMALL:
            if (core := unrepeated(x)).size < x.size:
                return np.broadcast_to(self.keep(core, argument), x.shape)
            keep_memory(x)
        self._note(x)
        if not changeable(x):
            return x
        if x.size <= SMALL:
            return frozen_copy(x)
        if x.nbytes > COPIED:
            self.watch(x, "" if id(x) in self.watched else user_line(), argument)
            return x
        copy = x.copy("K")
        copy.setflags(write=False)
        self.copies[id(x)] = weakref.ref(x), copy, None
        return copy

    def _note(self, x: np.ndarray) -> None:
        if self.digests is not None:
            self.digests.append(hash((x.shape, x.dtype, checksum(x))))

    def _earlier_copy(self, x: np.ndarray) -> np.ndarray | None:
        """The copy that an earlier use of ``x`` has made, if it still is one."""
        owner, copy, held_content = self.copies[id(x)]
        if owner() is not x:
            return None
        if x.shape != copy.shape or x.dtype != copy.dtype:  # which can be set
            return None
        if SHORT < x.nbytes <= LARGE:
            return copy if same_bits(x, copy) else None
        if held_content is None:
            held_content = content(copy)
            self.copies[id(x)] = owner, copy, held_content
        return copy if content(x) == held_content else None

    def watch(self, x: Any, line: str = "", argument: bool = False) -> None:
        """Let ``check`` tell whether ``x``, or what a traced value is around, is changed.

        ``line`` is where it was used, none where it is an argument.
        """
        if type(x) is not np.ndarray:
            *_, x = layers(x)
        if not isinstance(x, np.ndarray) or not changeable(x):
            return
        now = _state(x)
        _, before, line, unused = self.watched.get(id(x), (x, now, line, argument))
        self.watched[id(x)] = x, before, line, unused and argument
        if now != before:
            raise self._changed(x, line)

    def check(self, tape: Sequence) -> None:
        """Raise if an array that the tape reads no longer is what it was when it was used."""
        for x, before, line, argument in self.watched.values():
            # whichever is cheaper first: to ask the tape, or to sum up the array
            if argument and x.nbytes > ENTRY * len(tape) and not _is_read(tape, x):
                continue
            if _state(x) != before and (not argument or _is_read(tape, x)):
                raise self._changed(x, line)

    def _changed(self, x: np.ndarray, line: str) -> CaptureError:
        place = f"used at {line}" if line else "that it was given"
        return CaptureError(
            f"{self.fun}: the {aval_of(x)!r} array {place} was changed before its "
            "derivative was taken. Use a copy there (x.copy()), or change a copy."
        )


def _state(x: np.ndarray) -> tuple:
    """What tells whether an array has changed: its shape and dtype can be set as well."""
    return content(x), x.shape, x.dtype


def _is_read(tape: Sequence, x: np.ndarray) -> bool:
    """Whether an entry of the tape may refer to the memory of ``x``."""
    for node in tape:
        if node is None:
            continue
        if type(node) is not tuple or any([_may_share(edge[2], x) for edge in node]):
            return True
    return False


def _may_share(v: Any, x: np.ndarray) -> bool:
    """Whether ``v``, which an entry has saved, may hold the memory of ``x``."""
    if isinstance(v, np.ndarray):
        return np.may_share_memory(v, x)
    if type(v) is dict:
        return any([_may_share(part, x) for part in v.values()])
    if type(v) is tuple:
        return any([_may_share(part, x) for part in v])
    return not (v is None or v is Ellipsis or isinstance(v, _WITHOUT_ARRAYS))


_WITHOUT_ARRAYS = (Aval, np.generic, int, float, complex, str)


def same_bits(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether two arrays of one shape and dtype agree to the last bit, NaN and -0.0 included."""
    if x.nbytes <= SHORT:
        return x.tobytes() == y.tobytes()
    if x.dtype.kind == "c":
        return same_bits(np.real(x), np.real(y)) and same_bits(np.imag(x), np.imag(y))
    if x.itemsize > 8:  # longdouble
        return x.tobytes() == y.tobytes()
    word = f"u{x.itemsize}"
    return bool((x.view(word) == y.view(word)).all())
