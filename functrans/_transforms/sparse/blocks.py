"""Entries written block by block, where groups of rows, one like the other, read what is gathered.

Residuals of an observation read the camera and the point that it is of, and nothing of another:
products from the left have, at each observation, a block of entries, in any group of rows the same
places. All blocks are one table, written column by column and in one loop where the function is
entrywise. Where entries come in the order of their columns, the table is the matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.ir.program import Program
from functrans._core.aval import Aval
from functrans._transforms.staging.staging import stage

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
