"""Store what torch computes for each program: ``python -m tests.torch.programs.record``.

Needs torch itself. The test compares the shim's numbers with those in ``recorded.json``.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from pathlib import Path

from tests.torch.programs import NAMES

STORED = Path(__file__).with_name("recorded.json")


def numbers(x):
    """Results as nested lists of floats; complex numbers are pairs, booleans and ints floats."""
    if isinstance(x, dict):
        return {k: numbers(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [numbers(v) for v in x]
    if hasattr(x, "tolist"):
        x = x.detach().tolist()
        return numbers(x) if isinstance(x, list) else numbers([x])[0]
    return [x.real, x.imag] if isinstance(x, complex) else float(x)


def programs(only=""):
    """(module.program, function) of all programs whose name contains ``only``."""
    for name in NAMES:
        module = importlib.import_module(f"tests.torch.programs.{name}")
        for program in module.__all__:
            if only in program:
                yield f"{name}.{program}", getattr(module, program)


def record(only: str) -> None:
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    for name, program in programs(only):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # torch's own, at the first use of forward mode and of a kernel
            warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated")
            warnings.filterwarnings("ignore", "LSTM with projections is not supported with oneDNN")
            try:
                stored[name] = numbers(program())
            except Exception as failure:
                raise RuntimeError(f"{name} does not run on torch") from failure
    text = ",\n".join([f" {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(stored.items())])
    STORED.write_text("{\n" + text + "\n}\n")


if __name__ == "__main__":
    record(sys.argv[1] if len(sys.argv) > 1 else "")
