"""Patterns that users give: read, and compared with the derivative along one random vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._core.aval import finfo
from functrans._transforms.arguments import Argnums, select
from functrans._transforms.sparse import compressed
from functrans._transforms.sparse.compressed import Product, hessian_product
from functrans._transforms.sparse.sets import Csr, sparse
from functrans._transforms.sparse.staged import Staged
from functrans.errors import (
    AnomalyError,
    ArgumentError,
    CheckError,
    NotDifferentiable,
    ShapeError,
    name_of,
)

# Rows that are computed in full, to find an entry that a pattern misses.
LOOKED_AT = 16
# Rounding, as of entries that cancel in a transform and back, in units of the largest row's.
NOISE = 1000


def pattern_given(who: str, f: Callable, given: Any, shape: tuple[int, int]) -> Csr:
    """The user's pattern, the places that a sparse array stores or where a dense one is not 0."""
    try:
        made = sparse.csr_array(given)
    except (TypeError, ValueError) as e:
        raise ArgumentError(
            f"{who}: sparsity must be a sparse array or a matrix of booleans, but is "
            f"{type(given).__name__}"
        ) from e
    if made.shape != shape:
        raise ShapeError(
            f"{who}: sparsity has the shape {made.shape}, but the matrix of `{name_of(f)}` has "
            f"{shape}"
        )
    made = sparse.csr_array(
        (np.ones(len(made.indices), bool), made.indices.copy(), made.indptr.copy()), shape=shape
    )
    made.sum_duplicates()
    return made


def require_symmetric(who: str, f: Callable, pattern: Csr) -> None:
    """Raise where an entry has no twin across the diagonal."""
    one_way = (pattern.astype(np.int8) - pattern.T.astype(np.int8)).tocoo()
    if one_way.count_nonzero():
        at = np.flatnonzero(one_way.data > 0)[0]
        i, j = (int(c[at]) for c in one_way.coords)
        raise ArgumentError(
            f"{who}: sparsity has the entry [{i}, {j}] but not [{j}, {i}], and the Hessian of "
            f"`{name_of(f)}` is symmetric"
        )


def probe(who: str, name: str, s: Staged, values: Sequence, matrix: Csr) -> None:
    """Raise where the matrix times a random vector is not the derivative along it."""
    along = hessian_product(s) if who == "sparse_hessian" else compressed.along(s)
    across = along if who == "sparse_hessian" else compressed.across(s)
    rows = _differing(along, values, matrix, 32 * float(finfo(matrix.dtype).eps))
    for i in rows.tolist():
        unit = np.zeros(matrix.shape[0])
        unit[i] = 1
        row = np.asarray(across(values, unit))
        kept = matrix.indices[matrix.indptr[i] : matrix.indptr[i + 1]]
        missed = np.abs(row)
        missed[kept] = 0
        j = int(np.argmax(missed))
        if missed[j] > 0:
            raise CheckError(
                f"{who}: sparsity misses the entry [{i}, {j}], where the derivative of `{name}` "
                f"is {row[j]:.6g}. Add it, or leave sparsity out: it is then read off the function."
            )


def require_holomorphic(who: str, name: str, run: Product, values: Sequence, matrix: Csr) -> None:
    """Raise where the matrix, whose entries are derivatives along 1, is not that along i too."""
    eps = float(finfo(matrix.dtype).eps)
    differ = _differing(run, values, matrix, eps**0.5, NOISE * eps)
    ends = zip(matrix.indptr[differ], matrix.indptr[differ + 1], strict=True)
    if any([np.isfinite(matrix.data[start:end]).all() for start, end in ends]):
        of = "the gradient of " if who == "sparse_hessian" else ""
        raise NotDifferentiable(
            f"{who}: {of}`{name}` is not holomorphic here: its derivatives along 1 and along i do "
            "not belong together, so no complex matrix holds them. Differentiate real and "
            "imaginary part as functions of real and imaginary part."
        )


def _differing(along: Product, values: Sequence, matrix: Csr, tolerance: float,
               noise: float = 0.0) -> np.ndarray:
    """Rows of the matrix whose product with a random vector is not the derivative along it, at
    most so many; those where this is NaN are not among them, nor those that differ by no more than
    ``noise`` times the largest."""
    random = np.random.default_rng(0)
    t = random.uniform(0.5, 1.5, matrix.shape[1]).astype(matrix.dtype)
    if matrix.dtype.kind == "c":
        t = t + 1j * random.uniform(0.5, 1.5, len(t)).astype(matrix.dtype)
    with np.errstate(all="ignore"):
        expected = np.asarray(along(values, t))
        found = matrix @ t
        size = abs(matrix) @ abs(t) + abs(expected)
        gap = abs(expected - found) / np.where(size > 0, size, 1)
        small = abs(expected - found) <= noise * np.max(size, initial=0.0, where=np.isfinite(size))
    rows = np.flatnonzero(~(gap <= tolerance) & ~np.isnan(expected) & ~small)
    worst = np.argsort(-np.nan_to_num(gap[rows], nan=np.inf), kind="stable")[:LOOKED_AT]
    return np.sort(rows[worst])


def find_nan(who: str, name: str, function: tuple[Callable, Argnums] | None, args: tuple) -> None:
    """Raise where a derivative first becomes NaN: one product, op by op, for observers to see."""
    from functrans._transforms.matrices import operators  # lazy: for debugging alone

    if function is not None:
        chosen = select(who, function[0], function[1], args, {})
        made = operators.of_hessian if who == "sparse_hessian" else operators.Products
        product = made(who, chosen.call, chosen.values, name)
        product.push(np.ones(product.shape[1], product.dtype))
    raise AnomalyError(
        f"{who}: the derivative of `{name}` has a NaN here, and no op of one product alone gives "
        "one. Look at single columns, with jvp."
    )
