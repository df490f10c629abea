"""``torch.optim.lr_scheduler``: learning rates that change between epochs."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence

from functrans.torch._names import absent
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.optim.optimizer import Optimizer
from functrans.torch.optim.schedule import CyclicLR, LRScheduler, OneCycleLR


class LambdaLR(LRScheduler):
    """The first rates times ``lr_lambda(epoch)``."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable | list[Callable],
                 last_epoch: int = -1):
        n = len(optimizer.param_groups)
        self.lr_lambdas = lr_lambda if isinstance(lr_lambda, list) else [lr_lambda] * n
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return [lr * f(self.last_epoch)
                for lr, f in zip(self.base_lrs, self.lr_lambdas, strict=True)]


class _Shares(LRScheduler):
    """The first rates times ``share(epoch)``."""

    def share(self, epoch: int) -> float:
        raise NotImplementedError(type(self).__name__)

    def ratio(self, epoch: int) -> float:
        """The share of an epoch by that of the one before."""
        now, before = self.share(epoch), self.share(epoch - 1)
        return 1.0 if now == before else now / before

    def get_lr(self) -> list[float]:
        n = self.last_epoch
        ratio = self.ratio(n) if n else self.share(n)
        return [lr * ratio for lr in self.rates_now()]

    def closed_form(self) -> list[float]:
        return [lr * self.share(self.last_epoch) for lr in self.base_lrs]


class _Powers(_Shares):
    """Times ``gamma`` in some epochs: ``power(epoch)`` is how often until then."""

    gamma: float

    def power(self, epoch: int) -> int:
        raise NotImplementedError(type(self).__name__)

    def share(self, epoch: int) -> float:
        return self.gamma ** self.power(epoch)

    def ratio(self, epoch: int) -> float:
        return self.gamma ** (self.power(epoch) - self.power(epoch - 1))


class StepLR(_Powers):
    """Times ``gamma`` every ``step_size`` epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1,
                 last_epoch: int = -1):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def power(self, epoch: int) -> int:
        return epoch // self.step_size


class MultiStepLR(_Powers):
    """Times ``gamma`` at each milestone."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1,
                 last_epoch: int = -1):
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def power(self, epoch: int) -> int:
        return bisect_right(self.milestones, epoch)


class ExponentialLR(_Powers):
    """Times ``gamma`` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def power(self, epoch: int) -> int:
        return epoch


class LinearLR(_Shares):
    """From one factor to another along a line, then constant."""

    def __init__(self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0,
                 total_iters: int = 5, last_epoch: int = -1):
        self.factors, self.total_iters = (start_factor, end_factor), total_iters
        super().__init__(optimizer, last_epoch)

    def share(self, epoch: int) -> float:
        a, b = self.factors
        return a + (b - a) * min(epoch, self.total_iters) / self.total_iters


class CosineAnnealingLR(LRScheduler):
    """Down to ``eta_min`` after ``T_max`` epochs along half a cosine, and up again."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0,
                 last_epoch: int = -1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def height(self, epoch: int) -> float:
        return (1 + math.cos(math.pi * epoch / self.T_max)) / 2

    def get_lr(self) -> list[float]:
        if not self.last_epoch:
            return self.rates_now()
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # at the bottom
            return [lr + (base - self.eta_min) * (1 - math.cos(math.pi / self.T_max)) / 2
                    for lr, base in zip(self.rates_now(), self.base_lrs, strict=True)]
        ratio = self.height(self.last_epoch) / self.height(self.last_epoch - 1)
        return [self.eta_min + (lr - self.eta_min) * ratio for lr in self.rates_now()]

    def closed_form(self) -> list[float]:
        part = self.height(self.last_epoch)
        return [self.eta_min + (lr - self.eta_min) * part for lr in self.base_lrs]


class ConstantLR(_Shares):
    """Times ``factor`` until ``total_iters``."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5,
                 last_epoch: int = -1):
        if not 0 <= factor <= 1:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def share(self, epoch: int) -> float:
        return self.factor if epoch < self.total_iters else 1.0


class PolynomialLR(_Shares):
    """Down to 0 at ``total_iters``, as a power of the epochs that are left."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0,
                 last_epoch: int = -1):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def share(self, epoch: int) -> float:
        return max(0.0, 1 - epoch / self.total_iters) ** self.power


class MultiplicativeLR(LambdaLR):
    """Times ``lr_lambda(epoch)`` in each epoch."""

    def get_lr(self) -> list[float]:
        if not self.last_epoch:
            return self.rates_now()
        return [lr * f(self.last_epoch)
                for lr, f in zip(self.rates_now(), self.lr_lambdas, strict=True)]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine down to ``eta_min``, again and again, each ``T_mult`` times as long."""

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0,
                 last_epoch: int = -1):
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        self.T_0, self.T_i, self.T_mult, self.eta_min = T_0, T_0, T_mult, eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        part = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (lr - self.eta_min) * part for lr in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Go on to the next epoch, or to ``epoch``, which may be between two."""
        self.T_cur = self.T_cur + 1 if epoch is None else epoch
        if epoch is not None:
            self.T_i = self.T_0
        while self.T_cur >= self.T_i:
            self.T_cur -= self.T_i
            self.T_i *= self.T_mult
        self.last_epoch = self.last_epoch + 1 if epoch is None else math.floor(epoch)
        self._set(self.get_lr())


class ChainedScheduler:
    """Several schedulers that all go on together."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None):
        self._schedulers = list(schedulers)
        self.optimizer = optimizer or self._schedulers[0].optimizer

    def step(self) -> None:
        """Go on to the next epoch."""
        for scheduler in self._schedulers:
            scheduler.step()

    get_last_lr: Callable[..., list[float]] = LRScheduler.rates_now
    state_dict, load_state_dict = LRScheduler.state_dict, LRScheduler.load_state_dict


class SequentialLR(LRScheduler):
    """One scheduler after another, each from its milestone on."""

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler],
                 milestones: Sequence[int], last_epoch: int = -1):
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than "
                f"the number of milestone points, but got number of schedulers {len(schedulers)} "
                f"and the number of milestones to be equal to {len(milestones)}")
        self._schedulers, self._milestones = list(schedulers), list(milestones)
        self.optimizer, self.last_epoch = optimizer, last_epoch + 1
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for scheduler in self._schedulers:
            scheduler.last_epoch -= 1
        self._schedulers[0].step()
        self._last_lr = self.rates_now()

    def step(self, epoch: int | None = None) -> None:
        """Go on to the next epoch."""
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        begins = i > 0 and self._milestones[i - 1] == self.last_epoch
        self._schedulers[i].step(0 if begins else None)
        self._last_lr = self.rates_now()


class ReduceLROnPlateau:
    """Times ``factor`` when a number has not improved for more than ``patience`` epochs."""

    def __init__(self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1,
                 patience: int = 10, threshold: float = 1e-4, threshold_mode: str = "rel",
                 cooldown: int = 0, min_lr: float = 0, eps: float = 1e-8):
        if factor >= 1:
            raise ValueError("Factor should be < 1.0.")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.relative = threshold, threshold_mode == "rel"
        self.cooldown, self.min_lr, self.eps = cooldown, min_lr, eps
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.waiting = 0

    def _better(self, value: float) -> bool:
        sign = -1 if self.mode == "min" else 1
        if self.relative:
            return sign * value > sign * self.best * (1 + sign * self.threshold) or (
                math.isinf(self.best))
        return sign * value > sign * self.best + self.threshold

    def step(self, metrics: float | Tensor, epoch: int | None = None) -> None:
        """Look at the number of this epoch."""
        value = float(metrics)
        if self._better(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.waiting:
            self.waiting -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs <= self.patience:
            return
        for group in self.optimizer.param_groups:
            new = max(group["lr"] * self.factor, self.min_lr)
            if group["lr"] - new > self.eps:
                group["lr"] = new
        self.waiting, self.num_bad_epochs = self.cooldown, 0

    get_last_lr: Callable[..., list[float]] = LRScheduler.rates_now
    state_dict, load_state_dict = LRScheduler.state_dict, LRScheduler.load_state_dict


_LRScheduler = LRScheduler
__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
    "CyclicLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR",
    "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR",
]

__getattr__ = absent(__name__)
