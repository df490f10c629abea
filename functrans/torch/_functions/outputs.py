"""What functions take and return: names of arguments, ``out=``, types of results, direct calls."""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections import namedtuple
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from functrans.extend import TABLE, Linear, Primitive, Tracer
from functrans.torch._graph.graph import RowNode
from functrans.torch._graph.modes import no_grad, quietly, state, unusual
from functrans.torch._graph.overriding import OVERRIDING, alert, override, overriding
from functrans.torch._graph.views import change, guard, refuse_overlap
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.memory import scalar_name
from functrans.torch._tensors.tensor import Tensor, from_array, recorded_edge

# ---- Names of arguments: NumPy's, which torch takes too, and those that a function does not have

NUMPYS = {"axis": "dim", "keepdims": "keepdim"}
# functions of which torch has several forms, so that its error lists what it was called with
_OVERLOADED = frozenset({
    "addbmm", "addcdiv", "addcmul", "addmm", "addmv", "addr", "all", "any", "argsort", "baddbmm",
    "bernoulli", "bitwise_and", "bitwise_or", "bitwise_xor", "bucketize", "clamp", "clamp_max",
    "clamp_min", "clip", "conv1d", "conv2d", "conv3d", "copysign", "count_nonzero", "divide", "eq",
    "fill", "float_power", "floor_divide", "fmod", "ge", "gradient", "greater", "gt", "index_fill",
    "isin", "le", "lerp", "less", "lt", "masked_fill", "max", "mean", "min", "movedim", "multiply",
    "narrow", "ne", "pow", "prod", "quantile", "remainder", "repeat_interleave", "round",
    "scatter", "searchsorted", "sort", "squeeze", "std", "std_mean", "subtract", "sum",
    "tensor_split", "trapezoid", "var", "var_mean", "xlogy",
})
_MISSING = re.compile(r"missing (\d+) required positional arguments?: (.+)")
_UNEXPECTED = re.compile(r"got an unexpected keyword argument|got multiple values for")


def parameters_of(f: Callable) -> frozenset[str]:
    """The names of a function's arguments."""
    return frozenset(inspect.signature(f).parameters)


def positions_of(f: Callable) -> tuple[str, ...]:
    """The names of the arguments that may be given by position, in their order."""
    return tuple([p.name for p in inspect.signature(f).parameters.values()
                  if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)])


def rename(kwargs: dict[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """``kwargs`` with torch's names in place of NumPy's, where the function has those."""
    if NUMPYS.keys().isdisjoint(kwargs):
        return kwargs
    return {NUMPYS[k] if NUMPYS.get(k) in wanted and k not in wanted else k: v
            for k, v in kwargs.items()}


def renaming(f: Callable) -> Callable:
    """``f``, which takes NumPy's names as well, if there are any."""
    wanted = parameters_of(f)
    if wanted.isdisjoint(("dim", "keepdim")):
        return f

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        if alert and OVERRIDING in alert and (
                found := overriding((*args, *kwargs.values()))):
            return override(call, found, args, kwargs)
        try:
            return f(*args, **rename(kwargs, wanted)) if kwargs else f(*args)
        except Exception:
            if not (found := overriding((*args, *kwargs.values()))):
                raise
        return override(call, found, args, kwargs)

    call.overridable = True  # type: ignore[attr-defined]
    return call


def wrong_arguments(name: str, failure: TypeError, args: tuple, kwargs: dict[str, Any],
                    ) -> TypeError:
    """The error that torch has where a call fits no form of a function."""
    if missing := _MISSING.search(str(failure)):
        names = missing[2].replace("'", '"').replace(" and ", ", ").replace(",,", ",")
        return TypeError(f"{name}() missing {missing[1]} required positional arguments: {names}")
    if name not in _OVERLOADED or not _UNEXPECTED.search(str(failure)):
        return failure
    found = [_kind(x) for x in args] + [f"{k}={_kind(v)}" for k, v in kwargs.items()]
    return TypeError(f"{name}() received an invalid combination of arguments - got "
                     f"({', '.join(found)}): {failure}")


def _kind(x: Any) -> str:
    return "Tensor" if isinstance(x, Tensor) else type(x).__name__


# ---- The type of results: NumPy widens where torch does not
#
# In NumPy float32 and int64 make float64, and functions without a loop for bfloat16 give float32.
# In torch a result is in the type to which the tensors among the operands promote.

# in torch too of another type than the operands
_WIDENING = frozenset({
    "cosine_embedding_loss", "cosine_similarity", "float_power", "kron", "l1_loss", "mse_loss",
    "poisson_nll_loss", "smooth_l1_loss",
})
# functions of several roundings, or of values in between that are beyond the result: float16 and
# bfloat16 are computed in float32 and rounded once, as torch does
_WIDE = frozenset({
    "addcdiv", "addcmul", "batch_norm", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "celu", "cosine_similarity",
    "cross_entropy", "cumprod", "cumsum", "digamma", "dist", "elu", "gaussian_nll_loss", "gelu",
    "glu", "group_norm", "hardsigmoid", "hardswish", "hinge_embedding_loss", "huber_loss", "i0",
    "instance_norm", "kl_div", "l1_loss", "layer_norm", "lerp", "local_response_norm",
    "log_softmax", "logcumsumexp", "logsigmoid", "logsumexp", "lp_pool1d", "lp_pool2d",
    "margin_ranking_loss", "mish", "mse_loss", "multilabel_soft_margin_loss", "nanmean",
    "nansum", "nll_loss", "norm", "normalize", "pairwise_distance", "renorm",
    "rms_norm", "selu", "silu", "sinc", "smooth_l1_loss", "soft_margin_loss",
    "softmax", "softmin", "softplus", "softsign", "sum_all", "sum_dim", "tanhshrink",
    "trapezoid", "triplet_margin_loss", "vector_norm",
})


def computes_wide(name: str) -> bool:
    """Whether the function ``name`` computes half precision in single."""
    return name in _WIDE


def widen(name: str, operands: Sequence, options: dict[str, Any]) -> np.dtype | None:
    """The type of a result of these operands if it is of half precision, else None."""
    found = [x for x in (*operands, *options.values()) if getattr(x, "dtype", None) is not None]
    if not any([_is_half(x) for x in found]):
        return None
    target = dtypes.result_dtype(found)
    if name in _WIDENING:
        target = functools.reduce(dtypes.promote, [x.dtype for x in found])
    return target if _is_half(np.empty(0, target)) else None


def _is_half(x: Any) -> bool:
    d = getattr(x, "dtype", None)
    return d is not None and d.itemsize == 2 and d.kind in "fV"


def in_single(x: Any) -> Any:
    """``x``, in single precision if it is of half."""
    return x.astype(np.float32) if _is_half(x) else x


def narrow(out: Any, target: np.dtype) -> Any:
    """``out``, single precision rounded to ``target``."""
    if type(out) in (tuple, list):
        return type(out)([narrow(x, target) for x in out])
    return out.astype(target) if getattr(out, "dtype", None) == np.float32 else out


def in_torchs_type(name: str, out: Any, operands: Sequence, options: dict[str, Any]) -> object:
    """``out`` of the function ``name``, each floating-point result in torch's type."""
    kind = type(out)
    if kind is tuple or kind is list:
        return kind([in_torchs_type(name, x, operands, options) for x in out])
    d = getattr(out, "dtype", None)
    if d is None or d.kind not in "fc":
        return out
    for x in operands:
        if getattr(x, "dtype", None) is d and x.shape:
            return out
    target = _target(d, operands, options)
    return out if target is None or name in _WIDENING else out.astype(target)


def _target(d: np.dtype, operands: Sequence, options: dict[str, Any]) -> np.dtype | None:
    """The narrower type that a result of type ``d`` has in torch, None if there is none."""
    tensors = []
    for x in _flat([*operands, *options.values()]):
        if isinstance(x, np.dtype):
            return None  # asked for
        if getattr(x, "dtype", None) is not None:
            tensors.append(x)
    if not tensors:
        return None
    target = dtypes.result_dtype(tensors)
    if target.kind not in "fcV":
        target = dtypes.default_float()
    if d.kind == "c" and target.kind != "c":
        target = np.dtype(np.complex128 if target.itemsize == 8 else np.complex64)
    return target if target.kind in ("fV", "c")[d.kind == "c"] and (
        target.itemsize < d.itemsize) else None


def _flat(xs: Iterable) -> Iterable:
    for x in xs:
        if type(x) in (list, tuple):
            yield from x
        else:
            yield x


# ---- ``torch.return_types``: what functions of several results return


@functools.cache
def return_type(name: str, fields: tuple[str, ...]) -> type:
    """The class of the results of the function ``name``, which prints as torch's does."""
    base = namedtuple(name, fields)  # type: ignore[misc]  # fields by the caller
    return type(name, (base,), {
        "__slots__": (), "__module__": "torch.return_types", "__repr__": _show,
        "__reduce__": lambda self: (_return, (name, fields, tuple(self))),
    })


def _return(name: str, fields: tuple[str, ...], results: tuple) -> Any:
    return return_type(name, fields)(*results)


def _show(self: Any) -> str:
    lines = [f"{f}={getattr(self, f)!r}" for f in self._fields]
    return f"torch.return_types.{type(self).__name__}(\n" + ",\n".join(lines) + ")"


# ---- ``out=``: results written to tensors that the caller has, by torch's rules


def any_requires(xs: Any) -> bool:
    """Whether what is done with ``xs`` is to be recorded, as long as anything is."""
    only_forward = unusual and state.only_forward
    for x in xs:
        if isinstance(x, Tensor):
            if only_forward:
                if recorded_edge(x) is not None:
                    return True
            elif x._node is not None or x.requires_grad:
                return True
        elif type(x) in (list, tuple) and any_requires(x):
            return True
    return False


def write_out(name: str, compute: Callable[[], Any], out: Any, operands: Any) -> Any:
    """What ``compute`` returns, written to ``out``: a tensor, or one for each of several results.

    Raises RuntimeError where a gradient would be needed, or where the type does not fit.
    """
    if state.grad and (any_requires(out if isinstance(out, tuple | list) else [out])
                       or any_requires(operands[0]) or any_requires(operands[1].values())):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, "
            "but one of the arguments requires grad. Use the result, or call it under no_grad."
        )
    for target in out if isinstance(out, tuple | list) else (out,):
        for x in [*operands[0], *operands[1].values()]:
            refuse_overlap(target, x)
    with no_grad():
        results = compute()
    if isinstance(out, Tensor):
        _write(name, results, out)
        return out
    if not isinstance(out, tuple | list) or len(out) != len(results):
        raise TypeError(f"{name}(): out must be {len(results)} tensors in a tuple, one a result")
    for result, target in zip(results, out, strict=True):
        _write(name, result, target)
    return type(results)(*out) if hasattr(results, "_fields") else tuple(out)


def _write(name: str, result: Tensor, out: Tensor) -> None:
    have, want, array = result.dtype, out.dtype, result._array
    if have.rank > want.rank:
        raise RuntimeError(
            f"result type {scalar_name(array)} can't be cast to the desired output type "
            f"{scalar_name(out._array)}, in {name} with out="
        )
    if out._array.shape != array.shape:
        if out._array.size:
            warnings.warn(
                "An output with one or more elements was resized since it had shape "
                f"{list(out.shape)}, which does not match the required output shape "
                f"{list(array.shape)}. Pass an output of that shape, or out.resize_(0).",
                UserWarning, stacklevel=5,
            )
        out._array = np.empty(array.shape, out._array.dtype)
    guard(out, False, name)
    out._array[...] = array
    change(out, name)


def taking_out(f: Callable) -> Callable:
    """``f`` with a keyword ``out``."""
    name = f.__name__

    @functools.wraps(f)
    def of_one(input: Any, *, out: Any = None) -> Tensor:
        if out is None:
            return f(input)
        return write_out(name, functools.partial(f, input), out, ((input,), {}))

    @functools.wraps(f)
    def of_two(input: Any, other: Any, *, out: Any = None) -> Tensor:
        if out is None:
            return f(input, other)
        return write_out(name, functools.partial(f, input, other), out, ((input, other), {}))

    @functools.wraps(f)
    def call(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is None:
            return f(*args, **kwargs)
        return write_out(name, functools.partial(f, *args, **kwargs), out, (args, kwargs))

    return {1: of_one, 2: of_two}.get(getattr(f, "operands", 0), call)


# the code of frames between an operation and the user's
OF_ONE, OF_TWO = [next(c for c in taking_out.__code__.co_consts
                       if getattr(c, "co_name", "") == name) for name in ("of_one", "of_two")]


def in_batch(*xs: Any) -> list | None:
    """The operands, those that the open batch captures as its constants; None if there are none."""
    out, batch = list(xs), state.batch
    for i, x in enumerate(xs):
        edge = recorded_edge(x) if isinstance(x, Tensor) else None
        if batch is not None and edge is not None:
            value = batch.captured_value(x._array, edge, x._storage)
            out[i] = x if value is None else from_array(value.primal)
    return None if all(a is b for a, b in zip(out, xs, strict=True)) else out


# ---- Calls that are one row of tensors in single or double precision, without a trace
#
# A function's ``by_row(*args)``, which ``op`` asks first, is the row, operands and parameters, or
# the result of a few such calls, or None where the call is more than that. NumPy's name, its
# arguments and a trace would take longer than the row on some hundred numbers. Where NumPy refuses
# the operands, the general way says what is wrong.

FLOATS = np.dtype(np.float32), np.dtype(np.float64)


class RowCall(NamedTuple):
    """A row with its operands, tensors and what has no gradient, and its parameters."""

    row: Primitive
    operands: Sequence
    params: dict


ByRow = Callable[..., RowCall | Tensor | None]


def are_plain(*xs: Any) -> bool:
    """Whether these are tensors of one type, in single or double precision."""
    dtype = None
    for x in xs:
        if not isinstance(x, Tensor):
            return False
        array = x._array
        if type(array) is not ndarray:
            return False
        if dtype is None:
            dtype = array.dtype
        elif array.dtype is not dtype:
            return False
    return dtype in FLOATS


def axis_of(dim: Any, ndim: int) -> int | None:
    """``dim`` counted from the first, None where it is no int or there is no such dimension."""
    return dim % ndim if type(dim) is int and -ndim <= dim < ndim else None


def record_row(kind: type[RowNode], title: str, call: RowCall) -> Tensor | None:
    """The output of a row, or its first, on new memory, with its node, of ``kind``; None where an
    open batch captures an operand."""
    row, operands, params = call
    primals, edges, storages = [], [], []
    recording = state.grad
    for x in operands:
        edge = storage = None
        if isinstance(x, Tensor):
            storage = x._storage
            if recording:
                edge = recorded_edge(x)
            x = x._array
        primals.append(x)
        edges.append(edge)
        storages.append(storage)
    impl = row.impl
    y = impl(*primals, **params) if type(row) is Linear else quietly(impl, *primals, **params)
    out = from_array(y if row.outputs == 1 else y[0])
    if any(edges):
        if unusual and isinstance(out._array, Tracer) and in_batch(*operands):
            return None
        kept = out._array if row.outputs == 1 else y
        out._node = kind(title, row, edges, primals, kept, params, storages, out._storage)
    return out


# ---- joining


def cat_row(tensors, dim=0):
    axis = axis_of(dim, tensors[0]._array.ndim) if _are_plain(tensors) else None
    return None if axis is None else RowCall(TABLE["concatenate"], tensors, {"axis": axis})


def _are_plain(tensors: Any) -> bool:
    return type(tensors) in (list, tuple) and len(tensors) > 0 and are_plain(*tensors)


def stack_row(tensors, dim=0):
    if not _are_plain(tensors):
        return None
    axis = axis_of(dim, tensors[0]._array.ndim + 1)
    return None if axis is None else RowCall(TABLE["stack"], tensors, {"axis": axis})
