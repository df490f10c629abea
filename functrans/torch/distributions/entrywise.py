"""Invertible functions of entries and vectors, and the slopes of their volumes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from functrans.torch._functions.elementwise import softplus
from functrans.torch._functions.shapes import cat
from functrans.torch._functions.table import METHODS
from functrans.torch._tensors.factories import arange, as_tensor
from functrans.torch._tensors.printing import finfo
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.distributions import constraints as C


class Transform:
    """Base: ``_call``, ``_inverse`` and ``log_abs_det_jacobian(x, y)`` of entries.

    ``event_dim`` last dimensions of a value belong together. ``domain`` and ``codomain`` are the
    sets of x and of y.
    """

    domain: Any = C.real
    codomain: Any = C.real
    event_dim = 0
    bijective = True
    sign = 1

    def __init__(self, cache_size: int = 0):
        super().__init__()  # a module may be a transform as well
        self._cached_x_y: tuple[Any, Any] = None, None
        self._cache_size = cache_size

    @property
    def inv(self) -> Transform:
        """The inverse function."""
        return _InverseTransform(self)

    def __call__(self, x: Tensor) -> Tensor:
        if self._cache_size and self._cached_x_y[0] is x:
            return self._cached_x_y[1]
        y = self._call(x)
        if self._cache_size:
            self._cached_x_y = x, y
        return y

    def inverse(self, y: Tensor) -> Tensor:
        """The x of which ``y`` is the value; the same tensor, where it was the last one."""
        if self._cache_size and self._cached_x_y[1] is y:
            return self._cached_x_y[0]
        x = self._inverse(y)
        if self._cache_size:
            self._cached_x_y = x, y
        return x

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError(type(self).__name__)

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError(type(self).__name__)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |det dy/dx|."""
        raise NotImplementedError(type(self).__name__)

    def forward_shape(self, shape: tuple) -> tuple:
        """The shape of values for x of ``shape``."""
        return tuple(shape)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _InverseTransform(Transform):
    def __init__(self, transform: Transform):
        super().__init__()
        self._inv, self.event_dim, self.sign = transform, transform.event_dim, transform.sign
        self.domain, self.codomain = transform.codomain, transform.domain

    @property
    def inv(self) -> Transform:
        return self._inv

    def __call__(self, x: Tensor) -> Tensor:
        return self._inv.inverse(x)

    def inverse(self, y: Tensor) -> Tensor:
        return self._inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._inv.log_abs_det_jacobian(y, x)

    def __repr__(self) -> str:
        return f"_InverseTransform({self._inv!r})"


class ComposeTransform(Transform):
    """One transform after another."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0):
        super().__init__(cache_size)
        self.parts = list(parts)
        self.event_dim = max([p.event_dim for p in parts], default=0)
        if self.parts:
            self.domain, self.codomain = self.parts[0].domain, self.parts[-1].codomain

    @property
    def inv(self) -> Transform:
        return ComposeTransform([p.inv for p in reversed(self.parts)])

    def _call(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part.inverse(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        total: Any = x.new_zeros(x.shape[: x.dim() - self.event_dim])
        for part in self.parts:
            after = part(x)
            total = total + summed(part.log_abs_det_jacobian(x, after),
                                   self.event_dim - part.event_dim)
            x = after
        return total

    def forward_shape(self, shape: tuple) -> tuple:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def __repr__(self) -> str:
        parts = ",\n    ".join(map(repr, self.parts))
        return f"{type(self).__name__}(\n    {parts}\n)"


def summed(x: Tensor, n: int) -> Tensor:
    """``x`` summed over the last ``n`` dimensions."""
    return x.sum(tuple(range(-n, 0))) if n else x


class AffineTransform(Transform):
    """loc + scale x."""

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0):
        super().__init__(cache_size)
        self.loc, self.scale, self.event_dim = loc, scale, event_dim

    @property
    def sign(self) -> Tensor | int:  # type: ignore[override]  # of each entry
        return as_tensor(self.scale).sign()

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.scale, Tensor):
            size = self.scale.abs().log().expand(x.shape)
        else:
            size = x.new_full(x.shape, math.log(abs(self.scale)))
        return summed(size, self.event_dim)


class ExpTransform(Transform):
    """exp(x)."""

    codomain = C.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class PowerTransform(Transform):
    """x**exponent, of positive numbers."""

    domain = C.positive
    codomain = C.positive

    def __init__(self, exponent: Any, cache_size: int = 0):
        super().__init__(cache_size)
        self.exponent = as_tensor(exponent)

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(self.exponent.reciprocal())

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()


class SigmoidTransform(Transform):
    """1 / (1 + exp(-x))."""

    codomain = C.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        return x.sigmoid()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x) - softplus(x)


class TanhTransform(Transform):
    """tanh(x)."""

    codomain = C.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))


class SoftplusTransform(Transform):
    """log(1 + exp(x))."""

    codomain = C.positive

    def _call(self, x: Tensor) -> Tensor:
        return softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x)


class AbsTransform(Transform):
    """|x|, whose inverse is the positive one."""

    codomain = C.positive
    bijective = False

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class SoftmaxTransform(Transform):
    """softmax(x) of vectors, which is not invertible: one inverse is log."""

    domain = C.real_vector
    codomain = C.simplex
    bijective = False
    event_dim = 1

    def _call(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()


class StickBreakingTransform(Transform):
    """From n numbers to n + 1 parts of a stick: each breaks off a part of what is left."""

    domain = C.real_vector
    codomain = C.simplex
    event_dim = 1

    def _offset(self, n: int, like: Tensor) -> Tensor:
        return arange(n, 0, -1, dtype=like.dtype).log()

    def _call(self, x: Tensor) -> Tensor:
        z = METHODS["sigmoid"](x - self._offset(x.shape[-1], x))
        one = z.new_ones((*z.shape[:-1], 1))
        return cat([z, one], -1) * cat([one, (1 - z).cumprod(-1)], -1)

    def _inverse(self, y: Tensor) -> Tensor:
        parts = y[..., :-1]
        left = 1 - parts.cumsum(-1)
        left = left.clamp(min=float(finfo(y.dtype).tiny))
        return parts.log() - left.log() + self._offset(parts.shape[-1], y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - self._offset(x.shape[-1], x)
        return (-x - softplus(-x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: tuple) -> tuple:
        return (*shape[:-1], shape[-1] + 1)


class LowerCholeskyTransform(Transform):
    """The lower triangle of a matrix, its diagonal exp of what is there."""

    domain = C.independent(C.real, 2)
    codomain = C.lower_cholesky
    event_dim = 2

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + METHODS["diag_embed"](x.diagonal(0, -2, -1).exp())

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + METHODS["diag_embed"](y.diagonal(0, -2, -1).log())


identity_transform = ComposeTransform([])
