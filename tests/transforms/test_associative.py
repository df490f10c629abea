"""associative_scan against loops: values, derivatives in both modes, batches, jit, bad calls."""

import itertools

import numpy as np
import pytest

import functrans as ft
from functrans import associative_scan
from functrans.errors import ArgumentError, ShapeError


def then(p, q):
    """x -> a x + b of p, then of q."""
    return q[0] * p[0], q[0] * p[1] + q[1]


def recurrence(a, b, reverse=False):
    rows = [b[-1] if reverse else b[0]]
    for k in range(len(a) - 2, -1, -1) if reverse else range(1, len(a)):
        rows.append(a[k] * rows[-1] + b[k])
    return np.stack(rows[::-1] if reverse else rows)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_every_prefix_is_that_of_a_loop(n, reverse):
    texts = [chr(97 + k) for k in range(n)]
    starts, stops = np.arange(n), np.arange(1, n + 1)
    if reverse:
        starts, stops = stops, starts

    def joined(p, q):  # parts of the text that meet, or the product is not that of neighbours
        assert np.array_equal(p[1], q[0])
        return p[0], q[1]

    first, last = associative_scan(joined, (starts, stops), reverse=reverse)
    want = ["".join(texts[k:] if reverse else texts[: k + 1]) for k in range(n)]
    parts = [sorted(pair) for pair in zip(first.tolist(), last.tolist(), strict=True)]
    assert ["".join(texts[i:j]) for i, j in parts] == want


def test_nothing_stays_nothing_and_one_entry_itself():
    assert associative_scan(np.add, np.zeros((0, 3))).shape == (0, 3)
    x = np.array([2.0])
    y = associative_scan(np.add, x)
    x[0] = 7.0
    assert y.tolist() == [2.0]


def test_matrices_are_multiplied_along_any_axis():
    ms = np.random.default_rng(0).normal(size=(6, 2, 2))
    want = list(itertools.accumulate(ms, np.matmul))
    assert np.allclose(associative_scan(np.matmul, ms), want, rtol=1e-14)
    x = np.arange(12).reshape(3, 4)
    for axis in (0, 1, -1, -2):
        assert np.array_equal(associative_scan(np.add, x, axis=axis), np.cumsum(x, axis))


@pytest.mark.parametrize("reverse", [False, True])
def test_derivatives_agree_with_those_of_the_loop(reverse):
    rng = np.random.default_rng(1)
    a, b, t = rng.uniform(0.5, 1.5, 7), rng.normal(size=7), rng.normal(size=7)

    def ours(a, b):
        return (associative_scan(then, (a, b), reverse=reverse)[1] ** 2).sum()

    def theirs(a, b):
        return (recurrence(a, b, reverse) ** 2).sum()

    for f in (ft.grad(ours, (0, 1)), ft.jit(ft.grad(ours, (0, 1)))):
        for got, want in zip(f(a, b), ft.grad(theirs, (0, 1))(a, b), strict=True):
            assert np.allclose(got, want, rtol=1e-12)
    forward = [ft.jvp(f, (a, b), (t, t))[1] for f in (ours, theirs)]
    assert forward[0] == pytest.approx(forward[1], rel=1e-13)
    second = [ft.hvp(lambda a, f=f: f(a, b), a, t)[1] for f in (ours, theirs)]
    assert np.allclose(*second, rtol=1e-12)


def test_a_batch_is_its_rows_and_jit_gives_the_same_bits():
    x = np.random.default_rng(2).normal(size=(3, 9))

    def f(x):
        return associative_scan(lambda p, q: p + q + p * q, x)

    rows = np.stack([f(row) for row in x])
    assert np.array_equal(ft.vmap(f)(x), rows)
    assert np.array_equal(ft.jit(ft.vmap(f))(x), rows)


def test_a_zero_does_not_spoil_the_gradient_of_a_cumulative_product():
    x = np.array([2.0, 0.0, 3.0, 4.0])
    got = ft.grad(lambda x: associative_scan(np.multiply, x).sum())(x)
    assert got.tolist() == [1.0, 32.0, 0.0, 0.0]


def test_the_number_of_calls_grows_as_the_logarithm():
    sizes = []

    def add(p, q):
        sizes.append(len(p))
        return p + q

    associative_scan(add, np.ones(1000))
    assert len(sizes) <= 2 * 10
    assert sum(sizes) < 2 * 1000


BAD = {
    "not callable": (lambda: associative_scan(3, np.ones(2)), ArgumentError, "associative_scan"),
    "axis": (lambda: associative_scan(np.add, np.ones(2), axis=0.5), ArgumentError, "an integer"),
    "no axis": (lambda: associative_scan(np.add, 1.0), ArgumentError, "has no axis 0 to run over"),
    "nothing": (lambda: associative_scan(np.add, ()), ArgumentError, "xs holds no arrays"),
    "lengths": (
        lambda: associative_scan(then, (np.ones(2), np.ones(3))), ShapeError,
        "lengths 2, 3 on axis 0. They must agree",
    ),
    "structure": (
        lambda: associative_scan(lambda p, q: p[0], (np.ones(2), np.ones(2))), ArgumentError,
        "must have the structure of its factors",
    ),
    "shape": (
        lambda: associative_scan(lambda p, q: (p + q).sum(), np.ones(4)), ShapeError,
        r"given float64\[2\] and returned float64\[\] in its place",
    ),
    "dtype": (
        lambda: associative_scan(lambda p, q: p / q, np.ones(4, int)), ShapeError,
        "returned float64",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_says_what_is_wrong(name):
    call, error, text = BAD[name]
    with pytest.raises(error, match=text):
        call()
