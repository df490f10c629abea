"""Random numbers whose distribution tensors describe, as new tensors and written in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.torch._functions.table import METHODS, TAKING_OUT, function, method, op
from functrans.torch._graph.nodes import named
from functrans.torch._tensors.factories import factory
from functrans.torch._tensors.random import source
from functrans.torch._tensors.tensor import Tensor, from_array


def _drawn(like: Tensor, values: Any) -> Tensor:
    return from_array(np.asarray(values).astype(like._array.dtype))


@method
def bernoulli(input: Tensor, p: float | None = None, *, generator: Any = None) -> Tensor:
    """1 with the probabilities in ``input``, or ``p``, else 0; its derivative is 0."""
    probability: Any = input._array if p is None else p
    if np.any((probability < 0) | (probability > 1)):
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
    drawn = _drawn(input, source(generator).random(input.shape) < probability)
    return _constant(drawn, input) if input.requires_grad else drawn


@op(method=False, title="BernoulliBackward0")
def _constant(y, x):
    """y, as a function of x that does not depend on it."""
    return np.where(np.ones((), bool), y, x)


@method
def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *,
                generator: Any = None) -> Tensor:
    """Indices drawn with the weights along the last dimension."""
    weights = input._array.astype(np.float64)
    if weights.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    rows = np.atleast_2d(weights)
    if (rows.sum(-1) <= 0).any():
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    if not replacement and num_samples > rows.shape[1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without "
                           "replacement")
    rng = source(generator)
    out = [rng.choice(len(p), num_samples, replacement, p / p.sum()) for p in rows]
    y = np.stack(out).astype(np.int64)
    return from_array(y if weights.ndim == 2 else y[0])


@function
def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """Counts with the rates in ``input``."""
    return _drawn(input, source(generator).poisson(input._array))


@function
def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """How many of ``count`` trials succeed, each with the probability ``prob``."""
    drawn = source(generator).binomial(count._array.astype(np.int64), prob._array)
    return _drawn(count, drawn)


@function
@factory(None)
def randint_like(input: Tensor, low: int = 0, high: int | None = None, *,
                 dtype: np.dtype | None, generator: Any = None) -> np.ndarray:
    """Integers from ``low`` up to, not including, ``high``, in the shape of ``input``."""
    low, high = (0, low) if high is None else (low, high)
    drawn = source(generator).integers(low, high, input.shape)
    return drawn.astype(dtype or input._array.dtype)


def _write(name: str, draw: Callable) -> None:
    def write(self: Tensor, *args: Any, generator: Any = None, **kwargs: Any) -> Tensor:
        self[...] = _drawn(self, draw(source(generator), self._array.shape, *args, **kwargs))
        return self

    METHODS[name] = named(write, name,
                          f"Fill this tensor with random numbers: {name.strip('_')}.")


def _require(fits: bool, text: str) -> None:
    if not fits:
        raise RuntimeError(text)


def _exponential(rng: Any, shape: Any, lambd: float = 1.0) -> np.ndarray:
    _require(lambd > 0, f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    return rng.exponential(1 / lambd, shape)


def _cauchy(rng: Any, shape: Any, median: float = 0.0, sigma: float = 1.0) -> np.ndarray:
    _require(sigma > 0, f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    return median + sigma * rng.standard_cauchy(shape)


def _geometric(rng: Any, shape: Any, p: float) -> np.ndarray:
    _require(0 < p < 1, f"geometric_ expects p to be in (0, 1), but got p={p}")
    return rng.geometric(p, shape)


def _log_normal(rng: Any, shape: Any, mean: float = 1.0, std: float = 2.0) -> np.ndarray:
    _require(std > 0, f"log_normal_ expects std > 0.0, but found std={std}")
    return rng.lognormal(mean, std, shape)


def _normal(rng: Any, shape: Any, mean: float = 0.0, std: float = 1.0) -> np.ndarray:
    _require(std >= 0, f"normal expects std >= 0.0, but found std {std}")
    return rng.normal(mean, std, shape)


for _name, _draw in (("exponential_", _exponential), ("cauchy_", _cauchy),
                     ("geometric_", _geometric), ("log_normal_", _log_normal),
                     ("normal_", _normal)):
    _write(_name, _draw)
_write("bernoulli_", lambda rng, shape, p=0.5:
         rng.random(shape) < (p._array if isinstance(p, Tensor) else p))


def _uniform(rng: Any, shape: tuple, a: float = 0.0, b: float = 1.0, **ends: float) -> np.ndarray:
    low, high = ends.get("from", a), ends.get("to", b)
    if low > high:
        raise RuntimeError("uniform_ expects to return a [from, to) range, but found "
                           f"from={low} > to={high}")
    return rng.uniform(low, high, shape)


_write("uniform_", _uniform)
_write("random_", lambda rng, shape, low=0, high=None:
         rng.integers(*((0, low or 2**24) if high is None else (low, high)), shape))
TAKING_OUT.update(["bernoulli", "multinomial"])
