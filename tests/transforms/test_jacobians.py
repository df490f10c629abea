"""Derivative matrices: of complex functions, in batches that fit, within the memory there is."""

import re
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
from functrans import make_program, tree
from functrans._compile.ir.program import interpret
from functrans._transforms.matrices import batches, directions, memory
from functrans.errors import ArgumentError, NotDifferentiable, OutOfMemoryError, UnsupportedError
from tests.covering import covering
from tests.drawing import generator
from tests.sparse_programs import PROGRAMS

MATRICES = [ft.jacobian, ft.jacfwd, ft.jacrev]
X = np.array([0.3, 0.7, -0.2])
Z = X + 1j * np.array([1.0, -0.5, 0.25])
A = np.array([[1.0, 2j, 0.5], [-1j, 3.0, 1 + 1j]])


@pytest.mark.parametrize("matrix", MATRICES)
class TestComplex:
    def test_derivatives_of_a_complex_function_of_real_numbers_are_complex(self, matrix):
        J = matrix(lambda x: A @ np.exp(1j * x))(X)
        assert J.dtype == np.complex128
        assert_allclose(J, A * (1j * np.exp(1j * X)), rtol=1e-15)

    def test_of_float32_they_are_complex64(self, matrix):
        assert matrix(lambda x: x * np.complex64(1j))(X.astype(np.float32)).dtype == np.complex64

    def test_of_a_complex_number_of_one_real_number(self, matrix):
        assert complex(matrix(lambda x: np.exp(2j * x))(0.3)) == 2j * np.exp(0.6j)

    def test_rows_of_a_real_function_of_complex_numbers_are_gradients(self, matrix):
        J = matrix(lambda z: np.stack([np.sum(np.abs(z) ** 2), np.sum(z * z).real]))(Z)
        assert_allclose(J, np.stack([2 * Z, 2 * np.conj(Z)]), rtol=1e-15)

    def test_of_one_output_it_is_the_gradient(self, matrix):
        def f(z):
            return np.sum(np.sin(z).real * np.abs(z))

        assert_allclose(matrix(f)(Z), ft.grad(f)(Z), rtol=1e-14)

    def test_a_holomorphic_function_has_its_complex_derivative(self, matrix):
        assert_allclose(matrix(lambda z: A @ np.sin(z))(Z), A * np.cos(Z), rtol=1e-15)

    @pytest.mark.parametrize("chunk_size", [None, 1, 2, "auto"])
    def test_chunks_may_part_the_directions_of_one_number(self, matrix, chunk_size):
        J = matrix(lambda z: A @ np.sin(z), chunk_size=chunk_size)(Z)
        assert_allclose(J, A * np.cos(Z), rtol=1e-15)

    def test_real_and_complex_values_side_by_side(self, matrix):
        def f(p):
            return {"real": np.sum(p["x"]) * np.abs(p["z"]) ** 2, "complex": p["z"] * p["x"][0]}

        J = matrix(f)({"x": X, "z": Z})
        size, first = np.abs(Z) ** 2, np.array([1.0, 0.0, 0.0])
        assert_allclose(J["real"]["x"], size[:, None] * np.ones(3), rtol=1e-15)
        assert_allclose(J["real"]["z"], np.diag(X.sum() * 2 * Z), rtol=1e-15, atol=1e-15)
        assert_allclose(J["complex"]["x"], Z[:, None] * first, rtol=1e-15)
        assert_allclose(J["complex"]["z"], X[0] * np.eye(3), rtol=1e-15)

    @pytest.mark.parametrize(
        "f", [np.conj, lambda z: 1j * np.conj(z), lambda z: z * np.abs(z), lambda z: z.real + 0j]
    )
    def test_a_function_that_is_not_holomorphic_is_refused(self, matrix, f):
        text = rf"{matrix.__name__}: .* is not holomorphic: .* holomorphic=True"
        with pytest.raises(NotDifferentiable, match=text):
            matrix(f)(Z)

    def test_one_entry_that_is_not_holomorphic_is_seen_beside_large_ones(self, matrix):
        with pytest.raises(NotDifferentiable, match="not holomorphic"):
            matrix(lambda z: np.stack([1e10 * z[0] + np.conj(z[1]), 1e12 * z[2]]))(Z)

    def test_where_values_are_not_known_it_has_nan_there(self, matrix):
        J = ft.vmap(matrix(lambda z: np.stack([z[0] * np.abs(z[1]), z[2]])))(Z[None])[0]
        assert np.isnan(J[0, 1])
        assert_array_equal(J[1], [0, 0, 1])
        J = ft.jit(matrix(lambda z: np.stack([z[0] * np.abs(z[1]), z[2]])))(Z)
        assert np.isnan(J[0, 1])
        assert_array_equal(J[1], [0, 0, 1])

    def test_holomorphic_takes_your_word_for_it(self, matrix):
        assert_allclose(matrix(lambda z: A @ np.sin(z), holomorphic=True)(Z), A * np.cos(Z))

    def test_holomorphic_needs_complex_values_on_both_sides(self, matrix):
        text = rf"{matrix.__name__}\(holomorphic=True\) needs complex .* maps float64 to complex128"
        with pytest.raises(NotDifferentiable, match=text):
            matrix(lambda x: x * 1j, holomorphic=True)(X)
        with pytest.raises(NotDifferentiable, match="maps complex128 to float64"):
            matrix(np.abs, holomorphic=True)(Z)

    def test_jit_and_vmap_agree(self, matrix):
        f = matrix(lambda x: A @ np.exp(1j * x))
        assert_allclose(ft.jit(f)(X), f(X), rtol=1e-14)
        assert_allclose(ft.vmap(f)(X[None])[0], f(X), rtol=1e-14)


def test_the_test_for_holomorphy_takes_as_many_runs_again():
    def runs(**options):
        calls = []
        ft.jacfwd(lambda z: calls.append(0) or z * z, chunk_size=1, **options)(Z)
        return len(calls)

    assert (runs(), runs(holomorphic=True)) == (6, 3)


def test_the_hessian_of_a_complex_function_of_real_numbers_is_complex():
    H = ft.hessian(lambda x: np.sum(np.exp(1j * x)))(X)
    assert_allclose(H, np.diag(-np.exp(1j * X)), rtol=1e-15)


def test_the_hessian_of_a_holomorphic_function_is_its_second_derivative():
    for options in ({}, {"holomorphic": True}):
        H = ft.hessian(lambda z: np.sum(z**3), **options)(Z)
        assert_allclose(H, np.diag(6 * Z), rtol=1e-15)


def test_the_hessian_of_a_real_function_of_complex_numbers_needs_a_holomorphic_gradient():
    assert_allclose(ft.hessian(lambda z: np.sum(np.abs(z) ** 2))(Z), 2 * np.eye(3), atol=1e-15)
    with pytest.raises(NotDifferentiable, match="hessian: the gradient of `<lambda>` maps complex"):
        ft.hessian(lambda z: np.sum((z * z).real))(Z)


def test_a_point_that_a_rule_refuses_is_refused_in_a_batch_too():
    def f(a):
        w, v = np.linalg.eigh((a + a.T) / 2)
        return np.sum((v * np.exp(w)) @ v.T)

    for transform in (ft.hessian(f), lambda a: ft.hvp(f, a, a)):
        with pytest.raises(NotDifferentiable, match="eigh: eigenvalues 0 and 1 coincide"):
            transform(np.eye(2))


def test_the_direction_to_be_asked_alone_is_the_one_with_a_nan():
    images = [np.ones(3), np.array([[1.0, 2.0], [np.inf, 3.0], [4.0, np.nan]])]
    assert batches._first_nan(images) == 2
    assert batches._first_nan([np.array([np.nan, 1.0, np.nan])]) == 0
    assert batches._first_nan([np.array([np.inf, 1.0])]) is None


def test_nan_that_nobody_refuses_stays_in_its_place():
    with np.errstate(all="ignore"):
        J = ft.jacfwd(lambda x: np.log(x))(np.array([1.0, np.nan, 2.0]))
    assert_array_equal(np.isnan(J), [[False] * 3, [False, True, False], [False] * 3])


# ---- memory

HUGE = np.ones(2_000_000)  # whose matrices take 32 TB


@pytest.mark.parametrize("matrix", [*MATRICES, ft.hessian])
@pytest.mark.parametrize("chunk_size", ["auto", None, 3])
def test_a_matrix_that_no_memory_holds_is_refused_with_its_size(matrix, chunk_size):
    def f(x):
        return np.sum(x**2) if matrix is ft.hessian else x**2

    text = (
        rf"{matrix.__name__}: the result for `f` takes [3-6]\d,000.0 GB, but only .* [hj]vp.* "
        "linear_operator .* sparse_"
    )
    with pytest.raises(OutOfMemoryError, match=text) as caught:
        matrix(f, chunk_size=chunk_size)(HUGE)
    assert isinstance(caught.value, MemoryError)


def test_so_it_is_before_it_is_compiled():
    with pytest.raises(OutOfMemoryError, match="hessian: the result"):
        ft.jit(ft.hessian(lambda x: np.sum(x**2)))(HUGE)


def test_what_fits_is_not_refused_and_small_results_do_not_ask(monkeypatch):
    x = np.ones(3000)
    monkeypatch.setattr(memory, "available", lambda: 72_000_000)
    assert ft.jacobian(np.sin)(x).shape == (3000, 3000)
    monkeypatch.setattr(memory, "available", lambda: 71_999_999)
    with pytest.raises(OutOfMemoryError, match=r"0\.1 GB"):
        ft.jacobian(np.sin)(x)
    monkeypatch.setattr(memory, "available", lambda: 0)
    assert ft.jacobian(np.sin)(np.ones(300)).shape == (300, 300)


def test_a_limit_of_the_process_counts():
    code = """if True:
        import resource, numpy as np, functrans as ft
        resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, resource.RLIM_INFINITY))
        try:
            ft.hessian(lambda x: np.sum(x**2))(np.ones(30_000))
        except ft.errors.OutOfMemoryError as e:
            print(e)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # free-threaded Python sets a gigabyte of addresses aside
    assert re.match(r"hessian: .* takes 7\.2 GB, but only [34]\.", done.stdout)


def test_so_do_control_groups_of_either_version_and_those_around_them(monkeypatch):
    files = {
        "/proc/self/cgroup": "4:memory:/a/b\n0::/c/d\n",
        "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "9000\n",
        "/sys/fs/cgroup/memory/a/b/memory.usage_in_bytes": "1000\n",
        "/sys/fs/cgroup/memory/a/b/memory.stat": "cache 7\ntotal_inactive_file 300\n",
        "/sys/fs/cgroup/c/d/memory.max": "max\n",
        "/sys/fs/cgroup/c/d/memory.current": "500\n",
        "/sys/fs/cgroup/c/memory.max": "800\n",
        "/sys/fs/cgroup/c/memory.current": "600\n",
        "/proc/meminfo": "MemAvailable:   5 kB\nSwapFree:   2 kB\n",
    }
    monkeypatch.setattr(memory, "_text", lambda path: files.get(path, ""))
    monkeypatch.setattr(memory, "_of_process", lambda: iter(()))
    assert list(memory._limits()) == [7 * 1024, 9000 - (1000 - 300), 800 - 600]
    assert memory.available() == 200


# ---- batches


@pytest.fixture
def sizes(monkeypatch):
    """The sizes of all batches that are tried."""
    tried, rows = [], directions.Directions.rows

    def noted(self, start, stop):
        tried.append(stop - start)
        return rows(self, start, stop)

    monkeypatch.setattr(directions.Directions, "rows", noted)
    return tried


def pairs(x):
    return np.sum(np.exp(-((x[:, None] - x) ** 2)))


def test_a_small_function_runs_in_one_batch(sizes):
    ft.jacfwd(ft.grad(lambda x: np.sum(x**3)))(np.ones(100))
    assert sizes == [100]


def test_batches_are_such_that_the_largest_value_stays_in_the_cache(sizes):
    ft.jacfwd(ft.grad(pairs))(np.linspace(0, 1, 100))
    assert sizes == [100, *[13] * 7, 9]  # all at once asks for too much: 80 kB for each of them


def test_where_one_direction_fills_it_they_run_one_by_one(sizes):
    ft.jacrev(lambda x: np.exp(-((x[:, None] - x) ** 2)).sum(axis=0))(np.linspace(0, 1, 400))
    assert sizes == [400, *[1] * 400]


def test_passes_that_compute_all_values_again_have_more_directions_than_the_cache_holds(sizes):
    ft.jacfwd(ft.grad(pairs))(np.linspace(0, 1, 300))
    assert sizes[:2] == [300, 1] and set(sizes[2:-1]) == {9}


def test_few_directions_through_many_small_ops_go_at_once(sizes):
    weights, points = generator(0).uniform(size=(20, 1, 4000)), generator(1).normal(size=(3, 4000))

    def skin(angles):
        turned, y = np.eye(3), np.zeros(points.shape)
        for k in range(20):
            c, s = np.cos(angles[k]), np.sin(angles[k])
            turned = turned @ ft.numpy.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
            y = y + weights[k] * (turned @ points)
        return y

    x = np.linspace(-1, 1, 20)
    J = ft.jacfwd(skin)
    assert J.explain(x).chunk == 20  # in 1.9 MB; the cache would have 10
    assert re.search(r"20 at once, more than the cache holds: a pass takes some \d+ ms", repr(
        J.explain(x)))
    sizes.clear()
    J(x)
    assert sizes == [20]


def test_a_matrix_is_not_factorised_for_a_few_directions_at_a_time(sizes):
    n = 700
    A = generator(0).normal(size=(n, n)) + 30 * np.eye(n)
    J = ft.jacobian(lambda b: np.linalg.solve(A, b))
    assert J.explain(np.ones(n)).chunk == n
    assert_allclose(J(np.ones(n)), np.linalg.inv(A), rtol=1e-9, atol=1e-12)
    assert len(sizes) <= 3


def test_so_does_reverse_mode(sizes):
    def f(x):
        return np.exp(-((x[:, None] - x) ** 2)).sum(axis=0)

    x = np.linspace(0, 1, 100)
    J = ft.jacrev(f)(x)
    assert sizes[1:3] == [13, 13]
    assert_allclose(J, ft.jacrev(f, chunk_size=None)(x), rtol=1e-14)


def test_a_function_that_catches_exceptions_does_not_see_the_search_for_a_size():
    def f(x):
        try:
            return np.sum(x[:, None] * x, axis=0)
        except Exception:
            return x

    x = np.linspace(0, 1, 200)
    assert_allclose(ft.jacfwd(f)(x), x.sum() * np.eye(200) + x[:, None], rtol=1e-14)


def test_batches_give_what_all_at_once_gives():
    x = np.linspace(0, 1, 60)
    assert_allclose(ft.hessian(pairs)(x), ft.hessian(pairs, chunk_size=None)(x), rtol=1e-13)


def test_many_small_values_count_together(sizes, monkeypatch):
    monkeypatch.setattr(batches, "UNASKED", 2**16)
    monkeypatch.setattr(batches, "available", lambda: 2**18)

    def f(x):
        for _ in range(50):
            x = np.sin(x)
        return x

    x = np.linspace(0, 1, 64)
    J = ft.jacfwd(f)(x)
    assert sizes[:4] == [64, 32, 16, 8]
    assert_allclose(J, ft.jacrev(f)(x), rtol=1e-13)


@pytest.mark.parametrize("matrix", [*MATRICES, ft.hessian])
def test_sizes_that_are_no_sizes_are_refused(matrix):
    for chunk_size in (0, -1, True, 1.0, "all", np.float64(2)):
        with pytest.raises(ArgumentError, match=f"{matrix.__name__}: chunk_size must be"):
            matrix(np.sin, chunk_size=chunk_size)
    assert_array_equal(ft.jacfwd(np.square, chunk_size=np.int64(2))(X), np.diag(2 * X))


# ---- many directions at once where the pattern has few colours


def _written(matrix, f, *xs):
    """The matrix as the program of it gives it, by NumPy."""
    return interpret(make_program(matrix(f))(*xs), xs)


@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("p", PROGRAMS, ids=lambda p: p.name)
def test_colours_change_no_entry_of_a_matrix(p, matrix, monkeypatch):
    ordinary = np.random.default_rng(0).uniform(0.2, 0.9, p.shape)
    special = ordinary.copy()
    special.flat[:5] = 0.0, np.inf, np.nan, -0.0, 1e200
    points = ordinary, special
    with np.errstate(all="ignore"):
        without = [_written(matrix, p.f, x)[0] for x in points]
        monkeypatch.setattr(directions, "LEAST", 1)
        monkeypatch.setattr(directions, "SERVED", 1)
        ordinary, special = [_written(matrix, p.f, x)[0] for x in points]
    assert_array_equal(ordinary, without[0])
    # without colours, programs multiply more of the zeros of unit vectors by infinities
    assert np.all((special == without[1]) | np.isnan(without[1]))


def unless_refused(f, x):
    """``f(x)``, or None: some functions of SciPy's refuse infinities and NaN."""
    try:
        return f(x)
    except ValueError as error:
        assert "infs or NaNs" in str(error)
        return None


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize(("p", "matrix"), covering(PROGRAMS, [*MATRICES, ft.hessian], meet=1))
def test_colours_change_no_bit_where_no_program_is_written(p, matrix, monkeypatch):
    def f(x):
        return np.sum(p.f(x) ** 2) if matrix is ft.hessian else p.f(x)

    ordinary = np.random.default_rng(0).uniform(0.2, 0.9, p.shape)
    special = ordinary.copy()
    special.flat[:5] = 0.0, np.inf, np.nan, -0.0, 1e200
    with np.errstate(all="ignore"):
        without = [unless_refused(matrix(f), x) for x in (ordinary, special)]
        assert without[0] is not None
        for name, value in (("LEAST", 1), ("SERVED", 1), ("BATCHES", 0)):
            monkeypatch.setattr(directions, name, value)
        for x, expected in zip((ordinary, special), without, strict=True):
            assert_array_equal(unless_refused(matrix(f), x), expected)


def rosenbrock(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def test_large_matrices_of_few_colours_take_few_products(monkeypatch):
    monkeypatch.setattr(directions, "BATCHES", 0)
    x = np.linspace(-1.0, 2.0, 60)
    H, J = ft.hessian(rosenbrock), ft.jacobian(ft.grad(rosenbrock), progress=True)
    plan = H.explain(x)
    assert (plan.mode, plan.directions, plan.chunk) == ("compressed", 3, 3)
    assert "60 tangents have 3 colors" in repr(plan) and "3 sums of directions" in repr(plan)
    assert_array_equal(J(x), H(x))
    out = np.empty((60, 60))
    H = ft.hessian(rosenbrock, out=out)
    assert H.explain(x).mode == "forward" and H(x) is out
    assert ft.hessian(rosenbrock, memory="1 GB").explain(x).mode == "forward"


def test_no_colours_are_looked_for_where_it_takes_longer_than_it_saves(monkeypatch):
    x = np.linspace(0.1, 1.0, 50)
    assert ft.jacobian(np.sin).explain(x).mode == "forward"
    monkeypatch.setattr(directions, "BATCHES", 0)
    assert ft.jacobian(np.sin).explain(x).mode == "compressed"

    def one_by_one(x):
        return np.stack([np.sin(v) for v in x])

    assert ft.jacobian(one_by_one).explain(x).mode == "forward"
    with ft.config(kinks="warn"):
        assert ft.jacobian(np.sin).explain(x).mode == "forward"


def test_what_cannot_be_written_as_a_program_runs_direction_by_direction(monkeypatch):
    def refused(*args):
        raise UnsupportedError("no program")

    monkeypatch.setattr(directions, "BATCHES", 0)
    monkeypatch.setattr(directions, "linear_map", refused)
    x = np.linspace(0.1, 1.0, 50)
    assert_array_equal(ft.jacobian(np.sin)(x), np.diag(np.cos(x)))


@pytest.mark.parametrize("n", [47, 48, 49])
def test_from_48_directions_on_a_hessian_is_written_by_its_colours(n):
    x = np.linspace(-1.0, 2.0, n)
    assert_array_equal(ft.jit(ft.hessian(rosenbrock))(x), ft.hessian(rosenbrock)(x))
    assert ("[3," in str(make_program(ft.hessian(rosenbrock))(x))) == (n >= 48)


def test_matrices_by_colours_have_blocks_batches_and_derivatives():
    n = 50

    def f(p):
        return {"a": p["x"][1:] * p["y"], "b": np.cos(p["x"]), "c": np.ones(2)}

    p = {"x": np.linspace(0.1, 2.0, n), "y": np.linspace(1.0, 2.0, n - 1).astype(np.float32)}
    for way in (ft.jacobian, ft.jacfwd, ft.jacrev):
        for a, b in zip(tree.leaves(ft.jit(way(f))(p)), tree.leaves(way(f)(p)), strict=True):
            assert a.dtype == b.dtype
            assert_allclose(a, b, rtol=4 * np.finfo(a.dtype).eps)  # compiled sines are 1 ulp off
    X = np.linspace(0.1, 2.0, 2 * n).reshape(2, n)
    J = ft.jacobian(lambda x: x**3)
    assert_array_equal(ft.jit(ft.vmap(J))(X), ft.vmap(J)(X))
    g = ft.grad(lambda x: np.sum(J(x) ** 2))
    assert_allclose(ft.jit(g)(X[0]), g(X[0]), rtol=1e-15)


def test_a_full_matrix_is_written_direction_by_direction():
    A = np.random.default_rng(0).normal(size=(60, 60))
    program = make_program(ft.jacobian(lambda x: np.tanh(A @ x)))(A[0])
    assert "[60,60]" in str(program)
    assert "put_add" not in str(program)
    slopes = 1 / np.cosh(A @ A[0]) ** 2
    assert_allclose(interpret(program, [A[0]])[0], slopes[:, None] * A, rtol=1e-12)


# ---- through a narrow place


RIGHT, LEFT = [np.random.default_rng(0).normal(size=s) / 9 for s in ((3, 150), (140, 3))]


def narrow(x):
    return np.tanh(LEFT @ np.sin(RIGHT @ np.tanh(x)) + 0.1)


def narrow_parts(p, scale):
    h = np.sin(RIGHT @ p["x"]) * scale + np.sum(p["y"])
    return {"u": np.outer(LEFT @ h, h), "v": (h[0], np.ones(2), np.tile(h, 5) ** 2)}


def test_a_jacobian_through_a_waist_is_a_product():
    x = np.linspace(-1, 1, 150)
    J = ft.jacobian(narrow)
    plan = J.explain(x)
    assert (plan.mode, plan.directions) == ("mixed", 6) and "through 3 numbers" in plan.reason
    assert "6 cotangents and tangents" in repr(plan)
    n, m = x.size, narrow(x).size  # the product, and what it is made of
    assert plan.result == 8 * (n * m + 3 * (n + m))
    for mode in ("forward", "reverse"):
        expected = ft.jacobian(narrow, mode=mode)
        assert expected.explain(x).mode == mode
        assert J(x) == pytest.approx(np.asarray(expected(x)), rel=1e-13, abs=1e-15)
    assert not J(x).flags.writeable


def test_containers_with_a_waist_and_what_goes_around_it():
    p = {"x": np.linspace(-1, 1, 150), "y": np.ones((2, 5)), "n": 3}
    assert ft.jacobian(narrow_parts).explain(p, 2.0).mode == "mixed"
    J, dense = ft.jacobian(narrow_parts)(p, 2.0), ft.jacfwd(narrow_parts)(p, 2.0)
    assert ft.tree.structure(J) == ft.tree.structure(dense)
    for a, b in zip(ft.tree.leaves(J), ft.tree.leaves(dense), strict=True):
        assert a.shape == b.shape and a == pytest.approx(np.asarray(b), rel=1e-13, abs=1e-15)

    def skipping(x):  # two entries go around
        return narrow(x) * x[0] + x[1]

    x = p["x"]
    assert "through 153 numbers" not in ft.jacobian(skipping).explain(x).reason
    both = np.asarray(ft.jacobian(skipping)(x)), np.asarray(ft.jacfwd(skipping)(x))
    assert both[0] == pytest.approx(both[1], rel=1e-13, abs=1e-15)


def test_what_is_not_finite_does_not_spread_through_a_waist():
    def f(x):
        return LEFT @ np.sqrt(RIGHT @ x) * np.array([1.0] + [0.0] * 139)

    x = np.zeros(150)
    assert ft.jacobian(f).explain(x).mode == "mixed"
    assert np.array_equal(ft.jacobian(f)(x), ft.jacobian(f, mode="reverse")(x), equal_nan=True)


def test_a_waist_is_looked_for_only_where_nothing_else_is_asked():
    x = np.linspace(-1, 1, 150)
    expected = np.asarray(ft.jacfwd(narrow)(x))
    out = np.empty((140, 150))
    assert ft.jacobian(narrow, memory="1 MB").explain(x).mode == "reverse"
    assert ft.jacobian(narrow, out=out)(x) is out
    for J in (out, ft.jit(ft.jacobian(narrow))(x), ft.vmap(ft.jacobian(narrow))(x[None])[0],
              ft.jacobian(lambda x: ft.jit(narrow)(x))(x), ft.jacobian(narrow, chunk_size=2)(x)):
        assert np.asarray(J) == pytest.approx(expected, rel=1e-13, abs=1e-15)


# ---- functions that reverse mode cannot go through


def grown(x):
    """As long as it is small, in a loop of any number of steps."""
    return ft.while_loop(lambda c: np.sum(c) < 10, lambda c: c * 1.5 + c[::-1] * 0.1, x)


ANY_STEPS = {
    "square": grown, "tall": lambda x: np.concatenate([grown(x), x]),
    "wide": lambda x: grown(x)[:2], "one number": lambda x: np.sum(grown(x) ** 2),
    "compiled inside": ft.jit(grown),
}


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", ANY_STEPS)
def test_a_loop_of_any_number_of_steps_has_its_jacobian_in_forward_mode(name):
    f, x = ANY_STEPS[name], np.array([1.0, 0.5, 2.0])
    expected = ft.jacfwd(f)(x)
    np.testing.assert_allclose(ft.jit(ft.jacobian(f))(x), expected, rtol=1e-13)
    np.testing.assert_allclose(ft.jacobian(f)(x), expected, rtol=1e-13)
    np.testing.assert_allclose(ft.jacobian(ft.jit(f))(x), expected, rtol=1e-13)
    out = np.zeros(expected.shape)
    ft.jacobian(ft.jit(f), out=out)(x)
    np.testing.assert_allclose(out, expected, rtol=1e-13)
    plan = ft.jacobian(ft.jit(f)).explain(x)
    assert plan.mode == "forward" and "a loop of any number of steps" in plan.reason
    with pytest.raises(NotDifferentiable, match="pass max_steps"):
        ft.jit(ft.jacrev(f))(x)


# ---- directions that take long by themselves


def test_a_program_computes_directions_of_large_values_one_after_the_other(monkeypatch):
    monkeypatch.setattr(batches, "STAGED", 2**12)
    x = np.linspace(0, 1, 50)
    expected = np.asarray(ft.hessian(pairs)(x))
    for largest in (2**10, 2**20):  # one for each step, or several
        monkeypatch.setattr(batches, "LARGEST", largest)
        monkeypatch.setattr(batches, "WIDEST", 7 * 50 * 50 * 8)
        whole = ft.jit(ft.hessian(pairs))
        assert_allclose(whole(x), expected, rtol=1e-12, atol=1e-12)
        loops = [eqn for eqn in whole.lower(x).program.eqns if eqn.prim.name == "scan"]
        assert [eqn.prim.length for eqn in loops] == [50 if largest == 2**10 else 8]
        third = ft.jit(ft.grad(lambda x: np.sum(ft.hessian(pairs)(x) ** 2)))(x)
        assert_allclose(third, ft.grad(lambda x: np.sum(ft.hessian(pairs)(x) ** 2))(x), rtol=1e-10)


def test_complex_directions_are_taken_one_after_the_other_too(monkeypatch):
    monkeypatch.setattr(batches, "STAGED", 1)
    monkeypatch.setattr(directions, "SERVED", 10**6)
    z = np.exp(1j * np.linspace(0, 1, 30))
    f = lambda z: np.cumsum(z**2) * z[0]  # noqa: E731
    assert_allclose(ft.jit(ft.jacobian(f))(z), ft.jacobian(f)(z), rtol=1e-13)


@pytest.mark.parametrize("matrix", [ft.hessian, ft.jacrev, ft.jacfwd])
def test_directions_that_would_take_long_in_python_are_compiled(matrix, sizes, monkeypatch):
    f = pairs if matrix is ft.hessian else ft.grad(pairs)
    x = np.linspace(0, 1, 60)
    expected = np.asarray(matrix(f)(x))
    sizes.clear()
    monkeypatch.setattr(batches, "COMPILED", 1e3)
    for name, value in (("LARGEST", 2**17), ("OP", 0), ("BYTE", 0.01)):
        monkeypatch.setattr(batches, name, value)
    assert_allclose(matrix(f)(x), expected, rtol=1e-12, atol=1e-13)
    assert sizes.count(1) > 40  # and one by which the map is written
    plan = matrix(f).explain(x)
    assert plan.chunk == 1 and "code is compiled for one direction" in plan.reason
    x[3] = np.nan
    assert_array_equal(np.isnan(matrix(f)(x)), np.isnan(matrix(f, chunk_size=None)(x)))
