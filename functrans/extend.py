"""For people who add ops or transforms: what the package itself is built from.

An op is declared with ``elementwise``, ``constant``, ``linear``, ``bilinear`` or ``primitive`` and
then works under every transform. A transform is a ``Trace`` and a ``Tracer`` that carry out
``bind``. The guides ``docs/adding_an_op.md`` and ``docs/adding_a_transform.md`` take it in steps.

>>> import numpy as np, scipy.special
>>> import functrans as ft
>>> from functrans import extend
>>> j0 = extend.elementwise("bessel_j0", scipy.special.j0, lambda g, x: -g * scipy.special.j1(x))
>>> ft.grad(lambda x: scipy.special.j0(x) ** 2)(1.0).round(4)
Array(-0.6734)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from functrans._core.array import plain
from functrans._core.aval import Aval, aval_of, dtype_of, shape_of
from functrans._core.bind import PrimalTracer, Trace, Tracer, bind, cast, is_finite, spread, sum_to
from functrans._core.primitive import Primitive
from functrans._ops import declare
from functrans._ops.declare import (
    ABOVE_ONE,
    ANY,
    BOOLEAN,
    INTEGER,
    NONZERO,
    POSITIVE,
    REAL,
    UNIT,
    bilinear,
    linear,
    primitive,
)
from functrans.errors import ArgumentError, name_of
from functrans.numpy import protocols

# Every op by its name, those declared from outside included.
TABLE: Mapping[str, Primitive] = MappingProxyType(declare.TABLE)


def elementwise(
    name: str,
    impl: Callable,
    *actions: Callable | None,
    domain: str = REAL,
    kinks: str = "",
    singular: bool = False,
    doc: str = "",
) -> declare.Elementwise:
    """Declare an op on matching entries: one linear action for each operand.

    ``action(g, ...)`` is the change of the output when that operand changes by ``g``. Its other
    parameters are named for what it needs: ``y`` the output; ``x`` the operand, or ``x1``, ``x2``
    where there are several. None stands for no derivative in that operand. ``singular`` marks a
    slope that is infinite somewhere: the actions then obey strong zero. Where ``impl`` is a ufunc,
    calling it on a traced value arrives at the op.

    >>> import numpy as np
    >>> import functrans as ft
    >>> cube = elementwise("cube", lambda x: x**3, lambda g, x: g * (3 * x**2))
    >>> ft.derivative(cube)(2.0)
    Array(12.)
    """
    if not actions:
        raise ArgumentError(
            f"elementwise({name!r}) needs an action for each operand of `{name_of(impl)}`, None "
            "where it has no derivative. An op without any is a constant(name, impl, arity)."
        )
    if isinstance(impl, np.ufunc):
        _require_free(name, impl)
        _require_operands(name, impl, len(actions))
    row = declare.elementwise(
        name, impl, *actions, domain=domain, kinks=kinks, singular=singular, doc=doc
    )
    if isinstance(impl, np.ufunc):
        protocols.UFUNCS[impl] = row
    return row


def constant(
    name: str, impl: Callable, arity: int = 1, *, domain: str = REAL, doc: str = ""
) -> declare.Elementwise:
    """Declare an elementwise op whose derivative is zero or meaningless, such as a comparison.

    >>> import numpy as np
    >>> import functrans as ft
    >>> parity = constant("parity", lambda x: np.floor(x) % 2)
    >>> ft.grad(lambda x: x * parity(x))(3.5)
    Array(1.)
    """
    return elementwise(name, impl, *[None] * arity, domain=domain, doc=doc)


def implements(function: Callable) -> Callable[[Callable], Callable]:
    """Decorator: what ``function``, NumPy's or a ufunc, does when it is given traced values.

    The decorated function has the same signature and is written with differentiable ops. It is not
    called where no argument is traced.

    >>> import numpy as np
    >>> import functrans as ft
    >>> @implements(np.i0)
    ... def i0(x):
    ...     k = np.arange(1.0, 30.0)
    ...     return 1 + np.sum(np.cumprod((x / (2 * k)) ** 2))
    >>> ft.grad(np.i0)(1.0).round(6)
    Array(0.565159)
    """

    def register(ours: Callable) -> Callable:
        where: dict[Any, Any] = protocols.FUNCTIONS
        if isinstance(function, np.ufunc):
            where = protocols.UFUNCS
        elif not hasattr(function, "_implementation"):
            raise ArgumentError(
                f"implements: `{name_of(function)}` is neither a ufunc nor a NumPy function that "
                "hands traced values over (__array_function__). Call your own function instead."
            )
        if function in where:
            raise ArgumentError(f"implements: `{name_of(function)}` already has an implementation")
        where[function] = ours
        return ours

    return register


def _require_free(name: str, impl: np.ufunc) -> None:
    before = protocols.UFUNCS.get(impl)
    if before is not None:
        raise ArgumentError(
            f"elementwise({name!r}): the ufunc `{impl.__name__}` already has the op `{before}`"
        )


def _require_operands(name: str, impl: np.ufunc, count: int) -> None:
    if (impl.nin, impl.nout) != (count, 1):
        raise ArgumentError(
            f"elementwise({name!r}): the ufunc `{impl.__name__}` has {impl.nin} operands and "
            f"{impl.nout} outputs, but {count} actions were given for one output. Give an action "
            "(or None) for each operand; for several outputs use primitive."
        )


__all__ = [
    "ABOVE_ONE",
    "ANY",
    "BOOLEAN",
    "INTEGER",
    "NONZERO",
    "POSITIVE",
    "REAL",
    "TABLE",
    "UNIT",
    "Aval",
    "PrimalTracer",
    "Primitive",
    "Trace",
    "Tracer",
    "aval_of",
    "bilinear",
    "bind",
    "cast",
    "constant",
    "dtype_of",
    "elementwise",
    "implements",
    "is_finite",
    "linear",
    "plain",
    "primitive",
    "shape_of",
    "spread",
    "sum_to",
]
