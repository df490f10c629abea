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
import weakref
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from functrans import tree
from functrans._core.array import OPERATORS
from functrans._core.bind import Tracer
from functrans._core.patching import patched
from functrans._core.remedies import UNSEEN
from functrans._core.warned import at_users_lines
from functrans._core.writing import with_names
from functrans._transforms.callees import GIVEN, Callees, functions_of
from functrans._transforms.staging.libraries import package_of_code
from functrans._transforms.staging.names import codes_inside, names_read
from functrans.errors import ConcretizationError, ImmutableError, name_of, user_line

# NumPy's methods and functions that write into an array.
WRITERS = frozenset({
    "fill", "sort", "partition", "put", "copyto", "fill_diagonal", "put_along_axis", "place",
    "putmask", "setitem", "__setitem__", "shuffle",
    "patch",  # in a block of it, other people's functions may
    *[text.format(name) for text in ("i{}", "__i{}__") for name in OPERATORS],
})
# What NumPy's and SciPy's C code makes of an error of the function or value that it is given.
DISGUISES = (SystemError, ValueError)
# NumPy's ufuncs, with the number of their operands.
_OPERANDS = {name: f.nin for name, f in vars(np).items() if isinstance(f, np.ufunc)}
_writes: WeakKeyDictionary[types.CodeType, bool] = WeakKeyDictionary()
# Code that ``require_rebinding`` has let pass, by id: code objects are slow to hash.
_sums: WeakValueDictionary[int, types.CodeType] = WeakValueDictionary()


def follow(f: Callable, callees: Callees | None = None) -> Callable:
    """``f``, with names for the arrays it works on if it may write into them.

    In a block of ``functrans.patch`` any function may. Where it names what is not defined yet, it
    is looked at when it is called first.
    """
    if callees is None:
        if type(f) is types.FunctionType and _calls_numpy_alone(f, set()):
            return _followed_where_patched(f, False)
        callees = Callees(f)
    if any(_code_writes(g.__code__) for g in callees):
        return _followed(f)
    return _followed_where_patched(f, bool(callees.unknown)) if functions_of(f) else f


def _calls_numpy_alone(f: types.FunctionType, seen: set[int]) -> bool:
    """Whether ``f`` does not write, and no name in it can stand for a function that does.

    Most functions are so. Their code is read once, where what they may call is looked for at each
    transform. ``seen`` are functions that are known to be so if all others are.
    """
    seen.add(id(f))
    code = f.__code__
    key = id(code)
    known, names = _numpys.get(key, (None, None))
    if known is None or known() is not code:
        names = _own_names(code)
        _numpys[key] = weakref.ref(code, lambda _: _numpys.pop(key, None)), names
    if names is None or f.__dict__ or f.__defaults__ or f.__kwdefaults__:
        return False
    space = f.__globals__
    try:
        values = [c.cell_contents for c in f.__closure__ or ()]
        values += [space[name] if name in space else _BUILTINS[name] for name in names]
    except (KeyError, ValueError):  # not defined, or not set yet
        return False
    for v in values:
        kind = type(v)
        if kind is types.FunctionType:
            if id(v) not in seen and not _calls_numpy_alone(v, seen):
                return False
        elif kind not in _HARMLESS and not (kind is types.ModuleType and v.__name__ in _MODULES):
            return False
    return package_of_code(f) not in _MODULES


def _own_names(code: types.CodeType) -> frozenset[str] | None:
    """The globals that code names; None where it writes, or may come to functions otherwise."""
    names = names_read(code)
    others = names.modules or names.by_text or _code_writes(code)
    return None if others else names.globals


# By id, code that has been read: code objects are slow to hash.
_numpys: dict[int, tuple[weakref.ref[types.CodeType], frozenset[str] | None]] = {}
_BUILTINS = dict.fromkeys(vars(builtins))
# What is no function of the user's and leads to none.
_HARMLESS = frozenset({int, float, complex, str, bytes, bool, type(None), np.ndarray, np.ufunc,
                       types.BuiltinFunctionType})
_MODULES = frozenset({"functrans", "functrans.numpy", "math", "numpy", "scipy"})


def _followed(f: Callable) -> Callable:
    def followed(*args: Any, **kwargs: Any) -> Any:
        y = at_users_lines(_with_names, (f, args, kwargs), {})
        return y.current() if isinstance(y, Tracer) else tree.map(lambda v: v, y)

    return _like(f, followed)


def _told(f: Callable) -> Callable:
    """``f``, raising our error where NumPy's or SciPy's C code makes another one of it: "setting
    an array element with a sequence", "returned a result with an exception set".
    """
    def told(*args: Any, **kwargs: Any) -> Any:
        try:
            return f(*args, **kwargs)
        except DISGUISES as e:
            if isinstance(e.__cause__, ConcretizationError):
                raise e.__cause__ from None
            raise

    return _like(f, told)


def _followed_where_patched(f: Callable, later: bool) -> Callable:
    """``f``, and with names in a block; ``later``: it is looked at again at its first call."""
    call = None if later else f

    def followed(*args: Any, **kwargs: Any) -> Any:
        nonlocal call
        if patched.get():
            return _followed(f)(*args, **kwargs)
        if call is None:
            call = _followed(f) if may_write(f) else f
        try:
            return at_users_lines(call, args, kwargs)
        except DISGUISES as e:  # as ``_told`` does, without a frame of its own
            if isinstance(e.__cause__, ConcretizationError):
                raise e.__cause__ from None
            raise

    return _like(f, followed)


def _like(f: Callable, followed: Callable) -> Callable:
    followed = functools.wraps(f, updated=())(followed)
    followed.__name__ = name_of(f)
    return followed


_with_names = _told(with_names)


def may_write(f: Any) -> bool:
    """Whether it can be seen that a function may write into arrays."""
    return any(_code_writes(g.__code__) for g in Callees(f))


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
    GIVEN.add(f.__code__)
    _numpys.pop(id(f.__code__), None)


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for c in codes_inside(code):
        yield from _nested(c)


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
           for i in steps) or _passes_out(steps):
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


def _passes_out(steps: list[dis.Instruction]) -> bool:
    """Whether a ufunc is called with more arguments than it has operands: the next is ``out``."""
    named = [i for i in steps if i.opname.startswith("LOAD_") and type(i.argval) is str]
    if not any([i.argval in _OPERANDS for i in named]):
        return False
    spans = {_span(i): i.argval for i in named}
    for call in steps:
        count = call.arg or 0
        if call.opname in ("CALL", "CALL_KW") and count > 1:
            # what is called begins where the call does, and is the longest that does
            begin, end = _span(call)
            callee = max([s for s in spans if s[0] == begin and s[1] < end], default=None)
            if callee is not None and count > _OPERANDS.get(spans[callee], count):
                return True
    return False


def _span(i: dis.Instruction) -> tuple[tuple, tuple]:
    """Where the text of an instruction begins and ends."""
    at = i.positions
    if at is None or at.end_col_offset is None:
        return (), ()
    return (at.lineno, at.col_offset), (at.end_lineno, at.end_col_offset)


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
