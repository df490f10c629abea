"""Interpolation between neighbouring values: ``interp1d``."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy import interpolate

from functrans._core.bind import AnyArray, known
from functrans._core.locks import lazy
from functrans._ops.structure import move_axis
from functrans.numpy.indexing import take
from functrans.numpy.structure import as_floats, as_operand
from functrans.scipy.interpolate.bases import axis_back, filled, refuse_traced
from functrans.scipy.interpolate.bsplines import BSpline, make_interp_spline
from functrans.scipy.interpolate.piecewise import PchipInterpolator
from functrans.scipy.public import is_traced

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
        plain = known(x)
        if self._plain.bounds_error and plain is not None:
            self._plain(np.asarray(plain))  # raises


def pchip_interpolate(xi, yi, x, der: Any = 0, axis=0):
    """The values, or derivatives, of PCHIP's interpolant at ``x``."""
    if not is_traced((xi, yi, x)):
        return si.pchip_interpolate(xi, yi, x, der, axis)
    p = PchipInterpolator(xi, yi, axis=axis)
    return p(x, der) if np.ndim(der) == 0 else [p(x, nu) for nu in der]
