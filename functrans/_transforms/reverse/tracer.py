"""Values of reverse mode: their slots, arrays that a tape keeps, and what is written into them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._compile.run.checksum import LARGE, checksum, content
from functrans._core.array import Aval, aval_of, changeable, frozen_copy, inexact_dtype, unrepeat
from functrans._core.bind import PrimalTracer, Trace, bind, is_finite, layers
from functrans._kernels.large import keep_memory
from functrans._ops.declare import Linear
from functrans._ops.indexing import scatter_vjp
from functrans._transforms.reverse.cotangents import add_into, is_alone
from functrans.errors import CaptureError, user_line

# ---- Arrays that a tape reads when it is walked, and that others may have changed by then
#
# Copied when they are used, so that the derivative is that of the run. Those too large to have
# twice are summed up instead, entry for entry, and a change raises.

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
            if (core := unrepeat(x)).size < x.size:
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
            raise self._change(x, line)

    def check(self, tape: Sequence) -> None:
        """Raise if an array that the tape reads no longer is what it was when it was used."""
        for x, before, line, argument in self.watched.values():
            # whichever is cheaper first: to ask the tape, or to sum up the array
            if argument and x.nbytes > ENTRY * len(tape) and not _is_read(tape, x):
                continue
            if _state(x) != before and (not argument or _is_read(tape, x)):
                raise self._change(x, line)

    def _change(self, x: np.ndarray, line: str) -> CaptureError:
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


# ---- A value of reverse mode: (primal, slot on a tape)

_aval = tuple.__new__
# What the sum of an array is, and an entry.
NUMBER = Aval((), np.dtype(np.float64))


class VJPTracer(PrimalTracer):
    """``known``: its aval if someone has asked for it; results share that of their operands."""

    __slots__ = ("known", "slot", "sqrt_operand")

    def __init__(self, trace: Trace, primal: Any, slot: int):
        self.owner = trace
        self.known: Aval | None = None
        self.sqrt_operand = None
        self.primal = primal
        self.slot = slot

    @property
    def aval(self) -> Aval:
        """``x.known or x.aval`` takes less time where it is known."""
        x = self.primal
        # as ``aval_of``, which would be a call more
        known = self.known = (
            _aval(Aval, (x.shape, x.dtype)) if type(x) is np.ndarray else aval_of(x)
        )
        return known

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.known or self.aval)[0]

    @property
    def dtype(self) -> np.dtype:
        return (self.known or self.aval)[1]

    @property
    def ndim(self) -> int:
        return len((self.known or self.aval)[0])

    def is_finite(self) -> bool:
        return is_finite(self.primal)


# ---- Tape entries of ``store`` and ``scatter_set``: a value is written into another
#
# The walk reads neither of them, only where the one went; and the cotangent of what it was written
# into is that of the result, which needs no memory of its own where no one else has it.

_new = object.__new__


class Overwritten:
    """The entry of a write, with what ``Node`` has of other ops."""

    __slots__ = ("params", "parents", "prim", "wanted", "xs")

    repeats, refuses, y = True, False, None

    def __init__(self, prim: Linear, parents: tuple, xs: tuple, params: dict):
        self.prim, self.parents, self.xs, self.params = prim, parents, xs, params
        self.wanted = parents[0] is not None, parents[1] is not None, *[False] * (len(xs) - 2)

    def pull(self, ct: Any) -> Sequence:
        return self.prim.vjp(ct, None, self.xs, self.params, self.wanted)

    def pull_into(self, cts: list, k: int, strong: bool) -> None:
        if cts[k] is None:
            return
        alone = is_alone(cts, k)
        ct, cts[k] = cts[k], None
        x, v, *indices = self.xs
        parts = scatter_vjp(ct, x, v, indices, self.params, self.wanted, alone)
        for slot, c in zip(self.parents, parts, strict=False):  # indices get none
            if c is None:
                continue
            if cts[slot] is None:
                cts[slot] = c
            else:
                add_into(cts, slot, c)

    def push_into(self, ts: list, k: int) -> None:
        tangents = [None if p is None else ts[p] for p in self.parents]
        ts[k] = self.prim.jvp(tangents, None, self.xs, self.params)


def record_write(trace: Any, prim: Linear, args: tuple, params: dict) -> Any:
    """The result of a write on a tape's values, as ``process`` of a ``VJPTrace`` gives it."""
    x, v = args[:2]
    slot_x = slot_v = None
    if type(x) is VJPTracer and x.owner is trace:
        slot_x, of_x, x = x.slot, x.known or x.aval, x.primal
    else:
        of_x = aval_of(x)
    if type(v) is VJPTracer and v.owner is trace:
        slot_v, of_v, v = v.slot, v.known or v.aval, v.primal
    else:
        of_v = aval_of(v)
    if len(args) == 2:
        plain = type(x) is np.ndarray and (type(v) is np.ndarray or type(v) is np.float64)
        y = prim.impl(x, v, **params) if plain else bind(prim, x, v, **params)
        node = Overwritten(prim, (slot_x, slot_v), (of_x, of_v), params)
    else:
        indices = [trace.capture(trace.lower(i)) for i in args[2:]]
        y = bind(prim, x, v, *indices, **params)
        parents = slot_x, slot_v, *[None] * len(indices)
        node = Overwritten(prim, parents, (of_x, of_v, *indices), params)
    dtype = y.dtype
    if dtype.kind != "f" and not inexact_dtype(dtype):
        return y
    tape, z = trace.tape, _new(VJPTracer)
    z.owner, z.sqrt_operand, z.primal, z.slot = trace, None, y, len(tape)
    z.known = of_x if dtype is of_x[1] else None
    tape.append(node)
    return z
