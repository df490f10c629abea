"""Losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from functrans.extend import AnyArray
from functrans.torch._functions.accepted import floats_only, no_booleans
from functrans.torch._functions.calculus import log_softmax as _log_softmax
from functrans.torch._functions.failures import WrongValue, misfit
from functrans.torch._functions.outputs import in_single
from functrans.torch._functions.shim_rows import ROWS
from functrans.torch._functions.table import (
    NN,
    floating,
    op,
    plain,
    promote,
)
from functrans.torch._graph.levels import anywhere
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.dtypes import Size
from functrans.torch._tensors.memory import scalar_name
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.nn._functions.direct import (
    cross_entropy_row,
    logits_row,
    mse_row,
    nll_row,
)

_softplus = ROWS["softplus"]


def reduced(x: Any, reduction: str, who: str) -> AnyArray:
    """``x``, its mean or its sum."""
    if reduction == "none":
        return x
    if reduction not in ("mean", "sum"):
        raise WrongValue(f"{reduction} is not a valid value for reduction: {who} takes 'none', "
                         "'mean' and 'sum'")
    if reduction == "mean" and x.dtype.kind in "biu":
        raise RuntimeError("mean(): could not infer output dtype. Input dtype must be either a "
                           f"floating point or complex dtype. Got: {scalar_name(x)}")
    return np.mean(x) if reduction == "mean" else np.sum(x)


def _old(size_average: Any, reduce: Any, reduction: str) -> str:
    """The reduction that two older arguments stand for."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def _weight(loss: Any, weight: Any, reduction: str, who: str) -> AnyArray:
    if weight is None:
        return reduced(loss, reduction, who)
    loss = loss * weight
    if reduction == "mean":
        return np.sum(loss) / np.sum(weight)
    return reduced(loss, reduction, who)


# ---- differences


def _difference(x: Any, y: Any) -> AnyArray:
    """x - y, in the type of both once they have one shape."""
    try:
        shape = np.broadcast_shapes(x.shape, y.shape)
    except ValueError as failure:
        raise RuntimeError(misfit("sub", x.shape, y.shape)) from failure
    return np.subtract(*promote(*[np.broadcast_to(v, shape) for v in (x, y)]))


@op(space=NN, by_row=mse_row)
def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """(input - target)**2."""
    d = _difference(input, target)
    return _weight(np.square(d), weight, _old(size_average, reduce, reduction), "mse_loss")


@op(space=NN)
def l1_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """|input - target|; where they agree its slope is 0."""
    d = _difference(input, target)
    return _weight(np.absolute(d), weight, _old(size_average, reduce, reduction), "l1_loss")


@op(space=NN)
def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    """|d| - beta / 2, and d**2 / (2 beta) where |d| < beta, for d = input - target."""
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    d = _difference(input, target)
    size = np.absolute(d)
    if beta > 0:
        size = np.where(size < beta, 0.5 * np.square(d) / beta, size - 0.5 * beta).astype(d.dtype)
    return reduced(size, _old(size_average, reduce, reduction), "smooth_l1_loss")


@op(space=NN)
def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """d**2 / 2, and delta (|d| - delta / 2) where |d| > delta, for d = input - target."""
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    d = _difference(input, target)
    floats_only("huber_cpu", d)
    size = np.absolute(d)
    loss = np.where(size <= delta, 0.5 * np.square(d), delta * (size - 0.5 * delta))
    loss = loss.astype(input.dtype)
    return _weight(loss, weight, reduction, "huber_loss")


# ---- probabilities


@op(space=NN)
def binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None,
                         reduction="mean"):
    """-t log(x) - (1 - t) log(1 - x), the logarithms at least -100."""
    x = plain(input)
    if x.size and not ((x >= 0) & (x <= 1)).all():
        raise RuntimeError("all elements of input should be between 0 and 1")
    if target.shape != input.shape:
        raise WrongValue(f"Using a target size ({Size(target.shape)}) that is different to the "
                         f"input size ({Size(input.shape)}) is deprecated. Please ensure they have "
                         "the same size.")
    if target.dtype != input.dtype:
        raise RuntimeError(f"Found dtype {scalar_name(target)} but expected {scalar_name(input)}")
    logs = [np.maximum(v, -100) for v in (np.log(input), np.log1p(-input))]
    loss = -(target * logs[0] + (1 - target) * logs[1])
    if weight is not None:
        loss = loss * weight
    return reduced(loss, _old(size_average, reduce, reduction), "binary_cross_entropy")


@op(space=NN, by_row=logits_row)
def binary_cross_entropy_with_logits(input, target, weight=None, size_average=None, reduce=None,
                                     reduction="mean", pos_weight=None):
    """-p t log(s) - (1 - t) log(1 - s) for s = sigmoid(input), without overflow."""
    if target.shape != input.shape:
        raise WrongValue(f"Target size ({Size(target.shape)}) must be the same as input size "
                         f"({Size(input.shape)})")
    if target.dtype.kind in "biu":
        raise RuntimeError(f"result type {scalar_name(input)} can't be cast to the desired output "
                           f"type {scalar_name(target)}; the target must be of a floating type")
    if pos_weight is None:
        loss = ROWS["logits"](*promote(input, target))
    else:
        loss = (1 - target) * _softplus(input) + pos_weight * target * _softplus(-input)
    loss = loss.astype(target.dtype)
    if weight is not None:
        loss = loss * weight
    return reduced(loss, _old(size_average, reduce, reduction),
                   "binary_cross_entropy_with_logits")


@op(space=NN)
def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    """target (log(target) - input); ``log_target``: the targets are logarithms."""
    if input.dtype.kind in "biu" or target.dtype.kind in "biu":
        raise RuntimeError("kl_div: Integral inputs not supported.")
    input, target = promote(input, target)
    if log_target:
        loss = np.exp(target) * (target - input)
    else:
        known = target > 0
        loss = np.where(known, target * np.log(np.where(known, target, 1)), target * 0)
        loss = loss - target * input
    reduction = _old(size_average, reduce, reduction)
    if reduction == "batchmean":
        return np.sum(loss) / (input.shape[0] if input.ndim else 1)
    return reduced(loss, reduction, "kl_div")


@op(space=NN)
def poisson_nll_loss(input, target, log_input=True, full=False, size_average=None, eps=1e-8,
                     reduce=None, reduction="mean"):
    """exp(x) - t x for logarithms x of rates, or x - t log(x + eps); ``full``: Stirling's term."""
    if log_input:
        loss = np.subtract(*promote(np.exp(floating(input)),
                                     np.multiply(*promote(target, input))))
    else:
        logs = np.log(floating(input) + eps)
        loss = np.subtract(*promote(input, np.multiply(*promote(target, logs))))
    target = floating(target)
    if full:
        large = target > 1
        t = np.where(large, target, 1)
        stirling = t * np.log(t) - t + 0.5 * np.log(2 * math.pi * t)
        loss = np.add(*promote(loss, np.where(large, stirling, 0).astype(target.dtype)))
    return reduced(loss, _old(size_average, reduce, reduction), "poisson_nll_loss")


@op(space=NN)
def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """(log(v) + (input - target)**2 / v) / 2 for v = var, at least ``eps``."""
    if isinstance(var, float | int):
        var = np.full(input.shape, var, dtypes.result_dtype([input, float(var)]))
    if var.shape != input.shape and var.ndim and var.shape == input.shape[:-1]:
        var = var[..., None]
    if var.shape != input.shape and var.shape != (*input.shape[:-1], 1):
        raise WrongValue("var is of incorrect size")
    if var.dtype.kind not in "fV":
        raise RuntimeError(f"result type Float can't be cast to the desired output type "
                           f"{scalar_name(var)}; the variances must be floating-point numbers")
    if np.any(plain(var) < 0):
        raise WrongValue("var has negative entry/entries")
    # the bound is not differentiated
    var = var + np.where(plain(var) < eps, eps - plain(var), 0).astype(var.dtype)
    loss = 0.5 * (np.log(var) + np.square(input - target) / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduced(loss, reduction, "gaussian_nll_loss")


# ---- classes


@op(space=NN, names="nll_loss2d", by_row=nll_row)
def nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None,
             reduction="mean"):
    """-input at the class ``target``, classes along dimension 1; mean by ``weight`` of classes."""
    reduction = _old(size_average, reduce, reduction)
    return _pick(input, target, weight, ignore_index, reduction, "nll_loss")


def _pick(x, target, weight, ignored, reduction, who, smoothing=0.0):
    """-x at the targets."""
    axis = 0 if x.ndim == 1 else 1
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    if axis and target.ndim and x.shape[0] != target.shape[0]:
        raise WrongValue(
            f"Expected input batch_size ({x.shape[0]}) to match target batch_size "
            f"({target.shape[0]}). ({who})"
        )
    if target.dtype.kind not in "iu" or target.shape != shape:
        raise RuntimeError(
            f"{who}: target must hold classes, integers in the shape {list(shape)}, but it is "
            f"{target.dtype.name}{list(target.shape)}"
        )
    classes, kept = x.shape[axis], np.True_
    if 0 <= ignored < classes or anywhere((target < 0) | (target >= classes)):
        kept = target != ignored
        target = np.where(kept, target, 0)
        outside = (target < 0) | (target >= classes)
        if anywhere(outside):
            raise IndexError(
                f"Target {target[outside][0]} is out of bounds: there are {classes} classes.")
    values = np.take_along_axis(x, np.expand_dims(target, axis), axis).reshape(shape)
    loss = -values
    weights = loss.size
    if kept is not np.True_ or weight is not None:
        w = kept.astype(x.dtype) if weight is None else np.where(kept, weight[target], 0)
        loss, weights = np.where(kept, loss * w, 0), np.sum(w)
    if smoothing:
        loss = (1 - smoothing) * loss + smoothing / classes * _smooth(x, weight, kept, axis)
    return np.sum(loss) / weights if reduction == "mean" else reduced(loss, reduction, who)


def _smooth(logs: Any, weight: Any, kept: Any, axis: int) -> AnyArray:
    """The loss of all classes together, for what label smoothing gives to each."""
    if weight is not None:
        logs = logs * weight.reshape([-1 if i == axis else 1 for i in range(logs.ndim)])
    return np.where(kept, -np.sum(logs, axis=axis), 0)


@op(by_row=cross_entropy_row, space=NN, title="NllLossBackward0")
def cross_entropy(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None,
                  reduction="mean", label_smoothing=0.0):
    """``nll_loss`` of ``log_softmax``; or of targets that are probabilities of the classes."""
    reduction = _old(size_average, reduce, reduction)
    axis = 0 if input.ndim == 1 else 1
    if target.shape != input.shape or target.dtype.kind in "iu":
        logs = _log_softmax.body(input, axis)  # less the sum a row: that of the greatest is lost
        return _pick(logs, target, weight, ignore_index, reduction, "cross_entropy",
                       label_smoothing)
    if target.dtype.kind not in "fV":
        raise RuntimeError("Expected floating point type for target with class probabilities, got "
                           f"{scalar_name(target)}")
    logs = _log_softmax.body(input, axis)
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / input.shape[axis]
    if weight is not None:
        logs = logs * weight.reshape([-1 if i == axis else 1 for i in range(input.ndim)])
    loss = -np.sum(logs * target, axis=axis)
    if reduction == "mean":
        return np.sum(loss) / max(loss.size, 1)
    return reduced(loss, reduction, "cross_entropy")


# ---- margins and pairs


@op(space=NN)
def margin_ranking_loss(input1, input2, target, margin=0, size_average=None, reduce=None,
                        reduction="mean"):
    """max(0, -target (input1 - input2) + margin)."""
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {Size(input1.shape)}, input2: {Size(input2.shape)}, target: "
            f"{Size(target.shape)} ")
    loss = _positive(-target * floating(input1 - input2) + margin)
    return reduced(loss, _old(size_average, reduce, reduction), "margin_ranking_loss")


def _positive(x: Any) -> AnyArray:
    """x where positive, 0 at 0 with slope 0."""
    return np.where(x > 0, x, x * 0)


@op(space=NN)
def hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None,
                         reduction="mean"):
    """x where the target is 1, max(0, margin - x) where it is -1."""
    no_booleans(input)
    loss = np.where(target != 1, _positive(margin - input), 0)
    loss = (loss + np.where(target != -1, input, 0)).astype(input.dtype)
    return reduced(loss, _old(size_average, reduce, reduction), "hinge_embedding_loss")


@op(space=NN)
def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """log(1 + exp(-target input))."""
    x, y = promote(input, target)
    try:
        shape = np.broadcast_shapes(x.shape, y.shape)
    except ValueError as failure:
        raise RuntimeError(misfit("soft_margin_loss", x.shape, y.shape)) from failure
    if shape != x.shape:
        raise RuntimeError(f"output with shape {list(x.shape)} doesn't match the broadcast shape "
                           f"{list(shape)}")
    loss = _softplus(-y * x).astype(input.dtype)
    return reduced(loss, _old(size_average, reduce, reduction), "soft_margin_loss")


@op(space=NN)
def cosine_embedding_loss(input1, input2, target, margin=0, size_average=None, reduce=None,
                          reduction="mean"):
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1."""
    if target.ndim != input1.ndim - 1 or input2.ndim != input1.ndim:
        raise RuntimeError(
            f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found "
            f"inputs with sizes {list(input1.shape)} and {list(input2.shape)}.")
    input1, input2 = promote(floating(input1), floating(input2))
    dtype = input1.dtype
    input1, input2 = in_single(input1), in_single(input2)
    dot = np.sum(input1 * input2, axis=-1)
    sizes = [np.sum(x * x, axis=-1) + 1e-12 for x in (input1, input2)]
    cos = dot / np.sqrt(sizes[0] * sizes[1])
    loss = np.where(target == 1, 1 - cos, 0) + np.where(target == -1, _positive(cos - margin), 0)
    loss = loss.astype(dtype)
    return reduced(loss, _old(size_average, reduce, reduction), "cosine_embedding_loss")


@op(space=NN)
def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """The p-norm of x1 - x2 + eps along the last dimension."""
    d = floating(np.subtract(*promote(x1, x2)))
    d = d if d.ndim else d.reshape(1)
    return np.linalg.vector_norm(d + eps, axis=-1, ord=p, keepdims=keepdim)


@op(space=NN)
def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False,
                        size_average=None, reduce=None, reduction="mean"):
    """max(0, |anchor - positive| - |anchor - negative| + margin)."""
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {anchor.ndim}D, positive {positive.ndim}D, and negative "
            f"{negative.ndim}D inputs")
    if margin <= 0:
        raise WrongValue(f"margin must be greater than 0, got {margin}")
    near, far = [pairwise_distance.body(anchor, x, p, eps) for x in (positive, negative)]
    if swap:
        far = np.minimum(far, pairwise_distance.body(positive, negative, p, eps))
    loss = _positive(near - far + margin)
    return reduced(loss, _old(size_average, reduce, reduction), "triplet_margin_loss")


def triplet_margin_with_distance_loss(anchor, positive, negative, *, distance_function=None,
                                      margin=1.0, swap=False, reduction="mean"):
    """``triplet_margin_loss`` with a distance of your own."""
    distance = distance_function or NN["pairwise_distance"]
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    loss = (near - far + margin).clamp_min(0)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def _classes(target: Any) -> Any:
    """``target``, if it is of int64."""
    if target.dtype != np.int64:
        raise RuntimeError(f"expected scalar type Long but found {scalar_name(target)}")
    return target


@op(space=NN)
def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None,
                      reduction="mean"):
    """The sum over other classes of max(0, margin - x[y] + x[i])**p, over their number."""
    x = input.reshape((1, -1)) if input.ndim < 2 else input
    y = _classes(target).reshape(-1)
    if anywhere((y < 0) | (y >= x.shape[1])):
        raise RuntimeError("target out of range")
    right = np.take_along_axis(x, y[:, None], 1)
    loss = _positive(margin - right + x) ** p
    loss = loss if weight is None else loss * weight[y][:, None]
    loss = np.sum(np.where(np.arange(x.shape[1]) == y[:, None], 0, loss), axis=1) / x.shape[1]
    loss = loss.reshape(()) if input.ndim < 2 else loss
    return reduced(loss, _old(size_average, reduce, reduction), "multi_margin_loss")


@op(space=NN)
def multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """The sum over targets j and other classes i of max(0, 1 - x[j] + x[i]), over their number."""
    x = input.reshape((1, -1)) if input.ndim < 2 else input
    y = _classes(target).reshape(x.shape)
    if anywhere((y < -1) | (y >= x.shape[1])):
        raise RuntimeError("argument #2 'target' is out of range")
    known = np.cumprod(y >= 0, axis=1).astype(bool)
    index = np.where(known, y, 0)
    chosen = np.zeros(x.shape, bool)
    for i in range(len(chosen)):
        chosen[i, index[i][known[i]]] = True
    right = np.take_along_axis(x, index, 1)
    loss = _positive(1 - right[:, :, None] + x[:, None, :])
    loss = np.where(known[:, :, None] & ~chosen[:, None, :], loss, 0)
    loss = np.sum(loss, axis=(1, 2)) / x.shape[1]
    loss = loss.reshape(()) if input.ndim < 2 else loss
    return reduced(loss, _old(size_average, reduce, reduction), "multilabel_margin_loss")


@op(space=NN)
def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None,
                                reduction="mean"):
    """The mean over classes of the binary cross entropy of logits."""
    x, y = promote(input, target)
    no_booleans(target)
    loss = _softplus(x) - x * y
    loss = loss if weight is None else loss * weight
    loss = np.mean(loss, axis=-1)
    return reduced(loss, _old(size_average, reduce, reduction), "multilabel_soft_margin_loss")


NN["triplet_margin_with_distance_loss"] = triplet_margin_with_distance_loss


def linear_cross_entropy(input: Tensor, linear_weight: Tensor, target: Tensor, *,
                         linear_bias: Tensor | None = None, weight: Tensor | None = None,
                         reduction: str = "mean", ignore_index: int | None = None,
                         label_smoothing: float = 0.0, options: Any = None) -> Tensor:
    """``cross_entropy`` of ``linear(input, linear_weight, linear_bias)``; how the work is divided,
    which ``options`` says, changes no number and is ignored. ``linear_weight`` may have dimensions
    between classes and features, each entry of which is a problem of its own."""
    if linear_weight.dim() < 2:
        raise RuntimeError("expected linear_weight with dimensionality at least 2, got "
                           f"{linear_weight.dim()}")
    if input.dim() not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if ignore_index is not None and target.is_floating_point():
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    *classes, features = linear_weight.shape
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = NN["linear"](input, linear_weight.reshape(-1, features), bias)
    return NN["cross_entropy"](
        logits.reshape(*input.shape[:-1], *classes), target, weight,
        ignore_index=-100 if ignore_index is None else ignore_index, reduction=reduction,
        label_smoothing=label_smoothing)


NN["linear_cross_entropy"] = linear_cross_entropy
