"""The action of the exponential of a sparse matrix, after ``scipy.sparse.linalg``.

Powers of the matrix are applied, as many as the size of the matrix needs, so all derivatives are
those of products. The number of steps follows A. Al-Mohy and N. Higham, "Computing the action of
the matrix exponential" (2011): exp(A) = exp(A / s)^s, each factor a Taylor polynomial.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

from functrans._core.bind import AnyArray, known
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.structure import as_operand
from functrans.scipy.public import is_traced
from functrans.scipy.sparse.arrays import SparseArray, lifted

sl: Any = linalg  # its types say less than its functions take
# The norm of the matrix of one step; its series loses few digits, and so do its derivatives.
STEP = 2.0


def _norm(A: SparseArray) -> float:
    data = known(A.data)
    if data is None:
        raise UnsupportedError(
            f"{user_line()}: expm_multiply takes as many steps as the size of the matrix says, "
            "which is not known under jit or vmap. Call it outside."
        )
    return float(np.bincount(A.pattern.cols, abs(np.asarray(data))).max()) if A.nnz else 0.0


def _applied(A: SparseArray, B: Any, t: float, norm: float) -> AnyArray:
    """exp(t A) B."""
    steps = max(math.ceil(abs(t) * norm / STEP), 1)
    size, term, degree = abs(t) * norm / steps, 1.0, 0
    while term > 1e-18 or degree < 2:  # one more than the value needs, for its derivatives
        degree += 1
        term *= size / degree
    for _ in range(steps):
        part = B
        for k in range(1, degree + 3):
            part = (A @ part) * (t / (steps * k))
            B = B + part
    return B


def expm_multiply(A, B, start=None, stop=None, num=None, endpoint=None, traceA=None):
    """exp(A) B, or with ``start``, ``stop`` and ``num`` that of exp(t A) B at these times.

    It is differentiated in the entries of ``A`` and in ``B``.
    """
    if not (isinstance(A, SparseArray) or is_traced((A, B))):
        return sl.expm_multiply(A, B, start, stop, num, endpoint, traceA)
    if isinstance(A, sl.LinearOperator):
        raise UnsupportedError(f"{user_line()}: expm_multiply got a LinearOperator beside a traced "
                               "value; pass a sparse array.")
    if not (isinstance(A, SparseArray) or sparse.issparse(A)):
        raise UnsupportedError(f"{user_line()}: expm_multiply got a dense matrix beside a traced "
                               "value; take functrans.scipy.linalg.expm(A) @ B.")
    A, B = lifted(A), as_operand(B)
    if A.shape[0] != A.shape[1]:
        raise ValueError("expected A to be like a square matrix")
    if A.shape[1] != B.shape[0]:
        raise ValueError(f"shapes of matrices A {A.shape} and B {B.shape} are incompatible")
    norm = _norm(A)
    if start is None and stop is None and num is None:
        return _applied(A, B, 1.0, norm)
    times = np.linspace(0.0 if start is None else start, 1.0 if stop is None else stop,
                        50 if num is None else num, endpoint=endpoint is None or bool(endpoint))
    ys, before = [], 0.0
    for t in times:
        B, before = _applied(A, B, float(t - before), norm), t
        ys.append(B)
    return np.stack(ys)
