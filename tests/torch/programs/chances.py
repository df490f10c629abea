"""Probability: policies, variational inference, flows, filters, samplers."""

import math

import numpy as np
import torch
import torch.distributions as D
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical, Normal, kl_divergence

__all__ = [
    "actor_critic",
    "bayes_by_backprop",
    "beta_and_dirichlet",
    "conditional_random_field",
    "coupling_flow",
    "deep_q",
    "gaussian_process",
    "gumbel",
    "hamiltonian_monte_carlo",
    "hidden_markov",
    "kalman_filter",
    "langevin",
    "log_probabilities",
    "mixture",
    "multivariate",
    "planar_flow",
    "poisson_regression",
    "policy_gradient",
    "proximal_policy",
    "stein",
    "variational_autoencoder",
]


def drawn(seed, *shape):
    return torch.from_numpy(np.random.RandomState(seed).randn(*shape))


def fill(module, seed=0):
    for i, p in enumerate(module.parameters()):
        p.data = 0.5 * drawn(seed + i, *p.shape)
    return module.double()


def policy_gradient():
    policy = fill(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)), 0)
    states, actions = drawn(5, 7, 4), torch.tensor([0, 1, 1, 0, 1, 0, 0])
    rewards = [1.0, 0.0, 2.0, 1.0, -1.0, 1.0, 3.0]
    probs = F.softmax(policy(states), dim=1)
    m = Categorical(probs)
    log_probs = m.log_prob(actions)
    R, returns = 0.0, []
    for r in rewards[::-1]:
        R = r + 0.9 * R
        returns.insert(0, R)
    returns = torch.tensor(returns, dtype=torch.float64)
    returns = (returns - returns.mean()) / (returns.std() + 1e-9)
    policy_loss = []
    for log_prob, R in zip(log_probs, returns):
        policy_loss.append(-log_prob * R)
    loss = torch.stack(policy_loss).sum() - 0.01 * m.entropy().mean()
    loss.backward()
    sampled = m.sample()
    return {"loss": loss, "grad": policy[2].weight.grad, "shape": list(sampled.shape),
            "entropy": m.entropy()}


def actor_critic():
    body, actor, critic = [fill(nn.Linear(*s), 10 + 5 * i) for i, s in
                           enumerate([(3, 4), (4, 2), (4, 1)])]
    h = torch.tanh(body(drawn(30, 5, 3)))
    dist = Categorical(logits=actor(h))
    values = critic(h).squeeze(-1)
    actions = torch.tensor([1, 0, 0, 1, 1])
    returns = torch.tensor([1.0, 2.0, 0.5, -1.0, 0.0], dtype=torch.float64)
    advantage = returns - values.detach()
    loss = (-dist.log_prob(actions) * advantage).mean() + F.smooth_l1_loss(values, returns)
    loss.backward()
    return {"loss": loss, "body": body.weight.grad, "actor": actor.bias.grad}


def proximal_policy():
    logits = drawn(31, 6, 3).requires_grad_()
    old = Categorical(logits=logits.detach() + 0.3 * drawn(32, 6, 3))
    actions = torch.tensor([0, 2, 1, 1, 0, 2])
    adv = drawn(33, 6)
    new = Categorical(logits=logits)
    ratio = torch.exp(new.log_prob(actions) - old.log_prob(actions))
    clipped = torch.clamp(ratio, 0.8, 1.2) * adv
    loss = -torch.min(ratio * adv, clipped).mean() + 0.1 * kl_divergence(old, new).mean()
    loss.backward()
    return {"loss": loss, "grad": logits.grad, "ratio": ratio}


def deep_q():
    online, target = fill(nn.Linear(3, 4), 40), fill(nn.Linear(3, 4), 45)
    s, s2 = drawn(50, 5, 3), drawn(51, 5, 3)
    a = torch.tensor([[0], [3], [1], [2], [2]])
    r, done = drawn(52, 5), torch.tensor([0, 0, 1, 0, 1], dtype=torch.bool)
    q = online(s).gather(1, a).squeeze(1)
    with torch.no_grad():
        best = online(s2).argmax(1, keepdim=True)
        nxt = target(s2).gather(1, best).squeeze(1)
        expected = r + 0.99 * nxt * (~done)
    loss = nn.SmoothL1Loss()(q, expected)
    huber = F.huber_loss(q, expected, delta=0.5)
    (loss + huber).backward()
    with torch.no_grad():
        for p, t in zip(online.parameters(), target.parameters()):
            t.copy_(0.05 * p + 0.95 * t)
    return {"loss": loss, "huber": huber, "grad": online.weight.grad, "target": target.bias}


def variational_autoencoder():
    enc, dec = fill(nn.Linear(6, 4), 60), fill(nn.Linear(2, 6), 65)
    x, eps = torch.sigmoid(drawn(66, 5, 6)), drawn(67, 5, 2)
    mu, logvar = enc(x).chunk(2, dim=-1)
    std = torch.exp(0.5 * logvar)
    z = mu + eps * std
    recon = torch.sigmoid(dec(z))
    BCE = F.binary_cross_entropy(recon, x.view(-1, 6), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    again = kl_divergence(Normal(mu, std), Normal(torch.zeros_like(mu), torch.ones_like(std)))
    (BCE + KLD).backward()
    return {"bce": BCE, "kld": KLD, "again": again.sum(), "grad": enc.weight.grad[0]}


def bayes_by_backprop():
    mu, rho = drawn(68, 3).requires_grad_(), drawn(69, 3).requires_grad_()
    X, y, eps = drawn(70, 8, 3), drawn(71, 8), drawn(72, 3)
    prior = Normal(torch.zeros(3, dtype=torch.float64), 1.0)
    for _ in range(4):
        sigma = F.softplus(rho)
        w = mu + sigma * eps
        q = Normal(mu, sigma)
        loss = (q.log_prob(w) - prior.log_prob(w)).sum() - Normal(X @ w, 0.5).log_prob(y).sum()
        g = torch.autograd.grad(loss, (mu, rho))
        with torch.no_grad():
            mu -= 0.01 * g[0]
            rho -= 0.01 * g[1]
    torch.manual_seed(0)
    r = q.rsample((4,))
    return {"mu": mu, "rho": rho, "loss": loss, "shape": list(r.shape),
            "differentiable": r.requires_grad, "sample": q.sample().requires_grad}


def planar_flow():
    u, w = drawn(73, 2).requires_grad_(), drawn(74, 2).requires_grad_()
    b = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    z = drawn(75, 9, 2)
    lin = z @ w + b
    u_hat = u + (F.softplus(w @ u) - 1 - w @ u) * w / w.square().sum()
    f = z + u_hat * torch.tanh(lin).unsqueeze(-1)
    psi = (1 - torch.tanh(lin) ** 2).unsqueeze(-1) * w
    log_det = torch.log(torch.abs(1 + psi @ u_hat) + 1e-8)
    base = Normal(0.0, 1.0).log_prob(z).sum(-1)
    loss = -(Normal(1.0, 2.0).log_prob(f).sum(-1) + log_det - base).mean()
    loss.backward()
    return {"loss": loss, "u": u.grad, "w": w.grad, "log_det": log_det[:3]}


def coupling_flow():
    s = [fill(nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2), nn.Tanh()), 76 + 8 * i)
         for i in range(3)]
    t = [fill(nn.Linear(2, 2), 100 + 4 * i) for i in range(3)]
    masks = torch.tensor([[0, 1], [1, 0], [0, 1]], dtype=torch.float64)
    prior = D.MultivariateNormal(torch.zeros(2, dtype=torch.float64),
                                 torch.eye(2, dtype=torch.float64))
    x = drawn(115, 6, 2)
    z, log_det = x, x.new_zeros(x.shape[0])
    for i in reversed(range(3)):
        kept = masks[i] * z
        scale = s[i](kept) * (1 - masks[i])
        shift = t[i](kept) * (1 - masks[i])
        z = (1 - masks[i]) * (z - shift) * torch.exp(-scale) + kept
        log_det -= scale.sum(dim=1)
    loss = -(prior.log_prob(z) + log_det).mean()
    loss.backward()
    J = torch.autograd.functional.jacobian(lambda v: torch.exp(s[0](v)), x[0])
    return {"loss": loss, "grad": t[0].weight.grad, "det": torch.linalg.det(J),
            "first": s[2][0].weight.grad[0]}


def kalman_filter():
    A = torch.tensor([[1.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    H = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    log_q = torch.tensor(-1.0, dtype=torch.float64, requires_grad=True)
    log_r = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    ys = torch.cumsum(drawn(116, 12), 0)
    x, P = torch.zeros(2, 1, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    Q = log_q.exp() * torch.eye(2, dtype=torch.float64)
    R = log_r.exp().reshape(1, 1)
    ll = 0.0
    for y in ys:
        x, P = A @ x, A @ P @ A.T + Q
        S = H @ P @ H.T + R
        e = y - H @ x
        K = P @ H.T @ torch.inverse(S)
        ll = ll - 0.5 * (e.T @ torch.linalg.inv(S) @ e + torch.logdet(2 * math.pi * S)).squeeze()
        x, P = x + K @ e, (torch.eye(2) - K @ H) @ P
    g = torch.autograd.grad(ll, (log_q, log_r), create_graph=True)
    h = torch.autograd.grad(g[0], (log_q, log_r))
    return {"ll": ll, "g": g, "h": h, "x": x}


def gaussian_process():
    X, y = torch.linspace(0, 1, 7, dtype=torch.float64).unsqueeze(-1), drawn(117, 7)
    log_l, log_s, log_n = [torch.tensor(v, dtype=torch.float64, requires_grad=True)
                           for v in (-1.0, 0.0, -2.0)]
    optimizer = torch.optim.Adam([log_l, log_s, log_n], lr=0.05)
    for _ in range(4):
        K = log_s.exp() * torch.exp(-0.5 * torch.cdist(X, X).pow(2) / log_l.exp() ** 2)
        K = K + log_n.exp() * torch.eye(7, dtype=torch.float64)
        L = torch.linalg.cholesky(K)
        alpha = torch.cholesky_solve(y.unsqueeze(1), L)
        nll = 0.5 * y @ alpha.squeeze(1) + L.diagonal().log().sum()
        optimizer.zero_grad()
        nll.backward()
        optimizer.step()
    v = torch.linalg.solve_triangular(L, K[:, :2], upper=False)
    dist = D.MultivariateNormal(torch.zeros(7, dtype=torch.float64), scale_tril=L)
    return {"nll": nll, "theta": [log_l, log_s, log_n], "grad": log_l.grad,
            "v": v.pow(2).sum(0), "log_prob": dist.log_prob(y)}


def mixture():
    x = torch.cat([drawn(118, 10) - 2, drawn(119, 10) + 2])
    logits = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    means = torch.tensor([-1.0, 1.0], dtype=torch.float64, requires_grad=True)
    scale = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([logits, means, scale], lr=0.1)
    for _ in range(10):
        lp = torch.log_softmax(logits, 0) + Normal(means, scale.exp()).log_prob(x[:, None])
        loss = -torch.logsumexp(lp, 1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    responsibilities = (lp - lp.logsumexp(1, keepdim=True)).exp().detach()
    return {"means": means, "scale": scale, "loss": loss, "r": responsibilities.sum(0)}


def multivariate():
    mean = drawn(120, 3).requires_grad_()
    B = drawn(121, 3, 3)
    cov = (B @ B.T + 0.5 * torch.eye(3)).requires_grad_()
    d = D.MultivariateNormal(mean, covariance_matrix=cov)
    e = D.MultivariateNormal(torch.zeros(3, dtype=torch.float64),
                             precision_matrix=torch.eye(3, dtype=torch.float64) * 2)
    x = drawn(122, 4, 3)
    lp, kl, h = d.log_prob(x), kl_divergence(d, e), d.entropy()
    g = torch.autograd.grad(lp.sum() + kl + h, (mean, cov))
    ind = D.Independent(Normal(mean, 1.0), 1)
    return {"lp": lp, "kl": kl, "h": h, "mean": g[0], "cov": g[1] + g[1].T,
            "ind": ind.log_prob(x), "var": e.variance}


def beta_and_dirichlet():
    a = torch.tensor([1.5, 2.0, 0.7], dtype=torch.float64, requires_grad=True)
    beta, gamma = D.Beta(a, a.flip(0) + 1), D.Gamma(a, a + 0.5)
    dirichlet = D.Dirichlet(a)
    x = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    values = [beta.log_prob(x), gamma.log_prob(x), dirichlet.log_prob(x),
              beta.entropy(), gamma.entropy(), dirichlet.entropy(),
              kl_divergence(gamma, D.Gamma(2.0 * torch.ones(3), torch.ones(3))),
              kl_divergence(beta, D.Beta(torch.ones(3), torch.ones(3))),
              kl_divergence(dirichlet, D.Dirichlet(torch.ones(3, dtype=torch.float64)))]
    g, = torch.autograd.grad(sum(v.sum() for v in values), a)
    return {"values": [v.sum() for v in values], "g": g, "mean": beta.mean,
            "variance": dirichlet.variance}


def log_probabilities():
    p = torch.tensor([0.2, 0.7], dtype=torch.float64, requires_grad=True)
    s = torch.tensor([1.0, 2.5], dtype=torch.float64, requires_grad=True)
    k = torch.tensor([1.0, 0.0], dtype=torch.float64)
    parts = [
        D.Bernoulli(probs=p).log_prob(k), D.Bernoulli(logits=s).log_prob(k),
        D.Bernoulli(p).entropy(), D.Exponential(s).log_prob(s + 1), D.Exponential(s).entropy(),
        D.Uniform(-s, s * 2).log_prob(k), D.Laplace(p, s).log_prob(k), D.Laplace(p, s).cdf(k),
        D.LogNormal(p, s).log_prob(s), D.Normal(p, s).cdf(k), D.Normal(p, s).icdf(p),
        D.Normal(p, s).entropy(), D.StudentT(s + 2, p, s).log_prob(k),
        D.Cauchy(p, s).log_prob(k), D.HalfNormal(s).log_prob(s), D.Poisson(s).log_prob(k * 3),
        D.Geometric(p).log_prob(k), D.Gumbel(p, s).log_prob(k),
        D.Categorical(probs=p).log_prob(torch.tensor(1)),
        D.OneHotCategorical(logits=s).log_prob(k), D.Binomial(4, probs=p).log_prob(k),
    ]
    total = sum(x.sum() for x in parts)
    gp, gs = torch.autograd.grad(total, (p, s))
    return {"parts": [x.sum() for x in parts], "gp": gp, "gs": gs}


def poisson_regression():
    X, y = drawn(123, 9, 2), torch.arange(9, dtype=torch.float64) % 4
    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    for _ in range(5):
        loss = F.poisson_nll_loss(X @ w, y) + F.gaussian_nll_loss(X @ w, y, w.exp().sum() * y)
        g, = torch.autograd.grad(loss, w, create_graph=True)
        H = torch.stack([torch.autograd.grad(gi, w, retain_graph=True)[0] for gi in g])
        w = (w - torch.linalg.solve(H + torch.eye(2), g)).detach().requires_grad_()
    return {"w": w, "loss": loss, "H": H}


def gumbel():
    logits = drawn(124, 4, 3).requires_grad_()
    u = torch.sigmoid(drawn(125, 4, 3))
    noise = -torch.log(-torch.log(u))
    soft = F.softmax((logits + noise) / 0.5, dim=-1)
    index = soft.max(-1, keepdim=True)[1]
    hard = torch.zeros_like(logits).scatter_(-1, index, 1.0)
    ret = hard - soft.detach() + soft
    (ret * drawn(126, 4, 3)).sum().backward()
    library = F.gumbel_softmax(logits, tau=1, hard=True)
    return {"ret": ret, "grad": logits.grad, "rows": library.sum(-1), "hot": hard.argmax(-1)}


def hidden_markov():
    logA, logB, logpi = [torch.log_softmax(drawn(127 + i, *s), -1).requires_grad_()
                         for i, s in enumerate([(3, 3), (3, 4), (3,)])]
    obs = torch.tensor([0, 1, 3, 2, 2, 0])
    alpha = logpi + logB[:, obs[0]]
    for o in obs[1:]:
        alpha = torch.logsumexp(alpha.unsqueeze(1) + logA, dim=0) + logB[:, o]
    ll = torch.logsumexp(alpha, 0)
    gA, gB = torch.autograd.grad(ll, (logA, logB))
    return {"ll": ll, "counts": gA, "emissions": gB, "total": gB.sum()}


def conditional_random_field():
    T, K = 5, 3
    emissions = drawn(130, T, K).requires_grad_()
    transitions = drawn(131, K, K).requires_grad_()
    tags = [0, 2, 1, 1, 0]
    score = emissions[0, tags[0]]
    forward_var = emissions[0]
    viterbi, back = emissions[0], []
    for t in range(1, T):
        score = score + transitions[tags[t - 1], tags[t]] + emissions[t, tags[t]]
        forward_var = (forward_var[:, None] + transitions).logsumexp(0) + emissions[t]
        best, where = (viterbi[:, None] + transitions).max(dim=0)
        viterbi = best + emissions[t]
        back.append(where)
    loss = torch.logsumexp(forward_var, -1) - score
    loss.backward()
    path = [int(viterbi.argmax())]
    for where in reversed(back):
        path.append(where[path[-1]].item())
    return {"loss": loss, "emissions": emissions.grad, "transitions": transitions.grad,
            "path": path[::-1]}


def hamiltonian_monte_carlo():
    def log_prob(q):
        return -0.5 * (q[0] ** 2 + (q[1] - q[0] ** 2) ** 2 / 0.5)

    def gradient(q):
        q = q.detach().requires_grad_(True)
        return torch.autograd.grad(log_prob(q), q)[0]

    q, accepted = torch.tensor([0.5, -0.5], dtype=torch.float64), 0
    momenta, u = drawn(132, 6, 2), torch.sigmoid(drawn(133, 6))
    for p, threshold in zip(momenta, u):
        start = log_prob(q) - 0.5 * p.dot(p)
        new, r = q.clone(), p + 0.05 * gradient(q)
        for _ in range(5):
            new = new + 0.1 * r
            r = r + 0.1 * gradient(new)
        r = r - 0.05 * gradient(new)
        if torch.log(threshold) < log_prob(new) - 0.5 * r @ r - start:
            q, accepted = new, accepted + 1
    return {"q": q, "accepted": accepted}


def langevin():
    energy = fill(nn.Sequential(nn.Linear(2, 4), nn.SiLU(), nn.Linear(4, 1)), 134)
    x = drawn(140, 5, 2)
    for noise in drawn(141, 4, 5, 2):
        x = x.detach().requires_grad_(True)
        g, = torch.autograd.grad(energy(x).sum(), x)
        x.data.add_(g.data.clamp(-1, 1), alpha=-0.1).add_(0.01 * noise)
    loss = energy(x.detach()).mean() - energy(drawn(142, 5, 2)).mean()
    loss.backward()
    return {"x": x, "loss": loss, "grad": energy[0].bias.grad}


def stein():
    particles = drawn(143, 6, 2).requires_grad_()
    target = D.MultivariateNormal(torch.ones(2, dtype=torch.float64),
                                  torch.tensor([[1.0, 0.3], [0.3, 0.5]], dtype=torch.float64))
    optimizer = torch.optim.Adagrad([particles], lr=0.3)
    for _ in range(5):
        score = torch.autograd.grad(target.log_prob(particles).sum(), particles)[0]
        sq = (particles.unsqueeze(1) - particles.detach().unsqueeze(0)).pow(2).sum(-1)
        h = sq.detach().flatten().median() / (2 * math.log(7))
        K = torch.exp(-sq / (2 * h))
        repulsion = torch.autograd.grad(K.sum(), particles)[0]
        optimizer.zero_grad()
        particles.grad = -(K.detach() @ score - repulsion) / 6
        optimizer.step()
    return {"particles": particles, "h": h}
