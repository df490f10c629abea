"""``fft``: discrete Fourier transforms and what goes with them, windows included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans.extend import AnyArray
from functrans.torch._functions.table import FFT, FUNCTIONS, op
from functrans.torch._graph.nodes import named
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.factories import factory

# ---- ``fft``: discrete Fourier transforms and what goes with them


def _ready(who: str, x: Any, real: bool) -> AnyArray:
    """``x`` in a type that is transformed; the result has its precision."""
    if real and x.dtype.kind == "c":
        raise RuntimeError(f"fft.{who} expects a real input tensor, but got {x.dtype.name}")
    return x if x.dtype.kind in "fc" else x.astype(dtypes.default_float())


def _one(name: str, transform: Callable, real: bool = False) -> None:
    def body(input, n=None, dim=-1, norm=None):
        x = _ready(name, input, real)
        if n is not None and n < 1:
            raise RuntimeError(f"Invalid number of data points ({n}) specified")
        return transform(x, n, dim, norm)

    op(body, name, f"The transform ``{name}`` along one dimension.", space=FFT)


def _many(name: str, transform: Callable, dims: Any, real: bool = False) -> None:
    def body(input, s=None, dim=dims, norm=None):
        x = _ready(name, input, real)
        sizes: Any = None if s is None else [s] if isinstance(s, int) else list(s)
        along: Any = [dim] if isinstance(dim, int) else dim
        if along is None:
            along = range(0 if sizes is None else x.ndim - len(sizes), x.ndim)
        if sizes is not None:
            sizes = [x.shape[d] if k == -1 else k for k, d in zip(sizes, along, strict=True)]
        return transform(x, sizes, tuple(along), norm)

    op(body, name, f"The transform ``{name}`` along several dimensions.", space=FFT)


# the real transform of half of what is symmetric is the other one, of the conjugate
_SWAPPED: dict[Any, Any] = {
    None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho",
}


def _hfftn(x: Any, s: Any, dim: tuple, norm: Any) -> AnyArray:
    """The real transform of a half of what is symmetric."""
    return np.fft.irfftn(np.conjugate(x), s, dim, _SWAPPED[norm])


def _ihfftn(x: Any, s: Any, dim: tuple, norm: Any) -> AnyArray:
    return np.conjugate(np.fft.rfftn(x, s, dim, _SWAPPED[norm]))


for _name in ("fft", "ifft", "irfft", "hfft"):
    _one(_name, getattr(np.fft, _name))
for _name in ("rfft", "ihfft"):
    _one(_name, getattr(np.fft, _name), real=True)
for _name, _f, _real in (("fft", np.fft.fftn, False), ("ifft", np.fft.ifftn, False),
                         ("rfft", np.fft.rfftn, True), ("irfft", np.fft.irfftn, False),
                         ("hfft", _hfftn, False), ("ihfft", _ihfftn, True)):
    _many(f"{_name}2", _f, (-2, -1), _real)
    _many(f"{_name}n", _f, None, _real)


op(lambda input, dim=None: np.fft.fftshift(input, dim), "fftshift",
   "The zero frequency in the middle.", space=FFT)
op(lambda input, dim=None: np.fft.ifftshift(input, dim), "ifftshift",
   "The zero frequency at the start again.", space=FFT)


def _frequencies(name: str) -> None:
    def frequencies(n: int, d: float = 1.0, *, dtype: np.dtype) -> np.ndarray:
        return getattr(np.fft, name)(n, d).astype(dtype)

    FFT[name] = factory()(named(
        frequencies, name, "The frequencies of the transform of ``n`` samples ``d`` apart."))


_frequencies("fftfreq")
_frequencies("rfftfreq")


# ---- Window functions: weights of a stretch of a signal, as ``torch`` and ``torch.signal`` name
# them
#
# Those of ``torch`` are periodic by default, those of ``torch.signal.windows`` symmetric.

# name -> function, of ``torch.signal.windows``
WINDOWS: dict[str, Callable] = {}


def _places(n: int, sym: bool) -> np.ndarray:
    """The places of the entries, from 0 to 1; a periodic window ends before its 1."""
    return np.arange(n) / max(n - 1 if sym else n, 1)


def _cosines(a: Sequence[float], u: np.ndarray) -> np.ndarray:
    """a0 - a1 cos(2 pi u) + a2 cos(4 pi u) - ..."""
    return sum([(-1) ** k * c * np.cos(2 * np.pi * k * u) for k, c in enumerate(a)], np.zeros(
        u.shape))


def _bartlett(u: np.ndarray) -> np.ndarray:
    return 1 - np.abs(2 * u - 1)


def _kaiser(u: np.ndarray, beta: float = 12.0) -> np.ndarray:
    return np.i0(beta * np.sqrt(np.maximum(1 - (2 * u - 1) ** 2, 0))) / np.i0(beta)


_BLACKMAN = (0.42, 0.5, 0.08)
_NUTTALL = (0.3635819, 0.4891775, 0.1365995, 0.0106411)


def _check(who: str, n: int, values: Callable[[], np.ndarray], dtype: np.dtype) -> np.ndarray:
    if dtype.kind != "f":
        raise RuntimeError(
            f"{who} expects floating point dtypes, got: {dtypes.BY_ARRAY_DTYPE[dtype]}"
        )
    if n < 0:
        raise RuntimeError(f"{who} requires non-negative window_length, got window_length={n}")
    return (np.ones(n) if n == 1 else values()).astype(dtype)


def _old(name: str, shape: Callable) -> None:
    """A window of ``torch``: ``f(window_length, periodic, numbers)``."""

    def window(window_length: int, periodic: bool = True, *numbers: float, dtype: np.dtype,
               **more: float) -> np.ndarray:
        return _check(
            name, window_length,
            lambda: shape(_places(window_length, not periodic), *numbers, **more), dtype)

    doc = f"The {name.removesuffix('_window')} window, periodic by default."
    FUNCTIONS[name] = factory()(named(window, name, doc))


_old("bartlett_window", _bartlett)
_old("blackman_window", lambda u: _cosines(_BLACKMAN, u))
_old("hann_window", lambda u: _cosines((0.5, 0.5), u))
_old("hamming_window", lambda u, alpha=0.54, beta=0.46: _cosines((alpha, beta), u))
_old("kaiser_window", _kaiser)


def _new(name: str, doc: str, values: Callable) -> None:
    """A window of ``torch.signal.windows``: ``f(M, *, options)``, symmetric by default."""

    def window(M: int, *args: Any, sym: bool = True, dtype: np.dtype, **options: Any) -> np.ndarray:
        if M < 0:
            raise ValueError(f"{name} requires non-negative window length, got M={M}")
        if dtype not in (np.float32, np.float64):
            raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
        return _check(name, M, lambda: values(M, sym, *args, **options), dtype)

    WINDOWS[name] = factory()(named(window, name, doc))


def _exponential(n: int, sym: bool, *, center: float | None = None,
                 tau: float = 1.0) -> np.ndarray:
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    center = (n - sym) / 2 if center is None else center
    return np.exp(-np.abs(np.arange(n) - center) / tau)


def _gaussian(n: int, sym: bool, *, std: float = 1.0) -> np.ndarray:
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    return np.exp(-(((np.arange(n) - (n - sym) / 2) / std) ** 2) / 2)


def _general_cosine(n: int, sym: bool, a: Any = None) -> np.ndarray:
    if not isinstance(a, tuple | list) or not a:
        raise TypeError("Coefficients must be a list/tuple that is not empty")
    return _cosines(a, _places(n, sym))


_new("bartlett", "A triangle from 0 to 1 to 0.", lambda n, sym: _bartlett(_places(n, sym)))
_new("blackman", "0.42 - 0.5 cos(2 pi u) + 0.08 cos(4 pi u).",
     lambda n, sym: _cosines(_BLACKMAN, _places(n, sym)))
_new("cosine", "Half a period of the sine.",
     lambda n, sym: np.sin(np.pi / max(n if sym else n + 1, 1) * (np.arange(n) + 0.5)))
_new("exponential", "exp(-abs(n - center) / tau).", _exponential)
_new("gaussian", "exp(-((n - center) / std)**2 / 2).", _gaussian)
_new("general_cosine", "A sum of cosines with the weights ``a``, of alternating signs.",
     _general_cosine)
_new("general_hamming", "alpha - (1 - alpha) cos(2 pi u).",
     lambda n, sym, *, alpha=0.54: _cosines((alpha, 1 - alpha), _places(n, sym)))
_new("hamming", "0.54 - 0.46 cos(2 pi u).",
     lambda n, sym: _cosines((0.54, 0.46), _places(n, sym)))
_new("hann", "0.5 - 0.5 cos(2 pi u).", lambda n, sym: _cosines((0.5, 0.5), _places(n, sym)))
_new("kaiser", "I0(beta sqrt(1 - (2 u - 1)**2)) / I0(beta).",
     lambda n, sym, *, beta=12.0: _kaiser(_places(n, sym), beta))
_new("nuttall", "Four cosines with the least side lobes, Nuttall's.",
     lambda n, sym: _cosines(_NUTTALL, _places(n, sym)))
