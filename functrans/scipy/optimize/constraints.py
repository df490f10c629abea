"""Constraints as SciPy takes them, for its solvers and as vectors of equations and inequalities."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from functrans._core.bind import AnyArray
from functrans._transforms.matrices.jacobian import hessian
from functrans.numpy.structure import as_operand
from functrans.scipy.calls import Derivative, Numbers, as_args, jacobian_at
from functrans.scipy.implicit import concrete
from functrans.scipy.public import is_traced

so: Any = optimize  # its types say less than its functions take


class Constraint(NamedTuple):
    """``value(x) = 0``, or with ``equal`` False, ``>= 0``; a vector. ``size`` is that of the bounds
    which it has subtracted, where they are known.
    """

    value: Callable
    equal: bool
    size: Any = 0.0


# ---- as SciPy writes them


def as_list(constraints: Any) -> list:
    """The constraints one by one."""
    return list(constraints) if isinstance(constraints, list | tuple) else [constraints]


def is_given(constraints: list) -> bool:
    """Whether matrices or ends of constraints are traced."""
    return is_traced([getattr(c, name, None) for c in constraints for name in ("A", "lb", "ub")])


def ends_of(bounds: Any) -> tuple[Any, Any] | None:
    """Lower and upper bounds of all entries, as arrays or traced."""
    if bounds is None:
        return None
    if isinstance(bounds, so.Bounds):
        return bounds.lb, bounds.ub
    pairs = [(-np.inf if a is None else a, np.inf if b is None else b) for a, b in bounds]
    lower, upper = zip(*pairs, strict=True)
    return as_operand(list(lower)), as_operand(list(upper))


def for_scipy(constraint: Any, second: bool, exact: bool) -> tuple[Any, list[Numbers]]:
    """A constraint of numbers and the functions that tell what was traced.

    With ``exact`` it has its Jacobian, and with ``second``, second derivatives too.
    """
    if isinstance(constraint, so.LinearConstraint):
        A, *ends = concrete((constraint.A, constraint.lb, constraint.ub))
        return so.LinearConstraint(A, *ends, constraint.keep_feasible), []
    if isinstance(constraint, so.NonlinearConstraint):
        f = Numbers(constraint.fun)
        jac = constraint.jac
        if exact and isinstance(jac, str) and jac == "2-point":
            jac = Derivative(jacobian_at, constraint.fun)
        hess = constraint.hess
        if exact and second and isinstance(hess, so.BFGS):
            hess = Derivative(_curvature, constraint.fun, (), 2)
        return so.NonlinearConstraint(
            f, *concrete((constraint.lb, constraint.ub)), jac, hess, constraint.keep_feasible
        ), [f]
    new = dict(constraint)
    args = as_args(constraint.get("args", ()))
    numbers = concrete(args)
    f = new["fun"] = Numbers(constraint["fun"])
    f.traced = is_traced(args)
    new["args"] = numbers
    if exact and new.get("jac") is None:
        new["jac"] = Derivative(jacobian_at, constraint["fun"], numbers)
    elif callable(new.get("jac")):
        new["jac"] = Numbers(new["jac"])
    return new, [f]


def _curvature(f: Callable, x: Any, v: Any) -> AnyArray:
    """The Hessian of the product of ``f`` and v."""
    return hessian(lambda x: np.sum(f(x) * v))(x)


def separate(constraints: Any, x: np.ndarray) -> Iterator[Constraint]:
    """Constraints as functions that are zero, or not negative, of values like ``x``."""
    for c in as_list(constraints):
        if isinstance(c, so.LinearConstraint | so.NonlinearConstraint):
            value = c.fun if isinstance(c, so.NonlinearConstraint) else _product(c.A)
            yield from _between(value, as_operand(c.lb), as_operand(c.ub), x)
        else:
            yield Constraint(_called(c["fun"], as_args(c.get("args", ()))),
                             c["type"].lower() == "eq")


def _called(f: Callable, args: tuple) -> Callable:
    return lambda x: f(x, *args)


def _product(A: Any) -> Callable:
    return lambda x: A @ x


def _between(f: Callable, lower: Any, upper: Any, x: np.ndarray) -> list[Constraint]:
    """``lower <= f(x) <= upper``, by rows: an equality where both are the same number."""
    n = vector(f(x)).size
    lower, upper = [np.broadcast_to(vector(end), n) for end in (lower, upper)]
    low, high = [np.asarray(concrete(end), float) for end in (lower, upper)]
    equal = low == high

    def row(sign: float, end: Any, rows: np.ndarray, equal: bool) -> Constraint:
        return Constraint(lambda x: sign * (vector(f(x))[rows] - end[rows]), equal,
                          np.abs(np.asarray(concrete(end), float)[rows]))

    found = [row(1.0, lower, np.flatnonzero(equal), True),
             row(1.0, lower, np.flatnonzero(~equal & np.isfinite(low)), False),
             row(-1.0, upper, np.flatnonzero(~equal & np.isfinite(high)), False)]
    return [c for c in found if c.size.size]


def within(x: np.ndarray, ends: Any) -> list[Constraint]:
    """Bounds of the entries, where they have any, as constraints."""
    if ends is None:
        return []
    lower, upper = ends
    return _between(lambda x: x, as_operand(lower), as_operand(upper), x)


def vector(y: Any) -> AnyArray:
    """What a function returns, flat."""
    return as_operand(y).reshape(-1)
