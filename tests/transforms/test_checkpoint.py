"""Recomputing in the backward: the same derivatives, less memory, and what cannot work is said."""

import gc
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans._transforms.reverse.api import record
from functrans._transforms.reverse.checkpoint import CUT, CheckpointNode, checkpoint
from functrans._transforms.rules.custom import custom_vjp
from functrans.errors import ArgumentError, CaptureError, LeakedTracerError
from functrans.testing import check_grads

x, w = np.array([0.3, 0.5]), np.array([[1.0, 2.0], [0.5, -1.0]])
for _a in (x, w):
    _a.setflags(write=False)


def same(a, b):
    for p, q in zip(ft.tree.leaves(a), ft.tree.leaves(b), strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-13, atol=1e-14)


# A loss for each way to use checkpoint: c is checkpoint, or the identity for comparison.
LOSSES = {
    "whole": lambda c: c(lambda x, w: np.sum(np.tanh(x * w) + np.sin(x) * w)),
    "closure": lambda c: lambda x, w: np.sum(c(lambda v: np.tanh(v * w) * np.sin(w))(x)),
    "nested": lambda c: (
        lambda x, w: np.sum(
            c(lambda v: np.tanh(v * w) + c(lambda u: np.sin(u) * w)(v) * c(np.cos)(w))(x)
        )
    ),
    "chain": lambda c: lambda x, w: np.sum(c(np.tanh)(c(np.sin)(c(np.exp)(x * w) - x) * w)),
    "several outputs": lambda c: (
        lambda x, w: np.sum(
            np.prod(np.stack(c(lambda p: (p["a"] * w, w, p["a"] + w))({"a": x})), axis=0)
        )
    ),
    "argument as output": lambda c: (
        lambda x, w: np.sum(c(lambda x, w: (x, w, 2))(x, w)[0] * w) ** 2
    ),
    "constant argument": lambda c: (
        lambda x, w: np.sum(c(lambda k, x: k * np.sin(x * w))(np.ones(2) * 3, x))
    ),
}
TRANSFORMS = {
    "grad": lambda f: ft.grad(f, (0, 1))(x, w),
    "vjp twice": lambda f: [
        ft.tree.leaves(pull(s)) for pull in [ft.vjp(f, x, w)[1]] for s in (1.0, 2.0)
    ],
    "jvp": lambda f: ft.jvp(f, (x, w), (x, w)),
    "linearize": lambda f: [push(x, w) for push in [ft.linearize(f, x, w)[1]] for _ in range(2)],
    "hessian": lambda f: ft.hessian(f, (0, 1))(x, w),
    "reverse over reverse": lambda f: ft.grad(lambda x: np.sum(ft.grad(f, 1)(x, w) ** 2))(x),
    "reverse over forward": lambda f: ft.grad(lambda x, w: ft.jvp(f, (x, w), (x, w))[1], (0, 1))(
        x, w
    ),
    "linearize of grad": lambda f: ft.linearize(ft.grad(f), x, w)[1](x, w),
    "vmap": lambda f: ft.vmap(f, (None, 0))(x, w),
    "vmap of grad": lambda f: ft.vmap(ft.grad(f, (0, 1)), (None, 0))(x, w),
    "grad of vmap": lambda f: ft.grad(
        lambda x, w: np.sum(ft.vmap(f, (None, 0))(x, w) ** 2), (0, 1)
    )(x, w),
    "vjp of vmap of grad": lambda f: ft.vjp(lambda w: ft.vmap(ft.grad(f), (None, 0))(x, w), w)[1](
        w
    ),
    "third order": lambda f: ft.grad(lambda x: np.sum(ft.hessian(f)(x, w) ** 2))(x),
}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("loss", LOSSES)
def test_derivatives_are_the_same(loss, name):
    got = TRANSFORMS[name](LOSSES[loss](checkpoint))
    same(got, TRANSFORMS[name](LOSSES[loss](lambda f: f)))


def test_the_checker_agrees():
    check_grads(LOSSES["nested"](checkpoint), (x, w), order=2)


def test_keywords_containers_and_other_arguments():
    @checkpoint
    def f(p, scale=1.0, *, how):
        return {"out": getattr(np, how)(p["a"]) * scale, "n": 3}

    assert f.__name__ == "f"
    same(ft.grad(lambda a: np.sum(f({"a": a}, scale=2.0, how="sin")["out"]))(x), 2 * np.cos(x))


def test_without_a_trace_it_is_the_function():
    assert checkpoint(lambda s: s + "b")("a") == "ab"


# ---- what is kept


def deep(x, n=20):
    for _ in range(n):
        x = np.sin(x) * 1.1
    return x


def entries(f, *args):
    """Live entries of the tape of ``f``."""
    tape = record("vjp", f, args, False).trace.tape
    return [e for e in tape if e is not None and e is not CUT]


def test_the_tape_keeps_one_entry():
    assert len(entries(deep, x)) == 40
    (entry,) = entries(checkpoint(deep), x)
    assert type(entry) is CheckpointNode


def test_what_is_saved_for_a_closure_is_not_kept_either():
    def loss(w):
        return np.sum(checkpoint(lambda: deep(w))()) + np.sum(checkpoint(lambda v: deep(w * v))(w))

    kept = [e for e in entries(loss, x) if type(e) is CheckpointNode]
    assert len(kept) == 1  # the call without arguments has nothing to be cut by, and is recorded


def test_nested_checkpoints_record_only_the_inner_calls_again():
    lengths = []

    def step(v):
        v = deep(v, 10)
        lengths.append(
            sum(e is not None and e is not CUT for e in v.owner.tape) if hasattr(v, "owner") else 0
        )
        return v

    def group(v):
        for _ in range(5):
            v = checkpoint(step)(v)
        return v

    def chain(v):
        for _ in range(5):
            v = checkpoint(group)(v)
        return np.sum(v)

    ft.grad(chain)(x)
    # at any time: the groups, the steps of one group, the entries of one step
    assert max(lengths) <= 5 + 5 + 2 * 10 + 2


def held(f, a):
    """Bytes of distinct arrays that a pullback keeps alive."""
    _, pullback = ft.vjp(f, a)
    gc.collect()
    seen, found, todo = set(), 0, [pullback]
    while todo:
        o = todo.pop()
        if id(o) in seen or isinstance(o, type) or type(o).__name__ == "module":
            continue
        seen.add(id(o))
        if isinstance(o, np.ndarray):
            found += o.nbytes if o.base is None else 0
            todo.append(o.base)
        elif type(o).__name__ == "function":
            todo.extend(o.__closure__ or ())
        else:
            todo.extend(gc.get_referents(o))
    return found


def test_fewer_bytes_are_kept():
    a = np.ones(1000)
    assert held(checkpoint(lambda x: np.sum(deep(x))), a) <= 3 * a.nbytes
    assert held(lambda x: np.sum(deep(x)), a) >= 20 * a.nbytes


def test_the_backward_leaves_the_tape_as_it_was():
    run = record("vjp", checkpoint(deep), (x,), False)
    before = list(run.trace.tape)
    run.pull([x])
    run.pull([x])
    assert run.trace.tape == before and run.trace.closed


def test_it_is_run_twice_for_a_gradient_and_not_at_all_where_no_cotangent_comes():
    runs = []
    f = checkpoint(lambda x: runs.append(1) or np.sin(x))
    ft.grad(lambda x: np.sum(f(x)))(x)
    assert len(runs) == 2
    ft.grad(lambda x: (f(x), np.sum(x))[1])(x)
    assert len(runs) == 3


# ---- together with rules of its own, and threads


def test_rules_inside_checkpoints_inside_rules():
    def true(x):
        return np.sin(np.exp(x)) * np.exp(x)

    inner = custom_vjp(lambda x: np.sin(x) * x)
    slope = checkpoint(lambda v, ct: (np.cos(v) * v + np.sin(v)) * ct)
    inner.defvjp(
        lambda x: (checkpoint(lambda v: np.sin(v) * v)(x), x), lambda x, ct: (slope(x, ct),)
    )
    f = checkpoint(lambda x: inner(np.exp(x)))
    check_grads(f, (x,), order=2)
    same(ft.vmap(ft.grad(ft.grad(f)))(x), ft.vmap(ft.grad(ft.grad(true)))(x))
    same(
        ft.grad(lambda x: np.sum(ft.vmap(ft.grad(f))(x)))(x),
        ft.grad(lambda x: np.sum(ft.vmap(ft.grad(true))(x)))(x),
    )


def test_one_pullback_in_several_threads():
    _, pullback = ft.vjp(checkpoint(lambda x: checkpoint(deep)(x) * x), x)
    (want,) = pullback(x)
    with ThreadPoolExecutor(4) as pool:
        for (got,) in pool.map(lambda _: pullback(x), range(40)):
            same(got, want)


def test_the_backward_of_one_tape_does_not_wait_for_another():
    started, done = threading.Event(), threading.Event()
    runs = []

    def waiting(x):
        runs.append("run")
        if len(runs) == 2:  # in the backward: until the other one is through
            started.set()
            assert done.wait(20)
        return np.sin(x)

    with ThreadPoolExecutor(1) as pool:
        _, pullback = ft.vjp(checkpoint(waiting), 0.5)
        first = pool.submit(pullback, 1.0)
        assert started.wait(20)
        same(ft.grad(checkpoint(np.sin))(0.5), np.cos(0.5))
        done.set()
        same(first.result()[0], np.cos(0.5))


# ---- what cannot work is said


def test_other_values_in_the_second_run_are_noticed():
    rng = np.random.default_rng(0)
    f = checkpoint(lambda x: np.sum(np.sin(x) * rng.normal(size=2)))
    with pytest.raises(
        CaptureError, match=r"checkpoint\(<lambda>\) met or returned other values.*random numbers"
    ):
        ft.grad(f)(x)


def test_another_number_in_the_second_run_is_noticed():
    """A number leaves no capture: only the outputs tell."""
    numbers = itertools.count(1.0)
    with pytest.raises(CaptureError, match="met or returned other values"):
        ft.grad(checkpoint(lambda x: np.sum(np.sin(x) * next(numbers))))(x)


def test_a_changed_array_is_noticed():
    k = np.array([1.0, 2.0])
    _, pullback = ft.vjp(checkpoint(lambda x: np.sin(x) * k), x)
    pullback(x)
    k[0] = 5.0
    with pytest.raises(CaptureError, match="arrays that change in between"):
        pullback(x)


def test_an_error_in_the_second_run_says_where_it_is_from():
    runs = []

    def f(x):
        runs.append(1)
        return np.sin(x) / (1 if len(runs) < 2 else None)

    with pytest.raises(TypeError) as info:
        ft.grad(checkpoint(f))(0.5)
    assert info.value.__notes__ == ["while checkpoint(f) was run again for the backward pass"]


@pytest.mark.parametrize(
    "derive",
    [
        lambda f: ft.grad(f)(x),
        lambda f: ft.linearize(f, x)[1](x),
        lambda f: ft.vjp(f, x)[1](1.0),
    ],
)
def test_a_value_that_escapes_is_refused(derive):
    def loss(x):
        kept = []
        y = checkpoint(lambda v: (kept.append(np.sin(v)), v * 2)[1])(x)
        return np.sum(y) + np.sum(kept[0] * 3.0)

    with pytest.raises(LeakedTracerError, match="computed under checkpoint was used outside"):
        derive(loss)


def test_what_is_no_number_is_refused():
    with pytest.raises(
        ArgumentError, match=r"checkpoint\(f\): the function returned str 'a', not a number"
    ):

        def f(x):
            return "a"

        ft.grad(checkpoint(f))(1.0)
    with pytest.raises(ArgumentError, match="checkpoint needs a function"):
        checkpoint(3)


@pytest.mark.parametrize("f", [lambda x: x * x, lambda x: 3.0 * x, lambda x: x], ids="abc")
def test_a_function_of_python_numbers_is_checkpointed(f):
    assert ft.grad(ft.checkpoint(f))(3.0) == ft.grad(f)(3.0)
    assert ft.grad(ft.grad(ft.checkpoint(f)))(3.0) == ft.grad(ft.grad(f))(3.0)


def reading_a_view(x):
    b = fnp.zeros(2)
    b[0] = x[0, 0]
    y = x * 2
    turned = y[::-1]
    z = ft.checkpoint(lambda a: np.sin(a) * turned)(y)
    return np.sum(z) * b[0] + np.sum(turned * turned)


def test_views_of_arrays_that_are_written_into_can_be_closed_over():
    x = np.arange(4.0).reshape(2, 2) + 0.5
    expected = ft.jacfwd(reading_a_view)(x)
    np.testing.assert_allclose(ft.grad(reading_a_view)(x), expected, rtol=1e-14)
    np.testing.assert_allclose(ft.jit(ft.grad(reading_a_view))(x), expected, rtol=1e-14)


def written_later(x):
    y = x * fnp.array(2.0)
    z = ft.checkpoint(lambda a: a * y[1:])(x[1:])
    y[0] = 7.0
    return np.sum(z)


def assigned_later(x):
    y = x * 2
    z = ft.checkpoint(lambda a: a * y)(x)
    y = y * 1.0
    return np.sum(z) + np.sum(y)


def in_a_checkpoint(x):
    y = x * 2
    z = ft.checkpoint(lambda a: ft.checkpoint(lambda a: a * y)(a) * 2)(x)
    y = y * 1.0
    return np.sum(z) + np.sum(y)


@pytest.mark.parametrize("f", [written_later, assigned_later, in_a_checkpoint])
def test_a_value_from_around_that_is_another_in_the_backward_pass(f):
    """The second run would use a value that the walk has passed: its derivative would be lost."""
    x = np.array([[0.5, 1.0], [2.0, 3.0]])
    for differentiate in (ft.grad, lambda f: lambda x: ft.linearize(f, x)[1](x)):
        with pytest.raises(CaptureError, match="assigned again as an argument"):
            differentiate(f)(x)
    assert np.isfinite(ft.jacfwd(f)(x)).all()


def test_what_a_second_run_meets_are_the_arrays_that_the_backward_reads():
    def written(z, x):
        y = fnp.zeros(3)
        y[:] = z
        y[1:] += x[1:] * 0.5
        return y

    def f(x, apart=lambda f: f):
        z = ft.jit(lambda z: z * x)(x)  # an Array beside plain ndarrays
        return np.sum(apart(lambda z: written(z, x))(z) ** 2)

    x, t = np.array([0.3, -0.5, 0.8]), np.array([0.5, 1.1, -0.3])
    slope = lambda f: ft.grad(lambda x: ft.jvp(f, (x,), (t,))[1])(x)  # noqa: E731
    np.testing.assert_allclose(slope(lambda x: f(x, ft.checkpoint)), slope(f), rtol=1e-13)
