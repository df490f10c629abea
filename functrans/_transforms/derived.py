"""Functions that transforms return: they say what they are of, and pickle as their call."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from types import MethodType
from typing import Any, NoReturn, TypeVar

from functrans._core.writing import handed_to, writing
from functrans.config import FULL, settings
from functrans.errors import UnsupportedError, name_of, shorten

F = TypeVar("F", bound=Callable)


class ByValue:
    """A function that pickles by its global name, or by how it was made where it has none.

    ``by_value`` is the second, for other processes, which have no names of ``__main__``.
    """

    __slots__ = ()

    def by_value(self) -> tuple:
        """What ``__reduce__`` returns without a name."""
        raise NotImplementedError

    def __reduce__(self) -> tuple | str:
        return global_name(self) or self.by_value()


def surface(error: Exception) -> None:
    """Before an error leaves a transform: let it show the user's frames alone, unless all were
    asked for. The frame that calls this, to raise again, is among those that go.
    """
    if isinstance(error, TypeError | AttributeError):
        if found := _OURS.search(str(error)):
            explain(error, found[1])
        elif found := _SEQUENCE.search(str(error)):
            add_note(error, f"A {found[1] or found[2]} of numbers stays one under a transform, "
                            "which traces its entries. For arithmetic, pass np.array(x).")
    if settings().tracebacks != FULL:
        shorten(error)


def explain(error: Exception, kind: str) -> None:
    """Say what the class is that Python or compiled code names in an error."""
    note = (
        f"{kind} is a traced array of functrans, which NumPy's functions take. For other code "
        "there are ft.stop_gradient(x), its value without a derivative, and ft.external(f)."
    )
    add_note(error, note)


def add_note(error: Exception, note: str) -> None:
    """Add a note, once."""
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


# A container among the operands, as Python names it.
_SEQUENCE = re.compile(r"unsupported operand .*'(list|tuple)'|bad operand .*'(list|tuple)'")
# Classes of traced values, as Python names them.
_OURS = re.compile(r"(?:'|\bfrom |\btype )(Fixed|Writable|[A-Z]\w*Tracer)\b")


def surfacing(f: F) -> F:
    """``f``, whose errors show the user's frames."""

    fixed = not getattr(f, "hands_on", False)

    @functools.wraps(f)
    def public(*args: Any, **kwargs: Any) -> Any:
        try:
            y = f(*args, **kwargs)
        except Exception as error:
            surface(error)
            raise
        return y if writing.get() is None else handed_to(sys._getframe(1), y, fixed)

    return public  # type: ignore[return-value]  # of the same signature


class Derived(ByValue, functools.partial):
    """``call``, which a transform made of ``f``: shown as ``<grad of loss>``.

    A partial without arguments: C code calls it, and what looks into functions knows partials.
    Name, docstring and signature are those of ``f``; ``origin`` are the transform and what it was
    called with.
    """

    origin: tuple[Callable, tuple, dict]
    __wrapped__: Callable

    def __new__(cls, call: Callable, f: Callable, origin: tuple[Callable, tuple, dict]) -> Derived:
        call.__wrapped__ = f  # type: ignore[attr-defined]  # what looks for what it reads goes on
        self = functools.partial.__new__(cls, call)
        functools.update_wrapper(self, f, updated=())
        self.origin = origin
        for name in ("explain", "memory"):  # of what knows how it will go about it
            if hasattr(call, name):
                setattr(self, name, getattr(call, name))
        return self

    def memory(self, *args: Any, **kwargs: Any) -> int:
        """The bytes that a call is expected to take at most, beside its arguments.

        The function's program is written down, so it must not decide by the values.
        """
        from functrans._transforms.staging.peaks import of_call  # lazy: it is built on this module

        return of_call(self, args, kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Derived | MethodType:
        return self if instance is None else MethodType(self, instance)

    def __copy__(self) -> Derived:
        return self  # as functions are

    def __deepcopy__(self, memo: dict) -> Derived:
        return self

    def __repr__(self) -> str:
        return f"<{_text(self)}>"

    def by_value(self) -> tuple:
        return _derive, self.origin


class OfRun(functools.partial):
    """``call``, which reads what one run of a function has recorded: a pullback, say.

    Shown as ``<pullback of loss>``. It does not pickle, for its recording would not be that of the
    arrays and functions which the other side has.
    """

    of: str

    def __new__(cls, call: Callable, of: str) -> OfRun:
        self = functools.partial.__new__(cls, call)
        functools.update_wrapper(self, call, updated=())
        self.of = of
        return self

    def __get__(self, instance: Any, owner: type | None = None) -> OfRun | MethodType:
        return self if instance is None else MethodType(self, instance)

    def __copy__(self) -> OfRun:
        return self  # as functions are

    def __deepcopy__(self, memo: dict) -> OfRun:
        return self

    def __repr__(self) -> str:
        return f"<{name_of(self)} of {self.of}>"

    def __reduce__(self) -> NoReturn:
        raise UnsupportedError(
            f"a {name_of(self)} of `{self.of}` holds what one run has recorded, which does not "
            f"pickle. Send `{self.of}` and its arguments, and make it on the other side."
        )


def deriving(transform: F) -> F:
    """Decorator of a transform, a function of ``f`` that returns a function.

    What the transform returns has the name, docstring and signature of ``f``, is shown as
    ``<double of loss>``, pickles as the call that made it, and shows the user's frames alone in
    tracebacks. Without ``f`` the transform is a decorator, as in ``@double(offset=1.0)``.

    >>> import functrans as ft, numpy as np
    >>> @deriving
    ... def double(f, offset=0.0):
    ...     return lambda *args: 2 * f(*args) + offset
    >>> double(np.sin)
    <double of sin>
    >>> ft.grad(double(np.sin))(0.0)
    Array(2.)
    """

    @surfacing
    @functools.wraps(transform)
    def transformed(*args: Any, **kwargs: Any) -> Any:
        if not args and "f" not in kwargs:
            return functools.partial(transformed, **kwargs)
        f = args[0] if args else kwargs["f"]
        return Derived(surfacing(transform(*args, **kwargs)), f, (transformed, args, kwargs))

    return transformed  # type: ignore[return-value]  # of the same signature


def _derive(transform: Callable, args: tuple, kwargs: dict) -> Any:
    return transform(*args, **kwargs)


def global_name(x: Any) -> str | None:
    """The name under which the module of ``x`` has it, as that of a decorated function."""
    name = getattr(x, "__qualname__", "")
    place: Any = sys.modules.get(getattr(x, "__module__", None) or "")
    for part in name.split("."):
        place = getattr(place, part, None)
    return name if place is x else None


def _text(f: Any) -> str:
    """``grad of hessian of loss``."""
    parts = []
    while isinstance(f, Derived):
        parts.append(name_of(f.origin[0]))
        f = f.__wrapped__
    return " of ".join([*parts, name_of(f)])
