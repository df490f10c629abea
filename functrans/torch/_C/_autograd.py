"""What Python sources of torch ask of its engine: places of saved tensors, hooks of them."""

from __future__ import annotations

from functrans.torch._graph.engine import SavedTensor
from functrans.torch._graph.modes import state


def _saved_tensors_hooks_is_enabled() -> bool:
    """Whether ``saved_tensors_hooks`` may be set in this thread."""
    return state.refused_hooks is None


__all__ = ["SavedTensor", "_saved_tensors_hooks_is_enabled"]
