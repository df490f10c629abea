"""A valid call of each of SciPy's names that take traced values, for tests of all of them.

An entry is a function of SciPy's function (or class) and of the floats that may be traced, and
those floats. What else a call needs, as counts and functions, is in the entry itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.scipy_names import NAMES
from functrans.scipy import special, stats

Call = tuple[Callable, tuple]


def of(*xs: Any, **options: Any) -> Call:
    """A call with what may be traced, besides constant options."""
    return lambda f, *xs: f(*xs, **options), xs


def after(*first: Any, then: tuple, **options: Any) -> Call:
    """A call with constants before the floats."""
    return lambda f, *xs: f(*first, *xs, **options), then


def method(name: str, *xs: Any) -> Call:
    """A method of a distribution."""
    return lambda dist, *xs: getattr(dist, name)(*xs), xs


VECTOR = np.array([0.31, 1.12, -0.47, 0.83, 0.56])
OTHER = np.array([0.91, -0.42, 0.37, 1.23, 0.68])
POSITIVE = np.array([0.4, 1.3, 0.7, 2.1, 1.1])
SHARES = np.array([0.2, 0.3, 0.5])
LONG = np.sin(1.7 * np.arange(40.0) ** 1.3)
WEIGHTS = np.array([0.3, 0.5, 0.15])
GRID = np.array([0.0, 0.7, 1.5, 2.6, 3.1, 4.4, 5.2])
HEIGHTS = np.array([0.3, 1.2, -0.5, 0.9, 2.0, 0.4, 0.1])
INSIDE = np.array([0.33, 1.91, 3.73])
GENERAL = np.array([[2.3, 0.4, -0.3], [0.5, 1.9, 0.6], [-0.2, 0.7, 1.6]])
SPD = np.array([[2.0, 0.3, 0.1], [0.3, 1.5, -0.2], [0.1, -0.2, 1.2]])
SMALL = 0.4 * GENERAL
RIGHT = np.array([[0.2, 1.1], [0.7, -0.4], [1.3, 0.5]])
IMAGE = np.cos(2.3 * np.arange(42.0) ** 1.2).reshape(6, 7)
POINTS = np.cos(1.9 * np.arange(12.0) ** 1.4).reshape(4, 3)
BAND = np.array([[0.0, 0.4, 0.3, 0.2], [3.0, 2.7, 2.9, 3.3], [0.5, 0.1, 0.6, 0.0]])
HALF_BAND = np.array([[0.0, 0.4, 0.3, 0.2], [3.0, 2.7, 2.9, 3.3]])
QUATERNION = np.array([0.1, -0.3, 0.5, 0.8])
KNOTS = np.array([0.0, 0.0, 0.0, 0.0, 1.3, 2.9, 5.2, 5.2, 5.2, 5.2])
COEFFICIENTS = np.array([0.3, 1.1, -0.2, 0.7, 0.9, 0.4])
PADDED = np.append(COEFFICIENTS, np.zeros(4))
SECTION = np.array([0.2, 0.3, 0.1, -0.4, 0.2])


def decay(x: Any, a: Any) -> Any:
    return np.exp(-a * x * x)


def rate(t: Any, y: Any, a: Any) -> Any:
    return np.stack([-a * y[0] + 0.1 * t, a * y[0] - 0.3 * y[1] ** 2])


def cubic(x: Any, a: Any) -> Any:
    return x**3 + a * x - 1.0


def bowl(x: Any, a: Any) -> Any:
    return np.sum(x**4 + a * x * x - x)


def incline(x: Any, a: Any) -> Any:
    return 4 * x**3 + 2 * a * x - 1


def gaps(x: Any, a: Any) -> Any:
    return np.stack([x[0] - a, x[1] ** 2 - a * x[0], x[0] * x[1] - 1.0])


def pair(x: Any, a: Any) -> Any:
    return np.stack([x[0] + a * x[1] - 1.0, x[0] * x[1] + x[1] ** 3 - a])


# ---- special

# Arguments of those ufuncs that have no derivative, no value or a kink at the usual ones.
UFUNCS = {
    "bdtr": (2.0, 5, 0.3), "bdtrc": (2.0, 5, 0.3), "nbdtr": (2.0, 5.0, 0.3),
    "nbdtrc": (2.0, 5.0, 0.3), "pdtr": (2.0, 1.3), "pdtrc": (2.0, 1.3), "pdtri": (2.0, 0.3),
    "eval_hermite": (2, 0.3), "eval_hermitenorm": (2, 0.3),
    "elliprj": (0.4, 0.6, 0.8, 1.2), "eval_jacobi": (2.0, 0.4, 0.7, 0.3),
    "eval_sh_jacobi": (2.0, 1.9, 0.7, 0.3), "hyp2f1": (0.4, 0.7, 1.3, 0.3), "zeta": (2.3, 1.4),
    "zetac": (2.3,), "expn": (2, 0.7), "jn": (1, 0.7), "yn": (1, 0.7), "kn": (1, 0.7),
    "log_ndtr": (-0.7,), "ndtri_exp": (-0.7,), "radian": (12.0, 3.0, 4.0), "binom": (5.3, 2.4),
    "wofz": (0.3 + 0.4j,), "hankel1": (1.2, 0.7), "hankel2": (1.2, 0.7), "fdtri": (3.1, 4.2, 0.4),
    "huber": (1.0, 0.4), "boxcox": (0.7, 0.4), "owens_t": (0.6, 0.7), "sinc": (0.37,),
    "kv": (0.4, 0.7),
}
USUAL = (0.37, 0.62, 0.45, 0.71)


def ufunc_calls() -> dict[str, list[Call]]:
    names = NAMES["special"].called.split()
    arity = {name: getattr(getattr(special, name), "nin", 1) for name in names}
    return {f"special.{n}": [of(*UFUNCS.get(n) or USUAL[: arity[n]])] for n in names}


SPECIAL = {
    "comb": [of(5.3, 2.4)], "perm": [of(5.3, 2.4)], "factorial": [of(2.6)],
    **{n: [after(1, then=(0.7,))] for n in ("h1vp", "h2vp", "ivp", "jvp", "kvp", "yvp")},
    **{f"spherical_{n}": [after(1, then=(0.7,))] for n in ("in", "jn", "kn", "yn")},
    "lambertw": [of(0.7)], "log_softmax": [of(VECTOR)], "softmax": [of(VECTOR)],
    "logsumexp": [of(VECTOR), (lambda f, a, b: f(a, b=b), (VECTOR, POSITIVE))],
    "multigammaln": [(lambda f, a: f(a, 2), (2.6,))], "polygamma": [after(1, then=(1.7,))],
}

# ---- stats

DISTRIBUTIONS = {
    "norm": (), "t": (3.5,), "cauchy": (), "laplace": (), "logistic": (), "gumbel_r": (),
    "gumbel_l": (), "skewnorm": (1.3,), "truncnorm": (-1.2, 2.1), "vonmises": (1.7,), "expon": (),
    "weibull_min": (1.7,), "pareto": (2.6,), "lognorm": (0.7,), "halfnorm": (), "gamma": (2.3,),
    "chi2": (4.2,), "invgamma": (3.3,), "uniform": (), "beta": (2.2, 3.1), "f": (5.1, 6.3),
    "genpareto": (0.3,), "genextreme": (-0.2,),
}
COUNTS = {"bernoulli": (0.3,), "binom": (7.0, 0.3), "nbinom": (4.5, 0.4), "poisson": (2.7,),
          "geom": (0.35,)}
SLOW = [("vonmises", "var"), ("vonmises", "std")]  # SciPy integrates
MOMENTS = ("mean", "var", "std", "entropy", "median")


def distribution_calls() -> dict[str, list[Call]]:
    calls = {}
    for name, shapes in DISTRIBUTIONS.items():
        x = getattr(stats, name).ppf(0.3, *shapes, 0.3, 1.7)
        variables = {"ppf": (0.3,), "isf": (0.3,), "interval": (0.6,)} | dict.fromkeys(MOMENTS, ())
        calls[f"stats.{name}"] = [
            method(m, *variables.get(m, (x,)), *shapes, 0.3, 1.7)
            for m in getattr(stats, name)._has()
            if (name, m) not in SLOW
        ]
    for name, shapes in COUNTS.items():
        calls[f"stats.{name}"] = [
            method(m, *(() if m in MOMENTS else (1.0,)), *shapes)
            for m in getattr(stats, name)._has()
        ]
    return calls


WHOLE = np.array([1.0, 2.0, 1.0])
MEAN = np.array([0.2, -0.4, 0.1])
STATS = {
    "multivariate_normal": [
        method("pdf", VECTOR[:3], MEAN, SPD), method("logpdf", VECTOR[:3], MEAN, SPD),
        (lambda d, m, c: d.entropy(m, c), (MEAN, SPD)),
    ],
    "multivariate_t": [
        method("pdf", VECTOR[:3], MEAN, SPD, 3.4), method("logpdf", VECTOR[:3], MEAN, SPD, 3.4),
        method("entropy", MEAN, SPD, 3.4),
    ],
    "dirichlet": [
        (lambda d, a: d.logpdf(SHARES, a), (POSITIVE[:3],)),
        (lambda d, a: d.pdf(SHARES, a), (POSITIVE[:3],)),
        *[method(m, POSITIVE[:3]) for m in ("mean", "var", "cov", "entropy")],
    ],
    "multinomial": [
        *[(lambda d, x, n, p, m=m: getattr(d, m)(x, n, p / p.sum()), (WHOLE, 4.0, SHARES))
          for m in ("logpmf", "pmf")],
        *[(lambda d, n, p, m=m: getattr(d, m)(n, p / p.sum()), (4.0, SHARES))
          for m in ("cov", "entropy")],
    ],
    "wishart": [
        *[(lambda d, x, n, s, m=m: getattr(d, m)(x + x.T, n, s + s.T), (SPD, 4.3, SPD + np.eye(3)))
          for m in ("logpdf", "pdf")],
        *[method(m, 4.3, SPD) for m in ("mean", "var", "mode", "entropy")],
    ],
    "gaussian_kde": [
        (lambda f, x, w, p: f(x, weights=w).pdf(p), (VECTOR, POSITIVE, INSIDE)),
        (lambda f, x, p: f(x).logpdf(p), (VECTOR, INSIDE)),
        (lambda f, x, h, p: f(x, h).pdf(p), (VECTOR, 0.6, INSIDE)),
        (lambda f, x, h, p: f(x, lambda kde: h * kde.silverman_factor())(p), (VECTOR, 0.6, INSIDE)),
        (lambda f, x, w, a, b: f(x, "silverman", w).integrate_box_1d(a, b),
         (VECTOR, POSITIVE, -0.2, 0.7)),
    ],
    "describe": [(lambda f, x: f(x)[2:], (LONG,))],
    "energy_distance": [of(VECTOR, OTHER)], "wasserstein_distance": [of(VECTOR, OTHER)],
    "entropy": [of(POSITIVE), of(POSITIVE, POSITIVE[::-1].copy())],
    **{n: [of(POSITIVE)] for n in ("gmean", "gstd", "gzscore", "hmean", "variation")},
    **{n: [of(VECTOR)] for n in ("kurtosis", "skew", "sem", "zscore", "median_abs_deviation")},
    **{n: [of(VECTOR, OTHER)] for n in ("pearsonr", "kendalltau", "spearmanr")},
    "linregress": [
        (lambda f, x, y: (r := f(x, y), r.intercept_stderr)[1] + sum(r), (VECTOR, OTHER)),
    ],
    "moment": [of(VECTOR, order=3)], "pmean": [of(POSITIVE, 1.7)], "rankdata": [of(VECTOR)],
    "trim_mean": [of(LONG, 0.12)], "zmap": [of(VECTOR, OTHER)],
}

# ---- solvers and integrals

T = np.array([0.0, 0.3, 0.8, 1.1])


def solved(f: Callable, y0: Any, t: Any, a: Any) -> Any:
    return f(rate, (0.0, 1.3), y0, t_eval=t, args=(a,), rtol=1e-9, atol=1e-9).y


def bounded(f: Callable, a: Any, x: Any) -> Any:
    sol = f(lambda x, y: np.stack([y[1], a * np.sin(y[0])]),
            lambda y, z: np.stack([y[0] - a, z[0] - 1.0]), x, np.ones((2, 21)), tol=1e-9)
    return sol.y[:, [0, -1]], sol.yp[:, [0, -1]]


INTEGRATE = {
    "cumulative_simpson": [(lambda f, y, x: f(y, x=x), (HEIGHTS, GRID))],
    "cumulative_trapezoid": [of(HEIGHTS, GRID)], "trapezoid": [of(HEIGHTS, GRID)],
    "simpson": [(lambda f, y, x: f(y, x=x), (HEIGHTS, GRID))],
    "dblquad": [(lambda f, a, b, c, d: f(lambda y, x: np.exp(-x * y), a, b, c, d)[0],
                 (0.1, 0.9, 0.2, 1.3))],
    "nquad": [(lambda f, a, b, c: f(lambda x, y, c: np.exp(-c * x * y),
                                   [lambda y, c: (a, y), (0.1, b)], (c,))[0], (0.05, 0.9, 0.7))],
    "tplquad": [(lambda f, a, b: f(lambda z, y, x: x * y * z, a, b, 0.1, 0.4, 0.0, 0.9)[0],
                 (0.2, 0.9))],
    "fixed_quad": [(lambda f, a, b, c: f(decay, a, b, args=(c,), n=5)[0], (0.1, 1.2, 0.7))],
    "quad": [(lambda f, a, b, c: f(decay, a, b, args=(c,))[0], (0.1, 1.2, 0.7)),
             (lambda f, a, c: f(decay, a, np.inf, args=(c,))[0], (0.1, 0.7))],
    "quad_vec": [(lambda f, a, b, c: f(decay, a, b, args=(c,))[0], (0.1, 1.2, 0.7))],
    "odeint": [(lambda f, y, t, a: f(rate, y, t, args=(a,), tfirst=True, rtol=1e-10, atol=1e-10),
                (np.array([1.0, 0.4]), T, 0.7))],
    "solve_bvp": [(bounded, (0.7, np.linspace(0.0, 1.2, 21)))],
    "solve_ivp": [(solved, (np.array([1.0, 0.4]), T[1:], 0.7))],
}


def rooted(f: Callable, a: Any, *x: Any, **options: Any) -> Any:
    return f(cubic, *x, args=(a,), **options)


START = np.array([0.5, 0.6])
OPTIMIZE = {
    **{n: [(lambda f, a, low, high: rooted(f, a, low, high), (0.7, 0.1, 1.3))]
       for n in ("bisect", "brenth", "brentq", "ridder", "toms748")},
    "newton": [(lambda f, a, x: rooted(f, a, x), (0.7, 0.5))],
    "root_scalar": [(lambda f, a, x: rooted(f, a, x0=x, x1=0.9).root, (0.7, 0.5))],
    "fixed_point": [(lambda f, a, x: f(lambda x, a: np.cos(a * x), x, args=(a,)), (0.7, 0.5))],
    "fsolve": [(lambda f, a, x: f(pair, x, args=(a,)), (0.7, START))],
    "root": [(lambda f, a, x: f(pair, x, args=(a,)).x, (0.7, START))],
    "minimize": [(lambda f, a, x: f(bowl, x, args=(a,), method="Newton-CG", jac=incline,
                                             tol=1e-12).x, (0.7, START))],
    "minimize_scalar": [(lambda f, a: f(lambda x, a: x**4 + a * x * x - x, args=(a,)).x, (0.7,))],
    "least_squares": [(lambda f, a, x: f(gaps, x, args=(a,), xtol=1e-14, ftol=1e-14, gtol=1e-14).x,
                       (0.7, START))],
    "leastsq": [(lambda f, a, x: f(gaps, x, args=(a,), xtol=1e-14, ftol=1e-14)[0], (0.7, START))],
    "curve_fit": [(lambda f, x, y: f(lambda x, a, b: a * np.exp(-b * x), x, y, p0=[1.0, 0.5],
                                     ftol=1e-14, xtol=1e-14)[0],
                   (GRID, np.exp(-GRID) + 0.1 * HEIGHTS))],
    "linprog": [(lambda f, c, A, b: f(c, A, b).x,
                 (np.array([-1.0, -2.0]), np.array([[1.0, 1.0], [0.3, 1.5]]),
                  np.array([2.0, 1.6])))],
    "nnls": [of(POINTS, VECTOR[:4])],
    "lsq_linear": [(lambda f, A, b, u: f(A, b, (-1.0, u)).x, (POINTS, VECTOR[:4], 0.2))],
    "rosen": [of(VECTOR)], "rosen_der": [of(VECTOR)], "rosen_hess": [of(VECTOR)],
    "rosen_hess_prod": [of(VECTOR, OTHER)],
}

# ---- linalg


def fixed_signs(f: Callable, *xs: Any) -> Any:
    return [y * y for y in f(*xs)]


LINALG = {
    "block_diag": [of(GENERAL, RIGHT)], "circulant": [of(VECTOR)], "companion": [of(POSITIVE)],
    "convolution_matrix": [(lambda f, a: f(a, 3), (VECTOR,))], "fiedler": [of(VECTOR)],
    "hankel": [of(VECTOR, np.append(VECTOR[-1], OTHER))], "khatri_rao": [of(RIGHT, RIGHT + 0.3)],
    "leslie": [of(POSITIVE, POSITIVE[1:])], "toeplitz": [of(VECTOR, OTHER)],
    "matmul_toeplitz": [(lambda f, c, r, x: f((c, r), x), (VECTOR, OTHER, POSITIVE))],
    "solve_toeplitz": [(lambda f, c, r, b: f((c, r), b),
                        (VECTOR + 3 * np.eye(5)[0], OTHER, POSITIVE))],
    **{n: [of(SMALL)] for n in ("coshm", "cosm", "expm", "sinhm", "sinm", "tanhm", "tanm")},
    **{n: [of(GENERAL)] for n in ("det", "inv", "logm", "norm", "pinv", "sqrtm", "svdvals", "lu")},
    "fractional_matrix_power": [(lambda f, a: f(a, 0.6), (GENERAL,)), of(GENERAL, 0.6)],
    "expm_frechet": [(lambda f, a, e: f(a, e), (SMALL, GENERAL))],
    "cholesky": [of(SPD)], "cho_factor": [(lambda f, a: np.triu(f(a)[0]), (SPD,))],
    "cho_solve": [(lambda f, c, b: f((c, True), b), (np.linalg.cholesky(SPD), RIGHT))],
    "eigh": [(fixed_signs, (SPD,)), (fixed_signs, (SPD, SPD + np.diag([1.0, 0.5, 0.2])))],
    "eigvalsh": [of(SPD), of(SPD, SPD + np.diag([1.0, 0.5, 0.2]))],
    "eigh_tridiagonal": [(fixed_signs, (POSITIVE, VECTOR[:4]))],
    "eigvalsh_tridiagonal": [of(POSITIVE, VECTOR[:4])],
    "lstsq": [(lambda f, a, b: f(a, b)[0], (POINTS, VECTOR[:4]))],
    "lu_factor": [(lambda f, a: f(a)[0], (GENERAL,))],
    "lu_solve": [(lambda f, lu, b: f((lu, np.array([0, 1, 2])), b), (GENERAL, RIGHT))],
    "null_space": [of(POINTS[:2])], "orth": [of(GENERAL)], "schur": [of(GENERAL)],
    "polar": [of(GENERAL)], "qr": [(fixed_signs, (GENERAL,))],
    "solve": [of(GENERAL, RIGHT), of(SPD, RIGHT, assume_a="pos")],
    "solve_banded": [after((1, 1), then=(BAND, VECTOR[:4]))],
    **{n: [(lambda f, a, b, q, r: f(a, b, q + q.T, r + r.T), (SMALL, RIGHT, SPD, SPD[:2, :2]))]
       for n in ("solve_continuous_are", "solve_discrete_are")},
    "solve_continuous_lyapunov": [of(GENERAL, SPD)], "solve_discrete_lyapunov": [of(SMALL, SPD)],
    "solve_sylvester": [of(GENERAL, SPD, GENERAL.T.copy())],
    "solve_triangular": [of(GENERAL, RIGHT)], "solveh_banded": [of(HALF_BAND, VECTOR[:4])],
    "svd": [(fixed_signs, (GENERAL,))],
}

# ---- interpolate


def at(f: Callable, x: Any, y: Any, points: Any) -> Any:
    return f(x, y)(points)


def surface(f: Callable, z: Any, x: Any, y: Any) -> Any:
    return f(np.arange(6.0), np.arange(7.0), z)(x, y)


def on_grid(f: Callable, z: Any, p: Any) -> Any:
    return f((np.arange(6.0), np.arange(7.0)), z)(p)


SITES = np.array([[1.2, 2.7], [3.4, 4.1], [0.3, 5.6]])
SPLINE = (lambda f, c, x: f((KNOTS, c, 3), x), (COEFFICIENTS, INSIDE))
INTERPOLATE = {
    **{n: [(at, (GRID, HEIGHTS, INSIDE))] for n in (
        "Akima1DInterpolator", "CubicSpline", "PchipInterpolator", "InterpolatedUnivariateSpline",
        "interp1d", "make_interp_spline")},
    "BSpline": [(lambda f, t, c, x: f(t, c, 3)(x), (KNOTS, COEFFICIENTS, INSIDE))],
    "CubicHermiteSpline": [(lambda f, x, y, s, p: f(x, y, s)(p),
                            (GRID, HEIGHTS, HEIGHTS[::-1].copy(), INSIDE))],
    "LSQUnivariateSpline": [(lambda f, y, p: f(GRID, y, [2.1])(p), (HEIGHTS, INSIDE))],
    "PPoly": [(lambda f, c, x, p: f(c, x)(p), (IMAGE[:, :6], GRID, INSIDE))],
    "RectBivariateSpline": [(surface, (IMAGE, np.sort(SITES[:, 0]), SITES[:, 1]))],
    "RegularGridInterpolator": [(on_grid, (IMAGE, SITES))],
    "UnivariateSpline": [(lambda f, y, p: f(GRID, y, s=0)(p), (HEIGHTS, INSIDE))],
    "interpn": [(lambda f, z, p: f((np.arange(6.0), np.arange(7.0)), z, p), (IMAGE, SITES))],
    "make_lsq_spline": [(lambda f, y, p: f(LONG_GRID, y, KNOTS)(p), (LONG, INSIDE))],
    "make_smoothing_spline": [(lambda f, x, y, w, lam, p: f(x, y, w=w, lam=lam)(p),
                               (GRID, HEIGHTS, POSITIVE[[0, 1, 2, 3, 4, 0, 1]], 0.4, INSIDE))],
    "pchip_interpolate": [of(GRID, HEIGHTS, INSIDE)],
    "splantider": [(lambda f, c: f((KNOTS, c, 3))[1], (PADDED,))],
    "splder": [(lambda f, c: f((KNOTS, c, 3))[1], (PADDED,))],
    "splev": [(lambda f, c, x: f(x, (KNOTS, c, 3)), (COEFFICIENTS, INSIDE))],
    "splint": [(lambda f, c, a, b: f(a, b, (KNOTS, c, 3)), (COEFFICIENTS, 0.4, 3.3))],
    "splrep": [(lambda f, y: f(GRID, y, s=0)[1], (HEIGHTS,))],
}
LONG_GRID = np.linspace(0.0, 5.2, 40)

# ---- signal and images


def section(s: Any) -> Any:
    return np.concatenate([s[:3], np.ones(1), s[3:]]).reshape(1, 6)


SIGNAL = {
    **{n: [of(LONG, LONG[::-1].copy(), nperseg=16)] for n in ("coherence", "csd")},
    **{n: [of(LONG, WEIGHTS)] for n in ("convolve", "correlate", "fftconvolve", "oaconvolve")},
    **{n: [of(IMAGE, GENERAL)] for n in ("convolve2d", "correlate2d")},
    "detrend": [of(LONG)], "hilbert": [of(LONG)], "periodogram": [of(LONG)],
    "filtfilt": [of(WEIGHTS, np.array([1.0, -0.4]), LONG)],
    "freqz": [(lambda f, b, a: f(b, a, worN=5)[1], (WEIGHTS, np.array([1.0, -0.4])))],
    "freqz_sos": [(lambda f, s: f(section(s), worN=5)[1], (SECTION,))],
    "lfilter": [of(WEIGHTS, np.array([1.0, -0.4]), LONG)],
    "lfilter_zi": [of(WEIGHTS, np.array([1.0, -0.4, 0.1]))],
    "lfiltic": [of(WEIGHTS, np.array([1.0, -0.4, 0.1]), VECTOR[:2], OTHER[:2])],
    "medfilt": [(lambda f, x: f(x, 3), (LONG,))],
    "resample": [(lambda f, x: f(x, 25), (LONG,))],
    "resample_poly": [(lambda f, x: f(x, 3, 2), (LONG,))],
    "savgol_filter": [(lambda f, x: f(x, 5, 2), (LONG,)),
                      (lambda f, x, d: f(x, 5, 2, deriv=1, delta=d), (LONG, 0.7))],
    **{n: [(lambda f, s, x: f(section(s), x), (SECTION, LONG))]
       for n in ("sosfilt", "sosfiltfilt")},
    "sosfilt_zi": [(lambda f, s: f(section(s)), (SECTION,))],
    "stft": [(lambda f, x: f(x, nperseg=16)[2], (LONG,))],
    "upfirdn": [(lambda f, h, x: f(h, x, 2, 3), (WEIGHTS, LONG))],
    "welch": [(lambda f, x: f(x, nperseg=16)[1], (LONG,))],
}
NDIMAGE = {
    "affine_transform": [(lambda f, x, m, o: f(x, m, o), (IMAGE, GENERAL[:2, :2], START))],
    **{n: [of(IMAGE, GENERAL)] for n in ("convolve", "correlate")},
    **{n: [of(IMAGE, WEIGHTS)] for n in ("convolve1d", "correlate1d")},
    **{n: [of(IMAGE, 0.8)] for n in ("gaussian_filter", "gaussian_filter1d",
                                     "gaussian_gradient_magnitude", "gaussian_laplace")},
    **{n: [of(IMAGE)] for n in ("laplace", "prewitt", "sobel", "spline_filter",
                                "spline_filter1d")},
    "map_coordinates": [of(IMAGE, SITES.T.copy()), of(IMAGE, SITES.T.copy(), order=1)],
    **{n: [(lambda f, x: f(x, 3), (IMAGE,))] for n in (
        "maximum_filter", "maximum_filter1d", "median_filter", "minimum_filter",
        "minimum_filter1d", "uniform_filter", "uniform_filter1d")},
    "percentile_filter": [(lambda f, x: f(x, 30, 3), (IMAGE,)),
                          (lambda f, x, q: f(x, q, 3), (IMAGE, 30.0))],
    "rank_filter": [(lambda f, x: f(x, 2, 3), (IMAGE,))],
    "rotate": [of(IMAGE, 12.0)], "shift": [of(IMAGE, START)],
    "zoom": [(lambda f, x: f(x, 2), (IMAGE,)), of(IMAGE, 1.7)],
}

# ---- sparse, spatial, fft


def dense(f: Callable, *xs: Any) -> Any:
    return f(*xs).toarray()


ROWS, COLUMNS = np.array([0, 0, 1, 2, 2, 3, 1]), np.array([0, 1, 1, 2, 0, 3, 2])
ENTRIES = np.array([3.0, 0.4, 2.7, 2.9, -0.6, 3.3, 0.7])
INDPTR = np.array([0, 2, 4, 6, 7])


def sparse_matrix(entries: Any) -> Any:
    from functrans.scipy import sparse

    return sparse.csc_array(sparse.coo_array((entries, (ROWS, COLUMNS)), shape=(4, 4)))


def joined(f: Callable, x: Any) -> Any:
    return f([sparse_matrix(x), sparse_matrix(2 * x)]).toarray()


BLOCKS = [(lambda f, x: f([[sparse_matrix(x), None], [None, sparse_matrix(x)]]).toarray(),
           (ENTRIES,))]
SPARSE = {
    **{n: [(lambda f, x: f((x, (ROWS, COLUMNS)), shape=(4, 4)).toarray(), (ENTRIES,))]
       for n in ("coo_array", "coo_matrix")},
    **{n: [(lambda f, x: f((x, COLUMNS, INDPTR), shape=(4, 4)).toarray(), (ENTRIES,))]
       for n in ("csc_array", "csc_matrix", "csr_array", "csr_matrix")},
    **{n: [(lambda f, x, y: f([x, y], offsets=[0, 1]).toarray(), (VECTOR, OTHER[:4]))]
       for n in ("diags", "diags_array")},
    **{n: [(joined, (ENTRIES,))] for n in ("block_diag", "hstack", "vstack")},
    "block_array": BLOCKS, "bmat": BLOCKS,
    "kron": [(lambda f, x: f(sparse_matrix(x), sparse_matrix(x)).toarray(), (ENTRIES,))],
}
B = VECTOR[:4]
SPARSE_LINALG = {
    **{n: [(lambda f, x, b: f(sparse_matrix(x), b, rtol=1e-13)[0], (ENTRIES, B))]
       for n in ("bicgstab", "gcrotmk", "gmres", "lgmres", "tfqmr")},
    **{n: [(lambda f, x, b: f(sparse_matrix(x) + sparse_matrix(x).T, b, rtol=1e-13)[0],
            (ENTRIES, B))] for n in ("cg", "minres")},
    "eigsh": [(lambda f, x: (f(sparse_matrix(x) + sparse_matrix(x).T, 2)[0],
                             f(sparse_matrix(x) + sparse_matrix(x).T, 2)[1] ** 2), (ENTRIES,))],
    "inv": [(lambda f, x: f(sparse_matrix(x)).toarray(), (ENTRIES,))],
    "norm": [(lambda f, x: f(sparse_matrix(x)), (ENTRIES,)),
             (lambda f, x: f(sparse_matrix(x), np.inf), (ENTRIES,)),
             (lambda f, x: f(sparse_matrix(x), axis=0), (ENTRIES,))],
    "expm_multiply": [(lambda f, x, b: f(sparse_matrix(x), b), (0.3 * ENTRIES, B))],
    "factorized": [(lambda f, x, b: f(sparse_matrix(x))(b), (ENTRIES, B))],
    "splu": [(lambda f, x, b: f(sparse_matrix(x)).solve(b), (ENTRIES, B))],
    "spsolve": [(lambda f, x, b: f(sparse_matrix(x), b), (ENTRIES, B))],
}
SPATIAL = {
    "distance_matrix": [of(POINTS, POINTS + 0.3)],
    "minkowski_distance": [of(POINTS, POINTS + 0.3)],
    "minkowski_distance_p": [of(POINTS, POINTS + 0.3)],
}
METRICS = ("braycurtis", "canberra", "chebyshev", "cityblock", "correlation", "cosine", "euclidean",
           "jensenshannon", "minkowski", "sqeuclidean")
DISTANCE = {
    **{n: [of(POSITIVE, POSITIVE[::-1] + 0.3)] for n in METRICS},
    "cdist": [(lambda f, x, y, m=m: f(x, y, m), (abs(POINTS), 1.3 * abs(POINTS) + 0.2))
              for m in METRICS],
    "pdist": [(lambda f, x, m=m: f(x, m), (abs(POINTS),)) for m in METRICS],
    "mahalanobis": [of(POINTS[0], POINTS[1], SPD)],
    "seuclidean": [of(VECTOR, OTHER, POSITIVE)],
    "squareform": [of(VECTOR[:3])],
}
ROTATION = {"Rotation": [
    (lambda R, q: R.from_quat(q).as_matrix(), (QUATERNION,)),
    (lambda R, v: R.from_rotvec(v).as_quat(), (MEAN,)),
    (lambda R, m: R.from_matrix(m).as_rotvec(), (GENERAL,)),
    (lambda R, e: R.from_euler("xyz", e).as_euler("zyx"), (MEAN,)),
    (lambda R, v, x: R.from_rotvec(v).apply(x), (MEAN, POINTS)),
    (lambda R, v: R.from_rotvec(v).magnitude(), (MEAN,)),
]}
FFT = {
    **{n: [(lambda f, x, k=k: f(x, k), (LONG[:9],)) for k in (1, 2, 3, 4)]
       for n in ("dct", "dst", "idct", "idst")},
    **{n: [of(IMAGE)] for n in ("dctn", "dstn", "idctn", "idstn")},
    **{n: [of(LONG)] for n in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftshift",
                               "ifftshift")},
    **{n: [of(IMAGE)] for n in ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn",
                                "irfftn")},
}

CALLS: dict[str, list[Call]] = ufunc_calls() | distribution_calls() | {
    f"{namespace}.{name}": calls
    for namespace, entries in {
        "special": SPECIAL, "stats": STATS, "integrate": INTEGRATE, "optimize": OPTIMIZE,
        "linalg": LINALG, "interpolate": INTERPOLATE, "signal": SIGNAL, "ndimage": NDIMAGE,
        "sparse": SPARSE, "sparse.linalg": SPARSE_LINALG, "spatial": SPATIAL,
        "spatial.distance": DISTANCE, "spatial.transform": ROTATION, "fft": FFT,
    }.items()
    for name, calls in entries.items()
}
