"""Layers and losses that training calls at each step, by rows of the shim's own.

Each ``..._row`` is a function's ``by_row`` (``_functions/direct``): for plain operands a row call
or the result of a few operations on tensors, None for all else, which goes to the NumPy code.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from functrans._ops.indexing import ARRAY
from functrans.extend import TABLE, Aval, General, aval_of, bind
from functrans.torch._functions.calculus import log_softmax
from functrans.torch._functions.kept import mark_row
from functrans.torch._functions.outputs import RowCall, are_plain, record_row
from functrans.torch._functions.rows import binary
from functrans.torch._functions.shim_rows import ROWS
from functrans.torch._functions.table import METHODS
from functrans.torch._graph.graph import RowNode
from functrans.torch._tensors.tensor import Tensor

_matmul, _put_add = TABLE["matmul"], TABLE["put_add"]
_logits = binary("binary_cross_entropy_with_logits", ROWS["logits"])
_square, _sum, _mean = METHODS["square"], METHODS["sum"], METHODS["mean"]


class _Own(General):
    """A row of this module. ``kept(wanted)``: which operands its rules read."""

    __slots__ = ("kept",)

    def __init__(self, name: str, impl: Any, kept: Any = None, **columns: Any):
        super().__init__(name, impl, batch=None, saves="y", **columns)
        self.kept = kept

    def saves(self, wanted: Sequence[bool], params: dict) -> tuple[bool, tuple[bool, ...]]:
        if self.kept is None:
            return True, (False,) * len(wanted)
        return False, self.kept(wanted)


# ---- x W^T + b


def _affine(x, w, *b):
    y = x.dot(w.T) if x.ndim == 2 else np.matmul(x, w.T)
    if b:
        y += b[0]
    return y


def _affine_jvp(ts, y, xs):
    t, tw, *tb = ts
    parts = [] if t is None else [np.matmul(t, xs[1].T)]
    parts += [] if tw is None else [np.matmul(xs[0], tw.T)]
    parts += [np.broadcast_to(b, y.shape) for b in tb if b is not None]
    return None if not parts else sum(parts[1:], parts[0])


def _affine_vjp(ct, y, xs, wanted):
    x, w, *b = xs
    rows = ct.reshape((-1, ct.shape[-1]))
    first, second = _matmul.actions
    out: list[Any] = [None] * len(xs)
    if wanted[0]:
        out[0] = first.pull(ct, aval_of(x), w.T, {})
    if wanted[1]:
        like = Aval((w.shape[1], w.shape[0]), w.dtype)
        out[1] = second.pull(rows, like, x.reshape((-1, x.shape[-1])), {}).T
    if b and wanted[2]:
        out[2] = rows.sum(axis=0)
    return out


_linear = _Own("linear", _affine, lambda wanted: (wanted[1], wanted[0], *[False] * len(wanted[2:])),
               jvp=_affine_jvp, vjp=_affine_vjp)


class AffineNode(RowNode):
    """``linear``, whose products going back are NumPy's until a NaN arrives."""

    __slots__ = ()

    def bare(self, ct: Any, create: bool) -> Iterable:
        if create or type(ct) is not ndarray:
            return super().bare(ct, create)
        (x, w, *b), _ = self.available()
        rows = ct.reshape(-1, ct.shape[-1])
        out: list[Any] = [None] * len(self.edges)
        if self.edges[0] is not None:
            out[0] = ct.dot(w) if ct.ndim == 2 else rows.dot(w).reshape(x.shape)
        if self.edges[1] is not None:
            out[1] = rows.T.dot(x if x.ndim == 2 else x.reshape(-1, x.shape[-1]))
        if b and self.edges[2] is not None:
            out[2] = np.add.reduce(rows)
        return zip(self.edges, out, strict=True)


def linear_row(input, weight, bias=None):
    operands = (input, weight) if bias is None else (input, weight, bias)
    if not are_plain(*operands):
        return None
    x, w = input._array, weight._array
    if x.ndim < 2 or w.ndim != 2 or x.shape[-1] != w.shape[1] or not x.size:
        return None
    if bias is not None and bias._array.shape != w.shape[:1]:
        return None
    return record_row(AffineNode, "AddmmBackward0", RowCall(_linear, operands, {}))


# ---- (x - mean) / sqrt(var + eps), and 1 / sqrt(var + eps)


def _standardise(x, axis, eps):
    n = math.prod([x.shape[i] for i in axis])
    y = x - np.add.reduce(x, axis, keepdims=True) / n
    scale = np.add.reduce(y * y, axis, keepdims=True) / n
    scale = np.asarray(1 / np.sqrt(scale + eps), x.dtype)
    y *= scale
    return y, scale


def _project(g, y, scale, axis):
    """The tangent of y and its cotangent: their map is symmetric."""
    mean = np.mean(g, axis=axis, keepdims=True)
    return scale * (g - mean - y * np.mean(g * y, axis=axis, keepdims=True))


def _standardise_jvp(ts, ys, xs, axis, eps):
    y, scale = ys
    slope = np.mean(ts[0] * y, axis=axis, keepdims=True)
    return _project(ts[0], y, scale, axis), -np.square(scale) * slope


def _standardise_vjp(cts, ys, xs, wanted, axis, eps):
    y, scale = ys
    ct, ct_scale = cts
    out = None if ct is None else _project(ct, y, scale, axis)
    if ct_scale is not None:
        n = math.prod([y.shape[i] for i in axis])
        more = -(ct_scale * np.square(scale) / n) * y
        out = more if out is None else out + more
    return [out]


_standard = _Own("standardise", _standardise, jvp=_standardise_jvp, vjp=_standardise_vjp, outputs=2)


def standard_row(x: Tensor, axis: Sequence[int], eps: float, shape: Sequence[int],
                 weight: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """``x`` standardised along ``axis``, times ``weight`` plus ``bias`` in ``shape``."""
    if not are_plain(x, *[v for v in (weight, bias) if v is not None]) or not x._array.size:
        return None
    call = RowCall(_standard, (x,), {"axis": tuple(axis), "eps": eps})
    y = record_row(RowNode, "NativeLayerNormBackward0", call)
    assert y is not None  # all operands are plain
    mark_row(y, x)
    if weight is None and bias is None:
        return METHODS["clone"](y)  # the backward reads y, and the result may be written to
    if weight is not None:
        y = y * weight.reshape(shape)
    return y if bias is None else y + bias.reshape(shape)


# ---- losses


def mse_row(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    if not (size_average is None and reduce is None and weight is None
            and are_plain(input, target) and input._array.shape == target._array.shape):
        return None
    return _reduce(mark_row(_square(input - target), input, target), reduction)


def logits_row(input, target, weight=None, size_average=None, reduce=None, reduction="mean",
               pos_weight=None):
    if not (weight is pos_weight is size_average is reduce is None
            and are_plain(input, target) and input._array.shape == target._array.shape):
        return None
    return _reduce(_logits(input, target), reduction)


def _reduce(x: Tensor, reduction: str) -> Tensor | None:
    if reduction == "mean":
        return _mean(x)
    return _sum(x) if reduction == "sum" else x if reduction == "none" else None


def _picked_vjp(ct, y, xs, wanted, scale):
    x, rows, index = xs
    if type(ct) is type(index) is ndarray:
        out = np.zeros(x.shape, x.dtype)
        out[rows, index] = ct * x.dtype.type(scale)
        return [out, None, None]
    each = np.broadcast_to(ct * scale, rows.shape)
    ct = bind(_put_add, each, rows, index, pattern=(ARRAY, ARRAY), shape=x.shape)
    return [ct, None, None]


# the sum of the entries at (rows, index), no place twice, times ``scale``
_picked = _Own(
    "nll_loss", lambda x, rows, index, scale: np.asarray(
        np.add.reduce(x[rows, index]) * x.dtype.type(scale)),
    lambda wanted: (False, True, True), vjp=_picked_vjp,
    jvp=lambda ts, y, xs, scale: np.sum(ts[0][xs[1], xs[2]]) * scale,
)


def nll_row(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None,
            reduction="mean"):
    if not (weight is None and size_average is None and reduce is None
            and reduction in ("mean", "sum") and _are_classes(input, target, ignore_index)):
        return None
    return _classes(input, target, reduction)


def cross_entropy_row(input, target, weight=None, size_average=None, ignore_index=-100,
                      reduce=None, reduction="mean", label_smoothing=0.0):
    if not (weight is None and size_average is None and reduce is None and not label_smoothing
            and reduction in ("mean", "sum") and _are_classes(input, target, ignore_index)):
        return None
    return _classes(log_softmax(input, 1), target, reduction)


def _are_classes(x: Any, target: Any, ignored: int) -> bool:
    """Whether each row of a plain matrix has a class that counts."""
    if not are_plain(x) or not isinstance(target, Tensor) or x._array.ndim != 2:
        return False
    classes = target._array
    return (classes.dtype.kind == "i" and classes.shape == x._array.shape[:1] and classes.size > 0
            and bool(classes.min() >= 0 and classes.max() < x._array.shape[1])
            and not (0 <= ignored < x._array.shape[1]))


def _classes(logs: Tensor, target: Tensor, reduction: str) -> Tensor:
    n = len(target._array)
    operands = logs, np.arange(n), target._array.astype(np.intp)  # a copy
    scale = -1 / n if reduction == "mean" else -1.0
    y = record_row(RowNode, "NllLossBackward0", RowCall(_picked, operands, {"scale": scale}))
    assert y is not None  # all operands are plain
    return mark_row(y, logs)
