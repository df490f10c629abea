"""``torch.distributions``: densities, entropies, and samples with gradients.

>>> from functrans import torch
>>> mu = torch.tensor(0.5, requires_grad=True)
>>> Normal(mu, 1.0).log_prob(torch.tensor(2.0)).backward()
>>> mu.grad
tensor(1.5000)
"""

from __future__ import annotations

from functrans.torch.distributions import kl, transforms
from functrans.torch.distributions.continuous import (
    Beta,
    Cauchy,
    Chi2,
    Exponential,
    Gamma,
    Gumbel,
    HalfNormal,
    Laplace,
    LogNormal,
    Normal,
    StudentT,
    Uniform,
)
from functrans.torch.distributions.derived import MixtureSameFamily, TransformedDistribution
from functrans.torch.distributions.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    OneHotCategorical,
    Poisson,
)
from functrans.torch.distributions.distribution import Distribution, Independent
from functrans.torch.distributions.kl import kl_divergence, register_kl
from functrans.torch.distributions.multivariate import Dirichlet, MultivariateNormal
from functrans.torch.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    SoftplusTransform,
    TanhTransform,
    Transform,
    identity_transform,
)

__all__ = [
    "AffineTransform", "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2",
    "ComposeTransform", "Dirichlet", "Distribution", "ExpTransform", "Exponential", "Gamma",
    "Geometric", "Gumbel", "HalfNormal", "Independent", "Laplace", "LogNormal",
    "MixtureSameFamily", "MultivariateNormal", "Normal", "OneHotCategorical", "Poisson",
    "PowerTransform", "SigmoidTransform", "SoftplusTransform", "StudentT", "TanhTransform",
    "Transform", "TransformedDistribution", "Uniform", "identity_transform", "kl", "kl_divergence",
    "register_kl", "transforms",
]
