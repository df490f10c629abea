"""Bounds for functions of NumPy's, choices among entries, linear systems and eigenvalues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._core.bind import AnyArray
from functrans._core.primitive import Primitive
from functrans._ops import (
    along_axes,
    eigenvalues,
    exponents,
    linalg,
    lu,
    reductions,
)
from functrans._ops import (
    elementwise as ops,
)
from functrans._ops.reductions import root
from functrans._ops.special import declare, densities
from functrans.errors import ConcretizationError, user_line

# ---- How accurate NumPy's functions of float64 are, in units in the last place (ulp)
#
# By processor, NumPy computes them with loops of its own, with Intel's SVML (AVX-512) or with the C
# library. SVML's are within 4 ulp (numpy/numpy, pull request 19478, which brought them in), and so
# is what glibc lists for double on x86_64 (``sysdeps/x86_64/fpu/libm-test-ulps``: 1 or 2 for most,
# 4 for ``cbrt``). SciPy's of the same names are those of Cephes, which lists 1 or 2. Square roots
# round once, by IEEE 754; the two scales multiply by a rounded constant.

LIBRARY = 4.0

ULPS: dict[Primitive, float] = {
    ops.sqrt: 0.5, root: 0.5, ops.deg2rad: 2.0, ops.rad2deg: 2.0,
    densities.erf: 2 * LIBRARY,  # Cephes: 3.7e-16
    # a logarithm, and a product
    **dict.fromkeys([densities.xlogy, densities.xlog1py, densities.entr], LIBRARY + 1),
    # an exponential of a square, of which one up to 16 is rounded
    **dict.fromkeys([exponents.exp_of_minus_square, exponents.exp_of_minus_half_square],
                    LIBRARY + 12),
    # two functions of the library, and sums or a quotient of numbers of one sign
    **dict.fromkeys([densities.expit, densities.expit_of_minus, densities.log_expit,
                     densities.logit], 2 * LIBRARY + 2),
    ops.logistic: 2 * LIBRARY + 2,  # an exponential, once as it is and once beside 1; a quotient
    ops.binary_logistic: 2 * LIBRARY + 2,
    # a hyperbolic cosine or an exponential, squared, in two quotients
    ops.sech2: 2 * LIBRARY + 8,
    **dict.fromkeys([ops.slope_of_arcsin, ops.slope_of_arctan, ops.slope_of_arctanh], 4.0),
    **dict.fromkeys([
        ops.exp, ops.exp2, ops.expm1, ops.log, ops.log2, ops.log10, ops.log1p, ops.cbrt,
        ops.sin, ops.cos, ops.tan, ops.arcsin, ops.arccos, ops.arctan, ops.arctan2,
        ops.sinh, ops.cosh, ops.tanh, ops.arcsinh, ops.arccosh, ops.arctanh,
        ops.power, ops.float_power, ops.hypot,
        declare.cbrt, declare.exp2, declare.exp10, declare.expm1, declare.log1p,
    ], LIBRARY),
}


# ---- Bounds for what chooses among entries, or counts multiples: remainders, order, running
# extremes
#
# Where the choice is certain within the errors they pass on what is chosen; where it is not, the
# derivative jumps, and the bound is no smaller than the jump.

U = 2.0**-53


def _multiples(xs: Sequence, es: Sequence, whole: Any) -> tuple[Any, Any]:
    """The least and the largest number of times that the second operand goes into the first."""
    (a, b), (ea, eb) = xs, es
    ends = [(a + i * ea) / (b + j * eb) for i in (-1, 1) for j in (-1, 1)]
    low, high = np.min(ends, 0), np.max(ends, 0)
    room = np.where((ea == 0) & (eb == 0), 0.0, 8 * U * np.maximum(np.abs(low), np.abs(high)))
    return whole(low - room), whole(high + room)


def remainder(
    prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict
) -> tuple[Any, Any]:
    """``a - n b``, where ``n`` is a whole number; exact but for what may be added to it last."""
    (a, b), (ea, eb) = xs, es
    low, high = _multiples(xs, es, np.trunc if prim is ops.fmod else np.floor)
    certain = ea + np.maximum(np.abs(low), np.abs(high)) * eb
    jump = (1 if prim is ops.remainder else 2) * (np.abs(b) + eb)
    exact = (a * b >= 0) | (prim is ops.fmod)  # nothing is added
    moved = _jumping(es, b, np.where(low == high, certain, jump))
    return moved, np.where(exact, 0.0, U * np.abs(y))


def floor_divide(
    prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict
) -> tuple[Any, Any]:
    low, high = _multiples(xs, es, np.floor)
    far = np.abs(y) >= 2.0**52  # where a rounded quotient need not be the whole number below
    return _jumping(es, xs[1], np.maximum(high - y, y - low)), np.where(far, 4 * U * np.abs(y), 0.0)


def _jumping(es: Sequence, b: Any, moved: Any) -> AnyArray:
    """``moved``, but nothing where operands are exact, and no bound where the divisor may be 0."""
    moved = np.where((np.abs(b) <= es[1]) | np.isnan(moved), np.inf, moved)
    return np.where((es[0] == 0) & (es[1] == 0), 0.0, moved)


# ---- order


def rank(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> tuple[Any, Any]:
    """No entry of a rank moves by more than the entries do."""
    return np.max(es[0], -1, keepdims=True, initial=0.0) + 0 * y, 0.0


def tied_spread(
    prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict
) -> tuple[Any, Any]:
    """To each of the entries ``x`` that equal ``at`` goes a part of ``v``: all of it where no other
    can be equal, and else any part."""
    (v, x, at), (ev, ex, eat) = xs, es
    gap = np.abs(x[..., :, None] - at[..., None, :])
    may = ~(gap > ex[..., :, None] + eat[..., None, :])
    alone = np.count_nonzero(may, -2, keepdims=True) == 1
    exact = ~np.any(ex[..., :, None] + eat[..., None, :] > 0, -2, keepdims=True)
    size = (np.abs(v) + ev)[..., None, :]
    moved = np.where(alone | exact, may * ev[..., None, :], may * size)
    terms = np.count_nonzero(may, -1)
    passed_on = np.sum(moved, -1) * (1 + terms * 4 * U)
    return passed_on, (terms + 1) * U * np.sum(may * np.abs(v)[..., None, :], -1)


def argsort(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> tuple[Any, Any]:
    x, e = [np.take_along_axis(v, y, params["axis"]) for v in (xs[0], es[0])]
    x, e = [np.moveaxis(v, params["axis"], 0) for v in (x, e)]
    below = np.maximum.accumulate(x + e, 0)[:-1]
    _require_certain(prim, np.all(x[1:] - e[1:] > below))
    return 0.0, 0.0


def argextreme(
    prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict
) -> tuple[Any, Any]:
    axis = params["axis"]
    x, e = [np.moveaxis(v, axis, 0) for v in (xs[0], es[0])]
    x = x if prim is reductions.argmax else -x
    at = y[None] if np.ndim(y) == x.ndim - 1 else np.moveaxis(y, axis, 0)
    least = np.take_along_axis(x - e, at, 0)
    others = np.arange(len(x)).reshape(-1, *(1,) * (x.ndim - 1)) != at
    _require_certain(prim, np.all((x + e < least) | ~others))
    return 0.0, 0.0


def _require_certain(prim: Primitive, certain: Any) -> None:
    """Raise where errors may change an index, as where they may change a branch."""
    if not certain:
        raise ConcretizationError(
            f"{user_line()}: the result of `{prim.name}` could be another one within the rounding "
            "errors of its operand, so there is no bound for what it chooses"
        )


# ---- running extremes


def running_extreme(
    prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict
) -> tuple[Any, Any]:
    return np.maximum.accumulate(es[0], params["axis"]), 0.0


def running_share(
    prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict
) -> tuple[Any, Any]:
    """No doubt where an entry is above all that can have been, or below what has been; else the
    share may be anything to 1."""
    axis = params["axis"]
    x, e = [np.moveaxis(v, axis, 0) for v in (xs[0] if params["largest"] else -xs[0], es[0])]
    before = np.full_like(x, -np.inf)
    before[1:] = np.maximum.accumulate(x + e, 0)[:-1]
    surely = np.maximum.accumulate(x - e, 0)
    doubted = np.maximum.accumulate(e > 0, 0) & ~(x - e > before) & ~(x + e < surely)
    return np.moveaxis(doubted * 1.0, 0, axis), U * y


SELECTION_RULES = {
    ops.remainder: remainder, ops.fmod: remainder, ops.floor_divide: floor_divide,
    along_axes.ranked: rank, along_axes.tied_spread: tied_spread,
    reductions.cummax: running_extreme, reductions.cummin: running_extreme,
    reductions.running_share: running_share, along_axes.argsort: argsort,
    reductions.argmax: argextreme, reductions.argmin: argextreme,
}


# ---- Bounds for solutions of linear systems, determinants, Cholesky factors and eigenvalues, from
#
# their residuals.
#
# They do not follow how LAPACK got there: any approximate solution is compared with the system, in
# which all roundings are bounded, and an approximate inverse R tells what the residual can mean.

TINY = 2.0**-1074  # what a product that underflows loses


def solve(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> tuple[Any, Any]:
    return _solution(xs[0], es[0], xs[1], es[1], y), 0.0


def inv(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> tuple[Any, Any]:
    one = np.eye(y.shape[-1])
    return _solution(xs[0], es[0], one, 0 * one, y), 0.0


def triangular_solve(
    prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict
) -> tuple[Any, Any]:
    unit, lower = params["unit"], params["lower"]
    a, e = [(np.tril if lower else np.triu)(m, (-1 if lower else 1) * unit)
            for m in (xs[0], es[0])]
    a = a + unit * np.eye(a.shape[-1])
    if params["transposed"]:
        a, e = a.mT, e.mT
    return _solution(a, e, xs[1], es[1], y), 0.0


def _solution(a: Any, ea: Any, b: Any, eb: Any, x: Any) -> AnyArray:
    """How far ``x`` is from the solution of the system (Rump, Acta Numerica 2010, section 10.5).

    With ``|I - R a| <= F`` and row sums of F below f < 1, and ``v >= |R (b - a x)|``, the distance
    is at most ``v + f / (1 - f) max(v)``.
    """
    if b.ndim == 1:
        return _solution(a, ea, b[:, None], eb[:, None], x[:, None])[:, 0]
    n = _terms(a, x)
    if not a.size:
        return np.zeros(x.shape)
    r, far = _inverse(a, ea)
    residual = np.abs(b - a @ x) + (n + 2) * U * (np.abs(a) @ np.abs(x) + np.abs(b))
    none = np.all((x == 0) & (b == 0) & (eb == 0), -2, keepdims=True)
    lost = np.where(none, 0.0, 2 * (n + 2) * TINY)
    v = np.abs(r) @ (residual + ea @ np.abs(x) + eb + lost) + lost
    bound = (v + far * np.max(v, -2, keepdims=True)) * (1 + (n + 2) * 8 * U)
    return np.where(np.isnan(bound), np.inf, bound)


def _terms(*arrays: Any) -> int:
    """Terms of a row times a column; more where numbers are complex, whose products are sums."""
    n = arrays[0].shape[-1]
    return 4 * n + 4 if any(map(np.iscomplexobj, arrays)) else n


def _inverse(a: Any, ea: Any) -> tuple[Any, Any]:
    """R, and f / (1 - f); infinite where ``a`` may be singular."""
    n, one = _terms(a), np.eye(a.shape[-1])
    try:
        r = np.linalg.inv(a)
    except np.linalg.LinAlgError:
        return np.full(a.shape, np.inf), np.inf
    rounding = (n + 2) * (U * (np.abs(r) @ np.abs(a) + one) + 2 * TINY)
    f = np.sum(np.abs(one - r @ a) + rounding + np.abs(r) @ ea, -1).max(-1)[..., None, None]
    f = f * (1 + (n + 2) * 8 * U)
    return r, np.where(f < 1, f / (1 - f), np.inf)


def cholesky(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> tuple[Any, Any]:
    """``L + L X`` is the factor of ``L L^T + E`` where ``X + X^T + X X^T = M = L^-1 E L^-T``.

    X is lower triangular, so its norm is at most that of ``X + X^T`` divided by sqrt(2), and with
    m, the norm of M, at most ``s = (1 - sqrt(1 - 2 m)) / sqrt(2)`` (after Sun, BIT 31, 1991). Entry
    by entry it is then at most the lower half of M, with half the diagonal, plus s**2.
    """
    n = y.shape[-1]
    if not y.size:
        return np.zeros(y.shape), 0.0
    a, ea = [np.tril(m) + np.tril(m, -1).mT for m in (xs[0], es[0])]
    size = np.abs(y)
    e = np.abs(a - y @ y.mT) + (n + 2) * (U * (size @ size.mT + np.abs(a)) + TINY) + ea
    r, far = _inverse(y, 0 * y)
    # |L^-1| is |R|, and what is between them no larger than far * (the largest of its column)
    r = np.abs(r) + far * np.max(np.abs(r), -2, keepdims=True)
    m = (r @ e + n * TINY) @ r.mT * (1 + n * 16 * U) + n * TINY
    norm = np.sqrt(np.sum(m * m, (-2, -1), keepdims=True)) * (1 + n * n * 4 * U)
    x_norm = np.where(norm < 0.5, np.sqrt(2) * norm / (1 + np.sqrt(1 - 2 * norm)), np.inf)
    x = np.tril(m * (1 - np.eye(n) / 2) + 2 * x_norm**2)
    bound = size @ x * (1 + n * 16 * U) + n * TINY
    return np.where(np.isnan(bound), np.inf, bound), 0.0


def det(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> tuple[Any, Any]:
    p, far = _determinant(xs[0], es[0])
    return np.where(far == 0, 0.0, np.abs(p) * far) + np.abs(y - p) * (1 + 4 * U), 0.0


def slogdet(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> tuple[Any, Any]:
    p, far = _determinant(xs[0], es[0])
    certain = (far < 1) & (np.sign(p) == y[0])
    log = np.log(np.abs(p))
    gap = np.abs(y[1] - log) + 6 * U * np.abs(log) - np.log1p(-far) * (1 + 8 * U) + TINY
    return (np.where(certain, 0.0, 2.0), np.where(certain, gap, np.inf)), (0.0, 0.0)


def cofactor(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> tuple[Any, Any]:
    """``det(a) inv(a).T``."""
    (a,), (e,) = xs, es
    if a.shape[-1] < 2:
        return np.zeros(y.shape), 0.0
    p, far = [v[..., None, None] for v in _determinant(a, e)]
    try:
        r = np.linalg.inv(a)
    except np.linalg.LinAlgError:
        return np.full(y.shape, np.inf), 0.0
    one = np.eye(a.shape[-1])
    e_inverse = _solution(a, e, one, 0 * one, r).mT
    size = np.abs(p) * (np.abs(r.mT) + e_inverse)
    off = np.abs(y - p * r.mT) * (1 + 4 * U) + 2 * U * size + TINY
    bound = off + np.abs(p) * e_inverse + far * size
    return np.where(np.isnan(bound), np.inf, bound), 0.0


def _determinant(a: Any, ea: Any) -> tuple[Any, Any]:
    """The product of the pivots of a factorisation P L U, and how far that may be from the
    determinant, as a share of it; infinite where the matrix may be singular.

    ``L U = a + F = a (I + G)`` with ``G = a^-1 F``, and the determinant of I + G is within
    ``(1 - g)^-n - 1`` of 1 where row sums of |G| are below g < 1: its eigenvalues are within g of 1
    (Higham, 2nd ed., section 14.6, has the residual bound for a product of pivots).
    """
    from scipy import linalg as scipys  # lazy: slow to import

    n, lead = a.shape[-1], a.shape[:-2]
    p, far = np.ones(lead), np.zeros(lead)
    if not n:
        return p, far
    for k in np.ndindex(lead):
        if not np.isfinite(a[k]).all():
            far[k] = np.inf
            continue
        factors: Any = scipys.lu(a[k], p_indices=True)
        order, lower, upper = factors
        products = np.cumprod(np.diagonal(upper))
        running = np.abs(products)
        p[k] = products[-1] * _parity(order)
        r, more = _inverse(a[k], ea[k])
        size = np.abs(lower) @ np.abs(upper)
        f = (np.abs(a[k] - lower[order] @ upper) + ea[k]
             + (n + 2) * (U * (size[order] + np.abs(a[k])) + TINY))
        r = np.abs(r) + more * np.max(np.abs(r), -2, keepdims=True)
        g = np.sum(r @ f, -1).max() * (1 + n * 16 * U)
        lost = running.min() < 1e-290 or running.max() > 1e290  # a part of the product
        known = g < 1 and not lost
        far[k] = (np.expm1(-n * np.log1p(-g)) + n * U) * (1 + n * 8 * U) if known else np.inf
    return p, far


def _parity(order: Any) -> int:
    """1 for an even permutation, -1 for an odd one."""
    left, sign = list(order), 1
    for i in range(len(left)):
        while left[i] != i:
            j = left[i]
            left[i], left[j] = left[j], left[i]
            sign = -sign
    return sign


def eigh(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> tuple[Any, Any]:
    """Of approximate eigenvectors V and values W, with ``R = a V - V W`` and ``G = I - V^T V``.

    V is within ||G|| of an orthogonal matrix Q, and ``a Q - Q W`` is R, and what Q differs from V
    by; each eigenvalue is within its norm of one of W (Weyl). An eigenvector whose eigenvalue is
    ``gap`` from all others is at an angle to the computed one with a sine of at most ``r / gap``
    (Parlett, The Symmetric Eigenvalue Problem, 1998, theorem 11.7.1), and up to its sign within
    sqrt(2) times that of it.
    """
    half = np.tril if params["lower"] else np.triu
    diagonal = np.eye(xs[0].shape[-1])
    a, ea = [(m := half(v)) + m.mT - m * diagonal for v in (xs[0], es[0])]
    w, v = y
    n = w.shape[-1]
    if not v.size:
        return (np.zeros(w.shape), np.zeros(v.shape)), (0.0, 0.0)
    size = np.abs(v)
    residual = np.abs(a @ v - v * w[..., None, :]) + (n + 4) * (
        U * (np.abs(a) @ size + size * np.abs(w)[..., None, :]) + TINY
    ) + ea @ size
    unit = np.abs(diagonal - v.mT @ v) + (n + 2) * (U * (size.mT @ size + diagonal) + TINY)
    room = 1 + n * n * 16 * U
    r, g = [np.sqrt(np.sum(m * m, (-2, -1))) * room for m in (residual, unit)]
    largest = np.max(np.abs(w), -1)
    e_w = ((r + 2 * g * largest) / (1 - g) * room)[..., None] + 0 * w
    e_w = np.where((g < 1)[..., None], e_w, np.inf)
    apart = np.abs(w[..., :, None] - w[..., None, :]) - e_w[..., None, :] + np.where(
        diagonal > 0, np.inf, 0.0
    )
    gap = apart.min(-1) * (1 - 8 * U)
    column = np.sqrt(np.sum(residual * residual, -2)) * room
    sine = np.where(gap > 0, column / gap, np.inf)
    length = np.diagonal(unit, 0, -2, -1)  # |1 - |v|^2|, no less than |1 - |v||
    e_v = (np.sqrt(2) * sine / (1 - length) + length)[..., None, :] * room + 0 * v
    return (e_w, np.where(np.isnan(e_v), np.inf, e_v)), (0.0, 0.0)


def eig(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> tuple[Any, Any]:
    """With approximate eigenvectors V and values W, ``V^-1 a V = W + E`` where ``V E = a V - V W``.

    A disc of Gershgorin's of W + E that is apart from the others has one eigenvalue. Its vector is
    ``V z`` with z = 1 there and, by the other rows of ``(W + E) z = w z``, small elsewhere
    (Stewart and Sun, Matrix Perturbation Theory, 1990, section V.2). It is bounded up to its phase.
    """
    (a,), (ea,), (w, v) = xs, es, y
    if not v.size:
        return (np.zeros(w.shape), np.zeros(v.shape)), (0.0, 0.0)
    n, size = _terms(v), np.abs(v)
    room = 1 + n * n * 16 * U
    residual = np.abs(a @ v - v * w[..., None, :]) + (n + 2) * (
        U * (np.abs(a) @ size + size * np.abs(w)[..., None, :]) + TINY
    ) + ea @ size
    r, far = _inverse(v, np.zeros(v.shape))
    r = np.abs(r) + far * np.max(np.abs(r), -2, keepdims=True)
    e = (r @ residual + n * TINY) * room
    other = 1 - np.eye(w.shape[-1])
    radius = np.sum(e, -1) * room
    apart = np.abs(w[..., :, None] - w[..., None, :]) * (1 - 8 * U) - radius[..., None, :]
    gap = np.where(other > 0, apart - radius[..., :, None], np.inf)  # [j, k]: of disc j from disc k
    alone = np.all(gap > 0, -2)
    e_w = np.where(alone, radius, np.inf)
    # column k: rows j of z, at most m; gaps have taken off all of row j
    m = np.max(np.where(other > 0, e / gap, 0.0), -2, keepdims=True)
    z = np.where(other > 0, (e + m * radius[..., :, None]) / (apart * other + (1 - other)), 0.0)
    far_off = size @ z * room
    length = np.sqrt(np.sum(far_off**2, -2)) + np.abs(np.sqrt(np.sum(size * size, -2)) - 1) + n * U
    e_v = np.where(alone & (length < 1), length * room, np.inf)[..., None, :] + far_off
    return tuple([np.where(np.isnan(b), np.inf, b) for b in (e_w, e_v)]), (0.0, 0.0)


SYSTEM_RULES = {
    linalg.solve: solve, linalg.inv: inv, linalg.triangular_solve: triangular_solve,
    linalg.cholesky: cholesky, linalg.eigh: eigh,
    lu.det: det, lu.slogdet: slogdet, lu.cofactor: cofactor,
}
# Where numbers are complex, results too.
COMPLEX = {linalg.solve: solve, linalg.inv: inv, eigenvalues.eig: eig}
