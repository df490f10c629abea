"""Native code against the evaluated Program."""


import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import functrans as ft
from functrans._compile.emit import loop_nest
from functrans._compile.ir.program import evaluate
from functrans._compile.lowering.numbers import Rounding
from functrans._compile.lowering.scalars import lowering_of
from functrans._compile.run.native import NativeProgram
from functrans._compile.schedule.kernels import HostStep, Kernel, Tiles
from functrans._core.bind import bind
from functrans._kernels import sizes
from functrans._ops.declare import TABLE, Elementwise
from functrans._ops.indexing import getitem, put_add
from functrans._transforms.reach import make_program
from tests.covering import covering
from tests.table.samples import SCIPYS, case_id, cases, samples
from tests.threads import at_once

# SciPy's are in tests/table/test_special_values.py, at points where SciPy's own do not hang.
ENTRYWISE = sorted(
    name for name, row in TABLE.items() if isinstance(row, Elementwise) and name not in SCIPYS
    and any(lowering_of(row, np.dtype(t)) is not None for t in (np.float64, np.int64, np.bool))
)
ROWS = cases(lambda row: row.facts.reduces or row.name in {
    *ENTRYWISE, "astype", "astype_discrete", "reshape", "transpose", "broadcast_to", "getitem",
    "put_add", "concatenate", "stack", "matmul", "softmax", "cumsum", "eigh", "scatter_add",
})
EPS = {np.dtype(np.float64): 2e-15, np.dtype(np.float32): 1e-6,
       np.dtype(np.complex64): 1e-6, np.dtype(np.complex128): 2e-15}


def native(f, *args, precise=False):
    """The compiled program of ``f`` at ``args``, and its outputs there."""
    program = make_program(f)(*args)
    compiled = NativeProgram(program, Rounding(precise))
    return compiled, compiled(args)


def agree(ours, theirs, scaled=True):
    """The same shapes, dtypes and numbers, within the few ulp that vector mathematics may lose.

    ``scaled``: of the largest entry, where sums cancel; else of each.
    """
    assert len(ours) == len(theirs)
    for y, e in zip(ours, theirs, strict=True):
        e = np.asarray(e)
        assert type(y) is np.ndarray and y.flags.writeable and y.flags.c_contiguous
        assert (y.shape, y.dtype) == (e.shape, e.dtype)
        eps = EPS.get(e.dtype, 1e-15)
        finite = np.abs(e[np.isfinite(e)]) if e.dtype.kind in "fc" else np.zeros(0)
        atol = 8 * eps * finite.max(initial=0) if scaled else 0
        np.testing.assert_allclose(y, e, rtol=8 * eps, atol=atol)


def same(ours, theirs):
    """Arrays of functrans with the entries of NumPy's."""
    ours = ours if type(ours) is tuple else (ours,)
    for y, e in zip(ours, theirs, strict=True):
        assert type(y) is ft.Array
        assert not y.flags.writeable and y.flags.owndata and y.flags.c_contiguous
        assert (y.shape, y.dtype) == (e.shape, e.dtype)
        np.testing.assert_array_equal(y, e)


def check(f, *args, scaled=True):
    program = make_program(f)(*args)
    with np.errstate(all="ignore"):
        expected = evaluate(program, args)
    compiled = NativeProgram(program)
    agree(compiled(args), expected, scaled)
    return compiled


# ---- rows


@pytest.mark.usefixtures("seldom_optimised")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("case", ROWS, ids=case_id)
def test_a_row_computes_what_its_numpy_function_does(case, dtype):
    name, i = case
    sample = samples(name)[i]
    check(lambda *xs: bind(TABLE[name], *xs, **sample.params), *sample.operands(dtype=dtype))


EDGES = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e300, -1e-300, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize(
    "name", [n for n in ENTRYWISE if n not in ("invert", "where") and not n.startswith("bitwise")]
)
def test_zeros_infinities_and_nan_come_out_as_from_numpy(name):
    arity = len(TABLE[name].actions)
    grid = np.meshgrid(*[EDGES] * arity)
    check(TABLE[name], *[g.ravel() for g in grid], scaled=False)


@pytest.mark.usefixtures("seldom_optimised")
@pytest.mark.parametrize("name", [
    "add", "subtract", "multiply", "negative", "square", "absolute", "sign", "maximum", "minimum",
    "clip", "floor_divide", "remainder", "equal", "less", "bitwise_and", "bitwise_xor", "invert",
    "divide", "sqrt", "exp",
])
@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_integers_wrap_and_divide_as_numpy_integers(name, dtype):
    x = np.array([0, 1, -1, 7, -7, 3, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    arity = len(TABLE[name].actions)
    grid = np.meshgrid(*[x] * arity)
    check(TABLE[name], *[g.ravel() for g in grid], scaled=False)


# ---- functions and their transforms


def rosenbrock(x):
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def attention(x):
    scores = x @ x.T / x.shape[1] ** 0.5
    weights = np.exp(scores - np.max(scores, axis=1, keepdims=True))
    return np.sum((weights / np.sum(weights, axis=1, keepdims=True)) @ x)


FUNCTIONS = {
    "waves": (lambda x: np.sum(np.exp(-x * x) * np.sin(3 * x) + np.log1p(x * x)), (7,)),
    "rosenbrock": (rosenbrock, (6,)),
    "attention": (attention, (4, 3)),
    "variance": (lambda x: np.var(x, axis=0).sum() + np.std(x), (4, 3)),
    "stencil": (lambda x: np.sum((x[1:-1, 1:-1] * 4 - x[2:, 1:-1] - x[:-2, 1:-1]) ** 2), (5, 6)),
    "strided": (lambda x: np.sum(x[::2] * x[1::2] ** 2) + x[::-1] @ x, (8,)),
    "outer": (lambda x: np.sum(np.tanh(x[:, None] - x[None, :]) ** 2, axis=(0, 1)), (5,)),
    "branches": (lambda x: np.sum(np.where(x > 0, np.sqrt(np.abs(x)), x**3)), (6,)),
    "joined": (lambda x: np.sum(np.concatenate([x, x[:2] ** 2]) * np.stack([x, x]).sum()), (4,)),
    "extremes": (lambda x: np.max(x, axis=1) @ np.min(x * x, axis=1) + np.prod(x), (3, 3)),
    "turned": (lambda x: np.sum((x.T.reshape(-1) * x.reshape(-1)) ** 2), (3, 4)),
    "middle": (lambda x: np.sum(np.sum(x, axis=1) ** 2 * x[:, 0]), (2, 3, 4)),
    "powers": (lambda x: np.sum(x**2 + x**3 + np.abs(x) ** 1.5 + 2.0**x), (5,)),
    "picked": (lambda x: np.sum(x[np.array([0, 2, 2])] ** 2) + np.cumsum(x)[-1], (4,)),
}
TRANSFORMS = {
    "itself": lambda f: f,
    "grad": ft.grad,
    "hessian": ft.hessian,
    "jvp": lambda f: lambda x: ft.jvp(f, (x,), (np.cos(x),)),
    "vmap of grad": lambda f: lambda x: ft.vmap(ft.grad(f))(np.stack([x, 2 * x, x + 1])),
}


@pytest.mark.usefixtures("seldom_optimised")
@pytest.mark.parametrize(("name", "transform", "dtype"),
                         covering(FUNCTIONS, TRANSFORMS, [np.float64, np.float32]))
def test_a_transformed_function_computes_what_its_program_does(name, transform, dtype):
    f, shape = FUNCTIONS[name]
    x = np.random.default_rng(1).normal(size=shape).astype(dtype)
    program = check(TRANSFORMS[transform](f), x)
    if program.entry is not None:
        same(program.entry(x), program([x]))
    else:  # only where NumPy runs a step, or nothing is to be run
        assert "host" in repr(program.schedule) or not repr(program.schedule)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_arrays_without_entries(shape):
    x = np.zeros(shape)
    check(lambda x: (np.exp(x) + 1, x.sum(), x.sum(axis=0), np.prod(x, axis=-1)), x)
    check(lambda x: (np.concatenate([x, x]), x.T, np.all(x), x[:, None] * 2), x)


def test_scalars_stay_weak():
    x = np.array([1, -2], np.float32)
    check(lambda x, s: (x * s, s + 1, x > s, np.where(x > 0, x, s)), x, 3.0)
    check(lambda x, s: (x * s, x / s, s * 2), np.arange(3, dtype=np.int32), 3)


@pytest.mark.parametrize("number", [1, 127, -128, 128, 1000, -1000, 2**40, 2**70])
def test_any_python_integer_is_compared_with_small_ones(number):
    x = np.array([0, 1, -1, 127, -128], np.int8)
    for f in (np.less, np.less_equal, np.greater, np.equal, np.not_equal):
        np.testing.assert_array_equal(ft.jit(lambda x, f=f: f(x, number))(x), f(x, number))
        if number < 2**63:
            np.testing.assert_array_equal(ft.jit(f)(x, number), f(x, number))


def test_reductions_over_any_axes():
    x = np.random.default_rng(0).normal(size=(3, 1, 4, 5))
    for axis in [(0,), (1,), (2,), (3,), (0, 2), (1, 3), (0, 3), (2, 3), (0, 1, 2, 3)]:
        check(lambda x, axis=axis: (x.sum(axis), x.max(axis), np.min(x * 2, axis), x.prod(axis),
                                    np.any(x > 1, axis), np.count_nonzero(x > 0, axis)), x)


def test_long_sums_keep_their_digits():
    x = np.random.default_rng(0).uniform(size=100_003)
    for dtype in (np.float32, np.float64):
        _, (y,) = native(np.sum, x.astype(dtype))
        assert abs(y / np.sum(x) - 1) < 3 * np.finfo(dtype).eps


# ---- movements of entries, drawn at random


def entry(n):
    """An index entry for an axis of length n."""
    ends = st.none() | st.integers(-n - 1, n + 1)
    slices = st.tuples(ends, ends, st.sampled_from([None, 1, -1, 2, -2, 3]))
    ints = st.integers(-n, n - 1) if n else st.nothing()
    return slices | slices | slices | ints


@st.composite
def movement(draw, shape):
    """A function that moves the entries of an array of ``shape``, or computes from each."""
    kind = draw(st.sampled_from(["index", "put", "turn", "shape", "broadcast", "sum", "map"]))
    if kind == "index":
        count = draw(st.integers(0, len(shape)))
        last = draw(st.booleans())
        taken = shape[len(shape) - count:] if last else shape[:count]
        key = tuple(draw(entry(n)) for n in taken)
        more = draw(st.sampled_from([(), (None,), (Ellipsis,)]))
        pattern = (Ellipsis, *key) if last else (*key, *more)
        return lambda x: bind(getitem, x, pattern=pattern or (Ellipsis,))
    if kind == "put":
        into = tuple(n + draw(st.integers(0, 2)) for n in shape)
        starts = [draw(st.integers(0, m - n)) for n, m in zip(shape, into, strict=True)]
        flip = [draw(st.booleans()) and n > 1 for n in shape]
        pattern = tuple(
            (a + n - 1, a - 1 if a else None, -1) if back else (a, a + n, None)
            for a, n, back in zip(starts, shape, flip, strict=True)
        )
        if draw(st.booleans()):
            pattern, into = (*pattern, 1), (*into, 3)
        return lambda x: bind(put_add, x, pattern=pattern, shape=into)
    if kind == "turn":
        axes = tuple(draw(st.permutations(range(len(shape)))))
        return lambda x: np.transpose(x, axes)
    if kind == "shape":
        shapes = [(-1,), (*shape, 1), (1, *shape), shape[::-1]]
        new = draw(st.sampled_from(shapes if 0 not in shape else shapes[1:]))
        return lambda x: np.reshape(x, new)
    if kind == "broadcast":
        return lambda x: np.broadcast_to(x, (2, *shape))
    if kind == "sum":
        axes = tuple(a for a in range(len(shape)) if draw(st.booleans()))
        return lambda x: np.sum(x, axis=axes)
    return lambda x: x * x + x


@given(st.data())
@settings(max_examples=60 if settings().max_examples < 100 else 1000)
def test_moved_entries_are_found(data):
    shape = tuple(data.draw(st.lists(st.integers(0, 4), max_size=3)))
    x = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
    moves, y = [], x
    for _ in range(data.draw(st.integers(1, 5))):
        moves.append(data.draw(movement(np.shape(y))))
        y = moves[-1](y)

    def f(x):
        for move in moves:
            x = move(x)
        return x, x + 1, np.sum(x)

    check(f, x)


# ---- what it is given and what it gives


def misaligned(x):
    raw = np.empty(x.nbytes + 1, np.uint8)
    y = raw[1:].view(x.dtype).reshape(x.shape)
    y[...] = x
    assert not y.flags.aligned
    return y


def frozen(x):
    y = x.copy()
    y.setflags(write=False)
    return y


@pytest.mark.parametrize("layout", [
    np.asfortranarray, lambda x: np.repeat(x, 2, 1)[:, ::2], lambda x: x[::-1].copy()[::-1],
    misaligned, frozen, ft.array,
], ids=["fortran", "strided", "reversed", "misaligned", "read-only", "Array"])
def test_any_layout_is_read(layout):
    x = np.random.default_rng(0).normal(size=(4, 5))
    compiled, _ = native(lambda x: (x * 2, x.T @ x, x.sum(axis=0)), x)
    agree(compiled([layout(x)]), evaluate(compiled.program, [x]))


def test_another_shape_dtype_or_count_is_refused():
    compiled, _ = native(np.exp, np.ones(3))
    with pytest.raises(ValueError, match=r"shape \(4,\), but the program was made for \(3,\)"):
        compiled([np.ones(4)])
    with pytest.raises(TypeError, match="float32, but the program was made for float64"):
        compiled([np.ones(3, np.float32)])
    with pytest.raises(TypeError, match="takes 1 values, not 2"):
        compiled([np.ones(3), np.ones(3)])


def test_outputs_are_fresh_memory():
    c = np.arange(3.0)
    compiled, _ = native(lambda x: (x, x, c, x * 1, x.reshape(3, 1), np.linalg.inv(x[:1, None])),
                         np.ones(3))
    x = np.ones(3)
    first, second = compiled([x]), compiled([x])
    for i, y in enumerate(first):
        assert not any(np.shares_memory(y, z) for z in [x, *first[:i], *second])
        y[...] = 7
    agree(compiled([x]), evaluate(compiled.program, [x]))


def test_the_same_array_twice_is_read_twice():
    x = np.arange(4.0)
    compiled, _ = native(lambda x, y: x * y + x, x, x)
    agree(compiled([x, x]), [x * x + x])


def test_precise_code_agrees_to_the_last_digit_on_arithmetic():
    x = np.random.default_rng(0).normal(size=1000)
    _, (y,) = native(lambda x: (x * x + x) / (x - 3) * 2 + x * 7, x, precise=True)
    assert np.array_equal(y, (x * x + x) / (x - 3) * 2 + x * 7)


def test_threads_share_a_program():
    compiled, _ = native(ft.grad(FUNCTIONS["waves"][0]), np.ones(20_000))
    xs = [np.full(20_000, float(i)) for i in range(8)]
    expected = [compiled([x])[0] for x in xs]
    found = at_once(lambda x: [compiled([x])[0] for _ in range(20)][-1], xs)
    assert all(map(np.array_equal, found, expected))


# ---- the schedule


def kinds(compiled):
    return [type(s) for s in compiled.schedule.steps]


def test_an_entrywise_function_and_its_sum_are_one_kernel():
    compiled, _ = native(ft.value_and_grad(FUNCTIONS["waves"][0]), np.ones(5))
    assert kinds(compiled) == [Kernel]


def test_what_has_no_lowering_is_a_host_step_between_kernels():
    compiled, _ = native(lambda x: np.linalg.pinv(x + 1) * 2, np.eye(2))
    assert kinds(compiled) == [Kernel, HostStep, Kernel]


def test_neighbouring_axes_are_one_loop():
    compiled, _ = native(lambda x: np.sum(np.exp(x) * 2), np.ones((3, 4, 5)))
    assert repr(compiled.schedule).startswith("0: kernel for i0 < 60\n")


def test_the_schedule_reads_like_loops():
    def f(x):
        y = np.exp(x[1:] - x[:-1].sum()) * 2
        return bind(put_add, y, pattern=((1, None, None),), shape=(4,)) + np.ones(4)

    compiled, _ = native(f, np.arange(4.0))
    assert repr(compiled.schedule) == """\
0: kernel for i0 < 3
  a_0 = load a[i0]
  sum d[0] of a_0
1: kernel for i0 < 3
  a_0 = load a[1 + i0]
  d_1 = load d[0]
  e:float64 = subtract a_0 d_1
  f:float64 = exp e
  g:float64 = multiply f 2
  store g[i0] = g
2: kernel for i0 < 4
  g_0 = load g[-1 + i0] if 1 <= i0 < 4 else 0
  i:float64 = add g_0 1.0
  store i[i0] = i"""


@pytest.mark.parametrize("shape", [(0, 2**40), (2**40, 0, 3), (2**59, 0)], ids=str)
def test_a_kernel_of_no_entries_is_not_written_out_however_long_its_loops(shape):
    (y,) = native(lambda x: np.sin(x) * 2, np.zeros(shape))[1]
    assert y.shape == shape


@pytest.mark.parametrize("dtype", [">f8", "<f8", ">f4", ">c16", ">i4"])
def test_arrays_in_the_other_byte_order_are_taken_as_they_are_meant(dtype):
    x, y = np.array([1.0, 2.0, 3.0]).astype(dtype), np.ones(3)

    def f(x):
        return x * 2 + x[::-1], y.astype(dtype) * x

    compiled = ft.jit(f)
    for _ in range(2):  # staged, and then on the short way
        for found, e in zip(compiled(x), f(x), strict=True):
            assert found.dtype == e.dtype
            np.testing.assert_array_equal(found, e)
    if x.dtype.kind == "f":
        g = ft.grad(ft.jit(lambda x: np.sum(x * x)))(x)
        np.testing.assert_array_equal(g, 2 * x)
        np.testing.assert_array_equal(ft.jit(ft.grad(lambda x: np.sum(x * x)))(x), 2 * x)


def test_a_loop_in_native_code_starts_from_an_array_in_the_other_byte_order():
    x = np.arange(6.0).reshape(2, 3)

    def f(x):
        return ft.scan(lambda c, row: (c + row, c * row), x[0], x)

    for found, e in zip(ft.jit(f)(x.astype(">f8")), f(x), strict=True):
        np.testing.assert_array_equal(found, e)


@pytest.mark.parametrize("n", [2**63, -(2**63) - 1, 10**30])
def test_an_int_that_int64_cannot_hold_is_refused(n):
    f = ft.jit(lambda n, x: n * x)
    assert f(-(2**63), 2.0) == -(2.0**64)
    for call in (f, ft.grad(f, 1), ft.jit(lambda n, x: f(n, x) + 1)):
        with pytest.raises(ft.errors.ArgumentError, match=f"the int {n}, which int64 cannot hold"):
            call(n, 2.0)


def test_true_is_greater_than_false():
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])

    def f(a, b):
        return a < b, a <= b, a > b, a >= b, np.maximum(a, b), np.minimum(a, b)

    for found, e in zip(ft.jit(f)(a, b), f(a, b), strict=True):
        np.testing.assert_array_equal(found, e)


def _shifted(x):
    y = x
    for k in range(1, 6):
        y = y.at[k:].add(np.where(x[k:] > 0.5, 0.1 * x[:-k], x[k:] * x[:-k]))
    return np.sum((y if x.ndim == 1 else y.at[:, 3:].add(y[:, :-3])) ** 2)


@pytest.mark.parametrize("shape", [(6,), (12,), (9, 11)], ids=str)
def test_sums_of_many_shifted_slices(shape):
    x, f = np.random.default_rng(0).normal(size=shape), ft.grad(_shifted)
    assert_allclose(ft.jit(f)(x), f(x), rtol=1e-13, atol=1e-13)


def test_a_loop_with_many_windows_has_a_middle_without_bounds():
    x, f = np.linspace(-1.0, 2.0, 40), ft.grad(_shifted)
    assert_allclose(ft.jit(f)(x), f(x), rtol=1e-13, atol=1e-13)
    kernels = [k for k in ft.jit(f).lower(x).schedule.steps if isinstance(k, Kernel)]
    last = max(kernels, key=lambda k: len(k.loads))
    cuts = {end for a in last.loads if a.windows for end in a.windows[0]}
    assert len(cuts) > loop_nest.COPIES
    assert loop_nest._pieces(last, False) == [[(0, 5), (5, 35), (35, 40)]]


@pytest.mark.parametrize(("n", "taps"), [(2, 1), (8, 4), (7, 4), (4, 9), (30, 7), (128, 64),
                                         (130, 65)])
def test_convolutions_with_few_taps_and_many(n, taps):
    rng = np.random.default_rng(n)
    x, k, w = (rng.normal(size=m) for m in (n, taps, n + taps - 1))

    def f(x, k):
        return np.sum(w * np.convolve(x, k) ** 2) + np.sum(np.convolve(x, k, "valid") ** 3)

    grads = ft.grad(f, (0, 1))
    for a, b in zip(ft.jit(grads)(x, k), grads(x, k), strict=True):
        assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("last", [2.0, np.inf, np.nan])
def test_convolutions_whose_iterations_are_shared_out(last, monkeypatch):
    monkeypatch.setattr(sizes, "WORK", 1)
    monkeypatch.setattr(sizes, "CHUNK", 1000)
    rng = np.random.default_rng(3)
    x, taps = rng.normal(size=900), np.append(rng.normal(size=20), last)
    f = ft.jit(lambda x: np.convolve(x, taps))
    assert any(isinstance(step, Tiles) and step.chunks > 5 for step in f.lower(x).schedule.steps)
    # sums of 21 terms in another order
    assert_allclose(f(x), np.convolve(x, taps), rtol=1e-13, atol=1e-13)


def test_convolutions_with_taps_of_their_own_for_each_row_and_with_infinite_ones():
    x = np.linspace(0.5, 2.0, 40).reshape(2, 20)
    k = np.array([[1.0, np.inf, 2.0], [0.5, 0.0, -1.0]])
    for dtype in (np.float32, np.float64):
        f = ft.vmap(lambda x, k: np.convolve(x, k))
        y = ft.jit(f)(x.astype(dtype), k.astype(dtype))
        assert y.dtype == dtype
        assert_allclose(y, f(x.astype(dtype), k.astype(dtype)), rtol=4 * float(np.finfo(dtype).eps))
    taps = np.array([1.0, np.nan, 3.0])  # a constant, and a NaN where it reaches
    assert_allclose(ft.jit(lambda x: np.convolve(x, taps))(x[0]), np.convolve(x[0], taps))


@pytest.mark.parametrize("log", [np.log, np.log2, np.log10])
def test_logarithms_of_what_is_known_to_be_positive_are_those_of_vectors_too(log):
    x = np.random.default_rng(0).uniform(0.1, 10, 10_000)
    np.testing.assert_array_equal(ft.jit(lambda x: log(np.where(x > 0, x, 1.0)))(x), ft.jit(log)(x))
