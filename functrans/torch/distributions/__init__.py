"""``torch.distributions``: densities, entropies, and samples with gradients.

>>> from functrans import torch
>>> mu = torch.tensor(0.5, requires_grad=True)
>>> Normal(mu, 1.0).log_prob(torch.tensor(2.0)).backward()
>>> mu.grad
tensor(1.5000)
"""

from __future__ import annotations

from functrans.torch._names import absent
from functrans.torch.distributions import constraints, kl, transforms
from functrans.torch.distributions.constraints import biject_to, transform_to
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
    ContinuousBernoulli,
    Geometric,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
    Poisson,
)
from functrans.torch.distributions.distribution import Distribution, Independent
from functrans.torch.distributions.kl import kl_divergence, register_kl
from functrans.torch.distributions.matrices import (
    LKJCholesky,
    LowRankMultivariateNormal,
    Wishart,
)
from functrans.torch.distributions.multivariate import Dirichlet, MultivariateNormal
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
from functrans.torch.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    LowerCholeskyTransform,
    PowerTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    identity_transform,
)

__all__ = [
    "AbsTransform", "AffineTransform", "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy",
    "Chi2", "ComposeTransform", "ContinuousBernoulli", "Dirichlet", "Distribution", "ExpTransform",
    "Exponential", "FisherSnedecor", "Gamma", "Geometric", "Gumbel", "HalfCauchy", "HalfNormal",
    "Independent", "InverseGamma", "Kumaraswamy", "LKJCholesky", "Laplace", "LogNormal",
    "LogisticNormal", "LogitRelaxedBernoulli", "LowRankMultivariateNormal",
    "LowerCholeskyTransform", "MixtureSameFamily", "Multinomial", "MultivariateNormal",
    "NegativeBinomial", "Normal", "OneHotCategorical", "OneHotCategoricalStraightThrough", "Pareto",
    "Poisson", "PowerTransform", "RelaxedBernoulli", "RelaxedOneHotCategorical", "SigmoidTransform",
    "SoftmaxTransform", "SoftplusTransform", "StickBreakingTransform", "StudentT", "TanhTransform",
    "Transform", "TransformedDistribution", "Uniform", "VonMises", "Weibull", "Wishart",
    "biject_to", "constraints", "identity_transform", "kl", "kl_divergence", "register_kl",
    "transform_to", "transforms",
]

__getattr__ = absent(__name__)
