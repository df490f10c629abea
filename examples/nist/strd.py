"""NIST's StRD nonlinear-regression files, read as they are published.

The header of each file says on which lines the starting values, the certified values and the data
stand; nothing else about the layout is assumed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

DATA = Path(__file__).parents[1] / "data" / "nist"
NAMES = ("Misra1a", "Gauss2", "Lanczos3", "ENSO", "Hahn1", "MGH17", "BoxBOD", "Thurber")

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_SECTION = re.compile(r"(Starting Values|Certified Values|Data)\s*\(lines\s+(\d+)\s+to\s+(\d+)\)")
_PARAMETER = re.compile(rf"\s*b\d+\s*=\s*((?:{_NUMBER}\s*)+)$")
_FACT = re.compile(rf"\s*([A-Z][A-Za-z ]+):\s+({_NUMBER})\s*$")
_LEVEL = re.compile(r"(Lower|Average|Higher) Level of Difficulty")


@dataclass(frozen=True, slots=True)
class Problem:
    """One data set: observations, two starting points and the certified answer."""

    name: str
    level: str
    x: np.ndarray
    y: np.ndarray
    starts: tuple[np.ndarray, np.ndarray]
    certified: np.ndarray
    deviations: np.ndarray
    rss: float
    residual_deviation: float
    dof: int


def parse(text: str, name: str) -> Problem:
    """The problem that the text of a ``.dat`` file states."""
    lines = text.splitlines()
    sections = {m[1]: lines[int(m[2]) - 1 : int(m[3])] for m in _SECTION.finditer(text)}
    if len(sections) != 3:
        raise ValueError(f"{name}: the header names the sections {sorted(sections)}, not all three")
    rows = [_PARAMETER.match(line) for line in sections["Starting Values"]]
    if not all(rows):
        raise ValueError(f"{name}: a line of the starting values is not 'b1 = ...'")
    table = np.array([m[1].split() for m in rows if m], dtype=float)
    facts = {m[1]: float(m[2]) for line in sections["Certified Values"] if (m := _FACT.match(line))}
    data = np.array([line.split() for line in sections["Data"]], dtype=float)
    if len(data) != facts["Number of Observations"]:
        raise ValueError(f"{name}: {len(data)} observations, but the file certifies "
                         f"{facts['Number of Observations']:.0f}")
    level = _LEVEL.search(text)
    start1, start2, certified, deviations = table.T.copy()
    return Problem(
        name=name, level=level[1].lower() if level else "", x=data[:, 1].copy(),
        y=data[:, 0].copy(), starts=(start1, start2), certified=certified, deviations=deviations,
        rss=facts["Residual Sum of Squares"],
        residual_deviation=facts["Residual Standard Deviation"],
        dof=int(facts["Degrees of Freedom"]),
    )


def load(name: str) -> Problem:
    """The problem of that name."""
    return parse((DATA / f"{name}.dat").read_text(encoding="ascii"), name)
