"""Sequences of different lengths in one tensor, padded or packed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans.torch._functions.table import FUNCTIONS, NN
from functrans.torch._tensors.tensor import Tensor, from_array


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
