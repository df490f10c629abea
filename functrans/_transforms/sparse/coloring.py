"""Colourings, and where the entries of a matrix are in products: row by row or block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.ir.program import Program
from functrans._core.array import Aval
from functrans._transforms.matrices.memory import require_room
from functrans._transforms.sparse import kernels
from functrans._transforms.sparse.sets import INSTEAD, Csr, sparse
from functrans._transforms.staging.staging import stage

# ---- Colourings: which columns, or rows, of a sparse matrix one product can serve
#
# Columns of one colour have no row in common, so that the product with the sum of their unit
# vectors holds the entries of all (Curtis, Powell and Reid 1974); the survey is Gebremedhin, Manne
# and Pothen, SIAM Rev. 47 (2005). A ``Plan`` of a Jacobian colours columns, rows, or some of each,
# where a few dense rows or columns would cost a colour for each of their entries. A Hessian, being
# symmetric, needs only a star colouring, or an acyclic one with substitution.

# Entries of the table of colours by vertex, up to which an order by saturation is tried.
TABLE = 1 << 26


class Plan(NamedTuple):
    """Colours of columns and of rows, -1 where one has none; ``by_row``: for each entry of the
    pattern, whether it is read off the product from the left."""

    columns: np.ndarray
    rows: np.ndarray
    by_row: np.ndarray

    @property
    def forward(self) -> int:
        return int(self.columns.max(initial=-1)) + 1

    @property
    def reverse(self) -> int:
        return int(self.rows.max(initial=-1)) + 1

    @property
    def total(self) -> int:
        return self.forward + self.reverse


# ---- Jacobians


def plan(pattern: Csr, coloring: str, order: str) -> Plan:
    """The plan of a Jacobian with this pattern: the one named, or that of the fewest colours."""
    best: Plan | None = None
    for bound, kind, dense in sorted(_candidates(pattern, coloring), key=lambda c: c[0]):
        if best is not None and bound >= best.total:
            continue
        made = _make(pattern, kind, dense, order)
        if best is None or made.total < best.total:
            best = made
    assert best is not None, coloring
    return best


def narrow(colors: np.ndarray) -> np.ndarray:
    """Colours in as few bytes as hold them: products read one for each unit vector."""
    return colors.astype(np.int8) if colors.max(initial=0) < 127 else colors.astype(np.int32)


def _candidates(pattern: Csr, coloring: str) -> Iterator[tuple[int, str, int]]:
    """A lower bound of the colours, the kind, and how many dense rows or columns are apart."""
    widths, heights = np.diff(pattern.indptr), counts(pattern)
    if coloring in ("auto", "column"):
        yield int(widths.max(initial=0)), "column", 0
    if coloring in ("auto", "row"):
        yield int(heights.max(initial=0)), "row", 0
    if coloring in ("auto", "bidirectional"):
        for kind, lengths in (("column", widths), ("row", heights)):
            longest = np.sort(lengths)[::-1]
            apart = 1
            while apart < len(longest):
                if 2 * (longest[apart] + 1) <= longest[0]:  # else there is little to gain
                    yield int(longest[apart]) + 1, kind, apart
                apart *= 2
            if coloring == "bidirectional":
                yield int(longest[:1].sum()), kind, 0


def counts(pattern: Csr) -> np.ndarray:
    """How many entries each column has."""
    return np.bincount(pattern.indices, minlength=pattern.shape[1])


def _make(pattern: Csr, kind: str, dense: int, order: str) -> Plan:
    if kind == "row":
        across = pattern.T.tocsr()
        across.sort_indices()
        turned = _make(across, "column", dense, order)
        # the entries of the transpose are in another order
        by_column = sparse.csr_array(
            (np.where(turned.by_row, 1, 2), across.indices, across.indptr), shape=across.shape
        )
        back = by_column.T.tocsr()
        back.sort_indices()
        return Plan(turned.rows, turned.columns, back.data == 2)
    m = pattern.shape[0]
    widths = np.diff(pattern.indptr)
    apart = np.argsort(-widths, kind="stable")[:dense]
    is_apart = np.zeros(m, bool)
    is_apart[apart] = True
    by_row = np.repeat(is_apart, widths)
    rows = np.full(m, -1, np.int32)
    if dense:
        rows[apart] = column_colors(pattern[apart].T.tocsr(), order)
        rest = _keep(pattern, ~by_row)
        columns = column_colors(rest, order)
        columns[counts(rest) == 0] = -1
    else:
        columns = column_colors(pattern, order)
    return Plan(columns, rows, by_row)


def _keep(pattern: Csr, kept: np.ndarray) -> Csr:
    ends = np.concatenate([[0], np.cumsum(kept)])[pattern.indptr]
    return sparse.csr_array((pattern.data[kept], pattern.indices[kept], ends), shape=pattern.shape)


def column_colors(pattern: Csr, order: str) -> np.ndarray:
    """A colour for each column; no row has entries in two columns of one colour."""
    n = pattern.shape[1]
    widest = int(np.diff(pattern.indptr).max(initial=0))
    if not widest:
        return np.full(n, -1, np.int32)
    span = band(pattern)
    if span <= widest:  # as few as there can be
        return np.arange(n, dtype=np.int32) % span
    if widest < 2:
        return np.zeros(n, np.int32)
    return vertex_colors(_sharing(pattern), order, widest)


def band(pattern: Csr) -> int:
    """The most columns from the first to the last entry of a row."""
    filled = np.diff(pattern.indptr) > 0
    if not filled.any():
        return 0
    first = pattern.indices[pattern.indptr[:-1][filled]]
    last = pattern.indices[pattern.indptr[1:][filled] - 1]
    return int((last - first).max()) + 1


def _sharing(pattern: Csr) -> Csr:
    """The graph of columns that have entries in the same row."""
    widths = np.diff(pattern.indptr).astype(np.int64)
    most = int(widths @ widths)
    require_room("sparse_jacobian", "the graph of its columns", 10 * most, INSTEAD)
    return (pattern.T.tocsr() @ pattern).tocsr()


def vertex_colors(graph: Csr, order: str, least: int) -> np.ndarray:
    """Greedy colours of a graph, which needs at least so many: neighbours differ."""
    start, near, none = graph.indptr, graph.indices, np.full(graph.shape[0], -1, np.int32)
    count, colors = kernels.run(
        kernels.greedy, graph.nnz, ordered(graph, order), start, near, none.copy()
    )
    if order == "saturation" and count > least and len(none) * (count - 1) <= TABLE:
        lists = [a.astype(np.int64) for a in (start, near, np.diff(start))]
        steps = 16 * graph.nnz  # each a heap's
        fewer, others = kernels.run(kernels.saturation, steps, *lists, count - 1, none)
        colors = others if fewer < count else colors
    return np.asarray(colors, np.int32)


def ordered(graph: Csr, order: str) -> np.ndarray:
    """The vertices in the order in which they are coloured."""
    degree = np.diff(graph.indptr)
    if order == "natural":
        return np.arange(len(degree))
    if order in ("largest_first", "saturation"):
        return np.argsort(-degree, kind="stable")
    if order == "smallest_last":
        lists = [a.astype(np.int64) for a in (graph.indptr, graph.indices, degree)]
        return np.asarray(kernels.run(kernels.smallest_last, 16 * graph.nnz, *lists), np.intp)
    rising = np.argsort(degree, kind="stable")
    places = kernels.run(kernels.incidence_order, graph.nnz, graph.indptr, graph.indices, rising)
    return np.asarray(places, np.intp)


# ---- Hessians


def star_colors(pattern: Csr, order: str) -> np.ndarray:
    """Colours by which the entries of a symmetric matrix are read off directly."""
    span = band(pattern) // 2  # entries on each side of the diagonal
    n = pattern.shape[0]
    if span <= 1:
        return np.arange(n, dtype=np.int32) % (2 * span + 1)
    rest, colors, first = _without_dense(pattern)
    steps = int(np.diff(rest.indptr).astype(np.int64) @ np.diff(rest.indptr))
    order_ = _uncolor(ordered(rest, order), colors)
    count, found = kernels.run(
        kernels.star, steps, order_, rest.indptr, rest.indices, colors, first
    )
    if 2 * span + 1 <= count:  # by these each entry is read off at its row
        return np.arange(n, dtype=np.int32) % (2 * span + 1)
    if np.diff(pattern.indptr).max() < count:  # colours of columns may be fewer, as on grids
        columns = column_colors(pattern, order)
        if columns.max() + 1 < count:
            return columns
    return np.asarray(found, np.int32)


def acyclic_colors(pattern: Csr, order: str) -> np.ndarray:
    """Colours by which the entries of a symmetric matrix follow by substitution."""
    rest, colors, first = _without_dense(pattern)
    numbers: Any = sparse.coo_array(rest)
    low, high = np.minimum(*numbers.coords), np.maximum(*numbers.coords)
    _, edge = np.unique(low.astype(np.int64) * rest.shape[0] + high, return_inverse=True)
    order_ = _uncolor(ordered(rest, order), colors)
    _, found = kernels.acyclic(
        order_.tolist(), rest.indptr.tolist(), rest.indices.tolist(), edge.tolist(),
        colors.tolist(), first,
    )
    return np.asarray(found, np.int32)


def _without_dense(pattern: Csr) -> tuple[Csr, np.ndarray, int]:
    """The graph without its vertices of the most neighbours, which have a colour each.

    Dense is what AMD calls so: more than 10 sqrt(n) neighbours (Amestoy, Davis and Duff 1996). No
    cycle and no path has such a colour twice.
    """
    n = pattern.shape[0]
    degree = np.diff(pattern.indptr)
    dense = np.flatnonzero(degree > max(16.0, 10 * np.sqrt(n)))
    colors = np.full(n, -1, np.int32)
    colors[dense] = np.arange(len(dense))
    if not len(dense):
        return pattern, colors, 0
    apart = np.repeat(colors >= 0, degree) | (colors[pattern.indices] >= 0)
    return _keep(pattern, ~apart), colors, len(dense)


def _uncolor(order: np.ndarray, colors: np.ndarray) -> np.ndarray:
    return order[colors[order] < 0]


# ---- Entries written block by block, where groups of rows, one like the other, read what is
# gathered
#
# Residuals of an observation read the camera and the point that it is of, and nothing of another:
# products from the left have, at each observation, a block of entries, in any group of rows the
# same places. All blocks are one table, written column by column and in one loop where the function
# is entrywise. Where entries come in the order of their columns, the table is the matrix.

# Colours up to which products are written out, and columns of the table.
COLORS, COLUMNS = 8, 64
# How full the table must be.
FULL = 0.75

# What pulls a vector back, for values of the arguments: a cotangent for each source.
Pulls = Callable[[Sequence], Callable[[Any], Sequence]]


class Blocks(NamedTuple):
    """``program`` takes the arguments and returns the table; ``order`` are the places in it of the
    entries of the matrix, None where they are all, in order."""

    program: Program
    order: np.ndarray | None

    def into(self, data: np.ndarray, run: Callable[[Sequence], list], values: Sequence) -> None:
        """Write the entries into ``data``."""
        flat = run(values)[0].reshape(-1)
        if self.order is None:
            data[:] = flat
        else:
            flat.take(self.order, out=data, mode="clip")  # without a buffer

    @property
    def in_order(self) -> bool:
        return self.order is None

    def entries(self, run: Callable[[Sequence], list], values: Sequence) -> np.ndarray:
        """The entries without a copy, where they are in order."""
        return run(values)[0].reshape(-1)


def blocks(pulls: Pulls, examples: Sequence, name: str, sources: Sequence[Aval],
           colors: np.ndarray, entry_colors: np.ndarray, entry_places: np.ndarray) -> Blocks | None:
    """The table of entries, of which entry k is number ``entry_places[k]`` of the product of colour
    ``entry_colors[k]``; None where rows have no like groups.

    ``colors`` are those of rows. A product is the cotangents of the sources, one behind the other.
    """
    groups = sources[0].shape[0] if sources[0].shape else 0
    count = int(colors.max(initial=-1)) + 1
    if not groups or any(a.shape[:1] != (groups,) for a in sources) or not 0 < count <= COLORS:
        return None
    pattern = colors[: len(colors) // groups]
    if len(pattern) * groups != len(colors) or (colors.reshape(groups, -1) != pattern).any():
        return None
    widths = [a.size // groups for a in sources]
    starts = np.cumsum([0, *[a.size for a in sources]])
    source = np.searchsorted(starts, entry_places, side="right") - 1
    group, column = np.divmod(entry_places - starts[source], np.array(widths)[source])
    column += np.cumsum([0, *widths])[source] + entry_colors.astype(np.int64) * sum(widths)
    used, first, slot = np.unique(column, return_index=True, return_inverse=True)
    if len(used) > COLUMNS or len(entry_places) < FULL * groups * len(used):
        return None
    rank = np.argsort(np.argsort(first))  # in the order in which a block first has them
    order = (group * len(used) + rank[slot]).astype(np.intp)
    wanted = used[np.argsort(first)].tolist()

    def table(*values: Any) -> Any:
        pull, products = pulls(values), []
        for c in range(count):
            one = np.broadcast_to(np.where(pattern == c, 1.0, 0.0), (groups, len(pattern)))
            products += [x.reshape((groups, width))
                         for x, width in zip(pull(one.reshape(-1)), widths, strict=True)]
        places = [(x, j) for x, w in zip(products, widths * count, strict=True) for j in range(w)]
        return np.stack([x[:, j] for x, j in [places[k] for k in wanted]], axis=-1)

    program, _ = stage(table, examples, name)
    ordered = len(order) == groups * len(used) and (order == np.arange(len(order))).all()
    return Blocks(program, None if ordered else order)


# ---- Entries written row by row: a table with a row for each row of the matrix, as wide as the
# widest
#
# Where products come from the right, and rows are about equally wide, as those of bands and
# stencils are, each entry of the table is chosen from the products of all colours at its row.
# Elementwise programs become one loop that writes the table and nothing else; its entries are those
# of the matrix, in order, but for holes in short rows.

# Colours, equations of all products, and pieces between holes, up to which a table is made; and how
# full it must be.
TABLE_COLORS, WRITTEN_OUT, PIECES, TABLE_FULL = 8, 240, 64, 0.75


class Table(NamedTuple):
    """``program`` takes the arguments, the colour of each unit vector, and that of each place.

    ``pieces`` are the places of the table, by rows, that are entries of the matrix.
    """

    program: Program
    colors: np.ndarray
    by: np.ndarray
    pieces: list[tuple[int, int]]

    def into(self, data: np.ndarray, run: Callable[[Sequence], list], values: Sequence) -> None:
        """Write the entries into ``data``."""
        flat, end = self._flat(run, values), 0
        for start, stop in self.pieces:
            begin, end = end, end + stop - start
            data[begin:end] = flat[start:stop]

    @property
    def in_order(self) -> bool:
        """Whether there are no holes."""
        return len(self.pieces) == 1

    def entries(self, run: Callable[[Sequence], list], values: Sequence) -> np.ndarray:
        """The entries without a copy, where they are in order."""
        ((start, stop),) = self.pieces
        return self._flat(run, values)[start:stop]

    def _flat(self, run: Callable[[Sequence], list], values: Sequence) -> np.ndarray:
        return run([*values, self.colors, self.by])[0].reshape(-1)


def table(product: Callable, equations: int, examples: Sequence, name: str, colors: np.ndarray,
          entry_colors: np.ndarray, rows: np.ndarray, height: int) -> Table | None:
    """The table of the entries, which are in order of their ``rows``; None where it is no gain.

    ``equations`` are those of a product.
    """
    count = int(entry_colors.max(initial=-1)) + 1
    few = 0 < count <= TABLE_COLORS and equations * count <= WRITTEN_OUT
    if not few or (rows[1:] < rows[:-1]).any():
        return None
    widths = np.bincount(rows, minlength=height)
    widest = int(widths.max())
    if len(rows) < TABLE_FULL * height * widest:
        return None
    # short rows above the first full one end at its end, others begin at its beginning
    shift = np.where(np.arange(height) < np.argmax(widths), widest - widths, 0)
    slots = np.arange(len(rows)) - np.repeat(np.cumsum(widths) - widths, widths) + shift[rows]
    places = rows.astype(np.int64) * widest + slots
    breaks = np.flatnonzero(np.diff(places) != 1)
    if len(breaks) >= PIECES:
        return None
    by = np.full(height * widest, -1, colors.dtype)
    by[places] = entry_colors
    by = by.reshape(height, widest)
    starts, stops = places[[0, *(breaks + 1)]], places[[*breaks, -1]] + 1

    def chosen(*operands: Any) -> Any:
        *values, all_colors, wanted = operands
        products = [product(values, np.where(all_colors == c, 1.0, 0.0)) for c in range(count)]
        columns = []
        for k in range(widest):
            y = products[-1]
            for c in range(count - 1):
                y = np.where(wanted[:, k] == c, products[c], y)
            columns.append(y)
        return np.stack(columns, axis=-1)

    program, _ = stage(chosen, [*examples, colors, by], name)
    return Table(program, colors, by, list(zip(starts.tolist(), stops.tolist(), strict=True)))
