"""``LRScheduler``: learning rates that are set anew between epochs."""

from __future__ import annotations

from typing import Any

from functrans.torch.optim.optimizer import Optimizer


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
