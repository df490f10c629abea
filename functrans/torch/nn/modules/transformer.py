"""Attention with several heads, and stacks of it: ``TransformerEncoder`` and its kin."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from functrans.torch._functions.table import NN
from functrans.torch._tensors import factories
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.nn import init
from functrans.torch.nn._functions.sequences import multi_head_attention_forward
from functrans.torch.nn.modules.containers import ModuleList
from functrans.torch.nn.modules.layers import Dropout, Linear
from functrans.torch.nn.modules.module import Module
from functrans.torch.nn.modules.normalisation import LayerNorm
from functrans.torch.nn.parameter import Parameter

# ---- Attention with several heads, and the encoder layer of a transformer

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


# ---- Stacks of attention: ``TransformerEncoder``, ``TransformerDecoder`` and ``Transformer``

full: Callable = vars(factories)["full"]


class _Stack(Module):
    """Copies of a layer, one behind the other."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None = None):
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm

    def _through(self, x: Tensor, *more: Any) -> Tensor:
        for layer in self.layers:
            x = layer(x, *more)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """Copies of an encoder layer, one behind the other."""

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None,
                 enable_nested_tensor: bool = True, mask_check: bool = True):
        super().__init__(encoder_layer, num_layers, norm)

    def forward(self, src: Tensor, mask: Tensor | None = None,
                src_key_padding_mask: Tensor | None = None,
                is_causal: bool | None = None) -> Tensor:
        return self._through(src, mask, src_key_padding_mask)


class TransformerDecoderLayer(Residual):
    """Attention, attention to ``memory``, and a feed-forward net, each with a residual."""

    _attentions = ("self_attn", "multihead_attn")

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
                memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
                memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool = False,
                memory_is_causal: bool = False) -> Tensor:
        return self._through(
            tgt,
            lambda x: self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask)[0],
            lambda x: self.multihead_attn(x, memory, memory, memory_key_padding_mask, False,
                                          memory_mask)[0])


class TransformerDecoder(_Stack):
    """Copies of a decoder layer, one behind the other."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None):
        super().__init__(decoder_layer, num_layers, norm)

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
                memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
                memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool | None = None,
                memory_is_causal: bool = False) -> Tensor:
        return self._through(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
                             memory_key_padding_mask)


class Transformer(Module):
    """An encoder, whose result a decoder attends to: A. Vaswani et al. (2017)."""

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6,
                 num_decoder_layers: int = 6, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: str | Callable = "relu", custom_encoder: Module | None = None,
                 custom_decoder: Module | None = None, layer_norm_eps: float = 1e-5,
                 batch_first: bool = False, norm_first: bool = False, bias: bool = True,
                 device: Any = None, dtype: Any = None):
        super().__init__()
        options: Any = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps,
                        batch_first, norm_first, bias, device, dtype)
        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*options), num_encoder_layers,
            LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype))
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*options), num_decoder_layers,
            LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype))
        for p in self.parameters():
            if p.dim() > 1:
                init.xavier_uniform_(p)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None,
                tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
                src_key_padding_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None,
                memory_key_padding_mask: Tensor | None = None,
                src_is_causal: bool | None = None, tgt_is_causal: bool | None = None,
                memory_is_causal: bool = False) -> Tensor:
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        return self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
                            memory_key_padding_mask)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """0 for what an entry may attend to, itself and what is before it, else -inf."""
        return full((sz, sz), float("-inf"), device=device, dtype=dtype).triu(1)
