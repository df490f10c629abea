"""Import time over NumPy's, in fresh interpreters, interleaved."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

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


def _once(module: str, bytecode: str) -> float | None:
    """Milliseconds; None where there is no such module."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    run = subprocess.run(
        [sys.executable, "-c", CODE.format(module=module)],
        env=env | {"PYTHONPYCACHEPREFIX": bytecode}, capture_output=True, text=True,
    )
    return float(run.stdout) * 1e3 if run.returncode == 0 else None


def table(scale: float) -> Table:
    with tempfile.TemporaryDirectory() as bytecode:
        modules = [m for m in MODULES if _once(m, bytecode) is not None]  # and compiles them all
        times: dict[str, list[float]] = {m: [] for m in modules}
        for _ in range(max(3, int(11 * scale))):
            for m in modules:
                t = _once(m, bytecode)
                assert t is not None, m
                times[m].append(t)
    rows = []
    for m, t in times.items():
        middle = statistics.median(t)
        target = f"<= {TARGET_MS:.0f}: {'met' if middle <= TARGET_MS else 'MISSED'}"
        rows.append((m, round(middle, 1), round(min(t), 1), target if m == "functrans" else ""))
    return Table(
        "Import time after `import numpy`, milliseconds",
        ("module", "median", "minimum", "target"),
        rows,
        (f"{len(times['functrans'])} rounds; modules were compiled to bytecode before.",),
    )
