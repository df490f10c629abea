"""Combinations of parameters: all of them in a thorough run, enough of them in a quick one.

Nearly all faults show at one value of a parameter or where two values meet; few need three at once
(D. R. Kuhn, D. R. Wallace and A. M. Gallo, IEEE Trans. Software Eng. 30, 2004).
"""

import itertools
import os
from collections.abc import Iterable

THOROUGH = os.environ.get("FUNCTRANS_PROFILE") == "thorough"


def covering(*axes: Iterable, meet: int = 2) -> list[tuple]:
    """Combinations of one value of each axis, in which all values of any ``meet`` axes meet.

    >>> covering("ab", [1, 2, 3], meet=1) if not THOROUGH else [("a", 1), ("b", 2), ("a", 3)]
    [('a', 1), ('b', 2), ('a', 3)]
    """
    values = [list(axis) for axis in axes]
    everything = list(itertools.product(*[range(len(v)) for v in values]))
    if THOROUGH or meet >= len(values):
        chosen = everything
    elif meet == 1:
        chosen = [tuple(i % len(v) for v in values) for i in range(max(map(len, values)))]
    else:
        chosen = _greedy(everything, list(itertools.combinations(range(len(values)), meet)))
    return [tuple(v[i] for v, i in zip(values, row, strict=True)) for row in chosen]


def _greedy(rows: list[tuple[int, ...]], together: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Rows, each the one in which most has not met before."""
    met = {row: {(axes, *[row[a] for a in axes]) for axes in together} for row in rows}
    open_ = set().union(*met.values())
    chosen = []
    while open_:
        best = max(rows, key=lambda row: len(met[row] & open_))
        chosen.append(best)
        open_ -= met[best]
    return chosen
