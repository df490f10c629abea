"""Rules for complex numbers and Fourier transforms: errors are bounds on absolute values.

A rounded complex sum is off by U of its absolute value, a product by sqrt(5) U (Brent, Percival and
Zimmermann, Math. Comp. 76, 2007), a quotient by Smith's formula by 8 U. Transforms are trusted to
be off by ``8 log2(8 n) U`` in the 2-norm, relatively: about ``2 log2(n) U`` is proved for powers of
2 (Higham, 2nd ed., theorem 24.2), and other lengths are up to three transforms of longer ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._core.primitive import Primitive
from functrans._ops import contractions, fourier, indexing, reductions, structure, windows, writing
from functrans._ops import elementwise as ops
from functrans._ops.calls import stop
from functrans._ops.declare import isnan, strong_multiply, where
from functrans._transforms.rounding import rules, systems
from functrans._transforms.rounding.rules import MORE, TINY, Bounds, Rule, U
from functrans._transforms.rounding.ulps import ULPS

# A complex product, in which parts may underflow; a quotient; a power.
PRODUCT, QUOTIENT, POWER = 2.25, 9.0, 20.0


def _sum(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    exact = (xs[0] == 0) | (xs[1] == 0)
    return es[0] + es[1], np.where(exact, 0.0, U * np.abs(y) * MORE)


def _product(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    moved = rules.RULES[ops.multiply](prim, [*map(np.abs, xs)], es, np.abs(y), params)[0]
    none = (xs[0] == 0) | (xs[1] == 0)
    return moved, np.where(none, 0.0, PRODUCT * U * np.abs(xs[0]) * np.abs(xs[1]) * MORE + 8 * TINY)


def _square(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    return _product(prim, (xs[0], xs[0]), (es[0], es[0]), y, params)


def _quotient(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    moved = rules.RULES[prim](prim, [*map(np.abs, xs)], es, np.abs(y), params)[0]
    return moved, np.where(xs[0] == 0, 0.0, QUOTIENT * U * np.abs(y) * MORE + 8 * TINY)


def _exp(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    size = np.abs(y)
    moved = np.where(es[0] == 0, 0.0, (size * MORE + 4 * TINY) * np.expm1(es[0]) * MORE)
    return moved, POWER * U * size * MORE + 4 * TINY


def _absolute(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    return es[0] + 0 * y, rules.ulps_of(y, ULPS[ops.hypot])


def _kept(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    return es[0] + np.zeros(y.shape), 0.0


def _contracted(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """Products and the parts of each sum are rounded by at most twice what real ones are."""
    moved, rounding = rules.RULES[prim](prim, [*map(np.abs, xs)], es, np.abs(y), params)
    return moved, 4 * rounding


def _transformed(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    (x,), (e,) = xs, es
    axis, norm = params["axis"], params["norm"]
    n = params.get("n") or np.shape(x)[axis]
    inverse = prim is fourier.irfft or params.get("inverse", False)
    share = {"backward": 1.0 * inverse, "ortho": 0.5, "forward": 1.0 - inverse}[norm or "backward"]
    scale = float(n) ** -share * MORE
    double = 2 if prim is fourier.irfft else 1  # frequencies that stand for two
    moved = double * np.sum(e, axis, keepdims=True) * (scale * (MORE + n * 4 * U))
    size = np.sqrt(double * n * np.sum(np.abs(x) ** 2, axis, keepdims=True)) * scale
    lost = np.where(size == 0, 0.0, 1e-150 * scale * n)  # where a square underflows
    rounding = 8 * np.log2(8 * n) * U * (size * (MORE + n * 4 * U) + lost)
    return moved + np.zeros(y.shape), rounding + np.zeros(y.shape)


def _joined(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    return np.hypot(*es) * MORE + np.zeros(y.shape), 0.0


COMPLEX: dict[Primitive, Rule] = {
    ops.add: _sum, ops.subtract: _sum, ops.multiply: _product, strong_multiply: _product,
    ops.square: _square, ops.divide: _quotient, ops.ratio: _quotient, ops.exp: _exp,
    ops.absolute_complex: _absolute, structure.astype: _kept,
    ops.moving_as: _kept, ops.from_parts: _joined,
    fourier.fft: _transformed, fourier.rfft: _transformed, fourier.irfft: _transformed,
    contractions.einsum: _contracted, contractions.matmul: _contracted,
    **systems.COMPLEX, **dict.fromkeys([ops.real, ops.imag], rules.RULES[ops.real]),
    **{row: rules.RULES[row] for row in (
        ops.negative, ops.positive, ops.conjugate, stop, isnan, ops.isfinite, ops.isinf, where,
        ops.equal, ops.not_equal, structure.reshape, structure.transpose,
        structure.broadcast_to, structure.concatenate, structure.stack, structure.diagonal,
        structure.embed_diagonal, indexing.getitem, indexing.scatter_set, writing.fetch,
        windows.windows, reductions.sum, reductions.cumsum, indexing.put_add,
        indexing.scatter_add, windows.overlap_add,
    )},
}
# One rule for each, whatever the numbers: a transform of real ones may have a real result.
TRANSFORMS = {fourier.fft, fourier.rfft, fourier.irfft}
