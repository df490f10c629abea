"""Products of stacks of matrices take turns with the kernels before and behind them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
from functrans._compile.lowering.library import Product
from functrans._compile.run.native import NativeProgram
from functrans._compile.schedule.kernels import Kernel, Tiles
from functrans._kernels import routines, sizes
from functrans._transforms.reach import make_program
from tests.covering import covering

pytestmark = [
    pytest.mark.usefixtures("unoptimised"),
    pytest.mark.skipif(routines.available() is None, reason="no BLAS"),
]


def draw(*shape, dtype=float, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def compiled(f, *args):
    return NativeProgram(make_program(f)(*args))


def tiles(program):
    return [step for step in program.schedule.steps if isinstance(step, Tiles)]


def scores(x, w):
    return np.tanh((x - 1.0) @ w) * 2.0


def from_elsewhere(x, w):
    return x[::-1] @ w[::-1] + x @ w


def attention(q, k, v):
    s = np.exp(q @ np.swapaxes(k, 1, 2))
    return (s / np.sum(s, axis=2, keepdims=True)) @ v


@pytest.fixture(params=[(64, 1 << 20, 1 << 22), (64, 1 << 20, 64), (1 << 15, 1 << 20, 1 << 22),
                        (64, 256, 1 << 22)], ids=str)
def limits(request, monkeypatch):
    """Everything counts as large; rows on the stack, in rooms, in few rooms, or too large."""
    names = dict(zip(("TILE", "PRODUCTS", "ROOMS"), request.param, strict=True))
    for name, value in (names | {"SHARED": 0, "WORK": 0, "CHUNK": 0.1}).items():
        monkeypatch.setattr(sizes, name, value)


def test_a_product_is_part_of_the_tile_that_makes_and_reads_its_rows():
    x, w = draw(8, 200, 32), draw(8, 32, 32)
    (step,) = tiles(compiled(scores, x, w))
    assert [type(k) for k in step.kernels] == [Kernel, Product, Kernel]
    assert step.tile == 1 and len(step.local) == len(step.rooms) == 2
    assert not step.reads or all(b not in step.local for b in step.reads)


def test_small_matrices_take_turns_on_the_stack_several_at_a_time():
    x, w = draw(300, 10, 12), draw(300, 12, 9)
    (step,) = tiles(compiled(scores, x, w))
    assert step.tile > 1 and step.local and not step.rooms


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize(("rows", "n", "dtype", "threads"), covering(
    [1, 2, 5, 16], [5, 7, 24], [np.float64, np.float32, np.complex128], [1, 2]))
def test_products_in_tiles_are_numpys(rows, n, dtype, threads):
    x, w = draw(rows, n, 6, dtype=dtype), draw(rows, 6, 9, dtype=dtype, seed=1)
    tolerance = 1e-4 if dtype is np.float32 else 1e-12
    with ft.config(threads=threads):
        (y,) = compiled(scores, x, w)([x, w])
        assert_allclose(y, scores(x, w), rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize("rows", [1, 3, 16])
def test_a_function_and_its_gradient_are_those_of_plain_code(rows):
    q, k, v = (draw(rows, 7, 6, seed=i) for i in range(3))

    def f(q, k, v):
        return np.sum(attention(q, k, v) ** 2)

    grad = ft.grad(f, (0, 1, 2))
    y = compiled(attention, q, k, v)([q, k, v])[0]
    assert_allclose(y, attention(q, k, v), rtol=1e-12)
    for got, want in zip(compiled(grad, q, k, v)([q, k, v]), grad(q, k, v), strict=True):
        assert_allclose(got, want, rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize("f", [
    lambda x, w: np.exp(x @ w[0]),  # one matrix for all
    lambda x, w: np.exp(np.swapaxes(x, 1, 2)[:, :, 1:] @ x[:, 1:, 1:] @ w[:, 1:]),
    lambda x, w: from_elsewhere(np.exp(x), w),
    lambda x, w: ((x + 1.0) @ w)[::-1] * 2.0,
    lambda x, w: np.sum(np.exp(x @ w), axis=0),  # collected over the rows
    lambda x, w: np.cumsum((x * 2.0) @ w, axis=0) + x @ w,
    lambda x, w: np.exp(x) @ w[:, :, 0, None] + np.sum(x, axis=(1, 2))[:, None, None],  # a vector
    lambda x, w: np.matvec(x * x, w[:, :, 1]) * 2.0,
    lambda x, w: ((x + 1.0) @ w) @ np.swapaxes(w, 1, 2) + (x - 1.0),
    lambda x, w: np.einsum("bij,bjk,bkl->bil", x, w, np.swapaxes(w * 0.5, 1, 2)) - x,
    lambda x, w: np.stack([x @ w, 2.0 * (x @ w)]),
], ids=range(11))
def test_other_programs_of_products_are_numpys(f):
    x, w = draw(5, 11, 6), draw(5, 6, 9, seed=1)
    (y,) = compiled(f, x, w)([x, w])
    assert_allclose(y, f(x, w), rtol=1e-11, atol=1e-11)


@pytest.mark.usefixtures("limits")
def test_results_do_not_depend_on_threads():
    x, w = draw(16, 9, 6), draw(16, 6, 9, seed=1)

    def f(x, w):
        y = np.exp(x @ w)
        return np.sum(y, axis=0), np.sum(y * y)

    results = []
    for threads in (1, 2):
        with ft.config(threads=threads):
            results.append(compiled(f, x, w)([x, w]))
    for one, two in zip(*results, strict=True):
        assert_array_equal(one, two)


def test_a_kernel_is_in_the_group_that_hands_it_rows():
    def f(x, w):
        m = np.exp(x)
        total = np.sum(m, axis=0)
        return m @ w, np.tanh(total[None] + x)

    x, w = draw(6, 100, 40), draw(6, 40, 50)
    first, *_ = tiles(compiled(f, x, w))
    assert any(isinstance(k, Product) for k in first.kernels)
