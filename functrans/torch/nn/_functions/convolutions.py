"""Convolutions and their transposes, and spectra of short stretches of a signal."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.extend import AnyArray
from functrans.torch._functions.shapes import stack
from functrans.torch._functions.table import FFT, FUNCTIONS, METHODS, NN, op, row
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.tensor import Tensor, from_array
from functrans.torch.nn._functions import images

# ---- Convolutions and their transposes, and windows of images as columns

_windows, _overlap_add = row("windows"), row("overlap_add")


def each(x: Any, n: int) -> tuple[int, ...]:
    """``x`` for each of ``n`` dimensions."""
    many = tuple([int(v) for v in x]) if isinstance(x, list | tuple) else (int(x),)
    return many * n if len(many) == 1 else many


def pad(x: Any, pads: Any, value: Any = 0) -> AnyArray:
    """``x`` with so many entries before and after each of its last dimensions."""
    if not any(a or b for a, b in pads):
        return x
    return np.pad(x, [(0, 0)] * (x.ndim - len(pads)) + list(pads), constant_values=value)


def windows(x: Any, sizes: Any, steps: Any, spreads: Any) -> AnyArray:
    """The last dimensions as windows, whose entries are new last dimensions in the same order."""
    n = len(sizes)
    lead = x.ndim - n
    for i in range(n):
        x = _windows(x, axis=lead + i, size=sizes[i], step=steps[i], spread=spreads[i])
    return x


def overlapping(x: Any, lengths: Any, steps: Any, spreads: Any) -> AnyArray:
    """The transpose of ``windows``: their entries added at their places."""
    n = len(lengths)
    lead = x.ndim - 2 * n
    for i in reversed(range(n)):
        x = _overlap_add(x, axis=lead + i, length=lengths[i], step=steps[i], spread=spreads[i])
    return x


def _same(sizes: Any, spreads: Any) -> list:
    """The padding that keeps lengths; the odd one comes last."""
    total = [d * (k - 1) for k, d in zip(sizes, spreads, strict=True)]
    return [(t // 2, t - t // 2) for t in total]


def _is_checked(who: str, x: Any, weight: Any, bias: Any, n: int) -> bool:
    """Whether ``x`` is a batch; RuntimeError where it does not fit ``weight``."""
    if weight.ndim != n + 2:
        raise RuntimeError(f"{who}: Expected {n + 2}-dimensional weight, but got "
                           f"{weight.ndim}-dimensional weight of size {list(weight.shape)}")
    if x.ndim not in (n + 1, n + 2):
        raise RuntimeError(f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {who}, "
                           f"but got input of size: {list(x.shape)}")
    if x.dtype != weight.dtype or (bias is not None and bias.dtype != x.dtype):
        names = [dtypes.dtype_of(v).name for v in (x, weight) + (() if bias is None else (bias,))]
        raise RuntimeError(f"{who}: Input type and weight type should be the same, but they are "
                           f"{' and '.join(names)}")
    return x.ndim == n + 2


def _add_bias(y: Any, bias: Any, n: int, batched: bool) -> AnyArray:
    """``y``, a batch, with its bias; the image alone where ``batched`` is False."""
    if bias is not None:
        y = y + bias.reshape((-1, *[1] * n))
    return y if batched else y[0]


def _convolution(n: int) -> Callable:
    name = f"conv{n}d"

    def conv(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        batched = _is_checked(name, input, weight, bias, n)
        x = input if batched else input[None]
        sizes, steps, spreads = weight.shape[2:], each(stride, n), each(dilation, n)
        if x.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
            raise RuntimeError(
                f"Given groups={groups}, weight of size {list(weight.shape)}, expected "
                f"input{list(x.shape)} to have {weight.shape[1] * groups} channels, but got "
                f"{x.shape[1]} channels instead")
        for what, values in (("stride", steps), ("dilation", spreads)):
            if min(values) < 1:
                raise RuntimeError(
                    f"{what} should be greater than zero, but it is {list(values)} in {name}")
        if padding == "same" and max(steps) > 1:
            raise RuntimeError("padding='same' is not supported for strided convolutions")
        pads = (_same(sizes, spreads) if padding == "same" else
                [(p, p) for p in each(0 if padding == "valid" else padding, n)])
        x = pad(x, pads)
        if any(s < d * (k - 1) + 1 for s, k, d in zip(x.shape[2:], sizes, spreads, strict=True)):
            raise RuntimeError(f"Calculated padded input size per channel: {list(x.shape[2:])}. "
                               f"Kernel size: {list(sizes)}. Kernel size can't be greater than "
                               "actual input size")
        y = _correlate(windows(x, sizes, steps, spreads), weight, groups, n)
        return _add_bias(y, bias, n, batched)

    return op(conv, name, f"The correlation of each channel with a kernel, over {n} dimensions.",
              title="ConvolutionBackward0", space=FUNCTIONS)


def _correlate(x: Any, weight: Any, groups: int, n: int) -> AnyArray:
    """Windows ``x``, of shape (batch, channel, *places, *kernel), times the kernels."""
    batch, places, size = x.shape[0], x.shape[2 : 2 + n], math.prod(weight.shape[1:])
    out = weight.shape[0] // groups
    x = x.reshape((batch, groups, -1, *x.shape[2:]))
    order = (1, 0, *range(3, 3 + n), 2, *range(3 + n, 3 + 2 * n))
    columns = x.transpose(order).reshape((groups, -1, size))
    y = np.matmul(columns, np.swapaxes(weight.reshape((groups, out, size)), 1, 2))
    y = y.reshape((groups, batch, math.prod(places), out))
    return y.transpose((1, 0, 3, 2)).reshape((batch, groups * out, *places))


def _transpose(n: int) -> Callable:
    name = f"conv_transpose{n}d"

    def conv(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1,
             dilation=1):
        batched = _is_checked(name, input, weight, bias, n)
        x = input if batched else input[None]
        steps, spreads, pads, more = [each(v, n) for v in (stride, dilation, padding,
                                                           output_padding)]
        if x.shape[1] != weight.shape[0]:
            raise RuntimeError(
                f"Given transposed=1, weight of size {list(weight.shape)}, expected "
                f"input{list(x.shape)} to have {weight.shape[0]} channels, but got {x.shape[1]} "
                "channels instead")
        sizes, places = weight.shape[2:], x.shape[2:]
        lengths = [(k - 1) * d + (s - 1) * t + 1
                   for k, d, s, t in zip(sizes, spreads, places, steps, strict=True)]
        y = overlapping(_spread(x, weight, groups), lengths, steps, spreads)
        y = pad(y, [(0, max(m, 0)) for m in more])
        y = y[(..., *[slice(p, s + m - p) for p, s, m in zip(pads, lengths, more, strict=True)])]
        return _add_bias(y, bias, n, batched)

    return op(conv, name, f"The transpose of ``conv{n}d`` with respect to its input.",
              title="ConvolutionBackward0", space=FUNCTIONS)


def _spread(x: Any, weight: Any, groups: int) -> AnyArray:
    """Each entry of ``x`` times the kernels: (batch, channel, *places, *kernel)."""
    batch, places, kernel = x.shape[0], x.shape[2:], weight.shape[2:]
    each_in, out, size = weight.shape[0] // groups, weight.shape[1], math.prod(kernel)
    columns = x.reshape((batch, groups, each_in, -1)).swapaxes(-1, -2)
    y = np.matmul(columns, weight.reshape((groups, each_in, out * size)))
    y = y.reshape((batch, groups, math.prod(places), out, size)).transpose((0, 1, 3, 2, 4))
    return y.reshape((batch, groups * out, *places, *kernel))


for _n in (1, 2, 3):
    NN[f"conv{_n}d"] = _convolution(_n)
    NN[f"conv_transpose{_n}d"] = _transpose(_n)


@op(space=NN, title="Im2ColBackward0")
def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """The windows of images as columns."""
    if input.ndim not in (3, 4):
        raise RuntimeError("Expected 3D or 4D (batch mode) tensor for input, but got: "
                           f"{input.ndim}D")
    x = input if input.ndim == 4 else input[None]
    sizes = each(kernel_size, 2)
    x = pad(x, [(p, p) for p in each(padding, 2)])
    x = windows(x, sizes, each(stride, 2), each(dilation, 2))
    x = x.transpose((0, 1, 4, 5, 2, 3)).reshape(
        (x.shape[0], x.shape[1] * math.prod(sizes), math.prod(x.shape[2:4])))
    return x if input.ndim == 4 else x[0]


@op(space=NN, title="Col2ImBackward0")
def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """Columns added up as windows of images: the transpose of ``unfold``."""
    x = input if input.ndim == 3 else input[None]
    lengths, sizes, spreads, pads, steps = [each(v, 2) for v in (
        output_size, kernel_size, dilation, padding, stride)]
    whole = [s + 2 * p for s, p in zip(lengths, pads, strict=True)]
    places = [(s - d * (k - 1) - 1) // t + 1
              for s, d, k, t in zip(whole, spreads, sizes, steps, strict=True)]
    if x.shape[1] % math.prod(sizes) or x.shape[2] != math.prod(places):
        raise RuntimeError(f"fold: expected an input of size (batch, a multiple of "
                           f"{math.prod(sizes)}, {math.prod(places)}), but got {list(x.shape)}")
    x = x.reshape((x.shape[0], -1, *sizes, *places)).transpose((0, 1, 4, 5, 2, 3))
    y = overlapping(x, whole, steps, spreads)
    y = y[..., pads[0] : whole[0] - pads[0], pads[1] : whole[1] - pads[1]]
    return y if input.ndim == 3 else y[0]


# ---- Spectra of short stretches of a signal, and the signal from them
#
# Above ``nn``'s padding and folding, of which they are made.

assert images  # for what they enter


def _weights(who: str, window: Tensor | None, n_fft: int, win_length: int, like: Tensor) -> Tensor:
    """The window in the middle of ``n_fft`` zeros; ones without one."""
    if window is None:
        window = from_array(np.ones(win_length, np.real(like._array[:0]).dtype))
    if window.ndim != 1 or len(window) != win_length:
        raise RuntimeError(
            f"{who}: expected a 1D window tensor of size equal to win_length={win_length}, but got "
            f"window with size {list(window.shape)}"
        )
    left = (n_fft - win_length) // 2
    return NN["pad"](window, (left, n_fft - win_length - left))


def _lengths(who: str, n_fft: int, hop: int | None, win: int | None) -> tuple[int, int]:
    """How far stretches are apart, and how long the window is."""
    hop = n_fft // 4 if hop is None else hop
    win = n_fft if win is None else win
    if hop <= 0:
        raise RuntimeError(f"{who}: expected hop_length > 0, but got hop_length={hop}")
    if not 0 < win <= n_fft:
        raise RuntimeError(f"{who}: expected 0 < win_length <= n_fft, but got win_length={win}")
    return hop, win


def stft(input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
         window: Tensor | None = None, center: bool = True, pad_mode: str = "reflect",
         normalized: bool = False, onesided: bool | None = None,
         return_complex: bool | None = None, align_to_window: bool | None = None) -> Tensor:
    """The Fourier transforms of stretches of ``n_fft`` numbers, ``hop_length`` apart.

    Of shape (..., frequencies, stretches). ``window`` weighs the numbers of a stretch; ``center``:
    the signal is padded, so that the k-th stretch is around the entry ``k * hop_length``.
    """
    complex_input = input.is_complex() or (window is not None and window.is_complex())
    if return_complex is None:
        if not complex_input:
            raise RuntimeError(
                "stft requires the return_complex parameter be given for real inputs, and will "
                "further require that return_complex=True in a future PyTorch release."
            )
        return_complex = True
    if input.ndim not in (1, 2):
        raise RuntimeError(f"stft: expected a 1D or 2D tensor, but got {input.ndim}D")
    hop, win = _lengths("stft", n_fft, hop_length, win_length)
    x = input if input.ndim == 2 else input.unsqueeze(0)
    if center:
        x = NN["pad"](x[:, None], (n_fft // 2, n_fft // 2), pad_mode)[:, 0]
    if not 0 < n_fft <= x.shape[-1]:
        raise RuntimeError(
            f"stft: expected 0 < n_fft < {x.shape[-1]}, but got n_fft={n_fft}"
        )
    frames = x.unfold(-1, n_fft, hop) * _weights("stft", window, n_fft, win, input)
    one = not complex_input if onesided is None else onesided
    if one and complex_input:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    transform = FFT["rfft" if one else "fft"]
    y = transform(frames, norm="ortho" if normalized else None).transpose(1, 2)
    y = y if input.ndim == 2 else y[0]
    return y if return_complex else stack([y.real, y.imag], -1)


def istft(input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
          window: Tensor | None = None, center: bool = True, normalized: bool = False,
          onesided: bool | None = None, length: int | None = None,
          return_complex: bool = False) -> Tensor:
    """The signal whose ``stft`` is nearest to ``input``, in the sense of least squares."""
    if not input.is_complex():
        raise TypeError(
            "istft requires a complex-valued input tensor matching the output from stft with "
            "return_complex=True."
        )
    hop, win = _lengths("istft", n_fft, hop_length, win_length)
    x = input if input.ndim == 3 else input.unsqueeze(0)
    count = x.shape[-1]
    one = x.shape[1] != n_fft if onesided is None else onesided
    if x.shape[1] != (n_fft // 2 + 1 if one else n_fft):
        raise RuntimeError(
            f"istft: expected the frequency dimension (3rd to the last) of the input tensor to "
            f"match n_fft={n_fft} with onesided={one}, but got {x.shape[1]}"
        )
    norm = "ortho" if normalized else None
    x = x.transpose(1, 2)
    if one or not return_complex:  # the other half of the frequencies is not read
        frames = FFT["irfft"](x[..., : n_fft // 2 + 1], n_fft, norm=norm)
    else:
        frames = FFT["ifft"](x, norm=norm)
    weights = _weights("istft", window, n_fft, win, input)
    y = _overlapped(frames * weights, hop)
    total = _overlapped((weights * weights).expand(1, count, n_fft), hop)[0]
    start = n_fft // 2 if center else 0
    end = y.shape[-1] - (start if length is None else 0)
    end = end if length is None else min(start + length, end)
    y, total = y[:, start:end], total[start:end]
    if np.abs(total._array).min(initial=1.0) <= 1e-11:
        raise RuntimeError(
            "window overlap add min: 1: the windows of the stretches leave a place of the signal "
            "that none of them sees"
        )
    y = y / total
    if length is not None and y.shape[-1] < length:
        warnings.warn(
            "The length of signal is shorter than the length parameter. Result is being padded "
            "with zeros in the tail. Please check your center and hop_length settings.",
            stacklevel=2)
        y = NN["pad"](y, (0, length - y.shape[-1]))
    return y if input.ndim == 3 else y[0]


def _overlapped(frames: Tensor, hop: int) -> Tensor:
    """The sum of stretches at their places: (batch, stretches, n) to (batch, time)."""
    batch, count, n = frames.shape
    length = n + hop * (count - 1)
    y = frames.new_zeros(batch, length)
    at = np.arange(n) + hop * np.arange(count)[:, None]
    places = from_array(at.reshape(-1).astype(np.int64))
    return y.index_add(1, places, frames.reshape(batch, count * n))


METHODS.update(stft=stft, istft=istft)
