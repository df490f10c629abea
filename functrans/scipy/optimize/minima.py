"""Minima of functions, with gradients and Hessians for SciPy and derivatives of the solution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import optimize

from functrans._core.bind import AnyArray
from functrans._transforms.forward.api import derivative
from functrans._transforms.matrices.jacobian import hessian
from functrans._transforms.matrices.products import hvp
from functrans._transforms.reverse.grad import grad, value_and_grad
from functrans.errors import SolverError
from functrans.numpy.structure import as_operand
from functrans.scipy.calls import Derivative, Numbers, as_args, exactly
from functrans.scipy.implicit import concrete, require_success
from functrans.scipy.optimize.conditions import Conditions
from functrans.scipy.optimize.constraints import as_list, ends_of, for_scipy, is_given
from functrans.scipy.programs import in_programs
from functrans.scipy.public import is_traced

so: Any = optimize  # its types say less than its functions take

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

    sol, watched = exactly(lambda exact: solve(exact, start, tol, options, callback))
    if not (is_traced((args, ends)) or is_given(given) or any([n.traced for n in watched])):
        return sol
    _require_end(sol)
    values = (lambda x: fun(x, *args)[0]) if jac is True else (lambda x: fun(x, *args))
    gradient = (lambda x: jac(x, *args)) if callable(jac) else grad(values)

    def end(x: Any) -> AnyArray:
        return Conditions("minimize", gradient, x, ends, constraints).solution()

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
    sol = so.minimize_scalar(f, bracket, ends, numbers, method, tol, options)
    if f.depends_on((args, bounds)):
        require_success("minimize_scalar", sol.success, sol.message)
        slope = derivative(lambda x: fun(x, *args))
        conditions = Conditions(
            "minimize_scalar", lambda x: as_operand(slope(x[0])).reshape(1),
            np.array([sol.x], float), None if bounds is None else ends_of([bounds]), (),
        )
        sol.x = conditions.solution()[0]
        sol.fun = fun(sol.x, *args)
    return sol
