"""Convolution and correlation after ``scipy.signal``.

Both are one row, by sums of products or by Fourier transforms; ``jit`` leaves it to NumPy.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import signal

from functrans._core.bind import AnyArray, bind
from functrans._ops import filters as rows
from functrans._ops.structure import move_axis
from functrans.numpy.padding import pad
from functrans.numpy.structure import as_operand, normalize_axes
from functrans.scipy.public import counterpart

ss: Any = signal  # its types say less than its functions take

MODES = ("full", "valid", "same")
PADDING = {"fill": "constant", "pad": "constant", "wrap": "wrap", "circular": "wrap",
           "symm": "symmetric", "symmetric": "symmetric"}
# Products for each result from which on transforms are faster.
MANY = 400


def reversed_conjugate(x: Any) -> AnyArray:
    """``x`` backwards along all axes, conjugated."""
    x = np.flip(x)
    return np.conj(x) if x.dtype.kind == "c" else x


def convolve(in1, in2, mode="full", method="auto", *, axes=None, dot_axes=((), ())):
    """The convolution of two arrays with as many axes.

    Beyond SciPy's, as in autograd: ``axes``, a pair of lists, are those of each array that are
    convolved, and along ``dot_axes`` products are summed. Axes of the result are the remaining ones
    of the first array, those of the second, and the convolved ones.

    >>> import functrans as ft
    >>> ft.grad(lambda x: convolve(x, [1.0, 2.0])[1])(np.ones(3))
    Array([2., 1., 0.])
    """
    if axes is not None:
        return _over_axes(as_operand(in1), as_operand(in2), mode, axes, dot_axes)
    return _of_all_axes(in1, in2, mode, method)


def _over_axes(x1: Any, x2: Any, mode: str, axes: Any, dot_axes: Any) -> AnyArray:
    _require_mode(mode)
    lengths: list = [tuple([x.shape[i] for i in mine])
                     for x, mine in zip((x1, x2), axes, strict=True)]
    n = len(lengths[0])
    exchanged = mode == "valid" and needs_swap(lengths[0], lengths[1], range(n))
    if exchanged:
        x1, x2, axes, dot_axes, lengths = x2, x1, axes[::-1], dot_axes[::-1], lengths[::-1]
    if mode != "valid":
        widths = dict(zip(axes[0], lengths[1], strict=True))
        x1 = pad(x1, [(widths.get(i, 1) - 1,) * 2 for i in range(x1.ndim)], "constant")
    windows = np.lib.stride_tricks.sliding_window_view(x1, lengths[1], axis=tuple(axes[0]))
    names = iter(string.ascii_letters)
    first, second = [[next(names) for _ in range(x.ndim)] for x in (windows, x2)]
    for k, i in enumerate(axes[1]):
        second[i] = first[x1.ndim + k]
    for i, j in zip(*dot_axes, strict=True):
        second[j] = first[i]
    rest = [[s for i, s in enumerate(mine) if i not in (*axes[k], *dot_axes[k])]
            for k, mine in enumerate((first[: x1.ndim], second))]
    rest = rest[::-1] if exchanged else rest
    out = [*rest[0], *rest[1], *[first[i] for i in axes[0]]]
    terms = ",".join(map("".join, (first, second)))
    y = np.einsum(f"{terms}->{''.join(out)}", windows, np.flip(x2, tuple(axes[1])))
    return _middle(y, lengths[0]) if mode == "same" else y


def _middle(y: Any, lengths: tuple) -> AnyArray:
    last = range(y.ndim - len(lengths), y.ndim)
    return centred(y, y.shape[: last.start] + lengths, last)


@counterpart(ss.convolve)
def _of_all_axes(in1: Any, in2: Any, mode: str, method: str) -> AnyArray:
    x1, x2 = _alike(in1, in2, "volume and kernel")
    if not x1.ndim:
        return x1 * x2
    if method not in ("auto", "direct", "fft"):
        raise ValueError("Acceptable method flags are 'auto', 'direct', or 'fft'.")
    if not (x1.size and x2.size):
        raise ValueError(f"{'v' if x1.size else 'a'} cannot be empty")
    return _convolved(x1, x2, mode, range(x1.ndim), method)


@counterpart(ss.correlate)
def correlate(in1, in2, mode="full", method="auto"):
    """The correlation of two arrays: the convolution with the second backwards, conjugated."""
    x1, x2 = _alike(in1, in2)
    return x1 * np.conj(x2) if not x1.ndim else convolve(x1, reversed_conjugate(x2), mode, method)


def _alike(in1: Any, in2: Any, who: str = "in1 and in2") -> tuple[Any, Any]:
    """Two operands with as many axes."""
    x1, x2 = as_operand(in1), as_operand(in2)
    if x1.ndim != x2.ndim:
        raise ValueError(f"{who} should have the same dimensionality")
    return x1, x2


def _along_axes(in1: Any, in2: Any, mode: str, axes: Any) -> AnyArray:
    x1, x2 = _alike(in1, in2)
    if not x1.ndim:
        return x1 * x2
    axes = range(x1.ndim) if axes is None else normalize_axes(axes, x1.ndim)
    if not len(axes):
        raise ValueError("when provided, axes cannot be empty")
    return _convolved(x1, x2, mode, sorted(axes), "fft")


@counterpart(ss.fftconvolve)
def fftconvolve(in1, in2, mode="full", axes=None):
    """The convolution along ``axes``, by Fourier transforms; the other axes broadcast."""
    return _along_axes(in1, in2, mode, axes)


@counterpart(ss.oaconvolve)
def oaconvolve(in1, in2, mode="full", axes=None):
    """As ``fftconvolve``: the two differ in speed alone."""
    return _along_axes(in1, in2, mode, axes)


def _convolved(x1: Any, x2: Any, mode: str, axes: Sequence[int], method: str) -> AnyArray:
    _require_mode(mode)
    if not (x1.size and x2.size):
        return np.zeros(0)
    if mode == "valid" and needs_swap(x1.shape, x2.shape, axes):
        x1, x2 = x2, x1
    shape, n = x1.shape, len(axes)
    last = range(x1.ndim - n, x1.ndim)
    x1, x2 = [x if list(axes) == list(last) else move_axis(x, axes, last) for x in (x1, x2)]
    by_fft = method == "fft" or (method == "auto" and _many(x1.shape, x2.shape, mode))
    y = bind(rows.convolve_nd, x1, x2, ndim=n, mode="valid" if mode == "valid" else "full",
             by_fft=by_fft and np.result_type(x1.dtype, x2.dtype).kind in "fc")
    y = y if list(axes) == list(last) else move_axis(y, last, axes)
    return centred(y, shape, axes) if mode == "same" else y


def _require_mode(mode: str) -> None:
    if mode not in MODES:
        raise ValueError(
            f"Acceptable mode flags are 'valid', 'same', or 'full', not mode={mode}"
        )


def needs_swap(shape1: tuple, shape2: tuple, axes: Sequence[int]) -> bool:
    """Whether the second is the larger one; one must be, along all axes."""
    if all(shape1[i] >= shape2[i] for i in axes):
        return False
    if not all(shape2[i] >= shape1[i] for i in axes):
        raise ValueError(
            "For 'valid' mode, one must be at least as large as the other in every dimension"
        )
    return True


def _many(shape1: tuple, shape2: tuple, mode: str) -> bool:
    """Whether Fourier transforms are faster."""
    products = min(np.prod(shape1), np.prod(shape2))
    if mode == "valid":
        left = [abs(m - n) + 1 for m, n in zip(shape1, shape2, strict=True)]
        products = min(products, np.prod(left))
    return bool(products > MANY)


def centred(y: Any, shape: tuple, axes: Sequence[int]) -> AnyArray:
    """The middle of ``y``, of the lengths that ``shape`` has on ``axes``."""
    index = [slice(None)] * y.ndim
    for i in axes:
        start = (y.shape[i] - shape[i]) // 2
        index[i] = slice(start, start + shape[i])
    return y[tuple(index)]


# ---- with boundaries


@counterpart(ss.convolve2d)
def convolve2d(in1, in2, mode="full", boundary="fill", fillvalue=0):
    """The convolution of two matrices; ``boundary`` says how the first goes on at its ends."""
    x1, x2 = _matrices("convolve2d", in1, in2)
    if mode == "valid":
        return _convolved(x1, x2, mode, (0, 1), "direct")
    full = _bounded(x1, x2, mode, boundary, fillvalue)
    return centred(full, x1.shape, (0, 1)) if mode == "same" else full


@counterpart(ss.correlate2d)
def correlate2d(in1, in2, mode="full", boundary="fill", fillvalue=0):
    """The correlation of two matrices; ``boundary`` says how the first goes on at its ends."""
    x1, x2 = _matrices("correlate2d", in1, in2)
    if mode == "valid":
        y = _convolved(x1, reversed_conjugate(x2), mode, (0, 1), "direct")
        # of exchanged operands SciPy conjugates the other one
        return np.conj(y) if needs_swap(x1.shape, x2.shape, (0, 1)) else y
    full = _bounded(x1, reversed_conjugate(x2), mode, boundary, fillvalue)
    if mode == "full":
        return full
    (i, j), (m, n) = [k // 2 for k in x2.shape], x1.shape
    return full[i : i + m, j : j + n]


def _matrices(who: str, in1: Any, in2: Any) -> tuple[Any, Any]:
    x1, x2 = as_operand(in1), as_operand(in2)
    if not x1.ndim == x2.ndim == 2:
        raise ValueError(f"{who} inputs must both be 2-D arrays")
    return x1, x2


def _bounded(x1: Any, x2: Any, mode: str, boundary: str, fillvalue: Any) -> AnyArray:
    """The convolution of ``x2`` with ``x1`` and its continuation, wherever they meet."""
    _require_mode(mode)
    if boundary not in PADDING:
        raise ValueError("Acceptable boundary flags are 'fill', 'circular' (or 'wrap'), and "
                         "'symmetric' (or 'symm').")
    widths = [(n - 1, n - 1) for n in x2.shape]
    options = {"constant_values": fillvalue} if PADDING[boundary] == "constant" else {}
    wide = pad(x1, widths, PADDING[boundary], **options)
    return bind(rows.convolve_nd, wide, x2, ndim=2, mode="valid", by_fft=False)
