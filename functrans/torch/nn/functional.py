"""``torch.nn.functional``: activations, a linear layer, dropout, losses.

>>> from functrans import torch
>>> scores = torch.tensor([[2.0, 0.0], [0.0, 0.0]], requires_grad=True)
>>> cross_entropy(scores, torch.tensor([0, 1]))
tensor(0.4100, grad_fn=<NllLossBackward0>)
"""

from __future__ import annotations

import numpy as np

from functrans.torch._functions.elementwise import logsigmoid, softplus
from functrans.torch._functions.reductions import log_softmax as _log_softmax
from functrans.torch._functions.reductions import logsumexp
from functrans.torch._functions.table import METHODS, op
from functrans.torch._tensors import factories
from functrans.torch._tensors.tensor import Tensor

rand = vars(factories)["rand"]
relu, leaky_relu, elu = METHODS["relu"], METHODS["leaky_relu"], METHODS["elu"]
sigmoid, silu, tanh = METHODS["sigmoid"], METHODS["silu"], METHODS["tanh"]
softmax, log_softmax = METHODS["softmax"], METHODS["log_softmax"]


@op(method=False, title="AddmmBackward0")
def linear(input, weight, bias=None):
    """input @ weight.T + bias."""
    y = np.matmul(input, np.swapaxes(weight, 0, 1) if weight.ndim == 2 else weight)
    return y if bias is None else y + bias


def dropout(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Each entry zero with probability ``p``, else divided by ``1 - p``."""
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0:
        return input
    if p == 1:
        return input * 0.0
    return input * (rand(input.shape, dtype=input.dtype) >= p) / (1 - p)


# ---- losses


def _reduced(x, reduction, who):
    if reduction == "none":
        return x
    if reduction not in ("mean", "sum"):
        raise RuntimeError(f"{who}: {reduction!r} is not a valid value for reduction; "
                           "use 'none', 'mean' or 'sum'")
    return np.mean(x) if reduction == "mean" else np.sum(x)


@op(method=False)
def mse_loss(input, target, reduction="mean"):
    """(input - target)**2."""
    return _reduced(np.square(input - target), reduction, "mse_loss")


@op(method=False)
def l1_loss(input, target, reduction="mean"):
    """|input - target|; where they agree its slope is 0."""
    return _reduced(np.absolute(input - target), reduction, "l1_loss")


@op(method=False)
def smooth_l1_loss(input, target, reduction="mean", beta=1.0):
    """|d| - beta / 2, and d**2 / (2 beta) where |d| < beta, for d = input - target."""
    d = input - target
    size = np.absolute(d)
    if beta > 0:
        size = np.where(size < beta, 0.5 * np.square(d) / beta, size - 0.5 * beta)
    return _reduced(size, reduction, "smooth_l1_loss")


@op(method=False)
def binary_cross_entropy_with_logits(input, target, reduction="mean"):
    """-t log(s) - (1 - t) log(1 - s) for s = sigmoid(input), without overflow."""
    return _reduced(np.logaddexp(0, input) - input * target, reduction,
                    "binary_cross_entropy_with_logits")


@op(method=False)
def nll_loss(input, target, weight=None, ignore_index=-100, reduction="mean"):
    """-input at the class ``target``, classes along dimension 1; mean by ``weight`` of classes."""
    return _picked(input, target, weight, ignore_index, reduction, "nll_loss")


def _picked(x, target, weight, ignored, reduction, who, total=None):
    """The loss of ``x``, less a total for each example, at the targets."""
    axis = 0 if x.ndim == 1 else 1
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    if target.dtype.kind not in "iu" or target.shape != shape:
        raise RuntimeError(
            f"{who}: target must hold classes, integers in the shape {list(shape)}, but it is "
            f"{target.dtype.name}{list(target.shape)}"
        )
    kept = target != ignored
    index = np.where(kept, target, 0)
    if ((index < 0) | (index >= x.shape[axis])).any():
        raise IndexError(f"{who}: a target is out of bounds: there are {x.shape[axis]} classes")
    values = np.take_along_axis(x, np.expand_dims(index, axis), axis).reshape(shape)
    values = values if total is None else values - total
    w = kept.astype(x.dtype) if weight is None else np.where(kept, weight[index], 0)
    loss = np.where(kept, -values * w, 0)
    return np.sum(loss) / np.sum(w) if reduction == "mean" else _reduced(loss, reduction, who)


@op(method=False, title="NllLossBackward0")
def cross_entropy(input, target, weight=None, ignore_index=-100, reduction="mean",
                  label_smoothing=0.0):
    """``nll_loss`` of ``log_softmax``; or of targets that are probabilities of the classes."""
    if label_smoothing:
        raise NotImplementedError("cross_entropy: label_smoothing is not supported; pass "
                                  "probabilities as target")
    axis = 0 if input.ndim == 1 else 1
    if target.dtype.kind not in "fV":
        # of the logarithms only the targets' are needed
        total = logsumexp.body(input, axis)
        return _picked(input, target, weight, ignore_index, reduction, "cross_entropy", total)
    logs = _log_softmax.body(input, axis)
    if weight is not None:
        raise NotImplementedError("cross_entropy: weight is not supported with probabilities")
    loss = -np.sum(logs * target, axis=axis)
    return _reduced(loss, reduction, "cross_entropy")


__all__ = [
    "binary_cross_entropy_with_logits", "cross_entropy", "dropout", "elu", "l1_loss", "leaky_relu",
    "linear", "log_softmax", "logsigmoid", "mse_loss", "nll_loss", "relu", "sigmoid", "silu",
    "smooth_l1_loss", "softmax", "softplus", "tanh",
]
