"""Compiled programs against the same programs without compiling.

FUNCTRANS_PROFILE=thorough draws 10,000 of them.
"""

import math
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

import functrans as ft
from functrans._kernels import sizes
from tests.compiling import seldom_optimising
from tests.fuzz.programs import Drawn, programs

THOROUGH = os.environ.get("FUNCTRANS_PROFILE") == "thorough"
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def many(quick: int, thorough: int):
    return settings(max_examples=thorough if THOROUGH else quick, deadline=None, database=None,
                    suppress_health_check=QUIET)


def twice(f, args, program):
    """What ``f`` returns, and what it returns then for arrays in order: by the shortest way in."""
    with seldom_optimising(program.source):
        return f(*args), f(*[x.copy() for x in args])


# ---- the same to the last bit


def bits(y):
    """The bytes of the entries, all NaNs alike; of complex ones the parts."""
    y = np.asarray(y)
    if y.dtype.kind == "c":
        y = np.stack([y.real, y.imag])
    return np.where(np.isnan(y), np.array(np.nan, y.dtype), y) if y.dtype.kind == "f" else y


def assert_same_bits(ours, theirs, zeros_alike):
    for y, e in zip(ours, theirs, strict=True):
        y, e = bits(y), bits(e)
        assert (y.shape, y.dtype) == (e.shape, e.dtype)
        np.testing.assert_array_equal(y, e)
        if y.dtype.kind == "f" and not zeros_alike:
            np.testing.assert_array_equal(np.signbit(y), np.signbit(e))


EXACT = {
    "jit": lambda f: ft.jit(f, precise=True),
    "jit(jit)": lambda f: ft.jit(lambda *xs: ft.jit(f)(*xs), precise=True),
    "jit(vmap)": lambda f: ft.jit(ft.vmap(f), precise=True),
    "vmap(jit)": lambda f: ft.vmap(ft.jit(f, precise=True)),
}


def stacked(xs):
    """A batch of two: the arguments, and their entries in reverse order."""
    return [np.stack([x, np.flip(x)]) for x in xs]


@pytest.mark.parametrize("how", EXACT)
@many(40, 1000)
@given(program=programs(exact=True))
def test_without_rounding_twice_every_bit_is_the_same(how, program):
    f = program.function()
    args = stacked(program.args) if "vmap" in how else program.args
    with np.errstate(all="ignore"):
        with ft.config(jit=False):
            expected = EXACT[how](f)(*args)
        got, again = twice(EXACT[how](f), args, program)
    # of two zeros NumPy's maximum returns either
    alike = any(name in program.source for name in ("max", "min", "clip"))
    assert_same_bits(got, expected, alike)
    assert_same_bits(again, expected, alike)


# ---- the same within rounding


def floats(args):
    return tuple([i for i, x in enumerate(args) if x.dtype.kind == "f"])


def loss(f):
    """The outputs with different weights, as one real number."""

    def total(*xs):
        ys = [np.real(y) for y in f(*xs)]
        return sum(np.sum(y * np.cos(np.arange(float(math.prod(y.shape)))).reshape(y.shape))
                   for y in ys) + 0.0 * np.sum(xs[0])

    return total


def weights(y):
    return np.cos(np.arange(float(math.prod(y.shape)))).reshape(y.shape).astype(y.dtype)


def of_floats(f, xs):
    """``f`` as a function of its floating-point arguments, and those."""
    which = floats(xs)

    def g(*zs):
        full = list(xs)
        for i, z in zip(which, zs, strict=True):
            full[i] = z
        return f(*full)

    return g, tuple(xs[i] for i in which)


def pushed(f):
    def along(*xs):
        g, moving = of_floats(f, xs)
        return ft.jvp(g, moving, tuple(map(weights, moving)))

    return along


def pulled(f):
    def back(*xs):
        g, moving = of_floats(f, xs)
        ys, pull = ft.vjp(lambda *zs: [*(y for y in g(*zs) if y.dtype.kind == "f"), zs[0]], *moving)
        return ys, pull([weights(y) for y in ys])

    return back


def graded(f):
    return lambda *xs: ft.grad(loss(f), floats(xs))(*xs)


ROUNDED = {
    "jit": lambda f: ft.jit(f),
    "jit(jit)": lambda f: ft.jit(lambda *xs: ft.jit(f)(*xs)),
    "jit(grad)": lambda f: ft.jit(graded(f)),
    "grad(jit)": lambda f: graded(ft.jit(f)),
    "jit(grad(jit))": lambda f: ft.jit(graded(ft.jit(f))),
    "jit(jvp)": lambda f: ft.jit(pushed(f)),
    "jvp(jit)": lambda f: pushed(ft.jit(f)),
    "jit(vjp)": lambda f: ft.jit(pulled(f)),
    "vjp(jit)": lambda f: pulled(ft.jit(f)),
    "jit(vmap)": lambda f: ft.jit(ft.vmap(f)),
    "vmap(jit)": lambda f: ft.vmap(ft.jit(f)),
    "jit(vmap(grad))": lambda f: ft.jit(ft.vmap(graded(f))),
    "vmap(grad(jit))": lambda f: ft.vmap(graded(ft.jit(f))),
    "jit(hessian)": lambda f: ft.jit(ft.hessian(loss(f))),
    "hessian(jit)": lambda f: ft.hessian(ft.jit(loss(f))),
}


def assert_close(ours, theirs, program: Drawn):
    ours, theirs = ft.tree.leaves(ours), ft.tree.leaves(theirs)
    single = any(x.dtype.char in "fF" for x in program.args) or "f4" in program.source
    # sums in another order, vector functions within 4 ulp, a few dozen of them in a row
    rtol, atol = (2e-3, 2e-4) if single else (1e-9, 1e-10)
    for y, e in zip(ours, theirs, strict=True):
        y, e = np.asarray(y), np.asarray(e)
        assert (y.shape, y.dtype) == (e.shape, e.dtype)
        scale = max(program.largest, np.abs(e[np.isfinite(e)]).max(initial=0))
        np.testing.assert_allclose(y, e, rtol=rtol, atol=atol * scale)


@pytest.mark.parametrize("how", ROUNDED)
@many(10, 400)
@given(program=programs())
def test_compiled_values_and_derivatives_are_those_without_compiling(how, program):
    f = program.function()
    args = program.args
    assume("hessian" not in how or args[0].size <= 12)
    if "vmap" in how:
        args = stacked(args)
    with np.errstate(all="ignore"):
        with ft.config(jit=False):
            expected = ROUNDED[how](f)(*args)
        got, again = twice(ROUNDED[how](f), args, program)
    assert_close(got, expected, program)
    assert_close(again, expected, program)


EAGER = {
    "value": lambda f: f,
    "grad": graded,
    "jvp": pushed,
    "vjp": pulled,
    "vmap(grad)": lambda f: ft.vmap(graded(f)),
    "jvp(grad)": lambda f: pushed(lambda *xs: list(graded(f)(*xs))),
}


@pytest.mark.parametrize("how", EAGER)
@many(20, 1000)
@given(program=programs())
def test_kernels_of_any_size_change_nothing_but_roundings(how, program):
    f = program.function()
    args = stacked(program.args) if "vmap" in how else program.args
    with np.errstate(all="ignore"), pytest.MonkeyPatch.context() as patch:
        with ft.config(jit=False):
            expected = EAGER[how](f)(*args)
        patch.setattr(sizes, "VALUES", 1)
        patch.setattr(sizes, "PASSES", 1)
        got = EAGER[how](f)(*args)
    assert_close(got, expected, program)


# ---- found by drawing


def test_a_joined_array_keeps_what_was_filled_before_a_host_step():
    x = np.array([-2.9, 4.0])
    y = ft.jit(lambda x: np.stack([x[np.array([1, 0])], x]))(x)
    np.testing.assert_array_equal(y, [x[::-1], x])


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (2, 0, 3)])
def test_an_index_array_beside_an_axis_without_entries_keeps_its_shape(shape):
    x = np.zeros(shape)
    for axis, n in enumerate(shape):
        if n:
            index = (slice(None),) * axis + (np.array([0, n - 1]),)
            assert ft.jit(lambda x, i=index: x[i])(x).shape == x[index].shape


@pytest.mark.parametrize("shape", [(0, 3), (0, 17, 4)])
def test_numpy_is_given_reversed_views_without_entries(shape):
    # a host step reads a view with negative strides of an array that is empty
    y = ft.jit(lambda x: np.cumsum(np.flip(x, 1), axis=1))(np.zeros(shape))
    assert y.shape == shape


def test_the_nan_of_a_remainder_has_numpys_sign():
    x = np.zeros(3)
    with np.errstate(all="ignore"):
        expected = np.signbit(x % x)
    np.testing.assert_array_equal(ft.jit(lambda x: np.signbit(x % x), precise=True)(x), expected)
