"""What NumPy's operators, ufuncs, functions and methods do with names of arrays.

Where all numbers are plain, NumPy does it, in the memory itself. Else the values that the names have
go to the functions for traced values, and what comes back is written where NumPy would have.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans import tree
from functrans._core import writing
from functrans._core.bind import Tracer
from functrans._core.writing import current
from functrans._ops import elementwise as ops
from functrans.errors import UnsupportedError, user_line
from functrans.numpy import protocols
from functrans.numpy.ufunc_methods import UPDATES
from functrans.numpy.updates import At
from functrans.numpy.writable import Writable, argument, named, view

# Functions and methods whose results may be views.
_VIEW_METHODS = ("reshape", "transpose", "ravel", "squeeze", "swapaxes", "diagonal", "view")
_VIEW_FUNCTIONS = """
    transpose reshape ravel squeeze swapaxes diagonal moveaxis rollaxis expand_dims atleast_1d
    atleast_2d atleast_3d split array_split hsplit vsplit dsplit unstack flip fliplr flipud rot90
    broadcast_to broadcast_arrays permute_dims matrix_transpose diag
"""
VIEWS = {getattr(np, name) for name in _VIEW_FUNCTIONS.split() if hasattr(np, name)}
WRITERS = {np.copyto, np.put, np.place, np.putmask, np.fill_diagonal, np.put_along_axis}
# Their results may be their operand itself.
_AS_IT_IS = ("asarray", "asanyarray", "ascontiguousarray", "asfortranarray")


def _is_plain(x: Any) -> bool:
    if isinstance(x, tuple | list):
        return all(map(_is_plain, x))
    return x.is_plain() if type(x) is Writable else not isinstance(x, Tracer)


def _has_name(x: Any) -> bool:
    if isinstance(x, tuple | list):
        return any(map(_has_name, x))
    return type(x) is Writable


def _window(x: Any) -> Any:
    if isinstance(x, tuple | list):
        return _rebuilt(x, map(_window, x))
    return x.window if type(x) is Writable else x


def _value(x: Any) -> Any:
    if isinstance(x, tuple | list):
        return _rebuilt(x, map(_value, x))
    return current(x)


def _rebuilt(x: Any, parts: Any) -> Any:
    return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)


def _apply(call: Callable, args: tuple, kwargs: dict) -> Any:
    """A call of NumPy's of names: in their memory, or on their values."""
    out = kwargs.get("out")
    out = out[0] if isinstance(out, tuple) and len(out) == 1 else out
    options = {k: v for k, v in kwargs.items() if k != "out"}
    if _is_plain(args) and _is_plain(tuple(kwargs.values())):
        if type(out) is Writable:
            place = out.own_window()  # first: others may be views of what it replaces
            call(*_window(args), **{k: _window(v) for k, v in options.items()}, out=place)
            return out
        if out is not None:
            options["out"] = out
        return named(call(*_window(args), **{k: _window(v) for k, v in options.items()}))
    mask = options.pop("where", True) if type(out) is Writable else True
    y = call(*_value(args), **{k: _value(v) for k, v in options.items()})
    return named(y) if out is None else _written(out, y, current(mask))


def _written(out: Any, y: Any, mask: Any = True) -> Any:
    """``out``, with ``y`` written into it where the mask holds."""
    if type(out) is not Writable:
        raise protocols.refused("out=", "is a plain ndarray", protocols.USE_RESULT)
    y = y if isinstance(y, Tracer) else np.asarray(y)
    _require_fit(out, y)
    out.assign(y if mask is True else ops.where(mask, y, out.current()))
    return out


def _require_fit(out: Writable, y: Any) -> None:
    """NumPy's own errors where a result has no place in an array, by its shape or its dtype."""
    stand_in = np.broadcast_to(np.empty((), y.dtype), y.shape)
    np.add(stand_in[:0] if y.ndim else stand_in, 0, out=None, dtype=y.dtype)
    place = np.empty((0,), out.dtype)
    np.positive(np.empty((0,), y.dtype), out=place) if y.dtype.kind != "b" else None
    if np.broadcast_shapes(y.shape, out.shape) != out.shape:
        raise ValueError(
            f"non-broadcastable output operand with shape {out.shape} doesn't match the broadcast "
            f"shape {y.shape}"
        )


# ---- operators


def _operator(name: str) -> tuple[Callable, Callable]:
    op = getattr(operator, f"__{name}__")

    def forward(self: Writable, other: Any) -> Any:
        x, y = self.value, other.value if type(other) is Writable else other
        if x is not None and y is not None:  # the short way, for arrays that no one writes into
            z = op(x, y)
            return Writable(z) if isinstance(z, Tracer) and z.ndim else named(z)
        if self.is_plain() and _is_plain(other):
            return named(op(self.window, _window(other)))
        return named(op(self.current(), current(other)))

    def reflected(self: Writable, other: Any) -> Any:
        if self.value is not None and type(other) is not Writable:
            return named(op(other, self.value))
        if self.is_plain() and _is_plain(other):
            return named(op(other, self.window))
        return named(op(current(other), self.current()))

    return forward, reflected


def _in_place(name: str) -> Callable:
    fresh, within = getattr(operator, f"__{name}__"), getattr(operator, f"__i{name}__")

    def op(self: Writable, other: Any) -> Any:
        if self.is_plain() and _is_plain(other):
            place = self.own_window()
            within(place, _window(other))
            return self
        return _written(self, fresh(self.current(), current(other)))

    return op


def _unary(name: str) -> Callable:
    op = getattr(operator, f"__{name}__")

    def method(self: Writable) -> Any:
        return named(op(self.window if self.is_plain() else self.current()))

    return method


for _name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split():
    _forward, _reflected = _operator(_name)
    setattr(Writable, f"__{_name}__", _forward)
    setattr(Writable, f"__r{_name}__", _reflected)
    setattr(Writable, f"__i{_name}__", _in_place(_name))
for _name in "eq ne lt le gt ge".split():
    setattr(Writable, f"__{_name}__", _operator(_name)[0])
for _name in "neg pos abs invert".split():
    setattr(Writable, f"__{_name}__", _unary(_name))


# ---- ufuncs and functions


def _array_ufunc(
    self: Tracer, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
) -> Any:
    if method == "__call__" and not kwargs:
        values = [x.value if type(x) is Writable else x for x in inputs]
        first = values[0]
        if isinstance(first, Tracer) and values[-1] is not None and len(values) <= 2:
            return named(protocols.array_ufunc(first, ufunc, method, *values))
    if method == "at":
        return _update(ufunc, *inputs)
    if "out" in kwargs and len(kwargs["out"]) > 1:
        outs = kwargs.pop("out")
        ys = getattr(ufunc, method)(*inputs, **kwargs)
        return tuple([y if o is None else _written(o, current(y))
                      for o, y in zip(outs, ys, strict=True)])
    return _apply(getattr(ufunc, method), inputs, kwargs)


def _update(ufunc: np.ufunc, target: Any, indices: Any, *values: Any) -> None:
    """``ufunc.at``: repeatedly where an index repeats."""
    if _is_plain((target, indices, *values)):
        place = target.own_window() if type(target) is Writable else target
        ufunc.at(place, _window(indices), *_window(values))
        return
    if type(target) is not Writable:
        raise protocols.refused(
            f"{protocols.ufunc_name(ufunc)}.at", "writes into a plain ndarray",
            "make it with functrans.numpy.zeros or functrans.numpy.array",
        )
    update = UPDATES.get(ufunc)
    slot = At(target.current())[_value(indices)]
    if update is None or len(values) != 1:
        raise protocols.unsupported(f"{protocols.ufunc_name(ufunc)}.at")
    target.assign(getattr(slot, update)(_value(values[0])))


def _array_function(self: Tracer, func: Any, types: Any, args: tuple, kwargs: dict) -> Any:
    if func in VIEWS:
        return _views(func, args, kwargs)
    if func in WRITERS:
        return _write_by(func, *args, **kwargs)
    return _apply(func, args, kwargs)


def _views(call: Callable, args: tuple, kwargs: dict) -> Any:
    """The results of a call as views of the memory of its first operand, where NumPy makes them."""
    name = args[0]
    if type(name) is not Writable:
        return _apply(call, args, kwargs)
    parts = call(name.window, *_window(args[1:]), **kwargs)
    each = list(parts) if isinstance(parts, tuple | list) else [parts]
    array, dtype = name.memory.array, name.dtype
    if all(x.dtype == dtype and np.may_share_memory(x, array) for x in each):
        views = [view(name.memory, x) for x in each]
        return type(parts)(views) if isinstance(parts, tuple | list) else views[0]
    return _apply(call, args, kwargs)


def _write_by(func: Callable, target: Any, *args: Any, **kwargs: Any) -> None:
    """A function that writes into its first operand."""
    if _is_plain((target, *args, *kwargs.values())):
        place = target.own_window() if type(target) is Writable else target
        func(place, *_window(args), **{k: _window(v) for k, v in kwargs.items()})
        return
    changed = protocols.FUNCTIONS[func]
    if type(target) is not Writable:
        changed(current(target), *_value(args), **kwargs)  # raises, and says why
        return
    values = {k: _value(v) for k, v in kwargs.items()}
    target.assign(changed(target.current(), *_value(args), inplace=False, **values))


def call(f: Callable, theirs: Any, args: tuple, kwargs: dict) -> Any:
    """A function of ``functrans.numpy``, and NumPy's own of that name, of operands with names."""
    if f.__name__ in _AS_IT_IS and args and type(x := args[0]) is Writable:
        dtype = kwargs.get("dtype", args[1] if len(args) > 1 else None)
        if dtype is None or np.dtype(dtype) == x.dtype:
            return x
    if not (_has_name(args) or _has_name(tuple(kwargs.values()))):
        return named(f(*args, **kwargs))
    if theirs in VIEWS:
        return _views(f, args, kwargs)
    if theirs in WRITERS and kwargs.get("inplace", True):
        return _write_by(theirs, *args, **kwargs)
    return _apply(f, args, kwargs)


# ---- methods


def _view_method(name: str) -> Callable:
    def method(self: Writable, *args: Any, **kwargs: Any) -> Any:
        return _views(lambda x, *a, **k: getattr(x, name)(*a, **k), (self, *args), kwargs)

    return method


def _method(name: str) -> Callable:
    def method(self: Writable, *args: Any, **kwargs: Any) -> Any:
        return _apply(lambda x, *a, **k: getattr(x, name)(*a, **k), (self, *args), kwargs)

    return method


def _attribute(name: str) -> property:
    def get(self: Writable) -> Any:
        return named(getattr(self.window if self.is_plain() else self.current(), name))

    return property(get)


def _part(name: str) -> property:
    """``real`` and ``imag``, to be read; of real numbers the array itself."""

    def get(self: Writable) -> Any:
        if name == "real" and self.dtype.kind != "c":
            return self
        y = getattr(self.current(), name)
        return y if isinstance(y, Tracer) else _locked(y)

    def assign(self: Writable, value: Any) -> None:
        x = self.current()
        value = current(value)
        self.assign(value + 1j * np.imag(x) if name == "real" else np.real(x) + 1j * value)

    return property(get, assign)


def _locked(y: np.ndarray) -> np.ndarray:
    y = y.view()
    y.setflags(write=False)
    return y


def _astype(self: Writable, dtype: Any, *args: Any, copy: bool = True, **kwargs: Any) -> Any:
    if not copy and np.dtype(dtype) == self.dtype:
        return self
    return _method("astype")(self, dtype, *args, **kwargs)


def _sorting(name: str) -> Callable:
    def method(self: Writable, *args: Any, **kwargs: Any) -> None:
        if self.is_plain():
            getattr(self.own_window(), name)(*args, **kwargs)
        else:
            self.assign(getattr(np, name)(self.current(), *args, **kwargs))

    return method


def _fill(self: Writable, value: Any) -> None:
    self.assign(value)


def _put(self: Writable, indices: Any, values: Any, mode: str = "raise") -> None:
    _write_by(np.put, self, indices, values, mode=mode)


def _flat(self: Writable) -> Any:
    y = _views(np.ravel, (self,), {})
    if y.memory is self.memory:
        return y
    raise UnsupportedError(
        f"{user_line()}: x.flat of an array that is not contiguous. Use x.ravel() to read it, or "
        "write with x[...]."
    )


def adopt(name: str, member: Any) -> None:
    """Give names the method or attribute that traced values have under this name."""
    if name in vars(Writable) or name == "at":  # of its own, or made of such
        return
    setattr(Writable, name, _attribute(name) if isinstance(member, property) else _method(name))


for _name in _VIEW_METHODS:
    setattr(Writable, _name, _view_method(_name))
for _name in ("sort", "partition"):
    setattr(Writable, _name, _sorting(_name))
Writable.T = property(lambda self: self.transpose())  # type: ignore[attr-defined]
Writable.mT = property(lambda self: self.swapaxes(-1, -2))  # type: ignore[attr-defined]
Writable.real, Writable.imag = _part("real"), _part("imag")  # type: ignore[attr-defined]
Writable.flat = property(_flat)  # type: ignore[attr-defined]
Writable.astype, Writable.fill, Writable.put = _astype, _fill, _put  # type: ignore[attr-defined]
Writable.__array_ufunc__ = _array_ufunc  # type: ignore[attr-defined]
Writable.__array_function__ = _array_function  # type: ignore[attr-defined]
for _name in ("item", "tolist"):
    adopt(_name, getattr(Tracer, _name))


def _named_argument(x: Any) -> Any:
    leaves, structure = tree.flatten(x)
    if structure is tree.LEAF:
        return argument(leaves[0])
    return tree.unflatten(structure, map(argument, leaves))


writing.install(_named_argument)

__all__ = ["adopt", "call"]
