"""What a function computes, as a Program to be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from functrans import tree
from functrans._compile.ir.program import Program
from functrans._core.array import plain
from functrans._core.places import placed
from functrans._transforms.arguments import is_number, require_callable
from functrans._transforms.reach import Reach, RefusingDraws
from functrans._transforms.staging.staging import stage
from functrans.errors import name_of


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
