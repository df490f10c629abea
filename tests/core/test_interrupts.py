"""What a signal handler raises in the middle of a call leaves nothing behind for later calls.

CPython runs handlers where a function begins and where a call of C has returned. A profile function
is called at the same places, and raises at one of them.
"""

import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans import torch
from functrans._core import locks

PACKAGE = str(Path(ft.__file__).parent)
X = np.linspace(-1.0, 1.2, 5)


class Interrupt(BaseException):
    pass


class Interrupter:
    """Raises at the event number ``at`` in the package's code; counts them."""

    def __init__(self, at):
        self.at, self.count = at, 0

    def __call__(self, frame, event, arg):
        if frame.f_code.co_name == "<genexpr>":
            return  # which may be about to end
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(PACKAGE):
            self.count += 1
            if self.count == self.at:
                sys.setprofile(None)
                raise Interrupt


def interrupted(f, at):
    """How many events there were; the call ends at one of them."""
    before, interrupter = sys.getprofile(), Interrupter(at)
    sys.setprofile(interrupter)
    try:
        f()
    except Interrupt:
        pass
    finally:
        sys.setprofile(before)
    return interrupter.count


def held():
    """The locks of the package that another thread finds taken."""
    taken = []

    def look():
        for lock in list(locks._locks):
            if lock.acquire(timeout=0):
                lock.release()
            else:
                taken.append(lock)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return taken


def draws():
    rng = fnp.random.default_rng(3)
    return ft.vmap(lambda x: x + rng.normal())(X)


def jitted_draws():
    rng = fnp.random.default_rng(3)
    return ft.jit(lambda x: x + rng.normal(size=5))(X)


def shim():
    x = torch.tensor(X, requires_grad=True)
    (x.sin() * x.exp()).sum().backward()
    return x.grad.numpy()


def carried():
    return ft.grad(lambda x: ft.scan(lambda c, y: (c * y + 1.0, c), 1.0, x)[0])(X)


def written():
    def f(x):
        y = fnp.zeros(5)
        for i in range(1, 5):
            y[i] = 0.5 * y[i - 1] + x[i]
        return np.sum(y * y)

    return ft.grad(f)(X)


@pytest.mark.parametrize("f", [draws, jitted_draws, shim, carried, written],
                         ids=lambda f: f.__name__)
def test_later_calls_are_as_if_nothing_had_been_interrupted(f, unoptimised):
    later = (draws, jitted_draws, shim)
    expected = [g() for g in (f, *later)]
    errors, grad = np.geterr(), torch.is_grad_enabled()
    count = interrupted(f, -1)
    for at in np.linspace(1, count, 60).astype(int).tolist():
        interrupted(f, at)
        assert held() == []
        assert (np.geterr(), torch.is_grad_enabled()) == (errors, grad)
        np.testing.assert_array_equal(f(), expected[0])
    for g, value in zip(later, expected[1:], strict=True):
        np.testing.assert_array_equal(g(), value)


def test_a_lock_is_taken_and_released_between_two_instructions():
    # in Python a handler could come after the lock is taken, and before it is released
    for name in ("__enter__", "__exit__"):
        assert not hasattr(getattr(locks.Lock, name), "__code__")
