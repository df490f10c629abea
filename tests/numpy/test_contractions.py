"""Products that sum: NumPy's values, both modes against each other and against the complex step."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import functrans as ft
import functrans.numpy as fnp
from functrans._compile.ir.program import Var
from functrans._ops.contractions import einsum as einsum_row
from functrans._ops.contractions import matmul
from tests.drawing import generator

RNG = generator(3)


def draw(*shapes, dtype=float):
    xs = [RNG.normal(size=s).astype(dtype) for s in shapes]
    if np.dtype(dtype).kind == "c":
        xs = [(x + 1j * RNG.normal(size=x.shape)).astype(dtype) for x in xs]
    for x in xs:
        x.setflags(write=False)
    return xs


def close(a, b, rtol=1e-12):
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape and a.dtype == b.dtype
    np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * max(np.abs(b).max(initial=0), 1))


def check(f, *xs):
    """Value, both modes, the modes against each other to second order."""
    ts = draw(*[x.shape for x in xs])
    y, dy = ft.jvp(f, tuple(xs), tuple(ts))
    close(y, f(*xs), rtol=1e-13)
    # all of these are polynomials in each operand, so the complex step is exact
    stepped = f(*[x + 1e-30j * t for x, t in zip(xs, ts, strict=True)])
    close(dy, np.imag(stepped) / 1e-30)
    (ct,) = draw(y.shape)
    cts = ft.vjp(f, *xs)[1](ct)
    close(sum(np.sum(c * t) for c, t in zip(cts, ts, strict=True)), np.sum(ct * dy))

    def pulled(*xs):
        return ft.vjp(f, *xs)[1](ct)[0]

    c2, dc = ft.jvp(pulled, tuple(xs), tuple(ts))
    back = ft.vjp(pulled, *xs)[1](c2)
    close(sum(np.sum(c * t) for c, t in zip(back, ts, strict=True)), np.sum(c2 * dc))


def check_vmap(f, *xs):
    """Every choice of batched operands against a Python loop."""
    for which in itertools.product([False, True], repeat=len(xs)):
        if not any(which):
            continue
        stacked = [np.stack([x, 2 * x, x - 1]) if w else x for x, w in zip(xs, which, strict=True)]
        y = ft.vmap(f, in_axes=tuple(0 if w else None for w in which))(*stacked)
        rows = [[x[i] if w else x for x, w in zip(stacked, which, strict=True)] for i in range(3)]
        close(y, np.stack([f(*row) for row in rows]))


MATMUL = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3,)),
    ((3,), (5, 3, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)), ((5, 2, 3), (5, 3, 4)),
    ((6, 1, 2, 3), (5, 3, 4)), ((1, 2, 3), (5, 3, 4)), ((0, 3), (3,)), ((2, 0), (0, 3)),
    ((2, 0, 3), (3, 4)), ((0, 2, 3), (3,)), ((2, 3), (0, 3, 4)),
]


@pytest.mark.parametrize("shapes", MATMUL, ids=str)
def test_matmul_is_numpys_with_exact_derivatives(shapes):
    check(np.matmul, *draw(*shapes))


@pytest.mark.parametrize("shapes", MATMUL, ids=str)
def test_matmul_batches(shapes):
    check_vmap(np.matmul, *draw(*shapes))


EINSUMS = [
    ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)), ("ij,ij->i", (2, 3), (2, 3)),
    ("ki,kj->ij", (2, 3), (2, 4)), ("ijk,jl->kil", (2, 3, 4), (3, 5)), ("i,j", (2,), (3,)),
    ("bij,bjk->bik", (5, 2, 3), (5, 3, 4)), ("ijb,jkb->ikb", (2, 3, 5), (3, 4, 5)),
    ("ii,i->", (3, 3), (3,)), ("ij,kl->", (2, 3), (3, 4)), ("...ij,...j->...i", (5, 2, 3), (1, 3)),
    ("ij...,jk...->ik...", (2, 3, 5), (3, 4, 5)), ("ij,ij->ij", (2, 1), (2, 3)),
    (",i->i", (), (3,)), ("i,i->", (0,), (0,)), ("ij->ji", (2, 3)), ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("iij->j", (3, 3, 2)), ("ij->", (2, 3)), ("...ij->...ji", (4, 2, 3)), ("ba", (2, 3)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)), ("i,j,k->ijk", (2,), (3,), (4,)),
    ("ij,ij,i->", (2, 3), (2, 3), (2,)), ("a,ab,b->", (3,), (3, 4), (4,)),
    ("ab,bc,cd,da->", (2, 3), (3, 4), (4, 2), (2, 2)), ("i,i,i,i->i", (3,), (1,), (3,), (3,)),
]


@pytest.mark.parametrize("case", EINSUMS, ids=lambda c: c[0])
def test_einsum_is_numpys_with_exact_derivatives(case):
    subscripts, *shapes = case
    check(lambda *xs: np.einsum(subscripts, *xs), *draw(*shapes))


@pytest.mark.parametrize("case", EINSUMS, ids=lambda c: c[0])
def test_einsum_batches(case):
    subscripts, *shapes = case
    check_vmap(lambda *xs: np.einsum(subscripts, *xs), *draw(*shapes))


@pytest.mark.parametrize("subscripts, dtypes", [
    ("i,i,i->", ("i1", "i1", "f8")), ("ii,ii,k->k", ("u1", "u1", "f8")),
    ("i,i,i->", ("f4", "f4", "f8")), ("ii,k->k", ("f4", "f8")), ("ii,k->k", ("?", "f8")),
    ("ij,jk,kl->il", ("i2", "i1", "f4")), ("i->", ("u1",)), ("ii->i", ("u1",)), ("ij->j", ("?",)),
    ("i,i,j->", ("?", "?", "i4")), ("i,i->", ("i1", "i1")),
])
def test_einsum_computes_all_along_in_the_dtype_of_the_result(subscripts, dtypes, unoptimised):
    values = np.array([100, 50, 0]), np.array([[100, 2, 1], [0, 77, 99], [1, 0, 55]])
    xs = [(values[len(term) - 1] + (np.dtype(d).kind == "f") / 3).astype(d)
          for term, d in zip(subscripts.split("->")[0].split(","), dtypes, strict=True)]

    def f(*xs):
        return np.einsum(subscripts, *xs)

    want = f(*xs)
    for got in (ft.jit(f)(*xs), ft.vmap(f)(*[x[None] for x in xs])[0]):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-5 if want.dtype == np.float32 else 1e-13)


def test_einsum_takes_lists_of_labels():
    a, b = draw((2, 3), (3, 4))
    check(lambda a, b: np.einsum(a, [0, 1], b, [1, 2], [2, 0]), a, b)
    check(lambda a, b: np.einsum(a, [0, 1], b, [1, 2]), a, b)
    check(lambda a: np.einsum(a, [0, Ellipsis], [Ellipsis, 0]), a)


def test_einsum_takes_more_labels_than_the_alphabet_has():
    (x,) = draw((1,) * 30)
    y = einsum_row(x, x, subscripts=f"{(s := ''.join(map(chr, range(200, 230))))},{s}->")
    assert y.shape == ()


BAD = ["ij,jk", "ijk,jk", "ij,jk->iz", "ij,jk->ii", "ij", "...ij,jk->ik"]


@pytest.mark.parametrize("subscripts", BAD)
def test_bad_subscripts_raise_valueerror(subscripts):
    a, b = draw((2, 3), (4, 5))
    with pytest.raises(ValueError, match="einsum"):
        ft.jvp(lambda a: np.einsum(subscripts, a, b), (a,), (a,))


PAIRS = {
    "dot": [((3,), (3,)), ((2, 3), (3,)), ((2, 3), (3, 2)), ((2, 3, 4), (5, 4, 2)), ((), (3,)),
            ((2, 3), ())],
    "inner": [((3,), (3,)), ((2, 3), (3,)), ((2, 3), (4, 5, 3)), ((), (3,))],
    "outer": [((3,), (2,)), ((2, 3), (2,))],
    "kron": [((3,), (2,)), ((2, 3), (2, 2)), ((2, 2, 3), (3, 2)), ((2, 3), (2,))],
    "tensordot": [((2, 3, 4), (3, 4, 2)), ((2, 3), (2, 3))],
    "cross": [((3,), (3,)), ((4, 3), (3,)), ((2, 1, 3), (4, 3))],
    "convolve": [((n,), (m,)) for n in (1, 2, 5) for m in (1, 3, 4)],
}


@pytest.mark.parametrize("name, shapes", [(n, s) for n, cs in PAIRS.items() for s in cs], ids=str)
def test_products_are_numpys_with_exact_derivatives(name, shapes):
    f = getattr(np, name)
    xs = draw(*shapes)
    check(f, *xs)
    check_vmap(f, *xs)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("sizes", [(1, 1), (2, 5), (5, 2), (3, 4), (4, 4), (1, 5), (5, 4)], ids=str)
def test_convolve_and_correlate_in_every_mode(sizes, mode):
    a, v = draw(*[(n,) for n in sizes])
    check(lambda a, v: np.convolve(a, v, mode), a, v)
    check_vmap(lambda a, v: np.convolve(a, v, mode), a, v)
    y, _ = ft.jvp(lambda a, v: np.correlate(a, v, mode), (a, v), (a, v))
    close(y, np.correlate(a, v, mode))


def test_tensordot_over_named_axes():
    a, b = draw((2, 3, 4), (3, 4, 2))
    check(lambda a, b: np.tensordot(a, b, ([0, 2], [2, 1])), a, b)
    check(lambda a, b: np.tensordot(a, b, 0), a, b)


VECTORS = ["dot", "vdot", "inner", "outer", "matmul", "vecdot", "kron", "convolve", "correlate"]


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
def test_products_keep_their_dtype_and_conjugate_as_numpy_does(name, dtype):
    f = getattr(np, name)
    a, b = draw((3,), (3,), dtype=dtype)
    y, dy = ft.jvp(f, (a, b), (a, b))
    assert dy.dtype == y.dtype == dtype
    # bilinear over the reals: f(a + ha, b + hb) moves by 2 h f(a, b)
    close(dy, (2 * f(a, b)).astype(dtype), rtol=1e-5 if np.dtype(dtype).itemsize < 16 else 1e-13)
    cts = ft.vjp(f, a, b)[1](np.asarray(y))
    assert cts[0].dtype == cts[1].dtype == dtype


def test_a_real_operand_of_a_complex_product_has_a_real_gradient():
    a, (z,) = draw((3,))[0], draw((3,), dtype=complex)
    g = ft.grad(lambda a: np.abs(a @ z) ** 2)(a)
    assert g.dtype == float
    close(g, 2 * np.real(np.conj(z) * (a @ z)))


def check_bilinear(f, a, b):
    """For products that conjugate, where there is no complex step: f(ta, b) + f(a, tb) is exact."""
    ta, tb = draw(a.shape, b.shape)
    y, dy = ft.jvp(f, (a, b), (ta, tb))
    close(y, f(a, b))
    close(dy, f(ta, b) + f(a, tb))
    (ct,) = draw(y.shape)
    ca, cb = ft.vjp(f, a, b)[1](ct)
    close(np.sum(ca * ta) + np.sum(cb * tb), np.sum(ct * dy))
    check_vmap(f, a, b)


@pytest.mark.parametrize("name", [n for n in ("matvec", "vecmat") if hasattr(np, n)])
def test_products_of_stacks_of_vectors_and_matrices(name):
    shapes = ((5, 2, 3), (3,)) if name == "matvec" else ((5, 1, 2), (4, 2, 3))
    check_bilinear(getattr(np, name), *draw(*shapes))


def test_vecdot_runs_along_an_axis():
    check_bilinear(lambda a, b: np.vecdot(a, b, axis=0), *draw((3, 2), (3, 4, 2)))


def test_operators_take_arrays_and_lists_on_either_side():
    a, x = draw((3, 3), (3,))
    close(ft.grad(lambda x: (a @ x).sum())(x), a.sum(0))
    close(ft.grad(lambda x: ([[1.0, 2.0, 3.0]] @ x).sum())(x), np.array([1.0, 2.0, 3.0]))
    close(ft.grad(lambda x: (x @ [1.0, 2.0, 3.0]))(x), np.array([1.0, 2.0, 3.0]))
    close(ft.grad(lambda x: (x.dot(a)).sum())(x), a.sum(1))


def test_an_unbatched_matrix_times_batched_vectors_is_one_product():
    a, xs = draw((4, 3), (7, 3))
    program = []

    def seen(x):
        y = a @ x
        program.append(y)
        return y

    close(ft.vmap(seen)(xs), xs @ a.T)
    assert program[0].value.base is None or program[0].value.base.ndim == 2


def test_numbers_of_the_wrong_shape_raise_as_in_numpy():
    a, x = draw((2, 3), (4,))
    for f in (np.matmul, np.dot, np.inner, lambda a, b: a @ b):
        with pytest.raises(ValueError, match=r"mismatch|not aligned"):
            ft.jvp(lambda a, f=f: f(a, x), (a,), (a,))
    with pytest.raises(ValueError, match="enough dimensions"):
        ft.jvp(lambda a: np.matmul(a, 2.0), (a,), (a,))
    with pytest.raises(ValueError, match="shape-mismatch for sum"):
        ft.jvp(lambda a: np.tensordot(a, x, 1), (a,), (a,))
    with pytest.raises(ValueError, match="cannot be empty"):
        ft.jvp(lambda a: np.convolve(a[0], x[:0]), (a,), (a,))
    with pytest.raises(NotImplementedError, match="2-dimensional"):
        ft.jvp(lambda a: np.cross(a[:, :2], a[:, :2]), (a,), (a,))


def test_public_names_return_arrays():
    assert type(fnp.matmul(np.eye(2), np.ones(2))) is ft.Array
    assert type(fnp.einsum("ii->i", np.eye(2))) is ft.Array


@pytest.mark.parametrize("shapes", [((3, 3, 0), (0,)), ((2, 0, 3), (3, 2)), ((2, 3, 0), (2, 0, 2))])
def test_batches_of_products_of_nothing_keep_their_shapes(shapes):
    a, b = (np.zeros(shape) for shape in shapes)
    for in_axes in ((None, 0), (0, None), (0, 0)):
        given = [x if i is None else np.stack([x, x]) for x, i in zip((a, b), in_axes, strict=True)]
        y = ft.vmap(lambda a, b: a @ b, in_axes)(*given)
        np.testing.assert_array_equal(y, np.stack([a @ b, a @ b]))


# ---- unit vectors


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_jacobian_of_a_product_is_the_matrix_also_where_it_is_not_finite(dtype):
    a = np.random.default_rng(0).normal(size=(50, 40)).astype(dtype)
    a[3, 5], a[17, 0] = np.inf, np.nan
    w = np.ones(40, dtype)
    for f in (ft.jacobian(lambda w: a @ w, mode="forward"),
              ft.jit(ft.jacobian(lambda w: a @ w, mode="forward"))):
        with np.errstate(invalid="ignore"):
            y = f(w)
        assert_array_equal(y, a)
        assert y.dtype == dtype
        assert not np.shares_memory(y, a)
    given = ft.jit(lambda w, a: ft.jacobian(lambda w: a @ w, mode="forward")(w))
    with np.errstate(invalid="ignore"):
        assert_array_equal(given(w, a), a)


def test_a_batch_of_unit_vectors_that_are_no_tangents_is_multiplied():
    a = np.ones((50, 40))
    a[3, 5] = np.inf
    with np.errstate(invalid="ignore"):
        expected = np.array([a @ e for e in np.eye(40)])
        assert_array_equal(ft.vmap(lambda w: a @ w)(np.eye(40)), expected)


def test_a_matrix_that_is_written_into_later_does_not_change_its_product_with_unit_vectors():
    a = np.random.default_rng(0).normal(size=(50, 40))
    before = a.copy()

    def f(w):
        y = a @ w
        a[:] = 0.0
        return y * 1.0

    assert_array_equal(ft.jacobian(f, mode="forward")(np.ones(40)), before)


def test_programs_have_no_product_with_unit_vectors():
    def hessian(w, a):
        return ft.hessian(lambda w: np.sum(np.sin(a @ w)))(w)

    program = ft.make_program(hessian)(np.ones(40), np.ones((50, 40)))
    products = [e for e in program.eqns if e.prim is matmul]
    assert products
    assert all(isinstance(a, Var) for e in products for a in e.inputs)


def test_the_cotangent_of_a_product_over_no_entries_is_zero():
    grad = ft.grad(lambda y: (np.ones((2, 3, 0)) @ y).sum())(np.zeros((0, 4)))
    assert grad.shape == (0, 4)
    grad = ft.grad(lambda y: (np.ones((2, 0, 3)) @ y).sum())(np.ones((3, 4)))
    assert_array_equal(grad, np.zeros((3, 4)))
