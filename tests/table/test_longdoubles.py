"""Longdoubles have all their digits in values and slopes: no constant on the way is a double."""

import mpmath as mp
import numpy as np
import pytest

import functrans as ft
from functrans._core.bind import bind
from functrans._ops.declare import TABLE, Elementwise
from tests.table.references import REFERENCES
from tests.table.samples import cases, samples

L = np.longdouble
EPS = float(np.finfo(L).eps)
pytestmark = pytest.mark.skipif(EPS > 2e-19, reason="longdouble is double here")
# In units of the precision; tanh's slope, 1 - y * y, takes four roundings.
MARGIN = 5
# Of double precision in NumPy or SciPy too.
DOUBLE = {"bessel_i", "special.log_density_of_normal", "special.placed_normal"}


def exact(x):
    high = float(x)
    return mp.mpf(high) + mp.mpf(float(x - L(high)))


def entries(name):
    """One number of each operand, with digits that a double does not have."""
    found = []
    for x in samples(name)[0].operands(seed=3):
        v = x.ravel()[0]
        found.append(L(v) * (1 - L(1) / 30) if x.dtype.kind == "f" else int(v))
    return found


ROWS = sorted({
    (name, i) for name, _ in cases(lambda row: isinstance(row, Elementwise) and row.differentiable)
    for i, action in enumerate(TABLE[name].actions)
    if name in REFERENCES and name not in DOUBLE and action is not None and name != "from_parts"
    and all([x.dtype.kind != "c" for x in samples(name)[0].operands()])
})


@pytest.mark.parametrize(("name", "i"), ROWS)
def test_a_row_and_its_slope_have_the_digits_of_longdoubles(name, i):
    operands = entries(name)
    if not isinstance(operands[i], np.floating):
        return

    def f(x):
        return bind(TABLE[name], *operands[:i], x, *operands[i + 1:])

    try:
        y, dy = ft.jvp(f, (operands[i],), (L(1),))
    except TypeError:  # SciPy's functions take doubles at most
        return
    slope = ft.grad(f)(operands[i])
    assert y.dtype == dy.dtype == slope.dtype == L

    def reference(x):
        return REFERENCES[name](*numbers[:i], x, *numbers[i + 1:])

    with mp.workdps(60):
        numbers = [exact(x) if isinstance(x, np.floating) else x for x in operands]
        want, moved = mp.mpf(reference(numbers[i])), mp.diff(reference, numbers[i])
        for got, number in ((y, want), (dy, moved), (slope, moved)):
            assert abs(exact(L(got)) - number) <= MARGIN * EPS * max(abs(number), mp.mpf("1e-3"))


@pytest.mark.parametrize("f", [
    lambda x: 3**x, lambda x: x**0.1, np.sinc, lambda x: np.exp2(x) + np.log2(x) + np.log10(x),
    lambda x: (x**3 + (2 * x) ** 3) ** (L(1) / 3),
], ids=range(5))
def test_slopes_of_longdoubles_are_those_of_a_complex_step(f):
    x, h = L(1) / 3, L("1e-2000")
    want = f(x + 1j * h).imag / h
    for got in (ft.grad(f)(x), ft.jvp(f, (x,), (L(1),))[1], ft.jit(ft.grad(f))(x)):
        assert abs(got - want) <= 16 * EPS * abs(want)


@pytest.mark.parametrize("ord", [3, 0.7, None])
def test_norms_of_longdoubles_are_theirs(ord):
    x = np.array([1, 2], L) / 3
    y, pull = ft.vjp(lambda x: np.linalg.norm(x, ord), x)
    assert abs(y - np.linalg.norm(x, ord)) <= 4 * EPS * y
    assert abs(pull(L(1))[0] @ x - y) <= 8 * EPS * y  # of degree 1


@pytest.mark.parametrize("write", [
    lambda y, x: y.__setitem__(0, x), lambda y, x: y.fill(x), lambda y, x: np.copyto(y, x),
    lambda y, x: y.__setitem__([0, 1], x), lambda y, x: np.add.at(y, [0, 0], x),
    lambda y, x: np.multiply(y, x, out=y),
], ids=range(6))
def test_writes_of_longdoubles_keep_their_digits(write, unoptimised):
    x = L(1) / 3

    def f(x):
        y = ft.numpy.ones(2, L)
        write(y, x)
        return y

    for got in (ft.jit(f)(x), ft.vjp(f, x)[0], ft.jvp(f, (x,), (x,))[0]):
        np.testing.assert_array_equal(got, np.asarray(f(x)))
