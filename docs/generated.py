"""Writes everything that is made: ``make generated``, or ``python docs/generated.py``.

A test compares each file with what is made here, and names those that are stale. Pages that are
measured (benchmarks, workloads, coverage) and pictures of the gallery are not made anew: they take
minutes, and other libraries.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from functools import partial
from pathlib import Path

import scipy

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
# The version of SciPy whose names the pages about it list.
SCIPY = "1.17"


def _script(name: str) -> dict:
    return runpy.run_path(str(DOCS / f"{name}.py"))


def made() -> dict[str, Callable[[], str]]:
    """What makes each file, by its path in the checkout; later ones may read earlier ones."""
    stubs, draw = _script("stubs"), _script("draw")
    pages = {
        "functrans/__init__.py": _script("public_names")["source"],
        **{str(stubs["path_of"](module).relative_to(ROOT)): partial(stubs["stub"], module)
           for module in stubs["MODULES"]},
        "docs/ops.md": _script("reference")["table"],
    }
    if scipy.__version__.startswith(SCIPY):
        pages["docs/scipy.md"] = _script("scipy_page")["page"]
        pages["docs/scipy_peers.md"] = _script("scipy_peers")["page"]
    for name in ("speed", "workloads", "overview"):
        pages[f"docs/pictures/{name}.svg"] = draw[name]
    figures = _script("figures")
    return pages | {page: partial(figures["text"], page) for page in figures["FIGURES"]}


def main() -> None:
    for path, text in made().items():
        new = text()
        if (ROOT / path).read_text() != new:
            (ROOT / path).write_text(new)
            print(f"{path} written")


if __name__ == "__main__":
    main()
