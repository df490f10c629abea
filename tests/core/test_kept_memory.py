"""Is memory of large arrays kept for others, as long as that is wanted?"""

import subprocess
import sys

import numpy as np
import pytest

import functrans as ft
import functrans.torch as torch
from functrans._kernels import memory

pytestmark = pytest.mark.skipif(memory._library() is None, reason="not the GNU C library")
PAGES = 200  # of an array of 102,400 numbers


@pytest.fixture(autouse=True)
def _as_before():
    before = memory._State.keeps
    yield
    with ft.config(keep_memory=before):
        memory.keep()


def given_back():
    memory.keep()
    with ft.config(keep_memory=False):
        memory.keep()


# How many pages the system clears for arrays that are made and dropped, of each of them.
FRESH = f"""
import resource
import numpy as np
from functrans._kernels import memory

def fresh_pages(times=20):
    def make():
        [np.ones({512 * PAGES}) for _ in range(8)]  # dropped at once

    make()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        make()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / (8 * times)

first = fresh_pages()
memory.keep()
print(first / {PAGES}, fresh_pages() / {PAGES})

def faults(nbytes):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(nbytes // 8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults(2 * memory.BLOCK)
kept = faults(2 * memory.BLOCK)
memory.keep(memory.WAITING + 1)
faults(4 * memory.BLOCK)
print(kept, faults(4 * memory.BLOCK))
"""


def test_a_dropped_array_leaves_its_pages_to_the_next():
    # in a process of its own, whose heap has no room from other tests
    ran = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=True)
    first, then, large, mapped = map(float, ran.stdout.split())
    assert first > 0.9 and then < 0.2
    # what is larger than all that may wait has large blocks go back
    assert large < 4 < mapped


def test_clearing_the_cache_gives_all_back(monkeypatch):
    monkeypatch.setattr("functrans._compile.run.store.clear", lambda: 0)
    memory.keep()
    x = [np.ones(512 * PAGES) for _ in range(100)]
    del x
    resident = _resident()
    ft.cache.clear()
    assert _resident() < resident - 10 * PAGES


def _resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1])


def _backward():
    leaf = torch.ones(8192, requires_grad=True)
    (leaf * leaf).sum().backward()


def _compiled(n=8192):
    slope = ft.jit(ft.grad(lambda x: np.sum(np.cumsum(x) ** 2)))
    slope(np.ones(n))
    assert not memory._State.keeps  # a call that may stay the only one
    slope(np.ones(n))


@pytest.mark.parametrize("run", [
    lambda: ft.grad(lambda x: np.sum(x * np.sin(x)))(np.linspace(0, 1, 8192)),
    lambda: ft.jvp(np.sin, (np.ones(8192),), (np.ones(8192),)),
    lambda: ft.jacfwd(lambda x: x * x, chunk_size=64)(np.linspace(0, 1, 128)),
    lambda: ft.vmap(np.sin)(np.ones((64, 128))),
    _backward,
    _compiled,
])
def test_derivatives_of_large_arrays_have_memory_kept(run, unoptimised):
    given_back()
    run()
    assert memory._State.keeps


def test_small_arrays_change_nothing(unoptimised):
    given_back()
    ft.grad(lambda x: np.sum(x * np.sin(x)))(np.linspace(0, 1, 100))
    _compiled(100)
    assert not memory._State.keeps


def test_it_can_be_switched_off():
    slope = ft.grad(lambda x: np.sum(x * np.sin(x)))
    slope(np.linspace(0, 1, 8192))
    assert memory._State.keeps
    with ft.config(keep_memory=False):
        slope(np.linspace(0, 1, 8192))
    assert not memory._State.keeps


def test_what_the_user_has_set_stays():
    code = ("from functrans._kernels import memory\n"
            "memory.keep(); print(memory._State.keeps)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env={"MALLOC_TRIM_THRESHOLD_": "1000000"})
    assert done.stdout == "False\n"
