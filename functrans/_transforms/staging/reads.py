"""What a program depends on beside its arguments, compared at each call of its function.

What the function itself changes while it is staged is its side effect, and not compared.
"""

from __future__ import annotations

import functools
import re
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import is_
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from functrans._compile.run.checksum import content
from functrans._core.bind import Tracer
from functrans._core.locks import lazy
from functrans._core.writing import stood_for
from functrans._transforms.staging.environment import (
    DEEPEST,
    Environment,
    Lacks,
    Place,
    Weak,
    entry_text,
    has_places,
    lack_text,
    parts_of,
)
from functrans._transforms.staging.names import (
    behind_proxy,
    behind_ref,
    entries_of,
    in_context,
    is_buffers,
    is_empty,
    keys_of,
    misses,
    pickled,
)

if TYPE_CHECKING:
    from functrans._compile.run.guards import Guard, Guards

_VALUES = (bool, int, float, complex, str, bytes, type(None))


class Check(NamedTuple):
    """A test in Python of ``{0}``, the holder of a place, and ``{1}``, what was read there."""

    label: str
    test: str
    holder: Any
    saved: Any
    # of a dict: the name, and whether that is absent; or several that are
    entry: tuple[str | tuple[str, ...], bool] | None = None


def checks(environment: Environment) -> dict[tuple, Check]:
    """What tells later whether the places are as they are now; traced values are operands."""
    of_places = {k: _of_place(p, k[1]) for k, p in environment.places.items()
                 if not issubclass(type(p.value), Tracer)}
    of_contents = {(k,): _of_contents(*pair) for k, pair in environment.mutable.items()}
    of_dtypes = {(k, "dtype"): Check(label, "{0}.dtype is {1}", x, x.dtype)
                 for k, (label, x) in environment.mutable.items()
                 if issubclass(type(x), np.ndarray)}
    return of_places | of_contents | of_dtypes


def _of_place(place: Place, name: Any) -> Check:
    read, x = place.read.format("{0}"), place.value
    if type(x) is Weak:
        return Check(place.label, f"{read} is None" if x.ref is None else
                     f"{read} is {{1}}() is not None", place.holder, x.ref)
    if type(x) is Lacks:
        names = tuple(sorted(x))
        return Check(place.label, "_ft_lacks_all({0}, {1})", place.holder, names, (names, True))
    test = f"{read} is {{1}}"
    if type(x) in _VALUES or callable(x) or has_traced(x):  # an equal one in its place is as good
        test = f"({test} or _ft_same({read}, {{1}}))"
    return Check(place.label, test, place.holder, without_traced(x), _entry(place, name))


def _entry(place: Place, name: Any) -> tuple[str, bool] | None:
    if type(place.holder) is not dict:
        return None
    if type(name) is str and place.read == entry_text(name):
        return name, False
    lacks = type(name) is tuple and place.read == lack_text(name[1])
    return (name[1], True) if lacks else None


def _of_contents(label: str, x: Any) -> Check:
    kind = type(x)
    if issubclass(kind, np.ndarray):
        saved = content(x)
        now = "{0}.tobytes()" if type(saved) is bytes else "_ft_content({0})"
        return Check(label, f"{now} == {{1}} and {{0}}.shape == {x.shape}", x, saved)
    if is_buffers(kind):
        return Check(label, "_ft_bytes({0}) == {1}", x, bytes(memoryview(x)))
    if not issubclass(kind, dict | list | set | deque):
        return Check(label, "_ft_pickled({0}) == {1}", x, pickled(x))
    if kind is set:
        return Check(label, "{0} == {1}", x, frozenset(x))
    if has_places(x) and kind is dict:
        return Check(label, "(*{0},) == {1}", x, tuple(x))
    if has_places(x):
        return Check(label, "len({0}) == {1}", x, len(x))
    values = tuple(map(without_traced, entries_of(x)))
    if issubclass(kind, dict):
        return Check(label, "_ft_same_items({0}, {1})", x, (keys_of(x), values))
    return Check(label, "_ft_same_all(_ft_entries({0}), {1})", x, values)


class Reads:
    """What a function read when it was staged. ``unchanged()``: whether that is still so."""

    def __init__(self, checks: Sequence[Check]):
        self.checks = checks
        self.unchanged: Callable[[], bool] = _write(checks)

    @lazy
    def native(self) -> tuple[Guards | None, Callable[[], bool] | None]:
        """What the C function of a program compares, None if nothing, and what is left to Python.
        """
        from functrans._compile.run.guards import Guards, is_supported  # lazy: the whole compiler

        if not is_supported():
            return None, self.unchanged
        guards = {i: g for i, c in enumerate(self.checks) if (g := _guard(c)) is not None}
        if not guards:
            return None, self.unchanged
        found = Guards(list(guards.values()), same)
        if not found.holds:
            return None, self.unchanged
        rest = [c for i, c in enumerate(self.checks) if i not in guards]
        return found, _write(rest) if rest else None

    def checksums(self) -> list[tuple[np.ndarray, int]]:
        """The large arrays that are compared, with the checksums that they must have."""
        return [(c.holder, c.saved) for c in self.checks
                if issubclass(type(c.holder), np.ndarray) and type(c.saved) is int]

    def changed(self) -> str:
        """What is not as it was."""
        return next((c.label for c in self.checks if not Reads([c]).unchanged()), "")


def _guard(check: Check) -> Guard | None:
    """A check of an entry of a namespace, or of a library's function's code, for native code."""
    from functrans._compile.run.guards import Guard, in_one_table  # lazy: the whole compiler

    for name, kind in (("__code__", FunctionType), ("__mro__", type)):
        if check.test == f"{{0}}.{name} is {{1}}" and issubclass(type(check.holder), kind):
            return Guard(check.holder, name, check.saved)
    if check.saved is _Traced or type(check.saved) is _Parts:
        return None
    if check.entry is None or not in_one_table(check.holder):
        return None
    name, absent = check.entry
    return Guard(check.holder, name, check.saved, absent)


def unchanged_since(
    before: Mapping[tuple, Check], after: Mapping[tuple, Check]
) -> dict[tuple, Check]:
    """What a program depends on of what was read ``after`` it was staged."""
    return {key: c for key, c in after.items()
            if key not in before or before[key].saved is None or same(before[key].saved, c.saved)}


# ---- tests as one expression

TEXT = """\
def make({variables}):
    def unchanged():
        try:
            return {test}
        except _ft_gone:
            return False
    return unchanged
"""


def _write(checks: Sequence[Check]) -> Callable[[], bool]:
    """The tests as one function, whose variables are cells and globals that users' functions read.

    So a place is compared in 2 ns. A getter for each takes 25, a loop over them 150.
    """
    cells = {name: CellType(x) for name, x in _HELPERS.items()}
    names = _globals_most_read(checks)
    tests = []
    for i, (_, test, holder, saved, _) in enumerate(checks):
        if holder is names:
            test = re.sub(r"\{0\}\['(?!_ft_)(\w+)'\]", r"\1", test)
        cells[f"_ft_saved{i}"] = CellType(saved)
        cells[f"_ft_holder{i}"] = holder if type(holder) is CellType else CellType(holder)
        test = test.replace("{0}.cell_contents", "{0}")
        tests.append(test.format(f"_ft_holder{i}", f"_ft_saved{i}"))
    scope: dict[str, Any] = {}
    exec(TEXT.format(variables=", ".join(cells), test=" and ".join(tests)), scope)
    code = scope["make"](*cells).__code__
    return FunctionType(code, names, closure=tuple([cells[name] for name in code.co_freevars]))


def _globals_most_read(checks: Sequence[Check]) -> dict:
    """The namespace whose names most tests read."""
    spaces = [c.holder for c in checks if type(c.holder) is dict and "__builtins__" in c.holder]
    return max(spaces, key=lambda x: sum([x is y for y in spaces]), default={})


# ---- comparisons


class _Traced:
    """Stands for a traced value, which is an operand of the program."""


class _Parts(tuple):
    """Type and parts of a value with traced ones in it."""

    __slots__ = ()


def has_traced(x: Any, depth: int = DEEPEST) -> bool:
    """Whether it is a traced value, or one is in parts of it that cannot be set one by one."""
    kind = type(x)
    if issubclass(kind, Tracer) or not depth or not issubclass(kind, tuple | functools.partial):
        return issubclass(kind, Tracer)
    return any([has_traced(part, depth - 1) for part in parts_of(x) or ()])


def without_traced(x: Any) -> Any:
    if issubclass(type(x), Tracer):
        return _Traced
    return _Parts((type(x), *map(without_traced, parts_of(x) or ()))) if has_traced(x) else x


def same(x: Any, saved: Any) -> bool:
    """Whether ``x`` is what was ``saved``, or one as good: an equal number or text of the same
    type, the signs of zeros included, a traced value in the place of one, a tuple of such, what a
    block of ``patch`` has put in its place."""
    if x is saved or saved is _Traced:
        return x is saved or issubclass(type(x), Tracer)
    if type(saved) is _Parts:
        return same_all(x if type(x) is _Parts else (type(x), *(parts_of(x) or ())), saved)
    if _unpatch(x) is _unpatch(saved):
        return True
    if type(x) is not type(saved):
        return False
    if type(x) is tuple:
        return same_all(x, saved)
    return x == saved if type(x) is frozenset else type(x) in _VALUES and repr(x) == repr(saved)


def _unpatch(x: Any) -> Any:
    """What a name stands for where no block of ``patch`` runs."""
    return stood_for.get(id(x), x)


def same_all(xs: Collection, saved: Collection) -> bool:
    return len(xs) == len(saved) and (all(map(is_, xs, saved)) or all(map(same, xs, saved)))


def same_items(x: dict, saved: tuple[tuple, tuple]) -> bool:
    keys, values = saved
    if dict.__len__(x) != len(keys) or not all(map(is_, dict.keys(x), keys)):
        return False
    return same_all(dict.values(x), values)


def _lacks_all(space: dict, names: tuple[str, ...]) -> bool:
    return not any(map(space.__contains__, names))


def _lacks_slot(slot: Any, x: Any) -> bool:
    try:
        slot.__get__(x)
    except AttributeError:
        return True
    return False


_HELPERS = {"_ft_same": same, "_ft_same_all": same_all, "_ft_same_items": same_items,
            "_ft_content": content, "_ft_bytes": lambda x: bytes(memoryview(x)),
            "_ft_in_context": in_context, "_ft_lacks_all": _lacks_all,
            "_ft_lacks_slot": _lacks_slot, "_ft_is_empty": is_empty, "_ft_entries": entries_of,
            "_ft_behind_proxy": behind_proxy, "_ft_behind_ref": behind_ref, "_ft_misses": misses,
            "_ft_pickled": pickled, "_ft_type": type,
            "_ft_gone": (AttributeError, LookupError, NameError, ReferenceError)}
