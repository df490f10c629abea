"""Spectra of short stretches of a signal, and the signal from them.

Above ``nn``'s padding and folding, of which they are made.
"""

from __future__ import annotations

import warnings

import numpy as np

from functrans.torch._functions.shapes import stack
from functrans.torch._functions.table import FFT, METHODS, NN
from functrans.torch._tensors.tensor import Tensor, from_array
from functrans.torch.nn._functions import convolutions, images

assert convolutions and images  # for what they enter


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
