"""Running sums, products and extremes in native code, against NumPy's and the rows' own."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import functrans as ft
from functrans._compile.run.native import NativeProgram
from functrans._compile.schedule.kernels import HostStep
from functrans._core.bind import bind
from functrans._ops.declare import TABLE
from functrans._transforms.reach import make_program
from tests.covering import covering

pytestmark = pytest.mark.usefixtures("unoptimised")

SHAPES = [(7,), (1,), (5, 6), (4, 3, 5), (2, 1, 3), (600, 2)]
PLACES = [(shape, axis) for shape in SHAPES for axis in range(len(shape))]
EDGES = np.array([0.0, 2.0, -0.0, 1.0, np.inf, 2.0, -np.inf, 0.0, 3.0, np.nan, 1.0, -5.0])


def native(f, *args):
    """What native code without host steps returns."""
    compiled = NativeProgram(make_program(f)(*args))
    assert not any(isinstance(s, HostStep) for s in compiled.schedule.steps), compiled.schedule
    return compiled(args)


def numbers(shape, dtype="d", seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape) * 3
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.normal(size=shape)
    return x.astype(dtype)


def row(name, **params):
    return lambda *xs: bind(TABLE[name], *xs, **params)


def assert_same(ours, theirs):
    theirs = np.asarray(theirs)
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("place", "reverse", "dtype"), covering(
    PLACES, [False, True], ["f8", "f4", "c16", "i8", "i4", "i1", "?"]
))
def test_sums_go_in_numpys_order(place, reverse, dtype):
    shape, axis = place
    x = numbers(shape, dtype)
    expected = np.cumsum(np.flip(x, axis) if reverse else x, axis)
    expected = np.flip(expected, axis) if reverse else expected
    (y,) = native(row("cumsum", axis=axis, reverse=reverse), x)
    assert_same(y, expected)


@pytest.mark.parametrize(("place", "reverse", "dtype"), covering(
    PLACES, [False, True], ["f8", "f4", "i8", "?"]
))
def test_products_go_in_numpys_order(place, reverse, dtype):
    shape, axis = place
    x = numbers(shape, dtype)
    with np.errstate(all="ignore"):
        expected = TABLE["cumprod"].impl(x, axis, reverse)
        (y,) = native(row("cumprod", axis=axis, reverse=reverse), x)
    assert_same(y, expected)


@pytest.mark.parametrize(("place", "extreme", "dtype"), covering(
    PLACES, [("cummax", np.maximum), ("cummin", np.minimum)], ["f8", "f4", "i8", "i2"]
))
def test_extremes_are_numpys(place, extreme, dtype):
    (shape, axis), (name, ufunc) = place, extreme
    x = numbers(shape, dtype)
    assert_same(native(row(name, axis=axis), x)[0], ufunc.accumulate(x, axis))


@pytest.mark.parametrize(("place", "largest", "dtype"), covering(
    PLACES, [True, False], ["f8", "f4", "i8", "i2"]
))
def test_shares_of_an_extreme_are_the_rows(place, largest, dtype):
    shape, axis = place
    x = np.round(numbers(shape, dtype) / 2).astype(dtype)  # with ties
    params = {"axis": axis, "largest": largest}
    assert_same(native(row("running_share", **params), x)[0],
                TABLE["running_share"].impl(x, **params))


@pytest.mark.parametrize(("place", "reverse", "dtype"), covering(
    PLACES, [False, True], ["f8", "f4", "i8"]
))
def test_recurrences_are_the_rows(place, reverse, dtype):
    shape, axis = place
    a, b = numbers(shape, dtype) / 4, numbers(shape, dtype, 1)
    a = np.where(np.abs(a) < 0.1, 0, a).astype(dtype)
    params = {"axis": axis, "reverse": reverse}
    assert_same(native(row("recurrence", **params), a, b)[0],
                TABLE["recurrence"].impl(a, b, **params))


@pytest.mark.parametrize(("shape", "axis"), PLACES)
def test_a_shift_is_a_view(shape, axis):
    x = numbers(shape)
    for by in (1, -1):
        compiled = NativeProgram(make_program(row("shift", axis=axis, by=by))(x))
        assert_same(compiled([x])[0], TABLE["shift"].impl(x, axis, by))
        assert len(compiled.schedule.steps) == 1


@pytest.mark.parametrize(
    "name", ["cumsum", "cumprod", "cummax", "cummin", "recurrence", "running_share"]
)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_zeros_infinities_and_nan_go_on_as_in_numpy(name, dtype):
    for turn in range(len(EDGES)):
        x = np.roll(EDGES, turn).astype(dtype)[:, None]
        params = {"axis": 0}
        if name == "running_share":
            params["largest"] = True
        elif name in ("cumsum", "cumprod", "recurrence"):
            params["reverse"] = False
        xs = (EDGES.astype(dtype)[:, None], x) if name == "recurrence" else (x,)
        with np.errstate(all="ignore"):
            expected = TABLE[name].impl(*xs, **params)
        assert_same(native(row(name, **params), *xs)[0], expected)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_nothing_adds_up_to_nothing(shape):
    x = np.zeros(shape)
    for axis in range(len(shape)):
        y = ft.jit(lambda x, axis=axis: np.cumsum(x, axis))(x)
        assert_same(np.asarray(y), np.cumsum(x, axis))


def test_views_are_read_where_they_are():
    x = numbers((6, 8))
    compiled = NativeProgram(make_program(lambda x: np.cumsum(x.T[::2, ::-1], axis=0))(x))
    assert [s.name for s in compiled.schedule.steps] == ["cumsum"]
    assert_same(compiled([x])[0], np.cumsum(x.T[::2, ::-1], axis=0))


FUNCTIONS = {
    "sums": lambda x: np.sum(np.cumsum(x * x, axis=-1) ** 2),
    "products": lambda x: np.sum(np.sin(np.cumprod(x, axis=0))),
    "extremes": lambda x: np.sum(np.maximum.accumulate(x, axis=-1) ** 2 * x),
    "means": lambda x: np.sum(np.cumsum(x) / np.arange(1.0, x.size + 1)),
}
TRANSFORMS = {
    "itself": lambda f: f,
    "grad": ft.grad,
    "hessian": ft.hessian,
    "jvp": lambda f: lambda x: ft.jvp(f, (x,), (np.cos(x),)),
    "vmap of grad": lambda f: lambda x: ft.vmap(ft.grad(f))(np.stack([x, 2 * x, x + 1])),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_transforms_need_no_host_step(name, transform):
    f = TRANSFORMS[transform](FUNCTIONS[name])
    x = numbers((3, 4))
    found, expected = (ft.tree.leaves(g(x)) for g in (ft.jit(f), f))
    for y, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(y, e, rtol=1e-12, atol=1e-12)
    steps = NativeProgram(make_program(f)(x)).schedule.steps
    assert not any(isinstance(s, HostStep) for s in steps)
