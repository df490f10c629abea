"""Sequences: attention, lengths that differ, and ``ctc_loss`` over all alignments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans.torch._functions.calculus import softmax
from functrans.torch._functions.failures import WrongValue
from functrans.torch._functions.table import FUNCTIONS, METHODS, NN, op, plain
from functrans.torch._tensors.tensor import Tensor, from_array

# ---- ``ctc_loss``: how probable a sequence of labels is, over all its alignments with an input

# stands for the logarithm of zero: finite, so that no infinity is subtracted from another
_NEVER = -1e30


@op(method=False, title="CtcLossBackward0")
def _negative_log_likelihood(log_probs, labels, lengths, counts, blank):
    """For each example -log p(labels), by the forward recursion over labels with blanks between."""
    steps, n, _ = log_probs.shape
    extended = np.full((n, 2 * labels.shape[1] + 1), blank)
    extended[:, 1::2] = labels
    skips = np.zeros(extended.shape, bool)
    skips[:, 2:] = (extended[:, 2:] != blank) & (extended[:, 2:] != extended[:, :-2])
    rows = np.arange(n)
    emitted = log_probs[:, rows[:, None], extended]
    places = np.arange(extended.shape[1])
    alpha = np.where(places < 2, emitted[0], _NEVER) if steps else np.full(extended.shape, _NEVER)
    nothing = np.full((n, 2), _NEVER, log_probs.dtype)
    for t in range(1, steps):
        before = np.concatenate([nothing, alpha], 1)
        step = np.logaddexp(alpha, before[:, 1:-1])
        step = np.logaddexp(step, np.where(skips, before[:, :-2], _NEVER)) + emitted[t]
        alpha = np.where((t < lengths)[:, None], step, alpha)
    last = alpha[rows, 2 * counts]
    with_label = alpha[rows, np.maximum(2 * counts - 1, 0)]
    total = np.where(counts > 0, np.logaddexp(last, with_label), last)
    empty = np.where(counts > 0, _NEVER, 0.0).astype(log_probs.dtype)
    total = np.where(lengths > 0, total, empty)
    return np.where(total > _NEVER / 2, -total, np.inf)


def _labels(targets: Any, counts: np.ndarray, n: int) -> np.ndarray:
    """The labels of each example in a row, also where ``targets`` has them one after the other."""
    array = targets._array
    if array.ndim == 2:
        if array.shape[0] != n:
            raise RuntimeError(
                f"Expected tensor to have size {n} at dimension 0, but got size {array.shape[0]} "
                "for argument #2 'targets' (while checking arguments for ctc_loss_allocate_outputs)"
            )
        return array[:, :counts.max(initial=0)]
    if len(array) != counts.sum():
        raise RuntimeError(
            f"ctc_loss: targets has {len(array)} labels, but target_lengths add up to "
            f"{counts.sum()}"
        )
    rows = np.zeros((n, counts.max(initial=0)), array.dtype)
    starts = np.cumsum([0, *counts])
    for row, start, count in zip(rows, starts, counts, strict=False):
        row[:count] = array[start:start + count]
    return rows


def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any,
             blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> Tensor:
    """-log of the probability of ``targets`` over all alignments, as in Graves et al., 2006.

    ``log_probs``: logarithms of probabilities, of shape (time, batch, classes). The derivative is
    that of this function; PyTorch's adds a term that vanishes behind ``log_softmax``.
    """
    single = log_probs.ndim == 2
    x = log_probs.unsqueeze(1) if single else log_probs
    steps, n, classes = x.shape
    lengths, counts = [
        np.asarray(v._array if isinstance(v, Tensor) else v).reshape(-1).astype(int)
        for v in (input_lengths, target_lengths)
    ]
    if len(lengths) != n:
        raise RuntimeError("input_lengths must be of size batch_size")
    if len(counts) != n:
        raise RuntimeError("target_lengths must be of size batch_size")
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    if lengths.max(initial=0) > steps:
        raise RuntimeError(
            f"Expected input_lengths to have value at most {steps}, but got value {lengths.max()}"
            " (while checking arguments for ctc_loss_allocate_outputs)"
        )
    labels = _labels(targets.unsqueeze(0) if single else targets, counts, n)
    losses = _negative_log_likelihood(x, labels, lengths, counts, blank)
    if zero_infinity:
        losses = losses.where(losses < float("inf"), losses.new_zeros(()))
    if reduction == "mean":
        losses = losses / from_array(np.maximum(counts, 1).astype(losses._array.dtype))
    if single and reduction == "none":
        return losses[0]
    if reduction not in ("none", "mean", "sum"):
        raise WrongValue(f"ctc_loss: {reduction} is not a valid value for reduction")
    return losses if reduction == "none" else METHODS[reduction](losses)


NN["ctc_loss"] = ctc_loss


# ---- Attention


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
        mask = NN["pad"](_add(mask, q), (0, keys - given)).reshape(
            *((batch, heads) if lead else (1, 1)), queries, keys)
    if padding is not None:
        padding = NN["pad"](_add(padding, q), (0, keys - given))[:, None, None, :]
        mask = padding if mask is None else mask + padding
    return mask


def _add(mask: Tensor, like: Tensor) -> Tensor:
    """Minus infinity where a mask of booleans hides; another mask as it is."""
    if mask.dtype.name != "bool":
        return mask
    return like.new_zeros(mask.shape).masked_fill(mask, -math.inf)


NN["scaled_dot_product_attention"] = scaled_dot_product_attention
NN["multi_head_attention_forward"] = multi_head_attention_forward


# ---- Sequences of different lengths in one tensor, padded or packed


class PackedSequence(NamedTuple):
    """Sequences of different lengths, the longest first: the entries of all at each time."""

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """The time and the sequence of each entry."""
        sizes = self.batch_sizes._array
        times = np.repeat(np.arange(len(sizes)), sizes)
        return times, np.concatenate([np.arange(n) for n in sizes])

    def lengths(self) -> np.ndarray:
        """The length of each sequence."""
        return (self.batch_sizes._array[:, None] > np.arange(self.batch_sizes._array[0])).sum(0)


def _inverse(order: np.ndarray) -> np.ndarray:
    out = np.empty_like(order)
    out[order] = np.arange(len(order))
    return out


def pack_padded_sequence(input: Tensor, lengths: Any, batch_first: bool = False,
                         enforce_sorted: bool = True) -> PackedSequence:
    """The sequences that stand padded beside each other, packed."""
    x = input.transpose(0, 1) if batch_first else input
    n = np.asarray([int(v) for v in lengths])
    if n.size != x.shape[1]:
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got {n.size} "
                           f"(batch_size={x.shape[1]})")
    if n.min() <= 0:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element "
                           "in 'lengths' that is <= 0")
    order = None
    if not enforce_sorted:
        order = np.argsort(-n, kind="stable")
        n, x = n[order], x[:, from_array(order)]
    elif (n[1:] > n[:-1]).any():
        raise RuntimeError("`lengths` array must be sorted in decreasing order when "
                           "`enforce_sorted` is True. You can pass `enforce_sorted=False` to "
                           "pack_padded_sequence and/or pack_sequence to sidestep this "
                           "requirement if you do not need ONNX exportability.")
    sizes = from_array((n > np.arange(n[0])[:, None]).sum(1))
    indices = (None, None) if order is None else (from_array(order), from_array(_inverse(order)))
    packed = PackedSequence(x, sizes, *indices)
    times, places = packed.places()
    return packed._replace(data=x[from_array(times), from_array(places)])


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Sequences of different lengths, packed."""
    lengths = [len(x) for x in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, False, enforce_sorted)


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False,
                        padding_value: float = 0.0,
                        total_length: int | None = None) -> tuple[Tensor, Tensor]:
    """What was packed, padded again, and the lengths."""
    sizes = sequence.batch_sizes._array
    n = len(sizes) if total_length is None else total_length
    if n < len(sizes):
        raise ValueError("Expected total_length to be at least the length of the longest sequence "
                         f"in input, but got total_length={n} and max sequence length being "
                         f"{len(sizes)}")
    data, lengths = sequence.data, from_array(sequence.lengths())
    times, places = sequence.places()
    shape = n, int(sizes[0]), *data.shape[1:]
    padded = data.new_full(shape, padding_value).index_put(
        (from_array(times), from_array(places)), data)
    if sequence.unsorted_indices is not None:
        padded = padded[:, sequence.unsorted_indices]
        lengths = lengths[sequence.unsorted_indices]
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences that were packed."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def pad_sequence(sequences: Sequence[Tensor], batch_first: bool = False,
                 padding_value: float = 0.0, padding_side: str = "right") -> Tensor:
    """Sequences beside each other, those that are shorter padded."""
    if not len(sequences):
        raise RuntimeError("received an empty list of sequences")
    longest = max(x.shape[0] for x in sequences)
    padded = []
    for x in sequences:
        ends: Any = [longest - x.shape[0], 0]
        pads: Any = [0, 0] * (x.dim() - 1) + (ends if padding_side == "left" else ends[::-1])
        padded.append(NN["pad"](x, pads, value=padding_value))
    return FUNCTIONS["stack"](padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list:
    """The sequences that ``pad_sequence`` has put beside each other."""
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[: int(n)] for row, n in zip(x, lengths, strict=True)]
