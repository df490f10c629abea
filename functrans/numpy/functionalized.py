"""What NumPy's ufuncs, functions and methods do with names of arrays.

Where all numbers are plain, NumPy does it, in the memory itself. Else the values that the names
have go to the functions for traced values, and what comes back is written where NumPy would have.

"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from functrans import tree
from functrans._core.array import plain
from functrans._core.bind import AnyArray, Tracer
from functrans._core.writing import current
from functrans._ops import elementwise as ops
from functrans.errors import UnsupportedError, user_line
from functrans.numpy import protocols
from functrans.numpy.layouts import Flags, is_laid_out, is_ordered, layout_of, rebuilt, setflags
from functrans.numpy.memory import Half
from functrans.numpy.operators import require_fit
from functrans.numpy.standard import casting_into, with_type_of
from functrans.numpy.ufunc_methods import UPDATES
from functrans.numpy.updates import At
from functrans.numpy.writable import (
    Fixed,
    Name,
    Writable,
    array_of,
    named,
    named_like,
    require_apart,
    require_order,
    view,
)

# Functions and methods whose results may be views.
_VIEW_METHODS = ("reshape", "transpose", "ravel", "squeeze", "swapaxes", "diagonal", "view")
_VIEW_FUNCTIONS = """
    transpose reshape ravel squeeze swapaxes diagonal moveaxis rollaxis expand_dims atleast_1d
    atleast_2d atleast_3d split array_split hsplit vsplit dsplit unstack flip fliplr flipud rot90
    broadcast_to broadcast_arrays permute_dims matrix_transpose diag ix_
"""
VIEWS = {getattr(np, name) for name in _VIEW_FUNCTIONS.split() if hasattr(np, name)}
VIEWS |= {np.linalg.diagonal, np.linalg.matrix_transpose}
VIEWS.add(np.lib.stride_tricks.sliding_window_view)
# They make a view, or return their operand, for some values of their options.
_MAYBE_VIEWS = {
    np.array: lambda args, kwargs: _keeps(kwargs.get("copy", True), args, kwargs),
    np.astype: lambda args, kwargs: _keeps(kwargs.get("copy", True), args, kwargs),
    **{f: lambda args, kwargs: _keeps(kwargs.get("copy"), args, kwargs) for f in (
        np.asarray, np.asanyarray, np.ascontiguousarray, np.asfortranarray, np.asarray_chkfinite,
    )},
    np.einsum: lambda args, kwargs: len(args) == 2,
    np.diff: lambda args, kwargs: kwargs.get("n", args[1] if len(args) > 1 else 1) == 0,
    np.meshgrid: lambda args, kwargs: kwargs.get("copy", True) is not True,
    np.linalg.matrix_power: lambda args, kwargs: kwargs.get("n", args[-1]) == 1,
    np.real_if_close: lambda args, kwargs: getattr(args[0], "dtype", np.dtype(complex)).kind != "c",
}
# Their results are arrays also where they have no axes; those of others are then numbers.
_CREATORS = {
    np.array, np.asarray, np.asanyarray, np.copy, np.zeros, np.ones, np.empty, np.full,
    np.zeros_like, np.ones_like, np.empty_like, np.full_like,
}
# NumPy's own functions: in a block of ``patch`` their names stand for others.
_OWN = SimpleNamespace(**{name: getattr(np, name) for name in (
    "copyto", "imag", "nan_to_num", "piecewise", "place", "put", "real",
)})
# They slice by values, or run code of the caller's, which may write: they work on names.
_ON_NAMES = {np.apply_along_axis, np.apply_over_axes, np.ndenumerate, np.trim_zeros}
WRITERS = {np.copyto, np.put, np.place, np.putmask, np.fill_diagonal, np.put_along_axis}


def _keeps(copy: Any, args: tuple, kwargs: dict) -> bool:
    """Whether an array may be handed back as it is, without a copy and in its dtype."""
    dtype = kwargs.get("dtype", args[1] if len(args) > 1 else None)
    given = getattr(args[0], "dtype", None) if args else None
    return copy is not True and (dtype is None or np.dtype(dtype) == given)


def all_plain(x: Any) -> bool:
    if isinstance(x, tuple | list):
        return all(map(all_plain, x))
    return x.is_plain() if type(x) is Writable else not isinstance(x, Tracer)


def _has_name(x: Any) -> bool:
    if isinstance(x, tuple | list):
        return any(map(_has_name, x))
    return isinstance(x, Name)


def windows(x: Any) -> AnyArray:
    if isinstance(x, tuple | list):
        return rebuilt(x, map(windows, x))
    return x.window if type(x) is Writable else current(x)


def _value(x: Any) -> Any:
    if isinstance(x, tuple | list):
        return rebuilt(x, map(_value, x))
    return current(x)


def has_axes(y: Any) -> bool:
    """Whether a result is an array of more than one order in memory."""
    return isinstance(y, Tracer | np.ndarray) and y.ndim > 1


def _apply(
    who: str, call: Callable, args: tuple, kwargs: dict, theirs: Callable | None = None
) -> Any:
    """A call of NumPy's of names: in their memory, or on their values."""
    out = kwargs.get("out")
    out = out[0] if isinstance(out, tuple) and len(out) == 1 else out
    options = {k: v for k, v in kwargs.items() if k != "out"}
    if isinstance(out, tuple):
        ys = _apply(who, call, args, options, theirs)
        return tuple([y if o is None else written_into(who, o, current(y))
                      for o, y in zip(out, ys, strict=True)])
    if all_plain(args) and all_plain(tuple(kwargs.values())):
        if type(out) is Writable:
            place = out.own_window()  # first: others may be views of what it replaces
            call(*windows(args), **{k: windows(v) for k, v in options.items()}, out=place)
            return out
        seen = windows(args)
        if out is not None:
            return call(*seen, **{k: windows(v) for k, v in options.items()}, out=out)
        y = call(*seen, **{k: windows(v) for k, v in options.items()})
        if type(y) is np.ndarray and (y.base is not None or any([y is w for w in seen])):
            part = _view_among(y, [x for x in args if type(x) is Writable])
            return named(y) if part is None else part
        return named(y)
    mask = options.pop("where", True) if type(out) is Writable else True
    values, named_values = _value(args), {k: _value(v) for k, v in options.items()}
    casting = "same_kind"
    if type(out) is Writable and not isinstance(theirs or call, np.ufunc):
        casting = casting_into(who, theirs or call, values, named_values, out)
        values, named_values = with_type_of(who, call, values, named_values, out)
    y = call(*values, **named_values)
    if out is not None:
        return written_into(who, out, y, current(mask), casting)
    if has_axes(y) and is_laid_out(theirs, args, options):
        return named_like(y, layout_of(theirs or call, args, options))
    return named(y)


def written_into(who: str, out: Any, y: Any, mask: Any = True,
                 casting: Any = "same_kind") -> Writable:
    """``out``, with ``y`` written into it where the mask holds."""
    if type(out) is not Writable:
        raise protocols.refused(who, "got out= that is a plain ndarray", protocols.USE_RESULT)
    y = y if isinstance(y, Tracer) else np.asarray(y)
    require_fit(who, out, y, casting)
    out.assign(y if mask is True else ops.where(mask, y, out.current()))
    return out


# ---- ufuncs and functions


def _array_ufunc(
    self: Tracer, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
) -> Any:
    if method == "__call__" and not kwargs:
        values = [x.value if isinstance(x, Name) else x for x in inputs]
        first = values[0]
        if isinstance(first, Tracer) and values[-1] is not None and len(values) <= 2 and not (
            is_ordered(values[-1])
        ):
            return named(protocols.array_ufunc(first, ufunc, method, *values))
    if method == "at":
        return _update(ufunc, *inputs)
    who = protocols.ufunc_name(ufunc) + ("" if method == "__call__" else f".{method}")
    return _apply(who, getattr(ufunc, method), inputs, kwargs)


def _update(ufunc: np.ufunc, target: Any, indices: Any, *values: Any) -> None:
    """``ufunc.at``: repeatedly where an index repeats."""
    if all_plain((target, indices, *values)):
        place = target.own_window() if type(target) is Writable else target
        ufunc.at(place, windows(indices), *windows(values))
        return
    if type(target) is not Writable:
        raise protocols.refused(
            f"{protocols.ufunc_name(ufunc)}.at", "writes into a plain ndarray",
            "make it with functrans.numpy.zeros or functrans.numpy.array",
        )
    if not values and all_plain(indices):
        _update_each(ufunc, target, windows(indices))
        return
    update = UPDATES.get(ufunc)
    if update is None or len(values) != 1:
        protocols.MAKERS["at"](ufunc)(target, indices)  # raises, and says what to do
    slot = At(target.current())[_value(indices)]
    target.assign(getattr(slot, str(update))(_value(values[0])))


def _update_each(ufunc: np.ufunc, target: Writable, indices: Any) -> None:
    """``ufunc.at`` of one operand: as often as an index is there."""
    places = np.arange(target.size).reshape(target.shape)[indices]
    each, times = np.unique(places, return_counts=True)
    for k in range(times.max(initial=0)):
        key = np.unravel_index(each[times > k], target.shape)
        target[key] = ufunc(target[key])


def _array_function(self: Tracer, func: Any, types: Any, args: tuple, kwargs: dict) -> Any:
    return _call(func, func, args, kwargs)


def _call(f: Callable, theirs: Any, args: tuple, kwargs: dict) -> Any:
    """A function of names, and NumPy's of that name, which says what are views."""
    who = f"np.{f.__name__}"
    if theirs in WRITERS and kwargs.get("inplace", True):
        return _write_by(theirs, *args, **kwargs)
    if theirs in _ON_NAMES:
        return named(protocols.FUNCTIONS[theirs](*args, **kwargs))
    if theirs is _OWN.piecewise and args[2:]:
        args = (*args[:2], [_of_names(g) if callable(g) else g for g in args[2]], *args[3:])
    if theirs in (_OWN.real, _OWN.imag) and isinstance(args[0], Name):
        return getattr(args[0], f.__name__)
    if theirs is _OWN.nan_to_num and kwargs.get("copy", True) is not True:
        return written_into(who, args[0], current(f(args[0], **{**kwargs, "copy": True})))
    if theirs in VIEWS or (theirs in _MAYBE_VIEWS and _MAYBE_VIEWS[theirs](args, kwargs)):
        return _views(who, f, theirs, args, kwargs)
    if isinstance(theirs, np.ufunc) and len(args) > theirs.nin:
        args, kwargs = args[: theirs.nin], {**kwargs, "out": args[theirs.nin :]}
    return _apply(who, f, args, kwargs, theirs)


def _of_names(g: Callable) -> Callable:
    return lambda *args, **kwargs: current(g(*map(named, args), **kwargs))


def _views(who: str, f: Callable, theirs: Callable, args: tuple, kwargs: dict) -> Any:
    """The results of a call as views of the memory of its operands, where NumPy makes them."""
    names = [x for x in args if type(x) is Writable]
    if not names and any([type(x) is Fixed for x in args]):
        return f(*_value(args), **{k: _value(v) for k, v in kwargs.items()})  # not to be written to
    if not names:
        return _apply(who, f, args, kwargs)
    parts = theirs(*windows(args), **{k: windows(v) for k, v in kwargs.items()})
    each = list(parts) if isinstance(parts, tuple | list) else [parts]
    views = [_view_among(x, names) for x in each]
    if any(v is None for v in views):  # copies, without entries, or of other operands
        plain = all_plain(args) and all_plain(tuple(kwargs.values()))
        y = named(parts) if plain else _apply(who, f, args, kwargs, theirs)
        copies = list(y) if isinstance(parts, tuple | list) else [y]
        views = [c if v is None else v for v, c in zip(views, copies, strict=True)]
    return rebuilt(parts, views) if isinstance(parts, tuple | list) else views[0]


def _view_among(part: Any, names: list[Writable]) -> Writable | None:
    """The name of a part of the memory of one of the names, or None."""
    if isinstance(part, Tracer):
        return None
    for x in names:
        if np.may_share_memory(part, x.memory.array):
            if part.dtype != x.dtype:
                raise UnsupportedError(
                    f"{user_line()}: a view of an array of {x.dtype} as {part.dtype} cannot be "
                    "written to by one name and read by the other. Use x.astype, x.real or x.imag."
                )
            return view(x.memory, part)
    return None


def _write_by(func: Callable, target: Any, *args: Any, **kwargs: Any) -> None:
    """A function that writes into its first operand."""
    if all_plain((target, *args, *kwargs.values())):
        place = target.own_window() if type(target) is Writable else target
        func(place, *windows(args), **{k: windows(v) for k, v in kwargs.items()})
        return
    changed = protocols.FUNCTIONS[func]
    if func is _OWN.copyto:
        require_order("np.copyto", target, args[0] if args else kwargs.get("src"))
    if func is _OWN.place:
        require_apart("np.place", target, args[-1] if args else kwargs.get("vals"))
    if type(target) is not Writable:
        return changed(current(target), *_value(args), **kwargs)  # raises, and says why
    values = {k: _value(v) for k, v in kwargs.items()}
    target.assign(changed(target.current(), *_value(args), inplace=False, **values))


def call(f: Callable, theirs: Any, args: tuple, kwargs: dict) -> Any:
    """A function of ``functrans.numpy``, and NumPy's own of that name."""
    if _has_name(args) or _has_name(tuple(kwargs.values())):
        y = _call(f, theirs, args, kwargs)
    else:
        y = f(*args, **kwargs)
        if _shares(y, args):
            return tree.map(plain, y)  # NumPy's own memory, where NumPy writes
    return array_of(y) if theirs in _CREATORS else named(y)


def _shares(y: Any, args: tuple) -> bool:
    """Whether results are views of arrays without names."""
    if isinstance(y, tuple | list):
        return any([_shares(part, args) for part in y])
    return isinstance(y, np.ndarray) and any([
        isinstance(x, np.ndarray) and np.may_share_memory(x, y) for x in args
    ])


# ---- methods


def _view_method(name: str) -> Callable:
    call = _named_method(name)

    def method(self: Writable, *args: Any, **kwargs: Any) -> Any:
        return _views(f"x.{name}", call, call, (self, *args), kwargs)

    return method


def _method(name: str) -> Callable:
    call = _named_method(name)

    def method(self: Writable, *args: Any, **kwargs: Any) -> Any:
        return _apply(f"x.{name}", call, (self, *args), kwargs)

    return method


def _named_method(name: str) -> Callable:
    return lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)


def _attribute(name: str) -> property:
    def get(self: Writable) -> Any:
        return named(getattr(self.window if self.is_plain() else self.current(), name))

    return property(get)


def _part(name: str) -> property:
    """``real`` and ``imag``: views of complex numbers; of real ones the array, and zeros."""

    def get(self: Writable) -> Any:
        if self.dtype.kind == "c":
            return view(Half(self, name))
        return self if name == "real" else np.zeros_like(self)

    def assign(self: Writable, value: Any) -> None:
        get(self)[...] = value

    return property(get, assign)


def _astype(self: Writable, dtype: Any, *args: Any, copy: bool = True, **kwargs: Any) -> AnyArray:
    if not copy and np.dtype(dtype) == self.dtype:
        return self
    return _method("astype")(self, dtype, *args, **kwargs)


def _copy(self: Writable, order: str = "C") -> Any:
    """The value that it has now under another name: written to, one of them gets a copy."""
    if self.is_plain() or order != "C":
        return _COPY(self, order)
    return named(self.current())


_COPY = _method("copy")


def _copying(name: str) -> Callable:
    """A method of what cannot be written to that makes an array which can be."""

    def method(self: Fixed, *args: Any, copy: bool = True, **kwargs: Any) -> Any:
        y = getattr(self.value, name)(*args, **kwargs)
        return named(y) if copy or y.dtype != self.dtype else self

    return method


def _sorting(name: str) -> Callable:
    def method(self: Writable, *args: Any, **kwargs: Any) -> None:
        if self.is_plain():
            getattr(self.own_window(), name)(*args, **kwargs)
        else:
            self.assign(getattr(np, name)(self.current(), *args, **kwargs))

    return method


def _fill(self: Writable, value: Any) -> None:
    if np.ndim(value):
        raise ValueError("setting an array element with a sequence.")  # as NumPy does
    self.assign(value)


def _put(self: Writable, indices: Any, values: Any, mode: str = "raise") -> None:
    _write_by(_OWN.put, self, indices, values, mode=mode)


def _flat(self: Writable) -> Any:
    y: Any = np.ravel(self)  # type: ignore[call-overload]  # a name, and what comes is one too
    if y.memory is self.memory:
        return y
    raise UnsupportedError(
        f"{user_line()}: x.flat of an array that is not contiguous. Use x.ravel() to read it, or "
        "write with x[...]."
    )


def _assign_flat(self: Writable, value: Any) -> None:
    if self.is_plain() and all_plain(value):
        self.own_window().flat = windows(value)  # type: ignore[misc]  # ndarray has a setter
        return
    require_apart("x.flat = values", self, value)
    v = np.ravel(value)
    if not v.size:
        return
    if v.size != self.size:
        v = v[np.arange(self.size) % v.size]
    self[...] = np.reshape(v, self.shape)


def _assign_shape(self: Writable, shape: Any) -> None:
    window = self.window.view()
    window.shape = shape
    self.see(self.memory, window)


def _conjugate(self: Name) -> AnyArray:
    return np.conjugate(self) if self.dtype.kind == "c" else self


def adopt(name: str, member: Any) -> None:
    """Give names the method or attribute that traced values have under this name."""
    if name in {*vars(Name), *vars(Writable), *_AS_TRACED}:  # its own, made of such, or refused
        return
    setattr(Writable, name, _attribute(name) if isinstance(member, property) else _method(name))


# ``at`` is made of what names have; the others would give away memory that changes.
_AS_TRACED = (
    "at", "base", "byteswap", "ctypes", "data", "getfield", "resize", "setfield",
)
MEMBERS: dict[type, dict[str, Any]] = {
    Name: {
        **{name: _view_method(name) for name in _VIEW_METHODS},
        "T": property(lambda self: self.transpose()),
        "mT": property(lambda self: self.swapaxes(-1, -2)),
        "astype": _astype,
        "conj": _conjugate,
        "conjugate": _conjugate,
        "__array_ufunc__": _array_ufunc,
        "__array_function__": _array_function,
    },
    Fixed: {
        # of what is not to be written to
        **{name: property(lambda self, name=name: getattr(self.value, name))
           for name in ("real", "imag")},
        **{name: _copying(name) for name in ("astype", "copy", "flatten", "__copy__")},
    },
    Writable: {
        **{name: _sorting(name) for name in ("sort", "partition")},
        **{name: _method(name) for name in ("item", "tolist")},
        "real": _part("real"),
        "imag": _part("imag"),
        "flat": property(_flat, _assign_flat),
        "shape": property(Writable.shape.fget, _assign_shape),
        "flags": property(Flags),
        "setflags": setflags,
        "strides": property(lambda self: self.window.strides),
        "fill": _fill,
        "put": _put,
        "copy": _copy,
    },
}
