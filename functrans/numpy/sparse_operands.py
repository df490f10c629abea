"""Operators of a traced value and an object: a sparse array, or one with operators of its own."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from functrans._core.array import is_labelled
from functrans._core.bind import PLAIN, Tracer


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


# The methods by which an object takes a comparison from the left.
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def is_other(x: Any) -> bool:
    """Whether ``x`` is an object that is no array, nor taken as one by position."""
    return not (type(x) in PLAIN or isinstance(x, _OPERANDS) or is_labelled(x) or is_sparse(x))


_OPERANDS = (Tracer, np.ndarray, np.generic, list, tuple)


def defers(operator: str, x: Any, other: Any) -> bool:
    """Whether NumPy leaves ``x`` with the operator and ``other`` to a method of the latter.

    That is any object for a number, and for an array one that says that it knows of NumPy.
    """
    kind = type(other)
    if operator in ("eq", "ne"):
        return True
    theirs = _MIRRORED.get(operator) or f"r{operator}"
    knows = hasattr(kind, "__array_ufunc__") or getattr(kind, "__array_priority__", 0) > 0
    return hasattr(kind, f"__{theirs}__") and (not x.shape or knows)
