"""Functions that write into arrays: NumPy's semantics of writing, and the derivatives of that."""

import functools
import operator
import sys
import tracemalloc
import types

import numpy as plain_np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import functrans as ft
import functrans.numpy as np
from functrans._ops.indexing import scatter_vjp
from functrans._transforms.mutation import Callees, may_write
from functrans._transforms.reverse import tracer
from functrans._transforms.reverse.vjp import VJPTrace
from functrans.errors import ConcretizationError, UnsupportedError
from functrans.numpy.layouts import is_ordered
from tests.compiling import without_optimising
from tests.threads import at_once

X = plain_np.array([0.3, -1.2, 0.7, 2.0, -0.4, 1.1])


def transformed(f):
    """The value of ``f`` where it is differentiated, batched and compiled."""
    return {
        "value_and_grad": lambda x: ft.value_and_grad(f)(x)[0],
        "jvp": lambda x: ft.jvp(f, (x,), (x,))[0],
        "vmap": lambda x: ft.vmap(f)(x[None])[0],
        "jit": ft.jit(f),
    }


def derivatives(f, x):
    """Gradient and Hessian by several ways, and the gradient by complex steps of NumPy itself."""
    steps = [f(x + 1e-40j * e).imag / 1e-40 for e in plain_np.eye(x.size)]
    return steps, [
        ft.grad(f)(x), ft.jacfwd(f)(x), ft.jit(ft.grad(f))(x), ft.grad(ft.jit(f))(x),
        ft.vmap(ft.grad(f))(x[None])[0], ft.vjp(f, x)[1](1.0)[0],
    ]


# ---- programs that are drawn


def _views(y, kind, i, n):
    """A view of ``y``, or a copy, as NumPy says."""
    flat = y.ndim == 1
    return {
        "head": lambda: y[:n],
        "tail": lambda: y[i:],
        "stride": lambda: y[i % 2 :: 2],
        "back": lambda: y[::-1],
        "transposed": lambda: y.T,
        "folded": lambda: y.reshape(2, -1) if y.size % 2 == 0 else y,
        "flattened": lambda: y.reshape(-1),
        "raveled": lambda: y.ravel(),
        "longer": lambda: y[:, None] if flat else y[None],
        "cell": lambda: y[i % y.shape[0], ...],
        "row": lambda: y if flat else y[i % y.shape[0]],
        "column": lambda: y if flat else y[:, i % y.shape[1]],
        "squeezed": lambda: np.squeeze(y),
        "flipped": lambda: np.flip(y),
        "copied": lambda: y.copy(),
        "picked": lambda: y[[0, -1]],
        "masked": lambda: y[plain_np.arange(y.shape[0]) % 2 == 0],
    }[kind]()


def _write(y, x, kind, i, a):
    """Write something computed from ``x`` into ``y``."""
    if not y.ndim:
        kind = {"scale": kind, "add": "sub", "out": kind, "copyto": kind}.get(kind, "square")
    i = i % y.shape[0] if y.ndim else 0
    if kind == "entry":
        y[i] = a * x[0]
    elif kind == "slice":
        y[i:] = x[1] + y[i:] * a
    elif kind == "add":
        y[: i + 1] += x[2] * a
    elif kind == "scale":
        y *= a
    elif kind == "square":
        y[...] = y * y * 0.1
    elif kind == "constant":
        y[i] = a
    elif kind == "overlap":
        y[1:] = y[:-1]
    elif kind == "mask":
        y[plain_np.arange(y.shape[0]) > i] = x[3]
    elif kind == "list":
        y[[0, i]] = x[4] * a
    elif kind == "out":
        np.multiply(y, x[5], out=y)
    elif kind == "at":
        np.add.at(y, ([0, i, 0],), x[0])
    elif kind == "copyto":
        np.copyto(y, x[1] * a)
    elif kind == "fill":
        y.fill(a)
    elif kind == "sub":
        y -= x[2]


VIEW_KINDS = [
    "head", "tail", "stride", "back", "transposed", "folded", "flattened", "raveled", "longer",
    "cell", "row", "column", "squeezed", "flipped", "copied", "picked", "masked",
]
WRITE_KINDS = [
    "entry", "slice", "add", "scale", "square", "constant", "overlap", "mask", "list", "out", "at",
    "copyto", "fill", "sub",
]
steps = st.tuples(
    st.integers(0, 5), st.sampled_from(VIEW_KINDS), st.integers(0, 5), st.integers(0, 5),
    st.sampled_from(WRITE_KINDS), st.sampled_from([0.5, -1.5, 2.0]),
)


def program(drawn, start):
    """A function that makes views of arrays, and writes into some of them, as ``drawn`` says."""

    def f(x):
        first = np.zeros((2, 3), x.dtype) if start == "zeros" else x * 2.0
        arrays = [x if start == "argument" else first]
        for source, view, i, n, write, a in drawn:
            y = arrays[source % len(arrays)]
            y = _views(y, view, i, n) if y.ndim else y[...]
            if not y.size or y.ndim > 4:
                continue
            arrays.append(y)
            _write(y, x, write, n, a)
        return sum(np.sum(y * (k + 1.0)) for k, y in enumerate(arrays)) + np.sum(x)

    return f


@given(st.lists(steps, min_size=1, max_size=6), st.sampled_from(["zeros", "argument", "product"]))
def test_programs_that_write_into_views_compute_what_numpy_computes(drawn, start):
    f = program(drawn, start)
    want = f(X.copy())
    kept = X.copy()
    with without_optimising():
        for way, g in transformed(f).items():
            assert g(X) == pytest.approx(want, rel=1e-12, abs=1e-12), way
    assert (kept == X).all()


@given(st.lists(steps, min_size=1, max_size=4), st.sampled_from(["zeros", "argument", "product"]))
def test_programs_that_write_into_views_have_the_derivative_of_what_they_compute(drawn, start):
    with without_optimising():
        want, ways = derivatives(program(drawn, start), X)
    for g in ways:
        plain_np.testing.assert_allclose(g, want, rtol=1e-11, atol=1e-11)


# ---- programs whose text is drawn: what comes of numbers and plain arrays is written into


V = plain_np.array([1.0, -2.0, 3.0])
OPERANDS = ["t", "x", "s", "V", "2.0", "x[0]", "t * V", "V * 2", "V[1:]", "np.zeros(3)"]
RESULTS = [
    "{} + {}", "{} - {}", "{} * {}", "{} / {}", "-({} * {})", "np.multiply({}, {})",
    "np.where(V > 0, {}, {})", "np.sqrt(np.abs({} + {}))", "np.array({} * {})",
]
VIEWS = [
    "{}", "{}[1:]", "{}.T", "{}[None]", "{}[::-1]", "np.ravel({})", "{}[0]", "{}.reshape(-1)",
    "np.split({}, 1)[0]", "np.real({})", "{}.copy()", "same({})", "np.asarray({})",
]
CHANGES = [
    "{} += {}", "{} -= {}", "{} *= {}", "{} /= {}", "{} //= {}", "{} %= {}", "{} @= {}",
    "{}[0] = {}", "{}[...] = {}", "{}[V > 0] = {}", "np.add({0}, {1}, out={0})",
    "np.multiply({0}, {1}, {0})", "add({}, {})", "table = [{}]; table[0] += {}",
]
lines = st.lists(st.tuples(
    st.sampled_from(["result", "view", "change"]), st.integers(0, 12), st.integers(0, 13),
    st.integers(0, 12),
), min_size=4, max_size=9)


def text_of(drawn):
    """A function that returns each of its variables, and writes into some of them: what NumPy
    takes of the lines that are drawn."""
    names, text = ["t", "x", "s"], ["def f(t, x):", "    s = 0.0"]
    for kind, i, j, k in drawn:
        known, variable = names[i % len(names)], f"y{len(names)}"
        operands = [*OPERANDS, *names[3:]]
        first, second = operands[i % len(operands)], operands[k % len(operands)]
        line = {
            "result": f"{variable} = {RESULTS[j % len(RESULTS)].format(first, second)}",
            "view": f"{variable} = {VIEWS[j % len(VIEWS)].format(known)}",
            "change": CHANGES[j % len(CHANGES)].format(known, second),
        }[kind]
        try:
            compiled_text("\n".join([*text, f"    {line}"]), plain_np)(T, X3.copy())
        except (ValueError, TypeError, IndexError, AttributeError, ZeroDivisionError):
            continue
        text.append(f"    {line}")
        names += [] if kind == "change" else [variable]
    return "\n".join([*text, f"    return {', '.join(names)}"])


def compiled_text(text, np):
    def add(a, b):
        a += b

    names = {"np": np, "V": V.copy(), "add": add, "same": lambda a: a}
    exec(text, names)
    return names["f"]


T, X3 = plain_np.float64(0.5), plain_np.array([0.3, -1.2, 0.7])
WAYS = {
    "jvp": lambda f: ft.jvp(f, (T, X3), (T, X3))[0],
    "jvp of the number": lambda f: ft.jvp(lambda t: f(t, X3.copy()), (T,), (T,))[0],
    "vjp": lambda f: ft.vjp(f, T, X3)[0],
    "vmap": lambda f: [y[0] for y in ft.vmap(f)(T[None], X3[None])],
    "jit": lambda f: ft.jit(f)(T, X3),
}


def require_numpys_value_or_an_error(drawn, np, way):
    with plain_np.errstate(all="ignore"):
        text = text_of(drawn)
        want = compiled_text(text, plain_np)(T, X3.copy())
        try:
            got = WAYS[way](compiled_text(text, np))
        except ft.errors.FunctransError:
            return
    for a, b in zip(want, got, strict=True):
        assert plain_np.array_equal(a, b, equal_nan=True), text


@settings(max_examples=10 * settings.default.max_examples)
@given(st.sampled_from([plain_np, np]),
       st.sampled_from(["jvp", "jvp of the number", "vjp", "vmap"]), lines)
def test_a_drawn_text_has_the_value_of_numpy_to_the_last_bit_or_raises(np, way, drawn):
    require_numpys_value_or_an_error(drawn, np, way)


@settings(max_examples=settings.default.max_examples // 3)
@given(drawn=lines)
def test_a_drawn_text_that_is_compiled_has_the_value_of_numpy_or_raises(drawn):
    require_numpys_value_or_an_error(drawn, np, "jit")


def of_a_number(t):
    y = t * V
    z = y
    y += 1
    return z.sum()


def of_an_entry(x):
    y = np.exp(x[0] * V)
    z = y[1:]
    y[V > 0] = x[1]
    z *= 2
    return y.sum()


def of_a_sum(x):
    s = 0.0
    s += x
    z = s
    s += 1
    return z.sum()


def of_stacked_numbers(t):
    y = plain_np.stack([t, 2 * t])
    z = y.reshape(2, 1)
    y **= 2
    return z.sum()


def of_a_table(t):
    sums, s = [], 0.0
    for _ in range(3):
        s += t * V
        sums.append(s)
    return (sums[0] * V).sum()


@pytest.mark.parametrize("f", [of_a_number, of_an_entry, of_a_sum, of_stacked_numbers, of_a_table])
def test_what_is_computed_of_traced_numbers_is_written_into(f):
    x = X3 if "x" in f.__code__.co_varnames[:1] else T
    want = f(x.copy())
    step = f(x + 1e-40j * plain_np.ones(x.shape)).imag / 1e-40
    for g in (lambda x: ft.value_and_grad(f)(x)[0], ft.jit(f), lambda x: ft.vmap(f)(x[None])[0]):
        assert g(x) == pytest.approx(want, rel=1e-14)
    slopes = ft.jvp(f, (x,), (plain_np.ones(x.shape),))[1], ft.grad(f)(x).sum()
    slopes += ft.jit(ft.grad(f))(x).sum(), ft.vmap(ft.grad(f))(x[None]).sum()
    assert slopes == pytest.approx([step] * 4, rel=1e-14)


def by_rule(t):
    product = ft.custom_jvp(lambda t: t * V)
    product.defjvp(lambda ts, dts: (ts[0] * V, dts[0] * V))
    return product(t)


# What transforms return does not change, so that ``+=`` makes another array; the results of
# functions with rules and of checkpoints are the user's own.
@pytest.mark.parametrize("made", [
    lambda t: ft.scan(lambda c, x: (c + x * t, c), t * V, plain_np.ones(2))[1],
    lambda t: ft.jit(lambda t: t * V)(t), lambda t: ft.vmap(lambda v: t * v)(V),
    lambda t: ft.cond(t > 0, lambda t: t * V, lambda t: -t * V, t),
    by_rule, lambda t: ft.checkpoint(lambda t: t * V)(t),
    lambda t: ft.jit(lambda t: t * V)(t)[1:],
    lambda t: ft.associative_scan(plain_np.add, t * V),
], ids=["scan", "jit", "vmap", "cond", "rule", "checkpoint", "part", "associative"])
def test_results_of_transforms_inside_of_a_function_are_changed_as_outside_of_one(made):
    def f(t):
        y = made(t)
        z = y
        y += 1
        y += t
        w = y
        w *= 2
        return plain_np.stack([y.sum(), z.sum()])

    want = f(T)
    for g in (lambda t: ft.jvp(f, (t,), (t,))[0], lambda t: ft.vmap(f)(t[None])[0], ft.jit(f)):
        assert g(T) == pytest.approx(want, rel=1e-14)


def test_a_view_that_a_function_of_ours_makes_of_a_plain_array_is_a_view():
    def f(t, value):
        y = V.copy()
        z = np.ravel(y)
        z *= 2
        z[0] = value(t)
        return t * y.sum()

    assert ft.value_and_grad(lambda t: f(t, lambda t: 1.0))(T) == (1.5, 3.0)
    with pytest.raises(ConcretizationError, match=r"Make `z` after import functrans\.numpy"):
        ft.grad(lambda t: f(t, lambda t: t))(T)


def test_a_constant_that_the_function_changes_meanwhile_is_two_constants():
    def f(t):
        y = plain_np.zeros(3)
        a = t * y
        y += V
        return a + t * y, y

    for y in (f(2.0), ft.jit(f)(2.0)):
        assert [v.tolist() for v in y] == [[2, -4, 6], [1, -2, 3]]


@pytest.fixture
def hidden(monkeypatch):
    """A function that no transform sees, as its module is found by name when it is called."""
    name = "hidden"  # a text in the function's own code would be followed
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    return module, lambda t: __import__(name).g(t, V)


@pytest.mark.parametrize("change", ["y += 1", "y *= 2; z = y", "y = [y]; y[0] -= 1; y = y[0]"])
def test_a_change_in_place_that_is_not_seen_is_refused(change, hidden):
    module, f = hidden
    exec(f"def g(y, V):\n    y = y * V\n    {change}\n    return y.sum()\n", vars(module))
    for g in (ft.grad(f), ft.jit(f), ft.grad(ft.jit(f))):
        with pytest.raises(ft.errors.ImmutableError, match=r"block of `functrans\.patch\(\)`"):
            g(T)
    with ft.patch():
        assert ft.value_and_grad(f)(T)[0] == f(T)


@pytest.mark.parametrize("start", ["y = t * V", "y = 0.0; y += t * V"])
@pytest.mark.parametrize(("change", "text"), [
    ("y += np.ones((2, 3))", "non-broadcastable output"), ("y += 1j", "Cannot cast"),
    ("y @= V", "non-broadcastable output|inplace matrix"),
    ("y = 0 + (y > 0); y += 0.5", "Cannot cast"),
])
def test_a_change_in_place_that_numpy_refuses_is_refused(start, change, text):
    scope = {"np": np, "V": V}
    exec(f"def f(t):\n    {start}\n    {change}\n    return y.sum()\n", scope)
    f = scope["f"]
    for g in (f, ft.grad(f), ft.jit(f)):
        with pytest.raises((TypeError, ValueError), match=text):
            g(T)


# ---- under every transform


def recurrence(x):
    """Writes that refer to one another."""
    y = np.zeros(6)
    y[1:] = x[:-1] * x[1:]
    y[0] += x[0] ** 3
    y *= y
    return y.sum()


def recurrence_by_parts(x):
    return (plain_np.concatenate([x[:1] ** 3, x[:-1] * x[1:]]) ** 2).sum()


@pytest.mark.usefixtures("seldom_optimised")
def test_second_derivatives_by_every_pair_of_transforms():
    want = ft.hessian(recurrence_by_parts)(X)
    f = recurrence
    ways = [
        ft.hessian(f), ft.jacobian(ft.grad(f)), ft.jacfwd(ft.grad(f)), ft.hessian(ft.jit(f)),
        ft.jit(ft.hessian(f)), ft.jacfwd(ft.jacfwd(f)),
    ]
    for way in ways:
        plain_np.testing.assert_allclose(way(X), want, rtol=1e-13)
    plain_np.testing.assert_allclose(ft.hvp(f, X, X)[1], want @ X, rtol=1e-13)


def test_taylor_series():
    series = [(X, X * 0.5, X * 0.1)]
    want, got = (ft.jet(f, (X,), series) for f in (recurrence_by_parts, recurrence))
    plain_np.testing.assert_allclose(got[0], want[0], rtol=1e-13)
    plain_np.testing.assert_allclose(got[1], want[1], rtol=1e-13)


def test_gradients_of_a_batch():
    xs = plain_np.stack([X, 2 * X])
    want = plain_np.stack([ft.grad(recurrence_by_parts)(x) for x in xs])
    plain_np.testing.assert_allclose(ft.vmap(ft.grad(recurrence))(xs), want, rtol=1e-13)


def by_python(x):
    c, total = x[:3].copy(), 0.0
    for v in x[3:]:
        c[0] += v * c[1]
        c[1:] *= v
        total += c.sum() ** 2 + v**2
    return c.sum() + total


def by_scan(x):
    def body(c, v):
        c[0] += v * c[1]
        c[1:] *= v
        out = np.zeros(2)
        out[0] = c.sum()
        out[1] = v
        return c, out

    c, ys = ft.scan(body, x[:3], x[3:])
    return c.sum() + (ys**2).sum()


def by_fori_loop(x):
    def body(i, state):
        c, total = state
        c[0] += x[i] * c[1]
        c[1:] *= x[i]
        total += c.sum() ** 2 + x[i] ** 2
        return c, total

    c, total = ft.fori_loop(3, 6, body, (x[:3], 0.0))
    return c.sum() + total


def by_checkpoint(x):
    @ft.checkpoint
    def step(c, v):
        c[0] += v * c[1]
        c[1:] *= v
        return c

    c, total = x[:3], 0.0
    for v in x[3:]:
        c = step(c, v)
        total = total + c.sum() ** 2 + v**2
    return c.sum() + total


@pytest.mark.usefixtures("seldom_optimised")
@pytest.mark.parametrize("f", [by_scan, by_fori_loop, by_checkpoint])
def test_bodies_of_loops_may_write_into_what_they_carry(f):
    want, ways = derivatives(by_python, X)[0], [ft.grad(f), ft.jit(ft.grad(f)), ft.jacfwd(f)]
    assert f(X) == pytest.approx(by_python(X), rel=1e-14)
    for g in ways:
        plain_np.testing.assert_allclose(g(X), want, rtol=1e-13, atol=1e-13)


def test_branches_write_into_copies_of_their_own():
    def scaled(y):
        y[0] *= y[1]
        return y

    def cleared(y):
        y[1] = 0.0
        return y

    def f(x):
        y = x * 1.0
        return ft.cond(x[0] > 0, scaled, cleared, y).sum() + 2 * y.sum()

    want = [[X[1] + 2, X[0] + 3, 3, 3, 3, 3], [3, 2, 3, 3, 3, 3]]
    for way in (lambda x: ft.grad(f)(x), ft.jit(ft.grad(f))):
        assert way(X).tolist() == pytest.approx(want[0])
        assert way(-X).tolist() == pytest.approx(want[1])
    assert ft.vmap(ft.grad(f))(plain_np.stack([X, -X])) == pytest.approx(plain_np.array(want))


def test_functions_with_rules_may_write_and_so_may_the_rules():
    @ft.custom_jvp
    def forward(x):
        y = np.zeros(6)
        y[0] = x[0] ** 2
        return y.sum()

    @forward.defjvp
    def rule(primals, tangents):
        y = np.zeros(6)
        y[0] = 2 * primals[0][0] * tangents[0][0]
        return forward(primals[0]), y.sum()

    @ft.custom_vjp
    def reverse(x):
        y = np.zeros(6)
        y[0] = x[0] ** 2
        return y.sum()

    def pull(x, ct):
        g = np.zeros(6)
        g[0] = 2 * x[0] * ct
        return (g,)

    reverse.defvjp(lambda x: (reverse(x), x), pull)
    for f in (forward, reverse):
        for g in (ft.grad(f), ft.jit(ft.grad(f)), ft.jacfwd(f)):
            assert g(X).tolist() == [2 * X[0], 0, 0, 0, 0, 0]
        assert ft.hessian(f)(X)[0, 0] == 2.0


def at_positions(x, i, mask):
    y = x * 1.0
    y[i] = x[0] * x[1]
    y[i] += 1.0
    y[mask] = 3.0
    y[plain_np.array([1, 2]) + i] = x[:2]
    y.reshape(2, 3)[i - 1][0] = x[5]
    return (y * plain_np.arange(6)).sum()


def at_a_mask_in_order(x, v, mask):
    y = x.reshape(2, 3) * 1.0
    y[mask] = v * v
    y[~mask] = v.sum()
    y[y > 100.0] = v[:0]
    return (y * plain_np.arange(6.0).reshape(2, 3)).sum()


@pytest.mark.usefixtures("seldom_optimised")
def test_values_go_to_the_entries_of_a_traced_mask_in_order():
    v, mask = plain_np.array([2.0, 3.0, 5.0]), plain_np.array([[True, False, True], [0, 1, 0]])
    value, slopes = at_a_mask_in_order(X, v, mask), ft.grad(at_a_mask_in_order, (0, 1))(X, v, mask)
    assert ft.jit(at_a_mask_in_order)(X, v, mask) == pytest.approx(value, rel=1e-14)
    compiled = ft.jit(ft.grad(at_a_mask_in_order, (0, 1)))(X, v, mask)
    for got, want in zip(compiled, slopes, strict=True):
        plain_np.testing.assert_allclose(got, want, rtol=1e-14)
    added = ft.jit(lambda x, v: x.at[x > 0.5].add(v))(X[:3], v[:1])
    plain_np.testing.assert_array_equal(added, X[:3] + v[0] * (X[:3] > 0.5))
    several = ft.jit(lambda x, v: x.at[x > -9].multiply(v))(X[:3], v)
    plain_np.testing.assert_array_equal(several, X[:3] * v)


@pytest.mark.parametrize("shape", [(2,), (3,), (6,), (2, 3), (1, 3)])
def test_a_mask_refuses_values_that_are_not_as_many_as_it_selects(shape):
    def f(x, v):
        y = x.reshape(2, 3) * 1.0
        y[y > 5.0] = v
        return y

    with pytest.raises(ValueError, match=rf"values as it selects.*shape \({shape[0]},"):
        ft.jit(f)(X, plain_np.ones(shape))
    with pytest.raises((ValueError, ConcretizationError)):
        ft.vmap(f)(X[None], plain_np.ones((1, *shape)))


def fill_from_itself(y):
    y.flat = y[::-1]


def mask_itself(y):
    y[y > 0] = y[3::-1]


def stretch(y):
    y[::2] = y[:3]


@pytest.mark.parametrize("write", [
    lambda y: np.place(y, y > 0, y[::-1]), fill_from_itself, mask_itself, stretch,
    lambda y: np.copyto(y[4::-2], y[2::-1]),
])
def test_what_numpy_reads_while_it_writes_is_refused(write):
    def f(x):
        write(x)
        return x.sum()

    with pytest.raises(UnsupportedError, match=r"part of the array that it writes.*copy\(\)"):
        ft.grad(f)(X)


def test_positions_and_masks_may_be_traced():
    i, mask = plain_np.int64(2), X > 0.5
    want, slope = at_positions(X, i, mask), ft.grad(at_positions)(X, i, mask)
    assert ft.jit(at_positions)(X, i, mask) == pytest.approx(want, rel=1e-14)
    masks = plain_np.stack([~mask, mask])
    both = ft.vmap(at_positions)(plain_np.stack([X, X]), plain_np.array([1, 2]), masks)
    assert both[1] == pytest.approx(want, rel=1e-14)
    plain_np.testing.assert_allclose(ft.jit(ft.grad(at_positions))(X, i, mask), slope, rtol=1e-14)


# ---- arguments


def scaled(x):
    x += 1
    x *= x
    x[0] = 0.0
    return x.sum()


def locked(x):
    x = x.copy()
    x.setflags(write=False)
    return x


@pytest.mark.parametrize("made", [
    lambda x: x, lambda x: locked(x), lambda x: plain_np.repeat(x, 2)[::2], lambda x: x[::-1],
    lambda x: x.reshape(2, 3), lambda x: plain_np.asfortranarray(x.reshape(2, 3)),
    lambda x: plain_np.broadcast_to(x, (2, 6)), lambda x: ft.array(x), lambda x: x.tolist(),
], ids=["C", "read-only", "strided", "reversed", "2-D", "Fortran", "broadcast", "Array", "list"])
def test_the_callers_arrays_stay_as_they_are(made):
    x = made(X.copy())
    was = plain_np.array(x)
    want = 2 * (was + 1)
    want[0] = 0.0
    f = scaled if not isinstance(x, list) else lambda x: scaled(np.array(x))
    slope = plain_np.array(ft.grad(f)(x)) if not isinstance(x, list) else want
    plain_np.testing.assert_allclose(slope, want, rtol=1e-15)
    assert ft.vmap(scaled)(was[None])[0] == ft.jit(scaled)(was)
    assert (plain_np.array(x) == was).all()


def test_an_argument_that_is_not_differentiated_is_written_to_as_a_copy():
    def f(x, work, n):
        work[...] = x * 2
        work[0] = 1.0
        n += 1
        return (work * n).sum()

    work, n = plain_np.zeros(6), plain_np.arange(6)
    assert ft.grad(f)(X, work, n).tolist() == [0, 4, 6, 8, 10, 12]
    assert not work.any() and n.tolist() == [0, 1, 2, 3, 4, 5]


def test_arrays_in_containers_may_be_written_to():
    def f(params):
        params["w"][0] *= 2
        params["b"][1] += params["w"][1]
        return (params["w"].sum() + params["b"].sum()) ** 2

    params = {"w": X[:3].copy(), "b": X[3:].copy()}
    g = ft.grad(f)(params)
    total = 2 * (X.sum() + X[0] + X[1])
    assert g["w"].tolist() == pytest.approx([2 * total, 2 * total, total])
    assert params["w"].tolist() == X[:3].tolist()


def test_what_a_transform_hands_out_cannot_be_written_to():
    def f(x):
        y = np.zeros(3)
        y[0] = x[0]
        return {"y": y, "view": y[1:], "x": x, "plain": np.ones(2)}

    for out in (ft.jit(f)(X), ft.vmap(f)(X[None]), ft.vjp(f, X)[0], ft.jvp(f, (X,), (X,))[0]):
        for y in out.values():
            assert type(y) is ft.Array
            assert not y.flags.writeable


# ---- dtypes and errors


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_the_dtype_is_that_of_the_array_that_is_written_to(dtype):
    def f(x):
        y = np.zeros(3, x.dtype)
        y[:] = plain_np.float64(2.0) * plain_np.ones(3)
        y[1:] *= x[:2]
        y += 1
        kept.append(y.dtype)
        return np.real(y.sum() ** 2)

    kept: list = []
    x = X.astype(dtype)
    g = ft.grad(f)(x)
    assert kept == [dtype] and g.dtype == dtype
    total = 5 + 2 * (x[0] + x[1])
    assert g[0] == pytest.approx(4 * total, rel=1e-6) and g[2] == 0


def test_integers_and_booleans_are_written_to_and_used_as_positions():
    def f(x):
        i, m = np.zeros(3, int), np.zeros(6, bool)
        i[0], i[1] = 2, 2.7
        i += 1
        m[i] = True
        m[0] = x[0] > 5
        return (x[i] * plain_np.arange(3)).sum() + x[m].sum() ** 2

    want = f(X.copy())
    assert ft.value_and_grad(f)(X)[0] == pytest.approx(want)
    assert ft.grad(f)(X)[1] == pytest.approx(2 + 2 * (X[1] + X[3]))


def test_a_float_does_not_go_into_integers_by_an_operator():
    def f(x):
        y = np.zeros(6, int)
        y += x
        return y.sum()

    text = r"Cannot cast ufunc 'add' output from dtype\('float64'\) to dtype\('int64'\)"
    for g in (f, ft.grad(f), ft.jit(f)):
        with pytest.raises(TypeError, match=text):
            g(X)


@pytest.mark.parametrize("write, text", [
    (lambda y, x: operator.setitem(y, slice(None), x), "could not broadcast input array from"),
    (lambda y, x: operator.iadd(y, x), "could not be broadcast together|non-broadcastable"),
    (lambda y, x: np.add(x, x, out=y), "broadcast"),
    (lambda y, x: operator.setitem(np.broadcast_to(y, (2, 3)), 0, x[0]), "read-only|assigned"),
    (lambda y, x: operator.setitem(np.diagonal(np.outer(y, y)), 0, x[0]), "read-only|assigned"),
])
def test_shapes_and_read_only_views_are_refused_as_by_numpy(write, text):
    def f(x):
        y = np.zeros(3)
        y[0] = x[0]
        write(y, x)
        return y.sum()

    with pytest.raises(ValueError, match=text):
        ft.grad(f)(X)


def test_a_complex_value_has_no_place_among_real_ones():
    def f(x):
        y = np.zeros(3)
        y[0] = x[0] * 1j
        return y.sum()

    with pytest.raises(ft.errors.ArgumentError, match="imaginary part has no place"):
        ft.grad(f)(X)


REFUSALS = ft.errors.ConcretizationError, ft.errors.UnsupportedError


def test_an_array_of_plain_numpy_names_the_one_that_can_hold_traced_values():
    def entry(x):
        y = plain_np.zeros(3)
        y[0] = x[0]
        return y.sum()

    def part(x):
        y = plain_np.zeros(3)
        y[:2] = x[:2]
        return y.sum()

    def added(x):
        y = plain_np.zeros(6)
        y += x
        return y.sum()

    for f in (entry, part, added):
        for g, x in ((ft.grad(f), X), (ft.jit(ft.grad(f)), X), (ft.vmap(f), X[None])):
            with pytest.raises(REFUSALS, match=r"functrans\.numpy") as found:
                g(x)
            assert "test_writing.py" in str(found.value)


# ---- memory that others hold


def test_an_array_of_another_function_is_not_written_to():
    def f(x):
        y = np.zeros(3)

        def inner(v):
            y[0] = v
            return y.sum()

        return ft.grad(inner)(x[0]) + y.sum()

    with pytest.raises(ft.errors.UnsupportedError, match="made in `f` was written to in `inner`"):
        ft.grad(f)(X)


def test_an_array_that_was_kept_is_not_written_to_afterwards():
    kept = []

    def f(x):
        y = np.zeros(3)
        y[0] = x[0]
        kept.append(y)
        return y.sum()

    ft.grad(f)(X)
    with pytest.raises(ft.errors.UnsupportedError, match="was written to after that"):
        kept[0][1] = 2.0
    with pytest.raises(ft.errors.LeakedTracerError, match="already ended"):
        kept[0] + 1.0


def test_plain_numpy_sees_nan_where_traced_values_were_written():
    def f(x):
        y = np.zeros(3)
        held = plain_np.asarray(y)[1:]
        held[0] = 5.0
        y[0] = x[0]
        return y.sum() + 0 * held.sum()

    assert plain_np.isnan(ft.value_and_grad(f)(X)[0])


def test_plain_numpy_may_read_and_write_what_has_plain_numbers():
    def f(x):
        y = np.zeros(3)
        held = plain_np.asarray(y)
        held[1] = 5.0
        total = y.sum()
        del held
        y[0] = x[0]
        return y.sum() * total

    assert ft.value_and_grad(f)(X)[0] == pytest.approx((X[0] + 5) * 5)


def test_plain_numpy_gets_no_traced_values():
    def f(x):
        y = np.zeros(3)
        y[0] = x[0]
        return plain_np.asarray(y).sum()

    with pytest.raises(ft.errors.ConcretizationError, match="its derivative would be lost"):
        ft.grad(f)(X)
    with pytest.raises(TypeError, match="bytes-like"):
        ft.grad(lambda x: memoryview(x) or operator.setitem(x, 0, 1.0))(X)


def test_integers_that_are_held_take_no_traced_values():
    def f(x):
        y = np.zeros(3, int)
        held = plain_np.asarray(y)
        y[0] = np.argmax(x)
        return x[y].sum() + held.sum()

    with pytest.raises(ft.errors.UnsupportedError, match="old numbers would stay"):
        ft.jit(f)(X)


def test_memory_is_not_seen_as_another_type():
    def f(x):
        y = np.zeros(3)
        y.view(plain_np.int64)[0] = 1
        return y.sum() + x.sum()

    with pytest.raises(ft.errors.UnsupportedError, match="view of an array of float64 as int64"):
        ft.grad(f)(X)


def test_flat_of_an_array_that_is_not_contiguous_is_refused():
    def f(x):
        x[::2].flat[0] = 1.0
        return x.sum()

    with pytest.raises(ft.errors.UnsupportedError, match=r"x\.flat of an array.*not contiguous"):
        ft.grad(f)(X)


# ---- state and cost


def test_two_threads_write_at_once():
    def run(k):
        return [ft.grad(recurrence)(X * (k + 1)) for _ in range(20)]

    for k, got in enumerate(at_once(run, range(2))):
        want = ft.grad(recurrence_by_parts)(X * (k + 1))
        for g in got:
            plain_np.testing.assert_allclose(g, want, rtol=1e-13)


def test_an_exception_leaves_nothing_behind():
    def f(x):
        x[0] = 1.0
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        ft.grad(f)(X)
    assert type(np.zeros(3)) is ft.Array


def loop(x):
    y = np.zeros(x.shape)
    y[0] = x[0]
    for i in range(1, 50):
        y[i] = 0.9 * y[i - 1] + x[i]
    return (y * y).sum()


def peak(f, x):
    f(x[:50])
    tracemalloc.start()
    f(x)
    size = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return size / x.nbytes


def test_fifty_writes_take_the_memory_of_few_arrays():
    """Forward and backward; a copy for each write would make it fifty."""
    x = plain_np.linspace(0.0, 1.0, 100_000)
    assert peak(ft.grad(loop), x) < 10


def test_a_gradient_of_writes_is_right_where_they_are_made_in_place():
    want = [loop_by_numpy(X50 + 1e-40j * e).imag / 1e-40 for e in plain_np.eye(50)]
    plain_np.testing.assert_allclose(ft.grad(loop)(X50), want, rtol=1e-12)


X50 = plain_np.cos(plain_np.arange(50.0))


def loop_by_numpy(x):
    y = x.copy()
    for i in range(1, 50):
        y[i] = 0.9 * y[i - 1] + x[i]
    return (y * y).sum()


def part_is_kept(x):
    y = x * 1.0
    y[0] = x[1] * 2
    y[1] = x[0]
    part = y[:3]
    total = (part * part).sum()
    y[:2] = x[4:] * 5
    return total * y.sum()


def whole_is_kept(x):
    y = x * 1.0
    y[0] = x[1] * 2
    squares = y * y
    y[1:] = x[0]
    return squares.sum() * y.sum()


def written_over(x):
    y = x * 1.0
    y[0] = x[1] ** 2
    y[1] = x[2] ** 2
    y[:2] = x[3:5] ** 2
    y[0] = x[5] ** 2
    return (y * y).sum()


def cotangent_is_shared(x):
    z = x * x
    y = x * 3.0
    y[0] = x[1]
    y[1] = x[2]
    total = y + z
    return (total * plain_np.arange(1.0, 7.0)).sum()


def axes_are_permuted(x):
    y = x.reshape(2, 3, 1) * plain_np.arange(1.0, 5.0)
    y[0, 0, 0] = x[5]
    y.transpose(2, 0, 1)[1] = x.reshape(2, 3) ** 2
    y.transpose(1, 2, 0)[:, 2, :] *= x[3:, None]
    return (y * y * plain_np.arange(24.0).reshape(2, 3, 4)).sum()


@pytest.mark.usefixtures("seldom_optimised")
@pytest.mark.parametrize("f", [
    part_is_kept, whole_is_kept, written_over, cotangent_is_shared, axes_are_permuted,
])
def test_what_the_backward_needs_survives_writes_in_place(f):
    want, ways = derivatives(f, X)
    for g in ways:
        plain_np.testing.assert_allclose(g, want, rtol=1e-12, atol=1e-12)


# ---- which functions are followed


def helper(x):
    x[0] = 2.0
    return x.sum()


class Model:
    def step(self, x):
        return helper(x)


class Models:
    def __init__(self):
        self.models, self.by_name = [Model()], {"helper": helper}

    def first(self, x):
        return self.models[0].step(x)


def by_default(x, f=helper, *, g=len):
    return f(x)


def by_keyword(x, *, f=helper):
    return f(x)


def applied(f, x):
    return f(x)


MODELS, TABLE = Models(), {"a": [helper]}


@pytest.mark.parametrize("f", [
    helper, lambda x: helper(x), Model().step, lambda x: Model().step(x), lambda x: x.sort(),
    MODELS.first, lambda x: MODELS.by_name["helper"](x), lambda x: TABLE["a"][0](x), by_default,
    by_keyword, functools.partial(applied, helper), lambda x: applied(helper, x),
    lambda x: np.copyto(x, 1.0), lambda x: np.add(x, 1, out=x), lambda x: np.add.at(x, 0, 1.0),
    lambda x: operator.iadd(x, 1.0), lambda x: x.__imul__(2.0),
])
def test_writing_is_seen(f):
    assert may_write(f)


@pytest.mark.parametrize("f", [
    lambda x: x.sum(), lambda x: x.at[0].set(1.0), lambda x: np.sin(x) * 2, recurrence_by_parts,
])
def test_functions_that_do_not_write_are_seen_to(f):
    assert not may_write(f)


class Fitted:
    """A model of which some methods write."""

    def __init__(self):
        self.seen = {}
        self.seen["fit"] = False

    def fit(self, x):
        self.seen["fit"] = True
        return self.loss(x)

    def loss(self, x):
        return np.sum(x * self.by)

    @property
    def by(self):
        return 2.0

    @property
    def changed(self):
        return helper(np.ones(2))

    @functools.cached_property
    def first(self):
        return helper(np.ones(2))

    @staticmethod
    def change(x):
        return helper(x)


FITTED = Fitted()


@pytest.mark.parametrize("f", [
    FITTED.fit, lambda x: FITTED.fit(x), lambda x: FITTED.change(x), lambda x: x * FITTED.changed,
    lambda x: x * FITTED.first,
    lambda x: Fitted.change(x), lambda x: x * Fitted().by, lambda x: getattr(FITTED, "change")(x),  # noqa: B009
])
def test_methods_that_write_are_seen_where_they_are_named(f):
    assert may_write(f)


@pytest.mark.parametrize("f", [FITTED.loss, lambda x: FITTED.loss(x), lambda x: FITTED.by * x])
def test_methods_that_nobody_names_are_not_looked_at(f):
    assert not may_write(f)


def imported(text, monkeypatch, name):
    """A module of an installed package."""
    module = types.ModuleType(name)
    module.__file__ = f"/python/site-packages/{name}.py"
    monkeypatch.setitem(sys.modules, name, module)
    exec(text, vars(module))
    return module


def test_other_peoples_libraries_are_looked_into_where_they_import_functrans(monkeypatch):
    start = "def start(x):\n    x[0] = 1.0\n    return x.sum()\n"
    other = imported(f"import numpy as np\n{start}", monkeypatch, "functrans_test_other")
    text = f"import functrans.numpy as np\n{start}"
    friend = imported(text, monkeypatch, "functrans_test_friend")
    assert not may_write(lambda x: other.start(x))
    assert may_write(lambda x: friend.start(x))
    assert may_write(other.start)  # its author's own
    assert ft.grad(lambda x: friend.start(x * x))(X)[1] == 2 * X[1]
    with ft.patch():
        assert ft.grad(lambda x: other.start(x * x))(X)[1] == 2 * X[1]


def test_a_table_that_holds_itself_is_looked_through_once():
    table = {"helper": helper}
    table["itself"] = table
    assert ft.grad(lambda x: table["helper"](x))(X).tolist() == [0, 1, 1, 1, 1, 1]


def test_much_that_is_near_a_function_is_not_looked_through():
    table = dict.fromkeys(range(10_000), 1j) | {i: [i] for i in range(10_000)}
    assert not may_write(lambda x: x * table[0])


def test_annotations_are_not_taken_for_writes():  # which Python 3.14 evaluates in functions
    class Scale:
        by: float = 2.0

    def f(x):
        def inner(y: float) -> float:
            return y * Scale.by

        return inner(x)

    assert not may_write(f)


def test_a_sum_that_starts_from_a_number_is_no_writing():
    def f(x):
        s = 0.0
        for v in x:
            s += v
        return s

    assert not may_write(f)


def test_a_function_that_is_defined_later_is_followed():
    @ft.grad
    def f(x):
        return later(x)

    def later(x):
        x[0] = 2.0
        return x.sum()

    assert f(X).tolist() == [0, 1, 1, 1, 1, 1]


def test_tables_of_others_functions_and_what_was_seen_are_not_looked_into(monkeypatch):
    looked = []
    parts = Callees._parts
    monkeypatch.setattr(Callees, "_parts", lambda self, v: looked.append(v) or parts(self, v))
    rows = {i: plain_np.sin for i in range(300)}
    mine = [lambda x: 2 * x] * 300
    assert not may_write(lambda x: rows[3](x) + mine[2](x))
    assert len(looked) < 20


def test_the_last_function_of_a_table_is_seen_to_write():
    def double(x):
        x *= 2
        return x

    table = {**{i: (lambda x, i=i: i * x) for i in range(200)}, "double": double}
    others = [lambda x: table[3](x) for _ in range(20)]
    assert may_write(lambda x: others[0](x) + table["double"](x))


def test_a_single_boolean_is_an_index_as_in_numpy():
    """As of a number that is asked for its sign: ``y[y < 0] = 0`` of an array without axes."""

    def f(np, x):
        y = np.array(x * 2.0)
        y[y < 1] = 0.25
        y[y > 1] *= 3
        z = np.zeros(2)
        z[True] = y * x
        z[False] = 7.0
        z[np.array(True)] += x
        return (z**2).sum() + (y * x)[x > 0].sum() + z[x > 5].sum() + z[None][False].size

    for x in (0.2, 0.7):
        slope = (float(f(plain_np, x + 1e-5)) - float(f(plain_np, x - 1e-5))) / 2e-5
        for grad in (ft.grad, lambda f: ft.jit(ft.grad(f))):
            assert grad(lambda x: f(np, x))(x) == pytest.approx(slope, rel=1e-8)  # of differences
    value, pull = ft.vjp(lambda v: v.at[True].set(2 * v).at[False].add(9.0)[True], plain_np.ones(2))
    assert value.tolist() == [[2.0, 2.0]] and pull(plain_np.ones((1, 2)))[0].tolist() == [2.0, 2.0]


@pytest.mark.parametrize("f", [
    lambda x: x.at[0].set(1.0), lambda x: np.sin(x).at[0].set(1.0), lambda x: x.sum().at[()].set(1),
], ids=["alone", "behind a function", "behind a method"])
def test_setting_by_at_is_no_write(f):
    """It makes a new array: names for arrays would double the time of a gradient."""
    assert not may_write(f)


def test_a_ufunc_at_is_a_write():
    assert may_write(lambda x, i: np.add.at(x, i, 1.0))


def test_numpy_is_not_asked_for_the_layout_of_results_of_slices(monkeypatch):
    def refuse(*args):
        raise AssertionError(args)

    def f(x):
        u = np.array(x)
        u[1:-1, 1:] = 0.5 * (u[:-2, 1:] + u[2:, :-1]) * u[1:-1, 1:]
        return np.sum(u * u)

    expected = ft.grad(f)(np.arange(20.0).reshape(5, 4))
    monkeypatch.setattr("functrans.numpy.functionalized.layout_of", refuse)
    np.testing.assert_array_equal(ft.grad(f)(np.arange(20.0).reshape(5, 4)), expected)


@pytest.mark.parametrize("seed", range(5))
def test_results_of_operands_whose_steps_fall_are_in_cs_order(seed):
    rng = plain_np.random.default_rng(seed)
    found = 0
    for _ in range(200):
        shape = rng.integers(1, 4, rng.integers(2, 4))
        operands = []
        for _ in range(2):
            own = plain_np.where(rng.random(shape.size) < 0.8, shape, 1)
            axes = rng.permutation(shape.size) if rng.random() < 0.3 else range(shape.size)
            x = plain_np.ones(2 * own[list(axes)]).transpose(plain_np.argsort(axes))
            x = x[tuple([slice(None, None, rng.choice([2, 2, -2])) for _ in own])]
            operands.append(x)
        if any(map(is_ordered, operands)):
            continue
        found += 1
        a, b = operands
        for y in (a + b, plain_np.where(a > b, a, b), plain_np.exp(a), a.copy("K"), -b):
            assert y.flags.c_contiguous
    assert found > 10


def test_a_part_is_copied_until_half_as_much_is_read_as_a_write_would_copy(monkeypatch):
    copied = []
    process = VJPTrace.process

    def counted(trace, row, args, params):
        if row.name in ("fetch", "store", "scatter_set"):
            copied.append(row.name)
        return process(trace, row, args, params)

    monkeypatch.setattr(VJPTrace, "process", counted)

    def f(x, reads):
        y = np.array(x)
        y[0] = 2 * x[1]
        for _ in range(reads):
            y[2] = y[0:2] @ y[3:5] + y[1:3] @ y[2:4]
        return np.sum(y * y)

    ft.vjp(lambda x: f(x, 1), X)
    assert copied == ["scatter_set", "fetch", "scatter_set"]  # the second is more than half
    copied.clear()
    ft.vjp(lambda x: f(np.concatenate([x, x, x]), 2), X)
    assert copied == ["scatter_set", *["fetch"] * 4, "store", *["fetch"] * 4, "store"]
    steps, ways = derivatives(functools.partial(f, reads=3), X)
    for g in ways:
        assert g == pytest.approx(steps, rel=1e-13)


def test_a_part_is_read_once_until_the_next_write(monkeypatch):
    read = []
    process = VJPTrace.process

    def counted(trace, row, args, params):
        if row.name in ("fetch", "getitem"):
            read.append(params["pattern"])
        return process(trace, row, args, params)

    def f(x):
        y = np.array(x)
        y[0] = 2 * x[1]
        for _ in range(3):
            y[2:] = y[2:] * y[1:-1] + y[2:] ** 2
        return np.sum(y)

    monkeypatch.setattr(VJPTrace, "process", counted)
    ft.vjp(f, X)
    tail, middle = ((2, None, None),), ((1, -1, None),)
    assert read == [(1,), *[tail, middle] * 3]
    steps, ways = derivatives(f, X)
    for g in ways:
        assert g == pytest.approx(steps, rel=1e-13)


@pytest.mark.usefixtures("unoptimised")
def test_a_part_that_a_program_has_read_is_read_anew_behind_it():
    def f(x):
        y = np.zeros(3)
        y[:] = x
        z = ft.jit(lambda t: t * np.sum(y[:2] ** 2))(x[0])
        return z + np.sum(y[:2] * y[1:])

    a, b, c = X[:3]
    want = [3 * a**2 + b**2 + b, 2 * a * b + a + c, b]
    assert ft.grad(f)(X[:3]) == pytest.approx(want, rel=1e-14)


def test_updates_by_at_are_walked_back_in_one_buffer(monkeypatch):
    in_place = []

    def counted(*args):
        in_place.append(args[-1])
        return scatter_vjp(*args)

    def f(x):
        y = x * 1.0
        for i in range(4):
            y = y.at[i].set(y[i + 1] * 2)
        return np.sum(y * y)

    monkeypatch.setattr(tracer, "scatter_vjp", counted)
    g = ft.grad(f)(X)
    assert in_place == [True] * 4
    assert g == pytest.approx([0, 8 * X[1], 8 * X[2], 8 * X[3], 10 * X[4], 2 * X[5]], rel=1e-14)


def _swapped_numbers(x):
    b = np.arange(1.0, 4.0)
    p = np.argmax(x)
    b[0], b[p] = b[p], b[0]
    return np.sum(b * x)


def _swapped_rows(x):
    A = np.array([x, 2 * x, x * x])
    p = np.argmax(A[:, 0])
    A[[0, p]] = A[[p, 0]]
    A[1], A[p] = A[p].copy(), A[1].copy()
    return np.sum(A * np.arange(9.0).reshape(3, 3))


@pytest.mark.parametrize("f", [_swapped_numbers, _swapped_rows])
def test_a_program_writes_at_its_own_places_into_what_is_its_own(f):
    ways = ft.jit(ft.value_and_grad(f)), ft.value_and_grad(ft.jit(f))
    for x in (plain_np.array([0.5, 3.0, 0.25]), plain_np.array([0.5, 0.1, 4.0])):
        want = ft.value_and_grad(f)(x)
        for way in ways:
            for _ in range(2):
                value, g = way(x)
                assert value == f(x.copy()) == want[0]
                assert g == pytest.approx(want[1], rel=1e-14)


def _applied_along(np, x):
    def halved(r):
        r[0] *= 2  # also in y
        r -= r[1]
        return r * r

    y = np.array(x).reshape(2, 3)
    z = np.apply_along_axis(halved, 1, y)
    s = np.apply_over_axes(np.sum, y, [0])
    return np.sum(z * np.apply_along_axis(lambda r: r.sum(), 0, y)) + np.sum(y**3 * s)


def _enumerated(np, x):
    y, s = np.array(x).reshape(2, 3), 0.0
    for (i, j), v in np.ndenumerate(y):  # which sees what is written meanwhile
        y[(i + 1) % 2, j] += v * v
        s = s + v * (i + 2 * j)
    return s + sum(v for _, v in np.ndenumerate([1.0, 2.0]))


def _in_pieces(np, x):
    def clipped(v):
        v[v > 1] = 1.5  # a copy
        return v * v

    y = np.array(x)
    return np.sum(np.piecewise(y, [y < 0, y >= 0], [0.5, clipped]) * y)


@pytest.mark.usefixtures("seldom_optimised")
@pytest.mark.parametrize("f", [_applied_along, _enumerated, _in_pieces])
def test_functions_that_are_applied_write_as_numpys_do(f):
    run = functools.partial(f, np)
    assert ft.value_and_grad(run)(X)[0] == f(plain_np, X.copy()) == ft.jit(run)(X)
    if f is not _in_pieces:  # NumPy takes no complex steps there
        steps, ways = derivatives(lambda x: f(plain_np if x.dtype == complex else np, x), X)
        for g in ways:
            assert g == pytest.approx(steps, rel=1e-13)
    else:
        want = plain_np.select([X > 1, X < 0], [2.25, 0.5], 3 * X * X)
        assert ft.grad(run)(X) == pytest.approx(want, rel=1e-15)


def by_a_backward_rule(x):
    @ft.custom_vjp
    def f(x):
        return np.cos(x)

    f.defvjp(lambda x: (np.cos(x), np.sin(x)), lambda s, ct: (-s * ct,))
    return f(x)


def by_a_forward_rule(x):
    @ft.custom_jvp
    def f(x):
        return np.cos(x)

    f.defjvp(lambda xs, ts: (np.cos(xs[0]), -np.sin(xs[0]) * ts[0]))
    return f(x)


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("f", [by_a_backward_rule, by_a_forward_rule])
def test_rules_whose_results_are_names(f):
    def written(x):
        y = x * 1.0
        y[0] = x[1]
        return f(y)

    want = plain_np.diag(-plain_np.sin(X)) @ plain_np.eye(6)[[1, 1, 2, 3, 4, 5]]
    want[0, 1] = -plain_np.sin(X[1])
    for way in (ft.jacfwd, ft.jacrev, lambda f: ft.jit(ft.jacfwd(f))):
        plain_np.testing.assert_allclose(way(written)(X), want, rtol=1e-14)
    series = ft.jet(written, (X,), ([X],))[1][0]
    plain_np.testing.assert_allclose(series, want @ X, rtol=1e-14)


def test_batches_write_into_plain_numbers_at_places_of_their_own():
    def f(np, x):
        order, c, z = np.argsort(x), np.zeros(6), np.arange(12.0).reshape(6, 2)
        for i in range(6):
            c[order[i]] += x[i] * (i + 1)
            z[order[i]] *= x[i]
            z[order[0], 1] = 7.0
            z[i] = z[order[i]]
        return c @ x + np.sum(z)

    xs = plain_np.stack([X, X[::-1] * 2])
    run, want = functools.partial(f, np), [f(plain_np, x.copy()) for x in xs]
    for way in (ft.vmap(run), ft.vmap(ft.jit(run)), ft.jit(ft.vmap(run))):
        assert way(xs) == pytest.approx(want, rel=1e-14)
    slopes = [ft.grad(run)(x) for x in xs]
    assert ft.vmap(ft.grad(run))(xs) == pytest.approx(plain_np.stack(slopes), rel=1e-13)
    t = plain_np.array([1.0, -2, 3, 1, 2, -1])  # central differences: argsort has no complex step
    change = (f(plain_np, X + 1e-6 * t) - f(plain_np, X - 1e-6 * t)) / 2e-6
    assert slopes[0] @ t == pytest.approx(change, rel=1e-7)


def _root(x):
    v = np.empty(2)
    v[0], v[1] = 2.0, 0.5
    for _ in range(20):
        J, r = np.empty((2, 2)), np.empty_like(v)
        r[:] = v * v - x
        if np.linalg.norm(r) < 1e-9:
            break
        J[:, 0] = [2 * v[0], 0.0]
        J[:, 1] = [0.0, 2 * v[1]]
        v = v - np.linalg.solve(J, r)
    return np.sum(v)


@pytest.mark.usefixtures("seldom_optimised")
def test_programs_do_not_depend_on_what_memory_held():
    def held(x):
        y = np.empty(40)
        z = np.empty_like(y)
        y[0] = z[0] = x
        return np.sum(y) + np.sum(z)

    for _ in range(3):
        plain_np.full(40, 7.0)  # its memory is the next that NumPy gets
        assert ft.jit(held)(1.5) == ft.value_and_grad(held)(1.5)[0] == 3.0
    xs, compiled = plain_np.array([[3.0, 0.2], [4.1, 0.25]]), ft.jit(_root)
    want = [float(_root(x)) for x in xs]
    for _ in range(2):
        assert [float(compiled(x)) for x in xs] == pytest.approx(want, rel=1e-13)
    assert str(compiled.explain()).count("staged for") == 2
    assert ft.vmap(compiled)(xs) == pytest.approx(want, rel=1e-13)
    assert ft.vmap(ft.grad(compiled))(xs) == pytest.approx(0.5 / plain_np.sqrt(xs), rel=1e-9)


def test_einsum_writes_into_out():
    def f(np, x):
        y, z = np.zeros((2, 3)), np.ones(3)
        np.einsum("i,j->j", x, x[:3], out=y[0])
        np.einsum("ij->j", plain_np.ones((2, 3)), out=z)
        y[1] = z * x[3]
        return np.sum(y * y)

    run = functools.partial(f, np)
    assert ft.value_and_grad(run)(X)[0] == run(X) == pytest.approx(f(plain_np, X), rel=1e-15)
    want = 2 * np.sum(X) * np.sum(X[:3] ** 2) + plain_np.zeros(6)
    want[:3] += 2 * np.sum(X) ** 2 * X[:3]
    want[3] += 24 * X[3]
    for way in (ft.grad(run), ft.jit(ft.grad(run)), ft.jacfwd(run)):
        assert way(X) == pytest.approx(want, rel=1e-13)


def test_nditer_names_what_goes_without_memory():
    def f(x):
        y = np.array(x)
        for v in np.nditer(y):
            y[0] = v
        return np.sum(y)

    with pytest.raises(UnsupportedError, match=r"np\.nditer.*np\.ndenumerate"):
        ft.grad(f)(X)
    assert [float(v) for v in np.nditer(X)] == X.tolist()


def test_tangents_of_a_function_that_writes_inside_of_another_are_values():
    def twice(x):
        y = np.zeros(7)
        y[1:] = np.sin(x)
        y[0] = y[1]
        y[1:] *= y[0]
        return y[1:]

    def outer(x):
        t = np.zeros(6)
        t[:] = x * x
        return ft.jvp(twice, (X,), (t,))[1] + ft.linearize(twice, t)[1](t)

    want = ft.jvp(twice, (X,), (X * X,))[1] + ft.jvp(twice, (X * X,), (X * X,))[1]
    loop = lambda x: ft.fori_loop(0, 1, lambda i, c: outer(c), x)  # noqa: E731
    for way in (outer, loop, ft.jit(outer), lambda x: ft.vmap(outer)(x[None])[0]):
        assert way(X) == pytest.approx(want, rel=1e-14)
    rows = ft.jacfwd(outer)(X)
    for way in (ft.jacrev(outer), ft.jacfwd(loop), ft.jit(ft.jacrev(outer))):
        assert way(X) == pytest.approx(rows, rel=1e-13, abs=1e-15)


def several_outs(np, x):
    y, z, w = x * 1.0, x * 1.0, np.zeros((3, 4))
    np.divmod(x, 0.7, out=(y, z))
    np.modf(x * 2.0, None, w)
    np.frexp(x, out=(y, None))
    return np.sum(y * z) + np.sum(w * x)


def of_one_operand(np, x):
    y = x * 1.0
    np.negative.at(y, [0, 1, 1])
    np.exp.at(y[2], [0, 0, 2])
    np.sin.at(y.T, (slice(None), 1))
    return np.sum(y * y * x)


def shuffled(np, x):
    y = np.zeros(4)
    y[:] = x[0]
    plain_np.random.default_rng(0).shuffle(y)
    return np.sum(y * plain_np.arange(4.0))


@pytest.mark.filterwarnings("ignore:you are shuffling a 'Writable' object:UserWarning")
@pytest.mark.parametrize("f", [several_outs, of_one_operand, shuffled])
def test_writes_by_rarer_ways_are_numpys(f):
    x = plain_np.random.default_rng(1).normal(size=(3, 4))
    h, t = 1e-6, plain_np.random.default_rng(2).normal(size=(3, 4))
    expected = (f(plain_np, x + h * t) - f(plain_np, x - h * t)) / (2 * h)
    ours = functools.partial(f, np)
    value, g = ft.value_and_grad(ours)(x)
    assert value == f(plain_np, x)
    plain_np.testing.assert_allclose(plain_np.sum(g * t), expected, rtol=1e-6)
    plain_np.testing.assert_allclose(ft.vmap(ours)(x[None]), [value], rtol=1e-14)


@pytest.mark.filterwarnings("ignore:you are shuffling a 'Writable' object:UserWarning")
def test_shuffling_rows_is_refused():  # numpy would swap views of them, and copy one twice
    def f(x):
        y = np.zeros((3, 4))
        y[:] = x
        plain_np.random.default_rng(0).shuffle(y)
        return np.sum(y[0])

    with pytest.raises(UnsupportedError, match=r"Write y\[:\] = y\[rng.permutation"):
        ft.grad(f)(plain_np.ones((3, 4)))


@pytest.mark.parametrize("make", [
    lambda: np.r_[0.0, plain_np.ones(2)], lambda: np.c_[plain_np.ones(2), plain_np.ones(2)],
    lambda: np.vectorize(lambda v: v + 1.0)(plain_np.ones(3)), lambda: np.mgrid[0:3],
])
def test_arrays_of_plain_numbers_can_be_written_to(make):
    y = make()
    y[0] = 5.0
    assert plain_np.all(y[0] == 5.0)


@pytest.mark.parametrize("op", [operator.eq, operator.ne, operator.lt, operator.add])
def test_operators_of_an_array_that_is_viewed_go_entry_by_entry(op):
    def f(x):
        y, z = x * 2.0, np.zeros(2)
        z[0] = np.sum(y.T[0])  # a view of y, so that it has no value at hand
        both = op(y, y)
        assert both.shape == x.shape
        return np.sum(np.where(both[0], y, 0.0)) + z[0]

    x = plain_np.array([[1.0, 2.0], [3.0, 4.0]])
    once, first = bool(op(x, x)[0, 0]), plain_np.array([[2.0, 0.0], [2.0, 0.0]])
    plain_np.testing.assert_array_equal(ft.grad(f)(x), (2.0 if once else 0.0) + first)
    plain_np.testing.assert_array_equal(ft.jacfwd(f)(x), (2.0 if once else 0.0) + first)


def _plus_one(f, x):
    return f(x) + 1.0


ONE_CODE = {
    "closure": lambda f: lambda x: _plus_one(f, x),
    "partial": lambda f: functools.partial(_plus_one, f),
    "default": lambda f: lambda x, f=f: f(x) + 1.0,
}


@pytest.mark.parametrize("more", ONE_CODE.values(), ids=ONE_CODE)
def test_functions_of_one_code_call_others(more):
    def written(x):
        y = np.zeros(6)
        y[1:] = x[1:]
        return y

    f = more(more(more(written)))
    want = plain_np.concatenate([[3.0], X[1:] + 3])
    assert f(X) == pytest.approx(want)
    for way in (ft.jit(f), lambda x: ft.vjp(f, x)[0], lambda x: ft.vmap(f)(x[None])[0]):
        assert way(X) == pytest.approx(want)


def test_a_decorator_that_writes_is_seen():
    def zeroing(f):
        @functools.wraps(f)
        def wrapper(x):
            x = x * 1.0
            x[0] = 0.0
            return f(x)

        return wrapper

    f = zeroing(lambda x: np.sum(x**2))
    for gradient in (ft.grad(f), ft.jit(ft.grad(f)), ft.jacfwd(f)):
        assert gradient(X) == pytest.approx(plain_np.concatenate([[0.0], 2 * X[1:]]))
