"""``functrans.debug.detect_anomaly``: NaN in derivatives of functions."""

import inspect
import pickle

import numpy as np
import pytest

import functrans as ft
from functrans._core.bind import watching
from functrans.debug import detect_anomaly
from functrans.errors import AnomalyError


def quotient(x):
    y = np.sin(x)
    return np.sum(y / x)  # the line that is named


LINE = inspect.getsourcelines(quotient)[1] + 2
X = np.array([1.0, 0.0, 2.0])


def found(transform, *args, f=quotient):
    with pytest.raises(AnomalyError) as e, np.errstate(all="ignore"), detect_anomaly():
        transform(f)(*args)
    return str(e.value)


@pytest.mark.parametrize("transform", [
    ft.grad, ft.value_and_grad, lambda f: lambda x: ft.vjp(f, x)[1](1.0),
    ft.jacrev, lambda f: ft.grad(lambda x: ft.grad(f)(x).sum()),
], ids=["grad", "value and grad", "vjp", "jacrev", "grad of grad"])
def test_a_nan_of_the_backward_names_op_line_operand_and_entry(transform):
    message = found(transform, X)
    assert "derivative of `divide` is NaN, in the cotangent of operand 1, entry [1]" in message
    assert f"It ran at {__file__}:{LINE}" in message
    assert "operand 1 is 0" in message and "the cotangent that arrived 1" in message
    assert f"a value first became NaN in `divide` at {__file__}:{LINE}" in message
    assert "return np.sum(y / x)" in message  # the forward traceback


@pytest.mark.parametrize("transform", [
    lambda f: lambda x: ft.jvp(f, x, np.ones(3)), ft.jacfwd, ft.hessian,
], ids=["jvp", "jacfwd", "hessian"])
def test_a_nan_of_the_forward_mode_is_found(transform):
    message = found(transform, X)
    assert "`divide` is NaN, in the tangent of its result" in message
    assert f"It ran at {__file__}:{LINE}" in message


@pytest.mark.parametrize("transform", [
    lambda f: ft.jit(ft.grad(f)), lambda f: ft.grad(ft.jit(f)),
    lambda f: ft.jit(ft.grad(ft.jit(f))), lambda f: lambda x: ft.vjp(ft.jit(f), x)[1](1.0),
    lambda f: lambda x: ft.vmap(ft.jit(ft.grad(f)))(x[None]),
    lambda f: lambda x: ft.jvp(ft.jit(f), x, np.ones(3)), lambda f: ft.jit(ft.hessian(f)),
], ids=["jit grad", "grad jit", "jit grad jit", "vjp jit", "vmap jit grad", "jvp jit", "hessian"])
@pytest.mark.parametrize("compiled", [False, True], ids=["new", "compiled before"])
def test_a_nan_inside_a_jitted_function_names_its_line(transform, compiled):
    jitted = transform(quotient)
    if compiled:
        jitted(np.ones(3))
    message = found(lambda f: jitted, X)
    assert "`divide` is NaN" in message
    assert f"It ran at {__file__}:{LINE}" in message


def test_a_nan_in_the_body_of_a_compiled_loop_names_its_line():
    def step(carry, x):
        return carry + np.sin(x) / x, None

    jitted = ft.jit(ft.grad(lambda x: ft.scan(step, 0.0, x)[0]))
    message = found(lambda f: jitted, X)
    assert f"It ran at {__file__}:{inspect.getsourcelines(step)[1] + 1}" in message


def test_compiled_functions_run_compiled_again_afterwards():
    runs = []
    f = ft.jit(lambda x: runs.append(1) or x)
    for _ in range(2):
        f(1.0)
        with detect_anomaly():
            f(1.0)
    assert len(runs) == 3


def test_a_nan_that_values_brought_along_is_traced_to_where_they_became_it():
    def f(x):
        y = np.log(x)
        return np.sum(y * np.sqrt(y))

    message = found(ft.grad, np.array([-1.0, 2.0]), f=f)
    assert "a value first became NaN in `log`" in message


def test_what_is_finite_passes_with_the_same_result():
    x = np.array([1.0, 3.0])
    with detect_anomaly():
        g, h = ft.grad(quotient)(x), ft.hessian(quotient)(x)
        large = ft.grad(lambda x: np.sum(np.sin(x) * x))(np.ones(300_000))
    np.testing.assert_array_equal(g, ft.grad(quotient)(x))
    np.testing.assert_allclose(h, ft.hessian(quotient)(x), rtol=1e-13)
    np.testing.assert_array_equal(large, np.full(300_000, np.sin(1.0) + np.cos(1.0)))


def test_infinities_and_strong_zeros_are_no_anomaly():
    with detect_anomaly():
        assert ft.grad(np.sqrt)(0.0) == np.inf
        assert ft.grad(lambda x: np.where(x > 0, np.sqrt(x), 0.0))(0.0) == 0


def test_outside_and_without_check_nan_nothing_raises():
    with np.errstate(all="ignore"):
        with detect_anomaly(check_nan=False):
            assert np.isnan(ft.grad(quotient)(X)[1])
        assert np.isnan(ft.grad(quotient)(X)[1])
    assert watching.get() is None


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_other_types_are_looked_at_too(dtype):
    def f(x):
        return np.sum(np.real(np.sin(x) / x))

    assert "`divide` is NaN" in found(ft.grad, X.astype(dtype), f=f)


# ---- anomaly mode in what takes other ways through a tape, or none


POINT, ALONG = np.array([1.0, 0.0, 2.0]), np.ones(3)


def share(x):
    return np.sin(x) / x


def of_shares(x):
    return np.sum(share(x))


WAYS = {
    "jet": lambda: ft.jet(share, (POINT,), ((ALONG, ALONG),)),
    "jit of jet": lambda: ft.jit(lambda x: ft.jet(share, (x,), ((ALONG,),)))(POINT),
    "linearize": lambda: ft.linearize(share, POINT)[1](ALONG),
    "vmap of linearize": lambda: ft.vmap(ft.linearize(share, POINT)[1])(np.eye(3)),
    "linear_operator": lambda: ft.linear_operator(share, POINT) @ ALONG,
    "its matrix products": lambda: ft.linear_operator(share, POINT) @ np.ones((3, 2)),
    "gauss_newton": lambda: ft.linear_operator(share, POINT, "gauss_newton") @ ALONG,
    "ggnvp": lambda: ft.ggnvp(np.sum, share, POINT, ALONG),
    "jacobian": lambda: ft.jacobian(share)(POINT),
    "jacobian in chunks": lambda: ft.jacobian(share, chunk_size=1)(POINT),
    "sparse_jacobian": lambda: ft.sparse_jacobian(share)(POINT),
    "prepared": lambda: ft.sparse_jacobian(share).prepare(ALONG)(POINT),
    "sparse_hessian": lambda: ft.sparse_hessian(of_shares)(POINT),
    "argnums": lambda: ft.sparse_jacobian(lambda p, x: p["a"] * share(x), argnums=1)(
        {"a": 2.0}, POINT),
}


@pytest.mark.parametrize("name", WAYS)
def test_every_way_to_a_derivative_says_where_it_becomes_nan(name):
    with np.errstate(all="ignore"), ft.debug.detect_anomaly():
        with pytest.raises(AnomalyError, match=r"`divide` is NaN, in the .*operand 0 is 0, operand "
                           r"1 is 0,.* first became NaN in `divide` at .*test_debug.py") as error:
            WAYS[name]()
        assert f"{__file__}:{share.__code__.co_firstlineno + 1}" in str(error.value)


def test_a_sparse_derivative_that_travelled_says_that_it_has_a_nan():
    prepared = pickle.loads(pickle.dumps(ft.sparse_jacobian(share).prepare(ALONG)))
    with np.errstate(all="ignore"), ft.debug.detect_anomaly():
        with pytest.raises(AnomalyError, match="the derivative of `share` has a NaN here"):
            prepared(POINT)
        prepared(ALONG)


def test_ways_without_a_nan_raise_nothing():
    with ft.debug.detect_anomaly():
        for g in (lambda x: ft.jet(share, (x,), ((x, x),)), ft.sparse_jacobian(share),
                  lambda x: ft.linearize(share, x)[1](x), ft.jacobian(share)):
            g(ALONG)
