"""JAX's arrays: our functions as callbacks with derivatives, and its functions here."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from functrans import tree
from functrans._core.array import plain
from functrans._interop.leaves import LeafFunction, Leaves
from functrans.errors import ArgumentError, name_of, user_line


def _jax() -> ModuleType:
    return importlib.import_module("jax")


def function(f: Callable) -> Callable:
    """``f`` as a function of JAX's arrays; see ``functrans.interop.jax_function``."""
    leaves = Leaves(f)

    @functools.wraps(f, updated=())
    def of_arrays(*args: Any, **kwargs: Any) -> Any:
        kinds = _jax().Array | np.ndarray | float | complex
        g, arrays = leaves.split(args, kwargs, lambda x: isinstance(x, kinds))
        ys = _called(g, list(map(_jax().numpy.asarray, arrays)))
        assert g.result is not None, g
        return tree.unflatten(g.result, ys)

    of_arrays.__name__ = name_of(f)
    return of_arrays


def _called(g: LeafFunction, arrays: Sequence) -> Sequence:
    """The results of a call that runs on the host, whose derivative is such a call, too."""
    types = [
        _jax().ShapeDtypeStruct(a.shape, _jax().dtypes.canonicalize_dtype(a.dtype))
        for a in g.types(arrays)
    ]
    moving = tuple([i for i, x in enumerate(arrays) if _is_inexact(x)])

    def host(*xs: Any) -> list:
        ys = g(*map(np.asarray, xs))
        return [np.asarray(plain(y), t.dtype) for y, t in zip(ys, types, strict=True)]

    @_jax().custom_vjp
    def call(*xs: Any) -> Sequence:
        return _jax().pure_callback(host, types, *xs, vmap_method="sequential")

    def backward(xs: tuple, cts: Sequence) -> tuple:
        inexact = [c for c, t in zip(cts, types, strict=True) if _is_inexact(t)]
        gs = iter(_called(g.pulled_back(moving, conjugate=True), [*xs, *inexact]))
        return tuple([
            next(gs) if i in moving else np.zeros(x.shape, _jax().dtypes.float0)
            for i, x in enumerate(xs)
        ])

    call.defvjp(lambda *xs: (call(*xs), xs), backward)
    return call(*arrays)


def _is_inexact(x: Any) -> bool:
    return np.issubdtype(x.dtype, np.inexact)


# ---- JAX's functions here


def arrays(xs: Sequence) -> list:
    out = []
    for x in map(np.asarray, xs):
        dtype = _jax().dtypes.canonicalize_dtype(x.dtype)
        if dtype != x.dtype and _is_inexact(x):
            raise ArgumentError(
                f"{user_line()}: from_jax: JAX would compute in {dtype} what is {x.dtype} here. "
                'Call jax.config.update("jax_enable_x64", True) first, or pass such arrays.'
            )
        out.append(_jax().numpy.asarray(x))
    return out


def numbers(ys: Sequence) -> list[np.ndarray]:
    return list(map(np.asarray, ys))


def zeros_like(x: Any) -> Any:
    return _jax().numpy.zeros_like(x)


def pushed(g: Callable, xs: Sequence, ts: Sequence) -> list:
    """The tangents of the results of ``g``, which takes and returns JAX's arrays."""
    return list(_jax().jvp(lambda *ys: tuple(g(*ys)), tuple(xs), tuple(ts))[1])


def pulled_back(g: Callable, xs: Sequence, cts: Sequence) -> list:
    """The cotangents of the operands, not conjugated."""
    return list(_jax().vjp(lambda *ys: tuple(g(*ys)), *xs)[1](tuple(cts)))
