"""Programs whose sparse derivatives are compared with the dense ones.

``exact``: no entry of the pattern is 0 at an ordinary point; others have a pattern that is wider.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse

import functrans as ft

MASK = np.array([1.0, 0.0, 1.0, 0.0, 0.0, 1.0])
INDEX = np.array([4, 0, 0, 2])
DENSE = np.arange(30.0).reshape(5, 6) * (np.arange(30).reshape(5, 6) * 7 % 11 > 6) / 10
SPARSE = scipy.sparse.csr_array(DENSE)
TAPS = np.array([1.0, 0.0, -2.0])


_EXTERNAL = ft.external(lambda v: np.sin(v))


class Program(NamedTuple):
    name: str
    f: object
    shape: tuple = (6,)
    exact: bool = True


def _scan(x):
    def step(carry, v):
        carry = carry * 0.5 + np.sin(v)
        return carry, carry * v

    return ft.scan(step, 0.0, x)[1]


def _scan_of_pairs(x):
    return ft.scan(lambda c, v: (v, c * v), x[0], x[1:], reverse=True)[1]


def _shifting(x):
    """After three steps, each entry is of the one three places before."""
    return ft.fori_loop(0, 3, lambda k, y: np.concatenate([y[-1:], y[:-1] * y[:-1]]), x)


def _while(x):
    return ft.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * s[1]), (0, x),
                         max_steps=5)[1]


@ft.custom_jvp
def _straight_through(x):
    return np.round(x)


_straight_through.defjvp(lambda xs, ts: (np.round(xs[0]), ts[0]))


@ft.custom_jvp
def _own_exp(x):
    return np.exp(x)


_own_exp.defjvp(lambda xs, ts: (_own_exp(xs[0]), _own_exp(xs[0]) * ts[0]))


@ft.custom_vjp
def _square_of_next(x):
    return np.roll(x, -1) ** 2


_square_of_next.defvjp(lambda x: (_square_of_next(x), np.roll(x, -1)),
                       lambda y, ct: (np.roll(2 * y * ct, 1),))


PROGRAMS = [Program(*p) for p in [
    ("tridiagonal", lambda x: x[1:-1] ** 2 + x[2:] * x[:-2]),
    ("elementwise", lambda x: np.sin(x) * np.exp(x) / (1 + x * x)),
    ("a constant output", lambda x: np.ones(3)),
    ("part constant", lambda x: np.concatenate([np.ones(2), x[:2] * x[3]])),
    ("broadcast", lambda x: x[:3, None] * x[None, 3:]),
    ("outer", lambda x: np.outer(x[:2], x[1:4])),
    ("sums", lambda x: np.stack([np.sum(x[:2]), np.sum(x[2:] ** 2), x[0] * x[5]])),
    ("sums of axes", lambda x: np.sum(x * x, axis=1), (3, 2)),
    ("mean and variance", lambda x: np.stack([np.mean(x[:, 0]), np.var(x[:, 1])]), (3, 2)),
    ("shared sum", lambda x: x / np.sum(x)),
    ("transposed", lambda x: np.cos(x.T).reshape(-1)[::2], (2, 3)),
    ("moved axes", lambda x: np.moveaxis(x, 0, 2)[1] ** 2, (2, 2, 2)),
    ("rolled", lambda x: np.roll(x, 2) * x),
    ("differences", lambda x: np.diff(x, n=2) ** 2),
    ("padded", lambda x: np.pad(x, (1, 2)) ** 2),
    ("repeated", lambda x: np.repeat(x[:2], 3) * x),
    ("tiled", lambda x: np.tile(x, 2) ** 3),
    ("stacked numbers", lambda x: np.stack([x[i] * x[i - 1] for i in range(6)])),
    ("gathered", lambda x: x[INDEX] ** 2),
    ("gathered pairs", lambda x: x[[0, 1], [1, 2]] * x[1, 0], (2, 3)),
    ("put", lambda x: ft.array(np.ones(6)).at[INDEX[1:]].set(x[:3] ** 2)),
    ("put into", lambda x: (x**2).at[1:3].set(x[4:])),
    ("added at", lambda x: np.sin(x).at[INDEX].add(x[:4] ** 2)),
    ("masked by a constant", lambda x: MASK * np.sin(x)),
    ("chosen by a constant", lambda x: np.where(MASK > 0, x**2, x[::-1])),
    ("chosen by value", lambda x: np.where(x > 1, x**2, x[::-1]), (6,), False),
    ("maximum", lambda x: np.maximum(x, x[::-1] * 0.5), (6,), False),
    ("absolute", lambda x: np.abs(x - 1.2) * x[0]),
    ("sign", lambda x: np.sign(x) * 2.0),
    ("clipped", lambda x: np.clip(x, 0.0, 1.0), (6,), False),
    ("largest", lambda x: np.max(x, axis=1), (3, 2), False),
    ("matrix with zeros times", lambda x: DENSE @ x),
    ("times matrix with zeros", lambda x: np.sin(x[:5] @ DENSE)),
    ("matrix times matrix", lambda x: DENSE @ x, (6, 2)),
    ("product", lambda x: x[:2] @ x[2:5], (5, 3)),
    ("batched product", lambda x: x @ x.transpose(0, 2, 1), (2, 2, 2)),
    ("dot", lambda x: np.stack([np.dot(x[:3], x[3:]), x[0]])),
    ("einsum", lambda x: np.einsum("ij,kj->ik", x, x[:1]), (3, 2)),
    ("sparse product", lambda x: SPARSE @ (x * x)),
    ("convolution", lambda x: np.convolve(x, TAPS)),
    ("convolution, valid", lambda x: np.convolve(x, TAPS, "valid") ** 2),
    ("convolved with itself", lambda x: np.convolve(x[:3], x[3:])),
    ("cross product", lambda x: np.cross(x, x[::-1]), (2, 3), False),
    ("windows", lambda x: np.sum(np.lib.stride_tricks.sliding_window_view(x, 3) ** 2, axis=1)),
    ("diagonal", lambda x: np.diagonal(x @ x), (3, 3)),
    ("running sum", lambda x: np.cumsum(x * x), (6,), False),
    ("running product", lambda x: np.cumprod(x), (6,), False),
    ("products", lambda x: np.prod(x, axis=0), (3, 2)),
    ("sorted", lambda x: np.sort(x), (6,), False),
    ("softmax", lambda x: ft.scipy.special.softmax(x, axis=1), (3, 2)),
    ("logsumexp", lambda x: ft.scipy.special.logsumexp(x, axis=1), (3, 2)),
    ("norms", lambda x: np.linalg.norm(x, axis=1), (3, 2)),
    ("inverse", lambda x: np.linalg.inv(x + 3 * np.eye(2))[:, 0], (2, 2, 2)),
    ("system", lambda x: np.linalg.solve(np.eye(3) * 4 + DENSE[:3, :3], x), (3,), False),
    ("systems", lambda x: np.linalg.solve(x[..., :2] + 3 * np.eye(2), x[..., 2:]), (2, 2, 4)),
    ("systems of one matrix", lambda x: np.linalg.solve(np.ones((2, 2)) + 3 * np.eye(2), x),
     (3, 2, 2)),
    ("one system", lambda x: np.linalg.solve(x[:4].reshape(2, 2) + 3 * np.eye(2), x[4:])),
    ("triangular systems", lambda x: ft.scipy.linalg.solve_triangular(
        np.eye(2) * 3 + x[:2, 0], x[:, 1:], lower=True), (2, 3), False),
    ("sparse system", lambda x: ft.scipy.sparse.linalg.spsolve(
        scipy.sparse.csc_array(np.eye(3) * 2.0), x), (3,), False),
    ("factors", lambda x: np.linalg.cholesky(x @ x.transpose(0, 2, 1) + np.eye(2))[:, 1, 1],
     (3, 2, 2)),
    ("pseudoinverses", lambda x: np.linalg.pinv(x)[:, 0], (2, 3, 2)),
    ("exponentials", lambda x: ft.scipy.linalg.expm(x)[:, 0], (2, 2, 2)),
    ("determinant", lambda x: np.linalg.det(x), (2, 2, 2)),
    ("transform", lambda x: np.fft.fft(x).real, (4,), False),
    ("transforms", lambda x: np.abs(np.fft.fft(x, axis=0)) ** 2, (3, 2)),
    ("real transforms", lambda x: np.fft.irfft(np.fft.rfft(x) ** 2, 3) * x, (2, 3)),
    ("median and quantile", lambda x: np.quantile(x, [0.2, 0.5], axis=1), (2, 3), False),
    ("partitioned", lambda x: np.partition(x, 1, axis=0)[:2], (3, 2), False),
    ("ordered by another", lambda x: np.take_along_axis(x, np.argsort(x, 1)[:, ::-1], 1) * x,
     (2, 3), False),
    ("switched", lambda x: ft.switch((x[0] > 1).astype(int) + 1, [
        lambda v: v * 0.0, lambda v: v * v[::-1], lambda v: v + v[2]], x), (6,), False),
    ("stepping until", lambda x: ft.while_loop(
        lambda s: s[0] < 3 * s[1][0], lambda s: (s[0] + 1, np.roll(s[1], 1) * 1.5), (0, x),
        max_steps=9)[1], (6,), False),
    ("through complex numbers", lambda x: np.abs(np.exp(1j * x[:3]) + x[3:]) ** 2),
    ("scan", _scan, (6,)),
    ("scan in reverse", _scan_of_pairs, (6,)),
    ("loop", _shifting),
    ("while loop", _while),
    ("branch", lambda x: ft.cond(x[0] > 0, lambda v: v[:2] * v[2], lambda v: v[2:4], x), (6,),
     False),
    ("compiled", lambda x: ft.jit(lambda v: v[1:] * v[:-1])(x)),
    ("own rule", lambda x: _straight_through(x) * 2.0),
    ("own rule that calls itself", lambda x: _own_exp(x[1:] * _own_exp(x[:-1]))),
    ("own rule of cotangents", lambda x: _square_of_next(x**2)),
    ("own rule, compiled", lambda x: ft.jit(_straight_through)(x[1:] * x[:-1])),
    ("from outside", lambda x: _EXTERNAL(x[:2]) * x[2:4], (6,), False),
    ("stopped", lambda x: x * ft.stop_gradient(x[::-1])),
    ("inner derivative", lambda x: ft.grad(lambda v: np.sum(np.sin(v[1:] * v[:-1])))(x)),
    ("float32 inside", lambda x: (x.astype(np.float32) * 2).astype(float)),
    ("a number", lambda x: x[2] * x[3]),
    ("of one entry", lambda x: np.sin(x) * np.arange(3.0), (1,)),
    ("no entries out", lambda x: x[:0]),
    ("no entries in", lambda x: np.sum(x) + np.zeros(2), (0,)),
    ("of a number", lambda x: np.stack([x, x * x]), ()),
]]
