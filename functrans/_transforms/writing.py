"""Which functions write into arrays: those are run with names for them (``_core/writing.py``).

Names take time, so that a function gets them only where it can be seen that it, or a function that
it names, may write: into items or attributes, by ``+=``, by a method or a function that does.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from functrans import tree
from functrans._core.bind import Tracer
from functrans._core.writing import with_names

# NumPy's methods and functions that write into an array.
WRITERS = frozenset({
    "fill", "sort", "partition", "put", "copyto", "fill_diagonal", "put_along_axis", "place",
    "putmask", "out",
})
LIBRARIES = frozenset({"functrans", "numpy", "scipy"})
_writes: WeakKeyDictionary[types.CodeType, bool] = WeakKeyDictionary()


def follow(f: Callable) -> Callable:
    """``f``, with names for the arrays it works on if it may write into them."""
    if not may_write(f):
        return f

    @functools.wraps(f, updated=())
    def followed(*args: Any, **kwargs: Any) -> Any:
        y = with_names(f, args, kwargs)
        return y.current() if isinstance(y, Tracer) else tree.map(lambda v: v, y)

    return followed


def may_write(f: Any) -> bool:
    """Whether a function that knows ``functrans.numpy`` may write into arrays."""
    function = _function_of(f)
    if function is None or not _knows_us(function):
        return False
    return any(map(_code_writes, _codes(function)))


def _function_of(f: Any) -> types.FunctionType | None:
    """The Python function behind a partial, a method or an object that is called."""
    for _ in range(64):
        if isinstance(f, types.FunctionType):
            if f.__globals__.get("__name__", "").split(".")[0] in LIBRARIES:
                return None  # transforms follow what they call themselves
            if not hasattr(f, "__wrapped__"):
                return f
            f = f.__wrapped__
        elif isinstance(f, functools.partial):
            f = f.func
        elif isinstance(f, types.MethodType):
            f = f.__func__
        elif isinstance(f, type) or not callable(f):
            return None
        else:
            f = getattr(type(f), "__call__", None)
    return None


def _knows_us(function: types.FunctionType) -> bool:
    """Whether its module, or its closure, has ``functrans.numpy`` under some name."""
    seen = [*function.__globals__.values(), *_cells(function)]
    return any(isinstance(v, types.ModuleType) and v.__name__ == "functrans.numpy" for v in seen)


def _cells(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not yet assigned
            continue


def _codes(function: types.FunctionType) -> Iterator[types.CodeType]:
    """The code of a function and of those that it names, as far as they can be seen."""
    seen: set[int] = set()
    rest: list[Any] = [function]
    while rest:
        f = _function_of(rest.pop())
        if f is None or id(f.__code__) in seen:
            continue
        seen.add(id(f.__code__))
        yield f.__code__
        rest += _cells(f)
        names = {n for c in _nested(f.__code__) for n in c.co_names}
        named = [f.__globals__[n] for n in names if n in f.__globals__]
        rest += [v for v in named if callable(v) and not isinstance(v, type)]
        kinds = [v if isinstance(v, type) else type(v) for v in (*named, *_cells(f))]
        for kind in kinds:
            if kind.__module__ == f.__module__:
                rest += [m for m in vars(kind).values() if isinstance(m, types.FunctionType)]


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield from _nested(c)


def _code_writes(code: types.CodeType) -> bool:
    known = _writes.get(code)
    if known is None:
        known = _writes[code] = any(map(_instructions_write, _nested(code)))
    return known


def _instructions_write(code: types.CodeType) -> bool:
    names = {*code.co_names, *[n for c in code.co_consts if isinstance(c, tuple) for n in c
                               if isinstance(n, str)]}
    if names & WRITERS:
        return True
    return any(
        i.opname in ("STORE_SUBSCR", "STORE_SLICE")
        or (i.opname == "BINARY_OP" and i.argrepr.endswith("="))
        for i in dis.get_instructions(code)
    )


__all__ = ["follow", "may_write"]
