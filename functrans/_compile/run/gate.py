"""A function in another's place: it calls that one, or a second where a context variable is set.

Python takes 100 to 200 ns to pass arguments on. CPython calls what is made here like a function
written in C: it asks the variable and hands the arguments over where they lie, in 30 ns.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

from functrans._compile.emit.entry_code import OFFSETS
from functrans._compile.lowering.numbers import fill
from functrans._compile.run.entry import Method, is_supported, new_function
from functrans._compile.run.machine import kept_native, local
from functrans._core.locks import compiler
from functrans._kernels.routines import address_of

METH_FASTCALL_KEYWORDS = 0x0080 | 0x0002
FUNCTIONS = ("PyContextVar_Get", "Py_DecRef", "PyObject_Vectorcall")

TEXT = """\
define internal ptr @at(ptr %x, i64 %offset) alwaysinline {
  %at = getelementptr i8, ptr %x, i64 %offset
  %y = load ptr, ptr %at
  ret ptr %y
}
define ptr @gate(ptr %self, ptr %args, i64 %count, ptr %names) {
  %variable = call ptr @at(ptr %self, i64 <variable>)
  %original = call ptr @at(ptr %self, i64 <original>)
  %other = call ptr @at(ptr %self, i64 <other>)
  %unset = call ptr @at(ptr %self, i64 <unset>)
  %array = call ptr @at(ptr %self, i64 <functions>)
  %functions = call ptr @at(ptr %array, i64 <data>)
  %get = load ptr, ptr %functions
  %release = call ptr @at(ptr %functions, i64 8)
  %call = call ptr @at(ptr %functions, i64 16)
  %place = alloca ptr
  store ptr %unset, ptr %place
  %status = call i32 %get(ptr %variable, ptr null, ptr %place)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %error, label %known
error:
  ret ptr null
known:
  %value = load ptr, ptr %place
  call void %release(ptr %value)
  %off = icmp eq ptr %value, %unset
  %f = select i1 %off, ptr %original, ptr %other
  %y = call ptr %call(ptr %f, ptr %args, i64 %count, ptr %names)
  ret ptr %y
}
"""


class Gate(tuple):
    """``(variable, original, other, None, functions)``: what the function has as its ``__self__``.

    Pickles as the module that the function belongs to, so that the function does so by its name.
    """

    home: str

    def __reduce__(self) -> tuple:
        return importlib.import_module, (self.home,)


def gate(variable: ContextVar, original: Callable, other: Callable, home: str) -> Callable:
    """``other`` where the variable is not None in the caller's context, else ``original``."""
    compiled = _function()
    if compiled is None:
        return _by_python(variable, original, other)
    engine, address, functions = compiled
    plan = Gate((variable, original, other, None, functions, engine))
    plan.home = home
    name, doc = original.__name__.encode(), original.__doc__
    doc = None if doc is None else doc.encode()  # which modules read when they are imported
    method = Method(name, address, METH_FASTCALL_KEYWORDS, doc)
    plan.kept = name, doc, method  # type: ignore[attr-defined]
    return new_function()(ctypes.addressof(method), plan, home)


def _by_python(variable: ContextVar, original: Callable, other: Callable) -> Callable:
    @functools.wraps(original, updated=())
    def either(*args: Any, **kwargs: Any) -> Any:
        return (original if variable.get() is None else other)(*args, **kwargs)

    return either


@kept_native
def _function() -> tuple[Any, int, np.ndarray] | None:
    """The compiled function, its address and those that it calls; None without native code."""
    if not is_supported():
        return None
    item, size = OFFSETS["tuple"], ctypes.sizeof(ctypes.c_void_p)
    words = {name: item + i * size
             for i, name in enumerate(("variable", "original", "other", "unset", "functions"))}
    words["data"] = OFFSETS["data"]
    with compiler():
        loaded = local().compile_own(fill(TEXT, words), ["gate"], "functions in others' places")
    known = [address_of(getattr(ctypes.pythonapi, name)) for name in FUNCTIONS]
    return loaded.code, address_of(loaded.functions["gate"]), np.array(known, np.uintp)
