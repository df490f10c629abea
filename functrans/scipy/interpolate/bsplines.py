"""Splines as sums of B-splines, differentiable in points and coefficients, and in values fitted.

What a fit of fixed knots finds is linear in the values: SciPy gives the matrix, as the
coefficients of the fits of unit vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index
from scipy import interpolate

from functrans._core.bind import known
from functrans._core.locks import lazy
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.structure import as_operand
from functrans.scipy.interpolate.bases import Basis, axis_back, combined, refuse_traced
from functrans.scipy.public import is_traced

si: Any = interpolate  # its types say less than its functions take


class BSpline:
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
        self._hold(plain, np.moveaxis(c, axis, 0)[: len(plain.t) - plain.k - 1])

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

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"'BSpline' object has no attribute {name!r}")
        theirs = getattr(self._plain, name)
        if self._traced is not None:
            raise UnsupportedError(
                f"{user_line()}: {name} of a BSpline of traced coefficients is not known here; "
                "values, derivatives and integrals are."
            )
        return theirs

    def __call__(self, x: Any, nu: int = 0, extrapolate: Any = None) -> Any:
        if self._traced is None and not is_traced(x):
            return self._plain(x, nu, extrapolate)
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        x = as_operand(x)
        basis, n = self._basis, len(self.t) - self.k - 1
        low, high = basis.ends
        if extrapolate == "periodic":
            x = low + (x - low) % (high - low)
        y = combined([basis], self.c[:n], [x], [nu])
        if not extrapolate:
            inside = (x >= low) & (x <= high)
            y = np.where(inside.reshape(inside.shape + (1,) * (y.ndim - x.ndim)), y, np.nan)
        return axis_back(y, x.ndim, self.axis)

    def derivative(self, nu: int = 1) -> BSpline:
        """The spline that is its derivative of order ``nu``."""
        if self._traced is None:
            return wrapped(self._plain.derivative(nu))
        spline = self
        for _ in range(nu):
            spline = spline._derived()
        return spline

    def _derived(self) -> BSpline:
        t, k, c = self.t, self.k, self.c
        n = len(t) - k - 1
        widths = t[k + 1 : n + k] - t[1:n]
        factors = np.divide(k, widths, out=np.zeros(n - 1), where=widths > 0)
        return self._with(t[1:-1], np.diff(c, axis=0) * _column(factors, c.ndim), k - 1)

    def antiderivative(self, nu: int = 1) -> BSpline:
        """The spline that is its integral from the first knot, ``nu`` times."""
        if self._traced is None:
            return wrapped(self._plain.antiderivative(nu))
        spline = self
        for _ in range(nu):
            spline = spline._integrated()
        return spline

    def _integrated(self) -> BSpline:
        t, k, c = self.t, self.k, self.c
        n = len(t) - k - 1
        widths = (t[k + 1 :] - t[:n]) / (k + 1)
        areas = np.cumsum(c * _column(widths, c.ndim), axis=0)
        return self._with(np.concatenate([t[:1], t, t[-1:]]),
                          np.concatenate([0 * areas[:1], areas]), k + 1)

    def _with(self, t: np.ndarray, c: Any, k: int) -> BSpline:
        """The spline of these coefficients, which have their axis first, that looks like this."""
        spline: BSpline = object.__new__(BSpline)
        extrapolate = False if self.extrapolate == "periodic" else self.extrapolate
        spline._hold(si.BSpline(t, np.zeros(c.shape), k, extrapolate), c)
        spline.axis = self.axis
        return spline

    def integrate(self, a: Any, b: Any, extrapolate: Any = None) -> Any:
        """The integral from ``a`` to ``b``; without ``extrapolate``, of 0 beyond the ends."""
        if self._traced is None and not is_traced((a, b)):
            return self._plain.integrate(a, b, extrapolate)
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        if extrapolate == "periodic":
            raise UnsupportedError(
                f"{user_line()}: integrate got extrapolate='periodic' beside a traced value; "
                "integrate within one period."
            )
        if not extrapolate:
            low, high = self.t[self.k], self.t[len(self.t) - self.k - 1]
            a, b = np.clip(as_operand(a), low, high), np.clip(as_operand(b), low, high)
        whole = self.antiderivative()
        return whole(b, 0, True) - whole(a, 0, True)


def _column(x: np.ndarray, ndim: int) -> np.ndarray:
    return x.reshape((-1,) + (1,) * (ndim - 1))


def wrapped(plain: Any) -> BSpline:
    """One of SciPy's splines as ours."""
    spline: BSpline = object.__new__(BSpline)
    spline._hold(plain, None)
    return spline


def fitted(fit: Callable, y: Any, axis: int = 0) -> BSpline:
    """The spline of ``fit``, which is linear, through traced values."""
    y = as_operand(y)
    axis = normalize_axis_index(axis, y.ndim)
    y = np.moveaxis(y, axis, 0)
    unit = fit(np.eye(y.shape[0]))
    spline = wrapped(unit)
    spline._traced = spline.c = np.tensordot(unit.c, y, 1)
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
    if k <= 1 and t is None and bc_type is None:  # its coefficients are the values
        return BSpline(si.make_interp_spline(x, np.zeros(len(x)), k).t, y, k, axis=axis)
    if isinstance(bc_type, str) and bc_type == "periodic":
        def periodic(unit: np.ndarray) -> Any:
            unit[[0, 0, -1, -1], [0, -1, 0, -1]] = 0.5
            return si.make_interp_spline(x, unit, k, t, bc_type)

        return fitted(periodic, y, axis)
    ends = [bc_type] * 2 if bc_type is None or isinstance(bc_type, str) else list(bc_type)
    ends = [end if end is None or isinstance(end, str) else list(end) for end in ends]

    def with_ends(unit: np.ndarray, one: tuple[int, int] | None = None) -> Any:
        """The fit with all derivatives at the ends 0, except for one."""
        known = [end if not isinstance(end, list) else
                 [(order, np.full(unit.shape[1:], float((side, i) == one)))
                  for i, (order, _) in enumerate(end)] for side, end in enumerate(ends)]
        return si.make_interp_spline(x, unit, k, t, tuple(known))

    spline = fitted(with_ends, y, axis)
    for side, end in enumerate(ends):
        for i, (_, value) in enumerate(end if isinstance(end, list) else ()):
            column = with_ends(np.zeros(len(x)), (side, i)).c
            spline._traced = spline._traced + _column(column, spline.c.ndim) * as_operand(value)
    spline.c = spline._traced
    return spline


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
    return fitted(lambda unit: si.make_lsq_spline(x, unit, t, k, w, **options), y, axis)


def make_smoothing_spline(x, y, w=None, lam=None, *, axis=0):
    """The cubic spline that is smooth and close to values: for a given ``lam`` linear in them.

    It is differentiated in values, weights and ``lam``.

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
    if is_traced((w, lam)):
        y, w, lam = _smoothed(x, y, w, lam, axis), None, 0.0
    # SciPy takes several columns only since 1.16
    return fitted(lambda unit: _side_by_side(
        [si.make_smoothing_spline(x, column, w, lam) for column in unit]), y, axis)


def _smoothed(x: Any, y: Any, w: Any, lam: Any, axis: int) -> Any:
    """The values of the smoothing spline at ``x``: it is the natural spline through them.

    By its second derivatives at the inner points, of which the system has few bands (C. Reinsch,
    Smoothing by spline functions, 1967).
    """
    x = np.asarray(x, float)
    w = np.ones(len(x)) if w is None else as_operand(w)
    weights, parameter = known(w), known(as_operand(lam))
    if weights is not None and np.any(weights <= 0):
        raise ValueError("Invalid vector of weights")
    if parameter is not None and parameter < 0:
        raise ValueError("Regularization parameter should be non-negative")
    h, inner = np.diff(x), np.arange(len(x) - 2)
    differences = np.zeros((len(x), len(x) - 2))
    differences[inner, inner] = 1 / h[:-1]
    differences[inner + 1, inner] = -1 / h[:-1] - 1 / h[1:]
    differences[inner + 2, inner] = 1 / h[1:]
    beside = np.diag(h[1:-1] / 6, 1)
    roughness = np.diag((h[:-1] + h[1:]) / 3) + beside + beside.T
    values = np.moveaxis(as_operand(y), axis, 0)
    columns = values.reshape((len(x), -1))
    system = roughness + lam * ((differences.T / w) @ differences)
    second = np.linalg.solve(system, differences.T @ columns)
    smooth = columns - lam * (differences @ second) / w[:, None]
    return np.moveaxis(smooth.reshape(values.shape), 0, axis)


def _side_by_side(splines: list) -> Any:
    first = splines[0]
    return si.BSpline(first.t, np.stack([s.c for s in splines], axis=1), first.k)


__all__ = ["BSpline", "make_interp_spline", "make_lsq_spline", "make_smoothing_spline"]
