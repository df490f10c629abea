"""The types in which NumPy computes, and the names of the array API standard."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from functrans._core.array import dtype_of, real_dtype
from functrans._core.bind import Tracer
from functrans._core.warned import geterr as geterr  # published
from functrans._core.warned import geterrcall as geterrcall
from functrans.errors import ConcretizationError, lost

# ---- The types in which NumPy computes, and the casts that it refuses
#
# Where ``out=`` is given, a sum into a float64 is one of float64, whatever is added up: only where
# a value is traced, for plain numbers NumPy adds up itself, in the memory of ``out``.

# What adds up or multiplies, and with which ufunc.
_SUMS = {
    **dict.fromkeys(("sum", "cumsum", "nansum", "nancumsum", "cumulative_sum", "trace"), np.add),
    **dict.fromkeys(("prod", "cumprod", "nanprod", "nancumprod", "cumulative_prod"), np.multiply),
}
_ENTRIES = {"ptp", "median", "nanmedian"}  # of few entries, which are read in that type
_EXACT = {"dot", "multi_dot"}  # they cast nothing
_MEANS = {"mean", "var", "std", "nanmean", "nanvar", "nanstd"}
# Where their dtype stands among arguments by position.
_PLACES = {"trace": 4, "accumulate": 2, "reduceat": 3}


def require_cast(x: Any, dtype: Any, casting: Any, what: str = "array data") -> None:
    """NumPy's error where the rule ``casting`` does not let ``x`` become ``dtype``."""
    if not np.can_cast(x.dtype, dtype, casting):
        raise TypeError(
            f"Cannot cast {what} from {x.dtype!r} to {np.dtype(dtype)!r} according to the rule "
            f"{casting!r}"
        )


def with_type_of(who: str, call: Callable, args: tuple, options: dict,
                 out: Tracer) -> tuple[tuple, dict]:
    """The arguments, with the ``dtype`` in which NumPy computes what it writes into ``out``."""
    name = who.rpartition(".")[2]
    dtypes = [dtype_of(x) for x in args if hasattr(x, "dtype")]
    given = name != "einsum" and len(args) > _PLACES.get(name, 2)
    if options.get("dtype") is not None or not dtypes or given:
        return args, options
    dtype = None
    if name == "einsum":
        dtype = np.result_type(*dtypes, out.dtype)
    elif name in _ENTRIES:
        args = (args[0].astype(np.result_type(dtypes[0], out.dtype)), *args[1:])
    elif name in _MEANS:
        dtype = _of_mean(dtypes[0], out.dtype)
    elif name in _SUMS:
        dtype = _of_steps(_SUMS[name], dtypes[0], out.dtype)
    elif name in ("reduce", "accumulate", "reduceat"):
        ufunc = getattr(call, "__self__", None)
        dtype = ufunc and _of_steps(ufunc, dtypes[0], out.dtype)
    return args, options if dtype is None else {**options, "dtype": dtype}


def _of_mean(dtype: np.dtype, out: np.dtype) -> np.dtype | None:
    if dtype.kind != "f" or out.kind not in "fc":
        return None
    return np.result_type(dtype, real_dtype(out), np.float32)


def _of_steps(ufunc: np.ufunc, dtype: np.dtype, out: np.dtype) -> np.dtype | None:
    """The type of the loop that joins ``out`` with one entry after the other."""
    try:
        return ufunc.resolve_dtypes((out, dtype, None), casting="unsafe", reduction=True)[1]
    except TypeError:  # no such loop: the caller's call says so
        return None


def casting_into(who: str, numpys: Callable, args: tuple, options: dict, out: Tracer) -> str:
    """How NumPy casts a result into ``out``, found on ones of the same types; or its TypeError."""
    if who.rpartition(".")[2] in _EXACT:
        return "no"
    ones, place = _ones((args, options)), np.ones(_small(out.shape), out.dtype)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        with contextlib.suppress(ValueError, ArithmeticError, LookupError):
            numpys(*ones[0], **ones[1], out=place)
            return "unsafe"
    return "same_kind"


def _ones(x: Any) -> Any:
    """``x`` with ones for arrays; large ones have at most two entries along an axis."""
    if isinstance(x, tuple | list):
        return type(x)(map(_ones, x)) if type(x) in (tuple, list) else x
    if isinstance(x, dict):
        return {k: _ones(v) for k, v in x.items()}
    if isinstance(x, Tracer | np.ndarray):
        return np.ones(_small(x.shape), x.dtype)
    return x


def _small(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if prod(shape) <= 1024 else tuple([min(n, 2) for n in shape])


# ---- What the Python array API standard (2024.12) requires beyond NumPy's older names, and names
# that
#
# are no functions of arrays.

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


def _describe(x: Any) -> Any:
    return x.dtype if isinstance(x, Tracer | np.ndarray) else x


def finfo(dtype: Any) -> np.finfo:
    """The limits of a floating or complex dtype, or of that of an array."""
    return np.finfo(_describe(dtype))


def iinfo(type: Any) -> np.iinfo:
    """The limits of an integer dtype, or of that of an array."""
    return np.iinfo(_describe(type))


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

ALSO = ("finfo", "from_dlpack", "geterr", "geterrcall", "iinfo")
