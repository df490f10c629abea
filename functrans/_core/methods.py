"""The methods and operators of traced values, for type checkers.

``functrans.numpy`` puts them on ``Tracer`` when it is imported; a test compares the names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

if TYPE_CHECKING:
    from functrans._core.bind import AnyArray


class Methods:
    """What a traced value has in common with an ndarray, and ``at``, which Arrays have."""

    __slots__ = ()

    def __add__(self, other: Any, /) -> AnyArray: ...

    __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = __matmul__ = __add__
    __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = __add__
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = __add__
    __rmatmul__ = __rand__ = __ror__ = __rxor__ = __rlshift__ = __rrshift__ = __add__
    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ifloordiv__ = __imod__ = __ipow__ = __add__
    __imatmul__ = __iand__ = __ior__ = __ixor__ = __ilshift__ = __irshift__ = __add__
    __lt__ = __le__ = __gt__ = __ge__ = __add__

    def __eq__(self, other: object, /) -> AnyArray: ...  # type: ignore[override]  # as an ndarray's

    def __ne__(self, other: object, /) -> AnyArray: ...  # type: ignore[override]  # likewise

    def __divmod__(self, other: Any, /) -> tuple[AnyArray, AnyArray]: ...

    __rdivmod__ = __divmod__

    def __neg__(self) -> AnyArray: ...

    __pos__ = __abs__ = __invert__ = conj = conjugate = __neg__

    def __getitem__(self, key: Any, /) -> AnyArray: ...

    def __contains__(self, value: Any, /) -> bool: ...

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *xs: Any, **options: Any) -> Any: ...

    def __array_function__(self, func: Any, types: Any, args: tuple, kwargs: dict) -> Any: ...

    def sum(self, axis: Any = None, dtype: Any = None, **options: Any) -> AnyArray: ...

    prod = mean = std = var = cumsum = cumprod = sum

    def max(self, axis: Any = None, **options: Any) -> AnyArray: ...

    min = all = any = argmax = argmin = max

    def argsort(self, axis: int | None = -1, kind: Any = None, **options: Any) -> AnyArray: ...

    def argpartition(
        self, kth: Any, axis: int | None = -1, kind: Any = "introselect", **options: Any
    ) -> AnyArray: ...

    def astype(self, dtype: Any, order: str = "K", **options: Any) -> AnyArray: ...

    def choose(self, choices: Any, **options: Any) -> AnyArray: ...

    def clip(self, min: Any = None, max: Any = None, **options: Any) -> AnyArray: ...

    def compress(self, condition: Any, axis: int | None = None) -> AnyArray: ...

    def copy(self, order: str = "C") -> AnyArray: ...

    flatten = ravel = copy

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> AnyArray: ...

    def trace(
        self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, **options: Any
    ) -> AnyArray: ...

    def dot(self, b: Any, **options: Any) -> AnyArray: ...

    def nonzero(self) -> tuple[AnyArray, ...]: ...

    def repeat(self, repeats: Any, axis: int | None = None) -> AnyArray: ...

    def reshape(self, *shape: Any, **options: Any) -> AnyArray: ...

    def transpose(self, *axes: Any) -> AnyArray: ...

    def swapaxes(self, axis1: int, axis2: int) -> AnyArray: ...

    def squeeze(self, axis: Any = None) -> AnyArray: ...

    def round(self, decimals: int = 0, **options: Any) -> AnyArray: ...

    def searchsorted(self, v: Any, side: Any = "left", sorter: Any = None) -> AnyArray: ...

    def take(self, indices: Any, axis: int | None = None, **options: Any) -> AnyArray: ...

    def view(self, dtype: Any = None, type: Any = None) -> AnyArray: ...

    def fill(self, *args: Any, **options: Any) -> None: ...

    partition = put = resize = setfield = sort = fill  # of values that can be written to

    def tobytes(self, *args: Any, **options: Any) -> NoReturn: ...

    byteswap = dump = dumps = getfield = setflags = tofile = tobytes  # of memory

    @property
    def T(self) -> AnyArray: ...

    mT = real = imag = T

    @property
    def at(self) -> Any: ...

    base = ctypes = data = flags = flat = device = at

    @property
    def strides(self) -> tuple[int, ...]: ...
