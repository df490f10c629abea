"""What names in a kernel stood for when numba compiled it, which it does not look up again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numba.core import ir, types
from numba.core.dispatcher import Dispatcher

# Kernels that are being compiled, the innermost last; numba compiles one at a time.
compiling: list[Dispatcher] = []


def names_of(kernel: Dispatcher) -> dict[str, Any]:
    """Globals and closed-over variables as the newest version for floats has them.

    Of versions that were read from disk numba keeps none, and names stand for what they do now.
    """
    for kinds, compiled in reversed(kernel.overloads.items()):
        if any(map(_has_floats, kinds)) and compiled.type_annotation is not None:
            return dict(_read_in(compiled.type_annotation))
    return {}


def versions(kernel: Dispatcher) -> int:
    """How many versions of a kernel there are: it grows when names were read anew."""
    return len(kernel.overloads)


def _has_floats(kind: Any) -> bool:
    parts: Any = kind if isinstance(kind, types.BaseTuple) else ()
    if any(map(_has_floats, parts)):
        return True
    kind = getattr(kind, "dtype", kind)
    return isinstance(kind, types.Float | types.Complex)


def _read_in(text: Any) -> Iterator[tuple[str, Any]]:
    for block in getattr(text, "blocks", {}).values():
        for s in block.body:
            if isinstance(s, ir.Assign) and isinstance(s.value, ir.Global | ir.FreeVar):
                yield s.value.name, s.value.value
