"""``associative_scan``: all prefixes of a product, in a number of steps that grows as log(n)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans import tree
from functrans._core.array import dtype_of, integer, shape_of
from functrans._core.bind import AnyArray
from functrans._transforms.arguments import describe, is_number, require_callable
from functrans._transforms.control.carry import as_arrays, handed_out, same_numbers
from functrans._transforms.derived import surfacing
from functrans.errors import ArgumentError, ShapeError, name_of


@surfacing
def associative_scan(f: Callable, xs: Any, *, axis: int = 0, reverse: bool = False) -> Any:
    """The prefixes ``x[0], f(x[0], x[1]), f(f(x[0], x[1]), x[2]), ...`` of an associative ``f``.

    ``y[k] = x[0] * x[1] * ... * x[k]`` for k = 0, ..., n - 1, where ``a * b`` is ``f(a, b)``.

    ``xs`` is an array, or a container of arrays, with n entries along ``axis``. ``f(a, b)`` is
    given two of the same structure, with the same number m <= n of entries along ``axis``,
    and returns the m products, entry by entry: elementwise functions and batched ones as ``@``
    serve as they are. It must be associative; in floating point the results differ from those of
    a loop by rounding. With ``reverse`` the products start at the last entry:
    ``y[k] = x[n-1] * ... * x[k]``.

    ``f`` is called about 2 log2(n) times, on at most 2 n entries in all: neighbours are multiplied,
    the prefixes of the n/2 pairs are found in the same way, and those between follow by one
    more product each (Blelloch, Prefix Sums and Their Applications, CMU-CS-90-190, 1990). Each
    call works on whole arrays, so that a linear recurrence of 100,000 steps needs 34 calls of
    ``f`` from Python, not 100,000. Derivatives of any order and mode are those of these calls.

    Raises ShapeError where the arrays differ in length, or ``f`` changes a shape or dtype,
    ArgumentError where it changes the structure or there is no such axis.

    >>> import functrans as ft, numpy as np
    >>> from functrans import associative_scan
    >>> x = np.array([1.0, 2.0, 3.0, 4.0])
    >>> associative_scan(np.multiply, x)
    Array([ 1.,  2.,  6., 24.])
    >>> ft.grad(lambda x: associative_scan(np.maximum, x).sum())(x)
    Array([1., 1., 1., 1.])

    ``h[k] = a[k] h[k - 1] + b[k]`` for all k, from h[-1] = 0:

    >>> then = lambda p, q: (q[0] * p[0], q[0] * p[1] + q[1])
    >>> associative_scan(then, (np.full(4, 0.5), np.ones(4)))[1]
    Array([1.   , 1.5  , 1.75 , 1.875])
    """
    f = require_callable("associative_scan", f)
    leaves, structure = tree.flatten(as_arrays(xs))
    axes = _axes(leaves, axis)
    if reverse:
        leaves = [np.flip(x, k) for x, k in zip(leaves, axes, strict=True)]

    def product(a: Sequence, b: Sequence) -> list:
        out = f(tree.unflatten(structure, a), tree.unflatten(structure, b))
        return _check(f, a, structure, *tree.flatten(as_arrays(out)))

    leaves = _prefixes(product, leaves, axes)
    if reverse:
        leaves = [np.flip(y, k) for y, k in zip(leaves, axes, strict=True)]
    return handed_out(tree.unflatten(structure, leaves))


def _axes(leaves: Sequence, axis: Any) -> list[int]:
    """The axis of each leaf, from 0 on."""
    number = integer(axis)
    if number is None:
        raise ArgumentError(f"associative_scan: axis must be an integer, but is {axis!r}")
    if not leaves:
        raise ArgumentError("associative_scan: xs holds no arrays")
    for x in leaves:
        if not is_number(x) or not -len(shape_of(x)) <= number < len(shape_of(x)):
            raise ArgumentError(
                f"associative_scan: xs holds {describe(x)}, which has no axis {number} to run over"
            )
    axes = [number % len(shape_of(x)) for x in leaves]
    sizes = [shape_of(x)[k] for x, k in zip(leaves, axes, strict=True)]
    if len(set(sizes)) > 1:
        raise ShapeError(
            f"associative_scan: the arrays in xs have lengths {', '.join(map(str, sizes))} on axis "
            f"{number}. They must agree."
        )
    return axes


def _check(
    f: Callable, xs: Sequence, structure: tree.Structure, ys: list, other: tree.Structure
) -> list:
    if other != structure:
        raise ArgumentError(
            f"associative_scan: `{name_of(f)}` was given entries of structure {structure!r} and "
            f"returned {other!r}. A product must have the structure of its factors."
        )
    for x, y in zip(xs, ys, strict=True):
        alike = is_number(y) and shape_of(x) == shape_of(y)
        if not alike or not same_numbers(dtype_of(x), dtype_of(y)):
            raise ShapeError(
                f"associative_scan: `{name_of(f)}` was given {describe(x)} and returned "
                f"{describe(y)} in its place. A product must have the shape and dtype of its "
                "factors, the axis of the entries included."
            )
    return ys


def _prefixes(product: Callable, xs: list, axes: Sequence[int]) -> list:
    n = shape_of(xs[0])[axes[0]]
    if n < 2:
        return xs

    def part(xs: Sequence, start: int, stop: int | None, step: int = 1) -> list:
        return [
            x[(*[slice(None)] * k, slice(start, stop, step))]
            for x, k in zip(xs, axes, strict=True)
        ]

    odd = _prefixes(product, product(part(xs, 0, n - 1, 2), part(xs, 1, n, 2)), axes)
    even = part(xs, 0, 1)
    if n > 2:
        later = product(part(odd, 0, (n - 1) // 2), part(xs, 2, n, 2))
        even = [np.concatenate([a, b], k) for a, b, k in zip(even, later, axes, strict=True)]
    return [_interleave(a, b, k) for a, b, k in zip(even, odd, axes, strict=True)]


def _interleave(even: Any, odd: Any, axis: int) -> AnyArray:
    """Entries of ``even`` and ``odd`` in turn; ``even`` may have one more, at the end."""
    before, n, after = even.shape[:axis], odd.shape[axis], even.shape[axis + 1 :]
    ends = [slice(None)] * axis
    pairs = np.stack([even[(*ends, slice(n))], odd], axis + 1).reshape(*before, 2 * n, *after)
    if even.shape[axis] == n:
        return pairs
    return np.concatenate([pairs, even[(*ends, slice(n, None))]], axis)
