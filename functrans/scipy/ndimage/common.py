"""What functions of images have in common: axes, ends, and the type of what is returned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._core.bind import AnyArray
from functrans.errors import NotDifferentiable, UnsupportedError, user_line, warn
from functrans.numpy.padding import pad as padded
from functrans.numpy.structure import as_operand, normalize_axes

# SciPy's names of how an image goes on at its ends, and NumPy's.
PADDING = {
    "reflect": "symmetric", "grid-mirror": "symmetric", "mirror": "reflect", "nearest": "edge",
    "wrap": "wrap", "grid-wrap": "wrap", "constant": "constant", "grid-constant": "constant",
}


def image(who: str, x: Any, output: Any) -> tuple[Any, np.dtype]:
    """``x`` as an operand, and the dtype of the result."""
    x = as_operand(x)
    if output is not None and not isinstance(output, type | np.dtype | str):
        raise UnsupportedError(
            f"{user_line()}: {who} got an array as output= beside a traced value; use what it "
            "returns, or pass a dtype."
        )
    dtype = np.dtype(x.dtype if output is None else output)
    if dtype.kind not in "fc":
        raise NotDifferentiable(
            f"{user_line()}: {who} rounds its result to {dtype}, which has no derivative. Pass the "
            "image as x.astype(float), or output=float."
        )
    if x.dtype.kind == "c" != dtype.kind:
        warn("promoting specified output dtype to complex", UserWarning)
    return x, dtype


def fitted(y: Any, dtype: np.dtype) -> AnyArray:
    """``y`` of this dtype, or of the complex one with its precision."""
    complex_needed = y.dtype.kind == "c" and dtype.kind != "c"
    return y.astype(np.promote_types(dtype, np.complex64) if complex_needed else dtype)


def all_axes(axes: Any, ndim: int) -> tuple[int, ...]:
    """``axes`` from 0 on; None: all."""
    return tuple(range(ndim)) if axes is None else normalize_axes(axes, ndim)


def each(x: Any, n: int) -> list:
    """One number for each of ``n`` axes."""
    if isinstance(x, str) or not (isinstance(x, list | tuple) or np.ndim(x)):
        return [x] * n
    if len(x) != n:
        raise RuntimeError("sequence argument must have length equal to input rank")
    return list(x)


def widened(x: Any, widths: Sequence[tuple[int, int]], modes: Sequence[str], cval: Any) -> AnyArray:
    """``x`` and what it goes on with at its ends, in a mode for each axis."""
    for axis, (width, mode) in enumerate(zip(widths, modes, strict=True)):
        if mode not in PADDING:
            raise RuntimeError("boundary mode not supported")
        if any(width):
            pad = [(0, 0)] * x.ndim
            pad[axis] = width
            options = {"constant_values": cval} if PADDING[mode] == "constant" else {}
            x = padded(x, pad, PADDING[mode], **options)
    return x


def reach(sizes: Sequence[int], origins: Sequence[int], error: str) -> list[tuple[int, int]]:
    """How far windows reach before and after the entry that they are for."""
    widths = []
    for size, origin in zip(sizes, origins, strict=True):
        before = size // 2 + origin
        if not 0 <= before < size:
            raise ValueError(error)
        widths.append((before, size - 1 - before))
    return widths


def spread_out(values: Sequence, axes: Sequence[int], ndim: int, other: Any) -> list:
    """One value for each of ``ndim`` axes: ``values`` on ``axes``, else ``other``."""
    full = [other] * ndim
    for axis, value in zip(axes, values, strict=True):
        full[axis] = value
    return full
