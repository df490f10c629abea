"""Ops and transforms that are declared from outside."""

import subprocess
import sys
from pathlib import Path

import mpmath
import numpy as np
import pytest
import scipy.special as special

import functrans as ft
import functrans.scipy.special  # whose meanings the fixture below takes away
from functrans import extend
from functrans.errors import ArgumentError, UnsupportedError
from functrans.numpy.protocols import FUNCTIONS, UFUNCS
from functrans.testing import check_grads

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def afterwards_forgotten():
    kept = [(d, dict(d)) for d in (extend.TABLE, UFUNCS, FUNCTIONS)]
    for ufunc in (special.erf, special.xlogy, special.exprel):
        UFUNCS.pop(ufunc, None)
    yield
    for d, before in kept:
        d.clear()
        d.update(before)


@pytest.fixture
def count_ops():
    # imported here: it declares an op, which the tests of the table must not see
    from examples.extend_op import count_ops

    return count_ops


def declare_erf():
    slope = float(2 / np.sqrt(np.pi))
    return extend.elementwise("outside_erf", special.erf, lambda g, x: g * (slope * np.exp(-x * x)))


X = np.array([0.3, -1.2, 2.0])


def test_a_ufunc_without_a_row_says_how_to_declare_one():
    with pytest.raises(
        UnsupportedError, match=r"ufunc erf has no derivative rule.*functrans\.extend"
    ):
        ft.grad(lambda x: special.erf(x))(1.0)


def test_the_plain_ufunc_is_differentiable_once_declared():
    declare_erf()
    expected = [float(mpmath.diff(mpmath.erf, x)) for x in X]
    found = ft.grad(lambda x: np.sum(special.erf(x)))(X)
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_the_row_itself_is_the_same_op():
    erf = declare_erf()
    np.testing.assert_array_equal(erf(X), special.erf(X))
    np.testing.assert_array_equal(ft.elementwise_grad(erf)(X), ft.elementwise_grad(special.erf)(X))


def test_every_transform_handles_it():
    declare_erf()
    check_grads(lambda x: np.sum(special.erf(x) ** 2), (X,), order=2)
    np.testing.assert_array_equal(ft.vmap(special.erf)(X), special.erf(X))
    value, tangent = ft.jvp(special.erf, (X,), (np.ones(3),))
    np.testing.assert_array_equal(tangent, ft.vmap(ft.grad(special.erf))(X))
    np.testing.assert_array_equal(value, special.erf(X))


def test_derivatives_keep_the_dtype():
    declare_erf()
    assert ft.grad(lambda x: np.sum(special.erf(x)))(X.astype(np.float32)).dtype == np.float32


def test_third_derivative_against_mpmath():
    declare_erf()
    d3 = ft.derivative(ft.derivative(ft.derivative(special.erf)))
    assert float(d3(0.4)) == pytest.approx(float(mpmath.diff(mpmath.erf, 0.4, 3)), rel=1e-13)


def test_an_op_of_two_operands():
    extend.elementwise(
        "outside_xlogy",
        special.xlogy,
        lambda g, x1, x2: g * np.log(x2),
        lambda g, x1, x2: g * (x1 / x2),
    )
    check_grads(special.xlogy, (np.array([0.5, 2.0]), np.array(3.0)), order=2)


def test_a_constant_ufunc_has_derivative_zero():
    extend.constant("outside_ceil_log", special.exprel)
    assert ft.grad(lambda x: special.exprel(x) * x)(1.0) == special.exprel(1.0)


def test_a_linear_op():
    def difference(x):
        return x[..., 1:] - x[..., :-1]

    def transposed(ct, x):
        zero = np.zeros((*ct.shape[:-1], 1))
        return np.concatenate([zero, ct], -1) - np.concatenate([ct, zero], -1)

    op = extend.linear("outside_difference", difference, transposed, batch=lambda n, xs, b: op(*xs))
    np.testing.assert_array_equal(ft.jacobian(op)(X), np.diff(np.eye(3), axis=0))
    np.testing.assert_array_equal(ft.linear_transpose(op, X)(np.array([1.0, 10]))[0], [-1, -9, 10])
    np.testing.assert_array_equal(ft.vmap(op)(np.stack([X, X]))[1], np.diff(X))
    check_grads(lambda x: op(x) ** 2, (X,), order=2)


def test_an_op_by_hand_needs_one_mode_only():
    op = extend.primitive(
        "outside_dot_self", lambda x: x @ x, vjp=lambda ct, y, xs, wanted: [2 * ct * xs[0]]
    )
    np.testing.assert_array_equal(ft.grad(op)(X), 2 * X)
    check_grads(op, (X,), order=2)
    np.testing.assert_array_equal(ft.hessian(op)(X), 2 * np.eye(3))


def test_a_name_can_be_taken_once():
    with pytest.raises(ValueError, match="already an op named 'tanh'"):
        extend.elementwise("tanh", lambda x: x, lambda g: g)


def test_a_ufunc_has_one_meaning():
    declare_erf()
    with pytest.raises(ArgumentError, match=r"erf already has a meaning.*outside_erf.*around"):
        extend.elementwise("second_erf", special.erf, lambda g: g)
    assert "second_erf" not in extend.TABLE


def test_withdrawing_frees_name_and_ufunc():
    extend.withdraw(declare_erf())
    assert special.erf not in UFUNCS
    declare_erf()


def test_only_what_was_declared_can_be_withdrawn():
    row = declare_erf()
    extend.withdraw(row)
    with pytest.raises(ArgumentError, match="outside_erf is not an op of the table"):
        extend.withdraw(row)
    with pytest.raises(ArgumentError, match="packbits has no meaning"):
        extend.withdraw(np.packbits)


def test_a_numpy_function_gets_a_meaning():
    @extend.implements(np.packbits)
    def ours(x, axis=None):
        return np.sum(np.reshape(x, (-1, 8)) * 2.0 ** np.arange(7, -1, -1), axis=1)

    found = ft.grad(lambda x: np.packbits(x).sum())(np.ones(8))
    np.testing.assert_array_equal(found, [128, 64, 32, 16, 8, 4, 2, 1])


def test_a_numpy_function_has_one_meaning():
    with pytest.raises(ArgumentError, match="sum already has a meaning"):
        extend.implements(np.sum)(lambda x: x)


def test_a_transform_from_outside_composes_with_those_inside(count_ops):
    assert count_ops(lambda x: np.sum(np.exp(x) * x))(X) == {"exp": 1, "multiply": 1, "sum": 1}
    assert count_ops(ft.grad(lambda x: np.exp(x)))(np.array(1.0))["exp"] == 1
    counts = count_ops(lambda x: ft.vmap(ft.grad(lambda v: v * v * v))(x))(X)
    assert counts["multiply"] >= 4


def test_a_transform_from_outside_nests_inside_those_inside(count_ops):
    seen = []

    def f(x):
        seen.append(count_ops(np.sin)(x))
        return np.sin(x)

    assert ft.grad(f)(0.0) == 1
    assert seen == [{"sin": 1}]


NAMED_AS_ONE_OF_OURS = """
import numpy as np
from functrans import extend
twice = extend.elementwise("copy", lambda x: 2 * x, lambda g: 2 * g)
import functrans as ft
print(ft.jit(twice)(np.ones(3)))
"""


def test_compiled_code_takes_no_op_from_outside_for_one_of_its_own():
    # declared before anything is compiled, in a process of its own: the compiler is loaded late
    run = [sys.executable, "-c", NAMED_AS_ONE_OF_OURS]
    printed = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[2. 2. 2.]"


def test_what_an_op_from_outside_says_of_itself_does_not_replace_what_it_computes():
    of = extend.elementwise("of", lambda x: np.sin(x) + 1, lambda g, x: g * np.cos(x),
                            libm="sin", cost=1, rounds="never")
    np.testing.assert_array_equal(ft.jit(of)(X), np.sin(X) + 1)


def test_a_column_that_rows_do_not_have_is_named():
    with pytest.raises(TypeError, match=r"op 'twice': rows have no column domian"):
        extend.elementwise("twice", lambda x: 2 * x, lambda g: 2 * g, domian="any")


def test_the_example_runs():
    run = [sys.executable, "-m", "examples.extend_op"]
    printed = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "second derivative at 1: -0.24197072451914" in printed
    assert "its gradient" in printed


def test_all_is_what_is_public():
    assert all(hasattr(extend, name) for name in extend.__all__)
    assert len(set(extend.__all__)) == len(extend.__all__)
