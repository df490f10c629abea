"""``vmap``: a function of one example as a function of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans import tree
from functrans import vmap as batch_axis
from functrans._kernels.large import keep_memory
from functrans.errors import name_of
from functrans.extend import Tracer
from functrans.torch._functions.shapes import cat, movedim, narrow, select, stack
from functrans.torch._graph.levels import Batch, ItemOfBatch
from functrans.torch._tensors.random import noting_draws
from functrans.torch._tensors.tensor import Tensor, edge_of, from_array, from_value, lift

_RANDOMNESS = ("error", "different", "same")


def vmap(func: Callable, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *,
         chunk_size: int | None = None) -> Callable:
    """``func`` for each entry along a dimension of its arguments, its results stacked.

    Keyword arguments are shared by all entries.

    ``in_dims``: that dimension, for all arguments or nested as they are, None for those that all
    entries share. ``out_dims``: where the results are stacked. ``randomness``: ``"different"`` or
    ``"same"`` random numbers for all entries, or an error if there are any. ``chunk_size``: at most
    so many entries at once.

    The function runs once for the whole batch. Where it does what only an entry allows (a branch on
    numbers, writing in place, custom functions, different random numbers), it runs again, once for
    each entry. A custom function itself is called with the whole batch if it has a ``vmap`` of its
    own.

    >>> from functrans import torch
    >>> torch.func.vmap(torch.dot)(torch.ones(2, 3), torch.ones(2, 3))
    tensor([3., 3.])
    """
    if randomness not in _RANDOMNESS:
        raise RuntimeError(
            "Only allowed values for randomness are 'error', 'different', or 'same'. Got "
            f"{randomness}"
        )
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")
    name = name_of(func)
    called = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>)"

    @functools.wraps(func, updated=())
    def batched(*args: Any, **kwargs: Any) -> Any:
        dims = _dims_of(in_dims, args, name, called)
        pairs = [p for x, d in zip(args, dims, strict=True) for p in _map(x, d, called)]
        n = _size(pairs, called)
        rule = _rule_of(func)
        if rule is not None and not kwargs:
            return _by_rule(rule, n, randomness, dims, args, out_dims)
        if not n:  # one entry of zeros tells the shapes
            args = _each(args, dims, lambda t, d: t if d is None else t.sum(d, keepdim=True))
        if n > 1:
            with noting_draws() as drawn:
                found = _at_once(func, n, args, dims, kwargs, out_dims)
            if found is not None and drawn and randomness == "error":
                raise _random(name)
            if found is not None and not (drawn and randomness == "different"):
                return found
            drawn.set_back()
        outs = [_run(func, i, n, args, dims, kwargs, randomness, name) for i in range(max(n, 1))]
        return _join(outs, out_dims, name, n)

    if chunk_size is None:
        return batched
    return _in_chunks(batched, chunk_size, in_dims, out_dims, randomness == "same")


def _dims_of(in_dims: Any, args: tuple, name: str, called: str) -> tuple:
    """The dimension of each argument."""
    if not isinstance(in_dims, int | tuple):
        raise ValueError(
            f"{called}: expected `in_dims` to be int or a (potentially nested) tuple matching "
            f"the structure of inputs, got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you "
            "are trying to vmap over a function with no inputs. The latter is unsupported."
        )
    dims = in_dims if isinstance(in_dims, tuple) else (in_dims,) * len(args)
    if len(dims) != len(args):
        raise ValueError(
            f"{called}: in_dims is not compatible with the structure of `inputs`: {len(dims)} "
            f"of them for {len(args)} arguments"
        )
    return dims


def _at_once(func: Callable, n: int, args: tuple, dims: Any, kwargs: dict[str, Any],
             out_dims: Any) -> Any:
    """``func`` of all entries in one call; None where it does what only an entry allows."""
    arrays: list[Any] = []
    outer = False

    def place(t: Any, dim: int | None) -> Any:
        nonlocal outer
        if not isinstance(t, Tensor):
            return t
        edge = edge_of(t)
        outer = outer or edge is not None
        array: Any = lift(t) if edge else t._array
        if dim is None:
            return from_array(array) if edge else t
        arrays.append(array if dim == 0 else np.moveaxis(array, dim, 0))
        return _Place(len(arrays) - 1)

    placed = _each(args, dims, place)
    found: list[Any] = []

    def run(*traced: Any) -> tuple:
        inputs = tree.map(
            lambda x: from_array(traced[x.number]) if type(x) is _Place else x, placed)
        with Batch(outer) as batch:
            outs, structure = tree.flatten(func(*inputs, **kwargs))
            for y in outs:
                if not isinstance(y, Tensor) or edge_of(y) is not None:
                    # ``_join`` says what is wrong, or it depends on what was not passed
                    return ()
        if batch.declined is None:
            found.append(([y._array for y in outs], structure, traced[0].owner))
        return ()

    try:
        batch_axis(run)(*arrays)
    except ItemOfBatch:
        raise
    except Exception:  # it may be one that an entry raises too, which then says more
        return None
    if not found:
        return None
    values, structure, trace = found[0]
    if isinstance(out_dims, tuple) and len(out_dims) != len(values):
        return None
    wanted = out_dims if isinstance(out_dims, tuple) else (out_dims,) * len(values)
    try:
        outs = [_whole(y, trace, d, n, arrays) for y, d in zip(values, wanted, strict=True)]
    except np.exceptions.AxisError:
        return None
    return tree.unflatten(structure, outs)


class _Place:
    """What stands for a mapped tensor until its traced value is there."""

    def __init__(self, number: int):
        self.number = number


def _each(x: Any, dim: Any, f: Callable[[Any, int | None], Any]) -> Any:
    """``x`` with ``f(leaf, its dimension)`` for each leaf."""
    if dim is None or isinstance(dim, int):
        return tree.map(lambda t: f(t, dim), x)
    if isinstance(dim, dict):
        return {k: _each(x[k], d, f) for k, d in dim.items()}
    return type(x)([_each(v, d, f) for v, d in zip(x, dim, strict=True)])


def _whole(y: Any, trace: Any, dim: int | None, n: int, given: list) -> Tensor:
    """A result for the whole batch, ``y`` being what the function has returned."""
    if isinstance(y, Tracer) and y.owner is trace:
        y = y.inner
        y = y[0] if dim is None else np.moveaxis(y, 0, dim) if dim else y
    elif dim is not None:
        y = np.repeat(np.expand_dims(y, dim), n, dim)
    if type(y) is np.ndarray:
        keep_memory(y)
    if type(y) is np.ndarray and (not y.flags.writeable or any([
            isinstance(x, np.ndarray) and np.may_share_memory(x, y) for x in given])):
        y = y.copy()
    return from_value(y)


def _in_chunks(
    batched: Callable, size: int, in_dims: Any, out_dims: Any, same: bool
) -> Callable:
    """``batched`` for ``size`` entries at a time; ``same``: with the same random numbers."""

    @functools.wraps(batched, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        name = name_of(batched)
        dims = _dims_of(in_dims, args, name, name)
        n = _size([p for x, d in zip(args, dims, strict=True) for p in _map(x, d, name)], name)
        if n <= size:
            return batched(*args, **kwargs)
        parts = []
        for i in range(0, n, size):
            def cut(t: Any, d: int | None, i: int = i) -> Any:
                return t if d is None else narrow(t, d, i, min(size, n - i))

            part = _each(args, dims, cut)
            with noting_draws() as drawn:
                parts.append(batched(*part, **kwargs))
            if same and i + size < n:
                drawn.set_back()
        first, structure = tree.flatten(parts[0])
        wanted = out_dims if isinstance(out_dims, tuple) else (out_dims,) * len(first)
        columns = zip(*[tree.leaves(p) for p in parts], strict=True)
        return tree.unflatten(structure, [
            c[0] if d is None else cat(list(c), d) for c, d in zip(columns, wanted, strict=True)])

    return call


def _run(func: Callable, i: int, n: int, args: tuple, dims: Any, kwargs: dict[str, Any],
         randomness: str, name: str) -> Any:
    """``func`` of entry ``i``."""
    picked = _each(args, dims, lambda t, d: t if d is None else select(t, d, i))
    with noting_draws() as drawn:
        out = func(*picked, **kwargs)
    if drawn and randomness == "error":
        raise _random(name)
    if randomness == "same" and i < n - 1:
        drawn.set_back()
    return out


def _random(name: str) -> RuntimeError:
    return RuntimeError(
        f"vmap: called random operation while in randomness error mode, by {name}. Please either "
        "use the 'same' or 'different' randomness flags on vmap or perform the randomness "
        "operation out of vmap"
    )


def _map(x: Any, dim: Any, called: str) -> list[tuple[Tensor, int]]:
    """The tensors in ``x`` that are mapped, each with its dimension."""
    if dim is None:
        return []
    if isinstance(dim, int):
        leaves = tree.leaves(x)
        for leaf in leaves:
            if not isinstance(leaf, Tensor):
                raise ValueError(
                    f"{called}: Got in_dim={dim} for an input but the input is of type "
                    f"{type(leaf).__name__}. We cannot vmap over non-Tensor arguments, please use "
                    "None as the respective in_dim"
                )
            if not -leaf.ndim <= dim < leaf.ndim:
                raise ValueError(
                    f"{called}: Got in_dim={dim} for some input, but that input is a "
                    f"Tensor of dimensionality {leaf.ndim} so expected in_dim to satisfy "
                    f"-{leaf.ndim} <= in_dim < {leaf.ndim}."
                )
        return [(leaf, dim) for leaf in leaves]
    if not isinstance(dim, dict | tuple | list):
        raise ValueError(
            f"{called}: Got in_dim={dim} for an input but in_dim must be either an integer "
            "dimension or None."
        )
    keys = dim if isinstance(dim, dict) else range(len(dim))
    if type(x) is not type(dim) or len(x) != len(dim):
        raise ValueError(
            f"{called}: in_dims is not compatible with the structure of `inputs`: "
            f"{type(dim).__name__} for {type(x).__name__}"
        )
    return [p for k in keys for p in _map(x[k], dim[k], called)]


def _size(pairs: list[tuple[Tensor, int]], called: str) -> int:
    sizes = list(dict.fromkeys([t.shape[d] for t, d in pairs]))
    if not sizes:
        raise ValueError(
            f"{called}: at least one input must be mapped over: all in_dims are None"
        )
    if len(sizes) > 1:
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return sizes[0]


def _join(outs: list[Any], out_dims: Any, name: str, n: int) -> Any:
    """The results of all entries, stacked."""
    flat, structure = tree.flatten(outs[0])
    columns = zip(*[tree.leaves(out) for out in outs], strict=True)
    if isinstance(out_dims, tuple) and len(out_dims) != len(flat):
        raise ValueError(
            f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with "
            f"the structure of `outputs`: {len(out_dims)} of them for {structure}"
        )
    dims = list(out_dims) if isinstance(out_dims, tuple) else [out_dims] * len(flat)
    stacked = []
    for column, dim in zip(columns, dims, strict=True):
        for x in column:
            if not isinstance(x, Tensor):
                raise ValueError(
                    f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(x)}. "
                    "Did you mean to set out_dims= to None for output? Make it a tensor inside of "
                    "the function."
                )
        if dim is not None and not -column[0].ndim - 1 <= dim <= column[0].ndim:
            last = column[0].ndim
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-last - 1}, {last}], but "
                f"got {dim}), in out_dims of vmap({name})"
            )
        stacked.append(column[0] if dim is None else stack(list(column), dim))
    if not n:
        stacked = [x if d is None else x.narrow(d, 0, 0)
                   for x, d in zip(stacked, dims, strict=True)]
    return tree.unflatten(structure, stacked)


class VmapInfo:
    """What a custom function's ``vmap`` is told: the size of the batch and its randomness."""

    def __init__(self, batch_size: int, randomness: str):
        self.batch_size, self.randomness = batch_size, randomness


def _rule_of(func: Any) -> Callable | None:
    """The ``vmap`` of the custom function whose ``apply`` ``func`` is, if it has one."""
    owner = getattr(func, "__self__", None)
    if getattr(func, "__name__", "") != "apply" or not isinstance(owner, type):
        return None
    return getattr(owner, "vmap_rule", lambda: None)()


def _by_rule(rule: Callable, n: int, randomness: str, dims: Any, args: tuple,
             out_dims: Any) -> Any:
    """The result of a custom function's own rule."""
    out, places = rule(VmapInfo(n, randomness), tuple(dims), *args)
    if isinstance(out, Tensor):
        return out if places in (None, out_dims) else movedim(out, places, out_dims)
    wanted = out_dims if isinstance(out_dims, tuple) else (out_dims,) * len(out)
    return tuple([x if p in (None, w) else movedim(x, p, w)
                  for x, p, w in zip(out, places, wanted, strict=True)])
