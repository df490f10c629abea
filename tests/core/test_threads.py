"""Threads that use the same functions at once, while others change what these have kept.

With the interpreter lock the threads take turns. Free-threaded Python runs them side by side.
"""

import threading

import numpy as np
import pytest

import functrans as ft
from tests.threads import at_once

X = np.linspace(0.1, 1.0, 5)
LARGE = np.linspace(-1.0, 1.0, 150_000)
THREADS = 4


def wave(x):
    return np.sum(np.exp(-x * x) * np.sin(3 * x))


def slope(x):
    return np.exp(-x * x) * (3 * np.cos(3 * x) - 2 * x * np.sin(3 * x))


compiled = ft.jit(ft.grad(wave))
by_sign = ft.jit(ft.grad(lambda x: np.sum(x**2) if x[0] > 0 else np.sum(x**3)))
pull = ft.vjp(lambda x: np.sum(np.sin(x) * x) + np.sum(x * x) + np.sum(3 * x), LARGE)[1]


def of_this_thread():
    a = threading.get_ident() % 1000
    return ft.grad(lambda x: np.sum(np.sin(a * x)))(X), a * np.cos(a * X)


def in_a_block():
    with ft.config(jit=False, threads=1):
        return compiled(X), slope(X)


def for_the_process():
    ft.config.set(keep_memory=True)
    return ft.config.keep_memory, True


def after_forgetting():
    compiled.clear_cache()
    by_sign.clear_cache()
    return compiled(X[:3]), slope(X[:3])


JOBS = [
    lambda: (ft.grad(wave)(X), slope(X)), lambda: (compiled(X), slope(X)),
    lambda: (by_sign(X), 2 * X), lambda: (by_sign(-X), 3 * X * X),
    lambda: (ft.vmap(ft.grad(lambda x: x**3))(X), 3 * X * X),
    lambda: (ft.hessian(lambda x: np.sum(x**3))(X), np.diag(6 * X)),
    lambda: (pull(1.0)[0], np.cos(LARGE) * LARGE + np.sin(LARGE) + 2 * LARGE + 3),
    of_this_thread, in_a_block, for_the_process, after_forgetting,
]


@pytest.mark.parametrize("round", range(2))
def test_threads_that_share_functions_get_their_own_results(round):
    start, wrong = threading.Barrier(THREADS, timeout=60), []

    def work(first):
        start.wait()
        for i in range(len(JOBS)):
            got, want = JOBS[(first + i) % len(JOBS)]()
            if not np.allclose(got, want, rtol=1e-12, atol=1e-14):
                wrong.append((first + i) % len(JOBS))

    shift = len(JOBS) // THREADS
    at_once(work, [round + k * shift for k in range(THREADS)])
    assert wrong == []
