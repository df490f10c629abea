"""Rosenbrock's function and what SciPy has of its derivatives."""

from __future__ import annotations

import numpy as np
from scipy import optimize as so

from functrans.numpy.structure import as_operand
from functrans.scipy.public import counterpart


@counterpart(so.rosen)
def rosen(x):
    """``sum(100 (x[1:] - x[:-1]**2)**2 + (1 - x[:-1])**2)``, along the first axis.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(rosen)(np.array([1.0, 2.0]))
    Array([-400.,  200.])
    """
    x = as_operand(x)
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2.0) ** 2.0 + (1 - x[:-1]) ** 2.0, axis=0)


@counterpart(so.rosen_der)
def rosen_der(x):
    """The gradient of ``rosen``."""
    x = as_operand(x)
    off = 200.0 * (x[1:] - x[:-1] ** 2)
    nothing = np.zeros_like(x[:1])
    left = np.concatenate([-2.0 * x[:-1] * off - 2.0 * (1 - x[:-1]), nothing])
    return left + np.concatenate([nothing, off])


@counterpart(so.rosen_hess)
def rosen_hess(x):
    """The Hessian of ``rosen``, of a vector."""
    diagonal, beside = _hessian(np.atleast_1d(as_operand(x)))
    return np.diag(beside, 1) + np.diag(beside, -1) + np.diag(diagonal)


@counterpart(so.rosen_hess_prod)
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
