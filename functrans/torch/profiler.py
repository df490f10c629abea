"""``torch.profiler``: ``profile`` with today's arguments, on the profiler of ``torch.autograd``."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any

from functrans.torch.autograd import profiler
from functrans.torch.autograd.profiler import record_function


class ProfilerActivity(enum.Enum):
    """What can be recorded: there is only the CPU."""

    CPU = 0
    CUDA = 2


class profile(profiler.profile):
    """A context that records the operations of its thread, forward and backward.

    ``on_trace_ready(prof)`` is called at its end. There is no ``schedule``: all steps are recorded.

    >>> from functrans import torch
    >>> with profile(activities=[ProfilerActivity.CPU]) as prof:
    ...     y = torch.ones(2).exp()
    >>> [e.key for e in prof.key_averages()]
    ['aten::exp']
    """

    def __init__(self, *, activities: Iterable[ProfilerActivity] | None = None,
                 on_trace_ready: Callable | None = None, record_shapes: bool = False,
                 profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False,
                 with_modules: bool = False):
        super().__init__(record_shapes=record_shapes, profile_memory=profile_memory,
                         with_stack=with_stack, with_flops=with_flops)
        self.on_trace_ready, self.step_num = on_trace_ready, 0

    def step(self) -> None:
        """The end of a step of the program."""
        self.step_num += 1

    def start(self) -> None:
        """Begin, as entering the context does."""
        self.__enter__()

    def stop(self) -> None:
        """End, as leaving the context does."""
        self.__exit__(None, None, None)

    def __exit__(self, *failure: Any) -> None:
        super().__exit__(*failure)
        if self.on_trace_ready is not None and failure[:1] == (None,):
            self.on_trace_ready(self)


__all__ = ["ProfilerActivity", "profile", "record_function"]
