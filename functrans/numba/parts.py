"""Complex arguments and results of kernels, by their parts.

A kernel of complex numbers is one of real numbers: of the parts of its arguments, which returns
the parts of its results. That one is compiled and differentiated. The parts are taken of traced
values, and put together again, by operations that every transform knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic

from functrans._ops.elementwise import from_parts
from functrans.numba.arrays import ActiveArray, fresh
from functrans.numba.complexes import Pair, part_of
from functrans.numba.convert import KEPT
from functrans.numba.overloads import for_kernels


def of_parts(kernel: Dispatcher, complexes: Sequence[bool]) -> Dispatcher:
    """The kernel of real numbers; ``complexes`` says which arguments have parts."""
    join = _joined(complexes)

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


def _joined(complexes: Sequence[bool]) -> Any:
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
