"""Values that coincide, and decompositions by LAPACK of matrices that need not be finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.array import Aval
from functrans._core.bind import AnyArray, Tracer, is_finite, known_value
from functrans._ops.calls import stop
from functrans._ops.declare import General, Linear, primitive, strong_multiply
from functrans._ops.elementwise import absolute, ratio, where
from functrans._ops.structure import stacked
from functrans.errors import NotDifferentiable

# ---- Decompositions by LAPACK of matrices that need not be finite
#
# LAPACK's svd of a matrix with inf never returns. For NaN, NumPy raises or returns NaN.


def svd(x: np.ndarray, full_matrices: bool = True) -> tuple:
    _require_finite(x)
    return tuple(np.linalg.svd(x, full_matrices))


def svd_for_values(x: np.ndarray) -> tuple:
    """The thin svd; NaN of matrices with inf, as NumPy's singular values are."""
    if np.isnan(x).any():
        _require_finite(x)
    return _where_finite(lambda x: np.linalg.svd(x, full_matrices=False), x)


def svd_or_nan(x: np.ndarray) -> tuple:
    """The svd, NaN of matrices that are not finite: for rules, whose value is NaN already."""
    return _where_finite(np.linalg.svd, x)


def eigh_or_nan(x: np.ndarray) -> tuple:
    """The same of Hermitian matrices."""
    return _where_finite(np.linalg.eigh, x)


def pinv(x: np.ndarray, rcond: float) -> np.ndarray:
    _require_finite(x)
    return np.linalg.pinv(x, rcond)


def _all_finite(x):
    return is_finite(x) or bool(np.isfinite(x).all())


def _require_finite(x):
    if not _all_finite(x):
        raise np.linalg.LinAlgError("SVD did not converge")


def _where_finite(f: Callable[[Any], Any], x: np.ndarray) -> tuple:
    """``f`` of each matrix that is finite, NaN of the others."""
    if _all_finite(x):
        return tuple(f(x))
    finite = np.asarray(np.isfinite(x).all(axis=(-2, -1)))
    return tuple([
        np.where(finite.reshape(finite.shape + (1,) * (y.ndim - finite.ndim)), y, np.nan)
        for y in f(np.where(finite[..., None, None], x, 0))
    ])


# ---- Values that coincide, where a rule divides zero by zero or a function has a kink
#
# ``slope_ratio``, ``settle`` and ``enter`` are not in the table: they serve only ``nodes.py``.


def _slope_ratio_choose(ts, y):
    above, below = ts
    if below is None:
        return y
    return ratio(np.zeros(y.shape, y.dtype) if above is None else above, below)


def _nan_like(y):
    return np.full(y.shape, np.nan, y.dtype)


def _unknown_slope(ts, y, xs):
    # of each tangent, for reverse mode transposes it
    parts = [np.nan * t for t in ts if t is not None]
    return np.broadcast_to(sum(parts), y.shape).astype(y.dtype)


# 0 / 0, known only along a tangent: then it is the ratio of the slopes, to first order
slope_ratio = General(
    "slope_ratio", lambda x1, x2: _nan_like(x1 / np.ones(x2.shape, x2.dtype)),
    jvp=_unknown_slope, vjp=None, saves="y", choose=_slope_ratio_choose,
    batch=stacked(lambda: slope_ratio),
    abstract=lambda x1, x2: Aval(
        np.broadcast_shapes(x1.shape, x2.shape), np.result_type(x1.dtype, x2.dtype)
    ),
)
# the identity, at which the trace of that level drops its tangents; see ``nodes.py``
settle = Linear(
    "settle", lambda x, of: x, lambda ct, x, of: ct,
    lambda size, xs, batched, of: settle(xs[0], of=of), 1, abstract=lambda x, of: x,
)

# the identity on values that come to where there are such tangents, whose cotangents drop them
enter = Linear(
    "enter", lambda x, of: np.positive(x), lambda ct, x, of: settled(ct, of),
    lambda size, xs, batched, of: enter(xs[0], of=of), 1, abstract=lambda x, of: x,
)


def magnitude(x: Any) -> AnyArray:
    """|x| or something like it, for comparisons."""
    return absolute(x.real) + absolute(x.imag) if x.dtype.kind == "c" else absolute(x)


def top(*xs: Any) -> AnyArray:
    """The size of the largest entry of the matrices ``xs``, None for one that is absent."""
    sizes = [magnitude(x).max(axis=(-2, -1), initial=0.0) for x in xs if x is not None]
    most = sizes[0]
    for size in sizes[1:]:
        most = where(size > most, size, most)
    return most.reshape((*most.shape, 1, 1))


def visible(m: Any, most: Any) -> np.ndarray:
    """Where an entry of ``m`` is not just rounding beside the size ``most``."""
    return magnitude(m) > most * float(np.sqrt(np.finfo(m.dtype).eps))


# Relative to the largest value: the gaps over which a derivative that divides by them once, or
# twice as second derivatives do, keeps about 3/8 of the digits of its type (6 of float64).
ONCE, TWICE = 5 / 8, 5 / 16
# The gaps below which a limit is at least as good as the division.
LIMIT = 7 / 16


def within(gap: Any, size: Any, power: float) -> AnyArray:
    """Where a ``gap`` of two of the values up to ``size`` is at most eps**power of it."""
    return absolute(gap) <= size * float(np.finfo(gap.dtype).eps) ** power


def agrees(numerator: Any, limit: Any, gap: Any, most: Any) -> AnyArray:
    """Whether ``limit`` is ``numerator / gap`` up to the rounding of a numerator that was computed
    from entries up to ``most``."""
    rounding = most * (16 * gap.shape[-1] * float(np.finfo(gap.dtype).eps))
    return magnitude(numerator - limit * gap) <= rounding


def refuse(flags: Any, said: Callable[[tuple[int, ...]], str]) -> None:
    """Raise what is ``said`` of the index of the first flag that is set, if that is known."""
    known = known_value(flags)
    if isinstance(known, np.ndarray | np.generic) and np.any(known):
        raise NotDifferentiable(said(tuple([int(k[0]) for k in np.nonzero(known)])))


def number(x: Any, at: tuple[int, ...]) -> AnyArray:
    """The entry of ``x`` at an index, for an error message."""
    return known_value(x)[at]


def of_matrix(at: tuple[int, ...]) -> str:
    """Which one of a stack of matrices, for an error message."""
    return f" of matrix {at}" if at else ""


def coinciding(what: str, w: Any, at: tuple[int, ...], do: str = "coincide") -> str:
    """Which two of the values ``w``, of which of the matrices, for an error message."""
    *lead, i, j = at
    low, high = number(w, (*lead, i)), number(w, (*lead, j))
    return (f"{what} {i} and {j}{of_matrix(tuple(lead))} {do} (gap {abs(high - low):.1e} at "
            f"{low:.6g})")


# Why a second derivative is not given where values nearly coincide.
SQUARED = "would divide by the square of the gap, after which too few digits are left"


def refuse_coinciding(who: str, what: str, w: Any, flags: Any, why: str, do: str = "coincide"
                      ) -> None:
    """An error that names the first two of the values ``w`` with a flag, if these are known."""
    refuse(flags, lambda at: f"{who}: {coinciding(what, w, at, do)}, and {why}")


def settled(x: Any, split: float | None) -> AnyArray:
    """``x`` without the tangents that tell coinciding values apart; see the rows' ``split``."""
    inside = split is not None and isinstance(x, Tracer) and x.owner.level >= split
    return settle(x, of=split) if inside else x


def is_differentiated(x: Any) -> bool:
    """Whether a derivative is taken of ``x`` outside of this rule."""
    return isinstance(x, Tracer) and x.is_differentiated()


def may_meet(near: Any) -> bool:
    """Whether any of the flags is set, or may be because they are not known."""
    flags = near.whole() if isinstance(near, Tracer) else near
    return near.size > 0 and (flags is None or bool(np.any(flags)))


def blocks(near: Any) -> AnyArray:
    """The number of each sorted entry's block; ``near`` says which are close, with a row and a
    column for each entry."""
    n = near.shape[-1]
    alone = np.diagonal(near, 1, -2, -1) == 0
    return where(alone[..., None, :], np.tri(n, n - 1, -1, int), 0).sum(axis=-1)


def _together(near):
    """Which entries are in one block, for each pair, and how many with each."""
    block = blocks(near)
    same = block[..., :, None] == block[..., None, :]
    return same, same.sum(axis=-1)


def equal_and_apart(w: Any, near: Any, close: Any) -> tuple | None:
    """``w``, sorted, with entries that are ``near`` to each other made equal, and slopes that tell
    those apart that are ``close``; None where there are none. Each has a row and a column for each
    entry."""
    if not may_meet(close):
        return None
    same, count = _together(near)
    equal = _mean_of(w, same, count)
    among, close_count = _together(close)
    slopes = np.broadcast_to(np.arange(w.shape[-1], dtype=w.dtype), w.shape)
    # around 0 in each block: what moves a pair apart moves it by the mean of both slopes
    slopes = slopes - _mean_of(slopes, among, close_count)
    # each moves as before, which derivatives outside of a program must still see
    return where(count > 1, stop(equal) + (w - stop(w)), w), slopes


def _mean_of(w: Any, same: Any, count: Any) -> AnyArray:
    """The mean of each entry's block."""
    return where(same, w[..., None, :], 0).sum(axis=-1) / count.astype(w.dtype)


def zero_or_nan(x: Any, flags: Any) -> AnyArray:
    """0, whose derivative is NaN where a flag is set and ``x`` moves."""
    gone = where(flags, np.nan, np.zeros((), x.real.dtype))
    return strong_multiply(x - stop(x), gone)


def first_order(x: Any, flags: Any, *sources: Any) -> AnyArray:
    """``x``, entries of matrices, whose derivatives in ``sources`` are NaN for each matrix with a
    flag: there the rule holds only for fixed values."""
    if not may_meet(flags):
        return x
    flagged = flags.any(axis=(-2, -1))
    for source in sources:
        within = tuple(range(len(flagged.shape), len(source.shape)))
        lost = zero_or_nan(source, flagged.reshape((*flagged.shape, *[1] * len(within))))
        x = x + lost.sum(axis=within).reshape((*flagged.shape, 1, 1))
    return x


def share(ct: Any, near: Any) -> AnyArray:
    """The cotangent of sorted values, where those of a block that coincides differ their mean.

    A function that tells such values apart has a kink there. Its subgradient of least norm is the
    one that gives all of them equal shares, whatever basis they came with. Where the cotangents are
    equal the function may be smooth, and they stay as they are.
    """
    if not may_meet(near):
        return ct
    same, count = _together(near)
    seen = stop(ct)
    entries = seen[..., None, :]
    spread = where(same, entries, -np.inf).max(axis=-1) - where(same, entries, np.inf).min(axis=-1)
    size = absolute(seen).max(axis=-1, keepdims=True)
    kinked = spread > size * float(np.sqrt(np.finfo(ct.dtype).eps))
    mean = where(same, ct[..., None, :], 0).sum(axis=-1) / count.astype(ct.dtype)
    return where(kinked, mean, ct)


def _vectors_if(x, near):
    if near.any():
        return eigh_or_nan(x)[1]
    return np.broadcast_to(np.eye(x.shape[-1], dtype=x.dtype), x.shape)


def _unknown(xs, like):
    met = xs[1].any(axis=(-2, -1), keepdims=True)
    return np.broadcast_to(where(met, np.nan, 0), xs[0].shape).astype(xs[0].dtype)


# row: a compiled program pays for a second eigenproblem only where values do coincide; what
# differentiates it would need derivatives of the choice, which has none: NaN
vectors_if = primitive(
    "vectors_if", _vectors_if, saves="x", jvp=lambda ts, y, xs: _unknown(xs, y),
    vjp=lambda ct, y, xs, wanted: [_unknown(xs, ct)] + [None] * (len(xs) - 1),
    batch=stacked(lambda: vectors_if),
    abstract=lambda x, near: x,
    doc="Eigenvectors of ``x`` if any of the flags ``near`` is set, else the identity.",
)
