"""Loops and branches as equations of a program: every transform against the same without jit."""

import itertools
import math
import signal
import sys
import threading

import numpy as np
import pytest

import functrans as ft
from functrans._compile.ir.structured import Branch, Loop
from functrans._transforms.control.scan import levels
from functrans.errors import ArgumentError, NotDifferentiable, ShapeError

pytestmark = pytest.mark.usefixtures("seldom_optimised")

EXACT = {"rtol": 1e-12, "atol": 1e-12}
X = np.array([0.3, -0.8, 0.6])
W = np.array([[0.2, 0.5, -0.4], [0.1, -0.3, 0.7], [0.6, 0.2, 0.3]])


def scanned(x):
    carry, ys = ft.scan(lambda c, v: (np.tanh(c * v) + x[0], c * c), x[1], np.arange(1.0, 5.0))
    return carry * np.sum(ys)


def over_entries(x):
    return np.sum(ft.scan(lambda c, v: (c * np.sin(v), c + v), 2.0, x * x)[1])


def backwards(x):
    return ft.scan(lambda c, v: (c * v + 1, None), 0.5, x, reverse=True)[0]


def of_vectors(x):
    def step(state, k):
        u, v = state
        return (np.tanh(W @ u + k * v), v * u), u[::-1]

    (u, v), ys = ft.scan(step, (x, x * 2), np.array([0.5, 1.0, -1.0]))
    return np.sum(u * v) + np.sum(ys**2)


def counted(x):
    return np.sum(ft.fori_loop(1, 5, lambda i, y: np.sin(y) * i + x, x))


def weakly(x):
    return np.sum(ft.fori_loop(0, 3, lambda i, y: y * 2 + i, 1.0) * x**2)


def closed_over(x):
    return ft.fori_loop(0, 4, lambda i, y: y * x[0] + x[1], 1.0)


def nested(x):
    def outer(c, v):
        inner, _ = ft.scan(lambda d, w: (d * w + v, None), c, x)
        return inner, inner * v

    return np.sum(ft.scan(outer, 1.0, x)[1])


def chosen(x):
    return ft.cond(x[0] > 0, lambda: np.sum(x**3), lambda: np.prod(np.sin(x)))


def switched(x):
    return ft.switch(np.floor(x[0] * 4).astype(int), [np.sum, np.prod, np.max], np.exp(x))


def chosen_inside(x):
    def step(c, v):
        return ft.cond(v > 0, lambda: (c * v, v), lambda: (c - v, c)), None

    (a, b), _ = ft.scan(lambda c, v: (step(c[0], v)[0], None), (1.0, 0.0), x)
    return a + b


def bounded(x):
    return ft.while_loop(lambda y: np.sum(y) < 9, lambda y: y * y + 1.1, x, max_steps=9)[1]


def solved(x):
    return ft.fori_loop(0, 3, lambda i, y: np.linalg.solve(W + np.eye(3) * i + 1, y), x) @ x


FUNCTIONS = [scanned, over_entries, backwards, of_vectors, counted, weakly, closed_over, nested,
             chosen, switched, chosen_inside, bounded, solved]


def pushforward(f):
    return lambda x: ft.jvp(f, (x,), (np.array([1.0, -2.0, 0.5]),))


WAYS = {
    "value": (lambda f: f, ft.jit),
    "reverse": (ft.grad, lambda f: ft.jit(ft.grad(f))),
    "reverse of jit": (ft.grad, lambda f: ft.grad(ft.jit(f))),
    "forward": (pushforward, lambda f: ft.jit(pushforward(f))),
    "forward of jit": (pushforward, lambda f: pushforward(ft.jit(f))),
    "forward over reverse": (ft.hessian, lambda f: ft.jit(ft.hessian(f))),
    "reverse over reverse": (
        lambda f: ft.jacrev(ft.grad(f)), lambda f: ft.jit(ft.jacrev(ft.grad(f)))
    ),
    "reverse over forward": (
        lambda f: ft.jacrev(ft.jacfwd(f)), lambda f: ft.jit(ft.jacrev(ft.jacfwd(f)))
    ),
    "linearized": (
        lambda f: lambda x: ft.linearize(f, x)[1](X[::-1]),
        lambda f: lambda x: ft.linearize(ft.jit(f), x)[1](X[::-1]),
    ),
}  # fmt: skip


unoptimised = pytest.mark.usefixtures("unoptimised")
OPTIMISED = {"value", "reverse", "forward"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_jit_agrees_with_plain_python(f, way, request):
    request.getfixturevalue("seldom_optimised" if way in OPTIMISED else "unoptimised")
    plain, compiled = [make(f) for make in WAYS[way]]
    for x in (X, X * np.array([-1.0, 1.0, 2.0])):
        want, got = ft.tree.leaves(plain(x)), ft.tree.leaves(compiled(x))
        for a, b in zip(want, got, strict=True):
            np.testing.assert_allclose(b, a, **EXACT)


@unoptimised
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_batches(f):
    batch = np.stack([X, X[::-1], -X, X * 2])
    want = [ft.value_and_grad(f)(x) for x in batch]
    values, gradients = (np.stack(c) for c in zip(*want, strict=True))
    for made in (ft.jit(ft.vmap(ft.value_and_grad(f))), ft.vmap(ft.jit(ft.value_and_grad(f))),
                 ft.vmap(ft.value_and_grad(ft.jit(f)))):
        got, slopes = made(batch)
        np.testing.assert_allclose(got, values, **EXACT)
        np.testing.assert_allclose(slopes, gradients, **EXACT)


def escapes(x):
    return ft.while_loop(lambda y: y < 50, lambda y: y * x + 1, x)


def test_while_has_no_bound_forward_and_wants_one_in_reverse():
    np.testing.assert_allclose(ft.jit(escapes)(2.0), escapes(2.0), rtol=1e-15)

    def push(f):
        return lambda x: ft.jvp(f, (x,), (1.0,))
    np.testing.assert_allclose(ft.jit(push(escapes))(2.0), push(escapes)(2.0), rtol=1e-15)
    with pytest.raises(NotDifferentiable, match=r"(?s)test_loops.py.*while_loop.*max_steps"):
        ft.jit(ft.grad(escapes))(2.0)


def test_entries_of_a_batch_end_at_their_own_step():
    xs = np.array([1.5, 2.0, 30.0, 60.0])
    want = ft.vmap(escapes)(xs)
    np.testing.assert_allclose(ft.jit(ft.vmap(escapes))(xs), want, rtol=1e-15)
    np.testing.assert_allclose(ft.vmap(ft.jit(escapes))(xs), want, rtol=1e-15)


def test_max_steps_ends_the_loop_with_and_without_jit():
    def f(x):
        return ft.while_loop(lambda y: y < 50, lambda y: y * 2, x, max_steps=3)
    assert f(1.0) == ft.jit(f)(1.0) == 8.0
    assert ft.grad(f)(1.0) == ft.jit(ft.grad(f))(1.0) == 8.0
    assert f(40.0) == ft.jit(f)(40.0) == 80.0


def test_steps_before_the_state_is_staged_count():
    def f(a):
        return ft.while_loop(lambda x: x < 100, lambda x: x + a, np.float64(0.0), max_steps=3)

    assert ft.jit(f)(1.0) == f(1.0) == 3.0

    def later(a):  # the state is a number at first
        terms = iter([1.0, a, a, a, a])
        return ft.while_loop(lambda x: x < 100, lambda x: x + next(terms), 0.0, max_steps=3)

    assert ft.jit(later)(1.0) == later(1.0) == 3.0


@pytest.mark.parametrize("moved", [
    lambda c, e: np.tanh(c) * e + np.sqrt(c), lambda c, e: np.cos(c) * e + 2 * np.cos(3 * c),
    lambda c, e: np.cos(c) * np.exp(e), lambda c, e: np.cos(e) - np.cos(c),
], ids=["tanh", "cosines", "product", "difference"])
def test_cotangents_of_an_array_and_of_its_entries_are_all_added(moved):
    def f(v):
        return ft.scan(lambda c, i: (moved(c, c[i]), c[i]), v, np.arange(3))[0].sum()

    v = np.linspace(1.0, 2.0, 100)
    expected = ft.grad(f)(v)
    # terms that nearly cancel are added in another order
    np.testing.assert_allclose(ft.jit(ft.grad(f))(v), expected, rtol=1e-13, atol=1e-13)
    assert "put_add" not in str(ft.jit(ft.grad(f)).lower(v))


def test_the_jet_of_a_reversed_scan_is_in_order():
    def f(x):
        return ft.scan(lambda c, k: (c * x, c * k), x, np.arange(1.0, 4.0), reverse=True)[1]

    def slopes(f):
        return ft.jet(f, (2.0,), ([1.0, 0.0],))[1]

    for got, expected in zip(slopes(ft.jit(f)), slopes(f), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-13)


def test_bounds_may_be_traced():
    def f(n, x):
        return ft.fori_loop(0, n, lambda i, y: y * x + i, 1.0)
    for n in (0, 1, 7):
        assert ft.jit(f)(n, 1.5) == f(n, 1.5)


def test_steps_of_any_number_down_to_none():
    def f(xs):
        return ft.scan(lambda c, x: (c + x, c * x), 1.0, xs)
    for n in (0, 1, 2):
        xs = np.arange(1.0, n + 1)
        carry, ys = ft.jit(f)(xs)
        want, wanted = f(xs)
        assert carry == want
        np.testing.assert_array_equal(ys, wanted)
        np.testing.assert_array_equal(ft.jit(ft.grad(lambda x: f(x)[0]))(xs), np.ones(n))


def test_types_stay_as_without_jit():
    x = np.arange(3, dtype=np.float32)

    def f(x):
        return ft.fori_loop(0, 3, lambda i, y: y * i + x[1], 0.0)
    assert ft.jit(f)(x).dtype == f(x).dtype == np.float32

    def g(x):
        return ft.scan(lambda c, v: (c + 1, v * 0.5), 0, x)
    (n, ys), (m, zs) = ft.jit(g)(x), g(x)
    assert n == m == 3
    assert ys.dtype == zs.dtype == np.float32
    assert ft.jit(ft.grad(lambda x: np.sum(f(x))))(x).dtype == np.float32


def test_large_states_change_places():
    x = np.linspace(0, 1, 1000)
    for n in (1, 2, 3, 4):
        def f(x, n=n):
            return ft.fori_loop(0, n, lambda i, s: (s[1] + i, s[0] * 2), (x, x * x))
        for a, b in zip(f(x), ft.jit(f)(x), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-15)


def test_a_state_that_is_swapped_kept_or_constant():
    def f(x):
        return ft.fori_loop(0, 3, lambda i, s: (s[1], s[0], s[2], 7.0), (x, -x, x * 2, x))
    for a, b in zip(f(2.0), ft.jit(f)(2.0), strict=True):
        assert a == b


# ---- structure


def rows(program):
    return [e.prim for e in program.eqns if isinstance(e.prim, Loop | Branch)]


def test_a_loop_is_one_equation_and_one_step():
    lowered = ft.jit(ft.grad(lambda x: ft.scan(lambda c, v: (c * v, None), 1.0, x)[0])).lower(X)
    forward, backward = rows(lowered.optimised)
    assert (forward.length, forward.reverse, backward.reverse) == (3, False, True)
    assert not [s for s in lowered.schedule.steps if type(s).__name__ == "HostStep"]
    assert "[3 steps]" in repr(lowered.program)
    assert "body { lambda" in repr(lowered.program)


def test_what_nobody_reads_is_not_carried():
    def f(x):
        (a, _), _ys = ft.scan(lambda s, v: ((s[0] + v, s[1] * v), s[1]), (0.0, 1.0), x)
        return a

    (loop,) = rows(ft.jit(f).lower(X).optimised)
    assert (loop.carries, loop.outputs) == (1, 1)


def test_what_only_moves_is_not_stored():
    def f(w):
        return np.sum(ft.scan(lambda c, v: (np.exp(w @ c.T) + v, None), w, X)[0])

    forward, _ = rows(ft.jit(ft.grad(f)).lower(W).optimised)
    assert forward.outputs == 3  # the state; of each step the state before it, and the exponential
    np.testing.assert_allclose(ft.jit(ft.grad(f))(W), ft.grad(f)(W), **EXACT)


def test_only_one_branch_runs():
    def f(x):
        return ft.cond(x > 0, np.log, lambda x: 1 / np.sqrt(-x), x)
    (branch,) = rows(ft.jit(f).lower(1.0).optimised)
    assert len(branch.branches) == 2
    with np.errstate(all="raise"):
        assert ft.jit(f)(-4.0) == 0.5


def test_python_control_flow_in_a_body_is_unrolled():
    def f(x):
        return ft.fori_loop(0, 4, lambda i, y: y * x if i % 2 else y + 1, 1.0)
    assert ft.jit(f)(3.0) == f(3.0)
    assert not rows(ft.jit(f).lower(3.0).optimised)


def test_rules_of_functions_in_a_body_are_kept():
    @ft.custom_jvp
    def halved(x):
        return x * 1.0

    halved.defjvp(lambda primals, tangents: (primals[0], tangents[0] / 2))

    def f(x):
        return ft.scan(lambda c, v: (c * halved(v), None), 1.0, x)[0]
    want = ft.grad(f)(X)
    np.testing.assert_allclose(want, np.prod(X) / X / 2)
    np.testing.assert_allclose(ft.jit(ft.grad(f))(X), want)
    np.testing.assert_allclose(ft.grad(ft.jit(f))(X), want)


def test_host_steps_in_a_body():
    def f(x):
        return ft.fori_loop(0, 3, lambda i, y: np.sort(y * np.array([-1.0, 2.0, -0.5])), x)
    np.testing.assert_allclose(ft.jit(f)(X), f(X), rtol=1e-15)
    want = ft.jacrev(f)(X)
    np.testing.assert_allclose(ft.jit(ft.jacrev(f))(X), want, rtol=1e-15)


def test_a_loop_of_host_steps_goes_back_as_many_steps_as_it_went():
    def f(x):
        return ft.while_loop(
            lambda y: y[0] < 50, lambda y: np.sort(y * y), x, max_steps=6
        ).sum()

    value, g = ft.jit(ft.value_and_grad(f))(np.array([3.0, 4.0]))
    assert value == 81 + 256
    np.testing.assert_array_equal(g, [4 * 27, 4 * 64])


def test_a_singular_matrix_inside_a_loop_raises():
    def f(x):
        return ft.fori_loop(0, 3, lambda i, y: np.linalg.solve(x * 1.0, y), np.ones(2))
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        ft.jit(f)(np.zeros((2, 2)))


# ---- signals


class Raised(Exception):
    pass


@pytest.mark.parametrize("x", [np.ones(3), np.ones(6)[::2]], ids=["entry", "general"])
def test_what_a_signal_handler_raises_ends_a_native_loop(x, monkeypatch):
    def endless(x):
        return ft.while_loop(lambda y: y[0] < 2, lambda y: y * 0.5, x)

    def handler(*_):
        raise Raised

    go = ft.jit(endless)
    assert go(x + 1)[0] == 2
    wanted, done = threading.Event(), threading.Event()
    # again where Python drops what is raised, as in a callback of its collector
    monkeypatch.setattr(sys, "unraisablehook", lambda *_: wanted.set())

    def alarm():
        while not (wanted.wait() and done.is_set()):
            wanted.clear()
            signal.raise_signal(signal.SIGUSR1)

    before, interval = signal.signal(signal.SIGUSR1, handler), sys.getswitchinterval()
    thread = threading.Thread(target=alarm)
    thread.start()
    try:
        sys.setswitchinterval(1e3)  # the other thread runs when native code lets it, not before
        wanted.set()
        with pytest.raises(Raised):
            go(x)
    finally:
        done.set()
        wanted.set()
        sys.setswitchinterval(interval)
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def test_only_long_loops_ask_for_signals():
    def f(n):
        return ft.jit(lambda x: ft.fori_loop(0, n, lambda i, y: y * 0.5 + x, 0.0)).lower(1.0).llvm

    assert "PyErr_CheckSignals" not in f(1000)
    assert "PyErr_CheckSignals" in f(10**7)


# ---- bad input

BAD = {
    "structure": (lambda x: ft.cond(x > 0, lambda: x, lambda: (x, x)), ArgumentError, "structure"),
    "shapes": (lambda x: ft.cond(x > 0, lambda: x, lambda: np.ones(2) * x), ShapeError,
               r"float64\[2\]"),
    "carry": (lambda x: ft.fori_loop(0, 2, lambda i, y: np.append(y, x), np.ones(2)), ShapeError,
              "carry must keep"),
    "predicate": (lambda x: ft.while_loop(lambda y: y < 1, lambda y: y, x * np.ones(2)),
                  ShapeError, "while_loop: the predicate has"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_says_what_is_wrong(name):
    f, error, text = BAD[name]
    with pytest.raises(error, match=text):
        ft.jit(f)(1.0)


# ---- checkpoints


def growing(checkpoint):
    def f(x):
        def step(c, v):
            return (np.tanh(c * v) + 0.1 * c, c * v)
        carry, ys = ft.scan(step, x[:2], x, checkpoint=checkpoint)
        back, _ = ft.scan(step, carry, x, reverse=True, checkpoint=checkpoint)
        return np.sum(back) + np.sum(ys**2)

    return f


@unoptimised
@pytest.mark.parametrize(("n", "checkpoint"), [
    (1, "sqrt"), (1, 4), (7, "sqrt"), (7, 6), (16, 4), (16, 20), (37, "sqrt"), (37, 6),
])
def test_checkpoints_change_no_derivative(n, checkpoint):
    x = np.linspace(0.5, 1.5, n + 1)
    f, plain = growing(checkpoint), growing(None)
    want = ft.grad(plain)(x)
    for made in (ft.grad(f), ft.jit(ft.grad(f)), ft.grad(ft.jit(f))):
        np.testing.assert_allclose(made(x), want, **EXACT)

    def push(f):
        return lambda x: ft.jvp(f, (x,), (x,))[1]
    np.testing.assert_allclose(ft.jit(push(f))(x), push(plain)(x), **EXACT)


@unoptimised
@pytest.mark.parametrize("checkpoint", ["sqrt", 4, 6, 20])
@pytest.mark.parametrize("n", [1, 7])
def test_checkpoints_change_no_second_derivative(n, checkpoint):
    x = np.linspace(0.5, 1.5, n + 1)
    want = ft.hessian(growing(None))(x)
    np.testing.assert_allclose(ft.jit(ft.hessian(growing(checkpoint)))(x), want, **EXACT)


def stored(program):
    """The entries of the largest array that a loop collects, at any depth."""
    own = [e for e in program.eqns if isinstance(e.prim, Loop)]
    sizes = [v.aval.size for e in own for v in e.outputs[e.prim.carries :]]
    inner = [stored(p) for r in rows(program) for p in r.programs.values()]
    return max([*sizes, *inner], default=0)


def test_checkpoints_store_the_square_root():
    def f(checkpoint):
        def last(x):
            return np.sum(ft.scan(step, x, np.ones(400), checkpoint=checkpoint)[0])

        return ft.jit(ft.grad(last)).lower(np.ones(5)).optimised

    def step(c, v):
        return np.exp(np.sin(c) * v), None

    assert stored(f(None)) == 5 * 400
    assert stored(f("sqrt")) == 5 * 20


def test_a_checkpoint_under_jit_is_computed_again_after_the_cotangent():
    def f(x):
        return np.sum(ft.checkpoint(lambda x: np.exp(np.sin(x) * x))(x) ** 2)
    lowered = ft.jit(ft.grad(f)).lower(X)
    forward, backward = rows(lowered.optimised)
    assert forward.again
    names = [e.prim.name for e in backward.body.eqns]
    assert names.count("exp") == names.count("sin") == 1
    want = ft.grad(f)(X)
    for made in (ft.jit(ft.grad(f)), ft.grad(ft.jit(f))):
        np.testing.assert_allclose(made(X), want, **EXACT)
    np.testing.assert_allclose(ft.jit(ft.hessian(f))(X), ft.hessian(f)(X), **EXACT)


def test_a_budget_of_carries_is_kept_or_the_fewest_that_equal_parts_allow():
    for n in (3, 10, 100, 2000, 12345):
        fewest = min([d * math.ceil(n ** (1 / d)) for d in range(1, n.bit_length() + 1)])
        for budget in (4, 7, 30, 300):
            sizes = [n, *levels(n, budget), 1]
            kept = [-(-a // b) for a, b in itertools.pairwise(sizes)]
            assert sum(kept) <= max(budget, fewest)


@pytest.mark.parametrize("checkpoint", [8, 40, ft.Revolve(8)], ids=str)
@pytest.mark.parametrize("n", [500, 2000])  # the second leaves a rest of 976 after parts of 1,024
def test_compiled_loops_store_no_more_carries_than_their_parts_have(n, checkpoint):
    def last(x):
        return np.sum(ft.scan(lambda c, _: (np.sin(c), None), x, None, n, checkpoint=checkpoint)[0])

    x = np.ones(5)
    budget = checkpoint if isinstance(checkpoint, int) else checkpoint.snapshots
    fewest = 3 * math.ceil(math.log(n, 3)) + 3
    program = ft.jit(ft.grad(last)).lower(x).optimised
    assert stored(program) <= 5 * max(budget, fewest)
    # beside them: what a step computes, cotangents and results
    assert ft.grad(last).memory(x) <= x.nbytes * (2 * max(budget, fewest) + 10)
    with pytest.raises(ArgumentError, match="checkpoint must be"):
        ft.scan(lambda c, x: (c, None), 0.0, X, checkpoint="all")


# ---- found by drawing (tests/fuzz)


def test_a_python_scalar_in_the_state_promotes_in_a_batch_as_it_does_alone():
    def f(x):
        def step(s):
            return s[0] * 0.9 + s[1], s[1] + 1
        return ft.while_loop(lambda s: s[1] < np.sum(x > 0), step, (x, 0), max_steps=5)[0]

    batch = np.array([[1, 2, 3], [1, -2, -3], [-1, -2, -3]], np.float32)
    want = np.stack([f(x) for x in batch])
    for made in (ft.vmap(ft.jit(f)), ft.jit(ft.vmap(f))):
        got = made(batch)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want, rtol=1e-6)  # float32
    slopes = ft.vmap(ft.jit(ft.grad(lambda x: np.sum(f(x)))))(batch)
    want = np.float32(0.9) ** np.array([[3], [1], [0]]) * np.ones((3, 3))
    np.testing.assert_allclose(slopes, want, rtol=1e-6)  # float32


def test_a_row_whose_state_changes_its_type_is_refused():
    body = ft.make_program(lambda x: x * 2.0)(np.float32(1))
    wider = ft.make_program(lambda x: x * np.float64(2))(np.float32(1))
    Loop("loop", body, 0, 1, 3, lambda row: None)
    with pytest.raises(AssertionError, match=r"loop: float32\[\] becomes float64\[\]"):
        Loop("loop", wider, 0, 1, 3, lambda row: None)
    with pytest.raises(AssertionError, match="branch"):
        Branch("branch", [body, wider], lambda row: None)


def test_what_an_example_does_not_reach_may_be_out_of_bounds_for_it():
    def f(x):
        n = np.sum(x > 5)
        read = ft.cond(n < 3, lambda: x[n], lambda: x[0] * 2)
        return read + ft.fori_loop(0, 3, lambda i, y: y * x[i + n], 1.0)

    for made in (ft.jit(ft.grad(f)), ft.grad(ft.jit(f)), ft.jit(ft.hessian(f))):
        made(X)
    np.testing.assert_allclose(ft.jit(ft.grad(f))(X), ft.grad(f)(X), **EXACT)
    with pytest.raises(IndexError, match="out of bounds"):
        ft.jit(f)(X + 9)


def test_a_state_without_entries():
    def f(x):
        return ft.scan(lambda c, _: (ft.checkpoint(lambda c: c * 2)(c), None), x, None, length=2)[0]

    for shape in ((0,), (3, 0, 2)):
        x = np.zeros(shape)
        assert ft.jit(f)(x).shape == shape
        assert ft.jit(ft.grad(lambda x: np.sum(f(x))))(x).shape == shape


def test_without_steps_the_state_is_an_array_for_the_body():
    carry, ys = ft.scan(lambda c, _: (c.at[0].set(1.0), c.at[0].get()), X, None, length=0)
    np.testing.assert_array_equal(carry, X)
    assert ys.shape == (0,)


def test_a_plain_array_is_indexed_by_take_and_the_error_says_so():
    table = np.array([2.0, 3.0, 5.0])

    def f(x):
        return ft.fori_loop(0, 3, lambda i, y: y * ft.numpy.take(table, i, axis=0), x)
    assert ft.jit(f)(1.5) == f(1.5) == 45.0
    with pytest.raises(ft.errors.ConcretizationError, match=r"ft\.array\(table\)\[i\]"):
        ft.vmap(lambda i: table[i])(np.array([0, 2]))


def test_a_python_scalar_in_the_state_is_one_afterwards():
    x = np.ones(3, np.float32)

    def counts(x):
        return ft.fori_loop(0, 3, lambda i, s: (s[0], s[1] + 1), (x, 0))[1] * x

    def chooses(x):
        return ft.cond(x[0] > 0, lambda: 2.0, lambda: 3.0) * x

    def in_parts(x):
        def step(s, v):
            return (s[0] * (1 + s[1]), s[1] + 1), None
        return ft.scan(step, (x, 0), np.arange(3.0))[0][0] * counts(x)

    for f in (counts, chooses, in_parts):
        def total(x, f=f):
            return np.sum(f(x))
        np.testing.assert_array_equal(ft.jit(f)(x), f(x))
        assert ft.jit(f)(x).dtype == f(x).dtype == np.float32
        for way in (ft.jit(ft.grad(total)), ft.grad(ft.jit(total))):
            np.testing.assert_array_equal(way(x), ft.grad(total)(x))
            assert way(x).dtype == np.float32
    for f in (counts, in_parts):
        got, want = ft.jit(ft.vmap(f))(x[None]), ft.vmap(f)(x[None])
        assert got.dtype == want.dtype == np.float32
        np.testing.assert_array_equal(got, want)


def test_python_scalars_pass_a_checkpoint_as_they_are():
    def f(x):
        k, y = ft.checkpoint(lambda k, y: (k + 1, y * 2))(0, x)
        return np.sum(y * k)

    x = np.ones(3, np.float32)
    assert ft.jit(f)(x).dtype == ft.jit(ft.grad(f))(x).dtype == np.float32
    np.testing.assert_array_equal(ft.jit(ft.grad(f))(x), ft.grad(f)(x))


def test_a_scan_with_checkpoints_may_count():
    def f(x):
        step = lambda s, v: ((s[0] + 1, s[1] * v + s[0]), None)  # noqa: E731
        return ft.scan(step, (0, x[0]), x, checkpoint=3)[0][1]

    x = np.linspace(0.5, 1.5, 11)
    np.testing.assert_allclose(ft.jit(ft.grad(f))(x), ft.grad(f)(x), **EXACT)
