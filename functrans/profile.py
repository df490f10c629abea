"""Where the time goes: the ops of transformed functions, and their backward steps.

>>> import functrans as ft, numpy as np
>>> from functrans.profile import profile
>>> with profile() as prof:
...     g = ft.grad(lambda x: np.sum(np.sin(x) ** 2))(np.ones(3))
>>> for e in prof.function_events:
...     print("  " * (e.cpu_parent is not None), e.name)
 grad(<lambda>)
   sin
   square
   sum
   backward of grad(<lambda>)
   sum backward
   square backward
   sin backward

A profile records the transforms that start in its ``with`` block, in the same thread or task. It
leaves out ops on plain arrays outside of a transform, which are NumPy's own; a compiled function is
one step of its caller. A program without such a block runs as if this module did not exist.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from functrans._core.bind import watching
from functrans._profile.events import EventList, FunctionEvent, FunctionEventAvg, Recorder, nest
from functrans._transforms.watching.watched import observed
from functrans.errors import ArgumentError


class profile:
    """A context that records what runs in it, and afterwards holds a summary.

    ``enabled=False`` records nothing. ``record_shapes``, ``with_flops`` (of products of matrices
    and convolutions), ``profile_memory`` (bytes of new results) and ``with_stack`` (the user's
    lines) each record more, which takes time too. ``use_cuda`` warns that there is no such device;
    ``use_kineto`` makes no difference.

    >>> import functrans as ft, numpy as np
    >>> with profile(record_shapes=True) as prof:
    ...     g = ft.grad(np.sum)(np.ones(3))
    >>> prof.key_averages(group_by_input_shape=True)[1]
    <FunctionEventAvg key=sum count=1 ... input_shapes=[[3]]>
    """

    def __init__(self, enabled: bool = True, use_cuda: bool = False, record_shapes: bool = False,
                 with_flops: bool = False, profile_memory: bool = False, with_stack: bool = False,
                 use_kineto: bool = False, use_cpu: bool = True):
        if use_cuda:
            warnings.warn("profile: there is no CUDA device; only CPU times are recorded",
                          UserWarning, stacklevel=2)
        if not use_cpu:
            raise ArgumentError("profile: use_cpu=False leaves nothing to record; there is no "
                                "other device")
        self.enabled = enabled
        self.options = {"shapes": record_shapes, "flops": with_flops, "memory": profile_memory,
                        "stack": with_stack}
        self._events: EventList | None = None
        self._finished_running = False
        self._thread = 0
        self._running: contextlib.ExitStack | None = None
        self._recorder: Recorder | None = None

    def __enter__(self) -> profile:
        if not self.enabled:
            return self
        if self._recorder is not None:
            raise RuntimeError(
                "a profile records once and cannot be entered again; make another profile()"
            )
        self._recorder = Recorder(**self.options)
        self._thread = threading.get_ident()
        self._running = contextlib.ExitStack()
        self._start(self._recorder, self._running)
        return self

    def _start(self, recorder: Recorder, running: contextlib.ExitStack) -> None:
        """Record until ``running`` is closed."""
        running.enter_context(observed(recorder))

    def __exit__(self, *failure: Any) -> None:
        if not self.enabled:
            return
        assert self._running is not None and self._recorder is not None
        if threading.get_ident() != self._thread:
            raise RuntimeError("a profile must end in the thread in which it was entered: it "
                               "records that one, and cannot stop recording it from another")
        self._running.close()
        self._finished_running = True

    @property
    def function_events(self) -> EventList | None:
        """The events in the order of their starts; None until the block has ended."""
        recorder = self._recorder
        if self._events is None and self._finished_running and recorder is not None:
            # built when first asked for, outside of the time that is measured
            self._events = nest(recorder.records, recorder.origin, self.options)
        return self._events

    def _finish(self) -> EventList:
        events = self.function_events
        if events is None:
            raise RuntimeError(
                "this profile has no events: it has not finished running, or it was not enabled"
            )
        return events

    def __repr__(self) -> str:
        if self.function_events is None:
            return f"<unfinished profile, enabled={self.enabled}>"
        return repr(self.function_events)

    def __str__(self) -> str:
        return repr(self) if self.function_events is None else str(self.function_events)

    def table(self, sort_by: str | None = None, row_limit: int = 100,
              max_src_column_width: int = 75, header: str | None = None,
              top_level_events_only: bool = False) -> str:
        """See ``EventList.table``."""
        return self._finish().table(sort_by, row_limit, max_src_column_width, header,
                                      top_level_events_only)

    def key_averages(self, group_by_input_shape: bool = False,
                     group_by_stack_n: int = 0) -> EventList:
        """See ``EventList.key_averages``."""
        if group_by_input_shape and not self.options["shapes"]:
            raise ArgumentError("key_averages: shapes were not recorded; pass record_shapes=True")
        if group_by_stack_n and not self.options["stack"]:
            raise ArgumentError("key_averages: stacks were not recorded; pass with_stack=True")
        return self._finish().key_averages(group_by_input_shape, group_by_stack_n)

    def total_average(self) -> FunctionEventAvg:
        """All events as one."""
        return self._finish().total_average()

    def export_chrome_trace(self, path: Any) -> None:
        """See ``EventList.export_chrome_trace``."""
        self._finish().export_chrome_trace(path)

    def export_stacks(self, path: Any, metric: str = "self_cpu_time_total") -> None:
        """See ``EventList.export_stacks``."""
        self._finish().export_stacks(path, metric)

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all events, nested ones counted once, in microseconds."""
        return self._finish().self_cpu_time_total


@contextlib.contextmanager
def record_function(name: str) -> Iterator[None]:
    """Record the block as an event ``name`` in the profiles that are running.

    >>> with profile() as prof, record_function("setup"):
    ...     pass
    >>> [e.name for e in prof.function_events]
    ['setup']
    """
    watch = watching.get()
    if watch is None:
        yield
        return
    with watch.scope(name):
        yield


__all__ = [
    "EventList", "FunctionEvent", "FunctionEventAvg", "profile", "record_function",
]
