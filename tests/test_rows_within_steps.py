"""Loops whose steps add rows to an array that they make, or read entries that lie apart."""

import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import functrans as ft
import functrans.numpy as np
from functrans._compile.ir.program import Eqn, Program, Var, check
from functrans._compile.ir.structured import Loop
from functrans._compile.rolling import single_entries
from functrans._compile.rolling.body import constant, plainly
from functrans._compile.rolling.by_rows import by_rows
from functrans._core.aval import Aval
from functrans._ops import elementwise as ops
from functrans._ops.indexing import ARRAY, WHOLE, put_add, result_shape, scatter_set
from functrans._ops.structure import broadcast_to
from tests.test_rolling import assert_same, both

SHAPE = (4, 5)
F64 = onp.dtype(float)
NUMBER = st.tuples(st.sampled_from([1, -1, 0]), st.integers(0, 3))
AXIS = st.one_of(NUMBER, st.just(WHOLE), st.just(WHOLE))


def sums_of_rows(terms, steps, made):
    """A loop whose step makes an array anew and adds rows to it: an index an axis for each, with
    (slope, offset) where there is a number."""
    state, entry = Var(Aval(SHAPE, F64)), Var(Aval((), F64))
    eqns, tables = [], []
    now = state
    if made:
        now = Var(state.aval)
        eqns.append(Eqn(ops.multiply, (state, entry), {}, (now,)))
    for index in terms:
        pattern, own = [], []
        for e, n in zip(index, SHAPE, strict=True):
            if e is WHOLE:
                pattern.append(e)
                continue
            i = Var(Aval((), onp.dtype(int)))
            tables.append((i, constant((e[0] * onp.arange(steps) + e[1]) % n)))
            pattern.append(ARRAY)
            own.append(i)
        part = Var(Aval(result_shape(SHAPE, [i.aval for i in own], tuple(pattern)), F64))
        put, before, now = Var(state.aval), now, Var(state.aval)
        eqns.append(Eqn(broadcast_to, (entry,), {"shape": part.aval.shape}, (part,)))
        if own:
            zeros = constant(onp.zeros(SHAPE))
            eqns.append(Eqn(scatter_set, (zeros, part, *own), {"pattern": tuple(pattern)}, (put,)))
        else:
            eqns.append(Eqn(put_add, (part,), {"pattern": tuple(pattern), "shape": SHAPE}, (put,)))
        eqns.append(Eqn(ops.add, (put, before), {}, (now,)))
    body = Program((state, entry, *[v for v, _ in tables]), tuple(eqns), (now,))
    row = Loop("rolled", body, 0, 1, steps, plainly)
    inputs = Var(state.aval), Var(Aval((steps,), F64))
    outputs = tuple(map(Var, row.output_types()))
    eqn = Eqn(row, (*inputs, *[table for _, table in tables]), {}, outputs)
    return check(Program(inputs, (eqn,), outputs))


ZERO = st.sampled_from([-0.0, -0.0, 0.0, 1.0])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(AXIS, AXIS), min_size=1, max_size=3), st.integers(2, 4), st.booleans(),
       st.lists(ZERO, min_size=20, max_size=20), st.lists(ZERO, min_size=4, max_size=4))
def test_rows_are_added_within_a_step_to_the_same_bits(terms, steps, made, first, values):
    program = sums_of_rows(terms, steps, made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(single_entries, "LARGE", 4)
        patch.setattr(single_entries, "SPARSE", 1)
        other = by_rows(program)
    first = onp.array(first).reshape(SHAPE)
    assert_same(program, other, [first, onp.array(values[:steps])])


def shortest_paths(d):
    for k in range(len(d)):
        d = np.minimum(d, d[:, k][:, None] + d[k])
    return np.sum(d * d)


def test_what_rows_of_a_whole_state_send_back_is_added_to_the_rows():
    d = onp.random.default_rng(0).random((16, 16)).round(1)
    d[::3] *= -0.0
    program, other = both(ft.grad(shortest_paths), d)
    *_, backward = [eqn.prim.body for eqn in other.eqns if eqn.prim.name == "rolled"]
    names = [eqn.prim.name for eqn in backward.eqns]
    assert names.count("scatter_add") == 2
    assert names.count("scatter_set") == 1
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
