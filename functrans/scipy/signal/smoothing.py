"""Smoothing, trends and resampling after ``scipy.signal``, linear but for medians."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from scipy import signal

from functrans._core.bind import AnyArray, Tracer
from functrans._ops.structure import along, move_axis
from functrans.errors import NotDifferentiable, UnsupportedError, user_line, warn
from functrans.numpy.structure import as_floats, as_operand, one_axis
from functrans.scipy.ndimage.linear import convolve1d
from functrans.scipy.ndimage.orders import windowed
from functrans.scipy.public import counterpart
from functrans.scipy.signal.convolution import convolve

ss: Any = signal  # its types say less than its functions take

# ---- polynomials


@counterpart(ss.savgol_filter)
def savgol_filter(x, window_length, polyorder, deriv=0, delta=1.0, axis=-1, mode="interp",
                  cval=0.0):
    """The polynomial of least squares around each sample, or its derivative.

    >>> import functrans as ft
    >>> ft.grad(lambda x: savgol_filter(x, 3, 1)[1])(np.ones(4)).round(3)
    array([0.333, 0.333, 0.333, 0.   ])
    """
    if mode not in ("mirror", "constant", "nearest", "interp", "wrap"):
        raise ValueError("mode must be 'mirror', 'constant', 'nearest' 'wrap' or 'interp'.")
    if isinstance(delta, Tracer):
        raise NotDifferentiable(f"{user_line()}: savgol_filter got a traced delta; divide the "
                                "result of delta=1 by delta**deriv.")
    x = as_operand(x)
    axis = one_axis(axis, x.ndim)
    x = x if x.dtype in (np.float32, np.float64) else x.astype(float)
    taps = ss.savgol_coeffs(window_length, polyorder, deriv=deriv, delta=delta)
    if mode != "interp":
        return convolve1d(x, taps, axis, mode=mode, cval=cval)
    if window_length > x.shape[axis]:
        raise ValueError("If mode is 'interp', window_length must be less than or equal to the "
                         "size of x.")
    # what SciPy makes of unit vectors: at the ends, the polynomials of the first and last window
    ends = ss.savgol_filter(np.eye(window_length), window_length, polyorder, deriv, delta, axis=0)
    half, n = window_length // 2, x.shape[axis]
    y = convolve1d(x, taps, axis, mode="constant")
    first = _matrix_on(ends[:half], x[along(axis, slice(window_length))], axis)
    behind = x[along(axis, slice(n - window_length, n))]
    last = _matrix_on(ends[window_length - half :], behind, axis)
    inner = y[along(axis, slice(half, n - half))]
    return np.concatenate([first, inner, last], axis=axis).astype(x.dtype)


def _matrix_on(matrix: Any, x: Any, axis: int) -> AnyArray:
    """The products of a constant matrix with the vectors along an axis."""
    return move_axis(np.tensordot(x, matrix, ([axis], [1])), -1, axis)


@counterpart(ss.detrend)
def detrend(data, axis=-1, type="linear", bp=0, overwrite_data=False):
    """The signal without its mean, or without the line of least squares between breakpoints."""
    if type not in ("linear", "l", "constant", "c"):
        raise ValueError("Trend type must be 'linear' or 'constant'.")
    x = as_floats(data)
    if type in ("constant", "c"):
        return x - np.mean(x, axis, keepdims=True)
    axis = one_axis(axis, x.ndim)
    n = x.shape[axis]
    bounds = np.unique(np.concatenate([[0], np.atleast_1d(bp), [n]])).astype(int)
    if bounds[-1] > n:
        raise ValueError("Breakpoints must be less than length of data along given axis.")
    pieces = []
    for start, stop in itertools.pairwise(bounds):
        piece = x[along(axis, slice(start, stop))]
        m = int(stop - start)
        lines = np.stack([np.ones(m), np.arange(m) - (m - 1) / 2], 1)
        basis = np.linalg.qr(lines)[0]
        line = _matrix_on(basis, _matrix_on(basis.T, piece, axis), axis)
        pieces.append(piece - line)
    return np.concatenate(pieces, axis=axis).astype(x.dtype)


@counterpart(ss.medfilt)
def medfilt(volume, kernel_size=None):
    """The median around each entry, with zeros beyond the ends; equal shares where entries tie."""
    x = np.atleast_1d(as_operand(volume))
    sizes = np.asarray(3 if kernel_size is None else kernel_size)
    sizes = np.broadcast_to(sizes, (x.ndim,))
    if not (sizes % 2).all():
        raise ValueError("Each element of kernel_size should be odd.")
    if any(k > n for k, n in zip(sizes, x.shape, strict=True)):
        warn("kernel_size exceeds volume extent: the volume will be zero-padded.", UserWarning)
    wide = np.pad(x, [(int(k) // 2, int(k) // 2) for k in sizes])
    return np.median(windowed(wide, sizes), axis=-1).astype(x.dtype)


# ---- resampling


@counterpart(ss.resample)
def resample(x, num, t=None, axis=0, window=None, domain="time"):
    """The signal at ``num`` points, by its Fourier transform."""
    if domain not in ("time", "freq"):
        raise ValueError(f"Parameter domain={domain!r} not in ('time', 'freq')!")
    x = as_operand(x)
    axis = one_axis(axis, x.ndim)
    x = move_axis(x, axis, -1)
    n = x.shape[-1]
    weights = _spectral_window(window, n)
    real = domain == "time" and x.dtype.kind != "c"
    spectrum = np.fft.fft(x) if domain == "time" else x
    if weights is not None:
        if real:  # of the two-sided spectrum, both sides of a frequency count alike
            weights = (weights + np.roll(weights[::-1], 1)) / 2
        spectrum = spectrum * weights
    y = np.fft.ifft(_cut_spectrum(spectrum, num) * (num / n))
    y = move_axis(y.real if real else y, -1, axis)
    y = y.astype(np.result_type(x.dtype, np.float32)) if real else y
    return y if t is None else (y, t[0] + (t[1] - t[0]) * (n / num) * np.arange(num))


def _spectral_window(window: Any, n: int) -> Any:
    if window is None:
        return None
    if callable(window):
        return window(np.fft.fftfreq(n))
    if hasattr(window, "shape"):
        if window.shape != (n,):
            raise ValueError(f"window.shape={window.shape} != ({n},), i.e., window length is not "
                             "equal to number of frequency bins!")
        return window
    return np.fft.fftshift(ss.get_window(window, n))


def _cut_spectrum(spectrum: Any, num: int) -> AnyArray:
    """A spectrum of ``num`` frequencies; that without a partner is split, or made of two."""
    n = spectrum.shape[-1]
    m = min(num, n)
    low, high = spectrum[..., : (m + 1) // 2], spectrum[..., n - (m - 1) // 2 :]
    zeros = np.zeros((*spectrum.shape[:-1], num - m), spectrum.dtype)
    parts = [low, zeros, high]
    if m % 2 == 0:
        single = spectrum[..., m // 2 : m // 2 + 1]
        if num < n:
            parts = [low, single + spectrum[..., n - m // 2 : n - m // 2 + 1], high]
        elif num > n:
            parts = [low, single / 2, zeros[..., 1:], single / 2, high]
        else:
            parts = [low, single, high]
    return np.concatenate(parts, axis=-1)


def _only_zeros(who: str, what: str) -> UnsupportedError:
    return UnsupportedError(f"{user_line()}: {who} got {what} beside a traced value; it is "
                            "differentiated with zeros beyond the ends.")


@counterpart(ss.upfirdn)
def upfirdn(h, x, up=1, down=1, axis=-1, mode="constant", cval=0):
    """The signal with ``up - 1`` zeros between samples, convolved with ``h``, each ``down``-th."""
    h, x = as_operand(h), as_operand(x)
    if h.ndim != 1 or not h.size:
        raise ValueError("h must be 1-D with non-zero length")
    if mode not in ("constant", None) or cval:
        raise _only_zeros("upfirdn", f"mode={mode!r} and cval={cval!r}")
    if up < 1 or down < 1:
        raise ValueError("Both up and down must be >= 1")
    axis = one_axis(axis, x.ndim)
    x = move_axis(x, axis, -1)
    spread = np.pad(x[..., None], [(0, 0)] * x.ndim + [(0, up - 1)])
    spread = spread.reshape((*x.shape[:-1], x.shape[-1] * up))[..., : (x.shape[-1] - 1) * up + 1]
    full = convolve(spread, h.reshape((1,) * (x.ndim - 1) + (-1,)), method="direct")
    return move_axis(full[..., ::down], -1, axis)


@counterpart(ss.resample_poly)
def resample_poly(x, up, down, axis=0, window=("kaiser", 5.0), padtype="constant", cval=None):
    """The signal at ``up / down`` times its rate, by a filter of finite length."""
    x = as_floats(x)
    axis = one_axis(axis, x.ndim)
    if padtype != "constant" or cval:
        raise _only_zeros("resample_poly", f"padtype={padtype!r} and cval={cval!r}")
    if up < 1 or down < 1:
        raise ValueError("up and down must be >= 1")
    common = math.gcd(up, down)
    up, down = up // common, down // common
    if up == down == 1:
        return x.astype(x.dtype)
    n = x.shape[axis]
    wanted = -(-n * up // down)
    if isinstance(window, list | np.ndarray | Tracer):
        h = as_operand(window)
        half = (h.shape[0] - 1) // 2
    else:
        most = max(up, down)
        half = 10 * most
        h = ss.firwin(2 * half + 1, 1.0 / most, window=window).astype(np.real(x).dtype)
    h = h * up
    before = (-half) % down  # zeros that bring the middle of the filter to a sample that is kept
    h = np.concatenate([np.zeros(before, h.dtype), h])
    skip = (half + before) // down
    x = np.pad(x, [(0, wanted * down // up + 1) if i == axis else (0, 0) for i in range(x.ndim)])
    return upfirdn(h, x, up, down, axis)[along(axis, slice(skip, skip + wanted))]
