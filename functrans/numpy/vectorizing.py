"""``vectorize`` and ufuncs of ``np.frompyfunc``: Python functions of entries, applied to arrays.

The function is called once for each entry, as in NumPy, so it may branch on values. If it does not,
``ft.vmap`` needs only one call.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.array import Array
from functrans.errors import ArgumentError, ConcretizationError
from functrans.numpy.protocols import MAKERS
from functrans.numpy.structure import as_operand, is_traced, reshape

_CORE = re.compile(r"\(([^()]*)\)")


class vectorize:  # NumPy's name
    """A Python function of numbers as a function of arrays, as in ``np.vectorize``.

    >>> import functrans as ft, functrans.numpy as fnp, numpy as np
    >>> f = fnp.vectorize(lambda x: x**2 if x > 0 else -x)
    >>> ft.grad(lambda x: f(x).sum())(np.array([-1.0, 3.0]))
    Array([-1.,  6.])
    """

    def __init__(self, pyfunc: Callable, otypes: Any = None, doc: str | None = None,
                 excluded: Any = None, cache: bool = False, signature: str | None = None):
        self.pyfunc = pyfunc
        self.signature = signature
        self.excluded = frozenset(excluded or ())
        self._numpy = np.vectorize(pyfunc, otypes, doc, excluded, cache, signature)
        functools.update_wrapper(self, pyfunc, updated=())
        if doc is not None:
            self.__doc__ = doc

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not is_traced((*args, *kwargs.values())):
            try:
                y = self._numpy(*args, **kwargs)
                return tuple([v.view(Array) for v in y]) if isinstance(y, tuple) else y.view(Array)
            except ConcretizationError:
                pass  # what it returns is traced, for what it closes over
        places = [i for i in range(len(args)) if i not in self.excluded]
        names = [n for n in kwargs if n not in self.excluded]
        operands = [as_operand(args[i]) for i in places] + [as_operand(kwargs[n]) for n in names]
        core = self._core(len(operands))

        def of_entries(*entries: Any) -> Any:
            full, named = list(args), dict(kwargs)
            for i, x in zip(places, entries, strict=False):
                full[i] = x
            named.update(zip(names, entries[len(places) :], strict=True))
            return self.pyfunc(*full, **named)

        return _each(of_entries, operands, core)

    def _core(self, count: int) -> list[int]:
        """How many axes of each argument the function sees."""
        if self.signature is None:
            return [0] * count
        inputs = _CORE.findall(self.signature.split("->")[0])
        if len(inputs) != count:
            raise ArgumentError(
                f"vectorize: the signature {self.signature!r} has {len(inputs)} inputs, but "
                f"{count} arguments were given."
            )
        return [len([n for n in dims.split(",") if n.strip()]) for dims in inputs]


def _each(f: Callable, args: list, core: list[int]) -> Any:
    """``f`` of every combination of the leading axes, joined; a tuple where ``f`` returns one."""
    leads = [a.shape[: a.ndim - c] for a, c in zip(args, core, strict=True)]
    lead = np.broadcast_shapes(*leads)
    args = [
        np.broadcast_to(a, lead + a.shape[a.ndim - c :]) for a, c in zip(args, core, strict=True)
    ]
    results = [f(*[a[i] for a in args]) for i in np.ndindex(lead)]
    if not results:
        raise ValueError("cannot call `vectorize` on size 0 inputs unless `otypes` is set")
    if isinstance(results[0], tuple):
        return tuple([_joined(column, lead) for column in zip(*results, strict=True)])
    return _joined(results, lead)


def _joined(values, lead):
    y = np.stack([as_operand(v) for v in values])
    return reshape(y, lead + y.shape[1:])


def of_python(ufunc: np.ufunc) -> Callable | None:
    """The rule of a ufunc of ``np.frompyfunc``; None for any other."""
    if set("".join(ufunc.types)) != set("O->"):
        return None

    def call(*xs: Any) -> Any:
        def of_entries(*entries):
            boxes = [np.empty((), object) for _ in entries]
            for box, x in zip(boxes, entries, strict=True):
                box[()] = x
            return ufunc(*boxes)

        return _each(of_entries, [as_operand(x) for x in xs], [0] * len(xs))

    return call


MAKERS["__call__"] = of_python

ALSO = ("vectorize",)
