"""Steps that SciPy's solver has taken, once more on traced values, by compiled code.

It is kept with the right-hand side and the method. There is room for a power of two of steps, so
that solutions with other numbers of them share it. Where the right-hand side has no program, as one
in which Python decides by values, or has not been met often enough, the caller takes the steps in
Python.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from functrans._ops.calls import stop
from functrans.config import settings
from functrans.errors import ConcretizationError, UnsupportedError
from functrans.numpy.structure import as_operand
from functrans.scipy.calls import keep_compiled
from functrans.scipy.integrate.programs import Nodes, collected_steps, equation, floating
from functrans.scipy.integrate.search import Explicit, stepper

LEAST_ROOM = 16
# Steps, of two solutions or more, after which it pays to compile; of one solution, four times that.
OFTEN = 30
# Times that it is compiled anew since what it reads has changed.
CHANGES = 2
_met: WeakKeyDictionary[Callable, float] = WeakKeyDictionary()


class Taken(NamedTuple):
    """Steps on traced values: y where they begin and end; their stages, if these were asked for;
    and y at given times.
    """

    ys: Any
    stages: Any
    values: Any


class _Found(NamedTuple):
    """What the search of a program says of its steps."""

    n: Any
    extra: tuple


def take(method: str, fun: Callable, args: tuple, span: Sequence, y0: Any, sol: Any,
         times: Any, dense: bool) -> Taken | None:
    """The steps of ``sol``; None: not here."""
    pieces = sol.sol.interpolants
    n = len(pieces)
    ts = np.array([pieces[0].t_old, *[p.t for p in pieces]]) if n else np.zeros(1)
    kind = np.result_type(as_operand(y0).dtype, np.float32)
    if not settings().compiles or kind not in (np.float64, np.complex128) or not np.diff(ts).all():
        return None
    native = keep_compiled(_taken(method, dense, times is not None), fun)
    if native is None or not _is_met(native.func, n):
        return None
    most = max(LEAST_ROOM, 1 << (n - 1).bit_length())
    padded = np.full(most + 1, np.inf if ts[-1] > ts[0] else -np.inf)
    padded[: n + 1] = ts
    ends = span[0], span[1] if ts[-1] == stop(span[1]) and sol.status == 0 else ts[-1]
    try:
        ys, last, stages, values = native(
            padded, _guesses(method, pieces, most), np.array(n), *map(as_operand, ends),
            floating(y0), np.zeros(0) if times is None else times, *args)
    except (ConcretizationError, UnsupportedError):
        _met[native.func] = -np.inf
        return None
    if _is_changing(native.func):
        _met[native.func] = -np.inf
    ys = np.concatenate([ys[:n], last[None]])
    return Taken(ys, stages[:n] if dense else None, values)


def _is_changing(native: Any) -> bool:
    """Whether what a right-hand side reads has changed from solve to solve: it would be compiled
    for each, which takes longer than Python.
    """
    stagings = native.explain().stagings
    return sum(["has changed" in s.reason for s in stagings]) >= CHANGES


def _is_met(native: Callable, n: int) -> bool:
    """Whether it pays to compile."""
    before = _met.get(native, 0.0)
    met = _met[native] = before + n
    return met > (OFTEN if before else 4 * OFTEN)


def _guesses(method: str, pieces: Sequence, most: int) -> np.ndarray:
    """Of an implicit method the stages that SciPy has found."""
    way = stepper(method)
    if isinstance(way, Explicit):
        return np.zeros(0)
    found = np.zeros((most, 3, pieces[0].y_old.size), pieces[0].y_old.dtype)
    for row, piece in zip(found, pieces, strict=False):
        h = piece.t - piece.t_old
        row[:] = [piece(piece.t_old + c * h) - piece.y_old for c in way.C]
    return found


@functools.cache
def _taken(name: str, dense: bool, placed: bool) -> Callable:
    """The steps of a method as a function of its right-hand side, to be compiled."""
    method = stepper(name)

    def steps(fun: Callable, ts: Any, guesses: Any, n: Any, t0: Any, t1: Any, y0: Any, times: Any,
              *args: Any) -> tuple:
        eq = equation(lambda t, y: fun(t, y, *args), y0)
        place = np.arange(ts.shape[0])
        moved = np.where(place == 0, t0 - stop(t0), 0.0) + np.where(place == n, t1 - stop(t1), 0.0)
        ts = ts + np.where(np.isfinite(ts), moved, 0.0)
        kept = 2 if dense or placed else 1
        last, (ys, *stages) = collected_steps(eq, method, ts, y0, _Found(n, (guesses,)), kept)
        values = Nodes(ts, n, y0, ys, stages[0]).at(method, times) if placed else 0.0
        return ys, last, stages[0] if dense else 0.0, values

    return steps
