"""Values of ufuncs by kernels of our own: within one unit in the last place, or NumPy's."""

from contextlib import nullcontext

import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
from functrans._compile.lowering.numbers import Code
from functrans._compile.run import row_kernels
from functrans._kernels import sizes
from functrans._ops.declare import TABLE
from tests.drawing import generator

RNG = generator(17)
SIZE = 1500


def spread(low, high):
    """Numbers of every magnitude between two powers of ten."""
    return 10.0 ** RNG.uniform(low, high, SIZE // 3)


def between(low, high):
    return RNG.uniform(low, high, SIZE // 3)


QUARTERS = np.arange(1, 83_000, 55) * (np.pi / 2)
POINTS = {
    "sin": [between(-1, 1), -spread(-300, 5), QUARTERS, [91553.86390724055, 131072.0]],
    "cos": [between(-1, 1), spread(-300, 5), -QUARTERS, [91553.86390724055, -131072.0]],
    "log1p": [between(-1, 3), spread(-320, 300), -spread(-300, -1e-6), between(-0.5, 0.5)],
    "tanh": [between(-1, 1), between(-25, 25), between(0.9, 1.1), spread(-300, 300)],
}


def kernel(name, *xs):
    y = row_kernels.run(name, 1, xs)
    if y is None:
        pytest.skip(f"no native code for {name} here, or NumPy's is faster")
    return y


@pytest.fixture
def fresh(monkeypatch):
    """Kernels written anew, for a processor that fuses a product and a sum, or for one that does
    not."""

    def write(fused):
        if not fused:
            monkeypatch.setattr(Code, "contracting", nullcontext)
        monkeypatch.setattr(row_kernels, "_NUMPYS", ())
        monkeypatch.setattr(row_kernels, "_native", row_kernels._native.__wrapped__)

    return write


def ulps(y, exact):
    """The greatest distance in units in the last place of the exact values."""
    with mpmath.workprec(200):
        units = np.spacing(np.abs([float(e) for e in exact]).astype(y.dtype)).tolist()
        return max(abs(mpmath.mpf(v) - e) / u
                   for v, e, u in zip(y.tolist(), exact, units, strict=True))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", POINTS)
def test_values_are_within_a_unit_of_the_exact_ones(name, fused, fresh):
    fresh(fused)
    x = np.concatenate(POINTS[name])
    with mpmath.workprec(200):
        exact = [getattr(mpmath, name)(mpmath.mpf(v)) for v in x.tolist()]
    assert ulps(kernel(name, x), exact) < 1


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log1p_and_logaddexp(dtype, fused, fresh):
    fresh(fused)
    x1, x2 = (np.concatenate([between(-5, 5), -spread(-5, 2), spread(-5, 2)]).astype(dtype)
              for _ in range(2))
    near = np.linspace(-0.5, -0.1, 1000)  # where the logarithm is larger than the operands
    x1, x2 = (np.concatenate([x, more.astype(dtype)])
              for x, more in ((x1, near), (x2, near + np.linspace(0, 0.2, 1000))))
    with mpmath.workprec(200):
        exact = [mpmath.log(mpmath.exp(mpmath.mpf(a)) + mpmath.exp(mpmath.mpf(b)))
                 for a, b in zip(x1.tolist(), x2.tolist(), strict=True)]
    y = kernel("logaddexp", x1, x2)
    # the sum of a maximum and a logarithm may cancel, as NumPy's does
    unit = np.spacing(np.maximum(np.abs(y), np.maximum(np.abs(x1), np.abs(x2))))
    gaps = [abs(mpmath.mpf(v) - e) for v, e in zip(y.tolist(), exact, strict=True)]
    assert max(g / u for g, u in zip(gaps, unit.tolist(), strict=True)) < 2.5
    x = np.abs(x1)
    with mpmath.workprec(200):
        exact = [mpmath.log1p(mpmath.mpf(v)) for v in x.tolist()]
    assert ulps(kernel("log1p", x), exact) < 1


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exponentials_have_all_the_digits_that_there_are(dtype, fused, fresh):
    """The logistic function of less than -40 is one, down to the least number."""
    fresh(fused)
    x = np.linspace(-750.0 if dtype is np.float64 else -106.0, -40.0, 2000).astype(dtype)
    with mpmath.workprec(200):
        exact = [mpmath.exp(mpmath.mpf(v)) for v in x.tolist()]
    assert ulps(kernel("logistic", x), exact) < 1.01
    x = np.linspace(-20, 20, 999).astype(dtype)
    with mpmath.workprec(200):
        exact = [1 / (1 + mpmath.exp(-mpmath.mpf(v))) for v in x.tolist()]
    assert ulps(kernel("logistic", x), exact) < 2.5
    assert ulps(kernel("logaddexp_slope", np.ones_like(x), x, np.zeros_like(x)), exact) < 2.5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [3, 4, 5, 8])
def test_whole_powers_are_rounded_as_if_once(n, dtype):
    x = (between(-1, 1) * spread(-3, 3)).astype(dtype)
    with mpmath.workprec(500):
        exact = [mpmath.mpf(v) ** n for v in x.tolist()]
    assert ulps(kernel(f"power{n}", x), exact) < 0.501
    w = np.linspace(1.0, 2.0, 1000).astype(dtype)
    x = np.resize(x, 1000)
    for k in (n, float(n)):
        y, pull = ft.vjp(lambda x, k=k: x**k, x)
        assert_allclose(y, x.astype(np.longdouble) ** n, rtol=np.finfo(dtype).eps)
        assert_allclose(pull(w)[0], w * n * x.astype(np.longdouble) ** (n - 1),
                        rtol=3 * np.finfo(dtype).eps)
        assert y.dtype == pull(w)[0].dtype == dtype


def test_a_power_with_a_complex_exponent_is_complex():
    y = TABLE["power"].impl(np.linspace(0.5, 2.0, 1000), 3 + 0j)
    assert_array_equal(y, np.linspace(0.5, 2.0, 1000) ** (3 + 0j))


@pytest.mark.parametrize("n", [3, 4, 2.5, -3, 9, True, np.int64(3)])
@pytest.mark.parametrize("special", [-0.0, np.nan, np.inf, -np.inf, 1e200, 1e-200, -1e-200, 5e-324])
def test_powers_of_special_numbers(special, n):
    x = np.linspace(0.5, 2.0, 1000)
    x[3] = special
    with np.errstate(all="ignore"):
        y = TABLE["power"].impl(x, n)
        expected = np.power(x, n)
    assert_allclose(y, expected, rtol=4e-16)
    assert_array_equal(np.signbit(y), np.signbit(expected))


@pytest.mark.parametrize("name", [*POINTS, "logaddexp"])
def test_signs_of_zero_and_what_is_not_taken(name, fresh):
    fresh(fused=True)
    special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e300, -1e300, 5e-324])
    pair = (special, -special) if name == "logaddexp" else (special,)
    y = kernel(name, *pair)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(*pair)
    taken = np.isfinite(y)
    assert taken[[0, 1, 7]].all()
    assert not (taken & ~np.isfinite(expected)).any()
    assert_allclose(y[taken], expected[taken], rtol=4e-16)
    assert_array_equal(np.signbit(y[taken]), np.signbit(expected[taken]))


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_angles_of_which_digits_are_lost_are_not_taken(name):
    x = np.array([131072.1, -131072.1, 2e5, 1e6, -1e9, 1e15])
    assert np.isnan(kernel(name, x)).all()


def test_the_slope_of_logaddexp_of_two_that_are_equal_is_a_half():
    x = np.array([np.inf, -np.inf, 3.0, -1e308, 0.0])
    assert_array_equal(kernel("logaddexp_slope", np.full(5, 3.0), x, x), 1.5)


def large(name, *special):
    x = np.linspace(0.1, 0.9, sizes.VALUES)
    x[: len(special)] = special
    return (np.float64(0.25) * x, x) if name == "logaddexp" else (x,)


NAMES = ["sin", "cos", "log1p", "tanh", "logaddexp"]


@pytest.mark.parametrize("name", NAMES)
def test_numpy_does_what_is_not_finite_or_huge_and_warns(name):
    f = getattr(np, name)
    for special in [(np.nan,), (np.inf, -np.inf), (1e22, -1e300)]:
        xs = large(name, *special)
        with np.errstate(all="ignore"):
            expected = f(*xs)
            assert_allclose(TABLE[name].impl(*xs), expected, rtol=4e-16)
            if not np.isfinite(expected).all() or name in ("sin", "cos"):
                assert_array_equal(TABLE[name].impl(*xs), expected)


@pytest.mark.parametrize(("name", "special"), [
    ("sin", np.inf), ("cos", np.inf), ("log1p", -1.0), ("log1p", -2.0)])
def test_warnings_are_numpys(name, special):
    x = large(name, special)[-1]
    with pytest.warns(RuntimeWarning) as ours:
        ft.vjp(lambda x: TABLE[name](x), x)
    with pytest.warns(RuntimeWarning) as theirs:
        getattr(np, name)(x)
    assert [str(w.message) for w in ours] == [str(w.message) for w in theirs]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble, complex])
@pytest.mark.parametrize("name", NAMES)
def test_numpys_values_by_the_switch(name, dtype):
    if name == "logaddexp" and dtype is complex:
        pytest.skip("NumPy has no complex logaddexp")
    xs = tuple(x.astype(dtype) for x in large(name))
    with ft.config(values="numpy"):
        assert_array_equal(TABLE[name].impl(*xs), getattr(np, name)(*xs))
    y = TABLE[name].impl(*xs)
    assert y.dtype == getattr(np, name)(*xs).dtype
    assert_allclose(y, getattr(np, name)(*xs), rtol=4 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("x", [
    np.linspace(0, 1, 2 * sizes.VALUES)[::2], np.linspace(0, 1, 4096).reshape(64, 64).T,
    np.broadcast_to(0.5, 2000), np.linspace(0, 1, 2000).astype(">f8"), np.ones((0, 5)), 0.5,
])
@pytest.mark.parametrize("name", ["sin", "logaddexp"])
def test_arrays_that_are_not_in_order(name, x):
    xs = (0.0, x) if name == "logaddexp" else (x,)
    assert_allclose(TABLE[name].impl(*xs), getattr(np, name)(*xs), rtol=4e-16)


@pytest.mark.parametrize("name", ["sin", "cos", "log1p", "tanh"])
def test_all_modes_have_the_same_values(name):
    x = np.linspace(-0.9, 5.0, sizes.VALUES)
    f = getattr(np, name)
    y, pull = ft.vjp(f, x)
    assert_array_equal(ft.jvp(f, (x,), (x,))[0], y)
    assert_array_equal(ft.vmap(f)(x.reshape(-1, 8)).reshape(-1), y)
    with mpmath.workprec(100):
        slopes = [float(mpmath.diff(getattr(mpmath, name), v)) for v in x[::97].tolist()]
    assert_allclose(np.asarray(pull(np.ones_like(x))[0])[::97], slopes, rtol=1e-13, atol=1e-15)


def test_slopes_of_logaddexp_of_numbers_and_arrays():
    x, w = np.linspace(-30.0, 30.0, sizes.VALUES), np.linspace(1.0, 2.0, sizes.VALUES)
    for f in (lambda x: np.logaddexp(0.0, x), lambda x: np.logaddexp(x, 0),
              lambda x: np.logaddexp(x, np.zeros_like(x))):
        y, pull = ft.vjp(f, x)
        assert_allclose(y, np.logaddexp(0.0, x), rtol=4e-16)
        assert_allclose(pull(w)[0], w / (1 + np.exp(-x)), rtol=1e-15)


@pytest.mark.parametrize("size", [4096, 9001])
@pytest.mark.parametrize("name", ["sin", "tanh", "logaddexp", "logistic"])
def test_threads_change_no_bit(monkeypatch, name, size):
    x = np.linspace(-5.0, 5.0, size)
    xs = (0.0, x) if name == "logaddexp" else (x,)
    whole = TABLE[name].impl(*xs)
    monkeypatch.setattr(sizes, "THREADED", 4096)
    for threads in (1, 2, 3):
        with ft.config(threads=threads):
            assert_array_equal(TABLE[name].impl(*xs), whole)
    with ft.config(jit=False):
        # of logaddexp, either may be off by one unit and a half
        rtol = {"logistic": 2e-15, "logaddexp": 5e-16}.get(name, 4e-16)
        assert_allclose(TABLE[name].impl(*xs), whole, rtol=rtol)
