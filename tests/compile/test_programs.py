"""Programs in the style of NPBench, with their import line changed: value, gradient, jit.

Each is written as it would be for NumPy, with loops over slices, item assignment and updates in
place. It is a function of a namespace, so that NumPy itself runs the same source.
"""

from __future__ import annotations

import functools

import numpy as numpy
import pytest

import functrans as ft
import functrans.numpy as fnp

pytestmark = pytest.mark.usefixtures("seldom_optimised")

rng = numpy.random.default_rng(7)


def heat3d(np, A):
    B = np.copy(A)
    for _ in range(3):
        for new, old in ((B, A), (A, B)):
            new[1:-1, 1:-1, 1:-1] = (
                0.125 * (old[2:, 1:-1, 1:-1] - 2.0 * old[1:-1, 1:-1, 1:-1] + old[:-2, 1:-1, 1:-1])
                + 0.125 * (old[1:-1, 2:, 1:-1] - 2.0 * old[1:-1, 1:-1, 1:-1] + old[1:-1, :-2, 1:-1])
                + 0.125 * (old[1:-1, 1:-1, 2:] - 2.0 * old[1:-1, 1:-1, 1:-1] + old[1:-1, 1:-1, :-2])
                + old[1:-1, 1:-1, 1:-1]
            )
    return np.sum(A * A)


def jacobi1d(np, A):
    B = np.zeros_like(A)
    for _ in range(4):
        B[1:-1] = 0.33333 * (A[:-2] + A[1:-1] + A[2:])
        A[1:-1] = 0.33333 * (B[:-2] + B[1:-1] + B[2:])
    return np.sum(A**2)


def jacobi2d(np, A):
    B = A.copy()
    for _ in range(3):
        B[1:-1, 1:-1] = 0.2 * (
            A[1:-1, 1:-1] + A[1:-1, :-2] + A[1:-1, 2:] + A[2:, 1:-1] + A[:-2, 1:-1]
        )
        A[1:-1, 1:-1] = 0.2 * (
            B[1:-1, 1:-1] + B[1:-1, :-2] + B[1:-1, 2:] + B[2:, 1:-1] + B[:-2, 1:-1]
        )
    return np.sum(A**2)


def seidel2d(np, A):
    n = A.shape[0]
    for _ in range(2):
        for i in range(1, n - 1):
            A[i, 1:-1] += (
                A[i - 1, :-2] + A[i - 1, 1:-1] + A[i - 1, 2:] + A[i, 2:]
                + A[i + 1, :-2] + A[i + 1, 1:-1] + A[i + 1, 2:]
            )
            for j in range(1, n - 1):
                A[i, j] += A[i, j - 1]
                A[i, j] /= 9.0
    return np.sum(A**2)


def cholesky(np, X):
    n = X.shape[0]
    A = X @ X.T + n * np.eye(n)
    A[0, 0] = np.sqrt(A[0, 0])
    for i in range(1, n):
        for j in range(i):
            A[i, j] -= np.dot(A[i, :j], A[j, :j])
            A[i, j] /= A[j, j]
        A[i, i] -= np.dot(A[i, :i], A[i, :i])
        A[i, i] = np.sqrt(A[i, i])
    return np.sum(np.tril(A) ** 3)


def lu(np, X):
    n = X.shape[0]
    A = X + 2.0 * n * np.eye(n)
    for i in range(n):
        for j in range(i):
            A[i, j] -= A[i, :j] @ A[:j, j]
            A[i, j] /= A[j, j]
        for j in range(i, n):
            A[i, j] -= A[i, :i] @ A[:i, j]
    return np.sum(A * A)


def ludcmp(np, X):
    n = X.shape[0]
    A = X + 2.0 * n * np.eye(n)
    b = X[0]
    x, y = np.zeros_like(b), np.zeros_like(b)
    for i in range(n):
        for j in range(i):
            A[i, j] -= A[i, :j] @ A[:j, j]
            A[i, j] /= A[j, j]
        for j in range(i, n):
            A[i, j] -= A[i, :i] @ A[:i, j]
    for i in range(n):
        y[i] = b[i] - A[i, :i] @ y[:i]
    for i in range(n - 1, -1, -1):
        x[i] = (y[i] - A[i, i + 1 :] @ x[i + 1 :]) / A[i, i]
    return np.sum(x * x)


def durbin(np, r):
    y = np.empty_like(r)
    r = r * 0.1
    alpha, beta = -r[0], 1.0
    y[0] = -r[0]
    for k in range(1, r.shape[0]):
        beta *= 1.0 - alpha * alpha
        alpha = -(r[k] + np.dot(np.flip(r[:k]), y[:k])) / beta
        y[:k] += alpha * np.flip(y[:k])
        y[k] = alpha
    return np.sum(y * y)


def gramschmidt(np, A):
    n = A.shape[1]
    Q, R = np.zeros_like(A), np.zeros((n, n), dtype=A.dtype)
    for k in range(n):
        nrm = np.dot(A[:, k], A[:, k])
        R[k, k] = np.sqrt(nrm)
        Q[:, k] = A[:, k] / R[k, k]
        for j in range(k + 1, n):
            R[k, j] = np.dot(Q[:, k], A[:, j])
            A[:, j] -= Q[:, k] * R[k, j]
    return np.sum(R**3) + Q[0, 1]


def trisolv(np, L):
    n = L.shape[0]
    b = L[:, 0] * 1.0
    x = np.zeros_like(b)
    for i in range(n):
        x[i] = (b[i] - L[i, :i] @ x[:i]) / (L[i, i] + 4.0)
    return np.sum(x * x)


def trmm(np, X):
    A, B = X, X.T.copy()
    n = A.shape[0]
    for i in range(n):
        for j in range(n):
            B[i, j] += np.dot(A[i + 1 :, i], B[i + 1 :, j])
    B *= 1.5
    return np.sum(B * B)


def symm(np, X):
    A, B, C = X, X[::-1] * 2.0, np.zeros_like(X)
    n = C.shape[0]
    temp = np.empty((n,), dtype=C.dtype)
    C *= 0.5
    for i in range(n):
        for j in range(n):
            C[:i, j] += 1.5 * B[i, j] * A[i, :i]
            temp[j] = B[:i, j] @ A[i, :i]
        C[i, :] += 1.5 * B[i, :] * A[i, i] + 1.5 * temp
    return np.sum(C * C)


def covariance(np, data):
    mean = np.mean(data, axis=0)
    data -= mean
    n = data.shape[1]
    cov = np.zeros((n, n), dtype=data.dtype)
    for i in range(n):
        cov[i:, i] = data[:, i] @ data[:, i:] / (data.shape[0] - 1.0)
        cov[i, i:] = cov[i:, i]
    return np.sum(cov**2)


def adi(np, u):
    n = u.shape[0]
    v, p, q = np.empty_like(u), np.empty_like(u), np.empty_like(u)
    a, b = -0.3, 1.6
    c, d = a, 0.4
    for _ in range(2):
        v[0, 1 : n - 1] = 1.0
        p[1 : n - 1, 0] = 0.0
        q[1 : n - 1, 0] = v[0, 1 : n - 1]
        for j in range(1, n - 1):
            p[1 : n - 1, j] = -c / (a * p[1 : n - 1, j - 1] + b)
            q[1 : n - 1, j] = (
                -d * u[j, 0 : n - 2] + (1.0 + 2.0 * d) * u[j, 1 : n - 1] - d * u[j, 2:n]
                - a * q[1 : n - 1, j - 1]
            ) / (a * p[1 : n - 1, j - 1] + b)
        v[n - 1, 1 : n - 1] = 1.0
        for j in range(n - 2, 0, -1):
            v[j, 1 : n - 1] = p[1 : n - 1, j] * v[j + 1, 1 : n - 1] + q[1 : n - 1, j]
        u[1 : n - 1, 1 : n - 1] = v[1 : n - 1, 1 : n - 1].T
    return np.sum(u * u)


def deriche(np, image):
    w, h = image.shape
    y1, y2 = np.empty_like(image), np.empty_like(image)
    k, a2, b1, b2 = 0.3, 0.2, 0.7, -0.1
    y1[:, 0] = k * image[:, 0]
    y1[:, 1] = k * image[:, 1] + a2 * image[:, 0] + b1 * y1[:, 0]
    for j in range(2, h):
        y1[:, j] = k * image[:, j] + a2 * image[:, j - 1] + b1 * y1[:, j - 1] + b2 * y1[:, j - 2]
    y2[:, -1] = 0.0
    y2[:, -2] = a2 * image[:, -1]
    for j in range(h - 3, -1, -1):
        y2[:, j] = a2 * image[:, j + 1] + k * image[:, j + 2]
        y2[:, j] += b1 * y2[:, j + 1] + b2 * y2[:, j + 2]
    out = 0.5 * (y1 + y2)
    for i in range(1, w):
        out[i, :] += b1 * out[i - 1, :]
    return np.sum(out * out)


def floyd_warshall(np, X):
    path = np.abs(X) + 0.1
    for k in range(path.shape[0]):
        path[:] = np.minimum(path[:], np.add.outer(path[:, k], path[k, :]))
    return np.sum(path * path)


def fdtd2d(np, hz):
    ex, ey = np.zeros_like(hz), np.zeros_like(hz)
    for t in range(3):
        ey[0, :] = 0.1 * t
        ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
    return np.sum(hz * hz)


def cavity_flow(np, u):
    ny, nx = u.shape
    dx, dy, dt, nu = 2 / (nx - 1), 2 / (ny - 1), 0.001, 0.1
    v, p, b = np.zeros((ny, nx)), np.zeros((ny, nx)), np.zeros((ny, nx))
    for _ in range(2):
        un, vn = u.copy(), v.copy()
        b[1:-1, 1:-1] = (
            (u[1:-1, 2:] - u[1:-1, :-2]) / (2 * dx) + (v[2:, 1:-1] - v[:-2, 1:-1]) / (2 * dy)
        ) / dt
        for _ in range(2):
            pn = p.copy()
            p[1:-1, 1:-1] = (
                (pn[1:-1, 2:] + pn[1:-1, :-2]) * dy**2 + (pn[2:, 1:-1] + pn[:-2, 1:-1]) * dx**2
                - dx**2 * dy**2 * b[1:-1, 1:-1]
            ) / (2 * (dx**2 + dy**2))
            p[:, -1] = p[:, -2]
            p[0, :] = p[1, :]
            p[:, 0] = p[:, 1]
            p[-1, :] = 0
        for w, wn in ((u, un), (v, vn)):
            w[1:-1, 1:-1] = (
                wn[1:-1, 1:-1]
                - un[1:-1, 1:-1] * dt / dx * (wn[1:-1, 1:-1] - wn[1:-1, :-2])
                - vn[1:-1, 1:-1] * dt / dy * (wn[1:-1, 1:-1] - wn[:-2, 1:-1])
                + nu * dt / dx**2 * (wn[1:-1, 2:] - 2 * wn[1:-1, 1:-1] + wn[1:-1, :-2])
                + nu * dt / dy**2 * (wn[2:, 1:-1] - 2 * wn[1:-1, 1:-1] + wn[:-2, 1:-1])
            )
        u[1:-1, 1:-1] -= dt / (2 * dx) * (p[1:-1, 2:] - p[1:-1, :-2])
        v[1:-1, 1:-1] -= dt / (2 * dy) * (p[2:, 1:-1] - p[:-2, 1:-1])
        u[0, :] = u[:, 0] = u[:, -1] = 0
        u[-1, :] = 1
        v[0, :] = v[-1, :] = v[:, 0] = v[:, -1] = 0
    return np.sum(u * u) + np.sum(v * v) + np.sum(p)


def channel_flow(np, u):
    dx, dt, force = 0.25, 0.01, 1.0
    for _ in range(3):
        un = u.copy()
        u[1:-1, 1:-1] = (
            un[1:-1, 1:-1] - dt / dx * un[1:-1, 1:-1] * (un[1:-1, 1:-1] - un[1:-1, :-2])
            + dt / dx**2 * (un[1:-1, 2:] + un[1:-1, :-2] + un[2:, 1:-1] + un[:-2, 1:-1]
                            - 4 * un[1:-1, 1:-1])
            + force * dt
        )
        u[1:-1, -1] = un[1:-1, -1] + dt / dx**2 * (un[1:-1, 0] - un[1:-1, -1]) + force * dt
        u[1:-1, 0] = un[1:-1, 0] + dt / dx**2 * (un[1:-1, 1] - un[1:-1, 0]) + force * dt
        u[0, :] = 0
        u[-1, :] = 0
    return np.sum(u) + np.sum(u * u)


def hdiff(np, field):
    lap = 4.0 * field[1:-1, 1:-1] - (
        field[2:, 1:-1] + field[:-2, 1:-1] + field[1:-1, 2:] + field[1:-1, :-2]
    )
    res = lap[1:, :] - lap[:-1, :]
    flux = np.where(res * (field[2:-1, 1:-1] - field[1:-2, 1:-1]) > 0, 0, res)
    out = np.zeros_like(field)
    out[2:-2, 1:-1] = field[2:-2, 1:-1] - 0.3 * (flux[1:, :] - flux[:-1, :])
    out[0] -= field[-1]
    return np.sum(out**3)


def go_fast(np, a):
    trace = 0.0
    for i in range(a.shape[0]):
        trace += np.tanh(a[i, i])
    a += trace
    return np.sum(a * a)


def arc_distance(np, x):
    out = np.empty((x.shape[0] - 1, 2))
    np.subtract(x[1:], x[:-1], out=out[:, 0])
    np.multiply(x[1:], x[:-1], out=out[:, 1])
    np.sin(out[:, 0], out=out[:, 0])
    out[:, 1] += out[:, 0] ** 2
    return np.sum(np.arctan2(np.sqrt(out[:, 0] ** 2), np.sqrt(1 + out[:, 1] ** 2)))


def softmax(np, x):
    tmp = x - np.max(x, axis=-1, keepdims=True)
    np.exp(tmp, out=tmp)
    tmp /= np.sum(tmp, axis=-1, keepdims=True)
    return np.sum(tmp**2)


def conv2d(np, x):
    weights, n = x[:2, :2] * 0.5, x.shape[0] - 1
    out = np.empty((n, n), dtype=x.dtype)
    for i in range(n):
        for j in range(n):
            out[i, j] = np.sum(x[i : i + 2, j : j + 2] * weights)
    np.maximum(out, 0.0, out=out)
    return np.sum(out**2)


def nussinov_like(np, s):
    n = s.shape[0]
    table = np.zeros((n, n), dtype=s.dtype)
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            table[i, j] = np.maximum(table[i, j - 1], table[i + 1, j])
            table[i, j] = np.maximum(table[i, j], table[i + 1, j - 1] + s[i] * s[j])
    return table[0, -1]


SHAPES = {
    heat3d: (4, 4, 4), jacobi1d: (8,), jacobi2d: (5, 5), seidel2d: (4, 4), cholesky: (3, 3),
    lu: (3, 3), ludcmp: (3, 3), durbin: (5,), gramschmidt: (5, 3), trisolv: (5, 5), trmm: (3, 3),
    symm: (3, 3), covariance: (5, 3), adi: (5, 5), deriche: (5, 6), floyd_warshall: (4, 4),
    fdtd2d: (4, 5), cavity_flow: (6, 6), channel_flow: (5, 6), hdiff: (7, 6), go_fast: (4, 4),
    arc_distance: (7,), softmax: (3, 4), conv2d: (4, 4), nussinov_like: (4,),
}
PROGRAMS = pytest.mark.parametrize("f", SHAPES, ids=lambda f: f.__name__)


def drawn(f):
    return numpy.random.default_rng(len(f.__name__)).normal(size=SHAPES[f])


@PROGRAMS
def test_the_value_is_bit_for_bit_that_of_numpy(f):
    x = drawn(f)
    want = f(numpy, x.copy())
    kept = x.copy()
    assert ft.value_and_grad(functools.partial(f, fnp))(x)[0] == want
    assert (x == kept).all()


@PROGRAMS
def test_the_derivative_is_that_of_numpys_program(f):
    """Along a line, by central differences of NumPy's program, and two modes with each other."""
    x, t = drawn(f), numpy.cos(numpy.arange(drawn(f).size)).reshape(SHAPES[f])
    run = functools.partial(f, fnp)
    g = ft.grad(run)(x)
    along = (f(numpy, x + 1e-6 * t) - f(numpy, x - 1e-6 * t)) / 2e-6
    assert numpy.sum(g * t) == pytest.approx(along, rel=1e-6, abs=1e-6)  # differences of 1e-6
    assert ft.jvp(run, (x,), (t,))[1] == pytest.approx(numpy.sum(g * t), rel=1e-12, abs=1e-12)


@PROGRAMS
def test_jit_agrees(f):
    x, run = drawn(f), functools.partial(f, fnp)
    want, g = ft.value_and_grad(run)(x)
    value, compiled = ft.jit(ft.value_and_grad(run))(x)
    assert value == pytest.approx(want, rel=1e-13)
    numpy.testing.assert_allclose(compiled, g, rtol=1e-11, atol=1e-12)
