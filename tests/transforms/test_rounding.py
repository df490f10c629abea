"""Compiled code rounds as NumPy does, to the last bit, on every processor it is made for."""

import re
from pathlib import Path

import numpy as np
import pytest

import functrans as ft
from functrans._compile.emit.module import ARRAY_DATA, LIST_ITEMS
from functrans._compile.run.machine import OPTIONS, SAFE, Machine, choose
from tests.fuzz.straight import targets

TARGETS = pytest.mark.parametrize("target", targets(), ids=str)


# ---- nothing is fused unless asked for


def test_products_that_cancel_are_not_fused_with_their_sum():
    x, a, b = (np.float32(v) for v in (1e20, 1e10, -1e10))
    f = lambda a, b, x: a * x + b * x  # noqa: E731
    assert ft.jit(f)(a, b, x) == f(a, b, x) == 0


def test_a_root_of_what_cancels_is_zero():
    f = lambda x, s: np.sqrt((x * (1 + s)) ** 2 - x**2)  # noqa: E731
    assert ft.jit(f)(0.1, 0.0) == f(0.1, 0.0) == 0


def fused(f, *args) -> bool:
    return " contract " in f.lower(*args).llvm


def test_contract_fuses_when_asked_for():
    f = lambda x, y: x * y + x  # noqa: E731
    assert not fused(ft.jit(f), 2.0, 3.0)
    assert not fused(ft.jit(f, precise=True), 2.0, 3.0)
    assert fused(ft.jit(f, contract=True), 2.0, 3.0)
    assert fused(ft.jit(contract=True)(f), 2.0, 3.0)
    assert ft.jit(f, contract=True)(2.0, 3.0) == 8.0


@pytest.mark.parametrize("what", ["jvp", "forward", "backward"])
def test_contract_holds_for_the_programs_of_derivatives(what, monkeypatch):
    texts = []
    translate = Machine.translate
    monkeypatch.setattr(Machine, "translate", lambda self, text, options: (
        texts.append(text), translate(self, text, options))[1])
    f = ft.jit(lambda x: (x * x + 3.0 * x) * x, contract=True)
    with ft.cache.off():
        if what == "jvp":
            ft.jvp(f, (2.0,), (1.0,))
        else:
            ft.vjp(f, 2.0)[1](1.0)
    assert texts and all(" contract " in text for text in texts)


def test_fused_code_and_other_code_are_kept_apart():
    f = lambda x, y: x * x - y * y  # noqa: E731
    x = y = 1.0 + 2.0**-30
    both = [ft.jit(f, contract=contract)(x, y) for contract in (False, True, False)]
    assert both[0] == both[2] == 0


# ---- the same to the last bit


OPS = ["({} + {})", "({} - {})", "({} * {})", "({} / {})", "np.sqrt(np.abs({}))", "({}) ** 2",
       "np.where({} > {}, {}, {})", "np.where({} <= {}, {}, {})", "-{}", "(2.0 * {})",
       "({} - 1.5)", "np.square({})", "(1 / {})", "abs({})", "({} != {}) * {}"]
# Of these the slope is finite: derivatives under jit take strong zero's form of others' slopes.
TAME = [op for op in OPS if "/" not in op and "sqrt" not in op]


def drawn(random, ops, n, lines):
    """A drawn function of n numbers, whose results are the last ones that it computes."""
    names, body = [f"x{i}" for i in range(n)], []
    body.append(f"{', '.join(names)}, = x")
    for k in range(lines):
        op = ops[random.integers(len(ops))]
        recent = [names[-1 - min(int(random.exponential(6)), len(names) - 1)] for _ in range(4)]
        body.append(f"t{k} = {op.format(*recent)}")
        names.append(f"t{k}")
    body.append(f"return np.stack([{', '.join(names[-7:])}])")
    scope = {"np": np}
    exec("def f(x):\n " + "\n ".join(body), scope)
    return scope["f"]


def same_bits(f, x):
    with np.errstate(all="ignore"):
        expected = np.asarray(f(x))
    y = np.asarray(ft.jit(f)(x))
    assert y.dtype == expected.dtype
    np.testing.assert_array_equal(y, expected)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(np.signbit(y[finite]), np.signbit(expected[finite]))


@TARGETS
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("shape", [(), (37,)], ids=["numbers", "arrays"])
def test_drawn_arithmetic_has_every_bit_of_numpys(target, dtype, shape):
    random = np.random.default_rng([len(shape), dtype == "f4"])
    functions = [drawn(random, OPS, 6, 25) for _ in range(6)]
    x = (random.standard_normal((6, *shape)) * 10.0 ** random.integers(-2, 3, (6, *shape)))
    with choose(Machine(target)):
        same_bits(lambda x: np.stack([f(x) for f in functions]), x.astype(dtype))


DERIVATIVES = {
    "jvp": lambda f: lambda x: ft.jvp(f, (x,), (x,))[1],
    "vjp": lambda f: lambda x: ft.vjp(f, x)[1](f(x))[0],
    "jvp of vjp": lambda f: lambda x: ft.jvp(lambda x: ft.vjp(f, x)[1](f(x))[0], (x,), (x,))[1],
}


@TARGETS
@pytest.mark.parametrize("how", DERIVATIVES)
def test_derivatives_of_drawn_sums_and_products_have_every_bit(target, how):
    random = np.random.default_rng(7)
    f = drawn(random, TAME, 5, 30)
    with choose(Machine(target)):
        same_bits(DERIVATIVES[how](f), random.standard_normal(5))


@TARGETS
@pytest.mark.parametrize("shape, axis", [((7,), 0), ((9, 5), 1), ((2, 3), None), ((40, 6), 0),
                                         ((300, 3), 0)])
def test_short_sums_and_sums_over_rows_are_in_numpys_order(target, shape, axis):
    x = np.random.default_rng(1).standard_normal(shape)
    with choose(Machine(target)):
        same_bits(lambda x: np.sum(x, axis=axis), x)
        same_bits(lambda x: np.prod(x, axis=axis), x)


# ---- what LLVM got wrong


@TARGETS
def test_a_product_with_a_hessian_of_squared_polynomials(target):
    def f(y):
        a, b, c, d, t, u, v, w = y
        parts = [
            a + b, c + d, t * a + b - v * c - w * d, v * a + w * b + t * c + u * d,
            a * (t * t - v * v) + b * (u * u - w * w) - 2 * c * t * v - 2 * d * u * w,
            c * (t * t - v * v) + d + 2 * a * t + b * u * w,
            a * t * (t * t - 3 * v * v) + b * u * (u * u - 3 * w * w)
            + c * v * (v * v - 3 * t * t) + d * (w * w),
            c * t * (t * t - 3 * v * v) + d * u * (u * u - 3 * w * w)
            - a * v * (v * v - 3 * t * t) - b * w * (w * w - 3 * u * u) - 9.48,
        ]
        return np.sum(np.stack(parts) ** 2)

    random = np.random.default_rng(0)
    y, v = random.standard_normal(8), random.standard_normal(8)
    product = lambda y, v: ft.hvp(f, y, v)[1]  # noqa: E731
    with choose(Machine(target)), ft.config(verify=False), ft.cache.off():
        for contract in (False, True):
            got = ft.jit(product, contract=contract)(y, v)
            np.testing.assert_allclose(got, product(y, v), rtol=1e-13)


@TARGETS
def test_the_module_that_a_vectoriser_gets_wrong_is_compiled_right(target):
    text = (Path(__file__).parents[1] / "data" / "slp_vectorizer.ll").read_text()
    # it reads lists and arrays of Python with the lock; those of free-threaded Python lie otherwise
    text = text.replace("ptr %list, i64 24", f"ptr %list, i64 {LIST_ITEMS}")
    text = re.sub(r"(ptr %item\d, i64) 16", rf"\1 {ARRAY_DATA}", text)
    machine, results = Machine(target), []
    for options in (OPTIONS, SAFE):
        engine, functions = machine.load(machine.translate(text, options), ["run0"])
        random = np.random.default_rng(0)
        arrays = [random.standard_normal(8), random.standard_normal(8), np.full(8, np.nan)]
        assert functions["run0"](arrays) == 0
        results.append(arrays[2])
        del engine
    np.testing.assert_array_equal(*results)
