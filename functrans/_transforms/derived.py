"""What transforms return: functions that say what they are of."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any

from functrans.errors import name_of


class Derived(functools.partial):
    """``call``, which a transform ``who`` made of ``f``: shown as ``<grad of loss>``.

    A partial without arguments: C code calls it, and what looks into functions knows partials.
    Name, docstring and signature are those of ``f``.
    """

    who: str
    __wrapped__: Callable

    def __new__(cls, who: str, f: Callable, call: Callable) -> Derived:
        call.__wrapped__ = f  # type: ignore[attr-defined]  # what looks for what it reads goes on
        self = super().__new__(cls, call)
        functools.update_wrapper(self, f, updated=())
        self.who = who
        return self

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __copy__(self) -> Derived:
        return self  # as functions are

    def __deepcopy__(self, memo: dict) -> Derived:
        return self

    def __repr__(self) -> str:
        return f"<{_text(self)}>"


def _text(f: Any) -> str:
    """``grad of hessian of loss``."""
    parts = []
    while isinstance(f, Derived):
        parts.append(f.who)
        f = f.__wrapped__
    return " of ".join([*parts, name_of(f)])


__all__ = ["Derived"]
