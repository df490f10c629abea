"""Sparse Jacobians and Hessians equal the dense ones."""

import gc
import pickle
import tracemalloc

import numpy as np
import pytest
from scipy import sparse

import functrans as ft
from functrans._transforms.sparse import coloring as blocks
from functrans._transforms.sparse import compressed
from functrans._transforms.sparse.options import FORMATS, ORDERS
from functrans.errors import (
    ArgumentError,
    CaptureError,
    CheckError,
    ConcretizationError,
    NotDifferentiable,
    ShapeError,
    UnsupportedError,
)
from tests.covering import covering
from tests.sparse_programs import PROGRAMS

pytestmark = pytest.mark.usefixtures("unoptimised")

OPTIONS = covering(FORMATS, ["auto", "column", "row", "bidirectional"], ORDERS)
SCALAR_OPTIONS = covering(FORMATS, ["auto", "star", "acyclic", "column"], ORDERS)
PAIRS = [(p, OPTIONS[k % len(OPTIONS)]) for k, p in enumerate(PROGRAMS[1::3])]


def uniform(low=0.0, high=1.0, size=None):
    return np.random.default_rng(5).uniform(low, high, size)


def tridiagonal(x):
    return x[1:-1] ** 2 + x[2:] * x[:-2]


def rosenbrock(x):
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def arrow(x):
    return np.sum(np.sin(x[1:]) * x[0]) + np.sum(x[1:] ** 3)


def agree(J, dense):
    assert J.toarray() == pytest.approx(np.reshape(dense, J.shape), rel=1e-13, abs=1e-14)


@pytest.mark.parametrize("program, options", PAIRS, ids=lambda p: getattr(p, "name", ""))
def test_sparse_jacobians_are_the_dense_ones(program, options):
    format, coloring, order = options
    x = uniform(0.5, 1.5, program.shape)
    J = ft.sparse_jacobian(program.f, format=format, coloring=coloring, order=order)(x)
    assert J.format == format
    agree(J, ft.jacobian(program.f)(x))


@pytest.mark.parametrize("format, coloring, order", SCALAR_OPTIONS)
def test_sparse_hessians_are_the_dense_ones(format, coloring, order):
    f = {"csr": rosenbrock, "csc": arrow, "coo": lambda x: np.prod(x[:3]) + x[5]}[format]
    x = uniform(0.5, 1.5, 7)
    H = ft.sparse_hessian(f, format=format, coloring=coloring, order=order)(x)
    assert H.format == format
    agree(H, ft.hessian(f)(x))


@pytest.mark.parametrize("name", ["windows", "sparse product", "loop", "put into", "no entries in",
                                  "a constant output"])
def test_sparse_hessians_of_programs_are_the_dense_ones(name):
    (program,) = [p for p in PROGRAMS if p.name == name]
    x = uniform(0.5, 1.5, program.shape)

    def f(x):
        return np.sum(program.f(x) ** 2)

    agree(ft.sparse_hessian(f)(x), ft.hessian(f)(x))


def test_one_preparation_serves_many_points_and_writes_into_its_results():
    J = ft.sparse_jacobian(tridiagonal).prepare(np.ones(9))
    assert J.colors == 3 and J.shape == (7, 9) and J.sparsity.nnz == 21
    first, at = J(np.ones(9)), uniform(size=9)
    before = first.data.copy()
    second = J(at)
    assert np.array_equal(first.data, before)
    agree(second, ft.jacobian(tridiagonal)(at))
    assert J(at, out=first) is first
    agree(first, ft.jacobian(tridiagonal)(at))
    copy = second.copy()  # with index arrays of its own
    J(np.ones(9), out=copy)
    agree(copy, ft.jacobian(tridiagonal)(np.ones(9)))
    first.data[:] = 0  # is its owner's
    agree(J(at), ft.jacobian(tridiagonal)(at))


@pytest.mark.parametrize("format", FORMATS)
def test_results_work_like_any_array_of_scipys(format):
    x = uniform(1, 2, 6)
    J = ft.sparse_jacobian(lambda x: x**2 + np.roll(x, 1), format=format)(x)
    dense = J.toarray()
    v = uniform(size=6)
    assert J @ v == pytest.approx(dense @ v)
    assert (J.T @ J).toarray() == pytest.approx(dense.T @ dense)
    assert sparse.linalg.spsolve(J.tocsc(), v) == pytest.approx(np.linalg.solve(dense, v))
    with pytest.raises(ValueError, match="read-only"):
        (J.coords[0] if format == "coo" else J.indices)[0] = 1


@pytest.mark.parametrize("coloring", ["column", "row", "bidirectional"])
def test_products_come_in_chunks_where_memory_asks_for_them(monkeypatch, coloring):
    monkeypatch.setattr(compressed, "BUDGET", 8 * 2 * 13 * 2)
    x = uniform(1, 2, 13)

    def f(x):
        return np.concatenate([np.sum(x[:7]) * x[:6] ** 2, x[6:] * x[3]])

    agree(ft.sparse_jacobian(f, coloring=coloring)(x), ft.jacobian(f)(x))
    if coloring == "column":
        H = ft.sparse_hessian(lambda x: np.sum(f(x) ** 2), coloring="acyclic")(x)
        agree(H, ft.hessian(lambda x: np.sum(f(x) ** 2))(x))


@pytest.mark.parametrize("x", [
    np.ones(6, np.float32), np.arange(12.0)[::2], np.broadcast_to(1.5, 6),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)), ft.array(np.arange(6.0)),
    np.arange(6.0).astype(">f8"),
], ids=["float32", "strided", "read-only", "fortran", "Array", "bytes turned"])
def test_kinds_of_arrays(x):
    J = ft.sparse_jacobian(lambda x: np.sin(x.reshape(-1)[1:]) * x.reshape(-1)[:-1])
    dense = ft.jacobian(lambda x: np.sin(x.reshape(-1)[1:]) * x.reshape(-1)[:-1])(x)
    made = J(x)
    assert made.dtype == x.dtype.newbyteorder("=")
    assert made.toarray() == pytest.approx(
        np.reshape(dense, made.shape), rel=1e-6 if x.dtype == np.float32 else 1e-13  # its digits
    )


def pentadiagonal(x):
    return np.sum(x[2:] * x[:-2] * x[1:-1])


def stencil(x):
    inner = x[1:-1, 1:-1]
    return x[2:, 1:-1] * x[:-2, 1:-1] + x[1:-1, 2:] * inner + x[1:-1, :-2] ** 2


@pytest.mark.parametrize("f, shape, kind, pieces", [
    (tridiagonal, 11, ft.sparse_jacobian, 1), (rosenbrock, 11, ft.sparse_hessian, 1),
    (pentadiagonal, 11, ft.sparse_hessian, 3), (lambda x: np.sum(x**4), 5, ft.sparse_hessian, 1),
    (stencil, (7, 6), ft.sparse_jacobian, 1), (lambda x: 3 * x, 4, ft.sparse_jacobian, 1),
])
@pytest.mark.parametrize("format", FORMATS)
def test_rows_of_equal_width_are_written_as_a_table(monkeypatch, f, shape, kind, pieces, format):
    monkeypatch.setattr(blocks, "WRITTEN_OUT", 1000)
    x = uniform(0.5, 1.5, shape)
    made = kind(f, format=format).prepare(np.ones(shape))
    (sweep,) = made._sweeps
    assert isinstance(sweep, blocks.Table) and len(sweep.pieces) == pieces
    dense = (ft.hessian if kind is ft.sparse_hessian else ft.jacobian)(f)(x)
    first = made(x)
    agree(first, dense)
    agree(made(2 * x, out=made(x)), (ft.hessian if kind is ft.sparse_hessian else ft.jacobian)(f)(
        2 * x))
    first.data[:] = 0  # is its owner's
    agree(made(x), dense)
    with ft.config(jit=False):
        agree(made(x), dense)


ENDS = np.random.default_rng(0).permuted(np.tile(np.arange(7), (20, 1)), axis=1)[:, :2].T


def springs(x, y=1, ends=ENDS):
    """Squared lengths: each row reads two ends, each end is in many rows."""
    along = np.reshape(x, (7, 2))[ends[0]] - np.reshape(x, (7, 2))[ends[1]]
    return np.sum(along**2, axis=1) * y**2


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.complex128])
@pytest.mark.parametrize("format", FORMATS)
def test_what_is_gathered_first_takes_few_products(kind, format):
    x = uniform(size=14).astype(kind)
    J = ft.sparse_jacobian(springs, format=format).prepare(x)
    assert (J.coloring, J.colors) == ("row", 1) and J._sweeps[0].order is not None
    assert J(x).dtype == kind
    dense = ft.jacobian(springs, holomorphic=kind is np.complex128)(x)
    assert J(x).toarray() == pytest.approx(dense, rel=50 * float(np.finfo(kind).eps))
    x[3] = np.nan
    with np.errstate(invalid="ignore"):
        assert np.array_equal(J(x).toarray(), ft.jacobian(springs)(x), equal_nan=True)


@pytest.mark.parametrize("f, args", [
    (lambda x: springs(x, ends=np.array([[0, 1, 2] * 5, [0, 1, 3] * 5])), (uniform(size=14),)),
    (lambda x, y: springs(x, y[ENDS[0]]) * x[0], (uniform(size=14), uniform(size=7))),
    (lambda x, y: np.concatenate([x, y[ENDS[0]], x[ENDS[1]] * x[3]]),
     (uniform(size=14), uniform(size=7))),
    (lambda x: x[[0, 1, 2, 0, 1, 2] * 4], (uniform(size=3),)),
], ids=["one end twice", "two arguments", "also as they are", "nothing else"])
def test_jacobians_after_a_gathering_are_the_dense_ones(f, args):
    J = ft.sparse_jacobian(f, argnums=tuple(range(len(args))))(*args)
    dense = ft.jacobian(f, argnums=tuple(range(len(args))))(*args)
    agree(J, np.concatenate(dense, axis=1))


WHO, WHAT = np.arange(40) % 7, np.arange(40) % 20 // 3


def seen(camera, point):
    """Two residuals for each pair of a camera and a point, by all but one of their numbers."""
    away, z = point[WHAT] - camera[WHO][:, 1:4], np.sum(camera[WHO] ** 2, -1) * point[WHAT, 1]
    return np.stack([away[:, 0] * z / away[:, 2], z / away[:, 2]], -1) + camera[WHO][:, 4:]


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.complex128])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("turned", [False, True])
def test_groups_of_rows_are_written_as_blocks(kind, format, turned):
    f = (lambda p, c: seen(c, p)) if turned else seen
    args = [uniform(1, 2, (7, 6)).astype(kind), uniform(3, 4, (7, 3)).astype(kind)]
    args = args[::-1] if turned else args
    J = ft.sparse_jacobian(f, argnums=(0, 1), format=format).prepare(*args)
    (sweep,) = J._sweeps
    assert isinstance(sweep, blocks.Blocks) and J.colors == 2
    assert sweep.order is None
    dense = ft.jacobian(f, argnums=(0, 1), holomorphic=kind is np.complex128)
    rounding = 50 * float(np.finfo(kind).eps)

    def wanted(args):
        return np.concatenate([x.reshape(80, -1) for x in dense(*args)], 1)

    first = J(*args)
    assert first.dtype == kind and first.toarray() == pytest.approx(wanted(args), rel=rounding)
    more = [1.5 * x for x in args]
    assert J(*more, out=first).toarray() == pytest.approx(wanted(more), rel=rounding)
    with ft.config(jit=False):
        assert J(*args).toarray() == pytest.approx(wanted(args), rel=rounding)
    copy = pickle.loads(pickle.dumps(J))
    assert copy(*args).toarray() == pytest.approx(wanted(args), rel=rounding)
    args[turned][2, 2] = np.nan
    with np.errstate(invalid="ignore"):
        assert np.array_equal(np.isnan(J(*args).toarray()), np.isnan(wanted(args)))


def test_a_hessian_without_mixed_derivatives_takes_one_product():
    made = ft.sparse_hessian(lambda x: np.sum(x**4)).prepare(np.ones(30))
    assert made.colors == 1
    agree(made(np.arange(30.0)), np.diag(12 * np.arange(30.0) ** 2))


def test_what_is_not_finite_stays_in_its_entry():
    x = np.array([0.0, 4.0, np.nan, np.inf, 1.0])

    def f(x):
        return np.sqrt(x) + 2 * np.roll(x, 1)

    dense = np.asarray(ft.jacobian(f)(x))
    for coloring in ("column", "row"):
        assert np.array_equal(ft.sparse_jacobian(f, coloring=coloring)(x).toarray(), dense,
                              equal_nan=True)
    dense = np.asarray(ft.hessian(lambda x: np.sum(np.sqrt(x)) + x[0] * x[1])(x))
    H = ft.sparse_hessian(lambda x: np.sum(np.sqrt(x)) + x[0] * x[1])(x)
    assert np.array_equal(H.toarray(), dense, equal_nan=True)


def test_what_has_no_reverse_mode_is_colored_by_columns():
    def f(x):
        y = ft.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] ** 2), (0, x))[1]
        return np.sum(y)[None] * x[:1]

    x = uniform(1, 2, 4)
    made = ft.sparse_jacobian(f).prepare(x)
    assert made.coloring == "column" and made.colors == 4
    agree(made(x), ft.jacfwd(f)(x))
    with pytest.raises(NotDifferentiable, match="pass max_steps"):
        ft.sparse_jacobian(f, coloring="row")(x)


def test_they_run_without_the_compiler():
    x = uniform(1, 2, 9)
    with ft.config(jit=False):
        agree(ft.sparse_jacobian(tridiagonal)(x), ft.jacobian(tridiagonal)(x))
        agree(ft.sparse_hessian(arrow)(x), ft.hessian(arrow)(x))


def test_other_arguments_may_change_from_call_to_call():
    def f(scale, x, more):
        return scale * x**2 * more["w"]

    J = ft.sparse_jacobian(f, argnums=1).prepare(1.0, np.ones(3), {"w": np.ones(3)})
    w = np.array([1.0, 2.0, 3.0])
    assert J(2.0, w, {"w": w}).toarray() == pytest.approx(np.diag(4 * w**2))


def test_arguments_that_are_no_numbers_choose_the_program():
    class Scale:
        def __init__(self, by):
            self.by = by

    def f(x, squared, scale, how="sum"):
        return (x**2 if squared else x + x[::-1]) * scale.by

    derivative, two = ft.sparse_jacobian(f), Scale(2.0)
    x = np.array([1.0, 2.0, 3.0])
    assert np.array_equal(derivative(x, True, two).toarray(), np.diag(4 * x))
    assert np.array_equal(derivative(x, False, two).toarray()[0], [2, 0, 2])
    prepared = derivative.prepare(x, True, two, "mean")
    with pytest.raises(ShapeError, match="was prepared for"):
        prepared(x, False, two, "mean")
    two.by = 3.0
    assert np.array_equal(derivative(x, True, two).toarray(), np.diag(6 * x))
    with pytest.raises(CaptureError, match="has changed"):
        prepared(x, True, two, "mean")


def test_a_closure_that_changes_is_noticed():
    w = np.array([1.0, 0.0, 2.0])
    derivative = ft.sparse_jacobian(lambda x: x * w)
    prepared = derivative.prepare(np.ones(3))
    assert derivative(np.ones(3)).nnz == prepared.sparsity.nnz == 2
    w[1] = 5.0
    assert derivative(np.ones(3)).toarray()[1, 1] == 5.0
    with pytest.raises(CaptureError, match="which `<lambda>` reads, has changed since"):
        prepared(np.ones(3))


def by_value(x):
    """Another pattern on each path, one of which raises in what the other decides by."""
    if x[0] > 0:
        return np.sum(x[1:] * x[:-1] ** 2)
    low = np.linalg.inv(np.diag(1 - x))[0, 0]
    return np.sum(x**3) if low > 0.25 else np.sum(x) ** 2


PATHS = [np.array(x) for x in ([1.0, 2, 3], [-1.0, 2, 3], [-4.0, 2, 3], [2.0, 1, 1])]


def test_each_path_is_prepared_when_it_is_met():
    H = ft.sparse_hessian(by_value)
    for x in PATHS * 2:
        agree(H(x), ft.hessian(by_value)(x))
    assert len(H._kept) == 3
    J = ft.sparse_jacobian(lambda x: x[x > 0] ** 2)
    for x in PATHS:
        agree(J(x), ft.jacobian(lambda x: x[x > 0] ** 2)(x))


@pytest.mark.parametrize("call", ["__call__", "check"])
def test_what_is_prepared_serves_its_path(call):
    H = pickle.loads(pickle.dumps(ft.sparse_hessian(by_value).prepare(PATHS[0])))
    agree(H(PATHS[3]), ft.hessian(by_value)(PATHS[3]))
    for x in PATHS[1:3]:
        with pytest.raises(ArgumentError, match=r"`by_value` was prepared on the path for bool\(\) "
                           r"is True at .*py:\d+, and takes another one here"):
            getattr(H, call)(x)


def test_a_number_that_is_taken_out_has_no_derivative():
    with pytest.raises(ConcretizationError, match=r"float\(\) of a value that sparse_jacobian"):
        ft.sparse_jacobian(lambda x: x * float(x[0]))(ONES)
    J = ft.sparse_jacobian(lambda x: x * int(x[0]) * float(ft.stop_gradient(x[1])))
    agree(J(3 * ONES), 9 * np.eye(4))
    agree(J(2 * ONES), 4 * np.eye(4))


def test_a_long_container_in_a_message_is_cut_short():
    J = ft.sparse_jacobian(lambda x: x**2).prepare(np.ones(300))
    with pytest.raises(ShapeError, match=r"\.\.\. of 300 leaves; prepare it") as e:
        J([1.0] * 300)
    assert len(str(e.value)) < 600


def test_prepared_derivatives_pickle_without_their_function():
    x = uniform(size=8)
    for made in (ft.sparse_jacobian(lambda x: tridiagonal(x) * 2, format="csc").prepare(x),
                 ft.sparse_hessian(lambda x: arrow(x) * 2, coloring="acyclic").prepare(x)):
        there = pickle.loads(pickle.dumps(made))
        assert repr(there) == repr(made)
        assert np.array_equal(there(x).toarray(), made(x).toarray())
    assert np.array_equal(
        pickle.loads(pickle.dumps(ft.sparse_jacobian(tridiagonal, format="csc")))(x).toarray(),
        ft.sparse_jacobian(tridiagonal)(x).toarray(),
    )


def test_they_show_what_they_are():
    @ft.sparse_jacobian(coloring="row")
    def f(x):
        return x[1:] * x[:-1]

    assert repr(f) == "<sparse_jacobian of f>"
    made = f.prepare(np.ones(4))
    assert repr(made).split("\n") == [
        "<sparse_jacobian of f: 3 x 4, 6 entries, 2 colors>", "[@@  ]", "[ @@ ]", "[  @@]",
    ]
    assert made.coloring == "row" and not made.sparsity_is_given
    large = repr(ft.sparse_hessian(rosenbrock).prepare(np.ones(500))).split("\n")
    assert len(large) == 17 and {len(line) for line in large[1:]} == {50}
    assert repr(ft.sparse_jacobian(lambda x: x[:0]).prepare(np.ones(4))) == (
        "<sparse_jacobian of <lambda>: 0 x 4, 0 entries, 0 colors>"
    )


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("derivative", [
    ft.sparse_jacobian(tridiagonal), ft.sparse_jacobian(tridiagonal, format="csc"),
    ft.sparse_hessian(arrow), ft.sparse_hessian(arrow, coloring="acyclic"),
], ids=["table", "csc", "hessian", "substitution"])
def test_what_a_call_is_expected_to_take_is_what_it_takes(derivative, compiled):
    x = np.linspace(0.1, 1.0, 3000)
    with ft.config(jit=compiled, threads=1, keep_memory=False):
        prepared = derivative.prepare(x)
        prepared(x), derivative(x)
        gc.collect()
        tracemalloc.start()
        try:
            prepared(x)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        expected = prepared.memory(x)
        assert derivative.memory(x) == expected
    # Python's own objects, such as the results of single equations, are not counted
    assert 0.95 * peak - 20_000 <= expected <= 1.25 * peak
    with pytest.raises(ShapeError):
        prepared.memory(x[1:])


def test_spy_draws_the_pattern():
    pytest.importorskip("matplotlib")
    made = ft.sparse_jacobian(tridiagonal).prepare(np.ones(9))
    ax = made.spy(color="red")
    (line,) = ax.lines
    assert len(line.get_xdata()) == 21 and "7 x 9, 21 entries" in ax.get_title()
    assert made.spy(ax) is ax


# ---- containers, and complex numbers


def network(p, x, scale=1.0):
    """Two layers of which each reads three neighbours, and a number beside."""
    y = np.tanh(p["w"][1:] * x[1:] - p["w"][:-1] * x[:-1]) + p["b"][0, 0] * scale
    return {"y": y[1:] * y[:-1], "norm": (p["n"] * x[0] ** 2, p["b"])}


def laid_out(J, f, args):
    """The matrix that the blocks of a dense derivative make, in the order of ``tree.ravel``."""
    outs = [np.size(y) for y in ft.tree.leaves(f(*args))]
    blocks = [np.asarray(b) for b in ft.tree.leaves(J)]
    wide = len(blocks) // len(outs)
    return np.block([[blocks[i * wide + j].reshape(m, -1) for j in range(wide)]
                     for i, m in enumerate(outs)])


PARAMETERS = {"w": np.linspace(0.3, 1.1, 6), "b": np.ones((1, 2)), "n": 3.0}


@pytest.mark.parametrize("argnums", [0, 1, -2, (0, 1), (1, 0), "p['w']", ("x", "p['b']"),
                                     lambda path, leaf: "w" in path or path == "x"])
@pytest.mark.parametrize("coloring", ["column", "row"])
def test_containers_are_the_rows_and_columns_of_one_matrix(argnums, coloring):
    args = PARAMETERS, np.linspace(1, 2, 6)
    J = ft.sparse_jacobian(network, argnums=argnums, coloring=coloring)(*args)
    agree(J, laid_out(ft.jacobian(network, argnums=argnums)(*args), network, args))
    assert J.nnz < 0.6 * np.prod(J.shape)
    pattern = ft.sparsity(network, *args, argnums=argnums)
    assert np.array_equal(pattern.indices, J.indices)


@pytest.mark.parametrize("coloring", ["star", "acyclic", "column"])
def test_hessians_of_containers_are_one_symmetric_matrix(coloring):
    def energy(p, x):
        return np.sum(network(p, x)["y"]) + p["n"] * x[2] ** 2

    args = PARAMETERS, np.linspace(1, 2, 6)
    made = ft.sparse_hessian(energy, argnums=(1, 0), coloring=coloring).prepare(*args)
    whole, back = ft.tree.ravel((args[1], args[0]))
    dense = ft.hessian(lambda v: energy(*back(v)[::-1]))(whole)
    agree(made(*args), dense)
    assert made.check(*args) is None
    again = pickle.loads(pickle.dumps(ft.sparse_hessian(network, argnums=1)))
    assert repr(again) == "<sparse_hessian of network>"


def test_numbers_of_several_widths_meet_in_the_wider():
    p = {"a": np.ones(3, np.float32), "b": np.full(3, 2.0), "count": 4, "name": "none"}

    def f(p):
        return p["a"] * p["b"] * p["count"], p["a"][:2] ** 2

    for coloring in ("column", "row"):
        J = ft.sparse_jacobian(f, coloring=coloring)(p)
        assert J.shape == (5, 6) and J.dtype == np.float64
        assert J.toarray()[:3, :3] == pytest.approx(8 * np.eye(3))
        assert J.toarray()[:, 3:] == pytest.approx(4 * np.eye(5, 3) * (np.arange(5) < 3)[:, None])


@pytest.mark.parametrize("coloring", ["column", "row", "bidirectional"])
def test_complex_jacobians_of_holomorphic_functions(coloring):
    z = uniform(1, 2, 7) + 1j * uniform(-1, 1, 7)[::-1]
    for f in (lambda z: np.exp(1j * z) / z[::-1], lambda z: np.fft.fft(z[:3]) * z[3]):
        J = ft.sparse_jacobian(f, coloring=coloring)
        agree(J(z), ft.jacobian(f, holomorphic=True)(z))
        assert J(z).dtype == complex
    pair = {"u": z, "v": z[:2].astype(np.complex64)}
    J = ft.sparse_jacobian(lambda p: p["u"][:2] * p["v"], coloring=coloring)(pair)
    expected = np.hstack([np.diag(pair["v"]), np.zeros((2, 5)), np.diag(z[:2])])
    assert J.toarray() == pytest.approx(expected, rel=1e-6)  # as complex64 has them


def test_complex_hessians_of_holomorphic_functions():
    z = uniform(1, 2, 6) + 1j * uniform(-1, 1, 6)
    dense = ft.hessian(arrow, holomorphic=True)(z)
    for coloring in ("star", "acyclic"):
        agree(ft.sparse_hessian(arrow, coloring=coloring)(z), dense)


def test_widths_that_differ_in_and_out():
    x = np.arange(1, 5, dtype=np.float32)
    for coloring in ("column", "row", "bidirectional"):
        J = ft.sparse_jacobian(lambda x: x.astype(float) ** 2, coloring=coloring)(x)
        assert J.dtype == np.float64 and np.array_equal(J.toarray(), np.diag(2 * x))
    slopes = ft.sparse_jacobian(lambda x: (x, x * x))(3.0)  # of a number of Python's
    assert np.array_equal(slopes.toarray(), [[1], [6]])


def test_entries_that_cancel_to_rounding_say_nothing_about_holomorphy():
    def there_and_back(z):
        return np.fft.fft(np.fft.ifft(z * z[::-1]) * 3.0)

    z = uniform(-1, 1, 6) + 1j * np.linspace(-1, 2, 6)

    def f(z):
        return np.concatenate([z, there_and_back(z) - 3.0 * z * z[::-1]])

    agree(ft.sparse_jacobian(f)(z), ft.jacobian(f, holomorphic=True)(z))
    with pytest.raises(NotDifferentiable, match="not holomorphic here"):
        ft.sparse_jacobian(lambda z: f(z) + 1e-9 * np.conjugate(z[0]))(z)


def test_each_call_asks_whether_the_function_is_holomorphic_there():
    f = lambda z: np.where(z.real > 0, z**2, np.conj(z))  # noqa: E731  # one line
    J = ft.sparse_jacobian(f).prepare(np.ones(3) + 1j)
    assert J(np.ones(3) + 2j).toarray() == pytest.approx(np.diag(np.full(3, 2 + 4j)))
    with pytest.raises(NotDifferentiable, match="holomorphic here"):
        J(np.array([1, -1, 1]) + 1j)
    there = pickle.loads(pickle.dumps(J))
    with pytest.raises(NotDifferentiable, match="holomorphic here"):
        there(np.array([1, -1, 1]) + 1j)


# ---- patterns of the user's


def test_a_wider_pattern_is_accepted():
    x = uniform(1, 2, 5)
    for given in (np.ones((3, 5), bool), sparse.coo_array(np.ones((3, 5))), [[1] * 5] * 3):
        made = ft.sparse_jacobian(tridiagonal, sparsity=given).prepare(x)
        assert made.sparsity_is_given and made.sparsity.nnz == 15
        agree(made(x), ft.jacobian(tridiagonal)(x))
    H = ft.sparse_hessian(rosenbrock, sparsity=np.ones((5, 5)))(x)
    agree(H, ft.hessian(rosenbrock)(x))


@pytest.mark.parametrize("coloring", ["column", "row"])
def test_a_missing_entry_is_named(coloring):
    x = np.arange(1.0, 8.0)
    given = ft.sparsity(tridiagonal, x).toarray()
    for i, j in ((0, 0), (2, 3), (4, 6)):
        less = given.copy()
        less[i, j] = False
        with pytest.raises(CheckError, match=rf"misses the entry \[{i}, {j}\], where the deriv"):
            ft.sparse_jacobian(tridiagonal, sparsity=less, coloring=coloring)(x)


def test_a_missing_pair_of_entries_of_a_hessian_is_named():
    x = np.arange(1.0, 6.0)
    given = ft.sparsity(arrow, x, kind="hessian").toarray()
    given[0, 3] = given[3, 0] = False
    with pytest.raises(CheckError, match=r"misses the entry \[(0, 3|3, 0)\].*is -0.653644"):
        ft.sparse_hessian(arrow, sparsity=given)(x)
    given[3, 0] = True
    with pytest.raises(ArgumentError, match=r"the entry \[3, 0\] but not \[0, 3\]"):
        ft.sparse_hessian(arrow, sparsity=given)(x)


def test_an_entry_that_is_zero_where_it_is_prepared_is_found_by_check():
    made = ft.sparse_jacobian(
        lambda x: np.where(x > 0, x[::-1] * x, x), sparsity=np.eye(4)
    ).prepare(-np.ones(4))
    made.check(-2 * np.ones(4))
    with pytest.raises(CheckError, match=r"misses the entry \[\d, \d\]"):
        made.check(np.ones(4))


def test_a_right_pattern_passes_where_rounding_is_large():
    x = uniform(size=50)

    def f(x):
        return (x + 1e9) * 1e-9 + np.cumsum(1e8 * x) - 1e8 * np.cumsum(x)

    ft.sparse_jacobian(f, sparsity=np.tril(np.ones((50, 50))))(x)


# ---- what is refused


ONES = np.ones(4)
PREPARED = ft.sparse_jacobian(np.sin)


@pytest.mark.parametrize("call, error, text", [
    (lambda: ft.sparse_jacobian(3), ArgumentError, "sparse_jacobian needs a function"),
    (lambda: ft.sparse_jacobian(np.sin, format="dense"), ArgumentError,
     "sparse_jacobian: format must be one of csr, csc, coo, but is 'dense'"),
    (lambda: ft.sparse_hessian(np.sum, coloring="row"), ArgumentError, "one of auto, star, acy"),
    (lambda: ft.sparse_jacobian(np.sin, order="best"), ArgumentError, "order must be one of"),
    (lambda: ft.sparse_jacobian(np.sin, argnums=1.5), ArgumentError, "argnums must be ints or"),
    (lambda: ft.sparse_jacobian(np.sin)(x=ONES), ArgumentError, "by position here, but got x by"),
    (lambda: ft.sparse_hessian(lambda x: (x[0], x[1]))(ONES), ShapeError, "returned 2 arrays"),
    (lambda: ft.sparse_jacobian(lambda p: p["x"] * p["z"])({"x": ONES, "z": ONES * 1j}),
     NotDifferentiable, "maps float64, complex128 to complex128; sparse derivatives are of real"),
    (lambda: ft.sparse_jacobian(np.abs)(ONES * 1j), NotDifferentiable, "complex128 to float64"),
    (lambda: ft.sparse_jacobian(np.conj)(ONES * 1j), NotDifferentiable, "is not holomorphic here"),
    (lambda: ft.sparse_hessian(lambda x: (x * np.conj(x)).sum())(ONES * 1j), NotDifferentiable,
     "the gradient of `<lambda>` is not holomorphic here"),
    (lambda: ft.sparse_jacobian(np.sin, sparsity=np.eye(3))(ONES), ShapeError,
     r"shape \(3, 3\), but the matrix of `sin` has \(4, 4\)"),
    (lambda: ft.sparse_hessian(np.sum, sparsity=np.ones((3, 4)))(ONES), ShapeError, r"\(3, 4\)"),
    (lambda: ft.sparse_jacobian(np.sin, sparsity="band")(ONES), ArgumentError,
     "must be a sparse array or a matrix of booleans, but is str"),
    (lambda: ft.sparse_hessian(np.sin)(ONES), ShapeError, "needs a scalar output, but `sin`"),
    (lambda: ft.grad(lambda x: ft.sparse_jacobian(np.sin)(x).sum())(ONES), UnsupportedError,
     "argument 0 of `sin` is traced"),
    (lambda: ft.jit(lambda x: ft.sparse_jacobian(np.sin).prepare(x)(x))(ONES), UnsupportedError,
     "no transform can trace"),
    (lambda: PREPARED.prepare(ONES)(np.ones(5)), ShapeError,
     r"`sin` was prepared for .*4.*, but is called with .*5"),
    (lambda: PREPARED.prepare(ONES)(ONES, out=np.eye(4)), ArgumentError,
     "out must be a csr_array of shape .* but is ndarray"),
    (lambda: PREPARED.prepare(ONES)(ONES, out=sparse.csr_array(np.ones((4, 4)))), ArgumentError,
     "out has entries in other places"),
])
def test_bad_input_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_out_that_cannot_be_written_to_is_refused():
    J = PREPARED.prepare(ONES)
    out = J(ONES)
    out.data.setflags(write=False)
    with pytest.raises(ArgumentError, match="the data of out cannot be written to"):
        J(ONES, out=out)
