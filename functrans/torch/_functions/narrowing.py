"""The type of results: NumPy widens where torch does not.

In NumPy float32 and int64 make float64, and functions without a loop for bfloat16 give float32. In
torch a result is in the type to which the tensors among the operands promote.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from functrans.torch._tensors import dtypes

# in torch too of another type than the operands
_WIDENING = frozenset({
    "cosine_embedding_loss", "cosine_similarity", "float_power", "kron", "l1_loss", "mse_loss",
    "poisson_nll_loss", "smooth_l1_loss",
})


def in_torchs_type(name: str, out: Any, operands: Sequence, options: dict[str, Any]) -> object:
    """``out`` of the function ``name``, each floating-point result in torch's type."""
    kind = type(out)
    if kind is tuple or kind is list:
        return kind([in_torchs_type(name, x, operands, options) for x in out])
    d = getattr(out, "dtype", None)
    if d is None or d.kind not in "fc":
        return out
    for x in operands:
        if getattr(x, "dtype", None) is d and x.shape:
            return out
    target = _target(d, operands, options)
    return out if target is None or name in _WIDENING else out.astype(target)


def _target(d: np.dtype, operands: Sequence, options: dict[str, Any]) -> np.dtype | None:
    """The narrower type that a result of type ``d`` has in torch, None if there is none."""
    tensors = []
    for x in _flat([*operands, *options.values()]):
        if isinstance(x, np.dtype):
            return None  # asked for
        if getattr(x, "dtype", None) is not None:
            tensors.append(x)
    if not tensors:
        return None
    target = dtypes.result_dtype(tensors)
    if target.kind not in "fcV":
        target = dtypes.default_float()
    if d.kind == "c" and target.kind != "c":
        target = np.dtype(np.complex128 if target.itemsize == 8 else np.complex64)
    return target if target.kind in ("fV", "c")[d.kind == "c"] and (
        target.itemsize < d.itemsize) else None


def _flat(xs: Iterable) -> Iterable:
    for x in xs:
        if type(x) in (list, tuple):
            yield from x
        else:
            yield x
