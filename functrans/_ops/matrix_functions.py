"""Rows of functions of matrices, and of Sylvester's equation.

For a function f of matrices, f([[A, E], [0, A]]) = [[f(A), L], [0, f(A)]] with the derivative L of
f at A along E (R. Mathias, "A chain rule for matrix functions and applications", 1996): the rules
are the rows themselves, at matrices of twice the size, and so is any order. SciPy computes values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.aval import Aval
from functrans._core.bind import AnyArray, bind, sum_to
from functrans._ops.calls import stop
from functrans._ops.declare import General, primitive, where
from functrans._ops.elementwise import isfinite
from functrans._ops.linalg import floating, mT, same
from functrans._ops.structure import concatenate, stacked


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
