"""Ops and transforms from outside of the package: declaring a row, writing a trace.

``elementwise``, ``constant``, ``linear``, ``bilinear`` and ``primitive`` declare an op, which every
transform then handles. An op declared around a ufunc also replaces that ufunc on traced values, so
existing code that calls the ufunc can be differentiated.

>>> import functrans as ft, numpy as np
>>> from functrans import extend
>>> from scipy.special import wright_bessel
>>> op = extend.elementwise(
...     "wright", wright_bessel, None, None, lambda g, x1, x2, x3: g * op(x1, x1 + x2, x3))
>>> ft.grad(lambda x: np.sum(wright_bessel(1, 1, x)))(np.zeros(2))
Array([1., 1.])
>>> extend.withdraw(op)

A transform made of others is a function under ``deriving``, one of its own kind a ``Trace`` and its
``Tracer``; see docs/adding_a_transform.md. A transform with a
graph of its own runs a row with ``row.impl``, saves what ``row.saves`` asks for, and propagates
cotangents with ``pull``, tangents with ``push``; ``split_key`` turns an index into the parameters
of the indexing rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from functrans._core.array import Aval, aval_of, is_inexact
from functrans._core.bind import (
    AnyArray,
    Outputs,
    PrimalTracer,
    Trace,
    Tracer,
    bind,
    cast,
    is_finite,
    spread,
    sum_to,
)
from functrans._core.deprecation import deprecated
from functrans._core.locks import Lock
from functrans._core.primitive import Primitive
from functrans._ops import declare
from functrans._ops.declare import (
    ABOVE_ONE,
    ANY,
    BOOLEAN,
    INTEGER,
    NONZERO,
    POSITIVE,
    REAL,
    TABLE,
    UNIT,
    Bilinear,
    Elementwise,
    General,
    Linear,
)
from functrans._transforms.arguments import hand_out
from functrans._transforms.derived import deriving
from functrans._transforms.reverse.vjp import transpose_jvp, transpose_vjp
from functrans._transforms.watching.watched import Observer, Observers, Op, observed
from functrans.errors import ArgumentError, name_of
from functrans.numpy.indexing import split_key
from functrans.numpy.protocols import FUNCTIONS, UFUNCS, meaning_of

F = TypeVar("F", bound=Callable)


def implements(numpy_function: Callable) -> Callable[[F], F]:
    """Decorator: the function replaces ``numpy_function`` on traced values.

    For ufuncs and for NumPy functions that dispatch by ``__array_function__``. Raises ArgumentError
    if ``numpy_function`` already has a meaning on traced values.

    >>> import functrans as ft, numpy as np
    >>> @implements(np.packbits)
    ... def ours(x, axis=None):
    ...     return np.sum(np.reshape(x, (-1, 8)) * 2.0 ** np.arange(7, -1, -1), axis=1)
    >>> ft.grad(lambda x: np.packbits(x).sum())(np.ones(8))
    Array([128.,  64.,  32.,  16.,   8.,   4.,   2.,   1.])
    >>> withdraw(np.packbits)
    """

    def enter(function: F) -> F:
        _meanings(numpy_function)[numpy_function] = function
        return function

    return enter


def _meanings(function: Any) -> dict:
    """The table for the meaning of ``function`` on traced values, which it must not have yet."""
    meanings: dict = UFUNCS if isinstance(function, np.ufunc) else FUNCTIONS
    if isinstance(function, np.ufunc):
        meaning_of(function)  # which loads those of SciPy
    if function in meanings:
        raise ArgumentError(
            f"{name_of(function)} already has a meaning on traced values: {meanings[function]!r}. "
            "Declare the new op around another callable, for example lambda x: f(x), and call "
            "the op itself."
        )
    return meanings


def _announce(declare_row: F) -> F:
    """``declare_row``, which then also gives a ufunc its meaning on traced values."""

    @functools.wraps(declare_row)
    def declared(name: str, impl: Callable, *columns: Any, **options: Any) -> Primitive:
        meanings = _meanings(impl) if isinstance(impl, np.ufunc) else None
        row = declare_row(name, impl, *columns, **options)
        row.ours = False  # native code is written for the rows of the package
        if meanings is not None:
            meanings[impl] = row
        return row

    return declared  # type: ignore[return-value]  # the signature is the wrapped one's


elementwise = _announce(declare.elementwise)
constant = _announce(declare.constant)
linear = _announce(declare.linear)
bilinear = _announce(declare.bilinear)
primitive = _announce(declare.primitive)


def withdraw(declared: Primitive | Callable) -> None:
    """Withdraw a declared op, or the meaning of a NumPy function; the name is free again."""
    if not isinstance(declared, Primitive):
        meanings: dict = UFUNCS if isinstance(declared, np.ufunc) else FUNCTIONS
        if meanings.pop(declared, None) is None:
            raise ArgumentError(f"withdraw: {name_of(declared)} has no meaning on traced values")
        return
    if TABLE.get(declared.name) is not declared:
        raise ArgumentError(f"withdraw: {declared!r} is not an op of the table")
    del TABLE[declared.name]
    if isinstance(declared.impl, np.ufunc) and UFUNCS.get(declared.impl) is declared:
        del UFUNCS[declared.impl]


def pull(
    row: Primitive, ct: Any, y: Any, xs: Sequence, params: dict, wanted: Sequence[bool]
) -> Sequence:
    """Cotangents of the operands of ``row`` from that of its output, None where not wanted.

    Computed by its vjp, or by transposing its jvp. ``y`` and ``xs`` are as ``row.saves(wanted,
    params)`` asks: an operand whose value is not needed may be an ``Aval``.

    >>> import numpy as np
    >>> pull(TABLE["sin"], np.ones(2), None, [np.zeros(2)], {}, [True])
    [array([1., 1.])]
    """
    if isinstance(row, General) and row.vjp_rule is None:
        return transpose_jvp(row, ct, y, xs, params, wanted)
    return row.vjp(ct, y, xs, params, wanted)


def push(row: Primitive, ts: Sequence, y: Any, xs: Sequence, params: dict) -> Any:
    """The tangent of the output of ``row`` from those of its operands, None where there is none.

    ``y`` and ``xs`` are what ``pull`` needs; what ``row.saves`` does not ask for is an ``Aval``.
    Computed by its jvp where that reads nothing else, or by transposing its vjp. With several
    outputs, a tuple.

    >>> import numpy as np
    >>> push(TABLE["sin"], [np.ones(2)], Aval((2,), np.dtype(float)), [np.zeros(2)], {})
    array([1., 1.])
    """
    if all(t is None for t in ts):
        return None
    if isinstance(row, General) and row.vjp_rule is not None:
        ys = y if row.outputs > 1 else (y,)
        if row.jvp_rule is None or any(type(v) is Aval for v in (*xs, *ys)):
            return transpose_vjp(row, ts, y, xs, params)
    return row.jvp(ts, y, xs, params)


__all__ = [
    "ABOVE_ONE", "ANY", "BOOLEAN", "INTEGER", "NONZERO", "POSITIVE", "REAL", "TABLE", "UNIT",
    "AnyArray", "Aval", "Bilinear", "Elementwise", "General", "Linear", "Lock", "Observer",
    "Observers", "Op", "Outputs", "PrimalTracer", "Primitive", "Trace", "Tracer", "aval_of",
    "bilinear", "bind", "cast", "constant", "deprecated", "deriving", "elementwise", "hand_out",
    "implements", "is_finite", "is_inexact", "linear", "observed", "primitive", "pull", "push",
    "split_key", "spread", "sum_to", "withdraw",
]
