"""``Polynomial`` and its kin, with coefficients that may be traced.

They are NumPy's classes, on the functions of their modules here.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from numpy.polynomial import Chebyshev, Hermite, HermiteE, Laguerre, Legendre, Polynomial, polyutils

from functrans._core.bind import Tracer
from functrans.numpy.polynomials import roots
from functrans.numpy.structure import as_operand, is_traced

KINDS = {"poly": Polynomial, "cheb": Chebyshev, "leg": Legendre, "herm": Hermite,
         "herme": HermiteE, "lag": Laguerre}
# The functions that a class is made of, by the names that it has for them.
_PARTS = ("add", "sub", "mul", "val", "int", "der", "fit")


class Series:
    """What NumPy's classes do by making ndarrays of their coefficients."""

    coef: Any
    domain: np.ndarray
    window: np.ndarray

    def __init__(self, coef, domain=None, window=None, symbol="x"):
        traced = is_traced(coef)
        theirs: Any = super()  # NumPy's class
        theirs.__init__(np.zeros(1) if traced else coef, domain, window, symbol)
        if traced:
            c = as_operand(np.stack(coef) if isinstance(coef, list | tuple) else coef)
            self.coef = c.reshape(1) if c.ndim == 0 else c

    def __call__(self, arg: Any) -> Any:
        if not (is_traced(arg) or isinstance(self.coef, Tracer)):
            return super().__call__(arg)  # type: ignore[misc]  # likewise
        off, scale = self.mapparms()  # type: ignore[attr-defined]  # likewise
        x = as_operand(arg)
        x = x if off == 0 and scale == 1 else off + scale * x
        return self._val(x, self.coef)  # type: ignore[attr-defined]  # from below

    def roots(self) -> Any:
        y = self._roots(self.coef)  # type: ignore[attr-defined]  # of NumPy's class
        off, scale = polyutils.mapparms(self.window, self.domain)
        return off + scale * y

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, Tracer):
            return self * (1 / other)  # type: ignore[operator]  # NumPy's class has products
        return super().__truediv__(other)  # type: ignore[misc]  # likewise

    def __pow__(self, n: int) -> Any:
        if not isinstance(self.coef, Tracer):
            return super().__pow__(n)  # type: ignore[misc]  # likewise
        y: Any = type(self)([1.0], self.domain, self.window)
        for _ in range(n):
            y = y * self
        return y


def kinds(modules: dict[str, ModuleType]) -> dict[str, type]:
    """The classes, of modules of functions by their prefixes."""
    made = {}
    for prefix, module in modules.items():
        kind = KINDS[prefix]
        own = {f"_{part}": staticmethod(getattr(module, prefix + part)) for part in _PARTS}
        made[kind.__name__] = type(kind.__name__, (Series, kind), {
            **own, "__module__": "functrans.numpy.polynomial", "__doc__": kind.__doc__,
        })
    power: Any = made["Polynomial"]
    theirs: Any = power._roots
    power._roots = staticmethod(
        lambda c: np.sort(roots(np.flip(c))) if isinstance(c, Tracer) else theirs(c))
    return made
