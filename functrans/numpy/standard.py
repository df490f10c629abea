"""What the Python array API standard (2024.12) requires beyond NumPy's older names, and names that
are no functions of arrays.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np

from functrans._core.bind import Tracer
from functrans._core.warned import geterr, geterrcall
from functrans.errors import ConcretizationError, lost

__array_api_version__ = "2024.12"
__array_namespace_info__ = np.__array_namespace_info__

# The versions that 2024.12 is compatible with.
VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


def namespace(api_version: str | None = None) -> ModuleType:
    """The module that ``x.__array_namespace__()`` returns; ValueError for a version unknown here.

    >>> import functrans as ft
    >>> ft.array([1.0]).__array_namespace__(api_version="2024.12") is ft.numpy
    True
    """
    if api_version is not None and api_version not in VERSIONS:
        raise ValueError(
            f"functrans.numpy follows the array API standard {', '.join(VERSIONS)}, not version "
            f"{api_version!r}"
        )
    return sys.modules["functrans.numpy"]


# ---- dtypes


def _described(x: Any) -> Any:
    return x.dtype if isinstance(x, Tracer | np.ndarray) else x


def finfo(dtype: Any) -> np.finfo:
    """The limits of a floating or complex dtype, or of that of an array."""
    return np.finfo(_described(dtype))


def iinfo(type: Any) -> np.iinfo:
    """The limits of an integer dtype, or of that of an array."""
    return np.iinfo(_described(type))


# ---- devices and exchange


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> np.ndarray:
    """An Array that shares the memory of another library's array."""
    return np.from_dlpack(x, device=device, copy=copy)


def _to_device(self, device, /, *, stream=None):
    if device != "cpu" or stream is not None:
        raise ValueError(
            f"to_device: arrays are on the device 'cpu', without streams; got {device!r}"
            + ("" if stream is None else f" and stream={stream!r}")
        )
    return self


def _dlpack(self, **options):
    raise ConcretizationError(
        f"{lost(self, 'go to another library')}. A constant copy is "
        "ft.stop_gradient(x); a foreign function with a derivative is ft.custom_vjp, or "
        "ft.external where it has none."
    )


METHODS = {
    "__array_namespace__": lambda self, /, *, api_version=None: namespace(api_version),
    "__dlpack__": _dlpack,
    "__dlpack_device__": lambda self: (1, 0),  # the processor, as DLPack counts devices
    "device": property(lambda self: "cpu"),
    "to_device": _to_device,
}

__all__ = ["finfo", "from_dlpack", "geterr", "geterrcall", "iinfo"]
