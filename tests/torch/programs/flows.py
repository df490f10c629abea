"""Flows and mixtures, deep equilibria, low-rank layers, graphs looked through."""

import math

import numpy as np
import torch
import torch.distributions as D
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    SoftplusTransform,
    TanhTransform,
)
from torch.func import grad, hessian, jvp, vjp, vmap

__all__ = [
    "classes_derived_at_the_root", "deep_equilibrium", "flow_of_transforms", "low_rank_layers",
    "mixtures", "names_of_nodes",
]


def drawn(seed, *shape):
    return torch.from_numpy(np.random.RandomState(seed).randn(*shape))


def fill(module, seed=0):
    """Deterministic weights for every parameter of a module."""
    for i, p in enumerate(module.parameters()):
        p.data = 0.3 * drawn(seed + i, *p.shape)
    return module.double()


def flow_of_transforms():
    a = torch.tensor([0.5, -1.0], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([2.0, 0.7], dtype=torch.float64, requires_grad=True)
    base = D.Normal(torch.zeros(2).double(), torch.ones(2).double())
    flow = D.TransformedDistribution(base, [AffineTransform(a, b), TanhTransform()])
    x = torch.tanh(0.4 * drawn(1, 3, 2))
    loss = flow.log_prob(x).sum()
    unit = D.Uniform(torch.zeros(1).double(), torch.ones(1).double())
    logistic = D.TransformedDistribution(
        unit, [SigmoidTransform().inv, AffineTransform(loc=1.0, scale=-2.0)])
    at = torch.tensor([0.3]).double()
    joint = D.TransformedDistribution(D.Independent(base, 1), [ExpTransform()])
    chain = ComposeTransform([SoftplusTransform(), PowerTransform(torch.tensor(2.0).double())])
    y = chain(x)
    return {
        "loss": loss, "gradients": torch.autograd.grad(loss, [a, b]),
        "logistic": [logistic.log_prob(at), logistic.cdf(at), logistic.icdf(at)],
        "joint": joint.log_prob(x.exp()), "event": list(joint.event_shape),
        "chain": [y, chain.inv(y), chain.log_abs_det_jacobian(x, y)],
    }


def mixtures():
    weights, means, sizes = [drawn(k, 3).requires_grad_() for k in (1, 2, 3)]
    mixture = D.MixtureSameFamily(D.Categorical(logits=weights), D.Normal(means, sizes.exp()))
    loss = mixture.log_prob(drawn(4, 5)).sum()
    gaussians = D.MixtureSameFamily(
        D.Categorical(torch.ones(2).double()), D.Independent(D.Normal(drawn(5, 2, 3), 1.0), 1))
    return {"loss": loss, "gradients": torch.autograd.grad(loss, [weights, means, sizes]),
            "moments": [mixture.mean, mixture.variance, mixture.cdf(drawn(6, 2))],
            "vectors": [gaussians.log_prob(drawn(7, 4, 3)), gaussians.mean, gaussians.variance]}


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4, bias=False)
        self.norm = nn.LayerNorm(4)

    def forward(self, z, x):
        return torch.tanh(0.5 * self.linear(z) + self.norm(x))


def repeated(f, z):
    for _ in range(40):
        z = f(z)
    return z


def deep_equilibrium():
    cell, x = fill(Cell()), drawn(5, 3, 4).requires_grad_()
    with torch.no_grad():
        z = repeated(lambda z: cell(z, x), torch.zeros_like(x))
    z = cell(z, x)
    z0 = z.clone().detach().requires_grad_()
    f0 = cell(z0, x)

    def solve(g):
        return repeated(lambda y: torch.autograd.grad(f0, z0, y, retain_graph=True)[0] + g, g)

    z.register_hook(solve)
    z.pow(2).sum().backward()
    return {"z": z, "x": x.grad, "parameters": [p.grad for p in cell.parameters()]}


class LowRank(nn.Module):
    def __init__(self, base, rank=2, alpha=4):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.A = nn.Parameter(torch.ones(rank, base.in_features))
        self.B = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.A.t() @ self.B.t())


def low_rank_layers():
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    for name, module in list(net.named_children()):
        if isinstance(module, nn.Linear):
            setattr(net, name, LowRank(module))  # in its place
    fill(net)
    trained = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2, weight_decay=0.1)
    for k in range(2):
        optimizer.zero_grad()
        net(drawn(k, 3, 4)).square().mean().backward()
        optimizer.step()
    merged = net[0].base.weight + net[0].scale * net[0].B @ net[0].A
    return {"count": sum(p.numel() for p in trained), "merged": merged, "last": net[2].B}


def classes_derived_at_the_root():
    """The loss itself is where the derivative begins, in all modes."""
    x, y = drawn(1, 4, 3), torch.tensor([0, 2, 1, 1])
    out = {}
    for name, loss in (("cross entropy", lambda x: F.cross_entropy(x, y)),
                       ("likelihood", lambda x: F.nll_loss(x.exp(), y, reduction="sum")),
                       ("squares", lambda x: F.mse_loss(x, torch.ones_like(x))),
                       ("layer", lambda x: F.layer_norm(x, (3,)).pow(3).sum()),
                       ("linear", lambda x: F.linear(x, x, x[:, 0]).sum())):
        value, pull = vjp(loss, x)
        out[name] = [value, pull(torch.ones_like(value)), jvp(loss, (x,), (drawn(2, 4, 3),)),
                     hessian(loss)(x)]
    each = vmap(grad(lambda row, k: F.cross_entropy(row[None], k[None])))(x, y)
    return {**out, "each": each}


def names_of_nodes():
    x, w = drawn(1, 2).requires_grad_(), drawn(2, 2, 2).requires_grad_()
    names, stack = [], [torch.tanh(w * x + 1).pow(2).mean().grad_fn]
    while stack:
        node = stack.pop()
        names.append(node.name())
        names += [n for n in dir(node) if n in ("_saved_self", "_saved_result", "_saved_other")]
        stack += [n for n, _ in node.next_functions if n is not None]
    return {"_".join(names): math.pi}
