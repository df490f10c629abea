"""Every floating type keeps itself through values, gradients and second derivatives."""

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_allclose

import functrans as ft

X = [0.5, 1.25, 2.0]
# Relative rounding of each type, times the handful of operations below.
TYPES = {
    np.float16: 1e-2,
    ml_dtypes.bfloat16: 8e-2,
    np.float32: 1e-5,
    np.float64: 1e-13,
    np.longdouble: 1e-13,  # compared with float64 figures
    np.complex64: 1e-5,
    np.complex128: 1e-13,
}


def f(x):
    y = x * x * np.exp(-x) + np.sqrt(x)
    return (y * np.conj(y)).real.sum() if x.dtype.kind == "c" else (y * y).sum()


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: np.dtype(t).name)
def test_gradient(dtype):
    g = ft.grad(f)(np.array(X, dtype))
    assert g.dtype == dtype
    expected = ft.grad(f)(np.array(X))
    # the loss of a complex x near the real axis is the real one's: so is the gradient's real part
    assert_allclose(np.real(g.astype(complex)), expected, rtol=TYPES[dtype])


@pytest.mark.parametrize("dtype", [t for t in TYPES if np.dtype(t).kind != "c"])
def test_both_modes_and_second_order(dtype):
    x = np.array(X, dtype)
    value, tangent = ft.jvp(f, (x,), (np.ones(3, dtype),))
    assert value.dtype == tangent.dtype == dtype
    product = ft.hvp(f, x, np.ones(3, dtype))[1]
    assert product.dtype == dtype
    exact = ft.hvp(f, np.array(X), np.ones(3))[1]
    assert_allclose(product.astype(float), exact, rtol=4 * TYPES[dtype], atol=4 * TYPES[dtype])


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: np.dtype(t).name)
def test_compiled(dtype):
    x = np.array(X, dtype)
    g = ft.jit(ft.grad(f))(x)
    assert g.dtype == dtype
    assert_allclose(g.astype(complex), ft.grad(f)(x).astype(complex), rtol=TYPES[dtype])


@pytest.mark.parametrize("dtype", [t for t in TYPES if np.dtype(t).kind != "c"])
def test_a_cast_to_a_narrower_type_passes_the_derivative_on(dtype):
    g = ft.grad(lambda x: np.sum((3 * x).astype(dtype)))(np.array(X))
    assert_allclose(g, [3.0] * 3)
