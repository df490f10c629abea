"""Kernels of one pass: softmax and its kin, activations, for arrays of any size and shape."""

import numpy as np
import pytest
import scipy.special
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
import functrans.scipy.special
from functrans import torch
from functrans._compile.run import add_kernels, row_kernels
from functrans._kernels import large, sizes
from functrans._ops import along_axes
from functrans._ops.declare import TABLE
from functrans._ops.reductions import recurrence
from functrans.torch._functions.shim_rows import ROWS
from tests.drawing import generator

RNG = generator(7)
WIDE = np.longdouble
DTYPES = [np.float32, np.float64]
# around one block, more than one, the narrowest and the widest row
SHAPES = [(1, 8), (600, 8), (41, 50), (3, 2047), (1, 4096), (2, 3, 700)]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-40, 88.8, -88.8, 104.0, -104.0, 1e30]


@pytest.fixture
def always(monkeypatch):
    """Kernels from the first entry on."""
    monkeypatch.setattr(sizes, "PASSES", 1)


@pytest.fixture
def kernel(always):
    """The kernel of that name, or a skip where it does not compile or does not pay."""
    def call(name, *xs, axis=None, filled=()):
        y = large.in_one_pass(name, *xs, axis=axis, filled=filled)
        if y is None:
            pytest.skip(f"no native code for {name} here")
        return y

    return call


def draw(shape, dtype, scale=3):
    return (scale * RNG.standard_normal(shape)).astype(dtype)


def shares(x):
    e = np.exp(x.astype(WIDE) - x.astype(WIDE).max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def close(y, expected, digits=8):
    """Within so many units in the last place of numbers of the size of 1, or of their own."""
    eps = digits * np.finfo(y.dtype).eps
    assert_allclose(y.astype(WIDE), expected, rtol=eps, atol=eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_shares_and_their_logarithms(kernel, shape, dtype):
    x, axis = draw(shape, dtype), (len(shape) - 1,)
    assert_allclose(kernel("softmax", x, axis=axis).astype(WIDE), shares(x),
                    rtol=24 * np.finfo(dtype).eps)  # exp of a difference as large as 12
    close(kernel("log_softmax", x, axis=axis), np.log(shares(x)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_shares_with_the_logarithms_of_their_sums(kernel, shape, dtype):
    x, axis, log = draw(shape, dtype), (len(shape) - 1,), np.empty(shape[:-1], dtype)
    share = kernel("softmax_and_log", x, axis=axis, filled=(log,))
    assert_array_equal(share, kernel("softmax", x, axis=axis))
    close(log, scipy.special.logsumexp(x.astype(WIDE), -1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("by", ["numbers", "one number"])
def test_rows_times_a_number_each(kernel, by, shape, dtype):
    x, axis = draw(shape, dtype), (len(shape) - 1,)
    ct = draw(shape[:-1], dtype) if by == "numbers" else np.broadcast_to(dtype(0.3), shape[:-1])
    assert_array_equal(kernel("scaled_rows", x, axis=axis, filled=(ct,)), x * ct[..., None])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("least", [1, 1 << 30])
def test_the_gradient_of_logsumexp_takes_the_shares_of_its_value(monkeypatch, least, dtype):
    monkeypatch.setattr(sizes, "PASSES", least)
    x, w = draw((5, 9), dtype), draw(5, dtype)
    x[1, :3], x[2], x[3, 4], x[4, 0] = -np.inf, -np.inf, np.inf, np.nan
    w[4] = 0

    def f(x):
        return np.logaddexp.reduce(x, axis=1)

    expected = shares(x[:2]) * w[:2, None]
    y, pull = ft.vjp(f, x)
    with np.errstate(invalid="ignore"):
        close(np.asarray(y), scipy.special.logsumexp(x.astype(WIDE), 1))
    got = np.asarray(pull(w)[0])
    close(got[:2], expected)
    assert_array_equal(got[2], np.full(9, w[2] / dtype(9)))
    assert_array_equal(got[3], np.where(np.arange(9) == 4, w[3], 0))
    assert_array_equal(got[4], 0)  # strong zero
    J = ft.jacobian(f)(x[:2])
    close(np.asarray(J), np.eye(2)[:, :, None] * shares(x[:2])[:, None])
    close(np.asarray(ft.hessian(lambda x: f(x[:1])[0])(x[:2]))[0, :, 0],
          np.diag(shares(x[0])) - np.outer(shares(x[0]), shares(x[0])))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_their_slopes(kernel, shape, dtype):
    g, axis = draw(shape, dtype), (len(shape) - 1,)
    y = shares(draw(shape, dtype)).astype(dtype)
    logs, moved = np.log(y), g.astype(WIDE)
    exact = y * (moved - (moved * y).sum(-1, keepdims=True))
    close(kernel("softmax_slope", g, y, axis=axis), exact)
    total = moved.sum(-1, keepdims=True)
    exact = moved - np.exp(logs.astype(WIDE)) * total
    assert_allclose(kernel("log_softmax_slope", g, logs, axis=axis).astype(WIDE), exact,
                    rtol=0, atol=8 * np.finfo(dtype).eps * float(np.abs(total).max() + 12))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 7, 2048, 2049, 5000])
def test_activations(kernel, size, dtype):
    x, g = draw(size, dtype), draw(size, dtype)
    y = kernel("sigmoid", x)
    exact = 1 / (1 + np.exp(-x.astype(WIDE)))
    assert (np.abs(y.astype(WIDE) - exact) <= 4 * np.spacing(y).astype(WIDE)).all()
    y = kernel("softplus", x)
    exact = np.log1p(np.exp(x.astype(WIDE)))
    assert (np.abs(y.astype(WIDE) - exact) <= 4 * np.spacing(y).astype(WIDE)).all()
    exact = 1 / (2 + np.exp(x.astype(WIDE)) + np.exp(-x.astype(WIDE)))
    assert_allclose(kernel("sigmoid_slope", g, x), g * exact, rtol=4 * np.finfo(dtype).eps)
    assert_array_equal(kernel("relu", x), np.where(x > 0, x, 0))
    assert_array_equal(kernel("relu_slope", g, np.maximum(x, 0)), np.where(x > 0, g, 0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_slope_of_logaddexp_keeps_its_digits(kernel, dtype):
    end = -np.log(float(np.finfo(dtype).tiny))
    x = np.concatenate([np.linspace(-end, end, 3000), SPECIAL]).astype(dtype)
    with np.errstate(all="ignore"):
        e = np.exp(-np.abs(x.astype(WIDE)))
        exact = np.where(x > 0, 1, e) / (1 + e)
    y = kernel("logistic", x)
    assert_allclose(y.astype(WIDE), exact, rtol=4 * np.finfo(dtype).eps,
                    atol=2 * float(np.finfo(dtype).smallest_subnormal))
    found = ft.grad(lambda x: np.logaddexp(0.0, x).sum())(x[:3000])
    assert_allclose(found, exact[:3000].astype(float), rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_entries_of_activations(kernel, dtype):
    x = np.resize(np.array(SPECIAL, dtype), 40)
    with np.errstate(all="ignore"):
        assert_allclose(kernel("sigmoid", x), 1 / (1 + np.exp(-x)), rtol=8 * np.finfo(dtype).eps)
        assert_array_equal(kernel("relu", x), np.maximum(x, 0))
        expected = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
        assert_allclose(kernel("softplus", x), expected, rtol=8 * np.finfo(dtype).eps)
    g = np.resize(np.array([1.0, np.inf, np.nan], dtype), 40)
    assert_array_equal(kernel("relu_slope", g, kernel("relu", x)), np.where(x <= 0, 0, g))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("entries", [
    [np.nan], [-np.nan], [np.inf], [np.inf, np.inf], [-np.inf], [np.inf, -np.inf],
    [np.inf, np.nan], [-np.inf, -np.nan], [1e30], [-0.0],
], ids=str)
def test_special_rows_are_those_of_small_arrays(kernel, entries, dtype):
    x = draw((5, 20), dtype)
    x[1, : len(entries)] = entries
    x[2] = entries[0]
    with np.errstate(all="ignore"):
        assert_allclose(kernel("softmax", x, axis=(1,)), along_axes._softmax_whole((1,), x),
                        rtol=24 * np.finfo(dtype).eps)
        top = x.max(1, keepdims=True)
        y = np.where((x == top) & (x > 0), 0, x - top)  # the limit of an infinity
        expected = y - np.log(np.exp(y).sum(1, keepdims=True))
        close(kernel("log_softmax", x, axis=(1,)), expected)


@pytest.mark.parametrize("wrong", [
    lambda x: x[:, ::2], lambda x: x.T, lambda x: x.astype(np.float16), lambda x: x.astype(int),
    lambda x: x.astype(complex), lambda x: x.astype(x.dtype.newbyteorder()), lambda x: x[:, :4],
    lambda x: np.tile(x, (1, 512)), lambda x: x[:0], lambda x: x[0, 0], lambda x: x.tolist(),
])
def test_what_kernels_do_not_take(wrong, always):
    x = wrong(draw((12, 16), np.float64))
    assert large.in_one_pass("softmax", x, axis=(1,)) is None


@pytest.mark.parametrize("repeat", [
    lambda x: x[:1], lambda x: x[:, :1], lambda x: x[0, 0], lambda x: x[:, ::2][:, :1]])
def test_operands_may_be_repeated(repeat, kernel):
    y = draw((12, 16), np.float64)
    g = np.broadcast_to(repeat(draw((12, 16), np.float64)), y.shape)
    assert_array_equal(kernel("relu_slope", g, y), np.where(y > 0, g, 0))
    for name, *xs in (("softmax_slope", g, y), ("softmax", g), ("log_softmax", g)):
        assert_array_equal(kernel(name, *xs, axis=(1,)),
                           kernel(name, *[x.copy() for x in xs], axis=(1,)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_nan_stays_one(kernel, dtype):
    word = {4: np.uint32, 8: np.uint64}[np.dtype(dtype).itemsize]
    x = draw((3, 64), dtype)
    x[:2].view(word)[:] = np.array(np.nan, dtype).view(word) + np.arange(64, dtype=word)
    assert np.isnan(x[:2]).all()
    for name, axis in (("logistic", None), ("softmax", (1,)), ("log_softmax", (1,)),
                       ("softplus", None), ("sigmoid", None)):
        assert_array_equal(np.isnan(kernel(name, x, axis=axis)), np.isnan(x))
    assert_array_equal(np.isnan(kernel("logaddexp", x, 0.0)), np.isnan(x))
    assert_array_equal(np.isnan(kernel("logaddexp_slope", 1.0, x, 0.0)), np.isnan(x))


def test_small_arrays_other_axes_and_unequal_operands_are_not_taken(monkeypatch):
    x = draw((16, 16), np.float64)
    assert large.in_one_pass("softmax", x, axis=(1,)) is None
    monkeypatch.setattr(sizes, "PASSES", 1)
    assert large.in_one_pass("softmax", x, axis=(0,)) is None
    assert large.in_one_pass("softmax", x, axis=(0, 1)) is None
    for y in (x[:8], x.astype(np.float32), np.float32(1.0), 1j, x[::-1]):
        assert large.in_one_pass("softmax_slope", x, y, axis=(1,)) is None
    with ft.config(jit=False):
        assert large.in_one_pass("softmax", x, axis=(1,)) is None


def test_nothing_is_taken_where_nothing_compiles(always, monkeypatch):
    monkeypatch.setattr(row_kernels, "_native", lambda *_: None)
    assert large.in_one_pass("relu", draw(9, np.float64)) is None
    assert_array_equal(ROWS["relu"].impl(np.array([-1.0, 2.0])), [0, 2])


def softmax(x):
    return TABLE["softmax"](x, axis=(len(x.shape) - 1,))


@pytest.mark.parametrize("shape", [(5, 9), (2, 3, 16), (1, 8)])
def test_derivatives_of_shares_in_all_modes(always, shape):
    x, t, g = (draw(shape, np.float64, 1) for _ in range(3))
    p = scipy.special.softmax(x, axis=-1)
    exact = p * (t - (p * t).sum(-1, keepdims=True))
    y, moved = ft.jvp(softmax, (x,), (t,))
    assert_allclose(y, p, rtol=1e-14)
    assert_allclose(moved, exact, rtol=1e-12, atol=1e-16)
    y, pullback = ft.vjp(softmax, x)
    assert_allclose(pullback(g)[0], p * (g - (p * g).sum(-1, keepdims=True)), rtol=1e-12,
                    atol=1e-16)
    assert_allclose(ft.vmap(softmax)(x), p, rtol=1e-14)
    assert_allclose(ft.jit(softmax)(x), p, rtol=1e-14)

    def loss(x):
        return np.sum(g * softmax(x) ** 2)

    step = 1e-20
    exact = np.empty_like(x)
    for i in np.ndindex(shape):
        z = x.astype(complex)
        z[i] += 1j * step
        q = np.exp(z)
        q = q / q.sum(-1, keepdims=True)
        exact[i] = np.sum(g * q**2).imag / step
    assert_allclose(ft.grad(loss)(x), exact, rtol=1e-11, atol=1e-15)
    _, second = ft.jvp(ft.grad(loss), (x,), (t,))
    with ft.config(jit=False):
        _, plain = ft.jvp(ft.grad(loss), (x,), (t,))
    assert_allclose(second, plain, rtol=1e-11, atol=1e-14)


def test_the_gradient_of_logsumexp_takes_the_kernel(always):
    x, g = draw((7, 11), np.float64), draw(7, np.float64)
    (ct,) = ft.vjp(lambda x: np.logaddexp.reduce(x, axis=1), x)[1](g)
    assert_allclose(ct, g[:, None] * scipy.special.softmax(x, axis=1), rtol=1e-13)


_NUMPYS = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh",
           "acosh": "arccosh", "atanh": "arctanh"}


@pytest.mark.parametrize("name", sorted(large.SCALAR))
def test_single_precision_is_rounded_from_double(kernel, name):
    f = getattr(np, _NUMPYS.get(name, name))
    ends = {"acosh": (1, 30), "atanh": (-1, 1), "asin": (-1, 1), "acos": (-1, 1)}.get(
        name, (1e-30, 30) if name in ("log2", "log10") else (-30, 30))
    x = RNG.uniform(*ends, 4097).astype(np.float32)
    x[1:40] *= np.float32(1e-6) if name != "acosh" else 1
    exact = f(x.astype(float))
    y = kernel(name, x)
    assert (np.abs(y - exact) <= 0.501 * np.spacing(np.abs(exact).astype(np.float32))).all()
    x = np.array([*SPECIAL, 1, -1, 1.5, -1.5, 1e-45, 3e38, -3e38], np.float32)
    with np.errstate(all="ignore"):
        expected = f(x.astype(float)).astype(np.float32)
    y = kernel(name, x)
    assert_array_equal(y, expected)
    assert_array_equal(np.signbit(y[y == 0]), np.signbit(expected[y == 0]))


def test_tensors_in_single_precision_take_it(kernel):
    x = draw(4097, np.float32)
    assert_array_equal(torch.expm1(torch.tensor(x)).numpy(), kernel("expm1", x))
    wide = x.astype(float)
    assert_array_equal(torch.expm1(torch.tensor(wide)).numpy(), np.expm1(wide))


@pytest.mark.parametrize("size", [1, 5, 4095, 4096, 4097])
def test_slopes_of_sines(kernel, size):
    g, x = draw(size, np.float64), draw(size, np.float64, 20)
    wide = x.astype(WIDE)
    for name, slope in [("sin_slope", np.cos(wide)), ("cos_slope", -np.sin(wide))]:
        assert_allclose(kernel(name, g, x).astype(WIDE), g * slope,
                        rtol=4 * np.finfo(np.float64).eps)


@pytest.mark.parametrize("size", [sizes.VALUES - 1, sizes.VALUES, 4096, sizes.LARGE])
@pytest.mark.parametrize("seed", ["numbers", "one number"])
def test_gradients_of_sines_of_every_size(seed, size):
    x = np.linspace(-30.0, 30.0, size)
    w = np.linspace(1.0, 2.0, size) if seed == "numbers" else np.float64(3.0)
    close(ft.grad(lambda x: np.sum(w * np.sin(x)))(x), w * np.cos(x.astype(WIDE)))
    close(ft.grad(lambda x: np.sum(w * np.cos(x)))(x), -w * np.sin(x.astype(WIDE)))
    y, t = ft.jvp(lambda x: np.sin(x), (x,), (np.full(size, 3.0),))
    close(t, 3 * np.cos(x.astype(WIDE)))
    assert_allclose(y, np.sin(x), rtol=2 * np.finfo(float).eps)


# ---- rows added at an index


@pytest.mark.parametrize(("rows", "count", "width"), [
    (1000, 80, (64,)), (3, 400, (2, 3)), (1, 5, (1,))])
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_rows_are_added_where_an_index_says(always, rows, count, width, dtype):
    index = RNG.integers(-rows, rows, (count, 2))
    v, y = (RNG.standard_normal((*n, *width)).astype(dtype) for n in ((count, 2), (rows,)))
    expected = y.copy()
    np.add.at(expected, index, v)  # in the same order
    if add_kernels._native(np.dtype(dtype).char.lower(), False, False) is None:
        pytest.skip("no native code here")
    assert large.add_rows(index, v, y)
    assert_array_equal(y, expected)
    turned = np.moveaxis(np.moveaxis(v, 0, -1).copy(), -1, 0)  # not in order
    assert large.add_rows(index[::-1], turned[::-1], y)
    np.add.at(expected, index[::-1], v[::-1])
    assert_array_equal(y, expected)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("shape", [(1000,), (300, 7), (50, 3, 2), (1,)])
def test_rows_are_read_where_an_index_says(shape, dtype, threads):
    x = draw(shape, np.float64).astype(dtype)
    for form in (70_000,), (300, 301):
        index = RNG.integers(-len(x), len(x), form)
        with ft.config(threads=threads):
            for i in index, index[..., ::-1]:
                y = large.take_rows(x, i)
                assert y.dtype == dtype
                assert_array_equal(y, x[i])
        for wrong in len(x), -len(x) - 1, 2**62, -(2**63):
            index[..., 5] = wrong
            with pytest.raises(IndexError, match="out of bounds"):
                large.take_rows(x, index)


def test_rows_that_are_not_added(always):
    v, y = np.ones((2, 3)), np.zeros((4, 3))
    for index, part, table in [
        ([0, 4], v, y), ([0, -5], v, y), ([0], v, y), ([0, 1], v, y[:, ::-1]),
        ([0, 1], v.astype(np.float32), y), (np.int32([0, 1]), v, y), ([0, 1], v[:, :1], y),
        (np.zeros((0,), int), v[:0], y), ([0, 1], v, y[:0]), ([0, 1], v[:, 0], y[:, 0].copy()),
    ]:
        assert not large.add_rows(np.asarray(index), part, table)
    assert not y.any()


def test_the_gradient_of_reading_long_rows():
    x, index = draw((5000, 64), np.float64), RNG.integers(0, 50, 100)
    w = draw((100, 64), np.float64)
    expected = np.zeros_like(x)
    for i, row in zip(index, w, strict=True):
        expected[i] += row
    assert_allclose(ft.grad(lambda x: np.sum(x[index] * w))(x), expected, rtol=1e-13, atol=1e-13)
    assert_allclose(ft.jit(ft.grad(lambda x: np.sum(x[index] * w)))(x), expected, rtol=1e-13,
                    atol=1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_are_added_up_as_numpy_does(dtype):
    for width in (8, 9, 15, 16, 100, 127, 128):
        x = draw((300, width), dtype) * 10.0 ** RNG.integers(-3, 4, (300, width)).astype(dtype)
        x[7] = -0.0
        y = large.row_sums(x)
        if y is None:
            pytest.skip("no native code here")
        expected = np.add.reduce(x, 1)
        assert_array_equal(y, expected)
        assert not np.signbit(y[7])


def test_what_row_sums_leave_to_numpy():
    x = draw((300, 100), np.float64)
    assert large.row_sums(x[:, :7].copy()) is None
    assert large.row_sums(np.tile(x, 2)) is None
    assert large.row_sums(x.T) is large.row_sums(x[:10]) is None
    assert large.row_sums(x.astype(">f8")) is None
    x[3, 4] = np.inf
    assert large.row_sums(x) is None
    x[3] = 1e308
    with pytest.warns(RuntimeWarning, match="overflow"):
        ft.value_and_grad(lambda v: np.sum(np.sum(v, axis=1)))(x)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("axis, reverse", [(0, False), (1, True)])
def test_recurrences_by_a_kernel_are_those_of_numpy(always, axis, reverse, dtype, monkeypatch):
    a, b = np.random.default_rng(0).normal(size=(2, 20, 30)).astype(dtype)
    a[3, 4] = b[5, 6] = 0.0
    y = large.recurrence(a, b, axis, reverse)
    assert y is not None
    monkeypatch.setattr(large, "recurrence", lambda *args: None)
    np.testing.assert_array_equal(y, recurrence.impl(a, b, axis, reverse))


def test_a_recurrence_of_a_zero_and_an_infinity_is_left_to_strong_zero(always):
    a, b = np.ones((2, 600))
    b[3], a[4] = np.inf, 0.0
    assert large.recurrence(a, b, 0, False) is None
    assert recurrence(a, b, axis=0, reverse=False)[4] == 1.0


def test_examples_and_verification_wait_for_no_kernel(monkeypatch):
    asked = []
    monkeypatch.setattr(row_kernels, "_native", lambda name, *rest: asked.append(name))
    x = RNG.normal(size=4 * sizes.VALUES)
    ft.jit(ft.grad(lambda x: np.tanh(x).sum()))(x)
    ft.jit(ft.grad(lambda x: functrans.scipy.special.softmax(x.reshape(-1, 8), -1)[:, 0].sum()))(x)
    assert not asked
    ft.grad(lambda x: np.tanh(x).sum())(x)  # which is where they are
    assert asked
