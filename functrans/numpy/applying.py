"""Functions that apply a callable, ``vectorize`` among them, and those that compute indices."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.array import Array
from functrans._core.bind import Tracer, known_value
from functrans._ops import elementwise as ops
from functrans._ops.structure import move_axis
from functrans._transforms.staging.staging import example_of
from functrans.errors import (
    ArgumentError,
    ConcretizationError,
    UnsupportedError,
    name_of,
    user_line,
)
from functrans.numpy.protocols import MAKERS
from functrans.numpy.structure import (
    as_operand,
    as_places,
    is_traced,
    moveaxis,
    numpy_like,
    one_axis,
    reshape,
)
from functrans.numpy.updates import At

# ---- NumPy's functions that apply a callable, and those that compute indices


# ---- applying a callable


@numpy_like(np.apply_along_axis, applies=True)
def apply_along_axis(func1d, axis, arr, *args, **kwargs):
    """``func1d`` of each slice along ``axis``; its results replace that axis."""
    arr = as_operand(arr)
    axis = one_axis(axis, arr.ndim)
    rest = arr.shape[:axis] + arr.shape[axis + 1 :]
    if 0 in rest:
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    a = move_axis(arr, axis, -1)  # a view, where the function may write into the slices
    y = np.stack([as_operand(func1d(a[i], *args, **kwargs)) for i in np.ndindex(rest)])
    own = y.ndim - 1
    y = reshape(y, rest + y.shape[1:])
    source = tuple(range(len(rest), len(rest) + own))
    return moveaxis(y, source, tuple(range(axis, axis + own)))


@numpy_like(np.apply_over_axes)
def apply_over_axes(func, a, axes):
    """``func(a, axis)`` over each of ``axes`` in turn; the axes that it removes keep length 1."""
    y = as_operand(a)
    n = y.ndim
    for axis in np.atleast_1d(axes).tolist():
        reduced = func(y, axis)
        if reduced.ndim == y.ndim - 1:
            reduced = np.expand_dims(reduced, axis)
        if reduced.ndim != n:
            raise ValueError("function is not returning an array of the correct shape")
        y = reduced
    return y


@numpy_like(np.ndenumerate)
def ndenumerate(arr):
    """The indices of an array, each with the entry that is there when it comes to it.

    >>> import functrans as ft, functrans.numpy as np
    >>> ft.grad(lambda x: sum(i * v for (i,), v in np.ndenumerate(x)))(np.ones(3))
    Array([0., 1., 2.])
    """
    x = as_operand(arr)
    return ((i, x[i]) for i in np.ndindex(x.shape))


def nditer(op: Any, *args: Any, **kwargs: Any) -> np.nditer:
    """NumPy's iterator over the memory of arrays, for what is not traced."""
    if is_traced(op):
        raise UnsupportedError(
            f"{user_line()}: np.nditer goes through memory, which traced values do not have. Use "
            "np.ndenumerate(x), or np.ndindex(x.shape) and x[index], which can be assigned to."
        )
    return np.nditer(op, *args, **kwargs)


@numpy_like(np.piecewise, applies=True)
def piecewise(x, condlist, funclist, *args, **kw):
    """The value of each function, or each constant, where its condition holds.

    Where a condition is concrete, its function gets the entries that satisfy it; else, under
    ``jit`` and ``vmap``, all entries, and it must do to each what it would do to that one alone.

    >>> import functrans as ft, numpy as np
    >>> f = lambda x: np.piecewise(x, [x < 0, x >= 0], [lambda x: -x, np.sqrt]).sum()
    >>> ft.grad(f)(np.array([-1.0, 4.0]))
    Array([-1.  ,  0.25])
    """
    x = as_operand(x)
    conditions = [c.astype(bool) for c in _conditions(x, condlist)]
    functions = list(funclist)
    n = len(functions)
    if len(conditions) == n - 1:
        conditions.append(ops.logical_not(_any(conditions)))
    elif len(conditions) != n:
        raise ValueError(
            f"with {len(conditions)} condition(s), either {len(conditions)} or "
            f"{len(conditions) + 1} functions are expected"
        )
    y: Any = np.zeros(x.shape, x.dtype)
    for condition, f in zip(conditions, functions, strict=True):
        y = _piece(x, y, condition, f, args, kw)
    return y


# Numbers that a function of entries is tried on, and which of them alone.
_TRIED, _SOME = np.array([0.1, 0.8, 0.6, 0.3, 0.9]), np.array([1, 2])


def _require_entrywise(f: Callable, x: Any, args: Any, kw: dict) -> None:
    """Raise if ``f`` makes something else of entries among others, which it gets here, than of
    these alone, as NumPy gives it."""
    tried = (np.rint(_TRIED) if x.dtype.kind in "biu" else _TRIED).astype(x.dtype)
    with np.errstate(all="ignore"):
        all_, some = [example_of(as_operand(f(v, *args, **kw))) for v in (tried, tried[_SOME])]
    if not np.allclose(np.broadcast_to(all_, tried.shape)[_SOME], some, 1e-2, equal_nan=True):
        raise UnsupportedError(
            f"{user_line()}: np.piecewise gives {name_of(f)} the entries at which its condition "
            "holds. Under jit and vmap these are not known, and it gets all; what it makes of an "
            "entry depends on the others. Compute what it makes of all, and use np.where."
        )


def _conditions(x: Any, condlist: Any) -> list:
    """The list of conditions; a single one need not be in a list."""
    if isinstance(condlist, Tracer | np.ndarray):
        several = condlist.ndim > x.ndim or (condlist.ndim > 1 and x.ndim != 0) or x.ndim == 0
        return list(condlist) if several and condlist.ndim else [condlist]
    if not isinstance(condlist, list | tuple):
        return [as_operand(condlist)]
    first = condlist[0]
    if not isinstance(first, list | np.ndarray | Tracer) and x.ndim:
        return [as_operand(condlist)]
    return [as_operand(c) for c in condlist]


def _any(conditions):
    holds = conditions[0]
    for c in conditions[1:]:
        holds = ops.logical_or(holds, c)
    return holds


def _piece(x, y, condition, f, args, kw):
    mask = condition if not isinstance(condition, Tracer) else condition.concrete_value()
    if not callable(f):
        return ops.where(condition, as_operand(f).astype(x.dtype), y)
    if mask is None:
        _require_entrywise(f, x, args, kw)
        return ops.where(condition, as_operand(f(x, *args, **kw)).astype(x.dtype), y)
    mask = np.broadcast_to(mask, x.shape)
    if not mask.any():
        return y
    positions = np.flatnonzero(mask)
    values = f(reshape(x, (-1,))[positions], *args, **kw)
    return reshape(At(reshape(y, (-1,)))[positions].set(values), x.shape)


# ---- indices


@numpy_like(np.unravel_index)
def unravel_index(indices, shape, order="C"):
    """The index, in an array of ``shape``, of each position in the flat array."""
    flat, shape = as_places(indices), tuple(np.atleast_1d(shape).tolist())
    if order not in ("C", "F"):
        raise ValueError("only 'C' or 'F' order is permitted")
    out: list[Any] = []
    for n in shape[::-1] if order == "C" else shape:
        out.append(flat % n)
        flat = flat // n
    return tuple(out[::-1] if order == "C" else out)


@numpy_like(np.ravel_multi_index)
def ravel_multi_index(multi_index, dims, mode="raise", order="C"):
    """The position in the flat array of each index of an array of shape ``dims``."""
    indices = list(map(as_places, multi_index))
    modes = mode if isinstance(mode, tuple) else (mode,) * len(dims)
    parts = list(zip(indices, dims, modes, strict=True))
    flat: Any = 0
    for i, n, how in parts if order == "C" else parts[::-1]:
        flat = flat * n + _bound(i, n, how)
    return flat


def _bound(i, n, mode):
    if mode == "wrap":
        return i % n
    if mode == "clip":
        return ops.clip(i, 0, n - 1)
    value = known_value(i)
    if value is not None and np.any((np.asarray(value) < 0) | (np.asarray(value) >= n)):
        raise ValueError("invalid entry in coordinates array")
    return i


def _indices_from(name: str, of_shape: Callable) -> Callable:
    @numpy_like(getattr(np, name), doc=f"np.{name} of the shape of a traced array.")
    def named(arr, *args, **kwargs):
        return of_shape(np.empty(arr.shape, bool), *args, **kwargs)

    return named


diag_indices_from, tril_indices_from, triu_indices_from = [
    _indices_from(name, getattr(np, name))
    for name in ("diag_indices_from", "tril_indices_from", "triu_indices_from")
]

fromfunction = np.fromfunction
mask_indices = np.mask_indices

ALSO = ("fromfunction", "mask_indices", "nditer")


# ---- ``vectorize`` and ufuncs of ``np.frompyfunc``: Python functions of entries, applied to arrays
#
# The function is called once for each entry, as in NumPy, so it may branch on values. If it does
# not, ``ft.vmap`` needs only one call.

_CORE = re.compile(r"\(([^()]*)\)")


class vectorize:  # NumPy's name
    """A Python function of numbers as a function of arrays, as in ``np.vectorize``.

    >>> import functrans as ft, functrans.numpy as fnp, numpy as np
    >>> f = fnp.vectorize(lambda x: x**2 if x > 0 else -x)
    >>> ft.grad(lambda x: f(x).sum())(np.array([-1.0, 3.0]))
    Array([-1.,  6.])
    """

    def __init__(self, pyfunc: Callable, otypes: Any = None, doc: str | None = None,
                 excluded: Any = None, cache: bool = False, signature: str | None = None):
        self.pyfunc = pyfunc
        self.signature = signature
        self.excluded = frozenset(excluded or ())
        self._numpy = np.vectorize(pyfunc, otypes, doc, excluded, cache, signature)
        functools.update_wrapper(self, pyfunc, updated=())
        if doc is not None:
            self.__doc__ = doc

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not is_traced((*args, *kwargs.values())):
            try:
                y = self._numpy(*args, **kwargs)
                return tuple([v.view(Array) for v in y]) if isinstance(y, tuple) else y.view(Array)
            except ConcretizationError:
                pass  # what it returns is traced, for what it closes over
        places = [i for i in range(len(args)) if i not in self.excluded]
        names = [n for n in kwargs if n not in self.excluded]
        operands = [as_operand(args[i]) for i in places] + [as_operand(kwargs[n]) for n in names]
        core = self._core(len(operands))

        def of_entries(*entries: Any) -> Any:
            full, named = list(args), dict(kwargs)
            for i, x in zip(places, entries, strict=False):
                full[i] = x
            named.update(zip(names, entries[len(places) :], strict=True))
            return self.pyfunc(*full, **named)

        return _each(of_entries, operands, core)

    def _core(self, count: int) -> list[int]:
        """How many axes of each argument the function sees."""
        if self.signature is None:
            return [0] * count
        inputs = _CORE.findall(self.signature.split("->")[0])
        if len(inputs) != count:
            raise ArgumentError(
                f"vectorize: the signature {self.signature!r} has {len(inputs)} inputs, but "
                f"{count} arguments were given."
            )
        return [len([n for n in dims.split(",") if n.strip()]) for dims in inputs]


def _each(f: Callable, args: list, core: list[int]) -> Any:
    """``f`` of every combination of the leading axes, joined; a tuple where ``f`` returns one."""
    leads = [a.shape[: a.ndim - c] for a, c in zip(args, core, strict=True)]
    lead = np.broadcast_shapes(*leads)
    args = [
        np.broadcast_to(a, lead + a.shape[a.ndim - c :]) for a, c in zip(args, core, strict=True)
    ]
    results = [f(*[a[i] for a in args]) for i in np.ndindex(lead)]
    if not results:
        raise ValueError("cannot call `vectorize` on size 0 inputs unless `otypes` is set")
    if isinstance(results[0], tuple):
        return tuple([_join(column, lead) for column in zip(*results, strict=True)])
    return _join(results, lead)


def _join(values, lead):
    y = np.stack([as_operand(v) for v in values])
    return reshape(y, lead + y.shape[1:])


def of_python(ufunc: np.ufunc) -> Callable | None:
    """The rule of a ufunc of ``np.frompyfunc``; None for any other."""
    if set("".join(ufunc.types)) != set("O->"):
        return None

    def call(*xs: Any) -> Any:
        def of_entries(*entries):
            boxes = [np.empty((), object) for _ in entries]
            for box, x in zip(boxes, entries, strict=True):
                box[()] = x
            return ufunc(*boxes)

        return _each(of_entries, [as_operand(x) for x in xs], [0] * len(xs))

    return call


MAKERS["__call__"] = of_python

ALSO += ("vectorize",)
