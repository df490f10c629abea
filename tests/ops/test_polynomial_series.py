"""``functrans.numpy.polynomial``: values are NumPy's, derivatives those of differences."""

import importlib

import numpy as np
import pytest
from numpy.testing import assert_allclose

import functrans as ft
import functrans.numpy as fnp
import functrans.numpy.random as fnp_random
from functrans.errors import ConcretizationError, UnsupportedError
from functrans.numpy.lib.stride_tricks import sliding_window_view
from functrans.numpy.polynomial import Polynomial
from functrans.testing import check_grads

pytestmark = pytest.mark.usefixtures("unoptimised")

BASES = {
    "polynomial": "poly", "chebyshev": "cheb", "legendre": "leg", "hermite": "herm",
    "hermite_e": "herme", "laguerre": "lag",
}
of_each = pytest.mark.parametrize(("module", "prefix"), BASES.items(), ids=BASES)
C, D = np.array([0.5, -1.25, 2.0, 0.75]), np.array([1.5, 0.25, -0.5])
X = np.array([[0.1, -0.7, 0.4], [0.9, -0.2, 0.3]])
T = np.linspace(-1, 1, 7)
CALLS = {
    "values": ("val", lambda f, c: f(X, c)),
    "values of a constant": ("val", lambda f, c: f(X, c[:1])),
    "values of two": ("val", lambda f, c: f(X, c[:2])),
    "values of three": ("val", lambda f, c: f(X, c[:3])),
    "several series": ("val", lambda f, c: f(X, c[:, None] * D)),
    "several series, each at its own": ("val", lambda f, c: f(D, c[:, None] * D, tensor=False)),
    "values at a point that moves": ("val", lambda f, c: f(c[0], c)),
    "the basis": ("vander", lambda f, c: f(c, 3)),
    "the basis of degree 0": ("vander", lambda f, c: f(c, 0)),
    "the derivative": ("der", lambda f, c: f(c)),
    "the third derivative, scaled": ("der", lambda f, c: f(c, 3, 0.5)),
    "the fourth derivative": ("der", lambda f, c: f(c, 4)),
    "derivatives along an axis": ("der", lambda f, c: f(D[:, None] * c, 2, axis=1)),
    "the integral": ("int", lambda f, c: f(c)),
    "the integral twice": ("int", lambda f, c: f(c, 2, [0.5, 2.0], lbnd=-1, scl=2)),
    "integrals along an axis": ("int", lambda f, c: f(D[:, None] * c, 1, [0.5], axis=1)),
    "the sum": ("add", lambda f, c: f(c, D)),
    "the difference": ("sub", lambda f, c: f(D, c)),
    "the product": ("mul", lambda f, c: f(c, D)),
    "the square": ("mul", lambda f, c: f(c, c)),
    "times the variable": ("mulx", lambda f, c: f(c)),
    "a fit": ("fit", lambda f, c: f(T, np.exp(T * c[0]) + c[1], 3)),
    "a weighted fit of several": (
        "fit", lambda f, c: f(T, np.sin(T[:, None] * c), 2, w=1 + T**2)
    ),
}


@of_each
@pytest.mark.parametrize(("name", "call"), CALLS.values(), ids=CALLS)
def test_it_is_numpys_and_has_its_derivatives(module, prefix, name, call):
    theirs = getattr(getattr(np.polynomial, module), prefix + name)
    ours = getattr(getattr(fnp.polynomial, module), prefix + name)
    want = call(theirs, C)
    y = ft.jvp(lambda c: call(ours, c), (C,), (C,))[0]
    assert y.shape == want.shape
    assert_allclose(y, want, rtol=1e-12, atol=1e-12)  # in another order of operations
    assert_allclose(ft.jit(lambda c: call(ours, c))(C), want, rtol=1e-12, atol=1e-12)  # likewise
    assert_allclose(call(ours, C), want, rtol=0)
    check_grads(lambda c: call(ours, c), (C,), order=2)
    many = np.stack([C, 2 * C])
    found = ft.vmap(lambda c: call(ours, c))(many)[1]
    assert_allclose(found, call(theirs, 2 * C), rtol=1e-11, atol=1e-11)  # likewise


@of_each
def test_the_derivative_in_the_coefficients_is_the_basis(module, prefix):
    ours = getattr(fnp.polynomial, module)
    value, vander = (getattr(ours, prefix + name) for name in ("val", "vander"))
    found = ft.jacobian(lambda c: value(T, c))(C)
    assert_allclose(found, vander(T, 3), rtol=1e-13, atol=1e-13)


@of_each
def test_float32_and_complex_keep_their_type(module, prefix):
    ours = getattr(getattr(fnp.polynomial, module), prefix + "val")
    theirs = getattr(getattr(np.polynomial, module), prefix + "val")
    for dtype in (np.float32, np.complex128):
        c, x = C.astype(dtype), T.astype(np.float32)
        y = ft.jvp(lambda c, x=x: ours(x, c), (c,), (c,))[0]
        assert y.dtype == theirs(x, c).dtype
        assert ft.vjp(lambda c, x=x: ours(x, c), c)[1](np.ones_like(y))[0].dtype == dtype


def test_what_it_does_not_do():
    with pytest.raises(UnsupportedError, match=r"polynomial.polyfit got full="):
        ft.grad(lambda y: fnp.polynomial.polynomial.polyfit(T, y, 2, full=True)[0].sum())(T)
    with pytest.raises(ConcretizationError):
        ft.grad(lambda c: fnp.polynomial.chebyshev.chebroots(c).sum())(C)
    assert fnp.polynomial.legendre.leggauss(3)[0].shape == (3,)


SERIES = {kind: getattr(np.polynomial, kind) for kind in (
    "Polynomial", "Chebyshev", "Legendre", "Hermite", "HermiteE", "Laguerre",
)}


def combined(kind, p):
    q = kind([1.0, p, p * p])
    r = q * q - 2 * q + p * q + q / p
    s = kind([p, 2.0, p], domain=[0.0, 3.0])
    return (r(0.3) + q.deriv()(p) + q.integ(1, k=[p])(2.0) + s(p) + s.deriv()(0.5) + (-q)(1.0)
            + (q**3)(0.5) + s.integ(lbnd=0.5)(1.0) + r.degree() + q.coef[1] + len(r))


@pytest.mark.parametrize("name", SERIES)
def test_classes_take_traced_coefficients(name):
    ours, theirs = getattr(fnp.polynomial, name), SERIES[name]
    assert issubclass(ours, theirs)
    assert_allclose(combined(ours, 1.5), combined(theirs, 1.5), rtol=1e-15)
    check_grads(lambda p: combined(ours, p[0]), (np.array([1.5]),), order=2)
    batch = ft.vmap(lambda p: combined(ours, p))(np.array([1.5, 0.7]))
    assert_allclose(batch, [combined(theirs, 1.5), combined(theirs, 0.7)], rtol=1e-14)
    assert_allclose(ft.jit(ft.grad(lambda p: combined(ours, p)))(1.5),
                    ft.grad(lambda p: combined(ours, p))(1.5), rtol=1e-13)


def test_roots_and_fits_of_classes():
    def least(p):
        return fnp.polynomial.Polynomial([p, -3.0, 1.0]).roots()[0]

    assert_allclose(ft.grad(least)(1.5), 1 / np.sqrt(9 - 4 * 1.5), rtol=1e-14)
    fit = ft.grad(lambda p: fnp.polynomial.Polynomial.fit(T, p * T**2, 2)(0.5))
    assert_allclose(fit(2.0), 0.25, rtol=1e-13)
    with pytest.raises(ConcretizationError):
        ft.grad(lambda p: fnp.polynomial.Chebyshev([p, -3.0, 1.0]).roots()[0])(1.5)


def test_names_are_imported_as_numpys_are():
    chebyshev = importlib.import_module("functrans.numpy.polynomial.chebyshev")
    assert chebyshev.chebval(0.5, C) == np.polynomial.chebyshev.chebval(0.5, C)
    assert chebyshev.Chebyshev is fnp.polynomial.Chebyshev
    assert Polynomial is fnp.polynomial.polynomial.Polynomial
    assert fnp_random is fnp.random
    assert sliding_window_view is fnp.lib.stride_tricks.sliding_window_view
