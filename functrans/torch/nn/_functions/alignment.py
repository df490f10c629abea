"""``ctc_loss``: how probable a sequence of labels is, over all its alignments with an input."""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans.torch._functions.failures import WrongValue
from functrans.torch._functions.table import METHODS, NN, op
from functrans.torch._tensors.tensor import Tensor, from_array

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
