r"""The conditions of Karush, Kuhn and Tucker at a minimum: as many equations as unknowns.

With the constraints c that are active there, and multipliers :math:`\lambda`,

.. math:: \nabla f(x) - \sum_i \lambda_i \nabla c_i(x) = 0, \qquad c_i(x) = 0,

and :math:`x_j = b_j` in place of row j where the bound b of an entry is active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize as so

from functrans._core.bind import Tracer
from functrans._transforms.matrices.jacobian import jacobian
from functrans._transforms.reverse.api import vjp
from functrans.errors import SolverError, user_line
from functrans.numpy.structure import as_operand
from functrans.scipy.calls import Derivative, Numbers, as_args
from functrans.scipy.implicit import concrete
from functrans.scipy.public import is_traced

# How close, relative to 1 or its size, a solver's solution comes to a bound that is active.
CLOSE = 1e-5
# The force of an active constraint, relative to the largest, from which it is beyond doubt.
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


def for_scipy(constraint: Any) -> tuple[Any, list[Numbers]]:
    """A constraint of numbers with its Jacobian, and the functions that tell what was traced."""
    if isinstance(constraint, so.LinearConstraint):
        return constraint, []
    if isinstance(constraint, so.NonlinearConstraint):
        f = Numbers(constraint.fun)
        jac = constraint.jac
        if isinstance(jac, str) and jac == "2-point":
            jac = Derivative(lambda x: jacobian(constraint.fun)(x))
        return so.NonlinearConstraint(
            f, constraint.lb, constraint.ub, jac, constraint.hess, constraint.keep_feasible
        ), [f]
    new = dict(constraint)
    args = as_args(constraint.get("args", ()))
    numbers = concrete(args)
    f = new["fun"] = Numbers(constraint["fun"])
    f.traced = is_traced(args)
    new["args"] = numbers
    if new.get("jac") is None:
        new["jac"] = Derivative(lambda x: jacobian(constraint["fun"])(x, *numbers))
    elif callable(new["jac"]):
        new["jac"] = Numbers(new["jac"])
    return new, [f]


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


def _finite(slack: Any, bound: np.ndarray) -> Any:
    """The slack, one where there is no bound: never active."""
    return np.where(np.isfinite(bound), slack, 1.0)


# ---- at a solution


class Conditions:
    """The equations that x and the multipliers obey, from the numbers ``x`` of a solver.

    ``start`` is where they hold; which constraints are active is read off there. Raises SolverError
    where one is on the verge of being so: there the solution has a kink.
    """

    def __init__(self, who: str, gradient: Callable, x: np.ndarray, ends: Any, constraints: Any):
        self.who, self.gradient, self.size = who, gradient, x.size
        self.shape = x.shape
        g = np.asarray(concrete(gradient(x)))
        self.bounds = self._bounds(x, ends)
        at_bound = np.isfinite(concrete(self.bounds))
        x = np.where(at_bound, concrete(self.bounds), x)
        self.active = [
            (c.value, np.flatnonzero(c.equal | _is_close(_vector(c.value(x)))))
            for c in separate(constraints)
        ]
        kinds = [np.full(rows.size, c.equal) for c, (_, rows)
                 in zip(separate(constraints), self.active, strict=True)]
        J = np.asarray(concrete(jacobian(self._values)(x))).reshape(-1, x.size)
        force, *_ = np.linalg.lstsq(J[:, ~at_bound].T, g[~at_bound])
        pull = (g - J.T @ force)[at_bound]
        equal = np.concatenate([np.ones(0, bool), *kinds])
        self._require_certain(g, [*force[~equal], *pull])
        self.at_bound = at_bound
        self.start = np.concatenate([x, force])

    def _bounds(self, x: np.ndarray, ends: Any) -> Any:
        """The bound that each entry is at, NaN where none."""
        if ends is None:
            return np.full(x.shape, np.nan)
        lower, upper = [np.broadcast_to(e, x.shape) for e in ends]
        low, high = [np.isfinite(e) & _is_close(x - e) for e in map(concrete, (lower, upper))]
        return np.where(low, lower, np.where(high, upper, np.nan))

    def _require_certain(self, g: np.ndarray, forces: Sequence) -> None:
        least = np.min(np.abs(forces), initial=np.inf)
        if least <= CERTAIN * max(1.0, float(np.max(np.abs(g), initial=0.0))):
            raise SolverError(
                f"{user_line()}: the solution of {self.who} has a kink: a bound or constraint "
                f"holds there with a multiplier of {least:.1g}, so a change may leave it or not. "
                "There is no derivative; a constraint that never binds can be dropped."
            )

    def _values(self, x: Any) -> Any:
        """The active constraints."""
        return np.concatenate([np.zeros(0), *[_vector(f(x))[rows] for f, rows in self.active]])

    def __call__(self, z: Any) -> Any:
        x, force = z[: self.size], z[self.size :]
        g = self.gradient(x)
        if force.size:
            values, pull = vjp(self._values, x)
            g = g - pull(force)[0]
        else:
            values = force
        g = np.where(self.at_bound, x - np.where(self.at_bound, self.bounds, 0.0), g)
        return np.concatenate([g, values])


def _vector(y: Any) -> Any:
    return as_operand(y).reshape(-1)


def _is_close(slack: Any) -> np.ndarray:
    slack = slack.concrete() if isinstance(slack, Tracer) else slack
    return np.abs(slack) <= CLOSE


__all__ = ["Conditions", "as_list", "ends_of", "for_scipy"]
