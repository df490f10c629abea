"""Solutions of differential equations as programs, and their events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.ir.program import evaluate
from functrans._core.array import Aval
from functrans._core.bind import AnyArray
from functrans._ops.calls import stop
from functrans._ops.declare import Linear
from functrans._transforms.control.api import cond, while_loop
from functrans._transforms.control.flow import counted_scan
from functrans._transforms.control.scan import scan
from functrans._transforms.forward.api import jvp
from functrans._transforms.matrices.jacobian import jacobian
from functrans._transforms.rules.custom import custom_jvp
from functrans._transforms.staging.jit import jit
from functrans._transforms.staging.staging import stage_part, with_consts
from functrans._transforms.vmap import vmap
from functrans.errors import SolverError
from functrans.numpy.structure import as_operand
from functrans.scipy.integrate import search
from functrans.scipy.integrate.search import (
    STOPPED,
    Explicit,
    Radau,
    State,
    Tolerances,
    movable,
    stepper,
)

# ---- Events of differential equations in programs: where functions of a solution change sign
#
# The search for steps notes in which of them an event changes sign, and ends with the step in which
# a terminal one does so for the last time. Within the step the time is a root along the method's
# interpolant, found by bisection and differentiated as the solution of event(t, y(t)) = 0, to any
# order. How many there will be is not known before the program runs: times beyond are NaN.

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


# ---- Solutions of differential equations as programs: what ``jit`` and ``vmap`` make of them
#
# The right-hand side is staged once. A loop finds the steps that the tolerances ask for; a second
# one takes them again and is the one that is differentiated. So derivatives are those of the
# numbers that the method computes with these steps, as without ``jit``. How many there are is known
# only when the program runs, which has room for ``max_steps``.

MAX_STEPS = 4096
MESSAGES = {
    search.TOO_MANY: "it took more than max_steps={most} steps. Pass a larger max_steps=, or "
                     "larger tolerances.",
    search.TOO_SMALL: "Required step size is less than spacing between numbers.",
}


class Equation(NamedTuple):
    """y' = f(t, y) as a program, and the values that it closes over."""

    program: Any
    consts: list

    def at(self, consts: Sequence) -> Callable[[Any, Any], Any]:
        def f(t: Any, y: Any) -> AnyArray:
            return evaluate(self.program, [*consts, t, y])[0]

        return f


def equation(fun: Callable, y0: Any, shape: tuple[int, ...] | None = None) -> Equation:
    """``fun(t, y)`` as a program, for y like ``y0``: the right-hand side, or of a ``shape``."""
    what = "the right-hand side" if shape is None else "an event"
    zeros = np.zeros(y0.shape, y0.dtype) if shape is None else np.zeros(shape)

    def flat(t: Any, y: Any) -> AnyArray:
        return as_operand(fun(t, y)).reshape(zeros.shape) + zeros

    part = stage_part(flat, [np.zeros(()), np.ones(y0.shape, y0.dtype)], what)
    consts, (program,) = with_consts([part])
    return Equation(program, consts)


class Nodes(NamedTuple):
    """Steps taken: the times where they begin and end, the values there, and their stages.

    Between them y is ``ys[k] + h * w(x) @ stages[k]``, without h for Radau.
    """

    ts: Any
    count: Any
    y0: Any
    ys: Any
    stages: Any

    def at(self, method: Explicit | Radau, times: Any) -> AnyArray:
        """Values at ``times``, along axis 0."""
        ts = stop(self.ts)
        sign = np.where(ts[1] < ts[0], -1.0, 1.0)
        k = _last_before(sign * ts, sign * stop(times))
        k = np.minimum(k, np.maximum(self.count - 1, 0))
        before, after = self.ts[k], self.ts[k + 1]
        h = np.where(np.isfinite(after), after - before, 1.0)
        w = method.weights((times - before) / h)
        w = h[:, None] * w if method.scaled else w
        y = self.ys[k] + (w[:, :, None] * self.stages[k]).sum(axis=1)
        return np.where(self.count == 0, self.y0, y)


def _last_before(ts: Any, times: Any) -> AnyArray:
    """For each time the last of the rising ``ts`` that is less, or the first: by bisection, for
    np.searchsorted has no native code.
    """
    last = ts.shape[0] - 1

    def step(k: Any, jump: Any) -> tuple[Any, None]:
        further = k + jump
        inside = further <= last
        return np.where(inside & (ts[np.minimum(further, last)] < times), further, k), None

    jumps = 2 ** np.arange(last.bit_length())[::-1]
    return scan(step, (times != times).astype(np.int64), jumps)[0]


def nodes(eq: Equation, consts: Sequence, method: Explicit | Radau, span: tuple, y0: Any,
          tol: Tolerances, most: int, stiff: bool,
          watched: Sequence[Watched] = ()) -> tuple[Nodes, search.State]:
    """The steps of a method over ``span``, and how the search for them ended."""
    fixed = eq.at([stop(c) for c in consts])
    t0, t1, start = stop(span[0]), stop(span[1]), stop(y0)
    watcher = watch(watched, most, t0, start) if watched else None
    if isinstance(method, Explicit):
        found = search.explicit(method, fixed, t0, t1, start, tol, most, stiff, watch=watcher)
    else:
        found = search.radau(method, fixed, t0, t1, start, tol, most, watch=watcher)
    found = found._replace(**{k: stop(getattr(found, k)) for k in ("ts", "n", "status")})
    place = np.arange(most + 1)
    ends = np.where(place == 0, span[0] - t0, 0.0)
    last = (place == found.n) & (found.n > 0) & (found.t == t1)
    ends = ends + np.where(last, span[1] - t1, 0.0)
    ts = found.ts + np.where(np.isfinite(found.ts), ends, 0.0)
    again: Any = _explicit_steps if isinstance(method, Explicit) else _radau_steps
    _, (ys, stages) = again(eq, consts, method, ts, y0, found, most, 2)
    return Nodes(ts, found.n, y0, ys, stages), found


def end_value(eq: Equation, consts: Sequence, method: Explicit | Radau, span: tuple, y0: Any,
              tol: Tolerances, most: int) -> tuple[Any, Any]:
    """The value at the end of a ``span`` of at most so many steps, and how the search ended."""
    fixed, start = eq.at([stop(c) for c in consts]), stop(y0)
    find: Any = search.explicit if isinstance(method, Explicit) else search.radau
    found = find(method, fixed, *map(stop, span), start, tol, most)
    found = found._replace(ts=stop(found.ts), n=stop(found.n))
    again: Any = _explicit_steps if isinstance(method, Explicit) else _radau_steps
    return again(eq, consts, method, found.ts, y0, found, most, 0)[0], found.status


def collected_steps(eq: Equation, method: Explicit | Radau, ts: Any, y0: Any, found: Any,
                    kept: int) -> tuple[Any, list]:
    """The last value of known steps; where each begins, y if ``kept`` and stages if that is 2."""
    again: Any = _explicit_steps if isinstance(method, Explicit) else _radau_steps
    return again(eq, eq.consts, method, ts, y0, found, ts.shape[0] - 1, kept)


def _explicit_steps(eq: Equation, consts: Sequence, method: Explicit, ts: Any, y0: Any,
                    found: search.State, most: int, kept: int) -> tuple[Any, list]:
    """The last value; if ``kept``, values, and if that is 2, slopes from which others come."""
    f = eq.at(consts)

    def step(state: Sequence, entries: Sequence) -> tuple[list, list]:
        (y, slope), (t, end) = state, entries
        new, ks = method.stages(f, t, y, end - t, slope, kept == 2)
        return [new, ks[method.plain - 1]], [y, np.stack(ks)] if kept == 2 else [y][:kept]

    columns = [ts[:-1], ts[1:]]
    (y, _), collected = counted_scan(step, [y0, f(ts[0], y0)], columns, most, found.n, "steps")
    return y, collected


def _radau_steps(eq: Equation, consts: Sequence, method: Radau, ts: Any, y0: Any,
                 found: search.State, most: int, kept: int) -> tuple[Any, list]:
    root = collocation(eq._replace(consts=[]), method)
    guesses = stop(found.extra[0])

    def step(state: Sequence, entries: Sequence) -> tuple[list, list]:
        (y,), (t, end, guess) = state, entries
        Z = root(guess, t, end - t, y, list(consts))
        return [y + Z[2]], [y, Z][:kept]

    columns = [ts[:-1], ts[1:], guesses]
    (y,), collected = counted_scan(step, [y0], columns, most, found.n, "steps")
    return y, collected


def collocation(eq: Equation, method: Radau) -> Callable:
    """The stages Z of a step of Radau, with the derivatives of the solution of its equations.

    The rule solves with the Jacobian at Z, which it is given with its own derivatives: it holds
    for any order.
    """
    def residual(Z: Any, t: Any, h: Any, y: Any, consts: Sequence) -> AnyArray:
        f = eq.at(consts)
        slopes = np.stack([f(t + float(c) * h, y + Z[i]) for i, c in enumerate(method.C)])
        return Z - h * np.tensordot(method.A, slopes, 1)

    def solve(Z: Any, b: Any, *rest: Any) -> Any:
        matrix = jacobian(lambda Z: residual(Z, *rest).reshape(-1))(Z)
        return np.linalg.solve(matrix.reshape(b.size, b.size), b.reshape(-1)).reshape(b.shape)

    @custom_jvp
    def root(guess: Any, t: Any, h: Any, y: Any, consts: Sequence) -> Any:
        rest = (t, h, y, consts)

        def going(state: tuple) -> AnyArray:
            Z, change, k = state
            small = np.abs(change).max() <= 4 * np.finfo(float).eps * np.abs(Z).max()
            return ~small & (k < 4)

        def newton(state: tuple) -> tuple:
            Z, _, k = state
            change = solve(Z, residual(Z, *rest), *rest)
            return Z - change, change, k + 1

        return while_loop(going, newton, (guess, guess + np.inf, (h != h).astype(np.int64)))[0]

    @root.defjvp
    def rule(primals: Any, tangents: Any) -> tuple[Any, Any]:
        (guess, *rest), ts = primals, tangents[1:]
        Z = root(guess, *rest)
        only, merged = search.movable(rest[3])
        _, tangent = jvp(lambda t, h, y, moving: residual(Z, t, h, y, merged(moving)),
                         (*rest[:3], only(rest[3])), (*ts[:3], only(ts[3])))
        return Z, -solve(Z, tangent, *rest)

    return root


# ---- what went wrong


def refused(times: Any, t0: Any, t1: Any, strict: bool) -> AnyArray:
    """What to multiply values with: NaN where SciPy refuses ``times``, which are outside of the
    span, or not in order.
    """
    sign = np.where(stop(t1) < stop(t0), -1.0, 1.0)
    ts, start, end = [sign * stop(t) for t in (times, t0, t1)]
    ordered = np.all(ts[1:] > ts[:-1] if strict else ts[1:] >= ts[:-1])
    inside = np.all((ts >= start) & (ts <= end))
    # so are the derivatives in times
    return 1.0 + np.where(ordered & inside, 0.0, np.nan) * (t0 + t1 + times.sum())


def _check(y: np.ndarray, status: np.ndarray, who: str, most: int) -> np.ndarray:
    worst = int(np.max(status, initial=0))
    if worst:
        raise SolverError(f"{who} failed: {MESSAGES[worst].format(most=most)}")
    return y


checked = Linear(
    "solver_status", _check, lambda ct, y, status, who, most: ct,
    lambda size, xs, batched, who, most: checked(*xs, who=who, most=most), 1,
    abstract=lambda y, status, who, most: Aval(y.shape, y.dtype), domain="",
    doc="The first operand, if the second is 0 everywhere: else the solver failed.",
)


# ---- entries


def values(who: str, method: str | None, fun: Callable, span: Any, y0: Any, times: Any,
           tol: Tolerances, most: int) -> AnyArray:
    """The solution at ``times``; with no method, by DOP853, and by Radau where it is stiff."""
    y0 = floating(y0)
    eq = equation(fun, y0)

    def by(name: str, stiff: bool, t0: Any, t1: Any, y0: Any, times: Any, consts: list) -> tuple:
        path, found = nodes(eq, consts, stepper(name), (t0, t1), y0, tol, most, stiff)
        return path.at(stepper(name), times), found.status

    def core(*given: Any) -> Any:
        y, status = by(method or "DOP853", method is None, *given)
        if method is None:
            y, status = cond(status != 0, lambda *xs: by("Radau", False, *xs[2:]),
                             lambda *xs: xs[:2], y, status, *given)
        t0, t1, _, times, _ = given
        y = y * refused(times, t0, t1, who == "solve_ivp")
        return checked(y, status, who=who, most=most)

    t0, t1 = [as_operand(t) + np.zeros(()) for t in (span[0], span[1])]
    return jit(core)(t0, t1, y0, as_operand(times) + 0.0, [as_operand(c) for c in eq.consts])


def with_events(method: str, fun: Callable, watched: Sequence[tuple[Callable, int, float, int]],
                span: Any, y0: Any, times: Any, tol: Tolerances, most: int) -> tuple:
    """The solution at ``times`` up to a terminal event, NaN beyond; those times; 1 if one ended it;
    of each event the times and the values there.
    """
    y0 = floating(y0)
    eq, way = equation(fun, y0), stepper(method)
    tests = [equation(e, y0, ()) for e, *_ in watched]

    def core(t0: Any, t1: Any, y0: Any, times: Any, consts: list, others: list) -> tuple:
        seen = [Watched(t._replace(consts=c), *w[1:])
                for t, c, w in zip(tests, others, watched, strict=True)]
        path, found = nodes(eq, consts, way, (t0, t1), y0, tol, most, False, seen)
        stopped = found.status == search.STOPPED
        status = np.where(stopped, 0, found.status)
        sign = np.where(stop(t1) < stop(t0), -1.0, 1.0)
        hits = stop(found.watched[2])
        at = [located(path, way, e, hits[:, i]) for i, e in enumerate(seen)]
        last, kept = until_the_end(seen, at, sign)
        inside = sign * stop(times) <= sign * last
        y = np.where(inside[:, None], path.at(way, times), np.nan)
        y = y * refused(times, t0, t1, True)
        y = checked(y, status, who="solve_ivp", most=most)
        return y, np.where(inside, times, np.nan), stopped.astype(np.int64), *kept

    t0, t1 = [as_operand(t) + np.zeros(()) for t in (span[0], span[1])]
    return jit(core)(t0, t1, y0, as_operand(times) + 0.0, *[
        [as_operand(c) for c in eq.consts], [[as_operand(c) for c in t.consts] for t in tests]])


def floating(y0: Any) -> AnyArray:
    """An initial value as SciPy takes it: a vector of float64 or complex128."""
    y0 = as_operand(y0).reshape(-1)
    return y0 + np.zeros(y0.shape, np.result_type(y0.dtype, float))
