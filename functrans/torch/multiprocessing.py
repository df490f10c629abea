"""``torch.multiprocessing``: Python's ``multiprocessing``; tensors are pickled as arrays."""

from __future__ import annotations

import multiprocessing as _python


def get_all_sharing_strategies() -> set[str]:
    """The one way in which tensors reach another process."""
    return {"file_system"}


def get_sharing_strategy() -> str:
    """How tensors reach another process: as copies."""
    return "file_system"


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepted: there is one way."""


__all__ = [*_python.__all__, "get_all_sharing_strategies", "get_sharing_strategy",
           "set_sharing_strategy"]
globals().update({_name: getattr(_python, _name) for _name in _python.__all__})
