"""``Aval``: a value's shape and dtype, which is all that most rules ask of it."""

from __future__ import annotations

import operator
from math import prod
from typing import Any, NamedTuple

import numpy as np

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
