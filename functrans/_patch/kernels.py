"""numba is imported, and compiles, with NumPy as it is outside of the blocks of ``patch``.

It looks names up when it compiles, and finds what it knows about an object by its identity.
"""

from __future__ import annotations

import functools
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from functrans._core.unswapped import come_back, go_away, unswapped


@functools.cache
def shield() -> None:
    """Before the first block: see to numba, now or when it is imported."""
    if "numba" in sys.modules:
        _listen()
    else:
        sys.meta_path.insert(0, Finder())


def _listen() -> None:
    """While a kernel is compiled, in any thread, nothing is swapped."""
    from numba.core import event  # lazy: it is there

    class Compiling(event.Listener):
        def on_start(self, event: Any) -> None:
            go_away()

        def on_end(self, event: Any) -> None:
            come_back()

    event.register("numba:compile", Compiling())


class Finder(MetaPathFinder):
    """Finds numba, to be imported in a way of our own, and nothing else."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "numba" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = Unswapped(spec.loader)
        return spec


class Unswapped(Loader):
    """A loader that runs its module with nothing swapped."""

    def __init__(self, loader: Any):
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__.loader = module.__loader__ = self.loader  # type: ignore[union-attr]
        with unswapped():
            self.loader.exec_module(module)
            _listen()
