"""Slopes at knots that interpolants take from their values, along the first axis.

Those of PCHIP and of Akima have kinks, where differences of values change sign or coincide; the
derivative there is that of the formula whose case SciPy takes.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from functrans._core.bind import AnyArray
from functrans._ops.declare import where
from functrans._ops.sparse import Pattern, directly
from functrans.scipy import bands
from functrans.scipy.interpolate.bases import column

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
