"""Which functions write into arrays: those are run with names for them (``_core/writing.py``).

Names take time, so that a function gets them only where it can be seen that it, or a function that
it names, may write: into items or attributes, by ``+=``, by a method or a function that does.
"""

from __future__ import annotations

import builtins
import dis
import functools
import itertools
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from weakref import ProxyTypes as PROXIES
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from functrans import tree
from functrans._core.bind import UNSEEN, Tracer
from functrans._core.writing import patched, with_names
from functrans._transforms.staging.libraries import is_library
from functrans._transforms.staging.names import ANNOTATE, codes_inside
from functrans.errors import ConcretizationError, ImmutableError, name_of, user_line

# NumPy's methods and functions that write into an array.
WRITERS = frozenset({
    "fill", "sort", "partition", "put", "copyto", "fill_diagonal", "put_along_axis", "place",
    "putmask", "setitem", "__setitem__",
    "patch",  # in a block of it, other people's functions may
})
# SciPy's functions that make another error of one of the function that they are given.
SOLVERS = frozenset({"minimize"})
LIBRARIES = frozenset({"builtins", "functools", "functrans", "numpy", "scipy", "types"})
_BUILTINS = frozenset(vars(builtins))
_PLAIN = frozenset({int, float, complex, str, bytes, bool, type(None), np.ndarray})
# How many values near a function are looked at for functions that write.
_MOST = 500
_LEADING = (dict, list, tuple, set, frozenset, type, functools.partial, types.FunctionType,
            types.MethodType)
_writes: WeakKeyDictionary[types.CodeType, bool] = WeakKeyDictionary()
# Code that ``require_rebinding`` has let pass, by id: code objects are slow to hash.
_sums: WeakValueDictionary[int, types.CodeType] = WeakValueDictionary()
_reads: WeakKeyDictionary[types.CodeType, frozenset[str]] = WeakKeyDictionary()


def follow(f: Callable) -> Callable:
    """``f``, with names for the arrays it works on if it may write into them.

    In a block of ``functrans.patch`` any function may. Where it names what is not defined yet, it
    is looked at when it is called first.
    """
    unknown: list[str] = []
    codes = list(_codes(f, unknown))
    if any(map(_code_writes, codes)):
        return _followed(f)
    if _function_of(f) is None:
        return f
    told = _told(f) if any(map(_calls_solver, codes)) else f
    return _followed_where_patched(told, bool(unknown))


def _followed(f: Callable) -> Callable:
    def followed(*args: Any, **kwargs: Any) -> Any:
        y = _with_names(f, args, kwargs)
        return y.current() if isinstance(y, Tracer) else tree.map(lambda v: v, y)

    return _like(f, followed)


def _told(f: Callable) -> Callable:
    """``f``, raising our error where NumPy's or SciPy's C code makes another one of it: "setting
    an array element with a sequence", "returned a result with an exception set".
    """
    def told(*args: Any, **kwargs: Any) -> Any:
        try:
            return f(*args, **kwargs)
        except (SystemError, ValueError) as e:
            if isinstance(e.__cause__, ConcretizationError):
                raise e.__cause__ from None
            raise

    return _like(f, told)


def _calls_solver(code: types.CodeType) -> bool:
    return any([not SOLVERS.isdisjoint(c.co_names) for c in _nested(code)])


def _followed_where_patched(f: Callable, later: bool) -> Callable:
    """``f``, and with names in a block; ``later``: it is looked at again at its first call."""
    call = None if later else f

    def followed(*args: Any, **kwargs: Any) -> Any:
        nonlocal call
        if patched.get():
            return _followed(f)(*args, **kwargs)
        if call is None:
            call = _followed(f) if may_write(f) else f
        return call(*args, **kwargs)

    return _like(f, followed)


def _like(f: Callable, followed: Callable) -> Callable:
    followed = functools.wraps(f, updated=())(followed)
    followed.__name__ = name_of(f)
    return followed


_with_names = _told(with_names)


def may_write(f: Any, unknown: list[str] | None = None) -> bool:
    """Whether it can be seen that a function may write into arrays.

    What it names that is not defined yet comes to ``unknown``.
    """
    return any(map(_code_writes, _codes(f, [] if unknown is None else unknown)))


def require_rebinding(frame: types.FrameType) -> None:
    """Raise where ``y += v`` on a traced array, which makes a new one, would have to write.

    That is in functions that write and that no transform has seen.
    """
    code = frame.f_code
    if _sums.get(id(code)) is code:
        return
    own = frame.f_globals.get("__name__", "").partition(".")[0] == "functrans"
    if not own and _code_writes(code):
        raise ImmutableError(
            f"{user_line()}: a traced array would become another one here, where NumPy writes into "
            f"it and all its names and views see that: {UNSEEN}. Write y = y + v for y += v where "
            "no one else has y, or run this in a block of `functrans.patch()`."
        )
    _sums[id(code)] = code


def follow_always(f: Any) -> None:
    """Have ``f`` followed, and what names it, though its code shows no writes."""
    _writes[f.__code__] = True


def _function_of(f: Any) -> types.FunctionType | None:
    """The Python function behind a partial, a method or an object that is called."""
    for _ in range(64):
        if isinstance(f, types.FunctionType):
            if _writes.get(f.__code__):
                return f
            if f.__globals__.get("__name__", "").split(".")[0] in LIBRARIES:
                return None  # transforms follow what they call themselves
            wrapped = vars(f).get("__wrapped__")
            if wrapped is None:
                return f
            f = wrapped
        elif isinstance(f, functools.partial):
            f = f.func
        elif isinstance(f, types.MethodType):
            f = f.__func__
        elif isinstance(f, type) or not callable(f):
            return None
        else:
            f = type(f).__call__
    return None


def _cells(function: types.FunctionType, unknown: list[str]) -> Iterator[Any]:
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        try:
            yield cell.cell_contents
        except ValueError:
            unknown.append(name)


def _codes(function: Any, unknown: list[str]) -> Iterator[types.CodeType]:
    """The code of a function and of those that it names, as far as they can be seen."""
    seen: set[int] = set()
    rest: list[Any] = [function]
    while rest:
        f = _function_of(named := rest.pop())
        if f is None or id(f.__code__) in seen:
            continue
        seen.add(id(f.__code__))
        yield f.__code__
        values = [*_cells(f, unknown), *_globals(f, unknown), *_bound(named), *_bound(f)]
        values.append(getattr(named, "__self__", named))
        for v in _within(values, seen):
            if callable(v) and not isinstance(v, type):
                rest.append(v)
            kind = v if isinstance(v, type) else type(v)
            if id(kind) not in seen or kind is v:
                seen.add(id(kind))
                rest += _methods(kind)


def _bound(f: Any) -> list[Any]:
    """What a partial holds for its function, and the defaults of a function."""
    if isinstance(f, functools.partial):
        return [*f.args, *f.keywords.values()]
    if isinstance(f, types.FunctionType):
        return [*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()]
    return []


def _within(values: list[Any], seen: set[int]) -> Iterator[Any]:
    """Values, and what is in containers and attributes of the user's objects, up to a number.

    What was ``seen`` is left out.
    """
    rest = list(values)
    for _ in range(_MOST):
        while rest and id(rest[-1]) in seen:
            rest.pop()
        if not rest:
            return
        v = rest.pop()
        seen.add(id(v))
        yield v
        rest += [x for x in _parts(v) if not _is_closed(type(x))]


@functools.lru_cache(4096)
def _is_closed(kind: type) -> bool:
    """Whether values of a type lead to no function of the user's: numbers, rows, ufuncs."""
    if kind in _PLAIN or kind in PROXIES:
        return True
    return not issubclass(kind, _LEADING) and all(
        [k.__module__.split(".")[0] in LIBRARIES for k in kind.__mro__]
    )


def _parts(v: Any) -> Iterable[Any]:
    if isinstance(v, dict):
        return v.values()
    if isinstance(v, list | tuple | set | frozenset):
        return v
    package = type(v).__module__.split(".")[0]
    if package in LIBRARIES or isinstance(v, type) or is_library(package, frozenset()):
        return ()
    attributes = getattr(v, "__dict__", None)
    return attributes.values() if isinstance(attributes, dict) else ()


def _globals(f: types.FunctionType, unknown: list[str]) -> Iterator[Any]:
    """What a function names, also in modules of the user's."""
    names = {n for c in _nested(f.__code__) for n in c.co_names}
    for n in names:
        if n not in f.__globals__:
            if n not in _BUILTINS and n in _names_read(f.__code__):
                unknown.append(n)
            continue
        v = f.__globals__[n]
        if isinstance(v, types.ModuleType) and v.__name__.split(".")[0] not in LIBRARIES:
            yield from [vars(v)[n] for n in names if n in vars(v)]
        else:
            yield v


def _methods(kind: type) -> list[types.FunctionType]:
    """The methods of a class of the user's."""
    own = [k for k in kind.__mro__ if k.__module__.split(".")[0] not in LIBRARIES]
    return [m for k in own for m in vars(k).values()
            if isinstance(m, types.FunctionType) and m.__name__ != ANNOTATE]


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for c in codes_inside(code):
        yield from _nested(c)


def _names_read(code: types.CodeType) -> frozenset[str]:
    """The global names that a function reads; its other names are those of attributes."""
    known = _reads.get(code)
    if known is None:
        steps = [i for c in _nested(code) for i in dis.get_instructions(c)]
        known = _reads[code] = frozenset(
            [i.argval for i in steps if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
        )
    return known


def _code_writes(code: types.CodeType) -> bool:
    known = _writes.get(code)
    if known is None:
        known = _writes[code] = any(map(_instructions_write, _nested(code)))
    return known


def _instructions_write(code: types.CodeType) -> bool:
    texts = [c for group in code.co_consts if isinstance(group, tuple) for c in group]
    if not WRITERS.isdisjoint(code.co_names) or "out" in texts:
        return True
    steps = list(dis.get_instructions(code))
    if any(i.opname in ("STORE_SUBSCR", "STORE_SLICE") or _calls_at(i) or _sets(i)
           for i in steps):
        return True
    changed = {
        (b.opname, b.argval) for a, b in itertools.pairwise(steps)
        if a.opname == "BINARY_OP" and a.argrepr.endswith("=")
    }
    return any(not _is_sum(name, steps) for name in changed)


def _sets(i: dis.Instruction) -> bool:
    """Whether an attribute is set that stands for the entries of an array."""
    return i.opname == "STORE_ATTR" and i.argval in ("flat", "imag", "real", "shape")


def _calls_at(i: dis.Instruction) -> bool:
    """Whether ``at`` is called, as of a ufunc, and not indexed, as in ``x.at[i]``."""
    attribute = i.opname == "LOAD_ATTR" and sys.version_info >= (3, 12)  # methods have a mark since
    method = i.opname == "LOAD_METHOD" or (attribute and bool((i.arg or 0) & 1))
    return method and "at" in i.argrepr.replace("NULL|self + ", "").split()


def _is_sum(name: tuple[str, Any], steps: list[dis.Instruction]) -> bool:
    """Whether all that a variable is ever set to are constants and what ``+=`` makes of them, and
    until the last ``+=`` it is only an operand.

    The first array that comes of it is its own, and nobody else has it while it changes.
    """
    before = [a for a, b in itertools.pairwise(steps) if (b.opname, b.argval) == name]
    starts = [a for a in before if not (a.opname == "BINARY_OP" and a.argrepr.endswith("="))]
    return name[0] == "STORE_FAST" and bool(starts) and all([
        a.opname == "LOAD_CONST" and isinstance(a.argval, int | float | complex) for a in starts
    ]) and not _kept_before_last(name[1], steps)


def _kept_before_last(name: str, steps: list[dis.Instruction]) -> bool:
    """Whether a variable is read as more than an operand before it is set last, in loops too."""
    last = max([i.offset for i in steps if i.opname == "STORE_FAST" and i.argval == name])
    for i in steps:  # in the order of the code, so that a loop inside of another comes first
        if i.opname.startswith("JUMP_BACKWARD") and i.argval <= last:
            last = max(last, i.offset)
    operands = {end for i in steps if i.opname in ("BINARY_OP", "COMPARE_OP") for end in _ends(i)}
    return any([
        i.offset < last and i.opname.startswith("LOAD_FAST") and name in i.argrepr.split(", ")
        and operands.isdisjoint(_ends(i)) for i in steps
    ])


def _ends(i: dis.Instruction) -> set[tuple]:
    """Where the text of an instruction begins and ends, as far as that is known."""
    at = i.positions
    if at is None or at.col_offset is None or at.end_col_offset is None:
        return set()
    return {("begin", at.lineno, at.col_offset), ("end", at.end_lineno, at.end_col_offset)}


__all__ = ["follow", "follow_always", "may_write", "require_rebinding"]
