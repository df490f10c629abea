"""Products of vectors and matrices."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from functrans.extend import Aval, Tracer, aval_of
from functrans.torch._functions.failures import not_a_tensor, unmultiply, unsum
from functrans.torch._functions.outputs import RowCall, are_plain, in_batch, record_row
from functrans.torch._functions.shim_rows import enter_in_place
from functrans.torch._functions.table import (
    FUNCTIONS,
    LINALG,
    METHODS,
    TAKING_OUT,
    op,
    promote,
    row,
)
from functrans.torch._graph.dual import FORWARD, Forward
from functrans.torch._graph.graph import RowNode, joint, saved_value
from functrans.torch._graph.modes import mark, packed, state, unpack, unusual
from functrans.torch._graph.nodes import OpNode, caller, check, free, sequence
from functrans.torch._graph.observed import observed_binary
from functrans.torch._graph.overriding import alert
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.memory import scalar_name
from functrans.torch._tensors.tensor import Tensor, from_array, recorded_edge

# what torch says of operands of several types
_UNLIKE = {
    "matmul": "expected m1 and m2 to have the same dtype, but got: {lower[0]} != {lower[1]}, in "
              "{who}",
    "dot": "dot : expected both vectors to have same dtype, but found {0} and {1}",
    "vdot": "dot : expected both vectors to have same dtype, but found {0} and {1}",
    "bmm": "expected scalar type {0} but found {1}, in bmm",
    "addmv": "addmv input tensors must have the same dtype, but got {0} and {1}",
    "mv": "addmv input tensors must have the same dtype, but got {0} and {1}",
}


def _same_type(who, *xs):
    if any(x.dtype != xs[0].dtype for x in xs):
        if any(hasattr(x, "of_sparse") for x in xs):
            raise TypeError(f"{who} of a sparse tensor")  # which has a product of its own
        raise RuntimeError(_UNLIKE[who if who in _UNLIKE else "matmul"].format(
            *map(scalar_name, xs), lower=[scalar_name(x).lower() for x in xs], who=who))


class ProductNode(OpNode):
    """A product of two matrices, the hot path of training. ``xs``: None for what is not saved."""

    __slots__ = ("marks", "where", "xs")

    def __init__(self, edges: tuple, xs: tuple, marks: list, where: tuple):
        self.seq = next(sequence)
        self.edges = edges
        self.extras = None
        self.outputs = 1
        self.plain = True
        self.title = "MmBackward0"
        self.xs: tuple | None = xs if state.saving is None else packed(xs)
        self.marks = marks if state.saving is None else mark(marks, self.xs or ())
        self.where = where

    def pull(self, ct: Any, create: bool) -> tuple:
        a, b = self.available(create)
        if type(ct) is ndarray and not create:
            return None if b is None else ct.dot(b.T), None if a is None else a.T.dot(ct)
        return None if b is None else np.matmul(ct, b.T), None if a is None else np.matmul(a.T, ct)

    def available(self, create: bool) -> Sequence:
        """The operands, as values while the derivative is recorded; None for what is not saved."""
        if self.xs is None:
            raise free(self)
        check(self)
        a, b = unpack(self.xs)
        if create:
            (e1, e2), of = self.edges, joint(self.marks)
            a, b = saved_value(a, e1, of), saved_value(b, e2, of)
        return a, b

    def operands(self, outs: Sequence) -> tuple[Aval, Aval]:
        """The avals of both factors, from that of the product."""
        (m, n), dtype = outs[0]
        a, b = self.available(False)
        k = b.shape[0] if a is None else a.shape[1]
        return Aval((m, k), dtype), Aval((k, n), dtype)

    def push(self, ts: Sequence, outs: Sequence, create: bool) -> tuple:
        """The tangent of the product."""
        t = None
        a, b = self.available(create)
        if ts[0] is not None:
            t = np.matmul(ts[0], b)
        if ts[1] is not None:
            second = np.matmul(a, ts[1])
            t = second if t is None else t + second
        return (t,)

    def release(self) -> None:
        self.xs = None


FORWARD[ProductNode] = Forward(ProductNode.operands, ProductNode.push)
_matmul = row("matmul")


class VectorProductNode(RowNode):
    """A product of a matrix and a vector, by NumPy's own products until a NaN arrives."""

    __slots__ = ()

    def __init__(self, edges: tuple, a: np.ndarray, b: np.ndarray, marks: list, where: tuple):
        self.seq = next(sequence)
        self.edges = edges
        self.extras = None
        self.plain = True
        self.title = "MvBackward0"
        self.prim, self.params, self.outputs, self.y = _matmul, {}, 1, None
        self.xs = [a if edges[1] else aval_of(a), b if edges[0] else aval_of(b)]
        self.marks = marks
        self.where = where

    def bare(self, ct: Any, create: bool) -> Iterable:
        if create or type(ct) is not ndarray:
            return super().bare(ct, create)
        (a, b), _ = self.available()
        e1, e2 = self.edges
        return (e1, e1 and ct[:, None] * b), (e2, e2 and a.T.dot(ct))


@observed_binary
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product, of batches of matrices too."""
    if not isinstance(input, Tensor) or not isinstance(other, Tensor):
        if hasattr(input, "of_sparse"):
            return input.of_sparse("matmul", (other,), {})
        for name, position, x in (("input", 1, input), ("other", 2, other)):
            if not isinstance(x, Tensor | np.ndarray):
                raise not_a_tensor("matmul", name, position, x)
        return _product(input, other)
    a, b = input._array, other._array
    n = b.ndim
    kind = a.dtype.kind
    if (a.ndim != 2 or not 0 < n < 3 or a.dtype is not b.dtype or a.shape[1] != b.shape[0]
            or kind == "V" or (unusual and (
                isinstance(b, Tracer) or (state.saving is not None and n == 1)))):
        call = _product_row(input, other)
        y = None if call is None else record_row(RowNode, "MmBackward0", call)
        return _product(input, other) if y is None else y
    out = from_array(a.dot(b) if kind in "fc" else np.matmul(a, b))
    if not state.grad or kind not in "fc":
        return out
    e1, e2 = recorded_edge(input), recorded_edge(other)
    if e1 is not None or e2 is not None:
        if unusual and isinstance(out._array, Tracer) and (inside := in_batch(input, other)):
            return matmul(*inside)
        marks = []
        if e1 is not None:
            marks.append((other._storage, other._storage.version))
        if e2 is not None:
            marks.append((input._storage, input._storage.version))
        frame = sys._getframe(2)
        where = caller(3) if alert else (frame.f_code, frame.f_lasti)
        if n == 1:
            out._node = VectorProductNode((e1, e2), a, b, marks, where)
        else:
            kept = a if e2 is not None else None, b if e1 is not None else None
            out._node = ProductNode((e1, e2), kept, marks, where)
    return out


def _product_row(input, other):
    if not are_plain(input, other):
        return None
    s1, s2 = input._array.shape, other._array.shape
    # vectors and stacks that nothing is broadcast to
    fit = s1 and s2 and s1[-1] == s2[-2 if len(s2) > 1 else 0]
    stacked = s1[:-2] == s2[:-2] or len(s1) <= 2 or len(s2) <= 2
    return RowCall(_matmul, (input, other), {}) if fit and stacked else None


@op(title="MmBackward0", method=False, by_row=_product_row)
def _product(input, other):
    _same_type("matmul", input, other)
    try:
        return np.matmul(input, other)
    except ValueError as failure:
        raise RuntimeError(unmultiply("mm", input.shape, other.shape)) from failure


_WANTED = {1: "1D tensors", 2: "a matrix"}


def _product_of(who, names, *pairs):
    """The product of two operands, each with the number of axes that ``who`` wants of it."""
    for name, (x, ndim) in zip(names, pairs, strict=True):
        if x.ndim != ndim:
            raise RuntimeError(
                f"{name} must be a 3D tensor, got {x.ndim}D" if ndim == 3 else
                "1D tensors expected, but got {}D and {}D tensors".format(
                    *[x.ndim for x, _ in pairs]) if who == "dot" else
                f"{who}: {name} must be {_WANTED[ndim]}, got {x.ndim}-D tensor")
    a, b = [x for x, _ in pairs]
    _same_type(who, a, b)
    if a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0] or a.shape[:-2] != b.shape[:-2]:
        raise RuntimeError(unmultiply(who, a.shape, b.shape))
    return np.matmul(a, b)


@op
def mm(input, mat2):
    """The product of two matrices."""
    return _product_of("mm", ("self", "mat2"), (input, 2), (mat2, 2))


def _mv_row(input, vec):
    fit = are_plain(input, vec) and input._array.ndim == 2 and vec._array.ndim == 1
    return _product_row(input, vec) if fit else None


def _bmm_row(input, mat2):
    fit = (are_plain(input, mat2) and input._array.ndim == mat2._array.ndim == 3
           and input._array.shape[0] == mat2._array.shape[0])
    return _product_row(input, mat2) if fit else None


@op(by_row=_mv_row)
def mv(input, vec):
    """The product of a matrix and a vector."""
    return _product_of("mv", ("input", "vec"), (input, 2), (vec, 1))


@op(by_row=_bmm_row)
def bmm(input, mat2):
    """The products of matrices in two batches."""
    return _product_of("bmm", ("batch1", "batch2"), (input, 3), (mat2, 3))


def _dot_row(input, tensor):
    fit = are_plain(input, tensor) and input._array.ndim == tensor._array.ndim == 1
    return _product_row(input, tensor) if fit else None


@op(by_row=_dot_row)
def dot(input, tensor):
    """The product of two vectors, without conjugation."""
    return _product_of("dot", ("input", "tensor"), (input, 1), (tensor, 1))


@op
def vdot(input, other):
    """The product of the conjugate of a vector and another."""
    return _product.body(np.conjugate(input), other)


def _outer_row(input, vec2):
    fit = are_plain(input, vec2) and input._array.ndim == vec2._array.ndim == 1
    return input[:, None] * vec2 if fit else None


@op(names="ger", by_row=_outer_row)
def outer(input, vec2):
    """All products of entries of two vectors."""
    for name, x in (("self", input), ("vec2", vec2)):
        if x.ndim != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {name}, but got {x.ndim}-D")
    return input.reshape(-1, 1) * vec2.reshape(1, -1)


@op
def inner(input, other):
    """The sum of products over the last dimension; of an operand of one entry, with each."""
    if not input.ndim or not other.ndim:
        return METHODS["mul"].of.ufunc(*promote(input, other))
    if input.dtype != other.dtype:
        raise RuntimeError("both inputs should have same dtype")
    if input.dtype.kind == "b":
        raise NotImplementedError("\"addmm_impl_cpu_\" not implemented for 'Bool'; convert it to "
                                  "another type first")
    return np.inner(input, other)


@op
def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    """beta * input + alpha * mat1 @ mat2."""
    product = _product_of("addmm", ("mat1", "mat2"), (mat1, 2), (mat2, 2))
    return _combine(input, product, beta, alpha)


@op
def addmv(input, mat, vec, *, beta=1, alpha=1):
    """beta * input + alpha * mat @ vec."""
    return _combine(input, mv.body(mat, vec), beta, alpha)


@op
def addr(input, vec1, vec2, *, beta=1, alpha=1):
    """beta * input + alpha * vec1 vec2^T."""
    if vec1.dtype.kind in "biu":
        for name, factor in (("beta", beta), ("alpha", alpha)):
            if type(factor) is float:
                raise RuntimeError(f"For integral input tensors, argument {name} must not be a "
                                   "floating point number.")
    if vec1.dtype.kind == "b":
        beta, alpha = bool(beta), bool(alpha)
    return _combine(input, outer.body(vec1, vec2), beta, alpha)


@op
def addbmm(input, batch1, batch2, *, beta=1, alpha=1):
    """beta * input + alpha * the sum over the batch of batch1 @ batch2."""
    return _combine(input, _add(bmm.body(batch1, batch2)), beta, alpha)


@op
def baddbmm(input, batch1, batch2, *, beta=1, alpha=1):
    """beta * input + alpha * batch1 @ batch2, for each pair of matrices."""
    return _combine(input, bmm.body(batch1, batch2), beta, alpha)


def _add(products):
    """The products added up, in their type."""
    y = np.sum(products, axis=0)
    return y if y.dtype == products.dtype else y.astype(products.dtype)


def _combine(x, product, beta, alpha):
    """beta * x + alpha * product; where beta is 0, x does not count even where it is NaN."""
    if product.dtype.kind in "iu":
        beta, alpha = int(beta), int(alpha)
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return np.broadcast_to(product, np.broadcast_shapes(x.shape, product.shape)) + 0
    return (x if beta == 1 else x * beta) + product


@op(space=FUNCTIONS, title="UnsafeViewBackward0")
def einsum(equation, *operands):
    """Products summed as the subscripts say."""
    narrow = [x for x in operands if getattr(x, "dtype", None) == dtypes.BFLOAT16]
    if narrow:  # of which NumPy's has no sums
        wide = [x.astype(np.float32) if getattr(x, "dtype", None) == dtypes.BFLOAT16 else x
                for x in operands]
        return einsum.body(equation, *wide).astype(dtypes.BFLOAT16)
    if len(operands) == 1 and isinstance(operands[0], tuple | list):
        operands = tuple(operands[0])
    if not isinstance(equation, str):  # operands and their lists of subscripts, in turns
        return np.einsum(equation, *operands)
    try:
        inputs, arrow, output = equation.replace(" ", "").partition("->")
        if arrow and "..." in inputs and "..." not in output:  # what it stands for is summed over
            y = np.einsum(f"{inputs}->...{output}", *operands)
            return np.sum(y, tuple(range(y.ndim - len(output))))
        return np.einsum(inputs + arrow + output, *operands)
    except ValueError as failure:
        wrong = unsum(equation.replace(" ", ""), [x.shape for x in operands])
        raise RuntimeError(wrong or f"einsum(): {failure}") from failure


@op(space=FUNCTIONS)
def tensordot(a, b, dims: Any = 2):
    """Products summed over dimensions of both."""
    if not isinstance(dims, int):
        dims = [[d] if isinstance(d, int) else list(d) for d in dims]
        for i, j in zip(*dims, strict=False):  # one entry goes with each of the other's
            if 1 in (a.shape[i], b.shape[j]):
                a, b = np.sum(a, i, keepdims=True), np.sum(b, j, keepdims=True)
    elif dims > min(a.ndim, b.ndim):
        raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but dims={dims}")
    y = np.tensordot(a, b, dims)
    return y if y.dtype.kind != "u" else y.astype(np.uint8)  # the one unsigned type


@op
def kron(input, other):
    """The Kronecker product."""
    target = dtypes.promote(input.dtype, other.dtype)  # an operand of one entry is one with axes
    xs = [x if x.dtype == target else x.astype(target) for x in (input, other)]
    if target.kind in "fcV":
        xs = [x * 1 for x in xs]  # torch saves copies
    return np.kron(*xs)


@op(space=LINALG, names="cross")
def linalg_cross(input, other, *, dim=-1):
    """The cross product of 3-vectors along ``dim``."""
    if input.ndim != other.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions, but "
                           f"they have {input.ndim} and {other.ndim}")
    if input.shape[dim] != 3 or other.shape[dim] != 3:
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got "
                           f"{input.shape[dim]} and {other.shape[dim]}")
    return np.cross(input, other, axis=dim)


@op
def cross(input, other, dim=None):
    """The cross product of 3-vectors along ``dim``, by default the first of length 3."""
    if dim is None:
        shape = np.broadcast_shapes(input.shape, other.shape)
        if 3 not in shape:
            raise RuntimeError(f"no dimension of size 3 in input, cross of {list(shape)}")
        dim = shape.index(3)
    return np.cross(input, other, axis=dim)


@op
def trace(x):
    """The sum of the diagonal of a matrix."""
    if x.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {x.ndim}")
    return np.trace(x.astype(np.int64) if x.dtype.kind in "biu" else x)


enter_in_place("addmm", "addmv", "addr", "addbmm", "baddbmm")
METHODS["matmul"] = METHODS["__matmul__"] = matmul
FUNCTIONS["spmm"] = FUNCTIONS["dsmm"] = mm  # of sparse matrices too, as mm is
METHODS["__rmatmul__"] = lambda self, other: matmul(other, self)
TAKING_OUT.add("matmul")
