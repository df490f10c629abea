"""Products that hold many columns or rows at once, and where each entry stands in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.ir.program import Const, Program, Var, check, evaluate, interpret
from functrans._compile.ir.structured import live
from functrans._compile.lowering.numbers import Rounding
from functrans._core.array import Aval
from functrans._core.bind import AnyArray
from functrans._core.plain import placed
from functrans._ops import indexing, structure
from functrans._transforms.forward.api import jvp
from functrans._transforms.reverse.api import vjp
from functrans._transforms.reverse.grad import grad
from functrans._transforms.sparse.coloring import Blocks, Plan, Table, blocks, narrow, table
from functrans._transforms.sparse.sets import Csr
from functrans._transforms.sparse.staged_paths import Staged, jacobian_pattern
from functrans._transforms.staging.entry import Entry
from functrans._transforms.staging.peaks import of_executable, of_interpreted
from functrans._transforms.staging.staging import stage
from functrans._transforms.vmap import vmap
from functrans.config import settings

# ---- Jacobians of functions that first gather: of each element's nodes, of what a camera sees
#
# Where the arguments are read through ``x[index]``, one entry at many places, columns of the
# Jacobian are long and rows are short. In what has been gathered, each place counts as a variable
# of its own, a row has other columns than most rows, and few products from the left give all
# entries: those of partially separable functions (Griewank and Toint 1982). Each is the entry of
# the Jacobian at its row and where it was gathered from, if no row reads an entry twice.

MOVES = (indexing.getitem, structure.reshape, structure.transpose)


class Gathered(NamedTuple):
    """``staged`` takes what ``gather`` makes of the arguments, and the arguments; it is
    differentiated in the former. ``pattern`` is that of its Jacobian, and entry k of that of the
    function is its entry ``order[k]``."""

    gather: Program
    staged: Staged
    pattern: Csr
    order: np.ndarray

    def entered(self, values: Sequence) -> list:
        """What ``staged`` takes, for values of the arguments."""
        return [*evaluate(self.gather, values), *values]


def gathered(s: Staged, pattern: Csr) -> Gathered | None:
    """The function after what it gathers; None where it gathers nothing, or some row twice."""
    places = _places(s)
    leaves = _leaves(s.program, places)
    if not any([_repeats(places[v]) for v in leaves]):
        return None
    inputs = s.program.inputs
    gather = live(Program(inputs, s.program.eqns, tuple(leaves)))
    own = [Var(v.aval, v.weak) if v in places else v for v in inputs]  # leaves stand for them
    rest = tuple([eqn for eqn in s.program.eqns if eqn.outputs[0] not in places])
    values = [*evaluate(gather, s.values), *s.values]
    program = check(Program((*leaves, *own), rest, s.program.outputs))
    after = s._replace(program=program, places=list(range(len(leaves))), values=values)
    wide = jacobian_pattern([after])
    sources = np.concatenate([places[v].reshape(-1) for v in leaves])
    m, n = pattern.shape
    rows = np.repeat(np.arange(m, dtype=np.int64), np.diff(wide.indptr))
    numbers = rows * n + sources[wide.indices]
    order = np.argsort(numbers, kind="stable")
    own_rows = np.repeat(np.arange(m, dtype=np.int64), np.diff(pattern.indptr))
    if not np.array_equal(numbers[order], own_rows * n + pattern.indices):
        return None
    return Gathered(gather, after, wide, order)


def _places(s: Staged) -> dict[Var, np.ndarray]:
    """The variables that hold entries of what is differentiated, and which; none is gathered from
    what repeats entries."""
    places: dict[Var, np.ndarray] = {}
    first = 0
    for i, a in zip(s.places, s.sources, strict=True):
        places[s.program.inputs[i]] = np.arange(first, first + a.size).reshape(a.shape)
        first += a.size
    for eqn in s.program.eqns:
        x, *indices = eqn.inputs
        if eqn.prim not in MOVES or not isinstance(x, Var) or x not in places:
            continue
        if all(isinstance(i, Const) for i in indices) and not _repeats(places[x]):
            values = [i.value for i in indices if isinstance(i, Const)]
            places[eqn.outputs[0]] = np.asarray(
                eqn.prim.impl(places[x], *values, **eqn.params)
            )
    return places


def _repeats(places: np.ndarray) -> bool:
    return places.size > 0 and int(np.bincount(places.reshape(-1)).max()) > 1


def _leaves(program: Program, places: dict[Var, np.ndarray]) -> list[Var]:
    """Those that something else than a move reads."""
    read: list[Any] = [a for eqn in program.eqns if eqn.outputs[0] not in places
                       for a in eqn.inputs]
    return list(dict.fromkeys([a for a in (*read, *program.outputs) if a in places]))


# ---- Products that hold many columns or rows at once, and where each entry stands in them

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
    colors, total = narrow(colors), 8 * max(1, len(colors) + width)
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
        return _join(ts, s.targets)

    return product


def across(s: Staged) -> Product:
    """A vector times the Jacobian."""
    return lambda values, seed: _join(pulls(s, values)(seed), s.sources)


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


def _join(parts: Sequence, avals: Sequence[Aval]) -> AnyArray:
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
        return _join(ts, s.sources)

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
