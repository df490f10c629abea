"""Names of arguments: NumPy's, which torch takes too, and those that a function does not have."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection
from typing import Any

from functrans.torch._tensors.tensor import Tensor

NUMPYS = {"axis": "dim", "keepdims": "keepdim"}
# functions of which torch has several forms, so that its error lists what it was called with
_OVERLOADED = frozenset({
    "addbmm", "addcdiv", "addcmul", "addmm", "addmv", "addr", "all", "any", "argsort", "baddbmm",
    "bernoulli", "bitwise_and", "bitwise_or", "bitwise_xor", "bucketize", "clamp", "clamp_max",
    "clamp_min", "clip", "conv1d", "conv2d", "conv3d", "copysign", "count_nonzero", "divide", "eq",
    "fill", "float_power", "floor_divide", "fmod", "ge", "gradient", "greater", "gt", "index_fill",
    "isin", "le", "lerp", "less", "lt", "masked_fill", "max", "mean", "min", "movedim", "multiply",
    "narrow", "ne", "pow", "prod", "quantile", "remainder", "repeat_interleave", "round",
    "scatter", "searchsorted", "sort", "squeeze", "std", "std_mean", "subtract", "sum",
    "tensor_split", "trapezoid", "var", "var_mean", "xlogy",
})
_MISSING = re.compile(r"missing (\d+) required positional arguments?: (.+)")
_UNEXPECTED = re.compile(r"got an unexpected keyword argument|got multiple values for")


def parameters_of(f: Callable) -> frozenset[str]:
    """The names of a function's arguments."""
    return frozenset(inspect.signature(f).parameters)


def renamed(kwargs: dict[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """``kwargs`` with torch's names in place of NumPy's, where the function has those."""
    if NUMPYS.keys().isdisjoint(kwargs):
        return kwargs
    return {NUMPYS[k] if NUMPYS.get(k) in wanted and k not in wanted else k: v
            for k, v in kwargs.items()}


def renaming(f: Callable) -> Callable:
    """``f``, which takes NumPy's names as well, if there are any."""
    wanted = parameters_of(f)
    if wanted.isdisjoint(("dim", "keepdim")):
        return f

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        return f(*args, **renamed(kwargs, wanted)) if kwargs else f(*args)

    return call


def wrong_arguments(name: str, failure: TypeError, args: tuple, kwargs: dict[str, Any],
                    ) -> TypeError:
    """The error that torch has where a call fits no form of a function."""
    if missing := _MISSING.search(str(failure)):
        names = missing[2].replace("'", '"').replace(" and ", ", ").replace(",,", ",")
        return TypeError(f"{name}() missing {missing[1]} required positional arguments: {names}")
    if name not in _OVERLOADED or not _UNEXPECTED.search(str(failure)):
        return failure
    found = [_kind(x) for x in args] + [f"{k}={_kind(v)}" for k, v in kwargs.items()]
    return TypeError(f"{name}() received an invalid combination of arguments - got "
                     f"({', '.join(found)}): {failure}")


def _kind(x: Any) -> str:
    return "Tensor" if isinstance(x, Tensor) else type(x).__name__
