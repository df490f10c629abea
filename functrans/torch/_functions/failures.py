"""NumPy's errors in torch's words, and of torch's types."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from functrans.errors import FunctransError


class _LinAlgError(np.linalg.LinAlgError, RuntimeError):
    """``torch.linalg.LinAlgError``: a matrix that a function cannot deal with."""


LinAlgError = _LinAlgError
_SINGULAR = {
    "inv": "The diagonal element is zero, the inversion could not be completed because the input "
           "matrix is singular.",
    "inverse": "The diagonal element is zero, the inversion could not be completed because the "
               "input matrix is singular.",
    "solve": "The solver failed because the input matrix is singular.",
    "cholesky": "The factorization could not be completed because the input is not "
                "positive-definite.",
}
_PLACE = re.compile(r"index (-?\d+) is out of bounds for axis (\d+) with size (\d+)")
_MASK = re.compile(r"boolean index did not match indexed array along axis (\d+); size of axis is "
                   r"(\d+) but size of corresponding boolean axis is (\d+)")
_BROADCAST = re.compile(r"(?:input array from shape|->remapped\]:) *\(([\d, ]*)\) "
                        r"(?:into shape|and requested shape) \(([\d, ]*)\)")


def raise_as_torch(name: str, failure: ValueError | IndexError) -> NoReturn:
    """Raise what torch has in the place of NumPy's ``failure`` in ``name``, or ``failure``."""
    known = _translated(name, failure)
    if known is None:
        raise failure
    raise known from failure


def _translated(name: str, failure: ValueError | IndexError) -> Exception | None:
    """The error that torch has in the place of NumPy's ``failure`` in ``name``.

    None where ``failure`` is one of ours, or says all there is to say.
    """
    text = str(failure)
    if isinstance(failure, np.linalg.LinAlgError):
        return _LinAlgError(f"{'torch.' * (name == 'solve')}linalg.{name}: "
                           f"{_SINGULAR.get(name, '')} {text}".replace("  ", " "))
    if isinstance(failure, FunctransError):
        return None
    if isinstance(failure, np.exceptions.AxisError):
        axis, ndim = failure.axis, failure.ndim
        if axis is None or ndim is None:
            return None
        return IndexError(out_of_range(axis, ndim))
    if isinstance(failure, IndexError):
        if m := _PLACE.search(text):
            return IndexError(
                f"index {m[1]} is out of bounds for dimension {m[2]} with size {m[3]}"
            )
        if m := _MASK.search(text):
            return IndexError(
                f"The shape of the mask [{m[3]}] at index {m[1]} does not match the shape of the "
                f"indexed tensor [{m[2]}] at index {m[1]}"
            )
        return None
    if m := _BROADCAST.search(text):
        have, want = [tuple(map(int, filter(None, re.split(r"[, ]+", s)))) for s in m.groups()]
        return RuntimeError(unexpandable(have, want))
    return RuntimeError(f"{name}: {failure}")


def out_of_range(dim: int, ndim: int) -> str:
    """What is wrong with a dimension that is none of ``ndim``."""
    last = max(ndim, 1) - 1
    return (f"Dimension out of range (expected to be in range of [{-last - 1}, {last}], but got "
            f"{dim})")


def misfit(name: str, a: Sequence[int], b: Sequence[int]) -> str:
    """What is wrong with two shapes that cannot be broadcast together."""
    n = max(len(a), len(b))
    for i in range(n - 1, -1, -1):
        k, m = [s[i - n + len(s)] if i - n + len(s) >= 0 else 1 for s in (a, b)]
        if k != m and 1 not in (k, m):
            return (f"The size of tensor a ({k}) must match the size of tensor b ({m}) at "
                    f"non-singleton dimension {i}, in {name} of {list(a)} and {list(b)}")
    return f"{name}: {list(a)} and {list(b)} cannot be broadcast together"


def unexpandable(have: Sequence[int], want: Sequence[int]) -> str:
    """What is wrong with a shape that cannot be expanded to another."""
    if len(have) > len(want):
        return (f"The number of sizes provided ({len(want)}) must be greater or equal to the "
                f"number of dimensions in the tensor ({len(have)})")
    i = next((i for i in range(1, len(have) + 1) if have[-i] not in (1, want[-i])), 1)
    return (f"The expanded size of the tensor ({want[-i]}) must match the existing size "
            f"({have[-i]}) at non-singleton dimension {len(want) - i}. Target sizes: {list(want)}. "
            f"Tensor sizes: {list(have)}")


def require_joinable(shapes: Sequence[tuple], dim: int) -> None:
    """Raise unless the shapes differ in dimension ``dim`` alone."""
    first = shapes[0]
    for i, shape in enumerate(shapes):
        if len(shape) != len(first):
            raise RuntimeError(
                f"Tensors must have same number of dimensions: got {len(first)} and {len(shape)}"
            )
        for d, (n, m) in enumerate(zip(shape, first, strict=True)):
            if n != m and d != dim:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {dim}. Expected size {m} but "
                    f"got size {n} for tensor number {i} in the list."
                )


__all__ = [
    "LinAlgError", "misfit", "out_of_range", "raise_as_torch", "require_joinable", "unexpandable",
]
