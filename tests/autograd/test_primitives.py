"""Ops with rules of the user's: every way to declare one, in both modes, nested and batched."""

import math

import numpy as onp
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
import functrans.autograd as autograd
import functrans.autograd.numpy as np
from functrans import errors
from functrans.autograd import core
from functrans.autograd.extend import (
    Box,
    JVPNode,
    SparseObject,
    VJPNode,
    defjvp,
    defjvp_argnum,
    defjvp_argnums,
    defvjp,
    defvjp_argnum,
    defvjp_argnums,
    notrace_primitive,
    primitive,
    register_notrace,
    vspace,
)
from functrans.autograd.numpy.numpy_vjps import unbroadcast_f
from functrans.autograd.scipy import special
from functrans.autograd.test_util import check_grads

X = onp.array([0.3, -1.2, 0.7])


@primitive
def scaled(a, b, k=1.0):
    return a**2 * b * k


defvjp(scaled, lambda ans, a, b, k=1.0: lambda g: 2 * g * a * b * k,
       lambda ans, a, b, k=1.0: lambda g: g * a**2 * k)


def of_scaled(x):
    return np.sum(scaled(x, np.sin(x), k=2.0))


def reference(x):
    return np.sum(x**2 * np.sin(x) * 2.0)


def test_rules_serve_both_modes_to_any_order():
    for d in (autograd.grad, autograd.hessian, lambda f: autograd.jacobian(autograd.hessian(f))):
        assert_allclose(d(of_scaled)(X), d(reference)(X), rtol=1e-12, atol=1e-14)

    def push(f):
        return lambda x: autograd.make_jvp(f)(x)(X)[1]

    for d in (push, lambda f: push(autograd.grad(f)), lambda f: autograd.grad(push(f))):
        assert_allclose(d(of_scaled)(X), d(reference)(X), rtol=1e-12, atol=1e-14)


def test_transforms_of_functrans_take_primitives():
    both = onp.stack([X, 2 * X])
    assert_allclose(ft.vmap(of_scaled)(both), [reference(X), reference(2 * X)], rtol=1e-14)
    assert_allclose(ft.vmap(autograd.grad(of_scaled))(both),
                    ft.vmap(autograd.grad(reference))(both), rtol=1e-13)
    assert_allclose(ft.jit(of_scaled)(X), reference(X), rtol=1e-14)
    assert_allclose(ft.grad(ft.jit(of_scaled))(X), autograd.grad(reference)(X), rtol=1e-13)
    assert_allclose(ft.linearize(of_scaled, X)[1](X), ft.jvp(reference, (X,), (X,))[1], rtol=1e-13)
    assert_allclose(ft.hessian(of_scaled)(X), ft.hessian(reference)(X), rtol=1e-12)


def test_opaque_rules_work_in_forward_mode_by_pullbacks():
    @primitive
    def sine(x):
        return onp.array([math.sin(v) for v in x])

    def pull(ans, x):
        return lambda g: onp.array([float(c) * math.cos(v) for c, v in zip(g, x, strict=True)])

    defvjp(sine, pull)
    value, t = autograd.make_jvp(lambda x: sine(x) * 2.0)(X)(X)
    assert_allclose(value, 2 * onp.sin(X), rtol=1e-15)
    assert_allclose(t, 2 * onp.cos(X) * X, rtol=1e-14)
    assert_allclose(ft.jacfwd(sine)(X), onp.diag(onp.cos(X)), rtol=1e-14)

    @primitive
    def turn(z):
        return complex(z) * (2.0 + 1.0j)

    defvjp(turn, lambda ans, z: lambda g: complex(g) * (2.0 + 1.0j))
    assert autograd.make_jvp(turn)(1.0 + 1.0j)(1j)[1] == 1j * (2.0 + 1.0j)


def test_arguments_without_a_rule_are_refused_only_when_they_are_traced():
    @primitive
    def product(a, b, c):
        return a * b * c

    defvjp(product, lambda ans, a, b, c: lambda g: g * b * c, None)
    assert autograd.grad(product)(2.0, 3.0, 4.0) == 12.0
    assert autograd.grad(product, 1)(2.0, 3.0, 4.0) == 0.0  # None: no slope
    with pytest.raises(NotImplementedError, match="VJP of product wrt argnum 2 not defined"):
        autograd.grad(product, 2)(2.0, 3.0, 4.0)
    bare = primitive(lambda x: 2.0 * x)
    for d, mode in ((autograd.grad, "VJP"), (autograd.deriv, "JVP")):
        with pytest.raises(NotImplementedError, match=f"{mode} of <lambda> wrt argnums"):
            d(bare)(1.0)
    with pytest.raises(TypeError, match="Bad VJP"):
        defvjp(bare, 3.0)


def test_rules_by_number_and_rules_for_several_arguments():
    def declared(declare, rule, *more):
        f = primitive(lambda a, b: a * b)
        declare(f, rule)
        for how, other in more:
            how(f, other)
        return f

    def pull(i, ans, args, kwargs):
        return lambda g: g * args[1 - i]

    def push(i, g, ans, args, kwargs):
        return g * args[1 - i]

    functions = [
        declared(defvjp_argnum, pull, (defjvp_argnum, push)),
        declared(
            defvjp_argnums,
            lambda argnums, *rest: lambda g: [pull(i, *rest)(g) for i in argnums],
            (defjvp_argnums, lambda argnums, gs, *rest: sum(
                push(i, g, *rest) for i, g in zip(argnums, gs, strict=True)))),
    ]
    for f in functions:
        check_grads(f, (0, 1), order=2)(2.0, 3.0)
    linear = primitive(lambda a, b: 2 * a + b)
    defjvp(linear, lambda g, ans, a, b: 2 * g, lambda g, ans, a, b: g)
    assert autograd.deriv(lambda x: linear(x, x))(1.0) == 3.0
    same = primitive(lambda x: 3.0 * x)
    defjvp(same, "same")
    assert autograd.deriv(same)(2.0) == 3.0


def test_outputs_and_arguments_may_be_containers():
    @primitive
    def both(x):
        return x * 2, onp.sum(x**2)

    defvjp(both, lambda ans, x: lambda g: 2 * g[0] + 2 * g[1] * x)
    check_grads(lambda x: np.sum(both(x)[0] * x) + both(x)[1], order=2)(X)

    @primitive
    def joined(d, k):
        return d["a"] * d["b"] * k

    defvjp(joined, lambda ans, d, k: lambda g: {"a": g * d["b"] * k, "b": g * d["a"] * k}, None)
    defjvp(joined, lambda g, ans, d, k: (g["a"] * d["b"] + d["a"] * g["b"]) * k)
    check_grads(lambda d: np.sum(joined(d, 3.0)))({"a": X, "b": 2 * X})
    g = autograd.grad(lambda a: np.sum(joined({"a": a, "b": 2 * X}, 3.0)))(X)
    assert_allclose(g, 6 * X)


def test_cotangents_are_brought_to_the_shape_of_the_argument_or_refused():
    def with_rule(rule):
        f = primitive(lambda x: onp.ones(3) * onp.sum(x))
        defvjp(f, rule)
        return lambda x: np.sum(f(x))

    def full(g):
        return g

    assert autograd.grad(with_rule(lambda ans, x: unbroadcast_f(x, full)))(2.0) == 3.0
    assert_array_equal(autograd.grad(with_rule(lambda ans, x: lambda g: 0.0))(X[:2]), [0.0, 0.0])
    with pytest.raises(ValueError, match=r"argnum 0 returned shape \(3,\)"):
        autograd.grad(with_rule(lambda ans, x: full))(X[:2])

    def sparse(ans, x):
        def put(total):
            total[0] += 5.0
            return total

        return lambda g: SparseObject(vspace(x), put)

    assert_array_equal(autograd.grad(with_rule(sparse))(X), [5.0, 0.0, 0.0])


def test_what_a_rule_closes_over_is_a_constant_of_it_or_refused():
    def f(x):
        @primitive
        def times(y):
            return 3.0 * y

        defvjp(times, lambda ans, y: lambda g: g * x)
        return times(x) * 1.0

    assert ft.grad(f)(2.0) == 2.0
    with pytest.raises(errors.LeakedTracerError, match="has already ended"):
        autograd.grad(f)(2.0)


def test_an_infinite_slope_times_zero_is_zero():
    root = primitive(onp.sqrt)
    defvjp(root, lambda ans, x: lambda g: g * 0.5 / ans)
    with onp.errstate(divide="ignore", invalid="ignore"):
        assert autograd.grad(lambda x: 0.0 * root(x) + x)(onp.float64(0.0)) == 1.0


def test_rules_are_given_to_primitives_alone():
    for f in (np.sin, np.sum, np.where, special.expit, special.logsumexp):
        with pytest.warns(UserWarning, match="has a derivative in functrans, which stays"):
            defvjp(f, lambda ans, x: lambda g: g)
    with pytest.raises(NotImplementedError, match="Give the rule to primitive"):
        defvjp(math.gamma, lambda ans, x: lambda g: g)
    with pytest.raises(NotImplementedError, match=r"functrans\.tree\.register"):
        Box.register(set)


def test_constants_on_purpose():
    known = notrace_primitive(lambda x: isinstance(x, float))
    seen = []
    autograd.grad(lambda x: seen.append(known(x)) or x)(2.0)
    assert seen == [True]
    fixed = primitive(lambda x: x)
    for node in (VJPNode, JVPNode):
        register_notrace(node, fixed)
    assert autograd.grad(lambda x: x * fixed(x))(3.0) == 3.0
    assert autograd.deriv(lambda x: x * fixed(x))(3.0) == 3.0


def test_methods_of_old_primitives_still_declare_rules():
    f = core.primitive(lambda x, y: x * y)
    with pytest.warns(UserWarning, match="use extend"):
        f.defgrad(lambda ans, x, y: lambda g: g * y)
        f.defvjp(lambda g, ans, vs, gvs, x, y: g * x, argnum=1)
    check_grads(f, (0, 1), modes=["rev"])(2.0, 3.0)
    with pytest.warns(UserWarning, match="use extend"):
        f.defvjp_is_zero([0])
    assert autograd.grad(f)(2.0, 3.0) == 0.0
