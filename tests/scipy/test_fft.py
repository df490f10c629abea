"""Do scipy.fft's names agree with SciPy, and have they derivatives?"""

import numpy as np
import pytest
import scipy.fft as sf

import functrans as ft
from functrans.scipy import fft

X = np.random.default_rng(0).normal(size=(3, 4, 6))
NAMES = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2", "irfft2",
         "fftn", "ifftn", "rfftn", "irfftn", "fftshift", "ifftshift"]
OPTIONS = {
    **{key: [{}, {"n": 5, "axis": 1}, {"norm": "ortho", "workers": 1}] for key in NAMES[:6]},
    **{key: [{}, {"s": (3, 5)}, {"axes": (0, 1), "norm": "forward"}] for key in NAMES[6:14]},
    **{key: [{}, {"axes": 1}] for key in NAMES[14:]},
}


@pytest.mark.parametrize("name, options", [(n, o) for n in NAMES for o in OPTIONS[n]])
def test_a_transform_is_scipy_s_and_its_own_derivative(name, options):
    ours, theirs = getattr(fft, name), getattr(sf, name)
    t = np.random.default_rng(1).normal(size=X.shape)
    y, dy = ft.jvp(lambda x: ours(x, **options), (X,), (t,))
    np.testing.assert_allclose(y, theirs(X, **options), atol=1e-13)
    np.testing.assert_allclose(dy, theirs(t, **options), atol=1e-13)
    ct = np.ones_like(y)
    back, = ft.vjp(lambda x: ours(x, **options), X)[1](ct)
    np.testing.assert_allclose(np.sum(back * t), np.real(np.sum(ct * dy)), atol=1e-12)


def test_plain_arrays_are_transformed_by_scipy():
    x = X.astype(np.float32)
    assert fft.fft(x).dtype == np.complex64
    assert fft.dct(x).dtype == np.float32


TRIGONOMETRIC = [
    (name, {"type": k, "norm": norm, "orthogonalize": o})
    for name in ("dct", "idct", "dst", "idst") for k in (1, 2, 3, 4)
    for norm, o in ((None, None), ("ortho", None), ("forward", True), ("ortho", False))
]


@pytest.mark.parametrize("name, options", [
    *TRIGONOMETRIC,
    *[(name, options) for name in ("dct", "idst") for options in
      ({"n": 3, "axis": 1}, {"n": 9, "axis": -2, "type": 3}, {"overwrite_x": True, "workers": 1})],
    *[(name, options) for name in ("dctn", "idctn", "dstn", "idstn") for options in
      ({}, {"s": (3, 5)}, {"axes": (0, 2), "norm": "ortho"}, {"s": 2, "axes": 1, "type": 1})],
])
def test_cosine_and_sine_transforms_are_scipy_s_and_linear(name, options):
    ours, theirs = getattr(fft, name), getattr(sf, name)
    t = np.random.default_rng(1).normal(size=X.shape)
    y, dy = ft.jvp(lambda x: ours(x, **options), (X,), (t,))
    np.testing.assert_allclose(y, theirs(X.copy(), **options), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(dy, theirs(t.copy(), **options), rtol=1e-12, atol=1e-14)
    ct = np.random.default_rng(2).normal(size=y.shape)
    back, = ft.vjp(lambda x: ours(x, **options), X)[1](ct)
    np.testing.assert_allclose(np.sum(back * t), np.sum(ct * dy), rtol=1e-12, atol=1e-12)
    again = ft.jvp(lambda ct: ft.vjp(lambda x: ours(x, **options), X)[1](ct)[0], (ct,), (ct,))[1]
    np.testing.assert_allclose(again, back, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["dct", "idct", "dst", "idst", "dctn"])
def test_cosine_and_sine_transforms_under_vmap_jit_and_of_other_types(name):
    ours, theirs = getattr(fft, name), getattr(sf, name)
    np.testing.assert_allclose(ft.vmap(lambda x: ours(x, 3))(X),
                               np.stack([theirs(x, 3) for x in X]), rtol=1e-12, atol=1e-14)
    loss = lambda x: np.sum(ours(x, 2) ** 3)  # noqa: E731  # a function in one line
    np.testing.assert_allclose(ft.jit(ft.grad(loss))(X), ft.grad(loss)(X), rtol=1e-13)
    z = X + 1j * X[::-1]
    for x in (X.astype(np.float32), z, np.arange(5)):
        y, _ = ft.vjp(lambda s, x=x: ours(x * s, 2), x.dtype.type(1))
        assert y.dtype == theirs(x, 2).dtype
        np.testing.assert_allclose(y, theirs(x, 2), rtol=1e-6, atol=1e-5)  # of float32
    for norm, o in ((None, True), ("ortho", False)):
        y, _ = ft.vjp(lambda z, n=norm, o=o: ours(z, 2, norm=n, orthogonalize=o), z)
        np.testing.assert_allclose(y, theirs(z, 2, norm=norm, orthogonalize=o), rtol=1e-12)
    y, pull = ft.vjp(lambda z: ours(z, 2), z)
    np.testing.assert_allclose(np.sum(pull(y)[0] * z), np.sum(y * y), rtol=1e-12)


def test_arguments_that_scipy_refuses_are_refused_with_its_words():
    for options, message in [({"type": 5}, "invalid type"), ({"n": 0}, "invalid number of data"),
                             ({"norm": "half"}, "Invalid norm value"),
                             ({"type": 1, "n": 1}, "DCT-I is not defined for size < 2")]:
        for x in (X, ft.array(X)):
            with pytest.raises(ValueError, match=message):
                ft.grad(lambda s, x=x, o=options: fft.dct(x * s, **o).sum())(1.0)
        with pytest.raises(ValueError, match=r"nvalid"):
            fft.dct(X, **({"n": 0} if "n" in options else {"type": 5}))
