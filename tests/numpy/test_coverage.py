"""Calls from NumPy's documentation: what is differentiated is right, the rest is an error."""

import pathlib

import numpy as np
import pytest

import functrans as ft
from benchmarks import coverage

CALLS = coverage.calls()
PAGE = pathlib.Path(coverage.PAGE).read_text()
# What a call that is not covered may raise. TypeError is Python's own, of an operator.
HONEST = ("UnsupportedError", "ConcretizationError", "TypeError: unsupported operand")
QUICK = ("forward", "reverse", "second", "vmap")


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.text)
def test_a_call_is_differentiated_or_refused(call):
    answers = coverage.answers(coverage.Functrans(), call, coverage.point(call), QUICK)
    for mode, answer in answers.items():
        assert answer in (coverage.RIGHT, coverage.CONSTANT, coverage.RENAMED) or (
            answer.startswith(HONEST)
        ), (mode, answer)


def test_the_page_has_every_call():
    rows = {call.text: f"| `{call.text.replace('|', chr(92) + '|')}` |" for call in CALLS}
    assert not [text for text, row in rows.items() if row not in PAGE]


def test_a_call_is_listed_once():
    assert len({call.text for call in CALLS}) == len(CALLS)


class Wrong(coverage.Functrans):
    """Every derivative a little too large."""

    def jvp(self, f, xs, ts):
        y, t = super().jvp(f, xs, ts)
        return y, [1.0001 * v for v in t]

    def grad(self, f, count):
        g = super().grad(f, count)
        return lambda *xs: [(1 + 1e-4 * np.sum(x * x)) * v for x, v in zip(xs, g(*xs), strict=True)]

    def vmap(self, f):
        return ft.vmap(lambda *xs: [1.0001 * g for g in f(*xs)])

    def jit(self, f):
        return lambda *xs: [1.0001 * g for g in f(*xs)]


@pytest.mark.parametrize("text", ["np.sin(v)", "np.linalg.inv(k)", "np.exp(z)", "np.dot(v, u)"])
def test_a_wrong_derivative_is_seen_in_every_mode(text):
    call = coverage.Call("", text)
    found = coverage.answers(Wrong(), call, coverage.point(call))
    assert found == dict.fromkeys(coverage.MODES, "wrong")


def test_a_wrong_value_is_seen():
    class Shifted(coverage.Functrans):
        def jvp(self, f, xs, ts):
            y, t = super().jvp(f, xs, ts)
            return [v + 1e-4 for v in y], t

    call = coverage.Call("", "np.sin(v)")
    found = coverage.answers(Shifted(), call, coverage.point(call), ("forward",))
    assert found == {"forward": "wrong"}


def test_a_missing_call_says_why():
    call = coverage.Call("", "np.vectorize(float)(v)")
    reasons = coverage.answers(coverage.Functrans(), call, coverage.point(call))
    assert all("Error: " in reason for reason in reasons.values())
