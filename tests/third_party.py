"""Code in the manner of packages that know nothing of functrans, for tests/interop/test_patch.py.

Written here, after what such packages do: names imported from NumPy, arrays that are filled in,
``float``, ``math``, classes that keep state.
"""

import math
from math import erf, sqrt

import numpy as np
from numpy import array, asarray, copysign, exp, log, pi, zeros, zeros_like

TINY = 1e-15


# ---- line shapes


def not_zero(value):
    return float(copysign(max(TINY, abs(value)), value))


def gaussian(x, amplitude=1.0, center=0.0, sigma=1.0):
    return amplitude / max(TINY, sqrt(2 * pi) * sigma) * exp(
        -((1.0 * x - center) ** 2) / max(TINY, 2 * sigma**2)
    )


def lorentzian(x, amplitude=1.0, center=0.0, sigma=1.0):
    x = asarray(x)
    return amplitude / (1 + ((1.0 * x - center) / not_zero(sigma)) ** 2) / (pi * not_zero(sigma))


def pseudo_voigt(x, amplitude=1.0, center=0.0, sigma=1.0, fraction=0.5):
    narrow = sigma / sqrt(2 * log(2))
    return (1 - fraction) * gaussian(x, amplitude, center, narrow) + fraction * lorentzian(
        x, amplitude, center, sigma
    )


def split_lorentzian(x, amplitude=1.0, center=0.0, sigma=1.0, sigma_r=1.0):
    total = max(TINY, sigma + sigma_r)
    out = zeros_like(x)
    left = x < center
    shape = 2 * amplitude / (pi * total)
    out[left] = (shape * sigma**2 / (sigma**2 + (x - center) ** 2))[left]
    out[~left] = (shape * sigma_r**2 / (sigma_r**2 + (x - center) ** 2))[~left]
    return out


def table_of_widths(sigmas, isotropic=True):
    """Whether ``float`` is still a type where it is looked up by name."""
    widths = zeros(len(sigmas), dtype=float)
    for i, s in enumerate(sigmas):
        widths[i] = s if isinstance(s, float) else float(s)
    return widths if isotropic else array([widths, widths])


# ---- an autoregressive process


class AR1:
    """Exact Gaussian likelihood of y[t] = c + phi * y[t-1] + e[t]."""

    def __init__(self, endog):
        self.endog = np.asarray(endog, dtype=np.float64)
        self.nobs = len(self.endog)

    def residuals(self, params):
        const, phi = params[0], params[1]
        resid = np.empty(self.nobs)
        resid[0] = self.endog[0] - const / (1 - phi)
        for t in range(1, self.nobs):
            resid[t] = self.endog[t] - const - phi * self.endog[t - 1]
        return resid

    def loglike(self, params):
        params = np.asarray(params)
        sigma2 = np.exp(params[2])
        scale = np.ones(self.nobs)
        scale[0] = 1 / (1 - params[1] ** 2)
        resid = self.residuals(params)
        return -0.5 * np.sum(np.log(2 * np.pi * sigma2 * scale) + resid**2 / (sigma2 * scale))


# ---- a filter of a local linear trend


class TrendFilter:
    def __init__(self, obs, dt=1.0):
        self.obs, self.dt = np.asarray(obs), dt

    def matrices(self, q, r):
        transition = np.array([[1.0, self.dt], [0.0, 1.0]])
        noise = np.array([[self.dt**3 / 3, self.dt**2 / 2], [self.dt**2 / 2, self.dt]]) * q
        return transition, noise, np.array([[r]])

    def loglike(self, q, r):
        transition, noise, error = self.matrices(q, r)
        design = np.array([[1.0, 0.0]])
        n = len(self.obs)
        means, variances = np.zeros((n + 1, 2)), np.zeros((n + 1, 2, 2))
        variances[0] = np.eye(2)
        total = 0.0
        for t in range(n):
            innovation = self.obs[t] - design @ means[t]
            spread = design @ variances[t] @ design.T + error
            gain = np.linalg.solve(spread, design @ variances[t]).T
            _, logdet = np.linalg.slogdet(2 * np.pi * spread)
            total -= 0.5 * (logdet + (innovation @ np.linalg.inv(spread) @ innovation))
            updated = means[t] + gain @ innovation
            cov = variances[t] - gain @ design @ variances[t]
            means[t + 1] = transition @ updated
            variances[t + 1] = transition @ cov @ transition.T + noise
        return total

    def covariance(self, q, r):
        """Of all observations together."""
        transition, noise, error = self.matrices(q, r)
        n = len(self.obs)
        states = [np.eye(2)]
        for _ in range(n - 1):
            states.append(transition @ states[-1] @ transition.T + noise)
        rows = []
        for i in range(n):
            row = []
            for j in range(n):
                first, lag = min(i, j), abs(i - j)
                cov = np.linalg.matrix_power(transition, lag) @ states[first]
                row.append(cov[0, 0] + (error[0, 0] if i == j else 0.0))
            rows.append(np.stack(row))
        return np.stack(rows)


# ---- thin films


def reflectance(indices, thicknesses, wavelength):
    """Of a stack of layers at normal incidence, by its transfer matrix."""
    total = np.eye(2, dtype=complex)
    for n, d in zip(indices[1:-1], thicknesses, strict=True):
        phase = 2 * np.pi * n * d / wavelength
        layer = np.array([
            [np.cos(phase), 1j * np.sin(phase) / n],
            [1j * n * np.sin(phase), np.cos(phase)],
        ])
        total = total @ layer
    b, c = np.dot(total, np.array([1.0, indices[-1]]))
    r = (indices[0] * b - c) / (indices[0] * b + c)
    return (r * np.conj(r)).real


# ---- Runge and Kutta


class RungeKutta4:
    def __init__(self, fun, t0, y0, step):
        self.fun, self.t, self.step = fun, float(t0), step
        self.y = np.array(y0)
        self.k = np.empty((4, self.y.size), self.y.dtype)
        self.history = [self.y.copy()]

    def advance(self):
        h, k = self.step, self.k
        k[0] = self.fun(self.t, self.y)
        k[1] = self.fun(self.t + h / 2, self.y + h / 2 * k[0])
        k[2] = self.fun(self.t + h / 2, self.y + h / 2 * k[1])
        k[3] = self.fun(self.t + h, self.y + h * k[2])
        self.y += h / 6 * np.dot(np.array([1.0, 2.0, 2.0, 1.0]), k)
        self.t += h
        self.history.append(self.y.copy())

    def run(self, steps):
        for _ in range(steps):
            self.advance()
        return np.array(self.history)


# ---- options


def normal_cdf(x):
    return 0.5 * (1 + erf(x / sqrt(2)))


def call_price(spot, strike, rate, vol, years):
    d1 = (math.log(spot / strike) + (rate + vol**2 / 2) * years) / (vol * math.sqrt(years))
    d2 = d1 - vol * math.sqrt(years)
    return spot * normal_cdf(d1) - strike * math.exp(-rate * years) * normal_cdf(d2)
