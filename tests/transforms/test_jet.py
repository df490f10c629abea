"""Taylor mode: derivatives to high order against mpmath, nested jvp and the other transforms."""

import math

import mpmath as mp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import functrans as ft
from functrans._ops.declare import TABLE, Elementwise
from functrans._transforms.forward.jet import JetTrace, jet
from functrans._transforms.reverse.checkpoint import checkpoint
from functrans._transforms.rules.custom import custom_jvp, custom_vjp
from functrans.errors import ArgumentError, LeakedTracerError, NotDifferentiable, ShapeError
from tests.table.references import REFERENCES

ORDER = 7
# Curves t -> x(t) whose values at 0 fit the domains; operand i of a row follows the i-th.
CURVES = {
    "any": ((0.4, 1.3, -0.6), (0.7, -0.8, 0.5), (0.2, 0.3, 0.9)),
    "real": ((0.4, 1.3, -0.6), (0.7, -0.8, 0.5), (0.2, 0.3, 0.9)),
    "positive": ((0.8, 1.3, -0.6), (1.4, -0.8, 0.5)),
    "nonzero": ((0.8, 1.3, -0.6), (-1.4, -0.8, 0.5)),
    "unit": ((0.3, 1.1, -0.4),),
    "above one": ((1.8, 1.3, 0.6),),
}
FIXED = {
    "where": {0: True}, "sinc_nth": {1: 2}, "bessel_i": {1: 2}, "ldexp": {1: 3},
    "heaviside": {0: 0.7}, "moving_as": {0: CURVES["real"][1][0]},
}
# Of SciPy's functions those that mpmath is quick at; the others have the same families and actions.
OF_SCIPY = {f"special.{n}" for n in ("gammaln", "psi", "erf", "expit", "ndtr", "dawsn", "entr")}
SMOOTH = [
    name
    for name, row in TABLE.items()
    if isinstance(row, Elementwise)
    and row.differentiable
    and row.domain != "complex"
    and name in REFERENCES
    and name not in ("imag", "sinc_nth", "from_parts")  # the last is complex
    and (not name.startswith("special.") or name in OF_SCIPY)
]


def true_derivatives(f, order=ORDER):
    """f(0), f'(0), f''(0), ... by mpmath, at fifty digits."""
    with mp.workdps(60):
        return np.array([float(c * mp.factorial(k)) for k, c in enumerate(mp.taylor(f, 0, order))])


def along(curve, order=ORDER):
    """A quadratic curve as primal and series."""
    a, b, c = curve
    return a, [b, 2 * c] + [0.0] * (order - 2)


def of_one_number(f, x, order):
    """f(x), f'(x), ... by jet."""
    y, terms = jet(f, (x,), ([1.0] + [None] * (order - 1),))
    return np.array([y, *terms], float)


def nested(f, x, order):
    """The same by nested jvp, which costs 2**order."""
    found = []
    for _ in range(order + 1):
        found.append(f(x))
        f = lambda x, f=f: ft.jvp(f, (x,), (1.0,))[1]  # noqa: E731  # each wraps the last
    return np.array(found, float)


@pytest.mark.parametrize("name", SMOOTH)
def test_every_row_has_the_taylor_series_of_mpmath(name):
    row = TABLE[name]
    curves = CURVES[row.domain if row.domain in CURVES else "real"]
    fixed = FIXED.get(name, {})
    moving = [i for i in range(len(row.actions)) if i not in fixed]
    start = {i: along(curves[i]) for i in moving}

    def f(*xs):
        given = iter(xs)
        return row(*[fixed[i] if i in fixed else next(given) for i in range(len(row.actions))])

    def reference(t):
        return REFERENCES[name](
            *[
                fixed[i]
                if i in fixed
                else mp.mpf(curves[i][0]) + curves[i][1] * t + curves[i][2] * t**2
                for i in range(len(row.actions))
            ]
        )

    y, terms = jet(f, tuple(start[i][0] for i in moving), tuple(start[i][1] for i in moving))
    want = true_derivatives(reference)
    np.testing.assert_allclose([y, *terms], want, rtol=1e-11, atol=1e-11 * np.abs(want).max())


@pytest.mark.parametrize("x", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 10])
def test_integer_powers_are_exact_at_any_point(x, n):
    want = [
        np.prod(np.arange(n, n - k, -1.0)) * (x ** (n - k) if n >= k else 0.0)
        for k in range(ORDER + 1)
    ]
    np.testing.assert_allclose(
        of_one_number(lambda x: np.power(x, float(n)), x, ORDER), want, rtol=1e-13
    )


def test_sinc_has_its_series_at_zero():
    want = [1, 0, -1 / 3, 0, 1 / 5, 0, -1 / 7, 0]
    got = of_one_number(lambda x: TABLE["sinc_nth"](x, 0), 0.0, ORDER)
    np.testing.assert_allclose(got, want, atol=1e-15)


COMPOSED = {
    "deep": (lambda x: np.tan(np.sin(np.exp(x))), lambda x: mp.tan(mp.sin(mp.exp(x)))),
    "power": (lambda x: x**x, lambda x: x**x),
    "rational": (lambda x: x**2.5 / (1 + x**3), lambda x: x**2.5 / (1 + x**3)),
    "angle": (lambda x: np.arctan2(x, 1 - x), lambda x: mp.atan2(x, 1 - x)),
    "length": (lambda x: np.hypot(x, np.exp(x)), lambda x: mp.hypot(x, mp.exp(x))),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_compositions_to_order_twelve(name):
    f, reference = COMPOSED[name]
    want = true_derivatives(lambda t: reference(mp.mpf(0.3) + t), 12)
    np.testing.assert_allclose(of_one_number(f, 0.3, 12), want, rtol=1e-12)


def test_work_grows_as_a_power_of_the_order(monkeypatch):
    counts = []
    original = JetTrace.once

    def counting(self, prim, args, params):
        counts[-1] += 1
        return original(self, prim, args, params)

    monkeypatch.setattr(JetTrace, "once", counting)
    for order in (5, 10, 20):
        counts.append(0)
        of_one_number(lambda x: np.tan(np.sin(np.exp(x))), 0.1, order)
    assert counts[2] == counts[1] == counts[0] < 20  # rules are written once, whatever the order


def test_order_eighty_does_not_recurse_deeply():
    def f(x):
        return np.logaddexp(x**x, np.hypot(x, 2.0)) + np.sinh(x) ** 1.7

    got = of_one_number(f, 1.3, 80)
    assert np.isfinite(got).all()
    np.testing.assert_array_equal(got[:11], of_one_number(f, 1.3, 10))


def test_an_order_whose_factorial_is_no_float():
    got = of_one_number(lambda x: np.exp(3 * x), 0.0, 175)
    np.testing.assert_allclose(got[170:], 3.0 ** np.arange(170, 176), rtol=1e-11)


def test_float16_factorials_do_not_overflow():
    x = np.float16(0.5)
    _, terms = jet(np.exp, (x,), ([np.float16(1)] + [np.float16(0)] * 9,))
    assert terms[-1].dtype == np.float16
    np.testing.assert_allclose(terms[-1], np.exp(x), rtol=0.05)  # ten roundings to 11 bits


def test_complex_series():
    x = 0.3 + 0.4j
    y, terms = jet(lambda z: np.exp(z) * np.sin(z), (x,), ([1.0 + 0j, 0j, 0j],))
    want = true_complex(lambda z: mp.exp(z) * mp.sin(z), x, 3)
    np.testing.assert_allclose([y, *terms], want, rtol=1e-13)


def true_complex(f, x, order):
    return [complex(c * mp.factorial(k)) for k, c in enumerate(mp.taylor(f, mp.mpc(x), order))]


def test_absolute_value_of_a_complex_curve():
    y, terms = jet(lambda t: np.abs(np.exp(1j * t) * (1 + t)), (0.5,), ([1.0, 0.0, 0.0],))
    np.testing.assert_allclose([y, *terms], [1.5, 1, 0, 0], atol=1e-14)
    assert all(t.dtype == np.float64 for t in terms)


def test_float32_stays():
    x = np.array([0.3, 0.5], np.float32)
    y, terms = jet(lambda x: np.sin(x) * np.sqrt(x) / 3.0, (x,), ([np.ones_like(x), None, None],))
    assert [y.dtype, *[t.dtype for t in terms]] == [np.float32] * 4


# ---- linear, bilinear and general rows

A = np.array([[3.0, 1.0, 0.2], [0.4, 2.0, 0.1], [0.3, 0.5, 4.0]])
B = np.array([[0.3, 0.2, -0.4], [0.1, -0.2, 0.5], [0.7, 0.1, 0.2]])
MATRIX = {
    "matmul": lambda x: np.sum((A + x * B) @ (A - x * x * B) @ A),
    "reshape": lambda x: np.sum(np.reshape(np.stack([x, np.sin(x), x * x, 1.0]), (2, 2)) ** 3),
    "index": lambda x: np.sum(np.exp(x * A)[:, 1] * np.cos(x * A)[[0, 2, 0], 2]),
    "prod": lambda x: np.prod(np.sin(x * A)[0]),
    "cumprod": lambda x: np.sum(np.cumprod(np.cos(x + A[0]))),
    "sort": lambda x: np.sum(np.sort(np.sin(x * A[0])) * np.array([1.0, 2.0, 3.0])),
    "max": lambda x: np.max(np.sin(x * A), axis=1)[0] ** 2,
    "logsumexp": lambda x: np.logaddexp.reduce(np.stack([x, x * x, np.sin(x)])),
}
LINALG = {
    "inv": lambda x: np.sum(np.linalg.inv(A + x * B)[0]),
    "solve": lambda x: np.sum(np.linalg.solve(A + x * B, np.stack([x, x * x, np.exp(x)]))),
    "det": lambda x: np.linalg.det(A + x * B),
    "slogdet": lambda x: np.linalg.slogdet(A + x * B)[1],
    "eigh": lambda x: np.sum(np.linalg.eigh(A + A.T + x * (B + B.T))[0] ** np.array([1, 2, 3])),
    "cholesky": lambda x: np.sum(np.linalg.cholesky(A @ A.T + x * x * B @ B.T)),
    "qr": lambda x: np.sum(np.linalg.qr(A + x * B)[1] ** 2 * A),
}


@pytest.mark.parametrize("name", [*MATRIX, *LINALG])
def test_rows_on_arrays_agree_with_nested_jvp(name):
    f = {**MATRIX, **LINALG}[name]
    want = nested(f, 0.4, 4)
    np.testing.assert_allclose(
        of_one_number(f, 0.4, 4), want, rtol=1e-9, atol=1e-9 * np.abs(want).max()
    )


# ---- singular points


def test_what_does_not_move_has_no_infinite_derivative():
    x, moving = np.array([0.0, 0.25]), np.array([0.0, 1.0])
    y, terms = jet(np.sqrt, (x,), ([moving, None],))
    np.testing.assert_array_equal([y, *terms], [[0, 0.5], [0, 1], [0, -2]])


def test_an_unused_branch_leaves_no_nan():
    x = np.array([-1.0, 0.0, 0.25])

    def f(x):
        return np.where(x > 0, np.sqrt(np.where(x > 0, x, 0)), 0)

    _, terms = jet(f, (x,), ([np.ones(3), None],))
    np.testing.assert_array_equal(terms, [[0, 0, 1], [0, 0, -2]])


# ---- composition with the other transforms

x2, ones, zeros = np.array([0.3, 0.5]), np.ones(2), np.zeros(2)


def smooth(x):
    return np.sin(x) * np.exp(x)


def third(x):
    return 2 * np.exp(x) * (np.cos(x) - np.sin(x))


def test_jet_under_vmap():
    got = ft.vmap(lambda x: jet(smooth, (x,), ([1.0, 0.0, 0.0],))[1][2])(x2)
    np.testing.assert_allclose(got, third(x2), rtol=1e-13)


def test_vmap_under_jet():
    got = jet(ft.vmap(smooth), (x2,), ([ones, zeros, zeros],))[1][2]
    np.testing.assert_allclose(got, third(x2), rtol=1e-13)


def test_grad_of_jet():
    got = ft.vmap(ft.grad(lambda x: jet(smooth, (x,), ([1.0, None],))[1][1]))(x2)
    np.testing.assert_allclose(got, third(x2), rtol=1e-13)


def test_jet_of_grad():
    got = jet(lambda x: ft.vmap(ft.grad(smooth))(x), (x2,), ([ones, zeros],))[1][1]
    np.testing.assert_allclose(got, third(x2), rtol=1e-13)


def test_jvp_of_jet_and_jet_of_jet():
    got = ft.jvp(lambda x: jet(smooth, (x,), ([1.0, 0.0],))[1][1], (0.3,), (1.0,))[1]
    np.testing.assert_allclose(got, third(0.3), rtol=1e-13)
    got = jet(lambda x: jet(smooth, (x,), ([1.0],))[1][0], (0.3,), ([1.0, 0.0],))[1][1]
    np.testing.assert_allclose(got, third(0.3), rtol=1e-13)


def test_perturbations_of_nested_jets_are_not_confused():
    def f(x):
        return x * jet(lambda y: x + y, (1.0,), ([1.0],))[1][0]

    assert float(jet(f, (2.0,), ([1.0],))[1][0]) == 1.0


def test_custom_rules_and_checkpoint_under_jet():
    forward = custom_jvp(smooth)
    forward.defjvp(
        lambda xs, ts: (forward(*xs), (np.cos(xs[0]) + np.sin(xs[0])) * np.exp(xs[0]) * ts[0])
    )
    reverse = custom_vjp(smooth)
    reverse.defvjp(
        lambda x: (reverse(x), x), lambda x, ct: ((np.cos(x) + np.sin(x)) * np.exp(x) * ct,)
    )
    for f in (forward, reverse, checkpoint(smooth)):
        _, terms = jet(f, (x2,), ([ones, None, None],))
        np.testing.assert_allclose(terms[2], third(x2), rtol=1e-13)


def test_a_rule_that_is_not_the_derivative_is_what_jet_uses():
    f = custom_jvp(lambda x: x)
    f.defjvp(lambda xs, ts: (xs[0], 3 * ts[0] * xs[0]))
    _, terms = jet(f, (2.0,), ([1.0, 0.0],))
    assert [float(t) for t in terms] == [6.0, 3.0]


# ---- containers, constants, errors


def test_containers_in_and_out():
    p = {"a": 1.0, "b": np.array([2.0, 3.0]), "n": 3}
    d = {"a": 1.0, "b": np.array([0.5, 0.0]), "n": 0}
    y, terms = jet(lambda p: (p["a"] * p["b"], {"n": p["n"], "a": p["a"]}), (p,), ([d, None],))
    np.testing.assert_array_equal(y[0], [2, 3])
    np.testing.assert_array_equal(terms[0][0], [2.5, 3])
    np.testing.assert_array_equal(terms[1][0], [1.0, 0])
    assert float(terms[0][1]["a"]) == 1.0 and float(terms[1][1]["a"]) == 0.0


def test_an_output_that_does_not_depend_has_zero_series():
    _y, terms = jet(lambda x: np.array([1.0, 2.0]), (0.3,), ([1.0, 0.0],))
    np.testing.assert_array_equal(terms, [[0, 0], [0, 0]])


def test_value_dependent_control_flow():
    def f(x):
        return x**2 if x > 0 else -x

    assert [float(t) for t in jet(f, (3.0,), ([1.0, 0.0],))[1]] == [6.0, 2.0]


def test_an_escaped_value_names_jet():
    kept = []
    jet(lambda x: kept.append(x) or x, (1.0,), ([1.0],))
    with pytest.raises(LeakedTracerError, match="jet"):
        kept[0] + 1


@pytest.mark.parametrize(
    ("primals", "series", "error", "text"),
    [
        (
            (1.0, 2.0),
            ([1.0],),
            ArgumentError,
            "was given 2 primals, so series must be a tuple of as many lists",
        ),
        ((1.0, 2.0), ([1.0], [1.0, 2.0]), ArgumentError, "series 1 has 2 terms, series 0 has 1"),
        (
            (1.0,),
            (1.0,),
            ArgumentError,
            "series 0 must be the list of the derivatives of argument 0",
        ),
        ((np.ones(2),), ([np.ones(3)],), ShapeError, "term 1 of series 0"),
        ((np.array([1, 2]),), ([np.ones(2)],), NotDifferentiable, "jet"),
    ],
)
def test_what_does_not_fit_is_said(primals, series, error, text):
    with pytest.raises(error, match=text):
        jet(lambda *xs: xs[0] * 2, primals, series)


def test_an_output_that_is_no_number_is_refused():
    with pytest.raises(ArgumentError, match="returned str 'a', which is not a number"):
        jet(lambda x: "a", (1.0,), ([1.0],))


# ---- orders whose factorials are out of range


def derivatives(f, x, order):
    x = np.asarray(x)
    one = np.ones(x.shape, x.dtype)
    _, terms = jet(f, (x,), ([one, *[None] * (order - 1)],))
    return np.array([np.asarray(t) for t in terms])


@pytest.mark.parametrize("order", [170, 171, 250, 400])
def test_orders_beyond_170_are_right_where_derivatives_are_finite(order):
    k = np.arange(1, order + 1)
    # 1e-12: each coefficient is a sum over all before it
    assert_allclose(derivatives(np.exp, 0.5, order), np.full(order, np.exp(0.5)), rtol=1e-12)
    cycle = np.array([np.sin(0.5), np.cos(0.5), -np.sin(0.5), -np.cos(0.5)])
    assert_allclose(derivatives(np.sin, 0.5, order), cycle[k % 4], rtol=1e-12)
    assert_allclose(derivatives(lambda x: np.exp(0.5 * x), 0.0, order), 0.5**k, rtol=1e-12)


def test_at_any_order_derivatives_that_overflow_are_inf_and_those_before_are_not():
    expected = np.array([float(math.factorial(k)) if k <= 170 else np.inf for k in range(1, 301)])
    found = derivatives(lambda x: 1 / (1 - x), 0.0, 300)
    assert_allclose(found, expected, rtol=1e-12)


def test_entries_that_grow_in_different_ways_are_each_right():
    x = np.array([0.0, 0.5])
    found = derivatives(lambda x: np.stack([1 / (1 - x[0]), np.exp(x[1])]), x, 200)
    assert_allclose(found[149], [float(math.factorial(150)), np.exp(0.5)], rtol=1e-12)
    assert_allclose(found[199], [np.inf, np.exp(0.5)], rtol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "order", "rtol"), [(np.float16, 20, 0.05), (np.float32, 60, 1e-5)]
)
def test_narrow_types_reach_beyond_their_factorials_too(dtype, order, rtol):
    found = derivatives(np.exp, dtype(0.5), order)
    assert found.dtype == dtype
    # a sum of as many roundings
    assert_allclose(found, np.full(order, np.exp(0.5)), rtol=rtol)


def test_under_vmap_they_are_the_same():
    def last(x):
        return jet(np.sin, (x,), ([np.ones(x.shape), *[None] * 179],))[1][-1]

    assert_allclose(ft.vmap(last)(np.array([0.5])), [np.sin(0.5)], rtol=1e-12)


def test_an_order_that_no_unit_brings_into_range_is_refused():
    with pytest.raises(ArgumentError, match=r"jet: on the way to order 5000 .* float64"):
        jet(np.exp, (0.5,), ([None] * 5000,))


def test_a_rule_may_use_both_zeros_and_two_types_of_one_number():
    # 2 pi for negative x: what is computed with -0.0 is not what is computed with 0.0
    turn = custom_jvp(lambda x: 2 * np.pi * x)
    turn.defjvp(lambda xs, ts: (
        turn(*xs), ts[0] * (np.arctan2(0.0, xs[0]) - np.arctan2(-0.0, xs[0]))))
    assert_allclose(derivatives(turn, -2.0, 2), [2 * np.pi, 0], atol=1e-15)
    twice = custom_jvp(lambda x: x**2)
    twice.defjvp(lambda xs, ts: (
        twice(*xs), ts[0] * (xs[0] * (1 + 0j)).real + ts[0] * (xs[0] * 1.0)))
    assert_allclose(derivatives(twice, 3.0, 3), [6, 2, 0], atol=1e-15)


def test_a_rule_may_call_one_function_with_two_fixed_arguments():
    scaled = custom_jvp(lambda x, k: k * x)
    scaled.defjvp(lambda xs, ts: (scaled(*xs), scaled(ts[0], xs[1])))
    product = custom_jvp(lambda x: 3 * x**2)
    product.defjvp(lambda xs, ts: (
        product(*xs), ts[0] * (scaled(xs[0], 2) + scaled(xs[0], 4))))
    assert_allclose(derivatives(product, 5.0, 3), [30, 6, 0], atol=1e-15)
