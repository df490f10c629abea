"""``torch.nn.utils.fusion``: layers of normalisation taken into the linear map before them."""

from __future__ import annotations

import copy
from typing import Any

from functrans.torch._tensors.tensor import Tensor
from functrans.torch.nn.parameter import Parameter


def _fuse(weight: Tensor, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float,
           scale: Tensor | None, shift: Tensor | None, axis: int) -> tuple[Parameter, Parameter]:
    """W and b of x -> scale (W x + b - mean) / sqrt(var + eps) + shift."""
    factor = (var + eps).rsqrt() * (1 if scale is None else scale)
    shape = [1] * weight.dim()
    shape[axis] = -1
    offset: Any = -mean if bias is None else bias - mean
    offset = offset * factor if shift is None else offset * factor + shift
    return (Parameter((weight * factor.reshape(shape)).detach(), weight.requires_grad),
            Parameter(offset.detach(), weight.requires_grad))


def fuse_conv_bn_weights(conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor,
                         bn_eps: float, bn_w: Tensor | None, bn_b: Tensor | None,
                         transpose: bool = False) -> tuple[Parameter, Parameter]:
    """Weights and bias of a convolution with the normalisation that follows."""
    return _fuse(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, int(transpose))


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution that computes both layers, which are in evaluation mode."""
    if conv.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        conv.weight, conv.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias,
        transpose)
    return fused


def fuse_linear_bn_weights(linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor,
                           bn_rv: Tensor, bn_eps: float, bn_w: Tensor, bn_b: Tensor,
                           ) -> tuple[Parameter, Parameter]:
    """Weights and bias of a linear map with the normalisation that follows."""
    return _fuse(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A linear layer that computes both layers, which are in evaluation mode."""
    return fuse_conv_bn_eval(linear, bn)


__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval",
           "fuse_linear_bn_weights"]
