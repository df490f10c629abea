"""Minima, roots and linear programs, with exact derivatives for SciPy and of solutions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from scipy import optimize

from functrans._core.bind import AnyArray
from functrans._transforms.forward.api import derivative
from functrans._transforms.matrices.jacobian import hessian
from functrans._transforms.matrices.products import hvp
from functrans._transforms.reverse.grad import grad, value_and_grad
from functrans.errors import SolverError, UnsupportedError, user_line
from functrans.numpy.structure import as_operand
from functrans.scipy.calls import (
    Derivative,
    Numbers,
    TracedResult,
    as_args,
    compiled_if_met,
    exactly,
    jacobian_at,
    plain_only,
    slopes_of,
)
from functrans.scipy.implicit import concrete, implicit, require_success
from functrans.scipy.kept import is_kept, once
from functrans.scipy.optimize.conditions import (
    Conditions,
    as_list,
    ends_of,
    for_scipy,
    functions_of,
    is_given,
)
from functrans.scipy.programs import in_programs
from functrans.scipy.public import counterpart, is_traced

# ---- Rosenbrock's function and what SciPy has of its derivatives


@counterpart(optimize.rosen)
def rosen(x):
    """``sum(100 (x[1:] - x[:-1]**2)**2 + (1 - x[:-1])**2)``, along the first axis.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(rosen)(np.array([1.0, 2.0]))
    Array([-400.,  200.])
    """
    x = as_operand(x)
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2.0) ** 2.0 + (1 - x[:-1]) ** 2.0, axis=0)


@counterpart(optimize.rosen_der)
def rosen_der(x):
    """The gradient of ``rosen``."""
    x = as_operand(x)
    off = 200.0 * (x[1:] - x[:-1] ** 2)
    nothing = np.zeros_like(x[:1])
    left = np.concatenate([-2.0 * x[:-1] * off - 2.0 * (1 - x[:-1]), nothing])
    return left + np.concatenate([nothing, off])


@counterpart(optimize.rosen_hess)
def rosen_hess(x):
    """The Hessian of ``rosen``, of a vector."""
    diagonal, beside = _hessian(np.atleast_1d(as_operand(x)))
    return np.diag(beside, 1) + np.diag(beside, -1) + np.diag(diagonal)


@counterpart(optimize.rosen_hess_prod)
def rosen_hess_prod(x, p):
    """The Hessian of ``rosen``, of a vector, times ``p``."""
    diagonal, beside = _hessian(np.atleast_1d(as_operand(x)))
    p = as_operand(p)
    nothing = np.zeros_like(p[:1])
    above = np.concatenate([beside * p[1:], nothing])
    return diagonal * p + above + np.concatenate([nothing, beside * p[:-1]])


def _hessian(x):
    """Its diagonal, and what is beside that."""
    nothing = np.zeros_like(x[:1])
    inner = 1200.0 * x[:-1] ** 2 - 400.0 * x[1:] + 2.0
    before = np.concatenate([nothing, np.full_like(x[1:], 200.0)])
    return np.concatenate([inner, nothing]) + before, -400.0 * x[:-1]


# ---- Roots and fixed points of functions, differentiable in all but where the search starts

so: Any = optimize  # its types say less than its functions take

# SciPy's methods of ``root`` that take a Jacobian.
WITH_JACOBIAN = ("hybr", "lm")


@in_programs
def root(fun, x0, args=(), method="hybr", jac=None, tol=None, callback=None, options=None):
    """A root of a vector function; without ``jac``, methods that take one are given the exact one.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(lambda a: root(lambda x: x**2 - a, np.ones(2)).x.sum())(4.0)
    Array(0.5)
    """
    args = as_args(args)
    f = Numbers(fun)
    values = (lambda x, *args: fun(x, *args)[0]) if jac is True else fun
    x0, numbers = concrete((x0, args))
    if callable(jac):
        jac = Numbers(jac)

    def solve(exact: bool) -> optimize.OptimizeResult:
        prime = Derivative(jacobian_at, fun, numbers) if exact else jac
        return so.root(f, x0, numbers, method, prime, tol, callback, options)

    exact = jac is None and method in WITH_JACOBIAN
    sol = once("solve", lambda: exactly(solve, exact))
    if f.depends_on(args, sol.x, *numbers):
        require_success("root", sol.success, sol.message)
        sol.x = _with_slopes("root", values, sol.x, args, f, jac is True, exact)
    return sol


def _with_slopes(who: str, f: Callable, x: Any, args: tuple, plain: Numbers,
                 first: bool = False, known: bool = False) -> AnyArray:
    """The root ``x`` of ``f(x, *args)`` with its derivatives, given f as SciPy calls it, which may
    return the value ``first`` and its slopes behind it; ``known``: SciPy was given exact ones.
    """
    numbers = concrete(args)

    def of_numbers(x: Any) -> Any:
        y = plain.f(x, *numbers)
        return y[0] if first else y

    matrix = None if first else slopes_of(plain.f, x, numbers, known)
    return implicit(who, lambda x: f(x, *args), x, matrix, of_numbers)


@in_programs
def fsolve(func, x0, args=(), fprime=None, full_output=False, **options):
    """A root of a vector function, with the exact Jacobian for ``fprime``.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(lambda a: fsolve(lambda x: x**2 - a, 1.0)[0])(4.0)
    Array(0.25)
    """
    args = as_args(args)
    x0, numbers = concrete((x0, args))
    given = Numbers(fprime) if fprime is not None else None
    wanted = given is None and not options.get("col_deriv")

    def run(f: Callable, full_output: bool) -> Any:
        def solve(exact: bool) -> Any:
            prime = Derivative(jacobian_at, func, numbers) if exact else given
            return so.fsolve(f, x0, numbers, prime, full_output=full_output, **options)

        return exactly(solve, wanted)

    if not (is_traced(args) or is_kept()):
        with contextlib.suppress(TracedResult):
            return run(plain_only(func), full_output)
    f = Numbers(func)
    x, info, flag, message = once("solve", lambda: run(f, True))
    if f.depends_on(args, x, *numbers):
        require_success("fsolve", flag == 1, message)
        x = _with_slopes("fsolve", func, x, args, f, False, wanted)
    elif flag != 1 and not full_output:
        return run(f, full_output)  # which warns as SciPy does
    return (x, info, flag, message) if full_output else x


@in_programs
def fixed_point(func, x0, args=(), xtol=1e-8, maxiter=500, method="del2"):
    """x with func(x) = x.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(lambda a: fixed_point(lambda x: (x + a / x) / 2, 1.0))(4.0)
    Array(0.25)
    """
    args = as_args(args)
    f = Numbers(func)
    start, numbers = concrete((x0, args))
    x = once("solve", lambda: so.fixed_point(f, start, numbers, xtol, maxiter, method))
    return implicit("fixed_point", lambda x: x - func(x, *args), x) if f.depends_on(
        args, x, *numbers) else x


@in_programs
def root_scalar(f, args=(), method=None, bracket=None, fprime=None, fprime2=None, **options):
    """A root of a function of one number.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(lambda a: root_scalar(lambda x: x**2 - a, bracket=(0, 3)).root)(4.0)
    Array(0.25)
    """
    args = as_args(args)
    primes = [Numbers(p) if callable(p) else p for p in (fprime, fprime2)]
    if not (is_traced((args, bracket, options)) or is_kept()):
        with contextlib.suppress(TracedResult):
            return so.root_scalar(plain_only(f), args, method, bracket, *primes, **options)
    values = (lambda x, *args: f(x, *args)[0]) if fprime is True or fprime2 is True else f
    plain = Numbers(f)
    numbers, bracket, options = concrete((args, bracket, options))
    sol = once("solve", lambda: so.root_scalar(plain, numbers, method, bracket, *primes,
                                               **options))
    if plain.depends_on(args, sol.root, *numbers):
        require_success("root_scalar", sol.converged, sol.flag)
        sol.root = _with_slopes("root_scalar", values, sol.root, args, plain, values is not f)
    return sol


@in_programs
def newton(func, x0, fprime=None, args=(), tol=1.48e-8, maxiter=50, fprime2=None, x1=None, **options
           ):
    """A root near ``x0``, or one near each of its entries.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(lambda a: newton(lambda x: x**2 - a, 1.0))(4.0)
    Array(0.25)
    """
    args = tuple(args)  # of any sequence, as SciPy does
    f = Numbers(func)
    primes = [Numbers(p) if callable(p) else p for p in (fprime, fprime2)]
    start, second, numbers = concrete((x0, x1, args))
    out = once("solve", lambda: so.newton(f, start, primes[0], numbers, tol, maxiter, primes[1],
                                          second, **options))
    x = out[0] if isinstance(out, tuple) else out
    if not f.depends_on(args, x, *numbers):
        return out
    x = _with_slopes("newton", func, x, args, f)
    return (x, *out[1:]) if isinstance(out, tuple) else x


def _bracketing(name: str, theirs: Callable) -> Callable:
    """One of SciPy's solvers between ``a`` and ``b``."""

    def solver(f, a, b, args=(), *rest: Any, **options: Any) -> Any:
        args = as_args(args)
        plain = Numbers(f)
        a, b, numbers = concrete((a, b, args))
        out = once("solve", lambda: theirs(plain, a, b, numbers, *rest, **options))
        x, *info = out if isinstance(out, tuple) else (out,)
        if not plain.depends_on(args, x, *numbers):
            return out
        if info:
            require_success(name, info[0].converged, info[0].flag)
        x = _with_slopes(name, f, x, args, plain)
        return (x, *info) if info else x

    solver.__name__ = solver.__qualname__ = name
    solver.__doc__ = (
        f"A root of ``f`` between ``a`` and ``b``, where its signs differ, with its derivatives: "
        f"``scipy.optimize.{name}``."
    )
    return in_programs(solver)


brentq = _bracketing("brentq", so.brentq)
brenth = _bracketing("brenth", so.brenth)
ridder = _bracketing("ridder", so.ridder)
bisect = _bracketing("bisect", so.bisect)
toms748 = _bracketing("toms748", so.toms748)


# ---- Minima of functions, with gradients and Hessians for SciPy and derivatives of the solution

# SciPy's methods that take a gradient, and what they take of second derivatives.
GRADIENT = frozenset([
    "cg", "bfgs", "newton-cg", "l-bfgs-b", "tnc", "slsqp", "dogleg", "trust-ncg", "trust-krylov",
    "trust-exact", "trust-constr",
])
HESSIAN = frozenset(["dogleg", "trust-exact"])
PRODUCT = frozenset(["newton-cg", "trust-ncg", "trust-krylov", "trust-constr"])

# The tolerances of those that stopped too early, and the options that would override them.
FINER = (1e-10, 1e-14, 1e-18)
TOLERANCES = frozenset(["ftol", "gtol", "xtol", "barrier_tol", "xatol", "fatol", "disp"])
# What messages say where a line search finds nothing less: in BFGS, SLSQP and L-BFGS-B.
SEARCHED = ("precision loss", "Positive directional derivative", "ABNORMAL")


@in_programs
def minimize(fun, x0, args=(), method=None, jac=None, hess=None, hessp=None, bounds=None,
             constraints=(), tol=None, callback=None, options=None):
    """A minimum of ``fun(x, *args)``, under bounds and constraints.

    Without ``jac``, ``hess`` and ``hessp``, SciPy's method is given those that it takes, and the
    Jacobians of constraints: exact, and compiled where they can be, so that Python's side effects
    in ``fun`` may happen once; ``jac="2-point"`` takes differences. The solution's derivatives are
    those of the equations of Karush, Kuhn and Tucker at it, also in bounds and in what constraints
    close over. Raises SolverError where an active constraint is degenerate.

    >>> import functrans as ft, numpy as np
    >>> minimize(lambda x: np.sum((x - 1) ** 4), np.zeros(2), method="BFGS").njev < 30
    True
    >>> ft.grad(lambda a: minimize(lambda x: np.sum(x**4 - a * x), np.ones(1)).x[0])(4.0)
    Array(0.08333333)
    """
    args = as_args(args)
    start, numbers = concrete((x0, args))
    second = isinstance(method, str) and method.lower() == "trust-constr"
    given = as_list(constraints)
    ends = ends_of(bounds)
    plain = bounds if ends is None else so.Bounds(
        *concrete(ends), getattr(bounds, "keep_feasible", False))

    def solve(exact: bool, start: Any, tol: Any, options: Any, callback: Any) -> tuple:
        f, primes = _for_scipy(fun, numbers, method, jac, hess, hessp, exact)
        limits = [for_scipy(c, second, exact) for c in given]
        sol = so.minimize(f, start, numbers, method, *primes, plain, [c for c, _ in limits], tol,
                          callback, options)
        if sol.get("nit") == 0 and isinstance(sol.get("hess_inv"), np.ndarray):
            sol.hess_inv = sol.hess_inv.astype(float)  # an eye of integers, in BFGS
        return sol, [f, *[n for _, ns in limits for n in ns]]

    watched: list[Numbers] = []

    def find() -> optimize.OptimizeResult:
        sol, watched[:] = exactly(lambda exact: solve(exact, start, tol, options, callback))
        return sol

    sol = once("solve", find)
    watched = watched or [Numbers(g) for g in (fun, *functions_of(given))]
    closed = any([n.closes_over(()) for n in watched])
    if not (closed or is_traced((args, ends)) or is_given(given)):
        return sol
    _require_end(sol)
    values = (lambda x: fun(x, *args)[0]) if jac is True else (lambda x: fun(x, *args))
    gradient = (lambda x: jac(x, *args)) if callable(jac) else grad(values)

    compiled = (None, None)
    if jac is None:
        plain_f = Numbers(fun).f
        compiled = (compiled_if_met(_grad_at, plain_f, numbers),
                    compiled_if_met(_hessian_at, plain_f, numbers))

    def end(x: Any) -> AnyArray:
        return Conditions("minimize", gradient, x, ends, constraints, compiled).solution()

    def further(x: Any, tol: float) -> Any:
        finer = {k: v for k, v in (options or {}).items() if k not in TOLERANCES}
        return exactly(lambda exact: solve(exact, x, tol, finer, None))[0]

    sol.x = _at_the_end(sol.x, end, further)
    sol.fun = values(sol.x)
    return sol


def _at_the_end(x: Any, end: Callable, further: Callable) -> AnyArray:
    """``end(x)``, or if the solver stopped too early for it, at what it finds ``further`` on.

    SciPy's tolerances are absolute: of values that are small beside 1 it stops too early.
    """
    try:
        return end(x)
    except SolverError as error:
        failed = error
    for tol in FINER:
        try:
            sol = further(x, tol)
            _require_end(sol)
            return end(sol.x)
        except SolverError:
            continue
    raise failed


def _require_end(sol: optimize.OptimizeResult) -> None:
    """SolverError where the solver failed, and not where a line search finds nothing less: that may
    be a minimum, as its equations will tell.
    """
    if not any([text in sol.message for text in SEARCHED]):
        require_success("minimize", sol.success, sol.message)


def _for_scipy(
    fun: Callable, args: tuple, method: Any, jac: Any, hess: Any, hessp: Any, exact: bool
) -> tuple[Numbers, list]:
    """The function and ``[jac, hess, hessp]`` for SciPy: ours, if ``exact``, in place of None."""
    name = method.lower() if isinstance(method, str) else ""
    f = Numbers(fun)
    values = (lambda *xs: fun(*xs)[0]) if jac is True else fun
    if exact and jac is None and (method is None or name in GRADIENT):
        f, jac = Derivative(_value_and_grad_at, fun, args), True
    if exact and hess is None and hessp is None:
        hess = Derivative(_hessian_at, values, args) if name in HESSIAN else None
        hessp = Derivative(_product_at, values, args, 2) if name in PRODUCT else None
    plain = [Numbers(g) if callable(g) and not isinstance(g, Numbers) else g
             for g in (jac, hess, hessp)]
    return f, plain


def _value_and_grad_at(f: Callable, x: Any, *args: Any) -> tuple:
    return value_and_grad(f)(x, *args)


def _grad_at(f: Callable, x: Any, *args: Any) -> AnyArray:
    return grad(f)(x, *args)


def _hessian_at(f: Callable, x: Any, *args: Any) -> AnyArray:
    return hessian(f)(x, *args)


def _product_at(f: Callable, x: Any, direction: Any, *args: Any) -> AnyArray:
    return hvp(lambda x: f(x, *args), x, direction)[1]


@in_programs
def minimize_scalar(fun, bracket=None, bounds=None, args=(), method=None, tol=None, options=None):
    """A minimum of a function of one number, differentiated where its slope is zero, or at a bound.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(lambda a: minimize_scalar(lambda x: np.cosh(x - a) + x).x)(1.0)
    Array(1.)
    """
    args = as_args(args)
    f = Numbers(fun)
    numbers, bracket, ends = concrete((args, bracket, bounds))
    sol = once("solve", lambda: so.minimize_scalar(f, bracket, ends, numbers, method, tol, options))
    if f.depends_on((args, bounds), sol.x, *numbers):
        require_success("minimize_scalar", sol.success, sol.message)
        slope = derivative(lambda x: fun(x, *args))
        conditions = Conditions(
            "minimize_scalar", lambda x: as_operand(slope(x[0])).reshape(1),
            np.array([sol.x], float), None if bounds is None else ends_of([bounds]), (),
        )
        sol.x = conditions.solution()[0]
        sol.fun = fun(sol.x, *args)
    return sol


# ---- Linear programs, differentiated at a vertex
#
# With the rows A and right-hand sides b of the constraints that are active, as many as unknowns,
# the solution is :math:`x = A^{-1} b` and the slopes of the optimum in b are :math:`A^{-T} c`. So x
# does not depend on c as long as no multiplier is zero.

ACTIVE = 1e-9  # the slack, relative to the numbers of its row, of an active constraint
CERTAIN = 1e-13  # the multiplier, relative to the largest, of one that may be left


class Rows(NamedTuple):
    """Constraints ``A x = b``, or ``A x <= b`` or ``>= b``; where SciPy has their multipliers."""

    A: Any
    b: Any
    equal: bool
    name: str


@in_programs
def linprog(c, A_ub=None, b_ub=None, A_eq=None, b_eq=None, bounds=(0, None), method="highs",
            callback=None, options=None, x0=None, integrality=None):
    """The minimum of ``c @ x`` under linear constraints and bounds.

    The solution, its slacks and the multipliers (``marginals``) are differentiated in all
    coefficients, right-hand sides and bounds. Raises SolverError with SciPy's message where there
    is no solution, and where the vertex is degenerate: more constraints hold than there are
    unknowns, or one holds with a multiplier of zero, so that other points are as good.

    >>> import functrans as ft, numpy as np
    >>> best = lambda b: linprog([-1.0, -1.0], [[1.0, 2.0], [3.0, 1.0]], b).x
    >>> ft.jacobian(best)(np.array([4.0, 6.0])).round(6)
    array([[-0.2,  0.4],
           [ 0.6, -0.2]])
    """
    data = _together([c, A_ub, b_ub, A_eq, b_eq])
    bounds = _together(bounds) if not is_traced(bounds) else bounds
    numbers, plain = concrete((data, bounds))
    sol = once("solve", lambda: so.linprog(*numbers, plain, method, callback, options, x0,
                                           integrality))
    if not is_traced((data, bounds)):
        return sol
    if integrality is not None and np.any(integrality):
        raise UnsupportedError(
            f"{user_line()}: linprog got integrality= beside a traced value. A solution in "
            "integers is constant or jumps; pass ft.stop_gradient of the data."
        )
    require_success("linprog", sol.success, sol.message)
    _differentiate(sol, data, bounds)
    return sol


def _together(x: Any) -> Any:
    if isinstance(x, list | tuple) and len(x) and is_traced(x):
        return [as_operand(v) if is_traced(v) else v for v in x]
    return x


def _differentiate(sol: Any, data: list, bounds: Any) -> None:
    """Give the numbers of a solution their derivatives."""
    c = as_operand(data[0]).reshape(-1)
    groups = _groups(data, bounds, sol.x)
    force = [np.asarray(sol[g.name].marginals)[_places(g, sol)] for g in groups]
    least = CERTAIN * max([float(np.max(np.abs(f), initial=0.0)) for f in force], default=0.0)
    active = [g.equal | (np.abs(_slack(g, sol.x)) <= _close(g, sol.x)) | (np.abs(f) > least)
              for g, f in zip(groups, force, strict=True)]
    _require_vertex(sol.x, groups, active, force, least)
    rows = [np.flatnonzero(a) for a in active]
    A = np.concatenate([as_operand(g.A)[r] for g, r in zip(groups, rows, strict=True)])
    b = np.concatenate([as_operand(g.b)[r] for g, r in zip(groups, rows, strict=True)])
    x = implicit("linprog", lambda x: A @ x - b, sol.x)
    multipliers = np.linalg.solve(A.T, c)
    at = 0
    for g, r in zip(groups, rows, strict=True):
        part = sol[g.name]
        total = np.zeros(np.size(part.marginals))
        places = _places(g, sol)[r]
        part.marginals = _set(total, places, multipliers[at : at + len(r)])
        part.residual = _set(np.asarray(part.residual), _places(g, sol),
                             (as_operand(g.b) - as_operand(g.A) @ x) * (-1 if g.name == "lower"
                                                                         else 1))
        at += len(r)
    sol.x, sol.fun = x, c @ x
    sol.slack, sol.con = sol.ineqlin.residual, sol.eqlin.residual


def _set(x: np.ndarray, places: np.ndarray, values: Any) -> AnyArray:
    matrix = np.eye(x.size)[places]
    kept = np.ones(x.size)
    kept[places] = 0.0
    return np.where(kept == 1, x, 0.0) + values @ matrix if len(places) else x


def _groups(data: list, bounds: Any, x: np.ndarray) -> list[Rows]:
    _, A_ub, b_ub, A_eq, b_eq = [v.toarray() if scipy.sparse.issparse(v) else v for v in data]
    groups = []
    if A_ub is not None:
        groups.append(Rows(_matrix(A_ub), as_operand(b_ub).reshape(-1), False, "ineqlin"))
    if A_eq is not None:
        groups.append(Rows(_matrix(A_eq), as_operand(b_eq).reshape(-1), True, "eqlin"))
    pairs = [tuple(bounds)] * x.size if _one_pair(bounds) else bounds
    eye = np.eye(x.size)
    for name, end in zip(("lower", "upper"), ends_of(pairs) or (), strict=False):
        end = np.broadcast_to(as_operand(end), x.shape)
        known = np.flatnonzero(np.isfinite(np.asarray(concrete(end), float)))
        if known.size:
            groups.append(Rows(eye[known], end[known], False, name))
    return groups


def _matrix(A: Any) -> AnyArray:
    A = as_operand(A)
    return A if A.ndim > 1 else A[None]


def _one_pair(bounds: Any) -> bool:
    return len(bounds) == 2 and not any([isinstance(v, list | tuple) or np.ndim(v) for v in bounds])


def _places(g: Rows, sol: Any) -> np.ndarray:
    """Which of SciPy's multipliers are those of a group: of bounds, those of the entries."""
    if g.name in ("lower", "upper"):
        return np.flatnonzero(np.asarray(concrete(g.A)).any(axis=0))
    return np.arange(len(concrete(g.b)))


def _slack(g: Rows, x: np.ndarray) -> np.ndarray:
    return np.asarray(concrete(g.A)) @ x - np.asarray(concrete(g.b))


def _close(g: Rows, x: np.ndarray) -> np.ndarray:
    terms = np.abs(np.asarray(concrete(g.A))) @ np.abs(x)
    return ACTIVE * np.maximum(terms, np.abs(np.asarray(concrete(g.b))))


def _require_vertex(x: np.ndarray, groups: list[Rows], active: list, force: list,
                    certain: float) -> None:
    count = sum([int(np.sum(a)) for a in active])
    least = min([float(np.min(np.abs(f[a]), initial=np.inf))
                 for g, a, f in zip(groups, active, force, strict=True) if not g.equal],
                default=np.inf)
    if count == x.size and least > certain:
        return
    why = (f"{count} constraints hold at it, for {x.size} unknowns" if count != x.size
           else f"a constraint holds with a multiplier of {least:.1g}")
    raise SolverError(
        f"{user_line()}: the solution of linprog at {x} is degenerate: {why}. There is no "
        "derivative; drop what is redundant, or change c where other points are as good."
    )
