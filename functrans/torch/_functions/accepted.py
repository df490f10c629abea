"""Which types functions take: torch has no kernel for the others, and says so.

One table for each way in which torch refuses; ``acceptance`` has what they say of one function.
Letters stand for types: b booleans, i integers, h float16, w bfloat16, c complex numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans.torch._functions.failures import not_a_tensor
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.memory import scalar_name
from functrans.torch._tensors.tensor import Tensor

# kernel -> the types that it lacks, and the functions of one operand that call it
KERNELS = {
    "GeluKernelImpl": ("bic", "gelu"),
    "LayerNormKernelImpl": ("bic", "layer_norm"),
    "abs_cpu": ("b", "abs softsign"),
    "airy_ai_cpu": ("hwc", "airy_ai"),
    "bessel_j0_cpu": ("hwc", "bessel_j0"),
    "bessel_j1_cpu": ("hwc", "bessel_j1"),
    "bessel_y0_cpu": ("hwc", "bessel_y0"),
    "bessel_y1_cpu": ("hwc", "bessel_y1"),
    "binary_cross_entropy": ("bic", "binary_cross_entropy"),
    "ceil_vml_cpu": ("bc", "ceil"),
    "digamma": ("c", "digamma"),
    "elu_cpu": ("bic", "elu selu celu"),
    "erf_vml_cpu": ("c", "erf ndtr"),
    "erfc_vml_cpu": ("c", "erfc"),
    "erfcx_cpu": ("hwc", "erfcx"),
    "floor_vml_cpu": ("bc", "floor"),
    "frac_cpu": ("bic", "frac"),
    "glu_cpu": ("bic", "glu"),
    "hardshrink_cpu": ("bic", "hardshrink"),
    "hardsigmoid_cpu": ("bic", "hardsigmoid"),
    "hardswish_cpu": ("bic", "hardswish"),
    "histogram_cpu": ("bic", "histc"),
    "i0_vml_cpu": ("c", "i0"),
    "i1_cpu": ("c", "i1"),
    "kthvalue_cpu": ("bc", "kthvalue"),
    "leaky_relu_cpu": ("bic", "leaky_relu"),
    "log_ndtr_cpu": ("hwc", "log_ndtr"),
    "log_sigmoid_cpu": ("bic", "logsigmoid binary_cross_entropy_with_logits "
                        "multilabel_soft_margin_loss"),
    "log_softmax_kernel_impl": ("bic", "log_softmax"),
    "log_softmax_lastdim_kernel_impl": ("bic", "cross_entropy"),
    "logcumsumexp_out_cpu": ("bi", "logcumsumexp"),
    "logit_cpu": ("c", "logit"),
    "median_cpu": ("bc", "median_all nanmedian"),
    "median_out": ("bc", "median_dim nanmedian_dim"),
    "mish_cpu": ("bic", "mish"),
    "multi_margin_loss_cpu_kernel": ("bihwc", "multi_margin_loss"),
    "multilabel_margin_loss_forward_out_frame": ("bihwc", "multilabel_margin_loss"),
    "ndtri_cpu": ("hwc", "ndtri"),
    "nll_loss_out_frame": ("bic", "nll_loss"),
    "prelu_cpu": ("bic", "prelu"),
    "round_vml_cpu": ("bc", "round"),
    "scaled_modified_bessel_k0_cpu": ("hwc", "scaled_modified_bessel_k0"),
    "scaled_modified_bessel_k1_cpu": ("hwc", "scaled_modified_bessel_k1"),
    "modified_bessel_k0_cpu": ("hwc", "modified_bessel_k0"),
    "modified_bessel_k1_cpu": ("hwc", "modified_bessel_k1"),
    "silu_cpu": ("bi", "silu"),
    "softmax_kernel_impl": ("bic", "softmax softmin"),
    "softshrink_check": ("bic", "softshrink"),
    "spherical_bessel_j0_cpu": ("hwc", "spherical_bessel_j0"),
    "threshold_cpu": ("bc", "threshold"),
    "trace": ("b", "trace"),
    "trunc_vml_cpu": ("bc", "trunc fix"),
    "unique": ("c", "unique"),
}
# kernel -> the types that it lacks, and the functions of two operands that call it
KERNELS_OF_TWO = {
    "addmm_impl_cpu_": ("b", "mm addmm linear tensordot"),
    "addmv_impl_cpu": ("b", "mv addmv"),
    "addcmul_cpu_out": ("b", "addcmul"),
    "baddbmm": ("b", "baddbmm"),
    "bitwise_and_cpu": ("hwc", "bitwise_and"),
    "bitwise_or_cpu": ("hwc", "bitwise_or"),
    "bitwise_xor_cpu": ("hwc", "bitwise_xor"),
    "bmm": ("b", "bmm einsum"),
    "cdist": ("hw", "cdist"),
    "cross": ("b", "linalg_cross"),
    "dot": ("b", "dot vdot"),
    "div_floor_cpu": ("b", "floor_divide"),
    "fmod_cpu": ("bc", "fmod"),
    "huber_cpu": ("c", "huber_loss"),
    "hypot_cpu": ("bi", "hypot"),
    "igamma_cpu": ("bic", "gammainc"),
    "igammac_cpu": ("bic", "gammaincc"),
    "logaddexp_cpu": ("bi", "logaddexp"),
    "logaddexp2_cpu": ("bi", "logaddexp2"),
    "lshift_cpu": ("b", "bitwise_left_shift"),
    "mse_cpu": ("bic", "mse_loss"),
    "nextafter_cpu": ("bi", "nextafter"),
    "polar_cpu": ("h", "polar"),
    "remainder_cpu": ("bc", "remainder"),
    "rshift_cpu": ("b", "bitwise_right_shift"),
    "searchsorted_out_cpu": ("bc", "searchsorted bucketize"),
    "smooth_l1_cpu": ("bic", "smooth_l1_loss"),
    "xlog1py_cpu": ("c", "xlog1py"),
    "xlogy_cpu": ("c", "xlogy"),
    "zeta_cpu": ("hwc", "zeta"),
}
BOOLEAN_DIFFERENCES = (
    "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
    "`logical_xor()` operator instead.",
    "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to "
    "invert a mask, use the `~` or `logical_not()` operator instead.",
)
BOOLEAN_NEGATION = (
    "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a "
    "mask, use the `~` or `logical_not()` operator instead."
)
# in sentences: function -> the types that it does not take, of its operands together, and the text,
# in which {0} is the type
_NO_CLAMP = "clamp is not supported for complex types"
SENTENCES = {
    "corrcoef": ("b", "cov(): bool dtype is not supported for input"),
    "cosine_embedding_loss": ("c", _NO_CLAMP),
    "cosine_similarity": ("bic", "expected common dtype to be floating point, yet common dtype is "
                          "{0}"),
    "cov": ("b", "cov(): bool dtype is not supported for input"),
    "cumulative_trapezoid": ("b", "cumulative_trapezoid: received a bool input for `y`, but bool "
                             "is not supported"),
    "fft": ("hw", "Unsupported dtype {0}"),
    "frexp": ("bic", "torch.frexp() only supports floating-point dtypes"),
    "hardtanh": ("c", _NO_CLAMP),
    "gradient": ("b", BOOLEAN_DIFFERENCES[0]),
    "heaviside": ("c", "heaviside is not yet implemented for complex tensors."),
    "hinge_embedding_loss": ("c", _NO_CLAMP),
    "isneginf": ("c", "isneginf does not support complex inputs."),
    "isposinf": ("c", "isposinf does not support complex inputs."),
    "kl_div": ("c", "kl_div: Complex inputs not supported."),
    "margin_ranking_loss": ("c", _NO_CLAMP),
    "mvlgamma": ("b", "The input tensor may not be a boolean tensor."),
    "nanmean": ("c", "nansum on CPU does not support complex inputs"),
    "nanquantile": ("hwbic", "quantile() input tensor must be either float or double dtype"),
    "nansum": ("c", "nansum on CPU does not support complex inputs"),
    "normalize": ("bi", "linalg.vector_norm: Expected a floating point or complex tensor as input. "
                  "Got {0}"),
    "quantile": ("hwbic", "quantile() input tensor must be either float or double dtype"),
    "relu": ("c", _NO_CLAMP),
    "renorm": ("bi", "linalg.vector_norm: Expected a floating point or complex tensor as input. "
               "Got {0}"),
    "relu6": ("c", _NO_CLAMP),
    "sign": ("c", "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use "
             "torch.sgn instead."),
    "tanhshrink": ("b", BOOLEAN_DIFFERENCES[1]),
    "topk": ("b", "topk does not support bool dtypes on CPU"),
    "trapezoid": ("b", "trapezoid: received a bool input for `y`, but bool is not supported"),
}
for _name in ("ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2", "irfft2", "hfft2",
              "ihfft2", "fftn", "ifftn", "rfftn", "irfftn", "hfftn", "ihfftn"):
    SENTENCES[_name] = SENTENCES["fft"]
# functions whose operands are tensors, never numbers: names of the arguments
TENSORS: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("atan2", "hypot", "maximum", "minimum", "fmax", "fmin", "logaddexp", "logaddexp2",
     "nextafter", "logical_and", "logical_or", "logical_xor", "gcd", "lcm", "ldexp", "dist",
     "isclose", "kron", "linalg_cross", "inner", "gammainc", "gammaincc"),
    ("input", "other"))
TENSORS["arctan2"] = TENSORS["atan2"]
TENSORS["pairwise_distance"] = "x1", "x2"
TENSORS["heaviside"] = "input", "values"
TENSORS["outer"] = "input", "vec2"
TENSORS["lerp"] = "input", "end"
TENSORS["addcmul"] = TENSORS["addcdiv"] = "input", "tensor1", "tensor2"
for _name in ("copysign", "fmod", "eq", "ne", "lt", "le", "gt", "ge", "rsub", "clamp", "clamp_min",
              "clamp_max", "not_equal", "less", "less_equal", "greater", "greater_equal"):
    TENSORS[_name] = ("input",)
# functions that take differences of their operands, which booleans have none of
DIFFERENCES = frozenset({"dist", "l1_loss", "pairwise_distance", "triplet_margin_loss"})
# functions whose operands are of one type: their number
ALIKE = {"addbmm": 3, "addmm": 3, "addmv": 3, "baddbmm": 3, "cdist": 2, "einsum": 2, "heaviside": 2,
                 "linalg_cross": 2, "prelu": 2, "tensordot": 2}
# functions that bring their operands to the common type first: their number
JOINT = {"cosine_similarity": 2}
# functions whose result is in the type of their first operand, or an error
AS_FIRST = frozenset({"huber_loss", "soft_margin_loss"})
_ALIKE_TEXTS = {
    "addmm": "self and mat2 must have the same dtype, but got {0} and {1}",
    "baddbmm": "Input dtypes must be the same, got: input {0}, batch1: {1}, batch2: {1}",
    "heaviside": "heaviside is not yet implemented for tensors with different dtypes.",
    "prelu": "prelu: Type promoting not supported. Got {0} and {1}",
    "tensordot": "both inputs should have same dtype",
}
_OTHER = "expected scalar type {0} but found {1}"
_FAST = np.dtype(np.float32), np.dtype(np.float64)


class Refusal(NamedTuple):
    """Types, by letters, that ``operands`` of a function together may not have, and the error."""

    lacks: str
    operands: int
    kind: type[Exception]
    text: str


def _refusals() -> dict[str, list[Refusal]]:
    found: dict[str, list[Refusal]] = {}
    for n, kernels in ((1, KERNELS), (2, KERNELS_OF_TWO)):
        for kernel, (lacks, names) in kernels.items():
            text = f"\"{kernel}\" not implemented for '{{0}}'; convert it to another type first"
            for name in names.split():
                found.setdefault(name, []).append(Refusal(lacks, n, NotImplementedError, text))
    for name, (lacks, text) in SENTENCES.items():
        kind = NotImplementedError if text == _NO_CLAMP or name == "sign" else RuntimeError
        n = 2 if name in ("cosine_embedding_loss", "kl_div", "margin_ranking_loss") else 1
        n = JOINT.get(name, n)
        found.setdefault(name, []).append(Refusal(lacks, n, kind, text))
    return found


_REFUSALS = _refusals()


def letter(d: np.dtype) -> str:
    """The letter of a type."""
    if d.kind in "fV":
        return {"e": "h"}.get(d.char, "w" if d.kind == "V" or d == dtypes.BFLOAT16 else "f")
    return "i" if d.kind == "u" else d.kind


class Acceptance:
    """What a function takes, and in which type it computes."""

    __slots__ = ("alike", "as_first", "differences", "first_only", "joint", "name",
                 "refusals", "tensors")

    def __init__(self, name: str):
        self.name = name
        self.refusals = _REFUSALS.get(name, ())
        self.tensors = TENSORS.get(name, ())
        self.differences = name in DIFFERENCES
        self.alike = ALIKE.get(name, 0)
        self.joint = JOINT.get(name, 0)
        self.as_first = name in AS_FIRST
        pairs = self.tensors or self.alike or self.differences or self.as_first
        self.first_only = not pairs and all([r.operands == 1 for r in self.refusals])

    def __bool__(self) -> bool:
        return bool(self.refusals or self.tensors or self.differences or self.alike or self.joint
                    or self.as_first)

    def check(self, args: Sequence, dtype: Any = None) -> None:
        """Raise what torch does of operands that the function does not take. ``dtype``: to which
        they are converted first."""
        if self.first_only and args and isinstance(args[0], Tensor) and (
                args[0]._array.dtype in _FAST):
            return
        for position, (name, x) in enumerate(zip(self.tensors, args, strict=False), 1):
            if type(x) in dtypes.NUMBERS or isinstance(x, np.generic):
                raise not_a_tensor(self.name, name, position, x)
        if dtype is not None:
            return
        found = _arrays(args)
        if self.alike:
            self._require_alike(found[: self.alike])
        if self.differences and len(found) > 1:
            no_booleans(*found[:2])
        if self.as_first and len(found) > 1:
            require_cast(found[:2], found[0].dtype)
        for lacks, operands, kind, text in self.refusals:
            part = [x for x in found[:operands] if x is not None]
            if operands < len(found) and not any([hasattr(x, "dtype") for x in part]):
                part.append(found[operands])  # a number comes first
            if any([hasattr(x, "dtype") for x in part]):
                d = dtypes.result_dtype(part)
                if letter(d) in lacks:
                    raise kind(text.format(scalar_name(np.empty(0, d))))

    def _require_alike(self, xs: Sequence) -> None:
        have = [x for x in xs if hasattr(x, "dtype")]
        for x in have[1:]:
            if x.dtype != have[0].dtype:
                text = _ALIKE_TEXTS.get(self.name, _OTHER)
                raise RuntimeError(text.format(scalar_name(have[0]), scalar_name(x))
                                   + f", in {self.name}" * (text is _OTHER))

    def together(self, operands: list) -> list:
        """``operands``, those that are computed with in a common type brought to it."""
        n = self.joint
        if not n or len(operands) < n:
            return operands
        first = [x for x in operands[:n] if hasattr(x, "dtype")]
        target = functools.reduce(dtypes.promote, [x.dtype for x in first])
        return [x if not hasattr(x, "dtype") or x.dtype == target else x.astype(target)
                for x in operands[:n]] + operands[n:]


def _arrays(args: Sequence) -> list:
    """The operands: arrays of tensors, numbers, and None for anything else."""
    found: list[Any] = []
    for x in args:
        if isinstance(x, Tensor):
            found.append(x._array)
        elif type(x) is str:  # an equation
            continue
        elif type(x) in (list, tuple):
            found += [v._array for v in x if isinstance(v, Tensor)]
        else:
            x = dtypes.number(x)
            found.append(x if type(x) in dtypes.NUMBERS else None)
    return found


def require_cast(xs: Sequence, target: np.dtype) -> None:
    """Raise if what is made of ``xs`` does not fit the type ``target``."""
    have = dtypes.result_dtype([x for x in xs if x is not None])
    if dtypes.BY_ARRAY_DTYPE[have].rank > dtypes.BY_ARRAY_DTYPE[target].rank:
        raise RuntimeError(f"result type {scalar_name(np.empty(0, have))} can't be cast to the "
                           f"desired output type {scalar_name(np.empty(0, target))}")


def no_booleans(*xs: Any) -> None:
    """Raise if an operand of a difference is boolean."""
    found = [type(x) is bool or getattr(getattr(x, "dtype", None), "kind", "") == "b" for x in xs]
    if any(found):
        raise RuntimeError(BOOLEAN_DIFFERENCES[0 if all(found) else 1])


def floats_only(who: str, *xs: Any) -> None:
    """Raise if an operand is of integers or booleans, for which torch has no kernel ``who``."""
    for x in xs:
        if x.dtype.kind in "biu":
            raise NotImplementedError(
                f"\"{who}\" not implemented for '{scalar_name(x)}'; convert it to a floating-point "
                "type first")


def acceptance(name: str) -> Acceptance | None:
    """What the function ``name`` takes, None where that is everything."""
    found = Acceptance(name)
    return found if found else None
