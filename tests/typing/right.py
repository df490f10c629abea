"""Uses that type checkers must accept, with the types that they must see."""

from typing import assert_type

import numpy as np

import functrans as ft
import functrans.numpy as fnp


def loss(w: np.ndarray, x: np.ndarray, scale: float = 1.0) -> np.ndarray:
    return fnp.sum(fnp.tanh(x @ w) ** 2) * scale


w, x = np.ones(3), np.ones((2, 3))
ft.grad(loss)(w, x, scale=2.0)
ft.grad(ft.grad(loss))(w, x)
value, gradient = ft.value_and_grad(loss)(w, x)
ft.jacobian(loss, argnums="x")(w, x)
ft.hessian(loss, chunk_size=2)(w, x)
print(ft.jacobian(loss, memory="1 GiB").explain(w, x, scale=2.0).mode)
assert_type(ft.hessian(loss, out=np.empty((3, 3))).memory(w, x), int)
assert_type(ft.jit(loss).memory(w, x), int)
ft.laplacian(loss)(w, x, scale=2.0)
ft.hessian_diagonal(loss, argnums="x")(w, x)
print(ft.linear_operator(lambda v: loss(v, x), w, kind="hessian").shape)
print(ft.hutchinson(lambda v: loss(v, x), w, samples=10).standard_error)
ft.checkpoint(loss)(w, x, 3.0)
assert_type(ft.checkpoint(loss)(w, x), np.ndarray)
assert_type(ft.jit(loss)(w, x, scale=2.0), np.ndarray)
print(ft.jit(loss).lower(w, x).program)
ft.jit(loss).clear_cache()
ft.grad(ft.jit(loss))(w, x, scale=2.0)
ft.jit(ft.vmap(loss, in_axes=(None, 0)))(w, x)


@ft.jit(static_argnums=1)
def power(x: np.ndarray, n: int) -> np.ndarray:
    return x**n


class Layer:
    def __init__(self, w: np.ndarray) -> None:
        self.w = w

    @ft.jit
    def run(self, x: np.ndarray) -> np.ndarray:
        return x @ self.w

    @ft.jacobian(argnums=1, memory="1 GiB")
    def slopes(self, x: np.ndarray) -> np.ndarray:
        return x @ self.w


Layer(w).slopes(x[0])
assert_type(power(w, 3), np.ndarray)
assert_type(Layer(w).run(x), np.ndarray)
assert_type(Layer.run(Layer(w), x), np.ndarray)
assert_type(ft.array([1.0, 2.0]), ft.Array)
assert_type(fnp.sum(fnp.exp(x), axis=0, keepdims=True), ft.Array)
assert_type(fnp.allclose(x, x), bool)
assert_type(fnp.linalg.solve(np.eye(3), w), ft.Array)
assert_type(fnp.fft.rfft(w), ft.Array)
assert_type(fnp.float32(1.0), np.float32)


@ft.grad(argnums=1)
def slope(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    return fnp.sum(w * x)


@ft.vmap(in_axes=(0, None))
def scaled(x: np.ndarray, factor: float) -> np.ndarray:
    return x * factor


@ft.value_and_grad(has_aux=True)
def both(x: np.ndarray) -> tuple:
    return fnp.sum(x), x


slope(w, x=x[0])
scaled(x, factor=2.0)
y, dy = both(w)
ft.hessian(chunk_size=2)(loss)(w, x, scale=2.0)
ft.jacfwd(argnums="w")(loss)(w, x)
ft.testing.check_grads(loss, (w, x))
ft.debug.explain(loss)(w, x)
print(ft.jit(loss).lower(w, x)._repr_html_())
