"""Rows of sparse matrices, which are a vector of entries and a constant pattern of their places.

The product is linear in the entries and in the dense factor; with ``sampled``, the products of rows
of two dense matrices at the places of a pattern, it makes a set that is closed under transposition.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from functrans._core.array import Aval
from functrans._core.bind import bind, cast
from functrans._kernels import large
from functrans._ops.declare import bilinear, linear, primitive
from functrans._ops.linalg import floating
from functrans._ops.structure import by_columns, minus


class Pattern:
    """The places of entries in a matrix: entry k is in row ``rows[k]``, column ``cols[k]``.

    Entries in the same place add up. Equal only to itself.
    """

    def __init__(self, rows: Any, cols: Any, shape: tuple[int, int]):
        self.rows, self.cols = [np.array(v, np.intp) for v in (rows, cols)]
        self.shape = shape
        self.factors: Any = None  # the last entries that were factored, and their factors
        self._transpose: Pattern | None = None
        self._by_rows: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def __repr__(self) -> str:
        return f"{len(self.rows)} entries of {self.shape}"

    @property
    def T(self) -> Pattern:
        """The places in the transpose."""
        if self._transpose is None:
            other = Pattern(self.cols, self.rows, (self.shape[1], self.shape[0]))
            other._transpose = self
            self._transpose = other
        return self._transpose

    def by_rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The order of the entries by rows, their columns, and where each row begins."""
        if self._by_rows is None:
            order = np.argsort(self.rows, kind="stable")
            counts = np.bincount(self.rows, minlength=self.shape[0])
            starts = np.concatenate([[0], np.cumsum(counts)])
            cols = self.cols[order]
            cols.flags.writeable = False  # SciPy sorts indices in place
            self._by_rows = order, cols, starts
        return self._by_rows

    def matrix(self, data: np.ndarray) -> Any:
        """SciPy's matrix with these entries."""
        from scipy import sparse  # lazy: slow to import

        order, cols, starts = self.by_rows()
        return sparse.csr_array((data[order], cols, starts), shape=self.shape)

    def factored(self, data: np.ndarray) -> Any:
        """SuperLU's factors, kept for the next system with the same entries."""
        from scipy.sparse import linalg  # lazy: slow to import

        kept = self.factors
        if kept is None or kept[0].dtype != data.dtype or not np.array_equal(kept[0], data):
            self.factors = kept = data.copy(), linalg.splu(self.matrix(data).tocsc())
        return kept[1]


class Constant:
    """A matrix of SciPy's whose entries are constants too, by which rows multiply without copies.

    It is one of two sides, whose other is its transpose. Each has a copy in the order of its rows:
    that which the derivative needs is made by ``prepare``, the other of it where it is asked for.
    Equal are the same sides of the same matrix.
    """

    __slots__ = ("_sides", "_turned", "dtype", "shape")

    def __init__(self, sides: _Sides, turned: bool):
        self._sides, self._turned = sides, turned
        self.shape, self.dtype = sides.shape[:: -1 if turned else 1], sides.dtype

    @classmethod
    def of(cls, A: Any) -> Constant:
        """The matrix as it is now."""
        made = cls(_Sides(A.shape, A.dtype if A.dtype.kind in "fc" else np.dtype(float)), False)
        made.prepare(A)
        return made

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, Constant) and self._sides is other._sides
                and self._turned == other._turned)

    def __hash__(self) -> int:
        return hash((id(self._sides), self._turned))

    def __repr__(self) -> str:
        return f"{self.dtype}[{self.shape[0]},{self.shape[1]}]"

    @property
    def T(self) -> Constant:
        """The transpose."""
        return Constant(self._sides, not self._turned)

    @property
    def is_finite(self) -> bool:
        """Whether no entry is infinite or NaN."""
        return self._sides.is_finite

    def prepare(self, A: Any) -> None:
        """Copy the transpose of ``A``, which is this matrix."""
        if self._sides.copies[not self._turned] is None:
            self._sides.put(not self._turned, A.T)

    def copy(self) -> Any:
        """SciPy's matrix, in memory that nobody else writes into."""
        copies, turned = self._sides.copies, self._turned
        if copies[turned] is None:
            self._sides.put(turned, copies[not turned].T)
        return copies[turned]

    @contextmanager
    def read_from(self, A: Any) -> Iterator[None]:
        """In the block, products of this thread are with ``A``, which is this matrix meanwhile."""
        mine = self._sides.mine
        before, mine.value = mine.value, (self._turned, A)
        try:
            yield
        finally:
            mine.value = before

    def current(self) -> Any:
        """SciPy's matrix: that of ``read_from``, or the copy."""
        turned, A = self._sides.mine.value
        return A if turned is self._turned and A.dtype == self.dtype else self.copy()

    def absolute(self) -> Constant:
        """The absolute values."""
        return Constant.of(abs(self.copy()))

    def ones(self) -> Constant:
        """1 for each entry other than 0."""
        return Constant.of((self.copy() != 0).astype(float))


class _OfThread(threading.local):
    value: tuple[Any, Any] = None, None


class _Sides:
    """Copies of a matrix, at 0, and its transpose, at 1."""

    def __init__(self, shape: tuple[int, int], dtype: np.dtype):
        self.shape, self.dtype = shape, dtype
        self.copies: list[Any] = [None, None]
        self.is_finite = False
        self.mine = _OfThread()

    def put(self, turned: bool, A: Any) -> None:
        """Copy a side, ``A``: by rows, or in diagonals or blocks where it is in such."""
        made = A.copy() if A.format in ("bsr", "dia") else A.tocsr(copy=True)
        self.copies[turned] = made.astype(self.dtype, copy=False)
        self.is_finite = bool(np.isfinite(made.data).all())

    def __reduce__(self) -> tuple:
        state = {"copies": self.copies, "is_finite": self.is_finite}
        return _Sides, (self.shape, self.dtype), state


# ---- products


def _plain_dtype(*dtypes: np.dtype) -> np.dtype:
    """A type that SciPy has sparse matrices of."""
    dtype = np.result_type(*dtypes)
    return np.dtype(np.float32) if dtype.kind == "V" or dtype == np.float16 else dtype


def _product(data, x, places):
    dtype = np.result_type(data.dtype, x.dtype)
    plain = _plain_dtype(dtype)
    y = places.matrix(data.astype(plain, copy=False)) @ x.astype(plain, copy=False)
    return np.asarray(y).astype(dtype, copy=False)


def _one_by_one(row, size, xs, batched, places):
    """A row applied to each entry of a batch."""
    if not size:
        avals = [Aval(x.shape[b:], x.dtype) for x, b in zip(xs, batched, strict=True)]
        y = row.abstract(*avals, places=places)
        return np.zeros((0, *y.shape), y.dtype)
    return np.stack([
        bind(row, *[x[i] if b else x for x, b in zip(xs, batched, strict=True)], places=places)
        for i in range(size)
    ])


def _product_batch(size, xs, batched, places):
    data, x = xs
    if batched[0]:
        return _one_by_one(product, size, xs, batched, places)
    return by_columns(lambda x: bind(product, data, x, places=places), x, size)


# row: the sparse matrix with entries ``data`` times a vector or matrix
product = bilinear(
    "sparse.product", _product,
    lambda ct, data, x, places: bind(sampled, ct, x, places=places),
    lambda ct, data, x, places: bind(product, data, ct, places=places.T),
    batch=_product_batch,
    abstract=lambda data, x, places: Aval(
        (places.shape[0], *x.shape[1:]), np.result_type(data.dtype, x.dtype)
    ),
)


def _constant_product(x, matrix):
    dtype = np.result_type(matrix.dtype, x.dtype)
    y = large.sparse_product(matrix.current(), x.astype(_plain_dtype(x.dtype), copy=False))
    return np.asarray(y).astype(dtype, copy=False)


# row: a constant sparse matrix times a vector or matrix; it holds no entries that a tape would save
constant_product = linear(
    "sparse.constant_product", _constant_product,
    lambda ct, x, matrix: cast(bind(constant_product, ct, matrix=matrix.T), x.dtype),
    batch=lambda size, xs, batched, matrix: by_columns(
        lambda x: bind(constant_product, x, matrix=matrix), xs[0], size
    ),
    abstract=lambda x, matrix: Aval(
        (matrix.shape[0], *x.shape[1:]), np.result_type(matrix.dtype, x.dtype)
    ),
)


def _sample(u, v, places):
    dtype = np.result_type(u.dtype, v.dtype)
    products = u[places.rows] * v[places.cols]
    return products if u.ndim == 1 else np.sum(products, axis=1).astype(dtype, copy=False)


# row: of each place, the product of row i of u with row j of v
sampled = bilinear(
    "sparse.sampled", _sample,
    lambda ct, u, v, places: bind(product, ct, v, places=places),
    lambda ct, u, v, places: bind(product, ct, u, places=places.T),
    batch=lambda size, xs, batched, places: _one_by_one(sampled, size, xs, batched, places),
    abstract=lambda u, v, places: Aval(
        (len(places.rows),), np.result_type(u.dtype, v.dtype)
    ),
)

# ---- systems


def _solve(data, b, places, solver):
    dtype = floating(data.dtype, b.dtype)
    plain = _plain_dtype(dtype)
    data, b = data.astype(plain, copy=False), b.astype(plain, copy=False)
    if not b.size:
        return np.zeros(b.shape, dtype)
    return np.asarray(solver(places, data, b)).astype(dtype, copy=False)


def directly(places: Pattern, data: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The solution by the factors of the matrix, or of its transpose where they are at hand."""
    if places.factors is None and places.T.factors is not None:
        return places.T.factored(data).solve(b, "T")
    return places.factored(data).solve(b)


def _solve_jvp(ts, x, xs, places, solver):
    (td, tb), (data, _) = ts, xs
    moved = minus(tb, None if td is None else bind(product, td, x, places=places))
    return bind(solve, data, moved, places=places, solver=solver)


def _solve_vjp(ct, x, xs, wanted, places, solver):
    z = bind(solve, xs[0], ct, places=places.T, solver=solver)
    return [-bind(sampled, z, x, places=places) if wanted[0] else None, z if wanted[1] else None]


def _solve_batch(size, xs, batched, places, solver):
    data, b = xs
    if batched[0] or solver is not directly:
        return solve.loop(size, xs, batched, places=places, solver=solver)
    return by_columns(
        lambda b: bind(solve, data, b, places=places, solver=solver), b, size
    )


# row: the solution of a system with the sparse matrix, by ``solver(places, data, b)``
solve = primitive(
    "sparse.solve", _solve, jvp=_solve_jvp, vjp=_solve_vjp, batch=_solve_batch, saves="xy",
    abstract=lambda data, b, places, solver: Aval(b.shape, floating(data.dtype, b.dtype)),
)
