"""Stacks of attention: ``TransformerEncoder``, ``TransformerDecoder`` and ``Transformer``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from functrans.torch._tensors import factories
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.nn import init
from functrans.torch.nn.modules.attention import Residual, TransformerEncoderLayer
from functrans.torch.nn.modules.containers import ModuleList
from functrans.torch.nn.modules.module import Module
from functrans.torch.nn.modules.normalisation import LayerNorm

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
