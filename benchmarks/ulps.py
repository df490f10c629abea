"""How far elementary functions are from exact values, in units in the last place.

``python -m benchmarks.ulps`` prints a line a function: NumPy's, compiled code, and compiled code
with ``precise=True``, the largest error on random numbers, by mpmath.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence

import mpmath as mp
import numpy as np

import functrans as ft

# Of each function where numbers are drawn.
RANGES = {
    "exp": (-700, 700), "exp2": (-100, 100), "expm1": (-5, 5), "log": (1e-3, 1e3),
    "log2": (1e-3, 1e3), "log10": (1e-3, 1e3), "log1p": (-0.9, 10), "sin": (-100, 100),
    "cos": (-100, 100), "tan": (-1.5, 1.5), "arcsin": (-1, 1), "arccos": (-1, 1),
    "arctan": (-10, 10), "sinh": (-10, 10), "cosh": (-10, 10), "tanh": (-5, 5),
    "arcsinh": (-10, 10), "arccosh": (1, 10), "arctanh": (-0.99, 0.99), "cbrt": (0, 100),
}
# What mpmath has under other names.
EXACT: dict[str, Callable] = {
    "exp2": lambda v: mp.mpf(2) ** v, "log2": lambda v: mp.log(v, 2),
    "log1p": lambda v: mp.log(1 + v), "arcsin": mp.asin, "arccos": mp.acos, "arctan": mp.atan,
    "arcsinh": mp.asinh, "arccosh": mp.acosh, "arctanh": mp.atanh,
}


def largest(found: np.ndarray, exact: Sequence) -> float:
    """The largest error of some numbers, in units in the last place."""
    units = [mp.mpf(float(np.spacing(abs(y)))) for y in found]
    return max(abs(float((mp.mpf(float(y)) - w) / u))
               for y, w, u in zip(found, exact, units, strict=True))


def rows(count: int) -> Iterator[tuple[str, list[float]]]:
    """The errors of each function: NumPy's, compiled, and with ``precise=True``."""
    rng = np.random.default_rng(0)
    for name, (low, high) in RANGES.items():
        f, x = getattr(np, name), rng.uniform(low, high, count)
        with mp.workdps(40):
            of = EXACT.get(name) or getattr(mp, name)
            exact = [of(mp.mpf(v)) for v in x]
            ways: list[Callable] = [f, ft.jit(f), ft.jit(f, precise=True)]
            yield name, [largest(np.asarray(way(x)), exact) for way in ways]


def main() -> None:
    print(f"NumPy {np.__version__}, {' '.join(platform.libc_ver())}, {platform.machine()}")
    print("function NumPy compiled precise")
    worst = [0.0, 0.0, 0.0]
    for name, errors in rows(1500):
        worst = [max(a, b) for a, b in zip(worst, errors, strict=True)]
        print(name, *[f"{e:.2f}" for e in errors])
    print("largest", *[f"{e:.2f}" for e in worst])


if __name__ == "__main__":
    main()
