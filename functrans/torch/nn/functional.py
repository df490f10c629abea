"""``torch.nn.functional``: activations, layers without state, losses.

>>> from functrans import torch
>>> scores = torch.tensor([[2.0, 0.0], [0.0, 0.0]], requires_grad=True)
>>> cross_entropy(scores, torch.tensor([0, 1]))
tensor(0.4100, grad_fn=<NllLossBackward0>)
"""

from __future__ import annotations

from functrans.torch._functions import special
from functrans.torch._functions.table import NN, publish
from functrans.torch._names import absent
from functrans.torch.nn._functions import (
    activations,
    convolutions,
    images,
    losses,
    natives,
    normalisation,
    pooling,
    sequences,
)

# for what they enter
assert activations and sequences and convolutions and images and losses and normalisation
assert sequences and pooling and natives and special and convolutions
__all__ = sorted(NN)
globals().update({_name: publish(_name, _f) for _name, _f in NN.items()})

__getattr__ = absent(__name__)
