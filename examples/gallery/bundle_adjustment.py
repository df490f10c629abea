r"""Bundle adjustment: cameras and points from where the points are seen, by sparse least squares.

Camera c, with rotation vector :math:`w_c` and translation :math:`t_c`, sees point :math:`X_p` at

.. math:: \pi(R(w_c) X_p + t_c), \qquad \pi(x, y, z) = (x / z, y / z),

where R is the rotation by :math:`|w|` about w. A residual reads 5 of the 6 numbers of one camera
and the 3 of one point, whatever the number of either. Cameras and points together can be moved,
turned and scaled: 7 directions are free, which LSMR leaves alone.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

import functrans as ft
from examples.gallery import BLUE, INK, OUT, RED, Check, panels, save, show

SMALL = 30
NOISE = 1e-3
RIG = 12  # cameras on a circle


def rotated(w, x):
    """Rodrigues' formula, row by row."""
    angle = np.sqrt(np.sum(w**2, axis=1, keepdims=True))
    axis = w / angle
    along = np.sum(axis * x, axis=1, keepdims=True)
    sine, cosine = np.sin(angle), np.cos(angle)
    return x * cosine + np.cross(axis, x) * sine + axis * along * (1 - cosine)


def projected(unknowns, camera, point):
    """Where ``camera[i]`` sees ``point[i]``: (observations, 2)."""
    poses = unknowns[: 6 * RIG].reshape(RIG, 6)[camera]
    x = rotated(poses[:, :3], unknowns[6 * RIG :].reshape(-1, 3)[point]) + poses[:, 3:]
    return x[:, :2] / x[:, 2:]


def scene(n, rng):
    """Unknowns as they are: cameras that look at the middle of n points on a knot."""
    turn = 2 * np.pi * (np.arange(RIG) + 0.5) / RIG
    poses = np.outer(turn - np.pi, np.eye(6)[1]) + 6 * np.eye(6)[5]
    s = 2 * np.pi * np.arange(n) / n
    around, up = (2 + np.cos(3 * s)) * np.exp(2j * s), np.sin(3 * s)
    knot = np.stack([around.real, up, around.imag], axis=1)
    return np.concatenate([poses.ravel(), knot.ravel() + 0.02 * rng.normal(size=3 * n)])


def main(n: int = 400, out: Path = OUT) -> list[Check]:
    """Fit the cameras and ``n`` points, each seen by half of the cameras."""
    rng = np.random.default_rng(0)
    truth = scene(n, rng)
    point = np.repeat(np.arange(n), RIG // 2)
    rigs = rng.permuted(np.tile(np.arange(RIG), (n, 1)), axis=1)
    camera = np.sort(rigs[:, : RIG // 2], axis=1).ravel()
    seen = projected(truth, camera, point) + NOISE * rng.normal(size=(camera.size, 2))

    def residuals(unknowns):
        return (projected(unknowns, camera, point) - seen).ravel() / NOISE

    off = np.where(np.arange(truth.size) < 6 * RIG, 0.05, 0.2)
    start = truth + off * rng.normal(size=truth.size)
    jacobian = ft.sparse_jacobian(residuals).prepare(start)
    fit = least_squares(residuals, start, jac=jacobian, method="trf", tr_solver="lsmr",
                        x_scale="jac", ftol=1e-12, xtol=1e-12, gtol=1e-6)
    draw(start, fit.x, jacobian.sparsity, out)

    v = rng.normal(size=truth.size)
    along = ft.jvp(residuals, (start,), (v,))[1]
    apart = np.abs(jacobian(start) @ v - along).max() / np.abs(along).max()
    freedom = seen.size - truth.size + 7
    return [
        Check("sparse Jacobian against jvp, relative", float(apart), 1e-12),
        Check("chi squared over degrees of freedom, off 1",
              abs(2 * fit.cost / freedom - 1), 4 * (2 / freedom) ** 0.5),
        Check("products that make the Jacobian", float(jacobian.colors), 2.0),
    ]


def draw(start, fitted, pattern, out) -> None:
    figure, axes = panels(3)
    for ax, title, unknowns, color in ((axes[0], "start", start, RED),
                                       (axes[1], "fitted", fitted, BLUE)):
        x = unknowns[6 * RIG :].reshape(-1, 3)
        ax.scatter(x[:, 0], x[:, 2], s=4, color=color, linewidths=0)
        ax.set(title=f"Points from above, {title}", aspect="equal")
    rows = pattern.tocsr()[: 20 * RIG].tocoo()
    axes[2].scatter(rows.col, rows.row, s=1, color=INK, linewidths=0)
    axes[2].invert_yaxis()
    axes[2].set(title=f"First rows of the Jacobian, {pattern.shape[0]} x {pattern.shape[1]}")
    save(figure, out, __name__)


if __name__ == "__main__":
    show(main)
