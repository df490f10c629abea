"""Reductions and running operations: NumPy's values, exact derivatives, the corners."""

import itertools

import mpmath
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans._core import plain
from functrans._ops.reductions import expand
from functrans._ops.structure import repeat
from tests.drawing import generator

RNG = generator(7)
X = RNG.normal(size=(3, 4))
CUBE = RNG.normal(size=(2, 3, 4))
HOLES = np.where(RNG.random((3, 4)) < 0.3, np.nan, X)
MASK = np.array([[True, False, True, True], [True, True, True, False], [False, True, True, True]])


def traced_value(f, x):
    """``f`` of a value that forward mode traces, as an ndarray."""
    return np.asarray(ft.jvp(f, (x,), (np.ones_like(x),))[0])


REDUCTIONS = ["sum", "prod", "mean", "var", "std", "max", "min", "ptp", "any", "all", "argmax",
              "argmin", "count_nonzero", "nansum", "nanprod", "nanmean", "nanmax", "nanmin",
              "nanvar", "nanstd", "average"]
ONE_AXIS = ("argmax", "argmin")


AXES = [None, 0, -1, (0, 2), (), (2, 1, 0)]
# those that NumPy takes: some functions want one axis
CALLS = [
    (name, axis)
    for name in REDUCTIONS
    for axis in AXES
    if not (isinstance(axis, tuple) and (name in ONE_AXIS or (name == "ptp" and axis == ())))
]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(("name", "axis"), CALLS, ids=str)
def test_values_are_numpys_along_any_axis(name, axis, keepdims):
    f = getattr(np, name)
    y = traced_value(lambda x: f(x, axis=axis, keepdims=keepdims), CUBE)
    expected = f(CUBE, axis=axis, keepdims=keepdims)
    assert y.shape == np.shape(expected) and y.dtype == np.asarray(expected).dtype
    np.testing.assert_allclose(y, expected, rtol=1e-14, atol=1e-15)


MASKED = ["sum", "prod", "mean", "var", "std", "any", "all", "nansum", "nanmean"]


@pytest.mark.parametrize("axis", [None, 0, 1], ids=str)
@pytest.mark.parametrize("name", MASKED)
def test_a_mask_leaves_entries_out(name, axis):
    f = getattr(np, name)
    y = traced_value(lambda x: f(x, axis=axis, where=MASK), X)
    np.testing.assert_allclose(y, f(X, axis=axis, where=MASK), rtol=1e-14)


INITIAL = [("sum", 2.5), ("prod", 2.5), ("max", 0.3), ("min", -0.3)]


@pytest.mark.parametrize("name, initial", INITIAL)
@pytest.mark.parametrize("where", [True, MASK], ids=["all", "mask"])
def test_initial_takes_part(name, initial, where):
    f = getattr(np, name)
    y = traced_value(lambda x: f(x, axis=1, initial=initial, where=where), X)
    np.testing.assert_allclose(y, f(X, axis=1, initial=initial, where=where), rtol=1e-14)


RUNNING = {
    "cumsum": lambda x: np.cumsum(x, axis=1), "cumsum flat": np.cumsum,
    "cumprod": lambda x: np.cumprod(x, axis=0), "cumprod flat": np.cumprod,
    "cummax": lambda x: np.maximum.accumulate(x, axis=1),
    "cummin": lambda x: np.minimum.accumulate(x),
    "add.accumulate": lambda x: np.add.accumulate(x, 1),
    "multiply.accumulate": lambda x: np.multiply.accumulate(x, axis=-1),
    "nancumsum": lambda x: np.nancumsum(x, axis=1),
    "nancumprod": lambda x: np.nancumprod(x, axis=0),
    "diff": np.diff, "diff twice": lambda x: np.diff(x, 2, axis=0),
    "diff ends": lambda x: np.diff(x, prepend=0.0, append=[[1.0], [2.0], [3.0]]),
    "trapezoid": np.trapezoid, "trapezoid dx": lambda x: np.trapezoid(x, dx=0.5, axis=0),
    "trapezoid x": lambda x: np.trapezoid(x, [0.0, 1.0, 3.0], axis=0),
    "weighted": lambda x: np.average(x, axis=1, weights=[1.0, 2.0, 3.0, 4.0]),
    "logaddexp.reduce": lambda x: np.logaddexp.reduce(x, axis=1),
    "add.reduce": np.add.reduce, "multiply.reduce": lambda x: np.multiply.reduce(x, axis=1),
    "maximum.reduce": lambda x: np.maximum.reduce(x, axis=None),
    "fmax.reduce": lambda x: np.fmax.reduce(x, axis=1),
    "logical_or.reduce": lambda x: np.logical_or.reduce(x > 0, axis=1),
}


@pytest.mark.parametrize("name", RUNNING)
def test_running_values_are_numpys(name):
    y = traced_value(RUNNING[name], X)
    np.testing.assert_allclose(y, RUNNING[name](X), rtol=1e-14, atol=1e-15)


@pytest.mark.skipif(not hasattr(np, "cumulative_sum"), reason="NumPy 2.1")
@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_cumulative_with_the_initial_value(name):
    f = getattr(np, name)
    y = traced_value(lambda x: f(x, axis=1, include_initial=True), X)
    np.testing.assert_allclose(y, f(X, axis=1, include_initial=True), rtol=1e-14)


# ---- derivatives, against mpmath's on the definition


def _mean(x):
    return sum(x) / len(x)


def _var(x):
    return sum((v - _mean(x)) ** 2 for v in x) / len(x)


DEFINITIONS = {
    "sum": (np.sum, sum),
    "prod": (np.prod, mpmath.fprod),
    "mean": (np.mean, _mean),
    "var": (np.var, _var),
    "var ddof": (lambda x: np.var(x, ddof=1), lambda x: _var(x) * len(x) / (len(x) - 1)),
    "std": (np.std, lambda x: mpmath.sqrt(_var(x))),
    "logaddexp.reduce": (np.logaddexp.reduce, lambda x: mpmath.log(sum(map(mpmath.exp, x)))),
    "cumprod": (lambda x: np.sin(np.cumprod(x)).sum(),
                lambda x: sum(mpmath.sin(mpmath.fprod(x[: i + 1])) for i in range(len(x)))),
    "cumsum": (lambda x: np.sin(np.cumsum(x)).sum(),
               lambda x: sum(mpmath.sin(sum(x[: i + 1])) for i in range(len(x)))),
    "average": (lambda x: np.average(x, weights=x * x),
                lambda x: sum(v**3 for v in x) / sum(v**2 for v in x)),
    "prod of two axes": (lambda x: np.prod(np.stack([x, x * x]), axis=(0, 1)),
                         lambda x: mpmath.fprod(x) ** 3),
    "max": (lambda x: np.max(x) ** 3, lambda x: max(x) ** 3),
    "cummax": (lambda x: (np.maximum.accumulate(x) ** 3).sum(),
               lambda x: sum(max(x[: i + 1]) ** 3 for i in range(len(x)))),
    "trapezoid": (lambda x: np.trapezoid(np.sin(x), x), lambda x: sum(
        (mpmath.sin(b) + mpmath.sin(a)) * (b - a) / 2 for a, b in itertools.pairwise(x))),
}
POINTS = {
    "smooth": [0.7, -1.3, 0.4, 1.9], "zero": [0.7, 0.0, 0.4, 1.9], "zeros": [0.0, 1.3, 0.0, 0.5],
}


def reference(f, x, *order):
    """The derivative of ``f`` in the entries named by ``order``, to more than double precision."""
    counts = [order.count(i) for i in range(len(x))]
    with mpmath.workdps(60):
        at = tuple(mpmath.mpf(v) for v in x)
        return float(mpmath.diff(lambda *v: f(list(v)), at, tuple(counts)))


CASES = [(n, p) for n in DEFINITIONS for p in POINTS if p != "zeros" or "prod" in n]


@pytest.mark.parametrize("name, point", CASES)
def test_gradients_are_mpmaths(name, point):
    f, definition = DEFINITIONS[name]
    x = np.array(POINTS[point])
    expected = [reference(definition, x, i) for i in range(4)]
    np.testing.assert_allclose(ft.grad(f)(x), expected, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(ft.jacfwd(f)(x), expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("name, point", CASES)
def test_hessians_are_mpmaths(name, point):
    f, definition = DEFINITIONS[name]
    x = np.array(POINTS[point])
    expected = [[reference(definition, x, i, j) for j in range(4)] for i in range(4)]
    for hessian in (ft.hessian, lambda f: ft.jacrev(ft.grad(f)), lambda f: ft.jacfwd(ft.jacfwd(f))):
        np.testing.assert_allclose(hessian(f)(x), expected, rtol=1e-12, atol=1e-13)


SMOOTH = {
    **{n: RUNNING[n] for n in RUNNING if not n.startswith("logical")},
    **{f"{n} {axis}": lambda x, n=n, axis=axis: getattr(np, n)(x, axis=axis)
       for n in ("sum", "prod", "mean", "var", "std", "max", "min", "ptp", "nanmean", "nanmax")
       for axis in (0, (0, 1))},
    "mean mask": lambda x: np.mean(x, axis=1, where=MASK),
    "std mask": lambda x: np.std(x, axis=0, where=MASK, keepdims=True),
    "max mask": lambda x: np.max(x, axis=0, where=MASK, initial=0.1),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_backward_is_the_transpose_of_forward(name):
    f = SMOOTH[name]
    t = RNG.normal(size=X.shape)
    y, dy = ft.jvp(f, (X,), (t,))
    ct = RNG.normal(size=y.shape)
    (cx,) = ft.vjp(f, X)[1](ct)
    assert np.vdot(ct, dy) == pytest.approx(np.vdot(cx, t), rel=1e-13, abs=1e-14)


@pytest.mark.parametrize("name", SMOOTH)
def test_vmap_is_a_loop(name):
    f = SMOOTH[name]
    xs = RNG.normal(size=(3, *X.shape))
    weigh = lambda x: (f(x) ** 2).sum()  # noqa: E731  # one line says it
    np.testing.assert_allclose(ft.vmap(f)(xs), np.stack([f(x) for x in xs]), rtol=1e-14, atol=1e-15)
    expected = np.stack([ft.grad(weigh)(x) for x in xs])
    np.testing.assert_allclose(ft.vmap(ft.grad(weigh))(xs), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", SMOOTH)
def test_single_precision_stays(name):
    x = X.astype(np.float32)
    y, back = ft.vjp(SMOOTH[name], x)
    if not name.startswith("trapezoid x") and name not in ("weighted", "diff ends"):
        assert y.dtype == np.float32
    assert back(np.ones_like(y))[0].dtype == np.float32
    assert ft.jvp(SMOOTH[name], (x,), (x,))[1].dtype == y.dtype


@pytest.mark.parametrize("name", ["any", "all", "argmax", "argmin", "count_nonzero"])
def test_vmap_of_reductions_without_a_derivative(name):
    f = getattr(np, name)
    for axis in (None, 1):
        expected = np.stack([f(x, axis=axis) for x in CUBE])
        np.testing.assert_array_equal(ft.vmap(lambda x, axis=axis: f(x, axis=axis))(CUBE), expected)


# ---- corners


@pytest.mark.parametrize("value", [0.0, 0.1, 3.0])
def test_the_spread_of_a_constant_has_derivative_zero(value):
    x = np.full(3, value)
    np.testing.assert_allclose(ft.grad(np.std)(x), 0, atol=1e-15)
    np.testing.assert_allclose(ft.jacfwd(np.std)(x), 0, atol=1e-15)


def test_the_spread_of_a_constant_has_a_finite_hessian():
    assert np.isfinite(ft.hessian(np.std)(np.full(3, 2.0))).all()


LARGEST = {
    "max": np.max,
    "accumulate": lambda x: np.maximum.accumulate(x)[-1],
    "nanmax": np.nanmax,
}


@pytest.mark.parametrize("f", LARGEST.values(), ids=LARGEST)
def test_a_tie_is_shared_equally(f):
    third = 1 / 3
    x = np.array([2.0, 1.0, 2.0, 2.0])
    np.testing.assert_allclose(ft.grad(f)(x), [third, 0, third, third], rtol=1e-15)
    np.testing.assert_allclose(ft.jacfwd(f)(x), [third, 0, third, third], rtol=1e-15)


def test_max_with_an_infinite_entry():
    x = np.array([-np.inf, 1.0, 3.0])
    np.testing.assert_array_equal(ft.grad(np.max)(x), [0, 0, 1])


def test_an_infinite_slope_behind_max_stays_with_the_winner():
    g = ft.grad(lambda x: np.sqrt(np.max(x)))(np.array([-1.0, 0.0]))
    np.testing.assert_array_equal(g, [0, np.inf])


def test_nan_goes_through_as_in_numpy():
    assert np.isnan(traced_value(np.max, HOLES))
    y = traced_value(np.maximum.accumulate, HOLES)
    np.testing.assert_array_equal(y, np.maximum.accumulate(HOLES))


NAN = ["nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanmax", "nanmin", "nancumsum",
       "nancumprod"]


@pytest.mark.parametrize("name", NAN)
def test_what_is_nan_counts_for_nothing(name):
    f = getattr(np, name)
    y = traced_value(lambda x: f(x, axis=0), HOLES)
    np.testing.assert_allclose(y, f(HOLES, axis=0), rtol=1e-14)
    g = ft.grad(lambda x: f(x, axis=0).sum())(HOLES)
    assert np.isfinite(g).all() and (np.asarray(g)[np.isnan(HOLES)] == 0).all()


def test_nothing_but_nan_warns_as_numpy_does():
    with pytest.warns(RuntimeWarning, match="All-NaN"):
        assert np.isnan(traced_value(np.nanmax, np.array([np.nan, np.nan])))


def test_logaddexp_reduce_does_not_overflow():
    x = np.array([1000.0, 1000.0, -1000.0])
    assert traced_value(np.logaddexp.reduce, x) == 1000 + np.log(2)
    np.testing.assert_array_equal(ft.grad(np.logaddexp.reduce)(x), [0.5, 0.5, 0])


def test_logaddexp_reduce_of_minus_infinity():
    g = ft.grad(np.logaddexp.reduce)(np.array([-np.inf, 0.0]))
    np.testing.assert_array_equal(g, [0, 1])


@pytest.mark.parametrize("name", ["sum", "prod", "any", "all"])
def test_nothing_reduces_to_the_identity(name):
    f = getattr(np, name)
    nothing = np.ones((2, 0))
    np.testing.assert_array_equal(traced_value(lambda x: f(x, axis=1), nothing), f(nothing, axis=1))
    assert ft.grad(lambda x: np.prod(x) + x.sum())(nothing).shape == (2, 0)


def test_the_maximum_of_nothing_raises_numpys_error():
    with pytest.raises(ValueError, match="zero-size array to reduction operation maximum"):
        ft.grad(np.max)(np.ones(0))


def test_the_mean_of_nothing_warns_as_numpy_does():
    with pytest.warns(RuntimeWarning) as caught:
        assert np.isnan(traced_value(np.mean, np.ones(0)))
    assert any("Mean of empty slice" in str(w.message) for w in caught)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "max", "cumsum", "cumprod"])
def test_a_number_is_its_own_reduction(name):
    f = getattr(np, name)
    g = ft.grad(lambda x: f(x).sum())(2.0)
    assert g == 1 and g.shape == ()


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "cumsum", "cumprod"])
def test_holomorphic_derivatives(name):
    f = getattr(np, name)
    z = RNG.normal(size=3) + 1j * RNG.normal(size=3)
    g = ft.grad(lambda z: (f(z) ** 2).sum(), holomorphic=True)(z)
    h = 1e-7  # the function is analytic; central differences are the one oracle without our rules
    for k in range(3):
        e = h * np.eye(3)[k]
        d = ((f(z + e) ** 2).sum() - (f(z - e) ** 2).sum()) / (2 * h)
        assert g[k] == pytest.approx(d, rel=1e-6)


@pytest.mark.parametrize("name", ["var", "std"])
def test_the_spread_of_complex_numbers(name):
    f = getattr(np, name)
    z = RNG.normal(size=4) + 1j * RNG.normal(size=4)
    np.testing.assert_allclose(traced_value(f, z), f(z), rtol=1e-14)
    power = 0.5 if name == "std" else 1
    a, b = ft.grad(lambda a, b: (np.var(a) + np.var(b)) ** power, (0, 1))(z.real, z.imag)
    np.testing.assert_allclose(ft.grad(f)(z), a + 1j * b, rtol=1e-13)


def test_prod_survives_underflow():
    x = np.array([1e-200, 1e-200, 2.0])
    np.testing.assert_allclose(ft.grad(np.prod)(x), [2e-200, 2e-200, 0], rtol=1e-15)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", ["mean", "var", "std"])
def test_half_precision_is_summed_in_single_as_in_numpy(name, dtype):
    x = np.linspace(0, 1, 1000).astype(dtype)
    f = getattr(np, name)
    y = traced_value(f, x)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, f(x), rtol=2 * np.finfo(dtype).eps)
    assert ft.grad(f)(x).dtype == dtype


def test_mean_of_integers_is_float64():
    y = ft.vmap(np.mean)(np.array([[1, 2], [3, 5]]))
    assert y.dtype == np.float64
    np.testing.assert_array_equal(y, [1.5, 4.0])


def test_dtype_is_the_type_of_the_sum():
    x = X.astype(np.float32)
    y, back = ft.vjp(lambda x: np.sum(x, dtype=np.float64), x)
    assert y.dtype == np.float64 and back(np.float64(1))[0].dtype == np.float32


METHODS = ["sum", "prod", "mean", "var", "std", "max", "min", "any", "all", "argmax", "argmin",
           "cumsum", "cumprod"]


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_the_functions(name):
    y = traced_value(lambda x: getattr(x, name)(0), X)
    np.testing.assert_allclose(y, getattr(X, name)(0), rtol=1e-14)


def test_a_list_of_traced_values_is_stacked():
    g = ft.grad(lambda x: fnp.sum([x[0], 2 * x[1], 3.0]))(np.array([1.0, 1.0]))
    np.testing.assert_array_equal(g, [1, 2])


def test_plain_values_go_to_numpy():
    y = fnp.std(X, axis=0)
    assert type(y) is ft.Array
    np.testing.assert_array_equal(y, np.std(X, axis=0))


def test_weights_may_be_traced_alone():
    g = ft.grad(lambda w: np.average(X[0], weights=w))(np.ones(4))
    np.testing.assert_allclose(g, (X[0] - X[0].mean()) / 4, rtol=1e-13)


def test_weights_that_sum_to_zero_raise():
    with pytest.raises(ZeroDivisionError, match="Weights sum to zero"):
        ft.grad(lambda x: np.average(x, weights=[1.0, -1.0]))(np.ones(2))


def test_out_is_refused_by_name():
    with pytest.raises(ft.errors.UnsupportedError, match=r"sum got out="):
        ft.grad(lambda x: x.sum(out=np.zeros(())))(X)


MISFITS = [lambda x: x.sum(axis=2), lambda x: np.cumsum(x, 2), lambda x: x.max(axis=(0, 0))]


@pytest.mark.parametrize("f", MISFITS, ids=["sum", "cumsum", "max"])
def test_a_wrong_axis_raises_numpys_error(f):
    with pytest.raises((np.exceptions.AxisError, ValueError), match="axis"):
        ft.vjp(f, X)


def test_max_with_a_mask_needs_an_initial_value():
    with pytest.raises(ValueError, match="does not have an identity"):
        ft.grad(lambda x: np.max(x, where=x > 0))(X)


def test_the_gradient_of_a_sum_of_many_is_one_number_seen_everywhere():
    g = ft.grad(np.sum)(np.ones(100_000))
    assert g.strides == (0,) and g[5] == 1


def test_infinity_among_exponentials_takes_all():
    x = np.array([0.0, np.inf, -np.inf])
    assert traced_value(np.logaddexp.reduce, x) == np.inf
    np.testing.assert_array_equal(ft.grad(np.logaddexp.reduce)(x), [0, 1, 0])


def test_a_sum_keeps_nothing_alive():
    from functrans._ops import reductions as rows

    assert rows.sum.saves([True], {"axis": (0,)}) == (False, (False,))


def test_third_derivatives_of_a_product_with_a_zero():
    x = np.array([0.0, 2.0, 3.0])
    third = ft.jacfwd(ft.hessian(np.prod))(x)
    expected = np.zeros((3, 3, 3))
    for p in itertools.permutations(range(3)):
        expected[p] = 1
    np.testing.assert_allclose(third, expected, atol=1e-15)


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_what_comes_before_a_nan_keeps_its_derivative_in_running_products(shape):
    x = np.array([2.0, 3.0, np.nan, 5.0]).reshape(shape)
    pull = ft.vjp(lambda x: np.cumprod(x, axis=0), x)[1]
    assert pull(np.array([0.0, 1.0, 0.0, 0.0]).reshape(shape))[0].ravel().tolist() == [3, 2, 0, 0]
    t = np.array([1.0, 0.0, 0.0, 0.0]).reshape(shape)
    dy = ft.jvp(lambda x: np.cumprod(x, axis=0), x, t)[1]
    assert dy.ravel()[:2].tolist() == [1.0, 3.0]


@pytest.mark.parametrize("axis", [(0, 1), (1, 0), (2, 0), (-1, 1)], ids=str)
def test_weights_go_to_the_axes_in_the_order_in_which_these_are_named(axis):
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3, 3, 3))  # so that weights in another order would fit as well
    w = rng.random((3, 3))
    spread = np.einsum(w, [i % 3 for i in axis], np.ones((3, 3, 3)), [0, 1, 2], [0, 1, 2])
    y, pull = ft.vjp(lambda a: np.average(a, axis=axis, weights=w), a)
    np.testing.assert_allclose(y, np.average(a, axis=axis, weights=w), rtol=1e-14)
    np.testing.assert_allclose(pull(np.ones(3))[0], spread / w.sum(), rtol=1e-14)

    def quantile(a):
        return np.quantile(a, 0.3, axis=axis, weights=w, method="inverted_cdf")

    np.testing.assert_array_equal(ft.vjp(quantile, a)[0], quantile(a))


@pytest.mark.parametrize("f", [np.var, np.std, np.mean, np.nanvar, np.nanstd, np.nanmean])
@pytest.mark.parametrize(("shape", "axis"), [((7,), None), ((3, 50), 1), ((4, 5, 6), (0, 2))])
def test_float16_rounds_as_numpys(f, shape, axis):
    x = np.random.default_rng(3).normal(1, 3, (50, *shape)).astype(np.float16)
    for one in x:
        found = ft.jvp(lambda x: f(x, axis=axis), (one,), (one,))[0]
        assert found.dtype == np.float16
        np.testing.assert_array_equal(found, f(one, axis=axis))
    compiled = ft.jit(lambda x: f(x, axis=axis))
    np.testing.assert_array_equal([compiled(one) for one in x], [f(one, axis=axis) for one in x])


def test_the_count_of_masked_float16_is_not_rounded():
    x = np.ones(4001, np.float16)
    weighed = ft.jvp(lambda x: np.mean(x, where=x > 0), (x,), (x,))[0]
    np.testing.assert_array_equal(weighed, np.mean(x, where=x > 0))


@pytest.mark.parametrize("f", [np.sum, np.prod, np.mean, np.var, np.std, np.cumsum, np.nansum])
def test_a_real_dtype_of_complex_entries_warns_as_numpys(f):
    z = np.array([1 + 2j, 3.0])
    with pytest.warns(np.exceptions.ComplexWarning):
        expected = f(z, dtype=float)
    with pytest.warns(np.exceptions.ComplexWarning, match="discards the imaginary part"):
        found = ft.jvp(lambda z: f(z, dtype=float), (z,), (z,))[0]
    assert found.dtype == float
    np.testing.assert_array_equal(found, expected)


def test_a_real_part_taken_by_name_does_not_warn():
    z = np.array([1 + 2j, 3.0])
    np.testing.assert_array_equal(ft.grad(lambda z: np.sum(z.real, dtype=np.float32))(z), [1, 1])


# ---- rows and columns that are short


def _marked(shape, dtype):
    """Random numbers, with zeros of both signs, infinities and NaNs among them."""
    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    flat = x.reshape(-1)
    for k, value in enumerate([-0.0, 0.0, np.inf, -np.inf, np.nan, -0.0]):
        flat[k :: 7 * (k + 3)] = value
    x.reshape(-1, shape[-1])[::5] = -0.0
    return x


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("width", range(2, 9))
def test_a_sum_of_short_rows_is_numpys_to_the_last_bit(width, dtype):
    x = _marked((20, 50, width), dtype)
    with np.errstate(all="ignore"):
        y, expected = plain.reduce(x, (2,)), np.add.reduce(x, 2)
    np.testing.assert_array_equal(y, expected)
    real = ~np.isnan(y)
    np.testing.assert_array_equal(np.signbit(y[real]), np.signbit(expected[real]))


SHAPES = [(1,), (40, 3), (3, 2000), (64, 64, 3), (2, 1, 4, 5), (300, 2, 1), (0, 3)]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_of_rules_are_numpys_but_for_rounding(shape, dtype):
    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    sizes = np.abs(x)
    for count in range(1, len(shape) + 1):
        for axes in itertools.combinations(range(len(shape)), count):
            y, expected = plain.summed(x, axes), np.add.reduce(x, axes)
            # as far as the rounding of the terms lets them be
            error = np.abs(y.reshape(expected.shape) - expected)
            assert (error <= 8 * np.finfo(dtype).eps * sizes.sum(axes)).all()
            assert y.dtype == expected.dtype


def test_one_infinite_entry_stays_in_its_sum():
    x = np.ones((200, 4, 3))
    x[7, 2, 1] = np.inf
    np.testing.assert_array_equal(plain.summed(x, (1,)), x.sum(1))
    np.testing.assert_array_equal(plain.summed(x, (0, 1)), x.sum((0, 1)))


def test_columns_of_a_broadcast_are_its_entries():
    x, shape = np.arange(500.0).reshape(2, 250), (2, 250, 3)
    np.testing.assert_array_equal(expand(x, shape, (2,)), np.broadcast_to(x[..., None], shape))


@pytest.mark.parametrize("have, shape", [
    ((3,), (5, 3)), ((4, 1, 3), (2, 4, 6, 3)), ((1, 1), (7, 2)), ((), (3,)), ((0,), (2, 0)),
    ((1,), (0,)),
], ids=str)
def test_a_repetition_is_a_broadcast_that_cannot_be_written_to(have, shape):
    x = np.random.default_rng(0).normal(size=have)
    y = repeat(x, shape)
    np.testing.assert_array_equal(y, np.broadcast_to(x, shape))
    assert not y.flags.writeable
    with pytest.raises(ValueError, match="could not be broadcast"):
        repeat(np.ones((2, 3)), (5, 4))


@pytest.mark.parametrize("transform", [
    ft.jit, lambda f: lambda x: ft.vmap(f)(x[None])[0],
    lambda f: ft.jit(lambda x: ft.vmap(f)(x[None])[0]),
], ids=["jit", "vmap", "jit of vmap"])
class TestExtremesOfNothing:
    @pytest.mark.parametrize("dtype", ["i2", "u1", "?", "f4"])
    @pytest.mark.parametrize("f", [np.max, np.min, np.nanmax])
    def test_with_a_start_they_are_it_as_in_numpy(self, transform, f, dtype, unoptimised):
        x = np.zeros((2, 0, 3), dtype)
        for kw in ({"axis": 1}, {"axis": 1, "keepdims": True}, {"keepdims": True}, {"axis": 2}):
            options = {**kw, "initial": 1}
            got, want = transform(lambda x, o=options: f(x, **o))(x), f(x, **options)
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)

    @pytest.mark.parametrize("f", [np.max, np.min, np.ptp, np.nanmin])
    def test_without_one_they_are_refused(self, transform, f, unoptimised):
        for dtype in ("i4", "f8"):
            with pytest.raises(ValueError, match="zero-size array to reduction operation"):
                transform(f)(np.zeros((0, 3), dtype))
        assert transform(lambda x: f(x, axis=1))(np.zeros((0, 3), "i4")).shape == (0,)
