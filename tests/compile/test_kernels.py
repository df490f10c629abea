"""What kernels share, recompute, cut and add up: the schedule's ways to save memory and time."""

import math
import threading

import numpy as np
import pytest

import functrans as ft
from functrans._compile.emit import loop_nest
from functrans._compile.ir.expand import expand
from functrans._compile.run.native import NativeProgram
from functrans._compile.schedule import schedule
from functrans._compile.schedule.kernels import HostStep, Kernel, Tiles
from functrans._core.bind import bind
from functrans._kernels import large, sizes
from functrans._ops.along_axes import logsumexp, softmax
from functrans._ops.elementwise import moving_as
from functrans._ops.indexing import put_add
from functrans._ops.reductions import equal_share
from functrans._transforms.reach import make_program
from functrans.errors import ArgumentError


def compiled(f, *args):
    return NativeProgram(make_program(f)(*args))


def steps(f, *args):
    return compiled(f, *args).schedule.steps


def draw(*shape, dtype=float):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(dtype)


@pytest.fixture
def small_tiles(monkeypatch):
    """Everything counts as large: tiles of a row or two, a chunk for each row, short blocks."""
    for name, value in {"SHARED": 0, "TILE": 64, "WORK": 0, "CHUNK": 0.1}.items():
        monkeypatch.setattr(sizes, name, value)
    monkeypatch.setattr(loop_nest, "BLOCK", 4)


# ---- cheap values are computed again


def rosenbrock(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def test_a_gradient_through_slices_is_one_kernel():
    x = draw(7, 10)
    f = ft.vmap(ft.grad(rosenbrock))
    (kernel,) = steps(f, x)
    assert isinstance(kernel, Kernel) and len(kernel.stores) == 1
    np.testing.assert_allclose(compiled(f, x)([x])[0], f(x), rtol=1e-13)


def test_a_hessian_has_no_kernel_that_only_copies():
    x = draw(10)
    f = ft.hessian(rosenbrock)
    assert not any(op.row.name == "copy" for k in steps(f, x) for op in k.ops)
    np.testing.assert_allclose(compiled(f, x)([x])[0], f(x), rtol=1e-13, atol=1e-11)


def test_a_transposed_result_is_stored_by_the_loop_that_computes_it():
    x = draw(3, 4, 5)

    def f(x):
        return np.transpose(np.exp(x), (2, 0, 1))

    assert len(steps(f, x)) == 1
    np.testing.assert_allclose(compiled(f, x)([x])[0], f(x), rtol=1e-14)


def test_a_part_of_a_result_is_not_taken_for_another_order_of_all():
    x = draw(5, 2)
    (y,) = compiled(lambda x: np.exp(x)[0:2, None], x)([x])
    np.testing.assert_allclose(y, np.exp(x)[0:2, None], rtol=1e-14)


def test_an_expensive_value_is_stored():
    def f(x):
        y = np.exp(x)
        return y[1:] * y[:-1]

    first, second = steps(f, draw(9))
    assert [op.row.name for op in first.ops] == ["exp"]
    assert [op.row.name for op in second.ops] == ["multiply"]


def test_a_value_that_many_more_entries_would_need_is_stored():
    first, second = steps(lambda x, y: (x + 1.0)[::-1] * y, draw(4), draw(50, 4))
    assert first.space == (4,) and [op.row.name for op in second.ops] == ["multiply"]


def test_what_is_computed_again_after_a_reduction_is_not_stored():
    def f(x):
        d = x - x.mean()
        return d / np.sqrt(np.sum(d * d))

    x = draw(50)
    assert all(not k.stores for k in steps(f, x)[:-1] if k.space)
    np.testing.assert_allclose(compiled(f, x)([x])[0], f(x), rtol=1e-13)


def test_long_chains_of_slices_grow_no_faster_than_they_are_long():
    def f(x):
        for _ in range(60):
            x = 0.25 * (x[2:] + x[:-2]) + 0.5 * x[1:-1]
        return x

    x = draw(130)
    ops = sum(len(k.ops) for k in steps(f, x))
    assert ops < 60 * 24 * 2
    np.testing.assert_allclose(compiled(f, x)([x])[0], f(x), rtol=1e-12)


def test_every_copy_of_a_value_has_the_same_bits():
    """The greatest entry is found again in the next kernel, where the products are new ones."""
    a, b, c = draw(1000), draw(1000)[::-1].copy(), 3.0 + draw(1000)

    def f(a, b, c):
        x = a * b - c * a
        return x == x.max(), x - x.max()

    hit, gap = compiled(f, a, b, c)([a, b, c])
    assert hit.sum() == 1
    assert gap[hit] == 0.0


@pytest.mark.usefixtures("seldom_optimised")
@pytest.mark.parametrize("turn", [
    lambda y: y[::-1], lambda y: y[1::2], lambda y: y[:, ::-1], lambda y: y.T, lambda y: y[2],
    lambda y: y[:, 1:3], lambda y: y.reshape(-1), lambda y: y.reshape(5, 4)[1:],
    lambda y: np.stack([y[0], y[3]]), lambda y: np.concatenate([y[1:], y[:1]]),
    lambda y: np.broadcast_to(y[:, :1], (4, 3)), lambda y: np.roll(y, 2, 1) + np.roll(y, -1, 0),
    lambda y: bind(put_add, y, pattern=((1, None, None), (None, -2, None)), shape=(5, 7)),
    lambda y: bind(put_add, y[::-1], pattern=((1, 5, None), 2), shape=(5, 3, 5)),
], ids=range(14))
def test_cheap_values_are_found_at_moved_places(turn):
    x, w = draw(4, 5), draw(4, 1)

    def f(x, w):
        y = turn(2.0 * x - w)
        return turn(bind(put_add, x[:, :4] * 3.0, pattern=((None,) * 3, (1, None, None)),
                         shape=(4, 5)) - 1.0) * y + 1.0

    def g(x, w):
        return ft.vjp(f, x, w)[1](np.cos(f(x, w)))

    for h in (f, g):
        ours = compiled(lambda x, w, h=h: tuple(ft.tree.leaves(h(x, w))), x, w)([x, w])
        for y, e in zip(ours, ft.tree.leaves(h(x, w)), strict=True):
            np.testing.assert_allclose(y, e, rtol=1e-13, atol=1e-13)


def test_what_lies_outside_a_window_is_zero_whatever_is_computed_there():
    def f(x):
        y = 1.0 - x[1:] * np.inf
        return bind(put_add, y, pattern=((2, None, None),), shape=(5,)) + 1.0

    x = np.array([1.0, -2.0, 3.0, -4.0])
    np.testing.assert_array_equal(compiled(f, x)([x])[0], [1, 1, np.inf, -np.inf, np.inf])


# ---- sums keep their digits


def adversarial(n, dtype):
    """Numbers of all sizes whose sum is small against them, and of which many are tiny."""
    rng = np.random.default_rng(3)
    x = rng.uniform(0.1, 1.0, n) * np.float_power(10, np.arange(-6, 3))[rng.integers(0, 9, n)]
    x[rng.permutation(n)[: n // 2]] *= -1
    return x.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [10_000, 1_000_003, 6_000_000])
def test_a_long_sum_is_as_good_as_numpys_pairwise_sum(n, dtype):
    for x in (np.full(n, 0.1, dtype), adversarial(n, dtype)):
        exact = math.fsum(x.tolist())
        (y,) = compiled(np.sum, x)([x])
        assert abs(float(y) - exact) <= 2 * np.finfo(dtype).eps * np.sum(np.abs(x), dtype=float)


def test_the_sums_of_rows_keep_their_digits():
    x = np.full((3, 500_000), 0.1, np.float32)
    (y,) = compiled(lambda x: x.sum(1), x)([x])
    np.testing.assert_allclose(y, math.fsum(x[0].tolist()), rtol=3e-7)


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_infinities_and_nan_come_through_a_long_sum(special):
    x = np.ones(50_000)
    x[30_000] = special
    np.testing.assert_equal(compiled(np.sum, x)([x])[0], np.sum(x))
    x[100] = -special
    np.testing.assert_equal(compiled(np.sum, x)([x])[0], np.nan)


# ---- rows at a time, on threads


def centred(x):
    d = x - np.exp(x).mean(1, keepdims=True)
    p = np.exp(d - d.max(1, keepdims=True))
    return np.sum(p / p.sum(1, keepdims=True) * np.sin(x))


def test_kernels_that_hand_over_large_arrays_take_turns_on_rows():
    x = draw(3000, 20)
    (step,) = [s for s in steps(ft.grad(centred), x) if isinstance(s, Tiles)]
    assert len(step.kernels) > 3 and step.tile < step.rows and step.local
    np.testing.assert_allclose(compiled(ft.grad(centred), x)([x])[0], ft.grad(centred)(x),
                               rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("f", [
    lambda x: np.var(x, axis=1), lambda x: np.logaddexp.reduce(x, axis=1),
], ids=["var", "logsumexp"])
def test_kernels_that_read_the_same_rows_take_turns_on_them(f):
    x = draw(3000, 20)
    (step,) = steps(f, x)
    assert isinstance(step, Tiles)
    assert step.tile < step.rows
    for y, e in zip(compiled(f, x)([x]), ft.tree.leaves(f(x)), strict=True):
        np.testing.assert_allclose(y, e, rtol=1e-12)


def test_kernels_of_small_arrays_do_not():
    assert all(isinstance(s, Kernel) for s in steps(ft.grad(centred), draw(30, 20)))


FUNCTIONS = {
    "rows": lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True),
    "columns": lambda x: np.exp(x) / np.exp(x).sum(0),
    "both": lambda x: (np.sin(x).sum(), x.max(0), x.min(1), np.prod(np.cos(x)), x.sum()),
    "variances": lambda x: (x.var(1), x.std(0), x[:, ::-1].var(1), x.var()),
    "tests": lambda x: (np.any(x > 2, 0), np.all(x > -1), np.count_nonzero(x > 0, axis=1),
                        np.count_nonzero(x > 0)),
    "slices": lambda x: np.exp(x)[:, 1:] * np.exp(x)[:, :-1] + np.exp(x)[::-1, 1:],
    "joined": lambda x: np.concatenate([np.exp(x), x], axis=1)[:, ::2] * 2.0,
    "gradient": ft.grad(centred),
    "hessian": lambda x: ft.hessian(lambda y: centred(y.reshape(3, 2)))(x.reshape(-1)[:6]),
    "three axes": lambda x: np.sum(np.sin(x[:, None] - x[None]), axis=1) * x,
    "indexed": lambda x: np.exp(x)[np.array([0, -1, 0])] * np.sin(x)[:, np.array([0, 0])].sum(),
    "matrix": lambda x: np.exp(x @ x.T).sum(0) @ np.tanh(x),
}


@pytest.mark.usefixtures("seldom_optimised")
@pytest.mark.parametrize("shape", [(7, 6), (2, 5), (40, 3), (1, 6), (6, 1)], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_smallest_tiles_and_chunks_change_no_value(small_tiles, name, shape):
    f, x = FUNCTIONS[name], draw(*shape)
    if name == "hessian" and x.size < 6:
        return
    expected = ft.tree.leaves(f(x))
    program = make_program(lambda x: tuple(ft.tree.leaves(f(x))))(x)
    for y, e in zip(NativeProgram(program)([x]), expected, strict=True):
        np.testing.assert_allclose(y, e, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("reduce", "worst"), [(np.max, -np.inf), (np.min, np.inf)])
def test_an_extreme_in_chunks_is_one_of_the_entries(small_tiles, reduce, worst):
    x = np.full((80, 3), worst)
    x[50, 1] = 2.0
    program = compiled(lambda x: reduce(x, 0), x)
    assert any(isinstance(s, Tiles) and s.chunks > 1 for s in program.schedule.steps)
    np.testing.assert_array_equal(program([x])[0], [worst, 2.0, worst])


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_the_number_of_threads_changes_no_bit(threads):
    x = draw(400_000, 3)

    def f(x):
        return np.exp(x) * np.sin(x), np.sum(np.exp(-x * x)), x.sum(0), np.tanh(x).max()

    program = compiled(f, x)
    assert any(isinstance(s, Tiles) and s.chunks > 1 for s in program.schedule.steps)
    with ft.config(threads=1):
        alone = program([x])
    with ft.config(threads=threads):
        together = program([x])
    for a, b, e in zip(alone, together, f(x), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, e, rtol=1e-11, atol=1e-12)


def test_work_for_one_thread_is_not_shared(monkeypatch):
    started = []
    monkeypatch.setattr(threading.Thread, "start", lambda self: started.append(self))
    x = draw(1_000_000)
    with ft.config(threads=1):
        ft.jit(lambda x: np.exp(np.sin(x)))(x)
    assert not started


def test_as_many_threads_as_the_environment_allows(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(large.os, "sched_getaffinity", lambda _: range(6), raising=False)
    assert large.cores() == 6
    for text, n in {"4": 4, "2,3": 2, "99": 6, "0": 1, "many": 6}.items():
        monkeypatch.setenv("OMP_NUM_THREADS", text)
        assert large.cores() == n
    with ft.config(threads=9):
        assert large.cores() == 9


def test_config_takes_a_positive_number_of_threads():
    with pytest.raises(ArgumentError, match="at least 1, but is 0"), ft.config(threads=0):
        pass
    with ft.config(threads=3):
        with ft.config(jit=False):
            assert (ft.config.jit, ft.config.threads) == (False, 3)
        assert ft.config.jit
    assert ft.config.threads is None
    shown = ("config(jit=True, keep_memory=True, threads=None, kinks='subgradient', log=None, "
             "loops=True, tracebacks='short', values='native', verify=True, warnings=False)")
    with ft.config(tracebacks="short"):
        assert repr(ft.config) == shown


def test_an_interrupt_in_a_thread_reaches_the_caller():
    def work(i):
        if i == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        large.share(work, range(100), 3)


@pytest.mark.parametrize("cut", [slice(3), slice(3, None), slice(1, 5)])
def test_columns_put_back_are_zero_beside_them(cut):
    x = np.arange(1.0, 25).reshape(4, 6)

    def f(x):
        return ft.vjp(lambda x: x[:, cut], x)[1](x[:, cut])[0]

    expected = np.zeros(x.shape)
    expected[:, cut] = x[:, cut]
    (y,) = compiled(f, x)([x])
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("row", [1, 2])
def test_a_row_of_zeros_repeated_is_zero_and_no_other_is(row):
    x = np.arange(1.0, 25).reshape(6, 4)

    def f(x):
        (whole,) = ft.vjp(lambda x: x[2:], x)[1](x[2:])
        return whole[row : row + 1] + x

    (y,) = compiled(f, x)([x])
    np.testing.assert_array_equal(y, x + (x[row] if row >= 2 else 0))


# ---- rows that are written out


SPECIAL = np.array([[0.0, 1.0, 1.0, -2.0], [np.inf, 1.0, np.inf, 0.0], [-np.inf] * 4,
                    [np.nan, 1.0, np.nan, 2.0], [1e300, -1e300, 5.0, 1e300]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("axis", [(0,), (1,), (0, 1)])
def test_rows_written_out_keep_their_special_values(axis, dtype):
    x = SPECIAL.astype(dtype) if dtype is np.float64 else SPECIAL[:4].astype(dtype)

    def f(x):
        top = x.max(axis)
        return (bind(equal_share, x, top, axis=axis), bind(softmax, x, axis=axis),
                bind(logsumexp, x, axis=axis))

    program = compiled(f, x)
    assert not any(isinstance(s, HostStep) for s in program.schedule.steps)
    with np.errstate(all="ignore"):
        expected = [np.asarray(y) for y in f(x)]
    for y, e in zip(program([x]), expected, strict=True):
        assert y.dtype == e.dtype
        np.testing.assert_allclose(y, e, rtol=4 * np.finfo(dtype).eps)


def test_a_row_of_other_dtypes_stays_a_host_step():
    x = np.array([[1, 2], [2, 2]])
    eqn = make_program(lambda x: bind(equal_share, x, x.max(1), axis=(1,)))(x).eqns[-1]
    assert eqn.prim is equal_share and expand(eqn) is None
    with ft.config(jit=False):
        expected = bind(equal_share, x, x.max(1), axis=(1,))
    (y,) = compiled(lambda x: bind(equal_share, x, x.max(1), axis=(1,)), x)([x])
    np.testing.assert_array_equal(y, expected)


# ---- indexing by arrays that the program holds


EPS = {np.float64: 2.3e-16, np.float32: 1.2e-7, np.int32: 0}
ROWS, PAIR = np.array([2, -1, 0, 2]), np.array([[0, 3], [-4, 1]])
INDICES = {
    "entries": (ROWS,), "rows of a matrix": (PAIR,), "columns": (slice(None), ROWS),
    "both": (ROWS, ROWS[::-1]), "grid": (ROWS[:, None], np.array([1, 1, 0])),
    "slices between": (ROWS, slice(1, None, 2), ROWS), "new axis": (None, ROWS, Ellipsis, 1),
    "mask": (np.array([True, False, True, True]),), "even": (np.arange(3),),
    "reversed": (slice(None, None, -1), np.array([3, 1])), "one": (np.array([1]),),
    "none": (np.array([], int),), "a mask of columns": (slice(None), np.eye(4, 5, 1)[0] > 0),
}


@pytest.mark.usefixtures("seldom_optimised")
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
@pytest.mark.parametrize("name", INDICES)
def test_constant_indices_read_and_add_without_numpy(name, dtype):
    x = (10 * draw(4, 5, 6)).astype(dtype)
    index = INDICES[name]

    def read(x):
        return x[index] * 2, (x + 1)[..., ::-1][index], x.T[1:].T[index]

    def added(x):
        return ft.vjp(lambda y: (y * 1.5)[index], x)[1](np.cos(x[index]))[0]

    for f in (read, added) if dtype is not np.int32 else (read,):
        program = compiled(lambda x, f=f: tuple(ft.tree.leaves(f(x))), x)
        if name != "none":
            assert not any(isinstance(s, HostStep) for s in program.schedule.steps)
        for y, e in zip(program([x]), ft.tree.leaves(f(x)), strict=True):
            assert y.dtype == e.dtype
            np.testing.assert_allclose(y, e, rtol=4 * EPS[dtype], atol=8 * EPS[dtype])


def test_what_is_indexed_is_in_memory_and_what_uses_it_waits():
    def f(x):
        y = x * 2.0
        return y[ROWS] + np.sum(y[ROWS] * y[:4]) + ft.grad(lambda z: np.sum(z[ROWS] ** 3))(y)[:4]

    x = draw(5)
    np.testing.assert_allclose(compiled(f, x)([x])[0], f(x), rtol=1e-14)


def test_an_index_that_is_given_is_checked_at_each_call():
    f = ft.jit(lambda x, i: x[i] * 2)
    x = draw(5)
    np.testing.assert_array_equal(f(x, ROWS), x[ROWS] * 2)
    with pytest.raises(IndexError, match="out of bounds"):
        f(x, np.array([0, 9, 1, 2]))


def test_a_few_entries_are_written_out():
    text = ft.jit(lambda x: np.sin(x) * 2 + x[::-1]).lower(np.ones(3)).llvm
    assert "loop.i0:" not in text
    assert "loop.i0:" in ft.jit(lambda x: np.sin(x) * 2).lower(np.ones(5)).llvm


# ---- programs of many parts


MANY = {
    "slices": lambda x, n: np.concatenate([x[i : i + 3] for i in range(n)]),
    "doubled": lambda x, n: np.concatenate([x[i : i + 3] * 2.0 for i in range(n)]),
    "numbers": lambda x, n: np.stack([x[i] * x[i + 1] for i in range(n)]),
    "neighbours": lambda x, n: tuple([x[i : i + 3] - x[n - i] * x[2 * i : 2 * i + 3]
                                      for i in range(n)]),
}


@pytest.mark.usefixtures("seldom_optimised")
@pytest.mark.parametrize("name", MANY)
def test_a_program_of_many_parts_has_kernels_of_bounded_size(name):
    """LLVM takes time quadratic in the accesses of a kernel: 400 slices took it 4 seconds."""
    x = np.arange(250.0)
    f = ft.jit(lambda x: MANY[name](x, 120))
    sizes = [len(s.loads) + len(s.stores) for s in steps(f.__wrapped__, x)]
    assert max(sizes) <= schedule.MOST_ACCESSES
    assert sum(sizes) >= 120
    for y, expected in zip(ft.tree.leaves(f(x)), ft.tree.leaves(MANY[name](x, 120)), strict=True):
        np.testing.assert_array_equal(y, expected)


def test_what_is_handed_over_in_registers_stays_in_one_kernel():
    f = ft.jit(lambda x: sum(x[i : i + 3] * x[i + 1 : i + 4] for i in range(60)))
    x = np.arange(100.0)
    (kernel,) = f.lower(x).schedule.steps
    assert len(kernel.stores) == 1
    np.testing.assert_array_equal(f(x), f.__wrapped__(x))


# ---- sums of rows


@pytest.mark.usefixtures("seldom_optimised")
@pytest.mark.parametrize("width", [2, 7, 8, 9, 16, 17, 40])
@pytest.mark.parametrize("dtype", [float, np.float32, np.int64, np.int8])
def test_sums_over_several_axes_are_those_of_their_entries(width, dtype):
    x = np.random.default_rng(width).integers(-9, 10, (31, width)).astype(dtype)

    def f(x):
        return (np.count_nonzero(x[:, 1:] > x[:, :-1]), np.sum(x[:, 1:] * x[:, :-1]),
                np.sum(x[:, ::-1] + x), np.count_nonzero(x[:, :1] + x.T[1, 0]))

    for y, expected in zip(compiled(f, x)([x]), f(x), strict=True):
        np.testing.assert_array_equal(y, expected)  # whole numbers: exact in any order


@pytest.mark.parametrize("width", [9, 24])
def test_a_row_is_added_up_from_zero(width):
    """So that rows do not wait for each other."""
    x = draw(50, width)
    f = compiled(lambda x: np.sum(x[:, 1:] * x[:, :-1]), x)
    assert "%sum0.row" in f.llvm
    np.testing.assert_allclose(f([x])[0], np.sum(x[:, 1:] * x[:, :-1]), rtol=1e-13)
    assert "%sum0.row" not in compiled(lambda x: np.sum(x * x, axis=1), x).llvm


def test_what_only_derivatives_read_is_not_computed():
    def f(x):
        return ft.stop_gradient(x) * 2.0 + moving_as(x * 2.0, np.sin(x))

    (kernel,) = steps(f, draw(5))
    assert [op.row.name for op in kernel.ops] == ["multiply", "add"]
