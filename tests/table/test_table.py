"""Is the plumbing right? Questions asked of every row, at 1e-13."""

import itertools

import numpy as np
import pytest

import functrans as ft
from functrans._core.array import Aval, aval_of, inexact_dtype
from functrans._ops.declare import TABLE, Bilinear, Elementwise, Linear
from functrans._transforms.forward.jet import jet
from tests.covering import THOROUGH
from tests.table.samples import DOMAINS, OPERANDS, by_row, cases, frozen, has_samples, samples

ALL = cases()
SMOOTH = cases(lambda row: row.differentiable)
# Rows whose own arithmetic loses digits, and why.
TOLERANCE = {
    **dict.fromkeys(
        ["solve", "inv", "triangular_solve", "det", "cofactor", "cofactor_slope", "slogdet"], 1e-11
    ),  # LAPACK, in another order of operations
    **dict.fromkeys(["cholesky", "eigh", "svd", "qr", "pinv", "eig", "roots"], 1e-11),
    "sinc_nth": 1e-12,  # a recurrence downward in z, upward in n
    "astype": 1e-6,  # one sample casts to float32
}


def tolerance(name):
    return TOLERANCE.get(name, 1e-13)


def close(a, b, rtol=1e-13):
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape, (a.shape, b.shape)
    scale = max(np.max(np.abs(b), initial=0), 1e-300) if b.dtype.kind in "fc" else 1
    np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * scale * 10)


def leaves(y):
    return list(y) if isinstance(y, tuple) else [y]


def inner(a, b):
    """The real inner product, summed over leaves."""
    return sum(
        np.sum(np.real(np.conj(np.asarray(x)) * np.asarray(y))) for x, y in zip(a, b, strict=True)
    )


def random_like(rng, x, size=None):
    x = aval_of(x)
    t = rng.normal(size=x.shape)
    if x.dtype.kind == "c":
        t = t + 1j * rng.normal(size=x.shape)
    return frozen(t).astype(x.dtype)


class Smooth:
    """A row at operands, a function of those in floating point, with directions to move them.

    It names no table: each transform looks through all that its function names for writes.
    """

    def __init__(self, row, operands, active, params, prepare, seed):
        self.row, self.operands, self.active = row, operands, active
        self.params, self.prepare = params, prepare
        self.xs = tuple(operands[i] for i in active)
        rng = np.random.default_rng(seed + 1)
        self.ts = tuple(random_like(rng, x) for x in self.xs)
        self.others = tuple(random_like(rng, x) for x in self.xs)
        self.cts = tuple(random_like(rng, y) for y in self(*self.xs))

    def __call__(self, *xs):
        full = list(self.operands)
        for i, x in zip(self.active, xs, strict=True):
            full[i] = x
        if self.prepare is not None:
            full[0] = self.prepare(full[0])
        ys = leaves(self.row(*full, **self.params))
        return tuple(y for y in ys if inexact_dtype(aval_of(y).dtype))

    def pulled(self, *xs):
        return ft.vjp(self, *xs)[1](self.cts)

    def pushed(self, *xs):
        return ft.jvp(self, xs, self.ts)[1]


def smooth(name, number, dtype=np.float64, seed=0):
    """A row at one of its samples."""
    row, sample = TABLE[name], samples(name)[number]
    operands = sample.operands(seed, dtype)
    return Smooth(row, operands, moving(row, operands), sample.params, sample.prepare, seed)


def moving(row, operands):
    """The numbers of the operands that have derivatives."""
    active = [i for i, x in enumerate(operands) if inexact_dtype(x.dtype)]
    if isinstance(row, Linear) and row.operands is not None:
        active = [i for i in active if i < row.operands]
    return active


def test_rows_have_samples():
    missing = [n for n in TABLE if not has_samples(n)]
    assert not missing, f"list operands for {missing} in tests/table/samples.py"


@by_row(ALL)
def test_abstract_rule_is_the_real_output(case):
    name, number = case
    sample = samples(name)[number]
    xs = sample.operands()
    for dtype in (np.float64, np.float32):
        xs = sample.operands(dtype=dtype)
        ys = leaves(TABLE[name](*xs, **sample.params))
        avals = TABLE[name].abstract(*[aval_of(x) for x in xs], **sample.params)
        avals = [avals] if isinstance(avals, Aval) else list(avals)
        assert [aval_of(y) for y in ys] == avals


@by_row(SMOOTH)
def test_vjp_is_the_transpose_of_jvp(case):
    f = smooth(*case)
    pushed, pulled = f.pushed(*f.xs), f.pulled(*f.xs)
    rel = tolerance(case[0])
    size = sum(float(np.sum(np.abs(np.asarray(c) * t))) for c, t in zip(pulled, f.ts, strict=True))
    assert inner(f.cts, pushed) == pytest.approx(
        inner(pulled, f.ts), rel=rel, abs=rel * size + 1e-300
    )


@by_row(SMOOTH)
def test_vjp_of_each_operand_alone_is_that_of_all(case):
    f = smooth(*case)
    together = f.pulled(*f.xs)
    for i in range(len(f.xs)):

        def alone(x, i=i):
            return f(*f.xs[:i], x, *f.xs[i + 1 :])

        close(ft.vjp(alone, f.xs[i])[1](f.cts)[0], together[i], tolerance(case[0]))
        t = f.ts[i]
        zeros = tuple(t if j == i else np.zeros_like(x) for j, x in enumerate(f.xs))
        for a, b in zip(ft.jvp(alone, (f.xs[i],), (t,))[1], ft.jvp(f, f.xs, zeros)[1], strict=True):
            close(a, b, tolerance(case[0]))


@by_row(SMOOTH)
def test_linearize_is_jvp(case):
    f = smooth(*case)
    for a, b in zip(ft.linearize(f, *f.xs)[1](*f.ts), f.pushed(*f.xs), strict=True):
        close(a, b, tolerance(case[0]))


@by_row(SMOOTH)
def test_tangents_are_linear(case):
    f = smooth(*case)
    moved = ft.linearize(f, *f.xs)[1]
    both = tuple(2 * t + u for t, u in zip(f.ts, f.others, strict=True))
    for a, b, c in zip(moved(*f.ts), moved(*f.others), moved(*both), strict=True):
        close(2 * np.asarray(a) + np.asarray(b), c, max(1e-12, tolerance(case[0])))


@by_row([(*case, dtype) for case in SMOOTH for dtype in ("float32", "float64")])
def test_derivatives_keep_the_dtype(case):
    f, dtype = smooth(*case), case[2]
    ys = f(*f.xs)
    if not {"astype"} & {case[0]}:
        wide = [y for y in ys if y.dtype not in (dtype, np.result_type(dtype, np.complex64))]
        # a ufunc of SciPy's takes an array of integers beside float32 as NumPy does, to float64
        allowed = any(x.dtype.kind in "ci" for x in f.operands) or case[0] == "float_power"
        assert not wide or allowed, wide
    assert [aval_of(t) for t in f.pushed(*f.xs)] == [aval_of(y) for y in ys]
    assert [aval_of(t) for t in f.pulled(*f.xs)] == [aval_of(x) for x in f.xs]


@by_row(SMOOTH)
def test_strides_do_not_matter(case):
    f = smooth(*case)
    strided = tuple(_strided(x) for x in f.xs)
    for a, b in zip(f.pushed(*strided), f.pushed(*f.xs), strict=True):
        close(a, b, tolerance(case[0]))
    g = smooth(*case)
    g.cts = tuple(_strided(c) for c in f.cts)
    for a, b in zip(g.pulled(*strided), f.pulled(*f.xs), strict=True):
        close(a, b, tolerance(case[0]))


def _strided(x):
    """``x`` in every second place of a reversed, transposed array."""
    wide = np.zeros([2 * n for n in x.shape[::-1]], x.dtype)
    view = wide[(..., *[slice(None, None, -2)] * x.ndim)].T
    view[...] = x
    view.setflags(write=False)
    return view


@by_row(SMOOTH)
def test_second_derivatives_agree_however_composed(case):
    f = smooth(*case)
    rtol = max(1e-11, 10 * tolerance(case[0]))
    over = ft.jvp(f.pulled, f.xs, f.ts)[1]  # forward over reverse
    under = ft.vjp(f.pulled, *f.xs)[1](f.ts)  # reverse over reverse: the transpose, and symmetric
    twice = ft.jvp(lambda *xs: ft.jvp(f, xs, f.ts)[1], f.xs, f.ts)[1]
    back = ft.vjp(f.pushed, *f.xs)[1](f.cts)  # reverse over forward
    for a, b, c in zip(over, under, back, strict=True):
        close(a, b, rtol)
        close(c, b, rtol)
    scale = sum(np.abs(np.asarray(a) * t).sum() for a, t in zip(over, f.ts, strict=True))
    assert inner(f.cts, twice) == pytest.approx(inner(over, f.ts), rel=rtol, abs=rtol * (1 + scale))


@by_row(SMOOTH)
def test_pullback_is_linear_and_differentiable_in_its_cotangent(case):
    f = smooth(*case)
    _, pullback = ft.vjp(f, *f.xs)
    moved = ft.jvp(lambda *cts: pullback(cts), f.cts, f.cts)[1]
    for a, b in zip(moved, pullback(f.cts), strict=True):
        close(a, b, tolerance(case[0]))
    back = ft.vjp(lambda *cts: ft.vjp(f, *f.xs)[1](cts), *f.cts)[1](f.ts)
    for a, b in zip(back, f.pushed(*f.xs), strict=True):
        close(a, b, max(1e-12, tolerance(case[0])))


@by_row(SMOOTH)
def test_taylor_mode_is_nested_jvp(case):
    f = smooth(*case)
    zeros = tuple(np.zeros_like(t) for t in f.ts)

    def once(*xs):
        return ft.jvp(f, xs, f.ts)[1]

    def twice(*xs):
        return ft.jvp(once, xs, f.ts)[1]

    nested = [once(*f.xs), twice(*f.xs), ft.jvp(twice, f.xs, f.ts)[1]]
    series = jet(f, f.xs, tuple([t, z, z] for t, z in zip(f.ts, zeros, strict=True)))[1]
    # where a derivative vanishes, what remains is the rounding of those below it
    size = max(float(np.max(np.abs(y), initial=1)) for y in nested[0])
    for k in range(3):
        for a, b in zip(series[k], nested[k], strict=True):
            rtol = max(1e-11, tolerance(case[0]))
            np.testing.assert_allclose(a, b, rtol=rtol * 10**k, atol=rtol * size, strict=True)


@by_row([case for case in SMOOTH if case[1] == 0])
def test_the_forward_laplacian_is_the_sum_of_nested_jvp(case):
    f = smooth(*case)
    rtol = max(1e-11, 10 * tolerance(case[0]))

    def curve(z):  # which bends, so that operands have second derivatives themselves
        moved = zip(f.xs, f.ts, f.others, strict=True)
        return f(*[x + z[0] * t + (z[1] + z[0] * z[0]) * o for x, t, o in moved])

    def twice(e):
        return ft.jvp(lambda z: ft.jvp(curve, z, e)[1], np.zeros(2), e)[1]

    parts = zip(ft.laplacian(curve)(np.zeros(2)), *map(twice, np.eye(2)), strict=True)
    for y, a, b in parts:
        size = float(np.max(np.abs(a) + np.abs(b), initial=1))
        np.testing.assert_allclose(y, a + b, rtol=rtol, atol=rtol * size, strict=True)


# ---- batching


BATCH = 3


def _stacked(sample, subset):
    drawn = [sample.operands(seed) for seed in range(BATCH)]
    return [
        frozen(np.stack([d[i] for d in drawn])) if i in subset else x
        for i, x in enumerate(drawn[0])
    ]


def _subsets(n):
    every = [s for k in range(1, n + 1) for s in itertools.combinations(range(n), k)]
    return every if n <= 3 else [*every[:n], tuple(range(n))]


@by_row(ALL)
def test_vmap_is_a_loop(case):
    name, number = case
    sample, row = samples(name)[number], TABLE[name]
    for subset in _subsets(len(sample.operands())):
        xs = _stacked(sample, subset)
        axes = tuple(0 if i in subset else None for i in range(len(xs)))
        found = leaves(ft.vmap(lambda *xs: row(*xs, **sample.params), axes)(*xs))
        single = [
            leaves(row(*[x[k] if i in subset else x for i, x in enumerate(xs)], **sample.params))
            for k in range(BATCH)
        ]
        for a, column in zip(found, zip(*single, strict=True), strict=True):
            assert a.dtype == column[0].dtype, (subset, a.dtype)
            close(a, np.stack(column), tolerance(name))


@by_row(SMOOTH)
def test_vmap_of_derivatives_is_a_loop(case):
    f = smooth(*case)
    many = [smooth(*case, seed=k) for k in range(BATCH)]
    batches = [np.stack(c) for c in zip(*[g.xs for g in many], strict=True)]
    for derive in (f.pushed, f.pulled):
        single = [leaves(derive(*[b[k] for b in batches])) for k in range(BATCH)]
        for a, column in zip(
            leaves(ft.vmap(derive)(*batches)), zip(*single, strict=True), strict=True
        ):
            close(a, np.stack(column), max(tolerance(case[0]), 1e-12))


@by_row(SMOOTH)
def test_derivative_of_vmap_is_that_of_a_loop(case):
    f = smooth(*case)
    many = [smooth(*case, seed=k) for k in range(BATCH)]
    batches = [np.stack(c) for c in zip(*[g.xs for g in many], strict=True)]
    cts = tuple(np.stack([c] * BATCH) for c in f.cts)
    found = ft.vjp(ft.vmap(f), *batches)[1](cts)
    single = [f.pulled(*[b[k] for b in batches]) for k in range(BATCH)]
    for a, column in zip(found, zip(*single, strict=True), strict=True):
        close(a, np.stack([np.asarray(c) for c in column]), max(tolerance(case[0]), 1e-12))


# ---- linear rows against the matrix that the op itself is


def _matrix(f, x):
    """The columns f(e_k) for the basis vectors of x's space."""
    units = np.eye(x.size, dtype=x.dtype).reshape(x.size, *x.shape)
    return (
        np.stack([np.asarray(f(e)).ravel() for e in units], -1)
        if x.size
        else np.zeros((np.asarray(f(x)).size, 0))
    )


@by_row(cases(lambda row: isinstance(row, Linear | Bilinear)))
def test_linear_row_is_its_matrix(case):
    f = smooth(*case)
    for i, x in enumerate(f.xs):
        fixed = f.xs if isinstance(f.row, Bilinear) else tuple(np.zeros_like(v) for v in f.xs)

        def alone(v, i=i, fixed=fixed):
            return f(*fixed[:i], v, *fixed[i + 1 :])[0]

        # of the real and of the imaginary part, since a real output sees them apart
        a, t, ct = _matrix(alone, x), f.ts[i].ravel(), f.cts[0].ravel()
        b = _matrix(lambda v, alone=alone: alone(1j * v), x) if x.dtype.kind == "c" else 0 * a
        moved = ft.jvp(alone, (x,), (f.ts[i],))[1]
        close(np.ravel(moved), a @ t.real + b @ t.imag, tolerance(case[0]))
        pulled = ft.vjp(alone, x)[1](f.cts[0])[0]
        expected = (a.conj().T @ ct).real + 1j * (b.conj().T @ ct).real
        close(
            np.ravel(pulled), expected.real if x.dtype.kind == "f" else expected, tolerance(case[0])
        )


# ---- drawn shapes


def _elementwise_rows():
    return [
        name for name, row in TABLE.items() if isinstance(row, Elementwise) and row.differentiable
    ]


def _drawn(kinds, rng, dtype):
    """Operands of shapes that broadcast together, some of them strided."""
    whole = rng.integers(0, 4, rng.integers(0, 4))
    for kind in kinds:
        shape = np.where(rng.random(whole.size) < 0.3, 1, whole)[rng.integers(0, whole.size + 1):]
        x = frozen(kind(rng, tuple(shape.tolist())), dtype)
        yield _strided(x) if rng.random() < 0.5 else x


# drawn without Hypothesis, whose own work was three times that of the transforms
@by_row([(name, seed) for name in _elementwise_rows() for seed in range(300 if THOROUGH else 15)])
def test_any_broadcast_any_dtype_any_stride(case):
    name, seed = case
    row, rng = TABLE[name], np.random.default_rng([seed, *name.encode()])
    kinds = OPERANDS.get(name, (DOMAINS[row.domain],) * len(row.actions))
    dtype = [np.float32, np.float64][seed % 2]
    xs = list(_drawn(kinds, rng, dtype))
    active = [i for i, x in enumerate(xs) if inexact_dtype(x.dtype)]

    def f(*moving):
        full = list(xs)
        for i, x in zip(active, moving, strict=True):
            full[i] = x
        return row(*full)

    primals = tuple(xs[i] for i in active)
    ts = tuple(random_like(rng, x) for x in primals)
    y, dy = ft.jvp(f, primals, ts)
    assert (y.shape, y.dtype) == (dy.shape, dy.dtype)
    ct = random_like(rng, y)
    found = ft.vjp(f, *primals)[1](ct)
    assert [aval_of(c) for c in found] == [aval_of(x) for x in primals]
    size = sum(
        np.abs(np.asarray(c, np.float64) * t).sum()
        for c, t in zip(found, ts, strict=True)
        if c.dtype.kind == "f"
    )
    size += float(np.abs(ct * dy).sum())
    rel = 1e-5 if dtype is np.float32 else 1e-13
    assert inner([ct], [dy]) == pytest.approx(inner(found, ts), rel=rel, abs=rel * size + 1e-300)


@pytest.mark.parametrize("size", [1.0, 1e-3, 30.0])
@pytest.mark.parametrize("name", _elementwise_rows())
def test_python_s_numbers_have_the_slopes_of_arrays(name, size):
    # rules compare and combine what they are given: ``~(x > 0)`` of a number is true for any
    operands = samples(name)[0].operands(0, np.float64)
    xs = [x.flat[0].item() * (size if x.dtype.kind in "fc" else 1) for x in operands]
    active = [i for i, x in enumerate(xs) if isinstance(x, float | complex)]

    def slopes(wrap):
        full = list(map(wrap, xs))

        def f(*moving):
            for i, x in zip(active, moving, strict=True):
                full[i] = x
            return TABLE[name](*full)

        return [np.reshape(g, ()) for g in _gradient(f, [full[i] for i in active])]

    with np.errstate(all="ignore"):
        numbers, arrays = slopes(lambda x: x), slopes(lambda x: np.array([x]))
    np.testing.assert_allclose(numbers, arrays, rtol=1e-13)


def _gradient(f, xs):
    y, pull = ft.vjp(f, *xs)
    return pull(np.ones(y.shape, y.dtype))
