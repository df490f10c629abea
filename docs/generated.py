"""Writes everything that is made: ``make generated``, or ``python docs/generated.py``.

A test compares each file with what is made here, and names those that are stale. Pages that are
measured (benchmarks, workloads, coverage) and pictures of the gallery are not made anew: they take
minutes, and other libraries.
"""

from __future__ import annotations

import functools
import runpy
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
# The version of SciPy whose names the pages about it list.
SCIPY = "1.17"
# Pages with figures of others, which are made last.
FIGURES = ("docs/numba.md", "docs/tools.md", "README.md")


@functools.cache
def _script(name: str) -> dict:
    return runpy.run_path(str(DOCS / f"{name}.py"))


def _call(script: str, function: str, *args: str) -> str:
    return _script(script)[function](*args)


def _stub(path: str) -> str:
    stubs = _script("stubs")
    (module,) = [m for m in stubs["MODULES"] if stubs["path_of"](m) == ROOT / path]
    return stubs["stub"](module)


def made() -> dict[str, Callable[[], str]]:
    """What makes each file, by its path in the checkout; later ones may read earlier ones."""
    stubs = [f"functrans/numpy/{name}.pyi" for name in ("__init__", "linalg", "fft", "emath")]
    pages: dict[str, Callable[[], str]] = {
        "functrans/__init__.py": partial(_call, "public_names", "source"),
        **{path: partial(_stub, path) for path in stubs},
        "docs/ops.md": partial(_call, "reference", "table"),
    }
    if version("scipy").startswith(SCIPY):
        pages["docs/scipy.md"] = partial(_call, "scipy_page", "page")
        pages["docs/scipy_peers.md"] = partial(_call, "scipy_peers", "page")
    pages |= {f"docs/pictures/{name}.svg": partial(_call, "draw", name)
              for name in ("speed", "workloads", "overview")}
    return pages | {page: partial(_call, "figures", "text", page) for page in FIGURES}


def main() -> None:
    for path, text in made().items():
        new = text()
        if (ROOT / path).read_text() != new:
            (ROOT / path).write_text(new)
            print(f"{path} written")


if __name__ == "__main__":
    main()
