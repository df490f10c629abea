"""``torch.nn.init``: the first values of parameters, written in place."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.torch._graph.modes import no_grad
from functrans.torch._names import absent
from functrans.torch._tensors.random import source
from functrans.torch._tensors.tensor import Tensor

_GAINS = {"tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """By how much weights before a nonlinearity are greater."""
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2 / (1 + slope**2))
    known = ("linear", "sigmoid", "conv1d", "conv2d", "conv3d", *_GAINS)
    if nonlinearity not in known:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS.get(nonlinearity, 1.0)


def _fans(tensor: Tensor) -> tuple[int, int]:
    """How many entries each output is made of, and each input is part of."""
    if tensor.dim() < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 "
                         "dimensions")
    size = math.prod(tensor.shape[2:])
    return tensor.shape[1] * size, tensor.shape[0] * size


def _keep(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    """The standard deviation, by which what flows through keeps its size."""
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    if not tensor.numel():
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
    return calculate_gain(nonlinearity, a) / math.sqrt(max(_fans(tensor)[mode == "fan_out"], 1))


def _fill(tensor: Tensor, value: Any) -> Tensor:
    with no_grad():
        return tensor.copy_(value) if isinstance(value, Tensor) else tensor.fill_(value)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """One number everywhere."""
    return _fill(tensor, val)


def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    return _fill(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    return _fill(tensor, 0.0)


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform between ``a`` and ``b``."""
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with a mean and a standard deviation."""
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0,
                  b: float = 2.0, generator: Any = None) -> Tensor:
    """Normal, drawn again where it falls outside of ``a`` and ``b``."""
    with no_grad():
        tensor.normal_(mean, std, generator=generator)
        while ((tensor < a) | (tensor > b)).any():
            again = tensor.clone().normal_(mean, std, generator=generator)
            tensor.copy_(again.where((tensor < a) | (tensor > b), tensor))
    return tensor


def eye_(tensor: Tensor) -> Tensor:
    """The unit matrix."""
    return _array(tensor, np.eye(*tensor.shape))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """The kernels of a convolution that changes nothing."""
    y = np.zeros(tensor.shape)
    each = tensor.shape[0] // groups
    middle = [n // 2 for n in tensor.shape[2:]]
    for g in range(groups):
        for k in range(min(each, tensor.shape[1])):
            y[(g * each + k, k, *middle)] = 1
    return _array(tensor, y)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normally distributed numbers, and in each column a share of zeros."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    rng = source(generator)
    y = rng.normal(0, std, (rows, columns))
    for j in range(columns):
        y[rng.permutation(rows)[: int(np.ceil(sparsity * rows))], j] = 0
    return _array(tensor, y)


def _array(tensor: Tensor, y: np.ndarray) -> Tensor:
    tensor._array[...] = y
    tensor._storage.count()
    return tensor


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform, with the variance 2 / (fan in + fan out)."""
    bound = gain * math.sqrt(6 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal, with the variance 2 / (fan in + fan out)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(_fans(tensor))), generator)


def kaiming_uniform_(tensor: Tensor, a: float = 0, mode: str = "fan_in",
                     nonlinearity: str = "leaky_relu", generator: Any = None) -> Tensor:
    """Uniform, with the variance gain**2 / fan."""
    bound = math.sqrt(3) * _keep(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor: Tensor, a: float = 0, mode: str = "fan_in",
                    nonlinearity: str = "leaky_relu", generator: Any = None) -> Tensor:
    """Normal, with the variance gain**2 / fan."""
    return normal_(tensor, 0.0, _keep(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """Rows or columns that are orthogonal."""
    if tensor.dim() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    rows = tensor.shape[0]
    flat = tensor.clone().detach().normal_(generator=generator)._array.reshape(rows, -1)
    q, r = np.linalg.qr(flat if rows >= flat.shape[1] else flat.T)
    q = q * np.sign(np.diagonal(r))
    q = q if rows >= flat.shape[1] else q.T
    return _array(tensor, gain * q.reshape(tensor.shape))


_OLD: dict[str, Callable] = {
    "constant": constant_, "uniform": uniform_, "normal": normal_,
    "xavier_uniform": xavier_uniform_, "xavier_normal": xavier_normal_,
    "kaiming_uniform": kaiming_uniform_, "kaiming_normal": kaiming_normal_,
    "orthogonal": orthogonal_, "eye": eye_, "dirac": dirac_, "sparse": sparse_,
}
globals().update(_OLD)
__all__ = [
    "calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_",
    "normal_", "ones_", "orthogonal_", "sparse_", "trunc_normal_", "uniform_", "xavier_normal_",
    "xavier_uniform_", "zeros_", *_OLD,
]

__getattr__ = absent(__name__)
