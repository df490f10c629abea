"""``torch.signal.windows``: weights of a stretch of a signal.

>>> from functrans import torch
>>> torch.signal.windows.hann(5)
tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
"""

from __future__ import annotations

from functrans.torch._functions.fourier import WINDOWS

__all__ = list(WINDOWS)
globals().update(WINDOWS)
