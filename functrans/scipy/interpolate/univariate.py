"""Functions of one variable: ``interp1d``, and FITPACK's splines under SciPy's names."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy import interpolate

from functrans._core.bind import AnyArray, known_value
from functrans._core.locks import lazy
from functrans._ops.declare import where
from functrans._ops.structure import move_axis
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.indexing import take
from functrans.numpy.structure import as_floats, as_operand
from functrans.scipy.interpolate.bases import OfScipy, axis_back, filled, refuse_traced
from functrans.scipy.interpolate.bsplines import BSpline, closest, coefficients, make_interp_spline
from functrans.scipy.interpolate.piecewise import PchipInterpolator
from functrans.scipy.public import is_traced, refused

# ---- Interpolation between neighbouring values: ``interp1d``

si: Any = interpolate  # its types say less than its functions take

DEGREES = {"zero": 0, "slinear": 1, "linear": 1, "quadratic": 2, "cubic": 3}
STEPS = ("nearest", "nearest-up", "previous", "next")


class interp1d:
    """The interpolant of SciPy of one variable, differentiated in points, values and fill values.

    With ``bounds_error`` points beyond the ends raise. Under ``jit`` and ``vmap``, where that is
    not known, they have the fill value.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(lambda y: interp1d([0.0, 1.0, 3.0], y)(1.5))(np.zeros(3))
    Array([0.  , 0.75, 0.25])
    """

    def __init__(self, x, y, kind: Any = "linear", axis=-1, copy=True, bounds_error=None,
                 fill_value: Any = np.nan, assume_sorted=False):
        refuse_traced("interp1d", knots=x)
        values = np.zeros(np.shape(y)) if is_traced(y) else y
        fill = np.nan if is_traced(fill_value) else fill_value
        self._plain = si.interp1d(x, values, kind, axis, copy, bounds_error, fill, assume_sorted)
        self._traced = is_traced((y, fill_value))
        self.x, self.axis = self._plain.x, self._plain.axis
        order = None if assume_sorted else np.argsort(x, kind="mergesort")
        y = as_floats(y)
        self.y = y if order is None else take(y, order, axis=self.axis)
        self.fill_value = fill_value
        self._first = move_axis(self.y, self.axis, 0)
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"'interp1d' object has no attribute {name!r}")
        return getattr(self._plain, name)

    def __call__(self, x: Any) -> AnyArray:
        if not (self._traced or is_traced(x)):
            return self._plain(x)
        x = as_operand(x)
        self._require_inside(x)
        y = self._steps(x) if self._kind in STEPS else self._spline(x)
        below, above = self._fills()
        # of NaN, SciPy's steps are those of some knot
        nan = None if self._kind in STEPS else np.nan
        for outside, fill in ((x < self.x[0], below), (x > self.x[-1], above), (np.isnan(x), nan)):
            if fill is not None:
                y = filled(y, [x], outside, fill)
        return axis_back(y, x.ndim, self.axis)

    @lazy
    def _spline(self) -> BSpline:
        degree = DEGREES[self._kind] if isinstance(self._kind, str) else self._kind
        return make_interp_spline(self.x, self._first, degree, check_finite=False)

    def _steps(self, x: Any) -> AnyArray:
        """The value at a neighbour."""
        knots, n = self.x, len(self.x)
        middles = knots[:-1] / 2.0 + knots[1:] / 2.0
        rules: dict[str, tuple[np.ndarray, Literal["left", "right"], int]] = {
            "nearest": (middles, "left", 0), "nearest-up": (middles, "right", 0),
            "previous": (knots, "right", -1), "next": (knots, "left", 0),
        }
        at, side, shift = rules[self._kind]
        where = np.clip(np.searchsorted(at, x, side=side) + shift, 0, n - 1)
        return take(self._first, where, axis=0) + 0.0 * (x - x).reshape(
            x.shape + (1,) * (self._first.ndim - 1))

    def _fills(self) -> tuple[Any, Any]:
        """What stands below and above, for one point; None: the interpolant itself."""
        fill = self.fill_value
        if isinstance(fill, str):  # extrapolate
            return {"previous": (np.nan, None), "next": (None, np.nan)}.get(
                self._kind, (None, None))
        pair = fill if isinstance(fill, tuple) and len(fill) == 2 else (fill, fill)
        below, above = [np.broadcast_to(as_operand(v), self._first.shape[1:]) for v in pair]
        return below, above

    def _require_inside(self, x: Any) -> None:
        plain = known_value(x)
        if self._plain.bounds_error and plain is not None:
            self._plain(np.asarray(plain))  # raises


def pchip_interpolate(xi, yi, x, der: Any = 0, axis=0):
    """The values, or derivatives, of PCHIP's interpolant at ``x``."""
    if not is_traced((xi, yi, x)):
        return si.pchip_interpolate(xi, yi, x, der, axis)
    p = PchipInterpolator(xi, yi, axis=axis)
    return p(x, der) if np.ndim(der) == 0 else [p(x, nu) for nu in der]


# ---- The functions and classes of FITPACK's splines under SciPy's names
#
# Interpolating splines and those of least squares on given knots are linear in their values. A
# smoothing condition chooses knots by the values, and is refused where these are traced.

MODES = {0: 0, "extrapolate": 0, 1: 1, "zeros": 1, 2: 2, "raise": 2, 3: 3, "const": 3}


def knots_of(x: Any, k: int, ends: Any = (None, None)) -> np.ndarray:
    """The knots that FITPACK chooses for a spline through values at ``x``."""
    x = np.asarray(x, float)
    return si.splrep(x, np.zeros(len(x)), None, *ends, k=k, s=0)[0]


def through(x: Any, y: Any, k: int, ends: Any = (None, None)) -> BSpline:
    """FITPACK's spline of degree ``k`` through values."""
    t, y = knots_of(x, k, ends), as_operand(y)
    return BSpline(t, coefficients(t, k, x, y), k)


def closest_on(x: Any, y: Any, inner: Any, k: int, w: Any, ends: Any = (None, None)) -> BSpline:
    """FITPACK's spline on given inner knots that is closest to values."""
    low, high = [x[i] if end is None else end for i, end in zip((0, -1), ends, strict=True)]
    t, y = np.concatenate([[low] * (k + 1), inner, [high] * (k + 1)]), as_operand(y)
    return BSpline(t, closest(t, k, x, y, w), k)


def splrep(x, y, w=None, xb=None, xe=None, k=3, task=0, s=None, t=None, full_output=0, per=0,
           quiet=1):
    """Knots, coefficients and degree of a spline through values, or closest to them.

    Of traced values: with ``s=0``, or with inner knots ``t`` and ``task=-1``.

    >>> import functrans as ft, numpy as np
    >>> x = np.arange(4.0)
    >>> ft.grad(lambda y: splev(1.5, splrep(x, y)))(x)
    Array([-0.0625,  0.5625,  0.5625, -0.0625])
    """
    refuse_traced("splrep", x=x, knots=t, weights=w, ends=(xb, xe), s=s)
    if not is_traced(y):
        return si.splrep(x, y, w, xb, xe, k, task, s, t, full_output, per, quiet)
    for name, value in (("full_output", full_output), ("per", per)):
        if value:
            raise refused("splrep", name, value, "leave it out")
    x = np.asarray(x, float)
    if task == -1 or t is not None:
        spline = closest_on(x, y, t, k, w, (xb, xe))
    elif s or (s is None and w is not None):
        raise _smoothing("splrep", s)
    else:
        spline = through(x, y, k, (xb, xe))
    return spline.t, np.concatenate([spline.c, np.zeros(k + 1)]), k


def _smoothing(who: str, s: Any) -> UnsupportedError:
    return refused(who, "s", s, "it would choose knots by the values: pass s=0 or knots, or take "
                   "make_smoothing_spline with lam=")


def _coefficients_of_several(c: Any) -> bool:
    return isinstance(c, list | tuple) or np.ndim(c) > 1


def splev(x, tck, der=0, ext=0):
    """The values of a spline, or of each coordinate of a curve, or derivatives of them.

    ``ext``: beyond the ends it is continued (0), zero (1), an error (2), or as at the end (3).
    """
    if isinstance(tck, BSpline):
        if ext != 0 or np.ndim(tck.c) > 1:
            si.splev(x, si.BSpline(tck.t, np.zeros(tck.c.shape), tck.k), der, ext)  # raises
        return tck(x, der, True)
    if not is_traced((x, tck)):
        return si.splev(x, tck, der, ext)
    if isinstance(tck, si.BSpline):
        return splev(x, BSpline(tck.t, tck.c, tck.k), der, ext)
    t, c, k = tck
    if _coefficients_of_several(c):
        return [splev(x, (t, one, k), der, ext) for one in c]
    if not 0 <= der <= k:
        raise ValueError(f"0<=der={der}<=k={k} must hold")
    return beyond_ends(BSpline(t, c, k), as_operand(x), der, _mode(ext))


def _mode(ext: Any) -> int:
    if ext not in MODES:
        raise ValueError(f"Unknown extrapolation mode {ext}.")
    return MODES[ext]


def beyond_ends(spline: BSpline, x: Any, nu: int, ext: int) -> AnyArray:
    """The values of a spline at ``x``, beyond its ends as ``ext`` says."""
    low, high = spline.t[spline.k], spline.t[len(spline.t) - spline.k - 1]
    outside = (x < low) | (x > high)
    if ext == 2:
        beyond = known_value(outside)
        if beyond is None or np.any(beyond):
            raise ValueError("Found x value not in the domain" if beyond is not None else
                             f"{user_line()}: ext=2 asks whether points are inside, which is not "
                             "known under jit and vmap. Pass another ext.")
    if ext == 3 and nu == 0:  # FITPACK's derivatives are continued
        x = np.clip(x, low, high)
    y = spline(x, nu, True)
    return where(outside, 0.0, y) if ext == 1 else y


def splint(a, b, tck, full_output=0):
    """The integral of a spline from ``a`` to ``b``; beyond its ends it is 0."""
    if isinstance(tck, BSpline):
        return tck.integrate(a, b, False)
    if not is_traced((a, b, tck)):
        return si.splint(a, b, tck, full_output)
    if full_output:
        raise refused("splint", "full_output", full_output, "leave it out")
    t, c, k = tck.tck if isinstance(tck, si.BSpline) else tck
    if _coefficients_of_several(c):
        return [splint(a, b, (t, one, k)) for one in c]
    return BSpline(t, c, k).integrate(a, b, False)


def splder(tck, n=1):
    """The derivative of a spline, as a spline."""
    if isinstance(tck, BSpline):
        return tck.derivative(n)
    return _tuple(BSpline(*tck).derivative(n)) if is_traced(tck) else si.splder(tck, n)


def splantider(tck, n=1):
    """The integral of a spline, as a spline."""
    if isinstance(tck, BSpline):
        return tck.antiderivative(n)
    if not is_traced(tck):
        return si.splantider(tck, n)
    spline = BSpline(*tck).antiderivative(n)
    return _tuple(spline, spline.c[-1:] if n > 0 else 0)


def _tuple(spline: BSpline, last: Any = 0) -> tuple:
    """As FITPACK has splines: with as many coefficients as knots, the ``last`` of no effect."""
    c = spline.c
    rest = np.broadcast_to(last, (spline.k + 1, *c.shape[1:]))
    return spline.t, np.concatenate([c, rest]), spline.k


class UnivariateSpline(OfScipy):
    """The spline of SciPy with a smoothing condition; of traced values, with ``s=0``.

    It is differentiated in points and in values. Of plain ones SciPy's own runs.

    >>> import functrans as ft, numpy as np
    >>> x = np.arange(4.0)
    >>> float(ft.grad(UnivariateSpline(x, x**3, s=0))(2.0).round(9))
    12.0
    """

    def __init__(self, x, y, w=None, bbox=(None, None), k=3, s=None, ext: Any = 0,
                 check_finite=False):
        refuse_traced("UnivariateSpline", x=x, weights=w, bbox=bbox, s=s)
        if not is_traced(y):
            self._hold(si.UnivariateSpline(x, y, w, bbox, k, s, ext, check_finite), None, ext)
            return
        if s != 0:
            raise _smoothing("UnivariateSpline", s)
        plain = si.UnivariateSpline(x, np.zeros(np.shape(y)), w, bbox, k, s, ext, check_finite)
        self._hold(plain, through(np.asarray(x, float), y, k, bbox), ext)

    def _hold(self, plain: Any, traced: BSpline | None, ext: Any) -> None:
        self._plain, self._traced, self.ext = plain, traced, _mode(ext)

    @property
    def _spline(self) -> BSpline:
        return BSpline(*self._plain._eval_args) if self._traced is None else self._traced

    def __call__(self, x: Any, nu: int = 0, ext: Any = None) -> AnyArray:
        if self._traced is None and not is_traced(x):
            return self._plain(x, nu, ext)
        return beyond_ends(self._spline, as_operand(x), nu, self.ext if ext is None else _mode(ext))

    def get_knots(self) -> np.ndarray:
        """The knots, those at the ends once."""
        return self._plain.get_knots() if self._traced is None else \
            self._traced.t[self._traced.k : len(self._traced.t) - self._traced.k]

    def get_coeffs(self) -> AnyArray:
        """The coefficients of the B-splines."""
        return self._plain.get_coeffs() if self._traced is None else self._traced.c

    def integral(self, a: Any, b: Any) -> AnyArray:
        """The integral from ``a`` to ``b``; beyond the ends it is 0."""
        if self._traced is None and not is_traced((a, b)):
            return self._plain.integral(a, b)
        return self._spline.integrate(a, b, False)

    def derivatives(self, x: Any) -> AnyArray:
        """The value and all derivatives at one point."""
        if self._traced is None and not is_traced(x):
            return self._plain.derivatives(x)
        return np.stack([self._spline(x, nu, True) for nu in range(self._spline.k + 1)])

    def derivative(self, n: int = 1) -> UnivariateSpline:
        """The spline that is its derivative."""
        return self._made("derivative", n, 1 if self.ext == 3 else self.ext)

    def antiderivative(self, n: int = 1) -> UnivariateSpline:
        """The spline that is its integral from the first knot."""
        return self._made("antiderivative", n, self.ext)

    def _made(self, how: str, n: int, ext: int) -> UnivariateSpline:
        made: UnivariateSpline = object.__new__(UnivariateSpline)
        if self._traced is None:
            made._hold(getattr(self._plain, how)(n), None, ext)
        else:
            made._hold(None, getattr(self._traced, how)(n), ext)
        return made


class InterpolatedUnivariateSpline(UnivariateSpline):
    """FITPACK's spline through values, of traced values and points too."""

    def __init__(self, x, y, w=None, bbox=(None, None), k=3, ext: Any = 0, check_finite=False):
        refuse_traced("InterpolatedUnivariateSpline", x=x, weights=w, bbox=bbox)
        values = np.zeros(np.shape(y)) if is_traced(y) else y
        plain = si.InterpolatedUnivariateSpline(x, values, w, bbox, k, ext, check_finite)
        self._hold(plain, through(np.asarray(x, float), y, k, bbox) if is_traced(y) else None, ext)


class LSQUnivariateSpline(UnivariateSpline):
    """FITPACK's spline on inner knots ``t`` that is closest to values, of traced ones too."""

    def __init__(self, x, y, t, w=None, bbox=(None, None), k=3, ext: Any = 0, check_finite=False):
        refuse_traced("LSQUnivariateSpline", x=x, knots=t, weights=w, bbox=bbox)
        values = np.zeros(np.shape(y)) if is_traced(y) else y
        plain = si.LSQUnivariateSpline(x, values, t, w, bbox, k, ext, check_finite)
        x = np.asarray(x, float)
        self._hold(plain, closest_on(x, y, t, k, w, bbox) if is_traced(y) else None, ext)
