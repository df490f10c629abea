"""Arrays that a tape reads but does not own: noticed when their owner changes them.

A fingerprint is taken when an array is first used and compared before the tape is walked; without
it a changed array would silently change the derivative.
"""

from __future__ import annotations

import zlib

import numpy as np

from functrans._core.aval import aval_of
from functrans.errors import CaptureError, user_line


class Captures:
    """The arrays of one tape. ``thorough`` reads every element; else a sample of ``SAMPLE``."""

    __slots__ = ("fun", "seen", "thorough")

    def __init__(self, fun: str, thorough: bool):
        self.fun = fun
        self.thorough = thorough
        self.seen: dict[int, tuple[np.ndarray, object, str]] = {}

    def watch(self, x: np.ndarray) -> np.ndarray:
        if id(x) not in self.seen:
            self.seen[id(x)] = (x, fingerprint(x, self.thorough), user_line())
        return x

    def check(self) -> None:
        """Raise if an array no longer is what it was when it was used."""
        for x, mark, line in self.seen.values():
            if fingerprint(x, self.thorough) != mark:
                raise CaptureError(
                    f"{self.fun}: the {aval_of(x)!r} array used at {line} was changed before its "
                    "derivative was taken. Use a copy there (x.copy()), or change a copy."
                )


SAMPLE = 1024
_ROW = 4096


def fingerprint(x: np.ndarray, thorough: bool) -> object:
    """A checksum: of every element by row and column sums of its words, or of an even sample."""
    if not thorough:
        flat = x.reshape(-1) if x.flags.c_contiguous else x.T.reshape(-1)
        return zlib.crc32(flat[:: max(1, flat.size // SAMPLE)].tobytes())
    octets = np.ascontiguousarray(x.T if x.flags.f_contiguous else x).reshape(-1).view(np.uint8)
    body = octets[: octets.size // (8 * _ROW) * (8 * _ROW)].view(np.uint64).reshape(-1, _ROW)
    sums = body.sum(axis=0), body.sum(axis=1)
    return tuple(zlib.crc32(s.tobytes()) for s in (*sums, octets[body.nbytes :]))
