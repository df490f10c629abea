"""Functions that write into arrays: NumPy's semantics of writing, and the derivatives of that."""

import numpy as plain_np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import functrans as ft
import functrans.numpy as np
from functrans._transforms.writing import may_write

X = plain_np.array([0.3, -1.2, 0.7, 2.0, -0.4, 1.1])


def transformed(f):
    """The value of ``f`` where it is differentiated, batched and compiled."""
    return {
        "value_and_grad": lambda x: ft.value_and_grad(f)(x)[0],
        "jvp": lambda x: ft.jvp(f, (x,), (x,))[0],
        "vmap": lambda x: ft.vmap(f)(x[None])[0],
        "jit": ft.jit(f),
    }


def derivatives(f, x):
    """Gradient and Hessian by several ways, and the gradient by complex steps of NumPy itself."""
    steps = [f(x + 1e-40j * e).imag / 1e-40 for e in plain_np.eye(x.size)]
    return steps, [
        ft.grad(f)(x), ft.jacfwd(f)(x), ft.jit(ft.grad(f))(x), ft.grad(ft.jit(f))(x),
        ft.vmap(ft.grad(f))(x[None])[0], ft.vjp(f, x)[1](1.0)[0],
    ]


# ---- programs that are drawn


def _views(y, kind, i, n):
    """A view of ``y``, or a copy, as NumPy says."""
    flat = y.ndim == 1
    return {
        "head": lambda: y[:n],
        "tail": lambda: y[i:],
        "stride": lambda: y[i % 2 :: 2],
        "back": lambda: y[::-1],
        "transposed": lambda: y.T,
        "folded": lambda: y.reshape(2, -1) if y.size % 2 == 0 else y,
        "flattened": lambda: y.reshape(-1),
        "raveled": lambda: y.ravel(),
        "longer": lambda: y[:, None] if flat else y[None],
        "cell": lambda: y[i % y.shape[0], ...],
        "row": lambda: y if flat else y[i % y.shape[0]],
        "column": lambda: y if flat else y[:, i % y.shape[1]],
        "squeezed": lambda: np.squeeze(y),
        "flipped": lambda: np.flip(y),
        "copied": lambda: y.copy(),
        "picked": lambda: y[[0, -1]],
        "masked": lambda: y[plain_np.arange(y.shape[0]) % 2 == 0],
    }[kind]()


def _write(y, x, kind, i, a):
    """Write something computed from ``x`` into ``y``."""
    if not y.ndim:
        kind = {"scale": kind, "add": "sub", "out": kind, "copyto": kind}.get(kind, "square")
    i = i % y.shape[0] if y.ndim else 0
    if kind == "entry":
        y[i] = a * x[0]
    elif kind == "slice":
        y[i:] = x[1] + y[i:] * a
    elif kind == "add":
        y[: i + 1] += x[2] * a
    elif kind == "scale":
        y *= a
    elif kind == "square":
        y[...] = y * y * 0.1
    elif kind == "constant":
        y[i] = a
    elif kind == "overlap":
        y[1:] = y[:-1]
    elif kind == "mask":
        y[plain_np.arange(y.shape[0]) > i] = x[3]
    elif kind == "list":
        y[[0, i]] = x[4] * a
    elif kind == "out":
        np.multiply(y, x[5], out=y)
    elif kind == "at":
        np.add.at(y, ([0, i, 0],), x[0])
    elif kind == "copyto":
        np.copyto(y, x[1] * a)
    elif kind == "fill":
        y.fill(a)
    elif kind == "sub":
        y -= x[2]


VIEW_KINDS = [
    "head", "tail", "stride", "back", "transposed", "folded", "flattened", "raveled", "longer",
    "cell", "row", "column", "squeezed", "flipped", "copied", "picked", "masked",
]
WRITE_KINDS = [
    "entry", "slice", "add", "scale", "square", "constant", "overlap", "mask", "list", "out", "at",
    "copyto", "fill", "sub",
]
steps = st.tuples(
    st.integers(0, 5), st.sampled_from(VIEW_KINDS), st.integers(0, 5), st.integers(0, 5),
    st.sampled_from(WRITE_KINDS), st.sampled_from([0.5, -1.5, 2.0]),
)


def program(drawn, start):
    """A function that makes views of arrays, and writes into some of them, as ``drawn`` says."""

    def f(x):
        first = np.zeros((2, 3), x.dtype) if start == "zeros" else x * 2.0
        arrays = [x if start == "argument" else first]
        for source, view, i, n, write, a in drawn:
            y = arrays[source % len(arrays)]
            y = _views(y, view, i, n) if y.ndim else y[...]
            if not y.size or y.ndim > 4:
                continue
            arrays.append(y)
            _write(y, x, write, n, a)
        return sum(np.sum(y * (k + 1.0)) for k, y in enumerate(arrays)) + np.sum(x)

    return f


@given(st.lists(steps, min_size=1, max_size=6), st.sampled_from(["zeros", "argument", "product"]))
def test_programs_that_write_into_views_compute_what_numpy_computes(drawn, start):
    f = program(drawn, start)
    want = f(X.copy())
    kept = X.copy()
    for way, g in transformed(f).items():
        assert g(X) == pytest.approx(want, rel=1e-12, abs=1e-12), way
    assert (kept == X).all()


@given(st.lists(steps, min_size=1, max_size=4), st.sampled_from(["zeros", "argument", "product"]))
def test_programs_that_write_into_views_have_the_derivative_of_what_they_compute(drawn, start):
    want, ways = derivatives(program(drawn, start), X)
    for g in ways:
        plain_np.testing.assert_allclose(g, want, rtol=1e-11, atol=1e-11)
