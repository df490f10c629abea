"""Rows of decompositions: singular values, QR, the pseudoinverse.

All take stacks of matrices; conjugation is as in ``linalg``. Sources:
J. Townsend, "Differentiating the singular value decomposition" (2016); S. F. Walter and L. Lehmann,
"Algorithmic differentiation of linear algebra functions" (2010); G. H. Golub and V. Pereyra, "The
differentiation of pseudo-inverses and nonlinear least squares problems" (1973).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans._core.array import Aval
from functrans._core.bind import AnyArray, Tracer
from functrans._ops import limits
from functrans._ops.calls import stop
from functrans._ops.declare import primitive
from functrans._ops.elementwise import absolute, ratio, where
from functrans._ops.limits import coinciding, magnitude, number, of_matrix, refuse, top, visible
from functrans._ops.linalg import (
    adjoint,
    basis_of_blocks,
    conj,
    diagonal_of,
    floating,
    hermitian,
    mT,
    triangle,
    triangular_solve,
    turning,
)
from functrans._ops.lu import lu as lu  # for the table
from functrans._ops.structure import concatenate, stacked


def _skew(x):
    return (x - adjoint(x)) / 2


def _by_row(x):
    """``x``, one number a column of a matrix, against its entries."""
    return x.reshape((*x.shape[:-1], 1, x.shape[-1]))


def _by_column(x):
    """``x``, one number a row of a matrix, against its entries."""
    return x.reshape((*x.shape, 1))


# ---- singular values


def _within(s, power):
    """Which two singular values are closer than eps**power of the largest."""
    near = limits.within(_by_row(s) - _by_column(s), _by_row(s)[..., :1], power)
    return near & ~np.eye(s.shape[-1], dtype=bool)


def _tiny(s):
    """Which sums of two singular values are too small to be divided by in second derivatives."""
    tiny = limits.within(_by_row(s) + _by_column(s), _by_row(s)[..., :1], limits.ONCE)
    return tiny & ~np.eye(s.shape[-1], dtype=bool)


def _small(s, shape):
    """Which singular values are zero up to rounding."""
    largest = s[..., :1]
    return s <= largest * (8 * max(shape) * float(np.finfo(s.dtype).eps))


def _pairs(s, shape):
    """Differences ``s_j - s_i`` and sums, 0 where they are but rounding; where the former are, for
    i != j; where the latter are."""
    n = s.shape[-1]
    gap = _by_row(s) - _by_column(s)
    near = absolute(gap) <= _by_row(s)[..., :1] * (8 * max(shape) * float(np.finfo(s.dtype).eps))
    small = _small(s, shape)
    both = _by_row(small) & _by_column(small)
    near = near | both
    total = where(both, 0, _by_row(s) + _by_column(s))
    return where(near, 0, gap), total, near & ~np.eye(n, dtype=bool), both


# With p = u^H (dx) v, h and w its hermitian and skew parts: u^H du = common + opposite and
# v^H dv = common - opposite, where common_ij = h_ij / (s_j - s_i), opposite_ij = w_ij / (s_j + s_i)
# on the span of the singular vectors; both keep their digits where s_i is close to s_j.


def _svd_jvp(ts, y, xs, kind, split=None):
    (u, s, vh), t = y, ts[0]
    shape = t.shape[-2:]
    if not s.shape[-1]:
        return None, None, None
    u1, v1, u2, v2 = _columns(u, s, vh)
    moved, back = t @ v1, adjoint(t) @ u1
    p = adjoint(u1) @ moved
    ds = diagonal_of(p).real
    if kind == "values":
        ds = where(_small(s, shape), 0, ds)
    gap, total, near, both = _pairs(s, shape)
    h, w = hermitian(p), _skew(p)
    most = top(p)
    opposite = where(both & visible(w, most), np.nan, ratio(w, total))
    common, twice = ratio(h, gap), _within(s, limits.TWICE)
    if limits.may_meet(twice):
        blurred = _within(s, limits.ONCE) & ~near & (h != 0)
        common = where(near & visible(h, most) | blurred, np.nan, common)
        common = common + limits.zero_or_nan(h, twice)
        opposite = opposite + limits.zero_or_nan(w, _tiny(s) | both)
    left, right = moved - u1 @ p, back - v1 @ adjoint(p)
    du = _move(u1, u2, common + opposite, left, s, shape, top(moved))
    dv = _move(v1, v2, common - opposite, right, s, shape, top(back))
    if u.dtype.kind == "c":
        du, dv = _turned_phases(u1, du, v1, dv)
    return du, ds, adjoint(dv)


def _turned_phases(u1, du, v1, dv):
    """Phases turn as LAPACK has them: entries of the right vectors stay real, or of the left."""
    k = u1.shape[-1]
    right = turning(v1, dv[..., :k])
    phase = where((v1[..., 0, :].imag == 0).all(axis=-1).reshape((*right.shape[:-2], 1, 1)), right,
                  turning(u1, du[..., :k]))
    return _plus(du, u1 * phase), _plus(dv, v1 * phase)


def _plus(dx, more):
    """``dx`` with ``more`` added to its first columns."""
    k = more.shape[-1]
    return dx + more if dx.shape[-1] == k else beside(dx[..., :k] + more, dx[..., k:])


def _svd_choose(ts, y, kind):
    """The bases of each repeated nonzero singular value in which the perturbation is diagonal."""
    (u, s, vh), t = y, ts[0]
    if kind == "values" or not s.size:
        return y
    shape = t.shape[-2:]
    if limits.may_meet(_small(s, shape)):
        u = _of_open_zeros(u, s, vh, t)
    if limits.is_differentiated(s):
        return u, s, vh  # another derivative outside would lose the second order: NaN says so
    _, _, near, both = _pairs(s, shape)
    near = near & ~both
    if not limits.may_meet(near):
        return u, s, vh
    u1, v1, u2, v2 = _columns(u, s, vh)
    turn = basis_of_blocks(-hermitian(adjoint(u1) @ t @ v1), near)  # s descends: so do its slopes
    u1, v1 = u1 @ turn, v1 @ turn
    u = u1 if u2 is None else beside(u1, u2)
    return u, s, adjoint(v1 if v2 is None else beside(v1, v2))


def _of_open_zeros(u, s, vh, t):
    """``u``; where a perturbation ``t`` mixes vectors of singular values of zero an error, or NaN.

    NaN in their slopes would not do: a factor f(s) = 0 hides it.
    """
    u1, v1, _, _ = _columns(*(map(stop, (u, s, vh))))
    moved, back = t @ v1, adjoint(t) @ u1
    p = adjoint(u1) @ moved
    small = _small(s, t.shape[-2:])
    parts = hermitian(p), _skew(p), moved - u1 @ p, back - v1 @ adjoint(p)
    h, w, left, right = (visible(x, top(*parts)) for x in map(stop, parts))
    both = _by_row(small) & _by_column(small)
    mixed = both & (w | h & ~np.eye(s.shape[-1], dtype=bool))
    open_ = mixed.any(axis=-2) | small & (left.any(axis=-2) | right.any(axis=-2))
    refuse(open_, lambda at: _zero(s, at))
    return where(open_.any(axis=-1).reshape((*open_.shape[:-1], 1, 1)), np.nan, u)


def _columns(u, s, vh):
    """The singular vectors as columns, and those beyond the singular values, None without."""
    k = s.shape[-1]
    beyond = u[..., k:] if u.shape[-1] > k else None, vh[..., k:, :] if vh.shape[-2] > k else None
    u1 = u if beyond[0] is None else u[..., :k]
    vh1 = vh if beyond[1] is None else vh[..., :k, :]
    return u1, adjoint(vh1), beyond[0], None if beyond[1] is None else adjoint(beyond[1])


def _move(u1, u2, turned, outward, s, shape, most):
    """The change of the columns ``u1``, and of ``u2`` so that they stay orthogonal to them."""
    du = u1 @ turned
    if u1.shape[-2] == s.shape[-1]:
        return du
    small = _by_row(_small(s, shape))
    grown = where(small & visible(outward, most), np.nan, _over(outward, s, small))
    du = du + grown
    return du if u2 is None else beside(du, _of_any_basis(-(u1 @ (adjoint(grown) @ u2))))


def _over(outward, s, small):
    """``outward`` over the singular values, 0 for those that are ``small``; of others that are
    tiny, the derivative would divide by them once more, and is NaN."""
    y = ratio(outward, where(small, 0, _by_row(s)))
    tiny = limits.within(_by_row(s), _by_row(s)[..., :1], limits.ONCE)
    return y + limits.zero_or_nan(outward, tiny & ~small) if limits.may_meet(tiny) else y


def beside(a: Any, b: Any) -> AnyArray:
    """Two matrices as one, or stacks of them."""
    return concatenate(a, b, axis=len(a.shape) - 1)


def _svd_split(y, kind):
    """Coinciding nonzero singular values made equal, and slopes that are not."""
    u, s, vh = y
    if kind == "values" or limits.is_differentiated(s) or not s.size:
        return None
    _, _, near, both = _pairs(s, (u.shape[-2], vh.shape[-1]))
    apart = limits.equal_and_apart(s, near & ~both, _within(s, limits.LIMIT) & ~both)
    return apart and ((u, apart[0], vh), (None, apart[1], None))


def _svd_vjp(ct, y, xs, wanted, kind, split=None):
    (cu, cs, cvh), (u, s, vh), shape = ct, y, xs[0].shape[-2:]
    u1, v1, u2, v2 = _columns(u, s, vh)
    if cu is None and cvh is None:
        if kind == "values":
            cs = where(_small(s, shape), 0, cs)
        _, _, near, both = _pairs(s, shape)
        cs = limits.share(cs, near & ~both)
        return [limits.settled(conj((u1 * _by_row(cs)) @ adjoint(v1)), split)]
    if not s.shape[-1]:
        return [None]
    gu, gv = None if cu is None else conj(cu), None if cvh is None else mT(cvh)
    most = top(gu, gv)
    m, out_u = _split(u1, u2, gu, s, shape, most)
    n, out_v = _split(v1, v2, gv, s, shape, most)
    inner = _inner(m, n, cs, y, shape, most, split)
    if cs is not None:
        inner = inner + _by_column(cs) * np.eye(s.shape[-1], dtype=s.dtype)
    left = u1 @ inner if out_u is None else u1 @ inner + out_u
    g = left @ adjoint(v1)
    return [limits.settled(conj(g if out_v is None else g + u1 @ adjoint(out_v)), split)]


def _inner(m, n, cs, y, shape, most, split):
    """What the cotangents of singular vectors, ``m`` and ``n`` inside their spans, give there."""
    u, s, vh = y
    gap, total, near, both = _pairs(s, shape)
    common, opposite = _skew(m + n), _skew(m - n)
    inner, unknown, moved = ratio(common, gap), False, False
    if limits.may_meet(twice := _within(s, limits.TWICE)):
        near = near & ~both
        blurred = _within(s, limits.ONCE) & ~near & ~both
        if split is None:
            unknown = near & _undetermined(m + n, common, cs, most) | blurred & (common != 0)
        else:
            apart = _by_row(s) - _by_column(s)
            limit = limits.slope_ratio(common, apart)
            smooth = _within(s, limits.LIMIT) & ~near & ~both
            smooth = smooth & limits.agrees(common, limit, apart, most)
            inner = where(near | smooth, limit, inner)
            unknown = near & visible(common, most) | blurred & ~smooth
        moved = (twice & ~near | _tiny(s)) & ~both & ((m != 0) | (n != 0))
        moved = moved | mT(moved)
        if split is None and limits.is_differentiated(s):
            why = f"a second derivative through their singular vectors {limits.SQUARED}. {CURE}"
            limits.refuse_coinciding("svd", "singular values", s, moved, why, "nearly coincide")
        moved = (unknown if split is None else near) | moved
    open_ = both & _open_at_zero(common, opposite, cs, s, shape, most)
    phases = _of_phases(common, u, most)
    _refuse_pairs(unknown | open_, s, both)
    inner = where(unknown | open_ | phases, np.nan, inner + ratio(opposite, total))
    return limits.first_order(inner, moved | open_, u, s, vh)


def _split(u1, u2, g, s, shape, most):
    """The cotangent of singular vectors: inside their span, and outward over the singular values,
    None where there is no outside."""
    if g is None:
        return 0, None
    k = s.shape[-1]
    g1 = g if u2 is None else g[..., :k]
    inner = adjoint(u1) @ g1
    if u1.shape[-2] == k:
        return inner, None
    outward = g1 - u1 @ inner
    if u2 is not None:
        g2 = _of_no_basis(u2, g[..., k:], most, "svd with full_matrices=True", "singular vectors",
                          "full_matrices=False")
        outward = outward - u2 @ (adjoint(g2) @ u1)
    small = _by_row(_small(s, shape))
    unknown = small & visible(outward, most)
    refuse(unknown, lambda at: _zero(s, (*at[:-2], at[-1])))
    return inner, where(unknown, np.nan, _over(outward, s, small))


def _undetermined(inner, common, cs, most):
    """Flags where coinciding singular values leave the derivative open; see the row's doc."""
    if cs is None:
        return visible(common, most)
    # with any cotangent of s, even one that is 0 on the diagonal in this very basis, what is seen
    # of u and v may belong to u f(s) vh
    split = visible(_by_row(cs) - _by_column(cs), top(_by_row(cs)))
    return split | visible(inner, most) | visible(common, most)


def _open_at_zero(common, opposite, cs, s, shape, most):
    """Flags where zero singular values do: on both sides any basis will do."""
    gauge = visible(common, most) | visible(opposite, most)
    if cs is None:
        return gauge
    largest = _by_row(s)[..., :1]
    moved = visible(_by_row(cs) * largest, most) | (largest == 0) & (_by_row(cs) != 0)
    moved = moved | mT(moved)
    if shape[0] == shape[1] and common.dtype.kind != "c":
        # the only one that is zero changes its sign, and with it the row's u s vh is smooth
        moved = moved & ~np.eye(s.shape[-1], dtype=bool)
    return gauge | moved


CURE = (
    "Use svdvals or norm, only the projectors on whole singular spaces, the polar factor u @ vh, "
    "or a function that has its own rule (pinv, lstsq, inv)."
)


def _refuse_pairs(unknown, s, both):
    refuse(unknown, lambda at: _zero(s, (*at[:-2], at[-1])) if number(both, at) else (
        f"svd: {coinciding('singular values', s, at)}, and the output depends on their singular "
        f"vectors in a way whose derivative svd alone does not determine. {CURE}"
    ))


def _zero(s, at):
    *lead, j = at
    value, largest = number(s, at), number(s, (*lead, 0))
    return (
        f"svd: singular value {j}{of_matrix(tuple(lead))} is zero up to rounding ({value:.1e}, the "
        f"largest is {largest:.6g}), and the output depends on its singular vectors in a way whose "
        f"derivative svd alone does not determine. {CURE}"
    )


def _of_no_basis(u2, g2, most, what, of, cure):
    """``g2``, the cotangent of a basis ``u2`` of the complement; where it depends on which basis
    that is an error, or NaN where values are not known."""
    if _one_way(u2):
        return g2
    open_ = visible(_skew(adjoint(u2) @ g2), most).any(axis=(-2, -1))
    open_ = open_.reshape((*open_.shape, 1, 1))
    refuse(open_, lambda at: (
        f"{what}: the output depends on which basis of the complement of the {of} LAPACK picks, "
        f"which has no derivative. Use {cure}, or only the projector on the complement."
    ))
    return where(open_, np.nan, g2)


def _of_any_basis(du2):
    """``du2``, the change of a basis of the complement; NaN where LAPACK has a choice of them."""
    return du2 if _one_way(du2) else du2 * np.full((), np.nan, du2.real.dtype)


def _one_way(u2):
    """Whether the complement has one basis only, up to signs: that of one real column."""
    return u2.shape[-1] == 1 and u2.dtype.kind != "c"


def _of_phases(common, u, most):
    """Flags on the diagonal where the output depends on a phase: an error where that is known."""
    if u.dtype.kind != "c":
        return False
    turned = visible(diagonal_of(common), most.reshape(most.shape[:-1]))
    refuse(turned, lambda at: (
        f"svd: the output depends on the phase of the singular vectors {at[-1]}"
        f"{of_matrix(at[:-1])}, which is LAPACK's choice. Use what does not change with it, such "
        "as absolute values or u * f(s) @ vh."
    ))
    return _by_row(turned) & np.eye(turned.shape[-1], dtype=bool)


def _svd(x, kind):
    return limits.svd_for_values(x) if kind == "values" else limits.svd(x, kind == "full")


def _svd_abstract(x, kind):
    dtype = floating(x.dtype)
    *lead, m, n = x.shape
    k = min(m, n)
    rows, columns = (m, n) if kind == "full" else (k, k)
    values = Aval((*lead, k), np.finfo(dtype).dtype)
    return Aval((*lead, m, rows), dtype), values, Aval((*lead, columns, n), dtype)


def _at_zero(x, kind):
    # what depends on the vectors raises by itself where it has no derivative
    _, s, _ = _svd(x, "values")
    return np.asarray(_small(s, x.shape) & (kind == "values"))


# ``kind``: thin, full, or values: thin, of which only the singular values will be used.
svd = primitive(
    "svd", _svd, jvp=_svd_jvp, vjp=_svd_vjp, outputs=3, saves="y", choose=_svd_choose,
    split=_svd_split, batch=stacked(lambda: svd), abstract=_svd_abstract,
    kinks="repeated singular values, and zero", at_kink=_at_zero,
    unique=False,
    doc="""Townsend 2016, in the form that divides by differences and sums of singular values.

    Coinciding singular values (gap up to 8 n eps of the largest) have no singular vectors of their
    own. Functions that are smooth in the matrix (u f(s) vh) have exact gradients there, as limits
    (``split``), where the values are not differentiated outside. Without that exact are
    symmetric functions of the singular values, projectors on whole singular spaces, the polar
    factor u vh, and the rest raises NotDifferentiable, as does always what depends on the choice of
    basis, or gives NaN where the values are not known (under vmap). Forward mode takes the bases in
    which the perturbation is diagonal and is exact for all of them, to first order, where the
    singular value is not zero. Under a second derivative, a perturbation that mixes the block gives
    NaN in its vectors.

    A singular value of zero has a kink. With kind "values" its slope is 0, so that the gradient of
    their sum is the subgradient of least norm. Otherwise the slope is the one without the kink,
    as u f(s) vh with an odd f needs it, where that is determined: one real zero of a square matrix.
    Where it is not, a slope that is seen raises; one that is 0 is taken for that of a truncated
    product, so u f(s) vh weighted with 0 at u_i v_i of every zero in this very basis gets by.

    With kind "full" the vectors beyond the singular values turn only as much as they must.
    """,
)

# ---- the pseudoinverse


# Products are taken in the order that makes the smaller square matrix.


def _pinv_jvp(ts, y, xs, rcond):
    a, t = xs[0], ts[0]
    yh, th = adjoint(y), adjoint(t)
    if a.shape[-2] >= a.shape[-1]:
        rows = (y @ yh) @ (th - (th @ a) @ y)
        return _to_first_order(rows + (((th - (y @ a) @ th) @ yh) - y @ t) @ y, a, y)
    columns = (th - y @ (a @ th)) @ (yh @ y)
    return _to_first_order(columns + y @ (yh @ (th - th @ (a @ y)) - t @ y), a, y)


def _pinv_vjp(ct, y, xs, wanted, rcond):
    # gh is the adjoint of the cotangent, which arrives conjugated
    a, g, gh, yh = xs[0], conj(ct), mT(ct), adjoint(y)
    if a.shape[-2] >= a.shape[-1]:
        left = (gh - a @ (y @ gh)) @ (y @ yh)
        g = left + yh @ (y @ (gh - gh @ (y @ a)) - g @ yh)
    else:
        right = (yh @ y) @ (gh - (gh @ y) @ a)
        g = right + ((gh - (a @ y) @ gh) @ y - yh @ g) @ yh
    return [conj(_to_first_order(g, a, y))]


# Which relative error a second derivative may have: by the square of the condition.
BLURRED = 1e-3


def _to_first_order(slope, a, y):
    """``slope``, whose derivatives are refused where the rounding in differences that vanish, as
    1 - y a, is magnified too much: by the square of the condition, where the slope itself is right
    up to the condition."""
    if not isinstance(y, Tracer) or not y.size:
        return slope
    condition = top(stop(a)) * top(stop(y)) * float(np.sqrt(y.shape[-1] * y.shape[-2]))
    eps = float(np.finfo(y.dtype).eps)
    lost = condition * condition > BLURRED / eps
    if limits.is_differentiated(y):
        refuse(lost, lambda at: (
            f"pinv or lstsq: the matrix{of_matrix(at[:-2])} is nearly singular (its condition is "
            f"about {number(condition, at):.1e}), and a second derivative would have its square "
            "times the rounding as an error. Scale or regularise the matrix, cut small singular "
            "values off with rcond, or use solve of a square one."
        ))
    return limits.first_order(slope, lost, y)


def _pinv_abstract(x, rcond):
    *lead, m, n = x.shape
    return Aval((*lead, n, m), floating(x.dtype))


# row: exact at matrices that lack rank, for changes that keep the rank; through svd it would fail
# wherever singular values coincide
pinv = primitive(
    "pinv", limits.pinv, jvp=_pinv_jvp, vjp=_pinv_vjp,
    batch=stacked(lambda: pinv), abstract=_pinv_abstract, kinks="where the rank changes",
    doc="Golub and Pereyra 1973, equation 4.12.",
)

# ---- QR


def _qr_parts(y):
    """The factors of the columns, and the further columns of q, None if there are none."""
    q, r = y
    n = r.shape[-1]
    if q.shape[-1] == n:
        return q, _regular(r), None
    return q[..., :n], _regular(r[..., :n, :]), q[..., n:]


def _regular(r):
    """``r``; where it is singular an error that says so, or NaN where values are not known."""
    size = magnitude(diagonal_of(r))
    limit = top(r) * (8 * r.shape[-1] * float(np.finfo(r.dtype).eps))
    flat = size <= limit.reshape(limit.shape[:-1])
    refuse(flat, lambda at: (
        f"qr: column {at[-1]}{of_matrix(at[:-1])} depends linearly on those before it (the "
        f"diagonal of r has {number(size, at):.1e}), so q has no derivative. Use svd or pinv, or "
        "order the columns so that independent ones come first."
    ))
    known = flat.concrete_value() is not None if isinstance(flat, Tracer) else True
    return r if known else where(_by_row(flat), np.nan, r)


def _qr_jvp(ts, y, xs, complete):
    q, r, q2 = _qr_parts(y)
    c = mT(triangular_solve(r, mT(ts[0]), lower=False, transposed=True, unit=False))
    x = adjoint(q) @ c
    turned = triangle(x, True, False, 0.5)
    turned = turned - adjoint(turned)
    dq, dr = c - q @ (x - turned), (x - turned) @ r
    if q2 is None:
        return dq, dr
    dq = beside(dq, _of_any_basis(-(q @ (adjoint(c) @ q2))))
    below = np.zeros((*dr.shape[:-2], q2.shape[-1], dr.shape[-1]), dr.dtype)
    return dq, concatenate(dr, below, axis=len(dr.shape) - 2)


def _qr_vjp(ct, y, xs, wanted, complete):
    (cq, cr), (q, r, q2) = ct, _qr_parts(y)
    n = r.shape[-1]
    seen, gc = 0, 0
    if cr is not None:
        seen = conj(cr[..., :n, :]) @ adjoint(r)
    if cq is not None:
        gq = conj(cq)
        gc = gq if q2 is None else gq[..., :n]
        seen = seen - adjoint(q) @ gc
        if q2 is not None:
            g2 = gq[..., n:]
            g2 = _of_no_basis(q2, g2, top(gq), "qr with mode='complete'", "columns",
                              "mode='reduced'")
            gc = gc - q2 @ (adjoint(g2) @ q)
    gc = gc + q @ (seen - triangle(seen - adjoint(seen), True, False, 0.5))
    return [mT(triangular_solve(r, mT(conj(gc)), lower=False, transposed=False, unit=False))]


def _qr_abstract(x, complete):
    *lead, m, n = x.shape
    dtype, k = floating(x.dtype), m if complete else n
    return Aval((*lead, m, k), dtype), Aval((*lead, k, n), dtype)


# Of matrices that have no more columns than rows, and these linearly independent.
qr = primitive(
    "qr", lambda x, complete: tuple(np.linalg.qr(x, "complete" if complete else "reduced")),
    jvp=_qr_jvp, vjp=_qr_vjp, outputs=2, saves="y",
    batch=stacked(lambda: qr), abstract=_qr_abstract, kinks="columns that depend linearly",
    unique=False,
    doc="""Walter and Lehmann 2010, section 3; the diagonal of r stays real, as LAPACK has it.

    With ``complete`` the columns of q beyond those of x turn only as much as they must.
    """,
)
