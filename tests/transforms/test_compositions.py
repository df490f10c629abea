"""Every product of transforms to depth three, on a dozen functions of two numbers.

The reference is the same function in mpmath, differentiated at fifty digits.
"""

import functools
import itertools

import mpmath as mp
import numpy as np
import pytest

import functrans as ft

X = np.array([0.6, 1.3])
V = np.array([0.7, -1.1])

# name: (the function for NumPy, the same for mpmath, both from two numbers to one)
FUNCTIONS = {
    "polynomial": (lambda x: x[0] ** 2 * x[1] + x[1] ** 3, lambda a, b: a**2 * b + b**3),
    "product": (lambda x: np.prod(x * x), lambda a, b: a**2 * b**2),
    "sines": (lambda x: np.sin(x[0]) * np.cos(x[1]), lambda a, b: mp.sin(a) * mp.cos(b)),
    "quotient": (lambda x: x[0] / (1 + x[1] ** 2), lambda a, b: a / (1 + b**2)),
    "norm": (lambda x: np.sqrt(np.sum(x**2)), lambda a, b: mp.sqrt(a**2 + b**2)),
    "logsumexp": (lambda x: np.log(np.sum(np.exp(x))), lambda a, b: mp.log(mp.exp(a) + mp.exp(b))),
    "tanh sum": (lambda x: np.sum(np.tanh(x * x)), lambda a, b: mp.tanh(a**2) + mp.tanh(b**2)),
    "power": (lambda x: x[0] ** x[1], lambda a, b: a**b),
    "branch": (lambda x: x[0] * x[1] ** 2 if x[0] > 0 else x[0], lambda a, b: a * b**2),
    "where": (
        lambda x: np.sum(np.where(x > 1, x**3, np.exp(x))),
        lambda a, b: mp.exp(a) + b**3,
    ),
    "quadratic form": (
        lambda x: np.sum(np.outer(x, x) * np.array([[1.0, 2], [3, 4]]) * x),
        lambda a, b: a**2 * a + 2 * a * b * b + 3 * b * a * a + 4 * b * b * b,
    ),
    "running sum": (
        lambda x: np.sum(np.cumsum(x) ** 3),
        lambda a, b: a**3 + (a + b) ** 3,
    ),
    "maximum": (lambda x: np.max(x) ** 3 + np.min(x), lambda a, b: b**3 + a),
    "index": (lambda x: x[::-1][0] * np.arctan2(x[0], x[1]), lambda a, b: b * mp.atan2(a, b)),
}

# ---- each transform takes a function of x to one with a new last output axis, or a contracted one.
# AXIS: a new axis of partial derivatives; ALONG: their product with V; SAME: nothing new.

AXIS, ALONG, SAME = "axis", "along", "same"


def _grad(f):
    def derived(x):
        y = f(x)
        if np.shape(y) == ():
            return ft.grad(f)(x)
        flat = [ft.grad(lambda x, i=i: f(x).reshape(-1)[i])(x) for i in range(np.size(y))]
        return np.stack(flat).reshape(*np.shape(y), 2)

    return derived


def _vjp(f):
    def derived(x):
        y, pullback = ft.vjp(f, x)
        n = int(np.prod(np.shape(y)))
        rows = [pullback(e.reshape(np.shape(y)))[0] for e in np.eye(n)]
        return np.stack(rows).reshape(*np.shape(y), 2)

    return derived


def _vmap(f):
    """Two points at once, of which the first is kept: x, and x moved by a constant."""
    return lambda x: ft.vmap(f)(np.stack([x, x + 0.25]))[0]


TRANSFORMS = {
    "grad": (_grad, AXIS),
    "vjp": (_vjp, AXIS),
    "jvp": (lambda f: lambda x: ft.jvp(f, (x,), (V,))[1], ALONG),
    "linearize": (lambda f: lambda x: ft.linearize(f, x)[1](V), ALONG),
    "vmap": (_vmap, SAME),
    "jacfwd": (ft.jacfwd, AXIS),
    "jacrev": (ft.jacrev, AXIS),
}


@functools.cache
def partial(name, i, j):
    """The derivative i times in the first number, j times in the second."""
    f = FUNCTIONS[name][1]
    with mp.workdps(50):
        point = (mp.mpf(X[0]), mp.mpf(X[1]))
        return float(mp.diff(f, point, (i, j)) if i or j else f(*point))


def expected(name, kinds):
    """Partial derivatives, with an axis or a product with V for each transform, innermost first."""
    n = sum(k is not SAME for k in kinds)
    full = np.empty((2,) * n)
    for index in np.ndindex(full.shape):
        full[index] = partial(name, index.count(0), index.count(1))
    axis = 0
    for kind in kinds:
        if kind is ALONG:
            full = np.tensordot(full, V, (axis, 0))
        elif kind is AXIS:
            axis += 1
    return full


def chains():
    # depth three in full; the shorter ones are their prefixes, but cheap to name when they break
    for depth in (1, 2, 3):
        yield from itertools.product(TRANSFORMS, repeat=depth)


# Depth three on every function would be thousands of cases: each chain of three meets four of them.
def _functions_for(chain):
    names = list(FUNCTIONS)
    if len(chain) < 3:
        return names
    start = sum(ord(c) for t in chain for c in t) % len(names)
    return [names[(start + 4 * k) % len(names)] for k in range(4)]


@pytest.mark.parametrize("chain", list(chains()), ids=lambda c: " of ".join(reversed(c)))
def test_product_of_transforms(chain):
    kinds = [TRANSFORMS[t][1] for t in chain]
    for name in _functions_for(chain):
        if "vmap" in chain and name == "branch":
            continue  # `if` on a value that differs between the entries of a batch raises
        f = FUNCTIONS[name][0]
        for t in chain:
            f = TRANSFORMS[t][0](f)
        found = np.asarray(f(X))
        want = expected(name, kinds)
        assert found.shape == want.shape, name
        np.testing.assert_allclose(found, want, rtol=1e-11, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_references_are_the_functions(name):
    np.testing.assert_allclose(FUNCTIONS[name][0](X), partial(name, 0, 0), rtol=1e-14)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_hessian_and_products_with_it(name):
    f = FUNCTIONS[name][0]
    h = expected(name, [AXIS, AXIS])
    np.testing.assert_allclose(ft.hessian(f)(X), h, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(ft.hvp(f, X, V)[1], h @ V, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(ft.vhp(f, X, V)[1], V @ h, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["sines", "power", "logsumexp"])
def test_fourth_derivatives(name):
    f = FUNCTIONS[name][0]
    fourth = ft.jacfwd(ft.jacrev(ft.jacfwd(ft.grad(f))))(X)
    np.testing.assert_allclose(fourth, expected(name, [AXIS] * 4), rtol=1e-10)


def test_the_inner_variable_is_not_the_outer_one():
    """Perturbation confusion: d/dx [x * d/dy (x + y)] is 1, not 2."""
    assert ft.grad(lambda x: x * ft.grad(lambda y: x + y)(1.0))(1.0) == 1
    assert ft.derivative(lambda x: x * ft.derivative(lambda y: x + y)(1.0))(1.0) == 1
    assert ft.derivative(lambda x: x * ft.grad(lambda y: x * y)(2.0))(3.0) == 6
