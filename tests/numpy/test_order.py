"""Sorting, searching and sets: what is kept carries its derivative to its new place."""

from __future__ import annotations

import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans.errors import ConcretizationError, UnsupportedError
from tests.cases import CHECKS, OF_KNOWN, PICKING, Case, check_jit_is_eager, each

A, V = (3, 4), (6,)
ALL = [*CHECKS, check_jit_is_eager]

SORTING = {
    "sort": Case(lambda x: np.sort(x, 0), (A,)),
    "sort flat": Case(lambda x: np.sort(x, None), (A,)),
    "greatest": Case(lambda x: np.sort(x, 0)[-2:], (A,)),
    "partition": Case(lambda x: np.partition(x, 2)[..., 2], (A,)),
    "partition at several": Case(lambda x: np.partition(x, (-1, 0), axis=0)[[0, -1]], (A,)),
    "greatest by partition": Case(lambda x: np.sort(np.partition(x, -2, None)[-2:]), (A,)),
    "by another": Case(lambda x: x[np.argsort(-np.sin(x))], (V,)),
    "by keys": Case(lambda x: x[np.lexsort((x, np.array([0, 1, 0, 1, 0, 1])))], (V,)),
    "by argpartition": Case(lambda x: np.sort(x[np.argpartition(x, 1)[:2]]), (V,)),
    "argpartition method": Case(lambda x: np.sort(x[x.argpartition(4)[:4]]), (V,)),
    "isin": Case(lambda x: np.where(np.isin(x, x[:2]), x, 2 * x), (V,)),
}
SETS = {
    "unique": Case(np.unique, (A,)),
    "unique rows": Case(lambda x: np.unique(x, axis=0), (A,)),
    "unique_values": Case(np.unique_values, (A,)),
    "unique_counts": Case(lambda x: np.unique_counts(x).values, (A,)),
    "unique_inverse": Case(lambda x: np.unique_inverse(x).values, (A,)),
    "unique_all": Case(lambda x: np.unique_all(x).values, (A,)),
    "union1d": Case(lambda x, y: np.union1d(x, y + 10), (V, (2, 2))),
    "intersect1d": Case(lambda x: np.intersect1d(x, 2 * x), (V,)),
    "setdiff1d": Case(lambda x: np.setdiff1d(x, x[:2]), (V,)),
    "setdiff1d in its order": Case(lambda x: np.setdiff1d(x, x[:2], assume_unique=True), (V,)),
    "setxor1d": Case(lambda x: np.setxor1d(x[:4], x[2:]), (V,)),
    "trim_zeros": Case(lambda x: np.trim_zeros(np.pad(x, 2)), (V,)),
    "trim_zeros in front": Case(lambda x: np.trim_zeros(np.pad(x, 1), "f"), (V,)),
    "trim_zeros of a table": Case(lambda x: np.trim_zeros(np.pad(x, 1), axis=1), (A,)),
}


@each(SORTING, PICKING)
def test_sorting(case, check):
    check(case)


@each(SETS, OF_KNOWN)
def test_sets(case, check):
    check(case)


@each({"sort_complex": Case(lambda x: np.sort_complex(x * (1 - 1j)).imag, (A,))}, OF_KNOWN)
def test_complex(case, check):
    check(case)


# ---- values, whatever is traced


T = np.array([2.0, 3.0, 1.0, 2.0, 1.0, 0.0])
VALUES = {
    "argsort stable": lambda x: np.argsort(x, kind="stable"),
    "argsort of axis 0": lambda x: np.argsort(x.reshape(3, 2), 0, stable=True),
    "lexsort": lambda x: np.lexsort((-x, x > 1)),
    "lexsort of a table": lambda x: np.lexsort(x.reshape(2, 3)),
    "lexsort axis": lambda x: np.lexsort((x.reshape(2, 3), -x.reshape(2, 3)), axis=0),
    "searchsorted": lambda x: np.searchsorted(np.array([0.0, 1.0, 2.0]), x, "right"),
    "searchsorted by a sorter": lambda x: np.searchsorted(x, 2.0, sorter=np.argsort(x)),
    "isin": lambda x: np.isin(x, [2.0, 5.0]),
    "isin inverted": lambda x: np.isin(np.array([1.0, 7.0]), x, invert=True),
    "isin nothing": lambda x: np.isin(x.reshape(2, 3), []),
}
OF_VALUES = {
    "unique": lambda x: np.unique(x, True, True, True),
    "unique of a table": lambda x: np.unique(x.reshape(2, 3), return_inverse=True),
    "unique rows": lambda x: np.unique(np.stack([x, x]), True, True, True, axis=0),
    "unique_all": np.unique_all, "unique_counts": np.unique_counts,
    "unique_inverse": lambda x: np.unique_inverse(x.reshape(3, 2)),
    "unique with NaN": lambda x: np.unique(np.where(x == 1, np.nan, x), equal_nan=False),
    "union1d": lambda x: np.union1d(x, [2.0, 5.0]),
    "intersect1d": lambda x: np.intersect1d(x, [3.0, 1.0, 1.0, 9.0], return_indices=True),
    "setdiff1d": lambda x: np.setdiff1d([4.0, 2.0, 7.0], x),
    "setxor1d": lambda x: np.setxor1d(x, [2.0, 2.0, 8.0]),
    "setxor1d of nothing": lambda x: np.setxor1d(x[:0], []),
    "trim_zeros": lambda x: np.trim_zeros(x, "b"),
    "trim_zeros of zeros": lambda x: np.trim_zeros(x[:0]),
    "argwhere": np.argwhere, "count_nonzero": np.count_nonzero,
    "extract": lambda x: np.extract(x > 1, x),
}


def found_by(f, x):
    """What ``f`` returns of a traced ``x``, leaf by leaf."""
    kept = []
    ft.jvp(lambda x: kept.extend(map(ft.stop_gradient, ft.tree.leaves(f(x)))) or x, x, x)
    return kept


@pytest.mark.parametrize("name", [*VALUES, *OF_VALUES])
def test_values_are_numpys(name):
    f = {**VALUES, **OF_VALUES}[name]
    want = f(T)
    want = list(want) if isinstance(want, tuple) else [want]
    got = found_by(lambda x: tuple(y) if isinstance(y := f(x), tuple) else y, T)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert (np.shape(a), np.asarray(a).dtype) == (np.shape(b), np.asarray(b).dtype)
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("transform", [lambda f: lambda x: ft.vmap(f)(x[None])[0], ft.jit],
                         ids=["vmap", "jit"])
def test_values_are_numpys_also_batched_and_compiled(name, transform):
    np.testing.assert_array_equal(transform(VALUES[name])(T), VALUES[name](T))


def test_positions_differ_within_a_batch():
    x = np.random.default_rng(0).permutation(24).reshape(3, 8) * 1.0
    for f in (lambda x: np.lexsort((x, x > 9)), lambda x: np.searchsorted(np.sort(x), [3.0, 9.0]),
              lambda x: np.isin(x, x[:2]), lambda x: np.sort(np.argpartition(x, 3)[:4])):
        np.testing.assert_array_equal(ft.vmap(f)(x), [f(r) for r in x])


def test_one_sorted_array_for_a_batch_is_searched_once():
    x = np.array([0.0, 1.0, 2.0])
    v = np.array([[0.5, 3.0], [1.0, -1.0]])
    got = ft.vmap(lambda v: np.searchsorted(x, v))(v)
    assert got.tolist() == np.searchsorted(x, v).tolist()


def test_the_named_results_keep_their_names():
    def f(x):
        assert np.unique_all(x).inverse_indices.tolist() == [1, 0]
        assert np.unique_counts(x)._fields == ("values", "counts")
        return np.unique_all(x).values.sum()

    assert ft.grad(f)(np.array([2.0, 1.0])).tolist() == [1.0, 1.0]


def test_of_equal_entries_the_first_is_kept():
    x = np.array([3.0, 1.0, 3.0])
    assert ft.grad(lambda x: np.union1d(x, [3.0]).sum())(x).tolist() == [1.0, 1.0, 0.0]
    assert ft.grad(lambda x: np.union1d([3.0], x).sum())(x).tolist() == [0.0, 1.0, 0.0]
    assert ft.grad(lambda x: np.intersect1d(x, [3.0]).sum())(x).tolist() == [1.0, 0.0, 0.0]
    assert ft.grad(lambda x: np.intersect1d([3.0], x).sum())(x).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("f", [
    np.unique, np.unique_values, lambda x: np.union1d(x, x), lambda x: np.setdiff1d(x, x),
    lambda x: np.intersect1d(x, x), lambda x: np.setxor1d(x, x),
])
@pytest.mark.parametrize("transform", [ft.vmap, ft.jit])
def test_a_number_of_entries_that_values_decide_is_refused(f, transform):
    with pytest.raises(ConcretizationError, match=r"np\.\w+: the shape.*np\.where"):
        transform(f)(np.ones((2, 3)))


@pytest.mark.parametrize("method", ["sort", "partition"])
def test_in_place_methods_name_the_function(method):
    with pytest.raises(UnsupportedError, match=rf"use np\.{method}\(x\)"):
        ft.grad(lambda x: getattr(x, method)(1))(np.ones(3))


@pytest.mark.parametrize("f", [
    lambda x: np.partition(x, 7), lambda x: np.argpartition(x, -7), lambda x: np.sort(x, 2),
    lambda x: np.searchsorted(x.reshape(2, 3), 1.0), lambda x: np.searchsorted(x, 1.0, "middle"),
    lambda x: np.lexsort([]), lambda x: np.lexsort((x, x[:2])), lambda x: np.trim_zeros(x, "x"),
    lambda x: np.sort(x, order="a"),
])
def test_bad_arguments_raise_what_numpy_raises(f):
    with pytest.raises((ValueError, TypeError, IndexError)) as expected:
        f(T)
    with pytest.raises(expected.type):
        ft.jvp(f, T, T)


def test_arrays_come_back_as_arrays():
    assert type(fnp.partition(fnp.array([2.0, 1.0]), 0)) is ft.Array
    assert type(fnp.lexsort((fnp.array([2.0, 1.0]),))) is ft.Array
