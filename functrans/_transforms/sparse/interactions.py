"""Pairs of inputs that meet in a row that is not linear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._transforms.matrices.memory import require_room
from functrans._transforms.sparse.sets import INSTEAD, Csr, Sets, Term, sparse

# Pairs that are kept until repeated ones are dropped.
PENDING = 1 << 23


class Interactions:
    """The pattern of a Hessian of ``inputs``, one half or both; ``matrix`` is symmetric."""

    def __init__(self, inputs: int, wanted: int | None = None):
        """Only pairs with one of the first ``wanted`` inputs are asked for; None: all."""
        self.inputs, self.wanted = inputs, wanted
        self.total: Any = None
        self.pending: list[Any] = []
        self.count = 0
        self.seen: dict[tuple, Any] = {}

    def concern(self, sets: Sequence[Sets | None]) -> bool:
        """Whether what depends on these sets can have pairs that are asked for."""
        if self.wanted is None:
            return True
        return any((s.matrix().indices < self.wanted).any() for s in sets if s is not None)

    def entrywise(self, a: Sets | None, b: Sets | None) -> None:
        """Of each entry of two arrays of one shape, all pairs of the two sets."""
        if a is None or b is None:
            return
        for s in a.terms:
            for t in b.terms:
                key = id(s.places), id(s.table), id(t.places), id(t.table)
                if key in self.seen or (*key[2:], *key[:2]) in self.seen:
                    continue
                self.seen[key] = s, t  # kept: their ids are the key
                self._meet(s, t)

    def _meet(self, s: Term, t: Term) -> None:
        if s.table is None and t.table is None:
            i, j = s.places.reshape(-1), t.places.reshape(-1)
            kept = (i > 0) & (j > 0)
            pairs = np.ones(np.count_nonzero(kept), bool), (i[kept] - 1, j[kept] - 1)
            self._add(sparse.coo_array(pairs, shape=(self.inputs, self.inputs)).tocsr())
            return
        a, b = [Sets(v.places.shape, self.inputs, (v,)).matrix() for v in (s, t)]
        self.products(a, b)

    def products(self, a: Csr, b: Csr) -> None:
        """Of each row of two matrices of sets, all pairs."""
        count = int(np.diff(a.indptr).astype(np.int64) @ np.diff(b.indptr).astype(np.int64))
        what = f"a pattern of up to {count:,} second derivatives"
        require_room("sparsity", what, 10 * count, INSTEAD)
        self._add(a.T.tocsr() @ b)

    def clique(self, a: Sets | None) -> None:
        """All pairs within the set of each entry."""
        self.entrywise(a, a)

    def _add(self, pairs: Any) -> None:
        self.pending.append(pairs)
        self.count += pairs.nnz
        if self.count > PENDING:
            self._collect()

    def _collect(self) -> None:
        total = self.total
        for pairs in self.pending:
            total = pairs if total is None else total + pairs
        self.total, self.pending, self.count = total, [], 0

    def matrix(self) -> Csr:
        """All pairs, both ways round."""
        self._collect()
        shape = self.inputs, self.inputs
        half = sparse.csr_array(shape, dtype=bool) if self.total is None else self.total
        both = (half + half.T).tocsr()
        both.sum_duplicates()
        return sparse.csr_array(
            (np.ones(len(both.indices), bool), both.indices, both.indptr), shape=shape
        )
