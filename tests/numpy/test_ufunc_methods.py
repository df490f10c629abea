"""reduce, accumulate, reduceat, outer and at of ufuncs: NumPy's values and options."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

import functrans as ft
from functrans.errors import ShapeError, UnsupportedError
from tests.cases import CHECKS, PICKING, Case, check_jit_is_eager, each

A, V = (3, 4), (6,)
STEPS = [0, 2, 1, 4, 4]
SMOOTH = {
    **{
        f"{f.__name__}.reduce": Case(lambda x, f=f: f.reduce(x, axis=1), (A,))
        for f in (np.subtract, np.divide, np.multiply, np.add)
    },
    **{
        f"{f.__name__}.accumulate": Case(lambda x, f=f: f.accumulate(x), (A,))
        for f in (np.subtract, np.divide, np.power, np.multiply)
    },
    **{
        f"{f.__name__}.reduceat": Case(lambda x, f=f: f.reduceat(x, STEPS), (V,))
        for f in (np.add, np.multiply, np.subtract, np.divide)
    },
    "add.reduceat of rows": Case(lambda x: np.add.reduceat(x, [0, 2], axis=1), (A,)),
    "add.reduceat of a cube": Case(lambda x: np.add.reduceat(x, [1, 0], axis=1), ((2, 3, 2),)),
    "outer": Case(np.divide.outer, (A, (2, 2))),
    "outer of a list": Case(lambda x: np.multiply.outer(x, [1.0, 2.0]), (A,)),
    "outer of a number": Case(lambda x: np.subtract.outer(2.0, x) - np.add.outer(x, 1.0), (V,)),
    "two axes": Case(lambda x: np.add.reduce(x, axis=(0, 2), keepdims=True), ((2, 3, 4),)),
    "initial": Case(lambda x: np.subtract.reduce(x, axis=1, initial=2.0), (A,)),
    "mask": Case(lambda x: np.divide.reduce(x, 1, initial=2.0, where=np.arange(4) != 1), (A,)),
}
REAL = {
    **{
        f"{f.__name__}.reduce": Case(lambda x, f=f: f.reduce(x, axis=1), (A,))
        for f in (np.maximum, np.minimum, np.fmax, np.fmin)
    },
    **{
        f"{f.__name__}.accumulate": Case(lambda x, f=f: f.accumulate(x, axis=1), (A,))
        for f in (np.maximum, np.fmin, np.fmax)
    },
    **{
        f"{f.__name__}.reduceat": Case(lambda x, f=f: f.reduceat(x, STEPS), (V,))
        for f in (np.maximum, np.fmin, np.fmax)
    },
    "maximum with options": Case(
        lambda x: np.maximum.reduce(x, 1, initial=0.3, where=np.arange(4) > 1, keepdims=True), (A,)
    ),
    "outer": Case(np.maximum.outer, (A, (2,))),
}
WIDENED = [c for c in CHECKS if "float32" not in c.__name__]


@each({n: c for n, c in SMOOTH.items() if "outer of" not in n}, [*CHECKS, check_jit_is_eager])
def test_smooth(case, check):
    check(case)


@each({n: c for n, c in SMOOTH.items() if "outer of" in n}, WIDENED)
def test_outer_of_python_numbers_which_widens(case, check):
    check(case)


@each(REAL, PICKING)
def test_picking(case, check):
    check(case)


# ---- functions whose derivative only real numbers have

FOLDED = ["hypot", "logaddexp", "logaddexp2", "arctan2", "fmod", "remainder", "copysign",
          "floor_divide", "float_power", "heaviside"]


@pytest.mark.parametrize("name", FOLDED)
@pytest.mark.parametrize("method", ["reduce", "accumulate", "reduceat"])
def test_a_fold_is_the_same_ufunc_again_and_again(name, method):
    f = getattr(np, name)
    x = np.array([2.7, 1.3, 0.7, 1.9, 0.4])

    def methodically(x):
        return getattr(f, method)(x, [0, 3]) if method == "reduceat" else getattr(f, method)(x)

    def by_hand(x):
        entries = [x[i] for i in range(5)]
        if method == "reduce":
            return functools.reduce(f, entries)
        if method == "accumulate":
            return np.stack(list(itertools.accumulate(entries, f)))
        return np.stack([functools.reduce(f, entries[:3]), functools.reduce(f, entries[3:])])

    # not NumPy's own value: its power.reduce and arctan2.reduce of contiguous arrays are wrong
    for derive in (lambda g: g, ft.jacfwd, ft.jacrev, ft.hessian):
        got, want = derive(methodically), derive(by_hand)
        got, want = (ft.jvp(g, x, x)[0] for g in (got, want))
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("call", [
    lambda x: np.add.reduce(x, axis=None), lambda x: np.add.reduce(x, dtype=np.float32),
    lambda x: np.maximum.reduce(x, dtype=np.float32), lambda x: np.hypot.reduce(x, axis=(0, 1)),
    lambda x: np.hypot.reduce(x[:, :0], axis=1), lambda x: np.hypot.reduce(-x, initial=1.0),
    lambda x: np.hypot.reduce(x, where=x > 0.3), lambda x: np.logical_xor.reduce(x > 0.3, axis=1),
    lambda x: np.logical_xor.accumulate(x), lambda x: np.logical_or.reduceat(x > 0.3, [0, 2]),
    lambda x: np.subtract.accumulate(x[:0]), lambda x: np.add.reduceat(x, []),
    lambda x: np.subtract.reduceat(x, [1]), lambda x: np.multiply.outer(x, x, dtype=np.float32),
    lambda x: np.bitwise_xor.reduce(x > 0.3), lambda x: np.hypot.accumulate(-x),
    lambda x: np.logical_or.reduce(x > 9, axis=1, initial=True),
    lambda x: np.logical_and.reduce(x, initial=2.0, where=x > 0.3, keepdims=True),
    lambda x: np.logical_or.reduce(x, initial=None),
    lambda x: np.logaddexp.reduce(x, axis=0, initial=1.0), lambda x: np.gcd.reduce(x.astype(int)),
    lambda x: np.add.reduce(x.astype(np.int8), dtype=np.int16),
    lambda x: np.add.reduce(x.astype(np.float32), dtype=np.float64),
    lambda x: np.logical_or.reduce(x > 9, axis=1, initial="yes"),
    lambda x: np.multiply.reduce(x, axis=None, dtype=np.int32, initial=7),
    lambda x: np.add.accumulate(x > 0.3, dtype=np.uint8), lambda x: np.logical_or.reduce(x > 1.3),
    lambda x: np.logical_or.reduce(x > 9, axis=None, initial=2.5),
    lambda x: np.logical_and.reduce(x, initial=0, where=x > 1.0, dtype=bool),
])
@pytest.mark.parametrize("how", ["jvp", "vmap", "jit"])
def test_options_give_numpys_values_and_types(call, how):
    x = np.arange(12.0).reshape(3, 4) / 7 + 0.1
    want = call(x)
    if how == "jvp":
        found = []
        ft.jvp(lambda x: found.append(ft.stop_gradient(call(x))) or x, x, x)
        got = found[0]
    elif how == "vmap":
        got = ft.vmap(call)(x[None])[0]
    else:
        got = ft.jit(call)(x)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(got, want, rtol=1e-6 if want.dtype == np.float32 else 1e-13)


@pytest.mark.parametrize("call, error", [
    (lambda x: np.subtract.reduce(x, axis=None), ValueError),
    (lambda x: np.subtract.reduce(x[:0]), ValueError),
    (lambda x: np.subtract.reduce(x, where=x > 0), ValueError),
    (lambda x: np.less.reduce(x), TypeError),
    (lambda x: np.logical_or.reduce(x, dtype=np.int32), TypeError),
    (lambda x: np.subtract.reduce(x, axis=5), np.exceptions.AxisError),
    (lambda x: np.add.reduceat(x, [0, 9]), IndexError),
    (lambda x: np.hypot.reduceat(x, [-1]), IndexError),
])
def test_what_has_no_meaning_raises_what_numpy_raises(call, error):
    x = np.ones((3, 2))
    with pytest.raises(error) as expected:
        call(x)
    with pytest.raises(error) as found:
        ft.jvp(call, x, x)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("name", ["logaddexp", "fmax"])
def test_the_program_of_a_running_result_does_not_grow_with_its_length(name):
    f = getattr(np, name)

    def equations(call, n):
        return len(ft.make_program(ft.grad(lambda x: np.sum(call(x))))(np.ones(n)).eqns)

    def masked(x):
        return f.reduce(x, initial=0.5, where=np.arange(x.size) % 3 > 0)

    for call in (f.accumulate, f.reduce, masked):
        assert equations(call, 5) == equations(call, 50) < 60


def test_ties_of_a_running_ufunc_are_those_of_each_step():
    weights = ft.grad(lambda x: np.fmax.accumulate(x)[-1])(np.ones(4))
    assert weights.tolist() == [0.125, 0.125, 0.25, 0.5]


@pytest.mark.parametrize("name, entries", [
    ("logaddexp", [-np.inf, -np.inf, 1.0, np.inf, 2.0]), ("hypot", [0.0, 0.0, -3.0, np.inf, 1.0]),
    ("fmin", [np.nan, 2.0, np.nan, 1.0, 1.0]), ("divide", [0.0, 2.0, 0.0, 1.0, np.inf]),
])
def test_special_entries_of_a_running_ufunc_are_those_of_its_steps(name, entries):
    f, x = getattr(np, name), np.array(entries)

    def by_hand(x):
        return np.stack(list(itertools.accumulate([x[i] for i in range(len(x))], f)))

    with np.errstate(all="ignore"):
        want = ft.jacrev(by_hand)(x)
        for derive in (ft.jacrev, ft.jacfwd, lambda g: ft.jit(ft.jacrev(g))):
            np.testing.assert_allclose(derive(f.accumulate)(x), want, rtol=1e-14)


def test_running_ufuncs_of_rows_of_a_batch_and_of_lines_of_an_array():
    x = np.random.default_rng(0).uniform(0.5, 2.0, (2, 3, 4)).astype(np.float32)

    def f(x):
        return np.logaddexp2.accumulate(x, axis=-2)

    assert f(x).dtype == ft.jacrev(f)(x).dtype == np.float32
    np.testing.assert_array_equal(ft.vmap(f)(x), f(x))
    by_row = ft.vmap(ft.jacrev(f))(x)
    np.testing.assert_allclose(by_row, [ft.jacfwd(f)(v) for v in x], rtol=1e-5)


def test_hypot_of_zeros_has_the_shortest_slope():
    assert ft.grad(np.hypot.reduce)(np.zeros(3)).tolist() == [0.0, 0.0, 0.0]


def test_an_infinite_sum_of_parts_stays_in_its_part():
    x = np.array([np.inf, 1.0, 2.0])
    y, pull = ft.vjp(lambda x: np.add.reduceat(x, [0, 1]), x)
    assert y.tolist() == [np.inf, 3.0]
    assert pull(np.array([0.0, 1.0]))[0].tolist() == [0.0, 1.0, 1.0]


@pytest.mark.parametrize("ufunc, cure", [
    (np.add, r"\.at\[index\]\.add"), (np.maximum, r"\.at\[index\]\.max"),
    (np.hypot, r"\.at\[index\]\.apply\(np\.hypot\)"),
])
def test_at_names_the_update_that_does_the_same(ufunc, cure):
    calls = {"at": ufunc.at}
    with pytest.raises(UnsupportedError, match=rf"{ufunc.__name__}\.at writes in place.*{cure}"):
        ft.grad(lambda x: calls["at"](x, [0, 0], 1.0))(np.ones(3))
    with pytest.raises(UnsupportedError, match=r"writes in.*plain ndarray.*numpy\.zeros"):
        ft.grad(lambda x: ufunc.at(np.zeros(3), [0, 0], x[:2]))(np.ones(3))


def test_at_of_a_function_without_such_an_update_is_refused_where_it_can_be_seen():
    with pytest.raises(UnsupportedError, match=r"hypot\.at writes in place.*\.apply\(np\.hypot\)"):
        ft.grad(lambda x: np.hypot.at(x, [0, 0], 1.0))(np.ones(3))


def test_positions_that_depend_on_the_batch_are_refused():
    with pytest.raises(TypeError, match=r"np\.add\.reduceat: the shape"):
        ft.vmap(lambda i: np.add.reduceat(np.ones(3), i))(np.array([[0, 1], [0, 2]]))


@pytest.mark.parametrize("ufunc", [np.add, np.multiply, np.maximum, np.logaddexp])
@pytest.mark.parametrize("initial", [[1.0], np.ones(2)], ids=["list", "array"])
def test_a_reduction_starts_from_a_number(ufunc, initial):
    with pytest.raises(ValueError, match="sequence"):
        ufunc.reduce(np.ones(2), initial=initial)
    with pytest.raises(ShapeError, match=r"initial= .* is a single number, but has the shape"):
        ft.grad(lambda x: np.sum(ufunc.reduce(x, initial=initial)))(np.ones(2))
