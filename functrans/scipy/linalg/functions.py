"""Functions of matrices after ``scipy.linalg``, differentiated to any order."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg as sl

from functrans._core.bind import AnyArray, Tracer, bind
from functrans._ops import matrix_functions as rows
from functrans._ops.calls import stop
from functrans._ops.elementwise import moving_as
from functrans.errors import NotDifferentiable, user_line
from functrans.numpy import linear_algebra
from functrans.numpy.structure import as_floats, as_operand
from functrans.scipy.public import counterpart


def _square(a: Any) -> AnyArray:
    a = linear_algebra.matrices(a)
    if a.shape[-1] != a.shape[-2]:
        raise ValueError(f"expected square matrices, and got the shape {a.shape}")
    return as_floats(a)


@counterpart(sl.expm)
def expm(A):
    """The exponential of square matrices; a number is a matrix of one entry."""
    return rows.expm(_square(np.atleast_2d(as_operand(A))))


@counterpart(sl.logm)
def logm(A, disp=None):
    """The principal logarithm. That of a real matrix must be real; pass it as complex otherwise."""
    return rows.logm(_square(A))


@counterpart(sl.sqrtm)
def sqrtm(A, disp=None, blocksize=None):
    """The principal square root. That of a real matrix must be real; pass it as complex otherwise.

    >>> import functrans as ft
    >>> ft.grad(lambda a: np.trace(sqrtm(a)))(np.diag([1.0, 4.0]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]])
    """
    return rows.sqrtm(_square(A))


@counterpart(sl.fractional_matrix_power)
def fractional_matrix_power(A, t):
    """A square matrix to a real power. It has no derivative in the power here."""
    if isinstance(t, Tracer):
        raise NotDifferentiable(
            f"{user_line()}: fractional_matrix_power has no derivative in the power t here. Hold "
            "it constant, or write expm(t * logm(A))."
        )
    A = _square(A)
    if t == int(t):
        return linear_algebra.matrix_power(A, int(t))
    return bind(rows.fractional_matrix_power, A, t=float(t))


@counterpart(sl.expm_frechet)
def expm_frechet(A, E, method=None, compute_expm=True, check_finite=True):
    """The exponential of ``A``, and its derivative along ``E``."""
    A, E = _square(A), _square(E)
    n = A.shape[-1]
    y = rows.expm(rows.block(A, E))
    return (y[..., :n, :n], y[..., :n, n:]) if compute_expm else y[..., :n, n:]


def _turned(A: Any) -> tuple[Any, Any]:
    """exp(iA) and exp(-iA)."""
    turned = rows.expm(1j * A)
    return turned, rows.expm(-1j * A) if A.dtype.kind == "c" else np.conj(turned)


@counterpart(sl.cosm)
def cosm(A):
    """The cosine of square matrices."""
    A = _square(A)
    forth, back = _turned(A)
    return (forth + back) / 2 if A.dtype.kind == "c" else forth.real


@counterpart(sl.sinm)
def sinm(A):
    """The sine of square matrices."""
    A = _square(A)
    forth, back = _turned(A)
    return (forth - back) / 2j if A.dtype.kind == "c" else forth.imag


@counterpart(sl.coshm)
def coshm(A):
    """The hyperbolic cosine of square matrices."""
    A = _square(A)
    return (rows.expm(A) + rows.expm(-A)) / 2


@counterpart(sl.sinhm)
def sinhm(A):
    """The hyperbolic sine of square matrices."""
    A = _square(A)
    return (rows.expm(A) - rows.expm(-A)) / 2


@counterpart(sl.tanm)
def tanm(A):
    """The tangent of square matrices."""
    A = _square(A)
    if A.dtype.kind != "c" or not isinstance(A, Tracer):
        return linear_algebra.solve(cosm(A), sinm(A))
    still = stop(A)
    y = linear_algebra.solve(cosm(still), sinm(still))
    return moving_as(y, -1j * _short_of_one(1j * A))


def _short_of_one(A: Any) -> Any:
    """The hyperbolic tangent as 1 - 2 / (exp(2 A) + 1), whose slope keeps its digits far out."""
    one = np.eye(A.shape[-1], dtype=A.dtype)
    return one - 2 * linear_algebra.inv(rows.expm(2 * A) + one)


@counterpart(sl.tanhm)
def tanhm(A):
    """The hyperbolic tangent of square matrices."""
    A = _square(A)
    if not isinstance(A, Tracer):
        return linear_algebra.solve(coshm(A), sinhm(A))
    still = stop(A)
    return moving_as(linear_algebra.solve(coshm(still), sinhm(still)), _short_of_one(A))
