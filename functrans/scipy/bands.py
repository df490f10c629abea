"""Systems whose entries are near a diagonal, solved in a time that grows as their number."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import linalg as sl

from functrans._core.bind import AnyArray, bind
from functrans._ops import sparse
from functrans._ops.sparse import Pattern
from functrans.numpy import linear_algebra
from functrans.numpy.indexing import take
from functrans.numpy.structure import as_floats
from functrans.scipy.public import is_traced

# Equations that are solved as a dense matrix, which compiled code does by itself.
DENSE = 64
solve_dense: Any = linear_algebra.solve


@functools.lru_cache(64)
def band(n: int, below: int, above: int) -> tuple[Pattern, np.ndarray]:
    """The places of the diagonals of a matrix, and where their entries are in LAPACK's form."""
    row, j = np.indices((below + above + 1, n))
    i = row - above + j
    inside = (i >= 0) & (i < n)
    return Pattern(i[inside], j[inside], (n, n)), np.flatnonzero(inside)


def by_bands(places: Pattern, data: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The solution of a system whose entries are on some diagonals, by LAPACK's band solver."""
    offsets = places.rows - places.cols
    below, above = max(offsets.max(), 0), max(-offsets.min(), 0)
    ab = np.zeros((below + above + 1, places.shape[0]), data.dtype)
    ab[above + offsets, places.cols] = data
    return sl.solve_banded((below, above), ab, b, check_finite=False)


def dense(places: Pattern, data: Any) -> AnyArray:
    """The matrix with entries in different places."""
    n, m = places.shape
    which = np.full((n, m), len(places.rows))
    which[places.rows, places.cols] = np.arange(len(places.rows))
    return take(np.concatenate([data, np.zeros(1, data.dtype)]), which)


def solve(places: Pattern, data: Any, b: Any, solver: Callable = by_bands) -> AnyArray:
    """The solution of a system with entries in different places."""
    columns = b.reshape((b.shape[0], -1)) if b.ndim > 2 else b
    if places.shape[0] <= DENSE:
        x = solve_dense(dense(places, data), columns)
    else:
        columns = as_floats(columns)
        x = bind(sparse.solve, data, columns, places=places, solver=solver)
    return x.reshape(b.shape)


def solve_well(places: Pattern, data: Any, b: Any, solver: Callable = by_bands) -> AnyArray:
    """The same of a well-conditioned matrix: a small constant one is inverted beforehand."""
    n = places.shape[0]
    if n <= DENSE and not is_traced(data):
        return np.tensordot(solver(places, data, np.eye(n)), b, 1)
    return solve(places, data, b, solver)
