"""What each transform returns: values, structure, order of results, and that they agree."""

from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
from functrans.profile import profile
from tests.threads import at_once

X = np.array([0.3, -1.2, 2.0])
Pair = namedtuple("Pair", "a b")


@dataclass(frozen=True)
class Model:
    weight: np.ndarray
    bias: float
    name: str


@pytest.mark.parametrize("gradient", [
    lambda f, x: ft.grad(f)(x),
    lambda f, x: ft.vjp(f, x)[1](1.0)[0],
    lambda f, x: ft.grad(ft.checkpoint(f))(x),
    lambda f, x: ft.linear_transpose(ft.linearize(f, x)[1], x)(1.0)[0],
    lambda f, x: _profiled(lambda: ft.grad(f)(x)),
    lambda f, x: ft.jvp(ft.grad(f), (x,), (np.zeros(2),))[0],
])
def test_a_backward_does_not_report_what_numpy_would(gradient):
    x = np.array([0.0, 4.0])
    with np.errstate(all="raise"):
        g = gradient(lambda x: np.sum(np.sqrt(x)) + np.matmul(x, x), x)
    assert_array_equal(g, [np.inf, 8.25])


def _profiled(f):
    with profile():
        return f()


def cubic(x):
    return np.sum(x**3)


def rosenbrock(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def test_grad_of_a_cubic():
    assert_array_equal(ft.grad(cubic)(X), 3 * X**2)


def test_value_and_grad_returns_both():
    value, g = ft.value_and_grad(cubic)(X)
    assert value == cubic(X)
    assert_array_equal(g, 3 * X**2)


def test_has_aux_passes_the_rest_through():
    def loss(x):
        y = x * 2
        return y.sum(), {"y": y, "n": 3}

    (value, aux), g = ft.value_and_grad(loss, has_aux=True)(X)
    assert value == (2 * X).sum()
    assert_array_equal(aux["y"], 2 * X)
    assert aux["n"] == 3
    g2, aux2 = ft.grad(loss, has_aux=True)(X)
    assert_array_equal(g, g2)
    assert_array_equal(aux2["y"], aux["y"])


@pytest.mark.parametrize("argnums", [1, -1, "b"])
def test_argnums_is_a_position_or_a_name(argnums):
    assert_array_equal(ft.grad(lambda a, b: np.sum(a * b * b), argnums)(X, 2 * X), 4 * X * X)


def test_results_follow_the_order_of_argnums():
    first, second = ft.grad(lambda a, b: np.sum(a * b), argnums=(1, 0))(X, 5 * X)
    assert_array_equal(first, X)
    assert_array_equal(second, 5 * X)


def test_arguments_may_be_given_by_keyword():
    f = lambda a, b: np.sum(a * b)  # noqa: E731  # a lambda has the signature that is under test
    assert_array_equal(ft.grad(f)(a=X, b=2 * X), 2 * X)
    assert_array_equal(ft.grad(f, argnums="b")(X, b=2 * X), X)
    first, second = ft.grad(f, argnums=("b", 0))(X, b=2 * X)
    assert_array_equal(first, X)
    assert_array_equal(second, 2 * X)


def test_containers_keep_their_structure():
    params = {"w": (X, [2.0]), "p": Pair(1.0, X), "label": "relu", "steps": 3, "none": None}

    def loss(p):
        return np.sum(p["w"][0] * p["w"][1][0]) + np.sum(p["p"].a * p["p"].b)

    g = ft.grad(loss)(params)
    assert_array_equal(g["w"][0], [2.0, 2.0, 2.0])
    assert_allclose(g["w"][1][0], X.sum())
    assert isinstance(g["p"], Pair)
    assert_allclose(g["p"].a, X.sum())
    assert g["label"] is None and g["steps"] is None and g["none"] is None


def test_dataclasses_are_containers():
    g = ft.grad(lambda m: np.sum(m.weight * m.bias))(Model(X, 2.0, "m"))
    assert isinstance(g, Model)
    assert_array_equal(g.weight, [2.0, 2.0, 2.0])
    assert g.name is None


def test_registered_classes_are_containers():
    class Box:
        def __init__(self, x):
            self.x = x

    ft.tree.register(Box, lambda b: ((b.x,), None), lambda _, xs: Box(*xs))
    assert_array_equal(ft.grad(lambda b: np.sum(b.x**2))(Box(X)).x, 2 * X)


def test_a_python_int_is_promoted():
    g = ft.grad(lambda x: x * x)(3)
    assert g == 6.0
    assert g.dtype == np.float64


def test_weak_scalars_leave_float32_alone():
    x = X.astype(np.float32)
    value, g = ft.value_and_grad(lambda x: np.sum(np.sin(2.0 * x) / 3))(x)
    assert value.dtype == g.dtype == np.float32


def test_a_gradient_has_its_arguments_dtype():
    a, b = X.astype(np.float32), X
    ga, gb = ft.grad(lambda a, b: np.sum(a * b), (0, 1))(a, b)
    assert ga.dtype == np.float32
    assert gb.dtype == np.float64


def test_vjp_pulls_many_cotangents_back():
    y, pull = ft.vjp(lambda a, b: {"s": a * b, "t": a}, X, 2.0)
    assert_array_equal(y["s"], 2 * X)
    for scale in (1.0, 3.0):
        ga, gb = pull({"s": scale * np.ones(3), "t": np.zeros(3)})
        assert_array_equal(ga, scale * np.full(3, 2.0))
        assert_allclose(gb, scale * X.sum())


def test_an_argument_without_floats_has_no_cotangent():
    _, pull = ft.vjp(lambda x, i: x[i], X, np.array([0, 2]))
    gx, gi = pull(np.ones(2))
    assert_array_equal(gx, [1.0, 0.0, 1.0])
    assert gi is None


def test_linearize_runs_once_and_pushes_many():
    runs = []

    def f(x):
        runs.append(1)
        return np.sin(x) * x

    y, push = ft.linearize(f, X)
    assert_array_equal(y, np.sin(X) * X)
    for t in (np.ones(3), X):
        assert_allclose(push(t), (np.cos(X) * X + np.sin(X)) * t, rtol=1e-15)
    assert len(runs) == 1


def test_products_keep_their_side_on_a_tape_pushed_past_an_infinite_slope():
    A = np.array([[1.0, 2.0], [0.0, 3.0]])

    def f(x):
        return A @ np.sqrt(x)

    x = np.array([4.0, 9.0])
    J = A * [1 / 4, 1 / 6]
    assert_array_equal(ft.jit(ft.jacobian(f))(x), J)  # where no value is known to be finite
    _, push = ft.linearize(lambda x: f(x[:2]) + np.sqrt(x[2]), np.append(x, 0.0))
    assert_array_equal(push(np.array([1.0, 1.0, 0.0])), J.sum(axis=1))


def test_linear_transpose_of_a_matrix_product():
    A = np.arange(6.0).reshape(2, 3)
    (found,) = ft.linear_transpose(lambda x: A @ x, np.zeros(3))(np.array([1.0, 2.0]))
    assert_array_equal(found, A.T @ [1.0, 2.0])


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
@pytest.mark.parametrize("chunk_size", ["auto", None, 1, 2])
def test_jacobian_in_each_mode_and_chunking(mode, chunk_size):
    A = np.arange(6.0).reshape(2, 3)
    J = ft.jacobian(lambda x: np.sin(A @ x), mode=mode, chunk_size=chunk_size)(X)
    assert_allclose(J, np.cos(A @ X)[:, None] * A, rtol=1e-15)


def test_jacobian_of_containers_nests_out_then_in():
    def f(p):
        return {"sum": p["a"] + p["b"], "prod": p["a"] * p["b"]}

    J = ft.jacobian(f)({"a": X, "b": 2.0})
    assert_array_equal(J["sum"]["a"], np.eye(3))
    assert_array_equal(J["sum"]["b"], np.ones(3))
    assert_array_equal(J["prod"]["a"], 2 * np.eye(3))
    assert_array_equal(J["prod"]["b"], X)


def test_jacobian_shape_is_out_then_in():
    J = ft.jacobian(lambda x: np.stack([x, 2 * x]))(np.ones((2, 3)))
    assert J.shape == (2, 2, 3, 2, 3)


def test_jacobian_of_several_arguments():
    J = ft.jacobian(lambda a, b: a * b, argnums=(0, 1))(X, X + 1)
    assert_array_equal(J[0], np.diag(X + 1))
    assert_array_equal(J[1], np.diag(X))


def test_jacobian_with_aux_and_progress(capsys):
    J, aux = ft.jacobian(lambda x: (x * x, "note"), has_aux=True, progress=True)(X)
    assert aux == "note"
    assert_array_equal(J, np.diag(2 * X))
    assert "jacobian" in capsys.readouterr().err


def test_hessian_of_rosenbrock():
    x = np.array([1.2, 0.7, -0.4])
    H = ft.hessian(rosenbrock)(x)
    expected = np.array(
        [
            [1200 * x[0] ** 2 - 400 * x[1] + 2, -400 * x[0], 0],
            [-400 * x[0], 202 + 1200 * x[1] ** 2 - 400 * x[2], -400 * x[1]],
            [0, -400 * x[1], 200],
        ]
    )
    assert_allclose(H, expected, rtol=1e-13)


def test_hessian_over_containers():
    H = ft.hessian(lambda p: np.sum(p["a"] ** 2) * p["b"])({"a": X, "b": 3.0})
    assert_array_equal(H["a"]["a"], 6 * np.eye(3))
    assert_array_equal(H["a"]["b"], 2 * X)
    assert_array_equal(H["b"]["a"], 2 * X)
    assert H["b"]["b"] == 0


def test_hessian_of_several_outputs_stacks():
    H = ft.hessian(lambda x: x**3)(X)
    assert H.shape == (3, 3, 3)
    assert_allclose(np.einsum("iii->i", H), 6 * X)


def test_hvp_and_vhp_are_hessian_products():
    x, v = np.array([1.2, 0.7, -0.4]), np.array([1.0, -2.0, 0.5])
    H = np.asarray(ft.hessian(rosenbrock)(x))
    value, product = ft.hvp(rosenbrock, x, v)
    assert value == rosenbrock(x)
    assert_allclose(product, H @ v, rtol=1e-13)
    assert_allclose(ft.vhp(rosenbrock, x, v)[1], v @ H, rtol=1e-13)


def test_products_with_several_arguments_are_tuples():
    _, (pa, pb) = ft.hvp(lambda a, b: np.sum(a * b), (X, X), (X, 2 * X))
    assert_array_equal(pa, 2 * X)
    assert_array_equal(pb, X)


def test_elementwise_grad_is_the_diagonal():
    assert_allclose(ft.elementwise_grad(np.sin)(X), np.cos(X))
    assert_allclose(ft.elementwise_grad(ft.elementwise_grad(np.sin))(X), -np.sin(X))


def test_derivative_of_a_curve_to_third_order():
    curve = lambda t: np.stack([np.cos(t), t**4])  # noqa: E731
    third = ft.derivative(ft.derivative(ft.derivative(curve)))
    assert_allclose(third(0.5), [np.sin(0.5), 24 * 0.5], rtol=1e-14)


def test_nested_grads_do_not_confuse_perturbations():
    # d/dx [x * d/dy (x + y)] = 1; with the tangents confused, 2 (Siskind and Pearlmutter, 2005)
    assert ft.grad(lambda x: x * ft.grad(lambda y: x + y)(1.0))(1.0) == 1.0
    assert ft.derivative(lambda x: x * ft.derivative(lambda y: x + y)(1.0))(1.0) == 1.0


def test_closures_over_outer_traced_values():
    f = lambda x: ft.grad(lambda y: np.sum(y**2 * x**3))(x).sum()  # noqa: E731
    assert_allclose(ft.grad(f)(X), 8 * X**3)


def test_python_control_flow_recursion_and_generators():
    def power(x, n):
        return 1.0 if n == 0 else x * power(x, n - 1)

    def f(x):
        total = sum(power(x, n) for n in range(4))
        while total < 50:
            total = total * x
        return total if x > 0 else -total

    # 1 + 2 + 4 + 8 = 15, doubled twice: (1 + x + x^2 + x^3) x^2
    assert ft.grad(f)(2.0) == 2 * 2 + 3 * 4 + 4 * 8 + 5 * 16


def test_an_exception_in_the_middle_leaves_nothing_behind():
    def broken(x):
        y = x * x
        raise KeyError(y.shape)

    with pytest.raises(KeyError):
        ft.grad(broken)(X)
    assert_array_equal(ft.grad(cubic)(X), 3 * X**2)


def test_threads_do_not_disturb_each_other():
    def work(i):
        x = X * i
        return all(
            np.allclose(ft.grad(lambda x: (x * ft.grad(cubic)(x)).sum())(x), 9 * x**2, rtol=1e-14)
            for _ in range(50)
        )

    assert at_once(work, range(1, 9)) == [True] * 8


def test_a_deep_chain_needs_no_recursion():
    def chain(x):
        for _ in range(100_000):
            x = x + 1.0
        return x

    assert ft.grad(chain)(1.0) == 1.0


def test_complex_gradient_is_the_direction_of_steepest_ascent():
    assert_allclose(ft.grad(lambda z: np.abs(z) ** 2)(3 + 4j), 6 + 8j, rtol=1e-15)
    assert_allclose(ft.grad(lambda z: (z * np.conj(z)).real)(3 + 4j), 6 + 8j)


def test_holomorphic_derivative():
    assert_allclose(ft.grad(np.exp, holomorphic=True)(1 + 2j), np.exp(1 + 2j))


def test_vjp_of_a_complex_matrix_is_the_adjoint():
    A = np.array([[1 + 2j, 3j], [0.5, 2 - 1j]])
    _, pull = ft.vjp(lambda z: A @ z, np.array([1j, 2.0]))
    ct = np.array([1 - 1j, 2j])
    assert_allclose(pull(ct)[0], A.conj().T @ ct)


def test_complex_jacobians():
    z = np.array([1 + 2j, 0.5 - 1j])
    assert_allclose(ft.jacobian(lambda z: z * z)(z), np.diag(2 * z))
    assert_allclose(ft.jacobian(lambda x: x * (1 + 2j))(np.array([1.0, 2.0])), np.eye(2) * (1 + 2j))
    assert_allclose(ft.jacobian(lambda z: np.abs(z) ** 2)(z), np.diag(2 * z))


@pytest.mark.parametrize("f", [lambda x: x + X, lambda x: X - x, lambda x: x * X])
def test_a_tangent_has_the_shape_that_the_operand_is_broadcast_to(f):
    y, t = ft.jvp(f, (np.array([2.0]),), (np.array([1.0]),))
    assert y.shape == t.shape == X.shape
    assert_allclose(t, f(np.array([2.0])) - f(np.array([1.0])), rtol=1e-14)


@pytest.mark.parametrize("f", [lambda x: x + X, lambda x: X - x])
def test_a_sum_over_a_broadcast_operand_moves_once_for_each_entry(f):
    _, t = ft.jvp(lambda x: np.sum(f(x)), (np.array([2.0]),), (np.array([1.0]),))
    assert abs(t) == X.size


class TestVmap:
    def test_maps_over_the_first_axis(self):
        xs = np.arange(6.0).reshape(2, 3)
        assert_array_equal(ft.vmap(cubic)(xs), [cubic(x) for x in xs])

    def test_in_axes_and_out_axes(self):
        xs = np.arange(6.0).reshape(3, 2)
        y = ft.vmap(lambda x, c: x * c, in_axes=(1, None), out_axes=1)(xs, 2.0)
        assert_array_equal(y, 2 * xs)

    def test_axes_over_containers(self):
        args = {"a": np.arange(6.0).reshape(2, 3), "b": np.ones(2)}
        y = ft.vmap(lambda d: d["a"] * d["b"], in_axes=({"a": 1, "b": None},))(args)
        assert y.shape == (3, 2)
        outs = ft.vmap(lambda x: (x, {"s": x.sum()}), out_axes=(1, 0))(args["a"])
        assert outs[0].shape == (3, 2)
        assert_array_equal(outs[1]["s"], args["a"].sum(1))

    def test_nested(self):
        a, b = np.arange(2.0), np.arange(3.0)
        outer = ft.vmap(lambda x: ft.vmap(lambda y: x * y + x)(b))(a)
        assert_array_equal(outer, a[:, None] * b + a[:, None])

    def test_operands_of_unlike_ranks_keep_their_batch_axis(self):
        numbers, rows = np.arange(3.0), np.arange(9.0).reshape(3, 3)
        assert_array_equal(ft.vmap(np.subtract)(numbers, rows), numbers[:, None] - rows)
        assert_array_equal(ft.vmap(np.subtract)(rows, numbers), rows - numbers[:, None])

    @pytest.mark.parametrize("axis", [0, 1, 2, -1])
    def test_the_other_axes_keep_their_order(self, axis):
        xs = np.arange(24.0).reshape(2, 3, 4)
        seen = []
        y = ft.vmap(lambda x: (seen.append(x.shape), x)[1], in_axes=axis)(xs)
        assert seen == [tuple(np.delete(xs.shape, axis))]
        assert_array_equal(y, np.moveaxis(xs, axis, 0))
        assert_array_equal(ft.vmap(lambda x: x, out_axes=axis)(xs), np.moveaxis(xs, 0, axis))

    @pytest.mark.parametrize("chunk_size", [1, 2, 3, 100])
    def test_chunks_give_the_same(self, chunk_size):
        xs = np.arange(15.0).reshape(5, 3)
        assert_array_equal(ft.vmap(cubic, chunk_size=chunk_size)(xs), [cubic(x) for x in xs])

    def test_per_sample_gradients(self):
        xs = np.arange(6.0).reshape(2, 3)
        assert_array_equal(ft.vmap(ft.grad(cubic))(xs), 3 * xs**2)

    def test_gradient_through_it(self):
        xs = np.arange(6.0).reshape(2, 3)
        g = ft.grad(lambda w: ft.vmap(lambda x: np.sum(w * x) ** 2)(xs).sum())(X)
        assert_allclose(g, 2 * xs.T @ (xs @ X))

    def test_an_output_that_does_not_vary_is_repeated(self):
        assert_array_equal(ft.vmap(lambda x: 1.5)(np.zeros(3)), [1.5] * 3)
        assert_array_equal(ft.vmap(lambda x: 1.5, chunk_size=2)(np.zeros(3)), [1.5] * 3)

    def test_axis_size_without_mapped_arguments(self):
        assert_array_equal(ft.vmap(lambda x: x, in_axes=None, axis_size=2)(X), np.stack([X, X]))


@pytest.mark.parametrize("other", [np.ones((2, 3)), np.ones(3, np.float32), np.float32(2.0), 2.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_broadcast_against_a_constant_keeps_its_shape(other, dtype):
    met = []

    def f(x):
        y = (x + x) * other
        met.append((y.shape, y.dtype, y.ndim))
        return np.sum(y * y - other)

    x = np.linspace(1.0, 2.0, 3, dtype=dtype)
    expected = (x + x) * other
    g = ft.grad(f)(x)
    assert met == [(expected.shape, expected.dtype, expected.ndim)]
    assert (g.shape, g.dtype) == (x.shape, x.dtype)
    c = np.asarray(other, float)
    np.testing.assert_allclose(g, 8 * x * (c * c).sum(0) if c.ndim == 2 else 8 * x * c * c)
