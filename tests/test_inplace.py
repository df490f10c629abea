"""Updates of a loop's state in place: what is read later is still there, and no step copies."""

import numpy as np
import pytest

import functrans as ft
from functrans._compile.schedule.gather import Scatter

pytestmark = pytest.mark.usefixtures("seldom_optimised")

X = np.linspace(-1.0, 1.0, 200)


def running(x):
    return ft.fori_loop(1, 200, lambda i, y: y.at[i].set(np.sin(y[i - 1]) + x[i]), x)


def chained(x):
    return ft.fori_loop(0, 50, lambda i, y: y.at[i].mul(2.0).at[i + 1].add(y[i]).at[0].set(x[i]), x)


def read_afterwards(x):
    # what is read at the old state does not need the new one, and may be scheduled behind it
    def step(s, i):
        y, total = s
        return (y.at[i].set(total), total + 0.01 * np.sum(np.cos(y))), y[i]

    (y, total), ys = ft.scan(step, (x, 0.5), np.arange(20))
    return y * total + ys[3]


def kept_as_well(x):
    return ft.scan(lambda y, i: (y.at[i].set(0.5), y), x, np.arange(5))[1]


def exchanged(x):
    def step(i, s):
        a, b = s
        return b.at[i].set(a[i]), a.at[i].add(b[0])

    a, b = ft.fori_loop(0, 7, step, (x, x * 2))
    return a - b * x


def reversed_into(x):
    return ft.fori_loop(0, 3, lambda i, y: y.at[np.arange(200) + 0 * i].set(y[::-1]), x)


def both_need_the_other(x):
    # the second update reads the state before the first, the sum both
    def step(i, y):
        a = y.at[i].set(1.5)
        return a + y.at[i + 1].set(2.5)

    return ft.fori_loop(0, 4, step, x)


def compared_with_the_state_before(x):
    # the sum, right behind the first update, reads both
    def step(i, y):
        a = y.at[i].set(1.5)
        return a.at[i + 1].add(np.sum(a * y))

    return ft.fori_loop(0, 4, step, x / 20)


def in_both_loops(x):
    def inner(i, y):
        return ft.fori_loop(0, 5, lambda j, z: z.at[i + j].add(x[j] * z[i]), y)

    return ft.fori_loop(0, 6, inner, x)


def fixed_entry(x):
    return ft.fori_loop(0, 6, lambda i, y: y.at[3].add(x[i] * y[2]), x)


def rows(x):
    m = np.reshape(x, (20, 10))
    return ft.fori_loop(1, 20, lambda i, y: y.at[i].set(y[i - 1] * 0.5 + np.sin(y[i])), m)


FUNCTIONS = [running, chained, read_afterwards, kept_as_well, exchanged, reversed_into,
             both_need_the_other, compared_with_the_state_before, in_both_loops, fixed_entry,
             rows]


def loss(f):
    return lambda x: np.sum(f(x) ** 2 * np.cos(np.arange(f(x).size).reshape(f(x).shape)))


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_the_same_as_copies(f):
    np.testing.assert_allclose(ft.jit(f)(X), f(X), rtol=1e-14, atol=1e-14)
    batch = np.stack([X, X[::-1]])
    want = np.stack([f(x) for x in batch])
    np.testing.assert_allclose(ft.jit(ft.vmap(f))(batch), want, rtol=1e-14, atol=1e-14)
    g = loss(f)
    slope = ft.grad(g)(X)
    scale = np.abs(slope).max()
    for made in (ft.jit(ft.grad(g)), ft.grad(ft.jit(g))):
        np.testing.assert_allclose(made(X), slope, rtol=1e-12, atol=1e-12 * scale)

    def along(h):
        return lambda x: ft.jvp(ft.grad(h), (x,), (x[::-1],))[1]
    want = along(g)(X)
    got = ft.jit(along(g))(X)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12 * np.abs(want).max())


def test_the_gradient_against_complex_steps():
    for f in (running, chained, in_both_loops):
        slope, h = ft.jit(ft.grad(lambda x, f=f: np.sum(f(x) ** 2)))(X), 1e-30
        for k in (0, 1, 5, 77):
            z = X.astype(complex)
            z[k] += 1j * h
            np.testing.assert_allclose(slope[k], np.sum(f(z) ** 2).imag / h, rtol=1e-13, atol=1e-13)


def updates(f):
    """The steps that write entries, in loops of what ``f`` compiles to, at any depth."""
    def of(steps):
        for step in steps:
            if isinstance(step, Scatter):
                yield step
            for part in getattr(step, "parts", ()):
                if hasattr(part, "steps"):
                    yield from of(part.steps)

    return list(of(ft.jit(f).lower(X).schedule.steps))


@pytest.mark.parametrize("f", [running, chained, exchanged, in_both_loops, fixed_entry, rows],
                         ids=lambda f: f.__name__)
def test_no_step_copies_its_state(f):
    found = updates(f)
    assert found
    copying = [s for s in found if s.fills]
    assert len(copying) == (2 if f is exchanged else 0)  # two states that change places


def test_backwards_entries_are_added_where_they_belong():
    found = updates(ft.grad(lambda x: np.sum(running(x))))
    assert len(found) == 4  # the update; its transpose; and the entries read, of state and constant
    assert not [s for s in found if s.fills]


def test_what_is_read_later_is_copied():
    assert [s.fills for s in updates(kept_as_well)] == [True]
    assert any(s.fills for s in updates(both_need_the_other))
    assert [s.fills for s in updates(reversed_into)] == [True]


def test_a_state_that_says_where_it_is_written():
    def f(k):
        return ft.fori_loop(0, 60, lambda i, y: y.at[y[i]].set(y[y[i + 1]] + 1), k)

    k = np.random.default_rng(0).permutation(100)
    np.testing.assert_array_equal(ft.jit(f)(k), f(k))


def test_an_index_out_of_bounds_in_a_loop_raises():
    def f(x):
        return ft.fori_loop(0, 201, lambda i, y: y.at[i].set(0.5), x)
    with pytest.raises(IndexError, match="out of bounds"):
        ft.jit(f)(X)
