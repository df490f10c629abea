"""What the Python array API standard (2024.12) asks of a namespace beyond NumPy's older names."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

from functrans._core.bind import Tracer
from functrans.errors import ConcretizationError, user_line
from functrans.numpy import indexing as _indexing
from functrans.numpy.structure import as_operand, numpy_like

__array_api_version__ = "2024.12"
__array_namespace_info__ = np.__array_namespace_info__

# The versions that 2024.12 is compatible with; an earlier one was a draft.
VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


def namespace(api_version: str | None = None) -> Any:
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
    """The limits of a floating or complex type, given by name or by an array that has it."""
    return np.finfo(_described(dtype))


def iinfo(type: Any) -> np.iinfo:
    """The limits of an integer type, given by name or by an array that has it."""
    return np.iinfo(_described(type))


# ---- order


@numpy_like(None)
def argsort(a, axis=-1, kind=None, order=None, *, stable=None, descending=False):
    """The indices that would sort ``a`` along ``axis``, the largest first with ``descending``."""
    if not descending:
        return _indexing.argsort(a, axis, kind, order, stable=stable)
    a = as_operand(a)
    if axis is None:
        a, axis = np.ravel(a), 0
    # turned before and after, so that equal entries keep their order where that is asked for
    found = _indexing.argsort(np.flip(a, axis), axis, kind, order, stable=stable)
    return a.shape[axis] - 1 - np.flip(found, axis)


@numpy_like(None)
def sort(a, axis=-1, kind=None, order=None, *, stable=None, descending=False):
    """``a`` sorted along ``axis``; the derivative follows each entry to its place.

    >>> import functrans.numpy as np
    >>> np.sort(np.asarray([1.0, 3.0, 2.0]), descending=True)
    Array([3., 2., 1.])
    """
    if not descending:
        return _indexing.sort(a, axis, kind, order, stable=stable)
    a = as_operand(a)
    if axis is None:
        a, axis = np.ravel(a), 0
    return _indexing.take_along_axis(
        a, argsort(a, axis, kind, order, stable=stable, descending=True), axis
    )


# ---- sets


class UniqueAllResult(NamedTuple):
    """Distinct entries, where each first stands, which of them each entry is, and how often."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCountsResult(NamedTuple):
    """Distinct entries, and how often each occurs."""

    values: Any
    counts: Any


class UniqueInverseResult(NamedTuple):
    """Distinct entries, and which of them each entry is."""

    values: Any
    inverse_indices: Any


@numpy_like(np.unique_all)
def unique_all(x):
    """The distinct entries of ``x`` with indices, inverse and counts; each NaN is an entry."""
    return UniqueAllResult(*_indexing.unique(x, True, True, True, equal_nan=False))


@numpy_like(np.unique_counts)
def unique_counts(x):
    """The distinct entries of ``x`` and how often each occurs; each NaN is an entry."""
    return UniqueCountsResult(*_indexing.unique(x, return_counts=True, equal_nan=False))


@numpy_like(np.unique_inverse)
def unique_inverse(x):
    """The distinct entries of ``x`` and which of them each entry is; each NaN is an entry."""
    return UniqueInverseResult(*_indexing.unique(x, return_inverse=True, equal_nan=False))


@numpy_like(np.unique_values)
def unique_values(x):
    """The distinct entries of ``x``, each NaN an entry, in an order that may be any."""
    return _indexing.unique(x, equal_nan=False)


# ---- devices and exchange


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """An Array on the memory of an array of another library."""
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
        f"{user_line()}: {self!r} cannot go to another library: its derivative would be lost. "
        "A constant copy is ft.stop_gradient(x); a foreign function with a derivative is "
        "ft.custom_vjp, or ft.external where it has none."
    )


METHODS = {
    "__array_namespace__": lambda self, /, *, api_version=None: namespace(api_version),
    "__dlpack__": _dlpack,
    "__dlpack_device__": lambda self: (1, 0),  # the processor, as DLPack counts devices
    "device": property(lambda self: "cpu"),
    "to_device": _to_device,
}

__all__ = [
    "argsort", "finfo", "from_dlpack", "iinfo", "sort", "unique_all", "unique_counts",
    "unique_inverse", "unique_values",
]
