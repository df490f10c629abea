"""Systems, exponentials, norms and eigenvalues of sparse matrices with traced entries."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

from functrans._core.bind import AnyArray, bind, known_value
from functrans._ops import limits
from functrans._ops import sparse as rows
from functrans.errors import SolverError, UnsupportedError, user_line
from functrans.numpy.structure import as_floats, as_operand
from functrans.scipy.implicit import concrete, implicit
from functrans.scipy.kept import once
from functrans.scipy.programs import in_programs
from functrans.scipy.public import counterpart, is_traced, refused
from functrans.scipy.sparse.arrays import SparseArray, are_ours, full, lifted

# ---- Systems of sparse matrices after ``scipy.sparse.linalg``, by the implicit rule
#
# The derivative of a solution of A x = b is that of a system with A, and back with its transpose,
# by the same solver; SuperLU's factors are kept. Matrices that are known by their products alone
# take ``functrans.scipy.implicit``.

sl: Any = linalg  # its types say less than its functions take


def _matrix(A: Any) -> SparseArray:
    """``A`` as a sparse array; a dense one has an entry in each place."""
    return lifted(A) if isinstance(A, SparseArray) or sparse.issparse(A) else full(as_operand(A))


def _square(A: SparseArray, n: int) -> None:
    if A.shape[0] != A.shape[1]:
        raise ValueError(f"matrix must be square (has shape {A.shape})")
    if A.shape[0] != n:
        raise ValueError(f"matrix - rhs dimension mismatch ({A.shape} - {n})")


def _solve(A: SparseArray, b: Any, solver: Callable) -> AnyArray:
    b = as_floats(b)
    return bind(rows.solve, A.data, b, places=A.pattern, solver=solver)


@counterpart(sl.spsolve, when=are_ours)
def spsolve(A, b, permc_spec=None, use_umfpack=True):
    """The solution of ``A @ x = b``, differentiated in the entries of ``A`` and in ``b``."""
    b = b.toarray() if isinstance(b, SparseArray) or sparse.issparse(b) else as_operand(b)
    A = _matrix(A)
    _square(A, b.shape[0])
    x = _solve(A, b, rows.directly)
    return x.reshape((-1,)) if b.ndim == 2 and b.shape[1] == 1 else x


class Factors:
    """What ``splu`` and ``spilu`` return, of traced entries or for traced right sides."""

    def __init__(self, A: SparseArray):
        self.A, self.shape = A, A.shape

    def solve(self, rhs: Any, trans: str = "N") -> AnyArray:
        """The solution with the matrix, its transpose "T" or its adjoint "H"."""
        if trans not in ("N", "T", "H"):
            raise ValueError("trans must be N, T, or H")
        A, b = self.A if trans == "N" else self.A.T, as_operand(rhs)
        if trans == "H":
            A = A._with(np.conj(A.data))
        _square(A, b.shape[0])
        return _solve(A, b, rows.directly)


def splu(A, permc_spec=None, diag_pivot_thresh=None, relax=None, panel_size=None, options=None):
    """Factors of a sparse matrix, whose ``solve`` is differentiated in its entries and right side.

    They are found at the first ``solve``, and kept for the next.
    """
    if not isinstance(A, SparseArray):
        theirs = sl.splu(A, permc_spec, diag_pivot_thresh, relax, panel_size, options or {})
        return _Constant(theirs, A)
    _square(A, A.shape[0])
    return Factors(A)


class _Constant(Factors):
    """Factors of a constant matrix: SciPy's, for plain right sides."""

    def __init__(self, factors: Any, A: Any):
        now = lifted(A)
        super().__init__(SparseArray(now.data, now.pattern, now.kind))
        self.factors = factors
        now.pattern.factors = now.data, factors

    def __getattr__(self, name: str) -> Any:
        return getattr(self.factors, name)

    def solve(self, rhs: Any, trans: str = "N") -> AnyArray:
        """As of ``Factors``."""
        return super().solve(rhs, trans) if is_traced(rhs) else self.factors.solve(rhs, trans)


def factorized(A):
    """A function that solves with a sparse matrix."""
    return splu(A).solve


# ---- iterations


def _require_solved(name: str, info: int) -> None:
    if info:
        raise SolverError(
            f"{user_line()}: {name} did not solve the system (info {info}), so that its result "
            "has no derivative. Raise maxiter or rtol, or pass a preconditioner M."
        )


@functools.cache
def _iteration(name: str, options: tuple) -> Callable:
    """``solver(pattern, data, b)`` by one of SciPy's iterations; SolverError where it fails."""

    def solver(pattern: rows.Pattern, data: np.ndarray, b: np.ndarray) -> np.ndarray:
        A, method = pattern.matrix(data), getattr(sl, name)
        columns = b.reshape((b.shape[0], -1)).T
        xs = []
        for column in columns:
            x, info = method(A, column, **dict(options))
            _require_solved(name, info)
            xs.append(x)
        return np.stack(xs, axis=-1).reshape(b.shape)

    return solver


def _iterative(name: str) -> Callable:
    theirs = getattr(sl, name)

    def ours(A: Any, b: Any, x0: Any = None, **options: Any) -> tuple[Any, int]:
        b = as_operand(b)
        if options.pop("callback", None) is not None:
            raise UnsupportedError(f"{user_line()}: {name} got callback= beside a traced value; "
                                   "leave it out.")
        if isinstance(A, sl.LinearOperator) or options.get("M") is not None:
            return _matrix_free(name, A, b, x0, options), 0
        A = _matrix(A)
        _square(A, b.shape[0])
        return _solve(A, b, _iteration(name, tuple(sorted(options.items())))), 0

    def either(A, b, x0=None, **options):
        traced = are_ours((A, b, x0), {})
        if isinstance(A, sl.LinearOperator):
            traced = traced or is_traced(A._matvec(np.zeros(A.shape[1])))
        return (ours if traced else theirs)(A, b, x0, **options)

    either.__name__ = either.__qualname__ = name
    either.__doc__ = (
        f"``scipy.sparse.linalg.{name}``, differentiated in the matrix and the right side.\n\n"
        "    The derivative is solved to the same tolerances; one that is not reached raises\n"
        "    SolverError. Of a LinearOperator it is that of what its products close over.\n    "
    )
    return either


def _matrix_free(name: str, A: Any, b: Any, x0: Any, options: dict) -> AnyArray:
    """The solution with a matrix that is known by its products, or has a preconditioner."""
    product: Callable = A._matvec if isinstance(A, sl.LinearOperator) else lambda x: _matrix(A) @ x
    like = sl.LinearOperator((b.shape[0],) * 2, matvec=lambda x: concrete(product(x)),
                             dtype=np.result_type(b.dtype, np.float32))
    x, info = getattr(sl, name)(like, concrete(b), x0, **options)
    _require_solved(name, info)
    return implicit(name, lambda x: product(x) - b, x)


bicgstab, cg, gcrotmk, gmres, lgmres, minres, tfqmr = [_iterative(n) for n in (
    "bicgstab", "cg", "gcrotmk", "gmres", "lgmres", "minres", "tfqmr")]


# ---- The action of the exponential of a sparse matrix, after ``scipy.sparse.linalg``
#
# Powers of the matrix are applied, as many as the size of the matrix needs, so all derivatives are
# those of products. The number of steps follows A. Al-Mohy and N. Higham, "Computing the action of
# the matrix exponential" (2011): exp(A) = exp(A / s)^s, each factor a Taylor polynomial.

# The norm of the matrix of one step; its series loses few digits, and so do its derivatives.
STEP = 2.0


def _norm(A: SparseArray) -> float:
    data = known_value(A.data)
    if data is None:
        raise UnsupportedError(
            f"{user_line()}: expm_multiply takes as many steps as the size of the matrix says, "
            "which is not known under jit or vmap. Call it outside."
        )
    return float(np.bincount(A.pattern.cols, abs(np.asarray(data))).max()) if A.nnz else 0.0


def _apply(A: SparseArray, B: Any, t: float, norm: float) -> AnyArray:
    """exp(t A) B."""
    steps = max(math.ceil(abs(t) * norm / STEP), 1)
    size, term, degree = abs(t) * norm / steps, 1.0, 0
    while term > 1e-18 or degree < 2:  # one more than the value needs, for its derivatives
        degree += 1
        term *= size / degree
    for _ in range(steps):
        part = B
        for k in range(1, degree + 3):
            part = (A @ part) * (t / (steps * k))
            B = B + part
    return B


def expm_multiply(A, B, start=None, stop=None, num=None, endpoint=None, traceA=None):
    """exp(A) B, or with ``start``, ``stop`` and ``num`` that of exp(t A) B at these times.

    It is differentiated in the entries of ``A`` and in ``B``.
    """
    if not (isinstance(A, SparseArray) or is_traced((A, B))):
        return sl.expm_multiply(A, B, start, stop, num, endpoint, traceA)
    if isinstance(A, sl.LinearOperator):
        raise UnsupportedError(f"{user_line()}: expm_multiply got a LinearOperator beside a traced "
                               "value; pass a sparse array.")
    if not (isinstance(A, SparseArray) or sparse.issparse(A)):
        raise UnsupportedError(f"{user_line()}: expm_multiply got a dense matrix beside a traced "
                               "value; take functrans.scipy.linalg.expm(A) @ B.")
    A, B = lifted(A), as_operand(B)
    if A.shape[0] != A.shape[1]:
        raise ValueError("expected A to be like a square matrix")
    if A.shape[1] != B.shape[0]:
        raise ValueError(f"shapes of matrices A {A.shape} and B {B.shape} are incompatible")
    norm = _norm(A)
    if start is None and stop is None and num is None:
        return _apply(A, B, 1.0, norm)
    times = np.linspace(0.0 if start is None else start, 1.0 if stop is None else stop,
                        50 if num is None else num, endpoint=endpoint is None or bool(endpoint))
    ys, before = [], 0.0
    for t in times:
        B, before = _apply(A, B, float(t - before), norm), t
        ys.append(B)
    return np.stack(ys)


# ---- Norms, inverses and eigenvalues of sparse matrices with traced entries


def norm(x, ord=None, axis=None):
    """The norm of a sparse matrix, of its rows or of its columns.

    Without ``ord`` and ``axis`` it is that of the entries; others are those of the dense matrix.
    """
    if not isinstance(x, SparseArray):
        return sl.norm(x, ord, axis)
    if ord in (None, "fro") and axis is None and x.is_simple:
        return np.linalg.norm(x.data)
    return np.linalg.norm(x.toarray(), ord, axis)


def inv(A):
    """The inverse, which has an entry in each place."""
    if not isinstance(A, SparseArray):
        return sl.inv(A)
    return full(spsolve(A, np.eye(A.shape[0])), A.kind)


def eigsh(A, k=6, M=None, sigma=None, which="LM", v0=None, ncv=None, maxiter=None, tol=0,
          return_eigenvectors=True, Minv=None, OPinv=None, mode="normal", rng=None):
    """``k`` eigenvalues of a symmetric sparse matrix and their eigenvectors, by Lanczos' method.

    They are differentiated as solutions of their equations, to any order; the largest entry of a
    vector is positive. Raises SolverError where an eigenvalue is a multiple one; where it nearly
    is, slopes of the vectors are NaN.

    >>> import functrans as ft, numpy as np
    >>> from functrans.scipy import sparse
    >>> def largest(d):
    ...     return eigsh(sparse.diags_array([d]), 1, return_eigenvectors=False)[0]
    >>> ft.grad(largest)(np.array([1.0, 3.0, 2.0])).round(12) + 0.0
    array([0., 1., 0.])
    """
    options: dict[str, Any] = dict(sigma=sigma, which=which, v0=v0, ncv=ncv, maxiter=maxiter,
                                   tol=tol, mode=mode)
    if rng is not None:
        options["rng"] = rng
    if not isinstance(A, SparseArray):
        return sl.eigsh(A, k, M, Minv=Minv, OPinv=OPinv, return_eigenvectors=return_eigenvectors,
                        **options)
    for name, value in (("M", M), ("Minv", Minv), ("OPinv", OPinv)):
        if value is not None:
            raise refused("eigsh", name, value, "solve the standard problem")
    if A.data.dtype.kind == "c":
        raise refused("eigsh", "A", "a complex matrix",
                      "take eigh of A.toarray()")
    if is_traced((sigma, v0)):
        raise refused("eigsh", "sigma" if is_traced(sigma) else "v0", "a traced value",
                      "it says where to look, and has no derivative")
    w, v = _eigenpairs(A.data, A.pattern, k, options, bool(return_eigenvectors))
    return (w, v) if return_eigenvectors else w


@in_programs
def _eigenpairs(
    data: Any, pattern: rows.Pattern, k: int, options: dict, vectors: bool
) -> tuple[Any, Any]:
    A, n = SparseArray(data, pattern), pattern.shape[0]
    # the same vectors at each run, whatever SciPy starts with: a derivative may be another run
    start = options["v0"]
    start = np.random.default_rng(0).normal(size=n) if start is None else start
    matrix = pattern.matrix(np.asarray(concrete(data)))

    def find() -> tuple[np.ndarray, np.ndarray]:
        w, v = sl.eigsh(matrix, k, **(options | {"v0": start}))
        if vectors:
            return w, v
        # SciPy has another order then
        alone = sl.eigsh(matrix, k, **(options | {"v0": start}), return_eigenvectors=False)
        order = np.argsort(w)[np.argsort(np.argsort(alone))]
        return w[order], v[:, order]

    w, v = once("solve", find)
    v = v * np.sign(v[np.argmax(np.abs(v), axis=0), np.arange(len(w))])
    pairs = [implicit("eigsh", _equations(A), np.append(vector, value))
             for value, vector in zip(w, v.T, strict=True)]
    columns = [limits.zero_or_nan(z[:-1], blurred) + z[:-1]
               for z, blurred in zip(pairs, _blur(w), strict=True)]
    return np.stack([z[-1] for z in pairs]), np.stack(columns, axis=1)


def _blur(w: np.ndarray) -> np.ndarray:
    """Which eigenvalues are so close to another that their vectors' slopes have no digits left."""
    gaps = np.abs(w[:, None] - w)
    near = limits.within(gaps, np.abs(w).max(initial=0.0), limits.ONCE)
    return np.any(near & ~np.eye(len(w), dtype=bool), axis=1)


def _equations(A: SparseArray) -> Callable:
    """What an eigenvector of length 1 and its eigenvalue obey, one after the other in a vector."""

    def residual(z: Any) -> AnyArray:
        v, w = z[:-1], z[-1]
        length = 0.5 * (np.sum(v * v) - 1)
        return np.concatenate([A @ v - w * v, length.reshape((1,))])

    return residual
