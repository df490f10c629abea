"""Passes of a loop that differ by known data become one loop with a branch, bit for bit."""

import random

import numpy as onp
import pytest

import functrans as ft
import functrans.numpy as np
from functrans._compile.ir.structured import Branch, Loop
from functrans._compile.rolling import passes, switches
from functrans._compile.rolling.pieces import number
from tests.compile.test_rolling import STATEMENTS, N, assert_same, both

P = onp.array([0.9, 0.5, 0.3])


def observed(steps, seed=0):
    """Numbers, and which of them are there."""
    r = onp.random.default_rng(seed)
    return r.normal(size=steps).cumsum(), r.random(steps) >= 0.2


def kalman(steps):
    """The likelihood of a filter that skips the update where nothing is observed."""
    y, seen = observed(steps)

    def f(p):
        m, v, total, missed = 0.0, 1.0, 0.0, 0.0
        for t in range(steps):
            m, v = p[0] * m, p[0] * p[0] * v + p[1]
            if seen[t]:
                s, r = v + p[2], y[t] - m
                total = total - 0.5 * (np.log(s) + r * r / s)
                m, v = m + v / s * r, (1 - v / s) * v
            else:
                missed = missed + m * m
        return total - 0.1 * missed

    return f


def state_space(steps):
    """The same of vectors, with a history and data that are traced."""
    _, seen = observed(steps)
    h = onp.array([[1.0, 0.5]])

    def f(p, y):
        m, c, total, rows = np.zeros(2), np.eye(2), 0.0, []
        for t in range(steps):
            a = np.array([[1.0, p[0]], [0.0, p[1]]])
            m, c = a @ m, a @ c @ a.T + p[2] * np.eye(2)
            if seen[t]:
                s = (h @ c @ h.T)[0, 0] + 0.5
                r = y[t] - (h @ m)[0]
                total = total + r * r / s + np.log(s)
                k = (c @ h.T)[:, 0] / s
                m, c = m + k * r, c - np.outer(k, h @ c)
            rows.append(m)
        return total + np.sum(np.stack(rows) ** 2)

    return f


def branches(program):
    """How many branches there are, in loops too."""
    loops = [e.prim for e in program.eqns if isinstance(e.prim, Loop)]
    own = sum([isinstance(e.prim, Branch) for e in program.eqns])
    return own + sum([branches(loop.body) for loop in loops])


@pytest.mark.parametrize(("made", "order"), [
    (kalman, "value"), (kalman, "gradient"), (kalman, "product with the Hessian"),
    (state_space, "value"), (state_space, "gradient"),
])
def test_a_filter_with_gaps_is_a_loop_that_does_not_grow(made, order):
    sizes = []
    for steps in (30, 40):
        f, args = made(steps), (P, observed(steps, 1)[0])[: 1 + (made is state_space)]
        derived = {"value": f, "gradient": ft.grad(f),
                   "product with the Hessian": lambda p, *rest, f=f: ft.hvp(
                       lambda p: f(p, *rest), p, p)[1]}[order]
        program, rolled = both(derived, *args, least=100)
        assert_same(program, rolled, args)
        assert branches(rolled) <= 4
        sizes.append(len(rolled.eqns))
    assert sizes[1] <= sizes[0] + 40 < len(program.eqns) / 4


@pytest.mark.usefixtures("unoptimised")
def test_a_filter_with_gaps_is_compiled():
    f = kalman(40)
    compiled = ft.jit(lambda p: ft.hvp(f, p, p))
    for ours, theirs in zip(compiled(P), ft.hvp(f, P, P), strict=True):
        onp.testing.assert_allclose(ours, theirs, rtol=1e-11)
    lowered = compiled.lower(P)
    assert branches(lowered.optimised)
    assert len(lowered.optimised.eqns) < len(lowered.program.eqns) / 2


def drawn(choose):
    """A loop some of whose statements are run in some passes alone."""
    steps = choose.choice([25, 40])
    lines, names = ["s, t, u, y, rows = 0.5, x[:3], x[1:4], np.zeros(12), []",
                    "z = np.array(-w[:3])", f"for k in range({steps}):", " i = k % 9"], {"np": np}
    for b in range(choose.randint(1, 3)):
        own = choose.sample(STATEMENTS, choose.randint(1, 2))
        share = choose.choice([0.0, 0.2, 0.5, 0.8])
        names[f"seen{b}"] = [choose.random() >= share for _ in range(steps)]
        lines += [f" if seen{b}[k]:", *[f"  {line}" for line in own]]
        if choose.random() < 0.3:
            lines += [" else:", f"  {choose.choice(STATEMENTS)}"]
    lines.append("return s + np.sum(t * u) + np.sum(y * y) + sum([np.sum(r) for r in rows])"
                 " + np.sum(z * w[3:6])")
    exec("\n".join(["def f(x, w):", *[f" {line}" for line in lines]]), names)  # a draw's program
    return names["f"]


# Draws that become branches, of values and of gradients; and some others.
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 7, 21, 49, 56, 60, 63, 88, 108])
def test_drawn_passes_compute_the_same_bits(seed):
    choose = random.Random(seed)
    f = drawn(choose)
    r = onp.random.default_rng(seed)  # of few digits, so that there are zeros of both signs
    args = [onp.round(r.normal(size=N), 1), onp.round(r.normal(size=(N, N)), 1)]
    program, rolled = both(choose.choice([f, ft.grad(f, (0, 1))]), *args, least=40)
    with onp.errstate(all="ignore"):
        assert_same(program, rolled, args)


def test_passes_that_do_not_become_alike_stay_as_they_are():
    seen = observed(40)[1]

    def f(x):  # what two passes before has left, where the last one has not written
        a, b = x[0], x[1]
        for t in range(40):
            if seen[t]:
                a, b = b * 0.5 + x[2], a
        return a + b

    x = onp.array([1.0, 2.0, 3.0])
    program, rolled = both(f, x, least=20)
    assert_same(program, rolled, [x])


def test_the_kinds_of_passes_and_where_they_begin():
    rest = {0: [7, 8], 1: []}
    kinds = [0, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0, 1, 0]
    numbers = onp.array([9, *[n for k in kinds for n in [1, 2, 3, *rest[k]]], 9], onp.uint64)
    best = passes.find(numbers, 10)[0]
    assert (best.start, best.stop, best.head, best.tail) == (1, len(numbers) - 1, 3, 0)
    assert [best.sizes[k] for k in best.kinds] == [5 - 2 * k for k in kinds]


def test_a_region_that_is_refused_leaves_the_others():
    program = ft.make_program(kalman(20))(P)
    found = passes.find(number(program), 10)
    whole = passes.Passes((0, 1, 2), (0, 1), (1, 1), 0, 0)
    assert switches.with_switches(program, []) is None
    assert switches.with_switches(program, [*found, whole]) is not None
