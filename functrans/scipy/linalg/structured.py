"""Matrices of a structure after ``scipy.linalg``, and products with them."""

from __future__ import annotations

import numpy as np
from scipy import linalg as sl

from functrans.numpy.structure import as_operand
from functrans.scipy.linalg.systems import toeplitz
from functrans.scipy.public import counterpart


@counterpart(sl.companion)
def companion(a):
    """The matrix whose characteristic polynomial has the coefficients ``a``, the highest first."""
    a = as_operand(a)
    n = a.shape[-1]
    first = -a[..., 1:] / a[..., :1]
    below = np.broadcast_to(np.eye(n - 2, n - 1), (*a.shape[:-1], n - 2, n - 1))
    return np.concatenate([first[..., None, :], below], axis=-2)


@counterpart(sl.leslie)
def leslie(f, s):
    """The matrix of a population's growth: births ``f`` in its first row, survival ``s`` below."""
    f, s = as_operand(f), as_operand(s)
    survival = s[..., None] * np.eye(s.shape[-1], f.shape[-1])
    return np.concatenate([f[..., None, :], survival], axis=-2)


@counterpart(sl.fiedler)
def fiedler(a):
    """The matrix of the distances of numbers."""
    a = as_operand(a)
    return np.abs(a[..., :, None] - a[..., None, :])


@counterpart(sl.convolution_matrix)
def convolution_matrix(a, n, mode="full"):
    """The matrix that convolves vectors of length ``n`` with ``a``."""
    a = as_operand(a)
    if n <= 0 or a.shape[-1] == 0:
        sl.convolution_matrix(np.zeros(a.shape), n, mode)  # raises
    whole = toeplitz(np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, n - 1)]),
                     a[..., :1] * np.eye(1, n)[0])
    less = min(n, a.shape[-1]) - 1
    cut = {"full": (0, 0), "same": (less // 2, less - less // 2), "valid": (less, less)}
    if mode not in cut:
        raise ValueError("'mode' argument must be one of ('full', 'valid', 'same')")
    before, after = cut[mode]
    return whole[..., before : whole.shape[-2] - after, :]


@counterpart(sl.matmul_toeplitz)
def matmul_toeplitz(c_or_cr, x, check_finite=False, workers=None):
    """The product of the matrix with constant diagonals and ``x``."""
    c, r = c_or_cr if isinstance(c_or_cr, tuple) else (c_or_cr, None)
    return toeplitz(as_operand(c), r) @ as_operand(x)


@counterpart(sl.khatri_rao)
def khatri_rao(a, b):
    """The Kronecker products of the columns of ``a`` with those of ``b``."""
    a, b = as_operand(a), as_operand(b)
    if a.shape[-1] != b.shape[-1]:
        raise ValueError("The number of columns for both arrays should be equal.")
    product = a[..., :, None, :] * b[..., None, :, :]
    return product.reshape((*product.shape[:-3], -1, a.shape[-1]))
