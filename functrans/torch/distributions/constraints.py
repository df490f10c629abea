"""``torch.distributions.constraints``: sets of values, and transforms from all numbers onto them.

>>> from functrans import torch
>>> from functrans.torch.distributions import biject_to, constraints
>>> biject_to(constraints.positive)(torch.tensor([0.0]))
tensor([1.])
>>> constraints.interval(0.0, 1.0).check(torch.tensor([0.5, 2.0]))
tensor([ True, False])
"""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans.torch._tensors.factories import as_tensor
from functrans.torch._tensors.tensor import Tensor, from_array
from functrans.torch.distributions.distribution import CONSTRAINTS
from functrans.torch.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    LowerCholeskyTransform,
    SigmoidTransform,
    SoftmaxTransform,
    StickBreakingTransform,
    Transform,
    identity_transform,
)


class Constraint:
    """A set of values, by its name in the table of what distributions check."""

    is_discrete = False
    event_dim = 0

    def __init__(self, name: str, event_dim: int = 0, is_discrete: bool = False):
        self.name, self.event_dim, self.is_discrete = name, event_dim, is_discrete

    def check(self, value: Tensor) -> Tensor:
        """Whether each value is in the set."""
        return from_array(np.asarray(CONSTRAINTS[self.name](value._array)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class _Bounded(Constraint):
    """Numbers between two bounds, None where there is none."""

    strict = True

    def __init__(self, lower_bound: Any = None, upper_bound: Any = None):
        self.lower_bound, self.upper_bound = lower_bound, upper_bound
        super().__init__("bounded")

    def check(self, value: Tensor) -> Tensor:
        """Whether each value is between the bounds."""
        inside = np.ones(value.shape, bool)
        low, high = [None if b is None else as_tensor(b)._array
                     for b in (self.lower_bound, self.upper_bound)]
        if low is not None:
            inside = inside & (value._array > low if self.strict else value._array >= low)
        if high is not None:
            inside = inside & (value._array < high if self.strict else value._array <= high)
        return from_array(np.asarray(inside))

    def __repr__(self) -> str:
        bounds = {"lower_bound": self.lower_bound, "upper_bound": self.upper_bound}
        shown = [f"{k}={v}" for k, v in bounds.items() if v is not None]
        return f"{type(self).__name__}({', '.join(shown)})"


class greater_than(_Bounded):
    """Numbers above a bound."""

    def __init__(self, lower_bound: Any):
        super().__init__(lower_bound)


class greater_than_eq(greater_than):
    """Numbers that are at least a bound."""

    strict = False


class less_than(_Bounded):
    """Numbers below a bound."""

    def __init__(self, upper_bound: Any):
        super().__init__(None, upper_bound)


class interval(_Bounded):
    """Numbers from one bound to another."""

    strict = False

    def __init__(self, lower_bound: Any, upper_bound: Any):
        super().__init__(lower_bound, upper_bound)


real, real_vector = Constraint("real"), Constraint("real vector", 1)
positive, nonnegative = greater_than(0.0), greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
boolean = Constraint("boolean", is_discrete=True)
nonnegative_integer = Constraint("natural", is_discrete=True)
simplex, one_hot = Constraint("simplex", 1), Constraint("one-hot", 1, True)
lower_cholesky, positive_definite = Constraint("lower", 2), Constraint("positive definite", 2)

# what a distribution's ``support`` says
_NAMED = {"real": real, "real vector": real_vector, "positive": positive, "simplex": simplex,
          "nonnegative": nonnegative, "unit": unit_interval, "lower": lower_cholesky}


def biject_to(constraint: Constraint | str) -> Transform:
    """An invertible transform from all numbers to those of ``constraint``."""
    c = _NAMED.get(constraint, constraint) if isinstance(constraint, str) else constraint
    if c in (real, real_vector):
        return identity_transform
    if c is simplex:
        return StickBreakingTransform()
    if c is lower_cholesky:
        return LowerCholeskyTransform()
    if not isinstance(c, _Bounded):
        raise NotImplementedError(f"Cannot transform {c} constraints")
    low, high = c.lower_bound, c.upper_bound
    if high is None:
        return ExpTransform() if low is c.lower_bound and c in (positive, nonnegative) else (
            ComposeTransform([ExpTransform(), AffineTransform(low, 1)]))
    if low is None:
        return ComposeTransform([ExpTransform(), AffineTransform(high, -1)])
    if (low, high) == (0.0, 1.0):
        return SigmoidTransform()
    return ComposeTransform([SigmoidTransform(), AffineTransform(low, high - low)])


def transform_to(constraint: Constraint | str) -> Transform:
    """A transform from all numbers onto those of ``constraint``, fit for descent."""
    if constraint in (simplex, "simplex"):
        return SoftmaxTransform()
    return biject_to(constraint)


__all__ = [
    "Constraint", "biject_to", "boolean", "greater_than", "greater_than_eq", "interval",
    "less_than", "lower_cholesky", "nonnegative", "nonnegative_integer", "one_hot", "positive",
    "positive_definite", "real", "real_vector", "simplex", "transform_to", "unit_interval",
]
