"""Compiled and eager values and derivatives agree at NaN, infinities, zeros and the extremes."""

import itertools

import numpy as np
import pytest

import functrans as ft
from functrans._ops.declare import TABLE, Elementwise
from functrans.tree import leaves
from tests.covering import THOROUGH
from tests.table.samples import samples

pytestmark = pytest.mark.usefixtures("seldom_optimised")

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e300, -1e300, 5e-324]
FEW = [np.nan, np.inf, -np.inf, 0.0, 1.0, -1.0]
# Which of two zeros is the larger is not said by IEEE 754, nor by NumPy.
EITHER_ZERO = {"maximum", "minimum", "fmax", "fmin", "clip"}
ELEMENTWISE = [n for n, row in TABLE.items() if isinstance(row, Elementwise)]
# Factors of matrices that are not finite are whatever the library makes of them; and loops over
# their entries meet NaN in another order than products of blocks.
MATRICES = {
    "svd", "eig", "eigh", "eigvals", "eigvalsh", "det", "slogdet", "inv", "solve", "cholesky", "qr",
    "pinv", "lstsq", "triangular_solve", "roots", "matrix_power", "lu", "logabsdet", "cofactor",
    "cofactor_slope", "linalg.expm", "linalg.logm", "linalg.sqrtm", "linalg.sylvester",
    "linalg.fractional_matrix_power", "sparse.solve",
}


# SciPy's own function does not come back from large numbers, or divides by zero there, which Python
# reports as an error that it ignores.
ENDLESS = {"special.hyp0f1", "special.hyp1f1"}
# Units in the last place for rows whose slopes are differences, or exponentials, of functions that
# vector libraries and our kernels round in another way.
ROUNDING = {"special.inv_boxcox1p": 1e3, "special.lambertw": 1e4, "special.betaln": 1e3,
            "special.gammaincinv": 1e3, "special.jacobi_sn": 1e3}


def assert_same(eager, compiled, zeros=True, atol=0.0, rtol=2e2):
    """Equal to rounding; NaN, infinities and, if asked, signs of zeros exactly."""
    for x, y in zip(leaves(eager), leaves(compiled), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype
        if x.dtype.kind not in "fc":
            np.testing.assert_array_equal(y, x)
            continue
        for a, b in [(x.real, y.real), (x.imag, y.imag)]:
            # vector functions are within 4 ulp, and gradients add a few
            np.testing.assert_allclose(b, a, rtol=rtol * np.finfo(a.dtype).eps, atol=atol)
            if zeros:
                at = (a == 0) & (b == 0)
                np.testing.assert_array_equal(np.signbit(b[at]), np.signbit(a[at]))


def value_and_derivatives(f, active):
    """The outputs of ``f``, the gradient of their sum and the tangents along ones."""

    def total(*xs):
        ys = [y for y in leaves(f(*xs)) if y.dtype.kind in "fc"]
        return sum([np.sum(np.real(y)) for y in ys], 0.0)

    def both(*xs):
        def of_active(*some):
            new = iter(some)
            return f(*[next(new) if i in active else x for i, x in enumerate(xs)])

        mine = tuple(xs[i] for i in active)
        moved = ft.jvp(of_active, mine, tuple(map(np.ones_like, mine)))[1]
        return ft.grad(total, tuple(active))(*xs), moved

    return both


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f8", "f4"])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_rows_at_special_values(name, dtype):
    row = TABLE[name]
    n = len(row.actions)
    with np.errstate(all="ignore"):
        special = [s for s in (SPECIAL if n < 3 else FEW) if name not in ENDLESS or abs(s) < 1e9]
        points = itertools.product(special, repeat=n)
        xs = [np.array(column, dtype) for column in zip(*points, strict=True)]
        kinds = [x.dtype.kind for x in samples(name)[0].operands()]
        xs = [x if k in "fc" else np.nan_to_num(x).clip(-3, 3).astype({"i": int, "b": bool}[k])
              for x, k in zip(xs, kinds, strict=True)]
        if kinds == ["c"]:
            parts = zip(*itertools.product(FEW, repeat=2), strict=True)
            real, imag = (np.array(part, dtype) for part in parts)
            xs = [real.astype(np.result_type(dtype, np.complex64))]
            xs[0].imag = imag
        active = [i for i, k in enumerate(kinds) if k in "fc"]
        smooth = active and row.differentiable and row(*xs).dtype.kind in "fc"
        if dtype == np.float32 and not THOROUGH:  # the same formulas, whose rows had their turn
            smooth = False
        both = value_and_derivatives(row, active) if smooth else lambda *xs: ()
        value, derivatives = ft.jit(lambda *xs: (row(*xs), both(*xs)))(*xs)
        # half of the least number is that number or 0
        assert_same(row(*xs), value, zeros=name not in EITHER_ZERO, atol=5e-324)
        rtol = ROUNDING.get(name, 2e2)
        assert_same(both(*xs), derivatives, zeros=False, atol=5e-324, rtol=rtol)


LEAVES = {"stop", "checked"}  # the identity, and what refuses a NaN


@pytest.mark.parametrize("name", [n for n in TABLE if n not in {*ELEMENTWISE, *MATRICES, *LEAVES}])
def test_other_rows_with_special_values_among_their_operands(name):
    row, sample = TABLE[name], samples(name)[0]

    def f(*xs):
        return row(*xs, **sample.params)

    active = [i for i, x in enumerate(sample.operands()) if x.dtype.kind in "fc"]
    both = value_and_derivatives(f, active) if active and row.differentiable else lambda *xs: ()
    compiled = ft.jit(lambda *xs: (f(*xs), both(*xs)))
    for seed in range(4):
        rng = np.random.default_rng(seed)
        xs = [spoilt(x, rng) for x in sample.operands(seed)]
        with np.errstate(all="ignore"):
            # sums in another order: what cancels leaves rounding of terms near 1
            assert_same((f(*xs), both(*xs)), compiled(*xs), zeros=False, atol=1e-14)


def spoilt(x, rng):
    """``x`` with special values in some of its places."""
    if x.dtype.kind not in "fc":
        return x
    special = rng.choice(FEW, x.shape).astype(x.dtype)
    if x.dtype.kind == "c":
        special.imag = rng.choice(FEW, x.shape)
    return np.where(rng.random(x.shape) < 0.3, special, x).astype(x.dtype)


@pytest.mark.parametrize("shape", [(4,), (4, 1)], ids=str)
@pytest.mark.parametrize("x", [
    [2.0, 0.0, 3.0, np.nan], [0.0, 0.0, np.nan, 1.0], [0.0, 1e200, 1e200, 1e200],
    [np.nan, np.inf, -np.inf, 0.0],
], ids=str)
def test_an_exact_zero_ends_the_derivative_of_a_running_product(x, shape):
    x = np.reshape(x, shape)
    g = ft.grad(lambda x: np.sum(np.cumprod(x, axis=0)))
    with np.errstate(all="ignore"):
        assert_same(g(x), ft.jit(g)(x))
    assert not np.isnan(g(np.reshape([2.0, 0.0, 3.0, np.nan], shape))[0]).any()
