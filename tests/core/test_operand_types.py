"""A slope does not depend on the types of operands: it is taken in that of the result."""

import itertools

import numpy as np
import pytest

import functrans as ft
from functrans._core.array import aval_of, inexact_dtype
from functrans._ops.declare import TABLE, Elementwise
from functrans.errors import NotDifferentiable
from tests.covering import THOROUGH
from tests.table.samples import by_row, cases, samples
from tests.table.test_table import moving as moving_operands
from tests.table.test_types import quietly

INTEGERS = ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"]
FLOATS = ["e", "f", "d"]
# The arithmetic of a slope, in units of the result's precision and of the largest entry.
MARGIN = 64
# ``where`` takes no integer; the others are compositions, whose values are rounded as NumPy does.
NARROW = {"where", "special.standardised", "special.less_log"}


def mixed_types():
    """A row, its sample, the place of an operand and its type, and the type of the others."""
    found = [
        (name, number, i, kind, other)
        for name, number in cases(lambda row: isinstance(row, Elementwise) and row.differentiable)
        for i in range(len(TABLE[name].actions))
        for kind, other in itertools.product(INTEGERS + FLOATS, FLOATS)
        if kind != other and (len(TABLE[name].actions) > 1 or kind in FLOATS)
        if name not in NARROW
    ]
    return found if THOROUGH else found[::23]


def whole(x, kind):
    """The numbers of a sample as integers of a type, the nearest with their sign."""
    return np.sign(x.real) * np.ceil(abs(x.real)) if np.dtype(kind).kind in "biu" else x


def in_types(case):
    name, number, i, kind, other = case
    operands = list(samples(name)[number].operands())
    if any(x.dtype.kind == "c" for x in operands):
        return None
    at = whole(operands[i], kind)
    operands[i] = (abs(at) if np.dtype(kind).kind in "bu" else at).astype(kind)
    return [x if j == i or x.dtype.kind in "biu" else x.astype(other)
            for j, x in enumerate(operands)]


def slopes(row, operands, moving):
    """The result, its tangents along each of the operands that move, and their cotangents."""

    def f(*xs):
        full = list(operands)
        for i, x in zip(moving, xs, strict=True):
            full[i] = x
        return row(*full)

    xs = [operands[i] for i in moving]
    tangents = []
    for k in range(len(xs)):
        ts = [np.full_like(x, k == j) for j, x in enumerate(xs)]
        tangents.append(ft.jvp(f, tuple(xs), tuple(ts))[1])
    y, pull = ft.vjp(f, *xs)
    return y, tangents, pull(np.ones_like(y))


def close(got, want, precision, scale):
    """Where the type has the number, within its precision and that of the largest slope."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    fits = abs(want) < float(np.finfo(precision).max)
    scale = max(scale, np.max(abs(want[fits]), initial=0))
    rounding = MARGIN * float(np.finfo(precision).eps) * scale
    np.testing.assert_allclose(got[fits], want[fits], rtol=0, atol=rounding)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # SciPy's, of counts beyond int64
@by_row(mixed_types())
def test_a_slope_is_that_of_the_same_numbers_in_double_precision(case):
    row, operands = TABLE[case[0]], in_types(case)
    assert isinstance(row, Elementwise)
    if operands is None:
        return
    moving = [i for i in moving_operands(row, operands) if inexact_dtype(operands[i].dtype)]
    if not moving:
        return
    try:
        with quietly():
            y, tangents, cotangents = slopes(row, operands, moving)
    except (TypeError, NotDifferentiable):  # SciPy takes no such types
        return
    if aval_of(y).dtype.kind != "f":
        return
    wide = [x.astype(float) if x.dtype.kind == "f" or j not in row.whole else x.astype("i8")
            for j, x in enumerate(operands)]
    with quietly():
        _, wide_tangents, wide_cotangents = slopes(row, wide, moving)
    for i, t, c, t64, c64 in zip(moving, tangents, cotangents, wide_tangents, wide_cotangents,
                                 strict=True):
        scale = np.max(abs(t64[np.isfinite(t64)]), initial=1e-3)
        close(t, t64, y.dtype, scale)
        close(c, c64, min(operands[i].dtype, y.dtype, key=lambda d: d.itemsize), scale)
