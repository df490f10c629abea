"""Loops that Python writes out and the compiler rolls up: bit for bit what was written out."""

import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import functrans as ft
import functrans.numpy as np
from functrans._compile.ir.passes import optimise
from functrans._compile.ir.program import Eqn, Program, Var, check, interpret
from functrans._compile.ir.structured import Loop
from functrans._compile.rolling import pieces
from functrans._compile.rolling.body import constant, plainly
from functrans._compile.rolling.by_rows import by_rows
from functrans._compile.rolling.parts import computed_earlier, read_by_parts
from functrans._compile.rolling.rolled import roll
from functrans._core.array import Aval
from functrans._ops import elementwise as ops
from functrans._ops.along_axes import softmax
from functrans._ops.indexing import ARRAY, getitem, put_add, result_shape, scatter_add, scatter_set
from functrans.scipy.special import logsumexp


@pytest.fixture(autouse=True, scope="module")
def written_out():
    """Python's loops are written out, to be rolled up again."""
    with ft.config(loops=False):
        yield


N = 12


def both(f, *args, least=12):
    """The program of ``f``, optimised, and the same rolled up."""
    program = optimise(ft.jit(f).lower(*args).program)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "LEAST", least)
        return program, roll(program, lambda body: True)


def loops(program):
    """The lengths of loops, those in their bodies in lists behind them."""
    out = []
    for eqn in program.eqns:
        if eqn.prim.name == "rolled":
            out += [eqn.prim.length, *[x for x in [loops(eqn.prim.body)] if x]]
    return out


def assert_same(program, other, args):
    for x, y in zip(interpret(program, args), interpret(other, args), strict=True):
        assert x.dtype == y.dtype
        assert x.shape == y.shape
        assert x.tobytes() == y.tobytes()


# ---- drawn programs

# Statements of a loop's body: the array x, its length 12, the step i, and a state s (a number), t
# (three numbers), u (the t before), y (an array that is written into), a list.
STATEMENTS = (
    "s = s * 0.5 + x[i]",
    "s = s - 0.1 * i * x[-1]",
    "s = np.where(s > 0.0, s, 0.3 * i - s)",
    "t = t * x[i:i + 3] - s",
    "t, u = t + 0.25 * u, t",
    "t = t + x[3:6]",
    "s = s + (t * w[:3, i])[1]",
    "y[i] = s * x[11 - i]",
    "y[i + 1] += y[i] * t[0]",
    "y[2:5] = t",
    "s = s + y[i + 2] * y[3]",
    "rows.append(s * t)",
    "t = t * w[i, 0] + w[i, 1:4]",
    "s = s * np.sum(u * t)",
    "t = np.stack([s, t[0], x[i + 2]])",
    "for j in range(3): s = s + t[j] * w[i, j]",
    "y[i + 2] = y[i + 1] * s - y[i]",
    "y[(5 * i) % 12] += s",
    "y[i % 3] -= t[1]",
    "s = s + x[i // 3] * x[i % 2]",
    "z[:, i + 1] = z[:, i] * t - z[:, 0]",
    "z[i % 3] += z[i % 2] * x",
    "z[i % 3, i] = s - z[2, i]",
    "y[5] *= -x[i]",
)


def drawn(statements, steps):
    text = "def f(x, w):\n s, t, u, y, rows = 0.5, x[:3], x[1:4], np.zeros(12), []\n"
    text += " z = np.array(-w[:3])\n"
    text += f" for i in range({steps}):\n"
    text += "".join(f"  {line}\n" for line in statements)
    text += " return s + np.sum(t * u) + np.sum(y * y) + sum([np.sum(r) for r in rows])"
    text += " + np.sum(z * w[3:6])\n"
    names = {"np": np}
    exec(text, names)  # a program for each draw
    return names["f"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=5), st.integers(5, 9),
       st.sampled_from(["value", "gradient"]), st.integers(0, 1), st.integers(0, 10**6))
def test_a_rolled_program_computes_the_same_bits(statements, steps, mode, digits, seed):
    f = drawn(statements, steps)
    r = onp.random.default_rng(seed)  # of few digits, so that there are zeros of both signs
    args = [onp.round(r.normal(size=N), digits), onp.round(r.normal(size=(N, N)), digits)]
    program, other = both(ft.grad(f, (0, 1)) if mode == "gradient" else f, *args)
    assert_same(program, other, args)


# ---- loops over the rows of an array


def loop_over_rows(touches, steps, reverse):
    """A loop that does to an array what ``touches`` say: what, and to which row in each step."""
    array, number, index = Aval((N,), onp.dtype(float)), Aval((), onp.dtype(float)), onp.dtype(int)
    state = now = Var(array)
    entry = value = Var(number)
    eqns, tables, reads, pattern = [], [], [], {"pattern": (ARRAY,)}
    for kind, slope, offset in touches:
        i = Var(Aval((), index))
        numbers = (slope * onp.arange(steps) + offset) % N
        tables.append((i, constant(numbers if offset >= 0 else numbers - N)))
        if kind == "read":
            value = Var(number)
            reads.append(value)
            eqns.append(Eqn(getitem, (now, i), pattern, (value,)))
            continue
        if kind == "all":
            reads.append(Var(array))
            eqns.append(Eqn(ops.negative, (now,), {}, (reads[-1],)))
            continue
        before, now = now, Var(array)
        if kind in SUMS:
            put = Var(array)
            if kind == "put":
                eqns.append(Eqn(put_add, (value, i), pattern | {"shape": (N,)}, (put,)))
            else:
                zeros = onp.full(N, 0.0 if kind == "sum" else -0.0)
                eqns.append(Eqn(scatter_set, (constant(zeros), value, i), pattern, (put,)))
            eqns.append(Eqn(ops.add, (before, put), {}, (now,)))
        else:
            row = scatter_add if kind == "add" else scatter_set
            v = constant(0.0) if kind == "clear" else value
            eqns.append(Eqn(row, (before, v, i), pattern, (now,)))
    body = Program((state, entry, *[v for v, _ in tables]), tuple(eqns), (now, *reads))
    row = Loop("rolled", body, 0, 1, steps, plainly, reverse=reverse)
    inputs = Var(array), Var(Aval((steps,), array.dtype))
    outputs = tuple(map(Var, row.output_types()))
    eqn = Eqn(row, (*inputs, *[table for _, table in tables]), {}, outputs)
    return check(Program(inputs, (eqn,), outputs))


# Arrays that are zero but for an entry: with 0 elsewhere, with -0, with an entry added to 0.
SUMS = ("sum", "minus", "put")
ZERO = st.sampled_from([-0.0, 0.0, -0.0, 1.0])
TOUCH = st.tuples(st.sampled_from(["read", "set", "clear", "add", "all", *SUMS, "sum", "sum"]),
                  st.sampled_from([1, -1, 0, 2, 5]),
                  st.one_of(st.integers(0, 3), st.integers(-N, N)))


# Touches where a zero of the wrong sign, or one added at the wrong time, shows.
TELLING = [
    ([("sum", 1, 1), ("read", 1, 0)], 2, False),
    ([("add", 2, 4), ("sum", 0, 7), ("sum", 0, 2), ("set", 0, 2)], 2, False),
    ([("read", 1, 7), ("sum", 0, 0), ("sum", -1, 11)], 6, True),
    ([("sum", 2, 3)], 7, True),
    ([("sum", 1, 8), ("read", 1, 8), ("sum", -1, 6)], 7, False),
    ([("sum", 1, 7), ("sum", 0, 7)], 3, True),
    ([("read", 1, 0), ("sum", 0, 11), ("read", 1, 0)], 5, False),
    ([("read", 1, 3), ("sum", 0, 11), ("read", 1, 3), ("set", 1, 4)], 5, False),
    ([("read", 0, 11), ("clear", 0, 11), ("sum", 2, 0)], 8, False),
    ([("all", 0, 0)], 5, False),
    ([("all", 0, 0), ("sum", 2, 0)], 8, False),
    ([("clear", 5, 3), ("all", 1, 4), ("sum", -1, -12)], 6, False),
    ([("minus", 0, -2)], 6, True),
    ([("put", 0, 2)], 2, True),
]


@pytest.mark.parametrize("case", TELLING)
def test_zeros_of_rows_keep_their_signs(case):
    compare_rows(*case, [-0.0, -0.0, 1.0, -0.0] * 3, [-0.0, -0.0, -0.0, 1.0, -0.0, 0.0, -0.0, 1.0])
    compare_rows(*case, [-0.0] * N, [-0.0] * 8)
    compare_rows(*case, [0.0, 1.0, -0.0, 1.0, 1.0, 1.0] * 2, [-0.0, 1.0, -0.0, 0.0] * 2)


@settings(max_examples=300, deadline=None)
@given(st.lists(TOUCH, min_size=1, max_size=4), st.integers(2, 8), st.booleans(),
       st.lists(ZERO, min_size=N, max_size=N), st.lists(ZERO, min_size=8, max_size=8))
def test_rows_have_the_same_bits_wherever_they_are_kept(touches, steps, reverse, first, values):
    compare_rows(touches, steps, reverse, first, values)


def compare_rows(touches, steps, reverse, first, values):
    program = loop_over_rows(touches, steps, reverse)
    other = by_rows(program)
    assert_same(program, other, [onp.array(first), onp.array(values[:steps])])


# ---- arrays of which parts are read

INDEX = st.one_of(
    st.integers(-4, 3), st.just((None, None, None)), st.just((None, None, -1)),
    st.tuples(st.integers(0, 2), st.integers(2, 4), st.sampled_from([1, 2])),
    st.tuples(st.integers(2, 3), st.sampled_from([None, 0]), st.sampled_from([-1, -2])),
)
PATTERN = st.lists(INDEX, min_size=1, max_size=2).map(tuple)
WRITE = st.tuples(st.sampled_from(["set", "add", "in place", "twice"]), PATTERN)


@settings(max_examples=200, deadline=None)
@given(st.lists(WRITE, min_size=1, max_size=5), st.lists(PATTERN, min_size=1, max_size=3))
def test_parts_are_read_without_the_arrays(writes, reads):
    first = Var(Aval((4, 4), onp.dtype(float)))
    now, eqns, r = first, [], onp.random.default_rng(0)
    for kind, pattern in writes:
        params, before, now = {"pattern": pattern}, now, Var(first.aval)
        v = constant(onp.round(r.normal(size=result_shape((4, 4), (), pattern))))
        if kind in ("set", "in place"):
            row = scatter_set if kind == "set" else scatter_add
            eqns.append(Eqn(row, (before, v), params, (now,)))
            continue
        part = Var(first.aval)
        eqns.append(Eqn(put_add, (v,), params | {"shape": (4, 4)}, (part,)))
        eqns.append(Eqn(ops.add, (before, part if kind == "add" else before), {}, (now,)))
    outs = [Var(Aval(result_shape((4, 4), (), p), now.aval.dtype)) for p in reads]
    eqns += [Eqn(getitem, (now,), {"pattern": p}, (y,))
             for p, y in zip(reads, outs, strict=True)]
    program = check(Program((first,), tuple(eqns), tuple(outs)))
    assert_same(program, read_by_parts(program), [onp.round(r.normal(size=(4, 4)))])


def test_of_a_long_array_a_part_is_left():
    def f(x):
        y = np.zeros(100)
        for i in range(1, 70):
            y[i] = np.sin(y[i - 1]) + x[i]
        return y[69]

    program, other = both(ft.grad(f), onp.linspace(0.0, 1.0, 100))
    assert "scatter_set" not in {eqn.prim.name for eqn in other.eqns}
    assert_same(program, other, (onp.linspace(0.0, 1.0, 100),))


# ---- what becomes a loop


def recurrence(a, x):
    y, ys = x[0], []
    for i in range(1, len(x)):
        y = 0.5 * y * a + x[i]
        ys.append(y)
    return np.sum(np.stack(ys) ** 2)


def test_forward_and_backward_become_a_loop_each():
    x = onp.linspace(0.0, 1.0, 40)
    program, other = both(ft.grad(recurrence), 0.9, x, least=20)
    assert len(program.eqns) > 150
    assert len(other.eqns) < 30
    assert loops(other) == [39, 37]
    assert_same(program, other, (0.9, x))


def test_the_size_of_a_rolled_program_does_not_depend_on_the_number_of_steps():
    sizes = {
        len(both(ft.grad(recurrence), 0.9, onp.ones(n), least=20)[1].eqns) for n in (40, 41, 90)
    }
    assert len(sizes) == 1


def test_loops_in_loops_become_loops_in_loops():
    def f(u):
        for _ in range(6):
            for _ in range(8):
                u = u.at[1:-1].set(u[:-2] * u[2:])
            u = u.at[0].set(u[-2])
        return np.sum(u)

    u = onp.linspace(0.5, 1.0, 9)
    program, other = both(f, u, least=12)
    assert loops(other) == [6, [8]]
    program, other = both(ft.grad(f), u, least=12)
    assert len(other.eqns) < 100 < 500 < len(program.eqns)
    assert_same(program, other, (u,))


def test_indices_without_order_are_read_from_a_table():
    places = [3, 1, 4, 1, 5, 2, 2, 6, 5, 3, 5, 0, 1, 3]

    def f(A, b):
        t = b[:, 0]
        for k in places:
            t = np.max(t[:, None] + A, axis=0) + b[:, k]
        return np.sum(t)

    r = onp.random.default_rng(0)
    args = r.normal(size=(3, 3)), r.normal(size=(3, 7))
    program, other = both(f, *args)
    assert loops(other) == [len(places)]
    assert_same(program, other, args)
    assert_same(*both(ft.grad(f, (0, 1)), *args), args)


def test_numbers_that_differ_are_read_from_a_table():
    def f(x):
        for k in range(30):
            x = x * (0.13 * k) + np.float32(k)
        return x

    for x in (onp.float32(0.3), onp.float64(0.3)):  # which a Python float does not promote
        program, other = both(f, x)
        assert len(loops(other)) == 1
        assert_same(program, other, [x])
        assert ft.jit(f)(x).dtype == x.dtype


def test_zeros_of_both_signs_differ():
    def f(x):
        for k in range(30):
            x = x * (0.0 if k % 2 else -0.0) + (-0.0 if k % 3 else 0.0)
        return x

    program, other = both(f, 2.0)
    assert len(loops(other)) == 1
    assert_same(program, other, [2.0])


def test_windows_that_move_along_several_axes():
    def f(A, B):
        s = 0.3
        for i in range(12):
            s = s * np.sum(A[i:i + 2, i + 1:i + 4] * B[i, :, i:i + 2].sum()) + A[-1 - i, i - 13]
        return s

    r = onp.random.default_rng(0)
    args = r.normal(size=(15, 16)), r.normal(size=(12, 2, 14))
    for g in (f, ft.grad(f, (0, 1))):
        program, other = both(g, *args)
        assert_same(program, other, args)


def bodies(program):
    """The bodies of its loops."""
    return [eqn.prim.body for eqn in program.eqns if eqn.prim.name == "rolled"]


def carried(program):
    """The shapes of the state of its loops, a list for each."""
    return [[v.aval.shape for v in eqn.prim.body.inputs[eqn.prim.consts :][: eqn.prim.carries]]
            for eqn in program.eqns if eqn.prim.name == "rolled"]


ZEROS = onp.where(onp.arange(140) % 3 == 0, -0.0, 0.5)


def test_rows_that_are_added_once_are_collected_and_zeros_keep_their_signs():
    def f(x):
        s = 1.0
        for i in range(70):
            s = s * x[i] + x[70 + i] * s * x[i + 1]
        return s

    program, other = both(ft.grad(f), ZEROS)
    assert {shape for shapes in carried(other) for shape in shapes} == {()}
    assert_same(program, other, (ZEROS,))


def test_sums_to_a_row_keep_their_order():
    def f(x):
        s = 0.1
        for i in range(1, 70):
            s = np.sin(s * x[i - 1]) + s * x[i] + x[i + 1] * x[i]
        return s

    x = onp.random.default_rng(0).normal(size=100)
    program, other = both(ft.grad(f), x)
    assert carried(other) == [[()], [()]]
    assert_same(program, other, (x,))


def test_rows_that_are_added_again_are_added_in_place_and_zeros_keep_their_signs():
    def f(x):
        s = 1.0
        for i in range(70):
            s = s * x[i % 7] + x[70 + i] * s * x[i // 2]
        return s

    program, other = both(ft.grad(f), ZEROS)
    names = [eqn.prim.name for body in bodies(other) for eqn in body.eqns]
    assert names.count("scatter_add") == 6
    assert "put_add" not in names
    assert_same(program, other, (ZEROS,))


def test_a_row_to_which_all_steps_add_is_a_number_that_may_be_negative_zero():
    def f(x, y):
        s = 1.0
        for i in range(70):
            s = s * y[70 + i] + x[5] * y[i]
        return s

    args = onp.ones(100), onp.r_[onp.full(70, -0.0), onp.ones(70)]
    program, other = both(ft.grad(f), *args)
    assert {shape for shapes in carried(other) for shape in shapes} == {()}
    assert_same(program, other, args)
    assert onp.signbit(interpret(other, args)[0][5])


def test_an_array_that_is_written_row_by_row_is_no_part_of_the_state():
    def f(x, a):
        y = np.zeros((3, 80))
        y[:, 1] = x[:3]
        for i in range(2, 80):
            y[:, i] = a * y[:, i - 1] - 0.5 * y[:, i - 2] + x[i]
        return np.sum(y * y)

    args = onp.where(onp.arange(80) % 5 == 0, -0.0, onp.linspace(-1.0, 1.0, 80)), 0.9
    program, other = both(ft.grad(f, (0, 1)), *args)
    assert max(map(len, carried(other))) <= 5
    assert {shape for shapes in carried(other) for shape in shapes} <= {(), (3,)}
    assert_same(program, other, args)


def test_rows_that_come_from_many_steps_ago_stay_in_the_array():
    def f(x):
        y = np.array(x)
        for i in range(10, 80):
            y[i] = np.sin(y[i - 10]) * y[i]
        return np.sum(y)

    x = onp.where(onp.arange(80) % 5 == 0, -0.0, onp.linspace(-1.0, 1.0, 80))
    for g in (f, ft.grad(f)):
        program, other = both(g, x)
        assert (80,) in carried(other)[-1]
        assert_same(program, other, (x,))


@pytest.mark.parametrize("places", [[0, 1], [0, 0]])
def test_cotangents_of_index_arrays_are_added_as_wholes(places):
    def f(x):
        s = 1.0
        for i in range(70):
            s = s * np.sum(x[onp.array(places) + i] * onp.array([0.3, 0.7])) + x[3]
        return s

    x = onp.linspace(0.1, 0.9, 140)
    program, other = both(ft.grad(f), x)
    assert loops(other) == [68, 68]
    assert_same(program, other, (x,))


def test_functions_of_what_the_forward_loop_collects_are_computed_there():
    def f(A, b, c):
        t = b[:, 0]
        for k in range(20):
            t = logsumexp(t[:, None] + A, axis=0) + np.sin(t * b[:, k])
        return np.sum(t)

    r = onp.random.default_rng(0)
    args = r.normal(size=(3, 3)), r.normal(size=(3, 20)), 0.5
    program, other = both(ft.grad(f, (0, 1)), *args)
    forward, backward = [{eqn.prim.name for eqn in body.eqns} for body in bodies(other)]
    assert {"logsumexp", "softmax", "sin", "cos"} <= forward
    assert not {"softmax", "cos"} & backward
    assert_same(program, other, args)


# ---- functions of columns (``parts.py``)


def loop_of(body, inputs, length, carries, reverse=False):
    """An equation of a loop without constants, and its outputs."""
    row = Loop("rolled", body, 0, carries, length, plainly, reverse=reverse)
    outputs = tuple(map(Var, row.output_types()))
    return Eqn(row, tuple(inputs), {}, outputs), outputs


def functions_of_a_column(read, functions, reverse):
    """A loop that makes matrices, each from the one before, and one that reads functions of these:
    of the column or of a part of it, as ``read`` says."""
    matrix, matrices = [Aval(shape, onp.dtype(float)) for shape in ((3, 3), (5, 3, 3))]
    x, entry, made = Var(matrix), Var(matrix), Var(matrix)
    body = Program((x, entry), (Eqn(ops.subtract, (entry, x), {}, (made,)),), (made, made))
    start, entries = Var(matrix), Var(matrices)
    first, (last, column) = loop_of(body, (start, entries), 5, 1)
    eqns, operand = [first], last if read == "state" else column
    if isinstance(read, tuple):
        operand = Var(matrices)
        eqns.append(Eqn(getitem, (column,), {"pattern": (read,)}, (operand,)))
    length = operand.aval.shape[0]
    v, inner, outs = Var(Aval(operand.aval.shape[1:], onp.dtype(float))), [], []
    for row, params in functions:
        out = Var(row.abstract(v.aval, **params))
        inner.append(Eqn(row, (v,), params, (out,)))
        outs.append(out)
    second, results = loop_of(Program((v,), tuple(inner), tuple(outs)), (operand,), length, 0,
                              reverse)
    eqns.append(second)
    results = list(results)
    for row, params in functions:  # and of one entry, and of several, outside of the loop
        for pattern in ((1,), ((0, 3, None),)):
            part = Var(Aval(result_shape(column.aval.shape, (), pattern), onp.dtype(float)))
            results.append(Var(row.abstract(part.aval, **params)))
            eqns += [Eqn(getitem, (column,), {"pattern": pattern}, (part,)),
                     Eqn(row, (part,), params, (results[-1],))]
    return check(Program((start, entries), tuple(eqns), tuple(results)))


@pytest.mark.parametrize("read", ["column", "state", (None, None, -1)])
@pytest.mark.parametrize("reverse", [False, True])
def test_functions_of_columns_are_of_the_same_entries(read, reverse):
    axes = [(0,)] if read == "state" else [(0,), (1,)]
    functions = [(ops.sin, {}), *[(softmax, {"axis": axis}) for axis in axes]]
    program = functions_of_a_column(read, functions, reverse)
    r = onp.random.default_rng(0)
    other = computed_earlier(program)
    assert (other is program) == (read == "state")
    assert_same(program, other, [r.normal(size=(3, 3)), r.normal(size=(5, 3, 3))])


# ---- what becomes no loop


@pytest.mark.parametrize(
    "f", [
        lambda x: sum([x[i] for i in range(12)]),  # too short
        lambda x: np.sum(np.stack([x[i] for i in range(12)] * 80)),  # nothing but reads
    ], ids=["short", "reads"],
)
def test_what_compiles_as_fast_written_out_stays_written_out(f):
    program = optimise(ft.jit(f).lower(onp.ones(12)).program)
    assert roll(program, lambda body: True) is program


def test_a_loop_that_is_one_kernel_stays_one_kernel():
    def f(x):
        for _ in range(200):
            x = x - 0.1 * (x * x - 2.0)
        return x

    program = optimise(ft.jit(f).lower(onp.ones(1000)).program)
    assert roll(program, lambda body: True) is program
    assert loops(both(f, onp.ones(1000), least=100)[1]) == [200]


def test_a_body_that_is_not_native_stays_written_out():
    program = optimise(ft.jit(recurrence).lower(0.9, onp.ones(400)).program)
    assert loops(roll(program, lambda body: True)) == [399]
    assert roll(program, lambda body: False) is program


@pytest.mark.parametrize("ago", [2, 4, 6, 12])
def test_values_from_several_steps_ago_are_part_of_the_state(ago):
    def f(x):
        ys = [x[i] for i in range(12)]
        for _ in range(40):
            ys.append(0.5 * ys[-1] * ys[-ago] + 0.2)
        return ys[-1]

    x = onp.linspace(0.1, 0.5, 12)
    program, other = both(f, x)
    assert loops(other)
    assert_same(program, other, (x,))
    assert_same(*both(ft.grad(f), x), (x,))


# ---- compiled


@pytest.fixture
def short(monkeypatch):
    """Short loops are rolled up too."""
    monkeypatch.setattr(pieces, "LEAST", 60)


@pytest.mark.usefixtures("short")
def test_compiled_loops_compute_what_eager_code_computes():
    r = onp.random.default_rng(0)
    a, x = 0.9, r.normal(size=80)
    g = ft.jit(ft.value_and_grad(recurrence, (0, 1)))
    assert loops(g.lower(a, x).optimised) == [79, 78]
    (y, (ct_a, ct_x)), (v, (da, dx)) = g(a, x), ft.value_and_grad(recurrence, (0, 1))(a, x)
    assert float(y) == pytest.approx(float(v), rel=1e-14)  # a sum of 79 in another order
    assert float(ct_a) == float(da)
    assert ct_x.tobytes() == dx.tobytes()


@pytest.mark.usefixtures("short")
def test_compiled_stencils_compute_what_eager_code_computes():
    def f(u, w):
        u = np.array(u)
        for _ in range(12):
            u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) * w
        return np.max(u[2:4, 2:4])

    u = onp.random.default_rng(0).random((9, 9))
    g = ft.jit(ft.grad(f))
    assert len(loops(g.lower(u, 0.9).optimised)) == 2
    assert g(u, 0.9).tobytes() == ft.grad(f)(u, 0.9).tobytes()


def test_an_index_out_of_bounds_in_a_written_out_loop_is_reported_at_the_users_line():
    @ft.jit
    def f(x):
        s = 0.0
        for i in range(600):
            s = s * x[i] + 1.0
        return s

    with pytest.raises(IndexError, match="out of bounds") as e:
        f(onp.ones(500))
    assert any("test_rolling" in str(entry.path) for entry in e.traceback)


@pytest.mark.usefixtures("short")
def test_derivatives_of_compiled_loops_and_batches_agree():
    x = onp.linspace(-1.0, 1.0, 60)
    f = ft.jit(recurrence)
    inner, outer = ft.grad(f, 1)(0.9, x), ft.jit(ft.grad(recurrence, 1))(0.9, x)
    onp.testing.assert_allclose(inner, outer, rtol=1e-13)
    batch = ft.jit(ft.vmap(ft.grad(recurrence, 1), in_axes=(0, None)))(onp.array([0.9, 0.5]), x)
    onp.testing.assert_allclose(batch[0], outer, rtol=1e-13)
