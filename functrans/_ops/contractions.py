"""Rows that multiply and sum: matmul, einsum, convolve, cross. All bilinear, all by BLAS.

No cotangent is conjugated, so the transpose of ``a @ b`` in ``a`` is ``ct @ b.T`` for complex
numbers too.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from functrans._core.array import Aval
from functrans._core.bind import bind
from functrans._ops.declare import align, bilinear
from functrans._ops.structure import aligned

# ---- matmul


def _matmul(x1, x2):
    if x1.ndim > 2 and x2.ndim == 2 and x1.flags.c_contiguous:
        # one product instead of one for each batch entry
        rows = x1.reshape(-1, x1.shape[-1]) if x1.size else x1
        if rows is not x1:
            return (rows @ x2).reshape((*x1.shape[:-1], x2.shape[1]))
    return np.matmul(x1, x2)


def _product(x1, x2):
    """``matmul`` in a rule. Rules give no warnings, so ``dot`` will do, at half the overhead."""
    if type(x1) is type(x2) is np.ndarray and x1.ndim <= 2 and x2.ndim <= 2:
        return x1.dot(x2)
    return bind(matmul, x1, x2)


def _rows(x):
    """``x`` as a matrix: all axes but the last are one."""
    return x if len(x.shape) == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _columns(x):
    """``x`` of shape (..., k, m) as a matrix of shape (k, everything else)."""
    order = (len(x.shape) - 2, *range(len(x.shape) - 2), len(x.shape) - 1)
    return x.transpose(order).reshape(x.shape[-2], math.prod((*x.shape[:-2], x.shape[-1])))


def _row(x):
    return x.reshape((*x.shape[:-1], 1, x.shape[-1]))


def _swap(x):
    return x.T if len(x.shape) == 2 else x.mT


def _matmul_transpose1(ct, x1, x2):
    n1, n2 = len(x1.shape), len(x2.shape)
    if n2 == 1:
        return ct * x2 if n1 == 1 else ct.reshape((*ct.shape, 1)) * x2
    if n1 == 1:
        return _product(x2, ct) if n2 == 2 else matmul(x2, ct.reshape((*ct.shape, 1)))[..., 0]
    if n1 == 2 < n2 and 0 not in ct.shape:  # the sum over the batch is part of one product
        return _product(_columns(ct), _columns(x2).T)
    return _product(ct, _swap(x2))


def _matmul_transpose2(ct, x1, x2):
    n1, n2 = len(x1.shape), len(x2.shape)
    if n1 == 1:
        return x1 * ct if n2 == 1 else x1.reshape(-1, 1) * _row(ct)
    if n2 == 1:
        if n1 == 2:
            return _product(ct, x1)
        return _product(ct.reshape(-1), _rows(x1)) if x1.size else _zeros(ct, x1, x2)
    if n2 == 2 < n1:
        return _product(_rows(x1).T, _rows(ct)) if ct.size else _zeros(ct, x1, x2)
    return _product(_swap(x1), ct)


def _zeros(ct, x1, x2):
    return np.zeros(x2.shape, np.result_type(ct.dtype, x1.dtype))


# All unit vectors of a space, one a row, while a derivative matrix is made of their images. Their
# product with a matrix is the matrix, also where that is not finite: zeros of tangents are strong.
unit_vectors: WeakValueDictionary[int, np.ndarray] = WeakValueDictionary()


def _images(vectors, a):
    """What a matrix makes of vectors, one a row."""
    if unit_vectors.get(id(vectors)) is vectors and vectors.dtype == a.dtype:
        # a copy by rows: no transform hands out an array of others
        return (np.array(a, order="C") if isinstance(a, np.ndarray) else a).T
    return matmul(vectors, a.T)


def _matmul_batch(size, xs, batched):
    x1, x2 = xs
    n1, n2 = len(x1.shape) - batched[0], len(x2.shape) - batched[1]
    if n2 == 1:
        if not batched[1]:
            return matmul(x1, x2)
        if not batched[0]:  # the batch is the rows of one product
            y = matmul(x2, x1) if n1 == 1 else _images(x2, _rows(x1))
            return y if n1 <= 2 else y.reshape(size, *x1.shape[:-1])
        if n1 == 1:
            return einsum(x1, x2, subscripts="ab,ab->a")
        return matmul(x1, align(x2.reshape((*x2.shape, 1)), n1))[..., 0]
    if n1 == 1:
        if not batched[0]:
            return matmul(x1, x2)
        if not batched[1] and n2 == 2:
            return matmul(x1, x2)
        x1 = x1.reshape(size, *(1,) * (n2 - 1), x1.shape[-1])
        return matmul(x1, x2)[..., 0, :]
    ndim = max(n1, n2)
    return matmul(align(x1, ndim) if batched[0] and n2 > 2 else x1,
                  align(x2, ndim) if batched[1] and n1 > 2 else x2)


@functools.cache
def _product_dtype(dtype1, dtype2):
    """NumPy's: of bfloat16 it is float32."""
    return np.matmul(np.zeros(1, dtype1), np.zeros(1, dtype2)).dtype


def _matmul_abstract(x1, x2):
    (s1, s2), dtype = (x1.shape, x2.shape), _product_dtype(x1.dtype, x2.dtype)
    batch = np.broadcast_shapes(s1[:-2], s2[:-2])
    return Aval((*batch, *s1[-2:-1], *(s2[-1:] if len(s2) > 1 else ())), dtype)


def _matmul_flops(shapes, params):
    if len(shapes) < 2 or not shapes[0] or not shapes[1]:
        return 0
    a, b = shapes[:2]
    rows, columns = a[-2] if len(a) > 1 else 1, b[-1] if len(b) > 1 else 1
    batch = max(math.prod(a[:-2]), math.prod(b[:-2]))
    return 2 * rows * a[-1] * columns * batch


matmul = bilinear(
    "matmul", _matmul, _matmul_transpose1, _matmul_transpose2, batch=_matmul_batch,
    abstract=_matmul_abstract, flops=_matmul_flops,
)

# ---- einsum of two operands


class Plan(NamedTuple):
    """How a two-operand einsum becomes one matrix product: axes of each operand, in order."""

    batch: int
    rows: int
    columns: int
    summed: int
    perm1: tuple[int, ...]  # to batch, rows, summed
    perm2: tuple[int, ...]  # to batch, summed, columns
    perm: tuple[int, ...]  # of the product, batch, rows, columns, to the output


@functools.lru_cache(maxsize=4096)
def plan(subscripts: str) -> Plan:
    """The plan of an einsum that sums something, or of an outer product."""
    in1, in2, out = _labels(subscripts)
    batch = [c for c in out if c in in1 and c in in2]
    rows = [c for c in in1 if c not in in2]
    columns = [c for c in in2 if c not in in1]
    summed = [c for c in in1 if c in in2 and c not in out]
    have = [*batch, *rows, *columns]
    assert sorted(have) == sorted(out), subscripts
    return Plan(
        len(batch), len(rows), len(columns), len(summed),
        tuple(in1.index(c) for c in [*batch, *rows, *summed]),
        tuple(in2.index(c) for c in [*batch, *summed, *columns]),
        tuple(have.index(c) for c in out),
    )


def _labels(subscripts):
    operands, out = subscripts.split("->")
    in1, in2 = operands.split(",")
    return in1, in2, out


def _einsum(x1, x2, subscripts):
    p = plan(subscripts)
    if not p.summed:
        return _outer(x1, x2, p)
    v1, v2 = x1.transpose(p.perm1), x2.transpose(p.perm2)
    b, r = p.batch, p.rows
    batch, rows, columns = v1.shape[:b], v1.shape[b : b + r], v2.shape[b + p.summed :]
    n, m, k = _size(rows), _size(columns), _size(v1.shape[b + r :])
    if b and n * m * k <= 64 and _runs_along(subscripts) and x1.dtype.kind != "V":
        # small products along a contiguous batch: C loops over it are several times faster
        return np.einsum(_readable(subscripts), x1, x2)
    v1, v2 = v1.reshape((*batch, n, k)), v2.reshape((*batch, k, m))
    y = np.matmul(v1, v2).reshape((*batch, *rows, *columns))
    return y.transpose(p.perm)


def _size(shape):
    n = 1
    for k in shape:
        n *= k
    return n


def _runs_along(subscripts):
    in1, in2, out = _labels(subscripts)
    return in1[-1] == in2[-1] == out[-1:]


@functools.lru_cache(maxsize=4096)
def _readable(subscripts):
    """The same with the letters that NumPy takes."""
    names: dict[str, str] = {c: c for c in ",->"}
    for c in sorted(set(subscripts) - set(",->")):
        names[c] = chr(ord("a") + len(names) - 3)
    return "".join([names[c] for c in subscripts])


def _outer(x1, x2, plan):
    """Nothing is summed: a broadcast product, laid out as the output."""
    b, r, c = plan.batch, plan.rows, plan.columns
    x1, x2 = np.asarray(x1), np.asarray(x2)  # one may be a number of Python's
    v1, v2 = x1.transpose(plan.perm1), x2.transpose(plan.perm2)
    v1 = v1.reshape((*v1.shape, *(1,) * c)).transpose(plan.perm)
    v2 = v2.reshape((*v2.shape[:b], *(1,) * r, *v2.shape[b:])).transpose(plan.perm)
    return v1 * v2


def _einsum_transpose1(ct, x1, x2, subscripts):
    in1, in2, out = _labels(subscripts)
    return einsum(ct, x2, subscripts=f"{out},{in2}->{in1}")


def _einsum_transpose2(ct, x1, x2, subscripts):
    in1, in2, out = _labels(subscripts)
    return einsum(x1, ct, subscripts=f"{in1},{out}->{in2}")


def _einsum_batch(size, xs, batched, subscripts):
    in1, in2, out = _labels(subscripts)
    new = chr(max(map(ord, subscripts)) + 1)
    in1, in2 = new * batched[0] + in1, new * batched[1] + in2
    return einsum(*xs, subscripts=f"{in1},{in2}->{new}{out}")


def _einsum_abstract(x1, x2, subscripts):
    in1, in2, out = _labels(subscripts)
    sizes = dict(zip(in1 + in2, x1.shape + x2.shape, strict=True))
    dtype = (_product_dtype if plan(subscripts).summed else np.result_type)(x1.dtype, x2.dtype)
    return Aval(tuple(sizes[c] for c in out), dtype)


# ``subscripts`` is explicit and without ellipsis; no operand repeats a label, sizes agree, and a
# label that only one operand has is in the output. So transposes are einsums of the same kind.
def _einsum_flops(shapes, params):
    terms = params["subscripts"].split("->")[0].split(",")
    return 2 * math.prod({
        c: n for term, shape in zip(terms, shapes, strict=True)
        for c, n in zip(term, shape, strict=True)
    }.values())


einsum = bilinear(
    "einsum", _einsum, _einsum_transpose1, _einsum_transpose2, batch=_einsum_batch,
    abstract=_einsum_abstract, flops=_einsum_flops,
)

# ---- convolve, along the last axis


def _convolve(x1, x2, mode):
    if len(x1.shape) == len(x2.shape) == 1:
        return np.convolve(x1, x2, mode)
    n1, n2 = x1.shape[-1], x2.shape[-1]
    if mode == "full" and n1 < n2:
        x1, x2, n1, n2 = x2, x1, n2, n1
    n = n1 + n2 - 1 if mode == "full" else n1 - n2 + 1
    lead = np.broadcast_shapes(x1.shape[:-1], x2.shape[:-1])
    y = np.zeros((*lead, n), np.result_type(x1, x2))
    for j in range(n2):
        if mode == "full":
            y[..., j : j + n1] += x1 * x2[..., j : j + 1]
        else:
            y += x1[..., n2 - 1 - j : n1 - j] * x2[..., j : j + 1]
    return y


def _backward(x):
    return x[..., ::-1]


def _convolve_transpose2(ct, x1, x2, mode):
    if mode == "full":
        return bind(convolve, ct, _backward(x1), mode="valid")
    return _backward(bind(convolve, x1, _backward(ct), mode="valid"))


def _convolve_abstract(x1, x2, mode):
    n1, n2 = x1.shape[-1], x2.shape[-1]
    n = n1 + n2 - 1 if mode == "full" else n1 - n2 + 1
    lead = np.broadcast_shapes(x1.shape[:-1], x2.shape[:-1])
    return Aval((*lead, n), np.result_type(x1.dtype, x2.dtype))


# ``mode`` is "full", or "valid" where x1 is at least as long as x2: transposes of each other.
def _convolve_flops(shapes, params):
    n, m = shapes[0][-1], shapes[1][-1]
    long, short = max(n, m), min(n, m)
    valid = params["mode"] == "valid"
    return 2 * math.prod(shapes[0][:-1]) * ((long - short + 1) * short if valid else n * m)


convolve = bilinear(
    "convolve", _convolve,
    lambda ct, x1, x2, mode: bind(
        convolve, ct, _backward(x2), mode="valid" if mode == "full" else "full"),
    _convolve_transpose2,
    batch=lambda size, xs, batched, mode: bind(convolve, *aligned(xs, batched), mode=mode),
    abstract=_convolve_abstract, flops=_convolve_flops,
)

# ---- cross product of 3-vectors, along the last axis


# row: six slices and a stack as a composition
cross: Any = bilinear(
    "cross", np.cross,
    lambda ct, x1, x2: cross(x2, ct), lambda ct, x1, x2: cross(ct, x1),
    batch=lambda size, xs, batched: cross(*aligned(xs, batched)), sums=False,
    abstract=lambda x1, x2: Aval(
        np.broadcast_shapes(x1.shape, x2.shape), np.result_type(x1.dtype, x2.dtype)
    ),
)
