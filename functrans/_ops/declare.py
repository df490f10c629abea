"""The four families: each turns what one row states into everything that the transforms need.

    elementwise   diagonal: one lambda an operand is JVP, VJP and Taylor rule at once
    linear        its own JVP; names its transpose
    bilinear      linear in each of two operands; names the two transposes
    primitive     every column by hand; a missing vjp is the transposed jvp, and vice versa
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from functrans._core.array import Aval, aval_of, dtype_of, ndim_of, shape_of
from functrans._core.bind import (
    PLAIN,
    STRONG,
    AnyArray,
    Tracer,
    bind,
    bind_operands,
    is_staged,
    may_have_nan,
    spread,
    sum_to,
)
from functrans._core.primitive import Primitive, ZeroPolicy, products
from functrans._kernels import large
from functrans._ops.slopes import bring, brought_whole, choose, whole_operands


class Keeping(Protocol):
    """A rule that keeps something else than the operands (``calls.py``)."""

    keep: Callable
    act: Callable
    pull: Callable
    push: Callable


TABLE: dict[str, Primitive] = {}

# Where an op is smooth and defined; tests, samplers and the reference page read it.
ANY, REAL, POSITIVE, NONZERO = "any", "real", "positive", "nonzero"
UNIT, ABOVE_ONE, INTEGER, BOOLEAN = "unit", "above one", "integer", "boolean"


def _enter(prim: Primitive) -> None:
    if prim.name in TABLE:
        raise ValueError(f"there is already an op named {prim.name!r}; choose another name")
    TABLE[prim.name] = prim
    prim.ours = True


# ---- elementwise


_SAME = (lambda g: g).__code__.co_code


class Action:
    """How a change ``g`` of one operand moves the output: ``act(g, *saved)``, linear in ``g``.

    Diagonal, so its own transpose. Which of the output and the operands it needs is read off the
    lambda's parameter names: ``lambda g, y: ...`` keeps the output alive and nothing else.

    ``act`` is the formula. ``pull`` and ``push`` are the formula with strong zero, which differs
    only where the formula says NaN: ``act`` will do wherever no NaN results.
    ``on(g, y, *operands)`` is ``act`` that takes what it needs itself. What is taken is brought to
    the output's type first (``slopes.py``), by the function that ``types`` names, if any.
    """

    __slots__ = ("act", "identity", "masks", "needs", "on", "pick", "pull", "push", "singular")

    accumulate = None  # see LinearAction

    def __init__(self, act: Callable, operands: tuple[str, ...], types: tuple[str, ...] = (),
                 singular: bool = False, propagates: bool = False, selects: bool = False):
        self.act = act
        self.needs = tuple(inspect.signature(act).parameters)[1:]
        unknown = set(self.needs) - {"y", *operands}
        assert not unknown, f"an action's parameters are g, y, {', '.join(operands)}; got {unknown}"
        self.pick, on = _pickers(self.needs, operands, types)
        self.on = on(act)
        # y moves as the operand does, so that it needs no entry on a tape
        code = getattr(act, "__code__", None)
        self.identity = not self.needs and code is not None and code.co_code == _SAME
        self.singular = singular
        # whether a slope can be 0 other than at single points
        self.masks = bool(self.needs) and not propagates
        self.pull = self.push = act if selects or not self.needs else self.strong

    def strong(self, g: Any, *saved: Any) -> AnyArray:
        """The action with strong zero: zero change, or zero slope, contributes exactly zero."""
        moved = self.act(g, *saved)
        if not may_have_nan(moved):
            return moved
        with np.errstate(all="ignore"):
            # one of g's own type: Python's 1.0 / 0 raises, and a float64 one would promote float32
            product = strong_multiply(g, self.act(dtype_of(g).type(1), *saved))
            # entry by entry: no entry depends on the values of others
            return where(isnan(moved), product, moved)


@functools.cache
def _pickers(needs: tuple[str, ...], operands: tuple[str, ...],
             types: tuple[str, ...]) -> tuple[Callable, Callable]:
    """``pick(y, *operands)``, what is named in ``needs``; and what makes ``on`` of ``act``."""
    # eval: 80 ns a call each; a closure with indices 110, act with what is picked and unpacked 190
    names, picked = ", ".join(operands), _pick(needs, operands, types)
    change = _pick(("g",), ("g",), types)
    return (_function(f"lambda y, {names}: ({picked})"),
            _function(f"lambda act: lambda g, y, {names}: act({change}{picked})"))


def _pick(needs: tuple[str, ...], operands: tuple[str, ...], types: tuple[str, ...]) -> str:
    """The text of what an action takes, each followed by a comma."""
    ways = dict(zip(operands, types, strict=False))
    return "".join([
        # an attribute of numbers and arrays alike would spare the call; Python's numbers have none
        f"{n} if type({n}) is type(y) in STRONG and {n}.dtype is y.dtype else {how}({n}, y), "
        if (how := ways.get(n)) else f"{n}, "
        for n in needs
    ])


def _function(text: str) -> Callable:
    """A function written out, in whose frames errors do not look for a line of the user's."""
    functions = {"brought": bring, "brought_whole": brought_whole, "STRONG": STRONG}
    return eval(compile(text, __file__, "eval"), functions)


def change_of_step(action: Action | None, pushes: bool, g: Any, step: Sequence) -> AnyArray:
    """How a change ``g`` of one operand moves the result of an elementwise row, which ``step``
    begins with, before the operands; ``pushes``, or pulls."""
    y = step[0]
    if action is None:
        return np.zeros(y.shape, y.dtype)
    moved = (action.push if pushes else action.pull)(g, *action.pick(*step))
    return spread(moved, y.shape, y.dtype)


class LinearAction:
    """How a change of the one operand of a linear op moves its output, and back."""

    __slots__ = ("accumulate", "act", "masks", "pull", "push")

    singular = False

    def __init__(self, prim: Linear, accumulate: Callable | None, transpose: Callable):
        def pull(ct: Any, x: Aval, fixed: tuple, params: dict) -> AnyArray:
            return transpose(ct, x, *fixed, **params) if fixed else transpose(ct, x, **params)

        def push(t: Any, x: Aval, fixed: tuple, params: dict) -> AnyArray:
            return bind(prim, t, *fixed, **params)

        self.act = self.pull = pull
        self.push = push
        self.masks, self.accumulate = prim.drops, accumulate


class BilinearAction:
    """How a change of one operand of a bilinear op moves its output, and back."""

    __slots__ = ("act", "pull", "push")

    accumulate, masks, singular = None, False, False

    def __init__(self, prim: Bilinear, i: int):
        transpose = prim.transposes[i]

        def pull(ct: Any, x: Aval, other: Any, params: dict) -> AnyArray:
            a, b = (other, x) if i else (x, other)
            moved = transpose(ct, a, b, **params) if params else transpose(ct, a, b)
            return sum_to(moved, x.shape, x.dtype)

        def push(t: Any, x: Aval, other: Any, params: dict) -> AnyArray:
            return bind(prim, other, t, **params) if i else bind(prim, t, other, **params)

        self.act = pull
        self.pull, self.push = map(_strongly, (pull, push)) if prim.sums else (pull, push)


def _strongly(product: Callable) -> Callable:
    """Sums of products with strong zero: what is not finite counts only times what is not zero."""

    def strong(g: Any, x: Aval, other: Any, params: dict) -> AnyArray:
        moved = product(g, x, other, params)
        if not may_have_nan(moved) or (isinstance(moved, Tracer) and not _is_final(moved)):
            return moved
        with np.errstate(all="ignore"):
            some, others = [where(g == 0, 0.0, 1.0), where(other == 0, 0.0, 1.0)]
            tame, rest = [where(isnan(v - v), 0, v) for v in (g, other)]
            wild, wilder = [where(isnan(v - v), 1.0, 0.0) for v in (g, other)]
            met = abs(product(wild, x, others, params)) + abs(product(some, x, wilder, params))
            return where(isnan(moved) & (met == 0), product(tame, x, rest, params), moved)

    return strong


def _is_final(x: Tracer) -> bool:
    """Whether no derivative is taken of it, and its numbers are known or the program is strong."""
    return not x.is_differentiated() and (products() is ZeroPolicy.STRONG or not is_staged(x))


class Elementwise(Primitive):
    """Output ``i`` depends on entry ``i`` of the broadcast operands."""

    __slots__ = ("actions", "entry", "operands", "singular", "whole")

    def __init__(self, name: str, impl: Callable, actions: Sequence[Callable | None], arity: int,
                 singular: bool, propagates: bool = False, selects: bool = False,
                 mixed: bool = False, whole: Sequence[int] | None = None, **columns: Any):
        super().__init__(name, impl, differentiable=any(actions), **columns)
        self.singular = singular
        self.operands = ("x",) if arity == 1 else tuple(f"x{i + 1}" for i in range(arity))
        self.whole = whole = whole_operands(impl) if whole is None else tuple(whole)
        # NumPy's functions of one inexact operand are of its type
        numpys = arity == 1 and name == getattr(impl, "__name__", "")
        alike = mixed or propagates or selects or numpys
        types = tuple(["" if alike else "brought_whole" if i in whole else "brought"
                       for i in range(arity)])
        self.actions = tuple(
            a and Action(a, self.operands, types, singular, propagates, selects) for a in actions
        )
        needs = tuple([a and a.needs for a in self.actions])
        self.entry = _recorder(needs, self.operands, types)(*self.actions)

    def __call__(self, *xs: Any) -> Any:
        for x in xs:
            if type(x) not in PLAIN:
                if len(xs) == 1 and isinstance(x, Tracer):
                    return x.owner.unary(self, x)
                return (bind_operands if len(xs) == 2 else bind)(self, *xs)
        return self.impl(*xs)

    def default_abstract(self, *xs: Aval, **params: Any) -> Aval:
        # NumPy itself resolves the dtypes, on empty arrays
        y = self.impl(*[np.empty(0, x.dtype) if type(x) is Aval else x for x in xs])
        return Aval(np.broadcast_shapes(*[aval_of(x).shape for x in xs]), dtype_of(y))

    def saves(self, wanted: Sequence[bool], params: dict) -> tuple[bool, tuple[bool, ...]]:
        needs = {n for a, w in zip(self.actions, wanted, strict=True) if a and w for n in a.needs}
        return "y" in needs, tuple(name in needs for name in self.operands)

    def jvp(self, ts: Sequence, y: Any, xs: Sequence, params: dict,
            strong: bool = True) -> AnyArray | None:
        total = None
        for t, action in zip(ts, self.actions, strict=True):
            if t is not None and action is not None:
                act = action.push if strong else action.act
                part = act(bring(t, y), *action.pick(y, *xs))
                total = part if total is None else total + part
        return None if total is None else spread(total, shape_of(y), dtype_of(y))

    def vjp(self, ct: Any, y: Any, xs: Sequence, params: dict, wanted: Sequence[bool]) -> list:
        out: list[Any] = [None] * len(xs)
        for i, action in enumerate(self.actions):
            if action is not None and wanted[i]:
                x = aval_of(xs[i])
                out[i] = sum_to(action.pull(ct, *action.pick(y, *xs)), x.shape, x.dtype)
        return out

    def batch(self, size: int, xs: Sequence, batched: Sequence[bool], params: dict) -> AnyArray:
        ndim = max(ndim_of(x) - b for x, b in zip(xs, batched, strict=True))
        return bind(self, *[align(x, ndim) if b else x for x, b in zip(xs, batched, strict=True)])


@functools.cache
def _recorder(needs: tuple[tuple | None, ...], operands: tuple[str, ...],
              types: tuple[str, ...]) -> Callable[..., Any]:
    """From a row's actions, what makes its entry on a tape that has all operands of the call.

    ``entry(y, *operands, *slots, *unlike)``: an edge for each operand that has an action, of its
    slot, the action, what that reads, and the avals where operand and output are not alike.
    """
    numbers = range(len(operands))
    actions, slots, unlike = [
        ", ".join([f"{name}{i}" for i in numbers]) for name in ("action", "slot", "unlike")
    ]
    edges = "".join([
        f"(slot{i}, action{i}, ({_pick(names, operands, types)}), unlike{i}), "
        for i, names in enumerate(needs) if names is not None
    ])
    parameters = f"y, {', '.join(operands)}, {slots}, {unlike}"
    # eval: 145 ns a call of one operand and 205 of two; closures written for just these numbers
    # 220 and 370, one closure for any number 1,100 and 1,400
    return _function(f"lambda {actions}: lambda {parameters}: ({edges})")


def align(x: Any, ndim: int) -> AnyArray:
    """``x`` with axes of length 1 behind its batch axis, so that ``ndim`` axes follow it."""
    shape = x.shape
    missing = ndim + 1 - len(shape)
    return x.reshape((shape[0],) + (1,) * missing + shape[1:]) if missing else x


def elementwise(name: str, impl: Callable, *actions: Callable | None, domain: str = REAL,
                kinks: str = "", at_kink: Callable | None = None, singular: bool = False,
                propagates: bool = False, selects: bool = False, mixed: bool = False,
                whole: Sequence[int] | None = None, doc: str = "", **facts: Any) -> Elementwise:
    """Declare an op on matching entries. An action of None: no derivative in that operand.

    ``singular``: the slope is infinite or undefined somewhere; NumPy's warnings about it are off.
    ``propagates``: finite operands have finite slopes, and an infinite one an output that is not
    finite. Compiled code needs no strong zero where all ops are so: see ``walk``.
    ``selects``: each slope is 0 or 1 and the actions choose, so that they are strong as they are.
    Others take operands in the output's type, but those at the places ``whole`` (by default where
    a ufunc takes integers) stay integers; ``mixed``: in the actions an operand meets the change or
    is compared before anything else, so that types do no harm, and none is looked at.
    ``kinks`` says where the derivative is a convention, and which; ``at_kink(*xs)``, of ndarrays,
    where that is, as booleans. ``facts``, here and in the other families, are those of ``Facts``.
    """
    columns = {"domain": domain, "kinks": kinks, "at_kink": at_kink, "doc": doc, **facts}
    row = Elementwise(name, impl, actions, len(actions), singular, propagates, selects, mixed,
                      whole, **columns)
    _enter(row)
    return row


def constant(name: str, impl: Callable, arity: int = 1, *, domain: str = REAL,
             doc: str = "", **facts: Any) -> Elementwise:
    """Declare an elementwise op whose derivative is zero or meaningless: comparisons, rounding."""
    return elementwise(name, impl, *[None] * arity, domain=domain, doc=doc, **facts)


# ---- linear


class Linear(Primitive):
    """Linear in its first ``operands`` operands (None: in all); the others are fixed."""

    __slots__ = ("_batch", "action", "drops", "fills", "operands", "transpose")

    def __init__(self, name: str, impl: Callable, transpose: Callable, batch: Callable,
                 operands: int | None, accumulate: Callable | None = None, drops: bool = False,
                 fills: bool = False, **columns: Any):
        super().__init__(name, impl, **columns)
        if self.facts.native_from:
            self.impl = large.forward(self, impl, self.facts.native_from)
        self.drops, self.fills = drops, fills
        self.transpose = transpose
        self._batch = batch
        self.operands = operands
        self.action = LinearAction(self, accumulate, transpose) if operands == 1 else None

    def saves(self, wanted: Sequence[bool], params: dict) -> tuple[bool, tuple[bool, ...]]:
        n = len(wanted) if self.operands is None else self.operands
        return False, (False,) * n + (True,) * (len(wanted) - n)

    def jvp(self, ts: Sequence, y: Any, xs: Sequence, params: dict) -> AnyArray | None:
        n = len(xs) if self.operands is None else self.operands
        if all(t is None for t in ts[:n]):
            return None
        moved = [_zeros_like(x) if t is None else t for x, t in zip(xs[:n], ts[:n], strict=True)]
        return bind(self, *moved, *xs[n:], **params)

    def vjp(self, ct: Any, y: Any, xs: Sequence, params: dict, wanted: Sequence[bool]) -> Sequence:
        n = len(xs) if self.operands is None else self.operands
        operands = [aval_of(x) if i < n else x for i, x in enumerate(xs)]
        if n == 1 and self.operands == 1:
            return [self.transpose(ct, *operands, **params)] + [None] * (len(xs) - 1)
        return list(self.transpose(ct, *operands, wanted=wanted, **params)) + [None] * (len(xs) - n)

    def batch(self, size: int, xs: Sequence, batched: Sequence[bool], params: dict) -> AnyArray:
        return self._batch(size, xs, batched, **params)


def _zeros_like(x):
    x = aval_of(x)
    return np.zeros(x.shape, x.dtype)


def linear(name: str, impl: Callable, transpose: Callable, *, batch: Callable,
           abstract: Callable | None = None, operands: int | None = 1,
           accumulate: Callable | None = None, drops: bool = False, fills: bool = False,
           doc: str = "", **facts: Any) -> Linear:
    """Declare a linear op.

    ``transpose(ct, *xs, **params)`` returns the cotangent of the one linear operand; with
    ``operands`` other than 1 it also takes ``wanted`` and returns one for each. Linear operands
    arrive there as ``Aval``. ``batch(size, xs, batched, **params)`` adds axis 0 to the output.
    ``accumulate(buffer, ct, fixed, params)``, of one linear operand, adds the transpose to an array
    in place; ``fixed`` are the other operands. ``drops``: part of an operand does not reach the
    output; ``fills``: the output has zeros where nothing is put.
    """
    row = Linear(name, impl, transpose, batch, operands, accumulate, drops, fills,
                 abstract=abstract, domain=ANY, doc=doc, **facts)
    _enter(row)
    return row


# ---- bilinear


class Bilinear(Primitive):
    """Linear in each of two operands."""

    __slots__ = ("_batch", "actions", "sums", "transposes")

    def __init__(self, name: str, impl: Callable, transposes: tuple[Callable, Callable],
                 batch: Callable, sums: bool = True, **columns: Any):
        super().__init__(name, impl, **columns)
        self.sums, self.transposes, self._batch = sums, transposes, batch
        self.actions = BilinearAction(self, 0), BilinearAction(self, 1)

    def saves(self, wanted: Sequence[bool], params: dict) -> tuple[bool, tuple[bool, ...]]:
        return False, (wanted[1], wanted[0])

    def jvp(self, ts: Sequence, y: Any, xs: Sequence, params: dict) -> AnyArray | None:
        (t1, t2), (x1, x2), (a1, a2) = ts, xs, self.actions
        first = None if t1 is None else a1.push(t1, x1, x2, params)
        second = None if t2 is None else a2.push(t2, x2, x1, params)
        if first is None or second is None:
            return second if first is None else first
        return first + second

    def vjp(self, ct: Any, y: Any, xs: Sequence, params: dict, wanted: Sequence[bool]) -> list:
        others = reversed(xs)
        return [
            action.pull(ct, aval_of(x), other, params) if w else None
            for action, x, other, w in zip(self.actions, xs, others, wanted, strict=True)
        ]

    def batch(self, size: int, xs: Sequence, batched: Sequence[bool], params: dict) -> AnyArray:
        return self._batch(size, xs, batched, **params)


def bilinear(name: str, impl: Callable, transpose1: Callable, transpose2: Callable, *,
             batch: Callable, abstract: Callable | None = None, sums: bool = True,
             doc: str = "", **facts: Any) -> Bilinear:
    """Declare an op linear in each of two operands; ``sums``: it adds products, and subtracts none.

    ``transpose1(ct, x1, x2, **params)`` is the cotangent of x1, given as ``Aval``; it may still be
    broadcast, the family sums it. Likewise ``transpose2``.
    """
    transposes = transpose1, transpose2
    row = Bilinear(name, impl, transposes, batch, sums, abstract=abstract, domain=ANY, doc=doc,
                   **facts)
    _enter(row)
    return row


# ---- everything by hand


class General(Primitive):
    """Columns by hand. ``vjp`` or ``jvp`` may be None: the transforms then transpose the other."""

    __slots__ = ("_batch", "_saves", "choose", "jvp_rule", "keeps", "split", "vjp_rule")

    def __init__(self, name: str, impl: Callable, *, jvp: Callable | None, vjp: Callable | None,
                 batch: Callable | None, saves: str, choose: Callable | None = None,
                 split: Callable | None = None, keeps: Keeping | None = None, **columns: Any):
        differentiable = jvp is not None or vjp is not None
        super().__init__(name, impl, differentiable=differentiable, **columns)
        self.choose, self.split, self.keeps = choose, split, keeps
        self.jvp_rule, self.vjp_rule = jvp, vjp
        if self.facts.native_from:
            self.impl = large.forward(self, impl, self.facts.native_from)
            self.vjp_rule = vjp and large.backward(vjp, self.facts.native_from)
        self._batch, self._saves = batch or self.loop, saves

    def saves(self, wanted: Sequence[bool], params: dict) -> tuple[bool, tuple[bool, ...]]:
        return "y" in self._saves, ("x" in self._saves,) * len(wanted)

    def jvp(self, ts: Sequence, y: Any, xs: Sequence, params: dict) -> Any:
        assert self.jvp_rule is not None, self.name
        return self.jvp_rule(ts, y, xs, **params)

    def vjp(self, ct: Any, y: Any, xs: Sequence, params: dict, wanted: Sequence[bool]) -> Sequence:
        assert self.vjp_rule is not None, self.name
        return self.vjp_rule(ct, y, xs, wanted, **params)

    def batch(self, size: int, xs: Sequence, batched: Sequence[bool], params: dict) -> Any:
        return self._batch(size, xs, batched, **params)

    def loop(self, size, xs, batched, **params):
        """The outputs, slice by slice."""
        if not size:
            return self._of_no_slices(xs, batched, params)
        ys = [bind(self, *[x[i] if b else x for x, b in zip(xs, batched, strict=True)], **params)
              for i in range(size)]
        return tuple(map(np.stack, zip(*ys, strict=True))) if self.outputs > 1 else np.stack(ys)

    def _of_no_slices(self, xs, batched, params):
        avals = [aval_of(x) for x in xs]
        slices = [Aval(a.shape[b:], a.dtype) for a, b in zip(avals, batched, strict=True)]
        avals = self.abstract(*slices, **params)
        ys = [np.zeros((0, *a.shape), a.dtype) for a in (avals if self.outputs > 1 else [avals])]
        return tuple(ys) if self.outputs > 1 else ys[0]


def primitive(name: str, impl: Callable, *, jvp: Callable | None = None,
              vjp: Callable | None = None, batch: Callable | None = None,
              abstract: Callable | None = None, saves: str = "xy", outputs: int = 1,
              choose: Callable | None = None, domain: str = ANY, kinks: str = "",
              at_kink: Callable | None = None, split: Callable | None = None,
              keeps: Keeping | None = None, doc: str = "", **facts: Any) -> General:
    """Declare an op column by column.

    ``jvp(ts, y, xs, **params)`` and ``vjp(ct, y, xs, wanted, **params)``; ``y``, ``ct`` and the
    tangent are tuples where ``outputs`` is more than 1. ``saves`` says what vjp reads by value:
    "x" the operands, "y" the output. ``choose(ts, y, **params)``: if the output is one of several
    that are equally right, the one that has a derivative along these tangents. Without
    ``batch``, vmap loops and stacks. ``at_kink(*xs, **params)`` as for ``elementwise``.
    ``split(y, **params)``: where parts of the output coincide, so that the backward rule divides
    zero by zero, the output and directions in which they come apart, else None (``nodes.py``).
    ``keeps``: what the backward may read instead (``calls.py``).
    Neither jvp nor vjp: the op is constant.
    """
    row = General(name, impl, jvp=jvp, vjp=vjp, batch=batch, saves=saves, choose=choose,
                  split=split, keeps=keeps, abstract=abstract, outputs=outputs,
                  domain=domain, kinks=kinks, at_kink=at_kink, doc=doc, **facts)
    _enter(row)
    return row


# ---- what the families themselves need


def _strong_multiply(a, b):
    with np.errstate(all="ignore"):
        y = np.multiply(a, b)
        if np.isfinite(y).all():
            return y
        # only NaNs: an entry must not depend on the values of others
        return np.where((y != y) & ((a == 0) | (b == 0)), y.dtype.type(0), y)


# row: the product that strong zero is made of; 0 * inf = 0 * nan = 0
strong_multiply = elementwise(
    "strong_multiply", _strong_multiply,
    lambda g, x2: strong_multiply(g, x2), lambda g, x1: strong_multiply(g, x1),
    mixed=True, commutes=True, rounds="once", cost=1,
)
where = elementwise(
    "where", choose, None, lambda g, x1: where(x1, g, 0), lambda g, x1: where(x1, 0, g),
    domain=ANY, selects=True, cost=1, computes="choice", rounds="never",
)
isnan = constant("isnan", np.isnan, rounds="never", cost=1, computes="inexact")
