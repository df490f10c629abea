"""Products of a matrix and a vector that stand in for BLAS's, against NumPy."""

import ctypes

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import functrans as ft
from functrans._compile.run import gemm, gemv
from functrans._compile.run.machine import local
from functrans._kernels import routines
from tests.compile.test_gemm import DTYPES, whole_numbers
from tests.covering import covering

BLAS = routines.available()
LENGTHS = [1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 100, 130]
LINES = [1, 2, 7, 8, 9, 16, 23, 64, 101]

pytestmark = pytest.mark.skipif(BLAS is None, reason="no BLAS")


def function(letter, most):
    """``y = a @ x`` where rows of ``a`` are lines of memory, ``y = x @ a`` where ``added``.

    ``beta``: times how much of what was in ``y`` that is added to.
    """
    assert BLAS is not None
    text = gemv.text(letter, gemm.TYPES[letter], most)
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 11, ctypes.c_int64)
    native = kind(gemm.compiled(local(), BLAS, f"{letter}gemv", lambda: text))

    def call(a, x, y, added, beta=0):
        one, beta, step = np.ones(1, y.dtype), np.full(1, beta, y.dtype), np.ones(1, np.int64)
        steps = [v.strides[0] // v.itemsize for v in (a, x)]
        lines, length, lead, step_x = (np.array([n]) for n in (*a.shape, *steps))
        native(ctypes.create_string_buffer(b"N" if added else b"T"),
               *[v.ctypes.data for v in (length, lines, one, a, lead, x, step_x, beta, y, step)], 1)

    return call


@pytest.fixture(scope="module", params=DTYPES)
def product(request):
    """A product that leaves nothing large to BLAS, and its dtype."""
    return function(request.param, 1 << 62), DTYPES[request.param]


@pytest.mark.parametrize(("lines", "length", "added"), covering(LINES, LENGTHS, [False, True]))
def test_products_of_whole_numbers_are_exact_and_write_nothing_else(product, lines, length, added):
    call, dtype = product
    a = whole_numbers(lines, length, dtype)
    x = whole_numbers(1, lines if added else length, dtype, seed=1)[0]
    expected = np.full((length if added else lines) + 2, np.nan, dtype)
    room = expected.copy()
    call(a, x, room[1:-1], added)
    expected[1:-1] = x @ a if added else a @ x
    assert_array_equal(room, expected)


@pytest.mark.parametrize(("lines", "length", "added"), covering(LINES, LENGTHS, [False, True]))
def test_products_are_added_to_what_is_there(product, lines, length, added):
    call, dtype = product
    a = whole_numbers(lines, length, dtype)
    x = whole_numbers(1, lines if added else length, dtype, seed=1)[0]
    y = whole_numbers(1, length if added else lines, dtype, seed=2)[0].copy()
    expected = y + (x @ a if added else a @ x)
    call(a, x, y, added, beta=1)
    assert_array_equal(y, expected)


@pytest.mark.parametrize("added", [False, True])
def test_what_is_not_finite_stays_where_it_is(product, added):
    call, dtype = product
    a = whole_numbers(21, 37, dtype)
    a[3, 36], a[20, 5] = np.nan, np.inf
    x = np.ones(21 if added else 37, dtype)
    y = np.empty(37 if added else 21, dtype)
    call(a, x, y, added)
    assert_array_equal(y, x @ a if added else a @ x)


@pytest.mark.parametrize("added", [False, True])
def test_no_terms_are_lost_to_cancellation(product, added):
    call, dtype = product
    a = np.random.default_rng(0).normal(size=(650, 650)).astype(dtype)
    x, y = a[0].copy(), np.empty(650, dtype)
    call(a, x, y, added)
    wide = (a.T if added else a).astype("g")
    bound = 40 * np.finfo(dtype).eps * (np.abs(wide) @ np.abs(x))
    assert np.all(np.abs(y - wide @ x.astype("g")) <= bound)


@pytest.mark.parametrize("added", [False, True])
def test_large_matrices_and_entries_apart_are_left_to_blas(added):
    a, x = whole_numbers(20, 20, float), whole_numbers(40, 1, float, seed=1)[::2, 0]
    for most, vector in ((399, np.ascontiguousarray(x)), (400, x)):
        y = np.empty(20)
        function("d", most)(a, vector, y, added)
        assert_array_equal(y, vector @ a if added else a @ vector)


def test_compiled_programs_call_them():
    a, x = whole_numbers(90, 70, float), whole_numbers(1, 90, float, seed=1)[0]
    assert_array_equal(ft.jit(lambda a, x: x @ a)(a, x), x @ a)
    assert_array_equal(ft.jit(lambda a, x: a @ x)(a.T.copy(), x), x @ a)
    assert_array_equal(ft.jit(lambda a, x: a @ x)(a, x[:70]), a @ x[:70])
