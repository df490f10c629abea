"""``torch.nn.utils.rnn``: sequences of different lengths in one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functrans.torch._functions.table import FUNCTIONS, NN
from functrans.torch._tensors.tensor import Tensor


def pad_sequence(sequences: Sequence[Tensor], batch_first: bool = False,
                 padding_value: float = 0.0, padding_side: str = "right") -> Tensor:
    """Sequences beside each other, those that are shorter padded."""
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


__all__ = ["pad_sequence", "unpad_sequence"]
