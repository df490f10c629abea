"""``numpy.fft`` on traced values: the rows along one axis, one axis after another."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.bind import AnyArray, bind
from functrans._ops import elementwise as ops
from functrans._ops import fourier as rows
from functrans._ops import indexing
from functrans._ops.declare import Linear
from functrans._ops.structure import along
from functrans.errors import warn
from functrans.numpy.arrange import roll
from functrans.numpy.structure import as_operand, normalize_axes, numpy_like, one_axis

# ---- along one axis


def _norm(norm: str | None) -> str:
    if norm is None:
        return "backward"
    if norm not in rows.SWAPPED:
        raise ValueError(
            f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".'
        )
    return norm


def _length(n: Any) -> int:
    n = operator.index(n)
    if n < 1:
        raise ValueError(f"Invalid number of FFT data points ({n}) specified.")
    return n


def _fit(x: Any, n: int, axis: int) -> AnyArray:
    """``x`` with ``n`` entries along ``axis``: truncated, or padded with zeros at the end."""
    have = x.shape[axis]
    if n <= have:
        return x if n == have else x[along(axis, slice(n))]
    shape = (*x.shape[:axis], n, *x.shape[axis + 1 :])
    pattern = tuple([(0, have, None) if i == axis else indexing.WHOLE for i in range(x.ndim)])
    return bind(indexing.put_add, x, pattern=pattern, shape=shape)


def _transform(row: Linear, a: Any, n: Any, axis: int, norm: str | None, **params: Any) -> AnyArray:
    a = as_operand(a)
    axis = one_axis(axis, a.ndim)
    n = _length(a.shape[axis] if n is None else n)
    return bind(row, _fit(a, n, axis), axis=axis, norm=_norm(norm), **params)


@numpy_like(np.fft.fft)
def fft(a, n=None, axis=-1, norm=None, out=None):
    """Discrete Fourier transform along ``axis``, truncated or zero-padded to length ``n``.

    >>> import functrans as ft, numpy as np
    >>> power = lambda x: np.sum(np.abs(np.fft.fft(x, norm="ortho")) ** 2)
    >>> ft.grad(power)(np.array([1.0, 2.0]))
    Array([2., 4.])
    """
    return _transform(rows.fft, a, n, axis, norm, inverse=False)


@numpy_like(np.fft.ifft)
def ifft(a, n=None, axis=-1, norm=None, out=None):
    """The inverse of ``fft``."""
    return _transform(rows.fft, a, n, axis, norm, inverse=True)


@numpy_like(np.fft.rfft)
def rfft(a, n=None, axis=-1, norm=None, out=None):
    """The first half of the transform of real numbers; the other half follows by symmetry."""
    return _transform(rows.rfft, a, n, axis, norm)


@numpy_like(np.fft.irfft)
def irfft(a, n=None, axis=-1, norm=None, out=None):
    """The inverse of ``rfft``: ``n`` real numbers, by default an even number.

    The imaginary parts at frequency 0, and at n/2 for even n, have no effect.
    """
    a = as_operand(a)
    axis = one_axis(axis, a.ndim)
    n = _length(2 * (a.shape[axis] - 1) if n is None else n)
    return bind(rows.irfft, _fit(a, n // 2 + 1, axis), n=n, axis=axis, norm=_norm(norm))


@numpy_like(np.fft.hfft)
def hfft(a, n=None, axis=-1, norm=None, out=None):
    """The real transform of numbers whose second half is the conjugate of the first."""
    a = as_operand(a)
    a = ops.conjugate(a) if a.dtype.kind == "c" else a
    return irfft(a, n, axis, rows.SWAPPED[_norm(norm)])


@numpy_like(np.fft.ihfft)
def ihfft(a, n=None, axis=-1, norm=None, out=None):
    """The inverse of ``hfft``."""
    return ops.conjugate(rfft(a, n, axis, rows.SWAPPED[_norm(norm)]))


# ---- along several


def _plan(a: Any, s: Any, axes: Any, half: bool) -> tuple[list, list]:
    """Lengths and axes, one for each transform; with ``half`` the last axis is half a spectrum."""
    if axes is None and s is not None:
        text = "lengths `s` without `axes` are deprecated in NumPy; name the axes"
        warn(text, DeprecationWarning)
        axes = range(-len(s), 0)
    axes = list(range(a.ndim) if axes is None else map(operator.index, axes))
    if s is None:
        lengths: list = [a.shape[i] for i in axes]
        if half:
            lengths[-1] = 2 * (lengths[-1] - 1)
    else:
        lengths = [a.shape[i] if n == -1 else n for n, i in zip(s, axes, strict=False)]
    if len(lengths) != len(axes) or (s is not None and len(s) != len(axes)):
        raise ValueError("Shape and axes have different lengths.")
    return lengths, axes


def _each(transform: Callable, a: Any, lengths: list, axes: list, norm: str | None) -> AnyArray:
    for n, axis in reversed(list(zip(lengths, axes, strict=True))):
        a = transform(a, n, axis, norm)
    return a


@numpy_like(np.fft.fftn)
def fftn(a, s=None, axes=None, norm=None, out=None):
    """Transform along several axes, by default all, truncated or zero-padded to lengths ``s``."""
    a = as_operand(a)
    return _each(fft, a, *_plan(a, s, axes, False), norm)


@numpy_like(np.fft.ifftn)
def ifftn(a, s=None, axes=None, norm=None, out=None):
    """The inverse of ``fftn``."""
    a = as_operand(a)
    return _each(ifft, a, *_plan(a, s, axes, False), norm)


@numpy_like(np.fft.rfftn)
def rfftn(a, s=None, axes=None, norm=None, out=None):
    """``rfft`` along the last of several axes, ``fft`` along the others."""
    a = as_operand(a)
    lengths, axes = _plan(a, s, axes, False)
    return _each(fft, rfft(a, lengths[-1], axes[-1], norm), lengths[:-1], axes[:-1], norm)


@numpy_like(np.fft.irfftn)
def irfftn(a, s=None, axes=None, norm=None, out=None):
    """The inverse of ``rfftn``."""
    a = as_operand(a)
    lengths, axes = _plan(a, s, axes, True)
    a = _each(ifft, a, lengths[-2::-1], axes[-2::-1], norm)
    return irfft(a, lengths[-1], axes[-1], norm)


def _of_two_axes(name: str, transform: Callable) -> Callable:
    @numpy_like(getattr(np.fft, name),
                doc=f"``{transform.__name__}`` along two axes, by default the last.")
    def named(a, s=None, axes=(-2, -1), norm=None, out=None):
        return transform(a, s, axes, norm)

    return named


fft2, ifft2 = _of_two_axes("fft2", fftn), _of_two_axes("ifft2", ifftn)
rfft2, irfft2 = _of_two_axes("rfft2", rfftn), _of_two_axes("irfft2", irfftn)

# ---- frequencies


@numpy_like(np.fft.fftshift)
def fftshift(x, axes=None):
    """``x`` with frequency 0 in the middle."""
    return _shift(x, axes, 1)


@numpy_like(np.fft.ifftshift)
def ifftshift(x, axes=None):
    """The inverse of ``fftshift``."""
    return _shift(x, axes, -1)


def _shift(x, axes, sign):
    x = as_operand(x)
    axes = tuple(range(x.ndim)) if axes is None else normalize_axes(axes, x.ndim)
    return roll(x, [sign * (x.shape[i] // 2) for i in axes], axes)


# NumPy's own, in which a traced spacing works


@functools.wraps(np.fft.fftfreq)
def fftfreq(n, d=1.0, **options):
    return np.fft.fftfreq(operator.index(n), d, **options)


@functools.wraps(np.fft.rfftfreq)
def rfftfreq(n, d=1.0, **options):
    return np.fft.rfftfreq(operator.index(n), d, **options)


ALSO = ("fftfreq", "rfftfreq")
