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
ft.checkpoint(loss)(w, x, 3.0)
assert_type(ft.checkpoint(loss)(w, x), np.ndarray)
assert_type(ft.array([1.0, 2.0]), ft.Array)
assert_type(fnp.sum(fnp.exp(x), axis=0, keepdims=True), ft.Array)
assert_type(fnp.allclose(x, x), bool)
assert_type(fnp.linalg.solve(np.eye(3), w), ft.Array)
assert_type(fnp.fft.rfft(w), ft.Array)
assert_type(fnp.float32(1.0), np.float32)
