"""PyTorch's tensors: our functions as operations of its autograd, and its functions here."""

from __future__ import annotations

import functools
import importlib
import types
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from functrans import tree
from functrans._interop.leaves import LeafFunction, Leaves, writable
from functrans.errors import name_of


def _torch() -> ModuleType:
    return importlib.import_module("torch")


def function(f: Callable) -> Callable:
    """``f`` as a function of tensors; see ``functrans.interop.torch_function``."""
    leaves = Leaves(f)

    @functools.wraps(f, updated=())
    def of_tensors(*args: Any, **kwargs: Any) -> Any:
        g, tensors = leaves.split(args, kwargs, _torch().is_tensor)
        ys = _apply(g, *tensors)
        return tree.unflatten(g.result, ys)

    of_tensors.__name__ = name_of(f)
    return of_tensors


class Rules:
    """A function of arrays as a node of PyTorch's graph; its derivative is such a node, too."""

    @staticmethod
    def forward(g: LeafFunction, *tensors: Any) -> tuple:
        device = tensors[0].device if tensors else None
        ys = g(*map(_array, tensors))
        return tuple([_tensor(writable(y)).to(device) for y in ys])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        ctx.g, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.inexact = [_is_inexact(y) for y in output]
        ctx.mark_non_differentiable(*[y for y in output if not _is_inexact(y)])

    @staticmethod
    def backward(ctx: Any, *cts: Any) -> tuple:
        moving = tuple([i for i, wanted in enumerate(ctx.needs_input_grad[1:]) if wanted])
        cts = tuple([c for c, inexact in zip(cts, ctx.inexact, strict=True) if inexact])
        gs = dict(zip(
            moving, _apply(ctx.g.pulled_back(moving), *ctx.saved_tensors, *cts),
            strict=True,
        ))
        return (None, *[gs.get(i) for i in range(len(ctx.saved_tensors))])

    @staticmethod
    def jvp(ctx: Any, _: None, *ts: Any) -> tuple:
        moving = tuple([i for i, t in enumerate(ts) if t is not None])
        changes = [t for t in ts if t is not None]
        out = iter(_apply(ctx.g.pushed(moving), *ctx.saved_tensors, *changes))
        return tuple([next(out) if inexact else None for inexact in ctx.inexact])

    @staticmethod
    def vmap(info: Any, in_dims: tuple, g: LeafFunction, *tensors: Any) -> tuple:
        """One call for each entry of the batch."""
        if not info.batch_size:
            return _no_rows(g, tensors, in_dims[1:])
        each = [
            _apply(g, *[
                x if d is None else x.select(d, i)
                for x, d in zip(tensors, in_dims[1:], strict=True)
            ]) for i in range(info.batch_size)
        ]
        return tuple(map(_torch().stack, zip(*each, strict=True))), (0,) * len(each[0])


@functools.cache
def _operation() -> type:
    """The rules as a class of PyTorch's."""
    bases = (Rules, _torch().autograd.Function)
    return types.new_class("FunctransFunction", bases)


def _apply(g: LeafFunction, *tensors: Any) -> Sequence:
    return _operation().apply(g, *tensors)


def _no_rows(g: LeafFunction, tensors: Sequence, dims: Sequence) -> tuple:
    """The results of no call: those for ones tell their shapes."""
    ones = [x if d is None else x.new_ones(x.shape[:d] + x.shape[d + 1 :])
            for x, d in zip(tensors, dims, strict=True)]
    ys = _apply(g, *ones)
    return tuple([y.new_empty((0, *y.shape)) for y in ys]), (0,) * len(ys)


def _array(x: Any) -> np.ndarray:
    """The memory of a tensor on the processor, else a copy."""
    x = x.detach().resolve_conj().resolve_neg().cpu()
    if x.dtype is not _torch().bfloat16:
        return x.numpy()
    return x.view(_torch().int16).numpy().view(_bfloat16())  # NumPy knows none


def _tensor(x: np.ndarray) -> Any:
    """The tensor in an array's memory."""
    if x.dtype.name != "bfloat16":
        return _torch().from_numpy(x)
    return _torch().from_numpy(x.view(np.int16)).view(_torch().bfloat16)


def _bfloat16() -> np.dtype:
    import ml_dtypes  # lazy: few need it

    return np.dtype(ml_dtypes.bfloat16)


def _is_inexact(x: Any) -> bool:
    return x.is_floating_point() or x.is_complex()


# ---- PyTorch's functions here


def arrays(xs: Sequence) -> list:
    return [_tensor(writable(x)) for x in xs]


def numbers(ys: Sequence) -> list[np.ndarray]:
    return [np.array(_array(y)) for y in ys]  # the function may write into its result later


def zeros_like(x: Any) -> Any:
    return _torch().zeros_like(x)


def push(g: Callable, xs: Sequence, ts: Sequence) -> list:
    """The tangents of the results of ``g``, which takes and returns tensors."""
    return list(_torch().func.jvp(lambda *ys: tuple(g(*ys)), tuple(xs), tuple(ts))[1])


def pulled_back(g: Callable, xs: Sequence, cts: Sequence) -> list:
    """The cotangents of the operands, not conjugated."""
    pull = _torch().func.vjp(lambda *ys: tuple(g(*ys)), *xs)[1]
    return [c.conj() for c in pull(tuple([c.conj() for c in cts]))]
