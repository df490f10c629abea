"""Discrete cosine and sine transforms, of types 1 to 4.

An inverse is the transform of the other type with the norm that undoes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple
from scipy import fft as theirs

from functrans._core.bind import AnyArray, bind
from functrans._ops.fourier import PARTNER, SWAPPED, trigonometric
from functrans.numpy.structure import as_floats, as_operand
from functrans.scipy.public import published


def _resize(x: Any, axis: int, n: int) -> AnyArray:
    """``x`` cut or padded with zeros to the length ``n``."""
    if n < 1:
        raise ValueError(f"invalid number of data points ({n}) specified")
    length = x.shape[axis]
    if n <= length:
        return x[(*[slice(None)] * axis, slice(n))]
    return np.pad(x, [(0, n - length if i == axis else 0) for i in range(x.ndim)])


def _transform(kind: str, inverse: bool, x: Any, type: int, axis: int, norm: Any,
                 orthogonalize: Any) -> AnyArray:
    if type not in PARTNER:
        raise ValueError(f"invalid type ({type}) given, must be 1, 2, 3 or 4")
    norm = "backward" if norm is None else norm
    if norm not in SWAPPED:
        raise ValueError(f"Invalid norm value {norm!r}, should be 'backward', 'ortho' or "
                         "'forward'")
    if kind == "dct" and type == 1 and x.shape[axis] < 2:
        raise ValueError("DCT-I is not defined for size < 2")
    if orthogonalize is None or x.dtype.kind == "c":  # SciPy drops it for complex numbers
        orthogonalize = norm == "ortho"
    if inverse:
        type, norm = PARTNER[type], SWAPPED[norm]
    x = as_floats(x)
    return bind(trigonometric, x, kind=kind, type=type, axis=axis, norm=norm,
                orthogonalize=bool(orthogonalize))


def _single(kind: str, inverse: bool) -> Callable:
    def transform(x, type=2, n=None, axis=-1, norm=None, overwrite_x=False, workers=None,
                  orthogonalize=None):
        x = as_operand(x)
        axis = normalize_axis_index(axis, x.ndim)
        x = x if n is None else _resize(x, axis, n)
        return _transform(kind, inverse, x, type, axis, norm, orthogonalize)

    return published(theirs, f"{'i' * inverse}{kind}", transform)


def _several(kind: str, inverse: bool) -> Callable:
    def transform(x, type=2, s=None, axes=None, norm=None, overwrite_x=False, workers=None, *,
                  orthogonalize=None):
        x = as_operand(x)
        if axes is None:
            axes = range(x.ndim) if s is None else range(x.ndim - np.size(s), x.ndim)
        axes = normalize_axis_tuple(axes, x.ndim)
        for i, axis in enumerate(axes):
            x = x if s is None else _resize(x, axis, np.ravel(s)[i])
            x = _transform(kind, inverse, x, type, axis, norm, orthogonalize)
        return x

    return published(theirs, f"{'i' * inverse}{kind}n", transform)


dct, idct, dst, idst = [_single(k, i) for k in ("dct", "dst") for i in (False, True)]
dctn, idctn, dstn, idstn = [_several(k, i) for k in ("dct", "dst") for i in (False, True)]
