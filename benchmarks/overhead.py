"""What one small operation costs beyond NumPy: to record it, and to walk back over it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.functions import point
from benchmarks.peers import Peer
from benchmarks.report import Table
from benchmarks.timing import interleaved, medians

# Ops in one measured function.
COUNT = 100
MATRIX = np.array([[0.6, 0.2, 0.1], [0.1, 0.7, 0.2], [0.2, 0.1, 0.5]])


def _chained(op: Callable) -> Callable:
    def f(xp, x):
        y = x
        for _ in range(COUNT):
            y = op(xp, y, x)
        return xp.sum(y)

    return f


def _gathered(op: Callable) -> Callable:
    """For ops that do not give back what they take: each result is added up."""

    def f(xp, x):
        total = xp.sum(x)
        for _ in range(COUNT):
            total = total + op(xp, x)
        return total

    return f


# Name -> (function of a peer, size of its argument); the cost of what goes around the op is taken
# off: the outer call, and for the gathered ones the additions.
OPS: dict[str, tuple[Callable[[Peer], Callable], int, str]] = {
    "x + 0.5": (lambda peer: _chained(lambda xp, y, x: y + 0.5), 10, "nothing"),
    "x * y": (lambda peer: _chained(lambda xp, y, x: y * x), 10, "nothing"),
    "sin(x)": (lambda peer: _chained(lambda xp, y, x: xp.sin(y)), 10, "nothing"),
    "A @ x": (lambda peer: _product(peer), 3, "nothing"),
    "x[3]": (lambda peer: _gathered(lambda xp, x: x[3]), 10, "additions"),
    "x[2:8]": (lambda peer: _slices(), 10, "additions"),
    "sum(x)": (lambda peer: _gathered(lambda xp, x: xp.sum(x)), 10, "additions"),
}


def _product(peer: Peer) -> Callable:
    A = peer.library.tensor(MATRIX) if peer.name == "torch" else MATRIX
    return _chained(lambda xp, y, x: A @ y)


def _slices() -> Callable:
    def f(xp, x):
        total = x[2:8]
        for _ in range(COUNT):
            total = total + x[2:8]
        return xp.sum(total)

    return f


def _additions(xp, x):
    one = xp.sum(x)
    total = one
    for _ in range(COUNT):
        total = total + one
    return total


def _nothing(xp, x):
    return xp.sum(x)


BASES = {"nothing": _nothing, "additions": _additions}


def measure(peer: Peer, f: Callable, n: int, scale: float) -> tuple[float, float] | None:
    """Seconds to record ``f`` at a point of size ``n``, and to record it and walk back."""
    record = peer.recorder(f, point(n))
    if record is None:
        return None
    both = {"record": record, "both": lambda: record()()}
    times = {k: min(t) for k, t in interleaved(both, rounds=max(5, int(15 * scale))).items()}
    return times["record"], times["both"]


def table(peers: list[Peer], scale: float) -> Table:
    rows = []
    for name, (build, n, base) in OPS.items():
        for peer in peers:
            whole = measure(peer, build(peer), n, scale)
            rest = measure(peer, BASES[base], n, scale)
            if whole is None or rest is None:
                continue
            record = (whole[0] - rest[0]) / COUNT * 1e6
            walk = (whole[1] - whole[0] - rest[1] + rest[0]) / COUNT * 1e6
            cost = (record, walk, record + walk)
            rows.append((name, peer.name, *[round(t, 2) for t in cost]))
    plain = medians(interleaved({"add": _plain_additions}, rounds=9))["add"] / COUNT * 1e6
    return Table(
        "Cost of one operation on 10 elements (A is 3 by 3), microseconds, NumPy's work included",
        ("operation", "contender", "record", "walk back", "both"),
        rows,
        (f"Least of the rounds. NumPy's own `x + 0.5` takes {plain:.2f} us.",),
    )


def _plain_additions() -> np.ndarray:
    x = point(10)
    for _ in range(COUNT):
        x = x + 0.5
    return x
