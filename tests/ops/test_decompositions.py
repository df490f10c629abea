"""Singular values, QR, pseudoinverses, general eigenvalues: NumPy's values and dtypes, derivatives
of both modes to second order, the singular points."""

import itertools

import mpmath
import numpy as np
import pytest
import scipy.linalg

import functrans as ft
from functrans._ops.linalg import triangular_solve
from functrans.errors import NotDifferentiable, UnsupportedError
from functrans.testing import check_grads
from tests.numpy.test_contractions import close

pytestmark = pytest.mark.usefixtures("unoptimised")

la = np.linalg
both = pytest.mark.parametrize("gradient", [ft.grad, ft.jacfwd], ids=["reverse", "forward"])
SHAPES = [(3, 3), (4, 3), (3, 4), (2, 4, 3)]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


def draw(*shapes, dtype=float, seed=0):
    rng = np.random.default_rng(seed)
    xs = [rng.normal(size=s) for s in shapes]
    if np.dtype(dtype).kind == "c":
        xs = [x + 1j * rng.normal(size=x.shape) for x in xs]
    xs = [x.astype(dtype) for x in xs]
    for x in xs:
        x.setflags(write=False)
    return xs


def check_vmap(f, *xs):
    many = [np.stack([x, 2 * x, x**2]) for x in xs]
    single = [ft.tree.leaves(f(*[x[i] for x in many])) for i in range(3)]
    found = ft.tree.leaves(ft.vmap(f)(*many))
    for a, column in zip(found, zip(*single, strict=True), strict=True):
        close(a, np.stack(column), rtol=1e-11)


def hermitian(a):
    return (a + a.mT.conj()) / 2


def without_signs(us):
    u, s, vh = us
    return np.abs(u), s, np.abs(vh)


def spectral(us, f):
    u, s, vh = us
    return (u * f(s)[..., None, :]) @ vh


def thin(a):
    return la.svd(a, full_matrices=False)


def full(a):
    """Thin svd, and the projector on what is left, which does not depend on its basis."""
    u, s, vh = la.svd(a)
    k = s.shape[-1]
    beyond = u[..., k:], vh[..., k:, :].mT.conj()
    return without_signs((u[..., :k], s, vh[..., :k, :])), [x @ x.mT.conj() for x in beyond]


CASES = {
    "svd thin": lambda a: without_signs(thin(a)),
    "svd full": full,
    "svd values": lambda a: la.svd(a, compute_uv=False),
    "svdvals": la.svdvals,
    "a function of singular values": lambda a: spectral(thin(a), np.tanh),
    "pinv": la.pinv,
    "pinv with rtol": lambda a: la.pinv(a, rtol=1e-8),
    "qr": lambda a: tuple(la.qr(a)),
    "qr r": lambda a: la.qr(a, mode="r"),
    "qr complete": lambda a: tuple(la.qr(a, "complete")),
    "cond": la.cond,
    "cond -2": lambda a: la.cond(a, -2),
    "norm 2": lambda a: la.norm(a, 2, axis=(-1, -2)),
    "norm -2": lambda a: la.matrix_norm(a, ord=-2),
    "norm nuc": lambda a: la.matrix_norm(a, ord="nuc", keepdims=True),
}


@shapes
@pytest.mark.parametrize("name", CASES)
def test_real_matrices_agree_with_differences_to_second_order(name, shape):
    f = CASES[name]
    (a,) = draw(shape)
    if name == "qr complete" and shape[-2] > shape[-1]:
        # only up to one complement vector is the basis not LAPACK's choice
        a = np.concatenate([a, draw((*shape[:-2], shape[-2], 1), seed=5)[0]], -1)[..., :4]
    check_grads(f, (a,), order=2, rtol=1e-6)


@shapes
@pytest.mark.parametrize("name", ["svdvals", "a function of singular values", "pinv", "qr"])
def test_complex_matrices_agree_with_differences_to_second_order(name, shape):
    check_grads(CASES[name], tuple(draw(shape, dtype=complex)), order=2, rtol=1e-6)


@shapes
@pytest.mark.parametrize("name", CASES)
def test_values_and_dtypes_are_those_of_numpy(name, shape):
    for dtype in (np.float32, np.float64, np.complex64):
        (a,) = draw(shape, dtype=dtype)
        expected = ft.tree.leaves(CASES[name](a))
        y, dy = ft.jvp(CASES[name], (a,), (a,))
        rtol = 1e-12 if dtype is np.float64 else 2e-4
        for value, slope, want in zip(*map(ft.tree.leaves, (y, dy)), expected, strict=True):
            assert (value.shape, value.dtype) == (want.shape, want.dtype)
            assert slope.dtype == want.dtype
            close(np.asarray(value), want, rtol=rtol)


@shapes
@pytest.mark.parametrize("name", CASES)
def test_vmap_is_a_loop(name, shape):
    check_vmap(lambda a: CASES[name](a) if name != "svd full" else CASES[name](a)[0], *draw(shape))


@pytest.mark.parametrize("shape", [(3, 3), (4, 4), (2, 3, 3)], ids=str)
@pytest.mark.parametrize("dtype", [float, complex])
def test_eigenvalues_and_eigenvectors_as_lapack_normalises_them(shape, dtype):
    (a,) = draw(shape, dtype=dtype)
    check_grads(lambda a: la.eig(a)[0], (a,), order=2, rtol=1e-6)
    check_grads(la.eigvals, (a,), order=2, rtol=1e-6)
    # up to a sign, which LAPACK turns at will
    check_grads(lambda a: la.eig(a).eigenvectors ** 2, (a,), order=2, rtol=1e-6)


@pytest.fixture(params=["as this NumPy", "always complex"])
def eigvals(request, monkeypatch):
    """NumPy's, and as from 2.5 on, which is complex also where all values are real."""
    original = la.eigvals
    if request.param == "always complex":

        def always_complex(f):
            def called(a):
                ys = f(a)
                dtype = np.result_type(np.asarray(ys[0]).dtype, np.complex64)
                return ys.astype(dtype) if f is original else [y.astype(dtype) for y in ys]

            return called

        monkeypatch.setattr(la, "eig", always_complex(la.eig))
        monkeypatch.setattr(la, "eigvals", always_complex(la.eigvals))
    return original


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_eigenvalues_are_real_where_numpys_are(eigvals, dtype):
    a = np.array([[2.0, 1.0], [3.0, -1.0]], dtype)
    w, dw = ft.jvp(eigvals, (a,), (a,))
    assert w.dtype == dw.dtype == ft.vjp(eigvals, a)[0].dtype == la.eigvals(a).dtype
    close(dw, la.eigvals(a), rtol=1e-12 if dtype is np.float64 else 1e-5)  # float32
    many = np.result_type(dtype, np.complex64)
    assert ft.vmap(eigvals)(a[None]).dtype == ft.jit(eigvals)(a).dtype == many
    values, vectors = ft.jvp(ft.numpy.linalg.eig, (a,), (a,))[0]
    assert values.dtype == vectors.dtype == la.eigvals(a).dtype
    slope = ft.grad(lambda a: eigvals(a).real.max())(a)
    close(slope, ft.jacfwd(lambda a: eigvals(a).real.max())(a), rtol=1e-5)  # float32
    assert slope.dtype == dtype


def test_eigenvalues_of_a_companion_matrix_move_as_the_roots_do():
    roots = np.array([1.0, 2.0, 4.0])

    def companion(c):
        return np.stack([-c, *np.eye(3)[:2]])

    c = np.poly(roots)[1:]
    found = ft.jacfwd(lambda c: la.eigvals(companion(c)))(c)
    w = la.eigvals(companion(c))
    slope = np.polyval(np.polyder(np.poly(roots)), w)
    close(np.asarray(found), -np.vander(w) / slope[:, None], rtol=1e-11)


def test_singular_values_agree_with_mpmath_where_they_are_close():
    u, v = la.qr(draw((3, 3))[0])[0], la.qr(draw((3, 3), seed=3)[0])[0]
    a = u @ np.diag([1, 1 - 1e-6, 0.3]) @ v
    (e,) = draw((3, 3), seed=4)

    def polar(a):
        return thin(a)[0] @ thin(a)[2]

    found = ft.jvp(polar, (a,), (e,))[1]
    with mpmath.workdps(60):
        h = mpmath.mpf(10) ** -20

        def exact(a):
            u, _, v = mpmath.svd_r(a)
            return u * v

        a, e = mpmath.matrix(a.tolist()), mpmath.matrix(e.tolist())
        expected = (exact(a + h * e) - exact(a - h * e)) / (2 * h)
    # the polar factor does not know that singular values are close; its two parts cancel
    close(np.asarray(found), np.array(expected.tolist(), float), rtol=1e-9)


# ---- pseudoinverse and least squares


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (4, 4)], ids=str)
@pytest.mark.parametrize("dtype", [float, complex])
def test_pinv_at_constant_rank_is_exact(shape, dtype):
    m, n = shape
    x, y = draw((m, 2), (2, n), dtype=dtype)
    check_grads(lambda x, y: la.pinv(x @ y, rtol=1e-8), (x, y), order=2, rtol=1e-6)


@pytest.mark.parametrize("f", [
    lambda a: np.sum(la.pinv(a, rcond=1e-14) * np.arange(6.0).reshape(a.shape[::-1])),
    lambda a: la.lstsq(a, np.arange(1.0, len(a) + 1), rcond=1e-14)[0][0],
], ids=["pinv", "lstsq"])
@pytest.mark.parametrize("shape", [(3, 2), (2, 3)])
def test_second_derivatives_near_a_singular_matrix_are_refused(f, shape):
    u, v = [la.qr(np.cos(np.arange(n * 2.0)).reshape(n, 2))[0] for n in shape]

    def along(a):
        return ft.jvp(ft.grad(f), (a,), (np.ones(shape),))[1]

    good, a = (u * [1.0, 1e-3]) @ v.T, (u * [1.0, 1e-9]) @ v.T
    assert np.isfinite(ft.grad(f)(a)).all()
    np.testing.assert_allclose(ft.jit(along)(good), along(good), rtol=1e-8)
    with pytest.raises(NotDifferentiable, match="nearly singular"):
        along(a)
    assert np.isnan(ft.jit(along)(a)).all()
    assert np.isnan(ft.vmap(along)(np.stack([good, a])).max(axis=(1, 2))).tolist() == [False, True]


def test_pinv_of_a_hermitian_matrix_is_differentiated_as_such():
    a = hermitian(draw((3, 3))[0])
    g = ft.grad(lambda a: la.pinv((a + a.T) / 2, hermitian=True)[0, 1])(a)
    close(g, hermitian(np.asarray(ft.grad(lambda a: la.inv(a)[0, 1])(a))), rtol=1e-10)


LEAST = {
    "tall": ((5, 3), (5,)), "tall matrix": ((5, 3), (5, 2)), "wide": ((2, 4), (2,)),
    "square": ((3, 3), (3, 2)),
}


@pytest.mark.parametrize("name", LEAST)
def test_least_squares_is_numpys_in_all_its_parts(name):
    a, b = draw(*LEAST[name])
    want = la.lstsq(a, b)
    for got in (ft.jvp(la.lstsq, (a, b), (a, b)), ft.jvp(lambda b: la.lstsq(a, b), (b,), (b,))):
        for x, y in zip(got[0], want, strict=True):
            close(np.asarray(x), np.asarray(y), rtol=1e-11)
    check_grads(lambda a, b: [la.lstsq(a, b)[i] for i in (0, 1, 3)], (a, b), order=2, rtol=1e-6)
    check_vmap(lambda a, b: la.lstsq(a, b)[0], a, b)


def test_least_squares_without_full_rank_follow_the_solution_of_least_norm():
    x, y, b = draw((4, 2), (2, 3), (4,))

    def f(x, y, b):
        return la.lstsq(x @ y, b)[0]

    found, residuals, rank, _ = ft.jvp(la.lstsq, (x @ y, b), (x @ y, b))[0]
    close(np.asarray(found), scipy.linalg.lstsq(x @ y, b)[0], rtol=1e-10)
    assert rank == 2 and residuals.shape == (0,)
    check_grads(f, (x, y, b), order=1, rtol=1e-6)


def test_the_rank_is_a_constant():
    a = np.ones((2, 2))
    rank, moved = ft.jvp(la.matrix_rank, (a,), (a,))
    assert rank == 1 and np.all(moved == 0)
    close(ft.vmap(la.matrix_rank)(np.stack([a, np.eye(2)])), np.array([1, 2]))
    close(ft.grad(lambda a: la.matrix_rank(a, tol=3.0) + a.sum())(a), a)


def test_tensors_are_solved_and_inverted_as_matrices():
    a, b = draw((2, 3, 3, 2), (2, 3))
    check_grads(la.tensorsolve, (a, b), order=2, rtol=1e-6)
    check_grads(lambda a, b: la.tensorsolve(a, b, axes=(0, 1)), (a, b), order=1, rtol=1e-6)
    check_grads(la.tensorinv, (a,), order=2, rtol=1e-6)
    a = a.reshape(2, 2, 3, 3)
    found = ft.jvp(lambda a: la.tensorsolve(a, b, axes=(0,)), (a,), (a,))[0]
    close(found, la.tensorsolve(a, b, axes=(0,)))


# ---- singular points of singular values


@both
def test_sums_of_singular_values_have_the_subgradient_of_least_norm(gradient):
    u, v = la.qr(draw((4, 4))[0])[0], la.qr(draw((3, 3), seed=3)[0])[0]
    for values in ([2.0, 2.0, 2.0], [2.0, 2.0, 0.0], [0.0, 0.0, 0.0]):
        a = (u[:, :3] * values) @ v.T
        expected = (u[:, :3] * np.sign(values)) @ v.T
        for f in (lambda a: la.svdvals(a).sum(), lambda a: la.norm(a, "nuc")):
            np.testing.assert_allclose(gradient(f)(a), expected, atol=1e-12)


def test_the_nuclear_norm_has_its_second_derivative_where_singular_values_coincide():
    hessian = ft.jacrev(ft.grad(lambda a: la.norm(a, "nuc")))(2 * np.eye(2)).reshape(4, 4)
    turn = np.array([0, 1, -1, 0]) / np.sqrt(2)  # 1 / (s_1 + s_2) along rotations
    close(np.asarray(hessian), np.outer(turn, turn) / 2)


@both
def test_a_product_without_rank_is_exact_where_the_zero_is_single(gradient):
    (w,) = draw((2, 2))
    for a in (np.diag([2.0, 0.0]), np.ones((2, 2))):
        found = gradient(lambda a: np.sum(w * spectral(la.svd(a), np.sin)))(a)
        close(np.asarray(found), slope_of_odd_sin(a, w), rtol=1e-12)


def slope_of_odd_sin(a, w):
    """The gradient of sum(w * u sin(s) vh): the derivative of the sine of the matrix in which
    ``a`` and its transpose stand beside the diagonal, the imaginary part of exp(i x)."""
    n, zero = len(a), np.zeros_like(a)
    x, e = np.block([[zero, a], [a.T, zero]]), np.block([[zero, w], [w.T, zero]])
    return scipy.linalg.expm_frechet(1j * x, 1j * e)[1].imag[:n, n:]


def test_the_polar_factor_is_exact_where_singular_values_coincide():
    (w,) = draw((3, 3))
    found = ft.grad(lambda a: np.sum(w * spectral(la.svd(a), np.ones_like)))(2 * np.eye(3))
    close(np.asarray(found), (w - w.T) / 4)


def test_the_projector_on_a_repeated_singular_space_is_exact():
    u, v = la.qr(draw((3, 3))[0])[0], la.qr(draw((3, 3), seed=3)[0])[0]
    a, (w,) = (u * [3.0, 3.0, 1.0]) @ v.T, draw((3, 3), seed=4)

    def by_vectors(a):
        u = la.svd(a)[0][:, :2]
        return np.sum(w * (u @ u.T))

    def by_the_other(a):
        u = la.svd(a)[0][:, 2]
        return -np.sum(w * np.outer(u, u))

    close(np.asarray(ft.grad(by_vectors)(a)), np.asarray(ft.grad(by_the_other)(a)), rtol=1e-10)


def test_a_truncated_product_does_not_mind_several_zeros():
    x, y, w = draw((5, 2), (2, 4), (5, 4))

    def f(x, y):
        u, s, vh = thin(x @ y)
        return np.sum(w * ((u[:, :2] * s[:2] ** 2) @ vh[:2]))

    check_grads(f, (x, y), order=1, rtol=1e-6)


OF_A_BASIS = {
    "a vector": lambda a: la.svd(a)[0][0, 1],
    "the product": lambda a: np.sum(np.array([[1.0, 2], [3, 4]]) * spectral(la.svd(a), np.sin)),
    "a product that is not seen": lambda a: spectral(la.svd(a), np.sin)[0, 1],
}


def test_what_needs_a_basis_of_a_repeated_singular_space_is_refused():
    with pytest.raises(NotDifferentiable, match=r"values 0 and 1 coincide \(gap 0.0e\+00 at 1\)"):
        ft.grad(OF_A_BASIS["a vector"])(np.eye(2))


def test_what_needs_a_basis_of_a_repeated_singular_space_is_no_number_in_a_batch():
    assert np.isnan(ft.vmap(ft.grad(OF_A_BASIS["a vector"]))(np.eye(2)[None])).any()


@pytest.mark.parametrize(
    ("name", "c"),
    [("the product", [[1, 2], [3, 4]]), ("a product that is not seen", [[0, 1], [0, 0]])],
)
def test_the_product_at_a_repeated_singular_value(name, c):
    """Slope f'(1) along what is symmetric, f(1) / 1 along what turns."""
    c = np.array(c, float)
    expected = np.cos(1) * (c + c.T) / 2 + np.sin(1) * (c - c.T) / 2
    gradient = ft.grad(OF_A_BASIS[name])
    close(gradient(np.eye(2)), expected)
    close(ft.vmap(gradient)(np.eye(2)[None])[0], expected)
    close(ft.jit(gradient)(np.eye(2)), expected)


@pytest.mark.parametrize(
    ("name", "slope"), [("the product", 5 * np.cos(1)), ("a product that is not seen", np.cos(1))]
)
def test_forward_mode_chooses_the_basis_of_a_repeated_singular_space(name, slope):
    mixing = np.array([[0.0, 1], [1, 0]])
    found = ft.jvp(OF_A_BASIS[name], (np.eye(2),), (mixing,))[1]
    np.testing.assert_allclose(found, slope, rtol=1e-14)


def test_the_error_says_which_matrix_of_a_stack():
    (w,) = draw((2, 2))
    with pytest.raises(NotDifferentiable, match=r"values 0 and 1 of matrix \(1,\) coincide"):
        ft.grad(lambda a: np.sum(w * la.svd(a)[0]))(np.stack([np.diag([1.0, 2]), np.eye(2)]))


@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (2, 3)], ids=str)
def test_vectors_of_zeros_are_refused(shape):
    (w,) = draw(shape)
    one_zero, all_zero = np.ones(shape), np.zeros(shape)
    product = ft.grad(lambda a: np.sum(w * spectral(thin(a), np.sin)))
    with pytest.raises(NotDifferentiable, match=r"singular value . is zero up to rounding \(0.0e"):
        product(all_zero)
    if shape != (2, 2):
        with pytest.raises(NotDifferentiable, match="singular value 1 is zero up to rounding"):
            product(one_zero)
        side = 0 if shape[0] == 3 else 2
        with pytest.raises(NotDifferentiable, match="singular value 1 is zero up to rounding"):
            ft.grad(lambda a: np.sum(w * thin(a)[side]))(one_zero)


def test_a_choice_of_lapacks_is_refused():
    (a,), (z,) = draw((4, 2)), draw((3, 3), dtype=complex)
    with pytest.raises(NotDifferentiable, match="complement of the singular vectors"):
        ft.grad(lambda a: la.svd(a)[0][0, 3])(a)
    with pytest.raises(NotDifferentiable, match="complement of the columns"):
        ft.grad(lambda a: la.qr(a, "complete")[0][0, 3])(a)
    with pytest.raises(NotDifferentiable, match="phase of the singular vectors"):
        ft.grad(lambda a: la.svd(a)[0][0, 0].real)(z)


# ---- singular points of the others


@both
def test_qr_of_dependent_columns_is_refused(gradient):
    with pytest.raises(NotDifferentiable, match="column 1 depends linearly"):
        gradient(lambda a: la.qr(a)[1].sum())(np.ones((3, 2)))
    assert np.isnan(ft.vmap(gradient(lambda a: la.qr(a)[1].sum()))(np.ones((1, 3, 2)))).any()


def test_symmetric_functions_of_repeated_eigenvalues_are_exact():
    close(ft.grad(lambda a: (la.eigvals(a) ** 2).sum().real)(np.eye(3)), 2 * np.eye(3))
    with pytest.raises(NotDifferentiable, match="eigenvalues 0 and 1 coincide"):
        ft.grad(lambda a: la.eigvals(a)[0].real)(np.eye(2))
    with pytest.raises(NotDifferentiable, match="eigenvalues 0 and 1 coincide"):
        ft.grad(lambda a: la.eig(a)[1][0, 1].real)(np.eye(2))


def test_forward_eigenvalues_that_coincide_and_part_have_no_slope():
    a = np.diag([1.0, 1, 2])
    mixing, parting = np.outer([1.0, 0, 0], [0, 1, 0]), np.diag([1.0, 0, 0])
    for t in (mixing, mixing.T, parting):
        known = np.isfinite([
            ft.jvp(la.eigvals, (a,), (t,))[1],
            ft.jit(lambda a, t=t: ft.jvp(la.eigvals, (a,), (t,))[1])(a),
            ft.vmap(lambda a, t=t: ft.jvp(la.eigvals, (a,), (t,))[1])(a[None])[0],
        ])
        np.testing.assert_array_equal(known, [[False, False, True]] * 3)
    assert np.isnan(ft.jacfwd(lambda a: la.eigvals(a)[0])(np.eye(2))).all()
    close(ft.jvp(la.eigvals, (a,), (a @ a,))[1].real, [1.0, 1, 4])  # those that move alike have one


@pytest.mark.parametrize("outer", [ft.jacfwd, ft.jacrev])
@pytest.mark.parametrize("inner", [ft.jacfwd, ft.jacrev])
def test_second_derivatives_of_repeated_eigenvalues_are_not_silently_zero(outer, inner):
    """Of the sum of their squares, the trace of a @ a, whose second derivatives are 0 and 2."""
    assert np.isnan(outer(inner(lambda a: (la.eigvals(a) ** 2).sum().real))(np.eye(2))).all()


@both
def test_defective_matrices_are_refused(gradient):
    with pytest.raises(NotDifferentiable, match="defective"):
        gradient(lambda a: la.eigvals(a).sum().real)(np.array([[1.0, 1], [0, 1]]))


# ---- triangular systems large enough to be solved by halves

KINDS = list(itertools.product([False, True], repeat=3))


@pytest.mark.parametrize("lower, transposed, unit", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, complex])
def test_large_triangular_systems_are_scipys(lower, transposed, unit, dtype):
    a, b = draw((130, 130), (2, 130, 3), dtype=dtype)
    a = (a / 12 + 2 * np.eye(130)).astype(dtype)
    y = triangular_solve(a, b, lower=lower, transposed=transposed, unit=unit)
    assert y.dtype == b.dtype
    options = {"trans": int(transposed), "lower": lower, "unit_diagonal": unit}
    for found, right in zip(y, b, strict=True):
        want = scipy.linalg.solve_triangular(a, right, **options)
        close(found, want, rtol=1e-3 if dtype is np.float32 else 1e-12)


# ---- bad input


def test_bad_matrices_raise_as_in_numpy():
    for f in (la.svd, la.svdvals, la.pinv, la.qr, la.eig, la.eigvals, la.lstsq):
        with pytest.raises(la.LinAlgError, match="two-dimensional"):
            ft.jvp(lambda a, f=f: f(a, a) if f is la.lstsq else f(a), (np.ones(3),), (np.ones(3),))
    with pytest.raises(la.LinAlgError, match="square"):
        ft.grad(lambda a: la.eigvals(a).sum())(np.ones((2, 3)))
    with pytest.raises(la.LinAlgError, match="Incompatible"):
        ft.grad(lambda a: la.lstsq(a, np.ones(3))[0].sum())(np.ones((2, 2)))
    with pytest.raises(la.LinAlgError, match="empty"):
        ft.jvp(la.cond, (np.ones((0, 2)),), (np.ones((0, 2)),))
    with pytest.raises(la.LinAlgError, match="prod"):
        ft.grad(lambda a: la.tensorsolve(a, np.ones(2)).sum())(np.ones((2, 3)))
    with pytest.raises(ValueError, match="ind"):
        ft.grad(lambda a: la.tensorinv(a, 0).sum())(np.ones((2, 2)))
    with pytest.raises(ValueError, match="mode"):
        ft.grad(lambda a: la.qr(a, "x").sum())(np.eye(2))
    with pytest.raises(UnsupportedError, match="mode='reduced'"):
        ft.grad(lambda a: la.qr(a, "raw")[0].sum())(np.eye(2))
    with pytest.raises(UnsupportedError, match="one number for rcond"):
        ft.grad(lambda a: la.pinv(a, np.ones(2)).sum())(np.eye(2))
    for f in (la.pinv, la.matrix_rank):
        with pytest.raises(ValueError, match="both"):
            ft.jvp(lambda a, f=f: f(a, 1e-3, rtol=1e-3), (np.eye(2),), (np.eye(2),))


EMPTY = {
    "eigh": lambda x: la.eigh(x)[1],
    "eigvalsh": la.eigvalsh,
    "eigvals": la.eigvals,
    "eigenvectors": lambda x: la.eig(x)[1],
    "svd": lambda x: la.svd(x, full_matrices=False)[0],
    "svdvals": la.svdvals,
    "qr": lambda x: la.qr(x)[0],
    "nuclear norm": lambda x: la.norm(x, "nuc", axis=(-2, -1)),
}


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 1, 1), (0, 2, 2)], ids=str)
@pytest.mark.parametrize("name", EMPTY)
def test_of_nothing_the_derivative_is_nothing(name, shape):
    f, x = EMPTY[name], np.zeros(shape)
    y, dy = ft.jvp(f, (x,), (x,))
    assert y.shape == dy.shape == f(x).shape

    def pull(x):
        return ft.vjp(f, x)[1](y)[0]

    assert pull(x).shape == ft.jit(pull)(x).shape == ft.jvp(pull, (x,), (x,))[1].shape == shape


def test_condition_numbers_of_no_matrices_are_none():
    assert ft.vmap(la.cond)(np.zeros((0, 2, 2))).shape == (0,)
    assert ft.jvp(la.cond, (np.zeros((0, 2, 3)),), (np.zeros((0, 2, 3)),))[1].shape == (0,)
    with pytest.raises(la.LinAlgError, match="empty"):
        ft.grad(la.cond)(np.zeros((2, 0)))
