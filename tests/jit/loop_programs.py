"""Programs of loops as people write them: of vectors and matrices to one number.

Each takes A (n, n), well conditioned, and b (n,).
"""

import functrans.numpy as np


def triangular_solve(A, b):
    x = np.zeros(len(b))
    for i in range(len(b)):
        x[i] = (b[i] - A[i, :i] @ x[:i]) / A[i, i]
    return np.sum(x * x)


def backward_solve(A, b):
    n = len(b)
    x = np.zeros(n)
    for i in range(n - 1, -1, -1):
        x[i] = (b[i] - A[i, i + 1 :] @ x[i + 1 :]) / A[i, i]
    return np.sum(x * x)


def cholesky(A, b):
    A = A @ A.T
    for i in range(len(b)):
        for j in range(i):
            A[i, j] -= A[i, :j] @ A[j, :j]
            A[i, j] /= A[j, j]
        A[i, i] -= A[i, :i] @ A[i, :i]
        A[i, i] = np.sqrt(A[i, i])
    return np.sum(np.diag(A) * b) + A[-1, 0]


def cholesky_by_columns(A, b):
    A = A @ A.T
    n = len(b)
    L = np.zeros((n, n))
    for j in range(n):
        L[j, j] = np.sqrt(A[j, j] - np.dot(L[j, :j], L[j, :j]))
        L[j + 1 :, j] = (A[j + 1 :, j] - L[j + 1 :, :j] @ L[j, :j]) / L[j, j]
    return np.sum(L * A)


def lu(A, b):
    A = A.copy()
    for i in range(len(b)):
        for j in range(i):
            A[i, j] -= A[i, :j] @ A[:j, j]
            A[i, j] /= A[j, j]
        for j in range(i, len(b)):
            A[i, j] -= A[i, :i] @ A[:i, j]
    return np.sum(A * A)


def ludcmp(A, b):
    n = len(b)
    A = A.copy()
    x, y = np.zeros(n), np.zeros(n)
    for i in range(n):
        for j in range(i):
            w = A[i, j]
            w -= A[i, :j] @ A[:j, j]
            A[i, j] = w / A[j, j]
        for j in range(i, n):
            w = A[i, j] - A[i, :i] @ A[:i, j]
            A[i, j] = w
    for i in range(n):
        y[i] = b[i] - A[i, :i] @ y[:i]
    for i in range(n - 1, -1, -1):
        x[i] = (y[i] - A[i, i + 1 :] @ x[i + 1 :]) / A[i, i]
    return np.sum(x * x)


def durbin(A, b):
    r = 0.1 * b
    y = np.zeros(len(b))
    alpha, beta = -r[0], 1.0
    y[0] = -r[0]
    for k in range(1, len(b)):
        beta *= 1.0 - alpha * alpha
        alpha = -(r[k] + np.dot(np.flip(r[:k]), y[:k])) / beta
        y[:k] += alpha * np.flip(y[:k])
        y[k] = alpha
    return np.sum(y * y)


def gram_schmidt(A, b):
    n = len(b)
    A = A.copy()
    Q, R = np.zeros((n, n)), np.zeros((n, n))
    for k in range(n):
        R[k, k] = np.sqrt(np.dot(A[:, k], A[:, k]))
        Q[:, k] = A[:, k] / R[k, k]
        for j in range(k + 1, n):
            R[k, j] = np.dot(Q[:, k], A[:, j])
            A[:, j] -= Q[:, k] * R[k, j]
    return np.sum(R * R) + Q[0, 0] * b[0]


def jacobi_1d(A, b):
    u, v = b.copy(), b.copy()
    for _ in range(70):
        v[1:-1] = 0.33333 * (u[:-2] + u[1:-1] + u[2:])
        u[1:-1] = 0.33333 * (v[:-2] + v[1:-1] + v[2:])
    return np.sum(u * u)


def jacobi_2d(A, b):
    u, v = A.copy(), A.copy()
    for _ in range(70):
        v[1:-1, 1:-1] = 0.2 * (
            u[1:-1, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] + u[2:, 1:-1] + u[:-2, 1:-1])
        u[1:-1, 1:-1] = 0.2 * (
            v[1:-1, 1:-1] + v[1:-1, :-2] + v[1:-1, 2:] + v[2:, 1:-1] + v[:-2, 1:-1])
    return np.sum(u * u)


def seidel(A, b):
    A = A.copy()
    n = len(b)
    for _ in range(9):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                A[i, j] = (
                    A[i - 1, j - 1] + A[i - 1, j] + A[i - 1, j + 1] + A[i, j - 1] + A[i, j]
                    + A[i, j + 1] + A[i + 1, j - 1] + A[i + 1, j] + A[i + 1, j + 1]) / 9.0
    return np.sum(A * A)


def heat(A, b):
    u, w = A.copy(), np.zeros(A.shape)
    for _ in range(70):
        w[1:-1, 1:-1] = u[1:-1, 1:-1] + 0.125 * (
            u[2:, 1:-1] - 2.0 * u[1:-1, 1:-1] + u[:-2, 1:-1]) + 0.125 * (
            u[1:-1, 2:] - 2.0 * u[1:-1, 1:-1] + u[1:-1, :-2])
        u, w = w, u
    return np.sum(u * u) + np.sum(w)


def fdtd(A, b):
    ex, ey, hz = A.copy(), 0.5 * A.T, A * A
    for t in range(70):
        ey[0, :] = np.sin(0.1 * t)
        ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
    return np.sum(hz * hz) + np.sum(ex * ey)


def adi(A, b):
    n = len(b)
    u = A.copy()
    v, p, q = np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n))
    for _ in range(9):
        v[0, 1:-1] = 1.0
        p[1:-1, 0] = 0.0
        q[1:-1, 0] = v[0, 1:-1]
        for j in range(1, n - 1):
            p[1:-1, j] = -0.4 / (0.3 * p[1:-1, j - 1] + 1.8)
            q[1:-1, j] = (0.2 * u[j, :-2] + 0.6 * u[j, 1:-1] + 0.2 * u[j, 2:]
                          - 0.3 * q[1:-1, j - 1]) / (0.3 * p[1:-1, j - 1] + 1.8)
        v[-1, 1:-1] = 1.0
        for j in range(n - 2, 0, -1):
            v[j, 1:-1] = p[1:-1, j] * v[j + 1, 1:-1] + q[1:-1, j]
        u[1:-1, 1:-1] = 0.5 * (u[1:-1, 1:-1] + v[1:-1, 1:-1].T)
    return np.sum(u * u)


def history(A, b):
    u = np.zeros((81, len(b)))
    u[0] = b
    for s in range(80):
        u[s + 1, 1:-1] = u[s, 1:-1] + 0.1 * np.sin(u[s, :-2] - u[s, 2:])
    return np.sum(u[-1] * u[40])


def symm(A, b):
    n = len(b)
    C, B = A.T.copy(), A * A
    for i in range(n):
        for j in range(n):
            C[:i, j] += 1.5 * B[i, j] * A[i, :i]
            C[i, j] = 1.2 * C[i, j] + 1.5 * B[i, j] * A[i, i] + 1.5 * np.dot(B[:i, j], A[i, :i])
    return np.sum(C * C)


def trmm(A, b):
    B = A.T.copy()
    for i in range(len(b)):
        for j in range(len(b)):
            B[i, j] += np.dot(A[i + 1 :, i], B[i + 1 :, j])
            B[i, j] *= 1.5
    return np.sum(B * B)


def syrk(A, b):
    C = A.T.copy()
    for i in range(len(b)):
        C[i, : i + 1] *= 1.2
        for k in range(len(b)):
            C[i, : i + 1] += 1.5 * A[i, k] * A[: i + 1, k]
    return np.sum(C * C)


def syr2k(A, b):
    C, B = A.T.copy(), A * A
    for i in range(len(b)):
        C[i, : i + 1] *= 1.2
        for k in range(len(b)):
            C[i, : i + 1] += A[: i + 1, k] * 1.5 * B[i, k] + B[: i + 1, k] * 1.5 * A[i, k]
    return np.sum(C * C)


def covariance(A, b):
    n, m = A.shape
    data = A - np.mean(A, axis=0)
    cov = np.zeros((m, m))
    for i in range(m):
        for j in range(i, m):
            cov[i, j] = data[:, i] @ data[:, j] / (n - 1.0)
            cov[j, i] = cov[i, j]
    return np.sum(cov * cov)


def correlation(A, b):
    n, m = A.shape
    data = (A - np.mean(A, axis=0)) / np.sqrt(n * 1.0) / np.sqrt(np.mean(A * A, axis=0) + 0.1)
    corr = np.eye(m)
    for i in range(m - 1):
        for j in range(i + 1, m):
            corr[i, j] = data[:, i] @ data[:, j]
        corr[i + 1 :, i] = corr[i, i + 1 :]
    return np.sum(corr * corr)


def deriche(A, b):
    n, m = A.shape
    y, z = np.zeros((n, m)), np.zeros((n, m))
    y[:, 0] = 0.3 * A[:, 0]
    y[:, 1] = 0.3 * A[:, 1] + 0.2 * A[:, 0] + 0.4 * y[:, 0]
    for j in range(2, m):
        y[:, j] = 0.3 * A[:, j] + 0.2 * A[:, j - 1] + 0.4 * y[:, j - 1] - 0.1 * y[:, j - 2]
    for j in range(m - 3, -1, -1):
        z[:, j] = 0.1 * A[:, j + 1] + 0.2 * A[:, j + 2] + 0.4 * z[:, j + 1] - 0.1 * z[:, j + 2]
    return np.sum(y * z)


def floyd_warshall(A, b):
    P = np.abs(A) + 0.01
    for k in range(len(b)):
        for i in range(len(b)):
            P[i, :] = np.minimum(P[i, :], P[i, k] + P[k, :])
    return np.sum(P * P)


def newton(A, b):
    y = 2.0 + b[0]
    while abs(y * y - 3.0 - b[0]) > 1e-9:
        y = y - (y * y - 3.0 - b[0]) / (2.0 * y)
    return y * b[1]


def burgers(A, b):
    u = b.copy()
    for _ in range(70):
        un = u.copy()
        u[1:-1] = un[1:-1] - 0.1 * un[1:-1] * (un[1:-1] - un[:-2]) + 0.07 * (
            un[2:] - 2.0 * un[1:-1] + un[:-2])
        u[0] = un[0] - 0.1 * un[0] * (un[0] - un[-1])
    return np.sum(u * u)


def pairs(A, b):
    s = 0.0
    for i, (u, v) in enumerate(zip(b, A[0], strict=True)):
        s = np.tanh(s + u * v) + 0.01 * i
    return s


def rows(A, b):
    s = np.zeros(len(b))
    for row, c in zip(A, b, strict=True):
        s = 0.5 * s + np.sin(row * c)
    return np.sum(s * s)


def helper(A, b):
    def row_sum(i):
        s = 0.0
        for j in range(i):
            s += A[i, j] * A[i, j]
        return s

    t = 0.0
    for i in range(len(b)):
        t = t + row_sum(i) * b[i]
    return t


def branch_by_data(A, b):
    s, t = 0.0, 1.0
    for x in b:
        if x > 0.0:
            s = s + np.exp(x) * t
        else:
            s = s - x
            t = t * 0.9
    return s * t


def branch_by_index(A, b):
    s = 0.0
    for i in range(len(b)):
        if i == 3:
            s = s + 10.0 * b[i]
        elif i % 2:
            s = s * 0.5
        else:
            s = s + b[i] * b[i - 1]
    return s


def with_continue(A, b):
    s = 0.0
    for x in b:
        if x < 0.0:
            continue
        s = s + x * x
    return s


def band(A, b):
    s = 0.0
    for i in range(len(b)):
        low, high = max(0, i - 2), min(len(b), i + 3)
        s = s + np.sum(A[i, low:high]) * b[i]
    return s


def views(A, b):
    z = np.zeros(len(b) + 1)
    y = z[1:]
    for i in range(len(b)):
        y[i] = b[i] + 0.5 * z[i] * z[i]
    return np.sum(z * z)


def counter(A, b):
    s, k = 0.0, 0
    for _ in range(len(b) // 2):
        s = s + b[k] * b[k + 1]
        k += 2
    return s


STAGED = [
    triangular_solve, backward_solve, cholesky, cholesky_by_columns, lu, ludcmp, durbin,
    gram_schmidt, jacobi_1d, jacobi_2d, seidel, heat, fdtd, adi, history, symm, trmm, syrk, syr2k,
    covariance, correlation, deriche, floyd_warshall, newton, burgers, pairs, rows, helper,
    branch_by_data, branch_by_index, with_continue, band, views, counter,
]


# ---- Loops that Python runs


def append(A, b):
    out, s = [], 0.0
    for x in b:
        s = 0.5 * s + x
        out.append(s)
    return np.sum(np.stack(out) ** 2)


class _Box:
    s = 0.0


def attribute(A, b):
    box = _Box()
    for x in b:
        box.s = 0.5 * box.s + x * x
    return box.s


def in_dictionary(A, b):
    d = {"s": 0.0, "t": 1.0}
    for x in b:
        d["s"] = d["s"] + x * d["t"]
        d["t"] = d["t"] * 0.9
    return d["s"]


def with_break(A, b):
    s = 0.0
    for i in range(len(b)):
        s = s + b[i] * b[i]
        if i > 66:
            break
    return s


def early_return(A, b):
    s = 0.0
    for i in range(len(b)):
        s = s + b[i] * b[i]
        if i == 67:
            return s * 2.0
    return s


def listed(A, b):
    parts = [A[i] * b[i] for i in range(len(b))]
    s = 0.0
    for i in range(len(b)):
        s = s + parts[i] @ b
    return s


def shared(A, b):
    u = v = b.copy()
    for i in range(1, len(b)):
        u[i] = 0.5 * v[i - 1] + b[i]
        v = u
    return np.sum(v * u)


def backwards(A, b):
    s = 0.0
    for i in reversed(range(len(b))):
        s = 0.9 * s + b[i // 2] * b[i % 3]
    for v in reversed(b):
        parts = [v]
        parts.append(s)
        s = s + parts[0] * parts[1]
    return s


WRITTEN_OUT = [append, backwards, attribute, in_dictionary, with_break, early_return, listed,
               shared]
