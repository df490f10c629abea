"""Entries written row by row: a table with a row for each row of the matrix, as wide as the widest.

Where products come from the right, and rows are about equally wide, as those of bands and stencils
are, each entry of the table is chosen from the products of all colours at its row. Elementwise
programs become one loop that writes the table and nothing else; its entries are those of the
matrix, in order, but for holes in short rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.ir.program import Program
from functrans._transforms.staging.staging import stage

# Colours, equations of all products, and pieces between holes, up to which a table is made; and how
# full it must be.
COLORS, WRITTEN_OUT, PIECES, FULL = 8, 240, 64, 0.75


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
    few = 0 < count <= COLORS and equations * count <= WRITTEN_OUT
    if not few or (rows[1:] < rows[:-1]).any():
        return None
    widths = np.bincount(rows, minlength=height)
    widest = int(widths.max())
    if len(rows) < FULL * height * widest:
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
