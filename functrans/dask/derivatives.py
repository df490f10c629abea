"""The functions of ``functrans.dask``; those of ``functrans.parallel`` on graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from functrans._transforms.derived import deriving
from functrans._transforms.sharding.summands import derivative_of, product_of, total_of
from functrans.dask.graphs import summed


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
