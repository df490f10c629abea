"""Decompositions by LAPACK of matrices that need not be finite.

LAPACK's svd of a matrix with inf never returns. For NaN, NumPy raises or returns NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.bind import is_finite


def svd(x: np.ndarray, full_matrices: bool = True) -> tuple:
    _require_finite(x)
    return tuple(np.linalg.svd(x, full_matrices))


def svd_for_values(x: np.ndarray) -> tuple:
    """The thin svd; NaN of matrices with inf, as NumPy's singular values are."""
    if np.isnan(x).any():
        _require_finite(x)
    return _where_finite(lambda x: np.linalg.svd(x, full_matrices=False), x)


def svd_or_nan(x: np.ndarray) -> tuple:
    """The svd, NaN of matrices that are not finite: for rules, whose value is NaN already."""
    return _where_finite(np.linalg.svd, x)


def eigh_or_nan(x: np.ndarray) -> tuple:
    """The same of Hermitian matrices."""
    return _where_finite(np.linalg.eigh, x)


def pinv(x: np.ndarray, rcond: float) -> np.ndarray:
    _require_finite(x)
    return np.linalg.pinv(x, rcond)


def _all_finite(x):
    return is_finite(x) or bool(np.isfinite(x).all())


def _require_finite(x):
    if not _all_finite(x):
        raise np.linalg.LinAlgError("SVD did not converge")


def _where_finite(f: Callable[[Any], Any], x: np.ndarray) -> tuple:
    """``f`` of each matrix that is finite, NaN of the others."""
    if _all_finite(x):
        return tuple(f(x))
    finite = np.asarray(np.isfinite(x).all(axis=(-2, -1)))
    return tuple([
        np.where(finite.reshape(finite.shape + (1,) * (y.ndim - finite.ndim)), y, np.nan)
        for y in f(np.where(finite[..., None, None], x, 0))
    ])
