"""Layers of normalisation."""

from __future__ import annotations

from typing import Any

from functrans.torch._functions.table import NN
from functrans.torch._tensors import dtypes, factories
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.nn.modules.module import Module
from functrans.torch.nn.parameter import Parameter

ones, zeros = vars(factories)["ones"], vars(factories)["zeros"]


def _affine(module: Module, shape: Any, weight: bool, bias: bool, device: Any,
            dtype: Any) -> None:
    made: Any = {"device": device, "dtype": dtype}
    module.register_parameter("weight", Parameter(ones(shape, **made)) if weight else None)
    module.register_parameter("bias", Parameter(zeros(shape, **made)) if bias else None)


class BatchNorm(Module):
    """Each channel standardised, by the batch while training, else by running statistics."""

    running_mean: Tensor | None
    running_var: Tensor | None
    _dims: tuple[int, ...] = ()

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
                 affine: bool = True, track_running_stats: bool = True, device: Any = None,
                 dtype: Any = None, *, bias: bool = True):
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        _affine(self, (num_features,), affine, affine and bias, device, dtype)
        tracked, made = track_running_stats, {"device": device, "dtype": dtype}
        self.register_buffer("running_mean", zeros(num_features, **made) if tracked else None)
        self.register_buffer("running_var", ones(num_features, **made) if tracked else None)
        self.register_buffer("num_batches_tracked", zeros((), dtype=dtypes.int64)
                             if tracked else None)

    def reset_running_stats(self) -> None:
        """Forget the batches that were seen."""
        for name, value in (("running_mean", 0), ("running_var", 1), ("num_batches_tracked", 0)):
            if getattr(self, name) is not None:
                getattr(self, name).fill_(value)

    def _check(self, input: Tensor) -> None:
        if input.dim() not in self._dims:
            raise ValueError(f"expected {' or '.join([f'{d}D' for d in self._dims])} input (got "
                             f"{input.dim()}D input)")

    def _step(self) -> float:
        """The weight of this batch among all; counts it while training."""
        seen = self.num_batches_tracked
        if not self.training or seen is None:
            return 0.0 if self.momentum is None else self.momentum
        seen.add_(1)
        return 1 / seen.item() if self.momentum is None else self.momentum

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        by_batch = self.training or self.running_mean is None
        keep = not self.training or self.track_running_stats
        return NN["batch_norm"](input, self.running_mean if keep else None,
                                self.running_var if keep else None, self.weight, self.bias,
                                by_batch, self._step(), self.eps)

    def extra_repr(self) -> str:
        return (f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
                f"affine={self.affine}, bias={self.bias is not None}, "
                f"track_running_stats={self.track_running_stats}")


class InstanceNorm(BatchNorm):
    """Each channel of each example standardised."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
                 affine: bool = False, track_running_stats: bool = False, device: Any = None,
                 dtype: Any = None, *, bias: bool = True):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype,
                         bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        by_input = self.training or not self.track_running_stats
        return NN["instance_norm"](input, self.running_mean, self.running_var, self.weight,
                                   self.bias, by_input, self._step(), self.eps)


class LayerNorm(Module):
    """Standardised along the last dimensions."""

    def __init__(self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True,
                 bias: bool = True, device: Any = None, dtype: Any = None):
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape, self.eps = tuple(shape), eps
        self.elementwise_affine = elementwise_affine
        _affine(self, self.normalized_shape, elementwise_affine, elementwise_affine and bias,
                device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return NN["layer_norm"](input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (f"{self.normalized_shape}, eps={self.eps}, "
                f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}")


class RMSNorm(Module):
    """Divided by the root of the mean square along the last dimensions."""

    def __init__(self, normalized_shape: Any, eps: float | None = None,
                 elementwise_affine: bool = True, device: Any = None, dtype: Any = None):
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape, self.eps = tuple(shape), eps
        self.elementwise_affine = elementwise_affine
        _affine(self, self.normalized_shape, elementwise_affine, False, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return NN["rms_norm"](input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (f"{self.normalized_shape}, eps={self.eps}, "
                f"elementwise_affine={self.elementwise_affine}")


class GroupNorm(Module):
    """Standardised in groups of channels."""

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
                 device: Any = None, dtype: Any = None, *, bias: bool = True):
        super().__init__()
        if num_channels % num_groups:
            raise ValueError("num_channels must be divisible by num_groups")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        _affine(self, (num_channels,), affine, affine and bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return NN["group_norm"](input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (f"{self.num_groups}, {self.num_channels}, eps={self.eps}, "
                f"affine={self.weight is not None}, bias={self.bias is not None}")
