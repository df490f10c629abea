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

import functools
import inspect
import math
import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans import numpy as fnp
from functrans._core.array import Array, dtype_of, shape_of, wrap
from functrans._core.bind import AnyArray
from functrans._other_names import absent
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


def _size(size: Any) -> tuple[int, ...]:
    return tuple(map(operator.index, size if isinstance(size, tuple | list) else (size,)))


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
        shape = _size(size)
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


def _inside(u: Any) -> Any:
    """Uniform numbers moved by half a step: between 0 and 1, neither of them."""
    return u + 2.0**-54


def _draw(draw: Callable) -> Callable:
    """A public draw, which takes a tuple in the place of a parameter as its size."""
    names = list(inspect.signature(draw).parameters)

    @functools.wraps(draw)
    def drawn(*args: Any, **named: Any) -> AnyArray:
        last = len(args) - 1
        if last > 0 and type(args[last]) is tuple and names[last] != "size" and "size" not in named:
            args, named = args[:last], {**named, "size": args[last]}
        return draw(*args, **named)

    return public(drawn)


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


@public
def split(key: Any, n: int = 2) -> AnyArray:
    """``n`` new keys, in an array with a row each. Do not use the old one any more.

    >>> split(key(0), 3).shape
    (3, 2)
    """
    return np.stack(_words("split", key, _KEYS, operator.index(n)), axis=-1)


@public
def fold_in(key: Any, number: Any) -> AnyArray:
    """A new key of a key and an integer, which may be traced: the key of a step of a loop.

    >>> bool((fold_in(key(0), 1) == fold_in(key(0), 2)).any())
    False
    """
    if dtype_of(number).kind not in "iu" or shape_of(number):
        raise ArgumentError(f"{user_line()}: random.fold_in takes an integer, but got {number!r}")
    counter = np.reshape(number, (1,)).astype(np.uint32)
    return np.concatenate(_threefry(_require_key("fold_in", key), _FOLDED, counter))


@_draw
def random(key: Any, size: Any = None) -> AnyArray:
    """Uniform numbers from 0 up to but not including 1.

    >>> bool(0 <= random(key(0)) < 1)
    True
    """
    return _uniform("random", key, _shape("random", size))


@_draw
def uniform(key: Any, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> AnyArray:
    """Uniform numbers from ``low`` up to ``high``.

    >>> uniform(key(0), -1.0, 1.0, size=3).shape
    (3,)
    """
    u = _uniform("uniform", key, _shape("uniform", size, low, high))
    return low + (high - low) * u


@_draw
def normal(key: Any, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> AnyArray:
    r"""Normal numbers, by :math:`\sqrt{-2 \log(1 - u)} \cos(2 \pi v)` (Box and Muller, Annals of
    Mathematical Statistics 29, 1958).

    >>> x = normal(key(0), loc=1.0, scale=2.0, size=10_000)
    >>> bool(abs(x.mean() - 1) < 0.1 and abs(x.std() - 2) < 0.1)
    True
    """
    return loc + scale * standard_normal(key, _shape("normal", size, loc, scale))


@_draw
def standard_normal(key: Any, size: Any = None) -> AnyArray:
    """Normal numbers with mean 0 and variance 1.

    >>> standard_normal(key(0), (2, 3)).shape
    (2, 3)
    """
    shape = _shape("standard_normal", size)
    u = _uniform("standard_normal", key, (2, *shape))
    return np.sqrt(-2.0 * np.log1p(-u[0])) * np.cos(2 * np.pi * u[1])


@_draw
def exponential(key: Any, scale: Any = 1.0, size: Any = None) -> AnyArray:
    """Exponential numbers with mean ``scale``.

    >>> bool(abs(exponential(key(0), 3.0, size=10_000).mean() - 3) < 0.1)
    True
    """
    u = _uniform("exponential", key, _shape("exponential", size, scale))
    return -scale * np.log1p(-u)


@_draw
def integers(key: Any, low: Any, high: Any, size: Any = None) -> AnyArray:
    """Integers from ``low`` up to but not including ``high``, at most 2**53 of them.

    >>> sorted(set(integers(key(0), 1, 7, size=100).tolist()))
    [1, 2, 3, 4, 5, 6]
    """
    u = _uniform("integers", key, _shape("integers", size, low, high))
    return low + np.floor((high - low) * u).astype(np.int64)


@public
def permutation(key: Any, x: Any) -> AnyArray:
    """The integers from 0 up to but not including ``x``, or the rows of an array, in random order.

    >>> sorted(permutation(key(0), 4).tolist())
    [0, 1, 2, 3]
    """
    if shape_of(x):
        return fnp.take(x, permutation(key, shape_of(x)[0]), axis=0)
    return np.argsort(_uniform("permutation", key, (operator.index(x),)))


@_draw
def bernoulli(key: Any, p: Any = 0.5, size: Any = None) -> AnyArray:
    """Booleans that are true with probability ``p``.

    >>> int(bernoulli(key(0), 0.25, size=1000).sum()) in range(200, 300)
    True
    """
    return _uniform("bernoulli", key, _shape("bernoulli", size, p)) < p


@_draw
def beta(key: Any, a: Any, b: Any, size: Any = None) -> AnyArray:
    """Numbers of the beta distribution, by the inverse of its distribution function.

    >>> bool(abs(beta(key(0), 2.0, 6.0, size=10_000).mean() - 0.25) < 0.01)
    True
    """
    from scipy import special  # lazy: other draws do without SciPy

    return special.betaincinv(a, b, _uniform("beta", key, _shape("beta", size, a, b)))


@_draw
def gamma(key: Any, shape: Any, scale: Any = 1.0, size: Any = None) -> AnyArray:
    """Numbers of the gamma distribution, by the inverse of its distribution function.

    They are differentiated in ``shape`` too, as that function is.

    >>> bool(abs(gamma(key(0), 2.0, 3.0, size=10_000).mean() - 6) < 0.1)
    True
    """
    from scipy import special  # lazy: other draws do without SciPy

    u = _uniform("gamma", key, _shape("gamma", size, shape, scale))
    return scale * special.gammaincinv(shape, u)


@_draw
def gumbel(key: Any, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> AnyArray:
    """Numbers of the Gumbel distribution.

    >>> bool(abs(gumbel(key(0), size=10_000).mean() - np.euler_gamma) < 0.05)
    True
    """
    u = _inside(_uniform("gumbel", key, _shape("gumbel", size, loc, scale)))
    return loc - scale * np.log(-np.log(u))


@_draw
def laplace(key: Any, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> AnyArray:
    """Numbers of the Laplace distribution.

    >>> bool(abs(abs(laplace(key(0), scale=2.0, size=10_000)).mean() - 2) < 0.1)
    True
    """
    u = 2 * _inside(_uniform("laplace", key, _shape("laplace", size, loc, scale))) - 1
    return loc - scale * np.sign(u) * np.log1p(-np.abs(u))


@_draw
def logistic(key: Any, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> AnyArray:
    """Numbers of the logistic distribution.

    >>> bool(abs(logistic(key(0), 3.0, size=10_000).mean() - 3) < 0.1)
    True
    """
    u = _inside(_uniform("logistic", key, _shape("logistic", size, loc, scale)))
    return loc + scale * (np.log(u) - np.log1p(-u))


@_draw
def truncated_normal(key: Any, lower: Any, upper: Any, size: Any = None) -> AnyArray:
    """Normal numbers with mean 0 and variance 1, of which only those between two ends are kept.

    >>> x = truncated_normal(key(0), 2.0, 3.0, size=1000)
    >>> bool(2 <= x.min() and x.max() <= 3)
    True
    """
    from functrans.scipy.stats import truncnorm  # lazy: scipy.stats is large

    u = _uniform("truncated_normal", key, _shape("truncated_normal", size, lower, upper))
    return truncnorm.ppf(u, lower, upper)


@_draw
def categorical(key: Any, logits: Any, axis: int = -1, size: Any = None) -> AnyArray:
    """Indices along ``axis`` with probabilities in proportion to ``exp(logits)``: where the sum of
    a logit and a number of the Gumbel distribution is largest (Maddison, Tarlow and Minka, A*
    Sampling, NeurIPS 2014).

    >>> drawn = categorical(key(0), np.log([1.0, 3.0]), size=1000)
    >>> int(drawn.sum()) in range(700, 800)
    True
    """
    rows = np.moveaxis(np.asarray(logits, float) if not is_number(logits) else logits, axis, -1)
    shape = _shape("categorical", size, rows[..., 0]) if size is None else _size(size)
    return np.argmax(rows + gumbel(key, size=(*shape, shape_of(rows)[-1])), axis=-1)


@_draw
def choice(key: Any, a: Any, size: Any = (), replace: bool = True, p: Any = None) -> AnyArray:
    """Entries of ``a`` along axis 0, or of the integers below ``a``, with probabilities ``p``.

    Without ``replace`` each is drawn at most once.

    >>> sorted(choice(key(0), np.array([2.0, 3.0, 5.0]), size=3, replace=False).tolist())
    [2.0, 3.0, 5.0]
    """
    n = shape_of(a)[0] if shape_of(a) else operator.index(a)
    shape = _size(size)
    many = math.prod(shape)
    if p is not None and shape_of(p) != (n,):
        raise ShapeError(
            f"{user_line()}: random.choice draws from {n} entries, but p has shape "
            f"{shape_of(p)}; it needs a probability for each"
        )
    if many > n and not replace:
        raise ArgumentError(
            f"{user_line()}: random.choice cannot draw {many} of {n} entries without replace=True"
        )
    if not n:
        raise ArgumentError(f"{user_line()}: random.choice has nothing to draw from: a is empty")
    if replace and p is None:
        index = integers(key, 0, n, shape)
    elif replace:
        ends: Any = np.cumsum(p)  # type: ignore[call-overload]  # not None here
        index = np.searchsorted(ends, ends[-1] * _uniform("choice", key, shape), side="right")
    elif p is None:
        index = np.reshape(permutation(key, n)[:many], shape)
    else:  # the first that arrive, of n that take times with means 1 / p
        with np.errstate(divide="ignore"):
            arrival = exponential(key, size=n) / p
        index = np.reshape(np.argsort(arrival)[:many], shape)
    return fnp.take(a, index, axis=0) if shape_of(a) else index


__all__ = ["bernoulli", "beta", "categorical", "choice", "exponential", "fold_in", "gamma",
           "gumbel", "integers", "key", "laplace", "logistic", "normal", "permutation", "random",
           "split", "standard_normal", "truncated_normal", "uniform"]


def __getattr__(name: str) -> Any:
    raise absent(sys.modules[__name__], name)
