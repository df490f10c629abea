"""The type of results: NumPy widens where torch does not.

In NumPy float32 and int64 make float64, and functions without a loop for bfloat16 give float32. In
torch a result is in the type to which the tensors among the operands promote.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from functrans.torch._tensors import dtypes

# in torch too of another type than the operands
_WIDENING = frozenset({
    "cosine_embedding_loss", "cosine_similarity", "float_power", "kron", "l1_loss", "mse_loss",
    "poisson_nll_loss", "smooth_l1_loss",
})
# functions of several roundings, or of values in between that are beyond the result: float16 and
# bfloat16 are computed in float32 and rounded once, as torch does
_WIDE = frozenset({
    "addcdiv", "addcmul", "batch_norm", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "celu", "cosine_similarity",
    "cross_entropy", "cumprod", "cumsum", "digamma", "dist", "elu", "gaussian_nll_loss", "gelu",
    "glu", "group_norm", "hardsigmoid", "hardswish", "hinge_embedding_loss", "huber_loss", "i0",
    "instance_norm", "kl_div", "l1_loss", "layer_norm", "lerp", "local_response_norm",
    "log_softmax", "logcumsumexp", "logsigmoid", "logsumexp", "lp_pool1d", "lp_pool2d",
    "margin_ranking_loss", "mish", "mse_loss", "multilabel_soft_margin_loss", "nanmean",
    "nansum", "nll_loss", "norm", "normalize", "pairwise_distance", "renorm",
    "rms_norm", "selu", "silu", "sinc", "smooth_l1_loss", "soft_margin_loss",
    "softmax", "softmin", "softplus", "softsign", "sum_all", "sum_dim", "tanhshrink",
    "trapezoid", "triplet_margin_loss", "vector_norm",
})


def computes_wide(name: str) -> bool:
    """Whether the function ``name`` computes half precision in single."""
    return name in _WIDE


def widened(name: str, operands: Sequence, options: dict[str, Any]) -> np.dtype | None:
    """The type of a result of these operands if it is of half precision, else None."""
    found = [x for x in (*operands, *options.values()) if getattr(x, "dtype", None) is not None]
    if not any([_is_half(x) for x in found]):
        return None
    target = dtypes.result_dtype(found)
    if name in _WIDENING:
        target = functools.reduce(dtypes.promote, [x.dtype for x in found])
    return target if _is_half(np.empty(0, target)) else None


def _is_half(x: Any) -> bool:
    d = getattr(x, "dtype", None)
    return d is not None and d.itemsize == 2 and d.kind in "fV"


def in_single(x: Any) -> Any:
    """``x``, in single precision if it is of half."""
    return x.astype(np.float32) if _is_half(x) else x


def narrowed(out: Any, target: np.dtype) -> Any:
    """``out``, single precision rounded to ``target``."""
    if type(out) in (tuple, list):
        return type(out)([narrowed(x, target) for x in out])
    return out.astype(target) if getattr(out, "dtype", None) == np.float32 else out


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
