"""Custom functions, hooks, checkpoints, threads and pickles."""

import copy
import pickle
import threading

import numpy as np
import torch
import torch.nn.functional as F
from torch.autograd import Function, gradcheck, gradgradcheck
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

__all__ = [
    "adjoint_ode", "binary_weights", "checkpoints", "cubes", "deep_copies", "gradient_reversal",
    "hooks", "legendre", "numpy_inside", "pickles", "replaced_gradients", "square_root_of_matrix",
    "tape", "threads", "two_outputs", "views_and_writes",
]


def drawn(seed, *shape):
    return torch.from_numpy(np.random.RandomState(seed).randn(*shape))


def tape():
    x = torch.ones(2, 2, requires_grad=True)
    y = x + 2
    z = y * y * 3
    out = z.mean()
    out.backward()
    a = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    a = (a * 3) / (a - 1 + 1e-3)
    a.requires_grad_(True)
    b = (a * a).sum()
    v = torch.tensor([0.1, 1.0, 0.0001], dtype=torch.float)
    u = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    w = u * 2
    while w.data.norm() < 1000:
        w = w * 2
    w.backward(v)
    with torch.no_grad():
        recorded = (u ** 2).requires_grad
    return {"out": out, "x": x.grad, "b": b.requires_grad, "u": u.grad, "recorded": recorded,
            "leaf": [u.is_leaf, w.is_leaf, w.detach().is_leaf],
            "names": type(b.grad_fn).__name__ == "SumBackward0"}


class LegendrePolynomial3(Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return 0.5 * (5 * input ** 3 - 3 * input)

    @staticmethod
    def backward(ctx, grad_output):
        input, = ctx.saved_tensors
        return grad_output * 1.5 * (5 * input ** 2 - 1)


def legendre():
    x = torch.linspace(-3, 3, 50, dtype=torch.float)
    y = torch.sin(x)
    a, b, c, d = [torch.full((), v, dtype=torch.float, requires_grad=True)
                  for v in (0.0, -1.0, 0.0, 0.3)]
    for t in range(20):
        P3 = LegendrePolynomial3.apply
        y_pred = a + b * P3(c + d * x)
        loss = (y_pred - y).pow(2).sum()
        loss.backward()
        with torch.no_grad():
            for p in (a, b, c, d):
                p -= 5e-4 * p.grad
                p.grad = None
    return {"loss": loss, "weights": [a, b, c, d]}


class BinaryActivation(Function):
    @staticmethod
    def forward(ctx, i):
        ctx.save_for_backward(i)
        return (i > 0).to(i.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        i, = ctx.saved_tensors
        grad = grad_output.clone()
        grad[i.abs() > 1] = 0
        return grad


def binary_weights():
    w = drawn(0, 4, 3).requires_grad_()
    x = drawn(1, 5, 3)
    y = BinaryActivation.apply(x @ w.t()).sum(1)
    soft = x @ w.t()
    hard = soft.detach().sign() + soft - soft.detach()
    loss = (y - 2).pow(2).mean() + (hard ** 2).mean()
    loss.backward()
    return {"loss": loss, "grad": w.grad}


class Reverse(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.neg() * ctx.alpha, None


def gradient_reversal():
    features = drawn(2, 3, 4).requires_grad_()
    label, domain = drawn(3, 4, 2).requires_grad_(), drawn(4, 4, 1).requires_grad_()
    task = F.cross_entropy(features @ label, torch.tensor([0, 1, 0]))
    adversary = F.binary_cross_entropy_with_logits(
        (Reverse.apply(features, 0.7) @ domain).squeeze(1), torch.ones(3, dtype=torch.float64))
    (task + adversary).backward()
    return {"task": task, "adversary": adversary, "features": features.grad, "d": domain.grad}


class MatrixSquareRoot(Function):
    @staticmethod
    def forward(ctx, A):
        w, V = torch.linalg.eigh(A)
        root = V @ torch.diag_embed(w.sqrt()) @ V.mT
        ctx.save_for_backward(root)
        return root

    @staticmethod
    def backward(ctx, G):
        root, = ctx.saved_tensors
        n = root.shape[-1]
        eye = torch.eye(n, dtype=root.dtype)
        system = torch.kron(root, eye) + torch.kron(eye, root.mT.contiguous())
        return torch.linalg.solve(system, G.reshape(-1)).reshape(n, n)


def square_root_of_matrix():
    B = drawn(5, 3, 3)
    A = (B @ B.t() + torch.eye(3)).requires_grad_()
    root = MatrixSquareRoot.apply(A)
    g, = torch.autograd.grad(root[0, 1] + root.trace(), A, create_graph=True)
    gg, = torch.autograd.grad(g.pow(2).sum(), A)
    direct = torch.linalg.eigh(A)
    alternative = (direct.eigenvectors * direct.eigenvalues.sqrt()) @ direct.eigenvectors.T
    h, = torch.autograd.grad(alternative[0, 1] + alternative.trace(), A)
    return {"root": root, "g": g, "gg": gg, "h": h + h.T}


class FlatIntegral(Function):
    """The adjoint method: the state is integrated back in time with its sensitivity."""

    @staticmethod
    def forward(ctx, f, y0, t, *params):
        ctx.f = f
        with torch.no_grad():
            y, ys = y0, [y0]
            for a, b in zip(t[:-1], t[1:]):
                y = rk4(f, y, a, b - a)
                ys.append(y)
        ctx.save_for_backward(t, torch.stack(ys), *params)
        return torch.stack(ys)

    @staticmethod
    def backward(ctx, g):
        t, ys, *params = ctx.saved_tensors
        adjoint = torch.zeros_like(ys[0])
        totals = [torch.zeros_like(p) for p in params]
        for i in range(len(t) - 2, -1, -1):
            adjoint = adjoint + g[i + 1]
            with torch.enable_grad():
                y = ys[i].detach().requires_grad_(True)
                step = rk4(ctx.f, y, t[i], t[i + 1] - t[i])
            grads = torch.autograd.grad(step, (y, *params), adjoint, allow_unused=True)
            adjoint = grads[0]
            totals = [a if b is None else a + b for a, b in zip(totals, grads[1:])]
        return (None, adjoint + g[0], None, *totals)


def rk4(f, y, t, h):
    k1 = f(t, y)
    k2 = f(t + h / 2, y + h / 2 * k1)
    k3 = f(t + h / 2, y + h / 2 * k2)
    k4 = f(t + h, y + h * k3)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def adjoint_ode():
    W1, W2 = drawn(6, 5, 2).requires_grad_(), (0.3 * drawn(7, 2, 5)).requires_grad_()
    y0 = torch.tensor([2.0, 0.0], dtype=torch.float64, requires_grad=True)
    t = torch.linspace(0.0, 1.0, 6, dtype=torch.float64)

    def f(t, y):
        return torch.tanh(y ** 3 @ W1.t()) @ W2.t() * torch.cos(t)

    ys = FlatIntegral.apply(f, y0, t, W1, W2)
    (ys[-1] ** 2).sum().backward()
    adjoint = [y0.grad.clone(), W1.grad.clone()]
    y = y0
    for a, b in zip(t[:-1], t[1:]):
        y = rk4(f, y, a, b - a)
    direct = torch.autograd.grad((y ** 2).sum(), (y0, W1))
    return {"ys": ys[-1], "adjoint": adjoint,
            "same": [torch.allclose(a, b) for a, b in zip(adjoint, direct)]}


class FromNumPy(Function):
    @staticmethod
    def forward(ctx, a, b):
        a, b = a.detach(), b.detach()
        result = np.convolve(a.numpy(), b.numpy(), mode="valid")
        ctx.save_for_backward(a, b)
        return torch.as_tensor(result, dtype=a.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        g = grad_output.numpy()
        return (torch.from_numpy(np.convolve(g, b.numpy()[::-1].copy(), mode="full")),
                torch.from_numpy(np.correlate(a.numpy(), g, mode="valid")[::-1].copy()))


def numpy_inside():
    a, b = drawn(8, 7).requires_grad_(), drawn(9, 3).requires_grad_()
    y = FromNumPy.apply(a, b)
    (y * y).sum().backward()
    conv = F.conv1d(a.detach().view(1, 1, -1), b.detach().flip(0).view(1, 1, -1)).flatten()
    return {"y": y, "a": a.grad, "b": b.grad, "same": torch.allclose(conv, y)}


class Cube(Function):
    @staticmethod
    def forward(x):
        return x ** 3, 3 * x ** 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, = inputs
        _, dx = output
        ctx.save_for_backward(x, dx)

    @staticmethod
    def backward(ctx, grad_output, grad_dx):
        x, dx = ctx.saved_tensors
        return grad_output * dx + grad_dx * 6 * x


def cubes():
    x = torch.tensor([1.0, -0.5], dtype=torch.float64, requires_grad=True)

    def my_cube(x):
        return Cube.apply(x)[0]

    y = my_cube(x)
    g, = torch.autograd.grad(y.sum(), x, create_graph=True)
    gg, = torch.autograd.grad(g.sum(), x, create_graph=True)
    return {"y": y, "g": g, "gg": gg, "checked": gradcheck(my_cube, (x,)),
            "twice": gradgradcheck(my_cube, (x,))}


class SplitSum(Function):
    @staticmethod
    def forward(ctx, x, dim):
        ctx.dim, ctx.shape = dim, x.shape
        ctx.set_materialize_grads(False)
        return x.sum(dim), x.argmax(dim)

    @staticmethod
    def backward(ctx, g, _):
        if g is None:
            return None, None
        return g.unsqueeze(ctx.dim).expand(ctx.shape), None


def two_outputs():
    x = drawn(10, 3, 4).requires_grad_()
    total, where = SplitSum.apply(x, 1)
    (total ** 2).sum().backward()
    return {"total": total, "where": where, "grad": x.grad, "fn": where.requires_grad}


def hooks():
    seen = []
    x = drawn(11, 3).requires_grad_()
    y = x.exp()
    y.retain_grad()
    y.register_hook(lambda g: seen.append(g.sum().item()))
    handle = x.register_hook(lambda g: g * 2)
    z = (y * y).sum()
    z.grad_fn.register_hook(lambda gi, go: seen.append(go[0].item()))
    z.backward()
    handle.remove()
    (x ** 2).sum().backward()
    w = drawn(12, 2).requires_grad_()

    def step(p):
        with torch.no_grad():
            p -= 0.1 * p.grad
        p.grad = None

    w.register_post_accumulate_grad_hook(step)
    (w ** 2).sum().backward()
    return {"seen": seen, "x": x.grad, "y": y.grad, "w": w, "none": w.grad is None}


def replaced_gradients():
    x = drawn(13, 4).requires_grad_()
    noise = torch.tensor([0.1, -0.1, 0.2, 0.0], dtype=torch.float64)
    y = torch.relu(x)
    y.register_hook(lambda g: torch.where(g.abs() > 1, torch.sign(g), g) + noise)
    loss = (3 * y).sum() + y[0].detach() * x[1]
    loss.backward()
    clipped = x.grad.data.clamp_(-0.9, 0.9)
    return {"grad": x.grad, "clipped": clipped}


def checkpoints():
    W = [drawn(14 + i, 4, 4).requires_grad_() for i in range(3)]
    x = drawn(17, 2, 4).requires_grad_()
    calls = []

    def block(h, w):
        calls.append(1)
        return torch.tanh(h @ w)

    h = x
    for w in W:
        h = checkpoint(block, h, w, use_reentrant=False)
    h.pow(2).sum().backward()
    plain = x
    for w in W:
        plain = torch.tanh(plain @ w)
    expected = torch.autograd.grad(plain.pow(2).sum(), W)
    return {"grad": x.grad, "calls": len(calls),
            "same": [torch.allclose(w.grad, e) for w, e in zip(W, expected)]}


def threads():
    w = drawn(18, 3).requires_grad_()
    xs = drawn(19, 4, 3)
    out = [None] * 4

    def work(i):
        with torch.no_grad():
            out[i] = (w * 2).requires_grad
        (w * xs[i]).sum().pow(2).backward()

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in workers:
        t.start()
    for t in workers:
        t.join()
    return {"grad": w.grad, "out": out, "enabled": torch.is_grad_enabled()}


def pickles():
    p = torch.nn.Parameter(torch.tensor([[1.5, -2.0]]))
    (p * p).sum().backward()
    state = {"p": p, "t": torch.arange(3), "dtype": torch.float64, "size": p.shape}
    again = pickle.loads(pickle.dumps(state))
    (again["p"] * 3).sum().backward()
    return {"p": again["p"], "grad": again["p"].grad, "type": again["dtype"] is torch.float64,
            "param": isinstance(again["p"], torch.nn.Parameter), "size": list(again["size"])}


def deep_copies():
    w = drawn(20, 2).requires_grad_()
    (w ** 2).sum().backward()
    v = copy.deepcopy(w)
    v.data.add_(1)
    (v ** 2).sum().backward()
    clone = w.clone()
    (clone * 3).sum().backward()
    return {"w": w.grad, "v": v.grad, "leaf": [v.is_leaf, clone.is_leaf]}


def views_and_writes():
    x = drawn(21, 3, 3).requires_grad_()
    y = x.clone()
    y[0] *= 2
    y[:, 1].sub_(1.0)
    y.diagonal().fill_(0.5)
    y.masked_fill_(y > 1, 1.0)
    row = y[2]
    row.copy_(x[0] ** 2)
    z = torch.zeros(2, 3, dtype=torch.float64)
    z[0] = y.sum(0)
    z[1, ::2] = y[1:, 0]
    (z ** 2).sum().backward()
    return {"y": y, "grad": x.grad, "version": y._version > 0}
