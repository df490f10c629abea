"""Attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.torch._functions.shares import softmax
from functrans.torch._functions.table import NN, op
from functrans.torch._tensors.tensor import Tensor


@op(method=False, title="ScaledDotProductAttentionBackward0")
def _weights(query, key, mask, causal, scale):
    """softmax(q k^T scale + mask) for each head; rows that are masked throughout are 0."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = np.matmul(query * scale, np.swapaxes(key, -1, -2))
    if causal:
        mask = np.tri(*scores.shape[-2:], dtype=bool)
    if mask is None:
        return softmax.body(scores, -1)
    if mask.dtype.kind == "b":
        scores = np.where(mask, scores, -np.inf)
        seen = np.broadcast_to(mask.any(-1, keepdims=True), (*scores.shape[:-1], 1))
        return np.where(seen, softmax.body(np.where(seen, scores, 0), -1), 0)
    return softmax.body(scores + mask, -1)


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query key^T / sqrt(d) + mask) value; a mask of booleans says what is seen."""
    if is_causal and attn_mask is not None:
        raise RuntimeError("scaled_dot_product_attention: Explicit attn_mask should not be set "
                           "when is_causal=True")
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = [x.repeat_interleave(times, -3) for x in (key, value)]
    weights = _weights(query, key, attn_mask, is_causal, scale)
    if dropout_p:
        weights = NN["dropout"](weights, dropout_p)
    return weights @ value


def multi_head_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, num_heads: int, weights: Any, biases: Any,
    output: Callable[[Tensor], Tensor], dropout_p: float = 0.0, mask: Tensor | None = None,
    padding: Tensor | None = None, average: bool = True,
) -> tuple[Tensor, Tensor]:
    """Several heads on (batch, sequence, features): the output, and the weights of the heads."""
    heads = []
    for x, w, b in zip((query, key, value), weights, biases, strict=True):
        y = NN["linear"](x, w, b)
        heads.append(y.reshape(*y.shape[:2], num_heads, -1).transpose(1, 2))
    q, k, v = heads
    if padding is not None:
        hidden = padding[:, None, None, :]
        if padding.dtype.name == "bool":
            seen = ~hidden
            mask = seen if mask is None else _joined(mask, seen)
        else:
            mask = hidden if mask is None else mask + hidden
    attention = _weights(q, k, mask, False, None)
    if dropout_p:
        attention = NN["dropout"](attention, dropout_p)
    y = (attention @ v).transpose(1, 2)
    return output(y.reshape(*y.shape[:2], -1)), attention.mean(1) if average else attention


def _joined(mask: Tensor, seen: Tensor) -> Tensor:
    if mask.dtype.name == "bool":
        return mask & seen
    return mask.masked_fill(~seen, -math.inf)


NN["scaled_dot_product_attention"] = scaled_dot_product_attention
