"""Batching: a value becomes one array with a new axis 0, which the function does not see."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, overload

import numpy as np

from functrans import tree
from functrans._core.array import integer, ndim_of, plain, shape_of
from functrans._core.bind import (
    PLAIN,
    AnyArray,
    Outputs,
    Trace,
    Tracer,
    bind,
    bind_operands,
    is_finite,
)
from functrans._core.primitive import Primitive
from functrans._kernels.large import keep_memory
from functrans._transforms import options
from functrans._transforms.arguments import describe, hand_out_all, is_number, require_numbers
from functrans._transforms.derived import deriving
from functrans._transforms.drawing import Draw, drawing
from functrans._transforms.mutation import follow
from functrans._transforms.options import require_count
from functrans._transforms.reach import Reach, RefusingDraws
from functrans._transforms.sharding.executors import Chunk, require_executor, require_values, run
from functrans._transforms.staging.generators import state_of
from functrans.errors import ArgumentError, ShapeError, UnsupportedError, name_of, user_line

if TYPE_CHECKING:
    from concurrent.futures import Executor

P = ParamSpec("P")


class BatchTracer(Tracer):
    __slots__ = ("sqrt_operand", "value")

    def __init__(self, trace: BatchTrace, value: Any):
        self.owner = trace
        self.sqrt_operand = None
        self.value = value

    @property
    def inner(self) -> Any:
        return self.value

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape[1:]

    @property
    def dtype(self) -> np.dtype:
        return self.value.dtype

    @property
    def ndim(self) -> int:
        return self.value.ndim - 1

    def concrete_value(self) -> None:
        return None

    def is_finite(self) -> bool:
        return is_finite(self.value)

    def is_differentiated(self) -> bool:
        return isinstance(self.value, Tracer) and self.value.is_differentiated()

    def whole(self) -> np.ndarray | None:
        if self.owner.active_trace() is not None:
            return None
        return self.value.whole() if isinstance(self.value, Tracer) else self.value


class Unbatched(NamedTuple):
    """What a call returns where an output is the same for the whole batch."""

    value: Any


class BatchTrace(Trace):
    __slots__ = ("batch_size", "states", "whole")

    def __init__(self, fun: str, batch_size: int, whole: bool = True):
        super().__init__(fun)
        self.batch_size, self.whole = batch_size, whole
        self.states: dict[int, object] = {}  # of generators that draw for each row

    def process(self, prim: Primitive, args: tuple, params: dict) -> Outputs:
        if self.closed:
            self.require_open(prim)
        batched = [type(x) is BatchTracer and x.owner is self for x in args]
        xs = [x.value if b else x for x, b in zip(args, batched, strict=True)]
        y = prim.batch(self.batch_size, xs, batched, params)
        if prim.outputs > 1:
            return tuple(BatchTracer(self, v) for v in y)
        return BatchTracer(self, y)

    def draw(self, d: Draw, outside: Callable[[Draw], Any]) -> BatchTracer:
        """Random numbers, for each row its own."""
        if not self.whole:
            raise UnsupportedError(
                f"{user_line()}: `{d.name}` of a generator draws in a chunk of {self.fun}: the "
                "numbers would depend on chunk_size. Draw outside, and pass the numbers as an "
                "argument; or pass a key, from which functrans.random.normal(key) draws."
            )
        y = BatchTracer(self, outside(d.rows(self.batch_size)))
        self.states[id(d.generator)] = state_of(d.generator)
        return y

    def rehearse(self, kept: bool) -> Callable[[], None] | None:
        return None  # no draw is kept here

    def call(self, call: Any, args: tuple) -> tuple:
        self.require_open(call)
        batched = [type(x) is BatchTracer and x.owner is self for x in args]
        xs = [x.value if b else x for x, b in zip(args, batched, strict=True)]
        ys = call.batch(self, xs, batched)
        return tuple(y.value if type(y) is Unbatched else BatchTracer(self, y) for y in ys)

    def binary(self, prim: Primitive, x1: Any, x2: Any) -> AnyArray:
        v1 = x1.value if type(x1) is BatchTracer and x1.owner is self else None
        v2 = x2.value if type(x2) is BatchTracer and x2.owner is self else None
        if self.closed:
            return bind(prim, x1, x2)
        if v1 is None or v2 is None:
            v, other = (v2, x1) if v1 is None else (v1, x2)
            if isinstance(other, Tracer) and other.owner.level > self.level:
                return other.owner.binary(prim, x1, x2)
            if type(other) not in PLAIN or ndim_of(other) >= ndim_of(v):
                return bind(prim, x1, x2)
            v1, v2 = (other, v) if v1 is None else (v, other)
        elif v1.ndim != v2.ndim:
            return bind(prim, x1, x2)
        return BatchTracer(self, bind_operands(prim, v1, v2))

    def unary(self, prim: Primitive, x: BatchTracer) -> AnyArray:
        if self.closed:
            return bind(prim, x)
        v = x.value
        return BatchTracer(self, v.owner.unary(prim, v) if isinstance(v, Tracer) else prim(v))

    def input(self, value: Any) -> BatchTracer:
        if type(value) is np.ndarray:
            keep_memory(value)
        return BatchTracer(self, value)

    def batched(self, x: Any) -> np.ndarray | Tracer:
        """The value of ``x`` with axis 0 the batch, repeated where it does not vary."""
        if type(x) is BatchTracer and x.owner is self:
            if type(x.value) is np.ndarray:
                keep_memory(x.value)
            return x.value
        x = np.asarray(x) if not isinstance(x, Tracer) else x
        return np.broadcast_to(x, (self.batch_size, *x.shape))


@overload
def vmap(
    f: Callable[P, Any], in_axes: Any = ..., out_axes: Any = ..., *,
    axis_size: int | None = ..., chunk_size: int | None = ..., executor: Executor | None = ...,
) -> Callable[P, Any]: ...


@overload
def vmap(
    f: None = None, in_axes: Any = ..., out_axes: Any = ..., *,
    axis_size: int | None = ..., chunk_size: int | None = ..., executor: Executor | None = ...,
) -> Callable[[Callable[P, Any]], Callable[P, Any]]: ...


@deriving
def vmap(
    f: Any = None,
    in_axes: Any = 0,
    out_axes: Any = 0,
    *,
    axis_size: int | None = None,
    chunk_size: int | None = None,
    executor: Executor | None = None,
) -> Callable:  # as the overloads say
    """``f`` on every slice of its arguments at once.

    ``in_axes`` says for each positional argument which axis to run over, None to pass it whole; an
    int stands for all of them, a container of ints for the parts of an argument. Keyword arguments
    run over axis 0. ``out_axes`` says where the axis goes in the results. ``axis_size`` is needed
    only when nothing is mapped; ``chunk_size`` bounds how many slices run at once, and memory.
    With an ``executor`` of ``concurrent.futures`` the chunks run on its threads or processes, and
    the result is the same to the last bit.

    Raises ShapeError where the mapped axes do not agree, ExecutorError where workers end early;
    what ``f`` raises arrives with a note that names its chunk.

    >>> import functrans as ft, numpy as np
    >>> ft.vmap(np.dot, in_axes=(0, None))(np.eye(2), np.array([3.0, 4.0]))
    Array([3., 4.])
    """
    if not callable(f):
        raise ArgumentError(f"vmap needs a function, but got {describe(f)}")
    chunk = None
    if chunk_size is not None:
        chunk = require_count("vmap", "chunk_size", chunk_size, 1, "None or ")
    workers = require_executor("vmap", executor)
    if workers is not None and chunk is None:
        raise ArgumentError(
            "vmap: executor needs a chunk_size, the number of slices that are one piece of work; "
            "pieces of 100 ms or more hide what sending them costs"
        )
    reach = Reach(f)
    function = follow(f, reach)
    reach.finish()

    def batched(*args: Any, **kwargs: Any) -> Any:
        nonlocal reach
        axes = _spread_axes(f, in_axes, args)
        leaves, structure = tree.flatten((args, kwargs))
        leaves = [plain(x) for x in leaves]
        flat_axes = axes + [0 if is_number(x) and ndim_of(x) else None for x in leaves[len(axes) :]]
        size = _size(f, leaves, flat_axes, axis_size, structure)
        xs = [np.moveaxis(x, a, 0) if a else x for x, a in zip(leaves, flat_axes, strict=True)]
        if chunk is None or (chunk >= size and workers is None):
            reach = reach.current()
            outs = _run(function, reach, structure, xs, flat_axes, size)
            return _place_out(f, out_axes, *outs)
        return _place_out(
            f, out_axes, *_in_chunks(f, structure, xs, flat_axes, size, chunk, workers)
        )

    return batched


def _in_chunks(
    f: Callable, structure: tree.Structure, xs: list, flat_axes: list, size: int, chunk: int,
    executor: Executor | None,
) -> tuple[list, tree.Structure]:
    """What ``_run`` returns, from runs of ``chunk`` slices each."""
    if executor is not None:
        require_values("vmap", f, "an argument", xs)

    def cut() -> Iterator[Chunk]:
        for i in range(0, max(size, 1), chunk):
            stop = min(i + chunk, size)
            name = f"chunk {i // chunk} (slices {i} to {stop - 1} of {size})"
            part = [x if a is None else x[i:stop] for x, a in zip(xs, flat_axes, strict=True)]
            yield Chunk(name, (structure, part, flat_axes, stop - i))

    work = functools.partial(_followed_run, f)
    parts, structures = [], []
    for outs, out_structure in run("vmap", work, cut(), executor, name_of(f)):
        if executor is not None:
            require_values("vmap", f, "the output", outs)
        parts.append(outs)
        structures.append(out_structure)
    return [np.concatenate(column) for column in zip(*parts, strict=True)], structures[0]


def _followed_run(f: Callable, *args: Any) -> tuple[list, tree.Structure]:
    reach = Reach(f)
    return _run(follow(f, reach), reach.finish(), *args, whole=False)


def _run(
    f: Callable, reach: Reach, structure: tree.Structure, xs: Sequence,
    flat_axes: Sequence[int | None], size: int, whole: bool = True,
) -> tuple[list, tree.Structure]:
    """Batched output leaves, batch axis 0, and the output's structure; of a chunk unless ``whole``.
    """
    trace = BatchTrace(f"vmap({name_of(f)})", size, whole)
    try:
        leaves = [x if a is None else trace.input(x) for x, a in zip(xs, flat_axes, strict=True)]
        args, kwargs = tree.unflatten(structure, leaves)
        reach = reach.given([x for x in leaves if not is_number(x)])
        why = "the same for every slice"
        with RefusingDraws(reach, trace.fun, why, trace.states):
            outs, out_structure = tree.flatten(drawing(trace, lambda: f(*args, **kwargs)))
        require_numbers(f"vmap: `{name_of(f)}`", outs, "an array")
        return [trace.batched(plain(x)) for x in outs], out_structure
    finally:
        trace.closed = True


def _spread_axes(f, in_axes, args) -> list:
    """One axis or None a leaf of ``args``."""
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if in_axes is None or integer(in_axes) is not None:
        in_axes = (in_axes,) * len(args)
    if not isinstance(in_axes, tuple) or len(in_axes) != len(args):
        raise ArgumentError(
            f"vmap: in_axes must be an int, None or a tuple of {len(args)} entries, one for each "
            f"positional argument of `{name_of(f)}`, but is {in_axes!r}"
        )
    return [
        a for axis, x in zip(in_axes, args, strict=True) for a in _axes_of(f, "in_axes", axis, x)
    ]


def _axes_of(f, what, axis, x) -> list:
    """``axis``, an int, None or a container of them that is a prefix of ``x``, for each leaf."""
    number = integer(axis)
    if axis is None or number is not None:
        axis = number
        return [
            axis
            if is_number(v) and (ndim_of(v) or what == "out_axes")
            else _scalar_axis(f, axis, v)
            for v in map(plain, tree.leaves(x))
        ]
    axes, parts = _children(axis), _children(x)
    named = isinstance(axis, dict) and isinstance(x, dict)
    if axes is None or parts is None or len(axes) != len(parts) or (named and {*axis} != {*x}):
        raise ArgumentError(f"vmap: {what} {axis!r} does not fit {describe(x)} of `{name_of(f)}`")
    pairs = zip(axes, parts, strict=True)
    return [leaf_axis for a, part in pairs for leaf_axis in _axes_of(f, what, a, part)]


def _scalar_axis(f: Callable, axis: int | None, v: Any) -> None:
    if axis is None or not is_number(v):
        return None
    raise ShapeError(
        f"vmap: `{name_of(f)}` was given the scalar {v!r} to run over axis {axis}. Pass an array, "
        "or None for it in in_axes to keep it fixed."
    )


def _children(x) -> list | None:
    opened = tree.opened(x)
    return None if opened is None or x is None else list(opened[0])


def _size(f, leaves, axes, axis_size, structure) -> int:
    def called(i: int) -> str:
        return _call(i, tree.unflatten(structure, range(len(leaves))))

    sizes = {}
    for i, (x, a) in enumerate(zip(leaves, axes, strict=True)):
        if a is None:
            continue
        if not -ndim_of(x) <= a < ndim_of(x):
            raise ShapeError(
                f"vmap: {called(i)} of `{name_of(f)}` has shape {shape_of(x)}, which "
                f"has no axis {a}"
            )
        sizes[i] = shape_of(x)[a]
    if not sizes:
        if axis_size is None:
            other = next((x for x in leaves if not is_number(x)), None)
            given = "" if other is None else f", which was given {describe(other)}"
            raise ArgumentError(
                f"vmap: nothing to map over in `{name_of(f)}`{given}. Pass arrays, or axis_size, "
                "the number of slices."
            )
        return operator.index(axis_size)
    first = next(iter(sizes))
    if axis_size not in (None, sizes[first]):
        raise ShapeError(
            f"vmap: axis_size is {axis_size}, but {called(first)} of `{name_of(f)}` "
            f"has size {sizes[first]} on axis {axes[first]}. Leave axis_size out where something "
            "is mapped."
        )
    for i, n in sizes.items():
        if n != sizes[first]:
            raise ShapeError(
                f"vmap: {called(i)} of `{name_of(f)}` has size {n} on axis {axes[i]}, "
                f"{called(first)} has size {sizes[first]}. Batched axes must agree; "
                "pass in_axes=None for an argument to keep it fixed."
            )
    return sizes[first]


def _call(i: int, places: tuple[tuple, dict]) -> str:
    """What messages call the i-th leaf: the argument, and the way to the leaf in it."""
    args, kwargs = places
    return next(
        f"argument {options.show(str(name), path)}"
        for name, x in [*enumerate(args), *kwargs.items()]
        for path, k in options.leaves(x) if k == i
    )


def _place_out(f: Callable, out_axes: Any, outs: list, structure: tree.Structure) -> Any:
    axes = _axes_of(f, "out_axes", out_axes, tree.unflatten(structure, outs))
    if any(a is None for a in axes):
        raise ArgumentError(f"vmap: out_axes of `{name_of(f)}` must be ints, but is {out_axes!r}")
    for i, a in enumerate(axes):
        ndim = ndim_of(outs[i])
        if not -ndim <= a < ndim:
            raise ShapeError(
                f"vmap: out_axes puts the batch at axis {a} of what `{name_of(f)}` returned, which "
                f"with the batch has {ndim} axes"
            )
        if a:
            outs[i] = np.moveaxis(outs[i], 0, a)
    return tree.unflatten(structure, hand_out_all(outs))
