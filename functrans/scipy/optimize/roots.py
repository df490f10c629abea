"""Roots and fixed points of functions, differentiable in all but where the search starts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from scipy import optimize

from functrans.scipy.calls import (
    Derivative,
    Followed,
    Numbers,
    alone,
    as_args,
    exactly,
    jacobian_at,
)
from functrans.scipy.implicit import concrete, implicit, require_success
from functrans.scipy.programs import in_programs
from functrans.scipy.public import is_traced

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

    sol = exactly(solve, jac is None and method in WITH_JACOBIAN)
    if f.depends_on(args):
        require_success("root", sol.success, sol.message)
        sol.x = implicit("root", lambda x: values(x, *args), sol.x)
    return sol


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

    if not is_traced(args):
        with contextlib.suppress(Followed):
            return run(alone(func), full_output)
    f = Numbers(func)
    x, info, flag, message = run(f, True)
    if f.depends_on(args):
        require_success("fsolve", flag == 1, message)
        x = implicit("fsolve", lambda x: func(x, *args), x)
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
    x = so.fixed_point(f, start, numbers, xtol, maxiter, method)
    return implicit("fixed_point", lambda x: x - func(x, *args), x) if f.depends_on(args) else x


@in_programs
def root_scalar(f, args=(), method=None, bracket=None, fprime=None, fprime2=None, **options):
    """A root of a function of one number.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(lambda a: root_scalar(lambda x: x**2 - a, bracket=(0, 3)).root)(4.0)
    Array(0.25)
    """
    args = as_args(args)
    primes = [Numbers(p) if callable(p) else p for p in (fprime, fprime2)]
    if not is_traced((args, bracket, options)):
        with contextlib.suppress(Followed):
            return so.root_scalar(alone(f), args, method, bracket, *primes, **options)
    values = (lambda x, *args: f(x, *args)[0]) if fprime is True or fprime2 is True else f
    plain = Numbers(f)
    numbers, bracket, options = concrete((args, bracket, options))
    sol = so.root_scalar(plain, numbers, method, bracket, *primes, **options)
    if plain.depends_on(args):
        require_success("root_scalar", sol.converged, sol.flag)
        sol.root = implicit("root_scalar", lambda x: values(x, *args), sol.root)
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
    out = so.newton(f, start, primes[0], numbers, tol, maxiter, primes[1], second, **options)
    x = out[0] if isinstance(out, tuple) else out
    if not f.depends_on(args):
        return out
    x = implicit("newton", lambda x: func(x, *args), x)
    return (x, *out[1:]) if isinstance(out, tuple) else x


def _bracketing(name: str, theirs: Callable) -> Callable:
    """One of SciPy's solvers between ``a`` and ``b``."""

    def solver(f, a, b, args=(), *rest: Any, **options: Any) -> Any:
        args = as_args(args)
        plain = Numbers(f)
        a, b, numbers = concrete((a, b, args))
        out = theirs(plain, a, b, numbers, *rest, **options)
        x, *info = out if isinstance(out, tuple) else (out,)
        if not plain.depends_on(args):
            return out
        if info:
            require_success(name, info[0].converged, info[0].flag)
        x = implicit(name, lambda x: f(x, *args), x)
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
