"""Blocks of derivative matrices written into arrays of the caller's, chunk after chunk."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans import tree
from functrans._core.aval import Aval
from functrans._core.bind import Tracer
from functrans._transforms.arguments import describe
from functrans._transforms.matrices.directions import Directions
from functrans.errors import ArgumentError, ShapeError, name_of


class Placing:
    """The arrays given as ``out``, a row an output leaf, a column an active input leaf."""

    def __init__(self, who: str, f: Callable, out: Any, expected: Any, values: Sequence):
        self.label = f"{who}: out for `{name_of(f)}`"
        have, given = tree.flatten(out)
        wanted, structure = tree.flatten(expected)
        if given != structure:
            raise ArgumentError(
                f"{self.label} must have the structure of {describe(expected)}, but is "
                f"{describe(out)}"
            )
        self.arrays = [a for a, e in zip(have, wanted, strict=True) if e is not None]
        shapes = [e.shape for e in wanted if e is not None]
        for a, shape in zip(self.arrays, shapes, strict=True):
            self._require(a, shape, values)

    def _require(self, a: Any, shape: tuple, values: Sequence) -> None:
        if not isinstance(a, np.ndarray):
            raise ArgumentError(f"{self.label} must be an array, but is {describe(a)}")
        if a.shape != shape:
            raise ShapeError(f"{self.label} must have shape {shape}, but has {a.shape}")
        if not (a.flags.writeable and a.flags.c_contiguous):
            raise ArgumentError(f"{self.label} must be a C-contiguous array that can be written to")
        if any([isinstance(x, np.ndarray) and np.may_share_memory(a, x) for x in values]):
            raise ArgumentError(
                f"{self.label} shares memory with an argument, which later chunks read. Pass an "
                "array of its own."
            )

    def columns(self, ways: Directions, start: int, size: int, images: Sequence) -> None:
        """Place images of tangents: the input axes are the last ones."""
        for (j, low, high), (i, image) in self._pieces(ways, start, size, images):
            array = self.arrays[i * len(ways.avals) + j]
            self._check(image, array)
            flat = array.reshape((*image.shape[1:], ways.avals[j].size))
            offset = ways.ends[j] - ways.avals[j].size
            part = image[low - start : high - start]
            flat[..., low - offset : high - offset] = np.moveaxis(part, 0, -1)

    def rows(self, ways: Directions, start: int, size: int, images: Sequence, ins: Sequence[Aval],
             ) -> None:
        """Place images of cotangents, gradients where a real output depends on complex numbers."""
        for (i, low, high), (j, image) in self._pieces(ways, start, size, images):
            array = self.arrays[i * len(ins) + j]
            self._check(image, array)
            flat = array.reshape((ways.avals[i].size, *image.shape[1:]))
            offset = ways.ends[i] - ways.avals[i].size
            part = image[low - start : high - start]
            conjugates = ins[j].dtype.kind == "c" and ways.avals[i].dtype.kind != "c"
            flat[low - offset : high - offset] = np.conjugate(part) if conjugates else part

    def _pieces(self, ways: Directions, start: int, size: int, images: Sequence) -> Any:
        """Each leaf of the directions that these are of, from where to where; with each image."""
        if len(ways.spans) != len(ways.avals):
            raise ArgumentError(
                f"{self.label} would need derivatives along 1 and along i together. Do without "
                "out, or promise holomorphic=True."
            )
        leaves = [
            (k, max(start, end - a.size), min(start + size, end))
            for k, (a, end) in enumerate(zip(ways.avals, ways.ends, strict=True))
        ]
        return itertools.product(
            [(k, low, high) for k, low, high in leaves if low < high], enumerate(images)
        )

    def _check(self, image: Any, array: np.ndarray) -> None:
        if isinstance(image, Tracer):
            raise ArgumentError(
                f"{self.label} holds numbers, but the derivative is traced. Do without out inside "
                "of jit, vmap and other transforms."
            )
        if not np.can_cast(image.dtype, array.dtype, "same_kind"):
            raise ArgumentError(f"{self.label} is {array.dtype}, which cannot hold {image.dtype}")
