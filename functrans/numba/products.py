"""NumPy's functions in kernels that multiply arrays, and those of lines through points."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numba.core import types

from functrans.numba.arrays import values
from functrans.numba.functions import chosen_for, new, stands_for

# ---- products


@chosen_for(np.cross)
def cross(a, b):
    def one(a, b):
        if len(a) != 3 or len(b) != 3:
            raise ValueError("cross: in a kernel that is differentiated, vectors have 3 entries")
        out = new((3,))
        for k in range(3):
            i, j = (k + 1) % 3, (k + 2) % 3
            out[k] = a[i] * b[j] - a[j] * b[i]
        return out

    def rows(a, b):
        if len(a) != len(b):
            raise ValueError("cross: the arrays differ in length")
        out = new(a.shape)
        for i in range(len(a)):
            out[i] = np.cross(a[i], b[i])
        return out

    return {(1, 1): one, (2, 2): rows}.get((a.ndim, b.ndim))


@stands_for(np.vdot)
def vdot(a, b):
    if a.size != b.size:
        raise ValueError("vdot: the arrays differ in size")
    y = 0.0
    for k in range(a.size):
        y += np.conj(a.flat[k]) * b.flat[k]
    return y


@chosen_for(np.kron)
def kron(a, b):
    def vectors(a, b):
        n, m = len(a), len(b)
        out = new((n * m,))
        for i in range(n):
            out[i * m : (i + 1) * m] = a[i] * b
        return out

    def of_matrices(a, b):
        (n, m), (p, q) = a.shape, b.shape
        out = new((n * p, m * q))
        for i in range(n):
            for j in range(m):
                out[i * p : (i + 1) * p, j * q : (j + 1) * q] = a[i, j] * b
        return out

    return {(1, 1): vectors, (2, 2): of_matrices}.get((a.ndim, b.ndim))


@njit
def convolved(a, v, start, stop):
    """The entries of the full convolution from ``start`` on."""
    out = new((stop - start,))
    for k in range(start, stop):
        y = 0.0
        for i in range(max(0, k - len(v) + 1), min(len(a), k + 1)):
            y += a[i] * v[k - i]
        out[k - start] = y
    return out


@stands_for(np.convolve)
def convolve(a, v, mode="full"):
    n, m = len(a), len(v)
    if n == 0 or m == 0:
        raise ValueError("convolve: an argument is empty")
    if mode == "full":
        return convolved(a, v, 0, n + m - 1)
    if mode == "same":
        start = (min(n, m) - 1) // 2
        return convolved(a, v, start, start + max(n, m))
    if mode == "valid":
        return convolved(a, v, min(n, m) - 1, max(n, m))
    raise ValueError("convolve: mode must be 'full', 'same' or 'valid'")


@stands_for(np.correlate)
def correlate(a, v, mode: Any = "valid"):
    if mode == "same" and 0 < len(a) < len(v):  # as of both exchanged, in reverse
        start = len(a) // 2
        return convolved(a, np.conj(v[::-1]), start, start + len(v))
    return np.convolve(a, np.conj(v[::-1]), mode)


def trapezoid(y, x=None, dx=1.0):
    if x is not None and len(x) != len(y):
        raise ValueError("trapezoid: y and x must be of one length")
    s = 0.0
    for k in range(1, len(y)):
        width = dx if x is None else x[k] - x[k - 1]
        s += 0.5 * width * (y[k] + y[k - 1])
    return s


stands_for(*[getattr(np, name) for name in ("trapz", "trapezoid") if hasattr(np, name)])(trapezoid)


@njit
def on_line(x, xp, fp):
    """A line through points at ``x``: the segment to its right, at the last point to its left."""
    n = len(xp)
    if x < xp[0]:
        return fp[0]
    if x > xp[n - 1] or n == 1:
        return fp[n - 1]
    k = min(np.searchsorted(values(xp), values(x), "right"), n - 1)
    if xp[k] == xp[k - 1]:
        return fp[k]  # a jump at the end
    slope = (fp[k] - fp[k - 1]) / (xp[k] - xp[k - 1])
    start = k if x == xp[n - 1] else k - 1  # with the value of the last point itself
    if x == xp[start] and np.isinf(slope):
        return fp[start]
    return fp[start] + (x - xp[start]) * slope


@chosen_for(np.interp)
def interp(x, xp, fp):
    def one(x, xp, fp):
        if len(xp) != len(fp) or len(xp) == 0:
            raise ValueError("interp: fp and xp must be of one length, and not empty")
        return x if np.isnan(x) else on_line(x, xp, fp)

    def several(x, xp, fp):
        out = new(x.shape)
        for i in np.ndindex(x.shape):
            out[i] = np.interp(x[i], xp, fp)
        return out

    return several if isinstance(x, types.Array) else one


@stands_for(np.linspace)
def linspace(start, stop, num=50):
    out = new((num,))
    for k in range(num):
        out[k] = stop if k == num - 1 > 0 else start + k * ((stop - start) / max(num - 1, 1))
    return out
