"""Products of matrices that stand in for BLAS's, against NumPy."""

import ctypes

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from functrans._compile.run import gemm
from functrans._compile.run.machine import local
from functrans._kernels import routines
from tests.covering import covering
from tests.threads import at_once

DTYPES = {"d": np.float64, "s": np.float32}
SIDES = [1, 3, 4, 5, 15, 16, 17, 24, 31, 48, 50, 63, 130, 193, 385, 513]
TERMS = [7, 16, 21, 64, 319, 320, 321, 650]
BLAS = routines.available()

pytestmark = pytest.mark.skipif(BLAS is None, reason="no BLAS")


def function(letter, most, fewest=0):
    """A product of a dtype as compiled code calls it, into ``c``, or added to it.

    Rows of ``c`` are lines of memory; of ``a`` and ``b`` rows or columns.
    """
    assert BLAS is not None
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13, ctypes.c_int64, ctypes.c_int64)
    text = gemm.text(letter, most, fewest)
    native = kind(gemm.compiled(local(), BLAS, f"{letter}gemm", lambda: text))

    def call(a, b, c, adds=False):
        (m, k), n = a.shape, b.shape[1]
        one, beta = np.ones(1, c.dtype), np.full(1, adds, c.dtype)
        how = [b"N" if x.strides[1] == x.itemsize else b"T" for x in (b, a)]
        lead = [np.array([max(x.strides) // x.itemsize]) for x in (b, a, c)]
        sizes = [np.array([size]) for size in (n, m, k)]
        letters = [ctypes.create_string_buffer(x) for x in how]
        native(*letters, *[x.ctypes.data for x in (*sizes, one)], b.ctypes.data,
               lead[0].ctypes.data, a.ctypes.data, lead[1].ctypes.data, beta.ctypes.data,
               c.ctypes.data, lead[2].ctypes.data, 1, 1)

    return call


@pytest.fixture(scope="module", params=DTYPES)
def product(request):
    """A product that leaves nothing large to BLAS, and its dtype."""
    return function(request.param, 1 << 62), DTYPES[request.param]


def whole_numbers(rows, columns, dtype, by_columns=False, seed=0):
    """Part of a larger matrix: sums of products of its entries are exact in any order."""
    draw = np.random.default_rng(seed).integers(-9, 10, (rows + 3, columns + 5)).astype(dtype)
    if by_columns:
        return np.ascontiguousarray(draw.T).T[1 : rows + 1, 2 : columns + 2]
    return draw[1 : rows + 1, 2 : columns + 2]


@pytest.mark.parametrize(("m", "k", "n", "turned"), covering(
    SIDES, TERMS, SIDES, [(False, False), (False, True), (True, False), (True, True)]))
def test_products_of_whole_numbers_are_exact_and_write_nothing_else(product, m, k, n, turned):
    call, dtype = product
    a = whole_numbers(m, k, dtype, turned[0])
    b = whole_numbers(k, n, dtype, turned[1], seed=1)
    room = np.full((m + 2, n + 2), np.nan, dtype)
    call(a, b, room[1:-1, 1:-1])
    expected = np.full_like(room, np.nan)
    expected[1:-1, 1:-1] = a @ b
    assert_array_equal(room, expected)


@pytest.mark.parametrize(("m", "k", "n"), [(5, 7, 9), (48, 64, 16), (63, 650, 130), (3, 9, 9)])
def test_products_are_added_to_what_is_there(product, m, k, n):
    call, dtype = product
    a, b = whole_numbers(m, k, dtype), whole_numbers(k, n, dtype, seed=1)
    c = whole_numbers(m, n, dtype, seed=2)
    expected = c + a @ b
    call(a, b, c, adds=True)
    assert_array_equal(c, expected)


def test_what_is_not_finite_stays_in_its_row_and_column(product):
    call, dtype = product
    a, b = whole_numbers(40, 330, dtype), whole_numbers(330, 37, dtype, seed=1)
    a[3, 5], b[7, 36] = np.nan, np.inf
    y = np.empty((40, 37), dtype)
    call(a, b, y)
    with np.errstate(invalid="ignore"):
        assert_array_equal(y, a @ b)


def test_no_terms_are_lost_to_cancellation(product):
    call, dtype = product
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(50, 650)).astype(dtype), rng.normal(size=(650, 30)).astype(dtype)
    y = np.empty((50, 30), dtype)
    call(a, b, y)
    bound = 40 * np.finfo(dtype).eps * (np.abs(a).astype("g") @ np.abs(b))
    assert np.all(np.abs(y - a.astype("g") @ b.astype("g")) <= bound)


def test_threads_have_room_of_their_own(product):
    call, dtype = product
    a, b = whole_numbers(385, 650, dtype), whole_numbers(650, 300, dtype, seed=1)
    results = np.empty((4, 385, 300), dtype)

    def work(y):
        for _ in range(20):
            call(a, b, y)

    at_once(work, results)
    assert_array_equal(results, np.broadcast_to(a @ b, results.shape))


def test_what_is_beyond_its_size_is_left_to_blas():
    a, b = whole_numbers(30, 40, float), whole_numbers(40, 20, float, seed=1)
    for most in (30 * 40 * 20, 30 * 40 * 20 - 1):
        y = np.empty((30, 20))
        function("d", most)(a, b, y)
        assert_array_equal(y, a @ b)


def test_what_is_below_its_size_is_left_to_blas():
    a, b = whole_numbers(30, 40, float), whole_numbers(40, 20, float, seed=1)
    for fewest in (30 * 40 * 20, 30 * 40 * 20 + 1):
        y = np.empty((30, 20))
        function("d", 1 << 62, fewest)(a, b, y)
        assert_array_equal(y, a @ b)


def test_it_stands_in_for_code_of_narrower_vectors_and_inside_tiles():
    assert BLAS is not None
    made = {core: set(gemm.stand_in(local(), BLAS._replace(core=core)))
            for core in ("Haswell", "SkylakeX", "")}
    tiled = set(routines.TILED) if local().wide else set()
    of_narrow = {f"functrans_{letter}{name}" for letter in "sd" for name in ("gemm", "gemv")}
    assert made == {"Haswell": tiled | of_narrow if tiled else set(), "SkylakeX": tiled, "": set()}
