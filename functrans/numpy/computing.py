"""The types in which NumPy computes, and the casts that it refuses.

Where ``out=`` is given, a sum into a float64 is one of float64, whatever is added up: only where a
value is traced, for plain numbers NumPy adds up itself, in the memory of ``out``.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from functrans._core.aval import dtype_of, real_dtype
from functrans._core.bind import Tracer

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
