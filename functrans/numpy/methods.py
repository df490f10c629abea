"""The methods of ndarrays that have no counterpart among NumPy's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from functrans._core.bind import AnyArray, Tracer
from functrans._ops import elementwise as ops
from functrans.errors import (
    ArgumentError,
    ConcretizationError,
    MemoryAttributeError,
    UnsupportedError,
    lost,
    user_line,
)


def contains(self: Tracer, value: Any) -> bool:
    """Whether some entry equals ``value``."""
    return bool(np.any(ops.equal(self, value)))


def view(self: Any, dtype: Any = None, type: Any = None) -> AnyArray:
    """The same numbers; complex ones also as pairs of real ones."""
    have, want = self.dtype, self.dtype if dtype is None else np.dtype(dtype)
    if want == have:
        return self
    if have.kind == "c" and want == self.real.dtype:
        parts = np.stack([self.real, self.imag], axis=-1)
        return parts.reshape((*self.shape[:-1], -1)) if self.ndim else parts
    raise UnsupportedError(
        f"{user_line()}: x.view({want}) would read the memory of {self!r} as another type, which "
        "has no derivative; use x.astype, x.real and x.imag."
    )


def reduce_ex(self: Tracer, protocol: Any) -> NoReturn:
    """Refuse to be pickled: what came back would be of a transform of its own."""
    raise ArgumentError(
        f"{lost(self, 'be pickled or sent to another process')}. Return it, or send "
        "ft.stop_gradient(x)."
    )


def _of_memory(name: str) -> Callable:
    def method(self: Tracer, *args: Any, **kwargs: Any) -> NoReturn:
        raise ConcretizationError(
            f"{user_line()}: x.{name}() needs the memory of an ndarray, which {self!r} does not "
            f"have; use ft.stop_gradient(x).{name}() for that of its value."
        )

    return method


def _attribute_of_memory(name: str) -> property:
    def get(self: Tracer) -> NoReturn:
        raise MemoryAttributeError(
            f"{user_line()}: x.{name} tells of the memory of an ndarray, which {self!r} does not "
            f"have; use ft.stop_gradient(x).{name} for that of its value."
        )

    return property(get)


def _numba_type(self: Tracer) -> Any:
    """What numba takes a traced argument of a compiled function for."""
    from functrans.numba.traced import TRACED  # lazy: only numba asks, so that it is there

    return TRACED


METHODS = {
    "_numba_type_": property(_numba_type),
    "__contains__": contains,
    "__divmod__": lambda self, other: np.divmod(self, other),
    "__rdivmod__": lambda self, other: np.divmod(other, self),
    "__reduce_ex__": reduce_ex,
    "view": view,
    **{
        name: _of_memory(name)
        for name in ("byteswap", "dump", "dumps", "getfield", "setflags", "tobytes", "tofile")
    },
    **{name: _attribute_of_memory(name) for name in ("base", "ctypes", "data", "flags", "strides")},
}
