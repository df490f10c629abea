"""Helpers for rules of one's own: cotangents in the shape and type of an argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.autograd._names import missing
from functrans.autograd.numpy._functions import metadata


def match_complex(target: Any, x: Any) -> Any:
    """``x`` as a complex or real array, as ``target`` is."""
    of_complex, is_complex = np.iscomplexobj(target), np.iscomplexobj(x)
    if is_complex and not of_complex:
        return np.real(x)
    return x + 0j if of_complex and not is_complex else x


def unbroadcast(x: Any, target_meta: tuple, broadcast_idx: int = 0) -> Any:
    """``x`` summed over the axes that broadcasting has added to what ``metadata`` describes."""
    shape, ndim, _, is_complex = target_meta
    while np.ndim(x) > ndim:
        x = np.sum(x, axis=broadcast_idx)
    for axis, size in enumerate(shape):
        if size == 1 and np.shape(x)[axis] != 1:
            x = np.sum(x, axis=axis, keepdims=True)
    return np.real(x) if np.iscomplexobj(x) and not is_complex else x


def unbroadcast_f(target: Any, f: Callable) -> Callable:
    """The rule ``f``, with its cotangents summed to the shape of ``target``."""
    target_meta = metadata(target)
    return lambda g: unbroadcast(f(g), target_meta)


def repeat_to_match_shape(g: Any, shape: tuple, dtype: Any, axis: Any, keepdims: bool) -> tuple:
    """``g``, the cotangent of a reduction, repeated along what was reduced, and how often."""
    if shape == ():
        return g, 1
    axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    kept = list(shape)
    for i in axes:
        kept[i] = 1
    return (np.broadcast_to(np.reshape(g, kept), shape),
            int(np.prod([shape[i] for i in axes])))


def replace_zero(x: Any, val: Any) -> Any:
    """``x`` with ``val`` where it is zero."""
    return np.where(x, x, val)


def balanced_eq(x: Any, z: Any, y: Any) -> Any:
    """1 where ``x`` is ``z``, and a half where ``y`` is too."""
    return (x == z) / (1.0 + (x == y))


__all__ = ["balanced_eq", "match_complex", "metadata", "repeat_to_match_shape", "replace_zero",
           "unbroadcast", "unbroadcast_f"]
__getattr__ = missing(__name__)
