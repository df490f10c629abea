"""Kernels of numba beside what is around them: names that change, blocks of ``patch``, zeros."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import functrans as ft
from functrans.errors import UnsupportedError

numba = pytest.importorskip("numba")  # an extra: its releases follow NumPy's after a while
njit = numba.njit

NAN = np.nan
scale = 2.0


def _fresh(f):
    """A kernel of a function whose global ``scale`` is its own."""
    names = {"scale": 2.0, "np": np}
    return njit(type(f)(f.__code__, names, f.__name__)), names


def _scaled(x):
    return np.sum(scale * x)


@pytest.mark.parametrize(("first", "of"), [
    ("the kernel", "a number"), ("the derivative", "a number"),
    ("the derivative alone", "a number"), ("the kernel", "an array"),
    ("the derivative", "an array"),
])
def test_a_kernel_and_its_derivative_read_the_same_globals(first, of):
    f, names = _fresh(_scaled)
    x = np.ones(1)
    if of == "an array":
        names["scale"] = np.array([2.0])
    if first == "the kernel":
        f(x)
    else:
        assert ft.grad(f)(x) == [2.0]
    if of == "an array":
        names["scale"][0] = 5.0  # numba has compiled what was in it
    else:
        names["scale"] = 5.0
    expected = 2.0 if first != "the derivative" else 5.0
    if first != "the derivative alone":
        assert f(x) == expected  # numba reads a global when it compiles
    value, slope = ft.value_and_grad(f)(x)
    assert value == slope[0] == ft.jit(ft.grad(f))(x)[0] == expected


def test_kernels_that_a_kernel_calls_keep_their_globals():
    inner, names = _fresh(_scaled)

    @njit
    def outer(x):
        return inner(x) + 0.0

    x = np.ones(1)
    assert outer(x) == 2.0
    names["scale"] = 3.0
    assert ft.value_and_grad(outer)(x) == (2.0, [2.0])


def test_a_kernel_is_compiled_in_a_block_of_patch():
    @njit
    def f(x):
        return np.sum(np.sin(x) * np.ones(3)) + np.linalg.norm(x)

    @njit
    def untraced(x):
        return np.sum(np.zeros_like(x) + x)

    x = np.ones(3)
    with ft.patch():
        assert untraced(x) == 3.0
        inside = ft.grad(lambda x: np.sum(np.array([f(x), x[0]])))(x)
        mine = np.sum
    assert mine is not np.sum  # what was swapped is again after the compilation
    assert inside == pytest.approx(ft.grad(lambda x: f.py_func(x) + x[0])(x))
    assert ft.grad(f)(x) == pytest.approx(ft.grad(f.py_func)(x))


@pytest.mark.parametrize("what", ["numba", "functrans.numba"])
def test_what_is_imported_in_a_block_of_patch_works_after_it(what):
    text = f"""
        import numpy as np, functrans as ft
        with ft.patch():
            import {what}
        import numba
        f = numba.njit(lambda x: np.sum(np.sin(x) * np.ones(2)))
        with ft.patch():
            inside = ft.grad(f)(np.zeros(2))
        assert list(inside) == list(ft.grad(f)(np.zeros(2))) == [1, 1]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(text)], check=True)


@njit
def power(x, n):
    return x**n


@njit
def cube(x):
    return x**3


@njit
def one(x):
    return x**0


@njit
def horner(x, c):
    s = 0.0
    for k in range(len(c)):
        s += c[k] * x**k
    return s


def _orders(f, x):
    g = f
    found = [f(x)]
    for derive in (ft.grad, ft.grad, ft.derivative):
        g = derive(g)
        found.append(g(x))
    return [float(v) for v in found]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the Python's own
@pytest.mark.parametrize("x", [0.0, 2.0, -1.5, np.inf, NAN])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 0.0, 1.0, 3.0, np.uint8(2), np.int32(0)], ids=repr)
def test_derivatives_of_a_power_are_those_of_the_python(x, n):
    expected = _orders(lambda x: power.py_func(x, n), x)
    np.testing.assert_allclose(_orders(lambda x: power(x, n), x), expected, rtol=1e-13)


@pytest.mark.parametrize("f", [one, cube], ids=["0", "3"])
@pytest.mark.parametrize("x", [0.0, 2.0])
def test_derivatives_of_a_power_in_the_kernel_are_those_of_the_python(f, x):
    np.testing.assert_allclose(_orders(f, x), _orders(f.py_func, x), rtol=1e-13)


def test_a_polynomial_has_derivatives_at_zero_in_each_mode():
    c = np.array([1.0, 2.0, 3.0])
    assert ft.grad(horner)(0.0, c) == 2.0
    assert ft.hessian(horner)(0.0, c) == 6.0
    assert ft.jvp(lambda x: horner(x, c), (0.0,), (1.0,))[1] == 2.0
    long = np.arange(20.0)  # in reverse
    assert list(ft.grad(horner, 1)(0.0, long)) == [1.0] + [0.0] * 19
    assert ft.grad(lambda x: horner(x[0], x[1:]))(np.r_[0.0, long])[0] == 1.0


@njit
def extremes(a, b):
    return np.fmax(a, b), np.fmin(a, b), np.maximum(a, b), np.minimum(a, b)


@njit
def extremes_of_arrays(a, b):
    x, y = a * np.ones(2), b * np.ones(2)
    return np.fmax(x, y)[1], np.fmin(x, y)[1], np.maximum(x, y)[1], np.minimum(x, y)[1]


@pytest.mark.parametrize("kernel", [extremes, extremes_of_arrays], ids=["numbers", "arrays"])
@pytest.mark.parametrize("a", [1.0, 2.0, NAN, np.inf])
@pytest.mark.parametrize("b", [1.0, NAN, -np.inf])
def test_extremes_of_nan_have_the_slopes_of_the_python(kernel, a, b):
    expected = ft.jacobian(lambda a, b: np.stack(kernel.py_func(a, b)), (0, 1))(a, b)
    for derive in (ft.jacfwd, ft.jacrev):
        found = derive(lambda a, b: np.stack(kernel(a, b)), (0, 1))(a, b)
        np.testing.assert_array_equal(found, expected)


@njit
def in_a_loop(x, p):
    y = x.copy()
    for i in range(len(p)):
        y = np.cos(y + p[i])
    return np.sum(y)


@njit
def in_a_branch(x, p):
    y = x[1:]
    if p[0] > 0:
        y = y * p[0]
    return y[0]


@njit
def exchanged(x, p):
    a, b = x, np.arange(3) * 0.5
    for i in range(2):
        a, b = b, a * p[i]
    return a[0] + b[1]


@njit
def of_complex_numbers(x, p):
    y = x + 0j
    for i in range(2):
        y = y * p[i] + 1j
    return y[0].real + y[1].imag


@njit
def stored_into(x, p):
    y = x.copy()
    for i in range(2):
        y = y * p[i]
        y[0] = y[1] + 1.0
    return np.sum(y)


@njit
def held_twice(x, p):
    z = x.copy()
    y = z
    s = 0.0
    for i in range(2):
        z[0] = 7.0 + i
        s += y[0]
        y = y * p[i]
    return s + y[0]


@njit
def one_of_two(x, p):
    if p[0] > 5:
        return x
    return x * p[0]


@njit
def of_one_of_two(x, p):
    return np.sum(one_of_two(x, p) * x)


@pytest.mark.parametrize("kernel", [
    in_a_loop, in_a_branch, exchanged, of_complex_numbers, stored_into, held_twice, of_one_of_two,
], ids=lambda k: k.__name__)
def test_a_name_may_hold_a_plain_array_and_then_one_with_derivatives(kernel):
    x, p = np.array([0.3, 0.5, 0.7]), np.r_[0.2, 0.4]

    def of_complex(p):
        e = np.array([1e-20j, 0.0])
        return [np.imag(kernel.py_func(x + 0j, p + v)) / 1e-20 for v in (e, e[::-1])]

    if kernel in (of_complex_numbers, of_one_of_two):  # the complex step does not go through
        expected = [(kernel(x, p + v) - kernel(x, p - v)) / 2e-5 for v in 1e-5 * np.eye(2)]
        np.testing.assert_allclose(ft.grad(kernel, 1)(x, p), expected, rtol=1e-8)  # differences
    else:
        np.testing.assert_allclose(ft.grad(kernel, 1)(x, p), of_complex(p), rtol=1e-12)
    long = np.r_[p, np.zeros(10)]  # in reverse
    if kernel is not in_a_loop:
        expected = ft.grad(kernel, 1)(x, p)
        np.testing.assert_allclose(ft.grad(kernel, 1)(x, long)[:2], expected, rtol=1e-12)


def test_a_pullback_that_lives_as_long_as_the_process_ends_in_silence():
    text = """
        import builtins, numba, numpy as np, functrans as ft
        f = numba.njit(lambda x: (x * x).sum())
        builtins.kept = ft.vjp(f, np.ones(50))[1]
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], check=True,
                          capture_output=True, text=True)
    assert done.stderr == ""


@numba.vectorize
def made_entrywise(a, b):
    return a * a * b


@numba.guvectorize(["void(float64[:], float64[:])"], "(n)->()")
def made_of_rows(a, out):
    out[0] = a.sum()


@pytest.mark.parametrize(("f", "match"), [
    (lambda a: np.sum(made_entrywise(a, 2.0)), "`made_entrywise`, a ufunc that numba.vectorize"),
    (lambda a: np.sum(made_of_rows(a)), "`made_of_rows`, a ufunc that numba.guvectorize"),
    (njit(lambda a: np.sum(made_entrywise(a, 2.0))), "`made_entrywise`, a ufunc that numba made"),
], ids=["vectorize", "guvectorize", "in a kernel"])
def test_ufuncs_that_numba_made_are_named(f, match):
    with pytest.raises(UnsupportedError, match=rf"test_numba_borders.py:\d+: {match}"):
        ft.grad(f)(np.ones(2))
