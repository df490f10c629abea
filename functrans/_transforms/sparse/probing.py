"""Patterns that users give: read, and compared with the derivative along one random vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._compile.ir.program import evaluate
from functrans._core.aval import finfo
from functrans._transforms.forward.api import jvp
from functrans._transforms.reverse.api import vjp
from functrans._transforms.reverse.grad import grad
from functrans._transforms.sparse.sets import Csr, sparse
from functrans._transforms.sparse.staged import Staged
from functrans.errors import ArgumentError, CheckError, ShapeError, name_of

# Rows that are computed in full, to find an entry that a pattern misses.
LOOKED_AT = 16


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
    source = s.source
    along = np.random.default_rng(0).uniform(0.5, 1.5, source.size)
    function = _function(who, s, values)
    x = np.asarray(values[s.at])
    t = along.astype(source.dtype).reshape(source.shape)
    with np.errstate(all="ignore"):
        expected = np.asarray(jvp(function, (x,), (t,))[1]).reshape(-1)
        found = matrix @ t.reshape(-1)
        size = abs(matrix) @ abs(t.reshape(-1)) + abs(expected)
        gap = abs(expected - found) / np.where(size > 0, size, 1)
    suspect = ~(gap <= 32 * float(finfo(matrix.dtype).eps)) & ~(np.isnan(expected))
    rows = np.flatnonzero(suspect)
    worst = np.argsort(-np.nan_to_num(gap[rows], nan=np.inf), kind="stable")[:LOOKED_AT]
    rows = np.sort(rows[worst])
    if not len(rows):
        return
    _, pull = vjp(function, x)
    for i in rows.tolist():
        unit = np.zeros(matrix.shape[0], expected.dtype)
        unit[i] = 1
        row = np.asarray(pull(unit.reshape(_shape(who, s)))[0]).reshape(-1)
        kept = matrix.indices[matrix.indptr[i] : matrix.indptr[i + 1]]
        missed = np.abs(row)
        missed[kept] = 0
        j = int(np.argmax(missed))
        if missed[j] > 0:
            raise CheckError(
                f"{who}: sparsity misses the entry [{i}, {j}], where the derivative of `{name}` "
                f"is {row[j]:.6g}. Add it, or leave sparsity out: it is then read off the function."
            )


def _function(who: str, s: Staged, values: Sequence) -> Callable:
    def function(x: Any) -> Any:
        return evaluate(s.program, [*values[: s.at], x, *values[s.at + 1 :]])[0]

    if who == "sparse_hessian":
        return grad(lambda x: function(x).reshape(()))
    return function


def _shape(who: str, s: Staged) -> tuple[int, ...]:
    return s.source.shape if who == "sparse_hessian" else s.target.shape


__all__ = ["pattern_given", "probe", "require_symmetric"]
