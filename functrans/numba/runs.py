"""Runs of a kernel with active numbers: tangents forward, cotangents backward."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.dispatcher import Dispatcher
from numba.extending import NativeValue, box, typeof_impl, unbox

from functrans._core.bind import may_have_nan
from functrans.errors import UnsupportedError
from functrans.numba import library  # noqa: F401  # enters NumPy's functions
from functrans.numba import tape as tapes
from functrans.numba.arrays import ActiveArray, reinterpret, words_type
from functrans.numba.convert import Copies
from functrans.numba.numbers import Active, Dual, Taped, taped
from functrans.numba.source import explained
from functrans.numba.tape import Inputs

# ---- Active numbers and arrays as arguments and results of kernels: their memory, as NumPy has it


@functools.cache
def _array_of(element: Active, ndim: int, readonly: bool) -> ActiveArray:
    return ActiveArray(element, ndim, "C", readonly)


class Words:
    """The memory of active numbers, as kernels take them."""

    __slots__ = ("kind", "words")

    def __init__(self, words: np.ndarray, element: Active, scalar: bool, readonly: bool):
        self.words = words
        self.kind = element if scalar else _array_of(element, words.ndim - 1, readonly)

    def copy(self) -> Words:
        other = object.__new__(Words)
        other.words, other.kind = self.words.copy(), self.kind
        return other


@typeof_impl.register(Words)
def _typeof(x: Words, context: Any) -> types.Type:
    return x.kind


@unbox(ActiveArray)
def _unbox_array(kind: ActiveArray, x: Any, c: Any) -> NativeValue:
    words = c.pyapi.object_getattr_string(x, "words")
    source = types.Array(types.float64, kind.ndim + 1, "C")
    native = c.unbox(source, words)
    c.pyapi.decref(words)
    value = reinterpret(c.context, c.builder, source, kind, native.value)
    return NativeValue(value, is_error=native.is_error, cleanup=native.cleanup)


@unbox(Dual)
@unbox(Taped)
def _unbox_number(kind: Active, x: Any, c: Any) -> NativeValue:
    array = ActiveArray(kind, 0, "C")
    native = _unbox_array(array, x, c)
    data = c.context.make_array(array)(c.context, c.builder, value=native.value).data
    value = c.context.unpack_value(c.builder, kind, data)
    c.context.nrt.decref(c.builder, array, native.value)
    return NativeValue(value, is_error=native.is_error)


class Returned:
    """What a kernel returns of active numbers: the words of a number or of an array."""

    __slots__ = ("words",)

    def __init__(self, words: Any):
        self.words = np.frombuffer(words) if isinstance(words, bytes) else words

    def __repr__(self) -> str:
        return repr(self.words[..., 0])  # as a kernel prints it


def _return(c: Any, words: Any) -> ir.Value:
    kind = c.pyapi.unserialize(c.pyapi.serialize_object(Returned))
    y = c.pyapi.call_function_objargs(kind, (words,))
    c.pyapi.decref(kind)
    c.pyapi.decref(words)
    return y


@box(ActiveArray)
def _box_array(kind: ActiveArray, value: Any, c: Any) -> ir.Value:
    target = words_type(kind)
    return _return(c, c.box(target, reinterpret(c.context, c.builder, kind, target, value)))


@box(Dual)
@box(Taped)
def _box_number(kind: Active, value: Any, c: Any) -> ir.Value:
    data = c.context.data_model_manager[kind].as_data(c.builder, value)
    place = cgutils.alloca_once_value(c.builder, data)
    size = c.context.get_constant(types.intp, 8 * kind.words)
    start = c.builder.bitcast(place, c.pyapi.cstring)
    return _return(c, c.pyapi.bytes_from_string_and_size(start, size))


# ---- Runs of a kernel with active numbers: tangents forward, cotangents backward
#
# ``components`` of an argument are its value and, for each level of dual numbers, as many tangents
# again: component j has bit k where it is a tangent of level k. The tangent of highest order is the
# last; of a result it is what is asked for.

# What numba raises where it compiles code for numbers that it cannot keep in memory. What a kernel
# raises itself it raises again.
UNTYPED = UnsupportedError, NotImplementedError, TypeError, AttributeError
# How many tangents fit into one run.
WIDTHS = (1, 2, 4, 8)


class Args(NamedTuple):
    """How the arguments of a kernel are made of operands: ``fixed`` has those that are none."""

    places: tuple[int, ...]  # where the operands stand
    scalars: tuple[bool, ...]  # which of them are numbers rather than arrays
    fixed: tuple[Any, ...]  # all arguments, with None where operands stand
    outs: tuple[int, ...]  # which operands are written into

    def filled(self, operands: Sequence) -> list:
        args = list(self.fixed)
        for i, x in zip(self.places, operands, strict=True):
            args[i] = x
        return args

    def plain(self, i: int, x: np.ndarray) -> Any:
        """Operand ``i`` as the kernel gets it: its own where it may write, else read-only."""
        if self.scalars[i]:
            return x[()]
        if i in self.outs:
            return np.array(x, order="C")
        view = np.ascontiguousarray(x).view()
        view.flags.writeable = False
        return view


class Runs:
    """A kernel for each kind of numbers, compiled when it is first run."""

    def __init__(self, copies: Copies, args: Args, checked: bool):
        self.copies, self.args, self.checked = copies, args, checked
        self.room: dict[Any, int] = {}  # how long tapes were
        self.by_address = True  # whether the kernel takes inputs whose nodes their addresses tell

    @functools.cache  # noqa: B019  # lives as long as the runs
    def compiled(self, element: Active) -> tuple[Dispatcher, Args]:
        outs = tuple([self.args.places[i] for i in self.args.outs])
        function, conversion = self.copies.of(element, outs, self.checked)
        fixed = [conversion.of(x) if isinstance(x, Dispatcher) else x for x in self.args.fixed]
        return function, self.args._replace(fixed=tuple(fixed))

    def run(self, element: Active, operands: Sequence) -> list:
        """The flat results, and then the arguments that were written into."""
        compiled, args = self.compiled(element)
        out = explained(self.copies.kernel, compiled, args.filled(operands))
        if not self.args.outs:
            return leaves_of(out)
        result, written = out
        return [*leaves_of(result), *written]

    # ---- forward

    def forward(
        self, xs: Sequence, active: Sequence[int], columns: Sequence[Sequence[np.ndarray]],
        element: Callable[[bool], Active], moving: Sequence[int], part: Callable,
    ) -> list:
        """``part`` of the words of the outputs ``moving``; ``columns`` are those of operands."""
        for strong in (False, True):
            kind = element(strong)
            operands = self._constants(xs, active, kind)
            for i, columns_of_i in zip(active, columns, strict=True):
                operands[i] = self._words(i, kind, [xs[i], *columns_of_i])
            outs = self.run(kind, operands)
            found = [part(_words_of(outs[i], kind)) for i in moving]
            if strong or not any(map(may_have_nan, found)):
                return found
        raise AssertionError

    def _constants(self, xs: Sequence, active: Sequence[int], kind: Active) -> list:
        """The operands, of which none moves; what is written into has room for it all the same."""
        operands = [self.args.plain(i, x) for i, x in enumerate(xs)]
        for i in set(self.args.outs).difference(active):
            if xs[i].dtype.kind == "f":
                operands[i] = self._words(i, kind, [xs[i]])
        return operands

    def _words(self, i: int, kind: Active, columns: Sequence[np.ndarray]) -> Words:
        words = np.zeros((*columns[0].shape, kind.words))
        for k, x in enumerate(columns):
            words[..., k] = x
        return self._numbers(i, kind, words)

    def tangents(
        self, xs: Sequence, active: Sequence[int], components: Sequence[Sequence], depth: int,
        moving: Sequence[int],
    ) -> list[np.ndarray]:
        """The tangents of highest order: ``components`` but the first, by argument."""
        def element(strong: bool) -> Active:
            kind: types.Type = types.float64
            for _ in range(depth):
                kind = Dual(kind, 1, strong)
            assert isinstance(kind, Active)
            return kind

        return self.forward(xs, active, components, element, moving, lambda w: w[..., -1])

    def chunk(
        self, xs: Sequence, active: Sequence[int], ts: Sequence[np.ndarray],
        moving: Sequence[int], values: bool = False,
    ) -> list[np.ndarray]:
        """Tangents along several directions, which are the last axis of ``ts`` and the results.

        With ``values`` these come first on that axis.
        """
        count = ts[0].shape[-1]
        width = min([n for n in WIDTHS if n >= count] or [WIDTHS[-1]])
        first = 0 if values else 1

        def run(start: int) -> list[np.ndarray]:
            stop = min(start + width, count)
            columns = [[t[..., k] for k in range(start, stop)] for t in ts]
            skip = first if start == 0 else 1
            return self.forward(xs, active, columns, lambda s: Dual(types.float64, width, s),
                                moving, lambda w: w[..., skip : 1 + stop - start])

        parts = [run(start) for start in range(0, count, width)]
        return [np.concatenate(p, axis=-1) for p in zip(*parts, strict=True)]

    # ---- backward

    def recorded(
        self, xs: Sequence, active: Sequence[int], components: Sequence[Sequence], depth: int,
        moving: Sequence[int], strong: bool,
    ) -> Recorded:
        """A run that is kept on a tape. ``components`` with the values, by argument."""
        if self.by_address and depth == 0:
            try:
                return self._record(xs, active, components, 0, moving, strong)
            except UNTYPED:
                self.by_address = False  # what the kernel does with them needs memory
        return self._record(xs, active, components, depth, moving, strong)

    def _record(
        self, xs: Sequence, active: Sequence[int], components: Sequence[Sequence], depth: int,
        moving: Sequence[int], strong: bool,
    ) -> Recorded:
        kind = taped(depth, strong)
        operands = self._constants(xs, active, kind)
        by_address = self.by_address and depth == 0
        addressed = [i for i in active if by_address and self._is_addressed(xs, i)]
        block = tapes.numbers.take(
            kind.words * sum([xs[i].size for i in active if i not in addressed]))
        node, at, offsets = 1, 0, []
        for i, columns in zip(active, components, strict=True):
            if i in addressed[: tapes.SLOTS]:
                operands[i] = Inputs(operands[i], len(offsets), strong)
                offsets.append(operands[i].offset(node))
                node += xs[i].size
                continue
            words = block[at : at + kind.words * xs[i].size].reshape(*xs[i].shape, kind.words)
            for k, x in enumerate(columns):
                tapes.number_inputs(words.reshape(-1, kind.words), np.ravel(x), node, 3 * k)
                node += x.size
            operands[i], at = self._numbers(i, kind, words), at + words.size
        key = kind, node
        outs, entries = tapes.recorded(
            lambda: self.run(kind, [x.copy() if i in self.args.outs else x
                                    for i, x in enumerate(operands)]),
            node - 1, self.room.get(key, 4 * node + 1000), offsets,
        )
        self.room[key] = len(entries.entries) + 64
        if all(map(_stands_alone, outs)):
            tapes.numbers.give(block)
        return Recorded(entries, [_words_of(outs[i], kind) for i in moving], strong,
                        [x.shape for parts in components for x in parts])

    def _is_addressed(self, xs: Sequence, i: int) -> bool:
        """Whether the entries of operand ``i`` may be told by their addresses."""
        return (xs[i].dtype == np.float64 and not self.args.scalars[i] and i not in self.args.outs)

    def _numbers(self, i: int, kind: Active, words: np.ndarray) -> Words:
        return Words(words, kind, self.args.scalars[i], i not in self.args.outs)


class Recorded(NamedTuple):
    """A run on a tape: the words of its outputs, and the shapes of its inputs."""

    tape: tapes.Tape
    outs: list[np.ndarray]
    strong: bool
    shapes: list[tuple[int, ...]]

    def values(self) -> list[np.ndarray]:
        return [words[..., 0] for words in self.outs]

    def pull(self, cts: Sequence[Any]) -> list[np.ndarray]:
        """The cotangents of the inputs from those of the outputs, None where there is none."""
        seeds = []
        for words, ct in zip(self.outs, cts, strict=True):
            if ct is None:
                continue
            slopes = words[..., -1]
            with np.errstate(all="ignore"):
                values = np.where(slopes == 0, 0.0, ct * slopes) if self.strong else ct * slopes
            seeds.append((words[..., -2:-1].copy().view(np.int64)[..., 0], values))
        flat, at, parts = self.tape.pull(seeds, self.strong), 0, []
        for shape in self.shapes:
            size = prod(shape)
            parts.append(flat[at : at + size].reshape(shape))
            at += size
        return parts


def leaves_of(out: Any) -> list:
    """The numbers and arrays that a kernel returned."""
    if out is None:
        return []
    return list(out) if isinstance(out, tuple) else [out]


def _stands_alone(x: Any) -> bool:
    """Whether a result is a number, rather than an array that may be part of an argument."""
    return not isinstance(x, Returned) or isinstance(x.words.base, bytes)


def _words_of(x: Any, kind: Active) -> np.ndarray:
    """The words of a result, which is plain where it does not depend on active arguments."""
    if isinstance(x, Returned):
        return x.words
    words = np.zeros((*np.shape(x), kind.words))
    words[..., 0] = x
    return words


# ---- Runs of a kernel from which cotangents can be pulled back: a Jacobian, or a tape


class Jacobian(NamedTuple):
    """A kernel run forward along all entries of its active operands."""

    matrices: list[np.ndarray]  # of each output, its shape and an axis for the entries
    shapes: list[tuple[int, ...]]
    outs: list[np.ndarray]

    @classmethod
    def of(
        cls, runs: Runs, xs: Sequence, active: Sequence[int], moving: Sequence[int]
    ) -> Jacobian:
        shapes = [xs[i].shape for i in active]
        size, at, seeds = sum(map(prod, shapes)), 0, []
        for shape in shapes:
            seed = np.zeros((prod(shape), size))
            seed[np.arange(len(seed)), at + np.arange(len(seed))] = 1.0
            at += len(seed)
            seeds.append(seed.reshape(*shape, size))
        found = runs.chunk(xs, active, seeds, moving, values=True)
        return cls([y[..., 1:] for y in found], shapes, [y[..., 0] for y in found])

    def values(self) -> list[np.ndarray]:
        return self.outs

    def pull(self, cts: Sequence) -> list[np.ndarray]:
        total: Any = 0.0
        for matrix, ct in zip(self.matrices, cts, strict=True):
            if ct is not None:
                total = total + _product(np.asarray(ct), matrix)
        ends = np.cumsum([prod(s) for s in self.shapes])
        parts = np.split(np.broadcast_to(total, ends[-1:]), ends[:-1])
        return [p.reshape(s) for p, s in zip(parts, self.shapes, strict=True)]


def _product(ct: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """``ct`` times a Jacobian, with strong zero where that is needed."""
    flat = matrix.reshape(-1, matrix.shape[-1])
    with np.errstate(all="ignore"):
        y = ct.reshape(-1) @ flat
        if not np.isnan(y).any():
            return y
        products = ct.reshape(-1, 1) * flat
        return np.where((ct.reshape(-1, 1) == 0) | (flat == 0), 0.0, products).sum(axis=0)


class Tapes:
    """A kernel run on a tape; again with strong zero where that gave a NaN."""

    def __init__(self, runs: Runs, *run: Any):
        self.runs, self.run = runs, run
        self.bare = runs.recorded(*run, strong=False)
        self.strong: Recorded | None = None

    def values(self) -> list[np.ndarray]:
        return self.bare.values()

    def pull(self, cts: Sequence) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            found = self.bare.pull(cts)
            if not any(map(may_have_nan, found)):
                return found
            self.strong = self.strong or self.runs.recorded(*self.run, strong=True)
            return self.strong.pull(cts)
