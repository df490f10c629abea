"""Rows that run natively on large plain arrays, without a word of ``jit``.

NumPy makes a pass over memory for each step of such a row, mostly on one processor; what the
compiler makes of the same row makes one or two, on all of them. So from some size on these rows,
and the rules that pull cotangents back through them, are compiled: once for each shape and dtype.
Where nothing can or should be compiled, NumPy does it as before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._compile.lowering.numbers import AS_NUMPY
from functrans._core.aval import Aval
from functrans._core.bind import STRONG, watching
from functrans._kernels.blocks import THREADED
from functrans._ops import linalg, norms, reductions
from functrans._ops.declare import General, Linear
from functrans._transforms.staging.jit import Jitted
from functrans.config import config

# Entries of a matrix from which on a system with it is worth a call of LAPACK's own.
SYSTEM = 1 << 17

# Row -> entries from which on native code pays; to compile it takes 10 to 60 ms.
NATIVE: dict[General | Linear, int] = {
    linalg.cholesky: SYSTEM,
    linalg.triangular_solve: SYSTEM,
    norms.norm2: THREADED,
    reductions.cummax: THREADED,
    reductions.cummin: THREADED,
    reductions.cumprod: THREADED,
    reductions.cumsum: THREADED,
    reductions.logsumexp: THREADED,
    reductions.max: THREADED,
    reductions.min: THREADED,
    reductions.softmax: THREADED,
}

# What a rule is given instead of a value that it does not read; and where it is given one.
_ABSENT, _HERE = Aval | None, object()
_SIZED = np.ndarray | Aval


def _compiles(xs: Sequence) -> bool:
    """Whether ``xs`` are plain numbers of kinds that compile, and nobody has switched it off."""
    return config.jit and all(
        [type(x) in STRONG and x.dtype.char in "fdFD" and x.dtype.isnative for x in xs]
    )


def _native(program: Jitted, static: tuple, xs: Sequence) -> list | None:
    """What the program of ``static`` gives for ``xs``; None where there is no native code."""
    token = watching.set(None)  # who watches the caller's ops sees this as one of them
    try:
        with config(jit=False):  # a step that the program leaves to its row is NumPy's
            code = program.code(static, *xs)
            return code and code(xs)
    finally:
        watching.reset(token)


def _forward(row: General | Linear, pays: int) -> Callable:
    """The row's function: natively where its first operand is large."""
    by_numpy = row.impl
    program = Jitted(lambda params, *xs: [row(*xs, **dict(params))], (0,), (), AS_NUMPY)

    @functools.wraps(by_numpy)
    def impl(x: Any, *xs: Any, **params: Any) -> Any:
        if type(x) is np.ndarray and x.size >= pays and _compiles((x, *xs)):
            ys = _native(program, tuple(params.items()), (x, *xs))
            if ys is not None:
                return ys[0]
        return by_numpy(x, *xs, **params)

    return impl


def _backward(row: General, pays: int) -> Callable:
    """The row's vjp rule: natively where its first operand is large."""
    by_ops = row.vjp_rule
    assert by_ops is not None, row

    def staged(static: tuple, *given: Any) -> list:
        absent, wanted, params = static
        values = iter(given)
        ct, y, *xs = [next(values) if a is _HERE else a for a in absent]
        found = by_ops(ct, y, xs, wanted, **dict(params))
        return [c for c, w in zip(found, wanted, strict=True) if w]

    program = Jitted(staged, (0,), (), AS_NUMPY)

    @functools.wraps(by_ops)
    def rule(ct: Any, y: Any, xs: Sequence, wanted: Sequence[bool], **params: Any) -> Sequence:
        if type(ct) not in STRONG or not isinstance(xs[0], _SIZED) or xs[0].size < pays:
            return by_ops(ct, y, xs, wanted, **params)
        every = ct, y, *xs
        given = [x for x in every if not isinstance(x, _ABSENT)]
        absent = tuple([x if isinstance(x, _ABSENT) else _HERE for x in every])
        static = absent, tuple(wanted), tuple(params.items())
        found = _native(program, static, given) if _compiles(given) else None
        if found is None:
            return by_ops(ct, y, xs, wanted, **params)
        values = iter(found)
        return [next(values) if w else None for w in wanted]

    return rule


def take_over() -> None:
    """Put these ways in front of the rows' own; called once, when the package is imported."""
    for row, pays in NATIVE.items():
        row.impl = _forward(row, pays)
        if isinstance(row, General):
            row.vjp_rule = _backward(row, pays)


__all__ = ["NATIVE", "take_over"]
