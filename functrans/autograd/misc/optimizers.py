"""Stochastic gradient descent, RMSprop and Adam, of parameters in nested containers.

``grad(x, i)`` is the gradient at step ``i``, ``callback(x, i, g)`` is called before each step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.autograd._names import missing
from functrans.autograd.misc.flatten import flatten
from functrans.autograd.wrap_util import wraps

Update = Callable[[int, Any, Any], Any]


def unflatten_optimizer(optimize: Callable) -> Callable:
    """An optimizer of vectors as one of nested containers."""

    @wraps(optimize)
    def of_containers(grad: Callable, x0: Any, callback: Callable | None = None,
                      *args: Any, **kwargs: Any) -> Any:
        vector, unflatten = flatten(x0)

        def flat_grad(x: Any, i: int) -> Any:
            return flatten(grad(unflatten(x), i))[0]

        def flat_callback(x: Any, i: int, g: Any) -> None:
            if callback:
                callback(unflatten(x), i, unflatten(g))

        return unflatten(optimize(flat_grad, vector, flat_callback, *args, **kwargs))

    return of_containers


def _descend(grad: Callable, x: Any, callback: Callable | None, num_iters: int,
             step: Update) -> Any:
    for i in range(num_iters):
        g = grad(x, i)
        if callback:
            callback(x, i, g)
        x = step(i, x, g)
    return x


@unflatten_optimizer
def sgd(grad, x, callback=None, num_iters=200, step_size=0.1, mass=0.9):
    """Gradient descent with momentum: ``v <- mass v - (1 - mass) g``, ``x <- x + step_size v``.

    >>> from functrans.autograd.misc.optimizers import sgd
    >>> float(round(sgd(lambda x, i: 2.0 * x, 1.0, num_iters=200), 3))
    -0.0
    """
    velocity: Any = np.zeros(len(x))

    def step(i: int, x: Any, g: Any) -> Any:
        nonlocal velocity
        velocity = mass * velocity - (1.0 - mass) * g
        return x + step_size * velocity

    return _descend(grad, x, callback, num_iters, step)


@unflatten_optimizer
def rmsprop(grad, x, callback=None, num_iters=100, step_size=0.1, gamma=0.9, eps=1e-8):
    """Steps divided by the root of a running mean of squared gradients."""
    squares: Any = np.ones(len(x))

    def step(i: int, x: Any, g: Any) -> Any:
        nonlocal squares
        squares = gamma * squares + (1.0 - gamma) * g**2
        return x - step_size * g / (np.sqrt(squares) + eps)

    return _descend(grad, x, callback, num_iters, step)


@unflatten_optimizer
def adam(grad, x, callback=None, num_iters=100, step_size=0.001, b1=0.9, b2=0.999, eps=1e-8):
    """Running means of gradients and of their squares, both corrected for their start at zero."""
    mean: Any = np.zeros(len(x))
    squares: Any = np.zeros(len(x))

    def step(i: int, x: Any, g: Any) -> Any:
        nonlocal mean, squares
        mean = b1 * mean + (1.0 - b1) * g
        squares = b2 * squares + (1.0 - b2) * g**2
        root = np.sqrt(squares / (1.0 - b2 ** (i + 1)))
        return x - step_size * (mean / (1.0 - b1 ** (i + 1))) / (root + eps)

    return _descend(grad, x, callback, num_iters, step)


__all__ = ["adam", "rmsprop", "sgd", "unflatten_optimizer"]
__getattr__ = missing(__name__)
