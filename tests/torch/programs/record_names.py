"""Store the public names of torch: ``python -m tests.torch.programs.record_names``.

Needs torch itself. The test asks for each name whether the shim has it, or its page a reason.
"""

from __future__ import annotations

import importlib
import json
import types
from pathlib import Path
from typing import TypeVar

STORED = Path(__file__).with_name("names.json")
HOMES = (
    "torch", "torch.Tensor", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.utils",
    "torch.nn.utils.rnn", "torch.nn.Module", "torch.linalg", "torch.special", "torch.fft",
    "torch.signal.windows", "torch.distributions",
    "torch.distributions.constraints", "torch.distributions.transforms", "torch.optim",
    "torch.optim.lr_scheduler", "torch.optim.swa_utils", "torch.optim.Optimizer", "torch.autograd",
    "torch.autograd.functional", "torch.autograd.forward_ad", "torch.autograd.graph",
    "torch.autograd.Function", "torch.func", "torch.utils.data", "torch.utils.checkpoint",
    "torch.random", "torch.testing", "torch.sparse",
)
# names that a module has for its own use
_FOR_ITSELF = frozenset({"TYPE_CHECKING", "Tensor", "torch", "inf", "F"})


def home_of(path):
    """A module, or a class in one."""
    try:
        return importlib.import_module(path)
    except ImportError:
        module, name = path.rsplit(".", 1)
        return getattr(importlib.import_module(module), name)


def is_public(x):
    """Whether it is torch's own, and not what a module has imported."""
    if isinstance(x, types.ModuleType):
        return x.__name__.startswith("torch")
    if isinstance(x, (str, bytes, dict, set, frozenset, tuple, list, TypeVar)):
        return False
    module = getattr(x, "__module__", None)
    return module is None or module.startswith(("torch", "builtins"))


def names_of(path):
    """The public names at one place."""
    home = home_of(path)
    names = {n for n in dir(home) if isinstance(home, type) or is_public(getattr(home, n, None))}
    names |= set(getattr(home, "__all__", ()))
    own = {n for n in names if not n.startswith("_") and n not in _FOR_ITSELF}
    return sorted(own | ({"Tensor"} if path == "torch" else set()))


if __name__ == "__main__":
    STORED.write_text(json.dumps({path: " ".join(names_of(path)) for path in HOMES}, indent=1)
                      + "\n")
