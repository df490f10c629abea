"""Functions of the caller's applied by NumPy's rules, index arithmetic, and methods of ndarrays."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans._core.bind import Tracer
from functrans.errors import (
    ArgumentError,
    ConcretizationError,
    MemoryAttributeError,
    UnsupportedError,
)
from tests.cases import CHECKS, OF_KNOWN, Case, check_jit_is_eager, each

pytestmark = pytest.mark.usefixtures("unoptimised")

A, V = (3, 4), (6,)
SQUARES = np.frompyfunc(lambda x: x * x, 1, 1)

CASES = {
    "along": Case(lambda x: np.apply_along_axis(lambda r: r * r[0], 1, x), (A,)),
    "along to numbers": Case(lambda x: np.apply_along_axis(np.sum, 0, x), (A,)),
    "along to tables": Case(lambda x: np.apply_along_axis(np.diag, 1, x), ((2, 3, 2),)),
    "along with arguments": Case(
        lambda x: np.apply_along_axis(lambda r, s, p=1: s * r**p, -1, x, 2.0, p=3), (A,)
    ),
    "over": Case(lambda x: np.apply_over_axes(np.sum, x, [0, -1]), ((2, 3, 4),)),
    "over, keeping": Case(lambda x: np.apply_over_axes(np.cumsum, x, 0), (A,)),
    "fromfunction": Case(
        lambda x: np.fromfunction(
            lambda i, j: (i + 1) * x[0] ** 2 + j, (2, 2), dtype=np.float32
        ),
        (V,),
    ),
    "ix_": Case(lambda x: x[np.ix_([0, 2], [1, 3])], (A,)),
    "diag_indices_from": Case(lambda x: x[np.diag_indices_from(x)], ((3, 3),)),
    "tril_indices_from": Case(lambda x: x[np.tril_indices_from(x, -1)], (A,)),
    "triu_indices_from": Case(lambda x: x[np.triu_indices_from(x, 1)], (A,)),
    "mask_indices": Case(lambda x: x[np.mask_indices(3, np.triu)], ((3, 3),)),
    "view of complex numbers": Case(lambda x: (x * np.array([1, 1j])).view(x.dtype), ((3, 2),)),
    "divmod": Case(lambda x: divmod(x, 0.4)[1] + divmod(0.3, x + 1)[1], (A,)),
}


@each(
    {n: c for n, c in CASES.items() if n not in ("view of complex numbers", "divmod")},
    [*CHECKS, check_jit_is_eager],
)
def test_applying(case, check):
    check(case)


@each({"divmod": CASES["divmod"]}, OF_KNOWN)
def test_divmod(case, check):
    check(case)


# ---- piecewise


@pytest.mark.parametrize("f", [
    lambda x: np.piecewise(x, [x < 0.3, x >= 0.5], [lambda t: t**2, 3.0, np.sin]),
    lambda x: np.piecewise(x, x < 0.3, [np.exp, np.cos]),
    lambda x: np.piecewise(x, [x < 0.3], [lambda t, a, b=1: a * t + b, 0.0], 2.0, b=5.0),
    lambda x: np.piecewise(x, [x < 0.3, x < 0.5], [1.0, lambda t: -t]),
    lambda x: np.piecewise(x[0], x[0] < 9, [np.sin, np.cos]),
    lambda x: np.piecewise(x, np.stack([x < 0.3, x > 0.3]), [np.sin, np.cos]),
])
@each({"": Case(None, (V,))}, [*OF_KNOWN[:1], *OF_KNOWN[2:], check_jit_is_eager])
def test_piecewise(case, check, f):
    check(Case(f, case.shapes))


@pytest.mark.parametrize("f", [
    lambda t: t - t.mean(), lambda t: t[::-1] * 2, lambda t: t[0], lambda t: t * t.size, np.cumsum,
    lambda t: t / np.max(t), np.sum,
])
def test_pieces_that_depend_on_each_other_are_refused_where_conditions_are_not_known(f):
    x = np.array([-0.5, 0.3, -0.1, 0.8])

    def g(x):
        return np.piecewise(x, [x < 0], [f, 3.0])

    np.testing.assert_allclose(ft.vjp(g, x)[0], g(x), rtol=1e-15)
    for h in (ft.jit(g), lambda x: ft.vmap(g)(x[None]), ft.jit(ft.grad(lambda x: np.sum(g(x))))):
        with pytest.raises(UnsupportedError, match="depends on the others"):
            h(x)


def test_pieces_may_look_numbers_up_and_close_over_traced_ones():
    table, x = np.array([2.0, -1.0]), np.array([-0.5, 0.3, -0.1, 0.8])

    def g(x, a):
        return np.piecewise(x, [x < 0], [lambda t: a * table[(t > 0.2).astype(int)] + t,
                                         lambda t: np.interp(t, [0.0, 1.0], np.stack([a, 0 * a]))])

    np.testing.assert_allclose(ft.jit(g)(x, 2.0), g(x, 2.0), rtol=1e-14)
    slopes = ft.jit(ft.jacrev(g, (0, 1)))(x, 2.0)
    for got, want in zip(slopes, ft.jacfwd(g, (0, 1))(x, 2.0), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)


def test_piecewise_is_differentiated_piece_by_piece():
    def f(x):
        return np.piecewise(x, [x < 0, x >= 0], [lambda t: -t, np.sqrt])

    x = np.array([-4.0, 4.0, 0.25])
    want = [-1.0, 0.25, 1.0]
    np.testing.assert_array_equal(ft.elementwise_grad(f)(x), want)
    np.testing.assert_array_equal(ft.jvp(f, x, np.ones(3))[1], want)
    with np.errstate(invalid="ignore"):  # a batch runs each function on everything
        np.testing.assert_array_equal(ft.vmap(ft.elementwise_grad(f))(x[None])[0], want)


def test_piecewise_wants_a_function_for_each_condition():
    with pytest.raises(ValueError, match="either 1 or 2 functions"):
        ft.jvp(lambda x: np.piecewise(x, [x < 0], [1, 2, 3]), np.ones(2), np.ones(2))


# ---- vectorize


def branching(x, y=1.0):
    return x**2 * y if x > 0.5 else -x


def test_vectorize_calls_for_each_entry():
    x = np.array([[0.2, 0.7], [1.5, -1.0]])
    f = fnp.vectorize(branching)
    np.testing.assert_array_equal(f(x), np.vectorize(branching)(x))
    np.testing.assert_array_equal(ft.elementwise_grad(f)(x), np.where(x > 0.5, 2 * x, -1))
    np.testing.assert_array_equal(
        ft.jacobian(lambda y: f(x[0], y))(3.0), [0.0, 0.7**2]
    )
    assert f.__name__ == "branching"
    assert type(f(x)) is ft.Array


def test_vectorize_with_a_signature_and_several_results():
    f = fnp.vectorize(lambda a, b: (a @ b, a.sum() * b), signature="(n),(n)->(),(n)")
    a, b = np.arange(6.0).reshape(2, 3), np.ones(3)
    inner, scaled = ft.jacobian(lambda a: f(a, b))(a)
    assert inner.shape == (2, 2, 3) and scaled.shape == (2, 3, 2, 3)
    np.testing.assert_array_equal(inner, np.einsum("ij,k->ijk", np.eye(2), b))


def test_vectorize_leaves_excluded_arguments_whole():
    f = fnp.vectorize(lambda p, x: np.polyval(np.ones(2), x) + p.sum(), excluded=[0])
    assert ft.grad(lambda p: f(p, np.ones(4)).sum())(np.ones(3)).tolist() == [4.0] * 3
    g = fnp.vectorize(lambda x, p: x * p[0], excluded=["p"])
    assert ft.grad(lambda p: g(np.ones(4), p=p).sum())(np.ones(2)).tolist() == [4.0, 0.0]


def test_vectorize_says_how_many_arguments_it_wants():
    with pytest.raises(ArgumentError, match="has 2 inputs, but 1"):
        ft.grad(fnp.vectorize(lambda a: a, signature="(n),(n)->()"))(np.ones(2))
    with pytest.raises(ValueError, match="size 0"):
        ft.jvp(fnp.vectorize(branching), np.ones(0), np.ones(0))


def test_numpys_vectorize_names_ours():
    with pytest.raises(ConcretizationError, match=r"functrans\.numpy\.vectorize"):
        ft.grad(lambda x: np.vectorize(branching)(x).sum())(np.ones(2))


def test_a_ufunc_of_a_python_function_is_differentiated():
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(ft.elementwise_grad(SQUARES)(x), 2 * x)
    two = np.frompyfunc(lambda a, b: (a * b, a - b), 2, 2)
    product, difference = ft.jacobian(lambda x: two(x, 2.0))(3.0)
    assert (float(product), float(difference)) == (2.0, 1.0)


# ---- indices


@pytest.mark.parametrize("f", [
    lambda i: np.stack(np.unravel_index(i, (3, 4))),
    lambda i: np.stack(np.unravel_index(i, (3, 4), order="F")),
    lambda i: np.unravel_index(i, 12)[0],
    lambda i: np.ravel_multi_index((i % 3, i % 4), (3, 4)),
    lambda i: np.ravel_multi_index((i % 3, i % 4), (3, 4), order="F"),
    lambda i: np.ravel_multi_index((i, i - 5), (3, 4), mode=("clip", "wrap")),
])
def test_index_arithmetic_is_numpys(f):
    i = np.array([[0, 5, 11], [7, 7, 2]])
    np.testing.assert_array_equal(ft.vmap(f)(i), [f(r) for r in i])
    np.testing.assert_array_equal(ft.jit(f)(i), f(i))


def test_the_place_of_the_greatest_in_a_batch():
    x = np.random.default_rng(0).normal(size=(5, 3, 4))
    got = ft.vmap(lambda x: np.stack(np.unravel_index(np.argmax(x), x.shape)))(x)
    np.testing.assert_array_equal(got, [np.unravel_index(np.argmax(r), r.shape) for r in x])


def test_a_coordinate_out_of_bounds_raises():
    with pytest.raises(ValueError, match="invalid entry"):
        ft.grad(lambda x: x[np.ravel_multi_index((np.argmax(x), 7), (3, 4))])(np.ones(3))


def test_nothing_to_iterate_over_raises_what_numpy_raises():
    with pytest.raises(ValueError, match="iteration dimensions are 0"):
        ft.jvp(lambda x: np.apply_along_axis(np.sum, 1, x), np.ones((0, 2)), np.ones((0, 2)))
    with pytest.raises(ValueError, match="correct shape"):
        ft.jvp(lambda x: np.apply_over_axes(lambda x, i: x.sum(), x, 0), *np.ones((2, 2, 2)))


# ---- methods


def test_every_method_of_an_ndarray_is_there_for_every_transform():
    # those that show memory are not; the array API's are xarray's and torch's way in
    memory = {"base", "ctypes", "data", "device", "flags", "strides", "to_device"}
    missing = [m for m in dir(np.ndarray) if not m.startswith("_") and not hasattr(Tracer, m)]
    assert set(missing) <= memory


def test_no_transform_hides_a_method_of_its_values():
    hidden = [
        (cls.__name__, slot)
        for cls in _subclasses(Tracer)
        for slot in cls.__slots__
        if hasattr(np.ndarray, slot)
    ]
    assert not hidden


def _subclasses(cls):
    return [cls, *itertools.chain.from_iterable(map(_subclasses, cls.__subclasses__()))]


def test_in_asks_for_an_equal_entry():
    def f(x):
        assert 2.0 in x
        assert 5.0 not in x
        return x.sum()

    ft.grad(f)(np.array([1.0, 2.0]))


@pytest.mark.parametrize("name", ["byteswap", "dump", "dumps", "getfield", "setflags", "tobytes",
                                  "tofile"])
def test_methods_of_memory_name_stop_gradient(name):
    with pytest.raises(ConcretizationError, match=rf"x\.{name}\(\).*stop_gradient\(x\)\.{name}"):
        ft.grad(lambda x: getattr(x, name)())(np.ones(3))


@pytest.mark.parametrize("name", ["base", "ctypes", "data", "flags", "strides"])
def test_attributes_of_memory_name_stop_gradient(name):
    for transform in (ft.grad, ft.vmap, ft.jit):
        with pytest.raises(MemoryAttributeError, match=rf"x\.{name} tells.*gradient\(x\)\.{name}"):
            transform(lambda x: getattr(x, name))(np.ones(3))
    assert ft.grad(lambda x: np.sum(x) * (1 if hasattr(x, name) else 2))(np.ones(1)).tolist() == [2]


def test_view():
    z = np.array([[1 + 2j, 3 - 1j]])
    y, pull = ft.vjp(lambda z: z.view(float) ** 2, z)
    np.testing.assert_array_equal(y, z.view(float) ** 2)
    np.testing.assert_array_equal(pull(np.ones((1, 4)))[0], 2 * z)
    assert ft.grad(lambda x: x.view(float).view().sum())(np.ones(2)).tolist() == [1.0, 1.0]
    with pytest.raises(UnsupportedError, match=r"x\.view\(int64\).*astype"):
        ft.grad(lambda x: x.view(np.int64).sum())(np.ones(2))


# ---- arrays whose length, or whose values, are computed


@pytest.mark.parametrize("args", [(0.0, 1.0, 0.1), (1.0, -2.0, -0.3), (3.7,), (2.0, 1.0)])
def test_arange_of_traced_numbers_is_numpys(args):
    expected = np.arange(*args)
    found = ft.jvp(fnp.arange, tuple(map(float, args)), tuple(1.0 for _ in args))[0]
    np.testing.assert_array_equal(found, expected.astype(float))


def test_the_entries_of_arange_move_with_start_and_step():
    f = lambda a, b, h: (fnp.arange(a, b, h) * [1.0, 2.0, 3.0, 4.0]).sum()  # noqa: E731
    for grad in (ft.grad(f, (0, 1, 2)), ft.jit(ft.grad(f, (0, 1, 2)))):
        assert [float(g) for g in grad(1.0, 2.9, 0.5)] == [10.0, 0.0, 20.0]


def test_an_array_of_an_iterable():
    f = lambda x: (fnp.fromiter((v * x for v in itertools.count()), float, 4) ** 2).sum()  # noqa: E731
    assert ft.grad(f)(0.5) == 14.0
    np.testing.assert_array_equal(fnp.fromiter(iter([1, 2]), int), [1, 2])


def test_functions_of_plain_arrays_close_over_traced_values():
    def f(r):
        scaled = fnp.vectorize(lambda v: v * r)(V_)
        return scaled.sum() + fnp.piecewise(V_, [V_ < 1], [lambda v: v / r, r]).sum()

    assert ft.grad(f)(0.5) == pytest.approx(V_.sum() - V_[V_ < 1].sum() / 0.25 + (V_ >= 1).sum())


V_ = np.linspace(0.1, 2.0, 6)


PLACES = {
    "ravel": lambda np, x, i, j: np.ravel_multi_index((i, j), (200, 150)),
    "ravel wrapped": lambda np, x, i, j: np.ravel_multi_index((i, j), (90, 40), mode="wrap"),
    "ravel clipped": lambda np, x, i, j: np.ravel_multi_index((i, j), (200, 40), mode="clip"),
    "unravel": lambda np, x, i, j: np.unravel_index(i, (200, 150)),
    "take": lambda np, x, i, j: np.take(x, i, mode="wrap") + np.take(x, j, 0, mode="clip")[:, 0],
    "choose": lambda np, x, i, j: np.choose(i, [j, i], mode="wrap"),
}


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "i8"])
def test_places_are_reckoned_with_64_bits(name, dtype):
    f, x = PLACES[name], np.arange(600.0).reshape(200, 3)
    i, j = np.array([100, 3, 120], dtype), np.array([5, 100, 49], dtype)
    want = ft.tree.leaves(f(np, x, i, j))
    run = functools.partial(f, fnp)
    batch = ft.tree.map(lambda y: y[0], ft.vmap(run)(x[None], i[None], j[None]))
    for y in (ft.jit(run)(x, i, j), batch, ft.vjp(lambda x: run(x, i, j), x)[0]):
        for got, expected in zip(ft.tree.leaves(y), want, strict=True):
            np.testing.assert_array_equal(got, expected)
            assert got.dtype == expected.dtype
