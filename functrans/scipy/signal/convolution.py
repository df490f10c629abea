"""Convolution, correlation, smoothing and resampling after ``scipy.signal``."""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import signal

from functrans._core.bind import AnyArray, Tracer, bind
from functrans._ops import filters as rows
from functrans._ops.structure import along, move_axis
from functrans.errors import NotDifferentiable, UnsupportedError, user_line, warn
from functrans.numpy.arrange import pad
from functrans.numpy.structure import as_floats, as_operand, normalize_axes, one_axis
from functrans.scipy.ndimage.filtering import convolve1d, windowed
from functrans.scipy.public import counterpart

# ---- Convolution and correlation after ``scipy.signal``
#
# Both are one row, by sums of products or by Fourier transforms; ``jit`` leaves it to NumPy.

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
    return _convolve(x1, x2, mode, range(x1.ndim), method)


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
    return _convolve(x1, x2, mode, sorted(axes), "fft")


@counterpart(ss.fftconvolve)
def fftconvolve(in1, in2, mode="full", axes=None):
    """The convolution along ``axes``, by Fourier transforms; the other axes broadcast."""
    return _along_axes(in1, in2, mode, axes)


@counterpart(ss.oaconvolve)
def oaconvolve(in1, in2, mode="full", axes=None):
    """As ``fftconvolve``: the two differ in speed alone."""
    return _along_axes(in1, in2, mode, axes)


def _convolve(x1: Any, x2: Any, mode: str, axes: Sequence[int], method: str) -> AnyArray:
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
        return _convolve(x1, x2, mode, (0, 1), "direct")
    full = _bound(x1, x2, mode, boundary, fillvalue)
    return centred(full, x1.shape, (0, 1)) if mode == "same" else full


@counterpart(ss.correlate2d)
def correlate2d(in1, in2, mode="full", boundary="fill", fillvalue=0):
    """The correlation of two matrices; ``boundary`` says how the first goes on at its ends."""
    x1, x2 = _matrices("correlate2d", in1, in2)
    if mode == "valid":
        y = _convolve(x1, reversed_conjugate(x2), mode, (0, 1), "direct")
        # of exchanged operands SciPy conjugates the other one
        return np.conj(y) if needs_swap(x1.shape, x2.shape, (0, 1)) else y
    full = _bound(x1, reversed_conjugate(x2), mode, boundary, fillvalue)
    if mode == "full":
        return full
    (i, j), (m, n) = [k // 2 for k in x2.shape], x1.shape
    return full[i : i + m, j : j + n]


def _matrices(who: str, in1: Any, in2: Any) -> tuple[Any, Any]:
    x1, x2 = as_operand(in1), as_operand(in2)
    if not x1.ndim == x2.ndim == 2:
        raise ValueError(f"{who} inputs must both be 2-D arrays")
    return x1, x2


def _bound(x1: Any, x2: Any, mode: str, boundary: str, fillvalue: Any) -> AnyArray:
    """The convolution of ``x2`` with ``x1`` and its continuation, wherever they meet."""
    _require_mode(mode)
    if boundary not in PADDING:
        raise ValueError("Acceptable boundary flags are 'fill', 'circular' (or 'wrap'), and "
                         "'symmetric' (or 'symm').")
    widths = [(n - 1, n - 1) for n in x2.shape]
    options = {"constant_values": fillvalue} if PADDING[boundary] == "constant" else {}
    wide = pad(x1, widths, PADDING[boundary], **options)
    return bind(rows.convolve_nd, wide, x2, ndim=2, mode="valid", by_fft=False)


# ---- Smoothing, trends and resampling after ``scipy.signal``, linear but for medians


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
