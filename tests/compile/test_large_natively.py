"""Rows on large plain arrays are native code: the same numbers as by NumPy, one op to who watches.
"""

import functools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
from functrans._compile.run.machine import NativeUnavailable
from functrans._compile.run.native import Executable
from functrans._kernels import sizes
from functrans._ops.declare import TABLE
from functrans._ops.linalg import triangular_solve
from functrans._ops.reductions import cumsum
from functrans._transforms.staging import jit, native_rows
from functrans.profile import profile

pytestmark = pytest.mark.usefixtures("seldom_optimised")

SHAPE = 1 << 11, 1 << 9
RTOL = {"f": 2e-5, "d": 1e-12, "F": 2e-5, "D": 1e-12}  # sums in another order; native exp


@pytest.fixture
def native(monkeypatch):
    """The results of native code in the test, None where there was none."""
    found = []

    def watched(run):
        def seen(*args, **kwargs):
            found.append(run(*args, **kwargs))
            return found[-1]

        return seen

    monkeypatch.setattr(native_rows, "compiled", watched(native_rows.compiled))
    run = watched(native_rows.kernels())
    monkeypatch.setattr(native_rows, "kernels", lambda: run)
    return found


@functools.cache
def normal():
    return np.random.default_rng(0).normal(size=SHAPE)


def draw(dtype=np.float64):
    x = normal()
    return (x * 1j + x[::-1] if np.dtype(dtype).kind == "c" else x).astype(dtype)


ROWS = {
    "cummax": lambda x: np.maximum.accumulate(x, axis=1),
    "cummin": lambda x: np.minimum.accumulate(x, axis=1),
    "cumprod": lambda x: np.cumprod(1 + x / 64, axis=1),
    "cumsum": lambda x: np.cumsum(x, axis=1),
    "cumsum of everything": lambda x: np.cumsum(x),
    "logsumexp": lambda x: np.logaddexp.reduce(x, axis=1),
    "logsumexp of columns": lambda x: np.logaddexp.reduce(x, axis=0),
    "logsumexp of everything": lambda x: np.logaddexp.reduce(x, axis=None),
    "max": lambda x: np.max(x, axis=1),
    "max of everything": lambda x: np.max(x),
    "min": lambda x: np.min(x, axis=0),
    "norm": lambda x: np.linalg.norm(x, axis=1),
    "norm of everything": lambda x: np.linalg.norm(x),
    "norm of columns": lambda x: np.linalg.norm(x, axis=0),
    "softmax": lambda x: ft.grad(lambda x: np.logaddexp.reduce(x, axis=1).sum())(x),
}


def value_and_pullback(f, x, ct):
    with np.errstate(all="ignore"):
        y, pullback = ft.vjp(f, x)
        return y, pullback(ct)[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ROWS)
def test_numbers_are_those_of_numpy(name, dtype, native):
    x = draw(dtype)
    with ft.config(jit=False):
        ct = np.array(ROWS[name](x))
        expected = value_and_pullback(ROWS[name], x, ct)
        assert not native
    found = value_and_pullback(ROWS[name], x, ct)
    # norms have no code of their own for each shape, but a kernel for rows
    assert len(native) >= {"norm of everything": 1, "norm of columns": 0}.get(name, 2)
    assert all(ys is not None for ys in native)
    for y, e in zip(found, expected, strict=True):
        assert type(y) is ft.Array
        assert y.dtype == e.dtype == dtype
        # float32 by NumPy is the less exact of the two where it adds up one by one
        rtol = RTOL[x.dtype.char] * (1000 if "cum" in name and dtype == np.float32 else 1)
        assert_allclose(y, e, rtol=rtol, atol=rtol * np.abs(e).max())


SPECIAL = {
    "infinities": ([np.inf, -np.inf], [0, 1]),
    "one infinity": ([np.inf], [3]),
    "minus infinity": ([-np.inf], [7]),
    "nan": ([np.nan], [2]),
    "ties": ([9.0, 9.0, 9.0], [4, 5, 6]),
    "huge": ([1e300, 1e300], [8, 9]),
    "tiny": ([1e-200, 1e-310], [1, 2]),
    "nan and infinity": ([np.nan, np.inf], [8, 9]),
}


@pytest.mark.parametrize("values", SPECIAL)
@pytest.mark.parametrize("name", ["logsumexp", "max", "min", "cumsum", "cummax", "cummin", "norm"])
def test_special_values_are_those_of_numpy(name, values, native):
    x = draw()
    numbers, places = SPECIAL[values]
    x[5, places] = numbers
    x[11] = -np.inf
    x[12] = 0.0
    x[13, ::2] = -0.0
    x[14] = 1e-180
    x[15] = 1e180
    with np.errstate(all="ignore"), ft.config(jit=False):
        ct = np.ones_like(ROWS[name](x))
        expected = value_and_pullback(ROWS[name], x, ct)
    found = value_and_pullback(ROWS[name], x, ct)
    assert native
    for y, e in zip(found, expected, strict=True):
        assert_allclose(y, e, rtol=1e-12, atol=1e-12)


SMALL = {
    **ROWS, "cholesky": lambda x: np.linalg.cholesky(x @ x.T + 16 * np.eye(16)),
    "triangular_solve": lambda x: triangular_solve(
        x + 9 * np.eye(16), x, lower=True, transposed=False, unit=False
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_numbers_do_not_depend_on_when_native_code_begins(name, native, monkeypatch):
    x = draw()[:16, :16].copy()
    ct = np.array(SMALL[name](x))
    expected = value_and_pullback(SMALL[name], x, ct)
    assert not native
    for size in ("LARGE", "NATIVE", "SYSTEM", "PASSES"):
        monkeypatch.setattr(sizes, size, 200)
    found = value_and_pullback(SMALL[name], x, ct)
    assert native or name in ("norm of everything", "norm of columns")
    assert all(ys is not None for ys in native)
    for y, e in zip(found, expected, strict=True):
        assert_allclose(y, e, rtol=1e-12, atol=1e-12)


def test_sizes_from_which_rows_are_native_have_names():
    names = {r.name: r.facts.native_from for r in TABLE.values() if r.facts.native_from}
    assert {"logsumexp", "cumsum", "cholesky"} <= names.keys()
    assert all(getattr(sizes, name) >= sizes.LARGE for name in names.values())


def test_sums_of_complex_numbers(native):
    x = draw(np.complex128)
    y, g = value_and_pullback(lambda x: np.cumsum(x, axis=0), x, x)
    assert len(native) == 2
    assert_allclose(y, np.cumsum(x, axis=0), rtol=1e-12, atol=1e-10)
    assert_allclose(g, np.cumsum(x[::-1], axis=0)[::-1], rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("change", [
    lambda x: x[:, :-1], lambda x: x.astype(np.longdouble), lambda x: x.astype(np.float16),
    lambda x: (8 * x).astype(np.int64), lambda x: x.astype(x.dtype.newbyteorder()),
], ids=["smaller", "longdouble", "float16", "integers", "foreign byte order"])
def test_what_numpy_keeps(change, native):
    x = change(draw())
    y = cumsum(x, axis=1, reverse=False)
    assert not native
    assert_array_equal(y, np.cumsum(x, axis=1))


@pytest.mark.parametrize("layout", [
    lambda x: x.T, lambda x: x[::-1, ::-1], lambda x: np.broadcast_to(x[0], x.shape),
    lambda x: np.lib.stride_tricks.as_strided(x, (1 << 10, 1 << 10), (8, 16)),
], ids=["transposed", "reversed", "broadcast", "overlapping"])
def test_any_layout(layout, native):
    x = layout(draw())
    x.flags.writeable = False
    y, g = value_and_pullback(lambda x: np.max(x, axis=1), x, np.ones(len(x)))
    assert len(native) == 2
    assert_array_equal(y, np.max(x, axis=1))
    tie = x == np.max(x, axis=1, keepdims=True)
    assert_allclose(g, tie / tie.sum(1, keepdims=True), rtol=1e-14)


def definite(n=400, dtype=np.float64):
    x = np.random.default_rng(0).normal(size=(n, n))
    x = x * 1j + x.T[::-1] if np.dtype(dtype).kind == "c" else x
    return (x @ x.conj().T + n * np.eye(n)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("f", [
    np.linalg.cholesky, lambda a: triangular_solve(
        a, a[:, :7], lower=True, transposed=False, unit=False
    ),
], ids=["cholesky", "triangular_solve"])
def test_systems(f, dtype, native):
    a = definite(dtype=dtype)
    with ft.config(jit=False):
        y = f(a)
        expected = value_and_pullback(f, a, y)
        assert not native
    found = value_and_pullback(f, a, y)
    assert native
    assert all(ys is not None for ys in native)
    for y, e in zip(found, expected, strict=True):
        rtol = 2e-3 if dtype == np.float32 else 1e-10  # the condition of the matrix, about 20 n
        assert_allclose(y, e, rtol=rtol, atol=rtol * np.abs(e).max())


def test_singular_systems_raise_as_ever(native):
    a = np.tril(definite())
    a[7, 7] = 0
    for jit_is_on in (True, False):
        with ft.config(jit=jit_is_on), pytest.raises(np.linalg.LinAlgError, match="Singular"):
            triangular_solve(a, a, lower=True, transposed=False, unit=False)
    assert len(native) == 0


def test_second_derivatives(native):
    x, t = draw(), draw()[::-1]
    _, (second,) = ft.hvp(lambda x: np.logaddexp.reduce(x, axis=1).sum(), (x,), (t,))
    p = ft.grad(lambda x: np.logaddexp.reduce(x, axis=1).sum())(x)
    assert native
    expected = p * t - p * (p * t).sum(1, keepdims=True)
    assert_allclose(second, expected, rtol=1e-10, atol=1e-15)  # differences of near numbers


def test_each_kind_is_staged_once(native, monkeypatch):
    x, staged = draw(), []
    stage = jit.Jitted._staged

    def seen(*args, **options):
        staged.append(args)
        return stage(*args, **options)

    monkeypatch.setattr(jit.Jitted, "_staged", seen)
    for shape in ((1 << 5, 1 << 15), (1 << 5, 1 << 15), (1 << 6, 1 << 14)):
        cumsum(x.reshape(shape), axis=1, reverse=False)
    assert len(native) == 3
    assert len(staged) == 2


def test_without_native_code_numpy_does_it_and_nobody_is_warned(monkeypatch, native):
    monkeypatch.setattr(Executable, "code", NativeUnavailable("no LLVM here"))
    x = draw().reshape(1 << 9, 1 << 11)  # not a kind that was made before
    assert_array_equal(cumsum(x, axis=0, reverse=False), np.cumsum(x, axis=0))
    assert native == [None]


def test_kinks_are_watched_on_large_arrays_too(native):
    x = draw()
    x[0] = 9
    with ft.config(kinks="raise"), pytest.raises(ft.errors.NotDifferentiable, match="max"):
        ft.grad(lambda x: np.max(x, axis=1).sum())(x)
    assert not native


def test_a_profile_shows_one_op(native):
    x = draw()
    with profile() as prof:
        ft.grad(lambda x: np.logaddexp.reduce(x, axis=1).sum())(x)
    assert native
    names = [event.name for event in prof.function_events]
    assert [n for n in names if "logsumexp" in n] == ["logsumexp", "logsumexp backward"]
    assert not {"exp", "max", "softmax", "log"} & set(names)


def test_an_error_inside_leaves_no_trace(native):
    x = draw()
    with pytest.raises(ValueError, match="axis"):
        ft.grad(lambda x: np.cumsum(x, axis=7).sum())(x)
    assert ft.config.jit
