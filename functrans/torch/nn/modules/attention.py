"""Attention with several heads, and the encoder layer of a transformer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from functrans.torch._functions.table import NN
from functrans.torch._tensors import factories
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.nn import init
from functrans.torch.nn._functions.attention import multi_head_attention_forward
from functrans.torch.nn.modules.layers import Linear
from functrans.torch.nn.modules.module import Module
from functrans.torch.nn.modules.normalisation import LayerNorm
from functrans.torch.nn.parameter import Parameter

empty = vars(factories)["empty"]


class MultiheadAttention(Module):
    """softmax(q k^T / sqrt(d)) v for several heads, between linear maps."""

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
                 add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
                 vdim: int | None = None, batch_first: bool = False, device: Any = None,
                 dtype: Any = None):
        super().__init__()
        if embed_dim % num_heads:
            raise AssertionError("embed_dim must be divisible by num_heads")
        if add_bias_kv or add_zero_attn or (kdim or embed_dim) != embed_dim or (
                vdim or embed_dim) != embed_dim:
            raise NotImplementedError("MultiheadAttention: add_bias_kv, add_zero_attn, kdim and "
                                      "vdim are not supported")
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.batch_first = batch_first
        self.in_proj_weight = Parameter(empty(3 * embed_dim, embed_dim, dtype=dtype))
        self.register_parameter("in_proj_bias", Parameter(empty(3 * embed_dim, dtype=dtype))
                                if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype=dtype)
        init.xavier_uniform_(self.in_proj_weight)
        if bias:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)  # type: ignore[arg-type]  # it is there

    def forward(self, query: Tensor, key: Tensor, value: Tensor,
                key_padding_mask: Tensor | None = None, need_weights: bool = True,
                attn_mask: Tensor | None = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
        single = query.dim() == 2
        q, k, v = [x.unsqueeze(0) if single else x if self.batch_first else x.transpose(0, 1)
                   for x in (query, key, value)]
        if attn_mask is not None and attn_mask.dtype.name == "bool":
            attn_mask = ~attn_mask  # there True is hidden
        if attn_mask is not None and attn_mask.dim() == 3:
            attn_mask = attn_mask.reshape(-1, self.num_heads, *attn_mask.shape[1:])
        if key_padding_mask is not None and single:
            key_padding_mask = key_padding_mask.unsqueeze(0)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        y, weights = multi_head_attention_forward(
            q, k, v, self.num_heads, self.in_proj_weight.chunk(3), biases, self.out_proj,
            self.dropout if self.training else 0.0, attn_mask, key_padding_mask,
            average_attn_weights)
        if single:
            y, weights = y.squeeze(0), weights.squeeze(0)
        elif not self.batch_first:
            y = y.transpose(0, 1)
        return y, weights if need_weights else None


class TransformerEncoderLayer(Module):
    """Attention and a feed-forward net, each with a residual connection and normalisation."""

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048,
                 dropout: float = 0.1, activation: str | Callable = "relu",
                 layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True, device: Any = None,
                 dtype: Any = None):
        super().__init__()
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first,
                                            dtype=dtype)
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype=dtype)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype=dtype)
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
        self.dropout, self.norm_first = dropout, norm_first
        self.activation = NN[activation] if isinstance(activation, str) else activation

    def _drop(self, x: Tensor) -> Tensor:
        return NN["dropout"](x, self.dropout, self.training)

    def _attend(self, x: Tensor, mask: Any, padding: Any) -> Tensor:
        y, _ = self.self_attn(x, x, x, padding, False, mask)
        return self._drop(y)

    def _feed(self, x: Tensor) -> Tensor:
        return self._drop(self.linear2(self._drop(self.activation(self.linear1(x)))))

    def forward(self, src: Tensor, src_mask: Tensor | None = None,
                src_key_padding_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        x, masks = src, (src_mask, src_key_padding_mask)
        if self.norm_first:
            x = x + self._attend(self.norm1(x), *masks)
            return x + self._feed(self.norm2(x))
        x = self.norm1(x + self._attend(x, *masks))
        return self.norm2(x + self._feed(x))
