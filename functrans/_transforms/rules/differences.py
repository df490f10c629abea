"""The rule of one mode from that of the other, or from Jacobians.

Functions here take lists of ndarrays. ``jvp(xs, ts, options)`` and ``vjp(xs, cts, options)`` have
None where there is no tangent or cotangent. Both are linear over the real numbers: a complex entry
has two directions, and they are transposes by the real part of ``inner``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._core.aval import is_inexact
from functrans._transforms.forward.series import total


class DerivativeRule(NamedTuple):
    """A derivative: tangents of the outputs from those of the operands, and cotangents back.

    ``differenced``: how many times its numbers went through differences, which lose digits.
    """

    jvp: Callable[[Sequence, Sequence, dict], list]
    vjp: Callable[[Sequence, Sequence, dict], list]
    differenced: int = 0


def rule_of(
    f: Callable,
    *,
    jvp: Callable | None = None,
    vjp: Callable | None = None,
    jacobians: Callable | None = None,
) -> DerivativeRule:
    """The rule of ``f(xs, options)`` from any one of its three forms."""
    if jacobians is not None:
        return DerivativeRule(_contracted(jacobians), _contracted_back(jacobians))
    if jvp is not None:
        return DerivativeRule(jvp, by_units(jvp, operands_of))
    assert vjp is not None, "one of the three"
    return DerivativeRule(by_units(vjp, f), vjp)


def by_units(apply: Callable, types: Callable) -> Callable:
    """The rule of the other mode: ``apply`` takes a unit for each entry of ``types(xs)``."""

    def other(xs: Sequence, changes: Sequence, options: dict) -> list:
        like = types(xs, options)
        out: list[Any] = [None] * len(like)
        for i, x in enumerate(like):
            if not is_inexact(x):
                continue

            def along(t: np.ndarray, i: int = i) -> complex:
                units: list[Any] = [None] * len(like)
                units[i] = t
                return inner(changes, apply(xs, units, options))

            out[i] = _entries(x, along)
        return out

    return other


def operands_of(xs: Sequence, options: dict) -> Sequence:
    return xs


def _entries(x: np.ndarray, along: Callable) -> np.ndarray:
    """The array like ``x`` of which ``along`` gives, as real parts, the products with units."""
    flat = np.zeros(x.size, x.dtype)
    for k in range(x.size):
        e = unit(x, k)
        flat[k] = np.real(along(e))
        if x.dtype.kind == "c":
            flat[k] -= 1j * np.real(along(x.dtype.type(1j) * e))  # Re(c * i) is -Im(c)
    return flat.reshape(x.shape)


def unit(x: np.ndarray, k: int) -> np.ndarray:
    """One at entry ``k``, counted in order, and zero elsewhere."""
    e = np.zeros(x.size, x.dtype)
    e[k] = 1
    return e.reshape(x.shape)


def inner(a: Iterable, b: Iterable) -> complex:
    """The sum of products of entries, without conjugation."""
    return sum(
        _sum_of_products(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None
    )


def _sum_of_products(x: np.ndarray, y: np.ndarray) -> Any:
    total = np.sum(x * y)
    if np.isfinite(total):
        return total
    return np.sum(np.where((x == 0) | (y == 0), 0, x * y))  # 0 * nan: what is not wanted


def _contracted(jacobians: Callable) -> Callable:
    def jvp(xs: Sequence, ts: Sequence, options: dict) -> list:
        return [
            total(
                np.tensordot(j, t, t.ndim)
                for j, t in zip(row, ts, strict=True)
                if j is not None and t is not None
            )
            for row in jacobians(xs, options)
        ]

    return jvp


def _contracted_back(jacobians: Callable) -> Callable:
    def vjp(xs: Sequence, cts: Sequence, options: dict) -> list:
        rows = jacobians(xs, options)
        return [
            total(
                np.tensordot(ct, row[i], ct.ndim)
                for ct, row in zip(cts, rows, strict=True)
                if ct is not None and row[i] is not None
            )
            for i in range(len(xs))
        ]

    return vjp
