"""Calls with unusual arguments: what NumPy returns, in value, shape and type, or raises.

And wherever the result is a float, the backward pass is the transpose of the forward one.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import functrans as ft

X = (np.random.default_rng(0).permutation(12).reshape(3, 4) * 0.37 + 0.61) / 5
X[1, 1] = X[0, 2]  # a tie
M = np.arange(12).reshape(3, 4) % 3 > 0
ARGUMENTS = {
    "table": X,
    "holes": np.where(np.arange(12).reshape(3, 4) % 5 == 2, np.nan, X),
    "complex": X + 1j * X[::-1],
    "number": np.float64(0.3),
    "empty": np.zeros((0, 3)),
}

# of the holes
HOLES = "\n".join([
    f"np.nan{name}({arguments})"
    for name in ("sum", "prod", "mean", "var", "std", "min", "max")
    for arguments in (
        "a", "a, axis=0", "a, axis=(0, 1), keepdims=True",
        "a, axis=1, where=M" + ", initial=0.3" * (name in ("min", "max")),
        "a, keepdims=True, axis=-1", "a, axis=()")
] + [
    f"np.nan{name}(a, axis=1, {option})"
    for name in ("sum", "prod") for option in ("initial=2.0, where=M", "dtype=np.float32")
] + [
    f"np.{name}(a, {options})"
    for name in ("nanvar", "nanstd", "var", "std")
    for options in ("axis=1, ddof=1", "axis=1, mean=np.nanmean(a, axis=1, keepdims=True)",
                    "axis=1, correction=1, where=M", "dtype=np.float32")
] + [
    f"np.{name}({arguments})"
    for name in ("nancumsum", "nancumprod", "cumsum", "cumprod")
    for arguments in ("a", "a, axis=1, dtype=np.float32")
])

# of the complex
COMPLEX = """
np.nanvar(a)
np.nanstd(a)
np.var(a)
np.std(a)
np.nanmean(a)
np.mean(a)
np.nansum(a)
np.nanmedian(a)
np.sort(a)
np.sort(a, 0)
np.partition(a, 1)
np.unique(a)
np.cumsum(a)
np.cumprod(a, axis=1)
np.trace(a)
np.average(a, weights=X)
np.prod(a)
np.pad(a, 1)
np.pad(a, 1, 'mean')
np.pad(a, 1, 'linear_ramp')
np.roll(a, 1)
np.histogram([1, 2.], 2, weights=a[0, :2])
np.bincount([0, 1], a[0, :2])
np.max(a)
np.add.reduceat(a, [0, 2], 1)
np.multiply.reduce(a, 1)
np.insert(a, 0, 1j)
np.isin(a, a[0])
np.lexsort(a)
np.argsort(a)
np.nanargmax(a)
np.median(a, axis=1)
"""

# of the empty
EMPTY = """
np.nanvar(a, axis=0)
np.nanstd(a, axis=0)
np.var(a, axis=0)
np.std(a, axis=0)
np.nanmean(a, axis=1)
np.mean(a, axis=1)
np.nansum(a, axis=1)
np.nanvar(a, axis=1)
np.nanmedian(a, axis=1)
np.nancumsum(a, axis=0)
np.nancumprod(a, axis=0)
np.cumsum(a, axis=0)
np.cumprod(a, axis=0)
np.sort(a)
np.median(a)
np.median(a, axis=0)
np.cov(a)
np.corrcoef(a)
np.partition(a, 1)
np.argpartition(a, 1)
np.quantile(a, .3)
np.unique(a)
np.histogram(a, 3)
np.trim_zeros(a)
np.max(a)
np.ptp(a)
np.cumsum(a)
np.nanmax(a)
np.average(a)
np.bincount([0], a)
"""

# of the number
NUMBER = """
np.nanmean(a)
np.mean(a)
np.nansum(a)
np.nanvar(a)
np.nanmedian(a)
np.nancumsum(a)
np.nancumprod(a)
np.cumsum(a)
np.cumprod(a)
np.sort(a)
np.median(a)
np.cov(a)
np.corrcoef(a)
np.partition(a, 1)
np.argpartition(a, 1)
np.quantile(a, .3)
np.unique(a)
np.histogram(a, 3)
np.trim_zeros(a)
np.max(a)
np.ptp(a)
np.nanmax(a)
np.average(a)
np.bincount([0], a)
"""

# of the table
TABLE = """
np.average(a, axis=(0, 1), weights=M)
np.average(a, axis=0, weights=[1, 2, 3.], returned=True, keepdims=True)
np.average(a, returned=True)
np.average(a, axis=1, returned=True)
np.average(a, weights=np.zeros((3, 4)))
np.average(a, weights=[1, 2])
np.average(a, axis=1, weights=[1, 2, 3])
np.max(a, axis=(0, 1), keepdims=True)
np.max(a, initial=9)
np.max(a, where=M)
np.max(a, where=M, initial=-1)
np.ptp(a, axis=(0, 1))
np.ptp(a, axis=1, keepdims=True)
np.argmax(a, axis=None, keepdims=True)
a.argmin(axis=1, keepdims=True)
a.max(axis=-1, initial=.4)
a.sum(where=M, axis=1)
a.mean(where=M)
a.any(axis=0)
a.all(keepdims=True)
np.count_nonzero(a, axis=(0, 1), keepdims=True)
a.sum()
np.take(a, [-1, 5], mode='clip')
np.take(a, [-1, 5, 13], mode='wrap')
np.take(a, [[0, 1], [2, 3]], axis=1)
np.take(a, 2)
np.take(a, [99])
np.take(a, [], axis=0)
np.take(a, [1.5])
np.take(a, np.array([True, False]))
a.take([1, 2], axis=-1, mode='wrap')
np.take_along_axis(a, np.array([[0, 3]]), axis=1)
np.take_along_axis(a, np.array([0]), axis=1)
np.choose([0, 1, 2, 0], a)
np.choose([2, 0, 1, 0], [a[0], 1.0, a[2]])
np.choose(np.array([[0], [1]]), [a[0], a[1]])
np.choose([5, 0, 0, 0], a)
np.choose([5, -1, 0, 0], a, mode='clip')
np.choose([5, -1, 0, 0], a, mode='wrap')
np.select([a>.3], [a])
np.select([a>.3, a>.1], [a, 1], default=np.nan)
np.select([M, M], [a, a], 0)
np.select([a>.3], [a, a])
np.compress([0, 1, 1], a, axis=0)
np.compress([False]*12+[True], a)
np.compress([1, 0, 1], a, axis=1)
np.extract([1, 0, 1], a)
np.extract(M, a)
np.extract(M, a[:2])
np.diag(a, -1)
np.diag(a[0], k=-2)
np.diag(a[None])
np.diagflat(a[0], 1)
np.diagonal(a, 9)
np.diagonal(a, -1, 1, 0)
np.tril(a[0], 1)
np.triu(a, -1)
np.tril(a[None])
np.trace(a, 1, 1, 0)
np.trace(a, dtype=np.float32)
np.rot90(a, 3)
np.rot90(a, -1)
np.rot90(a, 1, (1, 0))
np.rot90(a, 1, (0, 0))
np.rot90(a[0])
np.roll(a, -1)
np.roll(a, (1, 1), axis=(0, 0))
np.roll(a, 5, axis=1)
np.roll(a, [1, 2], axis=1)
np.roll(a, 1, axis=(0, 1))
np.roll(a, (1, 2))
np.resize(a, (2, 2))
np.resize(a, 20)
np.resize(a, (0))
np.resize(a[:0], (2, 2))
np.resize(a, -1)
np.delete(a, [True, False, True], axis=0)
np.delete(a, [-1, 0], axis=1)
np.delete(a, 99, axis=0)
np.delete(a, np.s_[::2], 1)
np.delete(a, [])
np.delete(a, np.array([1, 1]), 0)
np.insert(a, 99, 1.0)
np.insert(a, 1, [1, 2, 3], axis=1)
np.insert(a, 1, [[1], [2], [3]], axis=1)
np.insert(a, [1], [[1], [2], [3]], axis=1)
np.insert(a, [1, 1], [[1, 2], [3, 4], [5, 6.]], axis=1)
np.insert(a, 1, [1, 2, 3, 4], axis=0)
np.insert(a, 0, np.ones((2, 4)), axis=0)
np.insert(a[0], [], [])
np.insert(a[0], 2, [1, 2, 3.])
np.insert(a[0], [1, 2], [1, 2, 3.])
np.insert(a, np.s_[1:3], 9., axis=1)
np.append(a, [[1, 2, 3, 4]], 0)
np.append(a, 1)
np.append(a, [1], axis=0)
np.tile(a, 0)
np.tile(a, (2, 0))
np.tile(a, [2, 1, 1])
np.tile(a[0, 0], 3)
np.repeat(a, 0)
np.repeat(a, [1, 2, 3], axis=0)
np.repeat(a, [2], axis=1)
np.repeat(a, [1, 2], axis=0)
np.repeat(a, -1)
a.repeat(2, axis=1)
np.repeat(a[0, 0], 3)
np.rollaxis(a, 0, 2)
np.rollaxis(a, 1, -1)
np.atleast_3d(a[0], a)
np.atleast_2d(a[0, 0])
np.split(a, [2, 1], axis=1)
np.split(a, 3, axis=1)
np.array_split(a, 5, axis=1)
np.array_split(a, [1, -1], axis=1)
np.hsplit(a[0], 2)
np.vsplit(a[0], 2)
np.dsplit(a, 2)
np.unstack(a)
np.block([[a, 1.0], [2.0, a]])
np.block([a[0], a[1]])
np.block([[a], [a]])
np.block(a)
np.block([[a[:2, :2], a[:2, 2:]], [a[2:, :2], a[2:, 2:]]])
np.block([])
np.block([[a], a])
np.pad(a, ((1), (2)))
np.pad(a, (1, 2), 'wrap')
np.pad(a, [(0, 0), (5, 6)], 'reflect')
np.pad(a, 3, 'symmetric')
np.pad(a, 0)
np.pad(a, ((0, 0), (9, 9)), 'wrap')
np.pad(a[0, 0], 3)
np.pad(a, {0:1})
np.meshgrid(a[0], a[1], a[2, :2], indexing='ij')
np.meshgrid(a[0], a[1], sparse=True)
np.meshgrid(a[0])
np.meshgrid(a[0], 2.0)
np.meshgrid()
np.broadcast_to(a[0], (2, 4))
np.broadcast_arrays(a, a[:, :1], 1.0)
np.vander(a[0])
np.vander(a[0], 3, increasing=True)
np.vander(a[0], 0)
np.vander(a)
np.flip(a, (0, 1))
np.flip(a, -1)
np.flipud(a[0])
np.fliplr(a[0])
np.squeeze(a[None], axis=0)
np.squeeze(a, 0)
np.expand_dims(a, (0, -1))
np.moveaxis(a, [0, 1], [1, 0])
np.swapaxes(a, 0, -1)
np.ravel(a, 'F')
np.reshape(a, (2, 6), order='F')
a.reshape(-1, order='F')
a.flatten('F')
np.reshape(a, -1)
a.squeeze()
a.dot(a.T)
a.tolist()[0][0]
a.item(5)
a.item(1, 2)
a[0].searchsorted([.1, .9])
a.nonzero()
a.conj()
a.clip(max=.4)
a.clip(.2)
a.round(2)
a.cumprod(axis=0)
a.std(axis=0, ddof=1, keepdims=True)
a.trace(1)
a.diagonal(1)
a.compress([1, 0, 1], axis=0)
a.argsort(axis=0)
a.astype('f4')
a.flat[[1, 2]]
len(a)
a.size
a.nbytes
list(a.flat)[3]
a.swapaxes(0, 1)
np.sort(a, axis=0, kind='stable')
np.argsort(a, axis=None)
np.sort_complex(a[0])
np.unique(a, return_inverse=True)
np.unique(a, return_counts=True, axis=1)
np.lexsort((a[0], a[1]))
np.searchsorted([.1, .4], a)
np.digitize(a, [.1, .4])
np.where(M, a, [1., 2, 3, 4])
np.where(a>.4)
np.argwhere(a>.4)
np.flatnonzero(a>.4)
np.isin(a, a[0])
np.isin(a, .61/5)
np.union1d(a, a)
np.array_equiv(a, a)
"""

CALLS = [
    (name, call)
    for name, calls in zip(ARGUMENTS, (TABLE, HOLES, COMPLEX, NUMBER, EMPTY), strict=True)
    for call in calls.strip().split("\n")
]


def leaves(y):
    return [v for part in y for v in leaves(part)] if isinstance(y, tuple | list) else [y]


def outcome(f, x):
    """What ``f`` returns, leaf by leaf, or the exception that it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of means of nothing and the like
        try:
            return [np.asarray(v) for v in leaves(f(x))]
        except Exception as e:
            return e


def traced(f):
    """``f`` of values that forward mode traces; constants of what it returns."""

    def run(x):
        found = []
        ft.jvp(lambda x: found.extend(map(ft.stop_gradient, leaves(f(x)))) or x, x, x)
        return found

    return run


@pytest.mark.parametrize(("name", "call"), CALLS)
def test_a_call_is_numpys(name, call):
    f, x = eval(f"lambda a: {call}", {"np": np, "M": M, "X": X}), ARGUMENTS[name]
    want, got = outcome(f, np.array(x) if x.ndim else x), outcome(traced(f), x)
    if isinstance(want, Exception):
        assert isinstance(got, type(want)), (got, want)
        return
    assert not isinstance(got, Exception), got
    assert [(y.shape, y.dtype) for y in got] == [(y.shape, y.dtype) for y in want]
    for a, b in zip(got, want, strict=True):
        rtol = 1e-6 if b.dtype == np.float32 else 1e-13
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-15)


def floats_of(f):
    """The real numbers that ``f`` returns, as a vector, but for NaNs."""

    def run(x):
        found = [y for y in leaves(f(x)) if getattr(y, "dtype", X.dtype).kind in "fc"]
        parts = [np.reshape(y, -1) for y in found]
        y = np.concatenate([np.zeros(1), *parts])
        return np.where(np.isnan(y), 0, y)

    return run


@pytest.mark.parametrize(("name", "call"), [c for c in CALLS if c[0] in ("table", "holes")])
def test_backward_is_the_transpose_of_forward(name, call):
    f, x = eval(f"lambda a: {call}", {"np": np, "M": M, "X": X}), ARGUMENTS[name]
    if isinstance(outcome(f, x.copy()), Exception):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        t = np.cos(np.arange(12.0)).reshape(3, 4)
        y, dy = ft.jvp(floats_of(f), x, t)
        ct = np.sin(np.arange(1.0, y.size + 1))
        (g,) = ft.vjp(floats_of(f), x)[1](ct.astype(y.dtype))
    rel = 1e-6 if "float32" in call or "f4" in call else 1e-13
    assert np.vdot(ct, dy) == pytest.approx(np.vdot(g, t), rel=rel, abs=rel)


# ---- types other than float64

TYPED = """
np.median(a, axis=1)
np.quantile(a, 0.3, axis=0)
np.percentile(a, [10, 90])
np.nanmedian(a)
np.nanquantile(a, 0.3, method="hazen")
np.average(a, axis=1, weights=[1.0, 2.0, 3.0, 4.0], returned=True)
np.cov(a)
np.corrcoef(a)
np.histogram(a, 3, density=True)
np.histogram([0.0, 1.0, 2.0], 2, weights=a[:, 0])
np.histogram_bin_edges(a, 3)
np.bincount([0, 1, 1], a[:, 0])
np.sort(a)
np.partition(a, 1)[:, 1]
np.sort_complex(a)
np.unique(a)
np.union1d(a, a[0])
np.isin(a, a[0])
np.trim_zeros(a[0])
np.nanargmax(a)
np.pad(a, 1, "mean")
np.pad(a, 1, "linear_ramp")
np.pad(a, 2, "reflect", reflect_type="odd")
np.pad(a, 1, "maximum")
np.tril(a)
np.triu(a, 1)
np.insert(a, 1, 9.0, axis=1)
np.piecewise(a, [a > 0.4], [np.square, 2.0])
np.apply_along_axis(np.sum, 1, a)
np.take(a, [1, 2], axis=0)
np.max(a, axis=1, initial=0.5)
np.max(a, axis=1, initial=0.5, where=M)
np.sum(a, axis=1, initial=0.5)
np.prod(a, axis=1, initial=2.0)
np.add.reduceat(a, [0, 2], 1)
np.subtract.reduce(a, 1)
np.hypot.accumulate(a, 1)
np.multiply.outer(a, a[0])
np.logaddexp.reduce(a, 1)
np.maximum.reduce(a, initial=1.0)
"""


TYPES = ["float16", "float32", "longdouble", "complex64", "int64", "bool"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("call", TYPED.split("\n")[1:-1])
def test_types_are_numpys_and_gradients_have_that_of_the_argument(call, dtype):
    f = eval(f"lambda a: {call}", {"np": np, "M": M})
    x = (X * 10).astype(dtype) if dtype in ("int64", "bool") else X.astype(dtype)
    want = outcome(f, x.copy())
    if x.dtype.kind in "fc":
        got = outcome(traced(f), x)
    else:  # integers and booleans are not differentiated, but batched
        got = outcome(lambda x: [y[0] for y in leaves(ft.vmap(f)(x[None]))], x)
    if isinstance(want, Exception):
        assert isinstance(got, type(want)), (got, want)
        return
    if isinstance(got, Exception):
        assert "the shape of the result" in str(got), got
        return
    assert [(y.shape, y.dtype) for y in got] == [(y.shape, y.dtype) for y in want]
    for a, b in zip(got, want, strict=True):
        # a few roundings; NumPy's cov of longdoubles multiplies by a quotient in float64
        rtol = max(10 * np.finfo(b.dtype).eps, 1e-16) if b.dtype.kind in "fc" else 0
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)
    if x.dtype.kind in "fc":
        with warnings.catch_warnings():  # NumPy's histogram of complex numbers warns as well
            warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
            y, pull = ft.vjp(floats_of(f), x)
        assert pull(np.ones_like(y))[0].dtype == x.dtype
