"""``vmap`` of compiled functions that decide by values: each entry of a batch takes its own."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
from functrans._compile.lowering.numbers import AS_NUMPY
from functrans._transforms.staging.jit import Jitted
from functrans.errors import ConcretizationError

pytestmark = pytest.mark.usefixtures("seldom_optimised")

X = np.array([0.25, -2.0, 0.0, 9.0, -0.5, 2.5])
W = 1.5


def roots(x, w):
    """Infinite slopes at 0, NaN below, on the path of the others."""
    if x * w > 0:
        return np.sqrt(x * w) + np.log(w * x)
    return w * x * x


def shifted(x, w):
    """Two guards one after the other, what is shared between them, and a constant."""
    y = x * w
    if y > 1.0:
        y = 2.0 + 0.0 * y
    if y < 0:
        return 0.5
    return y * y


def heron(x, w):
    """Entries that take different numbers of steps."""
    y, a = 1.0 + 0.0 * x, np.abs(x) * w + 1.0
    while np.abs(y * y - a) > 1e-2:
        y = 0.5 * (y + a / y)
    return y


def slope(f):
    return lambda x, w: ft.jvp(f, (x, w), (1.0, 0.0))[1]


TRANSFORMS = {
    "values": lambda f: f, "grad": ft.grad, "grad of w": lambda f: ft.grad(f, 1), "jvp": slope,
    "second": lambda f: ft.grad(slope(f), 1), "hessian": lambda f: ft.grad(ft.grad(f)),
}


def entries(f, xs=X, w=W):
    """``f`` on one entry after the other, without jit."""
    with ft.config(jit=False):
        return np.stack([np.asarray(f(x, w)) for x in xs])


# Each transform on one program, and the programs on those that differ for them.
PAIRS = [*[(roots, name) for name in TRANSFORMS], (shifted, "grad of w"), (shifted, "jvp"),
         (heron, "values"), (heron, "grad")]


@pytest.mark.parametrize(("f", "name"), PAIRS)
def test_a_batch_is_what_its_entries_are(f, name):
    transform = TRANSFORMS[name]
    g, expected = ft.vmap(transform(ft.jit(f)), in_axes=(0, None)), entries(transform(f))
    assert_allclose(g(X, W), expected, rtol=1e-13)
    assert_allclose(g(X[::-1], W), expected[::-1], rtol=1e-13)


@pytest.mark.parametrize(("f", "wrap"), [(roots, lambda f: f), (roots, ft.jit), (shifted, ft.jit)],
                         ids=["eager", "jit", "shifted"])
def test_derivatives_of_a_batch_are_sums_over_its_entries(f, wrap):
    g = ft.jit(f)

    def total(x, w):
        return np.sum(ft.vmap(g, in_axes=(0, None))(x, w))

    by_x, by_w = entries(ft.grad(f)), entries(ft.grad(f, 1)).sum()
    for _ in range(2):
        dx, dw = wrap(ft.grad(total, (0, 1)))(X, W)
        assert_allclose(dx, by_x, rtol=1e-13)
        assert_allclose(dw, by_w, rtol=1e-13)
    moved = wrap(lambda x, w: ft.jvp(total, (x, w), (X, 2.0))[1])(X, W)
    assert_allclose(moved, by_x @ X + 2.0 * by_w, rtol=1e-13)


def test_batches_in_batches():
    g, ws = ft.jit(roots), np.array([1.0, -2.0])
    rows = ft.vmap(lambda w: ft.vmap(ft.grad(g), in_axes=(0, None))(X, w))
    for found in (rows(ws), ft.jit(rows)(ws)):
        assert_allclose(found, [entries(ft.grad(roots), X, w) for w in ws], rtol=1e-13)


def test_a_compiled_batch_meets_new_paths_later():
    f = ft.jit(ft.vmap(ft.jit(roots), in_axes=(0, None)))
    for xs in (np.abs(X) + 1.0, X, -X, X - 20.0, X):
        assert_allclose(f(xs, W), entries(roots, xs), rtol=1e-13)


def test_a_compiled_batch_is_walked_natively():
    batch = ft.vmap(ft.jit(lambda x: np.exp(x) if x > 1.0 else x * x if x > 0 else -x))
    compiled = Jitted(batch, (), (), AS_NUMPY)
    expected = compiled((X,), {})
    (tree,) = compiled.entries.values()
    assert type(tree.native) is type(len)
    assert_array_equal(tree.native(X), expected)


def test_a_batch_that_is_closed_over():
    found = ft.vmap(ft.grad(lambda w: ft.jit(lambda x: roots(x, w))(2.0)))(X + 0.125)
    assert_allclose(found, [ft.grad(roots, 1)(2.0, w) for w in X + 0.125], rtol=1e-13)


def test_arrays_and_axes():
    f = ft.jit(lambda v: (v * np.sum(v), v[0]) if v[0] > 0 else (np.sin(v), v[1]))
    m = np.random.default_rng(0).normal(size=(3, 5))
    rows, firsts = ft.vmap(f, in_axes=1, out_axes=(1, 0))(m)
    for k in range(5):
        for y, expected in zip((rows[:, k], firsts[k]), f(m[:, k]), strict=True):
            assert_allclose(y, expected, rtol=1e-13)


def test_errors_of_a_path_are_those_of_entries_that_take_it():
    matrices = np.stack([np.eye(2) * k for k in (1.0, -1.0, 4.0)])
    f = ft.jit(lambda a: np.sum(np.linalg.cholesky(a)) if a[0, 0] > 0 else a[0, 0])
    assert_allclose(ft.vmap(f)(matrices), [2.0, -1.0, 4.0])
    assert_allclose(ft.vmap(ft.grad(f))(matrices)[1], [[1.0, 0.0], [0.0, 0.0]])
    g = ft.jit(lambda i, x: x[i] if i < 3 else -x[0])
    assert_array_equal(ft.vmap(g, in_axes=(0, None))(np.array([0, 5, 2]), X), [0.25, -0.25, 0.0])


def test_a_loop_ends_for_entries_that_do_not_take_it():
    def doubled(x):
        if x > 0:
            return ft.while_loop(lambda y: y != 8.0, lambda y: y * 2.0, x)
        return x

    xs = np.array([1.0, -1.0, 4.0, -3.0])
    assert_array_equal(ft.vmap(ft.jit(doubled))(xs), [8.0, -1.0, 8.0, -3.0])


def test_an_exception_of_one_entry_is_raised():
    def f(x):
        if x < 0:
            raise KeyError("negative")
        return x

    with pytest.raises(KeyError, match="negative"):
        ft.vmap(ft.jit(f))(X)


def test_integers_choose_the_path_of_an_entry():
    f = ft.jit(lambda n, x: sum([x * k for k in range(n)], 0.0 * x))
    assert_array_equal(ft.vmap(f)(np.array([1, 3, 0, 2]), np.arange(4.0)), [0.0, 3.0, 0.0, 3.0])
    g = ft.jit(lambda x: x * int(x))
    assert_array_equal(ft.vmap(ft.grad(g))(2.0 * X), np.trunc(2.0 * X))
    with pytest.raises(ValueError, match="cannot convert float NaN"):
        ft.vmap(g)(np.array([1.0, np.nan]))


def test_a_caught_exception_is_a_path_of_some_entries():
    def f(x):
        try:
            n = int(x)
        except (ValueError, OverflowError) as error:
            return 0.0 * n_of(error)
        return x * n

    def n_of(error):
        return 1.0 if isinstance(error, ValueError) else 2.0

    xs = np.array([1.5, np.nan, 2.5, np.inf, -np.inf])
    assert_array_equal(ft.vmap(ft.jit(f))(xs), [1.5, 0.0, 5.0, 0.0, 0.0])


def test_numbers_of_python_have_no_derivative_in_silence():
    f = ft.jit(lambda x: x * float(x))
    assert_array_equal(ft.vmap(f)(X), X * X)
    for g in (ft.vmap(ft.grad(f)), ft.grad(lambda x: np.sum(ft.vmap(f)(x))),
              ft.jit(ft.grad(lambda x: np.sum(ft.vmap(f)(x)))),
              ft.grad(ft.jit(lambda x: np.sum(ft.vmap(f)(x))))):
        with pytest.raises(ConcretizationError, match="would have no derivative"):
            g(X)


def test_entries_of_other_kinds_are_refused():
    for other in (lambda x: (x, x), lambda x: x * np.ones(2)):
        f = ft.jit(lambda x, other=other: x if x > 0 else other(x))
        with pytest.raises(ConcretizationError, match=r"for some entries .* those of ft\.cond are"):
            ft.vmap(f)(X)


def test_more_paths_than_are_kept_name_cond():
    f = ft.jit(lambda x: x * int(x), max_paths=3)
    with (pytest.warns(RuntimeWarning, match="max_paths=3"),
          pytest.raises(ConcretizationError, match=r"ft\.cond")):
        ft.vmap(f)(np.arange(8.0))


@pytest.mark.parametrize("f", [ft.vmap(lambda x: x if x > 0 else -x),
                               ft.jit(ft.vmap(lambda x: x if x > 0 else -x))],
                         ids=["vmap", "jit(vmap)"])
def test_without_jit_inside_the_error_names_cond_and_jit(f):
    with pytest.raises(ConcretizationError, match=r"ft\.cond; or give ft\.vmap .* ft\.jit"):
        f(X)


def test_an_empty_batch_has_no_path():
    with pytest.raises(ConcretizationError, match="more than one value at once"):
        ft.vmap(ft.jit(lambda x: x if x > 0 else -x))(np.zeros(0))


@ft.config(loops=False)
def test_a_path_of_many_decisions_is_staged_at_once(unoptimised):
    def f(x):
        y = 1.0
        for k in range(100):
            y = y * 1.01 if x[k] > 0 else y + x[k]
        return y * x[0]

    compiled = ft.jit(f)
    xs = np.cos(np.arange(300.0)).reshape(3, 100)
    assert_allclose(ft.vmap(compiled)(xs), [f(x) for x in xs], rtol=1e-13)
    assert "staged 3 times" in str(compiled.explain())
    slopes = ft.vmap(ft.grad(compiled))(xs)
    assert_allclose(slopes, [ft.grad(f)(x) for x in xs], rtol=1e-12)


def test_a_batch_of_arrays_without_entries_is_compiled():
    x = np.zeros((2, 3, 0))
    assert ft.vmap(ft.jit(lambda x: np.cumprod(x, 0)))(x).shape == x.shape
