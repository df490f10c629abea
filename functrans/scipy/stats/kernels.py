"""Estimates of a density by Gaussian kernels, differentiated in points, data and weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats as theirs

from functrans._core.bind import Tracer
from functrans._ops.special.errors import ndtr
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.structure import as_operand
from functrans.scipy.implicit import Numberless, concrete
from functrans.scipy.public import is_traced
from functrans.scipy.special import logsumexp


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
