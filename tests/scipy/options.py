"""Calls in which options are traced: fill values, ends, weights, steps, exponents."""

from typing import Any

import numpy as np

from tests.scipy.calls import (
    ENTRIES,
    GENERAL,
    GRID,
    HEIGHTS,
    IMAGE,
    INSIDE,
    KNOTS,
    LONG,
    LONG_GRID,
    METRICS,
    OTHER,
    POINTS,
    POSITIVE,
    RIGHT,
    SECTION,
    SMALL,
    SPD,
    START,
    VECTOR,
    WEIGHTS,
    B,
    Call,
    bowl,
    decay,
    gaps,
    section,
    sparse_matrix,
)


def option(name: str, value: Any, *first: Any, **rest: Any) -> Call:
    """A call whose only traced value is an option."""
    return lambda f, v: f(*first, **{name: v}, **rest), (value,)


def option_at(name: str, value: Any, points: Any, *first: Any, **rest: Any) -> Call:
    """An interpolant at points, with the only traced value an option."""
    return lambda f, v: f(*first, **{name: v}, **rest)(points), (value,)


OUTSIDE = np.array([-0.7, 1.9, 6.1])
HIGH = np.array([[1.1, 6.5], [5.6, 2.2]])
OPTIONS = {
    "integrate.cumulative_simpson": [option("dx", 0.7, HEIGHTS), option("initial", 0.7, HEIGHTS)],
    "integrate.cumulative_trapezoid": [option("dx", 0.7, HEIGHTS)],
    "integrate.simpson": [option("dx", 0.7, HEIGHTS)],
    "integrate.trapezoid": [option("dx", 0.7, HEIGHTS)],
    "integrate.quad": [(lambda f, p: f(decay, 0.0, 1.0, args=(0.7,), points=[p])[0], (0.4,)),
        *[(lambda f, a, b, c, w, k=k: f(decay, a, b, args=(c,), weight=k, wvar=w)[0],
           (0.1, 2.2, 0.7, 9.0)) for k in ("cos", "sin")]],
    "linalg.eigh": [(lambda f, a, b, k=k: [y * y for y in f(a, b, type=k)],
                     (SPD, SPD + np.diag([1.0, 0.5, 0.2]))) for k in (2, 3)],
    "linalg.qr": [(lambda f, a: [y * y for y in f(a, pivoting=True)[:2]], (GENERAL,))],
    "interpolate.CubicSpline": [
        (lambda f, a, b: f(GRID, HEIGHTS, bc_type=((1, a), (2, b)))(INSIDE), (0.4, 0.7))],
    "interpolate.make_interp_spline": [
        (lambda f, a, b: f(GRID, HEIGHTS, bc_type=([(1, a)], [(2, b)]))(INSIDE), (0.4, 0.7)),
        option_at("t", GRID[[0, 0, 0, 0, 2, 3, 4, 6, 6, 6, 6]], INSIDE, GRID, HEIGHTS)],
    "interpolate.make_lsq_spline": [option_at("w", POSITIVE.repeat(8), INSIDE, LONG_GRID, LONG,
                                              KNOTS)],
    "interpolate.interp1d": [
        option_at("fill_value", 0.7, OUTSIDE, GRID, HEIGHTS, bounds_error=False),
        (lambda f, a, b: f(GRID, HEIGHTS, bounds_error=False, fill_value=(a, b))(OUTSIDE),
         (0.7, 0.2))],
    "interpolate.RegularGridInterpolator": [
        option_at("fill_value", 0.7, HIGH, (np.arange(6.0), np.arange(7.0)), IMAGE,
                  bounds_error=False)],
    "interpolate.interpn": [option("fill_value", 0.7, (np.arange(6.0), np.arange(7.0)), IMAGE, HIGH,
                                   bounds_error=False)],
    "interpolate.UnivariateSpline": [
        option_at("w", POSITIVE[[0, 1, 2, 3, 4, 0, 1]], INSIDE, GRID, HEIGHTS, s=0.5),
        option_at("s", 0.5, INSIDE, GRID, HEIGHTS),
        (lambda f, a: f(GRID, HEIGHTS, bbox=(a, 5.5), s=0)(INSIDE), (-0.3,))],
    "interpolate.InterpolatedUnivariateSpline": [
        (lambda f, a: f(GRID, HEIGHTS, bbox=(a, 5.5))(INSIDE), (-0.3,))],
    "interpolate.LSQUnivariateSpline": [option_at("t", np.array([2.1]), INSIDE, GRID, HEIGHTS)],
    "interpolate.splrep": [(lambda f, s: f(GRID, HEIGHTS, s=s)[1], (0.5,)),
                           (lambda f, a: f(GRID, HEIGHTS, xb=a, s=0)[1], (-0.3,))],
    "optimize.curve_fit": [
        (lambda f, s: f(lambda x, a, b: a * np.exp(-b * x), GRID, HEIGHTS + 1, [1.0, 0.5], s,
                        ftol=1e-14, xtol=1e-14)[0], (1 + 0.1 * GRID,)),
        (lambda f, b: f(lambda x, a: a + 0 * x, GRID, HEIGHTS, [0.1], bounds=(-1.0, b))[0], (0.2,)),
    ],
    "optimize.least_squares": [
        (lambda f, b: f(lambda x: x - 2.0, np.zeros(2), bounds=(-1.0, b)).x, (0.7,)),
        (lambda f, c: f(gaps, START, args=(0.7,), loss="soft_l1", f_scale=c, xtol=1e-14,
                        ftol=1e-14, gtol=1e-14).x, (0.4,))],
    "optimize.minimize": [
        (lambda f, b: f(bowl, START, args=(0.7,), bounds=[(-1.0, b), (-1.0, 2.0)]).x[0], (0.3,))],
    "optimize.linprog": [
        (lambda f, b: f(np.array([-1.0, -2.0]), bounds=[(0.0, b), (0.0, 2.0)]).x, (0.7,))],
    "optimize.minimize_scalar": [
        (lambda f, b: f(lambda x: x, bounds=(b, 2.0), method="bounded", options={"xatol": 1e-12}).x,
         (0.3,))],
    "linalg.lstsq": [(lambda f, c: f(POINTS, VECTOR[:4], cond=c)[0], (1e-3,))],
    "linalg.pinv": [option("rtol", 1e-3, GENERAL)],
    "linalg.solve_continuous_are": [
        (lambda f, e, s: f(SMALL, RIGHT, SPD, SPD[:2, :2], e, 0.1 * s), (SPD, RIGHT))],
    **{f"ndimage.{n}": [option("cval", 0.7, IMAGE, *w, mode="constant")] for n, w in {
        "convolve": [GENERAL], "correlate": [GENERAL], "convolve1d": [WEIGHTS],
        "correlate1d": [WEIGHTS], "gaussian_filter": [0.8], "gaussian_filter1d": [0.8],
        "gaussian_gradient_magnitude": [0.8], "gaussian_laplace": [0.8], "laplace": [],
        "prewitt": [], "sobel": [], "uniform_filter": [], "uniform_filter1d": [3],
        "maximum_filter": [3], "minimum_filter": [3], "maximum_filter1d": [3],
        "minimum_filter1d": [3], "median_filter": [3], "percentile_filter": [30, 3],
        "rank_filter": [2, 3], "affine_transform": [GENERAL[:2, :2]], "map_coordinates": [HIGH],
        "rotate": [12.0], "shift": [0.4], "zoom": [1.5]}.items()},
    "signal.convolve2d": [option("fillvalue", 0.7, IMAGE, GENERAL)],
    "signal.correlate2d": [option("fillvalue", 0.7, IMAGE, GENERAL)],
    "signal.lfilter": [option("zi", VECTOR[:2], WEIGHTS, np.array([1.0, -0.4]), LONG)],
    "signal.sosfilt": [option("zi", RIGHT[:1], section(SECTION).tolist(), LONG)],
    **{f"signal.{n}": [(lambda f, v: f(LONG, fs=v, nperseg=16), (0.7,))]
       for n in ("welch", "stft")},
    "signal.csd": [(lambda f, v: f(LONG, LONG, fs=v, nperseg=16), (0.7,))],
    "signal.coherence": [(lambda f, v: f(LONG, LONG, fs=v, nperseg=16), (0.7,))],
    "signal.periodogram": [option("fs", 0.7, LONG), option("window", 1 + abs(LONG), LONG)],
    "signal.freqz": [option("fs", 0.7, WEIGHTS, np.array([1.0, -0.4]), worN=5),
                     option("worN", VECTOR, WEIGHTS, np.array([1.0, -0.4]))],
    "signal.resample": [option("window", 1 + abs(LONG), LONG, 25),
                        option("t", np.arange(40.0), LONG, 25)],
    "signal.resample_poly": [option("window", WEIGHTS, LONG, 3, 2)],
    "signal.savgol_filter": [option("cval", 0.7, LONG, 5, 2, mode="constant")],
    "signal.upfirdn": [option("cval", 0.7, WEIGHTS, LONG, mode="constant")],
    **{f"sparse.linalg.{n}": [(lambda f, x: f(sparse_matrix(ENTRIES), B, x, rtol=1e-13)[0], (B,))]
       for n in ("bicgstab", "gmres")},
    "sparse.linalg.expm_multiply": [
        (lambda f, a, b: f(sparse_matrix(ENTRIES), B, start=a, stop=b, num=3), (0.1, 0.4))],
    **{f"spatial.distance.{n}": [option("w", OTHER**2, POSITIVE, POSITIVE[::-1] + 0.3)]
       for n in METRICS if n != "jensenshannon"},
    "spatial.distance.jensenshannon": [option("base", 2.2, POSITIVE, OTHER**2)],
    "spatial.distance.cdist": [option("p", 2.3, POINTS, IMAGE[:, :3], metric="minkowski"),
                               option("V", WEIGHTS, POINTS, IMAGE[:, :3], metric="seuclidean"),
                               option("VI", SPD, POINTS, IMAGE[:, :3], metric="mahalanobis"),
                               option("w", WEIGHTS, POINTS, IMAGE[:, :3], metric="cityblock")],
    "spatial.distance_matrix": [option("p", 2.3, POINTS, IMAGE[:, :3])],
    "spatial.minkowski_distance": [option("p", 2.3, POINTS, POINTS + 0.3)],
    "spatial.minkowski_distance_p": [option("p", 2.3, POINTS, POINTS + 0.3)],
    "spatial.distance.minkowski": [option("p", 2.3, VECTOR, OTHER)],
    **{f"stats.{n}": [option("u_weights", POSITIVE, VECTOR, OTHER),
                      option("v_weights", POSITIVE, VECTOR, OTHER)]
       for n in ("energy_distance", "wasserstein_distance")},
    "stats.entropy": [option("base", 2.2, POSITIVE)],
    **{f"stats.{n}": [option("weights", OTHER**2, POSITIVE)] for n in ("gmean", "hmean")},
    "stats.pmean": [option("weights", OTHER**2, POSITIVE, 1.7)],
    "stats.median_abs_deviation": [option("scale", 1.7, POSITIVE)],
    "stats.moment": [option("center", 0.4, POSITIVE, order=3)],
    **{f"stats.{n}": [option("ddof", 1.0, POSITIVE)]
       for n in ("describe", "gstd", "gzscore", "sem", "variation", "zscore")},
    "stats.zmap": [option("ddof", 1.0, POSITIVE, VECTOR)],
    "special.logsumexp": [option("b", POSITIVE, VECTOR, return_sign=True)],
}
