"""The functions of ``functrans.dask``; those of ``functrans.parallel`` on graphs."""

from __future__ import annotations

import contextlib
import math
import sys
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from dask.base import get_scheduler
from dask.delayed import Delayed, delayed

from functrans import tree
from functrans._core.array import frozen_copy
from functrans._transforms.arguments import describe, hand_out_tree
from functrans._transforms.derived import deriving
from functrans._transforms.sharding.executors import Task, require_values
from functrans._transforms.sharding.shards import (
    FAN_IN,
    Part,
    Summand,
    Sums,
    derivative_of,
    product_of,
    total_of,
)
from functrans.config import of_blocks
from functrans.errors import ArgumentError, ExecutorError, ShapeError

# ---- Graphs of sums over shards: one task a shard, then a tree of tasks that add

# Seconds after which a client is asked whether it still has its cluster.
PATIENCE = 1.0


def summed(summand: Summand, compute: bool) -> Callable[..., Any]:
    """The function that sums over the shards of its arguments."""

    def call(*args: Any) -> Any:
        if not compute:
            args = tree.map(_keep, args)
        result = _graph(summand, args)
        # dask sends an Array as the ndarray that it is
        return hand_out_tree(_compute(summand.sums, result)) if compute else result

    return call


def _keep(x: object) -> object:
    """An argument as it is now: a lazy result may be computed after it is written to."""
    return frozen_copy(x) if isinstance(x, np.ndarray) else x


@dataclass(frozen=True)
class Shared:
    """What all shards have in common: one key of the graph, which each worker asks for once."""

    task: Task
    axes: tuple[int | None, ...]
    whole: tuple
    count: int

    def part(self, shard: int, *data: Any) -> Part:
        pieces = iter(data)
        args = tuple(
            next(pieces) if a == 0 else x for a, x in zip(self.axes, self.whole, strict=True)
        )
        return self.task(f"shard {shard} of {self.count}", (self.axes, shard, args))


def _graph(summand: Summand, args: tuple) -> Delayed:
    sums, axes = summand.sums, summand.axes(args)
    whole = tuple(None if a == 0 else x for a, x in zip(axes, args, strict=True))
    require_values(sums.who, summand.f, "an argument", tree.leaves(whole))
    shards = _shards(sums, [x for a, x in zip(axes, args, strict=True) if a == 0])
    task = Task(sums.who, summand.part, sums.title, "dask worker", of_blocks())
    token = uuid.uuid4().hex[:8]

    def step(f: Callable, name: str, *operands: Any) -> Delayed:
        return delayed(f, pure=False)(
            *operands, dask_key_name=f"{sums.who}-{name}-{token}"
        )

    shared = delayed(
        Shared(task, axes, whole, len(shards)), f"{sums.who}-arguments-{token}", traverse=False
    )
    parts = [step(Shared.part, f"shard-{i}", shared, i, *data) for i, data in enumerate(shards)]
    level = 0
    while len(parts) > 1:
        level += 1
        groups = [parts[i : i + FAN_IN] for i in range(0, len(parts), FAN_IN)]
        parts = [step(_join, f"sum-{level}-{i}", sums, *group) for i, group in enumerate(groups)]
    return step(sums.result, "result", parts[0])


def _join(sums: Sums, *parts: Part) -> Part:
    return sums.join(parts)


def _shards(sums: Sums, data: list) -> list[tuple]:
    """The data of each shard: a block of each dask array, an entry of each list."""
    aligned = _align(sums, data)
    columns = [_column(sums, x) for x in aligned]
    counts = {len(c) for c in columns}
    if len(counts) > 1 or not columns[0]:
        raise ShapeError(
            f"{sums.who}: the data of `{sums.title}` must have the same number of shards, at least "
            f"one, but have {', '.join(str(len(c)) for c in columns)}"
        )
    return list(zip(*columns, strict=True))


def _align(sums: Sums, data: list) -> list:
    """Dask arrays cut at the same rows, those of the first."""
    arrays: list[Any] = [x for x in data if isinstance(x, da.Array) and x.ndim]
    if not arrays or any(math.isnan(n) for x in arrays for n in x.chunks[0]):
        return data  # where lengths are not known yet, each shard compares its own
    rows = {x.shape[0] for x in arrays}
    if len(rows) > 1:
        raise ShapeError(
            f"{sums.who}: the data of `{sums.title}` must have the same number of rows, but have "
            f"{', '.join(str(x.shape[0]) for x in arrays)}"
        )
    cuts = arrays[0].chunks[0]
    return [x.rechunk({0: cuts}) if any(x is a for a in arrays) else x for x in data]


def _column(sums: Sums, x: Any) -> list:
    if isinstance(x, list | tuple):
        return list(x)
    if not isinstance(x, da.Array) or not x.ndim:
        raise ArgumentError(
            f"{sums.who}: data of `{sums.title}` must be dask arrays with rows, or lists of shards "
            f"(dask.delayed values or futures), but got {describe(x)}. Use da.from_array(x, "
            "chunks=...), or None for it in in_axes to pass it whole to every shard."
        )
    if any(n > 1 for n in x.numblocks[1:]):
        across = ", ".join(f"{i}: -1" for i in range(1, x.ndim))
        raise ShapeError(
            f"{sums.who}: a shard of `{sums.title}` is a block with whole rows, but an array has "
            f"{x.numblocks} blocks. Use x.rechunk({{{across}}})."
        )
    blocks: Any = x  # its stubs know less than it can
    return blocks.to_delayed().ravel().tolist()


def _compute(sums: Sums, result: Delayed) -> Any:
    """The number behind a graph, by dask's scheduler of this moment."""
    client = getattr(get_scheduler(collections=[result]), "__self__", None)
    try:
        return result.compute() if client is None else _await(sums, client, result)
    except _endings() as error:
        raise _raise_lost(sums, f"{type(error).__name__}: {error}") from error


def _await(sums: Sums, client: Any, result: Delayed) -> Any:
    """The result from a cluster, as long as there is one: futures of a client that looks for its
    scheduler may never be done."""
    if client.status != "running":
        raise _raise_lost(sums, f"the client is {client.status}")
    future = client.compute(result)
    try:
        while not future.done():
            if client.status != "running":
                raise _raise_lost(sums, f"the client is {client.status}")
            with contextlib.suppress(TimeoutError):
                future.exception(timeout=PATIENCE)
        return future.result()
    finally:
        future.release()  # of what is not done, the scheduler drops the rest


def _raise_lost(sums: Sums, why: str) -> ExecutorError:
    return ExecutorError(
        f"{sums.who}: the cluster ended before all shards of `{sums.title}` were computed: it was "
        f"closed, cannot be reached, or a shard, then named, ended its workers ({why}). No "
        "partial result is returned. Shards that Client.scatter had sent to a worker are lost with "
        "it: nothing says how to make them again. Pass a persisted or delayed collection, or "
        "scatter with broadcast=True."
    )


def _endings() -> tuple[type[BaseException], ...]:
    """What dask raises where a cluster ends or its workers do."""
    if "distributed" not in sys.modules:
        return (CancelledError,)
    import distributed  # lazy: loaded already, or no cluster is in use

    return CancelledError, distributed.CancelledError, distributed.KilledWorker


# ---- The functions of ``functrans.dask``; those of ``functrans.parallel`` on graphs


@deriving
def total(
    f: Callable, *, in_axes: Sequence[int | None] | None = None, reduction: str = "sum",
    compute: bool = True,
) -> Callable[..., Any]:
    """The sum of ``f`` itself over shards: a loss for line searches and reports.

    >>> import functrans.dask as fd, numpy as np, dask.array as da
    >>> fd.total(lambda w, x: np.sum(w * x))(2.0, da.arange(5, chunks=2))
    Array(20.)
    """
    return summed(total_of("functrans.dask.total", f, in_axes, reduction), compute)


@deriving
def grad(
    f: Callable, argnums: int | Sequence[int] = 0, *,
    in_axes: Sequence[int | None] | None = None, reduction: str = "sum", compute: bool = True,
) -> Callable[..., Any]:
    """The gradient of a sum over shards, ``sum_i grad f(w, X_i, y_i)``.

    ``argnums`` names arguments that are passed whole.

    Raises ExecutorError where the cluster goes away or a shard kills its workers; what ``f`` raises
    arrives with a note that names its shard.

    >>> import functrans.dask as fd, numpy as np, dask.array as da
    >>> loss = lambda w, x: np.sum((w - x) ** 2)
    >>> fd.grad(loss)(0.0, da.arange(5.0, chunks=2))
    Array(-20.)
    """
    summand = derivative_of("functrans.dask.grad", "grad", f, argnums, in_axes, reduction)
    return summed(summand, compute)


@deriving
def value_and_grad(
    f: Callable, argnums: int | Sequence[int] = 0, *,
    in_axes: Sequence[int | None] | None = None, reduction: str = "sum", compute: bool = True,
) -> Callable[..., Any]:
    """Value and gradient of a sum over shards, in one pass; what ``scipy.optimize.minimize`` takes.

    >>> import functrans.dask as fd, numpy as np, dask.array as da
    >>> loss = lambda w, x: np.mean((w - x) ** 2)
    >>> fd.value_and_grad(loss, reduction="mean")(0.0, da.arange(5.0, chunks=2))
    (Array(6.), Array(-4.))
    """
    who = "functrans.dask.value_and_grad"
    return summed(derivative_of(who, "value_and_grad", f, argnums, in_axes, reduction), compute)


@deriving
def hvp(
    f: Callable, *, in_axes: Sequence[int | None] | None = None, reduction: str = "sum",
    compute: bool = True,
) -> Callable[..., Any]:
    """``(w, v, *data) -> (value, H v)`` with the Hessian of the sum in ``w``, never formed.

    ``in_axes`` has an entry for ``v`` too, after that for ``w``.

    >>> import functrans.dask as fd, numpy as np, dask.array as da
    >>> loss = lambda w, x: np.sum((w * x) ** 2)
    >>> fd.hvp(loss)(1.0, 2.0, da.arange(3.0, chunks=2))
    (Array(5.), Array(20.))
    """
    return summed(product_of("functrans.dask.hvp", f, in_axes, reduction), compute)


@deriving
def jacobian(
    f: Callable, argnums: int | Sequence[int] = 0, *,
    in_axes: Sequence[int | None] | None = None, reduction: str = "sum", compute: bool = True,
) -> Callable[..., Any]:
    """The Jacobian of a sum over shards, of moment conditions or normal equations for example.

    >>> import functrans.dask as fd, numpy as np, dask.array as da
    >>> moments = lambda w, x: np.stack([np.sum(w * x), np.sum(w**2 * x)])
    >>> fd.jacobian(moments)(3.0, da.arange(5.0, chunks=2))
    Array([10., 60.])
    """
    summand = derivative_of("functrans.dask.jacobian", "jacobian", f, argnums, in_axes, reduction)
    return summed(summand, compute)


@deriving
def hessian(
    f: Callable, argnums: int | Sequence[int] = 0, *,
    in_axes: Sequence[int | None] | None = None, reduction: str = "sum", compute: bool = True,
) -> Callable[..., Any]:
    """The Hessian of a sum over shards: Newton's method with few parameters and many rows.

    >>> import functrans.dask as fd, numpy as np, dask.array as da
    >>> loss = lambda w, x: np.sum(np.exp(w * x))
    >>> fd.hessian(loss)(0.0, da.arange(5.0, chunks=2))
    Array(30.)
    """
    summand = derivative_of("functrans.dask.hessian", "hessian", f, argnums, in_axes, reduction)
    return summed(summand, compute)
