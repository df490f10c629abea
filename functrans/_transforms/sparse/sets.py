"""The inputs that each entry of an array depends on, as sets of their numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from functrans._transforms.matrices.memory import require_room

# ---- The inputs that each entry of an array depends on, as sets of their numbers
#
# A value's sets are unions of terms. A term names, for each entry, a row of a table of sets; the
# table of most terms is the identity, whose row k is the input k alone. So slices, broadcasts and
# sums of an input stay arrays of numbers, a band is as many terms as it has diagonals, and entries
# that depend on the same many inputs share one row. Rows are counted from 1; 0 is the empty set.

# SciPy declares no types for its sparse arrays: neither their shapes nor what operators give.
sparse: Any = scipy.sparse
Csr = Any
# Terms from which on a value's sets become rows of one table.
MANY = 12
# A value that depends on inputs and is not known.
UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda self: "unknown"})()
INSTEAD = "A pattern as full as this is no gain: jvp, vjp and hvp give products without the matrix."


class Term(NamedTuple):
    """``places``: for each entry, the row of ``table``; None is the identity."""

    places: np.ndarray
    table: Csr | None


class Sets(NamedTuple):
    """For each entry of an array of ``shape``, a set of the numbers below ``inputs``."""

    shape: tuple[int, ...]
    inputs: int
    terms: tuple[Term, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def entries(self) -> int:
        """Numbers in all sets, some perhaps more than once."""
        return sum([
            int(np.count_nonzero(t.places)) if t.table is None
            else int(np.diff(t.table.indptr)[t.places].sum()) for t in self.terms
        ])

    def moved(self, move: Callable[[np.ndarray], np.ndarray]) -> Sets:
        """The sets of what ``move``, which fills up with zeros, makes of the array."""
        terms = tuple([Term(move(t.places), t.table) for t in self.terms])
        return Sets(terms[0].places.shape, self.inputs, terms)

    def broadcast_to(self, shape: tuple[int, ...]) -> Sets:
        return self if shape == self.shape else self.moved(lambda x: np.broadcast_to(x, shape))

    def reshaped(self, shape: tuple[int, ...]) -> Sets:
        return self if shape == self.shape else self.moved(lambda x: x.reshape(shape))

    def only(self, kept: np.ndarray) -> Sets:
        """Empty sets where not ``kept``, which broadcasts with the array."""
        return self.moved(lambda x: np.where(kept, x, x.dtype.type(0)))

    def matrix(self) -> Csr:
        """The sets as rows of a boolean matrix, sorted and without repeats."""
        return _join([_rows(t, self.inputs) for t in self.terms], (self.size, self.inputs))

    def united(self, groups: np.ndarray, shape: tuple[int, ...]) -> Sets:
        """The union of the entries of each group; ``groups`` are numbers of entries of ``shape``,
        below 0 where an entry is in none."""
        groups = np.broadcast_to(groups, self.shape).reshape(-1)
        count = math.prod(shape)
        parts = [_rows(Term(t.places.reshape(-1), t.table), self.inputs, groups, count)
                 for t in self.terms]
        return of_matrix(_join(parts, (count, self.inputs)), shape)

    def united_along(self, axes: Sequence[int]) -> Sets:
        """The union along axes, which are dropped."""
        axes = [a % len(self.shape) for a in axes]
        kept = [1 if i in axes else n for i, n in enumerate(self.shape)]
        shape = tuple([n for i, n in enumerate(self.shape) if i not in axes])
        if all(self.shape[a] == 1 for a in axes):
            return self.reshaped(shape)
        return self.united(np.arange(math.prod(shape)).reshape(kept), shape)

    def applied(self, local: Any, shape: tuple[int, ...]) -> Sets:
        """The sets of an array of ``shape`` whose entries depend on those of this one by the
        sparse matrix ``local``."""
        local, rows = sparse.csr_array(local), self.matrix()
        local.eliminate_zeros()  # as products of Kronecker may have
        _require_room(int(np.diff(rows.indptr)[local.indices].sum()))
        return of_matrix(_boolean(local) @ rows, shape)


def identity(shape: tuple[int, ...], first: int, inputs: int) -> Sets:
    """Of inputs themselves, the entries numbered from ``first`` on."""
    dtype = np.int32 if inputs < 2**31 - 1 else np.int64
    places = np.arange(first + 1, first + 1 + math.prod(shape), dtype=dtype).reshape(shape)
    return Sets(shape, inputs, (Term(places, None),))


def of_matrix(rows: Csr, shape: tuple[int, ...]) -> Sets:
    """The rows of a boolean matrix as the sets of an array."""
    count, inputs = rows.shape
    table = sparse.csr_array(
        (rows.data, rows.indices, np.concatenate([rows.indptr[:1], rows.indptr])),
        shape=(count + 1, inputs),
    )
    places = np.arange(1, count + 1, dtype=np.int32 if count < 2**31 - 1 else np.int64)
    return Sets(shape, inputs, (Term(places.reshape(shape), table),))


def union(parts: Sequence[Sets | None]) -> Sets | None:
    """The union entry by entry, of arrays of one shape; None is empty."""
    some = [p for p in parts if p is not None]
    if len(some) < 2:
        return some[0] if some else None
    terms: list[Term] = []
    for t in (t for p in some for t in p.terms):
        for i, old in enumerate(terms):
            both = _merge(old, t)
            if both is not None:
                terms[i] = both
                break
        else:
            terms.append(t)
    joined = Sets(some[0].shape, some[0].inputs, tuple(terms))
    return joined if len(terms) <= MANY else of_matrix(joined.matrix(), joined.shape)


def _merge(a: Term, b: Term) -> Term | None:
    """The union as one term, where no entry names two rows."""
    if a.table is not b.table:
        return None
    if a.places is b.places:
        return a
    greater = np.maximum(a.places, b.places)
    fits = ((a.places == b.places) | (a.places == 0) | (b.places == 0)).all()
    return Term(greater, a.table) if fits else None


def combine(parts: Sequence[Sets | None], shapes: Sequence[tuple],
             join: Callable[..., np.ndarray]) -> Sets | None:
    """The sets of what ``join`` makes of several arrays, whose entries it moves and does not mix.
    """
    some = [p for p in parts if p is not None]
    if not some:
        return None
    table, offsets = _stack([t.table for p in some for t in p.terms])
    # layer k has the k-th term of each part that is of the identity, or of the table
    layers: dict[tuple[bool, int], dict[int, np.ndarray]] = {}
    for i, part in enumerate(parts):
        depth = {True: -1, False: -1}
        for t in part.terms if part is not None else ():
            plain = t.table is None
            depth[plain] += 1
            places = t.places if plain else _offset(t.places, offsets[id(t.table)])
            layers.setdefault((plain, depth[plain]), {})[i] = places
    zero = np.int32(0)
    terms = tuple([
        Term(join(*[np.asarray(layer.get(i, np.broadcast_to(zero, s)))
                    for i, s in enumerate(shapes)]), None if plain else table)
        for (plain, _), layer in layers.items()
    ])
    out = Sets(terms[0].places.shape, some[0].inputs, terms)
    return out if len(terms) <= MANY else of_matrix(out.matrix(), out.shape)


def _stack(tables: Sequence[Csr | None]) -> tuple[Csr | None, dict[int, int]]:
    """Several tables as one, and from where on the rows of each are in it."""
    unique = {id(t): t for t in tables if t is not None}
    if len(unique) < 2:
        return next(iter(unique.values()), None), dict.fromkeys(unique, 0)
    ends = np.cumsum([0, *[t.shape[0] for t in unique.values()]])
    whole = sparse.vstack(list(unique.values()), format="csr")
    return whole, dict(zip(unique, ends.tolist(), strict=False))


def _offset(places: np.ndarray, by: int) -> np.ndarray:
    if not by:
        return places
    return np.where(places > 0, places + np.intp(by), 0)


# ---- matrices


def _rows(t: Term, inputs: int, groups: np.ndarray | None = None, count: int = 0) -> Any:
    """The sets of a term as a matrix, a row an entry or, if given, a group."""
    places = t.places.reshape(-1)
    if groups is None:
        groups, count = np.arange(places.size, dtype=places.dtype), places.size
    kept = (places > 0) & (groups >= 0)
    if not kept.all():
        groups, places = groups[kept], places[kept]
    shape = (count, inputs if t.table is None else t.table.shape[0])
    columns = places - 1 if t.table is None else places
    chosen = sparse.coo_array((np.ones(len(columns), bool), (groups, columns)), shape=shape)
    if t.table is None:
        return chosen.tocsr()
    chosen = chosen.tocsr()
    chosen.sum_duplicates()
    _require_room(int(np.diff(t.table.indptr)[chosen.indices].sum()))
    return chosen @ t.table


def _require_room(count: int) -> None:
    """Raise where a product of matrices may make more entries than there is memory for."""
    require_room("sparsity", f"a pattern of up to {count:,} entries", 10 * count, INSTEAD)


def _boolean(a: Any) -> Any:
    return sparse.csr_array((np.ones(len(a.indices), bool), a.indices, a.indptr), shape=a.shape)


def _join(parts: Sequence[Any], shape: tuple[int, int]) -> Csr:
    """The union of matrices, each row sorted and without repeats."""
    if not parts:
        return sparse.csr_array(shape, dtype=bool)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    total = _boolean(total)
    total.sum_duplicates()
    return total


# ---- Pairs of inputs that meet in a row that is not linear

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
        count = min(count, self.inputs**2)  # of repeated pairs one is left
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


# ---- Patterns as pictures: in text, and by matplotlib

# Rows and columns of the picture, at most, and what stands for entries in so many eighths of the
# places of a cell.
HEIGHT, WIDTH = 16, 48
FILLED = " .:-=+*#@"


def text(pattern: Csr) -> str:
    """The pattern as text: each entry where it is small, else how full each part of it is."""
    m, n = pattern.shape
    if not m or not n:
        return ""
    height, width = min(m, HEIGHT), min(n, WIDTH)
    rows = np.repeat(np.arange(m), np.diff(pattern.indptr)) * height // m
    columns = pattern.indices.astype(np.int64) * width // n
    found = np.bincount(rows * width + columns, minlength=height * width).reshape(height, width)
    tall = np.bincount(np.arange(m) * height // m)
    wide = np.bincount(np.arange(n) * width // n)
    shares = found / (tall[:, None] * wide)
    level = np.ceil(shares * (len(FILLED) - 1)).astype(int)
    lines = ["".join([FILLED[k] for k in row]) for row in level]
    return "\n".join([f"[{line}]" for line in lines])


def spy(pattern: Csr, title: str, ax: Any, options: dict[str, Any]) -> Any:
    """The pattern drawn into ``ax``, or into a new figure."""
    if ax is None:
        from matplotlib.figure import Figure  # lazy: an extra, and slow to import

        ax = Figure().add_subplot()
    size = max(0.5, min(10.0, 200 / max(1, *pattern.shape)))
    ax.spy(pattern, **{"markersize": size} | options)
    ax.set_title(title.strip("<>"))
    return ax
