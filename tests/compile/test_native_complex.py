"""Complex numbers in native code, against NumPy's."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
from functrans._compile.lowering.formulas import COMPLEX, FUNCTIONS
from functrans._compile.lowering.numbers import Rounding
from functrans._compile.lowering.scalars import KINDS
from functrans._compile.run.native import NativeProgram
from functrans._compile.schedule.kernels import Call, HostStep
from functrans._core.bind import bind
from functrans._ops import elementwise as ops
from functrans._ops.declare import TABLE
from functrans._ops.indexing import ARRAY, getitem, scatter_add
from functrans._ops.reductions import count_nonzero
from functrans._transforms.reach import make_program

pytestmark = pytest.mark.usefixtures("seldom_optimised")

PARTS = [0.0, -0.0, 1.0, -2.5, 0.3, np.inf, -np.inf, np.nan]
LARGE = [1e-310, 1e160, -1e300, 1e-160]
FAR = [30.0, -750.0, 709.7, 710.0, 2000.0]
DTYPES = pytest.mark.parametrize("dtype", [np.complex128, np.complex64])


def pairs(parts, dtype=np.complex128):
    """Every number with these parts; a sum would turn some of the zeros."""
    grid = np.array(list(itertools.product(parts, parts)))
    with np.errstate(over="ignore"):
        return grid.astype(np.dtype(dtype).char.lower()).view(dtype).ravel()


def numbers(*shape, dtype=np.complex128, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


def native(f, *args, precise=False):
    """What native code without host steps returns."""
    compiled = NativeProgram(make_program(f)(*args), Rounding(precise))
    assert not any(isinstance(s, HostStep) for s in compiled.schedule.steps), compiled.schedule
    return compiled(args)


def bits(y):
    """The parts, all NaNs alike."""
    y = np.asarray(y)
    parts = np.stack([y.real, y.imag]) if y.dtype.kind == "c" else y
    if parts.dtype.kind == "f":
        parts = np.where(np.isnan(parts), np.array(np.nan, parts.dtype), parts)
    return parts, np.signbit(parts) & (parts == parts) if parts.dtype.kind == "f" else parts


def assert_same_bits(y, e):
    e = np.asarray(e)
    assert (y.shape, y.dtype) == (e.shape, e.dtype)
    for ours, theirs in zip(bits(y), bits(e), strict=True):
        assert_array_equal(ours, theirs)


def close(y, e, ulp=8):
    e = np.asarray(e)
    assert (y.shape, y.dtype) == (e.shape, e.dtype)
    tol = ulp * np.finfo(e.dtype).eps
    assert_allclose(y, e, rtol=tol, atol=tol * np.abs(e[np.isfinite(e)]).max(initial=0))


# ---- rows

UNARY = [*map(str, FUNCTIONS), "exp", "log2", "log10", "negative", "positive", "conjugate", "real",
         "imag", "isnan", "isinf", "isfinite"]
BINARY = ["add", "subtract", "divide", "ratio", "equal", "not_equal", "moving_as"]
# NumPy's loops of these use the processor's joint instructions where it has them, ours never do
PRODUCTS = {"multiply": 2, "strong_multiply": 2, "square": 1, "absolute_complex": 1,
            "reciprocal": 1, "sech2": 1}


def test_every_lowering_of_complex_numbers_is_tested():
    moved = {"astype", "astype_discrete", "copy", "from_parts", "gather", "item", "stop", "where"}
    rows = [*COMPLEX, *[row for row, kinds in KINDS.items() if "c" in kinds]]
    assert set(map(str, rows)) == {*UNARY, *BINARY, *PRODUCTS, *moved}


@DTYPES
@pytest.mark.parametrize("name", UNARY)
def test_a_function_has_every_bit_of_numpys(name, dtype):
    z = pairs([*PARTS, *LARGE], dtype)
    with np.errstate(all="ignore"):
        expected = TABLE[name].impl(z)
    assert_same_bits(native(TABLE[name], z, precise=True)[0], expected)


@DTYPES
@pytest.mark.parametrize("precise", [True, False])
@pytest.mark.parametrize("name", BINARY)
def test_arithmetic_has_every_bit_of_numpys(name, precise, dtype):
    x, y = (g.ravel() for g in np.meshgrid(*[pairs([*PARTS, *LARGE[:2]], dtype)] * 2))
    with np.errstate(all="ignore"):
        expected = TABLE[name].impl(x, y)
    assert_same_bits(native(TABLE[name], x, y, precise=precise)[0], expected)


@DTYPES
def test_numbers_made_of_their_parts_have_every_bit_of_these(dtype):
    z = pairs([*PARTS, *LARGE], dtype)
    assert_same_bits(native(ops.from_parts, z.real, z.imag)[0], z)
    w, tangent = ft.jvp(ops.from_parts, (z.real, z.imag), (z.imag, z.real))
    assert_same_bits(w, z)
    finite = np.isfinite(z)  # of two tangents a sum is made
    assert_array_equal(tangent[finite].real, z.imag[finite])
    assert_array_equal(tangent[finite].imag, z.real[finite])
    found = ft.vjp(ops.from_parts, z.real, z.imag)[1](z)
    for y, e in zip(found, (z.real, z.imag), strict=True):
        assert_same_bits(y, e)


@DTYPES
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_those_of_the_parts(name, dtype):
    grid = np.meshgrid(*[pairs(PARTS, dtype)] * PRODUCTS[name])
    xs = [g.ravel() for g in grid]
    with np.errstate(all="ignore"):
        expected = TABLE[name].impl(*xs)
    (y,) = native(TABLE[name], *xs)
    ours, theirs = (np.stack([np.real(v), np.imag(v)]) for v in (y, expected))
    assert y.dtype == expected.dtype
    assert_allclose(ours, theirs, rtol=4 * np.finfo(dtype).eps, atol=4 * np.finfo(dtype).eps)


@DTYPES
def test_exp_by_vector_functions_goes_where_numpys_goes(dtype):
    z = pairs([*PARTS, *LARGE[:1], *FAR, 88.9, 0.5 * np.pi], dtype)
    with np.errstate(all="ignore"):
        expected = np.exp(z)
    (y,) = native(np.exp, z)
    for ours, theirs in ((y.real, expected.real), (y.imag, expected.imag)):
        known = ~np.isnan(theirs)
        assert_array_equal(np.isnan(ours), np.isnan(theirs))
        # vector functions within 4 ulp, one product more than C has where it grows
        assert_allclose(ours, theirs, rtol=16 * np.finfo(dtype).eps, atol=0)
        settled = known & (z == z)  # C leaves the signs open where a direction is not a number
        finite = settled & np.isfinite(z.imag)
        assert_array_equal(np.signbit(ours)[finite], np.signbit(theirs)[finite])


def test_a_number_times_its_conjugate_is_real():
    z = numbers(1000)
    (y,) = native(lambda z: (z * z.conj()).imag, z)
    assert not y.any()


@DTYPES
def test_conversions_to_and_from_complex(dtype):
    z = pairs([0.0, -0.0, 1.0, -2.5, np.nan], dtype)

    def f(z):
        narrow = [z.real.astype(t) for t in ("f4", "?")]
        return (z.astype("c8"), z.astype("c16"), z.astype(bool), z.real.astype(complex), *narrow,
                (z.real > 0).astype(complex), np.where(z, 1, 0), np.logical_not(z), z + 1, z * 2.0,
                np.where(z.real > 0, z, 1j), z == 1, np.logical_and(z, z.imag))

    for y, e in zip(native(f, z), f(z), strict=True):
        assert_same_bits(y, e)


def test_reductions_over_any_axes():
    z = numbers(3, 1, 4, 5)
    for axis in [(0,), (1,), (3,), (0, 2), (2, 3), (0, 1, 2, 3)]:
        def f(z, axis=axis):
            return (z.sum(axis), z.prod(axis), np.any(z, axis), np.all(z * 0, axis),
                    bind(count_nonzero, z.real * z, axis=axis), z.mean(axis))

        for y, e in zip(native(f, z), f(z), strict=True):
            close(y, e, 32) if y.dtype.kind == "c" else assert_array_equal(y, e)


@DTYPES
def test_long_sums_keep_their_digits(dtype):
    z = np.random.default_rng(0).uniform(size=(100_003, 2)).view(complex)[:, 0]
    (y,) = native(np.sum, z.astype(dtype))
    exact = np.sum(z)
    assert abs(y.real / exact.real - 1) < 3 * np.finfo(dtype).eps
    assert abs(y.imag / exact.imag - 1) < 3 * np.finfo(dtype).eps


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), ()])
def test_arrays_without_entries_or_axes(shape):
    z = numbers(*shape)
    for y, e in zip(native(lambda z: (z + 1, z.sum(), z.conj().T * 2, z.prod()), z),
                    (z + 1, z.sum(), z.conj().T * 2, z.prod()), strict=True):
        close(y, e)


def test_what_lies_outside_a_window_is_zero():
    z = numbers(9)

    def f(z):
        return np.concatenate([z[1:] - z[:-1], z[:1]]) + np.pad(z[2:], (1, 1))

    close(native(f, z)[0], f(z))


def test_an_order_of_complex_numbers_is_numpys():
    z = numbers(5)
    lowered = ft.jit(lambda z: (z.max(), np.maximum(z, 0))).lower(z)
    assert "host" in repr(lowered.schedule)
    assert_array_equal(ft.jit(lambda z: z.max())(z), z.max())


@pytest.mark.parametrize("dtype", ["c16", "c8", "?", "u2", "f2"])
def test_a_long_constant_may_be_of_any_type(dtype):
    x, zeros = np.linspace(-1, 1, 2000), np.zeros(2000, dtype)
    for c in (zeros, zeros + np.ones(1, dtype), np.conj(zeros)):
        got = ft.jit(lambda x, c=c: np.where(x > 0, x, c))(x)
        assert_array_equal(got, np.where(x > 0, x, c))
        assert got.dtype == np.result_type(x, c)


def test_a_constant_of_zeros_keeps_their_signs():
    for c in (np.array([0.0, complex(0.0, -0.0)]), np.array([complex(-0.0, 0.0), 0.0])):
        assert_same_bits(native(lambda z, c=c: np.where(z.real > 9, z, c), numbers(2))[0], c)


# ---- memory


@pytest.mark.parametrize("offset", [8, 16])
def test_numbers_of_two_words_need_no_more_than_one_words_alignment(offset):
    n = 400
    raw = np.zeros(16 * n + 32, np.uint8)
    start = -raw.ctypes.data % 16 + offset
    z = raw[start : start + 16 * n].view(complex)
    z[:] = numbers(n)
    i = np.arange(n)[::-1].copy()

    def f(z, i):
        return z * 2, bind(getitem, z, i, pattern=(ARRAY,)), z.sum(), z @ z

    compiled = NativeProgram(make_program(f)(z, i))
    for y, e in zip(compiled([z, i]), (z * 2, z[i], z.sum(), z @ z), strict=True):
        close(y, e, 64)
    moves = [line for line in compiled.llvm.split("\n") if "load i128" in line]
    assert moves and all(line.endswith("align 8") for line in moves)


def test_entries_are_added_where_indices_say():
    z, i = numbers(6), np.array([0, 2, 2, 1, 0, 2])

    def f(z, i):
        return bind(scatter_add, z, z * 2, i, pattern=(ARRAY,)), ft.numpy.take(z, i)

    expected = z.copy()
    np.add.at(expected, i, 2 * z)
    for y, e in zip(native(f, z, i), (expected, z[i]), strict=True):
        close(y, e)


# ---- products


@DTYPES
@pytest.mark.parametrize("n, k, m", [(1, 5, 1), (2, 3, 2), (20, 30, 25), (40, 50, 1), (1, 40, 60)])
def test_products_with_any_layout_are_numpys(n, k, m, dtype):
    a, b = numbers(n, k, dtype=dtype), numbers(k, m, dtype=dtype, seed=1)

    def f(a, b):
        return a @ b, (b.T @ a.T).T, a.conj() @ b, a[:, ::-1] @ b[::-1], np.einsum("ij,jk", a, b)

    for y, e in zip(native(f, a, b), f(a, b), strict=True):
        close(y, e, 64)


def test_a_large_product_is_a_call():
    a = numbers(20, 20)
    compiled = NativeProgram(make_program(lambda a: a @ a.T)(a))
    assert [s.name for s in compiled.schedule.steps if isinstance(s, Call)] == ["gemm"]
    close(compiled([a])[0], a @ a.T, 64)


# ---- transforms


def wave(z):
    return np.sum(np.abs(np.exp(1j * z) * z[::-1] + 2) ** 2)


def spectrum(z):
    n = np.arange(z.shape[0])
    turns = np.exp(-2j * np.pi * np.outer(n, n) / z.shape[0])
    return np.sum(np.real(turns @ z) ** 2 / (1 + np.imag(z.conj() * z[0]) ** 2))


def roots(z):
    return np.sum(np.abs(np.sqrt(z) + np.log(z + 5) / z)) + np.prod(np.abs(z[:3] / 2))


@pytest.mark.parametrize("f", [wave, spectrum, roots])
@pytest.mark.parametrize("transform", [
    lambda f: f, ft.grad, lambda f: ft.grad(lambda z: np.sum(np.abs(ft.grad(f)(z)) ** 2)),
    lambda f: lambda z: ft.jvp(f, (z,), (z * 1j,)),
    lambda f: lambda z: ft.vmap(ft.grad(f))(np.stack([z, 2 * z])),
], ids=["itself", "grad", "grad of grad", "jvp", "vmap of grad"])
def test_transforms_give_what_they_give_without_compiling(transform, f):
    z = numbers(6) + 3
    g = transform(f)
    expected, found = ft.tree.leaves(g(z)), ft.tree.leaves(ft.jit(g)(z))
    for y, e in zip(found, expected, strict=True):
        assert_allclose(y, e, rtol=1e-11, atol=1e-11 * np.abs(e).max())


def test_the_gradient_of_a_wave_has_no_host_step():
    assert "host" not in repr(ft.jit(ft.grad(wave)).lower(numbers(6)).schedule)


def test_a_loop_carries_complex_numbers():
    def f(z):
        return ft.scan(lambda c, v: (c * v + 1j, c), z[0], z)

    for y, e in zip(native(f, numbers(7)), f(numbers(7)), strict=True):
        close(y, e)


def test_a_complex_python_number_stays_weak():
    z = numbers(3, dtype=np.complex64)
    y = ft.jit(lambda z, s: z * s + 2j)(z, 1 + 2j)
    assert y.dtype == np.complex64
    close(np.asarray(y), z * (1 + 2j) + 2j)


@DTYPES
@pytest.mark.parametrize("f", [np.cumprod, lambda x: np.cumprod(np.cumsum(x)[::-1])],
                         ids=["cumprod", "of sums"])
def test_derivatives_of_running_products(f, dtype):
    x, t = numbers(2, 4, dtype=dtype)
    slope = ft.jvp(f, x, t)[1]
    tight = {"rtol": 1e-5 if dtype == np.complex64 else 1e-13}
    assert_allclose(ft.jvp(ft.jit(f), x, t)[1], slope, **tight)
    assert_allclose(native(lambda x, t: ft.jvp(f, x, t)[1], x, t)[0], slope, **tight)

    def pulled(x, ct):
        return ft.vjp(f, x)[1](ct)[0]

    assert_allclose(native(pulled, x, t)[0], pulled(x, t), **tight)


def test_functions_of_the_parts_change_no_other_part():
    z = pairs([0.0, -0.0, 1.25, -2.5, np.inf, -np.inf])

    def written(z):
        y = ft.numpy.zeros(z.shape, complex)
        y.real[:] = z.real
        y.imag[:] = z.imag
        return y

    functions = np.sign, lambda z: np.round(z, 1), lambda z: np.nan_to_num(z, posinf=np.inf)
    for f in (*functions, written):
        assert_same_bits(ft.jit(f)(z), f(z))
        assert_same_bits(ft.jvp(f, (z,), (z,))[0], f(z))
