"""Shapes without values, and sums of rows that belong together."""

import numpy as np
import pytest

import functrans as ft
from functrans.errors import ArgumentError, ConcretizationError, ShapeError

X = np.arange(12.0).reshape(4, 3)
IDS = np.array([2, 0, 2, 4])


def sums(x, ids, n):
    return np.stack([x[np.asarray(ids) == k].sum(axis=0) for k in range(n)])


@pytest.mark.parametrize("make", [lambda f: f, ft.jit])
def test_rows_of_a_segment_are_added(make):
    got = make(lambda x, ids: ft.segment_sum(x, ids, 6))(X, IDS)
    np.testing.assert_array_equal(got, sums(X, IDS, 6))
    np.testing.assert_array_equal(ft.segment_sum(X[:, 0], IDS), sums(X[:, 0], IDS, 5))
    assert ft.segment_sum(X[:0], IDS[:0], 2).tolist() == [[0.0] * 3] * 2
    assert ft.segment_sum([1, 2], [0, 0]).dtype == int


def test_segment_sums_are_differentiated_and_batched():
    def f(x):
        return np.sum(ft.segment_sum(x, IDS, 5) ** 2)

    want = 2 * sums(X, IDS, 5)[IDS]
    batched = ft.vmap(ft.grad(f))
    for g in (ft.grad(f), ft.jit(ft.grad(f)), ft.jacfwd(f), lambda x: batched(x[None])[0]):
        np.testing.assert_array_equal(g(X), want)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: ft.segment_sum(X, IDS * 1.0), ArgumentError, "integers, but got float64"),
    (lambda: ft.segment_sum(X, IDS[:2]), ShapeError, r"an id for each row, .* shape \(2,\)"),
    (lambda: ft.jit(ft.segment_sum)(X, IDS), ArgumentError, "pass num_segments"),
    (lambda: ft.segment_sum(X, IDS, 3), IndexError, "4 is out of bounds"),
])
def test_ids_that_cannot_be_are_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_shapes_are_told_without_values():
    out = ft.eval_shape(lambda x: {"y": x @ x.T, "n": (np.sum(x), 1.0)}, X.astype("f4"))
    assert repr(out) == "{'y': float32[4,4], 'n': (float32[], float64[])}"
    table = ft.eval_shape(lambda x: np.broadcast_to(x, (10**9, 10**6)), 1.0)
    huge = ft.eval_shape(lambda x: x[0], table)
    assert huge.shape == (10**6,) and huge.dtype == np.float64
    with pytest.raises(ConcretizationError):
        ft.eval_shape(lambda x: x if x > 0 else -x, 1.0)
