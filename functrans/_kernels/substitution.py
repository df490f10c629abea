"""Substitution with one triangle, by the BLAS that NumPy is linked to."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import numpy as np

from functrans._kernels import routines


def substituted(a: np.ndarray, b: np.ndarray, lower: bool, unit: bool) -> np.ndarray | None:
    """The solution of ``a @ x = b`` with the triangle of ``a``; None where BLAS is not at hand.

    Both are matrices. LinAlgError where the diagonal has a zero.
    """
    call = _trsm()
    if call is None or a.ndim != 2 or b.ndim != 2 or not (a.dtype.char == b.dtype.char == "d"):
        return None
    if not unit and not a.diagonal().all():
        raise np.linalg.LinAlgError("Singular matrix")
    by_columns = a.flags.f_contiguous
    a = a if by_columns else np.require(a, None, ["C", "A"])
    x = np.array(b, order="C")
    if x.size:
        # BLAS goes by columns: to it x is its transpose, and so is a that goes by rows
        n, width = (ctypes.c_int64(k) for k in x.shape)
        upper = lower != by_columns
        call(b"R", b"U" if upper else b"L", b"T" if by_columns else b"N", b"U" if unit else b"N",
             width, n, ctypes.c_double(1.0), _address(a), n, _address(x), width)
    return x


def _address(x: np.ndarray) -> int:
    return x.__array_interface__["data"][0]


@functools.cache
def _trsm() -> Callable | None:
    found = routines.of_numpy()
    if found is None:
        return None
    integer, number = ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_double)
    array = ctypes.c_void_p
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_char_p] * 4, integer, integer, number, array, integer,
                            array, integer)
    return kind(found.addresses[f"{routines.PREFIX}dtrsm"])
