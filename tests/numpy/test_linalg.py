"""Linear algebra: values and dtypes of NumPy, derivatives of both modes, the singular points."""

import itertools

import mpmath
import numpy as np
import pytest
import scipy.linalg

import functrans as ft
from functrans._ops.linalg import triangular_solve
from functrans.scipy import linalg
from tests.numpy.test_contractions import check_vmap, close, draw

la = np.linalg


def positive(a):
    return a @ a.mT.conj() + np.eye(a.shape[-1], dtype=a.dtype)


def hermitian(a):
    return (a + a.mT.conj()) / 2


def check(f, *xs, tol=1e-6):
    """Value; forward mode against central differences, which is all there is for LAPACK; the modes
    against each other, to second order."""
    ts = draw(*[x.shape for x in xs])
    y, dy = ft.jvp(f, tuple(xs), tuple(ts))
    close(y, f(*xs), rtol=1e-12)
    up, down = ([x + s * t for x, t in zip(xs, ts, strict=True)] for s in (1e-6, -1e-6))
    slope = (np.asarray(f(*up)) - np.asarray(f(*down))) / 2e-6
    np.testing.assert_allclose(dy, slope, rtol=tol, atol=tol * np.abs(slope).max(initial=1))
    (ct,) = draw(y.shape)
    cts = ft.vjp(f, *xs)[1](ct)
    close(sum(np.sum(c * t) for c, t in zip(cts, ts, strict=True)), np.sum(ct * dy), rtol=1e-10)
    return ct


def check_twice(f, *xs):
    ct = check(f, *xs)
    check(lambda *xs: ft.vjp(f, *xs)[1](ct)[0], *xs)


CASES = {
    "solve vector": (la.solve, (3, 3), (3,)),
    "solve": (la.solve, (3, 3), (3, 2)),
    "solve stacked": (la.solve, (2, 1, 3, 3), (5, 3, 4)),
    "solve stack and vector": (la.solve, (2, 3, 3), (3,)),
    "solve matrix and stack": (la.solve, (3, 3), (2, 3, 4)),
    "inv": (la.inv, (3, 3)),
    "inv stacked": (la.inv, (2, 3, 3)),
    "det": (la.det, (4, 4)),
    "det stacked": (la.det, (2, 3, 3)),
    "det of one": (la.det, (1, 1)),
    "slogdet": (lambda a: la.slogdet(a)[1], (3, 3)),
    "slogdet stacked": (lambda a: la.slogdet(a).logabsdet, (2, 3, 3)),
    "cholesky": (lambda a: la.cholesky(positive(a)), (3, 3)),
    "cholesky stacked": (lambda a: la.cholesky(positive(a)), (2, 3, 3)),
    "cholesky upper": (lambda a: la.cholesky(positive(a), upper=True), (3, 3)),
    "eigh values": (lambda a: la.eigh(hermitian(a))[0], (4, 4)),
    "eigh vectors": (lambda a: np.abs(la.eigh(hermitian(a)).eigenvectors), (3, 3)),
    "eigvalsh": (lambda a: la.eigvalsh(hermitian(a), UPLO="U"), (2, 3, 3)),
    "matrix_power 0": (lambda a: la.matrix_power(a, 0) + a, (3, 3)),
    "matrix_power 5": (lambda a: la.matrix_power(a, 5), (3, 3)),
    "matrix_power -2": (lambda a: la.matrix_power(a, -2), (3, 3)),
    "multi_dot": (lambda *xs: la.multi_dot(xs), (3,), (3, 4), (4, 2), (2,)),
    "trace": (lambda a: la.trace(a, offset=1), (2, 3, 3)),
    "diagonal": (lambda a: la.diagonal(a, offset=-1), (2, 3, 3)),
    "cross": (la.cross, (2, 3), (3,)),
    "outer": (la.outer, (2,), (3,)),
    "tensordot": (la.tensordot, (3, 2, 2), (2, 2, 3)),
    "matmul": (la.matmul, (2, 3), (3,)),
    "vecdot": (la.vecdot, (2, 3), (3,)),
    "matrix_transpose": (la.matrix_transpose, (2, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_both_modes_agree_with_differences_to_second_order(name):
    f, *shapes = CASES[name]
    check_twice(f, *draw(*shapes))


@pytest.mark.parametrize("name", CASES)
def test_vmap_is_a_loop(name):
    f, *shapes = CASES[name]
    check_vmap(f, *[x + 3 * np.eye(*x.shape[-2:]) if x.ndim > 1 else x for x in draw(*shapes)])


ORDERS = [None, 2, 1, np.inf, -np.inf, 0, 3, 2.5, -1]


@pytest.mark.parametrize("ord", ORDERS, ids=str)
def test_vector_norms(ord):
    check_twice(lambda x: la.norm(x, ord), *draw((5,)))
    check(lambda x: la.norm(x, ord, axis=1, keepdims=True), *draw((2, 4)))
    check(lambda x: la.vector_norm(x, ord=2 if ord is None else ord, axis=(0, 2)), *draw((2, 3, 2)))


@pytest.mark.parametrize("ord", [None, "fro", 1, -1, np.inf, -np.inf, 2, -2, "nuc"], ids=str)
def test_matrix_norms(ord):
    check_twice(lambda x: la.norm(x, ord, axis=(2, 0)), *draw((3, 2, 4)))
    check(lambda x: la.norm(x, ord, axis=(0, 1), keepdims=True), *draw((3, 2, 4)))
    check(lambda x: la.matrix_norm(x, ord=ord or "fro"), *draw((2, 3, 4)))


def test_norm_at_the_origin_has_gradient_zero_and_finite_second_derivatives():
    zero = np.zeros(2)
    close(ft.grad(la.norm)(zero), zero)
    close(ft.grad(lambda x: la.norm(x) ** 2)(zero), zero)
    close(ft.grad(lambda x: la.norm(x, 3))(zero), zero)
    close(ft.jvp(la.norm, (zero,), (np.ones(2),))[1], np.float64(0))
    assert np.isfinite(ft.hessian(lambda x: la.norm(x) ** 2)(zero)).all()


@pytest.mark.parametrize("scale", [1e200, 1e-200, 1e-310])
def test_norm_neither_overflows_nor_underflows(scale):
    x = np.array([3.0, 4.0]) * scale
    value, g = ft.value_and_grad(la.norm)(x)
    close(value, np.float64(5 * scale), rtol=1e-13)
    close(g, np.array([0.6, 0.8]), rtol=1e-12)


def test_norm_of_complex_numbers_points_along_them():
    (z,) = draw((3,), dtype=complex)
    close(ft.grad(la.norm)(z), z / la.norm(z))


# ---- determinants at singular matrices


def adjugate(a):
    n = len(a)
    minors = [[np.delete(np.delete(a, i, 0), j, 1) for j in range(n)] for i in range(n)]
    return np.array([[(-1) ** (i + j) * la.det(minors[i][j]) for i in range(n)] for j in range(n)])


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_det_has_the_adjugate_as_its_gradient_at_every_rank(rank):
    a, b = draw((4, rank), (rank, 4))
    close(ft.grad(la.det)(a @ b), adjugate(a @ b).T, rtol=1e-12)


def test_det_of_ones_has_the_gradient_of_its_polynomial():
    close(ft.grad(la.det)(np.ones((2, 2))), np.array([[1.0, -1.0], [-1.0, 1.0]]))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_det_has_exact_second_derivatives_at_every_rank(rank):
    a, b, e, f = draw((4, rank), (rank, 4), (4, 4), (4, 4))
    a = a @ b
    hessian = ft.jvp(ft.grad(la.det), (a,), (e,))[1]
    # det is linear in each row, so mixed differences of the polynomial are exact up to rounding
    with mpmath.workdps(60):
        h = mpmath.mpf(10) ** -15
        A, E, F = map(mpmath.matrix, (a.tolist(), e.tolist(), f.tolist()))
        d = [mpmath.det(A + h * (p * E + q * F)) for p, q in itertools.product((1, -1), repeat=2)]
        expected = float((d[0] - d[1] - d[2] + d[3]) / (4 * h * h))
    close(np.sum(np.asarray(hessian) * f), np.float64(expected), rtol=1e-10)


def test_third_derivatives_of_det_agree_with_differences():
    f = ft.grad(lambda a: ft.grad(lambda a: la.det(a) ** 2)(a).sum())
    check(f, draw((3, 3))[0])


def test_slogdet_of_complex_matrices_moves_its_phase():
    (a,), (t,) = draw((3, 3), dtype=complex), draw((3, 3), dtype=complex)
    (sign, _), (ds, dl) = ft.jvp(la.slogdet, (a,), (t,))
    z = np.trace(la.solve(a, t))
    close(dl, z.real)
    close(ds, sign * 1j * z.imag)
    g = ft.grad(lambda a: (lambda s: s.sign.real + s.logabsdet)(la.slogdet(a)))(a)
    close(np.sum(np.conj(g) * t).real, ds.real + dl)


# ---- triangular systems


KINDS = list(itertools.product([False, True], repeat=3))


@pytest.mark.parametrize("lower, transposed, unit", KINDS)
def test_triangular_systems_are_scipys_with_both_modes(lower, transposed, unit):
    def f(a, b):
        return triangular_solve(a, b, lower=lower, transposed=transposed, unit=unit)

    a, b = draw((3, 3), (3, 2))
    a = a + 3 * np.eye(3)
    options = {"trans": int(transposed), "lower": lower, "unit_diagonal": unit}
    close(f(a, b), scipy.linalg.solve_triangular(a, b, **options))
    check_twice(f, a, b)
    check_twice(f, a, b[:, 0])
    for x in (b, b[:, 0], draw((2, 3, 2))[0]):
        check_vmap(f, a, x)


def test_a_singular_triangle_raises_as_lapack_does():
    for b in (np.ones(2), np.ones((2, 1))):
        with pytest.raises(la.LinAlgError, match="Singular"):
            triangular_solve(np.zeros((2, 2)), b, lower=True, transposed=False, unit=False)


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (5, 0), (48, 3), (49, 60), (130, 2)], ids=str)
@pytest.mark.parametrize("lower, transposed, unit", KINDS)
def test_substitution_reads_one_triangle_in_any_order_in_memory(shape, lower, transposed, unit):
    n, _ = shape
    a, b = draw((n, n), shape)
    a = a / max(n, 1) + 3 * np.eye(n)
    kept = np.tril(np.ones((n, n), bool), -unit) if lower else np.triu(np.ones((n, n), bool), unit)
    whole = np.where(kept, a, np.eye(n)) if unit else np.where(kept, a, 0)
    expected = la.solve(whole.T if transposed else whole, b)
    hidden = np.where(kept, a, np.nan)
    spaced = np.repeat(hidden, 2, axis=1)[:, ::2]
    for order in (hidden, np.asfortranarray(hidden), spaced):
        for rhs in (b, np.asfortranarray(b), b[::-1][::-1]):
            x = triangular_solve(order, rhs, lower=lower, transposed=transposed, unit=unit)
            close(x, expected, rtol=1e-11)
            assert x.flags.c_contiguous


# ---- dtypes and complex matrices


@pytest.mark.parametrize("name", CASES)
def test_float32_stays_float32(name):
    f, *shapes = CASES[name]
    xs = draw(*shapes, dtype=np.float32)
    y, dy = ft.jvp(f, tuple(xs), tuple(xs))
    assert y.dtype == dy.dtype == np.float32
    assert all(c.dtype == np.float32 for c in ft.vjp(f, *xs)[1](np.ones_like(y)))


COMPLEX = {
    "solve": la.solve, "inv": lambda a, b: la.inv(a) @ b, "det": lambda a, b: la.det(a) * b,
    "cholesky": lambda a, b: la.cholesky(positive(a)) @ b,
    "cholesky upper": lambda a, b: la.cholesky(positive(a), upper=True) @ b,
    "eigvalsh": lambda a, b: la.eigvalsh(hermitian(a)) * b,
    "spectral": lambda a, b: spectral(np.exp, hermitian(a)) @ b,
    "logabsdet": lambda a, b: la.slogdet(a)[1] * b,
    "norm": lambda a, b: la.norm(a) * b,
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_matrices_agree_with_differences_in_both_modes(name):
    f = COMPLEX[name]
    a, b, ta, tb, ct = draw((3, 3), (3,), (3, 3), (3,), (3,), dtype=complex)
    dy = ft.jvp(f, (a, b), (ta, tb))[1]
    slope = (f(a + 1e-6 * ta, b + 1e-6 * tb) - f(a - 1e-6 * ta, b - 1e-6 * tb)) / 2e-6
    np.testing.assert_allclose(dy, slope, rtol=1e-6, atol=1e-6 * np.abs(slope).max())
    ga, gb = ft.grad(lambda a, b: np.sum(np.conj(ct) * f(a, b)).real, (0, 1))(a, b)
    moved = np.sum(np.conj(ga) * ta).real + np.sum(np.conj(gb) * tb).real
    close(moved, np.sum(np.conj(ct) * dy).real, rtol=1e-10)


# ---- symmetric eigenproblems


def spectral(f, a):
    w, v = la.eigh((a + a.mT.conj()) / 2)
    return (v * f(w)[..., None, :]) @ v.mT.conj()


def test_a_matrix_function_by_eigh_has_the_derivative_of_expm():
    a, e = map(hermitian, draw((4, 4), (4, 4)))
    expected = scipy.linalg.expm_frechet(a, e)[1]
    close(ft.jvp(lambda a: spectral(np.exp, a), (a,), (e,))[1], expected, rtol=1e-11)
    # the derivative of exp at a symmetric matrix is its own transpose
    close(ft.vjp(lambda a: spectral(np.exp, a), a)[1](e)[0], expected, rtol=1e-11)


def test_close_but_distinct_eigenvalues_keep_their_digits():
    q = la.qr(draw((3, 3))[0])[0]
    e = hermitian(draw((3, 3))[0])
    a = hermitian(q @ np.diag([1, 1 + 1e-6, 2]) @ q.T)
    dy = ft.jvp(lambda a: spectral(np.exp, a), (a,), (e,))[1]
    close(dy, scipy.linalg.expm_frechet(a, e)[1], rtol=1e-8)  # eps over the gap


def repeated(values):
    q = la.qr(draw((len(values), len(values)))[0])[0]
    return q, hermitian(q @ np.diag(values) @ q.T)


def test_symmetric_functions_of_repeated_eigenvalues_are_exact():
    _, a = repeated([1.0, 1.0, 1.0, 2.0])
    close(ft.grad(lambda a: np.sum(la.eigvalsh(hermitian(a)) ** 3))(a), 3 * a @ a)
    close(ft.grad(lambda a: np.sum(np.log(la.eigh(a)[0])))(np.eye(3)), np.eye(3))


TRIANGLES = {
    "eigvalsh": (True, lambda a: la.eigvalsh(a) @ np.array([1.0, 3.0, -2.0])),
    "eigvalsh U": (False, lambda a: la.eigvalsh(a, "U") @ np.array([1.0, 3.0, -2.0])),
    "eigh": (True, lambda a: (np.abs(la.eigh(a)[1][:, 0]) ** 2) @ np.array([1.0, 3.0, -2.0])),
    "cholesky": (True, lambda a: la.cholesky(a).real.sum()),
    "cholesky upper": (False, lambda a: la.cholesky(a, upper=True).real.sum()),
    "svd": (True, lambda a: la.svd(a, hermitian=True)[1] @ np.array([1.0, 3.0, -2.0])),
    "pinv": (True, lambda a: la.pinv(a, hermitian=True)[0].real.sum()),
    "linalg.cho_solve": (
        True,
        lambda a: linalg.cho_solve(linalg.cho_factor(a, lower=True), np.ones(3)).real.sum(),
    ),
    "linalg.eigvalsh": (True, lambda a: linalg.eigvalsh(np.eye(3), a) @ np.array([1.0, 3, -2])),
    "linalg.eigh": (False, lambda a: linalg.eigh(a, 2 * np.eye(3), lower=False)[0][1]),
}


@pytest.mark.parametrize("imaginary", [0, 1j], ids=["real", "complex"])
@pytest.mark.parametrize("name", TRIANGLES)
def test_a_function_that_reads_one_triangle_is_differentiated_in_its_entries(name, imaginary):
    lower, f = TRIANGLES[name]
    x, t = draw((3, 3), (3, 3))
    x, t = x + imaginary * np.sin(x.T) + 5 * np.eye(3), t + imaginary * t.T**2
    read = np.tril if lower else np.triu

    def of_both(a):
        half = read(a, -1 if lower else 1)
        return f(half + half.conj().T + np.diag(np.diag(a).real))

    assert f(x) == pytest.approx(of_both(x), rel=1e-13)
    close(ft.grad(f)(x), ft.grad(of_both)(x))
    assert (read(ft.grad(f)(x)) == ft.grad(f)(x)).all()
    close(ft.jvp(f, (x,), (t,))[1], ft.jvp(of_both, (x,), (t,))[1])
    close(ft.jvp(f, (x,), (t,))[0], f(x))
    if not imaginary:
        close(ft.hvp(f, x, t)[1], ft.hvp(of_both, x, t)[1], rtol=1e-11)


def test_a_simple_eigenvector_beside_repeated_eigenvalues_is_exact():
    q, a = repeated([1.0, 1.0, 3.0])
    x, y = draw((3,), (3,))
    v = q[:, 2]
    g = ft.grad(lambda a: (lambda v: (x @ v) * (y @ v))(la.eigh(hermitian(a))[1][:, 2]))(a)
    rest = (np.eye(3) - np.outer(v, v)) / 2
    slope = (y @ v) * rest @ x + (x @ v) * rest @ y
    close(g, hermitian(np.outer(slope, v)), rtol=1e-11)


def test_the_projector_on_a_repeated_eigenspace_is_exact():
    q, a = repeated([1.0, 1.0, 3.0])
    c = hermitian(draw((3, 3))[0])

    def f(a):
        v = la.eigh(hermitian(a))[1][:, :2]
        return np.sum(c * (v @ v.T))

    p = q[:, :2] @ q[:, :2].T
    r = (np.eye(3) - p) / -2
    close(ft.grad(f)(a), p @ c @ r + r @ c @ p, rtol=1e-10)


@pytest.mark.parametrize(
    ("f", "slope"), [(lambda w: w, 1.0), (np.exp, np.exp(2.0)), (np.log, 0.5)]
)
def test_a_matrix_function_at_a_multiple_of_the_identity_has_one_slope(f, slope):
    c = hermitian(draw((3, 3))[0])
    close(ft.grad(lambda a: np.sum(c * spectral(f, a)))(2 * np.eye(3)), slope * c, rtol=1e-13)


def test_what_needs_a_basis_of_a_repeated_eigenspace_is_refused():
    with pytest.raises(TypeError, match="eigenvalues 0 and 1 coincide"):
        ft.grad(lambda a: la.eigh(a)[1][0, 1])(np.eye(2))


def test_a_perturbation_that_splits_repeated_eigenvalues_chooses_their_eigenvectors():
    mixing = np.array([[0.0, 1.0], [1.0, 0.0]])
    (w, v), (dw, dv) = ft.jvp(la.eigh, (np.eye(2),), (mixing,))
    close(dw, [-1.0, 1.0])
    close(np.abs(v), np.full((2, 2), np.sqrt(0.5)))  # the eigenvectors of the perturbation
    assert np.all(w == 1) and np.all(dv == 0)


def test_the_eigenvectors_of_a_stack_are_chosen_matrix_by_matrix():
    a = np.stack([np.eye(3), np.diag([1.0, 2.0, 2.0])])
    d = np.random.default_rng(3).normal(size=(2, 3, 3))
    d = d + d.swapaxes(-1, -2)
    dy = ft.jvp(lambda a: spectral(np.exp, a), (a,), (d,))[1]
    for found, x, t in zip(dy, a, d, strict=True):
        close(found, scipy.linalg.expm_frechet(x, t, compute_expm=False))


@pytest.mark.parametrize("f", [lambda w: w, np.exp, np.log], ids=["identity", "exp", "log"])
def test_a_perturbation_along_the_basis_of_repeated_eigenvalues_is_exact(f):
    e = np.diag([1.0, 2.0, 3.0])
    dy = ft.jvp(lambda a: spectral(f, a), (np.eye(3) * 2,), (e,))[1]
    slope = {"log": 0.5, "exp": np.exp(2)}.get(getattr(f, "__name__", ""), 1.0)
    close(dy, e * slope)


# ---- bad input


def test_bad_matrices_raise_as_in_numpy():
    for f in (la.inv, la.det, la.slogdet, la.cholesky, la.eigh, la.eigvalsh):
        with pytest.raises(la.LinAlgError, match="square"):
            ft.jvp(f, (np.ones((2, 3)),), (np.ones((2, 3)),))
        with pytest.raises(la.LinAlgError, match="two-dimensional"):
            ft.jvp(f, (np.ones(3),), (np.ones(3),))
    with pytest.raises(la.LinAlgError, match="Singular"):
        ft.grad(lambda a: la.inv(a).sum())(np.zeros((2, 2)))
    with pytest.raises(la.LinAlgError, match="positive definite"):
        ft.grad(lambda a: la.cholesky(a).sum())(-np.eye(2))
    with pytest.raises(ValueError, match="b must have 2 rows"):
        ft.grad(lambda a: la.solve(a, np.ones(3)).sum())(np.eye(2))
    with pytest.raises(TypeError, match="exponent must be an integer"):
        ft.grad(lambda a: la.matrix_power(a, 0.5).sum())(np.eye(2))
    with pytest.raises(ValueError, match="UPLO"):
        ft.grad(lambda a: la.eigvalsh(a, UPLO="X").sum())(np.eye(2))
    with pytest.raises(ValueError, match="norm order"):
        ft.grad(lambda a: la.norm(a, 5))(np.eye(2))
    with pytest.raises(la.LinAlgError, match="two-dimensional"):
        ft.grad(lambda a: la.multi_dot([a, a[0], a]).sum())(np.eye(2))


def test_the_greatest_norm_of_nothing_is_zero():
    x = np.zeros((0, 1))
    y, dy = ft.jvp(lambda x: la.norm(x, np.inf, axis=(0, 1)), (x,), (x,))
    assert y == dy == 0
    assert ft.grad(lambda x: la.norm(x, np.inf))(np.zeros(0)).shape == (0,)


def test_the_sign_of_one_complex_determinant_has_its_hessian_by_reverse_over_reverse():
    A = np.array([[2, 0.3], [0.2, 3]]) + 1j * np.array([[0, 0.2], [0.3, 0.1]])
    V = np.array([[0.5, 1j], [-1j, 0.25]])

    def f(A):
        return np.real(la.slogdet(A)[0])

    twice = ft.grad(lambda A: np.real(np.sum(np.conj(ft.grad(f)(A)) * V)))(A)
    np.testing.assert_allclose(twice, ft.hvp(f, A, V)[1], rtol=1e-13)
