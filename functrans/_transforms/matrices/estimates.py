"""Traces of derivative matrices from a few products with random vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from functrans import tree
from functrans._core.aval import aval_of
from functrans._transforms.arguments import describe, hand_out, require_callable
from functrans._transforms.matrices.operators import Products, of_hessian
from functrans._transforms.options import require_choice, require_count
from functrans._transforms.rules.stop_gradient import stop_gradient
from functrans.errors import NotDifferentiable, name_of

WHO = "hutchinson"


class TraceEstimate(NamedTuple):
    """A trace, estimated; ``standard_error`` is the standard deviation that the estimate is
    thought to have, from the spread of its samples."""

    estimate: Any
    standard_error: Any


def hutchinson(
    f: Callable[[Any], Any], x: Any, samples: int = 100, seed: int | np.random.Generator = 0, *,
    kind: str = "hessian", method: str = "hutchinson",
) -> TraceEstimate:
    """An estimate of the trace of the Hessian of ``f`` at ``x``, and its standard error.

    With ``kind="jacobian"`` of the trace of the Jacobian, the divergence of ``f``. ``samples``
    products with vectors of random signs are taken; ``seed`` is that of a generator, or one.

    ``method="hutchinson"``: the mean of ``v^T A v`` (M. F. Hutchinson, 1990). Its variance is
    twice the sum of the squares of the entries of ``(A + A^T) / 2`` off the diagonal, divided
    by ``samples``; where there are none, a single sample is exact.
    ``method="hutch++"``: a third of the products finds where ``A`` is large, a third gives the
    trace there exactly, and the others estimate what is left (R. A. Meyer, C. Musco, C. Musco and
    D. P. Woodruff, 2021). Better where a few eigenvalues dominate; the standard error is that of
    the last part.

    Of one sample there is no standard error, so it is NaN. Derivatives of the estimate are
    estimates of the derivatives. Under ``jit`` the vectors are drawn when it is compiled.

    >>> import functrans as ft, numpy as np
    >>> A = np.diag([1.0, 2.0, 3.0]) + 0.1
    >>> ft.hutchinson(lambda x: x @ A @ x / 2, np.ones(3), samples=1000)
    TraceEstimate(estimate=Array(6.29...), standard_error=Array(0.01...))
    >>> ft.hutchinson(lambda x: x @ A @ x / 2, np.ones(3), samples=9, method="hutch++").estimate
    Array(6.3)
    """
    function = require_callable(WHO, f)
    require_choice(WHO, "method", method, ("hutchinson", "hutch++"))
    count = require_count(WHO, "samples", samples, 3 if method == "hutch++" else 1)
    require_choice(WHO, "kind", kind, ("hessian", "jacobian"))
    products = (of_hessian if kind == "hessian" else Products)(WHO, function, x)
    m, n = products.shape
    if products.complex:
        raise NotDifferentiable(
            f"{WHO}: the argument of `{name_of(f)}` is complex. Pass real and imaginary part."
        )
    if m != n:
        raise NotDifferentiable(
            f"{WHO}: a trace is of a square matrix, but `{name_of(f)}` returned "
            f"{describe(tree.unflatten(products.run.structure, products.run.values))} for "
            f"{describe(x)}"
        )
    rng = np.random.default_rng(seed)
    if method == "hutchinson":
        sums = _forms(products, _signs(rng, count, n))
        return _estimate(sums, 0.0)
    return _hutch_plus_plus(products, rng, min(count // 3, n), count)


def _hutch_plus_plus(
    products: Products, rng: np.random.Generator, rank: int, count: int
) -> TraceEstimate:
    n = products.shape[1]
    sketch = stop_gradient(products.push(_signs(rng, rank, n).T))
    # for any fixed basis the estimate is unbiased, so no derivative needs to pass through it
    basis = np.linalg.qr(sketch)[0]
    exact = _forms(products, np.conjugate(basis).T, basis.T).sum()
    rest = _signs(rng, count - 2 * rank, n)
    rest = rest - (rest @ np.conjugate(basis)) @ basis.T
    return _estimate(_forms(products, np.conjugate(rest), rest), exact)


def _signs(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Random signs, of variance 1 and the least fourth moment."""
    return rng.integers(0, 2, (rows, columns), np.int8) * 2.0 - 1.0


def _forms(products: Products, rows: Any, right: Any = None) -> Any:
    """``u A v`` for each row ``u`` and the row ``v`` beside it, by default the same."""
    right = rows if right is None else right
    moved = products.push(right.T).T
    return (rows * moved).sum(axis=1)


def _estimate(forms: Any, known: Any) -> TraceEstimate:
    count = aval_of(forms).size
    mean = forms.mean()
    if count == 1:
        return TraceEstimate(hand_out(mean + known), hand_out(0 * abs(mean) + np.nan))
    spread = abs(forms - mean) ** 2
    error = np.sqrt(spread.sum() / (count * (count - 1)))
    return TraceEstimate(hand_out(mean + known), hand_out(error))
