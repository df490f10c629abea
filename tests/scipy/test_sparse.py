"""Sparse arrays: products with traced values, traced entries, and systems, against dense ones."""

from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg

import functrans as ft
from functrans.errors import (
    ArgumentError,
    ConcretizationError,
    SolverError,
    UnsupportedError,
)
from functrans.scipy import sparse
from functrans.scipy.sparse import linalg
from functrans.testing import check_grads
from tests.drawing import generator
from tests.scipy.agreement import assert_derivatives, assert_transforms, close

ss: Any = scipy.sparse  # its types say less than its functions take
RNG = generator(0)
DENSE = np.where(RNG.uniform(size=(4, 4)) < 0.5, RNG.normal(size=(4, 4)), 0.0) + 3 * np.eye(4)
X, M = RNG.normal(size=4), RNG.normal(size=(4, 3))
FORMATS = ["csr_array", "csc_array", "coo_array", "dia_array", "bsr_array", "csr_matrix",
           "csc_matrix", "coo_matrix"]
LISTS = ["lil_array", "dok_array", "lil_matrix"]
DATA, INDICES, STARTS = ss.csr_array(DENSE).data, *[
    getattr(ss.csr_array(DENSE), name) for name in ("indices", "indptr")]


def made(data, name="csr_array"):
    return getattr(sparse, name)((data, INDICES, STARTS), shape=(4, 4))


@pytest.mark.parametrize("name", FORMATS + LISTS)
def test_constant_arrays_take_part_in_products(name):
    A = getattr(ss, name)(DENSE)
    for f, x in [(lambda x: A @ x, X), (lambda x: A @ x, M), (lambda x: x @ A, X),
                 (lambda x: x @ A, M.T), (lambda x: A.T @ x, M)]:
        y, pull = ft.vjp(f, x)
        close(np.asarray(y), np.asarray(f(x)))
        J = np.asarray(ft.jacfwd(f)(x)).reshape(y.size, -1)
        close(np.asarray(pull(np.ones_like(y))[0]), J.sum(0).reshape(x.shape))
        close(np.asarray(ft.jit(f)(x)), np.asarray(f(x)))
    close(ft.vmap(lambda x: A @ x)(M.T), (A @ M).T)
    close(ft.vjp(A.dot, X)[0], DENSE @ X)


def test_the_product_of_older_matrices_is_that_of_matrices():
    A = ss.csr_matrix(DENSE)
    close(ft.vjp(lambda x: A * x, X)[0], A * X)
    close(ft.vjp(lambda x: x * A, X)[0], X * A)
    close(np.asarray(ft.grad(lambda a: ((a * A) @ X).sum())(2.0)), np.asarray((A @ X).sum()))


def test_a_constant_array_that_changes_is_seen_by_compiled_code():
    for name in FORMATS:
        A = getattr(ss, name)(DENSE)
        f = ft.jit(lambda x, A=A: A @ x)
        f(X)
        A.data.flat[np.flatnonzero(A.data)[0]] += 1.0
        close(np.asarray(f(X)), A @ X)


@pytest.mark.parametrize("name", ["csr_array", "csc_array"])
def test_entries_are_data(name):
    dense = getattr(ss, name)((DATA, INDICES, STARTS), shape=(4, 4)).toarray()
    for f, expected in [
        (lambda A: A.toarray(), dense), (lambda A: A @ X, dense @ X), (lambda A: X @ A, X @ dense),
        (lambda A: A.T @ M, dense.T @ M), (lambda A: M.T @ A, M.T @ dense),
        (lambda A: A.sum(), dense.sum()), (lambda A: A.sum(0), dense.sum(0)),
        (lambda A: A.sum(axis=1), dense.sum(1)), (lambda A: A.diagonal(), dense.diagonal()),
        (lambda A: (2.0 * A / 4.0 - A) @ X, -0.5 * dense @ X),
        (lambda A: A.multiply(X[:, None]) @ X, (dense * X[:, None]) @ X),
        (lambda A: (A / X).dot(X), (dense / X) @ X),
        (lambda A: (-A).dot(2.0).sum(), -2 * dense.sum()),
        (lambda A: (A @ A.T).toarray(), dense @ dense.T),
        (lambda A: (A @ ss.csr_array(DENSE)).toarray(), dense @ DENSE),
        (lambda A: (A + ss.csr_array(DENSE)).toarray(), dense + DENSE),
        (lambda A: A + np.ones((4, 4)), dense + 1),
        (lambda A: (0 + A).tocsr().copy().todense(), dense),
        (lambda A: (A.transpose() - A).tocoo().toarray(), dense.T - dense),
    ]:
        close(np.asarray(ft.vjp(lambda d, f=f: f(made(d, name)), DATA)[0]), np.asarray(expected))
        check_grads(lambda d, f=f: f(made(d, name)), DATA, order=1)


def test_entries_of_older_matrices():
    A = ss.csr_matrix((DATA, INDICES, STARTS), shape=(4, 4))
    for f in (lambda A: A * X, lambda A: X * A, lambda A: (2.0 * A * A).toarray(),
              lambda A: A.sum(0), lambda A: A.sum(1), lambda A: A @ M):
        y = ft.vjp(lambda d, f=f: f(made(d, "csr_matrix")), DATA)[0]
        close(np.asarray(y), np.asarray(f(A)))


def test_entries_and_vectors_in_every_transform():
    def f(d, x):
        return made(d) @ x

    expected = ss.csr_array((DATA, INDICES, STARTS), shape=(4, 4)) @ X
    close(ft.vjp(f, DATA, X)[0], expected)
    assert_transforms(f, DATA, X)
    assert_transforms(lambda d, x: made(d) @ x, DATA, M)
    close(ft.vmap(f, (None, 0))(DATA, M.T), ft.vmap(f)(np.stack([DATA] * 3), M.T))


def test_numbers_times_constant_arrays():
    A, B = ss.csr_array(DENSE), ss.csr_array(np.eye(4))

    def f(h):
        return (B + h * A - A / h) @ X

    close(ft.vjp(f, 2.0)[0], (B + 2.0 * A - A / 2.0) @ X)
    check_grads(f, 2.0)
    close(ft.vjp(lambda x: x - A, M[:, :1])[0], M[:, :1] - DENSE)


def test_other_constructors():
    rows = np.array([0, 1, 0, 0])
    for name in ("coo_array", "csr_matrix", "csc_array"):
        def f(d, name=name):  # two entries in one place
            return getattr(sparse, name)((d, (rows, [1, 1, 1, 0])), shape=(2, 3)).toarray()

        close(ft.vjp(f, X)[0], np.array([[X[3], X[0] + X[2], 0], [0, X[1], 0]]))
        check_grads(f, X)
        close(ft.vjp(lambda m, n=name: getattr(sparse, n)(m).toarray(), M)[0], M)
    close(ft.vjp(lambda d: sparse.diags_array(d).toarray(), X)[0], np.diag(X))
    expected = ss.diags([X, 2.0], [1, -1], shape=(5, 5)).toarray()
    close(ft.vjp(lambda d: sparse.diags([d, 2.0], [1, -1], shape=(5, 5)).toarray(), X)[0], expected)
    assert isinstance(sparse.csr_array(DENSE), ss.csr_array)


# ---- systems


@pytest.mark.parametrize("b", [X, M], ids=["vector", "matrix"])
def test_solutions_are_those_of_dense_systems(b):
    def f(d, b):
        return sparse.linalg.spsolve(made(d), b)

    close(ft.vjp(f, DATA, b)[0], np.linalg.solve(DENSE, b))
    check_grads(f, (DATA, b))
    assert_transforms(f, DATA, b)
    A = ss.csc_array(DENSE)
    assert_derivatives(lambda b: sparse.linalg.spsolve(A, b), b)


def test_factors_are_used_again_in_all_directions():
    lu = sparse.linalg.splu(ss.csc_array(DENSE))
    assert type(lu.solve(X)) is np.ndarray and lu.L.shape == (4, 4)
    for trans, A in [("N", DENSE), ("T", DENSE.T), ("H", DENSE.T)]:
        f = sparse.linalg.splu(ss.csc_array(DENSE)).solve
        close(ft.vjp(lambda b, f=f, t=trans: f(b, t), X)[0], np.linalg.solve(A, X))
        check_grads(lambda b, f=f, t=trans: f(b, t), X)
        check_grads(lambda d, t=trans: sparse.linalg.splu(made(d, "csc_array")).solve(X, t), DATA)
    check_grads(lambda d: sparse.linalg.factorized(made(d, "csc_array"))(X), DATA)
    complex_dense = DENSE + 1j * np.eye(4)
    lu = sparse.linalg.splu(ss.csc_array(complex_dense))
    close(ft.vjp(lambda b: lu.solve(b, "H"), X + 0j)[0],
          np.linalg.solve(complex_dense.conj().T, X + 0j))


SPD = DENSE @ DENSE.T
ITERATIONS = {"cg": SPD, "minres": SPD, "gmres": DENSE, "bicgstab": DENSE}


@pytest.mark.parametrize("name", ITERATIONS)
def test_iterations_are_differentiated_implicitly(name):
    A = ITERATIONS[name]
    options = {"rtol": 1e-13, "maxiter": 200} | ({"atol": 0.0} if name != "minres" else {})
    solve = getattr(sparse.linalg, name)

    def f(a, b):
        return solve(sparse.csr_array(a), b, **options)[0]

    close(ft.vjp(f, A, X)[0], np.linalg.solve(A, X), rtol=1e-9)  # that of the iteration
    g = ft.grad(lambda a, b: np.sum(f(a, b) ** 2), argnums=(0, 1))(A, X)
    expected = ft.grad(lambda a, b: np.sum(np.linalg.solve(a, b) ** 2), argnums=(0, 1))(A, X)
    close(g, expected, rtol=1e-8)  # the same
    close(ft.grad(lambda b: solve(ss.csr_array(A), b, **options)[0].sum())(X),
          np.linalg.solve(A.T, np.ones(4)), rtol=1e-9)  # the same
    assert solve(A, X, **options)[1] == 0


def test_matrices_that_are_known_by_their_products():
    def f(t, b):
        A = ss.linalg.LinearOperator((4, 4), matvec=lambda x: SPD @ x + t * x, dtype=float)
        return sparse.linalg.cg(A, b, rtol=1e-12)[0]

    def expected(t, b):
        return np.linalg.solve(SPD + t * np.eye(4), b)

    close(ft.jacobian(f, (0, 1))(0.5, X), ft.jacobian(expected, (0, 1))(0.5, X), rtol=1e-9)
    close(ft.grad(lambda t: f(t, X).sum())(0.5), ft.grad(lambda t: expected(t, X).sum())(0.5),
          rtol=1e-9)  # the same
    preconditioned = ft.vjp(lambda b: sparse.linalg.cg(SPD, b, M=np.eye(4), rtol=1e-12)[0], X)[0]
    close(preconditioned, np.linalg.solve(SPD, X), rtol=1e-9)


@pytest.mark.parametrize("size", [0.1, 1.0, 4.0])
def test_exponentials_act_as_dense_ones(size):
    def f(d, b):
        return sparse.linalg.expm_multiply(made(size * d), b)

    def expected(d, b):
        return ft.scipy.linalg.expm(made(size * d).toarray()) @ b

    d = -DATA / 4
    close(ft.vjp(f, d, X)[0], scipy.linalg.expm(-size * DENSE / 4) @ X)
    close(ft.jacobian(f, (0, 1))(d, X), ft.jacobian(expected, (0, 1))(d, X), rtol=1e-10)
    H = ft.hessian(lambda d: np.sum(f(d, X)))(d)
    close(H, ft.hessian(lambda d: np.sum(expected(d, X)))(d), rtol=1e-9)  # of two derivatives


def test_the_exponential_is_right_where_entries_are_neither_sorted_nor_single():
    at = [0, 0, 1, 2, 3, 3, 1, 1], [0, 2, 1, 2, 3, 0, 0, 1]
    data = np.array([0.8, 0.1, 0.6, 1.0, 0.4, 0.1, 0.1, 0.2])
    A = sparse.csr_array((data, at), shape=(4, 4)).toarray()
    y = ft.vjp(lambda d: sparse.linalg.expm_multiply(
        sparse.csr_array((d, at), shape=(4, 4)), M), data)[0]
    close(y, scipy.linalg.expm(A) @ M)


def test_exponentials_at_many_times():
    A = ss.csr_array(DENSE / 3)
    times = {"start": 0.0, "stop": 1.5, "num": 4}
    assert_derivatives(lambda b: sparse.linalg.expm_multiply(A, b, **times), X, order=1)


def test_bad_input_is_reported():
    for error, match, f in [
        (ValueError, "dimension mismatch", lambda d: made(d) @ np.ones(3)),
        (ValueError, "dimension mismatch", lambda d: made(d) @ ss.csr_array(np.ones((3, 1)))),
        (ValueError, "inconsistent shapes", lambda d: made(d) + ss.csr_array(np.ones((3, 1)))),
        (ValueError, "same length", lambda d: made(d[1:])),
        (ArgumentError, "csr_array got .* With traced entries", lambda d: sparse.csr_array(d)),
        (ValueError, "Diagonal length", lambda d: sparse.diags([d], [0], shape=(2, 2))),
        (ValueError, "rhs dimension mismatch", lambda d: sparse.linalg.spsolve(made(d), X[1:])),
        (ValueError, "must be square", lambda d: sparse.linalg.spsolve(ss.csr_array(M), d[:4])),
        (ValueError, "trans must be N", lambda d: sparse.linalg.splu(made(d)).solve(X, "x")),
        (RuntimeError, "singular", lambda d: sparse.linalg.spsolve(0 * made(d), X)),
        (SolverError, "gmres did not solve", lambda d: sparse.linalg.gmres(
            made(d), X, rtol=1e-14, restart=1, maxiter=1)),
        (SolverError, "cg did not solve", lambda d: sparse.linalg.cg(
            SPD, d[:4], M=np.eye(4), rtol=1e-14, maxiter=1)),
        (UnsupportedError, "cg got callback=", lambda d: sparse.linalg.cg(
            made(d), X, callback=print)),
        (UnsupportedError, "has no maximum", lambda d: made(d).maximum(2)),
        (UnsupportedError, "powers of entries .* by 2", lambda d: (made(d) + made(d)).power(2)),
        (ValueError, r"incompatible rows: \[1, 4\]", lambda d: sparse.hstack([made(d), [X]])),
        (ValueError, r"blocks\[1\]: all blocks of these columns are None",
         lambda d: sparse.bmat([[made(d), None]])),
        (AttributeError, "no attribute 'x'", lambda d: made(d).x),
        (UnsupportedError, "two sparse arrays", lambda d: made(d) * ss.csr_array(DENSE)),
        (ArgumentError, "no operator rpow", lambda d: sparse.arrays.with_operator(
            "rpow", d, ss.csr_array(DENSE))),
        (ValueError, "two axes here", lambda d: sparse.arrays.lifted(ss.coo_array(np.ones(3))) @ d),
        (UnsupportedError, "got a dense matrix", lambda d: sparse.linalg.expm_multiply(
            DENSE, d[:4])),
        (UnsupportedError, "got a LinearOperator", lambda d: sparse.linalg.expm_multiply(
            ss.linalg.aslinearoperator(DENSE), d[:4])),
        (ValueError, "like a square matrix", lambda d: sparse.linalg.expm_multiply(
            ss.csr_array(M), d[:3])),
        (ValueError, "are incompatible", lambda d: sparse.linalg.expm_multiply(made(d), X[1:])),
        (ConcretizationError, "from functrans.scipy import sparse",
         lambda d: ss.csr_array(DENSE) * d[0]),
    ]:
        with pytest.raises(error, match=match):
            ft.vjp(f, DATA)
    with pytest.raises(UnsupportedError, match="not known under jit or vmap"):
        ft.jit(lambda d: sparse.linalg.expm_multiply(made(d), X))(DATA)


@pytest.mark.parametrize("f", [
    lambda s, A: s.kron(A, np.ones((2, 3))), lambda s, A: s.kron(ss.eye_array(2), A),
    lambda s, A: s.bmat([[A, None], [ss.csr_array(DENSE), A.T]]),
    lambda s, A: s.block_array([[A, A]]), lambda s, A: s.vstack([A, A @ A]),
    lambda s, A: s.hstack([ss.csr_array(DENSE), A]), lambda s, A: s.block_diag([A, DENSE, A]),
    lambda s, A: A.power(3),
])
def test_blocks_are_those_of_scipy(f):
    expected = f(ss, ss.csr_array(DENSE)).toarray()
    np.testing.assert_allclose(f(sparse, made(DATA)).toarray(), expected, rtol=1e-15)
    weights = np.cos(np.arange(expected.size)).reshape(expected.shape)

    def loss(d):
        return np.sum(weights * f(sparse, made(d)).toarray())

    check_grads(loss, DATA, order=1)
    close(ft.jit(ft.grad(loss))(DATA), ft.grad(loss)(DATA))


def test_repeated_products_are_rolled_up_like_other_loops():
    A = ss.csr_array(DENSE) * 0.2

    def f(x):
        for _ in range(30):
            x = A @ x + x * 0.1
        return x.sum()

    close(ft.jit(ft.grad(f))(X), ft.grad(f)(X))


def test_the_exponential_of_a_constant_matrix_is_applied_in_programs():
    A = ss.csr_array(DENSE) * 0.2
    g = ft.grad(lambda x: sparse.linalg.expm_multiply(A, x, start=0, stop=1, num=3).sum())
    close(ft.jit(g)(X), g(X))


def _ring(d):
    n = len(d)
    off = -0.3 * np.ones(n - 1) + 0 * d[1:]
    return sparse.diags_array([off, d, off], offsets=[-1, 0, 1])


@pytest.mark.parametrize("which", ["LM", "SM", "LA", "SA", "BE"])
def test_eigenvalues_alone_have_the_order_of_scipy(which):
    A = np.diag([1.0, -5.0, 3.0, 4.0, 2.2]) + 0.1
    places = np.nonzero(np.ones((5, 5)))

    def alone(v):
        return linalg.eigsh(sparse.csr_array((v, places), shape=(5, 5)), 3, which=which,
                            return_eigenvectors=False)

    expected = scipy.sparse.linalg.eigsh(A, 3, which=which, return_eigenvectors=False)
    close(ft.vjp(alone, A.ravel())[0], expected)


@pytest.mark.parametrize("which", ["LA", "SA"])
def test_eigenvalues_of_a_sparse_matrix_are_those_of_the_dense_to_second_order(which):
    d = np.array([1.0, 2.3, 0.4, 3.1, 1.7])

    def ours(d):
        w, v = linalg.eigsh(_ring(d), 2, which=which)
        return np.sum(w * w) + np.sum(v**4)

    def dense(d):
        A = np.diag(d) - 0.3 * (np.eye(5, k=1) + np.eye(5, k=-1))
        w, v = np.linalg.eigh(A)
        chosen = slice(-2, None) if which == "LA" else slice(2)
        return np.sum(w[chosen] ** 2) + np.sum(v[:, chosen] ** 4)

    assert ft.grad(ours)(d) == pytest.approx(ft.grad(dense)(d), rel=1e-10)
    assert ft.hessian(ours)(d) == pytest.approx(ft.hessian(dense)(d), rel=1e-9, abs=1e-9)
    assert ft.jit(ft.grad(ours))(d) == pytest.approx(ft.grad(dense)(d), rel=1e-10)
    assert ft.vmap(ft.grad(ours))(np.stack([d, d + 0.1])) == pytest.approx(
        np.stack([ft.grad(dense)(x) for x in (d, d + 0.1)]), rel=1e-10)


def test_a_sparse_eigenvalue_that_is_double_is_refused():
    with pytest.raises(SolverError, match=r"eigsh.* singular"):
        ft.grad(lambda d: linalg.eigsh(sparse.diags_array([d]), 2)[0].sum())(
            np.array([3.0, 3.0, 1.0, 0.5]))


def test_complex_eigenvectors_of_a_sparse_array_are_refused():
    with pytest.raises(UnsupportedError, match=r"eigsh got A='a complex matrix'"):
        ft.grad(lambda d: linalg.eigsh(sparse.diags_array([d + 0j]), 1)[0][0])(np.ones(3))


def test_inverses_and_norms_of_sparse_arrays_are_those_of_the_dense():
    d = np.array([1.0, 2.3, 0.4, 3.1, 1.7])
    for ours, dense in [(lambda A: linalg.inv(A).toarray()[0] @ d,
                         lambda A: np.linalg.inv(A)[0] @ d),
                        (linalg.norm, np.linalg.norm),
                        (lambda A: linalg.norm(A, np.inf), lambda A: np.linalg.norm(A, np.inf)),
                        (lambda A: A.trace(1) + A.trace(), lambda A: np.trace(A, 1) + np.trace(A))]:
        for derivative in (ft.grad, ft.hessian):
            assert derivative(lambda d, f=ours: f(_ring(d)))(d) == pytest.approx(
                derivative(lambda d, f=dense: f(_ring(d).toarray()))(d), rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("f", [linalg.eigs, linalg.svds, linalg.lsqr, sparse.tril, sparse.find])
def test_a_sparse_array_in_a_function_without_a_counterpart_says_so(f):
    with pytest.raises(ConcretizationError, match=rf"scipy\.sparse.*\.{f.__name__} got <sparse .*"
                                                  "no counterpart"):
        ft.grad(lambda d: np.sum(f(_ring(d), np.ones(5) if f is linalg.lsqr else 1)))(np.ones(5))


def test_a_sparse_array_in_scipy_s_own_function_names_the_import():
    with pytest.raises(ConcretizationError, match=r"Take linalg\.eigsh of functrans"):
        ft.grad(lambda d: scipy.sparse.linalg.eigsh(_ring(d), 1)[0].sum())(np.ones(5))
