"""Steps that call BLAS and LAPACK, against NumPy."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
from functrans._compile.ir.expand import COLUMNS, ROWS
from functrans._compile.lowering import library
from functrans._compile.lowering.library import Product
from functrans._compile.run.native import NativeProgram
from functrans._compile.schedule import linear
from functrans._compile.schedule.kernels import Call, HostStep, Kernel
from functrans._kernels import routines
from functrans._ops.linalg import triangular_solve
from functrans._transforms.reach import make_program
from tests.core.test_memory_safety import FILLED, checks_of, needs_mprotect, run_apart
from tests.covering import covering

pytestmark = pytest.mark.usefixtures("unoptimised")

la = np.linalg
RTOL = {"d": 1e-12, "f": 2e-5, "l": 0.0}


def compiled(f, *args):
    return NativeProgram(make_program(f)(*args))


def check(f, *args, rtol=None):
    """The compiled program, once it computes what NumPy does, within rounding of the largest."""
    program = compiled(f, *args)
    expected = f(*args)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for y, e in zip(program(args), expected, strict=True):
        e = np.asarray(e)
        assert (y.shape, y.dtype) == (e.shape, e.dtype)
        tol = RTOL[e.dtype.char] if rtol is None else rtol
        assert_allclose(y, e, rtol=tol, atol=tol * np.abs(e[np.isfinite(e)]).max(initial=0))
    return program


def names(program):
    """The library calls of a program, in order."""
    assert not any(isinstance(s, HostStep) for s in program.schedule.steps), program.schedule
    return [s.name for s in program.schedule.steps if isinstance(s, Call)]


def of_lapack(program):
    """The same, of matrices that are not written out."""
    return [name for name in names(program) if name != "refuse"]


def numbers(*shape, dtype=float, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def definite(*shape, dtype=float):
    shape = shape * 2 if len(shape) == 1 else shape
    x = numbers(*shape, dtype=dtype)
    return x @ x.mT + shape[-1] * np.eye(shape[-1], dtype=dtype)


# ---- products

LAYOUTS = {
    "rows": lambda x: x,
    "transposed twice": lambda x: (x.T + 0.0).T,
    "part": lambda x: np.concatenate([x, x, x], axis=1)[:, x.shape[1] : 2 * x.shape[1]],
    "part of columns": lambda x: np.concatenate([x, x])[1 : x.shape[0] + 1].T.copy().T,
    "every other row": lambda x: np.repeat(x, 2, axis=0)[1::2],
    "every other column": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "backward": lambda x: x[::-1, ::-1],
    "one row repeated": lambda x: np.broadcast_to(x[:1], x.shape),
    "one column repeated": lambda x: np.broadcast_to(x[:, :1], x.shape),
}


OPERANDS = [(17, 23, 9, np.float64), (17, 23, 9, np.float32), (40, 30, 1, np.float64),
            (1, 50, 40, np.float32)]


@pytest.mark.parametrize(("left", "right", "operands"), covering(LAYOUTS, LAYOUTS, OPERANDS))
def test_a_product_reads_its_operands_where_they_are(left, right, operands):
    n, k, m, dtype = operands

    def f(a, b):
        return LAYOUTS[left](a) @ LAYOUTS[right](b)

    check(f, numbers(n, k, dtype=dtype), numbers(k, m, dtype=dtype))


@pytest.mark.parametrize("sizes", covering(*[[1, 2, 7, 30]] * 3), ids=str)
def test_products_of_all_shapes_and_their_transposes(sizes):
    n, k, m = sizes
    a, b = numbers(n, k), numbers(k, m)
    check(lambda a, b: (a @ b, b.T @ a.T, a[0] @ b, a @ b[:, 0], a[0] @ b[:, 0]), a, b)
    check(lambda a, b: (a.T @ b.T), numbers(k, n), numbers(m, k))


def test_operands_that_blas_can_read_are_not_copied():
    a, b = numbers(40, 30), numbers(30, 20)
    for f in (lambda a, b: a @ b, lambda a, b: b.T @ a.T, lambda a, b: a[3:, 4:] @ b[4:, :7]):
        program = check(f, a, b)
        assert [type(s) for s in program.schedule.steps] == [Product]


def test_a_step_between_entries_is_copied():
    program = check(lambda a, b: a[:, ::2] @ b, numbers(40, 60), numbers(30, 20))
    assert [type(s) for s in program.schedule.steps] == [Kernel, Product]


def test_a_small_product_is_a_loop_with_what_follows():
    program = check(lambda a, b: np.sum(a * b) + a[0] @ b[0], numbers(3, 4), numbers(3, 4))
    assert names(program) == []
    for m, step in ((3, Kernel), (6, Product), (8, Kernel), (48, Kernel), (52, Product)):
        program = check(lambda a, b: a @ b, numbers(4, 5), numbers(5, m))
        assert [type(s) for s in program.schedule.steps] == [step]
    by_columns = compiled(lambda a, b: a @ b.T, numbers(4, 5), numbers(8, 5))
    assert [type(s) for s in by_columns.schedule.steps] == [Product]


@pytest.mark.parametrize("shapes", [
    ((5, 4, 30), (5, 30, 6)), ((5, 4, 30), (30, 6)), ((4, 30), (5, 30, 6)),
    ((2, 1, 4, 30), (3, 30, 6)), ((3, 2, 2), (3, 2, 2)), ((2, 3, 40), (40,)), ((40,), (3, 40, 50)),
    ((2, 3, 1, 40), (3, 40, 50)), ((3, 40, 50), (50, 1)),
])
def test_stacks_of_matrices(shapes):
    a, b = (numbers(*s) for s in shapes)
    check(lambda a, b: a @ b, a, b)
    check(lambda a, b: np.flip(a, 0) @ b, a, b)


@pytest.mark.parametrize("subscripts", [
    "ij,jk->ik", "ij,kj->ki", "bij,bjk->bik", "bij,bjk->kib", "ibj,jkb->bki", "ij,ik->jk",
    "aij,ijb->ab", "ij,ij->", "bi,bi->b", "i,j->ji", "bi,bj->jbi", "abij,cj->ciab",
])
@pytest.mark.parametrize("size", [2, 12])
def test_einsum(subscripts, size):
    first, second = subscripts.split("->")[0].split(",")
    sizes = {c: size + i for i, c in enumerate("abcijk")}
    a, b = (numbers(*[sizes[c] for c in s]) for s in (first, second))
    names(check(lambda a, b: np.einsum(subscripts, a, b) * 2, a, b))


OUTER = ["ki,jk->ijk", "ki,jk->jik", "ik,jk->ijk", "ki,kj->jki", "ki,kj->kji", "ki,jk->kij",
         "kij,kl->lijk", "k,i->ik"]


@pytest.mark.parametrize("subscripts", OUTER)
@pytest.mark.parametrize("sizes", [(3, 3, 3, 3), (2, 4, 3, 5)], ids=["alike", "unlike"])
def test_products_without_a_sum_are_written_in_the_order_asked_for(subscripts, sizes):
    lengths = dict(zip("ijkl", sizes, strict=True))
    given, _ = subscripts.split("->")
    xs = [
        np.cos(np.arange(1.0, 1 + np.prod(shape))).reshape(shape)
        for shape in ([lengths[c] for c in part] for part in given.split(","))
    ]
    found = ft.jit(lambda x, y: np.einsum(subscripts, x, y))(*xs)
    assert_array_equal(found, np.einsum(subscripts, *xs))


@pytest.mark.parametrize("n", [2, 30])
def test_integer_products_wrap_as_numpy_does(n):
    a = np.random.default_rng(0).integers(-(2**62), 2**62, (n, n))
    assert names(check(lambda a: a @ a.T + a[0] @ a, a)) == []


@pytest.mark.parametrize("n", [2, 30])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0])
def test_special_values_go_where_numpy_has_them(value, n):
    a, b = numbers(n, n), numbers(n, n)
    a[0, 1], b[1, 0], b[-1, -1] = value, 0.0, np.inf
    with np.errstate(invalid="ignore"):
        expected = a @ b, a @ b[0], b[:, 0] @ a
    for y, e in zip(compiled(lambda a, b: (a @ b, a @ b[0], b[:, 0] @ a), a, b)([a, b]), expected,
                    strict=True):
        assert_allclose(y, e, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shapes", [
    ((0, 3), (3, 2)), ((3, 0), (0, 2)), ((3, 2), (2, 0)), ((0,), (0,)), ((0, 4, 4), (4, 4)),
])
def test_products_of_nothing(shapes):
    check(lambda a, b: a @ b, *[numbers(*s) for s in shapes])


@pytest.mark.parametrize("dtypes", [("f4", "f8"), ("f8", "i8"), ("c16", "c8"), ("?", "?")])
def test_dtypes_that_no_routine_takes_are_numpy_s(dtypes):
    a, b = (numbers(20, 20).astype(d) for d in dtypes)
    program = compiled(lambda a, b: a @ b, a, b)
    assert_allclose(program([a, b])[0], a @ b, rtol=1e-13)
    assert isinstance(program.schedule.steps[0], HostStep)


# ---- systems and decompositions

SIZES = [1, 2, 3, 10, 70]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", SIZES)
def test_solving_is_native_and_what_numpy_finds(n, dtype):
    a = numbers(n, n, dtype=dtype) + 3 * np.eye(n, dtype=dtype)
    b = numbers(n, COLUMNS, dtype=dtype, seed=1)
    calls = ["getrf", "getrs"] if n > ROWS else []
    rtol = 1e-10 if dtype == np.float64 else 1e-6  # both computed in double precision
    for f in (lambda a, b: la.solve(a, b), lambda a, b: la.solve(a.T, b[:, 1]),
              lambda a, b: la.solve(a, b[:, ::2]), lambda a, b: la.solve(a, b[::-1])):
        assert of_lapack(check(f, a, b, rtol=rtol)) == calls
    check(lambda a: (la.inv(a), la.det(a / 4), *la.slogdet(-a)), a, rtol=rtol)


def test_a_matrix_and_its_transpose_are_factored_once():
    def f(a, b):
        return (la.solve(a, b), la.solve(a.T, b[:, 0]), la.inv(a), la.det(a.T), *la.slogdet(a))

    program = check(f, definite(6), numbers(6, 4), rtol=1e-10)
    assert names(program).count("getrf") == 1


def test_the_backward_of_a_solution_factors_nothing_again():
    f = ft.value_and_grad(lambda a, b: np.sum(la.solve(a, b) ** 2), (0, 1))
    lowered = ft.jit(f).lower(definite(6), numbers(6))
    assert [s.name for s in lowered.schedule.steps if isinstance(s, Call)].count("getrf") == 1


def test_other_views_of_one_array_are_other_matrices():
    a = np.stack([definite(5), 2 * definite(5)])
    program = check(lambda a: (la.inv(a[0]), la.inv(a[1]), la.inv(a[0] + 1)), a, rtol=1e-10)
    assert names(program).count("getrf") == 3


@pytest.mark.parametrize("shapes", [
    ((3, 4, 4), (3, 4, 2)), ((4, 4), (3, 4, 2)), ((3, 4, 4), (4, 2)), ((2, 1, 4, 4), (3, 4, 2)),
])
def test_stacks_of_systems(shapes):
    a, b = numbers(*shapes[0]) + 4 * np.eye(4), numbers(*shapes[1])
    check(lambda a, b: la.solve(a, b), a, b, rtol=1e-10)
    flags = {"lower": True, "transposed": True, "unit": False}
    check(lambda a, b: triangular_solve(a, b, **flags), a, b, rtol=1e-10)
    check(lambda a: (la.inv(a), la.det(a), *la.slogdet(a)), a, rtol=1e-10)


@pytest.mark.parametrize("flags", [*itertools.product([False, True], repeat=3)])
@pytest.mark.parametrize("n", [1, 3, 60])
def test_a_triangle_is_all_that_is_read(flags, n):
    lower, transposed, unit = flags
    full = np.tril(numbers(n, n), -1) / n + np.triu(numbers(n, n, seed=1), 1) / n + 2 * np.eye(n)
    b = numbers(n, 3)
    keep = np.tril if lower else np.triu
    given = np.where(keep(np.ones((n, n))) > 0, full, np.nan)
    if unit:
        np.fill_diagonal(given, np.nan)
    a = keep(full, -1 if lower else 1) + np.eye(n) if unit else keep(full)
    expected = la.solve(a.T if transposed else a, b)
    options = {"lower": lower, "transposed": transposed, "unit": unit}
    turned = {**options, "lower": not lower, "transposed": not transposed}
    program = compiled(
        lambda a, b: (triangular_solve(a, b, **options), triangular_solve(a, b[:, 1], **options),
                      triangular_solve(a.T, b, **turned)),
        given, b,
    )
    assert of_lapack(program) == ["trsm"] * 3 * (n > ROWS)
    for y, e in zip(program([given, b]), (expected, expected[:, 1], expected), strict=True):
        assert_allclose(y, e, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (70, 70), (2, 3, 4, 4)])
def test_cholesky_factors_the_lower_triangle(shape, dtype):
    a = definite(*shape, dtype=dtype)
    calls = ["potrf"] * (shape[-1] > ROWS)
    assert of_lapack(check(lambda a: la.cholesky(a), a)) == calls
    assert of_lapack(check(lambda a: la.cholesky(a.mT), a)) == calls
    torn = np.where(np.tri(shape[-1]) > 0, a, np.nan).astype(dtype)
    assert_array_equal(compiled(la.cholesky, torn)([torn])[0], compiled(la.cholesky, a)([a])[0])


@pytest.mark.parametrize("flags", [*itertools.product([False, True], repeat=2)])
def test_the_identity_is_solved_for_as_the_inverse_of_a_triangle(flags):
    lower, transposed = flags
    n = 40
    full = numbers(n, n) / n + 2 * np.eye(n)
    given = np.where((np.tril if lower else np.triu)(np.ones((n, n))) > 0, full, np.nan)
    options = {"lower": lower, "transposed": transposed, "unit": False}
    turned = {**options, "lower": not lower}

    def f(a):
        return (triangular_solve(a, np.eye(n), **options),
                triangular_solve(a.T, np.eye(n), **turned))

    program = compiled(f, given)
    assert names(program) == ["trtri"] * 2
    a = np.nan_to_num(given)
    wanted = [la.inv(a.T if transposed else a), la.inv(a if transposed else a.T)]
    for y, e in zip(program([given]), wanted, strict=True):
        assert_allclose(y, e, rtol=1e-12, atol=1e-13)
    given[3, 3] = 0.0
    with pytest.raises(la.LinAlgError, match="Singular"):
        program([given])


def factored(a, b):
    """Of a Gaussian process whose covariance comes of a symmetric matrix."""
    k = np.exp(-(a * a.T)) + 4 * np.eye(len(b)) + (a + a.T)
    return (np.sum(np.log(np.diagonal(la.cholesky(k)))), np.sum(b * la.solve(k, b)),
            la.solve(k.T, np.stack([b, b], 1)))


def test_a_symmetric_matrix_that_has_a_cholesky_factor_is_solved_with_it():
    a, b = numbers(40, 40) / 80, numbers(40)
    program = check(factored, a, b)
    assert names(program) == ["potrf"] + ["trsm"] * 4
    program = check(lambda a, b: (la.cholesky(a), la.solve(a, b)), definite(40), b, rtol=1e-10)
    assert "getrf" in names(program)  # it may be another than its transpose


def test_the_slope_of_a_log_determinant_needs_no_product():
    def f(a):
        return factored(a, np.ones(40))[0]

    a = numbers(40, 40) / 80
    lowered = ft.jit(ft.grad(f)).lower(a)
    calls = [s.name for s in lowered.schedule.steps if isinstance(s, Call)]
    assert [name for name in calls if name != "refuse"] == ["potrf", "trtri", "trsm"]
    t, h = numbers(40, 40, seed=3), 1e-6
    slope = (f(a + h * t) - f(a - h * t)) / (2 * h)
    for g in (ft.grad(f)(a), ft.jit(ft.grad(f))(a)):
        assert_allclose(np.sum(g * t), slope, rtol=1e-7)  # of central differences


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("uplo", ["L", "U"])
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (40, 40), (2, 3, 4, 4)])
def test_eigenvectors_have_the_signs_of_numpy_s(shape, uplo, dtype):
    a = definite(*shape, dtype=dtype) + numbers(*shape, dtype=dtype)  # its triangles differ
    rtol = 1e-9 if dtype == np.float64 else 1e-6  # both computed in double precision
    assert names(check(lambda a: tuple(la.eigh(a, uplo)), a, rtol=rtol)) == ["syevd"]


@pytest.mark.parametrize("n", [1, 4, 60])
def test_eigenvalues_alone_need_no_vectors(n):
    program = check(lambda a: la.eigvalsh(a), definite(n), rtol=1e-12)
    assert names(program) == ["syevd"] and f'"i8.{ord("N")}"' in program.llvm
    program = compiled(lambda a: la.eigh(a)[1], definite(n))
    assert f'"i8.{ord("N")}"' not in program.llvm


def test_determinants_of_singular_matrices():
    stack = np.stack([np.ones((3, 3)), -np.eye(3), np.zeros((3, 3)), definite(3)])
    check(lambda a: (la.det(a), *la.slogdet(a)), stack)
    assert not np.signbit(compiled(la.slogdet, stack)([stack])[0][2])


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_logarithms_of_determinants_do_not_overflow(scale):
    check(lambda a: tuple(la.slogdet(a)), numbers(8, 8) * scale)


def test_a_diagonal_is_a_view_and_its_transpose_an_entrywise_choice():
    x = numbers(2, 4, 6)
    for offset in range(-5, 8):
        def f(x, offset=offset):
            return np.diagonal(x, offset, 1, 2) * 2, np.diagonal(x[0, 1:3], offset) + 1

        assert not any(isinstance(s, HostStep) for s in check(f, x).schedule.steps)
    for offset in range(-3, 6):
        expected = np.zeros(x.shape)
        for i in range(4):
            if 0 <= i + offset < 6:
                expected[:, i, i + offset] = 3.0 * x[:, i, i + offset] ** 2
        g = ft.jit(ft.grad(lambda x, k=offset: np.sum(np.diagonal(x, k, 1, 2) ** 3)))
        assert_allclose(g(x), expected, rtol=1e-14)


# ---- refusals

SINGULAR = np.array([[1.0, 2.0], [2.0, 4.0]])
REFUSED = {
    "solve": (lambda a: la.solve(a, np.ones(2)), SINGULAR),
    "inv": (la.inv, np.zeros((2, 2))),
    "inv of a stack": (la.inv, np.stack([np.eye(2), SINGULAR])),
    "cholesky": (la.cholesky, -np.eye(2)),
    "cholesky of a stack": (la.cholesky, np.stack([np.eye(2), np.diag([1.0, -1.0])])),
    "eigh": (lambda a: la.eigh(a)[0], np.full((4, 4), np.nan)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_answer_raises_numpy_s_error(name):
    f, a = REFUSED[name]
    try:
        expected = f(a)
    except la.LinAlgError as e:
        with pytest.raises(la.LinAlgError) as found:
            ft.jit(f)(a)
        assert str(found.value) == str(e)
    else:
        assert_array_equal(ft.jit(f)(a), expected)


def test_a_triangle_with_a_zero_on_its_diagonal_is_singular():
    a, b = np.array([[1.0, 0.0], [1.0, 0.0]]), np.ones(2)
    for vector in (b, np.ones((2, 2))):
        f = ft.jit(lambda a, b: triangular_solve(a, b, lower=True, transposed=False, unit=False))
        with pytest.raises(la.LinAlgError, match="Singular matrix"):
            f(a, vector)


def test_a_function_that_refused_once_can_be_called_again():
    f = ft.jit(lambda a: np.sum(np.exp(la.inv(np.sin(a) + a))))
    for _ in range(2):
        with pytest.raises(la.LinAlgError, match="Singular"):
            f(np.zeros((2, 2)))
        a = definite(2)
        assert_allclose(f(a), np.sum(np.exp(la.inv(np.sin(a) + a))), rtol=1e-13)


def test_nothing_is_run_behind_a_refusal():
    f = ft.jit(lambda a: la.cholesky(la.inv(a)))
    for a, reason in ((np.zeros((2, 2)), "Singular"), (-np.eye(2), "positive definite")):
        with pytest.raises(la.LinAlgError, match=reason):
            f(a)


@pytest.mark.parametrize("f", [la.inv, la.cholesky, la.det, lambda a: la.solve(a, a)])
def test_nan_goes_through_as_in_numpy(f):
    a = definite(3)
    a[2, 0] = np.nan
    with np.errstate(invalid="ignore"):
        expected = f(a)
    assert_array_equal(np.isnan(ft.jit(f)(a)), np.isnan(expected))


# ---- transforms


def likelihood(x):
    k = np.exp(-((x[:, None] - x) ** 2)) + np.eye(len(x))
    half = np.sum(np.log(np.diagonal(la.cholesky(k))))
    return half + x @ la.solve(k, np.sin(x)) + la.slogdet(k)[1] + la.det(k) + np.sum(la.inv(k))


TRANSFORMS = {
    "grad": ft.grad, "hessian": ft.hessian, "jacfwd": ft.jacfwd,
    "vmap": lambda f: lambda x: ft.vmap(f)(np.stack([x, x[::-1] + 1])),
    "vmap(grad)": lambda f: lambda x: ft.vmap(ft.grad(f))(np.stack([x, x[::-1] + 1])),
    "jvp": lambda f: lambda x: ft.jvp(f, (x,), (np.cos(x),)),
    "hvp": lambda f: lambda x: ft.hvp(f, x, np.cos(x)),
}


OF_MATRICES = [
    likelihood, lambda x: np.sum(np.tanh(np.outer(x, x) @ np.outer(x, np.sin(x))) ** 2),
    lambda x: np.sum(la.eigh(np.outer(x, x) + np.diag(np.arange(len(x))))[1] ** 4),
]


@pytest.mark.parametrize(("name", "f", "n"), [
    case for n, meet in ((3, 2), (8, 1))
    for case in covering(TRANSFORMS, OF_MATRICES, [n], meet=meet)
])
def test_derivatives_are_those_of_numpy_s_routines(name, f, n):
    x = np.linspace(0.2, 1.5, n)
    g = TRANSFORMS[name](f)
    for y, e in zip(ft.tree.leaves(ft.jit(g)(x)), ft.tree.leaves(g(x)), strict=True):
        assert_allclose(y, e, rtol=1e-8, atol=1e-9 * np.abs(e).max())


# ---- where the routines are


@pytest.fixture
def scipy_s(monkeypatch):
    """Native code calls SciPy's library instead."""
    found = routines.of_scipy()
    assert found is not None and found.bits == 32
    monkeypatch.setattr(routines, "PREFIX", "from_scipy_")
    monkeypatch.setattr(library, "PREFIX", "from_scipy_")

    def renamed(name):
        return name.replace("functrans_", "from_scipy_")

    tiled = {renamed(a): renamed(b) for a, b in routines.TILED.items()}
    for module in (routines, library):
        monkeypatch.setattr(module, "TILED", tiled)
    found = found._replace(addresses={renamed(n): a for n, a in found.addresses.items()})
    monkeypatch.setattr(routines, "available", lambda: found)
    machine = linear_machine()
    kept = machine.__dict__.pop("routines", None)
    yield
    machine.__dict__.pop("routines", None)
    if kept is not None:
        machine.__dict__["routines"] = kept


def linear_machine():
    from functrans._compile.run.machine import local

    return local()


def test_the_library_is_numpy_s_where_it_can_be_reached():
    found = routines.available()
    assert found is not None
    assert found == (routines.of_numpy() or routines.of_scipy())
    assert all(found.addresses.values())


def test_a_library_that_counts_in_32_bits_gives_the_same(scipy_s):
    a = definite(9)
    a[0], a[4] = a[4].copy(), a[0].copy()  # so that rows are exchanged
    b = numbers(9, 4)
    program = check(lambda a, b: (a @ b, la.solve(a, b), la.inv(a), la.det(a), *la.slogdet(a),
                                  la.cholesky(a @ a.T), *la.eigh(a)), a, b, rtol=1e-9)
    assert "from_scipy_dgetrf" in program.llvm


def test_without_a_library_numpy_runs_what_loops_do_not(monkeypatch):
    monkeypatch.setattr(routines, "available", lambda: None)
    a = definite(9)
    program = compiled(lambda a: (a @ a, la.inv(a), a[:2, :2] @ a[:2, :2]), a)
    assert [type(s) for s in program.schedule.steps].count(HostStep) == 2
    for y, e in zip(program([a]), (a @ a, la.inv(a), a[:2, :2] @ a[:2, :2]), strict=True):
        assert_allclose(y, e, rtol=1e-12)


def test_without_scipy_and_without_numpy_s_library_there_is_none(monkeypatch):
    monkeypatch.setattr(routines, "NAMES", ["no_such_routine"])
    assert routines.of_numpy() is None and routines.of_scipy() is None


def test_scipy_that_is_not_there_is_no_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.linalg.cython_blas", None)
    assert routines.of_scipy() is None


CACHED = """
import numpy as np
import functrans as ft
from functrans._compile.run import machine

if {second}:
    machine.Machine.translate = None  # whatever is not in the cache fails
a = np.diag(np.arange(1.0, 9.0)) + 0.5
f = ft.jit(lambda a: (a @ a.T, np.linalg.solve(a, a[0]), np.linalg.eigh(a)[0]))
for y, e in zip(f(a), (a @ a.T, np.linalg.solve(a, a[0]), np.linalg.eigh(a)[0])):
    np.testing.assert_allclose(y, e, rtol=1e-12, atol=1e-12)
"""


def test_code_in_the_cache_finds_the_library_in_another_process(tmp_path):
    env = os.environ | {"FUNCTRANS_CACHE_DIR": str(tmp_path)}
    for second in (False, True):
        text = CACHED.format(second=second)
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stderr[-3000:]


# ---- memory

GUARDED = {
    "products": ("lambda a, b: (a @ b, b.T @ a.T, a @ b[:, 0], a[0] @ b, a[::2] @ b[:, ::-1])",
                 "[(n, 5), (5, n + 1)]"),
    "stacks": ("lambda a, b: (a @ b, a.mT @ b[:, :1])", "[(3, n, n), (n, n)]"),
    "systems": ("lambda a, b: (np.linalg.solve(np.eye(n) * 9 + np.tanh(a), b), "
                "np.linalg.inv(np.eye(n) * 9 + np.tanh(a)), np.linalg.det(np.eye(n) + a / 9))",
                "[(n, n), (n, 3)]"),
    "inputs as they are": ("lambda a, b: (np.linalg.slogdet(a)[0] > 2, np.linalg.det(a.T) > 1e99)",
                           "[(n, n), (n, n)]"),
    "decompositions": ("lambda a: (np.linalg.cholesky(a @ a.T + np.eye(n)), "
                       "np.linalg.eigh(a + a.T)[0])", "[(n, n)]"),
    "diagonals": ("lambda a: (np.diagonal(a, 1) * 2, np.diagonal(a, -1) * 2, np.diag(a[:, 0]) + 1)",
                  "[(n, n + 2)]"),
}


@needs_mprotect
def test_nothing_outside_the_arrays_is_touched():
    run_apart(FILLED + checks_of(GUARDED, (1, 2, 7, 16, 33, 65)))


PLANTED = """
from functrans._compile.ir.expand import COLUMNS, ROWS
from functrans._compile.lowering import library

layout = library.layout
library.layout = lambda v: (lambda how, lead: (how, lead + 1))(*layout(v))
check(lambda a: a @ a, [(40, 40)])
"""


@needs_mprotect
def test_a_wrong_distance_of_lines_does_not_survive():
    done = subprocess.run([sys.executable, "-c", FILLED + PLANTED], capture_output=True, text=True)
    assert done.returncode < 0, done.stderr


def test_a_view_that_leaves_its_buffer_is_found_before_compiling(monkeypatch):
    enter = linear._product

    def shifted(build, a, b, out):
        return enter(build, a.__class__(a.root, a.shape, 1, a.strides, a.windows), b, out)

    monkeypatch.setattr(linear, "_product", shifted)
    with pytest.raises(AssertionError):
        compiled(lambda a: a @ a, np.ones((9, 9)))


THREADS = """
import sys, threading
import numpy as np
import functrans as ft

sys.setswitchinterval(1e-5)
f = ft.jit(lambda a: (a @ a, np.linalg.solve(a @ a.T + np.eye(60), a[0])))
xs = [np.cos(np.arange(3600.0) * (k + 1)).reshape(60, 60) for k in range(8)]
expected = [(x @ x, np.linalg.solve(x @ x.T + np.eye(60), x[0])) for x in xs]
wrong = []

def work(k):
    for _ in range(20):
        for y, e in zip(f(xs[k]), expected[k]):
            if not np.allclose(y, e, rtol=1e-8, atol=1e-8):
                wrong.append(k)

threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not wrong, wrong
"""


def test_threads_call_the_library_at_once():
    run_apart(THREADS)


def test_a_product_in_another_order_than_its_result():
    t, m, v = numbers(2, 3, 4), numbers(3, 4), numbers(4)

    def loss(t, m, v):
        return np.sum(np.einsum("ijk,jk,k->i", t, m, v) ** 2)

    want = ft.grad(loss, (0, 1, 2))(t, m, v)
    got = ft.jit(ft.grad(loss, (0, 1, 2)))(t, m, v)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)
