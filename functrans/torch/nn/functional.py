"""``torch.nn.functional``: activations, layers without state, losses.

>>> from functrans import torch
>>> scores = torch.tensor([[2.0, 0.0], [0.0, 0.0]], requires_grad=True)
>>> cross_entropy(scores, torch.tensor([0, 1]))
tensor(0.4100, grad_fn=<NllLossBackward0>)
"""

from __future__ import annotations

from functrans.torch._functions import special
from functrans.torch._functions.table import NN
from functrans.torch._names import absent
from functrans.torch.nn._functions import (
    activations,
    alignment,
    attention,
    convolutions,
    fractional,
    images,
    losses,
    natives,
    normalisation,
    pooling,
    spectra,
)

# for what they enter
assert activations and attention and convolutions and images and losses and normalisation
assert alignment and fractional and natives and pooling and special and spectra
__all__ = sorted(NN)
globals().update(NN)

__getattr__ = absent(__name__)
