"""Logistic regression by Newton's method on data that never leave the workers of a cluster.

Labels ``y_i = ± 1`` with ``p(y_i = 1) = 1 / (1 + exp(-x_i w))``. The negative log-likelihood is a
sum over rows, so it is a sum over shards of rows, and so are its derivatives:

    f(w) = sum_s f_s(w),    f_s(w) = sum_{i in s} log(1 + exp(-y_i x_i w)).

Each worker draws its shards, where others would read files, and keeps them. A Newton step sends w
out, adds the shards' gradients and Hessians in a tree on the workers, and brings back one of each:

    w <- w - H(w)^-1 g(w),    H^-1 at the minimum the covariance of the estimate.

Without a client, which is how the test runs it, ``functrans.parallel`` takes the same sums over
pieces of arrays in this process. Both are compared with the textbook's formulas, for all rows at
once: ``g = X^T (m - (y + 1) / 2)``, ``H = X^T diag(m (1 - m)) X``, m the fitted probabilities.

    python -m examples.gallery.distributed_regression
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import functrans as ft
from examples.gallery import BLUE, OUT, RED, Check, panels, save, show
from functrans.scipy.special import expit

SMALL = 500
SHARDS, TRUTH = 8, np.linspace(-1.5, 1.5, 12)


def shard(number: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels of that shard."""
    rng = np.random.default_rng([3, number])
    X = rng.normal(size=(rows, len(TRUTH)))
    return X, np.sign(X @ TRUTH + rng.logistic(size=rows))


def loss(w, data):
    X, y = data
    return np.sum(np.logaddexp(0.0, -y * (X @ w)))


def newton(gradient: Callable, hessian: Callable, data: Any) -> tuple[np.ndarray, list]:
    """The minimum, from 0, and the norm of the gradient at each step."""
    w, norms = np.zeros(len(TRUTH)), []
    while len(norms) < 20:
        g = gradient(w, data)
        norms.append(float(np.linalg.norm(g)))
        if norms[-1] <= 1e-12 * norms[0]:
            break
        w = w - np.linalg.solve(hessian(w, data), g)
    return np.asarray(w), norms


def main(n: int = 20_000, out: Path = OUT, client: Any = None) -> list[Check]:
    X, y = map(np.concatenate, zip(*(shard(k, n) for k in range(SHARDS)), strict=True))
    gradient, hessian = (d(loss, chunk_size=n) for d in (ft.parallel.grad, ft.parallel.hessian))
    data: Any = X, y
    if client is not None:
        import functrans.dask as fd  # an extra, which the rest does not need

        gradient, hessian = fd.grad(loss), fd.hessian(loss)
        data = client.map(shard, range(SHARDS), rows=n)
    w, norms = newton(gradient, hessian, data)
    covariance = np.linalg.inv(hessian(w, data))
    errors = np.sqrt(np.diag(covariance))

    figure, (left, right) = panels(2)
    left.errorbar(np.arange(len(w)), w - TRUTH, 2 * errors, fmt="o", ms=4, color=BLUE)
    left.axhline(0, color=RED, lw=1)
    left.set_title("estimate - truth, ± 2 standard errors")
    right.semilogy(np.maximum(norms, 1e-16), "o-", ms=4, color=BLUE)
    right.set(title="norm of the gradient", xlabel="step of Newton's method")
    save(figure, out, __name__)
    m = expit(X @ w)
    textbook = (X * (m * (1 - m))[:, None]).T @ X
    step = covariance @ X.T @ (m - (y + 1) / 2)
    return [
        Check("Hessian and the textbook's, relatively",
              np.abs(hessian(w, data) - textbook).max() / np.abs(textbook).max(), 1e-12),
        Check("textbook's next step, in standard errors", np.abs(step / errors).max(), 1e-9),
        Check("estimate and truth, in standard errors", np.abs((w - TRUTH) / errors).max(), 4.0),
    ]


if __name__ == "__main__":
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1",
                      dashboard_address="127.0.0.1:0") as cluster, Client(cluster) as client:
        show(partial(main, client=client))
