"""Constraints, and the conditions of Karush, Kuhn and Tucker at a minimum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from functrans._core.bind import AnyArray, Tracer
from functrans._transforms.matrices.jacobian import hessian, jacobian
from functrans._transforms.reverse.api import vjp
from functrans.errors import SolverError, user_line
from functrans.numpy.structure import as_operand
from functrans.scipy.calls import Derivative, Numbers, as_args, jacobian_at
from functrans.scipy.implicit import (
    DENSE,
    Root,
    concrete,
    followed,
    keep_root,
    numbers,
    polished,
    require_smooth,
    units_of,
)
from functrans.scipy.public import is_traced

# ---- Constraints as SciPy takes them, for its solvers and as vectors of equations and inequalities

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


def functions_of(constraints: list) -> list[Callable]:
    """The functions of those that are not linear."""
    return [c.fun if isinstance(c, so.NonlinearConstraint) else c["fun"] for c in constraints
            if not isinstance(c, so.LinearConstraint)]


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
    f.traced = f.traced or is_traced(args)
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
            yield Constraint(_call(c["fun"], as_args(c.get("args", ()))),
                             c["type"].lower() == "eq")


def _call(f: Callable, args: tuple) -> Callable:
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


# ---- The conditions of Karush, Kuhn and Tucker at a minimum: as many equations as unknowns
#
# With the constraints c that are active there, and multipliers :math:`\lambda`,
#
# .. math:: \nabla f(x) - \sum_i \lambda_i \nabla c_i(x) = 0, \qquad c_i(x) = 0,
#
# Bounds of the entries of x are among the constraints. Which are active is not judged by how near
# the solver came: an active set is taken for true if the equations that it gives, solved to the
# last digits, have a solution nearby at which the others hold and no multiplier is negative.
# Guesses come from the quadratic program that has the same slopes and curvatures at the solver's x.

# How many roundings a slack or multiplier may be off.
ROUNDINGS = 1e5
# Changes of an active set, from one guess.
CHANGES = 12


class Conditions:
    """The equations that x and the multipliers obey, from the numbers ``x`` of a solver; of numbers
    alone, slopes and curvatures are ``compiled`` where they can be.

    Raises SolverError where none of the active sets has a solution nearby, and where a constraint
    holds there without force: the solution has a kink.
    """

    def __init__(self, who: str, gradient: Callable, x: np.ndarray, ends: Any, constraints: Any,
                 compiled: tuple[Callable | None, Callable | None] = (None, None)):
        self.who, self.gradient, self.size = who, gradient, x.size
        self.slope = compiled[0] or numbers(gradient)
        self.curvature = compiled[1] or numbers(jacobian(gradient))
        others = list(separate(constraints, x))
        self.limits, self.bends = [*within(x, ends), *others], bool(others)
        slack = [np.asarray(concrete(vector(c.value(x)))) for c in self.limits]
        self.equal = _join([np.full(v.size, c.equal) for c, v in zip(self.limits, slack,
                                                                       strict=True)], bool)
        self.sizes = _join([np.broadcast_to(c.size, v.size) for c, v in zip(self.limits, slack,
                                                                              strict=True)], float)
        self.cuts = np.cumsum([v.size for v in slack])[:-1]
        self.units = _units(x, ends)
        self.active: list[np.ndarray] = []
        self.root, self.active = keep_root(
            x, lambda: (self._solved(x, _join(slack, float)), self.active))

    def solution(self) -> AnyArray:
        """The minimum, with its derivatives."""
        return followed(self, self.root)[: self.size]

    def _solved(self, x: np.ndarray, slack: np.ndarray) -> Root:
        failed = None
        matrix = self.matrix if x.size + slack.size <= DENSE else None
        tried: set[bytes] = set()
        for active in self._guesses(x, slack):
            for _ in range(CHANGES):
                if active.tobytes() in tried:
                    break
                tried.add(active.tobytes())
                try:
                    start = self._start(x, active)
                    units = np.concatenate([self.units, units_of(start[self.size :])])
                    root = polished(self.who, self.plain, start, matrix, units, self.size)
                except SolverError as error:
                    failed = failed or error
                    break
                wrong = self._wrong(root, active)
                if not wrong.any():
                    require_smooth(self.who, self.plain, root)
                    return root
                active = active ^ wrong
        raise failed or SolverError(
            f"{user_line()}: {self.who} ended at {x}, which has no derivative: there is no minimum "
            "nearby at which some of the bounds and constraints hold and the others do not bind"
        )

    def _start(self, x: np.ndarray, active: np.ndarray) -> np.ndarray:
        """x and the multipliers of what is active, which is set."""
        rows = np.split(active, self.cuts)
        self.active = [np.flatnonzero(r) for r in rows]
        if not active.any():
            return x
        J = np.asarray(concrete(jacobian(self._values)(x))).reshape(-1, x.size)
        force = _forces(J, np.asarray(self.slope(x)), self.units)
        return np.concatenate([x, force])

    def _wrong(self, root: Root, active: np.ndarray) -> np.ndarray:
        """What does not hold at a root, or pulls; SolverError where something does neither."""
        if not self.limits:
            return active
        x, force = root.z[: self.size], root.z[self.size :]
        error = _errors(root)
        others = ~active
        slack, pulled = np.zeros(active.size), np.zeros(active.size)
        off, off_force = np.zeros(active.size), np.zeros(active.size)
        slack[others] = _join([np.asarray(concrete(vector(c.value(x))))[r] for c, r in zip(
            self.limits, np.split(others, self.cuts), strict=True)], float)
        off[others] = self._slack_errors(x, error[: self.size], others)
        pulled[active], off_force[active] = force, error[self.size :]
        free = ~self.equal
        wrong = free & np.where(active, pulled < -off_force, slack < -off)
        idle = free & np.where(active, pulled <= off_force, slack <= off)
        if not wrong.any() and idle.any():
            least = np.min(np.where(active, pulled, 0.0)[idle])
            raise SolverError(
                f"{user_line()}: the solution of {self.who} has a kink: a bound or constraint "
                f"holds there with a multiplier of {least:.1g}, so a change may leave it or not. "
                "There is no derivative; a constraint that never binds can be dropped."
            )
        return wrong

    def _slack_errors(self, x: np.ndarray, error: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """How far the slack of constraints may be off, given the error of x."""
        parts = np.split(rows, self.cuts)

        def values(x: Any) -> AnyArray:
            return np.concatenate([np.zeros(0), *[vector(c.value(x))[np.flatnonzero(r)]
                                                  for c, r in zip(self.limits, parts,
                                                                  strict=True)]])

        J = np.abs(np.asarray(concrete(jacobian(values)(x))).reshape(-1, x.size))
        eps = np.finfo(x.dtype).eps
        return J @ error + ROUNDINGS * eps * (J @ np.abs(x) + self.sizes[rows])

    def _guesses(self, x: np.ndarray, slack: np.ndarray) -> Iterator[np.ndarray]:
        """Active sets, the likeliest first."""
        exact = self.equal | (slack <= 0)
        yield exact  # of methods that stay within bounds
        if not self.limits or self.equal.all():
            return
        if x.size > DENSE:
            yield self.equal.copy()
            return
        self.active = [np.arange(len(r)) for r in np.split(slack, self.cuts)]
        g, H = [np.asarray(f(x)) for f in (self.slope, self.curvature)]
        J = np.asarray(numbers(jacobian(self._values))(x)).reshape(-1, x.size)
        # how far a slope would take an unknown is a size too, where a bound holds it at zero
        bend = np.abs(np.diag(H))
        curved = (bend > 1e-14 * np.max(bend)) | (
            bend * np.max(self.units) > 1e-12 * np.abs(g))
        self.units = np.maximum(self.units, np.where(
            curved, np.abs(g) / np.where(curved, bend, 1.0), 0.0))
        likely, force = _complementary(J, g, slack, self.equal, self.units)
        if self.bends:
            H = H - self._bend(x, force)
        program = Quadratic(H, g, J, slack, self.equal, self.units)
        for first in (likely, exact, self.equal):
            yield program.active(first)
        yield from (likely, exact)

    def _values(self, x: Any) -> AnyArray:
        """The active constraints."""
        pairs = zip(self.limits, self.active, strict=True)
        return np.concatenate([np.zeros(0), *[vector(c.value(x))[rows] for c, rows in pairs]])

    def _bend(self, x: np.ndarray, force: np.ndarray) -> np.ndarray:
        """The curvature of the active constraints, times their multipliers."""
        return np.asarray(numbers(jacobian(lambda x: vjp(self._values, x)[1](force)[0]))(x))

    def plain(self, z: Any) -> AnyArray:
        """The equations of numbers."""
        if isinstance(z, Tracer):  # products with the Jacobian
            return self(z)
        x, force = z[: self.size], z[self.size :]
        g = np.asarray(self.slope(x))
        if not force.size:
            return g
        values, pull = vjp(self._values, x)
        values, (pulled,) = concrete((values, pull(force)))
        return np.concatenate([g - pulled, values])

    def matrix(self, z: np.ndarray) -> np.ndarray:
        """Their Jacobian."""
        x, force = z[: self.size], z[self.size :]
        H = np.asarray(self.curvature(x))
        if not force.size:
            return H
        J = np.asarray(numbers(jacobian(self._values))(x))
        H = H - self._bend(x, force) if self.bends else H
        return np.block([[H, -J.T], [J, np.zeros((force.size, force.size))]])

    def __call__(self, z: Any) -> AnyArray:
        x, force = z[: self.size], z[self.size :]
        g = self.gradient(x)
        if not force.size:
            return g
        values, pull = vjp(self._values, x)
        return np.concatenate([g - pull(force)[0], values])


def _join(parts: list, dtype: Any) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype, copy=False)


def _units(x: np.ndarray, ends: Any) -> np.ndarray:
    """The sizes that matter for each unknown: its own, or where it is zero that of its bounds."""
    if ends is None:
        return units_of(x)
    size = np.abs(x)
    for end in ends:
        bound = np.broadcast_to(np.abs(np.asarray(concrete(end), float)), x.shape)
        size = np.where((size == 0) & np.isfinite(bound), bound, size)
    return units_of(size)


def _errors(root: Root) -> np.ndarray:
    """How far the entries of a root may be off: by rounding in the terms of its equations."""
    z = np.abs(root.z)
    J = getattr(root.solver, "J", None)
    eps = ROUNDINGS * np.finfo(root.z.dtype).eps
    if J is None:
        return np.maximum(eps * np.max(z, initial=0.0), 10 * np.abs(root.step))
    terms = np.abs(root.solver.solve(np.eye(len(z)))).T @ (np.abs(J) @ z)
    return np.maximum(eps * np.maximum(terms, z), 10 * np.abs(root.step))


# ---- guesses


def _forces(J: np.ndarray, g: np.ndarray, D: np.ndarray) -> np.ndarray:
    """Multipliers, by least squares in the units ``D``."""
    A = J * D
    rows = np.maximum(np.linalg.norm(A, axis=1), np.finfo(float).tiny)
    return np.linalg.lstsq((A / rows[:, None]).T, g * D)[0] / rows


def _complementary(J: np.ndarray, g: np.ndarray, slack: np.ndarray, equal: np.ndarray,
                   D: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What may be active and with which multipliers: those of least squares that are not negative,
    and the smaller the more slack there is.
    """
    A = J * D
    rows = np.maximum(np.linalg.norm(A, axis=1), np.finfo(float).tiny)
    A, slack = A / rows[:, None], np.where(equal, 0.0, np.maximum(slack, 0.0) / rows)
    size = np.linalg.norm(g * D) or 1.0
    whole = np.vstack([A.T, np.diag(slack)])
    signed = np.hstack([whole, -whole[:, equal]])
    force = optimize.nnls(signed, np.concatenate([g * D / size, np.zeros(slack.size)]))[0]
    total = force[: slack.size]
    total[equal] -= force[slack.size :]
    return equal | (total > slack), total * size / rows


class Quadratic(NamedTuple):
    """The least d'Hd / 2 + g'd with ``slack + J d >= 0``, or 0 where ``equal``, in units ``D``."""

    H: np.ndarray
    g: np.ndarray
    J: np.ndarray
    slack: np.ndarray
    equal: np.ndarray
    D: np.ndarray

    def active(self, first: np.ndarray) -> np.ndarray:
        """The constraints that hold at the solution, by changes of the set ``first``."""
        H, g, J = self.D[:, None] * self.H * self.D, self.g * self.D, self.J * self.D
        unit = np.max(np.abs(H), initial=0.0) or 1.0
        rows = np.maximum(np.linalg.norm(J, axis=1), np.finfo(float).tiny)
        J, slack = J / rows[:, None], self.slack / rows
        active, seen, n = first.copy(), set(), len(g)
        for _ in range(4 * len(slack) + 10):
            A = J[active]
            matrix = np.block([[H / unit, -A.T], [A, np.zeros((len(A), len(A)))]])
            z = np.linalg.lstsq(matrix, -np.concatenate([g / unit, slack[active]]))[0]
            force, left = np.zeros(len(slack)), slack + J @ z[:n]
            force[active] = z[n:]
            wrong = ~self.equal & np.where(active, force < 0, left < -1e-12)
            if not wrong.any():
                break
            if active.tobytes() in seen:  # one at a time, where all at once go round in circles
                worst = np.where(wrong, np.where(active, force, left), np.inf)
                wrong = np.arange(len(slack)) == np.argmin(worst)
            seen.add(active.tobytes())
            active = active ^ wrong
        return active
