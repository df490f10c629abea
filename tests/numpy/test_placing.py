"""Functions that write: as NumPy's where that can be seen, refused elsewhere; and on copies."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans.errors import ImmutableError
from tests.cases import CHECKS, Case, check_jit_is_eager, each

A, V = (3, 4), (6,)
MASK = np.arange(12).reshape(3, 4) % 3 == 1
K = np.array([[2, 0], [1, 3], [0, 2]])


def functional(name, *args, **options):
    """``name`` of our own that returns a copy; on plain arrays NumPy's, on a copy."""

    def f(x, v):
        if isinstance(x, np.ndarray) and isinstance(v, np.ndarray):
            y = np.array(x, np.result_type(x, v))
            getattr(np, name)(y, *[v if a is ... else a for a in args], **options)
            return y
        return getattr(fnp, name)(
            x, *[v if a is ... else a for a in args], inplace=False, **options
        )

    return f


CASES = {
    "putmask": Case(functional("putmask", MASK, ...), (A, A)),
    "putmask repeated": Case(functional("putmask", MASK, ...), (A, (5,))),
    "place": Case(functional("place", MASK, ...), (A, (4,))),
    "place repeated": Case(functional("place", MASK, ...), (A, (3,))),
    "put": Case(functional("put", [1, -1, 3], ...), (V, (3,))),
    "put repeated": Case(functional("put", [1, 7, 3, 11], ..., mode="wrap"), (A, (2,))),
    "put clipped": Case(functional("put", [1, 99], ..., mode="clip"), (V, (2,))),
    "put twice at one place": Case(functional("put", [1, 1], ...), (V, (2,))),
    "put_along_axis": Case(functional("put_along_axis", K, ..., 1), (A, (3, 2))),
    "put_along_axis broadcast": Case(functional("put_along_axis", K[:1, :1], ..., 0), (A, (1, 1))),
    "put_along_axis flat": Case(
        functional("put_along_axis", np.array([5, 0]), ..., None), (A, (2,))
    ),
    "copyto": Case(functional("copyto", ...), (A, (4,))),
    "copyto where": Case(functional("copyto", ..., where=MASK), (A, A)),
    "fill_diagonal": Case(functional("fill_diagonal", ...), (A, ())),
    "fill_diagonal of many": Case(functional("fill_diagonal", ...), ((5, 2), (2,))),
    "fill_diagonal wrapped": Case(functional("fill_diagonal", ..., wrap=True), ((7, 2), (3,))),
    "fill_diagonal of a cube": Case(functional("fill_diagonal", ...), ((3, 3, 3), ())),
}


@each(CASES, [*CHECKS, check_jit_is_eager])
def test_copies(case, check):
    check(case)


CALLS = {
    "put": (lambda x: np.put(x, [0], [1.0]), r"x\.at\[index\]\.set"),
    "place": (lambda x: np.place(x, x > 0, [1.0]), r"x\.at\[mask\]\.set"),
    "putmask": (lambda x: np.putmask(x, x > 0, 1.0), r"x\.at\[mask\]\.set"),
    "put_along_axis": (lambda x: np.put_along_axis(x, np.array([0]), 1.0, 0), r"x\.at"),
    "copyto": (lambda x: np.copyto(x, 1.0), r"np\.where"),
    "copyto from": (lambda x: np.copyto(np.zeros(4), x), r"np\.where"),
    "fill_diagonal": (lambda x: np.fill_diagonal(x.reshape(2, 2), 1.0), r"x\.at\[i, i\]"),
}


@pytest.mark.parametrize("name", CALLS)
def test_in_place_is_refused_with_the_cure_where_it_cannot_be_seen(name):
    f, cure = CALLS[name]
    own = name.split()[0]
    hidden = MappingProxyType({"f": f})
    with pytest.raises(ImmutableError, match=rf"np\.{own} writes in place.*{cure}.*numpy\.{own}\("):
        ft.grad(lambda x: hidden["f"](x) or x.sum())(np.ones(4))


@pytest.mark.parametrize("name", [n for n in CALLS if n != "copyto from"])
def test_in_place_is_that_of_numpy_where_it_can_be_seen(name):
    f, x = CALLS[name][0], np.array([2.0, -1.0, 3.0, 0.5])
    changed = x.copy()
    f(changed)
    kept = np.where(changed == x, 1.0, 0.0)
    assert ft.grad(lambda x: f(x) or x.sum())(x).tolist() == kept.tolist()


def test_a_plain_array_is_no_place_for_a_copy_of_traced_values():
    with pytest.raises(ImmutableError, match=r"np\.copyto writes in place.*functrans\.numpy as np"):
        ft.grad(lambda x: np.copyto(np.zeros(4), x) or x.sum())(np.ones(4))


def test_an_array_cannot_be_written_to_by_our_names_either():
    x = ft.array([1.0, 2.0])
    with pytest.raises(ImmutableError, match="inplace=False"):
        fnp.put(x, [0], 3.0)
    assert fnp.put(x, [0], 3.0, inplace=False).tolist() == [3.0, 2.0]
    assert x.tolist() == [1.0, 2.0]


def test_an_ndarray_is_written_to_as_by_numpy():
    x = np.zeros((2, 2))
    fnp.fill_diagonal(x, 1.0)
    fnp.put(x, [1], 5.0)
    assert x.tolist() == [[1.0, 5.0], [0.0, 1.0]]


@pytest.mark.parametrize("f, error", [
    (lambda x, **o: fnp.place(x, x > 0, [], **o), ValueError),
    (lambda x, **o: fnp.place(x, np.array([True]), [1.0], **o), ValueError),
    (lambda x, **o: fnp.put(x, [9], 1.0, **o), IndexError),
    (lambda x, **o: fnp.put(x, [0], 1.0, mode="other", **o), ValueError),
    (lambda x, **o: fnp.copyto(x, 1j, **o), TypeError),
    (lambda x, **o: fnp.fill_diagonal(x, 1.0, **o), ValueError),
])
def test_bad_arguments_raise_what_numpy_raises(f, error):
    with pytest.raises(error):
        f(np.ones(4))
    with pytest.raises(error):
        ft.jvp(lambda x: f(x, inplace=False), np.ones(4), np.ones(4))


def test_a_batched_mask_keeps_the_shape():
    x = np.array([[1.0, -1.0, -2.0], [-3.0, 4.0, 5.0]])
    got = ft.vmap(lambda x: fnp.place(x, x < 0, [10.0, 20.0], inplace=False))(x)
    assert got.tolist() == [[1.0, 10.0, 20.0], [10.0, 4.0, 5.0]]
