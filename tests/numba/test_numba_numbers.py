"""Complex numbers in kernels, and lists that they store into: derivatives are those of the Python
that they are compiled from.
"""

import cmath
import math

import numpy as np
import pytest

import functrans as ft
from functrans.errors import ArgumentError
from functrans.scipy import special

numba = pytest.importorskip("numba")  # an extra: its releases follow NumPy's after a while
njit = numba.njit

from functrans.numba import differentiable  # noqa: E402  # after the test for numba

X = np.array([1.3, 0.7, 2.1])


def arithmetic(x):
    z, w = x[0] - 1j * x[1], x[2] + 0j
    y = z / w + (1 + 2j) / z - z * w + 2.0 * z
    y += z**3 + z ** x[2]
    return y.real + np.abs(z) ** 2 + (z != w) + z.conjugate().imag


def functions(x):
    z = x[0] + 1j * x[1]
    y = np.exp(z) + np.log(z) + np.sqrt(-z) + np.tan(z) + np.tanh(z)
    return y.imag + np.angle(z)


def spectrum(x):
    """A sum that a loop adds to, and a branch on its size."""
    total = 0.0
    for k in range(3):
        a = 0j
        for j in range(3):
            a += x[j] * np.exp(-2j * np.pi * k * j / 3)
            if np.abs(a) > 3.0:
                a *= 0.5
        total += (k + 1) * (a.real**2 + a.imag**2)
    return total


def arrays(x):
    z = np.zeros(3, dtype=np.complex128)
    for i in range(3):
        z[i] = x[i] + 1j * x[0]
    y = z * x + 2j
    return np.abs(y).sum() * y.imag[1] + np.sum(np.conj(z)).imag


def lists(x):
    a, b = [0.0] * 3, [[0.0, 1.0], [2.0, 3.0]]
    for i in range(3):
        a[i] = x[i] * (i + 1)
    b[0][1] = a[0] * a[1]
    b[1][0] *= x[1]
    c = [0.0 for _ in range(2)]
    c[-1] += b[0][1] * b[1][0]
    whole = [1, 2, 3]
    whole[0] = 2
    return a[0] * a[1] + a[2] ** 2 + c[1] + b[1][1] * x[whole[0]]


def in_place_of_numpy(f):
    """The function with its arrays those of functrans, so that it can be traced."""
    return type(f)(f.__code__, f.__globals__ | {"np": ft.numpy}, f.__name__)


@pytest.mark.parametrize(("f", "mode"), [
    (arithmetic, "forward"), (arithmetic, "reverse"), (functions, "reverse"),
    (spectrum, "forward"), (arrays, "reverse"), (lists, "forward"), (lists, "reverse"),
])
def test_a_kernel_has_the_derivatives_of_its_python(f, mode):
    kernel = differentiable(njit(f), mode=mode)
    value, slopes = ft.value_and_grad(kernel)(X)
    expected = ft.value_and_grad(python := in_place_of_numpy(f))(X)
    np.testing.assert_allclose(value, expected[0], rtol=1e-14)
    np.testing.assert_allclose(slopes, expected[1], rtol=1e-12)
    if f is spectrum:
        tangent = np.array([0.3, -0.2, 0.5])
        turned = ft.hvp(kernel, X, tangent)[1]
        np.testing.assert_allclose(turned, ft.hvp(python, X, tangent)[1], rtol=1e-11)


def test_complex_functions_at_axes_zero_and_far_out():
    @njit
    def f(x, y):
        z = x + 1j * y
        root = np.sqrt(z)
        return root.real, root.imag, (z**1.0).real, np.tan(z).imag, np.tanh(z).real

    def of(x, y):
        z = x + 1j * y
        root = np.sqrt(z)
        return [np.real(root), np.imag(root), x, np.imag(np.tan(z)), np.real(np.tanh(z))]

    kernel = differentiable(f, mode="forward")
    for point in [(4.0, 0.0), (-4.0, 0.0), (-4.0, -0.0), (0.0, 2.0), (-0.0, -2.0), (0.3, 900.0)]:
        found = ft.jacobian(lambda x, y: np.stack(kernel(x, y)), argnums=(0, 1))(*point)
        expected = ft.jacobian(lambda x, y: np.stack(of(x, y)), argnums=(0, 1))(*point)
        np.testing.assert_allclose(np.array(found), np.array(expected), rtol=1e-12, atol=1e-15)
    at_zero = ft.jacobian(lambda x: np.stack(kernel(x, 0.0)))(0.0)
    np.testing.assert_array_equal(at_zero, [np.inf, 0, 1, 0, 1])


def test_cmath_and_complex_zero():
    @njit
    def f(x):
        return cmath.phase(cmath.exp(1j * x)) + cmath.sqrt(x * 0j).real

    assert ft.grad(f)(0.3) == pytest.approx(1, rel=1e-13)


def rotated(z, a):
    """Complex arguments and results, an array and numbers."""
    w = np.zeros(len(z), np.complex128)
    for k in range(len(z)):
        w[k] = z[k] * np.exp(1j * a * k) + z[0] ** 2
    return w, a * z[1] / z[0], a**2


def of_rotated(f):
    def loss(re, im, a):
        w, q, s = f(re + 1j * im, a)
        return ft.numpy.sum(ft.numpy.abs(w - 1j) ** 2) + ft.numpy.imag(q) * s

    return loss


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_complex_arguments_and_results_have_the_derivatives_of_the_python(mode):
    kernel = of_rotated(differentiable(njit(rotated), mode=mode))
    python = of_rotated(ft.patch()(in_place_of_numpy(rotated)))
    for of in (ft.grad, ft.hessian) if mode == "reverse" else (ft.grad,):
        found, expected = [ft.tree.leaves(of(f, argnums=(0, 1, 2))(X, X[::-1], 0.4))
                           for f in (kernel, python)]
        for y, z in zip(found, expected, strict=True):
            np.testing.assert_allclose(y, z, rtol=1e-11, atol=1e-13)


def test_complex_tangents_cotangents_and_batches_pass_kernels():
    @njit
    def f(z):
        return z * z * (1 + 2j)

    def python(z):
        return z * z * (1 + 2j)

    z, t = 0.3 - 0.7j, 1 + 2j
    np.testing.assert_allclose(ft.jvp(f, (z,), (t,)), ft.jvp(python, (z,), (t,)), rtol=1e-15)
    np.testing.assert_allclose(ft.vjp(f, z)[1](t), ft.vjp(python, z)[1](t), rtol=1e-15)
    assert ft.jit(lambda z: f(z))(z) == f(z) == ft.vmap(f)(np.array([z]))[0]


def test_an_infinite_part_of_a_complex_result_leaves_the_other_one():
    @njit
    def f(x):
        w = np.zeros(2, np.complex128)
        w[0] = complex(-0.0, x * np.inf)
        w[1] = complex(x, -0.0)
        return complex(x, -np.inf), w

    number, array = ft.jvp(f, (2.0,), (1.0,))[0]
    assert number == complex(2, -np.inf)
    parts = np.stack([array.real, array.imag])
    np.testing.assert_array_equal(parts, [[0, 2], [np.inf, 0]])
    np.testing.assert_array_equal(np.signbit(parts), [[True, False], [False, True]])


def test_complex_arrays_are_not_returned_by_outs():
    @njit
    def f(z, out):
        out[0] = z[0]

    with pytest.raises(ArgumentError, match="with complex arguments or results, the arguments"):
        ft.jvp(lambda z: differentiable(f, outs="out")(z, np.zeros(1)), (X + 0j,), (X + 0j,))


@njit
def tails(x):
    y = np.tanh(x[0]) + np.arctan(x[1]) + np.arcsin(x[2]) + np.arctanh(x[3]) + np.exp2(x[4])
    return y + cmath.tanh(complex(x[5], 0.3)).real + cmath.tan(complex(0.3, x[6])).imag


def test_slopes_in_kernels_have_all_their_digits_far_out():
    x = np.array([20.0, 1e100, 1e-200, 1e-200, 3.0, 12.0, 15.0])

    def plain(x):
        y = np.tanh(x[0]) + np.arctan(x[1]) + np.arcsin(x[2]) + np.arctanh(x[3]) + np.exp2(x[4])
        return y + np.tanh(x[5] + 0.3j).real + np.tan(0.3 + 1j * x[6]).imag

    np.testing.assert_allclose(ft.grad(tails)(x), ft.grad(plain)(x), rtol=1e-14)
    second = [np.diag(ft.hessian(f)(x)) for f in (tails, plain)]
    np.testing.assert_allclose(*second, rtol=1e-14)


@njit
def lengths_and_shares(x):
    y = np.hypot(x[0], x[1]) + math.hypot(x[2], x[3]) + np.logaddexp(x[4], x[5])
    return y + math.erf(x[6]) + math.erfc(x[7])


def test_slopes_in_kernels_keep_digits_where_terms_cancel_or_exponents_are_large():
    x = np.array([1e6, 1.0, 3.0, -1e9, 1000.3, 1000.1, -9.3, 26.1])

    def plain(x):
        y = np.hypot(x[0], x[1]) + np.hypot(x[2], x[3]) + np.logaddexp(x[4], x[5])
        return y + special.erf(x[6]) + special.erfc(x[7])

    np.testing.assert_allclose(ft.grad(lengths_and_shares)(x), ft.grad(plain)(x), rtol=4e-15)
    second = [ft.hessian(f)(x) for f in (lengths_and_shares, plain)]
    np.testing.assert_allclose(*second, rtol=4e-15)
    assert ft.grad(lengths_and_shares)(np.zeros(8))[:6].tolist() == [0, 0, 0, 0, 0.5, 0.5]


def test_an_overflow_in_a_kernel_leaves_no_finite_slope():
    @njit
    def grown(x, way):
        s = x[0] * x[0]
        return np.sqrt(s) if way == 0 else np.log(s) if way == 1 else np.hypot(x[0], x[1])

    slope = ft.grad(grown)
    for way in range(3):
        assert np.isnan(slope(np.array([1.7e308, 1.6e308]), way)).any()
    np.testing.assert_allclose(slope(np.array([3.0, 4.0]), 2), [0.6, 0.8], rtol=1e-15)
