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
from functrans.torch._graph.nodes import named
from functrans.torch._tensors import random
from functrans.torch._tensors.tensor import Tensor, from_array
from functrans.torch.nn._functions import (
    activations,
    convolutions,
    images,
    losses,
    normalisation,
    pooling,
    sequences,
)

# for what they enter
assert activations and sequences and convolutions and images and losses
assert normalisation and pooling

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


def _order(name: str, arguments: str) -> None:
    """``nn.functional.name`` with its arguments in the order of ``torch``, a number for the
    reduction, and arguments about cuDNN, which mean nothing here."""
    function, names = NN[name], arguments.split()

    def f(*args: Any, **kwargs: Any) -> Tensor:
        if len(args) > len(names):
            raise TypeError(f"{name}() takes {len(names)} positional arguments but {len(args)} "
                            "were given")
        found = dict(zip(names, args, strict=False)) | kwargs
        if "reduction" in names:
            found["reduction"] = _REDUCTIONS[found.get("reduction", 0)]
        return function(**{k: v for k, v in found.items() if not k.startswith("cudnn")})

    FUNCTIONS[name] = named(f, name, f"``nn.functional.{name}`` with torch's order of arguments.")


_order("binary_cross_entropy_with_logits", "input target weight pos_weight reduction")
_order("cosine_embedding_loss", "input1 input2 target margin reduction")
_order("ctc_loss",
         "log_probs targets input_lengths target_lengths blank reduction zero_infinity")
_order("hinge_embedding_loss", "input target margin reduction")
_order("kl_div", "input target reduction")
_order("margin_ranking_loss", "input1 input2 target margin reduction")
_order("poisson_nll_loss", "input target log_input full eps reduction")
_order("triplet_margin_loss", "anchor positive negative margin p eps swap reduction")
_order("layer_norm", "input normalized_shape weight bias eps cudnn_enable")
_order("group_norm", "input num_groups weight bias eps cudnn_enabled")
_order("batch_norm",
         "input weight bias running_mean running_var training momentum eps cudnn_enabled")
_order("instance_norm",
         "input weight bias running_mean running_var use_input_stats momentum eps cudnn_enabled")


def _dropping(name: str) -> None:
    drop = NN[name]

    def f(input: Tensor, p: float, train: bool) -> Tensor:
        return drop(input, p, train)

    def f_(input: Tensor, p: float, train: bool) -> Tensor:
        return drop(input, p, train, True)

    for g, called in ((f, name), (f_, f"{name}_")):
        FUNCTIONS[called] = named(g, called, f"``{name}`` with probability ``p`` while ``train``.")


for _name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"):
    _dropping(_name)


@function
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """``input`` with some entries zero and the others scaled, and which are kept."""
    if not train:
        return input.clone(), from_array(np.ones(input.shape, bool))
    kept = from_array(random.source().random(input.shape) >= p)
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return input * kept.to(input.dtype) * scale, kept


# ---- normalisation


def _statistics(x: Tensor, dims: Sequence[int], eps: float, keep: bool) -> tuple[Tensor, Tensor]:
    """Means, and reciprocals of standard deviations, along ``dims``."""
    return (x.mean(dims, keepdim=keep),
            (x.var(dims, unbiased=False, keepdim=keep) + eps).rsqrt())


@function
def native_layer_norm(input: Tensor, normalized_shape: Any, weight: Any, bias: Any,
                      eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """``layer_norm``, the means, and the reciprocals of the standard deviations."""
    y = NN["layer_norm"](input, normalized_shape, weight, bias, eps)
    dims = list(range(-len(tuple(normalized_shape)), 0))
    return y, *_statistics(input.detach(), dims, eps, True)


@function
def native_group_norm(input: Tensor, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int,
                      eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """``group_norm`` of N examples of C channels, the means, and the reciprocal deviations."""
    y = NN["group_norm"](input, group, weight, bias, eps)
    return y, *_statistics(input.reshape(N, group, C * HxW // group), [2], eps, False)


@function
def native_batch_norm(input: Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any,
                      training: bool, momentum: float, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """``batch_norm``, the means, and the reciprocals of deviations; empty if not ``training``."""
    y = NN["batch_norm"](input, running_mean, running_var, weight, bias, training, momentum, eps)
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
    """The norms along all dimensions but ``dim``, which are kept; of all entries for -1."""
    if dim == -1:
        return v.norm(pow)
    others = [d for d in range(v.ndim) if d != dim % v.ndim]
    return v.norm(pow, others, keepdim=True) if others else v.abs()


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


Gates = tuple[Tensor, Tensor]


def rnn_step(gates: Gates, h: Tensor, c: Any) -> tuple:
    """tanh of the sum of what input and state say."""
    return (gates[0] + gates[1]).tanh(), None


def relu_step(gates: Gates, h: Tensor, c: Any) -> tuple:
    """relu of the sum of what input and state say."""
    return (gates[0] + gates[1]).relu(), None


def lstm_step(gates: Gates, h: Tensor, c: Tensor) -> tuple:
    """Hochreiter and Schmidhuber's cell, with a forget gate."""
    i, f, g, o = (gates[0] + gates[1]).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def gru_step(gates: Gates, h: Tensor, c: Any) -> tuple:
    """Cho's gated unit, the reset gate applied behind the product."""
    (ri, zi, ni), (rh, zh, nh) = [g.chunk(3, -1) for g in gates]
    z = (zi + zh).sigmoid()
    n = (ni + (ri + rh).sigmoid() * nh).tanh()
    return n + z * (h - n), None


def _cell(name: str, step: Callable) -> None:
    def cell(input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None,
             b_hh: Any = None) -> Tensor | tuple[Tensor, Tensor]:
        h, c = hx if step is lstm_step else (hx, None)
        gates = NN["linear"](input, w_ih, b_ih), NN["linear"](h, w_hh, b_hh)
        new, memory = step(gates, h, c)
        return new if memory is None else (new, memory)

    FUNCTIONS[name] = named(cell, name, f"One step of a recurrent network: {step.__doc__}")


_cell("rnn_tanh_cell", rnn_step)
_cell("rnn_relu_cell", relu_step)
_cell("lstm_cell", lstm_step)
_cell("gru_cell", gru_step)


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

