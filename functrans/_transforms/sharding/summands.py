"""Which derivatives are summed over shards, and the options of such sums."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from functrans._core.aval import integer
from functrans._transforms.arguments import require_callable
from functrans._transforms.matrices.jacobian import hessian, jacobian
from functrans._transforms.matrices.products import hvp
from functrans._transforms.options import require_choice
from functrans._transforms.reverse.grad import grad, value_and_grad
from functrans._transforms.sharding.shards import Summand, Sums
from functrans.errors import ArgumentError, name_of

DERIVATIVES: dict[str, Callable] = {
    "grad": grad, "value_and_grad": value_and_grad, "jacobian": jacobian, "hessian": hessian,
}


def total_of(who: str, f: Any, in_axes: Any, reduction: Any) -> Summand:
    """The values of ``f`` themselves, summed."""
    require_callable(who, f)
    return Summand(_sums(who, f, reduction), f, f, (), _axes(who, in_axes), 1)


def derivative_of(who: str, kind: str, f: Any, argnums: Any, in_axes: Any, reduction: Any
                  ) -> Summand:
    """A derivative of ``f`` in arguments that every shard is given whole."""
    require_callable(who, f)
    numbers = _argnums(who, argnums)
    g = DERIVATIVES[kind](f, numbers if isinstance(argnums, list | tuple) else numbers[0])
    return Summand(_sums(who, f, reduction), f, g, numbers, _axes(who, in_axes), 1)


def product_of(who: str, f: Any, in_axes: Any, reduction: Any) -> Summand:
    """``(value, H v)`` of ``f(w, *data)``; the arguments are ``w, v, *data``."""
    require_callable(who, f)
    g = functools.partial(_hvp, f)
    return Summand(_sums(who, f, reduction), f, g, (), _axes(who, in_axes), 2)


def _hvp(f: Callable, w: Any, v: Any, *data: Any) -> tuple:
    @functools.wraps(f, updated=())
    def of_first(w: Any) -> Any:
        return f(w, *data)

    value, (product,) = hvp(of_first, (w,), (v,))
    return value, product


def _sums(who: str, f: Any, reduction: Any) -> Sums:
    require_choice(who, "reduction", reduction, ("sum", "mean"))
    return Sums(who, name_of(f), reduction == "mean")


def _axes(who: str, in_axes: Any) -> tuple[int | None, ...] | None:
    if in_axes is None:
        return None
    if not isinstance(in_axes, list | tuple) or not all(
        a is None or integer(a) == 0 for a in in_axes
    ):
        raise ArgumentError(
            f"{who}: in_axes must be a tuple of 0, sharded along axis 0, and None, passed whole, "
            f"but is {in_axes!r}"
        )
    return tuple(None if a is None else 0 for a in in_axes)


def _argnums(who: str, argnums: Any) -> tuple[int, ...]:
    several = argnums if isinstance(argnums, list | tuple) else (argnums,)
    numbers = [n for n in map(integer, several) if n is not None and n >= 0]
    if len(numbers) != len(several) or not numbers:
        raise ArgumentError(
            f"{who}: argnums must be positions of arguments that are passed whole, an int from 0 "
            f"on or a tuple of them, but is {argnums!r}"
        )
    return tuple(numbers)
