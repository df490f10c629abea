"""Later styles: optimisers by hand, graphs, quantised codes, diffusion, ops, sets of values."""

import math

import numpy as np
import torch
import torch.distributions as D
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal, constraints
from torch.distributions import transforms as T
from torch.distributions.utils import broadcast_all
from torch.func import functional_call, jacrev, jvp, vjp, vmap
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn

__all__ = [
    "barlow_twins",
    "composed_transforms",
    "cubic_sampling",
    "diffusion",
    "graph_attention",
    "graph_convolution_by_sparse_products",
    "neural_tangent_kernel",
    "op_of_the_user",
    "optimisers_by_hand",
    "rates_of_averages",
    "sharpness_aware",
    "soft_alignment",
    "truncated_normal",
    "vector_quantisation",
]


def drawn(seed, *shape):
    return torch.from_numpy(np.random.RandomState(seed).randn(*shape))


def fill(module, seed=0):
    for i, p in enumerate(module.parameters()):
        p.data = 0.4 * drawn(seed + i, *p.shape)
    return module.double()


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = torch.zeros_like(p)
                m = state["exp_avg"]
                p.data.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((m * b1 + p.grad * (1 - b1)).sign_(), alpha=-group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


class Lamb(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2):
        super().__init__(params, {"lr": lr})

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                g, state = p.grad.data, self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p.data, memory_format=torch.preserve_format)
                    state["v"] = torch.zeros_like(p.data)
                state["m"].mul_(0.9).add_(g, alpha=0.1)
                state["v"].mul_(0.999).addcmul_(g, g, value=0.001)
                u = state["m"] / state["v"].sqrt().add_(1e-6)
                ratio = p.data.pow(2).sum().sqrt() / u.pow(2).sum().sqrt()
                p.data.add_(u, alpha=-group["lr"] * ratio.item())


class Warm(LRScheduler):
    def __init__(self, optimizer, n, last_epoch=-1):
        self.n = n
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return [b * min(1.0, (self.last_epoch + 1) / self.n) for b in self.base_lrs]


def optimisers_by_hand():
    A, b, out = drawn(0, 8, 3), drawn(1, 8), {}
    for name, make in (("lion", lambda ps: Lion(ps, 0.05, weight_decay=0.1)),
                       ("lamb", lambda ps: Lamb(ps, 0.1))):
        w = nn.Parameter(torch.ones(3, dtype=torch.float64))
        optimizer = make([w])
        schedule, losses = Warm(optimizer, 4), []
        calls = []
        optimizer.register_step_post_hook(lambda o, args, kwargs, calls=calls: calls.append(1))
        for _ in range(6):
            optimizer.zero_grad()
            loss = ((A @ w - b) ** 2).mean()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        out[name] = [losses, w, schedule.get_last_lr(), len(calls)]
    return out


class Sam(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **options):
        super().__init__(params, dict(rho=rho, **options))
        self.base = base(self.param_groups, **options)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def step(self, closure=None):
        closure = torch.enable_grad()(closure)
        params = [p for g in self.param_groups for p in g["params"]]
        norm = torch.norm(torch.stack([p.grad.norm(p=2) for p in params]), p=2)
        for p in params:
            self.state[p]["old"] = p.data.clone()
            p.add_(p.grad * (self.defaults["rho"] / (norm + 1e-12)))
        self.zero_grad()
        closure()
        for p in params:
            p.data = self.state[p]["old"]
        self.base.step()


def sharpness_aware():
    A, b = drawn(0, 8, 3), drawn(1, 8)
    model = fill(nn.Linear(3, 1, bias=False))
    optimizer, losses = Sam(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9), []

    def closure():
        loss = ((model(A).squeeze(1) - b) ** 2).mean()
        loss.backward()
        return loss

    for _ in range(5):
        optimizer.zero_grad()
        losses.append(closure().item())
        optimizer.step(closure)
    return {"losses": losses, "w": model.weight}


def rates_of_averages():
    model = fill(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)))
    mean = AveragedModel(model)
    moving = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    schedule, rates = SWALR(optimizer, swa_lr=0.05, anneal_epochs=3), []
    for i in range(5):
        optimizer.zero_grad()
        model(drawn(i, 4, 2)).pow(2).mean().backward()
        optimizer.step()
        schedule.step()
        mean.update_parameters(model)
        moving.update_parameters(model)
        rates += schedule.get_last_lr()
    return {"rates": rates, "mean": mean.module[0].weight, "moving": moving.module[2].weight}


EDGES = torch.tensor([[0, 1, 2, 3, 1, 1, 2, 3, 0, 3, 0, 1, 2, 3],
                      [1, 2, 3, 0, 3, 0, 1, 2, 3, 1, 0, 1, 2, 3]])


def graph_convolution_by_sparse_products():
    values = torch.full((EDGES.shape[1],), 1 / 3, dtype=torch.float64)
    adj = torch.sparse_coo_tensor(EDGES, values, (4, 4), check_invariants=True)
    one, two = fill(nn.Linear(4, 6)), fill(nn.Linear(6, 3), 5)
    x, y = drawn(9, 4, 4), torch.tensor([0, 1, 2, 1])
    h = F.relu(torch.spmm(adj, one(x)))
    loss = F.nll_loss(F.log_softmax(torch.sparse.mm(adj, two(h)), dim=1), y)
    loss.backward()
    return {"loss": loss, "first": one.weight.grad, "second": two.bias.grad}


def graph_attention():
    src, dst = EDGES
    h, a = drawn(0, 4, 5).requires_grad_(), drawn(1, 10).requires_grad_()
    e = F.leaky_relu((torch.cat([h[src], h[dst]], 1) * a).sum(1), 0.2)
    top = torch.full((4,), -1e9, dtype=torch.float64).scatter_reduce(0, dst, e, "amax")
    w = (e - top[dst]).exp()
    share = w / torch.zeros(4, dtype=torch.float64).index_add_(0, dst, w)[dst]
    out = torch.zeros(4, 5, dtype=torch.float64).index_add(0, dst, share[:, None] * h[src])
    out.pow(2).sum().backward()
    return {"out": out, "h": h.grad, "a": a.grad}


def vector_quantisation():
    codes, z = nn.Parameter(drawn(0, 4, 2)), drawn(1, 3, 5, 2).requires_grad_()
    flat = z.reshape(-1, 2)
    d = (flat**2).sum(1, keepdim=True) + (codes**2).sum(1) - 2 * flat @ codes.t()
    index = torch.argmin(d, dim=1).unsqueeze(1)
    chosen = torch.zeros(index.shape[0], 4, dtype=torch.float64, device=z.device)
    chosen.scatter_(1, index, 1)
    q = torch.matmul(chosen, codes).view(z.shape)
    loss = F.mse_loss(q.detach(), z) * 0.25 + F.mse_loss(q, z.detach())
    q = z + (q - z).detach()
    share = chosen.mean(0)
    (loss + q.sin().sum()).backward()
    return {"loss": loss, "z": z.grad, "codes": codes.grad,
            "perplexity": torch.exp(-torch.sum(share * torch.log(share + 1e-10)))}


class Places(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width

    def forward(self, t):
        half = self.width // 2
        places = torch.arange(half, device=t.device, dtype=torch.float64)
        angles = t[:, None] * torch.exp(places * -math.log(10000) / (half - 1))[None, :]
        return torch.cat((angles.sin(), angles.cos()), dim=-1)


def diffusion():
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 20, dtype=torch.float64), 0)
    before = F.pad(kept[:-1], (1, 0), value=1.0)
    time = nn.Sequential(Places(8), fill(nn.Linear(8, 6)), nn.GELU())
    inner = fill(nn.Linear(2, 6), 3)
    outer = nn.Sequential(nn.LayerNorm(6), nn.SiLU(), nn.Linear(6, 2)).double()
    fill(outer[2], 7)
    t, x, noise = torch.tensor([0, 3, 11, 19]), drawn(1, 4, 2), drawn(2, 4, 2)
    scale = kept.sqrt().gather(-1, t).reshape(4, 1)
    noisy = scale * x + (1 - kept).sqrt().gather(-1, t).reshape(4, 1) * noise
    guess = outer(inner(noisy) + time(t))
    loss = F.mse_loss(guess, noise, reduction="none").mean(1)
    loss = (loss * (1 / (1 + before)).gather(-1, t)).mean()
    loss.backward()
    return {"loss": loss, "inner": inner.weight.grad, "time": time[1].weight.grad}


def barlow_twins():
    a, b = drawn(0, 5, 3).requires_grad_(), drawn(1, 5, 3)
    a1, b1 = (a - a.mean(0)) / a.std(0), (b - b.mean(0)) / b.std(0)
    c = a1.T @ b1 / 5
    on = torch.diagonal(c).add_(-1).pow_(2).sum()
    off = c.flatten()[:-1].view(2, 4)[:, 1:].flatten().pow(2).sum()
    (on + 0.005 * off).backward()
    return {"on": on, "off": off, "a": a.grad}


def soft_alignment():
    D_ = torch.cdist(drawn(0, 4, 1), drawn(1, 3, 1)).requires_grad_()
    infinite = torch.tensor(float("inf"), dtype=torch.float64)
    R = [[infinite] * 4 for _ in range(5)]
    R[0][0] = torch.zeros((), dtype=torch.float64)
    for i in range(4):
        for j in range(3):
            ways = torch.stack([-R[i][j], -R[i][j + 1], -R[i + 1][j]])
            R[i + 1][j + 1] = D_[i, j] - torch.logsumexp(ways, 0)
    R[-1][-1].backward()
    return {"cost": R[-1][-1], "path": D_.grad}


class TruncatedNormal(D.Distribution):
    arg_constraints = {"a": constraints.real, "b": constraints.real}  # noqa: RUF012  # as users do
    has_rsample = True

    def __init__(self, a, b, validate_args=None):
        self.a, self.b = broadcast_all(a, b)
        super().__init__(self.a.size(), validate_args=validate_args)
        self._low = self._phi(self.a)
        self._size = self._phi(self.b) - self._low

    @constraints.dependent_property
    def support(self):
        return constraints.interval(self.a, self.b)

    @staticmethod
    def _phi(x):
        return 0.5 * (1 + torch.erf(x / math.sqrt(2)))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return -0.5 * value**2 - math.log(math.sqrt(2 * math.pi)) - self._size.log()

    def icdf(self, p):
        return torch.erfinv(2 * (self._low + p * self._size) - 1) * math.sqrt(2)


def truncated_normal():
    a = torch.tensor([-1.0, 0.2], dtype=torch.float64, requires_grad=True)
    d = TruncatedNormal(a, torch.tensor([1.0, 2.0], dtype=torch.float64))
    x = d.icdf(torch.tensor([0.3, 0.8], dtype=torch.float64))
    (x.sum() + d.log_prob(torch.tensor([0.5, 0.5], dtype=torch.float64)).sum()).backward()
    refused = 0
    try:
        d.log_prob(torch.tensor([3.0, 0.5]))
    except ValueError:
        refused = 1
    return {"x": x, "a": a.grad, "refused": refused}


def composed_transforms():
    x, out = torch.tensor([0.1, -0.2, 0.3], dtype=torch.float64), {}
    for name, t in {
        "correlation": T.CorrCholeskyTransform(),
        "parts": T.CatTransform([T.ExpTransform(), T.AffineTransform(0.0, 2.0)], 0, [1, 2]),
        "each": T.StackTransform([T.ExpTransform(), T.SigmoidTransform(), T.TanhTransform()]),
        "together": T.IndependentTransform(T.SoftplusTransform(), 1),
        "distribution": T.CumulativeDistributionTransform(Normal(0.0, 1.0)),
    }.items():
        v = x.clone().requires_grad_()
        y = t(v)
        volume = t.log_abs_det_jacobian(v, y)
        (grad,) = torch.autograd.grad(y.sum() + volume.sum(), v)
        out[name] = [y, t.inv(y), volume, grad]
    positive = D.biject_to(constraints.greater_than(2.0))
    out["positive"] = [positive(x), constraints.simplex.check(x.softmax(0))]
    return out


def cubic_sampling():
    image, theta = drawn(0, 1, 2, 5, 4).requires_grad_(), drawn(1, 1, 2, 3).requires_grad_()
    out = {}
    for padding in ("zeros", "border", "reflection"):
        grid = F.affine_grid(0.5 * theta, [1, 2, 3, 3], align_corners=False)
        y = F.grid_sample(image, grid, "bicubic", padding, align_corners=False)
        out[padding] = [y, *torch.autograd.grad((y**2).sum(), (image, theta))]
    return out


def neural_tangent_kernel():
    net = fill(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))
    params, x = {k: v.detach() for k, v in net.named_parameters()}, drawn(9, 3, 3)

    def f(p, v):
        return functional_call(net, p, (v.unsqueeze(0),)).squeeze(0)

    rows = [j.flatten(2) for j in vmap(jacrev(f), (None, 0))(params, x).values()]
    whole = sum(torch.einsum("Naf,Mbf->NMab", j, j) for j in rows)

    def products(v1, v2):
        def column(e):
            (back,) = vjp(lambda p: f(p, v1), params)[1](e)
            return jvp(lambda p: f(p, v2), (params,), (back,))[1]

        return vmap(column)(torch.eye(2, dtype=torch.float64))

    return {"whole": whole, "by products": vmap(vmap(products, (None, 0)), (0, None))(x, x)}


def op_of_the_user():
    @torch.library.custom_op("programs::sine", mutates_args=())
    def sine(x: torch.Tensor, k: float) -> torch.Tensor:
        return torch.from_numpy(np.sin(k * x.numpy()))

    def keep(ctx, inputs, output):
        x, ctx.k = inputs
        ctx.save_for_backward(x)

    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.k * (ctx.k * x).cos(), None

    sine.register_autograd(backward, setup_context=keep)
    x = drawn(0, 3).requires_grad_()
    y = sine(x, 2.0) * x
    y.sum().backward()
    return {"y": y, "x": x.grad, "again": torch.ops.programs.sine(x.detach(), 3.0)}
