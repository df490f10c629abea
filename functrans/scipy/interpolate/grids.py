"""Interpolation of values on a rectangular grid, in points and in values.

But for PCHIP these are sums of products of B-splines, whose coefficients are linear in the values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import interpolate
from scipy.sparse.linalg import spsolve

from functrans._core.bind import AnyArray, known_value
from functrans._ops.structure import move_axis
from functrans.numpy.indexing import take
from functrans.numpy.structure import as_floats, as_operand
from functrans.scipy.interpolate import bases as slopes
from functrans.scipy.interpolate.bases import Basis, OfScipy, combined, filled, refuse_traced
from functrans.scipy.interpolate.bsplines import BSpline, coefficients
from functrans.scipy.interpolate.univariate import knots_of
from functrans.scipy.public import is_traced, refused

si: Any = interpolate  # its types say less than its functions take

DEGREES = {"linear": 1, "slinear": 1, "cubic": 3, "quintic": 5}


class RegularGridInterpolator:
    """The interpolant of SciPy on a rectangular grid, differentiated in points and in values.

    Cubic and quintic splines have the coefficients of a direct solution, by ``spsolve`` if no
    ``solver`` is named: SciPy's iteration stops at an error of 1e-5 or so. Whether points are
    inside, for ``bounds_error``, is not known under ``jit`` and ``vmap``: there those outside give
    NaN.

    >>> import functrans as ft, numpy as np
    >>> x, y = np.arange(3.0), np.arange(4.0)
    >>> f = RegularGridInterpolator((x, y), x[:, None] * y)
    >>> ft.grad(lambda p: f(p)[0])(np.array([0.5, 1.5]))
    Array([1.5, 0.5])
    """

    def __init__(self, points, values, method="linear", bounds_error=True, fill_value: Any = np.nan,
                 **options):
        refuse_traced("RegularGridInterpolator", points=tuple(points), fill_value=fill_value)
        self._traced = is_traced(values)
        plain = np.zeros(np.shape(values)) if self._traced else values
        if method in ("cubic", "quintic"):
            options = {"solver": spsolve} | options
        self._plain = si.RegularGridInterpolator(points, plain, method, bounds_error, fill_value,
                                                 **options)
        self.grid, self.method = self._plain.grid, method
        self.bounds_error, self.fill_value = bounds_error, fill_value
        values = as_floats(values)
        falling = [i for i, p in enumerate(points) if np.size(p) > 1 and p[0] > p[-1]]
        self.values = np.flip(values, axis=tuple(falling)) if falling else values
        if method in DEGREES:
            self._bases, self._c = self._fitted(DEGREES[method])

    def __call__(self, xi: Any, method: Any = None, *, nu: Any = None) -> AnyArray:
        if method is not None and method != self.method:
            return RegularGridInterpolator(self.grid, self.values, method, self.bounds_error,
                                           self.fill_value)(xi, nu=nu)
        options = {} if nu is None else {"nu": nu}
        if not (self._traced or is_traced(xi)):
            return self._plain(xi, **options)
        if nu is not None:
            self._plain(np.array([g.mean() for g in self.grid]), **options)  # SciPy's checks
        method, count = self.method, len(self.grid)
        x = _points(xi, count)
        columns = [x[..., i] for i in range(count)]
        outside = self._outside(columns)
        if method in DEGREES:
            y = combined(self._bases, self._c, columns, [0] * count if nu is None else nu)
        else:
            y = self._pchip(columns) if method == "pchip" else self._nearest(columns)
        nans = np.isnan(columns[0])
        for column in columns[1:]:
            nans = nans | np.isnan(column)
        fill = np.nan if self.bounds_error else self.fill_value
        for rows, value in ((outside, fill), (nans, np.nan)):
            if value is not None:
                y = filled(y, columns, rows, value)
        return y

    def _outside(self, columns: list) -> AnyArray:
        """Which points are beyond the grid; an error if SciPy would raise."""
        outside: Any = False
        for i, (x, g) in enumerate(zip(columns, self.grid, strict=True)):
            inside = (x >= g[0]) & (x <= g[-1])
            within = known_value(inside)
            if self.bounds_error and within is not None and not np.all(within):
                raise ValueError(f"One of the requested xi is out of bounds in dimension {i}")
            outside = outside | np.logical_not(inside)
        return outside

    def _fitted(self, k: int) -> tuple[list[Basis], Any]:
        """The bases of all axes, and the coefficients of the spline of degree k."""
        c, bases = self.values, []
        for axis, g in enumerate(self.grid):
            t = si.make_interp_spline(g, np.zeros(len(g)), k).t
            bases.append(Basis(t, k))
            if k > 1:
                c = move_axis(coefficients(t, k, g, move_axis(c, axis, 0)), 0, axis)
        return bases, c

    def _nearest(self, columns: list) -> AnyArray:
        """The value at the nearest point of the grid; of two, at the lower."""
        flat: Any = 0
        for x, g in zip(columns, self.grid, strict=True):
            left = np.clip(np.searchsorted(g, x) - 1, 0, len(g) - 2)
            low, high = take(g, left), take(g, left + 1)
            flat = flat * len(g) + left + ((x - low) / (high - low) > 0.5)
        rest = self.values.shape[len(self.grid) :]
        return take(self.values.reshape((-1, *rest)), flat, axis=0)

    def _pchip(self, columns: list) -> AnyArray:
        """PCHIP's interpolants along the last axis first, then through what they give."""
        shape, count = columns[0].shape, len(self.grid)
        rest = self.values.shape[count:]
        # the axis of the points comes after those of the grid that are left
        y = self.values.reshape((*self.values.shape[:count], 1, -1))
        for axis in reversed(range(count)):
            y = _along(self.grid[axis], move_axis(y, axis, 0), columns[axis].reshape(-1))
        return y.reshape((*shape, *rest))


def _along(knots: np.ndarray, y: Any, x: Any) -> AnyArray:
    """PCHIP's interpolant along axis 0, of its last axis but one at one point each."""
    left = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
    gap = (x - take(knots, left))[:, None]

    def at(c: Any) -> AnyArray:
        if c.shape[-2] == 1:  # the same for all points
            return move_axis(take(np.squeeze(c, -2), left, axis=0), 0, -2)
        index = left.reshape((1, *(1,) * (c.ndim - 3), -1, 1))
        index = index + np.zeros((1, *c.shape[1:]), np.intp)
        return np.take_along_axis(c, index, axis=0)[0]

    cubic, square, slope, value = map(at, slopes.cubics(knots, y, slopes.monotone(knots, y)))
    return ((cubic * gap + square) * gap + slope) * gap + value


def _points(xi: Any, count: int) -> AnyArray:
    """Points along all axes but the last, of an array or of one array for each coordinate."""
    if isinstance(xi, tuple):
        return np.stack(np.broadcast_arrays(*[as_operand(x) for x in xi]), axis=-1)
    x = as_operand(xi)
    x = x.reshape((-1, count)) if x.ndim == 1 else x
    if x.shape[-1] != count:
        raise ValueError(f"The requested sample points xi have dimension {x.shape[-1]} but this "
                         f"RegularGridInterpolator has dimension {count}")
    return x


def interpn(points, values, xi, method="linear", bounds_error=True, fill_value: Any = np.nan):
    """Values on a rectangular grid, interpolated at ``xi``.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(lambda v: interpn((np.arange(3.0),), v, [[1.25]])[0])(np.zeros(3))
    Array([0.  , 0.75, 0.25])
    """
    if not (method in ("cubic", "quintic") or is_traced((values, xi))):
        return si.interpn(points, values, xi, method, bounds_error, fill_value)
    if method == "splinef2d":
        raise refused("interpn", "method", method, "take RectBivariateSpline")
    return RegularGridInterpolator(points, values, method, bounds_error, fill_value)(xi)


def _of_fitpack(spline: Any) -> tuple:
    """The knots, coefficients and degrees of SciPy's spline of two variables."""
    (tx, ty, c), (kx, ky) = spline.tck[:3], spline.degrees
    return tx, ty, c.reshape(len(tx) - kx - 1, len(ty) - ky - 1), kx, ky


class RectBivariateSpline(OfScipy):
    """FITPACK's spline of two variables on a rectangular grid; of traced values, with ``s=0``.

    It is differentiated in points and in values; as SciPy's it is constant beyond the grid.

    >>> import functrans as ft, numpy as np
    >>> x = np.arange(4.0)
    >>> f = RectBivariateSpline(x, x, x[:, None] * x)
    >>> ft.grad(lambda p: f.ev(p[0], p[1]))(np.array([0.5, 1.5])).round(12)
    array([1.5, 0.5])
    """

    def __init__(self, x, y, z, bbox=(None,) * 4, kx=3, ky=3, s=0, **options):
        refuse_traced("RectBivariateSpline", x=x, y=y, bbox=bbox)
        values = np.zeros(np.shape(z)) if is_traced(z) else z
        self._plain = si.RectBivariateSpline(x, y, values, list(bbox), kx, ky, s, **options)
        self._traced = is_traced(z) or None
        if not self._traced:
            self._hold(*_of_fitpack(self._plain))
            return
        if s != 0:
            raise refused("RectBivariateSpline", "s", s,
                          "it would choose knots by the values: pass s=0")
        c, knots = as_operand(z), []
        for axis, (at, k) in enumerate(((x, kx), (y, ky))):
            at = np.ravel(at).astype(float)
            knots.append(knots_of(at, k, bbox[2 * axis : 2 * axis + 2]))
            c = coefficients(knots[-1], k, at, move_axis(c, axis, 0))
            c = move_axis(c, 0, axis)
        self._hold(knots[0], knots[1], c, kx, ky)

    def _hold(self, tx: np.ndarray, ty: np.ndarray, c: Any, kx: int, ky: int) -> None:
        self._knots, self._c, self.degrees = (tx, ty), c, (kx, ky)
        self._bases = Basis(tx, kx), Basis(ty, ky)

    @property
    def tck(self) -> tuple[np.ndarray, np.ndarray, Any]:
        """The knots in both variables and the coefficients."""
        return (*self._knots, self._c.reshape(-1))

    def __call__(self, x: Any, y: Any, dx: int = 0, dy: int = 0, grid: bool = True) -> AnyArray:
        if not (self._traced or is_traced((x, y))):
            return self._plain(x, y, dx, dy, grid)
        x, y = as_operand(x), as_operand(y)
        if grid:
            x, y = x.reshape((-1, 1)), y.reshape((1, -1))
        xs = [np.clip(v, *basis.ends) for v, basis in zip((x, y), self._bases, strict=True)]
        return combined(self._bases, self._c, np.broadcast_arrays(*xs), (dx, dy))

    def ev(self, xi: Any, yi: Any, dx: int = 0, dy: int = 0) -> AnyArray:
        """The values at points."""
        return self(xi, yi, dx, dy, grid=False)

    def integral(self, xa: Any, xb: Any, ya: Any, yb: Any) -> AnyArray:
        """The integral over a rectangle; beyond the grid the spline counts as 0."""
        if not (self._traced or is_traced((xa, xb, ya, yb))):
            return self._plain.integral(xa, xb, ya, yb)
        (tx, ty), (kx, ky) = self._knots, self.degrees
        inner = BSpline(ty, self._c.T, ky).integrate(ya, yb, False)
        return BSpline(tx, inner, kx).integrate(xa, xb, False)

    def partial_derivative(self, dx: int, dy: int) -> RectBivariateSpline:
        """The spline that is a partial derivative."""
        if not self._traced:
            made = self._plain.partial_derivative(dx, dy)
            tx, ty, c, kx, ky = _of_fitpack(made)
        else:
            (tx, ty), (kx, ky) = self._knots, self.degrees
            along_x = BSpline(tx, self._c, kx).derivative(dx)
            along_y = BSpline(ty, along_x.c.T, ky).derivative(dy)
            made, tx, ty, c = None, along_x.t, along_y.t, along_y.c.T
            kx, ky = kx - dx, ky - dy
        spline: RectBivariateSpline = object.__new__(RectBivariateSpline)
        spline._plain, spline._traced = made, self._traced
        spline._hold(tx, ty, c, kx, ky)
        return spline
