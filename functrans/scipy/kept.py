"""What a solve has found is kept for its derivatives, in programs too.

There a solver is a step that runs on numbers, and so is each of its derivatives. The step hands out
a number, its *mark*, which the derivatives read: under it lie the solution and the factors of its
Jacobian. Where they are gone, for there are many, a derivative makes the solve again.
"""

from __future__ import annotations

import copy
import functools
import itertools
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

from scipy.optimize import Bounds, LinearConstraint, NonlinearConstraint, OptimizeResult

from functrans import tree
from functrans._core.locks import Lock

T = TypeVar("T")
# Solutions that a solver keeps, and their bytes.
MOST, BYTES = 4096, 1 << 24


class Marks:
    """The solutions of one solver that are kept, by their marks, the latest last."""

    def __init__(self):
        self.found: dict[int, dict[str, Any]] = {}
        self.sizes: dict[int, int] = {}
        self.total, self.lock = 0, Lock()

    def at(self, mark: int) -> dict[str, Any]:
        """What is kept of a solve; nothing, if it is gone."""
        return self.found.get(mark, {})

    def keep(self, found: dict[str, Any], mark: int | None = None) -> int:
        """The mark of what a solve, or a derivative of it, has found."""
        mark = next(_marks) if mark is None else mark
        with self.lock:
            self.found[mark] = found
            size = _bytes(found)
            self.total += size - self.sizes.get(mark, 0)
            self.sizes[mark] = size
            while len(self.found) > 1 and (self.total > BYTES or len(self.found) > MOST):
                oldest = next(iter(self.found))
                del self.found[oldest]
                self.total -= self.sizes.pop(oldest)
        return mark


def _begin() -> None:
    """Count from a number that no other process begins with: marks may be handed to another, which
    must not take what it has under the same number."""
    global _marks
    _marks = itertools.count(random.SystemRandom().getrandbits(50))


_marks: Iterator[int]
_begin()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin)


def _bytes(x: Any) -> int:
    if isinstance(x, tuple | list | dict):
        return sum([_bytes(v) for v in (x.values() if isinstance(x, dict) else x)])
    return getattr(x, "nbytes", 0)


def _copy_of(x: Any) -> Any:
    """What a solver may put other parts into."""
    if not isinstance(x, OptimizeResult):
        return x
    y = type(x).__new__(type(x))
    y.update([(k, _copy_of(v)) for k, v in x.items()])
    return y


class Visit:
    """A run of a solver, of which ``found`` is known already; ``names`` have been asked for."""

    def __init__(self, found: dict[str, Any]):
        self.found, self.names = found, set[str]()


VISIT: ContextVar[Visit | None] = ContextVar("visit", default=None)


def visit_with(found: dict[str, Any] | None, run: Callable[[], T]) -> T:
    """``run()`` of a solver that keeps what it finds in ``found``, or takes it from there."""
    before = VISIT.get()
    VISIT.set(None if found is None else Visit(found))
    try:
        return run()
    finally:
        VISIT.set(before)


def once(name: str, find: Callable[[], T]) -> T:
    """``find()``, or what it was when the solver ran with the same values.

    A second call of the same ``name``, as by a solver inside of a solver, is not kept.
    """
    visit = VISIT.get()
    if visit is None or name in visit.names:
        return find()
    visit.names.add(name)
    if name not in visit.found:
        visit.found[name] = visit_with(None, find)
    return _copy_of(visit.found[name])


def is_kept(name: str = "solve") -> bool:
    """Whether ``once`` will keep what it finds, or has it already."""
    visit = VISIT.get()
    return visit is not None and name not in visit.names


# ---- SciPy's containers


def flatten(x: Any) -> tuple[list, Callable[[Iterator], Any]]:
    """The leaves of a container, SciPy's too, and the function that puts others in their place."""
    opened = _open(x)
    if opened is None:
        return [x], next
    children, close = opened
    parts = list(map(flatten, children))
    return ([leaf for leaves, _ in parts for leaf in leaves],
            lambda leaves: close([build(leaves) for _, build in parts]))


def _open(x: Any) -> tuple[Sequence, Callable[[list], Any]] | None:
    if isinstance(x, OptimizeResult):
        return list(x.values()), lambda children: _with(x, zip(x, children, strict=True))
    if isinstance(x, Bounds | LinearConstraint | NonlinearConstraint):
        return list(vars(x).values()), lambda children: _with(
            x, zip(vars(x), children, strict=True))
    opened = tree.opened(x)
    return opened and (list(opened[0]), functools.partial(tree.with_children, x))


def _with(x: Any, entries: Iterable) -> Any:
    y = copy.copy(x)
    (y if isinstance(y, dict) else vars(y)).update(entries)
    return y
