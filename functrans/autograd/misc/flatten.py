"""Containers as one vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans import tree
from functrans.autograd import numpy as anp
from functrans.autograd._names import missing


def flatten(value: Any) -> tuple[Any, Callable]:
    """All numbers in a nested list, tuple or dict as one vector, and the way back.

    Dicts go by their sorted keys. Both are differentiable.

    >>> from functrans.autograd.misc import flatten
    >>> vector, unflatten = flatten({"w": [1.0, 2.0], "b": 3.0})
    >>> vector
    array([3., 1., 2.])
    >>> unflatten(vector * 2)["w"] == [2.0, 4.0]
    True
    """
    leaves, nesting = tree.flatten(value)
    shapes = [np.shape(x) for x in leaves]
    ends = np.cumsum([int(np.prod(s)) for s in shapes], dtype=int).tolist()
    size = ends[-1] if ends else 0

    def unflatten(vector: Any) -> Any:
        if np.shape(vector) != (size,):
            raise ValueError(f"unflatten: expected a vector of {size} numbers, but got "
                             f"shape {np.shape(vector)}")
        parts = [vector[end - int(np.prod(s)) : end] for s, end in zip(shapes, ends, strict=True)]
        return tree.unflatten(nesting, [p.reshape(s) if s else p[0]
                                        for p, s in zip(parts, shapes, strict=True)])

    vector = anp.concatenate([anp.ravel(x) for x in leaves]) if leaves else np.array([])
    return vector, unflatten


def flatten_func(func: Callable, example: Any) -> tuple[Callable, Callable, Any]:
    """``func``, which maps containers to containers, as one of vectors; the way back; the vector.
    """
    vector, unflatten = flatten(example)

    def flat(x: Any, *args: Any) -> Any:
        return flatten(func(unflatten(x), *args))[0]

    return flat, unflatten, vector


__all__ = ["flatten", "flatten_func"]
__getattr__ = missing(__name__)
