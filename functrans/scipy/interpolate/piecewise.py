"""Piecewise polynomials, differentiable in points, values and knots.

They are SciPy's classes, and of plain arrays SciPy's methods run. The coefficients of interpolants
follow from their values and slopes at the knots (``bases.py``).
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.lib.array_utils import normalize_axis_index
from scipy import interpolate

from functrans._core.bind import AnyArray, known_value
from functrans._ops.structure import move_axis
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.indexing import take
from functrans.numpy.structure import as_floats, as_operand
from functrans.scipy.interpolate import bases
from functrans.scipy.interpolate.bases import (
    NAMED_ENDS,
    axis_back,
    column,
    filled,
    finite_or_nan,
    whole_line,
)
from functrans.scipy.public import is_traced

si: Any = interpolate  # its types say less than its functions take


class _Parts(NamedTuple):
    """Coefficients, knots, axis of the values, and what lies beyond, under SciPy's names."""

    c: Any
    x: Any
    axis: int
    extrapolate: Any


class _Evaluated:
    """The polynomial of the interval that a point lies in, where points or coefficients are traced.
    """

    # what it is made of where the coefficients are traced, which SciPy's attributes cannot hold
    traced: _Parts | None = None

    def __getattr__(self, name: str) -> NoReturn:
        if self.traced is not None and name.startswith("_") and not name.endswith("__"):
            raise UnsupportedError(
                f"{user_line()}: of a {type(self).__name__} of traced values only values, "
                "derivatives and integrals are known."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __call__(self, x: Any, nu: int = 0, extrapolate: Any = None) -> AnyArray:
        if not (is_traced(x) or self.traced is not None):
            return super().__call__(x, nu, extrapolate)  # type: ignore[misc]  # SciPy's
        own: Any = self.traced or self
        x, knots = as_operand(x), own.x
        extrapolate = own.extrapolate if extrapolate is None else extrapolate
        if extrapolate == "periodic":
            x = knots[0] + (x - knots[0]) % (knots[-1] - knots[0])
        if _are_falling(knots):
            raise UnsupportedError(
                f"{user_line()}: a {type(self).__name__} of traced values or points needs "
                "breakpoints that increase; give intervals in that order."
            )
        y = _polynomial(own.c, x, knots, nu)
        if not extrapolate:
            y = filled(y, [x], np.logical_not((x >= knots[0]) & (x <= knots[-1])), np.nan)
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
        return _make(self.traced._replace(c=c))

    def antiderivative(self, nu: int = 1) -> Any:
        """The piecewise polynomial that is its integral from the first knot."""
        if self.traced is None:
            return super().antiderivative(nu)  # type: ignore[misc]  # SciPy's
        c = self.traced.c
        widths = column(np.diff(self.traced.x), c.ndim - 1)
        for _ in range(nu):
            powers = np.arange(len(c), 0, -1.0)
            c = c / powers.reshape(-1, *(1,) * (c.ndim - 1))
            areas = sum([row * widths ** (len(c) - k) for k, row in enumerate(c)])
            before = np.cumsum(areas, axis=0) - areas
            c = np.concatenate([c, before[None]])
        return _make(self.traced._replace(c=c))

    def integrate(self, a: Any, b: Any, extrapolate: Any = None) -> AnyArray:
        """The integral from ``a`` to ``b``."""
        if self.traced is None and not is_traced((a, b)):
            return super().integrate(a, b, extrapolate)  # type: ignore[misc]  # SciPy's
        own: Any = self.traced or self
        extrapolate = whole_line(own.extrapolate if extrapolate is None else extrapolate)
        whole = self.antiderivative()
        return whole(b, 0, extrapolate) - whole(a, 0, extrapolate)

    def roots(self, *args: Any, **options: Any) -> np.ndarray:
        """SciPy's, of plain coefficients."""
        self._refuse("roots")
        return super().roots(*args, **options)  # type: ignore[misc]  # SciPy's

    def solve(self, *args: Any, **options: Any) -> np.ndarray:
        """SciPy's, of plain coefficients."""
        self._refuse("solve")
        return super().solve(*args, **options)  # type: ignore[misc]  # SciPy's

    def _refuse(self, method: str) -> None:
        if self.traced is not None:
            raise UnsupportedError(
                f"{user_line()}: {method} of a {type(self).__name__} of traced values is not known "
                "here. Solve with functrans.scipy.optimize.root_scalar."
            )


def _are_falling(knots: Any) -> bool:
    plain = known_value(knots)
    return plain is not None and plain[0] > plain[-1]


def _like(knots: Any) -> AnyArray:
    """The knots as SciPy may check them: where they are not known, others that increase."""
    plain = known_value(knots)
    return np.arange(float(knots.shape[0])) if plain is None else plain


def _sound(x: Any, y: Any) -> tuple[AnyArray, AnyArray]:
    """Knots and values; NaN where a run alone tells that SciPy would refuse them."""
    if known_value(x) is not None and known_value(y) is not None:
        return x, y
    ok = np.all(np.diff(x) > 0) & np.all(np.isfinite(x)) & np.all(np.isfinite(y))
    return finite_or_nan(x, ok), finite_or_nan(y, ok)


def _polynomial(c: Any, x: Any, knots: Any, nu: int) -> AnyArray:
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


def _slope(c: Any) -> AnyArray:
    """The coefficients of the derivative."""
    powers = np.arange(len(c) - 1, 0, -1.0)
    return c[:-1] * powers.reshape(-1, *(1,) * (c.ndim - 1))


def _make(traced: _Parts) -> PPoly:
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
        c, x = as_floats(c), as_floats(x)
        # SciPy's checks, of plain coefficients
        like = si.PPoly(np.zeros(c.shape), _like(x), extrapolate, axis)
        for _ in range(2 * bool(axis)):
            c = move_axis(c, axis + 1, 0)
        self.traced = _Parts(c, x, like.axis, like.extrapolate)


class _Interpolant(_Evaluated):
    """What has a cubic in each interval, of given values and slopes at the knots."""

    def _from_slopes(self, x: Any, y: Any, d: Any, axis: int, extrapolate: Any) -> None:
        """Hermite's cubics. Values and slopes have their axis first."""
        c = np.stack(bases.cubics(x, y, d))
        self.traced = _Parts(c, x, axis, True if extrapolate is None else extrapolate)


def _values(who: str, x: Any, y: Any, axis: int) -> tuple[Any, Any, int]:
    """Knots, and values with their axis first, checked by SciPy."""
    x, y = as_floats(x), as_floats(y)
    axis = normalize_axis_index(axis, y.ndim)
    if y.dtype.kind == "c" and who != "CubicHermiteSpline":
        raise ValueError(f"`{who}` only works with real values for `y`.")
    plain, values = _like(x), known_value(y)
    n = x.shape[0] if x.ndim == 1 else -1
    if y.shape[axis] != n or n < 2 or np.any(np.diff(plain) <= 0):
        si.PchipInterpolator(plain, np.zeros(y.shape[axis]))  # raises
    if not np.all(np.isfinite(plain)) or (values is not None and not np.all(np.isfinite(values))):
        si.PchipInterpolator(plain, np.full(n, np.nan))  # raises
    x, y = _sound(x, y)
    return x, move_axis(y, axis, 0), axis


class CubicHermiteSpline(_Interpolant, si.CubicHermiteSpline):
    """The cubics of given values and slopes at the knots, traced ones too."""

    def __init__(self, x, y, dydx, axis=0, extrapolate=None):
        if not is_traced((x, y, dydx)):
            si.CubicHermiteSpline.__init__(self, x, y, dydx, axis, extrapolate)
            return
        x, y, axis = _values("CubicHermiteSpline", x, y, axis)
        d = move_axis(as_operand(dydx), axis, 0)
        if d.shape != y.shape:
            raise ValueError("The shapes of `y` and `dydx` must be identical.")
        self._from_slopes(x, y, d, axis, extrapolate)


class PchipInterpolator(_Interpolant, si.PchipInterpolator):
    """The monotone cubic interpolant of SciPy, of traced knots, values and points too."""

    def __init__(self, x, y, axis=0, extrapolate=None):
        if not is_traced((x, y)):
            si.PchipInterpolator.__init__(self, x, y, axis, extrapolate)
            return
        x, y, axis = _values("PchipInterpolator", x, y, axis)
        self._from_slopes(x, y, bases.monotone(x, y), axis, extrapolate)


class Akima1DInterpolator(_Interpolant, si.Akima1DInterpolator):
    """Akima's interpolant of SciPy and its modified form, of traced knots, values and points too.
    """

    def __init__(self, x, y, axis=0, *, method: Any = "akima", extrapolate=None):
        if not is_traced((x, y)):
            si.Akima1DInterpolator.__init__(self, x, y, axis, method=method,
                                            extrapolate=extrapolate)
            return
        if method not in ("akima", "makima"):
            raise NotImplementedError(f"`method`={method} is unsupported.")
        x, y, axis = _values("Akima1DInterpolator", x, y, axis)
        d = bases.akima(x, y, method == "makima")
        self._from_slopes(x, y, d, axis, bool(extrapolate) if extrapolate is None else extrapolate)


class CubicSpline(_Interpolant, si.CubicSpline):
    """The cubic spline of SciPy, of traced knots, values, points and slopes at the ends too.

    A periodic one takes the mean of its first and last value, which must be equal.

    >>> import functrans as ft, numpy as np
    >>> x = np.arange(4.0)
    >>> ft.grad(lambda y: CubicSpline(x, y)(1.5))(x)
    Array([-0.0625,  0.5625,  0.5625, -0.0625])
    >>> ft.grad(lambda x: CubicSpline(x, [0.0, 1.0, 4.0, 9.0])(1.5))(x)
    Array([ 0.   , -1.125, -2.25 ,  0.375])
    """

    def __init__(self, x, y, axis=0, bc_type: Any = "not-a-knot", extrapolate=None):
        if not is_traced((x, y, bc_type)):
            si.CubicSpline.__init__(self, x, y, axis, bc_type, extrapolate)
            return
        x, y = as_floats(x), as_floats(y)
        pair: Any = [bc_type] * 2 if isinstance(bc_type, str) else list(bc_type)
        plain = [end if isinstance(end, str) else (end[0], np.zeros(np.shape(end[1])))
                 for end in pair]
        values = known_value(y)
        # SciPy's checks, of plain values
        like = si.CubicSpline(_like(x), np.zeros(y.shape, y.dtype) if values is None else values,
                              axis, bc_type if bc_type == "periodic" else tuple(plain), extrapolate)
        x, y = _sound(x, y)
        y = move_axis(y, like.axis, 0)
        ends = [NAMED_ENDS.get(end, end) if isinstance(end, str) else end for end in pair]
        if bc_type == "periodic":
            both = (y[:1] + y[-1:]) / 2
            if values is None:
                closed = np.isclose(y[:1], y[-1:], rtol=1e-15, atol=1e-15)  # as SciPy asks
                both = np.where(closed, both, np.nan * both)
            y, ends = np.concatenate([both, y[1:-1], both]), bc_type
        self._from_slopes(x, y, bases.smooth(x, y, ends), like.axis, like.extrapolate)
