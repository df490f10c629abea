"""autograd's operators and conventions: what comes out, in which form, and what is refused."""

import re
import warnings

import numpy as onp
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
import functrans.autograd as autograd
import functrans.autograd.numpy as np
from functrans.autograd.test_util import check_grads

X = onp.array([0.3, -1.2, 0.7])


def f(x):
    return np.sum(np.sin(x) * x**2)


GRADIENT = onp.cos(X) * X**2 + 2 * X * onp.sin(X)
HESSIAN = onp.diag(-onp.sin(X) * X**2 + 4 * X * onp.cos(X) + 2 * onp.sin(X))


def test_gradients_are_plain_arrays_that_can_be_written_to():
    g = autograd.grad(f)(X)
    assert type(g) is onp.ndarray and g.flags.writeable
    assert_allclose(g, GRADIENT, rtol=1e-14)
    assert type(autograd.grad(np.tanh)(0.5)) is onp.float64
    value, g = autograd.value_and_grad(f)(X)
    assert type(value) is onp.float64 and value == f(X)


@pytest.mark.parametrize("make", [
    lambda w: (autograd.grad(lambda x: np.dot(x, w))(X), w),
    lambda w: (autograd.make_vjp(lambda x: x)(w)[0](w), w),
    lambda w: (autograd.make_vjp(lambda x: x)(w)[1], w),
    lambda w: (autograd.make_jvp(lambda x: x)(w)(w)[1], w),
    lambda w: (autograd.jacobian(lambda x: x[::-1])(w), w),
    lambda w: (np.real(autograd.grad_and_aux(lambda x: (np.sum(x), w))(X)[1]), w),
], ids=["captured", "seed", "value", "tangent", "rows", "aux"])
def test_writing_into_a_result_changes_nothing_else(make):
    w = onp.array([1.0, 2.0, 3.0])
    y, w = make(w)
    y += 100.0
    assert_array_equal(w, [1.0, 2.0, 3.0])


def test_operators_agree_with_each_other():
    v = onp.array([1.0, -2.0, 0.5])
    assert_allclose(autograd.hessian(f)(X), HESSIAN, rtol=1e-13)
    assert_allclose(autograd.hessian_vector_product(f)(X, v), HESSIAN @ v, rtol=1e-13)
    hvp, gradient = autograd.make_hvp(f)(X)
    assert_allclose(hvp(v), HESSIAN @ v, rtol=1e-13)
    assert_allclose(gradient, GRADIENT, rtol=1e-14)
    assert_allclose(autograd.make_jvp(f)(X)(v)[1], GRADIENT @ v, rtol=1e-13)
    assert_allclose(autograd.make_jvp_reversemode(f)(X)(v), GRADIENT @ v, rtol=1e-13)
    assert_allclose(autograd.elementwise_grad(np.sin)(X), onp.cos(X), rtol=1e-15)
    assert_allclose(autograd.deriv(np.sin)(0.3), onp.cos(0.3), rtol=1e-15)
    J = autograd.jacobian(lambda x: np.outer(x, x))(X)
    assert J.shape == (3, 3, 3)
    assert_allclose(
        autograd.tensor_jacobian_product(lambda x: np.outer(x, x))(X, onp.eye(3)),
        onp.einsum("ij,ijk", onp.eye(3), J), rtol=1e-14)
    assert_allclose(autograd.make_ggnvp(np.sin)(X)(v), onp.cos(X) ** 2 * v, rtol=1e-14)
    assert_allclose(autograd.grad(autograd.checkpoint(f))(X), GRADIENT, rtol=1e-14)


def test_argnum_is_one_position_or_several():
    def g(a, b, c=2.0):
        return a * b**2 * c

    assert autograd.grad(g, 1)(3.0, 4.0) == 48.0
    assert autograd.grad(g, [1, 0])(3.0, 4.0, c=1.0) == (24.0, 16.0)
    assert autograd.grad(g, -1)(3.0, 4.0) == 48.0
    assert autograd.grad_named(g, "b")(3.0, 4.0) == 48.0
    assert autograd.multigrad_dict(g)(3.0, 4.0) == {"a": 32.0, "b": 48.0, "c": 48.0}
    assert autograd.grad(g, 1).__name__ == "grad_of_g_wrt_argnum_1"


def test_containers_are_differentiated_as_they_nest():
    params = {"w": [onp.ones(2), 3.0], "b": (onp.zeros(1),)}

    def loss(p):
        return np.sum(p["w"][0]) ** 2 * p["w"][1] + np.sum(np.exp(p["b"][0]))

    g = autograd.grad(loss)(params)
    assert_array_equal(g["w"][0], [12.0, 12.0])
    assert g["w"][1] == 4.0 and type(g["b"]) is tuple
    check_grads(loss)(params)


def test_complex_gradients_are_those_of_autograd():
    z = 1.0 + 2.0j
    assert autograd.grad(lambda z: np.real(z**2))(z) == 2 * z  # u_a - i u_b
    assert autograd.grad(np.imag)(z) == -1j
    assert autograd.holomorphic_grad(np.exp)(z) == onp.exp(z)
    assert ft.grad(lambda z: np.real(z**2))(z) == onp.conj(2 * z)
    check_grads(lambda z: np.abs(np.sin(z)))(z)


def test_floats_alone_are_differentiated_by():
    assert_array_equal(autograd.grad(lambda x: np.sum(x**1.5))(onp.array([1, 4])), [1.5, 3.0])
    assert autograd.grad(lambda x: np.sum(x**2))(onp.ones(2, onp.float32)).dtype == onp.float32
    for x in (3, "text", True):
        with pytest.raises(TypeError, match=r"Can't differentiate w\.r\.t\. type"):
            autograd.grad(lambda x: x)(x)


@pytest.mark.parametrize("g", [lambda x: x, lambda x: (1j * x)[0], lambda x: (x[0], x[0])])
def test_a_gradient_of_anything_but_one_real_number_is_refused(g):
    with pytest.raises(TypeError, match="Grad only applies to real scalar-output"):
        autograd.grad(g)(X)


def test_an_output_without_the_input_is_told_and_has_no_slope():
    with pytest.warns(UserWarning, match=r"Output seems independent of input\."):
        assert autograd.grad(lambda x: 1.0)(2.0) == 0.0
    with pytest.warns(UserWarning, match="independent"):
        assert autograd.deriv(lambda x: 1.0)(2.0) == 0.0


def test_a_cotangent_that_does_not_fit_is_refused():
    vjp, _ = autograd.make_vjp(lambda x: x)(X)
    with pytest.raises(TypeError, match="complex cotangent of a real output"):
        vjp(1j * X)
    with pytest.raises(ValueError):
        vjp(onp.ones(4))
    with pytest.raises(TypeError, match="complex tangent of a real argument"):
        autograd.make_jvp(np.sin)(X)(1j * X)


def test_derivatives_work_inside_and_around_those_of_functrans():
    g = autograd.grad(f)
    assert_allclose(ft.vmap(g)(onp.stack([X, 2 * X])), [g(X), g(2 * X)], rtol=1e-14)
    assert_allclose(ft.jit(g)(X), GRADIENT, rtol=1e-13)
    assert_allclose(ft.jacobian(g)(X), HESSIAN, rtol=1e-13)
    assert_allclose(autograd.jacobian(ft.grad(f))(X), HESSIAN, rtol=1e-13)


def test_differences_find_a_wrong_derivative():
    wrong = ft.custom_jvp(lambda x: x**2)
    wrong.defjvp(lambda xs, ts: (xs[0] ** 2, 2.001 * xs[0] * ts[0]))
    for mode, name in (("fwd", "mismatch"), ("rev", r"\(VJP\) check")):
        with pytest.raises(AssertionError, match=name):
            check_grads(wrong, modes=[mode], order=1)(3.0)


@pytest.mark.parametrize("x", [onp.zeros(0), onp.float64(2.0), X[::2]], ids=["empty", "0d", "step"])
def test_special_arguments_have_their_gradient(x):
    g = autograd.grad(lambda x: np.sum(x * x))(x)
    assert_array_equal(g, 2 * x)
    assert onp.shape(g) == onp.shape(x)
    assert autograd.jacobian(lambda x: x * x)(x).shape == 2 * onp.shape(x)


def test_names_that_are_not_there_say_what_is():
    for module, name, cure in [
        (autograd.core, "backward_pass", "tracer.trace"),
        (autograd.builtins, "make_sequence", "Python's own lists"),
        (autograd, "nonsense", "docs/howto/autograd.md"),
        (np, "numpy_jvps", "docs/ops.md"),
    ]:
        with pytest.raises(AttributeError, match=re.escape(cure)):
            getattr(module, name)


def test_the_old_way_to_check_is_deprecated():
    from functrans.autograd.util import quick_grad_check

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        quick_grad_check(lambda x, y: x**2 + y, 1.0, (2.0,))
    assert "deprecated" in str(caught[0].message)
