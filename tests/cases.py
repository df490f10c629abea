"""Questions that every differentiable NumPy function must answer, asked of a list of cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

import functrans as ft
from tests.compiling import without_optimising


class Case(NamedTuple):
    """A function of arrays and the shapes of its arguments."""

    f: Callable
    shapes: tuple

    def draw(self, dtype=np.float64, lead=(), seed=0):
        """Read-only arguments, with axes ``lead`` in front, whose entries keep clear of kinks."""
        rng = np.random.default_rng(seed)
        drawn = [rng.permutation(int(np.prod(lead + s))).reshape(lead + s) for s in self.shapes]
        xs = [((x * 0.37 + 0.61) / 5).astype(dtype) for x in drawn]
        for x in xs:
            x.setflags(write=False)
        return xs

    def joined(self, *xs):
        """All outputs of ``f`` as one vector."""
        out = self.f(*xs)
        outs = out if isinstance(out, tuple | list) else [out]
        return np.concatenate([np.reshape(y, -1) for y in outs])


def inner(a, b):
    return sum(np.vdot(x, y) for x, y in zip(a, b, strict=True))


def check_value_is_numpys(case):
    xs = case.draw()
    want = case.joined(*xs)
    got, _ = ft.jvp(case.joined, tuple(xs), tuple(map(np.ones_like, xs)))
    back, _ = ft.vjp(case.joined, *xs)
    for y in (got, back):
        assert y.dtype == want.dtype
        np.testing.assert_allclose(y, want, rtol=1e-13, atol=1e-13)


def check_jvp_is_the_complex_step(case):
    xs, ts = case.draw(), case.draw(seed=1)
    h = 1e-30
    want = case.joined(*[x + 1j * h * t for x, t in zip(xs, ts, strict=True)]).imag / h
    _, got = ft.jvp(case.joined, tuple(xs), tuple(ts))
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def check_vjp_is_the_transposed_jvp(case):
    xs, ts = case.draw(), case.draw(seed=1)
    _, dy = ft.jvp(case.joined, tuple(xs), tuple(ts))
    _, pull = ft.vjp(case.joined, *xs)
    ct = np.cos(np.arange(dy.size)).reshape(dy.shape)
    cts = pull(ct)
    assert [c.shape for c in cts] == [x.shape for x in xs]
    np.testing.assert_allclose(inner(cts, ts), np.vdot(ct, dy), rtol=1e-12, atol=1e-12)


def check_vmap_is_the_loop(case):
    xs = case.draw(lead=(3,))
    want = np.stack([case.joined(*[x[i] for x in xs]) for i in range(3)])
    np.testing.assert_allclose(ft.vmap(case.joined)(*xs), want, rtol=1e-13, atol=1e-13)


def check_second_order_and_batched(case):
    xs = case.draw(lead=(2,))

    def weigh(*a):
        return np.sum(np.sin(case.joined(*a)) ** 2)

    per_entry = [ft.grad(weigh)(*[x[i] for x in xs]) for i in range(2)]
    batched = ft.vmap(ft.grad(weigh))(*xs)
    np.testing.assert_allclose(batched, np.stack(per_entry), rtol=1e-12, atol=1e-12)
    one = [x[0] for x in xs]

    def along(x):
        return np.sum(ft.grad(weigh)(x, *one[1:]) * np.cos(x))

    forward = ft.jvp(along, (one[0],), (np.ones_like(one[0]),))[1]
    reverse = ft.grad(along)(one[0])
    np.testing.assert_allclose(reverse.sum(), forward, rtol=1e-11, atol=1e-11)


def check_float32_stays(case):
    xs = case.draw(np.float32)
    y, pull = ft.vjp(case.joined, *xs)
    assert y.dtype == np.float32
    assert [c.dtype for c in pull(np.ones_like(y))] == [np.float32] * len(xs)
    assert ft.jvp(case.joined, tuple(xs), tuple(xs))[1].dtype == np.float32


def check_jvp_is_the_difference(case):
    """Of a function that is linear around its arguments: exact but for rounding."""
    xs, ts = case.draw(), case.draw(seed=1)
    h = 2.0**-12
    ends = [case.joined(*[x + s * h * t for x, t in zip(xs, ts, strict=True)]) for s in (1, -1)]
    _, got = ft.jvp(case.joined, tuple(xs), tuple(ts))
    np.testing.assert_allclose(got, (ends[0] - ends[1]) / (2 * h), rtol=1e-11, atol=1e-11)


def check_jit_is_eager(case):
    xs = case.draw()
    weigh = ft.grad(lambda *xs: np.sum(np.sin(case.joined(*xs))), tuple(range(len(xs))))
    with without_optimising():
        value, slopes = ft.jit(case.joined)(*xs), ft.jit(weigh)(*xs)
    np.testing.assert_allclose(value, case.joined(*xs), rtol=1e-13, atol=1e-13)
    for got, want in zip(slopes, weigh(*xs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


CHECKS = [
    check_value_is_numpys, check_jvp_is_the_complex_step, check_vjp_is_the_transposed_jvp,
    check_vmap_is_the_loop, check_second_order_and_batched, check_float32_stays,
]
CHECK_NAMES = [check.__name__.removeprefix("check_") for check in CHECKS]
# The same of functions that pick entries or take means of them, which NumPy may not do with complex
# numbers; and without vmap and jit of those whose results have as many entries as values say.
OF_KNOWN = [
    check_value_is_numpys, check_jvp_is_the_difference, check_vjp_is_the_transposed_jvp,
    check_float32_stays,
]
PICKING = [*OF_KNOWN, check_vmap_is_the_loop, check_second_order_and_batched, check_jit_is_eager]


def each(cases, checks):
    """A parametrisation over cases and the checks that each must pass."""
    return pytest.mark.parametrize(
        ("case", "check"),
        [(case, check) for case in cases.values() for check in checks],
        ids=[f"{n}-{c.__name__.removeprefix('check_')}" for n in cases for c in checks],
    )
