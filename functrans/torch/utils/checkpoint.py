"""``torch.utils.checkpoint``: functions of which only the arguments are stored.

The function runs once with recording, to find the places in the graph that it starts from: those
of its arguments and of tensors that it closes over. That recording is then dropped. The backward
runs the function again and walks as far as those places, so checkpoints work under ``backward`` and
``grad``, and can be differentiated again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import numpy as np

from functrans import tree
from functrans.torch._graph.graph import Storage
from functrans.torch._graph.levels import edge_key
from functrans.torch._graph.modes import enable_grad, is_grad_enabled
from functrans.torch._graph.nodes import AccumulateGrad, Edge, Node, caller, check_marks, free
from functrans.torch._graph.walk import run
from functrans.torch._tensors.random import random_from, random_state
from functrans.torch._tensors.tensor import Tensor, edge_of, from_array

_R = TypeVar("_R")


class Boundary(Node):
    """Stands, in a stretch that is run again, for a place outside of it."""

    __slots__ = ()

    def pull(self, ct: Any, create: bool) -> Sequence:
        return (ct,)


class CheckpointNode(Node):
    """A call to be run again. ``sources``: where it starts from; ``places``: which of the leaves
    of its result are the outputs."""

    __slots__ = ("marks", "places", "repeat", "samples", "sources", "where")

    batches = False
    takes_undefined = True
    marks: Sequence[tuple[Storage, int]]

    def __init__(self, sources: Sequence[Edge], repeat: Callable, places: Sequence[int],
                 samples: Sequence, marks: Sequence[tuple[Storage, int]]):
        super().__init__(sources, len(places))
        self.sources = sources
        self.repeat: Callable | None = repeat
        self.places = places
        self.samples = samples
        self.marks = marks
        self.where = caller()

    def pull(self, ct: Any, create: bool) -> Sequence:
        if self.repeat is None:
            raise free(self)
        check_marks(self)
        ends = [Boundary(()) for _ in self.sources]
        with enable_grad():
            tensors = [t for t in self.repeat() if isinstance(t, Tensor)]
        outs = [tensors[i] for i in self.places] if len(tensors) > max(self.places) else []
        if [_sample(t) for t in outs] != self.samples:
            raise RuntimeError(
                "checkpoint: the function returned other values when it was run again for the "
                "backward pass. It must not depend on what changes in between."
            )
        inner, sources = _stretch(outs, ends[0].seq)
        stands_for = {edge_key(e): (end, 0) for e, end in zip(self.sources, ends, strict=True)}
        if {edge_key(e) for e in sources} != set(stands_for):
            raise RuntimeError(
                "checkpoint: the function depended on other tensors when it was run again for the "
                "backward pass."
            )
        for node in inner:
            node.edges = [e and stands_for.get(edge_key(e), e) for e in node.edges]
        cts = [ct] if self.outputs == 1 else ct
        roots = [(e, c) for e, c in zip(map(edge_of, outs), cts, strict=True) if e is not None]
        parts = run(roots, [(end, 0) for end in ends], create, create)
        if create:  # what was recorded goes on beyond the stretch
            for end, e in zip(ends, self.sources, strict=True):
                end.edges = (e,)
        return parts

    def release(self) -> None:
        self.repeat = None


def _stretch(outs: Sequence[Tensor], mark: int) -> tuple[set[Node], list[Edge]]:
    """The nodes under ``outs`` made since ``mark``, and the places outside that they lead to."""
    stack = [e for e in map(edge_of, outs) if e is not None]
    inner: set[Node] = set()
    sources: dict[tuple, Edge] = {}
    while stack:
        edge = stack.pop()
        node = edge[0]
        if node.seq >= mark or type(node) is AccumulateGrad:
            sources.setdefault(edge_key(edge), edge)
        elif node not in inner:
            inner.add(node)
            stack += [e for e in node.edges if e is not None]
    return inner, list(sources.values())


def _sample(t: Tensor) -> tuple:
    """A few entries of an output, to know it again by."""
    flat = t._array.reshape(-1)
    return t._array.shape, t._array.dtype, flat[:: max(1, flat.size // 16)].tobytes()


def checkpoint(function: Callable[..., _R], *args: Any, use_reentrant: bool | None = None,
               preserve_rng_state: bool = True, context_fn: Any = None,
               determinism_check: str = "default", debug: bool = False, **kwargs: Any) -> _R:
    """``function(*args, **kwargs)``, of which the backward runs the function again.

    The derivative is the same; what the function computes in between is not stored. It must
    return the same values when it is run again; random numbers are, with ``preserve_rng_state``.
    ``context_fn()`` returns two contexts, in which the function runs the first time and again. The
    other options are accepted: there is one way of doing it, and it is always checked.

    >>> from functrans import torch
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> y = checkpoint(lambda x: (x * x).exp().log(), x)
    >>> torch.autograd.grad(y.sum(), x)
    (tensor([2., 4.]),)
    """
    if use_reentrant and (context_fn is not None or debug):
        raise ValueError(
            "Passing `context_fn` or `debug` is only supported when use_reentrant=False, in "
            "checkpoint"
        )
    if use_reentrant and kwargs:
        raise ValueError(f"Unexpected keyword arguments: {','.join(kwargs)}, of checkpoint with "
                         "use_reentrant=True")
    if not is_grad_enabled():
        return function(*args, **kwargs)
    first, again = (nullcontext(), nullcontext()) if context_fn is None else context_fn()
    inputs = [x for x in tree.leaves((args, kwargs)) if isinstance(x, Tensor)]
    marks = [(t._storage, t._storage.version) for t in inputs]
    random = random_state() if preserve_rng_state else None
    mark = Node(()).seq
    with first:
        result = function(*args, **kwargs)
    leaves, structure = tree.flatten(result)
    tensors = [t for t in leaves if isinstance(t, Tensor)]
    places = [i for i, t in enumerate(tensors) if _is_inner(t, mark)]
    outs = [tensors[i] for i in places]
    _, sources = _stretch(outs, mark)
    if not sources:
        return result

    def repeat() -> list:
        with random_from(random), again:
            return tree.leaves(function(*args, **kwargs))

    node = CheckpointNode(sources, repeat, places, [_sample(t) for t in outs], marks)
    used = {id(t._storage) for t in inputs}
    replaced = {}
    for k, t in enumerate(outs):
        shared = id(t._storage) in used
        used.add(id(t._storage))
        replaced[id(t)] = from_array(np.array(t._array) if shared else t._array,
                                     None if shared else t._storage, node, k)
    return tree.unflatten(structure, [replaced.get(id(x), x) for x in leaves])


def _is_inner(t: Tensor, mark: int) -> bool:
    edge = edge_of(t)
    return edge is not None and edge[0].seq < mark and type(edge[0]) is not AccumulateGrad


def checkpoint_sequential(functions: Any, segments: int, input: Any,
                          use_reentrant: bool | None = None, **options: Any) -> Any:
    """A chain of functions in ``segments`` checkpointed groups of equal length."""
    chain = list(functions)
    size = max(1, len(chain) // segments)
    starts = [i * size for i in range(min(segments, len(chain)))]
    for start, end in zip(starts, [*starts[1:], len(chain)], strict=True):
        input = checkpoint(_compose(chain[start:end]), input, use_reentrant=use_reentrant,
                           **options)
    return input


def _compose(chain: Sequence[Callable]) -> Callable:
    def composed(x: Any) -> Any:
        for f in chain:
            x = f(x)
        return x

    return composed


def noop_context_fn() -> tuple:
    """Two contexts that change nothing, for ``context_fn``."""
    return nullcontext(), nullcontext()


def set_checkpoint_early_stop(enable: bool) -> nullcontext:
    """A context that changes nothing: a function that is run again is run to its end."""
    return nullcontext()


def detach_variable(inputs: tuple) -> tuple:
    """The tensors among ``inputs`` as leaves that require what they required."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(
            "Only tuple of tensors is supported. Got Unsupported input type: "
            f"{type(inputs).__name__}, in detach_variable"
        )
    return tuple([x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x
                  for x in inputs])


def check_backward_validity(inputs: Sequence) -> None:
    """Warn where none of ``inputs`` requires a gradient."""
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None",
                      stacklevel=2)


__all__ = [
    "check_backward_validity", "checkpoint", "checkpoint_sequential", "detach_variable",
    "noop_context_fn", "set_checkpoint_early_stop",
]
