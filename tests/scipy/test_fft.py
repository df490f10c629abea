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
    np.testing.assert_array_equal(fft.dct(x), sf.dct(x))
