"""Dispatch by the data: a primitive goes to the newest trace among its arguments.

There is no current transform, global or thread-local: nothing to restore after an exception, and
rules evaluated on lower values dispatch lower by themselves.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from math import isfinite, prod
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from functrans._core import plain as scans
from functrans._core import remedies, scipy_names
from functrans._core.array import (
    PYTHON_SCALARS,
    Array,
    as_number,
    dtype_of,
    is_labelled,
    is_subclassed,
    plain,
    require_common,
    shape_of,
    writer,
)
from functrans._core.plain import broadcast_axes, summed
from functrans.errors import (
    ArgumentError,
    ConcretizationError,
    ImmutableError,
    LeakedTracerError,
    lost,
    user_line,
)

if TYPE_CHECKING:
    from functrans._core.methods import Methods
    from functrans._core.primitive import Primitive
else:
    Methods = object

next_level = itertools.count(1).__next__
_vdot = getattr(np.vdot, "__wrapped__", np.vdot)  # without dispatch, in two thirds of the time

# Of arrays that are certainly plain: ``ARRAYS.issuperset(map(type, xs))`` runs no Python code.
ARRAYS = frozenset({np.ndarray})
# Values that are certainly not traced and certainly not weak.
STRONG = frozenset(
    {np.ndarray, np.float64, np.float32, np.float16, np.complex128, np.complex64, np.longdouble}
    | {np.int64, np.int32, np.bool_}
)
# The same, and Python's scalars, which NumPy promotes weakly (NEP 50).
PLAIN = STRONG | PYTHON_SCALARS


# Who watches the traces that start in this context (`_transforms.watching`); usually no one.
watching: ContextVar[Any] = ContextVar("watching", default=None)

# ``Trace.closed`` of a trace that leaves ops to a writer: true, so that none takes a short way.
SUSPENDED = "lent"


class OtherOperand(ArgumentError):
    """An object where an op takes arrays, as a sparse one; operators know what to do with it."""


class Trace:
    """One run of one transform. Its level says how new it is; newer traces wrap older values."""

    __slots__ = ("closed", "fun", "level")

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        watch = watching.get()
        # a watched trace is of a subclass that reports each op: unused observers are free
        return object.__new__(cls) if watch is None else watch.trace(cls)

    def __init__(self, fun: str):
        self.level: float = next_level()
        self.fun = fun
        self.closed: bool | str = False

    def process(self, prim: Primitive, args: tuple, params: dict) -> Any:
        """The result of ``prim`` on ``args``, of which at least one is a tracer of this trace."""
        raise NotImplementedError

    def binary(self, prim: Primitive, x1: Any, x2: Any) -> AnyArray:
        """``prim`` on two operands, one of them mine; traces may have a faster path for it."""
        return bind(prim, x1, x2)

    def unary(self, prim: Primitive, x: Any) -> AnyArray:
        """``prim`` on one operand of mine, without parameters."""
        return bind(prim, x)

    def process_fused(self, rule: Any, x: Any, params: dict) -> Any:
        """A composition of ops on ``x``, one of mine, as one op by a rule of its own
        (``_ops/calls.py``); None: op by op."""

    def call(self, call: Any, args: tuple) -> tuple:
        """A function that has rules of its own (``_ops/calls.py``), on ``args``, some of them mine.

        By default the function itself is called, and older traces do not see its rules.
        """
        return call.fun(*args)

    def on_concretize(self, x: Tracer, use: str) -> None:
        """Python has taken the number in ``x``, one of mine, which ends its derivative."""

    def suspend(self) -> None:
        """Leave ops on my values to a newer trace, in contexts where that is the writer."""
        self.closed = self.closed or SUSPENDED

    def active_trace(self) -> Any:
        """The trace that takes ops on my values in this context; None: I do."""
        newer = writer.get() if self.closed else None
        return newer if newer is not None and newer.level > self.level else None

    def require_open(self, prim: Primitive) -> None:
        if self.closed is True:
            raise self.leaked(f"{user_line()}: `{prim.name}` got")

    def leaked(self, found: str) -> LeakedTracerError:
        """The error of a traced value of this trace, which has ended."""
        return LeakedTracerError(
            f"{found} a traced value of {self.fun}, which has already ended. A value that "
            f"{self.fun} traces must not be kept in a global, an attribute or a default argument; "
            "return it (with has_aux=True) instead."
        )


class Tracer(Methods):
    """A value that a transform follows. Its methods and operators come from ``functrans.numpy``."""

    __slots__ = ("owner",)
    __pandas_priority__ = 10_000  # pandas leaves its operators on us to ours

    owner: Trace
    # whether a program is being written, so that its numbers are not known
    staged = False
    # what a length is the root of (``functrans.numpy.fused``), in tracers with a slot for it
    sqrt_operand: Any = None

    def made_by(self) -> Primitive | None:
        """The row whose result it is, where a program is being written; None: not known."""
        return None

    @property
    def inner(self) -> Any:
        """What it wraps, a value of an older transform or a plain one; None if there is none."""
        return None

    def concrete_value(self) -> Any:
        """The plain value inside, None if there is none (or one for each batch entry)."""
        raise NotImplementedError

    def is_finite(self) -> bool:
        """Whether every number in it, derivatives included, is known to be finite."""
        raise NotImplementedError

    def is_differentiated(self) -> bool:
        """Whether a derivative is taken of it, at any depth."""
        return True

    def whole(self) -> Any:
        """The plain values inside, of all entries of a batch; None if they are not known."""
        return None

    def current(self) -> Tracer | np.ndarray:
        """Itself; of a name for a value that may change, the value it has now."""
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        raise NotImplementedError

    @property
    def dtype(self) -> np.dtype:
        raise NotImplementedError

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self):
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<{self.dtype}[{','.join(map(str, self.shape))}] traced by {self.owner.fun}>"

    def __setitem__(self, key: Any, value: Any) -> None:
        raise ImmutableError(
            scipy_names.advice(self)
            or f"{user_line()}: a traced array cannot be assigned into here: {remedies.UNSEEN}. "
            "Write y = x.at[index].set(value), build the result with np.stack, np.concatenate or "
            "np.where, or run this in a block of `functrans.patch()`."
        )

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        if (answer := scipy_names.answer_to_sparse()) is not None:
            return answer
        if self.dtype.kind in "iub" and (x := self.concrete_entries()) is not None:
            return np.array(x, dtype)
        if stored := remedies.assignment_error(self):
            raise ConcretizationError(f"{user_line()}: {stored}")
        if self.dtype.kind in "iub":
            raise ConcretizationError(
                f"{user_line()}: {self!r} cannot become a plain ndarray: its numbers are not known "
                f"while it is traced; {remedies.remedy()}."
            )
        raise ConcretizationError(
            scipy_names.advice(self)
            or f"{lost(self, 'become a plain ndarray')}; {remedies.remedy()}."
        )

    def __hash__(self) -> int:
        raise ArgumentError(
            f"{user_line()}: {self!r} cannot be the key of a dict, nor an argument of a function "
            "with a cache: what is kept there would outlive it. Take int(n) for an integer n."
        )

    def __float__(self) -> float:
        if not self.shape and remedies.formats_text():
            return float(text_of(self))
        call, name = remedies.numpy_call()
        if call:
            raise ConcretizationError(
                f"{user_line()}: {call} got {self!r} in a place where NumPy takes plain numbers "
                f"alone; the result would have no derivative. Take functrans.numpy.{name}, where "
                "it has one, or pass the constant ft.stop_gradient(x)."
            )
        raise ConcretizationError(
            scipy_names.advice(self)
            or f"{user_line()}: {remedies.no_number(self)}"
        )

    def __complex__(self) -> complex:
        return self.__float__()

    def __bool__(self) -> bool:
        return self.concretize(bool, "bool()")

    def __int__(self) -> int:
        return self.concretize(int, "int()")

    def __index__(self) -> int:
        if self.dtype.kind not in "iub":
            raise TypeError(f"only integer values can be used as an index, not {self!r}")
        return self.concretize(operator.index, "an index")

    def __round__(self, ndigits: int | None = None) -> AnyArray | int:
        """As of NumPy's numbers: without ``ndigits`` an int, which has no derivative."""
        if self.shape:
            raise ArgumentError(
                f"{user_line()}: round() of {self!r} needs a number; np.round takes arrays."
            )
        rounded: Any = np.round(self, ndigits or 0)  # type: ignore[call-overload]  # dispatches
        if ndigits is None:
            return int(rounded)
        if not is_weak(self):
            return rounded
        return rounded.weakened() if isinstance(rounded, Tracer) else rounded.item()

    def __format__(self, spec: str) -> str:
        x = self.concrete_value()
        if x is None:  # the text may choose what is done, as the key of a dict
            if self.shape and not spec:
                return repr(self)
            x = np.empty(self.shape) if self.shape else text_of(self)
        return format(x, spec)

    def item(self, *args):
        """The element as a traced number, which promotes as the Python's that NumPy gives does."""
        if self.size != 1 and not args:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        index = args[0] if len(args) == 1 else args or 0
        x: Any = self[index] if isinstance(index, tuple) else self.reshape(-1)[index]
        return x.weakened()

    def tolist(self):
        """Nested lists of traced numbers."""
        return [x.tolist() for x in self] if self.shape else self.weakened()

    def weakened(self) -> Tracer:
        """The number as one of Python's."""
        raise NotImplementedError  # attached by functrans.numpy

    def concrete_entries(self) -> np.ndarray | None:
        """The entries of integers or booleans that Python goes on with; None where it may not."""
        return None  # attached by functrans.numpy

    def concretize(self, convert: Callable[[Any], Any], use: str) -> Any:
        """What ``convert``, of Python's own, makes of the number inside: Python decides by it."""
        newer = self.owner.active_trace()
        if newer is not None:
            return newer.operand(self).concretize(convert, use)
        return self._concretize(convert, use)

    def _concretize(self, convert: Callable[[Any], Any], use: str) -> NoReturn:
        raise ConcretizationError(
            f"{user_line()}: {use} of {self!r} depends on more than one value at once. "
            "Use np.where(condition, a, b) instead of `if`, or ft.cond; or give ft.vmap the "
            "function under ft.jit, where entries of a batch may take paths of their own."
        )


# An array, traced or not. As for ndarrays, NumPy's number is one that has no axes.
AnyArray = Tracer | np.ndarray
Outputs = AnyArray | tuple[AnyArray, ...]  # of an op


def text_of(x: Any) -> Any:
    """The number of Python's for a text that shows ``x``, which has no derivative to be lost."""
    return x.concretize(text_of, "the text") if isinstance(x, Tracer) else np.asarray(x).item()


class PrimalTracer(Tracer):
    """A tracer around one value, whose shape and dtype it has."""

    __slots__ = ("primal",)

    primal: Any

    @property
    def inner(self) -> Any:
        return self.primal

    @property
    def shape(self) -> tuple[int, ...]:
        x = self.primal
        return x.shape if type(x) is np.ndarray else shape_of(x)

    @property
    def dtype(self) -> np.dtype:
        x = self.primal
        return x.dtype if type(x) is np.ndarray else dtype_of(x)

    @property
    def ndim(self) -> int:
        x = self.primal
        return x.ndim if type(x) is np.ndarray else len(shape_of(x))

    def concrete_value(self) -> Any:
        if self.owner.active_trace() is not None:
            return None
        return self.primal.concrete_value() if isinstance(self.primal, Tracer) else self.primal

    def _concretize(self, convert: Callable[[Any], Any], use: str) -> Any:
        self.owner.on_concretize(self, use)
        x = self.primal
        return x.concretize(convert, use) if isinstance(x, Tracer) else convert(x)


def layers(x: Any) -> Iterator[Any]:
    """``x``, then what it wraps, layer by layer; or what stands for it in a program."""
    while x is not None:
        yield x
        if not isinstance(x, Tracer):
            return
        newer = x.owner.active_trace()
        x = x.inner if newer is None else newer.operand(x)


def is_weak(x: Any) -> bool:
    """Whether NumPy promotes it as a number of Python's: one, traced or not."""
    if type(x) in PYTHON_SCALARS or not isinstance(x, Tracer):
        return type(x) in PYTHON_SCALARS
    return not x.shape and any([type(v) in PYTHON_SCALARS or getattr(v, "weak", False)
                                for v in layers(x)])


def weakly(x: Any) -> np.dtype | complex:
    """What promotion sees of a number or array: its dtype, or a number of Python's of that."""
    return x.dtype.type(1).item() if is_weak(x) and isinstance(x, Tracer) else (
        x if type(x) in PYTHON_SCALARS else x.dtype)


# Of Python's numbers they give numbers of Python's, which stay weak: -x, +x, x**2, abs(x).
KEEP_WEAK = frozenset({"negative", "positive", "square", "absolute"})


def bind(prim: Primitive, *args: Any, **params: Any) -> Any:
    """Apply ``prim``: the newest trace among ``args`` decides how; without one, NumPy does."""
    if len(args) == 1:
        x = args[0]
        if isinstance(x, Tracer):
            top = x.owner
            if top.closed:
                top = top.active_trace() or top
            return top.process(prim, args, params)
        y = prim.impl(plain(x), **params)
        return y.item() if type(x) in PYTHON_SCALARS and prim.name in KEEP_WEAK else y
    top = None
    for x in args:
        if type(x) in PLAIN:
            continue
        if isinstance(x, Tracer):
            if top is None or x.owner.level > top.level:
                top = x.owner
        elif not isinstance(x, np.generic):
            sequence = isinstance(x, list | tuple) or is_labelled(x)
            if type(x) is Array or sequence or is_subclassed(x):
                return bind(prim, *map(_as_plain, args), **params)
            if isinstance(x, np.ndarray):
                require_common(type(x))
            elif x is not None or prim.differentiable:  # x == None may be asked
                raise OtherOperand(
                    f"{user_line()}: `{prim.name}` got {type(x).__module__}.{type(x).__name__} "
                    "beside a traced value. Operands are arrays and Python's numbers: convert it, "
                    "for example with float(x), or x.toarray() of a sparse matrix."
                )
    if top is None:
        two = len(args) == 2 and type(args[0]) in PYTHON_SCALARS and type(args[1]) in PYTHON_SCALARS
        return bind_operands(prim, *args) if two and not params else prim.impl(*args, **params)
    if top.closed:
        top = top.active_trace() or top
    return top.process(prim, args, params)


def _as_plain(x: Any) -> Any:
    sequence = isinstance(x, list | tuple) or is_labelled(x)
    return np.asarray(x) if sequence else as_number(plain(x))


def bind_operands(prim: Primitive, x1: Any, x2: Any) -> Any:
    """``bind`` for an elementwise row and two operands, by the fastest path for their types."""
    if type(x1) in PLAIN and type(x2) in PLAIN:
        if type(x1) in PYTHON_SCALARS and type(x2) in PYTHON_SCALARS:
            y = prim.impl(x1, x2)
            return y.item() if isinstance(y, np.generic) else y  # stays a weak scalar
        return prim.impl(x1, x2)
    t1 = x1.owner if isinstance(x1, Tracer) else None
    t2 = x2.owner if isinstance(x2, Tracer) else None
    if t1 is not None and (t2 is None or t1.level >= t2.level):
        return t1.binary(prim, x1, x2)
    return bind(prim, x1, x2) if t2 is None else t2.binary(prim, x1, x2)


def newest_trace(args: Any) -> Trace | None:
    """The trace that takes ops on ``args``, the newest among them; None: nothing is traced."""
    traces = [x.owner for x in args if isinstance(x, Tracer)]
    top = max(traces, key=lambda t: t.level, default=None)
    return top and (top.active_trace() or top)


def is_finite(x: Any) -> bool:
    """Whether every number in ``x`` is known to be finite; False also for some near overflow."""
    # one pass and no temporary; an overflow of the sum only costs the slower path
    if isinstance(x, float):
        return isfinite(x)
    if isinstance(x, np.ndarray):
        if (size := x.size) <= 10_000:  # see ``may_have_nan``
            few = size <= 16 and x.ndim == 1 and x.dtype.kind == "f"
            return isfinite(sum(x.tolist()) if few else abs(_vdot(x, x)))
        return scans.is_finite(x)
    return _known_finite(x) if isinstance(x, Tracer) else isfinite(abs(x))


def _known_finite(x: Tracer) -> bool:
    return x.owner.active_trace() is None and x.is_finite()


def may_have_nan(x: Any) -> bool:
    """Whether ``x`` holds a NaN; for traced values also if it holds an infinity or is not known."""
    if isinstance(x, np.ndarray):
        if (size := x.size) <= 10_000:
            # of all ways that do not warn those of the least overhead; on large arrays, vdot would
            # wake threads. Written twice: one call more would cost as much as the sum
            total = sum(x.tolist()) if size <= 16 and x.ndim == 1 else _vdot(x, x)
            return total != total
        return scans.has_nan(x)
    return not _known_finite(x) if isinstance(x, Tracer) else x != x


def known_value(x: Any) -> Any:
    """The plain value of ``x``, None where it is traced and not known."""
    return x.concrete_value() if isinstance(x, Tracer) else x


def is_staged(x: Any) -> bool:
    """Whether ``x`` depends on inputs of a program that is being written."""
    while isinstance(x, Tracer):
        if x.staged:
            return True
        newer = x.owner.active_trace() if x.owner.closed else None
        x = x.inner if newer is None else newer.operand(x)
    return False


def sum_to(x: Any, shape: tuple[int, ...], dtype: np.dtype) -> AnyArray:
    """``x`` summed over broadcast axes to ``shape`` and cast: broadcasting, transposed."""
    if type(x) is np.ndarray:
        if x.shape != shape:
            x = summed(x, broadcast_axes(x.shape, shape))
            x = x if x.shape == shape else x.reshape(shape)
        if x.dtype is dtype:
            return x
    elif (have := shape_of(x)) != shape:
        x = x.sum(axis=broadcast_axes(have, shape))
        x = x if x.shape == shape else x.reshape(shape)
    return cast(x, dtype)


def spread(x: Any, shape: tuple[int, ...], dtype: np.dtype) -> AnyArray:
    """``x`` broadcast to ``shape`` and cast to ``dtype``."""
    if shape_of(x) != shape:
        x = np.broadcast_to(x, shape)
    return cast(x, dtype)


def cast(x: Any, dtype: np.dtype) -> AnyArray:
    """``x`` in ``dtype``; from complex to real its real part, the transpose of the embedding."""
    have = dtype_of(x)
    if have is dtype or have == dtype:
        return x
    if type(x) in PYTHON_SCALARS:
        x = np.asarray(x)
    if have.kind == "c" and dtype.kind != "c":
        x = x.real
    return x.astype(dtype)
