"""The eigenvalue decomposition of general matrices, and the roots of a polynomial."""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans._core.array import Aval
from functrans._core.bind import AnyArray, Tracer, cast, known_value
from functrans._ops import limits
from functrans._ops.calls import stop
from functrans._ops.declare import primitive
from functrans._ops.elementwise import absolute, absolute_complex, ratio, where
from functrans._ops.limits import ONCE, number, refuse, top, visible
from functrans._ops.linalg import conj, floating, inv, mT
from functrans._ops.structure import stacked

# ---- The eigenvalue decomposition of general matrices
#
# Source: M. Giles, "Collected matrix derivative results for forward and reverse mode" (2008),
# section 3.1. Results are complex. Eigenvectors have norm 1 and a largest entry that is real, as
# LAPACK gives them, which fixes their derivative.


def _gaps(w):
    """Differences ``w_j - w_i``, 0 where they are but rounding; where that is, for i != j."""
    n = w.shape[-1]
    gap = w.reshape((*w.shape[:-1], 1, n)) - w.reshape((*w.shape, 1))
    size = absolute_complex(w).max(axis=-1, initial=0.0).reshape((*w.shape[:-1], 1, 1))
    near = absolute_complex(gap) <= size * (8 * n * float(np.finfo(w.dtype).eps))
    return where(near, 0, gap), near & ~np.eye(n, dtype=bool)


def _blur(w, y, power, share):
    """Where rounding takes too many digits from a division by a gap; see ``limits.within``.

    ``y`` are the left eigenvectors as rows: their sizes are the conditions of the eigenvalues.
    With powers of a condition c that were measured near defective matrices, c^2 eps is lost to a
    gap (``share`` 1), c^(3/2) sqrt(eps) to its square (3/4), c eps in an eigenvalue's slope (1/2).
    """
    w, y = stop(w), stop(y)
    n = w.shape[-1]
    gap = absolute_complex(w.reshape((*w.shape[:-1], 1, n)) - w.reshape((*w.shape, 1)))
    size = absolute_complex(w).max(axis=-1, initial=0.0).reshape((*w.shape[:-1], 1, 1))
    c = (y.real**2 + y.imag**2).sum(axis=-1) ** (share / 2)
    lost = c.reshape((*c.shape, 1)) * c.reshape((*c.shape[:-1], 1, n)) * size
    return limits.within(gap, lost, power) & ~np.eye(n, dtype=bool)


def _inverse(v, w):
    """The inverse of the eigenvectors; where they are dependent an error, or NaN under vmap."""
    y = inv(v)
    eps = float(np.finfo(v.dtype).eps)
    defective = top(y) * (v.shape[-1] * eps) > float(np.sqrt(eps))
    refuse(defective, lambda at: (
        f"eig: the matrix{' ' + str(at[:-2]) if at[:-2] else ''} has eigenvectors that depend "
        "linearly on each other up to rounding (it is defective), so its eigenvalues have no "
        "derivative. Use det, trace or matrix_power for symmetric functions of them."
    ))
    known = not isinstance(defective, Tracer) or defective.concrete_value() is not None
    return y if known else where(defective, np.nan, y)


def _gauge(v):
    """The position of the largest entry of each column, as ones among zeros, and that entry."""
    n = v.shape[-1]
    if not n:
        return v.real, v.real.sum(axis=-2, keepdims=True)
    largest = np.argmax(absolute_complex(v), axis=-2)
    at = largest.reshape((*v.shape[:-2], 1, n)) == np.arange(n).reshape(n, 1)
    at = at.astype(v.real.dtype)
    return at, (v.real * at).sum(axis=-2, keepdims=True)


def _eig_jvp(ts, y, xs):
    w, v = y
    n = w.shape[-1]
    gap, near = _gaps(w)
    left = _inverse(v, w)
    once = _blur(w, left, limits.ONCE, 1) & ~near
    b = limits.first_order(left @ (ts[0] @ v), near | once, w, v)
    slopes = np.diagonal(b, 0, -2, -1)
    mixed, apart = visible(b, top(b)), _apart(slopes, top(b))
    turned = where(near & mixed | once & (b != 0), np.nan, ratio(b, gap))
    dv = v @ limits.first_order(turned, _blur(w, left, limits.TWICE, 0.75), w, v)
    # which of the coinciding ones moves how is open as soon as they do not all move alike
    pairs = near & (mixed | apart) | _blur(w, left, limits.ONCE, 0.5) & apart
    open_ = pairs.any(axis=-1) | pairs.any(axis=-2)
    open_ = open_ | (near & open_.reshape((*open_.shape[:-1], 1, n))).any(axis=-1)
    dw = where(open_, np.nan, slopes)
    at, entry = _gauge(v)
    along = (conj(v) * dv).real.sum(axis=-2, keepdims=True)
    turned = (dv.imag * at).sum(axis=-2, keepdims=True) / entry
    return dw, dv - v * (along + 1j * turned)


def _eig_vjp(ct, y, xs, wanted):
    (cw, cv), (w, v) = ct, y
    n, seen = w.shape[-1], None
    if cv is not None:
        at, entry = _gauge(v)
        along = (cv * v).sum(axis=-2, keepdims=True)
        cv = cv - along.real * conj(v) - 1j * (along.imag / entry) * at
        seen = mT(v) @ cv
    gap, near = _gaps(w)
    left = _inverse(v, w)
    once = _blur(w, left, limits.ONCE, 1) & ~near
    unknown = near & _undetermined(cw, seen, cv)
    lost = near | once
    if cw is not None:
        unknown = unknown | _told_apart(cw, w, left, gap)
    if seen is None:
        inner = np.zeros((n, n), w.dtype)
    else:
        inner = ratio(seen, gap)
        unknown = unknown | once & (seen != 0)
        lost = lost | _blur(w, left, limits.TWICE, 0.75)
        if limits.is_differentiated(w):
            _refuse(lost & ~near & (seen != 0), w, TWICE)
    _refuse(unknown, w, EACH)
    if cw is not None:
        inner = inner + cw.reshape((*cw.shape, 1)) * np.eye(n, dtype=w.real.dtype)
    inner = limits.first_order(where(unknown, np.nan, inner), lost, w, v)
    g = mT(left) @ inner @ mT(v)
    return [cast(g, xs[0].dtype)]


def _undetermined(cw, seen, cv):
    """Where eigenvalues that coincide leave the derivative open."""
    flags = False if seen is None else visible(seen, top(cv))
    if cw is None:
        return flags
    row = cw.reshape((*cw.shape[:-1], 1, cw.shape[-1]))
    return flags | _apart(cw, top(row))


def _apart(x, most):
    """Where two of the numbers ``x``, one an eigenvalue, differ by more than rounding."""
    row = x.reshape((*x.shape[:-1], 1, x.shape[-1]))
    return visible(row - mT(row), most)


def _told_apart(cw, w, left, gap):
    """Where the output tells eigenvalues apart whose slopes are known to too few digits."""
    n = cw.shape[-1]
    differ = cw.reshape((*cw.shape[:-1], 1, n)) - cw.reshape((*cw.shape, 1))
    most = top(stop(cw.reshape((*cw.shape[:-1], 1, n))))
    share = ratio(absolute_complex(stop(differ)), most)
    c = (left.real**2 + left.imag**2).sum(axis=-1) ** 0.25
    c = stop(c.reshape((*c.shape, 1)) * c.reshape((*c.shape[:-1], 1, n)))
    size = absolute_complex(stop(w)).max(axis=-1, initial=0.0).reshape((*w.shape[:-1], 1, 1))
    apart = where(np.eye(n, dtype=bool), 1.0, absolute_complex(stop(gap)))
    return (gap != 0) & limits.within(apart, share * c * size, limits.ONCE)


EACH = (
    "the output depends on them one by one, or on their eigenvectors, which have no derivative "
    "there"
)
TWICE = f"a second derivative through their eigenvectors {limits.SQUARED}"
CURE = (
    "Use symmetric functions of the eigenvalues, or a matrix function that has its own rule "
    "(inv, solve, det, matrix_power)."
)


def _refuse(unknown, w, why):
    limits.refuse_coinciding("eig", "eigenvalues", w, unknown, f"{why}. {CURE}")


def _eig(x):
    w, v = np.linalg.eig(x)
    dtype = np.result_type(w.dtype, np.complex64)
    return w.astype(dtype, copy=False), v.astype(dtype, copy=False)


def _eig_abstract(x):
    dtype = np.result_type(floating(x.dtype), np.complex64)
    return Aval(x.shape[:-1], dtype), Aval(x.shape, dtype)


eig = primitive(
    "eig", _eig, jvp=_eig_jvp, vjp=_eig_vjp, outputs=2, saves="y",
    batch=stacked(lambda: eig), abstract=_eig_abstract, kinks="repeated eigenvalues",
    unique=False,
    doc="""Giles 2008, section 3.1. Complex, also where all eigenvalues are real.

    At repeated eigenvalues the gradients of symmetric functions of them are exact as long as there
    are as many eigenvectors; all else raises NotDifferentiable, or gives NaN where the values are
    not known (under vmap), as do second derivatives there. In forward mode eigenvalues that
    coincide have slopes where all of them move alike, NaN else: which of them moves how is
    LAPACK's choice.
    """,
)


# ---- The roots of a polynomial
#
# A simple root r of p moves by -dp(r) / p'(r) when the coefficients move by dp.


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
    return v, slope, _repeat(stop(p), stop(r), stop(v), stop(slope))


def _repeat(p, r, v, slope):
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
    known = known_value(p)
    if known is None or isinstance(known, Tracer):
        return 0
    indices = np.flatnonzero(known)
    return int(indices[0]) if indices.size else len(known)
