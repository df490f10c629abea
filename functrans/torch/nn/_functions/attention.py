"""Attention."""

from __future__ import annotations

import math

import numpy as np

from functrans.torch._functions.shares import softmax
from functrans.torch._functions.table import FUNCTIONS, NN, op, plain
from functrans.torch._tensors.tensor import Tensor


@op(method=False, title="ScaledDotProductAttentionBackward0")
def _weights(query, key, mask, causal, scale, safe=True):
    """softmax(q k^T scale + mask) for each head; where ``safe``, rows that are masked throughout
    are 0."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = np.matmul(query * scale, np.swapaxes(key, -1, -2))
    if causal:
        mask = np.tri(*scores.shape[-2:], dtype=bool)
    if mask is None:
        return softmax.body(scores, -1)
    some = mask if mask.dtype.kind == "b" else plain(mask) != -np.inf
    scores = np.where(mask, scores, -np.inf) if some is mask else scores + mask
    if not safe or (type(some) is np.ndarray and some.any(-1).all()):
        return softmax.body(scores, -1)
    seen = np.broadcast_to(some.any(-1, keepdims=True), (*scores.shape[:-1], 1))
    return np.where(seen, softmax.body(np.where(seen, scores, 0), -1), 0)


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
    dtype = query.dtype
    half = dtype.itemsize == 2 and dtype.is_floating_point
    if half:  # computed in single precision, rounded once
        query, key, value = [x.float() for x in (query, key, value)]
        attn_mask = attn_mask.float() if attn_mask is not None and (
            attn_mask.is_floating_point()) else attn_mask
    weights = _weights(query, key, attn_mask, is_causal, scale)
    if dropout_p:
        weights = NN["dropout"](weights, dropout_p)
    return (weights @ value).to(dtype) if half else weights @ value


def multi_head_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int,
    in_proj_weight: Tensor | None, in_proj_bias: Tensor | None, bias_k: Tensor | None,
    bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float, out_proj_weight: Tensor,
    out_proj_bias: Tensor | None, training: bool = True, key_padding_mask: Tensor | None = None,
    need_weights: bool = True, attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False, q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None, v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None, static_v: Tensor | None = None,
    average_attn_weights: bool = True, is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Several heads on (sequence, batch, features), between linear maps: the output, and the
    weights of keys, (batch, queries, keys), for each head unless they are averaged.

    Masks of booleans say what is hidden. Without the batch all shapes have one axis less.
    """
    single = query.dim() == 2
    if single:
        query, key, value = [x.unsqueeze(1) for x in (query, key, value)]
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, width = query.shape
    if width != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, "
                             f"but got {width}")
    if width % num_heads:
        raise AssertionError(f"embed_dim {width} not divisible by num_heads {num_heads}")
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    weights = ((q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight
               else in_proj_weight.chunk(3))  # type: ignore[union-attr]  # one of both is given
    biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
    q, k, v = [NN["linear"](x, w, b)
               for x, w, b in zip((query, key, value), weights, biases, strict=True)]
    given = len(key)
    if bias_k is not None and bias_v is not None:
        k, v = [FUNCTIONS["cat"]((x, b.expand(1, batch, width)))
                for x, b in ((k, bias_k), (v, bias_v))]
    q, k, v = [x.reshape(len(x), batch, num_heads, -1).permute(1, 2, 0, 3) for x in (q, k, v)]
    if static_k is not None:
        k, given = static_k.reshape(batch, num_heads, *static_k.shape[1:]), static_k.shape[1]
    if static_v is not None:
        v = static_v.reshape(batch, num_heads, *static_v.shape[1:])
    if add_zero_attn:
        k, v = [NN["pad"](x, (0, 0, 0, 1)) for x in (k, v)]
    mask = _hiding(attn_mask, key_padding_mask, q, k, given)
    attention = _weights(q, k, mask, False, None, not need_weights)
    if dropout_p and training:
        attention = NN["dropout"](attention, dropout_p)
    y = (attention @ v).permute(2, 0, 1, 3).reshape(length, batch, width)
    y = NN["linear"](y, out_proj_weight, out_proj_bias)
    if average_attn_weights:
        attention = attention.mean(1)
    if single:
        y, attention = y.squeeze(1), attention.squeeze(0)
    return y, attention if need_weights else None


def _hiding(mask: Tensor | None, padding: Tensor | None, q: Tensor, k: Tensor,
            given: int) -> Tensor | None:
    """What is added to the scores (batch, heads, queries, keys); keys after the ``given`` ones
    were appended and are seen by all."""
    batch, heads, queries, keys = *q.shape[:3], k.shape[2]
    if mask is not None:
        if mask.dim() not in (2, 3):
            raise RuntimeError(f"attn_mask's dimension {mask.dim()} is not supported")
        lead: tuple = () if mask.dim() == 2 else (batch * heads,)
        if mask.shape != (*lead, queries, given):
            raise RuntimeError(f"The shape of the {mask.dim()}D attn_mask is {mask.shape}, but "
                               f"should be {(*lead, queries, given)}.")
        mask = NN["pad"](_added(mask, q), (0, keys - given)).reshape(
            *((batch, heads) if lead else (1, 1)), queries, keys)
    if padding is not None:
        padding = NN["pad"](_added(padding, q), (0, keys - given))[:, None, None, :]
        mask = padding if mask is None else mask + padding
    return mask


def _added(mask: Tensor, like: Tensor) -> Tensor:
    """Minus infinity where a mask of booleans hides; another mask as it is."""
    if mask.dtype.name != "bool":
        return mask
    return like.new_zeros(mask.shape).masked_fill(mask, -math.inf)


NN["scaled_dot_product_attention"] = scaled_dot_product_attention
NN["multi_head_attention_forward"] = multi_head_attention_forward
