"""Images between their entries, after ``scipy.ndimage``, differentiated in images and coordinates.

The value at a point is a sum of the coefficients around it times weights, which are B-splines of
the coordinates; the coefficients are linear in the image, by one row. The rest is indices, products
and sums, which ``jit`` compiles.

Of order 1 the slope at an entry is that to its right, at the last one to its left. Of order 0 the
image is a step function of the coordinates, with the derivative 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import ndimage, special

from functrans._core.bind import AnyArray, Tracer, bind, known_value
from functrans._ops import filters as rows
from functrans._ops.structure import move_axis
from functrans.errors import NotDifferentiable, UnsupportedError, user_line, warn
from functrans.numpy.structure import as_operand, one_axis, take_axis
from functrans.scipy.ndimage.filtering import PADDING, each, fitted, image, widened
from functrans.scipy.public import counterpart

si: Any = ndimage  # its types say less than its functions take

# How coefficients go on at the ends of an image; without an entry, by mirroring.
ENDS = {"reflect": "reflect", "grid-mirror": "reflect", "grid-wrap": "grid-wrap",
        "nearest": "nearest"}
# Entries by which an image is widened in modes for whose ends there is no exact filter.
MARGIN = 12

# ---- coefficients


def _require(order: int, mode: str, lowest: int = 0) -> None:
    if not lowest <= order <= 5:
        raise RuntimeError("spline order not supported")
    if mode not in PADDING:
        raise RuntimeError("boundary mode not supported")


def _coefficients(x: Any, axis: int, order: int, mode: str) -> AnyArray:
    ends = "reflect" if mode == "nearest" else ENDS.get(mode, "mirror")
    x = x.astype(complex if x.dtype.kind == "c" else float)
    return bind(rows.spline_filter, x, axis=axis, order=order, mode=ends)


@counterpart(si.spline_filter1d)
def spline_filter1d(input, order=3, axis=-1, output=np.float64, mode="mirror"):
    """The coefficients of the spline through entries along one axis."""
    _require(order, mode)
    x, dtype = image("spline_filter1d", input, output)
    if order > 1:
        x = _coefficients(x, one_axis(axis, x.ndim), order, mode)
    return fitted(x, dtype)


@counterpart(si.spline_filter)
def spline_filter(input, order=3, output=np.float64, mode="mirror"):
    """The coefficients of the spline through the entries of an image."""
    _require(order, mode, 2)
    x, dtype = image("spline_filter", input, output)
    for axis in range(x.ndim):
        x = _coefficients(x, axis, order, mode)
    return fitted(x, dtype)


# ---- coordinates


def _within(c: Any, n: int, mode: str) -> AnyArray:
    """Coordinates on an axis of ``n`` entries, brought to where there are entries."""
    if mode in ("constant", "grid-constant"):
        return c
    if mode == "nearest":  # beyond, all weights are those of one coefficient
        return np.clip(c, -MARGIN, n + MARGIN)
    if n <= 1:
        return 0.0 * c
    if mode == "grid-wrap":
        return c % n
    if mode == "wrap":
        left = c % (n - 1)
        left = np.where(left == 0, n - 1.0, left)
        return np.where(c < 0, left, np.where(c > n - 1, c % (n - 1), c))
    if mode == "mirror":
        left = c % (2 * n - 2)
        turns = np.where(c < 0, left > n - 1, left >= n)
        return np.where(turns, 2 * n - 2 - left, left)
    left = c % (2 * n)
    return np.where(left >= n, 2 * n - 1 - left, left)


def _indices(i: Any, n: int, mode: str) -> AnyArray:
    """Whole numbers as indices of ``n`` coefficients."""
    ends = ENDS.get(mode, "mirror")
    if n <= 1:
        return 0 * i
    if ends == "grid-wrap":
        return i % n
    if ends == "nearest":
        return np.clip(i, 0, n - 1)
    period, last = (2 * n, 2 * n - 1) if ends == "reflect" else (2 * n - 2, 2 * n - 2)
    i = i % period
    return np.where(i >= n, last - i, i)


def _weights(c: Any, n: int, order: int) -> tuple[Any, list]:
    """The first coefficient for each coordinate, and the weights of that and the ``order`` next.

    By the recurrence of Cox and de Boor for whole knots: of degree d, entry j is
    ((u + d - j) b[j - 1] + (1 - u + j) b[j]) / d, where u is how far the coordinate is from a knot.
    """
    moved = c if order % 2 else c + 0.5
    start = np.floor(moved)
    if order == 1:  # the last entry belongs to the interval before it
        start = np.where(c == n - 1, max(n - 2, 0), start)
    u = moved - start
    b: list[Any] = [np.ones(c.shape)]
    for d in range(1, order + 1):
        left, right = [0.0, *b], [*b, 0.0]
        b = [((u + (d - j)) * left[j] + (1 + j - u) * right[j]) / d for j in range(d + 1)]
    return start.astype(np.intp) - order // 2, b


def _sample(x: Any, coordinates: Sequence, order: int, mode: str, cval: Any, prefilter: bool,
             ) -> AnyArray:
    """The image in the last axes of ``x`` at points, an array of coordinates for each axis.

    The arrays broadcast against each other; axes of ``x`` before are those of many images.
    """
    d = len(coordinates)
    lead = x.ndim - d
    if prefilter and order > 1:
        if mode in ("nearest", "grid-constant"):
            margin = [(0, 0)] * lead + [(MARGIN, MARGIN)] * d
            x = widened(x, margin, [mode] * x.ndim, cval)
            coordinates = [c + MARGIN for c in coordinates]
        for axis in range(lead, x.ndim):
            x = _coefficients(x, axis, order, mode)
    dims, weights, index = x.shape[lead:], [], 0
    inside = present = True
    for a, (c, n) in enumerate(zip(coordinates, dims, strict=True)):
        if mode == "constant":
            inside = inside & (c >= 0) & (c <= n - 1)
        start, w = _weights(_within(c, n, mode), n, order)
        taps = np.stack([start + k for k in range(order + 1)])
        behind = (1,) * (d - 1 - a)
        taps = taps.reshape((1,) * a + (order + 1,) + behind + start.shape)
        if mode == "grid-constant":
            present = present & (taps >= 0) & (taps < n)
        index = index * n + _indices(taps, n, mode)
        weights.append(np.stack(w))
    y = take_axis(x.reshape((*x.shape[:lead], math.prod(dims))), index, lead)
    if mode == "grid-constant":
        y = np.where(present, y, cval)
    for w in weights:  # one axis of taps after another
        y = np.sum(y * w.reshape((order + 1, *(1,) * (y.ndim - lead - w.ndim), *w.shape[1:])), lead)
    return np.where(inside, y, cval) if mode == "constant" else y


def _prepare(who: str, x: Any, output: Any, order: int, mode: str) -> tuple[Any, np.dtype]:
    _require(order, mode)
    x, dtype = image(who, x, output)
    if x.ndim < 1:
        raise RuntimeError("input and output rank must be > 0")
    return x, dtype


# ---- functions


@counterpart(si.map_coordinates)
def map_coordinates(input, coordinates, output=None, order=3, mode="constant", cval=0.0,
                    prefilter=True):
    """The image at points, of which row i of ``coordinates`` has those on axis i.

    >>> import functrans as ft
    >>> x = np.array([0.0, 1.0, 4.0, 9.0])
    >>> ft.grad(lambda c: map_coordinates(x, [[c]], order=1)[0])(1.5)
    Array(3.)
    """
    x, dtype = _prepare("map_coordinates", input, output, order, mode)
    coordinates = as_operand(coordinates)
    if coordinates.dtype.kind == "c":
        raise TypeError("Complex type not supported")
    if coordinates.ndim < 2:
        raise RuntimeError("input and output rank must be > 0")
    if coordinates.shape[0] != x.ndim:
        raise RuntimeError("invalid shape for coordinate array")
    coordinates = coordinates.astype(float)
    return fitted(_sample(x, list(coordinates), order, mode, cval, prefilter), dtype)


def _grids(shape: Sequence[int]) -> list[np.ndarray]:
    axes = np.eye(len(shape), dtype=int)
    return [np.arange(float(n)).reshape([n if j else 1 for j in on])
            for n, on in zip(shape, axes, strict=True)]


@counterpart(si.affine_transform)
def affine_transform(input, matrix, offset=0.0, output_shape=None, output=None, order=3,
                     mode="constant", cval=0.0, prefilter=True):
    """The image at ``matrix @ i + offset`` for each index i of the result."""
    x, dtype = _prepare("affine_transform", input, output, order, mode)
    matrix, d = as_operand(matrix), x.ndim
    shape = x.shape if output_shape is None else tuple(output_shape)
    if matrix.ndim not in (1, 2) or matrix.shape[0] < 1:
        raise RuntimeError("no proper affine matrix provided")
    if matrix.ndim == 2 and matrix.shape[1] == d + 1 and matrix.shape[0] in (d, d + 1):
        last = matrix[d:]
        known: Any = known_value(last)
        if known is not None and len(known) and not (known[0] == [0] * d + [1]).all():
            raise ValueError("Expected homogeneous transformation matrix with shape "
                             f"{matrix.shape} for image shape {x.shape}, but bottom row was not "
                             f"equal to {[0] * d + [1]}")
        matrix, offset = matrix[:d, :d], matrix[:d, d]
    if matrix.shape[0] != d:
        raise RuntimeError("affine matrix has wrong number of rows")
    if matrix.ndim == 2 and matrix.shape[1] != len(shape):
        raise RuntimeError("affine matrix has wrong number of columns")
    points = _move(matrix, each(as_operand(offset), d), shape)
    return fitted(_sample(x, points, order, mode, cval, prefilter), dtype)


def _move(matrix: Any, offset: Any, shape: Sequence[int]) -> list:
    """Coordinates of the points, rounded as SciPy's, which decides what is inside."""
    grids = _grids(shape)
    if matrix.ndim == 1:
        return [(g + b / a) * a for g, a, b in zip(grids, matrix, offset, strict=True)]
    return [sum([g * a for g, a in zip(grids, row, strict=True)]) + b
            for row, b in zip(matrix, offset, strict=True)]


@counterpart(si.shift)
def shift(input, shift, output=None, order=3, mode="constant", cval=0.0, prefilter=True):
    """The image moved by ``shift`` along each axis."""
    x, dtype = _prepare("shift", input, output, order, mode)
    points = [g - s for g, s in zip(_grids(x.shape), each(as_operand(shift), x.ndim), strict=True)]
    return fitted(_sample(x, points, order, mode, cval, prefilter), dtype)


@counterpart(si.zoom)
def zoom(input, zoom, output=None, order=3, mode="constant", cval=0.0, prefilter=True, *,
         grid_mode=False):
    """The image at as many points more as ``zoom`` says, a constant."""
    x, dtype = _prepare("zoom", input, output, order, mode)
    factors = each(zoom, x.ndim)
    if any(isinstance(z, Tracer) for z in factors):
        raise NotDifferentiable(
            f"{user_line()}: zoom got a traced factor, which chooses the shape of the result: "
            "it has no derivative. Take affine_transform, whose matrix has one."
        )
    if all(z == 1 for z in factors) and prefilter:
        return x.astype(dtype)
    if grid_mode and mode in ("constant", "wrap"):
        warn(f"It is recommended to use mode = grid-{mode} instead of {mode} when "
             "grid_mode is True.", UserWarning)
    shape = [round(n * z) for n, z in zip(x.shape, factors, strict=True)]
    less = 0 if grid_mode else 1
    points = []
    for g, n, m in zip(_grids(shape), x.shape, shape, strict=True):
        step = (n - less) / (m - less) if m != less else 1.0
        points.append((g + 0.5) * step - 0.5 if grid_mode else g * step)
    return fitted(_sample(x, points, order, mode, cval, prefilter), dtype)


@counterpart(si.rotate)
def rotate(input, angle, axes=(1, 0), reshape=True, output=None, order=3, mode="constant",
           cval=0.0, prefilter=True):
    """The image turned by an angle in degrees in the plane of two axes.

    With ``reshape`` its shape is that of the box around the image; the derivative in the angle is
    for this shape.
    """
    x, dtype = _prepare("rotate", input, output, order, mode)
    plane = sorted([one_axis(a, x.ndim) for a in axes]) if x.ndim > 1 else []
    if x.ndim < 2:
        raise ValueError("input array should be at least 2D")
    if len(plane) != 2:
        raise ValueError("axes should contain exactly two values")
    x = move_axis(x, plane, (-2, -1))
    inner = np.array(x.shape[-2:])
    shape = _bounds(angle, inner) if reshape else inner
    c, s = special.cosdg(angle), special.sindg(angle)
    rotation = np.stack([np.stack([c, s]), np.stack([-s, c])])
    offset = (inner - 1) / 2 - rotation @ ((shape - 1) / 2)
    points = _move(rotation, offset, [int(n) for n in shape])
    y = _sample(x, points, order, mode, cval, prefilter)
    return fitted(move_axis(y, (-2, -1), plane), dtype)


def _bounds(angle: Any, shape: np.ndarray) -> np.ndarray:
    """The shape of the box around a plane that is turned."""
    known = known_value(angle)
    if known is None:
        raise UnsupportedError(
            f"{user_line()}: rotate got an angle whose number is not known here, which says "
            "the shape of the result. Pass reshape=False."
        )
    c, s = special.cosdg(known), special.sindg(known)
    corners = np.array([[c, s], [-s, c]]) @ [[0, 0, shape[0], shape[0]], [0, shape[1], 0, shape[1]]]
    return (np.ptp(corners, axis=1) + 0.5).astype(int)
