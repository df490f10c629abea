"""Is the calculus right? Every row against numbers that owe nothing to its rule.

One action serves both modes, so a wrong one passes the adjoint test exactly: it takes mpmath, at
fifty digits, or the op itself moved by a small step.
"""

import mpmath as mp
import numpy as np
import pytest

import functrans as ft
from functrans._core.array import inexact_dtype
from functrans._ops.declare import TABLE, Elementwise
from functrans.errors import NotDifferentiable
from functrans.testing import check_grads
from tests.table.references import REFERENCES
from tests.table.samples import REAL_ONLY, by_row, cases, samples
from tests.table.test_table import random_like, smooth

ELEMENTWISE = [n for n, r in TABLE.items() if isinstance(r, Elementwise) and r.differentiable]
COMPLEX_ROWS = {"absolute_complex", "imag", "special.wofz", "special.hankel1", "special.hankel2"}
OTHERS = cases(lambda r: r.differentiable and not isinstance(r, Elementwise))
IMAGINARY = 1e-30
# Of differences, whose errors are 1e-24 by its square, and 1e-26 by fifty digits.
STEP = mp.mpf(10) ** -12


def _is_complex(name, number):
    return any(x.dtype.kind == "c" for x in samples(name)[number].operands())


REAL_CASES = [
    c
    for c in cases(lambda r: isinstance(r, Elementwise) and r.differentiable)
    if not _is_complex(*c)
]
COMPLEX_CASES = [
    c for c in cases(lambda r: isinstance(r, Elementwise) and r.differentiable) if _is_complex(*c)
]


def test_rows_have_a_reference():
    missing = [n for n in ELEMENTWISE if n not in REFERENCES and n not in COMPLEX_ROWS]
    assert not missing, f"add {missing} to tests/table/references.py"


def _references(name, xs, ts):
    """The first two derivatives of h -> F(x + h t) at 0, entry by entry."""
    shape = np.broadcast_shapes(*[x.shape for x in xs])
    out = np.empty((2, *shape), complex if name == "from_parts" else float)
    columns = [np.broadcast_to(x, shape) for x in (*xs, *ts)]
    with mp.workdps(50):
        for i in np.ndindex(shape):
            entries = [c[i].item() for c in columns]
            points, moves = entries[: len(xs)], entries[len(xs) :]

            def along(h, points=points, moves=moves):
                moved = [p + h * m if m else p for p, m in zip(points, moves, strict=True)]
                return REFERENCES[name](
                    *[v if isinstance(v, bool | int) else mp.mpf(v) for v in moved]
                )

            before, here, after = along(-STEP), along(mp.mpf(0)), along(STEP)
            out[0, *i] = (after - before) / (2 * STEP)
            out[1, *i] = (after - 2 * here + before) / STEP**2
    return out


@by_row(REAL_CASES)
def test_elementwise_row_against_mpmath(case):
    name, _ = case
    f = smooth(*case)
    moves = [np.zeros(x.shape) for x in f.operands]
    for i, t in zip(f.active, f.ts, strict=True):
        moves[i] = t

    def along(*xs):
        return ft.jvp(f, xs, f.ts)[1][0]

    found = along(*f.xs), ft.jvp(along, f.xs, f.ts)[1]
    for order, (a, b) in enumerate(zip(found, _references(name, f.operands, moves), strict=True)):
        # a sum over operands may cancel, and the slope's own condition number enters: not 1e-15
        atol = 1e-13 * np.max(np.abs(b), initial=0) + 1e-20
        np.testing.assert_allclose(a, b, rtol=3e-13, atol=atol, err_msg=f"order {order + 1}")


def _takes_complex(name, number):
    f = smooth(name, number)
    try:
        ys = f(*[x + 0j for x in f.xs])
    except TypeError:
        return False
    return bool(ys) and all(y.dtype.kind == "c" for y in ys)


ANALYTIC = [
    c
    for c in REAL_CASES
    if c[0] not in {"conjugate", "real", "imag", "moving_as"} | REAL_ONLY
    and not TABLE[c[0]].kinks
    and _takes_complex(*c)
]


# SciPy's functions whose imaginary part is right to the size of the number, not to its own.
COARSE = {
    *[f"special.{n}" for n in ("jv", "yv", "spherical_jn", "spherical_yn", "hyp0f1", "expi")],
    "special.cosine_integral", "special.cosh_integral",
}


@pytest.mark.parametrize("name", sorted(REAL_ONLY))
def test_complex_numbers_are_refused_where_there_is_no_rule(name):
    f = smooth(name, 0)
    with pytest.raises(NotDifferentiable, match="is differentiated for real numbers alone"):
        ft.jvp(f, tuple(x + 0.1j for x in f.xs), tuple(t + 0j for t in f.ts))


@by_row([c for c in ANALYTIC if c[0] not in COARSE])
def test_slope_off_the_real_axis_is_the_complex_step(case):
    f = smooth(*case)
    found = ft.jvp(f, f.xs, f.ts)[1][0]
    with np.errstate(all="ignore"):
        stepped = (
            f(*[x + IMAGINARY * 1j * t for x, t in zip(f.xs, f.ts, strict=True)])[0].imag
            / IMAGINARY
        )
    np.testing.assert_allclose(
        found, stepped, rtol=1e-11, atol=1e-13 * np.max(np.abs(stepped), initial=0)
    )


@by_row(ANALYTIC)
def test_holomorphic_row_on_complex_numbers(case):
    """The directional derivative along a complex direction is the difference quotient's limit."""
    f = smooth(*case)
    rng = np.random.default_rng(5)
    zs = tuple(x + 0.3j * random_like(rng, x) for x in f.xs)
    check_grads(f, zs, order=2, rtol=1e-7)


@by_row(COMPLEX_CASES)
def test_row_on_complex_operands(case):
    f = smooth(*case)
    check_grads(f, f.xs, order=2, rtol=1e-8)


MOVABLE = [c for c in OTHERS if any(x.size for x in smooth(*c).xs)]


@by_row(MOVABLE)
def test_other_row_against_differences(case):
    f = smooth(*case)
    rough = any(x.dtype == np.float32 or y.dtype == np.float32 for x in f.xs for y in f(*f.xs))
    check_grads(f, f.xs, order=2, rtol=2e-3 if rough else 1e-8)


def _complex_point(f):
    rng = np.random.default_rng(7)
    return tuple(x + 0.3j * random_like(rng, x) for x in f.xs)


def _has_complex_slope(case):
    if TABLE[case[0]].kinks or case[0] in {"astype", "astype_discrete"}:
        return False
    f = smooth(*case)
    return _takes_complex(*case) and all(inexact_dtype(y.dtype) for y in f(*_complex_point(f)))


@by_row([c for c in MOVABLE if _has_complex_slope(c)])
def test_other_row_on_complex_numbers(case):
    f = smooth(*case)
    check_grads(f, _complex_point(f), order=2, rtol=1e-7)
