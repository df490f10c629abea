"""Layers with parameters: linear maps, convolutions, embeddings, normalisation.

Those without parameters are a table, a row each: what function of ``nn.functional`` they are, and
the names and defaults of its options.
"""

from __future__ import annotations

import math
from typing import Any

from functrans.torch._functions.table import FUNCTIONS, NN
from functrans.torch._tensors import factories
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.nn import init
from functrans.torch.nn._functions.convolutions import each
from functrans.torch.nn.modules.module import Module
from functrans.torch.nn.parameter import Parameter

_ABSENT: Any = object()
empty = vars(factories)["empty"]


def upsampling(mode: str, align_corners: bool | None) -> tuple[str, dict[str, Any]]:
    """The row of a layer that interpolates."""
    return ("interpolate", {"size": None, "scale_factor": None, "mode": mode,
                            "align_corners": align_corners})


# class -> function, and options by name with their defaults (... for those that must be there)
STATELESS: dict[str, tuple[str, dict[str, Any]]] = {
    "ReLU": ("relu", {"inplace": False}),
    "ReLU6": ("relu6", {"inplace": False}),
    "LeakyReLU": ("leaky_relu", {"negative_slope": 0.01, "inplace": False}),
    "ELU": ("elu", {"alpha": 1.0, "inplace": False}),
    "SELU": ("selu", {"inplace": False}),
    "CELU": ("celu", {"alpha": 1.0, "inplace": False}),
    "GELU": ("gelu", {"approximate": "none"}),
    "SiLU": ("silu", {"inplace": False}),
    "Mish": ("mish", {"inplace": False}),
    "Sigmoid": ("sigmoid", {}),
    "Tanh": ("tanh", {}),
    "Softplus": ("softplus", {"beta": 1.0, "threshold": 20.0}),
    "Softsign": ("softsign", {}),
    "Softshrink": ("softshrink", {"lambd": 0.5}),
    "Hardshrink": ("hardshrink", {"lambd": 0.5}),
    "Tanhshrink": ("tanhshrink", {}),
    "LogSigmoid": ("logsigmoid", {}),
    "Hardtanh": ("hardtanh", {"min_val": -1.0, "max_val": 1.0, "inplace": False}),
    "Hardsigmoid": ("hardsigmoid", {"inplace": False}),
    "Hardswish": ("hardswish", {"inplace": False}),
    "Threshold": ("threshold", {"threshold": ..., "value": ..., "inplace": False}),
    "GLU": ("glu", {"dim": -1}),
    "Softmax": ("softmax", {"dim": None}),
    "Softmin": ("softmin", {"dim": None}),
    "Softmax2d": ("softmax", {"dim": -3}),
    "LogSoftmax": ("log_softmax", {"dim": None}),
    "RReLU": ("rrelu", {"lower": 1 / 8, "upper": 1 / 3, "inplace": False}),
    "Dropout": ("dropout", {"p": 0.5, "inplace": False}),
    "Dropout1d": ("dropout1d", {"p": 0.5, "inplace": False}),
    "Dropout2d": ("dropout2d", {"p": 0.5, "inplace": False}),
    "Dropout3d": ("dropout3d", {"p": 0.5, "inplace": False}),
    "FeatureAlphaDropout": ("feature_alpha_dropout", {"p": 0.5, "inplace": False}),
    "AlphaDropout": ("alpha_dropout", {"p": 0.5, "inplace": False}),
    "PixelShuffle": ("pixel_shuffle", {"upscale_factor": ...}),
    "ChannelShuffle": ("channel_shuffle", {"groups": ...}),
    "PixelUnshuffle": ("pixel_unshuffle", {"downscale_factor": ...}),
    "Unfold": ("unfold", {"kernel_size": ..., "dilation": 1, "padding": 0, "stride": 1}),
    "Fold": ("fold", {"output_size": ..., "kernel_size": ..., "dilation": 1, "padding": 0,
                      "stride": 1}),
    "CosineSimilarity": ("cosine_similarity", {"dim": 1, "eps": 1e-8}),
    "PairwiseDistance": ("pairwise_distance", {"p": 2.0, "eps": 1e-6, "keepdim": False}),
    "LocalResponseNorm": ("local_response_norm",
                          {"size": ..., "alpha": 1e-4, "beta": 0.75, "k": 1.0}),
    "Upsample": upsampling("nearest", None),
    "MSELoss": ("mse_loss", {"reduction": "mean"}),
    "L1Loss": ("l1_loss", {"reduction": "mean"}),
    "SmoothL1Loss": ("smooth_l1_loss", {"reduction": "mean", "beta": 1.0}),
    "HuberLoss": ("huber_loss", {"reduction": "mean", "delta": 1.0}),
    "NLLLoss": ("nll_loss", {"weight": None, "ignore_index": -100, "reduction": "mean"}),
    "CrossEntropyLoss": ("cross_entropy", {"weight": None, "ignore_index": -100,
                                           "reduction": "mean", "label_smoothing": 0.0}),
    "BCELoss": ("binary_cross_entropy", {"weight": None, "reduction": "mean"}),
    "BCEWithLogitsLoss": ("binary_cross_entropy_with_logits",
                          {"weight": None, "reduction": "mean", "pos_weight": None}),
    "KLDivLoss": ("kl_div", {"reduction": "mean", "log_target": False}),
    "CTCLoss": ("ctc_loss", {"blank": 0, "reduction": "mean", "zero_infinity": False}),
    "PoissonNLLLoss": ("poisson_nll_loss", {"log_input": True, "full": False, "eps": 1e-8,
                                            "reduction": "mean"}),
    "GaussianNLLLoss": ("gaussian_nll_loss", {"full": False, "eps": 1e-6, "reduction": "mean"}),
    "MarginRankingLoss": ("margin_ranking_loss", {"margin": 0.0, "reduction": "mean"}),
    "HingeEmbeddingLoss": ("hinge_embedding_loss", {"margin": 1.0, "reduction": "mean"}),
    "SoftMarginLoss": ("soft_margin_loss", {"reduction": "mean"}),
    "CosineEmbeddingLoss": ("cosine_embedding_loss", {"margin": 0.0, "reduction": "mean"}),
    "TripletMarginLoss": ("triplet_margin_loss", {"margin": 1.0, "p": 2.0, "eps": 1e-6,
                                                  "swap": False, "reduction": "mean"}),
    "TripletMarginWithDistanceLoss": (
        "triplet_margin_with_distance_loss",
        {"distance_function": None, "margin": 1.0, "swap": False, "reduction": "mean"}),
    "MultiMarginLoss": ("multi_margin_loss", {"p": 1, "margin": 1.0, "weight": None,
                                              "reduction": "mean"}),
    "MultiLabelMarginLoss": ("multilabel_margin_loss", {"reduction": "mean"}),
    "MultiLabelSoftMarginLoss": ("multilabel_soft_margin_loss",
                                 {"weight": None, "reduction": "mean"}),
}
for _n in (1, 2, 3):
    _pool = {"kernel_size": ..., "stride": None, "padding": 0}
    STATELESS |= {
        f"MaxPool{_n}d": (f"max_pool{_n}d", {**_pool, "dilation": 1, "return_indices": False,
                                             "ceil_mode": False}),
        f"AvgPool{_n}d": (f"avg_pool{_n}d", {**_pool, "ceil_mode": False,
                                             "count_include_pad": True}),
        f"LPPool{_n}d": (f"lp_pool{_n}d", {"norm_type": ..., "kernel_size": ..., "stride": None,
                                           "ceil_mode": False}),
        f"AdaptiveAvgPool{_n}d": (f"adaptive_avg_pool{_n}d", {"output_size": ...}),
        f"AdaptiveMaxPool{_n}d": (f"adaptive_max_pool{_n}d", {"output_size": ...,
                                                              "return_indices": False}),
        f"MaxUnpool{_n}d": (f"max_unpool{_n}d", _pool),
    }
for _n in (2, 3):
    STATELESS[f"FractionalMaxPool{_n}d"] = (
        f"fractional_max_pool{_n}d", {"kernel_size": ..., "output_size": None, "output_ratio": None,
                                      "return_indices": False, "_random_samples": None})
# options that torch takes in their place in the order, and that stand for ``reduction``
_OLD = ("size_average", "reduce")
# functions that are told of ``training``
_TRAINED = frozenset({name for name, _ in STATELESS.values() if "dropout" in name} | {"rrelu"})
# what is not shown: options, and layers that show none
_HIDDEN = frozenset({"return_indices", "count_include_pad", "_random_samples"})
_UNSHOWN = frozenset({"CosineSimilarity", "PairwiseDistance", "Softmax2d"})


def _as_float(x: Any) -> float | tuple[float, ...]:
    return tuple(map(float, x)) if isinstance(x, tuple | list) else float(x)


class Stateless(Module):
    """A layer without parameters: a function of ``nn.functional`` with its options."""

    _row: tuple[str, dict[str, Any]]

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()
        defaults = self._row[1]
        names = list(defaults)
        if len(args) > len(names):
            raise TypeError(f"{self._get_name()}: at most {len(names)} arguments are positional, "
                            f"but {len(args)} were passed")
        options = dict(zip(names, args, strict=False)) | kwargs
        old = [options.pop(name, None) for name in _OLD]
        if unknown := set(options) - set(names):
            raise TypeError(f"{self._get_name()} got an unexpected keyword argument "
                            f"'{min(unknown)}'")
        for name, default in defaults.items():
            if default is ... and name not in options:
                raise TypeError(f"{self._get_name()} missing required argument: '{name}'")
            value = options.get(name, default)
            if isinstance(value, Tensor):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)
        if old[1] is False:
            self.reduction = "none"
        elif old != [None, None]:
            self.reduction = "sum" if old[0] is False else "mean"

    def forward(self, *inputs: Tensor) -> Any:
        name, defaults = self._row
        options = {k: getattr(self, k) for k in defaults}
        if name in _TRAINED:
            options["training"] = self.training
        return NN[name](*inputs, **options)

    def extra_repr(self) -> str:
        name = self._get_name()
        if name.endswith("Loss") or name in _UNSHOWN:
            return ""
        shown = {k: getattr(self, k) for k in self._row[1] if k not in _HIDDEN}
        if "Dropout" not in name and not shown.get("inplace"):
            shown.pop("inplace", None)
        if "AvgPool" in name:
            shown.pop("ceil_mode", None)
        if "stride" in shown and shown["stride"] is None:
            shown["stride"] = shown["kernel_size"]
        if name == "Upsample":
            size, factor = shown["size"], shown["scale_factor"]
            first = f"size={size}" if factor is None else f"scale_factor={_as_float(factor)}"
            return f"{first}, mode={shown['mode']!r}"
        parts = [f"{k}={v!r}" for k, v in shown.items()]
        if name == "LocalResponseNorm":
            parts[0] = repr(shown["size"])
        return ", ".join(parts)


class Dropout(Stateless):
    """``nn.functional.dropout`` as a module."""

    _row = STATELESS["Dropout"]


class Weighed(Module):
    """Base of layers with a weight and perhaps a bias."""

    bias: Parameter | None

    def _take(self, shape: tuple[int, ...], bias: int | None, device: Any, dtype: Any) -> None:
        """Make the parameters: ``shape`` is that of the weight, ``bias`` the size of the bias."""
        self.weight = Parameter(empty(shape, dtype=dtype, device=device))
        self.register_parameter("bias", None if bias is None else
                                Parameter(empty(bias, dtype=dtype, device=device)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters again."""
        init.kaiming_uniform_(self.weight, math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(max(math.prod(self.weight.shape[1:]), 1))
            init.uniform_(self.bias, -bound, bound)


class Linear(Weighed):
    """x @ weight.T + bias."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None,
                 dtype: Any = None):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self._take((out_features, in_features), out_features if bias else None, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return NN["linear"](input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (f"in_features={self.in_features}, out_features={self.out_features}, "
                f"bias={self.bias is not None}")


class Bilinear(Weighed):
    """x1^T W x2 + bias, for each W of ``weight``."""

    def __init__(self, in1_features: int, in2_features: int, out_features: int,
                 bias: bool = True, device: Any = None, dtype: Any = None):
        super().__init__()
        self._take((out_features, in1_features, in2_features), out_features if bias else None,
                   device, dtype)

    def reset_parameters(self) -> None:
        """Draw the parameters again."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return NN["bilinear"](input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        out, one, two = self.weight.shape
        return (f"in1_features={one}, in2_features={two}, out_features={out}, "
                f"bias={self.bias is not None}")


class PReLU(Module):
    """x where positive, else times a slope that is learnt."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None,
                 dtype: Any = None):
        super().__init__()
        self.num_parameters = num_parameters
        self.weight = Parameter(factories.full((num_parameters,), init, dtype=dtype,
                                               device=device))

    def forward(self, input: Tensor) -> Tensor:
        return NN["prelu"](input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class Embedding(Module):
    """Rows of a table that is learnt."""

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
                 max_norm: float | None = None, norm_type: float = 2.0,
                 scale_grad_by_freq: bool = False, sparse: bool = False,
                 _weight: Tensor | None = None, device: Any = None, dtype: Any = None):
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx, self.max_norm = padding_idx, max_norm
        self.options = max_norm, norm_type, scale_grad_by_freq
        self.weight = Parameter(empty(num_embeddings, embedding_dim, dtype=dtype, device=device)
                                if _weight is None else _weight)
        if _weight is None:
            init.normal_(self.weight)
            if padding_idx is not None:
                init.zeros_(self.weight.data[padding_idx])

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True,
                        padding_idx: int | None = None, **options: Any) -> Embedding:
        """A table of the rows in ``embeddings``."""
        made = cls(*embeddings.shape, padding_idx=padding_idx, _weight=embeddings, **options)
        made.weight.requires_grad_(not freeze)
        return made

    def forward(self, input: Tensor) -> Tensor:
        return NN["embedding"](input, self.weight, self.padding_idx, *self.options)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        norm = "" if self.max_norm is None else f", max_norm={self.max_norm}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}{norm}"


class EmbeddingBag(Module):
    """Sums, means or maxima of rows of a table that is learnt."""

    def __init__(self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None,
                 norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean",
                 sparse: bool = False, _weight: Tensor | None = None,
                 include_last_offset: bool = False, padding_idx: int | None = None,
                 device: Any = None, dtype: Any = None):
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.mode, self.padding_idx, self.last = mode, padding_idx, include_last_offset
        self.options = max_norm, norm_type, scale_grad_by_freq
        self.weight = Parameter(empty(num_embeddings, embedding_dim, dtype=dtype, device=device)
                                if _weight is None else _weight)
        if _weight is None:
            init.normal_(self.weight)

    def forward(self, input: Tensor, offsets: Tensor | None = None,
                per_sample_weights: Tensor | None = None) -> Tensor:
        return NN["embedding_bag"](
            input, self.weight, offsets, *self.options, self.mode,
            per_sample_weights=per_sample_weights, include_last_offset=self.last,
            padding_idx=self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode!r}{padding}"


class Convolution(Weighed):
    """``conv1d`` to ``conv3d`` and their transposes, with kernels that are learnt."""

    _n, _transposed = 2, False
    output_padding: tuple[int, ...] = ()

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
                 padding: Any = 0, dilation: Any = 1, groups: int = 1, bias: bool = True,
                 padding_mode: str = "zeros", device: Any = None, dtype: Any = None):
        super().__init__()
        for name, count in (("in_channels", in_channels), ("out_channels", out_channels)):
            if count % groups:
                raise ValueError(f"{name} must be divisible by groups")
        n = self._n
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = each(kernel_size, n), each(stride, n)
        self.padding = padding if isinstance(padding, str) else each(padding, n)
        self.dilation, self.padding_mode = each(dilation, n), padding_mode
        ends = (in_channels, out_channels) if self._transposed else (out_channels, in_channels)
        self._take((ends[0], ends[1] // groups, *self.kernel_size),
                   out_channels if bias else None, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            pads = [p for p in reversed(padding) for _ in range(2)]
            input, padding = NN["pad"](input, pads, self.padding_mode), 0
        return FUNCTIONS[f"conv{self._n}d"](input, self.weight, self.bias, self.stride, padding,
                                            self.dilation, self.groups)

    def extra_repr(self) -> str:
        text = (f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
                f"stride={self.stride}")
        if isinstance(self.padding, str) or any(self.padding):
            text += f", padding={self.padding}"
        if any(d != 1 for d in self.dilation):
            text += f", dilation={self.dilation}"
        if any(self.output_padding):
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode}"


class ConvolutionTranspose(Convolution):
    """``conv_transpose1d`` to ``conv_transpose3d``, with kernels that are learnt."""

    _transposed = True

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
                 padding: Any = 0, output_padding: Any = 0, groups: int = 1, bias: bool = True,
                 dilation: Any = 1, padding_mode: str = "zeros", device: Any = None,
                 dtype: Any = None):
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups,
                         bias, padding_mode, device, dtype)
        self.output_padding = each(output_padding, self._n)

    def forward(self, input: Tensor) -> Tensor:
        return FUNCTIONS[f"conv_transpose{self._n}d"](
            input, self.weight, self.bias, self.stride, self.padding, self.output_padding,
            self.groups, self.dilation)


class Flatten(Module):
    """The dimensions from ``start_dim`` to ``end_dim`` as one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """One dimension as several."""

    def __init__(self, dim: int, unflattened_size: Any):
        super().__init__()
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Padding(Module):
    """``pad`` in one mode."""

    _n, _mode = 2, "constant"

    def __init__(self, padding: Any, value: float = 0.0):
        super().__init__()
        self.padding = (padding,) * (2 * self._n) if isinstance(padding, int) else tuple(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        value = self.value if self._mode == "constant" else None
        return NN["pad"](input, self.padding, self._mode, value)

    def extra_repr(self) -> str:
        return repr(self.padding)
