"""Slopes, differences, interpolation, phases and windows under NumPy's names."""

import mpmath as mp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
import functrans.numpy as fnp
from functrans.errors import ConcretizationError
from functrans.testing import check_grads
from tests.cases import CHECK_NAMES, CHECKS, Case

V, A = (6,), (4, 5)


WINDOWS = np.lib.stride_tricks.sliding_window_view


def both(f):
    """Slopes along two axes as one array."""
    return lambda *xs: np.stack(f(*xs))


ANALYTIC = {
    "gradient": Case(np.gradient, (V,)),
    "gradient of two samples": Case(np.gradient, ((2,),)),
    "gradient of a matrix": Case(both(np.gradient), (A,)),
    "gradient along an axis": Case(lambda f: np.gradient(f, axis=0), (A,)),
    "gradient along axes out of order": Case(both(lambda f: np.gradient(f, axis=(1, 0))), (A,)),
    "gradient with a step": Case(np.gradient, (V, ())),
    "gradient with steps": Case(both(np.gradient), (A, (), ())),
    "gradient with coordinates": Case(np.gradient, (V, V)),
    "gradient with both": Case(both(np.gradient), (A, (), (5,))),
    "gradient of second order": Case(lambda f: np.gradient(f, edge_order=2), (V,)),
    "gradient of second order of three": Case(
        lambda f, h: np.gradient(f, h, edge_order=2), ((3,), ())
    ),
    "gradient of second order with coordinates": Case(
        lambda f, x: np.gradient(f, x, axis=-1, edge_order=2), (A, (5,))
    ),
    "gradient with a list": Case(lambda f: np.gradient(f, [0.0, 1.0, 3.0, 4.0], axis=0), (A,)),
    "gradient with an even list": Case(lambda f: np.gradient(f, [0, 2, 4, 6], axis=0), (A,)),
    "ediff1d": Case(np.ediff1d, (A,)),
    "ediff1d with ends": Case(np.ediff1d, (V, (2,), ())),
    "ediff1d of one": Case(lambda x, end: np.ediff1d(x, to_begin=end), ((1,), (2,))),
    "diff between ends": Case(lambda x, p: np.diff(x, prepend=p, append=x[:, :1]), (A, ())),
    "trapezoid with coordinates": Case(lambda y, x: np.trapezoid(y, x, axis=0), (A, (4,))),
    "trapezoid with a step": Case(lambda y, h: np.trapezoid(y, dx=h), (A, ())),
    "convolve": Case(lambda a, v: np.convolve(a, v, "same"), (V, (3,))),
    # conjugated once more, so that there is a complex step
    "correlate": Case(lambda a, v: np.correlate(a, np.conj(v), "same"), (V, (3,))),
    "correlate with longer": Case(lambda a, v: np.correlate(a, np.conj(v), "full"), ((2,), V)),
    "windows": Case(lambda x: WINDOWS(x, 3)[1:], (V,)),
    "windows of axes": Case(lambda x: WINDOWS(x, (2, 3))[1:], (A,)),
    "windows along one axis twice": Case(lambda x: WINDOWS(x, (2, 3), (1, -1)), (A,)),
    "windows of no entries": Case(lambda x: WINDOWS(x, 0, 0).sum() + x, (V,)),
    "cross": Case(lambda a, b: np.cross(a, b, axisa=0, axisc=0), ((3, 2), (2, 3))),
}


@pytest.mark.parametrize("check", CHECKS, ids=CHECK_NAMES)
@pytest.mark.parametrize("case", ANALYTIC.values(), ids=ANALYTIC)
def test_analytic(case, check):
    check(case)


def compiled_and_batched(f, *xs):
    """``f`` under jit and under vmap, which are both to be what it is on ndarrays."""
    want = f(*xs)
    for got in (ft.jit(f)(*xs), ft.vmap(f)(*[np.stack([x, x]) for x in xs])[0]):
        assert got.dtype == want.dtype
        assert_allclose(got, want, rtol=1e-13, atol=1e-13)


# ---- gradient and ediff1d


def test_gradient_of_integers_is_floating_as_in_numpy():
    x = np.array([[1, 4, 9, 16]])
    assert ft.vmap(np.gradient)(x).dtype == float
    y = ft.vmap(lambda f: np.gradient(f, np.array([0, 1, 3, 4])))(x)[0]
    assert_allclose(y, np.gradient(x[0], np.array([0, 1, 3, 4])))


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda f: np.gradient(f, edge_order=3), ValueError, "greater than 2"),
    (lambda f: np.gradient(f[:1]), ValueError, "too small"),
    (lambda f: np.gradient(f[:2], edge_order=2), ValueError, "too small"),
    (lambda f: np.gradient(f, 1.0, 2.0), TypeError, "invalid number of arguments"),
    (lambda f: np.gradient(f, np.ones(3)), ValueError, "match the length"),
    (lambda f: np.gradient(f, np.ones((4, 1))), ValueError, "scalars or 1d"),
    (lambda f: np.ediff1d(f, to_end=1j), TypeError, "`to_end` must be compatible"),
    (lambda f: np.ediff1d(f, to_begin=[1j]), TypeError, "`to_begin` must be compatible"),
    (lambda f: np.interp(f, [[0.0]], [0.0]), ValueError, "1-D|too deep|dimension of 1"),
    (lambda f: np.interp(f, [], []), ValueError, "sample points is empty"),
    (lambda f: np.interp(f, [0.0, 1.0], [0.0]), ValueError, "not of the same length"),
    (lambda f: np.interp(f, [0.0, 1.0], [0.0, 1.0], period=0), ValueError, "non-zero"),
    (lambda f: np.i0(f + 0j), TypeError, "complex"),
])
def test_errors_are_numpys(call, error, text):
    x = np.arange(4.0)
    for f in (call, lambda x: ft.grad(lambda x: np.sum(call(x)))(x)):
        with pytest.raises(error, match=text):
            f(x)


def test_ediff1d_of_integers_keeps_its_ends_integers():
    x = np.array([[1, 4, 9]])
    y = ft.vmap(lambda v: np.ediff1d(v, 7, [5, 6]))(x)
    assert y.tolist() == [[5, 6, 3, 5, 7]]
    assert y.dtype == x.dtype


# ---- interpolation

XP, FP = np.array([-1.0, 0.0, 2.0, 2.5]), np.array([3.0, 1.0, 2.0, -1.0])


def line(x, xp, fp, left=None, right=None):
    """The value and the segment that np.interp takes at one point."""
    if x < xp[0] or x > xp[-1]:
        k = 0 if x < xp[0] else -1
        given = (left, right)[k]
        return fp[k] if given is None else given
    i = min(max(np.searchsorted(xp, x, "right") - 1, 0), len(xp) - 2)
    return fp[i] + (fp[i + 1] - fp[i]) * (x - xp[i]) / (xp[i + 1] - xp[i])


POINTS = np.array([-3.0, -0.4, 0.7, 1.9, 2.2, 4.0, 0.0, -1.0, 2.5])


def test_interp_in_all_its_arguments():
    def by_hand(x, xp, fp, left, right):
        return np.stack([line(v, xp, fp, left, right) for v in x])

    def interp(x, xp, fp, left, right):
        return fnp.interp(x, xp, fp, left=left, right=right)

    args = (POINTS, XP, FP, np.array(5.0), np.array(-2.0))
    assert_allclose(ft.jvp(interp, args, args)[0], interp(*args), rtol=1e-14, atol=1e-15)
    for k in range(5):
        expected = ft.jacobian(by_hand, k)(*args)
        assert_allclose(ft.jacobian(interp, k)(*args), expected, rtol=1e-13, atol=1e-14)
        assert_allclose(ft.jacfwd(interp, k)(*args), expected, rtol=1e-13, atol=1e-14)
    check_grads(lambda fp: np.interp(POINTS, XP, fp) ** 2, (FP,), order=2)
    compiled_and_batched(interp, *args)


@pytest.mark.parametrize("period", [4.0, -4.0])
def test_interp_of_a_periodic_function(period):
    x = np.array([-7.3, -0.2, 0.4, 1.7, 8.8])

    def f(x, xp, fp):
        return np.interp(x, xp, fp, left=9.0, right=9.0, period=period)

    y, dy = ft.jvp(lambda x: f(x, XP, FP), (x,), (np.ones(5),))
    assert_allclose(y, f(x, XP, FP), rtol=1e-13, atol=1e-14)
    h = 1e-4
    # a piecewise linear function: differences are exact away from the points
    assert_allclose(dy, (f(x + h, XP, FP) - f(x - h, XP, FP)) / (2 * h), rtol=1e-9)
    moved = (f(x, XP + h, FP) - f(x, XP - h, FP)) / (2 * h)
    assert_allclose(ft.jvp(lambda p: f(x, p, FP), (XP,), (np.ones(4),))[1], moved, rtol=1e-9)
    compiled_and_batched(f, x, XP, FP)


def test_interp_moves_with_its_period():
    x, h = np.array([-7.3, 0.4, 8.8]), 1e-4

    def f(p):
        return fnp.interp(x, XP, FP, period=p)

    expected = (f(4 + h) - f(4 - h)) / (2 * h)
    # the last segment's length is the period, whose slope bends: second-order differences
    assert_allclose(ft.jacobian(f)(4.0), expected, rtol=1e-7)


def test_interp_is_in_double_precision_as_in_numpy():
    x = np.array([0.5, 1.0], np.float32)
    y, dy = ft.jvp(lambda x: np.interp(x, XP, FP), (x,), (x,))
    assert y.dtype == dy.dtype == np.interp(x, XP, FP).dtype == float
    assert ft.grad(lambda x: np.interp(x, XP, FP).sum())(x).dtype == np.float32
    z, _ = ft.jvp(lambda fp: np.interp(0.5, XP, fp), (FP + 1j,), (FP + 0j,))
    assert_allclose(z, np.interp(0.5, XP, FP + 1j))


def test_interp_of_one_point_and_of_nan():
    slopes = ft.jacobian(lambda fp: np.interp([0.0, 5.0], [1.0], fp))(np.ones(1))
    assert slopes.tolist() == [[1], [1]]
    y, dy = ft.jvp(lambda x: np.interp(x, XP, FP), (np.array([np.nan, 0.5]),), (np.ones(2),))
    assert np.isnan(y[0])
    assert dy[1] == 0.5


# ---- unwrap


PHASES = np.array([[0.1, 3.0, -3.1, 2.9, 9.0], [0.0, -4.0, 7.0, np.pi, 0.0]])


@pytest.mark.parametrize("options", [
    {}, {"axis": 0}, {"period": 4.0}, {"period": 4, "discont": 3.0}, {"discont": 5.0}
])
def test_unwrap_adds_a_constant(options):
    def f(p):
        return np.unwrap(p, **options)

    y, dy = ft.jvp(f, (PHASES,), (PHASES,))
    assert_allclose(y, f(PHASES), rtol=1e-14, atol=1e-14)
    assert_allclose(dy, PHASES, rtol=0)
    assert ft.grad(lambda p: f(p).sum())(PHASES).tolist() == np.ones((2, 5)).tolist()
    apart = 1.07 * PHASES + 0.03 * np.arange(5)  # where no step is half a turn
    check_grads(lambda p: f(p) ** 2, (apart,), order=2)
    compiled_and_batched(f, PHASES)


def test_unwrap_moves_with_its_period():
    p, h = PHASES[0], 1e-6

    def f(q):
        return fnp.unwrap(p, period=q)

    want = np.round((f(3 + h) - f(3 - h)) / (2 * h))  # whole turns
    assert ft.jacobian(f)(3.0).tolist() == want.tolist()
    assert ft.jacfwd(f)(3.0).tolist() == want.tolist()


def test_unwrap_at_half_a_turn_goes_the_way_of_numpy():
    for p in (np.array([0.0, np.pi]), np.array([0.0, -np.pi]), np.array([0.0, np.pi, 0, -np.pi])):
        assert_allclose(ft.jit(np.unwrap)(p), np.unwrap(p), rtol=1e-15)


@pytest.mark.parametrize("period", [4, 5, 4.0])
def test_unwrap_of_integers_and_of_one(period):
    x = np.array([[0, 3, 1, 8, 6, 1]])
    y = ft.vmap(lambda p: np.unwrap(p, period=period))(x)
    assert y.dtype == np.unwrap(x, period=period).dtype
    assert y.tolist() == np.unwrap(x, period=period).tolist()
    assert ft.vmap(lambda p: np.unwrap(p, period=period))(x[:, :1]).dtype == y.dtype
    x = np.ones(3, np.float32)
    assert ft.jvp(np.unwrap, (x,), (x,))[0].dtype == np.float32


# ---- the rest


def test_i0_and_its_derivatives_agree_with_mpmath():
    x = np.array([0.0, -0.3, 1.0, 7.9, 8.1, -25.0])
    f = np.i0
    for order in range(4):
        with mp.workdps(30):
            want = [float(mp.diff(lambda v: mp.besseli(0, v), v, order)) for v in x]
        assert_allclose(f(x) if order else ft.jvp(f, (x,), (x,))[0], want, rtol=2e-13, atol=1e-15)
        f = ft.elementwise_grad(f)
    compiled_and_batched(np.i0, x)
    assert ft.vmap(np.i0)(np.array([[1, 2]])).dtype == float


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.longdouble])
def test_i0_keeps_its_type(dtype):
    x = np.array([0.5, 2.0], dtype)
    y, dy = ft.jvp(np.i0, (x,), (np.ones_like(x),))
    assert y.dtype == dy.dtype == dtype
    assert ft.grad(lambda x: np.i0(x).sum())(x).dtype == dtype
    with mp.workdps(30):
        want = [float(mp.besseli(1, v)) for v in (0.5, 2)]
    assert_allclose(dy.astype(float), want, rtol=8 * max(np.finfo(dtype).eps, 2e-16))


def test_kaiser_window_moves_with_its_shape():
    check_grads(lambda b: fnp.kaiser(7, b), (8.6,), order=2)
    assert_allclose(ft.jvp(lambda b: fnp.kaiser(6, b), (8.6,), (1.0,))[0], np.kaiser(6, 8.6))
    assert ft.jvp(lambda b: (fnp.kaiser(1, b), b), (8.6,), (1.0,))[0][0].tolist() == [1]
    assert type(fnp.kaiser(5, 2.0)) is type(fnp.hamming(5)) is ft.Array


def test_degrees_and_radians():
    x = np.array([0.3, -2.0])
    assert_allclose(ft.jvp(np.degrees, (x,), (x,))[1], np.degrees(x), rtol=1e-15)
    assert_allclose(ft.grad(lambda x: np.radians(x).sum())(x), np.pi / 180, rtol=1e-15)


def test_real_if_close_needs_values():
    z = np.array([1 + 1e-20j, 2.0])
    y, dy = ft.jvp(np.real_if_close, (z,), (z * 1j,))
    assert y.dtype == dy.dtype == float
    assert ft.jvp(np.real_if_close, (z + 1j,), (z,))[0].dtype == complex
    for transform in (ft.jit, ft.vmap):
        with pytest.raises(ConcretizationError, match=r"real_if_close: the dtype.*Use np\.real"):
            transform(np.real_if_close)(z)


@pytest.mark.parametrize(
    "fp",
    [
        [0.0, np.inf, 1.0, 2.0], [np.inf, np.inf, -np.inf, 2.0], [1.0, 2.0, 3.0, -np.inf],
        [np.inf, 1.0, 2.0, np.inf], [0.0, np.nan, 1.0, 2.0],
    ],
    ids=str,
)
def test_interpolation_beside_infinite_points_is_numpys(fp):
    x, xp = np.array([0.0, 0.25, 1, 1.5, 2, 2.5, 3, 4, -1]), np.arange(4.0)
    want = np.interp(x, xp, fp)
    y, dy = ft.jvp(lambda x: np.interp(x, xp, fp), (x,), (np.ones(9),))
    assert_array_equal(y, want)
    assert_array_equal(ft.jit(lambda x: np.interp(x, xp, fp))(x), want)
    assert_array_equal(ft.jit(np.interp)(x, xp, np.array(fp)), want)
    away = np.isfinite(want) & ~np.isin(x, xp)
    step = np.interp(x[away] + 2.0**-10, xp, fp) - want[away]
    assert_array_equal(dy[away], step * 2.0**10)


def test_windows_are_views_in_a_function_that_writes():
    def f(x):
        y = fnp.zeros(4)
        rows = WINDOWS(y, 2)
        y[1:3] = x
        return (rows * np.array([[1.0, 2.0], [4.0, 8.0], [16.0, 32.0]])).sum()

    assert_array_equal(ft.grad(f)(np.ones(2)), [6.0, 24.0])
    assert f(np.ones(2)) == 30.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((7,), "window shape cannot be larger"), ((-1,), "cannot contain negative values"),
        (((2, 2), 0), "Must provide matching length"),
    ],
)
def test_windows_have_numpys_errors(options, message):
    with pytest.raises(ValueError, match=message):
        ft.jvp(lambda x: WINDOWS(x, *options), np.ones(6), np.ones(6))


@pytest.mark.parametrize("f", [np.gradient, np.ediff1d])
def test_booleans_have_no_differences(f):
    x = np.array([True, False, True])
    for g in (f, ft.jit(f)):
        with pytest.raises(TypeError, match="boolean"):
            g(x)
