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
from functrans.errors import ArgumentError, NotDifferentiable, name_of, user_line


def _jax() -> ModuleType:
    return importlib.import_module("jax")


def function(f: Callable) -> Callable:
    """``f`` as a function of JAX's arrays; see ``functrans.interop.jax_function``."""
    leaves = Leaves(f)

    @functools.wraps(f, updated=())
    def of_arrays(*args: Any, **kwargs: Any) -> Any:
        kinds = _jax().Array | np.ndarray | float | complex
        g, arrays = leaves.split(args, kwargs, lambda x: isinstance(x, kinds))
        ys, result = _call(g, list(map(_jax().numpy.asarray, arrays)), name_of(f))
        return tree.unflatten(result, ys)

    of_arrays.__name__ = name_of(f)
    return of_arrays


def _call(g: LeafFunction, arrays: Sequence, name: str) -> tuple[Sequence, tree.Structure]:
    """The results of a call that runs on the host, whose derivative is such a call, too; and how
    they nest.
    """
    types = [
        _jax().ShapeDtypeStruct(a.shape, _jax().dtypes.canonicalize_dtype(a.dtype))
        for a in g.types(arrays)
    ]
    result = g.result
    moving = tuple([i for i, x in enumerate(arrays) if _is_inexact(x)])

    def host(*xs: Any) -> list:
        ys = g(*map(np.asarray, xs))
        return [_narrow(plain(y), t.dtype, name) for y, t in zip(ys, types, strict=True)]

    @_jax().custom_vjp
    def call(*xs: Any) -> Sequence:
        return _jax().pure_callback(host, types, *xs, vmap_method="sequential")

    def backward(xs: tuple, cts: Sequence) -> tuple:
        inexact = [c for c, t in zip(cts, types, strict=True) if _is_inexact(t)]
        gs = iter(_call(g.pulled_back(moving, conjugate=True), [*xs, *inexact], name)[0])
        return tuple([
            next(gs) if i in moving else np.zeros(x.shape, _jax().dtypes.float0)
            for i, x in enumerate(xs)
        ])

    call.defvjp(lambda *xs: (call(*xs), xs), backward)
    try:
        return call(*arrays), result
    except TypeError as error:
        if "forward-mode" not in str(error):
            raise
        raise NotDifferentiable(
            f"jax_function: `{name}` has derivatives in JAX's reverse mode only. "
            "Use jax.grad, jax.vjp or jax.jacrev, also for Hessians: jax.jacrev(jax.grad(f)); or "
            "take forward derivatives with functrans, and make the result a jax_function."
        ) from error


def _narrow(y: Any, dtype: np.dtype, name: str) -> np.ndarray:
    """A result in JAX's dtype; numbers of int64 that int32 does not hold would be others."""
    y = np.asarray(y)
    if y.dtype.kind in "iu" and y.dtype.itemsize > dtype.itemsize and y.size:
        limits = np.iinfo(dtype)
        worst = y.max() if y.max() > limits.max else y.min()
        if not limits.min <= worst <= limits.max:
            raise ArgumentError(
                f"jax_function: `{name}` returned {worst}, which {dtype}, JAX's {y.dtype}, does "
                'not hold. Call jax.config.update("jax_enable_x64", True) first, or return floats.'
            )
    return y.astype(dtype, copy=False)


def _is_inexact(x: Any) -> bool:
    return bool(_jax().dtypes.issubdtype(x.dtype, np.inexact))  # of bfloat16 too, unlike NumPy's


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


def push(g: Callable, xs: Sequence, ts: Sequence) -> list:
    """The tangents of the results of ``g``, which takes and returns JAX's arrays."""
    return list(_jax().jvp(lambda *ys: tuple(g(*ys)), tuple(xs), tuple(ts))[1])


def pulled_back(g: Callable, xs: Sequence, cts: Sequence) -> list:
    """The cotangents of the operands, not conjugated."""
    return list(_jax().vjp(lambda *ys: tuple(g(*ys)), *xs)[1](tuple(cts)))
