"""NumPy's linear algebra in kernels, as kernels: elimination, by the size of values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numba.core import types

from functrans.numba.arrays import write
from functrans.numba.functions import chosen_for, new, stands_for


@njit
def require_square(a):
    if a.shape[0] != a.shape[1]:
        raise np.linalg.LinAlgError("Last 2 dimensions of the array must be square.")


@njit
def require_finite(a):
    for v in a.flat:
        if not np.isfinite(v):
            raise np.linalg.LinAlgError("Array must not contain infs or NaNs.")


@njit
def copied(a):
    out = new(a.shape)
    write(out, a)
    return out


@njit
def swap(a, i, j):
    """Exchange rows."""
    if i != j:
        for k in range(a.shape[1]):
            a[i, k], a[j, k] = a[j, k], a[i, k]


@njit
def subtract(a, i, j, factor, start):
    """Subtract a multiple of row j from row i, from a column on."""
    for k in range(start, a.shape[1]):
        a[i, k] -= factor * a[j, k]


@njit
def greatest(a, start, stop):
    """Where the greatest entry is, in the columns given and as many rows from ``start`` on."""
    p, q = start, start
    for i in range(start, a.shape[0]):
        for j in range(start, stop):
            if abs(a[i, j]) > abs(a[p, q]):
                p, q = i, j
    return p, q


@njit
def solved(a, b):
    """The solution for several right hand sides, the columns of ``b``, which is written into."""
    require_finite(a)
    require_finite(b)
    n, m = a.shape[0], copied(a)
    for k in range(n):
        p, _ = greatest(m, k, k + 1)
        if m[p, k] == 0:
            raise np.linalg.LinAlgError("Matrix is singular to machine precision.")
        swap(m, k, p)
        swap(b, k, p)
        for i in range(k + 1, n):
            factor = m[i, k] / m[k, k]
            subtract(m, i, k, factor, k + 1)
            subtract(b, i, k, factor, 0)
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            subtract(b, i, k, m[i, k], 0)
        for j in range(b.shape[1]):
            b[i, j] = b[i, j] / m[i, i]
    return b


@chosen_for(np.linalg.solve)
def solve(a, b):
    def several(a, b):
        require_square(a)
        if a.shape[0] != b.shape[0]:
            raise np.linalg.LinAlgError("Incompatible sizes, system cannot be solved.")
        return solved(a, copied(b))

    def one(a, b):
        return np.linalg.solve(a, np.expand_dims(b, 1))[:, 0].copy()

    return one if b.ndim == 1 else several


@stands_for(np.linalg.inv)
def inv(a):
    require_square(a)
    return solved(a, copied(np.eye(a.shape[0])))


@njit
def eliminated(a):
    """The pivots of elimination with rows and columns exchanged, and the sign of the exchanges.

    It stops where nothing but zeros is left; how many pivots there are is returned too.
    """
    require_square(a)
    require_finite(a)
    n, m, sign = a.shape[0], copied(a), 1.0
    for k in range(n):
        p, q = greatest(m, k, n)
        if m[p, q] == 0:
            return m, sign, k
        if (p != k) != (q != k):
            sign = -sign
        swap(m, k, p)
        swap(m.T, k, q)
        for i in range(k + 1, n):
            subtract(m, i, k, m[i, k] / m[k, k], k + 1)
    return m, sign, n


@njit
def without_division(a):
    """A determinant by Bird's algorithm, whose derivatives are right where elimination ends."""
    n, f = a.shape[0], copied(a)
    for _ in range(n - 1):
        below = 0.0
        for i in range(n - 1, -1, -1):
            diagonal = f[i, i]
            for j in range(i):
                f[i, j] = 0.0
            f[i, i] = -below
            below += diagonal
        f = f @ a
    return f[0, 0] if n % 2 == 1 else -f[0, 0]


@stands_for(np.linalg.det)
def det(a):
    m, sign, rank = eliminated(a)
    y = sign * 1.0
    for k in range(rank):
        y *= m[k, k]
    if rank < a.shape[0]:
        y *= without_division(m[rank:, rank:])
    return y


@stands_for(np.linalg.slogdet)
def slogdet(a):
    m, sign, rank = eliminated(a)
    y = 0.0
    if rank < a.shape[0]:  # of 0, whose slope is infinite
        y += np.log(without_division(m[rank:, rank:]))
        sign = 0.0
    for k in range(rank):
        if m[k, k] < 0:
            sign = -sign
        y += np.log(abs(m[k, k]))
    return sign, y


@stands_for(np.linalg.cholesky)
def cholesky(a):
    require_square(a)
    n, out = a.shape[0], new(a.shape)
    for j in range(n):
        for i in range(j, n):
            s = a[i, j] + 0.0
            for k in range(j):
                s -= out[i, k] * np.conj(out[j, k])
            if i > j:
                out[i, j] = s / out[j, j]
            elif np.real(s) > 0:
                out[i, i] = np.sqrt(s)
            else:
                raise np.linalg.LinAlgError("Matrix is not positive definite.")
    return out


@njit
def length(a):
    y = 0.0
    for v in a.flat:
        y = np.hypot(y, np.abs(v))
    return y


def norm_of_vector(x, ord: Any = None):
    if ord == np.inf:
        return np.max(np.abs(x))
    if ord == -np.inf:
        return np.min(np.abs(x))
    if ord == 2:
        return length(x)
    y = 0.0
    for v in x:
        if ord == 0:
            y += 1.0 if v != 0 else 0.0
        else:
            y += np.abs(v) ** ord
    return y if ord == 0 or ord == 1 else y ** (1 / ord)


def norm_of_matrix(x, ord: Any = None):
    if abs(ord) == np.inf:
        sums = np.sum(np.abs(x), 1)
    elif abs(ord) == 1:
        sums = np.sum(np.abs(x), 0)
    else:
        raise ValueError("norm: in a kernel that is differentiated, ord of a matrix is 1 or inf")
    return np.max(sums) if ord > 0 else np.min(sums)


@chosen_for(np.linalg.norm)
def norm(x, ord=None):
    if isinstance(ord, types.Number):
        return norm_of_vector if x.ndim == 1 else norm_of_matrix
    return (lambda x, ord=None: length(x)) if ord is None else None


@stands_for(np.linalg.matrix_power)
def matrix_power(a, n):
    require_square(a)
    y, square = copied(np.eye(a.shape[0])), copied(a)
    m = abs(n)
    while m > 0:
        if m & 1:
            y = y @ square
        m >>= 1
        if m > 0:
            square = square @ square
    return np.linalg.inv(y) if n < 0 else y
