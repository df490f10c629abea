"""Regression and optimisation: weights updated by hand, by optimisers, and by hooks."""

import copy
import io
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

__all__ = [
    "accumulated_gradients", "adam_by_hand", "averaged_weights", "clipping", "dynamic_network",
    "frozen_layers", "lasso_by_proximal_steps", "least_squares_by_lbfgs", "linear_regression",
    "logistic_regression", "many_optimisers", "momentum_and_schedule", "parameter_vectors",
    "polynomial_by_hand", "polynomial_by_modules", "quantile_regression", "rosenbrock",
    "saved_and_loaded", "softmax_regression", "two_layers_by_hand",
]


def drawn(seed, *shape):
    return torch.from_numpy(np.random.RandomState(seed).randn(*shape))


def polynomial_by_hand():
    x = torch.linspace(-math.pi, math.pi, 200, dtype=torch.float64)
    y = torch.sin(x)
    a, b, c, d = [torch.tensor(v, dtype=torch.float64, requires_grad=True)
                  for v in (0.1, -0.2, 0.3, 0.4)]
    for step in range(30):
        y_pred = a + b * x + c * x ** 2 + d * x ** 3
        loss = (y_pred - y).pow(2).sum()
        loss.backward()
        with torch.no_grad():
            for p in (a, b, c, d):
                p -= 1e-5 * p.grad
                p.grad = None
    return {"loss": loss.item(), "weights": torch.stack([a, b, c, d])}


def polynomial_by_modules():
    x = torch.linspace(-math.pi, math.pi, 200)
    y = torch.sin(x)
    p = torch.tensor([1, 2, 3])
    xx = x.unsqueeze(-1).pow(p)
    model = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0, 1))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[0.1, -0.1, 0.05]]))
        model[0].bias.fill_(0.2)
    loss_fn = nn.MSELoss(reduction="sum")
    optimizer = optim.RMSprop(model.parameters(), lr=1e-3)
    for t in range(20):
        y_pred = model(xx)
        loss = loss_fn(y_pred, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    linear_layer = model[0]
    return {"loss": loss.item(), "bias": linear_layer.bias.item(),
            "weight": linear_layer.weight[:, 0].item()}


def two_layers_by_hand():
    x, y = drawn(0, 16, 5), drawn(1, 16, 2)
    w1 = drawn(2, 5, 8).requires_grad_()
    w2 = drawn(3, 8, 2).requires_grad_(True)
    for t in range(10):
        y_pred = x.mm(w1).clamp(min=0).mm(w2)
        loss = (y_pred - y).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            w1 -= 1e-1 * w1.grad
            w2 -= 1e-1 * w2.grad
            w1.grad.zero_()
            w2.grad.zero_()
    return {"loss": loss, "w1": w1[0], "w2": w2[:, 1]}


def linear_regression():
    torch.manual_seed(0)
    X = drawn(4, 50, 3)
    true_w = torch.tensor([[2.0, -3.4, 1.0]], dtype=torch.double).T
    y = torch.matmul(X, true_w) + 4.2
    w = torch.zeros((3, 1), dtype=torch.float64, requires_grad=True)
    b = torch.zeros(1, dtype=torch.float64, requires_grad=True)

    def squared_loss(y_hat, y):
        return (y_hat - y.reshape(y_hat.shape)) ** 2 / 2

    def sgd(params, lr, batch_size):
        with torch.no_grad():
            for param in params:
                param -= lr * param.grad / batch_size
                param.grad.zero_()

    for epoch in range(3):
        for i in range(0, 50, 10):
            index = torch.tensor(list(range(i, min(i + 10, 50))))
            loss = squared_loss(torch.matmul(X[index], w) + b, y[index])
            loss.sum().backward()
            sgd([w, b], 0.3, 10)
    with torch.no_grad():
        train = squared_loss(X @ w + b, y)
    return {"train": float(train.mean()), "w": w.detach().view(-1), "b": b}


def logistic_regression():
    X = drawn(5, 40, 2)
    y = (X[:, 0] - 0.5 * X[:, 1] > 0.1).double().unsqueeze(1)
    model = nn.Linear(2, 1).double()
    nn.init.constant_(model.weight, 0.1)
    nn.init.zeros_(model.bias)
    criterion = nn.BCEWithLogitsLoss()
    optimizer = optim.SGD(model.parameters(), lr=0.5, momentum=0.9, weight_decay=1e-3,
                          nesterov=True)
    losses = []
    for epoch in range(15):
        optimizer.zero_grad()
        loss = criterion(model(X), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    predicted = (torch.sigmoid(model(X)) > 0.5).eq(y.bool())
    return {"losses": losses[::5], "accuracy": predicted.float().mean(), "weight": model.weight}


def softmax_regression():
    X, y = drawn(6, 30, 4), torch.arange(30) % 3
    W = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)
    b = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([{"params": [W], "lr": 0.1}, {"params": b}], lr=0.05)
    for _ in range(12):
        logits = X @ W + b
        loss = F.cross_entropy(logits, y, label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    prediction = logits.argmax(dim=1)
    return {"loss": loss, "W": W[0], "b": b, "hits": (prediction == y).sum().item()}


def adam_by_hand():
    theta = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64, requires_grad=True)
    m, v = torch.zeros_like(theta), torch.zeros_like(theta)
    beta1, beta2, eps = 0.9, 0.999, 1e-8
    for t in range(1, 21):
        loss = torch.sum(theta ** 4 - 2 * theta ** 2 + theta.prod())
        grad, = torch.autograd.grad(loss, theta)
        with torch.no_grad():
            m.mul_(beta1).add_(grad, alpha=1 - beta1)
            v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
            m_hat, v_hat = m / (1 - beta1 ** t), v / (1 - beta2 ** t)
            theta.addcdiv_(m_hat, v_hat.sqrt().add_(eps), value=-0.1)
    return {"theta": theta, "loss": loss}


def many_optimisers():
    def run(make):
        p = drawn(7, 4).requires_grad_()
        q = drawn(8, 2, 2).requires_grad_()
        optimizer = make([p, q])
        for _ in range(7):
            optimizer.zero_grad()
            loss = (p.exp().sum() - 2 * p.sum()) + (q @ q.T).diagonal().sum() + (p[:2] * q).sum()
            loss.backward()
            optimizer.step()
        return torch.cat([p.detach(), q.detach().flatten()])

    return {
        "sgd": run(lambda ps: optim.SGD(ps, lr=0.05)),
        "momentum": run(lambda ps: optim.SGD(ps, 0.05, momentum=0.8, dampening=0.1)),
        "maximize": run(lambda ps: optim.SGD(ps, lr=0.01, maximize=True)),
        "adam": run(lambda ps: optim.Adam(ps, lr=0.1, betas=(0.8, 0.99))),
        "amsgrad": run(lambda ps: optim.Adam(ps, lr=0.1, amsgrad=True, weight_decay=0.1)),
        "adamw": run(lambda ps: optim.AdamW(ps, lr=0.1, weight_decay=0.2)),
        "rmsprop": run(lambda ps: optim.RMSprop(ps, lr=0.01, centered=True, momentum=0.5)),
        "adagrad": run(lambda ps: optim.Adagrad(ps, lr=0.1)),
        "lbfgs": run_lbfgs(),
    }


def run_lbfgs():
    p = drawn(7, 4).requires_grad_()
    optimizer = optim.LBFGS([p], lr=0.5, max_iter=4, history_size=3)

    def closure():
        optimizer.zero_grad()
        loss = (p.exp() - 2 * p).sum() + p.prod() ** 2
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    return p.detach()


def least_squares_by_lbfgs():
    x = torch.linspace(0, 3, 25, dtype=torch.float64)
    y = 2.5 * torch.exp(-1.3 * x) + 0.5
    params = torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([params], lr=1, max_iter=30, line_search_fn="strong_wolfe",
                                  tolerance_grad=1e-9)

    def closure():
        if torch.is_grad_enabled():
            optimizer.zero_grad()
        a, b, c = params
        loss = ((a * torch.exp(b * x) + c - y) ** 2).mean()
        if loss.requires_grad:
            loss.backward()
        return loss

    first = optimizer.step(closure)
    return {"first": first, "params": params, "last": (closure() < 1e-12).item()}


def rosenbrock():
    xy = torch.tensor([-1.2, 1.0], dtype=torch.float64, requires_grad=True)

    def f(v):
        return (1 - v[0]) ** 2 + 100 * (v[1] - v[0] ** 2) ** 2

    path = []
    for _ in range(8):
        value = f(xy)
        g = torch.autograd.grad(value, xy, create_graph=True)[0]
        H = torch.stack([torch.autograd.grad(gi, xy, retain_graph=True)[0] for gi in g])
        step = torch.linalg.solve(H, g)
        xy = (xy - step).detach().requires_grad_(True)
        path.append(value.item())
    return {"xy": xy, "path": path[:4]}


def clipping():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    for i, p in enumerate(model.parameters()):
        p.data = drawn(10 + i, *p.shape)
    loss = (model(10 * drawn(9, 6, 3)) ** 2).sum()
    loss.backward()
    total = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    after = torch.norm(torch.stack([p.grad.norm() for p in model.parameters()]))
    nn.utils.clip_grad_value_(model.parameters(), 0.1)
    largest = max(p.grad.abs().max().item() for p in model.parameters())
    w = drawn(20, 5).requires_grad_()
    handle = w.register_hook(lambda g: g.clamp(-0.5, 0.5))
    (w ** 3).sum().backward()
    handle.remove()
    norm1 = nn.utils.clip_grad_norm_([w], 0.3, norm_type=1)
    return {"total": total, "after": after, "largest": largest, "hooked": w.grad, "norm1": norm1}


def averaged_weights():
    model = nn.Linear(2, 1, bias=False).double()
    model.weight.data = torch.tensor([[0.5, -0.5]], dtype=torch.float64)
    ema = copy.deepcopy(model)
    for p in ema.parameters():
        p.requires_grad_(False)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    x, y = drawn(11, 8, 2), drawn(12, 8, 1)
    for _ in range(10):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for e, p in zip(ema.parameters(), model.parameters()):
                e.mul_(0.9).add_(p, alpha=0.1)
                e.lerp_(p.data, 0.01)
    return {"model": model.weight, "ema": ema.weight, "tracked": ema(x).requires_grad}


def accumulated_gradients():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).double()
    for i, p in enumerate(model.parameters()):
        nn.init.constant_(p, 0.1 * (i + 1))
    x, y = drawn(13, 12, 4), torch.arange(12) % 2
    criterion = nn.CrossEntropyLoss(reduction="sum")
    model.zero_grad()
    for xb, yb in zip(x.split(5), y.split(5)):
        (criterion(model(xb), yb) / len(x)).backward()
    small = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    nn.CrossEntropyLoss()(model(x), y).backward()
    agree = all(torch.allclose(g, p.grad) for g, p in zip(small, model.parameters()))
    return {"agree": agree, "grad": small[0], "last": small[-1]}


def frozen_layers():
    body, head = nn.Linear(3, 3).double(), nn.Linear(3, 1).double()
    for i, p in enumerate([*body.parameters(), *head.parameters()]):
        with torch.no_grad():
            p.copy_(drawn(30 + i, *p.shape))
    for p in body.parameters():
        p.requires_grad = False
    before = [p.clone() for p in body.parameters()]
    optimizer = optim.Adam(filter(lambda p: p.requires_grad, [*body.parameters(),
                                                             *head.parameters()]), lr=1e-2)
    for _ in range(5):
        loss = head(torch.relu(body(drawn(33, 7, 3)))).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    same = all(torch.equal(a, b) for a, b in zip(before, body.parameters()))
    return {"same": same, "grads": [p.grad is None for p in body.parameters()],
            "head": head.weight, "loss": loss}


def momentum_and_schedule():
    w = torch.tensor([2.0, -3.0], dtype=torch.float64, requires_grad=True)
    optimizer = optim.SGD([w], lr=0.1, momentum=0.5)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
    rates = []
    for _ in range(8):
        optimizer.zero_grad()
        (w ** 2).sum().backward()
        optimizer.step()
        scheduler.step()
        rates.append(optimizer.param_groups[0]["lr"])
    cosine = optim.lr_scheduler.LambdaLR(optimizer, lambda e: 0.5 * (1 + math.cos(e / 4)))
    for _ in range(3):
        optimizer.step()
        cosine.step()
        rates.append(cosine.get_last_lr()[0])
    return {"rates": rates, "w": w}


class DynamicNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.tensor(0.5))
        self.d = nn.Parameter(torch.tensor(-0.3))
        self.e = torch.nn.Parameter(torch.tensor(0.01))

    def forward(self, x, order):
        y = self.a * x + self.d * x ** 3
        for exp in range(4, order):
            y = y + self.e * x ** exp
        return y


def dynamic_network():
    x = torch.linspace(-1.5, 1.5, 40)
    y = torch.sin(x)
    model = DynamicNet()
    criterion = torch.nn.MSELoss(reduction="sum")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    for t in range(12):
        loss = criterion(model(x, 4 + t % 3), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {"loss": loss, "weights": [p for p in model.parameters()]}


def parameter_vectors():
    model = nn.Sequential(nn.Linear(2, 3), nn.Sigmoid(), nn.Linear(3, 1)).double()
    n = sum(p.numel() for p in model.parameters())
    start = drawn(14, n)
    nn.utils.vector_to_parameters(start, model.parameters())
    x = drawn(15, 5, 2)
    loss = model(x).sum()
    grads = torch.autograd.grad(loss, model.parameters())
    flat = nn.utils.parameters_to_vector(grads)
    nn.utils.vector_to_parameters(start - 0.1 * flat, model.parameters())
    names = [name for name, _ in model.named_parameters()]
    return {"n": n, "flat": flat, "after": model(x).sum(), "names": len(names),
            "named": names == ["0.weight", "0.bias", "2.weight", "2.bias"]}


def quantile_regression():
    x = drawn(16, 60, 1)
    y = 2 * x + drawn(17, 60, 1) * 0.3
    q = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    w = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    b = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    for _ in range(40):
        error = y - (x @ w + b)
        loss = torch.max(q * error, (q - 1) * error).mean(0).sum()
        loss.backward()
        with torch.no_grad():
            for p in (w, b):
                p.sub_(p.grad, alpha=0.3)
                p.grad.zero_()
    return {"loss": loss, "w": w, "b": b, "exact": torch.quantile(y, q)}


def lasso_by_proximal_steps():
    A, y = drawn(18, 20, 6), drawn(19, 20)
    w = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    lipschitz = torch.linalg.norm(A, 2) ** 2
    for _ in range(50):
        loss = 0.5 * torch.sum((A.mv(w) - y) ** 2)
        g, = torch.autograd.grad(loss, [w])
        with torch.no_grad():
            w.copy_(F.softshrink(w - g / lipschitz, lambd=float(2.0 / lipschitz)))
    return {"w": w, "zeros": int((w == 0).sum()), "loss": loss}


def saved_and_loaded():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    for i, p in enumerate(model.parameters()):
        nn.init.constant_(p, 0.25 * (i + 1))
    optimizer = optim.Adam(model.parameters(), lr=0.125)
    x = torch.tensor([[1.0, -1.0], [0.5, 2.0]])

    def step(model, optimizer):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    step(model, optimizer)
    buffer = io.BytesIO()
    torch.save({"epoch": 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()},
               buffer)
    buffer.seek(0)
    checkpoint = torch.load(buffer)
    again = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    again.load_state_dict(checkpoint["model"])
    optimizer2 = optim.Adam(again.parameters(), lr=1.0)
    optimizer2.load_state_dict(checkpoint["optimizer"])
    first = [step(model, optimizer) for _ in range(3)]
    second = [step(again, optimizer2) for _ in range(3)]
    return {"first": first, "same": first == second, "epoch": checkpoint["epoch"]}
