"""What is asked of each counterpart: SciPy's values, and derivatives of them in every mode."""

import numpy as np

import functrans as ft
from functrans.testing import check_grads
from functrans.tree import leaves


def close(y, expected, rtol=1e-11):
    """Equal in shape and dtype, and up to rounding relative to the largest entry."""
    for a, b in zip(leaves(y), leaves(expected), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        size = np.max(np.abs(b), initial=0.0) if b.size else 0.0
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * size)


def numbers(y):
    """The arrays of numbers that are differentiated, in one container or another."""
    return [v for v in leaves(y) if np.dtype(getattr(v, "dtype", float)).kind in "fc"]


def assert_derivatives(f, *args, order=2):
    """Of plain arrays ``f`` is SciPy's own: values agree, and derivatives with its differences."""
    close(ft.vjp(f, *args)[0], f(*args))
    check_grads(lambda *xs: numbers(f(*xs)), args, order=order)


def assert_transforms(f, *args):
    """Batches are single results stacked; compiled, value and gradient are as they were."""

    def loss(*xs):
        return sum([np.sum(np.abs(y) ** 2) for y in numbers(f(*xs))])

    many = [np.stack([x, 0.9 * x]) for x in args]
    grads = ft.grad(loss, argnums=tuple(range(len(args))))
    singles = [[leaves(v) for v in (f(*xs), grads(*xs))] for xs in zip(*many, strict=True)]
    for i, batched in enumerate([ft.vmap(f)(*many), ft.vmap(grads)(*many)]):
        for k, y in enumerate(leaves(batched)):
            close(y, np.stack([np.asarray(s[i][k]) for s in singles]))
    close(ft.jit(grads)(*args), grads(*args))
