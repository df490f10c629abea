"""``torch.distributions.exp_family``: entropies from the normaliser of a density."""

from __future__ import annotations

from typing import Any

from functrans.torch._graph.modes import enable_grad
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.autograd import grad
from functrans.torch.distributions.distribution import Distribution


class ExponentialFamily(Distribution):
    """Base of densities exp(<natural parameters, t(x)> - ``_log_normalizer`` + k(x)).

    ``_natural_params`` are the parameters, ``_mean_carrier_measure`` is the mean of k.
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Tensor | float:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError

    def entropy(self) -> Tensor:
        with enable_grad():
            parameters = [p.detach().requires_grad_() for p in self._natural_params]
            size = self._log_normalizer(*parameters)
            slopes = grad(size.sum(), parameters, create_graph=True)
        result: Any = size - self._mean_carrier_measure
        for p, slope in zip(parameters, slopes, strict=True):
            result = result - (p * slope).reshape(*self._batch_shape, -1).sum(-1)
        return result


__all__ = ["ExponentialFamily"]
