"""Integers in the body of a loop that is staged once: affine in the indices of the loops around.

Python compares them, and where a comparison holds in some passes only it gets a ``Condition``,
which an ``if`` makes a branch of; anything else that decides by it raises ``Undecided``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NoReturn

import numpy as np

from functrans._compile.nest.forms import Form
from functrans.errors import user_line

# The nest that is written in this context.
building: ContextVar[Any] = ContextVar("building", default=None)


class WrittenOut(BaseException):
    """A loop is run by Python, pass by pass; ``why``, and ``line`` where that was found."""

    def __init__(self, why: str):
        self.why, self.line = why, user_line()
        self.body: Any = None  # the code of the innermost body that Python could run instead
        super().__init__(f"{self.line}: {why}")


class Undecided(BaseException):
    """Python decides by ``form >= 0`` for one of ``forms``, which holds in some passes only."""

    def __init__(self, *forms: Form):
        self.forms, self.line = forms, user_line()
        super().__init__(f"{self.line}: {forms} >= 0 in some passes only")


def current_builder() -> Any:
    b = building.get()
    if b is None:
        raise RuntimeError("an index or a value of a loop's body is used when the loop is over")
    return b


def stop(why: str) -> NoReturn:
    raise WrittenOut(why)


# ---- integers


class Condition:
    """``forms`` are all >= 0: a comparison of indices that holds in some passes."""

    def __init__(self, *forms: Form, negated: bool = False):
        self.forms, self.negated = forms, negated

    def __bool__(self) -> bool:
        raise Undecided(*self.forms)


class IndexValue:
    """An integer that is affine in the indices of the loops around."""

    __slots__ = ("form",)
    __array_ufunc__ = None

    def __init__(self, form: Form):
        self.form = form

    def __hash__(self) -> int:
        stop("an index is a key")

    def __index__(self) -> int:
        stop("Python needs the number of an index")

    __int__ = __float__ = __round__ = __trunc__ = __index__

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __format__(self, spec: str) -> str:
        stop("an index is formatted")

    __str__ = __index__  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<index {self.form}>"

    def _plus(self, sign: int, other: Any, own: int = 1) -> object:
        if isinstance(other, IndexValue):
            return index_value(self.form * own + other.form * sign)
        if isinstance(other, int | np.integer) and not isinstance(other, bool):
            return index_value(self.form * own + int(other) * sign)
        return None

    def __add__(self, other: Any) -> object:
        y = self._plus(1, other)
        return current_builder().apply(operator.add, self, other) if y is None else y

    def __radd__(self, other: Any) -> object:
        y = self._plus(1, other)
        return current_builder().apply(operator.add, other, self) if y is None else y

    def __sub__(self, other: Any) -> object:
        y = self._plus(-1, other)
        return current_builder().apply(operator.sub, self, other) if y is None else y

    def __rsub__(self, other: Any) -> object:
        y = self._plus(1, other, -1)
        return current_builder().apply(operator.sub, other, self) if y is None else y

    def __mul__(self, other: Any) -> object:
        if isinstance(other, int | np.integer) and not isinstance(other, bool):
            return index_value(self.form * int(other))
        return current_builder().apply(operator.mul, self, other)

    def __rmul__(self, other: Any) -> object:
        if isinstance(other, int | np.integer):
            return self * other
        return current_builder().apply(operator.mul, other, self)

    def __neg__(self) -> object:
        return index_value(-self.form)

    def __pos__(self) -> object:
        return self

    def _compare(self, test: Sequence[Form], negated: bool = False) -> object:
        b = current_builder()
        if all([b.proves(f) for f in test]):
            return not negated
        if any([b.proves(-f - 1) for f in test]):
            return negated
        return Condition(*test, negated=negated)

    def __eq__(self, other: Any) -> object:  # type: ignore[override]
        if not isinstance(other, int | np.integer | IndexValue | None):
            return current_builder().apply(operator.eq, self, other)
        d = _form(other)
        return False if d is None else self._compare([self.form - d, d - self.form])

    def __ne__(self, other: Any) -> object:  # type: ignore[override]
        if not isinstance(other, int | np.integer | IndexValue | None):
            return current_builder().apply(operator.ne, self, other)
        d = _form(other)
        return True if d is None else self._compare([self.form - d, d - self.form], True)


def _comparison(name: str, test: Callable[[Form, Form], Form]) -> Callable:
    python = getattr(operator, name)

    def compare(self: IndexValue, other: Any) -> object:
        d = _form(other)
        if d is None:
            return current_builder().apply(python, self, other)
        return self._compare([test(self.form, d)])

    return compare


for _name, _test in {"lt": lambda a, b: b - a - 1, "le": lambda a, b: b - a,
                     "gt": lambda a, b: a - b - 1, "ge": lambda a, b: a - b}.items():
    setattr(IndexValue, f"__{_name}__", _comparison(_name, _test))


def _form(x: Any) -> Form | None:
    if isinstance(x, IndexValue):
        return x.form
    return Form(int(x)) if isinstance(x, int | np.integer) else None


def index_value(form: Form) -> IndexValue | int:
    return IndexValue(form) if form.terms else form.c


def form_of(x: Any) -> Form:
    """An integer of Python's or an index as a form."""
    form = None if isinstance(x, bool) else _form(x)
    if form is None:
        raise WrittenOut("a place or bound is more than a sum of the loops' integers")
    return form


def _of_index(f: Callable, swapped: bool) -> Callable:
    """An operation that leaves what is affine."""

    def operation(self: IndexValue, other: Any) -> object:
        if f is operator.pow and (type(other) is not int or other < 0):
            stop("a power of an index")
        return current_builder().apply(f, *((other, self) if swapped else (self, other)))

    return operation


for _name in ("truediv", "floordiv", "mod"):
    for _place, _swapped in ((_name, False), (f"r{_name}", True)):
        setattr(IndexValue, f"__{_place}__", _of_index(getattr(operator, _name), _swapped))
setattr(IndexValue, "__pow__", _of_index(operator.pow, False))  # noqa: B010  # as the others
