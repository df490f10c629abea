"""``torch.fft``: discrete Fourier transforms.

>>> from functrans import torch
>>> fft(torch.ones(2))
tensor([2.+0.j, 0.+0.j])
"""

from __future__ import annotations

from functrans.torch._functions import fourier
from functrans.torch._functions.table import FFT
from functrans.torch._names import absent

assert fourier  # for what it enters
__all__ = list(FFT)
globals().update(FFT)

__getattr__ = absent(__name__)
