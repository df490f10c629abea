"""Draws of random numbers by generators of ``functrans.numpy.random``, under transforms.

Each run that serves for many calls or rows says what a draw is in it (``Drawing``). A draw goes to
the newest of them, which asks the older ones for the numbers: ``jit`` writes down that the program
takes numbers there, which each call draws anew, ``vmap`` has one draw for each row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import Signature, signature
from math import prod
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from functrans import tree
from functrans._core.bind import Tracer, next_level
from functrans._core.writing import current, hand, writing
from functrans.errors import UnsupportedError, user_line

T = TypeVar("T")

# Methods one call of which for more numbers draws what several calls do.
_ALIKE = frozenset({
    "beta", "chisquare", "exponential", "gamma", "gumbel", "laplace", "logistic", "lognormal",
    "normal", "pareto", "power", "rayleigh", "random_sample", "standard_cauchy",
    "standard_exponential", "standard_gamma", "standard_normal", "standard_t", "triangular",
    "uniform", "vonmises", "wald", "weibull",
})


class Draw(NamedTuple):
    """A call of a method of a generator.

    ``born`` is the level of the run that made the generator, ``batch`` how many rows there are, of
    each of which it is a draw.
    """

    generator: Any
    name: str
    method: Callable
    args: tuple
    kwargs: dict
    born: float
    batch: tuple[int, ...] = ()

    def made(self) -> Any:
        if not self.batch:
            return self.method(self.generator, *self.args, **self.kwargs)
        how = _signature(self.method) if self.name in _ALIKE else None
        given = how and how.bind(self.generator, *self.args, **self.kwargs)
        if given is None or any([np.ndim(x) for k, x in given.arguments.items() if k != "size"]):
            one = self._replace(batch=())
            rows = np.array([one.made() for _ in range(prod(self.batch))])
            return rows.reshape(self.batch + rows.shape[1:])
        size = given.arguments.get("size")
        own = () if size is None else size if isinstance(size, tuple) else (size,)
        given.arguments["size"] = (*self.batch, *own)
        return self.method(*given.args, **given.kwargs)

    def kept(self) -> Draw:
        """With copies of its arguments, which their owner may change."""
        args, kwargs = tree.map(_copy, (self.args, self.kwargs))
        return self._replace(args=args, kwargs=kwargs)

    def rows(self, count: int) -> Draw:
        """For each row of a batch, one after the other."""
        return self._replace(batch=(count, *self.batch))

    def like(self, other: Draw) -> bool:
        """Whether it draws the same from the same generator."""
        mine, theirs = (tree.flatten((d.args, d.kwargs)) for d in (self, other))
        alike = mine[1] == theirs[1] and all(map(_equal, mine[0], theirs[0]))
        same = self.generator is other.generator and self.name == other.name
        return same and self.batch == other.batch and alike


class Drawing(Protocol):
    """A run that serves for many calls or rows."""

    level: float

    def draw(self, d: Draw, outside: Callable[[Draw], Any]) -> Any:
        """What the function gets that is run; ``outside`` draws in what is around the run."""
        ...

    def rehearse(self, kept: bool) -> Callable[[], None] | None:
        """What undoes the draws from now on, if they are written down; ``kept``: not the numbers.
        """


_runs: ContextVar[tuple[Drawing, ...]] = ContextVar("runs", default=())


def drawing(run: Drawing, f: Callable[[], T]) -> T:
    """``f()``, whose draws are those of a run."""
    before = _runs.get()
    try:
        _runs.set((*before, run))
        return f()
    finally:
        _runs.set(before)


@contextmanager
def rehearsal(drawn: Drawn) -> Iterator[None]:
    """A block that stages a function which will then run, in programs that are being written.

    These write its draws down as it runs, between its decisions, which are theirs too. The numbers
    are the same: the oldest program keeps them.
    """
    undoing: list[Callable[[], None]] = []
    for run in _runs.get():
        undo = run.rehearse(kept=not undoing)
        undoing += [] if undo is None else [undo]
    if undoing:
        undoing.append(drawn.rehearse())
    try:
        yield
    finally:
        for undo in undoing:
            undo()


@contextmanager
def outside() -> Iterator[None]:
    """A block in which draws are numbers."""
    before = _runs.get()
    try:
        _runs.set(())
        yield
    finally:
        _runs.set(before)


def level() -> float:
    """That of the newest run, for a generator that it makes."""
    runs = _runs.get()
    return runs[-1].level if runs else 0


def drawn(d: Draw) -> Any:
    """The numbers, or what stands for them in the runs that are newer than the generator."""
    return _draw(d, _runs.get())


def _draw(d: Draw, runs: tuple[Drawing, ...]) -> Any:
    if not runs or runs[-1].level <= d.born:
        with outside():  # NumPy may call other methods
            return d.made()
    return runs[-1].draw(d, lambda d: _draw(d, runs[:-1]))


def is_plain() -> bool:
    """Whether draws are numbers, in arrays that nobody follows."""
    return not _runs.get() and writing.get() is None


def is_inside(born: float) -> bool:
    """Whether a run serves for many calls or rows that is newer than a generator."""
    return level() > born


def draw(
    generator: Any, name: str, method: Callable, args: tuple, kwargs: dict, born: float
) -> Any:
    """What a method of a generator returns to a function."""
    args, kwargs = tree.map(current, (args, kwargs))
    if any([isinstance(x, Tracer) for x in tree.leaves((args, kwargs))]):
        raise UnsupportedError(
            f"{user_line()}: `{name}` of a generator got a traced value. Parameters of normal, "
            "uniform and exponential may be traced; functrans.random and rvs of "
            "functrans.scipy.stats have other distributions."
        )
    return hand(drawn(Draw(generator, name, method, args, kwargs, born)))


class Drawn:
    """What one call of a compiled function has drawn so far, in order.

    A call that meets a new path, or runs anew with other code, takes the same numbers again.
    """

    __slots__ = ("made",)

    def __init__(self) -> None:
        self.made: dict[int, list[tuple[Draw, Any]]] = {}

    def take(self, i: int, d: Draw, outside: Callable[[Draw], Any] = drawn) -> Any:
        """The draw number ``i`` of a path."""
        made = self.made.setdefault(i, [])
        for other, y in made:
            if d is other or d.like(other):
                return y
        made.append((d, outside(d)))
        return made[-1][1]

    def rehearse(self) -> Callable[[], None]:
        """What forgets what is taken from now on."""
        before = {i: list(made) for i, made in self.made.items()}

        def undo() -> None:
            self.made = before

        return undo

    def values(self, draws: Iterable[tuple[int, Draw]]) -> dict[Any, Any]:
        """Draws with such numbers, by their keys among what a program begins with."""
        return {key_of(i): self.take(i, d) for i, d in draws}


class Again:
    """A run of Python's of a call that has drawn numbers already: it gets them, then others."""

    def __init__(self, drawn: Drawn):
        self.level: float = next_level()
        self.drawn, self.count = drawn, 0

    def draw(self, d: Draw, outside: Callable[[Draw], Any]) -> Any:
        self.count += 1
        return self.drawn.take(self.count - 1, d.kept(), outside)

    def rehearse(self, kept: bool) -> Callable[[], None] | None:
        if kept:
            return None  # in no program
        count, forget = self.count, self.drawn.rehearse()

        def undo() -> None:
            self.count = count
            forget()

        return undo


def key_of(i: int) -> tuple[str, int]:
    """Where the draw number ``i`` of a path stands, among the places of what is closed over."""
    return "draw", i


@functools.cache
def _signature(method: Callable) -> Signature | None:
    try:
        return signature(method)
    except ValueError:  # some versions of NumPy do not tell
        return None


def _copy(x: Any) -> Any:
    return x.copy() if isinstance(x, np.ndarray) else x


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return a is b or (type(a) is type(b) and bool(np.all(a == b)))
