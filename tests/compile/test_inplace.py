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


# ---- programs without loops


def columns(x):
    y = ft.array(np.outer(x, x[:30]))
    for j in range(30):
        y = y.at[j + 1 :, j].add(x[j + 1 :])
    return y


def old_and_new(x):
    y = x * 2.0
    z = y.at[3].set(x[0])
    w = z.at[5:90:3].add(y[2])
    return y + z.at[7].set(np.sum(y)) * w


def results_on_the_way(x):
    y = np.sin(x)
    z = y.at[2].set(1.5)
    w = z.at[3].add(z[2])
    return np.stack([z, w.at[4].set(w[3]), w])


def around_a_host_step(x):
    y = np.cos(x)
    y = y.at[0].set(x[1])
    s = np.linalg.eigvalsh(np.reshape(y[:4], (2, 2)))
    y = y.at[1].set(s[0]).at[2].set(s[1])
    return y.at[3].set(np.linalg.eigvalsh(np.outer(y[:3], y[:3]))[2])


def of_itself(x):
    y = x + 1.0
    return y.at[10:20].set(y[15:25]).at[0:5].add(y[2:7][::-1])


WRITTEN_OUT = [columns, old_and_new, results_on_the_way, around_a_host_step, of_itself]


@pytest.mark.parametrize("f", WRITTEN_OUT, ids=lambda f: f.__name__)
def test_without_a_loop_the_same_as_copies(f):
    x = ft.array(X)
    np.testing.assert_allclose(ft.jit(f)(x), f(x), rtol=1e-14, atol=1e-14)
    g = loss(f)
    slope = ft.grad(g)(x)
    for made in (ft.jit(ft.grad(g)), ft.grad(ft.jit(g))):
        np.testing.assert_allclose(made(x), slope, rtol=1e-13, atol=1e-13)


def test_outputs_on_the_way_are_each_their_own():
    def f(x):
        y = x * 1.0
        z = y.at[0].set(5.0)
        return y, z, z.at[1].set(6.0)

    y, z, w = ft.jit(f)(ft.array(X))
    assert [*y[:2], *z[:2], *w[:2]] == [X[0], X[1], 5.0, X[1], 5.0, 6.0]


def test_without_a_loop_writes_copy_nothing():
    def f(x):
        y = x * 2.0
        for i in range(20):
            y = y.at[7 * i : 7 * i + 3].add(x[i])
        return y

    text = ft.jit(f).lower(ft.array(X)).llvm
    assert "functrans_" not in text
    assert "@llvm.memcpy" not in text


# ---- sums of parts


def test_parts_that_are_read_apart_are_not_taken_from_their_sum():
    def f(m):
        total = m * 0.0
        sums = []
        for j in range(12):
            total = total + ft.array(np.zeros((16, 16))).at[j].set(m[j])
            sums.append(total)
        return np.stack(sums)

    m = ft.array(np.arange(256.0).reshape(16, 16))
    assert np.array_equal(ft.jit(f)(m), f(m))
