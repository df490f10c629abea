"""``autograd.scipy.signal``: ``scipy.signal``'s names, and autograd's own ``convolve``."""

from __future__ import annotations

from typing import Any

from functrans.scipy import signal as _ours

globals().update({name: getattr(_ours, name) for name in _ours.__all__})


def convolve(A: Any, B: Any, axes: Any = None, dot_axes: Any = ((), ()), mode: str = "full") -> Any:
    """The convolution along ``axes``, a pair of lists, summed over ``dot_axes``.

    >>> import functrans.autograd.numpy as np
    >>> from functrans.autograd.scipy.signal import convolve
    >>> convolve(np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    array([1., 3., 2.])
    """
    if mode not in ("full", "valid", "same"):
        raise AssertionError(f"Mode {mode} undefined, it can be one of 'valid', 'full', and 'same'")
    if axes is None:
        axes = [list(range(A.ndim)), list(range(A.ndim))]
    return _ours.convolve(A, B, mode, axes=axes, dot_axes=dot_axes)


__all__ = _ours.__all__
__getattr__ = _ours.__getattr__
