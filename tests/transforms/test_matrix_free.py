"""Products with derivative matrices, their diagonals and traces, without the matrices."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse.linalg import LinearOperator, cg, eigsh

import functrans as ft
from functrans.errors import (
    ArgumentError,
    CaptureError,
    KinkWarning,
    NotDifferentiable,
    UnsupportedError,
)
from tests.covering import covering
from tests.drawing import generator

pytestmark = pytest.mark.usefixtures("unoptimised")

RNG = generator(7)
A = RNG.normal(size=(4, 3))
X = RNG.normal(size=3)
Z = X + 1j * RNG.normal(size=3)


def residuals(x):
    return np.tanh(A @ x) * x[0]


def loss(r):
    return np.sum(np.cosh(r)) + r[0] * r[1]


def scalar(x):
    return np.sum(np.tanh(A @ x) ** 2) * x[1]


def waves(x):
    return np.exp(1j * x) * np.sum(x**2)


def analytic(z):
    return np.sin(A @ z)


def energy(z):
    return np.sum(np.sin(z) ** 2) * z[0]


def gauss_newton():
    J = ft.jacobian(residuals)(X)
    return J.T @ ft.hessian(loss)(residuals(X)) @ J


# ---- linear operators

OPERATORS = {
    "jacobian": (lambda: ft.linear_operator(residuals, X), lambda: ft.jacobian(residuals)(X)),
    "of complex values": (lambda: ft.linear_operator(waves, X), lambda: ft.jacobian(waves)(X)),
    "holomorphic": (lambda: ft.linear_operator(analytic, Z), lambda: ft.jacobian(analytic)(Z)),
    "hessian": (lambda: ft.linear_operator(scalar, X, "hessian"), lambda: ft.hessian(scalar)(X)),
    "complex hessian": (
        lambda: ft.linear_operator(energy, Z, kind="hessian"), lambda: ft.hessian(energy)(Z)
    ),
    "gauss_newton": (
        lambda: ft.linear_operator(residuals, X, "gauss_newton", loss=loss), gauss_newton
    ),
    "of squares": (
        lambda: ft.linear_operator(residuals, X, "gauss_newton"),
        lambda: ft.jacobian(residuals)(X).T @ ft.jacobian(residuals)(X),
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_acts_as_its_matrix_its_transpose_and_its_adjoint(name):
    operator, matrix = OPERATORS[name][0](), np.asarray(OPERATORS[name][1]())
    assert isinstance(operator, LinearOperator)
    assert (operator.shape, operator.dtype) == (matrix.shape, matrix.dtype)
    m, n = matrix.shape
    ways = (operator, matrix, n), (operator.T, matrix.T, m), (operator.H, matrix.conj().T, m)
    for L, M, k in ways:
        V = RNG.normal(size=(k, 5))
        for v in (V[:, 0], V[:, :1], V, V.astype(np.float32), V * (1 + 2j), V[:, ::-2], V[:, :0]):
            y = L @ v
            assert_allclose(y, M @ v, rtol=1e-13, atol=1e-13)
            assert type(y) is np.ndarray


def test_an_operator_of_containers_acts_on_what_ravel_makes_of_them():
    params = {"w": A, "b": X.astype(np.float32), "steps": 3}

    def f(p):
        return {"y": p["w"] @ p["b"], "n": np.sum(p["b"] ** 3)}

    J = ft.linear_operator(f, params)
    assert (J.shape, J.dtype) == ((5, 15), np.float64)
    v, back = ft.tree.ravel({"w": RNG.normal(size=A.shape), "b": X.astype(np.float32)})
    t = {**back(v), "steps": 0.0}
    expected = ft.jvp(lambda p: f({**p, "steps": 3}), {**params, "steps": 3.0}, t)[1]
    assert_allclose(J @ v, ft.tree.ravel(expected)[0], rtol=1e-6)  # b is of float32
    u = RNG.normal(size=5)
    assert (J @ v) @ u == pytest.approx(v @ (J.T @ u), rel=1e-6)  # likewise


def test_operators_of_numbers_and_of_nothing():
    J = ft.linear_operator(np.sin, 0.5)
    assert_allclose(J @ np.ones(1), [np.cos(0.5)])
    assert ft.linear_operator(lambda x: x * 2, np.zeros(0)).shape == (0, 0)
    assert ft.linear_operator(np.sin, X.astype(np.float32)).dtype == np.float32


def test_solvers_take_operators():
    def f(x):
        return np.sum(np.cosh(x)) + 0.5 * (x @ x) + 0.1 * np.sum(x[1:] * x[:-1])

    x = np.linspace(-1, 1, 30)
    H, matrix = ft.linear_operator(f, x, "hessian"), ft.hessian(f)(x)
    step, info = cg(H, np.ones(30), rtol=1e-12)
    assert info == 0
    assert_allclose(matrix @ step, np.ones(30), rtol=1e-9)
    assert_allclose(eigsh(H, 1, v0=np.ones(30))[0], np.linalg.eigvalsh(matrix)[-1:], rtol=1e-10)


def test_the_function_of_an_operator_runs_once():
    calls = []
    J = ft.linear_operator(lambda x: calls.append(0) or np.sin(x), X)
    J @ X, J.T @ X, J @ np.eye(3)
    assert len(calls) == 1


def test_an_operator_notices_that_what_it_reads_has_changed():
    small, large = X.copy(), np.ones(40_000)  # the small one is copied
    J, L = ft.linear_operator(np.sin, small), ft.linear_operator(np.sin, large)
    small[0] = large[0] = 5.0
    assert_array_equal(J @ X, np.cos(X) * X)
    with pytest.raises(CaptureError):
        L @ large


REFUSED = [
    (lambda: ft.linear_operator(np.abs, Z), "`absolute` maps .* and is not holomorphic"),
    (
        lambda: ft.linear_operator(lambda p: p["a"].real * p["b"], {"a": Z, "b": X}),
        r"maps complex128\[3\], float64\[3\] to float64\[3\] and is not holomorphic",
    ),
    (
        lambda: ft.linear_operator(lambda z: np.sum(abs(z)), Z, "hessian"),
        "`<lambda>` is a real function of complex numbers, whose gradient is not holomorphic",
    ),
    (
        lambda: ft.linear_operator(residuals, X, "hessian"),
        r"a Hessian is of a scalar function, but `residuals` returned float64\[4\]\. Reduce",
    ),
    (lambda: ft.linear_operator(waves, X, "gauss_newton"), "Gauss-Newton .* `waves` maps float64"),
    (lambda: ft.linear_operator(residuals, X, "fisher"), "kind must be one of .* but is 'fisher'"),
    (lambda: ft.linear_operator(residuals, X, loss=loss), 'loss is for kind="gauss_newton"'),
    (
        lambda: ft.jit(lambda x: ft.linear_operator(residuals, x) @ x)(X),
        "the argument of `residuals` is traced, .* Use jvp, vjp, hvp or ggnvp inside",
    ),
    (lambda: ft.linear_operator(X, X), "linear_operator needs a function"),
    (lambda: ft.linear_operator(residuals, np.arange(3)), "has nothing to differentiate"),
]


@pytest.mark.parametrize(("call", "text"), REFUSED, ids=range(len(REFUSED)))
def test_operators_that_cannot_be_are_refused(call, text):
    with pytest.raises((ArgumentError, NotDifferentiable), match=text):
        call()


# ---- Gauss-Newton products


def test_ggnvp_is_a_product_with_the_gauss_newton_matrix():
    v = RNG.normal(size=3)
    value, product = ft.ggnvp(loss, residuals, X, v)
    assert value == loss(residuals(X))
    assert_allclose(product, gauss_newton() @ v, rtol=1e-13)


def test_of_a_linear_function_it_is_the_hessian_product():
    v = RNG.normal(size=3)
    expected = ft.hvp(lambda x: loss(A @ x), X, v)
    for y, z in zip(ft.ggnvp(loss, lambda x: A @ x, X, v), expected, strict=True):
        assert_allclose(y, z, rtol=1e-13)


def test_ggnvp_takes_tuples_and_containers():
    def model(p, scale):
        return {"r": np.tanh(A @ p["w"]) * scale}

    v = RNG.normal(size=3)
    _, (product, slope) = ft.ggnvp(
        lambda y: loss(y["r"]), model, ({"w": X}, 2.0), ({"w": v}, 0.5)
    )
    J = ft.jacobian(lambda x: np.tanh(A @ x[:3]) * x[3])(np.append(X, 2.0))
    H = ft.hessian(loss)(2.0 * np.tanh(A @ X))
    assert_allclose([*product["w"], slope], J.T @ H @ J @ np.append(v, 0.5), rtol=1e-12)


def test_ggnvp_under_vmap_and_jit():
    G = gauss_newton()
    assert_allclose(ft.vmap(lambda v: ft.ggnvp(loss, residuals, X, v)[1])(np.eye(3)), G)
    assert_allclose(ft.jit(lambda v: ft.ggnvp(loss, residuals, X, v)[1])(X), G @ X, rtol=1e-12)


# ---- diagonals and traces


@ft.custom_jvp
def cube(x):
    return x**3


cube.defjvp(lambda primals, tangents: (cube(*primals), 3 * primals[0] ** 2 * tangents[0]))


@ft.custom_vjp
def square(x):
    return x * x


square.defvjp(lambda x: (x * x, x), lambda x, ct: (2 * x * ct,))


def closing_over(x):
    """A function with a rule that closes over a traced value."""

    @ft.custom_jvp
    def scaled(u):
        return u**2 * x

    scaled.defjvp(lambda ps, ts: (scaled(*ps), 2 * ps[0] * x * ts[0]))
    return scaled(np.sin(x))


FUNCTIONS = {
    "scalar": scalar,
    "eigenvalues": lambda x: np.linalg.eigvalsh(np.outer(x, x) + np.diag(x)),
    "determinant": lambda x: np.linalg.slogdet(np.outer(x, x) + np.eye(3))[1] * x,
    "complex values": waves,
    "a jitted function": ft.jit(lambda x: np.tanh(A @ np.tanh(x)) * x[1]),
    "a loop": lambda x: ft.fori_loop(0, 3, lambda i, y: np.sin(y) * x, x),
    "a checkpoint": ft.checkpoint(lambda x: np.exp(np.sin(x) * x[0])),
    "rules": lambda x: cube(np.sin(x)) * square(x),
    "a gradient": ft.grad(lambda x: np.sum(np.sin(x) ** 2 * x[::-1])),
    "integers beside": lambda x: (x * np.arange(3) + np.floor(x)) ** 2,
    "containers": lambda x: {"a": x[0] * x[1] ** 2, "b": (np.where(x > 0, x**3, x), 5.0)},
}


def trace_of(H):
    return ft.tree.map(lambda h: np.trace(h, axis1=-2, axis2=-1) if np.ndim(h) else h, H)


@pytest.mark.parametrize(("name", "way"), covering(FUNCTIONS, ["plain", "jit", "vmap"], meet=1))
def test_the_laplacian_is_the_trace_of_the_hessian(name, way):
    f = FUNCTIONS[name]
    ways = {"plain": lambda g: g(X), "jit": lambda g: ft.jit(g)(X),
            "vmap": lambda g: ft.tree.map(lambda y: y[0], ft.vmap(g)(X[None]))}
    y = ways[way](ft.laplacian(f))
    expected = trace_of(ft.hessian(f)(X))
    for a, b in zip(ft.tree.leaves(y), ft.tree.leaves(expected), strict=True):
        assert_allclose(a, b, rtol=1e-11, atol=1e-11)


def test_a_rule_that_closes_over_the_argument_is_refused_as_by_nested_jvp():
    with pytest.raises(UnsupportedError, match=r"custom_jvp\(scaled\) closes over .* laplacian"):
        ft.laplacian(closing_over)(X)


def test_values_of_a_checkpoint_are_those_of_all_directions():
    def f(x):
        y = ft.checkpoint(lambda a, b: np.tanh(a) * b)(np.exp(x), np.cos(x))
        return np.sum(np.sin(y) * y[::-1])

    expected = np.trace(ft.hessian(f)(X))
    assert ft.laplacian(f)(X) == pytest.approx(expected, rel=1e-13)
    assert ft.jit(ft.laplacian(f))(X) == pytest.approx(expected, rel=1e-13)
    assert ft.grad(ft.laplacian(f))(X) == pytest.approx(
        ft.grad(lambda x: np.trace(ft.hessian(f)(x)))(X), rel=1e-12
    )


def test_the_laplacian_of_a_harmonic_function_is_zero():
    x = np.array([0.3, -1.2, 2.0])
    assert abs(ft.laplacian(lambda x: 1 / np.linalg.norm(x))(x)) < 1e-15
    assert ft.laplacian(lambda x: x @ x)(np.zeros(3)) == 6.0


def test_the_laplacian_goes_through_the_function_once():
    calls = []
    ft.laplacian(lambda x: calls.append(0) or np.sum(np.sin(x)))(np.ones(50))
    assert len(calls) == 1


def test_it_keeps_the_type_takes_numbers_and_is_zero_of_nothing_and_of_lines():
    assert ft.laplacian(lambda x: np.sum(x**3))(X.astype(np.float32)).dtype == np.float32
    assert ft.laplacian(lambda x: x**3)(2.0) == 12.0
    assert ft.laplacian(lambda x: np.sum(x**3))(np.zeros(0)) == 0.0
    assert_array_equal(ft.laplacian(lambda x: A @ x)(X), np.zeros(4))
    assert ft.laplacian(lambda x: 2.0)(X) == 0.0


@pytest.mark.parametrize("f", [
    lambda x: np.sum(np.sqrt(x)),  # an infinite slope times no motion
    lambda x: np.sum(np.sqrt(x * 0.0 + 0.0 * x[1])),
    lambda x: np.sum(np.abs(x) ** 3),
    lambda x: np.linalg.norm(x) ** 2,
    lambda x: np.sum(x ** np.array([0.0, 1.0, 2.0])),
    lambda x: np.prod(x),
    lambda x: np.sum(np.maximum(x, 0.0) * x),
], ids=range(7))
def test_special_points_are_those_of_nested_jvp(f):
    x = np.array([0.0, 1.0, 0.0])

    def twice(e):
        return ft.jvp(lambda z: ft.jvp(f, z, e)[1], x, e)[1]

    with np.errstate(all="ignore"):
        expected = np.sum([twice(e) for e in np.eye(3)])
        assert_array_equal(ft.laplacian(f)(x), expected)
        assert_array_equal(ft.hessian_diagonal(f)(x), [twice(e) for e in np.eye(3)])


def test_where_eigenvalues_coincide_a_smooth_function_has_its_laplacian():
    def f(a):
        w, v = np.linalg.eigh((a + a.T) / 2)
        return np.sum((v * np.exp(w)) @ v.T)

    def same(a):
        return np.sum(ft.scipy.linalg.expm((a + a.T) / 2))

    assert_allclose(ft.laplacian(f)(np.eye(2)), ft.laplacian(same)(np.eye(2)), rtol=1e-13)
    assert_allclose(ft.laplacian(same)(np.eye(2)), 3 * np.e, rtol=1e-13)


def test_kinks_are_noticed():
    with ft.config(kinks="warn"), pytest.warns(KinkWarning, match=r"laplacian\(<lambda>\)"):
        ft.laplacian(lambda x: np.sum(np.abs(x)))(np.zeros(2))


def test_the_diagonal_is_that_of_the_hessian():
    H = ft.hessian(scalar)(X)
    diagonal = ft.hessian_diagonal(scalar)
    assert_allclose(diagonal(X), np.diag(H), rtol=1e-13)
    assert_allclose(ft.jit(diagonal)(X), np.diag(H), rtol=1e-12)
    assert_allclose(ft.vmap(diagonal)(X[None])[0], np.diag(H), rtol=1e-13)
    gradient = ft.grad(lambda x: np.sum(diagonal(x)))(X)
    assert_allclose(gradient, ft.grad(ft.laplacian(scalar))(X), rtol=1e-12)


def test_diagonal_and_laplacian_of_one_argument_among_others():
    def f(scale, p):
        return scale * np.sum(p["a"] ** 3) * p["b"] ** 2

    p = {"a": X, "b": 2.0}
    D = ft.hessian_diagonal(f, argnums="p")(3.0, p=p)
    assert_allclose(D["a"], 3 * 6 * X * 4)
    assert_allclose(D["b"], 3 * 2 * np.sum(X**3))
    assert_allclose(ft.laplacian(f, "p['a']")(3.0, p), np.sum(D["a"]))
    assert_allclose(ft.laplacian(f, 1)(3.0, p), np.sum(D["a"]) + D["b"])


def test_diagonals_and_laplacians_that_cannot_be_are_refused():
    with pytest.raises(NotDifferentiable, match=r"hessian_diagonal needs a scalar .* float64\[4\]"):
        ft.hessian_diagonal(residuals)(X)
    for transform in (ft.hessian_diagonal, ft.laplacian):
        name = transform.__name__
        with pytest.raises(NotDifferentiable, match=f"{name}: argument 0 of `energy` is complex"):
            transform(energy)(Z)
        with pytest.raises(ArgumentError, match=rf"{name}: argnums must be one .* \(0, 1\)"):
            transform(energy, argnums=(0, 1))
        with pytest.raises(ArgumentError, match=f"{name} needs a function"):
            transform(X)


# ---- estimates


def test_the_estimate_is_off_by_about_its_standard_error():
    exact = ft.laplacian(scalar)(X)
    estimates = [ft.hutchinson(scalar, X, samples=50, seed=seed) for seed in range(20)]
    off = [abs(y - exact) / error for y, error in estimates]
    assert max(off) < 4  # of 20 draws that are fixed
    assert np.sqrt(np.mean(np.square(off))) == pytest.approx(1, rel=0.5)


def test_the_spread_of_samples_is_that_of_the_entries_off_the_diagonal():
    H = np.asarray(ft.hessian(scalar)(X))
    variance = 2 * np.sum((H - np.diag(np.diag(H))) ** 2)
    _, error = ft.hutchinson(scalar, X, samples=4000)
    assert error == pytest.approx(np.sqrt(variance / 4000), rel=0.1)


def test_a_diagonal_matrix_is_estimated_exactly():
    value, error = ft.hutchinson(lambda x: np.sum(x**3), X, samples=2)
    assert value == pytest.approx(6 * X.sum(), rel=1e-14)
    assert error < 1e-14
    value, error = ft.hutchinson(lambda x: np.sum(x**3), X, samples=1)
    assert value == pytest.approx(6 * X.sum(), rel=1e-14)
    assert np.isnan(error)


def test_hutch_plus_plus_is_exact_for_matrices_of_low_rank():
    B = RNG.normal(size=(2, 40))

    def f(x):
        return np.sum((B @ x) ** 2) / 2

    exact = np.sum(B**2)
    plain = ft.hutchinson(f, np.ones(40), samples=12)
    better = ft.hutchinson(f, np.ones(40), samples=12, method="hutch++")
    assert abs(plain.estimate - exact) > 1e-3 * exact
    assert better.estimate == pytest.approx(exact, rel=1e-12)
    assert better.standard_error < 1e-12 * exact


def test_the_divergence_is_the_trace_of_the_jacobian():
    def field(x):
        return np.tanh(A[:3] @ x)

    exact = np.trace(ft.jacobian(field)(X))
    y, error = ft.hutchinson(field, X, samples=400, kind="jacobian")
    assert abs(y - exact) < 4 * error
    full = ft.hutchinson(field, X, samples=9, kind="jacobian", method="hutch++")
    assert full.estimate == pytest.approx(exact, rel=1e-12)


def test_estimates_repeat_and_a_generator_goes_on():
    assert ft.hutchinson(scalar, X, 5, seed=3) == ft.hutchinson(scalar, X, 5, seed=3)
    rng = np.random.default_rng(0)
    assert ft.hutchinson(scalar, X, 5, rng) != ft.hutchinson(scalar, X, 5, rng)


@pytest.mark.parametrize("method", ["hutchinson", "hutch++"])
def test_estimates_go_through_transforms(method):
    def estimate(x):
        return ft.hutchinson(scalar, x, samples=9, method=method)

    expected = estimate(X)
    for y in (ft.jit(estimate)(X), ft.tree.map(lambda v: v[0], ft.vmap(estimate)(X[None]))):
        assert_allclose(y, expected, rtol=1e-9, atol=1e-12)
    slope = ft.grad(lambda x: estimate(x).estimate)(X)
    if method == "hutch++":  # exact, since a third of the products spans all directions
        assert_allclose(slope, ft.grad(ft.laplacian(scalar))(X), rtol=1e-11)
    along = ft.jvp(lambda x: estimate(x).estimate, X, X)[1]
    assert along == pytest.approx(slope @ X, rel=1e-11)


def test_estimates_that_cannot_be_are_refused():
    with pytest.raises(NotDifferentiable, match=r"of a square matrix, .* float64\[4\] for float64"):
        ft.hutchinson(residuals, X, kind="jacobian")
    with pytest.raises(NotDifferentiable, match="hutchinson: a Hessian is of a scalar function"):
        ft.hutchinson(residuals, X)
    with pytest.raises(NotDifferentiable, match="the argument of `energy` is complex"):
        ft.hutchinson(energy, Z)
    for samples, method in ((0, "hutchinson"), (2, "hutch++"), (1.5, "hutchinson")):
        with pytest.raises(ArgumentError, match=r"samples must be an int of at least [13], but is"):
            ft.hutchinson(scalar, X, samples, method=method)
    with pytest.raises(ArgumentError, match=r"method must be one of hutchinson, hutch\+\+"):
        ft.hutchinson(scalar, X, method="lanczos")
    with pytest.raises(ArgumentError, match="kind must be one of hessian, jacobian, but is 3"):
        ft.hutchinson(scalar, X, kind=3)
