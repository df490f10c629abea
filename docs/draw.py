"""Draws the pictures of the site, docs/pictures/*.svg.

Run it with ``python docs/draw.py``, with names of pictures to draw only those; a test says when the
chart of speeds is older than docs/benchmarks.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np

import functrans as ft
from functrans.profile import profile

DOCS = Path(__file__).resolve().parent
PICTURES = DOCS / "pictures"
sys.path.insert(0, str(DOCS.parent))

INK, QUIET, OURS, POINTS, CURVE = "#24292f", "#6e7781", "#3b6ea5", "#3b6ea5", "#d1495b"
PEERS = {"torch": "#d08a2e", "HIPS autograd": "#4b9a5a", "jax jit": "#8250df"}
FONT = "font-family='system-ui, sans-serif'"


class Ratio(NamedTuple):
    """One line of a table of benchmarks: our time over that of a peer."""

    case: str
    peer: str
    ratio: float


def ratios() -> Iterator[Ratio]:
    """Those of the tables, eager against eager and jit against jit."""
    case, section = "", ""
    for line in (DOCS / "benchmarks.md").read_text().splitlines():
        if line.startswith("## "):
            section = line[3:]
        cells = [c.strip() for c in line.strip("|").split("|")]
        if not line.startswith("|") or len(cells) != 5:
            continue
        if section == "Compiled functions, time a call":
            case, peer, _, ratio, _ = [cells[0] or case, *cells[1:]]
            wanted = peer == "jax jit"
        else:
            case, (peer, *_, ratio, _) = section, cells
            wanted = peer in ("torch", "HIPS autograd") and section.startswith(SHOWN)
        if wanted and re.fullmatch(r"[\d.e+-]+", ratio):
            yield Ratio(case, peer, float(ratio))


SHOWN = ("Gradient, ", "Second derivative, ", "Hessian, ", "Gradient of sum(",
         "Gradient of softmax", "Gradient of svd", "Gradient of cholesky")
LEFT, UNIT, ROW, LABEL = 40, 640, 16, 20


def speed() -> str:
    """Bars on a logarithmic axis, from a hundredth of the peer's time to twice as long."""
    parts, y, last = [], 64, ""
    for case, peer, ratio in ratios():
        if case != last:
            y, last = y + LABEL + 6, case
            parts.append(f"<text x='{LEFT}' y='{y - 6}' fill='{INK}'>{escape(case)}</text>")
        x = _place(ratio)
        parts.append(f"<rect x='{LEFT}' y='{y}' width='{x - LEFT:.1f}' height='{ROW - 4}' "
                     f"fill='{PEERS[peer]}'/><text x='{x + 6:.1f}' y='{y + 11}' "
                     f"fill='{QUIET}'>{ratio:.2g}</text>")
        y += ROW
    return _svg(LEFT + UNIT + 60, y + 16, _axis(y) + parts, "Time of functrans / time of a peer")


class Workload(NamedTuple):
    """One line of the table of workloads: our time over that of the fastest peer."""

    title: str
    eager: float | None
    compiled: float | None


def workload_ratios() -> Iterator[Workload]:
    places: list[int] = []
    for line in (DOCS / "workloads.md").read_text().splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if cells[0] == "workload":
            places = [i for i, c in enumerate(cells) if c == "ratio"]
        elif line.startswith("| ") and not line.startswith("| -"):
            yield Workload(cells[0], *[float(cells[i]) if cells[i] else None for i in places])


def workloads() -> str:
    """A line for each workload, with a point for its eager and one for its compiled ratio."""
    rows = list(workload_ratios())
    left, unit, bottom = 400, 130, 70 + ROW * len(rows)
    parts = []
    for ratio in (0.03, 0.1, 0.3, 1, 3):
        x = left + unit * (np.log10(ratio) + 2)
        parts.append(f"<line x1='{x:.1f}' x2='{x:.1f}' y1='58' y2='{bottom}' stroke='#d0d7de' "
                     f"stroke-width='{2 if ratio == 1 else 1}'/>"
                     f"<text x='{x:.1f}' y='54' fill='{QUIET}'>{ratio:g}</text>")
    for k, (label, colour) in enumerate(KINDS.items()):
        parts.append(f"<circle cx='{LEFT + 6 + 300 * k}' cy='34' r='5' fill='{colour}'/>"
                     f"<text x='{LEFT + 18 + 300 * k}' y='38' fill='{INK}'>{label}</text>")
    for y, row in enumerate(rows):
        parts.append(f"<text x='{LEFT}' y='{74 + ROW * y}' fill='{INK}'>{escape(row.title)}</text>")
        parts += [f"<circle cx='{left + unit * (np.log10(ratio) + 2):.1f}' cy='{70 + ROW * y}' "
                  f"r='4' fill='{colour}'/>"
                  for ratio, colour in zip(row[1:], KINDS.values(), strict=True) if ratio]
    return _svg(left + 3 * unit, bottom + 10, parts, "Time of functrans / time of the fastest peer")


def overview() -> str:
    """The same ratios in order of size: how many of the workloads are faster here, and by how much.
    """
    rows = list(workload_ratios())[:-1]  # without the means
    top, unit, width = 60, 75, 760
    marks = (0.03, 0.1, 0.3, 1, 3)
    parts = []

    def height(ratio: float) -> float:
        return top + unit * (np.log10(marks[-1]) - np.log10(ratio))

    for ratio in marks:
        y = height(ratio)
        parts.append(f"<line x1='{LEFT + 30}' x2='{LEFT + 30 + width}' y1='{y:.1f}' y2='{y:.1f}' "
                     f"stroke='#d0d7de' stroke-width='{2 if ratio == 1 else 1}'/>"
                     f"<text x='{LEFT}' y='{y + 4:.1f}' fill='{QUIET}'>{ratio:g}</text>")
    for k, (label, colour) in enumerate(KINDS.items()):
        parts.append(f"<circle cx='{LEFT + 36 + 340 * k}' cy='36' r='5' fill='{colour}'/>"
                     f"<text x='{LEFT + 48 + 340 * k}' y='40' fill='{INK}'>{label}</text>")
        found = sorted(row[1 + k] for row in rows if row[1 + k])
        parts += [f"<circle cx='{LEFT + 40 + (width - 20) * (i + 0.5) / len(found):.1f}' "
                  f"cy='{height(max(ratio, marks[0])):.1f}' r='3.5' fill='{colour}'/>"
                  for i, ratio in enumerate(found)]
    return _svg(LEFT + width + 50, height(marks[0]) + 24, parts,
                f"{len(rows)} workloads: time of functrans / time of the fastest peer")


KINDS = {"called op by op, against PyTorch and HIPS autograd": "#d08a2e",
         "compiled, against JAX": "#8250df"}


def _place(ratio: float) -> float:
    return LEFT + UNIT * (np.log10(ratio) + 2) / (np.log10(2) + 2)


def _axis(bottom: float) -> list[str]:
    parts = []
    for ratio in (0.01, 0.1, 1):
        x = _place(ratio)
        parts.append(f"<line x1='{x:.1f}' x2='{x:.1f}' y1='58' y2='{bottom}' stroke='#d0d7de' "
                     f"stroke-width='{2 if ratio == 1 else 1}'/>"
                     f"<text x='{x + 3:.1f}' y='54' fill='{QUIET}'>{ratio:g}</text>")
    for i, (peer, colour) in enumerate(PEERS.items()):
        x = LEFT + 150 * i
        parts.append(f"<rect x='{x}' y='28' width='12' height='12' fill='{colour}'/>"
                     f"<text x='{x + 18}' y='38' fill='{INK}'>{peer}</text>")
    return parts


def _svg(width: float, height: float, parts: list[str], title: str) -> str:
    body = "\n".join(parts)
    return (f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:g} {height:g}' "
            f"width='{width:g}' font-size='12' {FONT}>\n<title>{title}</title>\n"
            f"<rect width='100%' height='100%' fill='white'/>\n"
            f"<text x='{LEFT}' y='18' font-size='14' fill='{INK}'>{title}</text>\n{body}\n</svg>\n")


def program() -> str:
    """The schedule of a jitted gradient, as ``jit(f).lower(x).svg()`` gives it."""
    def loss(w, x, y):
        return np.mean((np.tanh(x @ w) - y) ** 2)

    lowered = ft.jit(ft.grad(loss)).lower(np.ones(8), np.ones((100, 8)), np.ones(100))
    return lowered.svg()


def trace() -> str:
    """A flame of what the profiler recorded: ops above, their backward steps below."""
    def layer(x, w):
        return np.tanh(x @ w)

    def loss(ws, x):
        for w in ws:
            x = layer(x, w)
        return np.mean(x**2)

    def recorded() -> list:
        with profile() as prof:
            ft.grad(loss)([np.eye(32)] * 3, np.ones((4000, 32)))
        return list(prof.function_events)

    # the fastest of some runs: other programs disturb it least
    events = min((recorded() for _ in range(20)), key=lambda es: es[0].time_range.elapsed_us())
    start = min(e.time_range.start for e in events)
    scale = 820 / max(e.time_range.end - start for e in events)
    parts = []
    for e in events:
        depth, parent = 0, e.cpu_parent
        while parent is not None:
            depth, parent = depth + 1, parent.cpu_parent
        left = LEFT + (e.time_range.start - start) * scale
        wide = max(0.5, (e.time_range.end - e.time_range.start) * scale)
        colour = CURVE if "backward" in e.name else OURS
        parts.append(f"<rect x='{left:.1f}' y='{40 + 26 * depth}' width='{wide:.1f}' height='24' "
                     f"fill='{colour}' fill-opacity='{0.35 + 0.2 * depth:.2f}'/>")
        if wide > 7 * len(e.name):
            parts.append(f"<text x='{left + 4:.1f}' y='{56 + 26 * depth}' "
                         f"fill='{INK}'>{escape(e.name)}</text>")
    total = max(e.time_range.end for e in events) - start
    return _svg(900, 130, parts, f"A gradient of three layers, {total / 1000:.1f} ms")


def fits() -> str:
    """Data and fitted curve of four of NIST's problems."""
    from examples.nist.fit import fit_exact  # lazy: SciPy's solvers
    from examples.nist.models import MODELS
    from examples.nist.strd import load

    parts = []
    for i, name in enumerate(("Misra1a", "Gauss2", "Thurber", "ENSO")):
        problem = load(name)
        b = fit_exact(problem, problem.starts[1]).parameters
        curve = np.linspace(problem.x.min(), problem.x.max(), 200)
        parts += _panel(30 + 215 * i, name, problem.x, problem.y, curve,
                        MODELS[name](curve, np.asarray(b)))
    return _svg(880, 200, parts, "NIST's reference problems, fitted with exact Jacobians")


def _panel(left, name, x, y, curve, values) -> list[str]:
    def place(a, b):
        low, high = min(y.min(), values.min()), max(y.max(), values.max())
        return (left + 190 * (a - x.min()) / np.ptp(x), 185 - 125 * (b - low) / (high - low))

    points = "".join(f"<circle cx='{p:.1f}' cy='{q:.1f}' r='1.8'/>"
                     for p, q in zip(*place(x, y), strict=True))
    line = " ".join(f"{p:.1f},{q:.1f}" for p, q in zip(*place(curve, values), strict=True))
    return [f"<text x='{left}' y='46' fill='{QUIET}'>{name}</text>",
            f"<g fill='{POINTS}' fill-opacity='0.6'>{points}</g>",
            f"<polyline points='{line}' fill='none' stroke='{CURVE}' stroke-width='1.6'/>"]


def derivatives() -> str:
    """tanh and its first four derivatives."""
    f: Callable = np.tanh
    x = np.linspace(-4, 4, 200)
    colours = ["#24292f", "#3b6ea5", "#4b9a5a", "#d08a2e", "#d1495b"]
    parts = ["<line x1='40' x2='840' y1='180' y2='180' stroke='#d0d7de'/>"]
    for order, colour in enumerate(colours):
        line = " ".join(f"{40 + 100 * (a + 4):.1f},{180 - 35 * b:.1f}"
                        for a, b in zip(x, f(x), strict=True))
        parts.append(f"<polyline points='{line}' fill='none' stroke='{colour}' stroke-width='2'/>"
                     f"<text x='{60 + 70 * order}' y='44' fill='{colour}'>order {order}</text>")
        f = ft.elementwise_grad(f)
    return _svg(880, 335, parts, "tanh and its derivatives, by elementwise_grad of itself")


DRAWN: dict[str, Callable[[], str]] = {
    "speed": speed, "workloads": workloads, "overview": overview, "program": program,
    "trace": trace, "fits": fits, "derivatives": derivatives,
}


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    for name in sys.argv[1:] or DRAWN:
        (PICTURES / f"{name}.svg").write_text(DRAWN[name]())


if __name__ == "__main__":
    main()
