"""Bayesian logistic regression by Hamiltonian Monte Carlo.

Did any O-ring fail in a flight of the space shuttle started at temperature T? The 23 flights before
Challenger's, with ``p(failure) = 1 / (1 + exp(-w_0 - w_1 (T - 70) / 7))`` and the prior
``w ~ N(0, 5^2 I)``; ``E(w)`` is minus the logarithm of the posterior density.

The sampler draws a momentum p from N(0, I), follows ``w' = p, p' = -grad E(w)`` by leapfrog steps,

    p <- p - h/2 grad E(w),    w <- w + h p,    p <- p - h/2 grad E(w),

and accepts the end with probability ``min(1, exp(-change of (E(w) + |p|^2 / 2)))``. Such steps are
reversible and keep volume, so the posterior is invariant whatever their error (R. M. Neal, in
Handbook of Markov Chain Monte Carlo, 2011). A grid gives the posterior's moments too, as a check.
Data: S. R. Dalal, E. B. Fowlkes, B. Hoadley, J. Am. Stat. Assoc. 84, 1989.

    python -m examples.gallery.hamiltonian_monte_carlo
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import functrans as ft
from examples.gallery import BLUE, INK, OUT, RED, Check, panels, save, show
from functrans.scipy.special import expit

SMALL = 2000
FAILED = [53, 57, 58, 63, 70, 70, 75]
PASSED = [66, 67, 67, 67, 68, 69, 70, 70, 72, 73, 75, 76, 76, 78, 79, 81]
STEP, STEPS = 0.25, 8


def rows(temperatures):
    return np.stack([np.ones(len(temperatures)), (np.array(temperatures) - 70) / 7], axis=-1)


@ft.jit
def energy(w):
    return (np.sum(np.logaddexp(0, -rows(FAILED) @ w)) + np.sum(np.logaddexp(0, rows(PASSED) @ w))
            + w @ w / 50)


@ft.jit
def leapfrog(w, p):
    for _ in range(STEPS):
        p = p - STEP / 2 * ft.grad(energy)(w)
        w = w + STEP * p
        p = p - STEP / 2 * ft.grad(energy)(w)
    return w, p


def sample(w: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    draws = np.empty((n, len(w)))
    for k in range(n):
        p = rng.normal(size=len(w))
        w_end, p_end = leapfrog(w, p)
        change = energy(w_end) + p_end @ p_end / 2 - energy(w) - p @ p / 2
        if np.log(rng.random()) < -change:
            w = w_end
        draws[k] = w
    return draws


def moments_on_a_grid() -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviations of the posterior."""
    w = np.stack(np.meshgrid(np.linspace(-7, 3, 120), np.linspace(-11, 3, 160)), -1).reshape(-1, 2)
    density = np.exp(-np.asarray(ft.vmap(energy)(w)))
    mean = density @ w / np.sum(density)
    return mean, np.sqrt(density @ (w - mean) ** 2 / np.sum(density))


def main(n: int = 10_000, out: Path = OUT) -> list[Check]:
    w = sample(np.zeros(2), n, np.random.default_rng(0))
    mean, deviation = moments_on_a_grid()

    figure, (left, right) = panels(2)
    left.plot(*w[::5].T, ".", ms=2, alpha=0.4, color=BLUE)
    left.plot(*mean, "+", ms=12, color=RED)
    left.set(xlabel="$w_0$", ylabel="$w_1$", title="draws from the posterior")
    T = np.linspace(30, 85, 100)
    low, median, high = np.quantile(expit(rows(T) @ w[::5].T), (0.05, 0.5, 0.95), axis=1)
    right.fill_between(T, low, high, color=BLUE, alpha=0.2, lw=0)
    right.plot(T, median, color=BLUE)
    right.plot(FAILED + PASSED, np.arange(23) < len(FAILED), ".", color=INK)
    right.axvline(31, color=RED, lw=1)
    right.set(xlabel="°F; Challenger: 31", title="probability of a failure, 90 % of the posterior")
    save(figure, out, __name__)
    w_end, p_end = leapfrog(mean, deviation)
    return [
        Check("leapfrog and back", np.abs(leapfrog(w_end, -p_end)[0] - mean).max(), 1e-12),
        Check("mean of the draws", np.abs((w.mean(axis=0) - mean) / deviation).max(), 0.1),
        Check("their deviations, relatively", np.abs(w.std(0) / deviation - 1).max(), 0.1),
    ]


if __name__ == "__main__":
    show(main)
