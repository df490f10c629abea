"""A hidden Markov model: the forward algorithm as a loop in Python, fitted by its gradient.

A state z_t in {0, 1} keeps its value with probability q_z; ``y_t`` given z_t is Gaussian of mean
``mu_z`` and deviation ``s_z``. With ``e_t(k) = log p(y_t | z_t = k)`` and ``A`` the matrix of
transitions, the forward algorithm computes ``a_t(k) = log p(y_1 ... y_t, z_t = k)`` by

    a_t(k) = e_t(k) + log sum_j exp(a_{t-1}(j)) A_jk,    log p(y) = log sum_k exp(a_n(k)).

``jit`` makes one loop of the n passes, forward and backward. The gradient in the parameters is for
``minimize``. That in the ``e_t`` is what the backward algorithm computes (L. R. Rabiner, Proc. IEEE
77, 1989): ``d log p(y) / d e_t(k) = p(z_t = k | y)``. A maximum of the likelihood is a fixed point
of Baum and Welch's algorithm.

    python -m examples.gallery.hidden_markov
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.optimize import minimize

import functrans as ft
from examples.gallery import BLUE, GREEN, INK, OUT, RED, Check, panels, save, show
from functrans.scipy.special import expit, log_expit, logsumexp

SMALL = 200
STAY, MEAN, DEVIATION = np.array([0.97, 0.94]), np.array([-1.0, 1.5]), np.array([0.6, 1.0])
START = np.array([1.0, 1.0, -0.5, 0.5, 0.0, 0.0])  # logits of STAY, MEAN, logs of DEVIATION


def data(n: int) -> tuple[np.ndarray, np.ndarray]:
    """States and observations."""
    rng = np.random.default_rng(1)
    z = np.zeros(n, int)
    for t in range(1, n):
        z[t] = z[t - 1] if rng.random() < STAY[z[t - 1]] else 1 - z[t - 1]
    return z, MEAN[z] + DEVIATION[z] * rng.normal(size=n)


def emissions(params, y):
    scaled = (y[:, None] - params[2:4]) / np.exp(params[4:])
    return -0.5 * scaled**2 - params[4:] - 0.5 * np.log(2 * np.pi)


def log_likelihood(e, logits):
    stay, leave = log_expit(logits), log_expit(-logits)
    a = e[0] - np.log(2)
    for t in range(1, len(e)):
        a = e[t] + np.logaddexp(a + stay, (a + leave)[::-1])
    return logsumexp(a)


def loss(params, y):
    return -log_likelihood(emissions(params, y), params[:2])


def backward_algorithm(e, logits):
    """``p(z_t | y)`` by Rabiner's recursions, in probabilities scaled to sum 1."""
    A = np.array([expit([logits[0], -logits[0]]), expit([-logits[1], logits[1]])])
    p, a, b = np.exp(e), np.exp(e), np.ones_like(e)
    for t in range(1, len(e)):
        a[t] *= a[t - 1] @ A / np.sum(a[t - 1])
    for t in range(len(e) - 1, 0, -1):
        b[t - 1] = A @ (p[t] * b[t]) / np.sum(p[t] * b[t])
    return a * b / np.sum(a * b, axis=1, keepdims=True)


def main(n: int = 400, out: Path = OUT) -> list[Check]:
    z, y = data(n)
    x = minimize(ft.jit(ft.value_and_grad(loss)), START, args=(y,), jac=True).x
    e, mean, deviation = emissions(x, y), x[2:4], np.exp(x[4:6])
    smoothed = np.asarray(ft.grad(log_likelihood)(e, x[:2]))

    figure, (above, below) = panels(2)
    above.scatter(np.arange(n), y, s=6, color=np.where(z == 1, RED, BLUE), lw=0)
    above.plot(smoothed @ mean, color=INK, lw=0.8, label="expected mean given all y")
    above.set(title="observations, coloured by the hidden state", ylim=(-3.5, 5))
    above.legend(loc="upper left")
    below.fill_between(np.arange(n), z, color=RED, alpha=0.25, lw=0, step="mid", label="state 1")
    below.plot(smoothed[:, 1], color=GREEN, lw=1, label="p(state 1 | y), a gradient")
    below.set_ylim(0, 1.25)
    below.legend(loc="upper left", ncols=2)
    save(figure, out, __name__)
    weights = smoothed / smoothed.sum(axis=0)
    baum_welch = y @ weights
    spread = np.sqrt(np.sum(weights * (y[:, None] - baum_welch) ** 2, axis=0))
    return [
        Check("smoothed probabilities and the backward algorithm's",
              np.abs(smoothed - backward_algorithm(e, x[:2])).max(), 1e-10),
        Check("change of the means by a Baum-Welch step", np.abs(baum_welch - mean).max(), 1e-5),
        Check("of the deviations", np.abs(spread - deviation).max(), 1e-5),
        Check("misclassified states", float(np.mean((smoothed[:, 1] > 0.5) != (z == 1))), 0.1),
    ]


if __name__ == "__main__":
    show(main)
