"""Rows of the discrete Fourier transform, and of modified Bessel functions, for its windows."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from functrans._core.array import Aval
from functrans._core.bind import AnyArray, bind, cast
from functrans._ops.declare import elementwise, linear
from functrans._ops.elementwise import conjugate

# ---- Rows of the discrete Fourier transform, along one axis whose length does not change
#
# The matrix of the complex transform is symmetric: it is its own transpose, in both directions and
# with any norm. The real transforms leave out the half of the spectrum that the other half implies,
# so entries that stand for two count twice in one of the two directions.

# The norm with which the other direction has the same factor.
SWAPPED = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


@functools.cache
def _dtype_of_result(transform, dtype):
    return transform(np.ones(2, dtype)).dtype


fft = linear(
    "fft",
    lambda x, axis, norm, inverse: (np.fft.ifft if inverse else np.fft.fft)(
        x, axis=axis, norm=norm),
    lambda ct, x, axis, norm, inverse: cast(
        bind(fft, ct, axis=axis, norm=norm, inverse=inverse), x.dtype
    ),
    batch=lambda size, xs, batched, axis, norm, inverse: bind(
        fft, xs[0], axis=axis + 1, norm=norm, inverse=inverse
    ),
    abstract=lambda x, axis, norm, inverse: Aval(x.shape, _dtype_of_result(np.fft.fft, x.dtype)),
)


@functools.cache
def _ends(n: int, inside: float, behind: int, dtype: np.dtype) -> np.ndarray:
    """The half spectrum of ``n`` numbers: 1 at frequencies 0 and n/2, ``inside`` at those between.

    With ``behind`` axes of length 1 after it.
    """
    y = np.full(n // 2 + 1, inside, np.real(np.empty(0, dtype)).dtype)
    y[0] = 1
    if n % 2 == 0:
        y[-1] = 1
    y.setflags(write=False)
    return y.reshape((-1,) + (1,) * behind)


def _resize(shape, axis, n):
    return (*shape[:axis], n, *shape[axis + 1 :])


def _rfft_transpose(ct, x, axis, norm):
    n = x.shape[axis]
    ct = conjugate(ct) * _ends(n, 0.5, len(x.shape) - axis - 1, ct.dtype)
    return cast(bind(irfft, ct, n=n, axis=axis, norm=SWAPPED[norm]), x.dtype)


# row: half the work and half the memory of fft
rfft = linear(
    "rfft", lambda x, axis, norm: np.fft.rfft(x, axis=axis, norm=norm), _rfft_transpose,
    batch=lambda size, xs, batched, axis, norm: bind(rfft, xs[0], axis=axis + 1, norm=norm),
    abstract=lambda x, axis, norm: Aval(
        _resize(x.shape, axis, x.shape[axis] // 2 + 1), _dtype_of_result(np.fft.rfft, x.dtype)
    ),
)


def _irfft_transpose(ct, x, n, axis, norm):
    y = conjugate(bind(rfft, ct, axis=axis, norm=SWAPPED[norm]))
    return cast(y * _ends(n, 2.0, len(x.shape) - axis - 1, y.dtype), x.dtype)


# row: from n // 2 + 1 frequencies to n real numbers; half the work and half the memory of fft
irfft = linear(
    "irfft", lambda x, n, axis, norm: np.fft.irfft(x, n, axis, norm), _irfft_transpose,
    batch=lambda size, xs, batched, n, axis, norm: bind(
        irfft, xs[0], n=n, axis=axis + 1, norm=norm
    ),
    abstract=lambda x, n, axis, norm: Aval(
        _resize(x.shape, axis, n), _dtype_of_result(np.fft.irfft, x.dtype)
    ),
)


# ---- cosine and sine transforms

# The type of the transpose, up to weights at the ends; types 1 and 4 are symmetric.
PARTNER = {1: 1, 2: 3, 3: 2, 4: 4}


def _trigonometric(x: Any, kind: str, type: int, axis: int, norm: str,
                   orthogonalize: bool) -> AnyArray:
    from scipy import fft as theirs  # lazy: slow to import

    return getattr(theirs, kind)(x, type, axis=axis, norm=norm, orthogonalize=orthogonalize)


@functools.cache
def _trigonometric_dtype(dtype: np.dtype) -> np.dtype:
    return _trigonometric(np.ones(2, dtype), "dct", 2, 0, "backward", False).dtype


@functools.cache
def _weights(kind: str, type: int, n: int, behind: int, dtype: np.dtype) -> np.ndarray:
    """Half of the weights that the entries have in a sum, with ``behind`` axes of length 1."""
    w = np.ones(n, dtype)
    if kind == "dct":
        w[0] = 0.5
    if kind == "dst" or type == 1:
        w[-1] = 0.5
    w.setflags(write=False)
    return w.reshape((-1,) + (1,) * behind)


def _trigonometric_transpose(
    ct: Any, x: Any, kind: str, type: int, axis: int, norm: str, orthogonalize: bool
) -> AnyArray:
    transform = functools.partial(bind, trigonometric, kind=kind, type=PARTNER[type], axis=axis,
                                  norm=norm, orthogonalize=orthogonalize)
    if orthogonalize or type == 4 or (kind, type) == ("dst", 1):
        return transform(ct)
    dtype = np.zeros(0, ct.dtype).real.dtype
    w = _weights(kind, type, x.shape[axis], len(x.shape) - axis - 1, dtype)
    if type == 2:
        return transform(ct / w)
    return w * transform(ct if type == 3 else ct / w)


# row: by a Fourier transform of twice the length it takes twice as long, and more memory
trigonometric = linear(
    "fft.trigonometric", _trigonometric, _trigonometric_transpose,
    batch=lambda size, xs, batched, axis, **params: bind(
        trigonometric, xs[0], axis=axis + 1, **params
    ),
    abstract=lambda x, **params: Aval(x.shape, _trigonometric_dtype(x.dtype)),
)


# ---- Modified Bessel functions. Source: Abramowitz and Stegun (1964), section 9.6


def _bessel_i(x, n):
    x = np.asarray(x)
    if np.ndim(n) == 0 and n == 0 and x.dtype.kind == "f":
        return np.i0(x)[()]
    from scipy.special import iv  # lazy: slow to import

    wide = x if x.dtype.char in "fdFD" else x.astype(complex if x.dtype.kind == "c" else float)
    return iv(n, wide).astype(x.dtype)[()]


# row: I_n, whose slope (I_(n-1) + I_(n+1)) / 2 is exact to any order, at 0 too (9.6.26)
bessel_i = elementwise(
    "bessel_i", _bessel_i,
    lambda g, x1, x2: g * ((bessel_i(x1, x2 - 1) + bessel_i(x1, x2 + 1)) / 2), None,
    singular=True, whole=(1,),
)
