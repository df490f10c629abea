"""Names of ``torch`` that ask or tell it about itself: threads, printing, kinds of tensors."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

from functrans.torch._functions.shapes import require_cpu
from functrans.torch._graph import nodes
from functrans.torch._tensors import printing
from functrans.torch._tensors.tensor import Tensor

_precision = ["highest"]
# name -> what it does, one expression of its arguments, and what is said of it
_ROWS: dict[str, tuple[Callable, str]] = {
    # kinds of tensors
    "is_floating_point": (lambda input: input.is_floating_point(),
                          "Whether a tensor is of a floating-point type."),
    "is_complex": (lambda input: input.is_complex(), "Whether a tensor is of a complex type."),
    "is_signed": (lambda input: input.is_signed(), "Whether a type has negative numbers."),
    "is_conj": (lambda input: False, "False: ``conj`` computes."),
    "is_neg": (lambda input: False, "False: ``neg`` computes."),
    "is_distributed": (lambda input: False, "False: there is one process."),
    "is_nonzero": (lambda input: bool(input), "Whether the one entry of a tensor is not zero."),
    "is_same_size": (lambda input, other: input.is_same_size(other),
                     "Whether two tensors have the same shape."),
    "resize_as_": (lambda input, the_template, *, memory_format=None:
                   input.resize_as_(the_template), "``resize_`` to the shape of another tensor."),
    "is_inference": (lambda input: input.is_inference(),
                     "Whether a tensor was made in ``inference_mode``."),
    "is_storage": (lambda obj: False, "False: there are no storages."),
    "can_cast": (lambda from_, to: from_.rank <= to.rank,
                 "Whether an operation may write a result of one type to a tensor of the other."),
    # threads, algorithms, warnings, precision
    "get_num_threads": (lambda: int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1),
                        "The number of threads that NumPy's libraries may use."),
    "set_num_threads": (lambda n: None, "Accepted: OMP_NUM_THREADS, set before the program starts, "
                                        "is what counts."),
    "get_num_interop_threads": (lambda: 1, "1: operations run one after the other."),
    "set_num_interop_threads": (lambda n: None, "Accepted: operations run one after the other."),
    "use_deterministic_algorithms": (lambda mode, *, warn_only=False: None,
                                     "Accepted: all algorithms are deterministic."),
    "are_deterministic_algorithms_enabled": (lambda: True, "True: all algorithms are."),
    "get_deterministic_debug_mode": (lambda: 0, "0: all algorithms are deterministic."),
    "set_deterministic_debug_mode": (lambda debug_mode: None,
                                     "Accepted: all algorithms are deterministic."),
    "is_warn_always_enabled": (lambda: True, "True: the ``warnings`` module decides."),
    "set_warn_always": (lambda b: None, "Accepted: the ``warnings`` module decides."),
    "set_flush_denormal": (lambda mode: False, "False: denormal numbers are kept."),
    "get_float32_matmul_precision": (lambda: _precision[0], "What was set; products of float32 are "
                                                            "always computed in float32."),
    "set_float32_matmul_precision": (
        lambda precision: _precision.__setitem__(0, precision),
        "Accepted, and returned: products of float32 are always computed in float32."),
    "is_autocast_enabled": (lambda device_type=None: False,
                            "False: operations compute in the precision of their operands."),
    "clear_autocast_cache": (lambda: None, "Accepted: there is nothing to forget."),
    # devices
    "get_device": (lambda t=None: -1, "-1: the CPU has no number."),
    "get_default_device": (lambda: Tensor.device, "The CPU."),
    "set_default_device": (
        lambda device=None: None if device is None else require_cpu("set_default_device", device),
        "Accepted for the CPU, which is where tensors are."),
    # values that tracing would know by name
    "sym_not": (lambda a: not a, "not a."),
    "sym_ite": (lambda b, t, f: t if b else f, "t if b else f."),
    "sym_sum": (lambda args: sum(args), "The sum of numbers."),
}


def cond(pred: Any, true_fn: Callable, false_fn: Callable, operands: Any = ()) -> Any:
    """``true_fn(*operands)`` where ``pred`` holds, else ``false_fn(*operands)``."""
    return (true_fn if pred else false_fn)(*operands)


def while_loop(cond_fn: Callable, body_fn: Callable, operands: Any) -> Any:
    """``body_fn`` of the operands, then of what it returned, while ``cond_fn`` of them holds."""
    operands = tuple(operands)
    while cond_fn(*operands):
        operands = tuple(body_fn(*operands))
    return operands


def typename(obj: Any) -> str:
    """The name of the type of ``obj``, as ``Tensor.type`` has it for tensors."""
    return str(obj.type()) if isinstance(obj, Tensor) else nodes.typename(obj)


def compile(model: Any = None, **options: Any) -> Any:
    """``model`` itself, or a decorator that changes nothing."""
    return (lambda f: f) if model is None else model


def set_printoptions(precision: int | None = None, threshold: float | None = None,
                     edgeitems: int | None = None, linewidth: int | None = None,
                     profile: str | None = None, sci_mode: bool | None = None) -> None:
    """How tensors print: digits after the point, entries from which they are shortened, entries
    shown at an edge, width of a line; ``profile``: "default", "short" or "full"."""
    printing.OPTIONS.set(precision, threshold, edgeitems, linewidth, profile, sci_mode)


FUNCTIONS: dict[str, Callable] = {
    f.__name__: f for f in (compile, cond, set_printoptions, typename, while_loop)
}
for _name, (_f, _doc) in _ROWS.items():
    FUNCTIONS[_name] = nodes.named(_f, _name, _doc)
FUNCTIONS.update(sym_int=int, sym_float=float, sym_max=max, sym_min=min, sym_sqrt=math.sqrt)
