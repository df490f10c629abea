"""Rows of functions of matrices, Sylvester's equation, and systems with constant diagonals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.array import Aval
from functrans._core.bind import AnyArray, bind, sum_to
from functrans._ops.calls import stop
from functrans._ops.contractions import convolve
from functrans._ops.declare import General, primitive, where
from functrans._ops.elementwise import isfinite
from functrans._ops.linalg import floating, mT, same
from functrans._ops.reductions import sum as sum_of
from functrans._ops.structure import by_columns, concatenate, minus, stacked

# ---- Rows of functions of matrices, and of Sylvester's equation
#
# For a function f of matrices, f([[A, E], [0, A]]) = [[f(A), L], [0, f(A)]] with the derivative L
# of f at A along E (R. Mathias, "A chain rule for matrix functions and applications", 1996): the
# rules are the rows themselves, at matrices of twice the size, and so is any order. SciPy computes
# values.


def block(a: Any, e: Any) -> AnyArray:
    """[[a, e], [0, a]]."""
    top = concatenate(a, e, axis=len(a.shape) - 1)
    bottom = concatenate(0 * e, a, axis=len(a.shape) - 1)
    return concatenate(top, bottom, axis=len(a.shape) - 2)


def _along(row: Callable, a: Any, e: Any, params: dict[str, Any]) -> AnyArray:
    n = a.shape[-1]
    if not n:
        return bind(row(), block(a, e), **params)[..., :n, n:]
    # linear in e: of the size of the block it has no part, whose rounding it would suffer from
    size = stop(abs(e).max((-2, -1), keepdims=True))
    size = where((size > 0) & isfinite(size), size, 1)
    return bind(row(), block(a, e / size), **params)[..., :n, n:] * size


def _wide(x: Any, dtype: np.dtype) -> AnyArray:
    """In double precision, in which all of SciPy's algorithms have been tuned."""
    return np.asarray(x, complex if dtype.kind == "c" else float)


def _by_scipy(name: str) -> Callable:
    """SciPy's function of each matrix of a stack, which must not leave the real numbers."""

    def impl(x: Any, **params: Any) -> np.ndarray:
        from scipy import linalg  # lazy: slow to import

        dtype = floating(np.asarray(x).dtype)
        x = _wide(x, dtype)
        y = np.empty(x.shape, dtype)
        for i in np.ndindex(x.shape[:-2]):
            value = getattr(linalg, name)(x[i], **params) if x.size else x[i]
            y[i] = value if x.dtype.kind == "c" else _real(name, value)
        return y

    return impl


# Of a real result that was computed in complex numbers, how much of it may be imaginary.
ROUNDING = 1e4


def _real(name: str, y: Any) -> AnyArray:
    if y.dtype.kind != "c":
        return y
    size = np.abs(y).max(initial=0.0)
    if np.abs(y.imag).max(initial=0.0) > ROUNDING * np.finfo(y.dtype).eps * size:
        raise ValueError(f"{name}: that of this real matrix is complex, which its type does not "
                         "tell beforehand; pass a.astype(complex)")
    return y.real


def _function(name: str, row: Callable) -> General:
    return primitive(
        name, _by_scipy(name.removeprefix("linalg.")),
        jvp=lambda ts, y, xs, **params: _along(row, xs[0], ts[0], params),
        vjp=lambda ct, y, xs, wanted, **params: [_along(row, mT(xs[0]), ct, params)],
        batch=stacked(row), abstract=same, saves="x",
        doc="Mathias 1996, theorem 2.1.",
    )


expm = _function("linalg.expm", lambda: expm)
logm = _function("linalg.logm", lambda: logm)
sqrtm = _function("linalg.sqrtm", lambda: sqrtm)
fractional_matrix_power = _function(
    "linalg.fractional_matrix_power", lambda: fractional_matrix_power
)

# ---- Sylvester's equation a x + x b = q


def _sylvester(a, b, q):
    from scipy import linalg  # lazy: slow to import

    dtype = floating(a.dtype, b.dtype, q.dtype)
    lead = np.broadcast_shapes(*[x.shape[:-2] for x in (a, b, q)])
    a, b, q = [
        np.broadcast_to(_wide(x, dtype), (*lead, *x.shape[-2:])) for x in (a, b, q)
    ]
    y = np.empty(q.shape, dtype)
    for i in np.ndindex(lead):
        y[i] = linalg.solve_sylvester(a[i], b[i], q[i])
    return y


def _sylvester_jvp(ts, y, xs):
    ta, tb, tq = ts
    moved = 0 * y if tq is None else tq
    if ta is not None:
        moved = moved - ta @ y
    if tb is not None:
        moved = moved - y @ tb
    return sylvester(xs[0], xs[1], moved)


def _sylvester_vjp(ct, y, xs, wanted):
    z = sylvester(mT(xs[0]), mT(xs[1]), ct)
    moved = [-(z @ mT(y)), -(mT(y) @ z), z]
    return [sum_to(m, x.shape, x.dtype) if w else None
            for m, x, w in zip(moved, xs, wanted, strict=True)]


def _sylvester_abstract(a, b, q):
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2], q.shape[:-2])
    return Aval((*lead, *q.shape[-2:]), floating(a.dtype, b.dtype, q.dtype))


sylvester = primitive(
    "linalg.sylvester", _sylvester, jvp=_sylvester_jvp, vjp=_sylvester_vjp,
    batch=stacked(lambda: sylvester), abstract=_sylvester_abstract,
)


# ---- The solution of a system with constant diagonals, in a time that grows as its square


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
        return solve.loop(size, xs, batched)
    return by_columns(lambda b: bind(solve, diagonals, b), b, size)


# row: of the diagonals from the highest to the lowest; the dense matrix takes time n^3
solve = primitive(
    "toeplitz.solve", _solve, jvp=_solve_jvp, vjp=_solve_vjp, batch=_solve_batch, saves="xy",
    abstract=lambda diagonals, b: Aval(b.shape, floating(diagonals.dtype, b.dtype)),
)
