"""Patterns as pictures: in text, and by matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans._transforms.sparse.sets import Csr

# Rows and columns of the picture, at most, and what stands for entries in so many eighths of the
# places of a cell.
HEIGHT, WIDTH = 16, 48
FILLED = " .:-=+*#@"


def text(pattern: Csr) -> str:
    """The pattern as text: each entry where it is small, else how full each part of it is."""
    m, n = pattern.shape
    if not m or not n:
        return ""
    height, width = min(m, HEIGHT), min(n, WIDTH)
    rows = np.repeat(np.arange(m), np.diff(pattern.indptr)) * height // m
    columns = pattern.indices.astype(np.int64) * width // n
    found = np.bincount(rows * width + columns, minlength=height * width).reshape(height, width)
    tall = np.bincount(np.arange(m) * height // m)
    wide = np.bincount(np.arange(n) * width // n)
    shares = found / (tall[:, None] * wide)
    level = np.ceil(shares * (len(FILLED) - 1)).astype(int)
    lines = ["".join([FILLED[k] for k in row]) for row in level]
    return "\n".join([f"[{line}]" for line in lines])


def spy(pattern: Csr, title: str, ax: Any, options: dict[str, Any]) -> Any:
    """The pattern drawn into ``ax``, or into a new figure."""
    if ax is None:
        from matplotlib.figure import Figure  # lazy: an extra, and slow to import

        ax = Figure().add_subplot()
    size = max(0.5, min(10.0, 200 / max(1, *pattern.shape)))
    ax.spy(pattern, **{"markersize": size} | options)
    ax.set_title(title.strip("<>"))
    return ax
