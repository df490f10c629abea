"""Reading and writing by index arrays under jit, natively, against NumPy."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import functrans as ft
from functrans._compile.schedule.kernels import HostStep
from tests.drawing import generator

pytestmark = pytest.mark.usefixtures("seldom_optimised")

RNG = generator(5)
X = RNG.normal(size=(4, 5, 6))
FIRST, SECOND = np.array([0, -1, 3]), np.array([2, 1, -2])

READS = {
    "first axis": lambda x, i, j: x[i],
    "middle axis": lambda x, i, j: x[:, i],
    "last axis": lambda x, i, j: x[..., i],
    "two apart": lambda x, i, j: x[i, :, j],
    "two adjacent": lambda x, i, j: x[:, i, j],
    "an int beside": lambda x, i, j: x[1, i],
    "an int apart": lambda x, i, j: x[0, :, i],
    "slices and new axes": lambda x, i, j: x[i, 2:4, None],
    "outer": lambda x, i, j: x[i[:, None], j],
    "transposed": lambda x, i, j: x.T[i],
    "then reversed": lambda x, i, j: x[i, 1:3][:, ::-1],
    "a number": lambda x, i, j: x[i[1], :, j[0]],
    "of an expression": lambda x, i, j: (x * 2)[i * 1],
    "along an axis": lambda x, i, j: np.take_along_axis(x, np.argsort(x, 1), 1),
}


def natively(f, *args):
    steps = ft.jit(f).lower(*args).schedule.steps
    return not [s for s in steps if isinstance(s, HostStep) and s.name != "argsort"]


@pytest.mark.parametrize("name", READS)
def test_reads_and_their_transposes(name):
    f = READS[name]
    want = f(X, FIRST, SECOND)
    np.testing.assert_array_equal(ft.jit(f)(X, FIRST, SECOND), want)
    assert natively(f, X, FIRST, SECOND)

    def loss(x):
        return np.sum(np.sin(f(x, FIRST, SECOND)) * np.arange(1, want.size + 1).reshape(want.shape))

    assert natively(ft.grad(loss), X)
    np.testing.assert_allclose(ft.jit(ft.grad(loss))(X), ft.grad(loss)(X), rtol=1e-13)
    batched = ft.jit(ft.vmap(ft.grad(loss)))(np.stack([X, -X]))
    np.testing.assert_allclose(batched, [ft.grad(loss)(X), ft.grad(loss)(-X)], rtol=1e-13)


@pytest.mark.parametrize("dtype", ["f4", "f2", "c8", "c16", "i1", "u2", "?"])
def test_entries_of_any_type_are_moved(dtype):
    x = (X * 3).astype(dtype)
    got = ft.jit(lambda x, i: x[i, ::2])(x, FIRST)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, x[FIRST, ::2])


@pytest.mark.parametrize("kind", ["i1", "i2", "i4", "u1"])
def test_indices_of_any_type(kind):
    i = np.array([3, 0, 2]).astype(kind)
    np.testing.assert_array_equal(ft.jit(lambda x, i: x[i])(X, i), X[i])


@pytest.mark.parametrize("kind", ["i1", "u1"])
def test_places_may_be_more_than_a_constant_index_can_say(kind):
    x, i = RNG.normal(size=(120, 3, 50)), np.array([100, 3, 0, -20 if kind == "i1" else 99], kind)
    for read in (lambda x: x[i], lambda x: x.T[..., i], lambda x: x[i, 1, i % 50]):
        np.testing.assert_array_equal(ft.jit(read)(x), read(x))
        slope = ft.grad(lambda x, read=read: np.sum(np.sin(read(x))))
        np.testing.assert_allclose(ft.jit(slope)(x), slope(x), rtol=1e-13)
    wide = np.concatenate([x, x])  # longer than a byte counts
    np.testing.assert_array_equal(ft.jit(lambda x: x[i])(wide), wide[i])


@pytest.mark.parametrize("how", ["set", "add", "subtract", "multiply", "max"])
def test_writes_where_an_index_repeats(how):
    i, v = np.array([0, -1, 3, 0]), RNG.normal(size=(4, 6))
    f = lambda x, v: getattr(ft.numpy.asarray(x).at[i, 1], how)(v)  # noqa: E731
    np.testing.assert_array_equal(ft.jit(f)(X, v), f(X, v))
    for k in (0, 1):
        slope = ft.jacrev(lambda *a: f(*a)[0, 1], k)
        np.testing.assert_allclose(ft.jit(slope)(X, v), slope(X, v), rtol=1e-13)


@pytest.mark.parametrize("wrong", [4, -5, 2**62, -(2**62)])
def test_out_of_bounds_is_an_index_error(wrong):
    read = ft.jit(lambda x, i: x[i])
    read(X, np.array([3]))
    with pytest.raises(IndexError, match="out of bounds"):
        read(X, np.array([wrong]))
    write = ft.jit(lambda x, i: x.at[i].add(1.0))
    write(X, np.array([3]))
    with pytest.raises(IndexError, match="out of bounds"):
        write(X, np.array([wrong]))
    inside = ft.jit(lambda x, i: ft.fori_loop(0, 3, lambda k, s: s + x[i + k], 0.0))
    inside(X[0, 0], 3)
    with pytest.raises(IndexError, match="out of bounds"):
        inside(X[0, 0], 4 if wrong > 0 else -100)


def test_a_loop_reads_and_writes_by_its_counter():
    def f(x):
        def step(i, y):
            return y.at[i].set(y[i - 1] * x[i] + 1)

        return ft.fori_loop(1, len(x), step, x * 1.0)

    x = X[0, 0]
    np.testing.assert_allclose(ft.jit(f)(x), f(x), rtol=1e-14)
    np.testing.assert_allclose(ft.jit(ft.jacrev(f))(x), ft.jacrev(f)(x), rtol=1e-13)
    assert natively(ft.grad(lambda x: np.sum(f(x))), x)


def test_nothing_to_read():
    empty = np.zeros(0, int)
    np.testing.assert_array_equal(ft.jit(lambda x, i: x[i])(X, empty), X[empty])
    assert ft.jit(lambda x, i: x[:, i])(np.zeros((0, 3)), FIRST[:1]).shape == (0, 1)


@pytest.mark.parametrize("size", [511, 512, 3000])
@pytest.mark.parametrize("order", ["read first", "read last"])
def test_reads_of_single_entries_add_to_what_comes_from_all(order, size):
    x, w = np.linspace(1.0, 2.0, size), np.linspace(-1.0, 1.0, size)

    def f(x):
        y = x * 1.0  # whose cotangent is that of x itself
        if order == "read first":
            return y[3] * 2.0 + x[-1] + np.sum(w * y) + np.sum(x) + y[3]
        return np.sum(w * y) + np.sum(x) + y[3] * 2.0 + x[-1] + y[3]

    expected = w + 1
    expected[3] += 3
    expected[-1] += 1
    assert_allclose(ft.grad(f)(x), expected, rtol=1e-15)
    _, pull = ft.vjp(lambda x: (x * 1.0, x[2], x), x)
    ct = np.ones(size)
    for _ in range(2):
        assert_allclose(pull((ct, np.float64(3.0), ct))[0], np.where(np.arange(size) == 2, 5, 2))
    assert (ct == 1).all()
