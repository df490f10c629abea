"""``functrans.scipy.linalg``: values are SciPy's, slopes those of SciPy's values."""

import numpy as np
import pytest
import scipy.linalg
from pytest import approx

import functrans as ft
from functrans.errors import ConcretizationError, NotDifferentiable, UnsupportedError
from functrans.numpy.linear_algebra import from_triangle
from functrans.scipy import bands, linalg
from functrans.testing import check_grads
from tests.drawing import generator
from tests.scipy.agreement import assert_derivatives, assert_transforms, close

pytestmark = pytest.mark.usefixtures("unoptimised")

RNG = generator(0)
Q, W, V, B = [RNG.normal(size=s) for s in ((3, 3), (5, 3), (3,), (3, 2))]
A = RNG.normal(size=(3, 3)) + 3 * np.eye(3)
S = A @ A.T
BANDS, X = RNG.normal(size=(3, 4)) + np.array([[0], [4], [0]]), RNG.normal(size=4)
UPPER = np.array([[0.3, 0.2, 0.5, 0.1], [4.0, 3, 5, 4]])


def banded(mod, ab, b):
    return mod.solve_banded((1, 1), ab, b)


def by_cholesky(lower):
    return lambda mod, a, b: mod.cho_solve(mod.cho_factor(a, lower=lower), b)


def by_lu(trans):
    return lambda mod, a, b: mod.lu_solve(mod.lu_factor(a), b, trans)


def of(name, **options):
    return lambda mod, *args: getattr(mod, name)(*args, **options)


def squares(f):
    """Of vectors, whose signs are LAPACK's choice, the squares."""
    return lambda mod, *args: [y * y for y in f(mod, *args)]


SYMMETRIC = {
    "cholesky": (of("cholesky"), S),
    "cholesky lower": (of("cholesky", lower=True), S),
    "cho_solve": (by_cholesky(False), S, B),
    "cho_solve lower": (by_cholesky(True), S, V),
    "eigh": (squares(of("eigh")), S),
    "eigh of two": (squares(of("eigh")), S, S + 2 * np.eye(3) + 0.1),
    "eigh subset": (squares(of("eigh", subset_by_index=[1, 2])), S),
    "eigvalsh of two": (of("eigvalsh"), S, S + 2 * np.eye(3) + 0.1),
}
GENERAL = {
    "solve": (of("solve"), A, B),
    "solve transposed": (of("solve", transposed=True), A, V),
    "solve pos": (of("solve", assume_a="pos"), S, V),
    "solve sym": (of("solve", assume_a="sym", lower=True), S, B),
    "solve her": (of("solve", assume_a="her"), S, B),
    "solve triangular": (of("solve", assume_a="lower triangular"), np.tril(A), B),
    "solve_triangular": (of("solve_triangular"), A, B),
    "solve_triangular T": (of("solve_triangular", trans="T", lower=True, unit_diagonal=True), A, V),
    "solve_banded": (banded, BANDS, X),
    "solveh_banded": (of("solveh_banded"), UPPER, X),
    "solveh_banded lower": (of("solveh_banded", lower=True), UPPER[::-1], X),
    "solve_toeplitz": (lambda m, c, r, b: m.solve_toeplitz((c, r), b), V + np.array([5, 0, 0]), V,
                       B),
    "solve_sylvester": (of("solve_sylvester"), A, S, Q),
    "continuous lyapunov": (of("solve_continuous_lyapunov"), A, Q),
    "discrete lyapunov": (of("solve_discrete_lyapunov"), 0.3 * Q, A),
    "bilinear lyapunov": (of("solve_discrete_lyapunov", method="bilinear"), 0.3 * Q, A),
    "qr": (of("qr"), A),
    "qr economic": (of("qr", mode="economic"), W),
    "qr r": (of("qr", mode="r"), W),
    "qr wide": (of("qr"), W.T),
    "svd": (squares(of("svd", full_matrices=False)), W),
    "svd values": (of("svd", compute_uv=False), W),
    "svdvals": (of("svdvals"), W),
    "det": (of("det"), A),
    "inv": (of("inv"), A),
    "pinv": (of("pinv"), W),
    "norm": (of("norm"), W),
    "norm 1": (of("norm", ord=1), V),
    "expm": (of("expm"), Q),
    "expm_frechet": (of("expm_frechet"), Q, A),
    "logm": (of("logm"), A),
    "sqrtm": (of("sqrtm"), A),
    "power": (of("fractional_matrix_power", t=0.3), A),
    "power -2": (of("fractional_matrix_power", t=-2), A),
    "cosm": (of("cosm"), Q),
    "sinm": (of("sinm"), Q),
    "block_diag": (of("block_diag"), A, B, V),
    "toeplitz": (of("toeplitz"), V),
    "toeplitz of two": (of("toeplitz"), V, X),
    "hankel": (of("hankel"), V),
    "hankel of two": (of("hankel"), V, X),
    "circulant": (of("circulant"), V),
    "companion": (of("companion"), X),
    "leslie": (of("leslie"), X, V),
    "fiedler": (of("fiedler"), X),
    "convolution_matrix": (of("convolution_matrix", n=4), V),
    "convolution_matrix, same": (of("convolution_matrix", n=2, mode="same"), X),
    "convolution_matrix, valid": (of("convolution_matrix", n=2, mode="valid"), X),
    "matmul_toeplitz": (lambda m, c, r, x: m.matmul_toeplitz((c, r), x), V, X, X[:, None]),
    "khatri_rao": (of("khatri_rao"), A, W),
    "coshm": (of("coshm"), Q),
    "sinhm": (of("sinhm"), Q),
    "tanm": (of("tanm"), Q),
    "tanhm": (of("tanhm"), Q),
    "polar": (of("polar"), W),
    "polar left": (of("polar", side="left"), A),
    "lstsq": (lambda m, a, b: m.lstsq(a, b)[:2], W, X[[0, 1, 2, 3, 0]]),
    "lstsq of columns": (lambda m, a, b: m.lstsq(a, b)[:2], W, W[:, :2] ** 2),
}
PIVOTED = {
    "lu": (of("lu"), Q),
    "lu permuted": (of("lu", permute_l=True), W),
    "lu wide": (of("lu"), W.T),
    "lu_factor": (lambda m, a: m.lu_factor(a)[0], W),
    "lu_solve": (by_lu(0), A, B),
    "lu_solve T": (by_lu(1), A, V),
}
CASES = SYMMETRIC | GENERAL | PIVOTED


def along(name, mod):
    """The outputs' sum with fixed weights, of a step h along fixed directions."""
    f, *args = CASES[name]
    rng = np.random.default_rng(1)
    moves = [0.1 * rng.normal(size=a.shape) for a in args]
    if name in SYMMETRIC:
        moves = [m + m.T if m.shape == (3, 3) else m for m in moves]

    def g(h):
        ys = f(mod, *[a + h * m for a, m in zip(args, moves, strict=True)])
        ys = ys if isinstance(ys, list | tuple) else [ys]
        weights = np.random.default_rng(2)
        return sum([(y * weights.normal(size=np.shape(y))).sum() for y in ys])

    return g


@pytest.mark.parametrize("name", CASES)
def test_values_and_slopes_of_both_orders_are_those_of_scipy(name):
    ours, theirs = along(name, linalg), along(name, scipy.linalg)
    value, slope = ft.jvp(ours, (0.0,), (1.0,))
    assert value == approx(theirs(0.0), rel=1e-12)
    h = 1e-3
    f = [theirs(k * h) for k in (-2, -1, 1, 2)]
    assert slope == approx((8 * (f[2] - f[1]) - (f[3] - f[0])) / (12 * h), rel=1e-7)  # differences
    gradient = ft.grad(ours)
    assert gradient(0.0) == approx(slope, rel=1e-11)
    second = ft.jvp(gradient, (0.0,), (1.0,))[1]
    f = [gradient(k * h) for k in (-2, -1, 1, 2)]
    expected = (8 * (f[2] - f[1]) - (f[3] - f[0])) / (12 * h)
    assert second == approx(expected, rel=1e-7, abs=1e-10)  # of differences


def test_the_polar_factors_of_a_matrix_with_equal_singular_values():
    def f(mod, h):
        u, p = mod.polar(2 * np.eye(3) + h * Q)
        return np.sum(u * W[:3]) + np.sum(p * S)

    h = 1e-4
    expected = (f(scipy.linalg, h) - f(scipy.linalg, -h)) / (2 * h)
    assert ft.derivative(lambda h: f(linalg, h))(0.0) == approx(expected, rel=1e-6)  # differences
    assert ft.grad(lambda h: f(linalg, h))(0.0) == approx(expected, rel=1e-6)


def test_bad_shapes_and_options_of_structured_matrices_are_refused_as_by_scipy():
    for match, f in [
        ("'mode' argument must be", lambda v: linalg.convolution_matrix(v, 2, "x")),
        ("n must be a positive integer", lambda v: linalg.convolution_matrix(v, 0)),
        ("number of columns", lambda v: linalg.khatri_rao(v[None], W[:, :2])),
        ("must be either 'right' or 'left'", lambda v: linalg.polar(v[None], "x")[0]),
    ]:
        with pytest.raises(ValueError, match=match):
            ft.jacobian(f)(V)


@pytest.mark.parametrize("name", [
    "solve", "solve_banded", "cho_solve", "solve_sylvester", "expm", "sqrtm", "eigh of two",
    "toeplitz of two", "block_diag", "discrete lyapunov", "cosm",
])
def test_vmap_and_jit_agree(name):
    f = ft.grad(along(name, linalg))
    h = np.array([0.0, 0.2])
    expected = np.array([f(x) for x in h])
    assert ft.vmap(f)(h) == approx(expected, rel=1e-11)
    assert ft.jit(f)(0.2) == approx(expected[1], rel=1e-11)


def test_complex_matrices_have_the_slopes_of_complex_functions():
    a, e = A + 0.3j * Q, Q - 0.2j * A
    for name in ("expm", "logm", "sqrtm", "cosm", "sinm", "inv"):
        f = getattr(scipy.linalg, name)
        h = 1e-3
        expected = (8 * (f(a + h * e) - f(a - h * e)) - f(a + 2 * h * e) + f(a - 2 * h * e)) / 12e-3
        got = ft.jvp(getattr(linalg, name), (a,), (e,))[1]
        assert got == approx(expected, rel=1e-8, abs=1e-9), name  # of differences


def test_the_square_root_s_slope_is_exact_where_eigenvalues_repeat():
    slope = ft.jvp(linalg.sqrtm, (4 * np.eye(3),), (Q,))[1]
    assert slope == approx(Q / 4, rel=1e-14)


def test_of_a_matrix_by_its_triangle_the_slope_is_in_that_triangle():
    slope = ft.grad(lambda a: linalg.solve(a, V, assume_a="pos").sum())(S)
    assert (np.tril(slope, -1) == 0).all() and (slope[np.triu_indices(3)] != 0).all()


def test_options_of_pinv_and_lu():
    y, rank = ft.vjp(lambda a: linalg.pinv(a, return_rank=True), W)[0]
    assert y == approx(scipy.linalg.pinv(W)) and rank == 3
    order = ft.vjp(lambda a: linalg.lu(a, p_indices=True)[1:], Q)[0]
    assert order[0] == approx(scipy.linalg.lu(Q, p_indices=True)[1])


def test_bases_that_are_not_unique_are_refused():
    with pytest.raises(NotDifferentiable, match=r"null_space returns is one of.*pinv\(A\) @ A"):
        ft.grad(lambda a: linalg.null_space(a).sum())(W.T)
    with pytest.raises(NotDifferentiable, match=r"orth returns is one of many.*A @ pinv"):
        ft.grad(lambda a: linalg.orth(a).sum())(W)
    assert linalg.orth(W) == approx(scipy.linalg.orth(W))


def test_what_cannot_be_is_refused_by_name():
    with pytest.raises(UnsupportedError, match="lu exchanges rows by their values"):
        ft.grad(lambda a: linalg.lu(a)[1].sum())(np.stack([Q, Q]))
    with pytest.raises(UnsupportedError, match="qr got mode='raw'"):
        ft.grad(lambda a: linalg.qr(a, mode="raw")[1].sum())(Q)
    with pytest.raises(UnsupportedError, match=r"pinv got atol=0\.1"):
        ft.grad(lambda a: linalg.pinv(a, atol=0.1).sum())(Q)
    with pytest.raises(UnsupportedError, match="eigh got subset_by_value"):
        ft.grad(lambda a: linalg.eigvalsh(a).sum() + linalg.eigh(
            a, subset_by_value=[0, 1])[0].sum())(S)
    with pytest.raises(NotDifferentiable, match="no derivative in the power t"):
        ft.grad(lambda t: linalg.fractional_matrix_power(A, t).sum())(0.5)
    with pytest.raises(ValueError, match="sqrtm: that of this real matrix is complex"):
        ft.grad(lambda a: linalg.sqrtm(a).sum())(-np.eye(2) + [[0, 0], [0, 3.0]])
    with pytest.raises(ValueError, match="expected square matrices"):
        ft.grad(lambda a: linalg.expm(a).sum())(W)
    with pytest.raises(ValueError, match="trans must be one of"):
        ft.grad(lambda a: linalg.solve_triangular(a, V, "X").sum())(A)
    with pytest.raises(ValueError, match="invalid values for the number of lower and upper"):
        ft.grad(lambda a: linalg.solve_banded((2, 1), a, X).sum())(BANDS)
    with pytest.raises(ConcretizationError, match=r"linalg\.expm got .*Take linalg\.expm"):
        ft.grad(lambda a: scipy.linalg.expm(a).sum())(A)


def test_a_tridiagonal_matrix_has_the_eigenvalues_of_the_full_one():
    d, e = np.array([2.0, 1.0, -1.0, 0.5]), np.array([0.3, -0.7, 1.1])

    def function(d, e, **options):
        w, v = linalg.eigh_tridiagonal(d, e, **options)
        return np.sum(v @ np.diag(np.exp(w)) @ v.T * np.cos(np.arange(16).reshape(4, 4)))

    def of_full(d, e):
        return np.sum(linalg.expm(np.diag(d) + np.diag(e, 1) + np.diag(e, -1))
                      * np.cos(np.arange(16).reshape(4, 4)))

    for f in (ft.grad, lambda f, argnums: ft.jit(ft.grad(f, argnums=argnums))):
        for ours, expected in zip(f(function, argnums=(0, 1))(d, e),
                                  ft.grad(of_full, argnums=(0, 1))(d, e), strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-11)
    w = ft.jvp(lambda d: linalg.eigvalsh_tridiagonal(d, e, "i", (1, 2)), (d,), (np.ones(4),))
    expected = scipy.linalg.eigvalsh_tridiagonal(d, e, "i", (1, 2))
    np.testing.assert_allclose(w[0], expected, rtol=1e-13)
    np.testing.assert_allclose(w[1], 1.0, rtol=1e-13)
    with pytest.raises(UnsupportedError, match="select='v' beside a traced value; pass 'a'"):
        ft.grad(lambda d: linalg.eigvalsh_tridiagonal(d, e, "v", (0, 1))[0])(d)


def test_the_basis_of_schur_is_refused():
    with pytest.raises(NotDifferentiable, match="the basis that schur returns is one of many"):
        ft.grad(lambda a: np.sum(linalg.schur(a)[0]))(np.eye(2))


def test_the_exponential_of_a_number_is_a_matrix_as_in_scipy():
    y, slope = ft.jvp(linalg.expm, (2.0,), (1.0,))
    np.testing.assert_allclose(y, scipy.linalg.expm(2.0), rtol=1e-13)
    np.testing.assert_allclose(slope, y, rtol=1e-13)


@pytest.mark.parametrize("name", ["solve_continuous_are", "solve_discrete_are"])
def test_riccati_equations_are_differentiated_in_all_their_matrices(name):
    solve = getattr(linalg, name)
    rng = generator(3)
    a, b, q, r = [rng.normal(size=s) for s in ((3, 3), (3, 2), (3, 3), (2, 2))]
    q, r = q @ q.T + np.eye(3), r @ r.T + np.eye(2)

    def symmetric(a, b, q, r):
        return solve(a, b, q + q.T, r + r.T)

    assert_derivatives(symmetric, a, b, q, r)
    assert_transforms(symmetric, a, b, q, r)
    s = 0.1 * np.ones((3, 2))
    x, _ = ft.vjp(lambda a: solve(a, b, q, r, s=s), a)
    close(x, getattr(scipy.linalg, name)(a, b, q, r, s=s), rtol=1e-9)  # two ways to the same
    with pytest.raises(UnsupportedError, match=f"{name} got e="):
        ft.grad(lambda a: np.sum(solve(a, b, q, r, np.eye(3))))(a)


def full_matrix(ab, below, above):
    places, entries = bands.band(ab.shape[1], below, above)
    return bands.dense(places, ab.reshape(-1)[entries])


@pytest.mark.parametrize("below, above", [(1, 1), (2, 0), (0, 1), (3, 1)])
def test_many_equations_with_bands_are_solved_as_the_full_matrix_is(below, above):
    n = 70
    assert n > bands.DENSE
    ab = RNG.normal(size=(below + above + 1, n))
    ab[above] += 6
    b = RNG.normal(size=(n, 2))

    def loss(solve, ab, b):
        return np.sum(np.sin(solve(ab, b)) * np.cos(np.arange(n)[:, None]))

    def by_bands(ab, b):
        return loss(lambda ab, b: linalg.solve_banded((below, above), ab, b), ab, b)

    def in_full(ab, b):
        full = full_matrix(ab, below, above)
        return loss(lambda ab, b: np.linalg.solve(full, b), ab, b)

    assert_same_derivatives(by_bands, in_full, ab, b)


@pytest.mark.parametrize("kind", [float, complex])
@pytest.mark.parametrize("lower", [False, True])
def test_many_hermitian_equations_with_bands_are_solved_as_the_full_matrix_is(lower, kind):
    n, ab = 70, RNG.normal(size=(3, 70)) + (1j * RNG.normal(size=(3, 70)) if kind is complex else 0)
    ab[0 if lower else 2] += 9
    b = RNG.normal(size=n)

    def by_bands(ab, b):
        return np.sum(np.abs(linalg.solveh_banded(ab, b, lower=lower)) ** 2)

    def in_full(ab, b):
        half = full_matrix(ab, 2, 0) if lower else full_matrix(ab, 0, 2)
        return np.sum(np.abs(np.linalg.solve(from_triangle(half, lower), b)) ** 2)

    assert by_bands(ab, b) == approx(in_full(ab, b), rel=1e-12)
    assert_same_derivatives(by_bands, in_full, ab, b)


def assert_same_derivatives(f, g, ab, b):
    """Gradients, products with Hessians, batches and compiled code of ``f`` are those of ``g``."""
    grads = [ft.grad(h, (0, 1)) for h in (f, g)]
    expected = grads[1](ab, b)
    for found in (grads[0](ab, b), ft.jit(grads[0])(ab, b),
                  [y[1] for y in ft.vmap(grads[0])(np.stack([2 * ab, ab]), np.stack([b, b]))]):
        for y, e in zip(found, expected, strict=True):
            np.testing.assert_allclose(y, e, rtol=1e-11, atol=1e-13)
    if ab.dtype.kind == "f":
        ts = np.cos(ab), np.sin(b)
        along = [ft.jvp(h, (ab, b), ts)[1] for h in (*grads, f, g)]
        for y, e in zip((*along[0], along[2]), (*along[1], along[3]), strict=True):
            np.testing.assert_allclose(y, e, rtol=1e-10, atol=1e-12)


def test_bands_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"shapes of ab \(3, 70\) and b \(4,\)"):
        ft.grad(lambda ab: linalg.solve_banded((1, 1), ab, X).sum())(np.ones((3, 70)))
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        ft.grad(lambda ab: linalg.solve_banded((1, 1), ab, np.ones(70)).sum())(np.zeros((3, 70)))


@pytest.mark.parametrize("kind", [2, 3])
def test_generalised_eigenproblems_of_other_types_are_scipy_s(kind):
    rng = generator(3)
    a, b = [x @ x.T + np.eye(4) for x in rng.normal(size=(2, 4, 4))]
    a = a - 3 * np.eye(4)
    w, v = ft.vjp(lambda a: linalg.eigh(a, b, type=kind), a)[0]
    expected_w, expected_v = scipy.linalg.eigh(a, b, type=kind)
    np.testing.assert_allclose(w, expected_w, rtol=1e-11)
    np.testing.assert_allclose(np.abs(v), np.abs(expected_v), rtol=1e-10, atol=1e-12)

    def squares(a, b):
        w, v = linalg.eigh(a + a.T, b + b.T, type=kind)
        return w, v * v

    check_grads(squares, (a, b), order=2)
    for x, y in zip(ft.jit(squares)(a, b), squares(a, b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("shape", [(70,), (70, 2)])
def test_long_toeplitz_systems_are_those_of_the_matrix(shape):
    rng = generator(5)
    c, r, b = rng.normal(size=70) + 20 * np.eye(70)[0], rng.normal(size=70), rng.normal(size=shape)

    def ours(c, r, b):
        return np.sum(linalg.solve_toeplitz((c, r), b) ** 3)

    def dense(c, r, b):
        return np.sum(np.linalg.solve(linalg.toeplitz(c, r), b) ** 3)

    for x, y in zip(ft.grad(ours, (0, 1, 2))(c, r, b), ft.grad(dense, (0, 1, 2))(c, r, b),
                    strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)
    second = [ft.hvp(lambda c, f=f: f(c, r, b), c, r)[1] for f in (ours, dense)]
    np.testing.assert_allclose(*second, rtol=1e-9, atol=1e-12)
    rows = ft.vmap(lambda c: ft.grad(ours)(c, r, b))(np.stack([c, 2 * c]))
    np.testing.assert_allclose(rows[1], ft.jit(ft.grad(ours))(2 * c, r, b), rtol=1e-10, atol=1e-14)


def test_a_toeplitz_system_with_singular_minors_is_solved_as_a_dense_one():
    c, r = np.eye(70)[1], 2 * np.eye(70)[1]
    slope = ft.grad(lambda b: linalg.solve_toeplitz((c, r), b)[0])(np.ones(70))
    np.testing.assert_allclose(slope, np.linalg.inv(linalg.toeplitz(c, r))[0], rtol=1e-12)


@pytest.mark.parametrize("mode", ["full", "economic", "r"])
def test_pivoted_qr_keeps_the_order_of_columns(mode):
    a = generator(4).normal(size=(5, 3))

    def f(a):
        return linalg.qr(a, pivoting=True, mode=mode)

    *factors, order = ft.vjp(f, a)[0]
    *expected, expected_order = scipy.linalg.qr(a, pivoting=True, mode=mode)
    np.testing.assert_array_equal(order, expected_order)
    np.testing.assert_allclose(np.abs(factors[-1]), np.abs(expected[-1]), rtol=1e-12, atol=1e-13)
    if mode == "economic":
        check_grads(lambda a: f(a)[:2], (a,), order=2)
        loss = lambda a: np.sum(f(a)[0] ** 3) + np.sum(f(a)[1] ** 2 * a[:3])  # noqa: E731  # one line
        np.testing.assert_allclose(ft.jit(ft.grad(loss))(a), ft.grad(loss)(a), rtol=1e-11)
        np.testing.assert_allclose(ft.vmap(ft.grad(loss))(np.stack([a, a[::-1]])),
                                   np.stack([ft.grad(loss)(a), ft.grad(loss)(a[::-1])]), rtol=1e-11)
        several = ft.grad(lambda a: np.sum(f(a)[1] ** 3))
        np.testing.assert_allclose(several(np.stack([a, a[::-1]])),
                                   np.stack([several(a), several(a[::-1])]), rtol=1e-12)


@pytest.mark.parametrize("shapes", [
    [(3, 2, 2)], [(2, 2), (3, 2, 2)], [(3, 1, 2), (2, 2)], [(3, 1, 2), (0, 3)], [(3, 1, 2), ()],
], ids=str)
def test_block_diagonals_of_stacks(shapes):
    blocks = [np.arange(1.0, 1 + np.prod(s, dtype=int)).reshape(s) for s in shapes]
    expected = scipy.linalg.block_diag(*blocks)
    y, pull = ft.vjp(lambda *b: linalg.block_diag(*b), *blocks)
    close(y, expected)
    for block, ct in zip(blocks, pull(expected), strict=True):
        repeats = expected.size and np.prod(expected.shape[:-2], dtype=int)
        repeats //= max(1, np.prod(block.shape[:-2], dtype=int))
        close(ct, repeats * block)


@pytest.mark.parametrize("name", ["solve", "cholesky", "inv", "det", "eigvalsh", "svdvals", "qr"])
def test_nan_and_infinities_are_refused_as_by_scipy(name):
    def f(a):
        args = (a, np.ones(2)) if name == "solve" else (a,)
        y = getattr(linalg, name)(*args)
        return np.sum(y[1] if name == "qr" else y)

    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match="must not contain infs or NaNs"):
            ft.grad(f)(np.array([[2.0, value], [0.5, 2.0]]))
