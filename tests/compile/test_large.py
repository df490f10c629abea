"""Large arrays are worked through in blocks, on threads: the same numbers as in one piece."""

import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
from functrans._kernels import large as blocks
from functrans._kernels import sizes
from functrans._ops import reductions
from functrans._ops.declare import TABLE, Elementwise
from functrans._transforms.reverse import cotangents
from functrans._transforms.staging import native_rows
from functrans.tree import leaves
from tests.table.samples import samples

N = 1000


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 64 from 100 elements on, on three threads of Python's from 200 on."""
    for name, value in {"LARGE": 100, "THREADED": 200, "BLOCK": 64, "WIDE": 64, "PARALLEL": 200,
                        "PARALLEL_WORK": 0}.items():
        monkeypatch.setattr(sizes, name, value)
    monkeypatch.setattr(native_rows, "looped", lambda *args: None)
    monkeypatch.setattr(reductions, "SMALL", 8)
    monkeypatch.setattr(blocks, "cores", lambda: 3)


@pytest.fixture
def fused_code(small_blocks, monkeypatch, unoptimised):
    """The same, and code for the formulas of a backward; yields the results of that code."""
    monkeypatch.setattr(sizes, "NATIVE", 100)
    monkeypatch.setattr(cotangents, "_formulas", set())
    found, run = [], cotangents.large.compiled

    def seen(*args):
        found.append(run(*args))
        return found[-1]

    monkeypatch.setattr(cotangents.large, "compiled", seen)
    return found


WAYS = ["small_blocks", "fused_code"]
W10, W100 = np.linspace(-1, 2, 10), np.linspace(1, 2, 100)


def rows(x):
    return x.reshape(10, -1)


LOSSES = {
    "wave": lambda x: np.sum(np.exp(-x * x) * np.sin(3 * x) + np.log1p(x * x)),
    "chain": lambda x: ((((x * 1.5 + 2) * x) / (1 + x * x)) ** 2).sum(),
    "broadcast": lambda x: (x.reshape(10, -1) * np.arange(1.0, 11)[:, None] + x.mean()).sum(),
    "two shapes": lambda x: (np.tanh(x[:500]) * np.sqrt(1 + x[500:] ** 2)).sum() + (x * x).sum(),
    "strided": lambda x: np.sum(x.reshape(20, 50).T * np.cos(x.reshape(50, 20))),
    "captured": lambda x: np.sum(x * np.linspace(0, 1, N) * np.linspace(0, 1, 2 * N)[::2]),
    "rows": lambda x: (W10 * np.sum((lambda y: np.exp(-y) * np.sin(3 * y))(rows(x)), 1)).sum(),
    "columns": lambda x: (W100 * np.sum(np.tanh(rows(x)) ** 2, axis=0)).sum(),
    "one of each": lambda x: W10 @ (np.exp(rows(x) * W10[:, None]) * W100 + 1).sum(1),
    "one row": lambda x: np.sum(np.sin(x.reshape(1, -1)) ** 2, axis=1)[0] * 2,
    "stacked rows": lambda x: (np.ones((5, 2)) * np.sum(x.reshape(5, 2, -1) ** 3, 2)).sum(),
    "infinite slopes": lambda x: (W10 * np.sum(np.sqrt(rows(np.maximum(x, 0))), axis=1)).sum(),
    "shared": lambda x: (lambda y: np.sum(y * y * x + y / (2 + np.abs(x))))(np.sin(x)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_whole_arrays(name, dtype, way, request):
    x = np.random.default_rng(1).normal(size=N).astype(dtype)
    whole = ft.value_and_grad(LOSSES[name])(x)
    request.getfixturevalue(way)
    value, g = ft.value_and_grad(LOSSES[name])(x)
    rtol = 1e-12 if dtype == np.float64 else 2e-5  # the ufuncs of a tail of a block may round apart
    assert g.dtype == dtype
    assert_allclose(value, whole[0], rtol=rtol)
    assert_allclose(g, whole[1], rtol=rtol, atol=rtol)


def test_the_blocks_are_used(small_blocks, monkeypatch):
    sizes = []
    run = blocks.run_blocks
    monkeypatch.setattr(
        blocks, "run_blocks", lambda work, *size: sizes.append(size) or run(work, *size)
    )
    for name in ("chain", "rows", "columns", "one of each"):
        ft.grad(LOSSES[name])(np.ones(N))
    large = [size for size in sizes if np.prod(size) == N]
    assert large == [(N, 1), (10, 100), (10, 100), (10, 100)]  # each is one stretch


ROWS = [name for name, row in TABLE.items() if isinstance(row, Elementwise) and row.differentiable]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_large_operands_is_that_of_small_ones(name, way, request):
    row, operands = TABLE[name], samples(name)[0].operands()
    xs = [np.repeat(np.ravel(x)[:1], N) for x in operands]
    whole, pullback = ft.vjp(row, *xs)
    expected = whole, pullback(whole), ft.jvp(row, tuple(xs), tuple(xs))[1]
    request.getfixturevalue(way)
    y, pullback = ft.vjp(row, *xs)
    found = y, pullback(whole), ft.jvp(row, tuple(xs), tuple(xs))[1]
    for a, b in zip(leaves(found), leaves(expected), strict=True):
        assert a.dtype == b.dtype
        assert_allclose(a, b, rtol=1e-14)  # the ufuncs of a tail of a block may round apart


def test_complex_and_second_derivatives(small_blocks):
    z = np.exp(1j * np.arange(N))
    assert_allclose(ft.grad(lambda z: np.sum(np.abs(z * z) ** 2))(z), 4 * z, rtol=1e-12)
    x = np.linspace(0.1, 1, N)
    second = ft.grad(lambda x: ft.grad(lambda x: np.sum(np.sin(x) * x))(x).sum())(x)
    assert_allclose(second, 2 * np.cos(x) - x * np.sin(x), rtol=1e-12)


def test_the_code_of_a_formula_is_used(fused_code, monkeypatch):
    for name in ("chain", "rows", "columns", "one of each"):
        ft.grad(LOSSES[name])(np.ones(N))
    calls, formulas = len(fused_code), len(cotangents._formulas)
    assert calls == formulas >= 4
    assert all(ys is not None for ys in fused_code)
    monkeypatch.setattr(cotangents, "MOST", formulas)
    ft.grad(LOSSES["chain"])(np.ones(N))
    assert len(fused_code) == calls + 1  # a formula that is known
    expected = ft.grad(LOSSES["shared"])(np.ones(N))
    assert len(fused_code) == calls + 1
    monkeypatch.setattr(cotangents, "MOST", formulas + 1)
    assert_allclose(ft.grad(LOSSES["shared"])(np.ones(N)), expected, rtol=1e-13)
    assert len(fused_code) == calls + 2
    with ft.config(jit=False):
        ft.grad(LOSSES["rows"])(np.ones(N))
    assert len(fused_code) == calls + 2


def test_numbers_are_part_of_a_formula(fused_code):
    for k in (1, 1.0, 2.0, True):
        x = np.linspace(0.5, 1, N)
        assert_allclose(ft.grad(lambda x, k=k: np.sum(np.exp(k * x)))(x), k * np.exp(k * x))


@pytest.mark.parametrize("way", WAYS)
def test_strong_zero_inside_a_block(way, request):
    request.getfixturevalue(way)
    x = np.linspace(-1, 1, N)
    x[500] = 0.0
    g = ft.grad(lambda x: np.where(x > 0, np.sqrt(np.abs(x)) * x, 0.0).sum())(x)
    assert_allclose(g, np.where(x > 0, 1.5 * np.sqrt(np.abs(x)), 0), rtol=1e-12)


def test_an_error_in_a_thread_reaches_the_caller():
    def work(start, stop):
        raise KeyError(start)

    before = threading.active_count()
    with pytest.raises(KeyError):
        blocks.run_blocks(work, sizes.THREADED)
    assert threading.active_count() == before


def test_warnings_of_the_forward_run_are_numpys(small_blocks):
    with pytest.warns(RuntimeWarning, match="invalid value"):
        ft.grad(lambda x: np.sum(np.sqrt(x)))(np.full(N, -1.0))


def test_every_element_is_visited_once(monkeypatch):
    seen = np.zeros(1037, int)

    def work(start, stop):
        seen[start:stop] += 1

    blocks.run_blocks(work, 1037, block=100)
    assert_array_equal(seen, 1)


def test_threads_work_in_the_callers_context(small_blocks):
    seen = set()

    def work(start, stop):
        seen.add((np.geterr()["over"], ft.config.threads))
        barrier.wait(10)  # so that each of three threads takes one piece

    barrier = threading.Barrier(3)
    with np.errstate(over="raise"), ft.config(threads=7):
        blocks.share(lambda i: work(i, i + 1), range(3), 3)
    assert seen == {("raise", 7)}


@pytest.mark.parametrize("f,strides", [
    (lambda x: np.sum(-(2 * x)), (0, 0)),
    (lambda x: W10 @ np.sum(-x, axis=1), (8, 0)),
    (lambda x: W100 @ np.sum(3 - x, axis=0), (0, 8)),
], ids=["number", "columns", "rows"])
def test_what_repeats_is_not_written_out(f, strides, small_blocks):
    x = np.ones((10, 100))
    g = ft.grad(f)(x)
    assert g.strides == strides
    assert_allclose(g, np.stack([ft.jvp(f, (x,), (e,))[1] for e in np.eye(N).reshape(N, 10, 100)])
                    .reshape(10, 100), rtol=1e-13)


def test_rows_are_taken_by_numpy_where_nothing_is_compiled(small_blocks, monkeypatch):
    monkeypatch.setattr(blocks, "_native", None)
    x, index = np.arange(4000.0).reshape(400, 10), np.arange(399, -1, -1)
    with ft.config(jit=False):
        assert_array_equal(blocks.take_rows(x, index), x[index])
