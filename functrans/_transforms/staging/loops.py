"""Loops of the user's that are staged as loops: the hooks of rewritten functions.

The body of an outermost loop runs once, on ``BodyValue``s, and the statements that it leaves are
one equation, a ``Nest``. Nothing that it does to Python's own objects happens: before it would,
``WrittenOut`` is raised, what was staged is dropped, and Python runs that loop pass by pass, as it
does where the source is not there. Where a comparison of indices holds in some passes only, the
loop is cut there.

    begin a pass: each name that the body assigns is
        an integer that goes up by a constant      an IndexValue
        a number or array that a pass may read     what its buffer holds
        otherwise                                  without a value
    end it: the buffers are given what the names are then
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakSet

import numpy as np

from functrans._core.bind import Tracer
from functrans._core.writing import hand
from functrans._transforms.derived import Derived
from functrans._transforms.mutation import like_code
from functrans._transforms.staging.code_loops import has_loop, may_loop
from functrans._transforms.staging.loops_body import (
    UNSET,
    Loops,
    branches,
    nest_for,
    nest_while,
    outermost,
)
from functrans._transforms.staging.loops_index import Condition, IndexValue, WrittenOut, building
from functrans._transforms.staging.loops_numpy import (
    FUNCTIONS,
    Counter,
    call_known,
    counter_of,
    counter_of_call,
    holds_ours,
    is_ours,
    is_pure,
    name_in_numpy,
)
from functrans._transforms.staging.loops_source import HOOKS, LoopName, rewritten_code
from functrans._transforms.staging.loops_values import BodyValue, Builder
from functrans._transforms.staging.names import is_library, package_of_code
from functrans._transforms.staging.staging import writing
from functrans.errors import user_line

# Passes, of nested loops together, above which a loop is staged as one.
MANY = 64

_loops: ContextVar[Loops | None] = ContextVar("loops", default=None)


@contextmanager
def looking(notes: Loops) -> Iterator[None]:
    """A block in which loops of rewritten functions may be staged as loops."""
    token = _loops.set(notes)
    try:
        yield
    finally:
        _loops.reset(token)


# ---- Functions with hooks


def with_hooks(f: Any, own: frozenset[str]) -> Callable:
    """``f``, its loops rewritten, or those of the function that a transform was given."""
    if isinstance(f, Derived):
        transform, args, kwargs = f.origin
        inner = args[0] if args else kwargs.get("f")
        if getattr(transform, "__name__", "") == "jit" or not callable(inner):
            return f  # it stages on its own
        new = with_hooks(inner, own)
        if new is inner:
            return f
        return transform(new, *args[1:], **kwargs) if args else transform(**{**kwargs, "f": new})
    if type(f) is functools.partial:
        new = with_hooks(f.func, own)
        return f if new is f.func else functools.partial(new, *f.args, **f.keywords)
    if type(f) is MethodType:
        new = with_hooks(f.__func__, own)
        return f if new is f.__func__ else MethodType(new, f.__self__)
    return _add_hooks(f, own) if type(f) is FunctionType and may_loop(f) else f


def _add_hooks(f: FunctionType, own: frozenset[str], depth: int = 0) -> FunctionType:
    """The function with hooks, itself if it has some or cannot have any."""
    if HOOKS in f.__code__.co_freevars or is_library(package_of_code(f), own):
        return f
    notes = _loops.get()
    code = rewritten_code(f, depth)
    if isinstance(code, str):
        if notes is not None and has_loop(f.__code__):
            line = f"{f.__code__.co_filename}:{f.__code__.co_firstlineno}"
            notes.note(line, f"`{f.__name__}` is run by Python: {code}")
        return f
    like_code(code, f.__code__)
    if not depth:
        _outside.add(code)
    cells = dict(zip(f.__code__.co_freevars, f.__closure__ or (), strict=True))
    closure = tuple([_CELL if name == HOOKS else cells[name] for name in code.co_freevars])
    made = FunctionType(code, f.__globals__, f.__name__, f.__defaults__, closure)
    made.__kwdefaults__, made.__module__ = f.__kwdefaults__, f.__module__
    made.__qualname__, made.__doc__ = f.__qualname__, f.__doc__
    made.__dict__.update(f.__dict__)
    return made


# Code whose statements outside of loops have no hooks: loops that are staged do not call it.
_outside: WeakSet[CodeType] = WeakSet()


def _cell(x: Any) -> Any:
    return (lambda: x).__closure__[0]  # type: ignore[index]


_CELL = _cell(sys.modules[__name__])


# ---- Hooks of expressions: what Python does, unless a loop is being staged


def get(f: Callable) -> object:
    """The value of a name, or the mark that it has none."""
    try:
        return f()
    except NameError:
        return UNSET


def effect() -> None:
    """Before something happens to Python's own objects."""
    if building.get() is not None:
        raise WrittenOut("this statement does something to Python's own objects")


def python(why: str) -> None:
    """Before a loop that is Python's."""
    if building.get() is not None:
        raise WrittenOut(why)
    if (notes := _loops.get()) is not None:
        notes.note(user_line(), f"run by Python: {why}")


def text(x: Any) -> object:
    effect()
    return x


def load(x: Any) -> object:
    """A value that is read."""
    b = building.get()
    if b is None or is_ours(x):
        return x
    if isinstance(x, np.ndarray | Tracer):
        return b.outside(x)
    if _is_opaque(type(x)):
        raise WrittenOut(f"a {type(x).__name__} may do anything")
    return x


_OPERATORS = frozenset({f"__{way}{name}__" for name in (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "getitem", "lt", "le",
    "gt", "ge", "bool", "iter", "next", "getattr", "getattribute") for way in ("", "r", "i")})


@functools.lru_cache(4096)
def _is_opaque(kind: type) -> bool:
    """Whether what operators do with an object is its author's."""
    known = np.generic, np.ufunc, Counter
    if kind.__module__ in ("builtins", "functools") or (
            issubclass(kind, known) and kind.__module__ in ("numpy", __name__)):
        return kind.__name__ == "generator"
    return any([name in vars(k) for k in kind.__mro__[:-1] for name in _OPERATORS])


def value(x: Any) -> object:
    """A value that gets a name."""
    b = building.get()
    return x if b is None else b.keep(x)


def before_add(x: Any) -> object:
    """A value before ``+=``."""
    b = building.get()
    if b is None or is_ours(x):
        return x
    if isinstance(x, Tracer) or (isinstance(x, np.ndarray) and x.ndim):
        return b.outside(x)
    if isinstance(x, bool | int | float | complex | str | tuple | np.generic):
        return x
    raise WrittenOut(f"`+=` of a {type(x).__name__}")


def target(x: Any) -> object:
    """An array before an item is assigned."""
    b = building.get()
    if b is None or isinstance(x, BodyValue):
        return x
    if isinstance(x, np.ndarray | Tracer):
        return b.outside(x)
    raise WrittenOut(f"an item of a {type(x).__name__} is assigned")


def owner(x: Any) -> object:
    """An object before an attribute is set."""
    if building.get() is not None:
        raise WrittenOut("an attribute is assigned")
    return x


def attribute(x: Any, name: str) -> object:
    b = building.get()
    if b is None or isinstance(x, BodyValue):
        return getattr(x, name)
    if isinstance(x, IndexValue | Condition):
        raise WrittenOut(f"`{name}` of an index")
    if not isinstance(x, ModuleType):
        for k in type(x).__mro__:
            if name in vars(k):
                found = vars(k)[name]
                if hasattr(type(found), "__get__") and not isinstance(
                        found, FunctionType | staticmethod | classmethod) and (
                        k.__module__ not in ("builtins", "numpy")) and hasattr(found, "fget"):
                    raise WrittenOut(f"the property `{name}` is read")
                break
    return load(getattr(x, name))


def and_(x: Any, rest: Callable) -> object:
    if isinstance(x, BodyValue) and not x.ndim:
        return x.owner.apply(np.logical_and, x, rest())
    return x and rest()


def or_(x: Any, rest: Callable) -> object:
    if isinstance(x, BodyValue) and not x.ndim:
        return x.owner.apply(np.logical_or, x, rest())
    return x or rest()


def not_(x: Any) -> object:
    if isinstance(x, BodyValue) and not x.ndim:
        return x.owner.apply(np.logical_not, x)
    if isinstance(x, Condition):
        return Condition(*x.forms, negated=not x.negated)
    return not x


def choose(test: Any, then: Callable, orelse: Callable) -> object:
    """``then() if test else orelse()``"""
    b = building.get()
    if isinstance(test, IndexValue):
        test = test != 0
    if b is None or not isinstance(test, BodyValue | Condition):
        return then() if test else orelse()
    (y,) = branches(b, test, lambda _: (value(then()),), lambda _: (value(orelse()),), (UNSET,),
                    ("a value",))
    return y


def if_(test: Any, then: Callable, orelse: Callable, state: tuple, about: tuple) -> tuple:
    """The values of names after an ``if``."""
    b = building.get()
    if isinstance(test, IndexValue):
        test = test != 0
    if b is None or not isinstance(test, BodyValue | Condition):
        return then(*state) if test else orelse(*state)
    return branches(b, test, then, orelse, state, about)


def items(f: Callable, *args: Any, **kwargs: Any) -> object:
    """What ``range``, ``zip``, ``enumerate`` or ``reversed`` gives a loop."""
    b = building.get()
    if _loops.get() is None or f not in (range, zip, enumerate, reversed) or kwargs.keys() - {
            "strict"}:
        return callee(f)(*args, **kwargs)
    try:
        counter = counter_of_call(b, f, args)
    except WrittenOut:
        if b is not None:
            raise
        counter = None
    return f(*args, **kwargs) if counter is None else counter


# ---- Calls


def callee(f: Any) -> Callable:
    """What is called in the place of ``f``."""
    notes = _loops.get()
    if notes is None:
        return f
    b = building.get()
    if b is not None:
        return functools.partial(_call, b, f)
    if type(f) is MethodType and type(f.__func__) is FunctionType:
        new = _hooked_callee(f.__func__, notes)
        return f if new is f.__func__ else MethodType(new, f.__self__)
    if isinstance(f, Derived):  # a gradient that was made outside
        if id(f) not in notes.functions:
            notes.functions[id(f)] = f, with_hooks(f, notes.homes)
        return notes.functions[id(f)][1]
    if type(f) is not FunctionType:
        return f
    transforms = str(f.__module__).startswith(_TRANSFORMS)
    return functools.partial(_transform, notes, f) if transforms else _hooked_callee(f, notes)


# Modules whose functions call those that they are given.
_TRANSFORMS = tuple([f"functrans._transforms.{name}" for name in (
    "forward", "reverse", "matrices", "control", "vmap")])


def _transform(notes: Loops, f: FunctionType, *args: Any, **kwargs: Any) -> object:
    """A call of a transform, whose functions get hooks."""
    def with_loops(x: Any) -> Any:
        if type(x) is FunctionType and not is_library(package_of_code(x), notes.homes):
            return _hooked_callee(x, notes)
        return x

    y = f(*map(with_loops, args), **{k: with_loops(x) for k, x in kwargs.items()})
    return hand(y, not getattr(f, "hands_on", False))


def _hooked_callee(f: FunctionType, notes: Loops) -> FunctionType:
    if HOOKS in f.__code__.co_freevars:
        return f
    known = notes.functions.get(id(f))
    if known is None:
        new = _add_hooks(f, notes.homes) if may_loop(f) else f
        known = notes.functions[id(f)] = f, new
    return known[1]


def _call(b: Builder, f: Any, *args: Any, **kwargs: Any) -> object:
    """A call from the body of a loop that is staged."""
    while type(f) is functools.partial:
        f, args, kwargs = f.func, (*f.args, *args), {**f.keywords, **kwargs}
    if type(f) is MethodType:
        if isinstance(f.__self__, BodyValue):
            return f(*args, **kwargs)
        f, args = f.__func__, (f.__self__, *args)
    if type(f) is FunctionType and not is_library(package_of_code(f), b.homes):
        new = _add_hooks(f, b.homes, 1)
        if HOOKS not in new.__code__.co_freevars or new.__code__ in _outside:
            raise WrittenOut(f"`{f.__name__}` is called, whose source is not there")
        return new(*map(b.keep, args), **{k: b.keep(v) for k, v in kwargs.items()})
    if holds_ours(args) or holds_ours(kwargs) or name_in_numpy(f) in FUNCTIONS:
        y = call_known(b, f, args, kwargs)
        if y is not NotImplemented:
            return y
    elif is_pure(f, args, kwargs):
        return f(*args, **kwargs)
    name = getattr(f, "__name__", type(f).__name__)
    raise WrittenOut(f"`{name}` is called, of which it is not known what else it does")


# ---- Loops


def for_(iterable: Any, body: Callable, state: tuple, about: tuple) -> tuple:
    """The values of names after a ``for``."""
    names, depth = [LoopName(*n) for n in about[0]], about[1]
    b, notes = building.get(), _loops.get()
    if b is not None:
        counter = counter_of(b, iterable)
        if counter is not None and body.__code__ not in b.written_out:
            return nest_for(b, counter, body, state, names)
        if counter is None and not isinstance(
                iterable, list | tuple | str | dict | zip | enumerate):
            raise WrittenOut(f"a loop goes through a {type(iterable).__name__}")
    elif notes is not None and writing():
        found = _staged_for(notes, iterable, body, state, names, depth)
        if found is not None:
            return found
    for x in iterable:
        state = body(x, *state)
    return state


def _staged_for(notes: Loops, iterable: Any, body: Callable, state: tuple,
                names: list[LoopName], depth: int) -> tuple | None:
    """A loop that is in no other; None: Python runs it."""
    line = user_line()
    counter = counter_of(None, iterable)
    if counter is None:
        notes.note(line, f"run by Python: it goes through a {type(iterable).__name__}")
        return None
    passes = (counter.high - counter.low).c
    if passes < 1 or passes**depth <= MANY:
        notes.note(line, f"written out: it has {passes} passes")
        return None
    return outermost(notes, body, lambda b: nest_for(b, counter, body, state, names), state, names)


def while_(test: Callable, body: Callable, state: tuple, about: tuple) -> tuple:
    """The values of names after a ``while``."""
    names = [LoopName(*n) for n in about[0]]
    b, notes = building.get(), _loops.get()
    if b is not None:
        return nest_while(b, test, body, state, names)
    if notes is not None and writing():
        found = outermost(notes, body, lambda b: nest_while(b, test, body, state, names), state,
                          names)
        if found is not None:
            return found
    while test(*state):
        state = body(*state)
    return state
