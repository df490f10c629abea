"""``torch.distributions.constraint_registry``: transforms from all numbers onto sets of values.

>>> from functrans import torch
>>> from functrans.torch.distributions import biject_to, constraints
>>> biject_to(constraints.positive)(torch.tensor([0.0]))
tensor([1.])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from functrans.torch.distributions.constraints import (
    Constraint,
    _Bounded,
    _CorrCholesky,
    _IndependentConstraint,
    _LowerCholesky,
    _PositiveDefinite,
    _Real,
    _Simplex,
)
from functrans.torch.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    SigmoidTransform,
    SoftmaxTransform,
    StickBreakingTransform,
    Transform,
    identity_transform,
)


class ConstraintRegistry:
    """A function of sets; ``register`` says what it is for those of another class."""

    def __init__(self, general: Callable[[Constraint], Transform]):
        self._general = general
        self._registry: dict[type, Callable[[Any], Transform]] = {}

    def register(self, constraint: Any, factory: Callable | None = None) -> Callable:
        """Make transforms for sets of the class of ``constraint`` by ``factory(constraint)``."""
        if factory is None:
            return lambda f: self.register(constraint, f)
        self._registry[constraint if isinstance(constraint, type) else type(constraint)] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        factory = self._registry.get(type(constraint))
        return self._general(constraint) if factory is None else factory(constraint)


@ConstraintRegistry
def biject_to(constraint: Constraint) -> Transform:
    """An invertible transform from all numbers to those of ``constraint``."""
    return _onto(constraint, biject_to)


def _onto(c: Constraint, parts: Callable[[Constraint], Transform]) -> Transform:
    """A transform onto ``c``, those onto parts of it by ``parts``."""
    if isinstance(c, _IndependentConstraint):
        return IndependentTransform(parts(c.base_constraint), c.reinterpreted_batch_ndims)
    kind = type(c)
    if kind is _Real:
        return identity_transform
    if kind is _Simplex:
        return StickBreakingTransform()
    if kind is _LowerCholesky:
        return LowerCholeskyTransform()
    if kind is _CorrCholesky:
        return CorrCholeskyTransform()
    if not isinstance(c, _Bounded) or c.is_discrete:
        raise NotImplementedError(f"Cannot transform {type(c).__name__.lstrip('_')} constraints")
    low, high = c.lower_bound, c.upper_bound
    if high is None:
        plain = isinstance(low, float | int) and low == 0
        return ExpTransform() if plain else ComposeTransform([ExpTransform(),
                                                              AffineTransform(low, 1)])
    if low is None:
        return ComposeTransform([ExpTransform(), AffineTransform(high, -1)])
    if all(isinstance(b, float | int) for b in (low, high)) and (low, high) == (0, 1):
        return SigmoidTransform()
    return ComposeTransform([SigmoidTransform(), AffineTransform(low, high - low)])


@ConstraintRegistry
def transform_to(constraint: Constraint) -> Transform:
    """A transform from all numbers onto those of ``constraint``, fit for descent."""
    if type(constraint) is _PositiveDefinite:
        return PositiveDefiniteTransform()
    return SoftmaxTransform() if type(constraint) is _Simplex else _onto(constraint, transform_to)


__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]
