"""``differentiable``: a kernel compiled by numba as a function that every transform takes."""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic

from functrans import tree
from functrans._core.array import aval_of, integer, plain
from functrans._core.bind import Tracer, is_staged
from functrans._core.locks import Lock
from functrans._ops.calls import Call
from functrans._ops.declare import General
from functrans._ops.elementwise import from_parts
from functrans._transforms.arguments import describe
from functrans._transforms.options import require_choice, require_count
from functrans._transforms.reverse.nodes import CallNode, recorded
from functrans._transforms.staging.signature import typed
from functrans.errors import ArgumentError, UnsupportedError
from functrans.numba.arrays import ActiveArray, fresh
from functrans.numba.complexes import Pair, part_of
from functrans.numba.convert import KEPT, Copies
from functrans.numba.numbers import for_kernels
from functrans.numba.ops import (
    AUTO,
    FORWARD,
    REVERSE,
    KernelOp,
    Mode,
    argument_type,
    flat_types,
    result_type,
    structured,
)
from functrans.numba.runs import WIDTHS, Args
from functrans.numba.source import line_of_call

# ---- Calls of kernels under transforms
#
# Where nothing but the innermost transform is about, a kernel is run once, for its value and all
# that its derivative needs: a Jacobian, a tape, tangents. Otherwise its rows (``ops.py``) are
# bound, which every transform handles.


class KernelCall(Call):
    """A kernel as a call, ``make(checked)``."""

    __slots__ = ("_checked", "make", "op")

    def __init__(self, make: Callable[[bool], KernelOp]):
        self.make, self.op = make, make(False)
        self._checked: KernelOp | None = None
        super().__init__(self.op.name, self.bound)

    @property
    def checked(self) -> KernelOp:
        """The same for programs."""
        if self._checked is None:
            self._checked = self.make(True)
        return self._checked

    def row(self, operands: Sequence) -> General:
        return (self.checked if any(map(is_staged, operands)) else self.op).row

    def bound(self, *operands: Any) -> tuple:
        return self._all(self.row(operands)(*operands))

    def _all(self, ys: Any) -> tuple:
        return ys if self.op.outputs > 1 else (ys,)

    def staged(self, trace: Any, args: tuple) -> tuple:
        return self._all(trace.process(self.checked.row, args, {}))

    def taylor(self, trace: Any, args: Sequence) -> tuple:
        return self.bound(*args)

    def batch(self, trace: Any, xs: Sequence, batched: Sequence[bool]) -> Sequence:
        return self._all(self.row(xs).batch(trace.batch_size, xs, batched, {}))

    def jvp(self, trace: Any, primals: Sequence, tangents: Sequence) -> tuple[Sequence, Sequence]:
        op = self.op
        active = [i for i, t in enumerate(tangents) if t is not None]
        ts = [tangents[i] for i in active]
        if not self._alone([*primals, *ts], active):
            ys, row = self.bound(*primals), self.row([*primals, *ts])
            t = row.jvp(tangents, ys if op.outputs > 1 else ys[0], primals, {})
            return ys, t if op.outputs > 1 else (t,)
        xs = [np.asarray(x) for x in primals]
        found = op.runs.chunk(xs, active, [np.asarray(t)[..., None] for t in ts], op.moving,
                              values=True)
        return [y[..., 0] for y in found], [y[..., 1] for y in found]

    def record(self, trace: Any, args: Sequence) -> tuple:
        primals, parents = trace.operands(args)
        active = [i for i, p in enumerate(parents) if p is not None]
        if not self._alone(primals, active):
            return self._all(trace.process(self.row(primals), tuple(args), {}))
        xs = [np.asarray(x if p is not None else trace.capture(x))
              for x, p in zip(primals, parents, strict=True)]
        level = self.op.level(0, active)
        run = level.linearized(xs, [[] for _ in active])
        node = RunNode([p for p in parents if p is not None], level, xs, run)
        return recorded(trace, node, [np.array(y) for y in run.values()])

    def _alone(self, values: Sequence, active: Sequence[int]) -> bool:
        """Whether all is float64 and nothing else traces it, so that one run gives everything."""
        op = self.op
        return (
            len(op.moving) == op.outputs and not any(isinstance(x, Tracer) for x in values)
            and all(aval_of(values[i]).dtype == np.float64 for i in active)
            and all(d == np.float64 for d in op.dtypes)
        )


class RunNode(CallNode):
    """The tape entry of a run: what pulls cotangents back through it."""

    __slots__ = ("level", "run", "xs")

    def __init__(self, parents: list, level: Any, xs: Sequence, run: Any):
        super().__init__(parents, len(level.op.moving))
        self.level, self.xs, self.run = level, xs, run

    def pull(self, cts: Sequence) -> Sequence:
        if not any(isinstance(c, Tracer) for c in cts):
            return self.run.pull(cts)
        full = [np.zeros(()) * np.asarray(y) if c is None else c
                for c, y in zip(cts, self.run.values(), strict=True)]
        return self.level.pull(*self.xs, *full)

    def push(self, ts: Sequence) -> Sequence:
        filled = [np.zeros_like(self.xs[i]) if t is None else t
                  for i, t in zip(self.level.active, ts, strict=True)]
        return self.level.op.level(1, self.level.active).push(*self.xs, *filled)


# ---- Complex arguments and results of kernels, by their parts
#
# A kernel of complex numbers is one of real numbers: of the parts of its arguments, which returns
# the parts of its results. That one is compiled and differentiated. The parts are taken of traced
# values, and put together again, by operations that every transform knows.


def of_parts(kernel: Dispatcher, complexes: Sequence[bool]) -> Dispatcher:
    """The kernel of real numbers; ``complexes`` says which arguments have parts."""
    join = _join(complexes)

    def entry(*parts):
        return parted(kernel(*join(parts)))

    entry.__name__ = entry.__qualname__ = kernel.__name__
    options = {k: v for k, v in kernel.targetoptions.items() if k in KEPT}
    return numba.njit(entry, **options)


def split(values: Sequence, complexes: Sequence[bool]) -> list:
    """Arguments with those that are complex as their parts."""
    parts = []
    for x, has_parts in zip(values, complexes, strict=True):
        parts += [np.real(x), np.imag(x)] if has_parts else [x]
    return parts


def put_together(ys: Sequence, kinds: Sequence) -> list:
    """Results of these types from the numbers and arrays that ``parted`` makes of them."""
    rest, found = iter(ys), []
    for kind in kinds:
        y = next(rest)
        found.append(from_parts(y, next(rest)) if is_complex(kind) else y)
    return found


def is_complex(kind: Any) -> bool:
    """Whether it is the type of complex numbers, or of an array of them."""
    return isinstance(kind.dtype if isinstance(kind, types.Array) else kind, types.Complex | Pair)


# ---- arguments in a kernel


def _join(complexes: Sequence[bool]) -> Any:
    """What makes arguments of their parts, tuple from tuple, as a function for kernels."""

    @intrinsic
    def join(typingctx: Any, parts: Any) -> Any:
        rest, kinds = iter(parts), []
        for has_parts in complexes:
            kind = next(rest)
            kinds.append(_complex_type(kind, next(rest)) if has_parts else kind)
        target = types.Tuple(kinds)

        def build(context: Any, builder: Any, signature: Any, args: Any) -> ir.Value:
            given = iter(enumerate(parts))

            def taken() -> tuple[Any, Any]:
                k, kind = next(given)
                return builder.extract_value(args[0], k), kind

            made = []
            for kind, has_parts in zip(kinds, complexes, strict=True):
                x, of = taken()
                if has_parts:
                    y, other = taken()
                    x = context.compile_internal(builder, _maker(kind), kind(of, other), [x, y])
                else:
                    context.nrt.incref(builder, kind, x)
                made.append(x)
            return context.make_tuple(builder, target, made)

        return target(parts), build

    return join


def _complex_type(x: Any, y: Any) -> Any:
    """The type of an argument with such parts; the kernel must not write into an array."""
    first, second = [k.dtype if isinstance(k, types.Array) else k for k in (x, y)]
    part = part_of(first, second)
    plain = types.complex64 if first == types.float32 else types.complex128
    kind: Any = plain if part is None else Pair(part)
    if not isinstance(x, types.Array):
        return kind
    return (types.Array if part is None else ActiveArray)(kind, x.ndim, "C", readonly=True)


def _maker(kind: Any) -> Callable:
    if not isinstance(kind, types.Array):
        return lambda x, y: complex(x, y)
    if isinstance(kind, ActiveArray):
        make: Any = fresh(kind.dtype)
    else:
        number = np.dtype(str(kind.dtype))
        make = numba.njit(lambda shape: np.zeros(shape, number))

    def array(x, y):
        z = make(x.shape)
        for i in np.ndindex(x.shape):
            z[i] = complex(x[i], y[i])
        return z

    return array


# ---- results


@for_kernels
def parted(y):
    """A kernel's result as one tuple of real numbers and arrays."""
    if isinstance(y, types.NoneType):
        return lambda y: ()
    if isinstance(y, types.BaseTuple):
        if len(y) == 0:
            return lambda y: ()
        return lambda y: (*parted(y[0]), *parted(y[1:]))
    if is_complex(y):
        return lambda y: (np.real(y), np.imag(y))
    return lambda y: (y,)


# ---- ``differentiable``: a kernel compiled by numba as a function that every transform takes

# Kinds of arguments that one kernel keeps rows for.
REMEMBERED = 64


def differentiable(
    kernel: Callable,
    *,
    argnums: int | Sequence[int] | None = None,
    outs: str | Sequence[str] = (),
    chunk: int = WIDTHS[-1],
    mode: str = AUTO,
) -> Differentiable:
    """``kernel``, a function compiled by ``numba.njit``, for every transform and to any order.

    It is compiled again, from its Python, for numbers that carry derivatives. A tangent
    ``J t`` is a run with dual numbers. A gradient ``v^T J`` in up to ``chunk`` entries is
    such a run with as many tangents in it, in more a run on a native tape; ``mode`` "forward" or
    "reverse" decides instead. Where only one transform is about, the value comes from the same run.

    ``argnums``: which arguments may be traced, as a check; all by default. ``outs`` names the
    arguments that the kernel writes into. It gets copies of them, and the call returns its result,
    if it has one, and then what is in these after it. A kernel that writes into any other argument
    is refused.

    Raises UnsupportedError, with the line, for kernels that use what has no derivative here, and
    ArgumentError for arguments that do not fit.

    >>> import functrans as ft, numba
    >>> from functrans.numba import differentiable
    >>> @numba.njit
    ... def doubled(x, y):
    ...     for i in range(len(x)):
    ...         y[i] = 2 * x[i] ** 2
    >>> f = differentiable(doubled, outs="y")
    >>> ft.grad(lambda x: np.sum(f(x, np.zeros(2))))(np.array([1.0, 3.0]))
    Array([ 4., 12.])
    """
    if not isinstance(kernel, Dispatcher):
        raise ArgumentError(
            f"differentiable needs a function compiled by numba.njit, but got {describe(kernel)}"
        )
    require_choice("differentiable", "mode", mode, (AUTO, FORWARD, REVERSE))
    size = require_count("differentiable", "chunk", chunk)
    return Differentiable(kernel, argnums, outs, Mode(mode, size))


def differentiable_as(kernel: Dispatcher, source: Dispatcher) -> Differentiable:
    """``kernel``, made of the Python of ``source``, whose names it has."""
    return Differentiable(kernel, None, (), Mode(AUTO, WIDTHS[-1]), source)


class Differentiable:
    """What ``differentiable`` returns."""

    def __init__(
        self, kernel: Dispatcher, argnums: Any, outs: Any, mode: Mode,
        source: Dispatcher | None = None,
    ):
        """``source``: the user's kernel, where ``kernel`` is made of its Python."""
        functools.update_wrapper(self, kernel.py_func)
        self.kernel, self.source, self.mode = kernel, source or kernel, mode
        self.copies = Copies(kernel, self.source)
        self.name = f"numba({kernel.__name__})"
        self.signature = inspect.signature(kernel.py_func)
        names = list(self.signature.parameters)
        # how many arguments need no binding, as each is positional
        self.positional = kernel.py_func.__code__.co_argcount
        written = [outs] if isinstance(outs, str) else outs
        self.outs = tuple([self._place(o, names) for o in written])
        self.argnums = None if argnums is None else {
            self._place(i, names) for i in np.atleast_1d(argnums).tolist()}
        self.ops: OrderedDict[Any, KernelCall] = OrderedDict()
        self.real: dict[tuple[bool, ...], Differentiable] = {}  # by which arguments are complex
        self.lock = Lock()

    def __repr__(self) -> str:
        return self.name

    def _place(self, which: Any, names: list[str]) -> int:
        """The place of an argument from its name or number."""
        i = names.index(which) if which in names else integer(which)
        if i is None or not -len(names) <= i < len(names):
            raise ArgumentError(
                f"differentiable: `{self.kernel.__name__}` has no argument {which!r}; its "
                f"arguments are {', '.join(names)}"
            )
        return i % len(names)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != self.positional:
            bound = self.signature.bind(*args, **kwargs)
            bound.apply_defaults()
            args = bound.args
        self._follow()
        values = [plain(x) if isinstance(x, np.ndarray) else x for x in args]
        places = [i for i, x in enumerate(values) if self._is_operand(i, x)]
        complexes = [i for i in places
                     if isinstance(values[i], Tracer) and values[i].dtype.kind == "c"]
        if complexes:
            return self._of_parts(complexes, values)
        self._require_apart(values)
        call = self._call(values, places)
        if call.op.is_complex and any(isinstance(x, Tracer) for x in values):
            return self._of_parts([], values)
        ys = call(*[np.asarray(values[i]) if not isinstance(values[i], Tracer) else values[i]
                    for i in places])
        return call.op.returned(ys)

    def _follow(self) -> None:
        """Compile anew where the kernel has been, with other values of globals."""
        if not self.copies.are_current():
            with self.lock:
                self.copies = Copies(self.kernel, self.source)
                self.ops.clear()

    def _of_parts(self, places: Sequence[int], values: Sequence) -> Any:
        """The result, by a kernel of the parts of the arguments at ``places`` and of results."""
        if self.outs:
            raise ArgumentError(
                f"{line_of_call()}: {self.name}: with complex arguments or results, the arguments "
                "that outs names are not returned. Return these arrays from the kernel."
            )
        complexes = tuple([i in places for i in range(len(values))])
        if complexes not in self.real:
            self.real[complexes] = Differentiable(
                of_parts(self.kernel, complexes), None, (), self.mode)
        real = self.real[complexes]
        ys = real(*split(values, complexes))
        kind = self._result_type(values)
        return structured(put_together(ys, flat_types(kind)), kind)

    def _result_type(self, values: Sequence) -> Any:
        plain_kernel, conversion = self.copies.of(None, (), False)
        kinds = []
        for x in values:
            if isinstance(x, Tracer | np.ndarray | np.generic):
                scalar = not isinstance(x, np.ndarray) and not aval_of(x).shape
                kinds.append(argument_type(aval_of(x), scalar, readonly=True))
            else:
                kinds.append(numba.typeof(conversion.of(x)))
        return result_type(self.kernel, plain_kernel, kinds)

    def _is_operand(self, i: int, x: Any) -> bool:
        """Whether an argument is differentiated or batched, rather than a constant of the call."""
        if isinstance(x, np.random.Generator):
            raise ArgumentError(
                f"{line_of_call()}: {self.name}: argument {i} is a random generator, which draws "
                "other numbers in the run for the derivative; draw them before and pass them"
            )
        if not isinstance(x, Tracer):
            if any(isinstance(v, Tracer) for v in tree.leaves(x)):
                raise ArgumentError(
                    f"{line_of_call()}: {self.name}: argument {i} is a container with traced "
                    "values. A kernel takes such values as arguments of their own."
                )
            number = isinstance(x, np.ndarray | np.floating | float)
            return number and np.asarray(x).dtype.kind in "fiub"
        if self.argnums is not None and i not in self.argnums:
            raise ArgumentError(
                f"{line_of_call()}: {self.name}: argument {i} is traced, but argnums names "
                f"{sorted(self.argnums)} only"
            )
        if x.dtype.kind not in "fiubc" or x.dtype == np.float16 or not x.dtype.isnative:
            raise UnsupportedError(
                f"{line_of_call()}: {self.name}: argument {i} is {x.dtype}. Kernels are "
                "differentiated in arguments of float64 and float32, and in complex ones."
            )
        return True

    def _require_apart(self, values: Sequence) -> None:
        """What is written into must not be seen by another name."""
        for i in self.outs:
            for j, x in enumerate(values):
                arrays = isinstance(x, np.ndarray) and isinstance(values[i], np.ndarray)
                if j != i and (x is values[i] or (arrays and np.may_share_memory(x, values[i]))):
                    raise ArgumentError(
                        f"{line_of_call()}: {self.name}: argument {i}, which is written into, "
                        f"shares memory with argument {j}; pass copies"
                    )

    def _call(self, values: Sequence, places: Sequence[int]) -> KernelCall:
        """The kernel as a call, for arguments of this kind."""
        operands = [values[i] for i in places]
        avals = [aval_of(x) for x in operands]
        fixed = tuple([None if i in places else x for i, x in enumerate(values)])
        scalars = tuple([not isinstance(x, np.ndarray) and not aval_of(x).shape for x in operands])
        kinds = tuple([(a.dtype, a.ndim) for a in avals])
        key = tuple(places), scalars, kinds, typed(fixed)
        try:
            with self.lock:
                if key in self.ops:
                    return self.ops[key]
        except TypeError:
            key = None  # a constant that cannot be compared: a row for this call alone
        outs = tuple([self._operand(i, values, places) for i in self.outs])
        args = Args(tuple(places), scalars, fixed, outs)
        call = KernelCall(functools.partial(KernelOp, self.copies, args, avals, self.mode))
        if key is not None:
            with self.lock:
                self.ops[key] = call
                if len(self.ops) > REMEMBERED:
                    self.ops.popitem(last=False)
        return call

    def _operand(self, i: int, values: Sequence, places: Sequence[int]) -> int:
        if i not in places or not aval_of(values[i]).shape:
            raise ArgumentError(
                f"{self.name}: argument {i}, which is written into, must be an array, but is "
                f"{describe(values[i])}"
            )
        return places.index(i)
