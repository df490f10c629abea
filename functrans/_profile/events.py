"""A profile: what is recorded while a program runs, events nested by time, averages as text."""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from time import perf_counter_ns
from typing import Any, NamedTuple

from functrans._core.primitive import Primitive
from functrans._ops.contractions import matmul
from functrans._transforms.watching.watched import Observer, Op, done_inside, shapes_of
from functrans.errors import ArgumentError, user_frames

# ---- A profile as text, in columns as wide as their contents

NAME_WIDTH, SHAPES_WIDTH = 55, 45


def shown_time(us: float) -> str:
    """Microseconds in the unit that suits them."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.3f}{unit}"
    return f"{us:.3f}us"


def shown_bytes(n: float) -> str:
    """Bytes in the unit that suits them."""
    for unit, size in (("Gb", 2**30), ("Mb", 2**20), ("Kb", 2**10)):
        if abs(n) >= size:
            return f"{n / size:.2f} {unit}"
    return f"{int(n)} b"


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


class Column(NamedTuple):
    """``cell(event, total, width)`` is its text, ``option`` what it must be asked for by."""

    title: str
    cell: Callable[[Any, float, int], str]
    option: str = ""
    text: bool = False  # aligned left, as numbers are not


def _share(us: float, total: float) -> str:
    return f"{100 * us / total:.2f}%" if total else "--"


COLUMNS = (
    Column("Name", lambda e, total, width: _short(e.key, NAME_WIDTH), text=True),
    Column("Self CPU %", lambda e, total, width: _share(e.self_cpu_time_total, total)),
    Column("Self CPU", lambda e, total, width: shown_time(e.self_cpu_time_total)),
    Column("CPU total %", lambda e, total, width: _share(e.cpu_time_total, total)),
    Column("CPU total", lambda e, total, width: shown_time(e.cpu_time_total)),
    Column("CPU time avg", lambda e, total, width: shown_time(e.cpu_time)),
    Column("CPU Mem", lambda e, total, width: shown_bytes(e.cpu_memory_usage), "memory"),
    Column("Self CPU Mem", lambda e, total, width: shown_bytes(e.self_cpu_memory_usage), "memory"),
    Column("# of Calls", lambda e, total, width: str(e.count)),
    Column("Input Shapes", lambda e, total, width: _short(str(e.input_shapes), SHAPES_WIDTH),
           "shapes", text=True),
    Column("Total MFLOPs", lambda e, total, width: f"{e.flops / 1e6:.3f}" if e.flops else "--",
           "flops"),
    Column("Source Location", lambda e, total, width: _short(e.stack[0] if e.stack else "", width),
           "stack", text=True),
)


def table_of(events: Sequence[Any], total: float, row_limit: int, source_width: int,
             header: str | None, options: dict) -> str:
    """The rows of ``events`` below column titles, then the total time."""
    if not events:
        return ""
    columns = [c for c in COLUMNS if not c.option or options[c.option]]
    titles = [c.title for c in columns]
    rows = [[c.cell(e, total, source_width) for c in columns] for e in events[:row_limit]]
    widths = [max(len(cell) for cell in column) for column in zip(titles, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        text = "  ".join([cell.ljust(w) if c.text else cell.rjust(w)
                          for cell, w, c in zip(cells, widths, columns, strict=True)])
        return text.rstrip() if columns[-1].text else text

    rule = "  ".join(["-" * w for w in widths])
    lines = [] if header is None else ["=" * len(rule), header]
    lines += [rule, line(titles), rule, *[line(r) for r in rows], rule]
    if len(events) > row_limit:
        lines.append(f"({len(events) - row_limit} more)")
    lines.append(f"Self CPU time total: {shown_time(total)}")
    return "\n".join(lines)


# ---- Events of a profile, nested by time, and their averages


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


def nest(fields: list[tuple], origin: int, options: dict) -> EventList:
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


# ---- What the profiler records while a program runs: as little as possible, in the order of ends


class Recorder(Observer):
    """Records the times of ops, of their backward steps, and of transforms."""

    def __init__(self, shapes: bool, flops: bool, memory: bool, stack: bool):
        self.shapes, self.flops, self.memory, self.stack = shapes, flops, memory, stack
        self.records: list[tuple] = []  # the fields of a ``Record`` each
        self.origin = perf_counter_ns()
        self._plain = not (shapes or flops or memory or stack)
        self.quick = self.records if self._plain else None

    def begin(self, op: Op) -> tuple:
        return op, len(self.records), perf_counter_ns()

    def end(self, token: tuple, out: Any) -> None:
        end = perf_counter_ns()
        op, before, start = token
        if not op.label or not done_inside(self.records, before, op.name):
            self.write(op.name, start, end, "forward", op.sequence, op.args, out, op.params,
                       op.prim if isinstance(op.prim, Primitive) else None)

    def back(self, op: Op, ct: Any) -> tuple:
        return op, perf_counter_ns()

    def passed(self, token: tuple, parts: Sequence) -> None:
        end = perf_counter_ns()
        op, start = token
        self.write(op.backward or f"{op.name} backward", start, end, "backward", op.sequence, (),
                   [c for _, c in parts], {})

    def enter(self, name: str) -> tuple:
        return name, perf_counter_ns()

    def leave(self, token: tuple) -> None:
        name, start = token
        self.write(name, start, perf_counter_ns(), "scope", None, (), (), {})

    def write(self, name: str, start: int, end: int, kind: str, sequence: int | None, args: Any,
              out: Any, params: dict, row: Primitive | None = None) -> None:
        """Record a call."""
        thread = threading.get_ident()
        if self._plain:
            self.records.append((name, start, end, thread, kind, sequence))
            return
        shapes = shapes_of(args) if args and (self.shapes or self.flops) else None
        self.records.append((
            name, start, end, thread, kind, sequence, shapes if self.shapes else None,
            memory_of(out) if self.memory else 0,
            flops_of(row, name, shapes, params) if self.flops and shapes else 0,
            stack() if self.stack else (),
        ))


def memory_of(out: Any) -> int:
    """The bytes of the new arrays among the results of a call; views have none."""
    if isinstance(out, tuple | list):
        return sum([memory_of(x) for x in out])
    out = getattr(out, "_array", out)
    while hasattr(out, "primal"):
        out = out.primal
    return 0 if getattr(out, "base", None) is not None else int(getattr(out, "nbytes", 0))


def stack() -> list[str]:
    """The user's lines that led here, the innermost first."""
    return [f"{frame.f_code.co_filename}({frame.f_lineno}): {frame.f_code.co_name}"
            for frame in user_frames()]


# Products of matrices that are recorded by their names: the operand at which the matrices begin.
_PRODUCTS = {"matmul": 0, "mm": 0, "bmm": 0, "mv": 0, "dot": 0, "inner": 0, "addmm": 1, "addmv": 1,
             "baddbmm": 1}


def flops_of(row: Primitive | None, name: str, shapes: Sequence, params: dict) -> int:
    """Multiplications and additions of a product of matrices or a convolution; else 0."""
    if row is not None:
        return row.facts.flops(shapes, params) if row.facts.flops else 0
    name = name.rpartition("::")[2]
    if name == "linear" and len(shapes) >= 2:
        return 2 * prod(shapes[0]) * shapes[1][0]
    product = matmul.facts.flops
    return product(shapes[_PRODUCTS[name] :], params) if product and name in _PRODUCTS else 0
