"""How NumPy code becomes the shim's functions: ``op`` and the elementwise table.

A function is written as NumPy code on arrays:

    @op
    def mean(x, dim=None, keepdim=False, *, dtype=None): return np.mean(x, axis=dim, ...)

Called with tensors of which one requires gradients, the body runs on ``graph.Value``s, which record;
otherwise on the arrays. Results come out as tensors. The last node is shown as ``MeanBackward0``.

    op(body)         a function of tensors; ``f.body`` is the NumPy code, to be used in other bodies
    elementwise(...) a unary or binary function of one row, by a shorter way
    in_place(f)      its variant that writes to its first argument
    METHODS          name -> function, for those that are also methods of tensors; ``install`` last
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.extend import TABLE, Elementwise, aval_of
from functrans.torch import dtypes
from functrans.torch.graph import ElementwiseNode, Node, Storage, Value, caller, named, rename
from functrans.torch.modes import state
from functrans.torch.tensor import Tensor, edge_of, lift, made
from functrans.torch.views import changed, guard, rebase, value_for_write

METHODS: dict[str, Callable] = {}
NUMBERS = frozenset({bool, int, float, complex})


def title_for(name: str) -> str:
    return "".join([w.capitalize() for w in name.strip("_").split("_")]) + "Backward0"


def op(f: Callable | None = None, *, title: str | None = None, method: bool = True,
       names: str = "") -> Any:
    """``f``, NumPy code, as a function of tensors; ``names``: others that it goes by."""
    if f is None:
        return functools.partial(op, title=title, method=method, names=names)
    body = f
    shown = title or title_for(body.__name__)

    @functools.wraps(body)
    def called(*args: Any, **kwargs: Any) -> Any:
        if kwargs.pop("out", None) is not None:
            raise NotImplementedError(
                f"{body.__name__}: out= is not supported; use the result, or y.copy_(result)"
            )
        if state.grad and (_any_requires(args) or (kwargs and _any_requires(kwargs.values()))):
            given = [_lifted(x) for x in args]
            options = {k: _lifted(x) for k, x in kwargs.items()}
        else:
            given = [_plain(x) for x in args]
            options = {k: _plain(x) for k, x in kwargs.items()}
        with np.errstate(all="ignore"):
            out = body(*given, **options)
        return wrap(out, given, shown)

    called.body = body  # type: ignore[attr-defined]  # for other bodies
    for name in (body.__name__, *names.split()):
        if method:
            METHODS[name] = called
    return called


def _any_requires(xs: Any) -> bool:
    for x in xs:
        if isinstance(x, Tensor):
            if x._node is not None or x.requires_grad:
                return True
        elif type(x) in (list, tuple) and _any_requires(x):
            return True
    return False


def _lifted(x: Any) -> Any:
    if isinstance(x, Tensor):
        return lift(x)
    if type(x) in (list, tuple):
        return type(x)([_lifted(v) for v in x])
    return x.array_dtype if isinstance(x, dtypes.dtype) else x


def _plain(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x._array
    if type(x) in (list, tuple):
        return type(x)([_plain(v) for v in x])
    return x.array_dtype if isinstance(x, dtypes.dtype) else x


def wrap(out: Any, given: Any, title: str) -> Any:
    """Results of NumPy code as tensors; none is on the memory of an argument."""
    if type(out) is Value:
        if out.node is not None and not any(_is_output(x, out.node) for x in given):
            rename(out.node, title)
        return made(_apart(out.primal, given), out.storage, out.node, out.index)
    if isinstance(out, np.ndarray | np.generic):
        return made(_apart(np.asarray(out), given))
    if isinstance(out, tuple | list):
        items = [wrap(x, given, title) for x in out]
        return type(out)(*items) if hasattr(out, "_fields") else type(out)(items)
    return out


def _is_output(x: Any, node: Node) -> bool:
    if type(x) in (list, tuple):
        return any(_is_output(v, node) for v in x)
    return type(x) is Value and x.node is node


def _apart(array: Any, given: Any) -> Any:
    """``array``, copied if it is on the memory of an argument."""
    if type(array) is not np.ndarray:
        return array
    for x in given:
        x = x.primal if type(x) is Value else x
        if x is array or (array.base is not None and isinstance(x, np.ndarray)
                          and np.may_share_memory(x, array)):
            return array.copy()
    if not array.flags.writeable:
        return array.copy()
    return array


# ---- promotion


def floating(x: Any) -> Any:
    """``x``, where it is of integers or booleans, in the default floating-point type."""
    if type(x) in NUMBERS:
        return x
    return x if x.dtype.kind in "fcV" else x.astype(dtypes.default_float())


def promoted(*xs: Any, floats: bool = False) -> list:
    """The operands in the type of the result. Python numbers stay as they are where they can."""
    target = dtypes.result_dtype([x for x in xs if x is not None])
    if floats and target.kind not in "fcV":
        target = dtypes.default_float()
    return [_in(x, target) for x in xs]


def _in(x, target):
    if x is None:
        return None
    if type(x) in NUMBERS:
        return target.type(x) if target.kind in "V" else _python_number(x, target)
    return x if x.dtype == target else x.astype(target)


def _python_number(x, target):
    """A number that NumPy does not widen ``target`` for."""
    return float(x) if target.kind == "f" else complex(x) if target.kind == "c" else x


# ---- elementwise functions of one row

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)


class _Binary:
    """The functions of a row with two operands: of tensors, reflected, and in place."""

    __slots__ = ("actions", "floats", "kind", "name", "quiet", "row", "ufunc")

    def __init__(self, name: str, row: Elementwise, floats: bool, title: str | None):
        self.name = name
        self.row = row
        self.ufunc = row.impl
        self.actions = row.actions
        self.floats = floats
        self.quiet = any(a is not None and a.singular for a in row.actions)
        self.kind = named(ElementwiseNode, title or title_for(name))

    def general(self, x1: Any, x2: Any) -> Tensor:
        """On any operands: tensors, numbers, arrays."""
        v1, v2 = _operand(x1), _operand(x2)
        a, b = promoted(v1, v2, floats=self.floats)
        with np.errstate(all="ignore"):
            y = self.ufunc(a, b)
        return self.output(y, x1, x2, a, b)

    def output(self, y: Any, x1: Any, x2: Any, a: Any, b: Any) -> Tensor:
        """The tensor ``y``, with a node if an operand requires gradients."""
        out = made(y)
        if not state.grad:
            return out
        e1 = edge_of(x1) if isinstance(x1, Tensor) else None
        e2 = edge_of(x2) if isinstance(x2, Tensor) else None
        if e1 is not None or e2 is not None:
            node = self.link(y, x1, x2, e1, e2, a, b, out._storage)
            if node is not None:
                out._node = node
        return out

    def link(self, y, x1, x2, e1, e2, a, b, own) -> Node | None:
        a1, a2 = self.actions
        if y.dtype.kind not in "fcV":
            return None
        parts, marks = [], []
        if e1 is not None and a1 is not None:
            parts.append((0, a1, a1.pick(y, a, b) if a1.needs else (), _unlike(x1, y)))
            self.mark(marks, a1.needs, x1, x2, own)
        if e2 is not None and a2 is not None:
            parts.append((1, a2, a2.pick(y, a, b) if a2.needs else (), _unlike(x2, y)))
            self.mark(marks, a2.needs, x1, x2, own)
        if not parts:
            return None
        return self.kind((e1, e2), parts, marks, caller() if marks else None)

    def mark(self, marks, needs, x1, x2, own):
        for n in needs:
            if n == "y":
                marks.append((own, own.version))
            else:
                x = x1 if n == "x1" else x2
                if isinstance(x, Tensor):
                    marks.append((x._storage, x._storage.version))


def _unlike(x: Tensor, y: Any) -> Any:
    a = x._array
    if a.shape == y.shape and a.dtype is y.dtype:
        return None
    return None if a.shape == y.shape and a.dtype == y.dtype else aval_of(a)


def _operand(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x._array
    if type(x) in NUMBERS:
        return x
    if isinstance(x, np.ndarray | np.generic):
        return np.asarray(x)
    if hasattr(x, "__index__") or hasattr(x, "__float__"):
        return x.__index__() if hasattr(x, "__index__") else float(x)
    raise TypeError(
        f"unsupported operand: {type(x).__name__}; use a Tensor, an ndarray or a number"
    )


def binary(name: str, row: Any, *, floats: bool = False, title: str | None = None) -> Callable:
    """The function ``name`` of two tensors or numbers."""
    self = _Binary(name, row, floats, title)
    ufunc, quiet = self.ufunc, self.quiet

    def f(input: Any, other: Any) -> Any:
        if not isinstance(input, Tensor):
            return self.general(input, other)
        a = input._array
        d = a.dtype
        if isinstance(other, Tensor):
            b = other._array
            if b.dtype is not d or (d is not _F32 and d is not _F64):
                return self.general(input, other)
        elif (type(other) is float or type(other) is int) and (d is _F32 or d is _F64):
            b = other
        elif _declines(other):
            return NotImplemented
        else:
            return self.general(input, other)
        if quiet:
            with np.errstate(all="ignore"):
                y = ufunc(a, b)
        else:
            y = ufunc(a, b)
        return self.output(y if type(y) is np.ndarray else np.asarray(y), input, other, a, b)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"{row.name} of two tensors or numbers, entry by entry."
    f.of = self  # type: ignore[attr-defined]  # what the reflected and in-place variants share
    return f


def _declines(x: Any) -> bool:
    """Whether an operand is none that we know, so that it may know what to do with us."""
    return not (isinstance(x, np.ndarray | np.generic) or type(x) in NUMBERS
                or hasattr(x, "__index__") or hasattr(x, "__float__"))


def reflected(f: Any) -> Callable:
    """``other f self``."""
    general = f.of.general

    def method(self: Tensor, other: Any) -> Any:
        return NotImplemented if _declines(other) else general(other, self)

    return method


def unary(name: str, row: Any, *, floats: bool = True, title: str | None = None) -> Callable:
    """The function ``name`` of one tensor."""
    kind = named(ElementwiseNode, title or title_for(name))
    ufunc, (action,) = row.impl, row.actions
    needs = action.needs if action is not None else ()

    def f(input: Tensor) -> Tensor:
        a = input._array
        d = a.dtype
        if d is not _F32 and d is not _F64 and floats:
            a = floating(a)
        with np.errstate(all="ignore"):
            y = ufunc(a)
        if type(y) is not np.ndarray:
            y = np.asarray(y)
        out = made(y)
        edge = edge_of(input) if state.grad and action is not None else None
        if edge is not None:
            marks = []
            if needs:
                storage = out._storage if needs[0] == "y" else input._storage
                marks.append((storage, storage.version))
            part = 0, action, action.pick(y, a), _unlike(input, y)
            out._node = kind((edge,), (part,), marks, caller() if marks else None)
        return out

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"{row.name} of each entry."
    return f


# ---- in place


def in_place(f: Callable, name: str) -> Callable:
    """The variant of ``f`` that writes its result to its first argument."""
    of = getattr(f, "of", None)

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        recorded = state.grad and (self.requires_grad or _any_requires(args))
        guard(self, recorded, name)
        if recorded:
            return _recorded_write(self, f, args, kwargs, name)
        array = self._array
        if of is not None and len(args) == 1 and not kwargs and _fits(array, args[0]):
            other = args[0]
            with np.errstate(all="ignore"):
                of.ufunc(array, other._array if isinstance(other, Tensor) else other, out=array)
        else:
            array[...] = fitting(f(made(array), *args, **kwargs)._array, self, name)
        changed(self, name)
        return self

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"{name[:-1]} in place: the result is written to this tensor."
    return method


def _fits(array: np.ndarray, other: Any) -> bool:
    """Whether a ufunc can write its result straight to ``array``."""
    d = array.dtype
    if d is not _F32 and d is not _F64:
        return False
    if isinstance(other, Tensor):
        return other._array.dtype is d and other._array.shape == array.shape
    return type(other) is float or type(other) is int


def _recorded_write(t: Tensor, f: Callable, args: tuple, kwargs: dict, name: str) -> Tensor:
    """``f`` of the old content becomes the new, and its node that of ``t``."""
    old = value_for_write(t)
    before = made(old.primal, None, old.node, old.index)
    if old.node is None:
        before._requires = False
    args = tuple([before if x is t else x for x in args])
    y = f(before, *args, **kwargs)
    write(t, lift(y), name)
    return t


def write(t: Tensor, value: Value, name: str) -> None:
    """Write ``value`` to the memory of ``t``, and give ``t`` its history."""
    array = fitting(np.asarray(value.primal), t, name)
    if value.node is not None and array.dtype != t._array.dtype:
        value = value.astype(t._array.dtype)  # type: ignore[attr-defined]  # from functrans.numpy
    t._array[...] = array
    changed(t, name)
    rebase(t, value.edge)


def fitting(array: np.ndarray, t: Tensor, name: str) -> np.ndarray:
    """``array``, if it can be written to ``t``."""
    have, want = dtypes.BY_ARRAY_DTYPE[array.dtype], t.dtype
    if have.rank > want.rank:
        raise RuntimeError(
            f"{name}: result type {have.name} can't be cast to the desired output type {want.name}"
        )
    if array.shape != t._array.shape:
        raise RuntimeError(
            f"{name}: output with shape {list(t.shape)} doesn't match the broadcast shape "
            f"{list(array.shape)}"
        )
    return array


def row(name: str) -> Any:
    return TABLE[name]


__all__ = [
    "METHODS", "NUMBERS", "Storage", "binary", "floating", "in_place", "op", "promoted",
    "reflected", "row", "unary", "wrap", "write",
]
