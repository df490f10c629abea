"""Every floating type keeps itself through values, gradients and second derivatives."""

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_allclose

import functrans as ft

la = np.linalg
X = [0.5, 1.25, 2.0]
# Relative rounding of each type, times the handful of operations below.
TYPES = {
    np.float16: 1e-2,
    ml_dtypes.bfloat16: 8e-2,
    np.float32: 1e-5,
    np.float64: 1e-13,
    np.longdouble: 1e-13,  # compared with float64 figures
    np.complex64: 1e-5,
    np.complex128: 1e-13,
}


def f(x):
    y = x * x * np.exp(-x) + np.sqrt(x)
    return (y * np.conj(y)).real.sum() if x.dtype.kind == "c" else (y * y).sum()


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: np.dtype(t).name)
def test_gradient(dtype):
    g = ft.grad(f)(np.array(X, dtype))
    assert g.dtype == dtype
    expected = ft.grad(f)(np.array(X))
    # the loss of a complex x near the real axis is the real one's: so is the gradient's real part
    assert_allclose(np.real(g.astype(complex)), expected, rtol=TYPES[dtype])


@pytest.mark.parametrize("dtype", [t for t in TYPES if np.dtype(t).kind != "c"])
def test_both_modes_and_second_order(dtype):
    x = np.array(X, dtype)
    value, tangent = ft.jvp(f, (x,), (np.ones(3, dtype),))
    assert value.dtype == tangent.dtype == dtype
    product = ft.hvp(f, x, np.ones(3, dtype))[1]
    assert product.dtype == dtype
    exact = ft.hvp(f, np.array(X), np.ones(3))[1]
    assert_allclose(product.astype(float), exact, rtol=4 * TYPES[dtype], atol=4 * TYPES[dtype])


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: np.dtype(t).name)
def test_compiled(dtype):
    x = np.array(X, dtype)
    g = ft.jit(ft.grad(f))(x)
    assert g.dtype == dtype
    assert_allclose(g.astype(complex), ft.grad(f)(x).astype(complex), rtol=TYPES[dtype])


# ---- every function has the type that NumPy gives it, and its gradient that of its argument

CALLS = {
    "mean": np.mean, "mean over an axis": lambda x: np.mean(x, 0), "var": np.var, "std": np.std,
    "var with ddof": lambda x: np.var(x, axis=1, ddof=1), "sum": np.sum, "prod": np.prod,
    "max": np.max, "ptp": np.ptp, "average": lambda x: np.average(x, 0, [1, 2, 3, 4]),
    "nanmean": np.nanmean, "nansum": np.nansum, "nanvar": np.nanvar, "nanmax": np.nanmax,
    "cumsum": np.cumsum, "cumprod": np.cumprod, "diff": np.diff, "trapezoid": np.trapezoid,
    "gradient": lambda x: np.gradient(x, axis=0), "ediff1d": np.ediff1d,
    "clip": lambda x: np.clip(x, 0.3, 0.8), "maximum": lambda x: np.maximum(x, 0.5),
    "where": lambda x: np.where(np.arange(4) > 1, x, 1), "round": lambda x: np.round(x, 1),
    "fix": np.fix, "modf": lambda x: np.modf(x)[0], "frexp": lambda x: np.frexp(x)[0],
    "divmod": lambda x: np.divmod(x, 0.3)[1], "nan_to_num": np.nan_to_num, "sinc": np.sinc,
    "i0": np.i0, "angle": np.angle, "angle in degrees": lambda x: np.angle(x, True),
    "abs": np.abs, "unwrap": np.unwrap, "real": np.real,
    "heaviside": lambda x: np.heaviside(x, 0.5) * x,
    "interp": lambda x: np.interp(x, [0, 1], [0, 1]), "power": lambda x: x**3,
    "power of a float": lambda x: x**2.5, "power with a base": lambda x: 2**x,
    "hypot": lambda x: np.hypot(x, 1.0), "logaddexp": lambda x: np.logaddexp(x, x),
    "arctan2": lambda x: np.arctan2(x, 1), "exp2": np.exp2, "cbrt": np.cbrt, "sort": np.sort,
    "pad": lambda x: np.pad(x, 1), "tril": np.tril, "trace": np.trace,
    "kron": lambda x: np.kron(x, x), "matmul": lambda x: x @ x, "dot": lambda x: np.dot(x, x),
    "vecdot": lambda x: np.vecdot(x, x), "convolve": lambda x: np.convolve(x[0], x[1]),
    "cross": lambda x: np.cross(x[:, :3], x[:, 1:]), "norm": la.norm,
    "norm of order 3": lambda x: la.norm(x, 3, axis=0), "nuclear norm": lambda x: la.norm(x, "nuc"),
    "solve": lambda x: la.solve(x, x[:, 0]), "inv": la.inv, "det": la.det,
    "slogdet": lambda x: la.slogdet(x)[1], "qr": lambda x: la.qr(x)[1], "svdvals": la.svdvals,
    "eigvalsh": la.eigvalsh, "pinv": la.pinv, "lstsq": lambda x: la.lstsq(x, x[:, 0])[0],
    "matrix_power": lambda x: la.matrix_power(x, 3), "fft": np.fft.fft, "irfft": np.fft.irfft,
    "polyval": lambda x: np.polyval(x[0], x), "polyder": lambda x: np.polyder(x[0]),
    "polyfit": lambda x: np.polyfit(x[0] + x[1], x[1], 1), "roots": lambda x: np.roots(x[0]),
    "polymul": lambda x: np.polymul(x[0], x[1]), "vander": lambda x: np.vander(x[0]),
    "linspace": lambda x: np.linspace(x, 2 * x, 3),
    "logspace": lambda x: np.logspace(x[0], x[1], 3),
    "geomspace": lambda x: np.geomspace(x[0], x[1], 3), "append": lambda x: np.append(x, 1.0),
    "inner": lambda x: np.inner(x, x), "vdot": lambda x: np.vdot(x, x),
    "tensordot": lambda x: np.tensordot(x, x, 1), "vector times vector": lambda x: x[0].dot(x[1]),
    "logaddexp.reduce": np.logaddexp.reduce, "multiply.accumulate": np.multiply.accumulate,
    "numbers": lambda x: x * 2.5 + 1, "a float32": lambda x: x * np.float32(2),
    "a float64 array": lambda x: x * np.array(2.0), "float_power": lambda x: np.float_power(x, 2),
    "add in float64": lambda x: np.add(x, x, dtype=np.float64),
}
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
# Where we take what NumPy refuses, or keep float32 where NumPy rounds it to bfloat16.
WIDER = {
    ("average", BFLOAT16), ("geomspace", BFLOAT16), ("polyfit", np.dtype(np.float16)),
}
TYPED = [(c, np.dtype(t)) for c in CALLS for t in TYPES if (c, np.dtype(t)) not in WIDER]


def matrix(dtype):
    entries = np.random.default_rng(0).permutation(16).reshape(4, 4)
    return (entries / 20 + 0.2 + np.eye(4)).astype(dtype)


@pytest.mark.parametrize(("call", "dtype"), TYPED, ids=lambda v: str(v))
def test_functions_have_the_types_of_numpys(call, dtype):
    f, x = CALLS[call], matrix(dtype)
    try:
        want = np.asarray(f(x))
    except TypeError:
        with pytest.raises(TypeError):
            ft.vjp(f, x)
        with pytest.raises(TypeError):
            ft.jvp(f, (x,), (x,))
        return
    y, dy = ft.jvp(f, (x,), (x,))
    assert y.dtype == dy.dtype == want.dtype
    rounding = 20 * TYPES[dtype.type]  # sums and decompositions
    assert_allclose(y.astype(complex), want.astype(complex), rtol=rounding, atol=rounding)
    assert ft.vjp(f, x)[1](np.ones_like(want))[0].dtype == dtype
    assert ft.vmap(f)(np.stack([x, x])).dtype == want.dtype
    assert ft.make_program(f)(x).outputs[0].aval.dtype == want.dtype


def test_a_type_that_a_ufunc_cannot_be_told_to_compute_in():
    for f in (lambda z: np.add(z, z, dtype=float), lambda z: np.interp(z, [0, 1], [0, 1])):
        x = np.array([1 + 1j])
        with pytest.raises(TypeError, match=r"[Cc]ast"):
            f(x)
        with pytest.raises(TypeError, match="Cannot cast"):
            ft.jvp(f, (x,), (x,))


@pytest.mark.parametrize("dtype", [t for t in TYPES if np.dtype(t).kind != "c"])
def test_a_cast_to_a_narrower_type_passes_the_derivative_on(dtype):
    g = ft.grad(lambda x: np.sum((3 * x).astype(dtype)))(np.array(X))
    assert_allclose(g, [3.0] * 3)


@pytest.mark.parametrize("f, x", [
    (lambda x: np.clip(x, 0, np.array([1, 2, 3], np.float16)), np.array([True, False, True])),
    (lambda x: np.clip(x, 0, np.array([1, 2, 3], np.uint8)), np.array([True, False, True])),
    (lambda x: np.clip(x, -1, 300), np.array([1, 2, 250], np.uint8)),
    (lambda x: np.choose([0, 1, 0], [x, 2.0]), np.ones(3, np.float32)),
    (lambda x: np.choose([0, 1, 2], [1, 2.5, x]), np.ones(3, np.float32)),
    (lambda x: np.choose([[0], [0]], [x]), np.ones(3, np.float32)),
    (lambda x: np.choose([0, 0], [x]), np.float32(2.0)),
    (lambda x: np.einsum(",i->i", x, np.ones(3, np.float32)), 2.5),
])
def test_numbers_of_python_among_operands_promote_as_in_numpy(f, x, unoptimised):
    got, want = ft.jit(f)(x), f(x)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(got, want)
