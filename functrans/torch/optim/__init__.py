"""``torch.optim``: parameters changed along their gradients.

>>> from functrans import torch
>>> w = torch.tensor([1.0], requires_grad=True)
>>> sgd = SGD([w], lr=0.25)
>>> (w * w).backward(torch.ones(1))
>>> sgd.step()
>>> w
tensor([0.5000], requires_grad=True)
"""

from __future__ import annotations

from functrans.torch._names import absent
from functrans.torch.optim import lr_scheduler, swa_utils
from functrans.torch.optim.first_order import (
    ASGD,
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    NAdam,
    RAdam,
    RMSprop,
    Rprop,
)
from functrans.torch.optim.lbfgs import LBFGS
from functrans.torch.optim.optimizer import Optimizer

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam",
    "Optimizer", "RAdam", "RMSprop", "Rprop", "lr_scheduler", "swa_utils",
]

__getattr__ = absent(__name__)
