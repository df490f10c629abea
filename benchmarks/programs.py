"""``functrans.torch`` against torch on whole programs, forward and backward: a row each.

Both run in one process, taking turns; ``--threads 1`` gives one thread to each.
"""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

import numpy as np

from benchmarks.peers import Peer, Thunk
from benchmarks.report import Table, machine, seconds, verdict
from benchmarks.timing import check_equal, interleaved, medians

MODULES = {"functrans": "functrans.torch", "torch": "torch"}
MEAN, WORST = 1.0, 1.5
# Single precision: sums of some thousand entries, in the order of each library.
RTOL, ATOL = 1e-3, 1e-3

Build = Callable[[Any], Thunk]


def _normal(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def _weights(torch: Any, *shapes: tuple) -> list:
    return [torch.tensor(_normal(*s, seed=k, scale=0.1), requires_grad=True)
            for k, s in enumerate(shapes)]


def _gradient(f: Callable[[Any, Any], Any], x: np.ndarray) -> Build:
    """The gradient of ``f(torch, x)``, weighed by ones."""

    def build(torch: Any) -> Thunk:
        point = torch.tensor(x, requires_grad=True)
        seed = torch.ones_like(f(torch, point).detach())
        return lambda: torch.autograd.grad(f(torch, point), point, seed)[0]

    return build


def mlp(inputs: int, width: int, outputs: int, batch: int) -> Build:
    """A step of training: forward, backward, update."""

    def build(torch: Any) -> Thunk:
        x, y = torch.tensor(_normal(batch, inputs)), torch.tensor(_normal(batch, outputs, seed=1))
        weights = _weights(torch, (inputs, width), (width,), (width, outputs), (outputs,))
        w1, b1, w2, b2 = weights
        optimizer = torch.optim.SGD(weights, lr=1e-6)

        def step() -> Any:
            optimizer.zero_grad()
            loss = ((torch.relu(x @ w1 + b1) @ w2 + b2 - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    return build


def lstm(batch: int, width: int) -> Build:
    def build(torch: Any) -> Thunk:
        (w,) = _weights(torch, (2 * width, 4 * width))
        x, h, c = [torch.tensor(_normal(batch, width, seed=k)) for k in range(3)]

        def gradient() -> Any:
            i, f, g, o = (torch.cat([x, h], 1) @ w).chunk(4, 1)
            state = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            y = torch.sigmoid(o) * torch.tanh(state)
            return torch.autograd.grad(y.sum(), w)[0]

        return gradient

    return build


def attention(batch: int, length: int, width: int = 32) -> Build:
    def build(torch: Any) -> Thunk:
        x = torch.tensor(_normal(batch, length, width))
        weights = _weights(torch, *[(width, width)] * 3)

        def gradient() -> Any:
            q, k, v = [x @ w for w in weights]
            shares = torch.softmax(q @ k.transpose(1, 2) / width**0.5, -1)
            return torch.autograd.grad((shares @ v).sum(), weights)[0]

        return gradient

    return build


def chain(n: int, ops: int = 100) -> Build:
    def f(torch: Any, x: Any) -> Any:
        y = x
        for _ in range(ops // 2):
            y = y * x
            y = y + 0.5
        return y.sum()

    return _gradient(f, _normal(n, scale=0.3))


def custom(n: int) -> Build:
    """Ten calls of a Function of the user's."""

    def build(torch: Any) -> Thunk:
        class Exp(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                y = torch.exp(x)
                ctx.save_for_backward(y)
                return y

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                (y,) = ctx.saved_tensors
                return g * y

        x = torch.tensor(_normal(n), requires_grad=True)

        def gradient() -> Any:
            y = x
            for _ in range(10):
                y = Exp.apply(-y)
            return torch.autograd.grad(y.sum(), x)[0]

        return gradient

    return build


def hvp(n: int) -> Build:
    def build(torch: Any) -> Thunk:
        x, v = torch.tensor(_normal(n), requires_grad=True), torch.tensor(_normal(n, seed=1))

        def product() -> Any:
            y = (torch.tanh(x) * x.sin()).sum() + ((x * x)[1:] * x[:-1].exp()).sum()
            (g,) = torch.autograd.grad(y, x, create_graph=True)
            return torch.autograd.grad((g * v).sum(), x)[0]

        return product

    return build


def runge_kutta(steps: int) -> Build:
    """The Lotka-Volterra system, in a loop of Python's."""

    def build(torch: Any) -> Thunk:
        w = torch.tensor([[0.0, -0.4], [0.3, 0.0]], requires_grad=True)
        r, start = torch.tensor([0.6, -0.5]), torch.tensor([1.0, 0.8])

        def slope(u: Any) -> Any:
            return u * (r + w @ u)

        def gradient() -> Any:
            u, h = start, 0.05
            for _ in range(steps):
                k1 = slope(u)
                k2 = slope(u + 0.5 * h * k1)
                k3 = slope(u + 0.5 * h * k2)
                k4 = slope(u + h * k3)
                u = u + (h / 6) * (k1 + 2 * k2 + 2 * k3 + k4)
            return torch.autograd.grad(u.sum(), w)[0]

        return gradient

    return build


def embedding(words: int, width: int, batch: int) -> Build:
    def build(torch: Any) -> Thunk:
        (table,) = _weights(torch, (words, width))
        where = torch.tensor(np.random.default_rng(0).integers(0, words, (batch, 8)))

        def gradient() -> Any:
            y = torch.nn.functional.embedding(where, table)
            return torch.autograd.grad((y * y).sum(), table)[0]

        return gradient

    return build


def scatter(n: int, places: int) -> Build:
    def build(torch: Any) -> Thunk:
        x = torch.tensor(_normal(n), requires_grad=True)
        where = torch.tensor(np.random.default_rng(0).integers(0, places, n))
        zeros = torch.zeros(places)

        def gradient() -> Any:
            y = zeros.scatter_add(0, where, x)
            return torch.autograd.grad((y * y).sum(), x)[0]

        return gradient

    return build


def per_sample(batch: int, inputs: int, width: int, classes: int) -> Build:
    """The gradient of each example's loss."""

    def build(torch: Any) -> Thunk:
        w1, w2 = [w.detach() for w in _weights(torch, (inputs, width), (width, classes))]
        x = torch.tensor(_normal(batch, inputs))
        which = torch.tensor(np.random.default_rng(0).integers(0, classes, batch))

        def loss(w1: Any, w2: Any, x: Any, which: Any) -> Any:
            scores = torch.tanh(x @ w1) @ w2
            return torch.nn.functional.cross_entropy(scores[None], which[None])

        each = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)), (None, None, 0, 0))
        return lambda: each(w1, w2, x, which)[0]

    return build


# name -> a function of 1000 x 100 numbers
ENTRIES: dict[str, Callable[[Any, Any], Any]] = {
    "x**2": lambda torch, x: x**2, "x**3": lambda torch, x: x**3, "x**5": lambda torch, x: x**5,
    "x**-1.5": lambda torch, x: (x * x + 1)**-1.5,
    "sigmoid": lambda torch, x: torch.sigmoid(x), "tanh": lambda torch, x: torch.tanh(x),
    "relu": lambda torch, x: torch.relu(x),
    "maximum": lambda torch, x: torch.maximum(x, torch.zeros_like(x)),
    "where": lambda torch, x: torch.where(x > 0, x, 0),
    "clamp": lambda torch, x: x.clamp(-1, 1),
    "softplus": lambda torch, x: torch.nn.functional.softplus(x),
    "softmax": lambda torch, x: x.softmax(1), "log_softmax": lambda torch, x: x.log_softmax(1),
    "logsumexp": lambda torch, x: x.logsumexp(1),
    "cat": lambda torch, x: torch.cat([x, x]), "sin": lambda torch, x: torch.sin(x),
    "exp": lambda torch, x: torch.exp(x),
}


def _mixed(torch: Any, x: Any) -> Any:
    return torch.exp(-x * x) * torch.tanh(3 * x) + torch.log1p(x * x)


PROGRAMS: dict[str, Build] = {
    "MLP step 10-32-1, batch 32": mlp(10, 32, 1, 32),
    "MLP step 100-64-10, batch 64": mlp(100, 64, 10, 64),
    "MLP step 784-256-10, batch 64": mlp(784, 256, 10, 64),
    "LSTM step, batch 8, width 32": lstm(8, 32),
    "LSTM step, batch 64, width 256": lstm(64, 256),
    "attention, batch 2, length 16": attention(2, 16),
    "attention, batch 8, length 128": attention(8, 128),
    "chain of 100, n = 10": chain(10),
    "chain of 100, n = 1e3": chain(1000),
    "chain of 100, n = 1e5": chain(100_000),
    "custom Function, ten calls, n = 100": custom(100),
    "Hessian-vector product, n = 100": hvp(100),
    "Runge-Kutta, 20 steps": runge_kutta(20),
    "elementwise, n = 1e6": _gradient(_mixed, _normal(1_000_000)),
    "embedding, 10000 x 64, batch 64 x 8": embedding(10_000, 64, 64),
    "scatter, 1e4 to 1e3": scatter(10_000, 1000),
    "per-sample gradients, 20-64-10, batch 64": per_sample(64, 20, 64, 10),
}
ROWS: dict[str, Build] = {
    f"{name}, 1000 x 100": _gradient(f, _normal(1000, 100)) for name, f in ENTRIES.items()
}


def table(programs: dict[str, Build], title: str, peers: list[Peer], scale: float) -> Table:
    there = {p.name for p in peers}
    modules = {name: importlib.import_module(m) for name, m in MODULES.items() if name in there}
    rows, ratios = [], []
    # by the clock where there are several threads: those of torch look for work for a while after
    # an operation, and that would count in the processor's time of whoever comes next
    alone = machine()["cores"] == 1
    clock = process_time if alone else perf_counter
    for name, build in programs.items():
        contenders = {who: build(module) for who, module in modules.items()}
        check_equal({who: f() for who, f in contenders.items()}, RTOL, ATOL)
        times = interleaved(contenders, scale=0.3 * scale, clock=clock)
        ours = medians(times)["functrans"]
        theirs = medians(times).get("torch")
        ratio = None if theirs is None else statistics.median(
            [a / b for a, b in zip(times["functrans"], times["torch"], strict=True)])
        ratios += [ratio] if ratio is not None else []
        rows.append((name, seconds(ours), theirs and seconds(theirs), ratio,
                     verdict(ratio, WORST)))
    if ratios:
        mean = statistics.geometric_mean(ratios)
        rows.append(("geometric mean", None, None, mean, verdict(mean, MEAN)))
    columns = ("program", "functrans", "torch", "functrans / torch", "target")
    note = f"Single precision; by {'the processor' if alone else 'the clock'}, medians of turns."
    return Table(title, columns, rows, (note,))


TABLES: dict[str, Callable[[list[Peer], float], Table]] = {
    "shim-programs": lambda peers, scale: table(
        PROGRAMS, "functrans.torch: programs, forward and backward", peers, scale),
    "shim-entries": lambda peers, scale: table(
        ROWS, "functrans.torch: single operations, forward and backward", peers, scale),
}
