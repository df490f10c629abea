"""Which parts of which arguments a transform acts on; ``argnums`` is read here, for all of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from enum import Enum
from sys import getrefcount
from types import BuiltinFunctionType
from typing import Any, NamedTuple

import numpy as np

from functrans import tree
from functrans._core.array import (
    PYTHON_SCALARS,
    Array,
    aval_of,
    changeable,
    frozen_copy,
    inexact_dtype,
    integer,
    plain,
    shape_of,
    wrap,
)
from functrans._core.bind import Tracer, is_weak
from functrans._core.plain import FREE_THREADED, is_exact
from functrans._transforms import options
from functrans._transforms.mutation import follow
from functrans.errors import ArgumentError, NotDifferentiable, ShapeError, name_of

Argnums = int | str | Sequence[int | str] | Callable[[str, Any], bool]


def require_callable(who: str, f: Any) -> Callable:
    """``f``, if it can be called; one that writes into arrays with names for them."""
    if not callable(f):
        raise ArgumentError(f"{who} needs a function, but got {describe(f)}")
    return f if type(f) in IN_C else follow(f)


# Functions that write into no array that a transform follows, and have no code to be read.
IN_C = frozenset({np.ufunc, BuiltinFunctionType})


def plain_argnums(who: str, argnums: Any) -> Any:
    """``argnums``, an argument or a tuple of them, with integers of every type as Python's.

    A path into an argument, or a predicate of paths, stays what it is.
    """
    if type(argnums) is int:
        return argnums
    if _are_several(argnums):
        return tuple([plain_argnums(who, a) for a in argnums])
    if callable(argnums):
        return argnums
    number = argnums if isinstance(argnums, str) else integer(argnums)
    if number is None or (isinstance(argnums, str) and options.parse(argnums) is None):
        raise ArgumentError(
            f"{who}: argnums must be ints or parameter names, or paths such as "
            f"'params.layers[0].w', but got {argnums!r}"
        )
    return number


def labels(argnums: Argnums) -> list:
    """What messages call the arguments that ``argnums`` names."""
    if callable(argnums):
        return ["chosen by argnums"]
    return [argnums] if isinstance(argnums, int | str) else list(argnums)


def _are_several(argnums: Any) -> bool:
    if isinstance(argnums, np.ndarray):
        return argnums.ndim > 0
    return isinstance(argnums, Sequence) and not isinstance(argnums, str)


class Selected(NamedTuple):
    """The arguments to act on, and how to call the function with others in their place."""

    values: list
    single: bool
    call: Callable[[Sequence], Any]


def select(who: str, f: Callable, argnums: Argnums, args: tuple, kwargs: dict) -> Selected:
    """The arguments that ``argnums`` names, positions or parameter names, given either way.

    Of a path, the part that it leads to; of a predicate a dict of what it chooses, by paths.
    """
    if isinstance(argnums, int) and 0 <= argnums < len(args):
        if len(args) == 1:
            return Selected([args[0]], True, lambda new: f(*new, **kwargs))
        head, tail = args[:argnums], args[argnums + 1 :]
        return Selected([args[argnums]], True, lambda new: f(*head, new[0], *tail, **kwargs))
    if type(argnums) is tuple and argnums == FIRST[: len(args)]:
        return Selected(list(args), False, lambda new: f(*new, **kwargs))
    if callable(argnums):
        return _by_predicate(who, f, argnums, args, kwargs)
    wanted: Sequence = (argnums,) if isinstance(argnums, int | str) else tuple(argnums)
    parts = [_part(who, f, a, args, kwargs) for a in wanted]
    for i, a in enumerate(parts):
        if any([a.place == b.place and a.path[: len(b.path)] == b.path[: len(a.path)]
                for b in parts[:i]]):
            raise ArgumentError(
                f"{who}: argnums {argnums!r} names an argument of `{name_of(f)}` twice"
            )
    values = [options.part(p.name, p.of(args, kwargs), p.path) for p in parts]
    single = isinstance(argnums, int | str)
    return Selected(values, single, lambda new: _call_with(f, args, kwargs, parts, new))


# What ``argnums`` is where it names all positional arguments in their order.
FIRST = tuple(range(64))


class Part(NamedTuple):
    """Where an argument was given, by position or by keyword, and the path to a part of it."""

    place: int | str
    name: str
    path: options.Path

    def of(self, args: Sequence, kwargs: dict) -> Any:
        return args[self.place] if isinstance(self.place, int) else kwargs[self.place]


def _call_with(f: Callable, args: tuple, kwargs: dict, parts: list[Part], new: Sequence) -> Any:
    """``f`` called with other values in the places of some parts."""
    positional, named = list(args), dict(kwargs)
    for p, x in zip(parts, new, strict=True):
        whole = options.replace(p.name, p.of(positional, named), p.path, x)
        if isinstance(p.place, int):
            positional[p.place] = whole
        else:
            named[p.place] = whole
    return f(*positional, **named)


def _part(who: str, f: Callable, a: int | str, args: tuple, kwargs: dict) -> Part:
    name, path = (options.parse(a) or (a, ())) if isinstance(a, str) else (a, ())
    p = Part(_place(who, f, name, args, kwargs), str(name), path)
    try:
        return p._replace(path=options.resolve(p.name, p.of(args, kwargs), path))
    except options.NoSuchPart as e:
        raise ArgumentError(f"{who}: argnums names `{a}` of `{name_of(f)}`, but {e}") from None


def _by_predicate(
    who: str, f: Callable, chooses: Callable, args: tuple, kwargs: dict
) -> Selected:
    names = _parameters(f)
    given: list = [(i, names[i] if i < len(names) else f"[{i}]", x) for i, x in enumerate(args)]
    given += [(n, n, x) for n, x in kwargs.items()]
    every = [Part(place, name, path) for place, name, x in given for path, _ in options.leaves(x)]
    chosen: dict[str, Part] = {}
    values: dict[str, Any] = {}
    for p in every:
        text, leaf = options.show(p.name, p.path), options.part(p.name, p.of(args, kwargs), p.path)
        if chooses(text, leaf):
            chosen[text], values[text] = p, leaf
    if not chosen:
        known = ", ".join([options.show(p.name, p.path) for p in every]) or "none"
        raise ArgumentError(
            f"{who}: argnums chooses nothing of the arguments of `{name_of(f)}`; there are {known}"
        )

    def call(new: Sequence) -> Any:
        return _call_with(f, args, kwargs, [chosen[t] for t in new[0]], list(new[0].values()))

    return Selected([values], True, call)


def _place(who, f, a, args, kwargs) -> int | str:
    """Where argument ``a`` was given: its position, or its name in the keywords."""
    if isinstance(a, int) and -len(args) <= a < len(args):
        return a % len(args)
    if a in kwargs:
        return a
    names = _parameters(f)
    if isinstance(a, str) and a in names and names.index(a) < len(args):
        return names.index(a)
    if isinstance(a, int) and 0 <= a < len(names) and names[a] in kwargs:
        return names[a]
    keywords = f" and the keywords {', '.join(sorted(kwargs))}" if kwargs else ""
    takes = f"; its parameters are {', '.join(names)}" if names else ""
    raise ArgumentError(
        f"{who}: argnums names argument {a!r}, but `{name_of(f)}` was called with {len(args)} "
        f"positional argument{'s' * (len(args) != 1)}{keywords}{takes}"
    )


def _parameters(f: Callable) -> list[str]:
    try:
        return list(inspect.signature(f).parameters)
    except (TypeError, ValueError):  # a builtin function: nothing is known
        return []


class Leaves(NamedTuple):
    """A container taken apart: which of its leaves carry derivatives."""

    leaves: list
    structure: tree.Structure
    active: list[int]

    @property
    def primals(self) -> list:
        return [self.leaves[i] for i in self.active]

    def rebuild(self, values: Sequence) -> Any:
        """The container with ``values`` at the active leaves."""
        if self.structure is tree.LEAF:
            return values[0] if values else self.leaves[0]
        leaves = list(self.leaves)
        for i, v in zip(self.active, values, strict=True):
            leaves[i] = v
        return tree.unflatten(self.structure, leaves)

    def only(self, values: Sequence) -> Any:
        """The container with ``values`` at the active leaves and None elsewhere."""
        if self.structure is tree.LEAF:
            return values[0] if values else None
        leaves: list[Any] = [None] * len(self.leaves)
        for i, v in zip(self.active, values, strict=True):
            leaves[i] = v
        return tree.unflatten(self.structure, leaves)


def open_argument(who: str, f: Callable, position: object, x: Any) -> Leaves:
    """Take one argument apart; a single integer becomes a float."""
    kind = type(x)
    if kind is float or kind is np.float64 or (kind is np.ndarray and x.dtype.kind in "fc"):
        return Leaves([x], tree.LEAF, [0])
    if isinstance(x, int) and not isinstance(x, bool | Enum):
        x = float(x)
    elif isinstance(x, np.integer):
        x = np.float64(x)
    elif _is_integer(x) and not np.shape(x):
        x = x * 1.0  # traced in another transform, where it was such an integer
    leaves, structure = tree.flatten(x)
    leaves = [plain(v) for v in leaves]
    active = [i for i, v in enumerate(leaves) if _carries(who, f, position, v)]
    if not active:
        other = hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray | np.generic | Tracer)
        cure = "functrans.numpy.from_dlpack(x)" if other else "x.astype(float)"
        cure = f"Pass floating-point values, for example {cure}"
        if structure is tree.LEAF and not other and not is_number(x):
            cure = ("Pass numbers, arrays, or lists, tuples, dicts or dataclasses of them; "
                    "ft.tree.register teaches transforms another container")
        raise NotDifferentiable(
            f"{who}: argument {position} of `{name_of(f)}` is {describe(x)}, which has nothing to "
            f"differentiate. {cure}."
        )
    return Leaves(leaves, structure, active)


def open_all(who: str, f: Callable, args: Sequence) -> list[Leaves | None]:
    """Arguments taken apart, None where one holds nothing to differentiate."""
    opened: list[Leaves | None] = []
    for i, x in enumerate(args):
        try:
            # beside others, one of NumPy's integers may be a place
            place = len(args) > 1 and (
                isinstance(x, np.integer) or (_is_integer(x) and not is_weak(x)))
            opened.append(None if place else open_argument(who, f, i, x))
        except NotDifferentiable:
            opened.append(None)
    if not args:
        raise ArgumentError(f"{who}: `{name_of(f)}` was given no arguments to differentiate")
    if not any(opened):
        raise NotDifferentiable(
            f"{who}: none of the arguments of `{name_of(f)}` is floating-point: "
            f"{', '.join(map(describe, args))}"
        )
    return opened


def _is_integer(x: Any) -> bool:
    return isinstance(x, Tracer) and x.dtype.kind in "iu"


def _carries(who, f, position, v) -> bool:
    if isinstance(v, float | complex):
        return True
    if not isinstance(v, np.ndarray | np.generic | Tracer):
        return False
    if v.dtype.kind in "OSUMm":
        raise ArgumentError(
            f"{who}: argument {position} of `{name_of(f)}` holds an array of dtype {v.dtype}; only "
            "numbers can be traced. Convert it, for example with x.astype(float)."
        )
    return inexact_dtype(v.dtype)


# Characters of a container that a message shows.
SHOWN = 400


def describe(x: Any) -> str:
    """``float64[3]`` for a value, the tree of them for a container, which is cut short if long."""
    leaves, structure = tree.flatten(x)
    if structure is tree.LEAF:
        x = leaves[0]
        if isinstance(x, np.ndarray | np.generic | Tracer):
            return repr(aval_of(x))
        return (
            f"{type(x).__name__} {x!r}"
            if isinstance(x, int | float | complex | str)
            else f"{type(x).__name__}"
        )
    shown = repr(tree.unflatten(structure, [_Text(describe(v)) for v in leaves]))
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}... of {len(leaves)} leaves"


class _Text(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def check_like(who: str, f: Callable, what: str, actual: Any, expected: Any) -> None:
    """``actual`` (a tangent or cotangent) has the structure, shapes and kinds of ``expected``."""
    ts, have = tree.flatten(actual)
    xs, structure = tree.flatten(expected)
    if have != structure and repr(have) != repr(structure):
        raise wrong_structure(who, f, what, actual, expected)
    for t, x in zip(ts, xs, strict=True):
        _check_leaf(who, f, what, plain(t), plain(x))


def wrong_structure(who: str, f: Callable, what: str, actual: Any, expected: Any) -> ArgumentError:
    """The error for a tangent or cotangent that does not nest as the value it belongs to."""
    return ArgumentError(
        f"{who}: {what} of `{name_of(f)}` must have the structure of {describe(expected)}, but "
        f"is {describe(actual)}"
    )


def _check_leaf(who: str, f: Callable, what: str, t: Any, x: Any) -> None:
    if not is_value(t):
        raise ArgumentError(
            f"{who}: {what} of `{name_of(f)}` must be an array, but is {describe(t)}"
        )
    if shape_of(t) != shape_of(x):
        raise ShapeError(
            f"{who}: {what} of `{name_of(f)}` must have shape {shape_of(x)}, but has {shape_of(t)}"
        )
    kind, has = aval_of(t).dtype.kind, aval_of(x).dtype.kind
    if kind == "c" and has != "c":
        raise ArgumentError(
            f"{who}: {what} of `{name_of(f)}` is complex, but the value it belongs to is real"
        )
    if kind in "OSUMm":
        raise ArgumentError(
            f"{who}: {what} of `{name_of(f)}` is {describe(t)}, which is not a number"
        )


def hand_out_all(
    xs: list, weak: bool = False, references: Callable[[Any], int] | None = None
) -> list:
    """Results as the caller sees them: numbers as Arrays that no one can change, all else as it is.

    ``xs`` itself is changed. An array is copied if anything but ``xs`` refers to it, or to what it
    is a view of; ``references`` says how many references belong to a caller that only reads it.
    ``weak``: Python's own numbers are left as they are.
    """
    for i in range(len(xs)):
        # the short way for what was computed last: two references, of the list and of the call
        if (type(xs[i]) is np.ndarray and xs[i].base is None and getrefcount(xs[i]) == 2
                and (not FREE_THREADED or is_exact(xs[i]))):
            xs[i].setflags(write=False)
            xs[i] = xs[i].view(Array)
        elif type(xs[i]) is np.float64:
            x = np.array(xs[i])
            x.setflags(write=False)
            xs[i] = x.view(Array)
        elif not (weak and type(xs[i]) in PYTHON_SCALARS):
            alone = is_alone(xs, i) or (
                references is not None and is_alone(xs, i, references(xs[i]))
            )
            xs[i] = _handed_out(xs[i], alone)
    return xs


def hand_out(x: Any) -> Any:
    """One such result."""
    xs = [x]
    del x
    return hand_out_all(xs)[0]


def hand_out_tree(x: Any) -> Any:
    """The same for every numeric leaf of a container."""
    xs, structure = tree.flatten(x)
    del x
    return tree.unflatten(structure, hand_out_all(xs))


def hand_out_fresh(x: np.ndarray) -> Array:
    """An ndarray that nobody else has, as the caller sees it."""
    x.setflags(write=False)
    return x.view(Array)


def is_alone(xs: list, i: int, references: int = 0) -> bool:
    """Whether the memory of an entry of a list can be reached from there alone."""
    # two references: that of the list, or of the view, and that of the call
    if type(xs[i]) not in _ARRAYS or getrefcount(xs[i]) > 2 + references or not is_exact(xs[i]):
        return False
    if xs[i].base is None:
        return True
    return (
        type(xs[i].base) in _ARRAYS and xs[i].base.base is None and getrefcount(xs[i].base) <= 2
        and is_exact(xs[i].base)
    )


_ARRAYS = (np.ndarray, Array)


def _handed_out(x: Any, alone: bool) -> Any:
    if isinstance(x, np.ndarray):
        if alone:
            if x.base is not None:
                x.base.setflags(write=False)
            x.setflags(write=False)
        elif changeable(x):
            x = frozen_copy(x)
        return x if type(x) is Array else x.view(Array)
    if isinstance(x, Tracer):
        require_open("a function", x)
        return x
    return wrap(x) if is_number(x) else x


def is_number(x: Any) -> bool:
    """Whether a transform can trace ``x``; a member of an enumeration is a name, not a number."""
    return isinstance(x, _NUMBERS) and not isinstance(x, _NAMES)


def is_value(x: Any) -> bool:
    """Whether ``x`` is a number or a truth value, traced or not."""
    return is_number(x) or isinstance(x, bool)


# Written out in a call, a union would be made anew at each.
_NUMBERS = (np.ndarray, Tracer, np.generic, int, float, complex)
_NAMES = (bool, Enum)
FLOAT = np.dtype(float)


def require_numbers(
    who: str, outs: Sequence, what: str = "a number", ended: bool = False
) -> None:
    """Raise unless every output leaf is a number or a boolean, and, unless they may have ``ended``,
    of no transform that has.
    """
    for x in outs:
        if not ended:
            require_open(who, x)
        if not (is_number(x) or isinstance(x, bool)) or getattr(x, "dtype", FLOAT).kind in "OSUMm":
            raise ArgumentError(f"{who} returned {describe(x)}, which is not {what}")


def require_open(who: str, x: Any) -> None:
    """Raise where a function returned a value of a transform that has ended."""
    if isinstance(x, Tracer) and x.owner.closed is True:
        raise x.owner.leaked(f"{who} returned")


def zeros_like(x: Any) -> np.ndarray:
    a = aval_of(x)
    return np.zeros(a.shape, a.dtype)
