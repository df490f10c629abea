"""config(kinks=...): what a derivative exactly at a kink is."""

import warnings
from contextvars import Context

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import functrans as ft
import functrans.scipy.special
from functrans._transforms.forward.jvp import JVPTrace
from functrans._transforms.reverse.nodes import ReverseTrace
from functrans.errors import ArgumentError, KinkWarning, NotDifferentiable
from functrans.extend import TABLE, Elementwise
from tests.threads import elsewhere

X = np.array([1.0, 0.0, -2.0])


def size(x):
    return np.sum(np.abs(x))


# a derivative of ``size`` by each transform
TRANSFORMS = {
    "grad": ft.grad(size),
    "value_and_grad": ft.value_and_grad(size),
    "jacfwd": ft.jacfwd(size),
    "jacrev": ft.jacrev(size),
    "hessian": ft.hessian(size),
    "reverse over reverse": ft.jacrev(ft.grad(size)),
    "jvp": lambda x: ft.jvp(size, x, x),
    "linearize": lambda x: ft.linearize(size, x)[1](x),
    "jet": lambda x: ft.jet(size, (x,), ((x, x),)),
    "vmap of grad": lambda x: ft.vmap(ft.grad(size))(x[None]),
    "grad of vmap": ft.grad(lambda x: np.sum(ft.vmap(np.abs)(x))),
    "jit of grad": ft.jit(ft.grad(size)),
    "grad of jit": ft.grad(ft.jit(size)),
    "checkpoint": ft.grad(ft.checkpoint(size)),
}
each = pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)


@each
def test_a_kink_is_an_error_that_names_op_line_and_place(transform):
    text = r"test_kinks.py:\d+: .*: `absolute` is differentiated at a kink.*convention \(0: 0\)"
    with ft.config(kinks="raise"), pytest.raises(NotDifferentiable, match=text):
        transform(X)


@each
def test_a_kink_is_a_warning_and_the_subgradient(transform):
    silent = transform(X)
    with ft.config(kinks="warn"), pytest.warns(KinkWarning, match="at a kink"):
        warned = transform(X)
    for a, b in zip(ft.tree.leaves(silent), ft.tree.leaves(warned), strict=True):
        assert_array_equal(a, b)


@each
def test_away_from_kinks_nothing_is_said(transform):
    for kinks in ("warn", "raise"):
        with ft.config(kinks=kinks):
            transform(X + 0.5)


@each
def test_by_default_nothing_is_said(transform):
    transform(X)


def test_the_place_of_the_first_entry():
    with ft.config(kinks="raise"):
        with pytest.raises(NotDifferentiable, match=r"in 1 of 3 entries, the first \[1\]"):
            ft.grad(size)(X)
        with pytest.raises(NotDifferentiable, match=r"kink\. Its"):
            ft.grad(np.abs)(0.0)


def test_a_kink_is_warned_of_once_however_deep_the_nesting():
    with ft.config(kinks="warn"), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        ft.grad(lambda x: np.sum(ft.grad(size)(x)))(X)
    assert len(seen) == 1


# row -> operands (and parameters) at a kink, and not
POINTS = {
    "remainder": ((3.0, 1.5), (3.1, 1.5)),
    "fmod": ((-3.0, 1.5), (3.1, 1.5)),
    "hypot": ((0.0, 0.0), (0.0, 1.0)),
    "leg_of_hypot": ((0.0, 0.0), (0.0, 1.0)),
    "absolute": ((0.0,), (1.0,)),
    "absolute_complex": ((0j,), (1j,)),
    "fabs": ((0.0,), (-1.0,)),
    "copysign": ((0.0, 1.0), (1.0, 0.0)),
    "arctan2": ((0.0, 0.0), (0.0, 1.0)),
    "maximum": ((2.0, 2.0), (2.0, np.nan)),
    "minimum": ((2.0, 2.0), (2.0, 1.0)),
    "fmax": ((2.0, 2.0), (2.0, np.nan)),
    "fmin": ((2.0, 2.0), (2.0, 1.0)),
    "clip": ((1.0, 0.0, 1.0), (0.5, 0.0, 1.0)),
    "heaviside": ((0.0, 0.5), (0.1, 0.5)),
    "root": ((0.0,), (1.0,)),
    "special.i0e": ((0.0,), (1.0,)),
    "special.i1e": ((0.0,), (1.0,)),
    "max": (([1.0, 1.0, 0.0],), ([1.0, 0.0, 0.0],)),
    "min": (([1.0, 0.0, 0.0],), ([1.0, 1.0, 0.0],)),
    "cummax": (([1.0, 1.0],), ([2.0, 1.0],)),
    "cummin": (([1.0, 1.0],), ([1.0, 2.0],)),
    "accumulate": (([0.0, 1.0, 1.0],), ([0.0, 2.0, 1.0],)),
    "fold_at": (([1.0, 0.0], [0.5, 1.0], [0, 0]), ([1.0, 0.0], [0.5, 2.0], [0, 0])),
    "norm2": (([0.0, 0.0],), ([0.0, 1.0],)),
    "ranked": (([2.0, 1.0, 2.0], [1]), ([2.0, 1.0, 2.0], [0])),
    "svd": (([[1.0, 1.0], [1.0, 1.0]],), ([[1.0, 0.0], [0.0, 1.0]],)),
}
PARAMS = {
    "max": {"axis": (0,)}, "min": {"axis": (0,)}, "cummax": {"axis": 0}, "cummin": {"axis": 0},
    "accumulate": {"axis": 0, "by": "fmax"},
    "fold_at": {"by": "maximum"}, "norm2": {"axis": (0,)}, "svd": {"kind": "values"},
    "ranked": {"skip_nan": False},
}
# These raise NotDifferentiable by themselves where there is no derivative.
OWN_ERRORS = {"eig", "eigh", "lu", "pinv", "qr", "roots"}


@pytest.mark.parametrize("name", POINTS)
def test_a_row_knows_its_kinks(name):
    at, off = ([np.asarray(x) for x in xs] for xs in POINTS[name])
    row, params = TABLE[name], PARAMS.get(name, {})
    assert row.at_kink is not None
    assert np.any(row.at_kink(*at, **params))
    assert not np.any(row.at_kink(*off, **params))


@pytest.mark.parametrize("name", POINTS)
def test_a_row_is_watched(name):
    at = [np.asarray(x) for x in POINTS[name][0]]
    row, params = TABLE[name], PARAMS.get(name, {})
    actions = row.actions if isinstance(row, Elementwise) else (True,)
    first = next(i for i, action in enumerate(actions) if action)

    def f(x):
        y = row(*at[:first], x, *at[first + 1 :], **params)
        return y[1] if row.outputs > 1 else y

    with ft.config(kinks="raise"), pytest.raises(NotDifferentiable, match=f"`{name}`"):
        ft.vjp(f, at[first])


def test_every_row_with_kinks_says_where_they_are():
    assert functrans.scipy.special  # imported for the rows that it loads
    named = {name for name, row in TABLE.items() if row.kinks}
    placed = {name for name, row in TABLE.items() if row.at_kink is not None}
    assert named - placed == OWN_ERRORS
    assert placed - named == set()
    assert placed == set(POINTS)


FUNCTIONS = {
    "max": (np.max, [1.0, 1.0, 0.0]),
    "ReLU": (lambda x: np.sum(np.maximum(x, 0.0)), [1.0, 0.0]),
    "norm": (np.linalg.norm, [0.0, 0.0]),
    "std": (np.std, [2.0, 2.0]),
    "clip": (lambda x: np.sum(np.clip(x, 0, 1)), [0.5, 1.0]),
    "operator": (lambda x: sum(abs(v) for v in x), [1.0, 0.0]),
    "sum of singular values": (lambda x: np.linalg.svdvals(np.diag(x)).sum(), [1.0, 0.0]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_made_of_such_rows(name):
    f, x = FUNCTIONS[name]
    with ft.config(kinks="raise"), pytest.raises(NotDifferentiable, match="at a kink"):
        ft.grad(f)(np.array(x))


SMOOTH = {
    "eigh": lambda a: np.linalg.eigh(a + a.T)[0][0],
    "svd": lambda a: np.linalg.svd(a)[0][0, 0] ** 2,
    "qr": lambda a: np.linalg.qr(a)[0][0, 0] ** 2,
    "prod": np.prod,
    "logsumexp": np.logaddexp.reduce,
}


@pytest.mark.parametrize("name", ["eigh", "svd", "qr", "prod"])
def test_the_inside_of_a_rule_is_no_kink(name):
    """Second derivatives run rules that compare, take absolute values and largest entries."""
    a = np.array([[1.0, 0.0], [0.3, 3.0]])
    expected = ft.hessian(SMOOTH[name])(a)
    with ft.config(kinks="raise"):
        assert_array_equal(ft.hessian(SMOOTH[name])(a), expected)
        assert_array_equal(ft.jacrev(ft.grad(SMOOTH[name]))(a).shape, expected.shape)


def test_what_is_not_differentiated_is_not_watched():
    with ft.config(kinks="raise"):
        assert ft.grad(lambda x: x * np.abs(np.zeros(())))(1.0) == 0
        assert ft.vmap(np.abs)(np.zeros(2)).tolist() == [0, 0]
        assert ft.grad(lambda x: x * np.abs(ft.stop_gradient(x - x)))(1.0) == 0


# ---- the setting


def test_it_ends_with_its_block_also_after_an_error():
    with pytest.raises(NotDifferentiable), ft.config(kinks="raise"):
        ft.grad(size)(X)
    assert ft.config.kinks == "subgradient"
    assert ft.config.jit
    ft.grad(size)(X)


def test_blocks_nest_and_leave_other_settings_alone():
    with ft.config(kinks="raise"):
        assert not ft.config.jit
        with ft.config(kinks="subgradient", jit=True):
            assert ft.config.jit
            ft.grad(size)(X)
        with ft.config(jit=False):
            assert (ft.config.jit, ft.config.kinks) == (False, "raise")
        with ft.config(kinks="subgradient"):
            assert ft.config.jit
        assert ft.config.kinks == "raise"


def test_other_threads_keep_their_own():
    with ft.config(kinks="raise"):
        found = elsewhere(Context().run, ft.grad(size), X)
    assert_array_equal(found, [1, 0, -1])


def test_an_unknown_setting_is_refused():
    with pytest.raises(ArgumentError, match="'subgradient', 'warn' or 'raise', but is 'error'"):
        ft.config(kinks="error").__enter__()


def test_by_default_the_traces_are_the_plain_ones():
    seen = []

    def f(x):
        seen.append(type(x.owner))
        return x * 1.0

    ft.grad(f)(1.0)
    ft.vjp(f, 1.0)
    ft.jvp(f, 1.0, 1.0)
    assert seen == [ReverseTrace, ReverseTrace, JVPTrace]
