"""Attention with several heads, and the encoder layer of a transformer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from functrans.torch._functions.table import NN
from functrans.torch._tensors import factories
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.nn import init
from functrans.torch.nn._functions.attention import multi_head_attention_forward
from functrans.torch.nn.modules.layers import Dropout, Linear
from functrans.torch.nn.modules.module import Module
from functrans.torch.nn.modules.normalisation import LayerNorm
from functrans.torch.nn.parameter import Parameter

empty, zeros = vars(factories)["empty"], vars(factories)["zeros"]


class NonDynamicallyQuantizableLinear(Linear):
    """A linear map, by the name it has in torch's attention."""


class MultiheadAttention(Module):
    """softmax(q k^T / sqrt(d)) v for several heads, between linear maps."""

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
                 add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
                 vdim: int | None = None, batch_first: bool = False, device: Any = None,
                 dtype: Any = None):
        super().__init__()
        if embed_dim % num_heads:
            raise AssertionError("embed_dim must be divisible by num_heads")
        made: Any = {"device": device, "dtype": dtype}
        kdim, vdim = kdim or embed_dim, vdim or embed_dim
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.batch_first, self.add_zero_attn = batch_first, add_zero_attn
        self.kdim, self.vdim = kdim, vdim
        together = kdim == vdim == embed_dim
        shapes = {"in_proj_weight": (3 * embed_dim, embed_dim) if together else None,
                  "q_proj_weight": None if together else (embed_dim, embed_dim),
                  "k_proj_weight": None if together else (embed_dim, kdim),
                  "v_proj_weight": None if together else (embed_dim, vdim)}
        for name, shape in shapes.items():
            self.register_parameter(name, shape and Parameter(empty(shape, **made)))
            if shape:
                init.xavier_uniform_(getattr(self, name))
        self.register_parameter("in_proj_bias", Parameter(zeros(3 * embed_dim, **made))
                                if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias, **made)
        if bias:
            init.zeros_(self.out_proj.bias)  # type: ignore[arg-type]  # it is there
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, Parameter(empty(1, 1, embed_dim, **made))
                                    if add_bias_kv else None)
            if add_bias_kv:
                init.xavier_normal_(getattr(self, name))

    def forward(self, query: Tensor, key: Tensor, value: Tensor,
                key_padding_mask: Tensor | None = None, need_weights: bool = True,
                attn_mask: Tensor | None = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
        turned = self.batch_first and query.dim() == 3
        if turned:
            query, key, value = [x.transpose(0, 1) for x in (query, key, value)]
        y, weights = multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight,
            self.in_proj_bias, self.bias_k, self.bias_v, self.add_zero_attn, self.dropout,
            self.out_proj.weight, self.out_proj.bias, self.training, key_padding_mask,
            need_weights, attn_mask, self.in_proj_weight is None, self.q_proj_weight,
            self.k_proj_weight, self.v_proj_weight, None, None, average_attn_weights, is_causal)
        return y.transpose(0, 1) if turned else y, weights


class Residual(Module):
    """Attentions and a feed-forward net, each with a residual connection and normalisation."""

    _attentions = ("self_attn",)

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048,
                 dropout: float = 0.1, activation: str | Callable = "relu",
                 layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True, device: Any = None,
                 dtype: Any = None):
        super().__init__()
        made: Any = {"device": device, "dtype": dtype}
        for name in self._attentions:
            self.add_module(name, MultiheadAttention(d_model, nhead, dropout, bias,
                                                     batch_first=batch_first, **made))
        self.linear1 = Linear(d_model, dim_feedforward, bias, **made)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **made)
        parts = range(1, len(self._attentions) + 2)
        for i in parts:
            self.add_module(f"norm{i}", LayerNorm(d_model, layer_norm_eps, bias=bias, **made))
        for i in parts:
            self.add_module(f"dropout{i}", Dropout(dropout))
        self.norm_first = norm_first
        self.activation = NN[activation] if isinstance(activation, str) else activation

    def _feed(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))

    def _through(self, x: Tensor, *parts: Callable[[Tensor], Tensor]) -> Tensor:
        """``x`` and what each of the parts, then the feed-forward net, makes of it."""
        for i, part in enumerate((*parts, self._feed), 1):
            norm, drop = getattr(self, f"norm{i}"), getattr(self, f"dropout{i}")
            x = x + drop(part(norm(x))) if self.norm_first else norm(x + drop(part(x)))
        return x


class TransformerEncoderLayer(Residual):
    """Attention and a feed-forward net, each with a residual connection and normalisation."""

    def forward(self, src: Tensor, src_mask: Tensor | None = None,
                src_key_padding_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        return self._through(src, lambda x: self.self_attn(
            x, x, x, src_key_padding_mask, False, src_mask)[0])
