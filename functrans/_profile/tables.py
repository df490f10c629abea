"""A profile as text, in columns as wide as their contents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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


def shown_flops(n: float) -> str:
    return f"{n / 1e6:.3f}" if n else "--"


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def table_of(events: Sequence[Any], total: float, row_limit: int, source_width: int,
             header: str | None, options: dict) -> str:
    """The rows of ``events`` below column titles, then the total time."""
    if not events:
        return ""
    titles = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"]
    if options["memory"]:
        titles += ["CPU Mem", "Self CPU Mem"]
    titles.append("# of Calls")
    if options["shapes"]:
        titles.append("Input Shapes")
    if options["flops"]:
        titles.append("Total MFLOPs")
    if options["stack"]:
        titles.append("Source Location")
    rows = [_cells(e, total, source_width, options) for e in events[:row_limit]]
    widths = [max(len(cell) for cell in column) for column in zip(titles, *rows, strict=True)]
    last = len(titles) - 1
    # names and places are aligned left, numbers right
    texts = {0} | {titles.index(t) for t in ("Input Shapes", "Source Location") if t in titles}

    def line(cells: Sequence[str]) -> str:
        parts = [c.ljust(w) if k in texts else c.rjust(w)
                 for k, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return "  ".join(parts).rstrip() if last in texts else "  ".join(parts)

    rule = "  ".join(["-" * w for w in widths])
    lines = [] if header is None else ["=" * len(rule), header]
    lines += [rule, line(titles), rule, *[line(r) for r in rows], rule]
    if len(events) > row_limit:
        lines.append(f"({len(events) - row_limit} more)")
    lines.append(f"Self CPU time total: {shown_time(total)}")
    return "\n".join(lines)


def _cells(e: Any, total: float, source_width: int, options: dict) -> list[str]:
    def share(us: float) -> str:
        return f"{100 * us / total:.2f}%" if total else "--"

    cells = [
        _short(e.key, NAME_WIDTH), share(e.self_cpu_time_total),
        shown_time(e.self_cpu_time_total), share(e.cpu_time_total), shown_time(e.cpu_time_total),
        shown_time(e.cpu_time),
    ]
    if options["memory"]:
        cells += [shown_bytes(e.cpu_memory_usage), shown_bytes(e.self_cpu_memory_usage)]
    cells.append(str(e.count))
    if options["shapes"]:
        cells.append(_short(str(e.input_shapes), SHAPES_WIDTH))
    if options["flops"]:
        cells.append(shown_flops(e.flops))
    if options["stack"]:
        cells.append(_short(e.stack[0] if e.stack else "", source_width))
    return cells
