"""Rows of linear algebra: solve, inverse, factorisations, the Euclidean norm.

All take stacks of matrices. Sources: M. Giles, "Collected matrix derivative results for forward
and reverse mode" (2008); I. Murray, "Differentiation of the Cholesky decomposition" (2016).
Cotangents are not conjugated, so a rule that is not holomorphic conjugates on the way in and out.

``cholesky`` and ``eigh`` read one triangle, and are differentiated in its entries: a tangent is
that of the Hermitian matrix which the triangle stands for, and a cotangent is in the triangle.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from functrans._core.array import Aval
from functrans._core.bind import AnyArray, Tracer, sum_to
from functrans._kernels.routines import substitute
from functrans._ops.calls import stop
from functrans._ops.declare import POSITIVE, primitive
from functrans._ops.elementwise import absolute, conjugate, ratio, where
from functrans._ops.limits import (
    LIMIT,
    ONCE,
    SQUARED,
    TWICE,
    agrees,
    blocks,
    equal_and_apart,
    first_order,
    is_differentiated,
    magnitude,
    may_meet,
    of_matrix,
    refuse,
    refuse_coinciding,
    settled,
    share,
    slope_ratio,
    top,
    vectors_if,
    visible,
    within,
    zero_or_nan,
)
from functrans._ops.structure import aligned, diagonal, embed_diagonal, minus, stacked


def conj(x: Any) -> AnyArray:
    """The conjugate; a real value as it is."""
    return conjugate(x) if x.dtype.kind == "c" else x


def mT(x: Any) -> AnyArray:
    """The matrices in the last two axes transposed."""
    return x.T if len(x.shape) == 2 else x.mT


def adjoint(x: Any) -> AnyArray:
    """The conjugate transpose."""
    return conj(mT(x))


def hermitian(x):
    return (x + adjoint(x)) / 2


def of_triangle(x: Any, lower: bool) -> AnyArray:
    """The Hermitian matrices that the triangles of ``x`` stand for."""
    half = triangle(x, lower, False, 0.5)
    return half + adjoint(half)


def _onto_triangle(x: Any, lower: bool) -> AnyArray:
    """The transpose of ``of_triangle``, up to conjugation, at a Hermitian ``x``."""
    return 2 * triangle(x, lower, False, 0.5)


def column(x: Any) -> AnyArray:
    """``x``, one number a matrix, against the entries of the matrices."""
    return x.reshape((*x.shape, 1, 1))


def floating(*dtypes: np.dtype) -> np.dtype:
    """The dtype LAPACK computes in."""
    dtype = np.result_type(*dtypes)
    return dtype if dtype.kind in "fc" else np.dtype(float)


def same(x: Aval, **params: Any) -> Aval:
    """The shape rule of an op from matrices to matrices of their size."""
    return Aval(x.shape, floating(x.dtype))


# ---- linear systems and inverses


def _outer(a, b, vector):
    return a.reshape(-1, 1) * b if vector else a @ mT(b)


def _solve_jvp(ts, y, xs):
    ta, tb = ts
    return solve(xs[0], minus(tb, None if ta is None else ta @ y))


def _solve_vjp(ct, y, xs, wanted):
    a, b = xs
    cb = solve(mT(a), ct)
    ca = sum_to(-_outer(cb, y, len(ct.shape) == 1), a.shape, a.dtype) if wanted[0] else None
    return [ca, sum_to(cb, b.shape, b.dtype) if wanted[1] else None]


def _system_batch(row):
    """Batching of ``row(a, b)``: one factorisation where ``a`` is not batched."""

    def batch(size, xs, batched, **params):
        a, b = xs
        vector = len(b.shape) - batched[1] == 1
        if not batched[0] and len(a.shape) == 2:
            if vector:
                return mT(row()(a, mT(b), **params))
            if len(b.shape) == 3:
                n, k = b.shape[1:]
                y = row()(a, b.transpose((1, 0, 2)).reshape(n, size * k), **params)
                return y.reshape(n, size, k).transpose((1, 0, 2))
        if vector:
            y = row()(a, b.reshape((*b.shape, 1)), **params)
            return y[..., 0]
        return row()(*aligned(xs, batched), **params)

    return batch


def _system_abstract(a, b, **params):
    if len(b.shape) == 1:
        return Aval(b.shape, floating(a.dtype, b.dtype))
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return Aval((*lead, *b.shape[-2:]), floating(a.dtype, b.dtype))


# ``b`` is a matrix, or a vector where ``a`` is one matrix.
solve = primitive(
    "solve", np.linalg.solve, jvp=_solve_jvp, vjp=_solve_vjp, batch=_system_batch(lambda: solve),
    abstract=_system_abstract, doc="Giles 2008, section 2.3.1.",
)

inv = primitive(
    "inv", np.linalg.inv, jvp=lambda ts, y, xs: -(y @ ts[0] @ y),
    vjp=lambda ct, y, xs, wanted: [-(mT(y) @ ct @ mT(y))], saves="y",
    batch=stacked(lambda: inv), abstract=same, doc="Giles 2008, section 2.2.3.",
)


@functools.cache
def _trtrs(char: str) -> Any:
    from scipy.linalg.lapack import get_lapack_funcs  # lazy: slow to import

    return get_lapack_funcs("trtrs", dtype=np.dtype(char))


def _triangular_solve(a, b, lower, transposed, unit):
    dtype = floating(a.dtype, b.dtype)
    if dtype.char not in "fdFD":  # not a type of LAPACK's
        wide = complex if dtype.kind == "c" else float
        y = _triangular_solve(a.astype(wide), b.astype(wide), lower, transposed, unit)
        return y.astype(dtype)
    a, b = np.asarray(a, dtype), np.asarray(b, dtype)
    if b.ndim > 1 and a.shape[-1] ** 2 * b.shape[-1] <= LARGE_SYSTEM:
        a, lower = (a.mT, not lower) if transposed else (a, lower)
        x = substitute(a, b, lower, unit)
        return _substitute(a, b, lower, unit) if x is None else x
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


# Multiply-adds above which waiting for threads does not matter.
LARGE_SYSTEM = 2**27
# Up to this size LAPACK's general solver takes no longer than a triangular one.
BLOCK = 48


def _substitute(a, b, lower, unit):
    """Substitution by halves, whose work is matrix products: of stacks, and not of float64.

    Not SciPy's trtrs: SciPy brings a BLAS of its own, whose threads wait for milliseconds where
    those of NumPy's still spin after a product. A vector takes no threads, and a large system
    takes longer than that.
    """
    n = a.shape[-1]
    if n <= BLOCK:
        return _substitute_one_block(a, b, lower, unit)
    k = n // 2
    first, second = (slice(k), slice(k, n)) if lower else (slice(k, n), slice(k))
    x = _substitute(a[..., first, first], b[..., first, :], lower, unit)
    rest = b[..., second, :] - a[..., second, first] @ x
    y = _substitute(a[..., second, second], rest, lower, unit)
    x = np.broadcast_to(x, (*y.shape[:-2], *x.shape[-2:]))
    return np.concatenate([x, y] if lower else [y, x], axis=-2)


def _substitute_one_block(a, b, lower, unit):
    # an upper triangle needs no pivoting and is its own factor, so this is back substitution
    if lower:
        y = _substitute_one_block(a[..., ::-1, ::-1], b[..., ::-1, :], False, unit)
        return np.ascontiguousarray(y[..., ::-1, :])
    a = np.triu(a, 1) + np.eye(a.shape[-1], dtype=a.dtype) if unit else np.triu(a)
    return np.linalg.solve(a, b)


def triangle(x, lower, unit, scale=1.0):
    """``x`` without what is not in the triangle; its diagonal times ``scale``, 0 where unit."""
    n = x.shape[-1]
    weights = _kept_weights if n <= KEPT else _weights
    return x * weights(n, lower, 0.0 if unit else scale, x.real.dtype)


def _weights(n, lower, diagonal, dtype):
    mask = np.tri(n, k=-1, dtype=dtype)
    y = (mask if lower else mask.T) + np.eye(n, dtype=dtype) * dtype.type(diagonal)
    y.flags.writeable = False
    return y


# They take longer to make than products with them; the rows of those that are kept, 8 MB at most.
KEPT = 256
_kept_weights = functools.lru_cache(16)(_weights)


def _triangular_jvp(ts, y, xs, lower, transposed, unit):
    ta, tb = ts
    if ta is not None:
        ta = triangle(ta, lower, unit)
        tb = minus(tb, (mT(ta) if transposed else ta) @ y)
    return triangular_solve(xs[0], tb, lower=lower, transposed=transposed, unit=unit)


def _triangular_vjp(ct, y, xs, wanted, lower, transposed, unit):
    a, b = xs
    cb = triangular_solve(a, ct, lower=lower, transposed=not transposed, unit=unit)
    ca = None
    if wanted[0]:
        left, right = (y, cb) if transposed else (cb, y)
        ca = -triangle(_outer(left, right, len(ct.shape) == 1), lower, unit)
        ca = sum_to(ca, a.shape, a.dtype)
    return [ca, sum_to(cb, b.shape, b.dtype) if wanted[1] else None]


triangular_solve = primitive(
    "triangular_solve", _triangular_solve, jvp=_triangular_jvp, vjp=_triangular_vjp,
    batch=_system_batch(lambda: triangular_solve), abstract=_system_abstract,
    native_from="SYSTEM",
)

# ---- Cholesky


def _cholesky_jvp(ts, y, xs):
    solve_l = functools.partial(triangular_solve, y, lower=True, transposed=False, unit=False)
    z = solve_l(adjoint(solve_l(of_triangle(ts[0], True))))
    return y @ triangle(z, True, False, 0.5)


def _cholesky_vjp(ct, y, xs, wanted):
    solve_lh = functools.partial(triangular_solve, conj(y), lower=True, transposed=True, unit=False)
    if _is_diagonal(ct):  # of the triangle of L^H ct the diagonal alone is not 0
        p = 0.5 * _entries(y) * _entries(ct)
        inverse = triangular_solve(y, np.eye(y.shape[-1], dtype=y.dtype), lower=True,
                                   transposed=False, unit=False)
        s = solve_lh(p.reshape((*p.shape, 1)) * inverse)
    else:
        p = triangle(adjoint(y) @ conj(ct), True, False, 0.5)
        s = solve_lh(adjoint(solve_lh(p)))
    return [conj(_onto_triangle(hermitian(s), True))]


def _entries(x):
    return diagonal(x, offset=0)


def _is_diagonal(ct: Any) -> bool:
    """Whether a cotangent is that of a diagonal, as of the logarithm of a determinant."""
    if isinstance(ct, Tracer):
        return ct.made_by() is embed_diagonal
    return np.count_nonzero(ct) == np.count_nonzero(np.diagonal(ct, 0, -2, -1))


# The lower factor, of the lower triangle.
cholesky = primitive(
    "cholesky", np.linalg.cholesky, jvp=_cholesky_jvp, vjp=_cholesky_vjp, saves="y",
    batch=stacked(lambda: cholesky), abstract=same, domain=POSITIVE, native_from="SYSTEM",
    doc="Murray 2016, equations 8 and 10.",
)

# ---- Hermitian eigenproblems


def _close(w):
    """Differences ``w_j - w_i``, 0 where they are but rounding; where that is, for i != j."""
    gap, size = _differences(w), _size(w)
    near = absolute(gap) <= size * (8 * w.shape[-1] * float(np.finfo(w.dtype).eps))
    return where(near, 0, gap), near & ~np.eye(w.shape[-1], dtype=bool)


def _size(w):
    return absolute(w).max(axis=-1, initial=0.0).reshape((*w.shape[:-1], 1, 1))


def _within(w, power):
    """Where two of the eigenvalues are closer than eps**power; see ``limits.within``."""
    return within(_differences(w), _size(w), power) & ~np.eye(w.shape[-1], dtype=bool)


def _differences(w):
    n = w.shape[-1]
    gap = w.reshape((*w.shape[:-1], 1, n)) - w.reshape((*w.shape, 1))
    return where(np.eye(n, dtype=bool), 0, gap)  # which is 0 there, whatever is known of w


def _eigh_jvp(ts, y, xs, lower, split=None):
    w, v = y
    m = adjoint(v) @ of_triangle(ts[0], lower) @ v
    gap, near = _close(w)
    turned, twice = ratio(m, gap), _within(w, TWICE)
    if may_meet(twice):
        blurred = _within(w, ONCE) & ~near & (m != 0)
        turned = where(near & visible(m, top(m)) | blurred, np.nan, turned)
        turned = turned + zero_or_nan(m, twice)
    dv = v @ turned
    return diagonal_of(m).real, dv + v * turning(v, dv) if v.dtype.kind == "c" else dv


def turning(v, dv):
    """How the columns of ``v`` turn their phases besides, by LAPACK's choice: the entries of its
    first row, or of its last, stay real. 0 where these entries are too small to say."""
    phase = np.zeros((), v.real.dtype)
    for k in (-1, 0):
        entry, slope = stop(v[..., k, :]), dv[..., k, :].imag
        told = (entry.imag == 0).all(axis=-1)
        told = told.reshape((*told.shape, 1)) & (absolute(entry.real) > TOLD)
        phase = where(told, -slope / where(told, v[..., k, :].real, 1.0), phase)
    return 1j * phase.reshape((*phase.shape[:-1], 1, phase.shape[-1]))


# Entries of which the phase of a unit vector is taken, and about what 1e-6 over them costs others.
TOLD = 1e-6


def _eigh_choose(ts, y, lower):
    """The basis of each repeated eigenvalue in which the perturbation is diagonal.

    These are the eigenvectors of the perturbed matrix to first order; LAPACK may return any.
    """
    w, v = y
    if is_differentiated(w) or not w.size:
        return y  # another derivative outside would lose the second order: NaN says so instead
    _, near = _close(w)
    if not may_meet(near):
        return y
    return w, v @ basis_of_blocks(adjoint(v) @ of_triangle(ts[0], lower) @ v, near)


def basis_of_blocks(m, near):
    """A unitary matrix that diagonalises the Hermitian ``m`` inside each block of indices that
    ``near`` joins to the next, and leaves the blocks apart."""
    n = near.shape[-1]
    eye = np.eye(n, dtype=m.real.dtype)
    inside = where(near | (eye > 0), m, 0)
    # blocks are kept in their order by shifts that no eigenvalue of theirs reaches
    reach = 3 * magnitude(inside).sum(axis=(-2, -1)) + 1
    shifts = blocks(near) * reach.reshape((*reach.shape, 1))
    parted = inside + shifts.reshape((*shifts.shape, 1)) * eye
    return eigh(parted, lower=True)[1] if is_differentiated(m) else vectors_if(parted, near)


def diagonal_of(x) -> Any:
    return np.diagonal(x, 0, -2, -1)


def _eigh_vjp(ct, y, xs, wanted, lower, split=None):
    (cw, cv), (w, v) = ct, y
    if cv is None:
        cw = share(cw, _close(w)[1])
        columns = v * cw.reshape((*cw.shape[:-1], 1, cw.shape[-1]))
        return [settled(conj(_onto_triangle(columns @ adjoint(v), lower)), split)]
    inner = adjoint(v) @ conj(cv)
    # the rule's result is Hermitian, and so only this part of it counts
    skew = (inner - adjoint(inner)) / 2
    twice = _within(w, TWICE)
    turned = _turn(inner, skew, cw, w, v, twice, split) if may_meet(twice) else ratio(
        skew, _differences(w)
    )
    if w.dtype is not v.dtype:
        turned = where(_of_phases(skew, inner), np.nan, turned)
    if cw is not None:
        turned = turned + cw.reshape((*cw.shape, 1)) * np.eye(w.shape[-1], dtype=w.dtype)
    change = hermitian(v @ turned @ adjoint(v))
    return [settled(conj(_onto_triangle(change, lower)), split)]


def _turn(inner, skew, cw, w, v, twice, split):
    """``skew`` over the gaps of the eigenvalues, some of which may be ``twice`` too close."""
    gap, near = _close(w)
    most = top(inner)
    blurred = _within(w, ONCE) & ~near
    if split is None:
        turned = ratio(skew, gap)
        unknown = near & _undetermined(inner, cw) | blurred & (skew != 0)
    else:
        limit = slope_ratio(skew, _differences(w))
        smooth = _within(w, LIMIT) & ~near & agrees(skew, limit, gap, most)
        turned = where(near | smooth, limit, ratio(skew, gap))
        unknown = near & visible(skew, most) | blurred & ~smooth
    refuse_coinciding("eigh", "eigenvalues", w, unknown, DEPENDS)
    lost = twice & ~near & (inner != 0)
    lost = lost | mT(lost)
    if split is None and is_differentiated(w):
        refuse_coinciding("eigh", "eigenvalues", w, lost, TWICE_LOST, "nearly coincide")
    turned = where(unknown, np.nan, turned)
    return first_order(turned, (unknown if split is None else near) | lost, w, v)


def _eigh_split(y, lower):
    """Coinciding eigenvalues made equal, and slopes that are not."""
    w, v = y
    if is_differentiated(w) or not w.size:
        return None
    apart = equal_and_apart(w, _close(w)[1], _within(w, LIMIT))
    return apart and ((apart[0], v), (apart[1], None))


def _undetermined(inner, cw):
    """Flags where coinciding eigenvalues leave the derivative open; see the row's doc."""
    if cw is None:
        return visible(inner - adjoint(inner), top(inner))
    # with any cotangent of w, even one that is 0 on the diagonal in this very basis, what is seen
    # of v may belong to v f(w) v.T
    n = cw.shape[-1]
    row, column = cw.reshape((*cw.shape[:-1], 1, n)), cw.reshape((*cw.shape, 1))
    return visible(row - column, top(row)) | visible(inner, top(inner))


DEPENDS = (
    "the output depends on their eigenvectors in a way whose derivative eigh alone does not "
    "determine. Forward mode does (jvp, jacfwd); or use eigvalsh, only the projector on their "
    "eigenspace, or a matrix function with its own rule (inv, solve, matrix_power)."
)
TWICE_LOST = (
    f"a second derivative through their eigenvectors {SQUARED}. Use symmetric functions of "
    "eigvalsh, or a matrix function with its own rule (inv, solve, matrix_power, scipy.linalg's "
    "expm, logm, sqrtm)."
)


def _of_phases(skew, inner):
    """Flags on the diagonal where the output depends on a phase: an error where that is known."""
    flags = visible(diagonal_of(skew), top(inner).reshape((*inner.shape[:-2], 1)))
    refuse(flags, lambda at: (
        f"eigh: the output depends on the phase of the eigenvector {at[-1]}{of_matrix(at[:-1])}, "
        "which is LAPACK's choice. Use what does not change with it, such as absolute values, "
        "v * f(w) @ v.conj().T, or ratios of a vector's entries."
    ))
    n = flags.shape[-1]
    return flags.reshape((*flags.shape[:-1], 1, n)) & np.eye(n, dtype=bool)


def _eigh_abstract(x, lower):
    dtype = floating(x.dtype)
    return Aval(x.shape[:-1], np.finfo(dtype).dtype), Aval(x.shape, dtype)


eigh = primitive(
    "eigh", lambda x, lower: tuple(np.linalg.eigh(x, "L" if lower else "U")),
    jvp=_eigh_jvp, vjp=_eigh_vjp, outputs=2, saves="y", choose=_eigh_choose,
    split=_eigh_split, batch=stacked(lambda: eigh), abstract=_eigh_abstract,
    kinks="repeated eigenvalues", jumps="repeated eigenvalues",
    at_jump=lambda x, lower: np.diff(eigh.impl(x, lower)[0], axis=-1) == 0,  # of eigenvectors
    unique=False,
    doc="""Giles 2008, section 3.1. With a phase of each eigenvector as LAPACK has it.

    Repeated eigenvalues (gap up to 8 n eps of the largest) have no eigenvectors of their own, and
    inside their block the rules see one basis of many. Functions that are smooth in the matrix have
    exact gradients all the same: in reverse as limits (``split``), where the values are not
    differentiated outside. Without that the part inside the block is taken as 0, which is
    exact for symmetric functions of the eigenvalues, for projectors on the whole block, for their
    sums with anything outside the block; what depends on both vectors and values of the block
    (v f(w) v.T) raises NotDifferentiable, as does always what depends on the basis, or gives NaN
    where the values are not known (under vmap). Eigenvalues alone, if not all of a block alike,
    share the slope (``shared``). Forward mode takes the basis in which the
    perturbation is diagonal and is exact for all of them (Daleckii and Krein 1965), to first order;
    the slopes of the eigenvalues are those of the sorted ones. Under a second derivative, a
    perturbation that mixes the block gives NaN in its eigenvectors.
    """,
)
