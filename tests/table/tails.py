"""Arguments over the whole range of a dtype, and slopes there by mpmath: see ``test_tails``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np

# Digits that a reference is computed with; of two in turn the results must agree.
DIGITS = (100, 300, 1100, 2200)


def exponents(dtype: Any, rng: np.random.Generator, count: int) -> np.ndarray:
    """``count`` sizes: half of them over all exponents, half where exponentials are neither 0
    nor infinite."""
    info = np.finfo(dtype)
    wide = rng.uniform(float(info.minexp), float(info.maxexp) - 0.01, count // 2)
    top = np.log2(float(np.log(info.max))) + 0.5
    near = rng.uniform(-4.0, top, count - count // 2)
    return np.concatenate([wide, near])


def sizes(dtype: Any, rng: np.random.Generator, count: int) -> np.ndarray:
    """Positive numbers, whose digits are drawn too."""
    e = exponents(dtype, rng, count)
    mantissa = (1 + rng.random(count)).astype(dtype)
    return np.ldexp(mantissa, np.floor(e).astype(int))


def _either_sign(x, rng):
    return x * rng.choice([-1, 1], x.size).astype(x.dtype)


def _within(x, dtype):
    """Numbers between 0 and 1, many of which are close to either."""
    eps = np.finfo(dtype).eps
    y = np.where(x > 1, 1 / np.where(x > 1, x, 1), x)
    return np.where(np.arange(x.size) % 3 == 0, np.maximum(1 - y, 1 - y.dtype.type(1) / 2) - eps, y)


def draw(domain: str, dtype: Any, rng: np.random.Generator, count: int) -> np.ndarray:
    """``count`` numbers of a domain of the table."""
    x = sizes(dtype, rng, count)
    x = x[np.isfinite(x) & (x > 0)]
    if domain == "unit":
        y = _either_sign(_within(x, dtype), rng)
    elif domain == "probability":
        y = _within(x, dtype)
        y = y[(y > 0) & (y < 1)]
    elif domain == "above one":
        y = 1 + x
        y = y[y > 1]
    elif domain == "positive":
        y = x
    elif domain == "negative":
        y = -x
    else:
        y = _either_sign(x, rng)
    y = y[np.isfinite(y)].astype(dtype)
    y.setflags(write=False)
    return y


def exact(x: Any) -> mp.mpf:
    """A number of any real dtype as it is."""
    with mp.workprec(80):
        mantissa, exponent = np.frexp(np.longdouble(x))
        return mp.ldexp(int(np.ldexp(mantissa, 64)), int(exponent) - 64)


def _differences(f: Callable, x: mp.mpf, digits: int) -> tuple:
    with mp.workdps(digits):
        # a quarter of the digits for the step, whose square is the error of the slope
        h = min(abs(x), mp.mpf(1)) * mp.mpf(10) ** -(digits // 4)
        x = +x
        before, here, after = f(x - h), f(x), f(x + h)
        return (after - before) / (2 * h), (after - 2 * here + before) / h**2


def _agree(a, b):
    return a != 0 and b != 0 and abs(a - b) < abs(b) * mp.mpf(10) ** -22


def slopes(f: Callable, x: mp.mpf, digits: tuple = DIGITS) -> tuple:
    """The first two derivatives of ``f`` at ``x``: for each its number, or None if in doubt."""
    found: list = [None, None]
    last = None
    for n in digits:
        now = _differences(f, x, n)
        for i in range(2):
            if last is not None and found[i] is None and _agree(mp.re(last[i]), mp.re(now[i])):
                found[i] = mp.re(now[i])
            elif last == now == (0, 0) and n == digits[-1] and abs(x) > 1:
                found[i] = mp.mpf(0)  # of what has been constant for a thousand digits
        last = now
        if None not in found:
            break
    return tuple(found)


def ulps(a: Any, want: mp.mpf) -> float:
    """How far ``a`` is from what it should be, in units of its last place; inf where it is NaN,
    0 or infinite and should not be."""
    info = np.finfo(a.dtype)
    size = abs(want)
    if size > exact(info.max):
        return 0.0 if not np.isfinite(a) or abs(a) > info.max / 2 else float("inf")
    if not np.isfinite(a):
        return 0.0 if size > exact(info.max) * (1 - 64 * exact(info.eps)) else float("inf")
    unit = max(size * exact(info.eps), exact(info.smallest_subnormal))
    return float(abs(exact(a) - want) / unit)
