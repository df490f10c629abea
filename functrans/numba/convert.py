"""A kernel's Python, compiled for active numbers: the same code with other globals.

numba compiles a function's code with the objects that its names stand for. In a copy of the
function these are exchanged: NumPy's functions that make arrays for such that make active ones, and
compiled functions that it calls for copies of theirs. All arrays of floats that a kernel makes are
active.
"""

from __future__ import annotations

import functools
import itertools
import types as python_types
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic
from numba.np.ufunc.dufunc import DUFunc
from numba.np.ufunc.gufunc import GUFunc

from functrans._core.unswapped import unswapped
from functrans._transforms.staging.names import codes_inside
from functrans.errors import UnsupportedError
from functrans.numba.arrays import fresh, write
from functrans.numba.complexes import Pair
from functrans.numba.expressions import TapeCompiler
from functrans.numba.numbers import Active, Taped, for_kernels
from functrans.numba.source import line_of_call, names_of, require_pure, snapshot, versions
from functrans.numba.updates import KernelCompiler, entry_of, room_of

# Options of a kernel that its copies keep. Threads would race for the tape, and fast mathematics
# knows no NaN, by which a product with a zero is told.
KEPT = ("boundscheck", "error_model")


class Copies:
    """A kernel's copies, which are made once for all calls."""

    def __init__(self, kernel: Dispatcher, source: Dispatcher):
        """``source``: the user's, whose code and names ``kernel`` has."""
        self.kernel, self.source = kernel, source
        self.made: dict[tuple, tuple[Dispatcher, Conversion]] = {}
        # what names in kernels stood for, in all copies
        self.read: dict[Dispatcher, dict[str, Any]] = {}
        self.versions = self._versions()

    def _versions(self) -> int:
        return sum(map(versions, {self.source, *self.read}))

    def are_current(self) -> bool:
        """Whether the kernels have what names stood for here, in versions that are newer too."""
        found = self._versions()
        if found == self.versions:
            return True
        self.versions = found
        return all([_same(read.get(name, x), x) for kernel, read in self.read.items()
                    for name, x in names_of(kernel).items()])

    def of(
        self, element: Active | None, outs: tuple[int, ...], checked: bool
    ) -> tuple[Dispatcher, Conversion]:
        """The kernel for such numbers; with ``outs`` it returns these arguments beside its result.

        ``checked``: an index out of bounds raises, whatever the kernel's own options are. Functions
        that are arguments need the conversion too.
        """
        key = element, outs, checked
        if key not in self.made:
            with unswapped():
                self.made[key] = self._new(*key)
                self.versions = self._versions()
        return self.made[key]

    def _new(
        self, element: Active | None, outs: tuple[int, ...], checked: bool
    ) -> tuple[Dispatcher, Conversion]:
        conversion = Conversion(
            element, {"boundscheck": True} if checked else {}, self.read)
        copy = conversion.function(self.kernel, self.source)
        if not outs:
            return copy, conversion
        written = _pick(outs)

        def entry(*args):
            result = copy(*args)
            return result, written(args)

        return numba.njit(entry), conversion


def _pick(places: tuple[int, ...]) -> Any:
    """The entries of a tuple at these places, as a function for kernels."""

    @intrinsic
    def pick(typingctx: Any, args: Any) -> Any:
        target = types.Tuple([args[i] for i in places])

        def build(context: Any, builder: Any, signature: Any, values: Any) -> ir.Value:
            picked = [builder.extract_value(values[0], i) for i in places]
            y = context.make_tuple(builder, target, picked)
            context.nrt.incref(builder, target, y)
            return y

        return target(args), build

    return pick


class Conversion:
    """Objects that names in kernels stand for, as those of one element have them.

    Without an element kernels stay as they are, but refuse to write into read-only arrays.
    """

    def __init__(self, element: Active | None, options: dict[str, Any],
                 read: dict[Dispatcher, dict[str, Any]] | None = None):
        self.element, self.options = element, options
        # known to numba before it asks for them
        self.creators = {} if element is None else creators(element)
        self.copies: dict[Any, Any] = {}
        self.read = {} if read is None else read

    def of(self, x: Any) -> Any:
        """What stands for ``x`` in a copy."""
        if isinstance(x, Dispatcher):
            return self.function(x)
        if isinstance(x, python_types.ModuleType):
            return self.module(x)
        if isinstance(x, DUFunc | GUFunc) and self.element is not None:
            raise UnsupportedError(
                f"{line_of_call()}: `{x.__name__}`, a ufunc that numba made and a kernel names, "
                "has no derivative there. Compile its Python by numba.njit, and call that for "
                "each entry."
            )
        try:
            return self.creators.get(x, x)
        except TypeError:  # it cannot be hashed: an array
            return x

    def function(self, kernel: Dispatcher, source: Dispatcher | None = None) -> Dispatcher:
        """The copy of a kernel, with names that stand for what they do in that of the user."""
        if kernel in self.copies:
            return self.copies[kernel]
        require_pure(kernel.py_func)
        kept = (*KEPT, "fastmath") if self.element is None else KEPT
        options = {k: v for k, v in kernel.targetoptions.items() if k in kept} | self.options

        def compiled(copy: Any) -> Any:
            # entered before names are exchanged: a kernel may call itself
            self.copies[kernel] = numba.njit(
                copy, **options, pipeline_class=_compiler(self.element))
            return copy

        source = source or kernel
        if source not in self.read:
            read = _values(kernel.py_func) | names_of(source)
            self.read[source] = {name: snapshot(x) for name, x in read.items()}
        self.exchanged(kernel.py_func, compiled, self.read[source])
        return self.copies[kernel]

    def exchanged(
        self, f: Any, made: Callable = lambda copy: copy, read: dict[str, Any] | None = None
    ) -> Any:
        """A copy of a function, which ``made`` gets, with its names exchanged: ``read`` has them.
        """
        read = _values(f) if read is None else read
        names: dict[str, Any] = {}
        cells = tuple([python_types.CellType() for _ in f.__closure__ or ()])
        copy = python_types.FunctionType(f.__code__, names, f.__name__, f.__defaults__, cells)
        copy.__module__, copy.__qualname__ = f.__module__, f.__qualname__
        made(copy)
        found = {k: self.of(v) for k, v in read.items()}
        names.update({k: v for k, v in found.items() if k in _names(f.__code__)})
        names["__name__"] = f.__globals__.get("__name__")
        for cell, name in zip(cells, f.__code__.co_freevars, strict=True):
            cell.cell_contents = found[name]
        return copy

    def module(self, module: python_types.ModuleType) -> python_types.ModuleType:
        if module.__name__ == "math" or module.__name__.startswith(("numpy.", "numba")):
            return module
        if module not in self.copies:
            self.copies[module] = Module(module, self)
        return self.copies[module]


_modules = itertools.count()


class Module(python_types.ModuleType):
    """A module whose functions are those of a conversion."""

    def __init__(self, module: python_types.ModuleType, conversion: Conversion):
        # numba tells modules by their names
        super().__init__(f"{module.__name__} of {conversion.element}, {next(_modules)}")
        self.of = lambda name: conversion.of(getattr(module, name))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.of(name)


@functools.cache
def _compiler(element: Active | None) -> type:
    """numba's compiler for kernels with such numbers."""
    base = TapeCompiler if isinstance(element, Taped) else KernelCompiler
    if element is not None:  # made before numba compiles, which does not learn of them meanwhile
        entry_of(element)
        room_of(element)
    return type(base.__name__, (base,), {"element": element})


def _names(code: python_types.CodeType) -> set[str]:
    """The global names in a function and in those inside of it."""
    return set(code.co_names).union(*map(_names, codes_inside(code)))


def _values(f: Any) -> dict[str, Any]:
    """What the names in a function stand for now."""
    names = {k: v for k, v in f.__globals__.items() if k in _names(f.__code__)}
    cells = zip(f.__code__.co_freevars, f.__closure__ or (), strict=True)
    return names | {k: cell.cell_contents for k, cell in cells}


def _same(a: Any, b: Any) -> bool:
    """Whether two objects are the same to a compiler."""
    if a is b:
        return True
    if type(a) is type(b) is np.ndarray:
        alike = (a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides)
        return alike and a.tobytes() == b.tobytes()
    plain = isinstance(a, int | float | complex | np.generic | str | tuple)
    return plain and type(a) is type(b) and repr(a) == repr(b)


# ---- functions that make arrays


def _is_float(dtype: Any) -> bool:
    """Whether an array of such a dtype, as it is written in a kernel, has floats."""
    if dtype is None or isinstance(dtype, types.Omitted | types.NoneType):
        return True
    return _number(dtype) is float


def _is_complex(dtype: Any) -> bool:
    return _number(dtype) is complex


def _number(dtype: Any) -> Any:
    """The number of Python's that a dtype is of, if it is one."""
    if isinstance(dtype, types.Function):
        return dtype.typing_key
    kind = getattr(dtype, "instance_type", None) or getattr(dtype, "dtype", None)
    if isinstance(kind, types.Float | Active):
        return float
    return complex if isinstance(kind, types.Complex | Pair) else None


@functools.cache
def creators(element: Active) -> dict[Any, Any]:
    """NumPy's functions that make arrays, and what takes their place for such numbers."""
    reals, pairs = fresh(element), fresh(Pair(element))

    @for_kernels
    def zeros(shape, dtype=None):
        if not (_is_float(dtype) or _is_complex(dtype)):
            return lambda shape, dtype=None: np.zeros(shape, dtype)
        make = pairs if _is_complex(dtype) else reals
        if isinstance(shape, types.Integer):
            return lambda shape, dtype=None: make((shape,))
        return lambda shape, dtype=None: make(shape)

    @for_kernels
    def full(shape, value, dtype=None):
        floats = isinstance(value, types.Float | Active)
        if not (floats if dtype in (None, types.none) else _is_float(dtype)):
            return lambda shape, value, dtype=None: np.full(shape, value, dtype)

        def filled(shape, value, dtype=None):
            y = zeros(shape)
            y[...] = value
            return y

        return filled

    @for_kernels
    def ones(shape, dtype=None):
        if not _is_float(dtype):
            return lambda shape, dtype=None: np.ones(shape, dtype)
        return lambda shape, dtype=None: full(shape, 1.0)

    return {np.zeros: zeros, np.empty: zeros, np.full: full, np.ones: ones,
            **_alike(zeros, full, ones), **_diagonal(reals, pairs), **_of_sequences(element, zeros)}


def _diagonal(reals: Any, pairs: Any) -> dict[Any, Any]:
    """The same for functions that make a matrix with ones on a diagonal."""

    @for_kernels
    def eye(N, M=None, k=0, dtype=None):
        make = pairs if _is_complex(dtype) else reals
        if not (_is_float(dtype) or _is_complex(dtype)):
            return lambda N, M=None, k=0, dtype=None: np.eye(N, M, k, dtype)

        def diagonal(N, M=None, k=0, dtype=None):
            y = make((N, N if M is None else M))
            for i in range(max(0, -k), min(N, y.shape[1] - k)):
                y[i, i + k] = 1.0
            return y

        return diagonal

    @for_kernels
    def identity(n, dtype=None):
        return lambda n, dtype=None: eye(n, n, 0, dtype)

    return {np.eye: eye, np.identity: identity}


def _alike(zeros: Any, full: Any, ones: Any) -> dict[Any, Any]:
    """The same for functions that take the shape of an array."""

    def floats(x: Any, dtype: Any) -> bool:
        return _is_float(x if dtype in (None, types.none) else dtype)

    @for_kernels
    def zeros_like(x, dtype=None):
        if isinstance(x, types.Array) and floats(x, dtype):
            return lambda x, dtype=None: zeros(x.shape)
        return lambda x, dtype=None: np.zeros_like(x, dtype)

    @for_kernels
    def ones_like(x, dtype=None):
        if isinstance(x, types.Array) and floats(x, dtype):
            return lambda x, dtype=None: ones(x.shape)
        return lambda x, dtype=None: np.ones_like(x, dtype)

    @for_kernels
    def full_like(x, value, dtype=None):
        if isinstance(x, types.Array) and floats(x, dtype):
            return lambda x, value, dtype=None: full(x.shape, value * 1.0)
        return lambda x, value, dtype=None: np.full_like(x, value, dtype)

    return {np.zeros_like: zeros_like, np.empty_like: zeros_like, np.ones_like: ones_like,
            np.full_like: full_like}


def _entry_type(x: Any) -> Any:
    """The type of what a list or tuple has."""
    return x.dtype if isinstance(x, types.List | types.UniTuple) else None


def _of_sequences(element: Active, zeros: Any) -> dict[Any, Any]:
    """The same for functions that copy numbers into an array."""

    @for_kernels
    def array(x):
        if isinstance(x, types.Array):
            if not _is_float(x):
                return lambda x: np.copy(x)

            def copied(x):
                y = zeros(x.shape)
                write(y, x)
                return y

            return copied

        def gathered(x):
            y = zeros(len(x))
            for k, v in enumerate(x):
                y[k] = v
            return y

        def rows(x):
            y = zeros((len(x), len(x[0])))
            for k, row in enumerate(x):
                if len(row) != y.shape[1]:
                    raise ValueError("array: the rows differ in length")
                for m, v in enumerate(row):
                    y[k, m] = v
            return y

        entry = _entry_type(x)
        if isinstance(entry, types.Float | Active):
            return gathered
        if isinstance(_entry_type(entry), types.Float | Active):
            return rows
        return lambda x: np.array(x)

    return {np.array: array, np.copy: array}
