"""Native code on several threads: ctypes lets go of the interpreter lock while it runs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from functrans._compile.schedule.kernels import Step, Tiles
from functrans._kernels.blocks import cores, share


def is_shared(step: Step) -> bool:
    """Whether threads share a step."""
    return isinstance(step, Tiles) and step.chunks > 1


def on_threads(function: Any, chunks: int) -> Callable[[list], None]:
    """A native function of a list and a range of chunks, as one of the list: it runs all."""
    kind = ctypes.CFUNCTYPE(None, ctypes.py_object, ctypes.c_int64, ctypes.c_int64)
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address, function
    native = kind(address)

    def run(slots: list) -> None:
        threads = min(cores(), chunks)
        if threads == 1:
            native(slots, 0, chunks)
        else:
            share(lambda chunk: native(slots, chunk, chunk + 1), range(chunks), threads)

    return run
