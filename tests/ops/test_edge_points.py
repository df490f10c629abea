"""Points where a slope is undefined or infinite: the value each mode gives, one test a point,
plain, compiled and in a batch."""

import numpy as np
import pytest
import scipy.linalg

import functrans as ft

pytestmark = pytest.mark.usefixtures("unoptimised")


def forward(f, x):
    """The gradient of a scalar function by one jvp a coordinate."""
    x = np.asarray(x, float)
    units = np.eye(x.size).reshape(x.size, *x.shape)
    return np.reshape([ft.jvp(f, (x,), (u,))[1] for u in units], x.shape)


def reverse(f, x):
    return np.asarray(ft.grad(f)(np.asarray(x, float)))


def pushed(f, x):
    """The gradient by the tape walked forward."""
    x = np.asarray(x, float)
    units = np.eye(x.size).reshape(x.size, *x.shape)
    push = ft.linearize(f, x)[1]
    return np.reshape([push(u) for u in units], x.shape)


def compiled(f, x):
    return np.asarray(ft.jit(ft.grad(f))(np.asarray(x, float)))


def compiled_forward(f, x):
    x = np.asarray(x, float)
    units = np.eye(x.size).reshape(x.size, *x.shape)
    push = ft.jit(lambda x, u: ft.jvp(f, (x,), (u,))[1])
    return np.reshape([push(x, u) for u in units], x.shape)


def of_compiled(f, x):
    return reverse(ft.jit(f), x)


def batched(f, x):
    """The point among others of its neighbourhood."""
    x = np.asarray(x, float)
    return np.asarray(ft.vmap(ft.grad(f))(np.stack([x + 0.5, x, x + 0.25])))[1]


def batched_forward(f, x):
    x = np.asarray(x, float)
    units = np.eye(x.size).reshape(x.size, *x.shape)
    many = np.broadcast_to(x, units.shape)
    return np.reshape(ft.vmap(lambda x, u: ft.jvp(f, (x,), (u,))[1])(many, units), x.shape)


def compiled_batch(f, x):
    return np.asarray(ft.jit(ft.vmap(ft.grad(f)))(np.asarray(x, float)[None]))[0]


EAGER = [reverse, forward, pushed]
INSIDE = [compiled, compiled_forward, batched, batched_forward, compiled_batch]
both = pytest.mark.parametrize("gradient", [*EAGER, *INSIDE, of_compiled])
# what is as large as there are different values has no shape under vmap and jit
eager = pytest.mark.parametrize("gradient", EAGER)


def exactly(found, expected):
    np.testing.assert_array_equal(found, expected)


def closely(found, expected, rtol=1e-13):
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol)


@both
def test_abs_at_zero_is_zero(gradient):
    exactly(gradient(np.abs, 0), 0)


@both
def test_sqrt_at_zero_is_infinite(gradient):
    with np.errstate(divide="ignore"):
        exactly(gradient(np.sqrt, 0), np.inf)


@both
def test_x_sqrt_x_at_zero_is_zero(gradient):
    exactly(gradient(lambda x: x * np.sqrt(x), 0), 0)


@both
def test_norm_at_zero_is_zero(gradient):
    exactly(gradient(np.linalg.norm, [0, 0]), [0, 0])


@both
def test_squared_norm_at_zero_is_zero(gradient):
    exactly(gradient(lambda x: np.linalg.norm(x) ** 2, [0, 0]), [0, 0])


# ---- even powers of what has a kink at 0: polynomials, whose derivatives hold there to any order

Q = np.array([[1.0, 2.0], [0.5, -1.0]])
THREE = np.float64(3)
SPELLINGS = {  # of a norm n of x, with the factor c in c x @ x
    "3 n": (lambda n, x: (3 * n) ** 2, 9), "n 3": (lambda n, x: (n * 3) ** 2, 9),
    "-n": (lambda n, x: (-n) ** 2, 1), "+n": (lambda n, x: (+n) ** 2, 1),
    "np.float64 n": (lambda n, x: (THREE * n) ** 2, 9),
    "n np.float64": (lambda n, x: (n * THREE) ** 2, 9),
    "array n": (lambda n, x: (np.array(3.0) * n) ** 2, 9),
    "Array n": (lambda n, x: (ft.array(3.0) * n) ** 2, 9),
    "n over": (lambda n, x: (n / np.float64(0.5)) ** 2, 4),
    "multiply": (lambda n, x: np.square(np.multiply(3, n)), 9),
    "divide": (lambda n, x: np.divide(n, 0.5) ** 2.0, 4),
    "negative": (lambda n, x: np.negative(n) ** 2, 1),
    "abs": (lambda n, x: abs(-2 * n) ** 2, 4), "np.abs": (lambda n, x: np.abs(n * -2) ** 2, 4),
    "power": (lambda n, x: np.power(3 * n, np.float64(2)), 9),
    "exponents of NumPy's": (lambda n, x: (3 * n) ** np.int64(2) + n ** np.array(2), 10),
    "float_power": (lambda n, x: np.float_power(3 * n, 2), 9),
    "times itself": (lambda n, x: (3 * n) * (n * 3), 9),
    "times the same": (lambda n, x: n * np.linalg.norm(x), 1),
    "2 n n": (lambda n, x: 2 * n * n, 2), "n (2 n)": (lambda n, x: n * (2 * n), 2),
    "-n n": (lambda n, x: -n * n, -1), "n -n": (lambda n, x: n * -n, -1),
    "dot": (lambda n, x: np.dot(n, n), 1), "inner": (lambda n, x: np.inner(n, n), 1),
    "many factors": (lambda n, x: (n * 2 * np.float64(1.5) / 3 * -1) ** 2, 1),
    "vector n": (lambda n, x: np.sum((np.array([1.0, 2.0]) * n) ** 2), 5),
}
SMOOTH = {  # with the polynomial that it is
    "norm": (lambda x: np.linalg.norm(x) ** 2, lambda x: x @ x),
    "norm, the fourth": (lambda x: np.linalg.norm(x) ** 4, lambda x: (x @ x) ** 2),
    "norm times itself": (lambda x: (lambda n: n * n)(np.linalg.norm(x)), lambda x: x @ x),
    "norm by multiply": (lambda x: (lambda n: np.multiply(n, n))(np.linalg.norm(x)),
                         lambda x: x @ x),
    "norm squared by name": (lambda x: np.square(np.linalg.norm(Q @ x)), lambda x: x @ Q.T @ Q @ x),
    "norm by power": (lambda x: np.power(np.linalg.norm(x), 2.0), lambda x: x @ x),
    "norm, scaled": (lambda x: np.exp(-((np.linalg.norm(x) / 3) ** 2)),
                     lambda x: np.exp(-(x @ x) / 9)),
    "norms of rows": (
        lambda x: np.sum(np.linalg.norm(np.stack([x, x + 1.5]), axis=1, keepdims=True) ** 2),
        lambda x: x @ x + (x + 1.5) @ (x + 1.5),
    ),
    "norms of rows, one of them": (
        lambda x: np.linalg.norm(np.stack([x, x + 1.5]), axis=1)[0] ** 2, lambda x: x @ x
    ),
    "norm of a matrix": (lambda x: np.linalg.norm(np.outer(Q[0], x), "fro") ** 2,
                         lambda x: 5 * (x @ x)),
    "root": (lambda x: np.sqrt(np.sum(x * x)) ** 2, lambda x: x @ x),
    "root by power": (lambda x: (np.sum(x * x) ** 0.5) ** 2, lambda x: x @ x),
    "roots": (lambda x: np.sum(np.sqrt(x) ** 2), lambda x: x.sum()),
    "hypot": (lambda x: np.hypot(x[0], 2 * x[1]) ** 2, lambda x: x[0] ** 2 + 4 * x[1] ** 2),
    "abs": (lambda x: np.sum(np.abs(x) ** 2), lambda x: x @ x),
    "abs, the fourth": (lambda x: np.sum(abs(x) ** 4), lambda x: np.sum(x**4)),
    "abs and a factor": (lambda x: np.sum(2 * x + 3 * (np.abs(x) * 2) ** 2),
                         lambda x: np.sum(2 * x + 12 * x * x)),
    "fabs": (lambda x: np.sum(np.fabs(x) ** 2), lambda x: x @ x),
    "complex abs": (lambda x: np.abs(x[0] + 1j * x[1]) ** 2, lambda x: x @ x),
    "complex norm": (lambda x: np.linalg.norm(x * (1 + 2j)) ** 2, lambda x: 5 * (x @ x)),
    "std": (lambda x: np.std(x) ** 2, lambda x: np.var(x)),
    "root, scaled": (lambda x: (3 * np.sqrt(x @ x) / 2) ** 2, lambda x: 9 / 4 * (x @ x)),
    "a factor that varies": (
        lambda x: ((x[1] + 2) * np.linalg.norm(x)) ** 2, lambda x: (x[1] + 2) ** 2 * (x @ x)
    ),
    "factors of rows": (
        lambda x: np.sum(([1.0, 2.0] * np.linalg.norm(np.stack([x, x]), axis=1)) ** 2),
        lambda x: 5 * (x @ x),
    ),
    **{
        name: (lambda x, f=f: f(np.linalg.norm(x), x), lambda x, c=c: c * (x @ x))
        for name, (f, c) in SPELLINGS.items()
    },
}
ORDERS = {
    "forward over reverse": lambda f: ft.jacfwd(ft.jacrev(f)),
    "reverse over reverse": lambda f: ft.jacrev(ft.jacrev(f)),
    "forward over forward": lambda f: ft.jacfwd(ft.jacfwd(f)),
    "reverse over forward": lambda f: ft.jacrev(ft.jacfwd(f)),
    "compiled": lambda f: ft.jit(ft.hessian(f)),
    "of compiled": lambda f: ft.hessian(ft.jit(f)),
    "of a checkpoint": lambda f: ft.hessian(ft.checkpoint(f)),
    "batched": lambda f: lambda x: ft.vmap(ft.hessian(f))(np.stack([x, x + 1]))[0],
    "series": lambda f: lambda x: ft.jet(f, (x,), ([np.array([1.0, -2]), np.zeros(2)],))[1],
    "the fourth": lambda f: ft.jacfwd(ft.jacrev(ft.hessian(f))),
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize(("f", "polynomial"), SMOOTH.values(), ids=SMOOTH)
def test_even_powers_of_a_length_that_is_zero_are_smooth(f, polynomial, order):
    of_length, of_polynomial = order(f), order(polynomial)
    for x in (np.zeros(2), np.array([0.0, 0.75])):
        closely(np.stack(of_length(x)), np.stack(of_polynomial(x)))


@pytest.mark.parametrize("f", [
    lambda x: np.sqrt(x) ** 2, lambda x: np.sqrt(x) ** 4, lambda x: np.linalg.norm(x) ** 2,
    lambda x: np.hypot(x[:5], x[5:]) ** 2, lambda x: np.abs(x + 1j * x[::-1]) ** 2,
    lambda x: np.std(x) ** 2, lambda x: np.square(np.sqrt(x) / 3),
    *[lambda x, f=f: f(np.sqrt(x @ x), x) for name, (f, _) in SPELLINGS.items()
      if name != "times the same"],
])
def test_values_of_even_powers_of_lengths_are_numpys_to_the_last_bit(f):
    x = np.random.default_rng(0).uniform(0.1, 2, 10)
    np.testing.assert_array_equal(ft.vjp(f, x)[0], f(x))
    np.testing.assert_array_equal(ft.jvp(f, (x,), (x,))[0], f(x))


def test_the_square_of_a_root_is_no_number_where_the_root_is_none():
    with np.errstate(invalid="ignore"):
        value, slope = ft.jvp(lambda x: np.sqrt(x) ** 2, (np.array([-1.0, 0.0]),), (np.ones(2),))
    exactly(value, [np.nan, 0])
    exactly(slope, [np.nan, 1])


def test_powers_of_lengths_keep_their_type():
    x = np.float32([3, 4])
    assert ft.jvp(lambda x: np.linalg.norm(x) ** 2, (x,), (x,))[1].dtype == np.float32
    integers = np.array([1, -2])
    for root in (np.abs, np.fabs, np.sqrt, lambda x: np.hypot(x, x)):
        with np.errstate(invalid="ignore"):
            expected = (root(integers) ** 2).dtype
            assert ft.jit(lambda x, f=root: f(x) ** 2)(integers).dtype == expected


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_lengths_in_a_unit_are_squared_in_that_unit(scale):
    x = np.array([3.0, 4.0]) * scale
    for f in (
        lambda x: (np.linalg.norm(x) / scale) ** 2,
        lambda x: (np.linalg.norm(x[None], axis=1)[0] / scale) ** 2,
        lambda x: (np.hypot(*x) / scale) ** 2,
        lambda x: np.sum((np.abs(x) / scale) ** 2),
    ):
        closely(ft.jvp(f, (x,), (x,))[0], 25)


@both
def test_max_shares_a_tie_equally(gradient):
    exactly(gradient(np.max, [1, 1, 0]), [0.5, 0.5, 0])


@both
def test_min_shares_a_tie_equally(gradient):
    exactly(gradient(np.min, [1, 0, 0]), [0, 0.5, 0.5])


@both
def test_maximum_shares_a_tie_equally(gradient):
    exactly(gradient(lambda x: np.maximum(x, 0), 0), 0.5)


@both
@pytest.mark.parametrize("x", [0, 1])
def test_clip_at_a_bound_is_one(gradient, x):
    exactly(gradient(lambda x: np.clip(x, 0, 1), x), 1)


@both
def test_sqrt_in_the_branch_not_taken_at_zero_gives_zero(gradient):
    exactly(gradient(lambda x: np.where(x > 0, np.sqrt(x), 0), 0), 0)


@both
def test_nan_in_the_branch_not_taken_leaves_the_slope_alone(gradient):
    def f(x):
        with np.errstate(invalid="ignore"):
            return np.where(x >= 0, x, np.sqrt(-x))

    exactly(gradient(f, 1), 1)


@both
def test_prod_with_one_zero_is_exact(gradient):
    exactly(gradient(np.prod, [0, 2, 3]), [6, 0, 0])


@both
def test_prod_with_two_zeros_is_exact(gradient):
    exactly(gradient(np.prod, [0, 0, 3]), [0, 0, 0])


def test_second_derivative_of_prod_with_two_zeros_is_exact():
    exactly(ft.hessian(np.prod)(np.array([0.0, 0, 3])), [[0, 3, 0], [3, 0, 0], [0, 0, 0]])


@both
def test_std_of_a_constant_is_zero(gradient):
    exactly(gradient(np.std, [2, 2, 2]), [0, 0, 0])


@both
def test_arctan2_at_the_origin_is_zero(gradient):
    exactly(gradient(lambda x: np.arctan2(x, x), 0), 0)


@both
def test_sinc_at_zero_is_zero(gradient):
    exactly(gradient(np.sinc, 0), 0)


def test_second_derivative_of_sinc_at_zero():
    closely(ft.derivative(ft.derivative(np.sinc))(0.0), -(np.pi**2) / 3)


@both
def test_logaddexp_of_large_numbers_has_equal_shares(gradient):
    for f in (np.logaddexp, np.logaddexp2):
        for size in (0, 1000, 1e17, 1e300):
            exactly(gradient(lambda x, f=f: f(x[0], x[1]), [size, size]), [0.5, 0.5])


def test_second_derivatives_of_logaddexp_where_its_operands_are_equal():
    h = ft.hessian(lambda x: np.logaddexp(x[0], x[1]))
    for size in (0.0, 1e5, 1e300):
        closely(h(np.full(2, size)), [[0.25, -0.25], [-0.25, 0.25]], 1e-15)


@both
def test_log_sum_exp_of_large_numbers_overflows_as_its_value_does(gradient):
    """The value is inf too, so its slope is no number or none; logsumexp is the cure."""

    def f(x):
        with np.errstate(over="ignore"):
            return np.log(np.sum(np.exp(x)))

    with np.errstate(all="ignore"):
        assert f(np.array([1000.0, 1000])) == np.inf
        found = gradient(f, [1000, 1000])
    assert (np.isnan(found) | (found == 0)).all()


@both
def test_sum_of_eigenvalues_at_the_identity(gradient):
    closely(
        gradient(lambda a: np.sum(np.linalg.eigvalsh(a)), np.eye(2)), np.eye(2)
    )


@both
def test_sum_of_singular_values_at_the_identity(gradient):
    def f(a):
        return np.sum(np.linalg.svd(a, compute_uv=False))

    closely(gradient(f, np.eye(2)), np.eye(2))


def exponential_of_eigh(a):
    values, v = np.linalg.eigh((a + a.T) / 2)
    return (v * np.exp(values)) @ v.T


def test_function_of_eigh_at_the_identity_is_exact_forward():
    """V exp(L) V^T at a repeated eigenvalue: the slope is e times the change."""
    w = np.array([[1.0, 2], [2, 5]])
    closely(np.asarray(ft.jvp(exponential_of_eigh, (np.eye(2),), (w,))[1]), np.e * w)
    found = ft.jacfwd(lambda a: np.sum(w * exponential_of_eigh(a)))(np.eye(2))
    closely(np.asarray(found), np.e * w)


@pytest.mark.parametrize("values", [[1, 1, 2, 2], [1, 2, 2, 3], [0, 0, 0, 5], [1, 2, 3, 4]])
def test_function_of_eigh_at_repeated_eigenvalues_is_daleckii_and_kreins(values):
    rng = np.random.default_rng(1)
    q, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    d = rng.normal(size=(4, 4))
    a, d = (q * np.array(values, float)) @ q.T, d + d.T
    found = ft.jvp(exponential_of_eigh, (a,), (d,))[1]
    expected = scipy.linalg.expm_frechet((a + a.T) / 2, d, compute_expm=False)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)  # LAPACK's rounding


@pytest.mark.parametrize("gradient", [reverse, forward, *INSIDE])
def test_function_of_eigh_at_the_identity_is_exact(gradient):
    """More of them, and what is an error, in test_coinciding."""
    w = np.array([[1.0, 2], [2, 5]])
    closely(gradient(lambda a: np.sum(w * exponential_of_eigh(a)), np.eye(2)), np.e * w)


def test_one_eigenvector_at_the_identity_is_an_error_that_names_the_values():
    with pytest.raises(ft.errors.NotDifferentiable, match=r"(?s)eigenvalues 0 and 1.*jacfwd"):
        ft.grad(lambda a: np.linalg.eigh(a)[1][0, 1])(np.eye(2))


def rebuilt(a):
    u, s, vh = np.linalg.svd(a)
    return (u * s) @ vh


@pytest.mark.parametrize("values", [[1, 1, 1], [3, 2, 2], [2, 2, 1]])
def test_rebuilding_from_svd_at_repeated_singular_values_is_exact_forward(values):
    rng = np.random.default_rng(2)
    (p, _), (q, _) = (np.linalg.qr(rng.normal(size=(3, 3))) for _ in range(2))
    t = rng.normal(size=(3, 3))
    found = ft.jvp(rebuilt, (p @ np.diag(np.array(values, float)) @ q,), (t,))[1]
    np.testing.assert_allclose(found, t, rtol=1e-12, atol=1e-12)  # LAPACK's rounding


@pytest.mark.parametrize("gradient", [reverse, forward, *INSIDE])
def test_rebuilding_from_svd_at_the_identity_is_exact(gradient):
    w = np.array([[1.0, 2], [3, 5]])
    closely(gradient(lambda a: np.sum(w * rebuilt(a)), np.eye(2)), w)


def test_one_singular_vector_at_the_identity_is_an_error_that_names_the_values():
    with pytest.raises(ft.errors.NotDifferentiable, match="singular values 0 and 1"):
        ft.grad(lambda a: np.linalg.svd(a)[0][0, 1])(np.eye(2))


@both
def test_det_of_a_singular_matrix_has_the_adjugate(gradient):
    closely(gradient(np.linalg.det, [[1, 1], [1, 1]]), [[1, -1], [-1, 1]])


@eager
def test_unique_scatters(gradient):
    w = np.array([10.0, 20])
    found = gradient(lambda x: np.sum(np.unique(x) * w), [3.0, 1.0])
    exactly(found, [20, 10])


@eager
def test_unique_of_repeated_entries_is_not_silently_zero(gradient):
    w = np.array([10.0, 20])
    found = gradient(lambda x: np.sum(np.unique(x) * w), [3.0, 1.0, 3.0])
    assert found[1] == 10
    assert found[0] + found[2] == 20


# ---- beyond the table: strong zero and its neighbours


@both
def test_power_at_zero_base(gradient):
    exactly(gradient(lambda x: x**3, 0), 0)
    exactly(gradient(lambda x: x**1.0, 0), 1)


@both
def test_power_with_exponent_zero_at_zero_base(gradient):
    exactly(gradient(lambda x: x ** np.array(0.0), 0), 0)


@both
def test_x_log_x_summed_where_x_is_zero_and_masked(gradient):
    def f(x):
        with np.errstate(all="ignore"):
            return np.sum(np.where(x > 0, x * np.log(x), 0))

    exactly(gradient(f, [0, 1]), [0, 1])


@both
def test_hypot_at_the_origin_is_zero(gradient):
    exactly(gradient(lambda x: np.hypot(x[0], x[1]), [0, 0]), [0, 0])


@both
def test_division_of_a_masked_zero(gradient):
    def f(x):
        with np.errstate(all="ignore"):
            return np.sum(np.where(x != 0, 1 / x, 0))

    exactly(gradient(f, [0, 2]), [0, -0.25])


@both
def test_softplus_of_large_numbers(gradient):
    exactly(gradient(lambda x: np.logaddexp(x, 0), 1000), 1)
    exactly(gradient(lambda x: np.logaddexp(x, 0), -1000), 0)


@both
def test_minus_infinity_in_logaddexp(gradient):
    exactly(gradient(lambda x: np.logaddexp(x, -np.inf), 1), 1)


def test_tangents_that_are_python_s_numbers_divide_by_zero_as_arrays_do():
    for f, expected in ((np.log, np.inf), (lambda x: 1 / x, -np.inf), (np.sqrt, np.inf)):
        with np.errstate(divide="ignore"):
            assert ft.jvp(f, (0.0,), (1.0,))[1] == expected
            assert ft.jvp(f, (np.zeros(1),), (np.ones(1),))[1] == expected
