"""Entries of dicts that native code compares at each call, where they lie in memory.

A namespace changes seldom, and to look up a name in Python takes 5 to 10 ns, of each that a
function has. So the C function that takes a call (``entry.py``) compares words in memory: that a
dict has the table of entries that it had, that in the place of a name stand this name and what it
stood for, and that no name was added where one is to be absent. If a word is not as it was, the
caller compares in Python, and finds the places anew.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

# Of a dict: its table of entries, and nothing in the next word if all values are in that. Of a
# table: how many entries there is room for, and how many were made in it.
TABLE, COUNTS = 32, 16
WORDS = 3  # of a row: an address, and the two words there
Row = tuple[int, int, int]


class Guard(NamedTuple):
    """Of a dict, what stands under a name, or that nothing does; of a function, its code; of a
    class, itself and those behind it.
    """

    holder: Any
    name: str | tuple[str, ...]
    saved: Any
    absent: bool = False

    @property
    def lacking(self) -> tuple[str, ...]:
        """Names that are to be absent."""
        own = (self.name,) if isinstance(self.name, str) else self.name
        return own if self.absent else ()


class Guards:
    """Guards as rows of numbers; ``same`` says whether a value is as good as another.

    A dict has a row that says which table is its, one of how many entries that has, by which names
    that are added are noticed, and one for each name and what it stands for.

    ``stale``: the C function has met another word. ``kept`` lives as long as the rows.
    """

    def __init__(self, guards: Sequence[Guard], same: Callable[[Any, Any], bool]):
        self.guards, self.same = guards, same
        self.kept: list[Any] = []
        self.counts: dict[int, tuple[dict, list[str]]] = {}  # by row: a dict, names not in it
        self.flag = np.zeros(1, np.int64)
        self.rows = np.zeros((0, WORDS), np.uint64)
        found = self._find()
        self.rows = np.array(found or [], np.uint64).reshape(-1, WORDS)
        self.holds = found is not None

    @property
    def stale(self) -> bool:
        return bool(self.flag[0])

    def find(self) -> bool:
        """Find the places again; False where what stands in them is not what is wanted."""
        self.flag[0] = 0
        if self._is_counted():
            return True
        found = self._find()
        if found is None or len(found) != len(self.rows):
            return False
        self.rows[:] = found
        return True

    def _is_counted(self) -> bool:
        """Whether only names were added or dropped that are not asked for: that takes 2 us."""
        rows = self.rows.tolist()
        for i, (at, *words) in enumerate(rows):
            now = _words(at)
            if i in self.counts:
                space, names = self.counts[i]
                if any([name in space for name in names]) or sum(now) != sum(words):
                    return False
                self.rows[i, 1:] = now
            elif now != tuple(words):
                return False
        return True

    def _find(self) -> list[Row] | None:
        rows: list[Row] = []
        kept: list[Any] = []
        counts: dict[int, tuple[dict, list[str]]] = {}
        spaces: dict[int, list[Guard]] = {}
        for g in self.guards:
            spaces.setdefault(id(g.holder), []).append(g)
        for guards in spaces.values():
            holder = guards[0].holder
            if type(holder) is not dict:
                at = id(holder) + (_bases_at() if issubclass(type(holder), type) else _code_at())
                word, behind = _words(at)
                if word != id(guards[0].saved):
                    return None
                rows.append((at, word, behind))
                continue
            of_dict = _of_dict(holder, guards, kept, self.same)
            if of_dict is None:
                return None
            counts[len(rows) + 1] = holder, [n for g in guards for n in g.lacking]
            rows += of_dict
        self.kept, self.counts = kept, counts
        return rows


def _of_dict(
    space: dict, guards: Sequence[Guard], kept: list, same: Callable[[Any, Any], bool]
) -> list[Row] | None:
    """The rows of a dict, None where it is not as wanted; what they name is ``kept``."""
    at = id(space) + TABLE
    table, elsewhere = _words(at)
    if elsewhere:
        return None
    rows = [(at, table, 0), (table + COUNTS, *_words(table + COUNTS))]
    keys = {k: k for k in tuple(space) if type(k) is str}
    size = (space.__sizeof__() - dict.__basicsize__) // 8
    words = np.frombuffer(ctypes.string_at(table, 8 * size), np.uint64)
    for g in guards:
        if g.absent and not any([n in keys for n in g.lacking]):
            continue
        key = keys.get(str(g.name))
        if g.absent or key is None or not same(x := space[key], g.saved):
            return None
        places = np.flatnonzero((words[:-1] == id(key)) & (words[1:] == id(x)))
        if len(places) != 1:
            return None
        rows.append((table + 8 * int(places[0]), id(key), id(x)))
        kept += [key, x]
    return rows if _words(at) == (table, 0) else None


def _words(address: int) -> tuple[int, int]:
    """Two words at an address."""
    a, b = (ctypes.c_uint64 * 2).from_address(address)
    return a, b


@functools.cache
def _code_at() -> int:
    """Where a function has its code."""
    places = range(16, FunctionType.__basicsize__, 8)
    found = [{i for i in places if _words(id(f) + i)[0] == id(f.__code__)}
             for f in (Guards.__init__, Guards.find, _words)]
    return min(set.intersection(*found))


@functools.cache
def _bases_at() -> int:
    """Where a class has itself and those behind it."""
    places = range(16, type.__sizeof__(Guard), 8)
    return min(set.intersection(*[
        {i for i in places if _words(id(k) + i)[0] == id(k.__mro__)} for k in (Guards, Guard, bool)
    ]))


def in_one_table(space: dict) -> bool:
    """Whether a dict has its values beside its keys; objects of a class may share their keys."""
    return not _words(id(space) + TABLE)[1]


@functools.cache
def is_supported() -> bool:
    """Whether dicts are laid out as expected, tried on one."""
    if ctypes.sizeof(ctypes.c_void_p) != 8 or sys.implementation.name != "cpython" or (
            not getattr(sys, "_is_gil_enabled", lambda: True)()):
        return False
    first, second = object(), object()
    space: dict[str, Any] = {"first": first}
    if dict.__basicsize__ != TABLE + 16:
        return False
    table, elsewhere = _words(id(space) + TABLE)
    room, made = _words(table + COUNTS)
    space["second"] = second
    if elsewhere or _words(id(space) + TABLE)[0] != table or (
            made != 1 or _words(table + COUNTS) != (room - 1, 2)):
        return False
    wanted = [Guard(space, "second", second), Guard(space, "third", None, True),
              Guard(_words, "__code__", _words.__code__), Guard(Guard, "__mro__", Guard.__mro__)]
    guards = Guards(wanted, lambda x, y: x is y)
    return guards.holds and len(guards.rows) == 5
