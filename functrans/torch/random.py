"""``torch.random``: seeds and states of the random numbers.

>>> from functrans import torch
>>> with torch.random.fork_rng():
...     a = torch.rand(2)
>>> torch.equal(a, torch.rand(2))
True
"""

from __future__ import annotations

from functrans.torch._tensors.random import (
    default_generator,
    fork_rng,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)

__all__ = [
    "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed",
    "set_rng_state",
]
