"""``finfo`` and ``iinfo``: the limits of element types."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from functrans.torch._tensors import dtypes

_COMPLEX_PARTS = {np.dtype(np.complex64): np.float32, np.dtype(np.complex128): np.float64}


class _Limits:
    """Limits of one type, as attributes."""

    _fields: tuple[str, ...] = ()
    dtype: str

    def __repr__(self) -> str:
        shown = [f"{name}={getattr(self, name)}" for name in self._fields]
        return f"{type(self).__name__}({', '.join(shown)}, dtype={self.dtype})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.dtype == self.dtype

    def __hash__(self) -> int:
        return hash(self.dtype)


class finfo(_Limits):
    """The limits of a floating-point type; of a complex one those of its parts.

    >>> from functrans import torch
    >>> torch.finfo(torch.float32).eps == 2.0**-23
    True
    """

    _fields = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")

    def __init__(self, dtype: Any = None):
        kind = dtypes.get_default_dtype() if dtype is None else dtype
        if not isinstance(kind, dtypes.dtype) or not (kind.is_floating_point or kind.is_complex):
            raise TypeError(
                f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle "
                f"'{kind}'"
            )
        part = _COMPLEX_PARTS.get(kind.array_dtype, kind.array_dtype)
        limits: Any = ml_dtypes.finfo(part)
        self.dtype = np.dtype(part).name
        self.bits = int(limits.bits)
        self.eps, self.max, self.min = float(limits.eps), float(limits.max), float(limits.min)
        self.tiny = self.smallest_normal = float(limits.smallest_normal)
        self.resolution = float(limits.resolution)


class iinfo(_Limits):
    """The limits of an integer type.

    >>> from functrans import torch
    >>> torch.iinfo(torch.int8).min
    -128
    """

    _fields = ("min", "max")

    def __init__(self, type: Any):
        if not isinstance(type, dtypes.dtype) or type.rank != dtypes.INT:
            raise TypeError(
                f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type}'"
            )
        limits = np.iinfo(type.array_dtype)
        self.dtype = type.name
        self.bits, self.min, self.max = int(limits.bits), int(limits.min), int(limits.max)
