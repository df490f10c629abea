"""``out=``: results written to tensors that the caller has, by torch's rules."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.torch._graph.modes import no_grad, state, unusual
from functrans.torch._graph.views import changed, guard, refuse_overlap
from functrans.torch._tensors.kinds import scalar_name
from functrans.torch._tensors.tensor import Tensor, from_array, recorded_edge


def any_requires(xs: Any) -> bool:
    """Whether what is done with ``xs`` is to be recorded, as long as anything is."""
    only_forward = unusual and state.only_forward
    for x in xs:
        if isinstance(x, Tensor):
            if only_forward:
                if recorded_edge(x) is not None:
                    return True
            elif x._node is not None or x.requires_grad:
                return True
        elif type(x) in (list, tuple) and any_requires(x):
            return True
    return False


def write_out(name: str, compute: Callable[[], Any], out: Any, operands: Any) -> Any:
    """What ``compute`` returns, written to ``out``: a tensor, or one for each of several results.

    Raises RuntimeError where a gradient would be needed, or where the type does not fit.
    """
    if state.grad and (any_requires(out if isinstance(out, tuple | list) else [out])
                       or any_requires(operands[0]) or any_requires(operands[1].values())):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, "
            "but one of the arguments requires grad. Use the result, or call it under no_grad."
        )
    for target in out if isinstance(out, tuple | list) else (out,):
        for x in [*operands[0], *operands[1].values()]:
            refuse_overlap(target, x)
    with no_grad():
        results = compute()
    if isinstance(out, Tensor):
        _write(name, results, out)
        return out
    if not isinstance(out, tuple | list) or len(out) != len(results):
        raise TypeError(f"{name}(): out must be {len(results)} tensors in a tuple, one a result")
    for result, target in zip(results, out, strict=True):
        _write(name, result, target)
    return type(results)(*out) if hasattr(results, "_fields") else tuple(out)


def _write(name: str, result: Tensor, out: Tensor) -> None:
    have, want, array = result.dtype, out.dtype, result._array
    if have.rank > want.rank:
        raise RuntimeError(
            f"result type {scalar_name(array)} can't be cast to the desired output type "
            f"{scalar_name(out._array)}, in {name} with out="
        )
    if out._array.shape != array.shape:
        if out._array.size:
            warnings.warn(
                "An output with one or more elements was resized since it had shape "
                f"{list(out.shape)}, which does not match the required output shape "
                f"{list(array.shape)}. Pass an output of that shape, or out.resize_(0).",
                UserWarning, stacklevel=5,
            )
        out._array = np.empty(array.shape, out._array.dtype)
    guard(out, False, name)
    out._array[...] = array
    changed(out, name)


def taking_out(f: Callable) -> Callable:
    """``f`` with a keyword ``out``."""
    name = f.__name__

    @functools.wraps(f)
    def of_one(input: Any, *, out: Any = None) -> Tensor:
        if out is None:
            return f(input)
        return write_out(name, functools.partial(f, input), out, ((input,), {}))

    @functools.wraps(f)
    def of_two(input: Any, other: Any, *, out: Any = None) -> Tensor:
        if out is None:
            return f(input, other)
        return write_out(name, functools.partial(f, input, other), out, ((input, other), {}))

    @functools.wraps(f)
    def call(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is None:
            return f(*args, **kwargs)
        return write_out(name, functools.partial(f, *args, **kwargs), out, (args, kwargs))

    return {1: of_one, 2: of_two}.get(getattr(f, "operands", 0), call)


# the code of frames between an operation and the user's
OF_ONE, OF_TWO = [next(c for c in taking_out.__code__.co_consts
                       if getattr(c, "co_name", "") == name) for name in ("of_one", "of_two")]


def in_batch(*xs: Any) -> list | None:
    """The operands, those that the open batch captures as its constants; None if there are none."""
    out, batch = list(xs), state.batch
    for i, x in enumerate(xs):
        edge = recorded_edge(x) if isinstance(x, Tensor) else None
        if batch is not None and edge is not None:
            value = batch.captured_value(x._array, edge, x._storage)
            out[i] = x if value is None else from_array(value.primal)
    return None if all(a is b for a, b in zip(out, xs, strict=True)) else out
