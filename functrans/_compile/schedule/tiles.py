"""Kernels that run together on a few rows at a time, and on several threads.

Kernels whose first loops have the same length, and which pass rows to each other or read the same
ones, take turns on a tile of rows: what one has written or read is still in the cache for the next,
and what they pass on takes no more memory than a tile. Threads can share chunks of tiles.
Reductions over the rows collect into a part for each chunk, and the parts are joined in order, so
that results depend on shapes alone, not on threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from functrans._compile.ir.program import Var
from functrans._compile.lowering.library import Product
from functrans._compile.schedule import views
from functrans._compile.schedule.kernels import Kernel, Load, Reduce, Step, Store, Tiles, collapse
from functrans._compile.schedule.views import Shape
from functrans._core.array import Aval
from functrans._kernels import sizes
from functrans._ops.reductions import count_nonzero
from functrans._ops.reductions import sum as sum_

# Nanoseconds that an operation takes for one entry, a cheap one or not, and a load or a store.
# And a multiplication and an addition of a product of matrices.
CHEAP, FUNCTION, MEMORY, TERM = 0.1, 0.5, 0.2, 0.02

# How many times as many rows as columns a matrix has whose product can take part. Rows of a tile
# from which its products are as fast as one of all rows.
TALL, FEWEST = 4, 32

# What can take turns: products of stacks of matrices, each a row, or of a matrix with many rows.
Rows = Kernel | Product


@dataclass(slots=True, eq=False)
class _Group:
    """Kernels with the same number of rows, in an order in which they can run on each row."""

    rows: int
    kernels: list[Rows] = field(default_factory=list)


def tiled(steps: Sequence[Step], kept: set[Any], shapes: dict[Var, Shape],
          products: bool = True) -> list[Step]:
    """The steps, with kernels grouped where that saves memory or lets threads share them.

    ``kept`` are the outputs; ``shapes`` of the buffers, to which those of parts are added.
    ``products``: those of single matrices, which have many rows, may be in groups.
    """
    items = _group([_by_row(s) for s in steps] if products else steps, shapes)
    owners: dict[Any, int] = {}
    needed = set(kept)  # buffers that more than one item touches
    for i, item in enumerate(items):
        needed.update(b for b in _touch(item) if owners.setdefault(b, i) != i)
    out: list[Step] = []
    for item in items:
        out += _steps(item, needed, shapes) if isinstance(item, _Group) else [item]
    return out


def _by_row(step: Step) -> Step:
    """A product of a single matrix that has far more rows than columns, as one of its rows."""
    if not isinstance(step, Product) or step.batch:
        return step
    n, k, m = step.sizes.values()
    along, others = ("n", max(k, m)) if n >= k else ("k", max(n, m))
    rows = max(n, k)
    return replace(step, along=along) if rows >= TALL * others else step


def _touch(item: Any) -> set[Any]:
    steps = item.kernels if isinstance(item, _Group) else [item]
    return {b for step in steps for b in (*step.reads, *step.makes)}


def _group(steps: Sequence[Step], shapes: dict[Var, Shape]) -> list[Any]:
    """Each kernel in a group that comes after everything that it reads.

    That is the group which hands it rows, else the last one.
    """
    items: list[Any] = []
    makers: dict[Any, list[tuple[int, Step]]] = {}  # buffer -> who fills it, and as part of what
    latest: dict[int, int] = {}  # number of rows -> the last group
    for step in steps:
        at = -1
        if isinstance(step, Rows) and (rows := _rows(step)):
            first = max([_first(b, step, makers, items, shapes) for b in step.reads], default=0)
            at = latest.get(rows, -1)
            if first < at and _hands_on(items[first], step):
                at = first
            if at < first:
                at = latest[rows] = len(items)
                items.append(_Group(rows))
            items[at].kernels.append(step)
        else:
            at = len(items)
            items.append(step)
        for b in step.makes:
            makers.setdefault(b, []).append((at, step))
    return items


def _hands_on(item: Any, k: Rows) -> bool:
    """Whether it is a group that fills what a kernel reads."""
    return isinstance(item, _Group) and any(b in other.makes for other in item.kernels
                                            for b in k.reads)


def _rows(k: Rows) -> int:
    """How many iterations of a first loop can run in parts, 0 if there is none."""
    if isinstance(k, Product):
        return k.rows
    if not k.space or 0 in k.space or any(r.index for r in k.reductions):
        return 0
    return k.space[0]


def _first(b: Any, k: Rows, writers: dict, items: list, shapes: dict[Var, Shape]) -> int:
    """The first item that a kernel which reads this buffer can be part of."""
    makers = writers.get(b, [])
    last = max([at for at, _ in makers], default=-1)
    if last < 0:
        return 0
    item = items[last]
    ours = [m for at, m in makers if at == last]
    together = isinstance(item, _Group) and item.rows == _rows(k) and all(
        _by_rows(m, b, shapes) for m in (*ours, k))
    return last if together else last + 1


def _by_rows(k: Rows, b: Any, shapes: dict[Var, Shape]) -> bool:
    """Whether each iteration of the first loop touches only its own row of a buffer."""
    size, rows = _size(b, shapes), _rows(k)
    row = size // rows
    if row * rows != size:
        return False
    if isinstance(k, Kernel) and any(x.index and x.buffer is b for x in (*k.loads, *k.reductions)):
        return False
    for buffer, offset, strides, windows in k.places:
        if buffer is b:
            least, most = views.extent(offset, strides[1:], windows[1:])
            if strides[0] != row or windows[0] != (0, rows) or least < 0 or most >= row:
                return False
    return True


def _size(b: Any, shapes: dict[Var, Shape]) -> int:
    shape = shapes.get(b)
    return math.prod(b.aval.shape if shape is None else shape)


# ---- what becomes of a group


def _steps(group: _Group, needed: set[Any], shapes: dict[Var, Shape]) -> list[Step]:
    kernels, rows = group.kernels, group.rows
    if any(isinstance(k, Product) and k.along for k in kernels):
        return _with_products(group, needed, shapes)
    nests = [k for k in kernels if isinstance(k, Kernel)]
    if not nests:
        return list(kernels)
    local = _local(group, needed, shapes)
    most = sizes.TILE if len(nests) == len(kernels) else sizes.PRODUCTS
    row_bytes = _row_bytes(local, rows, most)
    if not row_bytes:
        local, row_bytes = {}, _row_bytes(_read_again(kernels, rows, shapes), rows, most)
    if len(kernels) > 1 and not row_bytes:
        # taking turns gains nothing
        return [s for k in kernels for s in _steps(_Group(rows, [k]), needed, shapes)]
    tile = max(1, sizes.TILE // row_bytes) if row_bytes else rows
    return _taking_turns(group, local, tile if row_bytes else 0, shapes)


def _with_products(group: _Group, needed: set[Any], shapes: dict[Var, Shape]) -> list[Step]:
    """Products of single matrices among kernels, if all that they share is too large for a cache.

    Else the steps as they are without.
    """
    kernels, rows = group.kernels, group.rows
    local = _local(group, needed, shapes)
    row_bytes = _bytes(local | _read_again(kernels, rows, shapes))
    if row_bytes * rows >= sizes.PRODUCTS:
        tile = sizes.PANEL // row_bytes
        if tile >= FEWEST:
            return _taking_turns(group, local, tile, shapes)
    plain = [replace(k, along="") if isinstance(k, Product) else k for k in kernels]
    return tiled(plain, needed, shapes, products=False)


def _local(group: _Group, needed: set[Any], shapes: dict[Var, Shape]) -> dict[Any, int]:
    """What the kernels hand to each other only, and the lengths of its rows."""
    read = {b for k in group.kernels for b in k.reads}
    handed = dict.fromkeys([b for k in group.kernels for b in k.makes if b in read])
    return {b: math.prod(shapes[b]) // group.rows for b in handed if b not in needed}


def _taking_turns(group: _Group, local: dict[Any, int], tile: int, shapes: dict[Var, Shape]
                  ) -> list[Step]:
    """The kernels on so many rows at a time, on all where it is 0."""
    kernels, rows = group.kernels, group.rows
    collected = {r.buffer: r for k in kernels for r in _collects(k)}
    chunks = _chunks(kernels, rows, sum(math.prod(shapes[b]) for b in collected))
    if not tile and chunks == 1:
        return [collapse(k) if isinstance(k, Kernel) else k for k in kernels]
    room = tile * _bytes(local)
    if room > sizes.TILE:
        chunks = min(chunks, max(1, sizes.ROOMS // room))
    chunk = -(-rows // chunks)
    chunks = -(-rows // chunk)
    tile = -(-chunk // -(-chunk // (tile or chunk)))  # all of them about as large
    parts: dict[Any, Var] = {}
    if chunks > 1:
        parts = {b: _part(b, chunks, b.aval.shape, shapes) for b in collected}
    rooms: dict[Any, Var] = {}
    if room > sizes.TILE:
        rooms = {b: _part(b, chunks, (tile * row,), shapes) for b, row in local.items()}
    flat = [collapse(_into(k, parts)) if isinstance(k, Kernel) else _filling(k, parts)
            for k in kernels]
    of_chunks = {p: math.prod(p.aval.shape[1:]) for p in (*parts.values(), *rooms.values())}
    step = Tiles(tuple(flat), rows, tile, chunk, local, of_chunks, rooms)
    before = [_start(parts.get(b, b), r, shapes) for b, r in collected.items()]
    return [*before, step, *[_join(p, collected[b]) for b, p in parts.items()]]


def _collects(k: Rows) -> list[Reduce]:
    """What it collects over the rows."""
    if isinstance(k, Kernel):
        return [r for r in k.reductions if 0 in r.axes]
    return [Reduce(y, sum_, "", y.aval.dtype, (0,), ()) for y in k.makes if k.along == "k"]


def _part(b: Var, chunks: int, shape: Shape, shapes: dict[Var, Shape]) -> Var:
    """A buffer with a part for each chunk."""
    part = Var(Aval((chunks, *shape), b.aval.dtype))
    shapes[part] = part.aval.shape
    return part


def _bytes(buffers: dict[Any, int]) -> int:
    """Of a row of these buffers, whose lengths are given."""
    return sum(n * b.aval.dtype.itemsize for b, n in buffers.items())


def _row_bytes(buffers: dict[Any, int], rows: int, most: int) -> int:
    """Bytes of a row of these buffers, 0 where the rows need not or cannot stay in the cache."""
    size = _bytes(buffers)
    return size if size <= most and size * rows >= sizes.SHARED else 0


def _read_again(kernels: list[Rows], rows: int, shapes: dict[Var, Shape]) -> dict[Any, int]:
    """Buffers that several kernels touch row by row, and the lengths of their rows."""
    users: dict[Any, list[Rows]] = {}
    for k in kernels:
        for b in dict.fromkeys([*k.reads, *k.makes]):
            users.setdefault(b, []).append(k)
    return {
        b: _size(b, shapes) // rows for b, ks in users.items()
        if len(ks) > 1 and all([_by_rows(k, b, shapes) for k in ks])
    }


def _chunks(kernels: Sequence[Rows], rows: int, collected: int) -> int:
    """How many chunks: by the work that there is, not by the processors."""
    work = sum(map(_nanoseconds, kernels))
    if work < sizes.WORK:
        return 1
    # collecting must stay cheap beside computing
    space = sum(math.prod(k.space) if isinstance(k, Kernel) else int(_nanoseconds(k))
                for k in kernels)
    most = space // (8 * max(collected, 1))
    return max(1, min(sizes.CHUNKS, int(work / sizes.CHUNK), rows, most))


def _nanoseconds(k: Rows) -> float:
    if isinstance(k, Product):
        each = MEMORY if k.sizes["m"] == 1 else TERM  # of a vector, reading the matrix is most
        return each * math.prod(k.batch) * math.prod(k.sizes.values())
    places = len(k.loads) + len(k.stores) + len(k.reductions)
    each = sum(CHEAP if op.row.facts.cheap else FUNCTION for op in k.ops) + MEMORY * places
    return math.prod(k.space) * each


def _into(k: Kernel, parts: dict[Any, Var]) -> Kernel:
    """The kernel with its reductions over rows going into the parts."""
    reductions = [replace(r, buffer=parts.get(r.buffer, r.buffer)) for r in k.reductions]
    return replace(k, reductions=tuple(reductions))


def _filling(k: Product, parts: dict[Any, Var]) -> Product:
    """The same of a product that sums over the rows."""
    outputs = [replace(y, root=parts.get(y.root, y.root)) for y in k.outputs]
    return replace(k, outputs=tuple(outputs))


def _start(b: Var, r: Reduce, shapes: dict[Var, Shape]) -> Kernel:
    """A buffer filled with what a reduction of nothing is."""
    size = math.prod(shapes[b])
    space = (size,) if size > 1 else ()
    assert r.row.facts.neutral is not None, r
    store = Store(b, r.row.facts.neutral(r.dtype), r.dtype, 0, views.c_strides(space))
    return Kernel(space, (), (), (store,), (), {})


def _join(part: Var, r: Reduce) -> Kernel:
    """The reduction of the chunks' parts."""
    chunks, size = part.aval.shape[0], math.prod(part.aval.shape[1:])
    space = (chunks, size) if size > 1 else (chunks,)
    load = Load("part", part, r.dtype, 0, views.c_strides(space), views.full(space))
    row = sum_ if r.row is count_nonzero else r.row
    strides = (0, 1) if size > 1 else (0,)
    joined = Reduce(r.buffer, row, "part", r.dtype, (0,), strides)
    return Kernel(space, (load,), (), (), (joined,), {"part": r.dtype})
