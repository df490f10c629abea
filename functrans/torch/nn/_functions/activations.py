"""Activations, dropout, linear maps and embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.extend import TABLE, AnyArray, split_key
from functrans.torch._functions.accepted import acceptance
from functrans.torch._functions.calculus import cosine_similarity, pdist
from functrans.torch._functions.elementwise import logsigmoid, softplus
from functrans.torch._functions.failures import WrongValue, unmultiply
from functrans.torch._functions.indexing import index_array
from functrans.torch._functions.outputs import RowCall, are_plain
from functrans.torch._functions.reductions import axes
from functrans.torch._functions.scattering import add, reduced
from functrans.torch._functions.shim_rows import ROWS, in_place
from functrans.torch._functions.table import FUNCTIONS, METHODS, NN, floating, op, plain
from functrans.torch._functions.table import method as enter_method
from functrans.torch._graph.levels import anywhere
from functrans.torch._graph.nodes import named
from functrans.torch._graph.overriding import (
    OVERRIDING,
    alert,
    override,
    overriding,
    published,
)
from functrans.torch._tensors import factories
from functrans.torch._tensors.memory import scalar_name
from functrans.torch._tensors.tensor import Tensor, from_array
from functrans.torch.nn._functions.direct import linear_row

rand: Callable = vars(factories)["rand"]
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772

# ---- activations of one entry


@op(space=NN, title="HardtanhBackward0")
def relu6(input):
    """input kept between 0 and 6, where the slope is 0."""
    return _bound(input, 0, 6)


@op(space=NN)
def hardtanh(input, min_val=-1.0, max_val=1.0):
    """input kept between two bounds, where the slope is 0."""
    if min_val > max_val:
        raise WrongValue(f"hardtanh: min_val {min_val} is greater than max_val {max_val}")
    return _bound(input, min_val, max_val)


def _bound(x: Any, low: float, high: float) -> AnyArray:
    if x.dtype.kind == "b":
        raise RuntimeError("Bool inputs not supported for hardtanh")
    if x.dtype.kind == "u" and low < 0:
        raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    bound = np.where(plain(x) <= low, low, high).astype(x.dtype)
    return np.where(((x > low) & (x < high)) | (x != x), x, bound)


@op(space=NN)
def hardsigmoid(input):
    """relu6(input + 3) / 6."""
    line = input / 6 + 0.5
    return np.where((input <= -3) | (input >= 3), (plain(input) >= 3).astype(input.dtype), line)


@op(space=NN)
def hardswish(input):
    """input * relu6(input + 3) / 6."""
    inner = input * (input + 3) / 6
    return np.where(input <= -3, 0, np.where(input < 3, inner, input)).astype(input.dtype)


@op(space=NN)
def hardshrink(input, lambd=0.5):
    """input, but 0 between -lambd and lambd."""
    return np.where((input >= -lambd) & (input <= lambd), 0, input)


@op(space=NN)
def softshrink(input, lambd=0.5):
    """input moved towards 0 by lambd, at most to 0."""
    if lambd < 0:
        raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {lambd}.")
    return np.where(input > lambd, input - lambd, np.where(input < -lambd, input + lambd,
                                                           input * 0))


@op(space=NN, title="SubBackward0")
def tanhshrink(input):
    """input - tanh(input)."""
    return ROWS["tanhshrink"](floating(input) * 1)  # torch does not save the operand


@op(space=NN, title="DivBackward0")
def softsign(input):
    """input / (1 + |input|)."""
    return ROWS["softsign"](floating(input))


@op(space=NN)
def threshold(input, threshold, value):
    """input where it is above a threshold, else ``value``."""
    return np.where(input <= threshold, np.asarray(value, input.dtype), input)


@op(space=FUNCTIONS, title="EluBackward0")
def selu(input):
    """scale * elu(input, alpha), with the constants of self-normalising networks."""
    return _SELU_SCALE * _elu(input, _SELU_ALPHA, 1)


def _elu(x: Any, alpha: float, beta: float) -> AnyArray:
    """x where positive, else alpha * (exp(x / beta) - 1)."""
    return np.where(x > 0, x, alpha * np.expm1(np.where(x > 0, 0, x) / beta))


@op(space=FUNCTIONS)
def celu(input, alpha=1.0):
    """input where positive, else alpha * (exp(input / alpha) - 1)."""
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return _elu(input, alpha, alpha)


@op(space=NN)
def mish(input):
    """input * tanh(softplus(input))."""
    return input * np.tanh(ROWS["softplus"](input))


@op(title="PreluKernelBackward0")
def prelu(input, weight):
    """input where positive, else ``weight * input``: one weight, or one for each channel."""
    if weight.size == 1:
        weight = weight.reshape(())
    elif weight.ndim == 1 and input.ndim > 1:
        weight = weight.reshape((-1, *[1] * (input.ndim - 2)))
    return np.where(input > 0, input, weight * input)


@op(space=NN)
def glu(input, dim=-1):
    """The first half along ``dim`` times the sigmoid of the second."""
    n = input.shape[dim]
    if n % 2:
        raise RuntimeError("Halving dimension must be even, but dimension "
                           f"{dim % input.ndim} is size {n}")
    first, second = np.split(input, 2, dim)
    return first * ROWS["sigmoid"](second)


@op(space=NN, title="SoftmaxBackward0")
def softmin(input, dim=-1, *, dtype=None):
    """softmax(-input)."""
    return METHODS["softmax"].body(-input, dim, dtype=dtype)


@op(space=NN, title="DivBackward0")
def normalize(input, p=2.0, dim: Any = 1, eps=1e-12):
    """input divided by its p-norms along ``dim``, which are at least ``eps``."""
    size = np.linalg.vector_norm(input, ord=p, axis=axes(dim, input), keepdims=True)
    return ROWS["divide"](input, np.maximum(size, eps))


acceptance_of_slopes = acceptance("leaky_relu")


def rrelu(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False,
          inplace: bool = False) -> Tensor:
    """input where positive, else times a slope, drawn for each entry while ``training``."""
    if acceptance_of_slopes is not None:
        acceptance_of_slopes.check((input,))
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound, but they "
                           f"are {lower} and {upper}")
    slope: Any = (lower + upper) / 2
    if training:
        slope = lower + (upper - lower) * rand(input.shape, dtype=input.dtype)
    y = METHODS["where"](input, input > 0, input * slope)
    return input.copy_(y) if inplace else y


def rrelu_(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3,
           training: bool = False) -> Tensor:
    """``rrelu``, written to its input."""
    return rrelu(input, lower, upper, training, True)


# ---- dropout


def _dropout(name: str, doc: str, drop: Callable[..., Tensor], training: bool = True,
             channels: bool = False, dims: tuple[int, ...] = (), single: int = 0) -> None:
    """Enter ``name``, by what ``drop`` makes of the input and of which entries are kept.

    ``channels`` are dropped as a whole; ``dims``: those an input may have, if not all; ``single``:
    those of an input without a batch.
    """
    default = training

    def dropped(input: Tensor, p: float = 0.5, training: bool = default,
                inplace: bool = False) -> Tensor:
        n = input.dim()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        if dims and n not in dims:
            raise RuntimeError(f"{name}: Expected {dims[0]}D or {dims[1]}D input, but received a "
                               f"{n}D input.")
        if not training or p == 0:
            return input
        if channels and n < 2:
            raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
        lead = n if not channels else 1 if n == single else 2
        shape = (*input.shape[:lead], *[1] * (n - lead))
        kept = (rand(shape, dtype=factories.real_type(input.dtype)) >= p).to(input.dtype)
        return drop(input, kept, p, inplace)

    NN[name] = named(dropped, name, doc)


def _to_zero(input: Tensor, kept: Tensor, p: float, inplace: bool) -> Tensor:
    scale = kept / (1 - p) if p < 1 else kept
    return input.mul_(scale) if inplace else input * scale


def _to_low(input: Tensor, kept: Tensor, p: float, inplace: bool) -> Tensor:
    low = -_SELU_SCALE * _SELU_ALPHA
    scale = 1 / math.sqrt((1 - p) * (1 + p * low**2)) if p < 1 else 0.0
    y = (input * kept + low * (1 - kept)) * scale - scale * low * p
    return input.copy_(y) if inplace else y


_dropout("dropout", "Each entry zero with probability ``p``, else divided by ``1 - p``.", _to_zero)
for _name, _dims, _single in (("dropout1d", (2, 3), 2), ("dropout2d", (), 0),
                              ("dropout3d", (), 4), ("feature_dropout", (), 0)):
    _dropout(_name, "Each channel zero with probability ``p``, else divided by ``1 - p``.",
             _to_zero, True, True, _dims, _single)
_dropout("alpha_dropout", "Dropout to the negative limit of ``selu``, that keeps mean and "
         "variance.", _to_low, False)
_dropout("feature_alpha_dropout", "``alpha_dropout`` of whole channels.", _to_low, False, True)


# ---- linear maps, tables


def _map(input, weight, bias=None):
    if input.dtype != weight.dtype:
        names = scalar_name(input), scalar_name(weight)
        raise RuntimeError(
            "expected m1 and m2 to have the same dtype, but got: "
            f"{names[0].lower()} != {names[1].lower()}, in linear" if bias is None else
            f"mat1 and mat2 must have the same dtype, but got {names[0]} and {names[1]}"
        )
    transposed = np.swapaxes(weight, 0, 1) if weight.ndim == 2 else weight
    if not input.ndim or input.shape[-1] != weight.shape[-1]:
        who = "mm" if bias is None else "addmm"
        raise RuntimeError(unmultiply(who, input.shape or (1,), transposed.shape))
    y = np.matmul(input, transposed)
    return y if bias is None else y + bias


_linear, _affine = [op(_map, method=False, name="linear", title=title, by_row=linear_row)
                    for title in ("MmBackward0", "AddmmBackward0")]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias."""
    return _linear(input, weight) if bias is None else _affine(input, weight, bias)


linear.inner = _affine  # type: ignore[attr-defined]
published[_linear] = linear


@op(space=NN)
def bilinear(input1, input2, weight, bias=None):
    """input1^T W input2 for each matrix W of ``weight``, plus ``bias``."""
    y = np.einsum("...i,kij,...j->...k", input1, weight, input2)
    return y if bias is None else y + bias


def _rows_of_row(weight, index, padding):
    if padding is not None or not are_plain(weight):
        return None
    pattern, indices = split_key(index, weight._array.shape)
    return RowCall(TABLE["getitem"], (weight, *indices), {"pattern": pattern})


@op(method=False, title="EmbeddingBackward0", by_row=_rows_of_row)
def _rows_of(weight, index, padding):
    if padding is not None:
        known = (index != padding)[..., None]
        return np.where(known, weight[index], np.take(plain(weight), index, 0))
    return weight[index]


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None,
              max_norm: float | None = None, norm_type: float = 2.0,
              scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """The rows of ``weight`` at the entries of ``input``; ``padding_idx`` has no gradient."""
    index = input._array
    if index.dtype.kind not in "iu":
        raise RuntimeError("Expected tensor for argument #1 'indices' to have one of the following "
                           f"scalar types: Long, Int; but got {input.type()} instead (while "
                           "checking arguments for embedding)")
    if weight._array.ndim != 2:
        raise RuntimeError(f"'weight' must be 2-D, but it is of shape {list(weight.shape)}")
    n = weight._array.shape[0]
    if index.size and (index.min() < 0 or index.max() >= n):
        raise IndexError(f"index out of range in self: {n} rows, indices from {index.min()} to "
                         f"{index.max()}")
    if padding_idx is not None:
        if not -n <= padding_idx < n:
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx %= n
    if max_norm is not None:
        _renormalise(weight, index, max_norm, norm_type)
    y = _rows_of(weight, index.copy(), padding_idx)
    if scale_grad_by_freq and y.requires_grad:
        count = np.bincount(index.reshape(-1), minlength=n)[index][..., None]
        y.register_hook(lambda g: g / from_array(count.astype(g._array.dtype)))
    return y


def _renormalise(weight: Tensor, index: np.ndarray, max_norm: float, norm_type: float) -> None:
    """Scale the rows that are looked up down to a norm."""
    rows = np.unique(index)
    size = np.linalg.vector_norm(weight._array[rows], axis=1, ord=norm_type)
    scale = np.where(size > max_norm, max_norm / (size + 1e-7), 1)[:, None]
    weight._array[rows] *= scale.astype(weight._array.dtype)
    weight._storage.count()


@op(method=False, title="EmbeddingBagBackward0")
def _bagged(weight, index, bags, count, mode, scale, kept):
    """Rows of each bag added, averaged, or their greatest entries."""
    rows = weight[index]
    rows = rows if scale is None else rows * scale[:, None]
    rows = np.where(kept[:, None], rows, 0)
    total = np.zeros((count, weight.shape[1]), weight.dtype)
    if mode != "max":
        y = add(total, (bags,), rows)
        size = np.maximum(np.bincount(bags[kept], minlength=count), 1)[:, None]
        return y / size.astype(weight.dtype) if mode == "mean" else y
    y = reduced(total, (bags[kept],), rows[kept], "amax", False)
    return y


def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None,
    norm_type: float = 2, scale_grad_by_freq: bool = False, mode: str = "mean",
    sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> Tensor:
    """Sums, means or maxima of rows of ``weight``: a bag a row, or from each offset on."""
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError("embedding_bag: per_sample_weights was not None. "
                                  "per_sample_weights is only supported for mode='sum'")
    index = input._array.reshape(-1)
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has to be None, as input is treated is "
                             "a mini-batch of fixed length sequences.")
        count = input.shape[0]
        bags = np.repeat(np.arange(count), input.shape[1])
    else:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None")
        starts = offsets._array[:-1] if include_last_offset else offsets._array
        count = len(starts)
        bags = np.searchsorted(starts, np.arange(len(index)), "right") - 1
    kept = np.ones(len(index), bool)
    if padding_idx is not None:
        kept = index != padding_idx % weight.shape[0]
    if max_norm is not None:
        _renormalise(weight, index, max_norm, norm_type)
    scale = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    return _bagged(weight, index.copy(), bags, count, mode, scale, kept)


@op(space=NN)
def one_hot(tensor, num_classes=-1):
    """1 at the class of each entry, else 0, along a new last dimension."""
    classes = index_array(tensor)
    if classes.dtype != np.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if anywhere(classes < 0):
        raise RuntimeError("Class values must be non-negative.")
    if num_classes == -1:
        if not classes.size:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        num_classes = int(classes.max()) + 1
    if anywhere(classes >= num_classes):
        raise RuntimeError("Class values must be smaller than num_classes.")
    return (classes[..., None] == np.arange(num_classes)).astype(np.int64)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10,
                   dim: int = -1) -> Tensor:
    """A sample of the Gumbel-softmax distribution; ``hard``: one-hot, with the soft gradient."""
    noise = -(-rand(logits.shape, dtype=logits.dtype).clamp_(min=1e-20).log()).log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    one = soft.detach().mul(0).scatter_(dim, index, 1.0)
    return one - soft.detach() + soft


# ---- in place, and where names are


def _switch(f: Callable) -> Callable:
    """``f`` with a flag ``inplace``."""
    write = in_place(f, f"{f.__name__}_")

    def chosen(input: Tensor, *args: Any, inplace: bool = False, **kwargs: Any) -> Tensor:
        if args and type(args[-1]) is bool and f.__name__ not in ("glu",):
            *args, inplace = args  # type: ignore[assignment]  # the last positional one
        if alert and OVERRIDING in alert and (
                found := overriding((input, *args, *kwargs.values()))):
            return override(chosen, found, (input, *args), kwargs)
        try:
            return write(input, *args, **kwargs) if inplace else f(input, *args, **kwargs)
        except Exception:
            if not (found := overriding((input, *args, *kwargs.values()))):
                raise
        return override(chosen, found, (input, *args), kwargs)

    chosen.overridable = True  # type: ignore[attr-defined]

    return named(chosen, f.__name__, f.__doc__)


def _softmax(f: Callable) -> Callable:
    """``f`` along ``dim``, with the argument of the stack level that torch has between."""

    def along(input: Tensor, dim: int | None = None, _stacklevel: int = 3,
              dtype: Any = None) -> Tensor:
        if dim is None:
            dim = 0 if input.dim() in (0, 1, 3) else 1
        return f(input, dim, dtype=dtype)

    return named(along, f.__name__, f.__doc__)


for _names, _space in ((("relu6", "hardtanh", "hardsigmoid", "hardswish", "threshold", "mish"), NN),
                       (("relu", "leaky_relu", "elu", "silu"), METHODS),
                       (("selu", "celu"), FUNCTIONS)):
    for _name in _names:
        NN[_name] = _switch(_space[_name])
        NN[f"{_name}_"] = in_place(NN[_name], f"{_name}_")
for _name in ("softmax", "log_softmax", "softmin"):
    NN[_name] = _softmax(NN.get(_name) or METHODS[_name])
NN.update(
    sigmoid=METHODS["sigmoid"], tanh=METHODS["tanh"], softplus=softplus, logsigmoid=logsigmoid,
    prelu=METHODS["prelu"], linear=linear, embedding=embedding,
    embedding_bag=embedding_bag, rrelu=rrelu, rrelu_=rrelu_, gumbel_softmax=gumbel_softmax,
    cosine_similarity=cosine_similarity, pdist=pdist,
)
enter_method(NN["hardshrink"])
