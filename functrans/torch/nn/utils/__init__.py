"""``torch.nn.utils``: gradients clipped, parameters as one vector, sequences padded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from functrans.torch._functions.table import FUNCTIONS
from functrans.torch._graph.modes import no_grad
from functrans.torch._names import absent
from functrans.torch._tensors.tensor import Tensor, from_array
from functrans.torch.nn.utils import parametrizations, parametrize, rnn, stateless
from functrans.torch.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from functrans.torch.nn.utils.norms import (
    remove_spectral_norm,
    remove_weight_norm,
    spectral_norm,
    weight_norm,
)


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    many = [parameters] if isinstance(parameters, Tensor) else parameters
    return [p.grad for p in many if p.grad is not None]


def get_total_norm(tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0,
                   error_if_nonfinite: bool = False) -> Tensor:
    """The norm of several tensors as one vector."""
    many = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not many:
        return from_array(np.zeros((), np.float32))
    norms = [np.linalg.norm(x._array.reshape(-1), float(norm_type)) for x in many]
    total = np.linalg.norm(np.asarray(norms), float(norm_type))
    if error_if_nonfinite and not np.isfinite(total):
        raise RuntimeError(
            f"The total norm of order {float(norm_type)} for gradients from `parameters` is "
            "non-finite, so it cannot be clipped. To disable this error and scale the gradients by "
            "the non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return from_array(np.asarray(total, many[0]._array.dtype))


def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float,
                    norm_type: float = 2.0, error_if_nonfinite: bool = False,
                    foreach: bool | None = None) -> Tensor:
    """Scale all gradients so that their norm is at most ``max_norm``; returns the norm before."""
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    grads = _gradients(parameters)
    total = get_total_norm(grads, norm_type, error_if_nonfinite)
    clip_grads_with_norm_(parameters, max_norm, total)
    return total


def clip_grads_with_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float,
                          total_norm: Tensor, foreach: bool | None = None) -> None:
    """Scale all gradients, whose norm is ``total_norm``, so that it is at most ``max_norm``."""
    scale = min(float(max_norm) / (float(total_norm) + 1e-6), 1.0)
    with no_grad():
        for g in _gradients(parameters):
            g.mul_(scale)


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float,
                     foreach: bool | None = None) -> None:
    """Keep each entry of the gradients between two bounds."""
    with no_grad():
        for g in _gradients(parameters):
            g.clamp_(-float(clip_value), float(clip_value))


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All entries in one vector."""
    return FUNCTIONS["cat"]([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Give parameters the entries of a vector, one after another."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    start = 0
    for p in parameters:
        p.data = vec[start : start + p.numel()].detach().clone().view_as(p)
        start += p.numel()


def skip_init(module_cls: type, *args: Any, **kwargs: Any) -> Any:
    """A module; its parameters are drawn as always."""
    return module_cls(*args, **kwargs)


__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "fuse_conv_bn_eval",
    "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights", "get_total_norm",
    "parameters_to_vector", "parametrizations", "parametrize", "remove_spectral_norm",
    "remove_weight_norm", "rnn", "skip_init", "spectral_norm", "stateless", "vector_to_parameters",
    "weight_norm",
]

__getattr__ = absent(__name__)
