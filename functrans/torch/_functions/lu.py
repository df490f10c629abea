"""Triangular factors with exchange of rows, after LAPACK."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from functrans.torch._functions.failures import in_batch
from functrans.torch._functions.linalg import matrices
from functrans.torch._functions.table import FUNCTIONS, LINALG, op, plain, row

_factors = row("lu")


Lu = namedtuple("Lu", "P L U")
Compact = namedtuple("Compact", "LU pivots")
CompactInfo = namedtuple("CompactInfo", "LU pivots info")


def order_of(A: Any) -> np.ndarray:
    """The order of the rows that partial pivoting chooses, for each matrix."""
    a = np.array(plain(A))
    if a.dtype.kind not in "fc":
        a = a.astype(np.float32)
    *lead, m, n = a.shape
    order = np.broadcast_to(np.arange(m), (*lead, m)).copy()
    with np.errstate(all="ignore"):
        for i in range(min(m, n)):
            best = np.argmax(_size(a[..., i:, i]), -1)[..., None] + i
            for x in (order, *[a[..., j] for j in range(n)]):
                top = x[..., i].copy()
                x[..., i] = np.take_along_axis(x, best, -1)[..., 0]
                np.put_along_axis(x, best, top[..., None], -1)
            pivot = a[..., i, i]
            a[..., i + 1 :, i] /= np.where(pivot == 0, 1, pivot)[..., None]
            a[..., i + 1 :, i + 1 :] -= a[..., i + 1 :, i : i + 1] * a[..., i : i + 1, i + 1 :]
    return order


def _size(a: np.ndarray) -> np.ndarray:
    """By what LAPACK picks a pivot."""
    return np.abs(np.real(a)) + np.abs(np.imag(a)) if a.dtype.kind == "c" else np.abs(a)


def pivots_of(order: np.ndarray, count: int) -> np.ndarray:
    """The exchanges, counted from 1, that lead to an order of rows: LAPACK's pivots."""
    *lead, m = order.shape
    pivots = np.empty((*lead, count), np.int32)
    for at in np.ndindex(*lead):
        now = list(range(m))
        for i in range(count):
            j = now.index(order[at][i])
            now[i], now[j] = now[j], now[i]
            pivots[at][i] = j + 1
    return pivots


def order_from(pivots: np.ndarray, m: int) -> np.ndarray:
    """The order of rows to which LAPACK's pivots lead."""
    *lead, count = pivots.shape
    order = np.broadcast_to(np.arange(m), (*lead, m)).copy()
    for at in np.ndindex(*lead):
        for i in range(count):
            j = pivots[at][i] - 1
            order[at][i], order[at][j] = order[at][j], order[at][i]
    return order


def permutation(order: np.ndarray, dtype: Any) -> np.ndarray:
    """The matrices P with P L U = A, for A[order] = L U."""
    return np.swapaxes(np.eye(order.shape[-1], dtype=dtype)[order], -1, -2)


def _factored(who: str, A: Any, pivot: bool) -> tuple:
    matrices(who, A)
    if not pivot:
        order = np.broadcast_to(np.arange(A.shape[-2]), A.shape[:-1])
        return order, *_factors(A)
    order = order_of(A)
    return order, *_factors(np.take_along_axis(A, order[..., None], -2))


@op(space=LINALG, title="LinalgLuBackward0")
def lu(A, *, pivot=True):
    """P, L, U with A = P L U, L with ones on its diagonal."""
    order, low, up = _factored("lu", A, pivot)
    P = permutation(order, A.dtype) if pivot else np.zeros(0, A.dtype)
    return Lu(P, low, up)


@op(space=LINALG, title="LinalgLuFactorExBackward0")
def lu_factor(A, *, pivot=True):
    """L and U in one matrix, and LAPACK's pivots; an error where U is singular."""
    return Compact(*_with_info("lu_factor", A, pivot, True)[:2])


def _with_info(who: str, A: Any, pivot: bool, check: bool) -> CompactInfo:
    order, low, u = _factored(who, A, pivot)
    m, n = A.shape[-2:]
    k = min(m, n)
    low = np.tril(low, -1)
    if n > k:
        low = np.concatenate([low, np.zeros((*A.shape[:-1], n - k), A.dtype)], -1)
    if m > k:
        u = np.concatenate([u, np.zeros((*A.shape[:-2], m - k, n), A.dtype)], -2)
    zeros = np.diagonal(plain(u), 0, -2, -1) == 0
    info = np.where(zeros.any(-1), zeros.argmax(-1) + 1, 0).astype(np.int32) if k else np.zeros(
        A.shape[:-2], np.int32)
    if check and info.any():
        text = ("U[{0},{0}] is zero and using it on lu_solve would result in a division by zero. "
                "If you still want to perform the factorization, consider calling "
                "linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)")
        raise RuntimeError(f"torch.linalg.{who}: {in_batch(text, info)}")
    return CompactInfo(low + u, pivots_of(order, k), info)


@op(space=LINALG, title="LinalgLuFactorExBackward0")
def lu_factor_ex(A, *, pivot=True, check_errors=False):
    """L and U in one matrix, LAPACK's pivots, and which diagonal entry of U is the first 0, counted
    from 1, or 0; an error there, if ``check_errors``."""
    return _with_info("lu_factor_ex", A, pivot, check_errors)


@op(name="lu", title="LinalgLuFactorExBackward0")
def old_lu(A, pivot=True, get_infos=False):
    """L and U in one matrix, and LAPACK's pivots."""
    out = _with_info("lu", A, pivot, False)
    return tuple(out) if get_infos else tuple(out[:2])


@op(space=FUNCTIONS, title="LuUnpackBackward0")
def lu_unpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True):
    """P, L and U from what ``lu_factor`` returns."""
    m, n = LU_data.shape[-2:]
    k = min(m, n)
    P = low = up = np.zeros(0, LU_data.dtype)
    if unpack_pivots:
        P = permutation(order_from(plain(LU_pivots), m), LU_data.dtype)
    if unpack_data:
        low = np.tril(LU_data[..., :, :k], -1) + np.eye(m, k, dtype=LU_data.dtype)
        up = np.triu(LU_data[..., :k, :])
    return Lu(P, low, up)
