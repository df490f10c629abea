"""Calls of compiled functions by the C function that stands before the native code."""

import ctypes
import gc
import signal
import sys
import threading

import numpy as np
import pytest

import functrans as ft
from functrans import errors
from functrans._compile.emit import module
from functrans._compile.emit.entry_code import MOST, NODE, PLAN
from functrans._compile.lowering.numbers import AS_NUMPY
from functrans._compile.run import entry, native
from functrans._compile.run.native import NativeProgram
from functrans._ops.declare import Elementwise
from functrans._transforms.reach import make_program
from functrans._transforms.staging.jit import Jitted
from tests.compile.test_native import FUNCTIONS, frozen, misaligned, same
from tests.threads import at_once

pytestmark = pytest.mark.usefixtures("seldom_optimised")

X = np.linspace(0.5, 1.5, 6)


def compiled(f, *args):
    return NativeProgram(make_program(f)(*args))


def entered(f, *args):
    """The entry of ``f`` at ``args``, which is to have one."""
    found = compiled(f, *args).entry
    assert found is not None
    return found


def word(f, name):
    """What the plan of an entry says of its code."""
    root = int(f.__self__[0][PLAN.index("root")])
    return (ctypes.c_size_t * len(NODE)).from_address(root)[NODE.index(name)]


# ---- what it returns: test_native asks it of transformed functions


@pytest.mark.parametrize("call", ["first", "later"])
def test_the_call_with_a_list_returns_arrays_of_its_own_that_can_be_written_to(call):
    program = compiled(lambda x, s: (x, x * s, np.sum(x), 2.5), X, 1.5)
    if call == "later":
        program([X, 1.5]), program([X, 1.5])
    ys = program([X, 1.5])
    assert type(ys) is list
    for y, e in zip(ys, (X, X * 1.5, np.sum(X), 2.5), strict=True):
        assert type(y) is np.ndarray and y.flags.writeable and y.flags.owndata
        assert not np.shares_memory(y, X)
        np.testing.assert_array_equal(y, e)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_call_step_by_step_returns_the_same(name):
    f, shape = FUNCTIONS[name]
    x = np.random.default_rng(1).normal(size=shape)
    program = compiled(f, x)
    first, later = program([x]), program([x])
    for y, e, z in zip(later, first, program._code.in_steps([x]), strict=True):
        np.testing.assert_array_equal(y, e)
        np.testing.assert_array_equal(z, e)
        assert type(y) is type(z) is np.ndarray and (y.shape, y.dtype) == (z.shape, z.dtype)


def test_inputs_constants_and_repeated_outputs_are_copied():
    c = np.arange(3.0)

    def f(x, s, n):
        y = x * s
        return x, x, y, y, c, x.reshape(2, 3), s, n, 2.5, n + 1, np.sum(x), y.reshape(3, 2)

    program = compiled(f, X, 1.5, 2)
    ys = program.entry(X, 1.5, 2)
    same(ys, program([X, 1.5, 2]))
    again = program.entry(X, 1.5, 2)
    for i, y in enumerate(ys):
        assert not any(np.shares_memory(y, z) for z in (X, c, *ys[:i], *again))


@pytest.mark.parametrize("dtype", ["?", "i1", "i2", "i4", "i8", "f4", "f8"])
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (2, 1, 3), (2,) * 8])
def test_shapes_and_dtypes(shape, dtype):
    x = np.ones(shape, dtype)
    program = compiled(lambda x: (x == 1, x, np.where(x != 0, x, x)), x)
    same(program.entry(x), program([x]))


def test_a_program_that_computes_nothing_returns_copies():
    program = compiled(lambda x: (x, 2.5), X)
    y, c = program.entry(X)
    same((y, c), program([X]))
    assert not np.shares_memory(y, X)


def test_constants_are_given_to_the_code():
    table = np.arange(600.0).reshape(100, 6)
    program = compiled(lambda x: np.sum(table * x, axis=1), X)
    same(program.entry(X), program([X]))


def test_intermediate_arrays_are_lent_and_given_back():
    x = np.linspace(0.0, 1.0, 5_000)
    program = compiled(lambda x: (lambda y: y / np.sum(y))(np.cos(x)), x)
    assert word(program.entry, "large") >= x.nbytes
    for _ in range(50):
        same(program.entry(x), program([x]))


def test_many_arguments_and_results():
    for n in (1, 2, 64, MOST):
        xs = [X + i for i in range(n)]
        program = compiled(lambda *xs: tuple(x * 2 for x in xs), *xs)
        same(program.entry(*xs), program(xs))
    assert compiled(lambda *xs: xs[0], *[X] * (MOST + 1)).entry is None


def test_numbers():
    program = compiled(lambda x, s, n: x * s + n, X, 1.5, 2)
    for s, n in [(0.0, 0), (-0.0, -1), (np.inf, 2**62), (np.nan, -(2**63)), (1e-300, 2**63 - 1)]:
        same(program.entry(X, s, n), program([X, s, n]))


def test_a_number_of_numpys_is_an_array_without_axes():
    program = compiled(lambda x, s: x.astype(np.float32) * s, X, np.float64(2.0))
    for s in (np.float64(3.0), np.array(3.0), ft.array(3.0)):
        same(program.entry(X, s), program([X, s]))
    assert program.entry(X, 3.0) is NotImplemented  # which would be weak


# ---- what it leaves to others

UNFIT = {
    "fewer": (), "more": (X, X), "None": (None,), "int": (1,), "float": (1.0,), "bool": (True,),
    "float64": (np.float64(1.0),), "text": ("x",), "list": ([1.0] * 6,), "class": (np.ndarray,),
    "matrix": (X[None],), "scalar": (X[0],), "array of no axes": (np.array(1.0),),
    "shorter": (X[:5],), "longer": (np.ones(7),), "empty": (X[:0],),
    "float32": (X.astype("f4"),), "int64": (X.astype("i8"),), "complex": (X + 0j,),
    "swapped": (X.astype(">f8"),), "longdouble": (X.astype("g"),), "objects": (X.astype(object),),
    "strided": (np.ones(12)[::2],), "reversed": (X[::-1],), "misaligned": (misaligned(X),),
    "masked": (np.ma.array(X),), "subclass": (X.view(np.recarray),),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_is_left_alone(name):
    args = UNFIT[name]
    f = entered(lambda x: x * 2, X)
    assert f(*args) is NotImplemented


@pytest.mark.parametrize("layout", [frozen, ft.array, lambda x: x.copy()[None][0]])
def test_what_fits(layout):
    x = layout(X)
    same(entered(lambda x: x * 2, X)(x), [X * 2])


@pytest.mark.parametrize("args", [(1,), (True,), (2.0, 1), (np.float64(1.0), 1), (1.0, 1.0),
                                  (1.0, True), (1.0, 2**63), (1.0, -(2**63) - 1), (1.0, 2**200)])
def test_numbers_of_another_kind_are_left_alone(args):
    f = entered(lambda s, n: s * n, 1.0, 1)
    assert (f(*args) is NotImplemented) == (args != (2.0, 1))


def test_keywords_are_refused():
    with pytest.raises(TypeError, match="no keyword arguments"):
        entered(lambda x: x * 2, X)(x=X)


def test_programs_with_steps_of_numpys_have_none():
    assert compiled(lambda x: np.linalg.svd(x)[1], np.eye(2)).entry is None
    assert compiled(lambda x, z: x * z.real, X, 1j).entry is None


def planted(monkeypatch, status):
    """Code that reports a status other than 0 from now on."""
    text = module._run

    def wrong(*args):
        return text(*args).replace("ret i32 0", f"ret i32 {status}")

    monkeypatch.setattr(module, "_run", wrong)


def test_a_status_other_than_0_leaves_the_call_to_others(monkeypatch):
    planted(monkeypatch, 7)
    f = entered(lambda x: (x * 2, (lambda y: y / np.sum(y))(np.cos(x))), np.ones(6))
    dtype, before = X.dtype, sys.getrefcount(X.dtype)
    assert [f(X) for _ in range(100)] == [NotImplemented] * 100
    assert abs(sys.getrefcount(dtype) - before) < 50


def test_a_call_while_another_runs_is_left_to_others():
    f = entered(lambda x: np.sum(x) * x, X)
    busy = PLAN.index("busy")
    words = f.__self__[0]
    words[busy] = 1  # as a signal handler sees it, or a thread while a long program runs
    assert f(X) is NotImplemented and words[busy] == 1
    words[busy] = 0
    for args in ((X,), (X[:3],), ()):
        f(*args)
        assert words[busy] == 0


# ---- references


@pytest.mark.parametrize("args", [(X, 1.5, 2), (X, 1.5, 2**100), (X[::2], 1.5, 2), (X, 2, 2)])
def test_calls_leave_nothing_behind(args):
    f = entered(lambda x, s, n: (x * s, np.sum(x), n), X, 1.5, 2)
    counted = (np.dtype(float), np.dtype(int), NotImplemented, X)
    f(*args)
    before = [sys.getrefcount(x) for x in counted]
    blocks = sys.getallocatedblocks()
    for _ in range(1000):
        f(*args)
    after = [sys.getrefcount(x) for x in counted]
    assert all(abs(a - b) < 50 for a, b in zip(after, before, strict=True))
    assert sys.getallocatedblocks() - blocks < 200


def test_it_keeps_its_code_alive():
    f = entered(lambda x: np.exp(x) * X, X)
    expected = f(X)
    for n in range(5):
        entered(lambda x, n=n: x * n, X)
        gc.collect()
    np.testing.assert_array_equal(f(X), expected)


def test_it_ends_with_its_function():
    import weakref

    program = compiled(lambda x: np.exp(x) * X, X)
    engine = weakref.ref(program._code)
    assert program.entry(X) is not None
    del program
    gc.collect()
    assert engine() is None


# ---- memory that is not there


def huge(s):
    return np.broadcast_to(s, (2**45,))


S = np.float64(0.5)
TOO_LARGE = {
    "a result": lambda s: huge(s) * 2.0,
    "a second result": lambda s: (s * 2.0, huge(s) * 2.0),
    "between steps": lambda s: np.sum(np.sin(huge(s)) * np.sum(np.sin(huge(s)))),
    "of a host step": lambda s: np.cumsum(huge(s) * 2.0),
    "a derivative": lambda s: ft.grad(lambda x: np.sum(np.sin(x)))(huge(s) * 1.0),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_out_of_memory_is_a_memory_error(name):
    f = ft.jit(TOO_LARGE[name])
    for _ in range(3):  # the first call goes the general way
        with pytest.raises(MemoryError):
            f(S)


def test_more_bytes_than_there_are_addresses_are_a_memory_error():
    def f(s):
        parts = [np.sin(np.broadcast_to(s, (2**59,)) * k) for k in range(1, 6)]
        return sum(np.sum(y * np.sum(y)) for y in parts)

    with pytest.raises(MemoryError, match=r"needs \d+ bytes between its steps"):
        ft.jit(f)(S)


def test_a_function_works_after_it_ran_out_of_memory():
    f = ft.jit(lambda x: np.sin(x) * np.sum(np.sin(x)))
    with pytest.raises(MemoryError):
        f(huge(S))
    np.testing.assert_allclose(f(X), np.sin(X) * np.sum(np.sin(X)), rtol=1e-14)


@pytest.fixture
def interruptible():
    """SIGINT raises, also in a job that was started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_in_a_host_step_ends_the_call_and_nothing_else(interruptible):
    interrupts = []

    def impl(x):
        if interrupts:
            signal.raise_signal(interrupts.pop())
        return np.multiply(x, 5)

    five = Elementwise("five", impl, (lambda g: g * 5,), 1, False)
    f = ft.jit(lambda x: np.exp(five(np.exp(x))))
    expected = f(X)
    for _ in range(2):
        interrupts.append(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            f(X)
        np.testing.assert_array_equal(f(X), expected)


# ---- jit


def test_the_second_call_and_all_later_ones_are_the_entry():
    f = Jitted(lambda x, s: (x * s, np.sum(x)), (), (), AS_NUMPY)
    ys = [f.again((X, 2.0), {}) for _ in range(3)]
    assert type(f.latest[1]) is type(len)
    for y in (*ys, f.latest[1](X, 2.0)):
        np.testing.assert_array_equal(y[0], X * 2.0)


def test_kinds_of_arguments_take_turns():
    runs = []
    f = ft.jit(lambda x, s: runs.append(1) or x * s)
    given = [(X, 2.0), (X.astype("f4"), 2.0), (X[:3], 2.0), (X, 2), (X, np.float64(2.0)),
             (ft.array(X), 2.0), (np.repeat(X, 2)[::2], 2.0), (X, np.array(2.0))]
    for _ in range(3):
        for x, s in given:
            y = f(x, s)
            assert type(y) is ft.Array and not y.flags.writeable
            np.testing.assert_array_equal(y, x * s)
            assert y.dtype == (x * s).dtype
    assert len(runs) == 5  # float64[6], float32[6] and float64[3]; by an int, by float64[]


@pytest.mark.parametrize("out", [
    lambda a, b: a, lambda a, b: (a,), lambda a, b: (a, b), lambda a, b: [a, b], lambda a, b: [a],
    lambda a, b: {"a": a}, lambda a, b: (a, {"b": b, "c": None}), lambda a, b: (a, (b,)),
    lambda a, b: (a, None), lambda a, b: (),
])
def test_results_nest_as_without_jit(out):
    f = ft.jit(lambda x: out(x * 2, np.sum(x)))
    expected, structure = ft.tree.flatten(out(X * 2, np.sum(X)))
    for _ in range(3):
        ys, found = ft.tree.flatten(f(X))
        assert found == structure
        for y, e in zip(ys, expected, strict=True):
            np.testing.assert_allclose(y, e, rtol=1e-15)
            assert type(y) is ft.Array


def test_tracers_pass_the_entry_by():
    f = ft.jit(lambda x: np.sum(x**3))
    f(X), f(X)
    np.testing.assert_allclose(ft.grad(f)(X), 3 * X**2, rtol=1e-14)
    np.testing.assert_allclose(ft.vmap(f)(np.stack([X, X])), [np.sum(X**3)] * 2, rtol=1e-14)
    np.testing.assert_allclose(ft.hessian(f)(X), np.diag(6 * X), rtol=1e-14)


def test_switching_jit_off_is_seen_behind_the_entry():
    runs = []
    f = ft.jit(lambda x: runs.append(1) or x * 2)
    f(X), f(X)
    with ft.config(jit=False):
        f(X)
    f(X)
    assert len(runs) == 2


def test_a_cleared_function_is_staged_again():
    runs = []
    f = ft.jit(lambda x: runs.append(1) or x * 2)
    f(X), f(X)
    f.clear_cache()
    f(X), f(X)
    assert len(runs) == 2


def test_where_objects_lie_otherwise_the_general_way_is_taken(monkeypatch):
    monkeypatch.setattr(entry, "is_supported", lambda: False)
    f = ft.jit(lambda x: (x * 2, np.sum(x)))
    for _ in range(3):
        y, total = f(X)
        np.testing.assert_array_equal(y, X * 2)
        assert type(total) is ft.Array


@pytest.mark.parametrize("name", ["type", "value", "tuple", "ndim", "dtype", "flags"])
def test_a_wrong_place_is_noticed(name, monkeypatch):
    monkeypatch.setitem(entry.OFFSETS, name, entry.OFFSETS[name] + 4)
    assert not entry.is_supported.__wrapped__()


def test_only_long_programs_let_other_threads_run():
    lets = [word(entered(lambda x: np.exp(x) * x, np.ones(n)), "lets") for n in (10, 30_000)]
    assert lets == [0, 1]


def test_threads_compile_an_executable_once(monkeypatch):
    start, made = threading.Barrier(8), []
    real = native.NativeProgram

    def counted(*args):
        made.append(args)
        return real(*args)

    monkeypatch.setattr(native, "NativeProgram", counted)
    f = ft.jit(lambda x: np.exp(x) * x)

    def work(x):
        start.wait()
        return f(x)

    found = at_once(work, [X] * 8)
    assert len(made) == 1
    assert all(np.array_equal(y, found[0]) for y in found) and len(found) == 8


def test_threads_that_stage_at_once_keep_one_program(monkeypatch):
    both, stage = threading.Barrier(2, timeout=60), Jitted._staged

    def together(*args):
        staged = stage(*args)
        both.wait()
        return staged

    monkeypatch.setattr(Jitted, "_staged", together)
    f = Jitted(np.exp, (), (), AS_NUMPY)
    one, other = at_once(lambda x: f._entry(f.signature.of((x,), {}))[0], [X] * 2)
    assert one is other


def test_errors_are_those_of_the_general_way():
    f = ft.jit(lambda x: x * 2)
    f(X), f(X)
    with pytest.raises(errors.ArgumentError):
        f({1, 2})
