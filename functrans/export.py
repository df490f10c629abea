"""Compiled functions without their Python: files, and libraries for C."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from functrans._compile.lowering.numbers import Rounding
from functrans._transforms.arguments import require_callable
from functrans._transforms.derived import surfacing
from functrans._transforms.staging.jit import Jitted
from functrans.errors import ArgumentError, name_of

if TYPE_CHECKING:
    from functrans._export.exported import Exported


@surfacing
def export(f: Callable, *examples: Any) -> Exported:
    """``f`` compiled for arguments like the examples: a function that needs no Python of yours.

    The result is called with arguments of those structures, shapes and dtypes. ``.save(path)``
    writes it to a file for ``load``; ``.c_source_header()`` and ``.shared_library(path)`` make it a
    function of C. What ``f`` reads beside its arguments is part of it, as it is now.

    Raises UnsupportedError where ``f`` cannot be compiled as a whole.

    >>> import functrans as ft, numpy as np
    >>> gradient = ft.export(ft.grad(lambda x: np.sum(x**3)), np.ones(3))
    >>> gradient(np.array([1.0, 2.0, 3.0]))
    Array([ 3., 12., 27.])
    >>> gradient
    <<lambda>(float64[3]), exported>
    """
    require_callable("export", f)
    if not examples:
        raise ArgumentError(
            f"export: `{name_of(f)}` is compiled for arguments like the examples; give some"
        )
    from functrans._export.exported import export  # lazy: the whole compiler

    return export(f, Jitted(f, (), (), Rounding()), examples)


def load(path: str | os.PathLike) -> Exported:
    """The function that ``.save(path)`` has written, on a machine of the same kind.

    The file is data and machine code, which is run when the function is called: a file that others
    may write to, or that is not as it was written, is refused (ArgumentError).
    """
    from functrans._export.exported import load  # lazy: the whole compiler

    return load(path)


__all__ = ["export", "load"]
