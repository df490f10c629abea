"""Nests built by hand: a triangular solve, a recurrence in place, a factorization."""

import numpy as np
from numpy.typing import DTypeLike

from functrans._compile.ir.program import Program, evaluate
from functrans._compile.nest.equation import Nest
from functrans._compile.nest.forms import Form, Index
from functrans._compile.nest.ir import (
    Buffer,
    Entry,
    For,
    If,
    Let,
    Place,
    Store,
    While,
)
from functrans._core.array import Aval
from functrans._transforms.staging.staging import stage

FLOAT = np.dtype(float)


def scalar(f, *dtypes) -> Program:
    """The program of a function of 0-d values."""
    return stage(f, [np.ones((), t) for t in dtypes], "entry")[0]


def buffer(name, *shape, dtype: DTypeLike = FLOAT):
    return Buffer(name, Aval(shape, np.dtype(dtype)))


def entry(store, f, *loads, axes=(), forms=()):
    """``store = f(loads, forms)``."""
    dtypes = [p.buffer.aval.dtype for p in loads] + [np.dtype(np.int64)] * len(forms)
    axes = tuple((v, Form.of(n)) for v, n in axes)
    program = scalar(f, *dtypes)
    return Entry(axes, tuple(loads), program, (store,), tuple(map(Form.of, forms)))


def zero(b):
    value = np.zeros((), b.aval.dtype)
    axes = [(Index("z"), n) for n in b.aval.shape]
    return entry(Store.of(b, *[v for v, _ in axes]), lambda: value, axes=axes)


def unused(row):
    raise AssertionError(f"{row} is not called")


def trisolv(n, dtype=FLOAT, rules=unused):
    """x[i] = (b[i] - L[i, :i] @ x[:i]) / L[i, i]"""
    L, b, x, t = (
        buffer("L", n, n, dtype=dtype),
        buffer("b", n, dtype=dtype),
        buffer("x", n, dtype=dtype),
        buffer("t", dtype=dtype),
    )
    i, k = Index("i"), Index("k")
    body = For(
        i,
        Form(0),
        Form(n),
        (
            zero(t),
            entry(
                Store.of(t, add=True),
                lambda x, y: x * y,
                Place.of(L, i, k),
                Place.of(x, k),
                axes=[(k, i)],
            ),
            entry(
                Store.of(x, i),
                lambda b, t, d: (b - t) / d,
                Place.of(b, i),
                Place.of(t),
                Place.of(L, i, i),
            ),
        ),
    )
    return Nest("trisolv", (L, b), (x,), (body,), rules)


def cholesky(n, dtype=FLOAT, rules=unused):
    """A factored in place, its lower half."""
    A, t = buffer("A", n, n, dtype=dtype), buffer("t", dtype=dtype)
    i, j = Index("i"), Index("j")
    take = lambda a, t: a - t  # noqa: E731
    times = lambda a, b: a * b  # noqa: E731

    def dot(r, c):
        m = Index("k")
        return [
            zero(t),
            entry(
                Store.of(t, add=True), times, Place.of(A, r, m), Place.of(A, c, m), axes=[(m, c)]
            ),
            entry(Store.of(A, r, c), take, Place.of(A, r, c), Place.of(t)),
        ]

    inner = For(
        j,
        Form(0),
        Form.of(i),
        (
            *dot(i, j),
            entry(Store.of(A, i, j), lambda a, d: a / d, Place.of(A, i, j), Place.of(A, j, j)),
        ),
    )
    body = For(
        i,
        Form(0),
        Form(n),
        (
            inner,
            *dot(i, i),
            entry(Store.of(A, i, i), lambda a: np.sqrt(a), Place.of(A, i, i)),
        ),
    )
    return Nest("cholesky", (A,), (A,), (body,), rules)


def sweep(n, steps, dtype=FLOAT, rules=unused):
    """``steps`` times u[1:-1] = sin(u[:-2] * u[2:]) + c * u[1:-1], by a temporary; u[0] += u[-1]
    in every pass but the first."""
    u, c, t = buffer("u", n, dtype=dtype), buffer("c", dtype=dtype), buffer("t", n, dtype=dtype)
    s, k, m = Index("s"), Index("k"), Index("m")
    at = Form.of(k) + 1
    body = For(
        s,
        Form(0),
        Form(steps),
        (
            entry(
                Store.of(t, k),
                lambda a, b, u, c: np.sin(a * b) + c * u,
                Place.of(u, k),
                Place.of(u, at + 1),
                Place.of(u, at),
                Place.of(c),
                axes=[(k, n - 2)],
            ),
            entry(Store.of(u, Form.of(m) + 1), lambda t: t, Place.of(t, m), axes=[(m, n - 2)]),
            If(
                (Form.of(s) - 1,),
                None,
                (entry(Store.of(u, 0), lambda a, b: a + b, Place.of(u, 0), Place.of(u, n - 1)),),
            ),
        ),
    )
    return Nest("sweep", (u, c), (u,), (body,), rules)


def newton(n, rules=unused):
    """out[i] = sqrt(A[i]) by as many steps as it takes."""
    A, out, x = buffer("A", n), buffer("out", n), buffer("x")
    steps, go = buffer("steps", dtype=int), buffer("go", dtype=bool)
    i = Index("i")
    test = entry(
        Store.of(go), lambda x, a: np.abs(x * x - a) > 1e-13 * a, Place.of(x), Place.of(A, i)
    )
    step = entry(Store.of(x), lambda x, a: (x + a / x) / 2, Place.of(x), Place.of(A, i))
    body = For(
        i,
        Form(0),
        Form(n),
        (
            entry(Store.of(x), lambda a: a * 1.0, Place.of(A, i)),
            While(Index("p"), (test,), Place.of(go), (step,), steps),
            entry(Store.of(out, i), lambda x: x, Place.of(x)),
        ),
    )
    return Nest("newton", (A,), (out,), (body,), rules)


def gather(n, m, rules=unused):
    """y[i] += x[at[i]] ** 2, then x[at[i]] = sin(x[at[i]])"""
    x, at, y = buffer("x", n), buffer("at", m, dtype=int), buffer("y", m)
    i, d = Index("i"), Index("d")
    body = For(
        i,
        Form(0),
        Form(m),
        (
            Let(d, Place.of(at, i), Form(0), Form(n)),
            entry(Store.of(y, i, add=True), lambda a: a * a, Place.of(x, d)),
            entry(Store.of(x, d), lambda a: np.sin(a), Place.of(x, d)),
        ),
    )
    return Nest("gather", (x, at), (x, y), (body,), rules)


def interpret_nest(nest, xs):
    """The outputs, entry by entry."""
    return nest.computed(xs, evaluate)
