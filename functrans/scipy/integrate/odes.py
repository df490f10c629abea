"""Solutions of ordinary differential equations, differentiable in all that they depend on.

SciPy's solver runs on numbers and finds the steps. They are then done once more on traced values:
derivatives are those of the numbers that the method computes with these steps.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import integrate
from scipy.optimize import OptimizeResult

from functrans._core.bind import AnyArray, Tracer
from functrans._transforms.matrices.jacobian import jacobian
from functrans.errors import (
    NotDifferentiable,
    SolverError,
    UnsupportedError,
    user_line,
)
from functrans.numpy.structure import as_operand
from functrans.scipy.calls import Derivative, Numbers, Underivable, as_args
from functrans.scipy.implicit import Numberless, concrete, implicit, require_success
from functrans.scipy.integrate import adjoint as continuous
from functrans.scipy.integrate import programs
from functrans.scipy.integrate.programs import MAX_STEPS
from functrans.scipy.integrate.search import Explicit, Step, Tolerances, stepper
from functrans.scipy.integrate.steps import Taken, take
from functrans.scipy.programs import written_into
from functrans.scipy.public import is_traced

si: Any = integrate  # its types say less than its functions take
LSODA_TOLERANCE = 1.49012e-8  # where none is given
OF_LSODA = ("min_step", "lband", "uband")  # options that only this method has


@written_into
def solve_ivp(fun, t_span, y0, method="RK45", t_eval=None, dense_output=False, events=None,
              vectorized=False, args=None, *, adjoint=False, max_steps=MAX_STEPS, max_events=16,
              **options):
    """The solution of y' = fun(t, y, *args) from ``y0`` over the times ``t_span``.

    Methods RK45, RK23, DOP853 and Radau have derivatives, in ``y0``, ``args``, times and what
    ``fun`` and ``events`` close over; Radau is given the exact Jacobian. BDF and LSODA, whose steps
    depend on those before, are Radau beside traced values, with the same tolerances. The derivative
    in a time is that of the method's interpolant.

    Under ``jit`` and ``vmap`` the solver is part of the program, with steps as SciPy chooses them;
    it needs ``t_eval``, and has room for ``max_steps`` steps, for ``max_events`` times of an event
    and, if that is terminal, as many as it takes. ``t``, ``y`` and the results of events keep their
    shapes: what is not there is NaN, and ``status`` is part of the program; where SciPy refuses
    times that are not known, all values are NaN. With ``adjoint`` gradients take memory that does
    not grow with the steps, which are found again, and are right up to the tolerances; it takes
    reverse mode of first order and no ``events``, and needs ``t_eval`` too.

    Raises SolverError with SciPy's message where the solver fails, UnsupportedError for methods of
    others beside traced values.

    >>> import functrans as ft, numpy as np
    >>> decay = lambda k: solve_ivp(lambda t, y: -k * y, (0, 1), [1.0], rtol=1e-9).y[0, -1]
    >>> bool(np.isclose(ft.grad(decay)(2.0), -np.exp(-2.0)))
    True
    """
    rest: tuple = () if args is None else tuple(args)
    t_eval = _together(t_eval)

    def as_program() -> Any:
        return _program_of(fun, t_span, y0, method, t_eval, dense_output, events, rest, options,
                           adjoint, (max_steps, max_events))

    if adjoint:
        return as_program()
    try:
        return _by_scipy(fun, t_span, y0, method, t_eval, dense_output, events, vectorized, rest,
                         dict(options))
    except Numberless:
        return as_program()


def _by_scipy(fun, t_span, y0, method, t_eval, dense_output, events, vectorized, rest, options):
    f = Numbers(fun)
    listed = [events] if callable(events) else list(events or ())
    watched = [_event(e) for e in listed]
    span, start, numbers, points = concrete((tuple(t_span), _together(y0), rest, t_eval))
    if callable(options.get("jac")):
        options["jac"] = Numbers(options["jac"])
    elif method in ("Radau", "BDF", "LSODA") and options.get("jac") is None:
        options["jac"] = _slopes_if_any(fun, numbers, span[0], start)

    def run(dense: bool) -> Any:
        return si.solve_ivp(f, span, start, method, points, dense, watched or None, vectorized,
                            numbers or None, **options)

    traced = is_traced((list(t_span), y0, rest, t_eval))
    sol = run(dense_output or traced or any([n.closes_over(()) for n in (f, *watched)]))
    if not (traced or any([n.closes_over(()) for n in (f, *watched)])):
        return sol
    require_success("solve_ivp", sol.status >= 0, sol.message)
    stepped, options = _single_step(method, options)
    if stepped != method:
        return _by_scipy(fun, t_span, y0, stepped, t_eval, dense_output, events, vectorized, rest,
                         options)
    steps = stepper(method)
    sol = sol if sol.sol is not None else run(True)
    events_at = [] if sol.t_events is None else sol.t_events
    asked = [np.ravel(() if t_eval is None else points), *events_at]
    whole, name = dense_output or any([len(t) for t in events_at]), steps.name
    taken = take(name, fun, rest, t_span, y0, sol, _points_of(t_eval, sol), bool(whole))
    if taken is not None and not whole:
        sol.t, sol.y = (_times(t_span, sol), taken.ys.T) if t_eval is None else (
            _points_of(t_eval, sol), taken.values.T)
        sol.sol = None
        return sol
    dense = sol.sol.ts if dense_output else np.concatenate(asked)
    path = Path(steps, lambda t, y: fun(t, y, *rest), t_span, y0, sol, dense,
                _slopes(fun, numbers), taken)
    if t_eval is None:
        sol.t, sol.y = path.times, np.stack(path.ys, axis=-1)
    else:
        sol.t = _points_of(t_eval, sol)
        sol.y = path.at(sol.t).T
    if watched:
        _place_events(sol, path, [(lambda t, y, e=e: e(t, y, *rest)) for e in listed],
                      t_eval is None)
    sol.sol = path if dense_output else None
    return sol


def _points_of(t_eval: Any, sol: Any) -> Any:
    """The times of ``t_eval`` that a solution came to."""
    if t_eval is None:
        return None
    return as_operand(t_eval)[: len(sol.t)] if isinstance(t_eval, Tracer) else sol.t


def _times(span: Sequence, sol: Any) -> AnyArray:
    """Where the steps of a solution begin and end."""
    ends = [piece.t for piece in sol.sol.interpolants]
    times = [sol.sol.interpolants[0].t_old, *ends]
    if is_traced(list(span)):
        times[0] = span[0]
        if ends[-1] == concrete(span[1]) and sol.status == 0:
            times[-1] = span[1]
    return as_operand(times)


def _program_of(fun, t_span, y0, method, t_eval, dense_output, events, rest, options, adjoint,
                room):
    """The result of ``solve_ivp`` in a program."""
    most, most_events = room
    asked = "adjoint=True" if adjoint else "a value that jit or vmap traces"
    refusals = (
        (t_eval is None, "no t_eval", "how many steps there are is not known before it runs: pass "
                                      "t_eval= with the times of interest"),
        (bool(dense_output), "dense_output=True", "pass t_eval= instead"),
        (events is not None and adjoint, "events=", "leave adjoint=True away"),
    )
    for refused, what, cure in refusals:
        if refused:
            raise UnsupportedError(f"{user_line()}: solve_ivp got {what} beside {asked}; {cure}.")
    method, options = _single_step(method, options)
    stepper(method)
    name = method if isinstance(method, str) else method.__name__
    tol = _tolerances(name, np.size(y0), options)
    if np.ndim(t_eval) != 1:
        raise ValueError("`t_eval` must be 1-dimensional.")
    with contextlib.suppress(Numberless):  # NaN when the program runs
        _require_within(*concrete((t_eval, tuple(t_span))))

    def f(t: Any, y: Any) -> AnyArray:
        return fun(t, y, *rest)

    times, status, t_events, y_events = as_operand(t_eval), 0, None, None
    if adjoint:
        y = continuous.values("solve_ivp", name, f, tuple(t_span), y0, t_eval, tol, most)
    elif events is not None:
        listed = [events] if callable(events) else list(events)
        watched = [_watch(e, rest, most_events) for e in listed]
        y, times, status, *found = programs.with_events(name, f, watched, t_span, y0, t_eval, tol,
                                                        most)
        t_events, y_events = found[::2], found[1::2]
    else:
        y = programs.values("solve_ivp", name, f, t_span, y0, t_eval, tol, most)
    y, times = [v if isinstance(v, Tracer) else np.array(v) for v in (y, times)]
    return OptimizeResult(
        t=times, y=y.T, sol=None, t_events=t_events, y_events=y_events, nfev=None, njev=None,
        nlu=None, status=status, success=True,
        message="The solver successfully reached the end of the integration interval.",
    )


def _single_step(method: Any, options: dict) -> tuple[Any, dict]:
    """The method whose steps are differentiated, and its options."""
    if method in ("BDF", "LSODA", si.BDF, si.LSODA):
        return "Radau", {k: v for k, v in options.items() if k not in OF_LSODA}
    return method, options


def _tolerances(method: str, n: int, options: dict) -> Tolerances:
    """The options of a method, as SciPy checks them."""
    options = {k: v for k, v in options.items() if k != "jac"}
    solver = getattr(si, method)(lambda t, y: 0 * y, 0.0, np.zeros(n), np.inf, **options)
    return Tolerances(solver.rtol, solver.atol, solver.max_step, options.get("first_step"))


def _require_within(t_eval: Any, t_span: Any) -> None:
    times = np.asarray(t_eval)
    if np.any(times < min(t_span)) or np.any(times > max(t_span)):
        raise ValueError("Values in `t_eval` are not within `t_span`.")
    if np.any((1 if t_span[1] > t_span[0] else -1) * np.diff(times) <= 0):
        raise ValueError("Values in `t_eval` are not properly sorted.")


@written_into
def odeint(func, y0, t, args=(), Dfun=None, col_deriv=0, full_output=0, ml=None, mu=None,
           rtol=None, atol=None, tcrit=None, h0=0.0, hmax=0.0, hmin=0.0, ixpr=0, mxstep=0,
           mxhnil=0, mxordn=12, mxords=5, printmessg=0, tfirst=False, *, adjoint=False,
           max_steps=MAX_STEPS):
    """The solution of y' = func(y, t, *args) from ``y0`` at ``t[0]``, at the times ``t``.

    Beside traced values the steps are those of DOP853 and, where LSODA took the equation for
    stiff, of Radau, both with the given tolerances; the slope in a time is the interpolant's. Under
    ``jit`` and ``vmap`` they are part of the program, which takes Radau where Hairer's test says
    stiff, and has room for ``max_steps``. ``adjoint`` is as for ``solve_ivp``, by DOP853.

    Raises SolverError with LSODA's message where it fails.

    >>> import functrans as ft, numpy as np
    >>> t = np.array([0.0, 0.5, 1.0])
    >>> slopes = ft.jacobian(lambda k: odeint(lambda y, t: -k * y, 1.0, t)[:, 0])(2.0)
    >>> bool(np.allclose(slopes, -t * np.exp(-2 * t), atol=1e-7))
    True
    """
    args = as_args(args)

    def fun(t: Any, y: Any, *args: Any) -> AnyArray:
        return func(t, y, *args) if tfirst else func(y, t, *args)

    def as_program() -> Any:
        if tcrit is not None or full_output:
            what = "full_output" if full_output else f"tcrit={tcrit!r}"
            raise UnsupportedError(f"{user_line()}: odeint got {what} in a program (jit, vmap or "
                                   "adjoint=True). Leave it away, or call it outside of jit.")
        tol = _tolerances("DOP853", np.size(y0), _lsoda_options(rtol, atol, hmax, h0))
        times = as_operand(_together(t))

        def f(t: Any, y: Any) -> AnyArray:
            return fun(t, y, *args)

        if adjoint:
            span = (times[0], times[-1])
            y = continuous.values("odeint", "DOP853", f, span, y0, times, tol, max_steps)
            return y if isinstance(y, Tracer) else np.array(y)
        return programs.values("odeint", None, f, (times[0], times[-1]), y0, times, tol, max_steps)

    if adjoint:
        return as_program()
    try:
        return _by_lsoda(func, fun, y0, t, args, Dfun, full_output, (ml, mu), (rtol, atol), tcrit,
                         (h0, hmax, hmin), (col_deriv, ixpr, mxstep, mxhnil, mxordn, mxords,
                                            printmessg, tfirst))
    except Numberless:
        return as_program()


def _lsoda_options(rtol: Any, atol: Any, hmax: float, h0: float) -> dict:
    return {"max_step": hmax or np.inf, "first_step": h0 or None,
            "rtol": LSODA_TOLERANCE if rtol is None else rtol,
            "atol": LSODA_TOLERANCE if atol is None else atol}


def _by_lsoda(func, fun, y0, t, args, Dfun, full_output, band, tolerances, tcrit, sizes, others):
    f = Numbers(func)
    col_deriv, *rest = others
    start, times, numbers = concrete((_together(y0), _together(t), args))

    y, info = si.odeint(f, start, times, numbers, Numbers(Dfun) if Dfun else None, col_deriv,
                        True, *band, *tolerances, tcrit, *sizes, *rest)
    if not f.closes_over((y0, t, args)):
        return (y, info) if full_output else y
    if tcrit is not None:
        raise UnsupportedError(
            f"{user_line()}: odeint got tcrit={tcrit!r} beside a traced value. Integrate up to "
            "the critical time, and on from there."
        )
    message = info["message"]
    require_success(
        "odeint", message.startswith(("Integration successful", "Nothing was done")), message
    )
    options = _lsoda_options(tolerances[0], tolerances[1], sizes[1], sizes[0])
    method = "Radau" if np.any(info["mused"] == 2) else "DOP853"
    values = _at_times(fun, y0, t, args, method, options)
    return (values, info) if full_output else values


def _at_times(
    fun: Callable, y0: Any, t: Any, args: tuple, method: str, options: dict
) -> AnyArray:
    """The solution at the times ``t``, from ``y0`` at the first of them."""
    start, times, numbers = concrete((_together(y0), _together(t), args))
    times = np.asarray(times, float)
    slopes = _slopes(fun, numbers)
    if method == "Radau":
        options = {**options, "jac": slopes}
    sol = si.solve_ivp(Numbers(fun), (times[0], times[-1]), np.atleast_1d(start), method,
                       dense_output=True, args=numbers or None, **options)
    if sol.status < 0:
        raise SolverError(
            f"{user_line()}: odeint has no derivative, for {method} failed: {sol.message}"
        )
    taken = take(method, fun, args, (t[0], t[-1]), y0, sol, as_operand(_together(t)) + 0.0, False)
    if taken is not None:
        return taken.values
    path = Path(stepper(method), lambda t, y: fun(t, y, *args), (t[0], t[-1]), y0, sol, times,
                slopes)
    return path.at(t)


def _together(x: Any) -> AnyArray:
    return as_operand(x) if is_traced(x) else x


def _slopes(fun: Callable, args: tuple) -> Derivative:
    """The Jacobian of the right-hand side in y."""
    return Derivative(_slopes_at, fun, args, 2, again=True)


def _slopes_at(f: Callable, t: Any, y: Any, *args: Any) -> AnyArray:
    return jacobian(lambda y: as_operand(f(t, y, *args)))(y)


def _slopes_if_any(fun: Callable, args: tuple, t: Any, y: Any) -> Derivative | None:
    """The same where ``fun`` is differentiable, else None: SciPy's differences serve as well."""
    try:
        slopes = Derivative(_slopes_at, fun, args, 2)
        slopes(t, y)
    except (Underivable, NotDifferentiable):
        return None
    return slopes


def _event(e: Callable) -> Numbers:
    """An event as SciPy may call it, with what it says of itself."""
    plain: Any = Numbers(e)
    plain.terminal = getattr(e, "terminal", None)
    plain.direction = getattr(e, "direction", 0)
    return plain


def _watch(e: Callable, rest: tuple, room: int) -> tuple[Callable, int, float, int]:
    """An event in a program: a function of t and y, and what it says of itself."""
    terminal = int(getattr(e, "terminal", None) or 0)
    return (lambda t, y: e(t, y, *rest)), terminal, getattr(e, "direction", 0), terminal or room


class Path:
    """A solution step by step: a function of time, as SciPy's ``OdeSolution``.

    ``times`` are where steps begin and end, ``ys`` the values there; ``dense`` says of which times
    values will be asked for: other steps have no stages but those of their end. ``slopes`` is the
    Jacobian of ``fun``, of numbers. ``taken`` are all steps with their stages, where there are they
    already.
    """

    def __init__(self, method: Any, fun: Callable, span: Sequence, y0: Any, sol: Any, dense: Any,
                 slopes: Callable, taken: Taken | None = None):
        pieces = sol.sol.interpolants
        ends = [piece.t for piece in pieces]
        self.ts = np.array([pieces[0].t_old, *ends])
        self.times = [span[0], *ends]
        if ends[-1] == concrete(span[1]) and sol.status == 0:
            self.times[-1] = span[1]
        if taken is not None:
            self.ys = list(taken.ys)
            self.steps = [method.between(t, end - t, y, stages) for (t, end), y, stages in zip(
                itertools.pairwise(self.times), self.ys[:-1], taken.stages, strict=True)]
            self.times = as_operand(self.times)
            return
        used = set(self._pieces(dense).tolist())
        self.steps: list[Step] = []
        y = as_operand(y0).reshape(-1)
        y = y + np.zeros(y.shape, np.result_type(y.dtype, np.float32))
        self.ys = [y]

        def f(t: Any, y: Any) -> AnyArray:
            return as_operand(fun(t, y)).reshape(-1)

        explicit = isinstance(method, Explicit)
        slope = f(span[0], y) if explicit else None
        for i, piece in enumerate(pieces):
            t, h = self.times[i], self.times[i + 1] - self.times[i]
            if explicit:
                y, slope, step = method.step(f, t, y, h, slope, i in used)
            else:
                y, step = method.step(f, t, y, h, piece, slopes)
            self.steps.append(step)
            self.ys.append(y)
        self.times = as_operand(self.times)

    def _pieces(self, times: Any) -> np.ndarray:
        """The step that each time lies in."""
        sign = 1.0 if self.ts[-1] >= self.ts[0] else -1.0
        i = np.searchsorted(sign * self.ts, sign * np.asarray(concrete(times), float)) - 1
        return np.clip(i, 0, len(self.ts) - 2)

    def at(self, times: Any) -> AnyArray:
        """Values at ``times``, along axis 0."""
        times = as_operand(times)
        which = self._pieces(times)
        # runs of times that lie in one step
        cuts = [0, *(np.flatnonzero(np.diff(which)) + 1).tolist(), len(which)]
        runs = [(lo, hi) for lo, hi in itertools.pairwise(cuts) if hi > lo]
        parts = [self.steps[which[lo]].at(times[lo:hi]) for lo, hi in runs]
        return np.concatenate(parts) if parts else np.zeros((0, self.ys[0].size))

    @written_into
    def __call__(self, t: Any) -> AnyArray:
        t = as_operand(t)
        return self.at(t).T if t.ndim else self.at(t[None])[0]


def _place_events(sol: Any, path: Path, events: Sequence[Callable], ends: bool) -> None:
    """The times and values of events, which the solution of event(t, y(t)) = 0 differentiates."""
    last = sol.t_events
    for k, event in enumerate(events):
        found = [_event_time(path, event, t) for t in last[k]]
        if not found:
            continue
        values = path.at(np.stack(found))
        if sol.status == 1 and ends and last[k][-1] == sol.sol.ts[-1]:
            sol.t = np.concatenate([sol.t[:-1], found[-1][None]])
            sol.y = np.concatenate([sol.y[:, :-1], values[-1][:, None]], axis=1)
        sol.t_events[k], sol.y_events[k] = np.stack(found), values


def _event_time(path: Path, event: Callable, t: float) -> AnyArray:
    return implicit("the time of an event", lambda t: event(t, path(t)), np.asarray(t, float))
