"""Plain NumPy in, plain NumPy out: functions as users write them, results wherever they go."""

import copy
import io
import pickle

import matplotlib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize

import functrans as ft
import functrans.numpy as fnp
from functrans.testing import check_grads

X = np.array([0.3, -1.2, 2.0])
A = np.array([[2.0, 0.5, 0.1], [0.5, 3.0, 0.2], [0.1, 0.2, 1.5]])

FUNCTIONS = {
    "ufuncs": lambda x: np.sum(np.sin(x) * np.exp(-(x**2)) + np.hypot(x, 2.0)),
    "norm": lambda x: np.linalg.norm(x) + np.linalg.norm(x, 1),
    "reduce": lambda x: np.add.reduce(x * x) + np.multiply.reduce(x) + np.maximum.reduce(x),
    "accumulate": lambda x: np.add.accumulate(x) @ x,
    "outer": lambda x: np.multiply.outer(x, x).sum() + np.outer(x, x).trace(),
    "methods": lambda x: x.T.dot(A).dot(x) + x.reshape(3, 1).sum(0).mean(),
    "matmul": lambda x: x @ A @ x + (A @ x).max(),
    "einsum": lambda x: np.einsum("i,ij,j->", x, A, x),
    "joining": lambda x: np.concatenate([x, 2 * x])[1::2].prod() + np.stack([x, x]).std(),
    "where": lambda x: np.where(x > 0, x, x**2).sum() + np.clip(x, -1, 1).sum(),
    "indexing": lambda x: x[[0, 2, 2]].sum() + x[x > 0].prod() + x[::-1][0] * x[-1],
    "solve": lambda x: np.linalg.solve(A + np.diag(x * x), x).sum(),
    "det": lambda x: np.linalg.slogdet(A + np.outer(x, x))[1] + np.linalg.det(A * x[0]),
    "python": lambda x: sum(v * v for v in x) + max(x[0], x[1]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_plain_numpy_function_is_differentiated_unchanged(name):
    check_grads(FUNCTIONS[name], (X,), order=2)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_stays_float32(name):
    f, x = FUNCTIONS[name], X.astype(np.float32)
    g = ft.grad(f)(x)
    assert g.dtype == np.float32
    assert_allclose(g, ft.grad(f)(X), rtol=2e-4, atol=1e-4)  # float32 rounding


def rosenbrock(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


@pytest.mark.parametrize("method", ["BFGS", "L-BFGS-B", "SLSQP", "TNC", "CG"])
def test_minimize_with_exact_gradients(method):
    found = optimize.minimize(rosenbrock, np.zeros(4), jac=ft.grad(rosenbrock), method=method)
    assert_allclose(found.x, np.ones(4), atol=1e-2)  # what the loosest of these methods promises


@pytest.mark.parametrize(
    "method", ["Newton-CG", "trust-exact", "trust-ncg", "trust-constr", "trust-krylov"]
)
def test_minimize_with_exact_hessians(method):
    found = optimize.minimize(
        rosenbrock,
        np.full(3, 0.8),
        jac=ft.grad(rosenbrock),
        hess=ft.hessian(rosenbrock),
        method=method,
    )
    assert_allclose(found.x, np.ones(3), atol=1e-3)  # trust-constr stops at 1e-4


def test_minimize_with_value_and_gradient_together():
    found = optimize.minimize(
        ft.value_and_grad(rosenbrock), np.zeros(3), jac=True, method="L-BFGS-B"
    )
    assert_allclose(found.x, np.ones(3), atol=1e-3)  # factr of L-BFGS-B


@pytest.mark.parametrize("loss", ["linear", "soft_l1"])
def test_least_squares_scaled_by_the_exact_jacobian(loss):
    t = np.linspace(0, 2, 20)
    residual = lambda b: b[0] * np.exp(-b[1] * t) - 3.0 * np.exp(-1.3 * t)  # noqa: E731
    found = optimize.least_squares(
        residual, [1.0, 1.0], jac=ft.jacobian(residual), x_scale="jac", loss=loss
    )
    assert_allclose(found.x, [3.0, 1.3], rtol=1e-7)


def test_root_with_exact_jacobian():
    f = lambda x: np.stack([x[0] ** 2 + x[1] ** 2 - 4, x[0] - x[1]])  # noqa: E731
    assert_allclose(optimize.root(f, [1.0, 2.0], jac=ft.jacobian(f)).x, [np.sqrt(2)] * 2)


def test_results_are_saved_and_loaded():
    g = ft.grad(rosenbrock)(X)
    file = io.BytesIO()
    np.savez(file, g=g)
    file.seek(0)
    assert_array_equal(np.load(file)["g"], g)
    for copied in (pickle.loads(pickle.dumps(g)), copy.deepcopy(g)):
        assert_array_equal(copied, g)
    assert type(pickle.loads(pickle.dumps(g))) is ft.Array


def test_results_are_plotted():
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    (line,) = axes.plot(ft.grad(rosenbrock)(X))
    assert_array_equal(line.get_ydata(), ft.grad(rosenbrock)(X))
    pyplot.close(figure)


def test_results_are_ndarrays_for_c_code():
    g = ft.grad(rosenbrock)(X)
    assert isinstance(g, np.ndarray)
    assert_array_equal(np.from_dlpack(np.asarray(g).copy()), g)
    assert memoryview(g).readonly
    assert g.dtype == np.float64 and g.flags.c_contiguous


def test_what_numpy_computes_from_a_result_may_be_written():
    y = ft.grad(rosenbrock)(X) * 2
    y[0] = 0.0
    assert y[0] == 0.0
    z = ft.grad(rosenbrock)(X)
    w = z
    w += 1  # binds a new array to w
    assert_array_equal(w, z + 1)


def test_arrays_as_constants_and_arguments():
    x = ft.array(X)
    assert_array_equal(ft.grad(lambda y: np.sum(x * y * y))(x), 2 * X * X)
    assert_array_equal(ft.grad(lambda y: (x * y).sum() + (y @ x))(x), 2 * X)


def test_names_of_numpy_that_compute_nothing_on_traced_values_are_its_own():
    assert fnp.testing is np.testing
    assert fnp.random.PCG64 is np.random.PCG64
    assert fnp.linalg.LinAlgError is np.linalg.LinAlgError
    with pytest.raises(AttributeError, match=r"functrans\.numpy' has no attribute 'sine'"):
        _ = fnp.sine

    def f(x):
        y = x + fnp.random.default_rng(0).normal(size=3)
        return fnp.lib.stride_tricks.sliding_window_view(y, 2).sum()

    assert_array_equal(ft.grad(f)(X), [1, 2, 1])
    with pytest.raises(ft.errors.ConcretizationError, match="its derivative would be lost"):
        ft.grad(lambda x: fnp.require(x).sum())(X)
