"""Systems of sparse matrices after ``scipy.sparse.linalg``, by the implicit rule.

The derivative of a solution of A x = b is that of a system with A, and back with its transpose, by
the same solver; SuperLU's factors are kept. Matrices that are known by their products alone take
``functrans.scipy.implicit``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

from functrans._core.bind import AnyArray, bind
from functrans._ops import sparse as rows
from functrans.errors import SolverError, UnsupportedError, user_line
from functrans.numpy.structure import as_floats, as_operand
from functrans.scipy.implicit import concrete, implicit
from functrans.scipy.public import counterpart, is_traced
from functrans.scipy.sparse.arrays import SparseArray, are_ours, full, lifted

sl: Any = linalg  # its types say less than its functions take


def _matrix(A: Any) -> SparseArray:
    """``A`` as a sparse array; a dense one has an entry in each place."""
    return lifted(A) if isinstance(A, SparseArray) or sparse.issparse(A) else full(as_operand(A))


def _square(A: SparseArray, n: int) -> None:
    if A.shape[0] != A.shape[1]:
        raise ValueError(f"matrix must be square (has shape {A.shape})")
    if A.shape[0] != n:
        raise ValueError(f"matrix - rhs dimension mismatch ({A.shape} - {n})")


def _solved(A: SparseArray, b: Any, solver: Callable) -> AnyArray:
    b = as_floats(b)
    return bind(rows.solve, A.data, b, places=A.pattern, solver=solver)


@counterpart(sl.spsolve, when=are_ours)
def spsolve(A, b, permc_spec=None, use_umfpack=True):
    """The solution of ``A @ x = b``, differentiated in the entries of ``A`` and in ``b``."""
    b = b.toarray() if isinstance(b, SparseArray) or sparse.issparse(b) else as_operand(b)
    A = _matrix(A)
    _square(A, b.shape[0])
    x = _solved(A, b, rows.directly)
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
        return _solved(A, b, rows.directly)


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
        super().__init__(lifted(A))
        self.factors = factors

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
        return _solved(A, b, _iteration(name, tuple(sorted(options.items())))), 0

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
