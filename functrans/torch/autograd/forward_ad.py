"""``torch.autograd.forward_ad``: tangents that travel with tensors.

>>> from functrans import torch
>>> from functrans.torch.autograd import forward_ad
>>> x, t = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 10.0])
>>> with forward_ad.dual_level():
...     y = forward_ad.make_dual(x, t) ** 2
...     forward_ad.unpack_dual(y).tangent
tensor([ 2., 40.])
"""

from __future__ import annotations

from typing import Any, NamedTuple

from functrans.torch._graph.dual import tangent_of, with_tangent
from functrans.torch._graph.levels import (
    is_live,
    leads_to_leaf,
    levels,
    require_same_size,
    set_dual_level,
)
from functrans.torch._graph.modes import state
from functrans.torch._tensors.tensor import Tensor, edge_of, from_array


class UnpackedDualTensor(NamedTuple):
    """A tensor and its tangent, which is None where there is none."""

    primal: Tensor
    tangent: Tensor | None


class dual_level:
    """Inside, tensors can have tangents; what is computed within ``no_grad`` has them as well."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *failure: Any) -> None:
        exit_dual_level()


def enter_dual_level() -> int:
    """Open a level, of which there is one at a time, and return its number."""
    if levels.dual:
        raise RuntimeError(
            "Nested forward mode AD is not supported at the moment; use torch.func.jvp, which nests"
        )
    set_dual_level(True)
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Close the level; its tangents are out of reach then."""
    if not levels.dual:
        raise RuntimeError("Trying to exit a forward AD level that was not entered")
    set_dual_level(False)


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """``tensor`` with a tangent, on the same memory. Gradients go through it as well."""
    if not levels.dual:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
            "enter_dual_level() first."
        )
    if state.batch is not None:
        state.batch.require_no_captured("make_dual")
    for what, t in (("primal", tensor), ("tangent", tangent)):
        if not (t.is_floating_point() or t.is_complex()):
            raise ValueError(f"Expected {what} to be floating point or complex, but got: {t.dtype}")
    require_same_size(tangent, tensor)
    if tangent_of(tangent) is not None:
        raise RuntimeError(
            "Trying to set a forward gradient that has a forward gradient at the same level, which "
            "is not supported; use torch.func.jvp, which nests"
        )
    if tensor.dtype != tangent.dtype:
        raise RuntimeError(
            "Expected tangent to have the same size and dtype as the primal: the tensor is "
            f"{tensor.dtype} of {tuple(tensor.shape)}, the tangent {tangent.dtype} of "
            f"{tuple(tangent.shape)}"
        )
    return with_tangent(tensor, tangent)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """A tensor without its tangent, and the tangent."""
    if not levels.dual:
        return UnpackedDualTensor(tensor, None)
    edge = edge_of(tensor)
    if edge is not None and is_live(edge[0]):
        before = edge[0].edges[0]
        node, k = before if before is not None and leads_to_leaf([before]) else (None, 0)
        primal = from_array(tensor._array, tensor._storage, node, k)
        return UnpackedDualTensor(primal, edge[0].tangent)
    tangent = tangent_of(tensor)
    bare = tangent is not None and not leads_to_leaf([edge])
    return UnpackedDualTensor(tensor.detach() if bare else tensor, tangent)


def __getattr__(name: str) -> int:
    if name == "_current_level":  # of this thread, -1 where none is open
        return 0 if levels.dual else -1
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual",
    "unpack_dual",
]
