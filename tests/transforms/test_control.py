"""cond, switch, while_loop, fori_loop and scan under every transform, against plain Python."""

from typing import NamedTuple

import numpy as np
import pytest

import functrans as ft
from functrans._transforms.control.api import cond, fori_loop, switch, while_loop
from functrans._transforms.control.scan import scan
from functrans._transforms.forward.jet import jet
from functrans._transforms.reach import make_program
from functrans.errors import ArgumentError, ShapeError

XS = np.array([-1.5, 0.3, 0.9, 2.5])
EXACT = {"rtol": 1e-13, "atol": 1e-13}


def by_cond(x):
    return cond(x > 0.5, lambda x: np.sin(x) * x, lambda x: x**3 - 1.0, x)


def by_switch(x):
    return switch(np.floor(x).astype(int), [np.sin, np.exp, lambda x: x * x], x)


def by_while(x):
    return while_loop(lambda y: y < 4, lambda y: y * y + 1.1, x) * x


def by_bounds(x):
    return fori_loop(0, np.floor(x + 2).astype(int), lambda i, y: y * x + i, 1.0)


def by_loop(x):
    return fori_loop(1, 4, lambda i, y: np.sin(y) * i + x, x)


def by_scan(x):
    weights = np.array([0.5, -1.0, 2.0])
    carry, ys = scan(lambda c, w: (np.tanh(c * w) + x, c * c), x, weights)
    return carry * np.sum(ys)


def plain_cond(x):
    return np.sin(x) * x if x > 0.5 else x**3 - 1.0


def plain_switch(x):
    return [np.sin, np.exp, lambda x: x * x][min(max(int(np.floor(x)), 0), 2)](x)


def plain_while(x):
    y = x
    while y < 4:
        y = y * y + 1.1
    return y * x


def plain_bounds(x):
    y = 1.0
    for i in range(int(np.floor(x + 2))):
        y = y * x + i
    return y


def plain_loop(x):
    y = x
    for i in range(1, 4):
        y = np.sin(y) * i + x
    return y


def plain_scan(x):
    c, ys = x, []
    for w in (0.5, -1.0, 2.0):
        c, y = np.tanh(c * w) + x, c * c
        ys.append(y)
    return c * sum(ys)


PAIRS = [
    (by_cond, plain_cond), (by_switch, plain_switch), (by_while, plain_while),
    (by_bounds, plain_bounds), (by_loop, plain_loop), (by_scan, plain_scan),
]  # fmt: skip
pairs = pytest.mark.parametrize(("f", "plain"), PAIRS, ids=lambda f: f.__name__)


def complex_step(plain, x):
    """The derivative of plain Python, with what decides evaluated at the real part."""
    z, h = x + 1e-30j, 1e-30
    if plain is plain_cond:
        y = np.sin(z) * z if x > 0.5 else z**3 - 1.0
    elif plain is plain_switch:
        y = [np.sin, np.exp, np.square][min(max(int(np.floor(x)), 0), 2)](z)
    elif plain is plain_while:
        y = z
        while y.real < 4:
            y = y * y + 1.1
        y = y * z
    elif plain is plain_bounds:
        y = 1.0
        for i in range(int(np.floor(x + 2))):
            y = y * z + i
    else:
        y = plain(z)
    return np.imag(y) / h


@pairs
@pytest.mark.parametrize("x", XS)
def test_value_is_that_of_plain_python(f, plain, x):
    assert f(x) == plain(x)


@pairs
@pytest.mark.parametrize("x", XS)
def test_both_modes_are_the_complex_step(f, plain, x):
    want = complex_step(plain, x)
    np.testing.assert_allclose(ft.grad(f)(x), want, **EXACT)
    np.testing.assert_allclose(ft.jvp(f, (x,), (1.0,))[1], want, **EXACT)


@pairs
def test_vmap_is_the_loop(f, plain):
    np.testing.assert_allclose(ft.vmap(f)(XS), [plain(x) for x in XS], **EXACT)


@pairs
def test_vmapped_gradient_is_the_loop(f, plain):
    want = [complex_step(plain, x) for x in XS]
    np.testing.assert_allclose(ft.vmap(ft.grad(f))(XS), want, **EXACT)
    np.testing.assert_allclose(ft.grad(lambda xs: np.sum(ft.vmap(f)(xs)))(XS), want, **EXACT)
    tangents = ft.jvp(ft.vmap(f), (XS,), (np.ones(4),))[1]
    np.testing.assert_allclose(tangents, want, **EXACT)


@pairs
def test_second_derivatives_agree_between_modes_and_batched(f, plain):
    one = [ft.grad(ft.grad(f))(x) for x in XS]
    forward = [ft.jvp(ft.grad(f), (x,), (1.0,))[1] for x in XS]
    taylor = [jet(f, (x,), ([1.0, 0.0],))[1][1] for x in XS]
    np.testing.assert_allclose(forward, one, **EXACT)
    np.testing.assert_allclose(taylor, one, rtol=1e-12)
    np.testing.assert_allclose(ft.vmap(ft.grad(ft.grad(f)))(XS), one, **EXACT)


@pairs
def test_nested_vmap(f, plain):
    grid = XS[:, None] + np.array([0.0, 0.05])
    want = [[plain(x) for x in row] for row in grid]
    np.testing.assert_allclose(ft.vmap(ft.vmap(f))(grid), want, **EXACT)


# ---- cond and switch


def test_only_the_branch_taken_runs():
    def never(x):
        raise AssertionError

    assert cond(True, lambda x: x, never, 2.0) == 2.0
    assert ft.grad(lambda x: cond(x > 0, lambda x: 3 * x, never, x))(1.0) == 3.0
    everywhere = ft.vmap(lambda x: cond(x > 0, lambda x: 3 * x, never, x))(np.array([1.0, 2.0]))
    assert everywhere.tolist() == [3.0, 6.0]
    chosen = ft.vmap(lambda x, i: switch(i, [np.negative, never, np.square], x))
    assert chosen(np.array([1.0, 2.0, 3.0]), np.array([0, 2, 7])).tolist() == [-1.0, 4.0, 9.0]


def test_the_branch_not_taken_leaves_no_nan_in_a_gradient():
    f = lambda x: cond(x > 0, np.sqrt, lambda x: 0.0 * x, x)  # noqa: E731  # reads as a formula
    with np.errstate(invalid="ignore"):
        g = ft.vmap(ft.grad(f))(np.array([4.0, 0.0, -1.0]))
    assert g.tolist() == [0.25, 0.0, 0.0]


def test_recursion_through_cond_ends_under_vmap():
    def digits(n):
        return cond(n > 0, lambda n: 1 + digits(n // 2), lambda n: 0 * n, n)

    assert ft.vmap(digits)(np.array([0, 1, 6, 7, 8])).tolist() == [0, 1, 3, 3, 4]


def test_branches_return_containers():
    f = lambda x: cond(x > 1, lambda x: {"a": x, "b": (1.0, None)},  # noqa: E731
                       lambda x: {"a": -x, "b": (x, None)}, x)
    out = ft.vmap(f)(np.array([2.0, 0.5]))
    assert out["a"].tolist() == [2.0, -0.5]
    assert out["b"][0].tolist() == [1.0, 0.5]


def test_float32_stays():
    x = np.array([0.2, 2.0], np.float32)
    assert ft.vmap(lambda x: cond(x > 1, lambda x: x * 2, lambda x: 1.0, x))(x).dtype == x.dtype
    assert fori_loop(0, 3, lambda i, c: c + x[0], 0.0).dtype == x.dtype
    assert scan(lambda c, v: (c + v, c), np.float32(0), x)[1].dtype == x.dtype


def test_index_out_of_range_takes_the_nearest_branch():
    branches = [lambda: "low", lambda: "middle", lambda: "high"]
    assert [switch(i, branches) for i in (-3, 0, 1, 2, 9)] == [
        "low", "low", "middle", "high", "high",
    ]  # fmt: skip


# ---- loops


def test_loop_without_steps_returns_what_it_was_given():
    x = np.array([1.0, 2.0])
    assert while_loop(lambda x: False, np.exp, x).tolist() == [1.0, 2.0]
    assert fori_loop(3, 3, lambda i, x: -x, 5) == 5
    assert ft.grad(lambda x: fori_loop(2, -1, lambda i, y: y * x, x))(2.0) == 1.0


class State(NamedTuple):
    count: int
    x: np.ndarray


def test_carry_is_a_container():
    def body(s):
        return State(s.count + 1, s.x * 2)

    def count(x):
        return while_loop(lambda s: np.sum(s.x) < 100, body, State(0, x))

    assert count(np.array([1.0, 2.0])).count == 6
    batched = ft.vmap(count)(np.array([[1.0, 2.0], [200.0, 1.0], [30.0, 20.0]]))
    assert batched.count.tolist() == [6, 0, 1]
    assert batched.x.tolist() == [[64.0, 128.0], [200.0, 1.0], [60.0, 40.0]]


def test_index_of_fori_loop_is_a_python_int():
    assert fori_loop(0, 3, lambda i, c: c + (type(i) is int), 0) == 3


def test_scan_collects_in_the_order_of_xs():
    xs = np.arange(4.0)
    last, ys = scan(lambda c, x: (c + x, c + x), 0.0, xs)
    assert (last, ys.tolist()) == (6.0, [0.0, 1.0, 3.0, 6.0])
    last, ys = scan(lambda c, x: (c + x, c + x), 0.0, xs, reverse=True)
    assert (last, ys.tolist()) == (6.0, [6.0, 6.0, 5.0, 3.0])


def test_scan_takes_and_returns_containers():
    xs = {"a": np.arange(3.0), "b": np.arange(6.0).reshape(3, 2)}

    def f(c, x):
        return (c[0] + x["a"], c[1] + x["b"]), {"sum": x["a"] + np.sum(x["b"]), "none": None}

    (a, b), ys = scan(f, (0.0, np.zeros(2)), xs)
    assert (a, b.tolist()) == (3.0, [6.0, 9.0])
    assert ys["sum"].tolist() == [1.0, 6.0, 11.0]
    assert ys["none"] is None


def test_scan_without_xs_needs_a_length():
    last, ys = scan(lambda c, _: (2 * c, c), 1.0, None, length=3)
    assert (last, ys.tolist()) == (8.0, [1.0, 2.0, 4.0])
    with pytest.raises(ArgumentError, match="holds no arrays; pass length"):
        scan(lambda c, _: (c, c), 1.0, None)


def test_scan_over_nothing_knows_the_shapes():
    xs = np.zeros((0, 2), np.float32)
    last, ys = scan(lambda c, x: (c + 1, (x, np.sum(x), None)), 5.0, xs)
    assert last == 5.0
    assert (ys[0].shape, ys[0].dtype, ys[1].shape) == ((0, 2), np.float32, (0,))
    g = ft.grad(lambda c: np.sum(scan(lambda c, x: (c, c * x), c, xs)[1]) + c)(2.0)
    assert g == 1.0


def test_gradient_of_scan_by_xs_and_by_carry():
    xs = np.array([0.5, -0.3, 0.8])

    def f(c, xs):
        c, ys = scan(lambda c, x: (np.sin(c) * x, c * x), c, xs, reverse=True)
        return c + np.sum(ys**2)

    def unrolled(c, xs):
        ys = []
        for k in (2, 1, 0):
            c, y = np.sin(c) * xs[k], c * xs[k]
            ys.append(y)
        return c + np.sum(np.stack(ys) ** 2)

    for got, want in zip(ft.grad(f, (0, 1))(0.7, xs), ft.grad(unrolled, (0, 1))(0.7, xs),
                         strict=True):
        np.testing.assert_allclose(got, want, **EXACT)
    batch = np.stack([xs, 2 * xs])
    got = ft.vmap(ft.grad(f, 1), in_axes=(None, 0))(0.7, batch)
    np.testing.assert_allclose(got, [ft.grad(unrolled, 1)(0.7, row) for row in batch], **EXACT)


def test_results_are_arrays():
    x = np.ones(2)
    for out in (
        cond(True, np.negative, np.exp, x),
        switch(0, [np.negative], x),
        while_loop(lambda x: x[0] < 2, lambda x: x + 1, x),
        fori_loop(0, 1, lambda i, x: x + 1, x),
        *scan(lambda c, v: (c + v, c), x, x),
    ):
        assert type(out) is ft.Array
    assert x.flags.writeable


# ---- under staging


def test_a_staged_batch_selects_between_branches():
    program = make_program(ft.vmap(by_cond))(XS)
    assert "where" in {e.prim.name for e in program.eqns}


# ---- bad input


def vmapped_cond(a, b):
    return lambda: ft.vmap(lambda x: cond(x > 0, a, b, x))(np.array([1.0, -1.0]))


BAD = {
    "pred shape": (
        lambda: cond(np.array([True]), np.sin, np.cos, 1.0), ShapeError,
        r"cond: the predicate has shape \(1,\), but must be a scalar. Use np.where",
    ),
    "pred kind": (lambda: cond("yes", np.sin, np.cos, 1.0), ArgumentError, "must be a boolean"),
    "no function": (lambda: cond(True, 1.0, np.sin), ArgumentError, "cond needs a function"),
    "structure": (
        vmapped_cond(lambda x: x, lambda x: (x, x)), ArgumentError, r"returned the structure \*",
    ),
    "shapes": (
        vmapped_cond(lambda x: x, lambda x: np.ones(2)), ShapeError,
        r"returned float64\[\] and `<lambda>` float64\[2\]",
    ),
    "dtypes": (
        vmapped_cond(lambda x: x, lambda x: x.astype(np.float32)), ShapeError, "float32",
    ),
    "not numbers": (vmapped_cond(lambda x: "a", lambda x: "b"), ArgumentError, "both are numbers"),
    "no branches": (lambda: switch(0, []), ArgumentError, "at least one branch"),
    "index": (lambda: switch(0.5, [np.sin], 1.0), ArgumentError, "index must be an integer"),
    "index shape": (lambda: switch(np.array([0]), [np.sin], 1.0), ShapeError, "the index has"),
    "bounds": (lambda: fori_loop(0, 1.5, max, 0), ArgumentError, "bounds must be integers"),
    "loop predicate": (
        lambda: while_loop(lambda x: x < 3, np.exp, np.zeros(2)), ShapeError, "while_loop: the pred"
    ),
    "carry shape": (
        lambda: fori_loop(0, 2, lambda i, x: np.append(x, 1.0), np.zeros(2)), ShapeError,
        r"given float64\[2\] and returned float64\[3\] in its place",
    ),
    "carry dtype": (
        lambda: fori_loop(0, 2, lambda i, x: x * 1.5, np.zeros(2, int)), ShapeError, "float64",
    ),
    "carry structure": (
        lambda: while_loop(lambda x: x[0] < 3, lambda x: x[0], (1, 2)), ArgumentError,
        "must not change its structure",
    ),
    "not a pair": (
        lambda: scan(lambda c, x: c + x, 0.0, np.ones(2)), ArgumentError,
        r"must return \(carry, y\), but returned float64",
    ),
    "scalar xs": (lambda: scan(max, 0.0, 1.0), ShapeError, "has no axis 0"),
    "lengths": (
        lambda: scan(max, 0.0, (np.ones(2), np.ones(3))), ShapeError, "lengths 2, 3. They must",
    ),
    "length": (lambda: scan(max, 0.0, np.ones(2), 3), ShapeError, "lengths 2, and length is 3"),
    "negative": (lambda: scan(max, 0.0, None, -1), ShapeError, "length is -1"),
    "ragged": (
        lambda: scan(lambda n, _: (n + 1, np.ones(n)), 1, None, 2), ShapeError, "cannot be stacked",
    ),
    "text": (lambda: scan(lambda c, _: (c, "a"), 1, None, 2), ShapeError, "cannot be stacked"),
    "changing": (
        lambda: scan(lambda c, _: (c + 1, (1.0,) * c), 1, None, 2), ArgumentError, "at entry 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_says_what_is_wrong(name):
    call, error, text = BAD[name]
    with pytest.raises(error, match=text):
        call()


def test_ops_on_operands_are_part_of_the_branch_that_takes_them():
    def f(x):
        return ft.cond(x[0] > 0, np.sin, lambda x: x, x)

    program = ft.make_program(f)(np.ones(3))
    assert [str(eqn.prim) for eqn in program.eqns] == ["getitem", "greater", "astype", "cond"]


# ---- progress


def steps_shown(capsys):
    text = capsys.readouterr().err
    assert text.count("\n") == text.count(" of 7\n")
    return [int(part.split()[0]) for part in text.split("| ")[1:]]


def bounded(c, x):
    return np.sin(c) + x, c


ENTRIES = np.linspace(0.0, 1.0, 7)


@pytest.mark.parametrize("options", [
    {}, {"reverse": True}, {"checkpoint": 2}, {"reverse": True, "checkpoint": "revolve"},
], ids=str)
@pytest.mark.parametrize("transform", [
    lambda f: f, ft.jit, ft.grad, lambda f: ft.jit(ft.grad(f)), lambda f: ft.hessian(f),
    lambda f: lambda c: ft.vmap(f)(np.array([c, c]))[0],
], ids=["eager", "jit", "grad", "jit grad", "hessian", "vmap"])
def test_a_bar_shows_each_step_and_changes_nothing(capsys, transform, options):
    def last(c, **more):
        c, ys = ft.scan(bounded, c, ENTRIES, **options, **more)
        return c + np.sum(ys**2)

    f = transform(lambda c: last(c, progress=True))
    first = f(0.5)
    steps_shown(capsys)
    assert f(0.5) == first  # compiled by now
    assert steps_shown(capsys)[-7:] == [1, 2, 3, 4, 5, 6, 7]
    assert first == pytest.approx(transform(last)(0.5), rel=1e-13)


def test_a_long_loop_shows_fifty_steps(capsys):
    ft.scan(lambda c, x: (c + x, None), 0.0, np.ones(130), progress=True)
    text = capsys.readouterr().err
    assert text.count("\r") == 44  # of three steps each, and the last one
    assert text.startswith("\rscan of <lambda> |# ")
    assert text.endswith(f"|{'#' * 50}| 130 of 130\n")


def test_a_loop_without_steps_shows_nothing(capsys):
    assert ft.scan(bounded, 0.5, np.zeros(0), progress=True)[0] == 0.5
    assert capsys.readouterr().err == ""


# ---- rows of a batch that do not take a branch, or have ended a loop

SYSTEM = np.array([[3.0, 0.2, -0.4], [0.1, 2.5, 0.3], [0.5, -0.2, 4.0]])


def solved_where_positive(x):
    def step(x, _):
        x = cond(x.sum() > 0, lambda x: np.linalg.solve(SYSTEM + np.diag(x), x - 0.5),
                 lambda x: np.sin(x) + 0.3, x)
        return x, x.sum()

    return scan(step, x, None, 3)[1]


def solved_until_small(x):
    def step(state):
        k, y = state
        return k + 1, np.linalg.solve(SYSTEM + np.diag(y), y) + 0.5 * x

    return while_loop(lambda s: (s[1] ** 2).sum() + x[0] > 0.5 * s[0], step, (0, x), max_steps=8)[1]


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("f", [solved_where_positive, solved_until_small])
@pytest.mark.parametrize("derivative", [ft.jacrev, lambda f: ft.jacrev(ft.jacrev(f))],
                         ids=["first", "second"])
def test_systems_of_rows_that_do_not_take_part_are_not_singular(f, derivative):
    rows = np.array([[0.3, 0.4, -0.1], [-0.5, -1.2, 0.4], [1.6, 0.3, 1.1], [-1.0, 0.2, -0.3]])
    alone = np.stack([derivative(f)(x) for x in rows])
    for batched in (ft.jit(ft.vmap(derivative(f))), ft.vmap(ft.jit(derivative(f)))):
        np.testing.assert_allclose(batched(rows), alone, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("scales", [[1.0, 0.0, 2.0, 0.0], [0.0, 0.0], []])
def test_rows_of_a_compiled_branch_lend_others_their_values(scales):
    def f(t, x):
        return cond(t == 0, lambda x: 2 * x, lambda x: np.linalg.solve(t * SYSTEM, x * x), x)

    scales = np.array(scales)
    rows = np.linspace(-1.0, 2.0, 3 * len(scales)).reshape(-1, 3)
    for g in (f, ft.jacrev(f), ft.jacfwd(f, 1), ft.jacrev(ft.jacrev(f, 1), 1)):
        alone = [g(t, x) for t, x in zip(scales, rows, strict=True)]
        batched = ft.vmap(ft.jit(g))(scales, rows)
        assert len(batched) == len(alone)
        for y, z in zip(batched, alone, strict=True):
            np.testing.assert_allclose(y, z, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("index", [[-1, 0, 3], [5, 1, -2]])
def test_indices_of_a_compiled_batch_are_clipped(index):
    def inverse(m):
        return np.linalg.inv(m).sum()

    matrices = SYSTEM * np.arange(1.0, 4.0).reshape(3, 1, 1)
    for branches in ([inverse], [inverse, np.sum], [np.sum, inverse, np.trace]):
        g = ft.grad(lambda i, m, branches=branches: switch(i, branches, m), 1)
        batched = ft.vmap(ft.jit(g))(np.array(index), matrices)
        alone = [g(i, m) for i, m in zip(index, matrices, strict=True)]
        np.testing.assert_allclose(batched, alone, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("make", [lambda f: f, ft.jit, ft.jacobian,
                                  lambda f: ft.jit(ft.jacobian(f))])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_map_gives_each_row_its_value(make, batch_size):
    x = np.arange(6.0).reshape(3, 2)

    def mapped(x):
        return ft.map(lambda row: {"a": np.sum(row**2)}, x, batch_size=batch_size)["a"]

    got, want = make(mapped)(x), make(lambda x: np.sum(x**2, axis=1))(x)
    np.testing.assert_array_equal(got, want)


def test_a_scan_is_the_same_whatever_is_to_be_written_out():
    def f(x, unroll):
        return ft.scan(lambda c, t: (c * x + t, c), x, np.arange(4.0), unroll=unroll)

    assert f(2.0, 1)[0] == f(2.0, True)[0] == f(2.0, 3)[0]
