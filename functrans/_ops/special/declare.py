"""How rows of ``scipy.special`` are declared: under SciPy's name, which is written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scipy import special as sp

from functrans._ops.declare import Elementwise, elementwise
from functrans._ops.special.arguments import refused


def ufunc(name: str, *actions: Callable | str | None, **options: Any) -> Elementwise:
    """Declare SciPy's ufunc of this name.

    A text in place of an action names an argument that has no derivative here. Compiled code calls
    what ``cython_special`` has under the name, unless ``libm`` or a formula says otherwise. With a
    domain, the slope is taken for infinite or undefined at its ends.
    """
    rules = [refused(f"scipy.special.{name}", a) if isinstance(a, str) else a for a in actions]
    if "libm" not in options and "formula" not in options:
        options.setdefault("cython", name)
    options.setdefault("singular", "domain" in options)
    return elementwise(f"special.{name}", getattr(sp, name), *rules, **options)


def part(name: str, of: str, k: int, *actions: Callable, **options: Any) -> Elementwise:
    """Declare the k-th of what SciPy's ufunc ``of`` returns, under a name of its own."""
    whole = getattr(sp, of)
    options.setdefault("cython", f"{of}.{k}")
    options.setdefault("singular", "domain" in options)
    return elementwise(f"special.{name}", lambda *xs: whole(*xs)[k], *actions, **options)
