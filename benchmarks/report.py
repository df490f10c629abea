"""Tables of results, as Markdown and as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Table:
    """Rows of one comparison. ``notes`` stand below it."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = field(default_factory=tuple)

    def markdown(self) -> str:
        lines = [f"## {self.title}", ""]
        lines.append("| " + " | ".join(self.columns) + " |")
        lines.append("| " + " | ".join(["---"] + ["---:"] * (len(self.columns) - 1)) + " |")
        lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in self.rows]
        for note in self.notes:
            lines += ["", note]
        return "\n".join(lines) + "\n"


def _cell(x: Any) -> str:
    if x is None:
        return ""
    return f"{x:.3g}" if isinstance(x, float) else str(x)


def seconds(t: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if t * factor >= 1:
            return f"{t * factor:.3g} {unit}"
    return f"{t * 1e9:.3g} ns"


def verdict(ratio: float | None, most: float | None) -> str:
    """Whether a ratio keeps to its target."""
    if most is None or ratio is None:
        return ""
    return f"<= {most:g}: {'met' if ratio <= most else 'MISSED'}"


def machine() -> dict[str, Any]:
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "processor": _processor(),
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown processor"


def page(tables: Sequence[Table], header: Sequence[str]) -> str:
    """The Markdown page."""
    top = [
        "# Benchmarks",
        "",
        "Written by `python -m benchmarks`. All contenders of a case run interleaved in one "
        "process, results are checked equal first, times are medians; a ratio is functrans' time "
        "divided by the contender's, so below 1 functrans is faster.",
        "",
        *[f"- {line}" for line in header],
        "",
    ]
    return "\n".join(top) + "\n" + "\n".join(t.markdown() for t in tables)


def to_json(tables: Sequence[Table], header: Sequence[str]) -> str:
    record = {
        "machine": machine(),
        "settings": list(header),
        "tables": [asdict(t) for t in tables],
    }
    return json.dumps(record, indent=1)
