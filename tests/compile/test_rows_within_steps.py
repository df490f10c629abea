"""Parts that are added to an array where they lie, and loops that read entries that lie apart."""

import numpy as onp
import pytest

import functrans as ft
import functrans.numpy as np
from functrans._transforms.reverse.walk import MANY
from tests.compile.test_rolling import assert_same, both


@pytest.fixture(autouse=True, scope="module")
def written_out():
    """Python's loops are written out, to be rolled up again."""
    with ft.config(loops=False):
        yield


M = onp.random.default_rng(0).normal(size=(16, 16)).round(1)
C = onp.linspace(-1.0, 1.0, 16)
C[[3, 8]], C[15] = -0.0, 5e-324


def names(f, *args):
    return [eqn.prim.name for eqn in ft.jit(f).lower(*args).program.eqns]


def rows_of_a_product(m, c):
    d = m * c
    return np.sum(d * d) + sum([np.sum(d[j] * c) for j in range(14)])


PARTS = {
    "rows": rows_of_a_product,
    "columns": lambda m, c: np.sum(m * c) + sum([np.sum(m[j:, j] * c[j:]) for j in range(14)]),
    "a row again": lambda m, c: np.sum(m * 2.0) + sum([np.sum(m[2] * c) for _ in range(9)]),
    "rows by number": lambda m, c: (
        np.sum(m * c) + sum([np.sum(m[onp.array([j])] * c) for j in range(14)])),
    "entries": lambda m, c: np.sum(m * m) + sum([m[j, 3] * c[j] * m[2, j] for j in range(14)]),
    "a row of two": lambda m, c: np.sum((d := m * c) ** 2) + sum(
        [np.sum(e[j] * c) for j in range(7) for e in (m, d)]),
}


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", PARTS)
def test_parts_are_added_where_they_lie(name):
    f = ft.grad(PARTS[name], (0, 1))
    assert "scatter_add" in names(f, M, C)
    for y, expected in zip(ft.jit(f)(M, C), f(M, C), strict=True):
        onp.testing.assert_allclose(y, expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(("count", "added"), [(MANY - 1, 0), (MANY, MANY - 1)])
def test_a_few_parts_are_added_by_one_kernel(count, added):
    found = names(ft.grad(lambda m: sum([np.sum(m[j] ** 3) for j in range(count)])), M)
    assert found.count("scatter_add") == added
    assert found.count("put_add") == count - added


def test_large_parts_are_added_as_wholes():
    f = ft.grad(lambda m: np.sum(m) + sum([np.sum(m[j:] ** 3) for j in range(13)]))
    assert "scatter_add" not in names(f, M)


@pytest.mark.usefixtures("unoptimised")
def test_a_loop_adds_to_its_totals_what_each_step_sends_back():
    def f(x, w):
        return np.sum(ft.scan(lambda c, k: (np.tanh(w * c + x[k]), x[2, 3]), x[0], rows)[0])

    rows = onp.array([1, 3, 3, 1, 0, 2])
    x = onp.random.default_rng(0).normal(size=(9, 16))
    g = ft.grad(f, (0, 1))
    *_, backward = [e.prim.body for e in ft.jit(g).lower(x, C[:15].mean()).program.eqns
                    if e.prim.name == "scan"]
    made = [e.outputs[0].aval.shape for e in backward.eqns if e.prim.name in ("add", "put_add")]
    assert (9, 16) not in made
    for y, expected in zip(ft.jit(g)(x, 0.3), g(x, 0.3), strict=True):
        onp.testing.assert_allclose(y, expected, rtol=1e-13)


def shortest_paths(d):
    for k in range(len(d)):
        d = np.minimum(d, d[:, k][:, None] + d[k])
    return np.sum(d * d)


def test_what_rows_of_a_whole_state_send_back_is_added_to_the_rows():
    d = onp.random.default_rng(0).random((16, 16)).round(1)
    d[::3] *= -0.0
    program, other = both(ft.grad(shortest_paths), d)
    *_, backward = [eqn.prim.body for eqn in other.eqns if eqn.prim.name == "rolled"]
    found = [eqn.prim.name for eqn in backward.eqns if eqn.outputs[0].aval.shape == d.shape]
    assert found.count("scatter_add") == 2
    assert "put_add" not in found
    assert_same(program, other, (d,))


def test_a_state_that_is_written_as_a_whole_is_not_copied():
    def in_place(w):
        d = w.copy()
        for k in range(len(w)):
            d[:] = np.minimum(d, np.add.outer(d[:, k], d[k]))
        return np.sum(d * d)

    d = onp.random.default_rng(0).random((16, 16))
    program, other = both(ft.grad(in_place), d)
    assert "scatter_set" not in {eqn.prim.name for eqn in program.eqns}
    assert_same(program, both(ft.grad(shortest_paths), d)[0], (d,))
    assert_same(program, other, (d,))


# ---- what is read again


def test_the_same_part_is_read_again_in_every_step_alike():
    def smoothed(x):
        y = np.zeros(150)
        before = 0.0
        for i in range(150):
            y[i] = x[i] + 0.5 * before
            before = x[i]
        return np.sum(y * y)

    x = onp.linspace(0.0, 1.0, 150)
    program, other = both(ft.grad(smoothed), x)
    assert [eqn.prim.length for eqn in other.eqns if eqn.prim.name == "rolled"] == [149, 148]
    assert_same(program, other, (x,))


# ---- entries that lie apart

X = onp.random.default_rng(0).normal(size=(6, 5, 4))
ENTRIES = {
    "behind the first": lambda x: x[1:],
    "backwards": lambda x: x[::-1],
    "every other": lambda x: x[4:0:-2],
    "a column": lambda x: x[:, 2, 1],
    "rows of a column": lambda x: x[:, 3],
    "of another axis": lambda x: np.swapaxes(x, 0, 1),
    "most of another axis": lambda x: np.swapaxes(x, 0, 1)[1:],
    "most of another axis backwards": lambda x: np.swapaxes(x, 0, 2)[:0:-1],
    "their parts": lambda x: x[:, 1:3, ::-1],
    "one for all": lambda x: np.broadcast_to(x[2], (3, 5, 4)),
    "one": lambda x: x[5:],
    "the diagonal": lambda x: np.einsum("iij->ij", x[:5]),
}


@pytest.mark.usefixtures("seldom_optimised")
@pytest.mark.parametrize("name", ENTRIES)
def test_a_loop_reads_entries_wherever_they_lie(name):
    def f(x):
        xs = ENTRIES[name](x * 2.0)
        return ft.scan(lambda c, v: (c * 0.5 + v, c - v), xs[0], xs, reverse=True)

    for x in (X, X.astype(onp.float32)):
        with ft.config(jit=False):
            expected = f(x)
        for y, e in zip(ft.jit(f)(x), expected, strict=True):
            assert onp.asarray(y).tobytes() == onp.asarray(e).tobytes()


# ---- small arrays


def test_small_arrays_that_are_filled_entry_by_entry_stay_in_registers():
    def lorenz(x, a):
        y = np.zeros(3)
        y[0] = 1.0
        for i in range(80):
            d = np.zeros(3)
            d[0] = a * (y[1] - y[0])
            d[1] = y[0] * (2.0 - y[2]) - y[1] + x[i]
            d[2] = y[0] * y[1] - a * y[2]
            y = y + 0.01 * d
        return np.sum(y * y)

    x = onp.linspace(-1.0, 1.0, 80)
    program, other = both(ft.grad(lorenz), x, 0.5)
    bodies = [eqn.prim.body for eqn in other.eqns if eqn.prim.name == "rolled"]
    assert len(bodies) == 2
    assert "scatter_set" not in {eqn.prim.name for body in bodies for eqn in body.eqns}
    assert_same(program, other, (x, 0.5))


# ---- arrays that are written by columns


def filtered(x, a):
    y = np.zeros(x.shape)
    before = last = 0.0 * x[:, 0]
    for j in range(x.shape[1]):
        y[:, j] = a * x[:, j] + 0.3 * x[:, j - 1] + 0.5 * last - 0.2 * before
        before, last = last, y[:, j]
    return y


def test_columns_that_a_backward_loop_reads_are_not_written_into_an_array():
    x = onp.random.default_rng(0).normal(size=(6, 40)).round(1)
    f = ft.grad(lambda x, a: np.sum(filtered(x, a) ** 2), (0, 1))
    program, other = both(f, x, 0.4)
    assert "scatter_set" not in {eqn.prim.name for eqn in other.eqns}
    assert_same(program, other, (x, 0.4))


@pytest.mark.usefixtures("seldom_optimised")
def test_shifted_columns_share_a_copy():
    x = onp.random.default_rng(0).normal(size=(6, 100)).astype(onp.float32)
    compiled = ft.jit(filtered)
    steps = compiled.lower(x, onp.float32(0.4)).schedule.steps
    loop = next(step for step in steps if getattr(step, "name", "") == "rolled")
    *_, a, b = loop.operands
    assert a.root is b.root
    assert a.offset != b.offset
    with ft.config(jit=False):
        expected = filtered(x, onp.float32(0.4))
    assert onp.asarray(compiled(x, onp.float32(0.4))).tobytes() == onp.asarray(expected).tobytes()


@pytest.mark.parametrize("order", [range(30), range(29, -1, -1)], ids=["forward", "backward"])
def test_a_loop_in_a_loop_takes_a_column_as_one_array(order):
    def sweeps(x, a):
        c, rows = x[0], []
        for i in order:
            c = np.sqrt(c * c + x[i])
            rows.append(c)
        s = x[3]
        for _ in range(8):
            t = s * 0.5
            for row in rows:
                t = t * a + row / (t + 1.0)
            s = t - s * a
        return s

    x = onp.linspace(1.0, 2.0, 30)
    program, other = both(sweeps, x, 0.3)
    *_, outer = [eqn for eqn in other.eqns if eqn.prim.name == "rolled"]
    assert len(outer.inputs) <= 4
    assert "stack" not in {eqn.prim.name for eqn in outer.prim.body.eqns}
    assert_same(program, other, (x, 0.3))
