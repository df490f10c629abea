"""Events of a profile, nested by time, and their averages."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from functrans._profile.tables import table_of
from functrans.errors import ArgumentError


class Record(NamedTuple):
    """What the recorder keeps of a call: times in nanoseconds."""

    name: str
    start: int
    end: int
    thread: int
    kind: str  # forward, backward, or scope: a transform, a backward pass, a named block
    sequence: int | None = None
    shapes: Any = None
    memory: int = 0
    flops: int = 0
    stack: Any = ()


class Interval(NamedTuple):
    """Microseconds since the profile began."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        return self.end - self.start


class _Costs:
    """The costs that events and averages of events share."""

    cuda_time = cuda_time_total = self_cuda_time_total = 0.0
    cuda_memory_usage = self_cuda_memory_usage = 0

    count: int
    cpu_time_total: float

    @property
    def cpu_time(self) -> float:
        """Mean time of a call, in microseconds."""
        return self.cpu_time_total / self.count if self.count else 0.0


@dataclass(eq=False)
class FunctionEvent(_Costs):
    """One call: times in microseconds, memory in bytes."""

    id: int
    name: str
    thread: int
    time_range: Interval
    kind: str
    sequence_nr: int
    input_shapes: Any
    flops: int
    stack: list
    own_memory: int
    count: int = 1
    cpu_children: list[FunctionEvent] = field(default_factory=list)
    cpu_parent: FunctionEvent | None = None

    is_async = False

    @property
    def key(self) -> str:
        return self.name

    @property
    def cpu_time_total(self) -> float:  # type: ignore[override]  # computed here
        return self.time_range.elapsed_us()

    @property
    def self_cpu_time_total(self) -> float:
        return max(0.0, self.cpu_time_total - sum([c.cpu_time_total for c in self.cpu_children]))

    @property
    def cpu_memory_usage(self) -> int:
        return max(self.own_memory, sum([c.cpu_memory_usage for c in self.cpu_children]))

    @property
    def self_cpu_memory_usage(self) -> int:
        return self.cpu_memory_usage - sum([c.cpu_memory_usage for c in self.cpu_children])

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_total:.3f}us "
            f"thread={self.thread} input_shapes={self.input_shapes} seq={self.sequence_nr}>"
        )


class FunctionEventAvg(_Costs):
    """All events of one name (and shapes, and place) together."""

    def __init__(self, key: str, kind: str = "forward", shapes: Any = None, stack: Any = ()):
        self.key, self.kind, self.input_shapes, self.stack = key, kind, shapes, list(stack)
        self.count = 0
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.cpu_memory_usage = self.self_cpu_memory_usage = self.flops = 0

    @property
    def name(self) -> str:
        return self.key

    def add(self, other: Any) -> FunctionEventAvg:
        """Include another event or average."""
        self.count += other.count
        for name in ("cpu_time_total", "self_cpu_time_total", "cpu_memory_usage",
                     "self_cpu_memory_usage", "flops"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    __iadd__ = add

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} count={self.count} "
            f"self_cpu_time={self.self_cpu_time_total:.3f}us cpu_time={self.cpu_time:.3f}us "
            f"input_shapes={self.input_shapes}>"
        )


SORT_KEYS = (
    "cpu_time", "cuda_time", "cpu_time_total", "cuda_time_total", "cpu_memory_usage",
    "cuda_memory_usage", "self_cpu_memory_usage", "self_cuda_memory_usage", "count",
    "self_cpu_time_total", "self_cuda_time_total",
)


class EventList(list):
    """Events, or averages of events, with the ways to show them."""

    def __init__(self, events: Iterable = (), *, memory: bool = False, shapes: bool = False,
                 flops: bool = False, stack: bool = False):
        super().__init__(events)
        self.options = {"memory": memory, "shapes": shapes, "flops": flops, "stack": stack}

    def __str__(self) -> str:
        return self.table()

    def table(self, sort_by: str | None = None, row_limit: int = 100,
              max_src_column_width: int = 75, header: str | None = None,
              top_level_events_only: bool = False) -> str:
        """The events as text, in descending order of ``sort_by``, or else as they started."""
        if sort_by is not None and sort_by not in SORT_KEYS:
            raise ArgumentError(f"table: sort_by is one of {', '.join(SORT_KEYS)}, not {sort_by!r}")
        events: list[Any] = list(self)
        if top_level_events_only:
            events = [e for e in events if getattr(e, "cpu_parent", None) is None]
        if sort_by is not None:
            events.sort(key=lambda e: getattr(e, sort_by), reverse=True)
        return table_of(events, self.self_cpu_time_total, row_limit, max_src_column_width, header,
                        self.options)

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all events, nested ones counted once, in microseconds."""
        return sum([e.self_cpu_time_total for e in self])

    def key_averages(self, group_by_input_shape: bool = False,
                     group_by_stack_n: int = 0) -> EventList:
        """One entry for each name, or for each name and shapes if ``group_by_input_shape``.

        With ``group_by_stack_n`` also for each of the innermost so many lines of the user's code.
        """
        groups: dict[tuple, FunctionEventAvg] = {}
        for e in self:
            shapes = e.input_shapes if group_by_input_shape else None
            stack = e.stack[:group_by_stack_n]
            key = e.key, str(shapes), tuple(stack)
            if key not in groups:
                groups[key] = FunctionEventAvg(e.key, e.kind, shapes, stack)
            groups[key].add(e)
        options = {**self.options, "shapes": group_by_input_shape, "stack": group_by_stack_n > 0}
        return EventList(groups.values(), **options)

    def total_average(self) -> FunctionEventAvg:
        """All events as one."""
        total = FunctionEventAvg("Total")
        for e in self:
            total.add(e)
        return total

    def export_chrome_trace(self, path: Any) -> None:
        """Write the events to a file that chrome://tracing and ui.perfetto.dev open."""
        text = json.dumps({"traceEvents": chrome_events(self), "displayTimeUnit": "ms"}, indent=1)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

    def export_stacks(self, path: Any, metric: str = "self_cpu_time_total") -> None:
        """Write one line for each call stack, ``outer;inner microseconds``, as flame graphs need.

        The profile must have been made with ``with_stack=True``.
        """
        if metric not in ("self_cpu_time_total", "self_cuda_time_total"):
            raise ArgumentError(f"export_stacks: metric is self_cpu_time_total, not {metric!r}")
        if not self.options["stack"]:
            raise ArgumentError("export_stacks: the profile has no stacks; pass with_stack=True")
        totals: dict[str, int] = {}
        for e in self:
            line = ";".join([s.translate(_SEPARATORS) for s in [*reversed(e.stack), e.name]])
            totals[line] = totals.get(line, 0) + round(getattr(e, metric))
        with open(path, "w", encoding="utf-8") as f:
            f.writelines([f"{line} {n}\n" for line, n in totals.items() if n > 0])


_SEPARATORS = str.maketrans(" ;\t\n", "____")


def nested(fields: list[tuple], origin: int, options: dict) -> EventList:
    """Events in the order of their starts, each with its parent and children."""
    records = [Record(*r) for r in fields]
    # of two with the same times, the one recorded later is the outer one
    order = sorted(range(len(records)),
                   key=lambda i: (records[i].start, -records[i].end, -i))
    open_by_thread: dict[int, list[FunctionEvent]] = {}
    events = EventList(**options)
    for n, i in enumerate(order):
        r = records[i]
        times = Interval((r.start - origin) / 1000, (r.end - origin) / 1000)
        e = FunctionEvent(n, r.name, r.thread, times, r.kind,
                          -1 if r.sequence is None else r.sequence, r.shapes or [], r.flops,
                          list(r.stack), r.memory)
        around = open_by_thread.setdefault(r.thread, [])
        while around and around[-1].time_range.end < times.end:
            around.pop()
        if around:
            e.cpu_parent = around[-1]
            around[-1].cpu_children.append(e)
        around.append(e)
        events.append(e)
    return events


def chrome_events(events: Iterable[Any]) -> list[dict]:
    """The events in the Trace Event Format, with arrows from forward to backward ones."""
    events = list(events)
    process, out = os.getpid(), []
    threads = {t: k for k, t in enumerate(dict.fromkeys(e.thread for e in events))}
    out.append({"name": "process_name", "ph": "M", "pid": process, "tid": 0, "ts": 0,
                "args": {"name": "functrans"}})
    forward = {e.sequence_nr: e for e in events if e.kind == "forward" and e.sequence_nr >= 0}
    flows = itertools.count(1)
    for e in events:
        args: dict[str, Any] = {}
        if e.sequence_nr >= 0:
            args["Sequence number"] = e.sequence_nr
        if e.input_shapes:
            args["Input Dims"] = e.input_shapes
        if e.stack:
            args["Call stack"] = ";".join(e.stack)
        if e.flops:
            args["Flops"] = e.flops
        common = {"pid": process, "tid": threads[e.thread]}
        out.append({"name": e.name, "cat": e.kind, "ph": "X", "ts": e.time_range.start,
                    "dur": e.time_range.elapsed_us(), **common, "args": args})
        source = forward.get(e.sequence_nr) if e.kind == "backward" else None
        if source is not None:
            flow = {"name": "forward to backward", "cat": "fwdbwd", "id": next(flows)}
            out.append({**flow, "ph": "s", "ts": source.time_range.start, "pid": process,
                        "tid": threads[source.thread]})
            out.append({**flow, "ph": "f", "bp": "e", "ts": e.time_range.start, **common})
    return out
