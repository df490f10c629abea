"""Rows on large plain arrays as native code, without a word of ``jit``: see ``_kernels/large``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from functrans._compile.lowering.numbers import AS_NUMPY
from functrans._core.bind import watching
from functrans._transforms.staging.jit import Jitted
from functrans.config import config


@functools.cache
def _program(f: Callable) -> Jitted:
    return Jitted(f, (0,), (), AS_NUMPY)


def compiled(f: Callable, static: tuple, xs: Sequence) -> list | None:
    """``f(static, *xs)`` by native code, as ``jit`` would compile it; None where there is none."""
    before = watching.get()
    try:
        watching.set(None)  # who watches the caller's ops sees this as one of them
        with config(jit=False):  # a step that the program leaves to its row is NumPy's
            code = _program(f).code(static, *xs)
            return code and code(xs)
    finally:
        watching.set(before)


@functools.cache
def _loaded(name: str) -> Any:
    """A module of native code, few of which a program needs."""
    return import_module(f"functrans._compile.run.{name}")


@functools.cache
def kernels() -> Callable[..., np.ndarray | None]:
    """What runs the kernels of rows."""
    return _loaded("row_kernels").run


def added(index: np.ndarray, v: np.ndarray, y: np.ndarray) -> bool:
    """Whether the rows of ``v`` were added to those of ``y`` at ``index``, by native code."""
    return _loaded("add_kernels").run(index, v, y)


def read(index: np.ndarray, v: np.ndarray, y: np.ndarray) -> bool:
    """Whether ``v`` was filled with the rows of ``y`` at ``index``, by native code."""
    return _loaded("add_kernels").read(index, v, y)


def sparse_product(A: Any, x: np.ndarray) -> np.ndarray | None:
    """The product of SciPy's CSR matrix with a vector or matrix, by native code."""
    return _loaded("csr_kernels").run(A, x)


def looped(
    ufunc: np.ufunc, xs: Sequence, out: np.ndarray | None, work: float
) -> np.ndarray | None:
    """The ufunc of ``xs``, in ``out`` if that is given, by NumPy's own loop on all threads; None
    where that does not pay, or cannot be."""
    return _loaded("ufunc_loops").run(ufunc, xs, out, work)
