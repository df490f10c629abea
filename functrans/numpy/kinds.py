"""What programs ask the kind of a value by: traced arrays are arrays, traced numbers numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans._core.array import Array
from functrans._core.bind import AnyArray, Tracer
from functrans.numpy.public import public
from functrans.numpy.writable import Writable

_empty = public(np.empty, np.empty)


def _is_number(x: Any) -> bool:
    """Whether NumPy has a number where ``x`` is; of our functions it is an Array without axes."""
    ours = isinstance(x, Array) or (isinstance(x, Tracer) and type(x) is not Writable)
    return ours and x.shape == ()


class _Kind(type):
    """The type of ``ndarray``, which stands for NumPy's class in all but identity."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _made(*args, **kwargs) if cls is ndarray else super().__call__(*args, **kwargs)

    def __instancecheck__(cls, x: Any) -> bool:
        if cls is not ndarray:
            return super().__instancecheck__(x)
        return isinstance(x, Tracer | np.ndarray) and not _is_number(x)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, np.ndarray) if cls is ndarray else super().__subclasscheck__(kind)

    def __eq__(cls, other: object) -> bool:
        return cls is other or (cls is ndarray and other is np.ndarray)

    def __hash__(cls) -> int:
        return hash(np.ndarray) if cls is ndarray else super().__hash__()


class ndarray(np.ndarray, metaclass=_Kind):  # NumPy's name
    """NumPy's class, of which traced arrays are too; a call makes an array to be written into.

    >>> import functrans as ft, functrans.numpy as np
    >>> ft.grad(lambda x: x.sum() if isinstance(x, np.ndarray) else 0.0 * x[0])(np.ones(2))
    Array([1., 1.])
    """


def _made(shape: Any, dtype: Any = float, buffer: Any = None, offset: int = 0,
          strides: Any = None, order: Any = None) -> AnyArray:
    if buffer is None and strides is None:
        return _empty(shape, dtype, order or "C")
    return np.ndarray(shape, dtype, buffer, offset, strides, order)


def isscalar(element: Any) -> bool:
    """Whether ``element`` is a number, traced or not, or a string."""
    return _is_number(element) or np.isscalar(element)


ALSO = ("isscalar", "ndarray")
