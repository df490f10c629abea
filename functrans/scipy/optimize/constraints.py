r"""The conditions of Karush, Kuhn and Tucker at a minimum: as many equations as unknowns.

With the constraints c that are active there, and multipliers :math:`\lambda`,

.. math:: \nabla f(x) - \sum_i \lambda_i \nabla c_i(x) = 0, \qquad c_i(x) = 0,

Bounds of the entries of x are among the constraints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from functrans._core.bind import AnyArray
from functrans._transforms.matrices.jacobian import hessian, jacobian
from functrans._transforms.reverse.api import vjp
from functrans.errors import SolverError, user_line
from functrans.numpy.structure import as_operand
from functrans.scipy.calls import Derivative, Numbers, as_args, jacobian_at
from functrans.scipy.implicit import concrete, implicit
from functrans.scipy.public import is_traced

so: Any = optimize  # its types say less than its functions take

# The slack up to which a constraint may be active at a solver's solution, and up to which it holds.
NEARBY, CLOSE = 1e-2, 1e-5
# The multiplier, relative to 1 and the largest, up to which one that holds may not be active.
CERTAIN = 1e-6


class Constraint(NamedTuple):
    """``value(x) = 0``, or with ``equal`` False, ``>= 0``; a vector."""

    value: Callable
    equal: bool


# ---- as SciPy writes them


def as_list(constraints: Any) -> list:
    """The constraints one by one."""
    return list(constraints) if isinstance(constraints, list | tuple) else [constraints]


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
        return constraint, []
    if isinstance(constraint, so.NonlinearConstraint):
        f = Numbers(constraint.fun)
        jac = constraint.jac
        if exact and isinstance(jac, str) and jac == "2-point":
            jac = Derivative(jacobian_at, constraint.fun)
        hess = constraint.hess
        if exact and second and isinstance(hess, so.BFGS):
            hess = Derivative(_curvature, constraint.fun, (), 2)
        return so.NonlinearConstraint(
            f, constraint.lb, constraint.ub, jac, hess, constraint.keep_feasible
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


def separate(constraints: Any) -> Iterator[Constraint]:
    """Constraints as functions that are zero, or not negative."""
    for c in as_list(constraints):
        if isinstance(c, so.LinearConstraint | so.NonlinearConstraint):
            value = c.fun if isinstance(c, so.NonlinearConstraint) else _product(c.A)
            yield from _between(value, np.asarray(c.lb), np.asarray(c.ub))
        else:
            yield Constraint(_called(c["fun"], as_args(c.get("args", ()))),
                             c["type"].lower() == "eq")


def _called(f: Callable, args: tuple) -> Callable:
    return lambda x: f(x, *args)


def _product(A: Any) -> Callable:
    return lambda x: A @ x


def _between(f: Callable, lower: np.ndarray, upper: np.ndarray) -> list[Constraint]:
    """``lower <= f(x) <= upper``."""
    if np.all(lower == upper):
        return [Constraint(lambda x: f(x) - lower, True)]
    return [
        Constraint(lambda x: _finite(f(x) - lower, lower), False),
        Constraint(lambda x: _finite(upper - f(x), upper), False),
    ]


def _finite(slack: Any, bound: np.ndarray) -> AnyArray:
    """The slack, one where there is no bound: never active."""
    return np.where(np.isfinite(bound), slack, 1.0)


# ---- at a solution


class Conditions:
    """The equations that x and the multipliers obey, from the numbers ``x`` of a solver.

    ``start`` is where they hold, as far as the solver went. A bound or inequality is active where
    its multiplier exceeds its slack, of which one is zero. Raises SolverError where both are: there
    the solution has a kink.
    """

    def __init__(self, who: str, gradient: Callable, x: np.ndarray, ends: Any, constraints: Any):
        self.who, self.gradient, self.size = who, gradient, x.size
        self.limits = [*_bounds(x, ends), *separate(constraints)]
        slack = [np.asarray(concrete(vector(c.value(x)))) for c in self.limits]
        equal = [np.full(v.size, c.equal) for c, v in zip(self.limits, slack, strict=True)]
        close = [e | (np.abs(v) <= NEARBY) for e, v in zip(equal, slack, strict=True)]
        force = self._forces(x, close)
        active = [e | (f > np.abs(v)) for e, f, v in zip(equal, force, slack, strict=True)]
        self._require_certain(force, [
            (np.abs(v) <= CLOSE) & c & ~e for v, c, e in zip(slack, close, equal, strict=True)
        ])
        force = self._forces(x, active)
        self.start = np.concatenate([
            x, *[f[a] for f, a in zip(force, active, strict=True)]
        ])

    def solution(self) -> AnyArray:
        """The minimum, with its derivatives."""
        return implicit(self.who, self, self.start)[: self.size]

    def _forces(self, x: np.ndarray, active: list[np.ndarray]) -> list[np.ndarray]:
        """The multipliers, zero of what is not ``active``; sets which those are."""
        self.active = [np.flatnonzero(a) for a in active]
        g = np.asarray(concrete(self.gradient(x)))
        J = np.asarray(concrete(jacobian(self._values)(x))).reshape(-1, x.size)
        force = iter(np.linalg.lstsq(J.T, g)[0])
        return [np.array([next(force) if v else 0.0 for v in a]) for a in active]

    def _require_certain(self, force: list[np.ndarray], close: list[np.ndarray]) -> None:
        total = np.concatenate([np.zeros(0), *force])
        least = min(total[np.concatenate([np.zeros(0, bool), *close])], default=np.inf)
        if least <= CERTAIN * max(1.0, float(np.max(np.abs(total), initial=0.0))):
            raise SolverError(
                f"{user_line()}: the solution of {self.who} has a kink: a bound or constraint "
                f"holds there with a multiplier of {least:.1g}, so a change may leave it or not. "
                "There is no derivative; a constraint that never binds can be dropped."
            )

    def _values(self, x: Any) -> AnyArray:
        """The active constraints."""
        pairs = zip(self.limits, self.active, strict=True)
        return np.concatenate([np.zeros(0), *[vector(c.value(x))[rows] for c, rows in pairs]])

    def __call__(self, z: Any) -> AnyArray:
        x, force = z[: self.size], z[self.size :]
        g = self.gradient(x)
        if not force.size:
            return g
        values, pull = vjp(self._values, x)
        return np.concatenate([g - pull(force)[0], values])


def _bounds(x: np.ndarray, ends: Any) -> list[Constraint]:
    """Bounds of the entries, where they have any, as constraints."""
    if ends is None:
        return []
    lower, upper = [np.broadcast_to(e, x.shape) for e in ends]
    low, high = [np.flatnonzero(np.isfinite(concrete(e))) for e in (lower, upper)]
    return [Constraint(lambda x: x[low] - lower[low], False),
            Constraint(lambda x: upper[high] - x[high], False)]


def vector(y: Any) -> AnyArray:
    """What a function returns, flat."""
    return as_operand(y).reshape(-1)
