"""``numpy.polynomial``'s modules of functions, with coefficients that may be traced.

NumPy turns coefficients into ndarrays first, so its own functions cannot take traced ones. Here are
those that evaluate, fit, combine, differentiate and integrate series, lowest degree first, and
the classes made of them; the other names are NumPy's, for plain arrays. Leading coefficients that
happen to be 0 are kept.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import chebyshev as _chebyshev
from numpy.polynomial import hermite as _hermite
from numpy.polynomial import hermite_e as _hermite_e
from numpy.polynomial import laguerre as _laguerre
from numpy.polynomial import legendre as _legendre
from numpy.polynomial import polynomial as _polynomial
from numpy.polynomial import set_default_printstyle

from functrans._core.bind import AnyArray
from functrans.numpy.polynomials import least, weighted
from functrans.numpy.protocols import refused
from functrans.numpy.public import public
from functrans.numpy.series import kinds
from functrans.numpy.structure import as_floats, as_operand, common_dtype, is_traced, moveaxis


class Basis(NamedTuple):
    """A basis ``p[k + 1] = alpha(k, x) * p[k] - beta(k) * p[k - 1]``, where ``p[0]`` is 1 and
    ``p[1]`` is ``first(x)``; its module in NumPy, and the prefix of the functions there."""

    prefix: str
    module: Any
    first: Callable
    alpha: Callable
    beta: Callable


BASES = [
    Basis("poly", _polynomial, lambda x: x, lambda k, x: x, lambda k: 0),
    Basis("cheb", _chebyshev, lambda x: x, lambda k, x: 2 * x, lambda k: 1),
    Basis("leg", _legendre, lambda x: x, lambda k, x: (2 * k + 1) / (k + 1) * x,
          lambda k: k / (k + 1)),
    Basis("herm", _hermite, lambda x: 2 * x, lambda k, x: 2 * x, lambda k: 2 * k),
    Basis("herme", _hermite_e, lambda x: x, lambda k, x: x, lambda k: k),
    Basis("lag", _laguerre, lambda x: 1 - x, lambda k, x: (2 * k + 1 - x) / (k + 1),
          lambda k: k / (k + 1)),
]


def _floating(c: Any) -> AnyArray:
    """Coefficients, of a floating type as in NumPy."""
    c = as_operand(c)
    c = c.reshape(1) if c.ndim == 0 else c
    return as_floats(c)


def _value(basis: Basis, x: Any, c: Any, tensor: bool = True) -> Any:
    """The series ``c`` at ``x``, by Clenshaw's recurrence."""
    c = _floating(c)
    dtype = common_dtype(c, x)
    x = as_operand(x)
    x = x if x.dtype == dtype else x.astype(dtype)
    if tensor:
        c = c.reshape(c.shape + (1,) * x.ndim)
    if len(c) == 1:
        return c[0] + 0 * x
    after: Any = 0  # b[k + 2]
    b = c[-1] + 0 * x
    for k in range(len(c) - 2, 0, -1):
        b, after = c[k] + basis.alpha(k, x) * b - basis.beta(k + 1) * after, b
    return c[0] + basis.first(x) * b - basis.beta(1) * after


def _vander(basis: Basis, x: Any, deg: int) -> AnyArray:
    """The values of the basis up to degree ``deg``, along a new last axis."""
    x = as_operand(x) + 0.0
    ps = [np.ones_like(x), basis.first(x)]
    for k in range(1, deg):
        ps.append(basis.alpha(k, x) * ps[k] - basis.beta(k) * ps[k - 1])
    return np.stack(ps[: deg + 1], axis=-1)


def _apply(matrix: np.ndarray, c: Any, axis: int) -> AnyArray:
    """``matrix``, of a linear function of coefficients, applied to those along ``axis``."""
    c = moveaxis(c, axis, 0)
    return moveaxis(np.tensordot(matrix.astype(c.dtype), c, axes=1), 0, axis)


def _derivative(basis: Basis, c: Any, m: int = 1, scl: Any = 1, axis: int = 0) -> AnyArray:
    """The series of the ``m``-th derivative."""
    c = _floating(c)
    matrix = getattr(basis.module, f"{basis.prefix}der")(np.eye(c.shape[axis]), m)
    return _apply(matrix, c, axis) * scl**m


def _integral(basis: Basis, c: Any, m: int = 1, k: Any = (), lbnd: float = 0, scl: float = 1,
              axis: int = 0) -> AnyArray:
    """The series of the ``m``-th integral from ``lbnd``, with the constants ``k``."""
    c, integrate = _floating(c), getattr(basis.module, f"{basis.prefix}int")
    n = c.shape[axis]
    y = _apply(integrate(np.eye(n), m, [], lbnd, scl), c, axis)
    k = np.atleast_1d(as_operand(k))
    if not k.size:
        return y
    without = integrate(np.ones(n), m, [], lbnd, scl)
    units = [integrate(np.ones(n), m, list(e), lbnd, scl) - without for e in np.eye(m)[: len(k)]]
    constants = np.stack(units, axis=-1) @ k
    later_axes = y.ndim - axis % y.ndim - 1
    return y + constants.reshape(constants.shape + (1,) * later_axes)


def _align(c1: Any, c2: Any) -> tuple[Any, ...]:
    """Both with as many coefficients as the longer one."""
    c1, c2 = _floating(c1), _floating(c2)
    n = max(len(c1), len(c2))
    return tuple(np.concatenate([c, np.zeros(n - len(c), c.dtype)]) for c in (c1, c2))


def _sum(basis: Basis, c1: Any, c2: Any) -> AnyArray:
    """The sum of two series."""
    c1, c2 = _align(c1, c2)
    return c1 + c2


def _difference(basis: Basis, c1: Any, c2: Any) -> AnyArray:
    """The difference of two series."""
    c1, c2 = _align(c1, c2)
    return c1 - c2


@functools.cache
def _products(basis: Basis, n1: int, n2: int) -> np.ndarray:
    """Products of all pairs of basis polynomials, their coefficients along axis 0."""
    multiply = getattr(basis.module, f"{basis.prefix}mul")
    coefficients = np.zeros((n1 + n2 - 1, n1, n2))
    for i, e1 in enumerate(np.eye(n1)):
        for j, e2 in enumerate(np.eye(n2)):
            y = multiply(e1, e2)
            coefficients[: len(y), i, j] = y
    return coefficients


def _product(basis: Basis, c1: Any, c2: Any) -> AnyArray:
    """The product of two series."""
    c1, c2 = _floating(c1), _floating(c2)
    if basis.prefix == "poly":
        return np.convolve(c1, c2)
    y = np.einsum("kij,i,j->k", _products(basis, len(c1), len(c2)), c1, c2)
    return y.astype(np.result_type(c1.dtype, c2.dtype))


def _by_x(basis: Basis, c: Any) -> AnyArray:
    """The series times its variable."""
    c = _floating(c)
    return _apply(np.stack([
        np.pad(y, (0, len(c) + 1 - len(y)))
        for y in map(getattr(basis.module, f"{basis.prefix}mulx"), np.eye(len(c)))
    ], axis=-1), c, 0)


def _fit(basis: Basis, x: Any, y: Any, deg: int, rcond: Any = None, full: bool = False,
         w: Any = None) -> AnyArray:
    """The least-squares fit of points by a series of degree ``deg``."""
    name = f"np.polynomial.{basis.module.__name__.rsplit('.', 1)[1]}.{basis.prefix}fit"
    if full or not isinstance(deg, int | np.integer):
        raise refused(name, "got full= or a list of degrees", "give the degree as an int")
    x, y = as_operand(x) + 0.0, as_operand(y) + 0.0
    lhs, rhs = _vander(basis, x, int(deg)), y
    if w is not None:
        lhs, rhs = weighted(w, lhs, rhs)
    rcond = len(x) * float(np.finfo(x.dtype).eps) if rcond is None else rcond
    return least(lhs, rhs, rcond)[0]


FUNCTIONS = {
    "val": _value, "vander": _vander, "der": _derivative, "int": _integral, "add": _sum,
    "sub": _difference, "mul": _product, "mulx": _by_x, "fit": _fit,
}


def _name(basis: Basis, name: str, ours: Callable) -> Callable:
    theirs = getattr(basis.module, basis.prefix + name)

    @functools.wraps(theirs, updated=())
    def function(*args: Any, **kwargs: Any) -> Any:
        if any(map(is_traced, (*args, *kwargs.values()))):
            return ours(basis, *args, **kwargs)
        return theirs(*args, **kwargs)

    function.__doc__ = f"{ours.__doc__} numpy's {theirs.__name__}, for traced coefficients too."
    return public(function)


def _namespace(basis: Basis) -> ModuleType:
    """NumPy's module of a basis, with our functions replacing its own."""
    name = basis.module.__name__.rpartition(".")[2]
    made = ModuleType(f"{__name__}.{name}", basis.module.__doc__)
    names = {name: getattr(basis.module, name) for name in basis.module.__all__}
    for part, ours in FUNCTIONS.items():
        names[basis.prefix + part] = _name(basis, part, ours)
    vars(made).update(names, __all__=list(names))
    sys.modules[made.__name__] = made  # so that names can be imported from it
    return made


polynomial, chebyshev, legendre, hermite, hermite_e, laguerre = _modules = [
    _namespace(basis) for basis in BASES
]
_kinds = kinds({basis.prefix: m for basis, m in zip(BASES, _modules, strict=True)})
for _kind, _module in zip(_kinds.values(), _modules, strict=True):
    setattr(_module, _kind.__name__, _kind)
Polynomial, Chebyshev, Legendre, Hermite, HermiteE, Laguerre = _kinds.values()

__all__ = [
    "Chebyshev", "Hermite", "HermiteE", "Laguerre", "Legendre", "Polynomial", "chebyshev",
    "hermite", "hermite_e", "laguerre", "legendre", "polynomial", "set_default_printstyle",
]
