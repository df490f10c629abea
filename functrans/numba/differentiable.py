"""``differentiable``: a kernel compiled by numba as a function that every transform takes."""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher

from functrans import tree
from functrans._core.array import plain
from functrans._core.aval import aval_of, integer
from functrans._core.bind import Tracer
from functrans._core.locks import Lock
from functrans._transforms.arguments import describe
from functrans._transforms.options import require_choice, require_count
from functrans._transforms.staging.signature import typed
from functrans.errors import ArgumentError, UnsupportedError
from functrans.numba.calls import KernelCall
from functrans.numba.convert import Copies
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
from functrans.numba.parts import of_parts, put_together, split
from functrans.numba.runs import WIDTHS, Args
from functrans.numba.source import line_of_call

# Kinds of arguments that one kernel keeps rows for.
KEPT = 64


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
                if len(self.ops) > KEPT:
                    self.ops.popitem(last=False)
        return call

    def _operand(self, i: int, values: Sequence, places: Sequence[int]) -> int:
        if i not in places or not aval_of(values[i]).shape:
            raise ArgumentError(
                f"{self.name}: argument {i}, which is written into, must be an array, but is "
                f"{describe(values[i])}"
            )
        return places.index(i)
