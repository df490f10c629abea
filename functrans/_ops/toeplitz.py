"""The solution of a system with constant diagonals, in a time that grows as its square."""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans._core.aval import Aval
from functrans._core.bind import bind
from functrans._ops.contractions import convolve
from functrans._ops.declare import primitive
from functrans._ops.linalg import floating
from functrans._ops.reductions import sum as sum_of
from functrans._ops.structure import by_columns, minus


def _solve(diagonals: np.ndarray, b: np.ndarray) -> np.ndarray:
    from scipy import linalg  # lazy: slow to import

    dtype = floating(diagonals.dtype, b.dtype)
    n = b.shape[0]
    if not b.size:
        return np.zeros(b.shape, dtype)
    double = np.complex128 if dtype.kind == "c" else np.float64
    within = dtype if dtype.char in "fdFD" else double  # SciPy warns of others
    diagonals, b = diagonals.astype(within, copy=False), b.astype(within, copy=False)
    column, row = diagonals[n - 1 :], diagonals[n - 1 :: -1]
    try:
        x = linalg.solve_toeplitz((column, row), b, check_finite=False)
    except np.linalg.LinAlgError:  # Levinson's recursion needs all principal minors
        x = np.linalg.solve(linalg.toeplitz(column, row), b)
    return x.astype(dtype, copy=False)


def _product(diagonals: Any, x: Any) -> Any:
    """The matrix times the columns of x."""
    if x.ndim == 1:
        return bind(convolve, diagonals, x, mode="valid")
    return bind(convolve, diagonals, x.T, mode="valid").T


def _sums_along(z: Any, x: Any) -> Any:
    """The sums of the diagonals of ``z @ x.T``, the highest first."""
    if x.ndim == 1:
        return bind(convolve, z, x[::-1], mode="full")
    return sum_of(bind(convolve, z.T, x.T[:, ::-1], mode="full"), axis=(0,))


def _solve_jvp(ts, x, xs):
    (td, tb), (diagonals, _) = ts, xs
    return bind(solve, diagonals, minus(tb, None if td is None else _product(td, x)))


def _solve_vjp(ct, x, xs, wanted):
    z = bind(solve, xs[0][::-1], ct)
    return [-_sums_along(z, x) if wanted[0] else None, z if wanted[1] else None]


def _solve_batch(size, xs, batched):
    diagonals, b = xs
    if batched[0]:
        return solve._loop(size, xs, batched)
    return by_columns(lambda b: bind(solve, diagonals, b), b, size)


# row: of the diagonals from the highest to the lowest; the dense matrix takes time n^3
solve = primitive(
    "toeplitz.solve", _solve, jvp=_solve_jvp, vjp=_solve_vjp, batch=_solve_batch, saves="xy",
    abstract=lambda diagonals, b: Aval(b.shape, floating(diagonals.dtype, b.dtype)),
)
