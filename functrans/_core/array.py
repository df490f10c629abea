"""``Aval``: a value's shape and dtype. ``Array``: the ndarray that transforms hand out."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextvars import ContextVar
from enum import Enum
from math import prod
from typing import Any, NamedTuple

import numpy as np

from functrans.errors import ArgumentError, ConcretizationError, ImmutableError, user_line

# ---- ``Aval``: a value's shape and dtype, which is all that most rules ask of it

PYTHON_SCALARS = frozenset({bool, int, float, complex})


def integer(x: Any) -> int | None:
    """``x`` as a Python int, whatever its type; None if it is no integer, or a boolean."""
    if type(x) is int:
        return x
    if isinstance(x, bool | np.bool_):
        return None
    try:
        return operator.index(x)
    except TypeError:
        return None


class Aval(NamedTuple):
    """The shape and dtype of an array that need not exist."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def shape_of(x: Any) -> tuple[int, ...]:
    return () if type(x) in PYTHON_SCALARS else x.shape


def dtype_of(x: Any) -> np.dtype:
    return np.dtype(type(x)) if type(x) in PYTHON_SCALARS else x.dtype


def ndim_of(x: Any) -> int:
    return 0 if type(x) in PYTHON_SCALARS else len(x.shape)


_new = tuple.__new__  # half the price of Aval(...), which every linear op pays


def aval_of(x: Any) -> Aval:
    if type(x) is np.ndarray:  # first, as it is the usual case
        return _new(Aval, (x.shape, x.dtype))
    if type(x) is Aval:
        return x
    if type(x) in PYTHON_SCALARS:
        return Aval((), np.dtype(type(x)))
    return _new(Aval, (x.shape, x.dtype))


def is_inexact(x: Any) -> bool:
    """Whether ``x`` is of a floating or complex type, so that it can carry a derivative."""
    return inexact_dtype(dtype_of(x))


def real_dtype(dtype: np.dtype) -> np.dtype:
    """That of the parts of a complex number; any other as it is."""
    return np.dtype(dtype.char.lower()) if dtype.kind == "c" else dtype


def inexact_dtype(dtype: np.dtype) -> bool:
    # kind "V" is ml_dtypes' bfloat16 on NumPy versions that do not know it as a float
    return dtype.kind in "fc" or (dtype.kind == "V" and dtype.name == "bfloat16")


def floating_of(dtype: np.dtype) -> np.dtype:
    """``dtype`` if it is floating or complex, else the floating one that NumPy promotes it to."""
    return dtype if inexact_dtype(dtype) else np.result_type(dtype, np.float16)


def finfo(dtype: np.dtype) -> np.finfo:
    """``np.finfo``, of bfloat16 too."""
    if dtype.kind != "V":
        return np.finfo(dtype)
    import ml_dtypes  # lazy: few programs have such arrays

    return ml_dtypes.finfo(dtype)


# ---- ``Array``: a read-only ndarray, which is what every transform hands out
#
# A subclass rather than a wrapper: C code that asks for an ndarray (LAPACK wrappers, L-BFGS-B,
# pandas, DLPack) takes it without conversion, and NumPy's own methods are its methods.

_item = np.ndarray.__getitem__

# The trace that writes down, in this context, what is done with values of older traces too.
writer: ContextVar[Any] = ContextVar("writer", default=None)


class Array(np.ndarray):
    """Read-only ndarray. Assigning into one raises; ``x.at[i].set(v)`` returns a changed copy.

    What NumPy computes from it is a fresh, writeable Array, so that libraries which work in place
    on their own results can use it like any ndarray.

    >>> import functrans as ft
    >>> x = ft.array([1.0, 2.0, 3.0])
    >>> x.at[0].set(9.0)
    Array([9., 2., 3.])
    """

    __slots__ = ()

    def __array_wrap__(self, arr, context=None, return_scalar=False):
        return arr[()] if return_scalar else arr.view(Array)

    def __getitem__(self, key):
        if writer.get() is not None and type(key) is not int:
            return self._getitem(key)  # of a traced index, it would take the number
        try:
            return _item(self, key)
        except ConcretizationError:  # a traced index
            return self._getitem(key)

    def __setitem__(self, key, value):
        if self.flags.writeable:
            return super().__setitem__(key, value)
        raise ImmutableError(
            "An Array cannot be assigned into. Use y = x.at[index].set(value), which returns a "
            "changed copy, or np.array(x) for a writable ndarray."
        )

    def __setstate__(self, state):
        super().__setstate__(state)
        self.setflags(write=False)

    def __array_namespace__(self, /, *, api_version: str | None = None):
        raise NotImplementedError  # attached by functrans.numpy

    @property
    def at(self) -> Any:
        """Indexed updates that return a changed copy: ``x.at[i].set / add / mul / min / max``."""
        raise NotImplementedError  # attached by functrans.numpy

    def _getitem(self, key: Any) -> Any:
        """``self[key]`` by the op, so that a trace sees it."""
        raise NotImplementedError  # attached by functrans.numpy


def _rebind(name: str) -> Callable:
    """``x += y`` on a read-only Array makes a new one, as for Python's numbers."""
    in_place, fresh = getattr(np.ndarray, f"__i{name}__"), getattr(np.ndarray, f"__{name}__")

    def operator(self, other):
        return (in_place if self.flags.writeable else fresh)(self, other)

    return operator


# Python's operators that have a form in place, by what their methods' names have in common.
OPERATORS = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor",
    "lshift", "rshift",
)
for _name in OPERATORS:
    setattr(Array, f"__i{_name}__", _rebind(_name))


def wrap(x: Any) -> Array:
    """``x`` as an Array: no copy, read-only."""
    if type(x) is Array:
        return x
    if not isinstance(x, np.ndarray):
        x = np.asarray(x)
        x.setflags(write=False)
        return x.view(Array)
    y = x.view(Array)
    y.setflags(write=False)
    return y


def plain(x: Any) -> Any:
    """An Array as a plain ndarray; anything else unchanged, if it behaves as an ndarray does.

    A number of a user's subclass of a Python type becomes NumPy's number of that value, as in
    NumPy; a member of an enumeration stays what it is.
    """
    kind = type(x)
    if kind is np.ndarray:
        return x
    if kind is Array:
        return x.view(np.ndarray)
    if isinstance(x, np.ndarray):
        require_common(kind)
    elif is_subclassed(x) and not isinstance(x, Enum):
        return as_number(x)
    return x


def changeable(x: Any) -> bool:
    """Whether someone may write to the memory of ``x``; else it is read-only down to its base."""
    while isinstance(x, np.ndarray):
        if x.flags.writeable:
            return True
        x = x.base
    return x is not None and type(x) is not bytes


def unrepeat(x: np.ndarray) -> np.ndarray:
    """``x`` without the repetitions of a broadcast, in the same memory."""
    return x[tuple([slice(0, None if n else 1) for n in x.strides])] if 0 in x.strides else x


def frozen_copy(x: np.ndarray) -> np.ndarray:
    """A copy of ``x`` that cannot be written to; a broadcast stays one."""
    y = unrepeat(x).copy("K")
    y.setflags(write=False)
    return y if y.shape == x.shape else np.broadcast_to(y, x.shape)


def is_subclassed(x: Any) -> bool:
    """Whether ``x`` is a number of a user's subclass of Python's."""
    return (
        isinstance(x, int | float | complex)
        and type(x) not in PYTHON_SCALARS
        and not isinstance(x, np.generic)
    )


def as_number(x: Any) -> Any:
    """NumPy's number of a subclassed one, whose arithmetic must be that of numbers."""
    if not is_subclassed(x):
        return x
    kind = type(x)
    base: Any = next(k for k in (int, float, complex) if isinstance(x, k))
    if any(getattr(kind, f"__{n}__") is not getattr(base, f"__{n}__") for n in ("add", "mul")):
        raise ArgumentError(
            f"{user_line()}: {kind.__module__}.{kind.__name__} has arithmetic of its own, which "
            f"would be lost without a word. Use {base.__name__}(x)."
        )
    return np.asarray(base(x))[()]


def is_labelled(x: Any) -> bool:
    """Whether ``x`` is a Series, an Index or a frame of pandas'."""
    return type(x).__module__.partition(".")[0] == "pandas" and hasattr(x, "to_numpy")


def require_common(kind: type) -> None:
    """Raise for a class of arrays with arithmetic of its own (masks, matrices, units)."""
    mine = kind.__mul__, kind.__array_ufunc__
    if mine != (np.ndarray.__mul__, np.ndarray.__array_ufunc__):
        raise ArgumentError(
            f"{user_line()}: {kind.__module__}.{kind.__name__} has arithmetic of its own, which "
            "would be lost without a word. Use np.asarray(x), with np.where or where= in place of "
            "a mask and @ in place of a matrix's *."
        )


def in_native_order(x: Any) -> Any:
    """``x``, its bytes in the order of this machine: the only one that programs know."""
    if isinstance(x, np.ndarray | np.generic) and not x.dtype.isnative:
        return x.astype(x.dtype.newbyteorder("="))
    return x
