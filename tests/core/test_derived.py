"""What transforms return, as people and editors see it."""

from __future__ import annotations

import copy
import functools
import inspect
import re
import subprocess
import sys

import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp


def loss(w, x=1.0):
    """The loss."""
    return np.sum(w**2) * x


def written(w):
    w = w * 1
    w[0] = 0.0
    return np.sum(w**2)


@pytest.mark.parametrize("made, text", [
    (ft.grad(loss), "<grad of loss>"),
    (ft.grad(ft.grad(loss)), "<grad of grad of loss>"),
    (ft.vmap(ft.jacobian(loss), (None, 0)), "<vmap of jacobian of loss>"),
    (ft.hessian(loss), "<hessian of loss>"),
    (ft.value_and_grad(lambda x: x), "<value_and_grad of <lambda>>"),
    (ft.jacfwd(ft.jacrev(np.sin)), "<jacfwd of jacrev of sin>"),
    (ft.elementwise_grad(ft.derivative(np.sin)), "<elementwise_grad of derivative of sin>"),
    (ft.grad(written), "<grad of written>"),
    (ft.grad(functools.partial(loss, x=2.0)), "<grad of loss>"),
    (ft.grad(ft.jit(loss)), "<grad of jit of loss>"),
], ids=str)
def test_a_derivative_says_what_it_is_of(made, text):
    assert repr(made) == text


def test_a_derivative_has_name_docstring_and_parameters_of_its_function():
    g = ft.grad(loss)
    assert (g.__name__, g.__doc__, g.__module__) == ("loss", "The loss.", __name__)
    assert str(inspect.signature(g)) == "(w, x=1.0)"
    assert copy.copy(g) is copy.deepcopy(g) is g
    assert functools.wraps(g)(lambda w: w).__name__ == "loss"
    assert functools.partial(g, x=2.0)(np.ones(2)).tolist() == [4.0, 4.0]


@pytest.mark.parametrize("transform, options, expected", [
    (ft.grad, {"argnums": 1}, 12.0),
    (ft.value_and_grad, {"argnums": 1}, (18.0, 12.0)),
    (ft.jacobian, {"argnums": 1, "mode": "forward"}, 12.0),
    (ft.jacfwd, {"argnums": 1}, 12.0),
    (ft.jacrev, {"argnums": 1}, 12.0),
    (ft.hessian, {"argnums": 1}, 4.0),
    (ft.grad, {}, 9.0),
], ids=lambda x: getattr(x, "__name__", None))
def test_transforms_are_decorators_with_options(transform, options, expected):
    @transform(**options)
    def f(a, b):
        return a * b**2

    y = f(2.0, 3.0)
    assert (tuple(map(float, y)) if isinstance(y, tuple) else float(y)) == expected
    assert repr(f) == f"<{transform.__name__} of f>"


def test_vmap_is_a_decorator_with_options():
    @ft.vmap(in_axes=(None, 0), out_axes=1)
    def scaled(a, b):
        return a * b

    assert scaled(2.0, np.ones((3, 2))).shape == (2, 3)


def test_a_decorated_method_gets_its_object():
    class Model:
        scale = 3.0

        @ft.grad(argnums=1)
        def slope(self, x):
            return self.scale * x**2

    assert float(Model().slope(2.0)) == float(Model.slope(Model(), 2.0)) == 12.0


def test_a_compiled_function_sees_changes_behind_a_derivative():
    scale = np.ones(2)
    g = ft.grad(lambda x: np.sum(scale * x**2))
    compiled = [ft.jit(g), ft.jit(lambda x: g(x)), ft.jit(lambda x: ft.vmap(ft.grad(g))(x))]
    before = [f(np.ones(2)).tolist() for f in compiled[:2]]
    scale[0] = 5.0
    assert before == [[2.0, 2.0]] * 2
    assert [f(np.ones(2)).tolist() for f in compiled[:2]] == [[10.0, 2.0]] * 2


@pytest.mark.parametrize("module", [ft, fnp], ids=lambda m: m.__name__)
def test_docstrings_that_help_shows_have_no_markup_of_roles(module):
    own = {n: x for n in module.__all__ if callable(x := getattr(module, n))
           and str(getattr(x, "__module__", "")).startswith("functrans")}
    assert [n for n, x in own.items()
            if re.search(r":[a-z]+:`|\.\. [a-z]+::", inspect.getdoc(x) or "")] == []


def test_programs_and_what_is_lowered_show_themselves_in_notebooks():
    program = ft.make_program(lambda x: np.where(x < 0, 0.0, x))(1.0)
    assert program._repr_html_().startswith("<pre>{ lambda a:weak float64[]\n")
    assert "less a 0" in program._repr_html_()
    lowered = ft.jit(lambda x: np.sin(x) + 1)
    page = lowered.lower(np.ones(3))._repr_html_()
    assert page.startswith("<svg")
    assert "<summary>Optimised program</summary><pre>{ lambda a:float64[3]\n" in page


def test_completion_lists_modules_that_are_imported_when_they_are_used():
    source = (
        "import sys, functrans as ft\n"
        "lazy = ['debug', 'extend', 'numba', 'profile', 'testing', 'torch']\n"
        "assert set(lazy) <= set(dir(ft)) and 'grad' in dir(ft), dir(ft)\n"
        "assert not [m for m in lazy if f'functrans.{m}' in sys.modules]\n"
        "assert ft.testing.check_grads and ft.debug.explain and ft.torch.ones\n"
        "assert not [m for m in sys.modules if m.startswith('numba') or m == 'scipy.stats']\n"
    )
    subprocess.run([sys.executable, "-c", source], check=True)


SELDOM = """
import sys, numpy
before = set(sys.modules)
import functrans as ft
own = ("_compile.emit _compile.lowering.library _compile.schedule.kernels "
       "_export _interop _patch _transforms.control _transforms.matrices _transforms.rounding "
       "_transforms.sparse dask numba parallel torch")
others = ("concurrent multiprocessing logging asyncio tempfile difflib html json hashlib "
          "scipy numba llvmlite dask distributed cloudpickle matplotlib torch jax ml_dtypes")
seldom = [f"functrans.{name}" for name in own.split()] + others.split()
new = set(sys.modules) - before
print(sorted(m for m in new if any(f"{m}.".startswith(f"{s}.") for s in seldom)))
"""


def test_importing_functrans_leaves_what_few_programs_need():
    done = subprocess.run([sys.executable, "-c", SELDOM], capture_output=True, text=True,
                          check=True)
    assert done.stdout == "[]\n"


def test_every_public_name_is_there_and_stays_the_same():
    source = (
        "import functrans as ft\n"
        "assert set(ft.__all__) <= set(dir(ft)) and 'certify' not in vars(ft)\n"
        "first = [getattr(ft, name) for name in ft.__all__]\n"
        "assert all(vars(ft)[n] is x for n, x in zip(ft.__all__, first, strict=True))\n"
        "from functrans import hessian, scan\n"
        "assert hessian is ft.hessian and scan is ft.scan\n"
    )
    subprocess.run([sys.executable, "-c", source], check=True)


@pytest.mark.parametrize("name", ["gradd", "_transform", "_ops2"])
def test_a_name_that_is_not_there_is_an_attribute_error(name):
    with pytest.raises(AttributeError, match=f"module 'functrans' has no attribute '{name}'"):
        getattr(ft, name)
