"""What a transform hands out is its own: no one can change it, who has what it was made from."""

import gc

import numpy as np
import pytest

import functrans as ft
from functrans._core.plain import FREE_THREADED, is_exact
from functrans._transforms import arguments
from functrans._transforms.reverse.cotangents import is_alone
from tests.threads import at_once


def fresh():
    return np.arange(1.0, 7.0).reshape(2, 3)


# What of the caller's memory a function returns.
PARTS = {
    "all of it": lambda x: x,
    "a slice": lambda x: x[:, 1:],
    "an entry": lambda x: x[0],
    "transposed": lambda x: x.T,
    "reshaped": lambda x: x.reshape(-1),
    "broadcast": lambda x: np.broadcast_to(x, (2, *x.shape)),
    "turned": lambda x: x[::-1],
}
ONES = np.ones((2, 3))


def own(f):
    """A function with rules of its own, which return what they are given."""
    g = ft.custom_vjp(f)
    g.defvjp(lambda x: (f(x), x), lambda x, ct: (x,))
    return g


# A transform of a function, applied to the memory X; the results.
TRANSFORMS = {
    "grad": lambda f, x: [ft.grad(lambda v: (np.sum(v), f(x)), has_aux=True)(ONES)],
    "grad of itself": lambda f, x: [ft.grad(lambda v: (np.sum(v), f(v)), has_aux=True)(x)],
    "grad by a rule": lambda f, x: [ft.grad(lambda v: np.sum(own(f)(v)))(x)],
    "value_and_grad": lambda f, x: [
        ft.value_and_grad(lambda v: (np.sum(v), f(v)), has_aux=True)(x)
    ],
    "jvp": lambda f, x: [ft.jvp(f, (x,), (ONES,))],
    "jvp, tangent": lambda f, x: [ft.jvp(f, (ONES,), (x,))],
    "jvp, aux": lambda f, x: [ft.jvp(lambda v: (v, f(x)), (ONES,), (ONES,), has_aux=True)],
    "vjp": lambda f, x: [ft.vjp(f, x)[0]],
    "vjp, pulled": lambda f, x: [ft.vjp(lambda v: v * 1.0, ONES)[1](x)],
    "vjp, passed": lambda f, x: [ft.vjp(lambda v: v, ONES)[1](x)],
    "vjp, aux": lambda f, x: [ft.vjp(lambda v: (v, f(v)), x, has_aux=True)[2]],
    "linearize": lambda f, x: [ft.linearize(f, x)[0]],
    "linearize, pushed": lambda f, x: [ft.linearize(f, ONES)[1](x)],
    "linearize, aux": lambda f, x: [ft.linearize(lambda v: (v, f(x)), x, has_aux=True)[2]],
    "linear_transpose": lambda f, x: [ft.linear_transpose(lambda v: v, ONES)(x)],
    "jacobian": lambda f, x: [
        ft.jacobian(lambda v: (v[0], f(v)), has_aux=True)(x),
        ft.jacfwd(lambda v: (v[0], f(x)), has_aux=True)(ONES),
        ft.jacrev(lambda v: (v[0], f(x)), has_aux=True)(ONES),
    ],
    "hessian": lambda f, x: [ft.hessian(lambda v: (np.sum(v * v), f(x)), has_aux=True)(ONES)],
    "hvp": lambda f, x: [ft.hvp(lambda v: np.sum(v * v) / 2, ONES, x)],
    "elementwise_grad": lambda f, x: [ft.elementwise_grad(own(lambda v: v))(x)],
    "jet": lambda f, x: [ft.jet(f, (x,), ([x, x],))],
    "vmap": lambda f, x: [ft.vmap(lambda r: f(r.reshape(1, -1)))(x)],
    "vmap, entry": lambda f, x: [ft.vmap(lambda r: r[0])(x), ft.vmap(lambda r: r, 1)(x)],
    "vmap, out_axes": lambda f, x: [ft.vmap(lambda r: r, 1, 1)(x)],
    "vmap, fixed": lambda f, x: [ft.vmap(lambda r, v: f(v), (0, None))(x, x)],
    "vmap, captured": lambda f, x: [ft.vmap(lambda r: f(x))(ONES)],
    "jit": lambda f, x: [ft.jit(f)(x), ft.jit(lambda v: (v, f(v)))(x)],
    "jit, uncompiled": lambda f, x: [_uncompiled(f, x)],
    "scan": lambda f, x: [
        ft.scan(lambda c, r: (c, r), x, x), ft.scan(lambda c, r: (c, f(x)), 0.0, None, length=1),
        ft.scan(lambda c, r: (x, x), x, x),
    ],
    "while_loop": lambda f, x: [
        ft.while_loop(lambda v: False, lambda v: v, f(x)),
        ft.while_loop(lambda v: True, lambda v: f(x), f(x), max_steps=1),
    ],
    "fori_loop": lambda f, x: [
        ft.fori_loop(0, 0, lambda i, v: v, f(x)), ft.fori_loop(0, 1, lambda i, v: f(x), f(x)),
    ],
    "cond": lambda f, x: [ft.cond(True, f, f, x), ft.cond(False, lambda: f(x), lambda: f(x))],
    "switch": lambda f, x: [ft.switch(1, [f, f], x)],
    "stop_gradient": lambda f, x: [ft.stop_gradient(f(x))],
    "tree": lambda f, x: [ft.tree.ravel(f(x))[0], ft.tree.ravel([f(x)])[0]],
}


def _uncompiled(f, x):
    with ft.config(jit=False):
        return ft.jit(f)(x)


def arrays(results):
    return [y for y in ft.tree.leaves(results) if isinstance(y, np.ndarray)]


def owner_chain(y):
    while isinstance(y, np.ndarray):
        yield y
        y = y.base


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("kind", ["ndarray", "writable Array"])
def test_results_do_not_change_with_the_callers_memory(transform, part, kind):
    x = fresh() if kind == "ndarray" else ft.array(fresh()) + 0.0
    results = arrays(transform(part, x))
    before = [np.array(y) for y in results]
    assert results
    assert x.flags.writeable  # what it takes it never changes, nor locks
    x[...] = -7.0
    for y, b in zip(results, before, strict=True):
        assert isinstance(y, ft.Array)
        np.testing.assert_array_equal(y, b)
        for z in owner_chain(y):
            assert not z.flags.writeable
            assert not np.shares_memory(z, x)


def test_a_result_that_a_rule_or_the_function_keeps_is_copied():
    kept = []

    def f(x):
        kept.append(np.full(3, 2.0))
        return kept[-1]

    y, _ = ft.jvp(f, (np.ones(3),), (np.ones(3),))
    kept[-1][:] = 5.0
    np.testing.assert_array_equal(y, [2.0, 2.0, 2.0])


LARGE = np.linspace(0.0, 1.0, 4096)
FRESH = {
    "grad": lambda: ft.grad(lambda x: np.sum(np.sin(x) * x))(LARGE),
    "gradients": lambda: ft.grad(lambda x, y: np.sum(x * y), (0, 1))(LARGE, LARGE),
    "jvp": lambda: ft.jvp(np.exp, (LARGE,), (LARGE,)),
    "vjp": lambda: ft.vjp(np.sin, LARGE)[1](LARGE),
    "value of vjp": lambda: ft.vjp(lambda x: x * x + x, LARGE),
    "value that the tape has": lambda: (ft.vjp(np.exp, LARGE), ft.vjp(np.linalg.inv, np.eye(64))),
    "linearize": lambda: ft.linearize(np.sin, LARGE)[1](LARGE),
    "jacobian": lambda: (
        ft.jacobian(np.sin)(LARGE[:64]), ft.jacfwd(np.sin)(LARGE[:64]),
        ft.jacrev(np.sin)(LARGE[:64]),
    ),
    "hessian": lambda: ft.hessian(lambda x: np.sum(x**3))(LARGE[:64]),
    "vmap": lambda: (
        ft.vmap(np.sin)(LARGE.reshape(64, 64)), ft.vmap(np.sin, 0, 1)(LARGE.reshape(64, 64)),
        ft.vmap(ft.grad(lambda x: np.sum(x**3)))(LARGE.reshape(64, 64)),
    ),
    "jit": lambda: ft.jit(np.sin)(LARGE),
    "cond": lambda: ft.cond(True, np.sin, np.cos, LARGE),
    "scan": lambda: ft.scan(lambda c, x: (c, x * x), 0.0, LARGE),
}


@pytest.mark.parametrize("run", FRESH.values(), ids=FRESH)
def test_what_only_the_transform_has_is_not_copied(run, monkeypatch):
    copies = []
    plain = arguments.frozen_copy
    monkeypatch.setattr(
        arguments, "frozen_copy", lambda x: copies.append(x.shape) or plain(x)
    )
    run()
    gc.collect()
    assert copies == []


def test_without_the_interpreter_lock_counts_are_relied_on_for_what_the_thread_has_made():
    made = at_once(np.ones, [3])
    alone = is_alone([np.ones(3)], 0)
    assert alone and is_exact(np.ones(3))
    alone = is_alone(made, 0)  # not inside of an assertion, which keeps references
    assert alone is is_exact(made[0]) is not FREE_THREADED
    kept = [np.ones(3)] * 2
    assert is_exact(kept[0]) and not is_alone(kept, 0)


def test_a_repeated_result_is_copied_without_its_repetitions():
    x = np.ones(3)
    y = ft.vmap(lambda r: x)(np.ones(1000))
    assert y.shape == (1000, 3)
    assert y.strides[0] == 0
    x[:] = 2.0
    assert y[5, 1] == 1.0
