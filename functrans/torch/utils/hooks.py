"""``torch.utils.hooks``: the handles that take back hooks."""

from functrans.torch._graph.nodes import RemovableHandle

__all__ = ["RemovableHandle"]
