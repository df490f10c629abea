"""Directions along which derivatives are taken, and where their images go."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans import tree
from functrans._compile.ir.passes import optimise
from functrans._compile.ir.program import Const, Program, Var, aval_of_atom, evaluate
from functrans._compile.lowering.numbers import Rounding
from functrans._core.array import Aval
from functrans._core.bind import AnyArray, Tracer, bind, cast, is_finite
from functrans._ops.contractions import unit_vectors
from functrans._ops.indexing import ARRAY, put_add
from functrans._transforms.arguments import describe
from functrans._transforms.control.scan import scan
from functrans._transforms.staging.entry import Entry
from functrans._transforms.staging.staging import stage_part, with_consts
from functrans._transforms.vmap import vmap
from functrans.errors import ArgumentError, OutOfMemoryError, ShapeError, name_of

# ---- Directions along which derivatives are taken: unit vectors, rows of a matrix, a span of these

# Entries of a vector from which it pays to know all unit vectors when they meet a matrix.
UNITS = 32


@functools.lru_cache(256)
def directions(avals: tuple[Aval, ...], second: complex, holomorphic: bool) -> Directions:
    """The unit vectors of the space of ``avals``; described once for each kind of arguments."""
    return Directions(avals, second, holomorphic)


class Directions:
    """The unit vectors of the space of ``avals``, one a row.

    A complex entry has two, 1 and ``second``, unless the function is ``holomorphic``.
    """

    def __init__(self, avals: tuple[Aval, ...], second: complex, holomorphic: bool):
        self.avals = avals
        self.factors = [
            (1.0, second) if a.dtype.kind == "c" and not holomorphic else (1.0,) for a in avals
        ]
        self.spans = [(i, c) for i, factors in enumerate(self.factors) for c in factors]
        self.ends = list(itertools.accumulate(avals[i].size for i, _ in self.spans))
        self.total = self.ends[-1] if self.ends else 0
        self.entries = sum([a.size for a in avals])

    def rows(self, start: int, stop: int) -> list[np.ndarray]:
        """The rows from ``start`` to ``stop``, a part for each aval."""
        parts = [np.zeros((stop - start, *a.shape), a.dtype) for a in self.avals]
        for (i, factor), end in zip(self.spans, self.ends, strict=True):
            size = self.avals[i].size
            offset = end - size
            first, count = max(start, offset), min(stop, end) - max(start, offset)
            if count > 0:  # of each of these rows, the entry after that of the row before
                at = (first - start) * size + first - offset
                parts[i].reshape(-1)[at : at + count * (size + 1) : size + 1] = factor
        if stop - start == self.total >= UNITS and [a.shape for a in self.avals] == [(self.total,)]:
            unit_vectors[id(parts[0])] = parts[0]
        return parts

    def unit(self, k: Any) -> list:
        """Row ``k``, a number that may be traced, a part for each aval; zeros beyond the last."""
        parts: list = [0.0] * len(self.avals)
        for (i, factor), end in zip(self.spans, self.ends, strict=True):
            a = self.avals[i]
            here = np.arange(a.size).reshape(a.shape) == k - (end - a.size)
            parts[i] = parts[i] + np.where(here, a.dtype.type(factor), a.dtype.type(0))
        return parts

    def split(self, images: Any) -> list[list]:
        """The images of all rows, grouped by aval: those along 1, then those along ``second``."""
        if len(self.spans) == 1:
            return [[images]]
        spans = iter(zip(self.spans, self.ends, strict=True))
        groups = []
        for a, factors in zip(self.avals, self.factors, strict=True):
            ends = [end for _, end in itertools.islice(spans, len(factors))]
            groups.append([images[end - a.size : end] for end in ends])
        return groups


class Rows:
    """Vectors, one a row, taken apart into values of ``avals``: directions of one's own choice."""

    def __init__(self, matrix: Any, avals: Sequence[Aval]):
        self.matrix, self.avals = matrix, tuple(avals)
        self.total, self.entries = matrix.shape

    def rows(self, start: int, stop: int) -> list:
        """The rows from ``start`` to ``stop``, a part for each aval."""
        whole = self.matrix[start:stop]
        ends = itertools.accumulate([a.size for a in self.avals])
        return [
            cast(np.reshape(whole[:, end - a.size : end], (stop - start, *a.shape)), a.dtype)
            for a, end in zip(self.avals, ends, strict=True)
        ]

    def vector(self) -> list:
        """The parts of the only row."""
        return [part[0] for part in self.rows(0, 1)]


class Span:
    """The directions from ``start`` to ``stop``, as directions."""

    def __init__(self, ways: Directions, start: int, stop: int):
        self.ways, self.start = ways, start
        self.avals, self.total, self.entries = ways.avals, stop - start, ways.entries

    def rows(self, start: int, stop: int) -> list:
        """The rows from ``start`` to ``stop`` of the span, a part for each aval."""
        return self.ways.rows(self.start + start, self.start + stop)


Ways = Directions | Rows | Span


# ---- Blocks of derivative matrices written into arrays of the caller's, chunk after chunk


class Placing:
    """The arrays given as ``out``, a row an output leaf, a column an active input leaf."""

    def __init__(self, who: str, f: Callable, out: Any, expected: Any, values: Sequence):
        self.label = f"{who}: out for `{name_of(f)}`"
        have, given = tree.flatten(out)
        wanted, structure = tree.flatten(expected)
        if given != structure:
            raise ArgumentError(
                f"{self.label} must have the structure of {describe(expected)}, but is "
                f"{describe(out)}"
            )
        self.arrays = [a for a, e in zip(have, wanted, strict=True) if e is not None]
        shapes = [e.shape for e in wanted if e is not None]
        for a, shape in zip(self.arrays, shapes, strict=True):
            self._require(a, shape, values)

    def _require(self, a: Any, shape: tuple, values: Sequence) -> None:
        if not isinstance(a, np.ndarray):
            raise ArgumentError(f"{self.label} must be an array, but is {describe(a)}")
        if a.shape != shape:
            raise ShapeError(f"{self.label} must have shape {shape}, but has {a.shape}")
        if not (a.flags.writeable and a.flags.c_contiguous):
            raise ArgumentError(f"{self.label} must be a C-contiguous array that can be written to")
        if any([isinstance(x, np.ndarray) and np.may_share_memory(a, x) for x in values]):
            raise ArgumentError(
                f"{self.label} shares memory with an argument, which later chunks read. Pass an "
                "array of its own."
            )

    def columns(self, ways: Directions, start: int, size: int, images: Sequence) -> None:
        """Place images of tangents: the input axes are the last ones."""
        for (j, low, high), (i, image) in self._pieces(ways, start, size, images):
            array = self.arrays[i * len(ways.avals) + j]
            self._check(image, array)
            flat = array.reshape((*image.shape[1:], ways.avals[j].size))
            offset = ways.ends[j] - ways.avals[j].size
            part = image[low - start : high - start]
            flat[..., low - offset : high - offset] = np.moveaxis(part, 0, -1)

    def rows(self, ways: Directions, start: int, size: int, images: Sequence, ins: Sequence[Aval],
             ) -> None:
        """Place images of cotangents, gradients where a real output depends on complex numbers."""
        for (i, low, high), (j, image) in self._pieces(ways, start, size, images):
            array = self.arrays[i * len(ins) + j]
            self._check(image, array)
            flat = array.reshape((ways.avals[i].size, *image.shape[1:]))
            offset = ways.ends[i] - ways.avals[i].size
            part = image[low - start : high - start]
            conjugates = ins[j].dtype.kind == "c" and ways.avals[i].dtype.kind != "c"
            flat[low - offset : high - offset] = np.conjugate(part) if conjugates else part

    def _pieces(self, ways: Directions, start: int, size: int, images: Sequence) -> Any:
        """Each leaf of the directions that these are of, from where to where; with each image."""
        if len(ways.spans) != len(ways.avals):
            raise ArgumentError(
                f"{self.label} would need derivatives along 1 and along i together. Do without "
                "out, or promise holomorphic=True."
            )
        leaves = [
            (k, max(start, end - a.size), min(start + size, end))
            for k, (a, end) in enumerate(zip(ways.avals, ways.ends, strict=True))
        ]
        return itertools.product(
            [(k, low, high) for k, low, high in leaves if low < high], enumerate(images)
        )

    def _check(self, image: Any, array: np.ndarray) -> None:
        if isinstance(image, Tracer):
            raise ArgumentError(
                f"{self.label} holds numbers, but the derivative is traced. Do without out inside "
                "of jit, vmap and other transforms."
            )
        if not np.can_cast(image.dtype, array.dtype, "same_kind"):
            raise ArgumentError(f"{self.label} is {array.dtype}, which cannot hold {image.dtype}")


# ---- Images of all unit vectors from those of a few sums of them, where most entries are zero
#
# The linear map that takes directions to images is written as a program, and its pattern is read
# off. Unit vectors of one colour have images that share no entry, so that the image of their sum
# holds those of all: there is one product a colour, and a scatter of its entries into zeros.

# Directions from which on the pattern is looked at, and how many directions a colour must serve.
LEAST, SERVED = 48, 4
# Where no program is being written anyway, the batches of directions that must be left otherwise:
# writing one and reading it takes the time of a few.
BATCHES = 8


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

    def values(self) -> list[Aval]:
        """What it computes for one direction."""
        return [v.aval for eqn in self.program.eqns for v in eqn.outputs]


def linear_map(ways: Directions, image: Callable, name: str) -> LinearMap:
    """``image``, which may close over values of other traces, as a program."""
    part = stage_part(lambda *ts: image(ts), [e[0] for e in ways.rows(0, 1)], name)
    consts, (program,) = with_consts([part])
    return LinearMap(ways, optimise(program), consts)


def in_steps(linear: LinearMap, size: int) -> list:
    """The images of all directions by a loop in the program, of ``size`` directions a step."""
    ways = linear.ways
    assert isinstance(ways, Directions)
    steps = -(-ways.total // size)

    def images(k: Any) -> list:
        return linear(ways.unit(k))

    def step(done: Any, first: Any) -> tuple[Any, list]:
        if size == 1:
            return done, images(first)
        return done, vmap(images)(first + np.arange(size))

    _, ys = scan(step, np.zeros(()), np.arange(steps) * size)
    return ys if size == 1 else [
        y.reshape((steps * size, *y.shape[2:]))[: ways.total] for y in ys]


def compiled(linear: LinearMap, name: str, image: Callable) -> Callable[[Sequence], list]:
    """The images of one direction by compiled code; by ``image`` where they are not finite."""
    entry = Entry(name, linear.program, None, Rounding())

    def run(ts: Sequence) -> list:
        ys = entry.run([np.asarray(t) for t in ts])
        return ys if all(map(is_finite, ys)) else image(ts)

    return run


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


def compress(image: LinearMap) -> Compressed | None:
    """Directions in colours of which no two reach one entry; None where they save too little."""
    from functrans._transforms.sparse.coloring import column_colors  # lazy: SciPy is slow to import

    return _compress(image, lambda pattern: column_colors(pattern, "largest_first"))


def compressed_on_diagonal(image: LinearMap) -> Compressed | None:
    """Directions of a square matrix in colours of which none reaches the place of another, where
    each leaves its entry of the diagonal; None where they save too little."""
    from functrans._transforms.sparse.coloring import vertex_colors  # lazy: SciPy is slow to import

    return _compress(image, lambda pattern: vertex_colors(
        (pattern + pattern.T).tocsr(), "largest_first", 1
    ))


def _compress(image: LinearMap, colored: Callable[[Any], np.ndarray]) -> Compressed | None:
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
