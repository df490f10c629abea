"""Sums over shards of data and runs from many starts, in a loop or on any executor.

``f(w, *data)`` is a sum over the rows of ``data``, as most losses are: its values and derivatives
are sums over shards. Each function here takes such an ``f`` and returns the function that cuts
``data`` into shards of ``chunk_size`` rows along axis 0 and adds up what they give, in a tree whose
shape depends on their number alone: results are the same to the last bit with every executor. Only
few shards are in flight, so ``data`` may be an ``np.memmap`` larger than memory.

>>> import functrans as ft, numpy as np
>>> def loss(w, X, y):
...     return np.sum((X @ w - y) ** 2)
>>> X, y = np.arange(12.0).reshape(6, 2), np.ones(6)
>>> from concurrent.futures import ThreadPoolExecutor
>>> with ThreadPoolExecutor(2) as executor:
...     ft.parallel.grad(loss, chunk_size=4, executor=executor)(np.ones(2), X, y)
Array([ 880., 1000.])
>>> ft.grad(loss)(np.ones(2), X, y)
Array([ 880., 1000.])

``executor`` is any ``concurrent.futures.Executor``: threads, processes, ``mpi4py.futures``, or
``client.get_executor()`` of a dask cluster; None is a loop. ``in_axes`` says which arguments are
data: 0, cut along axis 0, or None, passed whole; by default the first is whole.
``reduction="mean"`` takes ``f`` as a mean over rows, and weights shards by theirs. For data that
live on the workers of a cluster there is ``functrans.dask``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from functrans import tree
from functrans._transforms.arguments import describe, require_callable
from functrans._transforms.derived import deriving
from functrans._transforms.options import require_count
from functrans._transforms.sharding.executors import Chunk, require_executor, require_values, run
from functrans._transforms.sharding.shards import (
    Summand,
    Sums,
    Tree,
    derivative_of,
    product_of,
    total_of,
)
from functrans.errors import ArgumentError, ShapeError, SolverError, name_of

if TYPE_CHECKING:
    from concurrent.futures import Executor


@deriving
def total(
    f: Callable, *, chunk_size: int, executor: Executor | None = None,
    in_axes: Sequence[int | None] | None = None, reduction: str = "sum",
) -> Callable[..., Any]:
    """The sum of ``f`` itself over shards: a loss for line searches and reports.

    >>> import functrans as ft, numpy as np
    >>> ft.parallel.total(lambda w, x: np.sum(w * x), chunk_size=2)(2.0, np.arange(5.0))
    Array(20.)
    """
    summand = total_of("parallel.total", f, in_axes, reduction)
    return _sum(summand, chunk_size, executor)


@deriving
def grad(
    f: Callable, argnums: int | Sequence[int] = 0, *, chunk_size: int,
    executor: Executor | None = None, in_axes: Sequence[int | None] | None = None,
    reduction: str = "sum",
) -> Callable[..., Any]:
    """The gradient of a sum over shards, ``sum_i grad f(w, X_i, y_i)``.

    ``argnums`` names arguments that are passed whole.

    Raises ExecutorError where workers end before the work does; what ``f`` raises arrives with a
    note that names its shard.

    >>> import functrans as ft, numpy as np
    >>> loss = lambda w, x: np.sum((w - x) ** 2)
    >>> ft.parallel.grad(loss, chunk_size=2)(0.0, np.arange(5.0))
    Array(-20.)
    """
    summand = derivative_of("parallel.grad", "grad", f, argnums, in_axes, reduction)
    return _sum(summand, chunk_size, executor)


@deriving
def value_and_grad(
    f: Callable, argnums: int | Sequence[int] = 0, *, chunk_size: int,
    executor: Executor | None = None, in_axes: Sequence[int | None] | None = None,
    reduction: str = "sum",
) -> Callable[..., tuple[Any, Any]]:
    """Value and gradient of a sum over shards, in one pass; what ``scipy.optimize.minimize`` takes.

    >>> import functrans as ft, numpy as np
    >>> loss = lambda w, x: np.mean((w - x) ** 2)
    >>> ft.parallel.value_and_grad(loss, chunk_size=2, reduction="mean")(0.0, np.arange(5.0))
    (Array(6.), Array(-4.))
    """
    who = "parallel.value_and_grad"
    summand = derivative_of(who, "value_and_grad", f, argnums, in_axes, reduction)
    return _sum(summand, chunk_size, executor)


@deriving
def hvp(
    f: Callable, *, chunk_size: int, executor: Executor | None = None,
    in_axes: Sequence[int | None] | None = None, reduction: str = "sum",
) -> Callable[..., tuple[Any, Any]]:
    """``(w, v, *data) -> (value, H v)`` with the Hessian of the sum in ``w``, never formed.

    ``in_axes`` has an entry for ``v`` too, after that for ``w``.

    >>> import functrans as ft, numpy as np
    >>> loss = lambda w, x: np.sum((w * x) ** 2)
    >>> ft.parallel.hvp(loss, chunk_size=2)(1.0, 2.0, np.arange(3.0))
    (Array(5.), Array(20.))
    """
    return _sum(product_of("parallel.hvp", f, in_axes, reduction), chunk_size, executor)


@deriving
def jacobian(
    f: Callable, argnums: int | Sequence[int] = 0, *, chunk_size: int,
    executor: Executor | None = None, in_axes: Sequence[int | None] | None = None,
    reduction: str = "sum",
) -> Callable[..., Any]:
    """The Jacobian of a sum over shards, of moment conditions or normal equations for example.

    >>> import functrans as ft, numpy as np
    >>> moments = lambda w, x: np.stack([np.sum(w * x), np.sum(w**2 * x)])
    >>> ft.parallel.jacobian(moments, chunk_size=2)(3.0, np.arange(5.0))
    Array([10., 60.])
    """
    summand = derivative_of("parallel.jacobian", "jacobian", f, argnums, in_axes, reduction)
    return _sum(summand, chunk_size, executor)


@deriving
def hessian(
    f: Callable, argnums: int | Sequence[int] = 0, *, chunk_size: int,
    executor: Executor | None = None, in_axes: Sequence[int | None] | None = None,
    reduction: str = "sum",
) -> Callable[..., Any]:
    """The Hessian of a sum over shards: Newton's method with few parameters and many rows.

    >>> import functrans as ft, numpy as np
    >>> loss = lambda w, x: np.sum(np.exp(w * x))
    >>> ft.parallel.hessian(loss, chunk_size=2)(0.0, np.arange(5.0))
    Array(30.)
    """
    summand = derivative_of("parallel.hessian", "hessian", f, argnums, in_axes, reduction)
    return _sum(summand, chunk_size, executor)


def _sum(summand: Summand, chunk_size: Any, executor: Any) -> Callable[..., Any]:
    who, f = summand.sums.who, summand.f
    size = require_count(who, "chunk_size", chunk_size)
    workers = require_executor(who, executor)

    def summed(*args: Any) -> Any:
        axes = summand.axes(args)
        if workers is not None:
            require_values(who, f, "an argument", tree.leaves(args))
        parts = Tree(summand.sums)
        chunks = _shards(summand.sums, axes, args, size)
        for part in run(who, summand.part, chunks, workers, name_of(f)):
            if workers is not None:
                require_values(who, f, "the output", tree.leaves(part.value))
            parts.add(part)
        return summand.sums.result(parts.total())

    return summed


def _shards(sums: Sums, axes: tuple, args: tuple, size: int) -> Iterator[Chunk]:
    """The pieces of ``size`` rows, cut when they are asked for."""
    rows = _rows(sums, axes, args)
    count = max(1, -(-rows // size))
    for i in range(count):
        start, stop = i * size, min((i + 1) * size, rows)
        cut = [
            arg if a is None else tree.map(lambda x, at=slice(start, stop): x[at], arg)
            for a, arg in zip(axes, args, strict=True)
        ]
        name = f"shard {i} of {count} (rows {start} to {stop - 1})"
        yield Chunk(name, (axes, i, tuple(cut)))


def _rows(sums: Sums, axes: tuple, args: tuple) -> int:
    """How many rows the data have; each of its arrays as many."""
    sizes: dict[int, int] = {}
    for i, (a, arg) in enumerate(zip(axes, args, strict=True)):
        for x in tree.leaves(arg) if a == 0 else ():
            shape = getattr(x, "shape", ())
            if not shape:
                raise ArgumentError(
                    f"{sums.who}: argument {i} of `{sums.title}` is {describe(arg)}, which has no "
                    "rows to cut. Pass arrays, or None for it in in_axes."
                )
            sizes[i] = shape[0]
            first = next(iter(sizes))
            if shape[0] != sizes[first]:
                raise ShapeError(
                    f"{sums.who}: argument {i} of `{sums.title}` has {shape[0]} rows, argument "
                    f"{first} has {sizes[first]}. Pass None for an argument in in_axes to give it "
                    "whole to every shard."
                )
    return next(iter(sizes.values()))


class Starts(NamedTuple):
    """What the runs from many starts came to; ``best`` is one of ``results``, in their order."""

    best: Any
    results: list[Any]


def multistart(
    solve: Callable[[Any], Any], starts: Sequence, *, executor: Executor | None = None
) -> Starts:
    """``solve(x0)`` from every start, and the result with the least ``fun``.

    ``solve`` returns what ``scipy.optimize.minimize`` does: anything with ``fun``. A result whose
    ``success`` is False, or whose ``fun`` is NaN, is never the best.

    Raises SolverError where no run has succeeded; an exception of one run ends all, with a note
    that names its start.

    >>> import functrans as ft, numpy as np, scipy.optimize
    >>> f = lambda x: np.sum(np.cos(3 * x) + x**2 / 10)
    >>> solve = lambda x0: scipy.optimize.minimize(f, x0, jac=ft.grad(f))
    >>> best, results = ft.parallel.multistart(solve, [[-5.0], [0.1], [4.0]])
    >>> [round(float(r.fun), 3) for r in results], round(float(best.fun), 3)
    ([1.681, -0.893, -0.035], -0.893)
    """
    who = "parallel.multistart"
    require_callable(who, solve)
    workers = require_executor(who, executor)
    chunks = [Chunk(f"start {i} of {len(starts)}", (x0,)) for i, x0 in enumerate(starts)]
    results = list(run(who, solve, chunks, workers))
    usable = [r for r in results if _has_succeeded(solve, r)]
    if not usable:
        raise SolverError(
            f"{who}: none of the {len(results)} runs of `{name_of(solve)}` has succeeded"
        )
    return Starts(min(usable, key=lambda r: float(r.fun)), results)


def _has_succeeded(solve: Callable, result: Any) -> bool:
    if not hasattr(result, "fun"):
        raise ArgumentError(
            f"parallel.multistart: `{name_of(solve)}` must return what scipy.optimize.minimize "
            f"does, with the attribute fun, but returned {describe(result)}"
        )
    return bool(getattr(result, "success", True)) and not np.isnan(float(result.fun))


__all__ = ["Starts", "grad", "hessian", "hvp", "jacobian", "multistart", "total", "value_and_grad"]
