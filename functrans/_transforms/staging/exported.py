"""Compiled functions of functrans as functions of numba and of C.

Native code takes a list of arrays and reads from it where the numbers are. The functions made here
lay out such a list on the stack, with the addresses of their arguments in it, and call the code: no
Python object is touched, and no lock needed. What is called so lives as long as the process, since
compiled code that calls it cannot say when it is gone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import carray  # type: ignore[attr-defined]  # not in its stubs
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from functrans._compile.emit.module import ARRAY_DATA, LIST_ITEMS
from functrans._compile.run.frame import Argument, Result
from functrans._compile.run.native import Framed, NativeProgram
from functrans._core.array import PYTHON_SCALARS
from functrans._core.locks import Lock
from functrans._transforms.arguments import describe
from functrans.errors import ArgumentError, UnsupportedError

BYTE = ir.IntType(8)
# The functions made, with the machine code that they call; kept for good, as said above.
_kept: list[Any] = []
_lock = Lock()


def for_numba(name: str, code: Callable, example: Sequence) -> Callable:
    """A function for numba's compiled code that calls ``code``, of arguments like ``example``.

    Arguments are floats and contiguous arrays, whose shapes are compared at each call; results are
    new. Raises where the code reports an error.
    """
    return _function(name, _frame(name, code, example), quiet=False)


def for_c(name: str, code: Callable, example: Sequence) -> Callable:
    """The same as a function of C, of doubles to a double, as ctypes has it.

    NaN is returned where the code reports an error.
    """
    f = _of_numbers(name, code, example)
    kinds: list[Callable] = [
        lambda: f(), lambda x: f(x), lambda x, y: f(x, y), lambda x, y, z: f(x, y, z),
        lambda x, y, z, u: f(x, y, z, u),
    ]
    if len(example) >= len(kinds):
        raise ArgumentError(
            f"{name}: a function of C is made of up to {len(kinds) - 1} doubles, not of "
            f"{len(example)}"
        )
    return _c_function(types.float64(*[types.float64] * len(example)), kinds[len(example)])


def for_scipy(name: str, code: Callable, example: Sequence) -> Any:
    """The same as scipy.LowLevelCallable: of doubles, or of one array that SciPy fills.

    Of one double it is ``double (double)``, of several ``double (int, double *)``, as ``quad`` and
    ``nquad`` take them; of an array ``int (double *, npy_intp, double *, void *)``, as
    ``ndimage.generic_filter``.
    """
    from scipy import LowLevelCallable  # lazy: SciPy is imported by who asks for it

    if len(example) == 1 and np.ndim(example[0]) == 1:
        return LowLevelCallable(_of_buffer(name, code, example))
    if len(example) == 1:
        return LowLevelCallable(for_c(name, code, example))
    f, n = _of_pointer(_of_numbers(name, code, example), len(example)), len(example)

    def of_many(count, xs):
        return f(xs) if count == n else np.nan

    return LowLevelCallable(
        _c_function(types.float64(types.intc, types.CPointer(types.float64)), of_many)
    )


def _of_buffer(name: str, code: Callable, example: Sequence) -> Any:
    """A filter: 0 is returned, which SciPy raises for, if the array has another length."""
    if np.asarray(example[0]).dtype != np.float64:
        raise ArgumentError(f"{name}: a filter is of float64, not of {describe(example[0])}")
    framed = _frame(name, code, example)
    _require_one_double(name, framed)
    f, n = _function(name, framed, quiet=True), len(example[0])

    def filtered(xs, count, out, data):
        if count != n:
            return 0
        out[0] = f(carray(xs, (n,)))
        return 1

    doubles = types.CPointer(types.float64)
    return _c_function(types.intc(doubles, types.intp, doubles, types.voidptr), filtered)


def _c_function(signature: Any, f: Callable) -> Any:
    made = numba.cfunc(signature)(f)
    _keep(made)
    return made.ctypes


def _of_pointer(f: Callable, n: int) -> Callable:
    """``f`` of ``n`` doubles that lie one after the other."""
    if n == 1:
        return numba.njit(lambda xs: f(xs[0]))
    unpacked = _doubles(n)
    return numba.njit(lambda xs: f(*unpacked(xs)))


def _doubles(n: int) -> Any:
    @intrinsic
    def unpack(typingctx: Any, xs: Any) -> Any:
        kind = types.UniTuple(types.float64, n)

        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            read = [builder.load(builder.gep(args[0], [ir.IntType(64)(k)])) for k in range(n)]
            return context.make_tuple(builder, kind, read)

        return kind(xs), build

    return unpack


def _of_numbers(name: str, code: Callable, example: Sequence) -> Callable:
    """The code as a function of doubles to a double."""
    for i, x in enumerate(example):
        if np.ndim(x) or np.asarray(x).dtype != np.float64:
            raise ArgumentError(
                f"{name}: argument {i} is {describe(x)}. C knows no shapes, so that such a "
                "function takes and returns doubles only"
            )
    framed = _frame(name, code, example)
    _require_one_double(name, framed)
    return _function(name, framed, quiet=True)


def _require_one_double(name: str, framed: Framed) -> None:
    results = framed.frame.results
    if len(results) != 1 or results[0].shape or results[0].dtype != np.float64:
        raise ArgumentError(f"{name}: a function of C returns one double")


# ---- the code


def _frame(name: str, code: Callable, example: Sequence) -> Framed:
    """The native function, if the code is one and takes these arguments."""
    for i, x in enumerate(example):
        number = isinstance(x, np.ndarray | np.generic) or type(x) in PYTHON_SCALARS
        if not number or np.asarray(x).dtype.kind != "f":
            raise ArgumentError(
                f"{name}: argument {i} must be a float or an array of floats, but is {describe(x)}"
            )
    code(example)  # code is verified by its first call
    framed = code.verified if isinstance(code, NativeProgram) else code
    if not isinstance(framed, Framed) or len(framed.frame.arguments) != len(example):
        raise UnsupportedError(f"{name} has no native code")
    frame = framed.frame
    if len(frame.runs) != 1 or len(frame.segments) != 1:
        raise UnsupportedError(
            f"{name} cannot be called from native code: it has steps that NumPy runs. They are "
            "in jit(f).lower(...)"
        )
    function = framed.functions[frame.segments[0].name]
    if type(function)._flags_ & ctypes._FUNCFLAG_PYTHONAPI:  # type: ignore[attr-defined]
        raise UnsupportedError(
            f"{name} cannot be called from native code: it has loops, which look for Python's "
            "signals"
        )
    return framed


def _function(name: str, framed: Framed, quiet: bool) -> Callable:
    """The code for numba; ``quiet``: NaN where it reports an error."""
    call = _call_of(name, framed, quiet)

    def compiled(*args):
        return call(args)

    compiled.__name__ = compiled.__qualname__ = name
    function = numba.njit(compiled)
    _keep(function, framed)
    return function


def _keep(*made: Any) -> None:
    with _lock:
        _kept.append(made)


def _call_of(name: str, framed: Framed, quiet: bool) -> Any:
    frame = framed.frame

    @intrinsic
    def call(typingctx: Any, args: Any) -> Any:
        _require_types(name, frame.arguments, args)
        kinds = [_type_of(y) for y in frame.results]
        result = kinds[0] if len(kinds) == 1 else types.Tuple(kinds)

        def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            xs = cgutils.unpack_tuple(builder, values[0])
            return _Caller(name, framed, quiet, context, builder).call(args, xs, kinds)

        return result(args), build

    return call


def _type_of(x: Argument | Result) -> Any:
    number = numba.from_dtype(x.dtype)
    return types.Array(number, len(x.shape), "C") if x.shape else number


def _require_types(name: str, wanted: Sequence[Argument], kinds: Any) -> None:
    if len(kinds) != len(wanted):
        raise TypingError(f"{name} takes {len(wanted)} arguments, not {len(kinds)}")
    for i, (x, k) in enumerate(zip(wanted, kinds, strict=True)):
        if x.shape:
            fits = (isinstance(k, types.Array) and k.layout == "C" and k.ndim == len(x.shape)
                    and k.dtype == numba.from_dtype(x.dtype) and k.aligned)
        else:
            fits = isinstance(k, types.Float | types.Integer)
        if not fits:
            raise TypingError(
                f"{name}: argument {i} must be {_describe(x)}, but is {k}"
            )


def _describe(x: Argument) -> str:
    return f"a contiguous array {x.dtype}{list(x.shape)}" if x.shape else f"a {x.dtype}"


class _Caller:
    """Where a call is emitted."""

    def __init__(self, name: str, framed: Framed, quiet: bool, context: Any, builder: Any):
        self.name, self.framed, self.quiet = name, framed, quiet
        self.context, self.builder = context, builder

    def call(self, kinds: Sequence, xs: Sequence, results: Sequence) -> Any:
        c, b, frame = self.context, self.builder, self.framed.frame
        data = [self.argument(i, k, x) for i, (k, x) in enumerate(zip(kinds, xs, strict=True))]
        data += [None] * (frame.slots - len(data))
        for slot, x in frame.fixed.items():
            data[slot] = self.address(x.ctypes.data)
        made = {y.slot: self.buffer(y.shape, y.dtype) for y in frame.segments[0].makes}
        for slot, (_, _, pointer) in made.items():
            data[slot] = pointer
        status = self.run(data)
        failed = b.icmp_signed("!=", status, status.type(0))
        if not self.quiet:
            with b.if_then(failed, likely=False):
                c.call_conv.return_user_exc(
                    b, np.linalg.LinAlgError, (f"{self.name}: a matrix is singular or not finite",)
                )
        ys, taken = [], set()
        for y, kind in zip(frame.results, results, strict=True):
            if not y.shape:
                at = b.bitcast(data[y.slot], c.get_value_type(kind).as_pointer())
                number = b.load(at)
                nan = ir.Constant(number.type, float("nan"))
                ys.append(b.select(failed, nan, number) if self.quiet else number)
            elif y.copied or y.slot in taken:
                ys.append(self.copy(y, data[y.slot]))
            else:
                taken.add(y.slot)
                ys.append(made[y.slot][1])
        for slot, (kind, array, _) in made.items():
            if slot not in taken and array is not None:
                c.nrt.decref(b, kind, array)
        return ys[0] if len(ys) == 1 else c.make_tuple(b, types.Tuple(list(results)), ys)

    def argument(self, i: int, kind: Any, x: Any) -> Any:
        """Where the numbers of an argument are."""
        c, b, wanted = self.context, self.builder, self.framed.frame.arguments[i]
        if not wanted.shape:
            number = numba.from_dtype(wanted.dtype)
            place = cgutils.alloca_once(b, c.get_value_type(number))
            b.store(c.cast(b, x, kind, number), place)
            return b.bitcast(place, BYTE.as_pointer())
        array = c.make_array(kind)(c, b, value=x)
        for n, have in zip(wanted.shape, cgutils.unpack_tuple(b, array.shape), strict=True):
            with b.if_then(b.icmp_signed("!=", have, have.type(n)), likely=False):
                c.call_conv.return_user_exc(
                    b, ValueError, (f"{self.name}: argument {i} must be {_describe(wanted)}",)
                )
        return b.bitcast(array.data, BYTE.as_pointer())

    def address(self, at: int) -> Any:
        return self.context.add_dynamic_addr(self.builder, at, self.name)

    def buffer(self, shape: tuple, dtype: np.dtype) -> tuple[Any, Any, Any]:
        """Memory for a result or scratch: its type, the array if it is one, where it starts."""
        c, b, number = self.context, self.builder, numba.from_dtype(dtype)
        if prod(shape) == 1 and not shape:
            place = cgutils.alloca_once(b, c.get_data_type(number))
            return number, None, b.bitcast(place, BYTE.as_pointer())
        kind = types.Array(number, len(shape), "C")
        array = c.compile_internal(b, lambda: np.empty(shape, dtype), kind(), ())
        data = c.make_array(kind)(c, b, value=array).data
        return kind, array, b.bitcast(data, BYTE.as_pointer())

    def copy(self, y: Result, source: Any) -> Any:
        _, array, place = self.buffer(y.shape, y.dtype)
        size = ir.IntType(64)(prod(y.shape) * y.dtype.itemsize)
        cgutils.raw_memcpy(self.builder, place, source, size, 1)
        return array

    def run(self, data: Sequence) -> Any:
        """Lay out the list and call."""
        b = self.builder
        pointer = BYTE.as_pointer()
        items = cgutils.alloca_once(b, ir.ArrayType(pointer, len(data)))
        for k, at in enumerate(data):
            item = cgutils.alloca_once(b, ir.ArrayType(ir.IntType(64), ARRAY_DATA // 8 + 1))
            if at is not None:
                b.store(at, self.field(item, ARRAY_DATA))
            b.store(b.bitcast(item, pointer), cgutils.gep_inbounds(b, items, 0, k))
        listed = cgutils.alloca_once(b, ir.ArrayType(ir.IntType(64), LIST_ITEMS // 8 + 1))
        b.store(b.bitcast(items, pointer), self.field(listed, LIST_ITEMS))
        segment = self.framed.frame.segments[0]
        function = ctypes.cast(self.framed.functions[segment.name], ctypes.c_void_p).value
        kind = ir.FunctionType(ir.IntType(32), [pointer]).as_pointer()
        return b.call(b.bitcast(self.address(function or 0), kind), [b.bitcast(listed, pointer)])

    def field(self, item: Any, offset: int) -> Any:
        at = cgutils.gep_inbounds(self.builder, item, 0, offset // 8)
        return self.builder.bitcast(at, BYTE.as_pointer().as_pointer())
