"""Functions that cannot be traced: every kind of rule, in every mode."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, special

import functrans as ft
from functrans.errors import ArgumentError, CheckError, ShapeError

pytestmark = pytest.mark.usefixtures("seldom_optimised")

X, Y = np.array([0.3, 0.7, -0.4]), np.array([1.3, 0.2, 0.5])


def smooth(x, y):
    """What the black box computes, for functrans to differentiate."""
    return np.stack([np.sum(np.sin(x) * y), x[0] * np.exp(y[1])])


def box(x, y):
    """The same, which only plain ndarrays can go through."""
    assert type(x) is type(y) is np.ndarray
    return np.array([math.fsum(np.sin(x) * y), float(x[0]) * math.exp(y[1])])


def jac(x, y):
    first = np.zeros((2, 3)), np.zeros((2, 3))
    first[0][0], first[1][0] = np.cos(x) * y, np.sin(x)
    first[0][1, 0], first[1][1, 1] = math.exp(y[1]), x[0] * math.exp(y[1])
    return first


def jvp(primals, tangents):
    return sum(j @ t for j, t in zip(jac(*primals), tangents, strict=True))


def vjp(primals, ct):
    return tuple(ct @ j for j in jac(*primals))


RULES = {
    "differences": {},
    "jvp": {"jvp": jvp},
    "vjp": {"vjp": vjp},
    "both": {"jvp": jvp, "vjp": vjp},
    "jac": {"jac": jac},
}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def close(a, b, rule, order=1):
    """To rounding where the rule is exact, else to what differences leave."""
    tol = {0: 1e-14, 1: 1e-11 if not rule else 1e-14, 2: 1e-8 if not rule else 1e-11}[order]
    assert_allclose(a, b, rtol=tol, atol=tol)


@every_rule
def test_the_value_is_the_functions(rule):
    assert_array_equal(ft.external(box, **rule)(X, Y), box(X, Y))


@every_rule
@pytest.mark.parametrize("transform", [ft.jacfwd, ft.jacrev])
def test_first_derivatives(rule, transform):
    found = transform(ft.external(box, **rule), (0, 1))(X, Y)
    for a, b in zip(found, jac(X, Y), strict=True):
        close(a, b, rule)


def squared(f):
    return lambda x, y: np.sum(f(x, y) ** 2)


@every_rule
@pytest.mark.parametrize(
    "second",
    [ft.hessian, lambda f, argnums: ft.jacrev(ft.grad(f, argnums), argnums)],
    ids=["forward over reverse", "reverse over reverse"],
)
def test_second_derivatives(rule, second):
    found = second(squared(ft.external(box, **rule)), (0, 1))(X, Y)
    expected = second(squared(smooth), (0, 1))(X, Y)
    for row, wanted in zip(found, expected, strict=True):
        for a, b in zip(row, wanted, strict=True):
            close(a, b, rule, order=2)


@every_rule
def test_forward_over_forward(rule):
    def slope(f):
        return lambda x: ft.jvp(f, (x, Y), (X, Y))[1]

    found = ft.jvp(slope(ft.external(box, **rule)), X, Y)[1]
    close(found, ft.jvp(slope(smooth), X, Y)[1], rule, order=2)


@every_rule
def test_under_vmap(rule):
    f, xs = ft.external(box, **rule), np.stack([X, Y, X + Y])
    close(ft.vmap(f, (0, None))(xs, Y), [box(x, Y) for x in xs], rule, order=0)
    found = ft.vmap(ft.grad(squared(f)), (0, None))(xs, Y)
    close(found, [ft.grad(squared(smooth))(x, Y) for x in xs], rule)
    found = ft.jacrev(lambda x: ft.vmap(f, (0, None))(x, Y))(xs)
    close(found, ft.jacrev(lambda x: ft.vmap(smooth, (0, None))(x, Y))(xs), rule)


@every_rule
def test_under_jit(rule):
    f = ft.external(box, **rule)
    close(ft.jit(lambda x, y: 2 * f(x, y))(X, Y), 2 * box(X, Y), rule, order=0)
    for g, h in ((f, smooth), (ft.jit(f), smooth)):
        close(ft.jit(ft.grad(squared(g)))(X, Y), ft.grad(squared(h))(X, Y), rule)
        close(ft.jit(ft.hessian(squared(g)))(X, Y), ft.hessian(squared(h))(X, Y), rule, order=2)


def test_under_jit_with_arrays_too_large_for_examples():
    x = np.linspace(0, 1, 1 << 17)
    f = ft.external(lambda x: x.sum()[None], jvp=lambda p, t: t[0].sum()[None])
    assert_allclose(ft.jit(lambda x: 2 * f(x))(x), [x.size])


@every_rule
def test_the_tape_walked_forward_and_kept(rule):
    f = ft.external(box, **rule)
    _, push = ft.linearize(f, X, Y)
    close(push(Y, X), ft.jvp(smooth, (X, Y), (Y, X))[1], rule)
    _, pull = ft.vjp(f, X, Y)
    for ct in np.eye(2):
        for a, b in zip(pull(ct), vjp((X, Y), ct), strict=True):
            close(a, b, rule)


def test_taylor_series():
    f = ft.external(math.gamma)
    _, series = ft.jet(f, (1.0,), ((1.0, 0.0),))
    euler = 0.5772156649015329
    assert_allclose(series, [-euler, euler**2 + math.pi**2 / 6], rtol=1e-9)  # differences


def test_a_quadrature_has_the_derivatives_of_the_function_it_computes():
    """J0(x) as an integral: its slope is -J1, and J0'' = -J0 + J1 / x."""

    def bessel(x):
        found, _ = integrate.quad(lambda t: math.cos(x * math.sin(t)), 0, math.pi, epsabs=1e-13)
        return found / math.pi

    f = ft.external(bessel)
    assert_allclose(ft.grad(f)(1.7), -special.j1(1.7), rtol=1e-10)  # differences
    expected = -special.j0(1.7) + special.j1(1.7) / 1.7
    assert_allclose(ft.derivative(ft.grad(f))(1.7), expected, rtol=1e-7)  # differences of these


# ---- operands and outputs


def test_several_outputs_some_of_which_are_integers():
    f = ft.external(lambda x: (x.sum(), np.argmax(x), x * x), outputs=3)
    total, most, squares = f(X)
    assert (most, total) == (1, X.sum())
    assert_allclose(squares, X * X)

    def loss(x):
        total, most, squares = f(x)
        return total * squares[most]

    expected = X[1] ** 2 + np.array([0, 2 * X[1] * X.sum(), 0])
    assert_allclose(ft.grad(loss)(X), expected, rtol=1e-11)  # differences
    assert_allclose(ft.jacfwd(loss)(X), expected, rtol=1e-11)  # differences


def test_several_outputs_with_every_kind_of_rule():
    def pair(x, y):
        return np.sin(x), x * y

    def push(primals, tangents):
        (x, y), (t, s) = primals, tangents
        return np.cos(x) * t, x * s + y * t

    def pull(primals, cts):
        (x, y), (c, d) = primals, cts
        return np.cos(x) * c + y * d, x * d

    def jacobians(x, y):
        return (np.diag(np.cos(x)), None), (np.diag(y), np.diag(x))

    for rule in ({"jvp": push}, {"vjp": pull}, {"jac": jacobians}):
        f = ft.external(pair, outputs=2, **rule)
        for transform in (ft.jacfwd, ft.jacrev):
            found = transform(lambda x, y, f=f: f(x, y), (0, 1))(X, Y)
            expected = ((np.diag(np.cos(X)), np.zeros((3, 3))), (np.diag(Y), np.diag(X)))
            assert_allclose(found, expected, rtol=1e-15)
        # one output without a cotangent
        assert_allclose(ft.grad(lambda x, f=f: f(x, Y)[1].sum())(X), Y, rtol=1e-15)


def test_integer_arguments_have_no_derivative():
    f = ft.external(lambda n, x: x**n, vjp=lambda p, ct: (None, ct * p[0] * p[1] ** (p[0] - 1)))
    assert_allclose(ft.grad(f, 1)(3, 2.0), 12)
    g = ft.external(special.jv)
    assert_allclose(ft.grad(g, 1)(1, 0.5), special.jvp(1, 0.5), rtol=1e-11)  # differences


def test_options_go_to_the_function_and_its_rules():
    f = ft.external(
        lambda x, *, power, name: x**power,
        jvp=lambda p, t, *, power, name: t[0] * power * p[0] ** (power - 1),
    )
    assert_allclose(ft.grad(lambda x: f(x, power=3, name="cube"))(2.0), 12)
    assert_allclose(ft.jit(lambda x: f(x, power=3, name="cube"))(2.0), 8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtypes_stay(dtype):
    f = ft.external(lambda x: np.sin(x))
    x = X.astype(dtype)
    g = ft.grad(lambda x: np.sum(f(x)))(x)
    assert g.dtype == f(x).dtype == dtype
    assert_allclose(g, np.cos(X), rtol={np.float32: 1e-4, np.float64: 1e-11}[dtype])  # differences


def test_float32_results_of_a_double_argument():
    f = ft.external(lambda x: np.float32(3 * x))
    g = ft.grad(f)(2.0)
    assert g.dtype == np.float64
    assert_allclose(g, 3, rtol=1e-3)  # a float32 result, by differences in double's steps


def test_complex_outputs_of_real_arguments():
    f = ft.external(lambda x: np.exp(1j * x))
    assert_allclose(ft.jacfwd(f)(0.3), 1j * np.exp(0.3j), rtol=1e-11)  # differences
    found = ft.grad(lambda x: f(x).imag)(0.3)
    assert_allclose(found, np.cos(0.3), rtol=1e-11)  # differences


# ---- complex arguments: of a function that is not holomorphic, and of those that are

Z = np.array([0.3 + 0.4j, -0.7 + 0.2j])
W = np.array([0.5, -1.2])
ALONG = np.array([1.0, -0.5]), np.array([0.2 - 1j, 0.7 + 0.3j])
BACK = np.array([0.4 + 0.9j, -1.1 + 0.6j])


def waves(w, z):
    tilted = np.sum(np.abs(z) ** 2 * w) + 1j * w[0] * np.conj(z[1])
    return np.stack([np.sum(w * np.exp(z) * z), tilted])


def waves_jvp(primals, tangents):
    (w, z), (dw, dz) = primals, tangents
    moved = 2 * np.sum((np.conj(z) * dz).real * w) + np.sum(np.abs(z) ** 2 * dw)
    tilted = 1j * (dw[0] * np.conj(z[1]) + w[0] * np.conj(dz[1]))
    return np.array([np.sum(np.exp(z) * (dw * z + w * (z + 1) * dz)), moved + tilted])


def waves_vjp(primals, ct):
    (w, z), (a, b) = primals, ct
    cw = (a * np.exp(z) * z).real + b.real * np.abs(z) ** 2
    cz = a * w * np.exp(z) * (z + 1) + 2 * b.real * np.conj(z) * w
    cw[0] += (1j * b * np.conj(z[1])).real
    cz[1] += np.conj(1j * b * w[0])
    return cw, cz


@pytest.mark.parametrize(
    ("rules", "rtol"),
    [({}, 1e-10), ({"jvp": waves_jvp}, 1e-13), ({"vjp": waves_vjp}, 1e-13),
     ({"jvp": waves_jvp, "vjp": waves_vjp}, 1e-13)],
    ids=lambda v: "+".join(v) or "differences" if isinstance(v, dict) else "",
)
def test_complex_arguments(rules, rtol):
    f = ft.external(lambda w, z: np.array(waves(w, z)), example=(W, Z), **rules)

    def loss(f):
        return lambda w, z: np.sum(np.abs(f(w, z)) ** 2)

    def slope(f):
        return ft.grad(loss(f), (0, 1))

    def close(take, rtol=rtol):
        for found, wanted in zip(take(f), take(waves), strict=True):
            assert_allclose(found, wanted, rtol=rtol)

    close(lambda f: ft.jvp(f, (W, Z), ALONG))
    close(lambda f: ft.vjp(f, W, Z)[1](BACK))
    close(lambda f: slope(f)(W, Z))
    close(lambda f: ft.jit(slope(f))(W, Z))
    close(lambda f: ft.vmap(slope(f))(np.stack([W, 2 * W]), np.stack([Z, -Z])))
    second = 1e-7 if not rules else 1e-10  # differences, of differences where there is no rule
    close(lambda f: ft.jvp(slope(f), (W, Z), ALONG)[1], second)
    close(lambda f: ft.vjp(slope(f), W, Z)[1](ALONG), second)


def test_a_complex_jacobian():
    f = ft.external(
        lambda z: np.exp(z) * z, jac=lambda z: np.diag(np.exp(z) * (z + 1)), example=(Z,)
    )
    expected = np.exp(Z) * (Z + 1)
    for found in (ft.jacfwd(f)(Z), ft.jacrev(f)(Z)):
        assert_allclose(found, np.diag(expected), rtol=1e-15)
    found = ft.grad(lambda z: np.sum(f(z)), holomorphic=True)(Z)
    assert_allclose(found, expected, rtol=1e-15)
    size = ft.external(lambda z: np.sum(np.abs(z) ** 2), jac=lambda z: 2 * np.conj(z))
    assert_allclose(ft.grad(size)(Z), 2 * Z, rtol=1e-15)
    assert_allclose(ft.jvp(size, (Z,), (1j * Z,))[1], 0, atol=1e-15)


@pytest.mark.parametrize(
    "rule",
    [{"jac": lambda z: 2 * z}, {"vjp": lambda p, ct: 2 * ct * p[0]},
     {"jvp": lambda p, t: np.sum(2 * np.conj(p[0]) * t[0])}],
    ids=["jac", "vjp", "jvp"],
)
def test_a_wrong_complex_rule_is_found(rule):
    """With the conjugate on the wrong side, or an imaginary part too many."""
    with pytest.raises(CheckError, match=f"{next(iter(rule))} is wrong"):
        ft.external(lambda z: np.sum(np.abs(z) ** 2), example=(Z,), **rule)


def test_a_function_without_complex_derivative_has_no_jacobian():
    with pytest.raises(CheckError, match="jac is wrong"):
        ft.external(np.conj, jac=lambda z: np.eye(2, dtype=complex), example=(Z,))
    f = ft.external(np.conj)
    assert_allclose(ft.vjp(f, Z)[1](BACK)[0], np.conj(BACK), rtol=1e-10)  # differences


def test_empty_arguments_and_outputs():
    f = ft.external(lambda x: x * 2.0)
    assert ft.grad(lambda x: np.sum(f(x)))(np.zeros(0)).shape == (0,)
    assert ft.jacfwd(f)(np.zeros(0)).shape == (0, 0)
    g = ft.external(lambda x: x[:0])
    assert_array_equal(ft.grad(lambda x: np.sum(g(x)))(X), np.zeros(3))


SCALES = {
    "log at 1e-3": (math.log, 1e-3, 1e3),
    "log at 1e-300": (math.log, 1e-300, 1e300),
    "log at 1e6": (math.log, 1e6, 1e-6),
    "sine at 1e3": (math.sin, 1e3, math.cos(1e3)),
    "sine at 1e6": (math.sin, 1e6, math.cos(1e6)),
    "root at 1e-6": (math.sqrt, 1e-6, 500.0),
    "arcsine beside its end": (math.asin, 1 - 1e-6, 1 / math.sqrt((2 - 1e-6) * 1e-6)),
    "gamma beside its pole": (math.gamma, 1e-3, special.gamma(1e-3) * special.psi(1e-3)),
    "fast at 0": (lambda x: math.sin(1e9 * x), 0.0, 1e9),
    "exp at 1e-12": (math.exp, 1e-12, 1.0),
    "narrow": (lambda x: math.exp(-((x - 1e6) ** 2)), 1e6 + 0.25, -0.5 * math.exp(-0.0625)),
    "beside a kink": (lambda x: abs(x - 1), 1 + 1e-5, 1.0),
    "at a kink": (lambda x: max(x, 0.0), 0.0, 0.5),
    "constant": (lambda x: 3.0, 1e-9, 0.0),
    "constant but for rounding": (lambda x: math.sin(x) ** 2 + math.cos(x) ** 2, 1.0, 0.0),
    "steps": (lambda x: float(math.floor(x)), 2.5, 0.0),
    "a minimum": (lambda x: 1 + (x - 1) ** 2, 1.0, 0.0),
    "huge": (lambda x: x * x, 1e100, 2e100),
}


@pytest.mark.parametrize("case", SCALES.values(), ids=SCALES)
def test_steps_fit_the_function(case):
    f, x, slope = case
    found = ft.grad(ft.external(lambda x: f(float(x))))(x)
    assert_allclose(found, slope, rtol=1e-9)  # differences


DRAWN = {
    "sin": (math.sin, math.cos), "log": (math.log, lambda x: 1 / x), "exp": (math.exp, math.exp),
    "fast": (lambda x: math.sin(50 * x) / x,
             lambda x: 50 * math.cos(50 * x) / x - math.sin(50 * x) / x**2),
    "peak": (lambda x: 1 / (1 + 25 * x * x), lambda x: -50 * x / (1 + 25 * x * x) ** 2),
}


@pytest.mark.parametrize("f, slope", DRAWN.values(), ids=DRAWN)
def test_differences_have_eleven_digits_in_the_median_and_six_at_least(f, slope):
    points = 10 ** np.random.default_rng(0).uniform(-6, 2, 30)
    found = np.array([ft.grad(ft.external(lambda x: f(float(x))))(x) for x in points])
    exact = np.array([slope(x) for x in points])
    errors = np.abs(found / exact - 1)
    assert np.median(errors) < 1e-11 and np.max(errors) < 1e-6


def test_steps_fit_each_entry():
    g = ft.external(lambda x: x[0] * x[1])
    assert_allclose(ft.grad(g)(np.array([1e8, 1e-3])), [1e-3, 1e8], rtol=1e-14)
    h = ft.external(lambda x: np.array([math.log(v) for v in x]))
    x = np.array([1e-3, 1.0, 1e6])
    assert_allclose(ft.jacobian(h)(x), np.diag(1 / x), rtol=1e-9)  # differences


@pytest.mark.parametrize(
    ("f", "x"),
    [(lambda x: 1e12 + math.sin(x), 1.0), (lambda x: float(math.floor(x)), 2.0),
     (lambda x: round(x, 4), 0.3), (lambda x: math.atan(x), 1e10)],
    ids=["lost in rounding", "at a jump", "of a few digits", "below rounding"],
)
def test_what_differences_cannot_tell_is_nan(f, x):
    assert np.isnan(ft.grad(ft.external(lambda x: f(float(x))))(x))


@pytest.mark.parametrize(
    ("f", "x", "slope"),
    [(np.log, 1e-3, 1e3), (np.sin, 1e6, math.cos(1e6)), (np.sqrt, 1e-6, 500.0),
     (lambda x: 1e12 + np.sin(x), 1.0, math.cos(1.0)), (lambda x: x**3, -2.0, 12.0)],
    ids=["log", "sine", "root", "beside a large number", "cube"],
)
def test_the_complex_step_gives_all_digits(f, x, slope):
    assert_allclose(ft.grad(ft.external(f))(x), slope, rtol=1e-15)


@pytest.mark.parametrize(
    "f",
    [lambda x: np.abs(x) + x, lambda x: np.real(x) * x, lambda x: (x * np.conj(x)).real,
     lambda x: x * np.linalg.norm(np.array([x, x])) / 2**0.5,
     lambda x: np.array(x, float) ** 2 * (x / x)],
    ids=["size", "real part", "conjugate", "norm", "discarded"],
)
def test_a_complex_step_that_differences_contradict_is_not_taken(f):
    expected = 2.0 if f(2.0) == 4.0 and f(3.0) == 6.0 else 4.0
    assert_allclose(ft.grad(ft.external(f))(2.0), expected, rtol=1e-11)  # differences


def test_what_is_not_asked_for_does_not_spoil_a_gradient():
    f = ft.external(lambda x: np.array([float(x) ** 2, round(float(x), 3)]))
    assert_allclose(ft.grad(lambda x: f(x)[0])(0.3), 0.6, rtol=1e-11)  # differences


def test_nan_is_passed_on():
    f = ft.external(lambda x: x * np.nan)
    assert np.isnan(ft.grad(f)(1.0))


def test_a_function_that_writes_into_its_argument_gets_a_copy():
    def f(x):
        x *= 2
        return x.sum()

    x = X.copy()
    assert_allclose(ft.grad(ft.external(f))(x), [2, 2, 2], rtol=1e-11)  # differences
    assert_array_equal(x, X)


def test_a_strided_argument():
    f = ft.external(lambda x: np.sum(x**2))
    x = np.arange(6.0)[::2]
    assert_allclose(ft.grad(f)(x), 2 * x, atol=1e-11)  # differences


def test_python_numbers_and_arrays_of_ours():
    f = ft.external(math.hypot)
    assert f(3, 4.0) == 5
    assert f(ft.array(3.0), 4) == 5


# ---- the check of a rule


def count(f):
    def counted(*args):
        counted.calls += 1
        return f(*args)

    counted.calls = 0
    return counted


WRONG = {
    "jvp": lambda p, t: 1.001 * jvp(p, t),
    "vjp": lambda p, ct: tuple(1.001 * c for c in vjp(p, ct)),
    "jac": lambda x, y: tuple(1.001 * j for j in jac(x, y)),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_rule_is_found_when_it_is_registered(what):
    with pytest.raises(CheckError, match=rf"external\(box\): {what} is wrong.*it gives"):
        ft.external(box, **{what: WRONG[what]}, example=(X, Y))


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("transform", [ft.jacfwd, ft.jacrev])
def test_a_wrong_rule_is_found_when_it_is_first_used(what, transform):
    f = ft.external(box, **{what: WRONG[what]})
    f(X, Y)
    for _ in range(2):  # and the second time: nothing was found right
        with pytest.raises(CheckError, match=f"{what} is wrong"):
            transform(f)(X, Y)


def test_each_of_two_rules_is_checked():
    with pytest.raises(CheckError, match="vjp is wrong"):
        ft.external(box, jvp=jvp, vjp=WRONG["vjp"], example=(X, Y))


def test_a_rule_is_checked_once():
    f = count(box)
    g = ft.external(f, jac=jac, example=(X, Y))
    checked = f.calls
    assert checked > 0
    ft.grad(squared(g))(X, Y)
    assert f.calls == checked + 1


def test_differences_take_four_runs_a_direction():
    f = count(box)
    ft.jvp(ft.external(f), (X, Y), (X, Y))
    assert f.calls == 1 + 4 + 2  # the value there, and whether it takes complex numbers
    f.calls = 0
    ft.vjp(ft.external(f), X, Y)[1](np.ones(2))
    assert f.calls == 1 + 4 * 6 + 2


# ---- errors


def test_errors_of_the_call():
    with pytest.raises(ArgumentError, match="external needs a function"):
        ft.external(3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="vjp must be a function, but is"):
        ft.external(box, vjp=3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="jac, or jvp and vjp"):
        ft.external(box, jac=jac, vjp=vjp)
    with pytest.raises(ArgumentError, match="outputs must be at least 1"):
        ft.external(box, outputs=0)


def test_errors_of_arguments():
    with pytest.raises(ArgumentError, match=r"argument 0 must be an array.*by keyword"):
        ft.external(box)("x", Y)
    with pytest.raises(ArgumentError, match="option 'k' is traced"):
        ft.grad(lambda x: ft.external(lambda x, k: x)(1.0, k=x))(2.0)


@pytest.mark.parametrize(
    ("f", "outputs"), [(lambda x: None, 1), (lambda x: (x, x), 1), (lambda x: x, 2)]
)
def test_errors_of_results(f, outputs):
    with pytest.raises(ArgumentError, match=r"must return (an array|a tuple of 2).*outputs="):
        ft.external(f, outputs=outputs)(1.0)


def test_errors_of_rules():
    with pytest.raises(ShapeError, match=r"entry 0 of what jvp returned is float64\[3\].*\(2,\)"):
        ft.jacfwd(ft.external(box, jvp=lambda p, t: np.ones(3)))(X, Y)
    with pytest.raises(ArgumentError, match=r"vjp must return a tuple of 2, but returned"):
        ft.jacrev(ft.external(box, vjp=lambda p, ct: ct))(X, Y)
    with pytest.raises(ShapeError, match=r"what jac returned is float64\[3\].*\(2, 3\)"):
        ft.jacrev(ft.external(box, jac=lambda x, y: (np.ones(3), np.ones(3))))(X, Y)


def test_it_shows_its_name():
    f = ft.external(box)
    assert repr(f) == f.__name__ == "external(box)"
    assert "external(box)" in str(ft.make_program(f)(X, Y))
