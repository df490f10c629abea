"""Least squares, with exact Jacobians for SciPy and derivatives of the solution."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import optimize

from functrans._core.bind import AnyArray
from functrans._transforms.matrices.jacobian import jacobian
from functrans._transforms.reverse.grad import grad
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.structure import as_operand
from functrans.scipy.calls import (
    Derivative,
    Numbers,
    TracedResult,
    as_args,
    compiled_if_met,
    exactly,
    plain_only,
)
from functrans.scipy.implicit import concrete, require_success
from functrans.scipy.kept import is_kept, once
from functrans.scipy.optimize.conditions import Conditions, vector
from functrans.scipy.programs import in_programs
from functrans.scipy.public import is_traced

so: Any = optimize  # its types say less than its functions take

# rho(z) of SciPy's robust losses, of squares z
LOSSES: dict[str, Callable] = {
    "linear": lambda z: z,
    "soft_l1": lambda z: 2 * (np.sqrt(1 + z) - 1),
    # z inside the root is kept above 0 where it is not used
    "huber": lambda z: np.where(z <= 1, z, 2 * np.sqrt(np.where(z <= 1, 1.0, z)) - 1),
    "cauchy": np.log1p,
    "arctan": np.arctan,
}


@in_programs
def least_squares(fun, x0, jac=None, bounds=(-np.inf, np.inf), method="trf", *rest: Any,
                  loss="linear", f_scale=1.0, args=(), kwargs=None, **options: Any):
    """A minimum of half the sum of squares of ``fun(x, *args, **kwargs)``, within bounds.

    Without ``jac`` SciPy is given the exact Jacobian; differences are taken with ``jac="2-point"``.

    >>> import functrans as ft, numpy as np
    >>> t = np.linspace(0.0, 1.0, 5)
    >>> fit = lambda a: least_squares(lambda x: np.exp(x * t) - np.exp(a * t), 0.0).x[0]
    >>> ft.grad(fit)(0.5)
    Array(1.)
    """
    args, kwargs = as_args(args), kwargs or {}
    if rest:
        raise TypeError("least_squares: pass what comes after method by keyword")
    f = Numbers(fun)
    start, numbers, named = concrete((x0, args, kwargs))
    ends = _ends_of(bounds)
    residual = functools.partial(fun, **named) if named else fun
    given = Numbers(jac) if callable(jac) else jac or "2-point"

    def solve(exact: bool) -> optimize.OptimizeResult:
        prime = Derivative(_jacobian_at, residual, numbers) if exact else given
        return so.least_squares(f, start, prime, concrete(ends), method, loss=loss,
                                f_scale=f_scale, args=numbers, kwargs=named, **options)

    sol = once("solve", lambda: exactly(solve, jac is None))
    if not f.depends_on((args, kwargs, ends), sol.x, *numbers, **named):
        return sol
    require_success("least_squares", sol.success, sol.message)

    def residuals(x: Any) -> AnyArray:
        return vector(fun(x, *args, **kwargs))

    compiled = _compile_cost(loss, f.f, (f_scale, *numbers)) if not named else (None, None)
    sol.x = _least("least_squares", residuals, sol.x, ends, loss, f_scale, compiled)
    sol.fun = residuals(sol.x)
    sol.cost = _cost(sol.fun, loss, f_scale)
    return sol


@in_programs
def leastsq(func, x0, args=(), Dfun=None, full_output=False, col_deriv=False, **options: Any):
    """A minimum of the sum of squares of ``func(x, *args)``, with the exact Jacobian for ``Dfun``.

    >>> import functrans as ft, numpy as np
    >>> t = np.linspace(0.0, 1.0, 5)
    >>> ft.grad(lambda a: leastsq(lambda x: np.exp(x * t) - np.exp(a * t), 0.0)[0][0])(0.5)
    Array(1.)
    """
    args = as_args(args)
    start, numbers = concrete((x0, args))
    given = None if Dfun is None else Numbers(Dfun)
    wanted = Dfun is None and not col_deriv

    def run(f: Callable, full_output: bool) -> tuple:
        def solve(exact: bool) -> tuple:
            prime = Derivative(_jacobian_at, func, numbers) if exact else given
            return so.leastsq(f, start, numbers, prime, full_output, col_deriv, **options)

        return exactly(solve, wanted)

    if not (is_traced(args) or is_kept()):
        with contextlib.suppress(TracedResult):
            return run(plain_only(func), full_output)
    f = Numbers(func)
    x, covariance, info, message, flag = once("solve", lambda: run(f, True))
    if f.depends_on(args, x, *numbers):
        require_success("leastsq", flag in (1, 2, 3, 4), message)

        def residuals(x: Any) -> AnyArray:
            return vector(func(x, *args))

        x = _least("leastsq", residuals, x, (-np.inf, np.inf), "linear", 1.0,
                   _compile_cost("linear", f.f, (1.0, *numbers)))
        covariance = _covariance(residuals, x, True)
    return (x, covariance, info, message, flag) if full_output else (x, flag)


def _jacobian_at(f: Callable, x: Any, *args: Any) -> AnyArray:
    """The Jacobian of what ``f`` returns, in a row."""
    return jacobian(lambda x: vector(f(x, *args)))(x.reshape(-1))


def _ends_of(bounds: Any) -> tuple:
    """Lower and upper bounds, as these functions take them."""
    return (bounds.lb, bounds.ub) if isinstance(bounds, so.Bounds) else tuple(bounds)


def _cost(r: Any, loss: Any, scale: Any) -> AnyArray:
    if not isinstance(loss, str):
        raise UnsupportedError(
            f"{user_line()}: least_squares got the loss {loss!r} beside a traced value; its rho "
            f"is not known to be differentiable. Take one of {', '.join(LOSSES)}."
        )
    return 0.5 * scale**2 * np.sum(LOSSES[loss]((r / scale) ** 2))


def _least(who: str, residuals: Callable, x: Any, ends: Any, loss: str, scale: Any,
           compiled: tuple = (None, None)) -> AnyArray:
    """``x`` with its derivatives, where the slope of the cost is zero."""
    slope = grad(lambda x: _cost(residuals(x), loss, scale))
    return Conditions(who, slope, x, ends, (), compiled).solution()


def _compile_cost(loss: Any, f: Callable, args: tuple) -> tuple:
    """The slope and the curvature of the cost of numbers, where they are compiled."""
    return tuple([compiled_if_met(way, f, args) for way in _ways(loss)]) if loss in LOSSES else (
        None, None)


@functools.cache
def _ways(loss: str) -> tuple[Callable, Callable]:
    def slope(f: Callable, x: Any, scale: Any, *args: Any) -> AnyArray:
        return grad(lambda x: _cost(vector(f(x, *args)), loss, scale))(x)

    def curvature(f: Callable, x: Any, scale: Any, *args: Any) -> AnyArray:
        return jacobian(lambda x: slope(f, x, scale, *args))(x)

    return slope, curvature


@in_programs
def curve_fit(f, xdata, ydata, p0=None, sigma=None, absolute_sigma=False, check_finite=None,
              bounds=(-np.inf, np.inf), method=None, jac=None, *, full_output=False,
              nan_policy=None, **options: Any):
    """The parameters p for which f(xdata, *p) is closest to ``ydata``, and their covariance.

    Without ``jac`` SciPy is given the exact Jacobian. Both results have derivatives, in data,
    uncertainties and in what ``f`` closes over.

    >>> import functrans as ft, numpy as np
    >>> x = np.array([0.0, 1.0, 2.0])
    >>> ft.jacobian(lambda y: curve_fit(lambda x, a: a * x, x, y)[0][0])(2 * x)
    Array([0. , 0.2, 0.4])
    """
    model = Numbers(f)
    given = Numbers(jac) if callable(jac) else jac
    data = xdata, ydata, sigma
    plain_x, plain_y, plain_sigma, start = concrete((*data, p0))
    ends = _ends_of(bounds)

    def solve(exact: bool) -> tuple:
        return so.curve_fit(
            functools.wraps(f)(lambda *a: model(*a)), plain_x, plain_y, start, plain_sigma,
            absolute_sigma, check_finite, concrete(ends), method, _Slopes(f) if exact else given,
            full_output=full_output, nan_policy=nan_policy, **options)

    out = once("solve", lambda: exactly(solve, jac is None))
    if not model.depends_on((data, ends), plain_x, *out[0]):
        return out
    if nan_policy == "omit":
        raise UnsupportedError(
            f"{user_line()}: curve_fit got nan_policy='omit' beside a traced value; leave the "
            "points without data out of xdata and ydata."
        )
    weigh = _weights(sigma)

    def residuals(p: Any) -> AnyArray:
        return weigh(vector(f(xdata, *p) - ydata))

    loss, scale = options.get("loss", "linear"), options.get("f_scale", 1.0)
    p = _least("curve_fit", residuals, out[0], ends, loss, scale)
    return (p, _covariance(residuals, p, absolute_sigma), *out[2:])


class _Slopes:
    """The Jacobian of a model in its parameters, as ``curve_fit`` calls it."""

    def __init__(self, f: Callable):
        self.f = f
        self.derivative: Derivative | None = None
        self.x: Any = None

    def __call__(self, x: Any, *p: Any) -> Any:
        if self.derivative is None or self.x is not x:
            self.x = x
            self.derivative = Derivative(_slopes_at, self.f, (x,))
        return self.derivative(np.array(p))


def _slopes_at(f: Callable, p: Any, x: Any) -> AnyArray:
    return jacobian(lambda p: vector(f(x, *p)))(p)


def _weights(sigma: Any) -> Callable:
    """What residuals are weighed with: 1 / sigma, or of a covariance the inverse of its factor."""
    if sigma is None:
        return lambda r: r
    sigma = as_operand(sigma)
    if sigma.ndim < 2:
        return lambda r: r / sigma
    L = np.linalg.cholesky(sigma)
    return lambda r: np.linalg.solve(L, r)


def _covariance(residuals: Callable, p: Any, absolute: bool) -> AnyArray:
    J = jacobian(residuals)(p)
    covariance = np.linalg.inv(J.T @ J)
    if absolute:
        return covariance
    r = residuals(p)
    freedom = r.size - p.size
    if freedom <= 0:
        return np.full((p.size, p.size), np.inf)
    return covariance * (np.sum(r**2) / freedom)


# ---- of linear functions


@in_programs
def nnls(A, b, **options: Any):
    """The x >= 0 for which ``A @ x`` is closest to b, and the distance; by its active set.

    >>> import functrans as ft, numpy as np
    >>> A = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    >>> ft.grad(lambda b: nnls(A, b)[0][0])(np.array([1.0, 1.0, -1.0])).round(9) + 0.0
    array([0.5, 0.5, 0. ])
    """
    x, distance = once("solve", lambda: so.nnls(*concrete((A, b)), **options))
    if not is_traced((A, b)):
        return x, distance
    x = _closest("nnls", A, b, x, (0.0, np.inf))
    return x, np.linalg.norm(as_operand(A) @ x - b)


@in_programs
def lsq_linear(A, b, bounds=(-np.inf, np.inf), method="trf", *rest: Any, **options: Any):
    """The x within bounds for which ``A @ x`` is closest to b; by its active set.

    >>> import functrans as ft, numpy as np
    >>> A = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    >>> slope = ft.grad(lambda u: lsq_linear(A, np.ones(3), (-1.0, np.stack([2.0, u]))).x[0])(0.1)
    >>> float(slope.round(9))
    -0.5
    """
    ends = _ends_of(bounds)
    sol = once("solve", lambda: so.lsq_linear(*concrete((A, b, ends)), method, *rest, **options))
    if not is_traced((A, b, ends)):
        return sol
    require_success("lsq_linear", sol.success, sol.message)
    sol.x = _closest("lsq_linear", A, b, sol.x, ends)
    sol.fun = as_operand(A) @ sol.x - b
    sol.cost = 0.5 * np.sum(sol.fun**2)
    return sol


def _closest(who: str, A: Any, b: Any, x: np.ndarray, ends: Any) -> AnyArray:
    """``x`` with its derivatives, where the slope of the squares is zero or held by a bound."""
    A = as_operand(A)
    return Conditions(who, lambda x: A.T @ (A @ x - b), x, ends, ()).solution()
