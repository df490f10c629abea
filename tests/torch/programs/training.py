"""Training: optimisers, schedules, averages; packed sequences, normed and lazy layers, stacks."""

import warnings

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils import parametrizations, parametrize, spectral_norm, weight_norm
from torch.nn.utils.rnn import (
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
    unpack_sequence,
)
from torch.optim import lr_scheduler as schedules
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn, update_bn

__all__ = [
    "averages", "encoder_and_decoder", "lazy_layers", "normed_weights", "optimisers",
    "packed_recurrence", "parametrisations", "rates",
]


def drawn(seed, *shape):
    return torch.from_numpy(np.random.RandomState(seed).randn(*shape))


def fill(module, seed=0):
    """Deterministic weights for every parameter of a module."""
    for i, p in enumerate(module.parameters()):
        p.data = 0.3 * drawn(seed + i, *p.shape)
    return module.double()


def trained(make, schedule=None, steps=9):
    """The parameters after some steps, and the rates on the way."""
    w, b = drawn(0, 3).requires_grad_(), drawn(1, 1).requires_grad_()
    optimizer = make([w, b])
    scheduler = schedule and schedule(optimizer)
    rates = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = ((w * torch.arange(3.0)).sin().sum() * b + 0.3 * (w**2).sum()) ** 2
        loss.sum().backward()
        optimizer.step()
        if scheduler is not None:
            group = optimizer.param_groups[0]
            rates.append([group["lr"], group.get("momentum", 0), group.get("betas", (0, 0))[0]])
            scheduler.step()
    return {"w": w, "b": b, "rates": rates}


def optimisers():
    optim = torch.optim
    rows = [
        ("NAdam", {}), ("NAdam", {"weight_decay": 0.1, "lr": 0.05}),
        ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
        ("RAdam", {}), ("RAdam", {"weight_decay": 0.1, "lr": 0.05}),
        ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "betas": (0.8, 0.9)}),
        ("Rprop", {}), ("Rprop", {"lr": 0.1, "etas": (0.4, 1.3)}), ("ASGD", {"lr": 0.05}),
        ("ASGD", {"lr": 0.05, "t0": 3, "weight_decay": 0.1}), ("Adamax", {}), ("Adadelta", {}),
    ]
    return {f"{k} {name}": trained(lambda p, n=name, o=options: getattr(optim, n)(p, **o))
            for k, (name, options) in enumerate(rows)}


def rates():
    s = schedules
    rows = {
        "one cycle": lambda o: s.OneCycleLR(o, 0.01, total_steps=10),
        "three phases": lambda o: s.OneCycleLR(o, 0.01, epochs=5, steps_per_epoch=2,
                                               three_phase=True, anneal_strategy="linear"),
        "cycles": lambda o: s.CyclicLR(o, 0.001, 0.01, step_size_up=3, step_size_down=2),
        "lower cycles": lambda o: s.CyclicLR(o, 0.001, 0.01, step_size_up=2, mode="triangular2"),
        "powers": lambda o: s.CyclicLR(o, 0.001, 0.01, 2, mode="exp_range", gamma=0.9),
        "restarts": lambda o: s.CosineAnnealingWarmRestarts(o, 2, 2, 1e-4),
        "constant": lambda o: s.ConstantLR(o, 0.5, 3),
        "polynomial": lambda o: s.PolynomialLR(o, 5, 2.0),
        "products": lambda o: s.MultiplicativeLR(o, lambda epoch: 0.9),
        "sequence": lambda o: s.SequentialLR(
            o, [s.LinearLR(o, 0.1, total_iters=4), s.CosineAnnealingLR(o, 8)], [4]),
        "chain": lambda o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 2), s.ExponentialLR(o, 0.9)]),
    }
    makers = {"sgd": lambda p: torch.optim.SGD(p, lr=0.002, momentum=0.5),
              "adam": lambda p: torch.optim.Adam(p, lr=0.02)}
    return {f"{name}, {who}": trained(make, row, 8)
            for name, row in rows.items() for who, make in makers.items()}


def averages():
    model = fill(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)))
    copies = {
        "mean": AveragedModel(model),
        "forgetting": AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.8)),
        "with buffers": AveragedModel(model, avg_fn=get_ema_avg_fn(0.7), use_buffers=True),
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = drawn(5, 8, 3), drawn(6, 8, 1)
    for _ in range(4):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        for average in copies.values():
            average.update_parameters(model)
    update_bn([x[:4], x[4:]], copies["mean"])
    for average in copies.values():
        average.eval()
    return {name: [average(x), average.n_averaged, average.module[1].running_var]
            for name, average in copies.items()}


def packed_recurrence():
    out = {}
    for name, options in (("RNN", {"nonlinearity": "relu"}), ("LSTM", {"bidirectional": True}),
                          ("GRU", {"num_layers": 2, "batch_first": True})):
        net = fill(getattr(nn, name)(3, 4, **options))
        first = options.get("batch_first", False)
        x = pad_sequence([drawn(7 + k, n, 3) for k, n in enumerate((2, 5, 3))], first)
        x.requires_grad_()
        packed = pack_padded_sequence(x, [2, 5, 3], first, enforce_sorted=False)
        y, last = net(packed)
        padded, lengths = pad_packed_sequence(y, first, total_length=6)
        ends = last if isinstance(last, tuple) else (last,)
        loss = (padded * drawn(9, *padded.shape)).sum() + sum([(h**2).sum() for h in ends])
        start = drawn(3, len(last[0]) if isinstance(last, tuple) else len(last), 3, 4)
        again, end = net(packed, (start, start) if name == "LSTM" else start)
        out[name] = {
            "loss": loss, "lengths": lengths, "sizes": packed.batch_sizes,
            "gradients": torch.autograd.grad(loss, [x, *net.parameters()]),
            "from": again.data, "to": end[1] if name == "LSTM" else end,
        }
    rows = unpack_sequence(pack_sequence([drawn(1, 4, 2), drawn(2, 2, 2)]))
    return {**out, "rows": rows}


def gradients(module, x):
    loss = module(x).pow(2).sum()
    loss.backward()
    return {"loss": loss, **{name: p.grad for name, p in module.named_parameters()}}


def deprecated_norm(module, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return weight_norm(module, **options)


def normed_weights():
    x, image = drawn(4, 5, 3), drawn(4, 1, 2, 4, 4)
    old = deprecated_norm(fill(nn.Linear(3, 2)))
    out = {"old": gradients(old, x)}
    nn.utils.remove_weight_norm(old)
    out["removed"] = old.weight
    new = parametrizations.weight_norm(fill(nn.Conv2d(2, 3, 2)))
    out["new"] = gradients(new, image)
    torch.optim.SGD(new.parameters(), 0.1).step()
    out["stepped"] = new.weight
    parametrize.remove_parametrizations(new, "weight")
    out["left"] = [len(list(new.parameters())), new.weight]
    for name, norm in (("spectral", spectral_norm), ("as a part", parametrizations.spectral_norm)):
        net = norm(fill(nn.Linear(3, 2)), n_power_iterations=200)
        net(x)
        out[name] = gradients(net, x)
    out["whole"] = deprecated_norm(fill(nn.Linear(3, 2)), dim=None)(x)
    return out


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).transpose(-1, -2)

    def right_inverse(self, a):
        return a.triu()


def parametrisations():
    layer = fill(nn.Linear(3, 3))
    parametrize.register_parametrization(layer, "weight", Symmetric())
    with parametrize.cached():
        once = layer.weight is layer.weight
    out = {**gradients(layer, drawn(4, 5, 3)), "once": torch.tensor(once)}
    layer.weight = drawn(8, 3, 3)
    return {**out, "weight": layer.weight}


def lazy_layers():
    torch.manual_seed(0)
    net = nn.Sequential(nn.LazyConv1d(4, 3), nn.LazyBatchNorm1d(), nn.ReLU(), nn.Flatten(),
                        nn.LazyLinear(2)).double()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with torch.no_grad():
        net(drawn(1, 2, 3, 5))
    fill(net)
    loss = net(drawn(2, 2, 3, 5)).pow(2).sum()
    loss.backward()
    optimizer.step()
    return {"loss": loss, "parameters": list(net.parameters()), "mean": net[1].running_mean.shape}


def encoder_and_decoder():
    net = fill(nn.Transformer(8, 2, 1, 2, 16, dropout=0.0, batch_first=True))
    source, target = drawn(5, 2, 3, 8).requires_grad_(), drawn(6, 2, 4, 8)
    mask = nn.Transformer.generate_square_subsequent_mask(4).double()
    y = net(source, target, tgt_mask=mask)
    out = {"whole": [y, torch.autograd.grad((y**2).sum(), source)]}
    layer = nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=True)
    y = fill(nn.TransformerDecoder(layer, 2))(target, source)
    out["decoder"] = [y, torch.autograd.grad((y**2).sum(), source)]
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, activation="gelu")
    encoder = fill(nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8),
                                         enable_nested_tensor=False))
    padding = torch.tensor([[False, False, True], [False, False, False]])
    x = drawn(5, 3, 2, 8).requires_grad_()
    y = encoder(x, src_key_padding_mask=padding)
    return {**out, "encoder": [y, torch.autograd.grad((y**2).sum(), x)]}
