"""How rows of ``scipy.special`` are declared, and the elementary ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special as sp

from functrans._core.array import dtype_of, ndim_of
from functrans._core.bind import AnyArray, Tracer, cast
from functrans._ops.declare import NONZERO, POSITIVE, Elementwise, elementwise, where
from functrans._ops.elementwise import (
    DEGREE,
    LN2,
    LN10,
    WHOLE,
    cos,
    exp,
    log,
    remainder,
    rint,
    sin,
    slope_of_exp2,
)
from functrans._ops.growth import over
from functrans.errors import NotDifferentiable, user_line

# ---- Arguments without a derivative, and others that rules of several files need


def refuse(function: str, argument: str) -> Callable:
    """The action of an argument that has no derivative here: it raises, and names both."""

    def action(g: Any) -> AnyArray:
        raise NotDifferentiable(
            f"{user_line()}: {function} has no derivative in {argument}. Hold it constant, for "
            "example with ft.stop_gradient, or declare the function with its derivative: "
            "ft.custom_jvp."
        )

    return action


def nowhere(mask: Any) -> bool:
    """Whether a condition is known to hold nowhere."""
    return not isinstance(mask, Tracer) and not np.any(mask)


def either(mask: Any, f: Callable, other: Callable, *xs: Any, fill: float = 1.0) -> AnyArray:
    """``f`` of the operands in the mask, ``other`` of the rest; else they see fill, and 1.

    Only one is computed where the mask is known to be the same for all.
    """
    if not isinstance(mask, Tracer):
        if np.all(mask):
            return f(*xs)
        if not np.any(mask):
            return other(*xs)
    inner, outer = [where(mask, x, fill) for x in xs], [where(mask, 1.0, x) for x in xs]
    return where(mask, f(*inner), other(*outer))


def real(function: str, x: Any) -> AnyArray:
    """``x``, of a function that has no complex derivative."""
    if dtype_of(x).kind == "c":
        raise NotDifferentiable(
            f"{user_line()}: {function} is differentiated for real numbers alone, and got {x!r}."
        )
    return x


# ---- How rows of ``scipy.special`` are declared: under SciPy's name, which is written once


def ufunc(name: str, *actions: Callable | str | None, **options: Any) -> Elementwise:
    """Declare SciPy's ufunc of this name.

    A text in place of an action names an argument that has no derivative here. Compiled code calls
    what ``cython_special`` has under the name, unless ``libm`` or a formula says otherwise. With a
    domain, the slope is taken for infinite or undefined at its ends.
    """
    rules = [refuse(f"scipy.special.{name}", a) if isinstance(a, str) else a for a in actions]
    if "libm" not in options and "formula" not in options:
        options.setdefault("cython", name)
    options.setdefault("singular", "domain" in options)
    return elementwise(f"special.{name}", getattr(sp, name), *rules, **options)


def in_double(row: Elementwise, slope: Callable, g: Any, y: Any, *xs: Any) -> AnyArray:
    """``slope(g, y, *xs)``, of narrower types in double precision: in theirs a factor may vanish
    or overflow, and the value ``y`` may have lost the digits that the slope is made of."""
    dtype = dtype_of(y)
    if dtype.char not in "ef":
        return slope(g, y, *xs)
    g, *wide = [cast(x, np.dtype(np.float64)) for x in (g, *xs)]
    return cast(slope(g, row(*wide), *wide), dtype)


def part(name: str, of: str, k: int, *actions: Callable, **options: Any) -> Elementwise:
    """Declare the k-th of what SciPy's ufunc ``of`` returns, under a name of its own."""
    whole = getattr(sp, of)
    options.setdefault("cython", f"{of}.{k}")
    options.setdefault("singular", "domain" in options)
    return elementwise(f"special.{name}", lambda *xs: whole(*xs)[k], *actions, **options)


# ---- Elementary functions under SciPy's names, and what rules of other files are made of

PI = float(np.pi)


def sinpi(x):
    """sin(pi x), which is exact at whole and half numbers."""
    whole, rest = _nearest(x)
    return _parity(whole) * sin(PI * rest)


def cospi(x):
    """cos(pi x)."""
    whole, rest = _nearest(x)
    return _parity(whole) * cos(PI * rest)


def _nearest(x):
    whole = rint(x.real)
    return whole, x - whole


def _parity(whole):
    return 1 - 2 * remainder(whole, 2)


cbrt = ufunc("cbrt", lambda g, y: over(g, 3 * (y * y)), domain=NONZERO, libm="cbrt")
exp2 = ufunc("exp2", lambda g, x, y: slope_of_exp2(g, x, y), singular=True, libm="exp2")
exp10 = ufunc("exp10", lambda g, y: g * (y * LN10), singular=True)
expm1 = ufunc("expm1", lambda g, x: g * exp(x), singular=True)
log1p = ufunc("log1p", lambda g, x: over(g, 1 + x), domain=POSITIVE, libm="log1p")
cosm1 = ufunc("cosm1", lambda g, x: -g * sin(x))
sindg = ufunc("sindg", lambda g, x: g * (DEGREE * cosdg(x)))
cosdg = ufunc("cosdg", lambda g, x: -g * (DEGREE * sindg(x)))
tandg = ufunc("tandg", lambda g, y: g * (DEGREE * (1 + y * y)), singular=True)
# not by its value, which SciPy takes for infinite near 0
cotdg = ufunc("cotdg", lambda g, x: -g / sindg(x) * (DEGREE / sindg(x)), domain=NONZERO)
radian = ufunc(
    "radian", lambda g: g * DEGREE, lambda g: g * (DEGREE / 60), lambda g: g * (DEGREE / 3600),
)
ufunc("round", None, **WHOLE)


# exprel'(x) = sum of (k + 1) / (k + 2)! x^k
_SLOPE_OF_EXPREL = [float((k + 1) / np.prod(np.arange(1.0, k + 3))) for k in range(20)]


def column(x):
    """``x`` with an axis behind it for the terms of a sum, of what is no number."""
    return x[..., None] if ndim_of(x) else x


def polynomial(coefficients, x):
    """The sum of c_k x^k, by Horner's rule."""
    y = coefficients[-1]
    for c in coefficients[-2::-1]:
        y = y * x + c
    return y


def slope_of_exprel(x, y=None):
    """The derivative of (exp(x) - 1) / x = y, which the quotient rule loses near 0."""
    near = abs(x) < 1
    far = where(near, 1.0, x)
    y = exprel(far) if y is None else where(near, 1.0, y)
    quotient = (exp(far) - y) / far
    return where(near, polynomial(_SLOPE_OF_EXPREL, where(near, x, 0.0)), quotient)


exprel = ufunc("exprel", lambda g, x, y: g * slope_of_exprel(x, y), singular=True)


def log1mexp(x):
    """log(1 - exp(-x)) for x >= 0: by expm1 below log(2), above by log1p."""
    return where(x < LN2, log(-expm1(-x)), log1p(-exp(-x)))


def log1mexp_of_exp(y):
    """log(1 - exp(-exp(y))), which is y where that is far below 0."""
    small = y < 0
    near, far = where(small, y, 0.0), where(small, 1.0, y)
    return where(small, near + log(exprel(-exp(near))), log1mexp(exp(far)))
