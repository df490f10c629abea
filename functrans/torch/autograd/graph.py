"""``torch.autograd.graph``: nodes, places in the graph, and what is kept for the backward.

>>> from functrans import torch
>>> def pack(t):
...     print("saved", t.tolist())
...     return t
>>> x = torch.tensor([1.0, 2.0], requires_grad=True)
>>> with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
...     y = x.sin()
saved [1.0, 2.0]
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Self

import numpy as np

from functrans.torch._graph.engine import GradientEdge, get_gradient_edge, hooked, unhook
from functrans.torch._graph.modes import set_unusual, state
from functrans.torch._graph.nodes import Node, RemovableHandle
from functrans.torch._graph.walk import walks, will_pass
from functrans.torch._tensors.tensor import Tensor


class saved_tensors_hooks:
    """Inside, what an operation saves for the backward is kept as ``pack_hook(tensor)``.

    ``unpack_hook`` of what that returned is the tensor again; it is called once for each pass
    through the operation. What is saved may be an operand, the result, or something the derivative
    reads in their place. Contexts nest: the innermost one counts.
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]):
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook
        self._before: list[Any] = []

    def __enter__(self) -> Self | None:
        if state.refused_hooks is not None:
            raise RuntimeError(state.refused_hooks)
        self._before.append(state.saving)
        set_unusual(saving=(self._pack, self._unpack))

    def __exit__(self, *failure: Any) -> None:
        set_unusual(saving=self._before.pop())

    def _pack(self, array: np.ndarray) -> Any:
        before = state.saving
        set_unusual(saving=None)
        try:
            return hooked(self.pack_hook, array)
        finally:
            set_unusual(saving=before)

    def _unpack(self, kept: Any) -> np.ndarray:
        return unhook(self.unpack_hook, kept)


class allow_mutation_on_saved_tensors(saved_tensors_hooks):
    """Inside, operations save copies, so that tensors can be changed in place afterwards."""

    def __init__(self) -> None:
        super().__init__(lambda t: t.clone(), lambda t: t)

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def clear(self) -> None:
        """Accepted: copies belong to the nodes that saved them."""


class save_on_cpu(saved_tensors_hooks):
    """Accepted: what is saved is on the CPU in any case."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda"):
        super().__init__(lambda t: t, lambda kept: kept)


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Inside, ``saved_tensors_hooks`` raise a RuntimeError with this message."""
    if state.saving is not None:
        raise RuntimeError(error_message)
    before, state.refused_hooks = state.refused_hooks, error_message
    try:
        yield
    finally:
        state.refused_hooks = before


def increment_version(tensor: Any) -> None:
    """Count a change of the memory of a tensor, or of each of several, made by other means."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        t._storage.count("increment_version")


class _Handle(RemovableHandle):
    """Takes back one hook of several tensors."""

    def __init__(self, handles: Sequence[RemovableHandle]):
        super().__init__({})
        self._handles = handles

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[..., None], *,
                             mode: Literal["all", "any"] = "all") -> RemovableHandle:
    """Call ``fn`` in each backward that reaches ``tensors``.

    ``"all"``: with the sequence of their gradients, None for those that the backward does not
    reach, as soon as the last has arrived. ``"any"``: with the first that arrives.

    >>> from functrans import torch
    >>> x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    >>> handle = torch.autograd.graph.register_multi_grad_hook((x, y), lambda gs: print(len(gs)))
    >>> (x * y).sum().backward()
    2
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    edges = [get_gradient_edge(t) for t in tensors]
    arrived: dict[int, list] = {}

    def hook_of(i: int) -> Callable[[Tensor], None]:
        def hook(grad: Tensor) -> None:
            first = walks.number not in arrived
            if mode == "any":
                if first:
                    arrived.clear()
                    arrived[walks.number] = []
                    fn(grad)
                return
            grads = arrived.setdefault(walks.number, [None] * len(tensors))
            grads[i] = grad
            awaited = [will_pass(e.node) for e in edges]
            if all(g is not None for g, a in zip(grads, awaited, strict=True) if a):
                del arrived[walks.number]
                fn(tuple(grads))

        return hook

    return _Handle([t.register_hook(hook_of(i)) for i, t in enumerate(tensors)])


__all__ = [
    "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks",
    "get_gradient_edge", "increment_version", "register_multi_grad_hook", "save_on_cpu",
    "saved_tensors_hooks",
]
