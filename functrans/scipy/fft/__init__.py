"""``scipy.fft``'s names on plain arrays and traced values.

Fourier transforms are NumPy's; cosine and sine transforms are SciPy's, whose transposes are of
their kind.

>>> import functrans as ft, numpy as np
>>> from functrans.scipy import fft
>>> ft.grad(lambda x: np.sum(np.abs(fft.rfft(x)) ** 2))(np.array([1.0, 2.0, 3.0]))
Array([ 9., 12., 15.])
"""

from __future__ import annotations

import types as _types
from collections.abc import Callable as _Callable
from typing import Any as _Any

import numpy as _np
from scipy import fft as _theirs

from functrans.numpy.structure import as_operand as _as_operand
from functrans.scipy.fft import trigonometric as _trigonometric
from functrans.scipy.public import namespace as _namespace
from functrans.scipy.public import published as _published


def _single(name: str) -> _Callable:
    """A transform along one axis; how it is computed (``workers``, ``plan``) does not matter."""
    numpy_s = getattr(_np.fft, name)

    def transform(x, n=None, axis=-1, norm=None, overwrite_x=False, workers=None, *, plan=None):
        return numpy_s(_as_operand(x), n, axis, norm)

    return transform


def _several(name: str) -> _Callable:
    """A transform along several axes, the last ones of which there are as many as in ``s``."""
    numpy_s = getattr(_np.fft, name)
    default = (-2, -1) if name.endswith("2") else None

    def transform(x, s=None, axes=default, norm=None, overwrite_x=False, workers=None, *,
                  plan=None):
        if axes is None and s is not None:
            axes = tuple(range(-len(s), 0))
        return numpy_s(_as_operand(x), s, axes, norm)

    return transform


def _shift(name: str) -> _Callable:
    numpy_s = getattr(_np.fft, name)

    def shift(x: _Any, axes: _Any = None) -> _Any:
        return numpy_s(_as_operand(x), axes)

    return shift


def _functions() -> _types.ModuleType:
    """The functions as a module."""
    kinds = {
        _single: ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"],
        _several: ["fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"],
        _shift: ["fftshift", "ifftshift"],
    }
    functions: _Any = _types.ModuleType(f"{__name__}.functions")
    for make, names in kinds.items():
        for name in names:
            setattr(functions, name, _published(_theirs, name, make(name)))
    return functions


__all__, __getattr__, __dir__ = _namespace(
    _theirs, globals(), _functions(), _trigonometric
)
