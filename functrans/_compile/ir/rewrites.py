"""The table of rewrites: what may replace an equation without changing a bit of its value.

A rule takes an equation and the equations that produced its operands. It returns an operand that
is already the result, another equation for the same output, or None. Rules are exact in floating
point, signed zeros, infinities and subnormals included; NaNs count as equal whatever their bits.
They keep derivatives too, since programs are optimised before they are transformed and after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.ir.program import Atom, Const, Eqn, Var, aval_of_atom
from functrans._compile.schedule import views
from functrans._core.array import PYTHON_SCALARS, Aval
from functrans._core.primitive import Primitive
from functrans._ops import elementwise as ops
from functrans._ops.declare import Elementwise, isnan, strong_multiply
from functrans._ops.indexing import WHOLE, getitem, scatter_set
from functrans._ops.reductions import sum as sum_
from functrans._ops.structure import astype, broadcast_to, reshape, stack, transpose

Producers = Mapping[Var, Eqn]


class Rule(NamedTuple):
    """``replace`` is tried on equations of ``prims``: rows, or a predicate of rows."""

    name: str
    prims: tuple[Primitive, ...] | Callable[[Primitive], bool]
    replace: Callable[[Eqn, Producers], Atom | Eqn | None]

    def concerns(self, prim: Primitive) -> bool:
        return self.prims(prim) if callable(self.prims) else prim in self.prims


# ---- properties of operands


def producer(a: Atom, producers: Producers, prim: Primitive) -> Eqn | None:
    """The equation whose output ``a`` is, if it is one of ``prim``."""
    eqn = producers.get(a) if isinstance(a, Var) else None
    return eqn if eqn is not None and eqn.prim is prim else None


def is_float(a: Atom) -> bool:
    return aval_of_atom(a).dtype.kind == "f"


def is_real(a: Atom) -> bool:
    """Whether ``a`` is boolean, integer or floating."""
    return aval_of_atom(a).dtype.kind in "biuf"


def known_value(a: Atom) -> Any:
    """The value of an operand that is a constant, else None."""
    return a.value if isinstance(a, Const) else None if isinstance(a, Var) else a


def is_all(a: Atom, number: float) -> bool:
    """Whether every entry of ``a`` is known to be ``number``; zeros of both signs are equal."""
    x = known_value(a)
    if type(x) in PYTHON_SCALARS:
        return x == number
    # the first entry alone says no most of the time
    return x is not None and x.size > 0 and x.flat[0] == number and bool((x == number).all())


def become(eqn: Eqn, prim: Primitive, *inputs: Atom, **params: Any) -> Eqn:
    """``eqn`` with another right-hand side."""
    return Eqn(prim, inputs, params, eqn.outputs, eqn.line)


# ---- arithmetic


# What leaves the operand on its left as it is, or on either side if the row commutes.
NEUTRAL = {ops.multiply: 1, ops.divide: 1, ops.power: 1, ops.subtract: 0.0, ops.add: -0.0}


def _neutral(eqn, producers):
    (x, y), number = eqn.inputs, NEUTRAL[eqn.prim]
    if not is_real(eqn.outputs[0]):
        return None  # (x + iy) * (1 + 0i) adds zeros, which may turn a -0 into 0
    if _is_number(y, number, eqn):
        return x
    return y if eqn.prim.facts.commutes and _is_number(x, number, eqn) else None


def _is_number(a, number, eqn):
    """Whether every entry is the number; of zeros, whether as a float it has that sign."""
    if not is_all(a, number):
        return False
    signed = number == 0 and is_float(eqn.outputs[0])
    return not signed or bool((np.signbit(known_value(a)) == np.signbit(number)).all())


def _times_minus_one(eqn, producers):
    x, y = eqn.inputs
    if eqn.outputs[0].aval.dtype.kind != "f":
        return None
    other = x if is_all(y, -1) else y if is_all(x, -1) else None
    return None if other is None else become(eqn, ops.negative, other)


def _undo(eqn, producers):
    inner = producer(eqn.inputs[0], producers, eqn.prim)
    return None if inner is None else inner.inputs[0]


def _itself(eqn, producers):
    return eqn.inputs[0]


def _negate(eqn, i, producers):
    """What operand ``i`` is the negative of, among floats.

    A negated least integer overflows, and beside complex numbers a float has an imaginary part +0.
    """
    inner = producer(eqn.inputs[i], producers, ops.negative)
    if inner is None or not is_float(inner.inputs[0]) or not is_float(eqn.outputs[0]):
        return None
    return inner.inputs[0]


def _add_negative(eqn, producers):
    x, y = eqn.inputs
    if (b := _negate(eqn, 1, producers)) is not None:
        return become(eqn, ops.subtract, x, b)
    if (a := _negate(eqn, 0, producers)) is not None:
        return become(eqn, ops.subtract, y, a)
    return None


def _both_negative(eqn, producers):
    a, b = [_negate(eqn, i, producers) for i in (0, 1)]
    return None if a is None or b is None else become(eqn, eqn.prim, a, b)


def _by_itself(eqn, producers):
    x, y = eqn.inputs
    if x is y and isinstance(x, Var) and aval_of_atom(x).dtype.kind in "iuf":
        return become(eqn, ops.square, x)
    return None


def _is_tame(a: Atom) -> bool:
    """Whether ``a`` is known to be finite and nowhere zero: strong zero then has nothing to do."""
    x = known_value(a)
    return x is not None and bool(np.all(np.isfinite(x)) and np.all(np.not_equal(x, 0)))


def _strong(eqn, producers):
    if any(map(_is_tame, eqn.inputs)):
        return become(eqn, ops.multiply, *eqn.inputs)
    return None


def _spare(eqn, producers):
    """The product itself, where a bare one has no NaN and a strong one where it has."""
    condition, strong, bare = eqn.inputs
    inner = producer(strong, producers, strong_multiply)
    product = producer(bare, producers, ops.multiply)
    asked = producer(condition, producers, isnan)
    if inner is None or product is None or asked is None or asked.inputs[0] is not bare:
        return None
    return strong if set(map(id, inner.inputs)) == set(map(id, product.inputs)) else None


def _choose(eqn, producers):
    condition, x, y = eqn.inputs
    if x is y and isinstance(x, Var):
        return x
    c = known_value(condition)
    if c is None:
        return None
    return x if np.all(c) else None if np.any(c) else y


# ---- structure


def _transposed_twice(eqn, producers):
    x, axes = eqn.inputs[0], eqn.params["axes"]
    if axes == tuple(range(len(axes))):
        return x
    inner = producer(x, producers, transpose)
    if inner is None:
        return None
    first = inner.params["axes"]
    return become(eqn, transpose, inner.inputs[0], axes=tuple([first[a] for a in axes]))


def _same_shape(eqn, producers):
    x = eqn.inputs[0]
    return x if aval_of_atom(x).shape == eqn.params["shape"] else None


def _reshaped_twice(eqn, producers):
    inner = producer(eqn.inputs[0], producers, eqn.prim)
    return None if inner is None else become(eqn, eqn.prim, inner.inputs[0], **eqn.params)


def _same_dtype(eqn, producers):
    x = eqn.inputs[0]
    return x if aval_of_atom(x).dtype == eqn.params["dtype"] else None


def _reads_everything(eqn, producers):
    x, shape = eqn.inputs[0], eqn.outputs[0].aval.shape
    if len(eqn.inputs) > 1 or aval_of_atom(x).shape != shape:
        return None
    v = views.indexed(views.identity(x, shape), eqn.params["pattern"])
    return x if v.shape == shape and v.is_identity() else None


def _writes_everything(eqn, producers):
    (x, value, *indices), shape = eqn.inputs, eqn.outputs[0].aval.shape
    if indices or not isinstance(x, Var) or aval_of_atom(value).shape != shape:
        return None
    v = views.indexed(views.identity(x, shape), eqn.params["pattern"])
    return value if v.shape == shape and v.is_identity() else None


# Parts of the largest array that is a stack of what is written.
PARTS = 16


def _writes_each(eqn, producers):
    """A stack of what is written into a constant array part by part, each once."""
    shape, dtype = eqn.outputs[0].aval
    *before, last = eqn.params["pattern"]
    if before != [WHOLE] * len(before) or type(last) is not int or shape[len(before)] > PARTS:
        return None
    axis, written = len(before), {}
    base, now = eqn.outputs[0], eqn
    part = Aval((*shape[:axis], *shape[axis + 1 :]), dtype)
    while now is not None:
        (base, value, *indices), pattern = now.inputs, now.params["pattern"]
        i = pattern[axis] if len(pattern) == axis + 1 else None
        fits = type(i) is int and pattern[:axis] == (WHOLE,) * axis and not indices
        if not fits or aval_of_atom(value) != part or i % shape[axis] in written:
            return None
        value = value if isinstance(value, Var | Const) else Const(np.asarray(value))
        written[i % shape[axis]] = value
        now = producer(base, producers, scatter_set)
    fresh = isinstance(base, Const) or producer(base, producers, broadcast_to) is not None
    if len(written) < shape[axis] or not fresh:
        return None
    return become(eqn, stack, *[written[i] for i in range(shape[axis])], axis=axis)


def _reads_one_of_stack(eqn, producers):
    inner = producer(eqn.inputs[0], producers, stack)
    if inner is None or len(eqn.inputs) > 1:
        return None
    *before, i = eqn.params["pattern"]
    if type(i) is not int or before != [WHOLE] * inner.params["axis"]:
        return None
    return inner.inputs[i]


def _repeat(a: Atom, producers: Producers) -> Atom | None:
    """An operand with fewer entries that broadcasts to ``a``."""
    if isinstance(a, Const):
        number = repeated_entry(a.value)
        return None if number is None or a.value.size < 2 else Const(number)
    eqn = producer(a, producers, broadcast_to)
    return None if eqn is None else eqn.inputs[0]


def repeated_entry(x: np.ndarray) -> np.ndarray | None:
    """The one number of which an array consists, to the bit; None where there are several."""
    x = x.reshape(-1)
    if not x.size or (x.size > 1 and x[0] != x[-1]):
        return None
    entries = np.ascontiguousarray(x).view(np.uint8).reshape(x.size, x.itemsize)
    if not (entries == entries[0]).all():
        return None
    number = np.array(x[0])
    number.setflags(write=False)
    return number


def _broadcast_operand(eqn, producers):
    inputs = list(eqn.inputs)
    shapes = [aval_of_atom(x).shape for x in inputs]
    shape = eqn.outputs[0].aval.shape
    changed = False
    for i, x in enumerate(inputs):
        smaller = _repeat(x, producers) if shapes[i] else None
        if smaller is None:
            continue
        others = [*shapes[:i], aval_of_atom(smaller).shape, *shapes[i + 1 :]]
        if np.broadcast_shapes(*others) == shape:
            inputs[i], shapes, changed = smaller, others, True
    return become(eqn, eqn.prim, *inputs) if changed else None


def _broadcasts(prim: Primitive) -> bool:
    """Whether a smaller operand gives the same bits.

    Where rows round freely, NumPy may round a number and an array differently: its power with the
    fixed exponent 2 is a square.
    """
    return isinstance(prim, Elementwise) and prim.facts.rounds != "freely"


RULES = (
    Rule("an operand broadcast by the op itself", _broadcasts, _broadcast_operand),
    Rule("strong zero, one factor tame: x * y", (strong_multiply,), _strong),
    Rule("x * 1 = x", (ops.multiply,), _neutral),
    Rule("x * -1 = -x", (ops.multiply,), _times_minus_one),
    Rule("x / 1 = x", (ops.divide,), _neutral),
    Rule("x ** 1 = x", (ops.power,), _neutral),
    Rule("x - 0 = x", (ops.subtract,), _neutral),
    Rule("x + -0 = x", (ops.add,), _neutral),
    Rule("-(-x) = x", (ops.negative,), _undo),
    Rule("+x = x", (ops.positive,), _itself),
    Rule("x + -y = x - y", (ops.add,), _add_negative),
    Rule("-x * -y = x * y", (ops.multiply, ops.divide), _both_negative),
    Rule("x * x = square x", (ops.multiply,), _by_itself),
    Rule("a choice that is known", (ops.where,), _choose),
    Rule("a product, strong where it is NaN: strong", (ops.where,), _spare),
    Rule("a part of a real number", (ops.real, ops.conjugate),
         lambda eqn, producers: eqn.inputs[0] if is_real(eqn.inputs[0]) else None),
    Rule("conjugate twice", (ops.conjugate,), _undo),
    # NumPy's sum starts from 0, so -0.0 becomes 0.0 even without an axis
    Rule("sum over no axes", (sum_,), lambda eqn, producers: (
        None if eqn.params["axis"] else become(eqn, ops.add, eqn.inputs[0], 0))),
    Rule("transpose twice, or in place", (transpose,), _transposed_twice),
    Rule("to the same shape", (reshape, broadcast_to), _same_shape),
    Rule("reshape or broadcast twice", (reshape, broadcast_to), _reshaped_twice),
    Rule("to the same dtype", (astype,), _same_dtype),
    Rule("an index of everything", (getitem,), _reads_everything),
    Rule("everything written", (scatter_set,), _writes_everything),
    Rule("every part written", (scatter_set,), _writes_each),
    Rule("an entry of a stack", (getitem,), _reads_one_of_stack),
)
