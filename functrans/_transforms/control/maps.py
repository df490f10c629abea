"""``map``: one function of each row after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from functrans._transforms.arguments import require_callable
from functrans._transforms.control.scan import scan
from functrans._transforms.derived import surfacing
from functrans._transforms.vmap import vmap


@surfacing
def map(f: Callable, xs: Any, *, batch_size: int | None = None) -> Any:
    """``f(x)`` for each entry ``x`` of ``xs`` along axis 0, stacked: ``y[k] = f(x[k])``.

    ``f`` takes an array or a container; ``xs`` is an array, or a container of arrays of the same
    length n along axis 0. ``batch_size`` entries go through ``vmap`` at once; without it each is
    computed after the other, in memory for one.

    Returns what ``f`` does, with a new axis 0 of length n. Under ``jit`` it is one loop.

    Raises ShapeError where lengths disagree.

    >>> import functrans as ft, numpy as np
    >>> ft.map(lambda x: x * x, np.arange(4.0))
    Array([0., 1., 4., 9.])
    """
    f = require_callable("map", f)
    if batch_size is not None:
        return vmap(f, chunk_size=batch_size)(xs)
    return scan(lambda _, x: (None, f(x)), None, xs)[1]
