"""``torch.masked``: reductions and normalisations of the entries that a mask keeps.

``mask`` is True where an entry counts, and is broadcast to the input; None keeps everything. What
is left out has no derivative. ``MaskedTensor`` itself, a prototype in PyTorch, is not there.

>>> from functrans import torch
>>> mean(torch.tensor([1.0, 2.0, 9.0]), mask=torch.tensor([True, True, False]))
tensor(1.5000)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.torch._functions.table import METHODS, NN
from functrans.torch._graph.titles import named
from functrans.torch._names import absent
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.tensor import Tensor, from_array


def _kept(input: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return from_array(np.ones(input.shape, bool))
    if mask._array.dtype != bool:
        raise RuntimeError(f"masked: expected mask of dtype torch.bool, but got {mask.dtype}")
    try:
        return mask.broadcast_to(input.shape)
    except RuntimeError as failure:
        raise IndexError(
            f"masked: a mask of shape {list(mask.shape)} is not broadcast to an input of shape "
            f"{list(input.shape)}"
        ) from failure


def _filled(input: Tensor, mask: Tensor | None, value: float | None, dtype: Any = None) -> Tensor:
    """``input`` with ``value`` where it is masked out; None: the greatest of its type."""
    x = input if dtype is None else input.to(dtype)
    kept = _kept(input, mask)
    return METHODS["where"](x, kept, x.new_full((), value))


def _extreme(d: np.dtype, sign: int) -> float:
    if d.kind == "f":
        return sign * np.inf
    limits = np.iinfo(d) if d.kind in "iu" else None
    return (0, 1)[sign > 0] if limits is None else limits.max if sign > 0 else limits.min


def _dims(input: Tensor, dim: Any) -> tuple[int, ...]:
    if dim is None or (isinstance(dim, tuple | list) and not dim):
        return tuple(range(input.ndim))
    return tuple([d % max(input.ndim, 1) for d in ((dim,) if isinstance(dim, int) else dim)])


def _entries(input: Tensor, dtype: Any) -> Any:
    """The type in which integers are added up: 64 bits."""
    return dtypes.int64 if dtype is None and not (
        input.is_floating_point() or input.is_complex()) else dtype


def sum(input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None,
        mask: Tensor | None = None) -> Tensor:
    """The sum of the entries that are kept; 0 of none."""
    return _filled(input, mask, 0, _entries(input, dtype)).sum(_dims(input, dim), keepdim)


def prod(input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None,
         mask: Tensor | None = None) -> Tensor:
    """The product of the entries that are kept; 1 of none."""
    x = _filled(input, mask, 1, _entries(input, dtype))
    for d in sorted(_dims(input, dim), reverse=True):
        x = x.prod(d, keepdim=keepdim)
    return x


def _along(name: str, doc: str, left_out: float) -> Callable[..., Tensor]:
    """``name`` along a dimension, of which ``left_out`` changes nothing."""
    f = METHODS.get(name) or NN[name]

    def along(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
        return f(_filled(input, mask, left_out, _entries(input, dtype)), dim)

    return named(along, name, doc)


cumsum = _along("cumsum", "Running sums of what is kept.", 0)
cumprod = _along("cumprod", "Running products of what is kept.", 1)
softmax = _along("softmax", "``softmax`` among the entries that are kept; the others are 0.",
                 -np.inf)
softmin = _along("softmin", "``softmin`` among the entries that are kept; the others are 0.",
                 np.inf)
log_softmax = _along("log_softmax", "``log_softmax`` among the entries that are kept.", -np.inf)


def _of_extremes(name: str, sign: int) -> tuple[Callable, Callable]:
    """The least or greatest entry, and its place."""

    def extreme(input: Tensor, dim: Any = None, *, keepdim: bool | None = False,
                dtype: Any = None, mask: Tensor | None = None) -> Tensor:
        d = input._array.dtype if dtype is None else dtypes.array_dtype(dtype)
        x = _filled(input, mask, _extreme(d, sign), dtype)
        dims = _dims(input, dim)
        return METHODS[name](x, dims, keepdim) if dims else x.clone()

    def place(input: Tensor, dim: int | None = None, *, keepdim: bool | None = False,
              dtype: Any = None, mask: Tensor | None = None) -> Tensor:
        d = input._array.dtype if dtype is None else dtypes.array_dtype(dtype)
        at = METHODS[f"arg{name[1:]}"](_filled(input, mask, _extreme(d, sign), dtype), dim, keepdim)
        return at.to(dtypes.BY_ARRAY_DTYPE[d])  # as torch has it

    what = "least" if sign > 0 else "greatest"
    return (named(extreme, name, f"The {what} entry that is kept."),
            named(place, f"arg{name[1:]}", f"The place of the {what} that is kept."))


amax, argmax = _of_extremes("amax", -1)
amin, argmin = _of_extremes("amin", 1)


def _count(input: Tensor, dim: Any, mask: Tensor | None) -> Tensor:
    return _kept(input, mask).sum(_dims(input, dim), True)


def mean(input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None,
         mask: Tensor | None = None) -> Tensor:
    """The mean of the entries that are kept; NaN of none."""
    x = input if dtype is None else input.to(dtype)
    if not (x.is_floating_point() or x.is_complex()):
        raise NotImplementedError("masked mean is not implemented for integers; pass a dtype")
    y = sum(x, dim, keepdim=True, mask=mask) / _count(input, dim, mask)
    return y if keepdim else y.squeeze(_dims(input, dim))


def median(input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: Any = None,
           mask: Tensor | None = None) -> Tensor:
    """The median of the entries that are kept, the lower of two; NaN of none."""
    return _filled(input, mask, np.nan, dtype).nanmedian(dim, keepdim).values


def norm(input: Tensor, ord: float | None = 2.0, dim: Any = None, *, keepdim: bool | None = False,
         dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The norm ``ord`` of the entries that are kept."""
    p = 2.0 if ord is None else float(ord)
    x = _filled(input, mask, np.inf if p == -np.inf else 0.0, dtype)
    return x.norm(p, _dims(input, dim), keepdim)


def var(input: Tensor, dim: Any = None, unbiased: bool | None = None, *,
        correction: float | None = None, keepdim: bool | None = False, dtype: Any = None,
        mask: Tensor | None = None) -> Tensor:
    """The variance of the entries that are kept."""
    x = input if dtype is None else input.to(dtype)
    if not (x.is_floating_point() or x.is_complex()):
        x = x.to(dtypes.get_default_dtype())
    if correction is None:
        correction = 0 if unbiased is False else 1
    centred = x - mean(x, dim, keepdim=True, mask=mask)
    total = sum((centred * centred.conj()).real if x.is_complex() else centred * centred, dim,
                keepdim=True, mask=mask)
    y = total / (_count(input, dim, mask) - correction).clamp(min=0)
    return y if keepdim else y.squeeze(_dims(input, dim))


def std(input: Tensor, dim: Any = None, unbiased: bool | None = None, *,
        correction: float | None = None, keepdim: bool | None = False, dtype: Any = None,
        mask: Tensor | None = None) -> Tensor:
    """The standard deviation of the entries that are kept."""
    return var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype,
               mask=mask).sqrt()


def logsumexp(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
              mask: Tensor | None = None) -> Tensor:
    """log(sum(exp(x))) of the entries that are kept; -inf of none."""
    return _filled(input, mask, -np.inf, dtype).logsumexp(_dims(input, dim), keepdim)


def logaddexp(input: Tensor, other: Tensor, *, dtype: Any = None, input_mask: Tensor | None = None,
              other_mask: Tensor | None = None) -> Tensor:
    """log(exp(x) + exp(y)) of what is kept."""
    return METHODS["logaddexp"](_filled(input, input_mask, -np.inf, dtype),
                                _filled(other, other_mask, -np.inf, dtype))


def normalize(input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: Any = None,
              mask: Tensor | None = None) -> Tensor:
    """The entries that are kept, divided by their norm along ``dim``."""
    x = _filled(input, mask, 0.0, dtype)
    return x / norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask).clamp(min=eps)


__all__ = [
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp",
    "logsumexp", "mean", "median", "norm", "normalize", "prod", "softmax", "softmin", "std", "sum",
    "var",
]

__getattr__ = absent(__name__)
