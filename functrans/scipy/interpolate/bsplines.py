"""Splines as sums of B-splines, differentiable in points and coefficients, and in values fitted.

What a fit of fixed knots finds is linear in the values: the solution of a system with a band. Of
periodic splines SciPy gives the matrix, as the fits of unit vectors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index
from scipy import interpolate

from functrans._core.bind import AnyArray, bind, known_value
from functrans._core.locks import lazy
from functrans._ops import sparse
from functrans._ops.sparse import Pattern
from functrans._ops.structure import move_axis
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.indexing import take
from functrans.numpy.structure import as_floats, as_operand
from functrans.scipy import bands
from functrans.scipy.interpolate.bases import (
    NAMED_ENDS,
    Basis,
    OfScipy,
    axis_back,
    column,
    combined,
    filled,
    finite_or_nan,
    refuse_traced,
    whole_line,
)
from functrans.scipy.public import is_traced, require_finite

si: Any = interpolate  # its types say less than its functions take


class BSpline(OfScipy):
    """The spline of SciPy with knots ``t``, coefficients ``c`` and degree ``k``.

    It is differentiated in points and coefficients. Of plain ones SciPy's own runs, and it has
    SciPy's other methods too.

    >>> import functrans as ft, numpy as np
    >>> t = np.array([0.0, 0.0, 1.0, 2.0, 2.0])
    >>> ft.grad(lambda c: BSpline(t, c, 1)(0.25))(np.zeros(3))
    Array([0.75, 0.25, 0.  ])
    """

    def __init__(self, t, c, k, extrapolate: Any = True, axis=0):
        refuse_traced("BSpline", knots=t)
        if not is_traced(c):
            self._hold(si.BSpline(t, c, k, extrapolate, axis), None)
            return
        c = as_operand(c)
        axis = normalize_axis_index(axis, c.ndim)
        plain = si.BSpline(t, np.zeros(c.shape), k, extrapolate, axis)
        self._hold(plain, move_axis(c, axis, 0)[: len(plain.t) - plain.k - 1])

    def _hold(self, plain: Any, traced: Any) -> None:
        """``plain`` is SciPy's; ``traced``, if not None, are the coefficients instead of its."""
        self._plain, self._traced = plain, traced
        self.t, self.k, self.axis = plain.t, plain.k, plain.axis
        self.extrapolate = plain.extrapolate
        self.c = plain.c if traced is None else traced

    @lazy
    def _basis(self) -> Basis:
        return Basis(self.t, self.k)

    @property
    def tck(self) -> tuple[np.ndarray, Any, int]:
        """Knots, coefficients and degree."""
        return self.t, self.c, self.k

    def __call__(self, x: Any, nu: int = 0, extrapolate: Any = None) -> AnyArray:
        if self._traced is None and not is_traced(x):
            return self._plain(x, nu, extrapolate)
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        x = as_operand(x)
        basis = self._basis
        low, high = basis.ends
        if extrapolate == "periodic":
            x = low + (x - low) % (high - low)
        y = combined([basis], self.c, [x], [nu])
        if not extrapolate:
            y = filled(y, [x], np.logical_not((x >= low) & (x <= high)), np.nan)
        return axis_back(y, x.ndim, self.axis)

    def derivative(self, nu: int = 1) -> BSpline:
        """The spline that is its derivative of order ``nu``."""
        if self._traced is None:
            return wrapped(self._plain.derivative(nu))
        spline = self
        for _ in range(nu):
            spline = spline._derive()
        return spline

    def _derive(self) -> BSpline:
        t, k, c = self.t, self.k, self.c
        n = len(t) - k - 1
        widths = t[k + 1 : n + k] - t[1:n]
        factors = np.divide(k, widths, out=np.zeros(n - 1), where=widths > 0)
        return self._with(t[1:-1], np.diff(c, axis=0) * column(factors, c.ndim), k - 1)

    def antiderivative(self, nu: int = 1) -> BSpline:
        """The spline that is its integral from the first knot, ``nu`` times."""
        if self._traced is None:
            return wrapped(self._plain.antiderivative(nu))
        spline = self
        for _ in range(nu):
            spline = spline._integrate()
        return spline

    def _integrate(self) -> BSpline:
        t, k, c = self.t, self.k, self.c
        n = len(t) - k - 1
        widths = (t[k + 1 :] - t[:n]) / (k + 1)
        areas = np.cumsum(c * column(widths, c.ndim), axis=0)
        return self._with(np.concatenate([t[:1], t, t[-1:]]),
                          np.concatenate([0 * areas[:1], areas]), k + 1)

    def _with(self, t: np.ndarray, c: Any, k: int) -> BSpline:
        """The spline of these coefficients, which have their axis first, that looks like this."""
        spline: BSpline = object.__new__(BSpline)
        extrapolate = False if self.extrapolate == "periodic" else self.extrapolate
        spline._hold(si.BSpline(t, np.zeros(c.shape), k, extrapolate), c)
        spline.axis = self.axis
        return spline

    def integrate(self, a: Any, b: Any, extrapolate: Any = None) -> AnyArray:
        """The integral from ``a`` to ``b``; without ``extrapolate``, of 0 beyond the ends."""
        if self._traced is None and not is_traced((a, b)):
            return self._plain.integrate(a, b, extrapolate)
        if not whole_line(self.extrapolate if extrapolate is None else extrapolate):
            low, high = self.t[self.k], self.t[len(self.t) - self.k - 1]
            a, b = np.clip(as_operand(a), low, high), np.clip(as_operand(b), low, high)
        whole = self.antiderivative()
        return whole(b, 0, True) - whole(a, 0, True)


def wrapped(plain: Any) -> BSpline:
    """One of SciPy's splines as ours."""
    spline: BSpline = object.__new__(BSpline)
    spline._hold(plain, None)
    return spline


def fitted(fit: Callable, y: Any, axis: int = 0) -> BSpline:
    """The spline of ``fit``, which is linear, through traced values."""
    y = as_operand(y)
    axis = normalize_axis_index(axis, y.ndim)
    y = move_axis(y, axis, 0)
    unit = fit(np.eye(y.shape[0]))
    return _with_traced(wrapped(unit), np.tensordot(unit.c, y, 1), axis)


def _with_traced(spline: BSpline, c: Any, axis: int) -> BSpline:
    spline._traced = spline.c = c
    spline.axis = axis
    return spline


def make_interp_spline(x, y, k=3, t=None, bc_type: Any = None, axis=0, check_finite=True):
    """The spline of degree ``k`` through values, linear in them and in derivatives at its ends.

    A periodic one takes the mean of the first and the last value, which must be equal.

    >>> import functrans as ft, numpy as np
    >>> x = np.arange(4.0)
    >>> ft.grad(lambda y: make_interp_spline(x, y)(1.5))(x)
    Array([-0.0625,  0.5625,  0.5625, -0.0625])
    """
    refuse_traced("make_interp_spline", x=x, knots=t)
    if not is_traced((y, bc_type)):
        return wrapped(si.make_interp_spline(x, y, k, t, bc_type, axis, check_finite))
    if check_finite:
        require_finite(y)
        y = finite_or_nan(as_operand(y))
    if k <= 1 and t is None and bc_type is None:  # its coefficients are the values
        return BSpline(si.make_interp_spline(x, np.zeros(len(x)), k).t, y, k, axis=axis)
    if isinstance(bc_type, str) and bc_type == "periodic":
        def periodic(unit: np.ndarray) -> AnyArray:
            unit[[0, 0, -1, -1], [0, -1, 0, -1]] = 0.5
            return si.make_interp_spline(x, unit, k, t, bc_type)

        return fitted(periodic, _close(as_operand(y), axis), axis)
    y = as_operand(y)
    y = move_axis(y, normalize_axis_index(axis, y.ndim), 0)
    pair = [bc_type] * 2 if bc_type is None or isinstance(bc_type, str) else list(bc_type)
    ends = [[NAMED_ENDS[end]] if end in ("clamped", "natural") else
            [] if end in (None, "not-a-knot") else end for end in pair]
    # SciPy's checks, and its knots
    plain = [end if isinstance(end, str) else
             [(order, np.zeros(y.shape[1:])) for order, _ in end] or None for end in ends]
    spline = wrapped(si.make_interp_spline(x, np.zeros(y.shape, y.dtype), k, t, tuple(plain)))
    return _with_traced(spline, coefficients(spline.t, spline.k, x, y, ends), axis)


def _close(y: Any, axis: int) -> AnyArray:
    """The values of a periodic spline: SciPy's error where they do not close, or NaN."""
    ends = take(y, 0, axis=axis), take(y, -1, axis=axis)
    closed = np.isclose(*ends, atol=1e-15)
    plain = known_value(closed)
    if plain is not None and not np.all(plain):
        raise ValueError("First and last points does not match while periodic case expected")
    return y if plain is not None else np.where(np.all(closed), y, np.nan * y)


def coefficients(t: np.ndarray, k: int, x: Any, y: Any, ends: Any = ((), ())) -> AnyArray:
    """Those of the spline on knots ``t`` through values ``y`` at ``x``.

    ``ends`` are the orders and values of derivatives at both ends.
    """
    basis, x = Basis(t, k), np.asarray(x, float)
    left, right = [[(at, nu, np.broadcast_to(as_operand(v), y.shape[1:])[None]) for nu, v in end]
                   for at, end in zip((x[:1], x[-1:]), ends, strict=True)]
    conditions = [*left, (x, 0, y), *right]
    rows = [basis.at(at, nu) for at, nu, _ in conditions]
    first, weights = [np.concatenate(parts) for parts in zip(*rows, strict=True)]
    places = _places(first, k, len(first))
    return bands.solve_well(places, weights.ravel(), np.concatenate([v for *_, v in conditions]))


def _places(first: np.ndarray, k: int, n: int) -> Pattern:
    """Where the values of the k + 1 functions of n are that are not 0 at each point."""
    m = len(first)
    return Pattern(np.repeat(np.arange(m), k + 1), (first[:, None] + np.arange(k + 1)).ravel(),
                   (m, n))


def make_lsq_spline(x, y, t, k=3, w=None, axis=0, check_finite=True, **options):
    """The spline on knots ``t`` that is closest to values, with weights; linear in them.

    >>> import functrans as ft, numpy as np
    >>> t = np.array([0.0, 0.0, 3.0, 3.0])
    >>> ft.grad(lambda y: make_lsq_spline(np.arange(4.0), y, t, 1)(1.5))(np.zeros(4)).round(12)
    array([0.25, 0.25, 0.25, 0.25])
    """
    refuse_traced("make_lsq_spline", x=x, knots=t, weights=w)
    if not is_traced(y):
        return wrapped(si.make_lsq_spline(x, y, t, k, w, axis, check_finite, **options))
    if check_finite:
        require_finite(y)
        y = finite_or_nan(as_operand(y))
    y = as_operand(y)
    y = move_axis(y, normalize_axis_index(axis, y.ndim), 0)
    # SciPy's checks
    spline = wrapped(si.make_lsq_spline(x, np.zeros(y.shape[0]), t, k, w, **options))
    return _with_traced(spline, closest(spline.t, k, x, y, w), axis)


def closest(t: np.ndarray, k: int, x: Any, y: Any, w: Any = None) -> AnyArray:
    """Coefficients of the spline on knots ``t`` that is closest to ``y`` at ``x``, weighted.

    Up to 64 of them by the inverse of a QR factor, more by the normal equations, whose solution is
    improved once (A. Bjorck, Numerical Methods for Least Squares Problems, 1996, section 6.6.5).
    """
    n, m = len(t) - k - 1, y.shape[0]
    first, values = Basis(t, k).at(np.asarray(x, float))
    w = np.ones(m) if w is None else np.asarray(w, float)
    places, data = _places(first, k, n), (values * w[:, None]).ravel()
    matrix, y = places.matrix(data), y * column(w, y.ndim)
    if n <= bands.DENSE:
        q, r = np.linalg.qr(matrix.toarray())
        return np.tensordot(np.linalg.solve(r, q.T), y, 1)
    normal = (matrix.T @ matrix).tocoo()
    ahead, back = [functools.partial(bind, sparse.product, data, places=p)
                   for p in (places, places.T)]
    inverse = functools.partial(bands.solve, Pattern(normal.row, normal.col, normal.shape),
                                normal.data)
    y = as_floats(y)
    c = inverse(back(y))
    return c + inverse(back(y - ahead(c)))


def make_smoothing_spline(x, y, w=None, lam=None, *, axis=0):
    """The cubic spline that is smooth and close to values, also of traced weights and ``lam``.

    >>> import functrans as ft, numpy as np
    >>> f = lambda y: make_smoothing_spline(np.arange(5.0), y, lam=1e9)(2.0)
    >>> ft.grad(f)(np.zeros(5)).round(6)
    array([0.2, 0.2, 0.2, 0.2, 0.2])
    """
    refuse_traced("make_smoothing_spline", x=x)
    options: dict[str, Any] = {"axis": axis} if axis else {}  # SciPy has it since 1.16
    if not is_traced((y, w, lam)):
        return wrapped(si.make_smoothing_spline(x, y, w, lam, **options))
    if lam is None:
        raise UnsupportedError(
            f"{user_line()}: make_smoothing_spline got lam=None beside traced values, and would "
            "choose it by them. Pass lam=."
        )
    y = as_operand(y)
    y = move_axis(y, normalize_axis_index(axis, y.ndim), 0)
    ones = np.ones(y.shape[0])
    x, w = np.asarray(x, float), as_operand(ones if w is None else w)
    # SciPy's checks, and its knots
    weights, strength = known_value(w), known_value(lam)
    spline = wrapped(si.make_smoothing_spline(
        x, 0 * ones, ones if weights is None else weights, 1.0 if strength is None else strength))
    return _with_traced(spline, _smooth(x, y, w, lam), axis)


def _smooth(x: np.ndarray, y: Any, w: Any, lam: Any) -> AnyArray:
    """Coefficients of the smoothing spline: its second derivatives at inner knots, integrated.

    (C. Reinsch, Smoothing by spline functions, 1967; P. Green and B. Silverman, Nonparametric
    Regression and Generalized Linear Models, 1994, section 2.3)
    """
    h, v = np.diff(x), 1 / w
    a, b, c = 1 / h[:-1], -1 / h[:-1] - 1 / h[1:], 1 / h[1:]  # of second differences
    main = (h[:-1] + h[1:]) / 3 + lam * (a * a * v[:-2] + b * b * v[1:-1] + c * c * v[2:])
    beside = h[1:-1] / 6 + lam * (b[:-1] * a[1:] * v[1:-2] + c[:-1] * b[1:] * v[2:-1])
    beyond = lam * (c[:-2] * a[2:] * v[2:-2])
    data = np.concatenate([main, beside, beside, beyond, beyond])
    factors = [column(d, y.ndim) for d in (a, b, c)]
    moments = sum([d * part for d, part in zip(factors, (y[:-2], y[1:-1], y[2:]), strict=True)])
    bends = bands.solve_well(_five_diagonals(len(a)), data, moments)
    gap = np.zeros((1, *y.shape[1:]))
    a, b, c = [d * bends for d in factors]
    moved = (np.concatenate([a, gap, gap]) + np.concatenate([gap, b, gap])
             + np.concatenate([gap, gap, c]))
    values = y - lam * column(v, y.ndim) * moved
    whole = BSpline(np.r_[x[0], x, x[-1]], np.concatenate([gap, bends, gap]), 1).antiderivative(2)
    # a line is added, of which coefficients are the values at means of knots
    at = column((whole.t[1:-3] + whole.t[2:-2] + whole.t[3:-1]) / 3, y.ndim)
    rest = values[[0, -1]] - whole.c[[0, -1]]
    return whole.c + rest[0] + (rest[1] - rest[0]) * (at - at[0]) / (at[-1] - at[0])


@functools.lru_cache(64)
def _five_diagonals(n: int) -> Pattern:
    """The places on the main diagonal, above and below it, and beyond those."""
    i = np.arange(n)
    return Pattern(np.concatenate([i, i[:-1], i[1:], i[:-2], i[2:]]),
                   np.concatenate([i, i[1:], i[:-1], i[2:], i[:-2]]), (n, n))
