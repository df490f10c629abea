"""``fft``: discrete Fourier transforms and what goes with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.extend import AnyArray
from functrans.torch._functions.table import FFT, op
from functrans.torch._graph.titles import named
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.factories import factory


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
