"""``debug.print``: numbers at each call, and no change of what is computed."""

import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans.debug import print as show
from functrans.errors import ArgumentError

X = np.array([1.0, 2.0])


def cubes(x):
    return np.sum(show("h = {}", x * 2) ** 3)


def quiet(x):
    return np.sum((x * 2) ** 3)


@pytest.mark.parametrize("make", [
    lambda f: f, ft.grad, lambda f: ft.jvp(f, (X,), (X,)), ft.jit, lambda f: ft.jit(ft.grad(f)),
    lambda f: ft.grad(ft.jit(f)), ft.hessian, lambda f: lambda x: ft.vmap(f)(x[None]),
    lambda f: lambda x: ft.jet(f, (x,), ((x, x),)),
])
def test_what_is_printed_changes_nothing_that_is_computed(make, capsys):
    got, want = (make(f)(X) if callable(make(f)) else make(f) for f in (cubes, quiet))
    for a, b in zip(ft.tree.leaves(got), ft.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(a, b)
    assert "h = [2. 4.]" in capsys.readouterr().out.splitlines()


def test_a_compiled_function_prints_at_each_call(capsys):
    f = ft.jit(ft.grad(cubes))
    f(X)
    capsys.readouterr()
    f(X + 1)
    assert capsys.readouterr().out == "h = [4. 6.]\n"


@pytest.mark.parametrize("make", [ft.jit, lambda f: ft.jit(ft.value_and_grad(f)),
                                  lambda f: ft.grad(ft.jit(f)), lambda f: ft.jit(ft.hessian(f))])
def test_the_first_call_of_a_compiled_function_prints_once(make, capsys):
    make(cubes)(X)
    assert capsys.readouterr().out == "h = [2. 4.]\n"


def test_a_printed_value_that_decides_a_branch_is_printed_once_a_call(capsys):
    f = ft.jit(lambda x: x * 2 if show("x = {}", x) > 0 else x)
    assert f(1.0) == 2.0
    assert capsys.readouterr().out == "x = 1.0\n"
    assert f(-1.0) == -1.0  # which adds a path
    capsys.readouterr()
    assert f(-2.0) == -2.0 and f(2.0) == 4.0
    assert capsys.readouterr().out == "x = -2.0\nx = 2.0\n"


@pytest.mark.parametrize("make", [lambda f: f, ft.grad])
def test_each_step_of_a_compiled_loop_prints_once(make, capsys):
    def f(x):
        return ft.scan(lambda c, _: (show("c = {}", c) * x, c), 1.0, np.arange(3.0))[0]

    ft.jit(make(f))(2.0)
    assert capsys.readouterr().out == "c = 1.0\nc = 2.0\nc = 4.0\n"


def test_a_batch_prints_each_entry(capsys):
    ft.vmap(cubes)(np.stack([X, X + 1]))
    assert capsys.readouterr().out == "h = [2. 4.]\nh = [4. 6.]\n"


def test_what_is_printed_may_be_written_to(capsys):
    def f(x):
        y = show("y = {}", fnp.sin(x))
        y[0] = x[1] * 2
        return y.sum()

    np.testing.assert_allclose(ft.grad(f)(X), [0, 2 + np.cos(2.0)])
    assert show("{:.2f}", 2.5) == 2.5
    assert capsys.readouterr().out.endswith("2.50\n")


def test_a_text_and_a_number_are_wanted():
    with pytest.raises(ArgumentError, match=r"takes a text and a number .* got int 3 and float"):
        show(3, X)
