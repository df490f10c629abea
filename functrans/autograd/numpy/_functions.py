"""Functions of NumPy that take more here than NumPy's, or than functrans': iterables of arrays,
numbers of Python's, traced values whose numbers alone count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from functrans import numpy as functrans_numpy
from functrans._core.array import plain
from functrans._core.bind import Tracer, known_value
from functrans.autograd._names import missing
from functrans.autograd._primitives import notrace_primitive
from functrans.autograd._runs import getval, is_traced_in
from functrans.autograd.wrap_util import wraps
from functrans.numpy.joining import Concatenator


def names_of(theirs: Any, ours: Any) -> dict[str, Any]:
    """What a module of NumPy's has, but for modules that it imports when they are asked for, with
    the functions of ours that take traced values."""
    names = [n for n in vars(theirs) if not n.startswith("_")]
    return {n: own(getattr(theirs, n), getattr(ours, n, None)) for n in names}


def own(theirs: Any, ours: Any) -> Any:
    """The function of ours below the one that makes results Arrays, or NumPy's."""
    if isinstance(theirs, np.ufunc | type) or not callable(theirs) or ours is None:
        return theirs
    return getattr(ours, "__wrapped__", theirs)


def _of_sequence(name: str) -> Callable:
    """A function of a list of arrays, which may be any iterable: ``values()``, a generator."""
    joined = own(getattr(np, name), getattr(functrans_numpy, name))

    @wraps(joined)
    def named(arrays: Iterable, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(arrays, list | tuple | np.ndarray | Tracer):
            arrays = list(arrays)
        return joined(arrays, *args, **kwargs)

    return named


concatenate, stack, vstack, hstack, dstack, column_stack = map(
    _of_sequence, ("concatenate", "stack", "vstack", "hstack", "dstack", "column_stack"))
row_stack = vstack
ndim, shape, iscomplexobj, result_type = map(
    notrace_primitive, (np.ndim, np.shape, np.iscomplexobj, np.result_type))
_select, _where, _array = (own(getattr(np, name), getattr(functrans_numpy, name))
                           for name in ("select", "where", "array"))


def select(condlist: Iterable, choicelist: Iterable, default: Any = 0) -> Any:
    """``numpy.select``, of any iterables."""
    return _select(list(condlist), list(choicelist), default=default)


def where(condition: Any, *args: Any, **kwargs: Any) -> Any:
    """``numpy.where``; of Python's lists and numbers alone lists and numbers, as in autograd."""
    if not args and not kwargs:
        return _where(condition)
    if len(args) + len(kwargs) != 2:
        raise ValueError("either both or neither of x and y should be given")
    x = args[0] if args else kwargs["x"]
    y = args[1] if len(args) > 1 else kwargs["y"]
    res = _where(condition, x, y)
    if isinstance(res, np.ndarray) and not any(map(_has_array, (condition, x, y))):
        return res.tolist()
    return res


def _has_array(x: Any) -> bool:
    if isinstance(x, list | tuple):
        return any(map(_has_array, x))
    return isinstance(x, np.ndarray | np.generic | Tracer)


def array_from_args(array_args: tuple, array_kwargs: dict, *args: Any) -> Any:
    """``array(args, *array_args, **array_kwargs)``."""
    return _array(args, *array_args, **array_kwargs)


def make_diagonal(D: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Matrices with the last axis of ``D`` on their diagonals."""
    if (offset, axis1, axis2) != (0, -1, -2):
        raise NotImplementedError(
            "make_diagonal only supports offset=0, axis1=-1, axis2=-2: np.moveaxis moves the axes"
        )
    return D[..., None] * np.eye(shape(D)[-1])


@notrace_primitive
def metadata(A: Any) -> tuple:
    """Shape, number of axes, type and whether it is complex."""
    return np.shape(A), np.ndim(A), np.result_type(A), np.iscomplexobj(A)


def allclose(a: Any, b: Any, *args: Any, **kwargs: Any) -> bool:
    """``numpy.allclose``, of the values inside of traced ones."""
    return bool(np.allclose(_plain(a), _plain(b), *args, **kwargs))


def _plain(x: Any) -> Any:
    while isinstance(x, Tracer):
        x = known_value(x)
    return [_plain(v) for v in x] if isinstance(x, list | tuple) and is_traced_in(x) else x


class _Concatenator(Concatenator):
    """``r_`` or ``c_``, whose results are plain where nothing is traced."""

    def __getitem__(self, key: Any) -> Any:
        y = super().__getitem__(key)
        return plain(y) if isinstance(y, np.ndarray) else y


r_, c_ = _Concatenator(np.r_), _Concatenator(np.c_)


class _Converting(type):
    """The class of a type of integers: a call takes the value inside of a traced one."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.__mro__[1](*map(getval, args), **kwargs)

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, cls.__mro__[1])


# Of NumPy's classes, which ``dtype=`` takes; what they make is of NumPy's own.
_INTEGERS = {kind.__name__: _Converting(kind.__name__, (kind,), {"__slots__": ()})
             for kind in (np.int8, np.int16, np.int32, np.int64)}
globals().update(_INTEGERS)


def numpys(module: str) -> Callable[[str], Any]:
    """``__getattr__`` of a module with NumPy's names, for those that NumPy imports late."""
    absent = missing(module)

    def get(name: str) -> Any:
        known = not name.startswith("_") and hasattr(np, name)
        return getattr(np, name) if known else absent(name)

    return get


NAMES = (
    "allclose", "array_from_args", "c_", "column_stack", "concatenate", "dstack", "hstack",
    "iscomplexobj", "make_diagonal", "metadata", "ndim", "r_", "result_type", "row_stack", "select",
    "shape", "stack", "vstack", "where", *_INTEGERS,
)
