"""Special functions away from the samples of the table: far points, poles, refusals, names."""

import itertools

import mpmath as mp
import numpy as np
import pytest
import scipy.special as sp

import functrans as ft
from functrans._compile.lowering import formulas
from functrans._compile.run.machine import NativeUnavailable, local
from functrans._compile.schedule.kernels import HostStep
from functrans._ops.declare import TABLE
from functrans.errors import NotDifferentiable, UnsupportedError
from functrans.scipy import special
from functrans.scipy.special.functions import MEANINGS
from tests.table.references import SPECIAL

pytestmark = pytest.mark.usefixtures("seldom_optimised")

# ---- far points: name, operands, and in which the derivatives are taken

FAR = [
    ("erfcx", (1e4,), 0), ("erfcx", (6.9,), 0), ("erfcx", (-3.0,), 0), ("dawsn", (50.0,), 0),
    ("dawsn", (-6.9,), 0), ("expit", (40.0,), 0), ("expit", (-700.0,), 0),
    ("log_expit", (50.0,), 0),
    ("log_ndtr", (-40.0,), 0), ("log_ndtr", (-1e5,), 0), ("log_ndtr", (8.0,), 0),
    ("kl_div", (1 + 1e-9, 1.0), 0), ("kl_div", (3.0, 1e9), 0), ("rel_entr", (1e-300, 2.0), 0),
    ("exprel", (1e-9,), 0), ("exprel", (-30.0,), 0), ("boxcox", (2.0, 1e-9), 1),
    ("boxcox1p", (1e-9, 0.5), 1), ("inv_boxcox", (1.5, 1e-9), 1), ("pseudo_huber", (1.0, 1e-4), 0),
    ("pseudo_huber", (1e-4, 1e4), 1), ("pseudo_huber", (1.0, 1e200), 0),
    ("pseudo_huber", (1.0, 1e200), 1), ("ive", (0, 1e5), 1), ("ive", (3, 50.0), 1),
    ("ive", (2, 29.0), 1), ("kve", (2, 1e4), 1), ("kve", (1.5, 20.0), 1), ("i0e", (1e6,), 0),
    ("gammainc", (1e4, 9.9e3), 0), ("gammainc", (1e-3, 1e-5), 0), ("gammainc", (1e-6, 3.0), 0),
    ("gammainc", (200.0, 5.0), 0), ("gammainc", (1e4, 1e4), 1), ("gammaincc", (3.0, 90.0), 0),
    ("betainc", (500.0, 800.0, 0.4), 0), ("betainc", (0.01, 3.0, 1e-9), 1),
    ("betainc", (500.0, 800.0, 0.4), 2), ("psi", (1e8,), 0), ("gammaln", (1e10,), 0),
    ("gammaln", (1e-200,), 0), ("gamma", (-2.5,), 0), ("rgamma", (-20.25,), 0),
    ("rgamma", (1e-9,), 0),
    ("zeta", (2, -0.5), 1), ("zeta", (3, 1e7), 1), ("spence", (1.0,), 0), ("spence", (1e-9,), 0),
    ("ellipk", (1e-12,), 0), ("ellipk", (-50.0,), 0), ("ellipkm1", (1e-12,), 0),
    ("ellipe", (0.999,), 0), ("jv", (2, 1e-8), 1), ("jv", (0, 500.0), 1), ("j1", (1e-10,), 0),
    ("kv", (1.5, 100.0), 1), ("sine_integral", (1e-8,), 0), ("expn", (0, 2.0), 1),
    ("sinh_integral", (1e-9,), 0), ("hyp2f1", (1, 2, 3, 1e-12), 3), ("hyp1f1", (1, 3, -30.0), 2),
    ("eval_legendre", (5, 1.0), 1), ("eval_chebyt", (6, -1.0), 1), ("ndtri", (1e-30,), 0),
    ("wrightomega", (-50.0,), 0), ("lambertw", (1e8, 0), 0), ("poch", (3.5, 2.0), 1),
    ("zeta", (1.5, 0.1), 0), ("zeta", (30.0, 2.5), 0), ("riemann_zeta", (0.5,), 0),
    ("ellipkinc", (1.5, 0.999), 1), ("ellipkinc", (7.0, -5.0), 1), ("ellipeinc", (0.1, 0.5), 1),
    ("ellipeinc", (-4.0, 0.9), 1), ("ellipkinc", (0.7, 1e-9), 1), ("ellipeinc", (1.2, 0.4), 0),
    ("elliprf", (1e-9, 2.0, 1e4), 0), ("elliprd", (2.0, 2.0, 2.0), 2), ("elliprc", (2.0, -1.5), 1),
    ("elliprc", (2.0, -1.5), 0), ("elliprd", (1e-10, 2.0, 1e6), 0),
    ("elliprj", (1.0, 2.0, 3.0, 1e-5), 3), ("elliprg", (1e5, 2.0, 1e-3), 2), ("aie", (1e4,), 0),
    ("bie", (1e3,), 0), ("aipe", (50.0,), 0), ("bipe", (90.0,), 0),
    ("stdtr", (3.5, 1e-5), 0), ("stdtr", (1e3, -2.0), 0), ("stdtr", (2.5, 1e3), 0),
]
# Where SciPy's own value is no better, or the second derivative is a difference of large terms.
COARSE = {
    ("gammaln", (1e10,)): 1e-12, ("jv", (0, 500.0)): 1e-11, ("kve", (1.5, 20.0)): 1e-10,
    ("ive", (2, 29.0)): 1e-10, ("dawsn", (-6.9,)): 1e-11, ("erfcx", (6.9,)): 1e-11,
    # the slope in v is of the order of 1 / v^2, a difference of terms of 1 / v
    ("stdtr", (1e3, -2.0)): 1e-9,
    ("gammainc", (1e4, 1e4)): 1e-11, ("gammainc", (1e4, 9.9e3)): 1e-11,
    ("betainc", (500.0, 800.0, 0.4)): 1e-11,
}


def exactly(name, operands, i, order):
    """The derivative by mpmath, with as many digits as the points need."""
    large = max([abs(x) for x in operands]) > 1e50
    with mp.workdps(700 if large else 60):
        def along(h):
            xs = [mp.mpf(x) if isinstance(x, float) else x for x in operands]
            xs[i] = xs[i] + h
            return SPECIAL[name](*xs)

        scale = abs(operands[i]) or 1.0
        return float(mp.re(mp.diff(along, 0, order, h=mp.mpf(scale) * mp.mpf(10) ** -18)))


@pytest.mark.parametrize(("name", "operands", "i"), FAR, ids=str)
def test_derivatives_keep_their_digits_at_far_points(name, operands, i):
    row = TABLE[f"special.{name}"]

    def f(x):
        return row(*operands[:i], x, *operands[i + 1 :])

    first = ft.derivative(f)
    rtol = COARSE.get((name, operands), 1e-12)
    found = [complex(first(operands[i])), complex(ft.derivative(first)(operands[i]))]
    expected = [exactly(name, operands, i, order) for order in (1, 2)]
    np.testing.assert_allclose(found, expected, rtol=rtol)


@pytest.mark.parametrize("x", [0.0, -1.0, -2.0, -5.0])
def test_the_reciprocal_of_gamma_has_a_derivative_at_its_zeros(x):
    n = -int(x)
    found = float(ft.derivative(sp.rgamma)(x))
    assert found == pytest.approx((-1) ** n * sp.factorial(n), rel=1e-14)


POLES = [
    (sp.gamma, 0.0), (sp.gamma, -1.0), (sp.gammaln, 0.0), (sp.gammaln, -2.0), (sp.psi, 0.0),
    (sp.psi, -1.0), (lambda q: sp.zeta(2, q), 0.0), (lambda q: sp.zeta(2, q), -1.0),
    (lambda x: sp.beta(x, 1.0), 0.0), (lambda x: sp.betaln(x, 1.0), 0.0), (sp.y0, 0.0),
    (sp.k0, 0.0),
    (lambda x: sp.kv(1, x), 0.0), (sp.exp1, 0.0), (sp.expi, 0.0), (sp.logit, 0.0), (sp.logit, 1.0),
    (sp.ndtri, 0.0), (sp.ndtri, 1.0), (sp.erfinv, 1.0), (sp.erfinv, -1.0), (sp.ellipk, 1.0),
    (sp.entr, 0.0), (lambda x: sp.gammainc(0.5, x), 0.0), (lambda x: sp.betainc(0.5, 2.0, x), 0.0),
]


@pytest.mark.parametrize(("f", "x"), POLES)
def test_the_derivative_at_a_pole_is_infinite_or_nan(f, x):
    with np.errstate(all="ignore"):
        assert not np.isfinite(ft.derivative(f)(x))
        assert not np.isfinite(ft.jit(ft.derivative(f))(x))


def test_the_third_derivative_of_a_shape_parameter():
    d3 = ft.derivative(ft.derivative(ft.derivative(lambda a: sp.gammainc(a, 2.0))))
    with mp.workdps(50):
        exact = mp.diff(lambda a: mp.gammainc(a, 0, 2, regularized=True), 1.5, 3)
    assert float(d3(1.5)) == pytest.approx(float(exact), rel=1e-12)


@pytest.mark.parametrize("f", [
    lambda v: sp.jv(v, 2.0), lambda v: sp.kve(v, 2.0), lambda v: sp.struve(v, 2.0),
    lambda k: sp.pdtr(k, 2.0),
    lambda a: sp.hyp2f1(a, 1.0, 2.0, 0.5), lambda n: sp.eval_legendre(n, 0.5),
    lambda n: sp.eval_genlaguerre(2, n, 0.5),
])
def test_an_order_or_parameter_without_a_derivative_is_refused(f):
    match = r"test_special\.py:\d+: scipy\.special\.\w+ has no derivative in .*ft\.stop_gradient"
    for derive in (ft.grad(f), ft.derivative(f), ft.jit(ft.grad(f)), ft.grad(ft.jit(f))):
        with pytest.raises(NotDifferentiable, match=match):
            derive(1.5)
    assert float(ft.jit(f)(1.5)) == pytest.approx(float(f(1.5)), rel=1e-12)


def test_carlsons_integrals_and_scaled_airy_functions_at_the_edges_of_their_domains():
    assert float(ft.derivative(lambda x: sp.elliprf(x, 1.0, 2.0))(0.0)) == -np.inf
    assert ft.derivative(lambda x: sp.elliprd(x, 1.0, 2.0))(0.0) == -np.inf
    assert ft.derivative(lambda x: sp.elliprj(1.0, x, 2.0, 3.0))(0.0) == -np.inf
    exact = float(mp.diff(lambda x: mp.elliprd(0, 1, x), 2))
    assert float(ft.derivative(lambda x: sp.elliprd(0.0, 1.0, x))(2.0)) == pytest.approx(exact)
    # a principal value, and what is complex for x < 0
    assert np.isnan(ft.derivative(lambda p: sp.elliprj(1.0, 2.0, 3.0, p))(-1.0))
    assert np.isnan(ft.derivative(lambda x: sp.airye(x)[0])(-1.5))
    assert float(ft.derivative(lambda x: sp.airye(x)[2])(-1.5)) == pytest.approx(sp.airy(-1.5)[3])
    with pytest.raises(NotDifferentiable, match="elliprd is differentiated for real numbers alone"):
        ft.derivative(lambda x: sp.elliprd(1.0, 2.0, x))(1 + 1j)


def test_counts_of_functions_are_refused_by_name():
    with pytest.raises(NotDifferentiable, match=r"polygamma got the traced value .* as n, the"):
        ft.grad(lambda n: special.polygamma(n, 2.0))(1.0)
    for f in (special.comb, special.perm):
        with pytest.raises(UnsupportedError, match=r"got exact=True .*integer has no derivative"):
            ft.grad(lambda x, f=f: f(x, 2, exact=True))(5.0)
    with pytest.raises(UnsupportedError, match=r"factorial got exact=True"):
        ft.grad(lambda x: special.factorial(x, exact=True))(5.0)
    with pytest.raises(UnsupportedError, match=r"lambertw got tol=0\.1 beside a traced value"):
        ft.grad(lambda x: special.lambertw(x, tol=0.1).real)(5.0)
    with pytest.raises(ValueError, match=r"condition a .* > 0\.5 \* \(d-1\) .* not met"):
        ft.grad(lambda a: special.multigammaln(a, 4))(1.0)


@pytest.mark.parametrize("z", [0.3 + 0.2j, -2 + 1e-3j, 9 + 0.5j, 1e4 + 1j, 3.0 - 1.0j, 8 - 0.1j])
def test_the_faddeeva_function_keeps_its_digits(z):
    with mp.workdps(40):
        w = mp.mpc(z)
        value = mp.exp(-(w**2)) * mp.erfc(-1j * w)
        first = 2j / mp.sqrt(mp.pi) - 2 * w * value
        expected = [complex(first), complex(-2 * value - 2 * w * first)]
    slope = ft.grad(sp.wofz, holomorphic=True)
    found = [complex(slope(z)), complex(ft.grad(slope, holomorphic=True)(z))]
    np.testing.assert_allclose(found, expected, rtol=1e-10)  # four digits cancel at 8 - 0.1j


DISTRIBUTIONS = {
    "chdtr": (3.5, 2.0), "chdtrc": (3.5, 2.0), "chdtri": (3.5, 0.3), "fdtr": (3.0, 5.0, 1.2),
    "fdtrc": (3.0, 5.0, 1.2), "fdtri": (3.0, 5.0, 0.4), "gdtr": (1.2, 2.5, 3.0),
    "gdtrc": (1.2, 2.5, 3.0), "gdtrix": (1.2, 2.5, 0.4), "stdtr": (3.5, 1e-3),
    "stdtrit": (3.5, 0.97), "voigt_profile": (0.3, 0.8, 0.4),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distribution_functions_have_scipy_s_values_and_slopes_of_differences(name):
    f, xs = getattr(sp, name), DISTRIBUTIONS[name]
    assert float(ft.jvp(f, xs, xs)[0]) == pytest.approx(float(f(*xs)), rel=1e-13)
    for i, x in enumerate(xs):
        def along(x, i=i):
            return f(*xs[:i], x, *xs[i + 1 :])

        h = 1e-5 * x
        slope, steps = float(ft.grad(along)(x)), (along(x + h) - along(x - h)) / (2 * h)
        assert slope == pytest.approx(float(steps), rel=1e-7, abs=1e-9)
        assert float(ft.jit(ft.grad(along))(x)) == pytest.approx(slope, rel=1e-12)


@pytest.mark.parametrize("name", [n for n in DISTRIBUTIONS if n != "voigt_profile"])
def test_distribution_functions_have_the_dtype_of_scipy_s(name):
    f, xs = getattr(sp, name), DISTRIBUTIONS[name]
    for i in range(len(xs)):
        single = tuple(np.float32(x) if k == i else x for k, x in enumerate(xs))
        y, t = ft.jvp(lambda x, i=i, xs=single: f(*xs[:i], x, *xs[i + 1 :]), single[i], single[i])
        assert y.dtype == t.dtype == f(*single).dtype


# ---- functions that are no ufuncs, against SciPy's own and differences

X = np.array([[0.5, -1.0, 2.0], [1.5, 0.3, -0.7]])
B = np.array([[1.0, -2.0, 0.5], [0.0, 1.0, 3.0]])
CALLS = {
    "logsumexp": lambda m, x: m.logsumexp(x),
    "logsumexp of an axis": lambda m, x: m.logsumexp(x, axis=1, keepdims=True),
    "logsumexp of axes": lambda m, x: m.logsumexp(x, axis=(0, 1)),
    "logsumexp with weights": lambda m, x: m.logsumexp(x, axis=0, b=np.abs(B) + 0.1),
    "logsumexp with signs": lambda m, x: m.logsumexp(x, axis=0, b=B, return_sign=True)[0],
    "softmax": lambda m, x: m.softmax(x, axis=1),
    "softmax of all": lambda m, x: m.softmax(x),
    "log_softmax": lambda m, x: m.log_softmax(x, axis=0),
    "multigammaln": lambda m, x: m.multigammaln(x + 4, 3),
    "polygamma": lambda m, x: m.polygamma(2, x + 3),
    "polygamma of orders": lambda m, x: m.polygamma(np.array([0, 1, 3]), x + 3),
    "comb": lambda m, x: m.comb(x + 5, 2),
    "comb with repetition": lambda m, x: m.comb(x + 5, 2, repetition=True),
    "perm": lambda m, x: m.perm(x + 5, 2),
    "factorial": lambda m, x: m.factorial(x + 2),
    "lambertw": lambda m, x: m.lambertw(x + 3).real,
    "spherical_jn": lambda m, x: m.spherical_jn(2, x),
    "spherical_kn": lambda m, x: m.spherical_kn(1, x + 3, derivative=True),
    "jvp": lambda m, x: m.jvp(2, x + 3),
    "yvp": lambda m, x: m.yvp(0.5, x + 3, 0),
    "ivp": lambda m, x: m.ivp(1, x + 3, 2),
    "kvp": lambda m, x: m.kvp([[0], [2]], x + 3, 3),
    "h1vp": lambda m, x: m.h1vp(1, x + 3).imag,
    "h2vp": lambda m, x: m.h2vp(1, x + 3, 2).real,
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_are_scipy_s_and_their_derivatives_are_those_of_differences(name):
    def f(x):
        return CALLS[name](special, x)

    expected = CALLS[name](sp, X)
    value, tangent = ft.jvp(f, X, B)
    np.testing.assert_allclose(value, expected, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(ft.jit(f)(X), expected, rtol=1e-13, atol=1e-15)
    h = 1e-6
    steps = (CALLS[name](sp, X + h * B) - CALLS[name](sp, X - h * B)) / (2 * h)
    np.testing.assert_allclose(tangent, steps, rtol=1e-7, atol=1e-8)
    ct = np.cos(np.arange(np.size(value))).reshape(np.shape(value))
    (pulled,) = ft.vjp(f, X)[1](ct)
    assert np.sum(pulled * B) == pytest.approx(float(np.sum(ct * tangent)), rel=1e-12)


def test_a_weight_of_zero_has_a_slope_and_leaves_out_what_is_infinite():
    slope = ft.grad(lambda b: special.logsumexp(np.array([0.0, 1.0]), b=b))(np.array([1.0, 0.0]))
    np.testing.assert_allclose(slope, [1.0, np.e], rtol=1e-14)
    found = ft.grad(lambda x: special.logsumexp(x, b=np.array([1.0, 0.0])))(np.array([2.0, np.inf]))
    np.testing.assert_array_equal(found, [1.0, 0.0])


def test_the_sign_of_a_sum_of_exponentials():
    def f(x):
        size, sign = special.logsumexp(x, b=np.array([1.0, -1.0]), return_sign=True)
        return sign * np.exp(size)

    x = np.array([1.0, 2.0])
    np.testing.assert_allclose(ft.grad(f)(x), [np.e, -np.exp(2.0)], rtol=1e-14)


# ---- native code


def test_native_code_has_no_step_of_numpy_s():
    def f(x):
        y = sp.gammaln(x) + sp.expit(x) * sp.jv(2, x) + sp.gammainc(x, 2.0) + sp.eval_hermite(3, x)
        return np.sum(y + sp.airy(x)[0] + sp.xlogy(x, x) + sp.zeta(2, x))

    x = np.linspace(0.3, 3, 7)
    program = ft.jit(ft.grad(f)).lower(x)
    assert "scipy_special_gammainc" not in program.llvm  # its derivative does not need it
    assert "scipy_special_jv" in program.llvm and "scipy_special_airy" in program.llvm
    assert not [step for step in program.schedule.steps if isinstance(step, HostStep)]
    np.testing.assert_allclose(ft.jit(ft.grad(f))(x), ft.grad(f)(x), rtol=1e-12)


def test_code_that_calls_what_this_scipy_has_not_is_not_loaded():
    with pytest.raises(NativeUnavailable, match=r"this SciPy offers no nonesuch to C"):
        local().load(b"... scipy_special_nonesuch ...", [])


def test_without_cython_special_nothing_is_called(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "scipy.special.cython_special", None)
    formulas.available.cache_clear()
    try:
        assert formulas.available() == {}
        assert not formulas.is_there("psi") and formulas.is_there("zeta")
    finally:
        formulas.available.cache_clear()


@pytest.mark.parametrize("name", [r.name for r in TABLE.values() if r.facts.cython])
def test_scipy_offers_what_rows_name(name):
    assert formulas.is_there(TABLE[name].facts.cython)


@pytest.mark.parametrize("a, b", [
    (1e8, 0.5), (0.5, 1e8), (1e15, 2.0), (3.0, 1e-9), (1e-3, 1e-9), (12.5, 0.1), (2.0, 3.0),
])
def test_slopes_that_are_differences_of_psi_keep_their_digits(a, b):
    with mp.workdps(60):
        rise = mp.psi(0, mp.mpf(a) + b) - mp.psi(0, a), mp.psi(0, mp.mpf(a) + b) - mp.psi(0, b)
        expected = [-float(r) for r in rise]
        of_poch = float(rise[0])
    np.testing.assert_allclose(ft.grad(sp.betaln, argnums=(0, 1))(a, b), expected, rtol=1e-13)
    np.testing.assert_allclose(ft.jit(ft.grad(sp.betaln, argnums=(0, 1)))(a, b), expected,
                               rtol=1e-13)
    np.testing.assert_allclose(ft.grad(sp.poch)(a, b), of_poch * sp.poch(a, b), rtol=1e-13)


@pytest.mark.parametrize("f, args", [
    (sp.poch, (1e-8, 0.5)), (sp.poch, (1e-9, 1e-3)), (sp.poch, (0.0, 2.5)),
    (sp.poch, (-1 + 1e-9, 0.3)), (sp.poch, (1e-8, 5e-9)), (sp.poch, (0.2, 140.0)),
    (sp.binom, (1e-8, 3.0)), (sp.binom, (3.0, 4.0)), (sp.binom, (0.4, -1 + 1e-8)),
    (sp.binom, (1e-9, 1e-3)), (sp.binom, (-1.7, 0.3)), (sp.binom, (4.5, 2.0)),
])
def test_poch_and_binom_keep_their_digits_where_gamma_has_poles(f, args):
    def exact(a, b):
        if f is sp.poch:
            return mp.gamma(a + b) * mp.rgamma(a)
        return mp.gamma(a + 1) * mp.rgamma(b + 1) * mp.rgamma(a - b + 1)

    def of_order(k, m):
        return float(mp.diff(exact, tuple(map(mp.mpf, args)), (k, m)))

    with mp.workdps(60):
        slopes = [of_order(1, 0), of_order(0, 1)]
        curved = [[of_order(2, 0), of_order(1, 1)], [of_order(1, 1), of_order(0, 2)]]
    for g in (lambda h: h, ft.jit):
        # to what SciPy's own values are right
        np.testing.assert_allclose(g(ft.grad(f, (0, 1)))(*args), slopes, rtol=1e-11)
        np.testing.assert_allclose(g(ft.hessian(f, (0, 1)))(*args), curved, rtol=1e-11)


@pytest.mark.parametrize("f", [sp.beta, sp.betaln], ids=["beta", "betaln"])
@pytest.mark.parametrize("a, b", [
    (1e-8, 2e-8), (1e-15, 1e-3), (0.04, 0.05), (1e-8, 0.5), (9e-3, 0.1), (0.5, 1e-9), (1e-3, 1e6),
])
def test_second_derivatives_of_beta_keep_their_digits_where_arguments_are_small(f, a, b):
    with mp.workdps(90):
        y = mp.beta(a, b) if f is sp.beta else 1
        first = [mp.psi(0, x) - mp.psi(0, mp.mpf(a) + b) for x in (a, b)]
        both = -mp.psi(1, mp.mpf(a) + b)
        terms = [[mp.psi(1, a) + both, both], [both, mp.psi(1, b) + both]]
        product = f is sp.beta
        expected = [[float(y * (product * first[i] * first[j] + terms[i][j])) for j in (0, 1)]
                    for i in (0, 1)]

    def g(x):
        return f(x[0], x[1])

    x = np.array([a, b])
    np.testing.assert_allclose(ft.hessian(g)(x), expected, rtol=1e-12)
    np.testing.assert_allclose(ft.jvp(ft.grad(g), (x,), (np.array([0.0, 1.0]),))[1],
                               [expected[0][1], expected[1][1]], rtol=1e-12)


def test_mixed_derivatives_of_beta_are_the_same_under_vmap_and_jit(unoptimised):
    a, b = np.array([1e-9, 3e-3, 0.2, 2.0]), np.array([2e-9, 0.3, 5e-4, 3.0])
    mixed = ft.grad(ft.grad(sp.beta), argnums=1)
    expected = [mixed(*x) for x in zip(a, b, strict=True)]
    np.testing.assert_allclose(ft.vmap(mixed)(a, b), expected, rtol=1e-12)
    np.testing.assert_allclose(ft.jit(ft.vmap(mixed))(a, b), expected, rtol=1e-12)


@pytest.mark.parametrize("x", [5e-324, -1e-310, 3e-308, 1e-200])
def test_i1_of_the_smallest_numbers_has_its_slopes(x):
    assert ft.grad(sp.i1)(x) == 0.5
    second = ft.grad(ft.grad(sp.i1))(x)
    # a subnormal number has few digits
    np.testing.assert_allclose(second, 0.375 * x, rtol=1e-13, atol=5e-324)


def test_series_of_expit_go_to_any_order():
    for f, order, sign in (sp.expit, 89, 1), (sp.log_expit, 90, -1):
        _, series = ft.jet(f, (0.0,), ((1.0,) + (0.0,) * (order - 1),))
        # Abramowitz and Stegun (1964), 23.1.20: of the series of 1 / (1 + exp(-x))
        expected = sign * float((mp.mpf(2) ** 90 - 1) * mp.bernoulli(90) / 90)
        assert series[-1] == pytest.approx(expected, rel=1e-11)


# Name, operands, which is differentiated, and the derivative.
EDGES = [
    ("boxcox", (0.0, 0.5), 1, 4.0), ("boxcox1p", (-1.0, 2.0), 1, 0.25),
    ("powm1", (0.0, 2.5), 1, 0.0), ("pseudo_huber", (0.0, -3.0), 1, 0.0),
    ("pseudo_huber", (0.0, -3.0), 0, 3.0), ("gammainc", (0.0, 2.0), 1, 0.0),
    ("gammaincc", (0.0, 2.0), 1, 0.0), ("betainc", (0.0, 2.0, 0.3), 2, 0.0),
    ("betaincc", (2.0, 0.0, 0.3), 2, 0.0), ("bdtr", (5.0, 5, 0.3), 2, 0.0),
    ("chdtr", (0.0, 2.0), 1, 0.0), ("fdtr", (0.0, 3.0, 1.0), 2, np.nan),
    ("gdtr", (-1.0, 2.0, -0.5), 0, np.nan), ("gdtrc", (-1.0, 2.0, -0.5), 2, np.nan),
    ("fdtr", (-3.0, 2.0, -0.5), 2, np.nan), ("fdtrc", (3.0, 2.0, -0.5), 2, np.nan),
    ("voigt_profile", (np.inf, 2.0, 0.5), 0, 0.0), ("voigt_profile", (-np.inf, 2.0, 0.0), 1, 0.0),
    # degrees below 0, and orders that SciPy truncates
    ("eval_legendre", (-3, 0.3), 1, 0.9), ("eval_sh_legendre", (-2.0, 0.3), 1, 2.0),
    ("eval_chebyu", (-3, 0.3), 1, -2.0), ("eval_chebys", (-4.0, 0.3), 1, -0.6),
    ("eval_sh_chebyu", (-1.0, 0.3), 1, 0.0),
]


@pytest.mark.parametrize(("name", "operands", "i", "slope"), EDGES)
def test_at_the_edge_of_a_parameter_a_function_has_scipy_s_value_and_its_own_slope(
    name, operands, i, slope
):
    f = getattr(sp, name)

    def along(x):
        return f(*operands[:i], x, *operands[i + 1:])

    y, t = ft.jvp(along, (operands[i],), (1.0,))
    np.testing.assert_array_equal(y, f(*operands))
    np.testing.assert_allclose(t, slope, rtol=1e-13)


# Those whose value is linear in the operands, or constant, have a slope beside a NaN.
LINEAR = {"gammasgn", "radian", "round", "xlog1py", "xlogy"}
OPERANDS = [1.3, 2.1, 0.6, 0.4, 0.3]


def _names_with_slopes_at_a_nan():
    ufuncs = {n: f for n, f in vars(sp).items() if isinstance(f, np.ufunc) and f in MEANINGS}
    return sorted(n for n, f in ufuncs.items() if n not in LINEAR and "d" in f.types[-1])


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:non-integer arg:DeprecationWarning")
@pytest.mark.parametrize("name", _names_with_slopes_at_a_nan())
def test_what_is_nan_has_no_number_for_a_slope(name):
    f = getattr(sp, name)
    for i, k in itertools.product(range(f.nin), repeat=2):
        xs = [np.nan if j == i else x for j, x in enumerate(OPERANDS[: f.nin])]
        try:
            y, t = ft.jvp(lambda x, xs=xs, k=k: f(*xs[:k], x, *xs[k + 1 :]), xs[k], 1.0)
        except (TypeError, NotDifferentiable):  # it takes no floats, or is of a count
            continue
        assert not (np.isnan(y) & np.isfinite(t)).any()


def test_voigt_profile_of_a_single_point_has_a_pole():
    with np.errstate(divide="ignore"):
        y, slopes = ft.value_and_grad(sp.voigt_profile, argnums=(0, 2))(0.0, 0.0, 0.0)
    assert (y, *slopes) == (np.inf, -np.inf, -np.inf)


@pytest.mark.filterwarnings("ignore:floating point number truncated:RuntimeWarning")
@pytest.mark.parametrize("f", [sp.kn, sp.yn, sp.expn])
def test_an_order_that_scipy_truncates_is_truncated_in_the_slope(f):
    for n in (0.3, 2.7):
        assert ft.grad(lambda x, n=n: f(n, x))(0.7) == ft.grad(lambda x, n=n: f(int(n), x))(0.7)


@pytest.mark.parametrize("x", [[1.0, np.inf], [np.inf, np.inf], [-np.inf, -np.inf], [-np.inf, 1.0]])
def test_softmax_of_infinite_numbers_is_scipy_s(x, unoptimised):
    x = np.array([x, [0.5, 2.0]])
    with np.errstate(invalid="ignore"):
        expected = sp.softmax(x, axis=1)
    for f in (special.softmax, ft.jit(special.softmax, static_argnames="axis")):
        y, pullback = ft.vjp(lambda x, f=f: f(x, axis=1), x)
        np.testing.assert_array_equal(y, expected)
        assert np.isnan(pullback(np.eye(2))[0][0]).all() == np.isnan(expected[0]).all()
        assert np.isfinite(pullback(np.eye(2))[0][1]).all()


@pytest.mark.parametrize("q", [-1e12 + 0.5, -1e15 + 0.25, -300.3, -3000 + 0.5j, -2.5e4 + 0.01j])
def test_slopes_of_psi_far_left_are_those_between_poles(q):
    """The terms of zeta there are too many to be added up."""
    first = ft.jvp(special.psi, (q,), (1.0 + 0 * q,))[1]
    r = mp.mpmathify(q - np.floor(np.real(q)))
    slope = lambda z: (mp.pi / mp.sin(mp.pi * r)) ** 2 - mp.psi(1, 1 - z)  # noqa: E731  # 5.15.6
    with mp.workdps(30):
        assert complex(first) == pytest.approx(complex(slope(mp.mpmathify(q))), rel=1e-12)
        second = ft.jvp(lambda z: ft.jvp(special.psi, (z,), (1.0 + 0 * q,))[1], (q,),
                       (1.0 + 0 * q,))[1]
        of_pole = 2 * mp.pi**3 * mp.cot(mp.pi * r) / mp.sin(mp.pi * r) ** 2
        want = -of_pole + mp.psi(2, 1 - mp.mpmathify(q))
        assert complex(second) == pytest.approx(complex(want), rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("order", [lambda f: ft.jvp(ft.grad(f), (1.0,), (1.0,))[1],
                                   lambda f: ft.grad(ft.grad(f))(1.0)])
def test_curvatures_of_log_ndtr_do_not_overflow_where_it_is_zero(order):
    x = 37.5  # erfcx(-x / sqrt(2)) is 1e305
    expected = -(x**3) * np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)
    assert order(lambda a: TABLE["special.log_ndtr"](a * x)) == pytest.approx(
        expected, rel=1e-12)


@pytest.mark.parametrize("s", [
    0.0, -0.1, -0.26, -1.0, -2.0, -3.5, -4.0 + 1e-7, -10.5, -12.3, -20.5,
])
@pytest.mark.parametrize("name", ["special.riemann_zeta", "special.zetac"])
def test_riemann_s_zeta_has_slopes_below_one(name, s):
    expected = [float(mp.zeta(s, derivative=n)) for n in (1, 2)]
    f = TABLE[name]
    found = [ft.grad(f)(s), ft.grad(ft.grad(f))(s)]
    assert found == pytest.approx(expected, rel=3e-14)  # powers of pi and gamma functions


def test_riemann_s_zeta_has_slopes_where_gamma_functions_overflow():
    f = ft.grad(TABLE["special.riemann_zeta"])
    assert f(-250.3) == pytest.approx(-2.724885468809090247e293, rel=3e-14)  # by mpmath
    assert ft.grad(f)(-250.3) == pytest.approx(1.362941220139067670e294, rel=3e-14)


# ---- poles that cancel


def rising(a, m):
    """gamma(a + m) / gamma(a) of a whole m, where both may be at poles."""
    factors = [a + j for j in range(m)] if m >= 0 else [1 / (a - j) for j in range(1, 1 - m)]
    return mp.fprod(factors)


POLES = {
    "poch": rising,
    "beta": lambda a, b: mp.factorial(b - 1) / rising(a, b),
    "betaln": lambda a, b: mp.log(abs(mp.factorial(b - 1) / rising(a, b))),
}


@pytest.mark.parametrize("whole", [-1, -2, -5, -30])
@pytest.mark.parametrize("off", [0.0, 1e-12, -1e-9, 1e-6, -0.3])
@pytest.mark.parametrize("name", POLES)
def test_poles_that_cancel_leave_finite_slopes(name, off, whole):
    row, a = TABLE[f"special.{name}"], whole + off
    for other in [1, 2, 4] + ([-1, -3] if name == "poch" else []):
        if off == 0 and name != "poch" and whole + other > 0:
            continue  # a pole
        expected = [float(mp.diff(lambda a, m=other: POLES[name](a, m), mp.mpf(a), n))
                    for n in (1, 2)]
        slope = ft.grad(row)
        found = [slope(a, float(other)), ft.grad(slope)(a, float(other))]
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-14)  # differences of psi


@pytest.mark.parametrize("transform", [ft.jit, ft.vmap], ids=["jit", "vmap"])
def test_poles_that_cancel_do_so_where_values_are_not_known(transform, unoptimised):
    a, b = np.array([-1.0, -3.0, -0.5, 2.5]), np.array([1.0, 2.0, 1.0, 0.5])
    for f in (sp.beta, sp.betaln, sp.poch):
        slope = ft.vmap(ft.grad(f))
        if transform is ft.jit:
            slope = ft.jit(slope)
        expected = [ft.grad(f)(*x) for x in zip(a, b, strict=True)]
        assert np.isfinite(expected).all()
        np.testing.assert_allclose(slope(a, b), expected, rtol=1e-14)


@pytest.mark.parametrize("name", ["beta", "poch", "binom"])
def test_mixed_derivatives_at_whole_numbers_see_both_arguments_move(name):
    row = TABLE[f"special.{name}"]
    f = {"beta": mp.beta, "poch": lambda a, b: mp.gamma(a + b) / mp.gamma(a),
         "binom": mp.binomial}[name]
    for a, b in ((-1.3, 1.0), (-3.4, 2.0)):
        expected = float(mp.diff(f, (a, b), (1, 1)))
        assert ft.grad(ft.grad(row, 0), 1)(a, b) == pytest.approx(expected, rel=1e-12)
    for first, second in ((0, 1), (1, 0)):
        found = ft.grad(ft.grad(row, first), second)(-1.0, 1.0)
        assert not np.isfinite(found) or name == "binom"  # as it depends on how one goes there


@pytest.mark.parametrize("x", [-2 + 1e-12, -1 - 1e-9, -7.0000001, -30.5])
def test_slopes_of_gamma_functions_are_exact_near_their_poles(x):
    psi = mp.psi(0, mp.mpf(x))
    assert ft.grad(sp.gammaln)(x) == pytest.approx(float(psi), rel=2e-15)
    assert ft.grad(sp.gamma)(x) == pytest.approx(float(psi * mp.gamma(mp.mpf(x))), rel=1e-14)


def test_riemann_s_zeta_has_complex_slopes_below_one():
    z = -3.5 + 1j
    found = ft.jvp(TABLE["special.riemann_zeta"], (z,), (1 + 0j,))[1]
    assert found == pytest.approx(complex(mp.zeta(z, derivative=1)), rel=1e-13)


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4"])
@pytest.mark.parametrize("name", ["logsumexp", "softmax"])
def test_sums_of_exponentials_of_integers_have_scipys_type(name, dtype, unoptimised):
    several = np.array([0, 1, 9]).astype(dtype)
    for x in (several, several[2]):
        got, want = ft.jit(getattr(special, name))(x), getattr(sp, name)(x)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-2 if want.dtype == np.float16 else 1e-6)


def test_chdtri_of_what_is_no_probability_is_nan():
    p = np.array([2.18, -0.3, 0.87, 1.0])
    y = ft.jvp(lambda p: special.chdtri(1.0, p), p, p)[0]
    np.testing.assert_allclose(y, sp.chdtri(1.0, p), rtol=1e-13)


NORMAL = np.exp(-0.045) / np.sqrt(2 * np.pi)


def _narrow_voigt(*derivatives):
    """The n-th derivative of Cauchy's density in x, of which a small sigma adds half the second."""
    return [float(mp.diff(lambda x: mp.mpf("0.7") / mp.pi / (x * x + mp.mpf("0.49")), 0.3, n))
            for n in derivatives]


# A function, the point, and its first and second derivative there.
SPECIAL_POINTS = {
    "struve of order 0": (lambda x: sp.struve(0, x), 0.0, (2 / np.pi, 0.0)),
    "struve of order 1": (lambda x: sp.struve(1, x), 0.0, (0.0, 4 / (3 * np.pi))),
    "modstruve of order 0": (lambda x: sp.modstruve(0, x), 0.0, (2 / np.pi, 0.0)),
    "modstruve of order 1": (lambda x: sp.modstruve(1, x), 0.0, (0.0, 4 / (3 * np.pi))),
    "keip": (sp.keip, 0.0, (np.inf, -np.inf)),
    "stdtr of infinite degrees": (
        lambda x: sp.stdtr(np.inf, x), 0.3, (NORMAL, -0.3 * NORMAL)),
    "stdtrit of infinite degrees": (
        lambda p: sp.stdtrit(np.inf, p), 0.5, (np.sqrt(2 * np.pi), 0.0)),
    "voigt_profile without a normal part": (
        lambda x: sp.voigt_profile(x, 0.0, 0.7), 0.3, _narrow_voigt(1, 2)),
    "voigt_profile in a sigma of 0": (
        lambda s: sp.voigt_profile(0.3, s, 0.7), 0.0, (0.0, *_narrow_voigt(2))),
    "boxcox1p of -1": (lambda x: sp.boxcox1p(x, 1.0), -1.0, (1.0, 0.0)),
    "inv_boxcox1p of -1": (lambda x: sp.inv_boxcox1p(x, 1.0), -1.0, (1.0, 0.0)),
    "bdtr of all": (lambda p: sp.bdtr(3.0, 3, p), 0.4, (0.0, 0.0)),
    "nbdtr of a count above -1": (lambda p: sp.nbdtr(-0.5, 1, p), 0.4, (1.0, 0.0)),
    "zeta at its pole": (sp.zeta, 1.0, (-np.inf, np.inf)),
    "expn at 0": (lambda x: sp.expn(2, x), 0.0, (-np.inf, np.inf)),
}


@pytest.mark.filterwarnings("ignore:floating point number truncated:RuntimeWarning")
@pytest.mark.parametrize("name", SPECIAL_POINTS)
def test_slopes_at_special_points_are_closed_forms(name, unoptimised):
    f, x, expected = SPECIAL_POINTS[name]
    for slope in (ft.grad(f), ft.derivative(f), ft.jit(ft.grad(f))):
        found = [slope(x), ft.grad(slope)(x)]
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("x", [1e-300, 0.5, 30.0])
def test_the_incomplete_gamma_functions_have_a_slope_in_a_at_zero(x):
    want = -sp.exp1(x)
    for how in (lambda f: f, ft.jit):
        for f, expected in ((special.gammainc, want), (special.gammaincc, -want)):
            slope = how(ft.grad(lambda a, f=f: f(a, x)))
            assert float(slope(0.0)) == pytest.approx(expected, rel=1e-14)
        in_both = how(ft.jacobian(ft.grad(lambda v: special.gammainc(v[0], v[1]))))
        mixed = in_both(np.array([0.0, x]))[[0, 1], [1, 0]]
        np.testing.assert_allclose(mixed, np.exp(-x) / x, rtol=1e-14)
    assert np.isnan(ft.grad(lambda a: special.gammainc(a, 0.0))(0.0))  # as its value is


# of the function, its parameters, and at x = 0 the slope: where a product of 0 and a pole is none
AT_ZERO = {
    "struve": [(-1, 0), (0, 2 / np.pi), (1, 0)], "modstruve": [(-1, 0), (0, 2 / np.pi), (1, 0)],
    "hyperu": [((0, 1.5), 0), ((0, -1.0), 0), ((-1, 1.5), 1), ((-2, 0.5), -3), ((-3, 2.0), 36)],
}


@pytest.mark.parametrize("name, parameters, want",
                         [(n, np.ravel(p), w) for n, rows in AT_ZERO.items() for p, w in rows])
def test_a_pole_times_zero_is_a_slope_at_zero(name, parameters, want):
    slope = ft.grad(lambda x: getattr(special, name)(*parameters, x))
    for how in (slope, ft.jit(slope), lambda x: ft.vmap(slope)(np.array([1.0, x]))[1]):
        assert float(how(0.0)) == pytest.approx(want, rel=1e-14)


def test_the_slope_of_inv_boxcox_in_lambda_does_not_come_from_a_result_near_one():
    x, lam = 2.4e-11, 1.7
    with mp.workdps(60):
        want = float(mp.diff(lambda p: (p * mp.mpf(x) + 1) ** (1 / p), mp.mpf(lam)))
    slope = ft.grad(lambda p: special.inv_boxcox(x, p))
    assert float(slope(lam)) == pytest.approx(want, rel=1e-14)
    assert float(ft.jit(slope)(lam)) == pytest.approx(want, rel=1e-14)


@pytest.mark.parametrize("r", [3.0, -0.5])
def test_pseudo_huber_without_a_width_has_mixed_slopes_of_either_order(r):
    for hessian in (ft.hessian, lambda f: ft.jit(ft.hessian(f))):
        found = hessian(lambda v: special.pseudo_huber(v[0], v[1]))(np.array([0.0, r]))
        np.testing.assert_array_equal(found, [[-2, np.sign(r)], [np.sign(r), 0]])


@pytest.mark.parametrize(("f", "point"), [
    (sp.binom, (12.138845, 40.281857)), (sp.betaincinv, (0.68, 0.128, 0.9228918)),
    (sp.betainccinv, (0.856, 0.125, 0.0794)),
], ids=str)
def test_slopes_in_single_precision_are_those_in_double(f, point):
    narrow = np.array(point, np.float32)
    slope = ft.grad(lambda x: f(*x))
    np.testing.assert_allclose(slope(narrow), slope(narrow.astype(np.float64)), rtol=1e-5)
