"""Slopes at knots that interpolants take from their values, along the first axis.

They have kinks, where differences of values change sign or coincide; the derivative there is that
of the formula whose case SciPy takes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans._ops.declare import where

# Sums of changes of slopes, relative to the largest, below which Akima's weights are not used.
NEGLIGIBLE = 1e-9


def _columns(h: np.ndarray, ndim: int) -> np.ndarray:
    return h.reshape((-1,) + (1,) * (ndim - 1))


def monotone(x: np.ndarray, y: Any) -> Any:
    """Those of PCHIP (F. Fritsch and J. Butland, 1984): weighted harmonic means, 0 at extremes."""
    h = _columns(np.diff(x), y.ndim)
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


def _at_end(h0: Any, h1: Any, m0: Any, m1: Any) -> Any:
    """The slope of the parabola through three points, where that keeps the shape."""
    d = ((2 * h0 + h1) * m0 - h0 * m1) / (h0 + h1)
    turns = np.sign(d) != np.sign(m0)
    steep = (np.sign(m0) != np.sign(m1)) & (np.abs(d) > 3.0 * np.abs(m0))
    return where(turns, 0.0, where(steep, 3.0 * m0, d))


def akima(x: np.ndarray, y: Any, modified: bool) -> Any:
    """Akima's (1970): means of neighbouring slopes, weighted by how these change."""
    m = np.diff(y, axis=0) / _columns(np.diff(x), y.ndim)
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


__all__ = ["akima", "monotone"]
