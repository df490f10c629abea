"""Is memory of large arrays kept for others, bounded, and never for two at once?"""

import ctypes
import functools
import gc
import subprocess
import sys
from contextvars import Context, copy_context
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import functrans as ft
import functrans.torch as torch
from functrans._compile.run import pool as pools
from functrans._compile.run.pool import LARGEST, SMALLEST, Handler, pool
from functrans._kernels import large, sizes
from tests.threads import at_once

handler_name = np._core.multiarray.get_handler_name  # type: ignore[attr-defined]
kept: Any = pool()
pytestmark = pytest.mark.skipif(kept is None, reason="the C library does not tell a block's size")


@pytest.fixture
def inside():
    """Runs a function in a context whose arrays come from the pool, which is empty at first."""
    def run(f, *args):
        context = Context()
        context.run(kept.enter)
        return context.run(f, *args)

    gc.disable()  # what it would drop now, other tests have left
    kept.clear()
    yield run
    kept.clear()
    gc.enable()


@pytest.fixture
def demanded(monkeypatch):
    monkeypatch.setattr(large.demand, "nbytes", 0)
    monkeypatch.setattr(sizes, "KEPT_FROM", 1 << 18)


def test_a_dropped_block_serves_the_next_array_of_its_size(inside):
    def addresses():
        x = np.empty(50_000)
        first = x.ctypes.data
        del x
        assert kept.waiting >= 400_000
        y = np.empty(50_000)
        assert kept.waiting == 0
        return first, y.ctypes.data

    first, second = inside(addresses)
    assert first == second


def test_zeros_are_zeros_where_a_block_was_full(inside):
    def used():
        x = np.full(30_000, np.nan)
        del x
        assert kept.waiting
        return np.zeros(29_999)

    assert not inside(used).any()


@pytest.mark.parametrize("nbytes", [0, 1, 100, SMALLEST - 1, LARGEST + 1])
def test_other_sizes_are_numpys_own(inside, nbytes):
    def used():
        x = np.empty(nbytes, np.uint8)
        del x
        return kept.waiting

    assert inside(used) == 0


@pytest.mark.parametrize("nbytes", [
    SMALLEST, SMALLEST + 1, 3 * SMALLEST // 2, 2 * SMALLEST - 1, 12_345_678, LARGEST // 2,
])
def test_a_class_is_at_most_an_eighth_too_large(inside, nbytes):
    def used():
        x = np.empty(nbytes, np.uint8)
        del x
        return kept.waiting

    assert nbytes <= inside(used) <= nbytes * 9 / 8 + 4096  # and a page, where a block has its own


@given(steps=st.lists(st.tuples(st.sampled_from(["empty", "zeros", "resize", "drop", "clear"]),
                                st.integers(0, 9), st.integers(0, 40_000)), max_size=60))
def test_no_two_arrays_share_memory(steps):
    def run():
        arrays = {}
        for i, (step, place, n) in enumerate(steps):
            if step == "drop":
                arrays.pop(place, None)
            elif step == "clear":
                kept.clear()
            elif step == "resize" and place in arrays:
                x, filled = arrays[place]
                x.resize(n, refcheck=False)
                assert (x[: min(n, filled.size)] == filled[: min(n, filled.size)]).all()
                x[:] = i
                arrays[place] = x, np.full(n, i, np.int32)
            else:
                x = np.zeros(n, np.int32) if step == "zeros" else np.empty(n, np.int32)
                assert step != "zeros" or not x.any()
                x[:] = i
                arrays[place] = x, np.full(n, i, np.int32)
        for x, filled in arrays.values():
            np.testing.assert_array_equal(x, filled)

    context = Context()
    context.run(kept.enter)
    context.run(run)


def test_what_waits_is_bounded(inside, monkeypatch):
    monkeypatch.setattr(kept.state, "limit", 1 << 20)

    def drop_many():
        arrays = [np.empty(60_000, np.uint8) for _ in range(100)]
        most = 0
        while arrays:
            arrays.pop()
            most = max(most, kept.waiting)
        return most

    assert (1 << 19) < inside(drop_many) <= 1 << 20


def test_clearing_the_cache_gives_all_back(inside, monkeypatch):
    monkeypatch.setattr(ft.cache.store, "clear", lambda: 7)  # the files stay
    inside(lambda: np.ones(100_000).sum())
    assert kept.waiting
    assert ft.cache.clear() == 7
    assert kept.waiting == 0


def test_memory_that_cannot_be_had_empties_the_pool_first(inside):
    def used():
        x = np.empty(100_000)
        del x
        assert kept.waiting
        with pytest.raises(MemoryError):
            np.empty(1 << 58)

    inside(used)
    assert kept.waiting == 0


def test_a_pool_in_use_makes_nobody_wait(inside, monkeypatch):
    # as a child process finds it if another thread of its parent was at it
    def used():
        x = np.ones(100_000)
        y = np.zeros(100_000)
        total = (x + y).sum()
        del x, y
        return total, kept.waiting

    monkeypatch.setattr(kept.state, "lock", 1)
    assert inside(used) == (100_000, 0)


def test_threads_get_memory_of_their_own(inside):
    wrong = []

    def work(number):
        for i in range(200):
            x = np.full(20_000 + 100 * (i % 7), number)
            y = x + 1
            if not ((x == number).all() and (y == number + 1).all()):
                wrong.append((number, i))

    at_once(functools.partial(inside, work), range(4))
    assert not wrong


def test_derivatives_of_many_large_arrays_make_numpy_use_it(demanded):
    slope = ft.grad(lambda x: np.sum(x * np.sin(x)))
    x = np.linspace(0, 1, 8192)

    def names():
        seen = []
        for _ in range(6):
            slope(x)
            seen.append(handler_name())
        return seen

    assert Context().run(names) == ["default_allocator"] * 4 + ["functrans"] * 2
    assert handler_name(np.empty(3)) == handler_name()  # of this context, which is another


def test_forward_mode_and_the_shim_use_it_too(demanded):
    x = np.linspace(0, 1, 8192)
    large.demand.nbytes = sizes.KEPT_FROM

    def forward():
        ft.jvp(np.sin, (x,), (x,))
        return handler_name()

    def backward():
        leaf = torch.ones(8192, requires_grad=True)
        (leaf * leaf).sum().backward()
        return handler_name()

    assert Context().run(forward) == Context().run(backward) == "functrans"


@pytest.mark.parametrize("run", [
    lambda: ft.jacfwd(lambda x: x * x, chunk_size=64)(np.linspace(0, 1, 128)),
    lambda: ft.vmap(np.sin)(np.ones((64, 128))),
])
def test_batches_of_forward_mode_and_of_vmap_use_it_too(demanded, run):
    large.demand.nbytes = sizes.KEPT_FROM

    def name():
        run()
        return handler_name()

    assert Context().run(name) == "functrans"


@pytest.mark.parametrize(("n", "name"), [(100, "default_allocator"), (8192, "functrans")])
def test_compiled_programs_with_large_arrays_use_it_from_their_second_call_on(n, name):
    slope = ft.jit(ft.grad(lambda x: np.sum(np.cumsum(x) ** 2)))

    def names():
        seen = []
        for _ in range(3):
            slope(np.ones(n))
            seen.append(handler_name())
        return seen

    assert Context().run(names) == ["default_allocator", name, name]


def test_it_can_be_switched_off(demanded):
    slope = ft.grad(lambda x: np.sum(x * np.sin(x)))
    x = np.linspace(0, 1, 8192)
    large.demand.nbytes = sizes.KEPT_FROM

    def names():
        slope(x)
        yield handler_name()
        with ft.config(keep_memory=False):
            slope(x)
        yield handler_name()

    context = Context()
    assert context.run(lambda: [*names()]) == ["functrans", "default_allocator"]


def test_an_allocator_of_the_users_stays():
    theirs = Handler(b"theirs", 1, kept.state.inner)
    capsule = pools._new_capsule()(ctypes.addressof(theirs), pools.NAME, None)

    def used():
        kept.variable.set(capsule)
        kept.enter()
        kept.leave()
        return handler_name(np.empty(50_000))

    assert copy_context().run(used) == "theirs"


def test_arrays_may_outlive_the_modules():
    code = ("import numpy as np, sys; from functrans._compile.run.pool import pool\n"
            "pool().enter(); x = np.ones(100_000); sys.x = x; del x\n"
            "class Last:\n    def __init__(self): self.x = np.ones(50_000)\n"
            "    def __del__(self): del self.x\n"
            "sys.last = Last(); print(int(sys.x.sum()))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "100000\n", "")
