"""Piecewise polynomials, differentiable in points; cubic splines also in values.

They are SciPy's classes, and of plain arrays SciPy's methods run. The coefficients of a spline are
linear in its values: SciPy finds the matrix from splines through unit vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index
from scipy import interpolate

from functrans.errors import NotDifferentiable, UnsupportedError, user_line
from functrans.numpy.indexing import take
from functrans.numpy.structure import as_operand
from functrans.scipy.public import is_traced

si: Any = interpolate  # its types say less than its functions take


class _Evaluated:
    """The polynomial of the interval that a point lies in, where points or coefficients are traced.
    """

    x: Any
    c: Any
    axis: int
    extrapolate: Any
    # coefficients that SciPy's attribute could not hold, and a spline with the same knots
    traced: Any = None
    like: Any = None

    def __getattr__(self, name: str) -> Any:
        if self.traced is not None and name.startswith("_") and not name.endswith("__"):
            raise UnsupportedError(
                f"{user_line()}: of a {type(self).__name__} of traced values only values and "
                "derivatives are known, spline(x, nu)."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __call__(self, x: Any, nu: int = 0, extrapolate: Any = None) -> Any:
        if not (is_traced(x) or self.traced is not None):
            return super().__call__(x, nu, extrapolate)  # type: ignore[misc]  # SciPy's
        x, knots = as_operand(x), (self.like or self).x
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        if extrapolate == "periodic":
            x = knots[0] + (x - knots[0]) % (knots[-1] - knots[0])
        y = self._polynomial(x, knots, nu)
        if not extrapolate:
            inside = (x >= knots[0]) & (x <= knots[-1])
            y = np.where(inside.reshape(inside.shape + (1,) * (y.ndim - x.ndim)), y, np.nan)
        n, axes = x.ndim, list(range(y.ndim))
        k = n + self.axis
        return y.transpose(axes[n:k] + axes[:n] + axes[k:]) if self.axis else y

    def _polynomial(self, x: Any, knots: np.ndarray, nu: int) -> Any:
        c = self.c if self.traced is None else self.traced
        for _ in range(nu):
            powers = np.arange(len(c) - 1, 0, -1.0)
            c = c[:-1] * powers.reshape(-1, *(1,) * (c.ndim - 1))
        where = np.searchsorted(knots, x, side="right") - 1
        where = np.clip(where, 0, len(knots) - 2)
        d = x - take(knots, where, axis=0)
        d = d.reshape(d.shape + (1,) * (c.ndim - 2))
        y: Any = np.zeros(())
        for row in c:
            y = y * d + take(row, where, axis=0)
        return y + np.zeros(d.shape[: x.ndim] + c.shape[2:])


def _refuse_knots(who: str, x: Any, bc_type: Any = None) -> None:
    what = "knots" if is_traced(x) else "conditions at the ends" if is_traced(bc_type) else ""
    if what:
        raise NotDifferentiable(
            f"{user_line()}: {who} got traced {what}, in which its derivative is not known here. "
            "Pass a constant, for example ft.stop_gradient(x)."
        )


class PPoly(_Evaluated, si.PPoly):
    """A piecewise polynomial in terms of coefficients and breakpoints, of traced points too."""


class PchipInterpolator(_Evaluated, si.PchipInterpolator):
    """The monotone cubic interpolant of SciPy, of traced points too."""

    def __init__(self, x, y, axis=0, extrapolate=None):
        _refuse_values(type(self).__name__, x, y)
        si.PchipInterpolator.__init__(self, x, y, axis, extrapolate)


class Akima1DInterpolator(_Evaluated, si.Akima1DInterpolator):
    """Akima's interpolant of SciPy, of traced points too."""

    def __init__(self, x, y, axis=0, **options: Any):
        _refuse_values(type(self).__name__, x, y)
        si.Akima1DInterpolator.__init__(self, x, y, axis, **options)


def _refuse_values(who: str, x: Any, y: Any) -> None:
    _refuse_knots(who, x)
    if is_traced(y):
        raise UnsupportedError(
            f"{user_line()}: {who} got traced values, in which its derivative is not known here. "
            "CubicSpline is differentiated in its values."
        )


class CubicSpline(_Evaluated, si.CubicSpline):
    """The cubic spline of SciPy, of traced values and points too.

    >>> import functrans as ft, numpy as np
    >>> x = np.arange(4.0)
    >>> ft.grad(lambda y: CubicSpline(x, y)(1.5))(x)
    Array([-0.0625,  0.5625,  0.5625, -0.0625])
    """

    def __init__(self, x, y, axis=0, bc_type="not-a-knot", extrapolate=None):
        _refuse_knots("CubicSpline", x, bc_type)
        if not is_traced(y):
            si.CubicSpline.__init__(self, x, y, axis, bc_type, extrapolate)
            return
        if not isinstance(bc_type, str) or bc_type == "periodic":
            raise UnsupportedError(
                f"{user_line()}: CubicSpline got bc_type={bc_type!r} beside traced values. Take "
                "'not-a-knot', 'natural' or 'clamped'."
            )
        y = as_operand(y)
        axis = normalize_axis_index(axis, y.ndim)
        unit = si.CubicSpline(x, np.eye(y.shape[axis]), 0, bc_type, extrapolate)
        self.like, self.axis, self.extrapolate = unit, axis, unit.extrapolate
        self.traced = np.tensordot(unit.c, np.moveaxis(y, axis, 0), 1)


__all__ = ["Akima1DInterpolator", "CubicSpline", "PPoly", "PchipInterpolator"]
