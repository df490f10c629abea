"""Programs of under 100 lines that solve a problem with exact derivatives, each with a picture.

    python -m examples.gallery.bundle_adjustment [folder of the picture]

A module of this folder says its mathematics in its docstring and has

- ``main(n=..., out=OUT)``, which solves the problem at size ``n``, saves a picture with
  ``save(figure, out, __name__)``, and returns a list of ``Check``: what was compared, how far off
  it is, and how far off it may be;
- ``SMALL``, the ``n`` at which ``tests/test_gallery.py`` runs it, in about a second;
- ``if __name__ == "__main__": show(main)`` at its end.

The test finds the modules by itself. The pictures in the documentation are those of
``python -m examples.gallery.NAME docs/pictures``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

OUT = Path(__file__).parents[1] / "out"
INK, QUIET, BLUE, RED, GREEN = "#24292f", "#6e7781", "#3b6ea5", "#d1495b", "#4b9a5a"
STYLE: dict[Any, Any] = {  # Any: matplotlib types the keys as a Literal of all of them
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": QUIET,
}


class Check(NamedTuple):
    """Something that was compared: it holds where ``error <= bound``."""

    what: str
    error: float
    bound: float


def panels(count: int, height: float = 2.6) -> tuple[Figure, list]:
    """A figure of that many axes beside each other, in the style of the gallery."""
    with rc_context(STYLE):
        figure = Figure(figsize=(9, height), layout="constrained")
        FigureCanvasAgg(figure)
        return figure, [figure.add_subplot(1, count, i + 1) for i in range(count)]


def save(figure: Figure, out: Path, module: str) -> Path:
    """Write the figure into the folder, as a PNG with the module's name."""
    # run as a program, a module is called __main__
    name = Path(sys.argv[0]).stem if module == "__main__" else module.rpartition(".")[2]
    Path(out).mkdir(parents=True, exist_ok=True)
    path = Path(out) / f"{name}.png"
    for axes in figure.axes:
        axes.title.set_fontsize(10)
    figure.savefig(path, dpi=90)
    return path


def show(main: Callable[..., list[Check]]) -> None:
    """Run ``main`` with the folder of the command line, if there is one, and print its checks."""
    for check in main(out=Path(sys.argv[1]) if sys.argv[1:] else OUT):
        mark = "ok" if check.error <= check.bound else "FAILED"
        print(f"{check.what}: {check.error:.2g}, at most {check.bound:.2g}: {mark}")
