"""Products that sum, under NumPy's names: dot, matmul, einsum, tensordot, convolve, cross, kron."""

from __future__ import annotations

import functools
import operator
import string
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._core.array import PYTHON_SCALARS
from functrans._core.bind import AnyArray, Tracer, bind, cast, newest_trace
from functrans._ops import contractions as rows
from functrans._ops import elementwise as ops
from functrans._ops.structure import move_axis
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.operators import defers, is_other, is_sparse, with_sparse
from functrans.numpy.protocols import USE_RESULT, refused
from functrans.numpy.standard import require_cast
from functrans.numpy.structure import as_operand, is_traced, numpy_like, one_axis


def _conj(x):
    return ops.conjugate(x) if x.dtype.kind == "c" else x


def _pair(a: Any, b: Any) -> tuple[Any, Any]:
    """Both as operands of at least the class of arrays."""
    a = a if type(a) is np.ndarray or isinstance(a, Tracer) else as_operand(a)
    return a, b if type(b) is np.ndarray or isinstance(b, Tracer) else as_operand(b)


# ---- matmul and similar products


def _matmul(x1, x2):
    top = x1.owner if isinstance(x1, Tracer) else None
    if top is None and type(x1) is not np.ndarray:
        return _matmul(as_operand(x1), x2)
    if isinstance(x2, Tracer):
        top = x2.owner if top is None or x2.owner.level > top.level else top
    elif type(x2) is not np.ndarray:
        return _matmul(x1, as_operand(x2))
    s1, s2 = x1.shape, x2.shape
    if not s1 or not s2 or s1[-1] != s2[-2 if len(s2) > 1 else 0]:
        raise _no_product(s1, s2)
    return bind(rows.matmul, x1, x2) if top is None or top.closed else (
        top.process(rows.matmul, (x1, x2), {}))


def _no_product(s1, s2):
    """NumPy's error for operands of shapes ``s1`` and ``s2``, which do not fit."""
    if not s1 or not s2:
        return ValueError(f"matmul: Input operand {int(bool(s1))} does not have enough dimensions "
                          "(has 0, gufunc core with signature (n?,k),(k,m?)->(n?,m?) requires 1)")
    return ValueError(
        "matmul: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature "
        f"(n?,k),(k,m?)->(n?,m?) (size {s2[-2:][0]} is different from {s1[-1]})"
    )


@numpy_like(np.matmul)
def matmul(x1, x2, /):
    """Matrix product; vectors and stacks of matrices as in NumPy.

    >>> import functrans as ft, functrans.numpy as np
    >>> ft.grad(lambda x: x @ x)(np.matmul([[1.0, 0.0], [0.0, 2.0]], [3.0, 4.0]))
    Array([ 6., 16.])
    """
    return _matmul(x1, x2)


def _method(self, other):
    if type(other) is np.ndarray or isinstance(other, Tracer):
        return _matmul(self, other)
    if type(other) in PYTHON_SCALARS or (is_other(other) and defers("matmul", self, other)):
        return NotImplemented
    return with_sparse("matmul", self, other) if is_sparse(other) else _matmul(self, other)


def _reflect(self, other):
    if type(other) in PYTHON_SCALARS:
        return NotImplemented
    if is_sparse(other):
        return with_sparse("rmatmul", self, other)
    return _matmul(other, self)


@numpy_like(np.dot)
def dot(a, b, out=None):
    """Product of scalars, inner product of vectors, matrix product; over the last axis of ``a``."""
    a, b = _pair(a, b)
    return _sum(a, b, max(len(b.shape) - 2, 0))


def _sum(a, b, axis):
    """Products summed over the last axis of ``a`` and ``axis`` of ``b``, or with a number."""
    n1, n2 = len(a.shape), len(b.shape)
    if not n1 or not n2:  # a traced number of Python's has its type as an array, as in NumPy
        dtype = np.result_type(a.dtype, b.dtype)
        return cast(a, dtype) * cast(b, dtype)
    if a.shape[-1] != b.shape[axis]:
        raise ValueError(
            f"shapes {_show(a.shape)} and {_show(b.shape)} not aligned: {a.shape[-1]} (dim "
            f"{n1 - 1}) != {b.shape[axis]} (dim {axis})"
        )
    by_matmul = n2 <= 2 and axis == max(n2 - 2, 0)
    y = rows.matmul(a, b) if by_matmul else _contract(a, b, (n1 - 1,), (axis,))
    return _round(y, a, b)


def _round(y, a, b):
    """``y`` in the dtype of NumPy's dot: of bfloat16 our matmul returns float32."""
    return y.astype(a.dtype) if a.dtype.kind == "V" and a.dtype == b.dtype else y


def _show(shape):
    return "(" + ",".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


@numpy_like(np.vdot)
def vdot(a, b, /):
    """Inner product of all entries, ``a`` conjugated."""
    a, b = _pair(a, b)
    return _round(rows.matmul(_conj(a).reshape(-1), b.reshape(-1)), a, b)


@numpy_like(np.vecdot)
def vecdot(x1, x2, /, *, axis=-1):
    """Inner products along an axis, ``x1`` conjugated, the other axes broadcast."""
    x1, x2 = _pair(x1, x2)
    if axis != -1:
        x1, x2 = move_axis(x1, axis, -1), move_axis(x2, axis, -1)
    return _einsum("...a,...a->...", [_conj(x1), x2])


def matvec(x1, x2, /):
    """Products of matrices and vectors, stacks of either broadcast."""
    return _einsum("...ab,...b->...a", list(_pair(x1, x2)))


def vecmat(x1, x2, /):
    """Products of vectors, conjugated, and matrices, stacks of either broadcast."""
    x1, x2 = _pair(x1, x2)
    return _einsum("...a,...ab->...b", [_conj(x1), x2])


@numpy_like(np.inner)
def inner(a, b, /):
    """Sum of products over the last axes, without conjugation."""
    a, b = _pair(a, b)
    return _sum(a, b, max(len(b.shape) - 1, 0))


@numpy_like(np.outer)
def outer(a, b, out=None):
    """All products of an entry of ``a`` and one of ``b``, as a matrix."""
    a, b = _pair(a, b)
    return ops.multiply(a.reshape(-1, 1), b.reshape(1, -1))


@numpy_like(np.tensordot)
def tensordot(a, b, axes: Any = 2):
    """Sum of products over the named axes of both operands."""
    a, b = _pair(a, b)
    if _is_number(axes):
        axes = operator.index(axes)
        axes1, axes2 = range(a.ndim - axes, a.ndim), range(axes)
    else:
        axes1, axes2 = axes
        axes1 = [axes1] if _is_number(axes1) else axes1
        axes2 = [axes2] if _is_number(axes2) else axes2
    axes1 = tuple(x + a.ndim if x < 0 else x for x in map(operator.index, axes1))
    axes2 = tuple(x + b.ndim if x < 0 else x for x in map(operator.index, axes2))
    if len(axes1) != len(axes2) or any(
        not 0 <= i < a.ndim or not 0 <= j < b.ndim or a.shape[i] != b.shape[j]
        for i, j in zip(axes1, axes2, strict=False)
    ):
        raise ValueError("shape-mismatch for sum")
    return _round(_contract(a, b, axes1, axes2), a, b)


def _is_number(axis):
    return not isinstance(axis, list | tuple) and not np.ndim(axis)


def _contract(a, b, axes1, axes2):
    """Sum of products over pairs of axes; the result has the other axes of ``a``, then of ``b``."""
    if axes1 == (a.ndim - 1,) and axes2 == (max(b.ndim - 2, 0),) and b.ndim <= 2:
        return rows.matmul(a, b)
    return bind(rows.einsum, a, b, subscripts=_contraction(a.ndim, b.ndim, axes1, axes2))


@functools.lru_cache(maxsize=1024)
def _contraction(n1, n2, axes1, axes2):
    in1 = [chr(ord("A") + i) for i in range(n1)]
    in2 = [chr(ord("A") + n1 + i) for i in range(n2)]
    for i, j in zip(axes1, axes2, strict=True):
        in2[j] = in1[i]
    summed = {in1[i] for i in axes1}
    out = [c for c in in1 + in2 if c not in summed]
    return f"{''.join(in1)},{''.join(in2)}->{''.join(out)}"


@numpy_like(np.kron)
def kron(a, b):
    """Kronecker product: ``b`` times every entry of ``a``, laid out in blocks."""
    a, b = _pair(a, b)
    ndim = max(a.ndim, b.ndim)
    s1 = (1,) * (ndim - a.ndim) + a.shape
    s2 = (1,) * (ndim - b.ndim) + b.shape
    a = a.reshape([k for n in s1 for k in (n, 1)])
    b = b.reshape([k for n in s2 for k in (1, n)])
    return ops.multiply(a, b).reshape([n * m for n, m in zip(s1, s2, strict=True)])


# ---- einsum


def einsum(*operands: Any, out: Any = None, optimize: Any = False, **options: Any) -> AnyArray:
    """Sum of products in Einstein's notation, of any number of operands.

    >>> import functrans as ft, functrans.numpy as np
    >>> ft.grad(lambda x: np.einsum("i,i->", x, x))(np.einsum("ii->i", np.eye(2)))
    Array([2., 2.])
    """
    flat = [x for x in operands if not isinstance(x, str)]
    if newest_trace(flat) is None and not any(isinstance(x, list) and is_traced(x) for x in flat):
        return np.einsum(*operands, out=out, optimize=optimize, **options)
    if out is not None:
        raise refused("np.einsum", "got out=", USE_RESULT)
    dtype = options.pop("dtype", None)
    options.pop("order", None)
    casting = options.pop("casting", "safe")
    if options:
        raise TypeError(f"Did not understand the following kwargs: {sorted(options)}")
    subscripts, arrays = _read(operands)
    arrays = list(map(as_operand, arrays))
    if dtype is None:  # what comes first must not be reckoned more narrowly than the whole
        dtype = np.result_type(*{x.dtype for x in arrays})
    else:
        for i, x in enumerate(arrays):
            require_cast(x, dtype, casting, f"operand {i} of np.einsum")
    return _einsum(subscripts, [x if x.dtype == dtype else x.astype(dtype) for x in arrays])


def _read(operands: tuple) -> tuple[str, Sequence]:
    """The subscripts as text, and the arrays, from either form of the call."""
    if isinstance(operands[0], str):
        return operands[0].replace(" ", ""), operands[1:]
    arrays, lists = operands[0:-1:2], operands[1::2]
    if len(operands) % 2 == 0:
        arrays, lists = operands[::2], operands[1::2]
    text = ",".join(map(_word, lists))
    return (text if len(operands) % 2 == 0 else f"{text}->{_word(operands[-1])}"), arrays


def _word(labels):
    letters = string.ascii_uppercase + string.ascii_lowercase
    return "".join(["..." if c is Ellipsis else letters[c] for c in labels])


class Step(NamedTuple):
    """One or two operands, how each is prepared, and the row's subscripts if there are two.

    Positions are in descending order, so that operands can be popped from the list one by one.
    """

    positions: tuple[int, ...]
    moves: tuple[list, ...]
    subscripts: str


# Labels, and the steps that reduce the operand to them: diagonals, sums, a reshape.
_Term = tuple[str, list]


def _einsum(subscripts: str, arrays: list) -> AnyArray:
    stack = list(arrays)
    for step in _steps(subscripts, tuple([x.shape for x in arrays])):
        operands = [stack.pop(i) for i in step.positions][::-1]
        xs = [_apply(x, moves) for x, moves in zip(operands, step.moves, strict=True)]
        stack.append(xs[0] if len(xs) == 1 else bind(rows.einsum, *xs, subscripts=step.subscripts))
    return stack[0]


def _apply(x, moves):
    for kind, what in moves:
        if kind == "diagonal":
            x = np.diagonal(x, 0, *what)
        elif kind == "sum":
            x = x.sum(axis=what, dtype=x.dtype)  # narrow integers and booleans stay as they are
        elif kind == "reshape":
            x = x.reshape(what)
        else:
            x = x.transpose(what)
    return x


@functools.lru_cache(maxsize=4096)
def _steps(subscripts: str, shapes: tuple) -> list[Step]:
    """The contractions in order; positions refer to the remaining operands, results come last."""
    terms, out = _explicit(subscripts, [len(s) for s in shapes])
    sizes = _sizes(terms, shapes, out)
    state = [_single(t, s, sizes) for t, s in zip(terms, shapes, strict=True)]
    steps = []
    for positions in _order(terms, out, sizes):
        while len(positions) > 1 or (len(state) == 1 and not steps):
            pair, positions = positions[:2], positions[2:]
            operands = [state.pop(i) for i in pair][::-1]
            rest = set(out).union(*[t for t, _ in state])
            reduced = [
                _sum_alone(t, moves, rest.union(*[u for u, _ in operands[:i] + operands[i + 1 :]]))
                for i, (t, moves) in enumerate(operands)
            ]
            labels, step = _join(pair, reduced, out if not state else None, rest)
            steps.append(step)
            state.append((labels, []))
            if not positions:
                break
            # the highest positions were popped, so the others are still valid
            positions = (len(state) - 1, *positions)
    return steps


def _join(
    pair: tuple[int, ...], reduced: list[_Term], out: str | None, rest: set[str]
) -> tuple[str, Step]:
    """The labels of a step's result, and the step."""
    (t1, m1), *second = reduced
    if not second:
        assert out is not None, pair  # a single operand is the last step
        perm = tuple(t1.index(c) for c in out)
        return out, Step(pair, ([*m1, ("transpose", perm)] if out != t1 else m1,), "")
    ((t2, m2),) = second
    if out is None:
        shared = [c for c in t1 if c in t2 and c in rest]
        out = "".join([*shared, *[c for c in t1 if c not in t2], *[c for c in t2 if c not in t1]])
    return out, Step(pair, (m1, m2), f"{t1},{t2}->{out}")


def _single(term: str, shape: tuple[int, ...], sizes: dict[str, int]) -> _Term:
    """The term without repeated labels, and without axes of length 1 that are broadcast."""
    moves: list = []
    axes = [(c, n) for c, n in zip(term, shape, strict=True) if n == sizes[c]]
    if len(axes) != len(term):
        moves.append(("reshape", tuple(n for _, n in axes)))
    labels = [c for c, _ in axes]
    for c in sorted(set(labels)):
        while labels.count(c) > 1:
            i = labels.index(c)
            j = labels.index(c, i + 1)
            moves.append(("diagonal", (i, j)))
            labels = [d for k, d in enumerate(labels) if k not in (i, j)] + [c]
    return "".join(labels), moves


def _sum_alone(term: str, moves: list, keep: set[str]) -> _Term:
    """The term summed over the labels that occur nowhere else."""
    axes = tuple(i for i, c in enumerate(term) if c not in keep)
    if not axes:
        return term, moves
    return "".join(c for c in term if c in keep), [*moves, ("sum", axes)]


def _order(terms: list[str], out: str, sizes: dict[str, int]) -> list[tuple[int, ...]]:
    """Which operands each contraction takes, in descending order."""
    if len(terms) <= 2:
        return [(1, 0)[-len(terms) :]]
    dummies = [np.broadcast_to(np.empty(()), [sizes[c] for c in t]) for t in terms]
    path = np.einsum_path(f"{','.join(terms)}->{out}", *dummies, optimize="greedy")[0]
    return [tuple(sorted(p, reverse=True)) for p in path[1:]]


def _sizes(terms: list[str], shapes: tuple, out: str) -> dict[str, int]:
    """The length of each label's axis."""
    sizes: dict[str, int] = {}
    for i, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        for c, n in zip(term, shape, strict=True):
            have = sizes.setdefault(c, n)
            if have != n and 1 not in (have, n):
                raise ValueError(
                    f"einsum: operand {i} has size {n} for label {c!r}, another one has {have}"
                )
            sizes[c] = n if have == 1 else have
    unknown = [c for c in out if c not in sizes]
    if unknown or len(set(out)) != len(out):
        raise ValueError(f"einsum: output {out!r} must be distinct labels of the operands")
    return sizes


def _explicit(subscripts: str, ndims: list[int]) -> tuple[list[str], str]:
    """Terms and output with the ellipsis as labels, and the output explicit."""
    text, arrow, out = subscripts.partition("->")
    terms = text.split(",")
    if len(terms) != len(ndims):
        raise ValueError(f"einsum: {subscripts!r} has {len(terms)} terms for {len(ndims)} operands")
    used = set(subscripts)
    free = [c for c in string.ascii_letters if c not in used]
    dots = [n - len(t) + 3 for t, n in zip(terms, ndims, strict=True) if "..." in t]
    if any(n < 0 for n in dots):
        raise ValueError(f"einsum: {subscripts!r} has more labels than an operand has axes")
    wide = "".join(free[: max(dots, default=0)])
    explicit = []
    for i, (t, n) in enumerate(zip(terms, ndims, strict=True)):
        k = n - len(t) + 3
        t = t.replace("...", wide[len(wide) - k :] if k else "") if "..." in t else t
        if len(t) != n or (t and not t.isalpha()):
            raise ValueError(f"einsum: {terms[i]!r} does not name the {n} axes of operand {i}")
        explicit.append(t)
    if not arrow:
        labels = "".join(explicit)
        once = sorted(c for c in set(labels) if labels.count(c) == 1 and c not in wide)
        return explicit, wide + "".join(once)
    if wide and "..." not in out:
        raise ValueError(f"einsum: the ellipsis of {subscripts!r} must also be in the output")
    return explicit, out.replace("...", wide)


# ---- convolution and cross products


def _vectors(a: Any, v: Any, mode: str) -> tuple[Any, Any]:
    """The operands of a convolution, checked with NumPy's errors."""
    a, v = (x.reshape(1) if not x.shape else x for x in _pair(a, v))
    if len(a.shape) != 1 or len(v.shape) != 1:
        raise ValueError("object too deep for desired array")
    if not a.size or not v.size:
        raise ValueError(f"{'a' if not a.size else 'v'} cannot be empty")
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"mode must be one of 'valid', 'same', or 'full' (got {mode!r})")
    return a, v


@numpy_like(np.convolve)
def convolve(a, v, mode="full"):
    """Discrete convolution of two vectors."""
    a, v = _vectors(a, v, mode)
    if v.shape[0] > a.shape[0]:
        a, v = v, a
    if mode != "same":
        return bind(rows.convolve, a, v, mode=mode)
    start = (v.shape[0] - 1) // 2
    return bind(rows.convolve, a, v, mode="full")[start : start + a.shape[0]]


@numpy_like(np.correlate)
def correlate(a, v, mode="valid"):
    """Cross-correlation of two vectors, ``v`` conjugated."""
    a, v = _vectors(a, v, mode)
    n, m = a.shape[0], v.shape[0]
    full = bind(rows.convolve, a, _conj(v)[::-1], mode="full")
    if mode == "full":
        return full
    if mode == "valid":
        if n >= m:
            return bind(rows.convolve, a, _conj(v)[::-1], mode="valid")
        return full[n - 1 : m]
    start = (m - 1) // 2 if n >= m else n // 2  # NumPy swaps the operands where v is longer
    return full[start : start + max(n, m)]


@numpy_like(np.cross)
def cross(a, b, axisa=-1, axisb=-1, axisc=-1, axis=None):
    """Cross product of 3-vectors along an axis, the others broadcast."""
    if axis is not None:
        axisa, axisb, axisc = axis, axis, axis
    a, b = _pair(a, b)
    if not a.shape or not b.shape:
        raise ValueError("At least one array has zero dimension")
    a = move_axis(a, one_axis(axisa, a.ndim), -1)
    b = move_axis(b, one_axis(axisb, b.ndim), -1)
    n, m = a.shape[-1], b.shape[-1]
    if n not in (2, 3) or m not in (2, 3):
        raise ValueError(
            "Both input arrays must be (arrays of) 3-dimensional vectors, but they are "
            f"{n} and {m} dimensional instead."
        )
    if n == 2 or m == 2:
        raise UnsupportedError(
            f"{user_line()}: cross of 2-dimensional vectors, which NumPy has deprecated; use "
            "a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]."
        )
    y = rows.cross(a, b)
    return y if axisc in (-1, y.ndim - 1) else move_axis(y, -1, axisc)


METHODS = {"dot": dot.__wrapped__, "__matmul__": _method, "__rmatmul__": _reflect}  # type: ignore[attr-defined]  # set by functools.wraps

UFUNCS = {np.matmul: _matmul, np.vecdot: vecdot}
for _name, _function in (("matvec", matvec), ("vecmat", vecmat)):  # new in NumPy 2.2
    if hasattr(np, _name):
        UFUNCS[getattr(np, _name)] = _function

ALSO = ("einsum", "matvec", "vecmat")
