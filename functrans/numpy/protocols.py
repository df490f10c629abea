"""Plain ``np.`` calls on traced values arrive here and are passed to the functions of this package.

Calling a NumPy function without a counterpart raises an error that says what to do instead.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from functrans._core.array import PYTHON_SCALARS, Array, dtype_of, plain
from functrans._core.bind import AnyArray, Tracer, bind_operands
from functrans._core.primitive import Primitive
from functrans._kernels.large import ufunc_of
from functrans._ops import elementwise as ops
from functrans._ops.declare import TABLE, Elementwise
from functrans.errors import UnsupportedError, package_of_frame, user_frames, user_line
from functrans.numpy import fused
from functrans.numpy.fused import length, of_root, squared_size


def rows_of_ufuncs(rows: Iterable[Primitive]) -> dict[np.ufunc, Any]:
    """The row of each ufunc; of several that it computes, the one with its name, whichever was
    declared last."""
    own = sorted(rows, key=lambda row: row.name == getattr(row.impl, "__name__", ""))
    ufuncs = {ufunc_of(row.impl): row for row in own}
    return {f: row for f, row in ufuncs.items() if isinstance(f, np.ufunc)}


# The row of each ufunc, or a function that selects one.
UFUNCS: dict[np.ufunc, Any] = rows_of_ufuncs(TABLE.values())
# NumPy function -> ours; filled by functrans.numpy from the names they share.
FUNCTIONS: dict[Any, Any] = {}
# (ufunc, method) -> ours, for reduce and accumulate.
UFUNC_METHOD_TABLE: dict[tuple[np.ufunc, str], Any] = {}
# method -> what makes it for any ufunc; filled by functrans.numpy.ufunc_methods. "__call__" makes
# it for ufuncs of Python functions, and returns None for others.
MAKERS: dict[str, Any] = {}


_LISTS = (list, tuple)


def meaning_of(ufunc: np.ufunc) -> Any:
    """The row of a ufunc, or what selects one; None: it has no meaning on traced values.

    Those of ``scipy.special`` are loaded when a ufunc is met that is not known, so that nobody
    imports SciPy for them who has not done so.
    """
    if ufunc not in UFUNCS and "scipy.special" in sys.modules:
        importlib.import_module("functrans.scipy.special")
    return UFUNCS.get(ufunc)


def array_ufunc(self: Tracer, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """``__array_ufunc__`` of traced values."""
    if kwargs and (outs := kwargs.get("out")) and _is_name(outs[0]):
        return outs[0].__array_ufunc__(ufunc, method, *inputs, **kwargs)
    row = UFUNCS.get(ufunc) if method == "__call__" and not kwargs else None
    if type(row) is Elementwise:
        if len(inputs) == 1:
            if self.sqrt_operand is not None and row in OF_LENGTHS:
                return OF_LENGTHS[row](self)
            return root(row, self) if row in ROOTS else self.owner.unary(row, self)
        if len(inputs) == 2:
            x1, x2 = inputs
            if self.sqrt_operand is None and (type(x1) is np.ndarray or type(x2) is np.ndarray):
                return self.owner.binary(row, x1, x2)  # the other one is self
            if row in OF_LENGTHS:
                return OF_LENGTHS[row](x1, x2)
            if not isinstance(x1, _LISTS) and not isinstance(x2, _LISTS):
                return bind_operands(row, x1, x2)
    for x in inputs:
        if x is not self and type(x) is not np.ndarray and not isinstance(x, Tracer):
            inputs = tuple(map(_operand, inputs))
            break
    if row is not None:
        return row(*inputs)
    if method == "__call__":
        row = meaning_of(ufunc) or MAKERS["__call__"](ufunc)
        if row is None:
            raise _of_numba(ufunc) or unsupported(ufunc_name(ufunc))
        return row(*inputs) if not kwargs else _with_options(ufunc, row, inputs, kwargs)
    function = UFUNC_METHOD_TABLE.get((ufunc, method))
    if function is None:
        if meaning_of(ufunc) is None or ufunc.nin != 2 or ufunc.nout != 1 or ufunc.signature:
            raise unsupported(f"{ufunc_name(ufunc)}.{method}")
        function = MAKERS[method](ufunc)
    if "out" in kwargs and kwargs.pop("out") is not None:
        raise refused(f"{ufunc_name(ufunc)}.{method}", "got out=", USE_RESULT)
    if len(kwargs) > 1:
        kwargs = {k: v for k, v in kwargs.items() if v is not np._NoValue}
    return function(*inputs, **kwargs)


def _with_options(ufunc, row, inputs, kwargs):
    """A ufunc call with options: dtype= casts the operands, out= and where= raise."""
    if kwargs.pop("out", None) is not None:
        raise refused(ufunc_name(ufunc), "got out=", USE_RESULT)
    if kwargs.pop("where", True) is not True:
        raise refused(ufunc_name(ufunc), "got where=", "use np.where(mask, result, other)")
    dtype = kwargs.pop("dtype", None)
    casting = kwargs.pop("casting", "same_kind")
    for harmless in ("order", "subok"):
        kwargs.pop(harmless, None)
    if kwargs.keys() - ({"axis"} if ufunc is np.vecdot else set()):
        raise refused(ufunc_name(ufunc), f"got {', '.join(kwargs)}=", "leave it out")
    if kwargs:
        row = functools.partial(row, **kwargs)
    if dtype is None:
        return row(*inputs)
    inputs = [x if hasattr(x, "dtype") or type(x) in PYTHON_SCALARS else _to_array(x)
              for x in inputs]
    return row(*[
        x.astype(d, casting=casting) if hasattr(x, "astype") else np.asarray(x, d)
        for x, d in zip(inputs, _loop(ufunc, inputs, dtype, casting), strict=False)
    ])


def _loop(ufunc: np.ufunc, inputs: Sequence[Any], dtype: Any, casting: Any) -> Sequence[np.dtype]:
    """The types of operands of the loop whose results are of ``dtype``, or NumPy's TypeError."""
    given = [x.dtype if hasattr(x, "dtype") else type(x) for x in inputs]
    given = [np.dtype(bool) if d is bool else d for d in given]
    return ufunc.resolve_dtypes(
        (*given, *[None] * ufunc.nout), casting=casting,
        signature=(*[None] * ufunc.nin, *[np.dtype(dtype)] * ufunc.nout),
    )


def _operand(x):
    """``x``; an Array or a list as a plain ndarray, a list of traced values as their stack."""
    if type(x) is Array:
        return plain(x)
    return _to_array(x) if isinstance(x, list | tuple) else x


def _to_array(x):
    if not isinstance(x, list | tuple):
        return x
    rows = [_to_array(v) for v in x]
    return np.stack(rows) if any(isinstance(r, Tracer) for r in rows) else np.asarray(x)


def array_function(self: Tracer, func: Any, types: Any, args: tuple, kwargs: dict) -> Any:
    """``__array_function__`` of traced values."""
    ours = FUNCTIONS.get(func)
    if ours is None:
        raise unsupported(f"{func.__module__.replace('numpy', 'np')}.{func.__name__}")
    if kwargs and (out := kwargs.get("out")) is not None:
        if _is_name(out):
            there: Any = out
            return there.__array_function__(func, types, args, kwargs)
        raise refused(f"np.{func.__name__}", "got out=", USE_RESULT)
    return ours(*args, **kwargs)


def _is_name(x: Any) -> bool:
    """Whether it is a name of an array that can be written to."""
    return isinstance(x, Tracer) and x.current() is not x


USE_RESULT = (
    "use the value that it returns, as in y = y + x where y += x stood, or write out=y and make y "
    "with functrans.numpy.zeros"
)


def refused(name: str, what: str, cure: str) -> UnsupportedError:
    """The error for an option or method that traced values cannot honour."""
    text = f"{user_line()}: {name} {what}, which traced values cannot have; {cure}."
    return UnsupportedError(text)


def ufunc_name(ufunc: np.ufunc) -> str:
    """The user's name for a ufunc, which need not be NumPy's."""
    name = ufunc.__name__
    return f"np.{name}" if getattr(np, name, None) is ufunc else f"the ufunc {name}"


def _of_numba(ufunc: Any) -> UnsupportedError | None:
    """The error for a ufunc that numba made, whose Python has a derivative."""
    frames = list(user_frames())
    if not frames or package_of_frame(frames[0]) != "numba":
        return None
    frame = next((f for f in frames if package_of_frame(f) != "numba"), frames[0])
    maker = "guvectorize" if ufunc.signature else "vectorize"
    return UnsupportedError(
        f"{frame.f_code.co_filename}:{frame.f_lineno}: `{ufunc.__name__}`, a ufunc that "
        f"numba.{maker} made, has no derivative. Compile its Python by numba.njit, with a loop "
        "over entries: kernels are differentiated as they are."
    )


_FOR_PEOPLE = frozenset({f"np.{name}" for name in (
    "array2string", "array_repr", "array_str", "save", "savetxt", "savez", "savez_compressed",
)})


def unsupported(name: str) -> UnsupportedError:
    """The error for a NumPy call without a rule, with the nearest names that have one."""
    import difflib  # lazy: slow to import, for an error

    if name in _FOR_PEOPLE:
        return UnsupportedError(
            f"{user_line()}: {name} makes text or a file of numbers, which have no derivative "
            "there. Give it ft.stop_gradient(x), outside of jit and vmap; ft.debug.print shows "
            "numbers anywhere."
        )
    names = [f.__name__ for f in [*FUNCTIONS, *UFUNCS]]
    near = difflib.get_close_matches(name.split(".")[-1], names, 3)
    hint = f" Differentiable names near it: {', '.join(near)}." if near else ""
    return UnsupportedError(
        f"{user_line()}: {name} has no derivative rule here.{hint} Rewrite it with functions "
        "that have one, wrap it with ft.custom_jvp, or declare it with functrans.extend."
    )


def absolute(x: Any) -> AnyArray:
    """|x|, by the row that fits its type."""
    return root(ops.absolute_complex if dtype_of(x).kind == "c" else ops.absolute, x)


def sign(x: Any) -> AnyArray:
    """The sign of a number: z / |z| for complex z, with the derivative of that, and 0 at 0."""
    if dtype_of(x).kind != "c":
        return ops.sign(x)
    x = ops.where(ops.isinf(x), ops.sign(x), x)  # inf / inf has no value
    a, b = x.real, x.imag
    return ops.from_parts(ops.leg_of_hypot(a, b), ops.leg_of_hypot(b, a))


def hypot(x1: Any, x2: Any) -> AnyArray:
    """The length of the vector of two numbers."""
    return length(ops.hypot(x1, x2), _hypot_squared, (x1, x2))


def _hypot_squared(x1, x2):
    return np.square(x1) + np.square(x2)


# Rows with rules for lengths: scaled lengths are lengths, their even powers are smooth.
OF_LENGTHS = {
    ops.square: fused.square, ops.negative: fused.negative, ops.positive: fused.positive,
    ops.multiply: fused.multiply, ops.divide: fused.divide,
    ops.float_power: fused.float_power,
}

# Rows of one operand whose squares are smooth: the square, and its degree in the operand.
ROOTS = {
    ops.absolute: (squared_size, 1), ops.absolute_complex: (squared_size, 1),
    ops.fabs: (squared_size, 1), ops.sqrt: (of_root, 2),
}


def root(row: Elementwise, x: Any) -> AnyArray:
    """A row of ROOTS, whose result remembers what it is the square root of."""
    if not isinstance(x, Tracer):
        return row(x)
    square, degree = ROOTS[row]
    return length(x.owner.unary(row, x), square, (x,), (), degree)


UFUNCS |= {np.absolute: absolute, np.hypot: hypot, np.sign: sign}
MEMBERS: dict[type, dict[str, Any]] = {
    Tracer: {"__array_ufunc__": array_ufunc, "__array_function__": array_function},
}
