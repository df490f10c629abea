"""Functions, programs and ops pickle by reference."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import functrans as ft
from functrans._ops.declare import TABLE

X = np.array([0.5, 1.0, 2.0])


def f(x):
    return np.sum(np.sin(x) ** 2)


def g(p, scale=1.0):
    return np.sum(p["w"] * scale)


@ft.jit
def jitted(x):
    return x * 2.0


@ft.grad
def slope(x):
    return x**3


@ft.custom_jvp
def ruled(x):
    return x**2


ruled.defjvp(lambda primals, tangents: (ruled(*primals), 5.0 * tangents[0]))


class Model:
    def __init__(self, w):
        self.w = w

    @ft.vmap
    def rows(self):
        return self

    def loss(self, x):
        return np.sum(self.w * x)


FUNCTIONS = {
    "grad": (ft.grad(f), (X,)),
    "value_and_grad": (ft.value_and_grad(f), (X,)),
    "a path": (ft.grad(g, "p['w']"), ({"w": X},)),
    "jacobian": (ft.jacobian(np.sin), (X,)),
    "jacfwd": (ft.jacfwd(np.sin), (X,)),
    "jacrev": (ft.jacrev(np.sin, argnums=(0,)), (X,)),
    "hessian": (ft.hessian(f), (X,)),
    "vmap": (ft.vmap(ft.grad(f), in_axes=1), (np.ones((3, 2)),)),
    "laplacian": (ft.laplacian(f), (X,)),
    "hessian_diagonal": (ft.hessian_diagonal(f), (X,)),
    "elementwise_grad": (ft.elementwise_grad(np.sin), (X,)),
    "derivative": (ft.derivative(np.exp), (1.0,)),
    "checkpoint": (ft.checkpoint(f), (X,)),
    "a jitted function": (jitted, (X,)),
    "jitted under another name": (ft.jit(f), (X,)),
    "jitted with options": (ft.jit(g, static_argnames="scale", max_paths=3), ({"w": X},)),
    "of a function that is jitted": (ft.grad(ft.jit(f)), (X,)),
    "jitted of a derivative": (ft.jit(ft.hessian(f)), (X,)),
    "of a jitted function": (ft.jacobian(jitted), (X,)),
    "a decorated function": (slope, (2.0,)),
    "with a rule": (ft.grad(ruled), (3.0,)),
    "of a method": (ft.grad(Model(X).loss), (X,)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_pickle(name):
    function, args = FUNCTIONS[name]
    again = pickle.loads(pickle.dumps(function))
    expected, y = ft.tree.flatten(function(*args))[0], ft.tree.flatten(again(*args))[0]
    for a, b in zip(y, expected, strict=True):
        assert_array_equal(a, b)


def test_a_jitted_function_says_what_it_is_of_and_keeps_its_parts():
    function = pickle.loads(pickle.dumps(ft.jit(g, static_argnames="scale")))
    assert repr(function) == "<jit of g>"
    assert function({"w": X}, scale=2.0) == 2 * X.sum()
    assert "static" not in repr(function.lower({"w": X}, scale=2.0))


def test_functions_that_a_module_has_pickle_by_their_names():
    for function in (jitted, slope, ruled):
        assert pickle.loads(pickle.dumps(function)) is function


def test_functions_with_rules_of_their_own_pickle_without_a_name():
    twice = ft.custom_vjp(f)
    twice.defvjp(with_residual, twice_the_slope)
    squared = ft.external(np.square, vjp=slope_of_square)
    for function in (twice, squared, ft.custom_jvp(f)):
        again = pickle.loads(pickle.dumps(function))
        assert type(again) is type(function)
        assert repr(again) == repr(function)
    assert_array_equal(ft.grad(pickle.loads(pickle.dumps(twice)))(X), ft.grad(twice)(X))
    g = ft.elementwise_grad(pickle.loads(pickle.dumps(squared)))
    assert_array_equal(g(X), 2 * X)


def with_residual(x):
    return f(x), x


def twice_the_slope(x, ct):
    return (4 * np.sin(x) * np.cos(x) * ct,)


def slope_of_square(primals, ct):
    return (2 * primals[0] * ct,)


def test_derived_functions_are_functions_of_their_kind():
    assert repr(ft.grad(f)) == "<grad of f>"
    assert ft.grad(f).__name__ == "f"
    assert ft.grad(f).__wrapped__ is f
    assert copy.copy(ft.grad(f))(X).shape == (3,)
    assert_array_equal(Model.rows(X), X)

    class Bound:
        slope = ft.grad(lambda self, x: x**2, argnums=1)

    assert Bound().slope(3.0) == 6.0


def test_programs_pickle():
    program = ft.make_program(lambda x: (np.sum(np.sin(x) * np.ones(3)), x[1:]))(X)
    again = pickle.loads(pickle.dumps(program))
    assert repr(again) == repr(program)


def test_rows_pickle_by_name():
    for row in list(TABLE.values())[:50]:
        assert pickle.loads(pickle.dumps(row)) is row
    text = pickle.dumps(TABLE["sin"]).replace(b"sin", b"nis")
    with pytest.raises(LookupError, match="there is no op named 'nis'; import the module"):
        pickle.loads(text)


def test_another_process_has_the_same_function():
    script = (
        "import sys, pickle, numpy as np\n"
        "f = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "print(f(np.zeros(2)).tolist())\n"
    )
    text = pickle.dumps(ft.vmap(ft.grad(np.sin))).hex()
    done = subprocess.run([sys.executable, "-c", script, text], capture_output=True, text=True,
                          check=False, cwd=Path(ft.__file__).parent.parent)
    assert done.stdout == "[1.0, 1.0]\n", done.stderr
