"""``torch.amp``: there is one precision, that of the tensors; what is off is accepted.

>>> from functrans import torch
>>> with torch.autocast("cpu", enabled=False):
...     torch.ones(1).dtype
torch.float32
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from functrans.torch._tensors.tensor import Tensor


class autocast:
    """A context, or a decorator, that changes nothing: it must be off, or be for a GPU."""

    def __init__(self, device_type: str, dtype: Any = None, enabled: bool = True,
                 cache_enabled: bool | None = None):
        if enabled and device_type == "cpu":
            raise NotImplementedError(
                "autocast: operations compute in the precision of their operands. Pass "
                "enabled=False, or convert the model and its inputs, for example with .bfloat16()"
            )
        if enabled:
            warnings.warn(f"User provided device_type of '{device_type}', but CUDA is not "
                          "available. Disabling", UserWarning, stacklevel=2)

    def __enter__(self) -> autocast:
        return self

    def __exit__(self, *failure: Any) -> None:
        pass

    def __call__(self, f: Callable) -> Callable:
        @functools.wraps(f)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return f(*args, **kwargs)

        return call


class GradScaler:
    """The scale of losses on a GPU: 1 here, so that each method does the plain step."""

    def __init__(self, device: str = "cuda", init_scale: float = 65536.0,
                 growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True):
        if enabled:
            warnings.warn("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  "
                          "Disabling.", UserWarning, stacklevel=2)

    def scale(self, outputs: Any) -> Any:
        """``outputs``."""
        return outputs

    def unscale_(self, optimizer: Any) -> None:
        """Nothing: gradients have their own size."""

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """The step of the optimiser."""
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Nothing: there is no scale to change."""

    def get_scale(self) -> float:
        """1."""
        return 1.0

    def is_enabled(self) -> bool:
        """False: there is no GPU."""
        return False

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing."""


__all__ = ["GradScaler", "autocast"]
