"""``torch.return_types``: what functions of several results return."""

from __future__ import annotations

import functools
from collections import namedtuple
from typing import Any


@functools.cache
def return_type(name: str, fields: tuple[str, ...]) -> type:
    """The class of the results of the function ``name``, which prints as torch's does."""
    base = namedtuple(name, fields)  # type: ignore[misc]  # fields by the caller
    return type(name, (base,), {
        "__slots__": (), "__module__": "torch.return_types", "__repr__": _show,
        "__reduce__": lambda self: (_returned, (name, fields, tuple(self))),
    })


def _returned(name: str, fields: tuple[str, ...], results: tuple) -> Any:
    return return_type(name, fields)(*results)


def _show(self: Any) -> str:
    lines = [f"{f}={getattr(self, f)!r}" for f in self._fields]
    return f"torch.return_types.{type(self).__name__}(\n" + ",\n".join(lines) + ")"
