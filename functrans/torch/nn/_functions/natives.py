"""The functions of ``torch.nn.functional`` under the names and in the order of ``torch`` itself.

``torch.layer_norm``, ``torch.native_layer_norm`` and the like are what ``nn.functional`` calls in
PyTorch. Reductions are numbers there: 0 for "none", 1 for "mean", 2 for "sum".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans.torch._functions.shapes import cat, stack
from functrans.torch._functions.table import FUNCTIONS, METHODS, NN, function
from functrans.torch._graph.titles import named
from functrans.torch._tensors import random
from functrans.torch._tensors.tensor import Tensor, from_array
from functrans.torch.nn._functions import (
    activations,
    convolutions,
    images,
    losses,
    normalisation,
    pooling,
)

# for what they enter
assert activations and convolutions and images and losses and normalisation and pooling

_REDUCTIONS = ("none", "mean", "sum")
_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def _same(names: str) -> None:
    for name in names.split():
        FUNCTIONS[name] = NN[name]


_same("adaptive_avg_pool1d avg_pool1d max_pool1d max_pool1d_with_indices max_pool2d max_pool3d "
      "pairwise_distance rms_norm rrelu threshold bilinear celu_ rrelu_ selu_ threshold_")
FUNCTIONS["native_channel_shuffle"] = FUNCTIONS["channel_shuffle"]
FUNCTIONS["adaptive_max_pool1d"] = NN["adaptive_max_pool1d_with_indices"]
FUNCTIONS["affine_grid_generator"] = NN["affine_grid"]


def _reducing(name: str, *arguments: str) -> None:
    """A loss whose arguments follow each other as ``torch`` has them, the last of them a number."""
    loss = NN[name]

    def f(*args: Any, **kwargs: Any) -> Tensor:
        named = dict(zip((*arguments, "reduction"), args, strict=False)) | kwargs
        return loss(**named | {"reduction": _REDUCTIONS[named.get("reduction", 0)]})

    FUNCTIONS[name] = named(f, name, f"``nn.functional.{name}`` with a number for the reduction.")


_reducing("binary_cross_entropy_with_logits", "input", "target", "weight", "pos_weight")
_reducing("cosine_embedding_loss", "input1", "input2", "target", "margin")
_reducing("hinge_embedding_loss", "input", "target", "margin")
_reducing("kl_div", "input", "target")
_reducing("margin_ranking_loss", "input1", "input2", "target", "margin")
_reducing("poisson_nll_loss", "input", "target", "log_input", "full", "eps")
_reducing("triplet_margin_loss", "anchor", "positive", "negative", "margin", "p", "eps", "swap")


def _dropping(name: str, drop: Callable) -> None:
    def f(input: Tensor, p: float, train: bool) -> Tensor:
        return drop(input, p, train)

    def f_(input: Tensor, p: float, train: bool) -> Tensor:
        return drop(input, p, train, True)

    for g, called in ((f, name), (f_, f"{name}_")):
        FUNCTIONS[called] = named(g, called, f"``{name}`` with probability ``p`` while ``train``.")


_dropping("dropout", NN["dropout"])
_dropping("alpha_dropout", NN["alpha_dropout"])
_dropping("feature_dropout", NN["dropout1d"])
_dropping("feature_alpha_dropout", NN["feature_alpha_dropout"])


@function
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """``input`` with some entries zero and the others scaled, and which are kept."""
    if not train:
        return input.clone(), from_array(np.ones(input.shape, bool))
    kept = from_array(random.source().random(input.shape) >= p)
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return input * kept.to(input.dtype) * scale, kept


# ---- normalisation


@function
def layer_norm(input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None,
               eps: float = 1e-5, cudnn_enable: bool = True) -> Tensor:
    """``nn.functional.layer_norm``."""
    return NN["layer_norm"](input, normalized_shape, weight, bias, eps)


@function
def group_norm(input: Tensor, num_groups: int, weight: Any = None, bias: Any = None,
               eps: float = 1e-5, cudnn_enabled: bool = True) -> Tensor:
    """``nn.functional.group_norm``."""
    return NN["group_norm"](input, num_groups, weight, bias, eps)


@function
def batch_norm(input: Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any,
               training: bool, momentum: float, eps: float, cudnn_enabled: bool = False) -> Tensor:
    """``nn.functional.batch_norm``."""
    return NN["batch_norm"](input, running_mean, running_var, weight, bias, training, momentum, eps)


@function
def instance_norm(input: Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any,
                  use_input_stats: bool, momentum: float, eps: float,
                  cudnn_enabled: bool = False) -> Tensor:
    """``nn.functional.instance_norm``."""
    return NN["instance_norm"](input, running_mean, running_var, weight, bias, use_input_stats,
                               momentum, eps)


def _statistics(x: Tensor, dims: Sequence[int], eps: float, keep: bool) -> tuple[Tensor, Tensor]:
    """Means, and reciprocals of standard deviations, along ``dims``."""
    return (x.mean(dims, keepdim=keep),
            (x.var(dims, unbiased=False, keepdim=keep) + eps).rsqrt())


@function
def native_layer_norm(input: Tensor, normalized_shape: Any, weight: Any, bias: Any,
                      eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """``layer_norm``, the means, and the reciprocals of the standard deviations."""
    y = layer_norm(input, normalized_shape, weight, bias, eps)
    dims = list(range(-len(tuple(normalized_shape)), 0))
    return y, *_statistics(input.detach(), dims, eps, True)


@function
def native_group_norm(input: Tensor, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int,
                      eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """``group_norm`` of N examples of C channels, the means, and the reciprocal deviations."""
    y = group_norm(input, group, weight, bias, eps)
    return y, *_statistics(input.reshape(N, group, C * HxW // group), [2], eps, False)


@function
def native_batch_norm(input: Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any,
                      training: bool, momentum: float, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """``batch_norm``, the means, and the reciprocals of deviations; empty if not ``training``."""
    y = batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)
    if not training:
        empty = from_array(np.empty(0, input._array.dtype))
        return y, empty, empty.clone()
    return y, *_statistics(input.detach(), [0, *range(2, input.ndim)], eps, False)


@function
def frobenius_norm(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """The root of the sum of squares along ``dim``, or of all entries if that is empty."""
    dims = list(range(input.ndim)) if isinstance(dim, tuple | list) and not dim else dim
    return METHODS["norm"](input, 2, dims, keepdim)


@function
def nuclear_norm(input: Tensor, dim: Any = (-2, -1), keepdim: bool = False) -> Tensor:
    """The sum of the singular values of the matrices along ``dim``."""
    return METHODS["norm"](input, "nuc", dim, keepdim)


@function
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norms along all dimensions but ``dim``, which are kept; all entries for -1."""
    if dim == -1:
        return METHODS["norm"](v, pow)
    return METHODS["norm"](v, pow, [d for d in range(v.ndim) if d != dim % v.ndim], True)


# ---- lookup, convolution, resampling


@function
def embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1,
              scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """``nn.functional.embedding``, the table first."""
    return NN["embedding"](indices, weight, None if padding_idx < 0 else padding_idx,
                           scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


@function
def convolution(input: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any,
                transposed: bool, output_padding: Any, groups: int) -> Tensor:
    """A convolution, or its transpose, of as many dimensions as ``weight`` has."""
    n = weight.ndim - 2
    stride, padding, dilation, output_padding = [
        tuple(x) * n if len(x) == 1 else tuple(x)
        for x in (stride, padding, dilation, output_padding)
    ]
    if transposed:
        return NN[f"conv_transpose{n}d"](input, weight, bias, stride, padding, output_padding,
                                         groups, dilation)
    return NN[f"conv{n}d"](input, weight, bias, stride, padding, dilation, groups)


@function
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """A convolution along the first of the dimensions time, batch and channel.

    ``weight`` has the dimensions offset, channel of the input, channel of the output.
    """
    y = NN["conv1d"](input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, 1, pad)
    return y.permute(2, 0, 1)


NN["conv_tbc"] = conv_tbc


@function
def grid_sampler(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int,
                 align_corners: bool) -> Tensor:
    """``nn.functional.grid_sample`` with numbers for its modes."""
    return NN["grid_sample"](input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode],
                             align_corners)


FUNCTIONS["grid_sampler_2d"] = FUNCTIONS["grid_sampler_3d"] = grid_sampler


# ---- cells of recurrent networks


def _gates(input: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any,
           b_hh: Any) -> tuple[Tensor, Tensor]:
    return NN["linear"](input, w_ih, b_ih), NN["linear"](h, w_hh, b_hh)


@function
def lstm_cell(input: Tensor, hx: Sequence[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Any = None,
              b_hh: Any = None) -> tuple[Tensor, Tensor]:
    """One step of an LSTM: the new state and cell from ``hx``, the old ones."""
    h, c = hx
    a, b = _gates(input, h, w_ih, w_hh, b_ih, b_hh)
    i, f, g, o = (a + b).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


@function
def gru_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None,
             b_hh: Any = None) -> Tensor:
    """One step of a GRU."""
    a, b = _gates(input, hx, w_ih, w_hh, b_ih, b_hh)
    (r1, z1, n1), (r2, z2, n2) = a.chunk(3, -1), b.chunk(3, -1)
    z = (z1 + z2).sigmoid()
    n = (n1 + (r1 + r2).sigmoid() * n2).tanh()
    return n + z * (hx - n)


def _simple_cell(name: str, bend: str) -> None:
    def cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None,
             b_hh: Any = None) -> Tensor:
        a, b = _gates(input, hx, w_ih, w_hh, b_ih, b_hh)
        return METHODS[bend](a + b)

    FUNCTIONS[name] = named(cell, name, f"One step of a recurrent network with ``{bend}``.")


_simple_cell("rnn_tanh_cell", "tanh")
_simple_cell("rnn_relu_cell", "relu")


# ---- segments


@function
def segment_reduce(data: Tensor, reduce: str, *, lengths: Tensor | None = None,
                   indices: Tensor | None = None, offsets: Tensor | None = None, axis: int = 0,
                   unsafe: bool = False, initial: Any = None) -> Tensor:
    """``reduce`` ("sum", "mean", "max", "min", "prod") of consecutive stretches along axis 0."""
    if (lengths is None) == (offsets is None) or indices is not None or axis:
        raise RuntimeError(
            "segment_reduce(): Either lengths or offsets must be defined, as one row for stretches "
            "along axis 0; indices are not supported"
        )
    if reduce not in _OF_SEGMENTS:
        raise RuntimeError(f"segment_reduce(): unknown reduction {reduce!r}")
    known: Any = offsets if lengths is None else lengths
    ends = known._array[1:] if lengths is None else np.cumsum(known._array)
    starts = [0, *ends[:-1]]
    f, neutral = _OF_SEGMENTS[reduce]
    empty = data.new_full(data.shape[1:], neutral if initial is None else initial)
    parts = []
    for start, end in zip(starts, ends, strict=True):
        part = data[int(start):int(end)]
        if not len(part):
            parts.append(empty)
        elif initial is None:
            parts.append(f(part))
        elif reduce == "mean":
            parts.append(f(part) + initial / len(part))
        else:
            parts.append(f(cat([data.new_full((1, *data.shape[1:]), initial), part])))
    return stack(parts)


_OF_SEGMENTS: dict[str, tuple[Callable, float]] = {
    "sum": (lambda x: x.sum(0), 0.0), "mean": (lambda x: x.mean(0), float("nan")),
    "max": (lambda x: x.amax(0), float("-inf")), "min": (lambda x: x.amin(0), float("inf")),
    "prod": (lambda x: x.prod(0), 1.0),
}

