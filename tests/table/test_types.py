"""Does every row keep the type of its operands, in values and derivatives?

The reference is the same row in double precision, at the operands as the narrow type has them.
"""

import ml_dtypes
import numpy as np
import pytest

import functrans as ft
from functrans._core.array import Aval, aval_of, inexact_dtype
from functrans._ops.declare import TABLE
from tests.table.samples import REAL_ONLY, by_row, cases, samples
from tests.table.test_table import moving

TYPES = [
    np.dtype(t)
    for t in (
        np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.longdouble, np.complex64,
        np.complex128,
    )
]
# A row's own arithmetic, in units of the type's precision and of the largest entry.
MARGIN = 32
# Slopes that are read off the output, which is rounded to the type.
WIDER = {"special.betaincinv": 2, "special.betainccinv": 2}


def eps(dtype):
    if dtype.kind == "V":
        return float(ml_dtypes.finfo(dtype).eps)
    return max(float(np.finfo(dtype).eps), 2.0**-52)  # the reference is in double precision


def quietly():
    """Without warnings of overflow and underflow, of which float16 has more."""
    return np.errstate(all="ignore")


def in_type(x, dtype):
    """``x`` in the type asked for; complex operands of rows on complex numbers stay complex."""
    if not inexact_dtype(x.dtype):
        return x
    if x.dtype.kind == "c" and dtype.kind != "c":
        dtype = np.dtype(np.complex128 if dtype.itemsize > 4 else np.complex64)
    return x.astype(dtype)


def doubled(x):
    return x.astype(complex if x.dtype.kind == "c" else float) if inexact_dtype(x.dtype) else x


class Typed:
    """A row at operands of one type: a function of those in floating point."""

    def __init__(self, row, operands, active, params, prepare):
        self.row, self.operands, self.active = row, operands, active
        self.params, self.prepare = params, prepare
        self.xs = tuple(operands[i] for i in active)

    def __call__(self, *xs):
        return self.at(self.operands, xs)

    def in_double(self, *xs):
        return self.at([doubled(x) for x in self.operands], xs)

    def at(self, operands, xs):
        full = list(operands)
        for i, x in zip(self.active, xs, strict=True):
            full[i] = x
        if self.prepare is not None:
            full[0] = self.prepare(full[0])
        ys = self.row(*full, **self.params)
        ys = ys if isinstance(ys, tuple) else (ys,)
        return tuple(y for y in ys if inexact_dtype(aval_of(y).dtype))


def typed(name, number, dtype):
    """A row at one of its samples, in one type."""
    row, sample = TABLE[name], samples(name)[number]
    operands = [in_type(x, dtype) for x in sample.operands()]
    return Typed(row, operands, moving(row, operands), sample.params, sample.prepare)


def wavy(x):
    """A direction or cotangent in the shape and type of ``x``."""
    return np.cos(np.arange(x.size) + 1.0).reshape(x.shape).astype(x.dtype)


def refusal(case):
    """What NumPy raises for a row in a type, None where it takes it."""
    f = typed(*case)
    try:
        with quietly():
            f(*f.xs)
    except (TypeError, ValueError) as error:
        return type(error)
    return None


EVERY = [
    (*c, t) for c in cases(lambda row: row.differentiable) for t in TYPES
    if t.kind != "c" or c[0] not in REAL_ONLY
]
REFUSED = {c: error for c in EVERY if (error := refusal(c)) is not None}
TAKEN = [c for c in EVERY if c not in REFUSED]


def close(got, want, rounding):
    """Within the precision of the types on the way, against the largest entry; NaN where it is."""
    scale = max(np.fmax.reduce(np.abs(want), axis=None, initial=0), 1e-3)
    np.testing.assert_allclose(doubled(np.asarray(got)), want, rtol=0,
                               atol=MARGIN * rounding * scale)


@by_row(TAKEN)
def test_values_and_tangents_keep_the_type(case):
    f = typed(*case)
    ts = tuple(map(wavy, f.xs))
    with quietly():
        expected = f(*f.xs)
        ys, dys = ft.jvp(f, f.xs, ts)
        wide = ft.jvp(f.in_double, tuple(map(doubled, f.xs)), tuple(map(doubled, ts)))
    for y, dy, want, y64, dy64 in zip(ys, dys, expected, *wide, strict=True):
        assert y.dtype == dy.dtype == want.dtype
        rounding = WIDER.get(case[0], 1) * max(eps(case[2]), eps(y.dtype))
        close(y, y64, rounding)
        close(dy, dy64, rounding)


@by_row(TAKEN)
def test_gradients_have_the_type_of_their_operand(case):
    f = typed(*case)
    with quietly():
        ys, pullback = ft.vjp(f, *f.xs)
        cts = tuple(map(wavy, ys))
        wide = ft.vjp(f.in_double, *map(doubled, f.xs))[1](tuple(map(doubled, cts)))
        found = pullback(cts)
    for g, x, g64 in zip(found, f.xs, wide, strict=True):
        assert (g.shape, g.dtype) == (x.shape, x.dtype)
        close(g, g64, WIDER.get(case[0], 1) * max([eps(case[2]), *[eps(y.dtype) for y in ys]]))


@by_row(TAKEN)
def test_second_derivatives_have_the_type_of_their_operand(case):
    f = typed(*case)
    with quietly():
        cts = f(*f.xs)
        moved = ft.jvp(lambda *xs: ft.vjp(f, *xs)[1](cts), f.xs, f.xs)[1]
    assert [m.dtype for m in moved] == [x.dtype for x in f.xs]


@by_row([(*c, t) for c in cases() for t in TYPES])
def test_type_is_known_before_the_row_runs_and_in_a_batch(case):
    f = typed(*case)
    run = TABLE[case[0]]

    def row(*xs):
        ys = run(*xs, **f.params)
        return ys if isinstance(ys, tuple) else (ys,)

    try:
        with quietly():
            expected = row(*f.operands)
    except (TypeError, ValueError) as error:
        with pytest.raises(type(error)):
            ft.vmap(row)(*[np.stack([x, x]) for x in f.operands])
        return
    avals = run.abstract(*map(aval_of, f.operands), **f.params)
    avals = [avals] if isinstance(avals, Aval) else list(avals)
    assert [a.dtype for a in avals] == [y.dtype for y in expected]
    with quietly():
        batched = ft.vmap(row)(*[np.stack([x, x]) for x in f.operands])
    assert [y.dtype for y in batched] == [y.dtype for y in expected]


@by_row([*REFUSED])
def test_what_numpy_refuses_is_refused_alike(case):
    f = typed(*case)
    for derive in (
        lambda: ft.jvp(f, f.xs, f.xs),
        lambda: ft.vjp(f, *f.xs),
        lambda: ft.vjp(lambda *xs: ft.jvp(f, xs, xs), *f.xs),
    ):
        with pytest.raises(REFUSED[case]):
            derive()


def test_ties_of_more_entries_than_a_narrow_type_counts_to_share_exactly():
    for dtype, n in ((np.float16, 70_000), (ml_dtypes.bfloat16, 1000)):
        x = np.ones(n, dtype)
        assert (ft.grad(np.max)(x) == np.array(1 / n, dtype)).all()
        assert (ft.jacobian(lambda x: np.maximum.accumulate(x)[-1])(x) > 0).all()
