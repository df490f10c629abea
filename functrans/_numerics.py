"""Derivatives by number alone: extrapolated differences, the complex step, Taylor remainders."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np

from functrans.errors import FunctransError

# First steps of the extrapolated differences: the coarse one is exact on smooth functions, the fine
# one still works close to a kink or to the border of the domain. The others are tried where both
# are unsure: on functions that bend slowly, or fast.
STEPS = (2.0**-6, 2.0**-11)
MORE_STEPS = (2.0**-3, 2.0**-16, 2.0**-21)
SURE = 1e-7
IMAGINARY = 1e-30


def numerical_jvp(
    flat: Callable, xs: Sequence[np.ndarray], i: int, t: np.ndarray, eps: float | None = None
) -> list[np.ndarray]:
    """How the outputs of ``flat(*xs)`` move along ``t`` of operand ``i``, by number alone."""
    return numerical(flat, xs, i, t, eps)[0]


def numerical(flat, xs, i, t, eps) -> tuple[list, list]:
    """``numerical_jvp`` and an estimate of its error."""
    wide = _widen(flat, xs)
    t = t.astype(wide[i].dtype)
    scale = step_scale(wide[i], t)

    def moved(h: float) -> list[np.ndarray]:
        return [np.asarray(y) for y in flat(*wide[:i], wide[i] + h * t, *wide[i + 1 :])]

    with np.errstate(all="ignore"):
        best, error = _extrapolate(moved, STEPS[0] * scale if eps is None else eps)
        for h in (*STEPS[1:], *MORE_STEPS) if eps is None else ():
            unsure = any((~(e <= SURE * (1 + np.abs(b)))).any()
                         for b, e in zip(best, error, strict=True))
            if h in MORE_STEPS and not unsure:
                break
            other, its_error = _extrapolate(moved, h * scale)
            take = [~(e <= f) for e, f in zip(error, its_error, strict=True)]
            best = [np.where(p, b, a) for p, a, b in zip(take, best, other, strict=True)]
            error = [np.where(p, b, a) for p, a, b in zip(take, error, its_error, strict=True)]
        sharper = _complex_step(flat, wide, i, t)
        if sharper is None:
            return best, error
        # conj, abs and the like are not analytic: believed only where the differences agree
        believed = [
            (np.abs(s - b) <= 1e-6 * (1 + np.abs(b))) & (s.dtype.kind != "c")
            for s, b in zip(sharper, best, strict=True)
        ]
        return (
            [np.where(p, s, b) for p, s, b in zip(believed, sharper, best, strict=True)],
            [np.where(p, 0.0, e) for p, e in zip(believed, error, strict=True)],
        )


def step_scale(x, t):
    return max(1.0, float(np.max(np.abs(x), initial=0))) / max(
        1e-3, float(np.max(np.abs(t), initial=0))
    )


def remainder_slope(flat, xs, i, t, moved):
    """``taylor_slope`` of ``flat`` along ``t`` of operand ``i``, its derivative being ``moved``."""
    wide = _widen(flat, xs)
    y0 = [np.asarray(y) for y in flat(*wide)]
    digits = max(float(np.finfo(y.dtype).eps) for y in y0 if y.dtype.kind in "fc")
    noise = 64 * digits * max(float(np.abs(y).max(initial=0.0)) for y in y0)
    scale, left = step_scale(wide[i], t), []
    with np.errstate(all="ignore"):
        for k in range(3, 24, 2):
            h = scale * 2.0**-k
            y = flat(*wide[:i], wide[i] + h * t, *wide[i + 1 :])
            rest = [np.abs(a - b - h * m).sum() for a, b, m in zip(y, y0, moved, strict=True)]
            left.append(float(sum(rest)))
    usable = [r for r in left if r > noise or not np.isfinite(r)]
    if len(usable) < 2:
        return np.inf
    slope = np.log2(usable[-2] / usable[-1]) / 2 if np.isfinite(usable[-2:]).all() else 0.0
    return float(slope)


def _widen(flat, xs):
    """``xs`` in double precision, if the function then computes in it too."""
    wide = [
        x.astype(np.result_type(x.dtype, np.float64)) if x.dtype.kind in "fc" else x for x in xs
    ]
    if all(w.dtype == x.dtype for w, x in zip(wide, xs, strict=True)):
        return list(xs)
    outs = flat(*wide)
    return wide if all(np.asarray(y).dtype.itemsize >= 8 for y in outs) else list(xs)


def _extrapolate(moved, h):
    """Central differences at h, h/2, h/4, extrapolated to error h^6, and how sure they are."""
    d = [
        [(p - m) / (2 * k) for p, m in zip(moved(k), moved(-k), strict=True)]
        for k in (h, h / 2, h / 4)
    ]
    first = [[(4 * b - a) / 3 for a, b in zip(d[k], d[k + 1], strict=True)] for k in (0, 1)]
    second = [(16 * b - a) / 15 for a, b in zip(*first, strict=True)]
    return second, [np.abs(s - b) for s, b in zip(second, first[1], strict=True)]


def _complex_step(flat, xs, i, t):
    """Derivative from one evaluation off the real axis; None where the function takes none."""
    if any(x.dtype != np.float64 for x in xs):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            ys = flat(*xs[:i], xs[i] + IMAGINARY * 1j * t, *xs[i + 1 :])
    except (TypeError, ValueError, FunctransError, np.linalg.LinAlgError,
            np.exceptions.ComplexWarning):  # the imaginary part was thrown away on the way
        return None
    ys = [np.asarray(y) for y in ys]
    if len(ys) == 0 or any(y.dtype.kind != "c" for y in ys):
        return None
    return [np.imag(y) / IMAGINARY for y in ys]
