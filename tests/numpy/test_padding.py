"""np.pad: every mode, however wide, with the derivatives of what NumPy computes."""

from __future__ import annotations

import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans.errors import UnsupportedError
from tests.cases import CHECKS, Case, check_jit_is_eager, each

A, V = (3, 4), (3,)
WIDE = ((1, 2), (0, 3))
CASES = {
    "constant values": Case(lambda x: np.pad(x, WIDE, constant_values=((1, 2), (3, 4))), (A,)),
    "constant of one value": Case(lambda x: np.pad(x, 1, constant_values=7.0), (V,)),
    "dict": Case(lambda x: np.pad(x, {-1: (1, 2)}, "edge"), (A,)),
    "linear_ramp": Case(lambda x: np.pad(x, WIDE, "linear_ramp"), (A,)),
    "linear_ramp to values": Case(
        lambda x: np.pad(x, WIDE, "linear_ramp", end_values=((1, 2), (3, 4))), (A,)
    ),
    "mean": Case(lambda x: np.pad(x, WIDE, "mean"), (A,)),
    "mean of some": Case(lambda x: np.pad(x, WIDE, "mean", stat_length=((1, 2), (9, 2))), (A,)),
    "maximum": Case(lambda x: np.pad(x, WIDE, "maximum", stat_length=2), (A,)),
    "minimum": Case(lambda x: np.pad(x, WIDE, "minimum"), (A,)),
    "median": Case(lambda x: np.pad(x, WIDE, "median", stat_length=(2, 3)), (A,)),
    **{
        f"{mode} {how} by {width}": Case(
            lambda x, m=mode, h=how, w=width: np.pad(x, (1, w), m, reflect_type=h), (V,)
        )
        for mode in ("reflect", "symmetric") for how in ("even", "odd") for width in (2, 3, 8)
    },
    "odd both ways": Case(lambda x: np.pad(x, WIDE, "reflect", reflect_type="odd"), (A,)),
    "odd of one entry": Case(lambda x: np.pad(x, 3, "reflect", reflect_type="odd"), ((1,),)),
}


@each(CASES, [*CHECKS, check_jit_is_eager])
def test_padding(case, check):
    check(case)


def test_what_is_padded_with_may_be_traced():
    # by our name: NumPy's own looks at the array only
    def f(x, v):
        return fnp.pad(x, ((1, 1), (0, 2)), constant_values=v) * np.arange(24.0).reshape(4, 6)

    x, v = np.ones((2, 4)), np.array([[1.0, 2.0], [3.0, 4.0]])
    weights = np.arange(24.0).reshape(4, 6)
    np.testing.assert_array_equal(
        ft.jvp(lambda v: f(x, v), v, v)[0], np.pad(x, ((1, 1), (0, 2)), constant_values=v) * weights
    )
    want = [[weights[0, :4].sum(), weights[3, :4].sum()], [0, weights[:, 4:].sum()]]
    np.testing.assert_array_equal(ft.grad(lambda v: f(x, v).sum())(v), want)
    ends = ft.grad(lambda v: fnp.pad(np.ones(2), 2, "linear_ramp", end_values=v).sum())(2.0)
    assert float(ends) == 3.0


def test_empty_pads_with_no_derivative():
    y, dy = ft.jvp(lambda x: np.pad(x, 1, "empty"), np.ones(2), np.ones(2))
    assert y[1:3].tolist() == dy[1:3].tolist() == [1.0, 1.0]
    assert dy[[0, 3]].tolist() == [0.0, 0.0]


def test_integers_are_rounded_as_numpy_does():
    x = np.array([[1, 2, 4], [0, 5, 0]])
    got = ft.vmap(lambda x: np.pad(x, 2, "mean"))(x)
    np.testing.assert_array_equal(got, [np.pad(r, 2, "mean") for r in x])


def test_a_function_as_mode_is_refused():
    with pytest.raises(UnsupportedError, match=r"mode=<function>.*concatenate"):
        ft.grad(lambda x: np.pad(x, 1, lambda *args: None).sum())(np.ones(3))


@pytest.mark.parametrize("options, error", [
    ({"mode": "best"}, ValueError), ({"mode": "edge", "end_values": 1}, ValueError),
    ({"pad_width": 1.5}, TypeError), ({"mode": "maximum", "stat_length": 0}, ValueError),
])
def test_bad_options_raise_what_numpy_raises(options, error):
    options = {"pad_width": 1, **options}
    with pytest.raises(error) as expected:
        np.pad(np.ones(3), **options)
    with pytest.raises(error) as found:
        ft.jvp(lambda x: np.pad(x, **options), np.ones(3), np.ones(3))
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("mode", ["edge", "mean", "reflect"])
def test_an_empty_axis_cannot_be_extended(mode):
    with pytest.raises(ValueError, match="can't extend empty axis 0"):
        ft.jvp(lambda x: np.pad(x, 1, mode), np.ones(0), np.ones(0))


@pytest.mark.parametrize("dtype", ["i1", "i8", "u2"])
def test_ramps_of_integers_are_rounded_down_as_numpys(dtype):
    x = np.array([67, 71, 48, 21]).astype(dtype) * (1 if dtype == "u2" else -1)

    def f(x):
        return np.pad(x, (2, 4), "linear_ramp", end_values=(0, 5))

    for y in (ft.jit(f)(x), ft.vmap(f)(x[None])[0]):
        np.testing.assert_array_equal(y, f(x))
        assert y.dtype == x.dtype
