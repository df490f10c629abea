"""The eigenvalue decomposition of general matrices.

Source: M. Giles, "Collected matrix derivative results for forward and reverse mode" (2008),
section 3.1. Results are complex. Eigenvectors have norm 1 and a largest entry that is real, as
LAPACK gives them, which fixes their derivative.
"""

from __future__ import annotations

import numpy as np

from functrans._core.aval import Aval
from functrans._core.bind import Tracer, cast
from functrans._ops import limits
from functrans._ops.calls import stop
from functrans._ops.declare import primitive
from functrans._ops.elementwise import absolute_complex, ratio, where
from functrans._ops.limits import refuse, top, visible
from functrans._ops.linalg import conj, floating, inv, mT
from functrans._ops.structure import stacked


def _gaps(w):
    """Differences ``w_j - w_i``, 0 where they are but rounding; where that is, for i != j."""
    n = w.shape[-1]
    gap = w.reshape((*w.shape[:-1], 1, n)) - w.reshape((*w.shape, 1))
    size = absolute_complex(w).max(axis=-1, initial=0.0).reshape((*w.shape[:-1], 1, 1))
    near = absolute_complex(gap) <= size * (8 * n * float(np.finfo(w.dtype).eps))
    return where(near, 0, gap), near & ~np.eye(n, dtype=bool)


def _blurred(w, y, power, share):
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
    known = not isinstance(defective, Tracer) or defective.concrete() is not None
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
    once = _blurred(w, left, limits.ONCE, 1) & ~near
    b = limits.first_order(left @ (ts[0] @ v), near | once, w, v)
    slopes = np.diagonal(b, 0, -2, -1)
    mixed, apart = visible(b, top(b)), _apart(slopes, top(b))
    turned = where(near & mixed | once & (b != 0), np.nan, ratio(b, gap))
    dv = v @ limits.first_order(turned, _blurred(w, left, limits.TWICE, 0.75), w, v)
    # which of the coinciding ones moves how is open as soon as they do not all move alike
    pairs = near & (mixed | apart) | _blurred(w, left, limits.ONCE, 0.5) & apart
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
    once = _blurred(w, left, limits.ONCE, 1) & ~near
    unknown = near & _undetermined(cw, seen, cv)
    lost = near | once
    if cw is not None:
        unknown = unknown | _told_apart(cw, w, left, gap)
    if seen is None:
        inner = np.zeros((n, n), w.dtype)
    else:
        inner = ratio(seen, gap)
        unknown = unknown | once & (seen != 0)
        lost = lost | _blurred(w, left, limits.TWICE, 0.75)
        if limits.followed(w):
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
