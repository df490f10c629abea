"""``torch.cuda``: it says that there is no device. What would need one raises.

>>> from functrans import torch
>>> torch.device("cuda" if torch.cuda.is_available() else "cpu")
device(type='cpu')
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from functrans.torch._graph.nodes import named
from functrans.torch.cuda import amp

_NONE = "there is no CUDA device here; functrans.torch computes on the CPU only"


def is_available() -> bool:
    """False: there is no such device."""
    return False


is_initialized = is_bf16_supported = is_available


def device_count() -> int:
    """0: there is no such device."""
    return 0


def _nothing(name: str) -> Callable[..., None]:
    def f(*args: Any, **kwargs: Any) -> None:
        pass

    return named(f, name, "Does nothing: there is no device that it would be done to.")


def _refuse(name: str) -> Callable[..., NoReturn]:
    def f(*args: Any, **kwargs: Any) -> NoReturn:
        raise AssertionError(f"Torch not compiled with CUDA enabled: cuda.{name}: {_NONE}")

    return named(f, name, "Raises: there is no device.")


manual_seed, manual_seed_all = _nothing("manual_seed"), _nothing("manual_seed_all")
empty_cache, init = _nothing("empty_cache"), _nothing("init")
current_device, set_device = _refuse("current_device"), _refuse("set_device")
synchronize, get_device_name = _refuse("synchronize"), _refuse("get_device_name")
memory_allocated, Event = _refuse("memory_allocated"), _refuse("Event")
Stream, current_stream = _refuse("Stream"), _refuse("current_stream")

__all__ = [
    "Event", "Stream", "amp", "current_device", "current_stream", "device_count", "empty_cache",
    "get_device_name", "init", "is_available", "is_bf16_supported", "is_initialized",
    "manual_seed", "manual_seed_all", "memory_allocated", "set_device", "synchronize",
]
