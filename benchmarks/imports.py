"""Import time over NumPy's, in fresh interpreters, interleaved."""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks.report import Table

MODULES = ("functrans", "autograd", "mygrad", "jax", "torch")
TARGET_MS = 60.0
CODE = """
import numpy
from time import perf_counter
start = perf_counter()
import {module}
print(perf_counter() - start)
"""


def _once(module: str) -> float | None:
    run = subprocess.run(
        [sys.executable, "-c", CODE.format(module=module)], capture_output=True, text=True
    )
    return float(run.stdout) if run.returncode == 0 else None


def table(scale: float) -> Table:
    modules = [m for m in MODULES if _once(m) is not None]  # and fills the bytecode caches
    times: dict[str, list[float]] = {m: [] for m in modules}
    for _ in range(max(3, int(11 * scale))):
        for m in modules:
            t = _once(m)
            assert t is not None, m
            times[m].append(t * 1e3)
    rows = []
    for m, t in times.items():
        middle = statistics.median(t)
        target = f"<= {TARGET_MS:.0f}: {'met' if middle <= TARGET_MS else 'MISSED'}"
        rows.append((m, round(middle, 1), round(min(t), 1), target if m == "functrans" else ""))
    return Table(
        "Import time after `import numpy`, milliseconds",
        ("module", "median", "minimum", "target"), rows, (f"{len(times['functrans'])} rounds.",),
    )
