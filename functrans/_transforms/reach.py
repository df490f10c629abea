"""The generators that a function may draw from, and what it computes, as a Program to be read."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from operator import is_
from types import (
    BuiltinMethodType,
    CellType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple

import numpy as np

from functrans import tree
from functrans._compile.ir.program import Program, aval_of_atom
from functrans._core.array import Aval, plain
from functrans._core.plain import placed
from functrans._transforms.arguments import is_number, require_callable
from functrans._transforms.mutation import Callees, named
from functrans._transforms.staging.environment import Environment
from functrans._transforms.staging.generators import (
    NOTHING,
    OF_NUMPYS,
    Draws,
    held_by,
    is_generator,
    of_numpy,
)
from functrans._transforms.staging.names import (
    attributes_of,
    entries_of,
    in_context,
    is_of_others,
    is_others,
    package_of,
)
from functrans._transforms.staging.staging import stage
from functrans.errors import name_of

# ---- The generators of random numbers that a function may draw from, as far as names tell
#
# A transform for which one run of a function serves for many, such as ``vmap``, refuses to draw: it
# would be one draw for all. ``jit`` has its own walk, of all that a function reads.

OTHERS = "others for each batch of directions, which is a run of its own"
_METHODS = (BuiltinMethodType, MethodType, ModuleType)


# What is noted of a holder in place of a name: how many attributes it has, its entries that lead
# on, what a variable of a closure or of a context stands for.
_COUNT, _ENTRIES, _CELL, _CONTEXT = "len()", "values()", "cell_contents", "in_context()"


class Place(NamedTuple):
    """Where something was met, and what; None where that leads nowhere."""

    holder: Any
    name: str
    met: Any


class Reach(Callees):
    """A function and those that it may call, and the generators that it may draw from, by label.

    ``libraries`` are the installed packages whose functions are among them: these are not followed.
    """

    def __init__(self, function: Any, *given: Any):
        super().__init__(function)
        self.generators: dict[str, Any] = {}
        self.libraries: set[str] = set()
        self._function, self._given = function, given
        self._drawn_from: list[Any] = []
        self._modules: list[ModuleType] = []
        self._places: list[Place] = []

    def finish(self) -> Reach:
        """Look at all that has not been looked at, and at what functions of ours are made of."""
        self._meet(self._given)
        before = None
        while self._todo or before != len(self._modules):
            before = len(self._modules)
            for _ in self:
                pass
            if "random" in self._names:
                of_numpy()  # NumPy imports it when it is used first
            inside = [x for m in self._modules for x in named(vars(m), self._names)
                      if issubclass(type(x), _METHODS)]
            closed, self.closed = self.closed, []
            self._meet([*inside, *[x for f in closed for x in _hold(f)]])
        if not self._names.isdisjoint(OF_NUMPYS - {"random"}):
            self._drawn_from.append(of_numpy())
        if self._drawn_from:
            known = Environment(self._function, *self._given).generators
            labels = {id(g): label for label, g in known.items()}
            self.generators = {labels.get(id(g), repr(g)): g for g in self._drawn_from}
        return self

    def current(self) -> Reach:
        """This, where all that was met still stands where it was, else what is in reach now."""
        if not self.unknown and all(map(self._is_there, self._places)):
            return self
        return Reach(self._function, *self._given).finish()

    def given(self, arguments: list[Any]) -> Reach:
        """This with what the function is called with: that may lead to generators as well."""
        if all(map(self._is_closed, arguments)):
            return self
        return Reach(self._function, *arguments).finish()

    def _is_there(self, place: Place) -> bool:
        holder, name, met = place
        if name == _COUNT:
            return len(holder) == met
        if name == _ENTRIES:
            now = self._open(holder)
            return len(now) == len(met) and all(map(is_, now, met))
        if name == _CONTEXT:
            return in_context(holder) is met
        try:
            x = holder.cell_contents if name == _CELL else holder.get(name)
        except ValueError:  # not assigned any more
            return False
        return x is met or (met is None and self._is_closed(x))

    def _open(self, container: Any) -> list[Any]:
        return [x for x in tuple(entries_of(container)) if not self._is_closed(x)]

    def _is_closed(self, x: Any) -> bool:
        if type(x) is BuiltinMethodType:
            return not is_generator(x.__self__)
        if type(x) is np.ndarray:
            return x.dtype.kind != "O"
        return super()._is_closed(x) and not is_of_others(type(x))

    def _is_foreign(self, module: Any) -> bool:
        foreign = super()._is_foreign(module)
        package = str(module).partition(".")[0]
        if foreign and is_others(package):
            self.libraries.add(package)
        return foreign

    def _parts(self, v: Any) -> Iterable[Any]:
        if is_generator(v):
            self._drawn_from.append(v)
        if issubclass(type(v), BuiltinMethodType):
            return [v.__self__]
        if type(v) is np.ndarray:
            return v.flat
        if issubclass(type(v), ModuleType) and self._is_foreign(vars(v).get("__name__")):
            self._modules.append(v)
            return ()
        if issubclass(type(v), ContextVar):
            self._note(v, _CONTEXT, in_context(v))
        if issubclass(type(v), MethodType):
            return [*super()._parts(v), v.__self__]
        if issubclass(type(v), dict | list | set | deque):
            self._places.append(Place(v, _ENTRIES, self._open(v)))
        elif (attributes := attributes_of(v)) is not None:
            self._places.append(Place(attributes, _COUNT, len(attributes)))
            return [*super()._parts(v), *self._named(attributes, held_by(v, attributes))]
        return super()._parts(v)

    def _named(self, space: Mapping[str, Any], names: Iterable[str]) -> list[Any]:
        for name in space.keys() & names:
            self._note(space, name, space[name])
        return super()._named(space, names)

    def _inside(self, cells: Iterable[CellType]) -> list[Any]:
        for cell in cells:
            self._note(cell, _CELL, cell.cell_contents)
        return super()._inside(cells)

    def _note(self, holder: Any, name: str, x: Any) -> None:
        if not self._is_closed(x):
            self._places.append(Place(holder, name, x))
        elif type(holder) is not MappingProxyType:  # a class
            self._places.append(Place(holder, name, None))


class RefusingDraws:
    """A block in which a function is run; it raises at its end if the function has drawn.

    ``why`` says of the numbers what would be wrong with them; ``known`` has the states of
    generators after draws that are made anew each time.
    """

    __slots__ = ("draws", "known", "name", "reach", "why")

    def __init__(
        self, reach: Reach, name: str, why: str, known: Mapping[int, object] = NOTHING
    ):
        self.reach, self.name, self.why, self.known = reach, name, why, known

    def __enter__(self) -> None:
        self.draws = Draws(self.reach.generators, self.reach.libraries)

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is None:
            self.draws.refuse(self.name, self.why, self.reach.current().generators, self.known)


def of_one_draw(f: Callable, name: str, image: Callable) -> Callable:
    """``image``, each call of which runs ``f``; it raises where a later run draws again."""
    ran = False

    def run(ts: Any) -> Any:
        nonlocal ran
        if ran:
            with RefusingDraws(Reach(f).finish(), name, OTHERS):
                return image(ts)
        y = image(ts)
        ran = True
        return y

    return run


def _hold(f: Any) -> list[Any]:
    """What a function that is not the user's holds: a partial its arguments, ours the user's."""
    if issubclass(type(f), functools.partial):
        return [f.func, *f.args, *f.keywords.values(), getattr(f, "__wrapped__", None)]
    if not issubclass(type(f), FunctionType) and package_of(type(f)) != "functrans":
        return [f]
    inside = (attributes_of(f) or {}).values()  # what it wraps among them
    return [x for x in inside if callable(x) and not issubclass(type(x), type)]


# ---- What a function computes, as a Program to be read


def make_program(f: Callable) -> Callable[..., Program]:
    """The function that writes down what ``f`` computes: ``make_program(f)(*args)`` is a Program.

    Arguments give structure, shapes and dtypes; leaves that are not numbers are passed as they are.

    >>> import functrans as ft, numpy as np
    >>> print(ft.make_program(lambda x: np.sum(x * 2.0))(np.ones(3)).eqns[0].prim)
    multiply
    """
    require_callable("make_program", f)

    def written(*args: Any, **kwargs: Any) -> Program:
        leaves, structure = tree.flatten((args, kwargs))
        numbers = [i for i, x in enumerate(leaves) if is_number(x)]

        def flat(*values: Any) -> Any:
            a, k = tree.unflatten(structure, placed(values, numbers, leaves))
            return f(*a, **k)

        name = f"make_program({name_of(f)})"
        reach = Reach(f, *[x for x in leaves if not is_number(x)]).finish()
        with RefusingDraws(reach, name, "the same each time that it runs"):
            return stage(flat, [plain(leaves[i]) for i in numbers], name)[0]

    return written


def eval_shape(f: Callable, *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of what ``f(*args, **kwargs)`` returns, which is not computed.

    ``f`` takes arrays and containers of them; for an array, anything may be given that has a
    ``shape`` and a ``dtype``.

    Returns what ``f`` does, with an object that has ``shape`` and ``dtype`` for each array.

    Raises ConcretizationError where ``f`` decides by values.

    >>> import functrans as ft, numpy as np
    >>> ft.eval_shape(lambda A, b: (A @ b, np.sum(b)), np.ones((2, 3)), np.ones(3))
    (float64[2], float64[])
    """
    require_callable("eval_shape", f)
    structures: list[tree.Structure] = []

    def flat(*args: Any, **kwargs: Any) -> list:
        leaves, structure = tree.flatten(f(*args, **kwargs))
        structures.append(structure)
        return leaves

    args, kwargs = tree.map(_stand_in, (args, kwargs))
    program = make_program(flat)(*args, **kwargs)
    types = [ShapeDtype(aval_of_atom(a)) for a in program.outputs]
    return tree.unflatten(structures[-1], types)


class ShapeDtype:
    """The shape and dtype of an array; to ``ft.tree`` a leaf, as the array is."""

    __slots__ = ("dtype", "shape")

    def __init__(self, aval: Aval):
        self.shape, self.dtype = aval

    def __repr__(self) -> str:
        return repr(Aval(self.shape, self.dtype))


def _stand_in(x: Any) -> Any:
    """An array of a shape and dtype, in the memory of one number; what has none, as it is."""
    if is_number(x) or not (hasattr(x, "shape") and hasattr(x, "dtype")):
        return x
    return np.broadcast_to(np.ones((), x.dtype), x.shape)
