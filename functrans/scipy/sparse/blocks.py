"""Sparse arrays of sparse arrays, of which one at least has traced entries."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from functrans._core.bind import Tracer
from functrans._ops.sparse import Pattern
from functrans.scipy.public import counterpart
from functrans.scipy.sparse.arrays import SparseArray, full, lifted

ss: Any = sparse  # its types say less than its functions take


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
