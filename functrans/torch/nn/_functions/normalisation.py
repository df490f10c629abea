"""Normalisation by the statistics of batches, layers, groups and neighbours."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from functrans.extend import AnyArray
from functrans.torch._functions.table import NN, op
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.nn._functions.convolutions import pad, windows
from functrans.torch.nn._functions.direct import standard_row


def _standard(x: Any, axis: Any, eps: float, mean: Any = None, var: Any = None) -> AnyArray:
    """(x - mean) / sqrt(var + eps), by default of its own statistics along ``axis``."""
    mean = np.mean(x, axis=axis, keepdims=True) if mean is None else mean
    centred = x - mean
    if var is None:
        var = np.mean(np.square(centred), axis=axis, keepdims=True)
    return centred / np.sqrt(var + eps)


def _affine(x: Any, weight: Any, bias: Any) -> AnyArray:
    if weight is None and bias is None:
        return np.positive(x)  # its backward reads x, and the result may be written to
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _by_channel(v: Any, ndim: int) -> AnyArray | None:
    return None if v is None else v.reshape((-1, *[1] * (ndim - 2)))


def _batch_row(x, mean, var, weight, bias, eps):
    if mean is not None or var is not None:
        return None
    axis = (0, *range(2, x.ndim))
    return standard_row(x, axis, eps, (-1, *[1] * (x.ndim - 2)), weight, bias)


@op(method=False, title="NativeBatchNormBackward0", by_row=_batch_row)
def _batch_norm(x, mean, var, weight, bias, eps):
    ndim = x.ndim
    axis = (0, *range(2, ndim))
    y = _standard(x, axis, eps, *[_by_channel(v, ndim) for v in (mean, var)])
    return _affine(y, *[_by_channel(v, ndim) for v in (weight, bias)])


def batch_norm(input: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
               weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False,
               momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """Each channel standardised by the batch while ``training``, else by running statistics."""
    for name, of in (("running_mean", running_mean), ("running_var", running_var),
                     ("weight", weight), ("bias", bias)):
        if of is not None and of._array.shape != input._array.shape[1:2]:
            raise RuntimeError(f"{name} should contain {input._array.shape[1]} elements not "
                               f"{of._array.size}")
    if not training:
        if running_mean is None or running_var is None:
            raise RuntimeError("Expected running_mean and running_var to be defined when "
                               "training=False")
        return _batch_norm(input, running_mean, running_var, weight, bias, eps)
    count = input.numel() // max(input.shape[1], 1)
    if count == 1:
        raise ValueError("Expected more than 1 value per channel when training, got input size "
                         f"{input.shape}")
    axis = (0, *range(2, input.ndim))
    _track(input._array, axis, running_mean, running_var, momentum, count)
    return _batch_norm(input, None, None, weight, bias, eps)


def _track(x: np.ndarray, axis: tuple[int, ...], mean: Tensor | None, var: Tensor | None,
           momentum: float, count: int) -> None:
    """Move the running statistics towards those of ``count`` numbers along ``axis``, or towards the
    mean of those of the examples."""
    for running, now in ((mean, np.mean), (var, np.var)):
        if running is not None:
            value = now(x, axis=axis)
            value = value if value.ndim == 1 else value.mean(0)
            if now is np.var:
                value = value * count / (count - 1)
            running._array[...] = (1 - momentum) * running._array + momentum * value
            running._storage.count()


@op(method=False, title="NativeBatchNormBackward0")
def _instance_norm(x, weight, bias, eps):
    y = _standard(x, tuple(range(2, x.ndim)), eps)
    return _affine(y, *[_by_channel(v, x.ndim) for v in (weight, bias)])


def instance_norm(input: Tensor, running_mean: Tensor | None = None,
                  running_var: Tensor | None = None, weight: Tensor | None = None,
                  bias: Tensor | None = None, use_input_stats: bool = True,
                  momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """Each channel of each example standardised."""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    axis = tuple(range(2, input.ndim))
    _track(input._array, axis, running_mean, running_var, momentum, math.prod(input.shape[2:]))
    return _instance_norm(input, weight, bias, eps)


def _trailing(who: str, x: Any, shape: Any) -> tuple:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if not shape:
        raise RuntimeError("Expected normalized_shape to be at least 1-dimensional, i.e., "
                           "containing at least one element, but got normalized_shape = [], in "
                           f"{who}")
    if x.shape[x.ndim - len(shape) :] != shape:
        raise RuntimeError(f"Given normalized_shape={list(shape)}, expected input with shape "
                           f"[*, {', '.join(map(str, shape))}], but got input of size"
                           f"{list(x.shape)}")
    return tuple(range(-len(shape), 0))


def _layer_row(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    axis = _trailing("layer_norm", input, normalized_shape)
    return standard_row(input, axis, eps, input.shape[axis[0]:], weight, bias)


@op(space=NN, title="NativeLayerNormBackward0", by_row=_layer_row)
def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    """Standardised along the last dimensions."""
    axis = _trailing("layer_norm", input, normalized_shape)
    return _affine(_standard(input, axis, eps), weight, bias)


@op(space=NN)
def rms_norm(input, normalized_shape, weight=None, eps=None):
    """Divided by the root of the mean square along the last dimensions."""
    axis = _trailing("rms_norm", input, normalized_shape)
    eps = np.finfo(input.dtype).eps if eps is None else eps
    size = np.mean(np.square(input), axis=axis, keepdims=True)
    return _affine(input / np.sqrt(size + eps), weight, None)


@op(space=NN, title="NativeGroupNormBackward0")
def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    """Standardised in groups of channels."""
    n, c = input.shape[:2]
    if c % num_groups:
        raise RuntimeError("Expected number of channels in input to be divisible by num_groups, "
                           f"but got input of shape {list(input.shape)} and "
                           f"num_groups={num_groups}")
    x = input.reshape((n, num_groups, -1)) if input.size else input
    y = _standard(x, -1, eps).reshape(input.shape) if input.size else x
    return _affine(y, *[_by_channel(v, input.ndim) for v in (weight, bias)])


@op(space=NN)
def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """Divided by a power of the squares in neighbouring channels."""
    x = np.moveaxis(np.square(input), 1, -1)
    x = pad(x, [(size // 2, (size - 1) // 2)])
    total = np.sum(windows(x, (size,), (1,), (1,)), axis=-1) / size
    return input / np.power(np.moveaxis(total, -1, 1) * alpha + k, beta)


NN.update(batch_norm=batch_norm, instance_norm=instance_norm)
