"""Operators of a traced value and a sparse array: those of ``functrans.scipy.sparse``."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from functrans._core.bind import Tracer


def is_sparse(x: Any) -> bool:
    """Whether ``x`` is a sparse array, of SciPy's or with traced entries."""
    if type(x) is np.ndarray or isinstance(x, Tracer):
        return False
    return hasattr(x, "tocsr")


def with_sparse(operator: str, x: Tracer, other: Any) -> Any:
    """``x @ other`` of the operator "matmul", ``other @ x`` of "rmatmul", and so on."""
    # by name: SciPy's sparse arrays are loaded where there are some
    arrays = importlib.import_module("functrans.scipy.sparse.arrays")
    return arrays.with_operator(operator, x, other)


__all__ = ["is_sparse", "with_sparse"]
