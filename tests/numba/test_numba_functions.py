"""NumPy's functions in kernels: derivatives are those of the same Python with functrans' arrays."""

import numpy as np
import pytest

import functrans as ft
from functrans.errors import UnsupportedError
from tests.covering import THOROUGH, covering
from tests.numba.test_numba_numbers import in_place_of_numpy

numba = pytest.importorskip("numba")  # an extra: its releases follow NumPy's after a while
njit = numba.njit

from functrans.numba import differentiable  # noqa: E402  # after the test for numba
from functrans.numba.functions import FUNCTIONS  # noqa: E402  # likewise

X, Y = np.array([1.3, 0.7, 2.1]), np.array([0.4, -1.2, 0.9])
W = np.cos(np.arange(9.0))


def chosen(x, y):
    """A function of each kind."""
    m = np.vstack((x, y * y))
    s = np.dot(np.where(x > y, x * y, 0.0), W[:3]) + np.dot(np.sum(m * m, 0), W[:3] * np.sum(W))
    return s + np.dot(np.cumsum(x * y), W[:3]) * np.minimum(x, y[2])[1]


def joined(x, y):
    """Further ones."""
    m = np.concatenate((np.stack((x, x * y), 1).T, np.vstack((x, y * y))))
    s = np.median(x) * np.interp(y[0], np.sort(x) - 1, x)
    s += np.dot(np.concatenate((m[:2], m[2:]), 1)[1], W[:6])
    return s + np.dot(np.repeat(x, 2), W[:6])


def solved(x, y):
    a = np.eye(3) * 3
    for i in range(3):
        a[i] += x[i] * y + 0.3 * x
    return np.dot(np.linalg.solve(a, y), W[:3]) * np.linalg.det(a)


# numba takes seconds for each
@pytest.mark.parametrize(("f", "mode"), covering(
    [chosen, solved, joined], ["reverse", "forward"]) if THOROUGH else [(chosen, "reverse")])
def test_functions_in_kernels_have_the_derivatives_of_numpys(f, mode):
    kernel, python = differentiable(njit(f), mode=mode), ft.patch()(in_place_of_numpy(f))
    value, found = ft.value_and_grad(kernel, argnums=(0, 1))(X, Y)
    assert value == pytest.approx(f(X, Y), rel=1e-13)
    for x, y in zip(found, ft.grad(python, argnums=(0, 1))(X, Y), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-13)


def test_kinks_have_the_slopes_of_numpys_functions():
    @njit
    def kinks(x):
        return np.min(x) + 2 * np.interp(x[0], np.array([0.0, 1.0]), np.array([0.0, 3.0]))

    kernel = differentiable(kinks, mode="forward")
    slopes = ft.grad(kernel)(np.array([1.0, 1.0, 1.0, 2.0]))
    np.testing.assert_allclose(slopes, [1 / 3 + 6, 1 / 3, 1 / 3, 0], rtol=1e-15)


def test_a_gradient_in_no_entries_is_empty():
    kernel = differentiable(njit(lambda x: x.sum() + 1.0), mode="forward")
    assert ft.grad(kernel)(X[:0]).shape == (0,)


M, N = np.vander(X), np.vander(Y)
GAPS = np.array([np.nan, 1.0, np.inf, 2.5, -np.inf, np.nan])
# Arguments for which each kernel, run as Python, is compared with what it stands for.
CALLS = {
    np.sum: [(M,), (X, 0), (M, 0), (M, -1), (np.ones((2, 3, 4)), 1)], np.prod: [(M,)],
    np.mean: [(M,)], np.var: [(M,), (1j * X - Y,)], np.std: [(M,)],
    np.trace: [(M,), (M, 1), (M, -2)], np.max: [(M,)],
    np.min: [(M,)], np.ptp: [(M,)], np.cumsum: [(M,)], np.cumprod: [(M,)],
    np.nansum: [(GAPS[:2],), (GAPS,)], np.nanprod: [(GAPS[:4],)], np.nanmean: [(GAPS[:2],)],
    np.nanvar: [(GAPS[:2],)], np.nanstd: [(GAPS[:2],)], np.nanmax: [(GAPS,)], np.nanmin: [(GAPS,)],
    np.nanmedian: [(GAPS[:4],)], np.nanquantile: [(GAPS[:4], 0.3)],
    np.nanpercentile: [(GAPS[:4], 30)], np.nancumsum: [(GAPS,)], np.nancumprod: [(GAPS[:4],)],
    np.nan_to_num: [(GAPS,), (GAPS, True, 2.0), (1.5,)], np.sort: [(X,), (M.T,), (GAPS,), (X[:0],)],
    np.argsort: [(X,)], np.argmax: [(M,), (M, 1)], np.argmin: [(M,)],
    np.unique: [(np.array([2.0, 1, 2]),)],
    np.searchsorted: [(np.sort(X), 1.3), (np.sort(X), X, "right")], np.digitize: [(X, Y[::2])],
    np.median: [(X,), (M[:2],), (np.array([-np.inf, 1]),)],
    np.quantile: [(X, 0.3), (M, np.array([0.0, 0.4, 1.0])), (X, [0.1]), (GAPS, 0.3)],
    np.percentile: [(X, 70), (X, (5.0, 50.0))],
    np.where: [(X > 1, X, Y), (X > 1, 0.0, M), (True, X, 1.0)],
    np.diff: [(X,), (M,), (M, 2), (X, 0)], np.ediff1d: [(M,)],
    np.repeat: [(X, 2), (M, 1), (X, np.array([0, 2, 1]))], np.roll: [(X, 1), (M, -4)],
    np.take: [(M, np.array([0, -1, 4])), (X, 1)],
    np.diag: [(X,), (X, 1), (M,), (M, -1), (M[:2], 2)],
    np.tril: [(M,), (M, 1), (M, -1), (M[:2], -2)], np.triu: [(M,), (M, 1), (M, -1), (M[:2], 2)],
    np.extract: [(M > 1, M), (np.array([1, 0, 2]), X)], np.delete: [(X, 1), (X, np.array([0, 2]))],
    np.select: [([X > 1, X > 0.5], [X, Y]), ([X > 1, X > 2], [X, Y], 3.0)],
    np.concatenate: [((X, Y),), ((M, N), 1), ((M, N[:1]), -2)],
    np.stack: [((X, Y),), ((X, Y), 1), ((M, N), -1), ((M, N), 1)],
    np.hstack: [((X, Y),), ((M, N),)], np.vstack: [((X, Y),), ((M, N),)],
    np.column_stack: [((X, M),)], np.append: [(X, 2.0), (M, Y), (M, N, 1)],
    np.cross: [(X, Y), (M, N)],
    np.vdot: [(M, N), (1j * X, 1j + Y)],
    np.kron: [(X, Y), (M, N[:2])], np.linspace: [(1.0, 2.0, 5), (1.0, 2.0, 1), (0.5, 3.0)],
    np.convolve: [(X, Y), (X, Y[:2], "same"), (Y[:2], X, "valid")],
    np.correlate: [(X, Y), (X, Y[:2], "full"), (X, Y[:2], "same"), (Y[:2], X, "same"),
                   (1j * X, 1j + Y, "full")],
    np.trapezoid: [(X,), (X, np.sort(Y)), (X, None, 0.3)],
    np.interp: [(Y, np.sort(X), Y), (1.3, np.sort(X), Y), (9.0, X[:1], Y[:1]),
                (1.0, np.array([0.0, 1.0, 1.0]), X)],
    np.linalg.solve: [(M, Y), (M, N)], np.linalg.inv: [(M,)], np.linalg.det: [(M,), (M - M,)],
    np.linalg.slogdet: [(M,), (M - M,)], np.linalg.cholesky: [(M @ M.T,)],
    np.linalg.norm: [(X,), (M,), (X, 1), (X, 3), (X, 0), (X, np.inf), (X, -np.inf), (M, 1),
                     (M, -1), (M, np.inf), (M, -np.inf)],
    np.linalg.matrix_power: [(M, 5), (M, 0), (M, -2)],
}


def as_python(kernel, dtype):
    """A kernel whose helpers are Python too."""
    f = getattr(kernel, "py_func", kernel)
    names = {k: as_python(v, dtype) for k, v in f.__globals__.items()
             if k in f.__code__.co_names and hasattr(v, "py_func")}
    names["new"] = lambda shape: np.zeros(shape, dtype)
    names["tuple_setitem"] = lambda shape, axis, n: (*shape[:axis], n, *shape[axis + 1 :])
    return type(f)(f.__code__, f.__globals__ | names, f.__name__, f.__defaults__, f.__closure__)


def test_each_kernel_that_stands_for_a_function_is_compared():
    names = [np.amax, np.amin, getattr(np, "trapz", None)]
    assert set(FUNCTIONS).difference(names) == set(CALLS)


@pytest.mark.parametrize(("f", "args"), [(f, a) for f, calls in CALLS.items() for a in calls])
@pytest.mark.filterwarnings("ignore")  # NumPy's, of NaN
def test_kernels_return_what_numpy_does(f, args):
    choose = FUNCTIONS[f][1]
    kinds = [numba.types.literal(x) if isinstance(x, int) else numba.typeof(x) for x in args]
    of_complex = any(isinstance(x, np.ndarray) and np.iscomplexobj(x) for x in args)
    kernel = as_python(choose(*kinds), complex if of_complex else float)
    np.testing.assert_allclose(kernel(*args), f(*args), rtol=1e-12, atol=1e-15)


def test_the_largest_of_complex_numbers_is_one_of_them():
    kernel = differentiable(njit(lambda z: np.max(z)), mode="forward")
    z = 1j * X - Y**2
    value, slope = ft.value_and_grad(lambda z: np.abs(kernel(z)) ** 2)(z)
    assert value == pytest.approx(abs(z[0]) ** 2, rel=1e-14)
    np.testing.assert_allclose(slope, ft.grad(lambda z: np.abs(z[0]) ** 2)(z), rtol=1e-14)


@pytest.mark.parametrize(("f", "args", "error"), [
    (np.repeat, (X, np.array([3, -1, 1])), ValueError), (np.delete, (X, 9), IndexError),
    (np.extract, (np.arange(9) > 7, X), ValueError), (np.select, ([X > 1], [X, X]), ValueError),
    (np.concatenate, ((M, N[:, :1]),), ValueError), (np.concatenate, ((M, N), 2), ValueError),
    (np.stack, ((M, N[:1]),), ValueError), (np.cross, (M, N[:1]), ValueError),
    (np.trapezoid, (X, Y[:2]), ValueError), (np.percentile, (X, 101), ValueError),
    (np.nanmax, (X[:0],), ValueError), (np.linalg.inv, (M * np.nan,), np.linalg.LinAlgError),
])
def test_kernels_refuse_what_numba_refuses(f, args, error):
    kernel = as_python(FUNCTIONS[f][1](*map(numba.typeof, args)), float)
    with pytest.raises(error):
        kernel(*args)


def test_the_slope_of_log_det_is_infinite_at_a_singular_matrix():
    kernel = differentiable(njit(lambda a: np.linalg.slogdet(a)[1]), mode="forward")
    value, slope = ft.value_and_grad(kernel)(np.array([[1.0, 2.0], [2.0, 4.0]]))
    assert value == -np.inf
    assert np.isinf(slope).all()


def test_an_error_of_numpys_function_is_that_of_the_kernel():
    with pytest.raises(ValueError, match="zero-size array"):
        ft.grad(differentiable(njit(lambda x: np.max(x)), mode="forward"))(X[:0])


def test_arrays_of_floats_that_a_kernel_stores_into_have_derivatives():
    @njit
    def stores(x):
        y, z = W.copy(), W * 2
        y[0], z[1:4] = x[0], x
        return y[0] * z[2] + y[1] * z[1]

    np.testing.assert_array_equal(ft.grad(stores)(X), [X[1] + W[1], X[0], 0])


@njit
def det(a):
    return np.linalg.det(a)


@pytest.mark.parametrize("singular", [np.outer([1.0, 2.0, 3.0], [2.0, 1.0, 1.0]), np.zeros((3, 3)),
                                      np.diag([1.0, 0.0, 0.0])])
def test_a_determinant_has_its_derivatives_where_the_matrix_is_singular(singular):
    def by_rows(a):
        return ft.numpy.dot(a[0], ft.numpy.cross(a[1], a[2]))

    moved = np.arange(9.0).reshape(3, 3) ** 2 % 7 - 3
    np.testing.assert_allclose(ft.grad(det)(singular), ft.grad(by_rows)(singular), atol=1e-14)
    np.testing.assert_allclose(ft.hvp(det, singular, moved)[1], ft.hvp(by_rows, singular, moved)[1],
                               atol=1e-13)


def test_what_has_no_derivative_is_refused():
    @njit
    def values(a):
        return np.linalg.svd(a)[1]

    @njit
    def stores(x):
        y = np.arange(3.0)
        y[0] = x[0]
        return y

    @njit
    def bits(x):
        return (2 * x).view(np.int64)[1] * x

    with pytest.raises(UnsupportedError, match="`view` has no derivative in kernels"):
        ft.jacobian(lambda x: bits(x))(X)
    with pytest.raises(UnsupportedError, match=r"`svd.*has no derivative in kernels"):
        ft.jacobian(lambda a: values(a))(np.eye(2))
    with pytest.raises(UnsupportedError, match="in an array of plain ones"):
        ft.jacobian(lambda x: stores(x))(X)
