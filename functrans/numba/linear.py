"""Runs of a kernel from which cotangents can be pulled back: a Jacobian, or a tape."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from functrans._core.bind import may_have_nan
from functrans.numba.runs import Recorded, Runs


class Jacobian(NamedTuple):
    """A kernel run forward along all entries of its active operands."""

    matrices: list[np.ndarray]  # of each output, its shape and an axis for the entries
    shapes: list[tuple[int, ...]]
    outs: list[np.ndarray]

    @classmethod
    def of(
        cls, runs: Runs, xs: Sequence, active: Sequence[int], moving: Sequence[int]
    ) -> Jacobian:
        shapes = [xs[i].shape for i in active]
        size, at, seeds = sum(map(prod, shapes)), 0, []
        for shape in shapes:
            seed = np.zeros((prod(shape), size))
            seed[np.arange(len(seed)), at + np.arange(len(seed))] = 1.0
            at += len(seed)
            seeds.append(seed.reshape(*shape, size))
        found = runs.chunk(xs, active, seeds, moving, values=True)
        return cls([y[..., 1:] for y in found], shapes, [y[..., 0] for y in found])

    def values(self) -> list[np.ndarray]:
        return self.outs

    def pull(self, cts: Sequence) -> list[np.ndarray]:
        total: Any = 0.0
        for matrix, ct in zip(self.matrices, cts, strict=True):
            if ct is not None:
                total = total + _product(np.asarray(ct), matrix)
        ends = np.cumsum([prod(s) for s in self.shapes])
        parts = np.split(np.broadcast_to(total, ends[-1:]), ends[:-1])
        return [p.reshape(s) for p, s in zip(parts, self.shapes, strict=True)]


def _product(ct: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """``ct`` times a Jacobian, with strong zero where that is needed."""
    flat = matrix.reshape(-1, matrix.shape[-1])
    with np.errstate(all="ignore"):
        y = ct.reshape(-1) @ flat
        if not np.isnan(y).any():
            return y
        products = ct.reshape(-1, 1) * flat
        return np.where((ct.reshape(-1, 1) == 0) | (flat == 0), 0.0, products).sum(axis=0)


class Tapes:
    """A kernel run on a tape; again with strong zero where that gave a NaN."""

    def __init__(self, runs: Runs, *run: Any):
        self.runs, self.run = runs, run
        self.bare = runs.recorded(*run, strong=False)
        self.strong: Recorded | None = None

    def values(self) -> list[np.ndarray]:
        return self.bare.values()

    def pull(self, cts: Sequence) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            found = self.bare.pull(cts)
            if not any(map(may_have_nan, found)):
                return found
            self.strong = self.strong or self.runs.recorded(*self.run, strong=True)
            return self.strong.pull(cts)
