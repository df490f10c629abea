"""Native threads: each chunk once, by whoever is free; results do not depend on who that was."""

import ctypes
import os
import signal
import time
import warnings
from typing import Any

import numpy as np
import pytest

import functrans as ft
from functrans._compile.run import checksum, row_kernels, ufunc_loops
from functrans._compile.run import workers as module
from functrans._compile.run.machine import local
from functrans._compile.run.workers import WORDS, Workers, on_threads, workers
from functrans._core import bind
from functrans._kernels import large, sizes
from functrans._transforms.staging import native_rows
from tests.drawing import generator
from tests.threads import at_once

pytestmark = pytest.mark.skipif(workers() is None, reason="there are no such threads here")

RNG = generator(11)

# A function of a list of one array of int64: counts how often each chunk is computed, and returns
# 1 for chunk 5, 2 for chunk 6.
COUNTING = """\
define i32 @count(ptr %list, i64 %lo, i64 %hi) {
  %p = getelementptr i8, ptr %list, i64 24
  %items = load ptr, ptr %p
  %array = load ptr, ptr %items
  %q = getelementptr i8, ptr %array, i64 16
  %data = load ptr, ptr %q
  br label %chunk
chunk:
  %i = phi i64 [%lo, %0], [%next, %chunk]
  %status = phi i32 [0, %0], [%found, %chunk]
  %at = getelementptr i64, ptr %data, i64 %i
  %old = atomicrmw add ptr %at, i64 1 monotonic
  %five = icmp eq i64 %i, 5
  %six = icmp eq i64 %i, 6
  %one = zext i1 %five to i32
  %wide = zext i1 %six to i32
  %two = shl i32 %wide, 1
  %both = or i32 %one, %two
  %found = or i32 %status, %both
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %hi
  br i1 %more, label %chunk, label %leave
leave:
  ret i32 %found
}
"""


@pytest.fixture(scope="module")
def counting():
    loaded = local().compile_own(COUNTING, ["count"], "a test of threads")
    yield on_threads(loaded.functions["count"])
    del loaded  # whose code had to live until here


@pytest.fixture
def team(monkeypatch):
    """Three threads share everything, however small and however scarce processors are."""
    monkeypatch.setattr(module, "SHARED", 0)
    monkeypatch.setattr(Workers, "ready", lambda self, work: True)
    with ft.config(threads=3):
        yield workers()


def refresh(team):
    team.words[WORDS["until"]] = 0


@pytest.mark.parametrize("chunks", [1, 2, 3, 7, 64, 1000])
def test_each_chunk_is_computed_once(team, counting, chunks):
    for _ in range(20):
        refresh(team)
        counts = np.zeros(chunks, np.int64)
        assert counting([counts], chunks, 1e6) == (3 if chunks > 6 else 0)
        assert (counts == 1).all()


def test_several_callers_at_once(team, counting):
    wrong = []

    def call(_):
        with ft.config(threads=3):
            for _ in range(300):
                counts = np.zeros(9, np.int64)
                if counting([counts], 9, 1e6) != 3 or (counts != 1).any():
                    wrong.append(counts)

    refresh(team)
    at_once(call, range(4))
    assert not wrong


def ready(now, work=60_000, **words):
    """How work would be shared by threads of which the state says that."""
    state = (ctypes.c_int64 * module.SIZE)()
    for word, value in words.items():
        state[WORDS[word]] = value
    return workers()._ready(ctypes.addressof(state), work, now), state[WORDS["credit"]]


def test_threads_that_sleep_are_woken_once_there_was_enough_work():
    asleep = {"sleepers": 2, "team": 2}
    assert ready(1000, **asleep) == (0, 60_000)
    assert ready(1000, seen=600, credit=60_000, **asleep) == (2, 119_900)
    assert ready(10**6, seen=600, credit=60_000, **asleep) == (0, 60_000)
    assert ready(1000, sleepers=1, team=2) == (1, 0)
    assert ready(1000, sleepers=1, team=2, until=1001) == (0, 0)


def test_where_processors_are_scarce_the_caller_works_alone(team, counting):
    counting([np.zeros(9, np.int64)], 9, 1e6)
    team.words[WORDS["until"]] = time.monotonic_ns() + 10**12
    try:
        before = team.words[WORDS["ticket"]]
        counts = np.zeros(9, np.int64)
        assert counting([counts], 9, 1e6) == 3
        assert (counts == 1).all()
        assert team.words[WORDS["ticket"]] == before  # no job was entered
    finally:
        refresh(team)


def test_what_is_small_is_not_shared(counting):
    words: Any = workers().words  # type: ignore[union-attr]  # they are there, see above
    before = words[WORDS["ticket"]]
    counts = np.zeros(9, np.int64)
    assert counting([counts], 9, module.SHARED - 1) == 3
    assert (counts == 1).all()
    assert words[WORDS["ticket"]] == before


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="the system does not list them")
def test_signals_do_not_reach_them(team, counting):
    counting([np.zeros(9, np.int64)], 9, 1e6)
    blocked = []
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/status") as f:
            masks = [line.split()[1] for line in f if line.startswith("SigBlk")]
        blocked.append(int(masks[0], 16) >> (signal.SIGINT - 1) & 1)
    assert sum(blocked) >= 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_process_has_threads_of_its_own(team, counting):
    counting([np.zeros(9, np.int64)], 9, 1e6)
    child = os.fork()
    if child == 0:
        counts, none = np.zeros(64, np.int64), team.count == 0
        status = counting([counts], 64, 1e6)
        os._exit(0 if none and status == 3 and (counts == 1).all() and team.count == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    counts = np.zeros(64, np.int64)
    assert counting([counts], 64, 1e6) == 3
    assert (counts == 1).all()


def test_without_them_threads_of_pythons_serve(monkeypatch, counting):
    monkeypatch.setattr(module, "workers", lambda: None)
    for work in (module.SHARED, module.LONG):
        counts = np.zeros(9, np.int64)
        with ft.config(threads=3):
            assert counting([counts], 9, work) == 3
        assert (counts == 1).all()


# ---- what they compute

THREADS = 1, 2, 5


def same_for_any_number(team, f):
    results = []
    for n in THREADS:
        refresh(team)
        with ft.config(threads=n):
            results.append(np.asarray(f()).tobytes())
    assert len(set(results)) == 1
    return results[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(9, 4001), (700, 100), (5, 4096), (9000, 8)])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "squares", "sigmoid", "softplus"])
def test_kernels_do_not_depend_on_threads(team, name, shape, dtype):
    x = RNG.standard_normal(shape).astype(dtype)
    width = 1 if name in ("sigmoid", "softplus") else shape[1]
    if row_kernels.run(name, width, (x,)) is None:
        pytest.skip(f"no native code for {name} here")
    same_for_any_number(team, lambda: row_kernels.run(name, width, (x,)))


def test_checksums_do_not_depend_on_threads(team):
    x = RNG.standard_normal(300_001)
    with ft.config(jit=False):
        by_numpy = checksum.checksum(x)
    found = same_for_any_number(team, lambda: np.uint64(checksum.checksum(x)))
    assert found == np.uint64(by_numpy).tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("at", [0, 16_383, 70_000])
@pytest.mark.parametrize(("value", "nan", "infinite"), [
    (np.nan, True, True), (-np.nan, True, True), (np.inf, False, True), (-np.inf, False, True),
    (1e38, False, False), (-0.0, False, False),
])
def test_what_is_not_finite_is_found_wherever_it_is(at, value, nan, infinite, dtype):
    x = RNG.standard_normal(70_001).astype(dtype)
    x[at] = value
    for y in (x, x[:, None][::1], np.broadcast_to(x, (2, x.size)), np.stack([x, x], -1)[:, 0],
              np.asfortranarray(np.stack([x, x]))):
        assert bind.may_have_nan(y) == nan
        assert bind.is_finite(y) == (not infinite)


@pytest.fixture
def shared(team, monkeypatch):
    """Ufuncs of anything are shared, in small chunks; yields how often."""
    monkeypatch.setattr(sizes, "PARALLEL_WORK", 0)
    monkeypatch.setattr(ufunc_loops, "CHUNK", 512)
    ufunc_loops._numbers.cache_clear()
    found, run = [], native_rows.looped

    def seen(*args):
        y = run(*args)
        found.append(y is not None)
        return y

    monkeypatch.setattr(native_rows, "looped", seen)
    refresh(team)
    yield found
    ufunc_loops._numbers.cache_clear()


UNARY = [np.exp, np.log, np.sqrt, np.tanh, np.arcsinh, np.cbrt, np.negative]
BINARY = [np.add, np.multiply, np.divide, np.arctan2, np.power, np.maximum, np.hypot]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(5,), (5001,), (33, 700), (2, 3, 500), (900, 3)])
def test_values_are_numpys_to_the_last_bit(shared, shape, dtype):
    x, y = [(RNG.random(shape) + 0.1).astype(dtype) for _ in range(2)]
    column, row = y[..., :1].copy(), y.reshape(-1, shape[-1])[:1].copy()
    calls = [(f, (x,)) for f in UNARY]
    for f in BINARY:
        calls += [(f, (x, y)), (f, (x, 1.5)), (f, (2, x)), (f, (x, dtype(0.3))), (f, (x, column)),
                  (f, (column, x)), (f, (x, row)), (f, (x, row[0]))]
    for f, xs in calls:
        got, expected = large.elementwise(f, *xs), f(*xs)
        assert got.dtype == expected.dtype and got.shape == expected.shape
        assert got.tobytes() == expected.tobytes(), f
    assert all(shared)


def test_products_of_complex_numbers(shared):
    x = RNG.standard_normal(3000) + 1j * RNG.standard_normal(3000)
    assert large.elementwise(np.multiply, x, x[::-1].copy()).tobytes() == (x * x[::-1]).tobytes()
    assert shared == [True]


def test_what_has_no_loop_is_left_to_numpy(shared):
    x = RNG.standard_normal((40, 50))
    for f, xs in [(np.add, (x, x[:, :1])), (np.add, (x, x.astype(np.float32))),
                  (np.add, (x, np.float32(2))), (np.add, (x[:, ::2], x[:, ::2])),
                  (np.add, (x, 1j)), (np.add, (x, x[None])), (np.greater, (x, x)),
                  (np.ldexp, (x, 2)), (np.multiply, (x.astype(np.float16), 2.0)),
                  (np.exp, (x.astype(">f8"),)), (np.multiply, (x.astype(">f4"), 2.0)),
                  (np.add, (x.astype(np.float32), np.array(2.0))), (np.add, (x, np.array(1j)))]:
        got, expected = large.elementwise(f, *xs), f(*xs)
        assert got.dtype == expected.dtype
        assert got.tobytes() == expected.tobytes(), (f, xs)
    assert not any(shared)


def test_a_sum_in_place_of_which_numpy_warns_is_formed_once(shared):
    x = np.ones(5000)
    x[7] = 1.7e308
    y = x.copy()
    with pytest.warns(RuntimeWarning, match="overflow encountered in add"):
        large.elementwise(np.add, y, x, out=y)
    assert np.array_equal(y, np.where(x > 1, np.inf, 2.0))
    assert shared == [False]


def test_the_bytes_of_numbers_may_be_in_the_other_order(shared):
    x = np.abs(RNG.standard_normal(5000)).astype(">f8")
    y, pullback = ft.vjp(np.sqrt, x)
    assert np.array_equal(y, np.sqrt(x))
    assert np.allclose(pullback(np.ones(5000))[0], 0.5 / y, rtol=1e-15)


def test_warnings_are_numpys(shared):
    x = np.linspace(0, 1000, 5000)
    with pytest.warns(RuntimeWarning, match="overflow encountered in exp"):
        large.elementwise(np.exp, x)
    with pytest.warns(RuntimeWarning, match="divide by zero encountered in log"):
        large.elementwise(np.log, x)
    with pytest.warns(RuntimeWarning, match="invalid value encountered in subtract"):
        large.elementwise(np.subtract, np.where(x > 999, np.inf, x), np.inf)
    assert shared == [False] * 3
    with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="overflow"):
        large.elementwise(np.exp, x)
    with np.errstate(under="raise"), pytest.raises(FloatingPointError, match="underflow"):
        large.elementwise(np.exp, -x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del shared[:]
        assert (large.elementwise(np.exp, -x) == np.exp(-x)).all()  # NumPy ignores an underflow
        with np.errstate(all="ignore"):
            assert (large.elementwise(np.exp, x) == np.exp(x)).all()
    assert shared == [True, True]


def test_gradients_do_not_depend_on_threads(team):
    x, w = RNG.standard_normal((2, 1 << 18))

    def f(x):
        return np.sum(np.tanh(w * x) / (1 + x * x) + np.exp(-x * x))

    same_for_any_number(team, lambda: ft.grad(f)(x))


def test_the_layout_of_a_ufunc_is_checked(monkeypatch):
    class Other(ctypes.Structure):
        _fields_ = (("head", ctypes.c_char * object.__basicsize__), ("nout", ctypes.c_int),
                    *ufunc_loops.UFunc._fields_[1:])

    monkeypatch.setattr(ufunc_loops, "UFunc", Other)
    ufunc_loops._loop.cache_clear()
    try:
        assert ufunc_loops._loop(np.add, "d") is None
    finally:
        ufunc_loops._loop.cache_clear()
