"""The eight models as NIST states them: ordinary NumPy, which knows nothing of derivatives."""

from __future__ import annotations

import numpy as np


def saturation(x, b):
    """Misra1a and BoxBOD: exponential approach to a limit."""
    b1, b2 = b
    return b1 * (1 - np.exp(-b2 * x))


def two_peaks(x, b):
    """Gauss2: two Gaussians on a decaying baseline."""
    b1, b2, b3, b4, b5, b6, b7, b8 = b
    return (
        b1 * np.exp(-b2 * x)
        + b3 * np.exp(-((x - b4) ** 2) / b5**2)
        + b6 * np.exp(-((x - b7) ** 2) / b8**2)
    )


def three_decays(x, b):
    """Lanczos3: a sum of three exponentials."""
    b1, b2, b3, b4, b5, b6 = b
    return b1 * np.exp(-b2 * x) + b3 * np.exp(-b4 * x) + b5 * np.exp(-b6 * x)


def cycles(x, b):
    """ENSO: the year and two longer cycles, whose periods are fitted too."""
    b1, b2, b3, b4, b5, b6, b7, b8, b9 = b
    year, first, second = 2 * np.pi * x / 12, 2 * np.pi * x / b4, 2 * np.pi * x / b7
    return (
        b1
        + b2 * np.cos(year) + b3 * np.sin(year)
        + b5 * np.cos(first) + b6 * np.sin(first)
        + b8 * np.cos(second) + b9 * np.sin(second)
    )


def cubic_over_cubic(x, b):
    """Hahn1 and Thurber: a rational function."""
    b1, b2, b3, b4, b5, b6, b7 = b
    return (b1 + b2 * x + b3 * x**2 + b4 * x**3) / (1 + b5 * x + b6 * x**2 + b7 * x**3)


def two_decays(x, b):
    """MGH17: two exponentials of nearly equal rates, nearly cancelling."""
    b1, b2, b3, b4, b5 = b
    return b1 + b2 * np.exp(-x * b4) + b3 * np.exp(-x * b5)


MODELS = {
    "Misra1a": saturation, "Gauss2": two_peaks, "Lanczos3": three_decays, "ENSO": cycles,
    "Hahn1": cubic_over_cubic, "MGH17": two_decays, "BoxBOD": saturation,
    "Thurber": cubic_over_cubic,
}
