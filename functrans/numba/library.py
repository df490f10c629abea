"""The kernels that stand for NumPy's functions, as numba finds them for active numbers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from numba.core import types
from numba.extending import overload, overload_method

from functrans.numba import joining, matrices, products  # noqa: F401  # enter their functions
from functrans.numba.arrays import ActiveArray, fresh
from functrans.numba.complexes import Pair, part_of
from functrans.numba.convert import Conversion
from functrans.numba.functions import FUNCTIONS, METHODS, new
from functrans.numba.inputs import InputArray
from functrans.numba.numbers import Kept, Taped
from functrans.numba.overloads import CALLED_BY_KERNELS
from functrans.numba.places import TapeCompiler
from functrans.numba.updates import KernelCompiler


class FunctionCompiler(TapeCompiler):
    """For whatever numbers the operands have."""

    def define_pipelines(self) -> list:
        on_tape = isinstance(_element(_numbers(self.state.args)), Taped)
        return (TapeCompiler if on_tape else KernelCompiler).define_pipelines(self)


def _numbers(kinds: Any) -> list[Any]:
    """The types of the numbers in operands."""
    found = []
    for k in kinds:
        if isinstance(k, types.BaseTuple):
            found += _numbers(k)
        elif isinstance(k, types.Array | types.List):
            found += _numbers([k.dtype])
        else:
            found.append(k)
    return found


def _element(numbers: list[Any]) -> Kept | None:
    part = part_of(*[k for k in numbers if isinstance(k, Kept | types.Number | types.Boolean)])
    of_complex = any(isinstance(k, Pair | types.Complex) for k in numbers)
    return Pair(part) if part is not None and of_complex else part


@functools.cache
def _conversion(element: Kept) -> Conversion:
    part: Any = element.part if isinstance(element, Pair) else element
    conversion = Conversion(part, CALLED_BY_KERNELS)
    conversion.creators = conversion.creators | {new: fresh(element)}
    return conversion


def _typer(signed: Callable, choose: Callable) -> Callable:
    signature = inspect.signature(signed)

    def typer(*args: Any, **kwargs: Any) -> Callable | None:
        bound = signature.bind(*args, **kwargs)
        kinds = list(bound.arguments.values())
        element = _element(_numbers(kinds))
        kernel = None if element is None else choose(*kinds)
        return None if kernel is None else _conversion(element).exchanged(kernel)

    typer.__signature__ = signature  # type: ignore[attr-defined]  # read by inspect
    typer.__name__ = typer.__qualname__ = signed.__name__  # what errors say
    return typer


def _enter() -> None:
    """Before numba's own, which may take such arrays for what they are not."""
    options: Any = {**CALLED_BY_KERNELS, "pipeline_class": FunctionCompiler}
    for f, (signed, choose) in FUNCTIONS.items():
        overload(f, jit_options=options, target="cpu", prefer_literal=True)(_typer(signed, choose))
    for name, (signed, choose) in METHODS.items():
        for kind in (ActiveArray, InputArray):
            overload_method(kind, name)(_typer(signed, choose))


_enter()
