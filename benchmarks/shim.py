"""``functrans.torch`` against torch: the same program on both; peak memory in a process each.

``python -m benchmarks.shim torch`` is what the memory table runs.
"""

from __future__ import annotations

import gc
import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.functions import point
from benchmarks.memory import held_bytes, peak_bytes
from benchmarks.peers import Peer, Thunk
from benchmarks.programs import MODULES
from benchmarks.report import Table, verdict
from benchmarks.speed import Case

CHAIN, LONG_CHAIN, WIDE = 100, 10_000, 10_000


def _step(torch: Any) -> Thunk:
    """One step of training: 10-32-1, 32 examples."""
    draw = np.random.default_rng(0).normal
    x, y = torch.tensor(draw(size=(32, 10))), torch.tensor(draw(size=(32, 1)))
    weights = [torch.tensor(a, requires_grad=True) for a in (
        0.3 * draw(size=(10, 32)), np.zeros(32), 0.3 * draw(size=(32, 1)), np.zeros(1),
    )]
    w1, b1, w2, b2 = weights

    def step() -> Any:
        loss = ((torch.tanh(x @ w1 + b1) @ w2 + b2 - y) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            for w in weights:
                w -= 1e-6 * w.grad
                w.grad = None
        return loss

    return step


def _chain(n: int, ops: int) -> Callable[[Any], Thunk]:
    def build(torch: Any) -> Thunk:
        x = torch.tensor(point(n), requires_grad=True)

        def gradient() -> Any:
            y = x
            for _ in range(ops // 2):
                y = y * x
                y = y + 0.5
            y.sum().backward()
            found, x.grad = x.grad, None
            return found

        return gradient

    return build


def _case(title: str, build: Callable[[Any], Thunk], most: float, peers: list[Peer]) -> Case:
    there = {p.name for p in peers}
    contenders = {
        name: build(importlib.import_module(module))
        for name, module in MODULES.items() if name in there
    }
    return Case(title, contenders, {"torch": most})


CASES: dict[str, Callable[[list[Peer]], Case]] = {
    "shim-mlp": lambda peers: _case(
        "functrans.torch: a step of training, 10-32-1, 32 examples", _step, 0.9, peers),
} | {
    f"shim-chain-{n}": lambda peers, n=n: _case(
        f"functrans.torch: backward, {CHAIN} chained multiply/add on {n:,} elements",
        _chain(n, CHAIN), 1.0, peers)
    for n in (10, 100, 1000)
}


def peak(name: str) -> int:
    """Bytes that recording the long chain and walking back takes above what was held before."""
    torch = importlib.import_module(MODULES[name])
    _chain(WIDE, CHAIN)(torch)()  # what is loaded on first use is not the chain's
    gradient = _chain(WIDE, LONG_CHAIN)(torch)
    gc.collect()
    before = held_bytes()
    gradient()
    return peak_bytes() - before


def memory_table(peers: list[Peer]) -> Table:
    there = {p.name for p in peers}
    found = {name: _in_a_process(name) for name in MODULES if name in there}
    ours = found["functrans"]
    rows = []
    for name, b in found.items():
        ratio = None if name == "functrans" else ours / b
        rows.append((name, round(b / 2**20), ratio, verdict(ratio, 1.1)))
    return Table(
        f"functrans.torch: peak memory of backward through {LONG_CHAIN:,} operations on "
        f"{WIDE:,} elements",
        ("contender", "MiB", "functrans / contender", "target"), rows, ("A process each.",),
    )


def _in_a_process(name: str) -> int:
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.shim", name],
        capture_output=True, text=True, cwd=Path(__file__).parents[1],
    )
    if run.returncode:
        raise RuntimeError(f"benchmarks.shim {name} failed:\n{run.stderr}")
    return json.loads(run.stdout)


if __name__ == "__main__":
    print(json.dumps(peak(sys.argv[1])))
