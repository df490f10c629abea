"""Filters of images after ``scipy.ndimage``: linear ones, and those that choose among entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import ndimage

from functrans._core.bind import AnyArray, bind, known_value
from functrans._ops import filters as rows
from functrans._ops import structure
from functrans.errors import NotDifferentiable, UnsupportedError, user_line, warn
from functrans.numpy.arrange import pad as padded
from functrans.numpy.structure import as_operand, normalize_axes, one_axis
from functrans.scipy.public import counterpart, published

# ---- What functions of images have in common: axes, ends, and the type of what is returned

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


# ---- Linear filters of images after ``scipy.ndimage``, differentiated in images and in weights
#
# Each is a correlation of the image, with what it goes on with at its ends: one row, of which
# ``jit`` leaves the sums of products to NumPy.

si: Any = ndimage  # its types say less than its functions take

# ---- correlation


def _correlate(x: Any, weights: Any, axes: Sequence[int], modes: Sequence[str], cval: Any,
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


def _turn(weights: Any, origins: Sequence[int], turned: bool) -> tuple[Any, Sequence[int]]:
    """Weights and origins of the sums of products that a correlation, or convolution, is."""
    if not turned:
        return np.conj(weights) if weights.dtype.kind == "c" else weights, origins
    origins = [-o - (1 - n % 2) for o, n in zip(origins, weights.shape, strict=True)]
    return np.flip(weights), origins


def _one_axis(who: str, x: Any, weights: Any, axis: int, output: Any, mode: str, cval: Any,
              origin: int, turned: bool) -> AnyArray:
    x, dtype = image(who, x, output)
    weights, axis = _weights(weights, 1), one_axis(axis, x.ndim)
    weights, origins = _turn(weights, [origin], turned)
    widths = reach(weights.shape, origins, "Invalid origin; origin must satisfy "
                   "-(len(weights) // 2) <= origin <= (len(weights)-1) // 2")
    return fitted(_correlate(x, weights, [axis], [mode], cval, widths), dtype)


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
    weights, origins = _turn(weights, origins, turned)
    widths = reach(weights.shape, origins, "Invalid origin; origin must satisfy "
                   "-(weights.shape[k] // 2) <= origin[k] <= (weights.shape[k]-1) // 2")
    if not isinstance(mode, str):
        raise RuntimeError("A sequence of modes is not supported")
    modes = [mode] * len(axes)
    return fitted(_correlate(x, weights, axes, modes, cval, widths), dtype)


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
        known = known_value(sigma)
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
        known = known_value(s)
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
    return fitted(_correlate(x, weights, [one_axis(axis, x.ndim)], [mode], cval, widths), dtype)


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


# ---- Filters that choose among the entries of a window, after ``scipy.ndimage``
#
# Entries that tie for an extreme have equal shares of its derivative; of those that tie for a rank
# one has it, as in a sort.
#
# >>> import functrans as ft
# >>> ft.grad(lambda x: maximum_filter(x, 3).sum())(np.array([1.0, 3.0, 2.0]))
# Array([0., 3., 0.])


def windowed(x: Any, sizes: Any) -> AnyArray:
    """The windows of ``sizes`` in ``x``, which has as many axes, flat on a new last axis."""
    for axis, size in enumerate(sizes):
        x = bind(structure.windows, x, axis=axis, size=int(size), step=1, spread=1)
    n = len(sizes)
    return x.reshape((*x.shape[:n], int(np.prod(sizes))))


def _around(who: str, x: Any, size: Any, footprint: Any, output: Any, mode: Any, cval: Any,
            origin: Any, axes: Any) -> tuple[Any, np.dtype]:
    """The entries around each that a footprint selects, on a new last axis."""
    if size is not None and footprint is not None:
        warn("ignoring size because footprint is set", UserWarning)
    x, dtype = image(who, x, output)
    if x.dtype.kind == "c":
        raise TypeError("Complex type not supported")
    axes = all_axes(axes, x.ndim)
    if footprint is None:
        if size is None:
            raise RuntimeError("no footprint provided")
        footprint = np.ones([int(n) for n in each(size, len(axes))], bool)
    footprint = np.asarray(footprint, bool)
    if not footprint.any():
        raise ValueError("All-zero footprint is not supported.")
    if footprint.ndim != len(axes):
        raise RuntimeError(f"footprint.ndim ({footprint.ndim}) must match len(axes) ({len(axes)})")
    widths = reach(footprint.shape, each(origin, len(axes)), "invalid origin")
    sizes = spread_out(footprint.shape, axes, x.ndim, 1)
    wide = widened(x, spread_out(widths, axes, x.ndim, (0, 0)),
                   spread_out(each(mode, len(axes)), axes, x.ndim, "constant"), cval)
    return windowed(wide, sizes)[..., np.flatnonzero(footprint)], dtype


def _extreme(name: str, of: Callable) -> tuple[Callable, Callable]:
    """A filter of the extreme around each, and that along one axis."""

    def several(input, size=None, footprint=None, output=None, mode="reflect", cval=0.0,
                origin=0, *, axes=None):
        around, dtype = _around(name, input, size, footprint, output, mode, cval, origin, axes)
        return of(around, axis=-1).astype(dtype)

    def one(input, size, axis=-1, output=None, mode="reflect", cval=0.0, origin=0):
        if size < 1:
            raise RuntimeError("incorrect filter size")
        axes = (one_axis(axis, input.ndim),)
        return several(input, size, None, output, mode, cval, origin, axes=axes)

    return published(si, name, several), published(si, f"{name}1d", one)


maximum_filter, maximum_filter1d = _extreme("maximum_filter", np.max)
minimum_filter, minimum_filter1d = _extreme("minimum_filter", np.min)


def _rank(around: Any, rank: int, dtype: np.dtype) -> AnyArray:
    n = around.shape[-1]
    if not -n <= rank < n:
        raise RuntimeError("rank not within filter footprint size")
    return np.sort(around, axis=-1)[..., rank].astype(dtype)


@counterpart(si.rank_filter)
def rank_filter(input, rank, size=None, footprint=None, output=None, mode="reflect", cval=0.0,
                origin=0, *, axes=None):
    """The entry of a rank among those around each; of a rank below 0, from the largest on."""
    around, dtype = _around("rank_filter", input, size, footprint, output, mode, cval, origin, axes)
    return _rank(around, int(rank), dtype)


@counterpart(si.median_filter)
def median_filter(input, size=None, footprint=None, output=None, mode="reflect", cval=0.0,
                  origin=0, *, axes=None):
    """The median of the entries around each, of two the larger."""
    around, dtype = _around("median_filter", input, size, footprint, output, mode, cval, origin,
                            axes)
    return _rank(around, around.shape[-1] // 2, dtype)


@counterpart(si.percentile_filter)
def percentile_filter(input, percentile, size=None, footprint=None, output=None, mode="reflect",
                      cval=0.0, origin=0, *, axes=None):
    """The entry that so many of a hundred around each lie below."""
    if not isinstance(percentile, int | float | np.number):
        raise UnsupportedError(f"{user_line()}: percentile_filter got percentile={percentile!r}; "
                               "it is a constant, which chooses an entry.")
    around, dtype = _around("percentile_filter", input, size, footprint, output, mode, cval,
                            origin, axes)
    n, share = around.shape[-1], float(percentile) + (100.0 if percentile < 0 else 0.0)
    if not 0 <= share <= 100:
        raise RuntimeError("invalid percentile")
    return _rank(around, n - 1 if share == 100 else int(n * share / 100.0), dtype)
