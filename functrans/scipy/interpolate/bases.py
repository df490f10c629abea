"""B-splines as polynomials, and slopes at knots that interpolants take from their values."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._core.bind import AnyArray, known_value
from functrans._ops.declare import where
from functrans._ops.sparse import Pattern, directly
from functrans.errors import NotDifferentiable, UnsupportedError, user_line
from functrans.numpy.indexing import take
from functrans.scipy import bands
from functrans.scipy.public import is_traced

# ---- B-splines as polynomials: the basis functions of each interval between knots, and their sums

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
    if known_value(y) is not None and known_value(ok) is not None:
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


# ---- Slopes at knots that interpolants take from their values, along the first axis
#
# Those of PCHIP and of Akima have kinks, where differences of values change sign or coincide; the
# derivative there is that of the formula whose case SciPy takes.

# Sums of changes of slopes, relative to the largest, below which Akima's weights are not used.
NEGLIGIBLE = 1e-9


def cubics(x: Any, y: Any, d: Any) -> list:
    """Hermite's, of values and slopes: coefficients of each interval, the highest power first."""
    h = column(np.diff(x), y.ndim)
    m = np.diff(y, axis=0) / h
    t = (d[:-1] + d[1:] - 2 * m) / h
    return [t / h, (m - d[:-1]) / h - t, d[:-1], y[:-1]]


def monotone(x: Any, y: Any) -> AnyArray:
    """Those of PCHIP (F. Fritsch and J. Butland, 1984): weighted harmonic means, 0 at extremes."""
    h = column(np.diff(x), y.ndim)
    m = np.diff(y, axis=0) / h
    if y.shape[0] == 2:
        return np.concatenate([m, m])
    w1, w2 = 2 * h[1:] + h[:-1], h[1:] + 2 * h[:-1]
    flat = (np.sign(m[1:]) != np.sign(m[:-1])) | (m[1:] == 0) | (m[:-1] == 0)
    before, after = [where(flat, 1.0, v) for v in (m[:-1], m[1:])]
    inner = where(flat, 0.0, (w1 + w2) / (w1 / before + w2 / after))
    first = _at_end(h[0], h[1], m[0], m[1])
    last = _at_end(h[-1], h[-2], m[-1], m[-2])
    return np.concatenate([first[None], inner, last[None]])


def _at_end(h0: Any, h1: Any, m0: Any, m1: Any) -> AnyArray:
    """The slope of the parabola through three points, where that keeps the shape."""
    d = ((2 * h0 + h1) * m0 - h0 * m1) / (h0 + h1)
    turns = np.sign(d) != np.sign(m0)
    steep = (np.sign(m0) != np.sign(m1)) & (np.abs(d) > 3.0 * np.abs(m0))
    return where(turns, 0.0, where(steep, 3.0 * m0, d))


def akima(x: Any, y: Any, modified: bool) -> AnyArray:
    """Akima's (1970): means of neighbouring slopes, weighted by how these change."""
    m = np.diff(y, axis=0) / column(np.diff(x), y.ndim)
    if y.shape[0] == 2:
        return np.concatenate([m, m])
    left = 2 * m[0] - m[1]
    right = 2 * m[-1] - m[-2]
    ends = [2 * left - m[0], left], [right, 2 * right - m[-1]]
    m = np.concatenate([np.stack(ends[0]), m, np.stack(ends[1])])
    change = np.abs(np.diff(m, axis=0))
    f1, f2 = change[2:], change[:-2]
    if modified:
        size = np.abs(m[1:] + m[:-1])
        f1, f2 = f1 + 0.5 * size[2:], f2 + 0.5 * size[:-2]
    both = f1 + f2
    known = both > NEGLIGIBLE * np.max(both)
    weighted = m[1:-2] + (f2 / where(known, both, 1.0)) * (m[2:-1] - m[1:-2])
    return where(known, weighted, 0.5 * (m[3:] + m[:-3]))


def smooth(x: Any, y: Any, ends: Any) -> AnyArray:
    """Those of the cubic spline, whose second derivative is continuous.

    ``ends`` are a pair of "not-a-knot" or (order of a derivative, its value), or "periodic"
    (C. de Boor, A Practical Guide to Splines, chapter IV).
    """
    h, n = np.diff(x), y.shape[0]
    m = np.diff(y, axis=0) / column(h, y.ndim)
    if isinstance(ends, str):
        return _periodic(h, m)
    free = [isinstance(end, str) for end in ends]
    if n == 2:
        ends = [(1, m[0]) if f else end for f, end in zip(free, ends, strict=True)]
    elif n == 3 and all(free):  # the parabola
        middle = (h[1] * m[0] + h[0] * m[1]) / (h[0] + h[1])
        return np.stack([2 * m[0] - middle, middle, 2 * m[1] - middle])
    first, last = _row(ends[0], h, m, 1), _row(ends[1], h[::-1], m[::-1], -1)
    before, after = h[:-1], h[1:]
    data = [*first[1::-1], before, 2 * (before + after), after, *last[:2]]
    inner = 3 * (column(after, y.ndim) * m[:-1] + column(before, y.ndim) * m[1:])
    rhs = [np.broadcast_to(v, y.shape[1:]) for v in (first[2], last[2])]
    return bands.solve_well(_tridiagonal(n), np.concatenate([np.reshape(v, (-1,)) for v in data]),
                            np.concatenate([rhs[0][None], inner, rhs[1][None]]))


@functools.lru_cache(64)
def _tridiagonal(n: int) -> Pattern:
    """The entries of the first row, those above, on and below the diagonal, those of the last."""
    i = np.arange(1, n - 1)
    return Pattern(np.concatenate([[0, 0], i, i, i, [n - 1, n - 1]]),
                   np.concatenate([[1, 0], i + 1, i, i - 1, [n - 1, n - 2]]), (n, n))


@functools.lru_cache(64)
def _cyclic(n: int) -> Pattern:
    i = np.arange(n)
    return Pattern(np.tile(i, 3), np.concatenate([(i - 1) % n, i, (i + 1) % n]), (n, n))


def _row(end: Any, h: Any, m: Any, side: int) -> tuple[Any, Any, Any]:
    """The equation at an end: its factors of the slopes there and beside it, and its right side."""
    if isinstance(end, str):
        both = h[0] + h[1]
        return h[1], both, ((h[0] + 2 * both) * h[1] * m[0] + h[0] ** 2 * m[1]) / both
    order, value = end
    if order == 1:
        return 1.0, 0.0, value
    return 2 * h[0], h[0], 3 * h[0] * m[0] - side * 0.5 * h[0] ** 2 * value


def _periodic(h: Any, m: Any) -> AnyArray:
    n = len(m)
    before, after = np.roll(h, 1), h
    sides = [column(v, m.ndim) for v in (before, after)]
    rhs = sides[1] * np.roll(m, 1, axis=0) + sides[0] * m
    if n < 3:
        s = (rhs / (sides[0] + sides[1])).sum(axis=0) / n
        return np.stack([s] * (n + 1))
    data = np.concatenate([after, 2 * (before + after), before])
    s = bands.solve_well(_cyclic(n), data, 3 * rhs, directly)
    return np.concatenate([s, s[:1]])
