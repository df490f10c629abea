"""Constant sparse matrices: prepared once, kept as long as they live, and compared at each use."""

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import functrans as ft
from functrans._kernels import large, sizes
from functrans._ops.sparse import Constant
from functrans.scipy.sparse import constants, linalg
from tests.drawing import generator
from tests.scipy.agreement import close

ss: Any = scipy.sparse  # its types say less than its functions take
RNG = generator(1)
DENSE = np.where(RNG.uniform(size=(5, 5)) < 0.5, RNG.normal(size=(5, 5)), 0.0) + 3 * np.eye(5)
X = RNG.normal(size=5)
FORMATS = ["csr_array", "csc_array", "coo_array", "csr_matrix", "bsr_array", "dia_array"]


@pytest.fixture
def prepared(monkeypatch):
    """The matrices that are prepared."""
    found, of = [], Constant.of
    monkeypatch.setattr(constants, "_KEPT", {})
    monkeypatch.setattr(Constant, "of", lambda A: found.append(A) or of(A))
    return found


def squares(A, x):
    return np.sum((A @ x) ** 2)


@pytest.mark.parametrize("name", FORMATS)
def test_a_constant_matrix_is_prepared_once(name, prepared):
    A = getattr(ss, name)(DENSE)
    for _ in range(3):
        close(ft.grad(lambda x: squares(A, x))(X), 2 * DENSE.T @ (DENSE @ X))
    close(ft.jit(ft.grad(lambda x: squares(A, x)))(X), 2 * DENSE.T @ (DENSE @ X))
    assert len(prepared) == 1


@pytest.mark.parametrize("name", ["csr_array", "csc_array", "coo_matrix"])
def test_its_transpose_is_prepared_with_it(name, prepared):
    A = getattr(ss, name)(DENSE)
    normal = DENSE.T @ DENSE
    for _ in range(2):
        H = ft.hessian(lambda x: np.sum((A.T @ (A @ x)) ** 2) + np.sum((x @ A) ** 2))(X)
        close(np.asarray(H), 2 * (normal @ normal + DENSE @ DENSE.T))
    assert len(prepared) == 1


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_written_into_a_constant_matrix_is_seen_at_the_next_call(name):
    A = getattr(ss, name)(DENSE)
    eager = ft.grad(lambda x: squares(A, x))
    eager(X)
    A.data.flat[np.flatnonzero(A.data)[1]] += 1.0
    close(eager(X), 2 * A.toarray().T @ (A.toarray() @ X))
    places = A.offsets if name == "dia_array" else A.coords[0] if "coo" in name else A.indices
    places[:2] = places[1::-1].copy()
    close(eager(X), 2 * A.toarray().T @ (A.toarray() @ X))


@pytest.mark.parametrize("name", FORMATS)
def test_a_derivative_is_that_of_the_matrix_at_its_run(name):
    A = getattr(ss, name)(DENSE)
    y, pull = ft.vjp(lambda x: A @ x, X)
    _, push = ft.linearize(lambda x: A @ x, X)
    A.data[:] = 0.0
    close(pull(y)[0], DENSE.T @ (DENSE @ X))
    close(push(X), DENSE @ X)
    close(np.asarray(ft.jacobian(lambda x: A @ x)(X)), np.zeros((5, 5)))


def test_nothing_is_kept_of_a_matrix_that_is_gone(prepared):
    def run(A):
        ft.grad(lambda x: squares(A, x))(X)
        assert len(constants._KEPT) == 1

    run(ss.csr_array(DENSE))
    prepared.clear()
    gc.collect()
    assert not constants._KEPT


def test_entries_that_are_infinite_meet_zeros_as_those_of_dense_matrices_do():
    dense = DENSE.copy()
    dense[0, 0] = np.inf
    for A in (dense, ss.csr_array(dense)):
        g = ft.grad(lambda x, A=A: np.sum((A @ x)[1:] ** 2))(X)
        close(g, 2 * DENSE[1:].T @ (DENSE[1:] @ X))


@pytest.mark.parametrize(("dtype", "x", "expected"), [
    (np.float32, X.astype(np.float32), np.float32), (np.int64, X, np.float64),
    (bool, X.astype(np.float32), np.float32), (complex, X, np.float64),
], ids=["float32", "integers", "booleans", "complex"])
def test_gradients_by_constant_matrices_have_the_type_of_the_argument(dtype, x, expected):
    dense = (2 * DENSE).astype(dtype)
    A = ss.csr_array(dense)
    g = ft.grad(lambda x: np.sum(np.abs(A @ x) ** 2))(x)
    assert g.dtype == expected
    exact = 2 * (np.conj(dense.T) @ (dense @ x.astype(float))).real
    np.testing.assert_allclose(g, exact, 1e-5 if x.dtype == np.float32 else 1e-13)


def test_a_large_constant_matrix_is_in_memory_twice():
    A = ss.random_array((3000, 3000), density=0.02, rng=0).tocsr()
    x, nbytes = np.ones(3000), A.data.nbytes + A.indices.nbytes + A.indptr.nbytes
    f = ft.grad(lambda x: squares(A, x))
    ft.grad(lambda x: squares(A.copy(), x))(x)  # loads what is needed
    for run in (f, f):
        tracemalloc.start()
        try:
            run(x)
            assert tracemalloc.get_traced_memory()[1] < 1.2 * nbytes
        finally:
            tracemalloc.stop()


def test_the_factors_of_a_constant_matrix_are_kept(monkeypatch):
    A, made, splu = ss.csc_array(DENSE), [], scipy.sparse.linalg.splu
    monkeypatch.setattr(scipy.sparse.linalg, "splu", lambda *a: made.append(a) or splu(*a))
    for _ in range(3):
        g = ft.grad(lambda b: np.sum(linalg.spsolve(A, b) ** 2))(X)
        close(g, 2 * np.linalg.solve(DENSE.T, np.linalg.solve(DENSE, X)))
    assert len(made) == 1


def test_factors_made_before_a_matrix_changes_are_those_of_the_matrix_before():
    B = ss.csc_array(DENSE + np.eye(5))
    factors = linalg.splu(B)
    B.data[:] = 1.0  # which the factors do not see
    g = ft.grad(lambda b: np.sum(factors.solve(b) ** 2))(X)
    inverse = np.linalg.inv(DENSE + np.eye(5))
    close(g, 2 * inverse.T @ (inverse @ X))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_products_by_native_code_have_the_bits_of_scipy_s(dtype, index, monkeypatch):
    monkeypatch.setattr(sizes, "SPARSE", 1)
    A = ss.random_array((300, 200), density=0.05, rng=0, dtype=dtype).tocsr()
    A.data[A.indptr[7] : A.indptr[9]] = 0.0
    A.eliminate_zeros()  # there are empty rows
    A.indices, A.indptr = A.indices.astype(index), A.indptr.astype(index)
    x = generator(0).normal(size=(200, 3)).astype(dtype)
    for v in (x[:, 0], x, x[:, :1], x[:0].reshape(200, 0)):
        y = large.sparse_product(A, v)
        assert y.dtype == dtype and y.shape == (A @ v).shape
        assert np.array_equal(y, A @ v)
