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


class ProfilerAction(enum.Enum):
    """What a profile does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0,
             skip_first_wait: int = 0) -> Callable[[int], ProfilerAction]:
    """What to do in each step: cycles of ``wait``, ``warmup`` and ``active`` steps.

    ``repeat``: how many cycles, 0 for no end; ``skip_first``: steps before the first cycle, which
    has no ``wait`` with ``skip_first_wait``.

    >>> [schedule(wait=1, warmup=0, active=2, repeat=1)(step).name for step in range(4)]
    ['NONE', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    if active < 1:
        raise ValueError(f"schedule: at least one step must be active, but active is {active}")

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        step += wait if skip_first_wait else 0
        cycle, place = divmod(step, wait + warmup + active)
        if (repeat and cycle >= repeat) or place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == wait + warmup + active - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


_RECORDING = ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE


class profile(profiler.profile):
    """A context that records the operations of its thread, forward and backward.

    ``schedule(step)`` says which steps are recorded, all without one; ``step()`` ends a step.
    ``on_trace_ready(prof)`` is called where a stretch of recorded steps ends.

    >>> from functrans import torch
    >>> with profile(activities=[ProfilerActivity.CPU]) as prof:
    ...     y = torch.ones(2).exp()
    >>> [e.key for e in prof.key_averages()]
    ['aten::exp']
    """

    def __init__(self, *, activities: Iterable[ProfilerActivity] | None = None,
                 schedule: Callable[[int], ProfilerAction] | None = None,
                 on_trace_ready: Callable | None = None, record_shapes: bool = False,
                 profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False,
                 with_modules: bool = False):
        super().__init__(record_shapes=record_shapes, profile_memory=profile_memory,
                         with_stack=with_stack, with_flops=with_flops)
        self.on_trace_ready, self.step_num = on_trace_ready, 0
        self.schedule = schedule

    @property
    def current_action(self) -> ProfilerAction:
        """What is done in this step."""
        if self.schedule is None:
            return ProfilerAction.RECORD
        return self.schedule(self.step_num)

    def step(self) -> None:
        """The end of a step of the program."""
        if self.schedule is None:
            self.step_num += 1
            return
        if self.current_action is ProfilerAction.RECORD_AND_SAVE:
            self._close()
        self.step_num += 1
        if self.current_action in _RECORDING:
            self._open()

    def _open(self) -> None:
        if self._running is None:
            self._recorder = self._events = None
            self._finished_running = False
            super().__enter__()

    def _close(self) -> None:
        if self._running is not None:
            super().__exit__(None, None, None)
            self._running = None
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)

    def start(self) -> None:
        """Begin, as entering the context does."""
        self.__enter__()

    def stop(self) -> None:
        """End, as leaving the context does."""
        self.__exit__(None, None, None)

    def __enter__(self) -> profile:
        if self.schedule is None:
            super().__enter__()
        elif self.current_action in _RECORDING:
            self._open()
        return self

    def __exit__(self, *failure: Any) -> None:
        if failure[:1] == (None,):
            self._close()
        elif self._running is not None:
            super().__exit__(*failure)


__all__ = ["ProfilerAction", "ProfilerActivity", "profile", "record_function", "schedule"]
