"""Names of ``torch`` that ask or tell it about itself: threads, printing, kinds of tensors."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any, TypeVar

from functrans.torch._functions.shapes import require_cpu
from functrans.torch._tensors import dtypes, printing
from functrans.torch._tensors.tensor import Tensor

_F = TypeVar("_F")


def is_floating_point(input: Tensor) -> bool:
    """Whether a tensor is of a floating-point type."""
    return input.is_floating_point()


def is_complex(input: Tensor) -> bool:
    """Whether a tensor is of a complex type."""
    return input.is_complex()


def is_nonzero(input: Tensor) -> bool:
    """Whether the one entry of a tensor is not zero."""
    return bool(input)


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape."""
    return input.is_same_size(other)


def is_inference(input: Tensor) -> bool:
    """Whether a tensor was made in ``inference_mode``."""
    return input.is_inference()


def is_storage(obj: object) -> bool:
    """False: there are no storages."""
    return False


def get_num_threads() -> int:
    """The number of threads that NumPy's libraries may use."""
    return int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)


def set_num_threads(n: int) -> None:
    """Accepted: OMP_NUM_THREADS, set before the program starts, is what counts."""


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Accepted: all algorithms are deterministic."""


def are_deterministic_algorithms_enabled() -> bool:
    """True: all algorithms are."""
    return True


def set_flush_denormal(mode: bool) -> bool:
    """False: denormal numbers are kept."""
    return False


_precision = ["highest"]


def set_float32_matmul_precision(precision: str) -> None:
    """Accepted, and returned: products of float32 are always computed in float32."""
    _precision[0] = precision


def get_float32_matmul_precision() -> str:
    """What was set; products of float32 are always computed in float32."""
    return _precision[0]


def set_default_device(device: Any = None) -> None:
    """Accepted for the CPU, which is where tensors are."""
    if device is not None:
        require_cpu("set_default_device", device)


def get_device(t: Any = None) -> int:
    """-1: the CPU has no number."""
    return -1


def get_num_interop_threads() -> int:
    """1: operations run one after the other."""
    return 1


def set_num_interop_threads(n: int) -> None:
    """Accepted: operations run one after the other."""


def is_warn_always_enabled() -> bool:
    """True: the ``warnings`` module decides."""
    return True


def set_warn_always(b: bool) -> None:
    """Accepted: the ``warnings`` module decides."""


def get_deterministic_debug_mode() -> int:
    """0: all algorithms are deterministic."""
    return 0


def set_deterministic_debug_mode(debug_mode: Any) -> None:
    """Accepted: all algorithms are deterministic."""


def is_autocast_enabled(device_type: Any = None) -> bool:
    """False: operations compute in the precision of their operands."""
    return False


def clear_autocast_cache() -> None:
    """Accepted: there is nothing to forget."""


def cond(pred: Any, true_fn: Callable, false_fn: Callable, operands: Any = ()) -> Any:
    """``true_fn(*operands)`` where ``pred`` holds, else ``false_fn(*operands)``."""
    return (true_fn if pred else false_fn)(*operands)


def while_loop(cond_fn: Callable, body_fn: Callable, operands: Any) -> Any:
    """``body_fn`` of the operands, then of what it returned, while ``cond_fn`` of them holds."""
    operands = tuple(operands)
    while cond_fn(*operands):
        operands = tuple(body_fn(*operands))
    return operands


def sym_not(a: Any) -> bool:
    """not a."""
    return not a


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """t if b else f."""
    return t if b else f


def sym_sum(args: Any) -> Any:
    """The sum of numbers."""
    return sum(args)


def get_default_device() -> Any:
    """The CPU."""
    return Tensor.device


def typename(obj: Any) -> str:
    """The name of the type of ``obj``, as ``Tensor.type`` has it for tensors."""
    if isinstance(obj, Tensor):
        return str(obj.type())
    kind = obj if isinstance(obj, type) else type(obj)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def compile(model: Any = None, **options: Any) -> Any:
    """``model`` itself, or a decorator that changes nothing."""
    return (lambda f: f) if model is None else model


def can_cast(from_: dtypes.dtype, to: dtypes.dtype) -> bool:
    """Whether an operation may write a result of the first type to a tensor of the second."""
    return from_.rank <= to.rank


def set_printoptions(precision: int | None = None, threshold: float | None = None,
                     edgeitems: int | None = None, linewidth: int | None = None,
                     profile: str | None = None, sci_mode: bool | None = None) -> None:
    """How tensors print: digits after the point, entries from which they are shortened, entries
    shown at an edge, width of a line; ``profile``: "default", "short" or "full"."""
    printing.OPTIONS.set(precision, threshold, edgeitems, linewidth, profile, sci_mode)


FUNCTIONS: dict[str, Callable] = {
    f.__name__: f for f in (
        clear_autocast_cache, get_deterministic_debug_mode, get_device, get_num_interop_threads,
        is_autocast_enabled, is_warn_always_enabled, set_default_device,
        set_deterministic_debug_mode, set_num_interop_threads, set_warn_always,
        cond, sym_ite, sym_not, sym_sum, while_loop,
        are_deterministic_algorithms_enabled, can_cast, compile, get_default_device,
        get_float32_matmul_precision, get_num_threads, is_complex, is_floating_point, is_inference,
        is_nonzero, is_same_size, is_storage, set_float32_matmul_precision,
        set_flush_denormal, set_num_threads, set_printoptions, typename,
        use_deterministic_algorithms,
    )
}
FUNCTIONS.update(sym_int=int, sym_float=float, sym_max=max, sym_min=min, sym_sqrt=math.sqrt)
