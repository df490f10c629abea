"""The roots of a polynomial.

A simple root r of p moves by -dp(r) / p'(r) when the coefficients move by dp.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans._core.aval import Aval
from functrans._core.bind import AnyArray, Tracer, cast
from functrans._ops.calls import stop
from functrans._ops.declare import primitive
from functrans._ops.elementwise import absolute, absolute_complex, ratio, where
from functrans._ops.limits import ONCE, number, refuse


def _roots(p, lead):
    r = np.roots(p)
    if len(r) != len(p) - 1 - lead:
        raise ValueError(
            f"roots: the polynomial has degree {len(r)} here, not {len(p) - 1 - lead}: where "
            "values are staged or batched, no coefficient in front may be 0. Cut them off."
        )
    return r.astype(np.result_type(p.dtype, np.complex64))


def powers(x: Any, n: int) -> AnyArray:
    """The powers of ``x`` from n - 1 down to 0, along a new last axis."""
    powers = [np.ones_like(x)]
    for _ in range(n - 1):
        powers.append(powers[-1] * x)
    return np.stack(powers[::-1], -1)


def _slopes(p, r):
    """Powers of the roots, p' there, and which roots equal another up to rounding."""
    n = len(p)
    v = powers(r, n)
    slope = v[:, 1:] @ (p[:-1] * np.arange(n - 1, 0, -1).astype(p.real.dtype))
    return v, slope, _repeated(stop(p), stop(r), stop(v), stop(slope))


def _repeated(p, r, v, slope):
    size = absolute_complex(p) if p.dtype.kind == "c" else absolute(p)
    # p' near a repeated root has few digits: about 6 are left in float64 where this says no
    rounding = absolute_complex(v) @ size * float(np.finfo(r.dtype).eps) ** ONCE
    apart = absolute_complex(r.reshape(-1, 1) - r)
    nearest = where(np.eye(len(r), dtype=bool), np.inf, apart).min(axis=1)
    return nearest * absolute_complex(slope) <= rounding


def _roots_jvp(ts, y, xs, lead):
    v, slope, repeated = _slopes(xs[0], y)
    moved = v @ ts[0]
    return where(repeated & (moved != 0), np.nan, -ratio(moved, slope))


def _roots_vjp(ct, y, xs, wanted, lead):
    v, slope, repeated = _slopes(xs[0], y)
    unknown = repeated & (ct != 0)
    refuse(unknown, lambda at: (
        f"roots: root {at[0]}, {number(y, at):.6g}, is a repeated one up to rounding, or so nearly "
        "that no digits of a derivative are left. What depends on all roots alike (their sum, "
        "their product) is a function of the coefficients: write it so."
    ))
    c = where(unknown, np.nan, ratio(ct, slope))
    return [cast(-(c @ v), xs[0].dtype)]


# ``lead``: how many coefficients in front are 0. Complex, also where all roots are real.
roots = primitive(
    "roots", _roots, jvp=_roots_jvp, vjp=_roots_vjp, kinks="repeated roots",
    abstract=lambda p, lead: Aval(
        (p.shape[0] - 1 - lead,), np.result_type(p.dtype, np.complex64)
    ),
)


def leading_zeros(p: Any) -> int:
    """How many leading coefficients are 0; none if that is not known."""
    known = p.concrete() if isinstance(p, Tracer) else p
    if known is None or isinstance(known, Tracer):
        return 0
    indices = np.flatnonzero(known)
    return int(indices[0]) if indices.size else len(known)
