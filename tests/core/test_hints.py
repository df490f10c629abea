"""What LLVM is told of loops."""

import numpy as np
import pytest

import functrans as ft
from functrans._compile.emit.shared_text import CHAIN, DEEP
from functrans._compile.ir.program import interpret
from functrans._compile.run import machine
from functrans._compile.run.machine import _host

pytestmark = pytest.mark.usefixtures("seldom_optimised")


def chain(length):
    def f(x):
        for _ in range(length):
            x = x * 1.01 + 0.01
        return x

    return f


def summed(x):
    return np.sum(chain(CHAIN)(x) ** 2)


def wide(x):
    powers = [x * (0.1 * k) for k in range(CHAIN)]
    for p in powers:
        x = x * p + p
    return x + sum(powers)


def short_chains(x):
    return np.stack([chain(CHAIN // 4)(x + k) for k in range(6)])


def functions(x):
    for _ in range(CHAIN):
        x = np.sin(x) * 0.9
    return x


CASES = {
    "a chain": (chain(CHAIN), True), "its gradient": (ft.grad(summed), True),
    "half a chain": (chain(CHAIN // 2 - 1), False), "a sum of floats": (summed, False),
    "many values": (wide, False), "short chains": (short_chains, False),
    "functions": (functions, False),
}


@pytest.mark.parametrize("name", CASES)
def test_long_chains_of_cheap_operations_are_several_vectors_at_once(name):
    f, deep = CASES[name]
    assert (DEEP in ft.jit(f).lower(np.ones(4096)).llvm) == deep


@pytest.mark.parametrize("n", [1, 7, 64, 65, 127, 1000])
def test_no_bit_depends_on_how_many_vectors_there_are_at_once(n):
    x = np.linspace(0.2, 1.1, n)
    f = ft.jit(ft.grad(summed))
    (want,) = interpret(f.lower(x).program, [x])
    np.testing.assert_array_equal(f(x), want)


def test_a_loop_whose_length_is_no_longer_known_is_not_to_be_written_out(capfd):
    """The compiler would say that it cannot."""
    f = ft.jit(lambda x: 2.0 * x[:, ::-1] + x)
    with machine.choose(_host()), ft.cache.off():
        for n in (2, 3, 4):
            x = np.linspace(0.0, 1.0, 50 * n).reshape(50, n)
            assert np.array_equal(f(x), 2.0 * x[:, ::-1] + x)
    made = f.explain().stagings[-1].entries[-1].made
    assert made.startswith("compiled for any length of axis 1 of x")
    assert capfd.readouterr().err == ""
