"""Fourier transforms: linear maps, so their derivative is NumPy's own transform of the tangent."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import functrans as ft
import functrans.numpy as fnp
from functrans.errors import UnsupportedError
from functrans.testing import check_grads

pytestmark = pytest.mark.usefixtures("unoptimised")

REAL_TO_COMPLEX = [
    ("rfft", {}),
    ("rfft", {"n": 3, "axis": 0}),
    ("rfft", {"n": 7, "norm": "ortho"}),
    ("ihfft", {"norm": "forward"}),
    ("ihfft", {"n": 2}),
    ("rfft2", {}),
    ("rfft2", {"s": (5, 2), "axes": (0, 1), "norm": "forward"}),
    ("rfftn", {"norm": "ortho"}),
    ("rfftn", {"axes": (1, 0)}),
    ("rfftn", {"s": (3, -1), "axes": (0, 1)}),
]
ANY_TO_COMPLEX = [
    ("fft", {}),
    ("fft", {"n": 2, "axis": 0}),
    ("fft", {"n": 6, "norm": "ortho"}),
    ("ifft", {"norm": "forward"}),
    ("ifft", {"axis": -2, "n": 1}),
    ("fft2", {"norm": "ortho"}),
    ("ifft2", {"s": (2, 5), "axes": (-2, -1)}),
    ("fftn", {}),
    ("fftn", {"axes": (0, 0)}),
    ("ifftn", {"axes": (1,)}),
    ("ifftn", {"s": (3, 3), "axes": (1, 0), "norm": "forward"}),
]
TO_REAL = [
    ("irfft", {}),
    ("irfft", {"n": 5}),
    ("irfft", {"n": 9, "axis": 0, "norm": "ortho"}),
    ("irfft", {"n": 1}),
    ("hfft", {}),
    ("hfft", {"n": 3, "norm": "forward"}),
    ("irfft2", {}),
    ("irfft2", {"s": (2, 3), "axes": (-2, -1), "norm": "ortho"}),
    ("irfftn", {"axes": (1, 0)}),
    ("irfftn", {"s": (-1, 7), "axes": (0, 1), "norm": "forward"}),
]
SHIFTS = [("fftshift", {}), ("fftshift", {"axes": 1}), ("ifftshift", {"axes": (0,)})]


def name(call):
    return f"{call[0]}({', '.join(f'{k}={v!r}' for k, v in call[1].items())})"


def function(call):
    transform, options = call
    return lambda x: getattr(np.fft, transform)(x, **options)


def draw(kind, seed=0, shape=(3, 4)):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    x = x + 1j * rng.normal(size=shape) if kind == "c" else x
    x.setflags(write=False)
    return x


CASES = [
    *[(c, "f") for c in REAL_TO_COMPLEX + ANY_TO_COMPLEX + TO_REAL + SHIFTS],
    *[(c, "c") for c in ANY_TO_COMPLEX + TO_REAL + SHIFTS],
]
EVERY = pytest.mark.parametrize(
    ("call", "kind"), CASES, ids=[f"{name(c)}-{kind}" for c, kind in CASES]
)


def real_inner(a, b):
    return np.sum(np.real(np.conj(a) * b))


@EVERY
def test_value_and_tangent_are_numpys(call, kind):
    f, x, t = function(call), draw(kind), draw(kind, 1)
    y, dy = ft.jvp(f, (x,), (t,))
    want = f(x)
    assert y.dtype == want.dtype
    assert_allclose(y, want, rtol=1e-13, atol=1e-13)
    assert_allclose(dy, f(t), rtol=1e-13, atol=1e-13)


@EVERY
def test_pullback_is_the_adjoint_of_numpys_transform(call, kind):
    f, x = function(call), draw(kind)
    y, pullback = ft.vjp(f, x)
    ct = draw("c" if y.dtype.kind == "c" else "f", 2, y.shape)
    units = [1.0, 1j] if kind == "c" else [1.0]
    expected = np.zeros(x.shape, x.dtype)
    for i in np.ndindex(x.shape):
        for unit in units:
            e = np.zeros_like(x)
            e[i] = unit
            expected[i] += unit * real_inner(f(e), ct)
    assert_allclose(pullback(ct)[0], expected, rtol=1e-13, atol=1e-13)


@EVERY
def test_vmap_is_the_loop(call, kind):
    f, x = function(call), draw(kind, shape=(2, 3, 4))
    y = ft.vmap(f)(x)
    assert_allclose(y, np.stack([f(v) for v in x]), rtol=1e-13, atol=1e-13)
    g = ft.grad(lambda x: np.sum(np.abs(f(x)) ** 2))
    assert_allclose(ft.vmap(g)(x), np.stack([g(v) for v in x]), rtol=1e-12, atol=1e-12)


@EVERY
def test_second_order_and_compiled(call, kind):
    f, x, t = function(call), draw(kind), draw(kind, 1)
    check_grads(lambda x: f(x) ** 2, (x,), order=2, rtol=1e-7)

    def energy(x):
        return np.sum(np.abs(f(x)) ** 2)

    # a quadratic form: its Hessian is its gradient's own map
    assert_allclose(ft.hvp(energy, x, t)[1], ft.grad(energy)(t), rtol=1e-11, atol=1e-11)
    compiled = ft.jit(ft.value_and_grad(energy))(x)
    for a, b in zip(compiled, ft.value_and_grad(energy)(x), strict=True):
        assert_allclose(a, b, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_round_trips_are_the_identity(n, norm):
    x = draw("f", shape=(n,))
    pairs = [
        lambda x: np.fft.ifft(np.fft.fft(x, norm=norm), norm=norm),
        lambda x: np.fft.irfft(np.fft.rfft(x, norm=norm), n, norm=norm),
        lambda x: np.fft.hfft(np.fft.ihfft(x, norm=norm), n, norm=norm),
        lambda x: np.fft.ifftshift(np.fft.fftshift(x)),
    ]
    for f in pairs:
        assert_allclose(ft.jacobian(f)(x), np.eye(n), atol=1e-14)
        assert_allclose(ft.jacfwd(f)(x), np.eye(n), atol=1e-14)


def test_the_transpose_is_the_transform_itself_and_the_pullback_its_conjugate():
    z, ct = draw("c", shape=(5,)), draw("c", 1, (5,))
    assert_allclose(ft.linear_transpose(np.fft.fft, z)(ct)[0], np.fft.fft(ct), rtol=1e-14)
    assert_allclose(ft.vjp(np.fft.fft, z)[1](ct)[0], 5 * np.fft.ifft(ct), rtol=1e-14)


TYPES = [np.float16, np.float32, np.float64, np.longdouble, np.complex64, np.complex128, np.int64]


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: np.dtype(t).name)
@pytest.mark.parametrize("transform", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn"])
def test_types_are_numpys(transform, dtype):
    f = getattr(np.fft, transform)
    x = np.arange(1, 5).astype(dtype)
    if x.dtype.kind == "c" and transform in ("rfft", "ihfft"):
        with pytest.raises(TypeError):
            ft.grad(lambda x: np.abs(f(x)).sum())(x)
        return
    if x.dtype.kind == "i":
        assert ft.vmap(f)(x.reshape(1, 4)).dtype == f(x).dtype
        return
    y, dy = ft.jvp(f, (x,), (x,))
    assert y.dtype == dy.dtype == f(x).dtype
    assert ft.vjp(f, x)[1](y)[0].dtype == dtype
    assert ft.grad(lambda x: np.abs(f(x)).sum())(x).dtype == dtype
    assert ft.jit(f)(x).dtype == f(x).dtype


def test_memory_order_and_empty_axes_do_not_matter():
    x = draw("c", shape=(4, 6))
    strided = np.asfortranarray(x)[::-1, ::2]
    g = ft.grad(lambda x: np.sum(np.abs(np.fft.fft(x)) ** 2))
    assert_allclose(g(strided), 2 * 3 * strided, rtol=1e-13)
    empty = np.zeros((0, 3))
    assert ft.jacobian(np.fft.rfft)(empty).shape == (0, 2, 0, 3)


def test_half_spectrum_of_one_frequency_is_an_error_as_in_numpy():
    with pytest.raises(ValueError, match=r"Invalid number of FFT data points \(0\)"):
        ft.grad(lambda x: np.fft.irfft(x).sum())(np.ones(1))
    with pytest.raises(ValueError, match=r"Invalid number of FFT data points \(0\)"):
        ft.grad(lambda x: np.fft.fft(x).real.sum())(np.ones(0))


def test_zero_times_infinity_stays_as_in_numpy():
    x = np.array([1.0, np.inf, 0.0])
    with np.errstate(invalid="ignore"):
        y, dy = ft.jvp(np.fft.rfft, (x,), (np.ones(3),))
        assert_allclose(y, np.fft.rfft(x))
    assert_allclose(dy, [3, 0], atol=1e-15)


@pytest.mark.parametrize("make", [np.fft.fftfreq, np.fft.rfftfreq], ids=["fftfreq", "rfftfreq"])
def test_frequencies_have_the_derivative_of_the_spacing(make):
    y, dy = ft.jvp(lambda d: make(5, d), (0.5,), (1.0,))
    assert_allclose(y, make(5, 0.5), rtol=1e-15)
    assert_allclose(dy, -make(5, 0.5) / 0.5, rtol=1e-15)
    named = getattr(fnp.fft, make.__name__)(5, 0.5)
    assert type(named) is ft.Array
    assert_allclose(named, make(5, 0.5), rtol=0)


def test_bad_options_are_errors():
    x = np.ones((2, 3))
    with pytest.raises(ValueError, match="Invalid norm value orthogonal"):
        ft.grad(lambda x: np.fft.rfft(x, norm="orthogonal").real.sum())(x)
    with pytest.raises(ValueError, match="different lengths"):
        ft.grad(lambda x: np.fft.fftn(x, s=(2,), axes=(0, 1)).real.sum())(x)
    with pytest.raises(np.exceptions.AxisError):
        ft.grad(lambda x: np.fft.fft(x, axis=2).real.sum())(x)
    with pytest.raises(UnsupportedError, match=r"np\.fft got out="):
        ft.grad(lambda x: np.fft.fft(x, out=np.empty((2, 3), complex)).real.sum())(x)


def test_lengths_without_axes_warn_as_numpy_does():
    x = np.ones((2, 3))
    with pytest.warns(DeprecationWarning, match="name the axes"):
        y = ft.jvp(lambda x: np.fft.fftn(x, s=(2,)), (x,), (x,))[0]
    assert_allclose(y, np.fft.fftn(x, s=(2,), axes=(-1,)))


def test_every_name_of_numpy_is_there():
    theirs = {n for n in dir(np.fft) if not n.startswith("_") and callable(getattr(np.fft, n))}
    assert set(fnp.fft.__all__) == theirs - {"test"}
    assert type(fnp.fft.fft(np.ones(3))) is ft.Array
