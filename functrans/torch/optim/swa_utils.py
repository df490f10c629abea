"""``torch.optim.swa_utils``: averages of a model's parameters over steps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from functrans.torch._graph.modes import no_grad
from functrans.torch._tensors.factories import tensor
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.nn.modules.module import Module
from functrans.torch.optim.schedule import SWALR

Average = Callable[[Any, Any, Any], Any]


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable:
    """An average for lists of tensors that forgets: ``decay`` times the old one."""
    return _of_lists(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> Callable:
    """The mean of all values until now, for lists of tensors."""
    return _of_lists(_mean)


def get_swa_avg_fn() -> Average:
    """The mean of all values until now."""
    return _mean


def _of_lists(one: Average) -> Callable:
    @no_grad()
    def update(averages: list, values: list, count: Any) -> None:
        for average, value in zip(averages, values, strict=True):
            average.copy_(one(average, value, count))

    return update


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """An average that forgets: ``decay`` times the old one and the rest of the new value."""
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] "
                         "range.")

    @no_grad()
    def average(old: Tensor, value: Tensor, count: Any) -> Tensor:
        return decay * old + (1 - decay) * value

    return average


@no_grad()
def _mean(old: Tensor, value: Tensor, count: Any) -> Tensor:
    return old + (value - old) / (count + 1)


class AveragedModel(Module):
    """A copy of a model whose parameters are averages: ``update_parameters(model)`` after a step.

    The mean by default; ``avg_fn(average, value, count)`` is another average.
    """

    def __init__(self, model: Module, device: Any = None, avg_fn: Average | None = None,
                 multi_avg_fn: Callable | None = None, use_buffers: bool = False):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        self.register_buffer("n_averaged", tensor(0))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _average(self, model: Module) -> list[Tensor]:
        buffers = list(model.buffers()) if self.use_buffers else []
        return [p.detach() for p in [*model.parameters(), *buffers]]

    def update_parameters(self, model: Module) -> None:
        """Take the parameters of ``model`` into the averages."""
        ours, theirs = self._average(self.module), self._average(model)
        count = int(self.n_averaged)
        with no_grad():
            if count and self.multi_avg_fn is not None:
                self.multi_avg_fn(ours, theirs, self.n_averaged)
            else:
                average = self.avg_fn or _mean
                for old, value in zip(ours, theirs, strict=True):
                    old.copy_(average(old, value, count) if count else value)
            if not self.use_buffers:
                for old, value in zip(self.module.buffers(), model.buffers(), strict=True):
                    old.detach().copy_(value)
            self.n_averaged += 1


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute the statistics of batch normalisation anew, over the batches of ``loader``."""
    layers = [m for m in model.modules() if hasattr(m, "reset_running_stats")]
    if not layers:
        return
    momenta = [m.momentum for m in layers]
    was_training = model.training
    model.train()
    for m in layers:
        m.reset_running_stats()
    try:
        with no_grad():
            for n, batch in enumerate(loader):
                for m in layers:
                    m.momentum = 1 / (n + 1)
                model(batch[0] if isinstance(batch, list | tuple) else batch)
    finally:
        for m, momentum in zip(layers, momenta, strict=True):
            m.momentum = momentum
        model.train(was_training)


__all__ = ["SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn",
           "get_swa_multi_avg_fn", "update_bn"]
