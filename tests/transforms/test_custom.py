"""Rules given by the user, in every mode; and values held fixed."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

import functrans as ft
from functrans._core.bind import Tracer
from functrans._transforms.rules.custom import custom_jvp, custom_vjp, stop_gradient
from functrans.errors import (
    ArgumentError,
    CheckError,
    LeakedTracerError,
    ShapeError,
    UnsupportedError,
)
from functrans.testing import check_grads

pytestmark = pytest.mark.usefixtures("unoptimised")

x, y = np.array([0.3, 0.5]), np.array([2.0, -1.0])
for _a in (x, y):
    _a.setflags(write=False)


def plain(x, y):
    return np.sin(x) * y


def forward():
    f = custom_jvp(plain)

    @f.defjvp
    def rule(primals, tangents):
        (x, y), (dx, dy) = primals, tangents
        return f(x, y), np.cos(x) * dx * y + np.sin(x) * dy

    return f


def reverse():
    f = custom_vjp(plain)
    f.defvjp(
        lambda x, y: (f(x, y), (x, y)),
        lambda saved, ct: (ct * np.cos(saved[0]) * saved[1], ct * np.sin(saved[0])),
    )
    return f


KINDS = pytest.mark.parametrize("make", [forward, reverse])


def same(a, b):
    for p, q in zip(ft.tree.leaves(a), ft.tree.leaves(b), strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-13, atol=1e-14)


TRANSFORMS = {
    "value": lambda f: f(x, y),
    "grad": lambda f: ft.grad(lambda x, y: np.sum(f(x, y) ** 2), (0, 1))(x, y),
    "jvp": lambda f: ft.jvp(f, (x, y), (y, x)),
    "vjp": lambda f: ft.vjp(f, x, y)[1](y),
    "linearize": lambda f: ft.linearize(f, x, y)[1](y, x),
    "hessian": lambda f: ft.hessian(lambda x, y: np.sum(f(x, y)), (0, 1))(x, y),
    "reverse over reverse": lambda f: ft.grad(
        lambda x: np.sum(ft.grad(lambda x: np.sum(f(x, y)))(x) ** 2)
    )(x),
    "forward over forward": lambda f: ft.jvp(lambda x: ft.jvp(f, (x, y), (y, x))[1], (x,), (x,)),
    "reverse over forward": lambda f: ft.grad(lambda x: np.sum(ft.jvp(f, (x, y), (y, x))[1]))(x),
    "vmap": lambda f: ft.vmap(f)(x, y),
    "vmap of grad": lambda f: ft.vmap(ft.grad(f, (0, 1)))(x, y),
    "grad of vmap": lambda f: ft.grad(
        lambda x, y: np.sum(ft.vmap(f, (0, None))(x, y) ** 2), (0, 1)
    )(x, 1.5),
    "jvp of vmap": lambda f: ft.jvp(lambda y: ft.vmap(f, (0, None))(x, y), (1.5,), (2.0,)),
    "grad of vmap of grad": lambda f: ft.grad(
        lambda y: np.sum(ft.vmap(ft.grad(f), (0, None))(x, y) ** 2)
    )(1.5),
    "vmap of vmap": lambda f: ft.vmap(ft.vmap(f, (None, 0)), (0, None))(x, y),
    "grad of vmap of vmap": lambda f: ft.grad(
        lambda x: np.sum(ft.vmap(ft.vmap(f, (None, 0)), (0, None))(x, y) ** 2)
    )(x),
}


@KINDS
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_right_rule_is_the_derivative_under(name, make):
    same(TRANSFORMS[name](make()), TRANSFORMS[name](plain))


@KINDS
def test_the_checker_agrees_to_third_order(make):
    check_grads(make(), (x, y), order=3)


def test_the_checker_finds_a_wrong_rule():
    f = custom_jvp(np.sin)
    f.defjvp(lambda xs, ts: (np.sin(xs[0]), np.sin(xs[0]) * ts[0]))
    with pytest.raises(CheckError):
        check_grads(f, (x,))


# ---- the rule is what is used: rules that are not the derivative, and count their runs


def tripled():
    f = custom_jvp(lambda x: x * 1.0)
    f.defjvp(lambda xs, ts: (xs[0] * 1.0, 3 * ts[0]))
    return f


def tripled_back():
    f = custom_vjp(lambda x: x * 1.0)
    f.defvjp(lambda x: (x * 1.0, None), lambda _, ct: (3 * ct,))
    return f


@pytest.mark.parametrize("make", [tripled, tripled_back])
@pytest.mark.parametrize(
    "derive",
    [
        lambda f: ft.grad(f)(2.0),
        lambda f: ft.jvp(f, (2.0,), (1.0,))[1],
        lambda f: ft.vjp(f, 2.0)[1](1.0)[0],
        lambda f: ft.linearize(f, 2.0)[1](1.0),
        lambda f: ft.vmap(ft.grad(f))(x)[0],
        lambda f: ft.grad(lambda x: np.sum(ft.vmap(f)(x)))(x)[0],
        lambda f: ft.jacfwd(f)(x)[0, 0],
        lambda f: ft.jacrev(f)(x)[0, 0],
    ],
)
def test_the_rule_is_used_in_every_mode(make, derive):
    assert float(derive(make())) == 3.0


def test_reverse_mode_runs_a_forward_rule_once():
    runs = []
    f = custom_jvp(np.sin)
    f.defjvp(lambda xs, ts: (runs.append("rule"), (np.sin(xs[0]), np.cos(xs[0]) * ts[0]))[1])
    _, pullback = ft.vjp(f, x)
    pullback(y)
    pullback(y)
    assert runs == ["rule"]


def test_fwd_runs_instead_of_the_function():
    runs = []
    f = custom_vjp(lambda x: runs.append("f") or np.sin(x))
    f.defvjp(lambda x: (runs.append("fwd") or np.sin(x), x), lambda x, ct: (ct * np.cos(x),))
    ft.grad(f)(0.5)
    assert runs == ["fwd"]


def test_bwd_is_only_run_when_there_is_a_cotangent():
    f = custom_vjp(np.sin)
    f.defvjp(lambda x: (np.sin(x), x), lambda x, ct: 1 / 0)
    assert float(ft.grad(lambda x: (f(x), 2 * x)[1])(0.5)) == 2.0


def test_without_a_trace_the_function_itself_runs():
    f = forward()
    assert type(f(x, y)) is np.ndarray
    assert f.__name__ == "plain" and repr(f) == "custom_jvp(plain)"


# ---- containers, other arguments


class Pair(NamedTuple):
    a: object
    b: object


@dataclass
class Layer:
    w: object
    b: object
    kind: str


def test_containers_in_and_out_of_a_forward_rule():
    f = custom_jvp(lambda p, n: {"s": np.sin(p.a) * n, "t": (p.b, n)})

    def rule(primals, tangents):
        (p, n), (dp, dn) = primals, tangents
        assert dn is None and type(dp) is Pair
        return f(p, n), {"s": np.cos(p.a) * dp.a * n, "t": (dp.b, None)}

    f.defjvp(rule)
    g = ft.grad(lambda p: np.sum(f(p, 3)["s"] * f(p, 3)["t"][0]))(Pair(x, y))
    same(g, Pair(3 * np.cos(x) * y, 3 * np.sin(x)))


def test_containers_in_and_out_of_a_reverse_rule():
    f = custom_vjp(lambda layer, x: (layer.w * x + layer.b, layer.w))

    def bwd(saved, ct):
        layer, x = saved
        assert layer.kind == "linear"
        return Layer(ct[0] * x + ct[1], ct[0], None), ct[0] * layer.w

    f.defvjp(lambda layer, x: (f(layer, x), (layer, x)), bwd)

    def loss(layer, x):
        return np.sum(f(layer, x)[0] ** 2) + np.sum(f(layer, x)[1])

    def true(layer, x):
        return np.sum((layer.w * x + layer.b) ** 2) + np.sum(layer.w)

    got = ft.grad(loss, (0, 1))(Layer(x, y, "linear"), y)
    want = ft.grad(true, (0, 1))(Layer(x, y, "linear"), y)
    same((got[0].w, got[0].b, got[1]), (want[0].w, want[0].b, want[1]))


def test_keywords_and_defaults_reach_the_rule_by_position():
    f = custom_jvp(lambda x, power=2, scale=1.0: scale * x**power)

    def rule(primals, tangents):
        x, power, scale = primals
        return f(*primals), scale * power * x ** (power - 1) * tangents[0] + x**power * tangents[2]

    f.defjvp(rule)
    assert float(ft.grad(lambda x: f(x, scale=2.0, power=3))(2.0)) == 24.0
    assert float(ft.grad(lambda x: f(x))(2.0)) == 4.0


def test_strings_integers_and_objects_pass_through():
    f = custom_vjp(lambda x, how, n, fun: getattr(np, how)(x) * n + fun(1))
    f.defvjp(
        lambda x, how, n, fun: (f(x, how, n, fun), (x, n)),
        lambda saved, ct: (ct * np.cos(saved[0]) * saved[1], None, None, None),
    )
    same(ft.grad(lambda x: f(x, "sin", 3, abs))(0.5), 3 * np.cos(0.5))
    same(ft.vmap(ft.grad(lambda x: f(x, "sin", 3, abs)))(x), 3 * np.cos(x))


def test_integer_arrays_are_operands_without_a_tangent():
    f = custom_jvp(lambda x, i: ft.numpy.take(x, i))
    f.defjvp(lambda xs, ts: (f(*xs), ft.numpy.take(ts[0], xs[1]) if ts[1] is None else None))
    rows = np.array([[0, 1], [1, 1]])
    got = ft.vmap(ft.grad(lambda x, i: np.sum(f(x, i))), (None, 0))(x, rows)
    same(got, np.array([[1.0, 1.0], [0.0, 2.0]]))


def test_an_integer_output_has_no_tangent():
    f = custom_jvp(lambda x: (np.argmax(x), x * 2))
    f.defjvp(lambda xs, ts: (f(*xs), (None, 2 * ts[0])))
    same(ft.grad(lambda x: f(x)[1][f(x)[0]])(x), np.array([0.0, 2.0]))


def test_it_decorates_methods():
    class Model:
        def __init__(self, w):
            self.w = w

        @custom_jvp
        def apply(self, x):
            return self.w * x

        apply.defjvp(lambda xs, ts: (xs[0].w * xs[1], 10 * xs[0].w * ts[1]))

    assert float(ft.grad(Model(2.0).apply)(3.0)) == 20.0


def test_complex_values_are_not_conjugated():
    f = custom_vjp(lambda z: z * z)
    f.defvjp(lambda z: (z * z, z), lambda z, ct: (ct * 2 * z,))

    def g(f):
        return ft.grad(lambda z: np.abs(f(z) + 1.0) ** 2)(0.3 + 0.4j)

    same(g(f), g(lambda z: z * z))
    h = custom_jvp(lambda z: z * z)
    h.defjvp(lambda xs, ts: (xs[0] * xs[0], 2 * xs[0] * ts[0]))
    same(g(h), g(lambda z: z * z))


@KINDS
def test_float32_stays(make):
    a = x.astype(np.float32)
    f = make()
    gx, gy = ft.grad(lambda x, y: np.sum(f(x, y)), (0, 1))(a, a)
    assert (gx.dtype, gy.dtype) == (np.float32, np.float32)
    assert ft.jvp(f, (a, a), (a, a))[1].dtype == np.float32


# ---- closures: the rule for the arguments, ordinary differentiation for the rest


def closing_forward(w):
    g = custom_jvp(lambda x: np.sin(x) * w)
    g.defjvp(lambda xs, ts: (np.sin(xs[0]) * w, np.cos(xs[0]) * ts[0] * w))
    return g


def closing_reverse(w):
    g = custom_vjp(lambda x: np.sin(x) * w)
    g.defvjp(
        lambda x: (np.sin(x) * w, (x, w)), lambda saved, ct: (np.cos(saved[0]) * ct * saved[1],)
    )
    return g


def closed(make):
    return lambda w, x: np.sum(make(w)(x * w) ** 2)


def opened(w, x):
    return np.sum((np.sin(x * w) * w) ** 2)


CLOSING = {
    "grad": lambda f: ft.grad(f)(1.5, x),
    "grad of both": lambda f: ft.grad(f, (0, 1))(1.5, x),
    "jvp": lambda f: ft.jvp(lambda w: f(w, x), (1.5,), (1.0,)),
    "vjp": lambda f: ft.vjp(lambda w: f(w, x), 1.5)[1](2.0),
    "linearize": lambda f: ft.linearize(lambda w: f(w, x), 1.5)[1](2.0),
    "vmap": lambda f: ft.vmap(f, (0, None))(y, x),
    "vmap of grad": lambda f: ft.vmap(ft.grad(f), (0, None))(y, x),
    "grad of vmap": lambda f: ft.grad(lambda w: np.sum(ft.vmap(f, (0, None))(w, x)))(y),
    "second derivative": lambda f: ft.derivative(ft.derivative(lambda w: f(w, x)))(1.5),
    "grad in x inside grad in w": lambda f: ft.grad(lambda w: np.sum(ft.grad(f, 1)(w, x)))(1.5),
    "grad of grad": lambda f: ft.grad(lambda w: ft.grad(f)(w, x))(1.5),
}


@pytest.mark.parametrize("make", [closing_forward, closing_reverse])
@pytest.mark.parametrize("name", CLOSING)
def test_closed_over_traced_values_count(name, make):
    same(CLOSING[name](closed(make)), CLOSING[name](opened))


@pytest.mark.parametrize("make", [closing_forward, closing_reverse])
def test_a_closed_over_value_of_an_inner_transform_is_refused(make):
    with pytest.raises(
        UnsupportedError, match=r"closes over a value traced by grad.*Pass that value"
    ):
        ft.grad(lambda x: ft.grad(lambda w: np.sum(make(w)(x)))(1.5))(x[0])


def test_a_backward_rule_that_closes_over_an_ended_trace_says_so():
    def loss(w):
        g = custom_vjp(lambda x: x * w)
        g.defvjp(lambda x: (x * w, None), lambda _, ct: (ct * w,))
        return g(w)

    assert float(ft.grad(loss)(3.0)) == 6.0
    _, pullback = ft.vjp(loss, 3.0)
    with pytest.raises(LeakedTracerError) as info:
        pullback(1.0)
    assert "make it a residual" in info.value.__notes__[0]


# ---- what does not fit is said


def with_rule(rule):
    f = custom_jvp(lambda x: x * 1.0)
    f.__name__ = "f"
    f.defjvp(rule)
    return f


@pytest.mark.parametrize(
    ("rule", "error", "text"),
    [
        (
            lambda xs, ts: xs[0],
            ArgumentError,
            r"the rule must return \(output, its tangent\), but returned float64",
        ),
        (lambda xs, ts: (xs[0], (ts[0], ts[0])), ArgumentError, "tangent"),
        (
            lambda xs, ts: (xs[0], np.sum(ts[0])),
            ShapeError,
            r"tangent has shape \(\), but the output",
        ),
        (
            lambda xs, ts: (xs[0], ts[0] * 1j),
            ArgumentError,
            "tangent has dtype complex128, but the output",
        ),
        (lambda xs, ts: (xs[0], "t"), ArgumentError, "tangent must be an array, but is str 't'"),
        (lambda xs, ts: ("y", ts[0]), ArgumentError, "the rule returned str 'y', not a number"),
    ],
)
@pytest.mark.parametrize(
    "derive",
    [
        lambda f: ft.jvp(f, (x,), (x,)),
        lambda f: ft.vjp(f, x),
        lambda f: ft.jvp(ft.vmap(f), (x[None],), (x[None],)),
    ],
)
def test_a_forward_rule_with_a_wrong_result(rule, error, text, derive):
    with pytest.raises(error, match=text):
        derive(with_rule(rule))


@pytest.mark.parametrize(
    "rule",
    [
        lambda xs, ts: (xs[0], np.ones(2)),
        lambda xs, ts: (xs[0], ts[0] + 1.0),
    ],
)
def test_a_forward_rule_that_is_not_linear(rule):
    with pytest.raises(ArgumentError, match="is not zero where all tangents are zero"):
        ft.vjp(with_rule(rule), x)


def with_bwd(bwd, fwd=lambda x, y: (x * y, (x, y))):
    f = custom_vjp(lambda x, y: x * y)
    f.defvjp(fwd, bwd)
    return f


@pytest.mark.parametrize(
    ("bwd", "error", "text"),
    [
        (lambda r, ct: ct, ArgumentError, "bwd must return a tuple of 2 cotangents, one for each"),
        (lambda r, ct: (ct,), ArgumentError, "bwd must return a tuple of 2 cotangents"),
        (
            lambda r, ct: (ct, (ct, ct)),
            ArgumentError,
            r"cotangent must be an array, but is \(float64\[2\], float64\[2\]\)",
        ),
        (lambda r, ct: (np.sum(ct), ct), ShapeError, r"cotangent has shape \(\), but the argument"),
        (
            lambda r, ct: (ct * 1j, ct),
            ArgumentError,
            "cotangent has dtype complex128, but the argument",
        ),
        (lambda r, ct: ("c", ct), ArgumentError, "cotangent must be an array, but is str 'c'"),
    ],
)
@pytest.mark.parametrize(
    "derive",
    [
        lambda f: ft.vjp(f, x, y)[1](x),
        lambda f: ft.jvp(f, (x, y), (x, y)),
    ],
)
def test_a_backward_rule_with_a_wrong_result(bwd, error, text, derive):
    with pytest.raises(error, match=text):
        derive(with_bwd(bwd))


def test_a_cotangent_with_another_structure():
    f = custom_vjp(lambda p: p["a"] * p["b"])
    f.defvjp(lambda p: (f(p), p), lambda p, ct: ({"a": ct},))
    with pytest.raises(
        ArgumentError, match=r"cotangent of argument 0 with structure {'a': \*} where {'a': \*, 'b'"
    ):
        ft.grad(f)({"a": 1.0, "b": 2.0})


def test_a_forward_pass_with_a_wrong_result():
    with pytest.raises(
        ArgumentError, match=r"fwd must return \(output, residuals\), but returned float64"
    ):
        ft.vjp(with_bwd(None_bwd, fwd=lambda x, y: x * y), x, y)


def None_bwd(residuals, ct):
    return None, None


def test_none_is_a_zero_cotangent():
    gx, gy = ft.grad(lambda x, y: np.sum(with_bwd(None_bwd)(x, y)), (0, 1))(x, y)
    same((gx, gy), (np.zeros(2), np.zeros(2)))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: custom_jvp(np.sin)(x),
            r"custom_jvp\(sin\) has no rule; set it with .defjvp\(rule\)",
        ),
        (
            lambda: custom_vjp(np.sin)(x),
            r"custom_vjp\(sin\) has no rule; set it with .defvjp\(fwd, bwd\)",
        ),
        (lambda: custom_jvp(3), "custom_jvp needs a function, but got int 3"),
        (
            lambda: custom_jvp(np.sin).defjvp(3),
            r"custom_jvp\(sin\).defjvp needs functions, but got int 3",
        ),
        (
            lambda: custom_vjp(np.sin).defvjp(np.sin, None),
            r"custom_vjp\(sin\).defvjp needs functions",
        ),
    ],
)
def test_bad_declarations(make, text):
    with pytest.raises(ArgumentError, match=text):
        make()


def test_keyword_only_parameters_are_refused():
    f = custom_jvp(lambda x, *, n: x * n)
    f.defjvp(lambda xs, ts: (xs[0], ts[0]))
    with pytest.raises(
        ArgumentError, match="'n' can only be given by keyword, but rules take positional"
    ):
        f(x, n=2)


def test_keywords_of_a_ufunc_are_refused():
    f = custom_jvp(np.sin)
    f.defjvp(lambda xs, ts: (np.sin(xs[0]), np.cos(xs[0]) * ts[0]))
    with pytest.raises(ArgumentError, match="takes no keywords: `sin` has no signature"):
        f(x, dtype=np.float32)


# ---- stop_gradient


@pytest.mark.parametrize("number", [float, int, lambda x: float(f"{x}")])
def test_a_number_of_a_stopped_value_is_a_constant(number):
    def f(x):
        return x * x * number(stop_gradient(x))

    compiled = ft.jit(f)
    for x in (2.0, 3.0):
        assert compiled(x) == x**3
        for g in (ft.grad(f), ft.grad(compiled), ft.jit(ft.grad(f)), ft.jit(ft.grad(compiled))):
            assert g(x) == 2 * x * x
        assert ft.jvp(compiled, (x,), (1.0,)) == (x**3, 2 * x * x)
        assert ft.grad(ft.grad(compiled))(x) == ft.jit(ft.grad(ft.grad(f)))(x) == 2 * x
    assert (ft.vmap(ft.grad(compiled))(np.array([2.0, 3.0])) == [8, 18]).all()


def test_compiled_functions_follow_what_may_move():
    @ft.jit
    def f(x, y):
        return x * y, stop_gradient(x) * 2, np.floor(x) + stop_gradient(y), y * 3

    moved = []

    def g(x):
        outs = f(x, 2.0)
        moved.extend([isinstance(v, Tracer) for v in outs])
        return outs[0] + outs[1] * outs[3]

    assert ft.grad(g)(1.5) == 2.0
    assert moved == [True, False, False, False]


def test_stop_gradient_is_constant_in_every_mode():
    def f(x):
        return np.sum(x * stop_gradient(x * 2))

    same(ft.grad(f)(x), 2 * x)
    same(ft.jvp(f, (x,), (y,))[1], np.sum(2 * x * y))
    same(ft.hessian(f)(x), np.zeros((2, 2)))


def test_stop_gradient_is_still_batched():
    same(ft.vmap(lambda x: stop_gradient(x * 2))(x), 2 * x)
    same(ft.vmap(ft.grad(lambda x: x * stop_gradient(x)))(x), x)


@pytest.mark.parametrize("rule", [custom_jvp, custom_vjp])
def test_what_a_rule_returns_goes_on_in_the_dtype_of_the_value(rule):
    seen = []

    def note(x):
        seen.append(x.dtype)
        return x

    wide, last = rule(lambda x: 2 * x), rule(lambda x: x + 0)
    if rule is custom_jvp:
        wide.defjvp(lambda xs, ts: (wide(*xs), 2 * ts[0].astype(np.float64)))
        last.defjvp(lambda xs, ts: (last(*xs), note(ts[0])))
    else:
        last.defvjp(lambda x: (last(x), None), lambda _, ct: (ct.astype(np.float64),))
        wide.defvjp(lambda x: (wide(x), None), lambda _, ct: (2 * note(ct),))
    a = x.astype(np.float32)
    ft.jvp(lambda x: last(wide(x)), (a,), (a,))
    ft.vjp(lambda x: last(wide(x)), a)[1](a)
    assert seen and set(seen) == {np.dtype(np.float32)}


def test_stop_gradient_keeps_containers_dtypes_and_weak_scalars():
    p = {"a": x.astype(np.float32), "s": "text", "n": 3, "f": 2.0, "none": None}
    q = stop_gradient(p)
    assert q["a"].dtype == np.float32 and q["s"] == "text" and q["none"] is None
    assert type(q["n"]) is int and type(q["f"]) is float


def test_what_stop_gradient_returns_cannot_be_changed():
    def f(x):
        stop_gradient(x)[0] = 1.0
        return np.sum(x)

    with pytest.raises(TypeError, match="cannot be assigned"):
        ft.grad(f)(x)


def test_stop_gradient_gives_python_a_number():
    assert float(ft.grad(lambda x: x * float(stop_gradient(x)))(3.0)) == 3.0


BODIES = {
    "a branch": lambda x: ft.cond(np.sum(x) > 0, lambda x: np.sum(x * x), np.sum, x),
    "a loop": lambda x: np.sum(ft.fori_loop(0, 3, lambda i, c: c * x, x)),
    "a scan": lambda x: np.sum(np.sin(ft.scan(lambda c, v: (c * v, c + v), 1.0, x)[1])),
    "a checkpoint": lambda x: ft.checkpoint(lambda z: np.sum(z * x))(x),
}


@pytest.mark.parametrize("name", BODIES)
def test_under_jit_a_rule_may_push_through(name):
    f = BODIES[name]
    ruled = custom_jvp(f)
    ruled.defjvp(lambda primals, tangents: ft.jvp(f, primals, tangents))
    expected = ft.grad(f)(x)
    for g in (ft.grad(ruled), ft.jit(ft.grad(ruled)), ft.grad(ft.jit(ruled))):
        np.testing.assert_allclose(g(x), expected, rtol=1e-14)
    slope = ft.jit(lambda x: ft.jvp(ft.grad(ruled), (x,), (y,))[1])(x)
    np.testing.assert_allclose(slope, ft.jvp(ft.grad(f), (x,), (y,))[1], rtol=1e-13)


@pytest.mark.parametrize("make", [ft.grad, ft.jacfwd, lambda f: ft.jit(ft.grad(f)),
                                  lambda f: lambda x: ft.vmap(ft.grad(f))(x[None])[0]])
def test_rules_are_given_the_arguments_of_nondiff_argnums_first(make):
    apply = ft.custom_vjp(lambda f, x, n: f(x) * n, nondiff_argnums=(2, 0))
    apply.defvjp(lambda f, x, n: (apply(f, x, n), x),
                 lambda f, n, x, ct: (100 * n * x * ct if f is np.sin else np.nan,))
    pushed = ft.custom_jvp(lambda f, x: f(x), nondiff_argnums=0)
    pushed.defjvp(lambda f, xs, ts: (f(*xs), 10 * ts[0]))

    def f(x):
        return np.sum(apply(np.sin, x, n=3) + pushed(np.cos, x))

    np.testing.assert_allclose(make(f)(np.array([1.0, 2.0])), [310, 610], rtol=1e-14)


@pytest.mark.parametrize(("nondiff", "text"), [
    (1, "argument 1 is one of nondiff_argnums, .* but holds an array"),
    (2, "nondiff_argnums names argument 2, but there are 2"),
    (-1, "positions of arguments, counted from 0, but got -1"),
])
def test_nondiff_argnums_that_cannot_be_are_refused(nondiff, text):
    with pytest.raises(ArgumentError, match=text):
        f = ft.custom_vjp(lambda n, x: n * x, nondiff_argnums=nondiff)
        f.defvjp(lambda n, x: (n * x, None), lambda n, _, ct: (n * ct,))
        ft.grad(lambda x: f(2, x))(1.0)
