"""Events of differential equations in programs: where functions of a solution change sign.

The search for steps notes in which of them an event changes sign, and ends with the step in which
a terminal one does so for the last time. Within the step the time is a root along the method's
interpolant, found by bisection and differentiated as the solution of event(t, y(t)) = 0, to any
order. How many there will be is not known before the program runs: times beyond are NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._core.bind import AnyArray
from functrans._ops.calls import stop
from functrans._transforms.control.scan import scan
from functrans._transforms.forward.api import jvp
from functrans._transforms.rules.custom import custom_jvp
from functrans._transforms.vmap import vmap
from functrans.scipy.integrate.search import STOPPED, State, movable

BISECTIONS = 64


class Watched(NamedTuple):
    """An event: its equation, the number of times after which it ends the solution (0: none), the
    direction of its changes of sign, and how many of them there is room for.
    """

    equation: Any
    terminal: int
    direction: float
    room: int


def watch(watched: Sequence[Watched], most: int, t0: Any, y0: Any) -> tuple[Callable, tuple]:
    """What the search does after an attempt, and what it starts with."""
    events = [e.equation.at([stop(c) for c in e.equation.consts]) for e in watched]
    limits = np.array([e.terminal or most + 1 for e in watched])
    rising = np.array([e.direction >= 0 for e in watched])
    falling = np.array([e.direction <= 0 for e in watched])

    def at(t: Any, y: Any) -> AnyArray:
        return np.stack([e(t, y) for e in events])

    def after(old: State, new: State) -> State:
        before, counts, hits = old.watched
        now = at(new.t, new.y)
        up, down = (before <= 0) & (now >= 0), (before >= 0) & (now <= 0)
        active = ((up & rising) | (down & falling)) & (new.n > old.n)
        counts = counts + active.astype(np.int64)
        ended = (counts >= limits).any() & (new.n > old.n)
        return new._replace(
            status=np.where(ended, STOPPED, new.status),
            watched=(now, counts, hits.at[np.maximum(new.n - 1, 0)].set(active | (
                hits[np.maximum(new.n - 1, 0)]))),
        )

    first = at(t0, y0)
    none = first != first
    hits: Any = np.zeros((most, len(watched)), bool) & none
    return after, (first, none.astype(np.int64), hits)


def located(path: Any, method: Any, e: Watched, hits: Any) -> tuple[Any, Any, Any]:
    """The times of an event, the values there, and which of them there are."""
    most = hits.shape[0]
    passed = np.cumsum(hits.astype(np.int64))
    k = (passed[None, :] <= np.arange(e.room)[:, None]).sum(axis=1)
    found = k < most
    k = np.where(found, k, 0)
    begin, end = path.ts[k], path.ts[k + 1]
    end = np.where(np.isfinite(end), end, begin + 1.0)
    steps = (begin, end, path.ys[k], path.stages[k])
    root, along = _root(e.equation, method)
    times = vmap(root, in_axes=(0, 0, None))(found, steps, list(e.equation.consts))
    return times, vmap(along)(times, steps), found


def _root(equation: Any, method: Any) -> tuple[Callable, Callable]:
    """The time of the event within a step, and the solution there."""

    def along(t: Any, step: tuple) -> Any:
        begin, end, y, stages = step
        h = end - begin
        w = method.weights(((t - begin) / h)[None])[0]
        moved = (w[:, None] * stages).sum(axis=0)
        return y + (h * moved if method.scaled else moved)

    def residual(t: Any, step: tuple, consts: Sequence) -> Any:
        return equation.at(consts)(t, along(t, step))

    @custom_jvp
    def root(found: Any, step: tuple, consts: list) -> Any:
        side = np.sign(residual(step[0], step, consts))

        def halve(ends: tuple, _: Any) -> tuple:
            lo, hi = ends
            middle = lo + 0.5 * (hi - lo)
            beyond = residual(middle, step, consts) * side > 0
            return (np.where(beyond, middle, lo), np.where(beyond, hi, middle)), None

        return scan(halve, (step[0], step[1]), np.zeros(BISECTIONS))[0][1]

    @root.defjvp
    def rule(primals: Any, tangents: Any) -> tuple[Any, Any]:
        (found, step, consts), (_, moved_step, moved_consts) = primals, tangents
        t = root(found, step, consts)
        only, merged = movable(consts)
        _, moved = jvp(lambda step, moving: residual(t, step, merged(moving)),
                       (step, only(consts)), (moved_step, only(moved_consts)))
        _, slope = jvp(lambda t: residual(t, step, consts), (t,), (np.ones(()),))
        return t, -moved / np.where(found, slope, 1.0)

    return root, along


def until_the_end(watched: Sequence[Watched], found: list, sign: Any) -> tuple[Any, list]:
    """When a terminal event ends the solution, infinite otherwise; times and values up to then,
    NaN beyond.
    """
    last: Any = np.inf * sign
    for e, (times, _, there) in zip(watched, found, strict=True):
        if e.terminal:
            t = stop(np.where(there[e.terminal - 1], times[e.terminal - 1], np.inf * sign))
            last = sign * np.minimum(sign * last, sign * t)
    kept = []
    for times, values, there in found:
        there = there & (sign * stop(times) <= sign * last)
        kept += [np.where(there, times, np.nan), np.where(there[:, None], values, np.nan)]
    return last, kept
