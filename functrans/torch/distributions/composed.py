"""Transforms made of others, part by part, and of shapes; those onto matrices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from functrans.torch._functions.elementwise import softplus
from functrans.torch._functions.joining import tril_indices
from functrans.torch._functions.shapes import cat
from functrans.torch._tensors.dtypes import Size
from functrans.torch._tensors.factories import eye
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.distributions import constraints as C
from functrans.torch.distributions.distribution import Distribution
from functrans.torch.distributions.entrywise import LowerCholeskyTransform, Transform, summed


class IndependentTransform(Transform):
    """Another transform, more of whose last dimensions belong together."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int,
                 cache_size: int = 0):
        super().__init__(cache_size)
        self.base_transform = base_transform
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        self.event_dim = base_transform.event_dim + reinterpreted_batch_ndims
        self.bijective, self.sign = base_transform.bijective, base_transform.sign
        self.domain, self.codomain = [C.independent(c, reinterpreted_batch_ndims) for c in
                                      (base_transform.domain, base_transform.codomain)]

    def _call(self, x: Tensor) -> Tensor:
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.base_transform.inverse(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return summed(self.base_transform.log_abs_det_jacobian(x, y),
                      self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: tuple) -> tuple:
        return self.base_transform.forward_shape(shape)

    def __repr__(self) -> str:
        return (f"{type(self).__name__}({self.base_transform!r}, "
                f"{self.reinterpreted_batch_ndims})")


class ReshapeTransform(Transform):
    """The last dimensions in another shape."""

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0):
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ValueError("in_shape, out_shape have different numbers of elements")
        self.event_dim = len(self.in_shape)
        self.domain = C.independent(C.real, len(self.in_shape))
        self.codomain = C.independent(C.real, len(self.out_shape))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[: x.dim() - len(self.in_shape)], *self.out_shape)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(*y.shape[: y.dim() - len(self.out_shape)], *self.in_shape)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(x.shape[: x.dim() - len(self.in_shape)])

    def forward_shape(self, shape: tuple) -> tuple:
        n = len(shape) - len(self.in_shape)
        if n < 0 or tuple(shape[n:]) != self.in_shape:
            raise ValueError(f"Shape mismatch: expected {shape[max(n, 0):]} but got "
                             f"{self.in_shape}")
        return Size((*shape[:n], *self.out_shape))


class CatTransform(Transform):
    """Transforms of parts along a dimension, ``lengths`` of them."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0,
                 lengths: Sequence[int] | None = None, cache_size: int = 0):
        super().__init__(cache_size)
        self.transforms, self.dim = list(tseq), dim
        self.lengths = list(lengths or [1] * len(self.transforms))
        self.event_dim = max([t.event_dim for t in self.transforms])
        self.bijective = all(t.bijective for t in self.transforms)
        self.domain, self.codomain = [C.cat(cs, dim, self.lengths) for cs in zip(
            *[(t.domain, t.codomain) for t in self.transforms], strict=True)]

    def _parts(self, x: Tensor) -> Iterator[tuple[Transform, Tensor]]:
        return zip(self.transforms, x.split(self.lengths, self.dim), strict=True)

    def _call(self, x: Tensor) -> Tensor:
        return cat([t(part) for t, part in self._parts(x)], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return cat([t.inverse(part) for t, part in self._parts(y)], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        parts = [summed(t.log_abs_det_jacobian(a, b), self.event_dim - t.event_dim)
                 for (t, a), (_, b) in zip(self._parts(x), self._parts(y), strict=True)]
        dim = self.dim - x.dim() if self.dim >= 0 else self.dim
        dim += self.event_dim
        return cat(parts, dim) if dim < 0 else sum(parts[1:], parts[0])


class StackTransform(CatTransform):
    """Transforms of entries along a dimension."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0):
        super().__init__(tseq, dim, None, cache_size)


class CumulativeDistributionTransform(Transform):
    """The cdf of a distribution."""

    codomain = C.unit_interval

    def __init__(self, distribution: Distribution, cache_size: int = 0):
        super().__init__(cache_size)
        self.distribution = distribution
        self.domain = distribution.support

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)


class CorrCholeskyTransform(Transform):
    """From n (n - 1) / 2 numbers to the Cholesky factor of an (n, n) matrix of correlations.

    The entries of a row below the diagonal break off parts of what is left of its length 1.
    """

    domain = C.real_vector
    codomain = C.corr_cholesky
    event_dim = 1

    def _size(self, m: int) -> int:
        n = round((0.25 + 2 * m) ** 0.5 + 0.5)
        if n * (n - 1) != 2 * m:
            raise ValueError("Input is not a flattend lower-diagonal number")
        return n

    def _call(self, x: Tensor) -> Tensor:
        n = self._size(x.shape[-1])
        below = x.new_zeros((*x.shape[:-1], n, n))
        rows, columns = tril_indices(n, n, -1)
        below[..., rows, columns] = x.tanh()
        left = (1 - below**2).sqrt().cumprod(-1)[..., :-1]
        left = cat([left.new_ones((*left.shape[:-1], 1)), left], -1)
        return (below + eye(n, dtype=x.dtype)) * left

    def _inverse(self, y: Tensor) -> Tensor:
        n = y.shape[-1]
        rows, columns = tril_indices(n, n, -1)
        left = (1 - (y**2).cumsum(-1))[..., :-1]
        left = cat([left.new_ones((*left.shape[:-1], 1)), left], -1)
        return (y / left.clamp(min=1e-38).sqrt())[..., rows, columns].atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        n = y.shape[-1]
        rows, columns = tril_indices(n, n, -2)
        left = (1 - (y**2).cumsum(-1))[..., rows, columns]
        return left.log().sum(-1) / 2 - 2 * (x + softplus(-2 * x) - math.log(2)).sum(-1)

    def forward_shape(self, shape: tuple) -> tuple:
        n = self._size(shape[-1])
        return Size((*shape[:-1], n, n))


class PositiveDefiniteTransform(Transform):
    """L L^T, for the lower triangle L of a matrix and exp of its diagonal."""

    domain = C.independent(C.real, 2)
    codomain = C.positive_definite
    event_dim = 2

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inverse(y.cholesky())
