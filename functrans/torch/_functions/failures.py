"""NumPy's errors in torch's words, and of torch's types."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from functrans.errors import FunctransError


class WrongValue(FunctransError, ValueError):
    """A ValueError of ours: those of NumPy become RuntimeErrors, as torch has them."""


class NoDevice(AssertionError, RuntimeError):
    """A device that is not there: torch has one or the other error, depending on the device."""


class _LinAlgError(np.linalg.LinAlgError, RuntimeError):
    """``torch.linalg.LinAlgError``: a matrix that a function cannot deal with."""


LinAlgError = _LinAlgError
_INVERSION = ("The diagonal element {0} is zero, the inversion could not be completed because the "
              "input matrix is singular.")
_SINGULAR = {
    "inv": _INVERSION,
    "inverse": _INVERSION,
    "solve": "The solver failed because the input matrix is singular.",
    "cholesky": "The factorization could not be completed because the input is not "
                "positive-definite (the leading minor of order {0} is not positive-definite).",
}
_PLACE = re.compile(r"index (-?\d+) is out of bounds for axis (\d+) with size (\d+)")
_MASK = re.compile(r"boolean index did not match indexed array along axis (\d+); size of axis is "
                   r"(\d+) but size of corresponding boolean axis is (\d+)")
_MANY = re.compile(r"too many indices for array: array is (\d+)-dimensional")
_NO_DIMENSIONS = ("tuple index out of range",
                  "cannot do a non-empty take from an empty axes.")
_KEY = "only integers, slices (`:`), ellipsis (`...`), "
_OPERANDS = re.compile(r"operands could not be broadcast together with shapes "
                       r"\(([\d, ]*)\) \(([\d, ]*)\)")
_BROADCAST = re.compile(r"(?:input array from shape|->remapped\]:) *\(([\d, ]*)\) "
                        r"(?:into shape|and requested shape) \(([\d, ]*)\)")


def raise_as_torch(name: str, failure: ValueError | IndexError,
                   operands: Sequence[Any] = ()) -> NoReturn:
    """Raise what torch has in the place of NumPy's ``failure`` in ``name``, or ``failure``."""
    if isinstance(failure, np.linalg.LinAlgError):
        who = "torch." * name.startswith("solve") + "linalg." + name.replace("erse", "")
        raise _LinAlgError(f"{who}: {_unfactored(name, str(failure), operands)}") from failure
    known = _translate(name, failure)
    if known is None:
        raise failure
    raise known from failure


def _translate(name: str, failure: ValueError | IndexError) -> Exception | None:
    """The error that torch has in the place of NumPy's ``failure`` in ``name``.

    None where ``failure`` is one of ours, or says all there is to say.
    """
    text = str(failure)
    if isinstance(failure, FunctransError):
        return None
    if isinstance(failure, np.exceptions.AxisError):
        axis, ndim = failure.axis, failure.ndim
        if axis is None or ndim is None:
            return None
        return IndexError(out_of_range(axis, ndim))
    if isinstance(failure, IndexError):
        if m := _PLACE.search(text):
            return (RuntimeError if name.startswith("scatter") else IndexError)(
                f"index {m[1]} is out of bounds for dimension {m[2]} with size {m[3]}"
            )
        if m := _MASK.search(text):
            return IndexError(
                f"The shape of the mask [{m[3]}] at index {m[1]} does not match the shape of the "
                f"indexed tensor [{m[2]}] at index {m[1]}"
            )
        if m := _MANY.search(text):
            if m[1] == "0":
                return IndexError(
                    "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or "
                    "`tensor.item<T>()` in C++ to convert a 0-dim tensor to a number")
            return IndexError(f"too many indices for tensor of dimension {m[1]}")
        if text in _NO_DIMENSIONS:
            dim = -1 if name.endswith("fft") else 0
            return IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
        if text.startswith(_KEY):
            return IndexError(f"{_KEY}None and long or byte Variables are valid indices")
        return None
    if m := _BROADCAST.search(text):
        return RuntimeError(unexpandable(*_shapes(m)))
    if m := _OPERANDS.search(text):
        return RuntimeError(misfit(name, *_shapes(m)))
    return RuntimeError(f"{name}: {failure}")


def _unfactored(name: str, text: str, operands: Sequence[Any]) -> str:
    """What stopped LAPACK in ``name``: in which matrix of a batch, and where."""
    name = name.removesuffix("_ex")
    if name not in _SINGULAR:
        return text
    A = getattr(operands[0], "primal", operands[0]) if operands else None
    if not isinstance(A, np.ndarray) or A.ndim < 2:
        return _SINGULAR[name].format("")
    info = stops(A, name == "cholesky")
    if not info.any():
        return f"{_SINGULAR[name].format('')} {text}"
    return in_batch(_SINGULAR[name], info)


def in_batch(text: str, info: np.ndarray) -> str:
    """``text`` about the first matrix where LAPACK stopped, and which of a batch it is."""
    i = int(np.flatnonzero(info)[0])
    return (f"(Batch element {i}): " if info.ndim else "") + text.format(info.flat[i])


def stops(A: np.ndarray, definite: bool) -> np.ndarray:
    """Where LAPACK stops in each matrix, counted from 1, and 0 where it does not: at a pivot of 0,
    or, if it is to be ``definite``, a leading minor that is not positive."""
    from scipy.linalg import lapack  # lazy: slow to import

    getrf, potrf = lapack.get_lapack_funcs(("getrf", "potrf"), (A,))
    info = [(potrf(a, lower=1) if definite else getrf(a))[-1]
            for a in A.reshape(-1, *A.shape[-2:])]
    return np.array(info, np.int32).reshape(A.shape[:-2])


def _shapes(m: re.Match) -> list[tuple[int, ...]]:
    return [tuple(map(int, filter(None, re.split(r"[, ]+", s)))) for s in m.groups()]


def not_a_tensor(name: str, argument: str, position: int, found: object) -> Exception:
    """The error of a function that was called with something else."""
    if hasattr(found, "of_sparse"):
        return NotImplementedError(
            f"Could not run 'aten::{name}' with arguments from the 'SparseCPU' backend. There is "
            "no such function of a sparse tensor here; take its to_dense() first")
    return TypeError(f"{name}(): argument '{argument}' (position {position}) must be Tensor, not "
                     f"{type(found).__name__}")


def out_of_range(dim: int, ndim: int) -> str:
    """What is wrong with a dimension that is none of ``ndim``."""
    last = max(ndim, 1) - 1
    return (f"Dimension out of range (expected to be in range of [{-last - 1}, {last}], but got "
            f"{dim})")


def misfit(name: str, a: Sequence[int], b: Sequence[int]) -> str:
    """What is wrong with two shapes that cannot be broadcast together."""
    n = max(len(a), len(b))
    for i in range(n - 1, -1, -1):
        k, m = [s[i - n + len(s)] if i - n + len(s) >= 0 else 1 for s in (a, b)]
        if k != m and 1 not in (k, m):
            return (f"The size of tensor a ({k}) must match the size of tensor b ({m}) at "
                    f"non-singleton dimension {i}, in {name} of {list(a)} and {list(b)}")
    return f"{name}: {list(a)} and {list(b)} cannot be broadcast together"


def broadcast_shape(name: str, a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """The shape to which two are broadcast."""
    try:
        return np.broadcast_shapes(tuple(a), tuple(b))
    except ValueError as failure:
        raise RuntimeError(misfit(name, a, b)) from failure


def unexpandable(have: Sequence[int], want: Sequence[int]) -> str:
    """What is wrong with a shape that cannot be expanded to another."""
    if len(have) > len(want):
        return (f"The number of sizes provided ({len(want)}) must be greater or equal to the "
                f"number of dimensions in the tensor ({len(have)})")
    i = next((i for i in range(1, len(have) + 1) if have[-i] not in (1, want[-i])), 1)
    return (f"The expanded size of the tensor ({want[-i]}) must match the existing size "
            f"({have[-i]}) at non-singleton dimension {len(want) - i}.  Target sizes: "
            f"{list(want)}.  Tensor sizes: {list(have)}")


def unmultiply(name: str, a: Sequence[int], b: Sequence[int]) -> str:
    """What is wrong with two shapes that have no product; ``name`` is the function's for two."""
    if len(a) == len(b) == 1:
        return (
            f"inconsistent tensor size, expected tensor [{a[0]}] and src [{b[0]}] to have the same "
            f"number of elements, but got {a[0]} and {b[0]} elements respectively"
        )
    if len(a) == 2 and len(b) == 1:
        return f"size mismatch, got input ({a[0]}), mat ({a[0]}x{a[1]}), vec ({b[0]})"
    if len(b) <= 2 or len(a) == 1:
        rows, columns = math.prod(a[:-1]), a[-1]
        return (f"{name}: mat1 and mat2 shapes cannot be multiplied ({rows}x{columns} and "
                f"{'x'.join(map(str, b))})")
    if a[-1] == b[-2] and name != "bmm":
        return misfit(name, a[:-2], b[:-2])
    return ("Expected size for first two dimensions of batch2 tensor to be: "
            f"{[math.prod(a[:-2]), a[-1]]} but got: {[math.prod(b[:-2]), b[-2]]}.")


def unsum(equation: str, shapes: Sequence[Sequence[int]]) -> str | None:
    """What is wrong with the operands of ``einsum``, None where nothing is."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        few = "fewer" if len(shapes) < len(terms) else "more"
        return f"einsum(): {few} operands were provided than specified in the equation"
    for i, c in enumerate(equation):
        if not c.isalpha() and c not in ",.->":
            return (f"einsum(): invalid subscript given at index {i} in the equation string, "
                    "subscripts must be in [a-zA-Z]")
    seen: dict[str, int] = {}
    for k, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        wrong = _unsummed_operand(k, term, shape, seen)
        if wrong is not None:
            return wrong
    for c in right.replace(".", "") if arrow else "":
        if c not in seen:
            return (f"einsum(): output subscript {c} does not appear in the equation for any "
                    "input operand")
        if right.count(c) > 1:
            return f"einsum(): output subscript {c} appears more than once in the output"
    return None


def _unsummed_operand(k: int, term: str, shape: Sequence[int], seen: dict[str, int]) -> str | None:
    """What is wrong with operand ``k``, whose sizes are entered in ``seen``."""
    first, dots, last = term.partition("...")
    n = len(first) + len(last)
    if n > len(shape) or (n < len(shape) and not dots):
        more = " and no ellipsis was given" if not dots else ""
        relation = "does not match" if not dots else "is more than"
        return (f"einsum(): the number of subscripts in the equation ({n}) {relation} the number "
                f"of dimensions ({len(shape)}) for operand {k}{more}")
    own: dict[str, int] = {}
    sizes = [*shape[: len(first)], *shape[len(shape) - len(last) :]]
    for c, size in zip(first + last, sizes, strict=True):
        if own.setdefault(c, size) != size:
            return (f"einsum(): subscript {c} is repeated for operand {k} but the sizes don't "
                    f"match, {size} != {own[c]}")
        before = seen.setdefault(c, size)
        if before != size and 1 not in (before, size):
            return (f"einsum(): subscript {c} has size {size} for operand {k} which does not "
                    f"broadcast with previously seen size {before}")
        seen[c] = max(before, size)
    return None


_EMPTY = {"cat": (WrongValue, "torch.cat(): expected a non-empty list of Tensors"),
          "stack": (RuntimeError, "stack expects a non-empty TensorList")}


def require_tensors(name: str, tensors: Any) -> None:
    """Raise unless these are tensors in a tuple or list, and there are some."""
    if not isinstance(tensors, tuple | list):
        raise TypeError(f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not "
                        "Tensor")
    if not tensors:
        kind, text = _EMPTY[name]
        raise kind(text)
    for i, x in enumerate(tensors):
        if not hasattr(x, "shape"):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got "
                            f"{type(x).__name__}")


def require_alike(name: str, tensors: Sequence[Any]) -> None:
    """Raise unless all have one shape."""
    for i, x in enumerate(tensors):
        if x.shape != tensors[0].shape:
            raise RuntimeError(
                f"{name} expects each tensor to be equal size, but got {list(tensors[0].shape)} at "
                f"entry 0 and {list(x.shape)} at entry {i}"
            )


def require_joinable(shapes: Sequence[tuple], dim: int) -> None:
    """Raise unless the shapes differ in dimension ``dim`` alone."""
    first = shapes[0]
    for i, shape in enumerate(shapes):
        if len(shape) != len(first):
            raise RuntimeError(
                f"Tensors must have same number of dimensions: got {len(first)} and {len(shape)}"
            )
        for d, (n, m) in enumerate(zip(shape, first, strict=True)):
            if n != m and d != dim:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {dim}. Expected size {m} but "
                    f"got size {n} for tensor number {i} in the list."
                )
