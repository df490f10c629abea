"""``functrans.scipy.signal``: values are SciPy's, and derivatives those of SciPy's values."""

from typing import Any

import numpy as np
import pytest
import scipy.signal

import functrans as ft
from functrans.errors import ConcretizationError, NotDifferentiable, UnsupportedError
from functrans.scipy import signal
from functrans.testing import check_grads
from tests.drawing import generator
from tests.scipy.agreement import assert_derivatives, assert_transforms, close

pytestmark = pytest.mark.usefixtures("unoptimised")

ss: Any = scipy.signal  # its types say less than its functions take
RNG = generator(0)
X = RNG.normal(size=(2, 12))
V, K, M = RNG.normal(size=7), RNG.normal(size=3), RNG.normal(size=(4, 5))
L = RNG.normal(size=(2, 3))
B, A = ss.butter(2, 0.3)
SOS = ss.butter(3, 0.3, output="sos")
Z = RNG.normal(size=(2, 2))


def of(name, *behind, **options):
    return lambda *args: getattr(signal, name)(*args, *behind, **options)


LINEAR = {
    **{f"{name} {mode}": (of(name, mode=mode), M, L)
       for name in ("convolve", "correlate", "fftconvolve", "convolve2d", "correlate2d")
       for mode in ("full", "valid", "same")},
    "a shorter first operand": (of("convolve", mode="valid"), K, V),
    "correlate, a shorter first operand": (of("correlate", mode="valid"), K, V),
    "convolve, complex": (of("convolve", mode="same"), V + 1j * V[::-1], K - 2j),
    "correlate, complex": (of("correlate", mode="same"), V + 1j * V[::-1], K - 2j),
    "convolve by fft": (of("convolve", method="fft"), M, L),
    "oaconvolve": (of("oaconvolve", axes=1), M, M[:1, :2]),
    "convolve2d wrap": (of("convolve2d", mode="same", boundary="wrap"), M, L),
    "correlate2d symm": (of("correlate2d", mode="same", boundary="symm"), M, L),
    "correlate2d, exchanged": (of("correlate2d", mode="valid"), L + 1j, M * (1 - 2j)),
    "convolve2d value": (of("convolve2d", fillvalue=2.0), M, L),
    "upfirdn": (of("upfirdn", up=3, down=2), K, X),
    "resample_poly": (of("resample_poly", 2, 3, axis=1), X),
    "resample_poly up": (of("resample_poly", 3, 2), V),
    "resample_poly by zeros before": (of("resample_poly", 5, 3), V),
    **{f"resample {n}": (of("resample", n, axis=1), X) for n in (7, 8, 12, 16, 17)},
    "resample window": (of("resample", 9, window="hamming"), V),
    "resample complex": (of("resample", 4), V + 1j * V[::-1]),
    "detrend": (of("detrend"), X),
    "detrend pieces": (of("detrend", axis=0, bp=[5]), X.T),
    "detrend constant": (of("detrend", type="constant"), X),
    **{f"savgol_filter {mode}": (of("savgol_filter", 5, 2, mode=mode), X)
       for mode in ("interp", "mirror", "constant", "nearest", "wrap")},
    "savgol_filter slope": (of("savgol_filter", 4, 2, deriv=1, delta=0.5, axis=0), X.T),
    "hilbert": (of("hilbert"), X),
    "hilbert odd": (of("hilbert", axis=0, N=9), X.T),
    "medfilt": (of("medfilt", 3), V),
    "stft": (of("stft", nperseg=4, return_onesided=False), X),
    "stft plain": (of("stft", nperseg=5, noverlap=3, return_onesided=False,
                   boundary=None, padded=False, axis=0), X.T),
}
NONLINEAR = {
    "lfilter": (of("lfilter"), B, A, X),
    "lfilter with other scale": (of("lfilter", axis=0), 2 * B, 3 * A, X.T),
    "lfilter from a state": (lambda b, a, x, z: signal.lfilter(b, a, x, zi=z), B, 2 * A, X, Z),
    "lfilter of less than a state": (
        lambda b, a, x, z: signal.lfilter(b, a, x, zi=z), B, A, X[:, :1], Z),
    "lfilter without feedback": (of("lfilter"), B, np.array([2.0]), X),
    "lfilter complex": (of("lfilter"), B + 0.1j, A, X + 1j),
    "lfilter_zi": (of("lfilter_zi"), 2 * B, 3 * A),
    "lfilter_zi, fewer taps": (of("lfilter_zi"), B[:2], A),
    "lfiltic": (of("lfiltic"), B, 3 * A, V[:1], V[2:9]),
    "lfiltic, no inputs": (of("lfiltic"), B, A, V),
    "lfiltic, more taps": (of("lfiltic"), V[:6], A, V[:2], V[3:6]),
    "filtfilt": (of("filtfilt", padlen=2), B, A, V),
    "sosfilt_zi": (of("sosfilt_zi"), SOS),
    "welch": (of("welch", nperseg=6), X),
    "welch median": (of("welch", nperseg=5, average="median", detrend=False), X),
    "csd": (of("csd", nperseg=6, scaling="spectrum"), X, X[:, :9]),
    "csd complex": (of("csd", nperseg=6, detrend="linear"), X + 1j, X * 1j),
    "coherence": (of("coherence", nperseg=4), X, X[::-1]),
    "periodogram": (of("periodogram", fs=4.0, nfft=16), X),
    "freqz": (lambda b, a, w: signal.freqz(b, a, w), B, A, np.array([0.1, 0.5])),
    "freqz grid": (of("freqz", worN=4, include_nyquist=True), B, A),
}
TWICE = {f"filtfilt {p}": (of("filtfilt", padtype=p, padlen=None if p is None else 4), B, A, X)
         for p in ("odd", "even", "constant", None)}
SECTIONS = {  # SciPy takes no sections with sos[:, 3] moved off 1: derivatives in the signal
    "sosfilt": (of("sosfilt"), X),
    "sosfilt from a state": (lambda x, z: signal.sosfilt(SOS, x, zi=z)[0], X,
                             RNG.normal(size=(2, 2, 2))),
    "sosfiltfilt": (of("sosfiltfilt", padlen=4), X),
}
SECTIONS = {name: (f if "state" in name else lambda x, f=f: f(SOS, x), *args)
            for name, (f, *args) in SECTIONS.items()}
CASES = {**LINEAR, **NONLINEAR, **TWICE, **SECTIONS}


@pytest.mark.parametrize("name", CASES)
def test_values_are_scipy_s_and_slopes_those_of_its_values(name):
    f, *args = CASES[name]
    assert_derivatives(f, *args, order=2 if name in NONLINEAR else 1)


@pytest.mark.parametrize("name", ["convolve same", "convolve by fft", "correlate2d symm", "lfilter",
                                  "lfilter from a state", "filtfilt odd", "savgol_filter interp",
                                  "resample 7", "welch", "sosfilt", "upfirdn"])
def test_it_runs_in_batches_and_compiled(name):
    f, *args = CASES[name]
    assert_transforms(f, *args)


def test_sections_are_the_filter_that_they_are_made_of():
    def of_sections(s):
        return signal.sosfilt(s, X)

    def one_after_another(s):
        y = signal.lfilter(s[0, :3], s[0, 3:], X)
        return signal.lfilter(s[1, :3], s[1, 3:], y)

    close(ft.jacobian(of_sections)(SOS), ft.jacobian(one_after_another)(SOS))
    close(of_sections(SOS), one_after_another(SOS))


def test_a_filter_s_slope_in_feedback_is_that_of_powers():
    def last(a):
        return signal.lfilter([1.0], [1.0, -a], np.ones(4))[-1]  # 1 + a + a**2 + a**3

    derivatives = [last, ft.grad(last), ft.grad(ft.grad(last)), ft.jacfwd(ft.grad(ft.grad(last)))]
    assert [float(f(0.5)) for f in derivatives] == [1.875, 2.75, 5.0, 6.0]


def test_single_precision_stays_single():
    x = X.astype(np.float32)
    for f in (lambda v: signal.lfilter(B.astype(np.float32), A.astype(np.float32), v),
              lambda v: signal.convolve(v, np.ones((1, 3), np.float32)),
              lambda v: signal.savgol_filter(v, 5, 2), lambda v: signal.resample(v, 9, axis=1),
              lambda v: signal.hilbert(v), lambda v: signal.welch(v, nperseg=4)[1],
              lambda v: signal.detrend(v), lambda v: signal.medfilt(v, (1, 3))):
        y, pull = ft.vjp(f, x)
        close(y, f(x), rtol=1e-5)  # float32
        assert pull(np.ones_like(y))[0].dtype == np.float32


def test_nothing_and_constants():
    empty = ft.vjp(lambda x: signal.fftconvolve(x, K), np.zeros(0))[0]
    assert empty.shape == signal.fftconvolve(np.zeros(0), K).shape
    assert ft.jvp(lambda x: signal.lfilter(B, A, x), (np.zeros((2, 0)),), (np.zeros((2, 0)),)
                  )[1].shape == (2, 0)
    assert float(ft.grad(lambda x: signal.convolve(x, 3.0))(2.0)) == 3.0
    assert complex(ft.vjp(lambda x: signal.correlate(x, 3j), 2.0 + 0j)[0]) == -6j
    assert signal.windows is ss.windows
    assert type(signal.lfilter(B, A, X)) is np.ndarray


def test_a_tie_of_medians_is_shared_and_ends_are_zeros():
    g = ft.grad(lambda x: signal.medfilt(x, 3)[1])(np.array([1.0, 1.0, 3.0]))
    assert list(g) == [0.5, 0.5, 0.0]


def test_a_window_is_scipy_s_of_numpy_s_functions_or_a_constant():
    check_grads(lambda s: signal.windows.gaussian(5, s), 1.5)
    with pytest.raises(ConcretizationError, match=r"scipy\.signal.*no counterpart"):
        ft.grad(lambda a: signal.windows.dpss(5, a).sum())(1.5)
    with pytest.raises(NotDifferentiable, match="a spectrum got a traced window"):
        ft.grad(lambda w: signal.welch(X, window=w)[1].sum())(np.ones(5))


BAD = {
    "convolve ranks": ("convolve", (M, K), {}),
    "convolve method": ("convolve", (M, L), {"method": "x"}),
    "convolve mode": ("convolve", (M, L), {"mode": "x"}),
    "convolve sizes": ("convolve", (M, M[:2].T), {"mode": "valid"}),
    "correlate ranks": ("correlate", (M, K), {}),
    "fftconvolve ranks": ("fftconvolve", (M, K), {}),
    "fftconvolve axes": ("fftconvolve", (M, L), {"axes": []}),
    "convolve2d ranks": ("convolve2d", (V, K), {}),
    "convolve2d mode": ("convolve2d", (M, L), {"mode": "x"}),
    "convolve2d boundary": ("convolve2d", (M, L), {"boundary": "x"}),
    "lfilter taps": ("lfilter", (M, A, X), {}),
    "lfilter state": ("lfilter", (B, A, X), {"zi": np.ones((2, 5))}),
    "lfilter state rank": ("lfilter", (B, A, X), {"zi": np.ones(2)}),
    "lfilter state of one": ("lfilter", (B, A, X), {"zi": np.ones((2, 1))}),
    "convolve nothing": ("convolve", (V[:0], K), {}),
    "lfilter no feedback state": ("lfilter", (B, A[:1], X), {"zi": np.ones(2)}),
    "lfilter deep state": ("lfilter", (B, A, X), {"zi": np.ones((1, 1, 2))}),
    "filtfilt method": ("filtfilt", (B, A, X), {"method": "x"}),
    "filtfilt padtype": ("filtfilt", (B, A, X), {"padtype": "x"}),
    "filtfilt length": ("filtfilt", (B, A, X), {"padlen": 12}),
    "sosfilt shape": ("sosfilt", (M, X), {}),
    "sosfilt_zi shape": ("sosfilt_zi", (M,), {}),
    "sosfilt state": ("sosfilt", (SOS, X), {"zi": np.ones(2)}),
    "savgol mode": ("savgol_filter", (X, 5, 2), {"mode": "x"}),
    "savgol length": ("savgol_filter", (X, 15, 2), {}),
    "detrend type": ("detrend", (X,), {"type": "x"}),
    "detrend breakpoint": ("detrend", (X,), {"bp": 20}),
    "medfilt even": ("medfilt", (V, 4), {}),
    "resample domain": ("resample", (V, 4), {"domain": "x"}),
    "resample window": ("resample", (V, 4), {"window": np.ones(3)}),
    "upfirdn taps": ("upfirdn", (M, V), {}),
    "upfirdn rate": ("upfirdn", (K, V), {"up": 0}),
    "resample_poly rate": ("resample_poly", (V, 0, 1), {}),
    "hilbert complex": ("hilbert", (X + 1j,), {}),
    "hilbert length": ("hilbert", (X,), {"N": 0}),
    "welch size": ("welch", (X,), {"nperseg": 0}),
    "welch window": ("welch", (X,), {"nperseg": 4, "window": np.ones(3)}),
    "welch nfft": ("welch", (X,), {"nperseg": 6, "nfft": 4}),
    "welch overlap": ("welch", (X,), {"nperseg": 6, "noverlap": 6}),
    "welch average": ("welch", (X,), {"nperseg": 6, "average": "x"}),
    "welch scaling": ("welch", (X,), {"nperseg": 6, "scaling": "x"}),
    "periodogram window": ("periodogram", (X,), {"window": np.ones(3)}),
    "stft scaling": ("stft", (X,), {"nperseg": 6, "scaling": "x"}),
    "stft boundary": ("stft", (X,), {"nperseg": 6, "boundary": "x"}),
    "freqz number": ("freqz", (B, A), {"worN": -1}),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_reported_as_by_scipy(name):
    function, args, options = BAD[name]
    with pytest.raises(Exception) as theirs:  # whatever SciPy raises
        getattr(ss, function)(*args, **options)
    traced = [x if isinstance(x, np.ndarray) else None for x in args]

    def f(*xs):
        xs = [a if x is None else x for x, a in zip(xs, args, strict=True)]
        return getattr(signal, function)(*xs, **options)

    with pytest.raises(type(theirs.value)) as ours:
        ft.vjp(f, *traced)
    first = str(theirs.value).split()[:2]
    assert type(ours.value) is type(theirs.value) and str(ours.value).split()[:2] == first


@pytest.mark.parametrize("taps", [(M, A), (B, M)])
def test_taps_of_two_axes_are_refused(taps):  # which SciPy says in other words before 1.18
    with pytest.raises(ValueError, match="Numerator `b` and Denominator `a` must be 1-D arrays"):
        ft.vjp(signal.lfilter_zi, *taps)


def test_a_filter_of_one_tap_has_no_state():  # as from SciPy 1.18 on
    assert ft.vjp(signal.lfilter_zi, B[:1], A[:1])[0].shape == (0,)


def test_what_is_not_there_is_named():
    with pytest.raises(UnsupportedError, match="filtfilt got method='gust' beside"):
        ft.vjp(lambda x: signal.filtfilt(B, A, x, method="gust"), X)
    with pytest.raises(UnsupportedError, match=r"numbers are not known here.*pass padlen"):
        ft.jit(lambda s: signal.sosfiltfilt(s, X))(SOS)
    with pytest.raises(NotDifferentiable, match="savgol_filter got a traced delta"):
        ft.grad(lambda d: signal.savgol_filter(X, 5, 2, 1, d).sum())(0.5)
    with pytest.raises(UnsupportedError, match="upfirdn got mode='wrap'"):
        ft.vjp(lambda x: signal.upfirdn(K, x, mode="wrap"), V)
    with pytest.raises(UnsupportedError, match="resample_poly got padtype='line'"):
        ft.vjp(lambda x: signal.resample_poly(x, 2, 1, padtype="line"), V)
    with pytest.raises(NotImplementedError, match="result type 'object', which is not supported"):
        ft.vjp(lambda x: signal.lfilter(np.array([B[0]], object), A, x), V)


def test_medians_of_more_than_there_is_are_warned_of():
    with pytest.warns(UserWarning, match="kernel_size exceeds volume extent"):
        ft.vjp(lambda x: signal.medfilt(x), X)
    with pytest.raises(ValueError, match="at least one nonzero `a`"):
        ft.vjp(lambda b: signal.lfilter_zi(b, np.zeros(3)), B)
    with pytest.raises(ValueError, match="at least one nonzero `a`"):
        ft.vjp(lambda b: signal.lfiltic(b, np.zeros(3), V), B)


def test_transforms_of_segments_of_real_signals_are_one_sided():
    y, t = ft.jvp(lambda x: signal.stft(x, nperseg=5)[2], (X,), (X[::-1],))
    close([y, t], [signal.stft(X, nperseg=5)[2], signal.stft(X[::-1], nperseg=5)[2]])
    with pytest.warns(UserWarning, match="Input data is complex"):
        ft.vjp(lambda x: signal.stft(x, nperseg=5)[2], X + 1j)


def test_it_says_which_window_is_too_long():
    with pytest.warns(UserWarning, match="greater than signal length"):
        f, power = ft.vjp(lambda x: signal.welch(x), V)[0]
    assert len(f) == len(power) == 4


@pytest.mark.parametrize("mode", ["full", "valid", "same"])
@pytest.mark.parametrize("exchanged", [False, True])
def test_convolution_over_some_axes_is_that_of_each_pair_of_rows(mode, exchanged):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 3, 5, 6)), rng.normal(size=(3, 4, 2, 3))
    axes, dots = ([2, 3], [2, 3]), ([1], [0])
    if exchanged:
        x, w, dots = w, x, dots[::-1]

    def f(x, w):
        return signal.convolve(x, w, mode, axes=axes, dot_axes=dots)

    def row(v, dot, i, k):
        return v[(k, i) if dot == [0] else (i, k)]

    free = x.shape[1 - dots[0][0]], w.shape[1 - dots[1][0]]
    expected = np.array([[sum([scipy.signal.convolve(row(x, dots[0], i, k), row(w, dots[1], j, k),
                                                     mode) for k in range(3)])
                          for j in range(free[1])] for i in range(free[0])])
    np.testing.assert_allclose(f(x, w), expected, rtol=1e-12, atol=1e-13)
    check_grads(f, (x, w), order=1)
