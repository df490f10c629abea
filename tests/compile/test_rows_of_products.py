"""Products of a matrix with many rows take turns with kernels, and each other, on some of the rows.

They have rows of ``a`` for rows of the result, or sum over those that both have.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
from functrans._compile.lowering.library import Product
from functrans._compile.run.native import NativeProgram
from functrans._compile.schedule import linear, tiles
from functrans._compile.schedule.kernels import Tiles
from functrans._kernels import routines, sizes
from functrans._transforms.reach import make_program
from tests.covering import covering

pytestmark = [
    pytest.mark.usefixtures("unoptimised"),
    pytest.mark.skipif(routines.available() is None, reason="no BLAS"),
]


def draw(*shape, dtype=float, seed=0):
    x = np.random.default_rng(seed).normal(size=shape)
    return (x + 1j * x[::-1] if dtype is complex else x).astype(dtype)


def compiled(f, *args):
    return NativeProgram(make_program(f)(*args))


def grouped(program):
    return [step for step in program.schedule.steps if isinstance(step, Tiles)]


def along(step):
    """How the products of a group have rows."""
    return "".join([k.along for k in step.kernels if isinstance(k, Product)])


@pytest.fixture(params=[300, 1000, 1 << 18], ids=str)
def limits(request, monkeypatch):
    """Everything is worth a group: tiles of a row or two, of some, of all."""
    names = {"PRODUCTS": 1, "SHARED": 0, "WORK": 0, "CHUNK": 0.1, "PANEL": request.param}
    for name, value in names.items():
        monkeypatch.setattr(sizes, name, value)
    monkeypatch.setattr(sizes, "TILE", 64)  # what is handed on is not on the stack
    for module, name, value in ((tiles, "TALL", 1), (tiles, "FEWEST", 1), (linear, "WHOLE_ROWS", 0),
                                (linear, "SMALL_PRODUCT", 0), (linear, "SMALL_VECTOR", 0)):
        monkeypatch.setattr(module, name, value)


def gradient(x, w, u):
    return np.tanh(x @ w[:, 0] - u) @ x


def squares(x, w, u):
    return x.T @ (u[:, None] * x)


def scores(x, w, u):
    y = np.exp(0.1 * (x @ w))
    return y, x.T @ y, np.sum(y, axis=0), u @ y


def there_and_back(x, w, u):
    y = np.tanh(x @ w)
    return (y @ w.T) * u[:, None], y.T @ x


def later(x, w, u):
    y = np.tanh(x)
    return y @ (y.T @ x), y @ (u @ y)  # what is summed over all rows comes back to each


def from_elsewhere(x, w, u):
    y = np.tanh(x)
    return y[::-1] @ w, y.T @ y[::-1], u[::-1] @ y, (y @ w)[::-1] + y @ w


def parts(x, w, u):
    return x[1:, 1:].T @ np.tanh(x[:-1, :-1]), x[::2] @ w, x[:, ::-1] @ w + x @ w[::-1]


def by_columns(x, w, u):
    a = np.tanh(x.T)
    return a @ (a * u).T, w[:, 0] @ a, (w.T @ a) @ a.T, a @ (w[:, 1] @ a)


FIXED = np.asfortranarray(np.random.default_rng(7).normal(size=(9, 100)))


def of_transposes(x, w, u):
    a, n = x.T, len(u)
    b = np.exp(0.1 * a) * u
    c = np.tanh(a * np.asfortranarray(FIXED[:, :n]))
    square = np.exp(0.01 * (x.T @ np.tanh(x)).T)
    return b @ x, (square + square.T) @ w, c @ x, (c * u).T @ w, c[1:] @ x, c[::2] @ x


def of_cubes(x, w, u):
    cube = x.reshape(-1, 3, 3)
    a, b, c, d = (np.tanh(k * cube.transpose(axes)) for k, axes in enumerate(
        [(2, 1, 0), (2, 1, 0), (0, 2, 1), (2, 1, 0)], 1))
    return a[:, 0] @ x, (b * u).reshape(9, -1) @ x, c @ w[:3], d[1] @ x


def both_ways(x, w, u):
    y = x @ x.T
    return y @ np.tanh(x), np.tanh(y) @ u, y.T @ y


def normal_equations(x, w, u):
    return x.T @ (x @ w[:, 0]), x.T @ (x @ w)


def of_parts_of_transposes(x, w, u):
    a = x.T
    joined = np.tanh(np.concatenate([a, 2 * a[:, ::-1]]))
    spread = np.tanh(a * np.broadcast_to(w[:, :1], a.shape))
    return (np.tanh(a)[1:] @ x, np.tanh(2 * a)[:, 1:] @ x[1:], np.tanh(3 * a)[::2] @ x,
            joined @ x, spread @ x, np.tanh(4 * a)[::-1] @ x)


def collected(x, w, u):
    y = np.tanh(np.real(x))
    ends = np.max(y - 5, axis=0), np.min(y + 5, axis=0), np.argmax(y, axis=0)
    return *ends, np.prod(1 + 0.1 * y, axis=0), np.any(y > 0.9, axis=0), x.T @ (y * u[:, None])


def by_index(x, w, u):
    order = np.argsort(np.real(u))

    def f(x):
        return np.sum(np.tanh(np.real(x))[order] ** 2 * np.arange(len(u))[:, None])

    y = np.tanh(x)
    return y[order] @ w, y[order].T @ (y + x), ft.grad(f)(np.real(x)).T @ x


def of_one_number(x, w, u):
    return np.tanh(x[:, :1]) @ np.broadcast_to(np.tanh(w[0, 0]), (1,)), x[:, :1] @ w[:1]


PROGRAMS = [gradient, squares, scores, there_and_back, later, from_elsewhere, parts, by_columns,
            of_transposes, of_parts_of_transposes, of_cubes, both_ways, normal_equations,
            collected, by_index, of_one_number]
ROWS = [1, 2, 3, 7, 16, 33, 64, 100]


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize(("f", "rows", "dtype", "threads"), covering(
    PROGRAMS, ROWS, [np.float64, np.float32, np.complex128], [1, 2]))
def test_programs_are_numpys(f, rows, dtype, threads):
    x, w = draw(rows, 9, dtype=dtype), draw(9, 10, dtype=dtype, seed=1)
    u = draw(rows, dtype=dtype, seed=2)
    tolerance = 1e-4 if dtype is np.float32 else 1e-11
    with ft.config(threads=threads):
        ys = compiled(f, x, w, u)([x, w, u])
    expected = f(x, w, u)
    for y, value in zip(ys, expected if type(expected) is tuple else [expected], strict=True):
        assert_allclose(y, value, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize("f", [gradient, squares, scores, there_and_back, normal_equations])
def test_not_a_bit_depends_on_threads(f):
    args = draw(4000, 9), draw(9, 10, seed=1), draw(4000, seed=2)
    program = compiled(f, *args)
    assert any(step.chunks > 1 for step in grouped(program))
    results = []
    for threads in (1, 2):
        with ft.config(threads=threads):
            results.append(program([*args]))
    for one, two in zip(*results, strict=True):
        assert_array_equal(one, two)


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_what_is_not_finite_is_where_numpy_has_it(bad):
    x, w, u = draw(50, 9), draw(9, 10, seed=1), draw(50, seed=2)
    x[17, 3], u[40] = bad, 0.0
    for f in (squares, scores):
        with np.errstate(invalid="ignore"):
            expected = f(x, w, u)
        ys = compiled(f, x, w, u)([x, w, u])
        for y, value in zip(ys, expected if type(expected) is tuple else [expected], strict=True):
            assert_array_equal(np.isnan(y), np.isnan(value))


def loss(x, w, u):
    def f(p, q):
        return np.mean((np.tanh(x @ p) @ q - u) ** 2)

    return f, (w, w[0] * 0.1)


@pytest.mark.usefixtures("limits")
def test_gradients_are_those_of_plain_code():
    f, args = loss(draw(70, 9), draw(9, 12, seed=1), draw(70, seed=2))
    grad = ft.grad(f, (0, 1))
    for got, want in zip(compiled(grad, *args)([*args]), grad(*args), strict=True):
        assert_allclose(got, want, rtol=1e-11, atol=1e-13)
    hessian = ft.hessian(lambda q: f(args[0], q))
    (got,) = compiled(hessian, args[1])([args[1]])
    assert_allclose(got, hessian(args[1]), rtol=1e-11, atol=1e-13)


def test_a_gradient_goes_through_a_large_matrix_once():
    args = draw(10_000, 100), draw(100, 2, seed=1), draw(10_000, seed=2)
    program = compiled(gradient, *args)
    (step,) = grouped(program)
    assert along(step) == "nk"
    assert len(step.local) == 2  # neither the products nor their slopes are in memory
    assert step.tile < step.chunk < step.rows


def test_a_gradient_of_two_layers_is_one_group():
    x, u = draw(4000, 40), draw(4000, seed=2)
    f, args = loss(x, draw(40, 30, seed=1), u)
    program = compiled(ft.grad(f, (0, 1)), *args)
    assert max(map(len, map(along, grouped(program)))) == 4


def likelihood(x, u):
    return lambda p: np.mean(np.logaddexp(0.0, u * (x @ p)))


def test_a_hessian_goes_through_its_matrix_by_rows():
    x, u, p = draw(3000, 60), draw(3000, seed=2), draw(60, seed=1)
    captured = compiled(ft.hessian(likelihood(x, u)), p)
    given = compiled(lambda p, x, u: ft.hessian(likelihood(x, u))(p), p, x, u)
    for program in (captured, given):
        (step,) = grouped(program)
        assert along(step) == "nk"
        assert max(k.space for k in step.kernels if not isinstance(k, Product)) == (3000, 60)
    expected = ft.hessian(likelihood(x, u))(p)
    assert_allclose(captured([p])[0], expected, rtol=1e-10, atol=1e-12)
    assert_allclose(given([p, x, u])[0], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("rows", "columns"), [(5000, 20), (300, 300), (40, 9000)])
def test_what_stays_in_the_cache_or_has_long_rows_is_left_whole(rows, columns):
    args = draw(rows, columns), draw(columns, 2, seed=1), draw(rows, seed=2)
    program = compiled(gradient, *args)
    assert not any(map(along, grouped(program)))


def test_kernels_take_turns_without_products_that_cannot():
    def f(x, w, u):
        y = np.exp(x)
        return (y / np.sum(y, axis=1, keepdims=True)) @ w

    args = draw(500, 60), draw(60, 50, seed=1), draw(500, seed=2)
    (step,) = grouped(compiled(f, *args))
    assert not along(step)


@pytest.mark.usefixtures("limits")
def test_loops_run_groups():
    x, w, u = draw(60, 9), draw(9, seed=1), draw(60, seed=2)

    def descend(w):
        return ft.fori_loop(0, 5, lambda i, w: w - 0.01 * (np.tanh(x @ w - u) @ x), w)

    (y,) = compiled(descend, w)([w])
    assert_allclose(y, descend(w), rtol=1e-12)
