"""Functions of ``scipy.special`` on traced values: the row of each ufunc, and the others."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple
from scipy import special as sp

from functrans._core.bind import AnyArray, Tracer, is_finite, is_staged, known_value
from functrans._ops import along_axes
from functrans._ops import elementwise as ops
from functrans._ops.calls import stop
from functrans._ops.declare import TABLE, Elementwise, where
from functrans._ops.slopes import brought_whole
from functrans._ops.special import (
    bessel,
    declare,
    densities,
    distributions,
    gamma,
    incomplete,
    integrals,
)
from functrans._ops.special.gamma import (
    binom as _binom,
)
from functrans._ops.special.gamma import (
    gamma as _gamma,
)
from functrans._ops.special.gamma import (
    gammaln as _gammaln,
)
from functrans._ops.special.gamma import (
    poch as _poch,
)
from functrans._ops.special.gamma import (
    psi as _psi,
)
from functrans._ops.special.gamma import (
    zeta as _zeta,
)
from functrans.errors import NotDifferentiable, user_line
from functrans.numpy.protocols import UFUNCS
from functrans.numpy.structure import as_operand
from functrans.scipy.public import counterpart, refused

# ---- Functions of ``scipy.special`` that are no ufuncs, on traced values

NO_SLOPE = "an integer has no derivative"

# ---- sums of exponentials


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    return tuple(range(ndim)) if axis is None else tuple(normalize_axis_tuple(axis, ndim))


@counterpart(sp.logsumexp)
def logsumexp(a, axis=None, b=None, keepdims=False, return_sign=False):
    """log(sum(b exp(a))), of which no term overflows; its size and sign with ``return_sign``.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(logsumexp)(np.array([1000.0, 1000.0]))
    Array([0.5, 0.5])
    """
    a = _floating(a, float)
    if b is None and not return_sign and a.dtype.kind != "c":
        return np.logaddexp.reduce(a, axis=_axes(axis, a.ndim), keepdims=keepdims)
    a, b = np.broadcast_arrays(a, 1.0 if b is None else as_operand(b))
    axes = _axes(axis, a.ndim)
    with np.errstate(divide="ignore", invalid="ignore"):
        # as in SciPy, a weight of 0 leaves out what is not finite
        a = where((b == 0) & ~np.isfinite(a), -np.inf, a)
        top = np.max(stop(where(b == 0, -np.inf, a.real)), axis=axes, keepdims=True)
        top = where(np.isfinite(top), top, 0.0)
        total = np.sum(b * ops.exp(a - top), axis=axes, keepdims=True)
        size = ops.log(np.abs(total) if return_sign else total) + top
    sign = np.sign(total)
    if not keepdims:
        size, sign = size.sum(axis=axes), sign.sum(axis=axes)
    return (size, sign) if return_sign else size


@counterpart(sp.softmax)
def softmax(x, axis=None):
    """exp(x) / sum(exp(x)); NaN where the largest is infinite, as SciPy's."""
    x = _floating(x, np.float16)
    axes = _axes(axis, x.ndim)
    y = along_axes.softmax(x, axis=axes)
    if is_finite(x):
        return y
    top = np.max(stop(x), axis=axes, keepdims=True)
    return where(np.isinf(top), y * np.nan, y)


# From where on a share is taken for near 1: below, 1 less the share loses no more than a digit.
NEAR_ONE = math.log(0.9)


@counterpart(sp.log_softmax)
def log_softmax(x, axis=None):
    """log(softmax(x)), where softmax is 0 too."""
    x = as_operand(x)
    if x.dtype.kind == "c":
        return x - logsumexp(x, axis, keepdims=True)
    axes = _axes(axis, x.ndim)
    y = None if is_staged(x) else x - np.logaddexp.reduce(x, axis=axes, keepdims=True)
    value = None if y is None else known_value(y)
    if value is not None and not np.any(value > NEAR_ONE):
        return y
    # of a share that may be 1 to rounding the slope is that of the others
    if y is None:
        return _log_softmax(x, axes)
    top = x.max(axes, keepdims=True)
    z = x - where(ops.isfinite(top), top, 0)
    return z - np.logaddexp.reduce(z, axis=axes, keepdims=True)


def _log_softmax(x, axes):
    # of a constant that is taken off nothing is moved: so each of two that are greatest may move
    # it, and they need not be counted as for the slope of a maximum
    top = stop(x).max(axes, keepdims=True)
    top = where(ops.isfinite(top), top, 0)
    z = x - ops.moving_as(top, where(stop(x) == top, x, 0).sum(axes, keepdims=True))
    return z - ops.log(ops.exp(z).sum(axes, keepdims=True))


def _floating(x: Any, least: Any) -> AnyArray:
    """An operand; one of integers in a type of floats that holds them, no narrower than a least."""
    x = as_operand(x)
    return x.astype(np.result_type(x.dtype, least)) if x.dtype.kind in "biu" else x


def _order(function: str, argument: str, x: Any) -> Any:
    """A constant; an integer in a type in which one less is one less."""
    return brought_whole(np.asarray(_constant(function, argument, x))[()], 0.0)


# ---- spherical Bessel functions, Lambert's W


def _spherical(theirs: Callable, row: Elementwise, sign: int, alternate: int) -> Callable:
    """A function of SciPy's and, with ``derivative``, its slope, which is a function of rows."""

    @counterpart(theirs)
    @functools.wraps(theirs)
    def ours(n, z, derivative=False):
        n = _order(theirs.__name__, "n, the order", n)
        z = as_operand(z)
        return sign * bessel.neighbours(row, n, z, alternate) if derivative else row(n, z)

    return ours


spherical_jn = _spherical(sp.spherical_jn, bessel.spherical_jn, 1, -1)
spherical_yn = _spherical(sp.spherical_yn, bessel.spherical_yn, 1, -1)
spherical_in = _spherical(sp.spherical_in, bessel.spherical_in, 1, 1)
spherical_kn = _spherical(sp.spherical_kn, bessel.spherical_kn, -1, 1)


def _slope_of_bessel(name: str, row: Elementwise, sign: int, alternate: int) -> Callable:
    """A function of SciPy's: the n-th derivative in z, of functions of other orders (10.6.7)."""
    theirs = getattr(sp, name)

    @counterpart(theirs)
    @functools.wraps(theirs)
    def ours(v, z, n=1):
        theirs(0, 1.0, n)  # SciPy's own check of n
        v, z = _order(name, "v, the order", v), as_operand(z)
        terms = [alternate**i * math.comb(n, i) * row(v - n + 2 * i, z) for i in range(n + 1)]
        return sum(terms[1:], terms[0]) * (sign**n / 2.0**n)

    return ours


jvp = _slope_of_bessel("jvp", bessel.jv, 1, -1)
yvp = _slope_of_bessel("yvp", bessel.yv, 1, -1)
ivp = _slope_of_bessel("ivp", bessel.iv, 1, 1)
kvp = _slope_of_bessel("kvp", bessel.kv, -1, 1)
h1vp = _slope_of_bessel("h1vp", bessel.hankel1, 1, -1)
h2vp = _slope_of_bessel("h2vp", bessel.hankel2, 1, -1)


@counterpart(sp.lambertw)
def lambertw(z, k=0, tol=1e-8):
    """The k-th branch of the W with W exp(W) = z; complex, also of real z."""
    if tol != 1e-8:
        raise refused("functrans.scipy.special.lambertw", "tol", tol, "leave it out")
    return integrals.lambertw(as_operand(z), _constant("lambertw", "k, the branch", k))


# ---- the gamma function's relatives


def _constant(function: str, argument: str, x: Any) -> Any:
    """An argument that is a count: it has no derivative, and a traced one is refused."""
    if isinstance(x, Tracer):
        raise NotDifferentiable(
            f"{user_line()}: {function} got the traced value {x!r} as {argument}, in which it has "
            "no derivative. Pass a number, for example ft.stop_gradient(x)."
        )
    return x


@counterpart(sp.multigammaln)  # type: ignore[attr-defined]  # SciPy's stubs lack it
def multigammaln(a, d):
    """The logarithm of the multivariate gamma function: sum of gammaln(a - j / 2), j < d."""
    d = int(_constant("multigammaln", "d, the dimension", d))
    a = as_operand(a)
    value = known_value(a)
    if value is not None and np.any(np.asarray(value) <= (d - 1) / 2):
        raise ValueError(f"condition a ({value!r}) > 0.5 * (d-1) ({(d - 1) / 2:f}) not met")
    constant = d * (d - 1) * 0.25 * math.log(math.pi)
    if value is None:  # under jit and vmap
        a = where(a > (d - 1) / 2, a, np.nan)
    return sum([_gammaln(ops.subtract(a, j / 2)) for j in range(1, d)], _gammaln(a) + constant)


@counterpart(sp.polygamma)
def polygamma(n, x):
    """The n-th derivative of digamma(x)."""
    n = np.asarray(_constant("polygamma", "n, the order", n))
    x = as_operand(x)
    if n.ndim == 0 and n == 0:
        return _psi(x)
    sign = np.where(n % 2 == 0, -1.0, 1.0)
    scale = (sign * sp.gamma(n + 1.0)).astype(np.result_type(x.dtype, np.float16))[()]
    higher = scale * _zeta(np.maximum(n + 1.0, 2.0).astype(scale.dtype)[()], x)
    return higher if (n > 0).all() else where(n == 0, _psi(x), higher)


@counterpart(sp.comb)
def comb(N, k, *, exact=False, repetition=False):
    """The number of ways to choose k of N, continued by the gamma function; 0 outside 0 <= k <= N.
    """
    if exact:
        raise refused("functrans.scipy.special.comb", "exact", exact, NO_SLOPE)
    N, k = as_operand(N), as_operand(k)
    if repetition:
        return where((k == 0) & (N >= 0), 1.0, comb(N + k - 1, k))
    return where((k <= N) & (N >= 0) & (k >= 0), _binom(N, k), 0.0)


@counterpart(sp.perm)
def perm(N, k, exact=False):
    """The number of ordered choices of k of N: comb(N, k) k!."""
    if exact:
        raise refused("functrans.scipy.special.perm", "exact", exact, NO_SLOPE)
    N, k = as_operand(N), as_operand(k)
    return where((k <= N) & (N >= 0) & (k >= 0), _poch(N - k + 1, k), 0.0)


@counterpart(sp.factorial)
def factorial(n, exact=False, extend="zero"):
    """gamma(n + 1), for n < 0 zero or, with ``extend="complex"``, what gamma is there."""
    if exact:
        raise refused("functrans.scipy.special.factorial", "exact", exact, NO_SLOPE)
    n = as_operand(n)
    y = _gamma(n + 1)
    return y if extend == "complex" else where(n < 0, 0.0, y)


# ---- What ``scipy.special``'s ufuncs do with traced values: the row of each, or a function of rows

# imported for the rows that they declare
assert integrals and distributions and declare and densities and bessel and incomplete
assert densities and bessel and distributions
# Ufuncs inside of functions of SciPy's, which hand traced values on to them.
INSIDE = {"_zeta": gamma.zeta, "_riemann_zeta": gamma.riemann_zeta}


MEANINGS: dict[np.ufunc, Any] = {
    row.impl: row
    for row in TABLE.values()
    if row.name.startswith("special.") and isinstance(row.impl, np.ufunc)
}
MEANINGS |= {
    getattr(sp._ufuncs, name): row for name, row in INSIDE.items() if hasattr(sp._ufuncs, name)
}
MEANINGS |= {
    sp.airy: bessel.airy, sp.airye: bessel.airye, sp.ellipj: integrals.ellipj,
    sp.fresnel: integrals.fresnel, sp.shichi: integrals.shichi,
    sp.sici: integrals.sici, sp.voigt_profile: densities.voigt_profile,
}
MEANINGS |= {getattr(sp, name): f for name, f in distributions.COMPOSED.items()}
UFUNCS |= MEANINGS
