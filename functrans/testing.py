"""The checker: compares derivatives with numerical ones, which do not use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans import tree
from functrans._core.array import aval_of, inexact_dtype, integer, plain
from functrans._core.bind import Tracer
from functrans._numerics import numerical, numerical_jvp, remainder_slope
from functrans._transforms.arguments import open_all
from functrans._transforms.forward.api import jvp
from functrans._transforms.mutation import follow
from functrans._transforms.reverse.api import vjp
from functrans.errors import ArgumentError, CheckError, name_of

MODES = ("fwd", "rev")
# Accepted relative error, by the real type of a dtype.
RTOL = {"float16": 3e-2, "bfloat16": 1e-1, "float32": 2e-3, "float64": 1e-6, "longdouble": 1e-6}
# Error of the numerical derivative from cancellation, relative to the values subtracted.
NOISE = {"float16": 1e-2, "bfloat16": 1e-1, "float32": 1e-5, "float64": 1e-10, "longdouble": 1e-10}
# The Taylor remainder of a function falls like h**2, or like h if the derivative is wrong; this is
# the border between the two.
BORDER = 1.6
# Accepted error of differences, in units of their estimated error.
DOUBT = 8


def check_grads(
    f: Callable,
    args: Any,
    order: int = 2,
    modes: Sequence[str] = MODES,
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
    fast: bool = True,
) -> None:
    """Compare the derivatives of ``f`` at ``args`` with numerical ones, up to ``order``.

    Directions are random, but the same in every run. "fwd" compares jvp with a numerical derivative
    (complex step where ``f`` takes complex numbers, else extrapolated central differences with the
    most reliable step); "rev" compares vjp with it through the adjoint identity. Where the two
    differ by no more than the uncertainty of the differences, the remainder of the Taylor series
    decides: it must fall with the square of the step. With ``fast=False`` every entry of the
    Jacobians is compared instead. The derivative functions are then checked in the same way, in
    every combination of the modes. ``args`` is a tuple of arguments; anything else is the single
    argument. Tolerances follow the dtype; ``eps`` is the step of the differences. Choose a point
    where ``f`` is smooth.

    Raises CheckError naming the mode, the order, the argument and the worst entry.

    >>> import numpy as np
    >>> check_grads(np.sin, np.array([0.5, 2.0]), order=3)
    """
    unknown = [m for m in ([modes] if isinstance(modes, str) else modes) if m not in MODES]
    orders = integer(order)
    if unknown or orders is None or orders < 1:
        raise ArgumentError(
            f"check_grads: modes are {MODES} and order is 1 or more, not {modes}, {order}"
        )
    modes = (modes,) if isinstance(modes, str) else tuple(modes)
    flat, xs, labels = _flatten(f, args)
    _check(_Task(flat, name_of(f), labels, (), modes, atol, rtol, eps, fast), xs, orders)


def numerical_jacobian(f: Callable, args: Any) -> Any:
    """The Jacobian of ``f`` at ``args`` without differentiating ``f``: ``J[out][in]``.

    ``args`` is as for ``check_grads``; a tuple of arguments gives a tuple for each output leaf.
    Shapes are ``out.shape + in.shape``. Complex arguments are varied along their real axis.

    >>> import numpy as np
    >>> numerical_jacobian(lambda x: x**2, np.array([1.0, 2.0])).round(9)
    array([[2., 0.],
           [0., 4.]])
    """
    f = follow(f)
    flat, xs, _ = _flatten(f, args)
    several = isinstance(args, tuple | list)
    columns = [_columns(flat, xs, i) for i in range(len(xs))]
    outs, structure = tree.flatten(f(*args) if several else f(args))
    active = [i for i, y in enumerate(outs) if inexact_dtype(aval_of(y).dtype)]
    leaves: list[Any] = [None] * len(outs)
    for j, i in enumerate(active):
        row = [c[j] for c in columns]
        leaves[i] = _like_args(args, row) if several else _like_args((args,), row)[0]
    return tree.unflatten(structure, leaves)


def _like_args(args: Any, row: list) -> tuple:
    """``row``, with one entry for each differentiable leaf, in the structure of ``args``."""
    opened = open_all("numerical_jacobian", _like_args, args)
    entries = iter(row)
    return tuple(a.only([next(entries) for _ in a.active]) if a else None for a in opened)


def _columns(flat: Callable, xs: list, i: int) -> list[np.ndarray]:
    """The Jacobian of each output in operand ``i``, by number."""
    x = xs[i]
    units = np.eye(x.size, dtype=x.dtype).reshape((x.size, *x.shape))
    tangents = [numerical_jvp(flat, xs, i, t) for t in units]
    if not tangents:
        return [np.zeros((*y.shape, *x.shape), y.dtype) for y in flat(*xs)]
    columns = zip(*tangents, strict=True)
    return [np.stack(c, -1).reshape((*c[0].shape, *x.shape)) for c in columns]


def _flatten(f: Callable, args: Any) -> tuple[Callable, list, list[str]]:
    """``f`` as a function of its differentiable input leaves that returns those of its output."""
    args = tuple(args) if isinstance(args, tuple | list) else (args,)
    f = follow(f)
    opened = open_all("check_grads", f, args)
    labels = [
        f"argument {i}" + (f", leaf {j}" if len(a.leaves) > 1 else "")
        for i, a in enumerate(opened)
        if a
        for j in a.active
    ]

    def flat(*leaves: Any) -> tuple:
        remaining = iter(leaves)
        full = [
            a.rebuild([next(remaining) for _ in a.active]) if a else x
            for a, x in zip(opened, args, strict=True)
        ]
        outs = [plain(y) for y in tree.leaves(f(*full))]
        # a Python number is a constant
        return tuple(
            y if isinstance(y, Tracer) else np.asarray(y)
            for y in outs
            if inexact_dtype(aval_of(y).dtype)
        )

    xs = [np.array(v) for a in opened if a for v in a.primals]
    for x in xs:
        x.setflags(write=False)
    return flat, xs, labels


class _Task(NamedTuple):
    """One function to check to first order; ``path`` holds the modes applied to the user's.

    ``size`` is the largest value at lower orders: where a derivative vanishes, only their rounding
    is left of it.
    """

    flat: Callable
    name: str
    labels: list[str]
    path: tuple[str, ...]
    modes: tuple[str, ...]
    atol: float | None
    rtol: float | None
    eps: float | None
    fast: bool = True
    size: float = 0.0


def _check(task: _Task, xs: list, order: int) -> None:
    rng = np.random.default_rng(len(task.path))
    ys = task.flat(*xs)
    if not ys:
        raise ArgumentError(f"check_grads: `{task.name}` returned nothing of a floating-point type")
    ts = [_random(rng, x) for x in xs]
    # for a single number the plain gradient, so that messages show what the caller would see
    cts = (
        (np.ones_like(ys[0]),) if len(ys) == 1 == ys[0].size else tuple(_random(rng, y) for y in ys)
    )
    if task.fast:
        numeric = [_Numeric.along(task, xs, i, t) for i, t in enumerate(ts)]
        if "fwd" in task.modes:
            for i, t in enumerate(ts):
                _check_forward(task, xs, i, t, ys, numeric[i])
        if "rev" in task.modes:
            _check_reverse(task, xs, ts, ys, cts, numeric)
    else:
        _check_entries(task, xs, ys)
    if order == 1:
        return
    n = len(xs)
    task = task._replace(size=max(task.size, *map(_largest, ys)))
    if "fwd" in task.modes:

        def tangents(*both: Any) -> tuple:
            return jvp(task.flat, both[:n], both[n:])[1]

        labels = task.labels + [f"tangent of {s}" for s in task.labels]
        _check(
            task._replace(flat=tangents, labels=labels, path=(*task.path, "fwd")),
            [*xs, *ts],
            order - 1,
        )
    if "rev" in task.modes:

        def cotangents(*both: Any) -> tuple:
            return vjp(task.flat, *both[:n])[1](tuple(both[n:]))

        labels = task.labels + [f"cotangent {i}" for i in range(len(cts))]
        _check(
            task._replace(flat=cotangents, labels=labels, path=(*task.path, "rev")),
            [*xs, *cts],
            order - 1,
        )


class _Numeric(NamedTuple):
    """Numerical derivatives of the outputs along ``t`` of operand ``i``, and their uncertainty."""

    i: int
    t: np.ndarray | None
    values: list
    errors: list

    @classmethod
    def along(cls, task: _Task, xs: list, i: int, t: np.ndarray) -> _Numeric:
        return cls(i, t, *numerical(task.flat, xs, i, t, task.eps))


def _check_forward(task, xs, i, t, ys, numeric):
    ts = tuple(t if j == i else np.zeros_like(x) for j, x in enumerate(xs))
    _, dys = jvp(task.flat, tuple(xs), ts)
    for j, (dy, y) in enumerate(zip(dys, ys, strict=True)):
        _require_like(task, "fwd", f"tangent of output {j}", dy, y)
        _compare(task, "fwd", f"output {j}", np.asarray(dy), numeric, j, y, xs)


def _check_reverse(task, xs, ts, ys, cts, numeric):
    _, pullback = vjp(task.flat, *xs)
    for i, (ct, x) in enumerate(zip(pullback(cts), xs, strict=True)):
        _require_like(task, "rev", f"cotangent of {task.labels[i]}", ct, x)
        ct = np.asarray(ct)
        parts = [np.real(np.conj(c) * n) for c, n in zip(cts, numeric[i].values, strict=True)]
        expected = sum(float(p.sum()) for p in parts)
        actual = float(np.real(np.conj(ct) * ts[i]).sum())
        # the sums cancel, so the limit follows the size of their terms
        limit = _rtol(task, xs) * sum(float(np.abs(p).sum()) for p in parts)
        limit += sum(
            float(np.abs(c).sum()) * _floor(task, xs, y) for c, y in zip(cts, ys, strict=True)
        )
        if actual == expected or (np.isnan(actual) and np.isnan(expected)) or (
                abs(actual - expected) <= limit):
            continue
        doubt = sum(
            float((np.abs(c) * e).sum()) for c, e in zip(cts, numeric[i].errors, strict=True)
        )
        slope = remainder_slope(
            lambda *v: (sum(np.real(np.conj(c) * y).sum() for c, y in zip(cts, task.flat(*v),
                                                                       strict=True)),),
            xs, i, ts[i], [np.asarray(actual)],
        )
        if abs(actual - expected) <= DOUBT * doubt and slope >= BORDER:
            continue
        _blame_entry(task, xs, i, ct, cts, slope)
        raise _failure(
            task, "rev", task.labels[i], "along a random direction", actual, expected, slope
        )


def _check_entries(task, xs, ys):
    """Check every entry of the Jacobians, by columns in forward and by rows in reverse mode."""
    pullback = vjp(task.flat, *xs)[1] if "rev" in task.modes else None
    for i, x in enumerate(xs):
        ways = (1.0, 1.0j) if x.dtype.kind == "c" else (1.0,)
        columns = [[_Numeric.along(task, xs, i, u) for u in _units(x, way)] for way in ways]
        if "fwd" in task.modes:
            for numeric in [n for column in columns for n in column]:
                _check_forward(task, xs, i, numeric.t, ys, numeric)
        if pullback is None:
            continue
        for j, y in enumerate(ys):
            for ct in [u for way in ((1.0, 1.0j) if y.dtype.kind == "c" else (1.0,))
                       for u in _units(y, way)]:
                cts = tuple(ct if k == j else np.zeros_like(v) for k, v in enumerate(ys))
                row = pullback(cts)[i]
                _require_like(task, "rev", f"cotangent of {task.labels[i]}", row, x)
                parts = [
                    [np.real(np.conj(ct) * n.values[j]).sum() for n in column]
                    for column in columns
                ]
                expected = np.array(parts[0]).reshape(x.shape)
                if len(parts) > 1:
                    expected = expected + 1j * np.array(parts[1]).reshape(x.shape)
                doubt = np.array([n.errors[j].max(initial=0.0) for n in columns[0]])
                numeric = _Numeric(i, None, [expected], [doubt.reshape(x.shape)])
                at = f"(gradient of output {j})"
                _compare(task, "rev", at, np.asarray(row), numeric, 0, y, xs)


def _units(x: np.ndarray, way: complex) -> np.ndarray:
    """The arrays like ``x`` that are ``way`` at one entry and 0 elsewhere."""
    return (way * np.eye(x.size)).astype(x.dtype).reshape((x.size, *x.shape))


def _blame_entry(task, xs, i, ct, cts, slope):
    """Raise an error that names the entry of argument ``i`` whose cotangent is wrong, if one is."""
    if ct.size > 1000 or ct.dtype.kind == "c":
        return
    columns = _columns(task.flat, xs, i)
    expected = sum(
        np.real(np.tensordot(np.conj(c), d, axes=c.ndim)) for c, d in zip(cts, columns, strict=True)
    )
    expected = np.asarray(expected)
    numeric = _Numeric(i, None, [expected], [np.zeros(expected.shape)])
    _compare(task, "rev", "the gradient", ct, numeric, 0, ct, xs, slope)


def _compare(task, mode, where, actual, numeric, j, y, xs, slope=None):
    """Raise if an entry of ``actual`` differs from that of ``numeric.values[j]``."""
    if actual.size == 0:
        return
    expected = numeric.values[j]
    finite = np.abs(expected[np.isfinite(expected)])
    scale = float(finite.max()) if finite.size else 0.0
    small = _rtol(task, xs) * 0.1 * scale if task.atol is None else 0.0
    error = np.abs(actual - expected)
    limit = small + _floor(task, xs, y) + _rtol(task, xs) * np.abs(expected)
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected)) | (error <= limit)
    if same.all():
        return
    if numeric.t is not None:
        slope = remainder_slope(lambda *v: (task.flat(*v)[j],), xs, numeric.i, numeric.t, [actual])
        if slope >= BORDER and (same | (error <= DOUBT * numeric.errors[j])).all():
            return
    excess = np.where(same, -1.0, np.where(np.isnan(error), np.inf, error))
    worst = np.unravel_index(int(np.argmax(excess)), actual.shape)
    place = f"{where}[{', '.join(map(str, worst))}]" if actual.ndim else where
    label = task.labels[numeric.i]
    raise _failure(task, mode, label, place, actual[worst], expected[worst], slope)


def _failure(task, mode, label, place, actual, expected, slope):
    falls = ""
    if slope is not None and np.isfinite(slope):
        falls = f" What is left without it falls like h^{slope:.1f}, not h^2."
    order = len(task.path) + 1
    path = " over ".join((mode, *reversed(task.path)))
    return CheckError(
        f"derivative of order {order} of `{task.name}` is wrong (mode {path}, {label}): {place} is "
        f"{actual:.10g}, but the numerical derivative is {expected:.10g}.{falls} If {task.name} is "
        "not smooth at this point, check it at another."
    )


def _require_like(task, mode, what, actual, expected):
    a, b = aval_of(actual), aval_of(expected)
    if a != b:
        raise CheckError(
            f"derivative of order {len(task.path) + 1} of `{task.name}` in mode {mode}: the {what} "
            f"is {a!r}, but should be {b!r}"
        )


# ---- tolerances


def _real_name(xs: Sequence) -> str:
    """The coarsest real type among ``xs``."""
    names = [_part(x.dtype) for x in xs]
    return max(names, key=lambda n: RTOL[n])


def _part(dtype: Any) -> str:
    """The real type of a dtype, as a key of the tolerances."""
    name = np.dtype(dtype).name
    name = {"complex64": "float32", "complex128": "float64"}.get(name, name)
    return name if name in RTOL else "longdouble"


def _rtol(task, xs):
    return RTOL[_real_name(xs)] if task.rtol is None else task.rtol


def _floor(task, xs, y):
    """The accepted error of a derivative of ``y`` that is zero: ``atol``, or else rounding."""
    if task.atol is not None:
        return task.atol
    return NOISE[_real_name([*xs, y])] * max(_largest(y), 1e-3 * task.size)


def _largest(y):
    finite = np.abs(y[np.isfinite(y)])
    return float(finite.max()) if finite.size else 1.0


# ---- directions


def _random(rng, x):
    """Entries of magnitude about 1, none of them small, like ``x``."""
    sign = rng.choice([-1.0, 1.0], x.shape)
    t = np.asarray(sign * rng.uniform(0.5, 1.5, x.shape))
    if x.dtype.kind == "c":
        t = t + 1j * rng.uniform(-1, 1, x.shape)
    return t.astype(x.dtype)


def taylor_slope(f: Callable, args: Any, tangents: Any = None) -> float:
    """The power of h with which ``|f(x + h t) - f(x) - h J t|`` falls.

    2 or more if the derivative of ``f`` at ``args`` along ``tangents`` (by default random) is
    right, 1 if it is wrong or ``f`` has a kink; infinite if the difference is 0.

    >>> import numpy as np
    >>> round(taylor_slope(np.exp, np.array([0.5, 2.0])), 1)
    2.0
    """
    flat, xs, _ = _flatten(f, args)
    rng = np.random.default_rng(0)
    if tangents is None:
        ts = [_random(rng, x) for x in xs]
    else:
        ts = [np.asarray(t, x.dtype) for t, x in zip(tree.leaves(tangents), xs, strict=True)]
    dys = jvp(flat, tuple(xs), tuple(ts))[1]
    sizes = [x.size for x in xs]

    def together(v: Any) -> tuple:
        parts = np.split(v, np.cumsum(sizes)[:-1])
        return flat(*[p.astype(x.dtype).reshape(x.shape)
                      for p, x in zip(parts, xs, strict=True)])

    x, t = (np.concatenate([v.reshape(-1) for v in vs]) for vs in (xs, ts))
    return remainder_slope(together, [x], 0, t, [np.asarray(v) for v in dys])


__all__ = ["check_grads", "numerical_jacobian", "numerical_jvp", "taylor_slope"]
