"""A profile as text, in columns as wide as their contents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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
