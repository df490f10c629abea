"""One picture: data, fitted curve and residuals of all eight sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from examples.nist.fit import residual
from examples.nist.models import MODELS
from examples.nist.strd import Problem

POINTS, CURVE, RESIDUALS, QUIET = "#3b6ea5", "#d1495b", "#7a8b99", "#555555"
STYLE: dict[Any, Any] = {  # Any: matplotlib types the keys as a Literal of all of them
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
    "axes.edgecolor": "#999999", "axes.linewidth": 0.8, "xtick.color": QUIET,
    "ytick.color": QUIET, "axes.titleweight": "bold", "axes.titlelocation": "left",
}


def draw(problems: Sequence[Problem], parameters: Sequence[np.ndarray], path: Path) -> None:
    """Write the picture of every problem with its fitted parameters to ``path``."""
    with rc_context(STYLE):
        figure = Figure(figsize=(16, 8.6))
        FigureCanvasAgg(figure)
        cells = figure.add_gridspec(2, 4, left=0.04, right=0.99, top=0.89, bottom=0.06,
                                    hspace=0.27, wspace=0.2)
        for i, (problem, b) in enumerate(zip(problems, parameters, strict=True)):
            inner = cells[divmod(i, 4)].subgridspec(2, 1, height_ratios=(3, 1), hspace=0.16)
            above = figure.add_subplot(inner[0])
            _panel(above, figure.add_subplot(inner[1], sharex=above), problem, b)
        figure.suptitle("NIST StRD nonlinear regression, fitted with exact derivatives",
                        x=0.04, y=0.965, ha="left", fontsize=14, fontweight="bold")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120)


def _panel(above, below, problem, b):
    x = np.linspace(problem.x.min(), problem.x.max(), 800)
    small = {"s": 14 if len(problem.x) < 100 else 6, "linewidths": 0, "zorder": 2}
    above.scatter(problem.x, problem.y, color=POINTS, alpha=0.75, **small)
    above.plot(x, MODELS[problem.name](x, b), color=CURVE, linewidth=1.5, zorder=3)
    above.set_title(problem.name)
    above.set_title(f"{len(b)} parameters, {len(problem.x)} points", loc="right", fontsize=8,
                    color=QUIET, fontweight="normal")
    above.tick_params(labelbottom=False, length=0, axis="x")
    left = -residual(problem)(b)
    below.axhline(0, color=CURVE, linewidth=0.8)
    below.vlines(problem.x, 0, left, color=RESIDUALS, alpha=0.5, linewidth=0.7)
    below.scatter(problem.x, left, color=RESIDUALS, **{**small, "s": small["s"] * 0.7})
    reach = 1.15 * np.abs(left).max()
    below.set_ylim(-reach, reach)
    below.ticklabel_format(axis="y", scilimits=(-2, 4))
    below.yaxis.get_offset_text().set_fontsize(7)
