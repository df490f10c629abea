"""Memory: peaks of a large gradient, bytes a recorded operation; each in a process of its own.

``python -m benchmarks.memory peak "HIPS autograd"`` is what the table runs.
"""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from benchmarks import functions
from benchmarks.peers import Peer, by_name
from benchmarks.report import Table

LARGE = 5_000_000
STEPS = (2_500, 5_000, 10_000)
LOOPS = {"multiply, add": functions.loop, "sin, multiply, add": functions.sine_loop}
STATUS = Path("/proc/self/status")


def _status(key: str) -> int | None:
    if STATUS.exists():
        for line in STATUS.read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    return None


def peak_bytes() -> int:
    """The most memory this process has held; of it alone, not of what started it, on Linux."""
    peak = _status("VmHWM")
    unit = 1 if sys.platform == "darwin" else 1024
    return peak or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def held_bytes() -> int:
    return _status("VmRSS") or peak_bytes()


def peak(peer: Peer) -> dict:
    """Peak memory of one gradient above what the process held before, inputs included there."""
    x = functions.point(LARGE)
    small = peer.gradient(functions.wave, functions.point(1000))
    assert small is not None, peer.name
    small()  # what is loaded on first use is not the gradient's
    whole = peer.gradient(functions.wave, x)
    assert whole is not None, peer.name
    gc.collect()
    before = peak_bytes() if _status("VmRSS") is None else held_bytes()
    whole()
    return {"bytes": peak_bytes() - before, "input": x.nbytes}


def growth(peer: Peer) -> dict:
    """Bytes held by a recording of each number of steps; by tracemalloc, and resident."""
    kept: list = []
    # all resident figures before any recording is freed, whose memory the next would take
    resident = {name: _resident(peer, loop, kept) for name, loop in LOOPS.items()}
    return {
        name: [
            {"steps": n, "resident": r, **_traced(peer, loop, n)}
            for n, r in zip(STEPS, resident[name], strict=True)
        ]
        for name, loop in LOOPS.items()
    }


def _recorder(peer: Peer, loop: Callable, steps: int) -> Callable:
    record = peer.recorder(loop(steps), functions.point(10))
    assert record is not None, peer.name
    return record


def _resident(peer: Peer, loop: Callable, kept: list) -> list[int]:
    """What the process grows by; every recording is kept, so that none reuses another's memory."""
    kept.append(_recorder(peer, loop, 500)())
    grown = []
    for n in STEPS:
        record, before = _recorder(peer, loop, n), held_bytes()
        kept.append(record())
        grown.append(held_bytes() - before)
    return grown


def _traced(peer: Peer, loop: Callable, steps: int) -> dict:
    record = _recorder(peer, loop, steps)
    record()()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        walk = record()
        held = tracemalloc.get_traced_memory()[0] - before
        walk()
        del walk
        gc.collect()
        left = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    return {"held": held, "left": left}


def _in_a_process(what: str, peer: Peer) -> dict:
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", what, peer.name],
        capture_output=True, text=True, cwd=Path(__file__).parents[1],
    )
    if run.returncode:
        raise RuntimeError(f"benchmarks.memory {what} {peer.name} failed:\n{run.stderr}")
    return json.loads(run.stdout)


def peak_table(peers: list[Peer]) -> Table:
    found = {p.name: _in_a_process("peak", p)["bytes"] for p in peers}
    ours = found["functrans"]
    rows = [
        (name, round(b / 2**20), None if name == "functrans" else ours / b,
         ("<= 1: met" if ours <= b else "<= 1: MISSED") if name == "HIPS autograd" else "")
        for name, b in found.items()
    ]
    return Table(
        f"Peak memory of the gradient of sum(exp(-x x) sin(3x) + log1p(x x)), {LARGE:,} elements",
        ("contender", "MiB above the input", "functrans / contender", "target"), rows,
        (f"The input itself is {LARGE * 8 / 2**20:.0f} MiB. A process each.",),
    )


def growth_table(peers: list[Peer]) -> Table:
    rows = []
    for peer in peers:
        if peer.recorder(functions.loop(1), functions.point(10)) is None:
            continue
        for name, records in _in_a_process("growth", peer).items():
            ops = len(name.split(","))
            for r in records:
                nodes = r["steps"] * ops
                traced = None if peer.name == "torch" else round(r["held"] / nodes)
                left = None if peer.name == "torch" else r["left"]
                rows.append((peer.name, name, f"{r['steps']:,}", traced,
                             round(r["resident"] / nodes), left))
    return Table(
        "Memory of a recorded Python loop on 10 elements",
        ("contender", "a step", "steps", "bytes a node", "resident bytes a node",
         "bytes left afterwards"), rows,
        (
            "An array of 10 float64 takes 192 bytes with its header. Bytes a node are those of "
            "Python's and NumPy's allocators, by tracemalloc, which does not see torch's.",
        ),
    )


if __name__ == "__main__":
    what, name = sys.argv[1:]
    print(json.dumps({"peak": peak, "growth": growth}[what](by_name(name))))
