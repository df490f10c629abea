"""Linear filters of images after ``scipy.ndimage``, differentiated in images and in weights.

Each is a correlation of the image, with what it goes on with at its ends: one row, of which ``jit``
leaves the sums of products to NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import ndimage

from functrans._core.bind import AnyArray, Tracer, bind
from functrans._ops import filters as rows
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.structure import as_operand, one_axis
from functrans.scipy.ndimage.common import all_axes, each, fitted, image, reach, spread_out, widened
from functrans.scipy.public import counterpart

si: Any = ndimage  # its types say less than its functions take

# ---- correlation


def _correlated(x: Any, weights: Any, axes: Sequence[int], modes: Sequence[str], cval: Any,
                widths: Sequence[tuple[int, int]]) -> AnyArray:
    """Sums of entries around each, times the weights; one axis of these for each of ``axes``."""
    if not x.size:
        return x
    shape = spread_out(weights.shape, axes, x.ndim, 1)
    wide = widened(x, spread_out(widths, axes, x.ndim, (0, 0)),
                   spread_out(modes, axes, x.ndim, "constant"), cval)
    if weights.dtype.kind not in "fc":
        weights = weights.astype(float)
    first = min(axes, default=0)  # axes before it need no windows
    taps = np.flip(weights.reshape(shape[first:]))
    return bind(rows.convolve_nd, wide, taps, ndim=x.ndim - first, mode="valid", by_fft=False)


def _weights(weights: Any, ndim: int) -> AnyArray:
    weights = as_operand(weights)
    if weights.ndim != ndim or not weights.size:
        raise RuntimeError("no filter weights given" if ndim == 1 else
                           f"weights.ndim ({weights.ndim}) must match len(axes) ({ndim})")
    return weights


def _turned(weights: Any, origins: Sequence[int], turned: bool) -> tuple[Any, Sequence[int]]:
    """Weights and origins of the sums of products that a correlation, or convolution, is."""
    if not turned:
        return np.conj(weights) if weights.dtype.kind == "c" else weights, origins
    origins = [-o - (1 - n % 2) for o, n in zip(origins, weights.shape, strict=True)]
    return np.flip(weights), origins


def _one_axis(who: str, x: Any, weights: Any, axis: int, output: Any, mode: str, cval: Any,
              origin: int, turned: bool) -> AnyArray:
    x, dtype = image(who, x, output)
    weights, axis = _weights(weights, 1), one_axis(axis, x.ndim)
    weights, origins = _turned(weights, [origin], turned)
    widths = reach(weights.shape, origins, "Invalid origin; origin must satisfy "
                   "-(len(weights) // 2) <= origin <= (len(weights)-1) // 2")
    return fitted(_correlated(x, weights, [axis], [mode], cval, widths), dtype)


@counterpart(si.correlate1d)
def correlate1d(input, weights, axis=-1, output=None, mode="reflect", cval=0.0, origin=0):
    """The correlation with weights along one axis.

    >>> import functrans as ft
    >>> ft.grad(lambda w: correlate1d(np.arange(4.0), w)[1])(np.ones(3))
    Array([0., 1., 2.])
    """
    return _one_axis("correlate1d", input, weights, axis, output, mode, cval, origin, False)


@counterpart(si.convolve1d)
def convolve1d(input, weights, axis=-1, output=None, mode="reflect", cval=0.0, origin=0):
    """The convolution with weights along one axis."""
    return _one_axis("convolve1d", input, weights, axis, output, mode, cval, origin, True)


def _several(who: str, x: Any, weights: Any, output: Any, mode: str, cval: Any, origin: Any,
             axes: Any, turned: bool) -> AnyArray:
    x, dtype = image(who, x, output)
    axes = all_axes(axes, x.ndim)
    weights, origins = _weights(weights, len(axes)), each(origin, len(axes))
    weights, origins = _turned(weights, origins, turned)
    widths = reach(weights.shape, origins, "Invalid origin; origin must satisfy "
                   "-(weights.shape[k] // 2) <= origin[k] <= (weights.shape[k]-1) // 2")
    if not isinstance(mode, str):
        raise RuntimeError("A sequence of modes is not supported")
    modes = [mode] * len(axes)
    return fitted(_correlated(x, weights, axes, modes, cval, widths), dtype)


@counterpart(si.correlate)
def correlate(input, weights, output=None, mode="reflect", cval=0.0, origin=0, *, axes=None):
    """The correlation with weights around each entry."""
    return _several("correlate", input, weights, output, mode, cval, origin, axes, False)


@counterpart(si.convolve)
def convolve(input, weights, output=None, mode="reflect", cval=0.0, origin=0, *, axes=None):
    """The convolution with weights around each entry."""
    return _several("convolve", input, weights, output, mode, cval, origin, axes, True)


# ---- Gaussians


def _gaussian(sigma: Any, order: int, radius: int) -> AnyArray:
    """The weights of a Gaussian on whole numbers, or of its derivative.

    The derivative of q(x) exp(-x^2 / 2 sigma^2) has the polynomial q' - x q / sigma^2.
    """
    if order < 0:
        raise ValueError("order must be non-negative")
    x = np.arange(-radius, radius + 1.0)
    phi = np.exp(-0.5 / (sigma * sigma) * x**2)
    phi = phi / np.sum(phi)
    q: list[Any] = [1.0]
    for _ in range(order):
        slope = [*[k * c for k, c in enumerate(q)][1:], 0.0, 0.0]
        shifted = [0.0] + [-c / (sigma * sigma) for c in q]
        q = [a + b for a, b in zip(slope, shifted, strict=True)]
    return phi * sum([c * x**k for k, c in enumerate(q)])


def _radius(sigma: Any, truncate: float, radius: Any) -> int:
    if radius is None:
        known = sigma.concrete() if isinstance(sigma, Tracer) else sigma
        if known is None:
            raise UnsupportedError(
                f"{user_line()}: gaussian_filter1d got sigma={sigma!r}, whose number is not known "
                "here and which says how many weights there are. Pass radius."
            )
        radius = int(truncate * float(known) + 0.5)
    if not isinstance(radius, int | np.integer) or radius < 0:
        raise ValueError("Radius must be a nonnegative integer.")
    return int(radius)


@counterpart(si.gaussian_filter1d)
def gaussian_filter1d(input, sigma, axis=-1, order=0, output=None, mode="reflect", cval=0.0,
                      truncate=4.0, *, radius=None):
    """The correlation with a Gaussian, or its derivative, along one axis; differentiated in sigma
    too, for the number of weights that there are."""
    radius = _radius(sigma, truncate, radius)
    weights = np.flip(as_operand(_gaussian(sigma, order, radius)))
    return _one_axis("gaussian_filter1d", input, weights, axis, output, mode, cval, 0, False)


@counterpart(si.gaussian_filter)
def gaussian_filter(input, sigma, order: Any = 0, output=None, mode="reflect", cval=0.0,
                    truncate=4.0, *, radius=None, axes=None):
    """The correlation with Gaussians along ``axes``, one after another.

    >>> import functrans as ft
    >>> float(ft.grad(lambda s: gaussian_filter(np.eye(9)[4], s)[4])(1.0).round(6))
    -0.398915
    """
    x, dtype = image("gaussian_filter", input, output)
    axes = all_axes(axes, x.ndim)
    n = len(axes)
    sigmas, orders, modes, radii = [each(v, n) for v in (sigma, order, mode, radius)]
    for axis, s, k, m, r in zip(axes, sigmas, orders, modes, radii, strict=True):
        known = s.concrete() if isinstance(s, Tracer) else s
        if known is None or known > 1e-15:
            x = gaussian_filter1d(fitted(x, dtype), s, axis, k, None, m, cval, truncate, radius=r)
    return fitted(x, dtype)


# ---- slopes


def _slope(who: str, x: Any, axis: int, output: Any, mode: Any, cval: Any,
           across: list) -> AnyArray:
    x, dtype = image(who, x, output)
    axis, modes = one_axis(axis, x.ndim), each(mode, x.ndim)
    y = correlate1d(x, [-1, 0, 1], axis, dtype, modes[axis], cval)
    for i in range(x.ndim):
        if i != axis:
            y = correlate1d(y, across, i, dtype, modes[i], cval)
    return y


@counterpart(si.prewitt)
def prewitt(input, axis=-1, output=None, mode="reflect", cval=0.0):
    """Differences along ``axis``, summed over neighbours across."""
    return _slope("prewitt", input, axis, output, mode, cval, [1, 1, 1])


@counterpart(si.sobel)
def sobel(input, axis=-1, output=None, mode="reflect", cval=0.0):
    """Differences along ``axis``, smoothed across."""
    return _slope("sobel", input, axis, output, mode, cval, [1, 2, 1])


def _over_axes(who: str, x: Any, output: Any, mode: Any, axes: Any, part: Callable) -> list:
    """``part(x, number, axis, axes, dtype, mode)`` for each axis."""
    x, dtype = image(who, x, output)
    axes = all_axes(axes, x.ndim)
    modes = each(mode, len(axes))
    return [part(x, i, axes, dtype, m) for i, m in enumerate(modes)] or [x.astype(dtype)]


@counterpart(si.laplace)
def laplace(input, output=None, mode="reflect", cval=0.0, *, axes=None):
    """The sum of second differences along ``axes``."""

    def part(x: Any, i: int, axes: tuple, dtype: np.dtype, m: str) -> AnyArray:
        return correlate1d(x, [1, -2, 1], axes[i], dtype, m, cval)

    return sum(_over_axes("laplace", input, output, mode, axes, part))


def _gaussian_slopes(who: str, order: int, x: Any, sigma: Any, output: Any, mode: Any, cval: Any,
                     axes: Any, options: dict) -> list:
    """Derivatives of the smoothed image along each of ``axes``."""

    def part(x: Any, i: int, axes: tuple, dtype: np.dtype, m: str) -> AnyArray:
        orders = [order if j == i else 0 for j in range(len(axes))]
        sigmas = each(sigma, len(axes))
        return gaussian_filter(x, sigmas, orders, dtype, m, cval, axes=axes, **options)

    return _over_axes(who, x, output, mode, axes, part)


@counterpart(si.gaussian_laplace)
def gaussian_laplace(input, sigma, output=None, mode="reflect", cval=0.0, *, axes=None, **kwargs):
    """The Laplacian of the image smoothed by a Gaussian."""
    return sum(_gaussian_slopes("gaussian_laplace", 2, input, sigma, output, mode, cval, axes,
                                kwargs))


@counterpart(si.gaussian_gradient_magnitude)
def gaussian_gradient_magnitude(input, sigma, output=None, mode="reflect", cval=0.0, *, axes=None,
                                **kwargs):
    """The length of the gradient of the image smoothed by a Gaussian. Where it is 0, so is its
    derivative."""
    slopes = _gaussian_slopes("gaussian_gradient_magnitude", 1, input, sigma, output, mode, cval,
                              axes, kwargs)
    return np.linalg.norm(np.stack(slopes), axis=0)


# ---- means


@counterpart(si.uniform_filter1d)
def uniform_filter1d(input, size, axis=-1, output=None, mode="reflect", cval=0.0, origin=0):
    """Means of ``size`` entries along one axis."""
    x, dtype = image("uniform_filter1d", input, output)
    if size < 1:
        raise RuntimeError("incorrect filter size")
    widths = reach([size], [origin], "invalid origin")
    weights = np.full(size, 1.0 / size)
    return fitted(_correlated(x, weights, [one_axis(axis, x.ndim)], [mode], cval, widths), dtype)


@counterpart(si.uniform_filter)
def uniform_filter(input, size=3, output=None, mode="reflect", cval=0.0, origin=0, *, axes=None):
    """Means over boxes."""
    x, dtype = image("uniform_filter", input, output)
    axes = all_axes(axes, x.ndim)
    options = [each(v, len(axes)) for v in (size, mode, origin)]
    for axis, n, m, o in zip(axes, *options, strict=True):
        if n > 1:
            x = uniform_filter1d(x, int(n), axis, dtype, m, cval, o)
    return x.astype(dtype)
