"""Sparse arrays with traced entries in constant places, joined block by block too."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
from scipy import sparse

from functrans._core.bind import AnyArray, Tracer, bind
from functrans._core.scipy_names import advice
from functrans._ops import sparse as rows
from functrans._ops.sparse import Pattern
from functrans.errors import ArgumentError, ConcretizationError, UnsupportedError, user_line
from functrans.numpy.structure import as_floats, as_operand
from functrans.scipy.public import Container, counterpart, is_traced
from functrans.scipy.sparse import constants

# ---- Sparse arrays with traced entries in constant places
#
# Entries in the same place add up, as in SciPy's format COO; the kind is a name, and says whether
# operators are those of SciPy's arrays or of its older matrices, whose ``*`` is ``@``.

ss: Any = sparse  # its types say less than its functions take


class SparseArray(Container):
    """A sparse matrix whose entries are traced; operators are those of SciPy's sparse arrays."""

    __array_ufunc__ = None  # NumPy's arrays leave operators to it

    def __init__(self, data: Any, pattern: rows.Pattern, kind: str = "csr_array"):
        self.data, self.pattern, self.kind = data, pattern, kind

    shape = property(lambda self: self.pattern.shape)
    dtype = property(lambda self: self.data.dtype)
    format = property(lambda self: self.kind[:3])
    is_matrix = property(lambda self: self.kind.endswith("matrix"))
    nnz = property(lambda self: self.data.shape[0])
    ndim = 2

    def __repr__(self) -> str:
        return f"<sparse {self.dtype}[{self.shape[0]},{self.shape[1]}], {self.nnz} entries, traced>"

    def __getattr__(self, name: str) -> NoReturn:
        reached = None if name.startswith("_") else advice(self)
        if reached is not None:
            raise ConcretizationError(reached)
        if hasattr(ss.csr_array, name) and not name.startswith("__"):
            raise UnsupportedError(
                f"{user_line()}: a sparse array with traced entries has no {name}. It has "
                "products, sums, scaling, power(), .T, diagonal(), trace() and toarray()."
            )
        raise AttributeError(f"'SparseArray' object has no attribute {name!r}")

    def _with(self, data: Any) -> SparseArray:
        return SparseArray(data, self.pattern, self.kind)

    @property
    def T(self) -> SparseArray:
        """The transpose."""
        return SparseArray(self.data, self.pattern.T, self.kind)

    def transpose(self) -> SparseArray:
        """The transpose."""
        return self.T

    def tocsr(self, copy: bool = False) -> SparseArray:
        """Itself: it has one format."""
        return self

    tocsc = tocoo = copy = tocsr

    def toarray(self) -> AnyArray:
        """The matrix with its zeros."""
        p = self.pattern
        flat = np.zeros(p.shape[0] * p.shape[1], self.dtype)
        return _add(flat, p.rows * p.shape[1] + p.cols, self.data).reshape(p.shape)

    todense = toarray

    def diagonal(self) -> AnyArray:
        """The entries of the main diagonal."""
        on, = np.nonzero(self.pattern.rows == self.pattern.cols)
        zeros = np.zeros(min(self.shape), self.dtype)
        return _add(zeros, self.pattern.rows[on], self.data[on])

    def trace(self, offset: int = 0) -> AnyArray:
        """The sum of a diagonal."""
        return np.sum(self.data[np.flatnonzero(
            self.pattern.cols - self.pattern.rows == offset)])

    def sum(self, axis: int | None = None, dtype: Any = None, out: Any = None) -> AnyArray:
        """The sum of all entries, or of the columns (axis 0) or rows (axis 1)."""
        if dtype is not None or out is not None:
            raise UnsupportedError(f"{user_line()}: the sum of a sparse array with traced entries "
                                   "takes no dtype= or out=")
        if axis is None:
            return np.sum(self.data)
        where = self.pattern.rows if axis % 2 else self.pattern.cols
        y = _add(np.zeros(self.shape[1 - axis % 2], self.dtype), where, self.data)
        return y.reshape((-1, 1) if axis % 2 else (1, -1)) if self.is_matrix else y

    def power(self, n: Any, dtype: Any = None) -> SparseArray:
        """Each entry to a power other than 0, of entries in places of their own."""
        if np.ndim(n) or n == 0 or not self.is_simple:
            raise UnsupportedError(
                f"{user_line()}: powers of entries with several parts, or by {n!r}, are not known "
                "here. Take A.toarray()**n."
            )
        return self._with(self.data**n if dtype is None else self.data.astype(dtype) ** n)

    @property
    def is_simple(self) -> bool:
        """Whether each entry has a place of its own."""
        places = self.pattern.rows * self.shape[1] + self.pattern.cols
        return len(np.unique(places)) == len(places)

    # ---- products

    def __matmul__(self, other: Any) -> SparseArray | AnyArray:
        if isinstance(other, SparseArray) or ss.issparse(other):
            return _times_sparse(self, lifted(other))
        x = as_operand(other)
        if x.ndim not in (1, 2) or x.shape[0] != self.shape[1]:
            raise ValueError(f"matmul: dimension mismatch with signature (n,k={self.shape[1]}),"
                             f"(k={x.shape[0] if x.ndim else 0},m)->(n,m)")
        return self._times(as_floats(x))

    def _times(self, x: Any) -> AnyArray:
        return bind(rows.product, self.data, x, places=self.pattern)

    def __rmatmul__(self, other: Any) -> SparseArray | AnyArray:
        if isinstance(other, SparseArray) or ss.issparse(other):
            return lifted(other) @ self
        x = as_operand(other)
        return self.T @ x if x.ndim == 1 else (self.T @ x.T).T

    def dot(self, other: Any) -> SparseArray | AnyArray:
        """The product with a vector or matrix, or with a number."""
        return self * other if np.ndim(other) == 0 else self @ other

    def multiply(self, other: Any) -> SparseArray:
        """Each entry times a number, or that of an array in its place; arrays broadcast."""
        if isinstance(other, SparseArray) or ss.issparse(other):
            raise UnsupportedError(
                f"{user_line()}: two sparse arrays are multiplied entry by entry, of which one has "
                "traced entries. Make the other dense: A.multiply(B.toarray())."
            )
        x = as_operand(other)
        if x.ndim == 0:
            return self._with(self.data * x)
        return self._with(self.data * np.broadcast_to(x, self.shape)[self._places])

    @property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        return self.pattern.rows, self.pattern.cols

    def __mul__(self, other: Any) -> SparseArray | AnyArray:
        return self @ other if self._multiplies_matrices(other) else self.multiply(other)

    def __rmul__(self, other: Any) -> SparseArray | AnyArray:
        return self.__rmatmul__(other) if self._multiplies_matrices(other) else self * other

    def _multiplies_matrices(self, other: Any) -> bool:
        dense = not (isinstance(other, SparseArray) or ss.issparse(other))
        return self.is_matrix and not (dense and as_operand(other).ndim == 0)

    def __truediv__(self, other: Any) -> SparseArray:
        x = as_operand(other)
        if x.ndim == 0:
            return self._with(self.data / x)
        return self._with(self.data / np.broadcast_to(x, self.shape)[self._places])

    def __neg__(self) -> SparseArray:
        return self._with(-self.data)

    # ---- sums

    def __add__(self, other: Any) -> SparseArray | AnyArray:
        if not (isinstance(other, SparseArray) or ss.issparse(other)):
            x = as_operand(other)
            return self if x.ndim == 0 and not is_traced(x) and x == 0 else self.toarray() + x
        other = lifted(other)
        if other.shape != self.shape:
            raise ValueError(f"inconsistent shapes {self.shape} and {other.shape}")
        a, b = self.pattern, other.pattern
        both = rows.Pattern(np.concatenate([a.rows, b.rows]), np.concatenate([a.cols, b.cols]),
                            self.shape)
        return SparseArray(np.concatenate([self.data, other.data]), both, self.kind)

    __radd__ = __add__

    def __sub__(self, other: Any) -> SparseArray | AnyArray:
        return self + (-other)

    def __rsub__(self, other: Any) -> SparseArray | AnyArray:
        return -self + other


def _add(zeros: np.ndarray, index: np.ndarray, data: Any) -> AnyArray:
    places = rows.Pattern(index, np.arange(len(index)), (len(zeros), len(index)))
    return bind(rows.product, np.ones(len(index), zeros.dtype), data, places=places)


def _times_sparse(a: SparseArray, b: SparseArray) -> SparseArray:
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"matmul: dimension mismatch with signature (n,k={a.shape[1]}),"
                         f"(k={b.shape[0]},m)->(n,m)")
    order = np.argsort(b.pattern.rows, kind="stable")
    starts = np.searchsorted(b.pattern.rows[order], np.arange(b.shape[0] + 1))
    first, counts = starts[a.pattern.cols], np.diff(starts)[a.pattern.cols]
    i = np.repeat(np.arange(a.nnz), counts)  # of each pair of entries that meet, the first
    begun = np.cumsum(counts) - counts
    j = order[np.repeat(first - begun, counts) + np.arange(len(i))]
    places = rows.Pattern(a.pattern.rows[i], b.pattern.cols[j], (a.shape[0], b.shape[1]))
    return SparseArray(a.data[i] * b.data[j], places, a.kind)


class ConstantArray(SparseArray):
    """One of SciPy's. Its entries and their places are listed where more than a product is asked.
    """

    def __init__(self, A: Any):
        self._A, self.kind = A, type(A).__name__
        self._kept = constants.look_up(A)
        self._matrix = self._kept.matrix

    shape = property(lambda self: self._A.shape)
    dtype = property(lambda self: self._matrix.dtype)
    nnz = property(lambda self: self._A.nnz)
    data = property(lambda self: self._kept.entries(self._A)[0])
    pattern = property(lambda self: self._kept.entries(self._A)[1])

    @property
    def T(self) -> SparseArray:
        return ConstantArray(self._A.T)

    def _times(self, x: Any) -> AnyArray:
        if not self._matrix.is_finite:  # whose entries may meet zeros
            return super()._times(x)
        with self._matrix.read_from(self._A):
            return bind(rows.constant_product, x, matrix=self._matrix)


def lifted(A: Any) -> SparseArray:
    """``A``, of SciPy's or with traced entries, as an array with traced entries."""
    if isinstance(A, SparseArray):
        return A
    if A.ndim != 2:
        raise ValueError(f"a sparse array has two axes here, not {A.ndim}")
    return ConstantArray(A)


def with_operator(name: str, x: Any, A: Any) -> Any:
    """What the operator of this name makes of a traced value and a sparse array."""
    A = lifted(A)
    if name not in OPERATORS:
        raise ArgumentError(f"{user_line()}: a sparse array has no operator {name} with {x!r}; it "
                            "has @, *, /, + and -")
    return OPERATORS[name](A, x)


OPERATORS: dict[str, Callable] = {
    "matmul": lambda A, x: A.__rmatmul__(x),
    "rmatmul": lambda A, x: A @ x,
    "mul": lambda A, x: A.__rmul__(x),
    "rmul": lambda A, x: A * x,
    "rtruediv": lambda A, x: A / x,
    "add": lambda A, x: A + x,
    "radd": lambda A, x: A + x,
    "sub": lambda A, x: -A + x,
    "rsub": lambda A, x: A - x,
}

# ---- constructors


def _compress(name: str, by_rows: bool) -> Callable:
    """The constructor of a format that lists entries row by row, or column by column."""

    def make(arg1, shape=None, dtype=None, copy=False, *, maxprint=None):
        if isinstance(arg1, SparseArray):
            return arg1
        if isinstance(arg1, tuple) and len(arg1) == 3:
            data, indices, starts = arg1
            indices, starts = np.asarray(indices), np.asarray(starts)
            # SciPy checks the places
            like = getattr(ss, name)((np.ones(len(indices)), indices, starts), shape=shape)
            across = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
            places = (across, indices) if by_rows else (indices, across)
            return _make(data, rows.Pattern(*places, like.shape), dtype, name)
        return _from_parts(name, arg1, shape, dtype)

    return _name(make, name)


def _from_parts(name: str, arg1: Any, shape: Any, dtype: Any) -> SparseArray:
    if isinstance(arg1, tuple) and len(arg1) == 2 and isinstance(arg1[1], tuple | list):
        data, places = arg1
        like = ss.coo_array((np.ones(len(places[0])), tuple(map(np.asarray, places))), shape=shape)
        return _make(data, rows.Pattern(like.coords[0], like.coords[1], like.shape), dtype, name)
    dense = as_operand(arg1)
    if dense.ndim != 2:
        raise ArgumentError(
            f"{user_line()}: {name} got {arg1!r}. With traced entries it is made of (data, "
            "indices, indptr) or (data, (row, col)), whose places are constants, or of a matrix."
        )
    entries = full(dense)
    return _make(entries.data, entries.pattern, dtype, name)


def are_ours(args: tuple, kwargs: dict) -> bool:
    """Whether an argument is a sparse array with traced entries, or a traced value is in one."""
    found = any([isinstance(x, SparseArray) for x in (*args, *kwargs.values())])
    return found or is_traced((args, kwargs))


def full(dense: Any, kind: str = "csr_array") -> SparseArray:
    """A matrix as a sparse one with an entry in each place: of none it is known to be 0."""
    i, j = np.indices(dense.shape).reshape(2, -1)
    return SparseArray(dense.reshape((-1,)), rows.Pattern(i, j, dense.shape), kind)


def _make(data: Any, pattern: rows.Pattern, dtype: Any, name: str) -> SparseArray:
    data = as_operand(data)
    if data.shape != pattern.rows.shape:
        raise ValueError("row, column, and data array must all be the same length")
    data = data.astype(dtype) if dtype is not None else data
    return SparseArray(data, pattern, name)


def _coordinates(name: str) -> Callable:
    def make(arg1, shape=None, dtype=None, copy=False, *, maxprint=None):
        return arg1 if isinstance(arg1, SparseArray) else _from_parts(name, arg1, shape, dtype)

    return _name(make, name)


def _name(make: Callable, name: str) -> Callable:
    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"``scipy.sparse.{name}``, of traced entries in constant places too."
    return counterpart(getattr(ss, name), when=are_ours)(make)


csr_array, csr_matrix = _compress("csr_array", True), _compress("csr_matrix", True)
csc_array, csc_matrix = _compress("csc_array", False), _compress("csc_matrix", False)
coo_array, coo_matrix = _coordinates("coo_array"), _coordinates("coo_matrix")


def _single(diagonals: Any) -> Any:
    """The one diagonal, which may be in a list."""
    if isinstance(diagonals, Tracer) and diagonals.ndim == 1:
        return diagonals
    first, *_ = diagonals
    return diagonals if np.ndim(first) == 0 else first


def _diagonals(diagonals: Any, offsets: Any, shape: Any, dtype: Any, kind: str) -> SparseArray:
    if np.ndim(offsets) == 0:
        diagonals = [_single(diagonals)]
        offsets = [offsets]
    parts = [np.atleast_1d(as_operand(d)) for d in diagonals]
    if shape is None:
        n = len(parts[0]) + abs(int(offsets[0]))
        shape = (n, n)
    data, i, j = [], [], []
    for d, k in zip(parts, offsets, strict=True):
        length = min(shape[0] + min(k, 0), shape[1] - max(k, 0))
        if d.shape[0] not in (1, length):
            raise ValueError(f"Diagonal length (index {len(data)}: {d.shape[0]} at offset {k}) "
                             f"does not agree with array size ({shape[0]}, {shape[1]}).")
        data.append(np.broadcast_to(d, (length,)))
        i.append(np.arange(length) - min(k, 0))
        j.append(np.arange(length) + max(k, 0))
    pattern = rows.Pattern(np.concatenate(i), np.concatenate(j), tuple(shape))
    return _make(np.concatenate(data), pattern, dtype, kind)


@counterpart(ss.diags_array)
def diags_array(diagonals, /, *, offsets: Any = 0, shape=None, format=None, dtype=None):
    """The array with these diagonals."""
    return _diagonals(diagonals, offsets, shape, dtype, "dia_array")


@counterpart(ss.diags)
def diags(diagonals, offsets: Any = 0, shape=None, format=None, dtype=None):
    """The matrix with these diagonals."""
    return _diagonals(diagonals, offsets, shape, dtype, "dia_matrix")


# ---- Sparse arrays of sparse arrays, of which one at least has traced entries


def _is_traced(x: Any) -> bool:
    if isinstance(x, list | tuple) or (isinstance(x, np.ndarray) and x.dtype == object):
        return any(map(_is_traced, x))
    return isinstance(x, SparseArray | Tracer)


_or_scipy = functools.partial(counterpart, when=lambda args, kwargs: _is_traced(args))


def _as_sparse(x: Any) -> SparseArray:
    """A sparse array; of a dense one, all entries."""
    if isinstance(x, SparseArray) or ss.issparse(x):
        return lifted(x)
    return full(np.atleast_2d(x), "coo_array")


@_or_scipy(ss.kron)
def kron(A, B, format=None):
    """The Kronecker product."""
    A, B = _as_sparse(A), _as_sparse(B)
    (m, n), p, q = B.shape, A.pattern, B.pattern
    rows, cols = p.rows[:, None] * m + q.rows, p.cols[:, None] * n + q.cols
    places = Pattern(rows.ravel(), cols.ravel(), (A.shape[0] * m, A.shape[1] * n))
    return SparseArray((A.data[:, None] * B.data).reshape(-1), places, A.kind)


@_or_scipy(ss.block_array)
def block_array(blocks, *, format=None, dtype=None):
    """The array of blocks in rows and columns; None stands for zeros."""
    grid = [[None if b is None else _as_sparse(b) for b in row] for row in blocks]
    heights = [_common("rows", i, [b.shape[0] for b in row if b is not None])
               for i, row in enumerate(grid)]
    widths = [_common("columns", j, [b.shape[1] for b in column if b is not None])
              for j, column in enumerate(zip(*grid, strict=True))]
    tops, lefts = [np.cumsum([0, *sizes]) for sizes in (heights, widths)]
    found = [(b, tops[i], lefts[j]) for i, row in enumerate(grid) for j, b in enumerate(row)
             if b is not None]
    places = Pattern(np.concatenate([b.pattern.rows + top for b, top, _ in found]),
                     np.concatenate([b.pattern.cols + left for b, _, left in found]),
                     (int(tops[-1]), int(lefts[-1])))
    data = np.concatenate([b.data for b, _, _ in found])
    return SparseArray(data if dtype is None else data.astype(dtype), places, found[0][0].kind)


def _common(what: str, k: int, sizes: Sequence[int]) -> int:
    if not sizes:
        raise ValueError(f"blocks[{k}]: all blocks of these {what} are None")
    if min(sizes) != max(sizes):
        raise ValueError(f"blocks[{k}] has incompatible {what}: {sorted(set(sizes))}")
    return sizes[0]


@_or_scipy(ss.bmat)
def bmat(blocks, format=None, dtype=None):
    """The matrix of blocks in rows and columns; None stands for zeros."""
    return block_array(blocks, dtype=dtype)


@_or_scipy(ss.vstack)
def vstack(blocks, format=None, dtype=None):
    """Arrays one below the other."""
    return block_array([[b] for b in blocks], dtype=dtype)


@_or_scipy(ss.hstack)
def hstack(blocks, format=None, dtype=None):
    """Arrays side by side."""
    return block_array([list(blocks)], dtype=dtype)


@_or_scipy(ss.block_diag)
def block_diag(mats, format=None, dtype=None):
    """Arrays along the diagonal."""
    n = len(mats)
    return block_array([[b if i == j else None for j in range(n)] for i, b in enumerate(mats)],
                       dtype=dtype)
