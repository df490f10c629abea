"""Functions that the body of a staged loop may call on traced values and indices, by their names.

All of NumPy's ufuncs work entry by entry. What is not here is called by Python, or, on traced
values, has the loop written out.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from functrans._compile.nest.forms import Form
from functrans._core.bind import Tracer
from functrans._core.writing import stood_for
from functrans._transforms.staging.loops_index import (
    Condition,
    IndexValue,
    WrittenOut,
    building,
    form_of,
    index_value,
)
from functrans._transforms.staging.loops_values import BodyValue, Builder, cast, matmul

# Functions of Python's that do nothing else than to return a value.
PURE = frozenset({abs, min, max, sum, float, int, bool, tuple, list, isinstance, len, range, zip,
                  enumerate, reversed, complex, slice, round, any, all, callable, divmod, pow})


def is_ours(x: Any) -> bool:
    """Whether a value is one of a body that is being staged."""
    return isinstance(x, BodyValue | IndexValue | Condition)


def holds_ours(x: Any) -> bool:
    """Whether it, or a part of it, is."""
    if isinstance(x, tuple | list):
        return any(map(holds_ours, x))
    if isinstance(x, dict):
        return any(map(holds_ours, x.values()))
    if isinstance(x, slice):
        return any(map(holds_ours, (x.start, x.stop, x.step)))
    return is_ours(x)


class Counter:
    """What a loop goes through: ``item`` for each integer from ``low`` on, below ``high``."""

    def __init__(self, low: Form, high: Form, item: Callable[[Form], Any], plain: Callable):
        self.low, self.high, self.item, self.plain = low, high, item, plain

    def __iter__(self) -> Iterator:
        return iter(self.plain())

    def __reversed__(self) -> Iterator:
        return reversed(self.plain())

    def __len__(self) -> int:
        raise WrittenOut("Python needs the number of a length")


def counter_of_range(b: Builder | None, *args: Any) -> Counter:
    low, high, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    lo, hi, by = form_of(low), form_of(high), form_of(step)

    def plain() -> Any:
        if lo.terms or hi.terms:
            raise WrittenOut("Python needs the bounds of a range")
        return range(lo.c, hi.c, by.c)

    if by == Form(1):
        return Counter(lo, hi, index_value, plain)
    if by == Form(-1):
        return Counter(Form(0), lo - hi, lambda k: index_value(lo - k), plain)
    if by.terms or not by.c:
        raise WrittenOut("the step of a range is no number")
    span = hi - lo if by.c > 0 else lo - hi
    if span.terms:
        raise WrittenOut("a range with a step whose length depends on an index")
    count = len(range(0, span.c, abs(by.c)))
    return Counter(Form(0), Form(count), lambda k: index_value(lo + k * by.c), plain)


def counter_of(b: Builder | None, x: Any) -> Counter | None:
    """What a loop goes through, if it has a number for each pass."""
    if isinstance(x, Counter):
        return x
    if type(x) is range:
        return counter_of_range(b, x.start, x.stop, x.step)
    if not isinstance(x, BodyValue | np.ndarray | Tracer) or not x.ndim:
        return None
    n = x.lengths[0] if isinstance(x, BodyValue) else Form(len(x))

    def item(k: Form) -> Any:
        now = building.get()
        return x[k.c] if now is None else now.value_of(x)[index_value(k)]

    return Counter(Form(0), n, item, lambda: x)


def counter_of_call(b: Builder | None, f: Callable, args: Sequence) -> Counter | None:
    """The same for a call of ``range``, ``zip``, ``enumerate`` or ``reversed``; None: Python's."""
    if f is range:
        return counter_of_range(b, *args)
    parts = [counter_of(b, x) for x in (args[:1] if f is enumerate else args)]
    if not parts or any([p is None for p in parts]):
        return None
    counters: list[Any] = parts
    first = counters[0]
    n = first.high - first.low
    if any([c.high - c.low != n for c in counters]):
        return None
    items = [lambda k, c=c: c.item(k + c.low) for c in counters]
    if f is zip:
        return Counter(Form(0), n, lambda k: tuple([item(k) for item in items]),
                       lambda: zip(*args, strict=False))
    if f is enumerate:
        start = form_of(args[1]) if len(args) > 1 else Form(0)
        return Counter(Form(0), n, lambda k: (index_value(k + start), items[0](k)),
                       lambda: enumerate(*args))
    return Counter(Form(0), n, lambda k: items[0](n - 1 - k), lambda: reversed(args[0]))


# ---- NumPy's functions


def _zeros(b: Builder, shape: Any, dtype: Any = float, *, value: int = 0) -> BodyValue:
    lengths = [form_of(n) for n in (shape if isinstance(shape, tuple | list) else (shape,))]
    wanted = np.dtype(dtype)
    if not lengths or any([not b.decides(n) for n in lengths]):
        raise WrittenOut("an array without axes, or of a negative length")
    memory = b.buffer("t", [b.bound(n) for n in lengths], wanted)
    y = b.whole(memory, lengths)
    b.store(memory, [Form.of(v) for v in y.axes], y.extents(), wanted.type(value))
    return y


def _like(value: int) -> Callable:
    def made(b: Builder, x: Any, dtype: Any = None) -> BodyValue:
        x = b.value_of(x)
        return _zeros(b, tuple(map(index_value, x.lengths)), dtype or x.dtype, value=value)

    return made


def _full(b: Builder, shape: Any, value: Any) -> BodyValue:
    value = b.value_of(value)
    if value.ndim:
        raise WrittenOut("np.full with an array")
    y = _zeros(b, shape, value.dtype)
    b.assign(y, value)
    return y


def _array(b: Builder, x: Any) -> BodyValue:
    if not isinstance(x, tuple | list):
        return _copy(b, x)
    parts = [b.value_of(p) for p in x]
    if not parts or any([p.ndim for p in parts]):
        raise WrittenOut("np.array of arrays")
    dtype = np.result_type(*[p.example() for p in parts])
    y = _zeros(b, len(parts), dtype)
    for k, p in enumerate(parts):
        y[k] = p
    return y


def _copy(b: Builder, x: Any) -> BodyValue:
    x = b.value_of(x)
    if not x.ndim:
        raise WrittenOut("an array without axes")
    return x.copy()


def _sum(b: Builder, x: Any, axis: Any = None) -> Any:
    if isinstance(x, tuple | list):
        raise WrittenOut("np.sum of a list")
    return b.total(x, axis)


def _mean(b: Builder, x: Any, axis: Any = None) -> Any:
    x = b.value_of(x)
    if axis is not None and type(axis) is not int:
        raise WrittenOut("np.mean over several axes")
    n: Any = x.size if axis is None else x.shape[axis]
    return b.total(x, axis) / n


def _dot(b: Builder, x: Any, y: Any) -> Any:
    x, y = b.value_of(x), b.value_of(y)
    return matmul(x, y) if x.ndim and y.ndim else x * y


def _outer(b: Builder, x: Any, y: Any) -> Any:
    x, y = b.value_of(x), b.value_of(y)
    if x.ndim != 1 or y.ndim != 1:
        raise WrittenOut("np.outer of arrays that are no vectors")
    return x[:, None] * y[None, :]


def _flip(b: Builder, x: Any) -> Any:
    x = b.value_of(x)
    return x[tuple([slice(None, None, -1)] * x.ndim)]


def _where(b: Builder, c: Any, x: Any, y: Any) -> Any:
    return b.apply(np.where, c, x, y)


FUNCTIONS: dict[str, Callable] = {
    "zeros": _zeros, "empty": _zeros, "ones": lambda b, shape, dtype=float: _zeros(
        b, shape, dtype, value=1),
    "zeros_like": _like(0), "empty_like": _like(0), "ones_like": _like(1), "full": _full,
    "array": _array, "copy": _copy,
    "sum": _sum, "mean": _mean, "dot": _dot, "matmul": lambda b, x, y: matmul(x, y),
    "inner": lambda b, x, y: _dot(b, x, b.value_of(y).T), "outer": _outer,
    "flip": _flip, "where": _where, "transpose": lambda b, x, *axes: b.value_of(x).transpose(*axes),
    "ndim": lambda b, x: b.value_of(x).ndim, "shape": lambda b, x: b.value_of(x).shape,
}


def _extreme(name: str) -> Callable:
    """``min`` or ``max`` of Python's: of indices that which comparisons say, else as ``np.where``.
    """
    def found(b: Builder, *xs: Any) -> Any:
        if len(xs) == 1 or any([isinstance(x, BodyValue) for x in xs]):
            raise WrittenOut(f"Python's `{name}` of traced values")
        best = xs[0]
        for x in xs[1:]:
            less = x < best if name == "min" else x > best
            best = x if less else best  # a comparison that is not decided cuts the loop
        return best

    return found


def _length(b: Builder, x: Any) -> Any:
    if isinstance(x, BodyValue):
        return x.shape[0]
    return len(x)


def _float(b: Builder, x: Any) -> Any:
    x = b.value_of(x)
    if x.ndim:
        raise WrittenOut("float() of an array")
    y = b.apply(lambda v: cast(v, np.dtype(float)), x)
    y.weak = True
    return y


BUILTINS: dict[Any, Callable] = {
    len: _length, abs: lambda b, x: abs(b.value_of(x)), float: _float,
    min: _extreme("min"), max: _extreme("max"),
    range: lambda b, *args: counter_of_range(b, *args),
    int: lambda b, x: x if isinstance(x, IndexValue) else _refuse("int() of a traced value"),
    tuple: lambda b, x=(): tuple(x), sum: lambda b, x, start=0: _plus_all(x, start),
}


def _refuse(why: str) -> NoReturn:
    raise WrittenOut(why)


def _plus_all(xs: Any, start: Any) -> Any:
    for x in xs:
        start = start + x
    return start


def name_in_numpy(f: Any) -> str | None:
    """The name under which NumPy, or this package in its place, has a function."""
    f = stood_for.get(id(f), f)
    name = getattr(f, "__name__", None)
    if type(name) is not str:
        return None
    ours = sys.modules.get("functrans.numpy")
    found = [getattr(np, name, None), getattr(ours, name, None)]
    if any([f is x for x in found if x is not None]):
        return name
    linalg = {np.linalg: "linalg."}
    return next((text + name for m, text in linalg.items() if getattr(m, name, None) is f), None)


def call_known(b: Builder, f: Any, args: tuple, kwargs: dict) -> Any:
    """What a function of Python's or NumPy's gives on traced values; NotImplemented if it is none
    that is known."""
    try:
        builtin = BUILTINS.get(f)
    except TypeError:  # it has no hash
        return NotImplemented
    if builtin is not None and not kwargs:
        return builtin(b, *args)
    name = name_in_numpy(f)
    if name is None:
        return NotImplemented
    if name in FUNCTIONS:
        try:
            return FUNCTIONS[name](b, *args, **kwargs)
        except TypeError as error:
            raise WrittenOut(f"np.{name}: {error}") from None
    ufunc = getattr(np, name, None)
    if not isinstance(ufunc, np.ufunc) or ufunc.nout != 1 or kwargs or len(args) != ufunc.nin:
        raise WrittenOut(f"np.{name} is not known to loops in this form")
    return b.apply(ufunc, *args)


def is_pure(f: Any, args: tuple, kwargs: dict) -> bool:
    """Whether a call without traced values does nothing else than to return."""
    try:
        if f in PURE:
            return True
    except TypeError:
        return False
    if getattr(math, getattr(f, "__name__", ""), None) is f:
        return True
    name = name_in_numpy(f)
    known = name is not None and isinstance(getattr(np, name, None), np.ufunc)
    return known and not kwargs and all(
        [isinstance(x, bool | int | float | np.generic) for x in args])
