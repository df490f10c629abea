"""Distributions that are met less often, against SciPy's; sets and transforms onto them."""

import math
from typing import ClassVar

import numpy as np
import pytest
from scipy import integrate, stats

import functrans.torch as torch
from functrans.torch import distributions as D
from functrans.torch.distributions import constraints as C

A = torch.tensor([0.7, 2.5], dtype=torch.float64)
B = torch.tensor([1.5, 3.0], dtype=torch.float64)
X = torch.tensor([0.3, 0.6], dtype=torch.float64)
K = torch.tensor([1.0, 3.0], dtype=torch.float64)

# ours, SciPy's, where the density is asked for
LIKE_SCIPY = {
    "half cauchy": (D.HalfCauchy(A), stats.halfcauchy(scale=A), X),
    "inverse gamma": (D.InverseGamma(A + 2, B), stats.invgamma(A + 2, scale=B), X),
    "weibull": (D.Weibull(A, B), stats.weibull_min(B, scale=A), X),
    "pareto": (D.Pareto(A, B + 2), stats.pareto(B + 2, scale=A), X + 2.5),
    "ratio of squares": (D.FisherSnedecor(A, B + 4), stats.f(A, B + 4), X),
    "von mises": (D.VonMises(A, B), stats.vonmises(B, loc=A), X),
    "negative binomial": (D.NegativeBinomial(B, X), stats.nbinom(B, 1 - X), K),
    "student": (D.StudentT(B + 2, A, B), stats.t(B + 2, loc=A, scale=B), X),
    "cauchy": (D.Cauchy(A, B), stats.cauchy(loc=A, scale=B), X),
}


def numbers(x):
    return x.detach().numpy()


@pytest.mark.parametrize("name", LIKE_SCIPY)
def test_a_density_is_that_of_scipy(name):
    ours, theirs, x = LIKE_SCIPY[name]
    density = theirs.logpmf if name == "negative binomial" else theirs.logpdf
    np.testing.assert_allclose(numbers(ours.log_prob(x)), density(numbers(x)), rtol=1e-12)


@pytest.mark.parametrize("name", [n for n in LIKE_SCIPY if n not in (
    "half cauchy", "cauchy", "von mises")])
def test_moments_are_those_of_scipy(name):
    ours, theirs, _ = LIKE_SCIPY[name]
    np.testing.assert_allclose(numbers(ours.mean), theirs.mean(), rtol=1e-12)
    np.testing.assert_allclose(numbers(ours.variance), theirs.var(), rtol=1e-11)


@pytest.mark.parametrize("name", ["half cauchy", "inverse gamma", "weibull", "pareto", "student",
                                  "cauchy"])
def test_an_entropy_is_that_of_scipy(name):
    ours, theirs, _ = LIKE_SCIPY[name]
    # SciPy integrates the entropies of some numerically
    np.testing.assert_allclose(numbers(ours.entropy()), theirs.entropy(), rtol=1e-7)


@pytest.mark.parametrize("name", ["half cauchy", "weibull", "pareto"])
def test_quantiles_are_the_inverse_of_probabilities(name):
    ours, theirs, x = LIKE_SCIPY[name]
    np.testing.assert_allclose(numbers(ours.cdf(x)), theirs.cdf(numbers(x)), rtol=1e-12)
    np.testing.assert_allclose(numbers(ours.icdf(ours.cdf(x))), numbers(x), rtol=1e-12)


def test_kumaraswamy_has_total_one_and_its_moments():
    d = D.Kumaraswamy(A + 1, B)
    for i in range(2):
        one = D.Kumaraswamy(A[i] + 1, B[i])

        def density(x, one=one):
            return math.exp(one.log_prob(torch.tensor(x, dtype=torch.float64)).item())

        moments = [integrate.quad(lambda x, n=n, f=density: x**n * f(x), 0, 1)[0]
                   for n in range(3)]
        assert moments[0] == pytest.approx(1, rel=1e-9)  # of quad
        assert d.mean[i].item() == pytest.approx(moments[1], rel=1e-9)  # of quad
        assert d.variance[i].item() == pytest.approx(moments[2] - moments[1] ** 2, rel=1e-8)  # quad
        entropy = -integrate.quad(lambda x, f=density: f(x) * math.log(f(x)), 1e-12, 1 - 1e-12)[0]
        assert d.entropy()[i].item() == pytest.approx(entropy, rel=1e-7)  # of quad


SAMPLED = {
    "half cauchy": D.HalfCauchy(A), "inverse gamma": D.InverseGamma(A + 4, B),
    "weibull": D.Weibull(A, B), "pareto": D.Pareto(A, B + 4),
    "kumaraswamy": D.Kumaraswamy(A, B), "ratio of squares": D.FisherSnedecor(A, B + 9),
    "negative binomial": D.NegativeBinomial(B, X), "multinomial": D.Multinomial(4, X / 0.9),
    "relaxed": D.RelaxedBernoulli(torch.tensor(0.5), X),
    "relaxed classes": D.RelaxedOneHotCategorical(torch.tensor(0.5), logits=A),
    "logistic normal": D.LogisticNormal(A, B), "von mises": D.VonMises(A, B),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_samples_are_of_the_distribution(name):
    torch.manual_seed(0)
    d = SAMPLED[name]
    x = d.sample((4000,))
    assert x.shape == (4000, *d.batch_shape, *d.event_shape)
    assert torch.isfinite(d.log_prob(x)).all()
    if name in ("half cauchy", "relaxed", "relaxed classes", "logistic normal"):
        return
    if name == "von mises":
        ours = (x - d.loc).cos().mean(0)
        expected, spread = 1 - d.variance, 0.6
    else:
        ours, expected, spread = x.mean(0), d.mean, d.stddev
    assert ((ours - expected).abs() < 5 * spread / 4000**0.5).all()  # five standard errors


@pytest.mark.parametrize("make", [
    D.Weibull, D.Kumaraswamy, D.Pareto, D.InverseGamma, D.FisherSnedecor, D.LogisticNormal,
    lambda a, b: D.RelaxedOneHotCategorical(torch.tensor(0.5), logits=a * b),
    lambda a, b: D.RelaxedBernoulli(torch.tensor(0.5), logits=a * b),
])
def test_samples_move_with_the_parameters(make):
    a, b = A.clone().requires_grad_(), B.clone().requires_grad_()

    def drawn(a, b):
        torch.manual_seed(1)
        return make(a, b).rsample((2,))

    if make in (D.InverseGamma, D.FisherSnedecor):  # whose draws are at other numbers for others
        grads = torch.autograd.grad(drawn(a, b).sum(), (a, b))
        assert all((g != 0).all() for g in grads)
    else:
        assert torch.autograd.gradcheck(drawn, (a, b))


def test_a_multinomial_counts_ways():
    d = D.Multinomial(3, torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64))
    x = torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64)
    assert d.log_prob(x).exp().item() == pytest.approx(3 * 0.2 * 0.25)
    assert d.expand((2,)).log_prob(x).shape == (2,)
    with pytest.raises(ValueError, match="within the support"):
        d.log_prob(x + 1)
    with pytest.raises(NotImplementedError, match="inhomogeneous total_count"):
        D.Multinomial(A)


@pytest.mark.parametrize(("p", "q"), [
    (D.HalfNormal(A), D.HalfNormal(B)), (D.Cauchy(A, B), D.Cauchy(B, A)),
    (D.Gumbel(A, B), D.Gumbel(B, A)), (D.Pareto(B, B), D.Pareto(A / 5, A)),
    (D.Gamma(A, B), D.Exponential(B)),
])
def test_a_divergence_is_the_mean_of_differences(p, q):
    low = p.scale[0].item() if isinstance(p, D.Pareto) else (
        -np.inf if isinstance(p, D.Cauchy) else -12 if isinstance(p, D.Gumbel) else 0)
    high = np.inf if isinstance(p, D.Cauchy | D.Pareto) else 60

    def term(x):
        at = x + B - B[0]  # the second entry is within its support too
        log, other = p.log_prob(at)[0].item(), q.log_prob(at)[0].item()
        return math.exp(log) * (log - other)

    found = D.kl_divergence(p, q)[0].item()
    assert found == pytest.approx(integrate.quad(term, low, high, limit=400)[0], rel=1e-6)  # quad


TRANSFORMS = [D.AbsTransform(), D.SoftmaxTransform(), D.StickBreakingTransform(),
              D.LowerCholeskyTransform()]


@pytest.mark.parametrize("t", TRANSFORMS, ids=str)
def test_a_transform_has_an_inverse(t):
    x = torch.tensor([[0.3, -0.2], [0.5, 1.0]], dtype=torch.float64, requires_grad=True)
    y = t(x)
    again = t(t.inv(y))
    np.testing.assert_allclose(numbers(again), numbers(y), rtol=1e-12)
    assert torch.autograd.gradcheck(t, (x,))


def test_a_broken_stick_has_the_volume_of_its_jacobian():
    t = D.StickBreakingTransform()
    x = torch.tensor([0.3, -0.2, 0.7], dtype=torch.float64)
    J = torch.autograd.functional.jacobian(lambda x: t(x)[:-1], x)
    np.testing.assert_allclose(t.log_abs_det_jacobian(x, t(x)), torch.slogdet(J)[1], rtol=1e-12)
    assert t(x).sum().item() == pytest.approx(1)


@pytest.mark.parametrize("set_of_values", [
    C.real, C.positive, C.nonnegative, C.unit_interval, C.simplex, C.lower_cholesky,
    C.greater_than(1.0), C.less_than(-1.0), C.interval(-1.0, 3.0), C.greater_than_eq(2.0),
], ids=repr)
def test_all_numbers_are_taken_into_a_set(set_of_values):
    x = torch.tensor([[0.3, -2.0], [0.5, 1.0]], dtype=torch.float64)
    for t in (D.biject_to(set_of_values), D.transform_to(set_of_values)):
        assert set_of_values.check(t(x)).all()
    t = D.biject_to(set_of_values)
    np.testing.assert_allclose(t(t.inv(t(x))), t(x), rtol=1e-12)


def test_a_set_refuses_what_is_outside():
    assert not C.interval(0.0, 1.0).check(torch.tensor(2.0))
    assert not C.positive.check(torch.tensor(0.0))
    assert C.nonnegative.check(torch.tensor(0.0))
    assert not C.less_than(0.0).check(torch.tensor(0.0))
    assert repr(C.interval(0.0, 1.0)) == "Interval(lower_bound=0.0, upper_bound=1.0)"
    assert D.biject_to(D.Gamma(1.0, 1.0).support)(torch.tensor(0.0)) == 1
    with pytest.raises(NotImplementedError, match="Cannot transform"):
        D.biject_to(C.boolean)


def test_checks_are_on_unless_told():
    D.Distribution.set_default_validate_args(False)
    try:
        D.Normal(torch.tensor(0.0), torch.tensor(-1.0))
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="to satisfy the constraint"):
        D.Normal(torch.tensor(0.0), torch.tensor(-1.0))


class Unnamed(D.Distribution):
    """One whose parameters have no names."""


@pytest.mark.parametrize("d", [
    D.Binomial(4, X), D.NegativeBinomial(3, X), D.LogisticNormal(A, B), D.Multinomial(4, X / 0.9),
    D.RelaxedBernoulli(torch.tensor(0.5), X), D.Independent(D.Normal(A, B), 1),
    D.RelaxedOneHotCategorical(torch.tensor(0.5), logits=A), D.Weibull(A, B),
    D.MixtureSameFamily(D.Categorical(A), D.Independent(D.Normal(A[:, None] + B, 1.0), 1)),
], ids=repr)
def test_an_expanded_distribution_has_the_same_densities(d):
    torch.manual_seed(0)
    x = d.sample()
    wide = d.expand((3, *d.batch_shape))
    assert wide.sample().shape == (3, *x.shape)
    np.testing.assert_allclose(wide.log_prob(x)[1], d.log_prob(x), rtol=1e-12)


def test_what_cannot_be_expanded_says_so():
    with pytest.raises(NotImplementedError, match="cannot be expanded here"):
        Unnamed().expand((2,))


def test_a_mode_is_where_the_density_is_greatest():
    d = D.Kumaraswamy(torch.tensor([1.2, 3.2], dtype=torch.float64), B)
    at = d.mode.requires_grad_()
    (slope,) = torch.autograd.grad(d.log_prob(at).sum(), at)
    np.testing.assert_allclose(slope, 0, atol=1e-12)
    assert D.Kumaraswamy(0.7, 2.0).mode.isnan()
    with pytest.raises(NotImplementedError, match="does not implement mode"):
        _ = D.Multinomial(3, X / X.sum()).mode


def test_an_entropy_of_counts_is_that_of_scipy():
    p = X / X.sum()
    np.testing.assert_allclose(D.Multinomial(4, p).entropy(), stats.multinomial(4, p).entropy(),
                               rtol=1e-12)
    with pytest.raises(NotImplementedError, match="Inhomogeneous total count"):
        D.Binomial(K, X).entropy()


def test_a_wishart_of_one_number_is_a_gamma_and_its_samples_move_with_the_scale():
    df = torch.tensor(3.5, dtype=torch.float64, requires_grad=True)
    V = torch.tensor([[1.7]], dtype=torch.float64, requires_grad=True)
    x = torch.tensor([[0.8]], dtype=torch.float64)
    one, other = D.Wishart(df, V), D.Gamma(df / 2, 0.5 / V[0, 0])
    found, wanted = [torch.autograd.grad(y, (df, V)) for y in (
        one.log_prob(x) + one.entropy() + D.kl_divergence(one, D.Wishart(5.0, V.detach() * 2)),
        other.log_prob(x[0, 0]) + other.entropy() + D.kl_divergence(
            other, D.Gamma(2.5, 0.25 / V[0, 0].detach())))]
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    S = torch.tensor([[1.7, 0.4], [0.4, 0.9]], dtype=torch.float64, requires_grad=True)
    torch.manual_seed(0)
    drawn = D.Wishart(6.0, S).rsample((20000,))
    # an estimate, whose error is about 1 %
    np.testing.assert_allclose(drawn.detach().mean(0), 6 * numbers(S), rtol=0.05)
    (g,) = torch.autograd.grad(drawn[..., 0, 0].mean(), S)
    np.testing.assert_allclose(g, [[6, 0], [0, 0]], atol=0.3)  # an estimate
    with pytest.raises(ValueError, match="expected to be greater than ndim - 1 = 1"):
        D.Wishart(0.5, S)


def test_samples_of_lkj_are_factors_of_correlations():
    torch.manual_seed(0)
    d = D.LKJCholesky(3, torch.tensor([0.5, 4.0], dtype=torch.float64))
    L = d.sample((20000,))
    R = L @ L.mT
    np.testing.assert_allclose(R.diagonal(dim1=-2, dim2=-1), 1, rtol=1e-12)
    assert d.log_prob(L).shape == (20000, 2)
    # each correlation is 2 b - 1 for b of a beta distribution with a = c + 1/2; an estimate
    np.testing.assert_allclose(R[..., 2, 1].var(0), [1 / 3, 1 / 10], rtol=0.05)
    np.testing.assert_allclose(R[..., 1, 0].var(0), [1 / 3, 1 / 10], rtol=0.05)  # an estimate
    with pytest.raises(ValueError, match="support"):
        d.log_prob(2 * L)


@pytest.mark.parametrize("d", [D.HalfNormal(A), D.HalfCauchy(A), D.Gumbel(A, B),
                               D.Kumaraswamy(A, B), D.ContinuousBernoulli(X)], ids=repr)
def test_probabilities_take_values_of_the_support_and_quantiles_lead_back(d):
    np.testing.assert_allclose(d.icdf(d.cdf(X)), X, rtol=1e-12)
    if not isinstance(d, D.Gumbel):
        with pytest.raises(ValueError, match="within the support"):
            d.cdf(-X)


def test_a_density_integrates_to_one_on_both_sides_of_a_half():
    for p in (0.1, 0.4995, 0.5, 0.7):
        d = D.ContinuousBernoulli(torch.tensor(p, dtype=torch.float64))

        def density(x, d=d):
            return math.exp(d.log_prob(torch.tensor(x, dtype=torch.float64)).item())

        assert integrate.quad(density, 0, 1)[0] == pytest.approx(1, rel=1e-9)  # of the series
        mean = integrate.quad(lambda x, f=density: x * f(x), 0, 1)[0]
        assert d.mean.item() == pytest.approx(mean, rel=1e-9)  # of the series


def test_straight_through_samples_have_the_gradients_of_probabilities():
    logits = A.clone().requires_grad_()
    y = D.OneHotCategoricalStraightThrough(logits=logits).rsample()
    assert sorted(y.tolist()) == [0, 1]
    (g,) = torch.autograd.grad(y[0], logits)
    p = torch.softmax(A, 0)
    np.testing.assert_allclose(g, [p[0] * p[1], -p[0] * p[1]], rtol=1e-12)


def test_the_shape_of_a_value_must_be_that_of_samples():
    with pytest.raises(ValueError, match="The right-most size of value must match event_shape"):
        D.Dirichlet(A).log_prob(torch.ones(3, dtype=torch.float64) / 3)
    with pytest.raises(ValueError, match="Value is not broadcastable with batch_shape"):
        D.Normal(A, B).log_prob(torch.ones(3))


def test_what_vectors_pass_through_has_no_probability_below():
    with pytest.raises(NotImplementedError, match="has no direction"):
        D.LogisticNormal(A, B).cdf(torch.tensor([0.2, 0.3, 0.5]))


@pytest.mark.parametrize(("t", "x"), [
    (D.transforms.CorrCholeskyTransform(), torch.tensor([0.1, -0.4, 0.3], dtype=torch.float64)),
    (D.CatTransform([D.ExpTransform(), D.AffineTransform(1.0, 3.0)], -1, [1, 2]),
     torch.tensor([0.1, -0.4, 0.3], dtype=torch.float64)),
    (D.StackTransform([D.ExpTransform(), D.TanhTransform()], -1),
     torch.tensor([0.1, -0.4], dtype=torch.float64)),
    (D.IndependentTransform(D.SigmoidTransform(), 1),
     torch.tensor([0.1, -0.4], dtype=torch.float64)),
    (D.ReshapeTransform((4,), (2, 2)), torch.arange(4, dtype=torch.float64)),
    (D.CumulativeDistributionTransform(D.Normal(torch.zeros((), dtype=torch.float64), 2.0)),
     torch.tensor([0.1, -0.4], dtype=torch.float64)),
], ids=lambda v: type(v).__name__)
def test_volumes_of_composed_transforms_are_those_of_their_jacobians(t, x):
    y = t(x)
    np.testing.assert_allclose(t.inv(y), x, rtol=1e-12)
    J = torch.autograd.functional.jacobian(t, x).reshape(-1, x.numel())
    if J.shape[0] != J.shape[1]:  # of the entries below the diagonal
        J = J[torch.tensor([3, 6, 7])]
    volume = t.log_abs_det_jacobian(x, y).sum()
    np.testing.assert_allclose(volume, torch.linalg.slogdet(J)[1], rtol=1e-12, atol=1e-15)


def test_a_positive_definite_matrix_of_any_numbers():
    A = torch.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=torch.float64)
    S = D.transform_to(C.positive_definite)(A)
    assert C.positive_definite.check(S)
    np.testing.assert_allclose(D.PositiveDefiniteTransform().inv(S).tril(), A.tril(), rtol=1e-12)


def test_values_outside_the_support_of_transformed_numbers_are_refused():
    d = D.TransformedDistribution(D.Normal(0.0, 1.0), [D.ExpTransform()])
    assert repr(d.support) == "GreaterThan(lower_bound=0.0)"
    with pytest.raises(ValueError, match="to be within the support"):
        d.log_prob(torch.tensor(-1.0))


def test_the_support_says_what_it_depends_on():
    assert C.is_dependent(D.Uniform.support)
    assert not C.is_dependent(D.Normal.support)
    assert repr(D.Uniform(0.0, 2.0).support) == (
        "Interval(lower_bound=0.0, upper_bound=2.0)")
    assert repr(D.Independent(D.Gamma(torch.ones(2), 1.0), 1).support) == (
        "IndependentConstraint(GreaterThanEq(lower_bound=0.0), 1)")


def test_parts_are_in_sets_of_their_own():
    x = torch.tensor([1.0, -1.0, 2.0])
    assert C.cat([C.positive, C.real], 0, [1, 2]).check(x).tolist() == [True, True, True]
    assert C.stack([C.positive, C.positive, C.real]).check(x).tolist() == [True, False, True]
    assert C.multinomial(3).check(torch.tensor([1.0, 2.0]))
    assert not C.positive_integer.check(torch.tensor(0.0))


class Waiting(D.ExponentialFamily):
    """An exponential distribution, as one would write it for torch."""

    arg_constraints: ClassVar = {"rate": C.positive}
    support = C.nonnegative
    _mean_carrier_measure = 0

    def __init__(self, rate, validate_args=None):
        (self.rate,) = D.utils.broadcast_all(rate)
        super().__init__(self.rate.size(), validate_args=validate_args)

    @property
    def _natural_params(self):
        return (-self.rate,)

    def _log_normalizer(self, x):
        return -torch.log(-x)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return self.rate.log() - self.rate * value


def test_a_distribution_of_the_user_is_checked_and_has_an_entropy():
    d = Waiting(torch.tensor([1.0, 2.0], dtype=torch.float64))
    np.testing.assert_allclose(d.entropy().detach(), [1.0, 1 - np.log(2)], rtol=1e-14)
    assert repr(d) == "Waiting(rate: torch.Size([2]))"
    assert d._extended_shape((3,)) == (3, 2)
    with pytest.raises(ValueError, match=r"constraint GreaterThan\(lower_bound=0.0\)"):
        Waiting(torch.tensor([-1.0]))
    with pytest.raises(ValueError, match="to be within the support"):
        d.log_prob(torch.tensor([-1.0, 1.0]))


def test_transforms_of_sets_of_the_user_are_registered():
    class Evens(C.Constraint):
        pass

    @D.biject_to.register(Evens)
    def doubled(constraint):
        return D.AffineTransform(0.0, 2.0)

    assert D.biject_to(Evens())(torch.tensor(1.0)) == 2


def test_the_normal_cdf_of_doubles_is_double_where_parameters_are_numbers():
    p = D.Normal(0.0, 1.0).cdf(torch.tensor(0.1, dtype=torch.float64))
    np.testing.assert_allclose(p, stats.norm.cdf(0.1), rtol=1e-15)


def test_small_probabilities_of_what_is_transformed_keep_their_digits():
    d = D.TransformedDistribution(D.Exponential(B), D.ExpTransform())
    x = torch.tensor([1 + 2.0**-40, 1 + 2.0**-30], dtype=torch.float64)
    p = B * (x - 1)
    np.testing.assert_allclose(d.cdf(x), p, rtol=1e-8)  # to first order in x - 1
    np.testing.assert_allclose(d.icdf(p) - 1, x - 1, rtol=1e-3)  # 1 has been added


def test_a_log_normal_is_a_transformed_normal_that_keeps_its_class():
    d = D.LogNormal(A, B)
    assert isinstance(d, D.TransformedDistribution)
    wide = d.expand((3, 2))
    assert type(wide) is D.LogNormal and wide.batch_shape == (3, 2)
    np.testing.assert_array_equal(wide.log_prob(X)[0], d.log_prob(X))


OUTSIDE = {
    "one hot": lambda: D.OneHotCategorical(torch.ones(3)).log_prob(torch.tensor([1.0, 1.0, 0.0])),
    "geometric": lambda: D.Geometric(torch.tensor(0.0)),
    "cauchy": lambda: D.Cauchy(0.0, 1.0).cdf(torch.tensor(float("nan"))),
    "list": lambda: D.Normal([0.0], 1.0),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_torch_refuses_of_values_and_parameters_is_refused(name):
    with pytest.raises(ValueError, match=r"within the support|to be positive|must all be inst"):
        OUTSIDE[name]()


def test_a_gamma_density_is_in_the_type_of_its_parameters():
    d = D.Gamma(torch.tensor(1.5), torch.tensor(2.0))
    x = torch.tensor(0.3, dtype=torch.float64)
    assert d.log_prob(x).dtype == torch.float32
    assert d.log_prob(0.3).item() == d.log_prob(x).item()


P = {
    D.Laplace: (0.3, 0.7), D.Gumbel: (0.3, 0.7), D.Gamma: (1.5, 1.1), D.Beta: (1.5, 2.2),
    D.Exponential: (1.3,), D.Uniform: (0.2, 0.9), D.Pareto: (0.1, 2.5),
    D.ContinuousBernoulli: (0.3,), D.Normal: (0.3, 0.7),
}


def _drawn_from(kind, **options):
    return kind(*[torch.tensor(v, dtype=torch.float64) for v in P[kind]], **options)


@pytest.mark.parametrize(("first", "second"), [
    *[(p, D.Normal) for p in P if p is not D.Normal],
    *[(p, D.Exponential) for p in (D.Beta, D.Uniform, D.Pareto, D.ContinuousBernoulli)],
    *[(p, D.Gamma) for p in (D.Beta, D.Exponential, D.Pareto, D.Uniform)],
    *[(p, D.Gumbel) for p in (D.Exponential, D.Gamma, D.Normal, D.Uniform)],
    (D.Normal, D.Laplace), (D.Uniform, D.Beta), (D.Uniform, D.Pareto),
    *[(p, D.ContinuousBernoulli) for p in (D.Beta, D.ContinuousBernoulli, D.Uniform)],
], ids=lambda d: d.__name__)
def test_divergences_are_means_of_the_difference_of_densities(first, second):
    p = _drawn_from(first)
    # another one of a class of its own
    q = _drawn_from(second) if second is not first else second(torch.tensor(0.8).double())
    u = torch.arange(0.5, 40000, dtype=torch.float64) / 40000
    x = torch.tensor({
        D.Laplace: stats.laplace(0.3, 0.7), D.Gumbel: stats.gumbel_r(0.3, 0.7),
        D.Gamma: stats.gamma(1.5, scale=1 / 1.1), D.Beta: stats.beta(1.5, 2.2),
        D.Exponential: stats.expon(scale=1 / 1.3), D.Uniform: stats.uniform(0.2, 0.7),
        D.Pareto: stats.pareto(2.5, scale=0.1), D.Normal: stats.norm(0.3, 0.7),
    }[first].ppf(u.numpy())) if first is not D.ContinuousBernoulli else p.icdf(u)
    mean = (p.log_prob(x) - q.log_prob(x)).mean().item()
    # the midpoint rule in the distribution function leaves its ends
    assert D.kl_divergence(p, q).item() == pytest.approx(mean, rel=2e-2, abs=2e-3)


@pytest.mark.parametrize(("make", "second"), [
    (D.Beta, D.Gamma), (D.Exponential, D.Gumbel), (D.Normal, D.Laplace), (D.Uniform, D.Beta),
    (D.Uniform, D.ContinuousBernoulli), (D.Bernoulli, D.Poisson)], ids=lambda d: d.__name__)
def test_divergences_have_their_gradient(make, second):
    values = [torch.tensor(v, dtype=torch.float64, requires_grad=True)
              for v in (*P.get(make, (0.3,)), *P.get(second, (1.7,)))]
    n = len(P.get(make, (0.3,)))
    assert torch.autograd.gradcheck(
        lambda *xs: D.kl_divergence(make(*xs[:n]), second(*xs[n:])), values)


def test_a_uniform_that_reaches_beyond_the_other_is_infinitely_far():
    beyond = D.Uniform(torch.tensor([-0.5, 0.2]), torch.tensor([0.5, 1.5]))
    for q in (D.Beta(1.5, 2.0), D.ContinuousBernoulli(torch.tensor(0.3)), D.Pareto(0.5, 1.0)):
        assert D.kl_divergence(beyond, q).tolist() == [np.inf, np.inf]
    assert np.isinf(D.kl_divergence(beyond, D.Gamma(1.0, 1.0)).numpy()).tolist() == [True, False]


def test_a_divergence_of_bernoulli_from_poisson_is_the_sum_over_both_outcomes():
    p, q = D.Bernoulli(torch.tensor(0.3)), D.Poisson(torch.tensor(1.7))
    x = torch.tensor([0.0, 1.0])
    by_hand = (p.log_prob(x).exp() * (p.log_prob(x) - q.log_prob(x))).sum()
    assert D.kl_divergence(p, q).item() == pytest.approx(by_hand.item(), rel=1e-6)


@pytest.mark.parametrize(("first", "second"), [
    (D.Normal, D.Gamma), (D.Gamma, D.Uniform), (D.Laplace, D.Beta), (D.Pareto, D.Uniform),
    (D.Exponential, D.Pareto), (D.Beta, D.Pareto)], ids=lambda d: d.__name__)
def test_a_divergence_from_what_is_nowhere_there_is_infinite(first, second):
    assert D.kl_divergence(_drawn_from(first), _drawn_from(second)).item() == np.inf
