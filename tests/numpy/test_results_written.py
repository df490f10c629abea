"""Results that a function may write into: copies of what transforms return, SciPy's solutions."""

import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose

import functrans as ft
import functrans.numpy as fnp
from functrans._transforms.mutation import may_write
from functrans.scipy import integrate, linalg, optimize

X = np.array([0.5, -1.0, 2.0])
pytestmark = pytest.mark.usefixtures("unoptimised")


@pytest.mark.parametrize("copied", [
    lambda z: z.copy(), lambda z: z.astype(float), lambda z: z.flatten(), lambda z: z[:].copy(),
    lambda z: fnp.copy(z), lambda z: fnp.array(z),
], ids=["copy", "astype", "flatten", "of a part", "np.copy", "np.array"])
@pytest.mark.parametrize("square", [
    ft.vmap(lambda t: t * t), ft.jit(lambda x: x * x), ft.grad(lambda x: (x**3).sum() / 3),
], ids=["vmap", "jit", "grad"])
def test_a_copy_of_what_a_transform_returns_can_be_written_to(square, copied):
    def f(x):
        z = copied(square(x))
        z[0] = 1.0
        z[1] *= 3
        return z.sum()

    assert f(X) == 1 + 3 + 4
    for slope in (ft.grad(f), ft.jit(ft.grad(f))):
        assert_allclose(slope(X), [0.0, 6 * X[1], 2 * X[2]], rtol=1e-15)


def test_what_a_transform_returns_cannot():
    def f(x):
        z = ft.vmap(lambda t: t * t)(x).astype(float, copy=False)
        z[0] = 1.0
        return z.sum()

    with pytest.raises(ft.errors.ImmutableError):
        ft.grad(f)(X)


def moved(x):
    x[0] *= 2
    y = x[1:]
    y += 1
    return (x * x).sum()


SOLUTIONS = {
    "minimize": lambda a: moved(optimize.minimize(lambda v: ((v - a) ** 2).sum(), 0 * X).x),
    "root": lambda a: moved(optimize.root(lambda v: v - a, 0 * X).x),
    "solve_ivp": lambda a: moved(integrate.solve_ivp(lambda t, y: 0 * y, (0, 1), a).y[:, -1]),
    "solve": lambda a: moved(linalg.solve(np.eye(3), a)),
}


@pytest.mark.parametrize("f", SOLUTIONS.values(), ids=SOLUTIONS)
def test_a_solution_can_be_written_to(f):
    assert_allclose(ft.grad(f)(X), [8 * X[0], 2 * X[1] + 2, 2 * X[2] + 2], rtol=1e-7)


def test_a_solution_of_scipys_too_in_a_block_of_patch():
    def f(a):
        return moved(scipy.optimize.minimize(lambda v: ((v - a) ** 2).sum(), 0 * X).x)

    with ft.patch():
        assert_allclose(ft.grad(f)(X), [8 * X[0], 2 * X[1] + 2, 2 * X[2] + 2], rtol=1e-7)


def by_position(x):
    y = fnp.sin(x)
    np.multiply(x, 2.0, y)
    return y.sum()


def of_one(x):
    y = fnp.zeros(3)
    fnp.exp(x,
            y)
    return sum([fnp.negative(y, y) for _ in range(1)])[1]  # type: ignore[index]  # one array


def test_out_may_be_given_by_position():
    assert_allclose(ft.grad(by_position)(X), 2.0)
    assert_allclose(ft.grad(of_one)(X), [0.0, -np.exp(X[1]), 0.0])


@pytest.mark.parametrize("f", [
    lambda x, y: np.add(x, np.sin(y)), lambda x, y: np.maximum(x, y).reshape(1, 3, 1),
    lambda x, y: (np.add(x, y) + np.negative(np.add(y, x))), lambda add, y: np.clip(add, 0, y),
])
def test_calls_with_as_many_arguments_as_operands_write_nowhere(f):
    assert not may_write(f)


@pytest.mark.parametrize("options", [{}, {"dtype": np.float32}], ids=["of out", "given"])
@pytest.mark.parametrize("name", ["sum", "mean", "cumsum"])
def test_what_is_written_is_computed_in_numpys_type(name, options):
    narrow = np.array([[1e8, 1.0, -1e8]], np.float32)

    def written(np, x):
        out = x * np.ones((1, 3) if name == "cumsum" else 1)
        getattr(np, name)(narrow, axis=1, out=out, **options)
        return out

    assert_allclose(ft.jvp(lambda x: written(fnp, x), (1.0,), (1.0,))[0], written(np, 1.0), rtol=0)
