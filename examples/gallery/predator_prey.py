"""Rates of a differential equation, fitted to data, with their standard errors.

Hares and lynxes, in thousands of pelts that the Hudson's Bay Company bought from 1900 to 1920, by
Lotka and Volterra's equations, for the logarithms h and l of the populations:

    dh/dt = a - b exp(l),    dl/dt = d exp(h) - c.

The logarithms of the pelts have equal Gaussian errors, so ``p = (log a, log b, log c, log d, h(0),
l(0))`` comes from nonlinear least squares. Its Jacobian J is the derivative of the solver's result;
``jit`` compiles the solver with it. At the minimum the covariance of p is ``s^2 (J^T J)^-1``,
``s^2 = |r|^2 / (observations - 6)``, and that of the curves ``C cov C^T``, C their Jacobian. C is
compared with SciPy's solution of the variational equations ``dS/dt = (df/dy) S + df/dp``. The data
are from C. G. Hewitt, The Conservation of the Wild Life of Canada, 1921, as tabulated by P. Howard,
Modeling Basics, 2009; B. Carpenter's case study of 2018 fits them with Stan.

    python -m examples.gallery.predator_prey
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy import integrate, optimize

import functrans as ft
from examples.gallery import BLUE, OUT, RED, Check, panels, save, show
from functrans.scipy.integrate import solve_ivp

SMALL, FINE = 21, 5  # years, and points of a curve in each of them
HARES = [30, 47.2, 70.2, 77.4, 36.3, 20.6, 18.1, 21.4, 22, 25.4, 27.1, 40.3, 57, 76.6, 52.3, 19.5,
         11.2, 7.6, 14.6, 16.2, 24.7]
LYNXES = [4, 6.1, 9.8, 35.2, 59.4, 41.7, 19, 13, 8.3, 9.1, 7.4, 8, 12.3, 19.5, 45.7, 51.1, 29.7,
          15.8, 9.7, 10.1, 8.6]
least_squares: Any = optimize.least_squares  # its types take no function for jac
START = np.log([0.5, 0.02, 0.9, 0.03, 30.0, 4.0])


def rates(t, y, a, b, c, d):
    return np.stack([a - b * np.exp(y[1]), d * np.exp(y[0]) - c])


def curves(params, times):
    return solve_ivp(rates, (0, times[-1]), params[4:], t_eval=times, rtol=1e-8, atol=1e-8,
                     args=tuple(np.exp(params[:4]))).y


def variational(params, times):
    """``curves``, then the 2 x 6 derivatives of each, from their differential equations."""
    a, b, c, d = np.exp(params[:4])

    def f(t, z):
        hare, lynx = np.exp(z[:2])
        in_state = np.array([[0, -b * lynx], [d * hare, 0]])
        in_params = np.array([[a, -b * lynx, 0, 0, 0, 0], [0, 0, -c, d * hare, 0, 0]])
        slopes = in_state @ z[2:].reshape(2, 6) + in_params
        return np.concatenate([[a - b * lynx, d * hare - c], slopes.ravel()])

    start = np.concatenate([params[4:], np.eye(2, 6, 4).ravel()])
    return integrate.solve_ivp(f, (0, times[-1]), start, t_eval=times, rtol=1e-9, atol=1e-9).y


def main(n: int = 21, out: Path = OUT) -> list[Check]:
    times, pelts = np.arange((n - 1) * FINE + 1) / FINE, np.array([HARES, LYNXES])[:, :n]
    jacobian = ft.jit(ft.jacobian(curves))
    fit = least_squares(
        lambda p: np.ravel(curves(p, times)[:, ::FINE] - np.log(pelts)), START, x_scale="jac",
        jac=lambda p: np.asarray(jacobian(p, times))[:, ::FINE].reshape(-1, 6))
    slopes = np.asarray(jacobian(fit.x, times))
    inverse = np.linalg.inv(fit.jac.T @ fit.jac)
    covariance = inverse * (fit.fun @ fit.fun) / (len(fit.fun) - 6)
    errors = np.sqrt(np.diag(covariance))
    bands = np.sqrt(np.sum((slopes @ covariance) * slopes, axis=-1))

    figure, (axes,) = panels(1)
    for k, (color, label) in enumerate(((BLUE, "hares"), (RED, "lynxes"))):
        curve = curves(fit.x, times)[k]
        axes.fill_between(1900 + times, np.exp(curve - 2 * bands[k]), np.exp(curve + 2 * bands[k]),
                          color=color, alpha=0.25, lw=0)
        axes.plot(1900 + times, np.exp(curve), color=color, label=f"{label}, ± 2 standard errors")
        axes.scatter(1900 + np.arange(n), pelts[k], s=10, color=color)
    axes.legend(loc="upper right", ncols=2)
    axes.set(ylabel="thousands of pelts", xticks=range(1900, 1900 + n, 5), ylim=(0, 105))
    axes.set_title("   ".join(f"{name} = {v:.3f} ± {v * e:.3f}" for name, v, e in
                              zip("abcd", np.exp(fit.x[:4]), errors[:4], strict=True)))
    save(figure, out, __name__)
    expected = variational(fit.x, times)[2:].reshape(2, 6, -1).swapaxes(1, 2)
    return [
        Check("Jacobian and the variational equations', relatively",
              np.abs(slopes - expected).max() / np.abs(expected).max(), 1e-6),
        Check("last step, in standard errors",
              np.abs(inverse @ (fit.jac.T @ fit.fun) / errors).max(), 1e-3),
    ]


if __name__ == "__main__":
    show(main)
