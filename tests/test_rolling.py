"""Loops that Python writes out and the compiler rolls up: bit for bit what was written out."""

import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import functrans as ft
import functrans.numpy as np
from functrans._compile.ir.passes import optimise
from functrans._compile.ir.program import interpret
from functrans._compile.rolling import pieces
from functrans._compile.rolling.rolled import rolled

N = 12


def both(f, *args, least=12):
    """The program of ``f``, optimised, and the same rolled up."""
    program = optimise(ft.jit(f).lower(*args).program)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "LEAST", least)
        return program, rolled(program, lambda body: True)


def loops(program):
    """The lengths of loops, those in their bodies in lists behind them."""
    out = []
    for eqn in program.eqns:
        if eqn.prim.name == "rolled":
            out += [eqn.prim.length, *[x for x in [loops(eqn.prim.body)] if x]]
    return out


def assert_same(program, other, args):
    for x, y in zip(interpret(program, args), interpret(other, args), strict=True):
        assert x.dtype == y.dtype
        assert x.shape == y.shape
        assert x.tobytes() == y.tobytes()


# ---- drawn programs

# Statements of a loop's body: the array x, its length 12, the step i, and a state s (a number), t
# (three numbers), u (the t before), y (an array that is written into), a list.
STATEMENTS = (
    "s = s * 0.5 + x[i]",
    "s = s - 0.1 * i * x[-1]",
    "s = np.where(s > 0.0, s, 0.3 * i - s)",
    "t = t * x[i:i + 3] - s",
    "t, u = t + 0.25 * u, t",
    "t = t + x[3:6]",
    "s = s + (t * w[:3, i])[1]",
    "y[i] = s * x[11 - i]",
    "y[i + 1] += y[i] * t[0]",
    "y[2:5] = t",
    "s = s + y[i + 2] * y[3]",
    "rows.append(s * t)",
    "t = t * w[i, 0] + w[i, 1:4]",
    "s = s * np.sum(u * t)",
    "t = np.stack([s, t[0], x[i + 2]])",
    "for j in range(3): s = s + t[j] * w[i, j]",
)


def drawn(statements, steps):
    text = "def f(x, w):\n s, t, u, y, rows = 0.5, x[:3], x[1:4], np.zeros(12), []\n"
    text += f" for i in range({steps}):\n"
    text += "".join(f"  {line}\n" for line in statements)
    text += " return s + np.sum(t * u) + np.sum(y * y) + sum([np.sum(r) for r in rows])\n"
    names = {"np": np}
    exec(text, names)  # a program for each draw
    return names["f"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=5), st.integers(5, 9),
       st.sampled_from(["value", "gradient"]), st.integers(0, 10**6))
def test_a_rolled_program_computes_the_same_bits(statements, steps, mode, seed):
    f = drawn(statements, steps)
    r = onp.random.default_rng(seed)
    args = [onp.round(r.normal(size=N), 1), onp.round(r.normal(size=(N, N)), 1)]
    program, other = both(ft.grad(f, (0, 1)) if mode == "gradient" else f, *args)
    assert_same(program, other, args)
