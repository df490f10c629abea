"""Images of all unit vectors from those of a few sums of them, where most entries are zero.

The linear map that takes directions to images is written as a program, and its pattern is read off.
Unit vectors of one colour have images that share no entry, so that the image of their sum holds
those of all: there is one product a colour, and a scatter of its entries into zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.ir.passes import optimise
from functrans._compile.ir.program import Const, Program, Var, aval_of_atom, evaluate
from functrans._core.aval import Aval
from functrans._core.bind import AnyArray, bind, is_finite
from functrans._ops.indexing import ARRAY, put_add
from functrans._transforms.matrices.directions import Directions
from functrans._transforms.staging.staging import stage_part, with_consts
from functrans.errors import OutOfMemoryError

# Directions from which on the pattern is looked at, and how many directions a colour must serve.
LEAST, SERVED = 48, 4
# Where no program is being written anyway, the batches of directions that must be left otherwise:
# writing one and reading it takes the time of a few.
BATCHES = 16


class LinearMap(NamedTuple):
    """The images of directions as a program, which takes ``consts`` before them."""

    ways: Directions
    program: Program
    consts: list

    @property
    def outs(self) -> list[Aval]:
        return list(map(aval_of_atom, self.program.outputs))

    def __call__(self, ts: Sequence) -> list:
        return evaluate(self.program, [*self.consts, *ts])


def linear_map(ways: Directions, image: Callable, name: str) -> LinearMap:
    """``image``, which may close over values of other traces, as a program."""
    part = stage_part(lambda *ts: image(ts), [e[0] for e in ways.rows(0, 1)], name)
    consts, (program,) = with_consts([part])
    return LinearMap(ways, optimise(program), consts)


class Compressed(NamedTuple):
    """Directions in ``total`` colours, by ``pattern``: which entries of the images, those of all
    outputs one behind the other up to ``ends``, depend on which directions."""

    image: LinearMap
    pattern: Any
    ends: list[int]
    colors: np.ndarray
    total: int

    @property
    def nbytes(self) -> int:
        """What the program takes while it is written, and the pattern when entries are placed."""
        every = [a for eqn in self.image.program.eqns for a in (*eqn.inputs, *eqn.outputs)]
        avals = [a.aval for a in dict.fromkeys(every) if isinstance(a, Const | Var)]
        return sum([a.nbytes for a in avals]) + 41 * self.pattern.nnz

    @property
    def sums(self) -> np.ndarray:
        """For each colour the sum of its unit vectors, a row."""
        return np.where(self.colors == np.arange(self.total)[:, None], 1.0, 0.0)

    def spread(self, products: Sequence, across: bool) -> list | None:
        """The images of all directions along axis 0, from those of the sums; None where a number is
        not finite, of which the images of single directions say more.

        ``across``: the directions are the last axis in memory.
        """
        if any([isinstance(y, np.ndarray) and not is_finite(y) for y in products]):
            return None
        return [_spread(y, self.pattern[start:end], self.colors, across)
                for y, start, end in zip(products, [0, *self.ends], self.ends, strict=False)]


def compressed(image: LinearMap) -> Compressed | None:
    """Directions in colours of which no two reach one entry; None where they save too little."""
    from functrans._transforms.sparse.coloring import column_colors  # lazy: SciPy is slow to import

    return _compressed(image, lambda pattern: column_colors(pattern, "largest_first"))


def compressed_on_diagonal(image: LinearMap) -> Compressed | None:
    """Directions of a square matrix in colours of which none reaches the place of another, where
    each leaves its entry of the diagonal; None where they save too little."""
    from functrans._transforms.sparse.coloring import vertex_colors  # lazy: SciPy is slow to import

    return _compressed(image, lambda pattern: vertex_colors(
        (pattern + pattern.T).tocsr(), "largest_first", 1
    ))


def _compressed(image: LinearMap, colored: Callable[[Any], np.ndarray]) -> Compressed | None:
    patterns = _patterns(image)
    if patterns is None:
        return None
    colors = colored(patterns[0])
    count = int(colors.max(initial=-1)) + 1
    if count * SERVED > image.ways.total:
        return None
    return Compressed(image, *patterns, colors, count)


def _patterns(image: LinearMap) -> tuple[Any, list[int]] | None:
    """Which entries depend on which directions, a row an entry, and where each image ends."""
    from functrans._transforms.sparse.pattern import Walk  # lazy: SciPy is slow to import
    from functrans._transforms.sparse.sets import UNKNOWN, identity, sparse  # lazy: as above

    ways = image.ways
    total, none = ways.total, [None] * len(image.consts)
    firsts = [end - a.size for a, end in zip(ways.avals, ways.ends, strict=True)]
    sets = [*none, *[identity(a.shape, k, total) for a, k in zip(ways.avals, firsts, strict=True)]]
    sizes = [a.size for a in image.outs]
    most = total * max(total, *sizes) // SERVED
    try:
        found, _ = Walk(zeros=False, most=most).run(image.program, sets, [UNKNOWN] * len(sets))
    except OutOfMemoryError:
        return None
    if sum([s.entries for s in found if s is not None]) * SERVED > total * sum(sizes):
        return None
    rows = [sparse.csr_array((n, total), dtype=bool) if s is None else s.matrix()
            for s, n in zip(found, sizes, strict=True)]
    return sparse.vstack(rows, format="csr"), np.cumsum(sizes).tolist()


def _spread(y: Any, pattern: Any, colors: np.ndarray, across: bool) -> AnyArray:
    """The images of unit vectors, from those of the colours and the pattern of an output."""
    size, total = pattern.shape
    entries = np.repeat(np.arange(size), np.diff(pattern.indptr))
    columns = pattern.indices.astype(np.intp)
    values = y.reshape((-1,))[colors[columns].astype(np.intp) * size + entries]
    places = entries * total + columns if across else columns * size + entries
    flat = bind(put_add, values, places, pattern=(ARRAY,), shape=(total * size,))
    shape = y.shape[1:]
    if not across:
        return flat.reshape((total, *shape))
    return flat.reshape((*shape, total)).transpose((len(shape), *range(len(shape))))
