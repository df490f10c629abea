"""Derivatives of derivatives."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import autograd
from torch.autograd import Variable, grad
from torch.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp

__all__ = [
    "bilevel", "conjugate_gradient", "contractive", "deep_equilibrium", "double_backward",
    "gauss_newton", "gradient_penalty", "hessian_power_iteration", "hessian_trace",
    "implicit_differentiation", "influence", "jacobian_products", "maml", "natural_gradient",
    "newton", "per_sample_gradients", "physics_informed", "reptile", "score_matching",
    "sobolev_training", "taylor_coefficients",
]


def drawn(seed, *shape):
    return torch.from_numpy(np.random.RandomState(seed).randn(*shape))


def double_backward():
    x = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    y = (x ** 3 + torch.sin(x)).sum()
    g, = grad(y, x, create_graph=True)
    h, = grad(g.sum(), x, create_graph=True)
    t, = grad(h, x, grad_outputs=torch.ones_like(h))
    out = torch.exp(-x.pow(2)).prod()
    first, = grad(out, x, create_graph=True)
    first.norm().backward()
    return {"g": g, "h": h, "t": t, "first": first, "second": x.grad}


def gradient_penalty():
    critic = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1)).double()
    for i, p in enumerate(critic.parameters()):
        p.data = drawn(i, *p.shape)
    real, fake = drawn(10, 6, 2), drawn(11, 6, 2) + 1
    alpha = torch.linspace(0, 1, 6, dtype=torch.float64).view(-1, 1).expand(real.size())
    interpolates = Variable(alpha * real + (1 - alpha) * fake, requires_grad=True)
    scores = critic(interpolates)
    gradients = autograd.grad(outputs=scores, inputs=interpolates,
                              grad_outputs=torch.ones(scores.size(), dtype=torch.float64),
                              create_graph=True, retain_graph=True, only_inputs=True)[0]
    penalty = ((gradients.view(6, -1).norm(2, dim=1) - 1) ** 2).mean()
    loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
    loss.backward()
    return {"penalty": penalty, "loss": loss, "grad": critic[0].weight.grad[:2],
            "bias": critic[2].bias.grad}


def maml():
    def net(x, w):
        h = torch.tanh(F.linear(x, w[0], w[1]))
        return F.linear(h, w[2], w[3])

    weights = [drawn(20 + i, *s).requires_grad_() for i, s in enumerate(
        [(5, 1), (5,), (1, 5), (1,)])]
    x = torch.linspace(-2, 2, 9, dtype=torch.float64).unsqueeze(1)
    optimizer = torch.optim.Adam(weights, lr=1e-2)
    losses = []
    for outer in range(3):
        total = 0.0
        for amplitude in (1.0, 2.0):
            y = amplitude * torch.sin(x)
            fast = weights
            for _ in range(2):
                inner = F.mse_loss(net(x[::2], fast), y[::2])
                grads = torch.autograd.grad(inner, fast, create_graph=True)
                fast = [w - 0.05 * g for w, g in zip(fast, grads)]
            total = total + F.mse_loss(net(x[1::2], fast), y[1::2])
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        losses.append(total.item())
    return {"losses": losses, "grads": [w.grad for w in weights[1:3]]}


def reptile():
    model = nn.Linear(1, 1).double()
    nn.init.ones_(model.weight)
    nn.init.zeros_(model.bias)
    x = drawn(25, 5, 1)
    for task in (2.0, -1.0, 0.5):
        before = {k: v.clone() for k, v in model.state_dict().items()}
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            inner.zero_grad()
            F.mse_loss(model(x), task * x + 1).backward()
            inner.step()
        after = model.state_dict()
        model.load_state_dict({k: before[k] + 0.5 * (after[k] - before[k]) for k in before})
    return {"weight": model.weight, "bias": model.bias}


def flat_grad(y, params, **kwargs):
    return torch.cat([g.reshape(-1) for g in autograd.grad(y, params, **kwargs)])


def conjugate_gradient():
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    for i, p in enumerate(model.parameters()):
        p.data = drawn(30 + i, *p.shape)
    params = list(model.parameters())
    x, y = drawn(35, 10, 2), drawn(36, 10, 1)
    g = flat_grad(F.mse_loss(model(x), y), params, create_graph=True)

    def product(v):
        return flat_grad(g @ v, params, retain_graph=True) + 0.5 * v

    b = g.detach()
    z, r = torch.zeros_like(b), b.clone()
    p = r.clone()
    rr = r.dot(r)
    for _ in range(4):
        Ap = product(p)
        alpha = rr / p.dot(Ap)
        z += alpha * p
        r -= alpha * Ap
        new = torch.dot(r, r)
        p = r + (new / rr) * p
        rr = new
    return {"solution": z, "residual": (product(z) - b).norm()}


def influence():
    X, y = drawn(40, 12, 3), (drawn(41, 12) > 0).double()
    theta = (0.1 * drawn(42, 3)).requires_grad_()

    def loss_of(t, rows):
        return F.binary_cross_entropy_with_logits(X[rows] @ t, y[rows]) + 0.05 * t @ t

    H = hessian(lambda t: loss_of(t, slice(None)), theta.detach())
    test = grad(loss_of(theta, slice(0, 1)), theta)[0]
    s = torch.linalg.solve(H, test)
    values = []
    for i in range(1, 6):
        g, = grad(loss_of(theta, slice(i, i + 1)), theta)
        values.append(-(s @ g).item())
    L = torch.linalg.cholesky(H)
    again = torch.cholesky_solve(test.unsqueeze(1), L).squeeze(1)
    return {"influence": values, "same": torch.allclose(again, s), "H": H}


def per_sample_gradients():
    model = nn.Linear(3, 2).double()
    for i, p in enumerate(model.parameters()):
        p.data = drawn(45 + i, *p.shape)
    x, y = drawn(47, 5, 3), torch.tensor([0, 1, 0, 1, 1])
    losses = F.cross_entropy(model(x), y, reduction="none")
    rows = [torch.cat([g.flatten() for g in grad(loss, model.parameters(), retain_graph=True)])
            for loss in losses]
    per_sample = torch.stack(rows)
    eye = torch.eye(5, dtype=torch.float64)
    batched = grad(losses, list(model.parameters()), eye, retain_graph=True, is_grads_batched=True)
    norms = per_sample.norm(dim=1)
    clipped = per_sample * (1.0 / norms).clamp(max=1).unsqueeze(1)
    losses.mean().backward()
    together = torch.cat([p.grad.flatten() for p in model.parameters()])
    return {"norms": norms, "private": clipped.mean(0),
            "sum": torch.allclose(per_sample.mean(0), together),
            "batched": torch.allclose(batched[0].reshape(5, -1), per_sample[:, :6])}


def hessian_power_iteration():
    w = drawn(50, 4).requires_grad_()
    X = drawn(51, 9, 4)
    loss = torch.log(torch.cosh(X @ w)).mean()
    g, = grad(loss, w, create_graph=True)
    v = torch.ones(4, dtype=torch.float64) / 2
    for _ in range(40):
        Hv, = grad(g, w, grad_outputs=v, retain_graph=True)
        value = v @ Hv
        v = Hv / Hv.norm()
    full = hessian(lambda t: torch.log(torch.cosh(X @ t)).mean(), w)
    return {"value": value, "exact": torch.linalg.eigvalsh(full)[-1],
            "vector": v * torch.sign(v[0])}


def hessian_trace():
    w = drawn(52, 6).requires_grad_()
    loss = (w.view(2, 3).softmax(-1) * torch.arange(6.0).view(2, 3)).pow(2).sum()
    g, = torch.autograd.grad(loss, w, create_graph=True)
    trace = 0.0
    for i in range(6):
        trace += torch.autograd.grad(g[i], w, retain_graph=True)[0][i]
    probes = torch.tensor([[1, -1, 1, 1, -1, -1], [1, 1, 1, -1, -1, 1]], dtype=torch.float64)
    estimates = [(v * torch.autograd.grad(g @ v, w, retain_graph=True)[0]).sum() for v in probes]
    return {"trace": trace, "estimates": estimates}


def physics_informed():
    net = nn.Sequential(nn.Linear(1, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    for i, p in enumerate(net.parameters()):
        p.data = 0.5 * drawn(55 + i, *p.shape)
    t = torch.linspace(0, 1, 8, dtype=torch.float64).view(-1, 1).requires_grad_(True)
    boundary = torch.tensor(0.0, dtype=torch.float64).view(-1, 1).requires_grad_(True)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(5):
        optimizer.zero_grad()
        u = net(boundary)
        loss1 = (torch.squeeze(u) - 1) ** 2
        dudt = torch.autograd.grad(u, boundary, torch.ones_like(u), create_graph=True)[0]
        loss2 = (torch.squeeze(dudt) - 0) ** 2
        u = net(t)
        dudt = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)[0]
        d2udt2 = torch.autograd.grad(dudt, t, torch.ones_like(dudt), create_graph=True)[0]
        loss3 = torch.mean((d2udt2 + 4 * dudt + 40 * u) ** 2)
        loss = loss1 + 1e-1 * loss2 + 1e-4 * loss3
        loss.backward()
        optimizer.step()
    return {"loss": loss, "losses": [loss1, loss2, loss3], "u": u[:, 0]}


def jacobian_products():
    A = drawn(60, 3, 4)

    def f(x, y):
        return torch.tanh(A @ x) * y, x.pow(2).sum()

    x, y = drawn(61, 4), drawn(62, 3)
    J = jacobian(f, (x, y))
    _, vj = vjp(f, (x, y), (torch.ones(3, dtype=torch.float64), torch.tensor(2.0,
                                                                             dtype=torch.float64)))
    _, jv = jvp(f, (x, y), (torch.ones_like(x), torch.zeros_like(y)))

    def g(x):
        return (torch.sin(A @ x)).sum() + x.prod()

    v = torch.linspace(-1, 1, 4, dtype=torch.float64)
    return {"J": [J[0][0], J[0][1], J[1][0]], "vj": vj, "jv": jv, "H": hessian(g, x),
            "hvp": hvp(g, x, v)[1], "vhp": vhp(g, x, v)[1]}


def newton():
    A = drawn(65, 5, 5)
    A = A @ A.t() + torch.eye(5, dtype=torch.float64)

    def f(x):
        return 0.5 * x @ A @ x + torch.logsumexp(x, dim=0)

    x = torch.ones(5, dtype=torch.float64)
    values = []
    for _ in range(5):
        g = jacobian(f, x)
        H = hessian(f, x)
        L = torch.linalg.cholesky(H)
        x = x - torch.cholesky_solve(g[:, None], L)[:, 0]
        values.append(f(x).item())
    return {"x": x, "values": values}


def gauss_newton():
    t = torch.arange(8, dtype=torch.float64)
    y = 3 * torch.exp(-0.4 * t) + 0.01 * drawn(66, 8)

    def residual(p):
        return p[0] * torch.exp(p[1] * t) - y

    p, damping = torch.tensor([1.0, -1.0], dtype=torch.float64), 1e-2
    for _ in range(8):
        r, J = residual(p), jacobian(residual, p, vectorize=True)
        A = J.T @ J + damping * torch.eye(2, dtype=torch.float64)
        step = torch.linalg.solve(A, -J.T @ r)
        if residual(p + step).norm() < r.norm():
            p, damping = p + step, damping / 3
        else:
            damping *= 2
    lstsq = torch.linalg.lstsq(J, -r.unsqueeze(1)).solution
    return {"p": p, "r": residual(p).norm(), "small": bool(lstsq.abs().max() < 1e-4)}


def natural_gradient():
    mu, log_sigma = [torch.tensor(v, dtype=torch.float64, requires_grad=True)
                     for v in (1.0, 0.5)]
    x = drawn(67, 20)
    for _ in range(3):
        def log_prob(mu, log_sigma):
            return -0.5 * ((x - mu) / log_sigma.exp()) ** 2 - log_sigma

        lp = log_prob(mu, log_sigma)
        scores = torch.stack([torch.stack(grad(value, (mu, log_sigma), retain_graph=True))
                              for value in lp])
        fisher = scores.t() @ scores / len(x)
        step = torch.linalg.solve(fisher + 1e-3 * torch.eye(2), scores.mean(0))
        mu = (mu + 0.5 * step[0]).detach().requires_grad_()
        log_sigma = (log_sigma + 0.5 * step[1]).detach().requires_grad_()
    return {"mu": mu, "sigma": log_sigma.exp(), "fisher": fisher}


def implicit_differentiation():
    class Root(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            x = torch.ones_like(a)
            for _ in range(50):
                x = x - (x ** 3 + x - a) / (3 * x ** 2 + 1)
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return g / (3 * x ** 2 + 1)

    a = torch.tensor([0.5, 2.0, 10.0], dtype=torch.float64, requires_grad=True)
    x = Root.apply(a)
    first, = grad(x.sum(), a, create_graph=True)
    second, = grad(first.sum(), a)
    ok = torch.autograd.gradcheck(Root.apply, (a,))
    return {"x": x, "first": first, "second": second, "ok": ok}


def deep_equilibrium():
    W = (0.3 * drawn(70, 4, 4)).requires_grad_()
    x = drawn(71, 4).requires_grad_()

    def f(z):
        return torch.tanh(W @ z + x)

    with torch.no_grad():
        z = torch.zeros(4, dtype=torch.float64)
        for _ in range(200):
            z = f(z)
    z = f(z)
    z0 = z.clone().detach().requires_grad_()
    f0 = f(z0)

    def backward_hook(g):
        u = g
        for _ in range(200):
            u = autograd.grad(f0, z0, u, retain_graph=True)[0] + g
        return u

    z.register_hook(backward_hook)
    z.pow(2).sum().backward()
    return {"z": z, "W": W.grad, "x": x.grad}


def bilevel():
    X, y = drawn(72, 10, 3), drawn(73, 10)
    Xv, yv = drawn(74, 6, 3), drawn(75, 6)
    log_lam = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    trace = []
    for _ in range(4):
        w = torch.zeros(3, dtype=torch.float64, requires_grad=True)
        for _ in range(10):
            inner = ((X @ w - y) ** 2).mean() + log_lam.exp() * (w ** 2).sum()
            gw, = grad(inner, w, create_graph=True)
            w = w - 0.1 * gw
        outer = ((Xv @ w - yv) ** 2).mean()
        hyper, = grad(outer, log_lam)
        with torch.no_grad():
            log_lam -= 0.5 * hyper
        trace.append((outer.item(), hyper.item()))
    return {"trace": trace, "lam": log_lam}


def contractive():
    W, b = drawn(76, 3, 4).requires_grad_(), drawn(77, 3).requires_grad_()
    x = drawn(78, 5, 4)
    h = torch.sigmoid(F.linear(x, W, b))
    recovered = torch.sigmoid(F.linear(h, W.t()))
    J = torch.einsum("bh,hd->bhd", h * (1 - h), W)
    frobenius = J.pow(2).sum(dim=(1, 2))
    loss = F.mse_loss(recovered, x) + 0.1 * frobenius.mean()
    loss.backward()
    direct = jacobian(lambda v: torch.sigmoid(F.linear(v, W, b)), x[0])
    return {"loss": loss, "grad": W.grad, "b": b.grad, "same": torch.allclose(direct, J[0])}


def score_matching():
    net = nn.Sequential(nn.Linear(2, 5), nn.Softplus(), nn.Linear(5, 1)).double()
    for i, p in enumerate(net.parameters()):
        p.data = drawn(80 + i, *p.shape)
    x = drawn(85, 7, 2).requires_grad_()
    log_p = -net(x)
    score = autograd.grad(log_p.sum(), x, create_graph=True)[0]
    trace = sum(autograd.grad(score[:, i].sum(), x, create_graph=True)[0][:, i] for i in range(2))
    v = torch.sign(drawn(86, 7, 2))
    sliced = autograd.grad((score * v).sum(), x, create_graph=True)[0]
    loss = (trace + 0.5 * score.norm(dim=-1) ** 2).mean() + (sliced * v).sum(-1).mean()
    loss.backward()
    return {"loss": loss, "trace": trace, "grad": net[0].weight.grad}


def sobolev_training():
    w = drawn(87, 3).requires_grad_()
    x = torch.linspace(0, 1, 6, dtype=torch.float64, requires_grad=True)
    target, slope = torch.sin(3 * x).detach(), (3 * torch.cos(3 * x)).detach()
    optimizer = torch.optim.SGD([w], lr=0.02)
    for _ in range(5):
        optimizer.zero_grad()
        y = w[0] + w[1] * x + w[2] * x.square()
        dy = torch.autograd.grad(y.sum(), x, create_graph=True)[0]
        loss = F.mse_loss(y, target) + F.mse_loss(dy, slope)
        loss.backward(inputs=[w])
        optimizer.step()
    return {"w": w, "loss": loss, "untouched": x.grad is None}


def taylor_coefficients():
    x = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    y = torch.exp(torch.sin(x)) / (1 + x ** 2)
    coefficients, factorial = [y.item()], 1.0
    for k in range(1, 6):
        y, = torch.autograd.grad(y, x, create_graph=True)
        factorial *= k
        coefficients.append(y.item() / factorial)
    return {"coefficients": coefficients}
