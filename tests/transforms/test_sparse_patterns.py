"""Patterns read off programs: they hold every entry of the dense derivatives."""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

import functrans as ft
from functrans.errors import (
    ArgumentError,
    ConcretizationError,
    NotDifferentiable,
    OutOfMemoryError,
    ShapeError,
    UnsupportedError,
)
from tests.fuzz.programs import programs
from tests.sparse_programs import PROGRAMS

THOROUGH = os.environ.get("FUNCTRANS_PROFILE") == "thorough"
ROWS = np.arange(1.0, 40.0)


def point(program):
    return np.random.default_rng(3).uniform(0.5, 1.5, program.shape)


def dense(f, x, rows):
    return np.asarray(ft.jacobian(f)(x)).reshape((rows, np.size(x))) != 0


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_a_pattern_holds_every_entry_of_the_jacobian(program):
    x = point(program)
    pattern = ft.sparsity(program.f, x)
    here = ft.sparsity(program.f, x, local=True).toarray()
    entries = dense(program.f, x, pattern.shape[0])
    assert pattern.dtype == bool and pattern.has_canonical_format and pattern.data.all()
    assert not (entries & ~pattern.toarray()).any()
    assert not (entries & ~here).any()
    assert not (here & ~pattern.toarray()).any()
    assert np.array_equal(entries, pattern.toarray()) == program.exact


@pytest.mark.parametrize("curved", [False, True])
@pytest.mark.parametrize("program", PROGRAMS[::2], ids=lambda p: p.name)
def test_the_pattern_of_a_hessian_holds_its_entries_and_so_does_that_of_the_gradient(
    program, curved
):
    x = point(program)

    def f(x):
        y = np.reshape(program.f(x), -1)
        y = y * ROWS[: y.size]
        return np.sum(np.sin(y) if curved else y) + 0 * np.sum(x)

    pattern = ft.sparsity(f, x, kind="hessian").toarray()
    of_gradient = ft.sparsity(ft.grad(f), x).toarray()
    entries = np.asarray(ft.hessian(f)(x)).reshape(pattern.shape) != 0
    assert not (entries & ~pattern).any()
    assert not (entries & ~of_gradient).any()
    assert np.array_equal(pattern, pattern.T)


@pytest.mark.parametrize("f, pairs", [
    (lambda x: np.sum(x) * 3 - x[0], 0),
    (lambda x: np.sum(np.abs(x)) + np.max(x) + np.sum(np.sort(x)), 0),
    (lambda x: x[0] * x[3], 2),
    (lambda x: np.sum(x**2), 4),
    (lambda x: np.dot(x[:2], x[2:]), 4),
    (lambda x: np.sum(x[:2]) ** 2, 4),
    (lambda x: np.exp(x[1]) / x[2] + x[0], 4),
    (lambda x: x @ np.diag([1.0, 2.0, 0.0, 0.0]) @ x, 2),
    (lambda x: np.sum(np.where(x > 0, x, x * x)), 4),
    (lambda x: np.sum(np.linalg.solve(np.eye(4) * 2.0, x)), 0),
])
def test_only_inputs_that_meet_in_what_is_not_linear_are_in_a_hessian(f, pairs):
    assert ft.sparsity(f, np.ones(4), kind="hessian").nnz == pairs


def test_a_local_pattern_is_that_of_the_values_at_hand():
    def f(x):
        return np.where(x > 0, x**2, x[::-1]) * x[0]

    x = np.array([1.0, -1.0, 2.0])
    assert ft.sparsity(f, x).nnz == 6
    assert ft.sparsity(f, x, local=True).toarray().astype(int).tolist() == [
        [1, 0, 0], [1, 1, 0], [1, 0, 1],
    ]
    x[0] = 0.0
    assert ft.sparsity(f, x, local=True).toarray().astype(int).tolist() == [
        [1, 0, 0], [1, 0, 0], [1, 0, 0],
    ]


def test_what_is_ordered_has_the_local_pattern_of_the_order_here():
    x = np.array([[3.0, 1.0, 2.0], [5.0, 5.0, 4.0]])
    local = ft.sparsity(lambda x: np.sort(x[:1]), x, local=True).toarray().astype(int)
    assert local.tolist() == [[0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0]]
    local = ft.sparsity(lambda x: np.quantile(x, 1.0, axis=1), x, local=True).toarray().astype(int)
    assert local.tolist() == [[1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1]]  # a tie: all of the line
    local = ft.sparsity(lambda x: np.max(x, axis=1), x, local=True).toarray().astype(int)
    assert local.tolist() == [[1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0]]
    x[0, 1] = np.nan
    f = lambda x: np.stack([np.max(x, 1), np.median(x, 1)])  # noqa: E731  # one line
    assert ft.sparsity(f, x, local=True).toarray()[::2, :3].all()


def decides(x):
    y = x[1:] * x[0] if x[0] > 0 else 2 * x[:-1]
    if np.sum(y) > 3:
        y = y * x[3]
    if x[2] < -100:
        raise ValueError("there is no derivative")
    return y


def test_where_python_decides_the_pattern_is_that_of_all_ways():
    x = np.array([1.0, 2.0, 3.0, 4.0])
    assert ft.sparsity(decides, x).toarray().astype(int).tolist() == [
        [1, 1, 0, 1], [1, 1, 1, 1], [1, 0, 1, 1],
    ]
    assert ft.sparsity(decides, -x / 9, local=True).toarray().tolist() == np.eye(3, 4).tolist()
    pairs = ft.sparsity(lambda x: x[0] * x[1] if x[2] > 0 else x[3] ** 2, x, kind="hessian")
    assert pairs.toarray().astype(int).tolist() == [
        [0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1],
    ]
    assert ft.sparsity(lambda x: x[: int(x[1])] ** 2, x, local=True).shape == (2, 4)
    with pytest.raises(ValueError, match="there is no derivative"):
        ft.sparsity(decides, x - 200, local=True)


def test_pseudoinverses_are_of_each_matrix_alone():
    x = np.random.default_rng(0).normal(size=(2, 3, 2))
    pattern = ft.sparsity(lambda x: np.linalg.pinv(x)[:, 0], x).toarray()
    assert np.array_equal(pattern, dense(lambda x: np.linalg.pinv(x)[:, 0], x, 6))


def endless(x):
    while np.sum(x) < 1e9:
        x = 2 * x
    return x


QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@settings(max_examples=2000 if THOROUGH else 8, deadline=None, database=None,
          suppress_health_check=QUIET)
@given(program=programs(exact=False))
def test_the_pattern_of_a_drawn_program_holds_every_entry_at_five_points(program):
    drawn, random = program.function(), np.random.default_rng(0)
    argnums = tuple([i for i, x in enumerate(program.args) if x.dtype.kind == "f" and x.size])

    def f(*xs):  # the real numbers of the outputs
        ys = [y if hasattr(y, "dtype") else np.asarray(y) for y in drawn(*xs)]
        parts = [p * 1.0 for y in ys for p in ((y.real, y.imag) if y.dtype.kind == "c" else (y,))
                 if p.dtype.kind == "f"]
        return np.concatenate([p.reshape(-1) for p in (*parts, 0 * xs[argnums[0]])])

    assume(argnums)
    with np.errstate(all="ignore"):
        pattern = ft.sparsity(f, *program.args, argnums=argnums).toarray()
        for k in range(5):
            args = [x * (1 - 0.3 * k) + 0.01 * random.normal(size=x.shape) if i in argnums else x
                    for i, x in enumerate(program.args)]
            args = [a.astype(x.dtype) for a, x in zip(args, program.args, strict=True)]
            blocks = ft.jacobian(f, argnums)(*args)
            J = np.hstack([np.reshape(b, (len(b), args[i].size))
                           for i, b in zip(argnums, blocks, strict=True)])
            local = ft.sparsity(f, *args, argnums=argnums, local=True).toarray()
            entries = np.isfinite(J) & (J != 0)
            assert not (entries & ~local).any() and not (local & ~pattern).any(), program


def test_a_nan_in_a_slope_is_an_entry():
    x = np.array([np.nan, 0.0])
    assert ft.sparsity(lambda x: x * x[::-1], x, local=True).toarray().tolist() == [
        [False, True], [False, True],
    ]


def test_loops_that_are_too_long_to_unroll_have_a_pattern_that_holds_theirs(monkeypatch):
    from functrans._transforms.sparse import pattern as steps

    programs = {p.name: p for p in PROGRAMS}
    monkeypatch.setattr(steps, "UNROLLED", 0)
    for name in ("scan", "scan in reverse", "loop"):
        x = point(programs[name])
        pattern = ft.sparsity(programs[name].f, x).toarray()
        assert not (dense(programs[name].f, x, len(pattern)) & ~pattern).any()


def test_a_loop_whose_pattern_grows_with_each_step_ends():
    def f(x):
        return ft.while_loop(lambda y: y[0] < 2, lambda y: np.roll(y, 1) * 2, x)

    assert ft.sparsity(f, np.ones(40)).nnz == 1600


def test_many_terms_become_rows_of_one_table():
    x = np.ones(30)
    pattern = ft.sparsity(lambda x: sum(x[k : k + 10] * x[k + 1] for k in range(0, 20)), x)
    entries = dense(lambda x: sum(x[k : k + 10] * x[k + 1] for k in range(0, 20)), x, 10)
    assert np.array_equal(pattern.toarray(), entries)


def test_other_arguments_are_constants_of_any_value():
    def f(a, x, scale):
        return {"a": a["w"] * x, "b": x}["a"] * scale

    args = {"w": np.zeros(3)}, np.ones(3), 2.0
    assert ft.sparsity(f, *args, argnums=1).nnz == 3
    assert ft.sparsity(f, *args, argnums=-2, local=True).nnz == 0


def test_a_million_entries_are_found_and_a_table_is_shared():
    x = np.ones(100_000)
    pattern = ft.sparsity(lambda x: (x[1:-1] ** 2 + x[2:] * x[:-2]) * 2, x)
    assert pattern.nnz == 3 * 99_998 and pattern.shape == (99_998, 100_000)
    spread = ft.sparsity(lambda x: np.sum(x[:50]) * np.ones(2000), x)
    assert spread.nnz == 100_000


@pytest.mark.parametrize("call, error, text", [
    (lambda: ft.sparsity(lambda x: x / np.sum(x), np.ones(2_000_000)), OutOfMemoryError,
     "sparsity: a pattern of up to"),
    (lambda: ft.sparsity(lambda x: np.sum(x) ** 2, np.ones(2_000_000), kind="hessian"),
     OutOfMemoryError, "a pattern of up to 4,000,000,000,000 second derivatives"),
    (lambda: ft.sparsity(lambda x: x * int(x[0]), np.ones(2)), ConcretizationError, "np.where"),
    (lambda: ft.sparsity(lambda x: x * float(x[0]), np.ones(2), local=True), ConcretizationError,
     r"float\(\) of a value that sparsity differentiates `<lambda>` in"),
    (lambda: ft.sparsity(endless, np.ones(2)), UnsupportedError, r"more than 64 ways. .*local=Tr"),
    (lambda: ft.sparsity(lambda x: x if x[0] > 0 else x[:1], np.ones(2)), ShapeError,
     r"the matrix is \(1, 2\) or \(2, 2\)"),
    (lambda: ft.sparsity(np.sin, {"a": 1}), NotDifferentiable, "must have floating-point numbers"),
    (lambda: ft.sparsity(np.sin, np.ones(2, int)), NotDifferentiable, "argument 0 of `sin` is"),
    (lambda: ft.sparsity(np.sin, np.ones(2, np.float16)), NotDifferentiable, "float32 or float64"),
    (lambda: ft.sparsity(lambda x: x * 1j, np.ones(2)), NotDifferentiable, "float64 to complex128"),
    (lambda: ft.sparsity(lambda x: [], np.ones(2)), ArgumentError, "returned no array"),
    (lambda: ft.sparsity(lambda x: x > 0, np.ones(2)), NotDifferentiable, "must be float32"),
    (lambda: ft.sparsity(np.sin, np.ones(2), argnums=1), ArgumentError, "called with 1 positional"),
    (lambda: ft.sparsity(np.sin, np.ones(2), argnums=(0, 0)), ArgumentError, "of `sin` twice"),
    (lambda: ft.sparsity(np.sin, np.ones(2), kind="both"), ArgumentError, "kind must be one of"),
    (lambda: ft.sparsity(np.sum, np.ones(2), kind="hessian", local=True), ArgumentError,
     r"sparsity\(grad\(f\), x, local=True\)"),
    (lambda: ft.sparsity(np.sin, np.ones(2), kind="hessian"), ShapeError, "scalar output"),
    (lambda: ft.grad(lambda x: ft.sparsity(np.sin, x).nnz * 1.0)(np.ones(2)), UnsupportedError,
     "argument 0 of `sin` is traced"),
    (lambda: ft.sparsity(lambda x: x * np.random.rand(2), np.ones(2)), UnsupportedError, "random"),
])
def test_what_has_no_pattern_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_a_rule_that_calls_its_own_function_has_the_pattern_of_its_second_derivatives():
    (program,) = [p for p in PROGRAMS if p.name == "own rule that calls itself"]
    x = np.linspace(0.1, 1.0, 6)
    f = lambda x: np.sum(program.f(x))  # noqa: E731  # one line
    entries = np.asarray(ft.hessian(f)(x)) != 0
    assert np.array_equal(ft.sparsity(f, x, kind="hessian").toarray(), entries)
