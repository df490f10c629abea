"""Writes the figures that the README and some pages take from pages that measure them.

Those are docs/coverage.md, docs/scipy_peers.md, docs/benchmarks.md and docs/workloads.md. Run it
with ``python docs/figures.py``; a test says which page is out of date.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
DRAW = runpy.run_path(str(DOCS / "draw.py"))

# Rows of the table of speeds: the case without jit, and the compiled one.
SPEEDS = {
    "Rosenbrock's function, n = 10": ("Gradient, Rosenbrock function of 10 variables",
                                      "Its gradient"),
    "its Hessian": ("Hessian, Rosenbrock function of 10 variables", "Its Hessian"),
    "`sum(exp(-x*x)*sin(3*x) + log1p(x*x))`, n = 5,000,000": (
        "Gradient of sum(exp(-x x) sin(3x) + log1p(x x)), 5,000,000 elements",) * 2,
    "softmax cross-entropy, 4096 x 1000": ("Gradient of softmax cross-entropy, 4096 x 1000", ""),
    "a network, 784-128-10, batch 128": ("", "Gradient of a network, batch 128, 784-128-10"),
    "10,000 Runge-Kutta steps of the Lorenz system, by `scan`": (
        "", "Gradient through 10,000 Runge-Kutta steps of the Lorenz system, by scan"),
}


def text(page: str) -> str:
    """A page of the checkout with the figures of today's measurements."""
    written = (ROOT / page).read_text()
    for pattern, figures in FIGURES[page].items():
        written = _filled(written, pattern, figures())
    for label, cells in ROWS[page]().items():
        pattern = rf"^\| {re.escape(label)} \|" + r" ?([^|\n]*?) ?\|" * len(cells) + "$"
        written = _filled(written, f"(?m){pattern}", cells)
    return written


def _filled(text: str, pattern: str, numbers: list[str]) -> str:
    """``text`` with these in the places of a pattern's groups, where it occurs the one time."""
    (m,) = re.finditer(pattern, text)
    assert len(numbers) == len(m.groups()), (pattern, numbers)
    ends = [0, *[m.end(i + 1) for i in range(len(numbers))]]
    parts = [text[end : m.start(i + 1)] + number
             for i, (end, number) in enumerate(zip(ends, numbers, strict=False))]
    return "".join(parts) + text[ends[-1] :]


def _ratio(x: float | None) -> str:
    return "" if x is None else f"{x:.2f}" if x < 1 else f"{x:.1f}"


def _speeds() -> dict[str, list[str]]:
    """The README's table: PyTorch, autograd and JAX."""
    rows = {tuple(ratio[:2]): ratio.ratio for ratio in DRAW["ratios"]()}
    return {
        label: [_ratio(rows.get(key)) for key in (
            (eager, "torch"), (eager, "HIPS autograd"), (compiled, "jax jit"))]
        for label, (eager, compiled) in SPEEDS.items()
    }


def _measured(title: str) -> dict[str, list[str]]:
    """The rows of a table of docs/benchmarks.md by their first cell."""
    page = (DOCS / "benchmarks.md").read_text()
    section = page.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    rows = [[c.strip() for c in line.strip("|").split("|")]
            for line in section.splitlines() if line.startswith("| ")]
    return {row[0]: row[1:] for row in rows[1:]}


def _kernels() -> dict[str, list[str]]:
    """Of kernels of numba the time alone, with the gradient, and the ratio."""
    rows = _measured("Value and gradient of kernels compiled by numba")
    return {row: cells[:3] for row, cells in rows.items() if not row.startswith("---")}


def _calls_of_code() -> list[str]:
    """Nanoseconds of a call from a kernel, microseconds of quad with and without native code."""
    rows = _measured("A compiled function called from native code")
    thousand, native, python = [rows[name][0].split()[0] for name in (
        "1,000 calls from a kernel", "quad, low_level_callable", "quad, a Python function")]
    return [thousand, native, python]


def _watching() -> list[str]:
    """How many times as long a profiled gradient takes, of functions and of tensors."""
    rows = _measured("Looking at a gradient of 100 operations while it is computed")
    return [rows[f"{kind}, profile"][1] for kind in ("functions", "tensors")]


def _calls() -> list[str]:
    """How many calls of NumPy's documentation there are, and how many are right here and in JAX."""
    page = (DOCS / "coverage.md").read_text()
    right = {name: re.search(rf"^\| {name} \|.* (\d+) \|$", page, re.MULTILINE)
             for name in ("functrans", "JAX")}
    count = re.search(r"^(\d+) calls", page, re.MULTILINE)
    return [m[1] for m in (count, *right.values()) if m]


def _functions() -> list[str]:
    """How many functions SciPy has, and how many of them can be differentiated, by library."""
    page = (DOCS / "scipy_peers.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| all |"))
    return [f"{int(cell):,}" for cell in row.strip("| ").split(" | ")[1:]]


def _versions() -> list[str]:
    """Of PyTorch, autograd and JAX, as the benchmarks were run with."""
    page = (DOCS / "benchmarks.md").read_text()
    names = ("torch", "autograd", "jax")
    found = [re.search(rf"\b{name} (\d+[.][\d.]+\d)", page) for name in names]
    return [m[1] for m in found if m]


def _workloads() -> list[str]:
    """How many workloads there are, and in how many the ratio is below 1, eager and compiled."""
    rows = list(DRAW["workload_ratios"]())[:-1]
    below = [sum(x is not None and x < 1 for x in column)
             for column in ([r.eager for r in rows], [r.compiled for r in rows])]
    return [str(n) for n in (len(rows), *below)]


# Texts of pages, and what stands in their groups; and rows of their tables.
FIGURES: dict[str, dict[str, Callable[[], list[str]]]] = {
    "README.md": {
        r"Of (\d+) calls from NumPy's documentation, (\d+) are right [^.]*?and (\d+) in JAX":
            _calls,
        r"Of ([\d,]+) functions of\s+SciPy 1.17, ([\d,]+) can be differentiated here, ([\d,]+) in "
        r"`jax.scipy` and\s+([\d,]+) in `autograd.scipy`": _functions,
        r"\(PyTorch ([\d.]+), autograd ([\d.]+), JAX ([\d.]+) with x64\)": _versions,
        r"Ratios of (\d+) workloads: (\d+) eager and (\d+) compiled ones are below 1": _workloads,
    },
    "docs/numba.md": {
        r"a kernel takes ([\d.]+) ns; `quad` takes ([\d.]+) us with it, and ([\d.]+) with":
            _calls_of_code,
    },
    "docs/tools.md": {
        r"take ([\d.]+) times as long under `profile\(\)`, and\s+([\d.]+) times": _watching,
    },
}
ROWS: dict[str, Callable[[], dict[str, list[str]]]] = {
    "README.md": _speeds, "docs/numba.md": _kernels, "docs/tools.md": dict,
}

if __name__ == "__main__":
    for each in FIGURES:
        (ROOT / each).write_text(text(each))
