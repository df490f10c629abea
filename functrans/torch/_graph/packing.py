"""What nodes keep in place of the arrays that they save, while ``saved_tensors_hooks`` are set."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from functrans.torch._graph.modes import state


class Packed:
    """What ``pack`` has made of a saved array, and the way back."""

    __slots__ = ("apart", "kept", "unpack")

    def __init__(self, array: np.ndarray, hooks: tuple[Callable, Callable]):
        pack, self.unpack = hooks
        self.kept = pack(array)
        memory = getattr(self.kept, "_array", None)
        # what is known to be on memory of its own, which changes in place do not reach
        self.apart = isinstance(self.kept, str | int | bytes) or (
            memory is not None and not np.may_share_memory(memory, array))


class PackedTuple(tuple):
    """What a node has saved, of which arrays are packed."""

    __slots__ = ()


def packed(values: Sequence) -> PackedTuple:
    """``values`` with the arrays among them packed."""
    return PackedTuple([
        Packed(v, state.saving) if isinstance(v, np.ndarray) else v for v in values
    ])


def marked(marks: Sequence, *values: Sequence) -> Sequence:
    """``marks``, none if all that was packed among ``values`` is on memory of its own."""
    return () if all(x.apart for v in values for x in v if type(x) is Packed) else marks


def unpacked(values: Sequence) -> Sequence:
    """``values`` with what was packed unpacked."""
    if type(values) is not PackedTuple:
        return values
    return [v.unpack(v.kept) if type(v) is Packed else v for v in values]


def packed_parts(parts: Sequence) -> PackedTuple:
    """The parts of an elementwise node, of each of which what it saves is packed."""
    return PackedTuple([(i, action, packed(saved), unlike) for i, action, saved, unlike in parts])


def unpacked_parts(parts: Sequence) -> Sequence:
    """The way back from ``packed_parts``."""
    return [(i, action, unpacked(saved), unlike) for i, action, saved, unlike in parts]
