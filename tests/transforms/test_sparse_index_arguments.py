"""Sparse derivatives of functions that index by an argument: their patterns go by its values."""

import numpy as np
import pytest

import functrans as ft
from functrans._transforms.sparse import sets
from functrans._transforms.sparse.api import SparseDerivative
from functrans.errors import ArgumentError
from tests.drawing import generator

V = generator(0).normal(size=(7, 2))
E = np.stack([np.arange(6), np.arange(1, 7)], 1)
F = E[:, ::-1] % 5


def lengths(V, E):
    d = V[E[:, 0]] - V[E[:, 1]]
    return np.sqrt(np.sum(d * d + 1, 1))


def energy(V, E):
    return np.sum((lengths(V, E) - 1) ** 2)


def dense(f, *args):
    """The Jacobian in the first argument, outputs below each other."""
    parts = ft.tree.leaves(ft.jacobian(f)(*args))
    return np.concatenate([np.reshape(part, (-1, args[0].size)) for part in parts])


def by_steps(x, E):
    def step(total, e):
        return total + x[e[0]] * x[e[1]] ** 2, x[e[0]]
    return ft.scan(step, x[0], E)


def by_branch(x, k):
    return ft.cond(x[0] > 0, lambda: x[k] * x[1], lambda: x[k + 1])


@pytest.mark.parametrize(("derivative", "full", "f"), [
    (ft.sparse_jacobian, ft.jacobian, lengths), (ft.sparse_hessian, ft.hessian, energy),
], ids=["jacobian", "hessian"])
def test_the_pattern_of_an_index_argument_is_that_of_a_closure(derivative, full, f, monkeypatch):
    made, prepare = [], SparseDerivative.prepare
    monkeypatch.setattr(SparseDerivative, "prepare",
                        lambda self, *args: made.append(args) or prepare(self, *args))
    both = derivative(f)
    for e in (E, F, E.copy(), F, E):
        J = both(V, e)
        expected = np.asarray(full(f)(V, e)).reshape(J.shape)
        np.testing.assert_allclose(J.toarray(), expected, rtol=1e-12, atol=1e-13)
    assert len(made) == 2
    closed = derivative(lambda V: f(V, E)).prepare(V)
    there = derivative(f).prepare(V, E)
    assert (there.sparsity.nnz, there.colors) == (closed.sparsity.nnz, closed.colors)
    assert ft.sparsity(f, V, E, kind=full.__name__).nnz == closed.sparsity.nnz


def test_what_was_prepared_for_other_indices_raises():
    J = ft.sparse_jacobian(lengths).prepare(V, E)
    with pytest.raises(ArgumentError, match="was prepared for an argument of indices"):
        J(V, F)
    J(V, E.copy())


@pytest.mark.parametrize(("f", "x", "k", "other"), [
    (lambda x, k: x * k, V[0], np.array([0, 3]), np.array([2, 1])),
    (lambda x, k: np.where(k > 0, x, x[::-1]), V[0], np.array([0, 1]), np.array([1, 0])),
    (lambda x, w: x[w.astype(int)] ** 2, V[0], np.array([0.0]), np.array([1.0])),
], ids=["a factor", "a choice", "an index of floats"])
def test_what_does_not_index_by_integers_serves_all_values(f, x, k, other):
    J = ft.sparse_jacobian(f).prepare(x, k)
    for n in (k, other):
        np.testing.assert_allclose(J(x, n).toarray(), dense(f, x, n), rtol=1e-13)


def test_a_pattern_that_is_given_serves_all_indices():
    f = lambda x, k: x[k] ** 2  # noqa: E731
    J = ft.sparse_jacobian(f, sparsity=np.ones((2, 3))).prepare(np.ones(3), np.array([0, 1]))
    assert np.array_equal(J(np.ones(3), np.array([2, 2])).toarray(), [[0, 0, 2], [0, 0, 2]])


@pytest.mark.parametrize(("f", "ks", "entries"), [
    (by_steps, [E[:3], F[:3]], [7, 7]), (by_branch, [np.array(2), np.array(4)], [3, 3]),
    (lambda x, k: x[k] * x[2 * k + 1], [1, 2], [2, 2]),
    (lambda x, k: x.at[k].add(x[0]) ** 2, [np.array([1, 2]), np.array([3, 3])], [9, 8]),
], ids=["steps", "branches", "numbers", "writing"])
def test_indices_are_followed_into_loops_and_arithmetic(f, ks, entries):
    x = V[:, 0] + 3
    for k, count in zip(ks, entries, strict=True):
        J = ft.sparse_jacobian(f).prepare(x, k)
        np.testing.assert_allclose(J(x, k).toarray(), dense(f, x, k), rtol=1e-13)
        assert J.sparsity.nnz == count


def test_the_room_for_a_pattern_is_at_most_that_of_all_pairs(monkeypatch):
    asked = []
    monkeypatch.setattr(sets, "require_room", lambda who, what, nbytes, *_: asked.append(
        nbytes) if "second derivatives" in what else None)
    index = np.zeros((500, 4), int) + np.arange(4)
    ft.sparsity(lambda x: np.sum(np.sum(x[index], 1) ** 2), np.ones(6), kind="hessian")
    assert asked and max(asked) <= 10 * 6**2
