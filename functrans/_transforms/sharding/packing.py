"""Functions as bytes for other processes: by name where they can be imported, else by value."""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Callable, Iterator
from inspect import getclosurevars
from types import CodeType, FunctionType, ModuleType
from typing import Any

from functrans._transforms.derived import ByValue, Derived, global_name
from functrans.errors import ArgumentError, name_of

# What pickle raises for what it cannot take; AttributeError for functions inside of functions.
UNPICKLABLE = (pickle.PicklingError, AttributeError, TypeError, NotImplementedError)


def packed(who: str, f: Callable, title: str, where: str) -> bytes:
    """``f`` for another process, ``where`` it is sent to."""
    try:
        return _dumps(f)
    except UNPICKLABLE as error:
        raise ArgumentError(
            f"{who}: `{title}` cannot be sent to a {where}: {_culprit(f, title)} does not pickle "
            f"({error}). Define functions at the top level of a module and pass what they need as "
            "arguments, or use a ThreadPoolExecutor."
        ) from error


@functools.lru_cache(16)
def unpacked(data: bytes) -> Callable:
    """The function of a pickle, the same one at each call."""
    return pickle.loads(data)


def _dumps(x: Any) -> bytes:
    file = io.BytesIO()
    _packer_of(_takes_values())(file).dump(x)
    return file.getvalue()


def _takes_values() -> ModuleType | None:
    """cloudpickle, which takes functions without a global name by value, or None."""
    try:
        import cloudpickle  # lazy: installed with dask, and not needed otherwise
    except ImportError:
        return None
    return cloudpickle


@functools.lru_cache(2)
def _packer_of(library: Any) -> type[pickle.Pickler]:
    base: Any = library.Pickler if library else pickle.Pickler

    class Packer(base):
        """Takes what transforms return, without a name that can be imported, by value."""

        def reducer_override(self, obj: Any) -> Any:
            by_value = _by_value(obj)
            if by_value is not None:
                return by_value()
            if library and type(obj) is CodeType:
                return _with_its_file(self, obj)
            return super().reducer_override(obj) if library else NotImplemented

    return Packer


# What cloudpickle calls the file of any code.
NO_FILE = "<dynamic-code>"


def _with_its_file(packer: Any, code: CodeType) -> Any:
    """The pickle of code, which keeps its file: errors name the user's line."""
    reduce = packer.dispatch_table.get(CodeType)
    if reduce is None:
        return NotImplemented
    make, args, *rest = reduce(code)
    return make, tuple([code.co_filename if x == NO_FILE else x for x in args]), *rest


def _by_value(x: Any) -> Callable[[], tuple] | None:
    if not isinstance(x, ByValue) and type(x) is not FunctionType:
        return None
    by_value = getattr(x, "by_value", None)
    importable = by_value is None or (x.__module__ != "__main__" and global_name(x))
    return None if importable else by_value


def _culprit(f: Any, title: str, seen: tuple = ()) -> str:
    """The innermost of what a function refers to that does not pickle."""
    for name, x in _parts(f):
        if any(x is s for s in seen):
            continue
        try:
            _dumps(x)
        except UNPICKLABLE:
            if callable(x):
                return _culprit(x, name, (*seen, f))
            return f"`{name}`, a {type(x).__name__} that `{title}` refers to,"
    return f"`{title}`"


def _parts(f: Any) -> Iterator[tuple[str, Any]]:
    """What the pickle of a function holds, by names for messages."""
    if isinstance(f, Derived) or (type(f) is FunctionType and hasattr(f, "by_value")):
        yield f.__name__, f.__wrapped__  # type: ignore[attr-defined]  # of what transforms return
    elif isinstance(f, functools.partial):
        for i, x in enumerate([f.func, *f.args, *f.keywords.values()]):
            yield (name_of(x) if callable(x) else f"argument {i - 1}"), x
    elif (owner := getattr(f, "__self__", None)) is not None:
        yield from owner._asdict().items() if hasattr(owner, "_asdict") else [("self", owner)]
    elif hasattr(f, "__code__") and _takes_values() is not None:
        variables = getclosurevars(f)
        yield from {**variables.nonlocals, **variables.globals}.items()
