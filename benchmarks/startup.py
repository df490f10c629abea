"""What ``import functrans`` costs beyond ``import numpy``, in fresh processes, interleaved."""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
from dataclasses import dataclass

MODULES = {"functrans": 60.0, "autograd": None, "torch": None, "jax": None}
PROBE = (
    "import time, numpy; start = time.perf_counter(); import {}; "
    "print(time.perf_counter() - start)"
)


@dataclass(frozen=True)
class Startup:
    """Milliseconds to import a module when NumPy is loaded already."""

    module: str
    ms: float
    limit: float | None = None

    @property
    def kept(self) -> bool | None:
        return None if self.limit is None else self.ms <= self.limit


def startups(rounds: int = 7) -> list[Startup]:
    present = [m for m in MODULES if importlib.util.find_spec(m) is not None]
    times: dict[str, list[float]] = {m: [] for m in present}
    for _ in range(rounds):
        for m in present:
            times[m].append(_import_time(m))
    return [Startup(m, 1e3 * statistics.median(ts), MODULES[m]) for m, ts in times.items()]


def _import_time(module: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(module)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)
