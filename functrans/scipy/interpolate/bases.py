"""B-splines as polynomials: the basis functions of each interval between knots, and their sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._core.bind import AnyArray, known
from functrans.errors import NotDifferentiable, UnsupportedError, user_line
from functrans.numpy.indexing import take
from functrans.scipy.public import is_traced

# Orders and values of derivatives at an end.
NAMED_ENDS = {"clamped": (1, 0.0), "natural": (2, 0.0)}


def refuse_traced(who: str, **arguments: Any) -> None:
    """An error that names the traced one of arguments in which there is no derivative."""
    for name, x in arguments.items():
        if is_traced(x):
            raise NotDifferentiable(
                f"{user_line()}: {who} got traced {name}, in which its derivative is not known "
                "here. Pass a constant, for example ft.stop_gradient(x)."
            )


def filled(y: Any, xs: Sequence, outside: Any, fill: Any) -> AnyArray:
    """``y`` with ``fill`` for points that lie ``outside``; their coordinates are ``xs``.

    A value that is NaN has slopes that are NaN, as SciPy's own derivatives have.
    """
    rows = outside.reshape(outside.shape + (1,) * (y.ndim - outside.ndim))
    if is_traced(fill) or not np.any(np.isnan(fill)):
        return np.where(rows, fill, y)
    total: Any = sum(xs[1:], xs[0])
    moving = total.reshape(rows.shape) + y
    return np.where(rows, np.where(np.isnan(fill), np.nan * moving, fill), y)


def finite_or_nan(y: Any, ok: Any = True) -> AnyArray:
    """Values that SciPy takes only if all are finite, and ``ok``; else, where a run alone tells,
    all NaN."""
    if known(y) is not None and known(ok) is not None:
        return y
    return np.where(np.all(np.isfinite(y)) & ok, y, np.nan * y)


class OfScipy:
    """A spline of traced values; without them it has all that SciPy's, ``_plain``, has."""

    _plain: Any
    _traced: Any

    def __getattr__(self, name: str) -> Any:
        kind = type(self).__name__
        if name.startswith("_"):
            raise AttributeError(f"{kind!r} object has no attribute {name!r}")
        theirs = getattr(self._plain, name)
        if self._traced is not None:
            raise UnsupportedError(
                f"{user_line()}: {name} of a {kind} of traced values is not known here; values, "
                "derivatives and integrals are."
            )
        return theirs


class Basis:
    """The B-splines of degree ``k`` on the knots ``t``.

    In each interval k + 1 of them are not 0. They are polynomials in the distance from its left
    end, whose coefficients follow from the knots alone (de Boor's recurrence; C. de Boor, A
    Practical Guide to Splines, chapter X). So no derivative goes through the recurrence.
    """

    def __init__(self, t: np.ndarray, k: int):
        self.t, self.k = np.asarray(t, float), k
        n = len(self.t) - k - 1
        self.ends = self.t[k], self.t[n]
        # of the intervals that are not empty: the first B-spline that is not 0, and the left end;
        # as in SciPy, steps (k = 0) have an empty one at the end
        self.first = np.flatnonzero((self.t[k:n] < self.t[k + 1 : n + 1]) | (k == 0))
        self.starts = self.t[self.first + k]
        self.powers = _polynomials(self.t, k, self.first + k)

    def at(self, x: Any, nu: int = 0) -> tuple[Any, Any]:
        """For each point, which is the first of the k + 1 functions, and the values of all."""
        where = np.searchsorted(self.starts, x, side="right") - 1
        where = np.clip(where, 0, len(self.starts) - 1)
        d = (x - take(self.starts, where))[..., None]
        rows = _derivative(self.powers, nu)
        y = take(rows[0], where, axis=0) if len(rows) else np.zeros((*np.shape(x), self.k + 1))
        for row in rows[1:]:
            y = y * d + take(row, where, axis=0)
        return take(self.first, where), y


def _polynomials(t: np.ndarray, k: int, at: np.ndarray) -> np.ndarray:
    """Coefficients, of the highest power first: of powers by intervals by functions."""
    rising = np.zeros((k + 1, len(at), k + 1))  # the lowest power first
    rising[0, :, 0] = 1.0
    for degree in range(1, k + 1):
        before, rising = rising, np.zeros_like(rising)
        for j in range(degree):
            low, high = t[at + j + 1 - degree], t[at + j + 1]
            part = before[:, :, j] / (high - low)
            here = t[at]
            # (high - x) and (x - low), with x = here + d
            rising[:, :, j] += (high - here) * part
            rising[1:, :, j] -= part[:-1]
            rising[:, :, j + 1] += (here - low) * part
            rising[1:, :, j + 1] += part[:-1]
    return rising[::-1]


def _derivative(powers: np.ndarray, nu: int) -> np.ndarray:
    for _ in range(nu):
        factors = np.arange(len(powers) - 1, 0, -1.0)
        powers = powers[:-1] * factors[:, None, None]
    return powers


def combined(bases: Sequence[Basis], c: Any, xs: Sequence[Any], nus: Sequence[int]) -> AnyArray:
    """The sum of coefficients times products of B-splines, at points of one shape.

    The first axes of ``c`` count the functions of the ``bases``; the others come last.
    """
    count = len(bases)
    sizes, rest = c.shape[:count], c.shape[count:]
    shape = np.shape(xs[0])
    width, index = 1, np.zeros((*shape, 1), np.intp)
    weights: Any = np.ones((*shape, 1))
    for basis, size, x, nu in zip(bases, sizes, xs, nus, strict=True):
        first, values = basis.at(x, nu)
        index = index[..., None] * size + (first[..., None] + np.arange(basis.k + 1))[..., None, :]
        weights = weights[..., None] * values[..., None, :]
        width *= basis.k + 1
        index, weights = [v.reshape((*shape, width)) for v in (index, weights)]
    terms = take(c.reshape((-1, *rest)), index, axis=0)
    return (terms * weights.reshape(weights.shape + (1,) * len(rest))).sum(axis=len(shape))


def column(x: Any, ndim: int) -> AnyArray:
    """A vector along the first of ``ndim`` axes."""
    return x.reshape((-1,) + (1,) * (ndim - 1))


def whole_line(extrapolate: Any) -> bool:
    """Whether an integral goes on beyond the ends; of a periodic function it is not known here."""
    if extrapolate == "periodic":
        raise UnsupportedError(
            f"{user_line()}: integrate got extrapolate='periodic' beside a traced value; "
            "integrate within one period."
        )
    return extrapolate


def axis_back(y: Any, points: int, axis: int) -> AnyArray:
    """``y`` with the axes of the points, which are the first, where the axis of the values was."""
    if axis == 0:
        return y
    axes = list(range(y.ndim))
    k = points + axis
    return y.transpose(axes[points:k] + axes[:points] + axes[k:])
