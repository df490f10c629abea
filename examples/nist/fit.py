"""Least squares with exact derivatives, and with finite differences beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from examples.nist.models import MODELS
from examples.nist.strd import Problem
from functrans import hessian, jacobian

CERTIFIED_DIGITS = 11
CONVERGED_DIGITS = 4  # fewer on any parameter: the fit ended elsewhere
TIGHT = 1e-15


@dataclass(frozen=True, slots=True)
class Fit:
    """Where a fit ended, and how many evaluations it took (finite differences are residuals)."""

    parameters: np.ndarray
    deviations: np.ndarray
    rss: float
    residuals: int
    jacobians: int


def residual(problem: Problem) -> Callable:
    """``b -> model(x, b) - y``, as SciPy minimises it."""
    model, x, y = MODELS[problem.name], problem.x, problem.y
    return lambda b: model(x, b) - y


def fit_exact(problem: Problem, start: np.ndarray) -> Fit:
    """``least_squares`` with the exact Jacobian."""
    f = residual(problem)
    jac = jacobian(f)
    # SciPy assigns into arrays that it computes from the Jacobian, which Arrays do not allow
    return _fit(problem, f, lambda b: np.asarray(jac(b)), start)


def fit_differences(problem: Problem, start: np.ndarray) -> Fit:
    """``least_squares`` as it comes: forward differences of the residual."""
    f = residual(problem)
    return _fit(problem, f, "2-point", start)


def _fit(problem: Problem, f: Callable, jac: Any, start: np.ndarray) -> Fit:
    """``jac``: a function or the name of a scheme, which SciPy types as separate overloads."""
    calls = 0

    def counted(b):
        nonlocal calls
        calls += 1
        return f(b)

    # far from the solution the models overflow; the solver rejects such steps
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        found = least_squares(counted, start, jac, method="trf", x_scale="jac", ftol=TIGHT,
                              xtol=TIGHT, gtol=TIGHT, max_nfev=5000)
        deviations = standard_deviations(found.jac, found.fun, problem.dof)
    return Fit(found.x, deviations, float(2 * found.cost), calls, found.njev)


def polish(problem: Problem, fit: Fit, steps: int = 20) -> Fit:
    """Newton's method from where ``least_squares`` stopped, for as long as its steps shrink.

    A solver that watches the sum of squares cannot see the last half of the digits: near a minimum
    it changes with the square of the error. The gradient can. With J = Q R the Newton step is
    ``-R^-1 (I + K)^-1 Q^T r``, where ``K = R^-T (sum_i r_i H_i) R^-1`` and H_i is the Hessian of
    residual i; forming ``J^T J`` would square the condition number.
    """
    f = residual(problem)
    jac = jacobian(f)
    b, size = fit.parameters, np.inf
    for _ in range(steps):
        r = f(b)
        scaled, scale = _scaled(np.asarray(jac(b)))
        q, upper = np.linalg.qr(scaled)
        curved = hessian(lambda p, r=r: np.sum(r * f(p)))(b) / np.outer(scale, scale)
        bend = np.linalg.solve(upper.T, np.linalg.solve(upper.T, curved).T)
        step = np.linalg.solve(upper, np.linalg.solve(np.eye(len(b)) + bend, q.T @ r))
        moved = float(np.linalg.norm(step))
        if not moved < size / 2:
            break
        size = moved
        b = b - step / scale
    r = f(b)
    deviations = standard_deviations(jac(b), r, problem.dof)
    return Fit(b, deviations, float(r @ r), fit.residuals, fit.jacobians)


def standard_deviations(jac: np.ndarray, r: np.ndarray, dof: int) -> np.ndarray:
    """``sqrt(diag((J^T J)^-1) rss / dof)`` from the QR factors of J with its columns scaled."""
    scaled, scale = _scaled(np.asarray(jac))
    upper = np.linalg.qr(scaled, mode="r")
    try:
        inverse = np.linalg.inv(upper)
    except np.linalg.LinAlgError:  # a fit that ended where a parameter has no effect
        return np.full(len(scale), np.nan)
    return np.linalg.norm(inverse, axis=1) / scale * np.sqrt(r @ r / dof)


def _scaled(jac):
    """``jac`` with columns of length 1, and the lengths it had."""
    scale = np.linalg.norm(jac, axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    return jac / scale, scale


def correct_digits(found: np.ndarray, certified: np.ndarray) -> np.ndarray:
    """``-log10`` of the relative error, between 0 and the 11 digits that NIST certifies."""
    with np.errstate(divide="ignore"):
        digits = -np.log10(np.abs(found - certified) / np.abs(certified))
    return np.clip(np.nan_to_num(digits, nan=0.0), 0, CERTIFIED_DIGITS)
