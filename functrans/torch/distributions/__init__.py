"""``torch.distributions``: densities, entropies, and samples with gradients.

>>> from functrans import torch
>>> mu = torch.tensor(0.5, requires_grad=True)
>>> Normal(mu, 1.0).log_prob(torch.tensor(2.0)).backward()
>>> mu.grad
tensor(1.5000)
"""

from __future__ import annotations

from functrans.torch._names import absent
from functrans.torch.distributions import constraint_registry, constraints, kl, transforms, utils
from functrans.torch.distributions.constraint_registry import biject_to, transform_to
from functrans.torch.distributions.continuous import (
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
    ContinuousBernoulli,
    Geometric,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
    Poisson,
)
from functrans.torch.distributions.distribution import Distribution, Independent
from functrans.torch.distributions.exp_family import ExponentialFamily
from functrans.torch.distributions.kl import kl_divergence, register_kl
from functrans.torch.distributions.multivariate import (
    Beta,
    Dirichlet,
    LKJCholesky,
    LowRankMultivariateNormal,
    MultivariateNormal,
    Wishart,
)
from functrans.torch.distributions.rarer import (
    FisherSnedecor,
    HalfCauchy,
    InverseGamma,
    Kumaraswamy,
    LogisticNormal,
    LogitRelaxedBernoulli,
    Multinomial,
    NegativeBinomial,
    Pareto,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
    VonMises,
    Weibull,
)
from functrans.torch.distributions.transforms import *  # noqa: F403  # they are ours too

__all__ = [
    *transforms.__all__,
    "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "ContinuousBernoulli",
    "Dirichlet", "Distribution", "Exponential", "ExponentialFamily", "FisherSnedecor", "Gamma",
    "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent", "InverseGamma",
    "Kumaraswamy", "LKJCholesky", "Laplace", "LogNormal", "LogisticNormal",
    "LogitRelaxedBernoulli", "LowRankMultivariateNormal", "MixtureSameFamily", "Multinomial",
    "MultivariateNormal", "NegativeBinomial", "Normal", "OneHotCategorical",
    "OneHotCategoricalStraightThrough", "Pareto", "Poisson", "RelaxedBernoulli",
    "RelaxedOneHotCategorical", "StudentT", "TransformedDistribution", "Uniform", "VonMises",
    "Weibull", "Wishart", "biject_to", "constraint_registry", "constraints", "kl",
    "kl_divergence", "register_kl", "transform_to", "transforms", "utils",
]

__getattr__ = absent(__name__)
