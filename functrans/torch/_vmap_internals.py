"""``torch._vmap_internals``: ``vmap`` under the name by which other packages import it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from functrans.torch._batching import vmap


def _vmap(func: Callable, in_dims: Any = 0, out_dims: Any = 0,
          allow_none_pass_through: bool = False) -> Callable:
    """``vmap``; with ``allow_none_pass_through`` results of ``func`` may be None.

    >>> from functrans import torch
    >>> _vmap(lambda x: (x * 2, None), allow_none_pass_through=True)(torch.ones(2))
    (tensor([2., 2.]), None)
    """
    if not allow_none_pass_through:
        return vmap(func, in_dims, out_dims)

    @functools.wraps(func, updated=())
    def batched(*args: Any) -> Any:
        given: list[bool] = []

        def present(*xs: Any) -> tuple:
            out = func(*xs)
            outs = out if isinstance(out, tuple | list) else (out,)
            given[:] = [isinstance(out, tuple | list), *[y is not None for y in outs]]
            return tuple([y for y in outs if y is not None])

        found = iter(vmap(present, in_dims, out_dims)(*args))
        outs = tuple([next(found) if known else None for known in given[1:]])
        return outs if given[0] else outs[0]

    return batched

