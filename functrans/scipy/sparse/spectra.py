"""Norms, inverses and eigenvalues of sparse matrices with traced entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import linalg

from functrans._core.bind import AnyArray
from functrans._ops import limits
from functrans._ops import sparse as rows
from functrans.scipy.implicit import concrete, implicit
from functrans.scipy.programs import in_programs
from functrans.scipy.public import is_traced, refused
from functrans.scipy.sparse.arrays import SparseArray, full
from functrans.scipy.sparse.systems import spsolve

sl: Any = linalg  # its types say less than its functions take


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
    w, v = sl.eigsh(matrix, k, **(options | {"v0": start}))
    if not vectors:  # SciPy has another order then
        alone = sl.eigsh(matrix, k, **(options | {"v0": start}), return_eigenvectors=False)
        order = np.argsort(w)[np.argsort(np.argsort(alone))]
        w, v = w[order], v[:, order]
    v = v * np.sign(v[np.argmax(np.abs(v), axis=0), np.arange(len(w))])
    pairs = [implicit("eigsh", _equations(A), np.append(vector, value))
             for value, vector in zip(w, v.T, strict=True)]
    columns = [limits.unmoved(z[:-1], blurred) + z[:-1]
               for z, blurred in zip(pairs, _blurred(w), strict=True)]
    return np.stack([z[-1] for z in pairs]), np.stack(columns, axis=1)


def _blurred(w: np.ndarray) -> np.ndarray:
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
