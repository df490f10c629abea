"""What ``patch`` puts in the places of functions of NumPy, ``math``, ``cmath`` and SciPy."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ExtensionFileLoader
from types import FrameType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.random  # compiled code that is to be found

from functrans import numpy as fnp
from functrans import tree
from functrans._compile.run.gate import gate
from functrans._core.bind import Tracer
from functrans._core.patching import patched
from functrans._core.scipy_names import NAMES
from functrans._core.writing import hand, writing
from functrans._patch import swaps as mathematics
from functrans._patch.swaps import Group, Swap, add, shield
from functrans.errors import PACKAGE, ConcretizationError, package_of_frame
from functrans.numpy.writable import Writable
from functrans.scipy.programs import handed_parts
from functrans.scipy.public import is_traced

_LIBRARIES = frozenset({"numpy", "scipy"})
_STEPPERS = ("scipy.integrate.", "scipy.optimize.")
# Its products leave the operand to traced values, which say no when they are to be an ndarray.
_ASKS = "scipy.sparse."
# They make arrays of nothing, which will be written into.
_MAKERS = frozenset({"zeros", "empty", "ones", "full"} | {
    f"{name}_like" for name in ("zeros", "empty", "ones", "full")
})


def _is_open(frame: FrameType | None, args: tuple, kwargs: dict, makes: bool = False) -> bool:
    """Whether a call is one of the user's, in a block, that may see traced values.

    ``frame`` is that of the caller. Our own calls are not, nor those of libraries that we call. A
    library that the user calls gets what NumPy would give it where nothing is traced, so that its
    compiled code can take it; but SciPy's steppers write traced values into the arrays they make.
    """
    if not patched.get():
        return False
    if frame and frame.f_code.co_filename == gate.__code__.co_filename:
        frame = frame.f_back  # a gate that is not compiled
    package = package_of_frame(frame) if frame else ""
    if package in _LIBRARIES:
        module = frame.f_globals["__name__"] if frame else ""
        if module.startswith(_ASKS):
            return False
        if not (makes and module.startswith(_STEPPERS)) and not is_traced((args, kwargs)):
            return False
        while frame and package_of_frame(frame) in _LIBRARIES:
            frame = frame.f_back
    return frame is None or not frame.f_code.co_filename.startswith(PACKAGE)


def _either(original: Callable, ours: Callable, makes: bool = False) -> Callable:
    """``ours`` for the user's calls in a block, else ``original``."""

    def either(*args: Any, **kwargs: Any) -> Any:
        f = ours if _is_open(sys._getframe(1), args, kwargs, makes) else original
        return f(*args, **kwargs)

    return either


def _gate(module: ModuleType, name: str, other: Callable) -> Swap:
    """``other`` in the place of a function, while a function with names runs."""
    original = getattr(module, name)
    return Swap(module, name, original, gate(writing, original, other, module.__name__))


def _stood_in(module: ModuleType, name: str, ours: Callable) -> Swap:
    """A stand-in in the place of a class."""
    original = getattr(module, name)
    return Swap(module, name, original, StandIn.of(original, ours))


# ---- NumPy


def _of_numpy() -> list[Swap]:
    swaps = [
        _vectorize(), _index(np.r_, lambda original, self, key: fnp.r_.of(self)[key]),
        _index(np.mgrid, lambda original, self, key: hand(original(self, key))),
        *_of_math(), *_of_compiled(),
    ]
    swaps.append(_stood_in(np, "ndenumerate", fnp.ndenumerate))
    swaps += [_stood_in(np.random, name, getattr(fnp.random, name))
              for name in ("Generator", "RandomState")]
    spaces = ((np, fnp), (np.linalg, fnp.linalg), (np.fft, fnp.fft), (np.emath, fnp.emath),
              (np.random, fnp.random))
    for theirs, ours in spaces:
        for name in ours.__all__:
            original: Any = getattr(theirs, name, None)
            mine = getattr(ours, name)
            if _is_function(original) and not isinstance(mine, type):
                swaps.append(_gate(theirs, name, _either(original, mine, name in _MAKERS)))
    return swaps


def _of_compiled() -> Iterator[Swap]:
    """``numpy`` as compiled modules see it, whose arrays have to be ndarrays: without these swaps.

    Such code has no frames: its calls look like those of the Python code that calls it.
    """
    before = ModuleType("numpy")
    vars(before).update(vars(np))
    for module in list(sys.modules.values()):
        loader = getattr(getattr(module, "__spec__", None), "loader", None)
        if isinstance(loader, ExtensionFileLoader):
            for name, x in list(vars(module).items()):
                if x is np:
                    yield Swap(module, name, x, before)


def _is_function(x: Any) -> bool:
    """Whether a name of NumPy's is that of a function which does not dispatch by itself."""
    return callable(x) and not isinstance(x, np.ufunc | type)


def _vectorize() -> Swap:
    """Objects of ``np.vectorize``, those that exist already too."""
    original = np.vectorize.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        inside = writing.get() is not None and _is_open(sys._getframe(1), args, kwargs)
        if not inside or not is_traced((args, kwargs)):
            try:
                return original(self, *args, **kwargs)
            except ConcretizationError:
                if not inside:
                    raise  # else the function gives traced values, for what it closes over
        same = fnp.vectorize(self.pyfunc, self.otypes, None, self.excluded, False, self.signature)
        return same(*args, **kwargs)

    return Swap(np.vectorize, "__call__", original, call)


def _index(x: Any, ours: Callable[[Any, Any, Any], Any]) -> Swap:
    """Indexing of objects of one class, as ``np.r_`` and ``np.c_`` are, and ``np.mgrid`` and
    ``np.ogrid``."""
    kind = next(k for k in type(x).__mro__ if "__getitem__" in vars(k))
    original = kind.__getitem__

    def getitem(self: Any, key: Any) -> Any:
        inside = writing.get() is not None and _is_open(sys._getframe(1), (), {})
        return ours(original, self, key) if inside else original(self, key)

    return Swap(kind, "__getitem__", original, getitem)


# ---- Python's math and cmath


def _of_math() -> Iterator[Swap]:
    for module, functions in mathematics.FUNCTIONS.items():
        for name, ours in functions.items():
            original = getattr(module, name, None)
            if original is not None:
                yield _gate(module, name, _of_traced(original, ours))


def _of_traced(original: Callable, ours: Callable) -> Callable:
    """``ours`` where an argument is traced, in a block; it is Python's numbers else."""

    def either(*args: Any, **kwargs: Any) -> Any:
        traced = is_traced((args, kwargs)) and _is_open(sys._getframe(1), args, kwargs)
        return (ours if traced else original)(*args, **kwargs)

    return either


# ---- SciPy


def _of_scipy(namespace: str) -> list[Swap]:
    theirs = sys.modules[f"scipy.{namespace}"]
    swaps = []
    for name in NAMES[namespace].ours.split():
        original: Any = getattr(theirs, name, None)
        if isinstance(original, FunctionType) or type(original).__module__ == "uarray":
            swaps.append(_gate(theirs, name, _either(original, _counterpart(namespace, name))))
        elif isinstance(original, type):
            swaps.append(_stood_in(theirs, name, _counterpart(namespace, name)))
    return swaps + (_distributions(theirs) if namespace == "stats" else [])


def _counterpart(namespace: str, name: str) -> Callable:
    def ours(*args: Any, **kwargs: Any) -> Any:
        module = importlib.import_module(f"functrans.scipy.{namespace}")
        args, kwargs = tree.map(lambda x: x, (args, kwargs))  # values, not names for arrays
        return handed_parts(getattr(module, name)(*args, **kwargs))

    return ours


class StandIn:
    """In the place of a class: it makes objects of ours for the user's calls in a block.

    For all else it is the class, whose instances both are.
    """

    original: type
    ours: Callable

    @classmethod
    def of(cls, original: type, ours: Callable) -> StandIn:
        self = object.__new__(cls)
        self.original, self.ours = original, ours
        functools.update_wrapper(self, original, updated=())
        return self

    @property
    def __init__(self) -> Any:  # type: ignore[override]  # of the class, which others call
        return self.original.__init__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        inside = writing.get() is not None and _is_open(sys._getframe(1), args, kwargs)
        return (self.ours if inside else self.original)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)

    def __instancecheck__(self, x: Any) -> bool:
        kind = type(x)
        ours = kind.__name__ == self.original.__name__ and kind.__module__.startswith("functrans.")
        return ours or isinstance(x, self.original)

    def __subclasscheck__(self, kind: type) -> bool:
        return issubclass(kind, self.original)

    def __mro_entries__(self, bases: tuple) -> tuple[type]:
        return (self.original,)

    def __reduce__(self) -> tuple:
        return _itself, (self.original,)


def _itself(original: type) -> type:
    return original


def _distributions(theirs: ModuleType) -> list[Swap]:
    """The methods of distributions, which are objects: those that exist already have them too."""
    objects = {n: getattr(theirs, n) for n in NAMES["stats"].ours.split()}
    objects = {n: x for n, x in objects.items() if not isinstance(x, FunctionType | type)}
    known = {id(x): n for n, x in objects.items()}
    swaps: dict[tuple[type, str], Swap] = {}
    for kind in map(type, objects.values()):
        for method in _METHODS:
            owner = next((k for k in kind.__mro__ if method in vars(k)), None)
            if owner is not None and (owner, method) not in swaps:
                swaps[owner, method] = _method(owner, method, known)
    return list(swaps.values())


_METHODS = (
    "__call__", "pdf", "logpdf", "pmf", "logpmf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf",
    "mean", "var", "std", "entropy",
)


def _method(owner: type, name: str, known: dict[int, str]) -> Swap:
    original = vars(owner)[name]

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        ours = known.get(id(self)) if writing.get() is not None else None
        if ours is None or not is_traced((args, kwargs)) or not _is_open(
            sys._getframe(1), args, kwargs
        ):
            return original(self, *args, **kwargs)
        return getattr(getattr(importlib.import_module("functrans.scipy.stats"), ours), name)(
            *args, **kwargs
        )

    return Swap(owner, name, original, functools.wraps(original)(method))


# ---- modules that have imported such functions by name


class _Kind(type):
    """The type of ``Float``: it stands for Python's type in all but identity."""

    def __call__(cls, *args: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], Tracer) and _is_open(
            sys._getframe(1), args, {}
        ):
            return _number(args[0])
        return float(*args)

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, float) or _is_float(x)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, float)

    def __eq__(cls, other: object) -> bool:
        return other is float or other is Float

    def __hash__(cls) -> int:
        return hash(float)


class Float(float, metaclass=_Kind):
    """``float`` in a module that is patched by name: a traced number stays one."""

    dtype = np.dtype(float)


def _is_float(x: Any) -> bool:
    """Whether a traced value stands for a float of Python's or NumPy's, no array without axes."""
    return (isinstance(x, Tracer) and not isinstance(x, Writable) and not x.shape
            and x.dtype == np.float64 and writing.get() is not None)


def _number(x: Tracer) -> Any:
    if x.size != 1:
        raise TypeError("only length-1 arrays can be converted to Python scalars")
    if x.dtype.kind == "c":
        raise TypeError("float() argument must be a string or a real number, not 'complex'")
    return x.reshape(()).astype(float)  # type: ignore[attr-defined]  # from functrans.numpy


class _Numpy(ModuleType):
    """``numpy`` in a module that is patched by name: traced arrays are of its ``ndarray``."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @property
    def ndarray(self) -> type:
        return np.ndarray if writing.get() is None else fnp.ndarray


_NUMPY = _Numpy("numpy")


def of_module(module: ModuleType) -> Callable[[], list[Swap]]:
    """What is in the place of names that a module has imported, and of ``float``."""

    def make() -> list[Swap]:
        there = {id(s.original): s.other for group in (NUMPY, *_SCIPY.values())
                 for s in group.swaps if isinstance(s.owner, ModuleType)}
        there |= {id(np): _NUMPY, id(np.ndarray): fnp.ndarray}
        swaps = [Swap(module, name, x, there[id(x)])
                 for name, x in vars(module).items() if id(x) in there]
        return swaps if "float" in vars(module) else [*swaps, add(module, "float", Float)]

    return make


NUMPY = Group(_of_numpy)
_SCIPY = {namespace: Group(functools.partial(_of_scipy, namespace)) for namespace in NAMES}
_modules: WeakKeyDictionary[ModuleType, Group] = WeakKeyDictionary()


def groups(modules: tuple[ModuleType, ...]) -> list[Group]:
    """What a block changes: it is made when it is entered first."""
    shield()
    scipy = [group for name, group in _SCIPY.items() if f"scipy.{name}" in sys.modules]
    own = [_modules.setdefault(m, Group(of_module(m))) for m in modules]
    return [NUMPY, *scipy, *own]
