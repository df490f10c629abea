"""``GradientEdge``: a place in the graph, to be used where a gradient is asked for."""

from __future__ import annotations

from typing import Any, NamedTuple

from functrans.torch._graph.nodes import Node, shown
from functrans.torch._tensors.tensor import Tensor, edge_of


class GradientEdge(NamedTuple):
    """A place in the graph: a node, and the number of its output."""

    node: Node
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The place of ``tensor`` in the graph, which the tensor need not outlive.

    >>> from functrans import torch
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> edge = torch.autograd.graph.get_gradient_edge(x)
    >>> torch.autograd.grad((x * x).sum(), edge)
    (tensor([2., 4.]),)
    """
    edge = edge_of(tensor)
    if edge is None:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require "
            "gradients"
        )
    return GradientEdge(shown(edge[0]), edge[1])


def place_of(x: Any) -> tuple[Node, int] | None:
    """The place of a tensor, or the one that a ``GradientEdge`` is."""
    return (x.node, x.output_nr) if isinstance(x, GradientEdge) else edge_of(x)
