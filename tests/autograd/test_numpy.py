"""autograd.numpy and autograd.scipy: names, forms of results, and derivatives of autograd's."""

import numpy as onp
import pytest
import scipy.stats
from numpy.testing import assert_allclose, assert_array_equal

import functrans.autograd as autograd
import functrans.autograd.numpy as np
import functrans.autograd.scipy.linalg as spla
import functrans.autograd.scipy.signal as signal
import functrans.autograd.scipy.special as special
import functrans.autograd.scipy.stats.multivariate_normal as mvn
import functrans.autograd.scipy.stats.norm as norm
from functrans.autograd.builtins import DictBox, SequenceBox
from functrans.autograd.builtins import isinstance as of_traced
from functrans.autograd.builtins import type as type_of
from functrans.autograd.core import vspace
from functrans.autograd.numpy.numpy_boxes import ArrayBox
from functrans.autograd.scipy import integrate, misc
from functrans.autograd.test_util import check_grads

X = onp.array([0.3, -1.2, 0.7])
A = onp.array([[4.0, 1.0, 0.5], [1.0, 5.0, 0.2], [0.5, 0.2, 3.0]])


def test_every_name_of_numpy_is_there():
    missing = [n for n in onp.__all__ if n[0] != "_" and not hasattr(np, n)]
    missing += [f"linalg.{n}" for n in onp.linalg.__all__ if not hasattr(np.linalg, n)]
    missing += [f"fft.{n}" for n in onp.fft.__all__ if not hasattr(np.fft, n)]
    missing += [f"random.{n}" for n in onp.random.__all__ if not hasattr(np.random, n)]
    assert not missing


@pytest.mark.parametrize("make", [
    lambda: np.zeros(2), lambda: np.array([1.0, 2.0]), lambda: np.sum(onp.ones((2, 2)), 0),
    lambda: np.r_[1.0, 2.0], lambda: np.linalg.inv(onp.eye(2)), lambda: np.fft.fft(onp.ones(2)),
    lambda: np.concatenate([[1.0], [2.0]]), lambda: np.random.rand(2), lambda: np.linspace(0, 1, 3),
])
def test_results_of_plain_arrays_are_numpys(make):
    assert type(make()) is onp.ndarray and make().flags.writeable


def test_lists_values_and_generators_of_traced_arrays_are_joined():
    for join in (np.concatenate, np.stack, np.vstack, np.hstack, np.dstack, np.column_stack,
                 np.array):
        check_grads(lambda x, join=join: join([x, 2 * x, X]), order=1)(X)
    g = autograd.grad(lambda d: np.sum(np.stack(d.values()) ** 2))({"a": X, "b": 2 * X})
    assert_allclose(g["b"], 4 * X)
    assert_allclose(autograd.jacobian(lambda x: np.concatenate(x[i:] for i in range(2)))(X[:2]),
                    [[1, 0], [0, 1], [0, 1]])
    check_grads(lambda x: np.select((x > 0 for _ in [0]), [x**2], default=0.0))(X)


def test_traced_values_are_told_from_plain_ones():
    seen = []

    def look(x):
        seen.append((isinstance(x, ArrayBox), x._value, of_traced(x, onp.ndarray), type_of(x)))
        return np.sum(x)

    autograd.grad(look)(X)
    (boxed, value, array, kind), = seen
    assert boxed and array and kind is onp.ndarray
    assert_array_equal(value, X)
    assert not isinstance(X, ArrayBox) and not isinstance(0.5, ArrayBox)
    for box, plain in ((DictBox, {"x": X}), (SequenceBox, [X]), (SequenceBox, (X, 1.0))):
        assert not isinstance(plain, box)
        autograd.make_vjp(lambda x, box=box: seen.append(isinstance(x, box)) or x)(plain)
        assert seen.pop() is True


def test_integers_and_decisions_are_taken_of_the_values():
    def f(x):
        index = np.int64(x * 2)
        assert np.allclose(x, x * 1.0) and np.shape(x) == (3,) and not np.iscomplexobj(x)
        return np.sum(x[index])

    assert_array_equal(autograd.grad(f)(onp.array([0.5, 1.0, 0.0])), [1.0, 1.0, 1.0])
    assert isinstance(onp.int64(3), np.int64) and onp.zeros(1, np.int32).dtype == onp.int32
    assert np.where(True, 1, 2) == 1 and type(np.where(True, 1, 2)) is int
    assert np.where([True, False], [1, 2], [3, 4]) == [1, 4]


def test_the_gradient_of_cholesky_is_symmetric():
    def f(a):
        return np.sum(np.linalg.cholesky(a) ** 3)

    g = autograd.grad(f)(A)
    assert_allclose(g, g.T, rtol=1e-14)
    symmetric = onp.array([[0.3, 0.1, 0.0], [0.1, -0.2, 0.4], [0.0, 0.4, 0.1]])
    difference = (f(A + 1e-6 * symmetric) - f(A - 1e-6 * symmetric)) / 2e-6
    assert_allclose(onp.sum(g * symmetric), difference, rtol=1e-8)
    lower = onp.tril(A)  # which NumPy reads alone
    values = []
    autograd.grad(lambda a: values.append(np.linalg.cholesky(a)._value) or np.sum(a))(lower)
    assert_allclose(values[0], onp.linalg.cholesky(lower), rtol=1e-14)


def test_a_real_matrix_has_a_complex_root():
    mixed = onp.array([[0.5, 0.2, 0.6], [0.2, 1.5, -0.2], [0.6, -0.2, -0.5]])
    check_grads(lambda a: np.abs(np.sum(spla.sqrtm(a + a.T))), order=2)(mixed)
    check_grads(lambda a: np.sum(spla.sqrtm(a + a.T)), order=1)(A)


def test_modules_of_scipy_have_autograds_names():
    check_grads(lambda m, s: np.sum(norm.logpdf(X, m, s)), (0, 1))(0.2, 1.5)
    assert norm.logsf(0.3) == scipy.stats.norm.logsf(0.3)
    check_grads(lambda m: mvn.logpdf(X, m, A), order=1)(X * 0.5)
    check_grads(lambda x: np.sum(special.gammaln(x) + special.logsumexp(x)))(X**2 + 0.5)
    assert misc.logsumexp is special.logsumexp
    for name in ("beta", "chi2", "dirichlet", "gamma", "poisson", "t"):
        assert hasattr(getattr(autograd.scipy.stats, name), "__file__")
    y = integrate.odeint(lambda y, t, k: -k * y, 1.0, onp.array([0.0, 1.0]), (2.0,))
    assert type(y) is onp.ndarray
    assert_allclose(autograd.grad(lambda k: integrate.odeint(
        lambda y, t, k: -k * y, onp.ones(1), onp.array([0.0, 1.0]), (k,))[-1, 0])(2.0),
        -onp.exp(-2.0), rtol=1e-6)


def test_convolve_takes_autograds_arguments_in_its_order():
    x, w = onp.arange(6.0).reshape(2, 3), onp.array([1.0, -1.0])
    y = signal.convolve(x, w, ([1], [0]), ((), ()), "valid")
    assert_allclose(y, [[1.0, 1.0], [1.0, 1.0]])
    check_grads(lambda x, w: signal.convolve(x, w, axes=([1], [0]), mode="full"), (0, 1))(x, w)
    with pytest.raises(AssertionError, match="Mode wrong undefined"):
        signal.convolve(x, x, mode="wrong")


def test_make_diagonal_has_the_last_axis_on_diagonals():
    assert_array_equal(np.make_diagonal(X, axis1=-1, axis2=-2), onp.diag(X))
    check_grads(lambda x: np.make_diagonal(x, 0, -1, -2))(onp.stack([X, X]))
    with pytest.raises(NotImplementedError, match="moveaxis"):
        np.make_diagonal(X)


@pytest.mark.parametrize("value", [0.5, X, 1j * X, [1.0, {"a": X}], (X, 2.0)], ids=str)
def test_vector_spaces_have_bases_and_products(value):
    vs = vspace(value)
    basis = list(vs.standard_basis())
    products = [[float(vs.inner_prod(a, b)) for a in basis] for b in basis]
    assert_array_equal(products, onp.eye(vs.size))
    assert vs == vspace(vs.randn()) == vspace(vs.zeros()) == vspace(vs.ones())
    a, b = vs.randn(), vs.randn()
    total = vs.add(vs.scalar_mul(a, 2.0), b)
    assert_allclose(vs.inner_prod(total, a), 2 * vs.inner_prod(a, a) + vs.inner_prod(a, b))
    assert_allclose(vs.inner_prod(vs.mut_add(None, a), a), vs.inner_prod(a, a))


def test_values_of_no_space_are_refused():
    with pytest.raises(TypeError, match="Can't find vector space for value 3 of type"):
        vspace(3)
