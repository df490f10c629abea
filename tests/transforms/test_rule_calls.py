"""Functions with rules of their own, and closures, in programs: each is one equation or operand."""

import dataclasses
import functools
import itertools
import queue
import threading
from contextvars import Context

import numpy as np
import pytest

import functrans as ft
from functrans._compile.ir.program import Program, Structured
from functrans._compile.ir.structured import Branch, Loop, Ruled
from functrans._compile.schedule.kernels import HostStep
from functrans.errors import ConcretizationError, ShapeError, UnsupportedError
from tests.covering import covering
from tests.transforms.test_custom import (
    CLOSING,
    TRANSFORMS,
    closed,
    closing_forward,
    closing_reverse,
    forward,
    opened,
    plain,
    reverse,
    same,
)

pytestmark = pytest.mark.usefixtures("unoptimised")

x = np.array([0.3, 0.5])
x.setflags(write=False)


def tripled():
    f = ft.custom_jvp(lambda v: v * 1.0)
    f.defjvp(lambda vs, ts: (f(vs[0]), 3 * ts[0]))
    return f


def tripled_back():
    f = ft.custom_vjp(lambda v: v * 1.0)
    f.defvjp(lambda v: (f(v), None), lambda _, ct: (3 * ct,))
    return f


WRONG = pytest.mark.parametrize("make", [tripled, tripled_back])


def rows(program):
    """The rows of its equations that hold programs, at any depth."""
    for eqn in program.eqns:
        if isinstance(eqn.prim, Structured):
            yield eqn.prim
            for inner in eqn.prim.programs.values():
                yield from rows(inner)


def runs_natively(lowered):
    steps = lowered.schedule.steps
    return steps and not any(isinstance(s, HostStep) for s in steps)


# ---- the rule is used in every mode, and is kept wherever the function is called


def in_scan(f):
    return lambda v: ft.scan(lambda c, _: (f(c), None), v, None, length=1)[0]


def in_while(f):
    return lambda v: ft.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, f(c[1])), (0, v),
                                   max_steps=3)[1]


PLACES = {
    "by itself": lambda f: f,
    "in scan": in_scan,
    "in fori_loop": lambda f: lambda v: ft.fori_loop(0, 1, lambda i, c: f(c), v),
    "in while_loop": in_while,
    "in a branch": lambda f: lambda v: ft.cond(v > 0, f, lambda v: v, v),
    "in a checkpoint": ft.checkpoint,
    "in another jit": lambda f: lambda v: ft.jit(f)(v) * 1.0,
    "in a scan in a jit in a vmap": lambda f: lambda v: ft.vmap(ft.jit(in_scan(f)))(
        np.stack([v, v])
    )[1],
    "in a rule": lambda f: ruled_around(f),
}


def ruled_around(f):
    g = ft.custom_jvp(lambda v: f(v))
    g.defjvp(lambda vs, ts: (f(vs[0]), ft.jvp(f, (vs[0],), (ts[0],))[1]))
    return g


MODES = {
    "grad of jit": lambda f: ft.grad(ft.jit(f))(2.0),
    "jit of grad": lambda f: ft.jit(ft.grad(f))(2.0),
    "jvp of jit": lambda f: ft.jvp(ft.jit(f), (2.0,), (1.0,))[1],
    "jit of jvp": lambda f: ft.jit(lambda v: ft.jvp(f, (v,), (1.0,))[1])(2.0),
    "vjp of jit": lambda f: ft.vjp(ft.jit(f), 2.0)[1](1.0)[0],
    "linearize of jit": lambda f: ft.linearize(ft.jit(f), 2.0)[1](1.0),
    "vmap of grad of jit": lambda f: ft.vmap(ft.grad(ft.jit(f)))(x)[0],
    "jit of vmap of grad": lambda f: ft.jit(ft.vmap(ft.grad(f)))(x)[1],
    "grad of vmap of jit": lambda f: ft.grad(lambda v: np.sum(ft.vmap(ft.jit(f))(v)))(x)[0],
    "grad of jit of vmap": lambda f: ft.grad(lambda v: np.sum(ft.jit(ft.vmap(f))(v)))(x)[0],
    "second derivative of jit": lambda f: ft.grad(ft.grad(ft.jit(lambda v: f(v) * v / 2)))(2.0),
    "jit of second derivative": lambda f: ft.jit(ft.grad(ft.grad(lambda v: f(v) * v / 2)))(2.0),
    "hessian of jit": lambda f: ft.hessian(ft.jit(lambda v: f(v) * v / 2))(np.float64(2.0)),
}


@pytest.mark.parametrize(("make", "place", "mode"),
                         covering([tripled, tripled_back], PLACES, MODES))
def test_a_rule_that_is_not_the_derivative_shows(make, place, mode):
    assert float(MODES[mode](PLACES[place](make()))) == 3.0


@WRONG
def test_jet_of_a_compiled_function_uses_the_rule(make):
    assert float(ft.jet(ft.jit(make()), 2.0, [1.0])[1][0]) == 3.0


@pytest.mark.parametrize("make", [forward, reverse])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_right_rule_is_the_derivative_of_a_compiled_function_under(name, make):
    want = TRANSFORMS[name](plain)
    same(TRANSFORMS[name](ft.jit(make())), want)
    f = make()
    same(TRANSFORMS[name](ft.jit(lambda x, y: in_scan(lambda c: f(x, c))(y))), want)


def test_a_rule_is_differentiated_through_the_rules_that_it_calls():
    inner = ft.custom_jvp(lambda v: v * 1.0)
    inner.defjvp(lambda vs, ts: (inner(vs[0]), 5 * ts[0]))
    outer = ft.custom_vjp(lambda v: inner(v) ** 2)
    outer.defvjp(lambda v: (outer(v), v), lambda v, ct: (7 * inner(v) * ct,))
    second = ft.grad(ft.grad(ft.jit(outer)))(3.0)
    assert float(ft.grad(ft.jit(outer))(3.0)) == 21.0
    assert float(second) == float(ft.jit(ft.grad(ft.grad(outer)))(3.0)) == 35.0


# ---- what arguments and results may be


def test_a_compiled_call_takes_containers_keywords_and_static_arguments():
    f = ft.custom_vjp(lambda p, how, scale=2.0: {"y": getattr(np, how)(p["w"]) * scale, "n": 3})

    def bwd(saved, ct):
        w, n = saved
        assert n == 4
        return {"w": 10 * ct["y"] * w, "k": None}, None, None

    f.defvjp(lambda p, how, scale: (f(p, how, scale), (p["w"], 4)), bwd)

    def loss(w, k):
        return np.sum(f({"w": w, "k": k}, how="sin")["y"])

    k = np.arange(2)
    same(ft.grad(ft.jit(loss))(x, k), ft.grad(loss)(x, k))
    same(ft.grad(ft.jit(loss))(x, k), 10 * x)


def test_integer_operands_and_results_of_a_compiled_call_have_no_derivative():
    f = ft.custom_jvp(lambda v, i: (np.argmax(v) + i, v * 2.0))
    f.defjvp(lambda vs, ts: (f(*vs), (None, 2.0 * ts[0] if ts[1] is None else None)))
    loss = ft.jit(lambda v, i: np.sum(f(v, i)[1] * f(v, i)[0]))
    same(ft.grad(loss)(x, 1), np.array([4.0, 4.0]))
    same(ft.vmap(ft.grad(loss), (0, None))(x[None], 1), np.array([[4.0, 4.0]]))
    same(ft.jvp(lambda v: loss(v, 1), (x,), (x,))[1], 4.0 * np.sum(x))


def test_operands_that_are_not_batched_get_the_sum_of_the_cotangents():
    f = ft.custom_vjp(lambda w, v: w * v)
    f.defvjp(lambda w, v: (w * v, (w, v)), lambda s, ct: (3 * ct * s[1], 5 * ct * s[0]))
    loss = ft.jit(lambda w, v: np.sum(ft.vmap(f, (None, 0))(w, v)))
    gw, gv = ft.grad(loss, (0, 1))(2.0, x)
    same((gw, gv), (3 * np.sum(x), np.array([10.0, 10.0])))
    over = ft.grad(lambda w, v: np.sum(ft.vmap(ft.jit(f), (None, 0))(w, v)), (0, 1))
    same(over(2.0, x), (gw, gv))


@WRONG
@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
def test_dtypes_stay_in_a_compiled_call(make, dtype):
    v = np.array([0.3, 0.5], dtype)
    loss = ft.jit(lambda v: np.real(np.sum(make()(v) * 2)))
    g = ft.grad(loss)(v)
    assert g.dtype == dtype
    same(g, np.full(2, 6, dtype))


def test_an_empty_array_passes_a_compiled_call():
    assert ft.grad(ft.jit(lambda v: np.sum(tripled()(v))))(np.zeros(0)).shape == (0,)


# ---- native, and no Python twice


def counted():
    runs = []
    f = ft.custom_vjp(lambda v: runs.append("f") or np.sin(v))
    f.defvjp(
        lambda v: (runs.append("fwd") or np.sin(v), v),
        lambda v, ct: (runs.append("bwd") or 2 * ct * np.cos(v),),
    )
    return f, runs


@pytest.mark.parametrize("place", [p for p in PLACES if p != "in a rule"])
def test_no_python_of_the_user_runs_twice(place):
    f, runs = counted()
    compiled = ft.jit(PLACES[place](f))
    values = np.array([0.5, 0.7, 0.9])
    for v in values:
        same(compiled(v), np.sin(v))
    assert runs == ["f"]
    for v in values:
        same(ft.grad(compiled)(v), 2 * np.cos(v))
    assert sorted(runs) == ["bwd", "f", "fwd"]


@pytest.mark.parametrize("place", PLACES)
def test_a_program_with_rules_runs_natively(place):
    for make in (forward, reverse):
        f = make()
        g = PLACES[place](lambda v, f=f: f(v, v))
        assert runs_natively(ft.jit(g).lower(0.5))
        assert runs_natively(ft.jit(ft.grad(g)).lower(0.5))


@WRONG
def test_loops_with_rules_are_one_equation(make):
    f = make()
    (loop,) = [r for r in rows(ft.jit(in_while(f)).lower(2.0).optimised)]
    assert type(loop) is Loop
    staged = {type(r) for r in rows(ft.jit(in_while(f)).lower(2.0).program)}
    assert staged == {Loop, Ruled}


def test_a_rule_call_is_an_equation_that_what_is_run_has_written_out():
    lowered = ft.jit(lambda v: np.sin(tripled()(v))).lower(x)
    assert [line.split("#")[0].strip() for line in repr(lowered.program).split("\n")] == [
        "{ lambda a:float64[2]",
        "b:float64[2] = custom_jvp(<lambda>) a",
        "function { lambda c:float64[2]",
        "d:float64[2] = multiply c 1.0",
        "return d }",
        "e:float64[2] = sin b",
        "return e }",
    ]
    assert [eqn.prim.name for eqn in lowered.optimised.eqns] == ["sin"]


def test_a_rule_that_fails_is_not_run_for_the_value():
    f = ft.custom_vjp(np.sin)
    f.defvjp(lambda v: 1 / 0, lambda v, ct: 1 / 0)
    compiled = ft.jit(f)
    same(compiled(0.5), np.sin(0.5))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            ft.grad(compiled)(0.5)


# ---- rules that close over values


@pytest.mark.parametrize("make", [closing_forward, closing_reverse])
@pytest.mark.parametrize("name", CLOSING)
def test_closed_over_values_count_in_compiled_functions(name, make):
    want = CLOSING[name](opened)
    same(CLOSING[name](lambda w, x: ft.jit(closed(make))(w, x)), want)
    same(CLOSING[name](lambda w, x: ft.jit(lambda x: closed(make)(w, x))(x)), want)

    def in_loop(w, x):
        return ft.fori_loop(0, 1, lambda i, c: c + closed(make)(w, x), 0.0)

    same(CLOSING[name](lambda w, x: ft.jit(in_loop)(w, x)), want)


def scaled(s):
    """The identity, whose gradient is scaled by what only its rule knows."""
    f = ft.custom_vjp(lambda v: v * 1.0)
    t = np.sin(s)
    f.defvjp(lambda v: (v * 1.0, None), lambda _, ct: (ct * np.cos(t * s),))
    return f


SCALED = {
    "grad": lambda f: ft.grad(f)(2.0, 7.0),
    "vmap over what is closed over": lambda f: ft.vmap(ft.grad(f), (None, 0))(2.0, x),
    "vmap over the argument": lambda f: ft.vmap(ft.grad(f), (0, None))(x, 7.0),
    "its derivative": lambda f: ft.grad(lambda s: ft.grad(f)(2.0, s))(7.0),
}


@pytest.mark.parametrize("name", SCALED)
def test_a_rule_may_close_over_what_the_function_does_not_use(name):
    def f(v, s):
        return scaled(s)(v) * s

    same(SCALED[name](ft.jit(f)), SCALED[name](f))


def test_a_backward_rule_that_keeps_a_value_of_fwd_to_itself_is_refused():
    kept = []
    f = ft.custom_vjp(lambda v: v * 1.0)
    f.defvjp(lambda v: (kept.append(v), (v * 1.0, None))[1], lambda _, ct: (ct * kept[0],))
    with pytest.raises(UnsupportedError, match=r"bwd of custom_vjp.*closes over a value traced by "
                       r"fwd of custom_vjp.*return it from fwd among the residuals"):
        ft.grad(ft.jit(f))(2.0)


@pytest.mark.parametrize("make", [closing_forward, closing_reverse])
def test_a_value_of_an_inner_transform_is_refused_when_the_argument_is_differentiated(make):
    def inner(v):
        return ft.grad(lambda w: np.sum(make(w)(v)))(1.5)

    same(ft.jit(inner)(0.5), np.sin(0.5))
    with pytest.raises(UnsupportedError, match=r"closes over a value traced by .*Pass that value"):
        ft.grad(ft.jit(inner))(0.5)


@pytest.mark.parametrize("make", [closing_forward, closing_reverse])
def test_a_value_that_jet_expands_is_refused(make):
    with pytest.raises(UnsupportedError, match=r"closes over a value that jet.*expands"):
        ft.jet(ft.jit(lambda w: np.sum(make(w)(x * w))), 1.5, [1.0])


def test_a_rule_that_returns_another_shape_than_its_function_is_refused():
    f = ft.custom_jvp(lambda v: np.sum(v))
    f.defjvp(lambda vs, ts: (vs[0], ts[0]))
    with pytest.raises(ShapeError, match=r"custom_jvp.*the rule returned float64\[2\] as an output "
                       r"that the function itself returned as float64\[\]"):
        ft.grad(ft.jit(f))(x)


def test_a_rule_that_returns_a_float_for_an_integer_is_refused():
    f = ft.custom_jvp(np.argmax)
    f.defjvp(lambda vs, ts: (np.max(vs[0]), np.max(ts[0])))
    with pytest.raises(ShapeError, match=r"returned float64.* itself returned as int64"):
        ft.grad(ft.jit(lambda v: f(v) * v[0]))(x)


def test_a_program_by_itself_cannot_close_over_traced_values():
    with pytest.raises(UnsupportedError, match=r"make_program.*closes over .* traced by grad.*"
                       "Pass that value as an argument"):
        ft.grad(lambda w: ft.make_program(lambda v: v * w)(1.0))(2.0)


# ---- jit lifts what functions close over


class Held:
    w: object = np.array([1.0, 2.0])


def lifting():
    """A compiled function of ``x`` and of ``Held.w``, a function of ``w``, and its runs."""
    runs = []

    @ft.jit
    def inner(v):
        runs.append("run")
        return np.sum(Held.w**2 * v)

    def loss(w):
        before, Held.w = Held.w, w
        try:
            return inner(x)
        finally:
            Held.w = before

    return inner, loss, runs


def test_traced_values_that_a_compiled_function_closes_over_are_never_frozen():
    inner, loss, runs = lifting()
    w = np.array([1.0, 2.0])
    for k in (1.0, 2.0, 3.0):
        same(inner(x), np.sum(w**2 * x))
        same(ft.grad(loss)(k * w), 2 * k * w * x)
        same(ft.jvp(loss, (k * w,), (w,))[1], np.sum(2 * k * w * x * w))
        both = [np.sum(w**2 * x), np.sum((k * w) ** 2 * x)]
        same(ft.vmap(loss)(np.stack([w, k * w])), np.array(both))
        same(ft.hessian(loss)(k * w), np.diag(2 * x))
        same(ft.grad(lambda w: loss(w) * loss(2 * w))(k * w), 16 * k**3 * w * x * np.sum(w**2 * x))
        same(ft.jit(loss)(k * w), np.sum((k * w) ** 2 * x))
    assert len(runs) == 2  # plain and traced


def test_each_operand_is_read_where_it_stands():
    held = [1.0, 2.0, 3.0, 4.0]
    inner = ft.jit(lambda v: held[3] / held[1] * v)

    def loss(*values):
        held[:] = values
        return inner(6.0)

    for k in (1.0, 2.0):
        gradient = ft.grad(loss, (0, 1, 2, 3))(5.0, 2.0 * k, 7.0, 8.0)
        same(gradient, (0.0, -12.0 / k**2, 0.0, 3.0 / k))


def test_a_closure_is_staged_once_for_many_calls():
    _, loss, runs = lifting()
    for k in range(5):
        ft.grad(loss)(np.array([1.0, 2.0]) * k)
    assert runs == ["run"]


def of_variable():
    w = 2.0
    inner = ft.jit(lambda v: w * v)

    def loss(new):
        nonlocal w
        before, w = w, new
        try:
            return inner(3.0)
        finally:
            w = before

    return inner, loss


def of_container():
    params = {"w": 2.0}
    inner = ft.jit(lambda v: params["w"] * v)

    def loss(new):
        params["w"] = new
        try:
            return inner(3.0)
        finally:
            params["w"] = 2.0

    return inner, loss


def of_attribute(cls):
    model = cls()
    model.w = 2.0
    inner = ft.jit(model.apply)

    def loss(new):
        model.w = new
        try:
            return inner(3.0)
        finally:
            model.w = 2.0

    return inner, loss


class Model:
    def apply(self, v):
        return self.scaled(v)

    def scaled(self, v):
        return getattr(self, "w") * v  # noqa: B009  # a name that is a string is seen as well


class Slotted:
    __slots__ = ("w",)

    def apply(self, v):
        return self.weight * v

    @property
    def weight(self):
        return self.w


def of_function():
    def weight():
        return weight.w

    weight.w = 2.0
    inner = ft.jit(lambda v: weight() * v)

    def loss(new):
        weight.w = new
        try:
            return inner(3.0)
        finally:
            weight.w = 2.0

    return inner, loss


def of_tuple():
    pair = (2.0, "text")
    inner = ft.jit(lambda v: pair[0] * v)

    def loss(new):
        nonlocal pair
        before, pair = pair, (new, "text")
        try:
            return inner(3.0)
        finally:
            pair = before

    return inner, loss


@dataclasses.dataclass
class Record:
    w: object = 2.0

    def apply(self, v):
        return self.w * v


def of_helper():
    w = [2.0]
    weight = ft.vmap(lambda _: w[0])
    inner = ft.jit(lambda v: weight(np.zeros(1))[0] * v)

    def loss(new):
        w[:] = [new]
        try:
            return inner(3.0)
        finally:
            w[:] = [2.0]

    return inner, loss


HOLDERS = {
    "a variable": of_variable,
    "a container": of_container,
    "an attribute": lambda: of_attribute(Model),
    "an attribute of a function": of_function,
    "a tuple": of_tuple,
    "a dataclass": lambda: of_attribute(Record),
    "a slot": lambda: of_attribute(Slotted),
    "what a helper closes over": of_helper,
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_traced_value_is_seen_in(holder):
    inner, loss = HOLDERS[holder]()
    for _ in range(3):
        assert float(inner(3.0)) == 6.0
        assert float(ft.grad(loss)(5.0)) == 3.0
        assert float(ft.grad(lambda w: loss(w) ** 2)(5.0)) == 90.0
        assert float(inner(4.0)) == 8.0


def test_a_traced_value_that_hides_is_right_at_each_call():
    box = iter(())
    inner = ft.jit(lambda v: next(box) * v)

    def loss(w):
        nonlocal box
        box = iter([w])
        return inner(3.0)

    for k in (1.0, 2.0):
        assert float(ft.grad(lambda w, k=k: k * loss(w))(5.0)) == 3.0 * k


def test_a_decision_by_a_traced_value_that_is_closed_over_is_part_of_the_path():
    w = 0.0
    inner = ft.jit(lambda v: w * v if w > 0 else w**2 * v)
    chosen = ft.jit(lambda v: ft.cond(w > 0, lambda: w * v, lambda: w**2 * v))

    def loss(inner, new):
        nonlocal w
        w = new
        return inner(3.0)

    for new, slope in ((2.0, 3.0), (-2.0, -12.0), (4.0, 3.0)):
        assert float(ft.grad(lambda w: loss(inner, w))(new)) == slope
        assert float(ft.grad(lambda w: loss(chosen, w))(new)) == slope


def test_traced_values_in_a_partial_are_right_at_each_call():
    part = functools.partial(np.multiply, 2.0)
    inner = ft.jit(lambda v: part(v))

    def loss(new):
        nonlocal part
        part = functools.partial(np.multiply, new)
        try:
            return inner(3.0)
        finally:
            part = functools.partial(np.multiply, 2.0)

    for k in (1.0, 2.0):
        assert float(inner(3.0)) == 6.0
        assert float(ft.grad(lambda w, k=k: k * loss(w))(5.0)) == 3.0 * k


def test_what_is_closed_over_stands_where_it_was_after_staging_fails():
    pair = ("text", 2.0)
    inner = ft.jit(lambda v: pair[1] * np.linalg.norm(v, pair[0]))

    def loss(new):
        nonlocal pair
        pair = mine = ("text", new)
        with pytest.raises(ValueError, match="text"):
            inner(x)
        assert pair[1] is mine[1]
        return new

    ft.grad(loss)(5.0)


def test_plain_values_beside_a_traced_one_are_read_anew():
    pair = {}
    inner = ft.jit(lambda v: pair["w"] * pair["b"] * v)

    def loss(w, b):
        pair["w"], pair["b"] = w, b
        return inner(3.0)

    for b in (1.0, 2.0, np.float64(3.0), np.array(4.0)):
        assert float(ft.grad(loss)(5.0, b)) == 3.0 * b


def test_a_plain_value_in_a_tuple_with_a_traced_one_is_read_anew():
    pair = ()
    inner = ft.jit(lambda v: pair[0] * pair[1] * v)

    def loss(w, b):
        nonlocal pair
        pair = w, b
        return inner(3.0)

    for b in (1.0, 2.0, np.float64(3.0), np.array(4.0)):
        assert float(ft.grad(loss)(5.0, b)) == 3.0 * b


def test_a_function_among_the_arguments_may_close_over_traced_values():
    apply = ft.jit(lambda f, v: f(v))
    w = 2.0

    def f(v):
        return w * v

    def loss(new):
        nonlocal w
        before, w = w, new
        try:
            return apply(f, 3.0)
        finally:
            w = before

    for _ in range(2):
        assert float(apply(f, 3.0)) == 6.0
        assert float(ft.grad(loss)(5.0)) == 3.0


def test_a_compiled_closure_inside_a_compiled_function():
    @ft.jit
    def outer(w, v):
        return ft.jit(lambda u: w * u + 1.0)(v) * w

    same(ft.grad(outer, (0, 1))(2.0, 3.0), (13.0, 4.0))
    same(ft.hessian(lambda w: outer(w, 3.0))(np.float64(2.0)), 6.0)


def test_a_long_chain_of_closures_may_hold_a_traced_value_at_its_end():
    def loss(w):
        f = lambda v: w * v  # noqa: E731  # one link after the other
        for _ in range(300):
            f = functools.partial(lambda f, v: f(v), f)
        return ft.jit(lambda v: f(v))(3.0)

    assert float(ft.grad(loss)(5.0)) == 3.0


def test_a_recursive_closure_is_looked_through_once():
    def f(n, v):
        return v if n == 0 else f(n - 1, 2 * v)

    assert float(ft.grad(ft.jit(lambda v: f(3, v)))(1.0)) == 8.0


# ---- branches and loops are staged once


def test_nested_loops_that_close_over_a_staged_value_are_staged_once():
    runs = []

    def level(k, c, v):
        if k == 0:
            runs.append("run")
            return c + np.sin(v)
        inner = np.float64(0.0)
        c = c + ft.fori_loop(0, 2, lambda i, c: level(k - 1, c, v), inner)
        return c + ft.scan(lambda c, _: (c + v, None), inner, None, length=2)[0]

    g = ft.jit(ft.grad(lambda v: level(5, 0.0, v)))
    want = ft.grad(lambda v: level(5, 0.0, v))(0.5)
    runs.clear()
    same(g(np.float64(0.5)), want)
    assert runs == ["run"]


@pytest.mark.parametrize("bounded", [None, 9])
@pytest.mark.parametrize("init", [1.0, np.float64(1.0)], ids=["float", "float64"])
def test_a_while_loop_that_closes_over_a_staged_value_is_staged_at_once(init, bounded):
    runs = []

    def f(v):
        def body(c):
            runs.append("run")
            return c * 1.5 + v
        return ft.while_loop(lambda c: c < 10, body, init, max_steps=bounded)

    assert ft.jit(f)(1.0) == 13.1875
    assert runs == ["run"]


def test_a_loop_whose_state_holds_more_than_numbers_is_run_by_python():
    def f(v):
        return ft.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + v.shape), (0, ()))[0]

    assert ft.jit(lambda v: v * f(v))(2.0) == 6.0


def test_a_while_loop_of_python_s_numbers_alone_stays_python_s():
    def f(v):
        n = ft.while_loop(lambda n: n < 7, lambda n: 2 * n + v.ndim, 1)
        return v.reshape(n, -1)

    assert ft.jit(f)(np.arange(14.0)).shape == (7, 2)


LOOPS = {
    "fori_loop": lambda f, c: ft.fori_loop(0, 2, lambda i, c: f(c), c),
    "scan": lambda f, c: ft.scan(lambda c, _: (f(c), None), c, None, length=2)[0],
    "while_loop": lambda f, c: ft.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, f(s[1])),
                                             (0, c))[1],
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("init", [0, 0.0])
def test_nested_loops_from_python_s_numbers_are_staged_about_once_for_each_level(loop, init):
    counts = []
    for depth in range(1, 6):
        runs = []

        def level(k, c, v, runs=runs):
            if k == 0:
                runs.append("run")
                return c + np.sin(v)
            return c + LOOPS[loop](lambda c: level(k - 1, c, v), init)

        f = functools.partial(level, depth, 0.0)
        same(ft.jit(f)(np.float64(0.5)), 2**depth * np.sin(0.5))
        counts.append(len(runs))
    assert counts == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("loop", LOOPS)
def test_loops_inside_keep_dtypes_of_their_own(loop):
    def f(v, w):
        def body(c):
            a = LOOPS[loop](lambda c: c + v, 0)
            b = LOOPS[loop](lambda c: c + w, 0)
            n = LOOPS[loop](lambda c: c + 1, 0)
            d = LOOPS[loop](lambda d: d * 1, c)
            return d * n + a + LOOPS[loop](lambda c: c + b * a, 0.0)
        return LOOPS[loop](body, 0), LOOPS[loop](lambda c: c + w, 0)

    v, w = np.float64(1.25), np.float32(2.5)
    for args in ((v, w), (w, v), (w, w), (1, w), (v, 1.0)):
        got, want = ft.jit(f)(*args), f(*args)
        same(got, want)
        assert [np.asarray(y).dtype for y in got] == [np.asarray(y).dtype for y in want]


def size(program: Program) -> int:
    inner = [p for r in rows(program) for p in r.programs.values()]
    return len(program.eqns) + sum(len(p.eqns) for p in inner)


def nested(depth):
    runs = []

    def level(k, v):
        if k == 0:
            runs.append("run")
            return np.sin(v)
        return ft.cond(v > k, lambda v: level(k - 1, 2 * v), lambda v: v * k, v)

    return (lambda v: level(depth, v)), runs


DERIVED = {
    "jit": ft.jit,
    "jit of grad": lambda f: ft.jit(ft.grad(f)),
    "jit of the second derivative": lambda f: ft.jit(ft.grad(ft.grad(f))),
    "jit of vmap of grad": lambda f: ft.jit(ft.vmap(ft.grad(f), axis_size=1, in_axes=None)),
}


@pytest.mark.parametrize("name", DERIVED)
def test_the_innermost_branch_is_staged_once(name):
    sizes = []
    for depth in range(1, 9):
        f, runs = nested(depth)
        sizes.append(size(DERIVED[name](f).lower(20.0).program))
        assert runs == ["run"]
    steps = {b - a for a, b in itertools.pairwise(sizes[1:])}
    assert len(steps) == 1  # linear in the depth


def test_branches_of_a_compiled_function_are_staged_once_for_its_gradient():
    f, runs = nested(8)
    g = ft.grad(ft.jit(f))
    same(g(20.0), ft.grad(f)(20.0))
    same(g(3.0), ft.grad(f)(3.0))
    assert runs.count("run") == 2  # once staged, and once by the eager gradient at 20


def test_branches_of_different_dtypes_are_joined_in_the_program():
    def f(p, v):
        return ft.cond(p > 0, lambda: 1, lambda: v)

    (row,) = [r for r in rows(ft.jit(f).lower(1.0, np.float64(2.0)).program) if type(r) is Branch]
    assert [str(p.outputs[0].aval) for p in row.branches] == ["float64[]", "float64[]"]
    assert [ft.jit(f)(p, np.float64(2.0)) for p in (1.0, -1.0)] == [1.0, 2.0]


def test_python_control_flow_in_a_rule_is_refused_in_a_program():
    f = ft.custom_jvp(np.abs)
    f.defjvp(lambda vs, ts: (np.abs(vs[0]), ts[0] if vs[0] > 0 else -ts[0]))
    with pytest.raises(ConcretizationError, match=r"ft\.cond instead of"):
        ft.grad(ft.jit(f))(2.0)


# ---- nothing of the user's is changed while a function is staged


class Kept:
    w: object = 2.0

    def __init__(self):
        self.b = 3.0


HELD = [2.0]


def test_another_thread_never_meets_a_value_of_the_program():
    kept, seen, put = Kept(), queue.SimpleQueue(), []

    def product():
        return Kept.w * kept.b * HELD[0]

    @ft.jit
    def inner(v):
        # a context of its own, which free-threaded Python gives a thread only if it is told to
        look = Context().run, lambda: seen.put((Kept.w, kept.b, HELD[0], product()))
        thread = threading.Thread(target=look[0], args=look[1:])
        thread.start()
        thread.join()
        return product() * v

    def loss(w, b, h):
        before = Kept.w, kept.b, HELD[0]
        put.append((w, b, h))
        Kept.w, kept.b, HELD[0] = w, b, h
        try:
            return inner(5.0)
        finally:
            Kept.w, kept.b, HELD[0] = before

    same(ft.grad(loss, (0, 1, 2))(7.0, 11.0, 13.0), (715.0, 455.0, 385.0))
    *found, y = seen.get()
    assert all(x is w for x, w in zip(found, put[0], strict=True))
    assert y.owner is put[0][0].owner
    same(ft.grad(loss, (0, 1, 2))(2.0, 3.0, 4.0), (60.0, 40.0, 30.0))
    assert seen.empty()  # it is staged once


@pytest.mark.parametrize("wrap", [
    lambda w: (w, 2.0), lambda w: functools.partial(np.multiply, w),
    lambda w: (functools.partial(np.multiply, w), "text"),
], ids=["tuple", "partial", "nested"])
def test_what_is_fixed_beside_a_traced_value_is_compared(wrap):
    held, runs = [None], []

    @ft.jit
    def inner(v):
        runs.append("run")
        x, scale = held[0]
        x = x[0] if isinstance(x, tuple) else x
        return (x(1.0) if callable(x) else x[0] if isinstance(x, tuple) else x) * v * scale

    def loss(w, scale):
        x = wrap(w)
        held[0] = (x, scale)
        return inner(3.0)

    for scale in (2.0, 2.0, 5.0):
        assert float(ft.grad(loss)(7.0, scale)) == 3.0 * scale
    assert len(runs) == 2


def test_a_value_that_an_outer_transform_traces_chooses_a_branch_of_the_program():
    chosen = [True]
    inner = ft.jit(lambda v: ft.cond(chosen[0], lambda: 2 * v, lambda: 3 * v))
    steps = [2]
    loop = ft.jit(lambda v: ft.fori_loop(0, steps[0], lambda i, c: c * v, 1.0))

    def of(f, held):
        def call(x):
            held[0] = x
            return f(2.0)
        return call

    same(ft.vmap(of(inner, chosen))(np.array([True, False])), np.array([4.0, 6.0]))
    same(ft.vmap(of(loop, steps))(np.array([1, 3, 0])), np.array([2.0, 8.0, 1.0]))
    same(ft.vmap(of(loop, steps))(np.array([2, 2, 0])), np.array([4.0, 4.0, 1.0]))


@pytest.mark.parametrize("decide", [
    lambda w: bool(w), lambda w: w > 0, lambda w: w in (2.0, 5.0),
], ids=["bool", "comparison", "equality"])
def test_python_never_decides_by_a_closed_over_value_for_later_calls(decide):
    held = [0.0]
    inner = ft.jit(lambda v: held[0] * v if decide(held[0]) else 7 * held[0] * v)

    def loss(w):
        held[0] = w
        return inner(3.0)

    with ft.config(jit=False):
        want = [ft.grad(loss)(w) for w in (2.0, 0.0)]
    assert [ft.grad(loss)(w) for w in (2.0, 0.0)] == want


def test_nested_compiled_functions_close_over_values_of_every_level():
    w = [2.0]

    def loss(a):
        w[0] = a

        @ft.jit
        def outer(v):
            inner = ft.jit(lambda u: ft.grad(lambda t: w[0] * v * t**2)(u))
            return inner(5.0) * w[0]

        return outer(3.0)

    same(ft.grad(loss)(7.0), 420.0)
    same(ft.hessian(loss)(np.float64(7.0)), 60.0)
    same(ft.vmap(ft.grad(loss))(np.array([7.0, 1.0])), np.array([420.0, 60.0]))
