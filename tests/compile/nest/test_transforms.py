"""Nests under reverse mode, forward mode, batches and Taylor mode; machine code against NumPy."""

import numpy as np
import pytest

import functrans as ft
from functrans._compile.nest import ir
from functrans._compile.nest.equation import Nest
from functrans._compile.nest.forms import Form, Index
from functrans._compile.nest.ir import For, Let, Place, Store, Unproved
from functrans._compile.run.native import alone
from functrans._core.primitive import ZeroPolicy
from functrans._transforms.control import nest_reverse
from functrans._transforms.control.nest_reverse import NestVJP
from functrans._transforms.control.nests import NestCall, staged_nest
from functrans.errors import NotDifferentiable
from tests.compile.nest.drawn import Drawn
from tests.compile.nest.examples import (
    buffer,
    cholesky,
    entry,
    gather,
    interpret_nest,
    newton,
    sweep,
    trisolv,
)


def lower(n, rng):
    return np.tril(rng.normal(size=(n, n))) + 3 * np.eye(n)


def cases():
    rng = np.random.default_rng(0)
    L = lower(4, rng)
    return {
        "trisolv": (trisolv(4, rules=NestCall), [L, rng.normal(size=4)]),
        "cholesky": (cholesky(4, rules=NestCall), [L @ L.T]),
        "sweep": (sweep(5, 3, rules=NestCall), [rng.normal(size=5), np.array(0.7)]),
    }


CASES = cases()


def loss(nest, rng):
    weights = [rng.normal(size=b.aval.shape) for b in nest.outs]
    return lambda *xs: sum((w * y).sum() for w, y in zip(weights, NestCall(nest)(*xs), strict=True))


def inner(xs, ys):
    return sum(np.vdot(x, y) for x, y in zip(xs, ys, strict=True))


def backward(pair: NestVJP, args, seeds, run):
    """The cotangents of operands, by a way to run nests; None where there are none."""
    row = pair.row
    flat = dict(zip(pair.forward.outs, run(pair.forward, args), strict=True))
    operands = dict(zip(row.operands, args, strict=True))
    given = [operands[b] for b in pair.given] + [flat[b] for b in pair.left]
    mine = [s for b, s in zip(row.outs, seeds, strict=True) if b in pair.bars]
    outs = iter(run(pair.backward, [*given, *mine]))
    return [next(outs) if h else None for h in pair.hands_out]


@pytest.mark.parametrize("name", CASES)
def test_all_modes_and_orders_of_a_nest_agree_with_differences_and_each_other(name):
    nest, args = CASES[name]
    rng = np.random.default_rng(1)
    f, every = loss(nest, rng), tuple(range(len(args)))
    ts = [rng.normal(size=x.shape) for x in args]
    moved = [[x + h * t for x, t in zip(args, ts, strict=True)] for h in (1e-6, -1e-6)]
    slope = (f(*moved[0]) - f(*moved[1])) / 2e-6
    assert inner(ft.grad(f, argnums=every)(*args), ts) == pytest.approx(slope, rel=1e-7)
    assert ft.jvp(f, tuple(args), tuple(ts))[1] == pytest.approx(slope, rel=1e-7)

    def along(*xs):
        return inner(ft.grad(f, argnums=every)(*xs), ts)

    curvature = (along(*moved[0]) - along(*moved[1])) / 2e-6
    over = ft.jvp(along, tuple(args), tuple(ts))[1]
    assert over == pytest.approx(curvature, rel=1e-6)
    assert inner(ft.grad(along, argnums=every)(*args), ts) == pytest.approx(over, rel=1e-12)
    batch = [np.stack([x, 1.25 * x]) for x in args]
    gradients = ft.vmap(ft.grad(f))(*batch)
    for k in range(2):
        one = ft.grad(f)(*[x[k] for x in batch])
        np.testing.assert_allclose(gradients[k], one, rtol=1e-13, atol=1e-13)
    partly = ft.vmap(f, in_axes=(0,) + (None,) * (len(args) - 1))(batch[0], *args[1:])
    assert partly[1] == pytest.approx(f(batch[0][1], *args[1:]), rel=1e-13)


def test_taylor_mode_writes_a_nest_out():
    nest, (u, c) = CASES["sweep"]
    f = loss(nest, np.random.default_rng(1))
    t = np.random.default_rng(2).normal(size=u.shape)
    second = ft.jet(lambda u: f(u, c), u, (t, np.zeros_like(t)))[1][1]
    assert second == pytest.approx(
        ft.jvp(lambda u: ft.jvp(lambda u: f(u, c), (u,), (t,))[1], (u,), (t,))[1], rel=1e-12
    )


def test_factorizations_save_nothing_and_a_sweep_only_what_its_backward_reads():
    saved = {}
    for name, (nest, args) in CASES.items():
        pair = NestVJP(nest, (True,) * len(args), ZeroPolicy.BARE)
        saved[name] = sum(values.aval.size for values, _ in pair.stacks.values())
    assert saved == {"trisolv": 0, "cholesky": 0, "sweep": 3 * 3 + 2}
    backward_of = NestVJP(CASES["cholesky"][0], (True,), ZeroPolicy.BARE).backward.text()
    # it works in the factor: quotients and roots are read, not computed again
    assert "divide(negative(multiply(dA[i,j], A[i,j])), A[j,j])" in backward_of
    assert "sqrt" not in backward_of


@pytest.mark.parametrize("seed", range(12))
def test_what_is_saved_by_analysis_gives_the_bits_that_saving_everything_does(seed):
    drawn = Drawn(seed, NestCall)
    nest, args = drawn.nest, drawn.args
    rng = np.random.default_rng(seed)
    seeds = [rng.normal(size=b.aval.shape) for b in nest.outs]
    mask = (True, True, False)
    some, every = (NestVJP(nest, mask, ZeroPolicy.BARE, everything=e) for e in (False, True))
    got, want = (backward(pair, args, seeds, interpret_nest)[:2] for pair in (some, every))
    assert [x is None or x.tobytes() for x in got] == [x is None or x.tobytes() for x in want]
    ts = [rng.normal(size=x.shape) for x in args[:2]]

    def f(x, y):
        return nest_value(nest, seeds, x, y, args[2])

    forward = ft.jvp(f, tuple(args[:2]), tuple(ts))[1]
    slope = sum(np.vdot(c, t) for c, t in zip(got, ts, strict=True) if c is not None)
    assert slope == pytest.approx(forward, rel=1e-9, abs=1e-9)


def nest_value(nest, seeds, *args):
    outs = NestCall(nest)(*args)
    return sum((w * y).sum() for w, y in zip(seeds, outs, strict=True))


@pytest.mark.parametrize(("seed", "dtype"), [(50, complex), (31, "float32"), (7, float)])
def test_machine_code_of_a_nest_and_of_its_backward_is_what_the_interpreter_says(seed, dtype):
    drawn = Drawn(seed, NestCall, dtype)
    pair = NestVJP(drawn.nest, (True, True, False), ZeroPolicy.BARE)
    seeds = [np.ones(b.aval.shape, b.aval.dtype) for b in drawn.nest.outs]
    want = backward(pair, drawn.args, seeds, interpret_nest)
    got = backward(pair, drawn.args, seeds, lambda nest, xs: alone(nest)(xs))
    eps = np.finfo(np.dtype(dtype)).eps
    for x, y in zip(got, want, strict=True):
        if x is not None and y is not None:
            np.testing.assert_allclose(x, y, rtol=1e3 * eps, atol=1e3 * eps * abs(y).max())


def test_a_nest_in_a_program_is_printed_checked_and_pruned():
    nest, args = CASES["trisolv"]
    f = ft.jit(lambda L, b: NestCall(nest)(L, b)[0] * 2)
    np.testing.assert_allclose(f(*args), 2 * np.linalg.solve(*args), rtol=1e-13)
    text = str(ft.make_program(lambda L, b: NestCall(nest)(L, b)[0])(*args))
    assert "t[] += multiply(L[i,k], x[k])  for k<i" in text


def test_a_loop_by_a_test_goes_back_as_often_as_it_was_passed():
    nest = newton(3, NestCall)
    A = np.array([2.0, 9.0, 100.0])

    def f(A):
        return NestCall(nest)(A)[0].sum()

    slope = 0.5 / np.sqrt(A)
    for g in (ft.grad(f), ft.jit(ft.grad(f)), ft.grad(ft.jit(f))):
        np.testing.assert_allclose(g(A), slope, rtol=1e-12)
    batch = np.stack([A, 50 * A])  # which take other numbers of steps
    np.testing.assert_allclose(ft.vmap(ft.grad(f))(batch), 0.5 / np.sqrt(batch), rtol=1e-12)
    second = ft.grad(lambda A: ft.grad(f)(A).sum())(A)
    np.testing.assert_allclose(second, -0.25 * A**-1.5, rtol=1e-11)
    np.testing.assert_allclose(ft.jvp(ft.grad(f), (A,), (np.ones(3),))[1], second, rtol=1e-12)


def test_what_is_pushed_on_an_open_stack_is_set_since_its_memory_is_not_cleared():
    first = NestVJP(newton(3, NestCall), (True,), ZeroPolicy.BARE).backward
    second = NestVJP(first, (True,) * len(first.operands), ZeroPolicy.BARE).backward
    assert second.open_stacks
    pushed = [s for s in second.entries if s.stack is not None and not s.stack.down]
    assert pushed
    assert all(not w.add for s in pushed for w in s.stores if w.buffer in second.open_stacks)


def test_places_from_data_go_back_and_are_checked_by_machine_code():
    nest, at = gather(3, 5, NestCall), np.array([2, 0, 2, 2, 1])
    rng = np.random.default_rng(3)
    x, w, v = rng.normal(size=3), rng.normal(size=5), rng.normal(size=3)

    def f(x):
        moved, y = NestCall(nest)(x, at)
        return v @ moved + w @ y

    def plain(x):
        y, x = 0, [x[0], x[1], x[2]]
        for i, k in enumerate(at):
            y = y + w[i] * x[k] ** 2
            x[k] = np.sin(x[k])
        return y + sum(a * b for a, b in zip(v, x, strict=True))

    np.testing.assert_allclose(ft.grad(f)(x), ft.grad(plain)(x), rtol=1e-12)
    hessian = ft.hessian(plain)(x)
    np.testing.assert_allclose(ft.hessian(f)(x), hessian, rtol=1e-11, atol=1e-12)
    with pytest.raises(IndexError):
        NestCall(nest)(x, np.array([0, 1, 3, 0, 0]))


def test_a_loop_that_saves_more_than_there_is_room_for_says_so(monkeypatch):
    monkeypatch.setattr(ir, "ROOM", 16)
    monkeypatch.setattr(nest_reverse, "ROOM", 16)
    f = ft.grad(lambda A: NestCall(newton(2, NestCall))(A)[0].sum())
    np.testing.assert_allclose(f(np.full(2, 4.0)), 0.25)
    with pytest.raises(NotDifferentiable, match="config\\(loops=False\\)"):
        f(np.full(2, 1e6))


def test_a_nest_that_cannot_go_back_is_recorded_entry_by_entry():
    """A place read from an array that is written behind it in the same pass."""
    x, at, y = buffer("x", 3), buffer("at", 3, dtype=int), buffer("y", 3)
    i, d = Index("i"), Index("d")
    body = For(
        i,
        Form(0),
        Form(3),
        (
            Let(d, Place.of(at, i), Form(0), Form(3)),
            entry(Store.of(y, i), lambda a: a * a, Place.of(x, d)),
            entry(Store.of(at, i), lambda k: k * 0, Place.of(at, i)),
        ),
    )
    nest = Nest("drops", (x, at), (y,), (body,), NestCall)
    args = np.array([1.0, 2.0, 3.0]), np.array([2, 0, 2])
    with pytest.raises(Unproved, match="written beside it"):
        NestVJP(nest, (True, False), ZeroPolicy.BARE)
    with pytest.raises(Unproved):
        ft.grad(lambda x: staged_nest(nest, (x, args[1]))[0].sum())(args[0])
    got = ft.grad(lambda x: NestCall(nest)(x, args[1])[0].sum())(args[0])
    assert got.tolist() == [2.0, 0.0, 12.0]
