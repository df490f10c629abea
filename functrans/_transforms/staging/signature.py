"""What a compiled function is called with, Python's integers, and when equations are the same."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from functrans import tree
from functrans._compile.ir.program import Atom, Const, Eqn, Program, Structured, Var
from functrans._core.array import PYTHON_SCALARS, integer, plain
from functrans._core.plain import placed
from functrans._core.primitive import Primitive
from functrans._ops import elementwise as ops
from functrans._transforms import options
from functrans._transforms.arguments import describe, is_number
from functrans._transforms.drawing import Drawn
from functrans._transforms.mutation import follow
from functrans.errors import ArgumentError, name_of

# ---- What a compiled function is called with: numbers it runs on, and the rest, which is its key

_POSITIONAL = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
_NAMED = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
_REST, _KEYWORDS = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


class BoundCall(NamedTuple):
    """A call taken apart: what its program depends on, and a function of its numbers alone.

    ``fixed`` are the arguments that become part of the program, ``drawn`` the random numbers that
    the call has drawn.
    """

    key: Any
    operands: list
    call: functools.partial
    fixed: tuple
    drawn: Drawn

    @property
    def structure(self) -> tree.Structure:
        """How the arguments nest: a list of those by position, a dict of those by name."""
        return self.key[0]


class Signature:
    """Which arguments of a function are static."""

    def __init__(self, f: Callable, nums: Any, names: Any):
        self.f, self.called = f, follow(f)
        self.nums = _entries("static_argnums", nums, int)
        self.names = _entries("static_argnames", names, str)
        if self.nums or self.names:
            self._complete()

    def _complete(self) -> None:
        """Look for each static argument among the parameters, by position and by name."""
        try:
            parameters = list(inspect.signature(self.f).parameters.values())
        except (TypeError, ValueError):  # a builtin function: nothing is known
            return
        kinds = {p.name: p.kind for p in parameters}
        positional = [p.name for p in parameters if p.kind in _POSITIONAL]
        for i in self.nums:
            if _REST not in kinds.values() and not -len(positional) <= i < len(positional):
                raise ArgumentError(
                    f"jit: static_argnums holds {i}, but `{name_of(self.f)}` takes "
                    f"{len(positional)} positional arguments"
                )
        for n in self.names:
            if kinds.get(n) not in _NAMED and _KEYWORDS not in kinds.values():
                raise ArgumentError(
                    f"jit: static_argnames holds {n!r}, but the parameters of "
                    f"`{name_of(self.f)}` are {', '.join(kinds) or 'none'}"
                )
        nums = [i if i >= 0 or _REST in kinds.values() else i + len(positional) for i in self.nums]
        named = [positional[i] for i in nums if 0 <= i < len(positional)]
        numbered = [positional.index(n) for n in self.names if n in positional]
        self.nums = tuple(dict.fromkeys([*nums, *numbered]))
        self.names = tuple(dict.fromkeys([*self.names, *named]))

    def of(self, args: tuple, kwargs: dict, drawn: Drawn | None = None) -> BoundCall:
        """A call taken apart."""
        static: tuple = ()
        positional, named = list(args), kwargs
        if self.nums or self.names:
            nums = sorted({i % len(args) for i in self.nums if -len(args) <= i < len(args)})
            static = tuple([(i, args[i]) for i in nums])
            static += tuple([(n, kwargs[n]) for n in self.names if n in kwargs])
            named = {n: x for n, x in kwargs.items() if n not in self.names}
            for i in nums:
                positional[i] = None
        leaves, structure = tree.flatten((positional, named))
        leaves = [plain(x) for x in leaves]
        numbers = [i for i, x in enumerate(leaves) if is_number(x)]
        operands, others = leaves, ()
        if len(numbers) < len(leaves):
            operands = [leaves[i] for i in numbers]
            others = tuple([(i, x) for i, x in enumerate(leaves) if not is_number(x)])
            for _, x in others:
                self._require_value(x)
        fixed = tuple([x for _, x in static + others])
        kinds = tuple(map(kind_of, operands))
        # (positional, named) itself has no order but that of keywords, which Python resolves
        orders = tuple([_orders(s) for s in structure.children[0].children if s is not tree.LEAF])
        orders += tuple([_orders(s) for s in structure.children[1].children if s is not tree.LEAF])
        key = structure, orders, kinds, typed(static + others) if fixed else ()
        try:
            hash(key)
        except TypeError:
            bad, f = next(x for x in fixed if not _has_hash(x)), name_of(self.f)
            raise ArgumentError(
                f"jit: a static argument of `{f}` cannot be hashed: {describe(bad)}"
                if any([x is bad for _, x in static]) else
                f"jit: `{f}` got {describe(bad)}, which is neither a number nor a container of "
                "some, and cannot be hashed. Make its class a dataclass, teach it to transforms "
                "by ft.tree.register, or close over it."
            ) from None
        call = functools.partial(self.call, structure, leaves, numbers, static)
        return BoundCall(key, operands, call, fixed, drawn or Drawn())

    def names_of(self, given: BoundCall) -> list[str]:
        """What the numbers of a call are called: ``x``, ``params[0].w``."""
        structure, leaves, numbers, _ = given.call.args
        positional, named = tree.unflatten(structure, leaves)
        names: list[str] = []
        with suppress(TypeError, ValueError):  # of a builtin function nothing is known
            parameters = inspect.signature(self.f).parameters.values()
            names = [p.name for p in parameters if p.kind in _POSITIONAL]
        names += [f"argument {i}" for i in range(len(names), len(positional))]
        shown = [options.show(name, path) for name, x in zip(names, positional, strict=False)
                 for path, _ in options.leaves(x)]
        shown += [options.show(path[0].key, path[1:]) for path, _ in options.leaves(named)]
        return [shown[i] for i in numbers]

    def calling(self, f: Callable) -> Callable:
        """As ``call``, of a function that is called in the place of mine."""
        if f is self.f:
            return self.call
        other = copy.copy(self)
        other.called = follow(f)
        return other.call

    def call(self, structure: tree.Structure, leaves: list, numbers: list, static: tuple,
             *values: Any) -> Any:
        """The function, called with ``values`` in the places of its numbers."""
        positional, named = tree.unflatten(structure, placed(values, numbers, leaves))
        for i, x in static:
            if isinstance(i, int):
                positional[i] = x
            else:
                named[i] = x
        return self.called(*positional, **named)

    def _require_value(self, x: Any) -> None:
        """Raise for an object that is equal to itself alone: what it holds may change unseen."""
        if type(x).__hash__ is object.__hash__ and not isinstance(x, _NAMES):
            kind = type(x)
            raise ArgumentError(
                f"jit: an argument of `{name_of(self.f)}` is a {kind.__module__}."
                f"{kind.__qualname__}, neither a number nor a value, for two of them are never "
                "equal. Make the class a container with tree.register, give it __eq__ and "
                "__hash__, or name the argument in static_argnums: a program for each object."
            )


# Objects that stand for themselves.
_NAMES = (FunctionType, BuiltinFunctionType, MethodType, ModuleType, type, Enum, np.ufunc, property,
          functools.partial)


def _entries(what: str, value: Any, kind: type) -> tuple:
    """One ``int`` or ``str``, or several, as a tuple."""
    one = isinstance(value, str) or integer(value) is not None
    entries = (value,) if one else value
    if kind is int and isinstance(entries, Sequence):
        entries = [x if (n := integer(x)) is None else n for x in entries]
    if not isinstance(entries, Sequence) or not all(
        isinstance(x, kind) and not isinstance(x, bool) for x in entries
    ):
        raise ArgumentError(f"jit: {what} must be one {kind.__name__} or several, but is {value!r}")
    return tuple(entries)


def kind_of(x: Any) -> type | tuple:
    """What the program depends on in a number: a Python scalar's type, else shape and dtype."""
    if type(x) in PYTHON_SCALARS:
        return type(x)
    return x.shape, x.dtype


def typed(x: Any) -> tuple:
    """A key for ``x``: not that of what is equal but of another type (1, True, 1.0), nor that of a
    zero of the other sign; inside of containers too."""
    kind = type(x)
    if kind is int or kind is str:
        return kind, x
    if isinstance(x, float | complex):
        return kind, repr(x)
    if isinstance(x, tuple):
        return kind, tuple(map(typed, x))
    if isinstance(x, frozenset):
        return kind, frozenset(map(typed, x))
    if isinstance(x, range | slice):
        return kind, typed((x.start, x.stop, x.step))
    if isinstance(x, np.generic):
        return kind, x.dtype, x.tobytes()
    if dataclasses.is_dataclass(x) and not isinstance(x, type) and kind.__hash__ is not None:
        own = {f.name: typed(getattr(x, f.name)) for f in dataclasses.fields(x) if f.compare}
        return kind, x, tuple(own.items())
    return kind, x


def _orders(structure: tree.Structure) -> tuple:
    """The keys of dicts in their order, which a function may go through, and their types."""
    if structure is tree.LEAF:
        return ()
    inner = tuple([_orders(s) for s in structure.children if s is not tree.LEAF])
    order = getattr(structure.aux, "order", None)
    return inner if order is None else (order, tuple(map(type, order)), inner)


def _has_hash(x: Any) -> bool:
    try:
        hash(x)
    except TypeError:
        return False
    return True


# ---- Whether equations of two runs of a function compute the same


def same_eqn(x: Eqn, y: Eqn, xs: Mapping[Var, Any], ys: Mapping[Var, Any]) -> bool:
    """Whether equations compute the same, their variables named by their sources."""
    if len(x.inputs) != len(y.inputs) or not _same_row(x, y):
        return False
    inputs = zip(x.inputs, y.inputs, strict=True)
    outputs = zip(x.outputs, y.outputs, strict=True)
    return (all([same_atom(a, b, xs, ys) for a, b in inputs])
            and all([a.aval == b.aval and a.weak == b.weak for a, b in outputs]))


def _same_row(x: Eqn, y: Eqn) -> bool:
    p, q = x.prim, y.prim
    if isinstance(p, Structured) and isinstance(q, Structured):
        if type(p) is not type(q) or p.numbers() != q.numbers() or p.name != q.name:
            return False
        pairs = zip(p.programs.values(), q.programs.values(), strict=True)
        return len(p.programs) == len(q.programs) and all([_same_program(a, b) for a, b in pairs])
    if p is not q or x.params.keys() != y.params.keys():
        return False
    return all([_same_param(v, y.params[k]) for k, v in x.params.items()])


def _same_param(x: Any, y: Any) -> bool:
    if isinstance(x, Program):
        return isinstance(y, Program) and _same_program(x, y)
    if isinstance(x, np.ndarray):
        return isinstance(y, np.ndarray) and _same_array(x, y)
    return x is y or typed(x) == typed(y)


def _same_array(x: np.ndarray, y: np.ndarray) -> bool:
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


def _same_program(p: Program, q: Program) -> bool:
    if len(p.inputs) != len(q.inputs) or len(p.eqns) != len(q.eqns):
        return False
    numbered = []
    for program in (p, q):
        results = [v for eqn in program.eqns for v in eqn.outputs]
        numbered.append({v: i for i, v in enumerate([*program.inputs, *results])})
    xs, ys = numbered
    kinds = [a.aval == b.aval and a.weak == b.weak for a, b in zip(p.inputs, q.inputs, strict=True)]
    return (all(kinds) and len(p.outputs) == len(q.outputs)
            and all([same_eqn(a, b, xs, ys) for a, b in zip(p.eqns, q.eqns, strict=True)])
            and all([same_atom(a, b, xs, ys) for a, b in zip(p.outputs, q.outputs, strict=True)]))


def same_atom(a: Atom, b: Atom, xs: Mapping[Var, Any], ys: Mapping[Var, Any]) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, Var):
        return xs[a] == ys[b]  # type: ignore[index]  # b is a Var
    if isinstance(a, Const):
        return _same_array(a.value, b.value)  # type: ignore[union-attr]  # b is a Const
    return repr(a) == repr(b)


# ---- Python's integers under ``jit``: exact, or refused
#
# Native code counts with 64 bits, and Python with as many as it takes. So what a program computes
# of the integers that it is given, and of nothing else, is computed by Python first: where that
# does not fit, or is no integer, the call raises. Programs without such equations pay nothing.

# Row -> what Python computes.
_EXACT: dict[Primitive, Callable] = {
    ops.add: operator.add, ops.subtract: operator.sub, ops.multiply: operator.mul,
    ops.negative: operator.neg, ops.absolute: operator.abs, ops.positive: operator.pos,
    ops.square: lambda n: n * n, ops.power: operator.pow, ops.floor_divide: operator.floordiv,
    ops.remainder: operator.mod, ops.left_shift: operator.lshift, ops.right_shift: operator.rshift,
}
LEAST, GREATEST = -(2**63), 2**63 - 1
# Bits of a power, or of a shifted number, from which on it is not computed to be refused.
MOST_BITS = 4096


def integers(name: str, program: Program) -> Callable[[Sequence], None] | None:
    """What raises where Python's integers do not fit, from a call's numbers; None: they all do."""
    weak_ints = {v: i for i, v in enumerate(program.inputs) if v.weak and v.aval.dtype.kind == "i"}
    known: set[Atom] = set(weak_ints)
    steps = []
    for eqn in program.eqns if weak_ints else ():
        mine = [isinstance(a, Var) and a in known for a in eqn.inputs]
        python = all(m or type(a) is int for a, m in zip(eqn.inputs, mine, strict=True))
        if eqn.prim in _EXACT and any(mine) and python:
            steps.append(eqn)
            known.update(eqn.outputs)
    if not steps:
        return None

    def check(numbers: Sequence) -> None:
        values: dict[Atom, Any] = {v: numbers[i] for v, i in weak_ints.items()}
        if not all(type(x) is int for x in values.values()):
            return  # traced by another transform
        for eqn in steps:
            xs = [values[a] if isinstance(a, Var) else a for a in eqn.inputs]
            y = _exactly(eqn.prim, xs)
            if type(y) is not int or not LEAST <= y <= GREATEST:
                raise ArgumentError(
                    f"{eqn.line}: {name}: `{eqn.prim.name}` of {', '.join(map(str, xs))} does not "
                    "give an integer of 64 bits, as which Python's are compiled. Pass a float, or "
                    "name the argument in static_argnums."
                )
            values[eqn.outputs[0]] = y

    return check


def _exactly(row: Primitive, xs: Sequence[int]) -> Any:
    """What Python computes, None where it is far too large."""
    if row is ops.power and abs(xs[0]) > 1 and xs[1] > MOST_BITS:
        return None
    if row is ops.left_shift and xs[1] > MOST_BITS:
        return None
    return _EXACT[row](*xs)
