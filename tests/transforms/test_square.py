"""What transforms return, and other functions, in every transform: as plain Python, or refused.

A row is a function and what it is mathematically, written in plain NumPy; a column a transform.
"""

import copy
import functools
import pickle

import numpy as np
import pytest

import functrans as ft
from functrans._transforms.reverse.api import record
from functrans.errors import (
    CaptureError,
    ConcretizationError,
    UnsupportedError,
)

pytestmark = pytest.mark.usefixtures("unoptimised")

X = np.array([0.3, 0.7, 1.1])
V = np.array([0.2, -0.5, 0.4])
C = np.array([1.0, 2.0, -1.0])


def f(x):
    return np.sin(x) * x + x[::-1]


def slope(x):
    return np.cos(x) * x + np.sin(x)


J = np.diag(slope(X)) + np.eye(3)[::-1]


def scaled(c, x):
    return f(x) * c


def times_c(x):
    return f(x) * C


def forward(t):
    return J @ t


def backward(ct):
    return (J.T @ ct,)


def loss(x):
    return np.sum(f(x) ** 2)


def of_loss(x):
    return 2 * (slope(x) * f(x) + f(x)[::-1])


class Model:
    c = C

    def __call__(self, x):
        return f(x) * self.c

    method = __call__

    @staticmethod
    def static(x):
        return f(x)

    @classmethod
    def of_class(cls, x):
        return f(x) * cls.c


@ft.custom_vjp
def ruled(x):
    return f(x)


@ft.custom_jvp
def pushed(x):
    return f(x)


ruled.defvjp(lambda x: (f(x), x), lambda x, ct: (slope(x) * ct + ct[::-1],))
pushed.defjvp(lambda xs, ts: (f(*xs), slope(xs[0]) * ts[0] + ts[0][::-1]))


def iterated(x):
    return ft.scan(lambda c, _: (0.5 * f(c), None), x, np.zeros(2))[0]


def chosen(x):
    return ft.cond(x[0] > 0, f, lambda x: x, x)


PULLBACK = ft.vjp(f, X)[1]
PUSHFORWARD = ft.linearize(f, X)[1]
EXPORTED = ft.export(f, X)
OPERATOR = ft.linear_operator(f, X)
PREPARED = ft.sparse_jacobian(f).prepare(X)

# Functions, each with what it is.
FUNCTIONS = {
    "pullback": (PULLBACK, backward),
    "pushforward": (PUSHFORWARD, forward),
    "transposed": (ft.linear_transpose(forward, X), backward),
    "pullback of jit": (ft.vjp(ft.jit(f), X)[1], backward),
    "pullback of checkpoint": (ft.vjp(ft.checkpoint(f), X)[1], backward),
    "pullback of custom_vjp": (ft.vjp(ruled, X)[1], backward),
    "pushforward of custom_jvp": (ft.linearize(pushed, X)[1], forward),
    "pullback of cond": (ft.vjp(chosen, X)[1], backward),
    "pullback of a pullback": (ft.vjp(lambda ct: PULLBACK(ct)[0], X)[1], lambda t: (J @ t,)),
    "jit of a pullback": (ft.jit(PULLBACK), backward),
    "vmap of a pullback": (lambda x: ft.vmap(PULLBACK)(np.stack([x, x]))[0][1], lambda x: J.T @ x),
    "custom_vjp": (ruled, f), "custom_jvp": (pushed, f), "checkpoint": (ft.checkpoint(f), f),
    "bound method": (Model().method, times_c), "callable object": (Model(), times_c),
    "static method": (Model.static, f), "class method": (Model.of_class, times_c),
    "partial": (functools.partial(scaled, C), times_c),
    "partial of jit": (functools.partial(ft.jit(scaled), C), times_c),
    "jit": (ft.jit(f), f), "vmap": (lambda x: ft.vmap(np.sin)(x) * x + x[::-1], f),
    "grad": (ft.grad(loss), of_loss), "value_and_grad": (
        ft.value_and_grad(loss), lambda x: (loss(x), of_loss(x))),
    "jacobian": (ft.jacobian(f), lambda x: np.diag(slope(x)) + np.eye(3)[::-1]),
    "loop": (lambda x: iterated(x), lambda x: 0.5 * f(0.5 * f(x))),
}

# Functions that no transform looks into, and what they say.
CLOSED = {
    "exported": (EXPORTED, "is machine code, which no transform looks into"),
    "loaded": (pickle.loads(pickle.dumps(EXPORTED)), "is machine code, which no transform"),
    "sparse_jacobian": (lambda x: ft.sparse_jacobian(f)(x) @ C, "argument 0 of `f` is traced"),
    "prepared": (lambda x: PREPARED(x) @ C, "argument 0 of `f` is traced"),
    "linear_operator": (lambda x: OPERATOR @ x, "whose derivative it would lose"),
}


def total(y):
    """A sum of all entries, no two alike."""
    return sum([np.sum(v * np.arange(1.0, np.size(v) + 1).reshape(np.shape(v)))
                for v in ft.tree.leaves(y)])


def summed(g):
    return lambda x: total(g(x))


def stepped(g):
    return lambda x: ft.scan(lambda c, t: (c + total(g(c * x)), None), 0.1, np.zeros(2))[0]


TRANSFORMS = {
    "call": lambda g: g(X),
    "grad": lambda g: ft.grad(summed(g))(X),
    "jvp": lambda g: ft.jvp(g, (X,), (V,)),
    "vjp": lambda g: (lambda y, pull: pull(y))(*ft.vjp(g, X)),
    "vmap": lambda g: ft.vmap(g)(np.stack([X, V])),
    "jit": lambda g: [ft.jit(g)(x) for x in (X, V)],
    "scan": lambda g: ft.scan(lambda c, x: (c + total(g(x)), g(c * x)), 0.5, np.stack([X, V])),
    "fori_loop": lambda g: ft.fori_loop(0, 2, lambda i, c: c + total(g(c * X)), 0.1),
    "while_loop": lambda g: ft.while_loop(
        lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] + total(g(c[1] * X))), (0, 0.1)),
    "cond": lambda g: ft.cond(X[0] > 0, g, lambda x: g(2 * x), X),
    "checkpoint": lambda g: ft.grad(summed(ft.checkpoint(g)))(X),
    "jacobian": lambda g: (ft.jacfwd(g)(X), ft.jacrev(g)(X)),
    "hessian": lambda g: ft.hessian(summed(g))(X),
    "linearize": lambda g: ft.linearize(g, X)[1](V),
    "jet": lambda g: ft.jet(g, (X,), ((V, X),)),
    "jit of grad": lambda g: ft.jit(ft.grad(summed(g)))(X),
    "grad of jit": lambda g: ft.grad(summed(ft.jit(g)))(X),
    "jit of vmap": lambda g: ft.jit(ft.vmap(g))(np.stack([X, V])),
    "vmap of grad": lambda g: ft.vmap(ft.grad(summed(g)))(np.stack([X, V])),
    "grad of scan": lambda g: ft.grad(stepped(g))(X),
    "jit of scan": lambda g: ft.jit(stepped(g))(X),
    "grad of cond": lambda g: ft.grad(lambda x: ft.cond(x[0] > 0, summed(g), np.sum, x))(X),
    "jit of hvp": lambda g: ft.jit(lambda x: ft.hvp(summed(g), x, V)[1])(X),
}
# Columns that give functions that are no longer traced to a function that is closed.
OUTSIDE = {"call", "scan", "fori_loop", "while_loop", "cond"}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_in_a_transform_is_what_it_is(name, transform):
    g, plain = FUNCTIONS[name]
    found, expected = [TRANSFORMS[transform](h) for h in (g, plain)]
    pairs = zip(ft.tree.leaves(found), ft.tree.leaves(expected), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CLOSED)
def test_what_no_transform_looks_into_says_so(name):
    g, text = CLOSED[name]
    for transform in TRANSFORMS.keys() - OUTSIDE:
        with pytest.raises((UnsupportedError, ConcretizationError), match=text):
            TRANSFORMS[transform](g)


SENT = ["custom_vjp", "custom_jvp", "checkpoint", "bound method", "callable object", "partial",
        "partial of jit", "jit", "grad", "jacobian"]


@pytest.mark.parametrize("wrap", [lambda g: g, ft.jit, ft.vmap], ids=["alone", "jit", "vmap"])
@pytest.mark.parametrize("name", SENT)
def test_a_function_that_has_travelled_is_what_it_was(name, wrap):
    g, x = wrap(FUNCTIONS[name][0]), np.stack([X, V]) if wrap is ft.vmap else X
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(g))(x), g(x))


@pytest.mark.parametrize("g", [
    PULLBACK, PUSHFORWARD, ft.jit(PULLBACK), FUNCTIONS["transposed"][0], OPERATOR,
], ids=["pullback", "pushforward", "jit", "transposed", "operator"])
def test_what_one_run_has_recorded_does_not_pickle(g):
    with pytest.raises(UnsupportedError, match=r"of `\w+` holds what one run has recorded"):
        pickle.dumps(g)


def test_a_recording_does_not_pickle():
    with pytest.raises(UnsupportedError, match="what one run has recorded does not pickle"):
        pickle.dumps(record("vjp", f, [X], False))


def test_a_pullback_copies_and_shows_as_functions_do():
    assert copy.deepcopy(PULLBACK) is copy.copy(PULLBACK) is PULLBACK
    assert repr(PULLBACK) == "<pullback of f>" and repr(PUSHFORWARD) == "<pushforward of f>"


# ---- what a pullback under jit reads


def outer(x, wrap):
    y, pull = ft.vjp(f, x)
    return total(wrap(pull)(y))


@pytest.mark.parametrize("transform", [
    ft.grad, ft.jit, ft.hessian, lambda g: ft.jit(ft.grad(g)), lambda g: ft.jit(ft.jacfwd(g)),
    lambda g: lambda x: ft.vmap(g)(np.stack([x, 2 * x])),
    lambda g: lambda x: ft.vmap(ft.grad(g))(np.stack([x, 2 * x])),
    lambda g: lambda x: ft.scan(lambda c, _: (c * g(x * c), None), 1.0, np.zeros(2))[0],
], ids=["grad", "jit", "hessian", "jit grad", "jit jacfwd", "vmap", "vmap grad", "scan"])
def test_a_compiled_pullback_takes_what_an_outer_transform_traces(transform):
    found, expected = [transform(lambda x, w=w: outer(x, w))(X) for w in (ft.jit, lambda g: g)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_compiled_pullback_of_a_pullback_is_differentiated():
    def nested(x, wrap):
        pull = ft.vjp(f, x)[1]
        return total(wrap(ft.vjp(lambda ct: pull(ct * ct)[0], x)[1])(x))

    found, expected = [ft.grad(lambda x, w=w: nested(x, w))(X) for w in (ft.jit, lambda g: g)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("n", [3, 1_000])
def test_a_compiled_pullback_keeps_the_arrays_of_its_run(n):
    a = np.full(n, 2.0)
    pull = ft.vjp(lambda x: a * x, np.ones(n))[1]
    compiled = ft.jit(pull)
    assert compiled(np.ones(n))[0][0] == 2
    a *= 5
    assert compiled(np.ones(n))[0][0] == pull(np.ones(n))[0][0] == 2


@pytest.mark.parametrize("changed", ["argument", "captured"])
def test_a_compiled_pullback_says_that_a_large_array_has_changed(changed):
    a, x = np.full(100_000, 2.0), np.ones(100_000)
    pull = ft.vjp(lambda x: a * x * x, x)[1]
    compiled = ft.jit(pull)
    assert compiled(np.ones(100_000))[0][0] == 4
    (a if changed == "captured" else x)[0] += 1
    for g in (pull, compiled):
        with pytest.raises(CaptureError, match="was changed before its derivative was taken"):
            g(np.ones(100_000))


def test_a_compiled_pullback_of_a_checkpoint_says_that_what_it_reads_has_changed():
    k = np.array(2.0)
    compiled = ft.jit(ft.vjp(ft.checkpoint(lambda x: np.sin(x * k)), X)[1])
    np.testing.assert_allclose(compiled(C)[0], 2 * np.cos(2 * X) * C)
    k *= 2
    with pytest.raises(CaptureError, match="met or returned other values"):
        compiled(C)


def test_a_pullback_through_values_that_coincide_is_not_compiled():
    def exponential(a):
        w, v = np.linalg.eigh((a + a.T) / 2)
        return np.sum((v * np.exp(w)) @ v.T)

    pull = ft.vjp(exponential, np.eye(3))[1]
    for g in (pull, ft.jit(pull), ft.jit(lambda ct: pull(ct))):
        np.testing.assert_allclose(g(2.0)[0], np.full((3, 3), 2 * np.e), rtol=1e-12)
    assert np.isnan(ft.grad(lambda ct: np.sum(pull(ct)[0]))(1.0))
    with pytest.raises(UnsupportedError, match="export: `pullback` closes over a value"):
        ft.export(pull, 1.0)
    with pytest.raises(ConcretizationError, match="coincided in the run that was recorded"):
        ft.make_program(pull)(1.0)


@pytest.mark.parametrize("primal", [2.0, np.float32(2), np.array([1.0]), 1j, np.float16(1)])
def test_linear_transpose_lifts_its_primals(primal):
    def doubled(y):
        return y[None].reshape(-1) * 2.0

    ones = ft.tree.map(np.ones_like, ft.vjp(doubled, primal)[0])
    (ct,) = ft.linear_transpose(doubled, primal)(ones)
    np.testing.assert_array_equal(ct, np.full(np.shape(primal), 2.0))
