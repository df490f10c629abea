"""Padding, resizing and resampling of images, and their pixels as channels."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from functrans.extend import AnyArray
from functrans.torch._functions.failures import WrongValue
from functrans.torch._functions.table import FUNCTIONS, NN, op, plain
from functrans.torch._tensors.tensor import Tensor


@op(space=NN, title="ConstantPadNdBackward0")
def pad(input, pad, mode="constant", value=None):
    """Entries added at both ends of the last dimensions, the last first; or taken away."""
    if len(pad) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    pairs = [(int(pad[2 * i]), int(pad[2 * i + 1])) for i in range(len(pad) // 2)][::-1]
    if len(pairs) > input.ndim:
        raise RuntimeError("Padding length should be less than or equal to two times the input "
                           f"dimension but got padding length {len(pad)} and input of dimension "
                           f"{input.ndim}")
    lead = input.ndim - len(pairs)
    if mode == "constant":
        inside = [slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in
                  zip(pairs, input.shape[lead:], strict=True)]
        x = input[(..., *inside)] if pairs else input
        widths = [(0, 0)] * lead + [(max(a, 0), max(b, 0)) for a, b in pairs]
        return np.pad(x, widths, constant_values=0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if lead not in (1, 2):
        raise NotImplementedError("Only 2D, 3D, 4D, 5D padding with non-constant padding are "
                                  "supported for now")
    for i, (a, b) in enumerate(pairs):
        if mode == "circular":  # what is taken away does not come back
            n = input.shape[lead + i]
            kept = slice(max(-a, 0), n - max(-b, 0))
            input = input[(slice(None),) * (lead + i) + (kept,)]
            a, b = max(a, 0), max(b, 0)
        n = input.shape[lead + i]
        places = _places(mode, n, max(a, 0), max(b, 0))
        input = np.take(input, places[max(-a, 0) : len(places) - max(-b, 0)], lead + i)
    return input


def _places(mode: str, n: int, before: int, after: int) -> np.ndarray:
    """Where the entries of a dimension come from, padded."""
    i = np.arange(-before, n + after)
    if mode == "replicate":
        return np.clip(i, 0, n - 1)
    if mode == "circular":
        if max(before, after) > n:
            raise RuntimeError("Padding value causes wrapping around more than once.")
        return i % n
    if max(before, after) >= n:
        raise RuntimeError("Padding size should be less than the corresponding input dimension, "
                           f"but got: padding ({before}, {after}) at a dimension of size {n}")
    return n - 1 - np.abs(n - 1 - np.abs(i)) if n > 1 else i * 0


FUNCTIONS["constant_pad_nd"] = op(
    lambda input, pad, value=0: NN["pad"].body(input, pad, "constant", value), method=False,
    name="constant_pad_nd")

# ---- resizing


def _line(n: int, m: int, aligned: bool, scale: float | None) -> np.ndarray:
    """Where ``m`` new places lie among ``n`` old ones."""
    if aligned:
        return np.arange(m) * ((n - 1) / (m - 1) if m > 1 else 0.0)
    ratio = n / m if scale is None else 1 / scale
    return (np.arange(m) + 0.5) * ratio - 0.5


def _linear(n: int, m: int, aligned: bool, scale: float | None) -> np.ndarray:
    at = np.maximum(_line(n, m, aligned, scale), 0)
    low = np.minimum(at.astype(np.int64), n - 1)
    part = at - low
    weights = np.zeros((m, n))
    rows = np.arange(m)
    np.add.at(weights, (rows, low), 1 - part)
    np.add.at(weights, (rows, np.minimum(low + 1, n - 1)), part)
    return weights


def _cubic(n: int, m: int, aligned: bool, scale: float | None) -> np.ndarray:
    at = _line(n, m, aligned, scale)
    low = np.floor(at).astype(np.int64)
    weights = np.zeros((m, n))
    for k in range(-1, 3):
        d = np.abs(at - (low + k))
        np.add.at(weights, (np.arange(m), np.clip(low + k, 0, n - 1)),
                  np.where(d <= 1, _near(d), _far(d)))
    return weights


def _area(n: int, m: int, aligned: bool, scale: float | None) -> np.ndarray:
    weights = np.zeros((m, n))
    for i in range(m):
        a, b = i * n // m, -(-(i + 1) * n // m)
        weights[i, a:b] = 1 / (b - a)
    return weights


_WEIGHTS = {"linear": _linear, "bilinear": _linear, "trilinear": _linear, "bicubic": _cubic,
            "area": _area}
_DIMENSIONS = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}


def _lengths(x: Any, size: Any, factors: Any) -> tuple[list, list]:
    """The new lengths, and the scales by which they were given."""
    n = x.ndim - 2
    if (size is None) == (factors is None):
        raise WrongValue("either size or scale_factor should be defined"
                         if size is None else "only one of size or scale_factor should be defined")
    if size is not None:
        return [int(size)] * n if isinstance(size, int) else [int(s) for s in size], [None] * n
    many = [float(factors)] * n if isinstance(factors, float | int) else list(map(float, factors))
    return [math.floor(s * f) for s, f in zip(x.shape[2:], many, strict=True)], many


@op(space=NN)
def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None,
                recompute_scale_factor=None, antialias=False):
    """Images in another size: nearest, linear, bilinear, bicubic, trilinear or area."""
    if antialias:
        raise NotImplementedError("interpolate: antialias is not supported; smooth the input "
                                  "with avg_pool2d or conv2d first")
    if mode in ("nearest", "area", "nearest-exact") and align_corners is not None:
        raise WrongValue("align_corners option can only be set with the interpolating modes: "
                         "linear | bilinear | bicubic | trilinear")
    lengths, scales = _lengths(input, size, scale_factor)
    if recompute_scale_factor:
        scales = [None] * len(scales)
    if mode not in _WEIGHTS and mode not in ("nearest", "nearest-exact"):
        raise NotImplementedError(f"interpolate: there is no mode {mode!r}")
    if _DIMENSIONS.get(mode, input.ndim - 2) != input.ndim - 2:
        raise NotImplementedError(f"Got {input.ndim}D input, but {mode} mode needs "
                                  f"{_DIMENSIONS[mode] + 2}D input")
    for i, (m, scale) in enumerate(zip(lengths, scales, strict=True)):
        input = _resize(input, 2 + i, m, scale, mode, bool(align_corners))
    return input


def _resize(x: Any, axis: int, m: int, scale: float | None, mode: str, aligned: bool) -> AnyArray:
    n = x.shape[axis]
    if mode in ("nearest", "nearest-exact"):
        ratio = np.float32(n / m) if scale is None else np.float32(1 / scale)
        shift = np.float32(0.5 if mode != "nearest" else 0)
        at = np.floor((np.arange(m, dtype=np.float32) + shift) * ratio).astype(np.int64)
        return np.take(x, np.minimum(at, n - 1), axis)
    weights = _WEIGHTS[mode](n, m, aligned, scale).astype(x.dtype)
    return np.moveaxis(np.matmul(np.moveaxis(x, axis, -1), weights.T), -1, axis)


def upsample(input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
             align_corners: Any = None) -> Tensor:
    """The old name of ``interpolate``."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Tensor:
    """Images in another size, by the nearest pixel."""
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Tensor:
    """Images in another size, by two linear interpolations, corner to corner."""
    return interpolate(input, size, scale_factor, "bilinear", True)


# ---- pixels as channels


@op(space=FUNCTIONS)
def pixel_shuffle(input, upscale_factor):
    """Channels as pixels: (c r r, h, w) becomes (c, h r, w r)."""
    r, (*lead, c, h, w) = upscale_factor, input.shape
    if c % (r * r):
        raise RuntimeError("pixel_shuffle expects its input's 'channel' dimension to be divisible "
                           f"by the square of upscale_factor, but got {c} channels")
    k = len(lead)
    x = input.reshape((*lead, c // (r * r), r, r, h, w))
    x = x.transpose((*range(k), k, k + 3, k + 1, k + 4, k + 2))
    return x.reshape((*lead, c // (r * r), h * r, w * r))


@op(space=FUNCTIONS)
def pixel_unshuffle(input, downscale_factor):
    """Pixels as channels: (c, h r, w r) becomes (c r r, h, w)."""
    r, (*lead, c, h, w) = downscale_factor, input.shape
    if h % r or w % r:
        raise RuntimeError(f"pixel_unshuffle expects height and width to be divisible by "
                           f"downscale_factor, but {h} by {w} is not divisible by {r}")
    k = len(lead)
    x = input.reshape((*lead, c, h // r, r, w // r, r))
    x = x.transpose((*range(k), k, k + 2, k + 4, k + 1, k + 3))
    return x.reshape((*lead, c * r * r, h // r, w // r))


@op(space=FUNCTIONS)
def channel_shuffle(input, groups):
    """Channels of groups interleaved."""
    n, c, *rest = input.shape
    return input.reshape((n, groups, c // groups, *rest)).swapaxes(1, 2).reshape(input.shape)


# ---- resampling


@op(space=NN)
def affine_grid(theta, size, align_corners=None):
    """Where the pixels of images come from under affine maps, from -1 to 1."""
    n = len(size) - 2
    lines = []
    for length in size[2:]:
        line = np.linspace(-1, 1, length) if length > 1 else np.zeros(1)
        lines.append(line if align_corners else line * (length - 1) / length)
    grids = np.meshgrid(*lines, indexing="ij")
    base = np.stack([*grids[::-1], np.ones_like(grids[0])], -1).astype(theta.dtype)
    y = np.matmul(base.reshape((-1, n + 1)), np.swapaxes(theta, 1, 2))
    return y.reshape((size[0], *size[2:], n))


def _reflect(at: Any, n: int, aligned: bool) -> np.ndarray:
    low, high = (0, n - 1) if aligned else (-0.5, n - 0.5)
    if high <= low:
        return at * 0
    away = np.absolute(at - low)
    turns = np.floor(plain(away) / (high - low))
    rest = away - turns * (high - low)
    at = np.where(turns % 2 == 0, rest + low, high - rest)
    return np.clip(at, 0, n - 1)


@op(space=NN, names="grid_sampler")
def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """Images at places from -1 to 1, interpolated: bilinear, nearest or bicubic."""
    n = input.ndim - 2
    if (mode, padding_mode) not in _KNOWN or (mode == "bicubic" and n != 2):
        raise NotImplementedError(f"grid_sample: mode {mode!r} with padding {padding_mode!r} is "
                                  f"not supported for {n} dimensions")
    lengths, at, aligned = input.shape[2:], [], bool(align_corners)
    for i, length in enumerate(lengths):
        x = grid[..., n - 1 - i] + 1
        x = x / 2 * (length - 1) if aligned else (x * length - 1) / 2
        if mode == "bicubic":
            pass  # each of the neighbours is moved inside, not what is between them
        elif padding_mode == "border":
            x = np.where(x <= 0, 0, np.where(x >= length - 1, length - 1, x)).astype(grid.dtype)
        elif padding_mode == "reflection":
            x = _reflect(x, length, aligned)
        at.append(x)
    if mode == "nearest":
        y = _gather(input, [np.rint(plain(x)).astype(np.int64) for x in at], lengths)
        return np.where(np.ones((), bool), y, np.sum(grid))  # which has no slope in the grid
    low = [np.floor(plain(x)) for x in at]  # in the type of the grid, as the weights shall be
    reach = range(-1, 3) if mode == "bicubic" else range(2)
    height = _cubic_weight if mode == "bicubic" else _linear_weight
    total = None
    for corner in itertools.product(reach, repeat=n):
        weight: Any = 1
        for c, x, k in zip(corner, at, low, strict=True):
            weight = weight * height(x - k, c)
        places = [_inside(k + c, length, padding_mode, aligned)
                  for k, c, length in zip(low, corner, lengths, strict=True)]
        part = _gather(input, places, lengths)
        part = part * weight[:, None]
        total = part if total is None else total + part
    return total


_KNOWN = {(m, p) for m in ("bilinear", "nearest", "bicubic")
          for p in ("zeros", "border", "reflection")}


def _linear_weight(t: Any, c: int) -> AnyArray:
    """Of the pixel ``c`` from that below, at ``t`` between the two."""
    return t if c else 1 - t


def _cubic_weight(t: Any, c: int) -> AnyArray:
    """Of the pixel ``c`` from that below, one of four, at ``t`` between the inner two."""
    d = {-1: 1 + t, 0: t, 1: 1 - t, 2: 2 - t}[c]
    return _near(d) if c in (0, 1) else _far(d)


def _near(d: Any, a: float = -0.75) -> AnyArray:
    return ((a + 2) * d - (a + 3)) * d * d + 1


def _far(d: Any, a: float = -0.75) -> AnyArray:
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a


def _inside(k: np.ndarray, n: int, padding_mode: str, aligned: bool) -> np.ndarray:
    """Whole places, moved inside as ``padding_mode`` says."""
    if padding_mode == "reflection":
        k = _reflect(k, n, aligned)
    return (np.clip(k, 0, n - 1) if padding_mode == "border" else k).astype(np.int64)


def _gather(x: Any, at: list, lengths: Any) -> AnyArray:
    """The pixels at whole places, 0 outside."""
    inside = np.ones(at[0].shape, bool)
    for k, length in zip(at, lengths, strict=True):
        inside &= (k >= 0) & (k < length)
    key = [np.clip(k, 0, length - 1) for k, length in zip(at, lengths, strict=True)]
    batch = np.arange(x.shape[0]).reshape((-1, *[1] * (at[0].ndim - 1)))
    y = np.moveaxis(np.moveaxis(x, 1, -1)[(batch, *key)], -1, 1)
    return np.where(inside[:, None], y, 0)


NN.update(pixel_shuffle=FUNCTIONS["pixel_shuffle"], pixel_unshuffle=FUNCTIONS["pixel_unshuffle"],
          channel_shuffle=FUNCTIONS["channel_shuffle"], upsample=upsample,
          upsample_nearest=upsample_nearest, upsample_bilinear=upsample_bilinear)
