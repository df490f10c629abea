"""Products that hold many columns or rows at once, and where each entry stands in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.ir.program import Program, evaluate, interpret
from functrans._compile.lowering.numbers import Rounding
from functrans._core.aval import Aval
from functrans._core.bind import AnyArray
from functrans._core.places import placed
from functrans._transforms.forward.api import jvp
from functrans._transforms.reverse.api import vjp
from functrans._transforms.reverse.grad import grad
from functrans._transforms.sparse.blocks import Blocks, blocks
from functrans._transforms.sparse.coloring import Plan, narrowed
from functrans._transforms.sparse.gathered import Gathered
from functrans._transforms.sparse.sets import Csr
from functrans._transforms.sparse.staged import Staged
from functrans._transforms.sparse.tables import Table, table
from functrans._transforms.staging.entry import Entry
from functrans._transforms.staging.peaks import of_executable, of_interpreted
from functrans._transforms.staging.staging import stage
from functrans._transforms.vmap import vmap
from functrans.config import settings

# The product of a derivative, for values of the program's inputs, with a vector.
Product = Callable[[Sequence, Any], Any]
# Bytes of the products that are computed at once.
BUDGET = 1 << 27


class Sweep(NamedTuple):
    """Products by colour, ``chunk`` at a time, and which of their numbers become entries.

    ``program`` takes the arguments, the colour of each unit vector and the colours that are wanted.
    Part k of ``places`` are the entries that come from chunk k, and ``sources`` their places in its
    products; an entry of ``places`` is None where these are all entries, in order.
    """

    program: Program
    colors: np.ndarray
    numbers: list[np.ndarray]
    places: list[np.ndarray | None]
    sources: list[np.ndarray]

    def into(self, data: np.ndarray, run: Callable[[Sequence], list], values: Sequence) -> None:
        """Write the entries into ``data``."""
        for numbers, places, sources in zip(
            self.numbers, self.places, self.sources, strict=True
        ):
            products = run([*values, self.colors, numbers])[0].reshape(-1)
            if places is None:
                products.take(sources, out=data, mode="clip")  # without a buffer
            else:
                data[places] = products[sources]


# What writes entries: all of them, or those of products from one side.
Part = Sweep | Table | Blocks


class Runner:
    """A program of products: compiled, unless that is switched off."""

    def __init__(self, name: str, program: Program):
        self.program, self.entry = program, Entry(name, program, None, Rounding())

    def __call__(self, values: Sequence) -> list:
        if settings().compiles:
            return self.entry.run(values)
        return interpret(self.program, values)

    @property
    def nbytes(self) -> int:
        """What a call is expected to take at most, beside its arguments."""
        if settings().compiles:
            return of_executable(self.entry.executable)
        return of_interpreted(self.program)


def sweep(product: Product, examples: Sequence, name: str, colors: np.ndarray, count: int,
          width: int, entry_colors: np.ndarray, entry_places: np.ndarray,
          chosen: np.ndarray | None, tabled: bool = True) -> Sweep | Table:
    """The products of ``count`` colours of vectors, each of ``width`` numbers.

    Entry k is number ``entry_places[k]`` of the product of colour ``entry_colors[k]``; ``chosen``
    are the entries that these are, None for all. ``tabled``: a table of entries may do instead.
    """
    colors, total = narrowed(colors), 8 * max(1, len(colors) + width)
    chunk = max(1, min(count, BUDGET // total))
    chunk = -(-count // -(-count // chunk))  # as many chunks, about equally large
    last = np.iinfo(colors.dtype).max  # no vector has it
    numbers = [np.minimum(np.arange(i, i + chunk), last).astype(colors.dtype)
               for i in range(0, count, chunk)]

    def products(*operands: Any) -> Any:
        *values, all_colors, wanted = operands
        return vmap(lambda c: product(values, np.where(all_colors == c, 1.0, 0.0)))(wanted)

    program, _ = stage(products, [*examples, colors, numbers[0]], name)
    if tabled and chosen is None and len(numbers) == 1:
        made = table(product, len(program.eqns), examples, name, colors, entry_colors,
                     entry_places, width)
        if made is not None:
            return made
    sources = entry_places.astype(np.intp) + (entry_colors.astype(np.intp) % chunk) * width
    if len(numbers) == 1:
        return Sweep(program, colors, numbers, [chosen], [sources])
    every = np.arange(len(sources)) if chosen is None else chosen
    parts = [np.flatnonzero(entry_colors // chunk == k) for k in range(len(numbers))]
    return Sweep(program, colors, numbers, [every[p] for p in parts], [sources[p] for p in parts])


# ---- Jacobians


def jacobian_sweeps(s: Staged, name: str, pattern: Csr, plan: Plan) -> Sequence[Part]:
    """From the right for colours of columns, from the left for colours of rows."""
    places = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr)), pattern.indices
    return _sweeps(s, s.values, (along(s), across(s)), name, places, plan)


def gathered_sweeps(s: Staged, name: str, after: Gathered, plan: Plan) -> Sequence[Part]:
    """The same by products of what comes after the gathering."""
    def entered(product: Product) -> Product:
        return lambda values, seed: product(after.entered(values), seed)

    products = entered(along(after.staged)), entered(across(after.staged))
    rows = np.repeat(np.arange(after.pattern.shape[0]), np.diff(after.pattern.indptr))
    places = rows[after.order], after.pattern.indices[after.order]
    plan = plan._replace(by_row=plan.by_row[after.order])
    if not plan.forward:
        made = blocks(lambda values: pulls(after.staged, after.entered(values)), s.values, name,
                      after.staged.sources, plan.rows, plan.rows[places[0]], places[1])
        if made is not None:
            return [made]
    return _sweeps(after.staged, s.values, products, name, places, plan)


def _sweeps(s: Staged, examples: Sequence, products: tuple[Product, Product], name: str,
            places: tuple[np.ndarray, np.ndarray], plan: Plan) -> list[Part]:
    (m, n), (rows, columns) = s.shape, places
    sweeps: list[Part] = []
    for product, colors, count, width, mine, by, place in (
        (products[0], plan.columns, plan.forward, m, ~plan.by_row, columns, rows),
        (products[1], plan.rows, plan.reverse, n, plan.by_row, rows, columns),
    ):
        if count:
            chosen = None if mine.all() else np.flatnonzero(mine)
            kept = slice(None) if chosen is None else chosen
            sweeps.append(sweep(product, examples, name, colors, count, width,
                                colors[by[kept]], place[kept], chosen))
    return sweeps


def along(s: Staged) -> Product:
    """The Jacobian times a vector."""
    def product(values: Sequence, seed: Any) -> Any:
        xs = [values[i] for i in s.places]
        ts = jvp(_function(s, values), tuple(xs), tuple(_parts(seed, s.sources)))[1]
        return _joined(ts, s.targets)

    return product


def across(s: Staged) -> Product:
    """A vector times the Jacobian."""
    return lambda values, seed: _joined(pulls(s, values)(seed), s.sources)


def pulls(s: Staged, values: Sequence) -> Callable[[Any], list]:
    """What takes a vector to the vector times the Jacobian, a part for each source."""
    _, pull = vjp(_function(s, values), *[values[i] for i in s.places])

    def pulled(seed: Any) -> list:
        rows = [x.astype(s.dtype) for x in pull(_parts(seed, s.targets))]
        return [np.conjugate(x) for x in rows] if s.is_complex else rows  # vjp has conjugate rows

    return pulled


def _function(s: Staged, values: Sequence) -> Callable:
    """The program as a function of what is differentiated."""
    def function(*xs: Any) -> list:
        return evaluate(s.program, placed(xs, s.places, values))

    return function


def _parts(vector: Any, avals: Sequence[Aval]) -> list:
    """A vector taken apart into values of these kinds."""
    ends = np.cumsum([a.size for a in avals]).tolist()
    return [(vector if len(avals) == 1 else vector[end - a.size : end])
            .astype(a.dtype).reshape(a.shape) for a, end in zip(avals, ends, strict=True)]


def _joined(parts: Sequence, avals: Sequence[Aval]) -> AnyArray:
    flat = [y.reshape((a.size,)) for y, a in zip(parts, avals, strict=True)]
    return flat[0] if len(flat) == 1 else np.concatenate(flat)


# ---- Hessians


def hessian_product(s: Staged) -> Product:
    """The Hessian times a vector, forward over reverse."""
    every = tuple(range(len(s.places)))

    def product(values: Sequence, seed: Any) -> Any:
        function = _function(s, values)
        gradient = grad(lambda *xs: function(*xs)[0].reshape(()), every, holomorphic=s.is_complex)
        xs = [values[i] for i in s.places]
        ts = jvp(gradient, tuple(xs), tuple(_parts(seed, s.sources)))[1]
        return _joined(ts, s.sources)

    return product


def star_sources(pattern: Csr, colors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each entry, the colour of the product and the place in it that it is read from.

    Entry (i, j) stands alone at place i of the product of j's colour, or else that of (j, i) does.
    """
    n = pattern.shape[0]
    i = np.repeat(np.arange(n, dtype=np.int64), np.diff(pattern.indptr))
    j = pattern.indices.astype(np.int64)
    count = int(colors.max(initial=-1)) + 1
    met = np.bincount(i * count + colors[j], minlength=n * count)
    direct = met[i * count + colors[j]] == 1
    assert (met[j * count + colors[i]] == 1)[~direct].all(), "no star colouring"
    return np.where(direct, colors[j], colors[i]), np.where(direct, i, j)


class Substitution(NamedTuple):
    """How entries follow from the products of an acyclic colouring.

    ``levels``: from place ``leaf`` the entry of an edge is read, and taken off place ``other``.
    ``sources`` are the places where the entries of the pattern stand in the end.
    """

    levels: list[tuple[np.ndarray, np.ndarray]]
    sources: np.ndarray

    def into(self, data: np.ndarray, products: np.ndarray) -> None:
        """Write the entries into ``data``; ``products`` is changed."""
        for leaf, other in self.levels:
            np.subtract.at(products, other, products[leaf])
        products.take(self.sources, out=data, mode="clip")


def substitution(pattern: Csr, colors: np.ndarray) -> Substitution:
    """The order in which the leaves of the two-coloured trees give their edges."""
    n = pattern.shape[0]
    i = np.repeat(np.arange(n, dtype=np.int64), np.diff(pattern.indptr))
    j = pattern.indices.astype(np.int64)
    here, there = colors[j] * n + i, colors[i] * n + j  # where the product adds up entry (i, j)
    count = (int(colors.max(initial=-1)) + 1) * n
    twin, between = _twins(i, j, n), np.flatnonzero(i != j)
    degree, entry_sum = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(degree, here[between], 1)
    np.add.at(entry_sum, here[between], between)  # of one that is left, its number
    sources, levels = here.copy(), []
    ends = np.flatnonzero(degree == 1)
    while len(ends):
        leaves = entry_sum[ends]
        leaves = leaves[(degree[there[leaves]] != 1) | (i[leaves] < j[leaves])]
        levels.append((here[leaves], there[leaves]))
        sources[twin[leaves]] = here[leaves]
        np.subtract.at(degree, here[leaves], 1)
        np.subtract.at(degree, there[leaves], 1)
        np.subtract.at(entry_sum, there[leaves], twin[leaves])
        ends = np.unique(there[leaves])
        ends = ends[degree[ends] == 1]
    assert not degree.any(), "no acyclic colouring"
    return Substitution(levels, sources.astype(np.intp))


def _twins(i: np.ndarray, j: np.ndarray, n: int) -> np.ndarray:
    """The entry (j, i) of each entry (i, j); entries are in order of i, then j."""
    return np.searchsorted(i * n + j, j * n + i)
