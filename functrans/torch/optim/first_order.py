"""Optimisers that change each parameter by itself, from its gradient."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from functrans.torch.optim.optimizer import Optimizer, as_real, buffer, checked, counted, options


class SGD(Optimizer):
    """x -= lr v, for a running sum v = momentum v + g of gradients."""

    _shown = "foreach differentiable fused"

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, momentum: float = 0,
                 dampening: float = 0, weight_decay: float = 0, nesterov: bool = False, *,
                 maximize: bool = False, **extra: Any):
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, options(
            extra, lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay,
            nesterov=nesterov, maximize=maximize))

    def _update(self, x, g, state, group):
        g = _decay(x, g, group)
        if momentum := group["momentum"]:
            first = state.get("momentum_buffer") is None
            v = buffer(state, "momentum_buffer", x)
            v *= momentum
            v += g if first else (1 - group["dampening"]) * g
            g = g + momentum * v if group["nesterov"] else v
        x -= group["lr"] * g


class Adam(Optimizer):
    """x -= lr m / (sqrt(v) + eps), for running means m of gradients and v of their squares."""

    _shown = "foreach capturable differentiable fused"

    def __init__(self, params: Iterable[Any], lr: float = 1e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, amsgrad: bool = False, *, maximize: bool = False,
                 decoupled_weight_decay: bool = False, **extra: Any):
        super().__init__(params, options(
            extra, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
            maximize=maximize, decoupled_weight_decay=decoupled_weight_decay))

    def _update(self, x, g, state, group):
        g, lr = _decay(x, g, group), group["lr"]
        (b1, b2), step = group["betas"], counted(state)
        m = buffer(state, "exp_avg", x)
        m += (1 - b1) * (g - m)
        v = _mean(state, "exp_avg_sq", g * g, b2)
        if group["amsgrad"]:
            top = buffer(state, "max_exp_avg_sq", x)
            np.maximum(top, v, out=top)
            v = top
        size = np.sqrt(v) / math.sqrt(1 - b2**step) + group["eps"]
        x -= lr / (1 - b1**step) * (m / size)


class AdamW(Adam):
    """Adam, whose weight decay does not enter the running means."""

    def __init__(self, params: Iterable[Any], lr: float = 1e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False,
                 **extra: Any):
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize,
                         decoupled_weight_decay=True, **extra)


class Adamax(Optimizer):
    """Adam with a running maximum of the gradients' size."""

    _shown = "foreach differentiable capturable"

    def __init__(self, params: Iterable[Any], lr: float = 2e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, *, maximize: bool = False, **extra: Any):
        super().__init__(params, options(
            extra, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize))

    def _update(self, x, g, state, group):
        g = _decay(x, g, group)
        (b1, b2), step = group["betas"], counted(state)
        m, top = buffer(state, "exp_avg", x), buffer(state, "exp_inf", x)
        m += (1 - b1) * (g - m)
        np.maximum(top * b2, np.abs(g) + group["eps"], out=top)
        x -= group["lr"] / (1 - b1**step) * (m / top)


class RMSprop(Optimizer):
    """x -= lr g / (sqrt(v) + eps), for a running mean v of squares of gradients."""

    _shown = "capturable foreach differentiable"

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, alpha: float = 0.99,
                 eps: float = 1e-8, weight_decay: float = 0, momentum: float = 0,
                 centered: bool = False, *, maximize: bool = False, **extra: Any):
        super().__init__(params, options(
            extra, lr=lr, alpha=checked("alpha value", alpha), eps=eps, momentum=momentum,
            weight_decay=weight_decay, centered=centered, maximize=maximize))

    def _update(self, x, g, state, group):
        counted(state)
        g = _decay(x, g, group)
        alpha = group["alpha"]
        v = _mean(state, "square_avg", g * g, alpha)
        if group["centered"]:
            mean = buffer(state, "grad_avg", x)
            mean += (1 - alpha) * (g - mean)
            v = v - mean * mean
        g = g / (np.sqrt(v) + group["eps"])
        if group["momentum"] > 0:
            moving = buffer(state, "momentum_buffer", x)
            moving *= group["momentum"]
            moving += g
            g = moving
        x -= group["lr"] * g


class Adagrad(Optimizer):
    """x -= lr g / (sqrt(v) + eps), for the sum v of squares of gradients."""

    _shown = "foreach differentiable fused"

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, lr_decay: float = 0,
                 weight_decay: float = 0, initial_accumulator_value: float = 0,
                 eps: float = 1e-10, *, maximize: bool = False, **extra: Any):
        super().__init__(params, options(
            extra, lr=lr, lr_decay=lr_decay, weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value, eps=eps, maximize=maximize))
        for group in self.param_groups:
            for p in group["params"]:
                known = self.state[p]
                buffer(known, "step", np.zeros((), np.float32))
                buffer(known, "sum", as_real(p._array), group["initial_accumulator_value"])

    def _update(self, x, g, state, group):
        step = counted(state)
        g = _decay(x, g, group)
        total = buffer(state, "sum", x, group["initial_accumulator_value"])
        total += g * g
        rate = group["lr"] / (1 + (step - 1) * group["lr_decay"])
        x -= rate * (g / (np.sqrt(total) + group["eps"]))


class Adadelta(Optimizer):
    """x -= lr d, for gradients scaled by the sizes of recent changes and gradients."""

    _shown = "capturable foreach differentiable"

    def __init__(self, params: Iterable[Any], lr: float = 1.0, rho: float = 0.9,
                 eps: float = 1e-6, weight_decay: float = 0, *, maximize: bool = False,
                 **extra: Any):
        super().__init__(params, options(
            extra, lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize))

    def _update(self, x, g, state, group):
        counted(state)
        g = _decay(x, g, group)
        rho, eps = group["rho"], group["eps"]
        v = _mean(state, "square_avg", g * g, rho)
        change = np.sqrt(buffer(state, "acc_delta", x) + eps) / np.sqrt(v + eps) * g
        _mean(state, "acc_delta", change * change, rho)
        x -= group["lr"] * change


class NAdam(Optimizer):
    """Adam with Nesterov's momentum: T. Dozat, ICLR workshop (2016)."""

    _shown = "foreach capturable differentiable"

    def __init__(self, params: Iterable[Any], lr: float = 2e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, momentum_decay: float = 4e-3,
                 decoupled_weight_decay: bool = False, *, maximize: bool = False, **extra: Any):
        super().__init__(params, options(
            extra, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
            momentum_decay=momentum_decay, decoupled_weight_decay=decoupled_weight_decay,
            maximize=maximize))

    def _update(self, x, g, state, group):
        g, lr = _decay(x, g, group), group["lr"]
        (b1, b2), step, decay = group["betas"], counted(state), group["momentum_decay"]
        mu, following = [b1 * (1 - 0.5 * 0.96 ** (n * decay)) for n in (step, step + 1)]
        product = buffer(state, "mu_product", np.zeros((), np.float32), 1.0)
        product *= mu
        m = buffer(state, "exp_avg", x)
        m += (1 - b1) * (g - m)
        v = _mean(state, "exp_avg_sq", g * g, b2)
        size = np.sqrt(v / (1 - b2**step)) + group["eps"]
        x -= lr * (1 - mu) / (1 - float(product)) * (g / size)
        x -= lr * following / (1 - float(product) * following) * (m / size)


def _decay(x: np.ndarray, g: np.ndarray, group: dict[str, Any]) -> np.ndarray:
    """The gradient with weight decay, which is applied to ``x`` itself where decoupled."""
    decay = group["weight_decay"]
    if not decay:
        return g
    if group.get("decoupled_weight_decay"):
        x *= 1 - group["lr"] * decay
        return g
    return g + decay * x


def _mean(state: dict[str, Any], name: str, new: np.ndarray, kept: float) -> np.ndarray:
    """A running mean in the state of a parameter, of which the part ``kept`` stays."""
    mean = buffer(state, name, new)
    mean *= kept
    mean += (1 - kept) * new
    return mean


class RAdam(Optimizer):
    """Adam that waits until the variance of its steps is known: L. Liu et al., ICLR (2020)."""

    _shown = "foreach capturable differentiable"

    def __init__(self, params: Iterable[Any], lr: float = 1e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, decoupled_weight_decay: bool = False, *,
                 maximize: bool = False, **extra: Any):
        super().__init__(params, options(
            extra, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
            decoupled_weight_decay=decoupled_weight_decay, maximize=maximize))

    def _update(self, x, g, state, group):
        g = _decay(x, g, group)
        (b1, b2), step = group["betas"], counted(state)
        m = buffer(state, "exp_avg", x)
        m += (1 - b1) * (g - m)
        v = _mean(state, "exp_avg_sq", g * g, b2)
        longest = 2 / (1 - b2) - 1
        length = longest - 2 * step * b2**step / (1 - b2**step)
        change = m / (1 - b1**step)
        if length > 5:
            known = (length - 4) * (length - 2) * longest / (
                (longest - 4) * (longest - 2) * length)
            change = change * (math.sqrt(1 - b2**step) / (np.sqrt(v) + group["eps"]))
            change = change * math.sqrt(known)
        x -= group["lr"] * change


class Rprop(Optimizer):
    """Steps by the gradient's signs, longer while a sign stays: M. Riedmiller, H. Braun (1993)."""

    _shown = "foreach differentiable capturable"

    def __init__(self, params: Iterable[Any], lr: float = 1e-2,
                 etas: tuple[float, float] = (0.5, 1.2),
                 step_sizes: tuple[float, float] = (1e-6, 50), *, maximize: bool = False,
                 **extra: Any):
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(params, options(
            extra, lr=lr, etas=etas, step_sizes=step_sizes, maximize=maximize))

    def _update(self, x, g, state, group):
        counted(state)
        shorter, longer = group["etas"]
        before, size = buffer(state, "prev", x), buffer(state, "step_size", x, group["lr"])
        turned = g * before
        size *= np.where(turned > 0, longer, np.where(turned < 0, shorter, 1)).astype(x.dtype)
        np.clip(size, *group["step_sizes"], out=size)
        before[...] = np.where(turned < 0, 0, g)
        x -= np.sign(before) * size


class ASGD(Optimizer):
    """SGD with a falling rate, and the mean of its points: B. Polyak, A. Juditsky (1992)."""

    _shown = "foreach differentiable capturable"

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, lambd: float = 1e-4,
                 alpha: float = 0.75, t0: float = 1e6, weight_decay: float = 0, *,
                 maximize: bool = False, **extra: Any):
        super().__init__(params, options(
            extra, lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay,
            maximize=maximize))

    def _update(self, x, g, state, group):
        step, lambd, lr = counted(state), group["lambd"], group["lr"]
        g = _decay(x, g, group)
        number = np.zeros((), np.float32)
        rate, part = buffer(state, "eta", number, lr), buffer(state, "mu", number, 1.0)
        mean = buffer(state, "ax", x)
        x *= 1 - lambd * float(rate)
        x -= float(rate) * g
        mean += (x - mean) * float(part)
        rate[...] = lr / (1 + lambd * lr * step) ** group["alpha"]
        part[...] = 1 / max(1, step - group["t0"])
