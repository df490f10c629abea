"""``torch.autograd.profiler``: where the time of tensors goes, forward and backward.

The events are those of ``functrans.profile``; this one also records operations on tensors.
"""

from __future__ import annotations

import contextlib
from typing import Any, NoReturn

from functrans import profile as functional
from functrans._profile.events import Recorder
from functrans.profile import EventList, FunctionEvent, FunctionEventAvg
from functrans.torch._graph.modes import state
from functrans.torch._graph.watching import watched

NO_CUDA = "there is no CUDA device, and no NVIDIA profiler that could record one"


class profile(functional.profile):
    """A context that records the operations of its thread, and their backward.

    The arguments are those of ``functrans.profile.profile``. An operation that made a node and the
    pass through that node in the backward have the same ``sequence_nr``.

    >>> from functrans import torch
    >>> x = torch.ones(1, requires_grad=True)
    >>> with profile() as prof:
    ...     y = x.exp()
    ...     y.backward()
    >>> [e.name for e in prof.function_events]
    ['aten::exp', 'torch::autograd::GraphRoot', 'ExpBackward0', 'torch::autograd::AccumulateGrad']
    """

    def _start(self, recorder: Any, running: contextlib.ExitStack) -> None:
        super()._start(recorder, running)
        running.enter_context(watched(recorder))

    def _finish(self) -> EventList:
        """Its events: none if it was not enabled."""
        return super()._finish() if self.enabled else EventList()


def is_running() -> bool:
    """Whether a profile records this thread."""
    return state.watch is not None and any(isinstance(o, Recorder) for o in state.watch.observers)


class record_function(contextlib.ContextDecorator):
    """Show the block, or each call of the decorated function, as an event of running profiles."""

    def __init__(self, name: str):
        self.name = name
        self._inside: list[Any] = []

    def __enter__(self) -> record_function:
        scope = state.watch.scope(self.name) if state.watch else contextlib.nullcontext()
        scope.__enter__()
        self._inside.append(scope)
        return self

    def __exit__(self, *failure: Any) -> None:
        self._inside.pop().__exit__(*failure)


def format_time(time_us: float) -> str:
    """A time in microseconds, in the unit that fits.

    >>> format_time(1500.0)
    '1.500ms'
    """
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if time_us >= size:
            return f"{time_us / size:.3f}{unit}"
    return f"{time_us:.3f}us"


class emit_nvtx:
    """Annotates for NVIDIA's profiler, of which there is none: entering it raises.

    With ``enabled=False`` it does nothing. ``profile`` correlates the forward and the backward by
    ``sequence_nr``, and ``export_chrome_trace`` draws that.
    """

    def __init__(self, enabled: bool = True, record_shapes: bool = False):
        self.enabled, self.record_shapes = enabled, record_shapes

    def __enter__(self) -> emit_nvtx:
        if self.enabled:
            raise RuntimeError(f"emit_nvtx: {NO_CUDA}; use profile() and export_chrome_trace()")
        return self

    def __exit__(self, *failure: Any) -> None:
        pass


def load_nvprof(path: Any) -> NoReturn:
    """Reads what NVIDIA's profiler wrote; it raises, since there is none."""
    raise RuntimeError(f"load_nvprof: {NO_CUDA}; use profile() and export_chrome_trace()")


__all__ = [
    "EventList", "FunctionEvent", "FunctionEventAvg", "emit_nvtx", "format_time", "is_running",
    "load_nvprof", "profile", "record_function",
]
