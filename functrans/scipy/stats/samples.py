"""Summaries of samples, after ``scipy.stats``, and densities estimated by Gaussian kernels."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, NoReturn

import numpy as np
from scipy import stats as theirs
from scipy.special import entr, rel_entr

from functrans import tree
from functrans._core.bind import AnyArray, Tracer
from functrans._ops.calls import stop
from functrans._ops.special.densities import ndtr
from functrans._ops.structure import move_axis
from functrans.errors import NotDifferentiable, UnsupportedError, user_line
from functrans.numpy.indexing import take
from functrans.numpy.structure import as_floats, as_operand
from functrans.scipy.implicit import Numberless, concrete
from functrans.scipy.public import counterpart, is_traced, refused
from functrans.scipy.special import logsumexp
from functrans.scipy.stats.half_line import beta
from functrans.scipy.stats.line import t

# ---- Estimates of a density by Gaussian kernels, differentiated in points, data and weights


class gaussian_kde:
    r"""A density estimated from a ``dataset``, one column of numbers for each of n points.

    .. math:: p(x) = \\sum_i w_i N(x; x_i, h^2 C)

    with the data's covariance C and the bandwidth h of Scott, Silverman or ``bw_method``. ``pdf``
    (or ``evaluate``, or a call), ``logpdf`` and ``integrate_box_1d`` are differentiated in the
    points, the dataset, also through its covariance, the weights and the bandwidth; other methods
    take constants. Raises SciPy's LinAlgError where the data lie in a subspace.

    >>> import functrans as ft, numpy as np
    >>> x = np.array([0.0, 1.0, 3.0])
    >>> ft.grad(lambda x: gaussian_kde(x).logpdf(1.0)[0])(x).round(4)
    array([ 0.3562,  0.0289, -0.3219])
    """

    def __init__(self, dataset, bw_method=None, weights=None):
        self._inputs = dataset, weights
        data = as_operand(dataset)
        self.dataset = data if data.ndim > 1 else data.reshape(1, -1)
        self.d, self.n = self.dataset.shape
        w = np.full(self.n, 1 / self.n) if weights is None else as_operand(weights)
        self.weights = w / np.sum(w)
        self.neff = 1 / np.sum(self.weights**2)
        self.set_bandwidth(bw_method)

    def scotts_factor(self):
        """The bandwidth by Scott's rule, as a multiple of the data's deviation."""
        return self.neff ** (-1 / (self.d + 4))

    def silverman_factor(self):
        """The bandwidth by Silverman's rule."""
        return (self.neff * (self.d + 2) / 4) ** (-1 / (self.d + 4))

    def set_bandwidth(self, bw_method=None):
        """Take another bandwidth: a rule's name, a number, or a function of the estimate."""
        self.factor = factor = self._factor(bw_method)
        self.traced = is_traced((self._inputs, factor))
        self.theirs = self._plain(factor if self.traced else bw_method)
        away = self.dataset - (self.dataset @ self.weights)[:, None]
        spread = (away * self.weights) @ away.T / (1 - np.sum(self.weights**2))
        self.covariance = spread * factor**2

    def _factor(self, method: Any) -> Any:
        if callable(method):
            return method(self)
        if isinstance(method, str) and method == "silverman":
            return self.silverman_factor()
        if method is None or (isinstance(method, str) and method == "scott"):
            return self.scotts_factor()
        return method

    def _plain(self, method: Any) -> Any:
        """SciPy's estimate of the numbers; None where they are not known."""
        try:
            data, weights = concrete(self._inputs)
            plain = concrete(method)
        except Numberless:
            return None
        if isinstance(method, Tracer) and np.ndim(plain) == 0:
            plain = float(plain)  # SciPy tells numbers from arrays
        return theirs.gaussian_kde(data, plain, weights)

    def logpdf(self, x):
        """The logarithm of the density at the points ``x``, the columns of a matrix."""
        if not self.traced and not is_traced(x):
            return self.theirs.logpdf(x)  # type: ignore[union-attr]  # it has its numbers
        x = np.atleast_2d(as_operand(x))
        if x.shape[0] != self.d:
            if x.shape != (1, self.d):
                raise ValueError(f"points have dimension {x.shape[0]}, dataset has dimension "
                                 f"{self.d}")
            x = x.reshape(self.d, 1)
        factor = np.linalg.cholesky(self.covariance)
        away = (x[:, :, None] - self.dataset[:, None, :]).reshape(self.d, -1)
        z = np.linalg.solve(factor, away).reshape(self.d, x.shape[1], self.n)
        top = -0.5 * np.sum(z * z, axis=0) - np.sum(np.log(np.diagonal(factor)))
        return logsumexp(top, axis=1, b=self.weights) - 0.5 * self.d * math.log(2 * math.pi)

    def pdf(self, x):
        """The density at the points ``x``."""
        if not self.traced and not is_traced(x):
            return self.theirs.pdf(x)  # type: ignore[union-attr]  # it has its numbers
        return np.exp(self.logpdf(x))

    evaluate = __call__ = pdf

    def integrate_box_1d(self, low, high):
        """The probability between two numbers."""
        if not self.traced and not is_traced((low, high)):
            return self.theirs.integrate_box_1d(low, high)  # type: ignore[union-attr]  # as above
        if self.d != 1:
            raise ValueError("integrate_box_1d() only handles 1D pdfs")
        width = np.sqrt(self.covariance[0, 0])
        low, high = [ndtr((end - self.dataset[0]) / width) for end in (low, high)]
        return np.sum(self.weights * (high - low))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_inputs", "theirs", "traced"):
            raise AttributeError(name)
        if self.traced:
            raise UnsupportedError(
                f"{user_line()}: functrans.scipy.stats.gaussian_kde has no {name} of traced data; "
                "it has pdf, evaluate, logpdf and integrate_box_1d. Pass constants, "
                "ft.stop_gradient(x)."
            )
        return getattr(self.theirs, name)


# ---- Summaries of samples, after ``scipy.stats``: means, moments, correlations and distances
#
# Of ``nan_policy`` traced values take ``"propagate"``.

st: Any = theirs  # its types say less than its functions take
NORMAL_MAD = 0.6744897501960817  # the median absolute deviation of the normal distribution


def _sample(who: str, a: Any, nan_policy: str = "propagate") -> AnyArray:
    if nan_policy != "propagate":
        raise refused(who, "nan_policy", nan_policy, "leave out what is NaN")
    return as_floats(a)


def _size(a: Any, axis: Any) -> int:
    """How many numbers are summarised in one."""
    return a.size // max(np.mean(np.zeros(a.shape), axis=axis).size, 1) if a.size else 0


def _average(a: Any, axis: Any, weights: Any, keepdims: bool) -> AnyArray:
    if weights is None:
        return np.mean(a, axis=axis, keepdims=keepdims)
    weights = as_operand(weights)
    total = np.sum(a * weights, axis=axis, keepdims=keepdims)
    return total / np.sum(weights * np.ones(a.shape), axis=axis, keepdims=keepdims)


# ---- scores


@counterpart(st.zmap)
def zmap(scores, compare, axis=0, ddof=0, nan_policy="propagate"):
    """Scores less the mean of ``compare``, in standard deviations of that."""
    a = _sample("zmap", compare, nan_policy)
    mean = np.mean(a, axis=axis, keepdims=True)
    return (as_operand(scores) - mean) / np.std(a, axis=axis, ddof=ddof, keepdims=True)


@counterpart(st.zscore)
def zscore(a, axis=0, ddof=0, nan_policy="propagate"):
    """A sample less its mean, in its standard deviations.

    >>> import functrans as ft, numpy as np
    >>> ft.jacobian(zscore)(np.array([-1.0, 0.0, 1.0])).round(3)
    array([[ 0.204, -0.408,  0.204],
           [-0.408,  0.816, -0.408],
           [ 0.204, -0.408,  0.204]])
    """
    return zmap(a, a, axis, ddof, nan_policy)


@counterpart(st.gzscore)
def gzscore(a, *, axis=0, ddof=0, nan_policy="propagate"):
    """``zscore`` of logarithms."""
    return zscore(np.log(_sample("gzscore", a)), axis, ddof, nan_policy)


# ---- means


@counterpart(st.gmean)
def gmean(a, axis=0, dtype=None, weights=None, *, nan_policy="propagate", keepdims=False):
    """The geometric mean."""
    a = _sample("gmean", a, nan_policy)
    a = a if dtype is None else a.astype(dtype)
    return np.exp(_average(np.log(a), axis, weights, keepdims))


@counterpart(st.hmean)
def hmean(a, axis=0, dtype=None, *, weights=None, nan_policy="propagate", keepdims=False):
    """The harmonic mean; NaN where a number is negative."""
    return _power_mean(_sample("hmean", a, nan_policy), -1.0, axis, dtype, weights, keepdims)


@counterpart(st.pmean)
def pmean(a, p, *, axis=0, dtype=None, weights=None, nan_policy="propagate", keepdims=False):
    """The power mean of exponent ``p``, a constant; NaN where a number is negative."""
    a = _sample("pmean", a, nan_policy)
    if p == 0:
        return gmean(a, axis, dtype, weights, keepdims=keepdims)
    return _power_mean(a, p, axis, dtype, weights, keepdims)


def _power_mean(a: Any, p: Any, axis: Any, dtype: Any, weights: Any, keepdims: bool) -> AnyArray:
    a = a if dtype is None else a.astype(dtype)
    negative = np.any(a < 0, axis=axis, keepdims=keepdims)
    with np.errstate(divide="ignore"):  # the harmonic mean of 0 is 0
        return np.where(negative, np.nan, _average(a**p, axis, weights, keepdims) ** (1 / p))


@counterpart(st.trim_mean)
def trim_mean(a, proportiontocut, axis=0, *, nan_policy="propagate", keepdims=False):
    """The mean without a share of the smallest and of the largest."""
    a = _sample("trim_mean", a, nan_policy)
    if axis is None:
        shape, a, axis = (1,) * a.ndim, a.reshape(-1), 0
    else:
        shape = np.mean(np.zeros(a.shape), axis=axis, keepdims=True).shape
    a = np.sort(move_axis(a, axis, -1), axis=-1)
    n = a.shape[-1]
    cut = int(proportiontocut * n)
    if cut >= n - cut:
        raise ValueError("Proportion too big.")
    y = np.mean(a[..., cut : n - cut], axis=-1)
    return y.reshape(shape) if keepdims else y


# ---- spread and moments


@counterpart(st.sem)
def sem(a, axis=0, ddof=1, nan_policy="propagate", *, keepdims=False):
    """The standard error of the mean."""
    a = _sample("sem", a, nan_policy)
    return np.std(a, axis=axis, ddof=ddof, keepdims=keepdims) / np.sqrt(_size(a, axis))


@counterpart(st.variation)
def variation(a, axis=0, nan_policy="propagate", ddof=0, *, keepdims=False):
    """The standard deviation over the mean."""
    a = _sample("variation", a, nan_policy)
    spread = np.std(a, axis=axis, ddof=ddof, keepdims=keepdims)
    return spread / np.mean(a, axis=axis, keepdims=keepdims)


@counterpart(st.gstd)
def gstd(a, axis=0, ddof=1, *, keepdims=False, nan_policy="propagate"):
    """The geometric standard deviation."""
    return np.exp(np.std(np.log(_sample("gstd", a, nan_policy)), axis=axis, ddof=ddof,
                         keepdims=keepdims))


@counterpart(st.median_abs_deviation)
def median_abs_deviation(x, axis=0, center=np.median, scale=1.0, nan_policy="propagate", *,
                         keepdims=False):
    """The median of the distances from the median, or from another ``center``."""
    x = _sample("median_abs_deviation", x, nan_policy)
    if axis is None:
        x, ndim, axis = x.reshape(-1), x.ndim, 0
        y = median_abs_deviation(x, 0, center, scale)
        return y.reshape((1,) * ndim) if keepdims else y
    middle = np.expand_dims(center(x, axis=axis), axis)
    scale = NORMAL_MAD if scale == "normal" else scale
    return np.median(np.abs(x - middle), axis=axis, keepdims=keepdims) / scale


@counterpart(st.moment)
def moment(a, order: Any = 1, axis=0, nan_policy="propagate", *, center=None, keepdims=False):
    """The mean of powers of the distance from the mean, or from ``center``."""
    a = _sample("moment", a, nan_policy)
    d = a - (np.mean(a, axis=axis, keepdims=True) if center is None else center)
    if np.ndim(order):
        return np.stack([np.mean(d**k, axis=axis, keepdims=keepdims) for k in order])
    return np.mean(d**order, axis=axis, keepdims=keepdims)


@counterpart(st.skew)
def skew(a, axis=0, bias=True, nan_policy="propagate", *, keepdims=False):
    """The third moment over the cube of the standard deviation."""
    a = _sample("skew", a, nan_policy)
    m2, m3 = [moment(a, k, axis, keepdims=keepdims) for k in (2, 3)]
    g, n = m3 / m2**1.5, _size(a, axis)
    return g if bias or n < 3 else g * np.sqrt(n * (n - 1)) / (n - 2)


@counterpart(st.kurtosis)
def kurtosis(a, axis=0, fisher=True, bias=True, nan_policy="propagate", *, keepdims=False):
    """The fourth moment over the square of the variance, with ``fisher`` less 3."""
    a = _sample("kurtosis", a, nan_policy)
    m2, m4 = [moment(a, k, axis, keepdims=keepdims) for k in (2, 4)]
    g, n = m4 / m2**2, _size(a, axis)
    if not bias and n > 3:
        g = ((n**2 - 1) * g - 3 * (n - 1) ** 2) / ((n - 2) * (n - 3)) + 3
    return g - 3 if fisher else g


class DescribeResult(NamedTuple):
    """What ``describe`` returns."""

    nobs: int
    minmax: tuple
    mean: Any
    variance: Any
    skewness: Any
    kurtosis: Any


@counterpart(st.describe)
def describe(a, axis=0, ddof=1, bias=True, nan_policy="propagate"):
    """Count, extremes, mean, variance, skewness and kurtosis."""
    a = _sample("describe", a, nan_policy)
    return DescribeResult(
        _size(a, axis), (np.min(a, axis=axis), np.max(a, axis=axis)), np.mean(a, axis=axis),
        np.var(a, axis=axis, ddof=ddof), skew(a, axis, bias), kurtosis(a, axis, bias=bias),
    )


@counterpart(st.entropy)
def entropy(pk, qk=None, base=None, axis=0, *, nan_policy="propagate", keepdims=False):
    """The entropy of probabilities, which are normalised, or their divergence from ``qk``.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(entropy)(np.array([0.5, 0.5]))
    Array([0., 0.])
    """
    if base is not None and base <= 0:
        raise ValueError("`base` must be a positive number or `None`.")
    p = _sample("entropy", pk, nan_policy)
    p = p / np.sum(p, axis=axis, keepdims=True)
    if qk is None:
        terms = entr(p)
    else:
        q = _sample("entropy", qk)
        terms = rel_entr(p, q / np.sum(q, axis=axis, keepdims=True))
    total = np.sum(terms, axis=axis, keepdims=keepdims)
    return total if base is None else total / np.log(base)


# ---- two samples


class CorrelationResult(NamedTuple):
    """What ``pearsonr`` returns."""

    statistic: Any
    pvalue: Any


@counterpart(st.pearsonr)
def pearsonr(x, y, *, alternative="two-sided", method=None, axis=0):
    """The correlation of two samples, and the p-value of one as far from 0 by chance.

    >>> import functrans as ft, numpy as np
    >>> x = np.array([1.0, 2.0, 4.0])
    >>> ft.grad(lambda y: pearsonr(x, y).statistic)(np.array([1.0, 0.0, 2.0])).round(3)
    array([-0.436,  0.218,  0.218])
    """
    if method is not None:
        raise refused("pearsonr", "method", method, "p-values of resampling have no derivative")
    x, y = _sample("pearsonr", x), _sample("pearsonr", y)
    if axis is None:
        x, y, axis = x.reshape(-1), y.reshape(-1), 0
    if x.shape[axis] != y.shape[axis]:
        raise ValueError("`x` and `y` must have the same length along `axis`.")
    n = x.shape[axis]
    if n < 2:
        raise ValueError("`x` and `y` must have length at least 2.")
    u, v = [a - np.mean(a, axis=axis, keepdims=True) for a in (x, y)]
    u, v = [a / np.sqrt(np.sum(a * a, axis=axis, keepdims=True)) for a in (u, v)]
    r = np.sum(u * v, axis=axis)
    return CorrelationResult(r, _chance(r, n, alternative))


def _chance(r: Any, n: int, alternative: str) -> AnyArray:
    """The p-value of a correlation of ``n`` pairs: (1 + r) / 2 has a beta distribution."""
    if n == 2:
        return 1.0 + 0.0 * r
    share, half = (1 + np.clip(r, -1.0, 1.0)) / 2, n / 2 - 1
    if alternative == "two-sided":
        return 2 * beta.sf((1 + np.abs(2 * share - 1)) / 2, half, half)
    if alternative in ("less", "greater"):
        return (beta.cdf if alternative == "less" else beta.sf)(share, half, half)
    raise ValueError("`alternative` must be 'less', 'greater', or 'two-sided'.")


class _Line(NamedTuple):
    slope: Any
    intercept: Any
    rvalue: Any
    pvalue: Any
    stderr: Any


class LineResult(_Line):
    """What ``linregress`` returns; as SciPy's, it unpacks to five, and has ``intercept_stderr``."""

    intercept_stderr: Any

    @classmethod
    def of(cls, *fields: Any) -> LineResult:
        """The last field is the one that it does not unpack to."""
        self = cls(*fields[:-1])
        self.intercept_stderr = fields[-1]
        return self


tree.register(LineResult, lambda r: ((*r, r.intercept_stderr), None),
              lambda _, fields: LineResult.of(*fields))


@counterpart(st.linregress)
def linregress(x, y, alternative="two-sided"):
    """The line closest to points, their correlation, and the p-value of a slope by chance."""
    x, y = _sample("linregress", x), _sample("linregress", y)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"linregress needs two vectors of one length, got {x.shape} and {y.shape}")
    n = x.size
    u, v = x - np.mean(x), y - np.mean(y)
    across, up, both = np.sum(u * u), np.sum(v * v), np.sum(u * v)
    slope, r = both / across, both / np.sqrt(across * up)
    if n == 2:  # a line through both: it is SciPy's version that says how sure that is
        with np.errstate(all="ignore"):
            level, rising = [st.linregress([0.0, 1.0], [0.0, height]) for height in (0.0, 1.0)]
        p = np.where(y[0] == y[1], level.pvalue, rising.pvalue)
        sure = rising.stderr + 0.0 * r
        return LineResult.of(slope, np.mean(y) - slope * np.mean(x), r, p, sure, sure)
    off = np.sum((v - slope * u) ** 2)
    stderr = np.sqrt(off / across / (n - 2))
    ratio = slope / stderr
    p = {"less": lambda: t.cdf(ratio, n - 2), "greater": lambda: t.sf(ratio, n - 2),
         "two-sided": lambda: 2 * t.sf(np.abs(ratio), n - 2)}[alternative]()
    aside = stderr * np.sqrt(across / n + np.mean(x) ** 2)
    return LineResult.of(slope, np.mean(y) - slope * np.mean(x), r, p, stderr, aside)


def _steps(who: str, u: Any, v: Any, u_weights: Any, v_weights: Any) -> tuple[Any, Any]:
    """Differences of two distribution functions, and how far each of them goes on."""
    u, v = _sample(who, u), _sample(who, v)
    masses = [_masses(*pair) for pair in ((u, u_weights, 1.0), (v, v_weights, -1.0))]
    values = np.concatenate([u, v])
    order = np.argsort(stop(values))
    return np.cumsum(take(np.concatenate(masses), order))[:-1], np.diff(values[order])


def _masses(values: Any, weights: Any, sign: float) -> AnyArray:
    if values.ndim != 1 or not values.size:
        raise ValueError("Distribution can't be empty." if values.ndim == 1 else
                         f"values must be a vector, but have shape {values.shape}")
    if weights is None:
        return np.full(values.size, sign / values.size)
    weights = as_operand(weights)
    if weights.shape != values.shape:
        raise ValueError("Value and weight array-likes for the same empirical distribution must be "
                         "of the same size.")
    return sign * weights / np.sum(weights)


@counterpart(st.wasserstein_distance)
def wasserstein_distance(u_values, v_values, u_weights=None, v_weights=None):
    """How far, on average, values have to move to become others: the area between distribution
    functions. Where values of both coincide it has a kink, and the slope is one-sided.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(wasserstein_distance)(np.array([0.0, 1.0]), np.array([2.0, 3.0]))
    Array([-0.5, -0.5])
    """
    apart, widths = _steps("wasserstein_distance", u_values, v_values, u_weights, v_weights)
    return np.sum(np.abs(apart) * widths)


@counterpart(st.energy_distance)
def energy_distance(u_values, v_values, u_weights=None, v_weights=None):
    """The root of twice the integral of squared differences of distribution functions."""
    apart, widths = _steps("energy_distance", u_values, v_values, u_weights, v_weights)
    return np.sqrt(2 * np.sum(apart**2 * widths))


# ---- ranks


def _by_ranks(who: str) -> NoReturn:
    raise NotDifferentiable(
        f"{user_line()}: {who} depends on the ranks of numbers, which jump and have no slope. Take "
        "pearsonr, or pass ft.stop_gradient of the data for the constant."
    )


@counterpart(st.spearmanr)
def spearmanr(a, b=None, axis=0, nan_policy="propagate", alternative="two-sided"):
    """Refused: it depends on ranks alone."""
    _by_ranks("spearmanr")


@counterpart(st.kendalltau)
def kendalltau(x, y, **options):
    """Refused: it depends on ranks alone."""
    _by_ranks("kendalltau")


@counterpart(st.rankdata)
def rankdata(a, method="average", *, axis=None, nan_policy="propagate"):
    """Refused: ranks jump."""
    _by_ranks("rankdata")
