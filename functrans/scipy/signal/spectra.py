"""Spectra and responses after ``scipy.signal``, of NumPy's transforms; windows are constants."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np
from scipy import signal

from functrans._core.bind import AnyArray, Tracer, bind
from functrans._ops import structure as rows
from functrans._ops.structure import move_axis
from functrans.errors import NotDifferentiable, user_line, warn
from functrans.numpy.structure import as_operand, one_axis
from functrans.scipy.public import counterpart
from functrans.scipy.signal.convolution import detrend as _detrended
from functrans.scipy.signal.filters import extended

ss: Any = signal  # its types say less than its functions take

# ---- the analytic signal


@counterpart(ss.hilbert)
def hilbert(x, N=None, axis=-1):
    """The analytic signal: what has the positive frequencies of ``x`` alone.

    >>> import functrans as ft
    >>> ft.grad(lambda x: np.sum(np.abs(hilbert(x)) ** 2))(np.array([1.0, 0.0, -1.0, 0.0]))
    Array([ 4.,  0., -4.,  0.])
    """
    x = as_operand(x)
    if x.dtype.kind == "c":
        raise ValueError("x must be real.")
    axis = one_axis(axis, x.ndim)
    n = x.shape[axis] if N is None else N
    if n <= 0:
        raise ValueError("N must be positive.")
    weights = np.zeros(n, np.result_type(x.dtype, np.float32))
    weights[0] = 1
    weights[1 : (n + 1) // 2] = 2
    if n % 2 == 0:
        weights[n // 2] = 1
    spectrum = np.fft.fft(x, n, axis) * weights.reshape((-1,) + (1,) * (x.ndim - axis - 1))
    return np.fft.ifft(spectrum, axis=axis)


# ---- segments


class _Segments(NamedTuple):
    """How a signal is cut: the window, its length, the step, the length of transforms."""

    window: np.ndarray
    step: int
    length: int
    one_sided: bool
    frequencies: np.ndarray

    @property
    def size(self) -> int:
        return len(self.window)


def _segments(x: Any, n: int, fs: Any, window: Any, nperseg: Any, noverlap: Any, nfft: Any,
              one_sided: bool) -> _Segments:
    if isinstance(window, Tracer) or isinstance(fs, Tracer):
        raise NotDifferentiable(f"{user_line()}: a spectrum got a traced window or rate, which are "
                                "constants here. Pass it through ft.stop_gradient.")
    if isinstance(window, str | tuple):
        size = 256 if nperseg is None else int(nperseg)
        if size < 1:
            raise ValueError(f"Parameter nperseg={size} is not a positive integer!")
        if size > n:
            warn(f"nperseg={size} is greater than signal length {n}, using nperseg = {n}",
                 UserWarning)
            size = n
        win = ss.get_window(window, size)
    else:
        win = np.asarray(window)
        size = len(win) if nperseg is None else int(nperseg)
    if size != len(win):
        raise ValueError(f"nperseg={size} does not equal len(win)={len(win)}")
    length = size if nfft is None else int(nfft)
    if length < size:
        raise ValueError(f"nfft={length} must be greater than or equal to nperseg={size}!")
    overlap = size // 2 if noverlap is None else int(noverlap)
    if overlap >= size:
        raise ValueError(f"noverlap={overlap} must be less than nperseg={size}!")
    one_sided = one_sided and x.dtype.kind != "c"
    grid = np.fft.rfftfreq if one_sided else np.fft.fftfreq
    return _Segments(win, size - overlap, length, one_sided, grid(length, 1 / fs))


def _transforms(x: Any, cut: _Segments, trend: Any, scale: float) -> AnyArray:
    """The transforms of the segments of the last axis: axes of segments and frequencies."""
    x = bind(rows.windows, x, axis=x.ndim - 1, size=cut.size, step=cut.step, spread=1)
    if trend:
        x = trend(x) if callable(trend) else _detrended(x, type=trend)
    x = x * (cut.window * scale).astype(np.result_type(x.real.dtype, np.float32))
    return (np.fft.rfft if cut.one_sided else np.fft.fft)(x, cut.length)


def _scale(window: np.ndarray, fs: Any, scaling: str) -> float:
    if scaling not in ("density", "spectrum"):
        raise ValueError(f"Parameter scaling={scaling!r} not in ['density', 'spectrum']!")
    if scaling == "density":
        return 1 / np.sqrt(fs * np.sum(np.abs(window) ** 2))
    return 1 / np.abs(np.sum(window))


# ---- power


@counterpart(ss.csd)
def csd(x, y, fs=1.0, window="hann", nperseg=None, noverlap=None, nfft=None, detrend="constant",
        return_onesided=True, scaling="density", axis=-1, average="mean"):
    """Frequencies, and the cross power of two signals, by averages over segments."""
    same = y is x
    x, y = as_operand(x), as_operand(y)
    x, y = [move_axis(v, one_axis(axis, v.ndim), -1) for v in (x, y)]
    n = max(x.shape[-1], y.shape[-1])
    x, y = [_longer(v, n) for v in (x, y)]
    both = x if x.dtype.kind == "c" else y
    cut = _segments(both, n, fs, window, nperseg, noverlap, nfft, return_onesided)
    scale = _scale(cut.window, fs, scaling)
    first = _transforms(x, cut, detrend, scale)
    second = first if same else _transforms(y, cut, detrend, scale)
    power = np.real(first)**2 + np.imag(first)**2 if same else np.conj(first) * second
    if cut.one_sided:
        twice = np.full(power.shape[-1], 2.0, np.real(first).dtype)
        twice[0] = 1
        if cut.length % 2 == 0:
            twice[-1] = 1
        power = power * twice
    return cut.frequencies, move_axis(_average(power, average), -1, axis)


def _longer(x: Any, n: int) -> AnyArray:
    missing = n - x.shape[-1]
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)]) if missing else x


def _average(power: Any, average: str) -> AnyArray:
    """The average over segments, on the axis before the last."""
    count = power.shape[-2]
    if average == "mean":
        return np.mean(power, axis=-2)
    if average != "median":
        raise ValueError(f"Parameter average={average!r} must be 'median' or 'mean'!")
    k = np.arange(1.0, (count - 1) // 2 + 1)
    bias = 1 + np.sum(1 / (2 * k + 1) - 1 / (2 * k)) if count > 1 else 1.0
    if power.dtype.kind != "c":
        return np.median(power, axis=-2) / bias
    return (np.median(power.real, axis=-2) + 1j * np.median(power.imag, axis=-2)) / bias


@counterpart(ss.welch)
def welch(x, fs=1.0, window="hann", nperseg=None, noverlap=None, nfft=None, detrend="constant",
          return_onesided=True, scaling="density", axis=-1, average="mean"):
    """Frequencies, and the power of a signal, by averages over segments."""
    x = as_operand(x)
    return csd(x, x, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis,
               average)


@counterpart(ss.periodogram)
def periodogram(x, fs=1.0, window: Any = "boxcar", nfft=None, detrend="constant",
                return_onesided=True, scaling="density", axis=-1):
    """Frequencies, and the power of a signal as it is."""
    x = as_operand(x)
    axis = one_axis(axis, x.ndim)
    n = x.shape[axis]
    if nfft is not None and nfft < n:
        x, n, nfft = x[(slice(None),) * axis + (slice(nfft),)], nfft, None
    window = "boxcar" if window is None else window
    if hasattr(window, "size") and window.size != n:
        raise ValueError("the size of the window must be the same size of the input on the "
                         "specified axis")
    return welch(x, fs, window, n, 0, nfft, detrend, return_onesided, scaling, axis)


@counterpart(ss.coherence)
def coherence(x, y, fs=1.0, window="hann", nperseg=None, noverlap=None, nfft=None,
              detrend="constant", axis=-1):
    """Frequencies, and the share of the power that two signals have in common."""
    x, y = as_operand(x), as_operand(y)
    rest = (fs, window, nperseg, noverlap, nfft, detrend)
    f, first = welch(x, *rest, axis=axis)
    second = welch(y, *rest, axis=axis)[1]
    both = csd(x, y, *rest, axis=axis)[1]
    return f, np.abs(both) ** 2 / first / second


@counterpart(ss.stft)
def stft(x, fs=1.0, window="hann", nperseg=256, noverlap=None, nfft=None, detrend=False,
         return_onesided=True, boundary: Any = "zeros", padded=True, axis=-1, scaling="spectrum"):
    """Frequencies, times, and the transforms of segments, on the last axis."""
    if scaling not in ("spectrum", "psd"):
        raise ValueError(f"Parameter scaling={scaling!r} not in ['spectrum', 'psd']!")
    if boundary not in ("even", "odd", "constant", "zeros", None):
        raise ValueError(f"Unknown boundary option '{boundary}', must be one of: "
                         "['even', 'odd', 'constant', 'zeros', None]")
    x = as_operand(x)
    axis = one_axis(axis, x.ndim)
    x = move_axis(x, axis, -1)
    if x.dtype.kind == "c" and return_onesided:
        warn("Input data is complex, switching to return_onesided=False", UserWarning)
    cut = _segments(x, x.shape[-1], fs, window, nperseg, noverlap, nfft, return_onesided)
    x = extended(x, boundary, cut.size // 2, x.ndim - 1)
    if padded:
        x = _longer(x, x.shape[-1] + (-(x.shape[-1] - cut.size) % cut.step) % cut.size)
    y = _transforms(x, cut, detrend, _scale(cut.window, fs, scaling.replace("psd", "density")))
    times = np.arange(cut.size / 2, x.shape[-1] - cut.size / 2 + 1, cut.step) / float(fs)
    if boundary is not None:
        times = times - cut.size / 2 / fs
    return cut.frequencies, times, move_axis(y, -1, axis)  # which leaves the segments last


# ---- responses


@counterpart(ss.freqz)
def freqz(b, a=1, worN: Any = 512, whole=False, plot=None, fs=2 * np.pi, include_nyquist=False):
    """Frequencies, and the response of a filter, differentiated in taps and in frequencies."""
    b, a = np.atleast_1d(as_operand(b)), np.atleast_1d(as_operand(a))
    worN = 512 if worN is None else worN
    if isinstance(worN, int | np.integer):
        n = operator.index(worN)
        if n < 0:
            raise ValueError(f"worN must be nonnegative, got {n}")
        last = 2 * np.pi if whole else np.pi
        w: Any = np.linspace(0, last, n, endpoint=include_nyquist and not whole)
    else:
        w = np.atleast_1d(as_operand(worN)) * (2 * np.pi / fs)
    h = _polynomial(b, w) / _polynomial(a, w)
    w = w * (fs / (2 * np.pi))
    if plot is not None:
        plot(w, h)
    return w, h


def _polynomial(taps: Any, w: Any) -> AnyArray:
    """The sum of taps[k] exp(-i k w)."""
    if taps.ndim > 1 and taps.shape[-1] == 1:
        taps = move_axis(taps[..., 0], 0, -1)
    phases = np.exp(-1j * w[..., None] * np.arange(taps.shape[-1]))
    return np.tensordot(taps, phases, ([-1], [-1]))


@counterpart(ss.freqz_sos)
def freqz_sos(sos, worN: Any = 512, whole=False, fs=2 * np.pi):
    """Frequencies, and the response of sections of second order."""
    sos = np.atleast_2d(as_operand(sos))
    if not len(sos):
        raise ValueError("Cannot compute frequencies with no sections")
    h: Any = 1.0
    w: Any = None
    for section in sos:
        w, one = freqz(section[:3], section[3:], worN, whole, fs=fs)
        h = h * one
    return w, h
