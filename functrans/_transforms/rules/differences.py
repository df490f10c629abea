"""Derivatives from values alone, and the rule of one mode from that of the other.

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
    """A derivative: tangents of the outputs from those of the operands, and cotangents back."""

    jvp: Callable[[Sequence, Sequence, dict], list]
    vjp: Callable[[Sequence, Sequence, dict], list]


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
        return DerivativeRule(jvp, _by_units(jvp, _operands))
    assert vjp is not None, "one of the three"
    return DerivativeRule(_by_units(vjp, f), vjp)


def differences(f: Callable) -> DerivativeRule:
    """The rule of ``f(xs, options)`` by central differences, extrapolated once.

    With steps h and h/2 the error is of order h^4 and rounding of order eps/h, so h^5 = eps.
    """

    def jvp(xs: Sequence, ts: Sequence, options: dict) -> list:
        moving = [(x, t) for x, t in zip(xs, ts, strict=True) if t is not None and t.size]
        h = _step(moving)
        if h is None:
            return [np.zeros_like(y) if is_inexact(y) else None for y in f(xs, options)]

        def at(k: float) -> list:
            return f(
                [
                    x if t is None else (x + x.dtype.type(k) * t).astype(x.dtype)
                    for x, t in zip(xs, ts, strict=True)
                ],
                options,
            )

        runs = zip(at(h), at(-h), at(h / 2), at(-h / 2), strict=True)
        return [np.asarray(_slope(*ys, h)) if is_inexact(ys[0]) else None for ys in runs]

    return DerivativeRule(jvp, _by_units(jvp, _operands))


def _slope(far, back, near, near_back, h):
    unit = far.dtype.type
    return (4 * ((near - near_back) / unit(h)) - (far - back) / unit(2 * h)) / 3


def _step(moving: Sequence) -> float | None:
    """How far to go along the tangents; a power of two, so that it adds no rounding."""
    length = max((float(np.max(np.abs(t))) for _, t in moving), default=0.0)
    if not length:
        return None
    if not np.isfinite(length):
        return 1.0  # the result is NaN, whatever the step
    eps = max(float(np.finfo(x.dtype).eps) for x, _ in moving)
    # by the entries that change: one large entry elsewhere sets no scale for them
    size = max(1.0, *(float(np.max(np.where(t != 0, np.abs(x), 0))) for x, t in moving))
    return 2.0 ** np.round(np.log2(eps**0.2 * size / length))


def _by_units(apply: Callable, types: Callable) -> Callable:
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


def _operands(xs: Sequence, options: dict) -> Sequence:
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
        np.sum(x * y) for x, y in zip(a, b, strict=True) if x is not None and y is not None
    )


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
