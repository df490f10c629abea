"""Distributions: what each says of itself, and what was rare."""

import torch
import torch.distributions as D
from torch.distributions import constraints

__all__ = ["conditions", "facts", "lkj", "low_rank_normal", "modes", "wishart"]

A = torch.tensor([0.7, 1.6, 3.2], dtype=torch.float64)
B = torch.tensor([1.6, 0.4, 2.5], dtype=torch.float64)
P = torch.tensor([0.3, 0.5, 0.9], dtype=torch.float64)
S = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)


def modes():
    ds = [D.Normal(A, B), D.LogNormal(A, B), D.Laplace(A, B), D.Gumbel(A, B), D.Cauchy(A, B),
          D.StudentT(A, B), D.Uniform(A, A + B), D.Exponential(A), D.Gamma(A, B), D.Chi2(A * 3),
          D.Beta(A, B), D.Beta(B, A), D.HalfNormal(A), D.HalfCauchy(A), D.Pareto(A, B),
          D.Weibull(A, B + 1), D.InverseGamma(A, B),
          D.FisherSnedecor(A * 2, B * 2), D.VonMises(A, B), D.Bernoulli(P), D.Geometric(P),
          D.Binomial(5, P), D.Poisson(A), D.NegativeBinomial(5.0, P), D.Categorical(S),
          D.OneHotCategorical(S), D.Dirichlet(A), D.Dirichlet(A / 10),
          D.MultivariateNormal(A, torch.diag(B)), D.Independent(D.Normal(A, B), 1)]
    return {f"{i} {type(d).__name__}": d.mode for i, d in enumerate(ds)}


def facts():
    out = {}
    for name, d, x in (
            ("bernoulli", D.ContinuousBernoulli(P), S),
            ("logits", D.ContinuousBernoulli(logits=A), S),
            ("gumbel", D.Gumbel(A, B), S), ("kumaraswamy", D.Kumaraswamy(A, B), S),
            ("half", D.HalfNormal(A), B), ("half cauchy", D.HalfCauchy(A), B)):
        parameter = (d.probs if name == "bernoulli" else A).detach().clone().requires_grad_()
        moved = (D.ContinuousBernoulli(parameter) if name == "bernoulli" else
                 D.ContinuousBernoulli(logits=parameter) if name == "logits" else
                 type(d)(parameter, *([B] if name in ("gumbel", "kumaraswamy") else [])))
        logs = moved.log_prob(x)
        (g,) = torch.autograd.grad(logs.sum() + moved.entropy().sum(), parameter)
        out[name] = [logs, g, d.mean, d.variance, d.entropy(), d.cdf(x), d.icdf(S)]
    out["inverse gamma"] = D.InverseGamma(A, B).cdf(B)
    counts = D.Binomial(5, P)
    out["binomial"] = [counts.entropy(), counts.enumerate_support()]
    hot = D.OneHotCategorical(S)
    out["one hot"] = [hot.enumerate_support(), hot.expand((2,)).enumerate_support()]
    return out


def lkj():
    out = []
    R = torch.tensor([[1.0, 0.3, 0.2], [0.3, 1.0, -0.1], [0.2, -0.1, 1.0]], dtype=torch.float64)
    L = torch.linalg.cholesky(R)
    for c in (0.5, 1.0, 2.5):
        c = torch.tensor(c, dtype=torch.float64, requires_grad=True)
        free = L.detach().clone().requires_grad_()
        y = D.LKJCholesky(3, c).log_prob(free)
        out.append([y, torch.autograd.grad(y, (c, free))])
    wide = D.LKJCholesky(2, A)
    return [out, wide.log_prob(L[:2, :2]), wide.expand((2, 3)).log_prob(L[:2, :2])]


def wishart():
    S = torch.tensor([[1.7, 0.2], [0.2, 1.5]], dtype=torch.float64, requires_grad=True)
    df = torch.tensor(4.5, dtype=torch.float64, requires_grad=True)
    X = torch.tensor([[[3.0, 0.5], [0.5, 2.0]], [[1.0, -0.2], [-0.2, 0.4]]], dtype=torch.float64)
    d = D.Wishart(df, covariance_matrix=S)
    y = d.log_prob(X)
    g = torch.autograd.grad(y.sum() + d.entropy(), (df, S))
    d = D.Wishart(df.detach(), precision_matrix=S.detach())
    other = D.Wishart(torch.tensor(5.0, dtype=torch.float64), scale_tril=torch.eye(2).double())
    few = D.Wishart(torch.tensor(2.5, dtype=torch.float64), torch.eye(2).double())
    return [y, g, d.mean, d.variance, d.mode, d.entropy(), d.covariance_matrix, few.mode,
            D.kl_divergence(d, other), D.kl_divergence(other, d)]


def low_rank_normal():
    W = torch.stack([A, B], 1).requires_grad_()
    diagonal, loc = (P + 0.1).requires_grad_(), S.clone().requires_grad_()
    d = D.LowRankMultivariateNormal(loc, W, diagonal)
    y = d.log_prob(torch.stack([A, B]))
    g = torch.autograd.grad(y.sum() + d.entropy(), (loc, W, diagonal))
    d = D.LowRankMultivariateNormal(S, W.detach(), P)
    whole = D.MultivariateNormal(A, torch.eye(3).double())
    return [y, g, d.mean, d.variance, d.covariance_matrix, d.precision_matrix, d.scale_tril,
            d.entropy(), D.kl_divergence(d, whole), D.kl_divergence(whole, d),
            D.kl_divergence(d, D.LowRankMultivariateNormal(A, W.detach() * 2, B))]


def conditions():
    values = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0], dtype=torch.float64)
    sets = (constraints.positive, constraints.nonnegative, constraints.unit_interval,
            constraints.boolean, constraints.nonnegative_integer, constraints.real,
            constraints.greater_than(0.5), constraints.less_than(1.0))
    return [c.check(values) for c in sets]
