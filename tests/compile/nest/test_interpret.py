"""Nests run by the interpreter, against loops of NumPy."""

import numpy as np
import pytest

from functrans._compile.nest.equation import Nest
from functrans._compile.nest.forms import Form, Index
from functrans._compile.nest.ir import Entry, For, If, Let, OutOfRange, Place, Stack, Store
from functrans._compile.nest.ir import While as Loop
from tests.compile.nest.examples import (
    buffer,
    cholesky,
    entry,
    interpret_nest,
    scalar,
    sweep,
    trisolv,
    unused,
    zero,
)


def lower(n, rng):
    return np.tril(rng.normal(size=(n, n))) + 3 * np.eye(n)


def test_a_triangular_solve_and_a_factorization_are_numpys():
    rng = np.random.default_rng(0)
    L, b = lower(5, rng), rng.normal(size=5)
    (x,) = interpret_nest(trisolv(5), [L, b])
    np.testing.assert_allclose(x, np.linalg.solve(L, b), rtol=1e-13)
    (A,) = interpret_nest(cholesky(5), [L @ L.T])
    np.testing.assert_allclose(np.tril(A), np.linalg.cholesky(L @ L.T), rtol=1e-13)


def test_a_recurrence_in_place_has_the_bits_of_its_loop():
    rng = np.random.default_rng(1)
    u, c = rng.normal(size=6), np.array(0.7)
    want = u.copy()
    for s in range(4):
        want[1:-1] = np.sin(want[:-2] * want[2:]) + c * want[1:-1]
        if s >= 1:
            want[0] += want[-1]
    (got,) = interpret_nest(sweep(6, 4), [u, c])
    assert got.tolist() == want.tolist()


def test_a_while_counts_its_passes_and_a_branch_takes_its_condition():
    np.random.default_rng(2)
    x, n, go = buffer("x"), buffer("n", dtype=int), buffer("go", dtype=bool)
    halve = entry(Store.of(x), lambda x: x / 2, Place.of(x))
    test = entry(Store.of(go), lambda x: x > 1, Place.of(x))
    negate = If((), Place.of(go), (halve,), (entry(Store.of(x), lambda x: -x, Place.of(x)),))
    nest = Nest(
        "halves",
        (x,),
        (x, n),
        (Loop(Index("p"), (test,), Place.of(go), (halve,), n), negate),
        unused,
    )
    assert [y.item() for y in interpret_nest(nest, [np.array(12.0)])] == [-0.75, 4]


def test_places_from_data_are_checked():
    x, y, at = buffer("x", 3), buffer("y", 2), buffer("at", 2, dtype=int)
    i, k = Index("i"), Index("k")
    body = For(
        i,
        Form(0),
        Form(2),
        (
            Let(k, Place.of(at, i), Form(0), Form(3)),
            entry(Store.of(y, i), lambda v: v, Place.of(x, k)),
        ),
    )
    nest = Nest("gather", (x, at), (y,), (body,), unused)
    x = np.array([1.0, 2.0, 3.0])
    assert interpret_nest(nest, [x, np.array([2, 0])])[0].tolist() == [3.0, 1.0]
    with pytest.raises(OutOfRange, match=r"at\[i\] is 3"):
        interpret_nest(nest, [x, np.array([2, 3])])


def test_what_is_pushed_is_popped_in_the_opposite_order_of_statements():
    x, saved, height = buffer("x", 3), buffer("saved", 5), buffer("height", dtype=int)
    i, k, p = Index("i"), Index("k"), Index("p")
    same = scalar(lambda v: v, float)
    axes = ((k, Form.of(i) + 1),)
    push = Entry(axes, (Place.of(x, k),), same, (Store.of(saved, p),), (), Stack(p, height, False))
    pop = Entry(axes, (Place.of(saved, p),), same, (Store.of(x, k),), (), Stack(p, height, True))
    square = entry(Store.of(x, k), lambda v: v * v, Place.of(x, k), axes=axes)
    up = For(i, Form(0), Form(2), (push, square))
    x0 = np.array([2.0, 3.0, 5.0])
    nest = Nest("up", (x,), (x, saved, height), (up,), unused)
    y, held, n = interpret_nest(nest, [x0])
    assert (y.tolist(), held.tolist(), n.item()) == ([16.0, 9.0, 5.0], [2.0, 4.0, 3.0, 0.0, 0.0], 3)
    both = Nest("both", (x,), (x, height), (up, For(i, Form(0), Form(2), (pop,), True)), unused)
    assert [y.tolist() for y in interpret_nest(both, [x0])] == [x0.tolist(), 0]
    assert zero(x).axes
