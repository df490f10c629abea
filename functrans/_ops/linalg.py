"""Rows of linear algebra: solve, inverse, determinants, factorisations, the Euclidean norm.

All take stacks of matrices. Sources: M. Giles, "Collected matrix derivative results for forward
and reverse mode" (2008); I. Murray, "Differentiation of the Cholesky decomposition" (2016).
Cotangents are not conjugated, so a rule that is not holomorphic conjugates on the way in and out.

``cholesky`` and ``eigh`` read one triangle but are differentiated as functions of a Hermitian
matrix: tangents and cotangents are symmetrised.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from functrans._core.aval import Aval
from functrans._core.bind import bind, sum_to
from functrans._ops.declare import POSITIVE, primitive
from functrans._ops.elementwise import absolute, conjugate, ratio, where
from functrans._ops.structure import batched_to
from functrans.errors import NotDifferentiable


def conj(x: Any) -> Any:
    return conjugate(x) if x.dtype.kind == "c" else x


def _t(x):
    return x.T if len(x.shape) == 2 else x.mT


def adjoint(x: Any) -> Any:
    return conj(_t(x))


def _hermitian(x):
    return (x + adjoint(x)) / 2


def _column(x):
    """``x``, one number a matrix, against the entries of the matrices."""
    return x.reshape((*x.shape, 1, 1))


def _floating(*dtypes):
    """The dtype LAPACK computes in."""
    dtype = np.result_type(*dtypes)
    return dtype if dtype.kind in "fc" else np.dtype(float)


def _same(x, **params):
    return Aval(x.shape, _floating(x.dtype))


def _stacked(row, **fixed):
    """The batching rule of an op on stacks of matrices: the batch is one more stack."""
    return lambda size, xs, batched, **params: bind(
        row(), *[batched_to(x, b, size) for x, b in zip(xs, batched, strict=True)], **params
    )


# ---- linear systems and inverses


def _outer(a, b, vector):
    return a.reshape(-1, 1) * b if vector else a @ _t(b)


def _solve_jvp(ts, y, xs):
    ta, tb = ts
    moved = tb
    if ta is not None:
        moved = -(ta @ y) if tb is None else tb - ta @ y
    return solve(xs[0], moved)


def _solve_vjp(ct, y, xs, wanted):
    a, b = xs
    cb = solve(_t(a), ct)
    ca = sum_to(-_outer(cb, y, len(ct.shape) == 1), a.shape, a.dtype) if wanted[0] else None
    return [ca, sum_to(cb, b.shape, b.dtype) if wanted[1] else None]


def _system_batch(row):
    """Batching of ``row(a, b)``: one factorisation where ``a`` is not batched."""

    def batch(size, xs, batched, **params):
        a, b = xs
        vector = len(b.shape) - batched[1] == 1
        if not batched[0] and len(a.shape) == 2:
            if vector:
                return _t(row()(a, _t(b), **params))
            if len(b.shape) == 3:
                n, k = b.shape[1:]
                y = row()(a, b.transpose((1, 0, 2)).reshape(n, size * k), **params)
                return y.reshape(n, size, k).transpose((1, 0, 2))
        if vector:
            y = row()(a, b.reshape((*b.shape, 1)), **params)
            return y[..., 0]
        ndim = max(len(x.shape) - f for x, f in zip(xs, batched, strict=True)) + 1
        xs = [_lift(x, ndim) if f else x for x, f in zip(xs, batched, strict=True)]
        return row()(*xs, **params)

    return batch


def _lift(x, ndim):
    missing = ndim - len(x.shape)
    return x.reshape((x.shape[0], *(1,) * missing, *x.shape[1:])) if missing else x


def _system_abstract(a, b, **params):
    if len(b.shape) == 1:
        return Aval(b.shape, _floating(a.dtype, b.dtype))
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return Aval((*lead, *b.shape[-2:]), _floating(a.dtype, b.dtype))


# ``b`` is a matrix, or a vector where ``a`` is one matrix.
solve = primitive(
    "solve", np.linalg.solve, jvp=_solve_jvp, vjp=_solve_vjp, batch=_system_batch(lambda: solve),
    abstract=_system_abstract, doc="Giles 2008, section 2.3.1.",
)

inv = primitive(
    "inv", np.linalg.inv, jvp=lambda ts, y, xs: -(y @ ts[0] @ y),
    vjp=lambda ct, y, xs, wanted: [-(_t(y) @ ct @ _t(y))], saves="y",
    batch=_stacked(lambda: inv), abstract=_same, doc="Giles 2008, section 2.2.3.",
)


@functools.cache
def _trtrs(char: str) -> Any:
    from scipy.linalg.lapack import get_lapack_funcs  # lazy: slow to import

    return get_lapack_funcs("trtrs", dtype=np.dtype(char))


def _triangular_solve(a, b, lower, transposed, unit):
    dtype = _floating(a.dtype, b.dtype)
    dtype = dtype if dtype.char in "fdFD" else np.dtype(float)
    a, b = np.asarray(a, dtype), np.asarray(b, dtype)
    if a.ndim == 2 and b.ndim <= 2:
        return _solve_one(a, b, lower, transposed, unit)
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    y = np.empty((*lead, *b.shape[-2:]), dtype)
    a = np.broadcast_to(a, (*lead, *a.shape[-2:]))
    b = np.broadcast_to(b, y.shape)
    for i in np.ndindex(lead):
        y[i] = _solve_one(a[i], b[i], lower, transposed, unit)
    return y


def _solve_one(a, b, lower, transposed, unit):
    if not b.size:
        return np.zeros(b.shape, b.dtype)
    # row-major for us is the transpose for LAPACK
    x, info = _trtrs(a.dtype.char)(a.T, b, lower=not lower, trans=not transposed, unitdiag=unit)
    if info > 0:
        raise np.linalg.LinAlgError("Singular matrix")
    return np.ascontiguousarray(x)


def _triangle(x, lower, unit, scale=1.0):
    """``x`` without what is not in the triangle; its diagonal times ``scale``, 0 where unit."""
    n, dtype = x.shape[-1], x.real.dtype
    mask = np.tri(n, k=-1, dtype=dtype)
    mask = mask if lower else mask.T
    return x * (mask if unit else mask + np.eye(n, dtype=dtype) * dtype.type(scale))


def _triangular_jvp(ts, y, xs, lower, transposed, unit):
    ta, tb = ts
    if ta is not None:
        ta = _triangle(ta, lower, unit)
        ta = (_t(ta) if transposed else ta) @ y
        tb = -ta if tb is None else tb - ta
    return triangular_solve(xs[0], tb, lower=lower, transposed=transposed, unit=unit)


def _triangular_vjp(ct, y, xs, wanted, lower, transposed, unit):
    a, b = xs
    cb = triangular_solve(a, ct, lower=lower, transposed=not transposed, unit=unit)
    ca = None
    if wanted[0]:
        left, right = (y, cb) if transposed else (cb, y)
        ca = -_triangle(_outer(left, right, len(ct.shape) == 1), lower, unit)
        ca = sum_to(ca, a.shape, a.dtype)
    return [ca, sum_to(cb, b.shape, b.dtype) if wanted[1] else None]


triangular_solve = primitive(
    "triangular_solve", _triangular_solve, jvp=_triangular_jvp, vjp=_triangular_vjp,
    batch=_system_batch(lambda: triangular_solve), abstract=_system_abstract,
)

# ---- determinants


def _exclusive_products(s):
    """The product of all entries of ``s`` but one, along the last axis, without dividing."""
    one = np.ones_like(s[..., :1])
    before = np.cumprod(np.concatenate([one, s[..., :-1]], -1), -1)
    after = np.cumprod(np.concatenate([one, s[..., :0:-1]], -1), -1)[..., ::-1]
    return before * after


def _pairwise_products(s):
    """The product of all entries of ``s`` but the i-th and j-th, 0 on the diagonal."""
    n = s.shape[-1]
    one = np.ones_like(s[..., :1])
    before = np.cumprod(np.concatenate([one, s[..., :-1]], -1), -1)
    after = np.cumprod(np.concatenate([one, s[..., :0:-1]], -1), -1)[..., ::-1]
    upper = np.tri(n, k=-1, dtype=bool).T
    between = np.cumprod(np.where(upper, s[..., None, :], 1), -1)  # from i + 1 to j
    between = np.concatenate([np.ones_like(between[..., :1]), between[..., :-1]], -1)
    p = np.where(upper, before[..., :, None] * between * after[..., None, :], 0)
    return p + p.mT


def _well_conditioned_inverse(a):
    try:
        y = np.linalg.inv(a)
    except np.linalg.LinAlgError:
        return None
    size = np.abs(a).max(initial=0) * np.abs(y).max(initial=0) * a.shape[-1]
    return y if size < 1e4 else None


def _cofactor(a):
    if a.shape[-1] < 2:
        return np.ones(a.shape, _floating(a.dtype))
    y = _well_conditioned_inverse(a)
    if y is not None:
        return np.linalg.det(a)[..., None, None] * y.mT
    u, s, vh = np.linalg.svd(a)
    sign = np.linalg.det(u) * np.linalg.det(vh)
    return (sign[..., None, None] * u.conj() * _exclusive_products(s)[..., None, :]) @ vh.conj()


def _cofactor_slope(a, e):
    a, e = np.broadcast_arrays(a, e)
    if a.shape[-1] < 2:
        return np.zeros(a.shape, _floating(a.dtype, e.dtype))
    u, s, vh = np.linalg.svd(a)
    uh, v = u.conj().mT, vh.conj().mT
    sign = np.linalg.det(u) * np.linalg.det(vh)
    f = uh @ e @ v
    p = _pairwise_products(s)
    moved = -p * f
    i = np.arange(s.shape[-1])
    moved[..., i, i] = (p @ np.diagonal(f, 0, -2, -1)[..., None])[..., 0]
    return (sign[..., None, None] * (v @ moved @ uh)).mT


def _cofactor_curvature(a, e, c):
    """The derivative of ``cofactor_slope(a, e)`` in an invertible ``a`` along ``c``."""
    b, d = _t(inv(a)), _column(det(a))
    be, bc = _column((b * e).sum((-2, -1))), _column((b * c).sum((-2, -1)))
    db = -(b @ _t(c) @ b)
    dbe = _column((db * e).sum((-2, -1)))
    first = be * b - b @ _t(e) @ b
    return d * bc * first + d * (dbe * b + be * db - db @ _t(e) @ b - b @ _t(e) @ db)


def _slope_jvp(ts, y, xs):
    parts = []
    if ts[0] is not None:
        parts.append(_cofactor_curvature(*xs, ts[0]))
    if ts[1] is not None:
        parts.append(cofactor_slope(xs[0], ts[1]))
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


# The third derivative of det is symmetric in its three directions, the second in its two.
def _slope_vjp(ct, y, xs, wanted):
    return [
        _cofactor_curvature(*xs, ct) if wanted[0] else None,
        cofactor_slope(xs[0], ct) if wanted[1] else None,
    ]


# row: the second derivative of det, in singular values, so exact at singular matrices as well
cofactor_slope = primitive(
    "cofactor_slope", _cofactor_slope, jvp=_slope_jvp, vjp=_slope_vjp, saves="x",
    batch=_stacked(lambda: cofactor_slope), abstract=lambda a, e: _same(a),
)
# row: det(a) inv(a).T, which is defined where inv(a) is not: the first derivative of det
cofactor = primitive(
    "cofactor", _cofactor, jvp=lambda ts, y, xs: cofactor_slope(xs[0], ts[0]),
    vjp=lambda ct, y, xs, wanted: [cofactor_slope(xs[0], ct)], saves="x",
    batch=_stacked(lambda: cofactor), abstract=_same,
)
det = primitive(
    "det", np.linalg.det, jvp=lambda ts, y, xs: (ts[0] * cofactor(xs[0])).sum((-2, -1)),
    vjp=lambda ct, y, xs, wanted: [_column(ct) * cofactor(xs[0])], saves="x",
    batch=_stacked(lambda: det),
    abstract=lambda x: Aval(x.shape[:-2], _floating(x.dtype)),
    doc="Exact to second order at singular matrices; from the third order on it needs the inverse.",
)


def _slogdet_jvp(ts, y, xs):
    z = (_t(inv(xs[0])) * ts[0]).sum((-2, -1))
    return (y[0] * (1j * z.imag), z.real) if z.dtype.kind == "c" else (None, z)


def _slogdet_vjp(ct, y, xs, wanted):
    c_sign, c_log = ct
    if xs[0].dtype.kind != "c":
        return [None if c_log is None else _column(c_log) * _t(inv(xs[0]))]
    weight = c_log
    if c_sign is not None:
        turned = 1j * (c_sign * y[0]).imag
        weight = turned if c_log is None else c_log + turned
    return [_column(weight) * _t(inv(xs[0]))]


def _slogdet_abstract(x):
    dtype = _floating(x.dtype)
    return Aval(x.shape[:-2], dtype), Aval(x.shape[:-2], np.empty(0, dtype).real.dtype)


slogdet = primitive(
    "slogdet", lambda x: tuple(np.linalg.slogdet(x)), jvp=_slogdet_jvp, vjp=_slogdet_vjp, outputs=2,
    batch=_stacked(lambda: slogdet), abstract=_slogdet_abstract, doc="Giles 2008, section 2.2.4.",
)

# ---- Cholesky


def _cholesky_jvp(ts, y, xs):
    solve_l = functools.partial(triangular_solve, y, lower=True, transposed=False, unit=False)
    z = solve_l(adjoint(solve_l(_hermitian(ts[0]))))
    return y @ _triangle(z, True, False, 0.5)


def _cholesky_vjp(ct, y, xs, wanted):
    solve_lh = functools.partial(triangular_solve, conj(y), lower=True, transposed=True, unit=False)
    p = _triangle(adjoint(y) @ conj(ct), True, False, 0.5)
    return [conj(_hermitian(solve_lh(adjoint(solve_lh(p)))))]


# The lower factor, of the lower triangle.
cholesky = primitive(
    "cholesky", np.linalg.cholesky, jvp=_cholesky_jvp, vjp=_cholesky_vjp, saves="y",
    batch=_stacked(lambda: cholesky), abstract=_same, domain=POSITIVE,
    doc="Murray 2016, equations 8 and 10.",
)

# ---- Hermitian eigenproblems


def _close(w):
    """Differences ``w_j - w_i``, 0 where they are but rounding; where that is, for i != j."""
    n = w.shape[-1]
    gap = w.reshape((*w.shape[:-1], 1, n)) - w.reshape((*w.shape[:-1], n, 1))
    size = absolute(w).max(axis=-1).reshape((*w.shape[:-1], 1, 1))
    near = absolute(gap) <= size * (8 * n * float(np.finfo(w.dtype).eps))
    return where(near, 0, gap), near & ~np.eye(n, dtype=bool)


def _eigh_jvp(ts, y, xs, lower):
    w, v = y
    m = adjoint(v) @ _hermitian(ts[0]) @ v
    gap, near = _close(w)
    turned = where(near & _visible(m, m), np.nan, ratio(m, gap))
    return np.diagonal(m, 0, -2, -1).real, v @ turned


def _size(x):
    """|x|, or the like of it: for comparisons."""
    return absolute(x.real) + absolute(x.imag) if x.dtype.kind == "c" else absolute(x)


def _eigh_vjp(ct, y, xs, wanted, lower):
    (cw, cv), (w, v) = ct, y
    if cv is None:
        return [conj((v * cw.reshape((*cw.shape[:-1], 1, -1))) @ adjoint(v))]
    inner = adjoint(v) @ conj(cv)
    gap, near = _close(w)
    turned = ratio(inner, gap)
    unknown = near & _undetermined(inner, cw, w)
    _refuse(unknown, w)
    turned = where(unknown, np.nan, turned)
    if cw is not None:
        turned = turned + cw.reshape((*cw.shape, 1)) * np.eye(w.shape[-1], dtype=w.dtype)
    return [conj(_hermitian(v @ turned @ adjoint(v)))]


def _undetermined(inner, cw, w):
    """Where eigenvalues that coincide leave the derivative open; see the row's doc."""
    gauge = _visible(inner - adjoint(inner), inner)
    if cw is None:
        return gauge
    n = cw.shape[-1]
    row, column = cw.reshape((*cw.shape[:-1], 1, n)), cw.reshape((*cw.shape, 1))
    split = _visible(row - column, row)
    scaled = row * absolute(w).max(axis=-1).reshape((*w.shape[:-1], 1, 1))
    moved = _visible(scaled, inner) & _visible(inner, inner)
    return gauge | split | moved


def _visible(m, whole):
    """Where an entry of ``m`` is more than rounding against the largest of ``whole``."""
    top = _size(whole).max(axis=(-2, -1)).reshape((*whole.shape[:-2], 1, 1))
    return _size(m) > top * float(np.sqrt(np.finfo(m.dtype).eps))


def _refuse(unknown, w):
    """An error that names the eigenvalues, where there are numbers to look at."""
    flags = unknown if isinstance(unknown, np.ndarray) else unknown.concrete()
    if not isinstance(flags, np.ndarray) or not flags.any():
        return
    *at, i, j = (int(k[0]) for k in np.nonzero(flags))
    values = w if isinstance(w, np.ndarray) else w.concrete()
    which = f" of matrix {tuple(at)}" if at else ""
    low, high = values[(*at, i)], values[(*at, j)]
    raise NotDifferentiable(
        f"eigh: eigenvalues {i} and {j}{which} coincide (gap {abs(high - low):.1e} at {low:.6g}), "
        "and the output depends on their eigenvectors in a way whose derivative eigh alone does not "
        "determine. Use eigvalsh, or only the projector on their eigenspace, or a matrix function "
        "that has its own rule (inv, solve, matrix_power, cholesky)."
    )


def _eigh_abstract(x, lower):
    dtype = _floating(x.dtype)
    return Aval(x.shape[:-1], np.empty(0, dtype).real.dtype), Aval(x.shape, dtype)


eigh = primitive(
    "eigh", lambda x, lower: tuple(np.linalg.eigh(x, "L" if lower else "U")),
    jvp=_eigh_jvp, vjp=_eigh_vjp, outputs=2, saves="y",
    batch=_stacked(lambda: eigh), abstract=_eigh_abstract,
    kinks="repeated eigenvalues",
    doc="""Giles 2008, section 3.1. With a phase of each eigenvector as LAPACK has it.

    Repeated eigenvalues (gap up to 8 n eps of the largest) have no eigenvectors of their own, and
    inside their block the rules see one basis of many. The gradient there is a symmetric matrix;
    cotangents of eigenvalues show its diagonal, those of eigenvectors nothing of it. In reverse
    the rest is taken as 0, which is exact for symmetric functions of the eigenvalues, for
    projectors on the whole block, for their sums with anything outside the block. Functions that
    depend on the choice of basis, or whose cotangents show a slope that varies inside the block
    (V f(L) V.T with a general weight), raise NotDifferentiable, or give NaN where the values are
    not known (under vmap). Not told apart from a projector: V f(L) V.T weighted with zeros on the
    diagonal of the block in this very basis. Forward, a perturbation that mixes the block gives
    NaN in its eigenvectors, and as slopes of the eigenvalues those of any symmetric function.
    """,
)

# ---- the Euclidean norm


def _norm2(x, axis):
    real = x.real * x.real + x.imag * x.imag if x.dtype.kind == "c" else x * x
    s = np.add.reduce(real, axis)
    dtype = real.dtype
    info = np.finfo(dtype)
    if np.all((s > info.tiny / info.eps) & (s < np.inf)):
        return np.sqrt(s)
    size = np.abs(x)
    top = np.max(size, axis, keepdims=True, initial=0)
    top = np.where((top > 0) & (top < np.inf), top, dtype.type(1))
    scaled = size / top
    return (np.sqrt(np.add.reduce(scaled * scaled, axis)) * top.reshape(s.shape)).astype(dtype)[()]


def _norm2_quiet(x, axis):
    with np.errstate(over="ignore", under="ignore"):
        return _norm2(x, axis)


def _direction(x, y, axis):
    """The unit vector along ``x``, conjugated; 0 where ``x`` is 0."""
    kept = tuple(1 if i in axis else n for i, n in enumerate(x.shape))
    return ratio(conj(x), y.reshape(kept))


def _norm2_jvp(ts, y, xs, axis):
    moved = (ts[0] * _direction(xs[0], y, axis)).sum(axis=axis)
    return moved.real if moved.dtype.kind == "c" else moved


def _norm2_vjp(ct, y, xs, wanted, axis):
    x = xs[0]
    kept = tuple(1 if i in axis else n for i, n in enumerate(x.shape))
    return [ct.reshape(kept) * _direction(x, y, axis)]


# row: sqrt(sum |x|^2) over axes, which overflows and underflows as a composition and whose slope
# at 0 would be infinite; here it is the least of the subgradients, 0
norm2 = primitive(
    "norm2", _norm2_quiet, jvp=_norm2_jvp, vjp=_norm2_vjp, kinks="the origin: 0",
    batch=lambda size, xs, batched, axis: norm2(xs[0], axis=tuple(i + 1 for i in axis)),
    abstract=lambda x, axis: Aval(
        tuple(n for i, n in enumerate(x.shape) if i not in axis), np.empty(0, x.dtype).real.dtype
    ),
)

__all__ = [
    "cholesky", "cofactor", "cofactor_slope", "det", "eigh", "inv", "norm2", "slogdet", "solve",
    "triangular_solve",
]
