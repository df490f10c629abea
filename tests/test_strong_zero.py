"""Zero times infinity in derivatives: the branch not taken counts for nothing, in every mode."""

import numpy as np
import pytest
import scipy.special

import functrans as ft
from functrans._transforms.reverse import fusion, walk

WILD = [np.inf, -np.inf, np.nan, 1e308, -1e308]
ROWS = {
    "square": np.square, "product": lambda x: x * x, "cube": lambda x: x**3, "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "cbrt": np.cbrt,
    "reciprocal": lambda x: 1 / x, "quotient": lambda x: x / (1 + x * x), "tanh": np.tanh,
    "arctan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "log1p": np.log1p, "expm1": np.expm1,
    "arcsin": np.arcsin, "arccosh": np.arccosh, "arctanh": np.arctanh, "arcsinh": np.arcsinh,
    "absolute": np.abs, "hypot": lambda x: np.hypot(x, 2.0), "arctan2": lambda x: np.arctan2(x, x),
    "logaddexp": lambda x: np.logaddexp(x, 1.0), "maximum": lambda x: np.maximum(x, 1.0) * x,
    "power": lambda x: x**x, "chain": lambda x: np.tanh(x * x) * np.exp(x) * x,
    "negative": lambda x: -x * 2.0, "sinc": np.sinc, "remainder": lambda x: x % 3.0,
    "by a constant": lambda x: x * np.array([np.inf, np.inf, np.nan, 0.0, 1.0, 2.0, 3.0]) * x,
}
X = np.array([*WILD, 0.5, 0.25])
WANTED = np.arange(7) >= 5


def masked(f):
    """The sum of f where it is wanted."""
    return lambda x: np.sum(np.where(WANTED, f(x), 0.0))


def forward(f, x):
    return np.array([ft.jvp(f, (x,), (e,))[1] for e in np.eye(x.size)])


def pushed(f, x):
    push = ft.linearize(f, x)[1]
    return np.array([push(e) for e in np.eye(x.size)])


MODES = {
    "grad": lambda f, x: ft.grad(f)(x),
    "jvp": forward,
    "vjp": lambda f, x: ft.vjp(f, x)[1](1.0)[0],
    "linearize": pushed,
    "vmap of grad": lambda f, x: ft.vmap(ft.grad(f))(np.stack([x, x[::-1]]))[0],
    "vmap of jvp": lambda f, x: ft.vmap(lambda t: ft.jvp(f, (x,), (t,))[1])(np.eye(x.size)),
    "jacfwd": lambda f, x: ft.jacfwd(f)(x),
    "checkpoint": lambda f, x: ft.grad(ft.checkpoint(f))(x),
    "jit of grad": lambda f, x: ft.jit(ft.grad(f))(x),
    "grad of jit": lambda f, x: ft.grad(ft.jit(f))(x),
    "jit of jvp": lambda f, x: forward(ft.jit(f), x),
    "jit of jacfwd": lambda f, x: ft.jit(ft.jacfwd(f))(x),
    "scan": lambda f, x: ft.grad(
        lambda x: ft.scan(lambda s, _: (s + f(x), None), 0.0, None, length=1)[0])(x),
    "jit of scan": lambda f, x: ft.jit(ft.grad(
        lambda x: ft.scan(lambda s, _: (s + f(x), None), 0.0, None, length=1)[0]))(x),
}


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("f", ROWS.values(), ids=ROWS)
def test_the_branch_not_taken_counts_for_nothing(f, mode):
    expected = ft.grad(lambda x: np.sum(f(np.concatenate([np.ones(5), x]))[5:]))(X[5:])
    got = np.asarray(mode(masked(f), X))
    assert not got[:5].any()
    np.testing.assert_allclose(got[5:], expected, rtol=1e-13)
