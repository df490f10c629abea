"""Piecewise polynomials, differentiable in points and in values.

They are SciPy's classes, and of plain arrays SciPy's methods run. The coefficients of a spline are
linear in its values: SciPy finds the matrix from splines through unit vectors. Those of the other
interpolants follow from slopes at the knots (``slopes.py``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_index
from scipy import interpolate

from functrans.errors import UnsupportedError, user_line
from functrans.numpy.indexing import take
from functrans.numpy.structure import as_operand
from functrans.scipy.interpolate import slopes
from functrans.scipy.interpolate.bases import axis_back, refuse_traced
from functrans.scipy.public import is_traced

si: Any = interpolate  # its types say less than its functions take


class _Parts(NamedTuple):
    """Coefficients, knots, axis of the values, and what lies beyond, under SciPy's names."""

    c: Any
    x: np.ndarray
    axis: int
    extrapolate: Any


class _Evaluated:
    """The polynomial of the interval that a point lies in, where points or coefficients are traced.
    """

    # what it is made of where the coefficients are traced, which SciPy's attributes cannot hold
    traced: _Parts | None = None

    def __getattr__(self, name: str) -> Any:
        if self.traced is not None and name.startswith("_") and not name.endswith("__"):
            raise UnsupportedError(
                f"{user_line()}: of a {type(self).__name__} of traced values only values, "
                "derivatives and integrals are known."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __call__(self, x: Any, nu: int = 0, extrapolate: Any = None) -> Any:
        if not (is_traced(x) or self.traced is not None):
            return super().__call__(x, nu, extrapolate)  # type: ignore[misc]  # SciPy's
        own: Any = self.traced or self
        x, knots = as_operand(x), own.x
        extrapolate = own.extrapolate if extrapolate is None else extrapolate
        if extrapolate == "periodic":
            x = knots[0] + (x - knots[0]) % (knots[-1] - knots[0])
        if knots[0] > knots[-1]:
            raise UnsupportedError(
                f"{user_line()}: a {type(self).__name__} of traced values or points needs "
                "breakpoints that increase; give intervals in that order."
            )
        y = _polynomial(own.c, x, knots, nu)
        if not extrapolate:
            inside = (x >= knots[0]) & (x <= knots[-1])
            y = np.where(inside.reshape(inside.shape + (1,) * (y.ndim - x.ndim)), y, np.nan)
        return axis_back(y, x.ndim, own.axis)

    def derivative(self, nu: int = 1) -> Any:
        """The piecewise polynomial that is its derivative; of a negative order, its integral."""
        if self.traced is None:
            return super().derivative(nu)  # type: ignore[misc]  # SciPy's
        if nu < 0:
            return self.antiderivative(-nu)
        c = self.traced.c
        for _ in range(nu):
            c = _slope(c) if len(c) > 1 else 0 * c
        return _made(self.traced._replace(c=c))

    def antiderivative(self, nu: int = 1) -> Any:
        """The piecewise polynomial that is its integral from the first knot."""
        if self.traced is None:
            return super().antiderivative(nu)  # type: ignore[misc]  # SciPy's
        c, widths = self.traced.c, np.diff(self.traced.x)
        widths = widths.reshape((-1,) + (1,) * (c.ndim - 2))
        for _ in range(nu):
            powers = np.arange(len(c), 0, -1.0)
            c = c / powers.reshape(-1, *(1,) * (c.ndim - 1))
            areas = sum([row * widths ** (len(c) - k) for k, row in enumerate(c)])
            before = np.cumsum(areas, axis=0) - areas
            c = np.concatenate([c, before[None]])
        return _made(self.traced._replace(c=c))

    def integrate(self, a: Any, b: Any, extrapolate: Any = None) -> Any:
        """The integral from ``a`` to ``b``."""
        if self.traced is None and not is_traced((a, b)):
            return super().integrate(a, b, extrapolate)  # type: ignore[misc]  # SciPy's
        own: Any = self.traced or self
        extrapolate = own.extrapolate if extrapolate is None else extrapolate
        if extrapolate == "periodic":
            raise UnsupportedError(
                f"{user_line()}: integrate got extrapolate='periodic' beside a traced value; "
                "integrate within one period."
            )
        whole = self.antiderivative()
        return whole(b, 0, extrapolate) - whole(a, 0, extrapolate)

    def roots(self, *args: Any, **options: Any) -> Any:
        """SciPy's, of plain coefficients."""
        self._refuse("roots")
        return super().roots(*args, **options)  # type: ignore[misc]  # SciPy's

    def solve(self, *args: Any, **options: Any) -> Any:
        """SciPy's, of plain coefficients."""
        self._refuse("solve")
        return super().solve(*args, **options)  # type: ignore[misc]  # SciPy's

    def _refuse(self, method: str) -> None:
        if self.traced is not None:
            raise UnsupportedError(
                f"{user_line()}: {method} of a {type(self).__name__} of traced values is not known "
                "here. Solve with functrans.scipy.optimize.root_scalar."
            )


def _polynomial(c: Any, x: Any, knots: np.ndarray, nu: int) -> Any:
    for _ in range(nu):
        c = _slope(c)
    where = np.searchsorted(knots, x, side="right") - 1
    where = np.clip(where, 0, len(knots) - 2)
    d = x - take(knots, where, axis=0)
    d = d.reshape(d.shape + (1,) * (c.ndim - 2))
    y: Any = np.zeros(())
    for row in c:
        y = y * d + take(row, where, axis=0)
    return y + np.zeros(d.shape[: x.ndim] + c.shape[2:])


def _slope(c: Any) -> Any:
    """The coefficients of the derivative."""
    powers = np.arange(len(c) - 1, 0, -1.0)
    return c[:-1] * powers.reshape(-1, *(1,) * (c.ndim - 1))


def _made(traced: _Parts) -> PPoly:
    """The piecewise polynomial with traced coefficients."""
    p = PPoly.__new__(PPoly)
    p.traced = traced
    return p


class PPoly(_Evaluated, si.PPoly):
    """A piecewise polynomial in terms of coefficients, which may be traced, and breakpoints."""

    def __init__(self, c: Any, x: Any, extrapolate: Any = None, axis: int = 0):
        if not is_traced((c, x)):
            si.PPoly.__init__(self, c, x, extrapolate, axis)
            return
        refuse_traced("PPoly", breakpoints=x)
        c = as_operand(c)
        # SciPy's checks, of plain coefficients
        like = si.PPoly(np.zeros(c.shape), x, extrapolate, axis)
        for _ in range(2 * bool(axis)):
            c = np.moveaxis(c, axis + 1, 0)
        c = c if c.dtype.kind in "fc" else c.astype(float)
        self.traced = _Parts(c, like.x, like.axis, like.extrapolate)


class _Interpolant(_Evaluated):
    """What has a cubic in each interval, of given values and slopes at the knots."""

    def _from_slopes(self, x: Any, y: Any, d: Any, axis: int, extrapolate: Any) -> None:
        """Hermite's cubics. Values and slopes have their axis first."""
        knots = np.asarray(x, float)
        h = np.diff(knots).reshape((-1,) + (1,) * (y.ndim - 1))
        m = np.diff(y, axis=0) / h
        t = (d[:-1] + d[1:] - 2 * m) / h
        c = np.stack([t / h, (m - d[:-1]) / h - t, d[:-1], y[:-1]])
        self.traced = _Parts(c, knots, axis, True if extrapolate is None else extrapolate)


def _values(who: str, x: Any, y: Any, axis: int, dydx: Any = None) -> tuple[Any, int]:
    """Values with their axis first, checked by SciPy."""
    refuse_traced(who, knots=x)
    y = as_operand(y)
    axis = normalize_axis_index(axis, y.ndim)
    if y.dtype.kind == "c" and who != "CubicHermiteSpline":
        raise ValueError(f"`{who}` only works with real values for `y`.")
    n = np.shape(x)[0] if np.ndim(x) == 1 else -1
    if y.shape[axis] != n or n < 2 or np.any(np.diff(x) <= 0):
        si.PchipInterpolator(x, np.zeros(y.shape[axis]))  # raises
    y = np.moveaxis(y, axis, 0)
    return (y if y.dtype.kind in "fc" else y.astype(float)), axis


class CubicHermiteSpline(_Interpolant, si.CubicHermiteSpline):
    """The cubics of given values and slopes at the knots, traced ones too."""

    def __init__(self, x, y, dydx, axis=0, extrapolate=None):
        refuse_traced("CubicHermiteSpline", knots=x)
        if not is_traced((y, dydx)):
            si.CubicHermiteSpline.__init__(self, x, y, dydx, axis, extrapolate)
            return
        y, axis = _values("CubicHermiteSpline", x, y, axis)
        d = np.moveaxis(as_operand(dydx), axis, 0)
        if d.shape != y.shape:
            raise ValueError("The shapes of `y` and `dydx` must be identical.")
        self._from_slopes(x, y, d, axis, extrapolate)


class PchipInterpolator(_Interpolant, si.PchipInterpolator):
    """The monotone cubic interpolant of SciPy, of traced values and points too."""

    def __init__(self, x, y, axis=0, extrapolate=None):
        refuse_traced("PchipInterpolator", knots=x)
        if not is_traced(y):
            si.PchipInterpolator.__init__(self, x, y, axis, extrapolate)
            return
        y, axis = _values("PchipInterpolator", x, y, axis)
        self._from_slopes(x, y, slopes.monotone(np.asarray(x, float), y), axis, extrapolate)


class Akima1DInterpolator(_Interpolant, si.Akima1DInterpolator):
    """Akima's interpolant of SciPy and its modified form, of traced values and points too."""

    def __init__(self, x, y, axis=0, *, method: Any = "akima", extrapolate=None):
        refuse_traced("Akima1DInterpolator", knots=x)
        if not is_traced(y):
            si.Akima1DInterpolator.__init__(self, x, y, axis, method=method,
                                            extrapolate=extrapolate)
            return
        if method not in ("akima", "makima"):
            raise NotImplementedError(f"`method`={method} is unsupported.")
        y, axis = _values("Akima1DInterpolator", x, y, axis)
        d = slopes.akima(np.asarray(x, float), y, method == "makima")
        self._from_slopes(x, y, d, axis, bool(extrapolate) if extrapolate is None else extrapolate)


class CubicSpline(_Evaluated, si.CubicSpline):
    """The cubic spline of SciPy, of traced values, points and slopes at the ends too.

    A periodic one takes the mean of its first and last value, which must be equal.

    >>> import functrans as ft, numpy as np
    >>> x = np.arange(4.0)
    >>> ft.grad(lambda y: CubicSpline(x, y)(1.5))(x)
    Array([-0.0625,  0.5625,  0.5625, -0.0625])
    """

    def __init__(self, x, y, axis=0, bc_type: Any = "not-a-knot", extrapolate=None):
        refuse_traced("CubicSpline", knots=x)
        if not is_traced((y, bc_type)):
            si.CubicSpline.__init__(self, x, y, axis, bc_type, extrapolate)
            return
        y = as_operand(y)
        axis = normalize_axis_index(axis, y.ndim)
        y = np.moveaxis(y, axis, 0)
        n = y.shape[0]
        if isinstance(bc_type, str) and bc_type == "periodic":
            both = np.eye(n)
            both[[0, 0, -1, -1], [0, -1, 0, -1]] = 0.5
            unit = si.CubicSpline(x, both, 0, bc_type, extrapolate)
            c = np.tensordot(unit.c, y, 1)
        else:
            ends = [bc_type] * 2 if isinstance(bc_type, str) else list(bc_type)
            orders = [end if isinstance(end, str) else (end[0], 0.0) for end in ends]
            fixed = [end if isinstance(end, str) else (end[0], np.zeros(n)) for end in ends]
            unit = si.CubicSpline(x, np.eye(n), 0, tuple(fixed), extrapolate)
            c = np.tensordot(unit.c, y, 1)
            for i, end in enumerate(ends):
                if not isinstance(end, str):
                    one: list[Any] = list(orders)
                    one[i] = (end[0], 1.0)
                    column = si.CubicSpline(x, np.zeros(n), 0, tuple(one)).c
                    value = as_operand(end[1])
                    column = column.reshape(column.shape + (1,) * (y.ndim - 1))
                    c = c + column * value
        self.traced = _Parts(c, unit.x, axis, unit.extrapolate)


__all__ = ["Akima1DInterpolator", "CubicHermiteSpline", "CubicSpline", "PPoly", "PchipInterpolator"]
