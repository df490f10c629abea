"""Flattening, optimizers, fixed points, recorded graphs, and being autograd for a program."""

import subprocess
import sys

import numpy as onp
import pytest
from numpy.testing import assert_allclose

import functrans.autograd as autograd
import functrans.autograd.numpy as np
from functrans.autograd.extend import primitive
from functrans.autograd.misc import const_graph, flatten
from functrans.autograd.misc.fixed_points import fixed_point
from functrans.autograd.misc.flatten import flatten_func
from functrans.autograd.misc.optimizers import adam, rmsprop, sgd
from functrans.autograd.misc.tracers import FullGraphNode, full_graph
from functrans.autograd.test_util import check_grads
from functrans.autograd.tracer import Node, getval, isbox, new_box, trace
from functrans.autograd.util import toposort

PARAMS = {"w": onp.arange(6.0).reshape(2, 3), "b": [1.0, (onp.array([2.0 + 1j]),)], "e": ()}


def test_flatten_is_undone_and_differentiated():
    vector, unflatten = flatten(PARAMS)
    assert vector.shape == (8,) and type(vector) is onp.ndarray
    again = unflatten(vector)
    assert again["b"][0] == 1.0 and again["e"] == ()
    assert_allclose(again["w"], PARAMS["w"])
    check_grads(lambda x, y: flatten([x, {"k": y}])[0] ** 2, (0, 1))(2.0, onp.ones(2))
    with pytest.raises(ValueError, match="expected a vector of 8 numbers"):
        unflatten(vector[1:])
    square, _, x = flatten_func(lambda p: [v**2 for v in p], [1.0, 3.0])
    assert_allclose(autograd.jacobian(square)(x), [[2.0, 0.0], [0.0, 6.0]])


@pytest.mark.parametrize("optimize, steps", [(sgd, 300), (rmsprop, 300), (adam, 300)])
def test_optimizers_find_a_minimum_of_nested_parameters(optimize, steps):
    loss = autograd.grad(lambda p, i: np.sum((p["x"] - 3.0) ** 2) + p["y"] ** 2)
    seen = []
    found = optimize(loss, {"x": onp.zeros(2), "y": 1.0}, lambda x, i, g: seen.append(i),
                     num_iters=steps, step_size=0.05)
    assert seen == list(range(steps))
    assert_allclose(found["x"], [3.0, 3.0], atol=0.05)


def test_fixed_points_have_implicit_derivatives():
    def root(a):
        return fixed_point(lambda a: lambda x: 0.5 * (x + a / x), a, onp.ones(2),
                           lambda x, y: onp.max(onp.abs(getval(x - y))), 1e-13)

    check_grads(root, modes=["rev"], order=2)(onp.array([2.0, 3.0]))


def test_a_recorded_graph_runs_again_without_the_function():
    calls = []

    @primitive
    def look(x, name):
        calls.append(name)
        return x

    def f(x, y):
        calls.append("f")
        return look(x, "x") * 2 + look(y, "y") ** 2 + autograd.grad(np.sin)(x)

    g = const_graph(f, 1.0)
    assert_allclose(float(g(3.0)), 11.0 + onp.cos(1.0))
    assert_allclose(float(g(4.0)), 18.0 + onp.cos(1.0))
    assert calls == ["f", "x", "y", "y"]
    h = const_graph(lambda x: autograd.grad(lambda v: np.sin(v) + v**2)(x))
    assert [float(h(x)) for x in (0.0, 1.0)] == [1.0, float(onp.cos(1.0) + 2.0)]


def test_graphs_name_functions_and_parents():
    end = full_graph(lambda x, y: np.exp(x) * y, 0.5, 2.0)
    fun, args, kwargs, parents = end.recipe
    assert fun.__name__ == "multiply" and args == (onp.exp(0.5), 2.0) and not kwargs
    assert [i for i, _ in parents] == [0, 1] and end.value == 2 * onp.exp(0.5)
    names = [n.recipe[0].__name__ for n in toposort(end, lambda n: [p for _, p in n.recipe[3]])]
    assert names[:1] == ["multiply"] and "exp" in names
    assert isinstance(end, FullGraphNode)


def test_a_node_class_sees_each_op():
    class Count(Node):
        __slots__ = ("n",)

        def initialize_root(self):
            self.n = 0

        def __init__(self, value, fun, args, kwargs, argnums, parents):
            assert not any(map(isbox, args)) and fun(*args, **kwargs) == value
            self.n = 1 + max(p.n for p in parents)

    value, node = trace(Count.new_root(), lambda x: np.sin(np.sin(x)) + x, 0.5)
    assert value == onp.sin(onp.sin(0.5)) + 0.5 and node.n == 3
    with pytest.warns(UserWarning, match="independent"):
        assert trace(Count.new_root(), lambda x: 1.0, 0.5) == (1.0, None)
    with pytest.raises(NotImplementedError, match=r"tracer\.trace"):
        new_box(1.0, 0, node)


def run(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60)


NAMES = """
import sys, functrans
assert not any(n.startswith("functrans.autograd") for n in sys.modules)
import functrans.autograd
functrans.autograd.install()
functrans.autograd.install()  # again changes nothing
import autograd.numpy as np, autograd.scipy.special as special
import autograd.misc.optimizers, autograd.numpy.random as npr
from autograd import grad, value_and_grad
from autograd.extend import primitive, defvjp
from autograd.numpy.numpy_boxes import ArrayBox
assert autograd is functrans.autograd and special is functrans.autograd.scipy.special
assert not [n for n in sys.modules if n.startswith("autograd.") and
            sys.modules[n] is not sys.modules["functrans." + n]]
try:
    import autograd.numpy.numpy_jvps
except ModuleNotFoundError as error:
    assert "functrans.autograd, which is installed as autograd, has no such module" in str(error)
    print(grad(lambda x: np.sum(x**2))(np.ones(2)))
"""


def test_a_program_that_imports_autograd_runs_as_it_is(tmp_path):
    done = run("-c", NAMES)
    assert done.stdout == "[2. 2.]\n", done.stderr
    script = tmp_path / "program.py"
    script.write_text("import sys, autograd\nprint(sys.argv[1:], autograd.__name__)\n")
    done = run("-m", "functrans.autograd", str(script), "--rate", "3")
    assert done.stdout == "['--rate', '3'] autograd\n", done.stderr


def test_another_autograd_is_not_replaced():
    done = run("-c", "import sys, types; sys.modules['autograd'] = types.ModuleType('autograd')\n"
                     "from functrans.autograd import install; install()")
    assert "ImportError: functrans.autograd.install: autograd has been imported" in done.stderr
