"""Random numbers as functions of a key: the same key gives the same numbers, in every transform.

A generator of NumPy has a state that each draw changes, so that under ``jit`` and ``vmap``, where
the function is run once for many calls or rows, drawing from one raises. Here nothing changes: a
key is an array of two 32-bit words, ``split`` makes several of one, and a draw is a function of its
key. A program that takes a key draws other numbers for each key, compiled or not; under ``vmap``
over keys each row draws its own.

The words are those of Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw, Parallel Random
Numbers: As Easy as 1, 2, 3, SC 2011). Parameters of distributions may be traced: what is drawn is
differentiated in them, with the random numbers kept.

>>> import functrans as ft, numpy as np
>>> from functrans import random

>>> @ft.jit
... def walk(key, scale):
...     return np.sum(random.normal(key, scale=scale, size=100))
>>> first, second = random.split(random.key(0))
>>> bool(walk(first, 1.0) == walk(second, 1.0))
False
>>> bool(np.isclose(ft.grad(walk, argnums=1)(first, 2.0), walk(first, 1.0)))
True

>>> ft.vmap(random.uniform)(random.split(random.key(7), 3)).shape
(3,)
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from functrans._core.array import Array, dtype_of, shape_of, wrap
from functrans._core.bind import AnyArray
from functrans._transforms.arguments import describe, is_number
from functrans.errors import ArgumentError, ShapeError, user_line
from functrans.numpy.public import public

_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
_PARITY = np.uint32(0x1BD11BDA)
# What counters begin with: draws, new keys and numbers folded in have nothing in common.
_DRAWS, _KEYS, _FOLDED = np.arange(3, dtype=np.uint32).reshape(3, 1)


def _threefry(key: Any, first: Any, second: Any) -> tuple[Any, Any]:
    """Two words for each pair of counters, which are arrays: numbers would warn of overflow."""
    ks = key[:1], key[1:], key[:1] ^ key[1:] ^ _PARITY
    a, b = first + ks[0], second + ks[1]
    for i in range(5):
        for bits in _ROTATIONS[i % 2]:
            a = a + b
            b = ((b << np.uint32(bits)) | (b >> np.uint32(32 - bits))) ^ a
        a, b = a + ks[(i + 1) % 3], b + ks[(i + 2) % 3] + np.uint32(i + 1)
    return a, b


def _require_key(who: str, key: Any) -> AnyArray:
    if getattr(key, "dtype", None) != np.uint32 or shape_of(key) != (2,):
        raise ArgumentError(
            f"{user_line()}: random.{who} takes a key, as of random.key(seed), but got "
            f"{type(key).__name__} {key!r}. Of an array of keys take one, or use vmap."
        )
    return key


def _words(who: str, key: Any, start: Any, n: int) -> tuple[Any, Any]:
    if n >= 1 << 32:
        raise ArgumentError(f"{user_line()}: random.{who} draws fewer than 2**32 numbers of a key")
    return _threefry(_require_key(who, key), start, np.arange(n, dtype=np.uint32))


def _shape(who: str, size: Any, *parameters: Any) -> tuple[int, ...]:
    """``size`` as NumPy takes it; without one, the shape that the parameters have together."""
    for p in parameters:
        if not is_number(p) or dtype_of(p).kind not in "iuf":
            raise ArgumentError(
                f"{user_line()}: the parameters of random.{who} are real numbers and arrays, not "
                f"{describe(p)}"
            )
    shapes = [shape_of(p) for p in parameters]
    shape = None
    if size is not None:
        shape = tuple(map(operator.index, size if isinstance(size, tuple | list) else (size,)))
        shapes.append(shape)
    try:
        common = np.broadcast_shapes(*shapes)
    except ValueError:
        common = None
    if common is None or shape not in (None, common):
        raise ShapeError(
            f"{user_line()}: random.{who}: size is {shape}, the shapes of its parameters are "
            f"{shapes[: len(parameters)]}; they do not go together"
        )
    return common


def _uniform(who: str, key: Any, shape: tuple[int, ...]) -> AnyArray:
    """53 random bits each, from 0 up to but not including 1."""
    high, low = _words(who, key, _DRAWS, math.prod(shape))
    bits = (high >> np.uint32(5)).astype(float) * 2.0**26 + (low >> np.uint32(6)).astype(float)
    return np.reshape(bits * 2.0**-53, shape)


def key(seed: int) -> Array:
    """The key of a seed, an integer of 64 bits.

    >>> key(1)
    Array([0, 1], dtype=uint32)
    """
    try:
        number = operator.index(seed)
    except TypeError:
        raise ArgumentError(f"random.key takes an integer, but got {seed!r}") from None
    if not 0 <= number < 1 << 64:
        raise ArgumentError(f"random.key takes an integer from 0 to 2**64 - 1, but got {number}")
    return wrap(np.array([number >> 32, number & 0xFFFFFFFF], np.uint32))


def split(key: Any, n: int = 2) -> AnyArray:
    """``n`` new keys, in an array with a row each. Do not use the old one any more.

    >>> split(key(0), 3).shape
    (3, 2)
    """
    return np.stack(_words("split", key, _KEYS, operator.index(n)), axis=-1)


def fold_in(key: Any, number: Any) -> AnyArray:
    """A new key of a key and an integer, which may be traced: the key of a step of a loop.

    >>> bool((fold_in(key(0), 1) == fold_in(key(0), 2)).any())
    False
    """
    if dtype_of(number).kind not in "iu" or shape_of(number):
        raise ArgumentError(f"{user_line()}: random.fold_in takes an integer, but got {number!r}")
    counter = np.reshape(number, (1,)).astype(np.uint32)
    return np.concatenate(_threefry(_require_key("fold_in", key), _FOLDED, counter))


def random(key: Any, size: Any = None) -> AnyArray:
    """Uniform numbers from 0 up to but not including 1.

    >>> bool(0 <= random(key(0)) < 1)
    True
    """
    return _uniform("random", key, _shape("random", size))


def uniform(key: Any, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> AnyArray:
    """Uniform numbers from ``low`` up to ``high``.

    >>> uniform(key(0), -1.0, 1.0, size=3).shape
    (3,)
    """
    u = _uniform("uniform", key, _shape("uniform", size, low, high))
    return low + (high - low) * u


def normal(key: Any, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> AnyArray:
    r"""Normal numbers, by :math:`\sqrt{-2 \log(1 - u)} \cos(2 \pi v)` (Box and Muller, Annals of
    Mathematical Statistics 29, 1958).

    >>> x = normal(key(0), loc=1.0, scale=2.0, size=10_000)
    >>> bool(abs(x.mean() - 1) < 0.1 and abs(x.std() - 2) < 0.1)
    True
    """
    return loc + scale * standard_normal(key, _shape("normal", size, loc, scale))


def standard_normal(key: Any, size: Any = None) -> AnyArray:
    """Normal numbers with mean 0 and variance 1.

    >>> standard_normal(key(0), (2, 3)).shape
    (2, 3)
    """
    shape = _shape("standard_normal", size)
    u = _uniform("standard_normal", key, (2, *shape))
    return np.sqrt(-2.0 * np.log1p(-u[0])) * np.cos(2 * np.pi * u[1])


def exponential(key: Any, scale: Any = 1.0, size: Any = None) -> AnyArray:
    """Exponential numbers with mean ``scale``.

    >>> bool(abs(exponential(key(0), 3.0, size=10_000).mean() - 3) < 0.1)
    True
    """
    u = _uniform("exponential", key, _shape("exponential", size, scale))
    return -scale * np.log1p(-u)


def integers(key: Any, low: Any, high: Any, size: Any = None) -> AnyArray:
    """Integers from ``low`` up to but not including ``high``, at most 2**53 of them.

    >>> sorted(set(integers(key(0), 1, 7, size=100).tolist()))
    [1, 2, 3, 4, 5, 6]
    """
    u = _uniform("integers", key, _shape("integers", size, low, high))
    return low + np.floor((high - low) * u).astype(np.int64)


def permutation(key: Any, n: int) -> AnyArray:
    """The integers from 0 up to but not including ``n`` in random order.

    >>> sorted(permutation(key(0), 4).tolist())
    [0, 1, 2, 3]
    """
    return np.argsort(_uniform("permutation", key, (operator.index(n),)))


exponential, fold_in, integers, normal, permutation, random, split, standard_normal, uniform = map(
    public, (exponential, fold_in, integers, normal, permutation, random, split, standard_normal,
             uniform))

__all__ = ["exponential", "fold_in", "integers", "key", "normal", "permutation", "random", "split",
           "standard_normal", "uniform"]
