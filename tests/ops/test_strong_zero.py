"""Zero times infinity in derivatives: the branch not taken counts for nothing, in every mode."""

import itertools
import operator
import tracemalloc

import numpy as np
import pytest

import functrans as ft
from functrans._compile.ir.program import interpret
from functrans._core.bind import is_finite, may_have_nan
from functrans._kernels import sizes
from tests.covering import covering

pytestmark = pytest.mark.usefixtures("unoptimised")

WILD = [np.inf, -np.inf, np.nan, 1e308, -1e308]
ROWS = {
    "square": np.square, "product": lambda x: x * x, "cube": lambda x: x**3, "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "cbrt": np.cbrt,
    "reciprocal": lambda x: 1 / x, "quotient": lambda x: x / (1 + x * x), "tanh": np.tanh,
    "arctan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "log1p": np.log1p, "expm1": np.expm1,
    "arcsin": np.arcsin, "arccosh": np.arccosh, "arctanh": np.arctanh, "arcsinh": np.arcsinh,
    "absolute": np.abs, "hypot": lambda x: np.hypot(x, 2.0), "arctan2": lambda x: np.arctan2(x, x),
    "logaddexp": lambda x: np.logaddexp(x, 1.0), "maximum": lambda x: np.maximum(x, 1.0) * x,
    "power": lambda x: x**x, "chain": lambda x: np.tanh(x * x) * np.exp(x) * x,
    "negative": lambda x: -x * 2.0, "sinc": np.sinc, "remainder": lambda x: x % 3.0,
    "by a constant": lambda x: x * np.array([np.inf, np.inf, np.nan, 0.0, 1.0, 2.0, 3.0]) * x,
}
X = np.array([*WILD, 0.5, 0.25])
WANTED = np.arange(7) >= 5


def masked(f):
    """The sum of f where it is wanted."""
    return lambda x: np.sum(np.where(WANTED, f(x), 0.0))


def forward(f, x):
    return np.array([ft.jvp(f, (x,), (e,))[1] for e in np.eye(x.size)])


def pushed(f, x):
    push = ft.linearize(f, x)[1]
    return np.array([push(e) for e in np.eye(x.size)])


MODES = {
    "grad": lambda f, x: ft.grad(f)(x),
    "jvp": forward,
    "vjp": lambda f, x: ft.vjp(f, x)[1](1.0)[0],
    "linearize": pushed,
    "vmap of grad": lambda f, x: ft.vmap(ft.grad(f))(np.stack([x, x[::-1]]))[0],
    "vmap of jvp": lambda f, x: ft.vmap(lambda t: ft.jvp(f, (x,), (t,))[1])(np.eye(x.size)),
    "jacfwd": lambda f, x: ft.jacfwd(f)(x),
    "checkpoint": lambda f, x: ft.grad(ft.checkpoint(f))(x),
    "jit of grad": lambda f, x: ft.jit(ft.grad(f))(x),
    "grad of jit": lambda f, x: ft.grad(ft.jit(f))(x),
    "jit of jvp": lambda f, x: forward(ft.jit(f), x),
    "jit of jacfwd": lambda f, x: ft.jit(ft.jacfwd(f))(x),
    "scan": lambda f, x: ft.grad(
        lambda x: ft.scan(lambda s, _: (s + f(x), None), 0.0, None, length=1)[0])(x),
    "jit of scan": lambda f, x: ft.jit(ft.grad(
        lambda x: ft.scan(lambda s, _: (s + f(x), None), 0.0, None, length=1)[0]))(x),
}


def modes_of_rows(modes):
    """Each row in each mode that is not compiled, and in one that is."""
    compiled = [mode for mode in modes if "jit" in mode]
    return [*itertools.product(ROWS, [mode for mode in modes if mode not in compiled]),
            *covering(ROWS, compiled, meet=1)]


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize(("name", "mode"), modes_of_rows(MODES))
def test_the_branch_not_taken_counts_for_nothing(name, mode):
    f = ROWS[name]
    expected = ft.grad(lambda x: np.sum(f(np.concatenate([np.ones(5), x]))[5:]))(X[5:])
    got = np.asarray(MODES[mode](masked(f), X))
    assert not got[:5].any()
    np.testing.assert_allclose(got[5:], expected, rtol=1e-13)


SECOND = {
    "forward over reverse": lambda f, x: ft.jacfwd(ft.grad(f))(x),
    "reverse over reverse": lambda f, x: ft.jacrev(ft.grad(f))(x),
    "forward over forward": lambda f, x: ft.jacfwd(ft.jacfwd(f))(x),
    "reverse over forward": lambda f, x: ft.jacrev(ft.jacfwd(f))(x),
    "jit": lambda f, x: ft.jit(ft.hessian(f))(x),
    "reverse over jit": lambda f, x: ft.jacrev(ft.jit(ft.grad(f)))(x),
}


@pytest.mark.parametrize(("name", "mode"), modes_of_rows(SECOND))
def test_nor_does_it_in_second_derivatives(name, mode):
    f = ROWS[name]
    expected = ft.hessian(lambda x: np.sum(f(np.concatenate([np.ones(5), x]))[5:]))(X[5:])
    got = np.asarray(SECOND[mode](masked(f), X))
    assert not got[:5].any()
    assert not got[:, :5].any()
    np.testing.assert_allclose(got[5:, 5:], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("f", ROWS.values(), ids=ROWS)
def test_nor_does_it_in_a_series(f):
    terms = [ft.jet(masked(f), (X,), ((e, 0 * e),))[1][1] for e in np.eye(X.size)]
    np.testing.assert_allclose(terms, np.diag(ft.hessian(masked(f))(X)), rtol=1e-12, atol=1e-12)


# ---- calls, loops and products: masked outside of what is called


def tame(x):
    return np.isfinite(x) & (np.abs(x) < 1e100)


def thrice(x):
    return ft.scan(lambda s, _: (s * x, None), x, None, length=2)[0]


CALLS = {
    "jit": ft.jit(lambda x: x * x * x),
    "loop": thrice,
    "jit of a loop": ft.jit(thrice),
    "cond": lambda x: ft.cond(x[5] > 0, lambda x: x * x * x, lambda x: x, x),
    "checkpoint": ft.checkpoint(lambda x: x * x * x),
    "vmap": ft.vmap(lambda x: x * x * x),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_mask_outside_of_a_call_counts_inside(call, compiled):
    gradient = ft.grad(lambda x: np.sum(np.where(tame(x), call(x), 0.0)))
    got = np.asarray((ft.jit(gradient) if compiled else gradient)(X))
    np.testing.assert_allclose(got, np.where(tame(X), 3 * X**2, 0), rtol=1e-15)


WHOLE = {
    "prod": np.prod, "norm": np.linalg.norm, "dot": lambda x: x @ x, "max": lambda x: np.max(x * x),
    "logsumexp": np.logaddexp.reduce, "var": np.var, "cumprod": lambda x: np.cumprod(x)[-1],
    "fft": lambda x: np.abs(np.fft.fft(x)[0]), "sort": lambda x: np.sort(x * x)[0],
    "einsum": lambda x: np.einsum("i,j->", x, x), "convolve": lambda x: np.convolve(x, x)[0],
}


@pytest.mark.parametrize("f", WHOLE.values(), ids=WHOLE)
def test_a_number_of_all_entries_that_is_not_taken_counts_for_nothing(f):
    def choose(x):
        return np.where(np.isfinite(x).all(), f(x), x[5] ** 2)

    expected = [0, 0, 0, 0, 0, 1.0, 0]
    np.testing.assert_array_equal(ft.grad(choose)(X), expected)
    np.testing.assert_array_equal(forward(choose, X), expected)


def test_a_row_of_a_product_that_is_not_taken_counts_for_nothing():
    rows = np.array([[1.0, 2.0], [np.inf, 1.0], [np.nan, 0.0], [0.0, -np.inf]])
    w, wanted = np.array([0.5, -1.0]), np.array([True, False, False, False])

    def f(w, rows):
        return np.sum(np.where(wanted, rows @ w, 0.0))

    np.testing.assert_array_equal(ft.grad(f)(w, rows), [1, 2])
    np.testing.assert_array_equal(ft.grad(f, 1)(w, rows), [w, [0, 0], [0, 0], [0, 0]])
    assert ft.jvp(lambda w: f(w, rows), (w,), (np.array([0.0, 1.0]),))[1] == 2


def test_what_a_product_makes_of_a_nan_stays():
    rows = np.array([[np.nan, 2.0], [1.0, 1.0]])
    assert np.isnan(ft.grad(lambda w: np.sum(rows @ w))(np.ones(2))).tolist() == [True, False]
    turned = ft.jvp(lambda a: np.cross(a, np.ones(3)), (np.ones(3),), (np.full(3, np.inf),))[1]
    assert np.isnan(turned).all()


# ---- programs begin with bare products, and are staged again where a NaN arrives


def plain(f):
    """The sum of f, infinite values and all."""
    return lambda x: np.sum(f(x) * x)


AGAIN = {
    "grad": lambda f: ft.grad(plain(f)),
    "jvp": lambda f: lambda x: ft.jvp(f, (x,), (1.0 * WANTED,))[1],
    "jacfwd": lambda f: ft.jacfwd(f), "jacrev": lambda f: ft.jacrev(f),
    "hessian": lambda f: ft.hessian(plain(f)),
    "twice in reverse": lambda f: ft.jacrev(ft.grad(plain(f))),
    "pushed along a tape": lambda f: lambda x: ft.linearize(f, x)[1](1.0 * WANTED),
    "hvp": lambda f: lambda x: ft.hvp(plain(f), x, 1.0 * WANTED)[1],
    "vmap of jvp": lambda f: ft.vmap(lambda t: ft.jvp(f, (X,), (t,))[1]),
}


@pytest.mark.parametrize(("name", "mode"), covering(ROWS, AGAIN, meet=1))
def test_compiled_derivatives_of_what_is_not_finite_are_those_of_eager_code(name, mode):
    derivative = AGAIN[mode](ROWS[name])
    x = np.eye(X.size) if mode == "vmap of jvp" else X
    np.testing.assert_allclose(ft.jit(derivative)(x), derivative(x), rtol=1e-12)


def root(x):
    return np.sum(x * np.sqrt(x))


def test_a_function_is_staged_again_once_where_a_nan_has_arrived():
    f = ft.jit(ft.grad(root))
    for x in ([1.0, 4.0], [0.0, 4.0], [4.0, 0.0], [1.0, 1.0]):
        np.testing.assert_array_equal(f(np.array(x)), 1.5 * np.sqrt(x))
    assert [why.reason for why in f.explain().stagings] == [
        "new kind of arguments", "a derivative had a NaN: now with strong zero"
    ]
    assert f(np.array([1.0, 4.0, 9.0])).tolist() == [1.5, 3.0, 4.5]
    assert len(f.explain().stagings) == 3


def descended(x):
    return ft.fori_loop(0, 3, lambda i, x: x - 0.1 * ft.grad(root)(x), x)


USES = {
    "asked": lambda x: np.where(np.isnan(ft.grad(root)(x)), 7.0, 1.0),
    "decided by": lambda x: x if ft.grad(root)(x)[0] >= 0 else -x,
    "caught": lambda x: caught(x),
    "in a loop": descended,
    "in a branch": lambda x: ft.cond(x[1] > 0, lambda: ft.grad(root)(x), lambda: x),
    "of a loop": ft.grad(lambda x: np.sum(np.where(x > 0, descended(x + 1.0), x))),
    "not used": lambda x: (ft.grad(root)(x), x)[1],
    "called": lambda x: ft.jit(ft.grad(root))(x) + 1,
    "of what is called": ft.grad(ft.jit(root)),
    "along": lambda x: ft.jvp(ft.jit(root), (x,), (x,))[1],
    "of constants": lambda x: ft.jvp(
        lambda y: y * np.array([np.inf, 1.0]), (x,), (np.array([0.0, 1.0]),))[1],
    "of a product": ft.grad(lambda x: np.sum(np.where(x > 0, np.diag(1 / x) @ x, x))),
}


def caught(x):
    try:
        y = ft.grad(root)(x)
        return y if y[0] >= 0 else -y
    except Exception:
        return None


@pytest.mark.parametrize("f", USES.values(), ids=USES)
def test_a_nan_is_not_seen_by_what_comes_after(f):
    x = np.array([0.0, 4.0])
    np.testing.assert_array_equal(ft.jit(f)(x), f(x))


@pytest.mark.parametrize("transform", [
    lambda f: lambda x: ft.vmap(f)(np.stack([x, x + 1])),
    lambda f: lambda x: ft.jvp(f, (x,), (np.array([0.0, 1.0]),))[1],
    lambda f: lambda x: ft.grad(lambda x: np.sum(f(x)[1:]))(x),
    lambda f: lambda x: ft.jit(lambda x: f(x) * 2.0)(x),
    lambda f: lambda x: ft.make_program(f)(x) and f(x),
], ids=["vmap", "jvp", "grad", "jit", "make_program"])
def test_what_transforms_make_of_a_compiled_derivative_is_staged_again_too(transform):
    f = ft.grad(root)
    x = np.array([0.0, 4.0])
    np.testing.assert_array_equal(transform(ft.jit(f))(x), transform(f)(x))


# ---- an entry depends on nothing but itself


@pytest.mark.parametrize("f", ROWS.values(), ids=ROWS)
def test_an_entry_does_not_depend_on_the_others_nor_on_how_many_they_are(f, monkeypatch):
    if f is ROWS["by a constant"]:
        f = ROWS["product"]
    gradient = ft.grad(lambda x: np.sum(f(x)))
    alone = np.concatenate([gradient(X[i : i + 1]) for i in range(X.size)])
    np.testing.assert_allclose(gradient(X), alone, rtol=1e-15)
    np.testing.assert_allclose(ft.jvp(f, (X,), (np.ones(X.size),))[1], alone, rtol=1e-15)
    monkeypatch.setattr(sizes, "LARGE", 100)
    np.testing.assert_allclose(gradient(np.tile(X, 40)), np.tile(alone, 40), rtol=1e-15)


# ---- what a second walk must not do


@pytest.mark.parametrize("x", [np.inf, 2.0])
def test_a_rule_of_the_users_runs_once(x):
    calls = []

    @ft.custom_vjp
    def f(x):
        return x * 3.0

    f.defvjp(lambda x: (x * 3.0, None), lambda _, ct: (calls.append(1), (ct * 3.0,))[1])
    gradient = ft.grad(lambda x: np.where(np.isinf(x), 0.0, np.square(f(x * 1.0))))(x)
    assert gradient == (0 if np.isinf(x) else 36)
    assert len(calls) == 1


def test_a_checkpointed_function_runs_once_more_and_not_twice():
    calls = []

    def f(x):
        calls.append(1)
        return np.square(x)

    assert ft.grad(lambda x: np.where(np.isinf(x), 0.0, ft.checkpoint(f)(x)))(np.inf) == 0
    assert len(calls) == 2


def test_large_entries_are_freed_as_the_walk_goes():
    x, n = np.full(200_000, 0.5), 200_000 * 8
    seen = []

    def f(x):
        for _ in range(20):
            x = np.sin(x)
        seen.append(tracemalloc.get_traced_memory()[0])
        return np.sum(x)

    tracemalloc.start()
    try:
        ft.grad(f)(x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seen[0] > 19 * n
    assert peak < seen[0] + 4 * n


TWO = ft.jit(lambda a: (np.diag(a) * 2.0, np.diag(a) * 1.0))
SEVERAL = {
    "svd": lambda a: np.linalg.svd(a)[1],
    "eigh": lambda a: np.linalg.eigh(a)[0],
    "jit": lambda a: TWO(a)[1],
}


@pytest.mark.parametrize("values", SEVERAL.values(), ids=SEVERAL)
def test_ops_and_calls_of_several_outputs_are_spared_a_nan(values):
    def f(a):
        w = values(a)
        return np.sum(np.where(w > 1, np.sqrt(w - 1), 0.0))

    expected = np.diag([0, 0, 0.5 / np.sqrt(3), 0.5 / np.sqrt(8)])
    np.testing.assert_allclose(ft.grad(f)(np.diag([1.0, 1.0, 4.0, 9.0])), expected, atol=1e-15)


@pytest.mark.parametrize("f", [operator.mod, np.remainder, np.fmod])
def test_a_divisor_that_does_not_move_does_not_move_the_remainder_of_an_infinity(f):
    with np.errstate(invalid="ignore"):
        y, t = ft.jvp(lambda c: f(np.float64(np.inf), c), (2.0,), (0.0,))
    assert np.isnan(y) and t == 0


# ---- tangents and cotangents as transforms hand them out

A = ft.grad(lambda x: np.sum(x**2))(np.ones(3))
HANDED_OUT = {
    "hvp": lambda f, x, v: ft.hvp(f, x, v)[1],
    "jvp": lambda f, x, v: ft.jvp(f, (x,), (v,))[1],
    "linearize": lambda f, x, v: ft.linearize(f, x)[1](v),
    "vjp": lambda f, x, v: ft.vjp(lambda x: f(x) * x, x)[1](v)[0],
    "vjp of jvp": lambda f, x, v: ft.vjp(lambda x: ft.jvp(f, (x,), (v,))[1] * x, x)[1](v)[0],
    "jet": lambda f, x, v: ft.jet(f, (x,), ((v, v),))[1][1],
    "jit": lambda f, x, v: ft.jit(lambda v: ft.jvp(f, (x,), (v,))[1])(v),
    "captured": lambda f, x, v: ft.grad(lambda x: f(x * v))(x),
}


@pytest.mark.parametrize("first", [0.0, 1.0], ids=["with an infinity", "without"])
@pytest.mark.parametrize("mode", HANDED_OUT.values(), ids=HANDED_OUT)
def test_an_array_is_taken_as_the_ndarray_it_is(mode, first):
    x = np.array([first, 1.0, 2.0])

    def f(x):
        return np.sum(np.log(x))

    np.testing.assert_array_equal(mode(f, x, A), mode(f, x, np.full(3, 2.0)))


@pytest.mark.parametrize("look", [may_have_nan, is_finite])
@pytest.mark.parametrize("shape", [(20,), (4, 5), (3,)])
@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.complex128])
def test_the_look_for_nan_does_not_warn(look, shape, dtype):
    for value in (6e4 if dtype is np.float16 else 1e200, np.inf):
        assert look(np.full(shape, value, dtype)) in (True, False)
    assert may_have_nan(np.full(shape, np.nan, dtype))
    assert not is_finite(np.full(shape, np.inf, dtype))


@pytest.mark.parametrize("f", [np.prod, lambda x: np.prod(x, where=np.array([True, False, True]))])
def test_a_product_that_overflows_without_one_of_its_factors(f):
    x = np.array([1e300, 1e-310, -1e200])
    gradient = ft.grad(f)(x)
    for forward in (ft.jacfwd(f), ft.jit(ft.jacfwd(f))):
        np.testing.assert_allclose(forward(x), gradient, rtol=1e-15)
    assert not np.isnan(gradient).any()


# ---- programs that nobody stages again

MASKED = {
    "tanh, reshape": lambda x: np.sum(np.tanh((x * x).reshape(2, 1)).ravel()),
    "a running sum": lambda x: np.cumsum((x * x).reshape(1, 2), 1)[0, 0],
    "sort": lambda x: np.sort(x * x)[0],
    "max": lambda x: np.max(-(x * x)),
    "a running max": lambda x: np.maximum.accumulate(-(x * x))[0],
    "concatenate, max": lambda x: np.max(-np.concatenate((x * x, x * x))),
    "outer, index": lambda x: (np.outer(x * x, [1.0, 2.0]) + 0.0)[0, 0],
}


@pytest.mark.parametrize("f", MASKED.values(), ids=MASKED)
def test_in_a_program_a_zero_from_anything_that_masks_meets_an_infinity_strongly(f):
    x = np.array([1.0, np.inf])
    program = ft.make_program(ft.grad(f))(x)
    np.testing.assert_array_equal(interpret(program, [x])[0], ft.grad(f)(x))
    assert np.isfinite(ft.grad(f)(x)).all()
