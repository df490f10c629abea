"""Short rows written out column by column: the same bits, and one loop."""

import numpy as np
import pytest

import functrans as ft
from functrans._compile.ir import columns
from functrans._compile.ir.columns import by_columns
from functrans._compile.ir.passes import optimise
from functrans._compile.ir.program import Const, evaluate
from functrans._compile.schedule.kernels import HostStep, Kernel
from functrans._transforms.staging.staging import stage
from tests.compile.test_passes import SPECIAL, same_bits

pytestmark = pytest.mark.usefixtures("unoptimised")

WHO = np.array([2, 0, -1, 2, 1, 0])


def turned(x, y):
    """Rows that are taken apart, summed and put together."""
    axis = x / np.sqrt(np.sum(x * x, -1))[..., None]
    across = np.stack([x[..., 1] * y[..., 2], x[..., 2] * y[..., 0], x[..., 0] * y[..., 1]], -1)
    return axis * y[..., :1] + across * np.sum(axis * y, -1, keepdims=True)


def joined(x, y):
    flat = np.concatenate([x[..., :2], y[..., ::-1], x[:, None][:, 0]], -1)
    return flat[..., 1:] * flat[..., :-1], flat[..., -1]


def grown(x, y):
    return np.cumsum(x[..., 1:2] + y, axis=-1) * x[..., 0, None] + np.array([1.0, 2.0, 3.0])


def gathered(x, y):
    seen = x[WHO]
    return seen[:, 0] * y[WHO, 1], seen * seen[:, 2:] + y[WHO]


def other_axes(x, y):
    return x[1:, 1] * np.sum(y, 0)[1], np.sum(x, 1) + x[0], x.T @ y, np.stack([x, y], 1)


def kinds(x, y):
    low = np.where(x > y, x, 0.0)
    return np.sum(low > 0, -1), low[..., 0].astype(np.float32), np.sum(np.floor(low), -1)


def widths(x, y):
    """Joined with others of another dtype, and with numbers."""
    low = x.astype(np.float16).astype(np.float32)
    wide = np.stack([low[:, 0], y[:, 1], np.ones(len(y), int)], -1)
    return wide * 2, np.concatenate([low, y], -1)[:, 2:4] + wide[:, 1:], low + wide[:, ::-1]


def without_entries(x, y):
    none = x[..., :0]
    return none * 2, x[..., 3:] + none, np.concatenate([none, y[..., 1:] * x[..., :2]], -1)


def slope(f):
    def pulled(x, y):
        value, pull = ft.vjp(f, x, y)
        return pull(ft.tree.map(np.ones_like, value))

    return pulled


CASES = [turned, joined, grown, gathered, other_axes, kinds, widths, without_entries]


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(columns, "ROWS", 1)
    monkeypatch.setattr(columns, "CROSSINGS", 1)


DERIVED = {
    **{f.__name__: f for f in CASES}, **{f"slope of {f.__name__}": slope(f) for f in CASES[:4]},
    "tangent": lambda x, y: ft.jvp(turned, (x, y), (y, x))[1],
    "batch": lambda x, y: ft.vmap(turned)(np.stack([x, y]), np.stack([y, y])),
    "batch of slopes": lambda x, y: ft.vmap(slope(turned), (0, None))(np.stack([x, y]), y),
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", DERIVED)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128])
def test_columns_have_the_same_bits(name, dtype):
    if name in ("kinds", "widths") and dtype is np.complex128:
        pytest.skip("complex numbers have no floor, and are not narrowed")
    rng = np.random.default_rng(0)
    for values in (rng.uniform(0.5, 2, 40), rng.choice(SPECIAL, 40)):
        with np.errstate(all="ignore"):
            xs = list(rng.choice(values, (2, 3, 3)).astype(dtype))
            program = optimise(stage(DERIVED[name], xs, name)[0])
            apart = by_columns(program)
            assert apart is not program
            pairs = zip(evaluate(apart, xs), evaluate(program, xs), strict=True)
            assert all([same_bits(a, b) for a, b in pairs])


@pytest.mark.usefixtures("small")
def test_the_sum_of_negative_zeros_is_numpys():
    x = np.full((3, 2), -0.0)
    program = optimise(stage(lambda x: np.sum(x, -1), [x], "f")[0])
    (y,) = evaluate(by_columns(program), [x])
    assert same_bits(y, np.sum(x, -1)) and by_columns(program) is not program


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("f", CASES)
def test_compiled_columns_are_numpys(f):
    x, y = np.random.default_rng(1).uniform(0.5, 2, (2, 3, 3))
    for g in (f, slope(f)) if f in CASES[:4] else (f,):
        for a, b in zip(ft.tree.leaves(ft.jit(g)(x, y)), ft.tree.leaves(g(x, y)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-14)


def test_a_gradient_of_many_short_rows_is_one_loop():
    x, y = np.random.default_rng(2).uniform(0.5, 2, (2, columns.ROWS, 3))
    steps = ft.jit(slope(turned)).lower(x, y).schedule.steps
    assert not any(isinstance(s, HostStep) for s in steps)
    loops = [k.space for s in steps for k in getattr(s, "kernels", [s]) if isinstance(k, Kernel)]
    assert loops.count((columns.ROWS,)) == 1 and not any(3 in space for space in loops)
    steps = ft.jit(slope(turned)).lower(x[:10], y[:10]).schedule.steps
    assert any(3 in k.space for s in steps for k in getattr(s, "kernels", [s])
               if isinstance(k, Kernel))


@pytest.mark.usefixtures("small")
def test_long_rows_stay_rows(monkeypatch):
    x = np.ones((4, 12))
    program = optimise(stage(lambda x: x * np.sum(x, -1)[:, None] + x[:, :1] * np.sin(x), [x],
                             "f")[0])
    assert by_columns(program) is program
    monkeypatch.setattr(columns, "GROWTH", 20)
    assert by_columns(program) is not program


def test_columns_share_their_table_of_places():
    x = np.random.default_rng(3).uniform(size=(50, 4))
    where = np.random.default_rng(4).integers(0, 50, columns.ROWS)

    def lengths(x):
        seen = x[where]
        return seen[:, 0] * seen[:, 1] + seen[:, 2] * seen[:, 3] + np.sum(seen, -1)

    (step,) = ft.jit(lengths).lower(x).schedule.steps
    (kernel,) = getattr(step, "kernels", [step])
    assert sum(load.dtype.kind == "i" for load in kernel.loads) == 1


def test_tables_of_places_are_those_of_their_operand():
    x, y = np.random.default_rng(5).uniform(size=(2, 5, 5))
    where = np.arange(10) % 5
    f = ft.jit(lambda x, y: (x[where], y[:, :3][where], x.T[where], x[:, where]))
    for a, b in zip(f(x, y), (x[where], y[:, :3][where], x.T[where], x[:, where]), strict=True):
        np.testing.assert_array_equal(a, b)


def _constants(f, x):
    program, _ = stage(f, [x], "f")
    return [a.value for eqn in program.eqns for a in eqn.inputs if isinstance(a, Const)]


def test_a_constant_whose_rows_are_alike_is_one_row():
    row = np.array([0.0, -0.0, 2.0])
    table = np.tile(row, (1000, 1))
    (kept,) = _constants(lambda x: x * table, np.ones((1000, 3)))
    assert kept.shape == (1, 3) and same_bits(kept[0], row)
    assert same_bits(ft.jit(lambda x: x * table)(np.ones((1000, 3))), table)
    for other in (0.0, np.nan):  # of another sign, or equal to nothing
        table[-1, 1] = other
        (kept,) = _constants(lambda x: x * table, np.ones((1000, 3)))
        assert same_bits(kept, table)


# ---- index arrays that are arguments

# Index arrays made of ``p``, with rows of two, and ``q``: as long as ``q``, and others.
LINES = ["p[:, 0]", "p[:, -1]", "p.T[1]", "p[::-1, 1]", "q", "q[::-1]", "-1 - q", "p[q % 5, 1]",
         "np.take(p, 0, axis=1)", "(p[:, 0] + q) % 9", "np.where(q > 3, q, p[:, 1])",
         "p[..., 0].astype(np.int32)"]
WHERE = [*LINES, "p", "p[:, ::-1]", "p[::2, 0]", "p.reshape(-1)"]
# What is gathered by them.
TAKEN = ["np.sum(np.sin(x[{i}]))", "np.sum(x[{i}, 1] * y[{i}])", "np.sum(x[{i}][..., ::-1] ** 2)",
         "np.sum(x[{i}, {i} % 3] ** 3)", "np.sum(x[:, q[:2] % 3][{i}] ** 2)",
         "np.sum(np.take(x, {i}, axis=0) / (1 + y[{i}][..., None]))"]
APART = ["np.sum((x[{i}] - x[{j}]) ** 2)", "np.sum(np.cross(x[{i}], x[{j}]) * x[{i}][:, :1])",
         "np.sum(y[{i}] / (1 + np.sum((x[{i}] - x[{j}]) ** 2, -1)))"]


def drawn_of_indices(rng):
    """The text of a sum of terms that gather by index arrays, and the function."""
    def one():
        if rng.random() < 0.5:
            return rng.choice(TAKEN).replace("{i}", rng.choice(WHERE))
        i, j = rng.choice(LINES, 2)
        return rng.choice(APART).replace("{i}", i).replace("{j}", j)

    text = " + ".join([one() for _ in range(rng.integers(1, 4))])
    return text, eval(f"lambda x, y, p, q: {text}", {"np": np})


def of_indices(f):
    """Functions of ``f`` by each transform."""
    def along(x, y, p, q):
        return ft.jvp(lambda x, y: f(x, y, p, q), (x, y), (np.cos(x), np.sin(y)))

    def curved(x, y, p, q):
        return ft.jvp(lambda x: ft.grad(f)(x, y, p, q), (x,), (np.cos(x),))

    def batch(g):
        return lambda x, y, p, q: ft.vmap(g)(*[np.stack([a, a[::-1]]) for a in (x, y, p, q)])

    return {"value": f, "grad": ft.grad(f, argnums=(0, 1)), "jvp": along, "hvp": curved,
            "vmap": batch(f), "vmap of grad": batch(ft.grad(f))}


LAYOUTS = {"as it is": np.array, "by columns": np.asfortranarray, "negative": lambda p: p - 9,
           "apart": lambda p: np.repeat(p, 2, axis=0)[::2], "narrow": lambda p: p.astype(np.int8)}


@pytest.mark.parametrize("seed", range(8))
def test_programs_of_index_arrays_are_alike_compiled(seed, monkeypatch):
    monkeypatch.setattr(columns, "ROWS", 8)
    monkeypatch.setattr(columns, "CROSSINGS", 1)
    rng = np.random.default_rng(seed)
    text, f = drawn_of_indices(rng)
    layout = LAYOUTS[rng.choice(list(LAYOUTS))]
    x, y = rng.uniform(0.5, 1.5, (9, 3)), rng.uniform(0.5, 1.5, 9)
    p, q = layout(rng.integers(0, 9, (10, 2))), layout(rng.integers(0, 9, 10))
    for name, g in of_indices(f).items():
        pairs = zip(ft.tree.leaves(ft.jit(g)(x, y, p, q)), ft.tree.leaves(g(x, y, p, q)),
                    strict=True)
        for a, b in pairs:
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13, err_msg=f"{name}: {text}")


@pytest.mark.parametrize("transform", ["grad", "hvp", "vmap of grad"])
def test_columns_of_an_index_array_are_read_by_many_rows(transform):
    def energy(x, y, p, q):
        d = x[p[:, 0]] - x[p[:, 1]]
        return np.sum(d * d) + np.sum(d[:, 0] * y[p[::-1, 1]])

    rng = np.random.default_rng(0)
    p = rng.integers(0, 64, (columns.ROWS, 2))
    args = rng.normal(size=(64, 3)), rng.normal(size=64), p, p[:, 0]
    g = of_indices(energy)[transform]
    for a, b in zip(ft.tree.leaves(ft.jit(g)(*args)), ft.tree.leaves(g(*args)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)
