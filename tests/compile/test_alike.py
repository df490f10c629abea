"""Kernels that differ in numbers alone, which are compiled as one."""

import re
from typing import Any

import numpy as onp
import pytest

import functrans as ft
import functrans.numpy as np
from functrans._compile.emit import shared_text
from functrans._compile.emit.module import Place
from functrans._compile.emit.shared_text import one_for_all
from functrans._compile.schedule.control import Emitted


def factors(a):
    """log |det a| by elimination, a loop over triangles."""
    u = np.array(a)
    for k in range(len(a)):
        u[k + 1 :, k] = u[k + 1 :, k] / u[k, k]
        u[k + 1 :, k + 1 :] -= u[k + 1 :, k, None] * u[k, None, k + 1 :]
    return np.sum(np.log(np.abs(np.diag(u))))


def cholesky(a):
    c = np.zeros((len(a), len(a)))
    for j in range(len(a)):
        c[j, j] = np.sqrt(a[j, j] - c[j, :j] @ c[j, :j])
        c[j + 1 :, j] = (a[j + 1 :, j] - c[j + 1 :, :j] @ c[j, :j]) / c[j, j]
    return 2 * np.sum(np.log(np.diag(c)))


def scaled(x):
    """Kernels with other numbers, places and lengths in each step."""
    for i in range(20):
        x = np.cumsum(x[1:] * (0.1 * i + 0.3)) / (i + 2)
    return np.sum(x)


def positive(n):
    m = onp.random.default_rng(n).normal(size=(n, n))
    return m @ m.T + n * onp.eye(n)


def functions(f, *args):
    return len(re.findall("\ndefine internal .*@(?:kernel|call)", ft.jit(f).lower(*args).llvm))


@pytest.mark.parametrize("f", [factors, cholesky], ids=lambda f: f.__name__)
def test_a_loop_over_triangles_compiles_in_the_code_of_a_few_steps(f):
    few, many = [functions(ft.grad(f), positive(n)) for n in (24, 48)]
    assert many <= few + 4
    assert many < 80


@pytest.mark.parametrize("f", [factors, cholesky], ids=lambda f: f.__name__)
def test_the_gradient_of_a_determinant(f):
    a = positive(24)
    value, slope = ft.jit(ft.value_and_grad(f))(a)
    assert value == pytest.approx(onp.linalg.slogdet(a)[1], rel=1e-13)
    want = onp.linalg.inv(a)
    if f is cholesky:  # which reads one triangle
        want = onp.tril(2 * want) - onp.diag(onp.diag(want))
    onp.testing.assert_allclose(slope, want, rtol=0, atol=1e-12 * onp.abs(want).max())


def test_numbers_in_kernels_are_those_of_the_step():
    x = onp.linspace(0.5, 2.0, 40)
    onp.testing.assert_allclose(ft.jit(scaled)(x), scaled(x), rtol=1e-14)
    onp.testing.assert_allclose(ft.jit(ft.grad(scaled))(x), ft.grad(scaled)(x), rtol=1e-13)
    assert functions(scaled, x) < 20


HALF = "0x3fe0000000000000"


def kernel(number, factor, length):
    return (f"define internal void @kernel{number}(ptr noalias %buffer0) #0 {{\nentry:\n"
            f"  %t1 = load double, ptr %buffer0\n  %t2 = fmul double %t1, {factor}\n"
            f"  %t3 = icmp slt i64 {length}, {length}\n  ret void\n}}\n")


def caller(count):
    calls = "".join(f"  call void @kernel{i}(ptr %t{i})\n" for i in range(count))
    return f"define i32 @run0(ptr %list) #0 {{\nentry:\n{calls}  ret i32 0\n}}\n"


def test_each_call_hands_over_its_numbers():
    texts = [kernel(i, f"0x{i:016x}", 7 + i) for i in range(3)]
    one, run = one_for_all([*texts, caller(3)])
    assert "@kernel0(ptr noalias %buffer0, double %number.0, i64 %number.1) #0" in one
    assert "fmul double %t1, %number.0" in one
    assert "icmp slt i64 %number.1, %number.1" in one
    assert "call void @kernel0(ptr %t2, double 0x0000000000000002, i64 9)" in run
    assert "@kernel1" not in run


def test_equal_kernels_are_one_without_more_arguments():
    one, run = one_for_all([*[kernel(i, HALF, 5) for i in range(3)], caller(3)])
    assert one == kernel(0, HALF, 5)
    assert run.count("call void @kernel0(ptr %t") == 3


def test_few_and_different_kernels_stay():
    texts = [kernel(0, HALF, 5), kernel(1, HALF, 6), kernel(2, HALF, 7).replace("fmul", "fadd"),
             caller(3)]
    assert one_for_all(texts) == texts


# ---- calls as a table


@pytest.fixture
def calls_in_tables(monkeypatch, unoptimised):
    monkeypatch.setattr(shared_text, "LEAST_CALLS", 4)
    with ft.cache.off():
        yield


def in_table(f: Any, *args: Any) -> Any:
    compiled: Any = ft.jit(f)
    assert ".calls = private constant [" in compiled.lower(*args).llvm
    return compiled(*args)


@pytest.mark.parametrize("f", [factors, cholesky], ids=lambda f: f.__name__)
def test_a_table_of_calls_does_what_the_calls_do(f, calls_in_tables, monkeypatch):
    a = positive(24)
    got = in_table(ft.value_and_grad(f), a)
    monkeypatch.setattr(shared_text, "LEAST_CALLS", 1 << 30)
    # sums of a length that LLVM knows are added up in another order
    want: Any = ft.jit(ft.value_and_grad(f))(a)
    for x, y in zip(got, want, strict=True):
        onp.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-15)


def test_numbers_of_all_types_are_read_from_the_table(calls_in_tables):
    def f(x, n):
        for i in range(12):
            x = np.cumsum(x[1:] * onp.float32(0.1 * i + 0.3)) / onp.float32(i + 2)
            n = np.cumsum(n[1:] + onp.int16(100 * i - 300)) - onp.int16(i)
        return x, n

    x, n = onp.linspace(0.5, 2.0, 400, dtype="f4"), onp.arange(400, dtype="i2")
    for got, want in zip(in_table(f, x, n), f(x, n), strict=True):
        assert got.dtype == want.dtype
        onp.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("singular", [None, 0, 7])
def test_a_call_of_a_table_that_refuses_ends_it(singular, calls_in_tables):
    def f(ms, x):
        for k in range(12):
            x = np.linalg.solve(ms[k], x) + np.cumsum(x[k : k + 1])
        return np.sum(x)

    ms = onp.stack([positive(40)] * 12)
    if singular is None:
        assert in_table(f, ms, onp.ones(40)) == pytest.approx(float(f(ms, onp.ones(40))), rel=1e-12)
        return
    ms[singular] = 0.0
    with pytest.raises(onp.linalg.LinAlgError):
        in_table(f, ms, onp.ones(40))


def test_a_row_has_places_and_numbers():
    calls = [Emitted("kernel0", ("a", "b"), False),
             Emitted("call1", ("b",), True, ", i64 0, i64 3")]
    lines = shared_text.listed(calls).split("\n")
    assert lines == ["call void @kernel0()", "call i32 @call1(i64 0, i64 3)"]
    given = f'call void @kernel0(i32 -5, ptr @"double.0x1")\n{lines[1]}'
    text = shared_text.by_table("run0", calls, given, {"a": Place(3, 64), "b": Place(1)}, 24, 16)
    assert ("<{ i64 24, i64 64, i64 8, i64 0, i32 -5, [4 x i8] zeroinitializer, double 0x1, "
            "i64 8, i64 0, i64 0, i64 3 }>, align 8") in text
    assert "{ ptr, i64 } { ptr @run0.call1, i64 48 }" in text
    t = r"%t\d+"
    assert re.search(rf"call void @kernel0\(ptr {t}, ptr {t}, i32 {t}, ptr {t}\)", text)
