"""``install``: the shim under the name ``torch``, for programs that are not to be changed.

Every module is loaded once: ``torch.autograd.function`` is ``functrans.torch.autograd.function``.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from functrans.torch._names import PARENTS

_OURS = "functrans.torch"


class _Alias(importlib.abc.Loader):
    """Loads a module of the shim, which stays the only one, for a name under ``torch``."""

    def __init__(self, name: str):
        self._name = name

    def create_module(self, spec: Any) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = _call(importlib.import_module(self._name))


def _call(module: ModuleType) -> ModuleType:
    """``module`` of the shim, with the name that it has in torch."""
    module.__name__ = module.__name__.removeprefix("functrans.")
    return module


class _Finder(importlib.abc.MetaPathFinder):
    """Finds ``torch`` and what is under it in the shim."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None,
                  target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch" and not fullname.startswith("torch."):
            return None
        parent = PARENTS.get(fullname.removeprefix("torch."))
        ours = f"functrans.{fullname}" if parent is None else f"{_OURS}.{parent}".rstrip(".")
        if ours not in sys.modules and importlib.util.find_spec(ours) is None:
            raise ModuleNotFoundError(
                f"No module named '{fullname}': functrans.torch, which is installed as torch, has "
                "no such module; docs/torch.md says what is there", name=fullname)
        return importlib.machinery.ModuleSpec(fullname, _Alias(ours))


def install() -> None:
    """Let ``import torch`` import the shim, in this process, from now on.

    Raises where another ``torch`` has been imported. Calling it again changes nothing.

    >>> from functrans.torch import install
    >>> install()
    >>> import torch.autograd.function
    >>> torch.autograd.function.Function is torch.autograd.Function
    True
    >>> torch.__name__
    'torch'
    """
    shim = importlib.import_module(_OURS)
    there = sys.modules.get("torch")
    if there is shim:
        return
    if there is not None:
        raise ImportError(
            f"functrans.torch.install: torch has been imported already, from "
            f"{getattr(there, '__file__', None)}. Call install() before anything imports it."
        )
    sys.meta_path.insert(0, _Finder())
    for name in [n for n in sys.modules if n == _OURS or n.startswith(f"{_OURS}.")]:
        sys.modules[name.removeprefix("functrans.")] = _call(sys.modules[name])
    shim.Tensor.__module__ = "torch"  # by which other libraries tell whose an array is


__all__ = ["install"]
