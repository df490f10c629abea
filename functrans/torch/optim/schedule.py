"""``LRScheduler``: learning rates that are set anew, between epochs or with each step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from functrans.torch.optim.optimizer import Optimizer

# ---- ``LRScheduler``: learning rates that are set anew between epochs


class LRScheduler:
    """Base: ``get_lr`` returns the learning rates of ``last_epoch``, of which 0 is the first.

    They are made from those of the epoch before, so that several schedulers, or the user, may
    change them.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        self._step_count = 0
        self._is_initial = self._get_lr_called_within_step = False  # for ``state_dict``
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def get_lr(self) -> list[float]:
        """The learning rates of this epoch."""
        raise NotImplementedError(type(self).__name__)

    def closed_form(self) -> list[float]:
        """The learning rates of this epoch from the first ones."""
        return self.get_lr()

    def step(self, epoch: int | None = None) -> None:
        """Go on to the next epoch."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._step_count += 1
        self._set(self.get_lr() if epoch is None else self.closed_form())

    def _set(self, rates: list[float]) -> None:
        for group, lr in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = lr
        self._last_lr = self.rates_now()

    def rates_now(self) -> list[float]:
        """The learning rates of the optimiser, whoever set them."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def get_last_lr(self) -> list[float]:
        """The learning rates that were set last by this scheduler."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """All but the optimiser; of schedulers inside, theirs."""
        kept = {k: v for k, v in self.__dict__.items() if k != "optimizer" and not callable(v)}
        if "_schedulers" in kept:
            kept["_schedulers"] = [inner.state_dict() for inner in kept["_schedulers"]]
        return kept

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned."""
        own = dict(state_dict)
        for inner, state in zip(self.__dict__.get("_schedulers", ()), own.pop("_schedulers", ()),
                                strict=True):
            inner.load_state_dict(state)
        self.__dict__.update(own)


# ---- Learning rates, and momenta against them, that rise and fall with each step


def _each(optimizer: Optimizer, name: str, value: Any) -> list[float]:
    """One value for each group of parameters."""
    n = len(optimizer.param_groups)
    if not isinstance(value, list | tuple):
        return [value] * n
    if len(value) != n:
        raise ValueError(f"{name} must have the same length as optimizer.param_groups. {name} has "
                         f"{len(value)} values, param_groups has {n}.")
    return list(value)


class _Cycle(LRScheduler):
    """Base: ``rates(i)`` are the learning rate and the momentum of group ``i`` in this step."""

    def __init__(self, optimizer: Optimizer, initial: Sequence[float], cycle_momentum: bool,
                 last_epoch: int):
        self.cycle_momentum = cycle_momentum
        self.use_beta1 = "betas" in optimizer.defaults
        if cycle_momentum and not self.use_beta1 and "momentum" not in optimizer.defaults:
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` "
                             "option enabled")
        for group, lr in zip(optimizer.param_groups, initial, strict=True):
            group["initial_lr"] = lr
        super().__init__(optimizer, last_epoch)

    def rates(self, i: int) -> tuple[float, float]:
        raise NotImplementedError(type(self).__name__)

    def get_lr(self) -> list[float]:
        pairs = [self.rates(i) for i in range(len(self.optimizer.param_groups))]
        if self.cycle_momentum:
            for group, (_, momentum) in zip(self.optimizer.param_groups, pairs, strict=True):
                if self.use_beta1:
                    group["betas"] = (momentum, *group["betas"][1:])
                else:
                    group["momentum"] = momentum
        return [lr for lr, _ in pairs]


class SWALR(LRScheduler):
    """To ``swa_lr`` within ``anneal_epochs``, along half a cosine or a line, then constant."""

    def __init__(self, optimizer: Optimizer, swa_lr: Any, anneal_epochs: int = 10,
                 anneal_strategy: str = "cos", last_epoch: int = -1):
        for group, lr in zip(optimizer.param_groups, _each(optimizer, "swa_lr", swa_lr),
                             strict=True):
            group["swa_lr"] = lr
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError("anneal_strategy must be one of 'cos' or 'linear', instead got "
                             f"{anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError("anneal_epochs must be equal or greater than 0, got "
                             f"{anneal_epochs}")
        self.anneal_epochs, self._anneal_strategy = anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def part(self, step: int) -> float:
        """How far the rates are on the way to ``swa_lr``, from 0 to 1."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[float]:
        step = max(self._step_count - 1, int(not self.anneal_epochs))
        before, now = self.part(step - 1), self.part(step)
        rates = []
        for group in self.optimizer.param_groups:
            last = group["swa_lr"]
            first = last if before == 1 else (group["lr"] - before * last) / (1 - before)
            rates.append(last * now + first * (1 - now))
        return rates


class CyclicLR(_Cycle):
    """Between ``base_lr`` and ``max_lr`` and back, again and again: L. Smith (2017)."""

    def __init__(self, optimizer: Optimizer, base_lr: Any, max_lr: Any, step_size_up: int = 2000,
                 step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
                 scale_fn: Callable[[Any], float] | None = None, scale_mode: str = "cycle",
                 cycle_momentum: bool = True, base_momentum: Any = 0.8, max_momentum: Any = 0.9,
                 last_epoch: int = -1):
        modes: dict[str, tuple[Callable[[Any], float], str]] = {
            "triangular": (lambda n: 1.0, "cycle"),
            "triangular2": (lambda n: 2.0 ** (1 - n), "cycle"),
            "exp_range": (lambda n: gamma**n, "iterations"),
        }
        if scale_fn is None and mode not in modes:
            raise ValueError("mode is invalid and scale_fn is None")
        self.scale_fn, self.scale_mode = (
            modes[mode] if scale_fn is None else (scale_fn, scale_mode))
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        lows, self.max_lrs = [_each(optimizer, name, lr)
                              for name, lr in (("base_lr", base_lr), ("max_lr", max_lr))]
        self.base_momentums = _each(optimizer, "base_momentum", base_momentum)
        self.max_momentums = _each(optimizer, "max_momentum", max_momentum)
        super().__init__(optimizer, lows, cycle_momentum, last_epoch)

    def rates(self, i: int) -> tuple[float, float]:
        turns = self.last_epoch / self.total_size
        cycle = math.floor(1 + turns)
        x, ratio = 1 + turns - cycle, self.step_ratio
        height = x / ratio if x <= ratio else (x - 1) / (ratio - 1)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        low, top = self.base_lrs[i], self.max_lrs[i]
        least, most = self.base_momentums[i], self.max_momentums[i]
        return low + (top - low) * height, most - (most - least) * height


class OneCycleLR(_Cycle):
    """Up to ``max_lr``, and down to almost nothing, once: L. Smith, N. Topin (2018)."""

    def __init__(self, optimizer: Optimizer, max_lr: Any, total_steps: int | None = None,
                 epochs: int | None = None, steps_per_epoch: int | None = None,
                 pct_start: float = 0.3, anneal_strategy: str = "cos", cycle_momentum: bool = True,
                 base_momentum: Any = 0.85, max_momentum: Any = 0.95, div_factor: float = 25.0,
                 final_div_factor: float = 1e4, three_phase: bool = False, last_epoch: int = -1):
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("You must define either total_steps OR (epochs AND "
                                 "steps_per_epoch)")
            total_steps = epochs * steps_per_epoch
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError("anneal_strategy must be one of 'cos' or 'linear', instead got "
                             f"{anneal_strategy}")
        self.total_steps, self.cosine = total_steps, anneal_strategy == "cos"
        self.max_lrs = _each(optimizer, "max_lr", max_lr)
        self.final_div_factor = final_div_factor
        self.momenta = list(zip(_each(optimizer, "base_momentum", base_momentum),
                                _each(optimizer, "max_momentum", max_momentum), strict=True))
        top, last = float(pct_start * total_steps) - 1, total_steps - 1
        # where each phase ends, and there 0 for the first rate, 1 for the greatest, 2 for the least
        self.phases = [(top, 1), (2 * top, 0), (last, 2)] if three_phase else [(top, 1), (last, 2)]
        super().__init__(optimizer, [lr / div_factor for lr in self.max_lrs], cycle_momentum,
                         last_epoch)

    def rates(self, i: int) -> tuple[float, float]:
        step, first = self.last_epoch, self.base_lrs[i]
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The specified number of total steps is "
                             f"{self.total_steps}")
        levels = first, self.max_lrs[i], first / self.final_div_factor
        least, most = self.momenta[i]
        begin, before, after, part = 0.0, 0, 0, 1.0
        for end, after in self.phases:
            if step <= end or end == self.phases[-1][0]:
                part = (step - begin) / (end - begin)
                break
            begin, before = end, after
        # the momentum is least where the rate is greatest
        low, high = [least if k == 1 else most for k in (before, after)]
        return self._between(levels[before], levels[after], part), self._between(low, high, part)

    def _between(self, start: float, end: float, part: float) -> float:
        if not self.cosine:
            return start + (end - start) * part
        return end + (start - end) / 2 * (1 + math.cos(math.pi * part))
