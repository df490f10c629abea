"""Derivative matrices direction by direction, in batches that fit in memory, or on workers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from functrans import tree
from functrans._core.array import aval_of, inexact_dtype, integer, shape_of
from functrans._core.bind import (
    AnyArray,
    Outputs,
    Tracer,
    is_finite,
    is_staged,
    layers,
    watching,
)
from functrans._core.primitive import Primitive
from functrans._ops import linalg
from functrans._ops.declare import Bilinear, Elementwise
from functrans._transforms.matrices import directions, memory
from functrans._transforms.matrices.budget import Live, kept_bytes, too_small
from functrans._transforms.matrices.directions import Directions, LinearMap, Rows, Ways
from functrans._transforms.matrices.memory import available, require_room
from functrans._transforms.sharding.executors import Chunk, require_values, run
from functrans._transforms.vmap import BatchTrace, BatchTracer
from functrans.config import SUBGRADIENT, settings
from functrans.errors import ArgumentError, FunctransError, name_of

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tqdm import tqdm


# ---- Derivative matrices direction by direction, in batches that fit in memory

# Bytes of the largest value of one batch with chunk_size="auto". Such values stay in the
# second-level cache. Where a pass takes long by itself, larger ones of up to WIDEST pay.
LARGEST, WIDEST = 2**20, 2**26
# Nanoseconds that an op of a pass takes however few directions there are; that a byte of a
# direction's values takes, and how much longer outside of the cache; and that a number of a matrix
# cubed takes where each pass factorises it.
OP, BYTE, OUTSIDE, FACTORISED = 10_000, 0.3, 0.06, 0.04
# Nanoseconds that directions are expected to take in Python from which code for one is compiled.
COMPILED = 3e9
# Bytes of the largest value of all directions up to which a program computes them at once.
STAGED = 2**27
# What passes may cost beside their directions, of the time of these, where that pays.
SHARE = 0.1
# Bytes that all values of a batch may take before the free memory is looked up.
UNASKED = 2**30
# Kinds of arguments for which the size of a batch is remembered, for one derivative.
KINDS = 64
# Bytes of the unit vectors and their images, where the values between them are not known.
ENDS = 2**25


class TooLarge(BaseException):
    """A batch has met a value that asks for a smaller one. Not an Exception, which a user's
    function may catch."""


class Batches:
    """Directions run in batches. ``chunk_size`` is the user's: a number, None for all at once, or
    "auto", which goes by the largest value that any op has for one direction.

    ``sizes``, of batches that have fitted, spare the next run of the same kind the looking.
    ``memory`` are the bytes that a batch may take beside its images once they are kept, with what
    is kept from one to the next, on a ``tape``, or as much as one direction where it is None.
    """

    def __init__(self, who: str, f: Callable, chunk_size: Any, progress: bool, instead: str,
                 sizes: dict[tuple, int], memory: int | None = None, tape: Sequence | None = ()):
        self.who, self.f, self.instead, self.sizes = who, f, instead, sizes
        self.chunk_size, self.progress = chunk_size, progress
        self.memory, self.tape = memory, tape
        self.largest = 1
        self.most: int | None = None
        self.per_direction = self.mean = 0
        self.cost = PassCost(0, 0)  # of a whole pass
        self.total = 0

    @property
    def label(self) -> str:
        return f"{self.who}({name_of(self.f)})"

    def run(self, ways: Ways, width: int, values: Sequence, image: Callable,
            across: bool = False) -> list:
        """The images of all directions, joined along axis 0.

        ``image`` is called for a batch at a time, and again for a smaller one where that was too
        large. ``width``: entries of an image, if known. ``across``: directions may be the last axis
        in memory.
        """
        if (linear := self.linear_map(ways, width, values, image)) is not None:
            self._ask(ways.total * sum(map(_nbytes, linear.outs)))
            image = linear if any(map(is_staged, values)) else image
            if (by_color := directions.compress(linear)) is not None:
                products = self.run(Rows(by_color.sums, linear.ways.avals), width, values, image)
                if (images := by_color.spread(products, across)) is not None:
                    return images
            if (size := self._looped(ways, linear, values)) is not None:
                return directions.in_steps(linear, size)
        columns: list[_Column] = []  # none where one batch is all
        last: list = []
        total = ways.total

        def keep(start: int, size: int, images: list) -> None:
            if size >= total:
                last[:] = images
                return
            if not columns:
                self._ask(sum([total * _nbytes(y) // size for y in images]))
                columns.extend([_Column(total) for _ in images])
            for column, y in zip(columns, images, strict=True):
                column.add(y, start)

        self.each(ways, width, values, image, keep)
        return [c.joined() for c in columns] if columns else last

    def linear_map(
        self, ways: Ways, width: int, values: Sequence, image: Callable
    ) -> LinearMap | None:
        """``image`` as a program, where its pattern may be worth looking at: one is being written,
        or directions of plain numbers would run in many batches."""
        if (
            self.chunk_size != "auto" or self.memory is not None or ways.total < directions.LEAST
            or not isinstance(ways, Directions) or len(ways.spans) != len(ways.avals)
        ):
            return None
        if any(map(is_staged, values)):
            return directions.linear_map(ways, image, self.label)
        plain = all([type(getattr(x, "primal", x)) is np.ndarray for x in values])
        if not many(ways, width) or not plain or settings().kinks != SUBGRADIENT:
            return None
        self.measured(ways.rows(0, 1), image)
        if self.mean < 2 * max(ways.entries, width):
            return None  # many small ops, which take longer to write than to run
        try:
            linear = directions.linear_map(ways, image, self.label)
        except FunctransError:  # a rule may ask for the numbers
            return None
        return None if linear.consts else linear

    def _looped(self, ways: Ways, linear: LinearMap, values: Sequence) -> int | None:
        """How many directions each step of a loop in the program that is being written takes; None
        where all at once take little."""
        if not any(map(is_staged, values)):
            return None
        most = max([a.nbytes for a in linear.values()], default=1)
        if ways.total * most <= STAGED:
            return None
        return 1 if most >= LARGEST else min(ways.total, WIDEST // most)

    def sums(self, ways: Ways, values: Sequence, image: Callable) -> list:
        """The sums of what ``image`` returns for each batch, a sum over its directions already."""
        totals: list = []

        def add(start: int, size: int, parts: list) -> None:
            totals[:] = [a + b for a, b in zip(totals, parts, strict=True)] if totals else parts

        self.each(ways, 0, values, image, add, whole=False)
        return totals

    def each(self, ways: Ways, width: int, values: Sequence, image: Callable,
             take: Callable[[int, int, list], None], whole: bool = True) -> None:
        """Batch after batch, ``take`` is given where it starts, its size and its images.

        ``whole``: images have an axis 0 for the batch; else they are as ``image`` returns them.
        """
        self.total = total = ways.total
        entries = ways.entries + width
        staged = any(map(_is_staged, values))
        kind = (*ways.avals, width, total)
        if not staged:
            self.chunk_size = self.sizes.get(kind, self.chunk_size)
        auto = self.chunk_size == "auto" and not staged
        self.largest = max(1, *[_nbytes(a) for a in ways.avals], 8 * width) if auto else 1
        start, begun, looked, compiled = 0, False, False, None
        probing = auto and self.memory is not None and total > 0
        with self._bar(total) as bar:
            while start < total or not begun:
                size = 1 if probing else min(self._size(total, entries, staged), total - start)
                self._ask(size * entries * 8)
                try:
                    rows = ways.rows(start, start + size)
                    images = self._probe(rows, image) if probing else self._images(
                        rows, size, auto, image, whole
                    )
                except TooLarge:
                    continue
                probing = False
                begun = True
                if whole and size > 1 and (lost := _first_nan(images)) is not None:
                    # a rule that refuses a point returns NaN in a batch; alone, it says why
                    self._images(ways.rows(start + lost, start + lost + 1), 1, auto, image)
                take(start, size, images)
                del rows, images  # else they were alive beside those of the next batch
                start += size
                bar.update(size)
                if auto and whole and not looked:
                    looked = True
                    compiled = self._compiled(ways, values, image, total - start)
                    image, self.most = (image, self.most) if compiled is None else (compiled, 1)
        if auto and compiled is None and not self.progress and len(self.sizes) < KINDS:
            self.sizes[kind] = self._size(total, entries, staged)

    def _compiled(
        self, ways: Ways, values: Sequence, image: Callable, left: int
    ) -> Callable | None:
        """``image`` of one direction by compiled code, where ``left`` more of them take so long
        that it pays; where a number is not finite, it is that of Python."""
        if not isinstance(ways, Directions) or not self._take_long(ways, values, left):
            return None
        try:
            linear = directions.linear_map(ways, image, self.label)
        except FunctransError:  # a rule may ask for the numbers
            return None
        return None if linear.consts else directions.compiled(linear, self.label, image)

    def _take_long(self, ways: Ways, values: Sequence, left: int) -> bool:
        """Whether code is compiled for so many directions, where that can be."""
        if left * self.cost.nbytes * BYTE < COMPILED or self.memory is not None or self.progress:
            return False
        if not isinstance(ways, Directions) or len(ways.spans) != len(ways.avals):
            return False
        plain = all([type(getattr(x, "primal", x)) is np.ndarray for x in values])
        now = settings()
        return plain and now.compiles and now.kinks == SUBGRADIENT and not watching.get()

    def _images(
        self, rows: list, size: int, auto: bool, image: Callable, whole: bool = True
    ) -> list:
        if size == 1 and auto and whole and not self.cost.nbytes:
            images = self.measured(rows, image)
            if _first_nan(images) is None:
                return images
        if size == 1:  # as a loop would
            images = image([e[0] for e in rows])
            return [np.reshape(y, (1, *shape_of(y))) for y in images] if whole else images
        trace = SizedTrace(self.label, size, self) if auto else BatchTrace(self.label, size)
        try:
            images = image([trace.input(e) for e in rows])
            if isinstance(trace, SizedTrace):
                self.cost = trace.cost()
            return [trace.batched(y) for y in images] if whole else images
        finally:
            trace.closed = True

    def _probe(self, rows: list, image: Callable) -> list:
        """The images of one direction; how many fit into the budget at once is known after it."""
        assert self.memory is not None
        images = self.measured(rows, image)
        each, held = self.per_direction, self._held()
        if held + each > self.memory:
            raise too_small(self.who, name_of(self.f), self.memory, held + each, self.instead)
        self.most = (self.memory - held) // each
        return images

    def measured(self, rows: list, image: Callable) -> list:
        """The images of one direction, in a batch of one that notes what it takes."""
        trace = LiveTrace(self.label, 1, self)
        try:
            images = [trace.batched(y) for y in image([trace.input(e) for e in rows])]
        finally:
            trace.closed = True
        # an op may take as much again as its result while it runs
        self.per_direction = max(1, trace.live.peak + trace.live.largest)
        self.mean, self.cost = trace.spent // max(1, trace.ops), trace.cost()
        return images

    def _held(self) -> int:
        """Bytes that are kept from batch to batch."""
        return self.per_direction if self.tape is None else kept_bytes(self.tape)

    def plan(self, ways: Ways, width: int, values: Sequence, image: Callable,
             placed: bool = False) -> Expected:
        """How many directions would run at once, and what that takes; one is run for it.

        ``placed``: batch by batch, to an array of the user's.
        """
        if any(map(_is_staged, values)):
            raise ArgumentError(f"{self.who}: memory and explain need values, and these are traced")
        self.largest = max(1, *[_nbytes(a) for a in ways.avals], 8 * width)
        self.total = ways.total
        if ways.total == 0:
            return Expected(0, 0, 0, 0, 0)
        images = self.measured(ways.rows(0, 1), image)
        each, result = self.per_direction, ways.total * sum(map(_nbytes, images))
        held = self._held()
        linear = None if placed else self.linear_map(ways, width, values, image)
        by_color = None if linear is None else directions.compress(linear)
        total, kept = ways.total, held
        if by_color is not None:
            total, kept = by_color.total, held + by_color.nbytes
        if self.memory is not None:
            self.most = max(1, (self.memory - held) // each)
        size = min(total, self._size(total, ways.entries + width, False))
        long = self.chunk_size == "auto" and by_color is None and self._take_long(
            ways, values, total)
        size = 1 if long else size
        pays = size * self.largest > LARGEST and self.memory is None
        return Expected(total, size, result, each, kept, by_color is not None,
                        self.cost.fixed if pays and size > 1 else 0.0, long)

    def fitting(self, cost: PassCost | None = None) -> int:
        """How many directions go at once: as many as the cache has room for, or more where passes
        would cost more than that saves."""
        fits = max(1, LARGEST // self.largest)
        fixed, nbytes = self.cost if cost is None else cost
        if self.tape is None:  # each pass computes the values as well
            fixed += BYTE * nbytes
        few = fixed / (SHARE * (BYTE + OUTSIDE) * max(1, nbytes))
        wide = max(fits, min(int(few) + 1, WIDEST // self.largest))
        if fixed / fits - fixed / wide > OUTSIDE * nbytes:
            fits = wide
        if self.most is not None:
            return min(fits, self.most)
        return self.total if fits < self.total <= 2 * fits else fits

    def _size(self, total: int, entries: int, staged: bool) -> int:
        if self.chunk_size is None:
            return max(1, total)
        if self.chunk_size != "auto":
            return self.chunk_size
        ends = ENDS if self.memory is None else min(ENDS, self.memory)
        fits = max(1, ends // (8 * max(1, entries))) if staged else self.fitting()
        return max(1, min(total, fits, -(-total // 20) if self.progress else total))

    def _ask(self, nbytes: int) -> None:
        if nbytes > memory.UNASKED:
            require_room(self.who, f"the result for `{name_of(self.f)}`", nbytes, self.instead)

    def _bar(self, total: int) -> _NoBar | tqdm:
        if not self.progress:
            return NO_BAR
        import tqdm  # lazy: slow to import

        return tqdm.tqdm(total=total, desc=self.who)


class PassCost(NamedTuple):
    """Nanoseconds that a pass takes beside its directions, and bytes of the values of each."""

    fixed: float
    nbytes: int


class Expected(NamedTuple):
    """Directions, or colours of them where they are ``compressed``, and how many run at once; bytes
    of the result, of one, and of what is held all the time; nanoseconds that a pass takes beside
    them, where it is for these that more run at once than the cache holds; whether code is compiled
    for one."""

    total: int
    chunk: int
    result: int
    each: int
    held: int
    compressed: bool = False
    fixed: float = 0.0
    compiled: bool = False


class _NoBar(contextlib.nullcontext):
    """Where nobody wants to see progress."""

    def __enter__(self) -> _NoBar:
        return self

    def update(self, n: int) -> None:
        """Nothing."""


NO_BAR = _NoBar()


class _Column:
    """Images of one output, in memory for all of them from the first batch on."""

    def __init__(self, total: int):
        self.total = total
        self.parts: list = []

    def add(self, y: Any, start: int) -> None:
        if isinstance(y, Tracer):
            self.parts.append(y)
            return
        if not self.parts:
            self.parts.append(np.empty((self.total, *y.shape[1:]), y.dtype))
        self.parts[0][start : start + len(y)] = y

    def joined(self) -> AnyArray:
        return self.parts[0] if len(self.parts) == 1 else np.concatenate(self.parts)


class SizedTrace(BatchTrace):
    """Batching that looks at the size of each value, and stops before one that is too large."""

    __slots__ = ("batches", "fixed", "spent")

    def __init__(self, fun: str, batch_size: int, batches: Batches):
        super().__init__(fun, batch_size)
        self.batches, self.spent, self.fixed = batches, 0, 0.0

    def cost(self, more: int = 0) -> PassCost:
        """What the ops so far have cost, and one with a value of ``more`` bytes."""
        nbytes = (self.spent + more) // max(1, self.batch_size)
        return PassCost(self.fixed + OP * (more > 0), nbytes)

    def process(self, prim: Primitive, args: tuple, params: dict) -> Outputs:
        # other rows have large results only of large operands, or views
        if isinstance(prim, Elementwise) and len(args) > 1:
            self.expect(8 * self.batch_size * prod(np.broadcast_shapes(*map(shape_of, args))))
        elif isinstance(prim, Bilinear):
            self.expect(8 * self.batch_size * prim.abstract(*map(aval_of, args), **params).size)
        elif prim is linalg.solve and type(matrix := next(iter(args))) is not BatchTracer:
            self.fixed += FACTORISED * shape_of(matrix)[-1] ** 3
        y = super().process(prim, args, params)
        for v in y if prim.outputs > 1 else (y,):
            self.spend(v)
        return y

    def binary(self, prim: Primitive, x1: Any, x2: Any) -> AnyArray:
        if not (type(x1) is type(x2) is BatchTracer and x1.value.shape == x2.value.shape):
            s1, s2 = (np.shape(x) if isinstance(x, list | tuple) else shape_of(x) for x in (x1, x2))
            if s1 != s2 and s1 and s2:
                self.expect(8 * self.batch_size * prod(np.broadcast_shapes(s1, s2)))
        y = super().binary(prim, x1, x2)
        self.spend(y)
        return y

    def unary(self, prim: Primitive, x: Any) -> AnyArray:
        y = super().unary(prim, x)
        self.spend(y)
        return y

    def call(self, call: Any, args: tuple) -> tuple:
        ys = super().call(call, args)
        for y in ys:
            self.spend(y)
        return ys

    def expect(self, nbytes: int) -> None:
        """Note a value that takes ``nbytes`` for the batch; TooLarge if that is too much."""
        batches = self.batches
        if nbytes > batches.largest * self.batch_size:
            batches.largest = nbytes // self.batch_size
            cost = batches.cost if batches.cost.nbytes else self.cost(nbytes)
            if self.batch_size > batches.fitting(cost):
                raise TooLarge

    def spend(self, y: Any) -> None:
        """Note a value that was computed, and the size of all of them so far."""
        if type(y) is not BatchTracer:
            return
        nbytes = y.value.nbytes
        self.fixed += OP
        self.expect(nbytes)
        self.spent += nbytes
        if self.spent > UNASKED and self.spent > (available() or UNASKED) // 4:
            self.batches.most = self.batch_size // 2
            raise TooLarge


class LiveTrace(SizedTrace):
    """Batching that notes how much is alive at once, and how many values there are."""

    __slots__ = ("live", "ops")

    def __init__(self, fun: str, batch_size: int, batches: Batches):
        super().__init__(fun, batch_size, batches)
        self.live, self.ops = Live(), 0

    def input(self, value: Any) -> BatchTracer:
        self.live.add(value)
        return super().input(value)

    def spend(self, y: Any) -> None:
        if type(y) is BatchTracer:
            self.expect(y.value.nbytes)
            self.live.add(y.value)
            self.spent += y.value.nbytes
            self.fixed += OP
            self.ops += 1


def many(ways: Ways, width: int = 0) -> bool:
    """Whether directions run in many batches, by their entries and those of their images."""
    return ways.total * 8 * max(ways.entries, width) >= directions.BATCHES * LARGEST


def _first_nan(images: list) -> int | None:
    """The first entry of the batch with a NaN in its image, None where none is known."""
    for y in images:
        if type(y) is np.ndarray and inexact_dtype(y.dtype) and not is_finite(y):
            rows = np.isnan(y).any(axis=tuple(range(1, y.ndim)))
            if rows.any():
                return int(rows.argmax())
    return None


def _nbytes(x: Any) -> int:
    """What ``x`` takes, for one direction."""
    return aval_of(x).nbytes


def _is_staged(x: Any) -> bool:
    """Whether ``x`` has no value yet."""
    if not isinstance(x, Tracer):
        return False
    *_, inside = layers(x)
    return isinstance(inside, Tracer)


# ---- Directions shared out to the workers of an executor, which run the function for themselves


class SharedBatches(Batches):
    """Batches of ``chunk_size`` directions on an executor.

    ``work(args, kwargs, start, stop)`` returns the images of some directions, in another process if
    need be; ``call`` are the arguments.
    """

    def __init__(self, batches: Batches, executor: Executor, work: Callable, call: tuple):
        self.__dict__.update(batches.__dict__)
        self.executor, self.work, self.call = executor, work, call

    def each(self, ways: Ways, width: int, values: Sequence, image: Callable,
             take: Callable[[int, int, list], None], whole: bool = True) -> None:
        """Batch after batch, ``take`` is given where it starts, its size and its images."""
        total, size = ways.total, integer(self.chunk_size)
        assert size is not None, self.chunk_size
        if total == 0:
            super().each(ways, width, values, image, take, whole)
            return
        require_values(self.who, self.f, "an argument", tree.leaves(self.call))
        if self.tape is None:  # one direction shows what the function returns
            image([e[0] for e in ways.rows(0, 1)])

        def cut() -> Iterator[Chunk]:
            for start in range(0, total, size):
                stop = min(start + size, total)
                name = f"chunk {start // size} (directions {start} to {stop - 1} of {total})"
                yield Chunk(name, (*self.call, start, stop))

        with self._bar(total) as bar:
            parts = run(self.who, self.work, cut(), self.executor, name_of(self.f))
            for i, images in enumerate(parts):
                require_values(self.who, self.f, "the output", images)
                count = min(size, total - i * size)
                take(i * size, count, images)
                bar.update(count)
