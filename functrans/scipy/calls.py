"""What SciPy's solvers are given: functions of numbers, and exact derivatives, compiled."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from functrans import tree
from functrans._core.bind import AnyArray, Tracer
from functrans._transforms.matrices.jacobian import jacobian
from functrans._transforms.mutation import follow
from functrans._transforms.staging.jit import jit
from functrans._transforms.staging.names import names_read
from functrans.errors import ConcretizationError, NotDifferentiable, UnsupportedError
from functrans.scipy.implicit import DENSE, PLAIN, concrete
from functrans.scipy.programs import Called
from functrans.scipy.public import is_traced
from functrans.scipy.shared import Values, find_shared, forget_shared, of_numbers

T = TypeVar("T")
DIFFERENCES = "SciPy takes differences of it with jac='2-point'."
# Where a function has what was compiled of it, by the derivative that it is.
KEPT = "__functrans_derivatives__"
DOUBLE = np.dtype(np.float64)
# Arguments that a compiled derivative may be called with; others choose its code.
VALUES = (np.ndarray, np.floating, np.complexfloating, float, complex, Tracer)


class TracedResult(Exception):
    """A function that was to return plain numbers alone returned a traced value."""


def plain_only(f: Any, variables: int | None = None) -> Any:
    """``f``, of this many ``variables`` if that is known, which raises TracedResult where it
    returns a traced value: the call is SciPy's own as long as nothing is traced.
    """
    if not callable(f) or isinstance(f, types.BuiltinFunctionType):
        return f  # constants, functions in C

    def checked(y: object) -> object:
        if is_traced(y):
            raise TracedResult
        return y

    def of_one(x: object) -> object:
        y = f(x)
        return y if type(y) in PLAIN else checked(y)

    def of_several(*xs: object) -> object:
        y = f(*xs)
        return y if type(y) in PLAIN else checked(y)

    return of_one if variables == 1 else of_several


class Numbers:
    """``f`` as SciPy may call it: of numbers, also where it closes over traced values."""

    def __init__(self, f: Callable):
        self.__wrapped__ = f  # SciPy counts the parameters
        self.f = f.of_numbers() if isinstance(f, Called) else of_numbers(f)
        # whether what it has returned was not plain
        self.traced = isinstance(f, Called) and f.traced

    def depends_on(self, args: Any, *at: Any, **named: Any) -> bool:
        """Whether derivatives may be taken of what it has returned, had ``args`` been traced; what
        it closes over counts if it returns something traced ``at`` these numbers.
        """
        if is_traced(args):
            return True
        if not self.traced and self.f is not self.__wrapped__:
            with np.errstate(all="ignore"):
                self.plain(self.__wrapped__(*at, **named))
        return self.traced

    def closes_over(self, args: Any) -> bool:
        """The same wherever it is called."""
        return self.traced or self.f is not self.__wrapped__ or is_traced(args)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        y = self.f(*args, **kwargs)
        return y if type(y) in PLAIN else self.plain(y)

    def plain(self, y: Any) -> Any:
        """``y``, numbers in a container or not, without derivatives."""
        if not is_traced(y):
            return y
        self.traced = True
        return concrete(y)


class Derivative(Numbers):
    """``way(f, *xs, *args)``, a derivative of ``f``, as SciPy may call it, compiled if it can be.

    It takes the first ``arity`` arguments: ``args``, which SciPy passes after them, are known here.
    What is compiled is kept with ``f``, so that the next solve finds it. Raises Underivable where
    ``f`` takes plain numbers alone; at once if that is known, unless it is to be tried ``again``.
    """

    def __init__(self, way: Callable, f: Callable, args: tuple = (), arity: int = 1, *,
                 again: bool = False):
        super().__init__(f)
        self.way, self.args, self.arity = way, args, arity
        if OPAQUE and not again and self._kind() in OPAQUE:
            raise Underivable
        self.native: Callable | None = None
        self.values: Values | None = None
        self.calls, self.waits = 0, False  # until there have been some calls
        self.traced = self.traced or self.f is not f
        if isinstance(self.f, Called):
            self.native = self.f.derivative(way, arity, args)
        elif all([isinstance(x, VALUES) for x in args]):
            self._find_native()
        else:  # flags, counts and texts choose what is compiled
            self.native = jit(lambda *xs: way(follow(f), *xs[:arity], *args))

    def __call__(self, *args: Any) -> Any:
        xs = [*map(_float_copy, args[: self.arity])]
        if self.values is not None:
            if not self.values.hold():
                self._find_native()
        elif self.waits:
            self.calls += 1
            if self.calls == FEW:
                self._find_native()
        if self.native is not None:
            try:
                y = self.native(*xs, *self.args)
                if is_traced(y):
                    self.native = None  # staged at each call, for what the closure holds
                return _writable(self.plain(y))
            except (ConcretizationError, UnsupportedError):
                self.native = None  # Python's control flow, and what has no program
                if forget_shared(self.way, self.f):
                    self._find_native()
                    return self(*args)
                self.values = None
        try:
            return _writable(self.plain(self.way(follow(self.f), *xs, *self.args)))
        except (ConcretizationError, UnsupportedError) as error:
            error.add_note(DIFFERENCES)
            _remember(self._kind())
            raise Underivable from error
        except NotDifferentiable as error:
            error.add_note(DIFFERENCES)
            raise

    def _find_native(self) -> None:
        shared = find_shared(self.way, self.f)
        self.values = None
        if shared is not None:
            native, self.values = shared
            self.native = functools.partial(native, *map(concrete, self.values))
        else:
            self.waits = self.calls < FEW and not _meet(self.f)
            self.native = None if self.waits else _find_or_compile(self.way, self.f)

    def _kind(self) -> tuple:
        return self.way, _kind_of(self.f), *map(_kind_of, self.args)


# Kinds of functions that took plain numbers alone when a derivative was tried: the next solve does
# not try again. Emptied when there are many.
OPAQUE: set[tuple] = set()
MOST = 1024


def _remember(kind: tuple) -> None:
    if len(OPAQUE) >= MOST:
        OPAQUE.clear()
    OPAQUE.add(kind)


# What stands for itself among what a function uses; of other values the type does.
NAMED = (types.ModuleType, types.BuiltinFunctionType, type, np.ufunc, str, bool, int, type(None))


def _kind_of(x: Any, depth: int = 2) -> object:
    """What a function shares with others that are derivable or not for the same reasons: its code,
    and the functions, modules, flags and types of values that it uses.
    """
    if type(x) is types.FunctionType:
        return _kind_of_function(x, depth - 1) if depth else x.__code__
    if isinstance(x, functools.partial):
        return _kind_of(x.func, depth), *[_kind_of(v, 0) for v in x.args]
    if isinstance(x, types.MethodType):
        return _kind_of(x.__func__, depth), type(x.__self__)
    if isinstance(x, Called):
        return x.staged
    return x if isinstance(x, NAMED) else type(x)


def _kind_of_function(f: types.FunctionType, depth: int) -> tuple:
    values = f.__globals__
    used = [values[n] for n in sorted(names_read(f.__code__).globals) if n in values]
    return (
        f.__code__,
        *[_kind_of_cell(c, depth) for c in f.__closure__ or ()],
        *[_kind_of(v, depth) for v in f.__defaults__ or ()],
        # a number may be a count: that is no flag
        *[type(v) if type(v) is int else _kind_of(v, 0) for v in used],
    )


def _kind_of_cell(cell: types.CellType, depth: int) -> object:
    try:
        return _kind_of(cell.cell_contents, depth)
    except ValueError:  # not bound yet
        return None


class _Derivatives:
    """The compiled derivatives of one function; a copy of the function begins with none."""

    __slots__ = ("of", "owner")

    def __init__(self, owner: Callable | None = None):
        self.owner, self.of = owner, {}

    def __reduce__(self) -> tuple:
        return _Derivatives, ()


# Calls of a derivative that no other function shares, before it is compiled for the first solve.
FEW = 20


def _meet(f: Callable) -> bool:
    """Whether what is compiled of ``f`` will be found again: it was met by an earlier solve."""
    if type(f) is not types.FunctionType:
        return False
    if not (f.__closure__ or f.__defaults__ or f.__kwdefaults__ or vars(f)):
        return True
    met = _derivatives_of(f) is not None
    if not met:
        vars(f)[KEPT] = _Derivatives(f)
    return met


def _derivatives_of(f: types.FunctionType) -> _Derivatives | None:
    kept = vars(f).get(KEPT)
    return kept if kept is not None and kept.owner is f else None  # functools.wraps copies it


def _find_or_compile(way: Callable, f: Callable) -> Callable:
    """The compiled ``way`` of ``f``, kept for as long as the function, or one like it, is there."""
    if type(f) is not types.FunctionType:
        return _compile(way, f)
    if not (f.__closure__ or f.__defaults__ or f.__kwdefaults__ or vars(f)):
        return _of_code(way, _Code(f))
    kept = _derivatives_of(f)
    if kept is None:
        kept = vars(f)[KEPT] = _Derivatives(f)
    if way not in kept.of:
        kept.of[way] = _compile(way, f)
    return kept.of[way]


def keep_compiled(way: Callable, f: Callable) -> functools.partial | None:
    """``way`` of ``f``, also of the traced values that it closes over, compiled when it is called,
    and kept; None: not for the next solve.
    """
    shared = find_shared(way, f)
    if shared is not None:
        return functools.partial(shared[0], *shared[1])
    return functools.partial(_find_or_compile(way, f)) if _meet(f) else None


def _compile(way: Callable, f: Callable) -> Callable:
    return jit(functools.partial(way, follow(f)))


class _Code:
    """A function that is nothing but its code and its globals, equal to others of these."""

    __slots__ = ("f",)

    def __init__(self, f: types.FunctionType):
        self.f = f

    def __hash__(self) -> int:
        return hash((id(self.f.__code__), id(self.f.__globals__)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Code) and (
            self.f.__code__ is other.f.__code__ and self.f.__globals__ is other.f.__globals__)


@functools.lru_cache(64)
def _of_code(way: Callable, code: _Code) -> Callable:
    return _compile(way, code.f)


class Underivable(Exception):
    """A function that a derivative was wanted of takes plain numbers alone."""


def exactly(solve: Callable[[bool], T], wanted: bool = True) -> T:
    """``solve(True)``, with exact derivatives, if they are wanted and its functions have them.

    Otherwise ``solve(False)``, in which SciPy takes differences.
    """
    if not wanted:
        return solve(False)
    try:
        return solve(True)
    except Underivable:
        return solve(False)


def jacobian_at(f: Callable, x: Any, *args: Any) -> AnyArray:
    """The Jacobian of ``f`` in its first argument."""
    return jacobian(f)(x, *args)


def slopes_of(f: Callable, x: Any, args: tuple, known: bool = False) -> Callable | None:
    """The Jacobian of the equations ``f`` at flat numbers like ``x``, if it is compiled; it is
    ``known`` where SciPy was given it.
    """
    slopes = None
    if np.size(x) <= DENSE:
        slopes = compiled_if_met(jacobian_at, f, args, known)
    return slopes and (lambda z: slopes(z.reshape(np.shape(x))).reshape(z.size, z.size))


def compiled_if_met(way: Callable, f: Callable, args: tuple, known: bool = False
                    ) -> Callable | None:
    """``way`` of ``f`` at numbers, where code for it exists or pays: in a program, and where the
    function, or one like it, has been met before.
    """
    if isinstance(f, Called):
        known = f.captured is not None
    else:
        shared = find_shared(way, f)
        if shared is None:
            kept = _derivatives_of(f) if type(f) is types.FunctionType else None
            known = kept is not None and way in kept.of
        elif not known:
            known = shared[0] in MET
            MET[shared[0]] = True
    if not known:
        return None
    try:
        derivative = Derivative(way, f, args)
    except Underivable:
        return None

    def of_numbers(*xs: np.ndarray) -> Any:
        try:
            return derivative(*xs)
        except Underivable:  # from now on this is known
            return concrete(way(f, *xs, *args))

    return of_numbers


# What has been compiled, or could have been.
MET: WeakKeyDictionary[Callable, bool] = WeakKeyDictionary()


def _float_copy(x: Any) -> np.ndarray:
    """A float copy of an argument: SciPy writes into its own."""
    if type(x) is np.ndarray and x.dtype is DOUBLE:
        return x.copy()
    return np.array(x, np.result_type(np.asarray(x).dtype, np.float32))


def _writable(y: Any) -> Any:
    return np.array(y) if isinstance(y, np.ndarray) else tree.map(np.array, y)


def as_args(args: Any) -> tuple:
    """SciPy's ``args``: one that is no tuple is the only one."""
    return args if isinstance(args, tuple) else (args,)
