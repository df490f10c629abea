"""``torch.distributions.constraints``: sets of values.

>>> from functrans import torch
>>> from functrans.torch.distributions import constraints
>>> constraints.interval(0.0, 1.0).check(torch.tensor([0.5, 2.0]))
tensor([ True, False])
>>> constraints.positive
GreaterThan(lower_bound=0.0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from functrans.torch._tensors.factories import as_tensor
from functrans.torch._tensors.tensor import Tensor, from_array


class Constraint:
    """A set of values: ``check`` says of each whether it is in the set.

    The last ``event_dim`` dimensions of a value belong together.
    """

    is_discrete = False
    event_dim = 0

    def check(self, value: Tensor) -> Tensor:
        """Whether each value is in the set."""
        return from_array(np.asarray(self.holds(value._array)))

    def holds(self, x: np.ndarray) -> np.ndarray | np.bool:
        """``check`` of arrays."""
        raise NotImplementedError(type(self).__name__)

    def __repr__(self) -> str:
        return f"{type(self).__name__.lstrip('_')}()"


class _Set(Constraint):
    """A set by its name and by what holds of the arrays in it."""

    def __init__(self, name: str, holds: Callable[[np.ndarray], Any], event_dim: int = 0,
                 is_discrete: bool = False):
        self.name, self.event_dim, self.is_discrete = name, event_dim, is_discrete
        self._holds = holds

    def holds(self, x: np.ndarray) -> np.ndarray | np.bool:
        return self._holds(x)

    def __repr__(self) -> str:
        return f"{self.name}()"


class _Bounded(Constraint):
    """Numbers between two bounds, None where there is none, which belong to it or do not."""

    lower_bound: Any = None
    upper_bound: Any = None
    open = "both"

    def holds(self, x: np.ndarray) -> np.ndarray | np.bool:
        inside = np.ones(x.shape, bool)
        low, high = [None if b is None else as_tensor(b)._array
                     for b in (self.lower_bound, self.upper_bound)]
        if low is not None:
            inside = inside & (x > low if self.open == "both" else x >= low)
        if high is not None:
            inside = inside & (x <= high if self.open == "neither" else x < high)
        return inside & (x == np.floor(x)) if self.is_discrete else inside

    def __repr__(self) -> str:
        bounds = {"lower_bound": self.lower_bound, "upper_bound": self.upper_bound}
        shown = [f"{k}={v}" for k, v in bounds.items() if v is not None]
        return f"{type(self).__name__}({', '.join(shown)})"


class GreaterThan(_Bounded):
    """Numbers above a bound."""

    def __init__(self, lower_bound: Any):
        self.lower_bound = lower_bound


class GreaterThanEq(GreaterThan):
    """Numbers that are at least a bound."""

    open = "neither"


class IntegerGreaterThan(GreaterThanEq):
    """Whole numbers that are at least a bound."""

    is_discrete = True


class LessThan(_Bounded):
    """Numbers below a bound."""

    def __init__(self, upper_bound: Any):
        self.upper_bound = upper_bound


class Interval(_Bounded):
    """Numbers from one bound to another."""

    open = "neither"

    def __init__(self, lower_bound: Any, upper_bound: Any):
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class HalfOpenInterval(Interval):
    """Numbers from one bound to another, which does not belong to them."""

    open = "above"


class IntegerInterval(Interval):
    """Whole numbers from one bound to another."""

    is_discrete = True


class IndependentConstraint(Constraint):
    """Values of which all along the last dimensions are in another set."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int):
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        self.event_dim = base_constraint.event_dim + reinterpreted_batch_ndims
        self.is_discrete = base_constraint.is_discrete

    def check(self, value: Tensor) -> Tensor:
        inside = self.base_constraint.check(value)._array
        n = self.reinterpreted_batch_ndims
        if inside.ndim < n:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return from_array(np.asarray(inside.all(tuple(range(-n, 0)))))

    def __repr__(self) -> str:
        return (f"{type(self).__name__}({self.base_constraint!r}, "
                f"{self.reinterpreted_batch_ndims})")


class _Along(Constraint):
    """Parts along a dimension, each in a set of its own, ``lengths`` of them."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0,
                 lengths: Sequence[int] | None = None):
        self.cseq, self.dim, self.lengths = list(cseq), dim, lengths or [1] * len(cseq)
        self.event_dim = max([c.event_dim for c in cseq])
        self.is_discrete = any(c.is_discrete for c in cseq)

    def holds(self, x: np.ndarray) -> np.ndarray | np.bool:
        parts = np.split(x, np.cumsum(self.lengths)[:-1], self.dim)
        return np.concatenate([c.check(from_array(part))._array
                               for c, part in zip(self.cseq, parts, strict=True)], self.dim)


class Cat(_Along):
    """Values whose parts along a dimension are in sets of their own."""


class Stack(_Along):
    """Values whose entries along a dimension are in sets of their own."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0):
        super().__init__(cseq, dim)


class Multinomial(Constraint):
    """Counts along the last dimension whose sum is ``upper_bound``."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any):
        self.upper_bound = upper_bound

    def holds(self, x: np.ndarray) -> np.ndarray | np.bool:
        total = as_tensor(self.upper_bound)._array
        return (x >= 0).all(-1) & (x == np.floor(x)).all(-1) & (x.sum(-1) == total)


class Dependent(Constraint):
    """A set that depends on parameters, so that there is nothing to check by."""

    def __init__(self, *, is_discrete: bool = False, event_dim: int = 0):
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def holds(self, x: np.ndarray) -> NoReturn:
        raise ValueError("Cannot determine validity of dependent constraint")


class dependent_property(property, Dependent):
    """A property whose value is a set, in the place of one; a decorator with or without options."""

    def __init__(self, fn: Callable | None = None, *, is_discrete: bool = False,
                 event_dim: int = 0):
        super().__init__(fn)
        Dependent.__init__(self, is_discrete=is_discrete, event_dim=event_dim)

    def __call__(self, fn: Callable) -> dependent_property:
        return dependent_property(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


def is_dependent(constraint: object) -> bool:
    """Whether ``constraint`` can be checked only where parameters are known."""
    return isinstance(constraint, Dependent)


def _transpose(x: np.ndarray) -> np.ndarray:
    return x.swapaxes(-1, -2)


def _symmetric(x: np.ndarray) -> np.ndarray | np.bool:
    return np.isclose(x, _transpose(x), atol=1e-6).all((-2, -1))


def _least_eigenvalue(x: np.ndarray) -> np.ndarray:
    return np.linalg.eigvalsh((x + _transpose(x)) / 2)[..., 0]


def _lower(x: np.ndarray) -> np.ndarray | np.bool:
    return (np.tril(x) == x).all((-2, -1))


def _factor(x: np.ndarray) -> np.ndarray | np.bool:
    return (np.diagonal(x, 0, -2, -1) > 0).all(-1) & _lower(x)


dependent = Dependent()
greater_than, greater_than_eq, less_than = GreaterThan, GreaterThanEq, LessThan
interval, half_open_interval, integer_interval = Interval, HalfOpenInterval, IntegerInterval
independent, multinomial, cat, stack = IndependentConstraint, Multinomial, Cat, Stack
real = _Set("Real", lambda x: x == x)
real_vector = independent(real, 1)
positive, nonnegative = greater_than(0.0), greater_than_eq(0.0)
nonnegative_integer, positive_integer = IntegerGreaterThan(0), IntegerGreaterThan(1)
unit_interval = interval(0.0, 1.0)
boolean = _Set("Boolean", lambda x: (x == 0) | (x == 1), 0, True)
one_hot = _Set("OneHot", lambda x: ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1), 1, True)
simplex = _Set("Simplex", lambda x: (x >= 0).all(-1) & (np.abs(x.sum(-1) - 1) < 1e-6), 1)
square = _Set("Square", lambda x: np.full(x.shape[:-2], x.shape[-1] == x.shape[-2]), 2)
symmetric = _Set("Symmetric", _symmetric, 2)
positive_semidefinite = _Set("PositiveSemidefinite",
                             lambda x: _symmetric(x) & (_least_eigenvalue(x) >= 0), 2)
positive_definite = _Set("PositiveDefinite", lambda x: _symmetric(x) & (_least_eigenvalue(x) > 0),
                         2)
lower_triangular = _Set("LowerTriangular", _lower, 2)
lower_cholesky = _Set("LowerCholesky", _factor, 2)
corr_cholesky = _Set("CorrCholesky", lambda x: _factor(x) & (
    np.abs((x**2).sum(-1) - 1) < 1e-4).all(-1), 2)


__all__ = [
    "Constraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property",
    "greater_than", "greater_than_eq", "half_open_interval", "independent", "integer_interval",
    "interval", "is_dependent", "less_than", "lower_cholesky", "lower_triangular", "multinomial",
    "nonnegative", "nonnegative_integer", "one_hot", "positive", "positive_definite",
    "positive_integer", "positive_semidefinite", "real", "real_vector", "simplex", "square",
    "stack", "symmetric", "unit_interval",
]
