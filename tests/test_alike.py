"""Kernels that differ in numbers alone, which are compiled as one."""

import numpy as onp
import pytest

import functrans as ft
import functrans.numpy as np
from functrans._compile.emit.alike import one_for_all


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
    return ft.jit(f).lower(*args).llvm.count("\ndefine internal")


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
