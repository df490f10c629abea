"""``torch.distributions.constraints``: sets of values.

A class begins with an underscore, as in torch, and can be derived from; instances and factories do
not.

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
        return f"{_title(self)}()"


def _title(c: Constraint) -> str:
    return type(c).__name__.lstrip("_")


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
        return f"{_title(self)}({', '.join(shown)})"


class _GreaterThan(_Bounded):
    """Numbers above a bound."""

    def __init__(self, lower_bound: Any):
        self.lower_bound = lower_bound


class _GreaterThanEq(_GreaterThan):
    """Numbers that are at least a bound."""

    open = "neither"


class _IntegerGreaterThan(_GreaterThanEq):
    """Whole numbers that are at least a bound."""

    is_discrete = True


class _LessThan(_Bounded):
    """Numbers below a bound."""

    def __init__(self, upper_bound: Any):
        self.upper_bound = upper_bound


class _IntegerLessThan(_LessThan):
    """Whole numbers that are at most a bound."""

    is_discrete = True
    open = "neither"


class _Interval(_Bounded):
    """Numbers from one bound to another."""

    open = "neither"

    def __init__(self, lower_bound: Any, upper_bound: Any):
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class _HalfOpenInterval(_Interval):
    """Numbers from one bound to another, which does not belong to them."""

    open = "above"


class _IntegerInterval(_Interval):
    """Whole numbers from one bound to another."""

    is_discrete = True


class _IndependentConstraint(Constraint):
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
        return (f"{_title(self)}({self.base_constraint!r}, "
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


class _Cat(_Along):
    """Values whose parts along a dimension are in sets of their own."""


class _Stack(_Along):
    """Values whose entries along a dimension are in sets of their own."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0):
        super().__init__(cseq, dim)


class _Multinomial(Constraint):
    """Counts along the last dimension whose sum is ``upper_bound``."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any):
        self.upper_bound = upper_bound

    def holds(self, x: np.ndarray) -> np.ndarray | np.bool:
        total = as_tensor(self.upper_bound)._array
        return (x >= 0).all(-1) & (x == np.floor(x)).all(-1) & (x.sum(-1) == total)


class _Dependent(Constraint):
    """A set that depends on parameters, so that there is nothing to check by."""

    def __init__(self, *, is_discrete: bool = False, event_dim: int = 0):
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def holds(self, x: np.ndarray) -> NoReturn:
        raise ValueError("Cannot determine validity of dependent constraint")


class dependent_property(property, _Dependent):
    """A property whose value is a set, in the place of one; a decorator with or without options."""

    def __init__(self, fn: Callable | None = None, *, is_discrete: bool = False,
                 event_dim: int = 0):
        super().__init__(fn)
        _Dependent.__init__(self, is_discrete=is_discrete, event_dim=event_dim)

    def __call__(self, fn: Callable) -> dependent_property:
        return dependent_property(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


def is_dependent(constraint: object) -> bool:
    """Whether ``constraint`` can be checked only where parameters are known."""
    return isinstance(constraint, _Dependent)


def _transpose(x: np.ndarray) -> np.ndarray:
    return x.swapaxes(-1, -2)


def _symmetric(x: np.ndarray) -> np.ndarray | np.bool:
    return np.isclose(x, _transpose(x), atol=1e-6).all((-2, -1))


def _least_eigenvalue(x: np.ndarray) -> np.ndarray:
    return np.linalg.eigvalsh((x + _transpose(x)) / 2)[..., 0]


def _factor(x: np.ndarray) -> np.ndarray | np.bool:
    return (np.diagonal(x, 0, -2, -1) > 0).all(-1) & (np.tril(x) == x).all((-2, -1))


class _Real(Constraint):
    """Numbers, which NaN is not."""

    def holds(self, x: np.ndarray) -> np.ndarray | np.bool:
        return x == x


class _Boolean(Constraint):
    """Zeros and ones."""

    is_discrete = True

    def holds(self, x: np.ndarray) -> np.ndarray | np.bool:
        return (x == 0) | (x == 1)


class _OneHot(Constraint):
    """Vectors of zeros and a one."""

    is_discrete = True
    event_dim = 1

    def holds(self, x: np.ndarray) -> np.ndarray | np.bool:
        return ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1)


class _Simplex(Constraint):
    """Vectors that are not negative and sum to 1."""

    event_dim = 1

    def holds(self, x: np.ndarray) -> np.ndarray | np.bool:
        return (x >= 0).all(-1) & (np.abs(x.sum(-1) - 1) < 1e-6)


class _Square(Constraint):
    """Square matrices."""

    event_dim = 2

    def holds(self, x: np.ndarray) -> np.ndarray | np.bool:
        return np.full(x.shape[:-2], x.shape[-1] == x.shape[-2])


class _Symmetric(_Square):
    """Symmetric matrices."""

    def holds(self, x: np.ndarray) -> np.ndarray | np.bool:
        return _symmetric(x)


class _PositiveSemidefinite(_Symmetric):
    """Symmetric matrices without a negative eigenvalue."""

    def holds(self, x: np.ndarray) -> np.ndarray | np.bool:
        return _symmetric(x) & (_least_eigenvalue(x) >= 0)


class _PositiveDefinite(_Symmetric):
    """Symmetric matrices of positive eigenvalues."""

    def holds(self, x: np.ndarray) -> np.ndarray | np.bool:
        return _symmetric(x) & (_least_eigenvalue(x) > 0)


class _LowerTriangular(Constraint):
    """Lower triangular matrices."""

    event_dim = 2

    def holds(self, x: np.ndarray) -> np.ndarray | np.bool:
        return (np.tril(x) == x).all((-2, -1))


class _LowerCholesky(Constraint):
    """Lower triangular matrices of a positive diagonal."""

    event_dim = 2

    def holds(self, x: np.ndarray) -> np.ndarray | np.bool:
        return _factor(x)


class _CorrCholesky(Constraint):
    """Such matrices with rows of length 1."""

    event_dim = 2

    def holds(self, x: np.ndarray) -> np.ndarray | np.bool:
        return _factor(x) & (np.abs((x**2).sum(-1) - 1) < 1e-4).all(-1)


dependent = _Dependent()
greater_than, greater_than_eq, less_than = _GreaterThan, _GreaterThanEq, _LessThan
interval, half_open_interval, integer_interval = _Interval, _HalfOpenInterval, _IntegerInterval
independent, multinomial, cat, stack = _IndependentConstraint, _Multinomial, _Cat, _Stack
_DependentProperty = dependent_property
real, boolean, one_hot, simplex = _Real(), _Boolean(), _OneHot(), _Simplex()
real_vector = independent(real, 1)
positive, nonnegative = greater_than(0.0), greater_than_eq(0.0)
nonnegative_integer, positive_integer = _IntegerGreaterThan(0), _IntegerGreaterThan(1)
unit_interval = interval(0.0, 1.0)
square, symmetric = _Square(), _Symmetric()
positive_semidefinite, positive_definite = _PositiveSemidefinite(), _PositiveDefinite()
lower_triangular, lower_cholesky = _LowerTriangular(), _LowerCholesky()
corr_cholesky = _CorrCholesky()


__all__ = [
    "Constraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property",
    "greater_than", "greater_than_eq", "half_open_interval", "independent", "integer_interval",
    "interval", "is_dependent", "less_than", "lower_cholesky", "lower_triangular", "multinomial",
    "nonnegative", "nonnegative_integer", "one_hot", "positive", "positive_definite",
    "positive_integer", "positive_semidefinite", "real", "real_vector", "simplex", "square",
    "stack", "symmetric", "unit_interval",
]
