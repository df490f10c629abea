"""How callers reach the functions of this package, and what they ask the kind of a value by."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from functrans import tree
from functrans._core.array import Array, frozen_copy, wrap
from functrans._core.bind import AnyArray, Tracer
from functrans._core.writing import current, install, writing
from functrans.numpy import protocols
from functrans.numpy.functionalized import adopt, call
from functrans.numpy.writable import Fixed, Writable, argument, part_of
from functrans.numpy.writable import named as as_name

# ---- How callers reach the functions of this package: by name, as methods, through NumPy's own

F = TypeVar("F", bound=Callable)
# What a ufunc has beside being called; NumPy passes the methods on where an operand is traced.
UFUNC_ATTRIBUTES = (
    "accumulate", "at", "identity", "nargs", "nin", "nout", "outer", "reduce", "reduceat",
    "resolve_dtypes", "signature", "types",
)
# What memory happens to hold would be constants of a program, others each time it is staged.
_DEFINITE: dict[Any, Callable] = {np.empty: np.zeros, np.empty_like: np.zeros_like}


def public(f: Callable, theirs: Any = None) -> Callable:
    """``f``, returning Arrays where its results are plain ndarrays.

    They can be written to where NumPy's can; in a function that is followed writing, by name.
    """

    @functools.wraps(f)
    def named(*args: Any, **kwargs: Any) -> Any:
        if writing.get():
            return call(_DEFINITE.get(theirs, f), theirs, args, kwargs)
        out = f(*args, **kwargs)
        if isinstance(out, _NUMERIC):
            return _as_array(out)
        if isinstance(out, _SEVERAL):
            parts = [_as_array(x) if isinstance(x, _NUMERIC) else x for x in out]
            # a namedtuple takes its entries as separate arguments
            return type(out)(*parts) if hasattr(out, "_fields") else type(out)(parts)
        return out

    return named


def immutable(f: F) -> F:
    """A function of this package as one whose results nobody can change."""
    bare = f.__wrapped__  # type: ignore[attr-defined]  # of the public one

    @functools.wraps(bare)
    def named(*args: Any, **kwargs: Any) -> Any:
        y = bare(*tree.map(current, args), **kwargs)
        if isinstance(y, Tracer):
            return y
        if any(isinstance(x, np.ndarray) and np.may_share_memory(x, y) for x in args):
            y = frozen_copy(y)
        y.setflags(write=False)
        return wrap(y)

    return named  # type: ignore[return-value]  # of f's signature


# Written out in a call, a union would be made anew at each.
_NUMERIC, _SEVERAL = (np.ndarray, np.generic), (tuple, list)


def _as_array(x: Any) -> Array:
    if type(x) is np.ndarray:
        return x.view(Array)
    return x if type(x) is Array else np.asarray(x).view(Array)


def _named_argument(x: Any) -> Any:
    leaves, structure = tree.flatten(x)
    if structure is tree.LEAF:
        return argument(leaves[0])
    return tree.unflatten(structure, map(argument, leaves))


def _named_result(y: Any, fixed: bool) -> Any:
    def name(x: Any) -> Any:
        if not fixed:
            return as_name(x)
        return Fixed(x) if isinstance(x, Tracer) else x

    return tree.map(name, y)


install(_named_argument, _named_result, part_of)


def attach(module: ModuleType) -> None:
    """Give classes of lower floors what a module's MEMBERS lists: all that they get from here."""
    for cls, members in module.MEMBERS.items():
        for name, member in members.items():
            setattr(cls, name, member)


def publish(module: ModuleType, into: dict[str, Any], theirs: Any) -> list[str]:
    """Make the functions of ``module`` callable in ``into`` and under NumPy's names, ``theirs``.

    They are what ``numpy_like`` has made there and those of ALSO. Its METHODS become those of
    traced values; its UFUNCS and UFUNC_METHODS define ufuncs on them.
    """
    own = [name for name, f in vars(module).items()
           if hasattr(f, "traced") and f.__module__ == module.__name__ and name[0] != "_"]
    names = list(dict.fromkeys([*own, *getattr(module, "ALSO", ())]))
    for name in names:
        ours = getattr(module, name)
        plain = isinstance(ours, type) or not callable(ours)
        func = getattr(theirs, name, None)
        into[name] = ours if plain else public(ours, func)
        if isinstance(func, np.ufunc) and not plain:
            vars(into[name]).update({k: getattr(func, k) for k in UFUNC_ATTRIBUTES})
        if callable(func) and func is not ours and not isinstance(func, np.ufunc):
            # NumPy dispatches only calls with a traced argument: no need to look for one again
            protocols.FUNCTIONS[func] = getattr(ours, "traced", ours)
    for name, ours in getattr(module, "METHODS", {}).items():
        # without the decorator that looks for traced arguments: self is one
        setattr(Tracer, name, getattr(ours, "__wrapped__", ours))
        adopt(name, ours)
    protocols.UFUNC_METHOD_TABLE.update(getattr(module, "UFUNC_METHODS", {}))
    protocols.UFUNCS.update(getattr(module, "UFUNCS", {}))
    return names


# ---- What programs ask the kind of a value by: traced arrays are arrays, traced numbers numbers

_empty = public(np.empty, np.empty)


def _is_number(x: Any) -> bool:
    """Whether NumPy has a number where ``x`` is; of our functions it is an Array without axes."""
    ours = isinstance(x, Array) or (isinstance(x, Tracer) and type(x) is not Writable)
    return ours and x.shape == ()


class _Kind(type):
    """The type of ``ndarray``, which stands for NumPy's class in all but identity."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _make(*args, **kwargs) if cls is ndarray else super().__call__(*args, **kwargs)

    def __instancecheck__(cls, x: Any) -> bool:
        if cls is not ndarray:
            return super().__instancecheck__(x)
        return isinstance(x, Tracer | np.ndarray) and not _is_number(x)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, np.ndarray) if cls is ndarray else super().__subclasscheck__(kind)

    def __eq__(cls, other: object) -> bool:
        return cls is other or (cls is ndarray and other is np.ndarray)

    def __hash__(cls) -> int:
        return hash(np.ndarray) if cls is ndarray else super().__hash__()


class ndarray(np.ndarray, metaclass=_Kind):  # NumPy's name
    """NumPy's class, of which traced arrays are too; a call makes an array to be written into.

    >>> import functrans as ft, functrans.numpy as np
    >>> ft.grad(lambda x: x.sum() if isinstance(x, np.ndarray) else 0.0 * x[0])(np.ones(2))
    Array([1., 1.])
    """


def _make(shape: Any, dtype: Any = float, buffer: Any = None, offset: int = 0,
          strides: Any = None, order: Any = None) -> AnyArray:
    if buffer is None and strides is None:
        return _empty(shape, dtype, order or "C")
    return np.ndarray(shape, dtype, buffer, offset, strides, order)


def isscalar(element: Any) -> bool:
    """Whether ``element`` is a number, traced or not, or a string."""
    return _is_number(element) or np.isscalar(element)


ALSO = ("isscalar", "ndarray")
