"""What a program depends on beside its arguments, compared at each call of its function.

What the function itself changes while it is staged is its side effect, and not compared.
"""

from __future__ import annotations

import functools
import re
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import is_
from types import CellType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.run.checksum import content
from functrans._core.bind import Tracer
from functrans._transforms.staging.environment import (
    DEEPEST,
    Environment,
    Place,
    has_places,
    parts_of,
)
from functrans._transforms.staging.names import in_context

_VALUES = (bool, int, float, complex, str, bytes, type(None))


class Check(NamedTuple):
    """A test in Python of ``{0}``, the holder of a place, and ``{1}``, what was read there."""

    label: str
    test: str
    holder: Any
    saved: Any


def checks(environment: Environment) -> dict[tuple, Check]:
    """What tells later whether the places are as they are now; traced values are operands."""
    of_places = {k: _of_place(p) for k, p in environment.places.items()
                 if not isinstance(p.value, Tracer)}
    of_contents = {(k,): _of_contents(*pair) for k, pair in environment.mutable.items()}
    of_dtypes = {(k, "dtype"): Check(label, "{0}.dtype is {1}", x, x.dtype)
                 for k, (label, x) in environment.mutable.items() if isinstance(x, np.ndarray)}
    return of_places | of_contents | of_dtypes


def _of_place(place: Place) -> Check:
    read, x = place.read.format("{0}"), place.value
    test = f"{read} is {{1}}"
    if isinstance(x, _VALUES) or has_traced(x):  # an equal one in its place is as good
        test = f"({test} or _ft_same({read}, {{1}}))"
    return Check(place.label, test, place.holder, without_traced(x))


def _of_contents(label: str, x: Any) -> Check:
    if isinstance(x, np.ndarray):
        saved = content(x)
        now = "{0}.tobytes()" if type(saved) is bytes else "_ft_content({0})"
        return Check(label, f"{now} == {{1}} and {{0}}.shape == {x.shape}", x, saved)
    if isinstance(x, bytearray | memoryview | array):
        return Check(label, "_ft_bytes({0}) == {1}", x, bytes(memoryview(x)))
    if isinstance(x, set):
        return Check(label, "{0} == {1}", x, frozenset(x))
    if has_places(x) and isinstance(x, dict):
        return Check(label, "(*{0},) == {1}", x, tuple(x))
    if has_places(x):
        return Check(label, "len({0}) == {1}", x, len(x))
    values = tuple(map(without_traced, x.values() if isinstance(x, dict) else x))
    if isinstance(x, dict):
        return Check(label, "_ft_same_items({0}, {1})", x, (tuple(x), values))
    return Check(label, "_ft_same_all({0}, {1})", x, values)


class Reads:
    """What a function read when it was staged. ``unchanged()``: whether that is still so."""

    def __init__(self, checks: Sequence[Check]):
        self.checks = checks
        self.unchanged: Callable[[], bool] = _written(checks)

    def checksums(self) -> list[tuple[np.ndarray, int]]:
        """The large arrays that are compared, with the checksums that they must have."""
        return [(c.holder, c.saved) for c in self.checks
                if isinstance(c.holder, np.ndarray) and type(c.saved) is int]

    def changed(self) -> str:
        """What is not as it was."""
        return next((c.label for c in self.checks if not Reads([c]).unchanged()), "")


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


def _written(checks: Sequence[Check]) -> Callable[[], bool]:
    """The tests as one function, whose variables are cells and globals that users' functions read.

    So a place is compared in 2 ns. A getter for each takes 25, a loop over them 150.
    """
    cells = {name: CellType(x) for name, x in _HELPERS.items()}
    names = _globals_most_read(checks)
    tests = []
    for i, (_, test, holder, saved) in enumerate(checks):
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
    if isinstance(x, Tracer) or not depth or not isinstance(x, tuple | functools.partial):
        return isinstance(x, Tracer)
    return any([has_traced(part, depth - 1) for part in parts_of(x) or ()])


def without_traced(x: Any) -> Any:
    if isinstance(x, Tracer):
        return _Traced
    return _Parts((type(x), *map(without_traced, parts_of(x) or ()))) if has_traced(x) else x


def same(x: Any, saved: Any) -> bool:
    """Whether ``x`` is what was ``saved``, or one as good: an equal number or text of the same
    type, the signs of zeros included, a traced value in the place of one, a tuple of such."""
    if x is saved or saved is _Traced:
        return x is saved or isinstance(x, Tracer)
    if type(saved) is _Parts:
        return same_all(x if type(x) is _Parts else (type(x), *(parts_of(x) or ())), saved)
    if type(x) is not type(saved):
        return False
    if type(x) is tuple:
        return same_all(x, saved)
    return x == saved if type(x) is frozenset else type(x) in _VALUES and repr(x) == repr(saved)


def same_all(xs: Collection, saved: Collection) -> bool:
    return len(xs) == len(saved) and (all(map(is_, xs, saved)) or all(map(same, xs, saved)))


def same_items(x: dict, saved: tuple[tuple, tuple]) -> bool:
    keys, values = saved
    return len(x) == len(keys) and all(map(is_, x, keys)) and same_all(x.values(), values)


_HELPERS = {"_ft_same": same, "_ft_same_all": same_all, "_ft_same_items": same_items,
            "_ft_content": content, "_ft_bytes": lambda x: bytes(memoryview(x)),
            "_ft_in_context": in_context, "_ft_has": hasattr,
            "_ft_gone": (AttributeError, LookupError, NameError)}
