"""Slopes and curvatures over the whole range of each dtype, in relative error, by mpmath."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

import functrans as ft
import functrans.scipy.linalg as linalg
import functrans.scipy.special as special
from functrans._compile.emit import loop_nest
from functrans._ops.declare import TABLE, Elementwise
from tests.covering import THOROUGH
from tests.table.references import REFERENCES
from tests.table.samples import OPERANDS
from tests.table.tails import draw, exact, slopes, ulps

FLOATS = {"e": np.float16, "f": np.float32, "d": np.float64, "g": np.longdouble}
# Units in the last place: of float16 each step rounds as much as of others.
ALLOWED = {"e": 16.0, "f": 12.0, "d": 12.0, "g": 12.0}
# Rows of NumPy's functions of one number that are drawn here.
ELEMENTARY = [
    n for n, row in TABLE.items()
    if isinstance(row, Elementwise) and row.differentiable and len(row.actions) == 1
    and not n.startswith("special.") and n in REFERENCES and n not in OPERANDS
    and row.domain != "complex"
]
CONSTANTS = "constants are of double precision"
# What is not so, and why: of a row and dtype the units in the last place that are allowed.
EXCEPTIONS = {
    **{(n, "g"): (1e4, CONSTANTS)
       for n in ("exp2", "log2", "log10", "deg2rad", "rad2deg")},
    **{("binary_logistic", c): (600.0, "of sech2(log(2) / 2 * x), whose operand is rounded")
       for c in FLOATS},
    ("arctan", "f"): (2e5, "1 + x * x is infinite where the slope is below the normal numbers"),
    ("arctan", "d"): (2e16, "the same"),
    ("slope_of_arctan", "f"): (2e5, "the same"),
    ("slope_of_arctan", "d"): (2e16, "the same"),
    ("slope_of_arctan", "e"): (500.0, "x * y is below the normal numbers"),
    ("sech2", "e"): (500.0, "next to an inflection two terms cancel"),
    ("exp_of_minus_square", "e"): (64.0, "the same"),
    ("exp_of_minus_half_square", "e"): (64.0, "the same"),
    ("cbrt", "e"): (100.0, "NumPy's own slope: 3 * y * y is near the end of the range"),
}


def orders(f, x):
    """The slope, and its slope in each way to it, with and without jit."""

    def slope(x):
        return ft.grad(lambda x: f(x).sum())(x)

    def over_reverse(x):
        return ft.grad(lambda x: slope(x).sum())(x)

    def over_forward(x):
        return ft.jvp(slope, (x,), (np.ones_like(x),))[1]

    def forward(x):
        one = np.ones_like(x)
        return ft.jvp(lambda x: ft.jvp(f, (x,), (one,))[1], (x,), (one,))[1]

    yield "slope", 0, slope(x)
    yield "reverse over reverse", 1, over_reverse(x)
    yield "forward over reverse", 1, over_forward(x)
    yield "forward over forward", 1, forward(x)
    both = ft.jit(lambda x: (slope(x), over_reverse(x), over_forward(x)))
    for (order, y), how in zip(enumerate(both(x)), ("", "reverse", "forward"), strict=True):
        yield f"jit: {how}", min(order, 1), y


def assert_close(f, reference, x, allowed):
    wanted = [slopes(reference, exact(v)) for v in x]
    with np.errstate(all="ignore"):
        for how, order, found in orders(f, x):
            for v, y, want in zip(x, found, wanted, strict=True):
                if (w := want[order]) is not None:
                    error = ulps(y, w)
                    assert error <= allowed, (how, v, y, mp.nstr(w, 17), error)


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", ELEMENTARY)
@pytest.mark.parametrize("char", FLOATS if THOROUGH else "ed")
def test_slopes_of_rows_have_all_their_digits_over_the_whole_range(char, name):
    row, rng = TABLE[name], np.random.default_rng([1, *name.encode()])
    count = 4 if char == "g" else 100 if THOROUGH else 10
    x = draw(row.domain, FLOATS[char], rng, count)
    if char == "g":  # of larger ones mpmath takes long
        x = x[np.abs(x) < 1e4]
    assert_close(row, REFERENCES[name], x, EXCEPTIONS.get((name, char), (ALLOWED[char],))[0])


# Of two operands, and of SciPy's, at points where terms of a rule cancel or squares are rounded.
POINTS = {
    "hypot": [(1e4, 1.0), (1.0, -1e8), (3.0, 4.0), (2e150, 1e140)],
    "arctan2": [(1e4, 1.0), (1.0, -1e8), (2e150, 1e140)],
    "leg_of_hypot": [(1e4, 1.0), (1.0, -1e8), (3.0, 4.0)],
    "special.kl_div": [(6e-11, 577.0), (3.0, 3.0 + 1e-9), (2.0, 5.0)],
    "special.pseudo_huber": [(1.4e-7, 2280.0), (2.0, 1e-6), (2.0, 5.0)],
    "special.inv_boxcox": [(2.0, 0.5), (1.0, 1e-9), (1e3, 1e4)],
    "special.erf": [(1.0,), (-9.3,), (26.1,)],
    "special.erfc": [(1.0,), (-9.3,), (26.1,)],
    "special.erfi": [(1.0,), (-9.3,), (26.1,)],
    "special.ndtr": [(1.0,), (-9.3,), (37.1,)],
    "special.erfcx": [(3.6,), (6.9,), (50.0,)],
}


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", POINTS)
def test_slopes_and_curvatures_in_each_operand_have_all_their_digits(name):
    row, reference = TABLE[name], REFERENCES[name]
    for point in POINTS[name]:
        for i in range(len(point)):
            def f(x, of=row, i=i, point=point):
                return of(*point[:i], x, *point[i + 1:])

            def exactly(x, i=i, point=point):
                return reference(*map(mp.mpf, point[:i]), x, *map(mp.mpf, point[i + 1:]))

            assert_close(f, exactly, np.array(point[i:i + 1]), 12.0)


TAILS = {
    "tanh": (np.tanh, [0.3, 2.0, 5.0, 10.0, 20.0, -20.0, 100.0, -360.0]),
    "arctan": (np.arctan, [1e-200, 1.0, 1e20, -1e100]),
    "arcsin": (np.arcsin, [1e-200, -1e-9, 0.5, 1 - 1e-12]),
    "arctanh": (np.arctanh, [1e-200, -1e-9, 0.5, 1 - 1e-12]),
    "exp2": (np.exp2, [-1000.0, 1.0, 1024.0]),
    "power": (lambda x: 2.0**x, [-1000.0, 1.0, 1024.0]),
    "logistic": (lambda x: np.logaddexp(x, 0.0), [-700.0, -40.0, 0.5, 40.0, 700.0]),
}
OF_TAILS = {
    **{n: REFERENCES[n] for n in TAILS if n not in ("power", "logistic")},
    "power": lambda x: mp.mpf(2) ** x, "logistic": lambda x: mp.log(1 + mp.exp(x)),
}


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", TAILS)
def test_what_rounds_to_a_constant_has_slopes_yet(name):
    f, points = TAILS[name]
    assert_close(f, OF_TAILS[name], np.array(points), 12.0)
    for x in points:  # numbers have ways of their own
        want = slopes(OF_TAILS[name], mp.mpf(x))
        with np.errstate(all="ignore"):
            found = ft.grad(f)(x), ft.grad(ft.grad(f))(x)
        for y, w in zip(found, want, strict=True):
            assert w is None or ulps(np.float64(y), w) <= 12, (x, y, w)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_arrays_have_the_slopes_of_small_ones(dtype):
    rng = np.random.default_rng(3)
    x = np.concatenate([draw("real", dtype, rng, 6000), np.array([0, np.inf, -np.inf], dtype)])
    for order in (1, 2):
        derive = ft.elementwise_grad(np.tanh)
        derive = derive if order == 1 else ft.elementwise_grad(derive)
        small = np.concatenate([derive(part) for part in np.array_split(x, 10)])
        np.testing.assert_allclose(derive(x), small, rtol=8 * np.finfo(dtype).eps,
                                   atol=4 * np.finfo(dtype).smallest_subnormal)
    assert np.isnan(derive(np.full(5000, np.nan, dtype))).all()


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_value_and_its_slope_of_one_exponential_have_all_their_digits(dtype):
    x = draw("real", dtype, np.random.default_rng(4), loop_nest.SHARED)
    x = np.concatenate([x, np.array([0.0, 0.17, 0.35, 20], dtype)])
    both = ft.jit(lambda x: (np.tanh(x), ft.elementwise_grad(np.tanh)(x)))
    assert "tanh" not in both.lower(x).llvm.split("define", 1)[0]  # is not called
    with mp.workdps(1000):
        for v, y, slope in zip(x, *both(x), strict=True):
            assert ulps(y, mp.tanh(exact(v))) <= 4, (v, y)
            assert ulps(slope, mp.sech(exact(v)) ** 2) <= 8, (v, slope)
    edges = both(np.resize(np.array([-0.0, np.inf, -np.inf, np.nan], dtype), x.size))
    np.testing.assert_array_equal(edges[0][:4], [-0.0, 1, -1, np.nan])
    np.testing.assert_array_equal(edges[1][:4], [1, 0, 0, np.nan])
    assert np.signbit(edges[0][0])


COMPLEX = [20 + 0.3j, -20 + 0.3j, 0.3 + 20j, 0.3 - 15j, 1e-5 + 1e-6j, 1.5 + 1e-3j, 1e-3 + 1.57j]


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("f, curve", [(np.tanh, mp.tanh), (np.tan, mp.tan)], ids=["tanh", "tan"])
def test_complex_slopes_have_all_their_digits_far_from_an_axis(f, curve, dtype):
    slope = ft.grad(f, holomorphic=True)
    second = ft.grad(slope, holomorphic=True)
    z = np.array(COMPLEX, dtype)
    with mp.workdps(200):
        want = [[complex(mp.diff(curve, mp.mpc(complex(v)), n)) for v in z] for n in (1, 2)]
    for derive, expected in zip((slope, second), want, strict=True):
        for how in (derive, ft.jit(derive)):
            for v, w in zip(z, expected, strict=True):
                assert abs(complex(how(v)) - w) <= 8 * np.finfo(dtype).eps * abs(w), (v, how(v), w)


# ---- of two operands

ENDS = [1e-300, -1e-160, 1e-20, 0.7, -3.0, 1e20, -1e160, 1e300]


def shares(a, b):
    return 1 / (1 + mp.exp(b - a)), 1 / (1 + mp.exp(a - b))


def curved(a, b):
    s = 1 / (2 + mp.exp(a - b) + mp.exp(b - a))
    return s, -s, s


# Of each function its slopes and, where they have all their digits too, second derivatives by
# (a, a), (a, b) and (b, b). Those of hypot cancel: of its largest operand they are 0 from 1e8 on.
PAIRS = {
    np.multiply: (lambda a, b: (b, a), lambda a, b: (0, 1, 0)),
    np.divide: (lambda a, b: (1 / b, -a / b**2), lambda a, b: (0, -1 / b**2, 2 * a / b**3)),
    np.arctan2: (
        lambda a, b: (b / (a * a + b * b), -a / (a * a + b * b)),
        lambda a, b: tuple([v / (a * a + b * b) ** 2
                            for v in (-2 * a * b, (a - b) * (a + b), 2 * a * b)]),
    ),
    np.logaddexp: (shares, curved),
    np.hypot: (lambda a, b: tuple([v / mp.sqrt(a * a + b * b) for v in (a, b)]), None),
    np.remainder: (lambda a, b: (1, -mp.floor(a / b)), None),
    np.maximum: (lambda a, b: (int(a > b), int(a < b)), None),
}


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("f", PAIRS, ids=lambda f: f.__name__)
def test_slopes_of_two_operands_have_all_their_digits_at_any_ratio(f):
    pairs = [(a, b) for a in ENDS for b in ENDS if a != b]
    if f is np.logaddexp:  # beyond these its slopes are 0 and 1
        pairs = [pair for pair in pairs if max(map(abs, pair)) < 100]
    a, b = map(np.array, zip(*pairs, strict=True))
    slope = ft.grad(lambda a, b: f(a, b).sum(), argnums=(0, 1))
    ones, none = np.ones_like(a), np.zeros_like(a)

    def second(a, b):
        (by_a, by_both), (_, by_b) = [ft.jvp(slope, (a, b), t)[1]
                                      for t in ((ones, none), (none, ones))]
        return by_a, by_both, by_b

    for of, wanted in zip((slope, second), PAIRS[f], strict=True):
        with np.errstate(all="ignore"):
            found = [*of(a, b), *ft.jit(of)(a, b)] if wanted else []
        with mp.workdps(700):
            exactly = [wanted(exact(v), exact(w)) for v, w in pairs] if found else []
            wanted_twice = [*zip(*exactly, strict=True)] * 2
            for ys, numbers in zip(found, wanted_twice, strict=True):
                errors = [ulps(y, mp.mpf(w)) for y, w in zip(ys, numbers, strict=True)]
                assert max(errors) <= 12, pairs[int(np.argmax(errors))]


# ---- of vectors

VECTORS = {
    "norm 3": (lambda x: np.linalg.norm(x, 3), lambda v: mp.norm(v, 3)),
    "norm 4": (lambda x: np.linalg.norm(x, 4), lambda v: mp.norm(v, 4)),
    "norm 2.5": (lambda x: np.linalg.norm(x, 2.5),
                 lambda v: sum(abs(w) ** 2.5 for w in v) ** (1 / mp.mpf(2.5))),
    "norm 1/2": (lambda x: np.linalg.norm(x, 0.5), lambda v: sum(mp.sqrt(abs(w)) for w in v) ** 2),
    "norm -1": (lambda x: np.linalg.norm(x, -1), lambda v: 1 / sum(1 / abs(w) for w in v)),
    "norm": (np.linalg.norm, mp.norm),
    "std": (np.std, lambda v: mp.norm([w - sum(v) / len(v) for w in v]) / mp.sqrt(len(v))),
}


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_norms_and_spreads_have_slopes_at_any_size(name, dtype):
    f, reference = VECTORS[name]
    info, rng = np.finfo(dtype), np.random.default_rng(5)
    slope = ft.grad(f)
    ways = [
        lambda x: ft.value_and_grad(f)(x)[0], slope, ft.jit(slope),
        lambda x: ft.vmap(slope)(np.stack([x / 2, x]))[1],
    ]
    for power in (info.minexp + 12, info.minexp // 2, 0, info.maxexp // 2, info.maxexp - 12):
        x = np.ldexp(rng.uniform(1, 2, 3).astype(dtype), power) * np.array([1, -1, 1], dtype)
        with mp.workdps(60):
            v = [exact(w) for w in x]
            value = reference(v)
            units = [[w * (1 + mp.mpf(10) ** -25 * (i == j)) for j, w in enumerate(v)]
                     for i in range(3)]
            want = [float((reference(u) - value) / (mp.mpf(10) ** -25 * v[i]))
                    for i, u in enumerate(units)]
            value = float(value)
        for how, expected in zip(ways, [value, want, want, want], strict=True):
            np.testing.assert_allclose(how(x), expected, rtol=200 * info.eps, err_msg=f"2^{power}")


LENGTHS = {
    "norm": np.linalg.norm,
    "norm of rows": lambda x: np.linalg.norm(x.reshape(1, -1), axis=-1)[0],
    "hypot": lambda x: np.hypot(np.hypot(x[0], x[1]), x[2]),
    "absolute": lambda x: abs(np.hypot(x[0], x[1]) + 1j * x[2]),
}


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("x", [[1e6, 1.0, -2.0], [1.0, -1e9, 3.0], [1.0, 2.0, 2.0]], ids=str)
def test_lengths_have_their_curvature_along_what_is_most_of_them(name, x):
    with mp.workdps(60):
        v = [mp.mpf(w) for w in x]
        n = mp.norm(v)
        want = [[float(((i == j) * (n**2 - v[i] ** 2) - (i != j) * v[i] * v[j]) / n**3)
                 for j in range(3)] for i in range(3)]
    f = LENGTHS[name]
    for hessian in (ft.hessian(f), ft.jit(ft.hessian(f)), ft.jacfwd(ft.jacfwd(f)),
                    ft.jacrev(ft.jacrev(f)), lambda x: ft.vmap(ft.hessian(f))(x[None])[0]):
        np.testing.assert_allclose(hessian(np.array(x)), want, rtol=2e-15)


@pytest.mark.parametrize("power", [-600, 600])
def test_a_spread_s_even_powers_and_curvature_are_scaled_too(power):
    x = np.array([3.0, 4.0, 6.0])
    with np.errstate(all="ignore"):
        far = ft.hessian(np.std)(np.ldexp(x, power))
    np.testing.assert_allclose(np.ldexp(far, power), ft.hessian(np.std)(x), rtol=1e-13)
    assert ft.grad(np.std)(np.full(3, 1e200)).tolist() == [0, 0, 0]


# ---- of matrices


@pytest.mark.parametrize("scale", [1e-200, 1e-20, 1e40])
@pytest.mark.parametrize("name", ["expm", "logm", "sqrtm"])
def test_functions_of_matrices_have_slopes_for_cotangents_of_any_size(name, scale):
    a = np.array([[3.0, 1.0], [0.3, 2.5]])
    f = getattr(linalg, name)
    slope = ft.grad(lambda a: f(a).sum())(a)
    np.testing.assert_allclose(
        ft.grad(lambda a: scale * f(a).sum())(a) / scale, slope, rtol=1e-13
    )


@pytest.mark.parametrize("x", [1e-3, 0.5, 5.0, -20.0, 100.0])
def test_the_hyperbolic_tangent_of_a_matrix_has_slopes_far_out(x):
    unit = np.diag([1.0, 0.5])
    with mp.workdps(200):
        want = [float(mp.diff(mp.tanh, mp.mpf(x), n)) for n in (1, 2)]
    for f in (lambda x: linalg.tanhm(x * unit)[0, 0],
              lambda x: linalg.tanm(1j * x * unit).imag[0, 0]):
        slope = ft.grad(f)
        # squares of the exponential each double its rounding
        assert float(slope(x)) == pytest.approx(want[0], rel=1e-11)
        assert float(ft.grad(slope)(x)) == pytest.approx(want[1], rel=1e-10)


# ---- shares

SHARES = {
    "softmax of the greatest": (lambda x: special.softmax(x)[1],
                                lambda v: mp.exp(v[1]) / sum(map(mp.exp, v))),
    "softmax of another": (lambda x: special.softmax(x)[0],
                           lambda v: mp.exp(v[0]) / sum(map(mp.exp, v))),
    "log_softmax": (lambda x: special.log_softmax(x)[1],
                    lambda v: v[1] - mp.log(sum(map(mp.exp, v)))),
    "logsumexp": (special.logsumexp, lambda v: mp.log(sum(map(mp.exp, v)))),
}


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", SHARES)
@pytest.mark.parametrize("x", [[0.0, 40.0, -30.0], [-300.0, 300.0, 10.0], [5.0, 9.0, -6.0],
                               [1.0, 2.0, 3.0]], ids=str)
def test_shares_have_slopes_where_one_is_one_to_rounding(name, x):
    f, reference = SHARES[name]
    slope = ft.grad(f)
    with mp.workdps(800):
        e, v = mp.mpf(10) ** -100, list(map(mp.mpf, x))

        def at(*moves):
            return reference([w + e * moves.count(i) - e * moves.count(~i)
                              for i, w in enumerate(v)])

        want = [float((at(i) - at(~i)) / (2 * e)) for i in range(3)]
        second = [[float((at(i, j) - at(i, ~j) - at(~i, j) + at(~i, ~j)) / (4 * e * e))
                   for j in range(3)] for i in range(3)]
    for how, expected in ((slope, want), (ft.jit(slope), want), (ft.hessian(f), second),
                          (ft.jit(ft.jacobian(slope)), second)):
        np.testing.assert_allclose(how(np.array(x)), expected, rtol=1e-13)


@pytest.mark.usefixtures("unoptimised")
def test_logarithms_of_equal_shares_have_slopes_under_jit():
    x = np.array([[2.0, 2.0, 1.0], [3.0, 3.0, 3.0], [50.0, 0.0, -np.inf]])

    def f(x):
        return (special.log_softmax(x, axis=-1)[:, :2] * [1.0, 5.0]).sum()

    want = np.pad(np.tile([1.0, 5.0], (3, 1)), [(0, 0), (0, 1)]) - 6 * special.softmax(x, axis=-1)
    want[2, 0] = 1 - 6 + 6 * np.exp(-50.0)  # 6 * (1 - share) would have lost this
    np.testing.assert_allclose(ft.jit(ft.grad(f))(x), want, rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_arrays_of_shares_have_the_slopes_of_rows(dtype):
    rng = np.random.default_rng(7)
    x = (20 * rng.normal(size=(100, 16))).astype(dtype)
    weights = rng.normal(size=16).astype(dtype)

    def f(x):
        return (special.softmax(x, axis=-1) * weights).sum()

    found, rows = ft.grad(f)(x), np.stack([ft.grad(f)(row) for row in x])
    np.testing.assert_allclose(found, rows, rtol=64 * np.finfo(dtype).eps)
