"""Kernels compiled by numba under the transforms; compiled functions called from numba and C."""

import functools
import inspect
import math
import random

import numpy as np
import pytest
from scipy import integrate, ndimage, special

import functrans as ft
from functrans.errors import ArgumentError, OutOfMemoryError, ShapeError, UnsupportedError
from tests.threads import at_once

numba = pytest.importorskip("numba")  # an extra: its releases follow NumPy's after a while
njit = numba.njit

from functrans.numba import (  # noqa: E402  # after the test for numba
    differentiable,
    scalar_rules,
    tape,
)

X = np.array([0.3, 0.7, 0.2, 0.4])


@njit
def square(x):
    return x * x


@njit
def branching(x, a, n=4):
    """Loops, branches, calls, a local array and writes into it."""
    work = np.zeros(n)
    s = 0.0
    for i in range(n):
        work[i] = np.sin(x[i]) + a * np.exp(-x[i])
        if work[i] > 1.3:
            s += work[i] / a
        else:
            s -= square(work[i])
        s *= x[0] ** 2 + 1
    while s > 0.5:
        s = s / 2
    return s


@njit
def fills(x, out):
    """Writes its result into an argument."""
    total = 0.0
    for i in range(len(x)):
        total += x[i] ** 3
        out[i] = total
    return len(x)


def plainly(x, a):
    """``branching`` as Python runs it."""
    work, s = [], 0.0
    for i in range(4):
        work.append(np.sin(x[i]) + a * np.exp(-x[i]))
        s = s + work[i] / a if work[i] > 1.3 else s - work[i] * work[i]
        s = s * (x[0] ** 2 + 1)
    while s > 0.5:
        s = s / 2
    return s


FORWARD = differentiable(branching, mode="forward")
REVERSE = differentiable(branching, mode="reverse")
filled = differentiable(fills, outs="out")


def powers(x):
    """The sums that ``fills`` writes."""
    return filled(x, np.zeros(4))[1]


def agree(actual, expected, rtol=1e-13):
    for a, e in zip(ft.tree.leaves(actual), ft.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, e, rtol=rtol, atol=1e-14)


# ---- derivatives


@pytest.mark.parametrize("f", [branching, FORWARD, REVERSE], ids=["met", "forward", "reverse"])
def test_a_kernel_has_the_gradient_of_its_python(f):
    actual, expected = [ft.value_and_grad(g, argnums=(0, 1))(X, 1.3) for g in (f, plainly)]
    agree(actual, expected)


def test_a_kernel_has_the_gradient_of_a_complex_step():
    h = 1e-200
    steps = [plainly(X + 1j * h * e, 1.3).imag / h for e in np.eye(4)]
    agree(ft.grad(branching)(X, 1.3), np.array(steps))


def test_a_gradient_compiles_no_copy_for_plain_numbers():
    f = differentiable(branching)
    ft.grad(f, argnums=(0, 1))(X, 1.3)
    copy, _ = f.copies.of(None, (), False)
    assert not copy.overloads
    f(X, 1.3)
    assert copy.overloads


def test_a_tangent_is_that_of_the_python():
    agree(ft.jvp(branching, (X, 1.3), (X * 2, 0.7)), ft.jvp(plainly, (X, 1.3), (X * 2, 0.7)))


@pytest.mark.parametrize("f", [FORWARD, REVERSE], ids=["forward", "reverse"])
@pytest.mark.parametrize(
    "nest",
    [
        ft.hessian,
        lambda f: ft.jacfwd(ft.jacfwd(f, argnums=1)),
        lambda f: ft.jacrev(ft.jacrev(f), argnums=(0, 1)),
        lambda f: ft.jacrev(ft.jacfwd(f)),
        lambda f: ft.hessian(lambda x, a: f(x, a) ** 2),
    ],
    ids=["hessian", "forward twice", "reverse twice", "reverse over forward", "of its square"],
)
def test_second_derivatives_are_those_of_the_python(f, nest):
    agree(nest(f)(X, 1.3), nest(plainly)(X, 1.3), rtol=1e-12)  # sums in another order


def test_a_third_derivative_is_that_of_the_python():
    third = ft.derivative(ft.derivative(ft.derivative(lambda a: branching(X, a))))
    expected = ft.derivative(ft.derivative(ft.derivative(lambda a: plainly(X, a))))
    agree(third(1.3), expected(1.3))


def test_what_is_written_comes_back_with_its_derivative():
    n, out = filled(X, np.zeros(4))
    assert n == 4
    agree(out, np.cumsum(X**3))
    for jacobian in (ft.jacfwd, ft.jacrev):
        agree(jacobian(powers)(X), np.tril(np.ones((4, 4))) * 3 * X**2)
    second = ft.jacfwd(ft.jacrev(powers))(X)
    agree(second[3], np.diag(6 * X))


def test_the_argument_that_is_written_into_is_left_alone():
    out = np.zeros(4)
    ft.jacfwd(lambda x: filled(x, out)[1])(X)
    assert not out.any()


def test_batches_are_slices():
    rows = np.stack([X, 2 * X, X / 2])
    one = ft.grad(branching)
    values = ft.vmap(branching, in_axes=(0, None))
    agree(values(rows, 1.3), np.stack([plainly(x, 1.3) for x in rows]))
    agree(ft.vmap(one, in_axes=(0, None))(rows, 1.3), np.stack([one(x, 1.3) for x in rows]))
    summed = ft.grad(lambda r: np.sum(values(r, 1.3)))
    agree(summed(rows), np.stack([one(x, 1.3) for x in rows]))


@pytest.mark.parametrize(
    ("compiled", "eager"),
    [
        (ft.jit, lambda f: f),
        (lambda f: ft.jit(ft.grad(f)), ft.grad),
        (lambda f: ft.grad(ft.jit(f)), ft.grad),
        (lambda f: ft.jit(ft.hessian(f)), ft.hessian),
        (lambda f: ft.vmap(ft.jit(ft.grad(f))), lambda f: ft.vmap(ft.grad(f))),
    ],
    ids=["value", "jit of grad", "grad of jit", "jit of hessian", "vmap of jit"],
)
def test_a_kernel_is_a_step_of_a_compiled_function(compiled, eager):
    x = np.stack([X, 2 * X]) if "vmap" in eager.__code__.co_names else X
    actual, expected = [nest(lambda x: branching(x, 1.3))(x) for nest in (compiled, eager)]
    agree(actual, expected, rtol=1e-12)  # sums in another order


def test_an_integer_argument_of_a_compiled_function_is_compared_with_bounds():
    @njit
    def gathered(x, i):
        s = 0.0
        for k in range(len(i)):
            s += x[i[k]] ** 2
        return s

    f = ft.jit(ft.grad(gathered))
    agree(f(X, np.array([0, 0, 3])), np.array([4 * X[0], 0, 0, 2 * X[3]]))
    with pytest.raises(IndexError):
        f(X, np.array([0, 0, 1000]))


# ---- the rules


@njit
def unary_functions(x, out):
    out[0], out[1], out[2] = math.sqrt(x[0]), np.exp(x[1]), math.expm1(x[2])
    out[3], out[4], out[5] = np.log(x[3]), math.log2(x[4]), np.log10(x[5])
    out[6], out[7], out[8] = math.log1p(x[6]), np.sin(x[7]), math.cos(x[8])
    out[9], out[10], out[11] = np.tan(x[9]), math.asin(x[10]), np.arccos(x[11])
    out[12], out[13], out[14] = math.atan(x[12]), np.sinh(x[13]), math.cosh(x[14])
    out[15], out[16], out[17] = np.tanh(x[15]), math.asinh(x[16]), np.arccosh(1 + x[17])
    out[18], out[19], out[20] = math.atanh(x[18]), np.cbrt(x[19]), np.exp2(x[20])
    out[21], out[22], out[23] = abs(-x[21]), np.square(x[22]), np.reciprocal(x[23])
    out[24], out[25], out[26] = np.deg2rad(x[24]), math.degrees(x[25]), np.floor(x[26]) * x[26]
    out[27], out[28], out[29] = +x[27], -x[28], float(x[29]) + round(x[29]) + int(x[29])
    out[30], out[31] = math.erf(x[30]), math.erfc(x[31])


UNARY = (
    np.sqrt, np.exp, np.expm1, np.log, np.log2, np.log10, np.log1p, np.sin, np.cos, np.tan,
    np.arcsin, np.arccos, np.arctan, np.sinh, np.cosh, np.tanh, np.arcsinh,
    lambda x: np.arccosh(1 + x), np.arctanh, np.cbrt, np.exp2, lambda x: np.abs(-x), np.square,
    np.reciprocal, np.deg2rad, np.rad2deg, lambda x: np.floor(x) * x, lambda x: x, np.negative,
    lambda x: x, special.erf, special.erfc,
)


@njit
def binary_functions(x, y, out):
    for i in range(len(x)):
        a, b = x[i], y[i]
        out[0, i], out[1, i], out[2, i] = a + b, a - b, a * b
        out[3, i], out[4, i], out[5, i] = a / b, a % b, a**b
        out[6, i], out[7, i], out[8, i] = np.maximum(a, b), np.minimum(a, b), np.fmax(a, b)
        out[9, i], out[10, i], out[11, i] = np.fmin(a, b), math.hypot(a, b), math.atan2(a, b)
        out[12, i], out[13, i] = np.logaddexp(a, b), np.fmod(a, b)
        out[14, i], out[15, i] = np.copysign(a, -b), (a // b) * a
        out[16, i], out[17, i], out[18, i] = 2**a, a**3, a**-2
        out[19, i], out[20, i] = np.where(a > b, a * b, a), max(a, b, 1.0) * min(a, b)
        a += b
        a *= 2
        a -= 1 / b
        a /= b
        out[21, i] = a


binary = differentiable(binary_functions, outs="out")


def binary_reference(x, y):
    larger = np.where(y > x, y, x)  # the first of equals, as Python has it
    larger = np.where(larger < 1, 1.0, larger)
    return np.stack([
        x + y, x - y, x * y, x / y, x % y, x**y, np.maximum(x, y), np.minimum(x, y),
        np.fmax(x, y), np.fmin(x, y), np.hypot(x, y), np.arctan2(x, y), np.logaddexp(x, y),
        np.fmod(x, y), np.copysign(x, -y), (x // y) * x, 2**x, x**3, x**-2.0,
        np.where(x > y, x * y, x), larger * np.where(y < x, y, x), ((x + y) * 2 - 1 / y) / y,
    ])


@functools.cache
def _unary(mode):
    f = differentiable(unary_functions, outs="out", mode=mode)
    return lambda x: f(x, np.zeros(len(UNARY)))


def _unary_reference(x):
    return np.stack([f(x[i]) for i, f in enumerate(UNARY)])


POINT = np.random.default_rng(0).uniform(0.1, 0.4, len(UNARY))


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_functions_of_one_number_have_the_slopes_of_the_table(mode):
    jacobian = {"forward": ft.jacfwd, "reverse": ft.jacrev}[mode]
    agree(jacobian(_unary(mode))(POINT), jacobian(_unary_reference)(POINT), rtol=1e-12)  # 4 ulp


def test_slopes_in_kernels_are_those_of_rows_or_written_out_for_a_reason():
    entered = {*scalar_rules.UNARY, *scalar_rules.BINARY}
    ways = [scalar_rules.CONSTANT, scalar_rules.DERIVED.keys(), scalar_rules.WRITTEN.keys()]
    assert set.union(*map(set, ways)) == entered
    assert sum(map(len, ways)) == len(entered)
    others = {f: row for f, row in scalar_rules.DERIVED.items() if isinstance(f, np.ufunc)}
    assert {f.__name__: row.name for f, row in others.items() if f.__name__ != row.name} == {
        "radians": "deg2rad", "degrees": "rad2deg"}


@njit
def gammas(x):
    return math.lgamma(x) + math.gamma(x)


def test_gamma_functions_have_their_derivatives_on_both_sides_of_zero():
    first, second = ft.grad(gammas), ft.grad(ft.grad(gammas))
    for x in (0.01, 0.5, 3.7, 100.0, -0.7, -3.3):
        y, psi, slope = special.gamma(x), special.psi(x), special.zeta(2, abs(x) + (x < 0))
        slope = slope if x > 0 else (np.pi / np.sin(np.pi * x)) ** 2 - slope
        agree(first(x), psi + y * psi)
        agree(second(x), slope + y * (psi**2 + slope))


def test_functions_of_one_number_have_the_second_slopes_of_the_table():
    second = [ft.jvp(lambda x, f=f: ft.jvp(f, (x,), (np.ones_like(x),))[1], (POINT,), (POINT,))
              for f in (_unary("forward"), _unary_reference)]
    agree(*second, rtol=1e-12)  # functions of the C library differ by some ulp


def _second(f):
    def along(x, y):
        return ft.jvp(f, (x, y), (np.ones_like(x), 2 * np.ones_like(y)))[1]

    return lambda x, y: ft.jvp(along, (x, y), (x, y))[1]


@pytest.mark.parametrize("of", [lambda f: ft.jacfwd(f, argnums=(0, 1)),
                                lambda f: ft.jacrev(f, argnums=(0, 1)), _second],
                         ids=["forward", "reverse", "second"])
def test_functions_of_two_numbers_have_the_slopes_of_the_table(of):
    # one a tie, and one whose ratio is rounded to a whole number that it does not reach
    x, y = np.array([0.7, 2.5, 1.5, 2.0, 1.0]), np.array([0.4, 1.6, 1.5, 3.0, 0.1])
    out = np.zeros((22, 5))
    actual = of(lambda x, y: binary(x, y, out))(x, y)
    agree(actual, of(binary_reference)(x, y), rtol=1e-12)  # sums in another order


def test_slopes_of_a_power_of_zero_and_of_a_huge_number():
    @njit
    def f(x, y):
        return x**y + np.arcsinh(1e200 * x)

    slope = ft.grad(f)(2.0, 0.0)
    assert slope == 0.5  # of arcsinh alone
    mixed = ft.hessian(f, argnums=(0, 1))(2.0, 0.0)
    assert mixed[0][1] == mixed[1][0] == 0.5


def test_a_zero_factor_meets_an_infinite_slope():
    @njit
    def roots(x, y):
        return math.sqrt(x[0]) * y + math.sqrt(x[1]) + x[1] * 0.0

    def reference(x, y):
        return np.sqrt(x[0]) * y + np.sqrt(x[1]) + x[1] * 0.0

    x = np.array([0.0, 4.0])
    for mode in ("forward", "reverse"):
        f = differentiable(roots, mode=mode)
        agree(ft.grad(f, argnums=(0, 1))(x, 0.0), ft.grad(reference, argnums=(0, 1))(x, 0.0))
    agree(ft.jvp(roots, (x, 1.0), (np.array([0.0, 1.0]), 0.0)),
          ft.jvp(reference, (x, 1.0), (np.array([0.0, 1.0]), 0.0)))
    assert ft.grad(roots)(x, 1.0)[0] == np.inf


def test_a_division_by_zero_is_pythons_error_as_in_the_kernel():
    @njit
    def quotient(x):
        return 1 / x

    with pytest.raises(ZeroDivisionError):
        ft.grad(quotient)(0.0)


def test_a_slope_does_not_divide_by_zero_where_the_kernel_does_not():
    @njit
    def logarithm(x):
        return np.log(x)

    assert ft.grad(logarithm)(0.0) == np.inf


# ---- arrays


@njit
def arrays(x, m):
    """Slices, updates, functions by entry, products and copies."""
    y = m @ x + np.exp(x) / 2.0
    y[1:] += x[:-1]
    z = np.array([y[0], x[1], 1.0])
    w = np.zeros_like(m)
    w[:, 0] = y
    w[0] = x * x[0]
    total = np.sum(w) + np.dot(y, x)
    for v in z:
        total += v
    kept = x.copy()
    for i in range(len(kept)):
        if kept[i] > 0.5:
            kept[i] = 0.0
    return total, kept, w.T


def arrays_reference(x, m):
    y = m @ x + np.exp(x) / 2.0
    y = np.concatenate([y[:1], y[1:] + x[:-1]])
    w = np.stack([x * x[0], *[np.stack([y[i], 0 * x[0], 0 * x[0]]) for i in (1, 2)]])
    total = np.sum(w) + np.dot(y, x) + y[0] + x[1] + 1.0
    return total, np.where(x > 0.5, 0.0, x), w.T


def test_arrays_in_kernels_are_differentiated():
    x, m = X[:3], np.arange(9.0).reshape(3, 3) / 10
    f = differentiable(arrays, mode="reverse")
    agree(ft.jacrev(f)(x, m), ft.jacrev(arrays_reference)(x, m))


def test_an_array_is_not_updated_by_one_that_is_broadcast_further():
    @njit
    def updated(x, y):
        z = x.copy()
        z += y
        return z

    with pytest.raises(ValueError, match="broadcast further"):
        ft.jacobian(updated)(X[:1], X)


def test_reductions_in_kernels_are_differentiated():
    @njit
    def reduced(x):
        return x.mean() * np.prod(x) + np.linalg.norm(x) * np.max(x) - np.min(x)

    def reference(x):
        return np.mean(x) * np.prod(x) + np.linalg.norm(x) * np.max(x) - np.min(x)

    agree(ft.grad(reduced)(X), ft.grad(reference)(X))


def test_float32_arguments_give_float32_derivatives():
    x = X.astype(np.float32)
    value, gradient = ft.value_and_grad(lambda x: branching(x, np.float32(1.3)))(x)
    assert gradient.dtype == np.float32
    np.testing.assert_allclose(gradient, ft.grad(plainly)(X, 1.3), rtol=1e-6)  # float32
    np.testing.assert_allclose(value, plainly(X, 1.3), rtol=1e-6)  # float32


def test_strided_and_empty_and_read_only_arguments_are_taken():
    wide = np.stack([X, X], axis=1)
    wide.setflags(write=False)
    agree(ft.grad(lambda w: branching(w[:, 1], 1.3))(wide)[:, 1], ft.grad(plainly)(X, 1.3))
    agree(ft.grad(branching, argnums=1)(wide[:, 0], 1.3), ft.grad(plainly, argnums=1)(X, 1.3))

    @njit
    def total(x):
        s = 1.0
        for v in x:
            s += v * v
        return s

    assert ft.grad(total)(np.zeros(0)).shape == (0,)


# ---- tapes


@njit
def gathered_terms(x):
    """What is read in one place is kept beyond it; sums of more terms than a number has."""
    s = 0.0
    for i in range(len(x)):
        v = x[i]
        if i % 3 == 0:
            kept = v
        s += v * kept
        s += s * v if s > 2 else 0.0
    a, b = x[0], x[1]
    for v in x:
        a, b = b, a * b + math.sqrt(v)
    return s + (x[0] * x[1] + x[2] * x[3] + x[4] * x[5] + x[6] * x[7] * x[8]) * (a + b)


def test_terms_of_expressions_are_gathered_where_numbers_are_kept():
    x = np.linspace(0.4, 1.2, 9)
    expected = ft.grad(differentiable(gathered_terms, mode="forward"))(x)
    agree(ft.grad(differentiable(gathered_terms, mode="reverse"))(x), expected)


def test_an_expression_takes_one_node_of_the_tape():
    @njit
    def bends(x, y):
        for i in range(1, len(x) - 1):
            d = x[i - 1] - 2 * x[i] + x[i + 1]
            y[i] = math.sqrt(1 + d * d) * x[i]

    x = np.linspace(0, 1, 100)
    assert nodes_and_entries(differentiable(bends, outs="y"), x, np.zeros(100)) == (98, 3 * 98)


def nodes_and_entries(f, *args):
    run = f._call(args, range(len(args))).op.level(0, [0]).linearized(args, [[]]).bare.tape
    return run.nodes - run.inputs, len(run.entries)


def test_a_sum_that_nothing_else_has_is_one_node():
    @njit
    def total(x):
        s = 0.0
        for i in range(len(x)):
            if x[i] > 0.5:
                s += x[i] * x[i]
            else:
                s = s - x[i] - 1.0
        return s

    # the first term is what the sum was before
    assert nodes_and_entries(differentiable(total), np.linspace(0, 1, 100)) == (1, 101)


def read_later(x):
    s, first = x[0], 0.0
    for i in range(len(x)):
        s += x[i] * x[i]
        if i == 1:
            first = s
    return s * first


def read_on_the_way(x):
    s, first = x[0], 0.0
    for i in range(len(x)):
        s += x[i] * x[i]
        if i == 1:
            first = math.sin(s)
    return s * first


def stored(x):
    s, kept = 0.0, np.zeros(3)
    while s < 2:
        for v in x:
            s = v * v + s
            kept[1] = s if v > 0.4 else kept[1]
    return s * kept[1]


def swapped(x):
    s, u = x[0], x[1]
    for v in x:
        s += v * v
        u, s = s, u - v
    return s * u


def counted(x):
    s, k, kept = 0.0, 0, np.zeros(4)
    for v in x:
        s += v
        kept[k] = s
        k += 1  # noqa: SIM113  # a counter that the text has
    return kept[0] * kept[2] + kept[3]


@pytest.mark.parametrize("f", [read_later, read_on_the_way, stored, swapped, counted])
def test_sums_that_others_have_are_what_they_were(f):
    x = np.array([0.3, 0.5, 0.2, 0.4])
    expected = ft.grad(differentiable(njit(f), mode="forward"))(x)
    agree(ft.grad(differentiable(njit(f), mode="reverse"))(x), expected)


def test_a_tape_that_is_too_short_is_made_longer():
    @njit
    def chain(x, n):
        y = x[0]
        for i in range(n):
            y = 0.5 * y + x[i % 2]
        return y

    f = differentiable(chain, mode="reverse")
    n = 5000
    expected = ft.grad(differentiable(chain, mode="forward"))(X, n)
    for _ in range(2):
        agree(ft.grad(f)(X, n), expected)


def test_threads_have_their_tapes():
    def run(k):
        return [ft.grad(REVERSE)(X * k, 1.3) for _ in range(20)]

    for k, found in zip((1, 2), at_once(run, (1, 2)), strict=True):
        agree(found, [ft.grad(plainly)(X * k, 1.3)] * 20)


def test_a_pullback_can_be_called_again():
    _, pull = ft.vjp(lambda x: branching(x, 1.3), X)
    first = pull(1.0)
    agree(pull(2.0)[0], 2 * first[0])


def test_a_tape_that_does_not_fit_is_refused():
    with pytest.raises(OutOfMemoryError, match=r'tape of a kernel has .* mode="forward"'):
        tape.recorded(lambda: None, 0, tape.MOST)


# ---- what is refused


def refused(f, *args, error=UnsupportedError):
    with pytest.raises(error) as caught:
        f(*args)
    return str(caught.value)


def line_of(kernel, text):
    """``file:line`` of a line of a kernel's source."""
    lines, start = inspect.getsourcelines(kernel.py_func)
    at = next(i for i, line in enumerate(lines) if text in line)
    return f"{__file__}:{start + at}"


def test_a_kernel_that_writes_into_an_argument_is_refused_with_its_line():
    def loss(x):
        out = np.zeros(4)
        fills(x, out)
        return out.sum()

    text = refused(ft.grad(loss), X)
    assert "it writes into an argument" in text and "outs=" in text
    assert line_of(fills, "out[i] = total") in text


def test_a_kernel_that_writes_into_a_traced_argument_is_refused():
    @njit
    def scaled(x):
        x *= 2
        return x.sum()

    assert "it writes into an argument" in refused(ft.grad(scaled), X)
    assert "it writes into an argument" in refused(ft.vmap(scaled), np.stack([X, X]))


def test_a_function_without_a_rule_is_refused_with_its_line():
    @njit
    def eigenvalues(x):
        return np.sum(np.linalg.eigvalsh(x.reshape(2, 2)))

    text = refused(ft.grad(eigenvalues), X)
    assert "`eigvalsh` has no derivative in kernels" in text
    assert line_of(eigenvalues, "linalg.eigvalsh") in text


def test_objmode_is_refused_with_its_line():
    @njit
    def looks(x):
        with numba.objmode(y="float64"):
            y = float(len(__file__))
        return x[0] * y

    text = refused(ft.grad(looks), X)
    assert "runs Python's code in objmode" in text and line_of(looks, "objmode") in text


def test_random_numbers_are_refused_with_their_line():
    @njit
    def draws(x):
        return x[0] * np.random.normal()

    @njit
    def draws_too(x):
        return x[0] * random.random()

    for f in (draws, draws_too):
        text = refused(ft.grad(f), X)
        assert "draws random numbers" in text and line_of(f, "x[0] *") in text

    @njit
    def given(x, rng):
        return x[0] * rng.normal()

    assert "random generator" in refused(
        ft.grad(lambda x: given(x, np.random.default_rng(0))), X, error=ArgumentError
    )


def test_containers_of_traced_values_are_refused():
    @njit
    def first(parts):
        return parts[0]

    for parts in (tuple, list):
        text = refused(ft.grad(lambda x, p=parts: first(p([x[0], x[1]]))), X, error=ArgumentError)
        assert "traced values" in text


def test_a_kernel_with_fixed_signatures_names_the_way():
    @njit("float64(float64)")
    def cube(x):
        return x**3

    assert "functrans.numba.differentiable(kernel)" in refused(ft.grad(cube), 2.0, error=TypeError)
    assert ft.grad(differentiable(cube))(2.0) == 12.0


def test_a_kernel_of_python_objects_is_followed_as_python():
    @numba.jit(forceobj=True)
    def sine(x):
        return np.sin(x)

    agree(ft.grad(sine)(2.0), np.cos(2.0))


def test_a_result_that_is_no_number_is_refused():
    @njit
    def listed(x):
        return [x, x]

    assert "returns numbers, arrays" in refused(ft.grad(listed), 2.0)


def test_an_array_from_a_value_must_keep_its_shape_in_a_program():
    @njit
    def front(x, n):
        return x[:n].copy()

    f = ft.jit(lambda x, n: front(x, n))
    agree(f(X, np.int64(2)), X[:2])
    with pytest.raises(ShapeError, match="must not depend on values"):
        f(X, np.int64(3))


def test_arguments_that_are_written_into_stand_alone():
    assert "shares memory with argument 0" in refused(filled, X, X, error=ArgumentError)
    assert "must be an array" in refused(filled, X, 1.0, error=ArgumentError)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "back"}, "mode must be one of auto, forward, reverse"),
        ({"chunk": 0}, "chunk must be an int of at least 1"),
        ({"outs": "y"}, "`fills` has no argument 'y'; its arguments are x, out"),
        ({"argnums": 2}, "`fills` has no argument 2"),
    ],
    ids=["mode", "chunk", "outs", "argnums"],
)
def test_options_that_do_not_fit_are_refused(options, text):
    assert text in refused(lambda: differentiable(fills, **options), error=ArgumentError)


def test_only_kernels_are_made_differentiable():
    assert "numba.njit, but got" in refused(differentiable, np.sin, error=ArgumentError)


def test_argnums_says_what_may_be_traced():
    f = differentiable(branching, argnums=0)
    agree(ft.grad(f)(X, 1.3), ft.grad(plainly)(X, 1.3))
    text = refused(ft.grad(f, argnums=1), X, 1.3, error=ArgumentError)
    assert "argument 1 is traced, but argnums names [0] only" in text


def test_an_error_of_the_kernel_is_raised():
    @njit
    def checked(x):
        if x > 0:
            raise ValueError("positive")
        return x

    with pytest.raises(ValueError, match="positive"):
        ft.grad(checked)(1.0)


# ---- compiled functions for numba, C and SciPy

damped = ft.jit(lambda x, a: np.exp(-a * x) * np.sin(x))
cost = ft.jit(ft.value_and_grad(lambda x, m: np.sum(np.exp(m @ x) ** 2)))
spread = ft.jit(lambda w: np.sum(w * w) / (1 + np.sum(np.abs(w))))


def test_a_compiled_function_is_called_from_a_kernel():
    f = damped.numba(1.0, 2.0)

    @njit
    def total(n):
        s = 0.0
        for i in range(n):
            s += f(i * 0.01, 2)
        return s

    x = np.arange(100) * 0.01
    agree(total(100), np.sum(np.exp(-2 * x) * np.sin(x)))


def test_arrays_go_in_and_new_ones_come_out():
    m = np.arange(6.0).reshape(2, 3) / 10
    f = cost.numba(X[:3], m)

    @njit
    def descend(x, m):
        for _ in range(5):
            value, gradient = f(x, m)
            x = x - 1e-2 * gradient
        return value, x

    x = X[:3]
    value, found = descend(x, m)
    for _ in range(5):
        expected, gradient = cost(x, m)
        x = x - 1e-2 * gradient
    agree((value, found), (expected, x))


def test_results_that_are_the_argument_are_copies():
    f = ft.jit(lambda x: (x, x * 2, x)).numba(X)
    first, double, last = f(X)
    first[0] = 9.0
    agree((last, double), (X, 2 * X))
    assert X[0] == 0.3


def test_arguments_that_do_not_fit_are_refused_before_the_call():
    f = spread.numba(X)
    with pytest.raises(ValueError, match=r"argument 0 must be a contiguous array float64\[4\]"):
        f(np.ones(5))
    for x in (np.ones(8)[::2], np.ones(4, np.float32), 1.0):
        with pytest.raises(numba.TypingError, match=r"must be a contiguous array float64\[4\]"):
            f(x)
    with pytest.raises(numba.TypingError, match="takes 1 arguments, not 2"):
        f(X, X)


def test_an_error_of_the_code_is_raised_in_the_kernel():
    f = ft.jit(np.linalg.solve).numba(np.eye(3), X[:3])
    agree(f(2 * np.eye(3), X[:3]), X[:3] / 2)
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        f(np.zeros((3, 3)), X[:3])


def test_quad_and_nquad_call_it_without_python():
    one = ft.jit(lambda x: np.exp(-x * x)).low_level_callable(1.0)
    assert one.signature == "double (double)"
    agree(integrate.quad(one, 0, 5)[0], math.sqrt(math.pi) / 2 * math.erf(5))
    two = damped.low_level_callable(1.0, 2.0)
    agree(integrate.quad(two, 0, 5, args=(2.0,)), integrate.quad(damped, 0, 5, args=(2.0,)))
    limits = [[0, 1], [0, 2]]
    agree(integrate.nquad(two, limits), integrate.nquad(damped, limits))


def test_a_filter_is_called_on_each_window():
    image = np.random.default_rng(0).normal(size=(8, 9))
    f = spread.low_level_callable(np.ones(9))
    agree(ndimage.generic_filter(image, f, 3), ndimage.generic_filter(image, spread, 3))
    with pytest.raises(RuntimeError):  # 25 entries, for which it was not made
        ndimage.generic_filter(image, f, 5)


def test_ctypes_calls_it():
    agree(damped.ctypes(1.0, 2.0)(0.5, 2.0), math.exp(-1) * math.sin(0.5))


@pytest.mark.parametrize(
    ("make", "text", "error"),
    [
        (lambda: damped.ctypes(np.ones(3), 1.0), "C knows no shapes", ArgumentError),
        (lambda: damped.numba(1, 2.0), "must be a float or an array of floats", ArgumentError),
        (lambda: ft.jit(lambda x: x[0] * 1.0).numba((1.0, 2.0)), "must be a float", ArgumentError),
        (lambda: ft.jit(lambda x: np.argsort(x) * x).numba(X), "steps that NumPy runs",
         UnsupportedError),
        (lambda: ft.jit(lambda x: (x * 2, x + 1)).ctypes(1.0), "returns one double", ArgumentError),
        (lambda: ft.jit(lambda *xs: sum(xs)).ctypes(*[1.0] * 5), "up to 4 doubles", ArgumentError),
        (lambda: spread.low_level_callable(np.ones(3, np.float32)), "a filter is of float64",
         ArgumentError),
    ],
    ids=["array", "int", "tuple", "steps", "two results", "five", "float32"],
)
def test_what_cannot_be_called_natively_is_refused(make, text, error):
    with pytest.raises(error, match=text):
        make()


# ---- how kernels are called


@njit
def cubed(v):
    t = np.zeros(1)
    t[0] = v
    return t[0] ** 3


def test_a_function_may_be_an_argument():
    @njit
    def mapped(f, x):
        s = 0.0
        for v in x:
            s += f(v)
        return s

    agree(ft.grad(lambda x: mapped(cubed, x))(X), 3 * X**2)


def test_constants_that_are_equal_are_told_apart():
    @njit
    def f(x, p):
        return x * np.arctan2(0.0, p[0])

    assert [ft.grad(f)(1.0, p) for p in ((0.0,), (-0.0,), (0.0,))] == [0, np.pi, 0]


def test_a_kernel_may_call_itself():
    @njit
    def repeated(x, n):
        if n == 0:
            return x
        return repeated(x * x, n - 1)

    agree(ft.grad(repeated)(1.1, 3), 8 * 1.1**7)


def test_defaults_keywords_and_kernels_without_the_lock():
    @njit(nogil=True)
    def scaled(x, a=2.0, n=3):
        return x**n * a

    assert ft.grad(scaled)(2.0) == 24.0
    assert ft.grad(lambda x: scaled(x, n=2))(2.0) == 8.0
    assert ft.grad(lambda a: scaled(n=2, x=3.0, a=a))(1.0) == 9.0


def test_a_kernel_that_has_met_a_traced_value_is_otherwise_as_it_was():
    @njit
    def shifted(x):
        y = x.copy()
        y[1:] = x[:-1]  # for which numba inlines a loop
        return y

    assert ft.jacfwd(shifted)(X).shape == (4, 4)
    agree(shifted(X), np.concatenate([X[:1], X[:-1]]))


def test_threads_share_nothing_in_a_parallel_kernel():
    @njit(parallel=True)
    def total(x):
        s = 0.0
        for i in numba.prange(len(x)):
            s += x[i] ** 2
        return s

    agree(ft.grad(total)(X), 2 * X)
    agree(ft.grad(differentiable(total, mode="reverse"))(X), 2 * X)


@njit
def part(x):
    return x[0] * x[-1]


@njit
def read_in_many_ways(x, y, flag):
    total, kept = 0.0, np.zeros(3)
    best = x[0, 0]
    for row in x:
        total += part(row[::-1]) * row[-2]
        for v in row[1:]:
            if v > best:
                best = v
    for i in range(len(y) // 2):
        a, b = y[2 * i], y[-1 - i]
        a, b = (b, a) if flag else (a, b * a)
        kept[i % 3] = a
        total += kept[i % 3] * b
    later = x.T[1:, 0]
    return total * best + x[1][3] * later[0] - y[1:][2] ** 2, best * 1.0


def test_inputs_that_are_told_by_their_addresses_are_the_right_ones():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(6, 4))[::2], rng.normal(size=14)[::2]  # neither lies in one piece

    def slopes(mode):
        f = differentiable(read_in_many_ways, mode=mode)
        return [ft.jacobian(lambda x, y, flag=flag: np.stack(f(x, y, flag)), argnums=(0, 1))(x, y)
                for flag in (True, False)]

    for reverse, forward in zip(slopes("reverse"), slopes("forward"), strict=True):
        agree(reverse[0], forward[0])
        agree(reverse[1], forward[1])


@njit
def first_of(x, y):
    return x[1:] if y[0] > 0 else y[1:]


@njit
def product_of_one(x, y):
    return np.dot(x, y) + x[2] * y[2]


@pytest.mark.parametrize("kernel", [first_of, product_of_one])
def test_kernels_that_need_inputs_in_memory_have_them_there(kernel):
    x = np.array([0.5, 2.0, -1.0])  # one array as two arguments
    f, g = [differentiable(kernel, mode=m) for m in ("reverse", "forward")]
    agree(ft.jacobian(lambda x: f(x, x))(x), ft.jacobian(lambda x: g(x, x))(x))
