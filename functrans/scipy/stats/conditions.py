"""Conditions on parameters of distributions, and draws with derivatives in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._core.bind import AnyArray, Tracer, known_value
from functrans._ops import elementwise as ops
from functrans._ops.calls import stop
from functrans._ops.declare import where
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.structure import as_operand
from functrans.scipy.implicit import Numberless, concrete, orders_of

# ---- Conditions on operands and parameters of distributions, asked of plain values where possible


def asked(question: Callable, *xs: Any) -> Any:
    """A condition on ``xs``, of plain values where they are known."""
    plain = [known_value(x) for x in xs]
    return question(*(xs if any([p is None for p in plain]) else plain))


def chosen(keep: Any, y: Any, otherwise: Any) -> AnyArray:
    """``where(keep, y, otherwise)``, without an op where all of ``y`` is known to be kept.

    What stands otherwise may be a function, which is called where it is needed.
    """
    if keep is True or keep is np.True_:
        return y
    if not isinstance(keep, Tracer) and np.asarray(keep).all():
        return y
    return where(keep, y, otherwise() if callable(otherwise) else otherwise)


def or_nan(valid: Any, y: Any, *xs: Any) -> AnyArray:
    """``y`` where what it is computed of is valid; else NaN, and so are the slopes in ``xs``."""
    return chosen(valid, y, lambda: sum([x * np.nan for x in xs if x is not None], y * np.nan))


def without_slope(y: Any, xs: Sequence) -> AnyArray:
    """A moment; where it does not exist, its slopes in ``xs`` are infinite or NaN as it is."""
    return chosen(asked(np.isfinite, y), y,
                  lambda: y * sum([2.0 + ops.arctan(x) for x in xs if x is not None]))


def nan_or(x: Any, otherwise: float) -> Callable[[], Any]:
    """NaN where x is."""
    return lambda: where(asked(np.isnan, x), np.nan, otherwise)


def both(first: Any, second: Any) -> AnyArray:
    """Where both conditions hold; True says that one holds everywhere."""
    return second if first is True else first if second is True else first & second


# ---- Draws of random numbers with derivatives in the parameters of their distribution
#
# SciPy draws x with the numbers of the parameters. As a function of them it keeps its place in the
# distribution: :math:`F(x(\theta), \theta)` is constant, so :math:`dx/d\theta = -F_\theta / p`
# (Figurnov, Mohamed and Mnih, Implicit Reparameterization Gradients, NeurIPS 2018). Location and
# scale move it directly.


def numbers_of(name: str, parameters: Any) -> Any:
    """The numbers of parameters, with which SciPy draws."""
    try:
        return concrete(parameters)
    except Numberless:
        raise UnsupportedError(
            f"{user_line()}: {name}.rvs draws when it is called, with numbers, which traced "
            "parameters have not under jit and vmap. Draw standard variates outside and pass them, "
            "draw with a key by functrans.random, or call it outside of jit."
        ) from None


def quantile_kept(form: Any, z: Any, shapes: Sequence) -> AnyArray:
    """The number ``z`` with the derivatives in ``shapes`` of the quantile of a form that it is."""
    orders = orders_of(list(shapes))
    if not orders:
        return z
    plain = [np.asarray(concrete(s)) for s in shapes]
    upper = np.asarray(form.cdf(z, *plain)) > 0.5
    slope = np.exp(form.log_density(z, *plain))
    y: Any = z
    for _ in range(orders):  # each step makes one more order right, as in ``implicit``
        place = where(upper, -form.sf(y, *shapes), form.cdf(y, *shapes))
        y = y - (place - stop(place)) / slope
    return y


def same_number(x: Any, y: Any) -> AnyArray:
    """``y`` with the number ``x``, from which it differs by rounding alone."""
    return x + (y - stop(y)) if isinstance(y, Tracer) else x


def gaussian(x: Any, mean: Any, factor: Any) -> AnyArray:
    """A draw ``x`` of a normal vector as ``mean + factor @ e`` with e kept; ``factor`` is that of
    Cholesky.
    """
    e = np.linalg.solve(np.asarray(concrete(factor)),
                        (x - np.asarray(concrete(mean)))[..., None])[..., 0]
    return same_number(x, mean + e @ as_operand(factor).T)


def broken_stick(x: np.ndarray, alpha: Any, beta_quantile: Callable) -> AnyArray:
    """A draw ``x`` of Dirichlet's distribution: of what is left, each takes a share that is a draw
    of a beta distribution, which keeps its place there.

    ``beta_quantile(v, a, b)`` is the share v with its derivatives.
    """
    left = np.cumsum(x[..., ::-1], axis=-1)[..., ::-1]
    rest = np.cumsum(alpha[::-1])[::-1]
    parts, whole = [], 1.0
    for i in range(x.shape[-1] - 1):
        share = beta_quantile(x[..., i] / left[..., i], alpha[i], rest[i + 1])
        parts.append(whole * share)
        whole = whole * (1 - share)
    return same_number(x, np.stack([*parts, whole], axis=-1))
