"""Fit all eight sets from both starting points and count the correct digits.

    python -m examples.nist
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from examples.nist.fit import (
    CONVERGED_DIGITS,
    Fit,
    correct_digits,
    fit_differences,
    fit_exact,
    polish,
)
from examples.nist.plot import draw
from examples.nist.strd import NAMES, Problem, load

PICTURE = Path(__file__).parents[1] / "out" / "nist.png"

INTRODUCTION = """\
NIST StRD nonlinear regression: digits that agree with the certified values, of 11 certified.

  newton   least_squares with the exact Jacobian, then Newton steps with the exact Hessian
  exact    least_squares with the exact Jacobian
  2-point  the same call of least_squares with its finite differences
"""


WAYS = f"{'newton':>8}{'exact':>8}{'2-point':>8}"


class Run(NamedTuple):
    """One problem from one starting point, fitted three ways."""

    newton: Fit
    exact: Fit
    differences: Fit


def run(problem: Problem, start: np.ndarray) -> Run:
    exact = fit_exact(problem, start)
    return Run(polish(problem, exact), exact, fit_differences(problem, start))


def table(problem: Problem, runs: Sequence[Run]) -> str:
    """Correct digits of every parameter and standard deviation, from both starts."""
    lines = [
        f"{problem.name}: {problem.level} difficulty, {len(problem.y)} observations",
        f"{'':32}{'digits of the value':^24}{'of its deviation':^26}",
        f"{'start':>5}{'':6}{'certified':>18}   {WAYS}  {WAYS}",
    ]
    for k, fits in enumerate(runs):
        values = [correct_digits(fit.parameters, problem.certified) for fit in fits]
        deviations = [correct_digits(fit.deviations, problem.deviations) for fit in fits]
        for i, certified in enumerate(problem.certified):
            lines.append(
                f"{k + 1:5}{f'b{i + 1}':>6}{certified:18.10e}   "
                + "".join(f"{d[i]:8.1f}" for d in values) + "  "
                + "".join(f"{d[i]:8.1f}" for d in deviations)
            )
    return "\n".join(line.rstrip() for line in lines) + "\n"


def worst(fit: Fit, problem: Problem) -> float:
    """Correct digits of the fit's least accurate parameter."""
    return float(correct_digits(fit.parameters, problem.certified).min())


def summary(problems: Sequence[Problem], runs: Sequence[Sequence[Run]]) -> str:
    """A line a fit: the least accurate parameter and the evaluations it took."""
    lines = [
        "Least accurate parameter of each fit",
        "",
        f"{'':15}{'correct digits':^27}{'residuals + Jacobians':>23}{'residuals':>11}",
        f"{'set':10}{'start':5}{'newton':>9}{'exact':>9}{'2-point':>9}{'exact':>23}{'2-point':>11}",
    ]
    for problem, both in zip(problems, runs, strict=True):
        for k, r in enumerate(both):
            digits = [worst(fit, problem) for fit in r]
            failed = [name for name, d in zip(("newton", "exact", "2-point"), digits, strict=True)
                      if d < CONVERGED_DIGITS]
            note = f"   did not converge: {', '.join(failed)}" if failed else ""
            lines.append(
                f"{problem.name:10}{k + 1:3}  " + "".join(f"{d:9.1f}" for d in digits)
                + f"{f'{r.exact.residuals} + {r.exact.jacobians}':>23}"
                + f"{r.differences.residuals:11}{note}"
            )
    everywhere = min(max(worst(r.newton, p) for r in both)
                     for p, both in zip(problems, runs, strict=True))
    lines += ["", f"Every parameter of every set has at least {everywhere:.1f} correct digits from "
              "its better start."]
    return "\n".join(lines)


def main() -> None:
    """Fit, print, draw."""
    problems = [load(name) for name in NAMES]
    jobs = [(p, start) for p in problems for start in p.starts]
    flat = [run(p, start) for p, start in tqdm(jobs, desc="fits", file=sys.stderr)]
    runs = [flat[i : i + 2] for i in range(0, len(flat), 2)]
    print(INTRODUCTION)
    for problem, both in zip(problems, runs, strict=True):
        print(table(problem, both))
    print(summary(problems, runs))
    draw(problems, [both[1].newton.parameters for both in runs], PICTURE)
    print(f"\nPicture: {PICTURE}")


if __name__ == "__main__":
    main()
